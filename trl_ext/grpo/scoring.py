"""From the rewards of all processes to advantages, and which groups have something to learn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trl_ext.grpo.groups import Group
from trl_ext.grpo.presets import Preset, estimated_advantages, weighted_rewards
from trl_ext.grpo.process import RowSteps, steps_differ, token_advantages


@dataclass(frozen=True)
class Scores:
    """What the rewards said about the N completions of all processes, groups in consecutive rows.

    Args:
        rewards: (N, F) rewards, NaN for None.
        steps: steps of each completion; empty without process rewards.
    """

    rewards: Tensor
    steps: list[RowSteps]

    def with_groups(self, groups: Mapping[int, Group], num_generations: int) -> Scores:
        """The scores once these groups have taken the places with these indices."""
        rewards, steps = self.rewards.clone(), list(self.steps)
        for index, group in groups.items():
            rows = slice(index * num_generations, (index + 1) * num_generations)
            rewards[rows] = group.rewards.to(rewards)
            if steps:
                steps[rows] = group.steps
        return replace(self, rewards=rewards, steps=steps)


@dataclass(frozen=True)
class Estimator:
    """Everything that turns scores into advantages.

    Args:
        preset: the estimator of outcome advantages.
        weights: (F,) weight of each reward function.
        outcome_weight: weight of the outcome advantage beside process advantages.
        clip: advantages are cut at this size; None for no bound.
        running_mean: baseline "running_mean", from before the batch.
    """

    preset: Preset
    weights: Tensor
    outcome_weight: float = 0.0
    clip: float | None = None
    running_mean: float | None = None

    def advantages(self, scores: Scores, num_generations: int) -> Tensor:
        """(N,) advantage of each completion, or with steps (N, L + 1): of each token up to the last end of a step, L
        of them, and of every token behind it."""
        outcome = self._outcome(scores, num_generations)
        if not scores.steps:
            return self._clipped(outcome)
        process = token_advantages(scores.steps, num_generations, self.preset).to(scores.rewards.device)
        process = torch.nn.functional.pad(process, (0, 1))  # behind the last step only the outcome counts
        return self._clipped(process + self.outcome_weight * outcome.unsqueeze(1))

    def signals(self, scores: Scores, num_generations: int) -> Tensor:
        """(P,) bool: the group's rewards differ, and some advantage of it is not 0.

        Equality decides. A baseline outside the group gives equal rewards an advantage, so that both are asked for; and
        rewards may differ in what the estimator does not look at, such as the size of a success for pass@k.
        """
        moving = self.advantages(scores, num_generations).ne(0).reshape(len(scores.rewards) // num_generations, -1)
        return moving.any(dim=1) & self._spread(scores, num_generations)

    def _outcome(self, scores: Scores, num_generations: int) -> Tensor:
        if scores.steps and self.outcome_weight == 0:
            return torch.zeros(len(scores.rewards), device=scores.rewards.device)
        return estimated_advantages(
            scores.rewards, self.weights, num_generations, self.preset, running_mean=self.running_mean
        )

    def _clipped(self, advantages: Tensor) -> Tensor:
        return advantages if self.clip is None else advantages.clamp(-self.clip, self.clip)

    def _spread(self, scores: Scores, num_generations: int) -> Tensor:
        found = torch.zeros(len(scores.rewards) // num_generations, dtype=torch.bool, device=scores.rewards.device)
        if not scores.steps or self.outcome_weight:
            columns = scores.rewards if self.preset.per_reward else weighted_rewards(scores.rewards, self.weights)
            grouped = columns.reshape(len(found), num_generations, -1)
            missing = grouped.isnan()
            high, low = grouped.masked_fill(missing, -torch.inf), grouped.masked_fill(missing, torch.inf)
            found |= (high.amax(dim=1) > low.amin(dim=1)).any(dim=1)
        if scores.steps:
            starts = range(0, len(scores.steps), num_generations)
            differ = [steps_differ(scores.steps[start : start + num_generations]) for start in starts]
            found |= torch.tensor(differ, device=found.device)
        return found


def reward_std(scores: Scores, weights: Tensor, ddof: int) -> float:
    """Standard deviation of the weighted rewards of a batch, rows without one left out; NaN with too few."""
    rewards = weighted_rewards(scores.rewards, weights)
    rewards = rewards[~rewards.isnan()]
    return float(rewards.std(correction=ddof)) if len(rewards) > ddof else float("nan")


def own_columns(width: int, advantages: Tensor, rows: slice) -> Tensor:
    """This process's rows; per-token advantages are given the batch's width, the last column for all that follow."""
    own = advantages[rows]
    if own.ndim == 1:
        return own
    padded = own[:, -1:].repeat(1, width)
    shared = min(width, own.size(1))
    padded[:, :shared] = own[:, :shared]
    return padded
