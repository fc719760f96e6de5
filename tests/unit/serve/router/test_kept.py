"""Recordings that the front keeps: bounded, and shared fairly among keys."""

from hypothesis import given, strategies as st

from dlstep.core import SamplingParams
from dlstep.serve.messages import Submit
from dlstep.serve.router.heads import Head
from dlstep.serve.router.kept import Kept, KeptRequest
from dlstep.serve.router.tickets import Ticket
from dlstep.views.frames import Frame


def ticket_of(number: int, *, sent: bool = True) -> Ticket:
    found = Ticket(Submit(number, (5,), SamplingParams(), steps=True, keeps=True), "key-0", 0.0, lambda: None)
    if sent:
        found.sent, found.keeper = 0.0, 0
    return found


@given(data=st.data())
def test_the_kept_are_bounded_and_each_is_dropped_once_and_never_before_its_forks(data: st.DataObject) -> None:
    """Against a plain list: requests come, grow, are forked; the engine has what is kept, and what a fork waits for."""
    dropped: list[int] = []
    most, room = data.draw(st.integers(0, 4)), data.draw(st.integers(5, 40))
    kept, model = Kept(most, room, lambda ticket: dropped.append(ticket.id)), list[tuple[str, list[Ticket]]]()
    forks, number = list[Ticket](), 0
    for action in data.draw(st.lists(st.sampled_from(["add", "add", "grow", "fork", "taken", "died"]), max_size=25)):
        tickets = [ticket for _, own in model for ticket in own]
        if action == "add":
            own = [ticket_of(number + each, sent=data.draw(st.booleans())) for each in range(data.draw(st.integers(1, 2)))]
            number += len(own)
            head = Head("completion", "m", False, False)
            model.append((head.id, own))
            kept.add(KeptRequest(head, "key-0", tuple(own)))
        elif action == "grow" and tickets:
            ticket = data.draw(st.sampled_from(tickets))
            ticket.show(Frame(0, 0, 0, 3, (1, 2, 3), (1.0, 1.0, 1.0)), 0.0)
            kept.grew(ticket, 3)
        elif action == "fork" and (able := [ticket for ticket in tickets if ticket.sent is not None]):
            forks.append(kept.forking(data.draw(st.sampled_from(able)).id))
        elif action == "taken" and forks:
            kept.forked(forks.pop())
        elif action == "died":
            while forks:  # the front ends the forks that wait first
                kept.forked(forks.pop())
            kept.died(0)
            model = [(name, own) for name, own in model if all(ticket.sent is None for ticket in own)]
        while sum(len(own) for _, own in model) > most or sum(ticket.size for _, own in model for ticket in own) > room:
            model.pop(0)
        assert [request.head.id for request in kept.of("key-0")] == [name for name, _ in model]
        assert len(kept) == sum(len(own) for _, own in model) <= most and not kept.of("key-1")
        alive = {ticket.id for _, own in model for ticket in own}
        assert not alive & {*dropped} and not {ticket.id for ticket in forks} & {*dropped} and len({*dropped}) == len(dropped)
        for _, own in model:
            assert all(ticket.submit.keeps for ticket in own)
    assert kept.find("cmpl-0", "key-0") is None


@given(data=st.data(), most=st.integers(2, 8), room=st.integers(10, 60))
def test_no_key_drives_out_what_another_one_within_its_share_keeps(data: st.DataObject, most: int, room: int) -> None:
    kept, owners, mine = Kept(most, room, lambda ticket: None), ("key-0", "key-1"), list[str]()
    answers = size = 0
    for number in range(data.draw(st.integers(1, 20))):
        owner, ticket = data.draw(st.sampled_from(owners)), ticket_of(number)
        for _ in range(data.draw(st.integers(0, 4))):
            ticket.show(Frame(0, 0, 0, 3, (1, 2, 3), (1.0, 1.0, 1.0)), 0.0)
        if owner == "key-0":
            if answers + 1 > most // 2 or size + ticket.size > room // 2:
                continue
            answers, size = answers + 1, size + ticket.size
        head = Head("completion", "m", False, False)
        kept.add(KeptRequest(head, owner, (ticket,)))
        if owner == "key-0":
            mine.append(head.id)
        assert [request.head.id for request in kept.of("key-0")] == mine and len(kept) <= most
        assert sum(request.size for owner in owners for request in kept.of(owner)) <= room
