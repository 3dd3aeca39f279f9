"""The critic in checkpoints and beside the final model, and the run's state."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers.trainer_utils import HubStrategy

from trl_ext._checkpoint import STAGED, ResumeStage, load_state, removed_after_error, shapes_in
from trl_ext.errors import UserError
from trl_ext.ppo.critic import VALUE_ADAPTER, Critic

logger = logging.getLogger(__name__)

CRITIC_FOLDER = "critic"
WEIGHTS_FILE = "critic.safetensors"
CONFIG_FILE = "critic_config.json"
FORMAT_VERSION = 1


@contextlib.contextmanager
def replaced_files(folder: str | Path, is_main: bool = True) -> Iterator[Path]:
    """A staging folder inside `folder`, whose files are renamed into `folder` once the block has ended well."""
    folder = Path(folder)
    staging = folder / STAGED
    if is_main:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
    with removed_after_error(staging, is_main):
        yield staging
    if not is_main:
        return
    for path in sorted(p for p in staging.rglob("*") if p.is_file()):
        target = folder / path.relative_to(staging)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, target)
    shutil.rmtree(staging)


def remove_stale_critic(folder: str | Path) -> None:
    """Remove a critic that an earlier save left beside a policy; other files in its folder stay.

    Nothing is removed from a checkpoint, which is known by the states of its processes.
    """
    target = Path(folder) / CRITIC_FOLDER
    own = [path for path in (target / WEIGHTS_FILE, target / CONFIG_FILE) if path.is_file()]
    if not own or list(target.glob("state_*.pt")):
        return
    for path in own:
        path.unlink()
    if not any(target.iterdir()):
        target.rmdir()
    logger.warning(f"Removed the critic in {target}: it belongs to an earlier policy than the one beside it.")


def save_critic(critic: Critic, folder: str | Path) -> None:
    """Write `folder/critic/`: weights in float32 or their own dtype, and what they belong to."""
    target = Path(folder) / CRITIC_FOLDER
    target.mkdir(parents=True, exist_ok=True)
    weights = {name: p.detach().cpu().contiguous() for name, p in critic.parameters().items()}
    save_file(weights, target / WEIGHTS_FILE)
    config = {
        "format_version": FORMAT_VERSION,
        "critic": critic.mode,
        "hidden_size": critic.head.linear.in_features,
        "head_normalizes": critic.head.normalize,
    }
    (target / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def check_critic(critic: Critic, folder: str | Path) -> None:
    """Refuse a checkpoint without a critic, or with another kind of critic."""
    path = Path(folder) / CRITIC_FOLDER / CONFIG_FILE
    if not Path(folder).is_dir():
        raise UserError(f"There is no checkpoint {folder}.")
    if not path.is_file():
        raise UserError(
            f"The checkpoint {folder} holds no critic, so PPOTrainer did not write it; to start PPO from its policy, "
            "pass that policy as the model instead of resuming."
        )
    saved = json.loads(path.read_text(encoding="utf-8"))
    if saved["critic"] != critic.mode:
        raise UserError(
            f"The checkpoint {folder} was written with critic='{saved['critic']}' and this run has "
            f"critic='{critic.mode}'; resume with critic='{saved['critic']}'."
        )
    _check_weights(critic, folder)


def _check_weights(critic: Critic, folder: str | Path) -> None:
    remedy = "resume with the same peft_config or value_model."
    saved = shapes_in(Path(folder) / CRITIC_FOLDER / WEIGHTS_FILE)
    here = {name: tuple(p.shape) for name, p in critic.parameters().items()}
    for name in sorted(set(saved) ^ set(here)):
        raise UserError(f"The critic in {folder} and this run's critic differ at '{name}'; {remedy}")
    for name, shape in here.items():
        if saved[name] != shape:
            raise UserError(f"The critic's '{name}' has shape {saved[name]} in {folder} and {shape} here; {remedy}")


def load_critic(critic: Critic, folder: str | Path) -> None:
    """Load the weights that `save_critic` wrote.

    Raises:
        UserError: If names or shapes differ from this run's critic.
    """
    _check_weights(critic, folder)
    weights = load_file(Path(folder) / CRITIC_FOLDER / WEIGHTS_FILE)
    with torch.no_grad():
        for name, parameter in critic.parameters().items():
            parameter.copy_(weights[name])


class CheckpointMixin(ResumeStage):
    """Save, resume and reload for a trainer with a `critic`.

    The policy's folder holds the policy alone, as plain PEFT or transformers weights. Checkpoints add `critic/`: the
    critic's weights and, for each process, the run's state.
    """

    _state_folder = CRITIC_FOLDER

    def _save_extras(self, folder: Path) -> None:
        if self.args.should_save:
            save_critic(self.critic, folder)
        super()._save_extras(folder)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        output_dir = output_dir if output_dir is not None else self.args.output_dir
        in_checkpoint = self._staging is not None
        with self._without_critic(keep_reference=in_checkpoint):
            if in_checkpoint:
                super()._save(output_dir, state_dict)
                return
            with replaced_files(output_dir, self.args.should_save) as staging:
                super()._save(str(staging), state_dict)
                if self.args.save_critic and self.args.should_save:
                    save_critic(self.critic, staging)
        if self.args.should_save and not self.args.save_critic:
            remove_stale_critic(output_dir)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if self.is_world_process_zero() and self.args.hub_strategy != HubStrategy.END:
            # the policy is copied from the checkpoint into the folder that is pushed
            remove_stale_critic(self.args.output_dir)
        super()._push_from_checkpoint(checkpoint_folder)

    @contextlib.contextmanager
    def _without_critic(self, keep_reference: bool) -> Iterator[None]:
        """PEFT saves every adapter of a model; leave the critic's out, and the reference's but for a resume."""
        model = self.accelerator.unwrap_model(self.model)
        if not hasattr(model, "peft_config"):
            yield
            return
        left_out = {VALUE_ADAPTER} if keep_reference else {VALUE_ADAPTER, "ref"}
        adapters = [name for name in model.peft_config if name not in left_out]
        save = model.save_pretrained
        model.save_pretrained = partial(save, selected_adapters=adapters)
        try:
            yield
        finally:
            del model.save_pretrained

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        check_critic(self.critic, resume_from_checkpoint)
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        load_critic(self.critic, resume_from_checkpoint)
        self.critic.enable_gradients()

    def _load_best_model(self) -> None:
        super()._load_best_model()
        load_critic(self.critic, self.state.best_model_checkpoint)  # values of another policy would be of no use
        self.critic.enable_gradients()

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            folder = Path(checkpoint) / CRITIC_FOLDER
            state = load_state(folder, self.accelerator.process_index, self.accelerator.device)
            if state is not None:
                self._restore_run_state(state)

    def _batch_shape(self) -> dict[str, Any]:
        names = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation", "num_iterations")
        shape = {name: getattr(self.args, name) for name in names}
        return {**shape, "kl_coef > 0": self.args.beta != 0.0, "kl_placement": self.args.kl_placement}

    def _run_state(self) -> dict[str, Any]:
        """What a resumed run needs beside weights and optimizer."""
        between = self._is_between_batches()
        return {
            **self._run_place(),
            "rollouts": None if between else self._rollouts,
            "updates_stopped": self._updates_stopped and not between,
            "kl_controller": self.kl_controller.state_dict(),
            "reward_scale": self.reward_scale.state_dict(),
        }

    def _restore_run_state(self, state: dict[str, Any]) -> None:
        self._restore_run_place(state, "The checkpoint")
        self._rollouts = state["rollouts"]
        self._updates_stopped = state["updates_stopped"]
        if self.args.kl_target is not None:  # a fixed coefficient is what this run's configuration says
            self.kl_controller.load_state_dict(state["kl_controller"])
        self.reward_scale.load_state_dict(state["reward_scale"])
