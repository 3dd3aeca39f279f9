"""The tests of a code task: how a gold states them, the job that runs them, and the comparison of what came out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from reward_funcs._sandbox_wire import WireError, decoded, encoded
from reward_funcs.base import plain
from reward_funcs.sandbox import Job

KINDS = ("functional", "stdio", "asserts", "pytest")
BAD_VERDICTS = ("bad_test", "unsupported_test")  # the fault of the tests and not of the program
_MODES = {"functional": "calls", "stdio": "stdio", "asserts": "asserts", "pytest": "pytest"}


class GoldTests(NamedTuple):
    """The tests of one gold.

    Args:
        kind (`str`): one of `KINDS`.
        items (`tuple[Any, ...]`): blocks of statements, inputs, or the one module of tests.
        outputs (`tuple[Any, ...]`): the expected outputs of inputs; empty for the other kinds.
        entry (`str`): the function that inputs are given to; empty for the other kinds.
    """

    kind: str
    items: tuple[Any, ...]
    outputs: tuple[Any, ...] = ()
    entry: str = ""

    def job(self, code: str, start: int, *, stop: bool, tolerance: float) -> Job:
        """The job that runs the tests from `start` on; with `stop` it ends at the first one that fails."""
        items = list(self.items[start:])
        data: dict[str, Any] = {"stop": stop}
        if self.kind == "asserts":
            data["blocks"] = items
        elif self.kind == "pytest":
            data["tests"] = items[0]
        else:
            data |= {"entry": self.entry, "inputs": [encoded(one) for one in items] if self.entry else items}
        goes_on = None
        if stop and self.outputs:

            def goes_on(message: list[Any]) -> bool:
                return self.verdict(message, start, tolerance) == "passed"

        return Job(_MODES[self.kind], code, data, goes_on)

    def verdict(self, message: list[Any], start: int, tolerance: float) -> str:
        """A short code for what came out of one test; the expected value is compared here, in this process."""
        if message[0] == "verdict":
            return str(message[2])
        expected = self.outputs[start + message[1]]
        if message[0] == "output":
            if message[3] != "ok":
                return str(message[3])
            return "passed" if same_output(message[2], expected, tolerance) else "wrong"
        try:
            return "passed" if same_result(decoded(message[2]), expected, tolerance) else "wrong"
        except (WireError, ValueError, RecursionError):
            return "bad_value"


def gold_tests(gold: Any) -> GoldTests | None:
    """The tests that a gold states, `None` where it states none.

    Args:
        gold (`Mapping | str`): `{"asserts": [...]}`, `{"inputs": [...], "outputs": [...]}`, with `"fn_name"` for calls
            of a function, or `{"pytest": "..."}`, as a mapping or its JSON text.

    Returns:
        `GoldTests | None`: at least one test.

    Example:

    ```python
    >>> gold_tests('{"inputs": ["1 2"], "outputs": ["3"]}').kind
    'stdio'

    ```
    """
    return _of_text(gold) if isinstance(gold, str) else _of_value(plain(gold))


@lru_cache(maxsize=512)  # each gold is asked for once a completion of its prompt
def _of_text(gold: str) -> GoldTests | None:
    try:
        return _of_value(json.loads(gold))
    except (ValueError, RecursionError):
        return None


def _of_value(gold: Any) -> GoldTests | None:
    if not isinstance(gold, Mapping):
        return None
    # a null stands where a table gives every row all keys
    given = {key for key in ("asserts", "pytest", "inputs") if gold.get(key) is not None}
    if len(given) != 1:
        return None
    if "asserts" in given:
        return GoldTests("asserts", tuple(gold["asserts"])) if _are_texts(gold["asserts"]) else None
    if "pytest" in given:
        return GoldTests("pytest", (gold["pytest"],)) if _are_texts([gold["pytest"]]) else None
    return _of_pairs(gold["inputs"], gold.get("outputs"), gold.get("fn_name"))


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(one, str) and one.strip() for one in values)


def _of_pairs(inputs: Any, outputs: Any, name: Any) -> GoldTests | None:
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not inputs or len(inputs) != len(outputs):
        return None
    if name is None or name == "":
        # a program that prints nothing would pass where nothing is expected
        if not all(isinstance(one, str) for one in [*inputs, *outputs]) or not any(map(str.strip, outputs)):
            return None
        return GoldTests("stdio", tuple(inputs), tuple(outputs))
    if not isinstance(name, str) or not name.isidentifier():
        return None
    try:
        arguments = [_arguments(one) for one in inputs]
    except (ValueError, TypeError):
        return None
    return GoldTests("functional", tuple(arguments), tuple(map(_result, outputs)), name)


def _arguments(given: Any) -> list[Any]:
    """The arguments of a call: a list of them, or a text with one JSON value a line."""
    if isinstance(given, str):
        return [json.loads(line) for line in given.splitlines() if line.strip()]
    if not isinstance(given, list):
        raise TypeError
    return given


def _result(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except ValueError:
        return given


def same_output(output: str, expected: str, tolerance: float = 0.0) -> bool:
    """Whether two texts have the same words, numbers up to a tolerance; line ends and other white space are the same.

    Args:
        output (`str`): what the program printed.
        expected (`str`): what it should have printed.
        tolerance (`float`, *optional*, defaults to 0.0): relative and absolute difference up to which two numbers are
            the same; with 0 they must be written alike.

    Example:

    ```python
    >>> same_output("1 2\\n", "1\\n2"), same_output("1 2 3", "1 2"), same_output("0.50", "0.5", 1e-6)
    (True, False, True)

    ```
    """
    words, wanted = output.split(), expected.split()
    if len(words) != len(wanted):
        return False
    return all(one == other or _near(one, other, tolerance) for one, other in zip(words, wanted, strict=True))


def _near(word: str, wanted: str, tolerance: float) -> bool:
    if not tolerance or len(word) > 400 or len(wanted) > 400:
        return False
    try:
        number, target = float(word), float(wanted)
    except ValueError:
        return False
    return math.isfinite(target) and math.isclose(number, target, rel_tol=tolerance, abs_tol=tolerance)


def same_result(value: Any, expected: Any, tolerance: float = 0.0) -> bool:
    """Whether what a function returned is what a gold in JSON says: tuples are lists, keys of mappings may be texts.

    A list of one is also taken for its item, since some data sets wrap each result in a list.

    Args:
        value (`Any`): plain data, see `reward_funcs._sandbox_wire.decoded`.
        expected (`Any`): what JSON holds.
        tolerance (`float`, *optional*, defaults to 0.0): relative and absolute difference of floating-point numbers.

    Example:

    ```python
    >>> same_result((1, 2), [1, 2]), same_result(5, [5]), same_result(True, 1), same_result(0.1 + 0.2, 0.3, 1e-9)
    (True, True, False, True)

    ```
    """
    if _same(value, expected, tolerance):
        return True
    return isinstance(expected, list) and len(expected) == 1 and _same(value, expected[0], tolerance)


def _same(value: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, list):
        if not isinstance(value, (list, tuple)) or len(value) != len(expected):
            return False
        return all(_same(one, other, tolerance) for one, other in zip(value, expected, strict=True))
    if isinstance(expected, dict):
        if not isinstance(value, dict) or len(value) != len(expected):
            return False
        named = {key if isinstance(key, str) else json.dumps(key, default=str): one for key, one in value.items()}
        return named.keys() == expected.keys() and all(_same(named[k], expected[k], tolerance) for k in expected)
    if isinstance(expected, bool) or isinstance(value, bool) or not isinstance(expected, (int, float)):
        return type(value) is type(expected) and bool(value == expected)
    if not isinstance(value, (int, float)):
        return False
    is_exact = isinstance(value, int) and isinstance(expected, int)
    if is_exact or not tolerance:
        return value == expected
    try:
        return math.isclose(value, expected, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:
        return False
