"""The mean of the rewards of earlier batches, the baseline of plain REINFORCE."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from trl_ext.masking import to_accumulator


class RunningMean:
    """Mean of the rewards seen so far: b = sum_i decay^age_i r_i / sum_i decay^age_i, age in batches.

    Read `value` before `update`: a baseline that knows the batch's own rewards is biased. It is 0 at first, so that
    the first batch is plain REINFORCE. Every process keeps its own, of the gathered rewards, and so the same one.

    Args:
        decay: weight of a batch relative to the next one, in (0, 1]; 1 is the mean of everything.

    Raises:
        ValueError: `decay` is outside (0, 1].

    Source:
        The running average of rewards as a baseline, Williams 1992.

    Example:
        >>> import torch
        >>> baseline = RunningMean(decay=0.5)
        >>> baseline.update(torch.tensor([1.0, 1.0]))
        >>> baseline.update(torch.tensor([0.0, torch.nan]))
        >>> baseline.value
        0.5
    """

    def __init__(self, decay: float = 0.9) -> None:
        if not 0 < decay <= 1:
            raise ValueError(f"decay is {decay}, but must be above 0 and at most 1; 1 counts all batches alike.")
        self.decay = float(decay)
        self._total = 0.0
        self._weight = 0.0

    @property
    def value(self) -> float:
        """The mean, 0.0 as long as there is no reward."""
        return self._total / self._weight if self._weight else 0.0

    def update(self, rewards: Tensor) -> None:
        """Take in a batch; one without a single reward changes nothing.

        Args:
            rewards: rewards of any shape, such as `weighted_rewards` returns; NaN is excluded.

        Raises:
            ValueError: a reward is infinite.
        """
        if bool(rewards.isinf().any()):
            raise ValueError("rewards holds inf, which has no mean: return a finite number, or NaN to leave it out.")
        judged = to_accumulator(rewards.detach()[~rewards.isnan()])
        if len(judged):
            self._total = self.decay * self._total + float(judged.sum())
            self._weight = self.decay * self._weight + len(judged)

    def state_dict(self) -> dict[str, float]:
        """Return the sums, for a checkpoint."""
        return {"total": self._total, "weight": self._weight}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore the sums; `decay` stays what it is.

        Args:
            state: result of `state_dict`.

        Raises:
            ValueError: a key is missing, or a number is not finite or a weight negative.
        """
        if not {"total", "weight"} <= state.keys():
            raise ValueError(f"state has the keys {sorted(state)}, but needs 'total' and 'weight': pass a state_dict.")
        total, weight = float(state["total"]), float(state["weight"])
        if not (math.isfinite(total) and 0 <= weight < math.inf):
            raise ValueError(f"state is {dict(state)}, but must hold finite sums and a weight of 0 or more.")
        self._total, self._weight = total, weight
