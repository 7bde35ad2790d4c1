"""The text of svmlight files, a block at a time: kernels that count what is there and parse it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._constants import Array
from .policy import inline, inner, kernel

LARGEST_INDEX = 2**31 - 2
NEWLINE, _HASH, _COLON, _PLUS, _MINUS, _POINT, _ZERO = 10, 35, 58, 43, 45, 46, 48
POWERS = np.array([float(f"1e{i}") for i in range(-308, 309)])

_EXACT, _NEAR, _BAD = 0, 1, 2  # kinds of numbers: right to the last bit; within a few of them; none at all

PROBLEMS = (
    "",
    "the label {token} is not a number",
    "the label {token} is negative; shift the grades so that the lowest is 0",
    "there is no qid:ID after the label, but {token}",
    "{token} is not index:value with a whole index from 0 on",
    "the index in {token} is not larger than the one before it; indices must increase within a line",
    f"the index in {{token}} is larger than {LARGEST_INDEX}",
    "the value in {token} is not a finite number",
    "the value in {token} is too large for 32 bits",
    "the file was changed while it was being read",
)
_LABEL, _NEGATIVE, _QID, _INDEX, _ORDER, _HUGE, _VALUE, _LARGE, CHANGED = range(1, len(PROBLEMS))

# What a kernel carries from block to block.
LINES, ROWS, ZERO_AT, HIGHEST, HIGHEST_AT = range(5)  # while scanning
QUERIES, HARD, RUN, FIRST, MIXED_AT, PROBLEM, AT = range(2, 9)  # while parsing, after the same first two


@inline
def _blank(c: Any) -> Any:
    return c == 32 or c == 9 or c == 13 or c == 11 or c == 12


@inline
def _ends(c: Any) -> Any:
    """Whether a token ends here."""
    return c in (NEWLINE, _HASH) or _blank(c)


@inline
def _skip(text: Any, p: Any) -> Any:
    while _blank(text[p]):
        p += 1
    return p


@inline
def _next_line(text: Any, p: Any) -> Any:
    while text[p] != NEWLINE:
        p += 1
    return p + 1


@inline
def _digit(c: Any) -> Any:
    return 48 <= c <= 57


@inner
def _digits(text: Any, p: Any) -> Any:
    """The first 18 significant digits from p on, the power of ten that they are short of, and whether any were left out."""
    mantissa = exponent = 0
    cut = point = False
    while _digit(text[p]) or (text[p] == _POINT and not point):
        if text[p] == _POINT:
            point = True
        elif mantissa < 10**17:
            mantissa = 10 * mantissa + (text[p] - _ZERO)
            exponent -= point
        else:
            cut = True
            exponent += not point
        p += 1
    return mantissa, exponent, cut


@inline
def _number(text: Any, p: Any, powers: Any) -> Any:
    """A decimal number that begins at p: where it ends, its kind and its value."""
    negative = text[p] == _MINUS
    if negative or text[p] == _PLUS:
        p += 1
    begin = p
    mantissa = exponent = point = 0
    cut = False
    while _digit(text[p]):
        mantissa = 10 * mantissa + (text[p] - _ZERO)
        p += 1
    if text[p] == _POINT:
        point = 1
        p += 1
        fraction = p
        while _digit(text[p]):
            mantissa = 10 * mantissa + (text[p] - _ZERO)
            p += 1
        exponent = fraction - p
    if p - begin > 18:  # more than 64 bits hold, unless there are zeros in front
        mantissa, exponent, cut = _digits(text, begin)
    if p - begin == point:
        return p, _BAD, 0.0
    if text[p] == 101 or text[p] == 69:  # e, E
        p += 1
        down = text[p] == _MINUS
        if down or text[p] == _PLUS:
            p += 1
        if not _digit(text[p]):
            return p, _BAD, 0.0
        given = 0
        while _digit(text[p]):
            given = min(10 * given + (text[p] - _ZERO), 1_000_000_000)
            p += 1
        exponent += -given if down else given
    kind = _EXACT
    if mantissa == 0:
        value = 0.0
    elif not cut and mantissa <= 2**53 and -22 <= exponent <= 22:
        # Both numbers are exact in a double, so that one operation rounds correctly.
        value = mantissa / powers[308 - exponent] if exponent < 0 else mantissa * powers[308 + exponent]
    else:
        kind = _NEAR
        if exponent > 308:
            value = np.inf
        elif exponent >= -308:
            value = mantissa * powers[308 + exponent]
        else:
            value = 0.0  # below 1e-290: nothing in 32 bits
    return p, kind, -value if negative else value


@kernel
def scan_block(text: Any, size: Any, state: Any) -> None:
    """Count lines and rows and find index 0 and the highest index, from the first and the last pair of each row alone."""
    p = 0
    while p < size:
        state[LINES] += 1
        p = _skip(text, p)
        if text[p] == NEWLINE or text[p] == _HASH:
            p = _next_line(text, p)
            continue
        state[ROWS] += 1
        for _ in range(2):  # label, query
            while not _ends(text[p]):
                p += 1
            p = _skip(text, p)
        pairs = p
        index = 0
        while _digit(text[p]):
            index = min(10 * index + (text[p] - _ZERO), LARGEST_INDEX + 1)
            p += 1
        if p > pairs and text[p] == _COLON and index == 0 and state[ZERO_AT] == 0:
            state[ZERO_AT] = state[LINES]
        while text[p] != NEWLINE and text[p] != _HASH:
            p += 1
        q = p - 1
        while q > pairs and text[q] != _COLON:
            q -= 1
        q -= 1
        index, unit = -1, 1
        while q >= pairs and _digit(text[q]) and unit <= 10**10:
            index = max(index, 0) + unit * (text[q] - _ZERO)
            unit *= 10
            q -= 1
        index = min(index, LARGEST_INDEX + 1)
        if index > state[HIGHEST]:
            state[HIGHEST] = index
            state[HIGHEST_AT] = state[LINES]
        p = _next_line(text, p)


@inline
def _same(a: Any, a_begin: Any, a_end: Any, b: Any, b_begin: Any, b_end: Any) -> Any:
    if a_end - a_begin != b_end - b_begin:
        return False
    for i in range(a_end - a_begin):  # noqa: SIM110 - numba has no all() over a generator
        if a[a_begin + i] != b[b_begin + i]:
            return False
    return True


@inline
def _stop(state: Any, problem: Any, at: Any) -> None:
    state[PROBLEM] = problem
    state[AT] = at


class Block(NamedTuple):
    """Whole lines of text, and the query id that the block before has ended with."""

    text: NDArray[np.uint8]
    size: int
    previous: NDArray[np.uint8]


class Rows(NamedTuple):
    """What is filled row by row; `base` is the index of the first feature."""

    features: NDArray[np.float32]
    labels: Array
    base: int


class Found(NamedTuple):
    """Places in the text that Python looks at again, and what is carried from block to block.

    `queries` takes (row, begin, end, line) of the id wherever it differs from the row before, `hard` takes (row, column,
    begin, end, line) of numbers that need more than double precision to round; a label has column -1.
    """

    queries: NDArray[np.int64]
    hard: NDArray[np.int64]
    state: NDArray[np.int64]


@kernel
def parse_block(block: Block, rows: Rows, found: Found, powers: Any) -> None:
    """Fill the rows of whole lines; stop at the first problem."""
    text, size, previous = block.text, block.size, block.previous
    features, labels, base = rows.features, rows.labels, rows.base
    queries, hard, state = found.queries, found.hard, found.state
    width = features.shape[1]
    known, known_begin, known_end = previous, 0, len(previous)
    p = 0
    while p < size:
        state[LINES] += 1
        p = _skip(text, p)
        if text[p] == NEWLINE or text[p] == _HASH:
            p = _next_line(text, p)
            continue
        row = state[ROWS]
        if row == len(labels):
            _stop(state, CHANGED, p)
            return

        begin = p
        p, kind, value = _number(text, p, powers)
        if kind == _BAD or not _ends(text[p]):
            _stop(state, _LABEL, begin)
            return
        if value < 0:
            _stop(state, _NEGATIVE, begin)
            return
        labels[row] = abs(value)
        if kind == _NEAR:
            taken = hard[state[HARD]]
            taken[0], taken[1], taken[2], taken[3], taken[4] = row, -1, begin, p, state[LINES]
            state[HARD] += 1

        p = _skip(text, p)
        begin = p
        if not (text[p] == 113 and text[p + 1] == 105 and text[p + 2] == 100 and text[p + 3] == _COLON):  # qid:
            _stop(state, _QID, begin)
            return
        p += 4
        while not _ends(text[p]):
            p += 1
        if p == begin + 4:
            _stop(state, _QID, begin)
            return
        if not _same(known, known_begin, known_end, text, begin + 4, p):
            known, known_begin, known_end = text, begin + 4, p
            query = queries[state[QUERIES]]
            query[0], query[1], query[2], query[3] = row, known_begin, known_end, state[LINES]
            state[QUERIES] += 1

        first = last = wide = -1
        pairs = 0
        while True:
            p = _skip(text, p)
            if text[p] == NEWLINE or text[p] == _HASH:
                break
            begin = p
            index = 0
            while _digit(text[p]):
                index = min(10 * index + (text[p] - _ZERO), LARGEST_INDEX + 1)
                p += 1
            if p == begin or text[p] != _COLON:
                _stop(state, _INDEX, begin)
                return
            if index > LARGEST_INDEX:
                _stop(state, _HUGE, begin)
                return
            if index <= last:
                _stop(state, _ORDER, begin)
                return
            if pairs == 0:
                first = index
            last = index
            pairs += 1
            p += 1
            value_begin = p
            p, kind, value = _number(text, p, powers)
            if kind == _BAD or not _ends(text[p]):
                _stop(state, _VALUE, begin)
                return
            rounded = np.float32(value)
            column = index - base
            if not 0 <= column < width:  # the scan looked at the ends of each line: the order will turn out to be wrong
                wide = begin
                continue
            if kind == _NEAR:
                low, high = np.float32(value * (1.0 - 1e-15)), np.float32(value * (1.0 + 1e-15))
                if np.isinf(low):
                    _stop(state, _LARGE, begin)
                    return
                if low != high:
                    taken = hard[state[HARD]]
                    taken[0], taken[1], taken[2], taken[3], taken[4] = row, column, value_begin, p, state[LINES]
                    state[HARD] += 1
            features[row, column] = rounded
        if wide >= 0:
            _stop(state, CHANGED, wide)
            return

        # Rows that list all n features, some from 0 on and some from 1 on: one of the two is a mistake.
        if state[RUN] == 0:
            state[RUN], state[FIRST] = pairs, first
        if pairs != state[RUN] or pairs < 2 or last - first + 1 != pairs or first > 1:
            state[RUN] = -1
        elif first != state[FIRST] and state[MIXED_AT] == 0:
            state[MIXED_AT] = state[LINES]
        state[ROWS] += 1
        p = _next_line(text, p)
