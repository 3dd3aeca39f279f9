"""Whether the functions that score completions can be called with what TRL and the data set give them."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import Any

from torch import nn

from trl_ext.errors import UserError

# What TRL passes to every reward function, beside the columns of the data set.
_ALWAYS = frozenset({"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"})
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def check_columns(
    trainer: Any, functions: Sequence[Any], names: Sequence[str], open_ended: bool, kind: str = "reward function"
) -> None:
    """Raise unless every data set of a trainer has a prompt and the columns that its rewards require.

    Args:
        trainer: The trainer, built; its training and evaluation data sets are looked at.
        functions: Functions that score completions; models and names of models are passed over.
        names: Their names, for messages.
        open_ended: A rollout function or an environment adds columns that are not known here.
        kind: What the messages call a function.

    Raises:
        UserError: A column is missing, or a function does not accept what it is called with.
    """
    if open_ended:
        return
    evaluation = trainer.eval_dataset if isinstance(trainer.eval_dataset, dict) else {"eval": trainer.eval_dataset}
    for dataset in (trainer.train_dataset, *evaluation.values()):
        columns = getattr(dataset, "column_names", None)
        if columns is not None:  # a stream may not know
            for function, name in zip(functions, names, strict=True):
                _check_call(function, name, columns, kind)


def _check_call(function: Any, name: str, columns: Sequence[str], kind: str) -> None:
    if "prompt" not in columns:
        raise UserError(f"The data set needs a column 'prompt'; it has {sorted(columns)}. Rename one.")
    given = (set(columns) - {"prompt", "completion", "completion_ids"}) | _ALWAYS
    for refused in sorted(_refused(function, given)):
        raise UserError(f"The {kind} '{name}' does not accept '{refused}'; give it **kwargs.")
    for missing in sorted(_required(function) - given):
        if missing in ("prompt", "completion"):
            raise UserError(f"The {kind} '{name}' takes '{missing}', which it is given as '{missing}s'; rename it.")
        raise UserError(
            f"The {kind} '{name}' needs a column '{missing}'; the data set has {sorted(columns)}. Add or rename the "
            "column."
        )


def _parameters(function: Any) -> list[inspect.Parameter]:
    if isinstance(function, nn.Module) or not callable(function):
        return []
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return []


def _required(function: Any) -> set[str]:
    parameters = _parameters(function)
    return {p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind in _NAMED}


def _refused(function: Any, given: Collection[str]) -> set[str]:
    parameters = _parameters(function)
    if not parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return set()
    return set(given) - {p.name for p in parameters}
