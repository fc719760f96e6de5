"""`make release-check` finds each fault of a package, and the files of the checkout state one version."""

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

import dlstep

from ..release_check import (
    ROOT,
    read_wheel,
    small_bytes,
    version_faults,
    wheel_faults,
)


def test_the_checkout_states_one_version():
    changelog, citation = ((ROOT / name).read_text() for name in ("CHANGELOG.md", "CITATION.cff"))
    assert [*version_faults(dlstep.__version__, changelog, citation)] == []


def test_the_wheel_of_the_checkout_has_no_fault(tmp_path, report):
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path))
    sizes, entry_points, version = read_wheel(Path(wheel))
    assert [*wheel_faults(sizes, entry_points)] == []
    assert version == dlstep.__version__
    report(f"files of the wheel other than the embedded weights: {small_bytes(sizes):,} bytes, compressed")
