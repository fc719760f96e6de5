"""Options of the engine: names, meaning and bounds, and how a model's facts complete them.

`EngineConfig` holds options as given. `resolve` chooses those that depend on the model and rejects
contradictions; `build` makes the core's configuration and the strategy. Options of a strategy are
defined only by the fields of its class and of its rule's class. The module also makes listings,
help texts and hints for unknown options.
"""

import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from annotated_types import Ge, Gt, Interval
from docstring_parser import parse_from_object

from .. import rules, strategies, tiny
from ..core import (
    Config,
    Options,
    Refusal,
    Refused,
    Request,
    SamplingParams,
    Spec,
    Strategy,
    options_of,
    probe,
    refusal,
    with_options,
)
from ..core.checks import check_ranges, did_you_mean, limits_of, listed, pairs_of, plain, short, values_of
from ..core.lifecycle import least_pages
from ..core.options import PluginGroup, StrategyOptions, by_default, sorted_options, unknown_option
from ..core.request import Seed, processors_of
from ..core.spec import BIDIRECTIONAL, PROMPT_IN_FULL, TRAININGS, Count, Length, Seats, refusal_of_training

if TYPE_CHECKING:
    from ..models.description import Description

Rung = tuple[int | None, StrategyOptions]
MOST = "max_requests"
FORM = f"a list like [{{'{MOST}': 2, 'buffer_size': 4}}, {{'buffer_size': 1}}]"


@dataclass(frozen=True, slots=True)
class BufferPolicy:
    """Default options for requests that set none, chosen by load when a request is added.

    The chosen options are stored in the request, so later load has no effect and a trace needs no
    policy.
    """

    rungs: tuple[Rung, ...]
    """Pairs of a limit and options, in ascending order of limit. The first one whose limit is at least
    the number of live requests applies; a limit of None matches any number."""

    def applied(self, request: Request, live: int) -> Request:
        """Return the request with the options for the current load, as a plain Request, so that `add` checks the options.

        Args:
            request: The request, returned unchanged if it sets options.
            live: Number of live requests, all new requests included.
        """
        options = next((options for most, options in self.rungs if most is None or live <= most), ())
        if request.params.strategy_options or not options:
            return request
        params = replace(request.params, strategy_options=options)
        facts = {"index": request.index, "salt": request.salt, "automaton": request.automaton}
        return Request(request.id, request.prompt, params, **facts)

    def check(self, config: Config, strategy: Strategy) -> None:
        """Raise ValueError for options that an engine would reject in a request.

        Args:
            config: Configuration of the engine.
            strategy: Strategy of the engine.
        """
        for number, (_, options) in enumerate(self.rungs):
            request = probe(config.spec, SamplingParams(max_tokens=1, strategy_options=options))
            if reason := refusal(config, strategy, request):
                raise Refused(f"buffer_policy.{number}.{reason.field}", reason.code, reason.message)


def policy_of(policy: object, owner: str = "buffer_policy") -> BufferPolicy | None:
    """Build a policy from a list of mappings. A BufferPolicy or None is returned unchanged.

    Args:
        policy: The list, a policy or None.
        owner: Name of the option in messages.

    Raises:
        ValueError: Names the option and the invalid entry.
    """
    if policy is None or type(policy) is BufferPolicy:
        return policy
    entries = listed(policy)
    if not entries:
        raise ValueError(f"{owner} must be {FORM}, got {short(policy)}")
    rungs = tuple([_rung(f"{owner}[{number}]", entry) for number, entry in enumerate(entries)])
    for number, (one, other) in enumerate(pairwise([most for most, _ in rungs]), start=1):
        if one is None or (other is not None and other <= one):
            before = f"an entry for any number, without {MOST}" if one is None else f"{MOST}={one}"
            raise ValueError(f"{owner}[{number}] comes after {before}: no request reaches it")
    return BufferPolicy(rungs)


