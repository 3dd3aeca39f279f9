"""best-of-k for `evaluate.load`: whether the best-scored of k completions is correct."""

from collections.abc import Mapping
from typing import Any

from trl_ext.evaluation.modules import _base


class BestOfK(_base.KMetric):
    """Mean over problems of the expected correctness of the best-scored of k completions."""

    prefix = "best_of"
    description = "Correctness of the completion that a reward scores best among k."

    def problems(
        self, predictions: list[list[str]], references: list[str], options: Mapping[str, Any]
    ) -> list[_base.Problem]:
        """The problems with the scores by which their best completion is chosen."""
        scores = _base.scores_of(predictions, references, options)
        problems = super().problems(predictions, references, options)
        return [problem._replace(scores=own) for problem, own in zip(problems, scores, strict=True)]

    def figure(self, problem: _base.Problem, k: int, options: Mapping[str, Any]) -> float:
        """The expectation for one problem."""
        return _base.best_of(problem, k, options)
