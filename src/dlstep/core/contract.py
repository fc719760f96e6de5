"""Checks of the return values of user-written strategies and rules. Each check raises WrongAnswer.

The checks verify the properties that the core and the driver rely on, so a wrong return value ends its own request here instead
of failing a forward pass that other requests share. The cost of a check is linear in the size of the returned value.
"""

from dataclasses import replace
from functools import partial
from operator import lt
from typing import TYPE_CHECKING, Any, cast

from .block import Block
from .checks import short
from .faults import WrongAnswer
from .plan import Rows, Span
from .sequence import Sequence, Strategy
from .spec import Spec

if TYPE_CHECKING:
    from .rule import Rule


MOST_IDS = 1 << 31  # devices store ids in 32 bits; ids past the vocabulary have probability 0


def whole(numbers: Any) -> bool:
    """Return whether `numbers` is a tuple or a list of integers."""
    return type(numbers) in (tuple, list) and all(type(number) is int for number in numbers)


def ascending(numbers: Any) -> bool:
    """Return whether `numbers` is a tuple or a list of strictly increasing integers."""
    return whole(numbers) and all(map(lt, numbers, numbers[1:]))


def check_chosen(rule: "Rule", chosen: Any, block: Block, begin: int, must: bool) -> None:
    """Check the rows from `chosen`: ascending, masked in the block, at least one if `must`."""
    last = begin + len(block.undecided) - 1
    if not ascending(chosen) or (chosen and not begin <= chosen[0] <= chosen[-1] <= last):
        raise WrongAnswer(rule, "chosen", f"{short(chosen)}: it must be a list of ascending rows from {begin} to {last}")
    if must and not chosen:
        raise WrongAnswer(rule, "chosen", "no row although must is true: it must take at least one, or decoding never ends")


def check_wanted(rule: "Rule", wanted: Any, block: Block, limit: int) -> None:
    """Check the positions from `wanted`: ascending, at least one, no given token."""
    if type(wanted) is not tuple or not wanted or not ascending(wanted) or not _sampled(block, limit, wanted):
        what = f"{short(cast(object, wanted))}: it must be a tuple of ascending positions that the block samples, at least one"
        raise WrongAnswer(rule, "wanted", what)


def _sampled(block: Block, limit: int, wanted: Any) -> bool:
    """Return whether a forward pass may sample every position of `wanted` in the block."""
    return set(block.sampled(limit)).issuperset(wanted)


def check_block(rule: "Rule", sequence: Sequence, before: Block, after: Any, rows: Rows, must: bool, spec: Spec) -> None:
    """Check the block from `decided`: same layout as `before`, and a lower measure if `must`."""
    wrong = partial(WrongAnswer, rule, "decided")
    if not isinstance(after, Block):
        raise wrong(f"{short(after)}: it must be a Block")
    _check_cells(rule, sequence, before, after, rows, spec)
    if must and (after.undecided or rule.revokes):
        # A rule that remasks can unmask positions in every forward pass and still cycle forever.
        was, now = rule.measure(_before_forward(sequence), before), rule.measure(sequence, after)
        over = not after.undecided and rule.finished(after)
        if not over and not _falls(was, now):
            raise wrong(f"a block of measure {short(now)} after {short(was)}: it must fall when must is true")


def _check_cells(rule: "Rule", sequence: Sequence, before: Block, after: Block, rows: Rows, spec: Spec) -> None:
    """Check that layouts are equal, and that every token is given, masked or was sampled."""
    wrong = partial(WrongAnswer, rule, "decided")
    size, start = len(before.tokens), before.start
    layout = (after.start, len(after.tokens), len(after.probabilities), after.given, after.opened)
    if layout != (start, size, size, before.given, before.opened):
        raise wrong("a block of other positions or with other given tokens")
    free = set(before.sampled(sequence.goal.limit))
    if not ascending(after.undecided) or not free.issuperset(after.undecided):
        raise wrong(f"undecided={short(after.undecided)}: masked positions must ascend and be none that were given")
    if not rule.revokes and not set(before.undecided).issuperset(after.undecided):
        raise wrong("a block with new masks, but the rule does not say that it revokes")
    undecided, sampled = set(after.undecided), {*rows.tokens, *rows.best_ids, *before.tokens} - {spec.mask_id}
    for position, old, new in zip(range(start, after.end), before.tokens, after.tokens, strict=True):
        right = new == old if position not in free else new == spec.mask_id if position in undecided else new in sampled
        if not right:
            raise wrong(f"token {short(new)} at position {position}: it is given, masked, or holds a token that was sampled")


def check_span(strategy: Strategy, sequence: Sequence, span: Any, spec: Spec) -> None:
    """Check the span from `schedule`: of this request, with positions and ids a driver can run."""
    wrong = partial(WrongAnswer, strategy, "schedule")
    if not isinstance(span, Span):
        raise wrong(f"{short(span)}: it must be a Span")
    _check_layout(strategy, sequence, span)
    _check_wanted_rows(strategy, span)
    if not all(0 <= token < spec.vocab_size or token == spec.mask_id for token in span.tokens):
        raise wrong(f"tokens={short(span.tokens)}: ids must be in [0, {spec.vocab_size})")
    if not all(-1 <= token < MOST_IDS for token in span.named):
        raise wrong(f"named={short(span.named)}: ids must be -1 or more")


