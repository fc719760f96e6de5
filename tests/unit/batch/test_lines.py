"""Lines of a file of requests: which are equal, which are missing, and what is wrong with one."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dlstep.batch.lines import content_key, read_lines

from .batches import request

Json_ = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
Contents = st.dictionaries(st.text(max_size=3), Json_, max_size=3)


@given(facts=Contents, one=Contents, other=Contents)
def test_keys_are_equal_where_contents_are(facts: dict[str, Any], one: dict[str, Any], other: dict[str, Any]) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (content_key(facts, one) == content_key(facts, other)) == same
    assert content_key(facts, dict(reversed(one.items()))) == content_key(facts, one)
    assert content_key(facts | {"model": "another"}, one) != content_key(facts, one) or facts.get("model") == "another"


GOOD = json.dumps(request("a", {"prompt": "x"}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1 holds no JSON"),
        (GOOD + '\n{"custom_id": "b", "met', "line 2 holds no JSON"),
        (GOOD[:9] + "\n" + GOOD, "line 1 holds no JSON: [^;]*$"),
        (GOOD + "\n\n" + GOOD.replace('"a"', '"b"'), "line 2 holds no JSON"),
        (GOOD + "\n[1]\n", "line 2 is no request, which is an object"),
        ('{"method": "POST"}', "line 1 needs a non-empty text as its custom_id, got None"),
        ('{"custom_id": 5}', "line 1 needs a non-empty text as its custom_id, got 5"),
        (GOOD + "\n" + GOOD.replace("x", "y") + "\n", "lines 1 and 2 both have custom_id 'a': give each its own"),
        ('{"custom_id": ' + "[" * 5000, "line 1 holds no JSON"),
        ('{"custom_id": ' + "9" * 5000, "line 1 holds no JSON"),
    ],
)
def test_a_file_that_cannot_be_answered_is_told_by_its_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_lines("in.jsonl", text.encode())


@pytest.mark.parametrize("depth", [100, 300, *range(900, 1000, 5), 1500])
def test_a_deep_line_is_refused_in_a_sentence_or_has_a_key(depth: int) -> None:
    body = '{"prompt": "x", "deep": ' + "[" * depth + "]" * depth + "}"
    line = f'{{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {body}}}'
    try:
        (found,) = read_lines("in.jsonl", line.encode())
        assert content_key({}, found.content)
    except ValueError as error:
        assert depth >= 900 and ("holds no JSON" in str(error) or "nests" in str(error))
