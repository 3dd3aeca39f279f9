"""Hidden states of TRL's own pass of the policy, for the KL over the whole vocabulary: TRL never shows the logits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from trl_ext._objective import TermsStage
from trl_ext.grpo.config import GRPOVariantConfig


class RecordingStage(TermsStage):
    """Keeps what the policy's backbone returns while TRL computes its loss."""

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
