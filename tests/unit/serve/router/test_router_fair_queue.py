"""The queue in which owners take turns."""

from hypothesis import given, strategies as st

from dlstep.serve.router.router import FairQueue


@given(pushes=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=40))
def test_owners_take_turns_and_each_is_served_in_order(pushes: list[tuple[str, int]]) -> None:
    queue = FairQueue[tuple[str, int]]()
    for number, (owner, _) in enumerate(pushes):
        queue.push(owner, (owner, number))
    assert len(queue) == len(pushes) == len(list(queue))
    order = [queue.pop() for _ in pushes]
    assert not queue
    for owner in "abc":
        assert [item for item in order if item[0] == owner] == [(o, n) for n, (o, _) in enumerate(pushes) if o == owner]
    for place in range(len(order)):
        waiting = {item[0] for item in order[place:]}
        turns = [item[0] for item in order[place : place + len(waiting)]]
        assert set(turns) == waiting, "everybody who waits comes once before anybody comes twice"
