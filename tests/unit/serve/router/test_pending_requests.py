"""Pending requests: what their frames say once an answer has ended, whoever ended it."""

from hypothesis import given, strategies as st

from dlstep.core.sequence import FinishInfo
from dlstep.views.frames import Frame

from .test_recording_store import pending_of


@given(settled=st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=4), by_engine=st.booleans())
def test_an_answer_with_frames_ends_with_one_last_frame(settled, by_engine):
    """An engine ends an answer with a frame; if it died, or never did, the router adds one without new tokens."""
    pending, finish_info, total = pending_of(0), FinishInfo("error", 0, "the engine died"), 0
    for seq, tokens in enumerate(settled):
        total += len(tokens)
        last = finish_info if by_engine and seq == len(settled) - 1 else None
        pending.append_frame(
            Frame(seq, seq, seq, total, tuple(tokens), (1.0,) * len(tokens), b"\0\0\0\0", finish_info=last), 1.0
        )
    pending.end(finish_info, 2.0)
    assert [frame.seq for frame in pending.frames] == [*range(len(settled) + (bool(settled) and not by_engine))]
    assert [frame.finish_info for frame in pending.frames[-1:]] == [finish_info] * bool(settled)
    assert not any(frame.finish_info for frame in pending.frames[:-1])
    assert pending.tokens == [token for tokens in settled for token in tokens]
    if settled and not by_engine:
        assert pending.frames[-1].settled == total and not pending.frames[-1].packed_cells
