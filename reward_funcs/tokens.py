"""The tokens of an answer in LaTeX and the words of its language, for [`reward_funcs.reader`]."""

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


MAX_DEPTH = 20
INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar".split()
)
RELATIONS = {
    **{sign: sign for sign in ("=", "<", ">", "<=", ">=", "!=", "in", "equiv")},
    **dict.fromkeys(("le", "leq", "leqslant"), "<="),
    **dict.fromkeys(("ge", "geq", "geqslant"), ">="),
    **dict.fromkeys(("ne", "neq"), "!="),
    **{"lt": "<", "gt": ">"},
}
TIMES = frozenset(("times", "cdot", "ast", "*"))
MATRICES = frozenset(("pmatrix", "bmatrix", "matrix", "Bmatrix", "smallmatrix", "array"))
CLOSERS = frozenset((")", "]", "}", "\\}"))
SEPARATORS = frozenset((",", ";"))
JOINING_WORDS = frozenset(("or", "and", ",", "and,", ", and", ", or", "or,"))


class Cursor:
    """A position in the tokens of an answer."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0
        self.depth = 0
        self.bars = 0

    def kind(self) -> str:
        """Kind of the token at `position`, `end-of-text` behind the last one."""
        return self.tokens[self.position][0] if self.position < len(self.tokens) else "end-of-text"

    def value(self) -> str:
        """Value of the token at `position`."""
        return self.tokens[self.position][1] if self.position < len(self.tokens) else ""

    def at(self, kind: str, *values: str) -> bool:
        """Whether the token at `position` is of this kind, with one of these values if any are given."""
        return self.kind() == kind and (not values or self.value() in values)

    def take(self, kind: str, *values: str) -> bool:
        """Step over the token if it is one of these."""
        if self.at(kind, *values):
            self.position += 1
            return True
        return False

    def need(self, kind: str, *values: str) -> None:
        """Step over the token, which must be one of these."""
        if not self.take(kind, *values):
            raise Unreadable(f"expected {values}")

    def enter(self) -> None:
        """Count one level of nesting."""
        self.depth += 1
        if self.depth > 3 * MAX_DEPTH:  # each bracket passes through a few levels
            raise Unreadable("too deep")
