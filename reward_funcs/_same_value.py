"""Whether two closed forms have one value: as fractions, else in floating point where rounding cannot decide it."""

from __future__ import annotations

import cmath
from collections.abc import Sequence
from fractions import Fraction

from reward_funcs.evaluate import Number, Rounding, as_float, evaluate, points
from reward_funcs.expressions import Node
from reward_funcs.forms import kinds, variables

EQUAL, DIFFERENT = 1e-12, 1e-9  # relative distance up to which floats are equal, from which they differ


def same_value(gold: Node, answer: Node, rel_tol: float) -> bool | None:
    """Whether two expressions have one value: at the same points, where they hold variables; `None` where undecided."""
    names = variables(gold) | variables(answer)
    rounded = "decimal" in kinds(gold) or "decimal" in kinds(answer)
    if not names:
        return same_at(gold, answer, {}, rel_tol, rounded)
    found = kinds(gold) | kinds(answer)
    whole = _at_points(gold, answer, points(names, "whole"), rel_tol, rounded) if found & _OF_INTEGERS else None
    if found & {"fact", "binom"} or (whole is not None and {name[0] for name in names} <= _INTEGER_NAMES):
        return whole
    broken = _at_points(gold, answer, points(names, "wide" if found & _OF_BRANCHES else "near"), rel_tol, rounded)
    return broken if whole is None or whole == broken else None


# functions of integers; functions that are one thing on one side of a point and another on the other
_OF_INTEGERS = frozenset(("fact", "binom", "fn:floor", "fn:ceil"))
_OF_BRANCHES = frozenset(("abs", "root", "fn:arcsin", "fn:arccos", "fn:arctan", "fn:floor", "fn:ceil", "pow"))
_INTEGER_NAMES = frozenset("ijklmnpqNMK")


def _at_points(
    gold: Node, answer: Node, places: Sequence[dict[str, Number]], rel_tol: float, rounded: bool
) -> bool | None:
    """The verdict of all points: they must agree, and enough of them must tell."""
    verdicts = [same_at(gold, answer, point, rel_tol, rounded) for point in places]
    told = [verdict for verdict in verdicts if verdict is not None]
    if False in told and all(isinstance(value, Fraction) for point in places for value in point.values()):
        return False  # at a whole number that is no rounding and no branch
    return told[0] if len(told) >= (len(verdicts) + 1) // 2 and len(set(told)) == 1 else None


def same_at(gold: Node, answer: Node, point: dict[str, Number], rel_tol: float, rounded: bool) -> bool | None:
    """Whether they have one value where the variables have these; with `rounded`, a decimal that is rounded counts."""
    roundings = Rounding(), Rounding()
    try:
        one, other = evaluate(gold, point, roundings[0]), evaluate(answer, point, roundings[1])
    except ZeroDivisionError:
        return None if point or _is_undefined(gold) else False
    except (ArithmeticError, ValueError, RecursionError):
        return None
    if roundings[0].logs != roundings[1].logs:
        return None
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one == other or (rounded and _same_rounded(gold, answer, one, other, rel_tol))
    try:
        return _same_floats(one, other, roundings, rel_tol if rounded else 0.0)
    except OverflowError:
        return None


def _is_undefined(node: Node) -> bool:
    try:
        evaluate(node, {}, Rounding())
    except ZeroDivisionError:
        return True
    except ArithmeticError:
        return False
    return False


def _same_rounded(gold: Node, answer: Node, one: Fraction, other: Fraction, rel_tol: float) -> bool:
    """A rounded decimal against the exact value, or against one with more digits."""
    # as written: the binary 1e-6 is a little less, and would part 1/3 from 0.333333
    if abs(one - other) > Fraction(str(rel_tol)) * max(abs(one), abs(other)):
        return False
    if any(value.denominator == 1 and "decimal" not in kinds(tree) for value, tree in ((one, gold), (other, answer))):
        return False  # a whole number is not rounded
    if gold[0] not in ("num", "neg") or answer[0] not in ("num", "neg"):
        return True
    # Two literals: 1000000.5 is not 1000000, but 2.236068 is 2.23606797749979 with fewer digits.
    literals = [node[1] if node[0] == "neg" else node for node in (gold, answer)]
    digits = [literal[2] if literal[0] == "num" else 0 for literal in literals]
    # with as many digits each, neither is the other rounded
    return (min(digits) >= 6 and digits[0] != digits[1]) or (
        max(digits) >= 15 and abs(one - other) <= Fraction(1, 10**12) * abs(one)
    )


def _same_floats(one: Number, other: Number, roundings: Sequence[Rounding], rel_tol: float) -> bool | None:
    if _is_huge(one) != _is_huge(other):
        return False
    exact = [value for value in (one, other) if isinstance(value, Fraction)]
    one, other = as_float(one), as_float(other)
    if cmath.isinf(one) or cmath.isinf(other):
        return one == other
    if cmath.isnan(one) or cmath.isnan(other):
        return None
    distance, scale = abs(one - other), max(abs(one), abs(other))
    magnitude = max(rounding.magnitude for rounding in roundings)
    if rel_tol and distance <= rel_tol * (1 + DIFFERENT) * scale:
        return True
    if distance > 1e-6 * max(scale, magnitude):
        return False
    if scale < 1e-6 * magnitude:
        return None  # what is left is rounding
    if distance <= EQUAL * scale:
        # a float cannot tell a large integer from its neighbours
        lost = any(rounding.wide for rounding in roundings) or any(abs(value) > 1 << 53 for value in exact)
        return None if lost else True
    return False if distance >= DIFFERENT * scale else None


def _is_huge(value: Number) -> bool:
    """Whether it is an exact number beyond every float."""
    return isinstance(value, Fraction) and abs(value) > 10**300
