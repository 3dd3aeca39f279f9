"""The one row schema of all builders, so that rows of different sources concatenate, and its validation.

Reinforcement learning rows hold `prompt`, `solution`, `task`, `source`, `source_id` and `extra`; supervised rows
`completion` (what follows `prompt`) in the place of `solution`; preference rows `chosen`, `rejected` and `margin`.
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

# What a prompt asks for, and so which reward grades it.
RL_TASKS = ("math", "choice", "code", "instruction", "judge", "countdown")
TASKS = (*RL_TASKS, "sft", "preference")
ROLES = ("system", "user", "assistant", "tool")
# Columns by kind of row, in their order.
COLUMNS = {
    "rl": ("prompt", "solution", "task", "source", "source_id", "extra"),
    "sft": ("prompt", "completion", "task", "source", "source_id", "extra"),
    "preference": ("prompt", "chosen", "rejected", "margin", "task", "source", "source_id", "extra"),
}
_MESSAGES = ("prompt", "completion", "chosen", "rejected")

Row = dict[str, Any]
Message = dict[str, str]


def kind_of(task: str) -> str:
    """`"sft"`, `"preference"` or, for every other task, `"rl"`: the key of a row's columns in `COLUMNS`."""
    return task if task in ("sft", "preference") else "rl"


def features(kind: str) -> Any:
    """`datasets.Features` of the rows of a kind (`"rl"`, `"sft"` or `"preference"`), stable over push and reload."""
    from datasets import Features, List, Value

    messages = List({"role": Value("string"), "content": Value("string")})
    types = {name: messages for name in _MESSAGES} | {"margin": Value("float64")}
    return Features({name: types.get(name, Value("string")) for name in COLUMNS[kind]})


def user(content: str) -> list[Message]:
    """A conversation of one user turn."""
    return [{"role": "user", "content": content}]


def rl_row(
    prompt: str | Sequence[Mapping[str, Any]],
    solution: str,
    *,
    task: str,
    source: str,
    source_id: object = None,
    **extra: Any,
) -> Row:
    r"""A row for reinforcement learning: a prompt and what its reward compares the completion with.

    Args:
        prompt (`str` or `list[dict]`): one user turn, or a conversation that ends with one.
        solution (`str`): a gold that the reward of `task` accepts as it is.
        task (`str`): one of `RL_TASKS`.
        source (`str`): name of the builder.
        source_id (`object`, *optional*): the source's own id; by default a hash of the prompt.
        extra (`Any`): whatever else is worth keeping, as JSON values: the answer as first written, a difficulty.
            Entries that are `None` are left out.

    Returns:
        `dict`: the columns of `COLUMNS["rl"]`.

    Example:

    ```python
    >>> row = rl_row("What is 6 * 7?", "$42$", task="math", source="mine", answer="42")
    >>> row["prompt"], row["solution"], row["source_id"], row["extra"]
    ([{'role': 'user', 'content': 'What is 6 * 7?'}], '$42$', '77828511ebf72549', '{"answer": "42"}')

    ```
    """
    turns = messages(prompt)
    return {
        "prompt": turns,
        "solution": solution,
        "task": task,
        "source": source,
        "source_id": _id(source_id, turns),
        "extra": json_text({name: value for name, value in extra.items() if value is not None}),
    }


def sft_row(
    prompt: str | Sequence[Mapping[str, Any]],
    completion: str | Sequence[Mapping[str, Any]],
    *,
    source: str,
    source_id: object = None,
    **extra: Any,
) -> Row:
    """A supervised row in TRL's prompt-completion form: the loss is on the completion; arguments as in [`rl_row`].

    Without an id of the source, that of the row is a hash of prompt and completion.
    """
    turns, reply = messages(prompt), messages(completion, "assistant")
    return {
        "prompt": turns,
        "completion": reply,
        "task": "sft",
        "source": source,
        "source_id": _id(source_id, turns, reply),
        "extra": json_text({name: value for name, value in extra.items() if value is not None}),
    }


def preference_row(
    prompt: str | Sequence[Mapping[str, Any]],
    chosen: str | Sequence[Mapping[str, Any]],
    rejected: str | Sequence[Mapping[str, Any]],
    *,
    source: str,
    margin: float = 0.0,
    source_id: object = None,
    **extra: Any,
) -> Row:
    """A comparison: the better and the worse reply to one prompt, and by how much.

    `margin` is above 0, or 0 where the source does not say: TRL's `RewardTrainer` subtracts it inside its loss, so that
    0 is the loss without margins, and cannot make a tensor of nulls. Without an id of the source, that of the row is a
    hash of prompt and both replies, so that two pairs of one prompt have two.
    """
    turns, better, worse = messages(prompt), messages(chosen, "assistant"), messages(rejected, "assistant")
    return {
        "prompt": turns,
        "chosen": better,
        "rejected": worse,
        "margin": float(margin),
        "task": "preference",
        "source": source,
        "source_id": _id(source_id, turns, better, worse),
        "extra": json_text({name: value for name, value in extra.items() if value is not None}),
    }


