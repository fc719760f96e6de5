"""The schemas that people have written compile, and what they allow conforms."""

import os
from collections.abc import Callable

import pytest

from benchmarks.schemas import measure_schemas


@pytest.mark.skipif("DLSTEP_DATA" not in os.environ, reason="DLSTEP_DATA does not name the folder of schemas_300.jsonl")
@pytest.mark.parametrize("count", [20, pytest.param(300, marks=pytest.mark.full)])
def test_real_schemas_compile_and_allow_only_what_conforms(count: int, report: Callable[[str], None]) -> None:
    (row,) = measure_schemas(count, "", "", verbose=False)
    report(", ".join(f"{name} {value}" for name, value in row.items()))
    assert row["compiled"] >= 0.8 * row["given"] == 0.8 * count
    assert row["invalid"] > 30 and row["invalid_accepted"] == row["wrong_texts"] == 0
    assert row["valid_accepted"] >= (0.97 if count == 300 else 0.9) * row["valid"] > 0
