"""Answers to schemas are measured on valid instances, and their masks are recorded."""

import json
from base64 import b64encode

import pytest

from benchmarks import schema_answers
from benchmarks.schema_answers import measure_answers

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["new", "old"]}, "count": {"type": "integer"}},
    "required": ["kind"],
}
LINES = [
    {"schema": SCHEMA},
    {"schema": SCHEMA, "tests": [{"valid": True, "data": {"count": 3, "kind": "new"}}, {"valid": False, "data": {}}]},
    {"schema": {"type": "object", "unevaluatedProperties": False}},
]


def written(folder, pieces, lines):
    """A file of a vocabulary and one of schemas."""
    vocabulary, schemas = folder / "vocabulary.json", folder / "schemas.jsonl"
    vocabulary.write_text(json.dumps({"vocab": [{"token_bytes": b64encode(piece).decode()} for piece in pieces]}))
    schemas.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return vocabulary, schemas


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A file of schemas and one of a vocabulary of 300 ids."""
    monkeypatch.setattr(schema_answers, "VOCABULARY", 300)
    monkeypatch.setattr(schema_answers, "SPECIAL", 20)
    pieces = [bytes([byte]) for byte in range(256)] + [b"kind", b'":', b' "ne', b"count"]
    pieces += [b"word%d" % number for number in range(20)]
    return written(tmp_path, pieces, LINES)


def test_instances_are_answered_and_masks_recorded(files, tmp_path):
    vocabulary, schemas = files
    (tmp_path / "masks").mkdir()
    rows = list(measure_answers([str(schemas)], str(vocabulary), 1, str(tmp_path / "masks")))
    assert [(row["given"], row["compiled"], row["answered"]) for row in rows] == [(3, 2, 2)] * 2
    assert 0 < rows[0]["first_p50_ms"] <= rows[0]["first_p90_ms"] <= rows[0]["first_max_ms"]
    assert 0 < rows[0]["table_p50_mb"] < rows[0]["held_p50_mb"]
    assert [bool(path.read_text()) for path in (tmp_path / "masks").iterdir()] == [True] * 2
