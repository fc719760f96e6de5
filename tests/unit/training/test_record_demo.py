"""The recorded decode of `dlstep demo` is what the embedded model does."""

import pytest

from dlstep import tiny
from training import record_demo


def facts(run):
    """What a recording shows of an answer, without probabilities."""
    frames = [
        (
            frame["nfe"],
            frame["settled"],
            [(place, token, text) for place, token, _, text in (*frame["tokens"], *frame["cells"])],
        )
        for frame in run["frames"]
    ]
    return [run["head"], run["text"], run["ended"], frames]


def test_the_recording_is_fresh():
    """Else: `make recorded`. Probabilities differ a little between machines."""
    stored, made = tiny.recorded()["runs"], record_demo.made()["runs"]
    assert [*map(facts, stored)] == [*map(facts, made)]
    for one, two in zip(stored, made, strict=True):
        for old, new in zip(one["frames"], two["frames"], strict=True):
            assert [cell[2] for cell in old["cells"]] == pytest.approx([cell[2] for cell in new["cells"]], abs=0.01)
