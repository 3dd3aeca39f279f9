r"""Tier 0 of the answer grader: whether two answers are the same, in microseconds and without sympy.

Numbers are compared exactly as fractions where they are rational. Other closed forms are evaluated in floating point,
expressions with variables at fixed points; a verdict is given only where rounding cannot have decided it. Everything
else is `None`: undecided, for a slower and more capable comparison.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

from reward_funcs._same_value import EQUAL, same_at, same_value
from reward_funcs.evaluate import Rounding, evaluate, points
from reward_funcs.expressions import Node
from reward_funcs.forms import (
    COLLECTIONS,
    MIRRORED,
    interval,
    is_definition,
    is_name,
    is_plain_number,
    is_solved,
    kinds,
    known_unit,
    member_of,
    number,
    peeled,
    unlabelled,
    upright,
    variables,
    without_plus_minus,
    words,
)
from reward_funcs.latex import plain
from reward_funcs.pieces import same_pieces
from reward_funcs.reader import parse
from reward_funcs.tokens import Unreadable

REL_TOL = 1e-6
MAX_ITEMS = 60


def same(gold: str, answer: str, *, rel_tol: float = REL_TOL) -> bool | None:
    r"""Whether `answer` says the same as `gold`.

    Args:
        gold (`str`): LaTeX or plain text, with or without `$` or a box around it.
        answer (`str`): the same.
        rel_tol (`float`, *optional*, defaults to `1e-6`): relative tolerance where one of the two is a rounded decimal;
            exact numbers are compared exactly.

    Returns:
        `bool | None`: `None` where it is not decided here.

    Example:

    ```python
    >>> same(r"\frac{\sqrt{3}}{2}", r"\sqrt{3}/2"), same("(1,2)", "(2,1)"), same(r"\frac13", "0.33")
    (True, False, False)

    ```
    """
    gold, answer = plain(gold), plain(answer)
    if not answer or not gold:
        return False if gold else None
    if gold == answer or _tight(gold) == _tight(answer):
        return True
    if len(gold) <= MAX_CHOICE and (letter := _CHOICE_GOLD.match(gold)) is not None:
        chosen = _CHOICE.match(answer)
        if chosen is not None:
            # what follows is the option's text: no second option, and no maths that the letter is part of
            if _SECOND_CHOICE.search(answer, chosen.end()) or _MATHS_GOES_ON.match(answer, chosen.end()):
                return False
            return letter[1] == (chosen[1] or chosen[2])
    elif (labelled := _LABEL.match(answer)) is not None and _CHOICE_GOLD.match(gold) is None:
        answer = plain(answer[labelled.end() :]) or answer
    try:
        return compare(parse(gold), parse(answer), rel_tol)
    except (Unreadable, RecursionError):
        return None


def is_readable(gold: str) -> bool:
    r"""Whether [`same`] understands a gold, so that what differs from it is wrong and not undecided.

    Args:
        gold (`str`): LaTeX or plain text, with or without `$` or a box around it.

    Example:

    ```python
    >>> is_readable(r"\frac{1}{2}"), is_readable("(B)"), is_readable(r"\frac{1}{")
    (True, True, False)

    ```
    """
    gold = plain(gold)
    if len(gold) <= MAX_CHOICE and _CHOICE_GOLD.match(gold) is not None:
        return True
    try:
        parse(gold)
    except (Unreadable, RecursionError):
        return False
    return True


def _tight(text: str) -> str:
    """The text without the spaces that say nothing."""
    if text[0] in "([" or text.startswith("\\{"):
        text = text.replace(", ", ",")  # in brackets a comma separates, with or without a space
    return _NEEDLESS_SPACE.sub("", text)


# 1 1/2 is not 11/2, and 1, 234 is not 1,234
_NEEDLESS_SPACE = re.compile(r" +(?![0-9])|(?<![0-9.,]) +")
# the letter of an option in front of its value
_LABEL = re.compile(r"^\\(?:text|textbf|mathrm|mathbf) ?\{ ?\([A-J]\) ?\.?\}")
MAX_CHOICE = 16
_CHOICE_GOLD = re.compile(r"^(?:\\(?:text|textbf|mathrm|mathbf) ?\{)?\(?([A-J])\)?\}?$")
# a letter in brackets or with a full stop or colon, and then the text of the option
_SECOND_CHOICE = re.compile(
    r"\([A-J](?![a-z])|(?<![A-Za-z])[A-J][).:](?![a-z])|\b(?:or|and)\b\W*(?:\\?text\w*\W*)?[A-J](?![A-Za-z])"
    r"|[,;/&] *[A-J](?![A-Za-z])"
)
_MATHS_GOES_ON = re.compile(r" *[})]* *(?:[-+*/=<>^_&|!]|\\cdot|\\times)|\)?[A-Za-z0-9]")
_CHOICE = re.compile(r"^(?:\\(?:text|textbf|mathrm|mathbf) ?\{)? ?(?:\(([A-J])\)|([A-J])(?=[.:)]))")


def compare(gold: Node, answer: Node, rel_tol: float = REL_TOL) -> bool | None:
    """Whether two trees of [`reward_funcs.reader.parse`] say the same; `None` where it is not decided here."""
    if gold == answer:
        return True
    gold, answer = (without_plus_minus(unlabelled(node)) for node in (gold, answer))
    if gold[0] == "rel" or answer[0] == "rel":
        return _same_relation(gold, answer, rel_tol)
    if gold[0] in COLLECTIONS or answer[0] in COLLECTIONS:
        return _same_collection(gold, answer, rel_tol)
    if gold[0] == "text" or answer[0] == "text":
        return _same_text(gold, answer)
    return _same_quantity(gold, answer, rel_tol)


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    """Conjunction: `False` if any is, else `None` if any is."""
    result: bool | None = True
    for verdict in verdicts:
        if verdict is False:
            return False
        if verdict is None:
            result = None
    return result


def _any(verdicts: Iterable[bool | None]) -> bool | None:
    """Disjunction: `True` if any is, else `None` if any is."""
    result: bool | None = False
    for verdict in verdicts:
        if verdict:
            return True
        if verdict is None:
            result = None
    return result


# relations


def _same_relation(gold: Node, answer: Node, rel_tol: float) -> bool | None:
    gold, answer = member_of(gold), member_of(answer)
    if gold[0] == "tuple" or answer[0] == "tuple":
        gold, answer = interval(gold), interval(answer)
    if gold[0] != "rel" and answer[0] != "rel":
        return compare(gold, answer, rel_tol)
    if answer[0] == "rel" and gold[0] != "rel":
        return value_of_chain(gold, answer, rel_tol)
    if gold[0] == "rel" and answer[0] != "rel":
        gold = upright(gold) if len(gold[1]) == 1 else gold
        if is_definition(gold) or (set(gold[1]) == {"="} and not variables(gold)):
            return compare(gold[2][-1], answer, rel_tol)
        return False if is_plain_number(answer) else None
    if set(gold[1]) == {"="} and not variables(gold):
        return compare(gold[2][-1], answer, rel_tol)  # 25 + 2 = 27 says 27
    if len(gold[1]) != len(answer[1]):
        return None
    if len(gold[1]) > 1 and set(gold[1]) == set(answer[1]) == {"="}:
        return _same_elements(gold[2], answer[2], rel_tol)
    if len(gold[1]) > 1:
        return _same_chain(gold, answer, rel_tol)
    gold, answer = upright(gold), upright(answer)
    if is_solved(gold):
        # the gold names the value: an equation that still has to be solved is no answer
        if not is_solved(answer) or gold[2][0] != answer[2][0]:
            return False
        return _all([gold[1] == answer[1], compare(gold[2][1], answer[2][1], rel_tol)])
    if is_definition(gold) and is_definition(answer) and gold[2][0] == answer[2][0]:
        return compare(gold[2][1], answer[2][1], rel_tol)
    constant = not variables(gold[2][1]) and not variables(answer[2][1])
    if constant and gold[1] == answer[1] and compare(gold[2][0], answer[2][0], rel_tol):
        return compare(gold[2][1], answer[2][1], rel_tol)
    return _same_sides(gold, answer)


def value_of_chain(gold: Node, answer: Node, rel_tol: float) -> bool | None:
    """`x = 5`, `2 + 3 = 5`, `8 pi ~ 25.13` for a value: the parts must agree, and the last exact one counts."""
    operators, parts = answer[1], answer[2]
    if operators[-1] == "approx" and len(parts) > 1:
        rest = parts[0] if len(parts) == 2 else ("rel", operators[:-1], parts[:-1])
        if is_name(parts[-2]) and number(parts[-1]) is not None:
            operators = (*operators[:-1], "=")
        elif not (agrees := _rounds_to(parts[-2], parts[-1])):
            return agrees
        else:
            return compare(gold, rest, rel_tol) or compare(gold, parts[-1], rel_tol)
    if set(operators) != {"="}:
        return None if gold[0] in COLLECTIONS else False
    if is_name(parts[-1]) and not is_name(parts[0]):
        parts = parts[::-1]  # 5 = x
    values = parts[1:] if is_name(parts[0]) else parts
    agree = _all(compare(values[-1], value, rel_tol) for value in values[:-1])
    return _all([agree, compare(gold, values[-1], rel_tol)]) if agree is not False else False


def _rounds_to(value: Node, rounded: Node) -> bool | None:
    """Whether a decimal is what a value is when it is rounded."""
    exact, literal = number(value), number(rounded)
    if exact is None or literal is None:
        return None
    return abs(float(exact) - float(literal)) <= 0.006 * max(abs(float(exact)), 0.1)


def _same_chain(gold: Node, answer: Node, rel_tol: float) -> bool | None:
    """a < x < b, in either direction."""
    ends = interval(gold), interval(answer)
    if ends[0][0] == ends[1][0] == "tuple" and gold[2][1] == answer[2][1]:
        return compare(*ends, rel_tol)
    mirrored = ("rel", tuple(MIRRORED.get(op, op) for op in reversed(answer[1])), answer[2][::-1])
    for candidate in (answer, mirrored):
        if candidate[1] == gold[1]:
            return _all(compare(a, b, rel_tol) for a, b in zip(gold[2], candidate[2], strict=True)) or None
    return None


def _same_sides(gold: Node, answer: Node) -> bool | None:
    """Whether left minus right of one relation is a constant multiple of that of the other."""
    (gold_operator,), (answer_operator,) = gold[1], answer[1]
    if gold_operator not in MIRRORED or answer_operator not in MIRRORED:
        return None
    if variables(gold) and not variables(answer):
        return False  # 1 = 1 says nothing of x
    if variables(gold) != variables(answer):
        return False if gold_operator == answer_operator == "=" and variables(gold) and variables(answer) else None
    ratios = []
    for point in points(variables(gold)):
        try:
            one, other = (evaluate(_difference(node), point, Rounding()) for node in (gold, answer))
            if isinstance(one, complex) or isinstance(other, complex):
                return None
            ratio = float(one) / float(other)
            if not math.isfinite(ratio):
                return None
            ratios.append(ratio)
        except (ArithmeticError, ValueError):
            continue
    if len(ratios) < 3 or 0.0 in ratios or max(ratios) - min(ratios) > EQUAL * 1e3 * max(map(abs, ratios)):
        return None
    wanted = answer_operator if ratios[0] > 0 else MIRRORED[answer_operator]
    return gold_operator == wanted


def _difference(relation: Node) -> Node:
    left, right = relation[2]
    return ("add", left, ("neg", right))


def solves(gold: Node, equation: Node) -> bool:
    """Whether a number makes an equation in one variable true that others do not make true."""
    if gold[0] == "rel":
        gold = gold[2][-1]
    names = variables(equation)
    if equation[1] != ("=",) or len(names) != 1 or variables(gold) or gold[0] in COLLECTIONS:
        return False
    (name,) = names
    left, right = equation[2]
    try:
        value = evaluate(gold, {}, Rounding())
    except (ArithmeticError, ValueError):
        return False
    at_gold = same_at(left, right, {name: value}, 0.0, False)
    elsewhere = [same_at(left, right, point, 0.0, False) for point in points(names)]
    return at_gold is True and elsewhere.count(False) >= 3


# collections


def _same_collection(gold: Node, answer: Node, rel_tol: float) -> bool | None:
    both = (gold[0], answer[0])
    if both == ("ratio", "ratio"):
        return _same_ratio(gold[1], answer[1], rel_tol)
    if "ratio" in both:
        return _ratio_and_value(gold, answer, rel_tol)
    if set(both) == {"union", "list"}:
        gold, answer = (_alternatives(node) for node in (gold, answer))
        both = (gold[0], answer[0])
    if "union" in both:
        return same_pieces(gold, answer) if set(both) <= COLLECTIONS else False
    if "matrix" in both:
        return _same_matrix(gold, answer, rel_tol)
    return _same_items(gold, answer, rel_tol)


def _alternatives(node: Node) -> Node:
    """x < 1 or x > 2 as a union, other nodes as they are."""
    if node[0] != "list" or any(item[0] != "rel" for item in node[1]):
        return node
    parts = tuple(interval(item) for item in node[1])
    names = {item[2][0] if is_name(item[2][0]) else item[2][-1] for item in node[1]}
    return ("union", parts) if len(names) == 1 and all(part[0] == "tuple" for part in parts) else node


def _same_ratio(gold: Sequence[Node], answer: Sequence[Node], rel_tol: float) -> bool | None:
    if len(gold) != len(answer):
        return False
    if _all(compare(a, b, rel_tol) for a, b in zip(gold, answer, strict=True)):
        return True
    if any("unit" in kinds(part) for part in (*gold, *answer)):
        return False
    # 2:4 may say 1:2, and 3:15 on a clock does not say 1:5
    proportional = compare(("div", *gold[:2]), ("div", *answer[:2]), rel_tol)
    return False if proportional is False else None


def _ratio_and_value(gold: Node, answer: Node, rel_tol: float) -> bool | None:
    ratio, other = (gold, answer) if gold[0] == "ratio" else (answer, gold)
    if len(ratio[1]) != 2 or other[0] in COLLECTIONS:
        return False
    return compare(("div", *ratio[1]), other, rel_tol)


def _same_matrix(gold: Node, answer: Node, rel_tol: float) -> bool | None:
    rows = [_rows(node) for node in (gold, answer)]
    if rows[0] is None or rows[1] is None:
        return (
            None
            if any(row is None and "matrix" in kinds(node) for row, node in zip(rows, (gold, answer), strict=True))
            else False
        )
    if [len(row) for row in rows[0]] != [len(row) for row in rows[1]]:
        return False
    pairs = [pair for a, b in zip(rows[0], rows[1], strict=True) for pair in zip(a, b, strict=True)]
    return _all(compare(a, b, rel_tol) for a, b in pairs)


def _rows(node: Node) -> Sequence[Sequence[Node]] | None:
    """Rows of a matrix; a vector is a column, whether written as a row, a column or a tuple."""
    if node[0] == "matrix":
        rows: Sequence[Sequence[Node]] = node[1]
        return [[item] for item in rows[0]] if len(rows) == 1 else rows
    if node[0] == "tuple" and node[1] == "()":
        return [[item] for item in node[2]]
    return None


def _same_items(gold: Node, answer: Node, rel_tol: float) -> bool | None:
    """Tuples and intervals by position, sets and lists without order."""
    both = (gold[0], answer[0])
    if both == ("tuple", "tuple"):
        if gold[1] != answer[1] or len(gold[2]) != len(answer[2]):
            return False
        return _all(compare(a, b, rel_tol) for a, b in zip(gold[2], answer[2], strict=True))
    if set(both) == {"tuple", "set"}:
        return False
    if set(both) == {"tuple", "list"}:
        # 1, 2 for (1, 2) leaves the brackets out
        items = [node[2] if node[0] == "tuple" else node[1] for node in (gold, answer)]
        brackets = gold[1] if gold[0] == "tuple" else answer[1]
        if brackets != "()" or len(items[0]) != len(items[1]):
            return False
        in_order = _all(compare(a, b, rel_tol) for a, b in zip(*items, strict=True))
        return in_order
    if "tuple" in both:
        return False  # a point and a single value
    if gold[0] == answer[0] == "list" and _names_of(gold) and not any(item[0] == "rel" for item in answer[1]):
        # x = 2, y = 3 answered by 2, 3
        return len(gold[1]) == len(answer[1]) and _all(
            compare(a, b, rel_tol) for a, b in zip(gold[1], answer[1], strict=True)
        )
    return _same_elements(_elements(gold), _elements(answer), rel_tol)


def _names_of(node: Node) -> bool:
    """Whether the items define different names."""
    if any(item[0] != "rel" or not is_definition(item) for item in node[1]):
        return False
    return len({item[2][0] for item in node[1]}) == len(node[1]) > 1


def _elements(node: Node) -> tuple[Node, ...]:
    if node[0] not in ("set", "list"):
        return (node,)
    elements: list[Node] = []
    for item in node[1]:
        item = without_plus_minus(item)
        elements.extend(item[1] if item[0] == "list" else (item,))
    return tuple(elements)


def _same_elements(gold: Sequence[Node], answer: Sequence[Node], rel_tol: float) -> bool | None:
    """Each element of one is in the other; how often does not count."""
    if len(gold) > MAX_ITEMS or len(answer) > MAX_ITEMS:
        return None
    if not gold or not answer:
        return len(gold) == len(answer)
    verdicts = [[compare(g, a, rel_tol) for a in answer] for g in gold]
    return _all([*map(_any, verdicts), *map(_any, zip(*verdicts, strict=True))])


# words


def _same_text(gold: Node, answer: Node) -> bool | None:
    told = [words(node) for node in (gold, answer)]
    if told[0] is not None and told[0] == told[1]:
        return True
    # words with a number in them may be maths in disguise; other words for the same thing nobody here knows
    return None if any(map(str.isdigit, "".join(filter(None, told)))) else False


# quantities


def _same_quantity(gold: Node, answer: Node, rel_tol: float) -> bool | None:
    if {"based", "qualified"} & (kinds(gold) | kinds(answer)):
        return False  # 101 in base 2 is written 101_2 and nothing else; 5 or more is not 5
    gold, gold_unit, gold_mark = peeled(gold)
    answer, answer_unit, answer_mark = peeled(answer)
    if gold_unit and answer_unit:
        known = known_unit(gold_unit), known_unit(answer_unit)
        if None not in known and known[0] != known[1]:
            return False
    if gold_mark and answer_mark and gold_mark != answer_mark:
        return False
    if (gold_unit and answer_mark) or (answer_unit and gold_mark):
        return False
    marked = gold if gold_mark else answer
    if "deg" in (gold_mark, answer_mark) and gold_mark != answer_mark and "sym:pi" in kinds(marked):
        # nobody writes pi/4 degrees for pi/4
        gold, answer = (_scaled(node, "deg") if node is marked else node for node in (gold, answer))
        return same_value(gold, answer, rel_tol)
    if "time" in (gold[0], answer[0]):
        return gold == answer
    verdicts = [same_value(gold, answer, rel_tol)]
    # 45 and pi/4 both say 45 degrees, 50 and 0.5 both say 50 per cent
    if gold_mark != answer_mark:
        for mark in filter(None, (gold_mark, answer_mark)):
            scaled = [
                _scaled(node, mark) if mark == of else node for node, of in ((gold, gold_mark), (answer, answer_mark))
            ]
            verdicts.append(same_value(scaled[0], scaled[1], rel_tol))
    return _any(verdicts)


def _scaled(node: Node, mark: str) -> Node:
    if mark == "pct":
        return ("div", node, ("num", Fraction(100), 0))
    return ("deg", node)
