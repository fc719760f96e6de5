"""Calls of strategies and rules, checks of the values that strategies return, and helpers for the checks in `rule.py`.

An invalid value raises WrongAnswer, which ends only the request that uses the strategy or rule.

Every span and every sequence of a strategy is checked. In a span, every token id and sampled position is read: an
invalid value would fail on the device and end all requests of the batch. In a sequence, only types, lengths and ends of blocks
are read, because reading every position would take 170 us per request and step. If a rule defines `commit`,
`rule.check_committed` reads every token of its blocks.
"""

from array import array
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from types import NoneType
from typing import Any, Literal, TypeVar, cast

from .block import Block, Grid
from .checks import short, wrong_field
from .errors import RequestFault, WrongAnswer, described
from .plan import MODES, MOST, Rows, SampleSpec, SoftTokens, Span, Storing, Wanted
from .request import Request, SamplingParams, Who
from .sequence import SequenceState, Strategy
from .spec import Spec

Result = TypeVar("Result")


def whole(numbers: Any) -> bool:
    """Return whether `numbers` is a tuple or a list of integers."""
    return type(numbers) in (tuple, list) and {int}.issuperset(map(type, numbers))


def ascending(numbers: Any, least: int = 0) -> bool:
    """Return whether `numbers` is a tuple or a list of strictly increasing integers, none of them below `least`."""
    if type(numbers) not in (tuple, list):
        return False
    for number in numbers:
        if type(number) is not int or number < least:
            return False
        least = number + 1
    return True


def falls(was: Any, now: Any) -> bool:
    """Return whether both are integers, and the second is smaller and not negative."""
    return whole((was, now)) and 0 <= now < was


def is_block(block: Any, kind: type[Block]) -> bool:
    """Return whether `block` is a `Block` or a `kind`, not a subclass, and its fields have the declared types."""
    if type(block) not in (Block, kind) or type(block.tokens) is not tuple or type(block.masked) is not tuple:
        return False
    known = cast(Block, block)
    probable = [type(p) in (float, int) and 0 <= p <= MOST for p in known.probabilities]
    return whole((*known.tokens, *known.masked, known.start, known.given, known.opened)) and all(probable)


def before_forward(sequence: SequenceState) -> SequenceState:
    """Return the sequence without the pass that was just counted: a measure may depend on the count."""
    return replace(sequence, steps=sequence.steps - 1)


def unusable(strategy: Strategy, request: Request) -> str | None:
    """Return an error message if a value that a strategy returns for a request, or one of its fields, has a wrong type."""
    stated: dict[str, type] = {"grid": Grid, "atom": int, "reach": int, "sample_spec": SampleSpec}
    for name, kind in stated.items():
        found = getattr(strategy, name)
        value = found(request) if callable(found) else found
        if type(value) is not kind or (kind is not int and wrong_field(value) is not None):
            what = f"{short(value)}: it must be a {kind.__name__}, not a subclass, with fields of the declared types"
            return str(WrongAnswer(strategy, name, what))
    return None


def check_span(strategy: Strategy, sequence: SequenceState, span: Any, spec: Spec) -> None:
    """Check the span from `schedule`: of this request, between `final` and `reach`, with rows for what it samples."""
    if flaw := _flaw_of(span, strategy, sequence, spec):
        raise WrongAnswer(strategy, "schedule", flaw)


def _has_types(rows: Rows, wanted: Wanted, storing: Storing) -> bool:
    """Return whether the parts of a span have the types that a device needs."""
    return (
        type(rows.start) is type(rows.end) is int
        and type(rows.tokens) is type(wanted.sampled) is type(wanted.masks) is tuple
        and type(rows.draft) is type(storing.joins) is type(storing.keeps_window) is bool
        and type(rows.grid) is Grid
        and rows.mode in MODES
        and type(rows.soft) in (SoftTokens, NoneType)
        and type(wanted.penalty) in (float, int)
        and type(wanted.shift) in (int, NoneType)
    )


def _fit_arrays(numbers: tuple[Any, ...]) -> bool:
    """Return whether all numbers convert to unsigned 32-bit integers. Costs 1.3 us for 128 numbers."""
    try:
        array("I", numbers)
    except (TypeError, OverflowError):
        return False
    return True


def _ascend(numbers: tuple[Any, ...]) -> bool:
    """Return whether the numbers are unsigned 32-bit integers that never decrease. Costs 0.7 us for 30 numbers."""
    # A repeated number harms only its own request, so not every one is found.
    return _fit_arrays(numbers) and sorted(numbers) == [*numbers] and numbers[-1] - numbers[0] >= len(numbers) - 1


def _are_ids(tokens: tuple[Any, ...], spec: Spec) -> bool:
    """Return whether a device can embed all tokens. Costs 3 us for 128 tokens."""
    if not _fit_arrays(tokens):
        return False
    largest = max(tokens) if tokens else 0
    return largest < spec.vocab_size or largest <= (spec.mask_id or 0)


