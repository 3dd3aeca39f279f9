"""Checkpoints that continue the run: running mean, buffers, and the place in a generation batch."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trl_ext.errors import UserError
from trl_ext.grpo.groups import PromptQueue
from trl_ext.grpo.objective import ObjectiveStage

logger = logging.getLogger(__name__)

STATE_FOLDER = "grpo_variant"


def save_state(state: dict[str, Any], folder: str | Path, rank: int) -> None:
    """Write one process's run state into a checkpoint, whole or not at all."""
    target = Path(folder) / STATE_FOLDER
    target.mkdir(parents=True, exist_ok=True)
    partial = target / f".state_{rank}.partial"
    torch.save(state, partial)
    os.replace(partial, target / f"state_{rank}.pt")


def load_state(folder: str | Path, rank: int, device: torch.device) -> dict[str, Any] | None:
    """The run state of this process; None where the checkpoint holds none, e.g. one of TRL's own trainer."""
    path = Path(folder) / STATE_FOLDER / f"state_{rank}.pt"
    if not path.is_file():
        return None
    location = device if device.type != "cpu" else "cpu"  # several processes name it cpu:0, which torch.load refuses
    state: dict[str, Any] = torch.load(path, map_location=location, weights_only=True)
    return state


class CheckpointStage(ObjectiveStage):
    """Saves and restores what TRL forgets: it starts a new generation batch after a resume, whatever step it is."""

    _sampler: Any = None

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if not self.args.save_only_model:
            self.accelerator.wait_for_everyone()
            save_state(self._run_state(), folder, self.accelerator.process_index)
            self.accelerator.wait_for_everyone()

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        self._sampler = super()._get_train_sampler(dataset)
        return self._sampler

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        state = load_state(checkpoint, self.accelerator.process_index, self.accelerator.device)
        if state is not None:
            self._restore_run_state(state, checkpoint)
        else:
            logger.warning(
                f"{checkpoint} holds no state of GRPOVariantTrainer for this process: baseline and buffers start anew, "
                "and so does the generation batch."
            )

    def _batch_shape(self) -> dict[str, Any]:
        """What the buffers of a generation batch depend on."""
        names = ["per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"]
        names += ["num_iterations", "num_generations", "kl_placement", "zero_std"]
        return {**{name: getattr(self.args, name) for name in names}, "beta > 0": self.args.beta != 0.0}

    def _run_state(self) -> dict[str, Any]:
        between = self._step % (self.args.steps_per_generation * self.num_iterations) == 0
        return {
            "batch_shape": self._batch_shape(),
            "num_processes": self.accelerator.num_processes,
            "step": self._step,
            "epochs": int(self.state.epoch or 0),
            "buffered_inputs": None if between else self._buffered_inputs,
            "running_mean": self.running_mean.state_dict(),
            "replay_buffer": self.replay_buffer.state_dict(),
            "prompt_queue": None if self.prompt_queue is None else self.prompt_queue.state_dict(),
            "seen_steps": self._seen_steps,
        }

    def _restore_run_state(self, state: dict[str, Any], checkpoint: str) -> None:
        if state["num_processes"] != self.accelerator.num_processes:
            raise UserError(
                f"The checkpoint {checkpoint} was written by {state['num_processes']} processes and this run has "
                f"{self.accelerator.num_processes}; resume with the same number."
            )
        self._skip_orders(state["epochs"])
        self._step, self._buffered_inputs = state["step"], state["buffered_inputs"]
        shape = self._batch_shape()
        if changed := {name: old for name, old in state["batch_shape"].items() if old != shape[name]}:
            if state["buffered_inputs"] is not None:
                settings = ", ".join(f"{name}={old}" for name, old in changed.items())
                raise UserError(
                    f"The checkpoint {checkpoint} lies inside a generation batch made with {settings}; resume "
                    "with that."
                )
            self._step = 0  # between two generation batches: the next one begins with the next step
        self.running_mean.load_state_dict(state["running_mean"])
        if shape["num_generations"] == state["batch_shape"]["num_generations"]:
            self.replay_buffer.load_state_dict(state["replay_buffer"])
        if state["prompt_queue"] is not None and self.args.zero_std == "resample":
            self.prompt_queue = PromptQueue(
                len(self.train_dataset), shuffle=self.shuffle_dataset, seed=self.args.seed + 1
            )
            self.prompt_queue.load_state_dict(state["prompt_queue"])
        self._seen_steps = state["seen_steps"]

    def _skip_orders(self, num_epochs: int) -> None:
        """TRL's sampler draws an order each epoch, and in a resumed run would begin with that of the first one."""
        if getattr(self._sampler, "shuffle", False):
            for _ in range(num_epochs):
                torch.randperm(self._sampler.num_samples, generator=self._sampler.generator)
