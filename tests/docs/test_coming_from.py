"""The tables of docs/coming_from.md agree with the hints that errors about foreign option names give."""

import re
from dataclasses import fields

import pytest

from dlstep import EngineConfig, SamplingParams, rules, strategies
from dlstep.engine.hints import ELSEWHERE, NOT_NEEDED
from dlstep.serve.settings import ServeOptions

from .blocks import ROOT, tokens_of

CODE = re.compile(r"`([^`]+)`")
WORD = re.compile(r"[a-z]\w+")
OWNERS = [
    EngineConfig,
    SamplingParams,
    ServeOptions,
    *(strategies.load(name) for name in strategies.own()),
    *(rules.load(name) for name in rules.own()),
]
OPTIONS = {field.name for owner in OWNERS for field in fields(owner)}
VALUES = {"rule": set(rules.own()), "decoding_strategy": set(strategies.own())}


def table_rows():
    """Return the first two cells of each row."""
    inlines = []
    for token in tokens_of(ROOT / "docs" / "coming_from.md"):
        if token.type == "tr_open":
            inlines.append([])
        elif token.type == "inline" and inlines:
            inlines[-1].append(token.content)
    return [(there, here) for there, here, *_ in inlines if CODE.search(there)]


ROWS = table_rows()


def foreign_names(cell):
    """Return the option names in the first cell of a row."""
    found = []
    for code in CODE.findall(cell):
        inner = re.fullmatch(r"SamplingParams\((.*)\)", code)
        found += [
            part.strip().lstrip("-").replace("-", "_").partition("=")[0] for part in (inner[1] if inner else code).split(",")
        ]
    return found


def named_options(text):
    """Return the options of dlstep that a text names."""
    return set(WORD.findall(text.replace("-", "_"))) & OPTIONS


@pytest.mark.parametrize("there, here", ROWS)
def test_a_row_names_options_that_exist_and_says_what_the_error_says(there, here):
    if here == "the same":
        assert set(foreign_names(there)) <= OPTIONS
    elif not here.startswith("leave it out"):
        assert named_options(here)
        for code in CODE.findall(here):
            name, _, value = code.lstrip("-").partition("=")
            assert name in OPTIONS
            assert name not in VALUES or not value or value.strip('"') in VALUES[name]
    for name in foreign_names(there):
        if name in ELSEWHERE and here != "the same":
            assert named_options(ELSEWHERE[name]) <= named_options(here), ELSEWHERE[name]
        elif name in NOT_NEEDED:
            assert here.startswith("leave it out")


def test_every_name_that_an_error_explains_is_in_a_table():
    assert {*ELSEWHERE, *NOT_NEEDED} <= {name for there, _ in ROWS for name in foreign_names(there)}
