"""The loss of one micro-batch: TRL's, with our KL term in its place and masked groups out of its divisor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from trl_ext._trainer import loss_mask
from trl_ext.grpo.replacement import ReplacementStage
from trl_ext.kl import kl_estimate

_PER_TOKEN_LOSSES = ("cispo", "dapo", "vespo")  # TRL divides these by the tokens of the whole generation batch


class ObjectiveStage(ReplacementStage):
    """From a generation batch to the scalar that is differentiated."""

    beta: float
    _pass: tuple[Any, ...] | None = None  # what TRL's last log-probability pass returned

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        self._pass = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        return self._pass

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        if self.args.has_stock_kl and "kept_share" not in inputs:
            try:
                return super()._compute_loss(model, inputs)
            finally:
                self._pass = None
        own_kl = not self.args.has_stock_kl and self.args.kl_placement == "loss"
        full = own_kl and self.args.kl_estimator == "full"
        ref_hidden = self._reference_hidden(inputs) if full else None
        mode = "train" if self.model.training else "eval"
        entropy_coef = self._applied_entropy_coef()
        with self._without_stock_kl(), self._recorded_hidden(full) as recorded:
            loss = super()._compute_loss(model, inputs)
            hidden = recorded[0] if recorded else None
        assert self._pass is not None
        per_token_logps, entropies, aux_loss = self._pass
        self._pass = None
        mask = loss_mask(inputs)
        rest = self._rest(entropies, aux_loss, mask, entropy_coef, mode)
        share = inputs.get("kept_share", 1.0)
        loss = rest + (loss - rest) / share
        if self._entropy_bonus_enabled:
            self._metrics[mode]["policy_loss"][-1] /= float(share)
        if own_kl:
            kl = self._token_kl(per_token_logps, hidden, ref_hidden, inputs, mask)
            loss = loss + self.args.beta * (kl * self._token_weights(inputs, mask)).sum() / share
            self._log_kl(kl, mask, mode)
        return loss

    @contextlib.contextmanager
    def _without_stock_kl(self) -> Iterator[None]:
        """TRL's own term stays where it is k3 in the loss."""
        beta = self.beta
        if not self.args.has_stock_kl:
            self.beta = 0.0
        try:
            yield
        finally:
            self.beta = beta

    def _applied_entropy_coef(self) -> float:
        """The coefficient TRL is about to use; its adaptive controller moves it inside the call."""
        if not self._entropy_bonus_enabled:
            return 0.0
        if self.use_adaptive_entropy and self._last_world_entropy > self.args.entropy_target:
            return 0.0
        return float(self.entropy_coef)

    def _rest(self, entropies: torch.Tensor, aux_loss: Any, mask: torch.Tensor, coef: float, mode: str) -> torch.Tensor:
        """What TRL's loss holds beside policy and KL: entropy bonus and router loss, means of the micro-batch."""
        share = self.current_gradient_accumulation_steps if mode == "train" else 1.0
        rest = entropies.new_zeros(())
        if coef != 0.0:
            if self.top_entropy_quantile < 1.0:
                mask = mask * self.get_high_entropy_mask(entropies, mask, 1 - self.top_entropy_quantile)
            rest = rest - coef * (entropies * mask).sum() / mask.sum().clamp(min=1.0) / share
        if aux_loss is not None:
            rest = rest + self.router_aux_loss_coef * aux_loss / share
        return rest

    def _token_weights(self, inputs: dict[str, Any], mask: torch.Tensor) -> torch.Tensor:
        """(B, T) weights with which a per-token term enters the loss; TRL's normalisation of `loss_type`."""
        training = self.model.training
        share = 1.0 / self.current_gradient_accumulation_steps if training else 1.0
        mask = mask.float()
        if self.loss_type in ("grpo", "sapo"):
            return mask / mask.sum(-1, keepdim=True).clamp(min=1.0) / mask.size(0) * share
        if self.loss_type == "bnpo":
            return mask / mask.sum().clamp(min=1.0) * share
        if self.loss_type == "dr_grpo":
            return mask / (mask.size(0) * self.max_completion_length) * share
        if self.loss_type == "luspo":
            return mask / mask.size(0) * share
        assert self.loss_type in _PER_TOKEN_LOSSES, self.loss_type
        tokens = inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes
        if training:
            tokens = tokens * self.current_gradient_accumulation_steps / self.args.steps_per_generation
        return mask / tokens

    def _token_kl(
        self,
        per_token_logps: torch.Tensor,
        hidden: torch.Tensor | None,
        ref_hidden: torch.Tensor | None,
        inputs: dict[str, Any],
        mask: torch.Tensor,
    ) -> torch.Tensor:
        """(B, T) KL of each token, times the ratio with `use_bias_correction_kl`, as TRL's."""
        if self.args.kl_estimator == "full":
            assert hidden is not None and ref_hidden is not None
            kl = self._full_kl(hidden[:, -mask.size(1) - 1 : -1], ref_hidden)
        else:
            kl = kl_estimate(per_token_logps, inputs["ref_per_token_logps"], self.args.kl_estimator)
            if self.args.use_bias_correction_kl:
                kl = kl * self._ratio(per_token_logps, inputs, mask)
        return torch.where(mask.bool(), kl, 0.0)

    def _ratio(self, per_token_logps: torch.Tensor, inputs: dict[str, Any], mask: torch.Tensor) -> torch.Tensor:
        old = inputs.get("old_per_token_logps")
        log_ratio = per_token_logps - (per_token_logps.detach() if old is None else old)
        if self.importance_sampling_level == "sequence":
            log_ratio = ((log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)
        return torch.exp(log_ratio)

    def _log_kl(self, kl: torch.Tensor, mask: torch.Tensor, mode: str) -> None:
        sums = torch.stack([kl.detach().sum(), mask.sum().float()])
        total, count = self.accelerator.reduce(sums, reduction="sum").tolist()
        self._metrics[mode]["kl"].append(total / max(count, 1.0))
