r"""Rubrics: criteria with score ranges, scored by rules or by a judge, as one reward.

For a rubric called `rubric_reward` with a criterion `clarity` the logs hold, beside the reward itself:

- columns `rubric_reward/clarity` (the score), `rubric_reward/clarity/reason` (`scored`, or why there is none) and
  `rubric_reward/clarity/answer` (what a rule read out of the completion);
- columns `rubric_reward/scores` and `rubric_reward/reasons`: JSON by the name of the criterion, those of the row
  included, with what the judge gave as its reasons;
- metrics `rubric_reward/clarity` (mean score), `rubric_reward/clarity/none/<cause>` and
  `rubric_reward/none/<cause>` (how many were not judged, and why), and `rubric_reward/judge/<count>` (requests,
  replies from the cache, retries, tokens, ... of the call).

As part of a composition the criteria are logged under its name; the two JSON columns and the counts are left out.
"""

from __future__ import annotations

import difflib
import json
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from reward_funcs._judge_base import Judge, Verdict
from reward_funcs._judge_callable import as_judge as as_judge
from reward_funcs._judge_clean import encodable
from reward_funcs._judge_prompt import OVERALL, OVERALL_SCORE, JudgeTask, prompt_text
from reward_funcs._judge_report import CHECKED_ROWS, check_rows
from reward_funcs._parts import checked_grades, function_rewards
from reward_funcs._rubric_criterion import RESERVED, in_order
from reward_funcs._rubric_criterion import Criterion as Criterion
from reward_funcs._rubric_rows import RAR_WEIGHTS, by_category, preset_path, row_criteria, settings_from
from reward_funcs._rubric_rows import preset_names as preset_names
from reward_funcs._settings import check_flag, check_name, check_setting
from reward_funcs.base import NOT_ASKED, Batch, Grade, Reward, plain
from reward_funcs.compose import Composition, MissingRule, _Judged, _log_parts
from reward_funcs.extract import THINK_CLOSE

Aggregation = Literal["weighted_sum", "product", "holistic"]
AGGREGATIONS = ("weighted_sum", "product", "holistic")

SCORED, REQUIRED_FAILED, BAD_RUBRIC, NOTHING_SCORED = "scored", "required_failed", "bad_rubric", "nothing_scored"


class _Row(NamedTuple):
    """One completion: its criteria, the grades of their scores by name, and what the judge said."""

    criteria: tuple[Criterion, ...]
    grades: dict[str, Grade]
    reasons: dict[str, str]


