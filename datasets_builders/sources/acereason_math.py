"""AceReason-Math: 49,585 problems of NuminaMath and DeepScaleR with short answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row
from datasets_builders.source import Source, conversion
from datasets_builders.sources._maths import math_row


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Problem and answer as they are: its authors left out multiple choice, proofs and problems with figures."""
    return math_row(row["problem"], row["answer"], source="acereason_math")


TRAINING = Source(
    name="acereason_math",
    convert=convert,
    task="math",
    licence="cc-by-4.0",
    path="nvidia/AceReason-Math",
    revision="a5cc41c5ecfc1d4a6571f98ade92d7fec100b2a8",
    columns=("problem", "answer"),
    size=49_585,
)
SOURCES = (TRAINING,)
