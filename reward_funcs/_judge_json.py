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
# Characters of broken objects that are read, all together: past them a text is hostile.
WORK = 1_000_000
LEAST_WORK = 50  # what a broken object counts for, however short

# What may open an object of keys, and what opens none: braces of formulas, of code and of prose.
_START = re.compile(
    r"""\{\s*+["'“]|\[\s*+\{\s*+["'“]|\{\s*+(?:\d++|reasons?|scores?|better|criteria|criterion[ _]?\d++)\s*+:"""
)
_MARK = re.compile(r'(\\*+)"|[{}\[\]]')
_CLOSERS = {"{": "}", "[": "]"}
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


def pieces(text: str, work: int = WORK, start: int = 0) -> list[Piece] | None:
    """The objects of a text, and lists of objects; inside of a complete one no further are looked for.

    Args:
        text (`str`): any text.
        work (`int`, *optional*): characters of broken objects that are read.
        start (`int`, *optional*): where to begin.

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
    spans: dict[int, tuple[int, int]] | None = None
    at = start
    while (match := _START.search(text, at)) is not None:
        spans = _spans(text, match.start()) if spans is None else spans
        piece = _piece(text, match.start(), spans.get(match.start()))
        found.append(piece)
        if piece.fault:
            work -= max((piece.end or 0) - piece.start, LEAST_WORK)
        at = piece.start + 1 if piece.fault or piece.end is None else piece.end
        if work <= 0:
            return None
    return found


def _piece(text: str, start: int, span: tuple[int, int] | None) -> Piece:
    if span is None:
        return Piece(start, None, None, "it does not end")
    end, depth = span
    if depth > MAX_DEPTH:
        # as if it had no end: what stands inside of it is looked at piece by piece
        return Piece(start, None, None, f"its brackets are more than {MAX_DEPTH} deep")
    return _decoded(text, start, end)


def _spans(text: str, start: int) -> dict[int, tuple[int, int]]:
    """Where each bracket closes and how deep those in it are, by its place; what it has in double quotes is left out.

    Each mark is looked at once, from the last to the first: where a bracket closes follows from what comes after it,
    and text in quotes is stepped over by a bracket before it while a bracket inside of it has marks of its own.
    """
    marks = list(_MARK.finditer(text, start))
    count = len(marks)
    behind = [count] * (count + 1)  # the first bracket from here on that is not inside of a text
    closer = [count] * (count + 1)  # the first from that bracket on that closes what was open before it
    depth = [0] * (count + 1)  # of what stands between the two
    quote = count  # the next one that may end a text
    spans: dict[int, tuple[int, int]] = {}
    for index in range(count - 1, -1, -1):
        mark = marks[index]
        kind = mark[0][-1]
        if kind == '"':
            behind[index] = behind[min(quote + 1, count)]
            quote = quote if len(mark[1]) % 2 else index
            continue
        behind[index] = index
        if kind in "}]":
            closer[index] = index
            continue
        inner = behind[index + 1]
        end = closer[inner]
        if end < count and marks[end][0] == _CLOSERS[kind]:
            after = behind[end + 1]
            spans[mark.start()] = marks[end].end(), 1 + depth[inner]
            closer[index], depth[index] = closer[after], max(1 + depth[inner], depth[after])
    return spans


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
