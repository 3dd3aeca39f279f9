r"""Golds in the form that `accuracy_reward`, this project's and TRL's, reads without loss: `$\frac{4}{3}$`."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

from datasets_builders.source import Drop
from reward_funcs.extract import boxed_run

# What data sets write where there is no answer; "proof" is a reason of its own.
_NO_ANSWER = frozenset(("", "nan", "none", "null", "n/a", "notfound", "not found"))
MAX_EXPANDED = 1000  # characters; a longer text is no answer that braces could help

# `$` and \( \) \[ \] that set maths apart, and the escaped dollar of money; \\[2pt] starts a row of a matrix
_DELIMITERS = re.compile(r"\\?\$|(?<!\\)\\[()\[\]]")
# a comma between two formulas, which separates answers: the dollars are read in pairs, as in `1$,$200` it is inside one
_FORMULA = re.compile(r"(?<!\\)\$(?:[^\\$]|\\.)*\$|\\\((?:[^\\]|\\[^)])*\\\)|\\\[(?:[^\\]|\\[^\]])*\\\]", re.DOTALL)
_BETWEEN_FORMULAS = re.compile(r"\s*,\s*(?=\$|\\[(\[])")
# without a mark that says so, such as \! or a unit, these commas may separate answers as well as thousands
_JOINED_COMMAS = re.compile(r"[-+]?[1-9][0-9]{0,2}(?:,[0-9]{3})+")
_THOUSANDS_MARK = re.compile(r"(?<=[0-9])(?:\{,\}|\{\\,\}|,\\[!,;: ]|\\[!,;:]) ?(?=[0-9]{3}(?![0-9]))")
# a number with its sign, up to its end, its decimals or its unit
_THOUSANDS = re.compile(
    r"(?:(?<=^)|(?<=^[-+]))[1-9][0-9]{0,2}([, ])[0-9]{3}(?:\1[0-9]{3})*(?=$|\.[0-9]+$|[^0-9.,;][^0-9,;]*$)"
)
_SEPARATOR = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_LABEL = re.compile(r"^\\(?:text|textbf|mathrm|mathbf)\s?\{\s?\([A-J]\)\s?\.?\s?\}(?:\\[ ,;:!]|\\q?quad|~|\s)*(?=\S)")
_SCIENTIFIC = re.compile(r"^([-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))[eE]([-+]?[0-9]{1,4})(?=$| )")
_BARE_PERCENT = re.compile(r"(?<!\\)%")


def math_gold(answer: Any, *, several: bool = False) -> str:
    r"""`$...$` around an answer in plain LaTeX: no inner `$`, braces for its shorthand, no thousands separators.

    TRL's `accuracy_reward` parses a bare `\sqrt{51}` or `[-2,7]` to nothing, so that such a row gives no reward, and
    `\left(3, \frac{\pi}{2}\right)` to 3. Between dollars it reads them all.

    - The `$` and `\$` go, and so does a `\boxed{}`; of several boxes each is one answer.
    - `\frac43`, `\frac 59`, `\frac9{19}`, `\dfrac` and `\sqrt2` get their braces. Where it is open what was meant
      (`\sqrt13`, `\frac 123`) they stay as they are.
    - Separators go out of whole numbers (`32,\!348`, `1,080 \text{ m}`), never out of tuples, intervals or lists. A
      comma between two formulas (`$1$,$200$`) separates answers; for `1,200` see [`has_open_commas`].
    - `6.6e-34` becomes a product with a power of ten, which is how answers write it.
    - Words go in `\text{}`: TRL reads others as products of their letters, to which order does not matter.
    - The label goes of an option that has a text, `\textbf{(C)}\ 5`.

    Units, percent and degree signs stay: both rewards take such an answer with and without them.

    Args:
        answer (`str`, `int`, `float`, `Fraction` or a list of these): as a data set writes it. A list is all the
            answers that a full solution names, and is joined by `", "`; a float without a fraction is an integer.
        several (`bool`, *optional*, defaults to `False`): whether a text names several answers, so that no comma in it
            separates thousands.

    Returns:
        `str`: the gold, for the column `solution`.

    Raises:
        Drop: `no_answer` for an answer that is null, not finite, empty, or a word that says so; `proof` where the
            answer is a proof.
        TypeError: For any other type.

    Source: the normal form was found by feeding both rewards the answers of MATH, GSM8K, OlympiadBench and ORZ; how
        many they accept stands in `docs/datasets.md`.

    Example:

    ```python
    >>> math_gold(r"\frac43"), math_gold("$69$,$84$"), math_gold(27.0), math_gold(["1", "200"])
    ('$\\frac{4}{3}$', '$69, 84$', '$27$', '$1, 200$')

    ```
    """
    if isinstance(answer, str) and answer.isascii() and answer.isdecimal():
        return f"${answer}$"  # most golds, and a text without any of what follows
    return f"${plain_answer(answer, several=several)}$"


def plain_answer(answer: Any, *, several: bool = False) -> str:
    """What [`math_gold`] puts between dollars."""
    if isinstance(answer, (list, tuple)):
        parts = [plain_answer(item) for item in answer]
        if not parts:
            raise Drop("no_answer")
        return ", ".join(parts)
    text = written(answer)
    if "boxed" in text and (boxes := boxed_run(text).contents):
        text = ", ".join(dict.fromkeys(boxes))
    if "," in text and len(text) <= MAX_EXPANDED and len(formulas := _comma_separated(text)) > 1:
        return ", ".join(plain_answer(part, several=several) for part in formulas)
    text = _trimmed(" ".join(_DELIMITERS.sub("", text).split()))
    lowered = text.lower()
    if lowered in _NO_ANSWER:
        raise Drop("no_answer")
    if lowered == "proof":
        raise Drop("proof")
    if "\\" in text or "{" in text:
        text = _LABEL.sub("", text)
        text = _THOUSANDS_MARK.sub("", text)
        if len(text) <= MAX_EXPANDED:
            text = braced(text)
    # with a space behind it, a comma separates for every reader
    text = _SEPARATOR.sub(", ", text) if several else _THOUSANDS.sub(_joined, text)
    text = _SCIENTIFIC.sub(_power_of_ten, text)
    text = _BARE_PERCENT.sub(r"\\%", text.replace("\u2212", "-").replace("\u00b0", r"^{\circ}"))
    return rf"\text{{{text}}}" if _is_words(text) else text


def _comma_separated(text: str) -> list[str]:
    """The parts of a text between the commas that stand between two formulas, and so separate answers."""
    parts, start = [], 0
    for formula in _FORMULA.finditer(text):
        if comma := _BETWEEN_FORMULAS.match(text, formula.end()):
            parts.append(text[start : formula.end()])
            start = comma.end()
    return [*parts, text[start:]]


def has_open_commas(answer: Any) -> bool:
    r"""Whether nothing in an answer says if its commas separate thousands or answers: `5,105`, but not `5,\!105`.

    [`math_gold`] reads thousands. Where a problem asks for several answers, that may be wrong.

    Args:
        answer (`Any`): as in [`math_gold`].

    Example:

    ```python
    >>> has_open_commas("$5,105$"), has_open_commas("5, 105"), has_open_commas(5105), has_open_commas("5,105 m")
    (True, False, False, False)

    ```
    """
    bare = _trimmed(_DELIMITERS.sub("", answer).strip()) if isinstance(answer, str) else ""
    return _JOINED_COMMAS.fullmatch(bare) is not None


def written(answer: Any) -> str:
    """An answer as text, as first written; `27` for 27.0, the entries of a list joined by `", "`.

    Args:
        answer (`Any`): a text, a number, or a list of them.

    Raises:
        Drop: `no_answer` for what is null or not finite.
        TypeError: For any other type.

    Example:

    ```python
    >>> written(" 5 "), written(27.0), written(["1", 2])
    ('5', '27', '1, 2')

    ```
    """
    if isinstance(answer, str):
        return answer.strip()
    if isinstance(answer, (list, tuple)):
        return ", ".join(written(item) for item in answer)
    if answer is None:
        raise Drop("no_answer")
    if isinstance(answer, (float, Decimal)):
        if not math.isfinite(answer):
            raise Drop("no_answer")
        whole = int(answer)
        return str(whole) if answer == whole and abs(whole) < 10**15 else str(answer)
    if isinstance(answer, bool) or not isinstance(answer, (int, Fraction)):
        raise TypeError(f"an answer must be a text, a number or a list of them, not {type(answer).__name__}")
    return str(answer)


def integer_gold(answer: Any) -> str:
    r"""`$25$` of `25`, `"025"`, `25.0`, `"25.0"`, `"1,025"` and `25^\circ`: for sets whose answers are all integers.

    Args:
        answer (`Any`): as in [`math_gold`].

    Raises:
        Drop: `no_answer` as in [`math_gold`], and `not_an_integer` for any other answer.

    Example:

    ```python
    >>> integer_gold("025"), integer_gold(27.0), integer_gold(r"$336^\circ$")
    ('$25$', '$27$', '$336$')

    ```
    """
    match = _INTEGER.fullmatch(plain_answer(answer))
    if match is None:
        raise Drop("not_an_integer")
    return f"${int(match[1])}$"


_INTEGER = re.compile(r"([-+]?[0-9]{1,1000})(?:\.0*)?(?:\s?\^\s?(?:\\circ|\{\s?\\circ\s?\}))?")


def boxed_gold(solution: str) -> tuple[str, str]:
    r"""The answer in the last `\boxed{}` of a worked solution as it is written there, and the gold of it.

    Args:
        solution (`str`): a text that ends with its answer in a box. Boxes that are joined by "and" are one answer.

    Raises:
        Drop: `no_answer` without a box.

    Example:

    ```python
    >>> boxed_gold(r"First \boxed{1}. So $x = \boxed{\frac{1}{\sqrt2}}$.")
    ('\\frac{1}{\\sqrt2}', '$\\frac{1}{\\sqrt{2}}$')

    ```
    """
    boxes = list(dict.fromkeys(boxed_run(solution).contents))
    if not boxes:
        raise Drop("no_answer")
    answer = ", ".join(boxes)
    return answer, math_gold(answer)


# boxes in a problem: one that holds more or longer ones is no problem
MAX_BOXES, MAX_BOXED = 100, 1000
_BOX = re.compile(r"\\f?box(?:ed)?\s*\{")


def is_boxed(gold: str, text: str) -> bool:
    r"""Whether a `\boxed{}` of a text, one of the last hundred, holds a gold: a problem with its solution.

    Args:
        gold (`str`): as [`math_gold`] gives it.
        text (`str`): a problem. Numbers outside of boxes are not looked at.

    Example:

    ```python
    >>> is_boxed("$573$", r"Find $n$. <details>It is $\boxed{573}$.</details>"), is_boxed("$5$", "Add 5 and 0.")
    (True, False)

    ```
    """
    if "box" not in text:
        return False
    key = gold_key(gold)
    starts = [match.end() - 1 for match in _BOX.finditer(text)][-MAX_BOXES:]
    return any(_box_key(text[start : start + MAX_BOXED]) == key for start in starts)


def _box_key(text: str) -> str | None:
    """The key of the group that a text begins with; `None` for one that does not end, or holds no answer."""
    end = _group_end(text, 0)
    if end is None:
        return None
    try:
        return gold_key(math_gold(text[1 : end - 1]))
    except Drop:  # an empty box, to be filled in
        return None


_GOLD_SPACE = re.compile(r"[\s$]+|\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,;:! ]")
# a space between digits that separates no thousands: "1 1/2" is not 11/2
_GOLD_GAP = re.compile(r"(?<=[0-9])(?:[\s$]|\\[,;:! ])+(?=[0-9])(?![0-9]{3}(?![0-9/]))")
_GOLD_FONT = re.compile(r"\\(?:text|textbf|mathbf|mathrm|mbox)\{([^{}]*)\}")
_GOLD_FRACTION = re.compile(r"\\[dt]frac(?![A-Za-z])")
_PLAIN_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})")
_WHOLE = r"(?:\{([-+]?[0-9]{1,40})\}|([0-9]))"
_PLAIN_FRACTION = re.compile(rf"([-+]?)(?:\\frac{_WHOLE}{_WHOLE}|([0-9]{{1,40}})/([0-9]{{1,40}}))")


def gold_key(gold: str) -> str:
    r"""A gold in a form that is equal for golds that differ in spaces, dollar signs, fonts or the way of a number.

    Decimals and fractions of whole numbers are compared by their exact value, in lowest terms: `1/2`, `\frac12`, `2/4`
    and `0.50` get one form, and 0.333 is no third. Different answers never get one form; equal ones that are written in
    other ways (`\sqrt4` and `2`) get two.

    Args:
        gold (`str`): a gold, with or without dollar signs.

    Returns:
        `str`: not empty, unless the gold is.

    Example:

    ```python
    >>> gold_key("$5.0$"), gold_key(r"$\left( 3, \dfrac{1}{2} \right)$"), gold_key(r"$-\frac{2}{4}$"), gold_key("-0.5")
    ('5', '(3,\\frac{1}{2})', '-1/2', '-1/2')

    ```
    """
    bare = _GOLD_SPACE.sub("", _GOLD_GAP.sub("|", _GOLD_FONT.sub(r"\1", gold)))
    bare = _GOLD_FRACTION.sub(r"\\frac", bare)
    number = _plain_number(bare)
    return (bare or gold) if number is None else str(number)


def _plain_number(text: str) -> Fraction | None:
    """The value of a decimal, or of a fraction of whole numbers; `None` for anything else."""
    if _PLAIN_NUMBER.fullmatch(text):
        return Fraction(Decimal(text))
    match = _PLAIN_FRACTION.fullmatch(text)
    if match is None:
        return None
    top, bottom = int(match[2] or match[3] or match[6]), int(match[4] or match[5] or match[7])
    if not bottom:
        return None
    return Fraction(-top if match[1] == "-" else top, bottom)


def pass_rate(value: Any) -> float | None:
    """A share of right answers in [0, 1] from a number or a text such as `"3/8"`; `None` for anything else.

    Example:

    ```python
    >>> pass_rate("3/8"), pass_rate(0.625), pass_rate("hard"), pass_rate(5)
    (0.375, 0.625, None, None)

    ```
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        share = float(Fraction(value)) if isinstance(value, str) else float(value)
    except (ValueError, OverflowError, ZeroDivisionError):
        return None
    return share if 0 <= share <= 1 else None


