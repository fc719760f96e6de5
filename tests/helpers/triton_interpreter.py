"""Triton's interpreter, made fit to be trusted: bf16 and FP8 as a device computes them, no access outside a tensor, and
nothing known where a mask is false.

Importing this installs all of it. As it is, the interpreter does arithmetic on the bit patterns of bf16 numbers, rounds 127
to 64 in FP8, reads whatever lies at an address, and loads 0 where a mask is false.
"""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed: it exists for Linux only")

import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, TensorHandle

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
needs_interpreter = pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled here: TRITON_INTERPRET is not 1")

_reachable: list[tuple[int, int]] = []  # first address and the one after the last of what the launched kernel was given


# Types whose numbers the interpreter keeps as bit patterns, and the type of these.
NARROW = {tl.bfloat16: (torch.bfloat16, torch.uint16), tl.float8e4nv: (torch.float8_e4m3fn, torch.uint8)}


def _kind(value: Any) -> Any:
    """The number type of a handle; None for anything else."""
    return value.dtype.scalar if isinstance(value, TensorHandle) else None


def _wide(value: Any) -> Any:
    """A handle of a narrow type as fp32; anything else as it is."""
    if _kind(value) not in NARROW:
        return value
    bits = torch.from_numpy(np.ascontiguousarray(value.data))
    return TensorHandle(bits.view(NARROW[_kind(value)][0]).float().numpy(), tl.float32)


def _narrow(value: TensorHandle, kind: Any) -> TensorHandle:
    """An fp32 handle rounded to a narrow type."""
    numbers, (own, bits) = torch.from_numpy(np.ascontiguousarray(value.data)), NARROW[kind]
    return TensorHandle(numbers.to(own).view(bits).numpy(), kind)


def _in_fp32(method: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    """The same operation with bf16 operands computed in fp32, its result rounded if it would be bf16."""

    @wraps(method)
    def operate(self: InterpreterBuilder, *operands: Any) -> TensorHandle:
        answer = method(self, *map(_wide, operands))
        if answer.data.dtype == np.bool_:
            # Tagged as what was compared, it would become that where it is spread over a block.
            return TensorHandle(answer.data, tl.int1)
        is_bf16 = tl.bfloat16 in map(_kind, operands) and answer.dtype.scalar == tl.float32
        return _narrow(answer, tl.bfloat16) if is_bf16 else answer

    return operate


def _exact_dot(method: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    """Products of floats are summed in fp64 and rounded to fp32 once.

    So a row's sums do not depend on its place in a tile, as on a device, but as numpy's own products do.
    """

    @wraps(method)
    def operate(self: InterpreterBuilder, left: TensorHandle, right: TensorHandle, sums: TensorHandle, *others: Any) -> Any:
        left, right = _wide(left), _wide(right)
        if sums.dtype.scalar != tl.float32:
            return method(self, left, right, sums, *others)
        product = np.matmul(left.data.astype(np.float64), right.data.astype(np.float64))
        return TensorHandle(product.astype(np.float32) + sums.data, tl.float32)

    return operate


def _cast_by_torch(method: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    @wraps(method)
    def cast(self: InterpreterBuilder, source: TensorHandle, kind: Any, *others: Any) -> TensorHandle:
        before, after = source.dtype.scalar, kind.scalar
        if before == after or not NARROW.keys() & {before, after}:
            return method(self, source, kind, *others)
        wide = _wide(source)
        if after not in NARROW:
            return wide if after == tl.float32 else method(self, wide, kind, *others)
        # Through fp32, which is what a device does: it has no other way to bf16.
        return _narrow(TensorHandle(wide.data.astype(np.float32), tl.float32), after)

    return cast


def _check(pointers: TensorHandle, mask: TensorHandle | None, what: str) -> None:
    """Every lane that takes part must lie within one of the kernel's tensors."""
    first = np.asarray(pointers.data).astype(np.uint64).reshape(-1)
    if mask is not None:
        first = first[np.broadcast_to(mask.data, pointers.data.shape).reshape(-1).astype(bool)]
    size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    inside = np.zeros(first.shape, bool)
    for begin, end in _reachable:
        inside |= (first >= begin) & (first + np.uint64(size) <= end)
    if not inside.all():
        raise IndexError(f"{what}: {int((~inside).sum())} of {inside.size} addresses lie outside the kernel's tensors")


def _bounded(method: Callable[..., Any], pointers_at: int, mask_at: int | None) -> Callable[..., Any]:
    @wraps(method)
    def access(self: InterpreterBuilder, *operands: Any, **named: Any) -> Any:
        _check(operands[pointers_at], None if mask_at is None else operands[mask_at], method.__name__)
        return method(self, *operands, **named)

    return access


def _open(method: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    """A load without `other` gives NaN or -1 where its mask is false: on a device, it may give anything."""

    @wraps(method)
    def load(self: InterpreterBuilder, pointers: TensorHandle, mask: TensorHandle, other: Any, *more: Any, **named: Any) -> Any:
        if other is None:
            kind = pointers.get_element_ty()
            ones = np.full((*pointers.data.shape, np.dtype(interpreter._get_np_dtype(kind)).itemsize), 255, np.uint8)
            other = TensorHandle(ones.view(interpreter._get_np_dtype(kind))[..., 0], kind)
        return method(self, pointers, mask, other, *more, **named)

    return load


def _noted(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The interpreter's way of passing an argument, with a note of the memory that it stands for."""

    @wraps(convert)
    def noted(argument: Any) -> Any:
        if isinstance(argument, torch.Tensor):
            storage = argument.untyped_storage()
            _reachable.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
        return convert(argument)

    return noted


def _fresh(call: Callable[..., None]) -> Callable[..., None]:
    @wraps(call)
    def launch(self: GridExecutor, *arguments: Any, **options: Any) -> None:
        _reachable.clear()
        call(self, *arguments, **options)

    return launch


def _install() -> None:
    for name in ("binary_op", "unary_op", "ternary_op", "create_fma", "create_fabs"):
        setattr(InterpreterBuilder, name, _in_fp32(getattr(InterpreterBuilder, name)))
    for name in ("cast_impl", "create_fp_to_fp"):
        setattr(InterpreterBuilder, name, _cast_by_torch(getattr(InterpreterBuilder, name)))
    InterpreterBuilder.create_dot = _exact_dot(InterpreterBuilder.create_dot)
    InterpreterBuilder.create_masked_load = _open(InterpreterBuilder.create_masked_load)
    accesses = {
        "create_masked_load": (0, 1),
        "create_masked_store": (0, 2),
        "create_atomic_cas": (0, None),
        "create_atomic_rmw": (1, 3),
    }
    for name, places in accesses.items():
        setattr(InterpreterBuilder, name, _bounded(getattr(InterpreterBuilder, name), *places))
    interpreter._implicit_cvt = _noted(interpreter._implicit_cvt)
    GridExecutor.__call__ = _fresh(GridExecutor.__call__)


if INTERPRETED:
    _install()
