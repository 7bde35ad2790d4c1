"""The pairs of one document with those ranked after it, eight at a time.

LLVM vectorises such a loop by itself, but with long loops in mind: 32 at a time, and what is left over, which is all of a
short loop, four at a time, after it has compared all addresses with each other. So here its instructions are written out.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .._constants import Array
from .gauss import EXP2, ROUND

EIGHT = 8
"""Arrays must have room for so many numbers behind the last pair; what they are does not matter, but scores are finite."""

_INTEGER = ir.IntType(64)
_DOUBLES, _INTEGERS = ir.VectorType(ir.DoubleType(), EIGHT), ir.VectorType(_INTEGER, EIGHT)
_FLAGS = ("contract", "nsz")  # as in `policy`


class _Eight:
    """Eight numbers in code that is being generated: each operator adds an instruction."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def new(self, value: Any) -> _Eight:
        return _Eight(self.builder, value)

    def __add__(self, other: Any) -> _Eight:
        return self.new(self.builder.fadd(self.value, _operand(other), flags=_FLAGS))

    def __sub__(self, other: Any) -> _Eight:
        return self.new(self.builder.fsub(self.value, _operand(other), flags=_FLAGS))

    def __mul__(self, other: Any) -> _Eight:
        return self.new(self.builder.fmul(self.value, _operand(other), flags=_FLAGS))

    def __rtruediv__(self, other: Any) -> _Eight:
        return self.new(self.builder.fdiv(_operand(other), self.value, flags=_FLAGS))

    def __neg__(self) -> _Eight:
        return self * -1.0

    def __abs__(self) -> _Eight:
        return self.from_bits(self.builder.and_(self.bits(), ir.Constant(_INTEGERS, [2**63 - 1] * EIGHT)))

    def bits(self) -> Any:
        return self.builder.bitcast(self.value, _INTEGERS)

    def from_bits(self, bits: Any) -> _Eight:
        return self.new(self.builder.bitcast(bits, _DOUBLES))

    def at_least(self, bound: Any) -> _Eight:
        return self.new(self.builder.select(self.compared(">", bound), self.value, _operand(bound)))

    def compared(self, how: str, bound: Any) -> Any:
        return self.builder.fcmp_ordered(how, self.value, _operand(bound))


def _operand(value: Any) -> Any:
    return value.value if isinstance(value, _Eight) else ir.Constant(_DOUBLES, [value] * EIGHT)


def _spread(builder: Any, value: Any, kind: Any = _DOUBLES) -> Any:
    """One number, eight times."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), EIGHT), [0] * EIGHT))


def _total(builder: Any, where: Any) -> Any:
    parts = [builder.extract_element(builder.load(where), ir.Constant(ir.IntType(32), i)) for i in range(EIGHT)]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [builder.fadd(one, other) for one, other in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def _exp2_negative(t: _Eight) -> _Eight:
    """As in `gauss`."""
    builder, t = t.builder, t.at_least(-1020.0)
    shifted = t + ROUND
    r = t - (shifted - ROUND)
    p = t.new(_operand(EXP2[0]))
    for factor in EXP2[1:]:
        p = p * r + factor
    exponent = builder.shl(shifted.bits(), ir.Constant(_INTEGERS, [52] * EIGHT))
    return t.from_bits(builder.add(p.bits(), exponent))


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    a, here, count, least = (arguments[i] for i in (4, 5, 7, 8))

    def one(array: int, index: Any) -> Any:
        data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
        return builder.gep(data, [index])

    def eight(array: int, index: Any) -> Any:
        return builder.bitcast(one(array, index), _DOUBLES.as_pointer())

    def load(where: Any) -> _Eight:
        return _Eight(builder, builder.load(where, align=8))

    def add(where: Any, what: _Eight) -> None:
        builder.store((load(where) + what).value, where, align=8)

    x, gain, pull, bend, coefficient = 0, 1, 2, 3, 6
    own, own_gain, own_coefficient, bound = (
        _Eight(builder, _spread(builder, value))
        for value in (builder.load(one(x, a)), builder.load(one(gain, a)), here, least)
    )
    sums = [cgutils.alloca_once_value(builder, _operand(0.0)) for _ in range(2)]
    lanes, counts = ir.Constant(_INTEGERS, list(range(EIGHT))), _spread(builder, count, _INTEGERS)
    steps = (ir.Constant(_INTEGER, number) for number in (0, EIGHT))
    with cgutils.for_range_slice(builder, next(steps), count, next(steps), _INTEGER) as (block, _):
        at = builder.add(builder.add(a, ir.Constant(_INTEGER, 1)), block)
        weight = abs(own_coefficient - load(eight(coefficient, block))) * (own_gain - load(eight(gain, at)))
        exists = builder.icmp_signed("<", builder.add(lanes, _spread(builder, block, _INTEGERS)), counts)
        weight = weight.new(builder.select(exists, weight.value, _operand(0.0)))
        ahead = own - load(eight(x, at))
        e = _exp2_negative(-abs(ahead))
        share = 1.0 / (e + 1.0)
        wrong = share * e.new(builder.select((ahead * weight).compared(">=", 0.0), e.value, _operand(1.0)))
        first, second = weight * wrong, abs(weight) * (e * share * share).at_least(bound * wrong)
        for where, what in ((eight(pull, at), first), (eight(bend, at), second), *zip(sums, (first, second), strict=True)):
            add(where, what)
    builder.store(builder.fsub(builder.load(one(pull, a)), _total(builder, sums[0])), one(pull, a))
    builder.store(builder.fadd(builder.load(one(bend, a)), _total(builder, sums[1])), one(bend, a))
    return context.get_dummy_value()


if numba.config.DISABLE_JIT:

    def add_pairs(
        x: Array, gain: Array, pull: Array, bend: Array, a: int, here: float, coefficient: Array, count: int, least: float
    ) -> None:
        """Add both derivatives of the loss of each pair of the document at `a` with the `count` after it to those of both.

        The loss is w log(1 + exp(-(s_i - s_j))) with i the better; x are scores in powers of two. A pair weighs |here -
        coefficient| times the difference of the gains. The second derivative is at least `least` times the first.
        """
        after = slice(a + 1, a + 1 + count)
        weight = np.abs(here - coefficient[:count]) * (gain[a] - gain[after])
        ahead = x[a] - x[after]
        e = np.exp2(np.maximum(-np.abs(ahead), -1020.0))
        wrong = np.where(ahead * weight >= 0.0, e, 1.0) / (1.0 + e)
        first, second = weight * wrong, np.abs(weight) * np.maximum(e / (1.0 + e) ** 2, least * wrong)
        pull[after] += first
        bend[after] += second
        pull[a] -= first.sum()
        bend[a] += second.sum()

else:

    @intrinsic
    def add_pairs(
        typing_context: Any,
        x: Any,
        gain: Any,
        pull: Any,
        bend: Any,
        a: Any,
        here: Any,
        coefficient: Any,
        count: Any,
        least: Any,
    ) -> Any:
        """What the function above does."""
        return types.void(x, gain, pull, bend, a, here, coefficient, count, least), _generate
