"""The way from a call of the user to a rule: few frames, so that a traceback shows the user's own lines."""

from benchmarks.frames import frames


def test_few_frames_lie_between_a_call_and_the_rule():
    found = frames()
    assert (found[0], found[-1]) == ("LLM.generate", "Threshold.chosen")
    assert len(found) <= 14
