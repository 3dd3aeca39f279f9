"""PPOTrainer: GAE-PPO on TRL's GRPOTrainer, by wrapping its methods.

One generation batch goes through five stages: TRL generates and scores it (`_generate_and_score_completions`), the
critic values it, `scoring.estimate` turns both into (B, T) advantages and targets, and each micro-batch then takes a
critic pass (forward and backward, its graph freed at once) and a policy pass (TRL's `_compute_loss`). TRL's own KL and
entropy terms are switched off around the policy pass and added here, where each is a separate, logged term.
"""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Callable
from typing import Any

import torch
from accelerate.utils import broadcast, is_peft_model
from datasets import Dataset
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from trl.trainer.utils import disable_dropout_in_model, is_async_callable

from trl_ext._reference import check_reference, keep_start, neutral_reference
from trl_ext._reward_calls import check_columns
from trl_ext._trainer import (
    check_num_prompts,
    float32_adapter,
    resolved_arguments,
    restore_float32,
    watch_hidden_states,
)
from trl_ext.errors import UserError
from trl_ext.kl import AdaptiveKL, FixedKL
from trl_ext.ppo import checks, scoring
from trl_ext.ppo.accounting import PPOAccounting
from trl_ext.ppo.checkpoint import CheckpointMixin
from trl_ext.ppo.config import PPOConfig
from trl_ext.ppo.critic import build_critic
from trl_ext.ppo.updates import UpdateStage

logger = logging.getLogger(__name__)

_TEMPLATE_TOKENS = 256  # more than a chat template adds
_LONG_PROMPTS_LOOKED_AT = 20_000  # a few seconds; the others are checked when their turn comes


