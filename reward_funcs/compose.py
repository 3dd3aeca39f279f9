"""Rewards made of rewards: weighted sums, gates, products, minima and clipped rewards, each one picklable callable.

A part may be a [`Reward`], a plain function with TRL's signature, a `functools.partial` of one, or another
composition. What a composition adds to a list of rewards with weights, TRL's own way: conditions between the parts, a
rule for what cannot be judged, and answers that are extracted once.

Every part stays visible as if it were a reward of weight 0. For a composition called `sum_reward` with a part
`accuracy_reward`:

- metrics: `sum_reward/accuracy_reward` is the part's mean over what it judged, and
  `sum_reward/accuracy_reward/none/<reason>` counts what it did not;
- columns of the table of completions: `sum_reward/accuracy_reward`, and, for a [`Reward`], its `.../reason` and
  `.../answer`. They are the same in every call.

Of two parts of one name the second is called `<name>_2`. Parts that are coroutines are refused: a composition is
called synchronously, perhaps under a running event loop, and in a loop of its own a client made for the trainer's loop
would break. `AsyncReward(Sum([...]))` makes the whole composition a coroutine.

A [`Reward`] names in `neutral_reasons` why it may have nothing to say of a completion: too few words to tell their
language, for instance. Such a `None` is no missing judgement: it is left out, and opens a gate, whatever the rule for
missing ones is. Otherwise a completion could take back the verdict of the other parts. Where no part has more to say,
the composition is `None` for the same reason, and neutral itself.
"""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from reward_funcs._parts import Part, check_part, checked_grades, function_rewards, listed_parts, part_names
from reward_funcs.base import NOT_ASKED, Batch, Grade, Reward, boxed, check_flag, log_grades, log_unjudged

MissingRule = Literal["propagate", "skip"]
GATE_CLOSED = "gate_closed"


class _Judged(NamedTuple):
    """Grades of a reward and, where it is a composition, of its parts by name."""

    grades: list[Grade]
    parts: dict[str, _Judged]
    explained: bool  # a plain function gives neither reasons nor answers


class Composition(Reward):
    """What all compositions share: checked and named parts, and the report on each of them."""

    def __init__(self, parts: Iterable[Part], *, name: str | None) -> None:
        super().__init__(name=name)
        self.parts = listed_parts(parts, type(self).__name__)
        for part in self.parts:
            check_part(part, type(self).__name__)
        self._names = part_names(self.parts)
        self._neutral = tuple(map(_neutral_reasons, self.parts))
        if any(getattr(part, "group_relative", False) for part in self.parts):
            self.group_relative = True

    @property
    def solution_column(self) -> str | None:
        """Column of the golds that the first part with such a setting reads."""
        columns = (getattr(part, "solution_column", None) for part in self.parts)
        return next((column for column in columns if column is not None), None)

    def grade(self, batch: Batch) -> list[Grade]:
        """One [`Grade`] for each completion of the batch, in order."""
        return self._judge(batch, self.__name__).grades

    def rewards(self, batch: Batch) -> list[float | None]:
        """Grade a batch, report on the composition and on each part, and return the rewards."""
        judged = self._judge(batch, self.__name__)
        _log_parts(batch, self.__name__, judged)
        return self._reported(batch, judged.grades)

    @abstractmethod
    def _judge(self, batch: Batch, path: str) -> _Judged:
        """Grades with those of the parts; `path` is where the composition stands in the logs."""

    def ideal(self, gold: Any) -> str | None:
        """The ideal completion of the first part that grades golds and has one.

        Those are the parts with a `solution_column`, then all [`Reward`] parts; where all are plain functions it is
        `\\boxed{gold}`. A format that other parts want is not in it: [`check_golds`] tries the usual ones.
        """
        rewards = [part for part in self.parts if isinstance(part, Reward)]
        if not rewards:
            return boxed(gold)
        graders = [part for part in rewards if getattr(part, "solution_column", None) is not None]
        ideals = (part.ideal(gold) for part in graders or rewards)
        return next((ideal for ideal in ideals if ideal is not None), None)

    def close(self) -> None:
        """Close the parts."""
        for part in self.parts:
            close = getattr(part, "close", None)
            if callable(close):
                close()


