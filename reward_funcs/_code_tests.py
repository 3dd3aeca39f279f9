"""The tests of a code task: how a gold states them, the job that runs them, and the comparison of what came out."""

from __future__ import annotations

import ast
import json
import keyword
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from reward_funcs._code_compare import equals_literal, same_output, same_result
from reward_funcs._sandbox_jobs import Job
from reward_funcs._sandbox_names import Uses, parsed, uses_of
from reward_funcs._sandbox_wire import WireError, encoded
from reward_funcs.base import plain

KINDS = ("functional", "stdio", "asserts", "pytest")
BAD_VERDICTS = ("bad_test", "unsupported_test")  # the fault of the tests and not of the program
_MODES = {"functional": "calls", "stdio": "stdio", "asserts": "asserts", "pytest": "pytest"}
_NO_USES = Uses(frozenset(), frozenset(), False)
_MESSAGES = {"functional": ("value", 3), "stdio": ("output", 4), "asserts": ("value", 3), "pytest": ("verdict", 3)}
# what the encoding of a value may be longer than that of the expected one, and what it may be longer per byte
_SLACK, _FACTOR = 16384, 16
MAX_DEPTH = 200  # of lists and mappings in each other in a gold; what reads and compares them goes down as deep


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
        items (`tuple[Any, ...]`): blocks of statements, inputs (those of functions as they are sent), or the one module
            of tests.
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
            data["blocks"] = [[one.code, one.value, _most(encoded(one.expected))] for one in items]
            data["prelude"] = "Solution" in self.uses.classes
        elif self.kind == "pytest":
            data["tests"] = items[0]
        elif self.kind == "functional":
            outputs = [one.text if isinstance(one, Text) else one for one in self.outputs[start:]]
            data |= {"entry": self.entry, "inputs": list(items), "lengths": list(map(_most, outputs)), "prelude": True}
        else:
            data |= {"entry": "", "inputs": list(items)}

        def judged(message: list[Any]) -> list[Any]:
            # at once, so that no output is kept; what has another form is left for whoever reads all messages
            number = message[1] if len(message) > 1 and type(message[1]) is int and message[1] >= 0 else -1
            if number < 0 or not self.is_message([message[0], start + number, *message[2:]], start + number):
                return ["verdict", -1, "bad_reply"]
            return ["verdict", number, self.verdict(message, start, tolerance)]

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

    def text(self) -> str:
        """A text that two golds share where they have the same tests; 1 and True are different ones."""
        if self.kind != "asserts":
            outputs = [["text", one.text] if isinstance(one, Text) else ["value", one] for one in self.outputs]
            return json.dumps([self.kind, self.entry, self.items, outputs])
        return json.dumps([[one.code, one.value, encoded(one.expected)] for one in self.items])


def _most(expected: Any) -> int:
    """Bytes that the encoding of a value can have that is equal to the expected one."""
    return _SLACK + _FACTOR * len(json.dumps(expected))


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
    if isinstance(gold, str):
        return _of_text(gold)
    try:
        return _of_value(plain(gold))
    except RecursionError:  # deeper than any gold that is read
        return None


@lru_cache(maxsize=512)  # each gold is asked for once a completion of its prompt
def _of_text(gold: str) -> GoldTests | None:
    try:
        return _of_value(json.loads(gold))
    except (ValueError, RecursionError):
        return None


def _of_value(gold: Any) -> GoldTests | None:
    if not isinstance(gold, Mapping) or not _is_shallow(gold):
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


def _is_shallow(value: Any) -> bool:
    """Whether lists and mappings lie at most `MAX_DEPTH` deep in each other."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        held = [one.values() if isinstance(one, Mapping) else one for one in level if isinstance(one, (Mapping, list))]
        if not held:
            return True
        level = [item for items in held for item in items]
    return False


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
                return Block(ast.unparse(ast.Module(tree.body[:-1], [])), ast.unparse(value), expected)
            # no literal, or a block that is too deep, or has numbers too long, to be written again
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
    return Block(block)


def _of_pairs(inputs: Any, outputs: Any, name: Any) -> GoldTests | None:
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not inputs or len(inputs) != len(outputs):
        return None
    if name is None or name == "":
        # a program that prints nothing would pass where nothing is expected
        if not all(isinstance(one, str) for one in [*inputs, *outputs]) or not any(map(str.strip, outputs)):
            return None
        return GoldTests("stdio", tuple(inputs), tuple(outputs))
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        return None
    try:
        arguments = tuple(encoded(_arguments(one)) for one in inputs)
        # as JSON holds them: keys are texts, and what it cannot hold is no result
        results = tuple(map(_result, json.loads(json.dumps(outputs))))
    except (ValueError, TypeError, RecursionError):
        return None
    return GoldTests("functional", arguments, results, name)


def _arguments(given: Any) -> list[Any]:
    """The arguments of a call: a list of them, or a text with one JSON value a line."""
    if isinstance(given, str):
        given = [json.loads(line) for line in given.splitlines() if line.strip()]
    if not isinstance(given, list) or not _is_shallow(given):
        raise TypeError
    return given


def _result(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        value = json.loads(given)  # a function may also return the text
    except (ValueError, RecursionError):
        return given
    return Text(given, value) if _is_shallow(value) else given
