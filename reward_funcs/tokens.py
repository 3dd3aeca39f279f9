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


_COUNTED = re.compile(r"([0-9][0-9,]*(?:\.[0-9]+)?) +([A-Za-z].*)", re.DOTALL)


def _upright(words: str) -> list[Token]:
    """A block of upright text: usually words, but also i, e, the names of functions, and what joins two answers."""
    if words in ("i", "e"):
        return [("let", words)]
    if words in FUNCTIONS:
        return [("cmd", words)]
    counted = _COUNTED.fullmatch(words)
    if counted is not None:  # \text{5 ways}
        return [("num", counted[1].replace(",", "")), *_upright(counted[2])]
    joint = _JOINT.fullmatch(words)
    if joint is None:
        return [("text", words)]
    parts = ((joint["before"] or "").rstrip(" ,"), joint["first"], joint["after"] or "")
    return [("text", part) for part in parts if part]


_JOINT = re.compile(
    r"(?P<before>\S.*?)?(?:(?<=\s)|(?<=,)|^)(?P<first>or|and)(?:\s+(?P<after>.+))?", re.DOTALL | re.IGNORECASE
)


def tokens(text: str) -> list[Token]:
    """The tokens of a prepared text as pairs of kind and value.

    Raises:
        Unreadable: For a character that no answer needs.
    """
    result: list[Token] = []
    position = 0
    while position < len(text):
        if text[position] in " $":  # maths delimiters stand around parts
            position += 1
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unreadable(f"character {text[position]!r}")
        kind = str(match.lastgroup)
        if kind == "words":
            result.extend(_upright(match["words"].strip()))
        elif kind == "name":
            result.append((str(match["env"]), match["name"]))
        elif kind == "brace":
            result.append(("op", match["brace"]))
        else:
            result.append((kind, match[kind]))
        position = match.end()
    return result


MAX_DEPTH = 20
# a single upright letter behind a number is a variable unless it is one of these
UNIT_LETTERS = frozenset("mgshlLNJWVKCFA")
# words behind a number that say another number
MULTIPLES = {"dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
SMALL_NUMBERS = {
    word: value
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty".split()
    )
}
_NO_UNIT = frozenset(
    "or and not more less least most fewer than plus minus times squared cubed half double twice over under to "
    "is are was wrong right correct no maybe but if alternatively versus vs oder ou und et point "
    "half halves third thirds quarter quarters fifths tenths hundredths factorial negative root roots power".split()
)


def is_unit(words: str) -> bool:
    """Whether words behind a number can be its unit, or say something else about it."""
    said = set(words.lower().split())
    return _UNIT_WORDS.fullmatch(words) is not None and not said & _NO_UNIT and not said & SMALL_NUMBERS.keys()


_UNIT_WORDS = re.compile(r"[^\W\d_]+(?:[ ./-]*[^\W\d_]+|\^-?[0-9])*[ .]*")
INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar".split()
)
RELATIONS = {
    **{sign: sign for sign in ("=", "<", ">", "<=", ">=", "!=", "in", "equiv", "approx")},
    **dict.fromkeys(("le", "leq", "leqslant"), "<="),
    **dict.fromkeys(("ge", "geq", "geqslant"), ">="),
    **dict.fromkeys(("ne", "neq"), "!="),
    **{"lt": "<", "gt": ">"},
}
# commands that a value starts with, besides functions and Greek letters
VALUES = frozenset("frac sqrt pi lg binom lfloor lceil infty mathbb overline imath".split())
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
