"""Rules and strategies of a comparison, and what each is compared over."""

import pytest

from dlstep.core import options_of
from dlstep.evaluate.entries import EvalEntry, entries, sweep_of
from dlstep.rules.ada_block import AdaBlock
from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.quota import Quota
from dlstep.rules.threshold import Threshold
from dlstep.strategies.diffusion_gemma import DiffusionGemma
from dlstep.strategies.dmax import DMax
from dlstep.tiny.tokenizer import build_tokenizer


def rule_of(entry: EvalEntry) -> object:
    """The rule of an entry by value."""
    return options_of(entry.engine.first.strategy)["rule"]


def test_a_rule_is_compared_by_value_and_suits_the_embedded_models() -> None:
    sentences = tuple(build_tokenizer().encode(end)[0] for end in (". ", "."))
    (quota, on_canvas, ada), (why,) = entries([Quota(3), AdaBlock(look_ahead=0.5)])
    assert (quota.rule, quota.strategy, on_canvas.strategy, ada.rule) == ("quota", "multi_bd", "dual_cache", "ada_block")
    assert rule_of(quota) == Quota(3) and why.startswith("ada_block on multi_bd: MultiBD cannot decode this model")
    assert rule_of(ada) == AdaBlock(sentences, look_ahead=0.5) and ada.engine.name == "tiny-llada"
    assert quota.given_options == {} and quota.engine.driver is not ada.engine.driver is on_canvas.engine.driver
    (given, named), _ = entries([AdaBlock((7,)), "quota"], model="tiny-llada")
    assert options_of(given.engine.first.strategy)["delimiters"] == (7,) and named.strategy == "dual_cache"
    assert named.given_options == {"decoding_strategy": None, "model": "tiny-llada", "rule": "quota", "cache": "none"}
    (parts,), _ = entries(["early_commit"])
    decoder = options_of(parts.engine.first.strategy)
    assert decoder["part_size"] == decoder["block_size"] == 8 == parts.given_options["part_size"]
    (parts,), _ = entries([EarlyCommit(part_size=5)])
    assert options_of(parts.engine.first.strategy)["part_size"] == 5
    with pytest.raises(ValueError, match="a rule is given twice"):
        entries(["quota", Quota(2)])
    with pytest.raises(ValueError, match="two strategies are called 'multi_bd': rename the class of one of them"):
        entries(["quota"], ["multi_bd", "dlstep.strategies.multi_bd"])


def test_what_a_rule_or_a_strategy_is_compared_over() -> None:
    shares = (0.5, 0.7, 0.8, 0.9, 0.95)
    assert sweep_of(Threshold()) == {"accept_threshold": shares}
    assert list(sweep_of(Quota())) == ["steps_per_block"]
    assert sweep_of(DMax()) == {"accept_threshold": shares}, "and not the first number of its fields"
    assert list(sweep_of(DiffusionGemma())) == ["entropy_bound"]
