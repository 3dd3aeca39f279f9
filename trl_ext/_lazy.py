"""Re-exports that are imported when they are first used (PEP 562)."""

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trl_ext._text import did_you_mean


def lazy_attributes(
    package: str, exports: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names live in submodules.

    Args:
        package (`str`): `__name__` of the package.
        exports (`Mapping[str, Iterable[str]]`): public names by the submodule that defines them. The submodules
            themselves become attributes too.

    Returns:
        The two functions, to be assigned to `__getattr__` and `__dir__` of the package.
    """
    homes = {name: submodule for submodule, names in exports.items() for name in names}

    def getattr_(name: str) -> Any:
        if name in exports:
            return importlib.import_module(f"{package}.{name}")
        if name not in homes:
            hint = did_you_mean(name, [*homes, *exports])
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next use does not come here again
        return value

    def dir_() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *exports})

    return getattr_, dir_
