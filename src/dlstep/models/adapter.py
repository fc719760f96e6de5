"""LoRA adapters: merged into the weights of a network when it is loaded, or kept beside them.

An adapter names modules as the checkpoint that it was trained on does. Which modules it is for, with which rank and scale,
is worked out under those names; where they are in the network say the rules of the family.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..distributed.ranks import ALONE, Ranks
from .adapter_files import Adapter
from .checkpoint import Checkpoint
from .names import Rule
from .placement import Placement, Shape, make_plan, shortened
from .reading import briefly
from .sharding import cuts_of
from .shards import read_contents
from .weights import Shares, empty_network, part_of, wanted_by

PARTS = ("lora_A.weight", "lora_B.weight", "lora_magnitude_vector")  # of a product, the last with DoRA alone
ADAPTER = "default"  # the name of the only adapter among peft's


@dataclass(frozen=True, slots=True)
class Pair:
    """The product that an adapter adds to one module of the checkpoint: `alpha` / rank (or its root) times B @ A.

    With a `magnitude`, the rows of the sum are then scaled to have these norms.
    """

    module: str
    a: Tensor
    b: Tensor
    alpha: float
    rooted: bool
    magnitude: Tensor | None
    places: tuple[Placement, ...]

    @property
    def scale(self) -> float:
        """The factor of the product."""
        rank = self.a.shape[0]
        return self.alpha / (sqrt(rank) if self.rooted else rank)


@briefly
def adapt(checkpoint: Checkpoint, adapter: Adapter, *, merge: bool) -> None:
    """Apply an adapter to the network of a checkpoint, as `apply_adapter` says."""
    description = checkpoint.description
    stored = {name: tensor.shape for name, tensor in read_contents(description.path).tensors.items()}
    apply_adapter(checkpoint.network, adapter, description.family.weights, stored, merge=merge, ranks=checkpoint.ranks)


@dataclass(frozen=True, slots=True)
class AdapterPlan:
    """Changes of an adapter to a network: products that are added, and tensors that replace those of `placed`."""

    pairs: list[Pair]
    replaced: dict[str, Tensor]
    placed: Mapping[str, tuple[Placement, ...]]


def plan_adapter(
    network: PreTrainedModel, adapter: Adapter, rules: tuple[Rule, ...], stored: Mapping[str, Shape], *, merge: bool
) -> AdapterPlan:
    """The changes that `apply_adapter` would make; the network needs no memory.

    Raises ValueError naming every tensor that is missing, not used, of another shape or that cannot be adapted.
    """
    wanted = wanted_by(network)
    placed: dict[str, tuple[Placement, ...]] = {}
    for placement in make_plan(wanted, stored, rules, ()).placements:
        placed[placement.tensor] = (*placed.get(placement.tensor, ()), placement)
    targeted = _targeted(network, adapter, placed)
    pairs, problems = _pairs(adapter, targeted, placed, stored)
    replaced, others = _replaced(adapter, placed, stored)
    adapted = [place for pair in pairs for place in pair.places]
    changed = adapted + [place for name in replaced for place in placed[name]]
    tied = sorted({place.tensor for place in changed if len(wanted.names[place.parameter]) > 1})
    problems += others + [f"not supported: {name}, whose weights are shared with another module" for name in tied]
    if not merge:
        beside = sorted({place.tensor for place in adapted if not _is_linear(network, place)})
        problems += [f"not supported beside the weights: {name}, merge it with pre_merge_lora=True" for name in beside]
    if problems:
        raise ValueError(f"the adapter in {adapter.folder} does not fit {type(network).__name__}: {shortened(problems)}")
    return AdapterPlan(pairs, replaced, placed)


@torch.no_grad()
def apply_adapter(
    network: PreTrainedModel,
    adapter: Adapter,
    rules: tuple[Rule, ...],
    stored: Mapping[str, Shape],
    *,
    merge: bool,
    ranks: Ranks = ALONE,
) -> None:
    """Apply an adapter to `network`, whose checkpoint has tensors of the names and shapes `stored`; of several `ranks` each
    changes its share.

    Merged, products and sums are computed in float32 and rounded once; otherwise peft's modules take the place of those
    that are adapted. Biases and whole modules that the adapter brings replace those of the network either way.

    Raises what `plan_adapter` raises, before anything is changed.
    """
    whole = empty_network(type(network), network.config, network.dtype) if ranks.several else network
    plan = plan_adapter(whole, adapter, rules, stored, merge=merge)
    if ranks.several and any(pair.magnitude is not None for pair in plan.pairs):
        raise ValueError(
            f"the adapter in {adapter.folder} scales rows of weights (use_dora), which ranks hold in parts: merge it into the "
            "checkpoint, or leave tensor_parallel_size at 1"
        )
    shares = Shares(wanted_by(whole).shapes, cuts_of(whole, ranks), ranks)
    for name, tensor in plan.replaced.items():
        for place in plan.placed[name]:
            _view(network, place).copy_(shares.of(_rows(tensor, place), place))
    if merge:
        for pair in plan.pairs:
            _merge(network, pair, shares)
    else:
        _keep(network, plan.pairs)


def _targeted(network: PreTrainedModel, adapter: Adapter, placed: Mapping[str, tuple[Placement, ...]]) -> set[str]:
    """The modules of the checkpoint that the adapter says it is for."""
    modules = {name.removesuffix(".weight"): places for name, places in placed.items() if name.endswith(".weight")}
    if not adapter.all_linear:
        return {name for name in modules if adapter.targets(name)}
    head = network.get_output_embeddings()
    linear = {
        name
        for name, places in modules.items()
        if all(_is_linear(network, place) and _module(network, place) is not head for place in places)
    }
    # Some layers that were linear modules when the adapter was trained are parameters here.
    return linear | (set(modules) & set(adapter.pairs))


def _pairs(
    adapter: Adapter,
    targeted: set[str],
    placed: Mapping[str, tuple[Placement, ...]],
    stored: Mapping[str, Shape],
) -> tuple[list[Pair], list[str]]:
    """Products added to each module, and problems with those that do not fit."""
    pairs: list[Pair] = []
    problems: list[str] = []
    needed = PARTS[: 3 if adapter.config.use_dora else 2]
    for module in sorted(targeted | set(adapter.pairs)):
        parts = adapter.pairs.get(module, {})
        shape = stored.get(f"{module}.weight", ())
        if module not in targeted or len(shape) != 2:
            problems += [f"not used: {adapter.prefix}{module}.{part}" for part in sorted(parts)]
            if not parts:
                problems.append(f"not supported: {module}, which is no matrix")
            continue
        rank = adapter.rank(module)
        sizes: dict[str, Shape] = dict(zip(needed, ((rank, shape[1]), (shape[0], rank), (shape[0],)), strict=False))
        wrong = _misfits(adapter, module, parts, sizes)
        problems += wrong
        if not wrong:
            a, b, magnitude = (parts.get(part) for part in PARTS)
            assert a is not None and b is not None
            alpha, rooted = adapter.alpha(module), bool(adapter.config.use_rslora)
            pairs.append(Pair(module, a, b, alpha, rooted, magnitude, placed[f"{module}.weight"]))
    return pairs, problems


def _misfits(adapter: Adapter, module: str, parts: Mapping[str, Tensor], sizes: Mapping[str, Shape]) -> list[str]:
    """Return the problems of an adapter's tensors for one module, which needs one tensor of each of these `sizes`."""
    name = f"{adapter.prefix}{module}"
    return [
        *(f"missing: {name}.{part}" for part in sizes if part not in parts),
        *(f"not used: {name}.{part}" for part in sorted(parts) if part not in sizes),
        *(
            f"other shape: {name}.{part} has {list(parts[part].shape)}, {module} takes {list(size)}"
            for part, size in sizes.items()
            if part in parts and tuple(parts[part].shape) != size
        ),
    ]


