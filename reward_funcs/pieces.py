"""Unions of intervals and points on the real line, compared by what they cover."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from reward_funcs.evaluate import Rounding, evaluate
from reward_funcs.expressions import Node

End = Fraction | float
NEAR, FAR = 1e-12, 1e-9  # relative distance up to which ends are the same, from which they differ


class Piece(NamedTuple):
    """An interval, or a point when both ends are the same."""

    low: End
    high: End
    has_low: bool
    has_high: bool


class _Unsure(ArithmeticError):
    """Two ends are too near each other to tell."""


def same_pieces(gold: Node, answer: Node) -> bool | None:
    """Whether two unions cover the same; an interval and a set of numbers count as one.

    Args:
        gold (`tuple`): tree of [`reward_funcs.reader.parse`].
        answer (`tuple`): another.

    Returns:
        `bool | None`: `None` where a part of one is neither an interval nor a set of numbers.

    Example:

    ```python
    >>> from reward_funcs.reader import parse
    >>> same_pieces(parse(r"[0,1] \\cup [1,2)"), parse("[0,2)"))
    True

    ```
    """
    try:
        pieces = _covered(gold), _covered(answer)
        return len(pieces[0]) == len(pieces[1]) and all(
            _same_end(one.low, other.low) and _same_end(one.high, other.high) and one[2:] == other[2:]
            for one, other in zip(*pieces, strict=True)
        )
    except (ArithmeticError, ValueError, TypeError):
        return None


def _covered(node: Node) -> list[Piece]:
    """The pieces of a union in order, those that touch put together."""
    pieces = sorted(piece for part in (node[1] if node[0] == "union" else (node,)) for piece in _pieces(part))
    merged: list[Piece] = []
    for piece in pieces:
        if merged and _touch(merged[-1], piece):
            before = merged[-1]
            last = before if before.high > piece.high and not _same_end(before.high, piece.high) else piece
            closed = last.has_high or (_same_end(before.high, piece.high) and before.has_high)
            first = before.has_low or (_same_end(before.low, piece.low) and piece.has_low)
            merged[-1] = Piece(before.low, last.high, first, closed)
        else:
            merged.append(piece)
    return merged


def _pieces(node: Node) -> list[Piece]:
    if node[0] == "set":
        return [Piece(value, value, True, True) for value in map(_end, node[1])]
    if node[0] == "tuple" and len(node[2]) == 2:
        low, high = map(_end, node[2])
        if low > high:
            raise _Unsure
        return [Piece(low, high, node[1][0] == "[", node[1][1] == "]")]
    raise _Unsure


def _end(node: Node) -> End:
    value = evaluate(node, {}, Rounding())
    if isinstance(value, complex) or value != value:
        raise _Unsure
    return value


def _touch(before: Piece, after: Piece) -> bool:
    """Whether no gap is left between two pieces in order."""
    if _same_end(before.high, after.low):
        return before.has_high or after.has_low
    return before.high > after.low


def _same_end(one: End, other: End) -> bool:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one == other
    if math.inf in (abs(one), abs(other)):
        return one == other
    distance, scale = abs(float(one) - float(other)), max(abs(float(one)), abs(float(other)))
    if NEAR * scale < distance < FAR * scale:
        raise _Unsure
    return distance <= NEAR * scale