class Rubric(Composition):
    r"""What a completion earns by the criteria of a rubric, of what it could earn: `sum(w * score) / sum(w * max)`.

    The reward is clipped to [0, 1]. Scores come from the scorer of a criterion, which is any reward of this package or
    function with TRL's signature, and from the judge for all others, which is asked once for all of them. The order of
    the criteria changes nothing: the judge sees them sorted by name.

    Aggregations:

    - `"weighted_sum"`: as above; faults (`max_score=0`) cost points and do not count in what can be earned;
    - `"product"`: `prod(((score - min) / (max - min)) ** w)`, where one criterion at its lowest is enough for 0;
    - `"holistic"`: the judge gives one score from 0 to 10 for the rubric as a whole, `reward = score / 10`.

    A criterion that cannot be judged makes the reward `None`, with the cause as its reason. With `none="skip"` it is
    left out of both sums. A neutral `None` of a scorer is always left out. A required criterion at its lowest score
    makes the reward 0, whatever else is missing; one without a score makes it `None`. Where a rule finds that, the
    judge is not asked.

    Args:
        criteria (`Iterable[Criterion]`): the criteria; none are needed where each row has its own.
        judge (`Judge | Callable`, *optional*): scores the criteria without a scorer; a function from messages to a text
            is wrapped in `CallableJudge`.
        aggregation (`str`, *optional*, defaults to `"weighted_sum"`): one of those above.
        none (`str`, *optional*, defaults to `"propagate"`): `"propagate"` or `"skip"`, for what cannot be judged.
        rubric_column (`str`, *optional*): column with further criteria for each row: a list of mappings, or JSON of
            one, with the fields of [`Criterion`], of RaR or of HealthBench. A row that holds none, or faults alone, is
            judged by the criteria of the rubric, where these can earn points; else it is not judged (`bad_rubric`),
            nor is one whose criteria cannot be read.
        reference_column (`str`, *optional*): column of right answers that the judge gets to see.
        category_weights (`Mapping[str, float]`, *optional*): factors for the weights of the criteria of a category;
            rows in the form of RaR have those of the paper (Essential 1.0, Important 0.7, Optional 0.3, Pitfall 0.9) in
            place of their numbers, unless it is given; `{}` keeps the numbers.
        guidance (`str`, *optional*): for the judge, how to weigh the criteria.
        think_prefilled (`bool`, *optional*, defaults to `False`): whether the chat template opens the think block, so
            that a completion without `</think>` is all thought, of which the judge sees nothing.
        check_at_start (`bool`, *optional*, defaults to `False`): before the first rewards, have answers from the
            `reference_column`, where there is one, and empty completions judged for up to four rows: the first must
            earn at least 0.9, the second at most 0.1. For references that deserve full marks.
        name (`str`, *optional*): name in TRL's logs.

    Raises:
        ValueError: For criteria or settings that make no sense. When called: for a scorer that returns what is outside
            the scale of its criterion, for a missing column, and for a judge that fails the check at the start.

    Source: lecture "Deep Reinforcement Learning", rubric-based rewards (reward = points / total points). Weights,
    faults and the two other aggregations come from RaR (arXiv 2507.17746) and HealthBench (arXiv 2505.08775); their
    implicit score runs from 1 to 10, ours from 0, so that the worst answer earns nothing.

    Example:

    ```python
    >>> def right(completions, solution, **columns):
    ...     return [5.0 if gold in text else 0.0 for text, gold in zip(completions, solution)]
    >>> def short(completions, **columns):
    ...     return [1.0 if len(text) < 20 else 0.5 for text in completions]
    >>> rubric = Rubric([
    ...     Criterion("correctness", "The answer is right.", max_score=5, scorer=right),
    ...     Criterion("clarity", "The answer is concise.", max_score=2, scorer=short, scale=True),
    ... ])
    >>> rubric(["60 km/h", "The average speed is 60 km/h", "50 km/h"], solution=["60 km/h"] * 3)
    [1.0, 0.857..., 0.285...]

    ```
    """

    default_name = "rubric_reward"

    def __init__(
        self,
        criteria: Iterable[Criterion] = (),
        *,
        judge: Judge | Callable[..., Any] | None = None,
        aggregation: Aggregation = "weighted_sum",
        none: MissingRule = "propagate",
        rubric_column: str | None = None,
        reference_column: str | None = None,
        category_weights: Mapping[str, float] | None = None,
        guidance: str = "",
        think_prefilled: bool = False,
        check_at_start: bool = False,
        name: str | None = None,
    ) -> None:
        for argument, value, allowed in (
            ("aggregation", aggregation, AGGREGATIONS),
            ("none", none, ("propagate", "skip")),
        ):
            if value not in allowed:
                raise ValueError(f"{argument}={value!r:.60} is unknown; choose {', '.join(map(repr, allowed))}")
        self.category_weights = _checked_weights(category_weights)
        self.criteria = tuple(by_category(one, self.category_weights) for one in _listed(criteria))
        super().__init__([one.scorer for one in self.criteria if one.scorer is not None], name=name)
        self.aggregation = aggregation
        self.none = none
        self.rubric_column = None if rubric_column is None else check_name("rubric_column", rubric_column)
        self.reference_column = None if reference_column is None else check_name("reference_column", reference_column)
        if not isinstance(guidance, str):
            raise ValueError(f"guidance={guidance!r:.60}: it must be a text; leave it out for none")
        self.guidance = guidance
        self.think_prefilled = check_flag("think_prefilled", think_prefilled)
        self.check_at_start = check_flag("check_at_start", check_at_start)
        self._has_started = False
        self.judge = as_judge(judge)
        self._check()

    @classmethod
    def from_preset(cls, name: str, /, **settings: Any) -> Rubric:
        """A rubric that comes with this package: [`preset_names`] lists them.

        Args:
            name (`str`): name of the preset.
            **settings: arguments of [`Rubric`], `judge=` for instance, which replace those of the preset.

        Raises:
            ValueError: For an unknown name; the message names the one that was meant.

        Example:

        ```python
        >>> rubric = Rubric.from_preset("correctness_reasoning_clarity", judge=print)
        >>> [(one.name, one.max_score) for one in rubric.criteria]
        [('correctness', 5), ('reasoning', 3), ('clarity', 2)]
        >>> Rubric.from_preset("maths_solutions", judge=print)
        Traceback (most recent call last):
        ValueError: there is no rubric preset 'maths_solutions'; did you mean 'maths_solution'?

        ```
        """
        return cls.from_file(preset_path(name), **settings)

    @classmethod
    def from_file(cls, path: str | Path, **settings: Any) -> Rubric:
        """A rubric from a JSON or YAML file: a list of criteria, or a mapping with `criteria` and other settings.

        Args:
            path (`str | Path`): the file. A `scorer` in it is the name of a reward of this package, or `module.name`.
            **settings: arguments of [`Rubric`], which replace those of the file.

        Raises:
            ValueError: For a file that cannot be read or holds no rubric; the message says why.
        """
        import inspect

        given = settings_from(path)
        known = [name for name in inspect.signature(cls).parameters if name != "judge"]
        for key in given:
            if key not in known:
                close = difflib.get_close_matches(str(key), known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"the settings are {', '.join(known)}"
                raise ValueError(f"{Path(path).name}: a rubric has no setting {key!r}; {hint}")
        return cls(**{**given, **settings})

    def _check_names(self) -> None:
        """Refuse names of criteria, and of categories, that do not go together."""
        names = [one.name for one in self.criteria]
        double = [name for name, count in Counter(names).items() if count > 1]
        if double:
            raise ValueError(f"two criteria are called {double[0]!r}; give each a name of its own")
        for name in names:
            owner, _, column = name.rpartition("/")
            clash = owner in names and column in ("reason", "answer")
            if name in RESERVED or clash or any(name.startswith(f"{one}/none/") for one in names):
                raise ValueError(f"a criterion cannot be called {name!r}, which the logs use; give it another name")
        present = {one.category for one in self.criteria if one.category is not None}
        # which categories rows have is known for RaR alone
        known = sorted({*present, *(() if self.rubric_column is None else RAR_WEIGHTS)})
        for category in self.category_weights or ():
            close = difflib.get_close_matches(category, known, n=1)
            if category not in known and (self.rubric_column is None or close):
                hint = f"did you mean {close[0]!r}?" if close else f"the categories are {', '.join(known) or 'none'}"
                raise ValueError(f"category_weights names {category!r:.60}, which no criterion has; {hint}")

    def _check(self) -> None:
        """Refuse what only shows in the criteria together."""
        self._check_names()
        if not self.criteria and self.rubric_column is None:
            raise ValueError("the rubric has no criteria; give it some, or a rubric_column that holds those of a row")
        ruled = [one.name for one in self.criteria if one.scorer is not None]
        if self.aggregation == "holistic" and ruled:
            raise ValueError(
                f"aggregation='holistic' lets the judge score the whole rubric, and criterion {ruled[0]!r} has a "
                "scorer; leave the scorer out, or add that reward with Sum or Gate"
            )
        positive = _can_earn(self.criteria)
        counts = any(one.weight > 0 for one in self.criteria)
        if self.rubric_column is None and not (positive or (counts and self.aggregation == "product")):
            raise ValueError(
                "no criterion of the rubric can earn points; give one of them max_score and weight above 0"
            )
        unscored = [one.name for one in self.criteria if one.scorer is None]
        if self.judge is None and (unscored or self.rubric_column is not None):
            who = f"criterion {unscored[0]!r} has" if unscored else "the criteria of the rows have"
            raise ValueError(f"{who} no scorer and the rubric has no judge; give it judge=, or each criterion scorer=")

    def rewards(self, batch: Batch) -> list[float | None]:
        """Grade a batch, report on the rubric and on each criterion, and return the rewards."""
        counted: Counter[str] = Counter()
        if self.judge is None:
            rows = self._rows(batch, self.__name__)
        else:
            with self.judge.counting() as counted:
                rows = self._rows(batch, self.__name__)
        judged = self._judged_rows(rows)
        _log_parts(batch, self.__name__, judged)
        batch.log_extra(f"{self.__name__}/scores", [_as_json(_scores(row)) for row in rows])
        batch.log_extra(f"{self.__name__}/reasons", [_as_json(row.reasons if row else {}) for row in rows])
        for count in sorted(self.judge.counts if self.judge else ()):
            batch.log_metric(f"{self.__name__}/judge/{count}", float(counted[count]))
        return self._reported(batch, judged.grades)

    def close(self) -> None:
        """Close the scorers and the judge."""
        super().close()
        if self.judge is not None:
            self.judge.close()

    def _judge(self, batch: Batch, path: str) -> _Judged:
        return self._judged_rows(self._rows(batch, path))

    def _judged_rows(self, rows: Sequence[_Row | None]) -> _Judged:
        """The grades of the rows, and those of the criteria that all rows have."""
        names = [OVERALL] if self.aggregation == "holistic" else [one.name for one in self.criteria]
        parts = {
            name: _Judged([NOT_ASKED if row is None else row.grades.get(name, NOT_ASKED) for row in rows], {}, True)
            for name in names
        }
        return _Judged([self._combined(row) for row in rows], parts, True)

    def _rows(self, batch: Batch, path: str) -> list[_Row | None]:
        """What is known of each completion when all scorers and the judge were asked; `None` for a bad rubric."""
        rows = self._open_rows(batch)
        if self.check_at_start and not self._has_started:
            self._start(batch, [index for index, row in enumerate(rows) if row is not None])
        for one in self.criteria:
            if one.scorer is not None:
                for row, grade in zip(rows, _scored(one, batch, f"{path}/{one.name}"), strict=True):
                    if row is not None:
                        row.grades[one.name] = grade
        if self.judge is not None:
            self._ask(self.judge, batch, rows)
        return rows

    def _start(self, batch: Batch, rows: Sequence[int]) -> None:
        """Check the judge on some rows of the first batch."""
        self._has_started = True  # what is asked for the check is asked of this rubric
        try:
            check_rows(self, batch, rows[:CHECKED_ROWS], self._references(batch))
        except ValueError:
            self._has_started = False
            raise

    def _open_rows(self, batch: Batch) -> list[_Row | None]:
        if self.rubric_column is None:
            return [_Row(self.criteria, {}, {}) for _ in range(len(batch))]
        values = batch.column(self.rubric_column, needed_by=self.__name__, argument="rubric_column")
        known: dict[Any, tuple[Criterion, ...] | None] = {}
        rows: list[_Row | None] = []
        for value in values:
            value = plain(value)
            key = value if isinstance(value, str) else ("no text", repr(value))
            if key not in known:
                known[key] = self._criteria_of(value)
            criteria = known[key]
            rows.append(None if criteria is None else _Row(criteria, {}, {}))
        return rows

    def _criteria_of(self, value: Any) -> tuple[Criterion, ...] | None:
        """The criteria of a row together with those of the rubric, `None` where it has none that can be read."""
        taken = {one.name for one in self.criteria}
        try:
            alone = not _can_earn(self.criteria)
            return (*self.criteria, *row_criteria(value, self.category_weights, taken, alone=alone))
        except ValueError as error:
            if not getattr(self, "_warned_of_rows", False):
                self._warned_of_rows = True
                warnings.warn(
                    f"{self.__name__} does not judge rows whose rubric it cannot read, here: {error}", stacklevel=2
                )
            return None

    def _ask(self, judge: Judge, batch: Batch, rows: Sequence[_Row | None]) -> None:
        """Have the judge score what has no scorer, of the rows that a rule has not decided."""
        asked = [index for index, row in enumerate(rows) if row is not None and not _failed(row)]
        tasks: dict[int, JudgeTask] = {}
        prompts = batch.optional("prompts")
        references = self._references(batch)
        for index in asked:
            row = rows[index]
            assert row is not None
            criteria = in_order(tuple(one for one in row.criteria if one.scorer is None))
            if criteria:
                tasks[index] = JudgeTask(
                    self._visible(batch.texts[index]),
                    criteria,
                    "" if prompts is None else prompt_text(prompts[index]),
                    references[index],
                    self.guidance,
                    self.aggregation == "holistic",
                )
        for (index, task), verdict in zip(tasks.items(), judge.score(list(tasks.values())), strict=True):
            row = rows[index]
            assert row is not None
            row.grades.update({one.name: _grade_of(verdict, one.name) for one in task.scored()})
            row.reasons.update(verdict.reasons)

    def _visible(self, text: str) -> str:
        return "" if self.think_prefilled and THINK_CLOSE not in text else text

    def _references(self, batch: Batch) -> list[str | None]:
        if self.reference_column is None:
            return [None] * len(batch)
        values = batch.column(self.reference_column, needed_by=self.__name__, argument="reference_column")
        return [None if value is None else value if isinstance(value, str) else _as_json(value) for value in values]

    def _combined(self, row: _Row | None) -> Grade:
        """The grade of one completion from the scores of its criteria."""
        if row is None:
            return Grade(None, BAD_RUBRIC)
        if self.aggregation == "holistic":
            overall = row.grades[OVERALL]
            return overall if overall.reward is None else overall._replace(reward=overall.reward / OVERALL_SCORE)
        answer = next((grade.answer for grade in row.grades.values() if grade.answer is not None), None)
        if _failed(row):
            return Grade(0.0, REQUIRED_FAILED, answer)
        known, missing = [], []
        for one in in_order(row.criteria):
            grade = row.grades[one.name]
            if grade.reward is not None:
                known.append((one, grade.reward))
            elif one.required or (one.weight > 0 and self.none == "propagate" and not _is_neutral(one, grade)):
                missing.append(grade)
        if missing:
            return Grade(None, missing[0].reason, answer)
        reward = _product(known) if self.aggregation == "product" else _weighted_sum(known)
        if reward is None:
            unknown = [row.grades[one.name] for one in in_order(row.criteria) if row.grades[one.name].reward is None]
            return Grade(None, unknown[0].reason if unknown else NOTHING_SCORED, answer)
        return Grade(reward, SCORED, answer)


def _weighted_sum(known: Sequence[tuple[Criterion, float]]) -> float | None:
    """`sum(w * score) / sum(w * max)` clipped to [0, 1]; `None` where nothing can be earned."""
    # fsum: the same in any order
    earned = math.fsum(one.weight * score for one, score in known)
    possible = math.fsum(one.weight * one.max_score for one, _ in known)
    return min(max(earned / possible, 0.0), 1.0) if possible > 0 else None


def _product(known: Sequence[tuple[Criterion, float]]) -> float | None:
    """`prod(share ** w)` of the shares of the scales; `None` where no criterion counts."""
    shares = sorted(one.share(score) ** one.weight for one, score in known if one.weight > 0)
    return math.prod(shares) if shares else None


def _can_earn(criteria: Iterable[Criterion]) -> bool:
    return any(one.weight > 0 and one.max_score > 0 for one in criteria)


def _failed(row: _Row) -> bool:
    """Whether a required criterion is known to be at its lowest score."""
    return any(
        one.required and one.name in row.grades and row.grades[one.name].reward == one.min_score for one in row.criteria
    )


def _scored(criterion: Criterion, batch: Batch, path: str) -> list[Grade]:
    """Grades of the completions by the scorer of a criterion, as scores on its scale."""
    scorer = criterion.scorer
    assert scorer is not None
    if isinstance(scorer, Reward):
        grades = checked_grades(scorer, batch, path)
    else:
        grades = [Grade(score, "" if score is None else SCORED) for score in function_rewards(scorer, batch, path)]
    return [
        grade._replace(reason=grade.reason or "no_score")
        if grade.reward is None
        else grade._replace(reward=criterion.score_of(grade.reward))
        for grade in grades
    ]


def _is_neutral(criterion: Criterion, grade: Grade) -> bool:
    """Whether a scorer has nothing to say of this completion, which is no missing score."""
    scorer = criterion.scorer
    if isinstance(scorer, Composition):
        return grade.reason in frozenset().union(*scorer._neutral)
    return isinstance(scorer, Reward) and grade.reason in scorer.neutral_reasons


def _grade_of(verdict: Verdict, name: str) -> Grade:
    return Grade(None, verdict.cause) if verdict.cause else Grade(verdict.scores[name], SCORED)


def _scores(row: _Row | None) -> dict[str, float | None]:
    grades = row.grades if row else {}
    return {name: grades[name].reward for name in sorted(grades)}


def _as_json(value: Any) -> str:
    return encodable(json.dumps(value, ensure_ascii=False, sort_keys=True, default=str))


def _listed(criteria: Any) -> tuple[Criterion, ...]:
    if isinstance(criteria, (str, bytes, Mapping, Criterion)) or not isinstance(criteria, Iterable):
        raise ValueError(
            f"criteria={criteria!r:.60}: it must be a list of Criterion; Rubric.from_preset and Rubric.from_file read "
            "them by name"
        )
    listed = tuple(criteria)
    for one in listed:
        if not isinstance(one, Criterion):
            raise ValueError(f"criteria holds {one!r:.60}, which is no Criterion; write Criterion(name, description)")
    return listed


def _checked_weights(weights: Any) -> dict[str, float] | None:
    if weights is None:
        return None
    if not isinstance(weights, Mapping):
        raise ValueError(f"category_weights={weights!r:.60}: it must be a mapping such as {{'Essential': 1.0}}")
    return {
        check_name("category_weights", name): check_setting(f"category_weights[{name!r:.40}]", weight, 0)
        for name, weight in weights.items()
    }
