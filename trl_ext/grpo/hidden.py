"""KL over the whole vocabulary, from hidden states: TRL's fused head never shows the logits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import use_adapter

from trl_ext._trainer import backbone_of, hidden_states
from trl_ext.grpo.config import GRPOVariantConfig
from trl_ext.kl import full_kl

_CHUNK_BYTES = 2**28  # logits of one chunk, per model


class FullKLStage(GRPOTrainer):
    """Hidden states of policy and reference, and the divergence of what their heads make of them."""

    args: GRPOVariantConfig
    _hidden: list[torch.Tensor]  # what `_record_hidden` collected
    _recording: bool = False

    def _record_hidden(self, output: Any) -> None:
        """Forward hook of the backbone."""
        if self._recording:
            self._hidden.append(output.last_hidden_state)

    @contextlib.contextmanager
    def _recorded_hidden(self, wanted: bool) -> Iterator[list[torch.Tensor]]:
        """A list that receives the hidden states of the policy passes inside the block."""
        self._recording, self._hidden = wanted, []
        try:
            yield self._hidden
        finally:
            self._recording, self._hidden = False, []

    @torch.no_grad()
    def _rollout_full_kl(self, output: dict[str, Any]) -> torch.Tensor:
        """(B, T) divergence of the policy that sampled, a forward pass of each model."""
        size = self.args.per_device_train_batch_size if self.model.training else self.args.per_device_eval_batch_size
        parts = []
        with (
            disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
            self.accelerator.autocast(),
        ):
            for start in range(0, output["completion_ids"].size(0), size):
                rows = slice(start, start + size)
                hidden = hidden_states(backbone_of(self.accelerator.unwrap_model(self.model)), output, rows)
                parts.append(self._full_kl(hidden, self._reference_hidden(output, rows)))
        return torch.cat(parts)

    @torch.no_grad()
    def _reference_hidden(self, inputs: dict[str, Any], rows: slice = slice(None)) -> torch.Tensor:
        with self.accelerator.autocast():
            if self.ref_model is not None:
                return hidden_states(backbone_of(self.accelerator.unwrap_model(self.ref_model)), inputs, rows)
            model = self.accelerator.unwrap_model(self.model)
            with (
                disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
                use_adapter(model, "ref" if "ref" in model.peft_config else None),
            ):
                return hidden_states(backbone_of(model), inputs, rows)

    def _full_kl(self, hidden: torch.Tensor, ref_hidden: torch.Tensor) -> torch.Tensor:
        """KL over the vocabulary (B, T), from hidden states (B, T, H), a few tokens' logits at a time."""
        head = self.accelerator.unwrap_model(self.model).get_output_embeddings()
        ref = head if self.ref_model is None else self.accelerator.unwrap_model(self.ref_model).get_output_embeddings()

        def chunk_kl(h: torch.Tensor, h_ref: torch.Tensor) -> torch.Tensor:
            logits, ref_logits = head(h) / self.temperature, ref(h_ref) / self.temperature
            return full_kl(logits, ref_logits, direction=self.args.kl_direction)

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
