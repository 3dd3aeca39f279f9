"""The texts of prompts, of which one that holds none is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ASKED = ("system", "user")


def user_texts(prompts: Iterable[Any], where: str) -> list[str]:
    """What the user says in each prompt: all of a text, the user's turns of a conversation, joined by newlines.

    Args:
        prompts (`Iterable[str | list[dict]]`): prompts of rows.
        where (`str`): what reads them, for messages.

    Raises:
        ValueError: For a prompt that is neither a text nor turns with texts.

    Example:

    ```python
    >>> user_texts(["a", [{"role": "system", "content": "b"}, {"role": "user", "content": "c"}]], "a check")
    ['a', 'c']

    ```
    """
    return [_text(prompt, ("user",), where) for prompt in prompts]


def asked_texts(prompts: Iterable[Any], where: str) -> list[str]:
    """[`user_texts`] with the system's turns, where problems may stand as well."""
    return [_text(prompt, ASKED, where) for prompt in prompts]


def _text(prompt: Any, roles: Sequence[str], where: str) -> str:
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, Sequence):
        raise ValueError(
            f"{where}: prompt={prompt!r:.60} of a row must be a text or a list of turns; leave such rows out, or build "
            "them with datasets_builders.build"
        )
    return "\n".join(_content(turn, where) for turn in prompt if _role(turn, where) in roles)


def _role(turn: Any, where: str) -> Any:
    if not isinstance(turn, Mapping) or "role" not in turn or "content" not in turn:
        raise ValueError(f"{where}: {turn!r:.60} in a prompt must be a turn with 'role' and 'content'; correct the row")
    return turn["role"]


def _content(turn: Mapping[str, Any], where: str) -> str:
    content = turn["content"]
    if not isinstance(content, str):
        raise ValueError(
            f"{where}: content={content!r:.60} of a turn in a prompt must be a text; leave such rows out, or give text"
        )
    return content
