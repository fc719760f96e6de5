"""`Session`: a decode to step through by hand, rewind, fork, save and resume."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from . import rules
from .core import (
    Plan,
    Request,
    Samples,
    SamplingParams,
    State,
    Trace,
    init,
    schedule,
    short,
    with_options,
)
from .core.lifecycle import pages_needed
from .core.options import options_of, sorted_options
from .core.request import explains
from .engine.decode import Decode
from .engine.loader import LoadedEngine
from .engine.overrides import forked
from .engine.strategy_choice import unknown
from .text.constraints import recompiled
from .text.output import Output, Prompt, output_of
from .text.prompts import ids_of, params_of
from .text.words import print_pretty
from .views import steps_html
from .views.texts import counts

if TYPE_CHECKING:
    from .engine.observation import Layers, Observation


class _Point(NamedTuple):
    """A point in the history of a session: the state, and the number of events so far."""

    state: State
    events: int


class Session:
    """A state and the events that led to it. A forward pass can be inspected, undone and repeated.

    `LLM.session` and `LLM.resume` create sessions. Each session of an `LLM` has its own pages, as many as its
    unfinished requests need. They are freed when the session is closed or
    collected. If another session has evicted them, the next step recomputes their content. A session keeps the
    states of its own steps, about 50 KiB per request of 24 tokens: for many requests use `LLM.generate` or several
    sessions.

    Args:
        engine: The loaded engine of an LLM.
        trace: The trace to continue; None: a state without requests.

    Raises:
        ReplayDiverged: If replaying the trace gives another plan than the recorded one.
    """

    def __init__(self, engine: LoadedEngine, trace: Trace | None = None) -> None:
        self._engine = engine
        first = engine.first
        trace = trace or Trace(init(replace(first.config, num_pages=engine.pages_of_session()), first.strategy))
        self._first, self._events = trace.first, list(trace.events)
        state = recompiled(trace).replay()
        self._decode = Decode(state, engine.driver, record=self._events.append, prunes=False, ahead=False)
        self._prompts: dict[int, str] = {}
        self._weights_version = self._decode.weights_version
        self._needed = state.config.num_pages  # at least what unfinished requests need; recounted when it exceeds the pages
        # One before each step of this session, and the current one. A change counts once its point is here, so an
        # interrupted change needs no cleaning up: the next one begins at the last point.
        self._points = [_Point(state, len(self._events))]

    @property
    def state(self) -> State:
        """The current state."""
        return self._points[-1].state

    @property
    def plan(self) -> Plan:
        """The plan of the next step."""
        return schedule(self.state)

    @property
    def samples(self) -> Samples | None:
        """The samples of the last forward pass; None before the first."""
        return next((event for event in reversed(self.trace.events) if isinstance(event, Samples)), None)

    @property
    def trace(self) -> Trace:
        """The first state and all events so far."""
        return Trace(self._first, tuple(self._events[: self._points[-1].events]))

    def __repr__(self) -> str:
        return f"Session(step {self.state.step}, {counts(self.state)}, {self.state.strategy!r})"

    def __str__(self) -> str:
        return str(self.state)

    _repr_pretty_ = print_pretty

    def _repr_html_(self) -> str:
        """Return the steps so far, with a slider, for a notebook."""
        return steps_html(self.trace)

    @explains("Session.submit")
    def submit(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> int:
        """Add a prompt. Return the id of its request.

        Args:
            prompt: Text or token ids.
            sampling_params: How to sample the answer, and where it ends; None: the model's defaults.
        """
        params, request_id = params_of(self._engine, sampling_params), self.state.next_seq_id
        request = Request(request_id, ids_of(self._engine, prompt, params), params)
        self._points[-1] = self._changed(partial(self._add, request))
        self._prompts.pop(request_id, None)
        if isinstance(prompt, str):
            self._prompts[request_id] = prompt
        return request_id

    def _add(self, request: Request, decode: Decode) -> None:
        """Add a request, and more pages if all unfinished requests need them."""
        decode.add(request)
        state, engine = decode.state, self._engine
        config, held, added = state.config, state.config.num_pages, state.find(request.id)
        assert added is not None, "it was just added"
        self._needed += pages_needed(config, [added])
        if self._needed > held and engine.pages_of_session(self._needed) > held:
            self._needed = pages_needed(config, (*state.running, *state.waiting))
            if self._needed > held:  # at least doubled, because growing copies the KV cache
                decode.grow(engine.pages_of_session(max(self._needed, 2 * held)))

    def abort(self, request_id: int, reason: str = "") -> None:
        """End a request; do nothing if it has ended.

        Args:
            request_id: The id that `submit` returned.
            reason: Message that becomes the request's `error`.
        """
        self._points[-1] = self._changed(lambda decode: decode.abort(request_id, reason))

    def output(self, request_id: int) -> Output:
        """Return the final part of the answer.

        Args:
            request_id: The id that `submit` returned.

        Raises:
            ValueError: For an id that was never submitted.
        """
        sequence = self.state.find(request_id)
        if sequence is None:
            raise ValueError(f"request {short(request_id)} was never submitted to this session")
        prompt = self._prompts.get(request_id, sequence.request.prompt)
        return output_of(sequence, prompt, self._engine.tokenizer, self.state.config.spec, self._weights_version)

    def step(self) -> State:
        """Run one forward pass and return the new state.

        If the device has lost the session's cache, run as many passes as it takes to advance. If
        the driver raises, the session is unchanged and can step again.

        Raises:
            ValueError: If no request is waiting or running.
        """
        if self.state.done:
            raise ValueError("no request waits or runs: submit a prompt first")
        self._points.append(self._changed(lambda decode: self._engine.turn.run(decode.step)))
        return self.state

    def _changed(self, change: Callable[[Decode], object]) -> _Point:
        """Return the point after a change of the current one."""
        now, decode = self._points[-1], self._decode
        del self._events[now.events :]
        decode.rewind(now.state)
        change(decode)
        return _Point(decode.state, len(self._events))

    def run(self) -> State:
        """Step until every request has ended; return the state. Ctrl-C undoes the current step."""
        while not self.state.done:
            self.step()
        return self.state

    def back(self, steps: int = 1) -> State:
        """Undo steps, and all submissions and aborts since then. Return the state.

        In a resumed trace, each forward pass counts as a step; the state is computed again from the events before it.

        Args:
            steps: Number of steps to undo.

        Raises:
            ValueError: For more steps than this session and its trace have taken.
        """
        resumed, taken = self._events[: self._points[0].events], len(self._points) - 1
        passes = [number for number, event in enumerate(resumed) if isinstance(event, Samples)]
        if not 1 <= steps <= (most := taken + len(passes)):
            raise ValueError(f"this session can go back {'1 to ' if most else ''}{most} steps, got {short(steps)}")
        if steps <= taken:
            del self._points[-steps:]
        else:
            end = passes[taken - steps]
            self._points = [_Point(recompiled(Trace(self._first, tuple(resumed[:end]))).state, end)]
        return self.state

    def observe(
        self,
        step: int | None = None,
        *,
        best: int = 5,
        logits: bool = False,
        hidden_states: "Layers" = (),
        lens: "Layers" = (),
        attentions: "Layers" = (),
        heads: "Layers" = "all",
        experts: "Layers" = (),
    ) -> "Observation":
        """Run a forward pass without advancing the session, and return what the network computed.

        Layers and heads have numbers from 0; "all" selects all.

        Args:
            step: Number of an earlier step, whose passes may have to run once more; None: the next step.
            best: Number of most probable tokens to return for each sampled position.
            logits: Return the output of the head at each sampled position.
            hidden_states: Indices of hidden states: 0 is the embedding, i the output of i layers; the
                last one is after the final norm.
            lens: Indices of hidden states to apply the final norm and the head to, as if no layer
                followed (the logit lens).
            attentions: Layers whose attention weights to return.
            heads: Heads of these layers.
            experts: Layers whose chosen experts to return.

        Raises:
            ValueError: For a step that was not run, if no request is left, for a layer or head that
                does not exist, and with tensor_parallel_size above 1.
        """
        return observed(
            self._engine, self.trace, step, best=best, logits=logits, hidden_states=hidden_states, lens=lens,
            attentions=attentions, heads=heads, experts=experts,
        )  # fmt: skip

    def close(self) -> None:
        """Free the session's pages. It can still be inspected; its next step allocates new ones."""
        self._decode.close()

    def fork(self, *, seed: int | None = None, **changes: Any) -> "Session":
        """Return a second session from this state with changed strategy options. Both can continue.

        `fork(rule="quota", steps_per_block=4)` changes the rule and one of its options. Options may
        change everything except the layout of blocks, and override the options of unfinished
        requests. Settled tokens stay settled, even if the new rule remasks.

        Args:
            seed: New seed of unfinished requests; None keeps theirs. Later noise depends on it, and
                an uncommitted canvas of random tokens is drawn again.
            **changes: Options of the strategy and of its rule.

        Raises:
            ValueError: For an unknown name, and for a change that unfinished blocks do not allow.
        """
        changes, strategy = rules.with_values(dict(sorted_options("fork", changes))), self.state.strategy
        # Set the rule first, because other changes may be options of it.
        held = {name: changes[name] for name in rules.HOLDERS if name in options_of(strategy) and name in changes}
        base = with_options(strategy, held)
        for name, value in changes.items():
            if name not in options_of(base):
                raise unknown(name, value, base)
        branch = Session(self._engine, Trace(forked(self.state, with_options(base, changes), changes, seed)))
        branch._prompts, branch._weights_version = dict(self._prompts), self._weights_version
        return branch


