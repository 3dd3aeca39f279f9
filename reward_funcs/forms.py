"""What kind of thing a tree of [`reward_funcs.reader`] is: its variables, its unit, whether it states a value."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

from reward_funcs.evaluate import Rounding, evaluate
from reward_funcs.expressions import Node
from reward_funcs.latex import plain
from reward_funcs.reader import parse
from reward_funcs.tokens import Unreadable

COLLECTIONS = frozenset(("tuple", "set", "list", "union", "matrix", "ratio"))


_NODES = frozenset(
    "num sym add mul div neg pow pm fn log root abs fact binom based deg pct unit qualified tuple set list union "
    "matrix ratio rel text".split()
)


_CONSTANTS = frozenset(("sym:pi", "sym:e", "sym:i", "sym:oo"))


def _is_node(part: Any) -> bool:
    return isinstance(part, tuple) and bool(part) and isinstance(part[0], str)


@lru_cache(maxsize=8192)
def kinds(node: Node) -> frozenset[str]:
    """The kinds of nodes in a tree, the names of its symbols as `sym:x`, and `decimal` where a literal has a point."""
    found = {node[0]}
    if node[0] in ("sym", "fn"):
        found.add(f"{node[0]}:{node[1]}")
    elif node[0] == "num" and node[2]:
        found.add("decimal")
    stack = list(node[1:])
    while stack:
        part = stack.pop()
        if _is_node(part) and part[0] in _NODES:
            found |= kinds(part)
        elif isinstance(part, tuple):
            stack.extend(part)
    return frozenset(found)


def variables(node: Node) -> frozenset[str]:
    """Names of the variables in a tree."""
    return frozenset(kind[4:] for kind in kinds(node) - _CONSTANTS if kind.startswith("sym:"))


def without_plus_minus(node: Node) -> Node:
    """A list of two values for a node with one ± in it, the node itself without."""
    if "pm" not in kinds(node) or node[0] in COLLECTIONS:
        return node
    if node[0] == "rel" and node[1] == ("=",):
        both = without_plus_minus(node[2][-1])
        return ("list", both[1]) if both[0] == "list" else node
    return ("list", (_chosen(node, True), _chosen(node, False)))


def _chosen(node: Node, plus: bool) -> Node:
    if node[0] == "pm":
        second = _chosen(node[2], plus)
        return ("add", _chosen(node[1], plus), second if plus else ("neg", second))
    return tuple(_chosen(part, plus) if _is_node(part) else part for part in node)


def unlabelled(node: Node) -> Node:
    """The point of `P(3, 4)`, which the reader sees as a product."""
    if node[0] == "mul" and node[1][0] == "sym" and node[2][0] == "tuple":
        return node[2]
    return node


def is_name(node: Node) -> bool:
    """Whether something has a value that may be stated: a symbol, AB, f(x), |AB|, sin A, (x, y), words.

    What is made of lower-case symbols otherwise, such as |x| or xy, is an equation that has still to be solved.
    """
    if node[0] == "sym":
        return node[1] not in ("pi", "e", "i", "oo")
    if node[0] == "mul":
        first = node[1]
        if first[0] == "sym" and first[1][0] in _FUNCTION_NAMES:
            return is_name(node[2]) or node[2][0] in ("tuple", "num")
        return _is_capital(first) and _is_capital(node[2])
    if node[0] == "tuple":
        return bool(node[2]) and all(map(is_name, node[2]))
    return node[0] == "text" or (node[0] in ("abs", "fn") and _is_capital(node[-1]))


_FUNCTION_NAMES = frozenset("fghpuvFGHPQRSTNEV")


def _is_capital(node: Node) -> bool:
    """Whether it is made of capitals, which name points, and of Greek letters, which name angles."""
    if node[0] == "mul":
        return _is_capital(node[1]) and _is_capital(node[2])
    return node[0] == "sym" and (node[1][0].isupper() or node[1][0] == "\\" or node[1].startswith("overline"))


def is_definition(node: Node) -> bool:
    """Whether a relation says what something is equal to."""
    return set(node[1]) == {"="} and is_name(node[2][0])


def is_solved(node: Node) -> bool:
    """Whether it states the value or the bound of one symbol."""
    return is_name(node[2][0]) and not variables(node[2][1])


MIRRORED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def upright(node: Node) -> Node:
    """The relation with its symbol on the left, where it has one on the right alone."""
    (operator,), (left, right) = node[1], node[2]
    if is_name(right) and not is_name(left) and operator in MIRRORED:
        return ("rel", (MIRRORED[operator],), (right, left))
    return node


def member_of(node: Node) -> Node:
    """The set S of `x in S`."""
    if node[0] == "rel" and node[1] == ("in",) and is_name(node[2][0]):
        return node[2][1]
    return node


def interval(node: Node) -> Node:
    """The interval of `a < x <= b` or `x > a`, other nodes as they are."""
    if node[0] != "rel":
        return node
    if len(node[1]) == 1:
        node = upright(node)
        (operator,), (name, bound) = node[1], node[2]
        if not is_name(name) or operator not in ("<", "<=", ">", ">="):
            return node
        end = "]" if "=" in operator else ")"
        if operator[0] == "<":
            return ("tuple", "(" + end, (("neg", ("sym", "oo")), bound))
        return ("tuple", ("[" if end == "]" else "(") + ")", (bound, ("sym", "oo")))
    operators, parts = node[1], node[2]
    if len(operators) == 2 and operators[0] in (">", ">="):
        operators, parts = tuple(MIRRORED.get(op, op) for op in reversed(operators)), parts[::-1]
    if len(operators) != 2 or not is_name(parts[1]) or not set(operators) <= {"<", "<="}:
        return node
    brackets = ("[" if operators[0] == "<=" else "(") + ("]" if operators[1] == "<=" else ")")
    return ("tuple", brackets, (parts[0], parts[2]))


# signs stay: > says another thing than <
_NOT_WORDS = re.compile(r"""[\s_.,:;"'\u2019]+|(?<=[a-zA-Z])-(?=[a-zA-Z])""")


