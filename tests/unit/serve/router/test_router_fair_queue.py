"""The queue in which owners take turns."""

from operator import itemgetter

from hypothesis import given, strategies as st

from dlstep.core import Request
from dlstep.serve.messages import Submit
from dlstep.serve.router.pending_requests import PendingRequest
from dlstep.serve.router.router import FairQueue


@given(owners=st.lists(st.sampled_from("abc"), max_size=40))
def test_owners_take_turns_and_each_is_served_in_order(owners):
    queue = FairQueue()
    for number, owner in enumerate(owners):
        queue.push(PendingRequest(Submit(Request(number, (0,))), owner, 0.0, lambda: None))
    assert len(queue) == len(owners) == len(list(queue))
    order = []
    for _ in owners:
        first = next(iter(queue))
        assert queue.pop() is first
        order.append((first.owner, first.id))
    assert not queue
    # Sorting is stable: of each owner, in the order in which they came.
    assert sorted(order, key=itemgetter(0)) == sorted([(owner, number) for number, owner in enumerate(owners)])
    turns = [owner for owner, _ in order]
    for place in range(len(order)):
        waiting = {*turns[place:]}
        assert {*turns[place : place + len(waiting)]} == waiting, "everybody who waits comes once before anybody comes twice"
