"""Options become a configuration and a strategy; whatever does not fit is told by name."""

from dataclasses import dataclass, field
from typing import Annotated, final

import pytest
from annotated_types import Gt

from dlstep import EngineConfig, Request, Spec, strategies
from dlstep.core import Config, Grid, Strategy, init
from dlstep.core.spec import BIDIRECTIONAL, BLOCK_CAUSAL, PROMPT_IN_FULL, TRAININGS
from dlstep.engine.config import build, embedded_models_for, engine_config, resolve, trained_further
from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.quota import Quota
from dlstep.rules.threshold import Threshold
from dlstep.strategies import Blockwise
from dlstep.strategies.d2f import D2F
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD

from ...helpers.shadow_llm import spec

# The strategy that a checkpoint names as its own, and how it was trained then.
TRAINED = {able[0]: training for training, able in TRAININGS.items()}


@dataclass
class Facts:
    """The description of a model."""

    spec: Spec
    name: str = "a model"
    options: dict[str, object] = field(default_factory=lambda: {"block_size": 8, "buffer_size": 2})
    decoding_strategy: str | None = "multi_bd"
    training: str | None = BLOCK_CAUSAL
    max_model_len: int = 512

    def declare(self, strategy: str) -> None:
        """Name a strategy as its own, and say that it was trained for that."""
        self.decoding_strategy, self.training = strategy, TRAINED[strategy]


def made(options: EngineConfig, facts: Facts) -> tuple[Config, Strategy]:
    """The facts that an engine starts from."""
    return build(resolve(options, facts), facts.spec)


@pytest.fixture
def facts() -> Facts:
    return Facts(spec())


def test_what_is_not_given_comes_from_the_checkpoint(facts: Facts) -> None:
    config, strategy = made(EngineConfig(), facts)
    assert strategy == MultiBD(block_size=8, buffer_size=2)
    assert (config.max_model_len, config.page_size) == (512, 8)
    init(config, strategy)


