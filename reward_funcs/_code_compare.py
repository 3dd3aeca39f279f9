"""Whether what came out of a test is what was expected: texts, results in JSON, and literals of Python."""

from __future__ import annotations

import json
import math
from typing import Any

from reward_funcs._sandbox_wire import checked, decoded


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

    A list of one is also taken for its item, since some data sets wrap each result in a list. NaN, which some golds
    expect, is NaN. The value is compared as it was sent: a set of a program's making can take minutes to build.

    Args:
        value (`Any`): an encoding, see `reward_funcs._sandbox_wire.encoded`.
        expected (`Any`): what JSON holds.
        tolerance (`float`, *optional*, defaults to 0.0): relative and absolute difference of floating-point numbers.

    Raises:
        WireError: For what is no encoding.

    Example:

    ```python
    >>> from reward_funcs._sandbox_wire import encoded
    >>> same_result(encoded((1, 2)), [1, 2]), same_result(5, [5]), same_result(True, 1), same_result(0.3001, 0.3, 1e-2)
    (True, True, False, True)

    ```
    """
    if _same(checked(value), expected, tolerance):
        return True
    return isinstance(expected, list) and len(expected) == 1 and _same(value, expected[0], tolerance)


def _same(value: Any, expected: Any, tolerance: float) -> bool:
    tag = value[0] if isinstance(value, list) and value else ""
    if isinstance(expected, list):
        if tag not in ("l", "t") or len(value) != len(expected) + 1:
            return False
        return all(_same(one, other, tolerance) for one, other in zip(value[1:], expected, strict=True))
    if isinstance(expected, dict):
        if tag not in ("d", "o", "c", "e") or len(value) != len(expected) + 1:
            return False
        named = {_key(pair[0]): pair[1] for pair in value[1:]}
        return named.keys() == expected.keys() and all(_same(named[k], expected[k], tolerance) for k in expected)
    if tag == "i":
        value = decoded(value)
    if isinstance(expected, bool) or isinstance(value, bool) or not isinstance(expected, (int, float)):
        return type(value) is type(expected) and bool(value == expected)
    if not isinstance(value, (int, float)):
        return False
    is_exact = isinstance(value, int) and isinstance(expected, int)
    if is_exact or not tolerance or value != value:
        return value == expected or (value != value and expected != expected)
    try:
        return math.isclose(value, expected, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:
        return False


def _key(key: Any) -> str:
    """The text that JSON has for a key."""
    if isinstance(key, list) and key[:1] == ["i"]:
        return str(decoded(key))
    return key if isinstance(key, str) else json.dumps(key)


def equals_literal(value: Any, literal: Any) -> bool:
    """Whether a value equals a literal as Python's `==` has it.

    Args:
        value (`Any`): an encoding, see `reward_funcs._sandbox_wire.encoded`.
        literal (`Any`): a value of Python's literals.

    Raises:
        WireError: For what is no encoding.

    Example:

    ```python
    >>> from reward_funcs._sandbox_wire import encoded
    >>> equals_literal(encoded([1, {2}]), [1, {2}]), equals_literal(encoded((1, 2)), [1, 2]), equals_literal(1.0, True)
    (True, False, True)

    ```
    """
    return _equals(checked(value), literal)


def _equals(value: Any, literal: Any) -> bool:
    tag = value[0] if isinstance(value, list) and value else ""
    if isinstance(literal, (list, tuple)):
        if tag != ("l" if isinstance(literal, list) else "t") or len(value) != len(literal) + 1:
            return False
        return all(map(_equals, value[1:], literal))
    if isinstance(literal, (dict, set)):
        tags = ("d", "o", "c", "e") if isinstance(literal, dict) else ("s", "f")
        # only as many are read as are expected: keys of a program's making can take minutes to put into a table
        if tag not in tags or len(value) != len(literal) + 1:
            return False
        if isinstance(literal, set):
            return bool(decoded(value) == literal)
        try:
            held = {decoded(pair[0]): pair[1] for pair in value[1:]}
        except TypeError:  # a signalling NaN of `decimal` has no hash either
            return False
        return held.keys() == literal.keys() and all(_equals(held[key], literal[key]) for key in literal)
    if tag and tag not in ("i", "b", "B", "x", "T"):
        return False
    try:
        return bool(decoded(value) == literal)
    except ArithmeticError:  # a signalling NaN of `decimal`, with which every comparison is an error
        return False