def _rung(owner: str, entry: object) -> Rung:
    pairs = pairs_of(entry)
    if pairs is None:
        raise ValueError(f"{owner} must be a mapping, as in {FORM}, got {short(entry)}")
    options: dict[Any, Any] = dict(sorted_options(owner, pairs))
    most = plain(options.pop(MOST, None))
    if most is not None and (type(most) is not int or most < 1):
        raise ValueError(f"{owner}.{MOST} must be a whole number above 0, got {short(most)}")
    return most, sorted_options(owner, options)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Options of the engine. None uses the checkpoint's value, or else the strategy's default.

    Raises:
        ValueError: With the field, its value and what is allowed.
    """

    model: str | None = None
    """Checkpoint folder, name of a hub's model (org/name or org/name@revision) or of an embedded one;
    None: the embedded model made for the strategy."""
    model_name: str | None = None
    """Family of the checkpoint, as `dlstep models` lists it; None: detected from its files."""
    mask_token_id: Annotated[int, Ge(0)] | None = None
    """Token id of the mask; None: from the checkpoint, its tokenizer or its model family."""
    use_lora: bool | None = None
    """Apply the adapter at `lora_path`; None: apply it if `lora_path` is given."""
    lora_path: str | None = None
    """Folder of a LoRA adapter, trained on this checkpoint with peft."""
    pre_merge_lora: bool | None = None
    """Merge the adapter into the weights at load time, or keep it separate; None: merge."""
    decoding_strategy: str | type[Strategy] | Strategy | None = None
    """Strategy: a name, module path, .py file, class or instance; None: from the checkpoint."""
    sampling_mode: Literal["naive", "edit"] | None = None
    """`edit`: unmasked tokens may change until their block is sealed; `naive`: they never do."""
    strategy_options: StrategyOptions = ()
    """Options of the strategy and of its rule by name, as a mapping or pairs; `dlstep strategies` lists them."""
    page_size: Count | None = None
    """Positions of a KV cache page; None: 1/64 of max_model_len, at most 32."""
    num_pages: Annotated[int, Interval(ge=-1, le=(1 << 31) - 1)] | None = None
    """Number of KV cache pages; -1: as many as fit in memory; None: -1 on cuda; on a CPU enough for
    max_num_reqs requests of max_model_len, limited to 65536 positions or one such request."""
    kv_cache_gib: Annotated[float, Gt(0.0)] | None = None
    """GiB for the KV cache, instead of num_pages; None on cuda: the remaining memory."""
    gpu_memory_utilization: Annotated[float, Interval(gt=0.0, le=1.0)] | None = None
    """On cuda, instead of num_pages: share of the device's memory that may be in use, by this LLM and
    by other programs, once the KV cache is allocated; None: 0.9."""
    buffer_policy: BufferPolicy | None = None
    """Options for requests that set none, by the number of live requests; a list of mappings."""
    session_pages: Count | None = None
    """KV cache pages reserved for each session; None: enough for one request of max_model_len."""
    max_sessions: Seats = 8
    """Maximum number of sessions with pages; others recompute their KV cache when they resume."""
    max_model_len: Length | None = None
    """Maximum number of tokens of a prompt and its answer together; None: the model's limit."""
    max_num_batched_tokens: Count = 4096
    """Maximum number of rows of one forward pass."""
    max_num_reqs: Seats = 128
    """Maximum number of requests that are decoded at the same time."""
    enable_prefix_caching: bool = True
    """Reuse KV cache pages of equal prefixes between requests."""
    device: str | None = None
    """`cpu`, `cuda` or `cuda:N`; None: cuda if there is one."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """`float32`, `bfloat16` or `float16`; None: bfloat16 on cuda; on a CPU the dtype of the checkpoint if
    the processor has instructions for it and the network has 10 million parameters, else float32."""
    quantization: Literal["fp8"] | None = None
    """`fp8`: store weights of layers and experts in FP8, and quantize their inputs; on a CPU for comparison only, as it is
    slower there. None: the weights have `dtype`."""
    num_threads: Annotated[int, Gt(0)] | None = None
    """CPU threads of torch, for the whole process; None: OMP_NUM_THREADS if set, else one for a
    network of less than 10 million parameters and torch's own number for a larger one."""
    enforce_eager: bool = False
    """On cuda: launch each kernel separately, without CUDA graphs. No effect elsewhere."""
    tensor_parallel_size: Annotated[int, Interval(ge=1, le=64)] = 1
    """Processes that share the network, each on its own device; 1: a single process."""
    rank_timeout: Annotated[float, Interval(gt=0.0, le=1e6)] = 300.0
    """With tensor_parallel_size above 1: seconds without a heartbeat of another rank, or for one forward pass, after which
    the group ends with an error. Compilation and graph capture inside a forward pass count."""
    capture_graphs: Literal["start", "lazy"] = "start"
    """On cuda: capture CUDA graphs at the `start`, or `lazy`, when a batch size occurs again."""
    compile_layers: bool | None = None
    """Fuse small operations by torch.compile, which slows the first steps; None: on cuda."""
    seed: Seed = 0
    """Seed of requests that do not set one."""
    processors: object = field(default=(), hash=False)
    """Processors, which change the logits of every request before sampling, in order: names with options, like {"min_tokens":
    {"count": 8}}, or a list of names, .py files and values."""

    def __post_init__(self) -> None:
        processors_of(self.processors)  # they stay as given: a class from a file could not be pickled for other processes
        object.__setattr__(self, "buffer_policy", policy_of(self.buffer_policy, "EngineConfig.buffer_policy"))
        check_ranges(self)
        object.__setattr__(self, "strategy_options", sorted_options("EngineConfig.strategy_options", self.strategy_options))
        if self.model == "":
            raise ValueError(
                "EngineConfig.model is an empty text: give a folder or a name, or leave it out for an embedded model"
            )
        _check_memory(self)
        if self.lora_path is None and self.use_lora:
            raise ValueError("EngineConfig.use_lora=True needs lora_path, the folder of an adapter")
        if self.pre_merge_lora is not None and (self.lora_path is None or self.use_lora is False):
            raise ValueError(
                f"EngineConfig.pre_merge_lora={self.pre_merge_lora} is given without an adapter: give lora_path, its folder, "
                "and not use_lora=False"
            )
        if self.enforce_eager and self.capture_graphs == "lazy":
            raise ValueError("EngineConfig.capture_graphs='lazy' has no effect with enforce_eager=True: leave one of them out")
        if isinstance(self.decoding_strategy, Strategy) and self.strategy_options:
            names = ", ".join(dict(self.strategy_options))
            raise ValueError(
                f"decoding_strategy={self.decoding_strategy!r} is an instance, so {names} cannot be given as well: set them in "
                "the instance"
            )


