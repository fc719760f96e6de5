"""Check that facts of a configuration are possible: sizes, activations, rotary embedding."""

from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from .shapes import kv_shapes
from .transformers_internals import ACT2FN

MAX_POSITIONS = 2**31 - 1  # positions are 32-bit integers on a device
MAX_LAYERS = 1000
MAX_EXPERTS = 10_000
# Upper bounds of fields that the amount of work depends on, at any nesting level.
BOUNDS = {
    "num_hidden_layers": MAX_LAYERS,
    "n_layers": MAX_LAYERS,
    "num_experts": MAX_EXPERTS,
    "n_routed_experts": MAX_EXPERTS,
    "max_position_embeddings": MAX_POSITIONS,
    "max_sequence_length": MAX_POSITIONS,
}
COUNTS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
ACTIVATIONS = ("hidden_act", "hidden_activation")
POSITIVE = ("factor", "rope_theta", "original_max_position_embeddings")


def objects(facts: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the facts, and every object inside them."""
    waiting: list[Any] = [facts]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            yield value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def check_facts(facts: Mapping[str, Any]) -> None:
    """Raise ValueError for impossible numbers, before anything is built."""
    ends = facts.get("eos_token_id")
    for end in ends if isinstance(ends, list) else [ends]:
        if end is not None and (not isinstance(end, int) or isinstance(end, bool)):
            raise ValueError(f"eos_token_id={end!r} is not an id of its network: give a number, or a list of them")
    for inner in objects(facts):
        for name, most in BOUNDS.items():
            value = inner.get(name)
            if isinstance(value, int | float) and not value <= most:
                raise ValueError(f"{name} must be at most {most}, got {value!r}")
        for name in ACTIVATIONS:
            value = inner.get(name)
            if value is not None and (not isinstance(value, str) or value not in ACT2FN):
                raise ValueError(f"{name}={value!r} is no activation of transformers: give the name of one")


def check_rope(stated: Mapping[str, Any]) -> None:
    """Raise ValueError for rotary parameters that are not finite, or not above 0 where required."""
    for name, value in stated.items():
        if name in ("type", "rope_type") or value is None or isinstance(value, bool):
            continue
        if not isinstance(value, int | float) or not isfinite(value) or (name in POSITIVE and value <= 0):
            kind = "a number above 0" if name in POSITIVE else "a finite number"
            raise ValueError(f"{name} of the rotary embedding must be {kind}, got {value!r}")


def is_count(value: object) -> bool:
    """Return whether a value is an integer above 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def check_config(config: PretrainedConfig) -> None:
    """Raise ValueError for impossible sizes."""
    text: Any = config.get_text_config()
    facts: dict[str, Any] = text.to_dict()
    for name in COUNTS:
        if not is_count(facts.get(name)):
            raise ValueError(f"{name} must be an integer above 0, got {facts.get(name)!r}")
    longest = facts.get("max_position_embeddings")
    if not is_count(longest) or text.max_position_embeddings < 2:
        raise ValueError(f"max_position_embeddings must be an integer from 2 to {MAX_POSITIONS}, got {longest!r}")
    layers = facts["num_hidden_layers"]
    if len(shapes := kv_shapes(config)) != layers:
        raise ValueError(f"layer_types names {len(shapes)} layers, and num_hidden_layers is {layers}")
    for number, shape in enumerate(shapes):
        heads = facts["num_attention_heads"]
        if not (is_count(shape.kv_heads) and is_count(shape.head_dim) and is_count(shape.group)):
            raise ValueError(
                f"layer {number} has {heads} heads of queries, {shape.kv_heads} of keys and a head_dim of {shape.head_dim}: "
                "all must be integers above 0"
            )
        if shape.window is not None and not is_count(shape.window):
            raise ValueError(f"sliding_window must be an integer above 0, got {shape.window!r}")


def check_eos(folder: Path, ids: list[Any], embedded: int) -> tuple[int, ...]:
    """Return ids without repetitions. Raises ValueError unless the network embeds all of them."""
    for index in ids:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < embedded:
            raise ValueError(
                f"{folder}: eos_token_id={index!r} is not an id of its network, which embeds {embedded}: give a number, or a "
                "list of numbers"
            )
    return tuple(dict.fromkeys(ids))
