"""From scores and values to token rewards, advantages and the critic's targets. Tensors in, tensors out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from trl_ext.advantages import gae, length_adaptive_lam, rewards_to_go, td_errors
from trl_ext.masking import masked_moments, masked_whiten, merge_moments
from trl_ext.ppo.accounting import gather_moments


class RunningScale:
    """Running standard deviation of all scores seen (Welford), to divide scores by."""

    def __init__(self) -> None:
        self.moments = torch.zeros(3, dtype=torch.float64)

    def update(self, scores: torch.Tensor) -> None:
        """Add the scores (N,) of one generation batch, of all processes; NaN is skipped."""
        moments = masked_moments(scores.nan_to_num(0.0), ~torch.isnan(scores)).cpu()
        self.moments = merge_moments(self.moments, moments)

    @property
    def std(self) -> float:
        count, _, m2 = self.moments.tolist()
        std = float((m2 / (count - 1)) ** 0.5) if count > 1 else 1.0
        return std if std > 1e-8 else 1.0  # identical scores: nothing to scale by

    def state_dict(self) -> dict[str, Any]:
        return {"moments": self.moments.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.moments = torch.tensor(state["moments"], dtype=torch.float64)


def last_token_index(mask: torch.Tensor) -> torch.Tensor:
    """Index (B,) of the last trainable token of each row; -1 where a row has none."""
    positions = torch.arange(mask.size(1), device=mask.device)
    return torch.where(mask.bool(), positions, -1).max(dim=1).values


def score_at_end(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B, T) with each row's score on its last trainable token, and 0 elsewhere."""
    last = last_token_index(mask)
    positions = torch.arange(mask.size(1), device=mask.device)
    return torch.where(positions == last.unsqueeze(1), scores.float().unsqueeze(1), 0.0)


def shape_scores(scores: torch.Tensor, truncated: torch.Tensor, args: Any, scale: RunningScale) -> torch.Tensor:
    """Running scale, then clip, then the penalty for a missing end-of-sequence token, which stays in reward units."""
    if args.reward_running_scale:
        scores = scores / scale.std
    if args.reward_clip is not None:
        scores = scores.clamp(-args.reward_clip, args.reward_clip)
    if args.missing_eos_penalty is not None:
        scores = scores - args.missing_eos_penalty * truncated.float()
    return scores


@dataclass
class Rollouts:
    """What the estimators need of one process's rollouts. B completions, T tokens.

    Args:
        scores (`torch.Tensor`): (B,) shaped scores, finite.
        values (`torch.Tensor`): (B, T+1) the critic before each token and after the last position.
        mask (`torch.Tensor`): (B, T) trainable tokens of completions that have a score.
        kl_penalty (`torch.Tensor`, *optional*): (B, T) coefficient times KL, to subtract from the rewards.
        truncated (`torch.Tensor`): (B,) whether a completion was cut at the length limit.
    """

    scores: torch.Tensor
    values: torch.Tensor
    mask: torch.Tensor
    kl_penalty: torch.Tensor | None
    truncated: torch.Tensor


def _bootstrap(rollouts: Rollouts, enabled: bool) -> torch.Tensor | None:
    if not enabled:
        return None
    after = (last_token_index(rollouts.mask) + 1).unsqueeze(1)
    value = rollouts.values.gather(1, after).squeeze(1)
    return torch.where(rollouts.truncated, value, 0.0)  # a completion that ended has no value after its end


def _critic_targets(
    args: Any, rollouts: Rollouts, rewards: torch.Tensor, returns: torch.Tensor, bootstrap: torch.Tensor | None
) -> torch.Tensor:
    mask, values = rollouts.mask, rollouts.values[:, :-1]
    if args.critic_target == "reward_to_go":
        return rewards_to_go(rewards, mask, gamma=args.gamma, bootstrap=bootstrap)
    if args.critic_target == "terminal":
        return torch.where(mask.bool(), rollouts.scores.float().unsqueeze(1), 0.0)
    if args.critic_target == "td":
        deltas = td_errors(rewards, values, mask, gamma=args.gamma, bootstrap=bootstrap)
        return torch.where(mask.bool(), deltas + values, 0.0)
    return returns


def estimate(rollouts: Rollouts, args: Any, accelerator: Any) -> dict[str, torch.Tensor]:
    """Advantages, targets and what is logged of them, each (B, T) and 0 outside the mask.

    Args:
        rollouts ([`Rollouts`]): This process's rollouts.
        args ([`PPOConfig`]): gamma, lam, lam_policy, lam_value, length_adaptive_lam, whitening, critic_target.
        accelerator: Whitening is over all processes.

    Returns:
        `dict` with `advantages`, `raw_advantages`, `returns`, `old_values`, `td_errors`, `token_rewards`.
    """
    mask, values = rollouts.mask, rollouts.values[:, :-1]
    rewards = score_at_end(rollouts.scores, mask)
    if rollouts.kl_penalty is not None:
        rewards = torch.where(mask.bool(), rewards - rollouts.kl_penalty, 0.0)
    if args.whiten_rewards:
        stats = gather_moments(masked_moments(rewards, mask), accelerator)
        rewards = masked_whiten(rewards, mask, shift_mean=False, stats=stats)
    bootstrap = _bootstrap(rollouts, args.bootstrap_truncated)
    lam_policy = args.lam if args.lam_policy is None else args.lam_policy
    if args.length_adaptive_lam is not None:
        lam_policy = length_adaptive_lam(mask, args.length_adaptive_lam)
    lam_value = args.lam if args.lam_value is None else args.lam_value
    advantages, returns = gae(rewards, values, mask, gamma=args.gamma, lam=lam_policy, bootstrap=bootstrap)
    if isinstance(lam_policy, torch.Tensor) or lam_value != lam_policy:
        _, returns = gae(rewards, values, mask, gamma=args.gamma, lam=lam_value, bootstrap=bootstrap)
    raw = advantages
    if args.whiten_advantages:
        stats = gather_moments(masked_moments(advantages, mask), accelerator)
        advantages = masked_whiten(advantages, mask, stats=stats)
    return {
        "advantages": advantages,
        "raw_advantages": raw,
        "returns": _critic_targets(args, rollouts, rewards, returns, bootstrap),
        "old_values": torch.where(mask.bool(), values, 0.0),
        "td_errors": td_errors(rewards, values, mask, gamma=args.gamma, bootstrap=bootstrap),
        "token_rewards": rewards,
    }
