r"""Applications of functions that nothing here evaluates, such as `f(8)` or `\gcd(m, n)`, as one symbol each.

The readers of both tiers take `f(8) > 2022 f(0)` for a statement of a product, `8f > 0`, so that `f(9) > 2022 f(0)`
would say the same, and pass over the `\gcd` of `\gcd(m, n) = 1`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from reward_funcs.maths import same

RELATION = re.compile(r"=|<|>|\\(?:le|ge|leq|geq|lt|gt|ne|neq|leqslant|geqslant)(?![a-zA-Z])")
_SIZE = r"(?:\\left ?)?"
_CLOSE = r"(?:\\right ?)?\)"
_INDEX = r"'*(?:_ ?(?:[a-zA-Z0-9]|\{ ?[a-zA-Z0-9]{1,4} ?\}))?"
_GREEK = r"\\(?:tau|phi|varphi|sigma|mu|nu|omega|Omega|lambda|psi|rho|zeta|Gamma)(?![a-zA-Z])"
# f, g and h are functions, whatever stands in their brackets, and P of an event; of other letters p(p + 1) is a
# product, p(x) and a(8) are values
_APPLICATION = re.compile(
    r"(?:\\(?:gcd|lcm|det|max|min|deg|dim|ker|operatorname ?\{ ?[a-zA-Z]{1,12} ?\})(?![a-zA-Z])"
    rf"|[fghFGH]{_INDEX}) ?{_SIZE}\((?P<any>[^()]{{1,80}}){_CLOSE}"
    rf"|P ?{_SIZE}\((?P<event>[^()]{{1,40}}[=<>|][^()]{{1,40}}){_CLOSE}"
    rf"|(?:[pquvPQRSTV]|{_GREEK}){_INDEX} ?{_SIZE}\((?P<letter>[a-zA-Z]){_CLOSE}"
    rf"|(?:[a-zA-Z]|{_GREEK}){_INDEX} ?{_SIZE}\((?P<number>-?[0-9]{{1,9}}){_CLOSE}"
)
_WORD = re.compile(
    rf"(?!{_GREEK})\\(?:(?:text|mathrm|mbox|mathbf)(?:rm|bf)? ?\{{[^{{}}]*\}}"
    r"|(?!(?:gcd|lcm|det|max|min|deg|dim|ker|left|right|operatorname)(?![a-zA-Z]))[a-zA-Z]+)"
)
_SYMMETRIC = frozenset((r"\gcd", r"\lcm", r"\max", r"\min"))
# what no answer of the data sets names a variable
_SYMBOLS = (r"\xi", r"\eta", r"\zeta", r"\chi", r"\kappa", r"\iota", r"\upsilon", r"\varrho")
MAX_LENGTH = 400  # characters; a statement that is longer is left as it is


class Application(NamedTuple):
    """A function and its arguments as they are written, and where both stand in the text."""

    function: str
    arguments: str
    start: int
    end: int


@lru_cache(maxsize=4096)
def applications(text: str) -> tuple[Application, ...]:
    r"""The applications in a text.

    Args:
        text (`str`): as [`reward_funcs.latex.plain`] gives it.

    Example:

    ```python
    >>> [text[:2] for text in applications(r"f(8) > 2022 f(0)")], applications("p(p + 1) = 6")
    ([('f', '8'), ('f', '0')], ())

    ```
    """
    # a letter within a word or a command is no function; the positions stay
    bare = _WORD.sub(lambda match: "\\" + "#" * (len(match.group()) - 1), text) if "\\" in text else text
    found = []
    for match in _APPLICATION.finditer(bare):
        group = next(group for group in ("any", "event", "letter", "number") if match[group])
        name = match.group().partition("(")[0].replace("\\left", "").replace(" ", "")
        arguments = text[match.start(group) : match.end(group)].removesuffix("\\right").strip()
        found.append(Application(name, arguments, match.start(), match.end()))
    return tuple(found)


def with_symbols(gold: str, answer: str) -> tuple[str, str]:
    r"""A gold that states a relation, and an answer, with one symbol for each application in them.

    Applications are the same where the functions are and the arguments say the same. Other golds stay as they are, with
    their answers.

    Args:
        gold (`str`): a gold as [`reward_funcs.gold.gold_texts`] gives it.
        answer (`str`): an answer as [`reward_funcs.latex.plain`] gives it.

    Example:

    ```python
    >>> with_symbols("f(8) > 2022 f(0)", "f(9) > 2022 f(0)")
    ('\\xi  > 2022 \\eta ', '\\zeta  > 2022 \\eta ')
    >>> with_symbols("x + 1", "f(x) = x + 1")
    ('x + 1', 'f(x) = x + 1')

    ```
    """
    if "(" not in gold or max(len(gold), len(answer)) > MAX_LENGTH or not RELATION.search(gold):
        return gold, answer
    stated = applications(gold)
    if not stated:
        return gold, answer
    if not applications(answer) and not any(one.function.startswith("\\") for one in stated):
        return gold, answer  # h(a + b) may be a product after all
    known: list[Application] = []
    numbers = [[_number(one, known) for one in applications(text)] for text in (gold, answer)]
    symbols = [symbol for symbol in _SYMBOLS if symbol not in gold and symbol not in answer]
    if len(known) > len(symbols):
        return gold, answer
    texts = zip((gold, answer), numbers, strict=True)
    written = [_replaced(text, [symbols[number] for number in each]) for text, each in texts]
    return written[0], written[1]


def _number(one: Application, known: list[Application]) -> int:
    """The number of an application among those that are known, to which a new one is added."""
    for number, other in enumerate(known):
        if one.function == other.function and _same_arguments(one, other):
            return number
    known.append(one)
    return len(known) - 1


def _same_arguments(one: Application, other: Application) -> bool:
    left, right = one.arguments, other.arguments
    if left.replace(" ", "") == right.replace(" ", ""):
        return True
    if one.function not in _SYMMETRIC:
        left, right = f"({left})", f"({right})"
    return bool(same(left, right))


def _replaced(text: str, symbols: list[str]) -> str:
    parts, start = [], 0
    for one, symbol in zip(applications(text), symbols, strict=True):
        parts += [text[start : one.start], symbol, " "]
        start = one.end
    return "".join([*parts, text[start:]])
