"""The part of pytest that tests of programming tasks use, for a process that has the standard library alone."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import re
import sys
import types
import unittest
from collections.abc import Callable, Iterator, Sequence
from typing import Any


class UnsupportedTest(Exception):
    """The test needs what is not here: a fixture, a plug-in, another package."""


class _Approx:
    """A number, or a list or mapping of numbers, compared with a tolerance."""

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None) -> None:
        self.expected, self.rel, self.abs = expected, 1e-6 if rel is None else rel, 1e-12 if abs is None else abs

    def __eq__(self, other: object) -> bool:
        return self._equal(self.expected, other)

    __hash__ = None  # type: ignore[assignment]

    def _equal(self, expected: Any, other: Any) -> bool:
        if isinstance(expected, dict):
            return (
                type(other) is dict
                and expected.keys() == other.keys()
                and all(self._equal(value, other[key]) for key, value in expected.items())
            )
        if isinstance(expected, (list, tuple)):
            return (
                type(other) is type(expected) and len(other) == len(expected) and all(map(self._equal, expected, other))
            )
        if type(other) not in (int, float) or not isinstance(expected, (int, float)):
            return bool(type(other) is type(expected) and expected == other)
        if expected == other or not math.isfinite(expected) or not math.isfinite(other):
            return bool(expected == other)
        return bool(abs(expected - other) <= max(self.rel * abs(expected), self.abs))


class _Raised:
    value: BaseException
    type: type[BaseException]

    def match(self, pattern: str) -> bool:
        """Whether the text of the exception holds the pattern."""
        assert re.search(pattern, str(self.value)), f"{self.value!r} does not match {pattern!r}"
        return True


@contextlib.contextmanager
def _raises(expected: Any, match: str | None = None) -> Iterator[_Raised]:
    found = _Raised()
    try:
        yield found
    except expected as error:
        found.value, found.type = error, type(error)
        if match is not None and re.search(match, str(error)) is None:
            raise AssertionError(f"{error!r} does not match {match!r}") from None
        return
    raise AssertionError(f"{expected} was not raised")


def _raises_or_call(expected: Any, *args: Any, match: str | None = None, **kwargs: Any) -> Any:
    if not args:
        return _raises(expected, match)
    with _raises(expected, match) as found:
        args[0](*args[1:], **kwargs)
    return found


class _Marks:
    def __getattr__(self, name: str) -> Any:
        if name == "parametrize":
            return _parametrize
        if name in ("skip", "skipif", "xfail", "usefixtures"):
            raise UnsupportedTest(f"pytest.mark.{name}")

        def mark(*args: Any, **_: Any) -> Any:
            return args[0] if len(args) == 1 and callable(args[0]) else lambda function: function

        return mark


def _parametrize(names: Any, values: Any, **_: Any) -> Callable[[Any], Any]:
    listed = [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else list(names)
    cases = [dict(zip(listed, (one,) if len(listed) == 1 else one, strict=True)) for one in values]

    def mark(function: Any) -> Any:
        function.pytest_cases = [*getattr(function, "pytest_cases", []), cases]  # of a class: for each of its methods
        return function

    return mark


def _stub() -> types.ModuleType:
    module: Any = types.ModuleType("pytest")

    def fail(reason: str = "", **_: Any) -> None:
        raise AssertionError(reason)

    def unsupported(*_: Any, **__: Any) -> None:
        raise UnsupportedTest("pytest")

    module.raises, module.approx, module.mark, module.fail = _raises_or_call, _Approx, _Marks(), fail
    module.fixture = module.skip = module.importorskip = module.param = unsupported
    module.main = lambda *_, **__: 0
    return module


class ProgramModule(types.ModuleType):
    """The program as a module: tests import what they call from it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(f"the program has no {name}")

    @classmethod
    def provide(cls, names: dict[str, Any]) -> None:
        """Let `import solution` find these names."""
        module = cls("solution")
        vars(module).update(names)
        sys.modules["solution"] = module