def words(node: Node) -> str | None:
    """Letters of a text, or of a product of one-letter symbols, which is how unmarked words are read."""
    if node[0] == "text":
        return _NOT_WORDS.sub("", node[1]).lower()
    if node[0] == "sym":
        return str(node[1]).lower()
    if node[0] == "mul":
        left, right = words(node[1]), words(node[2])
        return left + right if left is not None and right is not None else None
    return None


def is_plain_number(node: Node) -> bool:
    """Whether it is a number without a unit."""
    return not variables(node) and not kinds(node) & {"text", "unit", "rel", *COLLECTIONS}


# each line is one unit by its names; only units in here are ever told apart
_UNIT_NAMES = """
mm millimeter millimetre
cm centimeter centimetre
m meter metre
km kilometer kilometre
in inch inche
ft foot feet
yd yard
mi mile
mg milligram
g gram
kg kilogram
lb pound
oz ounce
s sec second
min minute
h hr hour
day
week
month
year yr
ml milliliter millilitre
l liter litre
dollar usd
cent
am a.m
pm p.m
mph mile_per_hour
km/h kmh kmph kilometer_per_hour
m/s meter_per_second
n newton
j joule
w watt
"""
_UNITS = {name.replace("_", " "): names.split()[0] for names in _UNIT_NAMES.split("\n") for name in names.split()}
_UNIT_POWERS = {"square": "2", "sq": "2", "cubic": "3"}


@lru_cache(maxsize=4096)
def known_unit(words: str) -> str | None:
    """One name for a unit of measurement with its power, `None` for other words."""
    text = words.lower().strip(" .").replace("  ", " ").replace("{", "").replace("}", "")
    power = "1"
    if (match := re.search(r" ?\^ ?([123])$", text)) is not None:
        text, power = text[: match.start()], match[1]
    first, _, rest = text.partition(" ")
    if first.rstrip(".") in _UNIT_POWERS and rest:
        text, power = rest, _UNIT_POWERS[first.rstrip(".")]
    text = text.replace("s per", " per")
    unit = _UNITS.get(text) or _UNITS.get(text.rstrip("s")) or _UNITS.get(text.removesuffix("es"))
    return f"{unit}^{power}" if unit else None


def peeled(node: Node) -> tuple[Node, str | None, str]:
    """The value inside, its unit, and `deg`, `pct` or an empty text."""
    if node[0] == "neg":
        inner, unit, mark = peeled(node[1])
        return ("neg", inner), unit, mark
    if node[0] == "unit":
        words = node[2].lower().strip(" .")
        if words in ("degrees", "degree", "percent"):
            return node[1], None, "pct" if words == "percent" else "deg"
        inner, _, mark = peeled(node[1])
        return inner, node[2], mark
    if node[0] in ("deg", "pct"):
        return node[1], None, node[0]
    return node, None, ""


def number_tree(text: str) -> Node | None:
    """The tree of a number, with or without a name in front and a unit behind; `None` for anything else."""
    try:
        tree = parse(plain(text))
    except Unreadable:
        return None
    if tree[0] == "rel" and set(tree[1]) == {"="} and is_name(tree[2][0]):
        tree = tree[2][-1]
    return tree if number(tree) is not None else None


def number(tree: Node) -> Fraction | float | None:
    """The real number that a tree stands for, `None` where it stands for none."""
    inner, _, _ = peeled(tree)
    if inner[0] in COLLECTIONS or inner[0] in ("rel", "text") or variables(inner):
        return None
    try:
        value = evaluate(inner, {}, Rounding())
    except (ArithmeticError, ValueError, RecursionError):
        return None
    return None if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)) else value
