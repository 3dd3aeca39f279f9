"""What the metrics for `evaluate.load` share: inputs, options, and grading that is done once for all of them."""

from __future__ import annotations

import hashlib
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import datasets
import evaluate

from trl_ext._text import did_you_mean
from trl_ext.errors import UserError
from trl_ext.evaluation.estimators import Verdict, best_of_k
from trl_ext.evaluation.grading import VOTING_TASKS, Graded, grade, judged_groups
from trl_ext.evaluation.statistics import bootstrap_interval
from trl_ext.evaluation.votes import vote_score

INPUTS = """
Args:
    predictions (`list[list[str]]`): P problems with n completions each.
    references (`list[str]`): P gold answers.
    k (`int` or `list[int]`, *optional*): samples that are looked at; all of them by default, for pass_at_k 1. A
        problem with fewer completions that have a verdict is left out, which a warning counts.
    task (`str`, defaults to `"math"`): `"math"`, `"choice"` or `"countdown"`; it chooses the reward that grades.
    reward (`Callable`, *optional*): a reward function with TRL's signature that grades instead.
    scores (`list[list[float]]`, *optional*): of best_of_k: P lists of n scores, by which the best completion is chosen.
    scorer (`Callable` or `str`, *optional*): of best_of_k, instead of scores: a reward function that gives them, or
        the name of one of `reward_funcs`.
    confidence (`float`, *optional*): adds a bootstrap interval over the problems: "pass@8/low" and "pass@8/high".
    seed (`int`, defaults to 0): of the interval, and of the subsets of cons_at_k.
    num_subsets (`int`, defaults to 1000): of cons_at_k, where the subsets are drawn.
Returns:
    One figure for each k: "pass@8", "cons@8", "best_of@8"; mean_at_k returns "mean@n", n being the largest number of
    completions of a problem.
"""
CITATION = """\
@article{chen2021codex, title={Evaluating Large Language Models Trained on Code}, author={Chen, Mark and others},
journal={arXiv:2107.03374}, year={2021}}
@article{wang2022selfconsistency, title={Self-Consistency Improves Chain of Thought Reasoning in Language Models},
author={Wang, Xuezhi and others}, journal={arXiv:2203.11171}, year={2022}}
"""
# what a call or `evaluate.load` may set, each with its default
OPTIONS: dict[str, Any] = {
    "k": None,
    "task": "math",
    "reward": None,
    "scores": None,
    "scorer": None,
    "confidence": None,
    "seed": 0,
    "num_subsets": 1000,
}
OF_EVALUATE = (  # what `evaluate.load` hands to the constructor
    "config_name",
    "process_id",
    "num_process",
    "cache_dir",
    "keep_in_memory",
    "experiment_id",
    "hash",
    "max_concurrent_cache_files",
    "timeout",
)


class Problem(NamedTuple):
    """One problem's graded completions.

    correct: (n) 1.0, 0.0, or None where the grader has no verdict.
    answers: (n) answer that votes, or None.
    scores: (n) score by which the best one is chosen, empty where nothing is chosen.
    """

    correct: list[Verdict]
    answers: list[str | None]
    scores: list[Verdict]

    @property
    def num_judged(self) -> int:
        """Completions with a verdict."""
        return sum(verdict is not None for verdict in self.correct)


class KMetric(evaluate.Metric, ABC):
    """A metric over n completions of each problem, of which k are looked at.

    Options are given to `compute`, or to `evaluate.load` for all calls; each metric takes those of the others and
    ignores them, so that `evaluate.combine` can pass one set of them to all.
    """

    prefix = ""  # of the figures' names
    description = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _check_names(set(kwargs) - set(OF_EVALUATE))
        self.options = OPTIONS | {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        super().__init__(*args, **kwargs)

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=self.description,
            citation=CITATION,
            inputs_description=INPUTS,
            features=datasets.Features({"predictions": datasets.Sequence(text), "references": text}),
        )

    def _compute(self, *, predictions: list[list[str]], references: list[str], **given: Any) -> dict[str, float]:
        _check_names(given)
        options = self.options | given
        problems = self.problems(predictions, references, options)
        return self.figures(problems, options)

    def problems(
        self, predictions: list[list[str]], references: list[str], options: Mapping[str, Any]
    ) -> list[Problem]:
        """The problems with what is known of each of their completions."""
        graded = _graded(predictions, references, options["task"], options["reward"])
        return [Problem([_verdict(one) for one in row], [one.answer for one in row], []) for row in graded]

    def figures(self, problems: list[Problem], options: Mapping[str, Any]) -> dict[str, float]:
        """The mean of each figure over the problems, with its interval where one is asked for."""
        found: dict[str, float] = {}
        for name, values in self.by_problem(problems, options).items():
            found[name] = math.fsum(values) / len(values) if values else math.nan
            if options["confidence"] is not None:
                found |= _interval(name, values, options["confidence"], options["seed"])
        return found

    def by_problem(self, problems: list[Problem], options: Mapping[str, Any]) -> dict[str, list[float]]:
        """The figures of the problems that have enough verdicts, for each k."""
        return {f"{self.prefix}@{k}": self._values(problems, k, options) for k in self._ks(problems, options["k"])}

    def default_k(self, problems: list[Problem]) -> int:
        """What `k=None` stands for: the most completions that every problem has."""
        return min(len(problem.correct) for problem in problems)

    def _ks(self, problems: list[Problem], k: Any) -> list[int]:
        ks = list(k) if isinstance(k, Sequence) and not isinstance(k, str) else [k]
        if not ks:
            raise UserError("k=[] asks for no figure; give a whole number of at least 1, or a list of them")
        ks = [self.default_k(problems) if one is None else one for one in ks]
        for one in ks:
            if isinstance(one, bool) or not isinstance(one, int) or one < 1:
                raise UserError(f"k={one!r} must be a whole number of at least 1, or a list of them")
            if (most := max(len(problem.correct) for problem in problems)) < one:
                raise UserError(f"k={one} but no problem has more than {most} completions; lower k or draw more")
        return ks

    def _values(self, problems: list[Problem], k: int, options: Mapping[str, Any]) -> list[float]:
        kept = [problem for problem in problems if problem.num_judged >= k]
        if len(kept) < len(problems):
            warnings.warn(
                f"{self.prefix}@{k} leaves out {len(problems) - len(kept)} of {len(problems)} problems that have fewer "
                f"than {k} completions with a verdict",
                stacklevel=2,
            )
        return [self.figure(problem, k, options) for problem in kept]

    @abstractmethod
    def figure(self, problem: Problem, k: int, options: Mapping[str, Any]) -> float:
        """The figure of one problem."""