def messages(turns: str | Sequence[Mapping[str, Any]], role: str = "user") -> list[Message]:
    """Message dicts with `role` and `content` alone; a text is one turn of `role`."""
    if isinstance(turns, str):
        return [{"role": role, "content": turns}]
    return [{"role": turn["role"], "content": turn["content"]} for turn in turns]


def json_text(value: Any) -> str:
    """JSON on one line with text as it is, the form of `extra` and of golds that are records.

    Half of a surrogate pair, which JSON can escape and a table of text cannot hold, stays escaped.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False)
    return text


def prompt_text(row: Mapping[str, Any]) -> str:
    """What the user says in a row's prompt, turns joined by newlines: what duplicates are told by."""
    return "\n".join(turn["content"] for turn in row["prompt"] if turn["role"] == "user")


def alnum(text: str) -> str:
    """Letters and digits of a text in lower case (NFKC), all else dropped: equal for texts that differ in spacing."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def text_hash(text: str) -> str:
    """First 16 hex digits of the SHA-1 of `alnum(text)`; of the text itself where it holds no letter or digit."""
    return hashlib.sha1((alnum(text) or text).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def prompt_id(text: str) -> str:
    """16 hex digits that a prompt is known by where its source has no id: signs count here, runs of spaces do not."""
    spaced = " ".join(unicodedata.normalize("NFKC", text).split())
    return hashlib.sha1(spaced.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _id(source_id: object, *parts: Sequence[Message]) -> str:
    given = "" if source_id is None else str(source_id)
    if given.strip():
        return given
    # no white space, which the hash is blind to: "a" and "b c" are not "a b" and "c"
    return prompt_id("\0".join("\n".join(turn["content"] for turn in part).strip() for part in parts))


def row_errors(row: Mapping[str, Any]) -> list[str]:
    """What is wrong with a row, one sentence each; empty for a row that a trainer and its reward can use.

    Args:
        row (`Mapping`): a row as a builder returns it.

    Example:

    ```python
    >>> row_errors({"prompt": [], "solution": " ", "task": "math", "source": "a", "source_id": "b", "extra": "{}"})
    ['prompt is empty', 'solution is empty']

    ```
    """
    task = row.get("task")
    if task not in TASKS:
        return [f"task={task!r} is none of {', '.join(TASKS)}"]
    columns = COLUMNS[kind_of(task)]
    errors = [f"column {name!r} is missing" for name in columns if name not in row]
    errors += [f"column {name!r} does not belong to a row of task {task!r}" for name in row if name not in columns]
    if errors:
        return errors
    errors += _turn_errors("prompt", row["prompt"], "user")
    for name in columns:
        value = row[name]
        if name in _MESSAGES[1:]:
            errors += _turn_errors(name, value, "assistant")
        elif name == "margin":
            if not (isinstance(value, float) and 0 <= value < math.inf):
                errors.append(f"margin={value!r} is no finite number of 0 or more")
        elif name != "prompt" and not isinstance(value, str):
            errors.append(f"{name} is {type(value).__name__}, not text")
        elif name in ("solution", "source", "source_id") and not value.strip():
            errors.append(f"{name} is empty")
    if row.get("chosen") is not None and row["chosen"] == row["rejected"]:
        errors.append("chosen and rejected are the same")
    return errors + _extra_errors(row["extra"])


def _turn_errors(name: str, turns: Any, last_role: str) -> list[str]:
    if not isinstance(turns, list) or not turns:
        return [f"{name} is empty" if isinstance(turns, list) else f"{name} is {type(turns).__name__}, not a list"]
    for turn in turns:
        if not isinstance(turn, Mapping) or set(turn) != {"role", "content"} or turn["role"] not in ROLES:
            return [f"{name} holds a turn that is no dict of a role ({', '.join(ROLES)}) and a content"]
        if not isinstance(turn["content"], str):
            return [f"{name} holds a turn whose content is {type(turn['content']).__name__}, not text"]
    if turns[-1]["role"] != last_role:
        return [f"{name} ends with a turn of {turns[-1]['role']!r}, not of {last_role!r}"]
    if not turns[-1]["content"].strip():
        return [f"{name} ends with an empty turn"]
    return []


def _extra_errors(extra: Any) -> list[str]:
    if not isinstance(extra, str):
        return []
    try:
        value = json.loads(extra)
    except ValueError:
        return ["extra is no JSON"]
    return [] if isinstance(value, dict) else ["extra is JSON, but no object"]
