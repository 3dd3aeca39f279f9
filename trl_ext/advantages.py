"""Advantage estimates: GAE and its relatives over tokens, group-relative ones over completions.

Tokens: rewards, values and mask are (B, T). Trainable tokens are packed to the left first, so a gap in the mask counts
as zero steps, and what stands in it is never read. Discounted sums are taken by doubling: a window of 2w tokens is a
window of w tokens plus the decayed next one, log2(T) vector operations in all. Decays are only ever multiplied, never
divided by, so every gamma and lambda in [0, 1] is exact; the arithmetic is float64 (float32 on mps).

Completions: a group is `num_generations` consecutive entries of the rewards.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .masking import (
    as_bool_mask,
    check_choice,
    check_count,
    check_fraction,
    check_same_shape,
    keep_trainable,
    pack,
    packed_index,
    to_accumulator,
    unpack,
)

BASELINES = ("mean", "leave_one_out", "median", "none")
SCALES = ("group", "batch", "none", "leave_one_out", "mad", "mean")
# Makes the median absolute deviation of a normal distribution its standard deviation: 1 / Phi^-1(3/4).
MAD_TO_STD = 1.4826


def gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    gamma: float = 1.0,
    lam: float | Tensor = 0.95,
    bootstrap: Tensor | None = None,
    horizon: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation: A_t = sum_{k < horizon} (gamma lam)^k delta_{t+k}.

    delta is the TD error of `td_errors`. lam=0 gives the TD error, lam=1 Monte Carlo minus the value.

    Args:
        rewards: (B, T) reward of each token.
        values: (B, T) value of the state before each token.
        mask: (B, T), 1 on trainable tokens; a gap counts as zero steps.
        gamma: discount a token, in [0, 1].
        lam: lambda in [0, 1], or a (B,) tensor with one lambda a row.
        bootstrap: (B,) value after the last trainable token; 0 by default (the completion ended).
        horizon: sum at most this many TD errors; all of them by default.

    Returns:
        advantages: (B, T) float32, 0 where the mask is 0.
        returns: (B, T) float32, advantages + values, 0 where the mask is 0.

    Raises:
        ValueError: shapes differ, gamma or lam is outside [0, 1], or horizon is less than 1.

    Source:
        Schulman et al. 2016, arXiv:1506.02438, equation 16. Differs: finite sequences, mask gaps, optional truncation
        to `horizon` terms, lambda a row (VAPO, arXiv:2504.05118).

    Example:
        >>> rewards = torch.tensor([[0.0, 0.0, 1.0]])
        >>> advantages, returns = gae(rewards, torch.full((1, 3), 0.5), torch.ones(1, 3), lam=1.0)
        >>> advantages, returns
        (tensor([[0.5000, 0.5000, 0.5000]]), tensor([[1., 1., 1.]]))
    """
    _check_tokens(rewards, mask, gamma, bootstrap, values=values)
    check_count("horizon", horizon)
    decay = _decay(gamma, lam, rewards)
    index = packed_index(mask)
    deltas = _packed_td_errors(rewards, values, mask, index, gamma, bootstrap)
    advantages = unpack(_discounted_window_sum(deltas, decay, horizon), index)
    returns = advantages + keep_trainable(to_accumulator(values), as_bool_mask(mask))
    return advantages.float(), returns.float()


def td_errors(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float = 1.0, bootstrap: Tensor | None = None
) -> Tensor:
    """Temporal-difference error: delta_t = r_t + gamma V_{t+1} - V_t, t+1 being the next trainable token.

    Args:
        rewards: (B, T) reward of each token.
        values: (B, T) value of the state before each token.
        mask: (B, T), 1 on trainable tokens; a gap counts as zero steps.
        gamma: discount a token, in [0, 1].
        bootstrap: (B,) value after the last trainable token; 0 by default.

    Returns:
        (B, T) float32, 0 where the mask is 0.

    Raises:
        ValueError: shapes differ or gamma is outside [0, 1].

    Source:
        Sutton 1988, "Learning to predict by the methods of temporal differences".

    Example:
        >>> td_errors(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.2, 0.7]]), torch.ones(1, 2))
        tensor([[0.5000, 0.3000]])
    """
    _check_tokens(rewards, mask, gamma, bootstrap, values=values)
    index = packed_index(mask)
    return unpack(_packed_td_errors(rewards, values, mask, index, gamma, bootstrap), index).float()


