"""A decode as a value: its first state and its events, which fold to every later state."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter, eq
from os import PathLike
from typing import Any, cast

from .checks import check_ranges, short
from .commit import commit
from .errors import DlstepError, ReplayDiverged
from .lifecycle import abort, add, adopt, fail, prune, rebuild
from .plan import EMPTY_CACHE, Plan, Samples
from .request import Request
from .schedule import schedule
from .sequence import SequenceState
from .state import State
from .trace_file import read, write


@dataclass(frozen=True, slots=True)
class Add:
    """The addition of a request."""

    request: Request
    """The request, as given to `add`."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, slots=True)
class Adopt:
    """The addition of a sequence of another state under a new id."""

    sequence: SequenceState
    """The sequence, as given to `adopt`."""
    id: int
    """Its new request id."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, slots=True)
class Abort:
    """The abort of a request."""

    id: int
    """Id of the request."""
    reason: str = ""
    """Message that becomes the request's `error`."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, slots=True)
class Fail:
    """The end of a request by an error that did not come from the network."""

    id: int
    """Id of the request."""
    error: str
    """Message of the error."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The loss of all device contents."""


@dataclass(frozen=True, slots=True)
class Prune:
    """The removal of finished requests."""


# Errors of `apply` for an edited file: valid checksums do not imply values of the right types.
INAPPLICABLE = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError),
    DlstepError,
)
LONGEST_REASON = 300  # characters

Event = Add | Adopt | Abort | Fail | Rebuild | Prune | Samples


def apply(state: State, event: Event) -> State:
    """Return the state after `event`."""
    match event:
        case Add():
            return add(state, event.request)
        case Adopt():
            return adopt(state, event.sequence, event.id)
        case Abort():
            return abort(state, event.id, event.reason)
        case Fail():
            return fail(state, event.id, event.error)
        case Rebuild():
            return rebuild(state)
        case Prune():
            return prune(state)
        case Samples():
            return commit(state, event)


def applied(state: State, event: Event, number: int) -> State:
    """Return the state after `event`, which is at index `number` of a trace.

    Raises ReplayDiverged if `event` cannot be applied: an edited file may hold values of any type.
    """
    try:
        return apply(state, event)
    except INAPPLICABLE as error:
        raise _inapplicable(event, number, error) from error


def _inapplicable(event: Event, number: int, error: Exception) -> ReplayDiverged:
    """Return the error for an event that cannot be applied."""
    return ReplayDiverged(f"event {number} ({type(event).__name__}) cannot be applied: {reason_of(error)}")


def folded(state: State, events: Iterable[Event], first: int = 0) -> State:
    """Return the state after `events`, the first at index `first`. Raises ReplayDiverged."""
    for number, event in enumerate(events, first):
        state = applied(state, event, number)
    return state


@dataclass(frozen=True, slots=True)
class Trace:
    """A decode as a value: its first state and its events."""

    first: State
    """The first state."""
    events: tuple[Event, ...] = ()
    """The events since then, oldest first."""

    def extended(self, event: Event) -> "Trace":
        """Return the trace with one more event.

        Args:
            event: The event to append.
        """
        return Trace(self.first, (*self.events, event))

    def states(self) -> Iterator[State]:
        """Yield the first state, then the state after each event.

        Raises:
            ReplayDiverged: If an event cannot be applied.
        """
        state = self.first
        yield state
        for number, event in enumerate(self.events):
            state = applied(state, event, number)
            yield state

    @property
    def state(self) -> State:
        """The last state. Raises ReplayDiverged if an event cannot be applied."""
        return folded(self.first, self.events)

    def replay(self) -> State:
        """Plan every step again, compare each plan with the recorded one, and return the last state.

        The recorded samples are committed, so no device is needed.

        Raises:
            ReplayDiverged: With the event, and the first field that differs or the reason why the
                event cannot be applied.
        """
        state = self.first
        since = [state]  # the plan may come from any of these: requests may arrive or end after it was made
        last = None  # index of the last samples
        for number, event in enumerate(self.events):
            try:
                if isinstance(event, Samples):
                    # Newest first, so that a state with a request that failed later is not planned
                    # again.
                    if all(schedule(earlier) != event.plan for earlier in reversed(since)):
                        raise ReplayDiverged(
                            f"event {number}, step {state.step}: {difference(schedule(state), event.plan, last)}"
                        )
                    last = number
                if isinstance(event, Samples | Rebuild):
                    since = []  # no later plan can come from an earlier state
                state = apply(state, event)
            except ReplayDiverged:
                raise
            except INAPPLICABLE as error:
                raise _inapplicable(event, number, error) from error
            since.append(state)
        return state

    def save(self, path: str | PathLike[str]) -> None:
        """Write JSON lines: the first state, then one event per line. Replaces an old file.

        Args:
            path: Path of the file.
        """
        write(path, self.first, self.events)

    @staticmethod
    def load(path: str | PathLike[str]) -> "Trace":
        """Return the trace that `save` wrote.

        Args:
            path: Path of the file.

        Raises:
            ValueError: With file, line and field, if the file was changed.
        """
        first, events = read(path)
        if not isinstance(first, State) or not all(isinstance(event, Event) for event in events):
            raise ValueError(f"{path}: not a trace: its first value must be a state, and all others events")
        return Trace(first, events)


