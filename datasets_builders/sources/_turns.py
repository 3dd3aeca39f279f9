"""Conversations as sources hold them: what was asked, and what was replied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from datasets_builders.schema import ROLES, Message
from datasets_builders.source import Drop


def checked_turns(turns: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Turns with `role` and `content` alone.

    Raises:
        Drop: `roles` for a role that the schema does not know, `malformed` for a content that is no text.
    """
    if any(turn["role"] not in ROLES for turn in turns):
        raise Drop("roles")
    if not all(isinstance(turn["content"], str) for turn in turns):
        raise Drop("malformed")
    return [{"role": turn["role"], "content": turn["content"]} for turn in turns]


def asked_and_replied(turns: Sequence[Mapping[str, Any]]) -> tuple[list[Message], list[Message]]:
    """The turns up to the last one of the user, and those behind it, which may be none.

    Raises:
        Drop: `no_prompt` where the user says nothing; see [`checked_turns`] for the others.
    """
    messages = checked_turns(turns)
    places = [place for place, turn in enumerate(messages) if turn["role"] == "user"]
    if not places or not messages[places[-1]]["content"].strip():
        raise Drop("no_prompt")
    return messages[: places[-1] + 1], messages[places[-1] + 1 :]


def reply(turns: Sequence[Message]) -> str:
    """What the assistant says in the last of some turns.

    Raises:
        Drop: `no_reply` where there is no such turn, or an empty one.
    """
    if not turns or turns[-1]["role"] != "assistant" or not turns[-1]["content"].strip():
        raise Drop("no_reply")
    return turns[-1]["content"]


def filled(text: Any, reason: str) -> str:
    """A text without the white space around it.

    Raises:
        Drop: `reason` for one that is null or empty.
    """
    if text is None or not text.strip():
        raise Drop(reason)
    stripped: str = text.strip()
    return stripped
