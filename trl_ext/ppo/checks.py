"""Input checks of PPOTrainer: each gives one sentence that says what to change, before hours are spent."""

from __future__ import annotations

import logging
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import torch
from accelerate.utils import is_peft_model
from torch import nn

from trl_ext._trainer import check_plain_logits, check_trainable, sharding_of
from trl_ext.errors import UserError
from trl_ext.ppo.critic import VALUE_ADAPTER

logger = logging.getLogger(__name__)

# TRL turns nn.Dropout off; these are numbers that layers pass to functional calls.
_FUNCTIONAL_DROPOUT = ("attention_dropout", "dropout", "hidden_dropout", "activation_dropout", "layerdrop")

# Against too few prompts for one generation batch.
MORE_PROMPTS = "lower per_device_train_batch_size, gradient_accumulation_steps or num_mini_batches, or add prompts."


def check_adapters(model: Any, args: Any) -> None:
    """A PeftModel must have something to train, and leave the names that TRL and the critic use."""
    if isinstance(model, str) or not is_peft_model(model):
        return
    for name in ("ref", VALUE_ADAPTER):
        if name in model.peft_config:
            raise UserError(
                f"The model has an adapter named '{name}', the name PPO gives to its own "
                f"{'reference' if name == 'ref' else 'critic'}; rename it, e.g. load it with "
                "PeftModel.from_pretrained(base, path, adapter_name='default'), or load the model anew if an earlier "
                "trainer made it."
            )
    if any(config.is_prompt_learning for config in model.peft_config.values()):
        raise UserError("Prompt learning (prompt, prefix or P-tuning) has no critic here; train a LoRA instead.")
    check_trainable(model)
    if args.beta != 0.0 and "default" not in model.peft_config:
        raise UserError(
            f"The policy's adapter is named {model.active_adapter!r}; TRL copies the one named 'default' as the "
            "reference, so load it under that name, or set kl_coef=0."
        )


def check_critic_choice(model: Any, args: Any, peft_config: Any, value_model: Any) -> None:
    """What can be said of the critic before a model is loaded."""
    is_lora = peft_config is not None or (not isinstance(model, str) and is_peft_model(model))
    if args.critic == "adapter" and not is_lora:
        raise UserError(
            "critic='adapter' puts a second LoRA beside a LoRA policy; pass peft_config=LoraConfig(...) (--use_peft), "
            "or use critic='shared' or critic='model' for full weights."
        )
    if args.critic == "model" and value_model is None:
        raise UserError(
            "critic='model' needs the model: pass value_model='path or Hub id' (--value_model_name_or_path), or a "
            "loaded module."
        )


def check_distribution(accelerator: Any) -> None:
    """One process or DDP."""
    if (kind := sharding_of(accelerator)) is not None:
        raise UserError(f"PPOTrainer runs on one process or under DDP, not under {kind}; change the launch config.")


def check_quantization(model: Any, device: torch.device) -> None:
    """4-bit weights that compute in float32 on a GPU are several times slower, and nothing says so."""
    config = getattr(model.config, "quantization_config", None)
    if config is None or not getattr(config, "load_in_4bit", False) or config.bnb_4bit_compute_dtype != torch.float32:
        return
    if device.type == "cuda":
        raise UserError(
            "The 4-bit model computes in float32 on CUDA, which is slow; load it with "
            "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4', "
            "bnb_4bit_compute_dtype=torch.bfloat16), or pass --dtype bfloat16."
        )
    logger.info("4-bit model on the CPU: computing in float32, which is the fast choice there.")


def check_noise(neftune_noise_alpha: float | None) -> None:
    """Noise on the embeddings makes the first ratio differ from 1, as dropout does."""
    if neftune_noise_alpha:
        raise UserError(
            f"neftune_noise_alpha={neftune_noise_alpha} adds noise to the embeddings, so old and new "
            "log-probabilities differ before any update; leave it unset."
        )


def check_dropout(model: nn.Module, disable_dropout: bool) -> None:
    """Active dropout makes the first ratio differ from 1: refuse it, or turn off what TRL leaves on."""
    for name, module in model.named_modules():
        found: dict[str, Any] = {key: getattr(module, key, None) for key in _FUNCTIONAL_DROPOUT}
        own = {key: p for key, p in found.items() if isinstance(p, float) and p > 0}
        if disable_dropout:
            for key in own:
                setattr(module, key, 0.0)
            continue
        p = module.p if isinstance(module, nn.Dropout) else max(own.values(), default=0.0)
        if p > 0:
            raise UserError(
                f"Dropout is on (p={p} in {name}), so old and new log-probabilities differ before any update; set "
                "disable_dropout=True or lora_dropout=0.0 (and attention_dropout=0.0 in the model's configuration)."
            )


