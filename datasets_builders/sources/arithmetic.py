"""Sums, differences and products of whole numbers with a given number of digits, generated row by row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from datasets_builders.golds import math_gold
from datasets_builders.schema import Row, rl_row
from datasets_builders.source import Source, conversion

# In words: prompts that differ in nothing but a sign are the same to what looks for duplicates.
OPERATIONS = {"add": "plus", "sub": "minus", "mul": "times"}
DEFAULT = "mixed_2"
_LEVEL = re.compile(r"(add|sub|mul|mixed)_([1-9])")


def exercise(index: int, seed: int, config: str | None = None) -> dict[str, Any]:
    """An exercise and its result.

    Args:
        index (`int`): number of the row; the exercise depends on it, `seed` and `config` alone.
        seed (`int`): seed of the data set.
        config (`str`, *optional*): operation and digits of both numbers, 1 to 9: `"add_2"`, `"sub_3"`, `"mul_1"`, or
            `"mixed_2"`, the default, for any of the three operations.

    Returns:
        `dict`: `expression`, `result` and `level`, the configuration of the operation that was drawn.

    Raises:
        ValueError: For another configuration.

    Example:

    ```python
    >>> exercise(0, 42, "mul_2")
    {'expression': '10 times 19', 'result': 190, 'level': 'mul_2'}

    ```
    """
    match = _LEVEL.fullmatch(config or DEFAULT)
    if match is None:
        raise ValueError(
            f"config={config!r} is no level of arithmetic; name an operation (add, sub, mul or mixed) and the digits "
            'of the numbers (1 to 9), for instance config="add_2"'
        )
    random = Random(f"{match[0]}-{seed}-{index}")
    digits = int(match[2])
    name = random.choice(list(OPERATIONS)) if match[1] == "mixed" else match[1]
    low, high = (10 ** (digits - 1) if digits > 1 else 0), 10**digits - 1
    a, b = random.randint(low, high), random.randint(low, high)
    result = {"add": a + b, "sub": a - b, "mul": a * b}[name]
    return {"expression": f"{a} {OPERATIONS[name]} {b}", "result": result, "level": f"{name}_{digits}"}


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The exercise as a question; the result is an integer, below 0 for some differences."""
    return rl_row(
        f"What is {row['expression']}?",
        math_gold(row["result"]),
        task="math",
        source="arithmetic",
        answer=str(row["result"]),
        level=row["level"],
    )


GENERATED = Source(
    name="arithmetic",
    convert=convert,
    task="math",
    licence="apache-2.0",
    config=DEFAULT,
    splits={"train": (), "test": ()},
    generate=exercise,
    note='Rows are generated, as many as are asked for. config="add_2" names the operation and the digits.',
)
SOURCES = (GENERATED,)
