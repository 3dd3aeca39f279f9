"""The countdown game: an arithmetic expression that uses the given numbers and reaches the target."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from math import isfinite
from typing import Any, NamedTuple

from reward_funcs.base import Batch, Grade, Reward, check_flag, check_name, check_setting, plain
from reward_funcs.extract import after_think, answer_tag, boxed_run, final_answer, several_answer_tags
from reward_funcs.text import unwrapped

MAX_LENGTH = 1000  # characters of an expression
MAX_DEPTH = 40  # brackets inside one another
MAX_SOLVED = 6  # numbers for which `ideal` searches


class Puzzle(NamedTuple):
    """A target and the numbers to reach it with."""

    target: Fraction
    nums: tuple[Fraction, ...]


class NotAnExpression(ValueError):
    """The text is no arithmetic expression in the accepted notation."""


# fullwidth ASCII, and the signs that are written for + - * /
_WRITTEN = {"*": "×✕✖⨯·⋅∙∗", "/": "÷➗∕⁄", "-": "−–➖", "+": "➕"}
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_SIGNS = {0xFF01 + offset: chr(0x21 + offset) for offset in range(94)} | {
    ord(written): sign for sign, others in _WRITTEN.items() for written in others
}
_TOKEN = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<frac>\\[dt]?frac(?![A-Za-z]))|(?P<times>\\(?:times|cdot|ast)(?![A-Za-z])|[xX*])"
    r"|(?P<divided>\\div(?![A-Za-z])|/)|(?P<sign>[-+()\[\]{}])"
    r"|(?P<space>[\s$]+|\\(?:left|right|q?quad)(?![A-Za-z])|\\[ ,;:!])"
)
_GIVEN_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_STATED_VALUE = re.compile(r"-?[0-9]+(?:\.[0-9]+|/0*[1-9][0-9]*)?")


def _tokens(text: str) -> list[str]:
    found, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotAnExpression
        kind = match.lastgroup
        if kind != "space":
            found.append({"frac": "frac", "times": "*", "divided": "/"}.get(kind or "", match.group()))
        position = match.end()
    return found


class _Parser:
    """Recursive descent over `sum = product (+|- product)*`, `product = factor (*|/ factor)*`.

    A factor is a number, a bracket, a `frac` of two brackets, or a minus sign and a factor.
    """

    def __init__(self, text: str) -> None:
        self.tokens = [*_tokens(text), ""]
        self.position = 0
        self.depth = 0
        self.numbers: list[str] = []

    def value(self) -> Fraction:
        value = self._sum()
        if self.tokens[self.position]:
            raise NotAnExpression
        return value

    def _next(self) -> str:
        token = self.tokens[self.position]
        self.position += bool(token)
        return token

    def _sum(self) -> Fraction:
        value = self._product()
        while self.tokens[self.position] in ("+", "-"):
            value = value + self._product() if self._next() == "+" else value - self._product()
        return value

    def _product(self) -> Fraction:
        value = self._factor()
        while self.tokens[self.position] in ("*", "/"):
            value = value * self._factor() if self._next() == "*" else value / self._factor()
        return value

    def _factor(self) -> Fraction:
        token = self._next()
        if token[:1].isdigit():
            if token != "0" and token[0] == "0" and not token.startswith("0."):
                raise NotAnExpression
            self.numbers.append(token)
            return Fraction(token)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotAnExpression
        if token == "-":
            value = -self._factor()
        elif token in _BRACKETS:
            value = self._closed(_BRACKETS[token])
        elif token == "frac":
            value = self._bracket() / self._bracket()
        else:
            raise NotAnExpression
        self.depth -= 1
        return value

    def _bracket(self) -> Fraction:
        opening = self._next()
        if opening not in _BRACKETS:
            raise NotAnExpression
        return self._closed(_BRACKETS[opening])

    def _closed(self, closing: str) -> Fraction:
        value = self._sum()
        if self._next() != closing:
            raise NotAnExpression
        return value


def parsed_expression(text: str) -> tuple[Fraction, list[str]]:
    r"""Exact value of an arithmetic expression, and the numbers in it as they are written.

    The operators are + - * / with the signs × ÷ · and x, LaTeX's `\times`, `\cdot`, `\div` and `\frac{a}{b}`, and the
    minus sign of a number or bracket. There are no powers, and no multiplication without a sign.

    Args:
        text (`str`): the expression, at most 1,000 characters and 40 brackets deep.

    Returns:
        `tuple[Fraction, list[str]]`: the value and the numbers.

    Raises:
        NotAnExpression: When the text is none.
        ZeroDivisionError: When it divides by zero.

    Example:

    ```python
    >>> parsed_expression(r"8 ÷ (3 - \frac{8}{3})")
    (Fraction(24, 1), ['8', '3', '8', '3'])

    ```
    """
    if len(text) > MAX_LENGTH:
        raise NotAnExpression
    parser = _Parser(text.translate(_SIGNS))
    return parser.value(), parser.numbers


class CountdownReward(Reward):
    r"""1.0 where the expression has the target's value and uses each given number once, else 0.0.

    The expression stands after the last `</think>` in the single `<answer>` tag, else in the last box, else behind
    "Answer:" or "answer is". It may end with `= 24`, or begin with `24 =`, where that is its value. Two `<answer>` tags
    score 0, and so do boxes joined by "or" that differ. Numbers are compared without their sign, since a minus is part
    of the arithmetic.

    Args:
        solution_column (`str`, *optional*, defaults to `"solution"`): column of the puzzles, each a mapping
            `{"target": 24, "nums": [4, 6, 1, 1]}` or its JSON text. The numbers may be texts, and their list too, as in
            a CSV file: `"[4, 6, 1, 1]"`.
        target_column (`str`, *optional*, defaults to `"target"`): column of the targets where there is no puzzle.
        nums_column (`str`, *optional*, defaults to `"nums"`): column of the lists of numbers where there is no puzzle.
        use_all (`bool`, *optional*, defaults to `True`): whether every number must be used; otherwise some may be
            left out, and none may be used more often than it is given.
        format_score (`float`, *optional*, defaults to 0.0): reward in [0, 1) of an expression with the right numbers
            and the wrong value.
        name (`str`, *optional*, defaults to `"countdown_reward"`): name in the logs.

    Raises:
        ValueError: When `format_score` is outside [0, 1), a column is no name, or `use_all` no `bool`.

    Source: the task of TinyZero (Pan et al., 2025), which evaluates the text in Python, compares floats within 1e-5 and
        gives 0.1 to wrong numbers and to a division by zero as well. Here the arithmetic is exact, the parser takes
        LaTeX, and only a wrong value gets `format_score`.

    Example:

    ```python
    >>> countdown_reward(["<answer>(5 - 1) * 6</answer>"], solution=['{"target": 24, "nums": [1, 5, 6]}'])
    [1.0]

    ```
    """

    default_name = "countdown_reward"

    def __init__(
        self,
        solution_column: str = "solution",
        *,
        target_column: str = "target",
        nums_column: str = "nums",
        use_all: bool = True,
        format_score: float = 0.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.solution_column = check_name("solution_column", solution_column)
        self.target_column = check_name("target_column", target_column)
        self.nums_column = check_name("nums_column", nums_column)
        self.use_all = check_flag("use_all", use_all)
        self.format_score = float(check_setting("format_score", format_score, 0, below=1))

    def grade(self, batch: Batch) -> list[Grade]:
        """One grade for each completion; the reason is `correct`, `wrong`, `wrong_numbers`, `false_equation`,
        `division_by_zero`, `not_an_expression`, `no_answer`, `several_answers` or `bad_gold`."""
        return [self._grade(text, gold) for text, gold in zip(batch.texts, self._golds(batch), strict=True)]

    def _golds(self, batch: Batch) -> list[Any]:
        targets, nums = batch.optional(self.target_column), batch.optional(self.nums_column)
        if targets is None or nums is None:
            return batch.column(self.solution_column, needed_by=self.__name__, argument="solution_column")
        golds = batch.optional(self.solution_column) or [None] * len(batch)
        # rows of a mixture may have either form
        return [
            {"target": target, "nums": given} if gold is None else gold
            for gold, target, given in zip(golds, targets, nums, strict=True)
        ]

    def _grade(self, text: str, gold: Any) -> Grade:
        puzzle = _puzzle(gold)
        if puzzle is None:
            return Grade(None, "bad_gold")
        text = after_think(text)
        if several_answer_tags(text):
            return Grade(0.0, "several_answers")
        tag = answer_tag(text)
        boxes = boxed_run(text if tag is None else tag).contents
        if len(set(boxes)) > 1:
            return Grade(0.0, "several_answers")
        answer = boxes[-1] if boxes else final_answer(text) if tag is None else tag
        if not answer:
            return Grade(0.0, "no_answer")
        if len(answer) > MAX_LENGTH:
            return Grade(0.0, "not_an_expression")
        reason = self._verdict(answer, puzzle)
        return Grade({"correct": 1.0, "wrong": self.format_score}.get(reason, 0.0), reason, answer)

    def _verdict(self, answer: str, puzzle: Puzzle) -> str:
        expression, equals, stated = unwrapped(answer.rstrip(" .")).translate(_SIGNS).partition("=")
        if (
            _STATED_VALUE.fullmatch(expression.strip(" $"))
            and not _STATED_VALUE.fullmatch(stated.strip(" $"))
            and equals
        ):
            expression, stated = stated, expression
        try:
            value, numbers = parsed_expression(expression)
        except NotAnExpression:
            return "not_an_expression"
        except ZeroDivisionError:
            return "division_by_zero"
        if equals:
            stated = stated.strip(" $")
            if _STATED_VALUE.fullmatch(stated) is None or Fraction(stated) != value:
                return "false_equation"
        given, used = Counter(map(abs, puzzle.nums)), Counter(map(Fraction, numbers))
        # 3.0 for 3 is another way to write numbers that the puzzle does not have
        decimals = any("." in number for number in numbers) and all(num.denominator == 1 for num in given)
        if decimals or not used <= given or (self.use_all and used != given):
            return "wrong_numbers"
        return "correct" if value == puzzle.target else "wrong"

    def ideal(self, gold: Any) -> str | None:
        """A solution of the puzzle as a completion; `None` where there is none, or for more than six numbers."""
        puzzle = _puzzle(gold)
        if puzzle is None or len(puzzle.nums) > MAX_SOLVED:
            return None
        expression = solution_of(puzzle, use_all=self.use_all)
        return None if expression is None else f"<answer>{expression}</answer>"


def _puzzle(gold: Any) -> Puzzle | None:
    """The puzzle that a gold states, `None` where it states none."""
    gold = plain(gold)
    if isinstance(gold, str):
        try:
            gold = json.loads(gold)
        except (ValueError, RecursionError):
            return None
    if not isinstance(gold, Mapping):
        return None
    nums: Any = gold.get("nums")
    if isinstance(nums, str):
        nums = [one for one in re.split(r"[][(),;\s\"']+", nums[:MAX_LENGTH]) if one]
    if not isinstance(nums, (list, tuple)) or not nums:
        return None
    numbers = [_number(value) for value in (gold.get("target"), *nums)]
    known = [number for number in numbers if number is not None]
    return Puzzle(known[0], tuple(known[1:])) if len(known) == len(numbers) else None


def _number(value: Any) -> Fraction | None:
    if isinstance(value, str):
        return Fraction(value.strip()) if _GIVEN_NUMBER.fullmatch(value.strip()[:MAX_LENGTH]) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    # 0.1 means one tenth and not the float next to it
    return Fraction(str(value)) if isinstance(value, float) and isfinite(value) else None


def solution_of(puzzle: Puzzle, *, use_all: bool = True) -> str | None:
    """An expression over the puzzle's numbers that has the target's value, `None` where there is none.

    The last operation splits the numbers in two parts; one part's values are listed, and the other part is asked for
    what is missing. The work grows about thirtyfold with each number.

    Args:
        puzzle (`Puzzle`): target and numbers, at most six for an answer within a second.
        use_all (`bool`, *optional*, defaults to `True`): whether every number must be used.

    Returns:
        `str | None`: the expression.

    Example:

    ```python
    >>> solution_of(Puzzle(Fraction(24), (Fraction(3), Fraction(3), Fraction(8), Fraction(8))))
    '8 / (3 - (8 / 3))'

    ```
    """
    search = _Search()
    nums = tuple(sorted(puzzle.nums))
    for size in range(len(nums) if use_all else 1, len(nums) + 1):
        for part in sorted(set(combinations(nums, size))):
            found = search.expression(part, puzzle.target)
            if found is not None:
                return found[1:-1] if found.startswith("(") and len(part) > 1 else found
    return None


class _Search:
    """Values that sorted tuples of numbers reach, each with one expression for it."""

    def __init__(self) -> None:
        self.reached: dict[tuple[Fraction, ...], dict[Fraction, str]] = {}

    def values(self, nums: tuple[Fraction, ...]) -> dict[Fraction, str]:
        """All values of the numbers with their expressions, all numbers used."""
        if nums not in self.reached:
            found = {nums[0]: _literal(nums[0])} if len(nums) == 1 else {}
            for left, right in _splits(nums):
                for a, written_a in self.values(left).items():
                    for b, written_b in self.values(right).items():
                        for value, written in _results(a, written_a, b, written_b):
                            found.setdefault(value, written)
            self.reached[nums] = found
        return self.reached[nums]

    def expression(self, nums: tuple[Fraction, ...], target: Fraction) -> str | None:
        """An expression of the numbers for the target; large parts are searched backwards from it."""
        if len(nums) <= 4:
            return self.values(nums).get(target)
        for left, right in _splits(nums):
            for a, written in self.values(left).items():
                if not a and not target:
                    return f"({written} * ({' + '.join(map(_literal, right))}))"
                for b, template in _missing(a, target):
                    other = self.expression(right, b)
                    if other is not None:
                        return template.format(written, other)
        return None


def _literal(num: Fraction) -> str:
    if num.denominator == 1:
        text = str(num)
    else:
        text = format(Decimal(num.numerator) / Decimal(num.denominator), "f")
    return f"({text})" if num < 0 else text


def _splits(nums: tuple[Fraction, ...]) -> list[tuple[tuple[Fraction, ...], tuple[Fraction, ...]]]:
    """The ways to part the numbers in two, the smaller part first, each once."""
    found: dict[tuple[tuple[Fraction, ...], tuple[Fraction, ...]], None] = {}
    for size in range(1, len(nums) // 2 + 1):
        for chosen in combinations(range(len(nums)), size):
            left = tuple(nums[index] for index in chosen)
            right = tuple(num for index, num in enumerate(nums) if index not in chosen)
            found[left, right] = None
    return list(found)


def _results(a: Fraction, x: str, b: Fraction, y: str) -> list[tuple[Fraction, str]]:
    """What two values make, with the expressions of it."""
    found = [(a + b, f"({x} + {y})"), (a - b, f"({x} - {y})"), (b - a, f"({y} - {x})"), (a * b, f"({x} * {y})")]
    if b:
        found.append((a / b, f"({x} / {y})"))
    if a:
        found.append((b / a, f"({y} / {x})"))
    return found


def _missing(a: Fraction, target: Fraction) -> list[tuple[Fraction, str]]:
    """The values that make the target with `a`, with the form of the expression."""
    found = [(target - a, "({0} + {1})"), (a - target, "({0} - {1})"), (target + a, "({1} - {0})")]
    if a:
        found += [(target / a, "({0} * {1})"), (target * a, "({1} / {0})")]
        if target:
            found.append((a / target, "({0} / {1})"))
    return found


countdown_reward = CountdownReward()
