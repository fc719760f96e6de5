"""Files of a page, under a strict policy, and the choices that one request has, as the engine has them."""

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, strategies as st
from serving import Served, served, shadow_engine

from dlstep import rules, strategies
from dlstep.core import Request, SamplingParams, add
from dlstep.core.ledger import Ending
from dlstep.serve.facts import Texts
from dlstep.serve.http import page_files
from dlstep.serve.http.choices import Choice
from dlstep.serve.http.choosable import examples
from dlstep.serve.messages import Origin, Submit
from dlstep.serve.router.heads import Head
from dlstep.serve.router.kept import Kept, KeptRequest
from dlstep.serve.router.tickets import Ticket
from dlstep.views.frames import Frame

FILES = {"index.html": b"<!doctype html>", "app.js": b"export {}", "style.css": b"", "secret.py": b"", "note.txt": b""}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A page of a few files, in place of the one that is shipped."""
    found = tmp_path_factory.mktemp("page")
    for name, content in FILES.items():
        (found / name).write_bytes(content)
    (found / "inner.js").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_files, "FOLDER", found)
        yield found


@pytest.fixture(scope="module")
def shadow(folder: Path) -> Iterator[Served]:
    """A server that asks for a key."""
    with served(shadow_engine(), keys=("sesame",)) as server:
        yield server


@pytest.fixture(scope="module")
def http(shadow: Served) -> Iterator[httpx2.Client]:
    """A client of it."""
    with shadow.http() as client:
        yield client


def test_the_page_needs_no_key_and_lets_nothing_else_in(http: httpx2.Client) -> None:
    for path, name, kind in (
        ("/", "index.html", "text/html"), ("/page/app.js", "app.js", "text/javascript"),
        ("/page/style.css", "style.css", "text/css"),
    ):  # fmt: skip
        response = http.get(path)
        assert (response.status_code, response.content) == (200, FILES[name]), path
        assert response.headers["content-type"].startswith(kind)
        policy = response.headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"} <= {*policy}
        assert {"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "img-src 'self' data: blob:"} <= {*policy}
        assert "unsafe" not in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff" and response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "name", ["secret.py", "note.txt", "nothing.js", "inner.js", "%2e%2e%2fpage.py", "..%2f__init__.py", "%00.js", ".js"]
)
def test_nothing_but_the_files_of_the_page_is_there(http: httpx2.Client, name: str) -> None:
    response = http.get(f"/page/{name}")
    assert response.status_code in (401, 404), response.text  # a path that leaves the folder is another one, which needs a key
    assert "/tmp" not in response.text and "Traceback" not in response.text


def test_without_its_files_a_server_says_so(http: httpx2.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(page_files, "FOLDER", tmp_path / "gone")
    assert http.get("/").status_code == 404 and http.get("/health").status_code == 200


def probe(option: dict[str, Any]) -> list[Any]:
    """Values of an option that are in its range."""
    least = 0 if option["least"] is None else option["least"]
    most = 1 if option["most"] is None else option["most"]
    shift = 1 if option["kind"] == "integer" else (most - least) / 4
    match option["kind"]:
        case "boolean":
            return [not option["default"]]
        case "choice":
            return [choice for choice in option["choices"] if choice != option["default"]]
        case "integer" | "number":
            found = [least + shift, least + 2 * shift, least + 3 * shift]
            return [value for value in found if value != option["default"]]
        case _:
            return []


@pytest.mark.parametrize("strategy", ["multi_bd", "dmax"])
def test_what_may_be_chosen_is_taken_and_what_may_not_is_refused(strategy: str) -> None:
    with served(shadow_engine(strategy=strategy)) as server, server.http() as http:
        told = http.get("/v1/options").json()
        assert json.dumps(told) == json.dumps(http.get("/v1/options").json())

        def taken(**options: Any) -> bool:
            response = http.post("/v1/completions", json={"prompt": "x", "max_tokens": 4, "dlstep": options})
            assert response.status_code in (200, 400), response.text
            return response.status_code == 200

        value = strategies.load(strategy)(block_size=8)
        assert told["strategy"]["name"] == strategy and told["model"] == "shadow" and told["strategies"] == []
        names = {option["name"] for option in told["strategy"]["options"]}
        own = {field.name for field in fields(value)}
        assert names == own - {"rule"}
        free = 0
        for option in told["strategy"]["options"]:
            assert option["doc"], f"{option['name']} is explained"
            tried = [taken(**{option["name"]: value}) for value in probe(option)]
            assert option["per_request"] or not any(tried), option
            free += option["per_request"] and any(tried)
        assert free >= 2
        assert bool(told["rules"]) == ("rule" in own)
        for rule in told["rules"]:
            assert taken(rule=rule["name"]) == rule["per_request"] == (not rule["why"]), rule
            assert rule["name"] in rules.own() and rule["doc"]
            held = {field.name for field in fields(rules.load(rule["name"]))}
            assert held - {"inner"} <= {option["name"] for option in rule["options"]}


def test_there_are_prompts_to_try() -> None:
    for embedded, chats in ((True, False), (False, True), (False, False)):
        found = examples(embedded=embedded, chats=chats)
        assert len(found) >= 3 and all(each["name"] for each in found)
        assert all(("messages" in each) == chats and ("prompt" in each) != chats for each in found)
    with served(shadow_engine()) as server, server.http() as http:
        assert http.get("/v1/options").json()["chat"] is False


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


@given(cuts=st.lists(st.integers(0, 3), max_size=12), stops=st.sampled_from([(), ("a",), ("xy", "b")]), data=st.data())
def test_a_slow_reader_loses_no_frame(cuts: list[int], stops: tuple[str, ...], data: st.DataObject) -> None:
    engine = shadow_engine()
    spec, texts = engine.first.config.spec, Texts(engine.tokenizer, "", None)
    session_like = data.draw(st.lists(st.lists(st.integers(3, 60), max_size=4), min_size=1, max_size=12))
    ticket = Ticket(Submit(0, (5,), SamplingParams(stop=stops), steps=True, origin=Origin(1, 0)), "key-0", 0.0, lambda: None)
    sequence = add(engine.first, Request(0, (5,))).find(0)
    assert sequence is not None
    settled, frames = 0, list[Frame]()
    for seq, tokens in enumerate(session_like):
        settled += len(tokens)
        frames.append(Frame(seq, seq, seq, settled, tuple(tokens), (0.5,) * len(tokens)))
    ticket.open(sequence, frames[0])
    choice, pieces, left = Choice(0, ticket, Head("completion", "m", False, False), texts, spec), [], frames[1:]
    for cut in [*cuts, len(left)]:
        for frame in left[:cut]:
            ticket.show(frame, 1.0)
        left = left[cut:]
        while (piece := choice.piece()) is not None:
            pieces.append(piece)
    ticket.end(Ending("length", 1 + settled), 2.0)
    while (piece := choice.piece()) is not None:
        pieces.append(piece)
    assert [piece.dlstep["seq"] for piece in pieces] == [*range(len(frames) + 1)], "the last one is the ending"
    assert [piece.ended for piece in pieces] == [False] * len(frames) + [True]
    assert "".join(piece.text for piece in pieces) == choice.text
    assert "head" in pieces[0].dlstep and pieces[-1].dlstep["finish_reason"] == "length"
