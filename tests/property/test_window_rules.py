"""Canvases for rules that look at more than a block, and the options that such rules take."""

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
