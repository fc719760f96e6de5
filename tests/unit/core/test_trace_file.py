"""Trace files that were changed: each is refused by a sentence, or holds the same trace."""

import json
import random
import sys
from dataclasses import dataclass, replace
from functools import cache
from typing import final
from zlib import crc32

import pytest
from hypothesis import settings

from dlstep import Trace, strategies
from dlstep.core.trace import FORMAT
from dlstep.strategies import Blockwise
from dlstep.strategies.multi_bd import MultiBD

from ...helpers.recorded import recorded

EXAMPLES = settings.default.max_examples if settings.default is not None else 0
MUTATIONS = 3000 if EXAMPLES > 1000 else 300 if EXAMPLES >= 60 else 100
NAMES = strategies.available()
OTHERS = (
    None, True, 0, 1, -1, 2**70, 0.5, float("nan"), float("inf"), "", "x", "\ud800", [], [1], [[]], {}, {"class": "x"},
    {"bytes": "zz"}, {"set": 5}, {"map": [[1]]}, {"list": None}, {"class": "dlstep.core:State"}, {"class": "dlstep.core:Grid"},
)  # fmt: skip
CLASSES = (
    "dlstep.core:Request",
    "dlstep.core:Nothing",
    "builtins:dict",
    "os:system",
    "dlstep.strategies.d2f:D2F",
    "",
    ":",
    "x",
)


@cache
def saved(name, folder):
    """A trace and its file."""
    traces = (recorded(name, seed)[0] for seed in range(50))
    trace = next(trace for trace in traces if len({type(event) for event in trace.events}) == 7)  # all kinds of events
    trace.save(folder / f"{name}.jsonl")
    return trace, (folder / f"{name}.jsonl").read_bytes()


def parts(data):
    """Every container in `data` with each of its keys or indices."""
    for place in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield data, place
        yield from parts(data[place])


def changed_line(draw, line):
    """A line of JSON with one thing changed in it."""
    data = json.loads(line)
    holder, place = draw.choice(list(parts(data)))
    match draw.choice(["value", "number", "remove", "rename", "double", "class", "deep", "more"]):
        case "value":
            holder[place] = draw.choice(OTHERS)
        case "number" if type(holder[place]) in (int, float):
            holder[place] += draw.choice([1, -1, 0.5, 2**64])
        case "remove":
            del holder[place]
        case "rename" if isinstance(holder, dict):
            holder[draw.choice(["x", "step", "class", f"{place}_"])] = holder.pop(place)
        case "double":
            text = json.dumps(data)
            return text.replace(
                "{", '{"' + draw.choice(["class", "step", "event", "x"]) + '": ' + draw.choice("15"), 1
            ).encode()
        case "class":
            holder[place] = {"class": draw.choice(CLASSES)}
        case "deep":
            holder[place] = "DEEP"
            depth = draw.choice([10, 900, 5000, 200_000])
            return json.dumps(data).replace('"DEEP"', "[" * depth + "]" * depth).encode()
        case _:
            holder[place] = [holder[place]]
    return json.dumps(data).encode()


def mutated(draw, content):
    """The file with one change."""
    lines = content.splitlines(keepends=True)
    at, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    match draw.choice(["line", "line", "line", "line", "delete", "swap", "double", "flip", "cut", "insert", "shuffle"]):
        case "line":
            lines[at] = changed_line(draw, lines[at]) + b"\n"
        case "delete":
            del lines[at]
        case "swap":
            lines[at], lines[other] = lines[other], lines[at]
        case "double":
            lines.insert(other, lines[at])
        case "flip":
            place = draw.randrange(len(content))
            return content[:place] + bytes([content[place] ^ (1 << draw.randrange(8))]) + content[place + 1 :]
        case "cut":
            return content[: draw.randrange(len(content))]
        case "insert":
            place = draw.randrange(len(content))
            return content[:place] + draw.choice([b"\xff", b"\0", b"\n", b" ", b"1", b"\xed\xa0\x80", b"{}"]) + content[place:]
        case _:
            draw.shuffle(lines)
    return b"".join(lines)


