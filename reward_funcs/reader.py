r"""A small, bounded reader of the LaTeX in which answers are written.

It reads numbers, arithmetic, roots, powers, common functions, tuples, intervals, sets, unions, matrices, equations,
inequalities, units and words into a tree of plain tuples, and refuses (`Unreadable`) whatever it does not fully
understand. It never evaluates anything and is linear in the length of the answer.

The nodes, each a tuple that starts with its kind:

| node | meaning |
|---|---|
| `("num", Fraction, digits)` | a literal; `digits` is the number of significant digits of a decimal, 0 of an integer |
| `("sym", name)` | a variable, or `pi`, `e`, `i`, `oo` |
| `("add", a, b)`, `("mul", a, b)`, `("div", a, b)`, `("neg", a)`, `("pow", a, b)` | arithmetic |
| `("pm", a, b)` | two values, a + b and a - b |
| `("fn", name, a)`, `("log", base, a)`, `("root", n, a)`, `("abs", a)`, `("fact", a)`, `("binom", n, k)` | functions |
| `("based", digits, base)` | digits in a stated base |
| `("deg", a)`, `("pct", a)`, `("unit", a, name)` | a value with degrees, per cent, or a unit |
| `("qualified", a, words)` | a value with words that say more than a unit: 5 or more |
| `("tuple", brackets, items)`, `("set", items)`, `("list", items)` | collections of items |
| `("union", sets)`, `("matrix", rows)` | collections of collections |
| `("ratio", items)` | `a:b:c` |
| `("rel", operators, parts)` | a chain of relations |
| `("text", words)` | words |
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from reward_funcs.expressions import ExpressionReader, Node, said
from reward_funcs.latex import prepared
from reward_funcs.tokens import CLOSERS, JOINING_WORDS, RELATIONS, SEPARATORS, Unreadable, tokens

MAX_LENGTH = 1000
MAX_TREE = 120
_WORDS = re.compile(r"^[A-Za-z]{3,}$|^[A-Za-z][a-z]+(?:[ -][A-Za-z]+)+$|^[A-Z][a-z]{2,}\.? [0-9]{1,2}(?:, ?[0-9]{4})?$")


@lru_cache(maxsize=8192)
def parse(text: str) -> Node:
    r"""The tree of an answer, see the module's table.

    Args:
        text (`str`): the answer as [`plain`] returns it.

    Returns:
        `tuple`: the root node.

    Raises:
        Unreadable: When any part of it is not understood, is too long (`MAX_LENGTH`) or too deep (`MAX_DEPTH`).

    Example:

    ```python
    >>> parse(r"\frac{1}{2}")
    ('div', ('num', Fraction(1, 1), 0), ('num', Fraction(2, 1), 0))

    ```
    """
    if not text or len(text) > MAX_LENGTH:
        raise Unreadable("empty" if not text else "too long")
    if _WORDS.match(text):
        return said(text)
    reader = _Reader(tokens(prepared(text)))
    try:
        node = reader.items()
    except RecursionError as error:
        raise Unreadable("too deep") from error
    if reader.position != len(reader.tokens):
        raise Unreadable("rest")
    if _is_deep(node):
        raise Unreadable("too deep")
    return node


def _is_deep(node: Node) -> bool:
    """Whether walking the tree recursively could use up the stack: a sum of 500 terms is a tree 500 deep."""
    level: list[Any] = [node]
    for _ in range(MAX_TREE):
        level = [part for parent in level for part in parent if isinstance(part, tuple)]
        if not level:
            return False
    return True


class _Reader(ExpressionReader):
    """Recursive descent over the tokens; each method reads one kind of thing and leaves `position` behind it."""

    # lists, relations, unions

    def items(self) -> Node:
        """Items between commas, `or`, `and`."""
        found = [self.relation()]
        while self.separator():
            if self.kind() == "end-of-text" or (self.kind() == "op" and self.value() in CLOSERS):
                break
            found.append(self.relation())
        return found[0] if len(found) == 1 else ("list", tuple(found))

    def separator(self) -> bool:
        start = self.position
        while (
            (self.kind() == "op" and self.value() in SEPARATORS)
            or self.kind() == "word"
            or (self.kind() == "text" and self.value().lower() in JOINING_WORDS)
        ):
            self.position += 1
        return self.position > start

    def relation(self) -> Node:
        parts = [self.union()]
        operators: list[str] = []
        while (operator := self.relation_sign()) is not None:
            operators.append(operator)
            parts.append(self.union())
        return ("rel", tuple(operators), tuple(parts)) if operators else parts[0]

    def relation_sign(self) -> str | None:
        if self.kind() in ("op", "cmd") and self.value() in RELATIONS:
            if self.kind() == "cmd" and len(self.value()) == 1:
                return None
            operator = RELATIONS[self.value()]
            self.position += 1
            return operator
        return None

    def union(self) -> Node:
        parts = [self.ratio()]
        while self.take("cmd", "cup"):
            parts.append(self.ratio())
        return ("union", tuple(parts)) if len(parts) > 1 else parts[0]

    def ratio(self) -> Node:
        clock = self.clock()
        if clock is not None:
            return clock
        parts = [self.sum()]
        while self.take("op", ":") or self.take("cmd", "colon"):
            parts.append(self.sum())
        return ("ratio", tuple(parts)) if len(parts) > 1 else parts[0]

    def clock(self) -> Node | None:
        """A time of day, which is no ratio: h:mm with two digits of minutes below 60."""
        following = self.tokens[self.position : self.position + 4]
        kinds = [kind for kind, _ in following]
        if kinds[:3] != ["num", "op", "num"] or following[1][1] != ":" or (kinds[3:] and following[3][1] in (":", ".")):
            return None
        hour, minute = following[0][1], following[2][1]
        if not (len(hour) <= 2 and hour.isdigit() and len(minute) == 2 and minute.isdigit() and int(minute) < 60):
            return None
        self.position += 3
        node: Node = ("time", str(int(hour)), minute)
        return self.with_unit(node) if self.kind() == "text" and self.value().lower() not in JOINING_WORDS else node
