"""The tokens of an answer in LaTeX, for [`reward_funcs.reader`]."""

from __future__ import annotations

import re


class Unreadable(ValueError):
    """The text is not fully understood by this reader; something slower may understand it."""


_TOKEN = re.compile(
    r"(?P<num>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
    r"|\\(?P<text>text(?:bf|it|rm|sf|tt|normal)?|[mh]box|math(?:rm|bf|it|sf)|operatorname\*?) ?\{(?P<words>[^{}]*)\}"
    r"|\\(?P<env>begin|end) ?\{(?P<name>[a-zA-Z]+\*?)\}"
    r"|(?P<brace>\\[{}])"
    r"|\\(?P<cmd>[a-zA-Z]+|.)"
    r"|(?P<word>(?:or|and)(?![a-zA-Z]))"
    r"|(?P<let>[a-zA-Z])"
    r"|(?P<op><=|>=|!=|\*\*|[-+*/^_=<>(){}\[\]|,;:!%'&])",
    re.DOTALL,
)
Token = tuple[str, str]


# functions that a document may spell as words
FUNCTIONS = frozenset("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln exp log".split())


def _upright(words: str) -> Token:
    """A block of upright text: usually words, but also i, e and the names of functions."""
    if words in ("i", "e"):
        return ("let", words)
    return ("cmd", words) if words in FUNCTIONS else ("text", words)


def tokens(text: str) -> list[Token]:
    """The tokens of a prepared text as pairs of kind and value.

    Raises:
        Unreadable: For a character that no answer needs.
    """
    result: list[Token] = []
    position = 0
    while position < len(text):
        if text[position] in " $":
            position += 1
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unreadable(f"character {text[position]!r}")
        kind = str(match.lastgroup)
        if kind == "words":
            words = match["words"].strip()
            result.append(_upright(words))
        elif kind == "name":
            result.append((str(match["env"]), match["name"]))
        elif kind == "brace":
            result.append(("op", match["brace"]))
        elif match[kind] != "$":  # currency, and maths delimiters that stand around parts
            result.append((kind, match[kind]))
        position = match.end()
    return result
