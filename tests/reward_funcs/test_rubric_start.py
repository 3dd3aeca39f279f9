"""What a rubric does before the judge is asked: thoughts that are cut, and the check of the judge at the start."""

from __future__ import annotations

from typing import Any

import pytest

from reward_funcs import Sum, accuracy_reward
from reward_funcs.rubric import Criterion, Rubric

from .test_rubric import TableJudge

# --- thoughts and the start -------------------------------------------------------------------------------------------


def test_completion_that_is_all_thought_shows_the_judge_nothing() -> None:
    texts = ["I think it is 4", "4?</think>It is 4."]
    for prefilled, expected in ((False, texts), (True, ["", texts[1]])):
        judge = TableJudge({text: {"a": 1} for text in ("", *texts)})
        Rubric([Criterion("a", "a")], judge=judge, think_prefilled=prefilled)(texts)
        assert [task.completion for task in judge.tasks] == expected


def started(table: dict[str, float], **settings: Any) -> tuple[Rubric, TableJudge]:
    judge = TableJudge({text: {"a": score} for text, score in table.items()})
    return Rubric([Criterion("a", "a")], judge=judge, reference_column="gold", check_at_start=True, **settings), judge


def test_check_at_start_judges_references_and_empty_completions_once() -> None:
    rubric, judge = started({"4": 5, "5": 5, "": 0, "x": 2, "y": 3})
    columns = {"gold": ["4", "5"], "completion_ids": [[1], [2]]}
    assert rubric(["x", "y"], **columns) == [0.4, 0.6]
    assert [task.completion for task in judge.tasks] == ["4", "5", "", "", "x", "y"]
    assert [task.reference for task in judge.tasks] == ["4", "5"] * 3
    rubric(["x", "y"], **columns)
    assert len(judge.tasks) == 8
    few, judge = started({"4": 5, "": 0, "x": 2})
    few(["x"] * 9, gold=["4"] * 9)
    assert len(judge.tasks) == 4 + 4 + 9


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"4": 4, "": 0, "x": 2}, "the judge gives gold 0 0.8, below min_gold=0.9"),
        ({"4": 5, "": 1, "x": 2}, "the judge gives an empty completion 0.2, above max_empty=0.1"),
        ({"4": "timeout", "": 0, "x": 2}, r"the judge gives gold 0 no score \(timeout\)"),
    ],
)
def test_check_at_start_stops_a_training_that_cannot_learn(table: dict[str, Any], message: str) -> None:
    judge = TableJudge({text: score if isinstance(score, str) else {"a": score} for text, score in table.items()})
    rubric = Rubric([Criterion("a", "a")], judge=judge, reference_column="gold", check_at_start=True)
    for _ in range(2):  # a second call is no way round it
        with pytest.raises(ValueError, match=message):
            rubric(["x"], gold=["4"])
    with pytest.raises(ValueError, match=message):
        Sum([rubric, accuracy_reward])(["x"], gold=["4"], solution=["4"])


def test_check_at_start_without_references_looks_at_empty_completions() -> None:
    judge = TableJudge({"": {"a": 0}, "x": {"a": 2}})
    rubric = Rubric([Criterion("a", "a")], judge=judge, check_at_start=True)
    assert rubric(["x"]) == [0.4] and [task.completion for task in judge.tasks] == ["", "x"]
