r"""JSON as models write it: the objects of a text, complete ones and broken ones, in the order in which they begin.

Read beyond JSON, since nothing else can be meant: line breaks and tabs inside of texts, one comma before a closing
bracket, white space of any kind, `4/5` as the text `"4/5"`, and backslashes that begin no escape, as in `\(x\)` and
`\sqrt`. A backslash before b, f, n, r or t begins a command of LaTeX where the letters up to the next character that is
none spell a known one (`\frac`, `\text`, `\neq`), and is JSON's escape otherwise.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

MAX_DEPTH = 64
# Characters looked at for objects that do not close, all together: past them a text is hostile.
WORK = 1_000_000
LEAST_WORK = 50  # what a broken object counts for, however short

# What may open an object of keys, and what opens none: braces of formulas, of code and of prose.
_START = re.compile(
    r"""\{\s*+["'“]|\[\s*+\{\s*+["'“]|\{\s*+(?:\d++|reasons?|scores?|better|criteria|criterion[ _]?\d++)\s*+:"""
)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_PARTS = re.compile(r'("(?:[^"\\]|\\.)*+")', re.DOTALL)
_COMMA = re.compile(r",(\s*+[}\]])")
_FRACTION = re.compile(r"(?<=[:\s])(\d++(?:\.\d++)?)\s*+/\s*+(\d++(?:\.\d++)?)(?=\s*+(?:[,}\]]|\Z))")
_CODE = re.compile(r"u[0-9a-fA-F]{4}")
_BACKSLASH = re.compile(rf"""\\({_CODE.pattern}|["\\/]|[A-Za-z]++|.)""", re.DOTALL)
_COMMANDS = frozenset(
    "bar because begin beta between bf bigcap bigcup big bigg biggl biggr bigl bigr binom blacksquare bmatrix bmod bot "
    "box boxed bullet fbox flat forall frac frown nabla ne nearrow neg neq newline nexists nmid nolimits nonumber not "
    "notin nparallel nsubseteq nu rangle rarr rbrace rceil rfloor rho right rightarrow rightleftharpoons rm root rvert "
    "tag tan tanh tau tbinom text textbf textit textrm textsf texttt textstyle tfrac therefore theta thinspace tilde "
    "times to top triangle triangleq".split()
)
_PLAIN = {
    "Expecting ',' delimiter": "a comma or bracket is missing, or a quote mark inside of a text has no backslash",
    "Expecting ':' delimiter": "a colon is missing behind a key",
    "Expecting property name enclosed in double quotes": "a key does not stand in double quotes",
    "Expecting value": "a value is missing, or a text does not stand in double quotes",
    "Extra data": "something follows the object",
}


class Piece(NamedTuple):
    """What begins at `start` of a text: a complete object or list and its end, or why there is none.

    `end` is where its brackets close, `None` where they do not.
    """

    start: int
    end: int | None
    value: Any = None
    fault: str = ""


class _Double(ValueError):
    """A key that stands twice in one object."""


def pieces(text: str, work: int = WORK) -> list[Piece] | None:
    """The objects of a text, and lists of objects; inside of a complete one no further are looked for.

    Args:
        text (`str`): any text.
        work (`int`, *optional*): characters of broken objects that are looked at.

    Returns:
        `list[Piece]`, *optional*: complete and broken ones in order; `None` for a text that would take too long.

    Example:

    ```python
    >>> [piece.value for piece in pieces('It says {"a": 1,}, then {"b": "line\\n more"}')]
    [{'a': 1}, {'b': 'line\\n more'}]
    >>> pieces('{"a": "x')[0].fault
    'it does not end'

    ```
    """
    found: list[Piece] = []
    is_plain = "\\" not in text  # what is JSON already may mean something else with backslashes alone
    at = 0
    while (match := _START.search(text, at)) is not None:
        start = match.start()
        piece, seen = _piece(text, start, start + work, is_plain)
        found.append(piece)
        if piece.fault:
            work -= max(seen - start, LEAST_WORK)
        at = start + 1 if piece.fault else seen
        if work <= 0:
            return None
    return found


def _piece(text: str, start: int, limit: int, is_plain: bool) -> tuple[Piece, int]:
    """What begins there, and how far was looked."""
    if is_plain:
        try:
            value, end = _DECODER.raw_decode(text, start)
            return Piece(start, end, value), end
        except (ValueError, RecursionError):  # written as models do, or broken
            pass
    closed, seen = _closing(text, start, limit)
    piece = Piece(start, None, None, "it does not end") if closed is None else _decoded(text, start, closed)
    return piece, seen


def _closing(text: str, start: int, limit: int) -> tuple[int | None, int]:
    """Where the bracket at `start` closes, `None` where it does not; and how far was looked."""
    expected: list[str] = []
    seen = start
    for match in _TOKEN.finditer(text, start):
        one, seen = match[0], match.end()
        if one in "{[":
            expected.append("}" if one == "{" else "]")
        elif one in "}]":
            if expected.pop() != one:
                break
            if not expected:
                return seen, seen
        if len(expected) > MAX_DEPTH or seen > limit:
            break
    return None, max(seen, start + 1)


def _decoded(text: str, start: int, end: int) -> Piece:
    source = _as_json(text[start:end])
    try:
        return Piece(start, end, _DECODER.decode(source))
    except json.JSONDecodeError as error:
        near = " ".join(source[error.pos : error.pos + 40].split())
        return Piece(start, end, None, f"{_PLAIN.get(error.msg, error.msg)}, at {near!r}")
    except ValueError as error:  # a key twice, or a number of thousands of digits
        fault = str(error) if isinstance(error, _Double) else "a number in it is too long"
        return Piece(start, end, None, fault)


def _as_json(source: str) -> str:
    """The source with what can only be meant one way as JSON has it."""
    return "".join(_repaired(source))


def _repaired(source: str) -> Iterator[str]:
    for number, part in enumerate(_PARTS.split(source)):
        if number % 2:
            yield _BACKSLASH.sub(_escape, part) if "\\" in part else part
        else:
            part = _COMMA.sub(r"\1", part)
            yield _FRACTION.sub(r'"\1/\2"', " ".join(part.split()) if not part.isascii() else part)


def _escape(match: re.Match[str]) -> str:
    what = match[1]
    is_escape = what in ('"', "\\", "/") or _CODE.fullmatch(what) or (what[0] in "bfnrt" and what not in _COMMANDS)
    return match[0] if is_escape else "\\" + match[0]


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        double = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _Double(f"it must hold each key once, but {double!r:.40} stands there twice")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_each_key_once, strict=False)
