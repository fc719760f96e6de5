"""The strategy of a model: as given, else as its checkpoint states; what does not fit is refused by its field."""

from dataclasses import dataclass, replace
from typing import Annotated, final

import pytest
from annotated_types import Gt

from dlstep import EngineConfig, strategies
from dlstep.core import Grid
from dlstep.core.errors import Refused
from dlstep.core.spec import BIDIRECTIONAL, PROMPT_IN_FULL, TRAININGS
from dlstep.engine.config import engine_config
from dlstep.engine.strategy_choice import chosen, embedded_models_for, strategy_for, trained_further
from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.quota import Quota
from dlstep.rules.threshold import Threshold
from dlstep.strategies import Blockwise
from dlstep.strategies.d2f import D2F
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD

from ...helpers.descriptions import TRAINED, Facts
from ...helpers.refusals import refused


def made(facts, **options):
    return strategy_for(engine_config(options), facts)


@pytest.fixture
def facts():
    return Facts()


def test_what_is_given_wins_over_what_the_checkpoint_states(facts):
    assert made(facts) == MultiBD(block_size=8, buffer_size=2)
    given = {"decoding_strategy": "d2f", "block_size": 4, "accept_threshold": 0.5}
    assert made(facts, **given) == D2F(block_size=4, buffer_size=2, rule=Threshold(0.5))


@pytest.mark.parametrize("mode", [None, "naive", "edit"])
@pytest.mark.parametrize("alias, name", strategies.ALIASES.items())
def test_an_alias_stands_for_its_name_in_each_mode(alias, name, mode):
    assert chosen(EngineConfig(decoding_strategy=alias, sampling_mode=mode)) == chosen(
        EngineConfig(decoding_strategy=name, sampling_mode=mode)
    )


@pytest.mark.parametrize(
    "options, field, code",
    [
        ({"accept_threshold": 1.5}, "accept_threshold", "out_of_range"),
        ({"accept_threshold": "high"}, "accept_threshold", "invalid_type"),
        ({"rule": "quota", "steps_per_block": 0}, "steps_per_block", "out_of_range"),
        ({"block_size": 0}, "block_size", "out_of_range"),
        ({"rule": 5}, "rule", "invalid_type"),
        ({"rule": None}, "rule", "invalid_type"),
        ({"sampling_mode": "edit", "decoding_strategy": "d2f"}, "sampling_mode", "conflict"),
        ({"sampling_mode": "edit", "decoding_strategy": MultiBD()}, "sampling_mode", "conflict"),
        ({"sampling_mode": "naive", "decoding_strategy": "dmax"}, "sampling_mode", "conflict"),
        ({"decoding_strategy": "diffusion_gemma"}, "decoding_strategy", "unsupported"),
        *(({name: 8}, name, "unknown_field") for name in ("blocksize", "nonsense", "edit_threshold", "max_num_seqs")),
    ],
)
def test_an_option_that_contradicts_the_model_is_refused_by_its_field(facts, options, field, code):
    with refused(field, code):
        made(facts, **options)


@pytest.mark.parametrize(
    "stated, field, code",
    [
        ({"options": {"bd_size": 0}}, "model", "invalid_value"),
        ({"options": {"bd_size": 9, "nonsense": 1}}, "model", "unknown_field"),
        ({"options": {"block_size": 0}}, "model", "conflict"),
        ({"options": {"rule": "os.path"}}, "rule", "unknown_name"),
        ({"decoding_strategy": "os.path"}, "decoding_strategy", "unknown_name"),
        ({"decoding_strategy": None}, "decoding_strategy", "missing"),
    ],
)
def test_a_checkpoint_states_only_what_is_known(facts, stated, field, code):
    with refused(field, code):
        made(replace(facts, **stated))


@pytest.mark.parametrize("rule", ["quota", "dlstep.rules.quota", "dlstep.rules.quota:Quota", Quota, Quota()])
def test_a_rule_is_a_name_a_path_a_class_or_a_value(facts, rule):
    facts.options |= {"accept_threshold": 0.95}  # of the other rule, which the model alone asks for
    assert made(facts, rule=rule, steps_per_block=3) == MultiBD(block_size=8, buffer_size=2, rule=Quota(3))
    assert made(facts) == MultiBD(block_size=8, buffer_size=2, rule=Threshold(0.95))


def test_a_rule_that_needs_another_value_of_its_strategy_is_given_beside_it():
    facts = Facts.of("dual_cache", block_size=8)
    given = {"rule": "early_commit", "late_gap": 1.0}
    assert made(facts, cache="none", **given) == DualCache(8, "none", EarlyCommit(late_gap=1.0))
    with pytest.raises(Refused, match="give cache='none'"):
        made(facts, **given)


@final
@dataclass(frozen=True, slots=True)
class Mine(Blockwise):
    """A strategy of one's own, in a module whose last word is no strategy's name."""

    mine: Annotated[int, Gt(0)] = 3

    def grid(self, request):
        return Grid(0, self.block_size)


def test_a_strategy_of_ones_own(facts):
    """By value and by class, whatever its module is called; nothing is known of what it can decode but what it says."""
    assert made(facts, decoding_strategy=Mine(mine=7)) == Mine(mine=7)
    assert made(facts, decoding_strategy=Mine, mine=7) == Mine(block_size=8, buffer_size=2, mine=7)
    for name, code in (("mine", "out_of_range"), ("mnie", "unknown_field")):
        with refused(name, code):
            made(facts, decoding_strategy=Mine, **{name: 0})
    for given in (Mine(), Mine):
        config = EngineConfig(decoding_strategy=given)
        assert embedded_models_for(config)[0] == "tiny-bd" and "tiny-canvas" not in embedded_models_for(config)
        assert trained_further(BIDIRECTIONAL, config) == PROMPT_IN_FULL


def test_a_network_that_does_not_say_how_it_was_trained(facts):
    """Only what the strategy itself says of the model is left."""
    facts.training = None
    assert type(made(facts, decoding_strategy="dmax")).__name__ == "DMax"
    with pytest.raises(Refused, match="its head_shift is 0"):
        made(facts, decoding_strategy="fast_dllm_v2")


@pytest.mark.parametrize(
    "declared, options, name",
    [
        ("dual_cache", {}, "d2f"),
        ("dual_cache", {"decoding_strategy": "d2f"}, "d2f"),
        ("dual_cache", {"decoding_strategy": "multi_bd"}, "multi_bd"),
        ("dual_cache", {"decoding_strategy": "dual_cache"}, "dual_cache"),
        ("dual_cache", {"decoding_strategy": D2F()}, "d2f"),
        ("multi_bd", {}, "multi_bd"),
        ("multi_bd_edit", {"decoding_strategy": "dmax"}, "dmax"),
    ],
)
def test_an_adapter_teaches_to_see_blocks(declared, options, name):
    training = trained_further(TRAINED[declared], engine_config(options))
    assert training is not None
    assert strategies.name_of(type(made(Facts.of(TRAININGS[training][0], block_size=8), **options))) == name
