"""DAPO-Math-17k: competition problems rewritten to have an integer for an answer, in English and Chinese."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row
from datasets_builders.source import Source, conversion
from datasets_builders.sources._maths import math_row
from datasets_builders.sources._turns import asked_and_replied, filled

# The wording around each problem asks for an answer that accuracy_reward does not read.
_BEFORE = re.compile(r"\ASolve the following math problem step by step\.[^\n]{0,300}?Answer: \$Answer[^\n]{0,300}\n\s*")
_AFTER = 'Remember to put your answer on its own line after "Answer:".'


def _problem(text: str) -> str:
    problem = _BEFORE.sub("", filled(text, "no_prompt"), count=1)
    before = problem.removesuffix(_AFTER)
    bare = before.rstrip()
    return (bare if "\n" in before[len(bare) :] else problem).strip()


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Problem and answer of the deduplicated form, whose prompt is a text without the instruction."""
    return math_row(
        _problem(row["prompt"]),
        row["solution"],
        source="dapo_math",
        source_id=_index(row),
        part=row.get("data_source"),
    )


@conversion
def convert_raw(row: Mapping[str, Any]) -> Row:
    """Problem and answer of the form as first published: a message with the instruction around the problem."""
    prompt, _ = asked_and_replied(row["prompt"])
    return math_row(
        _problem(prompt[-1]["content"]),
        row["reward_model"]["ground_truth"],
        source="dapo_math_raw",
        source_id=_index(row),
        part=row.get("data_source"),
    )


def _index(row: Mapping[str, Any]) -> Any:
    return (row.get("extra_info") or {}).get("index")


PROCESSED = Source(
    name="dapo_math",
    convert=convert,
    task="math",
    licence="apache-2.0",
    path="open-r1/DAPO-Math-17k-Processed",
    config="all",
    revision="31dd309567e3da778038cc87d868b6097a3ccf68",
    columns=("prompt", "solution"),
    optional_columns=("extra_info", "data_source"),
    size=17_398,
    note=(
        "The card of this form states no licence; Apache-2.0 is that of BytedTsinghua-SIA/DAPO-Math-17k, of which it "
        'is made. The configurations "en" (14,116 rows) and "cn" hold one language.'
    ),
)
RAW = Source(
    name="dapo_math_raw",
    convert=convert_raw,
    task="math",
    licence="apache-2.0",
    path="BytedTsinghua-SIA/DAPO-Math-17k",
    revision="65877096c24ffa7abc4e4fa5edb95cf3413a5674",
    columns=("prompt", "reward_model"),
    optional_columns=("extra_info", "data_source"),
    size=1_791_700,
    note="About a hundred copies of each of 17,398 problems: dapo_math is the same without the copies.",
)
SOURCES = (PROCESSED, RAW)
