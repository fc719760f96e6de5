"""What the folder of a LoRA adapter holds: its options, as peft understands them, and its tensors. A pickle is never opened."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from .shards import PICKLES

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  # what peft puts in front of the names of the network that it wraps
PART = re.compile(r"(?P<module>.+)\.(?P<part>lora_[AB]\.weight|lora_magnitude_vector)(?:\.weight)?")

# Options that say what is added where.
USED = (
    "alpha_pattern", "bias", "exclude_modules", "layers_pattern", "layers_to_transform", "lora_alpha", "modules_to_save", "r",
    "rank_pattern", "target_modules", "use_dora", "use_rslora",
)  # fmt: skip
# Options that say where an adapter comes from, how it was trained or how it began, or that only matter beside others.
PASSED_OVER = (
    "auto_mapping", "base_model_name_or_path", "corda_config", "eva_config", "inference_mode", "init_lora_weights",
    "lora_dropout", "lora_ga_config", "loftq_config", "megatron_core", "peft_type", "peft_version", "qalora_group_size",
    "revision", "runtime_config", "task_type",
)  # fmt: skip
# Beginnings of A and B that leave the weights of the network as they are.
PLAIN_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter as it was saved: `pairs` are the low-rank parts of each module, `others` the tensors beside them.

    All names are without the `prefix` that they have in the file.
    """

    folder: Path
    config: Any
    pairs: dict[str, dict[str, Tensor]]
    others: dict[str, Tensor]
    prefix: str = PREFIX

    @property
    def all_linear(self) -> bool:
        """Whether it is for every linear module but the head."""
        targets = self.config.target_modules
        return isinstance(targets, str) and targets.lower() == "all-linear"

    def targets(self, module: str) -> bool:
        """Whether it is for the module of this name."""
        from peft.tuners.tuners_utils import check_target_module_exists

        return bool(check_target_module_exists(self.config, module))

    def rank(self, module: str) -> int:
        """The rank of what it adds to a module."""
        return self._of(module, self.config.rank_pattern, self.config.r)

    def alpha(self, module: str) -> float:
        """The numerator of the scale of what it adds to a module."""
        return float(self._of(module, self.config.alpha_pattern, self.config.lora_alpha))

    def _of(self, module: str, pattern: dict[str, Any] | None, default: Any) -> Any:
        from peft.utils.other import get_pattern_key

        pattern = pattern or {}
        return pattern.get(get_pattern_key(list(pattern), module), default)

    def saves(self, name: str) -> bool:
        """Whether the tensor of this name belongs to a module that was saved as a whole."""
        module = name.rpartition(".")[0]
        return any(re.match(rf"(^|.*\.){saved}($|\..*)", module) for saved in self.config.modules_to_save or ())

    def replaces(self, name: str) -> bool:
        """Whether the tensor of this name takes the place of the network's."""
        module, _, kind = name.rpartition(".")
        trained = {"all": True, "lora_only": module in self.pairs}.get(self.config.bias, False)
        return self.saves(name) or (kind == "bias" and trained)


def read_adapter(folder: Path) -> Adapter:
    """The adapter in `folder`.

    Raises FileNotFoundError for a file that is missing, ValueError without peft and for options that are not supported.
    """
    try:
        from peft import LoraConfig
    except ModuleNotFoundError as error:
        if error.name != "peft":
            raise
        raise ValueError("EngineConfig.lora_path needs the package peft: pip install 'dlstep[lora]'") from None
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} holds no {CONFIG}: give lora_path the folder of an adapter")
    if not (folder / TENSORS).is_file():
        pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        found = f" ({', '.join(pickles)} may hold code and is not read: convert it to safetensors)" if pickles else ""
        raise FileNotFoundError(f"{folder} holds no {TENSORS}{found}")
    facts = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    _check(folder, facts)
    config = LoraConfig(**{name: value for name, value in facts.items() if name in USED})
    pairs: dict[str, dict[str, Tensor]] = {}
    others: dict[str, Tensor] = {}
    tensors = load_file(folder / TENSORS)
    prefix = PREFIX if all(name.startswith(PREFIX) for name in tensors) else ""
    for name, tensor in tensors.items():
        name = name.removeprefix(prefix)
        if match := PART.fullmatch(name):
            pairs.setdefault(match["module"], {})[match["part"]] = tensor
        else:
            # Where peft wrapped a module, the one that it wrapped has a name of its own.
            others[re.sub(r"\.(base_layer|modules_to_save)(?=\.\w+$)", "", name)] = tensor
    return Adapter(folder, config, pairs, others, prefix)


def _check(folder: Path, facts: Any) -> None:
    """Raise ValueError for options that would be ignored."""
    if not isinstance(facts, dict) or facts.get("peft_type") != "LORA":
        kind = facts.get("peft_type") if isinstance(facts, dict) else None
        raise ValueError(f"the adapter in {folder} has peft_type {kind!r}: only LORA is supported")
    known = (*USED, *PASSED_OVER)
    wrong = [f"{name}={value!r}" for name, value in facts.items() if name not in known and value not in (None, False, {}, [])]
    if facts.get("init_lora_weights") not in PLAIN_STARTS:
        wrong.append(f"init_lora_weights={facts['init_lora_weights']!r}")
    if facts.get("bias", "none") not in ("none", "all", "lora_only"):
        wrong.append(f"bias={facts['bias']!r}")
    if not facts.get("target_modules"):
        wrong.append(f"target_modules={facts.get('target_modules')!r}")
    if wrong:
        raise ValueError(
            f"the adapter in {folder} has options that are not supported: {', '.join(wrong)}; save it as a plain LoRA adapter"
        )
