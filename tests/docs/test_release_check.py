"""`make release-check` finds each fault of a package, and the files of the checkout state one version."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import dlstep

from ..release_check import (
    FILES,
    FOLDERS,
    MOST_BYTES,
    ROOT,
    read_wheel,
    sdist_faults,
    small_bytes,
    version_faults,
    wheel_faults,
)

CHANGELOG, CITATION = (
    "# Changelog\n\n## 1.2.0 (2030-01-31)\n\n## 1.1.0 (2029-01-31)\n",
    "title: x\nversion: 1.2.0\nlicense: x\n",
)
SCRIPTS = "[console_scripts]\ndlstep = dlstep.cli:main\ndlstep-lm-eval = dlstep.cli.lm_eval:main\n"
WHEEL = dict.fromkeys(
    (
        "dlstep/py.typed", "dlstep/cli/__init__.py", "dlstep/cli/lm_eval.py", "dlstep_kernels/__init__.py",
        "dlstep-1.2.0.dist-info/licenses/LICENSE",
    ), 100,
) | {"dlstep/tiny/checkpoints/tiny-bd/model.safetensors": 10**7}  # fmt: skip
SDIST = [*FILES, *(f"{folder}/a.py" for folder in FOLDERS)]


def test_the_checkout_states_one_version() -> None:
    changelog, citation = ((ROOT / name).read_text() for name in ("CHANGELOG.md", "CITATION.cff"))
    assert [*version_faults(dlstep.__version__, changelog, citation)] == []


def test_the_wheel_of_the_checkout_has_no_fault(tmp_path: Path, report: Callable[[str], None]) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path))
    sizes, entry_points, version = read_wheel(Path(wheel))
    assert [*wheel_faults(sizes, entry_points)] == []
    assert version == dlstep.__version__
    report(f"files of the wheel other than the embedded weights: {small_bytes(sizes):,} bytes, compressed")


def test_a_good_release_has_no_fault() -> None:
    assert [*version_faults("1.2.0", CHANGELOG, CITATION, "v1.2.0"), *wheel_faults(WHEEL, SCRIPTS), *sdist_faults(SDIST)] == []


@pytest.mark.parametrize(
    ("version", "changelog", "citation", "tag", "fault"),
    [
        ("1.1.0", CHANGELOG, CITATION.replace("1.2.0", "1.1.0"), "", "begins with 1.2.0"),
        ("1.2.0", "# Changelog\n", CITATION, "", "begins with None"),
        ("1.2.0", CHANGELOG, CITATION.replace("1.2.0", "1.2.01"), "", "no line `version: 1.2.0`"),
        ("1.2.0", CHANGELOG, CITATION, "1.2.0", "must be v1.2.0"),
        ("1.2.0", CHANGELOG.replace("2030-01-31", "unreleased"), CITATION, "v1.2.0", "date of the release"),
    ],
)
def test_another_version_is_found(version: str, changelog: str, citation: str, tag: str, fault: str) -> None:
    (found,) = version_faults(version, changelog, citation, tag)
    assert fault in found


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("tests/helpers/servers.py", "outside of the packages"),
        ("dlstep/training/train.py", "not for users"),
        ("dlstep/core/test_plan.py", "not for users"),
        ("dlstep/tiny/checkpoints/tiny-bd/README.md", "not for users"),
        ("dlstep/large.json", f"more than {MOST_BYTES:,}"),
    ],
)
def test_a_file_too_many_is_found(name: str, fault: str) -> None:
    found = [*wheel_faults(WHEEL | {name: MOST_BYTES if "large" in name else 1}, SCRIPTS)]
    assert any(fault in text for text in found)


@pytest.mark.parametrize("name", [name for name in WHEEL if not name.endswith(".safetensors")])
def test_a_missing_file_of_a_wheel_is_found(name: str) -> None:
    (found,) = wheel_faults({other: size for other, size in WHEEL.items() if other != name}, SCRIPTS)
    assert "is missing" in found or "has no module" in found


def test_a_missing_command_is_found() -> None:
    (found,) = wheel_faults(WHEEL, SCRIPTS.partition("dlstep-lm-eval")[0])
    assert "must be dlstep, dlstep-lm-eval" in found
    assert len([*wheel_faults(WHEEL, "")]) == 1


@pytest.mark.parametrize("name", SDIST)
def test_a_missing_file_of_a_source_archive_is_found(name: str) -> None:
    (found,) = sdist_faults([other for other in SDIST if other != name])
    assert name.partition("/")[0] in found


def test_a_cache_in_a_source_archive_is_found() -> None:
    (found,) = sdist_faults([*SDIST, "src/dlstep/__pycache__/a.pyc"])
    assert "does not belong" in found
