"""DeepScaleR: 40k problems of AIME, AMC, MATH, Omni-MATH and STILL with answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row
from datasets_builders.source import Source, conversion
from datasets_builders.sources._maths import math_row


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Problem and answer; the worked solution, where there is one, stays in `extra`.

    Dropped: `no_answer` for the few answers that are null or empty.
    """
    return math_row(
        row["problem"], row["answer"], source="deepscaler", worked=(row.get("solution") or "").strip() or None
    )


TRAINING = Source(
    name="deepscaler",
    convert=convert,
    task="math",
    licence="mit",
    path="agentica-org/DeepScaleR-Preview-Dataset",
    revision="b6ae8c60f5c1f2b594e2140b91c49c9ad0949e29",
    columns=("problem", "answer"),
    optional_columns=("solution",),
    size=40_315,
    note="Holds problems of MATH and of AIME up to 2023: decontaminate it before measuring on MATH-500.",
)
SOURCES = (TRAINING,)
