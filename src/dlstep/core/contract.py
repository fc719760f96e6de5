"""Calls of strategies and rules, checks of the values that strategies return, and helpers for the checks in `rule.py`.

An invalid value raises WrongAnswer, which ends only the request that uses the strategy or rule.

Every span and every `Progress` of a strategy is checked. In a span, every token id and sampled position is read: an
invalid value would fail on the device and end all requests of the batch. In a `Progress`, only types, lengths and ends of
blocks are read, because reading every position would take 170 us per request and step. If a rule defines `commit`,
`rule.check_committed` reads every token of its blocks.
"""

from array import array
from dataclasses import replace
from types import NoneType
from typing import Any, Literal, cast

from rpds import List

from .block import Block, Grid
from .checks import short, wrong_field
from .errors import Refusal, RequestFault, WrongAnswer, described
from .plan import MODES, MOST, Rows, SampleSpec, SoftTokens, Span, Storing, Wanted
from .request import Request, SamplingParams, Who
from .sequence import Progress, SequenceState, Strategy
from .spec import Spec


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


def refusal_of_values(strategy: Strategy, request: Request) -> Refusal | None:
    """Return a refusal if a value that a strategy returns for a request, or one of its fields, has a wrong type."""
    stated: dict[str, type] = {"grid": Grid, "rows_at_once": int, "fed_end": int, "sample_spec": SampleSpec}
    for name, kind in stated.items():
        found = getattr(strategy, name)
        value = found(request) if callable(found) else found
        if type(value) is not kind or (kind is not int and wrong_field(value) is not None):
            what = f"{short(value)}: it must be a {kind.__name__}, not a subclass, with fields of the declared types"
            return Refusal("decoding_strategy", "strategy_failed", str(WrongAnswer(strategy, name, what)))
    return None


def check_span(strategy: Strategy, sequence: SequenceState, span: Any, spec: Spec) -> None:
    """Check the span from `schedule`: of this request, between `final` and `fed_end`, with rows for what it samples."""
    if flaw := _span_flaw(span, strategy, sequence, spec):
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


def _span_flaw(span: Any, strategy: Strategy, sequence: SequenceState, spec: Spec) -> str | None:
    """Return what is wrong with a span; None if nothing is."""
    if type(span) is not Span:
        return f"{short(span)}: it must be a Span, not a subclass"
    who, rows, wanted, storing = span.who, span.rows, span.wanted, span.storing
    if not (type(who) is Who and type(rows) is Rows and type(wanted) is Wanted and type(storing) is Storing):
        return f"{short(span)}: its parts must be of the classes Who, Rows, Wanted and Storing, not of subclasses"
    request, final, sampled, start = sequence.request, sequence.progress.final, wanted.sampled, rows.start
    if who is not request.who and (who.id, who.seq_id, who.seed) != (request.id, request.seq_id, request.seed):
        return "a span of another request: its id, seq_id and seed must be those of sequence.request"
    if type(who.params) is not SamplingParams or not _has_types(rows, wanted, storing):
        return wrong_field(who) or wrong_field(rows) or wrong_field(wanted) or wrong_field(storing)
    if not _are_ids(rows.tokens, spec):
        return f"tokens={short(rows.tokens)}: ids must be in [0, {spec.vocab_size})"
    if storing.joins and rows.grid is not request.grid and rows.grid != request.grid:
        return f"grid={short(rows.grid)}: a span with joins=True needs {request.grid!r}, the grid of the request"
    if rows.query_only or rows.final_rows or wanted.masks:
        found = f"query_only={short(rows.query_only)}, final_rows={short(rows.final_rows)} and {len(wanted.masks)} masks"
        return f"{found}: only the core may set them"
    plain = not rows.draft and rows.mode == "encode" and rows.soft is None
    if storing.keeps_window and not (plain and storing.joins and start == final):
        return f"keeps_window=True needs joins=True, draft=False, mode='encode', no soft tokens and start={final}"
    shift, stop = wanted.row_shift(spec.head_shift), rows.stop
    if start < final or not (rows.tokens or shift):  # with a shift, the row before can predict the first position
        return f"a span of {len(rows.tokens)} tokens from {short(start)}: it must feed one or more from {final} on"
    if rows.end < stop or (rows.end > request.limit and rows.end > strategy.fed_end(request)):
        fed_end = strategy.fed_end(request)
        return f"end={short(rows.end)}: it must lie between its last row's end {stop} and fed_end(request)={fed_end}"
    low, high = max(start, shift), stop + shift  # with a shift, no row predicts position 0
    if not sampled or not _ascend(sampled) or sampled[0] < low or sampled[-1] >= high:
        return f"sampled={short(sampled)}: it must hold one or more integers that ascend within [{low}, {high})"
    if len(wanted.draws) != len(sampled):
        return f"draws={short(wanted.draws)}: it must hold {len(sampled)} numbers, one for each sampled position"
    scored = len(wanted.scored_ids)
    if scored and scored not in range(0, strategy.sample_spec.scored * len(sampled) + 1, len(sampled)):
        return f"{scored} scored ids: equally many for each position, at most {strategy.sample_spec.scored}"
    return None


