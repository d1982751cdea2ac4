"""Triton's interpreter (3.3 to 3.7), mended."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter


def mend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the interpreter compute as a GPU does where it does not."""
    bfloat16_as_numbers(monkeypatch)
    tf32_as_such(monkeypatch)
    floats_as_tensors(monkeypatch)


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it take about an eighth of the time."""
    integers_unchecked(monkeypatch)
    handles_unchecked(monkeypatch)
    patch_once(monkeypatch)
    types_once(monkeypatch)
    operators_at_once(monkeypatch)
    bfloat16_by_bits(monkeypatch)
    what_is_alike(monkeypatch)
    whole_slices(monkeypatch)


def bfloat16_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds bfloat16 as bits and multiplies these, element by element and in matrices, as if they were
    integers; and rounds by cutting off."""
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    cast, dot, binary = builder.cast_impl, builder.create_dot, builder.binary_op

    def widened(x: Any) -> Any:
        return (
            handle(torch.tensor(x.data).view(torch.bfloat16).float().numpy(), tl.float32)
            if x.dtype.scalar == tl.bfloat16
            else x
        )

    def rounded(data: Any) -> Any:
        return handle(torch.tensor(data).bfloat16().view(torch.uint16).numpy(), tl.bfloat16)

    def exact_cast(self: Any, x: Any, target: Any) -> Any:
        return rounded(widened(x).data) if target.scalar == tl.bfloat16 else cast(self, widened(x), target)

    def exact_binary(self: Any, x: Any, y: Any, operation: Any) -> Any:
        result = binary(self, widened(x), widened(y), operation)
        return (
            rounded(result.data)
            if x.dtype.scalar == tl.bfloat16 and result.data.dtype == "float32"
            else result
        )

    monkeypatch.setattr(builder, "cast_impl", exact_cast)
    monkeypatch.setattr(builder, "binary_op", exact_binary)
    monkeypatch.setattr(
        builder, "create_dot", lambda self, x, y, *more: dot(self, widened(x), widened(y), *more)
    )
    monkeypatch.setattr(builder, "get_bf16", lambda self, value: rounded([value]), raising=False)


def tf32_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """It multiplies float32 in full where a tensor core reads no more than 11 bits of it, and cuts off the
    others."""
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    dot = builder.create_dot

    def cut(x: Any) -> Any:
        return (
            handle((x.data.view("int32") & -8192).view("float32"), x.dtype.scalar)
            if x.dtype.scalar == tl.float32
            else x
        )

    def create_dot(self: Any, x: Any, y: Any, onto: Any, precision: Any, *more: Any) -> Any:
        if precision == ir.INPUT_PRECISION.TF32:
            x, y = cut(x), cut(y)
        return dot(self, x, y, onto, precision, *more)

    monkeypatch.setattr(builder, "create_dot", create_dot)


def floats_as_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A float given to a kernel is a number to it, which takes the type of what it meets; on a GPU it is a
    float32, which what it meets takes on."""
    convert = interpreter._implicit_cvt

    def converted(x: Any) -> Any:
        if isinstance(x, float):
            return tl.tensor(
                interpreter.TensorHandle(torch.tensor([x], dtype=torch.float32).numpy(), tl.float32),
                tl.float32,
            )
        return convert(x)

    monkeypatch.setattr(interpreter, "_implicit_cvt", converted)


def integers_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes sums and products of integers once more, in 64 bits, to see whether they overflow. A GPU
    does not look, and of small tensors none does."""
    builder = interpreter.interpreter_builder
    monkeypatch.setattr(builder, "options", replace(builder.options, sanitize_overflow=False))


def handles_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks once more, from 3.6 on, whether the numbers of a result have the size of their type."""
    monkeypatch.setattr(interpreter.TensorHandle, "__post_init__", lambda self: None, raising=False)


def patch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces all of Triton's language anew for every function that a kernel calls, where once for the
    kernel is enough."""
    call = interpreter.InterpretedFunction.__call__

    def called(self: Any, *args: Any, **options: Any) -> Any:
        # these see another part of the language, which stays replaced
        if self.fn.__module__.startswith("triton.") and tl.core.is_builtin(tl.core.load):
            return call(self, *args, **options)
        return self.rewrite()(*args, **options)

    monkeypatch.setattr(interpreter.InterpretedFunction, "__call__", called)


_MADE: dict[str, dict[Any, Any]] = {"in numpy": {}, "block": {}, "tensor": {}}
"""Values that are the same for all tensors of a type, by its name."""