def n_step_advantages(
    rewards: Tensor, values: Tensor, mask: Tensor, *, n: int, gamma: float = 1.0, bootstrap: Tensor | None = None
) -> Tensor:
    """n-step advantage: A_t = sum_{k < n} gamma^k r_{t+k} + gamma^n V_{t+n} - V_t.

    Near the end the window is cut at the last trainable token and the bootstrap value is used once. n=1 is the TD
    error; n >= T is Monte Carlo minus the value.

    Args:
        rewards: (B, T) reward of each token.
        values: (B, T) value of the state before each token.
        mask: (B, T), 1 on trainable tokens; a gap counts as zero steps.
        n: number of rewards to sum, 1 or more.
        gamma: discount a token, in [0, 1].
        bootstrap: (B,) value after the last trainable token; 0 by default.

    Returns:
        (B, T) float32, 0 where the mask is 0.

    Raises:
        ValueError: shapes differ, n is less than 1, or gamma is outside [0, 1].

    Source:
        Mnih et al. 2016, arXiv:1602.01783; computed as the sum of n TD errors, to which it telescopes.

    Example:
        >>> rewards, values = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.1, 0.2, 0.4]])
        >>> n_step_advantages(rewards, values, torch.ones(1, 3), n=2)
        tensor([[0.3000, 0.8000, 0.6000]])
    """
    _check_tokens(rewards, mask, gamma, bootstrap, values=values)
    check_count("n", n)
    index = packed_index(mask)
    deltas = _packed_td_errors(rewards, values, mask, index, gamma, bootstrap)
    return unpack(_discounted_window_sum(deltas, gamma, n), index).float()


def rewards_to_go(rewards: Tensor, mask: Tensor, *, gamma: float = 1.0, bootstrap: Tensor | None = None) -> Tensor:
    """Discounted reward-to-go: G_t = r_t + gamma G_{t+1}, ending in the bootstrap value.

    Args:
        rewards: (B, T) reward of each token.
        mask: (B, T), 1 on trainable tokens; a gap counts as zero steps.
        gamma: discount a token, in [0, 1].
        bootstrap: (B,) value after the last trainable token; 0 by default.

    Returns:
        (B, T) float32, 0 where the mask is 0.

    Raises:
        ValueError: shapes differ or gamma is outside [0, 1].

    Source:
        Williams 1992 (REINFORCE), in the reward-to-go form; also the regression target of PPO-Clip's critic.

    Example:
        >>> rewards_to_go(torch.tensor([[1.0, 9.0, 1.0]]), torch.tensor([[1, 0, 1]]), gamma=0.5)
        tensor([[1.5000, 0.0000, 1.0000]])
    """
    _check_tokens(rewards, mask, gamma, bootstrap)
    index = packed_index(mask)
    packed = pack(rewards, mask, index)
    if bootstrap is not None:
        tail = gamma * to_accumulator(bootstrap)[:, None]
        packed = packed + keep_trainable(tail, _is_last(mask))
    return unpack(_discounted_window_sum(packed, gamma, None), index).float()


def length_adaptive_lam(mask: Tensor, alpha: float = 0.05) -> Tensor:
    """Lambda by completion length: lam = 1 - 1 / (alpha * length), kept in [0, 1].

    Args:
        mask: (B, T), 1 on trainable tokens; length is their number in a row.
        alpha: sets how fast lambda nears 1, more than 0.

    Returns:
        (B,) float32, to be passed as `lam` of `gae`; 0 for rows of at most 1 / alpha tokens.

    Raises:
        ValueError: the mask is not (B, T), or alpha is not above 0.

    Source:
        VAPO, arXiv:2504.05118. Differs: clamped, as the formula is negative for short completions.

    Example:
        >>> length_adaptive_lam(torch.ones(1, 200))
        tensor([0.9000])
    """
    if mask.ndim != 2:
        raise ValueError(f"mask has shape {tuple(mask.shape)}, expected (B, T): add the batch dimension.")
    if not alpha > 0:
        raise ValueError(f"alpha is {alpha}, but must be above 0; VAPO uses 0.05.")
    length = to_accumulator(as_bool_mask(mask).sum(dim=1))
    return (1.0 - 1.0 / (alpha * length)).clamp(0.0, 1.0).float()


