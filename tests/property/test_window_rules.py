"""Canvases for rules that look at more than a block, and the options that such rules take."""

import re
from collections.abc import Callable

import pytest

from dlstep.core import Config, Spec, init
from dlstep.rules.ada_block import AdaBlock
from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.sliding import Sliding
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD


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
