"""`Session`: a decode that is stepped through by hand, rewound, forked, saved and resumed."""

from dataclasses import fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from .core import (
    Abort,
    Add,
    Event,
    Plan,
    Rebuild,
    Request,
    Samples,
    SamplingParams,
    State,
    Strategy,
    Trace,
    abort,
    add,
    commit,
    rebuild,
    schedule,
)
from .engine import Engine, encode
from .loop import run_next
from .output import Output, Prompt, output_of

if TYPE_CHECKING:
    from .llm import LLM


class Session:
    """A state and how it came about. Every forward can be looked at, taken back, and taken again in another way.

    Sessions of one `LLM` share its driver; whichever runs next rebuilds what the device no longer holds, by itself.
    """

    def __init__(self, engine: Engine, trace: Trace | None = None) -> None:
        self._engine = engine
        self._first = engine.first if trace is None else trace.first
        self._events: list[Event] = [] if trace is None else list(trace.events)
        self._state = self._first if trace is None else trace.state
        self._samples = next((event for event in reversed(self._events) if isinstance(event, Samples)), None)
        self._prompts: dict[int, str] = {}
        # Before each forward of this session: state, number of events, samples.
        self._points: list[tuple[State, int, Samples | None]] = []
        self._broken_off = False

    @classmethod
    def resume(cls, llm: "LLM", source: Trace | State) -> "Session":
        """A session that goes on from a saved trace or state, in this process or another: it ends in the same tokens.

        Raises ValueError if the state was made for another model or other budgets than those of `llm`.
        """
        trace = source if isinstance(source, Trace) else Trace(source)
        theirs, ours = trace.first.config, llm.engine.first.config
        for field in fields(ours):
            was, now = attrgetter(field.name)(theirs), attrgetter(field.name)(ours)
            if was != now:
                shown = "" if field.name == "spec" else f": {was!r} there, {now!r} here"
                raise ValueError(f"the saved decode was made for another {field.name}{shown}; give the LLM the same options")
        return cls(llm.engine, trace)

    @property
    def state(self) -> State:
        """The state now."""
        return self._state

    @property
    def plan(self) -> Plan:
        """What the next step would run."""
        return schedule(self._state)

    @property
    def samples(self) -> Samples | None:
        """What the last step answered; None before the first."""
        return self._samples

    @property
    def trace(self) -> Trace:
        """The first state and all events up to now."""
        return Trace(self._first, tuple(self._events))

    def __repr__(self) -> str:
        state = self._state
        counts = f"{len(state.running)} running, {len(state.waiting)} waiting, {len(state.finished)} finished"
        return f"Session(step {state.step}, {counts}, {state.strategy!r})"

    def submit(self, prompt: Prompt, sampling_params: SamplingParams = SamplingParams()) -> int:
        """Add a prompt, text or token ids; the id of its request."""
        request_id = self._state.arrivals
        request = Request(request_id, encode(self._engine, prompt), sampling_params)
        self._apply(Add(request), add(self._state, request))
        self._prompts.pop(request_id, None)
        if isinstance(prompt, str):
            self._prompts[request_id] = prompt
        return request_id

    def abort(self, request_id: int) -> None:
        """End a request; nothing happens if it has ended."""
        self._apply(Abort(request_id), abort(self._state, request_id))

    def output(self, request_id: int) -> Output:
        """What is certain of an answer by now. Raises ValueError for an id that was never submitted."""
        sequence = self._state.find(request_id)
        if sequence is None:
            raise ValueError(f"request {request_id} was never submitted to this session")
        return output_of(sequence, self._prompts.get(request_id, sequence.request.prompt), self._engine.tokenizer)

    def step(self) -> State:
        """One forward, and the state after it. If the driver fails the session stays as it was and can step again.

        Raises ValueError when no request is left to run.
        """
        if self._state.done:
            raise ValueError("no request waits or runs: submit a prompt first")
        before = (self._state, len(self._events), self._samples)
        state = rebuild(self._state) if self._broken_off else self._state
        # A forward that raises leaves the device in a state that nobody knows, so the next one must rely on nothing.
        self._broken_off = True
        planned, samples = run_next(state, self._engine.driver)
        self._broken_off = False
        if planned is not self._state:
            self._apply(Rebuild(), planned)
        self._apply(samples, commit(planned, samples))
        self._samples = samples
        self._points.append(before)
        return self._state

    def run(self) -> State:
        """Steps until every request has ended; Ctrl-C stops between two steps or breaks one off, which is then not taken."""
        while not self._state.done:
            self.step()
        return self._state

    def back(self, steps: int = 1) -> State:
        """The state as it was so many steps ago; what was submitted or aborted since is undone too.

        Raises ValueError for more steps than this session has taken.
        """
        if not 1 <= steps <= len(self._points):
            raise ValueError(f"this session can go back 1 to {len(self._points)} steps, got {steps}")
        self._state, events, self._samples = self._points[-steps]
        del self._points[-steps:], self._events[events:]
        return self._state

    def fork(self, **changes: Any) -> "Session":
        """A second session that begins at this state, with some fields of the strategy changed; both can go on.

        A changed threshold holds for the requests under way too, also for those that brought their own. Raises ValueError
        for a name that the strategy does not have, and for a change that the blocks under way do not allow.
        """
        state = rebuild(changed(self._state, changes))
        branch = Session(self._engine, Trace(state))
        branch._prompts = dict(self._prompts)
        return branch

    def _apply(self, event: Event, state: State) -> None:
        self._events.append(event)
        self._state = state


def changed(state: State, changes: dict[str, Any]) -> State:
    """`state` under a strategy with `changes`; raises ValueError where sequences under way could not go on."""
    known = [field.name for field in fields(state.strategy)]
    for name in changes:
        if name not in known:
            raise ValueError(f"{type(state.strategy).__name__} has no field {name!r}: it knows {', '.join(known)}")
    strategy: Strategy = replace(state.strategy, **changes)
    budget = state.config.max_num_batched_tokens
    for sequence in (*state.running, *state.waiting):
        request = sequence.request
        if strategy.grid(request) != state.strategy.grid(request):
            raise ValueError(f"{changes} would move the blocks of request {request.id}, which is under way")
        rows = strategy.atom(request) + state.config.spec.head_shift
        if rows > budget:
            raise ValueError(f"{changes} needs {rows} rows at once for request {request.id}; max_num_batched_tokens={budget}")

    def moved(sequences: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(sequence.asking(overridden(sequence.request, changes)) for sequence in sequences)

    return replace(state, strategy=strategy, running=moved(state.running), waiting=moved(state.waiting))


def overridden(request: Request, changes: dict[str, Any]) -> Request:
    """`request` whose own thresholds give way to the changed fields of the same name."""
    thresholds = request.params.thresholds
    own = {field.name for field in fields(thresholds) if attrgetter(field.name)(thresholds) is not None}
    new = {name: value for name, value in changes.items() if name in own}
    if not new:
        return request
    return replace(request, params=replace(request.params, thresholds=replace(thresholds, **new)))
