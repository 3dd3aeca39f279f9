"""Advantage estimators by name, each with the baseline, scale and constants of the library or paper it is named after.

`resolved_preset` turns a name and the settings that differ into a `Preset`, `check_preset` says whether it fits the
number of generations, and `estimated_advantages` is the one function which computes. Rewards come in as TRL gathers
them: (N, F), one column a reward function, NaN for None, a group being `num_generations` consecutive rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trl_ext._text import did_you_mean
from trl_ext.advantages import BASELINES as GROUP_BASELINES
from trl_ext.advantages import SCALES as GROUP_SCALES
from trl_ext.advantages import group_advantages
from trl_ext.errors import UserError
from trl_ext.grpo.running_mean import RunningMean as RunningMean
from trl_ext.masking import keep_trainable, to_accumulator

# What a group cannot give: the mean of the whole batch, and the mean of the batches before it.
SHIFTS = ("batch", "running_mean")
BASELINES = (*GROUP_BASELINES, *SHIFTS)
# "batch" is the std of the batch's raw rewards, "batch_advantages" the std of what the baseline leaves of them.
SCALES = (*GROUP_SCALES, "batch_advantages")
KINDS = ("group", "pass_at_k")
AGGREGATIONS = ("sum_then_normalize", "normalize_then_sum")
# Judged completions a group needs before its spread says anything; the scales of the batch and "none" need no group.
_LEAST_GENERATIONS = {"group": 2, "mad": 2, "mean": 2, "leave_one_out": 3}
# A weighted sum above it is a success for pass@k: an accuracy of 1 is, a format bonus alone is not.
SUCCESS = 0.5


def _check_known(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        hint = did_you_mean(str(value), known)
        raise UserError(f"{name}={value!r} is unknown; choose one of {', '.join(known)}{hint}.")


@dataclass(frozen=True)
class Preset:
    """Settings of an advantage estimator: A = (r - baseline) / (max(spread, std_floor) + eps).

    Args:
        name: name of the preset it started from.
        kind: "group" (the formula above) or "pass_at_k" (`pass_at_k_advantages`; reads `eps` and `pass_k` alone).
        baseline: one of `trl_ext.advantages.BASELINES`, "batch" (mean of the batch) or "running_mean" (of the past).
        scale: one of `trl_ext.advantages.SCALES`, or "batch_advantages" (std of the centred rewards of the batch).
        ddof: 1 divides the squares by the count minus one, 0 by the count.
        eps: added to the spread.
        std_floor: least spread.
        per_reward: apply baseline and scale to each reward function, then divide the weighted sum by its batch std.
        pass_k: k of pass@k.
        loss_type: TRL's `loss_type` that the source goes with; None where it names none.
        source: where the convention is from.
        note: what it does in a few words.

    Raises:
        UserError: an unknown name, a number out of its range, or settings that exclude each other.

    Example:
        >>> PRESETS["open_instruct"].ddof, PRESETS["open_instruct"].eps
        (0, 1e-08)
    """

    name: str
    kind: str = "group"
    baseline: str = "mean"
    scale: str = "group"
    ddof: int = 1
    eps: float = 1e-4
    std_floor: float = 0.0
    per_reward: bool = False
    pass_k: int = 2
    loss_type: str | None = None
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        _check_known("kind", self.kind, KINDS)
        _check_known("advantage_baseline", self.baseline, BASELINES)
        _check_known("advantage_scale", self.scale, SCALES)
        if isinstance(self.ddof, bool) or self.ddof not in (0, 1):
            raise UserError(f"advantage_ddof={self.ddof!r} must be 0 or 1; TRL uses 1.")
        sizes: dict[str, Any] = {"advantage_eps": self.eps, "advantage_std_floor": self.std_floor}
        for name, value in sizes.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise UserError(f"{name}={value!r} must be a finite number of 0 or more.")
        if isinstance(self.pass_k, bool) or not isinstance(self.pass_k, int) or self.pass_k < 1:
            raise UserError(f"pass_k={self.pass_k!r} must be a whole number of at least 1.")
        if self.scale == "mean" and self.baseline in SHIFTS:
            raise UserError(
                f"advantage_scale='mean' divides by the group's success rate, which advantage_baseline="
                f"{self.baseline!r} has nothing to do with; use advantage_baseline='mean'."
            )
        if self.per_reward and self.baseline == "running_mean":
            raise UserError(
                "advantage_baseline='running_mean' is one number for the summed reward, but each reward is normalised "
                "on its own here; use another baseline, or multi_objective_aggregation='sum_then_normalize'."
            )


# fmt: off
_PRESETS = (
    Preset("trl", source="TRL 1.16, GRPOTrainer", note="follows scale_rewards and multi_objective_aggregation"),
    Preset("verl", eps=1e-6, loss_type="dapo", source="verl 0.9, adv_estimator=grpo", note="GRPO with a smaller eps"),
    Preset("open_instruct", ddof=0, eps=1e-8, loss_type="dapo", note="GRPO with the population std",
           source="open-instruct, advantage_normalization_type=standard"),
    Preset("rloo", baseline="leave_one_out", scale="none", loss_type="dr_grpo", note="mean of the others as baseline",
           source="Ahmadian et al. 2024, arXiv:2402.14740; TRL 1.16, RLOOTrainer"),
    Preset("dr_grpo", scale="none", loss_type="dr_grpo", note="no division by the std",
           source="Dr. GRPO, arXiv:2503.20783"),
    # OpenRLHF clamps the variance at 1e-8
    Preset("reinforce_pp", baseline="batch", scale="batch_advantages", ddof=0, eps=0.0, std_floor=1e-4,
           loss_type="dapo", note="whitened over the whole batch",
           source="REINFORCE++, arXiv:2501.03262; OpenRLHF 0.11, advantage estimator reinforce"),
    Preset("maxrl", scale="mean", eps=1e-6, note="divides by the success rate", source="MaxRL, arXiv:2602.02710"),
    Preset("gdpo", per_reward=True, note="each reward normalised in its group, their sum by the batch",
           source="GDPO, arXiv:2601.05242; TRL 1.16, multi_objective_aggregation=normalize_then_sum"),
    Preset("pass_at_k", kind="pass_at_k", eps=1e-6, note="rewards at least one success in k",
           source="Pass@k training, arXiv:2508.10751"),
    Preset("reinforce", baseline="running_mean", scale="none", loss_type="dr_grpo",
           note="reward minus a baseline of your choice", source="Williams 1992"),
    Preset("custom", note="TRL's constants to start from"),
)
# fmt: on
PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in _PRESETS}


def resolved_preset(
    name: str,
    *,
    baseline: str | None = None,
    scale: str | None = None,
    ddof: int | None = None,
    eps: float | None = None,
    std_floor: float | None = None,
    pass_k: int | None = None,
    scale_rewards: str | bool = "group",
    multi_objective_aggregation: str = "sum_then_normalize",
) -> Preset:
    """Preset of this name with the settings that are given in place of its own.

    Args:
        name: `advantage_estimator`, one of `PRESETS`.
        baseline, scale, ddof, eps, std_floor, pass_k: replace the preset's where they are not None.
        scale_rewards: TRL's field, for "trl" and "custom"; elsewhere only its default or what the preset does anyway.
        multi_objective_aggregation: TRL's field, under the same rule.

    Returns:
        The preset.

    Raises:
        UserError: an unknown name, a setting the preset does not read, or two settings which contradict each other.

    Example:
        >>> resolved_preset("reinforce", baseline="leave_one_out").baseline
        'leave_one_out'
    """
    if not isinstance(name, str) or name not in PRESETS:
        # "gdpo" is closer to it by letters, and not what is meant
        hint = "; did you mean 'trl'?" if str(name).lower() == "grpo" else did_you_mean(str(name), PRESETS)
        raise UserError(f"advantage_estimator={name!r} is unknown; choose one of {', '.join(PRESETS)}{hint}.")
    values = {"baseline": baseline, "scale": scale, "ddof": ddof, "eps": eps, "std_floor": std_floor, "pass_k": pass_k}
    given: dict[str, Any] = {key: value for key, value in values.items() if value is not None}
    if isinstance(scale_rewards, bool):
        scale_rewards = "group" if scale_rewards else "none"
    preset = replace(_with_trl_fields(PRESETS[name], scale_rewards, multi_objective_aggregation, given), **given)
    for key in given:
        if key in _unread(preset):
            field = key if key == "pass_k" else f"advantage_{key}"
            how = f"advantage_estimator={name!r}" + (f" and scale {preset.scale!r}" if preset.kind == "group" else "")
            raise UserError(f"{field}={given[key]!r} has no effect with {how}; leave it unset.")
    return preset


def check_preset(preset: Preset, num_generations: int) -> None:
    """Raise unless groups of this size give the preset something to compare.

    Args:
        preset: what `resolved_preset` returned.
        num_generations: completions a prompt.

    Raises:
        UserError: the baseline, the scale or pass@k needs more completions of each prompt.

    Example:
        >>> check_preset(PRESETS["reinforce_pp"], 1)
    """
    if preset.kind == "pass_at_k":
        if preset.pass_k >= num_generations:
            raise UserError(
                f"pass_k={preset.pass_k} with num_generations={num_generations} makes every advantage 0: pass_k must "
                "be less than num_generations."
            )
        return
    grouped = preset.baseline in GROUP_BASELINES and preset.baseline != "none"
    if grouped and num_generations < 2:
        raise UserError(
            f"advantage_baseline={preset.baseline!r} needs num_generations of 2 or more, not {num_generations}: a "
            "completion alone in its group is its own baseline; use 'running_mean' or 'batch' with one."
        )
    least = _LEAST_GENERATIONS.get(preset.scale, 1)
    if num_generations < least:
        raise UserError(
            f"advantage_scale={preset.scale!r} needs num_generations of {least} or more, not {num_generations}; use "
            "'batch', 'batch_advantages' or 'none'."
        )


def check_batch(preset: Preset, generation_batch_size: int) -> None:
    """Raise where a baseline or scale over the batch has one completion to look at.

    Args:
        preset: what `resolved_preset` returned.
        generation_batch_size: completions of a generation batch, of all processes.

    Raises:
        UserError: every advantage would be 0, or be divided by nothing.

    Example:
        >>> check_batch(PRESETS["reinforce_pp"], 2)
    """
    over_batch = {"advantage_baseline": preset.baseline == "batch"}
    over_batch["advantage_scale"] = preset.kind == "group" and preset.scale in ("batch", "batch_advantages")
    for name, is_over_batch in over_batch.items():
        if is_over_batch and generation_batch_size < 2:
            value = preset.baseline if name == "advantage_baseline" else preset.scale
            raise UserError(
                f"{name}={value!r} needs generation_batch_size of 2 or more, not {generation_batch_size}: a completion "
                "alone has no other to be compared with; raise per_device_train_batch_size or steps_per_generation."
            )


def estimated_advantages(
    rewards_per_func: Tensor,
    weights: Tensor,
    num_generations: int,
    settings: Preset,
    *,
    running_mean: float | None = None,
) -> Tensor:
    """Advantage of each completion: A = (r - baseline) / (max(spread, std_floor) + eps), r the weighted reward.

    Identical rewards give exact zeros within a group under a baseline of the group, and within the batch under
    "batch"; "none" and "running_mean" leave them a common value. A spread of exactly 0 divides nothing.

    Args:
        rewards_per_func: (N, F) rewards of all processes, NaN for None; a group is `num_generations` consecutive rows.
        weights: (F,) weight of each reward function.
        num_generations: completions a group; divides N.
        settings: the preset, from `resolved_preset` or `PRESETS`.
        running_mean: `RunningMean.value` from before this batch, for the baseline "running_mean".

    Returns:
        (N,) float32, 0 where every reward of the row is NaN.

    Raises:
        ValueError: a wrong shape, an infinite number, or a running mean that is missing.

    Source:
        `Preset.source`. Differs from all of them: sums in float64, rows without a reward count nowhere, identical
        rewards give 0 rather than a rounding error divided by eps, and a group of one gives 0.

    Example:
        >>> rewards = torch.tensor([[1.0], [0.0], [0.0], [0.0]])
        >>> estimated_advantages(rewards, torch.ones(1), 4, PRESETS["open_instruct"])
        tensor([ 1.7321, -0.5774, -0.5774, -0.5774])
    """
    rewards = weighted_rewards(rewards_per_func, weights)
    if len(rewards) == 0:
        return rewards.float()
    if settings.kind == "pass_at_k":
        return pass_at_k_advantages(rewards, num_generations, k=settings.pass_k, eps=settings.eps)
    if not settings.per_reward:
        return _normalised(rewards, num_generations, settings, running_mean)
    columns = to_accumulator(rewards_per_func).unbind(dim=1)
    advantages = torch.stack([_normalised(column, num_generations, settings, None) for column in columns], dim=1)
    summed = (advantages * to_accumulator(weights.to(rewards.device))).sum(dim=1)
    return _over_batch_std(summed.masked_fill(rewards.isnan(), torch.nan), settings)


def weighted_rewards(rewards_per_func: Tensor, weights: Tensor) -> Tensor:
    """Reward of each completion: r = sum of weight * reward over the functions that gave one.

    Args:
        rewards_per_func: (N, F) rewards, NaN for None.
        weights: (F,) weight of each reward function.

    Returns:
        (N,) in float64 (float32 on mps), NaN where every reward of the row is.

    Raises:
        ValueError: the shapes do not match, a reward is infinite, or a weight is not finite.

    Source:
        TRL 1.16, `GRPOTrainer`.

    Example:
        >>> rewards = torch.tensor([[1.0, 0.5], [torch.nan, 0.5], [torch.nan, torch.nan]])
        >>> weighted_rewards(rewards, torch.tensor([1.0, 2.0]))
        tensor([2., 1., nan], dtype=torch.float64)
    """
    if rewards_per_func.ndim != 2 or weights.shape != rewards_per_func.shape[1:] or not len(weights):
        raise ValueError(
            f"rewards_per_func has shape {tuple(rewards_per_func.shape)} and weights {tuple(weights.shape)}, expected "
            "(N, F) and (F,) with F of 1 or more: pass one column and one weight for each reward function."
        )
    if bool(rewards_per_func.isinf().any()):
        column = int(rewards_per_func.isinf().any(dim=0).nonzero()[0])
        raise ValueError(f"rewards_per_func holds inf in column {column}: return a finite number, or None.")
    if not bool(weights.isfinite().all()):
        raise ValueError(f"weights is {weights.tolist()}, but must be finite: give each reward function a number.")
    judged = ~rewards_per_func.isnan()
    weighted = to_accumulator(rewards_per_func) * to_accumulator(weights.to(rewards_per_func.device))
    return keep_trainable(weighted, judged).sum(dim=1).masked_fill(~judged.any(dim=1), torch.nan)


def pass_at_k_advantages(rewards: Tensor, num_generations: int, *, k: int, eps: float = 1e-6) -> Tensor:
    """Advantage under the reward of pass@k: f / (s + eps) for a success, -f (wins / losses) / (s + eps) for a failure.

    f = C(losses, k) / C(n, k) is the share of all subsets of k completions without a success, s = sqrt(f (1 - f)) the
    std of their reward. A completion's advantage is the mean, over the subsets that it belongs to, of their reward
    minus 1 - f, over s. k=1 gives GRPO with the population std.

    Args:
        rewards: (N,) rewards; above 0.5 is a success, NaN is excluded.
        num_generations: completions a group; divides N.
        k: number of attempts, 1 or more; a group of k or fewer judged completions gives 0.
        eps: added to the std.

    Returns:
        (N,) float32; exact zeros where all or none succeed, or fewer than k fail.

    Raises:
        ValueError: a wrong shape, or k less than 1.

    Source:
        Chen et al. 2025, arXiv:2508.10751, analytical derivation. Differs: successes are rewards above 0.5 rather
        than equal to 1, so that bonuses may be added; rows without a reward leave the group smaller.

    Example:
        >>> pass_at_k_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), 4, k=2)
        tensor([ 1.0000, -0.3333, -0.3333, -0.3333])
    """
    if rewards.ndim != 1 or num_generations < 1 or len(rewards) % num_generations:
        raise ValueError(
            f"num_generations is {num_generations} for rewards of shape {tuple(rewards.shape)}, but must be 1 or more "
            "and divide (N,): pass whole groups."
        )
    if k < 1:
        raise ValueError(f"k is {k}, but must be 1 or more.")
    grouped = rewards.reshape(-1, num_generations)
    judged = ~grouped.isnan()
    wins = (grouped > SUCCESS).sum(dim=1, keepdim=True)
    count = judged.sum(dim=1, keepdim=True)
    losses = count - wins
    drawn = torch.arange(k, device=rewards.device)
    # C(losses, k) / C(count, k) as the product of the chances to draw failures only, one after the other
    draws = to_accumulator((losses - drawn).clamp(min=0)) / (count - drawn).clamp(min=1)
    failed = draws.prod(dim=1, keepdim=True)
    spread = (failed * (1 - failed)).sqrt()
    win = keep_trainable(failed / (spread + eps), spread > 0)
    # C(losses - 1, k - 1) / C(count - 1, k - 1) = failed * count / losses
    loss = -win * wins / losses.clamp(min=1)
    return keep_trainable(torch.where(grouped > SUCCESS, win, loss), judged).reshape(-1).float()


def _normalised(rewards: Tensor, num_generations: int, settings: Preset, running_mean: float | None) -> Tensor:
    """(N,) rewards, NaN where there is none -> (N,) advantages, 0 there."""
    baseline, scale = settings.baseline, settings.scale
    if baseline in SHIFTS:
        rewards = _shifted(rewards, baseline, running_mean)
        baseline = "none"  # every spread is blind to the shift; "mean" is not, and Preset refuses it
    over_batch = scale == "batch_advantages"
    advantages = group_advantages(
        rewards,
        num_generations,
        baseline=baseline,
        scale="none" if over_batch else scale,
        ddof=settings.ddof,
        eps=settings.eps,
        std_floor=settings.std_floor,
    )
    if not over_batch:
        return advantages
    return _over_batch_std(advantages.masked_fill(rewards.isnan(), torch.nan), settings)


def _shifted(rewards: Tensor, baseline: str, running_mean: float | None) -> Tensor:
    """Rewards minus one number for all; exactly 0 where the batch is its own baseline and holds one value."""
    if baseline == "batch":
        centred = group_advantages(rewards, len(rewards), baseline="mean", scale="none")
        return to_accumulator(centred).masked_fill(rewards.isnan(), torch.nan)
    if running_mean is None:
        raise ValueError(
            "running_mean is None, but the baseline 'running_mean' needs a number: pass RunningMean().value, and "
            "update it afterwards with this batch."
        )
    return rewards - running_mean


def _over_batch_std(advantages: Tensor, settings: Preset) -> Tensor:
    """Advantages over their std in the batch."""
    # Their mean is not subtracted: under every baseline that is a mean it is 0 already, and doing it again would turn
    # the exact zeros of identical groups into rounding errors.
    return group_advantages(
        advantages,
        len(advantages),
        baseline="none",
        scale="group",
        ddof=settings.ddof,
        eps=settings.eps,
        std_floor=settings.std_floor,
    )


def _with_trl_fields(preset: Preset, scale_rewards: str, aggregation: str, given: Mapping[str, Any]) -> Preset:
    """The preset as TRL's two fields have it; they belong to "trl" and "custom"."""
    _check_known("scale_rewards", scale_rewards, ("group", "batch", "none"))
    _check_known("multi_objective_aggregation", aggregation, AGGREGATIONS)
    per_reward = aggregation == "normalize_then_sum"
    own = preset.name in ("trl", "custom")
    if scale_rewards != "group" and scale_rewards != given.get("scale", scale_rewards if own else preset.scale):
        raise UserError(
            f"scale_rewards={scale_rewards!r} and advantage_scale={given.get('scale', preset.scale)!r} (of "
            f"advantage_estimator={preset.name!r}) are two names of one setting and differ; leave scale_rewards out."
        )
    if per_reward and not (own or preset.per_reward):
        raise UserError(
            f"multi_objective_aggregation={aggregation!r} has no effect with advantage_estimator={preset.name!r}; use "
            "'gdpo', 'trl' or 'custom'."
        )
    if not own:
        return preset
    if per_reward and scale_rewards != "group" and "scale" not in given:
        raise UserError(
            f"scale_rewards={scale_rewards!r} has no effect with multi_objective_aggregation='normalize_then_sum': "
            "it divides by the std of each group; leave scale_rewards unset, or set advantage_scale."
        )
    # TRL does not read scale_rewards when it normalises each reward on its own
    return replace(preset, per_reward=per_reward, scale="group" if per_reward else scale_rewards)


def _unread(preset: Preset) -> set[str]:
    """Settings that do not reach the preset's formula."""
    if preset.kind == "pass_at_k":
        return {"baseline", "scale", "ddof", "std_floor"}
    if preset.per_reward:  # the division by the batch std reads them all
        return {"pass_k"}
    by_scale = {"none": {"ddof", "eps", "std_floor"}, "mean": {"ddof", "std_floor"}, "mad": {"ddof"}}
    return {"pass_k"} | by_scale.get(preset.scale, set())
