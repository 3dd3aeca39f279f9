"""Process supervision: what process rewards return is checked and becomes an advantage of each token."""

from __future__ import annotations

import logging
import math
import numbers
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from trl_ext.advantages import process_advantages
from trl_ext.errors import UserError
from trl_ext.grpo.presets import PRESETS, Preset
from trl_ext.grpo.steps import steps_in_tokens

logger = logging.getLogger(__name__)

# For one completion and each process reward: rewards of the steps, and the index of each step's last token.
RowSteps = list[tuple[list[float | None], list[int]]]

SCALES = ("group", "batch", "none")
LARGEST = torch.finfo(torch.float32).max


def check_process_preset(preset: Preset, outcome_weight: float) -> None:
    """Raise unless step rewards can be normalised the way the preset says.

    Args:
        preset: the advantage estimator; steps take its scale, ddof and eps, and the mean over all steps of the group.
        outcome_weight: weight of the outcome advantage beside the process advantages.

    Raises:
        UserError: the scale is none that steps have, or a baseline has nothing to act on.

    Example:
        >>> from trl_ext.grpo.presets import PRESETS
        >>> check_process_preset(PRESETS["verl"], 0.0)
    """
    if (setting := _setting_without_steps(preset)) is not None:
        raise UserError(
            f"{setting} is not defined for the steps of process_reward_funcs; use advantage_scale 'group', 'batch' or "
            "'none' with rewards summed first and without advantage_std_floor, e.g. advantage_estimator='trl' or "
            "'dr_grpo'."
        )
    if outcome_weight == 0 and preset.baseline != "mean":
        raise UserError(
            f"advantage_baseline={preset.baseline!r} has no effect: steps are centred by the mean over all steps of "
            "the group, and process_outcome_weight=0 leaves no outcome advantage; set process_outcome_weight above 0, "
            "or advantage_baseline='mean'."
        )


def _setting_without_steps(preset: Preset) -> str | None:
    """The setting that steps have no such thing as, as one would write it."""
    name = f"advantage_estimator={preset.name!r}"
    if preset.kind != "group" or preset.scale not in SCALES:
        return f"{name} (advantage_scale={preset.scale!r})" if preset.kind == "group" else name
    if preset.per_reward:
        return name if preset.name == "gdpo" else "multi_objective_aggregation='normalize_then_sum'"
    if preset.std_floor:
        own = PRESETS[preset.name].std_floor == preset.std_floor
        return (
            f"{name} (advantage_std_floor={preset.std_floor:g})" if own else f"advantage_std_floor={preset.std_floor:g}"
        )
    return None


def steps_of(
    functions: Sequence[Callable[..., Any]],
    names: Sequence[str],
    arguments: Mapping[str, Any],
    tokenizer: Any,
) -> list[RowSteps]:
    """Steps of each completion, by calling every process reward.

    Args:
        functions: process rewards.
        names: their names, for messages.
        arguments: what TRL passes to a reward function: completions, completion_ids, prompts, columns.
        tokenizer: the tokenizer or processor that decoded the completions.

    Returns:
        For each completion one pair (rewards, token ends) a function.

    Raises:
        UserError: a result is no list of steps, is ragged, does not increase, ends outside its completion, or holds
            something that is no number.
    """
    completions, completion_ids = arguments["completions"], arguments["completion_ids"]
    columns = []
    for function, name in zip(functions, names, strict=True):
        results = function(**arguments)
        if not isinstance(results, Sequence) or isinstance(results, str):
            raise UserError(
                f"The process reward '{name}' returned {type(results).__name__}; return a list with (rewards, ends) "
                "for each completion."
            )
        try:
            rewards, ends = steps_in_tokens(results, completions, completion_ids, tokenizer)
        except ValueError as error:
            raise UserError(f"The process reward '{name}': {error}") from error
        for row, result in enumerate(results):
            _check_increasing(name, row, result[1])
        checked = [[_number(name, row, reward) for reward in given] for row, given in enumerate(rewards)]
        columns.append(list(zip(checked, ends, strict=True)))
    return [list(row) for row in zip(*columns, strict=True)]


