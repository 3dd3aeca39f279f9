"""KlearReasoner-MathSub-30K: problems whose answer most of 16 attempts of DeepSeek-R1 agree with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row
from datasets_builders.source import Source, conversion
from datasets_builders.sources._maths import math_row
from datasets_builders.sources._turns import asked_and_replied


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Problem and answer; where the problem lists options (a), (b), (c), the answer is the value and not the letter."""
    prompt, _ = asked_and_replied(row["prompt"])
    return math_row(
        prompt[-1]["content"],
        row["reward_model"]["ground_truth"],
        source="klear_math",
        source_id=row.get("__index_level_0__"),
    )


TRAINING = Source(
    name="klear_math",
    convert=convert,
    task="math",
    licence="apache-2.0",
    path="Kwai-Klear/KlearReasoner-MathSub-30K",
    pin_at_first_read=True,
    columns=("prompt", "reward_model"),
    optional_columns=("__index_level_0__",),
    size=30_000,
)
SOURCES = (TRAINING,)
