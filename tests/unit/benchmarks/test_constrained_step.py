"""Steps with and without constraints are measured, part by part."""

from dataclasses import replace

import pytest

from benchmarks import constrained_step
from benchmarks.constrained_step import PARTS, TINY, measure

from .test_schema_answers import written

IDS = 1300  # the first 1000 have no bytes


@pytest.mark.full
def test_both_kinds_of_steps_are_measured(tmp_path, monkeypatch):
    given = [{"type": "object", "properties": {name: {"type": "string"}}, "required": [name]} for name in ("name", "kind")]
    pieces = [bytes([byte]) for byte in range(256)]
    vocabulary, schemas = written(tmp_path, pieces, [{"schema": schema} for schema in given])
    monkeypatch.setattr(constrained_step, "TINY", replace(TINY, facts={**TINY.facts, "vocab_size": IDS}))
    monkeypatch.setattr(constrained_step, "VOCABULARY", IDS)
    functions = [getattr(owner, name) for _, owner, names in PARTS for name in names]
    rows = list(measure("tiny", 1, (str(schemas),), str(vocabulary), (1,), (1,), 16, 3, 1))
    assert functions == [getattr(owner, name) for _, owner, names in PARTS for name in names]
    assert [row["round"] for row in rows] == ["warm-up", "first", "second"]
    for row in rows:
        assert row["steps"] and row["plain_ms"] > 0 and 0 < row["masks_p50"] <= row["masks_p90"] <= row["masks_max"]
        assert all(row[part] > 0 for part in ("sets", "classes", "rows", "filter", "start", "commit"))
