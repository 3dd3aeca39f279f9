"""Minerva: 272 undergraduate problems of physics, chemistry and mathematics with a numeric or symbolic answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row
from datasets_builders.source import Source, conversion
from datasets_builders.sources._maths import math_row


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    r"""Question and answer; `6.6e-34` becomes a product with a power of ten, and the list that some copies hold one
    text.
    """
    problem = row.get("question")
    return math_row(row["problem"] if problem is None else problem, _answer(row["answer"]), source="minerva")


def _answer(answer: Any) -> Any:
    r"""The answer itself where a copy has `["9.6\n"]`, as a list or as its JSON text."""
    if isinstance(answer, str) and answer.lstrip().startswith('["'):
        try:
            answer = json.loads(answer)
        except ValueError:
            return answer
    return answer[0] if isinstance(answer, list) and len(answer) == 1 else answer


EVALUATION = Source(
    name="minerva",
    convert=convert,
    task="math",
    licence="unknown",
    path="math-ai/minervamath",
    revision="ee46ddc498933b1977577953250ca5c66be64f96",
    split="test",
    columns=("answer",),
    optional_columns=("question", "problem"),
    size=272,
    evaluation=True,
    note="The problems are of MIT OpenCourseWare.",
)
SOURCES = (EVALUATION,)