def group_advantages(
    rewards: Tensor,
    num_generations: int,
    *,
    baseline: str = "mean",
    scale: str = "group",
    ddof: int = 1,
    eps: float = 1e-4,
    std_floor: float = 0.0,
) -> Tensor:
    """Group-relative advantage: A_i = (r_i - baseline) / (max(spread, std_floor) + eps).

    A spread of exactly 0 (and no floor) leaves the centred value unscaled. With any baseline but "none", identical
    rewards give exact zeros, whatever eps is; so does a group of one.

    Args:
        rewards: (N,) reward of each completion; a group is `num_generations` consecutive ones. NaN is excluded.
        num_generations: completions a group; divides N.
        baseline: "mean", "leave_one_out" (mean of the others), "median" or "none".
        scale: "group" (std of the group), "batch" (std of all raw rewards), "none", "leave_one_out" (std of the
            others), "mad" (1.4826 times the median absolute deviation) or "mean" (the group's mean, for 0/1 rewards; a
            group whose mean is not above 0 holds no success and gives 0).
        ddof: 1 divides the squares by the count minus one, as TRL does; 0 by the count.
        eps: added to the spread; 0 is allowed.
        std_floor: least spread; not used by "none" and "mean".

    Returns:
        (N,) float32, 0 where the reward is NaN.

    Raises:
        ValueError: a wrong shape or name, a negative number, or an infinite reward.

    Source:
        GRPO, arXiv:2402.03300 (mean, group); RLOO, arXiv:2402.14740 (leave_one_out); Dr. GRPO, arXiv:2503.20783 (mean,
        none); REINFORCE++, arXiv:2501.03262 (batch); MaxRL, arXiv:2602.02710 (mean, mean).

    Example:
        >>> group_advantages(torch.tensor([1.0, 0.0, 0.7, 0.7]), 2, scale="none")
        tensor([ 0.5000, -0.5000,  0.0000,  0.0000])
    """
    if rewards.ndim != 1:
        raise ValueError(f"rewards has shape {tuple(rewards.shape)}, expected (N,): one reward for each completion.")
    _check_divides(len(rewards), num_generations, "rewards")
    _check_no_inf(rewards, "rewards")
    check_choice("baseline", baseline, BASELINES)
    check_choice("scale", scale, SCALES)
    _check_spread_options(ddof, eps, std_floor)
    grouped = to_accumulator(rewards).reshape(-1, num_generations)
    return _normalised(grouped, baseline, scale, ddof, eps, std_floor).reshape(-1).float()


def process_advantages(
    step_rewards: Sequence[Sequence[float | None]],
    step_ends: Sequence[Sequence[int]],
    length: int,
    num_generations: int,
    *,
    scale: str = "group",
    ddof: int = 1,
    eps: float = 1e-4,
) -> Tensor:
    """Process supervision: A[b, t] = sum of (r - mean) / (std + eps) over the steps of b which end at t or later.

    Mean and std are over all steps of all completions of the group. Tokens after the last step's end get 0.

    Args:
        step_rewards: for each of B completions the rewards of its steps; None and NaN are excluded and add 0.
        step_ends: for each completion the index of each step's last token, in [0, length).
        length: number of token positions T of the result.
        num_generations: completions a group; divides B.
        scale: "group", "batch" (std over all steps of all groups) or "none".
        ddof: 1 divides the squares by the count minus one, 0 by the count.
        eps: added to the std; identical step rewards give exact zeros also with 0.

    Returns:
        (B, length) float32 on the CPU.

    Raises:
        ValueError: the lists do not match, an end is outside the completion, or an option is wrong.

    Source:
        DeepSeekMath, arXiv:2402.03300, section 4.1.3.

    Example:
        >>> process_advantages([[1.0, 0.0], [0.0]], [[0, 2], [1]], length=3, num_generations=2, scale="none")
        tensor([[ 0.3333, -0.3333, -0.3333],
                [-0.3333, -0.3333,  0.0000]])
    """
    _check_steps(step_rewards, step_ends, length)
    _check_divides(len(step_rewards), num_generations, "step_rewards")
    check_choice("scale", scale, ("group", "batch", "none"))
    _check_spread_options(ddof, eps, 0.0)
    grouped, is_step = _grouped_steps(step_rewards, num_generations)
    _check_no_inf(grouped, "step_rewards")
    normalised = _normalised(grouped, "mean", scale, ddof, eps, 0.0)[is_step]
    counts = torch.tensor([len(row) for row in step_ends], dtype=torch.long)
    rows = torch.arange(len(counts)).repeat_interleave(counts)
    ends = torch.tensor([end for row in step_ends for end in row], dtype=torch.long)
    at_ends = torch.zeros(len(counts), length, dtype=torch.float64)
    at_ends.index_put_((rows, ends), normalised, accumulate=True)
    return at_ends.flip(1).cumsum(1).flip(1).float()


def _is_last(mask: Tensor) -> Tensor:
    """(B, T) bool, packed: True at the last trainable token of each row which has one."""
    last = as_bool_mask(mask).sum(dim=1, keepdim=True) - 1
    return torch.arange(mask.shape[1], device=mask.device) == last