# LaTeX's shorthand

_COMMAND = re.compile(r"\\(?:([dtc]?frac)|(sqrt))(?![a-zA-Z])")
_TOKEN = re.compile(r"\\[a-zA-Z]+|[0-9a-zA-Z]")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_ROOT_INDEX = re.compile(r"\s*\[[^\[\]]*\]")


def braced(text: str) -> str:
    r"""LaTeX with braces around each argument of `\frac` and `\sqrt`, as TeX reads it, and `\frac` for `\dfrac`.

    Args:
        text (`str`): LaTeX. What is no complete command, and digits of which it is open how many belong to it, stay.

    Example:

    ```python
    >>> braced(r"\dfrac{\sqrt6}2 + \frac9{19}"), braced(r"\sqrt13")
    ('\\frac{\\sqrt{6}}{2} + \\frac{9}{19}', '\\sqrt13')

    ```
    """
    if "\\sqrt" not in text and "frac" not in text:
        return text
    done: list[str] = []
    position = 0
    while (match := _COMMAND.search(text, position)) is not None:
        done.append(text[position : match.start()])
        expanded = _expanded(text, match)
        position = match.end() if expanded is None else expanded[1]
        done.append(match.group() if expanded is None else expanded[0])
    return "".join(done) + text[position:]


def _expanded(text: str, command: re.Match[str]) -> tuple[str, int] | None:
    """The command with its arguments in braces, and where it ends."""
    if command[2]:
        index = _ROOT_INDEX.match(text, command.end())
        radicand = _argument(text, index.end() if index else command.end(), last=True)
        if radicand is None:
            return None
        return rf"\sqrt{index.group().strip() if index else ''}{{{braced(radicand[0])}}}", radicand[1]
    top = _argument(text, command.end())
    bottom = None if top is None else _argument(text, top[1], last=True)
    if top is None or bottom is None:
        return None
    return rf"\frac{{{braced(top[0])}}}{{{braced(bottom[0])}}}", bottom[1]


