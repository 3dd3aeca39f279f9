"""Values of the trees that [`reward_funcs.reader`] reads: exact fractions where rational, floats and complex otherwise.

Everything is bounded: what would need large numbers or many steps raises [`Undecided`].
"""

from __future__ import annotations

import cmath
import math
import random
from fractions import Fraction
from functools import lru_cache

from reward_funcs.expressions import Node

Number = Fraction | float | complex
MAX_BINOMIAL = 10_000
MAX_BITS = 20_000  # exact powers beyond this are left undecided


class Undecided(ArithmeticError):
    """The value cannot be computed here safely."""


class Rounding:
    """What can have been lost to rounding while a value was computed."""

    def __init__(self) -> None:
        self.magnitude = 0.0  # the largest float on the way
        self.wide = False  # a sum whose smaller part vanished in the larger one
        self.logs = False  # log without a base: natural or decimal


@lru_cache(maxsize=1024)
def points(names: frozenset[str], where: str = "near") -> tuple[dict[str, Number], ...]:
    """Fixed points at which expressions in these variables are compared; a variable has the same values everywhere.

    Args:
        names (`frozenset[str]`): the variables.
        where (`str`, *optional*): `"near"` the unit, `"wide"` with large values of either sign as well, or `"whole"`.
    """
    return tuple({name: _coordinate(name, index, where) for name in names} for index in range(NUM_POINTS[where]))


NUM_POINTS = {"near": 5, "wide": 13, "whole": 8}


@lru_cache(maxsize=8192)
def _coordinate(name: str, index: int, where: str) -> Number:
    # text seeds do not depend on PYTHONHASHSEED
    source = random.Random(f"{name}/{index}")
    if where == "whole":
        return Fraction(source.randint(2, 14))
    if index >= NUM_POINTS["near"]:
        size = source.choice((3, 12, 50))
        return source.uniform(-size, size)
    value = source.uniform(0.3, 2.7)
    return -value if index == NUM_POINTS["near"] - 1 else value


def evaluate(node: Node, point: dict[str, Number], rounding: Rounding) -> Number:
    """Value of a tree: exact where it is rational."""
    kind = node[0]
    if kind == "num":
        value: Number = node[1]
        return value
    if kind == "sym":
        return _symbol(node[1], point)
    values = [evaluate(part, point, rounding) for part in node[1:] if isinstance(part, tuple)]
    if kind in _BINARY:
        result = _BINARY[kind](values[0], values[1], rounding)
    elif kind == "fn":
        result = _function(node[1], values[0], rounding)
    elif kind in _UNARY:
        result = _UNARY[kind](values[0])
    else:
        raise Undecided(kind)
    if (
        not isinstance(result, Fraction)
        and not cmath.isfinite(result)
        and (cmath.isnan(result) or all(isinstance(value, Fraction) or cmath.isfinite(value) for value in values))
    ):
        raise Undecided("not a number, or beyond every float")
    if not isinstance(result, Fraction) and result == 0 and kind in ("mul", "div", "pow", "root", "fn", "log"):
        raise Undecided("underflow")
    if not isinstance(result, Fraction) and (size := abs(result)) > rounding.magnitude and size != math.inf:
        rounding.magnitude = size
    return result


def _symbol(name: str, point: dict[str, Number]) -> Number:
    if name in _SYMBOLS:
        return _SYMBOLS[name]
    if name not in point:
        raise Undecided(name)
    return point[name]


_SYMBOLS: dict[str, Number] = {"pi": math.pi, "e": math.e, "i": 1j, "oo": math.inf}


def as_float(value: Number) -> float | complex:
    """The value in floating point; `OverflowError` for a fraction beyond every float."""
    return value if isinstance(value, complex) else float(value)


def _add(a: Number, b: Number, rounding: Rounding) -> Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a + b
    a, b = as_float(a), as_float(b)
    small, large = sorted((abs(a), abs(b)))
    if small and small < 1e-9 * large and large != math.inf:
        rounding.wide = True
    return a + b


def _mul(a: Number, b: Number, rounding: Rounding) -> Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    if a == 0 or b == 0:
        return Fraction(0)
    return as_float(a) * as_float(b)


def _div(a: Number, b: Number, rounding: Rounding) -> Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a / b
    return as_float(a) / as_float(b)


def _pow(base: Number, exponent: Number, rounding: Rounding) -> Number:
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        n = int(exponent)
        if isinstance(base, Fraction):
            size = max(base.numerator.bit_length(), base.denominator.bit_length())
            if size * abs(n) > MAX_BITS:
                raise Undecided("power")
            if base == 0 and n <= 0:
                raise Undecided("zero to a power")
            return base**n
        return base**n
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and base > 0:
        exact = _exact_root(base, exponent.denominator)
        if exact is not None:
            return _pow(exact, Fraction(exponent.numerator), rounding)
    rounding.wide |= _exceeds_float(base)
    base, exponent = as_float(base), as_float(exponent)
    if base == 0:
        raise Undecided("zero to a power")
    if isinstance(base, complex) or isinstance(exponent, complex) or base < 0:
        return complex(base) ** complex(exponent)
    return math.pow(base, exponent)


