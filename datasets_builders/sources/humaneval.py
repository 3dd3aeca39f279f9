"""HumanEval: Python functions to complete from signature and docstring."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row, json_text, rl_row
from datasets_builders.source import Drop, Source, conversion

_REQUEST = "Complete this Python function. Give the whole function, with the imports and helper functions it needs."
_HELPER = re.compile(r"^def[ \t]+(\w+)", re.MULTILINE)
_NAME = re.compile(r"\w+")


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The prompt asks for the whole function; the gold is one block: the test code and a call of its `check`.

    Three of the tests call a helper that the prompt defines (`poly`, `encode_cyclic`, `encode_shift`); it stands before
    the test code then, since an answer may leave it out. `extra` keeps `entry_point` and `reference`, a program that
    passes. Dropped: `no_prompt`, `no_tests`.
    """
    code, test, name = row["prompt"], row["test"], row["entry_point"]
    if not code.strip() or not name.isidentifier():
        raise Drop("no_prompt")
    if "def check" not in test:
        raise Drop("no_tests")
    shown = code.strip("\n")
    return rl_row(
        f"{_REQUEST}\n\n```python\n{shown}\n```",
        json_text({"asserts": [f"{_helpers(code, test, name)}{test}\ncheck({name})\n"]}),
        task="code",
        source="humaneval",
        source_id=row["task_id"],
        entry_point=name,
        reference=code + row["canonical_solution"],
    )


def _helpers(code: str, test: str, name: str) -> str:
    """What a prompt holds before its function, where the test needs a function of it; else nothing."""
    start = re.search(rf"^def[ \t]+{name}\b", code, re.MULTILINE)
    before = code[: start.start()] if start else ""
    needed = not set(_HELPER.findall(before)).isdisjoint(_NAME.findall(test))
    return f"{before.strip()}\n\n" if needed else ""


EVALUATION = Source(
    name="humaneval",
    convert=convert,
    task="code",
    licence="mit",
    path="openai/openai_humaneval",
    split="test",
    splits={"test": ("test",)},
    revision="7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
    columns=("task_id", "prompt", "canonical_solution", "test", "entry_point"),
    size=164,
    evaluation=True,
)
SOURCES = (EVALUATION,)
