"""LoRA adapters: read their folders, then merge them into the network's weights, or keep them as separate modules.

Options are as peft defines them. An adapter names modules as its checkpoint does. Targets, ranks and scales are resolved
under those names; the family's rules map them to the network's parameters.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..distributed.ranks import ALONE, Ranks
from ..extras import require
from .checkpoint import Checkpoint
from .layers import Adapted, Gates
from .reading import Shape, advice_on_pickles, read_contents, read_object, refuse_errors
from .sharding import parameter_shards
from .weights import (
    Placement,
    Shares,
    Tensors,
    WeightRules,
    empty_network,
    make_plan,
    network_tensors,
    parameter_part,
    shortened,
)

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  # peft's prefix for names of the wrapped network
PARTS = ("lora_A.weight", "lora_B.weight")  # per module
DRAFTS_ONLY = "linear_spec_lora"  # folder of the adapter in checkpoints of Nemotron-Labs-Diffusion
INSERTED = re.compile(r"\.(base_layer|modules_to_save)(?=\.\w+$)")  # name components of modules that peft wraps

# Options that define the updates.
USED = (
    "alpha_pattern", "bias", "exclude_modules", "layers_pattern", "layers_to_transform", "lora_alpha", "modules_to_save", "r",
    "rank_pattern", "target_modules", "use_rslora",
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
    tensors: dict[str, Tensor]
    """Tensors by name: low-rank ones, named by module and part, and those that replace tensors of the network."""
    prefix: str = PREFIX
    """Prefix of all names in the file."""
    files: tuple[Path, ...] = ()
    """Files of the adapter."""

    @property
    def drafts_only(self) -> bool:
        """Return whether the adapter applies only to the rows of drafts, which only `self_speculation` has."""
        return self.folder.name == DRAFTS_ONLY

    @property
    def modules(self) -> set[str]:
        """Return the names of the modules with low-rank tensors."""
        return {name.removesuffix(f".{part}") for name in self.tensors for part in PARTS if name.endswith(f".{part}")}

    @property
    def all_linear(self) -> bool:
        """Return whether the adapter targets every linear module except the head."""
        targets = self.config.target_modules
        return isinstance(targets, str) and targets.lower() == "all-linear"

    def targets(self, module: str) -> bool:
        """Return whether a module is targeted, as peft decides it.

        Args:
            module: Name of a module of the network.
        """
        from peft.tuners.tuners_utils import check_target_module_exists

        return bool(check_target_module_exists(self.config, module))

    def saves(self, name: str) -> bool:
        """Return whether a tensor belongs to a module that was saved as a whole.

        Args:
            name: Name of a tensor of the network.
        """
        module = name.rpartition(".")[0]
        saved = self.config.modules_to_save or ()
        return any(re.fullmatch(rf"(^|.*\.){pattern}($|\..*)", module) for pattern in saved)

    def replaces(self, name: str) -> bool:
        """Return whether a saved tensor replaces the network's.

        Args:
            name: Name of a tensor of the adapter.
        """
        module, _, kind = name.rpartition(".")
        trained = {"all": True, "lora_only": module in self.modules}.get(self.config.bias, False)
        return self.saves(name) or (kind == "bias" and trained)


def _value_for(module: str, values: Mapping[str, Any] | None, default: Any) -> Any:
    """Return the value of the first key that matches a suffix of the name, or the default."""
    from peft.utils.other import get_pattern_key

    return (values or {}).get(get_pattern_key(list(values or ()), module), default)


def read_adapter(folder: Path) -> Adapter:
    """Return the adapter in a folder.

    Args:
        folder: Folder with the files that peft saves.

    Raises:
        FileNotFoundError: For a missing file.
        ValueError: Without peft, or for unsupported options.
    """
    require("lora_path", "lora")
    from peft import LoraConfig

    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} holds no {CONFIG}: give lora_path the folder of an adapter")
    if not (folder / TENSORS).is_file():
        raise FileNotFoundError(f"{folder} holds no {TENSORS}{advice_on_pickles(folder)}")
    facts = read_object(folder / CONFIG)
    _check(folder, facts)
    with refuse_errors(f"{folder / CONFIG}, read as a LoraConfig"):
        config = LoraConfig(**{name: value for name, value in facts.items() if name in USED})
    with refuse_errors(f"{folder / TENSORS} is cut off or damaged, download it again"):
        tensors = load_file(folder / TENSORS)
    prefix = PREFIX if all(name.startswith(PREFIX) for name in tensors) else ""
    named = {INSERTED.sub("", name.removeprefix(prefix)): tensor for name, tensor in tensors.items()}
    return Adapter(folder, config, named, prefix, (folder / CONFIG, folder / TENSORS))


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


class Pair(NamedTuple):
    """The low-rank update of one module: `scale` times B @ A."""

    module: str
    a: Tensor
    b: Tensor
    scale: float
    places: tuple[Placement, ...]


def adapt(checkpoint: Checkpoint, adapter: Adapter, *, merge: bool) -> None:
    """Apply an adapter to the network of a checkpoint.

    Args:
        checkpoint: The checkpoint, whose network changes in place.
        adapter: The adapter.
        merge: Add the updates to the weights, computed in float32 and rounded once; otherwise other modules
            replace the adapted ones and add the updates. An adapter that is only for drafts is never merged.

    Raises:
        ValueError: The message names every tensor that is missing, unused, misshaped or not supported.
    """
    description = checkpoint.description
    stored = {name: tensor.shape for name, tensor in read_contents(description.path).tensors.items()}
    apply_adapter(checkpoint.network, adapter, description.family.weights, stored, merge=merge, ranks=checkpoint.ranks)


class AdapterPlan(NamedTuple):
    """Changes to a network: low-rank updates, and tensors that replace those in `placed`."""

    pairs: list[Pair]
    replaced: dict[str, Tensor]
    placed: Mapping[str, tuple[Placement, ...]]


def plan_adapter(
    network: PreTrainedModel, adapter: Adapter, rules: WeightRules, stored: Mapping[str, Shape], *, merge: bool
) -> AdapterPlan:
    """Return the changes that `apply_adapter` would make. The network may be on the meta device.

    Raises a ValueError that names every tensor that is missing, unused, misshaped or not supported.
    """
    tensors = network_tensors(network)
    placed: dict[str, tuple[Placement, ...]] = {}
    for placement in make_plan(tensors, stored, rules, ())[0]:
        placed[placement.tensor] = (*placed.get(placement.tensor, ()), placement)
    unusual = f"{adapter.folder / CONFIG} has a value that peft never writes, save it again"
    with refuse_errors(unusual):
        targeted = {name: stored[f"{name}.weight"] for name in sorted(_targeted(network, adapter, placed))}
        modules = [module for module, shape in targeted.items() if len(shape) == 2]
        sizes = {name: size for module in modules for name, size in _sizes(adapter, module, targeted[module]).items()}
        replaced = [name for name in adapter.tensors if name in placed and adapter.replaces(name)]
        sizes |= {name: tuple(stored[name]) for name in placed if name in replaced or adapter.saves(name)}
    problems = [f"not supported: {module}, which is not a matrix" for module, shape in targeted.items() if len(shape) != 2]
    problems += _misfits(adapter, sizes)
    adapted = [place for module in modules for place in placed[f"{module}.weight"]]
    changed = adapted + [place for name in replaced for place in placed[name]]
    tied = sorted({place.tensor for place in changed if len(tensors.names[place.parameter]) > 1})
    problems += [f"not supported: {name}, whose weights are shared with another module" for name in tied]
    if adapter.drafts_only:
        problems += [f"not supported in an adapter for drafts: {name}, which affects all rows" for name in replaced]
    if adapter.drafts_only or not merge:
        not_linear = sorted({place.tensor for place in adapted if not _is_linear(network, place)})
        remedy = "" if adapter.drafts_only else ", merge it with pre_merge_lora=True"
        problems += [f"not supported as a separate module: {name}{remedy}" for name in not_linear]
    if problems:
        raise ValueError(
            f"the adapter in {adapter.folder} does not fit {type(network).__name__}: {'; '.join(shortened(problems))}"
        )
    with refuse_errors(unusual):
        pairs = [_pair(adapter, module, placed[f"{module}.weight"]) for module in modules]
    return AdapterPlan(pairs, {name: adapter.tensors[name] for name in replaced}, placed)


@torch.no_grad()
def apply_adapter(
    network: PreTrainedModel,
    adapter: Adapter,
    rules: WeightRules,
    stored: Mapping[str, Shape],
    *,
    merge: bool,
    ranks: Ranks = ALONE,
    again: Tensors | None = None,
) -> None:
    """Apply an adapter to `network`; each of several `ranks` changes its shard.

    `stored` maps the names of the checkpoint's tensors to their shapes. With `merge`, updates are
    computed in float32 and rounded once; otherwise other modules replace the adapted ones. Biases
    and whole modules always replace those of the network. Raises the errors of `plan_adapter` before
    any change. `again` holds the parameters, by name, of a network to which the adapter was applied before: only their values
    change, and no module is replaced.
    """
    whole = empty_network(type(network), network.config, network.dtype) if ranks.several or again else network
    plan = plan_adapter(whole, adapter, rules, stored, merge=merge)
    shares = Shares(network_tensors(whole).shapes, parameter_shards(whole, ranks), ranks)
    parameters = again or {name: network.get_parameter_or_buffer(name).detach() for name in shares.shapes}
    for name, tensor in plan.replaced.items():
        for place in shares.held(plan.placed[name]):
            _part(parameters, place).copy_(shares.of(place.select_rows(tensor), place))
    if merge and not adapter.drafts_only:
        for pair in plan.pairs:
            _merge(parameters, pair, shares)
    elif not again:
        _keep(network, plan.pairs, Gates() if adapter.drafts_only else None)


def _targeted(network: PreTrainedModel, adapter: Adapter, placed: Mapping[str, tuple[Placement, ...]]) -> set[str]:
    """Return the modules of the checkpoint that the adapter targets."""
    modules = {name.removesuffix(".weight"): places for name, places in placed.items() if name.endswith(".weight")}
    if not adapter.all_linear:
        return {name for name in modules if adapter.targets(name)}
    head = network.get_output_embeddings()
    linear = {
        name
        for name, places in modules.items()
        if all(_is_linear(network, place) and _module(network, place) is not head for place in places)
    }
    # Some modules that were linear when the adapter was trained are bare parameters here.
    return linear | (set(modules) & adapter.modules)


def _sizes(adapter: Adapter, module: str, shape: Shape) -> dict[str, Shape]:
    """Return the shapes, by name, of the low-rank tensors that the adapter needs for a module with a weight of `shape`."""
    (rows, columns), rank = shape, index(_value_for(module, adapter.config.rank_pattern, adapter.config.r))
    return {f"{module}.{part}": size for part, size in zip(PARTS, [(rank, columns), (rows, rank)], strict=True)}


def _misfits(adapter: Adapter, sizes: Mapping[str, Shape]) -> list[str]:
    """Return how the adapter's tensors differ from these names and shapes."""
    shapes = {name: tuple(tensor.shape) for name, tensor in adapter.tensors.items()}
    return [
        *(f"missing: {adapter.prefix}{name}" for name in sizes if name not in shapes),
        *(f"not used: {adapter.prefix}{name}" for name in shapes if name not in sizes),
        *(
            f"other shape: {adapter.prefix}{name} has {list(shapes[name])}, the network takes {list(size)}"
            for name, size in sizes.items()
            if shapes.get(name, size) != size
        ),
    ]


