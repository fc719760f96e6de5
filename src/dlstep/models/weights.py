"""Load safetensors files into a network: each parameter is allocated once, in its final dtype.

`make_plan` maps tensors of a checkpoint to parameters of a network, by names and shapes alone. The network is built
without memory. Its parameters are then filled tensor by tensor from memory-mapped files, of which only a part is mapped at
a time. Buffers that the files do not hold are computed as transformers computes them.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from ..core.checks import Checked, Texts
from ..distributed.ranks import Ranks
from .layers import ATTENTION, install
from .quantization import CODES, SCALE, dtype_problems, is_scale, quantize_weight, restored
from .reading import Contents, Shape, Stored, refuse_errors
from .sharding import ParameterShard, parameter_shards
from .transformers_internals import INITIALIZED, new_model


@dataclass(frozen=True, slots=True)
class WeightRule(Checked):
    """Where a checkpoint tensor goes if the regex `pattern` matches its whole name.

    `targets` are templates of parameter names, as for `re.Match.expand`. With several, the tensor's
    rows are split among them in order, as many as each parameter has. A group named `expert` is the
    index into the first dimension of the target, which stacks all experts; `half` 0 or 1 then
    selects half of that expert's rows (None: all).
    """

    pattern: str
    targets: Texts
    half: int | None = None


WeightRules = tuple[WeightRule, ...]
Tensors = Mapping[str, Tensor]
Part = tuple[int | None, int | None]  # expert and half; None: all
# Called with the number of bytes to load. The context yields a function to call with the size of each loaded piece.
Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
MAPPED_BYTES = 128 << 20  # to read before closing a file, which frees its pages; a larger tensor is mapped whole
READABLE_LINES = 20  # of a list of problems


class NetworkTensors(NamedTuple):
    """Tensors that a network needs: shapes of parameters and saved buffers, and all names of each.

    Tied parameters appear once, under the first of their names.
    """

    shapes: Mapping[str, Shape]
    names: Mapping[str, Texts]

    def first_names(self) -> dict[str, str]:
        """Return, for every name, the name under which `shapes` has it."""
        return {name: first for first, names in self.names.items() for name in names}


class Placement(NamedTuple):
    """Rows of a checkpoint tensor (None: all) that fill `parameter`, or a `part` of it.

    If tensors under several names fill a tied parameter, later placements `repeat` the first name.
    """

    tensor: str
    rows: tuple[int, int] | None
    parameter: str
    part: Part
    repeat: str | None = None

    def select_rows(self, tensor: Tensor) -> Tensor:
        """Return the rows of a checkpoint tensor that go to this placement."""
        return tensor if self.rows is None else tensor[slice(*self.rows)]


def shortened(problems: Iterable[str], most: int = READABLE_LINES) -> list[str]:
    """Return the first and the last problems, with the number of those between them."""
    listed, half = list(problems), most // 2
    more = len(listed) - 2 * half
    return listed if more <= 0 else [*listed[:half], f"{more} more", *listed[-half:]]


def part_shape(shape: Shape, part: Part) -> Shape:
    """Return the shape of one part of a parameter of this shape."""
    expert, half = part
    if expert is not None:
        shape = shape[1:]
    return shape if half is None else (shape[0] // 2, *shape[1:])


def make_plan(
    tensors: NetworkTensors, stored: Mapping[str, Shape], rules: WeightRules, ignored: Texts
) -> tuple[list[Placement], list[str]]:
    """Return where tensors of the names and shapes `stored` go, and what does not fit, one line each.

    The first of `rules` that matches a tensor's name determines its target; without a match, the
    target is the parameter of the same name. Names that match a regex in `ignored` are skipped.
    """
    first_names = tensors.first_names()
    placements: list[Placement] = []
    problems: list[str] = []
    filled: dict[str, dict[Part, str]] = {}  # by part: the name under which it was filled
    for tensor in sorted(stored):
        if any(re.fullmatch(pattern, tensor) for pattern in ignored):
            continue
        targets = [(name, first_names.get(name, ""), part) for name, part in _targets(tensor, rules)]
        if not all(_exists(tensors.shapes.get(first), part) for _, first, part in targets):
            problems.append(f"not used: {tensor}")
            continue
        if any(_is_filled(filled.get(first, {}), name, part) for name, first, part in targets):
            problems.append(f"not used: {tensor} (another tensor fills {', '.join(name for name, _, _ in targets)})")
            continue
        shapes = [part_shape(tensors.shapes[first], part) for _, first, part in targets]
        if stored[tensor] != (needed := _joined(shapes)):
            problems.append(f"other shape: {tensor} has {list(stored[tensor])}, the network takes {list(needed)}")
        placements += _placed(tensor, targets, shapes, filled)
    missing = sorted(_described(tensors.names[first], part) for first, part in _unfilled(tensors.shapes, filled))
    return placements, [*(f"missing: {name}" for name in missing), *problems]


def _placed(
    tensor: str, targets: list[tuple[str, str, Part]], shapes: list[Shape], filled: dict[str, dict[Part, str]]
) -> Iterator[Placement]:
    """Yield placements of a tensor's rows in its targets, in order, and record them in `filled`."""
    row = 0
    for (name, first, part), shape in zip(targets, shapes, strict=True):
        rows = (row, row := row + shape[0]) if len(targets) > 1 else None
        parts = filled.setdefault(first, {})
        yield Placement(tensor, rows, first, part, repeat=parts.get(part))
        parts.setdefault(part, name)


