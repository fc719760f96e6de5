"""Calls of strategies and rules, checks of the values that strategies return, and helpers for the checks in `rule.py`.

An invalid value raises WrongAnswer, which ends only the request that uses the strategy or rule.

What is read in each step:

- Of a span: all fields that reach the device, each token id, sampled position, draw number, scored id and soft token
  included. One invalid value would fail on the device and end all requests of the batch.
- Of a `Progress`: types, the ends of the window's blocks and of blocks that are new in `past`, the number of
  probabilities per block, and the ids of newly settled tokens, also against the request's constraint.

What is not read: the tokens of positions that are not settled (they are checked when a span feeds them), the values
of probabilities, `given`, `opened` and `extra`, and whether tokens that have settled stay the same. Reading every position
would take 170 us per request and step, so only the laws of `dlstep.testing` do that. If a rule defines
`commit`, `rule.check_committed` reads every token of its blocks.
"""

from array import array
from dataclasses import replace
from itertools import islice
from sys import float_info
from types import NoneType
from typing import Any, Literal, cast

from rpds import List

from .block import Block, Grid, Replacement
from .checks import short, wrong_field
from .constraint import Constraint, RequestConstraint, TokenMask
from .errors import DlstepError, Refusal, RequestFault, WrongAnswer, described
from .plan import CARRIES, MODES, MOST, Merge, Rows, SampleSpec, SoftTokens, Span, Storing, Wanted
from .request import Request, SamplingParams, Who
from .sequence import Progress, SequenceState, Strategy
from .spec import Ids, Positions, Spec

GRID_LIMITS = "origin must be in [0, 2**32) and size in [1, 2**32)"


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


def sample_spec_of(strategy: Strategy) -> SampleSpec:
    """Return the statistics that a strategy needs. Raises WrongAnswer for a value of another class."""
    spec: object = strategy.sample_spec
    if type(spec) is not SampleSpec:
        raise WrongAnswer(strategy, "sample_spec", f"{short(spec)}: it must be a SampleSpec, not a subclass")
    return spec


def refusal_of_values(strategy: Strategy, request: Request) -> Refusal | None:
    """Return a refusal if a value that a strategy returns for a request, or one of its fields, has a wrong type."""
    stated: dict[str, type] = {"grid": Grid, "rows_at_once": int, "fed_end": int, "sample_spec": SampleSpec}
    if strategy.certain_from is not None:
        stated["certain_from"] = float
    for name, kind in stated.items():
        found = getattr(strategy, name)
        value = found(request) if callable(found) else found
        if type(value) is not kind or (kind not in (int, float) and wrong_field(value) is not None):
            what = f"{short(value)}: it must be a {kind.__name__}, not a subclass, with fields of the declared types"
        elif kind is Grid and not _fits(cast(Grid, value)):
            what = f"{short(value)}: {GRID_LIMITS}"
        else:
            continue
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
        and type(rows.tokens) is type(rows.positions) is type(wanted.sampled) is type(wanted.masks) is tuple
        and type(rows.draft) is type(storing.joins) is type(storing.keeps_window) is bool
        and type(rows.grid) is Grid
        and rows.mode in MODES
        and type(rows.soft) in (SoftTokens, NoneType)
        and rows.carry in CARRIES
        and type(wanted.draws) is type(wanted.scored_ids) is tuple
        and type(wanted.penalty) in (float, int)
        and type(wanted.shift) in (int, NoneType)
    )


def _fit_arrays(numbers: tuple[Any, ...], code: str = "I") -> bool:
    """Return whether all numbers convert to unsigned 32-bit integers, or to another `code`. Costs 1.3 us for 128 numbers."""
    try:
        array(code, numbers)
    except (TypeError, OverflowError):
        return False
    return True


def _are_integers(numbers: tuple[Any, ...], others: tuple[Any, ...] = ()) -> bool:
    """Return whether all numbers are integers whose sum fits 64 bits. Costs 0.7 us for 128 numbers, half of `_fit_arrays`."""
    # A number beyond 64 bits would fail the whole batch; numbers that cancel in the sum are not detected.
    try:
        total = sum(others, sum(numbers))
    except TypeError:
        return False
    return type(total) is int and -(1 << 63) <= total < 1 << 63