def _packed_td_errors(
    rewards: Tensor, values: Tensor, mask: Tensor, index: Tensor, gamma: float, bootstrap: Tensor | None
) -> Tensor:
    packed_values = pack(values, mask, index)
    next_values = _shift_left(packed_values, 1)
    if bootstrap is not None:
        next_values = torch.where(_is_last(mask), to_accumulator(bootstrap)[:, None], next_values)
    return pack(rewards, mask, index) + gamma * next_values - packed_values


def _shift_left(x: Tensor, by: int) -> Tensor:
    """Row entries moved `by` places to the left, zeros behind them."""
    by = min(by, x.shape[1])
    return F.pad(x[:, by:], (0, by))


def _discounted_window_sum(x: Tensor, decay: float | Tensor, length: int | None) -> Tensor:
    """sum_{k < length} decay^k x[:, t + k], built from windows of 1, 2, 4, ... entries by the binary digits of length.

    Windows are added, never subtracted, so nothing cancels; `decay` is a float or (B, 1).
    """
    size = x.shape[1]
    if size == 0:
        return x
    if length is None or length >= size:
        length = 1 << (size - 1).bit_length()  # a power of two: a single window covers everything
    total, offset, window, width = torch.zeros_like(x), 0, x, 1
    while True:
        if length & width:
            total = total + decay**offset * _shift_left(window, offset)
            offset += width
        if 2 * width > length:
            return total
        window = window + decay**width * _shift_left(window, width)
        width *= 2


def _decay(gamma: float, lam: float | Tensor, like: Tensor) -> float | Tensor:
    if not isinstance(lam, Tensor):
        check_fraction("lam", lam)
        return gamma * lam
    if lam.ndim == 0:
        return _decay(gamma, float(lam), like)
    if lam.shape != like.shape[:1]:
        raise ValueError(
            f"lam has shape {tuple(lam.shape)}, expected a number or ({like.shape[0]},), one lambda for every row of "
            "rewards."
        )
    if not bool(((lam >= 0) & (lam <= 1)).all()):
        raise ValueError(f"lam has values in [{lam.min():g}, {lam.max():g}], but must lie in [0, 1]: clamp it.")
    return gamma * to_accumulator(lam.detach().to(like.device))[:, None]


def _check_tokens(
    rewards: Tensor, mask: Tensor, gamma: float, bootstrap: Tensor | None, values: Tensor | None = None
) -> None:
    if rewards.ndim != 2:
        raise ValueError(f"rewards has shape {tuple(rewards.shape)}, expected (B, T): add the missing dimension.")
    check_same_shape(rewards=rewards, values=values, mask=mask)
    check_fraction("gamma", gamma)
    if bootstrap is not None and bootstrap.shape != rewards.shape[:1]:
        raise ValueError(
            f"bootstrap has shape {tuple(bootstrap.shape)}, expected ({rewards.shape[0]},), one value for every row of "
            "rewards: pass the value after the last trainable token."
        )


def _normalised(grouped: Tensor, baseline: str, scale: str, ddof: int, eps: float, std_floor: float) -> Tensor:
    """(P, W) rewards, NaN where there is none -> (P, W) advantages, 0 there."""
    if grouped.numel() == 0:
        return grouped
    valid = ~grouped.isnan()
    filled = keep_trainable(grouped, valid)
    centred = filled
    if baseline != "none":
        # Equality decides, not a small difference: rounding of the mean must not become an advantage.
        centred = keep_trainable(_centred(grouped, filled, valid, baseline), ~_identical(filled, valid))
    if scale == "mean":
        mean = filled.sum(-1, keepdim=True) / valid.sum(-1, keepdim=True).clamp(min=1)
        divisor = torch.where(mean > 0, mean + eps, torch.inf)
    elif scale == "none":
        divisor = torch.ones_like(centred)
    else:
        spread = _spread(grouped, filled, valid, scale, ddof).clamp(min=std_floor)
        divisor = torch.where(spread > 0, spread + eps, 1.0)
    return keep_trainable(centred / divisor, valid)


def _centred(grouped: Tensor, filled: Tensor, valid: Tensor, baseline: str) -> Tensor:
    if baseline == "median":
        return filled - _nan_median(grouped)
    count = valid.sum(-1, keepdim=True)
    centred = filled - filled.sum(-1, keepdim=True) / count.clamp(min=1)
    if baseline == "leave_one_out":
        # r_i - mean of the others = n / (n - 1) * (r_i - mean)
        return centred * count / (count - 1).clamp(min=1)
    return centred


