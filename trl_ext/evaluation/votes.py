r"""Majority votes over answers that say the same: cons@k, and its parts for those who grade on their own.

Which answers are one answer is decided as the project's grader decides it, so that `1/2`, `0.5` and `\frac{1}{2}` vote
together. A sample that states no answer (`None`, or blank) is drawn like any other and never wins.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import chain, combinations, product
from time import monotonic
from typing import Any

import numpy as np

from reward_funcs.base import Batch, Grade
from reward_funcs.choice import ChoiceReward
from reward_funcs.grading import AccuracyReward, Answer
from reward_funcs.latex import plain
from trl_ext.evaluation.estimators import Verdict, check_k

MAX_PAIRS = 500  # comparisons that one call hands to math-verify; 16 answers have at most 120
CHUNK = 4  # comparisons that the workers get at a time, so that the clock is looked at in between
SECONDS = 5.0  # of a call in process, and as many again for its workers; what is left then counts as different
EXACT_LIMIT = 4096  # n * k up to which a vote of k is computed and not sampled
# words that are no maths: math-verify takes seconds over a sentence, as a product of its letters
_WORD = re.compile(
    r"(?<![\\a-zA-Z])(?!(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?\b|[pbvBV]?matrix\b"
    r"|(?:array|cases|log|exp|sqrt|frac|alpha|beta|gamma|theta|lambda)\b)"
    r"[a-zA-Z]{3,}"
)
# numbers in plain figures; so many digits that they are told apart by value and no further
_PLAIN_NUMBER = re.compile(
    r"(?P<sign>-?)(?:(?P<whole>[0-9]{1,40})(?P<places>\.[0-9]{1,40})?|(?P<top>[0-9]{1,40})/(?P<bottom>[0-9]{1,40})"
    r"|\\[dt]?frac\{(?P<over>[0-9]{1,40})\}\{(?P<under>[0-9]{1,40})\})"
)
_NEAR = Fraction(1, 10**5)  # relative distance; the grader's tolerance for decimals is a tenth of it


class _StatedAnswer(AccuracyReward):
    """The grader of mathematics for what is an answer already, and not a completion that has one in it."""

    def answer(self, text: str) -> Answer:
        return Answer((plain(text),))


_maths = _StatedAnswer()
_choice = ChoiceReward()


def cons_at_k(answers: Sequence[str | None], gold: Any, *, task: str = "math") -> float:
    r"""Share of correctness of the answer that most of the k samples of a problem state: cons@k, or maj@k.

    Ties are split: with c of t equally frequent answers correct it is c / t. `None` and blank answers never win,
    however many there are; a truncated sample has the answer that it closed in time, else `None`.

    Args:
        answers: (k) final answer of each sample, as [`group_answers`] takes them.
        gold: the right answer, or a list of them, as the grader of the task takes it.
        task: `"math"`, `"choice"`, or any other for texts that must be equal.

    Returns:
        A float from 0 to 1; 0.0 where all answers are `None`.

    Raises:
        ValueError: there are no answers, or no answer can be compared with the gold.

    Source:
        Wang et al. 2022, "Self-Consistency Improves Chain of Thought Reasoning" (arXiv 2203.11171). Differs: answers
        are compared by value and not as text, and ties are split instead of drawn.

    Example:
        >>> cons_at_k([r"\frac{1}{2}", "0.5", "2", "2", "1/2"], "0.5")
        1.0
        >>> cons_at_k(["3", "4", None, None], "3"), cons_at_k([None, None], "3")
        (0.5, 0.0)
    """
    answers = _checked(answers)
    if not answers:
        raise ValueError("answers is empty; pass the final answer of each sample, None where it states none")
    return vote_score(group_answers(answers, task=task), _correctness(answers, gold, task))


def _correctness(answers: list[str | None], gold: Any, task: str) -> list[Verdict]:
    """How correct each answer is; blank ones are wrong, and `None` is what the grader cannot decide."""
    texts = list(dict.fromkeys(answer for answer in answers if answer is not None))
    if task == "math":
        grades = _maths.grade(Batch(texts, {"solution": [gold] * len(texts)}))
    elif task == "choice":
        grades = _choice.grade(Batch([_boxed(text) for text in texts], {"solution": [gold] * len(texts)}))
    else:
        golds = {str(one).strip() for one in (gold if isinstance(gold, (list, tuple)) else [gold])}
        grades = [Grade(float(text.strip() in golds)) for text in texts]
    if any(grade.reason == "bad_gold" for grade in grades):
        raise ValueError(f'gold is {gold!r:.100}, with which no answer of task="{task}" can be compared; pass its text')
    verdicts: dict[str | None, Verdict] = {text: grade.reward for text, grade in zip(texts, grades, strict=True)}
    verdicts[None] = 0.0
    return [verdicts[answer] for answer in answers]


def group_answers(answers: Sequence[str | None], *, task: str = "math") -> list[int | None]:
    r"""Number of the class of answers that each sample belongs to, counted in order of first appearance.

    Answers of one class say the same. For mathematics: equal as text, else equal in process, else equal for math-verify
    in its worker processes, which get at most 500 of the pairs that are left, and none whose words differ. Whatever
    says the same as a third answer is of its class too, so that the classes do not depend on the order; 50, 50% and 0.5
    are therefore one class, and 50 and 0.5 alone are two. An answer that leaves its work to the grader (an unevaluated
    sum, "1 or 2") is not of the class of what comes out, and one that the grader finds too long is compared as text.

    A call compares for about 5 seconds in process and 5 more in the workers, their start not counted; pairs that are
    left then count as different. Plain numbers are told apart by their values first, so that a thousand of them take
    milliseconds; only many answers that keep math-verify busy for long (integrals, trigonometric equations) get there.

    Args:
        answers: (n) final answers; `None` or blank where a sample states none.
        task: `"math"`; `"choice"`, where the letters decide; with any other the texts must be equal but for space
            around them.

    Returns:
        n class numbers, `None` for a sample without an answer.

    Raises:
        ValueError: `answers` is one text, or holds something that is neither a text nor `None`.

    Example:
        >>> group_answers(["1/2", "3", r"\frac{1}{2}", None, "0.5"])
        [0, 1, 0, None, 0]
        >>> group_answers(["(B)", "C", "B."], task="choice")
        [0, 1, 0]
    """
    forms = _forms(_checked(answers), task)
    distinct = list(dict.fromkeys(form for form in forms if form is not None))
    class_of = _equivalence(distinct) if task == "math" else {form: form for form in distinct}
    numbers: dict[str, int] = {}
    return [None if form is None else numbers.setdefault(class_of[form], len(numbers)) for form in forms]


def _checked(answers: Sequence[str | None]) -> list[str | None]:
    if isinstance(answers, str):
        raise ValueError(f"answers is the text {answers!r:.60}; it must be a list with one answer a sample")
    wrong = next((answer for answer in answers if answer is not None and not isinstance(answer, str)), None)
    if wrong is not None:
        raise ValueError(f"an answer is {wrong!r:.60} of type {type(wrong).__name__}; it must be a text or None")
    return [answer if answer is not None and answer.strip() else None for answer in answers]


def _forms(answers: list[str | None], task: str) -> list[str | None]:
    """The text by which each answer is known; what has none left (`$$`, an empty box) states nothing."""
    if task == "choice":
        texts = list(dict.fromkeys(answer for answer in answers if answer is not None))
        # what the reward reads in a box; the gold does not matter to that
        grades = _choice.grade(Batch([_boxed(text) for text in texts], {"solution": ["A"] * len(texts)}))
        letters = {text: grade.answer or text.strip() for text, grade in zip(texts, grades, strict=True)}
        return [None if answer is None else letters[answer] for answer in answers]
    form: Callable[[str], str] = plain if task == "math" else str.strip
    return [None if answer is None else form(answer) or None for answer in answers]


def _boxed(text: str) -> str:
    return f"\\boxed{{{text}}}"


def _equivalence(distinct: list[str]) -> dict[str, str]:
    """A representative of the class of each answer."""
    # the shorter one is the gold of a comparison, whichever came first
    ordered = sorted(distinct, key=lambda text: (len(text), text))
    parent = {text: text for text in ordered}

    def root(text: str) -> str:
        while parent[text] != text:
            text = parent[text]
        return text

    def join(gold: str, answer: str) -> None:
        parent[root(answer)] = root(gold)

    undecided = []
    deadline = monotonic() + SECONDS
    for gold, answer in _candidates(ordered):
        if monotonic() > deadline:
            break
        if root(gold) != root(answer):
            equal, reason = _maths.settle(gold, answer)
            if equal:
                join(gold, answer)
            elif not reason and _words(gold) == _words(answer):
                undecided.append((gold, answer))
    open_pairs = [(gold, answer) for gold, answer in undecided if root(gold) != root(answer)][:MAX_PAIRS]
    for gold, answer in _equal_for_workers(open_pairs):
        join(gold, answer)
    return {text: root(text) for text in distinct}


def _candidates(ordered: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs that may say the same, the shorter text first: all but plain numbers with different values."""
    numbers = {text: value for text in ordered if (value := _plain_value(text)) is not None}
    by_value = sorted(numbers, key=lambda text: numbers[text])
    place = {text: index for index, text in enumerate(ordered)}
    for index, one in enumerate(by_value):
        for other in by_value[index + 1 :]:
            low, high = numbers[one], numbers[other]
            if high - low > _NEAR * max(abs(low), abs(high)):
                break  # those that follow are further away
            if high == low or "." in one or "." in other:  # exact numbers are compared exactly
                yield (one, other) if place[one] < place[other] else (other, one)
    rest = [text for text in ordered if text not in numbers]
    for one, other in chain(combinations(rest, 2), product(numbers, rest)):
        yield (one, other) if place[one] < place[other] else (other, one)


