"""AIME 2024 and 2025: thirty problems a year whose answers are integers from 0 to 999."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.golds import boxed_gold, integer_gold
from datasets_builders.schema import Row
from datasets_builders.source import Source, conversion
from datasets_builders.sources._maths import math_row


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    r"""Problem and answer without leading zeros (`025`) or a degree sign.

    Copies differ in their columns: where `answer` is missing, the last box of `solution` is read.
    """
    return _row(row, "aime_2024")


@conversion
def convert_2025(row: Mapping[str, Any]) -> Row:
    """As [`convert`]."""
    return _row(row, "aime_2025")


def _row(row: Mapping[str, Any], name: str) -> Row:
    answer = row.get("answer")
    if answer is None:
        answer = boxed_gold(row["solution"])[0]
    return math_row(
        row["problem"], answer, gold=integer_gold(answer), source=name, source_id=row.get("id"), url=row.get("url")
    )


_NOTE = "The text of the problems is © Mathematical Association of America."
EVALUATION_2024 = Source(
    name="aime_2024",
    convert=convert,
    task="math",
    licence="unknown",
    path="HuggingFaceH4/aime_2024",
    split="train",
    revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
    columns=("problem",),
    optional_columns=("id", "answer", "solution", "url"),
    size=30,
    evaluation=True,
    note=_NOTE,
)
EVALUATION_2025 = Source(
    name="aime_2025",
    convert=convert_2025,
    task="math",
    licence="unknown",
    path="math-ai/aime25",
    split="test",
    revision="563bb8404243c5f09de6ec262f2db674fe5bce9b",
    columns=("problem",),
    optional_columns=("id", "answer", "solution", "url"),
    size=30,
    evaluation=True,
    note=_NOTE,
)
SOURCES = (EVALUATION_2024, EVALUATION_2025)
