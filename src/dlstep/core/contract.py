"""Checks of the return values of user-written strategies and rules. Each check raises WrongAnswer.

The checks verify the properties that the core and the driver rely on, so a wrong return value ends
its own request here instead of failing a forward pass that other requests share. The cost of a
check is linear in the size of the returned value.
"""

from dataclasses import replace
from functools import partial
from operator import attrgetter, lt
from typing import TYPE_CHECKING, Any, cast

from .block import Block, Grid
from .checks import short, wrong_field
from .faults import WrongAnswer
from .filtering import passes_left
from .plan import MOST, SampleSpec, Span, SpanSamples
from .request import Request
from .sequence import SequenceState, Strategy
from .spec import Spec

if TYPE_CHECKING:
    from .rule import Rule


BLOCK = "whose fields are whole numbers, tuples of them, and probabilities from 0 to 1"
MOST_IDS = 1 << 31  # devices store ids in 32 bits; ids past the vocabulary have probability 0


def whole(numbers: Any) -> bool:
    """Return whether `numbers` is a tuple or a list of integers."""
    return type(numbers) in (tuple, list) and all(type(number) is int for number in numbers)


def ascending(numbers: Any) -> bool:
    """Return whether `numbers` is a tuple or a list of strictly increasing integers."""
    return whole(numbers) and all(map(lt, numbers, numbers[1:]))


def check_chosen(rule: "Rule", chosen: Any, block: Block, begin: int, must: bool) -> None:
    """Check the rows from `chosen`: ascending, masked in the block, at least one if `must`.

    Args:
        rule: The rule that chose them.
        chosen: What it returned.
        block: The block.
        begin: First row of the block.
        must: Whether the rule had to unmask a position.

    Raises:
        WrongAnswer: If the rows break this contract.
    """
    last = begin + len(block.masked) - 1
    if not ascending(chosen) or (chosen and not begin <= chosen[0] <= chosen[-1] <= last):
        what = f"{short(chosen)}: it must be a list of ascending rows from {begin} to {last}"
        raise WrongAnswer(rule, "chosen", f"{what}{_wrong_with(chosen, block, begin)}")
    if must and not chosen:
        raise WrongAnswer(rule, "chosen", "no row although must is true: it must unmask at least one, or decoding never ends")


def _wrong_with(chosen: Any, block: Block, begin: int) -> str:
    """Return a hint at what is wrong with the rows from `chosen`; empty if nothing is known."""
    if type(chosen) not in (tuple, list):
        return f", and this is a {type(chosen).__name__}"
    if (other := next((row for row in chosen if type(row) is not int), None)) is not None:
        return f", and {short(other)} is a {type(other).__name__}: convert each row by int()"
    if set(chosen) <= set(block.masked):
        return f", and these are positions: the row of block.masked[i] is begin + i, begin is {begin}"
    return "" if ascending(chosen) else ", and these do not ascend: return sorted(set(rows))"


def check_sampled(rule: "Rule", sampled: Any, block: Block, limit: int) -> None:
    """Check the positions from `sampled`: ascending, at least one, no given token.

    Args:
        rule: The rule that returned them.
        sampled: What it returned.
        block: The block.
        limit: First position past the answer.

    Raises:
        WrongAnswer: If the positions break this contract.
    """
    if type(sampled) is not tuple or not sampled or not ascending(sampled) or not _may_sample(block, limit, sampled):
        what = f"{short(cast(object, sampled))}: it must be a tuple of ascending positions that the block samples, at least one"
        raise WrongAnswer(rule, "sampled", what)


def _may_sample(block: Block, limit: int, sampled: Any) -> bool:
    """Return whether a forward pass may sample every position of `sampled` in the block."""
    return set(block.sampled(limit)).issuperset(sampled)


def check_block(
    rule: "Rule", sequence: SequenceState, before: Block, after: Any, rows: SpanSamples, must: bool, spec: Spec
) -> None:
    """Check the block that `rule.commit` returned: same positions and given tokens as before, lower measure if `must`.

    Args:
        rule: The rule that returned the block.
        sequence: The sequence, whose accounting already includes this forward pass.
        before: The block before the forward pass.
        after: The returned value.
        rows: Samples of the span.
        must: Whether the measure of the block had to decrease.
        spec: Facts of the model.

    Raises:
        WrongAnswer: If the block breaks this contract.
    """
    wrong = partial(WrongAnswer, rule, "commit")
    if not _is_block(after, type(before)):
        raise wrong(f"{short(after)}: it must be a Block (not a subclass) {BLOCK}")
    _check_cells(rule, sequence, before, after, rows, spec)
    if must and (after.masked or rule.remasks):
        # A rule that remasks can unmask positions in every forward pass and still cycle forever.
        was, now = rule.measure(_before_forward(sequence), before), rule.measure(sequence, after)
        if sequence.request_spec.constraint is not None and whole((was, now)):
            was = passes_left(sequence, before, was, remasks=rule.remasks)
            now = passes_left(sequence, after, now, remasks=rule.remasks)
        over = not after.masked and rule.finished(after)
        if not over and not _falls(was, now):
            raise wrong(f"a block of measure {short(now)} after {short(was)}: it must fall when must is true")


