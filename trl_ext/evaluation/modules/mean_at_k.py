"""Mean correctness for `evaluate.load`: pass@1 averaged over the completions of each problem."""

from collections.abc import Mapping
from typing import Any

from trl_ext.evaluation.estimators import mean_at_k
from trl_ext.evaluation.modules import _base


class MeanAtK(_base.KMetric):
    """Mean over problems of the share of correct completions; `k` has no part in it."""

    prefix = "mean"
    description = "Mean over problems of the share of correct completions: pass@1 over n samples."

    def by_problem(self, problems: list[_base.Problem], options: Mapping[str, Any]) -> dict[str, list[float]]:
        """The share of each problem that has a verdict."""
        most = max(len(problem.correct) for problem in problems)
        return {f"mean@{most}": [self.figure(problem, most, options) for problem in problems if problem.num_judged]}

    def figure(self, problem: _base.Problem, k: int, options: Mapping[str, Any]) -> float:
        """The mean of one problem."""
        return mean_at_k([problem.correct])
