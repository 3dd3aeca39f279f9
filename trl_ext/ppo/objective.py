"""The loss of one micro-batch: TRL's policy loss, and KL, entropy and value terms, each logged on its own."""

from __future__ import annotations

from typing import Any

import torch
from trl.trainer.utils import shuffle_sequence_dict, split_tensor_dict

from trl_ext._trainer import loss_mask
from trl_ext.kl import kl_estimate
from trl_ext.losses import value_loss
from trl_ext.ppo.critic import SharedCritic
from trl_ext.ppo.rollouts import RolloutStage


class ObjectiveStage(RolloutStage):
    """From a generation batch to the scalar that is differentiated."""

    _buffered_inputs: Any

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        before = self._buffered_inputs
        if self._starts_another_epoch():
            self._reshuffle()
        inputs = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is not before:
            self._count_window_tokens()
            inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
        return inputs

    def _starts_another_epoch(self) -> bool:
        steps = self.args.steps_per_generation
        new_rollouts = self._step % (steps * self.num_iterations) == 0 or self._buffered_inputs is None
        one_mini_batch = steps <= self.args.gradient_accumulation_steps  # the order of one sum does not matter
        return self._step % steps == 0 and not new_rollouts and not one_mini_batch and self._rollouts is not None

    def _reshuffle(self) -> None:
        """Draw new minibatches from the same rollouts. Image tensors are not indexed by row and keep theirs."""
        assert self._rollouts is not None
        if "pixel_values" not in self._rollouts:
            shuffled = shuffle_sequence_dict(self._rollouts)
            self._buffered_inputs = split_tensor_dict(shuffled, self.args.steps_per_generation)

    def _count_window_tokens(self) -> None:
        """Give every micro-batch the trainable tokens of its optimizer step, a process: the exact denominator."""
        steps, window = self.args.steps_per_generation, self.args.gradient_accumulation_steps
        counts = torch.stack([loss_mask(batch).sum() for batch in self._buffered_inputs]).float()
        counts = self.accelerator.reduce(counts, reduction="sum") / self.accelerator.num_processes
        for index, batch in enumerate(self._buffered_inputs):
            if steps % window == 0:
                first = index - index % window
                batch["window_tokens"] = counts[first : first + window].sum().clamp(min=1.0)
            else:  # a step spans several generation batches, of which the later ones are not known yet
                batch["window_tokens"] = (counts.sum() * window / steps).clamp(min=1.0)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        mode = "train" if self.model.training else "eval"
        mask = loss_mask(inputs)
        weights = self._token_weights(inputs, mask)
        self.critic.enable_gradients()
        value = self._separate_value_pass(inputs, weights, mode) if self.critic.separate else None
        needs_hidden = not self.critic.separate or self._kl_in_loss("full")
        entropy_coef = self._applied_entropy_coef()
        with self._record("hidden" if needs_hidden else None), self._stock_beta(0.0):
            loss = super()._compute_loss(model, inputs)
            hidden = self._hidden[0] if self._hidden else None
        assert self._pass is not None
        per_token_logps, entropies, aux_loss = self._pass
        self._pass = None
        scored = inputs["value_mask"]  # a completion without a score moves nothing
        stock, entropy = self._entropy_terms(entropies, inputs, mask, entropy_coef)
        policy, terms = (loss - stock).detach(), {"entropy": entropy}
        loss = loss - stock + entropy
        if aux_loss is not None:
            terms["router"] = self.router_aux_loss_coef * aux_loss.detach() / self._num_micro_batches()
            policy = policy - terms["router"]
        self._add_reference_kl(per_token_logps, inputs, mask, mode)
        if self.args.kl_placement == "loss" and self.args.beta != 0.0:
            terms["kl"] = self._kl_term(per_token_logps, hidden, inputs, scored, weights)
            loss = loss + terms["kl"]
        if not self.critic.separate:
            value = self._shared_value_term(hidden, inputs, weights, mode)
            loss = loss + value
        assert value is not None
        self._account(per_token_logps, entropies, inputs, mask, mode, {"policy": policy, **terms, "value": value})
        return loss if not self.critic.separate else loss + value.detach()

    def _entropy_weights(self, inputs: dict[str, Any], mask: torch.Tensor) -> torch.Tensor:
        """A mean over the tokens of the whole optimizer step."""
        if "window_tokens" not in inputs:
            return mask.float() / mask.sum().clamp(min=1.0)
        # an epoch may end in a step of fewer micro-batches
        share = self.current_gradient_accumulation_steps / self.args.gradient_accumulation_steps
        return mask.float() / (inputs["window_tokens"] * share)

    def _entropy_terms(
        self, entropies: torch.Tensor, inputs: dict[str, Any], mask: torch.Tensor, coef: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The bonus TRL put into the loss, a mean of each micro-batch, and ours, the mean of the step.

        They are the same for `top_entropy_quantile < 1`, whose tokens TRL chooses by micro-batch.
        """
        stock = self._stock_entropy(entropies, mask, coef)
        if coef == 0.0 or self.top_entropy_quantile < 1.0:
            return stock, stock
        return stock, -coef * (entropies * self._entropy_weights(inputs, inputs["value_mask"])).sum()

    def _kl_in_loss(self, estimator: str) -> bool:
        args = self.args
        return args.beta != 0.0 and args.kl_placement == "loss" and args.kl_estimator == estimator

    def _kl_term(
        self,
        per_token_logps: torch.Tensor,
        hidden: torch.Tensor | None,
        inputs: dict[str, Any],
        mask: torch.Tensor,
        weights: torch.Tensor,
    ) -> torch.Tensor:
        if self.args.kl_estimator == "full":
            assert hidden is not None
            kl = self._full_kl(hidden[:, -mask.size(1) - 1 : -1], self._reference_hidden(inputs))
        else:
            kl = kl_estimate(per_token_logps, inputs["ref_per_token_logps"], self.args.kl_estimator)
            if self.args.use_bias_correction_kl:
                kl = kl * self._ratio(per_token_logps, inputs, loss_mask(inputs))
        kl = torch.where(mask.bool(), kl, 0.0)
        return self.kl_controller.value * (kl * weights).sum()

    def _add_reference_kl(self, logps: torch.Tensor, inputs: dict[str, Any], mask: torch.Tensor, mode: str) -> None:
        if "ref_per_token_logps" not in inputs:
            return
        estimator = "k1" if self.args.kl_estimator == "full" else self.args.kl_estimator
        kl = kl_estimate(logps.detach(), inputs["ref_per_token_logps"], estimator)
        self._accounting[mode].add_reference_kl(kl, mask)
        if mode == "train":
            kl = torch.where(mask.bool(), kl, 0.0)
            self._add_to_window(kl_sum=kl.sum(), num_rows=(mask.sum(-1) > 0).sum())

    def _separate_value_pass(self, inputs: dict[str, Any], weights: torch.Tensor, mode: str) -> torch.Tensor:
        """The critic's own forward and backward pass; its graph is gone before the policy's is built."""
        cost = self._accounting[mode].cost
        with cost.section(weights.numel()), self.critic.active():
            with self.compute_loss_context_manager(), self.accelerator.autocast():
                values = self.critic.values(inputs)
            loss = self._value_term(values, inputs, weights, mode)
            cost.mark_peak()
            if mode == "train":
                self.accelerator.backward(loss)
        return loss.detach()

    def _shared_value_term(
        self, hidden: torch.Tensor | None, inputs: dict[str, Any], weights: torch.Tensor, mode: str
    ) -> torch.Tensor:
        assert hidden is not None and isinstance(self.critic, SharedCritic)
        with self._accounting[mode].cost.section(weights.numel()):
            values = self.critic.values_from_hidden(hidden, weights.size(1))
            return self._value_term(values, inputs, weights, mode)

    def _value_term(
        self, values: torch.Tensor, inputs: dict[str, Any], weights: torch.Tensor, mode: str
    ) -> torch.Tensor:
        args, mask, values = self.args, inputs["value_mask"], values[:, :-1]
        per_token, stats = value_loss(
            values, inputs["old_values"], inputs["returns"], mask, cliprange=args.cliprange_value, kind=args.critic_loss
        )
        self._accounting[mode].critic.update(
            values.detach(),
            inputs["returns"],
            mask,
            old_values=inputs["old_values"],
            td_errors=inputs["td_errors"],
            loss=per_token.detach(),
            stats=stats,
        )
        return args.vf_coef * (per_token * weights).sum()

    def _account(
        self,
        per_token_logps: torch.Tensor,
        entropies: torch.Tensor,
        inputs: dict[str, Any],
        mask: torch.Tensor,
        mode: str,
        terms: dict[str, torch.Tensor],
    ) -> None:
        old = inputs.get("old_per_token_logps")
        old = per_token_logps.detach() if old is None else old
        clipping = {
            "epsilon": self.epsilon_low,
            "epsilon_high": self.epsilon_high,
            "ratio_level": self.importance_sampling_level,
        }
        accounting = self._accounting[mode]
        accounting.add_policy(per_token_logps, old, entropies, inputs, mask, clipping)
        for name, value in terms.items():
            accounting.objective.add(name, value.detach())
        if mode == "train" and self.args.target_kl is not None:
            log_ratio = torch.where(mask.bool(), per_token_logps.detach() - old, 0.0).float()
            k3 = (torch.expm1(log_ratio) - log_ratio).sum()
            self._add_to_window(k3_sum=k3, num_tokens=mask.sum())
        if mode == "eval":
            accounting.num_windows += 1
