"""A decode as a value: the state it began with and what happened since. Folding the events gives every later state."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import accumulate
from operator import attrgetter
from os import PathLike
from pathlib import Path

from .codec import from_json, to_json
from .commit import commit
from .errors import ReplayDiverged
from .lifecycle import abort, add, rebuild
from .plan import Plan, Samples
from .request import Request
from .schedule import schedule
from .state import State

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Add:
    """A request arrived."""

    request: Request


@dataclass(frozen=True, slots=True)
class Abort:
    """A request was aborted."""

    id: int


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The device was forgotten."""


Event = Add | Abort | Rebuild | Samples


def apply(state: State, event: Event) -> State:
    """The state after `event`."""
    match event:
        case Add():
            return add(state, event.request)
        case Abort():
            return abort(state, event.id)
        case Rebuild():
            return rebuild(state)
        case Samples():
            return commit(state, event)


@dataclass(frozen=True, slots=True)
class Trace:
    """The first state of a decode and its events, oldest first."""

    first: State
    events: tuple[Event, ...] = ()

    def extended(self, event: Event) -> "Trace":
        """The trace with one more event."""
        return Trace(self.first, (*self.events, event))

    def states(self) -> Iterator[State]:
        """The first state and the one after each event."""
        return accumulate(self.events, apply, initial=self.first)

    @property
    def state(self) -> State:
        """The last state."""
        state = self.first
        for event in self.events:
            state = apply(state, event)
        return state

    def replay(self) -> State:
        """Plan every step anew, compare with the recorded plan, and commit the recorded samples; no model is needed.

        Raises ReplayDiverged naming the event, the step and the first field that differs.
        """
        state = self.first
        since = [state]  # states from which this plan may have been made: arrivals and aborts may follow a plan
        for number, event in enumerate(self.events):
            if isinstance(event, Samples):
                plans = [schedule(earlier) for earlier in reversed(since)]
                if event.plan not in plans:
                    raise ReplayDiverged(f"event {number}, step {state.step}: {difference(plans[0], event.plan)}")
                since = []
            state = apply(state, event)
            since.append(state)
        return state

    def save(self, path: str | PathLike[str]) -> None:
        """Write JSON lines: the first state, then one event a line."""
        lines = [{"dlstep_trace": FORMAT, "first": to_json(self.first)}, *map(to_json, self.events)]
        with Path(path).open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)

    @staticmethod
    def load(path: str | PathLike[str]) -> "Trace":
        """Read what `save` wrote. Raises ValueError naming the file and line that is no part of a trace."""
        values: list[Event] = []
        first: State | None = None
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    data = json.loads(line)
                    if first is None:
                        if data.get("dlstep_trace") != FORMAT:
                            raise ValueError(f"format {data.get('dlstep_trace')!r} instead of {FORMAT}")
                        first = from_json(data["first"])
                    else:
                        values.append(from_json(data))
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    raise ValueError(f"{path}, line {number}: not a line of a trace: {error}") from error
        if first is None:
            raise ValueError(f"{path}: the file is empty, a trace has at least its first state")
        return Trace(first, tuple(values))


def difference(planned: Plan, recorded: Plan) -> str:
    """In words, the first field in which two different plans differ."""
    for field in fields(Plan):
        now, then = attrgetter(field.name)(planned), attrgetter(field.name)(recorded)
        if now == then:
            continue
        if field.name == "spans":
            for index, (span, other) in enumerate(zip(now, then, strict=False)):
                for part in fields(span):
                    one, two = attrgetter(part.name)(span), attrgetter(part.name)(other)
                    if one != two:
                        return f"span {index} of request {span.id}: {part.name} is {one!r} now, {two!r} was recorded"
            return f"{len(now)} spans now, {len(then)} were recorded"
        return f"{field.name} is {now!r} now, {then!r} was recorded"
    return "the plans are equal"