def _replaced(
    adapter: Adapter, placed: Mapping[str, tuple[Placement, ...]], stored: Mapping[str, Shape]
) -> tuple[dict[str, Tensor], list[str]]:
    """Tensors that take the place of those of the checkpoint, under its names, and what does not fit."""
    problems = [f"not used: {adapter.prefix}{name}" for name in adapter.others if not adapter.replaces(name)]
    found = {name: tensor for name, tensor in adapter.others.items() if adapter.replaces(name)}
    for name, tensor in found.items():
        if name not in placed:
            problems.append(f"not used: {adapter.prefix}{name}")
        elif tuple(tensor.shape) != tuple(stored[name]):
            problems.append(
                f"other shape: {adapter.prefix}{name} has {list(tensor.shape)}, the network takes {list(stored[name])}"
            )
    saved = [name for name in placed if adapter.saves(name)]
    problems += [f"missing: {adapter.prefix}{name}" for name in saved if name not in found]
    return found, problems


def _module(network: PreTrainedModel, place: Placement) -> nn.Module:
    """The module that has the parameter of a place."""
    return network.get_submodule(place.parameter.rpartition(".")[0])


def _is_linear(network: PreTrainedModel, place: Placement) -> bool:
    return isinstance(_module(network, place), nn.Linear)


