"""Two processes on one output, and stored answers that something altered: a sentence, never a wrong output."""

import json
import os
import signal
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, strategies as st

from dlstep.batch.checkpoint import ANSWERS, BatchCheckpoint, answer_all, read_settings
from dlstep.batch.lines import AnsweredRequest

from ...helpers.killing import child_that_holds, ended
from .batches import FACTS, Killed, Scripted, answers_file, numbered

LINES = numbered([1, 2, 4, 5, 1, 7, 3])


def byte(data, random):
    """A byte replaced by any other one, or by a digit or letter, so that the line may be JSON still."""
    place, others = random.randrange(len(data)), random.choice([range(256), b"0123456789abcdef"])
    return data[:place] + bytes([random.choice(others)]) + data[place + 1 :]


ALTERATIONS = {
    "truncated": lambda data, random: data[: random.randrange(len(data))],
    "a range left out": lambda data, random: (lambda at: data[:at] + data[at + random.randrange(1, 40) :])(
        random.randrange(len(data))
    ),
    "lines in another order": lambda data, random: b"".join(
        random.sample(data.splitlines(keepends=True), data.count(b"\n"))
    ),
    "lines twice": lambda data, random: data + random.choice(data.splitlines(keepends=True)),

    "a byte": byte,
}  # fmt: skip


@given(alteration=st.sampled_from(sorted(ALTERATIONS)), seed=st.integers(0, 10**6), whole=st.booleans())
def test_altered_answers_are_decoded_again_or_refused(alteration, seed, whole):
    random = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        right, out = Path(folder) / "right", Path(folder) / "out"
        answer_all(Scripted(0, 99), LINES, right)
        with suppress(Killed):
            answer_all(Scripted(seed, 99 if whole else random.randrange(1, 6)), LINES, out)
        path = answers_file(out)
        path.write_bytes(ALTERATIONS[alteration](path.read_bytes(), random))
        before = out.read_bytes() if out.exists() else None
        try:
            answer_all(Scripted(1, 99), LINES, out)
        except ValueError as error:
            message = str(error)
            assert path.name in message and ("delete" in message or "JSON" in message) and "\n" not in message
            assert (out.read_bytes() if out.exists() else None) == before
        else:
            assert out.read_bytes() == right.read_bytes()


@pytest.fixture
def out(tmp_path):
    """The output of a whole run."""
    path = tmp_path / "out"
    answer_all(Scripted(0, 99), LINES, path)
    return path


def test_an_altered_answer_is_named(out):
    whole, answers = out.read_bytes(), answers_file(out)
    lines = answers.read_bytes().splitlines(keepends=True)
    changed = next(place for place, line in enumerate(lines) if b"4 \\u00e9" in line)
    answers.write_bytes(b"".join(lines).replace(b"4 \\u00e9", b"9 \\u00e9", 1))
    with pytest.raises(ValueError, match=f"answers.jsonl, line {changed + 1} does not have its checksum, so it was changed"):
        answer_all(Scripted(0, 99), LINES, out)
    answers.write_bytes(b"".join(line for place, line in enumerate(lines) if place != changed))
    again = Scripted(0, 99)
    answer_all(again, LINES, out)
    assert out.read_bytes() == whole and len(again.added) == 1


def test_an_altered_output_is_written_again(out):
    whole = out.read_bytes()
    out.write_bytes(whole[:-9])
    answer_all(Scripted(0, 0), LINES, out)
    assert out.read_bytes() == whole


def test_an_output_of_another_run_is_refused(out, tmp_path):
    with pytest.raises(ValueError, match=r"engine\.seed 0, and now it is 1: give another OUT"):
        answer_all(Scripted(0, 99, facts=FACTS | {"seed": 1}), LINES, out)
    with pytest.raises(ValueError, match="no run in"):
        read_settings(tmp_path)
    settings = tmp_path / "out.run" / "run.json"
    for text, message in {"[]": "was not written by", "{": "run.json"}.items():
        settings.write_text(text)
        with pytest.raises(ValueError, match=message):
            answer_all(Scripted(0, 99), LINES, out)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path, stopped):
    out = tmp_path / "out"
    child = child_that_holds(tmp_path / "out.run")
    try:
        if stopped:
            os.kill(child, signal.SIGSTOP)
        with pytest.raises(ValueError, match=r"out.run is in use by another process: .* another output"):
            answer_all(Scripted(0, 99), LINES, out)
        answer_all(Scripted(0, 99), LINES, tmp_path / "other")
    finally:
        ended(child)
    answer_all(Scripted(0, 99), LINES, out)
    assert out.read_bytes() == (tmp_path / "other").read_bytes()


def test_a_second_answer_to_the_same_content_is_not_stored(tmp_path):
    with closing(BatchCheckpoint(tmp_path / "out.jsonl", LINES, FACTS)) as checkpoint:
        for text in ("one", "two"):
            checkpoint.note(AnsweredRequest(0, 200, {"text": text}, {"seconds": 1.0}))
        (line,) = (checkpoint.folder / ANSWERS).read_text().splitlines()
    assert json.loads(line)["response"]["body"] == {"text": "one"}