def _argument(text: str, start: int, *, last: bool = False) -> tuple[str, int] | None:
    """What TeX takes as the argument at `start`, and where it ends: a group, a command, or one character."""
    while start < len(text) and text[start].isspace():
        start += 1
    if text.startswith("{", start):
        end = _group_end(text, start)
        # not expanded yet: without a second argument the group is read again
        return None if end is None else (text[start + 1 : end - 1].strip(), end)
    token = _TOKEN.match(text, start)
    if token is None or token.group() in _TAKES_ARGUMENT:
        return None
    if last and token.group().isdigit() and text[token.end() : token.end() + 1].isdigit():
        return None  # \sqrt13 is 13 under a root to whoever wrote it, and 3 times 1 to TeX
    return token.group(), token.end()


_TAKES_ARGUMENT = frozenset(r"\frac \dfrac \tfrac \cfrac \sqrt \text \mathrm \left \right".split())


def _group_end(text: str, start: int) -> int | None:
    depth = 0
    for match in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if not depth:
            return match.end()
    return None


def _trimmed(text: str) -> str:
    """The text without the punctuation that ends a sentence, a row or a line of LaTeX."""
    if text.endswith((r"\right.", "..")):
        return text  # the delimiter that is not drawn, and what goes on
    text = text.rstrip(",; \\")
    return text[:-1].rstrip(",; \\") if text.endswith(".") else text