def _view(network: PreTrainedModel, place: Placement) -> Tensor:
    """The part of a parameter that a place names."""
    return part_of(network.get_parameter_or_buffer(place.parameter).detach(), place.part)


def _rows(tensor: Tensor, place: Placement) -> Tensor:
    """The rows of a tensor that go to a place."""
    return tensor if place.rows is None else tensor[slice(*place.rows)]


def _merge(network: PreTrainedModel, pair: Pair, shares: Shares) -> None:
    """Add the product of a pair to the weights, all in float32."""
    for place in pair.places:
        weight = _view(network, place)
        a, b = (part.to(weight.device, torch.float32) for part in (pair.a, _rows(pair.b, place)))
        merged = weight.float() + shares.of((b @ a) * pair.scale, place)
        if pair.magnitude is not None:
            magnitude = _rows(pair.magnitude, place).to(weight.device, torch.float32)
            merged *= (magnitude / merged.norm(dim=1))[:, None]
        weight.copy_(merged)


def _keep(network: PreTrainedModel, pairs: list[Pair]) -> None:
    """Put peft's modules, holding the pairs, in the place of the linear modules that they adapt.

    They are made in a list of these modules alone: in a whole network peft would look for its own idea of the family.
    """
    from peft import LoraConfig, inject_adapter_in_model

    adapted = [(place, pair) for pair in pairs for place in pair.places]
    if not adapted:
        return
    config = LoraConfig(
        target_modules=[str(number) for number in range(len(adapted))],
        rank_pattern={str(number): pair.a.shape[0] for number, (_, pair) in enumerate(adapted)},
        alpha_pattern={str(number): pair.alpha for number, (_, pair) in enumerate(adapted)},
        use_rslora=pairs[0].rooted,
        use_dora=pairs[0].magnitude is not None,
        inference_mode=True,
    )
    modules: Any = inject_adapter_in_model(config, nn.ModuleList([_module(network, place) for place, _ in adapted]), ADAPTER)
    for module, (place, pair) in zip(modules, adapted, strict=True):
        module.lora_A[ADAPTER].weight.copy_(pair.a)
        module.lora_B[ADAPTER].weight.copy_(_rows(pair.b, place))
        if pair.magnitude is not None:
            module.lora_magnitude_vector[ADAPTER].weight.copy_(_rows(pair.magnitude, place))
        network.set_submodule(place.parameter.rpartition(".")[0], module.requires_grad_(False).eval())
