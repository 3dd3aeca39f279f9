"""Passes and loss terms that do not depend on where the advantages come from: KL, entropy, weights of the tokens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from peft.utils.other import AuxiliaryTrainingWrapper
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import use_adapter

from trl_ext._measures import MeasuredStage
from trl_ext._trainer import MULTIMODAL_KEYS, backbone_of, hidden_states
from trl_ext.kl import full_kl

_CHUNK_BYTES = 2**28  # logits of one chunk of the full divergence, per model
_PER_TOKEN_LOSSES = ("cispo", "dapo", "vespo")  # TRL divides these by the tokens of the whole generation batch


def _as_reference(model: Any) -> contextlib.AbstractContextManager[None]:
    """The policy is its own reference inside the block: with the adapter TRL keeps for it, or with none."""
    return use_adapter(model, "ref" if "ref" in model.peft_config else None)


class TermsStage(MeasuredStage):
    """What the stages of a trainer are built on. It overrides nothing of TRL's."""

    args: Any
    beta: float

    @property
    def _kl_in_reward(self) -> bool:
        return self.args.kl_placement == "reward" and self.args.beta != 0.0

    def _forward_batch_size(self) -> int:
        args = self.args
        return args.per_device_train_batch_size if self.model.training else args.per_device_eval_batch_size

    def _no_grad_checkpointing(self) -> contextlib.AbstractContextManager[None]:
        return disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs)

    def _policy_logps(self, output: dict[str, Any]) -> torch.Tensor:
        """(B, T) log-probabilities under the policy that sampled, where TRL did not keep them."""
        extra = {key: output[key] for key in (*MULTIMODAL_KEYS, "num_images", "num_tiles") if key in output}
        with torch.no_grad(), self._no_grad_checkpointing():
            ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
            mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
            return self._get_per_token_logps_and_entropies(
                self.model, ids, mask, output["completion_ids"].size(1), batch_size=self._forward_batch_size(), **extra
            )[0]

    @torch.no_grad()
    def _rollout_full_kl(self, output: dict[str, Any]) -> torch.Tensor:
        """(B, T) divergence of the policy that sampled, a forward pass of each model."""
        parts, size = [], self._forward_batch_size()
        with self._no_grad_checkpointing(), self.accelerator.autocast():
            for start in range(0, output["completion_ids"].size(0), size):
                rows = slice(start, start + size)
                hidden = hidden_states(backbone_of(self.accelerator.unwrap_model(self.model)), output, rows)
                parts.append(self._full_kl(hidden, self._reference_hidden(output, rows)))
        return torch.cat(parts)

    @torch.no_grad()
    def _reference_hidden(self, inputs: dict[str, Any], rows: slice = slice(None)) -> torch.Tensor:
        """Hidden states (B, T, H) of the reference: a model of its own, or the policy with another adapter or none."""
        with self.accelerator.autocast():
            if self.ref_model is not None:
                return hidden_states(backbone_of(self.accelerator.unwrap_model(self.ref_model)), inputs, rows)
            model = self.accelerator.unwrap_model(self.model)
            with self._no_grad_checkpointing(), _as_reference(model):
                return hidden_states(backbone_of(model), inputs, rows)

    @torch.no_grad()
    def _reference_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of the reference from its hidden states; `modules_to_save` may hold another head for the policy."""
        if self.ref_model is not None:
            return self.accelerator.unwrap_model(self.ref_model).get_output_embeddings()(hidden)
        model = self.accelerator.unwrap_model(self.model)
        head = model.get_output_embeddings()
        has_copies = isinstance(head, AuxiliaryTrainingWrapper)
        with _as_reference(model) if has_copies else contextlib.nullcontext():
            return head(hidden)

    def _full_kl(self, hidden: torch.Tensor, ref_hidden: torch.Tensor) -> torch.Tensor:
        """KL over the vocabulary (B, T), from hidden states (B, T, H), a few tokens' logits at a time."""
        head = self.accelerator.unwrap_model(self.model).get_output_embeddings()

        def chunk_kl(h: torch.Tensor, h_ref: torch.Tensor) -> torch.Tensor:
            ref_logits = self._reference_logits(h_ref)  # first: it may switch the adapter and back
            return full_kl(head(h) / self.temperature, ref_logits / self.temperature, direction=self.args.kl_direction)

        size = max(1, _CHUNK_BYTES // (4 * head.weight.shape[0]))
        flat, flat_ref = hidden.flatten(0, 1), ref_hidden.flatten(0, 1)
        with self.accelerator.autocast():
            parts = [
                torch.utils.checkpoint.checkpoint(
                    chunk_kl, flat[i : i + size].unsqueeze(0), flat_ref[i : i + size].unsqueeze(0), use_reentrant=False
                )
                for i in range(0, flat.size(0), size)
            ]
        return torch.cat(parts, dim=1).view(hidden.shape[:2])

    def _ratio(self, per_token_logps: torch.Tensor, inputs: dict[str, Any], mask: torch.Tensor) -> torch.Tensor:
        """TRL's importance ratio, with its gradient: (B, T), or (B, 1) where it is one of the whole sequence."""
        old = inputs.get("old_per_token_logps")
        log_ratio = per_token_logps - (per_token_logps.detach() if old is None else old)
        if self.importance_sampling_level == "sequence":
            log_ratio = ((log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)
        return torch.exp(log_ratio)

    @contextlib.contextmanager
    def _stock_beta(self, beta: float) -> Iterator[None]:
        """TRL's own KL term has this coefficient inside the block; 0 switches it off."""
        before, self.beta = self.beta, beta
        try:
            yield
        finally:
            self.beta = before

    def _num_micro_batches(self) -> float:
        """What TRL divides the mean of a micro-batch by."""
        return self.current_gradient_accumulation_steps if self.model.training else 1.0

    def _applied_entropy_coef(self) -> float:
        """The coefficient TRL is about to use; its adaptive controller moves it inside the call."""
        if not self._entropy_bonus_enabled:
            return 0.0
        if self.use_adaptive_entropy and self._last_world_entropy > self.args.entropy_target:
            return 0.0
        return float(self.entropy_coef)

    def _stock_entropy(self, entropies: torch.Tensor, mask: torch.Tensor, coef: float) -> torch.Tensor:
        """The bonus TRL puts into the loss, a mean of each micro-batch."""
        if coef == 0.0:
            return entropies.new_zeros(())
        if self.top_entropy_quantile < 1.0:
            mask = mask * self.get_high_entropy_mask(entropies, mask, 1 - self.top_entropy_quantile)
        return -coef * (entropies * mask).sum() / mask.sum().clamp(min=1.0) / self._num_micro_batches()

    def _token_weights(self, inputs: dict[str, Any], mask: torch.Tensor) -> torch.Tensor:
        """(B, T) weights with which a per-token term enters the loss; TRL's normalisation of `loss_type`."""
        share = 1.0 / self._num_micro_batches()
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
        if self.model.training:
            tokens = tokens * self._num_micro_batches() / self.args.steps_per_generation
        return mask / tokens