class _Combination(Composition):
    """A composition whose reward follows row by row from those of its parts, with a rule for missing ones."""

    def __init__(self, parts: Iterable[Part], *, none: MissingRule, name: str | None) -> None:
        super().__init__(parts, name=name)
        if not self.parts:
            raise ValueError(f"{type(self).__name__} has no parts; give it at least one reward")
        if none not in ("propagate", "skip"):
            raise ValueError(
                f"none={none!r} is unknown; choose 'propagate' (a missing part makes the reward None) or 'skip' (it is "
                "left out)"
            )
        self.none = none

    def _judge(self, batch: Batch, path: str) -> _Judged:
        named = zip(self._names, self.parts, strict=True)
        parts = {name: _judged(part, batch, f"{path}/{name}") for name, part in named}
        rows = zip(*(judged.grades for judged in parts.values()), strict=True)
        return _Judged([self._checked(row, f"{path}, completion {i}") for i, row in enumerate(rows)], parts, True)

    def _checked(self, row: Sequence[Grade], place: str) -> Grade:
        """The grade of one completion, refused where the rewards of the parts make no finite number."""
        grade = self._combined(row)
        if grade.reward is not None and not math.isfinite(grade.reward):
            found = ", ".join(f"{name} {one.reward!r}" for name, one in zip(self._names, row, strict=True))
            raise ValueError(f"{place}: no finite reward comes of {found}; scale the parts down")
        return grade

    def _combined(self, row: Sequence[Grade]) -> Grade:
        """The grade of one completion from the grades of all parts."""
        weighted = zip(self._weighted(row), self._neutral, strict=True)
        counted = [(grade, neutral) for grade, neutral in weighted if grade is not None]
        known = [grade for grade, _ in counted if grade.reward is not None]
        unknown = [grade for grade, _ in counted if grade.reward is None]
        missing = [grade for grade, neutral in counted if grade.reward is None and grade.reason not in neutral]
        if (missing and self.none == "propagate") or (unknown and not known):
            return Grade(None, (missing or unknown)[0].reason, _answer(row))
        return self._of_known(known)

    def _weighted(self, row: Sequence[Grade]) -> Sequence[Grade | None]:
        """The grades of all parts as they go into the combination; `None` for what does not count."""
        return row

    @abstractmethod
    def _of_known(self, known: Sequence[Grade]) -> Grade:
        """The grade of one completion from parts that all have a reward."""


