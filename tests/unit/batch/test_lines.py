"""Lines of a file of requests: which are equal, which are missing, and what is wrong with one."""

import json

import pytest
from hypothesis import given, strategies as st

from dlstep.batch.lines import content_key, read_lines

Json_ = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
Contents = st.dictionaries(st.text(max_size=3), Json_, max_size=3)


@given(facts=Contents, one=Contents, other=Contents)
def test_keys_are_equal_where_contents_are(facts, one, other):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (content_key(facts, one) == content_key(facts, other)) == same
    assert content_key(facts, dict(reversed(one.items()))) == content_key(facts, one)
    assert content_key(facts | {"model": "another"}, one) != content_key(facts, one) or facts.get("model") == "another"


@pytest.mark.parametrize("depth", [100, 300, *range(900, 1000, 5), 1500])
def test_a_deep_line_is_refused_in_a_sentence_or_has_a_key(depth):
    body = '{"prompt": "x", "deep": ' + "[" * depth + "]" * depth + "}"
    line = f'{{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {body}}}'
    try:
        (found,) = read_lines("in.jsonl", line.encode())
        assert content_key({}, found.content)
    except ValueError as error:
        assert depth >= 900 and ("holds no JSON" in str(error) or "nests" in str(error))


def test_blank_lines_are_skipped_and_counted():
    lines = b'\n{"custom_id": "a"}\n \t\n\r\n{"custom_id": "b"}\n\n'
    assert [line.custom_id for line in read_lines("in.jsonl", lines)] == ["a", "b"]
    with pytest.raises(ValueError, match="line 8 holds"):
        read_lines("in.jsonl", lines + b"\n{")


@pytest.mark.parametrize(
    "lines, message",
    [
        (b"[1]", "in.jsonl, line 1 is no request"),
        (b'{"custom_id": "a"}\n{"url": "/v1/completions"}', "line 2 needs a non-empty text as its custom_id, got None"),
        (b'{"custom_id": "a"}\n{"custom_id": "b"}\n{"custom_id": "a"}\n', "lines 1 and 3 both have custom_id 'a'"),
    ],
)
def test_a_line_without_an_id_of_its_own_is_named(lines, message):
    with pytest.raises(ValueError, match=message):
        read_lines("in.jsonl", lines)
