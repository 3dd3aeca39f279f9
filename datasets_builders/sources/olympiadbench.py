"""OlympiadBench: the 674 open-ended English text-only competition problems of mathematics with an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.golds import math_gold, written
from datasets_builders.schema import Row
from datasets_builders.source import Source, conversion
from datasets_builders.sources._maths import math_row
from datasets_builders.sources._turns import filled


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Question, behind its context where it has one, and all its answers in one text joined by commas.

    `extra` keeps `unit`, `error` (the tolerance that the authors allow, one row), `multiple` (whether there are several
    answers), `answer_type` and `subject`.
    """
    context = (row.get("context") or "").strip()
    question = filled(row["question"], "no_prompt")
    answers = row["final_answer"] or [None]
    several = bool(row.get("is_multiple_answer"))
    return math_row(
        f"{context}\n\n{question}" if context else question,
        written(answers),
        gold=math_gold(answers if len(answers) > 1 else answers[0], several=several),
        source="olympiadbench",
        source_id=row.get("id"),
        unit=row.get("unit"),
        error=row.get("error"),
        multiple=several or None,
        answer_type=row.get("answer_type"),
        subject=row.get("subfield"),
    )


EVALUATION = Source(
    name="olympiadbench",
    convert=convert,
    task="math",
    licence="apache-2.0",
    path="Hothan/OlympiadBench",
    config="OE_TO_maths_en_COMP",
    split="train",
    revision="91184b52131e7fc9455fef848035173aea8cc01a",
    columns=("question", "final_answer"),
    optional_columns=("id", "context", "is_multiple_answer", "unit", "error", "answer_type", "subfield"),
    size=674,
    evaluation=True,
    note="accuracy_reward compares exactly; numeric_reward takes abs_tol for the row with an error.",
)
SOURCES = (EVALUATION,)