def _check_memory(config: EngineConfig) -> None:
    """Raise ValueError for options of the KV cache's memory that contradict each other."""
    if config.num_pages == 0:
        raise ValueError("EngineConfig.num_pages must be above 0, or -1 for as many as there is memory for, got 0")
    sizes = {name: getattr(config, name) for name in ("num_pages", "kv_cache_gib", "gpu_memory_utilization")}
    given = [f"{name}={value}" for name, value in sizes.items() if value not in (None, -1)]
    if len(given) > 1:
        raise ValueError(f"EngineConfig takes one limit of the KV cache, got {' and '.join(given)}: give one of them")


ENGINE_FIELDS = tuple(field.name for field in fields(EngineConfig))


def engine_config(options: Mapping[str, Any]) -> EngineConfig:
    """Build a configuration. Options that are not engine fields become options of the strategy.

    Args:
        options: Fields of `EngineConfig`, and options of the strategy and its rule, by name.

    Raises:
        ValueError: For a name that is given twice, and as `EngineConfig` does.
    """
    engine = {name: value for name, value in options.items() if name in ENGINE_FIELDS}
    flat = [(name, value) for name, value in options.items() if name not in ENGINE_FIELDS]
    pairs = sorted_options("EngineConfig.strategy_options", engine.pop("strategy_options", ()))
    return EngineConfig(**engine, strategy_options=(*pairs, *flat))


