"""The model card: what TRL writes, and what a reader needs to judge and repeat a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# Settings that decide the result; the resolved configuration beside the model holds all of them.
_SETTINGS = (
    "learning_rate",
    "advantage_estimator",
    "advantage_baseline",
    "advantage_scale",
    "zero_std",
    "critic",
    "critic_learning_rate",
    "critic_target",
    "vf_coef",
    "cliprange_value",
    "gamma",
    "lam",
    "beta",
    "kl_estimator",
    "kl_placement",
    "kl_direction",
    "epsilon",
    "loss_type",
    "num_iterations",
    "num_generations",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "max_completion_length",
    "temperature",
    "max_steps",
    "seed",
)


def write_model_card(
    trainer: Any,
    *,
    dataset_name: str | None = None,
    results: dict[str, Any] | None = None,
    command: str | None = None,
) -> Path:
    """Write `README.md` into the trainer's output folder: TRL's card, rewards, results, settings, command.

    Args:
        trainer: A TRL trainer with reward functions.
        dataset_name (`str`, *optional*): Name of the data set.
        results (`dict`, *optional*): Name -> figure, as measured.
        command (`str`, *optional*): The command that made the model.

    Returns:
        `Path`: The card.
    """
    path = Path(trainer.args.output_dir) / "README.md"
    name = (trainer.args.hub_model_id or path.parent.resolve().name).split("/")[-1]
    on_hub = dataset_name is not None and not Path(dataset_name).exists()
    trainer.create_model_card(model_name=name, dataset_name=dataset_name if on_hub else None)
    if not trainer.is_world_process_zero():
        return path
    sections = [_rewards(trainer), _table("Results", results), _table("Settings", _settings(trainer.args))]
    if command:
        sections.append(f"## Reproduction\n\n```shell\n{command}\n```\n")
    partial = path.with_suffix(".md.partial")
    card = _with_base_model(path.read_text(encoding="utf-8").rstrip(), trainer.model.config)
    partial.write_text("\n\n".join([card, *filter(None, sections)]) + "\n", encoding="utf-8")
    os.replace(partial, path)
    return path


def _with_base_model(card: str, config: Any) -> str:
    """TRL writes None for a base model that lies in a folder: name the folder, and link nowhere."""
    base = Path(str(getattr(config, "_name_or_path", ""))).name or "a local model"
    card = card.replace("[None](https://huggingface.co/None)", f"`{base}`")
    return card.replace('model="None"', 'model="path/to/this/folder"')


def _rewards(trainer: Any) -> str:
    weights = trainer.reward_weights.tolist()
    rows = "\n".join(f"| `{n}` | {w:g} |" for n, w in zip(trainer.reward_func_names, weights, strict=True))
    return f"## Rewards\n\n| reward | weight |\n|---|---|\n{rows}\n"


def _settings(args: Any) -> dict[str, Any]:
    return {f"`{name}`": getattr(args, name) for name in _SETTINGS if hasattr(args, name)}


def _table(title: str, rows: dict[str, Any] | None) -> str:
    if not rows:
        return ""
    body = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return f"## {title}\n\n| | |\n|---|---|\n{body}\n"