def _root(degree: Number, value: Number, rounding: Rounding) -> Number:
    if not isinstance(degree, Fraction) or degree.denominator != 1 or not 2 <= degree <= 100:
        raise Undecided("root")
    n = int(degree)
    if isinstance(value, Fraction):
        exact = _exact_root(abs(value), n)
        if exact is not None and value >= 0:
            return exact
        if exact is not None and n % 2:
            return -exact
        rounding.wide |= _exceeds_float(value)
    number = as_float(value)
    if isinstance(number, complex) or (number < 0 and n % 2 == 0):
        return cmath.sqrt(number) if n == 2 else complex(number) ** (1 / n)
    if n == 2:
        return math.sqrt(number)
    return math.copysign(abs(number) ** (1 / n), number)


def _exceeds_float(value: Number) -> bool:
    """Whether an exact number has neighbours that are the same float."""
    return isinstance(value, Fraction) and value.numerator.bit_length() > 53


def _exact_root(value: Fraction, n: int) -> Fraction | None:
    """The n-th root of a positive fraction if it is one itself."""
    if n < 1 or n > 100 or value < 0 or max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        return None
    parts = []
    for part in (value.numerator, value.denominator):
        root = _integer_root(part, n)
        if root**n != part:
            return None
        parts.append(root)
    return Fraction(*parts)


def _integer_root(value: int, n: int) -> int:
    if n == 2:
        return math.isqrt(value)
    low, high = 0, 1 << (value.bit_length() // n + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if middle**n <= value:
            low = middle
        else:
            high = middle - 1
    return low


def _log(base: Number, value: Number, rounding: Rounding) -> Number:
    if isinstance(base, Fraction) and isinstance(value, Fraction) and base > 1 and value > 0:
        exact = _exact_log(base, value)
        if exact is not None:
            return exact
    number, of = as_float(value), as_float(base)
    if isinstance(number, complex) or isinstance(of, complex) or number <= 0 or of <= 0 or of == 1:
        raise Undecided("log")
    return math.log(number) / math.log(of)


def _exact_log(base: Fraction, value: Fraction) -> Fraction | None:
    guess = (
        round(math.log(value) / math.log(base)) if value.numerator < 1 << 900 and value.denominator < 1 << 900 else 0
    )
    return Fraction(guess) if abs(guess) < 900 and base**guess == value else None


def _binom(n: Number, k: Number, rounding: Rounding) -> Number:
    if (
        isinstance(n, Fraction)
        and isinstance(k, Fraction)
        and n.denominator == k.denominator == 1
        and 0 <= k <= n <= MAX_BINOMIAL
    ):
        return Fraction(math.comb(int(n), int(k)))
    raise Undecided("binomial")


_BINARY = {"add": _add, "mul": _mul, "div": _div, "pow": _pow, "root": _root, "log": _log, "binom": _binom}


def _factorial(value: Number) -> Number:
    if isinstance(value, Fraction) and value.denominator == 1 and 0 <= value <= 200:
        return Fraction(math.factorial(int(value)))
    raise Undecided("factorial")


def _degrees(value: Number) -> Number:
    return as_float(value) * (math.pi / 180)


_UNARY = {
    "neg": lambda value: -value,
    "abs": abs,
    "fact": _factorial,
    "deg": _degrees,
    "pct": lambda value: value / 100,
}


def _function(name: str, value: Number, rounding: Rounding) -> Number:
    if name in ("floor", "ceil"):
        if isinstance(value, complex) or (not isinstance(value, Fraction) and not _off_integers(value)):
            raise Undecided(name)
        return Fraction(math.floor(value) if name == "floor" else math.ceil(value))
    if name == "log":
        rounding.logs = True
    if value in _EXACT.get(name, ()):
        return Fraction(1 if name in ("cos", "cosh", "exp") else 0)
    number = as_float(value)
    if name in ("log", "ln"):
        if isinstance(number, complex) or number <= 0:
            raise Undecided(name)
        rounding.wide |= abs(number - 1) < 1e-3
        return math.log(number)
    rounding.wide |= name in ("cos", "cosh", "sec", "exp") and abs(number) < 1e-5
    if name in _RECIPROCAL:
        return 1 / _apply(_RECIPROCAL[name], number)
    return _apply(name, number)


# where functions have the exact values 0 and 1
_EXACT = {
    **dict.fromkeys(("sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arctan", "exp"), (0,)),
    **dict.fromkeys(("log", "ln"), (1,)),
}


def _off_integers(value: float) -> bool:
    """Whether rounding cannot have moved a float across an integer."""
    return abs(value) < 1e6 and abs(value - round(value)) > 1e-9


_RECIPROCAL = {"cot": "tan", "sec": "cos", "csc": "sin"}
_PYTHON_NAMES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan"}


def _apply(name: str, number: float | complex) -> Number:
    name = _PYTHON_NAMES.get(name, name)
    if isinstance(number, complex):
        result: complex = getattr(cmath, name)(number)
        return result
    if name in ("asin", "acos") and abs(number) > 1:
        raise Undecided(name)
    if name in ("sin", "cos", "tan") and abs(number) > 1e6:
        raise Undecided(name)  # too few digits of the angle are left
    real: float = getattr(math, name)(number)
    if name in ("sin", "cos", "tan") and abs(real) < 1e-15 * abs(number) and abs(number) > 0.1:
        return Fraction(0)  # a multiple of pi that floats cannot hold
    if name == "tan" and abs(real) > 1e12:
        raise Undecided(name)
    return real
