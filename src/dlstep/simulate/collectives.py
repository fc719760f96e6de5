"""Bytes that a tensor-parallel step moves, computed from the shape of a network."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from ..bench.shapes import Shape

BYTES = 2  # bytes of a bfloat16 number
# Measured: all-reduce in a captured CUDA graph by NCCL, two H200 of one host; bytes of the message
# and microseconds.
MEASURED = ((130 * 4096 * BYTES, 17.8), (1040 * 4096 * BYTES, 48.6), (4174 * 4096 * BYTES, 143.0))
MEASURED_GPUS = 2
REDUCES_A_LAYER = 2  # after the attention, and after the MLP


@dataclass(frozen=True, slots=True)
class TensorParallelStep:
    """A step of `rows` rows on `gpus` GPUs: bytes that each reads and sends, and all-reduce times.

    `weights_gib` is read in every step, `kv_kib_per_token` for each position of context.
    `message_mib` is the size of one all-reduce, `sent_mib` what a GPU sends per step in a ring.
    `all_reduce_us` is None outside of the measured range.
    """

    shape: str
    gpus: int
    rows: int
    weights_gib: float
    kv_kib_per_token: float
    all_reduces: int
    message_mib: float
    sent_mib: float
    all_reduce_us: float | None
    step_us: float | None


def tensor_parallel(shape: Shape, gpus: int, rows: int) -> TensorParallelStep:
    """Return the step of a dense shape. Raises ValueError for experts and for indivisible heads."""
    facts: Any = shape.facts
    if "num_experts" in facts or "text_config" in facts:
        raise ValueError(f"{shape.name} has experts, which are not split this way: give a dense shape such as sdar-8b")
    hidden, layers, heads = facts["hidden_size"], facts["num_hidden_layers"], facts["num_attention_heads"]
    kv_heads, width, vocabulary = facts["num_key_value_heads"], facts["intermediate_size"], facts["vocab_size"]
    if gpus < 1 or rows < 1 or heads % gpus or kv_heads % gpus:
        raise ValueError(
            f"{shape.name} has {heads} heads of queries and {kv_heads} of keys: the number of GPUs must divide both, and rows "
            f"be at least 1; got {gpus} and {rows}"
        )
    head = facts.get("head_dim", hidden // heads)
    layer = hidden * head * (2 * heads + 2 * kv_heads) + 3 * hidden * width
    weights = BYTES * (layers * layer + vocabulary * hidden) / gpus  # only the fed rows of embeddings are read
    reduces = REDUCES_A_LAYER * layers if gpus > 1 else 0
    message = rows * hidden * BYTES
    sent = reduces * message * 2 * (gpus - 1) / gpus
    reduce_us = 0.0 if gpus == 1 else measured_us(message) if gpus == MEASURED_GPUS else None
    return TensorParallelStep(
        shape.name, gpus, rows, weights / 2**30, BYTES * 2 * layers * kv_heads * head / gpus / 2**10, reduces,
        message / 2**20, sent / 2**20, reduce_us, None if reduce_us is None else reduce_us * reduces,
    )  # fmt: skip


def measured_us(message: int) -> float | None:
    """Return microseconds of an all-reduce, interpolated; None outside of the measured sizes."""
    sizes = [size for size, _ in MEASURED]
    index = bisect_left(sizes, message)
    if index < len(sizes) and sizes[index] == message:
        return MEASURED[index][1]
    if index in (0, len(sizes)):
        return None
    (low, fast), (high, slow) = MEASURED[index - 1 : index + 1]
    return fast + (slow - fast) * (message - low) / (high - low)
