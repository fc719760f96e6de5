"""Read the folder of a LoRA adapter: options as peft defines them, and tensors. Never a pickle."""

import re
from dataclasses import dataclass, field
from math import isfinite
from operator import attrgetter
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from ..extras import require
from .digests import FileIdentity, identify
from .patterns import Patterns
from .reading import RefuseErrors, briefly, read_object
from .shards import advice_on_pickles, read_header
from .sizes import is_count

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  # peft's prefix for names of the wrapped network
DRAFTS_ONLY = "linear_spec_lora"  # folder of the adapter in checkpoints of Nemotron-Labs-Diffusion
PART = re.compile(r"(?P<module>.+)\.(?P<part>lora_[AB]\.weight|lora_magnitude_vector)(?:\.weight)?")

# Options that define the updates.
USED = (
    "alpha_pattern", "bias", "exclude_modules", "layers_pattern", "layers_to_transform", "lora_alpha", "modules_to_save", "r",
    "rank_pattern", "target_modules", "use_dora", "use_rslora",
)  # fmt: skip
# Options about provenance, training or initialisation, or without effect on their own.
PASSED_OVER = (
    "auto_mapping", "base_model_name_or_path", "corda_config", "eva_config", "inference_mode", "init_lora_weights",
    "lora_dropout", "lora_ga_config", "loftq_config", "megatron_core", "peft_type", "peft_version", "qalora_group_size",
    "revision", "runtime_config", "task_type",
)  # fmt: skip
# Initialisations of A and B that leave the network's weights unchanged.
PLAIN_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter as saved. Names of modules and tensors are without the prefix of the file."""

    folder: Path
    """Folder of the adapter."""
    config: Any
    """Configuration, as peft reads it."""
    pairs: dict[str, dict[str, Tensor]]
    """Low-rank tensors by module and part."""
    others: dict[str, Tensor]
    """The other tensors by name."""
    prefix: str = PREFIX
    """Prefix of all names in the file."""
    patterns: Patterns = field(default_factory=lambda: Patterns("the adapter"), compare=False)
    """Time-limited matching of the regexes in the configuration."""
    files: tuple[FileIdentity, ...] = ()
    """Identity of each file before it was read."""

    @property
    def drafts_only(self) -> bool:
        """Return whether the adapter applies only to the rows of drafts, which only `self_speculation` has."""
        return self.folder.name == DRAFTS_ONLY

    @property
    def all_linear(self) -> bool:
        """Return whether the adapter targets every linear module except the head."""
        targets = self.config.target_modules
        return isinstance(targets, str) and targets.lower() == "all-linear"

    def targets(self, module: str) -> bool:
        """Return whether a module is targeted: peft takes a text as regex, a list as suffixes.

        Args:
            module: Name of a module of the network.
        """
        excluded = self.config.exclude_modules
        if (excluded and self._named("exclude_modules", excluded, module)) or self.saves(f"{module}.weight"):
            return False
        chosen = self.config.target_modules
        if not self._named("target_modules", chosen, module):
            return False
        layers = self.config.layers_to_transform
        if isinstance(chosen, str) or module in chosen or layers in (None, []):
            return True
        return self._layer(module) in ([layers] if isinstance(layers, int) else layers)

    def _named(self, option: str, names: Any, module: str) -> bool:
        """Return whether a regex matches the module's name, or a list holds a suffix of it."""
        if isinstance(names, str):
            return self.patterns.fullmatch(option, names, module) is not None
        return module in names or any(module.endswith(f".{name}") for name in names)

    def _layer(self, module: str) -> int | None:
        """Return the number of the module's layer; None if its name has none."""
        stated = self.config.layers_pattern
        for pattern in [stated] if isinstance(stated, str) and stated else stated or [r"[^.]*"]:
            start = r".*?\." if not stated else r"(?:^|.*?\.)"
            match = self.patterns.fullmatch("layers_pattern", rf"{start}{pattern}\.(?P<layer_number>\d+)\..*", module)
            if match is not None:
                return int(match["layer_number"])
        return None

    def rank(self, module: str) -> int:
        """Return the rank of the update of a module.

        Args:
            module: Name of a targeted module.
        """
        return self._of(module, "rank_pattern", self.config.r)

    def alpha(self, module: str) -> float:
        """Return alpha, the numerator of the update's scale, for a module.

        Args:
            module: Name of a targeted module.
        """
        return float(self._of(module, "alpha_pattern", self.config.lora_alpha))

    def _of(self, module: str, option: str, default: Any) -> Any:
        """Return the value of the first key that matches a suffix of the name, or the default."""
        values: dict[str, Any] = attrgetter(option)(self.config) or {}
        keys = (key for key in values if self.patterns.fullmatch(option, rf"(.*\.)?({key})", module))
        return values.get(next(keys, module), default)

    def saves(self, name: str) -> bool:
        """Return whether a tensor belongs to a module that was saved as a whole.

        Args:
            name: Name of a tensor of the network.
        """
        module = name.rpartition(".")[0]
        saved = self.config.modules_to_save or ()
        return any(self.patterns.fullmatch("modules_to_save", rf"(^|.*\.){pattern}($|\..*)", module) for pattern in saved)

    def replaces(self, name: str) -> bool:
        """Return whether a saved tensor replaces the network's.

        Args:
            name: Name of a tensor of the adapter.
        """
        module, _, kind = name.rpartition(".")
        trained = {"all": True, "lora_only": module in self.pairs}.get(self.config.bias, False)
        return self.saves(name) or (kind == "bias" and trained)


