"""Other users' latency is compared between phases with a tool and without; the model has the tokenizer's bytes."""

import json
from random import Random

import pytest

from benchmarks import neighbors
from benchmarks.neighbors import byte_tokenizer, compared, write_model
from dlstep import LLM, SamplingParams
from dlstep.text.detokenize import decode

PIECES = [b"", b"", *[bytes([byte]) for byte in range(256)], b'{"', b'": ', b"\xe2\x82\xac", b" two", b"\xff\xfe", b"", b""]
SCHEMA = {"type": "object", "properties": {"one": {"type": "boolean"}}, "required": ["one"]}


def test_the_tokenizer_has_these_bytes(tmp_path):
    tokenizer = byte_tokenizer(PIECES, {"mask_token": 0, "eos_token": 1})
    text = 'a {"\N{EURO SIGN}": two}\n'
    assert b"".join(PIECES[token] for token in tokenizer.encode(text)) == text.encode()
    random = Random(0)
    tokens = random.choices([token for token, piece in enumerate(PIECES) if piece.isascii() and piece], k=50)
    assert decode(tokenizer, tokens) == b"".join(PIECES[token] for token in tokens).decode()
    write_model(tmp_path, PIECES)
    llm = LLM(str(tmp_path), device="cpu", max_model_len=128)
    spec = llm.engine.first.config.spec
    assert [*spec.pieces[:-2]] == PIECES[:-2] and {spec.mask_id, *spec.eos_ids} == {len(PIECES) - 2, len(PIECES) - 1}
    (output,) = llm.generate("one", SamplingParams(max_tokens=24, json_schema=json.dumps(SCHEMA)))
    assert isinstance(output.parsed["one"], bool)


def test_medians_of_phases_are_compared(monkeypatch):
    parts = {None: iter([[9.0], [1.0, 2.0], [1.0, 3.0], [50.0]]), "tool": iter([[4.0, 1.0], [6.0, 1.0], [1.0, 99.0]])}
    titles = []

    def phase(url, seconds, tool):
        titles.append(tool and tool["title"])
        return next(parts[tool and "tool"]), tool is not None

    monkeypatch.setattr(neighbors, "phase", phase)
    row = compared("", SCHEMA, 3, 1.0)
    assert row["alone_max_ms"] == 3000 and row["beside_max_ms"] == 6000 and row["max_ratio"] == pytest.approx(2)
    assert (row["requests"], row["calls"]) == (11, 3) and len({*titles}) == 4
