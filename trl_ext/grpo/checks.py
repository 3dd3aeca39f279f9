"""Input checks of GRPOVariantTrainer: each gives one sentence that says what to change, before hours are spent."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import is_peft_model

from trl_ext.errors import UserError


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
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(
            "The PeftModel has nothing to train: it was loaded for inference; load it with "
            "PeftModel.from_pretrained(base, path, is_trainable=True)."
        )


def check_process_rewards(functions: Sequence[Any]) -> None:
    """Process rewards are plain callables."""
    for function in functions:
        if not callable(function) or inspect.iscoroutinefunction(function) or isinstance(function, type):
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


def check_full_kl(trainer: Any) -> None:
    """The full divergence needs plain logits, and whole weights on each process."""
    if trainer.args.kl_estimator != "full":
        return
    kind = str(trainer.accelerator.distributed_type).rpartition(".")[2]
    if kind in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
        raise UserError(f"kl_estimator='full' runs on one process or under DDP, not under {kind}; use 'k3'.")
    if trainer._is_vlm:
        raise UserError("kl_estimator='full' does not support image models; use 'k3'.")
    config = trainer.model.config.get_text_config()
    scaling = ("final_logit_softcapping", "logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")
    used = [name for name in scaling if getattr(config, name, None) not in (None, 1.0)]
    if used:
        raise UserError(
            f"kl_estimator='full' does not support a model that caps or scales its logits ({used[0]}); use 'k3'."
        )


def check_finite(rewards_per_func: torch.Tensor, names: Sequence[str]) -> None:
    """No reward is infinite: it has no mean, and TRL would train on NaN."""
    for index in torch.isinf(rewards_per_func).any(dim=0).nonzero().flatten().tolist():
        raise UserError(
            f"The reward '{names[index]}' is infinite for a completion; return a finite number, or None where it "
            "cannot be judged."
        )


def check_num_prompts(dataset: Any, args: Any) -> None:
    """There are enough prompts for one generation batch; with fewer, TRL's sampler gives none and nothing trains."""
    needed = args.generation_batch_size // args.num_generations
    if hasattr(dataset, "__len__") and len(dataset) < needed:
        raise UserError(
            f"The data set has {len(dataset)} prompts and one generation batch needs {needed}; lower "
            "per_device_train_batch_size or steps_per_generation, raise num_generations, or add prompts."
        )
