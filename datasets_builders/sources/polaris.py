"""Polaris: 53k problems of DeepScaleR and AReaL, each with the pass rate of a 7B reasoning model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.golds import pass_rate
from datasets_builders.schema import Row
from datasets_builders.source import Source, conversion
from datasets_builders.sources._maths import math_row


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Problem and answer; `difficulty` is the pass rate of DeepSeek-R1-Distill-Qwen-7B, written as `3/8`."""
    return math_row(row["problem"], row["answer"], source="polaris", difficulty=pass_rate(row.get("difficulty")))


TRAINING = Source(
    name="polaris",
    convert=convert,
    task="math",
    licence="apache-2.0",
    path="POLARIS-Project/Polaris-Dataset-53K",
    revision="296f8e34132e63f4a1d70e0dcc8bddebb43f03e4",
    columns=("problem", "answer"),
    optional_columns=("difficulty",),
    size=53_000,
)
SOURCES = (TRAINING,)
