"""Calibration for `evaluate.load`: how far a critic's values are from the rewards that followed."""

from typing import Any

import datasets
import evaluate

from trl_ext.evaluation.calibration import calibration
from trl_ext.evaluation.modules import _base

INPUTS = """
Args:
    predictions (`list[float]`): values of the critic.
    references (`list[float]`): the final reward of each.
    num_bins (`int`, defaults to 10): bins of equal width.
    ranges (`list[float]`, *optional*): edges of the bins instead.
Returns:
    "ece", "mse" (of rewards 0 and 1 the Brier score), "bias", "slope" and "intercept".
"""


class CriticCalibration(evaluate.Metric):
    """Expected calibration error, squared error, bias, and the line of outcomes over predictions."""

    def _info(self) -> evaluate.MetricInfo:
        number = datasets.Value("float64")
        return evaluate.MetricInfo(
            description="How far value estimates are from the rewards that followed.",
            citation=_base.CITATION,
            inputs_description=INPUTS,
            features=datasets.Features({"predictions": number, "references": number}),
        )

    def _compute(
        self, *, predictions: list[float], references: list[float], num_bins: int = 10, ranges: Any = None
    ) -> dict[str, float | None]:
        found = calibration(predictions, references, num_bins=num_bins, ranges=ranges)
        return {
            "ece": found.ece,
            "mse": found.brier_or_mse,
            "bias": found.bias,
            "slope": found.slope,
            "intercept": found.intercept,
        }