class Sum(_Combination):
    """Weighted sum of rewards: `w_1 f_1 + w_2 f_2 + ...`.

    A part of weight 0 is graded and logged, and counts neither in the sum nor as missing. The reason in the logs is
    that of the first part that gives one.

    Args:
        parts (`Iterable[Callable]`): the rewards.
        weights (`Iterable[float]`, *optional*): a finite number for each, of either sign; by default 1.0.
        none (`str`, *optional*): `"propagate"`: `None` from any part that is not neutral makes the sum `None`, so that
            a judge that is down looks like no judgement and not like a wrong answer. `"skip"`: what is missing is left
            out, the other weights stay as they are, and only where all are missing the sum is `None`; TRL treats a list
            of rewards this way, and a completion that misses a part is worth less than its neighbours.
        name (`str`, *optional*): name in TRL's logs.

    Raises:
        ValueError: For weights of another number than the parts, or not finite, and for parts that are no rewards.

    Example:

    ```python
    >>> def right(completions, solution, **columns):
    ...     return [float(text == gold) for text, gold in zip(completions, solution)]
    >>> def short(completions, **columns):
    ...     return [1.0 if len(text) < 3 else 0.0 for text in completions]
    >>> Sum([right, short], weights=[1.0, 0.5])(["4", "five", "5"], solution=["4", "five", "4"])
    [1.5, 1.0, 0.5]

    ```
    """

    default_name = "sum_reward"

    def __init__(
        self,
        parts: Iterable[Part],
        weights: Iterable[float] | None = None,
        *,
        none: MissingRule = "propagate",
        name: str | None = None,
    ) -> None:
        super().__init__(parts, none=none, name=name)
        if weights is not None and not isinstance(weights, Iterable):
            raise ValueError(f"weights={weights!r:.60} must be a list with one number for each part")
        given = [1.0] * len(self.parts) if weights is None else list(weights)
        if len(given) != len(self.parts):
            raise ValueError(f"weights has {len(given)} values for {len(self.parts)} parts; give one for each part")
        self.weights = tuple(_finite(weight, "weights") for weight in given)

    def _weighted(self, row: Sequence[Grade]) -> Sequence[Grade | None]:
        return [
            None if not weight else grade if grade.reward is None else grade._replace(reward=weight * grade.reward)
            for weight, grade in zip(self.weights, row, strict=True)
        ]

    def _of_known(self, known: Sequence[Grade]) -> Grade:
        try:
            # fsum: ten parts of 0.1 make 1.0, in any order
            total = math.fsum(grade.reward for grade in known if grade.reward is not None)
        except (OverflowError, ValueError):  # a sum too large, and inf - inf
            total = math.inf
        return Grade(total, next((grade.reason for grade in known if grade.reason), ""), _answer(known))


class Product(_Combination):
    """Product of rewards: `f_1 f_2 ...`, so that one reward of 0 is enough for 0.

    It is for rewards in [0, 1]. A penalty, which is 0 or less, does not belong in it: its 0 for a good completion would
    be the product, and two of them would make a bonus. A negative reward is refused. A known 0 decides: the product is
    0.0 there, whatever else is missing. The reason in the logs is that of the lowest part.

    Args:
        parts (`Iterable[Callable]`): the rewards.
        none (`str`, *optional*): `"propagate"`: `None` from any part makes the product `None`. `"skip"`: it is the
            product of the others, `None` where all are missing.
        name (`str`, *optional*): name in TRL's logs.

    Raises:
        ValueError: For parts that are no rewards; when called, for a negative reward.

    Example:

    ```python
    >>> def half(completions, **columns):
    ...     return [0.5 for _ in completions]
    >>> def nonempty(completions, **columns):
    ...     return [float(bool(text)) for text in completions]
    >>> Product([half, nonempty])(["a", ""])
    [0.5, 0.0]

    ```
    """

    default_name = "product_reward"

    def __init__(self, parts: Iterable[Part], *, none: MissingRule = "propagate", name: str | None = None) -> None:
        super().__init__(parts, none=none, name=name)

    def _checked(self, row: Sequence[Grade], place: str) -> Grade:
        for name, grade in zip(self._names, row, strict=True):
            if grade.reward is not None and grade.reward < 0:
                raise ValueError(
                    f"{place}: {name} gave {grade.reward!r}, and a product is for rewards of 0 and more, since two "
                    "penalties would make a bonus; add penalties with Sum, or make them factors between 0 and 1"
                )
        return super()._checked(row, place)

    def _combined(self, row: Sequence[Grade]) -> Grade:
        zero = next((grade for grade in row if grade.reward == 0), None)
        return super()._combined(row) if zero is None else Grade(0.0, zero.reason, _answer(row))

    def _of_known(self, known: Sequence[Grade]) -> Grade:
        product = math.prod(grade.reward for grade in known if grade.reward is not None)
        return Grade(product, min(known, key=_value).reason, _answer(known))