def _check_cells(rule: "Rule", sequence: SequenceState, before: Block, after: Block, rows: SpanSamples, spec: Spec) -> None:
    """Check that layouts are equal, and that every token is given, masked or was sampled."""
    wrong = partial(WrongAnswer, rule, "commit")
    size, start = len(before.tokens), before.start
    layout = (after.start, len(after.tokens), len(after.probabilities), after.given, after.opened)
    if layout != (start, size, size, before.given, before.opened):
        raise wrong("a block of other positions or with other given tokens")
    free = set(before.sampled(sequence.request_spec.limit))
    if not ascending(after.masked) or not free.issuperset(after.masked):
        raise wrong(f"masked={short(after.masked)}: masked positions must ascend, and none may be a given one")
    if not rule.remasks and not set(before.masked).issuperset(after.masked):
        raise wrong("a block with new masks, but `remasks` of the rule is False")
    masked, sampled = set(after.masked), {*rows.tokens, *rows.best_ids, *before.tokens} - {spec.mask_id}
    for position, old, new in zip(range(start, after.end), before.tokens, after.tokens, strict=True):
        right = new == old if position not in free else new == spec.mask_id if position in masked else new in sampled
        if not right:
            raise wrong(f"token {short(new)} at position {position}: it is given, masked, or holds a token that was sampled")


def unusable(strategy: Strategy, request: Request) -> str | None:
    """Return an error message if a value that a strategy returns for a request, or one of its fields, has a wrong type."""
    stated: dict[str, type] = {"grid": Grid, "atom": int, "reach": int, "sample_spec": SampleSpec}
    for name, kind in stated.items():
        found = attrgetter(name)(strategy)
        value = found(request) if callable(found) else found
        if type(value) is not kind or (kind is not int and wrong_field(value) is not None):
            what = f"{short(value)}: it must be a {kind.__name__}, not a subclass, with fields of the declared types"
            return str(WrongAnswer(strategy, name, what))
    return None


def check_span(strategy: Strategy, sequence: SequenceState, span: Any, spec: Spec) -> None:
    """Check the span from `schedule`: of this request, with positions and ids a driver can run."""
    wrong = partial(WrongAnswer, strategy, "schedule")
    if type(span) is not Span:
        raise wrong(f"{short(span)}: it must be a Span, not a subclass")
    if (words := wrong_field(span)) is not None:
        raise wrong(words)
    if span.shift not in (None, 0, 1):
        raise wrong(f"shift={short(span.shift)}: it must be 0, 1 or None")
    shift = span.row_shift(spec.head_shift)
    _check_layout(strategy, sequence, span, shift)
    _check_sampled_rows(strategy, span, shift)
    if not all(0 <= token < spec.vocab_size or token == spec.mask_id for token in span.tokens):
        raise wrong(f"tokens={short(span.tokens)}: ids must be in [0, {spec.vocab_size})")
    if not all(-1 <= token < MOST_IDS for token in span.scored_ids):
        raise wrong(f"scored_ids={short(span.scored_ids)}: ids must be -1 or more")


def _check_layout(strategy: Strategy, sequence: SequenceState, span: Span, shift: int) -> None:
    """Check the request, and that all rows lie between `final` and `reach`.

    A span that joins final rows must have the grid of the request. With a shift it may feed no tokens,
    because the row before it can predict its first position.
    """
    wrong = partial(WrongAnswer, strategy, "schedule")
    request_spec, request = sequence.request_spec, sequence.request_spec.request
    known = (span.id, span.seq_id, span.params, span.seed) == (request.id, request.seq_id, request.params, request.seed)
    if not known:
        raise wrong("a span of another request: its id, seq_id, params and seed must be those of sequence.request")
    if span.joins and span.grid != request_spec.grid:
        raise wrong(f"grid={short(span.grid)}: a span with joins=True needs {request_spec.grid!r}, the grid of the request")
    if span.query_only or span.final_rows:
        raise wrong(f"query_only={short(span.query_only)} and final_rows={short(span.final_rows)}: only the core may set them")
    if span.keeps_window and (span.draft or not (span.joins and span.mode == "encode" and span.soft is None)):
        raise wrong(
            "keeps_window=True for rows that are not stored like final ones: it needs joins=True, draft=False, mode='encode' "
            "and no soft tokens"
        )
    if span.start < sequence.final or not (span.tokens or shift):
        raise wrong(
            f"a span of {len(span.tokens)} tokens from {short(span.start)}: it must feed one or more from {sequence.final} on"
        )
    stop, reach = span.start + len(span.tokens), strategy.reach(request)
    if not stop <= span.end <= reach:
        raise wrong(f"end={short(span.end)}: it must lie between its last row's end {stop} and reach(request)={reach}")