def _check_layout(strategy: Strategy, sequence: Sequence, span: Span) -> None:
    """Check the types, the request, and that all rows lie between `final` and `reach`."""
    wrong = partial(WrongAnswer, strategy, "schedule")
    for name, numbers in (("tokens", span.tokens), ("wanted", span.wanted), ("draws", span.draws), ("named", span.named)):
        if type(numbers) is not tuple or not whole(numbers):
            raise wrong(f"{name}={short(numbers)}: it must be a tuple of whole numbers")
    goal, request = sequence.goal, sequence.goal.request
    known = (span.id, span.arrival, span.params, span.seed) == (request.id, request.arrival, request.params, request.seed)
    if not known or span.grid != goal.grid or span.query_only or span.final_rows:
        raise wrong("a span of another request or another grid, or with query_only or final_rows, which are the core's to set")
    if type(span.start) is not int or span.start < sequence.final or not span.tokens:
        raise wrong(f"a span of {len(span.tokens)} tokens from {short(span.start)}: it must feed some from {sequence.final} on")
    stop, reach = span.start + len(span.tokens), strategy.reach(request)
    if type(span.end) is not int or not stop <= span.end <= reach:
        raise wrong(f"end={short(span.end)}: it must lie between its last row's end {stop} and reach(request)={reach}")


def _check_wanted_rows(strategy: Strategy, span: Span) -> None:
    """Check the wanted positions, and the draws and ids that go with them."""
    wrong, stop = partial(WrongAnswer, strategy, "schedule"), span.stop
    if not span.wanted or not ascending(span.wanted) or not span.start <= span.wanted[0] <= span.wanted[-1] < stop:
        raise wrong(f"wanted={short(span.wanted)}: positions must ascend within [{span.start}, {stop}), at least one")
    if len(span.draws) != len(span.wanted) or min(span.draws) < 0:
        raise wrong(f"draws={short(span.draws)}: one number for each of {len(span.wanted)} wanted positions, from 0 on")
    if len(span.named) > strategy.wants.named * len(span.wanted) or len(span.named) % len(span.wanted):
        raise wrong(f"{len(span.named)} named ids: equally many for each wanted position, at most {strategy.wants.named}")


def check_sequence(strategy: Strategy, hook: str, before: Sequence, after: Any) -> None:
    """Check the sequence from a strategy: only its own fields differ, settled tokens do not."""
    wrong = partial(WrongAnswer, strategy, hook)
    if not isinstance(after, Sequence):
        raise wrong(f"{short(after)}: it must be a Sequence")
    forgets, limit = hook == "forget", before.goal.limit
    if after.goal is not before.goal or (after.ledger is not before.ledger and not forgets):
        raise wrong("a sequence of another request, or another ledger, which is the core's to write")
    _check_progress(strategy, hook, before, after, 0 if forgets else before.settled)
    if hook == "commit" and after.ledger.steps > limit - len(after.goal.request.prompt) and after.settled < limit:
        # With more passes than tokens, every further pass must lower the measure.
        was, now = strategy.measure(_before_forward(before)), strategy.measure(after)
        if not _falls(was, now):
            raise wrong(f"a sequence of measure {short(now)} after {short(was)}: every forward must lower it")


def _check_progress(strategy: Strategy, hook: str, before: Sequence, after: Sequence, least: int) -> None:
    """Check the blocks of `after`; it must settle at least `least` positions, none masked."""
    wrong, limit = partial(WrongAnswer, strategy, hook), before.goal.limit
    if not _blocks(after.window):
        raise wrong(f"window={short(after.window)}: it must be a tuple of Blocks")
    if not all(old.end == new.start for old, new in zip(after.window, after.window[1:], strict=False)):
        raise wrong("a window whose blocks do not follow one another")
    if not whole((after.final, after.settled)) or after.final < 0 or not least <= after.settled <= limit:
        raise wrong(f"final={short(after.final)} and settled={short(after.settled)}: settled must lie in [{least}, {limit}]")
    if any(masked < after.settled for block in after.window for masked in block.undecided[:1]):
        raise wrong(f"settled={after.settled}, but masked positions lie before it")
    if len(after.tokens(before.settled, after.settled)) != max(0, after.settled - before.settled):
        raise wrong(f"settled={after.settled}, but no block holds these positions")


def _falls(was: Any, now: Any) -> bool:
    """Return whether both are integers, and the second is smaller and not negative."""
    return whole((was, now)) and 0 <= now < was


def _blocks(window: Any) -> bool:
    """Return whether `window` is a tuple of blocks."""
    return type(window) is tuple and all(isinstance(block, Block) for block in cast(tuple[object, ...], window))


def _before_forward(sequence: Sequence) -> Sequence:
    """Return the sequence before the pass just counted: a measure may depend on that count."""
    return sequence.with_ledger(replace(sequence.ledger, steps=sequence.ledger.steps - 1))
