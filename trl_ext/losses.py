"""Per-token losses of policy and critic, and their one aggregation to a scalar.

Per-token losses are (B, T) float32. Where the mask is 0 they are exactly 0 with gradient exactly 0, whatever the inputs
hold there. Every loss comes with detached per-token statistics, so that a caller can average them with the normaliser
of the whole batch rather than take means of means.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .kl import expected_under, map_token_chunks
from .masking import as_bool_mask, at_least_float32, check_choice, check_same_shape, keep_trainable

RATIO_LEVELS = ("token", "sequence")
VALUE_LOSSES = ("mse", "huber")
AGGREGATIONS = ("token", "sequence", "constant", "sum")
# exp of more overflows soon after, and inf * 0 is NaN; verl clamps the log-ratio at the same place.
MAX_LOG_RATIO = 20.0

Stats = dict[str, Tensor]


def policy_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    dual_clip: float | None = None,
    ratio_level: str = "token",
) -> tuple[Tensor, Stats]:
    """Clipped surrogate: loss = max(-ratio A, -clip(ratio, 1 - epsilon, 1 + epsilon_high) A), ratio = pi / pi_old.

    With `dual_clip` = c the loss of a negative advantage is at most -c A.

    Args:
        logps: (B, T) log-probabilities of the sampled tokens under the current policy.
        old_logps: (B, T) the same under the policy that sampled them; no gradient flows.
        advantages: (B,) one a completion or (B, T) one a token; no gradient flows.
        mask: (B, T), 1 on trainable tokens.
        epsilon: lower clip range, and the upper one unless given.
        epsilon_high: upper clip range ("clip-higher"); inf for none.
        dual_clip: c > 1, or None for no dual clip.
        ratio_level: "token", or "sequence": exp of the mean log-ratio over the mask, one a completion.

    Returns:
        loss: (B, T) float32, to be minimised.
        stats: detached (B, T) float32 tensors, 0 where the mask is 0: "ratio", its logarithm "log_ratio", and 0/1 flags
            of where a bound binds: "clipped_low" (ratio < 1 - epsilon and A < 0), "clipped_high" (ratio > 1 +
            epsilon_high and A > 0), "dual_clipped".

    Raises:
        ValueError: shapes differ, or an option is out of range.

    Source:
        PPO, arXiv:1707.06347, equation 7, as TRL's GRPO writes it; epsilon_high: DAPO, arXiv:2503.14476; dual_clip: Ye
        et al. 2020, arXiv:1912.09729; sequence: GSPO, arXiv:2507.18071. Differs: the log-ratio is clamped at +-20
        before exp, so that an extreme one gives a finite loss.

    Example:
        >>> logps, old = torch.tensor([[0.3]]).log(), torch.tensor([[0.1]]).log()
        >>> loss, stats = policy_loss(logps, old, torch.tensor([2.0]), torch.ones(1, 1))
        >>> loss, stats["clipped_high"]
        (tensor([[-2.4000]]), tensor([[1.]]))
    """
    check_same_shape(logps=logps, old_logps=old_logps, mask=mask)
    epsilon_high = epsilon if epsilon_high is None else epsilon_high
    _check_policy_options(epsilon, epsilon_high, dual_clip, ratio_level)
    keep = as_bool_mask(mask)
    weights = _per_token_advantages(advantages, keep)
    log_ratio = _log_ratio(logps, old_logps, keep, ratio_level)
    ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    bounded = ratio.clamp(1.0 - epsilon, 1.0 + epsilon_high)
    loss = torch.maximum(-ratio * weights, -bounded * weights)
    negative, positive = weights < 0, weights > 0
    dual = torch.zeros_like(keep)
    if dual_clip is not None:
        ceiling = -dual_clip * weights
        dual = negative & (loss > ceiling)
        loss = torch.where(dual, ceiling, loss)
    stats = {
        "ratio": ratio,
        "log_ratio": log_ratio,
        "clipped_low": (ratio < 1.0 - epsilon) & negative,
        "clipped_high": (ratio > 1.0 + epsilon_high) & positive,
        "dual_clipped": dual,
    }
    return keep_trainable(loss, keep).float(), _detached(stats, keep)


def value_loss(
    values: Tensor,
    old_values: Tensor | None,
    returns: Tensor,
    mask: Tensor,
    *,
    cliprange: float | None = None,
    kind: str = "mse",
) -> tuple[Tensor, Stats]:
    """Critic regression: loss = 0.5 (V - R)^2; with `cliprange` the larger of that and the one of the clipped V.

    The clipped value is clip(V, V_old - cliprange, V_old + cliprange).

    Args:
        values: (B, T) values of the current critic.
        old_values: (B, T) values at sampling time; no gradient flows. May be None without `cliprange`.
        returns: (B, T) targets; no gradient flows.
        mask: (B, T), 1 on trainable tokens.
        cliprange: how far V may move from V_old before the clipped loss takes over; None for no clipping.
        kind: "mse", or "huber" (quadratic up to a distance of 1, linear beyond).

    Returns:
        loss: (B, T) float32.
        stats: detached (B, T) float32 tensors, 0 where the mask is 0: "loss_unclipped", "loss_clipped" (loss of the
            clipped value; the unclipped one without `cliprange`), and 0/1 flags "clipped_region" (V is outside the
            range) and "clipped" (the clipped loss is the larger one and so stops the gradient).

    Raises:
        ValueError: shapes differ, an option is out of range, or `cliprange` comes without `old_values`.

    Source:
        PPO's reference implementation (baselines ppo2), as in TRL <= 1.12, with the factor 0.5 inside.

    Example:
        >>> loss, stats = value_loss(torch.tensor([[1.0]]), None, torch.tensor([[3.0]]), torch.ones(1, 1))
        >>> loss
        tensor([[2.]])
    """
    check_same_shape(values=values, old_values=old_values, returns=returns, mask=mask)
    _check_value_options(old_values, cliprange, kind)
    keep = as_bool_mask(mask)
    current = keep_trainable(at_least_float32(values), keep)
    target = keep_trainable(at_least_float32(returns.detach()), keep)
    unclipped = clipped = _regression_loss(current, target, kind)
    outside = binds = torch.zeros_like(keep)
    if cliprange is not None and old_values is not None:
        old = keep_trainable(at_least_float32(old_values.detach()), keep)
        # clamp leaves a V inside the range bit for bit; old + clamp(V - old) would not, and count it as clipped.
        bounded = torch.clamp(current, min=old - cliprange, max=old + cliprange)
        clipped = _regression_loss(bounded, target, kind)
        outside, binds = bounded != current, clipped > unclipped
    stats = {"loss_unclipped": unclipped, "loss_clipped": clipped, "clipped_region": outside, "clipped": binds}
    return keep_trainable(torch.where(binds, clipped, unclipped), keep).float(), _detached(stats, keep)


def entropy(logits: Tensor, *, chunk_size: int | None = None) -> Tensor:
    """Entropy of the full distribution: H = -sum_v p_v log p_v with p = softmax(logits).

    Tokens are taken in chunks, whose float32 temporaries are computed again in the backward pass instead of kept.

    Args:
        logits: (B, T, V) logits; -inf counts as probability 0.
        chunk_size: tokens a chunk; by default as many as keep a temporary at 64 MiB.

    Returns:
        (B, T) float32 in nats, differentiable.

    Raises:
        ValueError: there is no vocabulary dimension, or the chunk size is less than 1.

    Source:
        Shannon 1948; as an exploration bonus: Williams, Peng 1991.

    Example:
        >>> entropy(torch.zeros(1, 1, 4))
        tensor([[1.3863]])
    """
    return map_token_chunks(_entropy_rows, logits, chunk_size=chunk_size)


def bradley_terry_loss(
    chosen: Tensor, rejected: Tensor, margin: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """Preference loss of a reward model: -log sigmoid(r_chosen - r_rejected - margin).

    Args:
        chosen: (N,) rewards of the preferred answers.
        rejected: (N,) rewards of the others.
        margin: (N,) by how much the preferred one should win; 0 by default.
        reduction: "mean" over the pairs, or "none".

    Returns:
        float32 scalar, or (N,) with `reduction="none"`.

    Raises:
        ValueError: shapes differ, there is no pair to average, or the reduction is unknown.

    Source:
        Bradley, Terry 1952; margin: Llama 2, arXiv:2307.09288, as TRL's reward trainer.

    Example:
        >>> bradley_terry_loss(torch.tensor([1.0]), torch.tensor([1.0]))
        tensor(0.6931)
    """
    check_same_shape(chosen=chosen, rejected=rejected, margin=margin)
    check_choice("reduction", reduction, ("mean", "none"))
    if chosen.numel() == 0:
        raise ValueError("chosen is empty, but at least one pair is needed: skip the batch instead.")
    difference = at_least_float32(chosen) - at_least_float32(rejected)
    if margin is not None:
        difference = difference - margin
    per_pair = -F.logsigmoid(difference).float()
    return per_pair.mean() if reduction == "mean" else per_pair


def aggregate_loss(
    per_token: Tensor, mask: Tensor, mode: str = "token", *, denominator: float | Tensor | None = None
) -> Tensor:
    """Scalar loss of per-token losses, summed over the mask and divided as `mode` says.

    Args:
        per_token: (B, T) losses; read only where the mask is not 0.
        mask: (B, T), 1 on trainable tokens.
        mode: "token": sum / number of tokens; "sequence": mean over the B rows of each row's mean (a row without
            tokens counts as 0, as in TRL); "constant": sum / denominator; "sum": the sum.
        denominator: replaces the number of tokens ("token") or of rows ("sequence"), so that micro-batches can share
            the normaliser of the whole batch; required by "constant" (B * L for Dr. GRPO); not allowed with "sum".

    Returns:
        float32 scalar; 0 for an empty mask.

    Raises:
        ValueError: shapes differ, the mode is unknown, or the denominator is missing, out of place or not above 0.

    Source:
        token: DAPO, arXiv:2503.14476; sequence: GRPO, arXiv:2402.03300; constant: Dr. GRPO, arXiv:2503.20783.

    Example:
        >>> losses, mask = torch.tensor([[1.0, 3.0], [5.0, 9.0]]), torch.tensor([[1, 1], [1, 0]])
        >>> aggregate_loss(losses, mask), aggregate_loss(losses, mask, "sequence")
        (tensor(3.), tensor(3.5000))
    """
    check_same_shape(per_token=per_token, mask=mask)
    check_choice("mode", mode, AGGREGATIONS)
    _check_denominator(mode, denominator)
    keep = as_bool_mask(mask)
    kept = keep_trainable(at_least_float32(per_token), keep)
    if mode == "sum":
        return kept.sum().float()
    if mode == "sequence":
        kept = kept.sum(-1) / keep.sum(-1).clamp(min=1)
        return (kept.sum() / (max(1, len(kept)) if denominator is None else denominator)).float()
    return (kept.sum() / (keep.sum().clamp(min=1) if denominator is None else denominator)).float()


def _per_token_advantages(advantages: Tensor, keep: Tensor) -> Tensor:
    if advantages.shape == keep.shape[:1] and keep.ndim == 2:
        advantages = advantages[:, None].expand(keep.shape)
    if advantages.shape != keep.shape:
        raise ValueError(
            f"advantages has shape {tuple(advantages.shape)}, expected {tuple(keep.shape[:1])}, one a completion, or "
            f"{tuple(keep.shape)}, one a token."
        )
    return keep_trainable(at_least_float32(advantages.detach()), keep)


def _log_ratio(logps: Tensor, old_logps: Tensor, keep: Tensor, ratio_level: str) -> Tensor:
    current = keep_trainable(at_least_float32(logps), keep)
    log_ratio = current - keep_trainable(at_least_float32(old_logps.detach()), keep)
    if ratio_level == "sequence":
        mean = log_ratio.sum(-1, keepdim=True) / keep.sum(-1, keepdim=True).clamp(min=1)
        return mean.expand_as(log_ratio)
    return log_ratio


def _regression_loss(values: Tensor, targets: Tensor, kind: str) -> Tensor:
    if kind == "huber":
        return F.huber_loss(values, targets, reduction="none", delta=1.0)
    return 0.5 * (values - targets).square()


def _entropy_rows(logits: Tensor) -> Tensor:
    log_probs = at_least_float32(logits).log_softmax(-1)
    return -expected_under(log_probs, log_probs)


def _detached(stats: Stats, keep: Tensor) -> Stats:
    return {name: keep_trainable(value.detach().float(), keep) for name, value in stats.items()}


def _check_policy_options(epsilon: float, epsilon_high: float, dual_clip: float | None, ratio_level: str) -> None:
    check_choice("ratio_level", ratio_level, RATIO_LEVELS)
    for name, value in (("epsilon", epsilon), ("epsilon_high", epsilon_high)):
        if not value >= 0:
            raise ValueError(f"{name} is {value}, but must be 0 or more; the usual value is 0.2.")
    if dual_clip is not None and not dual_clip > 1:
        raise ValueError(f"dual_clip is {dual_clip}, but must be above 1; the usual value is 3, and None is off.")


def _check_value_options(old_values: Tensor | None, cliprange: float | None, kind: str) -> None:
    check_choice("kind", kind, VALUE_LOSSES)
    if cliprange is not None and not cliprange > 0:
        raise ValueError(f"cliprange is {cliprange}, but must be above 0; the usual value is 0.2, and None is off.")
    if cliprange is not None and old_values is None:
        raise ValueError(f"cliprange is {cliprange}, but old_values is None: pass the values at sampling time.")


def _check_denominator(mode: str, denominator: float | Tensor | None) -> None:
    if mode == "constant" and denominator is None:
        raise ValueError("denominator is None, but mode 'constant' needs the whole divisor: pass B * L for Dr. GRPO.")
    if mode == "sum" and denominator is not None:
        raise ValueError("denominator is given, but mode 'sum' does not divide: use mode 'constant'.")
    # A tensor is left alone: looking at its value would wait for the device.
    if denominator is not None and not isinstance(denominator, Tensor) and not denominator > 0:
        raise ValueError(f"denominator is {denominator}, but must be above 0.")
