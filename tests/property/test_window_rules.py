"""Canvases for rules that look at more than a block, and the options that such rules take."""

from dlstep.core import Config, Spec, init
from dlstep.rules.ada_block import AdaBlock
from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.sliding import Sliding
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD

from ..helpers.refusals import refused


def test_rules_that_need_more_than_a_block_say_so():
    spec = Spec(99, (98,), 100)
    for rule in (Sliding(), AdaBlock(), EarlyCommit()):
        with refused("rule", "unsupported"):
            init(Config(spec), MultiBD(rule=rule))
    with refused("cache", "conflict"):
        DualCache(rule=EarlyCommit())
    for make in (AdaBlock, Sliding):
        with refused("inner", "invalid_type"):
            make(inner=AdaBlock())
