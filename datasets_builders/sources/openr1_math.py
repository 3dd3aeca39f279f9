"""OpenR1-Math-220k: problems of NuminaMath-1.5 with two to four solutions of DeepSeek-R1, each checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row, sft_row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._turns import filled
from datasets_builders.sources.numina import kind_row


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Problem and answer, as in [`numina`](numina); `difficulty` is the share of right solutions of DeepSeek-R1.

    Solutions were checked with Math-Verify. Rows with none right that a model checked as well (`correctness_llama`)
    have no difficulty, for Math-Verify could not read their answer.
    """
    checks = [check for check in row.get("correctness_math_verify") or () if check is not None]
    unread = not any(checks) and row.get("correctness_llama") is not None
    share = sum(checks) / len(checks) if checks and not unread else None
    return kind_row(row, "openr1_math", source_id=row.get("uuid"), difficulty=share)


@conversion
def convert_sft(row: Mapping[str, Any]) -> Row:
    """The problem and the first solution that Math-Verify found right and that came to its end.

    A solution is complete where `is_reasoning_complete` says so and its `finish_reasons` is not `length`. Dropped:
    `no_prompt`, `no_verified_solution`.
    """
    checks = row["correctness_math_verify"] or ()
    complete = row.get("is_reasoning_complete") or [True] * len(checks)
    reasons = row.get("finish_reasons") or [None] * len(checks)
    for text, right, whole, reason in zip(row["generations"] or (), checks, complete, reasons, strict=True):
        if right and whole and reason != "length" and text and text.strip():
            return sft_row(
                filled(row["problem"], "no_prompt"),
                text.strip(),
                source="openr1_math_sft",
                source_id=row.get("uuid"),
                answer=row.get("answer"),
                subject=row.get("problem_type"),
                part=row.get("source"),
            )
    raise Drop("no_verified_solution")


TRAINING = Source(
    name="openr1_math",
    convert=convert,
    task="mixed",
    licence="apache-2.0",
    path="open-r1/OpenR1-Math-220k",
    config="default",
    revision="e4e141ec9dea9f8326f4d347be56105859b2bd68",
    columns=("problem", "answer"),
    optional_columns=(
        "uuid",
        "question_type",
        "problem_type",
        "source",
        "correctness_math_verify",
        "correctness_llama",
    ),
    size=93_733,
    note='The configuration "extended" has 131,396 easier problems.',
)
SFT = Source(
    name="openr1_math_sft",
    convert=convert_sft,
    task="sft",
    licence="apache-2.0",
    path="open-r1/OpenR1-Math-220k",
    config="default",
    revision="e4e141ec9dea9f8326f4d347be56105859b2bd68",
    columns=("problem", "generations", "correctness_math_verify"),
    optional_columns=("uuid", "answer", "problem_type", "source", "is_reasoning_complete", "finish_reasons"),
    size=93_733,
    streaming=True,
    note="Solutions are those of DeepSeek-R1 with their reasoning in <think> tags, several thousand tokens each.",
)
SOURCES = (TRAINING, SFT)
