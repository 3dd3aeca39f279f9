"""The loss of one micro-batch: TRL's, with our KL term in its place and masked groups out of its divisor."""

from __future__ import annotations

from typing import Any

import torch

from trl_ext._trainer import loss_mask
from trl_ext.grpo.replacement import ReplacementStage
from trl_ext.kl import kl_estimate


class ObjectiveStage(ReplacementStage):
    """From a generation batch to the scalar that is differentiated."""

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
        stock_beta = self.beta if self.args.has_stock_kl else 0.0
        with self._stock_beta(stock_beta), self._recorded_hidden(full) as recorded:
            loss = super()._compute_loss(model, inputs)
            hidden = recorded[0] if recorded else None
        assert self._pass is not None
        per_token_logps, entropies, aux_loss = self._pass
        self._pass = None
        mask = loss_mask(inputs)
        rest = self._rest(entropies, aux_loss, mask, entropy_coef)
        share = inputs.get("kept_share", 1.0)
        loss = rest + (loss - rest) / share
        if self._entropy_bonus_enabled:
            self._metrics[mode]["policy_loss"][-1] /= float(share)
        if own_kl:
            kl = self._token_kl(per_token_logps, hidden, ref_hidden, inputs, mask)
            loss = loss + self.args.beta * (kl * self._token_weights(inputs, mask)).sum() / share
            self._log_kl(kl, mask, mode)
        return loss

    def _rest(self, entropies: torch.Tensor, aux_loss: Any, mask: torch.Tensor, coef: float) -> torch.Tensor:
        """What TRL's loss holds beside policy and KL: entropy bonus and router loss, means of the micro-batch."""
        rest = self._stock_entropy(entropies, mask, coef)
        if aux_loss is not None:
            rest = rest + self.router_aux_loss_coef * aux_loss / self._num_micro_batches()
        return rest

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

    def _log_kl(self, kl: torch.Tensor, mask: torch.Tensor, mode: str) -> None:
        sums = torch.stack([kl.detach().sum(), mask.sum().float()])
        total, count = self.accelerator.reduce(sums, reduction="sum").tolist()
        self._metrics[mode]["kl"].append(total / max(count, 1.0))