# Default positions of the KV cache on a CPU: 128 answers of the embedded models.
DEFAULT_POSITIONS = 65_536
EDIT = "multi_bd_edit"
BLOCK = "bd_size"  # size of a block that is divided into sub-blocks; for checkpoints only
SUB_BLOCKS = (8, 4, 2, 1)  # sub-block sizes of fast_dllm_v2; the first proper divisor is used
EDITING = (EDIT, "dmax")  # strategies whose unmasked tokens may change until their block is sealed


StrategyChoice = str | type[Strategy]


def name_of(strategy: StrategyChoice | Strategy | None) -> str | None:
    """Return the name of a strategy in this package, or the class name of any other strategy."""
    if strategy is None or isinstance(strategy, str):
        return strategy
    cls = strategy if isinstance(strategy, type) else type(strategy)
    return strategies.name_of(cls) or cls.__name__


def mode_of(strategy: str | None) -> str:
    """Return the sampling mode of a strategy."""
    return "edit" if strategy in EDITING else "naive"


def trained_further(training: str | None, config: EngineConfig) -> str | None:
    """Return the training method of a network once an adapter is applied to it.

    An adapter for a bidirectional network is assumed to train block-wise attention with the prompt
    seen in full, unless `config` requests the original network's strategy.
    """
    choice = config.decoding_strategy
    name = name_of(choice if isinstance(choice, Strategy) else chosen(config))
    unchanged = training != BIDIRECTIONAL or name == TRAININGS[BIDIRECTIONAL][0]
    return training if unchanged else PROMPT_IN_FULL


def chosen(config: EngineConfig, default: str | None = None) -> StrategyChoice | None:
    """Return the strategy that `config` requests, or `default`, with aliases and modes resolved.

    None if `config` holds an instance, or if there is no request and no default. Raises ValueError
    for a sampling mode that the strategy does not support.
    """
    choice, mode = config.decoding_strategy, config.sampling_mode
    if isinstance(choice, Strategy):
        return None
    if choice is None:
        if mode is None or default is None or mode_of(default) == mode:
            return EDIT if default is None and mode == "edit" else default
        choice = "multi_bd"
    name = strategies.ALIASES.get(choice, choice) if isinstance(choice, str) else name_of(choice) or ""
    if name == "multi_bd" and mode == "edit":
        return EDIT
    if mode is not None and mode_of(name) != mode:
        raise ValueError(
            f"decoding_strategy={short(choice)} does not go with sampling_mode={mode!r}: 'edit' needs multi_bd or dmax, "
            "and dmax needs 'edit'"
        )
    return name if isinstance(choice, str) else choice


