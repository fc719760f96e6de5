"""Strategies and rules are found by name, by path, by class and by value, in the same ways."""

import sys
from dataclasses import replace

import pytest

from dlstep import rules, strategies
from dlstep.core.options import searched
from dlstep.rules.quota import Quota
from dlstep.rules.threshold import Threshold
from dlstep.strategies.multi_bd import MultiBD

RULE = """
from dataclasses import dataclass
from typing import final
from dlstep.core import BlockPass, Choice, Probability, check_ranges
{extra}

@final
@dataclass(frozen=True, slots=True)
class Odd(Choice):
    odd: Probability = 0.5
    \"\"\"How odd.\"\"\"

    def __post_init__(self) -> None:
        check_ranges(self)

    def chosen(self, block_pass: BlockPass) -> list[int]:
        return [0]
"""
STRATEGY = """
from dataclasses import dataclass
from typing import final
from dlstep.core import Grid, Request
from dlstep.strategies import Blockwise
{extra}

@final
@dataclass(frozen=True, slots=True)
class Odd(Blockwise):
    odd: int = 3

    def grid(self, request: Request) -> Grid:
        return Grid(0, self.block_size)
"""
GROUPS = {"rules": (rules.PLUGINS, RULE, "RULE"), "strategies": (strategies.PLUGINS, STRATEGY, "STRATEGY")}


@pytest.fixture(params=GROUPS)
def group(request):
    """A kind of classes; modules that a test imports are forgotten after it."""
    before = dict(sys.modules)
    yield GROUPS[request.param]
    for name in [name for name in sys.modules if name not in before]:
        del sys.modules[name]


def write(folder, group, extra="", *, last=""):
    _, code, constant = group
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "odd_file.py"
    path.write_text(code.format(extra=extra) + (last or f"\n{constant} = Odd\n"))
    return path


def test_a_class_is_found_by_every_kind_of_name(group, tmp_path):
    plugins = group[0]
    path = write(tmp_path / "lab", group)
    by_file = plugins.load(str(path))
    assert by_file.__name__ == "Odd" and plugins.load(f"{path}:Odd") is by_file is plugins.load(str(path))
    assert str(tmp_path / "lab") not in sys.path
    with searched(tmp_path):
        dotted = plugins.load("lab.odd_file")
    assert dotted is plugins.load("lab.odd_file:Odd") is not by_file
    assert str(tmp_path) not in sys.path
    assert type(plugins.value(by_file)) is by_file and plugins.value(plugins.value(by_file)) == by_file()
    assert plugins.name_of(by_file) is plugins.name_of(dotted) is None
    assert all(plugins.name_of(plugins.load(name)) == name for name in plugins.own())


def test_entry_points_are_found(group, tmp_path, monkeypatch):
    plugins = group[0]
    write(tmp_path, group)
    about = tmp_path / "odd_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{plugins.package}]\nodd_one = odd_file:Odd\nodd_two = odd_file\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert {"odd_one", "odd_two"} <= set(plugins.available()) and plugins.is_known("odd_one")
    assert "odd_file" not in sys.modules, "names alone import nothing"
    assert plugins.load("odd_one") is plugins.load("odd_two")


def test_a_file_may_import_those_beside_it(group, tmp_path):
    (tmp_path / "odd_helper.py").write_text("NUMBER = 3\n")
    path = write(tmp_path, group, "from odd_helper import NUMBER")
    assert vars(sys.modules[group[0].load(str(path)).__module__])["NUMBER"] == 3


@pytest.mark.parametrize(
    "last, message",
    [
        ("RULE = STRATEGY = 5", "(RULE|STRATEGY) must be a dataclass that derives from dlstep.core.*got 5"),
        (
            "RULE = STRATEGY = Choice if 'Choice' in dir() else Blockwise.__base__",
            "(Choice|Blocks) does not define [a-z_, ]+$",
        ),
    ],
)
def test_a_file_without_a_class_is_one_sentence(group, tmp_path, last, message):
    path = write(tmp_path, group, last=last)
    with pytest.raises(ValueError, match=message) as caught:
        group[0].load(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "extra, message",
    [
        ("raise ValueError('mine')", "ValueError: mine (odd_file.py:"),
        ("raise SystemExit", "SystemExit (odd_file.py:"),
    ],
)
def test_what_the_code_of_a_file_raises_is_one_sentence(group, tmp_path, extra, message):
    path = write(tmp_path, group, extra)
    for name in (str(path), "odd_file"):
        with pytest.raises(ValueError) as caught, searched(tmp_path):
            group[0].load(name if name != "odd_file" else "odd_file:Odd")
        assert "odd_file" in str(caught.value) and "cannot be imported: " in str(caught.value) and "\n" not in str(caught.value)
        assert message in str(caught.value) and caught.value.__cause__ is not None
    assert "odd_file" not in sys.modules and str(tmp_path) not in sys.path


@pytest.mark.parametrize(
    "name, message",
    [
        ("nonsense", "'nonsense' is unknown: choose from .*, or give a dotted module path or the path of a .py file"),
        ("./nowhere.py", "'./nowhere.py' is unknown: there is no such file; give the path of a .py file"),
        ("a/b", "'a/b' is unknown: there is no such file; give the path of a .py file"),
        ("\0/.py", "is unknown: there is no such file"),
        ("no.such", "'no.such' is unknown: Python finds no module 'no'"),
        ("json.such", "'json.such' is unknown: Python finds no module 'json.such'"),
        ("..a", "'..a' is unknown"),
        (":A", "':A' is unknown"),
        ("json:decoder", "decoder must be a dataclass that derives from"),
        ("json:Nothing", "'json:Nothing' defines no Nothing"),
        ("_blocks", "'_blocks' is unknown"),
        ("", "'' is unknown"),
    ],
)
def test_a_name_that_leads_nowhere_is_one_sentence(group, name, message):
    with pytest.raises(ValueError, match=message):
        group[0].load(name)


def test_rules_by_name_become_values():
    assert rules.with_values({"rule": "quota", "block_size": 4}) == {"rule": Quota(), "block_size": 4}
    assert rules.with_values({"rule": Quota, "inner": "threshold"}) == {"rule": Quota(), "inner": Threshold()}
    assert rules.with_values({"rule": Quota(3), "cache": "none"}) == {"rule": Quota(3), "cache": "none"}
    assert strategies.make("multi_bd", rule=Quota(), steps_per_block=2) == replace(MultiBD(), rule=Quota(2))
