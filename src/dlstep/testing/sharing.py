"""Laws of a device that several states share, and of the updates of a running decode."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import NamedTuple

from hypothesis.strategies import DataObject, booleans, integers, lists, sampled_from

from ..core import (
    Config,
    Event,
    Json,
    Plan,
    Request,
    Samples,
    SequenceState,
    State,
    Strategy,
    Update,
    init,
    refusal,
    updates,
    with_options,
)
from ..core.lifecycle import Rebuild, apply
from ..engine.decode import Decode
from .generators import EOS, MAX_MODEL_LEN, Kind, batches, cases, changes, engines, tight
from .harness import answered_alone, check_device, check_ownership, outcome, run_case, shadow
from .shadow import ShadowDriver

MOST_TURNS = 4000


class Fault(Exception):
    """An error that a driver raises in a law."""


class FaultySamples(NamedTuple):
    """Samples that are lost on the way to the host, although the device has moved on."""

    samples: Samples
    lost: bool

    def wait(self) -> Samples:
        """Return the samples, or raise Fault."""
        if self.lost:
            raise Fault
        return self.samples


@dataclass
class FaultyDriver:
    """A driver that raises before or after some passes (counted from 0) of another driver."""

    driver: ShadowDriver
    before: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()
    forwards: int = -1

    def start(self, plan: Plan, owner: int = 0) -> FaultySamples:
        """Start `plan`, or raise Fault."""
        self.forwards += 1
        if self.forwards in self.before:
            raise Fault
        return FaultySamples(self.driver.run(plan, owner), lost=self.forwards in self.after)

    def run(self, plan: Plan) -> Samples:
        """Return the samples of `plan`, or raise Fault."""
        return self.start(plan).wait()

    def fork(self, cache_digest: int, owner: int) -> bool:
        """Copy a KV cache, as the other driver does."""
        return self.driver.fork(cache_digest, owner)

    def release(self, owner: int) -> None:
        """Drop a KV cache, as the other driver does."""
        self.driver.release(owner)


def check_forwards(before: State, events: list[Event]) -> None:
    """Check that `events` of a step have one forward pass, or after a loss as many as needed."""
    forwards = sum(isinstance(event, Samples) for event in events)
    under_way = [sequence.request.seq_id for sequence in before.running]
    if Rebuild() not in events or not under_way:
        assert forwards <= 1, f"{forwards} forward passes in one step, without a loss"
        return

    def left(state: State) -> int:
        """Return the strategies' bounds on the remaining sampling passes of these requests."""
        live = [sequence for seq_id in under_way if (sequence := state.sequence(seq_id)) is not None]
        return sum(sequence.request.strategy.measure(sequence) for sequence in live)

    state = before
    for event in events:
        if isinstance(event, Samples):
            assert state is before or left(state) >= left(before), f"{forwards} forward passes where fewer lead further"
        state = apply(state, event)
    assert not forwards or state.done or left(state) < left(before), "a step after a loss has led no further"


def _requests(config: Config, strategy: Strategy, data: DataObject) -> tuple[Request, ...]:
    """Return requests of short answers; half of them set a rule or other options."""

    def bringing(request: Request, options: Json) -> Request:
        """Return the request with these options; without them if they do not fit or change exactness."""
        try:
            own = replace(request, params=replace(request.params, strategy_options=options))
            fits = with_options(strategy, options).exact == strategy.exact and not refusal(config, strategy, own)
        except ValueError:
            fits = False
        return own if fits else request

    # Errors of sharing show in the first steps.
    requests = [
        replace(each, params=each.params.shortened(min(each.params.max_tokens, 6)))
        for each in data.draw(batches(strategy, most=2))
    ]
    return tuple(bringing(each, data.draw(changes(strategy))) if data.draw(booleans()) else each for each in requests)


def _users(strategy: Strategy, config: Config, data: DataObject) -> list[tuple[Config, tuple[Request, ...]]]:
    """Return engines that share a device, with equal ids, similar lengths and other prompts."""
    first = _requests(config, strategy, data)
    users = [(config, first)]
    for _ in range(data.draw(integers(1, 2))):
        tokens = lists(integers(0, EOS), min_size=MAX_MODEL_LEN, max_size=MAX_MODEL_LEN)
        prompt = tuple(data.draw(tokens))
        alike = tuple(replace(request, prompt=prompt[: len(request.prompt)]) for request in first)
        requests = alike if data.draw(booleans()) else _requests(config, strategy, data)
        more = data.draw(sampled_from([0, 0, 1, 7]))
        users.append((replace(config, num_pages=config.num_pages + more), requests))
    return users


@dataclass
class User:
    """A decode on a shared device, its requests, those to come, those that it aborted, and whether its KV cache is there."""

    decode: Decode
    coming: list[Request]
    requests: tuple[Request, ...]
    aborted: set[int] = field(default_factory=set)
    owns: bool = True

    @property
    def done(self) -> bool:
        """Whether all requests have arrived and ended."""
        return not self.coming and self.decode.state.done

    def add(self) -> None:
        """Add the next request, if there is one."""
        if self.coming:
            self.decode.add(self.coming.pop(0))

    def act(self, data: DataObject) -> None:
        """Add a request, abort one that may not exist, both or neither, and perhaps add pages."""
        if self.coming and data.draw(booleans()):
            self.add()
        if data.draw(integers(0, 9)) == 0:
            self.decode.grow(self.decode.state.config.num_pages + data.draw(sampled_from([0, 1, 7])))
        if data.draw(integers(0, 19)) == 0:
            request_id = data.draw(integers(0, 2))
            if (sequence := self.decode.state.find(request_id)) is not None and sequence.finish_info is None:
                self.aborted.add(request_id)
            self.decode.abort(request_id)