def types_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It works out anew what is known of a type for every tensor of it."""
    in_numpy, block, tensor = interpreter._get_np_dtype, tl.core.block_type.__init__, tl.core.tensor.__init__

    def known_in_numpy(kind: Any) -> Any:
        made, kind = _MADE["in numpy"], kind.scalar
        if kind.name not in made:
            made[kind.name] = in_numpy(kind)
        return made[kind.name]

    def known_block(self: Any, element: Any, shape: Any) -> None:
        made, key = _MADE["block"], (element.name, *(getattr(size, "value", size) for size in shape))
        if key not in made:
            block(self, element, shape)
            made[key] = dict(vars(self))
        vars(self).update(made[key], element_ty=element)

    def known_tensor(self: Any, handle: Any, kind: Any) -> None:
        made = _MADE["tensor"]
        if kind.name not in made:
            tensor(self, handle, kind)
            made[kind.name] = dict(vars(self))
        vars(self).update(made[kind.name], handle=handle, type=kind, dtype=kind.scalar)

    monkeypatch.setattr(interpreter, "_get_np_dtype", known_in_numpy)
    monkeypatch.setattr(tl.core.block_type, "__init__", known_block)
    monkeypatch.setattr(tl.core.tensor, "__init__", known_tensor)


_ARITHMETIC = {
    "__add__": np.add,
    "__radd__": np.add,
    "__sub__": np.subtract,
    "__rsub__": lambda x, y: np.subtract(y, x),
    "__mul__": np.multiply,
    "__rmul__": np.multiply,
}
_COMPARISONS = {"__lt__": np.less, "__le__": np.less_equal, "__gt__": np.greater, "__ge__": np.greater_equal}
_BLOCKS: dict[tuple[str, tuple[int, ...]], Any] = {}


def operators_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes through a dozen functions to add, multiply or compare two tensors. Where both are of float32 or
    of int32, or one is a number that takes the other's type, numpy does what these end in."""
    for name, compute in _ARITHMETIC.items():
        _replace_operator(monkeypatch, name, compute, {"fp32": None, "int32": None})
    for name, compare in _COMPARISONS.items():
        _replace_operator(monkeypatch, name, compare, {"fp32": tl.int1, "int32": tl.int1})
    _replace_operator(monkeypatch, "__and__", np.bitwise_and, {"int1": None})


def _replace_operator(
    monkeypatch: pytest.MonkeyPatch, name: str, compute: Any, kinds: dict[str, Any]
) -> None:
    """Let an operator of two tensors of one of these types be one call of numpy.

    A type is given with that of the result, which is None for the same.
    """
    tensor, usual = tl.core.tensor, getattr(tl.core.tensor, name)

    def operator(self: Any, other: Any, **semantic: Any) -> Any:  # `_builder` in Triton 3.3
        own, value = self.dtype, other.value if type(other) is tl.constexpr else other
        if own.name in kinds:
            kind = kinds[own.name] or own
            if type(value) is tensor and value.dtype.name == own.name:
                in_blocks = self.type.is_block() or value.type.is_block()
                return _tensor_of(compute(self.handle.data, value.handle.data), kind, in_blocks)
            if _keeps(own.name, value):
                return _tensor_of(compute(self.handle.data, value), kind, self.type.is_block())
        return usual(self, other, **semantic)

    setattr(operator, tl.core.TRITON_BUILTIN, True)
    monkeypatch.setattr(tensor, name, operator)


def _tensor_of(data: Any, kind: Any, is_block: bool) -> Any:
    """Return an array as a tensor of a type."""
    whole = kind
    if is_block:
        whole = _BLOCKS.get((kind.name, data.shape))
        if whole is None:
            whole = _BLOCKS[kind.name, data.shape] = tl.core.block_type(kind, [*data.shape])
    return tl.core.tensor(interpreter.TensorHandle(data, kind), whole)


def _keeps(name: str, number: Any) -> bool:
    """Return whether an operation of a tensor of this type with this number is one of that type."""
    if type(number) is int:
        return name in ("int32", "fp32") and -(2**31) <= number < 2**31
    return type(number) is float and name == "fp32"


def bfloat16_by_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes floats apart to make bfloat16 of float32, and float32 of bfloat16, where it cuts off or adds
    16 bits."""
    convert = interpreter._convert_float

    def converted(given: Any, source: Any, target: Any, rounding: Any) -> Any:
        if source.name == "bf16" and target.name == "fp32":
            return given.view(np.uint16).astype(np.uint32) << 16
        if source.name == "fp32" and target.name == "bf16" and rounding is None:
            return (given.view(np.uint32) >> 16).astype(np.uint16)
        return convert(given, source, target, rounding)

    monkeypatch.setattr(interpreter, "_convert_float", converted)


def what_is_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """It casts to the type that a tensor has, broadcasts to the shape that it has, and asks a type at length
    whether it is itself."""
    equal = tl.core.dtype.__eq__
    monkeypatch.setattr(tl.core.dtype, "__eq__", lambda self, other: self is other or equal(self, other))
    semantic = getattr(tl.semantic, "TritonSemantic", None)
    if semantic is None:  # Triton 3.3 has no such class
        return
    cast, broadcast = semantic.cast, semantic.broadcast_impl_value

    def quickly_cast(self: Any, x: Any, target: Any, *more: Any) -> Any:
        return x if x.type.scalar is target.scalar else cast(self, x, target, *more)

    def quickly_broadcast(self: Any, x: Any, y: Any) -> Any:
        alike = x.type.is_block() and y.type.is_block() and [*x.type.shape] == [*y.type.shape]
        return (x, y) if alike else broadcast(self, x, y)

    monkeypatch.setattr(semantic, "cast", quickly_cast)
    monkeypatch.setattr(semantic, "broadcast_impl_value", quickly_broadcast)


def whole_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reduces by a function of ours number by number, where a slice at a time is the same."""
    reduce = interpreter.ReduceOps.generic_reduce

    def by_slices(self: Any, given: Any) -> Any:
        axis, arrays = self.axis, [x.handle.data for x in given]
        if axis is None or arrays[0].ndim < 2:
            return reduce(self, given)
        before = (slice(None),) * axis
        rows = [
            [self.to_tensor(array[(*before, i)], x.dtype) for array, x in zip(arrays, given, strict=True)]
            for i in range(arrays[0].shape[axis])
        ]
        done = rows[0]
        for row in rows[1:]:
            done = self.combine_fn.fn(*done, *row)
            done = [*done] if isinstance(done, (tuple, tl.core.tuple)) else [done]
        place = (*before, None if self.keep_dims else ...)
        return [self.to_tensor(x.handle.data[place], x.dtype) for x in done]

    monkeypatch.setattr(interpreter.ReduceOps, "generic_reduce", by_slices)
