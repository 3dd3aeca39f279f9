"""Checkpoints that continue the run: running mean, buffers, and the place in a generation batch."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from trl_ext._checkpoint import ResumeStage, load_state
from trl_ext.grpo.groups import PromptQueue
from trl_ext.grpo.objective import ObjectiveStage

logger = logging.getLogger(__name__)

STATE_FOLDER = "grpo_variant"


class CheckpointStage(ResumeStage, ObjectiveStage):
    """Saves and restores what TRL forgets, and what belongs to the variants."""

    _state_folder = STATE_FOLDER

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        folder = Path(checkpoint) / STATE_FOLDER
        state = load_state(folder, self.accelerator.process_index, self.accelerator.device)
        if state is not None:
            self._restore_run_state(state, checkpoint)
        else:
            logger.warning(
                f"{checkpoint} holds no state of GRPOVariantTrainer for this process: baseline and buffers start anew, "
                "and so does the generation batch."
            )

    def _batch_shape(self) -> dict[str, Any]:
        names = ["per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"]
        names += ["num_iterations", "num_generations", "kl_placement", "zero_std"]
        return {**{name: getattr(self.args, name) for name in names}, "beta > 0": self.args.beta != 0.0}

    def _run_state(self) -> dict[str, Any]:
        return {
            **self._run_place(),
            "running_mean": self.running_mean.state_dict(),
            "replay_buffer": self.replay_buffer.state_dict(),
            "prompt_queue": None if self.prompt_queue is None else self.prompt_queue.state_dict(),
            "seen_steps": self._seen_steps,
        }

    def _restore_run_state(self, state: dict[str, Any], checkpoint: str) -> None:
        self._restore_run_place(state, f"The checkpoint {checkpoint}")
        self.running_mean.load_state_dict(state["running_mean"])
        if self.args.num_generations == state["batch_shape"]["num_generations"]:
            self.replay_buffer.load_state_dict(state["replay_buffer"])
        if state["prompt_queue"] is not None and self.args.zero_std == "resample":
            self.prompt_queue = PromptQueue(
                len(self.train_dataset), shuffle=self.shuffle_dataset, seed=self.args.seed + 1
            )
            self.prompt_queue.load_state_dict(state["prompt_queue"])
        self._seen_steps = state["seen_steps"]
