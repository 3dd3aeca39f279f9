"""MATH-500: the 500 problems of MATH that are the usual benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row
from datasets_builders.source import Source, conversion
from datasets_builders.sources._maths import math_row


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Problem and answer; subject, level (1 to 5) and the worked solution stay in `extra`."""
    return math_row(
        row["problem"],
        row["answer"],
        source="math_500",
        source_id=row.get("unique_id"),
        subject=row.get("subject"),
        level=row.get("level"),
        worked=row.get("solution"),
    )


EVALUATION = Source(
    name="math_500",
    convert=convert,
    task="math",
    licence="mit",
    path="HuggingFaceH4/MATH-500",
    split="test",
    revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
    columns=("problem", "answer"),
    optional_columns=("solution", "subject", "level", "unique_id"),
    size=500,
    evaluation=True,
)
SOURCES = (EVALUATION,)
