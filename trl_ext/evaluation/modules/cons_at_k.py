"""cons@k for `evaluate.load`: whether the answer that most of k completions state is correct."""

from collections.abc import Mapping
from typing import Any

from trl_ext.evaluation.modules import _base


class ConsAtK(_base.KMetric):
    """Mean over problems of the correctness of the majority's answer; equivalent answers vote together."""

    prefix = "cons"
    description = "Correctness of the answer that most of k completions state; equivalent answers vote together."

    def figure(self, problem: _base.Problem, k: int, options: Mapping[str, Any]) -> float:
        """The vote of one problem, in expectation over the k-subsets of its completions."""
        return _base.vote_of(problem, k, options)
