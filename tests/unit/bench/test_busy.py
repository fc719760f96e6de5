"""Kernels by their names, and the time that they cover."""

import pytest

from dlstep.bench.busy import covered, kind_of


def test_time_that_is_covered_twice_counts_once() -> None:
    assert covered([(4.0, 6.0), (0.0, 2.0), (1.0, 3.0), (5.0, 5.5)]) == 5.0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_attend", "attention"),
        ("_multiply_gated", "experts"),
        ("void cutlass::device_kernel<...>", "products"),
        ("nvjet_sm90_tst_192x64", "products"),
        ("_read_head", "head"),
        ("triton_red_fused_rsqrt_0", "others"),
    ],
)
def test_kernels_are_known_by_what_they_do(name: str, kind: str) -> None:
    assert kind_of(name) == kind
