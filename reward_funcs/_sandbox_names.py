"""What the text of tests says about names: which are the program's, which of them are classes, what cannot be run."""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from reward_funcs._sandbox_answer import SAFE_MODULES

# with these a test makes or changes values, and checks none: they may be what is tested
_MAKERS = frozenset("pow divmod bin hex oct chr ord compile format hash input print open vars dir id slice".split())
_BUILTINS = frozenset(dir(builtins)) - _MAKERS
# Names by which tests check a result; a program may not answer for them.
_CHECKERS = {
    "Counter": "collections",
    "deque": "collections",
    "defaultdict": "collections",
    "OrderedDict": "collections",
    "isclose": "math",
    "fabs": "math",
    "Decimal": "decimal",
    "Fraction": "fractions",
    "deepcopy": "copy",
}
# Packages that a sandbox does not have, by the names that tests give them.
_PACKAGES = frozenset("np numpy pd pandas torch scipy sklearn sympy plt".split())
_OWN_MODULES = frozenset({"solution", "pytest"})
# What acts on this process and not on that of the program.
_NOT_CARRIED = frozenset("redirect_stdout redirect_stderr mock patch".split())


class Uses(NamedTuple):
    """What the tests of a gold use.

    Args:
        entries (`frozenset[str]`): names that Python has too, and that are the program's here: what is tested.
        classes (`frozenset[str]`): names that the tests treat as classes.
        is_unsupported (`bool`): whether they need what a sandbox does not have.
        is_any (`bool`): whether they use any name that they do not define.
    """

    entries: frozenset[str]
    classes: frozenset[str]
    is_unsupported: bool
    is_any: bool = True


def parsed(code: str) -> ast.Module | None:
    """The syntax tree of a block, `None` for what is no Python."""
    try:
        compile(code, "<test>", "exec", dont_inherit=True)
        return ast.parse(code)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def uses_of(trees: Iterable[ast.Module]) -> Uses:
    """What the blocks of a gold, or its module, use.

    Example:

    ```python
    >>> uses_of([ast.parse("assert pow(2, 3) == 8"), ast.parse("assert Point(1).x == 1")])
    Uses(entries=frozenset(), classes=frozenset({'Point'}), is_unsupported=False, is_any=True)

    ```
    """
    entries: set[str] = set()
    classes: set[str] = set()
    is_unsupported = is_any = False
    for tree in trees:
        free = _free_names(tree)
        is_any |= bool(free) or "solution" in {name.partition(".")[0] for name in _imported(tree)}
        entries |= _entries(tree, free)
        classes |= _classes(tree, free)
        is_unsupported |= _is_unsupported(tree, free)
    return Uses(frozenset(entries), frozenset(classes), is_unsupported, is_any)


def _free_names(tree: ast.Module) -> set[str]:
    loaded: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (loaded if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.Import):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module != "solution":
            bound |= {alias.asname or alias.name for alias in node.names}
    return loaded - bound


def _reserved(name: str) -> bool:
    return name in _BUILTINS or name in SAFE_MODULES or name in _CHECKERS or name in _PACKAGES


def _entries(tree: ast.Module, free: set[str]) -> set[str]:
    """A name of Python's own is the program's where a test uses no other name of the program."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {node.func.id for node in calls if isinstance(node.func, ast.Name)} & free
    # `copy(x)` is no use of the module
    found = {name for name in called if name in SAFE_MODULES}
    if not all(map(_reserved, free)):
        return found
    inner = [node for node in calls if not any(isinstance(one, ast.Call) for arg in node.args for one in ast.walk(arg))]
    innermost = {node.func.id for node in inner if isinstance(node.func, ast.Name)} & free
    return found | (innermost or free - {"__name__"})


def _classes(tree: ast.Module, free: set[str]) -> set[str]:
    attributes = [node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    modules = SAFE_MODULES | sys.stdlib_module_names | _OWN_MODULES | {"self"}
    if all(isinstance(value, ast.Name) and value.id in modules for value in attributes):
        return set()
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {node.id for node in calls if isinstance(node, ast.Name) and node.id[0].isupper()} & free


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." if node.level else str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_unsupported(tree: ast.Module, free: set[str]) -> bool:
    imported = list(_imported(tree))
    known = sys.stdlib_module_names | _OWN_MODULES
    if any(name.partition(".")[0] not in known for name in imported) or free & _PACKAGES:
        return True
    words = {word for name in imported for word in name.split(".")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "contextlib":
            words.add(node.attr)
    return bool(words & _NOT_CARRIED)


def standard_names(names: dict[str, Any], uses: Uses) -> dict[str, Any]:
    """The names that tests see: those of the program, and Python's own where tests check with them.

    Args:
        names (`dict[str, Any]`): what the program's names stand for.
        uses (`Uses`): what the tests use.
    """
    kept = {name: value for name, value in names.items() if name in uses.entries or not _reserved(name)}
    for name in SAFE_MODULES - uses.entries:
        kept[name] = importlib.import_module(name)
    for name in _CHECKERS.keys() - uses.entries:
        kept[name] = getattr(importlib.import_module(_CHECKERS[name]), name)
    return kept
