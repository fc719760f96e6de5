"""Canvases for rules that look at more than a block, and the options that such rules take."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dlstep.core import Config, Request, Rows, SamplingParams, Span, Spec, Thresholds, add, commit, init, schedule, with_options
from dlstep.core.codec import from_json, to_json
from dlstep.rules.ada_block import AdaBlock
from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.quota import Quota
from dlstep.rules.sliding import Sliding
from dlstep.rules.threshold import Threshold
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import ample, batches, hyperparameters, specs
from dlstep.testing.harness import alone
from dlstep.testing.scripted import ScriptedDriver

Shape = tuple[int, int, tuple[int, ...]]


def shapes(strategy: DualCache, script: list[tuple[Shape, tuple[float, ...]]], shift: int = 0) -> list[Shape]:
    """First fed position, the one behind the last, and wanted positions of the spans of a prompt of 3 and an answer of 8."""
    chances, spans = [chance for _, chance in script], list[Shape]()

    def rows(span: Span) -> Rows:
        spans.append((span.start, span.stop, span.wanted))
        assert (span.end, span.query_only, span.final_rows) == (11, 0, 0), "rows are left to the core"
        return Rows(span.wanted, chances.pop(0))

    spec = Spec(mask_id=99, eos_ids=(98,), vocab_size=100, head_shift=shift)  # type: ignore[arg-type]
    state = add(init(Config(spec, 8, 64, 64), strategy), Request(0, (0, 1, 2), SamplingParams(max_tokens=8)))
    while not state.done:
        state = commit(state, ScriptedDriver(rows).run(schedule(state)))
    assert not chances, "fewer forwards than expected"
    return spans


WINDOW: list[tuple[Shape, tuple[float, ...]]] = [
    ((0, 11, (3, 4, 5)), (0.9, 0.2, 0.9)),  # the canvas; 0.9 is enough
    ((4, 8, (4, 6, 7)), (0.4, 0.4, 0.3)),  # two more are on offer; the first of equals
    ((0, 11, (6, 7, 8)), (0.2, 0.95, 0.1)),  # three were decided: a refresh
    ((6, 10, (6, 8, 9)), (0.1, 0.2, 0.3)),
    ((6, 10, (6, 8)), (0.5, 0.1)),  # the window spans four positions, so 10 is not on offer
    ((0, 11, (8, 10)), (0.5, 0.4)),  # a refresh, and all that is left
    ((10, 11, (10,)), (0.1,)),
]


def test_a_window_by_hand() -> None:
    rule = Sliding(window=3, max_window=4, refresh_count=3)
    expected = [shape for shape, _ in WINDOW]
    assert shapes(DualCache(rule=rule), WINDOW) == expected
    fed_behind = [(start, 11, wanted) for start, _, wanted in expected]
    assert shapes(DualCache(cache="prefix", rule=rule), WINDOW) == fed_behind
    assert shapes(DualCache(cache="none", rule=rule), WINDOW) == [(0, 11, wanted) for *_, wanted in expected]


@pytest.mark.parametrize(("delay", "starts"), [(1, (3, 5, 5, 9)), (9, (3, 3, 3, 3))])
def test_what_is_in_front_of_a_window_is_fed_with_it(delay: int, starts: tuple[int, ...]) -> None:
    """As far as the answer goes, and with a shifted head the row in front in any case."""
    rule = Sliding(window=3, max_window=4, refresh_count=3, window_delay=delay)
    fed = [shape[0] for shape in shapes(DualCache(rule=rule), WINDOW) if shape[:2] != (0, 11)]
    assert tuple(fed) == starts
    shifted = [shape[0] for shape in shapes(DualCache(rule=rule), WINDOW, shift=1) if shape[:2] != (0, 11)]
    assert tuple(shifted) == starts


def test_with_a_shifted_head_the_row_in_front_of_a_window_is_fed() -> None:
    rule = Sliding(window=3, max_window=4, refresh_count=3)
    fed = [shape[0] for shape in shapes(DualCache(rule=rule), WINDOW, shift=1)]
    assert fed == [0, 3, 0, 5, 5, 0, 9]


@given(data=st.data())
def test_a_window_that_is_refreshed_each_time_is_one_without_a_cache(data: st.DataObject) -> None:
    value = data.draw(hyperparameters(DualCache(cache="none", rule=Sliding(refresh_count=1))))
    assert isinstance(value.rule, Sliding)
    rule = with_options(value.rule, {"refresh_count": 1})
    spec = data.draw(specs(value))
    (request,) = data.draw(batches(value, most=1))
    runs = [
        alone(ample(spec), DualCache(cache=cache, rule=rule), request).state.finished[0] for cache in ("none", "prefix", "dual")
    ]
    assert len({(run.answer, run.finish, run.error, run.steps) for run in runs}) == 1


def test_rules_that_need_more_than_a_block_say_so() -> None:
    spec = Spec(99, (98,), 100)
    for rule in (Sliding(), AdaBlock(), EarlyCommit()):
        with pytest.raises(ValueError, match=f"{type(rule).__name__} looks at more than a block, .* it needs a canvas"):
            init(Config(spec), MultiBD(rule=rule))
    with pytest.raises(ValueError, match=r"cache='dual' does not go with EarlyCommit, .* give cache='none'"):
        DualCache(rule=EarlyCommit())
    for make in (AdaBlock, Sliding):
        with pytest.raises(ValueError, match=rf"{make.__name__}\.inner must be a Choice, got AdaBlock"):
            make(inner=AdaBlock())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AdaBlock(delimiters=(-1,)), "AdaBlock.delimiters must be ids of tokens, at least 0, got -1"),
        (lambda: AdaBlock(delimiters=("x",)), "AdaBlock.delimiters must be a list of items that are each a whole number"),
        (lambda: AdaBlock(look_ahead=0.0), "AdaBlock.look_ahead must be more than 0"),
        (
            lambda: EarlyCommit(region=(1,)),
            "EarlyCommit.region must be an offset and a length, such as (12, 5), or empty, got (1,)",
        ),
        (lambda: EarlyCommit(region=(1, 0)), "EarlyCommit.region must be an offset and a length"),
        (lambda: EarlyCommit(region=(-1, 2)), "EarlyCommit.region must be an offset and a length"),
        (lambda: EarlyCommit(early_gap=-1.0), "EarlyCommit.early_gap must be at least 0"),
        (lambda: Sliding(window=0), "Sliding.window must be more than 0"),
        (lambda: Sliding(window_delay=-1), "Sliding.window_delay must be at least 0"),
    ],
)
def test_values_that_do_not_fit(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        make()


@pytest.mark.parametrize("given_ids", [(4, 9), [4, 9], np.array([4, 9]), (np.int64(4), 9), range(4, 10, 5)])
def test_a_request_may_bring_a_list_of_whole_numbers(given_ids: object) -> None:
    params = SamplingParams(max_tokens=6, strategy_options={"delimiters": given_ids, "accept_threshold": 0.5})  # type: ignore[arg-type]
    assert params.strategy_options == (("accept_threshold", 0.5), ("delimiters", (4, 9)))
    assert from_json(to_json(params)) == params and hash(params) == hash(
        SamplingParams(max_tokens=6, strategy_options=params.strategy_options)
    )
    strategy = DualCache(cache="none", rule=AdaBlock())
    state = add(init(Config(Spec(99, (98,), 100)), strategy), Request(0, (1,), params))
    (waiting,) = state.waiting
    assert waiting.goal.strategy == DualCache(cache="none", rule=AdaBlock((4, 9), inner=Threshold(0.5, inclusive=True)))


@pytest.mark.parametrize("odd", [("a",), (1.5,), (True,), ((1,),), (1 << 70,), {1: 2}, {4}, b"12", (None,)])
def test_other_lists_are_refused(odd: object) -> None:
    with pytest.raises(ValueError, match=r"strategy_options\['delimiters'\] must be .* or a list of whole numbers, got"):
        SamplingParams(strategy_options={"delimiters": odd})  # type: ignore[arg-type]


def test_options_of_the_inner_rule_are_options_of_the_outer_one() -> None:
    canvas = DualCache(rule=Sliding())
    assert with_options(canvas, {"accept_threshold": 0.4, "window": 5}).rule == Sliding(5, inner=Threshold(0.4, inclusive=True))
    assert with_options(canvas, {"inner": Quota(), "steps_per_block": 3}).rule == Sliding(inner=Quota(3))
    given = {"rule": AdaBlock(), "inner": Quota(), "steps_per_block": 3, "look_ahead": 0.5}
    assert with_options(canvas, given).rule == AdaBlock(look_ahead=0.5, inner=Quota(3))
    with pytest.raises(ValueError, match="DualCache has no option 'steps_per_block'"):
        with_options(canvas, {"steps_per_block": 3})
    params = SamplingParams(thresholds=Thresholds(accept_threshold=0.1))
    (waiting,) = add(init(Config(Spec(99, (98,), 100)), canvas), Request(0, (1,), params)).waiting
    assert waiting.goal.strategy.rule.inner.accept_threshold == 0.1  # type: ignore[attr-defined]
