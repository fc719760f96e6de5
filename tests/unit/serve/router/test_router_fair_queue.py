"""The queue in which owners take turns."""

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
    for owner in "abc":
        assert [item for item in order if item[0] == owner] == [(o, n) for n, o in enumerate(owners) if o == owner]
    for place in range(len(order)):
        waiting = {item[0] for item in order[place:]}
        turns = [item[0] for item in order[place : place + len(waiting)]]
        assert set(turns) == waiting, "everybody who waits comes once before anybody comes twice"
