"""Weights from safetensors straight into a network: each parameter is made once, in its final dtype and place.

The network is built without memory and its parameters are filled tensor by tensor from the mapped files, of which only a
part is mapped at a time. What is no weight but computed from the configuration is computed as transformers does it.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from .attention import ATTENTION, install
from .experts import install_experts
from .names import Rule
from .placement import LoadPlan, Part, Placement, Shape, Wanted, make_plan, part_shape, shortened
from .ranks import ALONE, Ranks
from .reading import Refused
from .shapes import in_gib
from .sharding import Cut, cuts_of, install_ranks, regions
from .shards import READABLE, Contents, Stored

MAPPED_BYTES = 128 << 20  # of a file that are read before their pages are given back; a larger tensor is mapped whole


def empty_network(network: type[PreTrainedModel], config: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """The network of this class without weights or memory. Raises ValueError if the configuration makes none."""
    install()
    with Refused(f"no {network.__name__} can be made as config.json describes it"), torch.device("meta"):
        made: Any = network._from_config(copy.deepcopy(config), dtype=dtype, attn_implementation=ATTENTION)
        return made


def check_ranks(network: type[PreTrainedModel], config: PretrainedConfig, size: int) -> None:
    """Raise ValueError, by name, for a network that `size` ranks cannot share."""
    cuts_of(empty_network(network, config, torch.float32), Ranks(0, size))


def wanted_by(network: PreTrainedModel) -> Wanted:
    """Tensors that a network needs, tied parameters once."""
    tensors: dict[str, Tensor] = network.state_dict(keep_vars=True)
    names: dict[int, tuple[str, ...]] = {}
    for name, tensor in tensors.items():
        names[id(tensor)] = (*names.get(id(tensor), ()), name)
    by_first = {each[0]: each for each in names.values()}
    return Wanted({first: tuple(tensors[first].shape) for first in by_first}, by_first)


def plan_weights(
    network: PreTrainedModel, contents: Contents, rules: tuple[Rule, ...], ignored: tuple[str, ...]
) -> tuple[LoadPlan, tuple[str, ...]]:
    """Where the tensors of a checkpoint go, and everything that keeps them from being loaded."""
    stored = {name: tensor.shape for name, tensor in contents.tensors.items()}
    with Refused("the names of the tensors cannot be read"):
        plan = make_plan(wanted_by(network), stored, rules, ignored)
    used = sorted({placement.tensor for placement in plan.placements})
    unreadable = [(name, kind) for name in used if (kind := contents.tensors[name].dtype) not in READABLE]
    dtypes = (f"other dtype: {name} is {kind}, not one of {', '.join(READABLE)}" for name, kind in unreadable)
    return plan, (*plan.problems, *dtypes)


def load_network(
    folder: Path,
    contents: Contents,
    network: type[PreTrainedModel],
    config: PretrainedConfig,
    *,
    rules: tuple[Rule, ...] = (),
    ignored: tuple[str, ...] = (),
    device: torch.device,
    dtype: torch.dtype,
    progress: bool = False,
    ranks: Ranks = ALONE,
) -> PreTrainedModel:
    """The network of this class and configuration with the `contents` of `folder`, in evaluation mode. Of several `ranks` each
    reads its share only.

    Raises ValueError naming every file that is damaged, every tensor that is missing, not used, or of another shape or dtype,
    or that all of them do not fit onto `device`.
    """
    if contents.problems:
        raise ValueError(f"the weights in {folder} cannot be read: {shortened(contents.problems)}")
    made = empty_network(network, config, dtype)
    plan, problems = plan_weights(made, contents, rules, ignored)
    if problems:
        raise ValueError(f"the weights in {folder} do not fit {network.__name__}: {shortened(problems)}")
    from ..progress import loading_bar

    cuts = cuts_of(made, ranks)
    shares = Shares(wanted_by(made).shapes, cuts, ranks)
    # Allocated all at once, a parameter costs nothing until it is filled.
    tensors = made.state_dict(keep_vars=True)
    try:
        filled = {first: torch.empty(shares.shape(first), dtype=tensors[first].dtype, device=device) for first in shares.shapes}
    except torch.OutOfMemoryError as error:
        needed = in_gib(sum(prod(shares.shape(first)) * tensors[first].itemsize for first in shares.shapes))
        raise ValueError(f"the weights in {folder} take {needed} as {dtype}, more than {device} has left ({error})") from error
    total = sum(contents.tensors[name].size for name in {placement.tensor for placement in plan.placements})
    with torch.no_grad(), loading_bar(total, enabled=progress) as advance:
        fill(filled, plan.placements, contents.tensors, advance, shares)
    _put(made, filled)
    _compute_buffers(made, device)
    install_ranks(made, ranks)
    install_experts(made)
    return made.eval()


@dataclass(frozen=True, slots=True)
class Shares:
    """Which part of each parameter a rank holds: `shapes` are those of whole ones."""

    shapes: Mapping[str, Shape]
    cuts: Mapping[str, Cut]
    ranks: Ranks

    def shape(self, parameter: str) -> Shape:
        """The shape of a rank's share."""
        cut = self.cuts.get(parameter)
        return self.shapes[parameter] if cut is None else cut.shape(self.shapes[parameter])

    def of(self, value: Tensor, placement: Placement) -> Tensor:
        """The share of what goes to a place."""
        cut = self.cuts.get(placement.parameter)
        if cut is None or cut.dim is None:
            return value if cut is None or self.ranks.rank == 0 else torch.zeros_like(value)
        shape = part_shape(self.shapes[placement.parameter], placement.part)
        pieces = [value[region] for region in regions(cut, shape, half=placement.part[1], rows=None)]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=cut.dim)

    def read(self, opened: Any, placement: Placement) -> Tensor:
        """The share of what goes to a place, from an opened file: nothing else is read."""
        cut = self.cuts.get(placement.parameter)
        if cut is None or cut.dim is None:
            whole: Tensor = opened.get_tensor(placement.tensor)
            return self.of(whole if placement.rows is None else whole[slice(*placement.rows)], placement)
        shape = part_shape(self.shapes[placement.parameter], placement.part)
        found = regions(cut, shape, half=placement.part[1], rows=placement.rows)
        pieces: list[Tensor] = [opened.get_slice(placement.tensor)[region] for region in found]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=cut.dim)


