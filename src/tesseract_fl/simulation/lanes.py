"""Sixteen float32 as one value inside numba kernels, so that sums stay in registers.

The compiler keeps an array of accumulators in memory, because it can't prove that nothing else points there; a value
of this type lives in registers (two of AVX2, one of AVX-512). Indices are flat, into C-contiguous arrays of any
shape, and unchecked. Kernels that were compiled and cached do not notice a change here: touch their file.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic
from numba.extending import models, register_model
from numba.np.arrayobj import make_array

intrinsic: Any = _intrinsic  # what it makes is called without its first argument, and only from kernels

LANES = 16
DEAD = 4  # the tag of a window whose maximum is not positive: no gradient comes back through it

_I32 = ir.IntType(32)
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_INTS = ir.VectorType(_I32, LANES)
_BYTES = ir.VectorType(ir.IntType(8), LANES)


class Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes = Lanes()


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, type_: Any) -> None:
        super().__init__(manager, type_, _FLOATS)


def _address(context: Any, builder: Any, signature: Any, args: Any, vector: Any = None) -> Any:
    """Where element args[1] of the array args[0] is."""
    data = make_array(signature.args[0])(context, builder, args[0]).data
    element = builder.gep(data, [args[1]])
    return element if vector is None else builder.bitcast(element, vector.as_pointer())


def _repeat(builder: Any, vector: Any, scalar: Any) -> Any:
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(_INTS, [0] * LANES))


def _ints(value: int) -> Any:
    return ir.Constant(_INTS, [value] * LANES)


@intrinsic
def item(typing: Any, array: Any, i: Any) -> Any:
    """array[i]."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_address(context, builder, signature, args))

    return array.dtype(array, types.intp), build


@intrinsic
def load(typing: Any, array: Any, i: Any) -> Any:
    """array[i : i + 16]."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_address(context, builder, signature, args, _FLOATS), align=4)

    return lanes(array, types.intp), build


@intrinsic
def store(typing: Any, array: Any, i: Any, value: Any) -> Any:
    """array[i : i + 16] = value."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _address(context, builder, signature, args, _FLOATS), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), build


@intrinsic
def splat(typing: Any, scalar: Any) -> Any:
    """The same number in every lane."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _repeat(builder, _FLOATS, args[0])

    return lanes(types.float32), build


@intrinsic
def spread(typing: Any, array: Any, i: Any) -> Any:
    """array[i] in every lane."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _repeat(builder, _FLOATS, builder.load(_address(context, builder, signature, args)))

    return lanes(array, types.intp), build


@intrinsic
def add(typing: Any, a: Any, b: Any) -> Any:
    """a + b."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(args[0], args[1])

    return lanes(lanes, lanes), build


@intrinsic
def subtract(typing: Any, a: Any, b: Any) -> Any:
    """a − b."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fsub(args[0], args[1])

    return lanes(lanes, lanes), build


@intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        product = builder.fmul(args[0], args[1], flags=("contract",))
        return builder.fadd(product, args[2], flags=("contract",))

    return lanes(lanes, lanes, lanes), build


@intrinsic
def total(typing: Any, a: Any) -> Any:
    """The sum of the lanes, in pairs."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (vector,) = args
        half = LANES // 2
        while half:
            undefined = ir.Constant(vector.type, ir.Undefined)
            low, high = (
                builder.shuffle_vector(vector, undefined, ir.Constant(ir.VectorType(_I32, half), list(part)))
                for part in (range(half), range(half, 2 * half))
            )
            vector = builder.fadd(low, high)
            half //= 2
        return builder.extract_element(vector, ir.Constant(_I32, 0))

    return types.float32(lanes), build


@intrinsic
def larger(typing: Any, a: Any, b: Any) -> Any:
    """max(a, b), NaN if either is, as torch has it."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        above = builder.fcmp_ordered(">", args[1], args[0])
        nan = builder.fcmp_unordered("uno", args[1], args[1])
        return builder.select(builder.or_(above, nan), args[1], args[0])

    return lanes(lanes, lanes), build


@intrinsic
def store_tags(typing: Any, array: Any, i: Any, top: Any, a: Any, b: Any, c: Any) -> Any:
    """Which of a, b, c and a fourth is the first to equal the maximum `top` of all four; DEAD unless top > 0."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        top = args[2]
        tags = _ints(3)
        for tag in (2, 1, 0):
            tags = builder.select(builder.fcmp_ordered("==", args[3 + tag], top), _ints(tag), tags)
        alive = builder.fcmp_unordered(">", top, ir.Constant(_FLOATS, [0.0] * LANES))
        tags = builder.trunc(builder.select(alive, tags, _ints(DEAD)), _BYTES)
        builder.store(tags, _address(context, builder, signature, args, _BYTES), align=1)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes, lanes, lanes, lanes), build


def _where(context: Any, builder: Any, signature: Any, args: Any, relation: str, wanted: Any, value: Any) -> Any:
    tags = builder.zext(builder.load(_address(context, builder, signature, args, _BYTES), align=1), _INTS)
    chosen = builder.icmp_unsigned(relation, tags, wanted)
    return builder.select(chosen, value, ir.Constant(_FLOATS, [0.0] * LANES))


@intrinsic
def where_tag(typing: Any, array: Any, i: Any, tag: Any, value: Any) -> Any:
    """`value` where array[i : i + 16] is `tag`, else 0."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wanted = _repeat(builder, _INTS, builder.trunc(args[2], _I32))
        return _where(context, builder, signature, args, "==", wanted, args[3])

    return lanes(array, types.intp, types.intp, lanes), build


@intrinsic
def where_alive(typing: Any, array: Any, i: Any, value: Any) -> Any:
    """`value` where array[i : i + 16] is not DEAD, else 0."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _where(context, builder, signature, args, "!=", _ints(DEAD), args[2])

    return lanes(array, types.intp, lanes), build