def check_any_steps(steps: Sequence[RowSteps], names: Sequence[str]) -> None:
    """Raise where a process reward found no step in any completion of a batch; warn where it scored none of them.

    Steps without a score may be followed by others: an early policy writes no equation that could be checked.

    Args:
        steps: the steps of all processes' completions.
        names: names of the process rewards.

    Raises:
        UserError: a process reward is empty.
    """
    for index, name in enumerate(names):
        given = [reward for row in steps for reward in row[index][0]]
        if not given:
            raise UserError(
                f"The process reward '{name}' found no step in the {len(steps)} completions of the first batch, so "
                "nothing can be learned from it; check how it splits completions (a splitter for think blocks needs "
                "<think> tags)."
            )
        if all(reward is None for reward in given):
            logger.warning(
                f"The process reward '{name}' gave none of the {len(given)} steps of the first batch a reward; nothing "
                "is learned from it until it does."
            )


def token_advantages(steps: Sequence[RowSteps], num_generations: int, preset: Preset) -> torch.Tensor:
    """A[b, t] = sum over process rewards and steps that end at t or later of (r - mean) / (std + eps).

    Args:
        steps: the steps of N completions, groups in consecutive rows; each process reward is normalised on its own.
        num_generations: completions a group.
        preset: its scale, ddof and eps are used.

    Returns:
        (N, L) float32 on the CPU, L being one more than the last end of all.

    Source:
        DeepSeekMath, arXiv:2402.03300, section 4.1.3. Differs: more than one process reward may be given.

    Example:
        >>> from trl_ext.grpo.presets import PRESETS
        >>> token_advantages([[([1.0, 0.0], [0, 2])], [([0.0], [1])]], 2, PRESETS["dr_grpo"])
        tensor([[ 0.3333, -0.3333, -0.3333],
                [-0.3333, -0.3333,  0.0000]])
    """
    num_functions = len(steps[0])
    length = 1 + max((end for row in steps for _, ends in row for end in ends), default=0)
    total = torch.zeros(len(steps), length)
    for index in range(num_functions):
        total += process_advantages(
            [row[index][0] for row in steps],
            [row[index][1] for row in steps],
            length,
            num_generations,
            scale=preset.scale,
            ddof=preset.ddof,
            eps=preset.eps,
        )
    return total


def steps_differ(steps: Sequence[RowSteps]) -> bool:
    """Whether some process reward gave the steps of these completions, one group, more than one value."""
    values = [{r for row in steps for r in row[index][0] if r is not None} for index in range(len(steps[0]))]
    return any(len(found) > 1 for found in values)


class StepMean:
    """Reward for runs with process rewards alone: the mean of a completion's step rewards, `None` without a step.

    TRL needs an outcome reward; its advantage enters with `process_outcome_weight`, so that by default it is a metric.
    """

    __name__ = "step_mean"

    def __init__(self) -> None:
        self.steps: list[RowSteps] = []

    def __call__(self, completions: Sequence[Any], **kwargs: Any) -> list[float | None]:
        """Mean over all steps of all process rewards, one entry a completion."""
        return [_mean([r for rewards, _ in row for r in rewards if r is not None]) for row in self.steps]


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _check_increasing(name: str, row: int, ends: Sequence[Any]) -> None:
    ends = [operator.index(end) for end in ends]
    if any(later <= earlier for earlier, later in pairwise(ends)):
        raise UserError(
            f"The process reward '{name}' returned ends {ends} for completion {row}, which do not increase; give the "
            "steps in order, one end each."
        )


def _number(name: str, row: int, reward: Any) -> float | None:
    if hasattr(reward, "item") and math.prod(getattr(reward, "shape", ())) == 1:
        reward = reward.item()  # NumPy and torch scalars
    if reward is None or (isinstance(reward, numbers.Real) and reward != reward):
        return None
    # advantages are float32, and beyond it every reward is infinite
    if not isinstance(reward, numbers.Real) or abs(reward) > LARGEST:  # type: ignore[operator]
        raise UserError(
            f"The process reward '{name}' returned {_shown(reward)} for a step of completion {row}; return a finite "
            "number, or None where the step cannot be judged."
        )
    return float(reward)


def _shown(value: Any) -> str:
    # a whole number of thousands of digits has no text
    is_huge = isinstance(value, int) and value.bit_length() > 1000
    return "a number beyond every float" if is_huge else f"{value!r:.60}"