def sequence_after(before: SequenceState, hook: Literal["init", "commit", "forget"], progress: Any) -> SequenceState:
    """Return the sequence with the progress that a hook of its strategy returned.

    Raises:
        WrongAnswer: For another value, or one that changes a settled token.
    """
    strategy, limit, forgets = before.request.strategy, before.request.limit, hook == "forget"
    if type(progress) is not Progress:
        raise WrongAnswer(strategy, hook, f"{short(progress)}: it must be a Progress, not a subclass")
    after = before.with_progress(progress)
    if flaw := _progress_flaw(before.progress, after, 0 if forgets else before.progress.settled):
        raise WrongAnswer(strategy, hook, flaw)
    if hook == "commit" and before.steps > limit - len(before.request.prompt) and progress.settled < limit:
        # With more passes than tokens, every further pass must lower the measure.
        was, now = strategy.measure(before_forward(before)), strategy.measure(after)
        if not falls(was, now):
            words = f"a sequence of measure {short(now)} after {short(was)}: every forward pass must lower it"
            raise WrongAnswer(strategy, hook, words)
    return after


def _progress_flaw(before: Progress, after: SequenceState, least: int) -> str | None:
    """Return why the progress of a sequence is invalid, or None. At least `least` positions must be settled."""
    progress, limit = after.progress, after.request.limit
    window, final, settled = progress.window, progress.final, progress.settled
    if type(final) is not int or type(settled) is not int or final < 0 or not least <= settled <= limit:
        return (
            f"final={short(final)} and settled={short(settled)}: both must be integers, final at least 0 and "
            f"settled in [{least}, {limit}]"
        )
    if type(window) is not tuple:
        return f"window={short(window)}: it must be a tuple of Blocks"
    if type(progress.past) is not List or len(progress.past) < len(before.past):
        return f"past={short(progress.past)}: it must be the List sequence.progress.past, with blocks pushed to its front"
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


class UserCode:
    """A `with` block that calls the strategy or rule of a request in `step`.

    Every exception, including SystemExit, which would otherwise end a server, becomes a RequestFault. Only
    KeyboardInterrupt, which Ctrl-C sends, passes unchanged. `sequence` is None for a request that is still being checked;
    the fault then has no id and no position.
    """

    __slots__ = ("_sequence", "_step")

    def __init__(self, sequence: SequenceState | None, step: int) -> None:
        self._sequence, self._step = sequence, step

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None and not isinstance(error, KeyboardInterrupt):
            raise request_fault(self._sequence, self._step, error) from error


def request_fault(sequence: SequenceState | None, step: int, error: BaseException) -> RequestFault:
    """Return the fault of the request whose strategy or rule raised `error` in `step`."""
    if sequence is None:
        return RequestFault(-1, described(error))
    window = sequence.progress.window
    position = window[0].start if window else sequence.progress.final
    return RequestFault(sequence.request.id, f"step {step}, from position {position} on: {described(error)}")
