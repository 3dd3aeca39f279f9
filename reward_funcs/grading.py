r"""Rewards for correct answers: the two-tier grader of mathematics, and numbers.

An answer is read out of the visible part of a completion, refused where it leaves the work to the grader, and compared
with the gold: first in process and without sympy ([`reward_funcs.maths`], microseconds), and what that leaves undecided
with math-verify in worker processes that can be killed ([`reward_funcs.pool`]).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

from reward_funcs._applications import with_symbols
from reward_funcs._gold_faults import gold_faults
from reward_funcs.base import Batch, Grade, Reward, check_flag, check_name, check_setting
from reward_funcs.expressions import Node
from reward_funcs.extract import (
    THINK_CLOSE,
    after_think,
    answer_tag,
    boxed_run,
    final_answer,
    last_number,
    several_answer_tags,
)
from reward_funcs.forms import number, number_tree
from reward_funcs.gold import gold_texts
from reward_funcs.latex import plain, typeset
from reward_funcs.maths import REL_TOL, compare, same
from reward_funcs.refusals import (
    evaluated_part,
    form_fault,
    is_passed_over,
    is_solved_by,
    is_too_complex,
    is_unevaluated,
)

MAX_ANSWER = 1000
EXTRACTIONS = ("auto", "last_boxed", "answer_tag", "final_answer", "last_number", "regex")
MIN_TIMEOUT = 0.01
SHOWN = 200  # characters of an answer that TRL's table of completions gets


# reasons of a 0.0 that say that the gold was read
_GOLD_WAS_READ = frozenset(("wrong", "timeout", "memory", "recursion", "crash", "error"))
_RELATION = re.compile(r"(?<![<>!])=|<=?|>=?|\\(?:le|ge|lt|gt|leq|geq)(?:slant)?(?![a-zA-Z])")


class Answer(NamedTuple):
    """What was read out of a completion, or the reason why there is nothing to compare.

    Several texts are boxes that stand together. `hedged` boxes are joined by or, and, or a comma; of others the last
    one counts where the gold has not as many parts.
    """

    texts: tuple[str, ...]
    reason: str = ""
    hedged: bool = False


class _AnswerReward(Reward):
    """A reward that reads one answer out of each completion and compares it with the gold."""

    def __init__(
        self,
        *,
        extraction: str,
        pattern: str | None,
        read_think: bool,
        think_prefilled: bool,
        allow_alternatives: bool,
        rel_tol: float,
        solution_column: str,
        name: str | None,
    ) -> None:
        super().__init__(name=name)
        if extraction not in self.extractions:
            raise ValueError(f"extraction={extraction!r} is none of {', '.join(self.extractions)}")
        if (extraction == "regex") != (pattern is not None):
            raise ValueError(
                'pattern= belongs to extraction="regex" and is needed there, for instance pattern=r"A: (.*)"'
            )
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"pattern={pattern!r} is no regular expression: {error}") from error
        check_setting("rel_tol", rel_tol, 0, below=1)
        check_flag("read_think", read_think)
        check_flag("think_prefilled", think_prefilled)
        check_flag("allow_alternatives", allow_alternatives)
        check_name("solution_column", solution_column)
        self.extraction = extraction
        self.pattern = pattern
        self.read_think = read_think
        self.think_prefilled = think_prefilled
        self.allow_alternatives = allow_alternatives
        self.rel_tol = rel_tol
        self.solution_column = solution_column

    extractions: ClassVar[tuple[str, ...]] = EXTRACTIONS

    def _key(self) -> tuple[Any, ...]:
        """Equal for rewards that grade alike, so that the parts of a composition grade once."""
        return (type(self), *((key, value) for key, value in sorted(vars(self).items()) if key != "__name__"))

    def answers(self, batch: Batch) -> list[Answer]:
        """What each completion answers."""
        key = ("answer", self.extraction, self.pattern, self.read_think, self.think_prefilled, self.allow_alternatives)
        return batch.each_text(key, self.answer)

    def answer(self, text: str) -> Answer:
        """What one text answers, before it is compared with anything."""
        unclosed = self.think_prefilled and THINK_CLOSE not in text
        visible = text if self.read_think else "" if unclosed else after_think(text)
        found = self._extracted(visible)
        if found.texts or found.reason:
            return found
        if visible != text and self._extracted(text).texts:
            return Answer((), "answer_in_think")
        return Answer((), "no_answer")

    def _extracted(self, text: str) -> Answer:
        if self.extraction in _EXTRACT:
            return _one(_EXTRACT[self.extraction](text))
        if self.extraction == "answer_tag":
            return self._tagged(text)
        if self.extraction == "regex":
            assert self.pattern is not None
            matches = re.findall(self.pattern, text)
            last = matches[-1] if matches else None
            return _one(last if isinstance(last, str) or last is None else next(filter(None, last), None))
        if several_answer_tags(text) and not self.allow_alternatives:
            return Answer((), "several_answer_tags")
        boxes, joined = boxed_run(text)
        if boxes or self.extraction == "last_boxed":
            return Answer(tuple(dict.fromkeys(map(plain, boxes))), hedged=joined)
        tagged = self._tagged(text)
        if tagged.texts or tagged.reason:
            return tagged
        stated = _one(final_answer(text, delimited=self.extraction == "auto"))
        if stated.texts or self.extraction == "auto":
            return stated
        return _one(last_number(text))

    def _tagged(self, text: str) -> Answer:
        if several_answer_tags(text):
            if not self.allow_alternatives:
                return Answer((), "several_answer_tags")
            text = "<answer>" + text.rpartition("<answer>")[2]
        return _one(answer_tag(text))


def _one(text: str | None) -> Answer:
    return Answer((plain(text),)) if text is not None else Answer(())


_EXTRACT: dict[str, Callable[[str], str | None]] = {"final_answer": final_answer, "last_number": last_number}


class AccuracyReward(_AnswerReward):
    r"""1.0 where the answer is mathematically equal to the gold, 0.0 where it is not.

    The answer is what stands after the last `</think>`: in the last closed `\boxed{}`, else in the single `<answer>`
    tag, else behind `Answer:` or "final answer is" between `$...$`. It is refused (0.0) where it leaves the work to the
    grader: several alternatives, an unsolved equation or inequality for a solved gold, a chain `4 = 5` whose parts
    disagree, a sum, product, integral, limit, gcd or lcm for a number. `<name>/reason` in TRL's table says which.

    Exact numbers are compared exactly. `rel_tol` applies where one of the two is a rounded decimal. Solutions in a list
    are compared as a set: their order is no matter, nor how often one stands there (`-2` answers `-2, -2`). In a
    relation such as `f(8) > 2 f(0)` an application is one thing, which only the same application equals.

    A gold is bare LaTeX, `$...$`, `\boxed{}`, a full solution that ends in a box or in `#### 42`, a number, or a list
    of golds. A gold that nothing can be compared with gives `None` (`bad_gold`).

    Args:
        extraction (`str`, *optional*, defaults to `"auto"`): `"auto"` as above, or only `"last_boxed"`, `"answer_tag"`,
            `"final_answer"` (also without `$`), `"last_number"` or `"regex"`.
        pattern (`str`, *optional*): of `extraction="regex"`; the last match counts, of it the first group.
        rel_tol (`float`, *optional*, defaults to `1e-6`): relative tolerance for decimals.
        allow_unevaluated (`bool`, *optional*, defaults to `False`): take sums, products, integrals, limits, gcd, lcm
            (reason `unevaluated`).
        allow_unsolved (`bool`, *optional*, defaults to `False`): take an equation that the gold solves (reason
            `unsolved`), and what stands last in a chain that disagrees (reason `inconsistent`).
        allow_alternatives (`bool`, *optional*, defaults to `False`): take one right alternative among several boxes or
            joined by "or", and the last of several `<answer>` tags (reasons `several_answers`, `several_answer_tags`).
        read_think (`bool`, *optional*, defaults to `False`): read the reasoning too (reason `answer_in_think`).
        think_prefilled (`bool`, *optional*, defaults to `False`): whether the chat template opens the think block, so
            that a completion without `</think>` is all reasoning.
        multiple_answers (`str`, *optional*, defaults to `"any"`): whether `"any"` or `"all"` of a list of golds are
            wanted.
        skip_prefilters (`bool`, *optional*, defaults to `False`): ask math-verify also about what its text alone
            refuses: towers, huge factorials, deep nesting (reason `too_complex`), and text of which math-verify may
            read only a part (reason `unparsed_answer`).
        max_answer_length (`int`, *optional*, defaults to 1000): characters of an answer; longer ones are wrong
            (reason `too_long`) unless they equal the gold.
        solution_column (`str`, *optional*, defaults to `"solution"`): column of the golds.
        timeout (`float`, *optional*, defaults to 2.0): seconds that math-verify gets for one answer.
        num_workers (`int`, *optional*, defaults to 2): worker processes, started when first needed and shared by all
            rewards of a process with the same setting.
        name (`str`, *optional*): name in TRL's logs.

    Example:

    ```python
    >>> reward = AccuracyReward()
    >>> reward([r"so \boxed{\frac{1}{2}}", r"\boxed{2/4 = 1}", "it is 0.5"], solution=["0.5", "0.5", "0.5"])
    [1.0, 0.0, 0.0]

    ```
    """

    default_name = "accuracy_reward"

    def __init__(
        self,
        *,
        extraction: str = "auto",
        pattern: str | None = None,
        rel_tol: float = REL_TOL,
        allow_unevaluated: bool = False,
        allow_unsolved: bool = False,
        allow_alternatives: bool = False,
        read_think: bool = False,
        think_prefilled: bool = False,
        multiple_answers: str = "any",
        max_answer_length: int = MAX_ANSWER,
        skip_prefilters: bool = False,
        solution_column: str = "solution",
        timeout: float = 2.0,
        num_workers: int = 2,
        name: str | None = None,
    ) -> None:
        super().__init__(
            extraction=extraction,
            pattern=pattern,
            read_think=read_think,
            think_prefilled=think_prefilled,
            allow_alternatives=allow_alternatives,
            rel_tol=rel_tol,
            solution_column=solution_column,
            name=name,
        )
        if multiple_answers not in ("any", "all"):
            raise ValueError(f'multiple_answers={multiple_answers!r} must be "any" or "all"')
        check_flag("allow_unevaluated", allow_unevaluated)
        check_flag("allow_unsolved", allow_unsolved)
        check_flag("skip_prefilters", skip_prefilters)
        check_setting("timeout", timeout, MIN_TIMEOUT)
        check_setting("num_workers", num_workers, 1, whole=True)
        check_setting("max_answer_length", max_answer_length, 1, whole=True)
        self.allow_unevaluated = allow_unevaluated
        self.allow_unsolved = allow_unsolved
        self.skip_prefilters = skip_prefilters
        self.multiple_answers = multiple_answers
        self.max_answer_length = max_answer_length
        self.timeout = timeout
        self.num_workers = num_workers

    def grade(self, batch: Batch) -> list[Grade]:
        """Correctness of each completion, with the answer that was read."""
        return batch.memo(self._key(), lambda: self._grades(batch))

    def _grades(self, batch: Batch) -> list[Grade]:
        golds = batch.column(self.solution_column, needed_by=self.__name__, argument="solution_column")
        pairs = [(self._golds(gold), answer) for gold, answer in zip(golds, self.answers(batch), strict=True)]
        verdicts: dict[tuple[str, str], Verdict] = {}
        for texts, answer in pairs:
            for pair in self._comparisons(texts, answer):
                if pair not in verdicts:
                    verdicts[pair] = self.settle(*pair)
        self._ask_workers(verdicts)
        grades = [self._graded(texts, answer, verdicts) for texts, answer in pairs]
        return self._without_bad_golds([texts for texts, _ in pairs], grades)

    def _without_bad_golds(self, golds: list[tuple[str, ...]], grades: list[Grade]) -> list[Grade]:
        """The grades, `None` in the place of 0.0 where a gold was not looked at that cannot be read."""
        blamed = [grade.reward == 0.0 and grade.reason not in _GOLD_WAS_READ for grade in grades]
        asked = [text for texts, is_blamed in zip(golds, blamed, strict=True) if is_blamed for text in texts]
        faults = gold_faults(asked, self._compared) if asked else {}
        if not faults:
            return grades
        return [
            grade._replace(reward=None, reason=found[0])
            if is_blamed and (found := [faults[text] for text in texts if text in faults])
            else grade
            for grade, texts, is_blamed in zip(grades, golds, blamed, strict=True)
        ]

    def _golds(self, gold: Any) -> tuple[str, ...]:
        texts = gold_texts(gold)
        return (", ".join(texts),) if self.multiple_answers == "all" and len(texts) > 1 else texts

    def _comparisons(self, golds: tuple[str, ...], answer: Answer) -> list[tuple[str, str]]:
        """Pairs of gold and answer, any of which makes the completion right."""
        if not golds or not answer.texts:
            return []
        if len(answer.texts) == 1:
            answers = _alternatives(answer.texts[0]) if self.allow_alternatives else answer.texts
        else:
            together = ", ".join(answer.texts)
            if self.allow_alternatives:
                answers = (*answer.texts, together)
            else:
                answers = (together,) if answer.hedged else (together, answer.texts[-1])
        return [(gold, text) for gold in golds for text in answers]

    def _graded(self, golds: tuple[str, ...], answer: Answer, verdicts: dict[tuple[str, str], Verdict]) -> Grade:
        shown = ", ".join(answer.texts)[:SHOWN] if answer.texts else None
        if not golds:
            return Grade(None, "bad_gold", shown)
        if not answer.texts:
            return Grade(0.0, answer.reason)
        found = [verdicts[pair] for pair in self._comparisons(golds, answer)]
        for wanted in (True, None, False):
            for equal, reason in found:
                if equal is wanted:
                    reward = None if equal is None else float(equal)
                    several = reason == "wrong" and answer.hedged and len(answer.texts) > 1
                    return Grade(reward, "several_answers" if several else reason, shown)
        raise AssertionError(found)

    def settle(self, gold: str, answer: str) -> Verdict:
        """The verdict of tier 0: refusals, and what can be compared in process; `reason` "" asks for the workers.

        Args:
            gold (`str`): a gold as [`reward_funcs.gold.gold_texts`] gives it.
            answer (`str`): an answer as [`reward_funcs.latex.plain`] gives it.
        """
        if not answer:
            return Verdict(False, "empty_answer")
        if gold == answer:
            return Verdict(True, "correct")
        if len(answer) > self.max_answer_length:
            return Verdict(False, "too_long")
        gold, answer = with_symbols(gold, evaluated_part(gold, answer))
        # by its text alone, so that what may be slow never reaches anything that computes
        if not self.allow_unevaluated and is_unevaluated(gold, answer):
            return Verdict(False, "unevaluated")
        equal = same(gold, answer, rel_tol=self.rel_tol)
        if equal:
            return Verdict(True, "correct")
        form = form_fault(gold, answer)
        if form in ("unsolved", "inconsistent") and self.allow_unsolved:
            if is_solved_by(gold, answer):
                return Verdict(True, "correct")
            last = _RELATION.split(answer)[-1].strip()
            return self.settle(gold, last) if last != answer else Verdict(None, "")
        if equal is None and not form and self.skip_prefilters:
            return Verdict(None, "")
        if equal is None and not form and is_too_complex(answer):
            return Verdict(False, "too_complex")
        if equal is None and not form and is_passed_over(gold, answer):
            return Verdict(False, "unparsed_answer")
        if equal is None and not form:
            return Verdict(None, "")
        return Verdict(False, form or "wrong")

    def _ask_workers(self, verdicts: dict[tuple[str, str], Verdict]) -> None:
        """Replace the undecided verdicts by those of the workers."""
        undecided = [pair for pair, verdict in verdicts.items() if not verdict.reason]
        if not undecided:
            return
        for pair, (equal, reason) in zip(undecided, self._compared(undecided), strict=True):
            verdicts[pair] = Verdict(equal, {"equal": "correct", "different": "wrong"}.get(reason, reason))

    def _compared(self, pairs: list[tuple[str, str]]) -> list[tuple[bool | None, str]]:
        """What math-verify says of golds and answers, in workers that are started where none are there."""
        from reward_funcs.pool import Task, shared_pool

        pool = shared_pool(num_workers=self.num_workers, timeout=self.timeout)
        asked = [with_symbols(gold, answer) for gold, answer in pairs]
        tasks = [Task(typeset(gold), typeset(answer), rel_tol=self.rel_tol) for gold, answer in asked]
        return [*pool.compare(tasks)]

    def ideal(self, gold: Any) -> str | None:
        """A completion with the gold in a box."""
        texts = self._golds(gold)
        if self.extraction == "regex" or not texts:
            return None
        text = texts[0]
        return {
            "answer_tag": f"<answer>{text}</answer>",
            "final_answer": f"The final answer is ${text}$.",
            "last_number": f"The result is {text}",
        }.get(self.extraction, rf"\boxed{{{text}}}")

    def close(self) -> None:
        """Stop the worker processes; the next call that needs them starts them again."""
        from reward_funcs.pool import shared_pool

        shared_pool(num_workers=self.num_workers, timeout=self.timeout).close()


class Verdict(NamedTuple):
    """Whether an answer equals a gold, `None` where nobody can say, and why."""

    equal: bool | None
    reason: str


_ALTERNATIVES = re.compile(r"(?:\\text\{)?\s*\bor\b\s*\}?|(?<![0-9]),|,(?![0-9]{3})")


def _alternatives(answer: str) -> tuple[str, ...]:
    parts = [part.strip() for part in _ALTERNATIVES.split(answer) if part.strip()]
    return tuple(dict.fromkeys((answer, *parts)))


class NumericReward(_AnswerReward):
    r"""1.0 where the number that a completion ends with equals the gold, 0.0 where it does not.

    For data such as GSM8K whose golds are plain numbers. Nothing but numbers is read: no workers, no algebra. The
    answer is what [`AccuracyReward`] would read, else the last number of the visible text.

    Args:
        extraction (`str`, *optional*, defaults to `"number"`): `"number"` as above, or one of [`AccuracyReward`].
        pattern (`str`, *optional*): of `extraction="regex"`.
        rel_tol (`float`, *optional*, defaults to `1e-6`): relative tolerance where one of the two is a decimal.
        abs_tol (`float`, *optional*, defaults to 0.0): absolute tolerance, of any two numbers.
        think_prefilled (`bool`, *optional*, defaults to `False`): as of [`AccuracyReward`].
        solution_column (`str`, *optional*, defaults to `"solution"`): column of the golds; a gold that is no number
            gives `None` (`bad_gold`).
        name (`str`, *optional*): name in TRL's logs.

    Example:

    ```python
    >>> NumericReward()(["He pays $1,234.50.", "5/8 of it", "none"], solution=["1234.5", 0.625, 3])
    [1.0, 1.0, 0.0]

    ```
    """

    default_name = "numeric_reward"
    extractions = ("number", *EXTRACTIONS)

    def __init__(
        self,
        *,
        extraction: str = "number",
        pattern: str | None = None,
        rel_tol: float = REL_TOL,
        abs_tol: float = 0.0,
        think_prefilled: bool = False,
        solution_column: str = "solution",
        name: str | None = None,
    ) -> None:
        super().__init__(
            extraction=extraction,
            pattern=pattern,
            read_think=False,
            think_prefilled=think_prefilled,
            allow_alternatives=False,
            rel_tol=rel_tol,
            solution_column=solution_column,
            name=name,
        )
        check_setting("abs_tol", abs_tol, 0)
        self.abs_tol = abs_tol

    def grade(self, batch: Batch) -> list[Grade]:
        """Whether each completion's number is the gold's."""
        golds = batch.column(self.solution_column, needed_by=self.__name__, argument="solution_column")
        return [self._graded(gold, answer) for gold, answer in zip(golds, self.answers(batch), strict=True)]

    def _graded(self, gold: Any, answer: Answer) -> Grade:
        golds = [tree for text in gold_texts(gold) if (tree := number_tree(text)) is not None]
        shown = ", ".join(answer.texts)[:SHOWN] if answer.texts else None
        if not golds:
            return Grade(None, "bad_gold", shown)
        if not answer.texts:
            return Grade(0.0, answer.reason)
        if len(answer.texts) > 1:
            return Grade(0.0, "several_answers", shown)
        tree = number_tree(answer.texts[0])
        if tree is None:
            return Grade(0.0, "no_number", shown)
        right = any(self._equal(one, tree) for one in golds)
        return Grade(float(right), "correct" if right else "wrong", shown)

    def _equal(self, gold: Node, answer: Node) -> bool:
        if compare(gold, answer, self.rel_tol):
            return True
        if not self.abs_tol:
            return False
        one, other = number(gold), number(answer)
        if one is None or other is None:
            return False
        return abs(Fraction(one) - Fraction(other)) <= Fraction(str(self.abs_tol))


accuracy_reward = AccuracyReward()
numeric_reward = NumericReward()