class Min(_Combination):
    """Lowest of the rewards: `min(f_1, f_2, ...)`. The reason in the logs is that of the lowest part.

    It is for rewards on one scale, such as [0, 1]: with a penalty, which is 0 or less, a right answer is worth 0.

    Args:
        parts (`Iterable[Callable]`): the rewards.
        none (`str`, *optional*): `"propagate"`: `None` from any part makes the minimum `None`, as the missing one
            could have been lower. `"skip"`: it is the minimum of the others, `None` where all are missing.
        name (`str`, *optional*): name in TRL's logs.

    Raises:
        ValueError: For parts that are no rewards.

    Example:

    ```python
    >>> def length(completions, **columns):
    ...     return [len(text) / 4 for text in completions]
    >>> def half(completions, **columns):
    ...     return [0.5 for _ in completions]
    >>> Min([length, half])(["a", "abcd"])
    [0.25, 0.5]

    ```
    """

    default_name = "min_reward"

    def __init__(self, parts: Iterable[Part], *, none: MissingRule = "propagate", name: str | None = None) -> None:
        super().__init__(parts, none=none, name=name)

    def _of_known(self, known: Sequence[Grade]) -> Grade:
        lowest = min(known, key=_value)
        return Grade(lowest.reward, lowest.reason, _answer(known))


