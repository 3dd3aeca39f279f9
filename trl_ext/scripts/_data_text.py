"""Text of `trl-ext data` for the terminal: aligned tables of at most 100 columns."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 99


def say(text: str, *, error: bool = False) -> None:
    """Print, also where the terminal's encoding lacks a character of the data."""
    stream = sys.stderr if error else sys.stdout
    encoding = stream.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[int] = (), width: int = WIDTH
) -> str:
    """Rows in columns as wide as they need; what the last column has too much is wrapped under itself.

    Args:
        head (`Sequence[str]`): names of the columns.
        rows (`Iterable[Sequence]`): cells.
        numbers (`Sequence[int]`): columns that are aligned to the right.
        width (`int`): characters of a line.

    Example:

    ```python
    >>> print(table(("step", "rows"), [("loaded", 10), ("kept", 9)], numbers=(1,)))
    step    rows
    loaded    10
    kept       9

    ```
    """
    cells = [[visible(cell) for cell in row] for row in (head, *rows)]
    sizes = [max(len(row[column]) for row in cells) for column in range(len(head))]
    left = max(20, width - sum(sizes[:-1]) - 2 * (len(head) - 1))
    lines = []
    for row in cells:
        parts = [
            cell.rjust(size) if column in numbers else cell.ljust(size)
            for column, (cell, size) in enumerate(zip(row[:-1], sizes[:-1], strict=True))
        ]
        last = textwrap.wrap(row[-1], left) or [""]
        if len(head) - 1 in numbers:
            last[0] = last[0].rjust(min(sizes[-1], left))
        indent = " " * (sum(sizes[:-1]) + 2 * (len(head) - 1))
        lines.append("  ".join([*parts, last[0]]).rstrip())
        lines += [indent + more for more in last[1:]]
    return "\n".join(lines)


def visible(value: object) -> str:
    """Text on one line whose control characters cannot move the cursor."""
    text = "-" if value is None else " ".join(str(value).split())
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shortened(text: str, length: int = 400) -> str:
    """The text with its middle left out where it is longer, control characters escaped, lines kept."""
    shown = "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
    if len(shown) <= length:
        return shown
    half = length // 2
    return f"{shown[:half]} [... {len(shown) - 2 * half} characters ...] {shown[-half:]}"


def indented(text: str) -> str:
    """Lines of a text wrapped to the width and moved in by four."""
    lines = [part for line in text.splitlines() for part in (textwrap.wrap(line, WIDTH - 4) or [""])]
    return textwrap.indent("\n".join(lines), "    ")
