r"""The equations between numbers in a text, each judged exactly.

A run of digits, operators, brackets and LaTeX such as `\frac` is cut at its equal signs, and the parts are read by
[`reward_funcs.reader`]: nothing is evaluated as code, and what is not fully read is left alone. Linear in the text.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, NamedTuple

from reward_funcs._operator_words import FACTORS, acts_before, acts_behind
from reward_funcs.evaluate import Number, Rounding, evaluate
from reward_funcs.expressions import Node
from reward_funcs.latex import plain
from reward_funcs.reader import parse
from reward_funcs.tokens import Unreadable


class Equation(NamedTuple):
    """An equation without its spaces, and whether it holds."""

    written: str
    is_right: bool


# GSM8K's calculator annotation, <<16-3-4=9>>
_ANNOTATION = re.compile(r"<<([^<>\n]{1,200})>>")
# marks of a list item are no arithmetic: 1) 3 + 4 = 7, - 3 + 4 = 7
_MARKER = re.compile(
    r"^[ \t>#]{0,8}(?:\*\*)?(?:(?:step[ \t]{0,4})?[0-9]{1,3}[.):](?:\*\*)?|[-*+•])[ \t]+", re.IGNORECASE | re.MULTILINE
)
_LINE_BREAK = re.compile(r"\\\\|\\[()\[\]]")  # becomes \v: no equation goes on behind it, but a sentence does
_LAYOUT = re.compile(r"\\f?box(?:ed)?(?![A-Za-z])|&")
_TIMES = re.compile(r"(?<=[0-9)]) [xX] (?=[0-9(])|(?<=[0-9])[xX](?=[0-9])")
_RUN = re.compile(
    r"(?:[0-9]{1,3}(?:(?:,|\{,\}|\\,)[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|(?<![0-9])\.[0-9]+"
    r"|\\(?:times|cdot|div|[dtc]?frac|sqrt|left|right|approx|q?quad)(?![A-Za-z])|\\[%$,;:! ]"
    r"|[-+*/^(){}\[\]%=≈×⋅·÷∕−– \t\u00a0$])+"
)
_RELATION = re.compile(r"(=|≈|\\approx(?![A-Za-z]))")
# what shows, before or behind a run, that its outer part goes on there in another notation: x - 3, f(3), 7x, 0.33...
_GOES_ON_BEFORE = re.compile(
    r"(?:[\w\\^|√!°~@#}'’]|[0-9][:.,]|[0-9][ \t]+:[ \t]*|\\[A-Za-z]{1,20}[ \t]*|[\^|√±≠}][ \t]+"
    r"|(?:(?<![\w'’])(?![AaI])[A-Za-z]|[0-9)][A-Za-z]{1,9})[ \t]+)$"
)
_GOES_ON_BEHIND = re.compile(
    r"[\w^!|°√]|\\(?!text|mathrm)|[.,:][0-9]|[ \t]*(?:[\^|±≠…]|\.\.)|[ \t]+(?:(?![AaI]\b)[A-Za-z]\b|[Rr][0-9]|[α-ωΑ-Ω])"
    rf"|[ \t]+\\(?:{FACTORS})(?![A-Za-z])"
)
_LOOK_BACK = 60  # characters before an equation in which a word that calculates is looked for
_REMAINDER = re.compile(r"%[ \t]*[0-9(]")  # 7 % 3 is no per cent
# 2024-01-02, 24/12/2024, 007, and 6 / 1/2, which is meant as 6 / (1/2)
_NO_ARITHMETIC = re.compile(
    r"(?<![0-9.,}])(?<![0-9][ \u00a0])0[0-9]|(?<![0-9])(?:19|20)[0-9]{2}([-/−–])[0-9]{1,2}\1[0-9]{1,2}(?![0-9])"
    r"|(?<![0-9])[0-9]{1,2}([-/−–])[0-9]{1,2}\2(?:19|20)[0-9]{2}(?![0-9])"
    r"|/[ \t]+[0-9.]+/[0-9]"
)
MAX_PART = 1000  # characters of one side
_CENTS = re.compile(r"\s*(?:cents?|pennies|pence|¢)(?![a-z])", re.IGNORECASE)
_DECIMAL = re.compile(r"-?[0-9]+(?:\.([0-9]+))?( ?\\?%)?")


def equations(text: str, *, rounding: bool = False) -> list[Equation]:
    r"""The equations of a text that have arithmetic on either side and can be read on both, in order.

    Args:
        text (`str`): prose with equations, in plain signs or LaTeX.
        rounding (`bool`): whether `=` holds as well where the right side is a decimal to which the left side rounds,
            as `≈` always does.

    Returns:
        `list[Equation]`: what has a variable, unit or word within it is left out, and so is `7 = 7`.

    Example:

    ```python
    >>> equations("So 3 + 4 = 7, then 7 * 2 = 15 and x + 1 = 3.")
    [Equation(written='3+4=7', is_right=True), Equation(written='7*2=15', is_right=False)]

    ```
    """
    found = []
    for written in (*_ANNOTATION.findall(text), _ANNOTATION.sub("", text)):
        written = _LAYOUT.sub(" ", _LINE_BREAK.sub("\v", _MARKER.sub("", written)))
        written = _TIMES.sub(" × ", written)
        for run in _RUN.finditer(written):
            if _RELATION.search(run.group()):
                found += _chain(written, run.start(), run.group(), rounding)
    return found


def _chain(text: str, start: int, run: str, rounding: bool) -> list[Equation]:
    """The equations of `a = b = c`, which are a = b and b = c."""
    pieces = _RELATION.split(run)
    parts: list[str | None] = [*pieces[::2]]
    parts[0] = _first(pieces[0], text, start)
    parts[-1] = _last(pieces[-1], text, start + len(run))
    if "$" in run and _CENTS.match(text, start + len(run.rstrip())):
        parts[-1] = None  # $1/2 = 50 cents: a hundredth of the other side's unit
    found = []
    for left, relation, right in zip(parts, pieces[1::2], parts[1:], strict=False):
        left, right = _tidy(left), _tidy(right)
        verdict = _verdict(left, right, rounding or relation != "=") if left and right else None
        if verdict is not None:
            found.append(Equation(f"{left}={right}".replace(" ", ""), verdict))
    return found


def _tidy(part: str | None) -> str:
    """A side in one notation, `""` where it cannot be read."""
    if part is None or len(part) > MAX_PART or _REMAINDER.search(part) or _NO_ARITHMETIC.search(part):
        return ""
    return plain(part.replace("\\$", " ").replace("$", " "))


def _first(part: str, text: str, start: int) -> str | None:
    """The part at the start of a run without what encloses the equation; `None` where it goes on before."""
    bare = part.lstrip(" \t\u00a0$")
    at = start + len(part) - len(bare)
    if _GOES_ON_BEFORE.search(text, max(0, at - 24), at):
        return None
    is_operator = bare[:1] == "+" or (bare[:1] in "-−–" and bare[1:2].isspace())
    if is_operator and text[max(0, at - 24) : at].strip(" \t\n\v:;,.("):
        return None  # "apples - 3" subtracts
    if acts_before(text[max(0, at - _LOOK_BACK) : at], bare):
        return None
    bare = re.sub(r"^\*\*(?=\S)", "", bare)
    excess = _count(bare, "([{") - _count(bare, ")]}")
    return bare[max(0, min(excess, len(bare) - len(bare.lstrip("([{")))) :]


def _last(part: str, text: str, end: int) -> str | None:
    """The part at the end of a run without what encloses the equation; `None` where it goes on behind."""
    bare = part.rstrip(" \t\u00a0$")
    end -= len(part) - len(bare)
    if bare.endswith("(") and bare[:-1].endswith(" "):
        # a remark in brackets, or a factor with a variable
        is_remark = re.match(r"[A-Za-z]{2}", text[end : end + 2]) and not acts_behind(text, end)
        return bare[:-1] if is_remark else None
    if _GOES_ON_BEHIND.match(text, end) or acts_behind(text, end):
        return None
    bare = re.sub(r"(?<=[^\s*])\*\*$", "", bare)
    excess = _count(bare, ")]}") - _count(bare, "([{")
    return bare[: len(bare) - max(0, min(excess, len(bare) - len(bare.rstrip(")]}"))))]


def _count(text: str, characters: str) -> int:
    return sum(map(text.count, characters))


def _verdict(left: str, right: str, rounded: bool) -> bool | None:
    """Whether the sides have one value; `None` for sides that are not arithmetic, or that are the same text."""
    try:
        nodes = parse(left), parse(right)
    except Unreadable:
        return None
    if all(map(_is_number, nodes)) or left.replace(" ", "") == right.replace(" ", ""):
        return None
    values: list[Number] = []
    for node in nodes:
        try:
            values.append(evaluate(node, {}, Rounding()))
        except ZeroDivisionError:
            return False  # it has no value, so nothing equals it
        except (ArithmeticError, ValueError):
            return None
    holds = _agree(values[0], values[1], right, rounded)
    if holds is False and ("%" in left) != ("%" in right):
        sizes: list[Any] = sorted(map(abs, values))
        small, large = sizes
        if small and 99 * small <= large <= 101 * small:
            return None  # "100 - 90 = 10%" leaves out what it is a part of
    return holds


def _agree(value: Number, stated: Number, written: str, rounded: bool) -> bool | None:
    if isinstance(value, complex) or isinstance(stated, complex):
        return None
    decimal = _DECIMAL.fullmatch(written.replace(",", ""))
    if rounded and decimal:
        half = Fraction(1, 2 * 10 ** len(decimal[1] or "") * (100 if decimal[2] else 1))
        return abs(Fraction(value) - Fraction(stated)) <= half if abs(value) != float("inf") else None
    if isinstance(value, Fraction) and isinstance(stated, Fraction):
        return value == stated
    return None  # an irrational value is never known exactly


def _is_number(node: Node) -> bool:
    """Whether a side is a number as it is written, with a sign or per cent perhaps."""
    return node[0] == "num" or (node[0] in ("neg", "pct") and _is_number(node[1]))
