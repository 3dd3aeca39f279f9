"""Whether a critic's values are what completions then earn: reliability bins and what they add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Bin:
    """Predictions of about one size, and what came of them.

    Args:
        low (`float`): the smallest prediction that the bin takes.
        high (`float`): where the next bin begins.
        count (`int`): predictions in it, at least 1.
        prediction (`float`): their mean.
        outcome (`float`): mean of their outcomes.
    """

    low: float
    high: float
    count: int
    prediction: float
    outcome: float


@dataclass(frozen=True)
class Calibration:
    """How far predictions are from their outcomes.

    Args:
        bins (`list[Bin]`): from small predictions to large ones; empty bins are left out.
        ece (`float`): expected calibration error, the mean over predictions of |prediction - outcome| of their bin.
        brier_or_mse (`float`): mean squared error; of 0/1 outcomes that is the Brier score.
        bias (`float`): mean of prediction - outcome; positive where the critic is too hopeful.
        slope (`float`, *optional*): of the least-squares line outcome = intercept + slope * prediction; 1 where
            calibrated, below 1 where predictions are too extreme, `None` where all predictions are equal.
        intercept (`float`, *optional*): of the same line; 0 where calibrated.
    """

    bins: list[Bin]
    ece: float
    brier_or_mse: float
    bias: float
    slope: float | None
    intercept: float | None


def calibration(
    predictions: Any,
    outcomes: Any,
    *,
    mask: Any = None,
    num_bins: int = 10,
    ranges: Sequence[float] | None = None,
) -> Calibration:
    """Calibration of value estimates against final rewards: `ece` = sum over bins of count / N |prediction - outcome|.

    Args:
        predictions: (B, T) values of the critic, or of any shape; lists, arrays or tensors.
        outcomes: (B) final reward of each completion, held against all its values, or of the predictions' shape. For a
            discounted task these are the discounted returns.
        mask: shape of the predictions, 1 on what counts; whatever stands elsewhere is ignored.
        num_bins: bins of equal width, from the smallest prediction to the largest.
        ranges: increasing edges of the bins instead, for instance `[0, 0.5, 1]` for two. The first and the last bin
            take what lies beyond them too.

    Returns:
        A `Calibration` over the N predictions under the mask.

    Raises:
        ValueError: shapes do not fit, nothing is under the mask, something under it is not finite, or the bins are
            none.

    Source:
        Naeini et al. 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning" (ECE); Brier 1950. Differs:
        bins span the values that occur, since a value need not be a probability.

    Example:
        >>> result = calibration([0.2, 0.2, 0.8, 0.8], [0.0, 1.0, 1.0, 1.0], num_bins=2)
        >>> [(b.count, b.prediction, b.outcome) for b in result.bins], round(result.ece, 6), round(result.bias, 6)
        ([(2, 0.2, 0.5), (2, 0.8, 1.0)], 0.25, -0.25)
    """
    values, rewards = _flat(predictions, outcomes, mask)
    edges = _edges(values, num_bins, ranges)
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    bins = []
    for place in np.unique(places):
        here = places == place
        low, high = float(edges[place]), float(edges[place + 1])
        bins.append(Bin(low, high, int(here.sum()), float(values[here].mean()), float(rewards[here].mean())))
    errors = values - rewards
    ece = sum(one.count * abs(one.prediction - one.outcome) for one in bins) / len(values)
    return Calibration(bins, ece, float((errors**2).mean()), float(errors.mean()), *_line(values, rewards))


def _line(values: NDArray[np.float64], rewards: NDArray[np.float64]) -> tuple[float | None, float | None]:
    if values.min() == values.max():
        return None, None
    centred = values - values.mean()
    slope = float((centred * (rewards - rewards.mean())).sum() / (centred**2).sum())
    return slope, float(rewards.mean() - slope * values.mean())


def _flat(predictions: Any, outcomes: Any, mask: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The predictions that count, and the outcome of each."""
    values, rewards = _array(predictions), _array(outcomes)
    if rewards.shape != values.shape and rewards.shape == values.shape[:1]:
        rewards = np.broadcast_to(rewards.reshape(-1, *[1] * (values.ndim - 1)), values.shape)
    keep = np.ones(values.shape, dtype=bool) if mask is None else _array(mask) != 0
    if not values.shape == rewards.shape == keep.shape:
        raise ValueError(
            f"predictions have shape {values.shape}, outcomes {rewards.shape} and mask {keep.shape}; outcomes are one "
            "for each row of the predictions or one for each prediction, and the mask has the predictions' shape"
        )
    values, rewards = values[keep], rewards[keep]
    if not values.size:
        raise ValueError("no prediction is under the mask; pass at least one")
    for name, array in (("predictions", values), ("outcomes", rewards)):
        if not np.isfinite(array).all():
            raise ValueError(f"{name} hold {array[~np.isfinite(array)][0]}; mask what has no finite value")
    return values, rewards


def _array(values: Any) -> NDArray[np.float64]:
    # a tensor, which numpy takes only from the CPU, without a gradient, and not in bfloat16
    values = values.detach().cpu().double() if hasattr(values, "detach") else values
    return np.asarray(values, dtype=np.float64)


def _edges(values: NDArray[np.float64], num_bins: int, ranges: Sequence[float] | None) -> NDArray[np.float64]:
    if ranges is not None:
        edges = np.asarray(ranges, dtype=np.float64)
        if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all():
            raise ValueError(
                f"ranges is {ranges!r}; it must hold two or more increasing edges, for instance [0, 0.5, 1]"
            )
        return edges
    if isinstance(num_bins, bool) or not isinstance(num_bins, int) or num_bins < 1:
        raise ValueError(f"num_bins is {num_bins!r}; it must be a whole number of at least 1")
    low, high = float(values.min()), float(values.max())
    if low == high:
        return np.array([low, high])
    return np.linspace(low, high, num_bins + 1)