def _are_numbers(weights: tuple[Any, ...]) -> bool:
    """Return whether all weights convert to floating-point numbers. Costs a quarter of `_fit_arrays`."""
    try:
        return isinstance(sum(weights, 0.0), float)
    except (TypeError, OverflowError):
        return False


def _ascend(numbers: Positions) -> bool:
    """Return whether one or more integers ascend; some repeated numbers pass."""
    # A repeated number affects only its own request, so a cheap, incomplete check is enough.
    return sorted(numbers) == [*numbers] and numbers[-1] - numbers[0] >= len(numbers) - 1


def _are_ids(tokens: tuple[Any, ...], spec: Spec) -> bool:
    """Return whether a device can embed all tokens. Costs 3 us for 128 tokens."""
    if not _fit_arrays(tokens):
        return False
    largest = max(tokens) if tokens else 0
    return largest < spec.vocab_size or largest <= (spec.mask_id or 0)


def _fits(grid: Grid) -> bool:
    """Return whether a device can compute the groups of a grid."""
    return _fit_arrays((grid.origin, grid.size)) and grid.size > 0


def _rare_flaw(span: Span, strategy: Strategy, sequence: SequenceState, spec: Spec) -> str | None:
    """Return what is wrong with the parts of a span that most spans leave out; None if nothing is."""
    rows, wanted, own = span.rows, span.wanted, sequence.request.grid
    if span.storing.joins and rows.grid != own:
        return f"grid={short(rows.grid)}: a span with joins=True needs {own!r}, the grid of the request"
    if not _fits(rows.grid):
        return f"grid={short(rows.grid)}: {GRID_LIMITS}"
    if (rows.carry != "none" or rows.mode != "encode") and (not strategy.carries or spec.mask_id is not None):
        found = f"carry={rows.carry!r} and mode={rows.mode!r}"
        return f"{found}: only a strategy with carries=True may set them, for a model without a mask token"
    if spec.canvas_length is not None and (flaw := _canvas_flaw(span, spec.canvas_length)):
        return flaw
    if wanted.shift not in (None, 0, 1) or not -float_info.max <= wanted.penalty <= float_info.max:
        return f"shift={short(wanted.shift)} and penalty={short(wanted.penalty)}: shift must be 0, 1 or None, penalty finite"
    if rows.positions and (flaw := _positions_flaw(span, spec)):
        return flaw
    if wanted.masks and (
        sequence.request.constraint or [_is_mask(mask, spec) for mask in wanted.masks] != [True] * len(wanted.sampled)
    ):
        return f"{len(wanted.masks)} masks: give one from `all_but` per sampled position, and none under a constraint"
    return _scored_flaw(wanted, sample_spec_of(strategy).scored) if wanted.scored_ids else None


def _is_mask(mask: Any, spec: Spec) -> bool:
    """Return whether a device can look up the ids of a mask."""
    return (
        type(mask) is TokenMask
        and type(mask.id) is type(mask.classes) is int
        and type(mask.constraint) is Constraint
        and len(mask.constraint.class_of) == spec.vocab_size
    )


def _canvas_flaw(span: Span, length: int) -> str | None:
    """Return why a network that denoises canvases of this length cannot run a span; None if it can."""
    rows, temperature = span.rows, span.who.params.temperature
    fed, sampled = len(rows.tokens), len(span.wanted.sampled)
    alone = rows.mode == "denoise" and rows.carry != "none" and rows.soft is None and not span.storing.joins
    if alone and fed == sampled == length and temperature > 0.0:
        return None
    return (
        f"{fed} tokens, {sampled} of them sampled, mode={rows.mode!r}, carry={rows.carry!r}, temperature={temperature}: the "
        f"network denoises whole canvases of {length} sampled positions, with a carry and a temperature, without soft tokens, "
        "and joins=False"
    )


def _positions_flaw(span: Span, spec: Spec) -> str | None:
    """Return what is wrong with the positions of rows; None if nothing is."""
    rows, wanted = span.rows, span.wanted
    if len(rows.positions) != len(rows.tokens) or not _fit_arrays(rows.positions) or max(rows.positions) >= rows.stop:
        return f"positions={short(rows.positions)}: each of the {len(rows.tokens)} rows needs one, in [0, {rows.stop})"
    if rows.soft or wanted.penalty or span.storing.keeps_window:
        return "rows with positions take no soft tokens, no penalty and no keeps_window=True"
    shift = wanted.row_shift(spec.head_shift)
    if not {*rows.positions}.issuperset([position - shift for position in wanted.sampled]):
        return f"sampled={short(wanted.sampled)}: no row predicts some of these positions"
    return None


