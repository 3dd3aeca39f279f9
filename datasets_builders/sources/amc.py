"""AMC 2023: forty problems of AMC 12 whose multiple choice was replaced by the value of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row
from datasets_builders.source import Source, conversion
from datasets_builders.sources._maths import math_row


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Question and answer; the answers are floats (27.0) in every copy and become integers.

    The column of the problem is `question`, or `problem` in `AI-MO/aimo-validation-amc`.
    """
    problem = row.get("question")
    return math_row(
        row["problem"] if problem is None else problem,
        row["answer"],
        source="amc_2023",
        source_id=row.get("id"),
        url=row.get("url"),
    )


EVALUATION = Source(
    name="amc_2023",
    convert=convert,
    task="math",
    licence="unknown",
    path="math-ai/amc23",
    split="test",
    revision="80815d37005feb82cd7f8fbc6901d5d3eff43057",
    columns=("answer",),
    optional_columns=("question", "problem", "id", "url"),
    size=40,
    evaluation=True,
    note="The text of the problems is © Mathematical Association of America. Others report 83 problems of two years.",
)
SOURCES = (EVALUATION,)
