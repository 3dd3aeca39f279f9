"""What the training commands share: flags and YAML, rewards and data by name, and what is left behind."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from trl_ext._text import did_you_mean
from trl_ext.errors import UsageError, UserError
from trl_ext.scripts._config_file import environment, split_config
from trl_ext.scripts._libraries import clear_errors, named_model, refuse_missing_reports, refuse_seed
from trl_ext.scripts._settings import field_types, read_flags_alike, typed_config

RESOLVED_CONFIG = "config_resolved.yaml"
DATA_LOADERS = {".json": "json", ".jsonl": "json", ".parquet": "parquet", ".csv": "csv"}


def run_command(
    argv: list[str],
    usage: str,
    parse_arguments: Callable[[list[str]], tuple[Any, ...]],
    train: Callable[..., int],
) -> int:
    """A training command: its usage for `--help`, else parse and train.

    Args:
        argv: Arguments after the command name.
        usage: What `--help` prints; nothing heavy is imported for it.
        parse_arguments: Makes the dataclasses from `argv`, in which `--help-all` has become the parser's `--help`.
        train: Called with the dataclasses and `argv`.

    Returns:
        What `train` returns, or 0 after `--help`.
    """
    if "--help" in argv or "-h" in argv:
        print(usage, end="")
        return 0
    quiet_libraries()
    arguments = parse_arguments(["--help" if word == "--help-all" else word for word in argv])
    return train(*arguments, argv)


def parse(dataclass_types: Sequence[type], argv: list[str], prog: str) -> tuple[Any, ...]:
    """Dataclasses from flags and an optional `--config` file, through TRL's parser.

    `--model` is short for `--model_name_or_path`; `--config NAME` finds a recipe shipped with the package.

    Raises:
        UserError: For an unknown flag or key, with the closest known one, for a value of another type than the field's,
            and for a setting whose package is not installed.
    """
    from trl import TrlParser

    argv = [re.sub(r"^--model(?==|$)", "--model_name_or_path", word) for word in argv]
    parser = TrlParser(tuple(dataclass_types), prog=prog, allow_abbrev=False)
    parser.error = _refuse  # argparse would print its whole usage, hundreds of lines, before the one that matters
    options = {option for action in parser._actions for option in action.option_strings}
    types = field_types(dataclass_types)
    read_flags_alike(parser, types)
    argv, config, where = split_config(argv, options - {"--help", "-h"})
    for word in argv:
        flag = word.split("=")[0]
        if word.startswith("--") and flag not in options:
            raise UsageError(f"unknown flag {flag}{did_you_mean(flag, options | {'--model', '--config'})}")
    variables = environment(config, where)
    parser.set_defaults_with_config(**typed_config(config, parser, types, where))
    os.environ.update(variables)
    given, unread = parser.parse_known_args(argv)
    if unread:
        raise UsageError(f"unknown argument {unread[0]!r}; write options as --name value")
    with clear_errors(vars(given)):
        result: tuple[Any, ...] = _checked(parser, argv)
    for instance in result:
        refuse_missing_reports(getattr(instance, "report_to", None))
        refuse_seed(getattr(instance, "seed", None))
    return result


def _checked(parser: Any, argv: list[str]) -> Any:
    try:
        return parser.parse_args_into_dataclasses(args=argv)
    except UserError:
        raise
    except ValueError as error:  # what the libraries refuse, some of it on several lines
        raise UsageError(" ".join(str(error).split())) from error


def _refuse(message: str) -> Any:
    raise UsageError(message)


def quiet_libraries() -> None:
    """Silence what the libraries below say about each other's deprecations and about optional kernels.

    To be called before they are imported: some speak while they are.
    """
    import logging
    import warnings

    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*will be removed in v6.*", category=FutureWarning)
    warnings.filterwarnings("ignore", message=".*pin_memory.*", category=UserWarning)
    import transformers

    transformers.logging.disable_progress_bar()


def load_step_reward(name: str) -> Any:
    """A process reward by name: one of `reward_funcs.steps`, or `module.function` from anywhere.

    Raises:
        UserError: For a name that is not there, with the closest one that is, and for what is no reward.
    """
    if "." in name:
        return load_reward(name)
    from reward_funcs import steps

    known = sorted(key for key, value in vars(steps).items() if isinstance(value, steps.StepReward))
    if name not in known:
        raise UserError(
            f"unknown process reward {name!r}{did_you_mean(name, known)}; choose one of {', '.join(known)}, or give it "
            "as module.function"
        )
    return getattr(steps, name)


def load_reward(name: str) -> Any:
    """A reward function by name: one of `reward_funcs`, else of `trl.rewards`, or `module.function` from anywhere.

    Raises:
        UserError: For a name that is not there, with the closest one that is, and for what is no reward.
    """
    reward = _import_reward(name) if "." in name else _known_reward(name)
    if isinstance(reward, type) or not callable(reward):
        kind = "class; give a function, or an object made of it" if isinstance(reward, type) else "module or value"
        raise UserError(f"the reward {name!r} is a {kind}")
    _refuse_other_signature(reward, name)
    return reward


def _refuse_other_signature(reward: Any, name: str) -> None:
    """Refuse a function that cannot be called with `completions=`, such as one that makes a reward."""
    import inspect

    try:
        parameters = inspect.signature(reward).parameters
    except (TypeError, ValueError):  # some callables written in C do not say
        return
    if "completions" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return
    raise UserError(
        f"{name}({', '.join(parameters)}) is no reward, which is called with completions=...; if it makes one, call it "
        "in a module of yours and name the result"
    )


def _known_reward(name: str) -> Any:
    import reward_funcs

    ours = [n for n in reward_funcs.__all__ if n.endswith("_reward")]
    if name in ours:
        return getattr(reward_funcs, name)
    import trl.rewards

    if hasattr(trl.rewards, name):
        return getattr(trl.rewards, name)
    if importlib.util.find_spec(name) is not None or Path(f"{name}.py").is_file():
        raise UserError(f"the reward {name!r} is a module; name a function in it: {name}.some_reward")
    known = sorted({*ours, *(n for n in dir(trl.rewards) if n.endswith("_reward"))})
    raise UserError(f"unknown reward {name!r}{did_you_mean(name, known)}; or give it as module.function")


def _import_reward(name: str) -> Any:
    module_name, _, attribute = name.rpartition(".")
    if not all(name.split(".")):
        raise UserError(f"the reward {name!r} is no module.function, such as my_rewards.short_reward")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise  # the reward's own module lacks something: its traceback says what
        modules = ["reward_funcs", "trl.rewards", *(path.stem for path in Path().glob("*.py"))]
        hint = did_you_mean(module_name, modules)
        raise UserError(f"the reward {name}: there is no module {error.name!r} here or installed{hint}") from error
    except SyntaxError as error:
        where = f"{Path(error.filename or module_name).name}, line {error.lineno}"
        raise UserError(f"the reward {name}: {where} is no Python: {error.msg}") from error
    if not hasattr(module, attribute):
        raise UserError(f"the reward {name}: {module_name} has no {attribute!r}{did_you_mean(attribute, dir(module))}")
    return getattr(module, attribute)


def require_model(model_args: Any) -> None:
    """Refuse a call that names no model, or a file in its place."""
    name = model_args.model_name_or_path
    if name is None or not name.strip():
        raise UserError('name the model: --model with a Hub id or folder, or "smol"')
    if Path(name).is_file():
        raise UserError(f"model_name_or_path={name!r} is a file; name a Hub id or the folder of a model")


def load_rewards(script_args: Any) -> list[Any]:
    """The reward functions that the call names, and its reward model by name."""
    rewards = [load_reward(name) for name in script_args.reward_funcs or []]
    if script_args.reward_model_name_or_path:
        rewards.append(script_args.reward_model_name_or_path)
    return rewards


def load_data(script_args: Any) -> Any:
    """Splits of a Hub data set, a folder of `save_to_disk`, or one JSON, JSONL, parquet or CSV file.

    With `--dataset_streaming true` the splits are streams, whatever they come from.
    """
    from datasets import DatasetDict, load_from_disk

    name = script_args.dataset_name
    if name is None or not name.strip():
        raise UserError("name the data: --dataset_name with a Hub id, a folder, or a JSON, JSONL, parquet or CSV file")
    path = Path(name)
    if path.is_file():
        if path.suffix not in DATA_LOADERS:
            raise UserError(f"{name} is a {path.suffix or 'nameless'} file; give one of {', '.join(DATA_LOADERS)}")
        return _load_file(path, script_args.dataset_train_split, script_args.dataset_streaming)
    if path.suffix in DATA_LOADERS:
        raise UserError(f"there is no file {name}")
    if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
        try:
            data = load_from_disk(str(path))
        except IndexError as error:  # what `datasets` 5 raises for a data set that was saved without rows
            raise UserError(f"{name} holds no rows") from error
        splits = data if isinstance(data, DatasetDict) else {script_args.dataset_train_split: data}
        streaming = script_args.dataset_streaming
        return {name: split.to_iterable_dataset() for name, split in splits.items()} if streaming else splits
    return _load_folder_or_hub(path, script_args)


def _load_folder_or_hub(path: Path, script_args: Any) -> Any:
    from datasets import load_dataset
    from datasets.exceptions import DatasetGenerationError

    name, settings = script_args.dataset_name, {"streaming": script_args.dataset_streaming}
    if not path.is_dir():
        return load_dataset(name, name=script_args.dataset_config, **settings)
    try:  # `datasets` makes a name of the last part, and "." has none
        return load_dataset(str(path.resolve()), name=script_args.dataset_config, **settings)
    except (DatasetGenerationError, ValueError, OSError) as error:
        reason = str(error.__cause__ or error).strip().split("\n")[0]
        raise UserError(f"the folder {name} cannot be read as a data set; name one file of it ({reason})") from error


def _load_file(path: Path, split: str, streaming: bool) -> Any:
    from datasets import load_dataset
    from datasets.exceptions import DatasetGenerationError

    if _is_blank(path):
        raise UserError(f"{path} holds no rows")
    try:
        data = load_dataset(DATA_LOADERS[path.suffix], data_files={split: str(path)}, streaming=streaming)
        is_empty = next(iter(data[split]), None) is None
    except (DatasetGenerationError, StopIteration, ValueError) as error:  # a stream raises pyarrow's ValueError
        if "corresponds to no data" in str(error):
            raise UserError(f"{path} holds no rows") from error
        reason = str(error.__cause__ or error).strip().split("\n")[0] or "it is empty"
        raise UserError(f"{path} cannot be read as {DATA_LOADERS[path.suffix]}: {reason}") from error
    if is_empty:
        raise UserError(f"{path} holds no rows")
    return data


def _is_blank(path: Path) -> bool:
    """Whether a JSON file holds white space or an empty list, for which `datasets` has no words of its own."""
    if DATA_LOADERS[path.suffix] != "json":
        return False
    with path.open("rb") as file:
        seen = b""
        while len(seen) < 3 and (block := file.read(1 << 16)):
            seen += b"".join(block.split())
    return seen in (b"", b"[]")


def pick_split(data: Any, split: str) -> Any:
    """One split, or a sentence that names those there are."""
    if split not in data:
        raise UserError(f"the data has no split {split!r}; it has {sorted(data)}")
    return data[split]


def write_resolved_config(output_dir: str, *dataclasses: Any) -> None:
    """Every setting of the run as YAML that `--config` reads again."""
    import yaml

    settings: dict[str, Any] = {}
    for instance in dataclasses:
        values = instance.to_dict() if hasattr(instance, "to_dict") else vars(instance)
        # None is the default of most fields; where it is not, it says that something was turned off
        told = {f.name for f in fields(instance) if f.default is not None} if is_dataclass(instance) else set()
        settings |= {k: v for k, v in values.items() if (v is not None or k in told) and not k.startswith("_")}
    for name in _derived(settings):
        settings.pop(name, None)
    plain = json.loads(json.dumps(settings, default=str))
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{RESOLVED_CONFIG}.partial"
    partial.write_text(yaml.safe_dump(plain, sort_keys=True), encoding="utf-8")
    os.replace(partial, folder / RESOLVED_CONFIG)


def _derived(settings: dict[str, Any]) -> set[str]:
    """Settings that follow from others: written down, they would stand in the way of changing those."""
    derived = {"kl_coef", "num_ppo_epochs", "generation_batch_size"}
    steps = settings.get("gradient_accumulation_steps", 1) * (settings.get("num_mini_batches") or 1)
    if settings.get("steps_per_generation") == steps:
        derived.add("steps_per_generation")
    if settings.get("critic_max_grad_norm") == settings.get("max_grad_norm"):
        derived.add("critic_max_grad_norm")
    if settings.get("critic_learning_rate") == (1e-5 if settings.get("critic") == "model" else 1e-4):
        derived.add("critic_learning_rate")
    return derived


def command_line(name: str, argv: Sequence[str]) -> str:
    """The command as it can be typed again."""
    return shlex.join(["trl-ext", name, *argv])


def resume_from(training_args: Any) -> str | bool | None:
    """`--resume_from_checkpoint true` is the last checkpoint of the output folder.

    Raises:
        UserError: For a folder that is not there.
    """
    value = training_args.resume_from_checkpoint
    if isinstance(value, str) and value.lower() in ("true", "1", "yes", "last"):
        return True
    if isinstance(value, str) and not Path(value).is_dir():
        raise UserError(f"there is no checkpoint folder {value}; --resume_from_checkpoint true takes the last one")
    return value


def build_trainer(trainer_class: Any, script_args: Any, training_args: Any, model_args: Any, **more: Any) -> Any:
    """A trainer of the call's model and data, which logs to `metrics.jsonl` and writes its configuration.

    Args:
        trainer_class: The trainer.
        script_args: Data and rewards by name.
        training_args: The trainer's configuration.
        model_args: The model, its adapter and its quantisation.
        more: Further arguments of the trainer, the rewards among them.

    Returns:
        The trainer, ready for `train`.

    Raises:
        UserError: For data that is not there.
    """
    from transformers import PrinterCallback, TrainerCallback
    from trl import get_peft_config, get_quantization_config

    from trl_ext.callbacks import MetricsWriter
    from trl_ext.progress import RichTable

    class WriteConfig(TrainerCallback):
        """When training begins: a resume that is refused leaves the file as it was."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.is_world_process_zero:
                write_resolved_config(training_args.output_dir, script_args, training_args, model_args)

    refuse_file(training_args.output_dir)
    data = load_data(script_args)
    init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
    }
    training_args.model_init_kwargs = {**init_kwargs, **(training_args.model_init_kwargs or {})}
    training_args.disable_tqdm = True
    evaluate = training_args.eval_strategy != "no"
    with clear_errors(vars(training_args)), named_model(model_args.model_name_or_path, more.get("value_model")):
        trainer = trainer_class(
            model=model_args.model_name_or_path,
            args=training_args,
            train_dataset=pick_split(data, script_args.dataset_train_split),
            eval_dataset=pick_split(data, script_args.dataset_test_split) if evaluate else None,
            quantization_config=get_quantization_config(model_args),
            peft_config=get_peft_config(model_args),
            callbacks=[MetricsWriter(training_args.output_dir), RichTable(trainer_class._name)],
            **more,
        )
    trainer.remove_callback(PrinterCallback)  # metrics.jsonl holds what it prints over the progress bar
    trainer.add_callback(WriteConfig())
    return trainer


def refuse_file(output_dir: str) -> None:
    """Refuse a file in the place of the folder for the results, before any work is done for it."""
    if Path(output_dir).exists() and not Path(output_dir).is_dir():
        raise UserError(f"output_dir={output_dir!r} is a file; name a folder")


def train_and_save(trainer: Any, script_args: Any, command: str) -> int:
    """Train, from a checkpoint where the call names one, and save; 0, the command's exit status."""
    from trl_ext.progress import RichTable

    try:
        with clear_errors(vars(trainer.args)):
            trainer.train(resume_from_checkpoint=resume_from(trainer.args))
    finally:
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, RichTable):
                callback.close()  # an error's message must not stand behind the bar
    finish(trainer, script_args, command)
    return 0


def finish(trainer: Any, script_args: Any, command: str) -> None:
    """Save the model and its card, which holds the command, and push both where that is asked for."""
    from trl_ext.hub import write_model_card

    trainer.save_model(trainer.args.output_dir)
    card = write_model_card(trainer, dataset_name=script_args.dataset_name, command=command)
    trainer.accelerator.print(f"Saved to {trainer.args.output_dir}; the card is {card.name}.")
    if trainer.args.push_to_hub:
        trainer.push_to_hub(dataset_name=script_args.dataset_name)
