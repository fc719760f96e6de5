"""`dlstep generate`: what it prints where, and its exit codes."""

import json

from dlstep.cli import main

QUESTION = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"


def test_generate_prints_the_right_answer(capsys):
    assert main(["generate", QUESTION]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert "92" in out
    assert "tokens per forward pass, ended by stop" in err


def test_generate_prints_json_alone_on_stdout(printed):
    rows = json.loads(printed(f"generate '{QUESTION}' '{QUESTION}\n' --json --buffer_size 1"))
    assert len(rows) == 2
    assert rows[0]["token_ids"] == rows[1]["token_ids"]  # the missing newline is added
    assert rows[0]["finish_reason"] == "stop"
    assert rows[0]["tokens_per_forward"] == len(rows[0]["token_ids"]) / rows[0]["nfe"]


def test_a_rejected_request_is_told_and_exits_with_one(capsys):
    assert main(["generate", "5" * 600, QUESTION, "--json"]) == 1
    out, err = capsys.readouterr()
    rejected, good = json.loads(out)
    assert rejected["finish_reason"] == "rejected"
    assert "max_model_len=512" in rejected["error"]
    assert good["finish_reason"] == "stop"
    assert "dlstep: prompt 1 rejected: prompt: it has 601 tokens" in err