def test_a_changed_file_is_refused_or_is_the_same(tmp_path):
    path, seen = tmp_path / "changed.jsonl", dict.fromkeys(["refused", "equal"], 0)
    for seed in range(MUTATIONS):
        trace, content = saved(NAMES[seed % len(NAMES)], tmp_path)
        path.write_bytes(mutated(random.Random(seed), content))
        try:
            loaded = Trace.load(path)
            assert loaded == trace, f"mutation {seed} was not noticed"
            seen["equal"] += 1
        except ValueError as error:
            assert str(path) in str(error) and len(str(error)) < 1000 and "\n" not in str(error), error
            seen["refused"] += 1
    assert seen["refused"] > 0.8 * MUTATIONS, seen


def sealed(lines):
    """The lines of a file with fitting checksums and a fitting number of events."""
    crc, lines[0]["events"] = 0, len(lines) - 1
    for line in lines:
        value = line["first" if line is lines[0] else "event"]
        line["crc"] = crc = crc32(json.dumps(value, separators=(",", ":")).encode(), crc)
    return [json.dumps(line).encode() for line in lines]


def test_a_trace_of_another_format_is_refused_by_its_number(tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_text('{"dlstep_trace":1,"first":{"class":"dlstep.core:State"}}\n')
    with pytest.raises(ValueError, match=f"line 1: its format is 1, this version reads format {FORMAT}"):
        Trace.load(path)
    path.write_text('{"other": 1}\n')
    with pytest.raises(ValueError, match="line 1: not a line of a trace: its format is None, this version reads"):
        Trace.load(path)


def forged(path, content, strategy):
    """A file whose strategy is this data, with fitting checksums."""
    lines = [json.loads(line) for line in content.splitlines()]
    lines[0]["first"]["strategy"] = strategy
    path.write_bytes(b"\n".join(sealed(lines)))
    return path


@dataclass(frozen=True)
class Harmless:
    """A dataclass of a module that is imported, and no strategy."""

    block_size: int = 4


@final
@dataclass(frozen=True, slots=True)
class OwnStrategy(Blockwise):
    """A strategy of one's own."""

    grid = MultiBD.grid


@pytest.mark.parametrize(
    "name",
    [
        "planted_module:Evil", "planted_module:STRATEGY", "dlstep.models.shapes:KVShape", "dlstep.strategies.planted:STRATEGY",
        "dlstep.strategies..models.shapes:x", "dlstep.text.output:Output", "dlstep.engine.config:EngineConfig",
        f"{__name__}:Harmless", f"{__name__}:json", "dlstep.core.trace:from_json", "dlstep.core:Driver", "os:PathLike",
        "antigravity:x", "json.tool:x", "dlstep.strategies._blocks:Blocks", "dlstep.strategies.d2f:Strategy",
    ],
)  # fmt: skip
def test_a_trace_imports_nothing(name, tmp_path, monkeypatch):
    (tmp_path / "planted_module.py").write_text("raise SystemExit('planted code ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = forged(tmp_path / "forged.jsonl", saved("multi_bd", tmp_path)[1], {"class": name})
    before = set(sys.modules)
    with pytest.raises(ValueError, match=r"line 1: not a line of a trace: .*(import that module|has no|abstract)"):
        Trace.load(path)
    assert set(sys.modules) == before


def test_a_strategy_of_ones_own_is_read_once_its_module_is_imported(tmp_path):
    trace = recorded("multi_bd", 2)[0]
    own = Trace(replace(trace.first, strategy=OwnStrategy(block_size=4)))
    own.save(tmp_path / "own.jsonl")
    assert Trace.load(tmp_path / "own.jsonl") == own
    text = (tmp_path / "own.jsonl").read_text()
    assert f"{__name__}:OwnStrategy" in text


def test_a_file_that_was_cut_off_is_refused(tmp_path):
    path, lines = tmp_path / "cut.jsonl", saved("multi_bd", tmp_path)[1].splitlines()
    for kept in (0, 1, len(lines) - 1):
        path.write_bytes(b"\n".join(lines[:kept]))
        with pytest.raises(ValueError, match=f"the file holds {kept} of .* lines: it was cut off"):
            Trace.load(path)
