"""What the libraries below say with a traceback only, in a sentence: missing packages, wrong names in nested tables."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from trl_ext._text import did_you_mean
from trl_ext.errors import UsageError, UserError

# Module and package of what `report_to` names; those that are left out need no package of their own.
_REPORTS = {
    "azure_ml": ("azureml", "azureml-sdk"),
    "clearml": ("clearml", "clearml"),
    "codecarbon": ("codecarbon", "codecarbon"),
    "comet_ml": ("comet_ml", "comet-ml"),
    "dagshub": ("dagshub", "dagshub"),
    "dvclive": ("dvclive", "dvclive"),
    "flyte": ("flytekit", "flytekit"),
    "mlflow": ("mlflow", "mlflow"),
    "neptune": ("neptune", "neptune"),
    "swanlab": ("swanlab", "swanlab"),
    "tensorboard": ("tensorboard", "tensorboard"),
    "trackio": ("trackio", "trackio"),
    "wandb": ("wandb", "wandb"),
}
_OTHER_MODULES = {"tensorboard": "tensorboardX"}


def refuse_missing_reports(names: Iterable[str] | str | None) -> None:
    """Refuse a `report_to` that is unknown or whose package is not installed, before any model is loaded.

    Args:
        names (`Iterable[str]`, `str` or `None`): what the configuration has after it is made.

    Raises:
        UsageError: With the closest known name, or with the command that installs the package.
    """
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    for name in [names] if isinstance(names, str) else names or []:
        if name not in INTEGRATION_TO_CALLBACK:
            known = ["none", "all", *sorted(INTEGRATION_TO_CALLBACK)]
            raise UsageError(f"report_to={name!r} must be one of {', '.join(known)}{did_you_mean(name, known)}")
        module, package = _REPORTS.get(name, ("", ""))
        if module and not _is_installed(module) and not _is_installed(_OTHER_MODULES.get(name, module)):
            raise UsageError(f"report_to={name!r} needs {package}; install it with `pip install {package}`")


def refuse_seed(seed: int | None) -> None:
    """Refuse a seed that NumPy does not take, before any model is loaded.

    Raises:
        UsageError: With the range that is allowed.
    """
    if seed is not None and not 0 <= seed < 2**32:
        raise UsageError(f"seed={seed} must be a whole number between 0 and {2**32 - 1}")


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


@contextmanager
def clear_errors(settings: Mapping[str, Any]) -> Iterator[None]:
    """Turn what a library raises about a missing package or a name in a nested table into one sentence.

    Args:
        settings (`Mapping[str, Any]`): the settings by name, the tables among them as mappings or as JSON.

    Raises:
        UserError: In the place of an `ImportError` that says what to install, and of a `TypeError` about an unexpected
            argument that one of the tables names. All other errors pass.
    """
    try:
        yield
    except ImportError as error:
        sentence = _missing_package(error)
        if sentence is None:
            raise
        raise UserError(sentence) from error
    except TypeError as error:
        found = re.search(r"^(.*?)\(?\)? got an unexpected keyword argument '(\w+)'", str(error))
        owner = found and next((name for name, value in settings.items() if _names(value, found[2])), None)
        if not found or owner is None:
            raise
        raise UserError(f"{owner} holds {found[2]!r}, which {found[1]} does not take; correct or remove it") from error


@contextmanager
def named_model(*names: str | None) -> Iterator[None]:
    """Name the models in an error of several lines that says that one cannot be loaded, and not which.

    Args:
        names (`str` or `None`): Hub ids or folders that are loaded inside.

    Raises:
        UserError: In the place of an `OSError` of several lines. All other errors pass.
    """
    try:
        yield
    except OSError as error:
        if "\n" not in str(error).strip():
            raise
        which = " or ".join(repr(name) for name in names if name)
        raise UserError(f"the model {which} cannot be loaded: {' '.join(str(error).split())}") from error


def _names(value: Any, key: str) -> bool:
    if isinstance(value, str):
        return value.startswith("{") and f'"{key}"' in value
    return isinstance(value, Mapping) and key in value


def _missing_package(error: ImportError) -> str | None:
    """The library's own sentence, `None` where it is no word about installing: then the traceback says more."""
    text = " ".join(str(error).split())
    requirement = re.search(r"The '([^']+)' distribution was not found", text)
    if requirement:
        return f"a setting of this call needs {requirement[1]}; install it with `pip install '{requirement[1]}'`"
    return text if re.search(r"\binstall", text) and not isinstance(error, ModuleNotFoundError) else None