def check_full_kl(model: Any, kl_estimator: str) -> None:
    """The full divergence needs plain logits."""
    if kl_estimator == "full":
        check_plain_logits(model)


def num_bytes(prompt: Any) -> int:
    """Bytes of a prompt's text: no fewer than its tokens, the chat template's apart."""
    is_messages = isinstance(prompt, list) and all(isinstance(turn, dict) for turn in prompt)
    if not (isinstance(prompt, str) or is_messages):
        raise UserError(f"a prompt is text or a list of messages, not {prompt!r}")
    if not prompt:
        raise UserError("the prompt is empty; drop the row")
    texts = [prompt] if isinstance(prompt, str) else [str(turn.get("content")) for turn in prompt]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def check_prompt_lengths(prompt_ids: Sequence[Sequence[int]], max_completion_length: int | None, model: Any) -> None:
    """Prompt and completion fit into the model's context; without a limit, at least one token of it must."""
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    longest = max((len(ids) for ids in prompt_ids), default=0)
    if context and longest + (max_completion_length or 1) > context:
        raise UserError(
            f"A prompt of {longest} tokens and max_completion_length={max_completion_length} exceed the model's "
            f"context of {context} tokens; drop long prompts or lower max_completion_length."
        )


def check_rollout_lengths(
    prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]], model: Any
) -> None:
    """What was generated fits into the model's context: rollout functions and tools set their own lengths."""
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    prompt, completion = (max((len(ids) for ids in rows), default=0) for rows in (prompt_ids, completion_ids))
    if context and prompt + completion > context:  # of one batch, which is padded to both
        raise UserError(
            f"A prompt of {prompt} tokens and a completion of {completion} tokens exceed the model's context of "
            f"{context} tokens; drop long prompts, or let the rollout function or the tools write less."
        )


class CheckedReward:
    """A reward function whose result is checked: a list, one number or None for each completion, no NaN.

    TRL turns NaN into "not applicable" silently, so a bug in a reward would look like a completion without a score.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function = function
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> list[float | None]:
        return _checked(self.function(*args, **kwargs), self.__name__, len(kwargs["completions"]))


class CheckedAsyncReward(CheckedReward):
    """The same for a coroutine function."""

    async def __call__(self, *args: Any, **kwargs: Any) -> list[float | None]:  # type: ignore[override]
        return _checked(await self.function(*args, **kwargs), self.__name__, len(kwargs["completions"]))


def _checked(rewards: Any, name: str, expected: int) -> list[float | None]:
    rewards = rewards.tolist() if hasattr(rewards, "tolist") else rewards
    if not isinstance(rewards, list | tuple):
        raise UserError(
            f"The reward function '{name}' returned {type(rewards).__name__}; return a list with one number or None "
            "for each completion."
        )
    if len(rewards) != expected:
        raise UserError(
            f"The reward function '{name}' returned {len(rewards)} rewards for {expected} completions; return exactly "
            "one for each."
        )
    rewards = [reward.item() if hasattr(reward, "item") else reward for reward in rewards]  # NumPy and torch scalars
    for index, reward in enumerate(rewards):
        number = reward is None or (isinstance(reward, numbers.Real) and math.isfinite(reward))
        if not number:
            raise UserError(
                f"The reward function '{name}' returned {reward!r} for completion {index}; return a finite number, or "
                "None where the completion cannot be judged."
            )
    return rewards


def check_scores(rewards_per_func: torch.Tensor, names: Sequence[str], must_score: bool = True) -> None:
    """At least one completion has a score (where `must_score`), and reward models gave finite ones."""
    for index in torch.isinf(rewards_per_func).any(dim=0).nonzero().flatten().tolist():
        raise UserError(f"The reward '{names[index]}' is infinite for a completion; make it return finite numbers.")
    if must_score and torch.isnan(rewards_per_func).all():
        raise UserError(
            f"No completion of this batch has a score: every reward ({', '.join(names)}) returned None or NaN for all "
            f"{rewards_per_func.size(0)} completions; check the gold column and that the judge or sandbox is up."
        )


def check_values(values: torch.Tensor, learning_rate: float) -> None:
    """The critic has not diverged."""
    if not torch.isfinite(values).all():
        raise UserError(
            f"The critic's values are not finite: it has diverged. Lower critic_learning_rate (now {learning_rate}) "
            "or vf_coef, and resume from the last checkpoint."
        )
