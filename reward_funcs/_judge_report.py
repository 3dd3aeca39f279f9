"""Whether a judge and a rubric can be trained with: what right answers and empty ones earn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reward_funcs.base import Batch, Grade, Reward

MIN_GOLD, MAX_EMPTY = 0.9, 0.1
CHECKED_ROWS = 4  # rows of the first batch that a check at the start looks at


@dataclass(frozen=True)
class JudgeReport:
    """What [`check_judge`] measured: the lowest reward of the golds, the highest of the empty completions."""

    gold: float
    empty: float

    def __str__(self) -> str:
        return f"the gold answers score at least {self.gold:.3g}, empty ones at most {self.empty:.3g}"


def checked_report(
    golds: Sequence[Grade], empties: Sequence[Grade], min_gold: float = MIN_GOLD, max_empty: float = MAX_EMPTY
) -> JudgeReport:
    """The rewards of golds and of empty completions, refused where one is on the wrong side or missing.

    Args:
        golds (`Sequence[Grade]`): grades of answers that deserve full marks.
        empties (`Sequence[Grade]`): grades of empty completions, at least one.
        min_gold (`float`, *optional*, defaults to 0.9): lowest reward of a gold.
        max_empty (`float`, *optional*, defaults to 0.1): highest reward of an empty completion.

    Returns:
        [`JudgeReport`]: both rewards; that of golds is 1.0 where there are none.

    Raises:
        ValueError: One sentence that says what is wrong.
    """
    for number, grade in enumerate([*golds, *empties]):
        if grade.reward is None:
            what = f"gold {number}" if number < len(golds) else "an empty completion"
            raise ValueError(f"the judge gives {what} no score ({grade.reason}); see that it answers before training")
    gold = [_value(grade) for grade in golds]
    report = JudgeReport(min(gold, default=1.0), max(map(_value, empties)))
    if report.gold < min_gold:
        raise ValueError(
            f"the judge gives gold {gold.index(report.gold)} {report.gold:.4g}, below min_gold={min_gold:g}; take a "
            "stronger judge, or see whether the rubric asks for what the gold has"
        )
    if report.empty > max_empty:
        raise ValueError(
            f"the judge gives an empty completion {report.empty:.4g}, above max_empty={max_empty:g}; take a stronger "
            "judge, or make a criterion that an empty answer cannot meet required=True"
        )
    return report


def check_rows(rubric: Reward, batch: Batch, rows: Sequence[int], references: Sequence[str | None]) -> None:
    """Check a rubric on rows of a batch: their references in place of the completions, and empty completions.

    Args:
        rubric (`Reward`): the rubric.
        batch (`Batch`): N completions with their columns.
        rows (`Sequence[int]`): which of them.
        references (`Sequence[str | None]`): N answers that deserve full marks, where they are known.

    Raises:
        ValueError: As of [`checked_report`].
    """
    if not rows:
        return
    known = [index for index in rows if references[index] is not None]
    picked = batch.subset([*known, *rows]).columns
    texts = [*(references[index] or "" for index in known), *("" for _ in rows)]
    columns = {name: values for name, values in picked.items() if name != "completion_ids"}
    grades = rubric.grade(Batch(texts, columns))
    checked_report(grades[: len(known)], grades[len(known) :])


def _value(grade: Grade) -> float:
    assert grade.reward is not None
    return grade.reward