def _scored_flaw(wanted: Wanted, most: int) -> str | None:
    """Return what is wrong with the scored ids of a span; None if nothing is."""
    count, ids = len(wanted.sampled), wanted.scored_ids
    if len(ids) not in range(0, most * count + 1, count or 1):
        return f"{len(ids)} scored ids: there must be equally many for each position, at most {most}"
    if not _fit_arrays(ids, "i"):  # a device reports probability 0 for ids that no token has
        return f"scored_ids={short(ids)}: it must hold integers of 32 bits, -1 for none"
    return None


def _soft_flaw(soft: SoftTokens, rows: Rows, sampled: Positions, spec: Spec) -> str | None:
    """Return what is wrong with the soft tokens of a span; None if nothing is."""
    at, ids, weights = soft.positions, soft.ids, soft.probabilities
    if not (type(at) is type(ids) is type(weights) is tuple and type(soft.merge) is Merge):
        return wrong_field(soft)
    ascending = at == sampled[: len(at)] or (_are_integers(at) and _ascend(at))  # the first saves 1 us
    if not at or not ascending or at[0] < rows.start or at[-1] >= rows.stop:
        return f"soft positions={short(at)}: it must hold one or more integers that ascend within [{rows.start}, {rows.stop})"
    if not _are_ids(ids, spec):
        return f"soft ids={short(ids)}: ids must be in [0, {spec.vocab_size})"
    if not ids or len(ids) % len(at) or len(ids) != len(weights) or not _are_numbers(weights):
        return f"soft probabilities={short(weights)}: each id needs a number, each position equally many ids"
    return None


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
    if rows.query_only or rows.final_rows:
        found = f"query_only={short(rows.query_only)} and final_rows={short(rows.final_rows)}"
        return f"{found}: only the core may set them"
    if rows.soft is not None and (flaw := _soft_flaw(rows.soft, rows, sampled, spec)):
        return flaw
    usual = rows.mode == "encode" and rows.carry == "none" and rows.grid is request.grid and wanted.shift is None
    usual = usual and not rows.positions and not wanted.masks and spec.canvas_length is None
    if (not usual or wanted.penalty or wanted.scored_ids) and (flaw := _rare_flaw(span, strategy, sequence, spec)):
        return flaw
    plain = rows.mode == "encode" and rows.soft is None and not rows.draft
    if storing.keeps_window and not (plain and storing.joins and start == final):
        return f"keeps_window=True needs joins=True, draft=False, mode='encode', no soft tokens and start={final}"
    shift, stop = wanted.row_shift(spec.head_shift), rows.stop
    if start < final or not (rows.tokens or shift):  # with a shift, the row before can predict the first position
        return f"a span of {len(rows.tokens)} tokens from {short(start)}: it must feed one or more from {final} on"
    if rows.end < stop or (rows.end > request.limit and rows.end > strategy.fed_end(request)):
        fed_end = strategy.fed_end(request)
        return f"end={short(rows.end)}: it must lie between its last row's end {stop} and fed_end(request)={fed_end}"
    low, high = max(start, shift), stop + shift  # with a shift, no row predicts position 0
    numbers_are_right = sampled and _are_integers(sampled, wanted.draws)
    if not numbers_are_right or not _ascend(sampled) or sampled[0] < low or sampled[-1] >= high:
        return (
            f"sampled={short(sampled)} and draws={short(wanted.draws)}: sampled must hold one or more integers that ascend "
            f"within [{low}, {high}), draws as many integers of 64 bits"
        )
    if len(wanted.draws) != len(sampled):
        return f"draws={short(wanted.draws)}: it must hold {len(sampled)} numbers, one for each sampled position"
    return None


