"""HH-RLHF: pairs of dialogues of which people preferred one, for being helpful or for being harmless."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Message, Row, preference_row
from datasets_builders.source import Drop, Source, conversion

_MARK = re.compile(r"(?:^|\n\n)(Human|Assistant):(?=\s|$)")
_ROLE = {"Human": "user", "Assistant": "assistant"}


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Both dialogues are read turn by turn; all turns but the last must be the same, and are the prompt.

    TRL's script takes the longest run of equal characters instead, which cuts within a reply and fails where one
    dialogue begins with the other. The data holds no strength of a preference, so `margin` is 0. Dropped: `roles`
    (turns that do not alternate, or no reply at the end), `different_prompts`, `no_prompt`, `empty_reply`,
    `same_reply`.
    """
    chosen, rejected = _turns(row["chosen"]), _turns(row["rejected"])
    if chosen[:-1] != rejected[:-1]:
        raise Drop("different_prompts")
    if not chosen[-2]["content"]:
        raise Drop("no_prompt")
    if not chosen[-1]["content"] or not rejected[-1]["content"]:
        raise Drop("empty_reply")
    if chosen[-1] == rejected[-1]:
        raise Drop("same_reply")
    return preference_row(chosen[:-1], chosen[-1:], rejected[-1:], source="hh_rlhf")


def _turns(dialogue: str) -> list[Message]:
    before, *marked = _MARK.split(dialogue)
    turns = [
        {"role": _ROLE[mark], "content": text.strip()} for mark, text in zip(marked[::2], marked[1::2], strict=True)
    ]
    alternate = all(turn["role"] == ("user", "assistant")[place % 2] for place, turn in enumerate(turns))
    if before.strip() or not turns or len(turns) % 2 or not alternate:
        raise Drop("roles")
    return turns


TRAINING = Source(
    name="hh_rlhf",
    convert=convert,
    task="preference",
    licence="mit",
    path="Anthropic/hh-rlhf",
    folders=("helpful-base", "helpful-online", "helpful-rejection-sampled", "harmless-base"),
    splits={"train": ("train",), "test": ("test",)},
    revision="09be8c5bbc57cb3887f3a9732ad6aa7ec602a1fa",
    columns=("chosen", "rejected"),
    size=160_800,
    note="Holds offensive text; meant for preference models, not for supervised training.",
)
SOURCES = (TRAINING,)
