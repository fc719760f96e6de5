"""Whenever a batch is broken off, by whom and in which order it is answered: the output is that of an unbroken run."""

import json
import tempfile
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from dlstep.batch.checkpoint import answer_all

from .batches import Killed, Scripted, answers_file, numbered

Numbers = st.lists(st.integers(0, 8), min_size=1, max_size=16)
Kills = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 200), st.integers(0, 99)), max_size=5)


@given(numbers=Numbers, kills=Kills, ends=st.booleans())
def test_the_output_is_that_of_an_unbroken_run(numbers, kills, ends):
    lines = numbered(numbers)
    with tempfile.TemporaryDirectory() as folder:
        whole, out = Path(folder) / "whole", Path(folder) / "out"
        failed = answer_all(Scripted(0, 99), lines, whole)
        assert failed == sum(number % 3 == 0 for number in numbers)
        for after, cut, seed in kills:
            pool = Scripted(seed, after)
            try:
                answer_all(pool, lines, out)
            except Killed:
                kept = answers_file(out)
                last = kept.read_bytes().rstrip(b"\n").rpartition(b"\n")[2] if kept.exists() else b""
                with kept.open("r+b") as file:  # the line that it was about to write is not whole
                    file.truncate(max(0, kept.stat().st_size - min(cut, len(last))))
        if ends and not out.exists():
            with patch("os.fsync", side_effect=Killed), pytest.raises(Killed):
                answer_all(Scripted(7, 99), lines, out)
            assert not out.exists(), "whole or not at all"
        assert answer_all(Scripted(1, 99), lines, out) == failed
        assert out.read_bytes() == whole.read_bytes()
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        assert [row["custom_id"] for row in rows] == [line.custom_id for line in lines], "none is lost, none is there twice"
        assert {row["id"] for row in rows} == kept_ids(out)


def kept_ids(out):
    """The answers that the side file knows, whose last line may be one that broke off."""
    path = answers_file(out).with_name("beside.jsonl")
    return {json.loads(line)["id"] for line in path.read_bytes().splitlines()}


@given(numbers=Numbers, after=st.integers(0, 16), seed=st.integers(0, 99))
def test_no_content_is_decoded_again_or_twice(numbers, after, seed):
    lines = numbered(numbers)
    with tempfile.TemporaryDirectory() as folder:
        out, first, second = Path(folder) / "out", Scripted(seed, after), Scripted(seed, 99)
        try:
            answer_all(first, lines, out)
        except Killed:
            kept = {json.loads(line)["id"] for line in answers_file(out).read_bytes().splitlines()}
            answer_all(second, lines, out)
            assert not {f"batch_req_{key}" for key in second.added} & kept
            assert len(second.added) + len(kept) == len(set(numbers))
        assert max(Counter(first.added).values(), default=0) <= 1 and max(Counter(second.added).values(), default=0) <= 1


@given(numbers=Numbers)
def test_answers_that_may_not_fail_again_are_asked_for_again(numbers):
    class Failing(Scripted):
        def step(self):
            return [answered._replace(status=500) for answered in super().step()[:1]]

    lines = numbered(numbers)
    with tempfile.TemporaryDirectory() as folder:
        whole, out = Path(folder) / "whole", Path(folder) / "out"
        answer_all(Scripted(0, 99), lines, whole)
        assert answer_all(Failing(0, 99), lines, out) == len(numbers)
        assert all(json.loads(line)["response"]["status_code"] == 500 for line in out.read_text().splitlines())
        answer_all(Scripted(0, 99), lines, out)
        assert out.read_bytes() == whole.read_bytes()
