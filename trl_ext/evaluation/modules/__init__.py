"""Metrics for `evaluate.load`: one file each, loaded by its path and without a network."""

from __future__ import annotations

from pathlib import Path

from trl_ext._text import did_you_mean
from trl_ext.errors import UserError

OF_COMPLETIONS = ("pass_at_k", "mean_at_k", "cons_at_k", "best_of_k")
MODULES = (*OF_COMPLETIONS, "calibration")


def module_path(name: str) -> str:
    """Path of a metric for `evaluate.load`.

    The first four take `predictions` (P lists of n completions) and `references` (P gold answers), and the same
    options, so that `evaluate.combine` can compute them together; see `trl_ext.evaluation.modules._base.KMetric`.
    `calibration` takes a critic's values and the rewards that followed.

    Args:
        name: `"pass_at_k"`, `"mean_at_k"`, `"cons_at_k"`, `"best_of_k"` or `"calibration"`.

    Returns:
        The path of its file.

    Raises:
        UserError: there is no such metric.

    Example:
        >>> Path(module_path("cons_at_k")).name
        'cons_at_k.py'
    """
    if name not in MODULES:
        raise UserError(f"name={name!r} is no metric{did_you_mean(name, MODULES)}; there are {', '.join(MODULES)}")
    return str(Path(__file__).with_name(f"{name}.py"))
