"""NuminaMath-1.5: 896k competition and school problems, of which those with an answer that can be checked are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._maths import choice_row, labelled_letter, math_row


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Problem and answer; a multiple-choice problem whose answer is a letter becomes a row of task `choice`.

    The other multiple-choice problems stay mathematics with a value as answer. Kind, origin and subject stay in
    `extra`. Dropped: `invalid` where the source's own check of problem or solution does not say "Yes", `proof`,
    `no_answer` (`notfound` in the source), `no_choices` where the problem does not list the options,
    `disagreeing_choice` where the answer states another text than its option, `gold_in_prompt`, `figure`.
    """
    if row["problem_is_valid"] != "Yes" or row["solution_is_valid"] != "Yes":
        raise Drop("invalid")
    return kind_row(row, "numina", synthetic=row.get("synthetic") or None)


def kind_row(row: Mapping[str, Any], source: str, **extra: Any) -> Row:
    """The row of a problem whose `question_type` says which kind it is, as in NuminaMath and what was made of it."""
    kind, answer = row.get("question_type"), row["answer"]
    if kind == "proof":
        raise Drop("proof")
    known = {"subject": row.get("problem_type"), "part": row.get("source"), **extra}
    if kind == "MCQ" and isinstance(answer, str) and (letter := labelled_letter(answer)) is not None:
        return choice_row(row["problem"], answer.strip(), letter, source=source, **known)
    return math_row(row["problem"], answer, source=source, **known)


TRAINING = Source(
    name="numina",
    convert=convert,
    task="mixed",
    licence="apache-2.0",
    path="AI-MO/NuminaMath-1.5",
    revision="1b05109f9e5c1ad06c0663519502416c30b300f8",
    columns=("problem", "answer", "question_type", "problem_is_valid", "solution_is_valid"),
    optional_columns=("problem_type", "source", "synthetic"),
    size=896_215,
    note="Rows are of task math and, where options are listed, choice. Proofs and unchecked problems are dropped.",
)
SOURCES = (TRAINING,)