def _pair(adapter: Adapter, module: str, places: tuple[Placement, ...]) -> Pair:
    """Return the update of a module whose tensors fit."""
    a, b = (adapter.tensors[f"{module}.{part}"] for part in PARTS)
    alpha = float(_value_for(module, adapter.config.alpha_pattern, adapter.config.lora_alpha))
    return Pair(module, a, b, alpha / (sqrt(len(a)) if adapter.config.use_rslora else len(a)), places)


def _module(network: PreTrainedModel, place: Placement) -> nn.Module:
    """Return the module that owns the parameter of a placement."""
    return network.get_submodule(place.parameter.rpartition(".")[0])


def _is_linear(network: PreTrainedModel, place: Placement) -> bool:
    return isinstance(_module(network, place), nn.Linear)


def _part(parameters: Tensors, place: Placement) -> Tensor:
    """Return a view of the part of a parameter that a placement selects."""
    return parameter_part(parameters[place.parameter], place.part)


def _merge(parameters: Tensors, pair: Pair, shares: Shares) -> None:
    """Add an update to the weights, computed in float32."""
    for place in shares.held(pair.places):
        weight = _part(parameters, place)
        a, b = (part.to(weight.device, torch.float32) for part in (pair.a, place.select_rows(pair.b)))
        weight.copy_(weight.float() + shares.of((b @ a) * pair.scale, place))


def _keep(network: PreTrainedModel, pairs: list[Pair], gates: Gates | None) -> None:
    """Replace adapted linear modules by modules that add the updates, with `gates` only on the rows of drafts."""
    for pair in pairs:
        for place in pair.places:
            base = _module(network, place)
            assert isinstance(base, nn.Linear), "`plan_adapter` refuses other modules"
            adapted = Adapted(base, pair.a, place.select_rows(pair.b), pair.scale, gates)
            network.set_submodule(place.parameter.rpartition(".")[0], adapted)
