"""`--config`: a YAML file or a recipe, read into settings or refused in one sentence that says where the mistake is."""

from __future__ import annotations

from collections.abc import Hashable
from importlib import resources
from pathlib import Path
from typing import Any

from trl_ext._text import did_you_mean
from trl_ext.errors import UsageError, UserError

# Names of one setting: a flag replaces whichever of them a configuration file holds.
OTHER_NAMES = (
    ("kl_coef", "beta"),
    ("num_ppo_epochs", "num_iterations"),
    ("num_mini_batches", "steps_per_generation", "generation_batch_size"),
)


def split_config(argv: list[str], options: set[str]) -> tuple[list[str], dict[str, Any], str]:
    """The flags, the settings of the `--config` file, and the file's name.

    A flag wins over a setting of its other name, too.

    Args:
        argv (`list[str]`): arguments of the command.
        options (`set[str]`): the flags whose names, without the dashes, are keys of the file.

    Returns:
        `tuple[list[str], dict[str, Any], str]`: the arguments without `--config`, the settings by the names that the
        file gives them, and the file for error messages; without `--config` the last two are empty.

    Raises:
        UsageError: For `--config` twice or without a file, and for a file that cannot be read or has unknown keys.
        UserError: For a name that is neither a file nor a recipe.
    """
    argv = [part for word in argv for part in (word.split("=", 1) if word.startswith("--config=") else [word])]
    if "--config" not in argv:
        return argv, {}, ""
    index = argv.index("--config") + 1
    if index == len(argv) or not argv[index].strip() or argv[index].startswith("--"):
        raise UsageError("--config needs a YAML file or the name of a recipe")
    if "--config" in argv[index:]:
        raise UsageError("--config is given twice; put the settings into one file, or give the others as flags")
    path = _recipe(argv[index])
    config = _read_config(path, options)
    argv = [*argv[: index - 1], *argv[index + 1 :]]
    flags = {word.split("=")[0].removeprefix("--").replace("-", "_") for word in argv if word.startswith("--")}
    for names in OTHER_NAMES:
        if flags & set(names):
            config = {key: value for key, value in config.items() if str(key).replace("-", "_") not in names}
    return argv, config, str(path)


def environment(config: dict[str, Any], where: str) -> dict[str, str]:
    """The environment variables that the key `env` of a file sets, as text; the key is taken out of `config`.

    Raises:
        UsageError: For anything but lines of `NAME: value`.
    """
    given = config.pop("env", None)
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise UsageError(
            f"env={given!r} in {where} must hold lines of `NAME: value`, one for each environment variable"
        )
    for name, value in given.items():
        if value is None or isinstance(value, (dict, list)) or "\0" in str(value):
            raise UsageError(f"env: {name}={value!r} in {where} must be text or a number; write '' for an empty text")
        if not str(name) or "=" in str(name) or "\0" in str(name):
            raise UsageError(f"env: {name!r} in {where} is no name of an environment variable")
    return {str(name): str(value) for name, value in given.items()}


def _recipe(name: str) -> Path:
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"--config {name} is a folder; name a YAML file or a recipe")
    if path.exists():  # a pipe such as <(...) as well
        return path
    folder = Path(str(resources.files("trl_ext"))) / "recipes"
    shipped = folder / f"{name}.yaml"
    if shipped.is_file():
        return shipped
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    raise UserError(f"no configuration file {name!r}, and no recipe of that name{did_you_mean(name, known)}")


def _read_config(path: Path, options: set[str]) -> dict[str, Any]:
    config = read_yaml(path)
    if config is None:
        raise UsageError(f"{path} is empty; it must hold `name: value` lines")
    if not isinstance(config, dict):
        raise UsageError(f"{path} must hold `name: value` lines")
    known = {option.removeprefix("--") for option in options} | {"env", "model"}
    for key in config:
        if key not in known:
            raise UsageError(f"unknown key {key!r} in {path}{did_you_mean(str(key), known)}")
    if "model" in config:
        if "model_name_or_path" in config:
            raise UsageError(f"{path} gives 'model' and 'model_name_or_path', two names of one setting; keep one")
        config["model_name_or_path"] = config.pop("model")
    return config


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 text ({error.reason}, byte {error.start}); convert it to UTF-8"
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def read_yaml(path: Path) -> Any:
    """What a YAML file holds; of equal keys PyYAML would keep the last one and say nothing.

    Args:
        path (`Path`): the file, in UTF-8.

    Raises:
        UsageError: For a file that cannot be read, with line and column of what is no YAML, and for a key twice.
    """
    import yaml

    text = _text(path)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_repeated(node, path, ())
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise UsageError(f"{path} is not valid YAML: {where}{reason}") from error
    except yaml.reader.ReaderError as error:  # a character that YAML does not allow
        before = text[: error.position].split("\n")
        where = f"line {len(before)}, column {len(before[-1]) + 1}"
        raise UsageError(f"{path} is not valid YAML: {where}: {chr(error.character)!r} is not allowed") from error
    except UserError:
        raise
    except ValueError as error:  # a date or a number of YAML's form that is none, such as 2024-13-01
        raise UsageError(f"{path} is not valid YAML: {_unread(node)}: {error}; write text in quotes") from error
    except RecursionError:
        raise UsageError(f"{path} is not valid YAML: its lists or tables are nested too deeply") from None


def _unread(node: Any) -> str:
    """Where the first value stands that cannot be made."""
    import yaml

    if isinstance(node, yaml.ScalarNode):
        try:
            yaml.constructor.SafeConstructor().construct_object(node)
        except ValueError:
            return f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}"
        return ""
    parts = [part for child in node.value for part in (child if isinstance(child, tuple) else (child,))]
    return next(filter(None, map(_unread, parts)), "")


def _refuse_repeated(node: Any, path: Path, outer: tuple[Any, ...]) -> None:
    """Refuse a key twice in one table, and a node that holds itself."""
    import yaml

    if not isinstance(node, yaml.CollectionNode):
        return
    if any(node is one for one in outer):
        line = node.start_mark.line + 1
        raise UsageError(f"{path} is not valid YAML: line {line}: what stands here holds itself")
    seen: dict[Hashable, int] = {}
    for child in node.value:
        key, value = child if isinstance(node, yaml.MappingNode) else (None, child)
        if isinstance(key, yaml.ScalarNode):
            line = key.start_mark.line + 1
            if key.value in seen:
                lines = " and ".join(dict.fromkeys((f"line {seen[key.value]}", f"line {line}")))
                raise UsageError(f"{path}: the key {key.value!r} stands twice, in {lines}; keep one")
            seen[key.value] = line
        _refuse_repeated(value, path, (*outer, node))
