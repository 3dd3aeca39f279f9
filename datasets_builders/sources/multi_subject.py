"""Multi-subject RLVR: examination questions of many subjects with a short free-text answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.golds import written
from datasets_builders.schema import Row, rl_row
from datasets_builders.source import Source, conversion
from datasets_builders.sources._turns import asked_and_replied, filled


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Question and answer; the system turn, which asks for the words "Therefore, the answer is", is left out.

    The answer is text for a judge, without dollars; the subject stays in `extra` where it is there. Dropped:
    `no_prompt`, `no_answer`.
    """
    prompt, _ = asked_and_replied(row["query"])
    answer = filled(written(row["label"]), "no_answer")
    turns = [turn for turn in prompt if turn["role"] != "system"]
    turns[-1] = {"role": "user", "content": turns[-1]["content"].strip()}
    return rl_row(
        turns, answer, task="judge", source="multi_subject", answer=answer, subject=row.get("subject") or None
    )


TRAINING = Source(
    name="multi_subject",
    convert=convert,
    task="judge",
    licence="apache-2.0",
    path="virtuoussy/Multi-subject-RLVR",
    pin_at_first_read=True,
    columns=("query", "label"),
    optional_columns=("subject",),
    note="Answers are free text: they need a judge, or exact_match_reward where that is strict enough.",
)
SOURCES = (TRAINING,)