@briefly
def read_adapter(folder: Path) -> Adapter:
    """Return the adapter in a folder.

    Args:
        folder: Folder with the files that peft saves.

    Raises:
        FileNotFoundError: For a missing file.
        ValueError: Without peft, or for unsupported options.
    """
    require("EngineConfig.lora_path", "lora")
    from peft import LoraConfig

    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} holds no {CONFIG}: give lora_path the folder of an adapter")
    if not (folder / TENSORS).is_file():
        raise FileNotFoundError(f"{folder} holds no {TENSORS}{advice_on_pickles(folder)}")
    owner = f"the adapter in {folder}"
    files = (identify(folder / CONFIG), identify(folder / TENSORS))
    facts = read_object(folder / CONFIG)
    _check(folder, facts)
    patterns = Patterns(owner)
    _check_values(patterns, facts)
    with RefuseErrors(f"{folder / CONFIG}, read as a LoraConfig"):
        config = LoraConfig(**{name: value for name, value in facts.items() if name in USED})
    pairs: dict[str, dict[str, Tensor]] = {}
    others: dict[str, Tensor] = {}
    read_header(folder / TENSORS)
    with RefuseErrors(f"{folder / TENSORS} cannot be read"):
        tensors = load_file(folder / TENSORS)
    prefix = PREFIX if all(name.startswith(PREFIX) for name in tensors) else ""
    for name, tensor in tensors.items():
        name = name.removeprefix(prefix)
        if match := PART.fullmatch(name):
            pairs.setdefault(match["module"], {})[match["part"]] = tensor
        else:
            # peft inserts a name component for the module that it wraps.
            others[re.sub(r"\.(base_layer|modules_to_save)(?=\.\w+$)", "", name)] = tensor
    return Adapter(folder, config, pairs, others, prefix, patterns, files)


def _check(folder: Path, facts: dict[str, Any]) -> None:
    """Raise ValueError for options that would otherwise be ignored."""
    if facts.get("peft_type") != "LORA":
        raise ValueError(f"the adapter in {folder} has peft_type {facts.get('peft_type')!r}: only LORA is supported")
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


def _check_values(patterns: Patterns, facts: dict[str, Any]) -> None:
    """Raise ValueError for an option value of the wrong type, and for an invalid regex."""
    ways = {
        "alpha_pattern": _is_table,
        "exclude_modules": _is_text_or_names,
        "layers_pattern": _is_text_or_names,
        "layers_to_transform": lambda value: _is_number(value) or (isinstance(value, list) and all(map(_is_number, value))),
        "lora_alpha": _is_number,
        "modules_to_save": _is_names,
        "r": is_count,
        "rank_pattern": lambda value: _is_table(value) and all(map(is_count, value.values())),
        "target_modules": _is_text_or_names,
        "use_dora": lambda value: isinstance(value, bool),
        "use_rslora": lambda value: isinstance(value, bool),
    }
    for name, fits in ways.items():
        value = facts.get(name)
        if value is not None and not fits(value):
            raise ValueError(f"{patterns.owner} states {name}={value!r}, which peft never writes: save it again")
    for name in ("target_modules", "exclude_modules", "layers_pattern"):
        if isinstance(value := facts.get(name), str) and value:
            patterns.check(name, value)
    for name in ("alpha_pattern", "rank_pattern", "modules_to_save"):
        for value in facts.get(name) or ():
            patterns.check(name, value)
    if isinstance(listed := facts.get("layers_pattern"), list):
        for value in listed:
            patterns.check("layers_pattern", value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_text_or_names(value: object) -> bool:
    return isinstance(value, str) or _is_names(value)


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))
