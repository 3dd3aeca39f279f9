"""Checkpoints that are whole or absent, and the place in a run that they remember beside weights and optimizer.

A checkpoint is written to a staging folder and renamed once it is whole; one that is no longer wanted is renamed before
it is deleted. A process that is killed leaves no half of one under a checkpoint's name.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from accelerate.utils import is_peft_model
from peft import PeftType, get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, sort_checkpoints
from transformers.utils import (
    ADAPTER_CONFIG_NAME,
    ADAPTER_SAFE_WEIGHTS_NAME,
    ADAPTER_WEIGHTS_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_NAME,
)
from trl import GRPOTrainer

from trl_ext._trainer import sharding_of
from trl_ext.errors import UserError

logger = logging.getLogger(__name__)

# A push to the Hub leaves out names that begin with an underscore, and would upload any other of these.
STAGED = "_partial"
_SET_ASIDE = "_old-"  # whole: what is about to be replaced
_DELETED = "_deleted-"

_ADAPTER_FILES = (ADAPTER_SAFE_WEIGHTS_NAME, ADAPTER_WEIGHTS_NAME)
_FULL_FILES = (SAFE_WEIGHTS_NAME, WEIGHTS_NAME)
_SAME_POLICY = "resume with the same model and peft_config, or start afresh with that policy as the model."

Shapes = dict[str, tuple[int, ...]]


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
    try:
        state: dict[str, Any] = torch.load(path, map_location=location, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:  # each for another kind of cut
        reason = str(error).split("\n")[0]
        raise UserError(f"{path} cannot be read ({reason}); resume from an earlier checkpoint.") from error
    return state


def replace_folder(staging: Path, target: Path) -> None:
    """Rename `staging` to `target`; a folder already there is set aside first and removed afterwards."""
    aside = target.with_name(f"{_SET_ASIDE}{target.name}")
    shutil.rmtree(aside, ignore_errors=True)
    if target.exists():
        os.replace(target, aside)
    try:
        os.replace(staging, target)
    except OSError:
        if aside.exists():
            os.replace(aside, target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def removed_after_error(folder: Path, is_main: bool) -> Iterator[None]:
    """Remove `folder` if the block ends with an error: on a full disk, it is what keeps the disk full."""
    with contextlib.ExitStack() as stack:
        if is_main:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield
        stack.pop_all()


def clear_left_overs(folder: Path) -> None:
    """Finish what killed processes left in a run's folder: a checkpoint set aside comes back, parts of others go."""

    def named(prefix: str) -> list[Path]:
        return sorted(folder.glob(f"{prefix}{PREFIX_CHECKPOINT_DIR}-*"))

    for aside in named(_SET_ASIDE):
        target = folder / aside.name[len(_SET_ASIDE) :]
        if not target.exists():  # killed between the two renames of `replace_folder`
            os.replace(aside, target)
    for left_over in [*named(f"{STAGED}-"), *named(_DELETED), *named(_SET_ASIDE)]:
        shutil.rmtree(left_over, ignore_errors=True)


def delete_folder(folder: Path) -> None:
    """Delete a folder; what a kill leaves of it has another name."""
    aside = folder.with_name(f"{_DELETED}{folder.name}")
    shutil.rmtree(aside, ignore_errors=True)
    os.replace(folder, aside)
    shutil.rmtree(aside, ignore_errors=True)


