"""The schemas that people have written compile, and what they allow conforms."""

import pytest

from benchmarks.schemas import FILE, measure_schemas

from ...helpers.given import DATA


@pytest.mark.skipif(not (DATA / FILE).is_file(), reason=f"no {FILE} in {DATA}: set DLSTEP_DATA to a folder with it")
@pytest.mark.parametrize("count", [20, pytest.param(300, marks=[pytest.mark.full, pytest.mark.timeout(1800)])])
def test_real_schemas_compile_and_allow_only_what_conforms(count, report, monkeypatch):
    monkeypatch.setenv("DLSTEP_DATA", str(DATA))
    (row,) = measure_schemas(count, "", verbose=False)
    report(", ".join(f"{name} {value}" for name, value in row.items()))
    assert row["given"] == count and row["compiled"] >= 0.8 * count
    assert row["invalid"] > count and row["invalid_accepted"] == row["wrong_texts"] == 0
    assert row["valid_accepted"] >= (0.96 if count == 300 else 0.9) * row["valid"] > 0