def _check_sampled_rows(strategy: Strategy, span: Span, shift: int) -> None:
    """Check the sampled positions, and the draws and ids that go with them."""
    wrong, stop = partial(WrongAnswer, strategy, "schedule"), span.stop + shift
    if not span.sampled or not ascending(span.sampled) or not span.start <= span.sampled[0] <= span.sampled[-1] < stop:
        raise wrong(f"sampled={short(span.sampled)}: positions must ascend within [{span.start}, {stop}), at least one")
    if len(span.draws) != len(span.sampled) or min(span.draws) < 0:
        raise wrong(f"draws={short(span.draws)}: it must hold {len(span.sampled)} numbers from 0 on, one per sampled position")
    if len(span.scored_ids) > strategy.sample_spec.scored * len(span.sampled) or len(span.scored_ids) % len(span.sampled):
        raise wrong(
            f"{len(span.scored_ids)} scored ids: equally many for each sampled position, at most {strategy.sample_spec.scored}"
        )


def check_sequence(strategy: Strategy, hook: str, before: SequenceState, after: Any) -> None:
    """Check the sequence from a strategy: it may change only its own fields, and no settled token."""
    wrong = partial(WrongAnswer, strategy, hook)
    if type(after) is not SequenceState:
        raise wrong(f"{short(after)}: it must be a SequenceState, not a subclass")
    forgets, limit = hook == "forget", before.request_spec.limit
    if after.request_spec is not before.request_spec or (after.accounting is not before.accounting and not forgets):
        raise wrong("a sequence of another request, or with other accounting, which only the core may change")
    _check_progress(strategy, hook, before, after, 0 if forgets else before.settled)
    if hook == "commit" and after.accounting.steps > limit - len(after.request_spec.request.prompt) and after.settled < limit:
        # With more passes than tokens, every further pass must lower the measure.
        was, now = strategy.measure(_before_forward(before)), strategy.measure(after)
        if not _falls(was, now):
            raise wrong(f"a sequence of measure {short(now)} after {short(was)}: every forward pass must lower it")


def _check_progress(strategy: Strategy, hook: str, before: SequenceState, after: SequenceState, least: int) -> None:
    """Check the blocks of `after`: at least `least` positions are settled, and none of them is masked."""
    wrong, limit = partial(WrongAnswer, strategy, hook), before.request_spec.limit
    if not _blocks(after.window):
        raise wrong(f"window={short(after.window)}: it must be a tuple of Blocks (not of a subclass) {BLOCK}")
    if not all(old.end == new.start for old, new in zip(after.window, after.window[1:], strict=False)):
        raise wrong("a window whose blocks do not follow one another")
    if not whole((after.final, after.settled)) or after.final < 0 or not least <= after.settled <= limit:
        raise wrong(
            f"final={short(after.final)} and settled={short(after.settled)}: both must be integers, final at least 0 and "
            f"settled in [{least}, {limit}]"
        )
    if any(masked < after.settled for block in after.window for masked in block.masked[:1]):
        raise wrong(f"settled={after.settled}, but masked positions lie before it")
    if len(after.tokens(before.settled, after.settled)) != max(0, after.settled - before.settled):
        raise wrong(f"settled={after.settled}, but no block holds these positions")


def _falls(was: Any, now: Any) -> bool:
    """Return whether both are integers, and the second is smaller and not negative."""
    return whole((was, now)) and 0 <= now < was


def _blocks(window: Any) -> bool:
    """Return whether `window` is a tuple of blocks."""
    return type(window) is tuple and all(map(_is_block, cast(tuple[object, ...], window)))


def _is_block(block: Any, kind: type[Block] = Block) -> bool:
    """Return whether `block` is a `Block` or a `kind`, not a subclass, and its fields have the declared types."""
    if type(block) not in (Block, kind) or type(block.tokens) is not tuple or type(block.masked) is not tuple:
        return False
    known = cast(Block, block)
    probable = [type(p) in (float, int) and 0 <= p <= MOST for p in known.probabilities]
    return whole((*known.tokens, *known.masked, known.start, known.given, known.opened)) and all(probable)


def _before_forward(sequence: SequenceState) -> SequenceState:
    """Return the sequence without the pass that was just counted: a measure may depend on the count."""
    return sequence.with_accounting(replace(sequence.accounting, steps=sequence.accounting.steps - 1))