def _interval(name: str, values: list[float], confidence: float, seed: int) -> dict[str, float]:
    if not values:
        return {f"{name}/low": math.nan, f"{name}/high": math.nan}
    interval = bootstrap_interval(values, confidence=confidence, seed=seed)
    return {f"{name}/low": interval.low, f"{name}/high": interval.high}


def vote_of(problem: Problem, k: int, options: Mapping[str, Any]) -> float:
    """cons@k of one problem; an error where the task has no answers to count, and not a figure of 0."""
    if options["task"] not in VOTING_TASKS:
        raise UserError(f"task={options['task']!r} has no vote; cons_at_k takes {' and '.join(VOTING_TASKS)}")
    groups = judged_groups(problem.answers, problem.correct, options["task"])
    k_or_all = None if k == problem.num_judged else k
    return vote_score(groups, problem.correct, k=k_or_all, seed=options["seed"], num_subsets=options["num_subsets"])


def best_of(problem: Problem, k: int, options: Mapping[str, Any]) -> float:
    """best-of-k of one problem."""
    return best_of_k(problem.scores, problem.correct, k)


def scores_of(predictions: list[list[str]], references: list[str], options: Mapping[str, Any]) -> list[list[Verdict]]:
    """The scores by which the best completions are chosen, given or computed."""
    given, scorer = options["scores"], options["scorer"]
    if (given is None) == (scorer is None):
        raise UserError(
            "best_of_k needs scores= (one list of scores a problem) or scorer= (a reward function, or the name of one "
            'of reward_funcs such as "think_format_reward")' + ("" if given is None else ", and not both")
        )
    if given is None:
        chosen = _reward_named(scorer) if isinstance(scorer, str) else scorer
        graded = _graded(predictions, references, options["task"], chosen)
        return [[one.score for one in row] for row in graded]
    if not _is_table(given) or [len(row) for row in given] != [len(row) for row in predictions]:
        raise UserError(
            "scores= must have the shape of the predictions: one score (a number or None) for each completion of each "
            "problem"
        )
    return [list(row) for row in given]


def _is_table(scores: Any) -> bool:
    """Whether these are lists of numbers or None, and no text and no flat list."""
    if not hasattr(scores, "__len__") or not all(hasattr(row, "__len__") for row in scores):
        return False
    return all(isinstance(score, Real | None) for row in scores for score in row)


def _reward_named(name: str) -> Callable[..., Any]:
    import reward_funcs

    known = [one for one in reward_funcs.__all__ if one.endswith("_reward")]
    if name not in known:
        raise UserError(f"scorer={name!r} is no reward of reward_funcs{did_you_mean(name, known)}")
    found: Callable[..., Any] = getattr(reward_funcs, name)
    return found


def _verdict(one: Graded) -> Verdict:
    return None if one.is_correct is None else float(one.is_correct)


def _check_names(names: Iterable[str]) -> None:
    for name in sorted(names):
        if name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS)
            raise UserError(f"{name}= is no option here{hint}; options are {', '.join(OPTIONS)}")


_last: dict[str, list[list[Graded]]] = {}  # the last grading by the grader of a task: combined metrics share it


def _graded(
    predictions: list[list[str]], references: list[str], task: str, reward: Callable[..., Any] | None
) -> list[list[Graded]]:
    if len(predictions) == 0 or not all(len(row) for row in predictions):
        raise UserError("predictions must be a list of problems with at least one completion each")
    rows = [{"prompt": "", "solution": gold, "task": task} for gold in references]
    if reward is not None:  # which may depend on more than its arguments
        return grade(rows, predictions, reward=reward)
    key = hashlib.blake2b(repr((predictions, references, task)).encode("utf-8", "surrogatepass")).hexdigest()
    if key not in _last:
        found = grade(rows, predictions)
        _last.clear()
        _last[key] = found
    return _last[key]