def _power_of_ten(match: re.Match[str]) -> str:
    return rf"{match[1]} \times 10^{{{int(match[2])}}}"


def _joined(match: re.Match[str]) -> str:
    return match.group().replace(match[1], "")


# words

_PHRASE = re.compile(r"[A-Z]?[a-z]+(?:[ '-][A-Z]?[a-z]+)*")
_WORD = re.compile(r"[A-Z]?[a-z]*[aeiouy][a-z]*")
# maths that is spelled out, and words that the rewards read as more than words
_SPELLED = frozenset(
    "infinity infty sqrt alpha beta gamma delta epsilon theta lambda sigma omega real complex integers and or "
    "arcsin arccos arctan sinh cosh tanh binom choose mod euler".split()
)
_FUNCTION = re.compile(r"(?:arc)?(?:sin|cos|tan|cot|sec|csc|log|ln|exp|max|min|gcd|lcm|det|sqrt|pi)[a-z]?")
_SHORT_WORDS = frozenset("yes no odd red two one six ten tie win day".split())


def _is_words(text: str) -> bool:
    """Whether a text is one or more words of a language and no product of variables."""
    if _PHRASE.fullmatch(text) is None:
        return False
    tokens = re.split(r"[ '-]", text)
    if any(token.lower() in _SPELLED or _FUNCTION.fullmatch(token.lower()) for token in tokens):
        return False
    return any(map(_is_word, tokens)) and all(len(token) > 1 or token in "aAI" for token in tokens)


def _is_word(token: str) -> bool:
    if len(token) < 4 and not (len(token) == 3 and token[0].isupper()):
        return token.lower() in _SHORT_WORDS
    # abcd and bdef are products; a word whose letters stand in the order of the alphabet loses nothing by that
    return _WORD.fullmatch(token) is not None and list(token.lower()) != sorted(set(token.lower()))
