"""Whether the golds of built rows are accepted by the reward of each row's task."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from datasets_builders._rows import batches, check_rows, column_names, selected
from datasets_builders.schema import RL_TASKS
from reward_funcs.base import Batch
from reward_funcs.check import GoldFailure, GoldReport, check_golds
from reward_funcs.countdown import MAX_SOLVED

# Names in `reward_funcs`. A gold of another task is looked at for its form alone.
REWARDS = {"math": "accuracy_reward", "choice": "choice_reward", "countdown": "countdown_reward"}
# What these rewards read of a row.
_READ = ("solution", "choices", "extra")


@dataclass(frozen=True)
class NamedFailure(GoldFailure):
    """A gold that fails, with the name of its row.

    Args:
        name (`str`): `source/source_id`, as far as the row holds them.
    """

    name: str = ""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}, of {self.name}" if self.name else text


def verify_golds(dataset: Any, *, drop_failing: bool = False) -> tuple[Any, dict[str, GoldReport]]:
    r"""Which golds score 1.0 in the reward of their task, put as the completion that answers with them.

    Rows of the tasks `math`, `choice` and `countdown` go through [`~reward_funcs.check_golds`] with `accuracy_reward`,
    `choice_reward` and `countdown_reward`; a gold that no completion can answer, such as a puzzle without a solution,
    fails as well (one of more than six numbers counts as `unchecked`). Of the others the form is checked: of `code` and
    `instruction` the JSON, with its tests or constraints, and of `judge` that something is written there. A gold whose
    constraints `instruction_reward` cannot judge fails with its reason, such as `unknown_constraint`. Such a row may
    still hold tests that nothing passes, or constraints that exclude each other.

    Args:
        dataset (`Dataset | list[dict]`): rows with the columns `solution` and `task`. A stream is refused: rows are
            numbered.
        drop_failing (`bool`, defaults to `False`): return the rows without those that fail.

    Returns:
        `tuple`: the rows, and a [`~reward_funcs.GoldReport`] for each task that is there: `rate`, `total`, `unchecked`,
        and `failures`, whose `row` counts from the first row of `dataset` and whose `name` is `source/source_id`.

    Raises:
        ValueError: For no rows, a stream, rows without golds and a task that has none.

    Example:

    ```python
    >>> rows = [{"solution": gold, "task": "code"} for gold in ('{"asserts": ["assert f(1) == 2"]}', '{"asserts": []}')]
    >>> kept, reports = verify_golds(rows, drop_failing=True)
    >>> len(kept), reports["code"].rate, reports["code"].failures[0].reason
    (1, 0.5, 'no_tests')

    ```
    """
    check_rows(dataset, "verify_golds", ["solution", "task"], stream=False)
    reports = {}
    for task, rows in _rows_by_task(dataset).items():
        part = selected(dataset, rows)
        report = _graded(task, part) if task in REWARDS else _form_report(task, _golds(part))
        reports[task] = _named(report, rows, dataset)
    if not reports:
        raise ValueError("verify_golds: the data set holds no rows; there is no gold to check")
    if drop_failing:
        failing = {failure.row for report in reports.values() for failure in report.failures}
        dataset = selected(dataset, [row for row in range(len(dataset)) if row not in failing])
    return dataset, reports


def _graded(task: str, dataset: Any) -> GoldReport:
    """What the reward says; golds that no completion can answer, such as a puzzle without a solution, fail."""
    import reward_funcs

    reward = getattr(reward_funcs, REWARDS[task])
    report = check_golds(_golds(dataset), reward)
    if not report.unchecked:
        return report
    unanswerable = [
        GoldFailure(row, gold["solution"], "", None, "no_answer_exists")
        for row, gold in enumerate(_golds(dataset))
        if _is_unanswerable(task, gold["solution"], reward)
    ]
    failures = sorted((*report.failures, *unanswerable), key=lambda failure: failure.row)
    unchecked = report.unchecked - len(unanswerable)
    checked = report.total - unchecked
    return GoldReport((checked - len(failures)) / checked if checked else 0.0, failures, report.total, unchecked)


def _is_unanswerable(task: str, gold: Any, reward: Any) -> bool:
    if isinstance(gold, str) and not gold.strip():
        return False  # graded as it is
    if task == "countdown" and len(_nums(gold)) > MAX_SOLVED:
        return False  # not searched for a solution
    return reward.ideal(gold) is None


def _nums(gold: Any) -> list[Any]:
    try:
        nums = json.loads(gold)["nums"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return []
    return nums if isinstance(nums, list) else []


def _rows_by_task(dataset: Any) -> dict[str, array[int]]:
    rows: dict[str, array[int]] = {}
    start = 0
    for batch in batches(dataset, ["task"]):
        for row, task in enumerate(batch["task"], start):
            if task not in RL_TASKS:
                raise ValueError(
                    f"verify_golds: row {row} has the task {task!r}, which has no golds; the tasks that have some are "
                    f"{', '.join(RL_TASKS)}"
                )
            rows.setdefault(task, array("q")).append(row)
        start += len(batch["task"])
    return rows


def _golds(dataset: Any) -> Iterator[dict[str, Any]]:
    known = column_names(dataset) or []
    for batch in batches(dataset, [name for name in _READ if name in known]):
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))


def _named(report: GoldReport, rows: Sequence[int], dataset: Any) -> GoldReport:
    """The report with the numbers of the rows in the whole data set, and their names."""
    numbers = [rows[failure.row] for failure in report.failures]
    names: list[str] = []
    if numbers:
        for batch in batches(selected(dataset, numbers), ["source", "source_id", "task"]):
            parts = [batch[name] for name in ("source", "source_id") if name in batch]
            names += ["/".join(map(str, both)) for both in zip(*parts, strict=True)] if parts else [""] * len(numbers)
    failures: list[GoldFailure] = [
        NamedFailure(number, old.gold, old.completion, old.reward, old.reason, name)
        for number, name, old in zip(numbers, names, report.failures, strict=True)
    ]
    return replace(report, failures=failures)


def _form_report(task: str, rows: Iterator[Mapping[str, Any]]) -> GoldReport:
    failures, total = [], 0
    for total, row in enumerate(rows, 1):
        fault = form_fault(task, row["solution"])
        if not fault and task == "instruction":
            fault = _unjudged(row["solution"])
        if fault:
            failures.append(GoldFailure(total - 1, row["solution"], "", None, fault))
    return GoldReport((total - len(failures)) / total, failures, total)


def _unjudged(solution: str) -> str:
    """Why the reward of instructions gives nothing for this gold, `""` where it judges; the completion is no matter."""
    from reward_funcs import instruction_reward

    (grade,) = instruction_reward.grade(Batch([""], {"solution": [solution]}))
    return "" if grade.reward is not None else grade.reason


def form_fault(task: str, solution: Any) -> str:
    """What is wrong with the form of a gold of `code`, `instruction` or `judge`: a short code, `""` for nothing.

    A gold of `code` is read as `code_reward` reads it: `no_tests` is what that calls `bad_gold`, and `bad_test` and
    `unsupported_test` are its own words.

    Example:

    ```python
    >>> form_fault("code", '{"inputs": ["1"], "outputs": []}'), form_fault("judge", "Muscles")
    ('no_tests', '')

    ```
    """
    if not isinstance(solution, str) or not solution.strip():
        return "empty"
    if task == "judge":
        return ""
    try:
        gold = json.loads(solution)
    except (ValueError, RecursionError):
        return "no_json"
    if not isinstance(gold, dict):
        return "no_object"
    return (
        _code_fault(solution) if task == "code" else _pairs_fault(gold, "instruction_id", "kwargs", "no_instructions")
    )


def _code_fault(solution: str) -> str:
    """Why the reward of programs judges none by this gold, as that reads it, `""` where it does."""
    from reward_funcs._code_tests import gold_tests

    tests = gold_tests(solution)
    return "no_tests" if tests is None else tests.problem


def _pairs_fault(gold: Mapping[str, Any], first: str, second: str, none: str) -> str:
    """Two lists of one length that is not 0; what belongs to an instruction has its name as a text."""
    left, right = gold.get(first), gold.get(second)
    if not isinstance(left, list) or not isinstance(right, list) or not left:
        return none
    if len(left) != len(right):
        return "unequal_lengths"
    if first == "instruction_id" and not (
        _texts(left) and all(item is None or isinstance(item, dict) for item in right)
    ):
        return "malformed"
    return ""


def _texts(values: Any) -> bool:
    """Whether these are texts, at least one, and none is empty."""
    return isinstance(values, list) and bool(values) and all(isinstance(one, str) and one.strip() for one in values)
