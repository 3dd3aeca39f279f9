"""Whether a reward accepts its own golds: before training, without a model, row by row of a data set."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

from reward_funcs._parts import Part, check_number, check_part, function_rewards, part_name, unwrapped
from reward_funcs.asynchronous import AsyncReward
from reward_funcs.base import Batch, Grade, Reward, boxed
from reward_funcs.compose import GATE_CLOSED, Composition
from reward_funcs.extract import answer_tag
from reward_funcs.length import CosineLengthReward, LengthPenaltyReward

# Sums of float32 rewards miss 1 by less than this.
TOLERANCE = 1e-6
# Arguments of TRL's call that are no column of the data set, and columns that TRL does not pass on.
NOT_PASSED_ON = frozenset({"prompt", "completion", "completions", "completion_ids", "log_extra", "log_metric"})
# Forms that another part of a composition may want around an answer, with a thought that is in no language. The last
# two are for templates that open the block themselves.
THOUGHT = "2 + 2 = 4"
FORMS = (
    f"<think>\n{THOUGHT}\n</think>\n{{ideal}}",
    f"<think>\n{THOUGHT}\n</think>\n<answer>\n{{inner}}\n</answer>",
    f"{THOUGHT}\n</think>\n{{ideal}}",
    f"{THOUGHT}\n</think>\n<answer>\n{{inner}}\n</answer>",
)
# What a plain function does not say is said for it.
NO_REWARD, BELOW_ONE = "no_reward", "below_one"


class NoGolds(ValueError):
    """The reward reads no golds, so that they cannot be checked with it."""


@dataclass(frozen=True)
class GoldFailure:
    """A gold that does not score 1.0 against itself.

    Args:
        row (`int`): number of the row, from 0.
        gold (`Any`): the gold as it stands in the data.
        completion (`str`): the completion that was made of it.
        reward (`float`, *optional*): what that scored; `None` where it could not be judged.
        reason (`str`): the reward's code for it, or `no_reward` or `below_one`.
    """

    row: int
    gold: Any
    completion: str
    reward: float | None
    reason: str

    def __str__(self) -> str:
        reward = "None" if self.reward is None else f"{self.reward:.4g}"
        return f"row {self.row}: {reward} ({self.reason}), gold {shown(self.gold)}, completion {shown(self.completion)}"


@dataclass(frozen=True)
class GoldReport:
    """What [`check_golds`] found; printed, it is a short report.

    Args:
        rate (`float`): share of the golds that score 1.0, of those that could be put as a completion; 0 for none.
        failures (`list[GoldFailure]`): the golds that do not, in the order of the rows.
        total (`int`, *optional*): rows seen.
        unchecked (`int`, *optional*): rows of which no ideal completion can be made, a gold that is null for instance.

    Example:

    ```python
    >>> report = GoldReport(0.5, [GoldFailure(1, "1.2.3", "\\\\boxed{1.2.3}", None, "bad_gold")], total=3, unchecked=1)
    >>> print(report)
    50.00 % of the golds score 1.0 against themselves: 1 of 2, and 1 row without a gold to check
    causes:
      1  bad_gold
    rows:
      row 1: None (bad_gold), gold 1.2.3, completion \\boxed{1.2.3}

    ```
    """

    rate: float
    failures: list[GoldFailure]
    total: int = 0
    unchecked: int = 0

    @property
    def causes(self) -> Counter[str]:
        """How many golds failed for which reason."""
        return Counter(failure.reason for failure in self.failures)

    def __str__(self) -> str:
        return self.text()

    def text(self, rows: int = 5) -> str:
        """The report with the first `rows` failing rows; what comes from the data is escaped and shortened."""
        checked = self.total - self.unchecked
        passed = checked - len(self.failures)
        counts = f"{passed} of {checked}"
        if self.unchecked:
            counts += f", and {self.unchecked} row{'s' * (self.unchecked > 1)} without a gold to check"
        # rounded down: 100.00 % is said of nothing less
        percent = passed * 10_000 // checked / 100 if checked else 0.0
        lines = [f"{percent:.2f} % of the golds score 1.0 against themselves: {counts}"]
        if self.failures:
            causes = self.causes.most_common()
            width = len(str(causes[0][1]))
            lines += ["causes:", *(f"  {count:>{width}}  {shown(reason)}" for reason, count in causes)]
        if self.failures and rows > 0:
            lines += ["rows:", *(f"  {failure}" for failure in self.failures[:rows])]
            left = len(self.failures) - rows
            lines += [f"  and {left} more"] if left > 0 else []
        return "\n".join(lines)


def shown(value: Any, limit: int = 60) -> str:
    """A value from the data as one short line that no terminal obeys: what is not printable is escaped.

    Example:

    ```python
    >>> shown("a\\x1b[2J" + 100 * "b", limit=8)
    'a\\\\x1b[2Jbb...'

    ```
    """
    text = value if isinstance(value, str) else repr(value)
    escaped = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:limit])
    return escaped + "..." * (len(text) > limit)


def gold_column(reward: Part) -> str:
    """Column in which a reward looks for its golds: its `solution_column`, else `"solution"`.

    Example:

    ```python
    >>> gold_column(len)
    'solution'

    ```
    """
    inner = reward.reward if isinstance(reward, AsyncReward) else reward
    return str(getattr(inner, "solution_column", None) or "solution")


def puzzle_columns(reward: Part) -> tuple[str, ...]:
    """The columns that a puzzle may stand in instead of one column of golds, for a reward that reads such, or its part.

    Example:

    ```python
    >>> from reward_funcs import countdown_reward
    >>> puzzle_columns(countdown_reward), puzzle_columns(len)
    (('target', 'nums'), ())

    ```
    """
    inner = reward.reward if isinstance(reward, AsyncReward) else reward
    names = getattr(inner, "target_column", None), getattr(inner, "nums_column", None)
    if None not in names:
        return tuple(map(str, names))
    return next(filter(None, map(puzzle_columns, getattr(inner, "parts", ()))), ())


def check_golds(
    dataset: Any,
    reward: Part,
    *,
    solution_column: str | None = None,
    max_rows: int | None = None,
    batch_size: int = 256,
) -> GoldReport:
    """Which golds score 1.0 against themselves: `rate = #{reward(ideal(gold), gold) >= 1} / #{golds}`.

    Each gold is put as the completion that answers with it, `reward.ideal(gold)`, and graded with all the columns of
    its row; a gold that fails here can never be rewarded in training. For a composition, which may want a format too,
    it may score 1.0 as it is, after a think block, or after one and in `<answer>` tags. Rows of the same gold, and of
    the same values in the other columns that the reward looks at (for a plain function: all but the prompt), are
    graded once. A puzzle may stand in the columns of its target and its numbers instead, as in training.

    Args:
        dataset (`Dataset | IterableDataset | Iterable[dict] | dict[str, Sequence]`): the rows, or the columns.
        reward (`Callable`): a [`Reward`]; or a function with TRL's signature, whose completion is `\\boxed{gold}`, as
            messages where the column `prompt` holds messages, and for TRL's own functions, which read nothing else.
        solution_column (`str`, *optional*): column of the golds; by default the one that the reward reads, else
            `"solution"`. The reward gets them under the name that it reads.
        max_rows (`int`, *optional*): look at the first so many rows.
        batch_size (`int`, *optional*): golds graded in one call.

    Returns:
        [`GoldReport`]: rate and failures. `completion_ids` are made up, with as many tokens as there are words.

    Raises:
        ValueError: For data without rows or without the column, for splits instead of one, for a coroutine, and for a
            reward that reads no golds or mixes them with something else, such as the length of the text.

    Example:

    ```python
    >>> def exact(completions, solution, **columns):
    ...     return [float(text == f"\\\\boxed{{{gold.strip()}}}") for text, gold in zip(completions, solution)]
    >>> report = check_golds([{"solution": "4"}, {"solution": " 5"}, {"solution": None}], exact)
    >>> report.rate, report.unchecked, report.failures[0].gold
    (0.5, 1, ' 5')

    ```
    """
    for argument, value in (("max_rows", max_rows), ("batch_size", batch_size)):
        if value is not None and value < 1:
            raise ValueError(f"{argument}={value} must be at least 1")
    grader = _Grader(reward.reward if isinstance(reward, AsyncReward) else reward, solution_column)
    rows = islice(_rows(dataset), max_rows)
    grader.refuse_mixed()
    total, unchecked, failures = 0, 0, []
    # one row first: it shows which columns the reward looks at, so which rows are the same for it
    for size in chain([1], repeat(batch_size)):
        batch = list(islice(rows, size))
        if not batch:
            break
        for row, (task, verdict) in enumerate(grader.judged(batch), start=total):
            if verdict is None:
                unchecked += 1
            elif not verdict.passed:
                failures.append(GoldFailure(row, task.gold, verdict.completion, verdict.grade.reward, verdict.reason))
        total += len(batch)
        if total > unchecked:
            grader.refuse_blind()
    if not total:
        raise ValueError("the data set holds no rows; there is no gold to check")
    if total == unchecked and grader.saw_gold:
        grader.refuse_blind()
    checked = total - unchecked
    return GoldReport((checked - len(failures)) / checked if checked else 0.0, failures, total, unchecked)


def _rows(dataset: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(dataset, Mapping):
        if any(hasattr(values, "column_names") for values in dataset.values()):
            raise ValueError(f"these are splits; give one of them: {', '.join(map(shown, dataset))}")
        lengths = {len(values) for values in dataset.values()}
        if len(lengths) > 1:
            raise ValueError(f"the columns have different numbers of values: {sorted(lengths)}")
        return ({name: values[i] for name, values in dataset.items()} for i in range(lengths.pop() if lengths else 0))
    if isinstance(dataset, (str, bytes)) or not isinstance(dataset, Iterable):
        raise ValueError(f"dataset must be a data set, a list of rows or a dict of columns, not {shown(dataset)}")
    return iter(dataset)


class _Task(NamedTuple):
    """A row with its gold and the completion made of it."""

    row: Mapping[str, Any]
    gold: Any
    completion: str | None


class _Verdict(NamedTuple):
    """How a gold was put, and what that scored."""

    completion: str
    grade: Grade

    @property
    def passed(self) -> bool:
        return self.grade.reward is not None and self.grade.reward >= 1.0 - TOLERANCE

    @property
    def reason(self) -> str:
        return self.grade.reason or (NO_REWARD if self.grade.reward is None else BELOW_ONE)

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """The higher, the more it says about the gold: a closed gate has not looked at it."""
        reward = -math.inf if self.grade.reward is None else self.grade.reward
        return self.passed, self.grade.reason != GATE_CLOSED, reward


class _Grader:
    """Grades golds with one reward, each different one once."""

    def __init__(self, reward: Part, column: str | None) -> None:
        check_part(reward, "check_golds")
        self.reward = reward
        self.passed_as = gold_column(reward)
        self.column = column or self.passed_as
        self.puzzle = puzzle_columns(reward)
        self.read: set[str] = set()
        self.saw_gold = False
        self._known: dict[bytes, _Verdict] = {}

    def refuse_mixed(self) -> None:
        """Refuse a reward of the length, which makes something else of the verdict of another one."""
        if not isinstance(self.reward, (CosineLengthReward, LengthPenaltyReward)):
            return
        accuracy = self.reward.accuracy
        part = "accuracy_reward" if accuracy is None else part_name(accuracy)
        raise NoGolds(f"{part_name(self.reward)} reads no golds of its own; check its accuracy part: {part}")

    def refuse_blind(self) -> None:
        """Refuse a reward that looked at no gold; a composition may have had no occasion to."""
        gold_columns = {self.passed_as, *self.puzzle}
        if not isinstance(self.reward, Reward) or isinstance(self.reward, Composition) or gold_columns & self.read:
            return
        if getattr(self.reward, "solution_column", None) is None:
            raise NoGolds(
                f"{part_name(self.reward)} reads no golds; check the reward for the answers that it is used with"
            )

    def judged(self, rows: Sequence[Mapping[str, Any]]) -> list[tuple[_Task, _Verdict | None]]:
        """Each row's task and verdict, in order; no verdict where there is no completion."""
        tasks = [self._task(row) for row in rows]
        verdicts = iter(self._verdicts([task for task in tasks if task.completion is not None]))
        return [(task, None if task.completion is None else next(verdicts)) for task in tasks]

    def _task(self, row: Mapping[str, Any]) -> _Task:
        if not isinstance(row, Mapping):
            raise ValueError(f"a row must be a dict of its columns, not {shown(row)}")
        gold = row.get(self.column)
        if gold is None and self.puzzle and all(row.get(name) is not None for name in self.puzzle):
            target, nums = self.puzzle
            gold = {"target": row[target], "nums": row[nums]}
        elif self.column not in row:
            columns = ", ".join(shown(name) for name in row)
            raise ValueError(
                f"the data has no column {self.column!r}; its columns are {columns}; name that of the golds with "
                "solution_column=..."
            )
        self.saw_gold |= gold is not None
        ideal = self.reward.ideal(gold) if isinstance(self.reward, Reward) else boxed(gold)
        if ideal is None and isinstance(gold, str) and not gold.strip():
            ideal = boxed(gold)  # nothing stands there, but it is no null: the reward says what it makes of it
        return _Task(row, gold, ideal)

    def _verdicts(self, tasks: Sequence[_Task]) -> list[_Verdict]:
        keys = [self._key(task) for task in tasks]
        fresh = {key: task for key, task in zip(keys, tasks, strict=True) if key not in self._known}
        before = len(self.read)
        verdicts = self._best(list(fresh.values()))
        if len(self.read) > before:  # the keys did not tell apart what the reward does
            self._known.clear()
            if len(fresh) < len(tasks):
                return self._verdicts(tasks)
            keys = [self._key(task) for task in tasks]
            fresh = dict(zip(keys, tasks, strict=True))
        self._known.update(zip(fresh, verdicts, strict=True))
        return [self._known[key] for key in keys]

    def _best(self, tasks: Sequence[_Task]) -> list[_Verdict]:
        """Verdicts on the golds as they are put, or in the form that a composition likes best."""
        best = self._judge(tasks)
        for form in FORMS if isinstance(self.reward, Composition) else ():
            failed = [index for index, verdict in enumerate(best) if not verdict.passed]
            formed = [tasks[index]._replace(completion=_formed(form, tasks[index])) for index in failed]
            for index, verdict in zip(failed, self._judge(formed), strict=True):
                best[index] = max(best[index], verdict, key=lambda one: one.rank)
        return best

    def _key(self, task: _Task) -> bytes:
        names = sorted(self.read - {self.passed_as, "completion_ids"})
        values = [task.gold, *(_plain(task.row.get("prompt" if name == "prompts" else name)) for name in names)]
        return blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def _judge(self, tasks: Sequence[_Task]) -> list[_Verdict]:
        if not tasks:
            return []
        texts = [task.completion or "" for task in tasks]
        names = dict.fromkeys(name for task in tasks for name in task.row if name not in NOT_PASSED_ON)
        columns: dict[str, Any] = {name: [task.row.get(name) for task in tasks] for name in names}
        columns[self.passed_as] = [task.gold for task in tasks]
        columns["completion_ids"] = [list(range(len(text.split()) or 1)) for text in texts]
        prompts = [task.row.get("prompt") for task in tasks]
        if any(prompt is not None for prompt in prompts):
            columns["prompts"] = prompts
        return [_Verdict(*pair) for pair in zip(texts, self._grades(texts, columns), strict=True)]

    def _grades(self, texts: list[str], columns: dict[str, Any]) -> list[Grade]:
        if isinstance(self.reward, Reward):
            batch = Batch(texts, columns)
            batch.read = self.read
            grades = self.reward.grade(batch)
            check_number(grades, batch, part_name(self.reward))
            return grades
        messages = [[{"role": "assistant", "content": text}] for text in texts]
        batch = Batch(messages if self._wants_messages(columns) else texts, columns)
        batch.read = self.read
        return [Grade(reward) for reward in function_rewards(self.reward, batch, part_name(self.reward))]

    def _wants_messages(self, columns: dict[str, Any]) -> bool:
        if str(getattr(unwrapped(self.reward), "__module__", "")).startswith("trl.rewards"):
            return True
        prompts = columns.get("prompts")
        return prompts is not None and prompts[0] is not None and not isinstance(prompts[0], str)


def _formed(form: str, task: _Task) -> str:
    ideal = task.completion or ""
    return form.format(ideal=ideal, inner=answer_tag(ideal) or ideal)


def _plain(value: Any) -> Any:
    """Arrays as lists: the `repr` of a long array leaves out its middle."""
    return value.tolist() if hasattr(value, "tolist") else value
