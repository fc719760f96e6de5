"""JSON on standard output has no word for numbers that are not finite."""

import json
import math

from dlstep.cli import main
from dlstep.cli.options import json_text


def no_constants(name):
    """A strict parser's answer to NaN."""
    raise AssertionError(f"{name} is not JSON")


def test_json_has_no_word_for_numbers_that_are_not_finite():
    rows = [
        {"ratio": math.nan, "bounds": (-math.inf, math.inf, 1.5), "all": {"count": 3, "text": "NaN", "none": None, "yes": True}}
    ]
    read = json.loads(json_text(rows), parse_constant=no_constants)
    assert read == [{"ratio": None, "bounds": [None, None, 1.5], "all": {"count": 3, "text": "NaN", "none": None, "yes": True}}]


def test_an_answer_without_probabilities_is_json(monkeypatch, capsys):
    from dlstep import LLM, Output

    broken = Output("a", "", (0,), (math.nan,), "error", 1, 1, "row of NaN")
    monkeypatch.setattr(LLM, "generate", lambda *arguments, **options: [broken])
    assert main(["generate", "a", "--json"]) == 1
    assert json.loads(capsys.readouterr().out, parse_constant=no_constants)[0]["probabilities"] == [None]