def _flaw_of(span: Any, strategy: Strategy, sequence: SequenceState, spec: Spec) -> str | None:
    """Return what is wrong with a span; None if nothing is."""
    if type(span) is not Span:
        return f"{short(span)}: it must be a Span, not a subclass"
    who, rows, wanted, storing = span.who, span.rows, span.wanted, span.storing
    if not (type(who) is Who and type(rows) is Rows and type(wanted) is Wanted and type(storing) is Storing):
        return f"{short(span)}: its parts must be of the classes Who, Rows, Wanted and Storing, not of subclasses"
    request, sampled, start = sequence.request, wanted.sampled, rows.start
    if who is not request.who and (who.id, who.seq_id, who.seed) != (request.id, request.seq_id, request.seed):
        return "a span of another request: its id, seq_id and seed must be those of sequence.request"
    if type(who.params) is not SamplingParams or not _has_types(rows, wanted, storing):
        return wrong_field(who) or wrong_field(rows) or wrong_field(wanted) or wrong_field(storing)
    if not _are_ids(rows.tokens, spec):
        return f"tokens={short(rows.tokens)}: ids must be in [0, {spec.vocab_size})"
    if storing.joins and rows.grid is not request.grid and rows.grid != request.grid:
        return f"grid={short(rows.grid)}: a span with joins=True needs {request.grid!r}, the grid of the request"
    if rows.query_only or rows.final_rows:
        return f"query_only={short(rows.query_only)} and final_rows={short(rows.final_rows)}: only the core may set them"
    plain = not rows.draft and rows.mode == "encode" and rows.soft is None
    if storing.keeps_window and not (plain and storing.joins and start == sequence.final):
        return f"keeps_window=True needs joins=True, draft=False, mode='encode', no soft tokens and start={sequence.final}"
    shift, stop = wanted.row_shift(spec.head_shift), rows.stop
    if start < sequence.final or not (rows.tokens or shift):  # with a shift, the row before can predict the first position
        return f"a span of {len(rows.tokens)} tokens from {short(start)}: it must feed one or more from {sequence.final} on"
    if rows.end < stop or (rows.end > request.limit and rows.end > strategy.reach(request)):
        reach = strategy.reach(request)
        return f"end={short(rows.end)}: it must lie between its last row's end {stop} and reach(request)={reach}"
    low, high = max(start, shift), stop + shift  # with a shift, no row predicts position 0
    if not sampled or not _ascend(sampled) or sampled[0] < low or sampled[-1] >= high:
        return f"sampled={short(sampled)}: it must hold one or more integers that ascend within [{low}, {high})"
    if len(wanted.draws) != len(sampled):
        return f"draws={short(wanted.draws)}: it must hold {len(sampled)} numbers, one for each sampled position"
    scored = len(wanted.scored_ids)
    if scored and scored not in range(0, strategy.sample_spec.scored * len(sampled) + 1, len(sampled)):
        return f"{scored} scored ids: equally many for each position, at most {strategy.sample_spec.scored}"
    return None


_of_core = attrgetter("storage", "steps", "nfe", "stop_state", "finish_info", "best")


def check_sequence(strategy: Strategy, hook: str, before: SequenceState, after: Any) -> None:
    """Check the sequence from a strategy: it may change only its own fields, and no settled token."""
    if flaw := _flaw_after(before, after, 0 if hook == "forget" else before.settled, forgets=hook == "forget"):
        raise WrongAnswer(strategy, hook, flaw)
    limit = before.request.limit
    if hook == "commit" and after.steps > limit - len(after.request.prompt) and after.settled < limit:
        # With more passes than tokens, every further pass must lower the measure.
        was, now = strategy.measure(before_forward(before)), strategy.measure(after)
        if not falls(was, now):
            words = f"a sequence of measure {short(now)} after {short(was)}: every forward pass must lower it"
            raise WrongAnswer(strategy, hook, words)


def _flaw_after(before: SequenceState, after: Any, least: int, *, forgets: bool) -> str | None:
    """Return why a new sequence is invalid, or None. At least `least` of its positions must be settled."""
    if type(after) is not SequenceState:
        return f"{short(after)}: it must be a SequenceState, not a subclass"
    if after.request is not before.request or (not forgets and _of_core(after) != _of_core(before)):
        return "a sequence of another request, or with a changed field that belongs to the core"
    window, final, settled, limit = after.window, after.final, after.settled, before.request.limit
    if type(final) is not int or type(settled) is not int or final < 0 or not least <= settled <= limit:
        return (
            f"final={short(final)} and settled={short(settled)}: both must be integers, final at least 0 and "
            f"settled in [{least}, {limit}]"
        )
    if type(window) is not tuple:
        return f"window={short(window)}: it must be a tuple of Blocks"
    start = None
    for block in window:
        if type(block) is not Block or start not in (None, block.start):
            return f"window={short(window)}: it must hold Blocks, not of a subclass, that follow one another"
        if block.masked and block.masked[0] < settled:
            return f"settled={settled}, but masked positions lie before it"
        start = block.end
    if settled > before.settled and len(after.tokens(before.settled, settled)) != settled - before.settled:
        return f"settled={settled}, but no block holds these positions"
    return None


def run_user_code(sequence: SequenceState | None, step: int, function: Callable[..., Result], *arguments: object) -> Result:
    """Return the result of a function that calls the strategy or rule of a request in `step`.

    Raises RequestFault for every exception, including SystemExit, which would otherwise end a server. Only
    KeyboardInterrupt, which Ctrl-C sends, passes unchanged. `sequence` is None for a request that is still
    being checked; the fault then has no id and no position.
    """
    try:
        return function(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise fault_of(sequence, step, error) from error


def fault_of(sequence: SequenceState | None, step: int, error: BaseException) -> RequestFault:
    """Return the fault of the request whose strategy or rule raised `error` in `step`."""
    if sequence is None:
        return RequestFault(-1, described(error))
    position = sequence.window[0].start if sequence.window else sequence.final
    return RequestFault(sequence.request.id, f"step {step}, from position {position} on: {described(error)}")


def hooked(name: Literal["init", "commit", "forget"], sequence: SequenceState, *arguments: object) -> SequenceState:
    """Return the sequence after a hook of its strategy."""
    strategy = sequence.request.strategy
    after = getattr(strategy, name)(sequence, *arguments)
    check_sequence(strategy, name, sequence, after)
    return after
