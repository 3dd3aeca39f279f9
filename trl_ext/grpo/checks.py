"""Input checks of GRPOVariantTrainer: each gives one sentence that says what to change, before hours are spent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import is_peft_model
from trl.trainer.utils import is_async_callable

from trl_ext._trainer import check_plain_logits, check_trainable, sharding_of
from trl_ext.errors import UserError

# Against too few prompts for one generation batch.
MORE_PROMPTS = "lower per_device_train_batch_size or steps_per_generation, raise num_generations, or add prompts."


def check_adapter(model: Any) -> None:
    """A PeftModel must have something to train, and leave TRL the name of its reference."""
    if isinstance(model, str) or not is_peft_model(model):
        return
    if "ref" in model.peft_config:
        raise UserError(
            "The model has an adapter named 'ref', the name TRL gives to its own reference; rename it, e.g. load it "
            "with PeftModel.from_pretrained(base, path, adapter_name='default'), or load the model anew if an earlier "
            "trainer made it."
        )
    check_trainable(model)


def check_process_rewards(functions: Sequence[Any]) -> None:
    """Process rewards are plain callables."""
    for function in functions:
        if not callable(function) or isinstance(function, type) or is_async_callable(function):
            raise UserError(
                f"process_reward_funcs holds {function!r:.80}; pass functions or callable objects (no classes, no "
                "coroutines) that return (rewards, ends) for each completion."
            )


def check_outcome_weight(weight: float, has_process_rewards: bool) -> None:
    """The weight beside process advantages needs process rewards."""
    if weight and not has_process_rewards:
        raise UserError(
            f"process_outcome_weight={weight} has no effect without process_reward_funcs; pass them, or leave it unset."
        )


def check_reward_weights(weights: Sequence[float] | None, functions: Any) -> None:
    """There is one weight for each reward function."""
    given = functions if isinstance(functions, list | tuple) else [] if functions is None else [functions]
    if weights is not None and len(weights) != len(given):
        raise UserError(
            f"reward_weights={list(weights)!r} has {len(weights)} entries for {len(given)} reward functions; give each "
            "reward function one weight, or leave reward_weights unset."
        )


def check_full_kl(trainer: Any) -> None:
    """The full divergence needs plain logits, and whole weights on each process."""
    if trainer.args.kl_estimator != "full":
        return
    if (kind := sharding_of(trainer.accelerator)) is not None:
        raise UserError(f"kl_estimator='full' runs on one process or under DDP, not under {kind}; use 'k3'.")
    if trainer._is_vlm:
        raise UserError("kl_estimator='full' does not support image models; use 'k3'.")
    check_plain_logits(trainer.model)


def check_finite(rewards_per_func: torch.Tensor, names: Sequence[str]) -> None:
    """No reward is infinite: it has no mean, and TRL would train on NaN."""
    for index in torch.isinf(rewards_per_func).any(dim=0).nonzero().flatten().tolist():
        raise UserError(
            f"The reward '{names[index]}' is infinite for a completion; return a finite number, or None where it "
            "cannot be judged."
        )


def check_size(rewards_per_func: torch.Tensor, weights: torch.Tensor) -> None:
    """TRL's own sums and squares of the weighted rewards fit into float32; it turns what does not into 0 or the largest
    float, and trains on that."""
    weighted = rewards_per_func.nan_to_num(0.0).double().abs() * weights.to(rewards_per_func.device).double().abs()
    if float(weighted.sum(dim=1).square().sum()) > torch.finfo(torch.float32).max:
        raise UserError(_too_large(rewards_per_func, "the squares of the weighted rewards"))


def check_advantages(advantages: torch.Tensor, rewards_per_func: torch.Tensor) -> None:
    """Every advantage is finite: one that is not would turn all weights into NaN."""
    if not bool(torch.isfinite(advantages).all()):
        raise UserError(_too_large(rewards_per_func, "the advantages that come of them, or of a KL penalty,"))


def _too_large(rewards_per_func: torch.Tensor, what: str) -> str:
    largest = rewards_per_func.nan_to_num(0.0).abs().max().item()
    return (
        f"Rewards of up to {largest:.3g}: {what} are beyond float32; scale the reward functions or reward_weights down."
    )