def reason_of(error: Exception) -> str:
    """Return an error message on one line, with the class unless the message is meant for users."""
    text = " ".join(str(error).split())[:LONGEST_REASON]
    return text if isinstance(error, ValueError | DlstepError) else f"{type(error).__name__}: {text}"


def difference(planned: Plan, recorded: Plan, last: int | None = None) -> str:
    """Return a message with the cause of a difference between two plans and the first such field.

    `last` is the index of the last samples before them; None if there are none.
    """
    effect = _effect(planned, recorded)
    if planned.cache_digest == recorded.cache_digest:
        return effect or "the plans are equal"
    if EMPTY_CACHE in (planned.cache_digest, recorded.cache_digest):
        reset, unreset = (
            ("the trace", "the recorded decode")
            if planned.cache_digest == EMPTY_CACHE
            else ("the recorded decode", "the trace")
        )
        cause = f"before this step {reset} resets the device, {unreset} does not: an event was lost or added"
    elif last is None:
        cause = "the first state is not the one that was recorded"
    else:
        cause = f"the samples of event {last}, or its plan, are not those that this step was recorded after"
    return f"{cause}; {effect}" if effect else cause


def _effect(planned: Plan, recorded: Plan) -> str | None:
    """Return the first field, except the cache digest, in which two plans differ; None if none."""
    for name in names_of(planned):
        now, then = attrgetter(name)(planned), attrgetter(name)(recorded)
        if name == "cache_digest" or now == then:
            continue
        if name == "spans":
            for index, (span, other) in enumerate(zip(now, then, strict=False)):
                for part in differing(span, other, names_of(span)):
                    sides = _sides(attrgetter(part)(span), attrgetter(part)(other))
                    return f"span {index} of request {span.id}: {part} {sides}"
            return f"{len(now)} {'span' if len(now) == 1 else 'spans'} now, {len(then)} recorded"
        return f"{name} {_sides(now, then)}"
    return None


def _sides(now: object, then: object) -> str:
    """Describe two different values; for tuples of equal length, the first entry that differs."""
    if isinstance(now, tuple) and isinstance(then, tuple):
        one, two = cast(tuple[object, ...], now), cast(tuple[object, ...], then)
        if len(one) == len(two):
            index = next(index for index, sides in enumerate(zip(one, two, strict=True)) if sides[0] != sides[1])
            return f"entry {index} is {short(one[index])} now, {short(two[index])} was recorded"
    return f"is {short(cast(object, now))} now, {short(cast(object, then))} was recorded"


def names_of(value: Any) -> list[str]:
    """Return the names of a dataclass's fields."""
    return [field.name for field in fields(value)]


def differing(old: Any, new: Any, names: Iterable[str]) -> list[str]:
    """Return the fields among `names` that differ."""
    # `!=` does not work: persistent maps define only equality.
    return [name for name in names if not eq(attrgetter(name)(old), attrgetter(name)(new))]