def collected(code: str, names: dict[str, Any]) -> list[Callable[[], None]]:
    """Run a test module and return its tests as functions without arguments.

    Args:
        code (`str`): the module.
        names (`dict[str, Any]`): what stands for the names of the program; the module sees them.

    Raises:
        UnsupportedTest: Where it needs more than `raises`, `approx`, `fail` and `mark.parametrize`.
    """
    sys.modules["pytest"] = _stub()
    unittest.main = lambda *_, **__: None  # type: ignore[assignment]
    space = {**names, "__name__": "tests"}
    exec(compile(code, "<tests>", "exec", dont_inherit=True), space)
    # without what is the program's, which may call its own functions like tests, or like what prepares them
    own = {name: value for name, value in space.items() if name not in names or value is not names[name]}
    found: list[Callable[[], None]] = []
    for name, value in own.items():
        if isinstance(value, types.FunctionType) and name.startswith("test"):
            found += [_around(case, own, "function") for case in _cases(value)]
        elif isinstance(value, type) and issubclass(value, unittest.TestCase):
            found += _unittest_cases(value)
        elif isinstance(value, type) and name.startswith("Test"):
            found += _class_cases(value)
    return _between(found, own.get("setup_module") or own.get("setUpModule"), None)


def _ran(function: Callable[[], Any]) -> None:
    """Run a test; one that is a coroutine to its end."""
    result = function()
    if inspect.iscoroutine(result):
        import asyncio

        asyncio.run(result)


def _between(cases: list[Callable[[], None]], before: Any, after: Any) -> list[Callable[[], None]]:
    """Cases of which the first is run behind `before`, and the last in front of `after`."""

    def first(case: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            _call(before)
            case()

        return run

    def last(case: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            case()
            _call(after)

        return run

    if cases and before is not None:
        cases = [first(cases[0]), *cases[1:]]
    if cases and after is not None:
        cases = [*cases[:-1], last(cases[-1])]
    return cases


def _call(function: Any) -> None:
    """Call a function that prepares a test; pytest gives it the module, class or function if it takes one."""
    if function is not None:
        function(*(None for _ in inspect.signature(function).parameters))


def _around(case: Callable[[], None], holder: Any, what: str) -> Callable[[], None]:
    """A case with its `setup_<what>` and `teardown_<what>`."""
    get = holder.get if isinstance(holder, dict) else lambda name: getattr(holder, name, None)

    def run() -> None:
        _call(get(f"setup_{what}"))
        try:
            case()
        finally:
            _call(get(f"teardown_{what}"))

    return run


def _cases(function: Any, groups: Sequence[list[dict[str, Any]]] = ()) -> list[Callable[[], None]]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UnsupportedTest("a test that is a generator")  # pytest does not run them either
    groups = [*groups, *getattr(function, "pytest_cases", [])]
    given = {name for cases in groups for case in cases[:1] for name in case}
    missing = inspect.signature(function).parameters.keys() - given
    if any(inspect.signature(function).parameters[name].default is inspect.Parameter.empty for name in missing):
        raise UnsupportedTest(f"fixtures {sorted(missing)}")

    def bound(parts: tuple[dict[str, Any], ...]) -> Callable[[], None]:
        arguments = {name: value for part in parts for name, value in part.items()}
        return lambda: _ran(lambda: function(**arguments))

    return [bound(parts) for parts in itertools.product(*groups)]


def _class_cases(kind: type) -> list[Callable[[], None]]:
    found: list[Callable[[], None]] = []
    groups = getattr(kind, "pytest_cases", [])
    for name in [name for name in dir(kind) if name.startswith("test")]:
        instance = kind()
        found += [_around(case, instance, "method") for case in _cases(getattr(instance, name), groups)]
    return _between(found, getattr(kind, "setup_class", None), getattr(kind, "teardown_class", None))


def _unittest_cases(kind: type[unittest.TestCase]) -> list[Callable[[], None]]:
    def bound(name: str) -> Callable[[], None]:
        test = kind(name)
        method = getattr(test, name)
        asynchronous = sys.modules.get("unittest.async_case")  # loaded by the module that uses it
        if asynchronous is None or not isinstance(test, asynchronous.IsolatedAsyncioTestCase):
            setattr(test, name, lambda: _ran(method))

        def run() -> None:
            try:
                test.debug()
            except unittest.SkipTest:
                raise UnsupportedTest("a test that is skipped") from None

        if getattr(method, "__unittest_skip__", False) or getattr(kind, "__unittest_skip__", False):
            raise UnsupportedTest("a test that is skipped")
        return run

    cases = [bound(name) for name in unittest.TestLoader().getTestCaseNames(kind)]
    return _between(cases, kind.setUpClass, kind.tearDownClass)
