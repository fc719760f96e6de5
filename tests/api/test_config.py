"""Options become a configuration and a strategy; whatever does not fit is told by name."""

from dataclasses import dataclass, field

import pytest
from shadow_llm import spec

from dlstep import EngineConfig, Spec
from dlstep.config import engine_config
from dlstep.core import Config, Strategy, init
from dlstep.resolve import build, resolve, trained_further
from dlstep.rules.threshold import Threshold
from dlstep.strategies.d2f import D2F
from dlstep.strategies.multi_bd import MultiBD


@dataclass
class Facts:
    """The description of a model."""

    spec: Spec
    name: str = "a model"
    options: dict[str, object] = field(default_factory=lambda: {"block_size": 8, "buffer_size": 2})
    decoding_strategy: str | None = "multi_bd"
    max_model_len: int = 512


def made(options: EngineConfig, facts: Facts) -> tuple[Config, Strategy]:
    """What an engine starts from."""
    return build(resolve(options, facts), facts.spec)


@pytest.fixture
def facts() -> Facts:
    return Facts(spec())


def test_what_is_not_given_comes_from_the_checkpoint(facts: Facts) -> None:
    config, strategy = made(EngineConfig(), facts)
    assert strategy == MultiBD(block_size=8, buffer_size=2)
    assert (config.max_model_len, config.page_size) == (512, 8)
    init(config, strategy)


def test_what_is_given_wins(facts: Facts) -> None:
    options = EngineConfig(decoding_strategy="d2f", block_size=4, accept_threshold=0.5, page_size=16, max_model_len=100)
    config, strategy = made(options, facts)
    assert strategy == D2F(block_size=4, buffer_size=2, rule=Threshold(0.5))
    assert (config.max_model_len, config.page_size) == (100, 16)


def test_a_strategy_may_be_a_value(facts: Facts) -> None:
    assert made(EngineConfig(decoding_strategy=D2F(block_size=5)), facts)[1] == D2F(block_size=5)


