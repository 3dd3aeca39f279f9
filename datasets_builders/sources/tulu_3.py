"""Tulu 3 SFT mixture: conversations of 18 sources, for a judge with a reference reply or for supervised training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Message, Row, rl_row, sft_row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._turns import asked_and_replied, reply

# Parts whose licence forbids commercial use: No Robots is CC-BY-NC-4.0.
NONCOMMERCIAL_PARTS = ("no_robots",)


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The conversation up to the last user turn; the reply behind it is the reference for a judge, not a gold.

    `extra` keeps `part`, the source within the mixture. Dropped: `noncommercial` (the part No Robots), `no_prompt`,
    `no_reply`, `roles`.
    """
    prompt, replies = _turns(row)
    return rl_row(prompt, reply(replies), task="judge", source="tulu_3", source_id=row["id"], part=row["source"])


@conversion
def convert_sft(row: Mapping[str, Any]) -> Row:
    """The same rows for supervised training: the completion is what follows the last user turn."""
    prompt, replies = _turns(row)
    reply(replies)
    return sft_row(prompt, replies, source="tulu_3_sft", source_id=row["id"], part=row["source"])


def _turns(row: Mapping[str, Any]) -> tuple[list[Message], list[Message]]:
    if any(part in row["source"].lower() for part in NONCOMMERCIAL_PARTS):
        raise Drop("noncommercial")
    return asked_and_replied(row["messages"])


_NOTE = "The part No Robots (CC-BY-NC-4.0, 9,500 rows) is dropped; other parts keep their own licences."
TRAINING = Source(
    name="tulu_3",
    convert=convert,
    task="judge",
    licence="odc-by",
    path="allenai/tulu-3-sft-mixture",
    revision="b14afda60f1bbebe55d5d2fa1e4df5042f97f8be",
    columns=("id", "messages", "source"),
    size=939_343,
    streaming=True,
    note=f"No answer can be checked: the reward is a judge's. {_NOTE}",
)
SUPERVISED = Source(
    name="tulu_3_sft",
    convert=convert_sft,
    task="sft",
    licence="odc-by",
    path="allenai/tulu-3-sft-mixture",
    revision="b14afda60f1bbebe55d5d2fa1e4df5042f97f8be",
    columns=("id", "messages", "source"),
    size=939_343,
    streaming=True,
    note=_NOTE,
)
SOURCES = (TRAINING, SUPERVISED)
