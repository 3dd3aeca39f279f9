"""The rollout stage: TRL generates and scores, the critic values, and both become advantages and targets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from accelerate.utils import is_peft_model

from trl_ext._objective import TermsStage
from trl_ext._trainer import log_mean_advantages, loss_mask
from trl_ext.kl import FixedKL, kl_estimate
from trl_ext.ppo import checks, scoring
from trl_ext.ppo.accounting import PPOAccounting
from trl_ext.ppo.config import PPOConfig
from trl_ext.ppo.critic import Critic, SharedCritic

_UNSCORED_BATCHES = 3  # generation batches in a row without any score before a run ends
# Positions in one forward pass of the critic without gradients. A small model on a GPU is bound by kernel launches, so
# fewer, larger passes are faster; this many hidden states are still less than a training step holds.
_ROLLOUT_POSITIONS = 8192


class RolloutStage(TermsStage):
    """Everything between a batch of prompts and a generation batch that can be trained on."""

    args: PPOConfig
    critic: Critic
    kl_controller: FixedKL
    reward_scale: scoring.RunningScale
    _accounting: dict[str, PPOAccounting]
    _rewards_per_func: torch.Tensor | None  # (B_global, number of reward functions), as TRL gathered them
    _rollouts: dict[str, Any] | None  # the last generation batch, whole
    _pass: tuple[Any, ...] | None  # what TRL's last log-probability pass returned
    _hidden: list[torch.Tensor]  # what `_record_hidden` collected
    _recording: str | None
    _unscored_batches: int = 0

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        rewards_per_func = super()._calculate_rewards(*args, **kwargs)
        unscored = bool(torch.isnan(rewards_per_func).all())
        self._unscored_batches = self._unscored_batches + 1 if unscored else 0
        # A judge may be down for a moment in the night, but not from the start and not for long.
        patience = _UNSCORED_BATCHES if self._rewards_per_func is not None else 1
        checks.check_scores(rewards_per_func, self.reward_func_names, self._unscored_batches >= patience)
        self._rewards_per_func = rewards_per_func
        return rewards_per_func

    def _tokenize_prompts(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._tokenize_prompts(*args, **kwargs)
        checks.check_prompt_lengths(result[0], self.max_completion_length, self.model)
        return result

    def _generate(self, prompts: list[Any]) -> Any:
        result = super()._generate(prompts)
        checks.check_rollout_lengths(result[0], result[1], self.model)
        return result

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        with self._record("values" if isinstance(self.critic, SharedCritic) else None):
            output = super()._generate_and_score_completions(inputs)
            if self._kl_in_reward and self.args.kl_estimator != "full":
                # Not as "old_per_token_logps": where TRL takes the ratio's denominator from the training pass itself,
                # the first ratio is exactly 1, which a second pass in bfloat16 would not give.
                logps = output.get("old_per_token_logps")
                output["rollout_per_token_logps"] = self._policy_logps(output) if logps is None else logps
            values = torch.cat(self._hidden) if self._hidden else None
        self.critic.enable_gradients()  # TRL's reference pass clears them
        mode = "train" if self.model.training else "eval"
        output.update(self._estimate(output, values, mode))
        self._rewrite_logs(output, mode)
        if mode == "train":
            self._rollouts = output
        return output

    def _critic_batch_size(self, inputs: dict[str, Any]) -> int:
        if self.accelerator.device.type == "cpu":
            return self._forward_batch_size()
        length = inputs["prompt_ids"].size(1) + inputs["completion_ids"].size(1)
        return max(self._forward_batch_size(), _ROLLOUT_POSITIONS // length)

    def _estimate(self, output: dict[str, Any], values: torch.Tensor | None, mode: str) -> dict[str, torch.Tensor]:
        """Advantages, targets and old values of this process's rollouts."""
        accounting = self._accounting[mode]
        mask = loss_mask(output)
        if values is None:
            with accounting.cost.section(mask.numel()), self._no_grad_checkpointing(), self.accelerator.autocast():
                values = self.critic.rollout_values(output, self._critic_batch_size(output))
        checks.check_values(values, self.args.critic_learning_rate or 0.0)
        scores, truncated = self._scores(output, mode)
        scored = ~torch.isnan(scores)
        scores = scoring.shape_scores(scores.nan_to_num(0.0), truncated, self.args, self.reward_scale)
        rollouts = scoring.Rollouts(
            scores, values, mask * scored.unsqueeze(1), self._kl_penalty(output, mask), truncated
        )
        estimated = scoring.estimate(rollouts, self.args, self.accelerator)
        estimated["value_mask"] = rollouts.mask
        return estimated

    def _scores(self, output: dict[str, Any], mode: str) -> tuple[torch.Tensor, torch.Tensor]:
        """This process's scores (B,), NaN where no reward function gave one, and which completions were cut."""
        assert self._rewards_per_func is not None, "TRL scores before it returns"
        rewards = self._rewards_per_func
        scores = (rewards * self.reward_weights.to(rewards.device)).nansum(dim=1)
        scores[torch.isnan(rewards).all(dim=1)] = torch.nan
        if mode == "train" and self.args.reward_running_scale:
            self.reward_scale.update(scores)
        num_rows = output["completion_ids"].size(0)
        start = self.accelerator.process_index * num_rows
        last = scoring.last_token_index(output["completion_mask"]).clamp(min=0)
        last_ids = output["completion_ids"].gather(1, last.unsqueeze(1)).squeeze(1)
        ends = torch.tensor([*self.eos_token_ids, self._tokenizer.pad_token_id], device=last_ids.device)
        return scores[start : start + num_rows], ~torch.isin(last_ids, ends)

    def _kl_penalty(self, output: dict[str, Any], mask: torch.Tensor) -> torch.Tensor | None:
        if not self._kl_in_reward:
            return None
        if self.args.kl_estimator == "full":
            kl = self._rollout_full_kl(output)
        else:
            kl = kl_estimate(output["rollout_per_token_logps"], output["ref_per_token_logps"], self.args.kl_estimator)
        return torch.where(mask.bool(), self.kl_controller.value * kl.float(), 0.0)

    def _reference_hidden(self, inputs: dict[str, Any], rows: slice = slice(None)) -> torch.Tensor:
        hidden = super()._reference_hidden(inputs, rows)
        self.critic.enable_gradients()  # a pass with another adapter clears them
        return hidden

    def _rewrite_logs(self, output: dict[str, Any], mode: str) -> None:
        """TRL logged group advantages; put those that are used in their place, a completion's mean."""
        log_mean_advantages(self, output["advantages"], output["value_mask"])
        self._metrics[mode].pop("frac_reward_zero_std", None)
        if self.args.beta != 0.0:
            self._metrics[mode]["kl_coef"].append(self.kl_controller.value)

    @contextlib.contextmanager
    def _record(self, what: str | None) -> Iterator[None]:
        """Collect what policy passes compute on the trunk: "values" of the shared critic, or "hidden" states."""
        before, self._recording, self._hidden = self._recording, what, []
        try:
            yield
        finally:
            self._recording, self._hidden = before, []

    def _record_hidden(self, output: Any) -> None:
        if self._recording is None or not self._in_logps_pass:
            return
        hidden = output.last_hidden_state
        if self._recording == "values":
            hidden = self.critic.values_from_hidden(hidden, self._in_logps_pass)  # type: ignore[attr-defined]
        self._hidden.append(hidden)

    _in_logps_pass = 0  # the number of completion tokens, while TRL's log-probability pass of the policy runs

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        logits_to_keep = kwargs["logits_to_keep"] if "logits_to_keep" in kwargs else args[2]
        self._in_logps_pass = 0 if self._is_reference(model) else logits_to_keep
        try:
            result = super()._get_per_token_logps_and_entropies(model, *args, **kwargs)
        finally:
            self._in_logps_pass = 0
        self._pass = result
        return result

    def _is_reference(self, model: Any) -> bool:
        if model is self.ref_model:
            return True
        policy = self.accelerator.unwrap_model(self.model)
        return is_peft_model(policy) and (policy._adapters_disabled or policy.active_adapter == "ref")
