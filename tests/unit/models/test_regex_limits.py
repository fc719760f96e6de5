"""Regular expressions of tokenizers: published ones are accepted, others are refused."""

import pytest
from tokenizers import Regex

from dlstep.models.regex_limits import regex_problem

LETTERS = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
ENDS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PUBLISHED_EXPRESSIONS = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "qwen2": rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{ENDS}",
    "llama3": rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{ENDS}",
    "o200k": rf"{LETTERS}|{LETTERS}|\p{{N}}{{1,3}}|{ENDS}",
    "deepseek": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*",
    "deepseek letters": r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿ]+",
    "seed": "[一-龥]+",
    "bloom": r" ?[^(\s|[.,!?…])]+",
    "kimi": r"[\p{Han}]+|[\p{Lu}\p{M}&&[^\p{Han}]]*[\p{Ll}&&[^\p{Han}]]+(?i:'s|'t)?",
    "superbpe": r"(?=(\d{3})+(?!\d))|\d{1,2}(?=(?:\d{3})*(?:\D|$))",
    "lines": r"(?:\r?\n)+(?!\r?\n)",
}


@pytest.mark.parametrize("name", PUBLISHED_EXPRESSIONS)
def test_published_expressions_are_accepted(name: str) -> None:
    assert regex_problem(PUBLISHED_EXPRESSIONS[name]) is None
    Regex(PUBLISHED_EXPRESSIONS[name])


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|a)*b", "(a*)*", "((?:a{2,})+)", "(?:a+b?)+c", r"(a)\1", r"(?<x>a)\g<x>", "(?(1)a|b)", "(?R)", "(?x) a", "a**",
        "a{5}{5}", "a{99999999}", r"\s*" * 8, "(", ")", "[a", "a" * 20_000,
    ],
)  # fmt: skip
def test_other_expressions_are_refused(pattern: str) -> None:
    assert regex_problem(pattern) is not None
