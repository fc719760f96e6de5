"""Options of the engine: names, meaning and bounds. How they are worked out with the facts
of a model is said in `resolve`.
"""

import json
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Interval

from . import tiny
from .core import Strategy
from .core.checks import check_ranges, short
from .core.request import Probability, Seed
from .core.soft import MergeMode
from .core.spec import Count, Length, Seats

DTYPES = ("float32", "bfloat16", "float16")
SAMPLING_MODES = ("naive", "edit")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Options of the engine; None takes the value from the checkpoint, or else the strategy's default.

    Raises ValueError naming field, value and what is allowed.
    """

    model: str | None = None
    """Folder of a checkpoint, or the name of an embedded model; None: the embedded model made for the strategy."""
    model_name: str | None = None
    """Family of the checkpoint, one of those that `dlstep models` lists; None: as its files say."""
    mask_token_id: Annotated[int, Ge(0)] | None = None
    """Id that undecided positions are fed as; None: what the checkpoint says, then its tokenizer, then its family's."""
    use_lora: bool | None = None
    """Apply the adapter at `lora_path`; None: if that is given."""
    lora_path: str | None = None
    """Folder of a LoRA adapter, trained on this checkpoint with peft."""
    pre_merge_lora: bool | None = None
    """Add the adapter to the weights when they are loaded, or else keep it beside them; None: add it."""
    decoding_strategy: str | Strategy | None = None
    """Name of a strategy, dotted path of a module with one, or (in Python) a strategy value; None: what the checkpoint says."""
    sampling_mode: str | None = None
    """`naive`: a decided token is never changed; `edit`: it may be, until its block is sealed; None: as the strategy does."""
    block_size: Annotated[int, Gt(0)] | None = None
    """Positions of a block."""
    buffer_size: Annotated[int, Gt(0)] | None = None
    """Blocks that may be unfinished at a time; 1 is single-block diffusion."""
    accept_threshold: Probability | None = None
    """A position is decided when the probability of its token is above this."""
    add_block_threshold: Probability | None = None
    """The next block opens when this share of the last one is decided."""
    semi_complete_threshold: Annotated[float, Interval(gt=0.0, le=1.0)] | None = None
    """A block may be forced to decide one position when this share of the block before it is decided."""
    token_stability_threshold: Probability | None = None
    """Above 0: the next block opens only when the last one is decided entirely."""
    fold_commits: bool | None = None
    """Store a finished block during the next block's forward, not in one of its own."""
    edit_threshold: Probability | None = None
    """edit: a decided token is changed when another one is best and its probability is above this."""
    max_post_edit_steps: Annotated[int, Ge(0)] | None = None
    """edit: forwards that may still change a block once it holds no mask."""
    penalty_lambda: Annotated[float, Ge(0.0)] | None = None
    """edit: what a token's logit loses where the token in front of it is the same."""
    remasking: bool | None = None
    """edit: a position whose probability falls below `remask_threshold` is masked again, at most once."""
    remask_threshold: Probability | None = None
    """edit with `remasking`: see there."""
    token_merge_mode: MergeMode | None = None
    """dmax: how a decided token is fed again: blended with the mask (`dmax_topk`), or its best rivals added to it."""
    token_merge_top_k: Annotated[int, Gt(0)] | None = None
    """dmax, `iter_smooth_topk`: how many tokens are added."""
    token_merge_renormalize: bool | None = None
    """dmax, `dmax_topk`: keep the expected norm of the blended embedding."""
    token_merge_weight: Annotated[float, Ge(0.0)] | None = None
    """dmax, `iter_smooth_topk`: weight of what is added; 0 feeds plain tokens."""
    fdv2_use_block_cache: bool | None = None
    """fast_dllm_v2: refine a sub-block against what earlier forwards stored of the other ones."""
    cache: Literal["none", "prefix", "dual"] | None = None
    """dual_cache: what is kept while a block is decoded: nothing, what is before it, or what is on both sides."""
    steps_per_block: Annotated[int, Gt(0)] | None = None
    """dual_cache: decide every block in so many even steps, whatever the confidence."""
    canvas_length: Annotated[int, Gt(0)] | None = None
    """diffusion_gemma: positions of a canvas, which the model fixes."""
    max_denoising_steps: Annotated[int, Gt(0)] | None = None
    """diffusion_gemma: most forwards that denoise a canvas."""
    entropy_bound: Annotated[float, Gt(0.0)] | None = None
    """diffusion_gemma: the surest positions keep their token up to this sum of entropies, in nats; others are noise anew."""
    t_min: Annotated[float, Ge(0.0)] | None = None
    """diffusion_gemma: the temperature falls from `t_max` towards this."""
    t_max: Annotated[float, Gt(0.0)] | None = None
    """diffusion_gemma: temperature of the first forward of a canvas."""
    stability_threshold: Annotated[int, Ge(0)] | None = None
    """diffusion_gemma: a canvas may end when it was best in so many forwards before, too."""
    confidence_threshold: Annotated[float, Gt(0.0)] | None = None
    """diffusion_gemma: a canvas may end when the mean entropy is below this, in nats."""
    page_size: Count | None = None
    """Positions of a page of keys and values; None: 1/64 of max_model_len, at most 32."""
    num_pages: Annotated[int, Interval(ge=-1, le=(1 << 31) - 1)] | None = None
    """Pages in all; None: for max_num_reqs longest requests, but for no more than 65536 positions or one such request; -1: as
    many as there is memory for."""
    kv_cache_gib: Annotated[float, Gt(0.0)] | None = None
    """num_pages=-1: GiB that keys and values may take, which must be said on a CPU; None on cuda: what is left."""
    gpu_memory_utilization: Annotated[float, Interval(gt=0.0, le=1.0)] | None = None
    """num_pages=-1 on cuda: share of the memory that network, forward and pages may take together; None: 0.9."""
    session_pages: Count | None = None
    """Pages that each session has to itself, taken when it begins; None: for one request of max_model_len."""
    max_sessions: Seats = 8
    """Most sessions that hold pages at a time; of more, the one that rested longest computes them anew when it goes on."""
    max_model_len: Length | None = None
    """Most tokens of a prompt and its answer together; None: what the model was made for."""
    max_num_batched_tokens: Count = 4096
    """Most rows of one forward."""
    max_num_reqs: Seats = 128
    """Most requests that are decoded at a time."""
    enable_prefix_caching: bool = True
    """Reuse pages of equal prefixes between requests."""
    device: str | None = None
    """`cpu`, `cuda` or `cuda:N`; None: cuda if there is one."""
    dtype: str | None = None
    """`float32`, `bfloat16` or `float16`; None: float32 on a CPU, bfloat16 on cuda."""
    num_threads: Annotated[int, Gt(0)] | None = None
    """Threads that torch computes with on a CPU, in the whole process; None: OMP_NUM_THREADS if set, else one for a network of
    less than 10 million parameters and torch's own number for a larger one."""
    enforce_eager: bool = False
    """On cuda: launch every kernel of a forward by itself, without graphs; elsewhere that is done in any case."""
    compile_layers: bool | None = None
    """Fuse what is small in the network's layers by torch.compile, for some seconds in the first steps; None: on cuda."""
    seed: Seed = 0
    """Seed of the requests that bring none of their own."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.sampling_mode is not None and self.sampling_mode not in SAMPLING_MODES:
            modes = ", ".join(SAMPLING_MODES)
            raise ValueError(f"EngineConfig.sampling_mode must be one of {modes}, got {short(self.sampling_mode)}")
        if self.dtype is not None and self.dtype not in DTYPES:
            raise ValueError(f"EngineConfig.dtype must be one of {', '.join(DTYPES)}, got {short(self.dtype)}")
        if self.num_pages == 0:
            raise ValueError("EngineConfig.num_pages must be above 0, or -1 for as many as there is memory for, got 0")
        for name, value in (("kv_cache_gib", self.kv_cache_gib), ("gpu_memory_utilization", self.gpu_memory_utilization)):
            if value is not None and self.num_pages != -1:
                raise ValueError(f"EngineConfig.{name}={value} does nothing without num_pages=-1, got {self.num_pages}")
        if self.kv_cache_gib is not None and self.gpu_memory_utilization is not None:
            raise ValueError(
                f"EngineConfig.kv_cache_gib={self.kv_cache_gib} and gpu_memory_utilization={self.gpu_memory_utilization} both "
                "say how much memory pages may take: give one of them"
            )
        if self.lora_path is None and self.use_lora:
            raise ValueError("EngineConfig.use_lora=True needs lora_path, the folder of an adapter")
        if self.lora_path is None and self.pre_merge_lora is not None:
            raise ValueError(
                f"EngineConfig.pre_merge_lora={self.pre_merge_lora} is given without an adapter: give lora_path, its folder"
            )
        if isinstance(self.decoding_strategy, Strategy) and (given := given_strategy_options(self)):
            raise ValueError(
                f"decoding_strategy={self.decoding_strategy!r} is a value, so {', '.join(given)} cannot be given beside it: "
                "put them into the value"
            )


# The options that only build the strategy; all others are the engine's.
ENGINE_OPTIONS = {
    "model", "model_name", "mask_token_id", "use_lora", "lora_path", "pre_merge_lora", "decoding_strategy", "sampling_mode",
    "page_size", "num_pages", "kv_cache_gib", "gpu_memory_utilization", "max_model_len", "max_num_batched_tokens",
    "max_num_reqs", "enable_prefix_caching", "device", "dtype", "num_threads", "enforce_eager", "compile_layers",
    "session_pages", "max_sessions",
    "seed",
}  # fmt: skip
STRATEGY_OPTIONS = tuple(field.name for field in fields(EngineConfig) if field.name not in ENGINE_OPTIONS)


def engine_config(options: dict[str, Any]) -> EngineConfig:
    """The configuration with these options. Raises ValueError for a name that is none, listing those that are."""
    known = [field.name for field in fields(EngineConfig)]
    for name in options:
        if name not in known:
            raise ValueError(f"{name!r} is no option of the engine: choose from {', '.join(known)}")
    return EngineConfig(**options)


def given_strategy_options(config: EngineConfig) -> dict[str, Any]:
    """The strategy options that `config` sets."""
    values = {name: attrgetter(name)(config) for name in STRATEGY_OPTIONS}
    return {name: value for name, value in values.items() if value is not None}


def embedded_models() -> dict[str, str]:
    """Names of the embedded models, each with the name of the strategy it was trained for."""
    folders = {name: tiny.path(name) for name in tiny.names()}
    facts = {name: json.loads((folder / "config.json").read_text(encoding="utf-8")) for name, folder in folders.items()}
    return {name: facts[name]["dlstep"]["decoding_strategy"] for name in folders}