def fill(
    parameters: Mapping[str, Tensor],
    placements: tuple[Placement, ...],
    stored: Mapping[str, Stored],
    advance: Callable[[int], None],
    shares: Shares,
) -> None:
    """Copy tensors to where they belong, file by file. Raises ValueError for tied parameters stored with two values."""
    by_tensor: dict[str, list[Placement]] = {}
    for placement in placements:
        by_tensor.setdefault(placement.tensor, []).append(placement)
    # Repeated ones last: they are compared with the first.
    for repeats in (False, True):
        chosen = [stored[name] for name, its in by_tensor.items() if any(each.repeat for each in its) is repeats]
        for tensor, opened in _opened(chosen):
            for placement in by_tensor[tensor.name]:
                region = part_of(parameters[placement.parameter].detach(), placement.part)
                rows = shares.read(opened, placement)
                rows = rows.to(region.device)  # before its dtype changes, so that no copy is made on the host
                if placement.repeat is None:
                    region.copy_(rows)
                elif not torch.equal(region, rows.to(region.dtype)):
                    raise ValueError(
                        f"{tensor.file} holds {tensor.name} with other values than {placement.repeat}, to which it is tied: "
                        "set tie_word_embeddings to false in config.json if they are meant to differ"
                    )
            advance(tensor.size)


def part_of(parameter: Tensor, part: Part) -> Tensor:
    """One part of a parameter, as a view."""
    expert, half = part
    if expert is not None:
        parameter = parameter[expert]
    return parameter if half is None else parameter.chunk(2)[half]


def _opened(chosen: list[Stored]) -> Iterator[tuple[Stored, Any]]:
    """Tensors and the opened file of each, one at a time; what is read of it is valid until the next is asked for.

    Pages of a mapped file count as memory of this process until it is closed, so it is opened anew every so often.
    """
    ordered = sorted(chosen, key=lambda tensor: (tensor.file, tensor.offset))
    for (file, _), group in groupby(ordered, key=lambda tensor: (tensor.file, tensor.offset // MAPPED_BYTES)):
        with safe_open(file, framework="pt", device="cpu") as opened:
            for tensor in group:
                yield tensor, opened


def _put(network: PreTrainedModel, filled: Mapping[str, Tensor]) -> None:
    """Give a network its parameters and saved buffers, tied ones under all of their names."""
    for first, names in wanted_by(network).names.items():
        old = network.get_parameter_or_buffer(first)
        new = filled[first].detach()
        if isinstance(old, nn.Parameter):
            new = nn.Parameter(new, requires_grad=old.requires_grad)
        # The mark by which transformers knows what it must not initialise.
        new._is_hf_initialized = True  # pyright: ignore[reportAttributeAccessIssue]
        for name in names:
            owner, _, attribute = name.rpartition(".")
            setattr(network.get_submodule(owner), attribute, new)


def _compute_buffers(network: PreTrainedModel, device: torch.device) -> None:
    """Compute what is not saved with the weights, as a network does that is built in the ordinary way."""
    computed = [name for name, _ in network.named_non_persistent_buffers()]
    for name in computed:
        owner, _, attribute = name.rpartition(".")
        blank = torch.empty_like(network.get_buffer(name), device=device)
        setattr(network.get_submodule(owner), attribute, blank.fill_(torch.nan) if blank.is_floating_point() else blank)
    network.initialize_weights()
    for name in computed:
        assert not network.get_buffer(name).isnan().any(), f"{type(network).__name__} does not compute its buffer {name}"
    left = [name for name, tensor in (*network.named_parameters(), *network.named_buffers()) if tensor.is_meta]
    assert not left, f"{type(network).__name__} has no values for {', '.join(left)}"