def fault_of(checkpoint: Path) -> str | None:
    """What keeps a run from going on from this folder, in a few words; None for a whole checkpoint."""
    try:
        json.loads((checkpoint / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"its {TRAINER_STATE_NAME} is missing or cut off"
    for path in sorted(checkpoint.rglob("*.pt*")):
        if path.suffix in (".pt", ".pth") and not zipfile.is_zipfile(path):
            return f"{path.relative_to(checkpoint)} is cut off"
    for path in sorted(checkpoint.rglob("*.safetensors")):
        try:
            with safe_open(path, framework="pt"):
                pass
        except (OSError, SafetensorError):
            return f"{path.relative_to(checkpoint)} is cut off"
    return None


def shapes_in(path: Path) -> Shapes:
    """Shapes of the tensors in a file of weights, by name.

    Raises:
        UserError: If the file cannot be read.
    """
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as weights:
                return {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}
        return _shapes_of(torch.load(path, map_location="meta", weights_only=True))
    except (OSError, SafetensorError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"{path} cannot be read ({reason}); resume from an earlier checkpoint.") from error


def _shapes_of(state: Mapping[str, Any]) -> Shapes:
    return {name: tuple(value.shape) for name, value in state.items() if isinstance(value, torch.Tensor)}


def _saved_shapes(folder: Path, names: Sequence[str]) -> Shapes | None:
    """Shapes in the first of these files that `folder` has, whole or in parts; None where it has none."""
    for name in names:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return shapes_in(folder / name)
        if index.is_file():
            parts = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
            return {key: shape for part in parts for key, shape in shapes_in(folder / part).items()}
    return None


def check_policy(model: Any, folder: Path) -> None:
    """A checkpoint's policy has the tensors of this run's, no more and no fewer, in the same shapes.

    transformers and PEFT load what has a place and pass over the rest, with a warning at most: a weight that the
    checkpoint lacks would stay at its start, under the optimizer state of another one.

    Args:
        model: The policy, unwrapped.
        folder: The checkpoint.

    Raises:
        UserError: At the first tensor that differs, or if one is an adapter and the other full weights.
    """
    full = _saved_shapes(folder, _FULL_FILES)
    if is_peft_model(model):
        if full is not None:
            raise UserError(
                f"The checkpoint {folder} holds full weights and this run trains an adapter; {_SAME_POLICY}"
            )
        _check_adapters(model, folder)
    elif full is not None:
        state = model.state_dict()
        there = {state[name].data_ptr() for name in full if name in state} - {0}
        tied = {name for name, value in state.items() if torch.is_tensor(value) and value.data_ptr() in there}
        ignored = getattr(model, "_keys_to_ignore_on_save", None) or ()
        _compare(folder, full, _shapes_of(state), may_lack=tied.union(ignored))
    elif _adapter_folders(folder, "default"):
        raise UserError(f"The checkpoint {folder} holds an adapter and this run trains full weights; {_SAME_POLICY}")
    else:
        _refuse_empty(folder)


def _refuse_empty(folder: Path) -> NoReturn:
    raise UserError(f"The checkpoint {folder} holds no weights of a policy; resume from another one.")


def _adapter_folders(folder: Path, active: str) -> dict[str, Path]:
    """Folders of a checkpoint's adapters, by the names under which transformers loads them."""

    def has_adapter(path: Path) -> bool:
        return any((path / name).is_file() for name in _ADAPTER_FILES)

    beside = {path.name: path for path in sorted(folder.iterdir()) if path.is_dir() and has_adapter(path)}
    if has_adapter(folder):
        return {"default" if beside else active: folder, **beside}
    return beside


def _check_adapters(model: Any, folder: Path) -> None:
    active = model.active_adapters[0]
    adapters = _adapter_folders(folder, active)
    if not adapters:
        _refuse_empty(folder)
    if active not in adapters:
        raise UserError(
            f"The checkpoint {folder} holds the adapter {' and '.join(map(repr, adapters))} and this run trains "
            f"{active!r}; {_SAME_POLICY}"
        )
    for name in adapters.keys() & model.peft_config.keys():
        _check_adapter(model, name, folder, adapters[name])


def _check_adapter(model: Any, name: str, folder: Path, place: Path) -> None:
    """Compare one adapter; the embeddings that PEFT adds to some files, as they are, may be there or not."""
    own, with_embeddings = (
        _shapes_of(get_peft_model_state_dict(model, adapter_name=name, save_embedding_layers=embeddings))
        for embeddings in (False, True)
    )
    config = place / ADAPTER_CONFIG_NAME
    saved_config = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    trained = set(saved_config.get("modules_to_save") or ())
    optional = {key: shape for key, shape in with_embeddings.items() if not trained.intersection(key.split("."))}
    saved = _saved_shapes(place, _ADAPTER_FILES) or {}
    here = {**optional, **own}
    if model.peft_config[name].peft_type == PeftType.ADALORA:  # its ranks shrink as it trains
        saved = {key: here.get(key, shape) for key, shape in saved.items()}
    _compare(folder, saved, here, may_lack=here.keys() - own.keys())


def _compare(folder: Path, saved: Shapes, here: Shapes, may_lack: set[str]) -> None:
    missing = sorted(set(here) - set(saved) - may_lack)
    surplus = sorted(set(saved) - set(here))
    faults = [f"has no {missing[0]!r}"] if missing else []
    faults += [f"has {surplus[0]!r}, which this run lacks"] if surplus else []
    if faults:
        count = len(missing) + len(surplus)
        total = f" ({count} tensors differ)" if count > len(faults) else ""
        raise UserError(f"The policy in {folder} {' and '.join(faults)}{total}; {_SAME_POLICY}")
    for name, shape in saved.items():
        if shape != here[name]:
            raise UserError(
                f"The policy's {name!r} has shape {shape} in {folder} and {here[name]} here; {_SAME_POLICY}"
            )


def last_whole_checkpoint(folder: str | Path) -> str | None:
    """Path of the checkpoint of the most steps that is whole; each later one is passed over with a warning.

    Args:
        folder: Output folder of a run.

    Returns:
        The path, or None where there is none.
    """
    for path in reversed(sort_checkpoints(str(folder))):
        fault = fault_of(Path(path))
        if fault is None:
            return path
        logger.warning(f"{path} is not whole ({fault}); it is passed over.")
    return None


class ResumeStage(GRPOTrainer):
    """Whole checkpoints, from which a run goes on inside a generation batch and in the order of the epoch.

    TRL starts a new generation batch after a resume, whatever step it is. A subclass says in `_batch_shape` which
    settings the buffers of a generation batch depend on, in `_run_state` what a process saves, and where.
    """

    _sampler: Any = None
    _staging: Path | None = None
    _state_folder: str  # in a checkpoint, for the states of the processes

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train; `resume_from_checkpoint=True` goes on from the last whole checkpoint.

        Raises:
            UserError: If there is no such checkpoint, or it is not whole.
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = self._last_checkpoint()
        elif isinstance(resume_from_checkpoint, str | os.PathLike):
            _check_checkpoint(Path(resume_from_checkpoint))
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _last_checkpoint(self) -> str:
        folder = Path(self.args.output_dir)
        if self.args.should_save:
            clear_left_overs(folder)
        self.accelerator.wait_for_everyone()
        checkpoint = last_whole_checkpoint(folder)
        if checkpoint is None:
            raise UserError(
                f"The folder {folder} holds no whole checkpoint to resume from; train without resume_from_checkpoint."
            )
        return checkpoint

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if sharding_of(self.accelerator) is None:  # else no process holds the names and shapes of a checkpoint
            policy = self.accelerator.unwrap_model(self.model if model is None else model)
            check_policy(policy, Path(resume_from_checkpoint))
        super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _get_output_dir(self, trial: Any) -> str:
        output_dir: str = super()._get_output_dir(trial) if self._staging is None else str(self._staging)
        return output_dir

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        run_dir = Path(super()._get_output_dir(trial))
        name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if self.args.should_save:
            clear_left_overs(run_dir)
        self.accelerator.wait_for_everyone()
        staging = run_dir / f"{STAGED}-{name}"
        push, self.args.push_to_hub = self.args.push_to_hub, False  # not before the folder has its name
        try:
            self._staging = staging
            with removed_after_error(staging, self.args.should_save):
                super()._save_checkpoint(model, trial)
                self._save_extras(staging / name)
                self._staging = None
                self.accelerator.wait_for_everyone()
                if self.args.should_save:
                    self._publish(staging, run_dir, name)
        finally:
            self._staging, self.args.push_to_hub = None, push
        self.accelerator.wait_for_everyone()
        if push:
            self._push_from_checkpoint(str(run_dir / name))

    def _save_extras(self, folder: Path) -> None:
        """Write what TRL's checkpoint lacks into it."""
        if not self.args.save_only_model:
            self.accelerator.wait_for_everyone()
            save_state(self._run_state(), folder / self._state_folder, self.accelerator.process_index)

    def _publish(self, staging: Path, run_dir: Path, name: str) -> None:
        best = self.state.best_model_checkpoint
        if best is not None and Path(best).is_relative_to(staging):
            self.state.best_model_checkpoint = str(run_dir / Path(best).name)
            self.state.save_to_json(str(staging / name / TRAINER_STATE_NAME))
        replace_folder(staging / name, run_dir / name)
        shutil.rmtree(staging, ignore_errors=True)
        self._delete_old(run_dir)

    def _delete_old(self, run_dir: Path) -> None:
        """Keep `save_total_limit` checkpoints, the newest and the best among them."""
        limit = self.args.save_total_limit
        if limit is None or limit <= 0:
            return
        paths = [Path(path) for path in sort_checkpoints(str(run_dir), use_mtime=True)]
        kept = {paths[-1]}
        if self.state.best_model_checkpoint is not None:
            kept.add(Path(self.state.best_model_checkpoint))
        surplus = len(paths) - max(limit, len(kept))
        for path in [path for path in paths if path not in kept][: max(0, surplus)]:
            delete_folder(path)

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

    def _run_state(self) -> dict[str, Any]:
        """What this process needs to go on, beside weights and optimizer."""
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
                settings = ", ".join(_said(setting, old) for setting, old in changed.items())
                raise UserError(f"{name} lies inside a generation batch made with {settings}; resume with that.")
            self._step = 0  # between two generation batches: the next one begins with the next step


def _said(setting: str, value: Any) -> str:
    """A setting of a batch's shape as one would write it; "beta > 0" is known to be true or false only."""
    name = setting.removesuffix(" > 0")
    if name == setting:
        return f"{setting}={value}"
    return f"{name} above 0" if value else f"{name}=0"


def _check_checkpoint(folder: Path) -> None:
    if not folder.is_dir():
        raise UserError(f"There is no checkpoint {folder}.")
    if (fault := fault_of(folder)) is not None:
        raise UserError(f"The checkpoint {folder} is not whole ({fault}); resume from an earlier one.")
