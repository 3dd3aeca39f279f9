"""The place in a run that a checkpoint must remember beside weights and optimizer, for each process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from trl import GRPOTrainer

from trl_ext.errors import UserError


def save_state(state: dict[str, Any], folder: Path, rank: int) -> None:
    """Write one process's run state (step, buffers, controllers) into `folder`, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".state_{rank}.partial"
    torch.save(state, partial)
    os.replace(partial, folder / f"state_{rank}.pt")


def load_state(folder: Path, rank: int, device: torch.device) -> dict[str, Any] | None:
    """The run state of this process; None where `folder` holds none of it."""
    path = folder / f"state_{rank}.pt"
    if not path.is_file():
        return None
    location = device if device.type != "cpu" else "cpu"  # several processes name it cpu:0, which torch.load refuses
    state: dict[str, Any] = torch.load(path, map_location=location, weights_only=True)
    return state


class ResumeStage(GRPOTrainer):
    """Continues inside a generation batch and in the order of the epoch.

    TRL starts a new generation batch after a resume, whatever step it is. A subclass says in `_batch_shape` which
    settings the buffers of a generation batch depend on.
    """

    _sampler: Any = None

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        self._sampler = super()._get_train_sampler(dataset)
        return self._sampler

    def _skip_orders(self, num_epochs: int) -> None:
        """TRL's sampler draws an order each epoch, and in a resumed run would begin with that of the first one."""
        if getattr(self._sampler, "shuffle", False):
            for _ in range(num_epochs):
                torch.randperm(self._sampler.num_samples, generator=self._sampler.generator)

    def _batch_shape(self) -> dict[str, Any]:
        """Settings that the buffers of a generation batch depend on, by name."""
        raise NotImplementedError

    def _is_between_batches(self) -> bool:
        """Whether the next step begins with new rollouts."""
        return self._step % (self.args.steps_per_generation * self.num_iterations) == 0

    def _run_place(self) -> dict[str, Any]:
        """The part of a run's state that `_restore_run_place` reads."""
        return {
            "batch_shape": self._batch_shape(),
            "num_processes": self.accelerator.num_processes,
            "step": self._step,
            "epochs": int(self.state.epoch or 0),
            "buffered_inputs": None if self._is_between_batches() else self._buffered_inputs,
        }

    def _restore_run_place(self, state: dict[str, Any], name: str) -> None:
        """Continue where `_run_place` was.

        Args:
            state: What was saved.
            name: What the messages call the checkpoint.

        Raises:
            UserError: If the number of processes differs, or the batch that the run was in has another shape here.
        """
        if state["num_processes"] != self.accelerator.num_processes:
            raise UserError(
                f"{name} was written by {state['num_processes']} processes and this run has "
                f"{self.accelerator.num_processes}; resume with the same number."
            )
        self._skip_orders(state["epochs"])
        self._step, self._buffered_inputs = state["step"], state["buffered_inputs"]
        shape = self._batch_shape()
        if changed := {setting: old for setting, old in state["batch_shape"].items() if old != shape[setting]}:
            if state["buffered_inputs"] is not None:
                settings = ", ".join(f"{setting}={old}" for setting, old in changed.items())
                raise UserError(f"{name} lies inside a generation batch made with {settings}; resume with that.")
            self._step = 0  # between two generation batches: the next one begins with the next step