def observed(engine: LoadedEngine, source: Trace | State, step: int | None, **chosen: Any) -> "Observation":
    """Return what the network computes in a step; see `Session.observe`."""
    from .engine.observation import Chosen, observe  # imports torch

    trace = recompiled(trace_of(engine, source))
    return engine.turn.run(partial(observe, engine, trace, step, Chosen(**chosen)))


def trace_of(engine: LoadedEngine, source: Trace | State) -> Trace:
    """Return a saved trace or state as a trace. Raises ValueError if it does not fit the engine."""
    if not isinstance(source, Trace | State):
        raise ValueError(f"a decode is a Trace or a State, got {short(source)}: load a file with Trace.load(path)")
    trace = source if isinstance(source, Trace) else Trace(source)
    theirs, ours = trace.first.config, engine.first.config
    if theirs.spec.fingerprint != ours.spec.fingerprint:
        raise ValueError(
            "the saved decode was made by another configuration, other weights, another adapter or another dtype than "
            f"{engine.name} has: load what it was made with"
        )
    for field in fields(ours):
        was, now = getattr(theirs, field.name), getattr(ours, field.name)
        if was != now and field.name != "num_pages":
            shown = "" if field.name == "spec" else f": {was!r} there, {now!r} here"
            raise ValueError(f"the saved decode was made for another {field.name}{shown}; give the LLM the same options")
    return trace
