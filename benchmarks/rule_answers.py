"""Scripted network outputs to measure the host cost of rules, with the statistics that each rule
reads."""

from functools import partial
from random import Random
from typing import Any

from dlstep import rules
from dlstep.core import Rule, SampleSpec, Span, SpanSamples
from dlstep.rules.quota import Quota
from dlstep.rules.threshold import Threshold

from .scripts import (
    BLOCK,
    BUFFER,
    EOS,
    MASK,
    RowsOf,
    StrategyScript,
    fed_tokens,
    one_a_block,
    two_tokens,
    whole_blocks,
)

ANSWER = 1 << 20  # block size larger than any answer, so the canvas is one block
_SURE, _ENTROPY, _DOUBT = 0.9, 0.01, 1.5  # minimum probability of a certain position; entropies of certain and other positions

_BLOCKS = {"block_size": BLOCK, "buffer_size": BUFFER}
_GRID = _BLOCKS | {"semi_complete_threshold": 1.0}
_TWO_BLOCKS = _BLOCKS | {"add_block_threshold": 0.5}  # for rules that unmask a position in every block
_ONE_BLOCK = {"block_size": BLOCK, "buffer_size": 1}
_CANVAS = {"block_size": BLOCK, "cache": "none"}
_PARTS = Quota(steps_per_block=BLOCK // 2)  # for `early_commit`
_WHOLE = {"block_size": ANSWER, "cache": "none"}

CARRIERS = {
    "multi_bd": StrategyScript("multi_bd", _GRID, whole_blocks, two_tokens),
    # `one_a_block` gives one position of each of two blocks 0.6, the others 0.5.
    "multi_bd, two blocks": StrategyScript("multi_bd", _TWO_BLOCKS | {"rule": Threshold(0.55)}, whole_blocks, one_a_block),
    "multi_bd, one block": StrategyScript("multi_bd", _ONE_BLOCK, whole_blocks, two_tokens),
    "dual_cache": StrategyScript("dual_cache", _CANVAS, whole_blocks, two_tokens),
    # `whole_blocks` would fill the whole answer at once.
    "dual_cache, one block": StrategyScript("dual_cache", _WHOLE, two_tokens, two_tokens),
}


def _with_statistics(sample_spec: SampleSpec, plain: RowsOf, random: Random, span: Span) -> SpanSamples:
    """Return the same answers with the entropies, margins and most probable ids that `sample_spec`
    requests.

    The most probable id of a masked position stays the same between most forward passes.
    """
    samples, best = plain(random, span), sample_spec.best
    tokens, chances = samples.tokens, samples.probabilities
    ids: tuple[int, ...] = ()
    most: tuple[float, ...] = ()
    if best:
        tokens = tuple([
            (position * 31 + (random.random() < 0.25)) % EOS if token == MASK else token
            for position, token in zip(span.wanted.sampled, fed_tokens(span), strict=True)
        ])  # fmt: skip
        ids = tuple([(top ^ rank) % EOS for top in tokens for rank in range(best)])
        most = tuple([chance if not rank else (1.0 - chance) * 0.5**rank for chance in chances for rank in range(best)])
    entropies = tuple([_ENTROPY if chance > _SURE else _DOUBT + chance for chance in chances])
    return SpanSamples(
        tokens,
        chances,
        entropies if "entropy" in sample_spec.statistics else (),
        chances if "margin" in sample_spec.statistics else (),
        ids,
        most,
    )


def _script(carrier: str, blocks: dict[str, Any], name: str, **options: Any) -> tuple[str, StrategyScript]:
    """Return the name of the baseline, and the script of the rule with its options."""
    rule: Rule = rules.load(name)(**options)
    plain = CARRIERS[carrier]
    whole, steady = (partial(_with_statistics, rule.sample_spec, answers) for answers in (plain.whole, plain.steady))
    return carrier, StrategyScript(plain.strategy, blocks | {"rule": rule}, whole, steady)


def rule_scripts() -> dict[str, tuple[str, StrategyScript]]:
    """Return each rule, some in several forms, with the baseline that its cost is compared with."""
    grid, two, one, canvas, whole = CARRIERS
    return {
        "threshold": _script(grid, _GRID, "threshold"),
        "threshold entropy": _script(grid, _GRID, "threshold", order="entropy"),
        "threshold falling": _script(grid, _GRID, "threshold", falling=0.1),
        "factor": _script(grid, _GRID, "factor", factor=0.5),
        "entropy_bound": _script(two, _TWO_BLOCKS, "entropy_bound"),
        "entropy_bound margin": _script(two, _TWO_BLOCKS, "entropy_bound", order="margin"),
        "local_leap": _script(grid, _GRID, "local_leap"),
        "spaced": _script(grid, _GRID, "spaced"),
        "hierarchy": _script(grid, _GRID, "hierarchy", low_threshold=0.9),
        "hierarchy remask": _script(grid, _GRID, "hierarchy", low_threshold=0.9, remask_threshold=0.2),
        "dilated": _script(one, _ONE_BLOCK, "dilated", skip=0),
        "credit": _script(grid, _GRID, "credit"),
        "quota": _script(two, _TWO_BLOCKS, "quota"),
        "quota random": _script(two, _TWO_BLOCKS, "quota", order="random"),
        "quota drawn": _script(two, _TWO_BLOCKS, "quota", order="margin", order_temperature=0.5),
        "saber": _script(two, _TWO_BLOCKS, "saber"),
        "running_confidence": _script(two, _TWO_BLOCKS, "running_confidence"),
        "remdm": _script(two, _TWO_BLOCKS, "remdm", remask_forwards=BLOCK // 8),  # more would unmask fewer tokens a step
        "remdm cap": _script(one, _ONE_BLOCK, "remdm", variant="cap", steps_per_block=20),
        "remdm rescale": _script(one, _ONE_BLOCK, "remdm", variant="rescale", steps_per_block=20),
        "remdm conf": _script(one, _ONE_BLOCK, "remdm", variant="conf", steps_per_block=20),
        "remdm loop": _script(one, _ONE_BLOCK, "remdm", variant="loop", steps_per_block=24),
        "sliding": _script(canvas, _CANVAS, "sliding"),
        "ada_block": _script(canvas, _CANVAS, "ada_block"),
        "early_commit": _script(whole, _CANVAS, "early_commit", inner=_PARTS, region=(0, 5)),
        "early_commit all": _script(whole, _CANVAS, "early_commit", inner=_PARTS),
        "quota dream": _script(whole, _CANVAS, "quota", schedule="dream", steps_per_block=160),
        "quota independent": _script(whole, _CANVAS, "quota", schedule="dream", order="independent", steps_per_block=160),
    }
