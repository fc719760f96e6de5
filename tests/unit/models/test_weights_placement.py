"""From stored tensors to parameters: what fits is placed, what does not is refused by name."""

import re
from math import prod

import pytest
from hypothesis import given, strategies as st

from dlstep.models.weights import NetworkTensors, WeightRule, make_plan

RULES = (
    WeightRule(r"blocks\.(\d+)\.experts\.(?P<expert>\d+)\.gate", (r"layers.\1.gate_up",), 0),
    WeightRule(r"blocks\.(\d+)\.experts\.(?P<expert>\d+)\.up", (r"layers.\1.gate_up",), 1),
    WeightRule(r"blocks\.(\d+)\.qkv\.(weight|bias)", (r"layers.\1.q.\2", r"layers.\1.k.\2")),
    WeightRule(r"(?:model\.)?word_embeddings", ("embed",)),
)
SHAPES = {"embed": (9, 4), "norm": (4,)} | {
    name: shape
    for layer in range(2)
    for name, shape in {
        f"layers.{layer}.gate_up": (3, 10, 4),
        f"layers.{layer}.q.weight": (6, 4),
        f"layers.{layer}.k.weight": (2, 4),
        f"layers.{layer}.q.bias": (6,),
        f"layers.{layer}.k.bias": (2,),
    }.items()
}
TENSORS = NetworkTensors(SHAPES, {name: (name, "head") if name == "embed" else (name,) for name in SHAPES})
STORED = {"word_embeddings": (9, 4), "norm": (4,)} | {
    name: shape
    for layer in range(2)
    for name, shape in {
        f"blocks.{layer}.qkv.weight": (8, 4),
        f"blocks.{layer}.qkv.bias": (8,),
        **{f"blocks.{layer}.experts.{expert}.{half}": (5, 4) for expert in range(3) for half in ("gate", "up")},
    }.items()
}


def test_every_parameter_is_filled_once():
    placements, problems = make_plan(TENSORS, STORED, RULES, ())
    assert problems == []
    covered = dict.fromkeys(SHAPES, 0)
    for placement in placements:
        size = prod(STORED[placement.tensor])
        if placement.rows is not None:
            size = size // STORED[placement.tensor][0] * (placement.rows[1] - placement.rows[0])
        covered[placement.parameter] += size
    assert covered == {name: prod(shape) for name, shape in SHAPES.items()}


@given(st.sampled_from(sorted(STORED)))
def test_a_parameter_without_its_tensor_is_named(removed):
    filled = [place.parameter for place in make_plan(TENSORS, STORED, RULES, ())[0] if place.tensor == removed]
    _, problems = make_plan(TENSORS, {name: shape for name, shape in STORED.items() if name != removed}, RULES, ())
    assert len(problems) == len(filled)
    assert all(problem.startswith("missing: ") for problem in problems)
    assert all(any(parameter in problem for problem in problems) for parameter in filled)


@given(st.sampled_from(sorted(STORED)), st.integers(1, 3))
def test_a_tensor_of_another_shape_is_named_with_both(changed, more):
    shape = (STORED[changed][0] + more, *STORED[changed][1:])
    _, problems = make_plan(TENSORS, STORED | {changed: shape}, RULES, ())
    assert problems == [f"other shape: {changed} has {list(shape)}, the network takes {list(STORED[changed])}"]


@pytest.mark.parametrize("added", ["extra", "blocks.2.qkv.weight", "blocks.0.experts.3.up", "layers.0.nothing"])
def test_a_tensor_too_many_is_named(added):
    assert make_plan(TENSORS, STORED | {added: (5, 4)}, RULES, ())[1] == [f"not used: {added}"]
    assert make_plan(TENSORS, STORED | {added: (5, 4)}, RULES, (re.escape(added),))[1] == []


@pytest.mark.parametrize("added", [{"embed": (9, 4)}, {"layers.0.q.bias": (6,)}, {"layers.0.gate_up": (3, 10, 4)}])
def test_two_tensors_for_one_parameter_are_refused(added):
    _, problems = make_plan(TENSORS, STORED | added, RULES, ())
    assert any("another tensor fills" in problem for problem in problems)