@pytest.mark.parametrize(
    "given", [{}, {"num_pages": 99}, {"num_pages": -1}, {"kv_cache_gib": 1.0}, {"gpu_memory_utilization": 0.5}]
)
def test_the_kv_cache_takes_what_is_left_on_cuda_or_where_memory_is_given(given: dict[str, float], facts: Facts) -> None:
    pages = given.get("num_pages", -1)
    assert resolve(engine_config(given), facts, "cuda").num_pages == pages
    assert resolve(engine_config(given), facts, "cpu").num_pages == (pages if given else 65_536 // 8)


def test_what_is_given_wins(facts: Facts) -> None:
    given = {"decoding_strategy": "d2f", "block_size": 4, "accept_threshold": 0.5, "page_size": 16, "max_model_len": 100}
    config, strategy = made(engine_config(given), facts)
    assert strategy == D2F(block_size=4, buffer_size=2, rule=Threshold(0.5))
    assert (config.max_model_len, config.page_size) == (100, 16)


def test_default_pages_are_capped_but_hold_the_longest_request(facts: Facts) -> None:
    facts.max_model_len = 100_000
    config, strategy = made(EngineConfig(), facts)
    assert 100_000 <= config.num_pages * config.page_size < 101_000
    init(config, strategy)
    facts.max_model_len = 2048
    config, _ = made(EngineConfig(), facts)
    assert config.num_pages * config.page_size == 65_536


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoding_strategy": "nonsense"}, "'nonsense' is unknown: choose from autoregressive, .*multi_bd"),
        ({"max_model_len": 513}, "max_model_len must be at most 512.*got 513"),
        ({"accept_threshold": 1.5}, "^accept_threshold: must be at most 1.0, got 1.5"),
        ({"accept_threshold": "high"}, "^accept_threshold: must be a number, got 'high'"),
        ({"rule": "quota", "steps_per_block": 0}, "^steps_per_block: must be more than 0, got 0"),
        ({"block_size": 0}, "^block_size: must be more than 0, got 0"),
        ({"blocksize": 8}, "'multi_bd' has no option 'blocksize', but blocksize=8 is given: did you mean block_size?"),
        ({"max_model_length": 8}, "has no option 'max_model_length', .*: did you mean max_model_len?"),
        ({"nonsense": 8}, "has no option 'nonsense', .*: options are accept_threshold, .*, block_size, .*, rule, "),
        ({"rule": "quota", "inclusive": True}, "inclusive is an option of the rules credit and threshold: give one"),
        (
            {"edit_threshold": 0.5},
            "'multi_bd' has no option 'edit_threshold', .*: edit_threshold is an option of multi_bd_edit",
        ),
        ({"temperature": 0.5}, r": it is set for each request, as SamplingParams\(temperature=0.5\)"),
        ({"rule": 5}, "^rule: must be a Rule, got 5"),
        ({"rule": None}, "^rule: must be a Rule, got None"),
        ({"max_num_seqs": 4}, "'max_num_seqs', but max_num_seqs=4 is given: here it is max_num_reqs"),
        ({"trust_remote_code": True}, ": leave it out, code of checkpoints is never run"),
    ],
)
def test_an_option_that_contradicts_the_model_is_an_error(facts: Facts, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(engine_config(options), facts)


def test_the_size_of_a_block_is_no_option_of_canvases() -> None:
    facts = Facts(spec(), options={"bd_size": 32})
    facts.declare("fast_dllm_v2")
    with pytest.raises(ValueError, match="'diffusion_gemma' does not go with the model"):
        resolve(EngineConfig(decoding_strategy="diffusion_gemma"), facts)


@pytest.mark.parametrize("rule", ["quota", "dlstep.rules.quota", "dlstep.rules.quota:Quota", Quota, Quota()])
def test_a_rule_is_a_name_a_path_a_class_or_a_value(facts: Facts, rule: object) -> None:
    facts.options |= {"accept_threshold": 0.95}  # of the other rule, which the model alone asks for
    _, strategy = made(engine_config({"rule": rule, "steps_per_block": 3}), facts)
    assert strategy == MultiBD(block_size=8, buffer_size=2, rule=Quota(3))
    assert made(engine_config({}), facts)[1] == MultiBD(block_size=8, buffer_size=2, rule=Threshold(0.95))


def test_a_rule_that_needs_another_value_of_its_strategy_is_given_beside_it() -> None:
    facts = Facts(spec(), options={"block_size": 8})
    facts.declare("dual_cache")
    _, strategy = made(engine_config({"rule": "early_commit", "cache": "none", "late_gap": 1.0}), facts)
    assert strategy == DualCache(8, "none", EarlyCommit(late_gap=1.0))
    with pytest.raises(ValueError, match="does not go with EarlyCommit, which reads the whole answer: give cache='none'"):
        made(engine_config({"rule": "early_commit"}), facts)


@final
@dataclass(frozen=True, slots=True)
class Mine(Blockwise):
    """A strategy of one's own, in a module whose last word is no strategy's name."""

    mine: Annotated[int, Gt(0)] = 3

    def grid(self, request: Request) -> Grid:
        return Grid(0, self.block_size)


def test_a_strategy_of_ones_own(facts: Facts) -> None:
    """By value and by class, whatever its module is called; nothing is known of what it can decode but what it says."""
    assert made(EngineConfig(decoding_strategy=Mine(mine=7)), facts)[1] == Mine(mine=7)
    assert made(engine_config({"decoding_strategy": Mine, "mine": 7}), facts)[1] == Mine(block_size=8, buffer_size=2, mine=7)
    with pytest.raises(ValueError, match=r"^mine: must be more than 0, got 0"):
        resolve(engine_config({"decoding_strategy": Mine, "mine": 0}), facts)
    with pytest.raises(ValueError, match=r"strategy 'Mine' has no option 'mnie', but mnie=7 is given: did you mean mine\?"):
        resolve(engine_config({"decoding_strategy": Mine, "mnie": 7}), facts)
    for given in (Mine(), Mine):
        config = EngineConfig(decoding_strategy=given)
        assert embedded_models_for(config)[0] == "tiny-bd" and "tiny-canvas" not in embedded_models_for(config)
        assert trained_further(BIDIRECTIONAL, config) == PROMPT_IN_FULL


def test_a_network_that_does_not_say_how_it_was_trained(facts: Facts) -> None:
    """Only what the strategy itself says of the model is left."""
    facts.training = None
    assert type(made(engine_config({"decoding_strategy": "dmax"}), facts)[1]).__name__ == "DMax"
    with pytest.raises(ValueError, match="its head_shift is 0"):
        resolve(engine_config({"decoding_strategy": "fast_dllm_v2"}), facts)


@pytest.mark.parametrize(
    ("declared", "options", "name"),
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
def test_an_adapter_teaches_to_see_blocks(facts: Facts, declared: str, options: dict[str, object], name: str) -> None:
    config = engine_config(options)
    training = trained_further(TRAINED[declared], config)
    assert training is not None
    facts.declare(TRAININGS[training][0])
    _, strategy = made(config, facts)
    assert strategies.name_of(type(strategy)) == name


def test_resolving_is_done_once_and_for_all(facts: Facts) -> None:
    resolved = resolve(engine_config({"accept_threshold": 0.5, "rule": "threshold"}), facts)
    assert resolve(resolved, facts) == resolved
    assert (resolved.decoding_strategy, resolved.sampling_mode) == ("multi_bd", "naive")
    assert dict(resolved.strategy_options) == {"accept_threshold": 0.5, "block_size": 8, "buffer_size": 2, "rule": Threshold()}
    assert build(resolved, facts.spec)[1] == MultiBD(block_size=8, buffer_size=2, rule=Threshold(accept_threshold=0.5))
