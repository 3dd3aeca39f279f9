"""Tests of code tasks: inputs with outputs, which text is Python, and a block of assertions cut into single ones."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from typing import Any

from datasets_builders.source import Drop

MAX_BLOCK = 500_000  # characters; a longer block stays in one piece, since its syntax tree would need gigabytes


def syntax(code: str) -> ast.Module | None:
    """The syntax tree of Python code; `None` for a text that is not Python or is too long to say."""
    if len(code) > MAX_BLOCK:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in somebody's string is no concern of ours
            return ast.parse(code)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def is_python(code: str) -> bool:
    """Whether a text is Python code; a text above `MAX_BLOCK` characters is taken at its word."""
    return len(code) > MAX_BLOCK or syntax(code) is not None


def assertions(code: str) -> list[str]:
    r"""One block for each assertion of a test code, each with the imports that stand anywhere in the code.

    Code with other statements, which may depend on each other, stays one block, and so does code that cannot be read.

    Example:

    ```python
    >>> assertions("assert f(1) == 2\nassert f(2) == 3")
    ['assert f(1) == 2', 'assert f(2) == 3']
    >>> assertions("s = S()\nassert s.f() == 1")
    ['s = S()\nassert s.f() == 1']

    ```
    """
    code = code.replace("\r\n", "\n").replace("\r", "\n").strip()
    tree = syntax(code)
    if tree is None or not all(isinstance(one, (ast.Assert, ast.Import, ast.ImportFrom)) for one in tree.body):
        return [code]
    lines = code.split("\n")
    imports: list[str] = []
    tests: list[str] = []
    for one in tree.body:
        if one.col_offset or one.end_lineno is None:  # several statements on a line
            return [code]
        text = "\n".join(lines[one.lineno - 1 : one.end_lineno])
        (tests if isinstance(one, ast.Assert) else imports).append(text)
    head = "".join(f"{line}\n" for line in imports)
    return [head + test for test in tests] or [code]


def io_tests(tests: Mapping[str, Any]) -> dict[str, Any]:
    r"""The gold of tests that compare outputs: of a program's standard output, or with `fn_name` of a function.

    Args:
        tests (`Mapping`): `inputs` and `outputs`, two lists of one length, and `fn_name`, null or empty for a program.
            What a program reads and prints are texts, or lists of their lines.

    Returns:
        `dict`: the same keys; `fn_name` only where a function is called.

    Raises:
        Drop: `no_tests` where there are none, `bad_tests` for another number of inputs than of outputs, an `fn_name`
            that is no text, and an input or output of a program that is none.

    Example:

    ```python
    >>> io_tests({"inputs": [["1", "2"]], "outputs": ["3"], "fn_name": None})
    {'inputs': ['1\n2'], 'outputs': ['3']}

    ```
    """
    inputs, outputs, function = tests.get("inputs"), tests.get("outputs"), tests.get("fn_name")
    if not inputs and not outputs:
        raise Drop("no_tests")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        raise Drop("bad_tests")
    if function is None or function == "":
        return {"inputs": [_text(one) for one in inputs], "outputs": [_text(one) for one in outputs]}
    if not isinstance(function, str) or not function.strip():
        raise Drop("bad_tests")
    return {"inputs": inputs, "outputs": outputs, "fn_name": function}


def _text(value: Any) -> str:
    """What a program reads or prints; a list holds its lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise Drop("bad_tests")
    return value
