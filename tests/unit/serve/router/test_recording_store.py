"""Recordings that the router keeps: bounded, and shared fairly among keys."""

from hypothesis import given, strategies as st

from dlstep.core import Request, SamplingParams
from dlstep.serve.messages import Submit
from dlstep.serve.router.pending_requests import Head, PendingRequest
from dlstep.serve.router.recording_store import KeptRequest, RecordingStore
from dlstep.views.frames import Frame


def pending_of(number, *, sent=True):
    found = PendingRequest(Submit(Request(number, (5,), SamplingParams()), steps=True, keeps=True), "key-0", 0.0, lambda: None)
    if sent:
        found.sent, found.keeper = 0.0, 0
    return found


def grow(pending):
    """Add a frame of three tokens."""
    pending.append_frame(Frame(0, 0, 0, 3, (1, 2, 3), (1.0, 1.0, 1.0)), 0.0)


def add(kept, owner, *pending):
    """Keep the answers of a request. Return its id."""
    head = Head("completion", "m", False, False)
    kept.add(KeptRequest(head, owner, pending))
    return head.id


@given(data=st.data())
def test_kept_requests_are_bounded_and_each_is_dropped_once_and_never_before_its_forks(data):
    """Against a plain list: requests come, grow, are forked; the engine has what is kept, and what a fork waits for."""
    dropped, model, forks, number, added = [], [], [], 0, []
    most, room = data.draw(st.integers(0, 4)), data.draw(st.integers(5, 40))
    kept = RecordingStore(most, room, lambda pending: dropped.append(pending.id))
    for action in data.draw(st.lists(st.sampled_from(["add", "add", "grow", "fork", "sent", "died"]), max_size=25)):
        pending_requests = [pending for _, own in model for pending in own]
        if action == "add":
            own = [pending_of(number + each, sent=data.draw(st.booleans())) for each in range(data.draw(st.integers(1, 2)))]
            number += len(own)
            added += own
            model.append((add(kept, "key-0", *own), own))
            while sum(len(own) for _, own in model) > most or sum(pending.size for _, own in model for pending in own) > room:
                model.pop(0)
        elif action == "grow" and pending_requests:
            grow(data.draw(st.sampled_from(pending_requests)))
        elif action == "fork" and (able := [pending for pending in pending_requests if pending.sent is not None]):
            forks.append(kept.forking(data.draw(st.sampled_from(able)).id))
        elif action == "sent" and forks:
            kept.forked(forks.pop())
        elif action == "died":
            while forks:  # the router ends the waiting forks first
                kept.forked(forks.pop())
            kept.died(0)
            model = [(name, own) for name, own in model if all(pending.sent is None for pending in own)]
        assert [request.head.id for request in kept.of("key-0")] == [name for name, _ in model]
        assert len(kept._pending()) == sum(len(own) for _, own in model) <= most and not kept.of("key-1")
        alive = {pending.id for _, own in model for pending in own}
        assert not alive & {*dropped} and not {pending.id for pending in forks} & {*dropped} and len({*dropped}) == len(dropped)
        for _, own in model:
            assert all(pending.submit.keeps for pending in own)
        assert not any(pending.submit.keeps for pending in added if pending.sent is None and pending.id not in alive)
    assert kept.find("cmpl-0", "key-0") is None


@given(data=st.data(), most=st.integers(2, 8), room=st.integers(10, 60))
def test_no_key_evicts_requests_of_a_key_within_its_share(data, most, room):
    kept, owners, mine = RecordingStore(most, room, lambda pending: None), ("key-0", "key-1"), []
    answers = size = 0
    for number in range(data.draw(st.integers(1, 20))):
        owner, pending = data.draw(st.sampled_from(owners)), pending_of(number)
        for _ in range(data.draw(st.integers(0, 4))):
            grow(pending)
        if owner == "key-0":
            if answers + 1 > most // 2 or size + pending.size > room // 2:
                continue
            answers, size = answers + 1, size + pending.size
        added = add(kept, owner, pending)
        mine += [added] if owner == "key-0" else []
        assert [request.head.id for request in kept.of("key-0")] == mine and len(kept._pending()) <= most
        assert sum(request.size for owner in owners for request in kept.of(owner)) <= room