class Gate(Composition):
    """`reward` where `condition >= threshold`, `otherwise` elsewhere: format before accuracy, say.

    The reward is asked only about the completions that pass, which saves its time on the others. Rewards that compare
    completions with each other (`group_relative`) are asked about all. `None` from the condition, or from the reward
    of a completion that passes, gives `None`; a condition that is neutral of a completion lets it pass. Closed gates
    have the reason `gate_closed` in the logs.

    Args:
        condition (`Callable`): a reward that decides.
        reward (`Callable`): the reward of what passes. A plain function gets the columns of those completions only,
            is not called where none passes, and logs metrics but no columns of its own.
        threshold (`float`, *optional*): lowest value of the condition that passes. 0.5 separates 0 from 1.
        otherwise (`float`, *optional*): reward of what does not pass; `None` leaves it out of the training.
        whole_batch (`bool`, *optional*): ask the reward about all completions, for a plain function that compares
            them with each other.
        name (`str`, *optional*): name in TRL's logs.

    Raises:
        ValueError: For a threshold or `otherwise` that is no finite number, and for parts that are no rewards.

    Example:

    ```python
    >>> def closed(completions, **columns):
    ...     return [float(text.endswith(".")) for text in completions]
    >>> def right(completions, solution, **columns):
    ...     return [float(gold in text) for text, gold in zip(completions, solution)]
    >>> Gate(closed, right, otherwise=-0.5)(["It is 4.", "It is 4", "It is 5."], solution=["4", "4", "4"])
    [1.0, -0.5, 0.0]

    ```
    """

    default_name = "gate_reward"

    def __init__(
        self,
        condition: Part,
        reward: Part,
        *,
        threshold: float = 0.5,
        otherwise: float | None = 0.0,
        whole_batch: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__((condition, reward), name=name)
        self.threshold = _finite(threshold, "threshold")
        self.otherwise = None if otherwise is None else _finite(otherwise, "otherwise")
        self.whole_batch = check_flag("whole_batch", whole_batch)

    def _judge(self, batch: Batch, path: str) -> _Judged:
        (condition_name, reward_name), (condition, reward) = self._names, self.parts
        asked = _judged(condition, batch, f"{path}/{condition_name}")
        passing = [index for index, grade in enumerate(asked.grades) if self._passes(grade)]
        reward_path = f"{path}/{reward_name}"
        if self.whole_batch or getattr(reward, "group_relative", False):
            given = _judged(reward, batch, reward_path)
        else:
            # even where none passes: a Reward whose column is missing says so in the first step, not in a later one
            given = _spread(_judged(reward, batch.subset(passing), reward_path), passing, len(batch))
        grades = [self._gated(*pair) for pair in zip(asked.grades, given.grades, strict=True)]
        return _Judged(grades, {condition_name: asked, reward_name: given}, True)

    def _passes(self, condition: Grade) -> bool:
        if condition.reward is None:
            return condition.reason in self._neutral[0]
        return condition.reward >= self.threshold

    def _gated(self, condition: Grade, reward: Grade) -> Grade:
        if self._passes(condition):
            return reward
        if condition.reward is None:
            return Grade(None, condition.reason, condition.answer)
        return Grade(self.otherwise, GATE_CLOSED, condition.answer)


class Clip(Composition):
    """A reward held between two bounds: `min(max(f, low), high)`; `None` stays `None`.

    Args:
        reward (`Callable`): the reward.
        low (`float`): lower bound; `-math.inf` for none.
        high (`float`): upper bound; `math.inf` for none.
        name (`str`, *optional*): name in TRL's logs.

    Raises:
        ValueError: For bounds that are no numbers, in the wrong order, or leave no finite number between them, and for
            a part that is no reward.

    Example:

    ```python
    >>> def length(completions, **columns):
    ...     return [float(len(text)) for text in completions]
    >>> Clip(length, 1, 3)(["", "ab", "abcdef"])
    [1.0, 2.0, 3.0]

    ```
    """

    default_name = "clip_reward"

    def __init__(self, reward: Part, low: float, high: float, *, name: str | None = None) -> None:
        super().__init__((reward,), name=name)
        for argument, bound in (("low", low), ("high", high)):
            number = isinstance(bound, (int, float)) and not isinstance(bound, bool)
            if not number or not (abs(bound) == math.inf or abs(bound) <= sys.float_info.max):
                raise ValueError(f"{argument}={bound!r:.60} must be a number; for no bound give -math.inf or math.inf")
        if not (low <= high and low < math.inf and high > -math.inf):
            raise ValueError(
                f"low={low!r} and high={high!r} must be numbers with low <= high, not both infinite on one side; swap "
                "or correct them"
            )
        self.low, self.high = float(low), float(high)

    def _judge(self, batch: Batch, path: str) -> _Judged:
        (name,), (reward,) = self._names, self.parts
        given = _judged(reward, batch, f"{path}/{name}")
        return _Judged([self._clipped(grade) for grade in given.grades], {name: given}, True)

    def _clipped(self, grade: Grade) -> Grade:
        return grade if grade.reward is None else grade._replace(reward=min(max(grade.reward, self.low), self.high))


def _judged(part: Part, batch: Batch, path: str) -> _Judged:
    if isinstance(part, Composition):
        return part._judge(batch, path)
    if isinstance(part, Reward):
        return _Judged(checked_grades(part, batch, path), {}, True)
    return _Judged([Grade(reward) for reward in function_rewards(part, batch, path)], {}, False)


def _neutral_reasons(part: Part) -> frozenset[str]:
    if isinstance(part, Composition):
        return frozenset().union(*part._neutral)
    return part.neutral_reasons if isinstance(part, Reward) else frozenset()


def _spread(judged: _Judged, indices: Sequence[int], total: int) -> _Judged:
    """What was judged of a subset, at its places in the whole batch."""
    grades = [NOT_ASKED] * total
    for index, grade in zip(indices, judged.grades, strict=True):
        grades[index] = grade
    parts = {name: _spread(part, indices, total) for name, part in judged.parts.items()}
    return _Judged(grades, parts, judged.explained)


def _log_parts(batch: Batch, path: str, judged: _Judged) -> None:
    for name, part in judged.parts.items():
        inner = f"{path}/{name}"
        rewards = [grade.reward for grade in part.grades]
        batch.log_extra(inner, rewards)
        known = [reward for reward in rewards if reward is not None]
        if known:  # a NaN would make the mean over the logging interval NaN
            batch.log_metric(inner, math.fsum(known) / len(known))
        if part.explained:
            log_grades(batch, inner, part.grades)
        else:
            log_unjudged(batch, inner, part.grades)
        _log_parts(batch, inner, part)


def _answer(grades: Sequence[Grade]) -> str | None:
    return next((grade.answer for grade in grades if grade.answer is not None), None)


def _value(grade: Grade) -> float:
    return math.inf if grade.reward is None else grade.reward


def _finite(value: Any, argument: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or isinstance(value, str):
        raise ValueError(f"{argument}={value!r} must be a finite number")
    return number
