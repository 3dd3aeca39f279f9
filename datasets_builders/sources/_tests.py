"""Tests of code tasks: which text is Python, and a block of assertions cut into single ones."""

from __future__ import annotations

import ast
import warnings

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
