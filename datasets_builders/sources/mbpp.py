"""MBPP: short Python functions described in a sentence, with three assertions each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row, json_text, rl_row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._turns import filled

FIRST, LAST = 11, 510  # task ids of the test split


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The sentence with the first assertion, which names the function; each assertion is a block of its own.

    Code that a task's tests share stands before each of them, and in the prompt. `extra` keeps `reference`, a program
    that passes. Dropped: `other_split` (ids outside 11 to 510, which few-shot prompts and training use), `no_prompt`,
    `no_tests`.
    """
    if not FIRST <= row["task_id"] <= LAST:
        raise Drop("other_split")
    tests = [_lines(test) for test in row["test_list"] if test is not None and test.strip()]
    if not tests:
        raise Drop("no_tests")
    setup = _lines(row.get("test_setup_code") or "")
    blocks = [f"{setup}\n{test}" if setup else test for test in tests]
    text = filled(row["text"], "no_prompt")
    return rl_row(
        f"{text}\n\nThe code must pass this test:\n\n```python\n{blocks[0]}\n```",
        json_text({"asserts": blocks}),
        task="code",
        source="mbpp",
        source_id=row["task_id"],
        reference=_lines(row["code"]),
    )


def _lines(code: str) -> str:
    """Code with one kind of line end, without those around it."""
    return "\n".join(line.rstrip() for line in code.replace("\r\n", "\n").split("\n")).strip()


EVALUATION = Source(
    name="mbpp",
    convert=convert,
    task="code",
    licence="cc-by-4.0",
    path="google-research-datasets/mbpp",
    config="full",
    split="test",
    splits={"test": ("test",)},
    revision="4bb6404fdc6cacfda99d4ac4205087b89d32030c",
    columns=("task_id", "text", "code", "test_list"),
    optional_columns=("test_setup_code",),
    size=500,
    evaluation=True,
)
SOURCES = (EVALUATION,)
