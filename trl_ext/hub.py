"""The model card: what TRL writes, and what a reader needs to judge and repeat a run."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trl_ext.errors import UserError

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


# The block between the `---` lines at the start of a card, and in it the entry of the figures: what is indented, and
# list items and comments that are not.
_METADATA = re.compile(r"\A(\ufeff?\s*---[ \t]*\r?\n)(.*?)(^---[ \t]*(?:\r?\n|\Z))", re.DOTALL | re.MULTILINE)
_OLD_LINE_ENDS = re.compile(r"\ufeff?\s*---[ \t]*\r(?!\n)")
_MODEL_INDEX = re.compile(
    r"""^(?P<quote>["']?)model-index(?P=quote)[ \t]*:.*?(?=^[^\s\-#]|\Z)""", re.DOTALL | re.MULTILINE
)
# Blank lines and comments behind the entry: they are of what comes next.
_TRAILING = re.compile(r"(?:^(?:#[^\n]*|[ \t\r]*)(?:\n|\Z))*\Z", re.MULTILINE)


def add_eval_results(card_path: str | Path, results: Sequence[Any]) -> Path:
    """Put figures into a model card's `model-index`, where the Hub looks for them.

    A figure of the same set and the same metric name is replaced; everything else in the card stays as it is, to the
    letter. A card that is not there is made.

    Args:
        card_path (`str` or `Path`): a `README.md`, or the folder that holds it.
        results (`Sequence[EvalResult]`): figures, such as `Report.eval_results()` returns.

    Returns:
        `Path`: The card.

    Raises:
        UserError: For a card that is no text in UTF-8, whose metadata is no valid YAML or cannot take the figures
            without a change of what else is there, or whose `model-index` has another form.
    """
    path = _card_path(card_path)
    if not results:
        return path
    text = _with_results(_card_text(path), path, results)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(text.encode("utf-8"))
    os.replace(partial, path)
    return path


def check_card(card_path: str | Path) -> None:
    """Whether figures can be put into a card, before they are measured.

    Args:
        card_path (`str` or `Path`): a `README.md`, or the folder that holds it; it need not be there.

    Raises:
        UserError: For a card that `add_eval_results` would refuse.
    """
    from huggingface_hub import EvalResult

    path = _card_path(card_path)
    trial: dict[str, Any] = {
        "task_type": "text-generation",
        "dataset_type": "trial",
        "dataset_name": "trial",
        "metric_type": "trial",
    }
    _with_results(_card_text(path), path, [EvalResult(**trial, metric_value=0.0)])


def _card_path(card_path: str | Path) -> Path:
    path = Path(card_path)
    return path / "README.md" if path.is_dir() else path


def _card_text(path: Path) -> str:
    if not path.exists():
        return f"# {_card_name(path)}\n"
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is no text in UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from error


def _with_results(text: str, path: Path, results: Sequence[Any]) -> str:
    """The card's text with the figures in it, and all other metadata as it was, which is seen to."""
    from huggingface_hub.repocard_data import eval_results_to_model_index

    match = _METADATA.match(text)
    if match is None and _OLD_LINE_ENDS.match(text):
        raise UserError(f"{path}: its lines end in CR alone, as on old Macs; save it with LF or CRLF")
    block = match[2] if match else ""
    index = _merged(_model_index(block, path), eval_results_to_model_index(_card_name(path), list(results)))
    newline = "\r\n" if "\r\n" in text else "\n"
    new = _MODEL_INDEX.sub(lambda found: _TRAILING.search(found[0])[0], block)  # type: ignore[index]
    new += newline if new and not new.endswith("\n") else ""
    new += _yaml({"model-index": index}).replace("\n", newline)
    _refuse_loss(block, new, index, path)
    if match:
        return match[1] + new + match[3] + text[match.end() :]
    return f"---{newline}{new}---{newline}{newline}{text}"


def _refuse_loss(old: str, new: str, index: list[dict[str, Any]], path: Path) -> None:
    """Refuse metadata whose other fields would not be what they were: an anchor that is gone, a form in one line."""
    import yaml

    before = yaml.safe_load(old) or {}
    try:
        after = yaml.safe_load(new)
    except yaml.YAMLError:
        after = None
    if after != {**before, "model-index": yaml.safe_load(_yaml(index))}:
        raise UserError(
            f"{path}: figures cannot be put into its metadata without a change of what else is there; write the "
            "metadata as `name: value` lines, without {...} around them, anchors (&) in model-index or a line `...`"
        )


def _card_name(path: Path) -> str:
    return path.resolve().parent.name or "model"


def _yaml(data: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
    return text


def _model_index(block: str, path: Path) -> list[dict[str, Any]]:
    """The entries that the card's metadata has, `[]` for none."""
    import yaml

    try:
        index = (yaml.safe_load(block) or {}).get("model-index") or []
        results = [result for model in index for result in model["results"]]
        _ = [(_place(result), [_figure(metric) for metric in result["metrics"]]) for result in results]
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{path}: the metadata between its --- lines is no valid YAML ({reason}); correct it"
        ) from error
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: its model-index is no list of models with results of task, dataset and metrics; correct or "
            "remove it"
        ) from error
    return list(index)


def _merged(index: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries with the new figures in the first model's; what is measured again takes the place of the old."""
    if not index:
        return new
    results = index[0]["results"]
    for result in new[0]["results"]:
        same = next((old for old in results if _place(old) == _place(result)), None)
        if same is None:
            results.append(result)
            continue
        again = {_figure(metric) for metric in result["metrics"]}
        same["metrics"] = [m for m in same["metrics"] if _figure(m) not in again] + result["metrics"]
    return index


def _place(result: dict[str, Any]) -> tuple[Any, ...]:
    data = result["dataset"]
    return (result["task"]["type"], *(data.get(key) for key in ("type", "name", "config", "split", "revision")))


def _figure(metric: dict[str, Any]) -> tuple[Any, Any]:
    return metric["type"], metric.get("name")
