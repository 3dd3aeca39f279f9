"""The names that LeetCode gives to every program, which answers to its tasks use without importing them."""

from __future__ import annotations

import builtins
import importlib
from functools import cache
from types import ModuleType
from typing import Any

# in the order of the imports, of which the last has a name: `datetime` is the module and not its class
_STAR = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator json typing"
)
_MODULES = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator json io sys"
)


@cache
def prelude() -> dict[str, Any]:
    """The names, without those of Python itself; found once, in front of the forks."""
    names: dict[str, Any] = {}
    for module in map(importlib.import_module, _STAR.split()):
        shown = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
        held = {name: getattr(module, name) for name in shown}
        names |= {name: value for name, value in held.items() if not isinstance(value, ModuleType)}
    names |= {name: importlib.import_module(name) for name in _MODULES.split()}
    return {name: value for name, value in names.items() if not hasattr(builtins, name)}


def add_prelude() -> None:
    """Let a program find names such as `List`, `deque` and `inf` where it defines none of the same name.

    They stand behind the names of the program, where those of Python stand: its own namespace and its line numbers stay
    as they are.

    Source: the list of modules is the one that LeetCode names in its help for Python 3; names of Python itself come
    first, as there.
    """
    vars(builtins).update(prelude())