def resolve(config: EngineConfig, model: "Description", device: str = "cpu") -> EngineConfig:
    """Return `config` with every option chosen: as given, else from the checkpoint, else default for `device`.

    `num_pages` is -1 if it depends on the free memory, which is only measured once the network is loaded. Raises
    ValueError for options that contradict the model or each other, naming both sides.
    """
    strategy, config = _with_strategy(config, model)
    max_model_len = config.max_model_len or model.max_model_len
    if max_model_len > model.max_model_len:
        raise ValueError(
            f"EngineConfig.max_model_len must be at most {model.max_model_len}, which {model.name} was made for, "
            f"got {max_model_len}"
        )
    page_size = config.page_size or max(1, min(32, max_model_len // 64))
    num_pages = config.num_pages
    if num_pages is None and (device != "cpu" or config.kv_cache_gib or config.gpu_memory_utilization):
        num_pages = -1
    if num_pages is None:
        longest = least_pages(strategy, max_model_len, page_size)
        num_pages = max(longest, min(config.max_num_reqs * longest, DEFAULT_POSITIONS // page_size))
    return replace(config, max_model_len=max_model_len, page_size=page_size, num_pages=num_pages)


def _with_strategy(config: EngineConfig, model: "Description") -> tuple[Strategy, EngineConfig]:
    """Return the strategy, and `config` with its known options. An instance is left unchanged."""
    if isinstance(config.decoding_strategy, Strategy):
        strategy = config.decoding_strategy
        _check_fit(strategy, model)
        return strategy, config
    choice = chosen(config, model.decoding_strategy)
    if choice is None:
        raise ValueError(
            f"{model.name} does not name its decoding strategy: "
            f"give decoding_strategy, one of {', '.join(strategies.available())}"
        )
    if config.decoding_strategy is None and isinstance(choice, str):
        _check_name(model.name, choice, "decoding_strategy")
    _check_options(model.name, model.options)
    given, own = rules.with_values(dict(config.strategy_options)), rules.with_values(model.options)
    base = base_of(choice, own | given)
    known = options_of(base)
    for option, value in given.items():
        if option not in known:
            raise ValueError(unknown(f"strategy {name_of(choice)!r}", option, value, base))
    stated = own | _block_sizes(name_of(choice), base, model, given)
    stated = {option: value for option, value in stated.items() if option in known}
    if "canvas_length" in stated and given.get("canvas_length", stated["canvas_length"]) != stated["canvas_length"]:
        raise ValueError(
            f"canvas_length={short(given['canvas_length'])} does not go with {model.name}, "
            f"whose canvas has {stated['canvas_length']}"
        )
    try:
        strategy = with_options(base, stated | given)
    except ValueError as error:
        with_options(base, given)  # raises first if the given options alone are wrong
        wrong = [f"{option}={short(value)}" for option, value in stated.items() if option in str(error)]
        raise ValueError(f"{model.name} states {', '.join(wrong)}: {error}") from error
    _check_fit(strategy, model)
    mode = mode_of(name_of(choice))
    options = tuple((stated | given).items())
    return strategy, replace(config, decoding_strategy=choice, sampling_mode=mode, strategy_options=options)


def base_of(choice: StrategyChoice, options: Mapping[str, Any]) -> Strategy:
    """Return the strategy with defaults, except for a rule in `options`, which adds options."""
    strategy = strategies.PLUGINS.value(choice)
    holders = {name: options[name] for name in rules.HOLDERS if name in options}
    own = {field.name for field in fields(strategy)}
    for name, rule in holders.items():
        if name not in options_of(strategy):
            continue
        try:
            strategy = with_options(strategy, {name: rule})
        except ValueError:  # the rule contradicts a default, but may fit the given options
            others = {option: value for option, value in options.items() if option in own}
            strategy = with_options(strategy, others | {name: rule})
    return strategy


def _block_sizes(name: str | None, base: Strategy, model: "Description", given: dict[str, Any]) -> dict[str, Any]:
    """Return block sizes that follow from `bd_size`, the width of block attention, unless set.

    fast_dllm_v2 divides `bd_size` into sub-blocks (by default of 8); others use it as block size.
    """
    whole = model.options.get(BLOCK)
    if whole is None or "block_size" in model.options or {"block_size", "buffer_size"} <= set(given):
        return {}
    if name != "fast_dllm_v2":
        return {"block_size": whole}
    option = "buffer_size" if "buffer_size" in given else "block_size"
    part = next((size for size in SUB_BLOCKS if whole % size == 0 and whole > size), whole)
    if option in given:
        part = options_of(with_options(base, {option: given[option]}))[option]
    if whole % part:
        raise ValueError(
            f"{option}={part} does not divide the bd_size={whole} of {model.name}: give one that does, or both sizes"
        )
    other = "block_size" if option == "buffer_size" else "buffer_size"
    return {option: part, other: whole // part}


def refusal_of_model(strategy: Strategy, training: str | None, spec: Spec) -> Refusal | None:
    """Return why a strategy cannot decode a network with this training method; None if it can."""
    return refusal_of_training(strategies.name_of(type(strategy)), training) or strategy.refusal(spec, probe(spec))


def _check_fit(strategy: Strategy, model: "Description") -> None:
    if reason := refusal_of_model(strategy, model.training, model.spec):
        raise Refused(
            reason.field, reason.code, f"{name_of(strategy)!r} does not go with the model {model.name}: {reason.message}"
        )


def embedded_facts() -> dict[str, dict[str, Any]]:
    """Return the `dlstep` section of each embedded model's config.json, by the model's name."""
    texts = {name: (tiny.path(name) / "config.json").read_text(encoding="utf-8") for name in tiny.names()}
    return {name: json.loads(text)["dlstep"] for name, text in texts.items()}


def embedded_models_for(config: EngineConfig) -> list[str]:
    """Return embedded models for the strategy in `config`, those made for it first.

    All of them if `config` names no strategy. Raises ValueError for an unknown strategy.
    """
    models, choice = embedded_facts(), config.decoding_strategy
    if not isinstance(choice, Strategy):
        choice = chosen(config)
        if choice is None:
            return list(models)
        choice = strategies.PLUGINS.value(choice)
    name = strategies.name_of(type(choice))
    made = [model for model, facts in models.items() if facts["decoding_strategy"] == name]
    specs = {m: Spec(facts.get("mask_token_id"), (2,), 1000, facts["head_shift"]) for m, facts in models.items()}
    able = [model for model, facts in models.items() if not refusal_of_model(choice, facts["training"], specs[model])]
    return made + [model for model in able if model not in made]


def build(config: EngineConfig, spec: Spec) -> tuple[Config, Strategy]:
    """Return the arguments of `core.init` for a configuration that `resolve` returned."""
    strategy = config.decoding_strategy
    if not isinstance(strategy, Strategy):
        assert strategy is not None, "`resolve` has chosen one"
        strategy = with_options(strategies.PLUGINS.value(strategy), dict(config.strategy_options))
    shared = {field.name: getattr(config, field.name) for field in fields(Config) if field.name not in ("spec", "processors")}
    return Config(spec=spec, processors=processors_of(config.processors), **shared), strategy


def _check_name(model: str, declared: object, option: str) -> None:
    """Raise ValueError unless `declared` is the name of a known strategy (or rule).

    Only the caller may give a dotted path: it could import a module from the checkpoint folder.
    """
    plugins = strategies.PLUGINS if option == "decoding_strategy" else rules.PLUGINS
    if not (isinstance(declared, str) and plugins.is_known(declared)):
        raise ValueError(
            f"{model} asks for {option}={short(declared)}, and a checkpoint may only ask for one of "
            f"{', '.join(plugins.available())}: give {option} yourself if you trust another one"
        )


def _check_options(model: str, options: Mapping[str, Any]) -> None:
    """Raise ValueError for options that no strategy or rule has. Values are checked later."""
    for option, value in options.items():
        if option == BLOCK:
            if type(value) is not int or value <= 0:
                raise ValueError(f"{model} states {option}={short(value)}, which must be an integer above 0")
        elif not _owners(rules.PLUGINS, option) and not _owners(strategies.PLUGINS, option):
            raise ValueError(f"{model} states {option}={short(value)}, which no strategy knows: take it out of its config.json")
        elif option in rules.HOLDERS:
            _check_name(model, value, option)


def unknown(owner: str, name: str, value: object, strategy: Strategy) -> str:
    """Return the message for an option that neither the engine nor the strategy `owner` has."""
    own = options_of(strategy)
    hint = _location(name, value, own) or foreign(name) or did_you_mean(name, [*own, *ENGINE_FIELDS])
    return unknown_option(owner, name, value, own, hint)


def _location(name: str, value: object, own: Mapping[str, Any]) -> str:
    """Return a hint at where an option of this name belongs; empty if it is unknown."""
    here = ELSEWHERE.get(name, name)
    if here in (field.name for field in fields(SamplingParams)):
        return f"it is set for each request, as SamplingParams({here}={short(value)})"
    able, owners = _owners(rules.PLUGINS, name), _owners(strategies.PLUGINS, name)
    if able and "rule" not in own:
        return f"{name} is an option of rules such as {able[0]}, which this strategy does not take"
    if able:
        *others, last = able
        of = f"the rules {', '.join(others)} and {last}: give one of them" if others else f"rule {last}: give it"
        return f"{name} is an option of {of} as well, as rule={able[0]!r}"
    return f"{name} is an option of {', '.join(owners)}" if owners else ""


def _owners(plugins: PluginGroup[Any], option: str) -> list[str]:
    """Return the strategies or rules of this package that have an option of this name."""
    return [name for name in plugins.own() if option in (field.name for field in fields(plugins.load(name)))]


# Names of options in other engines and in the model authors' decoding loops, and what to give here instead.
ELSEWHERE = {
    "max_num_seqs": "max_num_reqs",
    "max_seqs": "max_num_reqs",
    "max_batch_size": "max_num_reqs",
    "max_running_requests": "max_num_reqs",
    "max_seq_len": "max_model_len",
    "max_seq_length": "max_model_len",
    "max_context_len": "max_model_len",
    "context_length": "max_model_len",
    "model_path": "model",
    "max_prefill_tokens": "max_num_batched_tokens",
    "chunked_prefill_size": "max_num_batched_tokens",
    "kvcache_block_size": "page_size",
    "num_kvcache_blocks": "num_pages",
    "num_gpu_blocks_override": "num_pages",
    "mem_fraction_static": "gpu_memory_utilization",
    "disable_cuda_graph": "enforce_eager",
    "disable_radix_cache": "enable_prefix_caching=False",
    "tp_size": "tensor_parallel_size",
    "device_ids": "device",
    "random_seed": "seed",
    "torch_compile": "compile_layers",
    "enable_torch_compile": "compile_layers",
    "torch_dtype": "dtype",
    "device_map": "device",
    "tokenizer_path": "model, whose folder holds the tokenizer",
    "revision": "model='org/name@revision'",
    "enable_lora": "lora_path",
    "lora_modules": "lora_path",
    "mask_id": "mask_token_id",
    "block_length": "block_size",
    "bd_size": "block_size",
    "small_block_size": "block_size",
    "threshold": "accept_threshold",
    "decoding_thresholds": "accept_threshold and so on, each an option",
    "confidence": "accept_threshold",
    "steps": "rule='quota' with steps_per_block",
    "alg": "rule='quota' with order",
    "alg_temp": "rule='quota' with order_temperature",
    "dllm_algorithm": "rule or decoding_strategy",
    "dual_cache": "decoding_strategy='dual_cache' with cache='dual'",
    "use_cache": "decoding_strategy='dual_cache' with cache='prefix'",
    "steps_per_canvas": "max_denoising_steps",
    "max_new_tokens": "max_tokens",
    "max_length": "max_tokens",
    "gen_length": "max_tokens",
    "eos_token_id": "stop_token_ids",
    "stop_strings": "stop",
    "cfg_scale": "processors={'guidance': {'cfg_scale': ...}}",
    "repetition_penalty": "processors={'repetition_penalty': {'penalty': ...}}",
    "logit_bias": "processors={'logit_bias': {'bias': ...}}",
    "min_tokens": "processors={'min_tokens': {'count': ...}}",
}
NOT_NEEDED = {
    "trust_remote_code": "code of checkpoints is never run",
    "pipeline_parallel_size": "layers of an LLM run one after the other on each device: give tensor_parallel_size",
    "enable_expert_parallel": "tensor_parallel_size shards every expert by its inner width, so that all ranks have equal work",
    "expert_parallel_size": "tensor_parallel_size shards every expert by its inner width, so that all ranks have equal work",
    "data_parallel_size": "an LLM is one engine: create several, or use --replicas of `dlstep serve`",
    "dp_size": "an LLM is one engine: create several, or use --replicas of `dlstep serve`",
    "swap_space": "a preempted request is recomputed, nothing is swapped",
    "cpu_offload_gb": "weights stay on the device",
    "enable_chunked_prefill": "long prompts are always cut into pieces where the strategy allows it",
    "tokenizer": "the tokenizer is read from the model's folder",
    "tokenizer_mode": "the tokenizer is read from the model's folder",
    "skip_tokenizer_init": "prompts may be token ids in any case",
    "load_format": "weights are read from safetensors",
    "download_dir": "HF_HOME is the folder of downloads",
    "kv_cache_dtype": "keys and values have the dtype of the weights",
    "kv_cache_layout": "the device decides",
    "multi_block_prefix_full": "the strategy decides: d2f shows the whole prompt to every prompt position, others do not",
    "attention_backend": "the device decides",
    "attn_implementation": "the device decides",
    "attn_impl": "the device decides",
}


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option of a strategy or a rule in a listing; `limits` are pairs of words and number."""

    name: str
    hint: Any
    default: object
    limits: tuple[tuple[str, Any], ...]
    help: str

    @property
    def allowed(self) -> str:
        """Return the allowed range in words; empty if every value is allowed."""
        return ", ".join(f"{words} {limit}" for words, limit in self.limits)

    def line(self) -> str:
        """Return the help text with range and default."""
        facts = "; ".join(filter(None, (self.allowed, f"default {self.default}")))
        return f"{self.help} ({facts})".strip()


def option_rows(value: Options) -> list[OptionRow]:
    """Return the options of a strategy or a rule. A rule that it holds is listed by name."""
    cls = type(value)
    texts, hints, bounds = field_help(cls), get_type_hints(cls), get_type_hints(cls, include_extras=True)
    rows: list[OptionRow] = []
    for own in fields(value):
        default, hint = values_of(value)[own.name], hints[own.name]
        if isinstance(default, Options):
            default = values_of(by_default(cls))[own.name]
            default, hint = rules.name_of(type(default)) or type(default).__name__, str
        rows.append(OptionRow(own.name, hint, default, limits_of(bounds[own.name]), texts[own.name]))
    return rows


def field_help(owner: type) -> dict[str, str]:
    """Return the docstring of each dataclass field, inherited ones included; "" without source."""
    texts: dict[str, str] = {}
    for cls in reversed(owner.__mro__):
        texts |= _own_help(cls)
    return {field.name: texts.get(field.name, "") for field in fields(owner)}


@cache
def _own_help(cls: type) -> dict[str, str]:
    """Return the docstring of each field that the class itself defines; none without source."""
    try:
        found = parse_from_object(cls)
    except TypeError:  # of a class without a file, such as `object`
        return {}
    return {param.arg_name: param.description for param in found.params if param.description}


def parts_of(value: Options) -> Iterator[Options]:
    """Yield a strategy or rule, then the rule that it holds, then the rule that this rule wraps."""
    yield value
    for part in values_of(value).values():
        if isinstance(part, Options):
            yield from parts_of(part)


def paragraphs(value: Options) -> list[str]:
    """Return the paragraphs of the docstring of the value's module, or else of its class."""
    module = sys.modules[type(value).__module__]
    return (inspect.getdoc(module) or inspect.getdoc(type(value)) or type(value).__name__).split("\n\n")


def foreign(name: str, mark: str = "") -> str:
    """Return a hint for an option of another engine, with `mark` before dlstep's name; empty if the option is unknown."""
    if name in ELSEWHERE:
        return f"here it is {mark}{ELSEWHERE[name]}"
    return f"leave it out, {NOT_NEEDED[name]}" if name in NOT_NEEDED else ""
