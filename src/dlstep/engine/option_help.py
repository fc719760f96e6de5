"""Options for people: listings of strategies and rules, help texts, and hints at what an unknown option may mean."""

import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, get_type_hints

from docstring_parser import parse_from_object

from .. import rules
from ..core import Options, options_of
from ..core.checks import limits_of
from ..core.options import by_default

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
    "mem_fraction_static": "gpu_memory_utilization with num_pages=-1",
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
    "cfg_scale": "guidance by a second forward pass is not supported",
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
    for field in fields(value):
        default, hint = vars_of(value)[field.name], hints[field.name]
        if isinstance(default, Options):
            default = vars_of(by_default(cls))[field.name]
            default, hint = rules.name_of(type(default)) or type(default).__name__, str
        rows.append(OptionRow(field.name, hint, default, limits_of(bounds[field.name]), texts[field.name]))
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


def vars_of(value: Options) -> dict[str, object]:
    """Return the fields of a value, by name."""
    known = options_of(value)
    return {field.name: known[field.name] for field in fields(value)}


def parts_of(value: Options) -> Iterator[Options]:
    """Yield a strategy or rule, then the rule that it holds, then the rule that this rule wraps."""
    yield value
    for part in vars_of(value).values():
        if isinstance(part, Options):
            yield from parts_of(part)


def paragraphs(value: Options) -> list[str]:
    """Return the paragraphs of the docstring of the value's module, or else of its class."""
    module = sys.modules[type(value).__module__]
    return (inspect.getdoc(module) or inspect.getdoc(type(value)) or type(value).__name__).split("\n\n")


def foreign(name: str, mark: str = "") -> str:
    """Return what an option of another engine is called here, with `mark` before its name; empty for an unknown one."""
    if name in ELSEWHERE:
        return f"here it is {mark}{ELSEWHERE[name]}"
    return f"leave it out, {NOT_NEEDED[name]}" if name in NOT_NEEDED else ""
