"""Map tensors of a checkpoint to parameters of a network, by names and shapes, without weights."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .names import WeightRule

Shape = tuple[int, ...]
Part = tuple[int | None, int | None]  # expert and half; None: all
READABLE_LINES = 20  # shown of a list of problems


@dataclass(frozen=True, slots=True)
class NetworkTensors:
    """Tensors that a network needs: shapes of parameters and saved buffers, and all names of each.

    Tied parameters appear once, under the first of their names.
    """

    shapes: Mapping[str, Shape]
    names: Mapping[str, tuple[str, ...]]

    def first_names(self) -> dict[str, str]:
        """Return, for every name, the name under which `shapes` has it."""
        return {name: first for first, names in self.names.items() for name in names}


@dataclass(frozen=True, slots=True)
class Placement:
    """Rows of a checkpoint tensor (None: all) that fill `parameter`, or a `part` of it.

    If tensors under several names fill a tied parameter, later placements `repeat` the first name.
    """

    tensor: str
    rows: tuple[int, int] | None
    parameter: str
    part: Part
    repeat: str | None = None


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Where tensors go, and what does not fit: names of checkpoint tensors, with an explanation."""

    placements: tuple[Placement, ...]
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    misshaped: tuple[str, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """Return everything that does not fit, one line each."""
        kinds = (("missing", self.missing), ("not used", self.unused), ("other shape", self.misshaped))
        return tuple(f"{what}: {name}" for what, names in kinds for name in names)


def shortened(problems: Iterable[str]) -> str:
    """Join problems to one text: the first ones, and the number of the others."""
    listed = list(problems)
    more = len(listed) - READABLE_LINES
    return "; ".join(listed[:READABLE_LINES]) + (f"; and {more} more" if more > 0 else "")


def part_shape(shape: Shape, part: Part) -> Shape:
    """Return the shape of one part of a parameter of this shape."""
    expert, half = part
    if expert is not None:
        shape = shape[1:]
    return shape if half is None else (shape[0] // 2, *shape[1:])


def make_plan(
    tensors: NetworkTensors, stored: Mapping[str, Shape], rules: tuple[WeightRule, ...], ignored: tuple[str, ...]
) -> LoadPlan:
    """Return the plan for a checkpoint with tensors of the names and shapes `stored`.

    The first of `rules` that matches a tensor's name determines its target; without a match, the
    target is the parameter of the same name. Names that match a regex in `ignored` are skipped.
    """
    first_names = tensors.first_names()
    placements: list[Placement] = []
    unused: list[str] = []
    misshaped: list[str] = []
    filled: dict[str, dict[Part, str]] = {}  # by part: the name under which it was filled
    for tensor in sorted(stored):
        if any(re.fullmatch(pattern, tensor) for pattern in ignored):
            continue
        targets = [(name, first_names.get(name, ""), part) for name, part in _targets(tensor, rules)]
        if not all(_exists(tensors.shapes.get(first), part) for _, first, part in targets):
            unused.append(tensor)
            continue
        if any(_is_filled(filled.get(first, {}), name, part) for name, first, part in targets):
            unused.append(f"{tensor} (another tensor fills {', '.join(name for name, _, _ in targets)})")
            continue
        shapes = [part_shape(tensors.shapes[first], part) for _, first, part in targets]
        if stored[tensor] != (needed := _joined(shapes)):
            misshaped.append(f"{tensor} has {list(stored[tensor])}, the network takes {list(needed)}")
        placements += _placed(tensor, targets, shapes, filled)
    used = tuple(rule for rule in rules if any(map(re.compile(rule.pattern).fullmatch, stored)))
    missing = sorted({_described(tensors.names[first], part, used, rules) for first, part in _unfilled(tensors.shapes, filled)})
    return LoadPlan(tuple(placements), tuple(missing), tuple(unused), tuple(misshaped))


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


def _targets(tensor: str, rules: tuple[WeightRule, ...]) -> list[tuple[str, Part]]:
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


def _described(names: tuple[str, ...], part: Part, used: tuple[WeightRule, ...], rules: tuple[WeightRule, ...]) -> str:
    """Return names of tensors that would fill a part, if possible in the checkpoint's scheme."""
    expert, half = part
    if candidates := [tensor for name in names for tensor in tensor_names(name, part, used)]:
        return " or ".join(dict.fromkeys(candidates))
    candidates = [tensor for name in names for tensor in tensor_names(name, part, rules)]
    where = ("" if expert is None else f", expert {expert}") + ("" if half is None else f", half {half} of its rows")
    return " or ".join(dict.fromkeys([*candidates, *(f"{name}{where}" for name in names)]))


def tensor_names(parameter: str, part: Part, rules: Iterable[WeightRule]) -> Iterator[str]:
    """Yield names of tensors that the rules, applied in reverse, put into this part of a parameter.

    Supports only simple regexes: literals, groups, and optional groups without a number.
    """
    expert, half = part
    for rule in rules:
        known = "(?P<expert>" in rule.pattern
        if (half is not None and rule.half != half) or (known and expert is None):
            continue
        for target in rule.targets:
            groups = _groups(target, parameter)
            if groups is None:
                continue
            name = _spelt(rule.pattern, groups | ({"expert": str(expert)} if known else {}))
            if (parameter, part if known or half is not None else (None, rule.half)) in _targets(name, (rule,)):
                yield name


def _groups(target: str, parameter: str) -> dict[str, str] | None:
    """Return the groups with which `target` expands to `parameter`; None if impossible."""
    pieces = re.split(r"\\(\d+)|\\g<(\w+)>", target)
    pattern, seen = "", set[str]()
    for literal, number, name in zip(pieces[::3], [*pieces[1::3], None], [*pieces[2::3], None], strict=True):
        pattern += re.escape(literal)
        if group := number or name:
            pattern += f"(?P=g{group})" if group in seen else f"(?P<g{group}>.+?)"
            seen.add(group)
    match = re.fullmatch(pattern, parameter)
    return None if match is None else {name[1:]: value for name, value in match.groupdict().items()}


def _spelt(pattern: str, groups: Mapping[str, str]) -> str:
    """Return a name that a simple regex matches with these groups, by number or name."""
    text = re.sub(r"\(\?:[^()]*\)\?", "", pattern)
    numbers = iter(range(1, text.count("(") + 1))

    def value(group: re.Match[str]) -> str:
        return groups.get(group["name"] or "", groups.get(str(next(numbers)), ""))

    text = re.sub(r"\((?:\?P<(?P<name>\w+)>)?[^()]*\)", value, text)
    return re.sub(r"\\(.)", r"\1", text)
