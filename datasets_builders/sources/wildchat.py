"""WildChat-4.8M: what people asked chat models, with the replies they got."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row, rl_row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._turns import checked_turns, filled

LANGUAGE = "English"


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The first exchange: the prompt is all before the first reply, which is the reference for a judge, not a gold.

    Later turns answer that reply and would make no prompt of their own. `extra` keeps `model`, who replied. Dropped:
    `toxic`, `redacted` (whatever is not marked as free of it, in the row or in one of the turns used), `language`
    (other than English, or unknown), `no_prompt`, `no_reply`, `roles`.
    """
    for mark in ("toxic", "redacted"):
        if row[mark] is not False:
            raise Drop(mark)
    if row["language"] != LANGUAGE:
        raise Drop("language")
    turns = row["conversation"]
    end = next((place for place, turn in enumerate(turns) if turn["role"] == "assistant"), None)
    if end is None:
        raise Drop("no_reply")
    for mark in ("toxic", "redacted"):
        if any(turn.get(mark) for turn in turns[: end + 1]):
            raise Drop(mark)
    used = checked_turns(turns[: end + 1])
    if not end or used[end - 1]["role"] != "user" or not used[end - 1]["content"].strip():
        raise Drop("no_prompt")
    return rl_row(
        used[:end],
        filled(used[end]["content"], "no_reply"),
        task="judge",
        source="wildchat",
        source_id=row["conversation_hash"],
        model=row.get("model"),
    )


TRAINING = Source(
    name="wildchat",
    convert=convert,
    task="judge",
    licence="odc-by",
    path="allenai/WildChat-4.8M",
    revision="c827c6df8fcf008219ffaffa4d1dd77491099367",
    columns=("conversation_hash", "conversation", "language", "toxic", "redacted"),
    optional_columns=("model",),
    size=3_200_000,
    streaming=True,
    note="No answer can be checked: the reward is a judge's. The size is that of the card, about 3.2 million.",
)
SOURCES = (TRAINING,)
