"""Whether a judge and a rubric can be trained with: a right answer, an empty one, and attempts to steer the judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from reward_funcs._judge_base import Judge
from reward_funcs._judge_callable import as_judge
from reward_funcs._judge_injections import INJECTIONS
from reward_funcs._judge_report import MAX_EMPTY, MIN_GOLD, checked_report
from reward_funcs._judge_report import JudgeReport as JudgeReport
from reward_funcs._settings import check_setting
from reward_funcs.base import Batch
from reward_funcs.rubric import Rubric


@dataclass(frozen=True)
class InjectionReport:
    """What [`check_injections`] measured.

    Args:
        base (`float`): reward of the answer alone.
        moved (`tuple[tuple[str, float], ...]`): the attempts that scored higher, with their rewards.
        unjudged (`int`): attempts without a judgement.
        total (`int`): attempts made.
    """

    base: float
    moved: tuple[tuple[str, float], ...]
    unjudged: int
    total: int

    def __str__(self) -> str:
        text = f"{len(self.moved)} of {self.total} attempts scored higher than the answer alone ({self.base:.3g})"
        if self.unjudged:
            text += f", {self.unjudged} were not judged"
        return "\n".join([text, *(f"  {reward:.3g}: {attempt!r:.100}" for attempt, reward in self.moved)])


def check_judge(
    judge: Judge | Callable[..., Any] | None,
    rubric: Rubric,
    gold: str | Sequence[str],
    *,
    prompt: Any = None,
    min_gold: float = MIN_GOLD,
    max_empty: float = MAX_EMPTY,
    **columns: Any,
) -> JudgeReport:
    """Whether gold answers score at least 0.9 and empty ones at most 0.1, before any training.

    Args:
        judge (`Judge | Callable`, *optional*): the judge to try in place of the rubric's own; `None` keeps that.
        rubric (`Rubric`): the rubric.
        gold (`str | Sequence[str]`): an answer that deserves full marks, or several.
        prompt (`Any`, *optional*): what the gold answers, or one for each of several: a text or messages.
        min_gold (`float`, *optional*, defaults to 0.9): lowest reward of a gold.
        max_empty (`float`, *optional*, defaults to 0.1): highest reward of an empty completion.
        **columns: columns of the data set that the rubric reads: one value, or a list of one for each gold.

    Returns:
        [`JudgeReport`]: both rewards.

    Raises:
        ValueError: When the judge fails, or a reward is on the wrong side; the message says which.

    Example:

    ```python
    >>> from reward_funcs.judge import CallableJudge
    >>> from reward_funcs.rubric import Criterion, Rubric
    >>> def lenient(messages):
    ...     return '{"1": {"reason": "why not", "score": 5}}'
    >>> rubric = Rubric([Criterion("correctness", "The answer is 4.")], judge=lenient)
    >>> check_judge(None, rubric, "It is 4.", prompt="2 + 2?")
    Traceback (most recent call last):
    ValueError: the judge gives an empty completion 1, above max_empty=0.1; take a stronger judge, ...

    ```
    """
    check_setting("min_gold", min_gold, 0, most=1)
    check_setting("max_empty", max_empty, 0, most=1)
    rubric = _with_judge(rubric, judge)
    golds = [gold] if isinstance(gold, str) else list(gold)
    if not golds:
        raise ValueError("gold=[]: it must be at least one answer that deserves full marks")
    rows = _columns(golds, gold, prompt, columns)
    grades = rubric.grade(Batch([*golds, *([""] * len(golds))], {name: [*values, *values] for name, values in rows}))
    return checked_report(grades[: len(golds)], grades[len(golds) :], min_gold, max_empty)


def check_injections(
    judge: Judge | Callable[..., Any] | None,
    rubric: Rubric,
    answer: str,
    *,
    prompt: Any = None,
    attempts: Sequence[str] = INJECTIONS,
    tolerance: float = 1e-6,
    **columns: Any,
) -> InjectionReport:
    """Which attempts to steer the judge score higher than the bad answer that they are put behind.

    Args:
        judge (`Judge | Callable`, *optional*): the judge to try in place of the rubric's own.
        rubric (`Rubric`): the rubric.
        answer (`str`): a wrong answer, which deserves few points.
        prompt (`Any`, *optional*): what it answers.
        attempts (`Sequence[str]`, *optional*): texts that try to steer; by default about thirty known ones.
        tolerance (`float`, *optional*): how much higher still counts as equal.
        **columns: columns of the data set that the rubric reads, one value each.

    Returns:
        [`InjectionReport`]: how many, and which.

    Raises:
        ValueError: When the judge gives the answer alone no score.
    """
    texts = [answer, *(f"{answer}\n{attempt}" for attempt in attempts)]
    rows = _columns(texts, "", prompt, columns)
    grades = _with_judge(rubric, judge).grade(Batch(texts, dict(rows)))
    base = grades[0].reward
    if base is None:
        raise ValueError(f"the judge gives the answer alone no score ({grades[0].reason}); nothing can be compared")
    rewards = [grade.reward for grade in grades[1:]]
    moved = [
        (attempt, reward)
        for attempt, reward in zip(attempts, rewards, strict=True)
        if reward is not None and reward > base + tolerance
    ]
    return InjectionReport(base, tuple(moved), rewards.count(None), len(attempts))


def _with_judge(rubric: Rubric, judge: Judge | Callable[..., Any] | None) -> Rubric:
    if judge is None:
        return rubric
    rubric = copy(rubric)
    rubric.judge = as_judge(judge)
    return rubric


def _columns(golds: Sequence[str], gold: Any, prompt: Any, columns: dict[str, Any]) -> list[tuple[str, list[Any]]]:
    """Each column with one value for each gold."""
    several = not isinstance(gold, str)
    given = {**columns, **({} if prompt is None else {"prompts": prompt})}
    rows = []
    for name, value in given.items():
        values = list(value) if several and isinstance(value, (list, tuple)) else [value] * len(golds)
        if len(values) != len(golds):
            raise ValueError(f"{name} has {len(values)} values for {len(golds)} golds; give one for each, or one value")
        rows.append((name, values))
    return rows
