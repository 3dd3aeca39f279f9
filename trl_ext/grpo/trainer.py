"""GRPOVariantTrainer: TRL's GRPOTrainer with other advantages, KL terms, process rewards and dynamic sampling.

One generation batch: TRL generates and scores it (`rollouts`), groups without spread make room (`replacement`), the
rewards of all processes become advantages (`scoring`, `process`), and TRL computes the loss, to which our KL term is
added where it is not TRL's own (`objective`). With the settings at their defaults TRL's numbers are left untouched.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

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
from trl_ext.grpo import checks, process
from trl_ext.grpo.checkpoint import CheckpointStage
from trl_ext.grpo.config import GRPOVariantConfig
from trl_ext.grpo.groups import ReplayBuffer
from trl_ext.grpo.presets import RunningMean
from trl_ext.grpo.replacement import check_replacement


class GRPOVariantTrainer(CheckpointStage):
    """Group Relative Policy Optimization in any of its variants, for plain reward functions and process rewards.

    Takes the arguments of [`~trl.GRPOTrainer`], and:

    Args:
        args ([`GRPOVariantConfig`], *optional*): Configuration; at its defaults this is TRL's trainer.
        process_reward_funcs (callable or list of callables, *optional*):
            Rewards of steps: `f(completions, *, prompts, completion_ids, **columns)` returns for each completion
            `(rewards, ends)`, the ends being indices of each step's last token, or [`~trl_ext.grpo.steps.Steps`] with
            `unit="char"`. Normalised over all steps of the group; a token's advantage is the sum over the steps that
            end with it or later. Without `reward_funcs`, the mean of a completion's step rewards is its reward.

    Raises:
        ValueError: One sentence with the remedy, for every setting that cannot work.

    Source: Shao et al. 2024 (DeepSeekMath, arXiv 2402.03300); the variants' sources are in `trl_ext.grpo.presets`;
    dynamic sampling: DAPO, arXiv 2503.14476. Differs: a batch keeps its size, so that groups without spread stay where
    no others were found; at most `max_resample_rounds` rounds are sampled.

    Example:
        >>> trainer = GRPOVariantTrainer(
        ...     model="Qwen/Qwen3-0.6B",
        ...     reward_funcs=my_reward,
        ...     args=GRPOVariantConfig(output_dir="out", advantage_estimator="dr_grpo", loss_type="dr_grpo"),
        ...     train_dataset=dataset,
        ... )  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
    """

    _tag_names = ["trl", "trl-ext", "grpo"]
    _name = "GRPO"
    _paper = {
        "title": "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
        "id": "2402.03300",
        "citation": textwrap.dedent("""\
            @article{shao2024deepseekmath,
                title        = {{DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models}},
                author       = {Zhihong Shao and Peiyi Wang and Qihao Zhu and Runxin Xu and Junxiao Song and others},
                year         = 2024,
                eprint       = {arXiv:2402.03300},
            }"""),
    }

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: GRPOVariantConfig | None = None,
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
        process_reward_funcs: Any = None,
    ) -> None:
        model, config = resolved_arguments(model, args, GRPOVariantConfig, trainer="GRPOVariantTrainer", suffix="GRPO")
        checks.check_adapter(model)
        self._init_process_rewards(config, process_reward_funcs)
        is_missing = reward_funcs is None or (isinstance(reward_funcs, list | tuple) and not reward_funcs)
        if is_missing and self.process_reward_funcs and environment_factory is None:
            self._step_mean = process.StepMean()
            reward_funcs = [self._step_mean]
        checks.check_reward_weights(config.reward_weights, reward_funcs)
        precise = float32_adapter(model)
        check_reference(config, peft_config)
        with neutral_reference(model):
            super().__init__(
                model=model,
                reward_funcs=list(reward_funcs) if isinstance(reward_funcs, list) else reward_funcs,
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
        if precise or getattr(self.model, "is_quantized", False):
            restore_float32(self.model, precise)
        keep_start(self.model, config.beta)
        self.preset = config.preset
        self.running_mean = RunningMean()
        self.replay_buffer = ReplayBuffer(config.replay_buffer_size)
        self.prompt_queue = None
        open_ended = rollout_func is not None or environment_factory is not None
        check_columns(self, self.reward_funcs, self.reward_func_names, open_ended)
        names = self.process_reward_func_names
        check_columns(self, self.process_reward_funcs, names, open_ended, "process reward")
        check_num_prompts(self.train_dataset, config, checks.MORE_PROMPTS)
        checks.check_full_kl(self)
        check_replacement(self)
        if config.kl_estimator == "full":
            watch_hidden_states(self)

    def _init_process_rewards(self, args: GRPOVariantConfig, functions: Any) -> None:
        if functions is None:
            functions = []
        self.process_reward_funcs = list(functions) if isinstance(functions, list | tuple) else [functions]
        self._step_mean = None
        checks.check_process_rewards(self.process_reward_funcs)
        checks.check_outcome_weight(args.process_outcome_weight, bool(self.process_reward_funcs))
        names = [getattr(f, "__name__", type(f).__name__) for f in self.process_reward_funcs]
        if len(set(names)) < len(names):
            raise UserError(f"process_reward_funcs have the names {names}; give each its own __name__.")
        self.process_reward_func_names = names
        if names:
            process.check_process_preset(args.preset, args.process_outcome_weight)
