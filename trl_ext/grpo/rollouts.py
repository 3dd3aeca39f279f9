"""The rollout stage: TRL generates and scores, and the rewards of all processes become the advantages that are used."""

from __future__ import annotations

from typing import Any

import torch
from accelerate.utils import gather_object

from trl_ext._trainer import log_mean_advantages, loss_mask, replace_logged_advantages
from trl_ext.advantages import rewards_to_go
from trl_ext.grpo import checks, process
from trl_ext.grpo.hidden import RecordingStage
from trl_ext.grpo.presets import Preset, RunningMean, weighted_rewards
from trl_ext.grpo.scoring import Estimator, Scores, own_columns, reward_std
from trl_ext.kl import kl_estimate

# TRL divides these losses by a number of completions, so that masked ones must be taken out of it.
PER_ROW_LOSSES = ("grpo", "sapo", "dr_grpo", "luspo")


class RolloutStage(RecordingStage):
    """Everything between a batch of prompts and a generation batch that can be trained on."""

    preset: Preset
    running_mean: RunningMean
    process_reward_funcs: list[Any]
    process_reward_func_names: list[str]
    _step_mean: process.StepMean | None
    _scores: Scores | None = None  # of TRL's last call of `_calculate_rewards`
    _seen_steps: bool = False

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        steps: list[process.RowSteps] = []
        if self.process_reward_funcs:
            steps = self._process_steps(inputs, prompts, completions, completion_ids_list)
            if self._step_mean is not None:
                self._step_mean.steps = steps
            steps = gather_object(steps)
            if not self._seen_steps:
                process.check_any_steps(steps, self.process_reward_func_names)
                self._seen_steps = True
        rewards: torch.Tensor = super()._calculate_rewards(
            inputs, prompts, completions, completion_ids_list, *args, **kwargs
        )
        checks.check_finite(rewards, self.reward_func_names)
        if not self._recomputes:
            checks.check_size(rewards, self.reward_weights)
        self._scores = Scores(rewards, steps)
        return rewards

    def _process_steps(self, inputs: Any, prompts: Any, completions: Any, ids: Any) -> list[process.RowSteps]:
        """Steps of this process's completions; the functions see what TRL gives to reward functions."""
        columns = [key for key in inputs[0] if key not in ("prompt", "completion", "completion_ids")]
        arguments = {
            **{key: [row[key] for row in inputs] for key in columns},
            "prompts": prompts,
            "completions": completions,
            "completion_ids": ids,
            "trainer_state": self.state,
            "log_extra": self._log_completion_extra,
            "log_metric": self._log_metric,
        }
        if self.environments is not None:
            arguments["environments"] = self.environments
        return process.steps_of(
            self.process_reward_funcs, self.process_reward_func_names, arguments, self.processing_class
        )

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        mode = "train" if self.model.training else "eval"
        output, scores = self._rollouts(inputs)
        if not self._changes_rollouts:
            self._check_advantages(output, scores)
            return output
        num_generations = self.num_generations if mode == "train" else self.num_generations_eval
        estimator = self._estimator()
        first = scores
        if mode == "train":
            self._metrics[mode]["zero_std/groups"].append(
                float((~estimator.signals(scores, num_generations)).sum().item())
            )
            output, scores = self._replace_groups(output, scores, estimator)
        if self._recomputes or scores is not first:
            self._set_advantages(output, scores, estimator, num_generations)
        if self._recomputes or self.args.zero_std != "keep":
            self._set_figures(scores, estimator, num_generations, mode)
        if mode == "train":
            if self.args.zero_std == "mask":
                self._mask_groups(output, estimator.signals(scores, num_generations))
            if self._running_baseline:
                self.running_mean.update(weighted_rewards(first.rewards, self.reward_weights))
        if self._kl_in_reward:
            self._subtract_kl(output, mode)
        self._check_advantages(output, scores)
        if output["advantages"].ndim == 2:
            output["advantages"] = torch.where(loss_mask(output).bool(), output["advantages"], 0.0)
            log_mean_advantages(self, output["advantages"], loss_mask(output))
        return output

    def _check_advantages(self, output: dict[str, Any], scores: Scores) -> None:
        if self.model.training:  # in an evaluation they move nothing
            checks.check_advantages(output["advantages"], scores.rewards)

    def _rollouts(self, inputs: list[dict[str, Any]]) -> tuple[dict[str, Any], Scores]:
        """TRL's rollouts, and the scores of all processes."""
        output = super()._generate_and_score_completions(inputs)
        assert self._scores is not None, "TRL scores before it returns"
        needs_logps = self._kl_in_reward and self.args.kl_estimator != "full"
        replayed = self.args.zero_std == "replay" and self.model.training
        logps = output.get("old_per_token_logps")
        if logps is None and (needs_logps or replayed):
            logps = self._policy_logps(output)
        if replayed:
            # a group of an earlier batch was sampled by an earlier policy, and its ratio must say so
            output["old_per_token_logps"] = logps
        if self._kl_in_reward:
            if self.args.kl_estimator == "full":
                output["rollout_kl"] = self._rollout_full_kl(output)
            else:
                output["rollout_kl"] = kl_estimate(logps, output["ref_per_token_logps"], self.args.kl_estimator)
        return output, self._scores

    @property
    def _running_baseline(self) -> bool:
        return self.preset.baseline == "running_mean"

    @property
    def _recomputes(self) -> bool:
        """Whether advantages differ from TRL's."""
        return not self.args.has_stock_advantages or bool(self.process_reward_funcs)

    @property
    def _changes_rollouts(self) -> bool:
        return self._recomputes or self._kl_in_reward or self.args.zero_std != "keep"

    def _estimator(self) -> Estimator:
        return Estimator(
            self.preset,
            self.reward_weights.to(self.accelerator.device),
            self.args.process_outcome_weight,
            self.args.advantage_clip,
            self.running_mean.value if self._running_baseline else None,
        )

    def _replace_groups(
        self, output: dict[str, Any], scores: Scores, estimator: Estimator
    ) -> tuple[dict[str, Any], Scores]:
        """Hook of the stage that resamples and replays."""
        return output, scores

    def _own_rows(self, output: dict[str, Any]) -> slice:
        num_rows = output["completion_ids"].size(0)
        start = self.accelerator.process_index * num_rows
        return slice(start, start + num_rows)

    def _set_advantages(
        self, output: dict[str, Any], scores: Scores, estimator: Estimator, num_generations: int
    ) -> None:
        """Advantages of this process's rows, in the batch and in the table of completions."""
        advantages = estimator.advantages(scores, num_generations)
        output["advantages"] = own_columns(output["completion_ids"].size(1), advantages, self._own_rows(output))
        if advantages.ndim == 1:
            replace_logged_advantages(self, advantages.tolist())

    def _set_figures(self, scores: Scores, estimator: Estimator, num_generations: int, mode: str) -> None:
        """Figures of the batch that is trained on, in the place of those that TRL logged of its own."""
        signals = estimator.signals(scores, num_generations)
        ddof = self.preset.ddof if self.preset.kind == "group" else 0
        figures = {
            "frac_reward_zero_std": 1.0 - signals.float().mean().item(),
            "reward_std": reward_std(scores, estimator.weights, ddof),
        }
        for name, value in figures.items():
            self._metrics[mode][name][-1:] = [value]
        if scores.steps:
            self._log_steps(scores, mode)

    def _log_steps(self, scores: Scores, mode: str) -> None:
        for index, name in enumerate(self.process_reward_func_names):
            rewards = [reward for row in scores.steps for reward in row[index][0]]
            judged = [reward for reward in rewards if reward is not None]
            if judged:
                self._metrics[mode][f"process/{name}/mean"].append(sum(judged) / len(judged))
            self._metrics[mode][f"process/{name}/num_steps"].append(len(rewards) / len(scores.steps))

    def _mask_groups(self, output: dict[str, Any], signals: torch.Tensor) -> None:
        """Take groups without signal out of the loss and of what it is divided by."""
        keep = signals.repeat_interleave(self.num_generations)
        self._metrics["train"]["zero_std/masked"].append(float((~signals).sum().item()))
        tool_mask = output.get("tool_mask")
        if tool_mask is None:
            tool_mask = torch.ones_like(output["completion_mask"])
        # the loss reads this mask and the attention does not
        output["tool_mask"] = tool_mask * keep[self._own_rows(output)].unsqueeze(1).to(tool_mask.dtype)
        self._count_items(output)
        if self.loss_type in PER_ROW_LOSSES:
            output["kept_share"] = keep.float().mean().clamp(min=1 / len(keep))

    def _count_items(self, output: dict[str, Any]) -> None:
        output["num_items_in_batch"] = self.accelerator.gather(loss_mask(output).sum()).sum()

    def _subtract_kl(self, output: dict[str, Any], mode: str) -> None:
        """A_t minus beta times the KL of this and all later tokens of the completion."""
        mask, advantages = loss_mask(output), output["advantages"]
        kl = torch.where(mask.bool(), output.pop("rollout_kl").float(), 0.0)
        to_go = rewards_to_go(-self.args.beta * kl, mask)
        output["advantages"] = (advantages if advantages.ndim == 2 else advantages.unsqueeze(1)) + to_go
        total, count = self.accelerator.reduce(torch.stack([kl.sum(), mask.sum().float()]), reduction="sum").tolist()
        self._metrics[mode]["kl"].append(total / max(count, 1.0))