def histories(kind: Kind, data: DataObject, driver: type[FaultyDriver] = FaultyDriver) -> None:
    """States that take turns on one device get the same answers as each would alone.

    A device may ignore prompts: different prompts then get equal samples, and only the stored
    tokens differ. After a loss, a step runs only as many forward passes as it needs to advance. States may be copied, and
    decodes closed or collected. If the device has room for all, a decode recomputes its KV cache only after it was closed or
    a pass of it failed. `driver` raises before or after some passes.
    """
    value, spec = data.draw(engines(kind))
    config = data.draw(tight(spec, value, data.draw(batches(value, most=2))))
    drawn = _users(value, config, data)
    room = len(drawn) + 2
    blind, places = data.draw(sampled_from([0.0, 1.0])), data.draw(sampled_from([1, 2, len(drawn), room, room]))
    device = shadow(config, value, places=places, blind=blind)
    before, after = (frozenset(data.draw(lists(integers(0, 30), max_size=2))) for _ in range(2))
    faulty, events = driver(device, before, after), list[Event]()

    def decode(state: State) -> Decode:
        return Decode(state, faulty, prunes=False, record=events.append)

    users = [User(decode(init(own, value)), list(requests), requests) for own, requests in drawn]
    turns = data.draw(lists(integers(0, room - 1), max_size=40))
    for number in range(MOST_TURNS):
        if number < len(turns):
            user = users[turns[number] % len(users)]
            user.act(data)
            match data.draw(integers(0, 9)):
                case 0:
                    user.decode.close()
                    user.owns = False
                case 1 | 2 | 3 if len(users) < room:
                    users.append(replace(user, decode=decode(user.decode.state), coming=[*user.coming]))
                    users[-1].aborted = {*user.aborted}
                case 4 | 5 if len(users) > len(drawn):
                    users.remove(user)
                    del user  # collects its decode
                    continue
                case _:
                    pass
        else:  # no more random events: add the rest and run to the end
            user = users[number % len(users)]
            user.add()
        if not user.decode.state.done and not _stepped(user, events, device, roomy=places == room):
            continue
        if all(user.done for user in users):
            break
    else:
        raise AssertionError(f"not finished after {MOST_TURNS} turns")
    for user in users:
        assert not len(user.decode.state.cache.owners)
        if value.exact:
            _check_answers(user, value, blind)


def _stepped(user: User, events: list[Event], device: ShadowDriver, *, roomy: bool) -> bool:
    """Take a step and check it; return False if the driver fails. On a `roomy` device, no user loses its KV cache."""
    decode, before = user.decode, user.decode.state
    events.clear()
    try:
        decode.step()
    except Fault:
        user.owns = False
        return False
    assert not (roomy and user.owns and Rebuild() in events), "a KV cache was lost that its owner has not released"
    user.owns = True
    check_forwards(before, events)
    check_ownership(decode.state)
    check_device(decode.state, device)
    return True


def _check_answers(user: User, value: Strategy, blind: float) -> None:
    """Check that requests neither aborted nor rejected have the same answers as alone."""
    for request in user.requests:
        done = user.decode.state.finished[request.id]
        if request.id not in user.aborted and done.finish != "rejected":
            assert outcome(done) == outcome(answered_alone(user.decode.state.config.spec, value, request, blind=blind))


def told(kind: Kind, data: DataObject) -> None:
    """Folding the updates of a run gives its outputs, also after forks; settled text is final."""
    run = run_case(data.draw(cases(kind, forks=True)))
    states = run.first, *[step.after for step in run.steps], run.state
    check_updates((updates(before, after) for before, after in pairwise(states)), run.state.finished)


def check_updates(steps: Iterable[tuple[Update, ...]], finished: Mapping[int, SequenceState]) -> None:
    """Check that the updates of all steps give these outcomes."""
    heard = defaultdict[int, list[Update]](list)
    for news in steps:
        assert len({update.id for update in news}) == len(news), "two updates of one request"
        for update in news:
            heard[update.id].append(update)
            _check_update(update)
    for request_id, sequence in finished.items():
        of_request, last = heard[request_id], heard[request_id][-1].sequence
        stops = [sequence.request.start, *(update.stop for update in of_request[:-1])]
        assert [update.start for update in of_request] == stops, "an update leaves tokens out, or repeats some"
        tokens, probabilities = zip(*((update.tokens, update.probabilities) for update in of_request), strict=True)
        assert tuple(chain(*tokens)) == sequence.answer and tuple(chain(*probabilities)) == sequence.probabilities
        assert sum(update.finish_info is not None for update in of_request) == 1, "a finish is reported twice"
        assert (last.finish_info, last.steps, last.nfe) == (sequence.finish_info, sequence.steps, sequence.nfe)


def _check_update(update: Update) -> None:
    """Check that the window of an update has the tokens of its sequence, and no token at masked positions."""
    sequence, window = update.sequence, dict(enumerate(update.window[0], update.stop))
    assert len(update.tokens) == len(update.probabilities)
    masked = {p for block in sequence.progress.window for p in block.masked if p >= update.stop}
    assert update.finish_info or {position for position, token in window.items() if token is None} == masked
    for position, token in window.items():
        assert token is None or (token,) == sequence.tokens(position, position + 1)