def sequence_after(before: SequenceState, hook: Literal["init", "commit", "forget"], progress: Any) -> SequenceState:
    """Return the sequence with the progress that a hook of its strategy returned.

    Raises:
        WrongAnswer: For another value, or one that changes a settled token.
    """
    strategy, limit, settled = before.request.strategy, before.request.limit, before.progress.settled
    if type(progress) is not Progress:
        raise WrongAnswer(strategy, hook, f"{short(progress)}: it must be a Progress, not a subclass")
    least, most = (0, settled) if hook == "forget" else (settled, limit)  # `forget` settles nothing
    if flaw := _progress_flaw(before.progress, progress, least, most):
        raise WrongAnswer(strategy, hook, flaw)
    after = replace(before, progress=progress)
    if hook == "commit" and before.steps > limit - before.request.start and progress.settled < limit:
        # With more passes than tokens, every further pass must lower the measure.
        was, now = strategy.measure(before_forward(before)), strategy.measure(after)
        if not falls(was, now):
            words = f"a sequence of measure {short(now)} after {short(was)}: every forward pass must lower it"
            raise WrongAnswer(strategy, hook, words)
    return after


def _progress_flaw(before: Progress, progress: Progress, least: int, most: int) -> str | None:
    """Return why `progress`, which follows `before`, is invalid, or None. Its `settled` must be in `[least, most]`."""
    window, final, settled = progress.window, progress.final, progress.settled
    if type(final) is not int or type(settled) is not int or not 0 <= final <= settled or not least <= settled <= most:
        return (
            f"final={short(final)} and settled={short(settled)}: both must be integers, final in [0, settled] and "
            f"settled in [{least}, {most}]"
        )
    if type(window) is not tuple:
        return f"window={short(window)}: it must be a tuple of Blocks"
    replaced = progress.replaced
    if type(replaced) is not tuple or not all(type(each) is Replacement for each in replaced):
        return f"replaced={short(replaced)}: it must be a tuple of Replacements"
    if not ascending([each.position for each in replaced], least):
        return f"replaced={short(replaced)}: the positions must be ascending, none below settled={least}"
    start, blocks, known = None, window, len(before.past)
    if type(progress.past) is not List or (count := len(progress.past)) < known:
        return f"past={short(progress.past)}: it must be the List sequence.progress.past, with blocks pushed to its front"
    if count > known:
        blocks = (*[*islice(progress.past, count - known)][::-1], *window)
    for block in blocks:
        if type(block) is not Block or start not in (None, block.start):
            return f"window={short(blocks)}: it must hold Blocks, not of a subclass, that follow one another"
        size, probabilities = len(block.tokens), block.probabilities
        if type(probabilities) is not tuple or len(probabilities) != size:
            return f"probabilities={short(probabilities)}: a block of {size} tokens needs a tuple of as many"
        if block.masked and block.masked[0] < settled:
            return f"settled={settled}, but masked positions lie before it"
        start = block.start + size
    return None


def check_settled(sequence: SequenceState, since: int, tokens: Ids, spec: Spec) -> None:
    """Raise WrongAnswer unless `tokens` has one valid id for each position settled from `since` on."""
    strategy, settled = sequence.request.strategy, sequence.progress.settled
    if len(tokens) != settled - since:
        flaw = f"settled={settled}, but no block holds these positions"
    elif _fit_arrays(tokens) and (max(tokens) < spec.vocab_size or sample_spec_of(strategy).all_ids):
        return
    else:
        flaw = f"settled tokens {short(tokens)}: ids must be in [0, {spec.vocab_size})"
    raise WrongAnswer(strategy, "commit" if sequence.steps else "init", flaw)


def state_after(sequence: SequenceState, constraint: RequestConstraint, tokens: Ids) -> int:
    """Return the state of a constraint after `tokens`, which have settled. Raises WrongAnswer if it forbids one."""
    try:
        return constraint.run(sequence.stop_state.state, tokens)
    except DlstepError as error:
        hook = "commit" if sequence.steps else "init"
        raise WrongAnswer(sequence.request.strategy, hook, f"settled tokens {short(tokens)}: {error}") from None


def request_fault(sequence: SequenceState | None, step: int, error: BaseException) -> RequestFault:
    """Return the fault of the request whose strategy or rule raised `error` in `step`.

    Callers of user code catch BaseException, because SystemExit would otherwise end a server. Only KeyboardInterrupt,
    which Ctrl-C sends, is raised again here. `sequence` is None for a request that is still being
    checked; the fault then has no id and no position.
    """
    if isinstance(error, KeyboardInterrupt):
        raise error
    if sequence is None:
        return RequestFault(-1, described(error))
    window = sequence.progress.window
    position = window[0].start if window else sequence.progress.final
    return RequestFault(sequence.request.id, f"step {step}, from position {position} on: {described(error)}")