def _plain_value(text: str) -> Fraction | None:
    """The value of an integer, a decimal or a fraction of integers; None for anything else."""
    found = _PLAIN_NUMBER.fullmatch(text)
    if found is None:
        return None
    below = int(found["bottom"] or found["under"] or 1)
    above = found["top"] or found["over"] or found["whole"] + (found["places"] or "")
    return None if below == 0 else Fraction(found["sign"] + above) / below


def _equal_for_workers(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Those of the pairs that math-verify finds equal in the time that a call has."""
    deadline = math.inf
    for start in range(0, len(pairs), CHUNK):
        if monotonic() > deadline:
            return
        chunk = pairs[start : start + CHUNK]
        golds, answers = zip(*chunk, strict=True)
        grades = _maths.grade(Batch(answers, {"solution": golds}))
        yield from (pair for pair, grade in zip(chunk, grades, strict=True) if grade.reward == 1.0)
        if start == 0:  # the workers are there now; how long they took to start is nobody's fault
            deadline = monotonic() + SECONDS


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text))


def vote_score(
    groups: Sequence[int | None],
    correct: Sequence[Verdict],
    *,
    k: int | None = None,
    seed: int = 0,
    num_subsets: int = 1000,
) -> float:
    """Correctness of the class of answers that wins the vote of k samples, in expectation over the k-subsets of n.

    The largest class wins, classes of equal size share it, and samples without an answer never win: where there are
    only such the score is 0. A class is as correct as its samples are on average. A sample without a verdict is left
    out before the vote.

    Args:
        groups: (n) class of each sample, as [`group_answers`] returns them.
        correct: (n) how correct each sample is.
        k: samples that vote, from 1 to the number of samples with a verdict; `None` lets all of them vote once.
        seed: of the subsets, where they are drawn.
        num_subsets: how many are drawn. That happens where n * k exceeds 4096; below, the expectation is exact and
            neither `seed` nor `num_subsets` has a part in it.

    Returns:
        A float; NaN where k is `None` and no sample has a verdict. The order of the samples does not change it.

    Raises:
        ValueError: the lengths differ, k is out of range, or `num_subsets` is less than 1.

    Example:
        >>> vote_score([0, 0, 1], [1.0, 1.0, 0.0]), vote_score([0, 1, None], [1.0, 0.0, 0.0])
        (1.0, 0.5)
        >>> round(vote_score([0, 0, 1], [1.0, 1.0, 0.0], k=2), 6)  # one of three pairs is unanimous, two are ties
        0.666667
    """
    if len(groups) != len(correct):
        raise ValueError(f"groups has {len(groups)} entries and correct has {len(correct)}; each sample needs both")
    if num_subsets < 1:
        raise ValueError(f"num_subsets is {num_subsets}; it must be at least 1")
    kept = [(g, float(c)) for g, c in zip(groups, correct, strict=True) if c is not None and not math.isnan(c)]
    if k is not None:
        k = check_k(k, len(kept))
    if not kept:
        return math.nan
    classes = _classes(kept)
    num_silent = len(kept) - sum(size for size, _ in classes)
    if not classes:
        return 0.0
    if k is None or k == len(kept):
        winners = [value for size, value in classes if size == classes[0][0]]
        return math.fsum(winners) / len(winners)
    if len(kept) * k <= EXACT_LIMIT:
        return _expected_vote(classes, num_silent, k)
    return _sampled_vote(classes, num_silent, k, seed, num_subsets)


def _classes(samples: list[tuple[int | None, float]]) -> list[tuple[int, float]]:
    """Size and mean correctness of each class, largest first, whatever order the samples came in."""
    sizes = Counter(group for group, _ in samples if group is not None)
    values = [math.fsum(c for g, c in samples if g == group) / size for group, size in sizes.items()]
    return sorted(zip(sizes.values(), values, strict=True), reverse=True)


def _expected_vote(classes: list[tuple[int, float]], num_silent: int, k: int) -> float:
    """The expectation over all k-subsets, by how many votes win.

    For each number of winning votes, `ways[s, t]` counts the subsets of s samples in which t classes have as many and
    no class has more, and `sums[s, t]` adds up the correctness of those t classes; both grow class by class.
    """
    n = sum(size for size, _ in classes) + num_silent
    total = 0.0
    for top in range(1, min(k, classes[0][0]) + 1):
        ways = np.zeros((k + 1, k // top + 1))
        ways[: num_silent + 1, 0] = [math.comb(num_silent, drawn) for drawn in range(min(num_silent, k) + 1)]
        sums = np.zeros_like(ways)
        for size, value in classes:
            old_ways, old_sums = ways, sums
            ways, sums = np.zeros_like(ways), np.zeros_like(sums)
            for drawn in range(min(top - 1, size) + 1):
                count = math.comb(size, drawn)
                ways[drawn:] += count * old_ways[: k + 1 - drawn]
                sums[drawn:] += count * old_sums[: k + 1 - drawn]
            if size >= top:
                before, count = k + 1 - top, math.comb(size, top)
                ways[top:, 1:] += count * old_ways[:before, :-1]
                sums[top:, 1:] += count * (old_sums[:before, :-1] + value * old_ways[:before, :-1])
        total += float((sums[k, 1:] / np.arange(1, sums.shape[1])).sum())
    return min(total / math.comb(n, k), max(value for _, value in classes))  # rounding may exceed it by a hair


def _sampled_vote(classes: list[tuple[int, float]], num_silent: int, k: int, seed: int, num_subsets: int) -> float:
    sizes = [size for size, _ in classes]
    values = np.array([value for _, value in classes])
    random = np.random.default_rng(seed)
    draws = random.multivariate_hypergeometric([*sizes, num_silent], k, size=num_subsets)[:, :-1]
    wins = (draws == draws.max(axis=1, keepdims=True)) & (draws > 0)
    return float(((wins * values).sum(axis=1) / np.maximum(wins.sum(axis=1), 1)).mean())