@pytest.mark.parametrize("alias", ["multi_block_diffusion", "block_diffusion", "fast_dllm"])
def test_aliases_mean_multi_bd(facts: Facts, alias: str) -> None:
    assert isinstance(made(EngineConfig(decoding_strategy=alias), facts)[1], MultiBD)


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
        ({"num_pages": 0}, "num_pages must be above 0, or -1"),
        ({"kv_cache_gib": 1.0}, "kv_cache_gib=1.0 does nothing without num_pages=-1"),
        (
            {"gpu_memory_utilization": 0.5, "num_pages": 7},
            "gpu_memory_utilization=0.5 does nothing without num_pages=-1",
        ),
        ({"num_pages": -1, "kv_cache_gib": 1.0, "gpu_memory_utilization": 0.5}, "give one of them"),
        ({"sampling_mode": "edits"}, "sampling_mode must be one of naive, edit, got 'edits'"),
        ({"dtype": "int8"}, "dtype must be one of float32.*'int8'"),
        ({"accept_threshold": 1.5}, "EngineConfig.accept_threshold must be at most 1.0, got 1.5"),
        ({"use_lora": True}, "EngineConfig.use_lora=True needs lora_path"),
        ({"pre_merge_lora": True}, "EngineConfig.pre_merge_lora=True is given without an adapter: give lora_path"),
        ({"pre_merge_lora": False, "use_lora": False}, "EngineConfig.pre_merge_lora=False is given without an adapter"),
        ({"block_size": 0}, "EngineConfig.block_size must be more than 0, got 0"),
        ({"blocksize": 8}, "'blocksize' is no option of the engine: choose from model, .*block_size"),
        ({"decoding_strategy": D2F(), "block_size": 8}, "block_size cannot be given beside it"),
    ],
)
def test_a_wrong_option_is_an_error(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine_config(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoding_strategy": "nonsense"}, "'nonsense' is unknown: choose from d2f, .*multi_bd"),
        ({"max_model_len": 513}, "max_model_len must be at most 512.*got 513"),
    ],
)
def test_an_option_that_contradicts_the_model_is_an_error(facts: Facts, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(engine_config(options), facts)


def test_the_size_of_a_block_is_no_option_of_canvases() -> None:
    facts = Facts(spec(), options={"bd_size": 32}, decoding_strategy="fast_dllm_v2")
    with pytest.raises(ValueError, match="'diffusion_gemma' does not go with the model"):
        resolve(EngineConfig(decoding_strategy="diffusion_gemma"), facts)


def test_a_checkpoint_without_a_strategy_needs_one(facts: Facts) -> None:
    facts.decoding_strategy = None
    with pytest.raises(ValueError, match="give decoding_strategy, one of d2f"):
        resolve(EngineConfig(), facts)


def test_an_option_that_the_strategy_does_not_have_is_an_error(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Plain:
        block_size: int = 8

    monkeypatch.setattr("dlstep.strategies.load", lambda name: Plain)
    with pytest.raises(ValueError, match="'plain' has no option 'buffer_size', but buffer_size=2 is given: it knows"):
        resolve(EngineConfig(decoding_strategy="plain", buffer_size=2), facts)


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
    facts.decoding_strategy = trained_further(declared, config)
    _, strategy = made(config, facts)
    assert type(strategy).__module__.rpartition(".")[2] == name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_pages": 3}, "num_pages=3 of page_size=8 cannot hold one request.*at least 64 pages"),
        ({"max_num_batched_tokens": 8}, "max_num_batched_tokens=8 is less than the 16 rows"),
    ],
)
def test_a_budget_too_small_is_told_before_any_request(facts: Facts, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        init(*made(EngineConfig(**options), facts))


def test_resolving_is_done_once_and_for_all(facts: Facts) -> None:
    resolved = resolve(EngineConfig(accept_threshold=0.5), facts)
    assert resolve(resolved, facts) == resolved
    assert (resolved.decoding_strategy, resolved.sampling_mode, resolved.block_size) == ("multi_bd", "naive", 8)
    with pytest.raises(ValueError, match=r"pass it through resolve"):
        build(EngineConfig(), facts.spec)


@pytest.mark.parametrize(
    ("declared", "options", "message"),
    [
        ("multi_bd", {"decoding_strategy": "dmax"}, "'dmax' does not go with the model a model: it was trained block-causal"),
        ("multi_bd", {"sampling_mode": "edit"}, "'multi_bd_edit' does not go with the model a model"),
        ("multi_bd", {"decoding_strategy": "dual_cache"}, "'dual_cache' does not go with"),
        ("multi_bd", {"decoding_strategy": "fast_dllm_v2"}, "'fast_dllm_v2' does not go with"),
        ("multi_bd", {"decoding_strategy": "diffusion_gemma"}, "'diffusion_gemma' does not go with"),
        ("multi_bd", {"decoding_strategy": "d2f", "sampling_mode": "edit"}, "'d2f' does not go with sampling_mode='edit'"),
        ("multi_bd_edit", {"decoding_strategy": "dmax", "sampling_mode": "naive"}, "'dmax' does not go with sampling_mode"),
        ("multi_bd", {"edit_threshold": 0.5}, "'multi_bd' has no option 'edit_threshold', but edit_threshold=0.5 is given"),
        ("diffusion_gemma", {"decoding_strategy": "multi_bd"}, "'multi_bd' does not go with .*canvas of random tokens"),
    ],
)
def test_what_cannot_be_names_both_sides(facts: Facts, declared: str, options: dict[str, object], message: str) -> None:
    facts.decoding_strategy = declared
    with pytest.raises(ValueError, match=message):
        resolve(engine_config(options), facts)


@pytest.mark.parametrize(
    ("declared", "options", "name"),
    [
        ("multi_bd_edit", {}, "multi_bd_edit"),
        ("multi_bd_edit", {"sampling_mode": "edit"}, "multi_bd_edit"),
        ("multi_bd_edit", {"sampling_mode": "naive"}, "multi_bd"),
        ("multi_bd_edit", {"decoding_strategy": "block_diffusion", "sampling_mode": "edit"}, "multi_bd_edit"),
        ("multi_bd_edit", {"decoding_strategy": "multi_bd"}, "multi_bd"),
        ("multi_bd_edit", {"decoding_strategy": "dmax"}, "dmax"),
        ("multi_bd_edit", {"decoding_strategy": "dmax", "sampling_mode": "edit"}, "dmax"),
        ("d2f", {}, "d2f"),
    ],
)
def test_names_and_modes_are_worked_out(facts: Facts, declared: str, options: dict[str, object], name: str) -> None:
    facts.decoding_strategy = declared
    assert resolve(engine_config(options), facts).decoding_strategy == name
