"""pass@k for `evaluate.load`: whether at least one of k completions is correct, without bias."""

from collections.abc import Mapping
from typing import Any

from trl_ext.evaluation.estimators import pass_at_k
from trl_ext.evaluation.modules import _base


class PassAtK(_base.KMetric):
    """Mean over problems of 1 - C(n - c, k) / C(n, k)."""

    prefix = "pass"
    description = "Probability that at least one of k completions of a problem is correct, unbiased."

    def default_k(self, problems: list[_base.Problem]) -> int:
        """Return 1: with k = n it would only say whether anything is correct."""
        return 1

    def figure(self, problem: _base.Problem, k: int, options: Mapping[str, Any]) -> float:
        """The estimate of one problem."""
        return float(pass_at_k(problem.num_judged, sum(verdict == 1.0 for verdict in problem.correct), k))
