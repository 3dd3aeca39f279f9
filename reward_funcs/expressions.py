"""How the reader of answers reads values: arithmetic, powers, functions, brackets, matrices, words and units."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from reward_funcs.tokens import (
    FUNCTIONS,
    GREEK,
    INVERSES,
    JOINING_WORDS,
    MATRICES,
    MULTIPLES,
    SMALL_NUMBERS,
    TIMES,
    UNIT_LETTERS,
    VALUES,
    Cursor,
    Unreadable,
    is_unit,
)

Node = tuple[Any, ...]
MAX_POSTFIX = 6
MAX_SIGNS = 4
MAX_DIGITS = 2000


_PLAIN_NUMBER = re.compile(r"^-?[0-9]{1,3}(?:,[0-9]{3})+$|^-?[0-9]{1,40}(?:\.[0-9]{1,40})?$")


REALS: Node = ("tuple", "()", (("neg", ("sym", "oo")), ("sym", "oo")))
_SAID: dict[str, Node] = {
    **{word: ("num", Fraction(value), 0) for word, value in SMALL_NUMBERS.items()},
    **dict.fromkeys(("all real numbers", "all reals", "real numbers", "the real numbers"), REALS),
    **dict.fromkeys(("no solution", "no solutions", "empty set", "the empty set"), ("set", ())),
    "infinity": ("sym", "oo"),
}


def said(words: str) -> Node:
    """A value said in words, or the words."""
    return _SAID.get(" ".join(words.lower().split()), ("text", words))


class ExpressionReader(Cursor):
    """The part of the recursive descent that reads one value; brackets hold what [`~ExpressionReader.items`] reads."""

    def items(self) -> Node:
        """Items between commas, `or`, `and`; whoever reads whole answers says how."""
        raise NotImplementedError

    # arithmetic

    def sum(self) -> Node:
        self.enter()
        node = self.signed_product()
        while True:
            if self.take("op", "+"):
                node = _sum(node, self.product())
            elif self.take("op", "-"):
                node = _sum(node, _negative(self.product()))
            elif self.take("cmd", "pm") or self.take("cmd", "mp"):
                node = ("pm", node, self.product())
            else:
                break
        self.depth -= 1
        return node

    def signed_product(self) -> Node:
        if self.at("op", "-", "+"):
            negative = self.sign()
            node = self.money(self.signed_product()) if self.take("cmd", "$") else self.product()
            return _negative(node) if negative else node
        if self.take("cmd", "$"):
            return self.money(self.signed_product())
        if self.take("cmd", "pm") or self.take("cmd", "mp"):
            return ("pm", ("num", Fraction(0), 0), self.product())
        return self.product()

    def money(self, node: Node) -> Node:
        """An amount with a currency sign, which may name its currency in words as well."""
        return node if node[0] in ("unit", "qualified") else ("unit", node, "dollar")

    def sign(self) -> bool:
        """Step over up to `MAX_SIGNS` signs; whether they make what follows negative."""
        negative = False
        for _ in range(MAX_SIGNS):
            if not self.at("op", "-", "+"):
                return negative
            negative ^= self.value() == "-"
            self.position += 1
        raise Unreadable("signs")

    def product(self) -> Node:
        node = self.factor()
        while True:
            if (self.kind() == "cmd" and self.value() in TIMES) or self.at("op", "*"):
                self.position += 1
                node = ("mul", node, self.signed_factor())
            elif self.take("op", "/") or self.take("cmd", "div"):
                node = ("div", node, self.signed_factor())
            elif self.starts_factor():
                node = ("mul", node, self.factor())
            elif self.take("cmd", "$"):
                node = self.money(node)
            elif self.kind() == "text" and self.value().lower() not in JOINING_WORDS:
                node = self.with_words(node)
            else:
                return node

    def with_words(self, node: Node) -> Node:
        """What upright words make of the value in front of them."""
        words = self.value()
        if len(words) == 1 and words.isalpha() and words not in UNIT_LETTERS:
            self.position += 1
            return ("mul", node, ("sym", words))
        first, _, rest = words.partition(" ")
        if first.lower() in MULTIPLES:
            node = ("mul", node, ("num", Fraction(MULTIPLES[first.lower()]), 0))
            if not rest:
                self.position += 1
                return node
            self.tokens[self.position] = ("text", rest.strip())
            return self.with_words(node)
        return self.with_unit(node)

    def with_unit(self, node: Node) -> Node:
        words = [self.value()]
        self.position += 1
        while True:
            if self.take("op", "^"):  # cm^2
                exponent = self.braced_or_single()
                words.append("^" + _digits(exponent))
            elif (
                self.at("op", "/")
                and self.position + 1 < len(self.tokens)
                and self.tokens[self.position + 1][0] == "text"
            ):
                self.position += 1
                words.append("/" + self.value())
                self.position += 1
            elif self.kind() == "text" and self.value().lower() not in JOINING_WORDS:
                words.append(" " + self.value())
                self.position += 1
            else:
                name = "".join(words)
                return ("unit" if is_unit(name) else "qualified", node, name)

    def signed_factor(self) -> Node:
        negative = self.sign()
        node = self.factor()
        return ("neg", node) if negative else node

    def starts_factor(self) -> bool:
        kind, value = self.kind(), self.value()
        if kind in ("num", "let"):
            # 2 3 is no product that anybody writes
            return not (kind == "num" and self.position > 0 and self.tokens[self.position - 1][0] == "num")
        if kind == "op":
            return (value in ("(", "{", "[") and value != "[") or (value == "|" and not self.bars)
        if kind == "cmd":
            return value in FUNCTIONS or value in GREEK or value in VALUES
        return kind == "begin"

    def factor(self) -> Node:
        """A primary with its powers, factorials, degrees and per cents."""
        node = self.primary()
        for _ in range(MAX_POSTFIX):
            if self.at("op", "^") and (ordinal := self.ordinal()):
                self.position += ordinal
            elif self.take("op", "^") or self.take("op", "**"):
                node = ("pow", node, self.tower())
            elif self.take("op", "!"):
                node = ("fact", node)
            elif self.take("cmd", "deg"):
                node = ("deg", node)
            elif self.take("op", "%") or self.take("cmd", "%"):
                node = ("pct", node)
            elif self.at("op", "'") and node[0] == "sym":
                self.position += 1
                node = ("sym", node[1] + "'")
            else:
                return node
        raise Unreadable("too many powers")

    def ordinal(self) -> int:
        r"""Number of tokens of the ^{\text{th}} that starts here, 0 if none does."""
        following = self.tokens[self.position + 1 : self.position + 4]
        braced = len(following) == 3 and following[0] == ("op", "{") and following[2] == ("op", "}")
        token = following[1] if braced else following[0] if following else ("", "")
        return (4 if braced else 2) if token[0] == "text" and token[1] in ("st", "nd", "rd", "th") else 0

    def braced_or_single(self) -> Node:
        """The argument of `^`, `\\frac` and `\\sqrt`: a group in braces or one token, of a number its first digit."""
        if self.take("op", "{"):
            node = self.sum()
            self.need("op", "}")
            return node
        if self.at("op", "-", "+"):
            negative = self.sign()
            node = self.braced_or_single()
            return ("neg", node) if negative else node
        if self.kind() in ("num", "rest") and self.value().isdigit():
            return self.first_digit()
        if self.at("op", "("):
            return self.primary()
        if self.kind() in ("let", "cmd"):
            return self.primary()
        raise Unreadable("argument")

    def first_digit(self) -> Node:
        digits = self.value()
        if len(digits) > 1:
            self.tokens[self.position] = (
                "rest",
                digits[1:],
            )  # the second argument of \\frac12, or nothing that is readable
            return ("num", Fraction(int(digits[0])), 0)
        self.position += 1
        return ("num", Fraction(int(digits)), 0)

    def exponent(self) -> Node:
        """A group, or one number or symbol: 2^10 is written for 2^{10}, whatever TeX makes of it."""
        return self.number() if self.kind() == "num" else self.braced_or_single()

    def tower(self) -> Node:
        """An exponent with the powers that stand on it: 2^3^2 is 2^9."""
        parts = [self.exponent()]
        while not (self.at("op", "^") and self.ordinal()) and (self.take("op", "^") or self.take("op", "**")):
            parts.append(self.exponent())
            if len(parts) > MAX_POSTFIX:
                raise Unreadable("too many powers")
        node = parts.pop()
        while parts:
            node = ("pow", parts.pop(), node)
        return node

    # primaries

    def primary(self) -> Node:
        kind, value = self.kind(), self.value()
        if kind == "num":
            return self.number()
        if kind == "let":
            self.position += 1
            return self.subscripted("i" if value == "I" else value)
        if kind == "op":
            return self.bracket(value)
        if kind == "cmd":
            self.position += 1
            return self.command(value)
        if kind == "text":
            return self.words()
        if kind == "begin":
            return self.matrix()
        raise Unreadable(f"{kind} {value}")

    def number(self) -> Node:
        text = self.value()
        self.position += 1
        if len(text) > MAX_DIGITS or "over" in text:
            raise Unreadable("number")
        if self.at("op", "_"):
            self.position += 1
            base = _digits(self.braced_base())
            return ("based", text, base)
        digits = len(text.replace(".", "").lstrip("0")) or 1
        return ("num", Fraction(text), digits if "." in text else 0)

    def braced_base(self) -> Node:
        if self.take("op", "{"):
            if self.kind() == "text" and self.value().lower() in SMALL_NUMBERS:
                self.position += 1
                self.need("op", "}")
                return ("num", Fraction(SMALL_NUMBERS[self.tokens[self.position - 2][1].lower()]), 0)
            if self.kind() != "num":
                raise Unreadable("base")
            node = self.number()
            self.need("op", "}")
            return node
        return self.number() if self.kind() == "num" else self.braced_or_single()

    def subscripted(self, name: str) -> Node:
        if self.take("op", "_"):
            if self.take("op", "{"):
                inner = []
                while not self.at("op", "}"):
                    if self.kind() not in ("num", "let", "text", "cmd") and not self.at("op", "+", "-", ","):
                        raise Unreadable("subscript")
                    inner.append(self.value())
                    self.position += 1
                self.position += 1
                return ("sym", f"{name}_{''.join(inner)}")
            if self.kind() not in ("num", "let", "text"):
                raise Unreadable("subscript")
            inner_value = self.value()
            self.position += 1
            return ("sym", f"{name}_{inner_value}")
        return ("sym", name)

    def bracket(self, value: str) -> Node:
        if value == "|":
            if self.bars:
                raise Unreadable("nested bars")
            self.position += 1
            self.bars += 1
            node = self.sum()
            self.need("op", "|")
            self.bars -= 1
            return ("abs", node)
        if value == "{":
            self.position += 1
            node = self.sum()
            self.need("op", "}")
            return node
        if value not in ("(", "[", "\\{"):
            raise Unreadable(value)
        self.position += 1
        self.enter()
        bars, self.bars = self.bars, 0
        closing = ("\\}",) if value == "\\{" else (")", "]")
        if self.take("op", *closing):
            self.depth -= 1
            self.bars = bars
            return ("set", ()) if value == "\\{" else ("tuple", value + ")", ())
        node = self.items()
        close = self.value()
        self.need("op", *closing)
        self.depth -= 1
        self.bars = bars
        items = node[1] if node[0] == "list" else (node,)
        if value == "\\{":
            return ("set", items)
        if node[0] == "list":
            return ("tuple", value + close, items)
        if value == "(" and close == ")":
            if node[0] == "num" and node[1].denominator == 1 and self.take("op", "_"):
                return ("based", str(node[1]), _digits(self.braced_base()))
            return node
        if value == "[" and close == "]":
            return node
        raise Unreadable("brackets")

    def command(self, name: str) -> Node:
        if name == "frac":
            top = self.braced_or_single()
            return ("div", top, self.braced_or_single())
        if name == "sqrt":
            return self.root()
        if name == "binom":
            top = self.braced_or_single()
            return ("binom", top, self.braced_or_single())
        if name == "lg":
            return ("log", ("num", Fraction(10), 0), self.argument())
        if name in ("pi", "imath"):
            return ("sym", {"pi": "pi", "imath": "i"}[name])
        if name == "infty":
            return ("sym", "oo")
        if name == "emptyset":
            return ("set", ())
        if name in GREEK:
            return self.subscripted("\\" + name)
        if name in FUNCTIONS:
            return self.function(name)
        if name in ("lfloor", "lceil"):
            node = self.sum()
            self.need("cmd", "rfloor" if name == "lfloor" else "rceil")
            return ("fn", "floor" if name == "lfloor" else "ceil", node)
        if name == "mathbb" and self.at("op", "{"):
            self.position += 1
            letter = self.value()
            self.position += 1
            self.need("op", "}")
            return REALS if letter == "R" else ("sym", "mathbb" + letter)
        if name == "overline" and self.at("op", "{"):
            return self.overlined()
        raise Unreadable("\\" + name)

    def overlined(self) -> Node:
        self.position += 1
        inner = []
        while self.kind() in ("num", "let"):
            inner.append(self.value())
            self.position += 1
        self.need("op", "}")
        return ("sym", "overline " + "".join(inner))

    def root(self) -> Node:
        degree: Node = ("num", Fraction(2), 0)
        if self.take("op", "["):
            degree = self.sum()
            self.need("op", "]")
        return ("root", degree, self.braced_or_single())

    def function(self, name: str) -> Node:
        base: Node | None = None
        power: Node | None = None
        for _ in range(2):
            if name == "log" and self.take("op", "_"):
                base = self.braced_or_single()
            elif self.take("op", "^"):
                power = self.exponent()
        argument = self.argument()
        if power == ("neg", ("num", Fraction(1), 0)):
            if name not in INVERSES:
                raise Unreadable("inverse function")
            return ("fn", INVERSES[name], argument)
        node: Node = ("log", base, argument) if base is not None else ("fn", name, argument)
        return ("pow", node, power) if power is not None else node

    def argument(self) -> Node:
        """A bracket, or the numbers, symbols, fractions and roots that follow directly."""
        self.enter()
        if self.at("op", "(", "{"):
            node = self.primary()
            if node[0] == "tuple":
                raise Unreadable("arguments")
        else:
            negative = self.take("op", "-")
            node = self.factor()
            while self.kind() in ("num", "let") or (
                self.kind() == "cmd" and (self.value() in GREEK or self.value() in ("pi", "frac", "sqrt"))
            ):
                node = ("mul", node, self.factor())
            node = ("neg", node) if negative else node
        self.depth -= 1
        return node

    def words(self) -> Node:
        """A text block where a value is expected: one letter is a symbol, a number a number, other words are words."""
        words = self.value()
        self.position += 1
        stripped = words.strip(" ().:")
        if stripped.lower() in ("negative", "minus"):
            return _negative(self.product())
        if stripped.lower() in _SAID:
            return said(stripped)
        if len(stripped) == 1 and stripped.isalpha():
            return ("sym", stripped)
        if _PLAIN_NUMBER.match(stripped):
            digits = stripped.replace(",", "")
            return ("num", Fraction(digits), len(digits.replace(".", "").lstrip("0")) if "." in digits else 0)
        ends = self.kind() in ("end-of-text", "text", "word") or (self.kind() == "op" and self.value() in ",;)]=")
        if not stripped or not ends:
            raise Unreadable("words before maths")
        parts = [words]
        while self.kind() == "text" and self.value().lower() not in JOINING_WORDS:
            parts.append(self.value())
            self.position += 1
        return ("text", " ".join(parts))

    def matrix(self) -> Node:
        name = self.value()
        if name not in MATRICES:
            raise Unreadable(name)
        self.position += 1
        if name == "array":
            self.column_format()
        self.enter()
        rows: list[tuple[Node, ...]] = []
        row = [self.sum()]
        while not self.take("end", name):
            if self.take("op", "&"):
                row.append(self.sum())
            else:
                self.need("cmd", "cr")
                rows.append(tuple(row))
                row = [] if self.at("end", name) else [self.sum()]
        self.depth -= 1
        return ("matrix", (*rows, tuple(row)) if row else tuple(rows))

    def column_format(self) -> None:
        self.need("op", "{")
        while self.kind() == "let" or self.at("op", "|"):
            self.position += 1
        self.need("op", "}")


def _negative(node: Node) -> Node:
    return ("unit", ("neg", node[1]), node[2]) if node[0] == "unit" else ("neg", node)


def _sum(left: Node, right: Node) -> Node:
    """The sum, in the unit that stands behind its last part."""
    if right[0] != "unit":
        return ("add", left, right)
    if left[0] == "unit" and left[2] != right[2]:
        raise Unreadable("sum of units")
    return ("unit", ("add", left[1] if left[0] == "unit" else left, right[1]), right[2])


def _digits(node: Node) -> str:
    if node[0] == "num" and node[1].denominator == 1:
        return str(node[1])
    raise Unreadable("digits")