class PPOTrainer(CheckpointMixin, UpdateStage):
    """Proximal Policy Optimization with a learned critic, for plain reward functions and LoRA, QLoRA or full weights.

    Takes the arguments of [`~trl.GRPOTrainer`], and:

    Args:
        args ([`PPOConfig`], *optional*): Configuration; `PPOConfig.critic` chooses the critic.
        value_model (`str` or `nn.Module`, *optional*):
            The critic of `critic="model"`: a path or Hub id, a causal LM, or a reward model whose head is kept.

    Raises:
        ValueError: One sentence with the remedy, for every setting that cannot work; see `trl_ext.ppo.checks`.

    Source: Schulman et al. 2017 (arXiv 1707.06347) and 2016 (GAE, arXiv 1506.02438), on tokens as in Ziegler et al.
    2019. Differs: the clipped objective is any of TRL's loss types; policy and critic are clipped and scheduled apart.

    Example:
        >>> from peft import LoraConfig
        >>> trainer = PPOTrainer(
        ...     model="Qwen/Qwen3-0.6B",
        ...     reward_funcs=my_reward,
        ...     args=PPOConfig(output_dir="out"),
        ...     train_dataset=dataset,
        ...     peft_config=LoraConfig(task_type="CAUSAL_LM"),
        ... )  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
    """

    _tag_names = ["trl", "trl-ext", "ppo"]
    _name = "PPO"
    _paper = {
        "title": "Proximal Policy Optimization Algorithms",
        "id": "1707.06347",
        "citation": textwrap.dedent("""\
            @article{schulman2017proximal,
                title        = {{Proximal Policy Optimization Algorithms}},
                author       = {John Schulman and Filip Wolski and Prafulla Dhariwal and Alec Radford and Oleg Klimov},
                year         = 2017,
                eprint       = {arXiv:1707.06347},
            }"""),
    }

    args: PPOConfig
    reward_funcs: list[Any]

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: PPOConfig | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        reward_processing_classes: Any = None,
        callbacks: Any = None,
        optimizers: tuple[Any, Any] = (None, None),
        quantization_config: Any = None,
        peft_config: Any = None,
        tools: list[Callable[..., Any]] | None = None,
        rollout_func: Any = None,
        environment_factory: Any = None,
        value_model: str | nn.Module | None = None,
    ) -> None:
        model, config = resolved_arguments(model, args, PPOConfig, trainer="PPOTrainer", suffix="PPO")
        checks.check_adapters(model, config)
        checks.check_critic_choice(model, config, peft_config, value_model)
        precise = float32_adapter(model)
        check_reference(config, peft_config)
        with neutral_reference(model):
            super().__init__(
                model=model,
                reward_funcs=reward_funcs,
                args=config,
                train_dataset=train_dataset,
                eval_dataset=eval_dataset,
                processing_class=processing_class,
                reward_processing_classes=reward_processing_classes,
                callbacks=callbacks,
                optimizers=optimizers,
                quantization_config=quantization_config,
                peft_config=peft_config,
                tools=tools,
                rollout_func=rollout_func,
                environment_factory=environment_factory,
            )
        restore_float32(self.model, precise)
        keep_start(self.model, config.beta)
        self._check_inputs(rollout_func, environment_factory)
        self._wrap_rewards()
        self._init_ppo_state()
        self._init_critic(value_model)

    def _check_inputs(self, rollout_func: Any, environment_factory: Any) -> None:
        open_ended = rollout_func is not None or environment_factory is not None
        checks.check_distribution(self.accelerator)
        checks.check_quantization(self.model, self.accelerator.device)
        checks.check_dropout(self.model, self.args.disable_dropout)
        checks.check_noise(self.args.neftune_noise_alpha)
        checks.check_full_kl(self.model, self.args.kl_estimator)
        check_columns(self, self.reward_funcs, self.reward_func_names, open_ended)
        check_num_prompts(self.train_dataset, self.args, checks.MORE_PROMPTS)
        if not (open_ended or self._is_vlm):
            self._check_long_prompts()

    def _check_long_prompts(self) -> None:
        """Find a prompt that does not fit before the run comes to it; only those long enough in bytes are tokenised."""
        context = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if not isinstance(self.train_dataset, Dataset) or context is None:
            return
        room, looked_at = context - (self.max_completion_length or 1), 0
        for index, prompt in enumerate(self.train_dataset["prompt"]):
            try:
                if checks.num_bytes(prompt) + _TEMPLATE_TOKENS > room and looked_at < _LONG_PROMPTS_LOOKED_AT:
                    looked_at += 1
                    self._tokenize_prompts([prompt])
            except UserError as error:
                raise UserError(f"Row {index} of the data set: {error}") from error

    def _wrap_rewards(self) -> None:
        self.reward_funcs = list(self.reward_funcs)  # it may be the caller's list
        for index, (function, name) in enumerate(zip(self.reward_funcs, self.reward_func_names, strict=True)):
            if not isinstance(function, nn.Module):
                kind = checks.CheckedAsyncReward if is_async_callable(function) else checks.CheckedReward
                self.reward_funcs[index] = kind(function, name)

    def _init_ppo_state(self) -> None:
        args = self.args
        self.kl_controller = FixedKL(args.beta)
        if args.kl_target is not None:
            self.kl_controller = AdaptiveKL(args.beta, target=args.kl_target, horizon=args.kl_horizon)
        self.reward_scale = scoring.RunningScale()
        self._accounting = {mode: PPOAccounting(self.accelerator.device) for mode in ("train", "eval")}
        self._rewards_per_func = None
        self._rollouts = None
        self._pass = None
        self._hidden = []
        self._recording = None
        self._updates_stopped = False
        self._window_open = False
        self._window = None

    def _init_critic(self, value_model: str | nn.Module | None) -> None:
        self.critic = build_critic(self.model, self.args, value_model)
        device = self.accelerator.device
        self.critic.head.to(device)
        if self.args.critic == "model":
            self._place_value_model(self.critic.model)  # type: ignore[attr-defined]
            if self.args.disable_dropout:
                disable_dropout_in_model(self.critic.model)  # type: ignore[attr-defined]
            checks.check_dropout(self.critic.model, self.args.disable_dropout)  # type: ignore[attr-defined]
        parameters = list(self.critic.parameters().values())
        if self.accelerator.num_processes > 1:
            broadcast([p.data for p in parameters])
        # DDP must not wait for the critic's gradients: they come from another backward pass, and are reduced by us.
        own = {id(p) for p in parameters}
        names = [name for name, p in self.model.named_parameters() if id(p) in own]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self.model, names)
        watch_hidden_states(self)

    def _place_value_model(self, value_model: Any) -> None:
        if not getattr(value_model, "is_quantized", False):
            value_model.to(self.accelerator.device)
        trainable = self.critic.trunk_parameters().values()
        if not trainable:
            logger.warning("Every weight of value_model is frozen: only its head learns.")
        elif is_peft_model(value_model):
            for parameter in trainable:
                parameter.data = parameter.data.float()
        elif any(p.dtype in (torch.bfloat16, torch.float16) for p in trainable):
            logger.warning(
                "value_model trains in half precision, where small steps are lost; load it in float32, or with a LoRA."
            )
        if self.args.gradient_checkpointing:
            value_model.gradient_checkpointing_enable(self.args.gradient_checkpointing_kwargs)
            if is_peft_model(value_model):
                value_model.enable_input_require_grads()

    def create_optimizer(self, model: Any = None) -> Any:
        """TRL's optimizer for the policy, and one more parameter group for the critic."""
        critic = self.critic.parameters()
        grouped = {id(p) for group in self.optimizer.param_groups for p in group["params"]} if self.optimizer else set()
        for parameter in critic.values():
            parameter.requires_grad_(False)
        try:
            super().create_optimizer(model) if model is not None else super().create_optimizer()
        finally:
            self.critic.enable_gradients()
        missing = [p for p in critic.values() if id(p) not in grouped]
        if missing and self.lr_scheduler is not None and not self._created_lr_scheduler:
            raise UserError(
                "The given scheduler does not know the critic's parameters; pass optimizers=(optimizer, None) and let "
                "the trainer make the scheduler, or give the optimizer trainer.critic's parameters first."
            )
        # biases and norms do not decay, as in the policy's groups
        still = [p for p in missing if p.ndim < 2 and self.args.weight_decay != 0.0]
        kept = {id(p) for p in still}
        decaying = [p for p in missing if id(p) not in kept]
        for parameters, weight_decay in ((decaying, self.args.weight_decay), (still, 0.0)):
            if parameters:
                group = {"params": parameters, "lr": self.args.critic_learning_rate, "weight_decay": weight_decay}
                self.optimizer.add_param_group(group)
        return self.optimizer