def _spread(grouped: Tensor, filled: Tensor, valid: Tensor, scale: str, ddof: int) -> Tensor:
    if scale == "batch":
        return _std(filled.reshape(1, -1), valid.reshape(1, -1), ddof)
    if scale == "mad":
        return MAD_TO_STD * _nan_median((grouped - _nan_median(grouped)).abs())
    if scale == "leave_one_out":
        # One row of peers a member, rather than the group's sum less the member's part, which cancels.
        others = ~torch.eye(grouped.shape[1], dtype=torch.bool, device=grouped.device)
        peers = valid[:, None, :] & others
        return _std(filled[:, None, :].expand_as(peers), peers, ddof).squeeze(-1)
    return _std(filled, valid, ddof)


def _std(filled: Tensor, valid: Tensor, ddof: int) -> Tensor:
    """Standard deviation over the last dimension, which is kept; exactly 0 for identical or too few entries."""
    count = valid.sum(-1, keepdim=True)
    mean = keep_trainable(filled, valid).sum(-1, keepdim=True) / count.clamp(min=1)
    squares = keep_trainable(filled - mean, valid).square().sum(-1, keepdim=True)
    return keep_trainable((squares / (count - ddof).clamp(min=1)).sqrt(), (count > ddof) & ~_identical(filled, valid))


def _identical(filled: Tensor, valid: Tensor) -> Tensor:
    """(..., 1) bool: all valid entries of the last dimension are equal, or there are none."""
    high = filled.masked_fill(~valid, -torch.inf).amax(-1, keepdim=True)
    low = filled.masked_fill(~valid, torch.inf).amin(-1, keepdim=True)
    return high <= low


def _nan_median(x: Tensor) -> Tensor:
    """Median over the last dimension, which is kept: the middle entry, or the mean of the middle two; 0 if all NaN."""
    return torch.nanquantile(x, 0.5, dim=-1, keepdim=True).nan_to_num(0.0)


def _grouped_steps(step_rewards: Sequence[Sequence[float | None]], num_generations: int) -> tuple[Tensor, Tensor]:
    """(P, W): all steps of a group in one row, NaN behind them; and a bool tensor which is True on the steps."""
    steps = [[float("nan") if reward is None else float(reward) for reward in row] for row in step_rewards]
    starts = range(0, len(steps), num_generations)
    groups = [[reward for row in steps[start : start + num_generations] for reward in row] for start in starts]
    width = max([1, *map(len, groups)])
    padded = [group + [float("nan")] * (width - len(group)) for group in groups]
    sizes = torch.tensor([len(group) for group in groups])
    return torch.tensor(padded, dtype=torch.float64).reshape(-1, width), torch.arange(width) < sizes[:, None]


def _check_no_inf(rewards: Tensor, name: str) -> None:
    if bool(rewards.isinf().any()):
        raise ValueError(f"{name} holds inf, which has no baseline: return a finite number, or NaN to leave it out.")


def _check_divides(size: int, num_generations: int, name: str) -> None:
    if num_generations < 1 or size % num_generations:
        raise ValueError(
            f"num_generations is {num_generations}, but must be 1 or more and divide the {size} rows of {name}: pass "
            "whole groups."
        )


def _check_spread_options(ddof: int, eps: float, std_floor: float) -> None:
    if ddof not in (0, 1):
        raise ValueError(f"ddof is {ddof}, but must be 0 or 1; TRL uses 1.")
    for name, value in (("eps", eps), ("std_floor", std_floor)):
        if not 0.0 <= value < float("inf"):
            raise ValueError(f"{name} is {value}, but must be finite and 0 or more.")


def _check_steps(
    step_rewards: Sequence[Sequence[float | None]], step_ends: Sequence[Sequence[int]], length: int
) -> None:
    rows, expected = len(step_ends), len(step_rewards)
    if rows != expected:
        raise ValueError(
            f"step_ends has {rows} rows, but step_rewards has {expected}: pass a list for each completion."
        )
    for row, (rewards, ends) in enumerate(zip(step_rewards, step_ends, strict=True)):  # 0.7 is no end, and not cut to 0
        if len(rewards) != len(ends) or not all(hasattr(end, "__index__") and 0 <= end < length for end in ends):
            raise ValueError(
                f"step_ends[{row}] is {list(ends)}, but must hold one index in [0, {length}) for each of the "
                f"{len(rewards)} rewards of step_rewards[{row}]: drop the steps beyond the completion from both."
            )
