"""The tests of a code task: how a gold states them, the job that runs them, and the comparison of what came out."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from reward_funcs._sandbox_jobs import Job
from reward_funcs._sandbox_names import Uses, parsed, uses_of
from reward_funcs._sandbox_wire import WireError, decoded, encoded
from reward_funcs.base import plain

KINDS = ("functional", "stdio", "asserts", "pytest")
BAD_VERDICTS = ("bad_test", "unsupported_test")  # the fault of the tests and not of the program
_MODES = {"functional": "calls", "stdio": "stdio", "asserts": "asserts", "pytest": "pytest"}
_NO_USES = Uses(frozenset(), frozenset(), False)
_MESSAGES = {"functional": ("value", 3), "stdio": ("output", 4), "asserts": ("value", 3), "pytest": ("verdict", 3)}
# what the encoding of a value may be longer than that of the expected one, and what it may be longer per byte
_SLACK, _FACTOR = 16384, 16


class Block(NamedTuple):
    """One item of the kind asserts.

    Args:
        code (`str`): statements that are run in the process of the tests.
        value (`str`): the expression that is compared with a literal, empty where the last statement is no such
            comparison; then `code` is the whole item.
        expected (`Any`): the literal, which stays in the trainer's process.
    """

    code: str
    value: str = ""
    expected: Any = None


class Text(NamedTuple):
    """An expected result that is given as text: the text itself, or the value of the JSON that it holds."""

    text: str
    value: Any


class GoldTests(NamedTuple):
    """The tests of one gold.

    Args:
        kind (`str`): one of `KINDS`.
        items (`tuple[Any, ...]`): blocks of statements, inputs, or the one module of tests.
        outputs (`tuple[Any, ...]`): the expected outputs of inputs; empty for the other kinds.
        entry (`str`): the function that inputs are given to; empty for the other kinds.
        uses (`Uses`): what the statements of tests use.
        problem (`str`): why no program can be judged by them: `bad_test` or `unsupported_test`; empty for none.
    """

    kind: str
    items: tuple[Any, ...]
    outputs: tuple[Any, ...] = ()
    entry: str = ""
    uses: Uses = _NO_USES
    problem: str = ""

    def job(self, code: str, start: int, *, stop: bool, tolerance: float, seconds: float) -> Job:
        """The job that runs the tests from `start` on; with `stop` it ends at the first one that fails."""
        items = self.items[start:]
        data: dict[str, Any] = {"stop": stop, "seconds": seconds}
        if self.kind in ("asserts", "pytest"):
            data |= {"entries": sorted(self.uses.entries), "classes": sorted(self.uses.classes)}
        if self.kind == "asserts":
            data["blocks"] = [[one.code, one.value, _most(one.expected)] for one in items]
        elif self.kind == "pytest":
            data["tests"] = items[0]
        elif self.kind == "functional":
            outputs = [one.text if isinstance(one, Text) else one for one in self.outputs[start:]]
            data |= {"entry": self.entry, "inputs": list(map(encoded, items)), "lengths": list(map(_most, outputs))}
        else:
            data |= {"entry": "", "inputs": list(items)}

        def judged(message: list[Any]) -> list[Any]:
            # at once, so that no output is kept
            return ["verdict", message[1], self.verdict(message, start, tolerance)]

        def goes_on(message: list[Any]) -> bool:
            return bool(message[2] == "passed")

        return Job(_MODES[self.kind], code, data, goes_on if stop else None, judged)

    def is_message(self, message: Any, index: int) -> bool:
        """Whether a message is one that the tests of this kind can give for the test of that number."""
        if not isinstance(message, list) or len(message) < 3 or message[1] != index:
            return False
        if message[0] == "verdict":
            return len(message) == 3 and isinstance(message[2], str)
        if (message[0], len(message)) != _MESSAGES[self.kind]:
            return False
        if self.kind == "asserts":
            return index < len(self.items) and bool(self.items[index].value)
        return index < len(self.outputs) and (self.kind != "stdio" or isinstance(message[2], str))

    def verdict(self, message: list[Any], start: int, tolerance: float) -> str:
        """A short code for what came out of one test; the expected value is compared here, in this process."""
        if message[0] == "verdict":
            return str(message[2])
        number = start + message[1]
        if message[0] == "output":
            if message[3] != "ok":
                return str(message[3])
            return "passed" if same_output(message[2], self.outputs[number], tolerance) else "wrong"
        try:
            if self.kind == "asserts":
                return "passed" if equals_literal(message[2], self.items[number].expected) else "wrong"
            expected = self.outputs[number]
            options = (expected.value, expected.text) if isinstance(expected, Text) else (expected,)
            return "passed" if any(same_result(message[2], one, tolerance) for one in options) else "wrong"
        except (WireError, ValueError, RecursionError):
            return "bad_value"


def _most(expected: Any) -> int:
    """Bytes that the encoding of a value can have that is equal to the expected one."""
    return _SLACK + _FACTOR * len(repr(expected))


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
        return _of_blocks(tuple(gold["asserts"])) if _are_texts(gold["asserts"]) else None
    if "pytest" in given:
        return _of_module(gold["pytest"]) if _are_texts([gold["pytest"]]) else None
    return _of_pairs(gold["inputs"], gold.get("outputs"), gold.get("fn_name"))


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(one, str) and one.strip() for one in values)


@lru_cache(maxsize=512)
def _of_blocks(blocks: tuple[str, ...]) -> GoldTests:
    trees = [parsed(block) for block in blocks]
    whole = [tree for tree in trees if tree is not None]
    # comments, and statements without the program, would be passed by every one
    if len(whole) < len(trees) or not all(tree.body for tree in whole):
        return GoldTests("asserts", tuple(map(Block, blocks)), problem="bad_test")
    uses = uses_of(whole)
    if not uses.is_any:
        return GoldTests("asserts", tuple(map(Block, blocks)), problem="bad_test")
    items = tuple(_split(block, tree) for block, tree in zip(blocks, whole, strict=True))
    return GoldTests("asserts", items, uses=uses, problem="unsupported_test" if uses.is_unsupported else "")


@lru_cache(maxsize=512)
def _of_module(code: str) -> GoldTests:
    tree = parsed(code)
    uses = _NO_USES if tree is None else uses_of([tree])
    problem = "bad_test" if tree is None else "unsupported_test" if uses.is_unsupported else ""
    return GoldTests("pytest", (code,), uses=uses, problem=problem)


def _split(block: str, tree: ast.Module) -> Block:
    """A block whose last statement is `assert <expression> == <literal>`, without the literal; others as they are."""
    last = tree.body[-1]
    test = last.test if isinstance(last, ast.Assert) else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return Block(block)
    for value, literal in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
        if any(isinstance(node, ast.Call) for node in ast.walk(value)):
            try:
                expected = ast.literal_eval(literal)
                encoded(expected)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            return Block(ast.unparse(ast.Module(tree.body[:-1], [])), ast.unparse(value), expected)
    return Block(block)


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
        return Text(given, json.loads(given))  # a function may also return the text
    except (ValueError, RecursionError):
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

    A list of one is also taken for its item, since some data sets wrap each result in a list. The value is compared as
    it was sent: a set of a program's making can take minutes to build.

    Args:
        value (`Any`): an encoding, see `reward_funcs._sandbox_wire.encoded`.
        expected (`Any`): what JSON holds.
        tolerance (`float`, *optional*, defaults to 0.0): relative and absolute difference of floating-point numbers.

    Example:

    ```python
    >>> same_result(encoded((1, 2)), [1, 2]), same_result(5, [5]), same_result(True, 1), same_result(0.3001, 0.3, 1e-2)
    (True, True, False, True)

    ```
    """
    if _same(value, expected, tolerance):
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
    if is_exact or not tolerance:
        return value == expected
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
    >>> equals_literal(encoded([1, {2}]), [1, {2}]), equals_literal(encoded((1, 2)), [1, 2]), equals_literal(1.0, True)
    (True, False, True)

    ```
    """
    tag = value[0] if isinstance(value, list) and value else ""
    if isinstance(literal, (list, tuple)):
        if tag != ("l" if isinstance(literal, list) else "t") or len(value) != len(literal) + 1:
            return False
        return all(map(equals_literal, value[1:], literal))
    if isinstance(literal, (dict, set)):
        tags = ("d", "o", "c", "e") if isinstance(literal, dict) else ("s", "f")
        # only as many are read as are expected: keys of a program's making can take minutes to put into a table
        if tag not in tags or len(value) != len(literal) + 1:
            return False
        if isinstance(literal, set):
            return bool(decoded(value) == literal)
        held = {decoded(pair[0]): pair[1] for pair in value[1:]}
        return held.keys() == literal.keys() and all(equals_literal(held[key], literal[key]) for key in literal)
    if tag and tag not in ("i", "b", "B", "x", "T"):
        return False
    return bool(decoded(value) == literal)
