"""What is asked of a model and what it answers: requests with their seeds, completions, and batches of requests.

A request carries its own seed, so that what is drawn for it depends neither on the requests beside it nor on the number
of processes; batches are planned from the requests alone. Importing this module loads the standard library.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trl_ext.errors import UserError

# The same in the callback and in the command: equal batches are what makes their completions equal to the last bit.
DEFAULT_BATCH_SIZE = 16
# Far below it logits divided by the temperature leave the range of float32: neither a sample nor greedy comes out.
MIN_TEMPERATURE = 1e-6


MAX_SEED = 2**63


Message = Mapping[str, Any]


Prompt = str | list[dict[str, Any]]


@dataclass(frozen=True)
class SamplingParams:
    """How completions are drawn.

    Args:
        temperature (`float`): 0 takes the likeliest token each time (greedy); 1 samples from the model's distribution;
            others are at least 1e-6.
        top_p (`float`): share of the probability that is kept, in (0, 1]; 1 keeps all.
        top_k (`int`): number of tokens that are kept; 0 keeps all.
        max_new_tokens (`int`): longest completion, in tokens.
        seed (`int`): the seed of the whole evaluation, from which `sample_seed` makes one for each completion.

    Raises:
        UserError: For a value out of range.

    Example:

    ```python
    >>> SamplingParams(temperature=0.6, top_p=0.95).is_greedy
    False

    ```
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        if not (_is_number(self.temperature) and 0 <= self.temperature < math.inf):
            raise UserError(f"temperature={self.temperature!r} must be a number from 0 (greedy); 1.0 is usual.")
        if 0 < self.temperature < MIN_TEMPERATURE:
            raise UserError(
                f"temperature={self.temperature!r} is too small to draw with; set 0 (greedy), or {MIN_TEMPERATURE:g} "
                "and more."
            )
        if not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            raise UserError(f"top_p={self.top_p!r} must be a share in (0, 1]; 1.0 keeps every token.")
        for name, least in (("top_k", 0), ("max_new_tokens", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UserError(f"{name}={value!r} must be a whole number from {least}.")

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken each time, so that every sample of a prompt is the same."""
        return self.temperature == 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True)
class Request:
    """One completion that is wanted.

    Args:
        key (`str`): name of the problem and of the sample, for messages and records.
        prompt (`list[dict]` or `str`): a conversation, which gets the model's chat template, or plain text.
        seed (`int`): what the completion is drawn with, in [0, 2**63); see `sample_seed`.
        chat_template_kwargs (`Mapping`, *optional*): arguments of the chat template for this prompt, before those of
            the generator.
    """

    key: str
    prompt: Prompt
    seed: int
    chat_template_kwargs: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Completion:
    """What came back for a request.

    Args:
        text (`str`): the completion without special tokens.
        num_tokens (`int`): tokens that were generated, the end token among them.
        is_truncated (`bool`): whether the length limit cut it off before it ended by itself.
    """

    text: str
    num_tokens: int
    is_truncated: bool


class Generator(Protocol):
    """What makes completions; any object with these two methods will do."""

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """One completion for each request of one batch, in order."""
        ...

    def describe(self) -> dict[str, Any]:
        """What made the completions, as JSON: backend, model, adapter, dtype, quantization, versions."""
        ...


def sample_seed(seed: int, problem_key: str, sample: int) -> int:
    """Seed of one completion: a hash of the three, the same on every machine.

    Args:
        seed (`int`): seed of the evaluation.
        problem_key (`str`): the problem.
        sample (`int`): which of its completions, from 0.

    Returns:
        `int`: in [0, 2**63).

    Example:

    ```python
    >>> sample_seed(0, "aime/1", 0), sample_seed(0, "aime/1", 1)
    (8927800065531840891, 5071073825992569657)

    ```
    """
    text = json.dumps([seed, problem_key, sample])
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % MAX_SEED


def problem_key(row: Mapping[str, Any], index: int = 0) -> str:
    """Name of a row's problem that does not change when rows are added, dropped or sorted.

    Args:
        row (`Mapping`): a row with `prompt`, and `source` and `source_id` where it comes from a builder.
        index (`int`): place of the row in its set, for the message about a row without a prompt.

    Returns:
        `str`: `"source/source_id"`, else a hash of the prompt. Rows may share it; `problem_keys` tells them apart.

    Raises:
        UserError: If the row's prompt is neither text nor a list of messages.

    Example:

    ```python
    >>> problem_key({"prompt": "2 + 2 =", "source": "mine", "source_id": "7"})
    'mine/7'

    ```
    """
    prompt = checked_prompt(row, index)
    if row.get("source") and row.get("source_id"):
        return f"{row['source']}/{row['source_id']}"
    text = prompt if isinstance(prompt, str) else json.dumps([[m.get("role"), m.get("content")] for m in prompt])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def problem_keys(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """One different key for each of the N rows: `problem_key`, and `"#2"`, `"#3"`, ... behind those that come again.

    Example:

    ```python
    >>> problem_keys([{"prompt": "a", "source": "s", "source_id": "1"}] * 2)
    ['s/1', 's/1#2']

    ```
    """
    seen: Counter[str] = Counter()
    keys: dict[str, None] = {}
    for index, row in enumerate(rows):
        base = problem_key(row, index)
        seen[base] += 1
        key = base if seen[base] == 1 else f"{base}#{seen[base]}"
        while key in keys:  # an id of the source may itself look like a key with a number
            seen[base] += 1
            key = f"{base}#{seen[base]}"
        keys[key] = None
    return list(keys)


def checked_prompt(row: Mapping[str, Any], index: int = 0) -> Prompt:
    """The row's prompt: text, or messages as plain dictionaries without the empty fields that a table adds.

    Raises:
        UserError: If it is neither, or a message has neither content nor tool calls.
    """
    prompt = row.get("prompt")
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, Sequence) and prompt and all(isinstance(m, Mapping) and "role" in m for m in prompt):
        messages = [{name: value for name, value in message.items() if value is not None} for message in prompt]
        for place, message in enumerate(messages):
            if "content" not in message and "tool_calls" not in message:
                raise UserError(f"row {index}: message {place} of the prompt has no content; give it a text.")
        return messages
    raise UserError(
        f"row {index}: prompt={prompt!r:.60} must be a text or a list of messages {{'role', 'content'}}; the row has "
        f"the columns {', '.join(map(str, row)) or 'none'}."
    )


def template_arguments(row: Mapping[str, Any], index: int = 0) -> dict[str, Any] | None:
    """Arguments of the chat template in the row's column `chat_template_kwargs`, as TRL reads it; None for none.

    Raises:
        UserError: If the column holds anything but a mapping.
    """
    given = row.get("chat_template_kwargs")
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise UserError(
            f"row {index}: chat_template_kwargs={given!r:.60} must be a mapping of arguments of the chat template, "
            "such as {'enable_thinking': False}; give one, or leave the column out."
        )
    # a table gives every row the names of all rows
    return {name: value for name, value in given.items() if value is not None} or None


def build_requests(rows: Sequence[Mapping[str, Any]], *, num_samples: int = 1, seed: int = 0) -> list[Request]:
    """The requests of P rows, `num_samples` each, those of one row together.

    Args:
        rows (`Sequence[Mapping]`): P rows.
        num_samples (`int`): completions of each.
        seed (`int`): seed of the evaluation.

    Returns:
        `list[Request]`: P * num_samples requests; request `p * num_samples + i` is sample i of row p, and its key is
        the problem's key, a colon and i.
    """
    return [
        Request(
            f"{key}:{sample}",
            checked_prompt(row, index),
            sample_seed(seed, key, sample),
            template_arguments(row, index),
        )
        for index, (row, key) in enumerate(zip(rows, problem_keys(rows), strict=True))
        for sample in range(num_samples)
    ]


def plan_batches(requests: Sequence[Request], batch_size: int) -> list[list[Request]]:
    """The requests in batches of prompts of about one length, the longest first.

    The plan depends on the requests and their order alone, so that one process and several, and a run that is resumed,
    generate the same batches. The longest come first so that too large a batch fails at once.

    Args:
        requests (`Sequence[Request]`): N requests.
        batch_size (`int`): requests of a batch; the last one may have fewer.

    Returns:
        `list[list[Request]]`: every request once. Those of equal length keep their order.

    Raises:
        UserError: If `batch_size` is no whole number from 1.

    Example:

    ```python
    >>> batches = plan_batches([Request("a", "1", 0), Request("b", "12345", 0), Request("c", "123", 0)], 2)
    >>> [[request.key for request in batch] for batch in batches]
    [['b', 'c'], ['a']]

    ```
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise UserError(f"batch_size={batch_size!r} must be a whole number from 1; {DEFAULT_BATCH_SIZE} is usual.")
    ordered = sorted(requests, key=lambda request: -_num_characters(request.prompt))
    return [ordered[start : start + batch_size] for start in range(0, len(ordered), batch_size)]


def _num_characters(prompt: Prompt) -> int:
    if isinstance(prompt, str):
        return len(prompt)
    return sum(len(c if isinstance(c := message.get("content"), str) else str(c)) for message in prompt)
