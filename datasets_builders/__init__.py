"""Builders that turn public data sets into rows of one schema, ready for TRL's trainers.

The package may use `reward_funcs` to check its own golds and never imports `trl_ext`: a generator (model, fast
rollout, server) is passed in by the caller. Importing it loads the standard library alone; each name is loaded when it
is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

# public names by the module that defines them
_EXPORTS = {
    "building": ("Built", "build", "build_eval", "build_with_report"),
    "card": ("dataset_card",),
    "checks": ("check_licence", "difficulty", "filter_language", "filter_length"),
    "comparison": ("comparison_record",),
    "contamination": ("decontaminate",),
    "duplicates": ("deduplicate",),
    "export": ("to_open_instruct", "to_verl"),
    "gold_checks": ("verify_golds",),
    "instructions": ("instruction_text", "instructed"),
    "local_files": ("LoadingError",),
    "mixing": ("RECIPES", "mix", "mix_with_report", "plan", "recipe"),
    "pushing": ("push_to_hub",),
    "registry": ("BUILDERS", "EVALUATION_SETS"),
    "report": ("BuildReport", "MixReport"),
    "saving": ("load_saved", "save"),
    "schema": ("preference_row", "rl_row", "row_errors", "sft_row"),
    "source": ("Conversion", "Drop", "Source", "conversion"),
}
_HOMES = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        import difflib

        close = difflib.get_close_matches(name, _HOMES, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # the next use does not come here again
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