def _targets(tensor: str, rules: WeightRules) -> list[tuple[str, Part]]:
    """Return the parameters, and the part of each, that a tensor of this name fills."""
    for rule in rules:
        if match := re.fullmatch(rule.pattern, tensor):
            expert = match.groupdict().get("expert")
            part = (None if expert is None else int(expert), rule.half)
            return [(match.expand(target), part) for target in rule.targets]
    return [(tensor, (None, None))]


def _exists(shape: Shape | None, part: Part) -> bool:
    """Return whether a parameter of this shape has such a part."""
    return shape is not None and (part[0] is None or (len(shape) > 1 and part[0] < shape[0]))


def _is_filled(filled: Mapping[Part, str], name: str, part: Part) -> bool:
    """Return whether a part is already filled, except as a tied parameter under another name."""
    overlap = [its for its in filled if all(a is None or b is None or a == b for a, b in zip(its, part, strict=True))]
    return any(its != part or filled[its] == name for its in overlap)


def _joined(shapes: list[Shape]) -> Shape:
    """Return the shape of tensors of these shapes stacked by rows."""
    return shapes[0] if len(shapes) == 1 else (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _unfilled(shapes: Mapping[str, Shape], filled: Mapping[str, Mapping[Part, str]]) -> Iterator[tuple[str, Part]]:
    """Yield unfilled parts: whole parameters, or the missing experts and halves of a parameter."""
    for first, shape in shapes.items():
        parts = filled.get(first, {})
        if (None, None) in parts:
            continue
        by_expert = any(expert is not None for expert, _ in parts)
        by_half = any(half is not None for _, half in parts)
        for expert in range(shape[0]) if by_expert else [None]:
            for half in (0, 1) if by_half else [None]:
                if (expert, half) not in parts and (expert, None) not in parts:
                    yield first, (expert, half)


def _described(names: Texts, part: Part) -> str:
    """Return the names of a parameter, and which part of it is meant."""
    expert, half = part
    where = ("" if expert is None else f", expert {expert}") + ("" if half is None else f", half {half} of its rows")
    return " or ".join(f"{name}{where}" for name in names)


@contextmanager
def no_progress(total: int) -> Generator[Callable[[int], None]]:
    """Report nothing."""
    yield lambda size: None


def empty_network(network: type[PreTrainedModel], config: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """Return a network of this class without weights or memory. Raises ValueError for an impossible configuration."""
    install()
    with refuse_errors(f"no {network.__name__} can be made as config.json describes it"):
        return new_model(network, config, dtype, ATTENTION, torch.device("meta"))


def check_ranks(network: type[PreTrainedModel], config: PretrainedConfig, size: int) -> None:
    """Raise ValueError for a network that cannot be divided among `size` ranks."""
    parameter_shards(empty_network(network, config, torch.float32), Ranks(0, size))


def network_tensors(network: PreTrainedModel) -> NetworkTensors:
    """Return the tensors that a network needs, with tied parameters as one."""
    tensors: dict[str, Tensor] = network.state_dict(keep_vars=True)
    names: dict[int, Texts] = {}
    for name, tensor in tensors.items():
        names[id(tensor)] = (*names.get(id(tensor), ()), name)
    by_first = {aliases[0]: aliases for aliases in names.values()}
    return NetworkTensors({first: tuple(tensors[first].shape) for first in by_first}, by_first)


def plan_weights(
    network: PreTrainedModel, contents: Contents, rules: WeightRules, ignored: Texts
) -> tuple[list[Placement], list[str]]:
    """Return where the tensors of a checkpoint go, and every problem that prevents loading them."""
    tensors = contents.tensors
    stored = {name: tensor.shape for name, tensor in tensors.items() if not is_scale(name, tensors)}
    with refuse_errors("the regexes of the family do not fit together"):
        placements, problems = make_plan(network_tensors(network), stored, rules, ignored)
    used = sorted({placement.tensor for placement in placements})
    return placements, [*problems, *dtype_problems(tensors, used)]


class Shares(NamedTuple):
    """The part of each parameter that a rank holds; `shapes` are the shapes of whole parameters."""

    shapes: Mapping[str, Shape]
    cuts: Mapping[str, ParameterShard]
    ranks: Ranks

    def shape(self, parameter: str) -> Shape:
        """Return the shape of the rank's share of a parameter."""
        cut = self.cuts.get(parameter)
        return self.shapes[parameter] if cut is None else cut.shape(self.shapes[parameter])

    def held(self, placements: Iterable[Placement]) -> Iterator[Placement]:
        """Yield the placements in this rank's share. Experts are renumbered from 0 for the rank's first expert."""
        for placement in placements:
            expert, half = placement.part
            cut = self.cuts.get(placement.parameter)
            if expert is None or cut is None:
                yield placement
            elif cut.start <= expert < cut.stop:
                yield placement._replace(part=(expert - cut.start, half))

    def of(self, value: Tensor, placement: Placement) -> Tensor:
        """Return the rank's share of a value for a placement that `held` yields; a share that is cut is a view."""
        cut = self.cuts.get(placement.parameter)
        if cut is None or placement.part[0] is not None:  # a single expert is never cut
            return value
        if cut.dim is None:
            return value if self.ranks.rank == 0 else torch.zeros_like(value)
        return value.narrow(cut.dim, cut.start, cut.stop - cut.start)


def fill(
    parameters: Tensors,
    row_scales: Tensors,
    placements: list[Placement],
    stored: Mapping[str, Stored],
    advance: Callable[[int], None],
    shares: Shares,
    dtype: torch.dtype,
    given: Tensors | None = None,
) -> None:
    """Copy tensors to their placements, file by file. Raises ValueError if tied parameters have different values.

    `placements` are those that `shares.held` yields. Parameters with `row_scales` are quantized, after rounding to `dtype`.
    `given`: the tensors by name, if they are in memory instead of in files.
    """
    by_tensor: dict[str, list[Placement]] = {}
    for placement in placements:
        by_tensor.setdefault(placement.tensor, []).append(placement)
    scales = _scales(stored, given)
    # Tensors that repeat a tied parameter come last: they are compared with its value.
    for repeats in (False, True):
        chosen = [stored[name] for name, its in by_tensor.items() if any(placement.repeat for placement in its) is repeats]
        for tensor, read in _opened(chosen, given):
            for placement in by_tensor[tensor.name]:
                name = placement.parameter
                targets = [parameter_part(its[name], placement.part) for its in (parameters, row_scales) if name in its]
                device = targets[0].device
                whole = read(tensor.name)  # a view of the mapped file: only the share is read
                if tensor.dtype in CODES:
                    whole = restored(whole.to(device), scales[tensor.name].to(device))
                rows = shares.of(placement.select_rows(whole), placement)
                rows = rows.to(device)  # before its dtype changes, so that no copy is made on the host
                values = quantize_weight(rows.to(dtype)) if len(targets) > 1 else (rows,)
                for target, value in zip(targets, values, strict=True):
                    if placement.repeat is None:
                        target.copy_(value)
                    elif not torch.equal(target, value.to(target.dtype)):
                        raise ValueError(
                            f"{tensor.file} holds {tensor.name} with other values than {placement.repeat}, to which it is "
                            "tied: set tie_word_embeddings to false in config.json if they are meant to differ"
                        )
            advance(tensor.size)


def _scales(stored: Mapping[str, Stored], given: Tensors | None) -> dict[str, Tensor]:
    """Return the scales of the tensors that are stored in codes, by the name of the tensor."""
    chosen = [tensor for name, tensor in stored.items() if is_scale(name, stored)]
    return {tensor.name.removesuffix(SCALE): read(tensor.name).clone() for tensor, read in _opened(chosen, given)}


def parameter_part(parameter: Tensor, part: Part) -> Tensor:
    """Return one part of a parameter as a view."""
    expert, half = part
    if expert is not None:
        parameter = parameter[expert]
    return parameter if half is None else parameter.chunk(2)[half]


def _opened(chosen: list[Stored], given: Tensors | None) -> Iterator[tuple[Stored, Callable[[str], Tensor]]]:
    """Yield each tensor and a function that reads it from its opened file; the result is valid until the next tensor.

    Pages of a mapped file count as memory of this process until the file is closed, so a file is reopened after every
    `MAPPED_BYTES`.
    """
    if given is not None:
        yield from [(tensor, given.__getitem__) for tensor in chosen]
        return
    ordered = sorted(chosen, key=lambda tensor: (tensor.file, tensor.offset))
    for (file, _), group in groupby(ordered, key=lambda tensor: (tensor.file, tensor.offset // MAPPED_BYTES)):
        with safe_open(file, framework="pt", device="cpu") as opened:
            for tensor in group:
                yield tensor, opened.get_tensor


def put(network: PreTrainedModel, filled: Tensors) -> None:
    """Put the parameters and saved buffers into a network, tied ones under all of their names."""
    for first, names in network_tensors(network).names.items():
        old = network.get_parameter_or_buffer(first)
        new = filled[first].detach()
        if isinstance(old, nn.Parameter):
            new = nn.Parameter(new, requires_grad=old.requires_grad)
        setattr(new, INITIALIZED, True)
        for name in names:
            owner, _, attribute = name.rpartition(".")
            setattr(network.get_submodule(owner), attribute, new)


def compute_buffers(network: PreTrainedModel, device: torch.device) -> None:
    """Compute the buffers that are not saved with the weights, as for a network that transformers builds itself."""
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
