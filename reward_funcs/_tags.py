"""Think and answer tags: where they stand in a completion, and what is wrong with them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from reward_funcs.extract import completion_text

THINK_OPEN, THINK_CLOSE, ANSWER_OPEN, ANSWER_CLOSE = TAGS = ("<think>", "</think>", "<answer>", "</answer>")
LABELS = dict(zip(TAGS, ("think_open", "think_close", "answer_open", "answer_close"), strict=True))
TAG = re.compile(r"</?(?:think|answer)>")

# What ends a turn in the common templates: TRL decodes without it, other callers may not.
END_TOKENS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<end_of_turn>",
    "<eos>",
    "<pad>",
    "</s>",
    "<｜end▁of▁sentence｜>",
)
# Letters and symbols by their Unicode category that show nothing: Hangul fillers and the empty Braille pattern.
_INVISIBLE = frozenset("\u115f\u1160\u3164\uffa0\u2800")
# An answer may be a sign (+, ?, ∅); these are what a template writes in the place of one.
_PLACEHOLDERS = frozenset("._…·")


def without_end_tokens(text: str) -> str:
    """A text without the end-of-turn and padding tokens at its end, see `END_TOKENS`; else as it is.

    Example:

    ```python
    >>> without_end_tokens("so 4<|im_end|>")
    'so 4'

    ```
    """
    kept = end = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        token = next((token for token in END_TOKENS if text.endswith(token, 0, end)), None)
        if token is None:
            return text[:kept]
        kept = end = end - len(token)


def has_words(text: str) -> bool:
    """Whether there is a letter or digit: dots, spaces and zero-width characters are no thought."""
    return any(char.isalnum() and char not in _INVISIBLE for char in text)


def shows_answer(text: str) -> bool:
    """Whether there is a visible character other than those of an ellipsis."""
    return any(
        unicodedata.category(char)[0] in "LNPS" and char not in _INVISIBLE and char not in _PLACEHOLDERS
        for char in text
    )


def open_block(prompt: Any) -> str:
    """The `<think>` at the end of a prompt with the whitespace after it, `""` where there is none."""
    if not isinstance(prompt, str):
        if not prompt or prompt[-1].get("role") != "assistant":
            return ""
        prompt = completion_text(prompt)
    bare = prompt.rstrip()
    return THINK_OPEN + prompt[len(bare) :] if bare.endswith(THINK_OPEN) else ""


def has_reasoning_field(completion: Any) -> bool:
    """Whether `completion_text` put the block's tags there itself."""
    messages: Sequence[Any] = [completion] if isinstance(completion, Mapping) else completion
    if isinstance(messages, str) or not messages:
        return False
    message: Mapping[str, Any] = next((m for m in reversed(messages) if m.get("role", "assistant") == "assistant"), {})
    reasoning = message.get("reasoning_content") or message.get("thinking")
    return (
        isinstance(reasoning, str)
        and bool(reasoning)
        and completion_text(message).startswith(f"{THINK_OPEN}\n{reasoning}\n{THINK_CLOSE}")
    )


def tag_faults(text: str, *, require_answer: bool, allow_empty: bool) -> dict[str, str]:
    """What is wrong with each tag that the format asks for; nothing where the text is in the format."""
    matches = list(TAG.finditer(text))
    counts = Counter(match.group() for match in matches)
    spans = {match.group(): match.span() for match in matches if counts[match.group()] == 1}
    with_answer = require_answer or bool(counts[ANSWER_OPEN] or counts[ANSWER_CLOSE])
    faults = {}
    for i, tag in enumerate(TAGS if with_answer else TAGS[:2]):
        if tag not in spans:
            faults[tag] = f"{'repeated' if counts[tag] else 'missing'}_{LABELS[tag]}"
        elif any(earlier in spans and spans[earlier] > spans[tag] for earlier in TAGS[:i]):
            faults[tag] = f"misplaced_{LABELS[tag]}"
    placed = {tag: span for tag, span in spans.items() if tag not in faults}
    for tag, fault in _content_faults(text, placed, with_answer, require_answer, allow_empty).items():
        faults.setdefault(tag, fault)
    if with_answer and not require_answer:
        # only the think tags are asked for: a fault of the others falls on the end of the block before them
        answer_faults = [faults.pop(tag) for tag in (ANSWER_OPEN, ANSWER_CLOSE) if tag in faults]
        if answer_faults:
            faults.setdefault(THINK_CLOSE, answer_faults[0])
    return faults


def _content_faults(
    text: str, placed: dict[str, tuple[int, int]], with_answer: bool, require_answer: bool, allow_empty: bool
) -> dict[str, str]:
    """What is wrong with the text around and between the tags that stand in their place."""
    faults = {}

    def between(first: str | None, last: str | None) -> str | None:
        if (first and first not in placed) or (last and last not in placed):
            return None
        return text[placed[first][1] if first else 0 : placed[last][0] if last else len(text)]

    before, thought = between(None, THINK_OPEN), between(THINK_OPEN, THINK_CLOSE)
    if before is not None and before.strip():
        faults[THINK_OPEN] = "text_before_think"
    if thought is not None and not allow_empty and not has_words(thought):
        faults[THINK_OPEN] = faults[THINK_CLOSE] = "empty_think"
    if not with_answer:
        rest = between(THINK_CLOSE, None)
        if rest is not None and not shows_answer(rest):
            faults.setdefault(THINK_CLOSE, "missing_answer")
        return faults
    gap, answer, after = (
        between(THINK_CLOSE, ANSWER_OPEN),
        between(ANSWER_OPEN, ANSWER_CLOSE),
        between(ANSWER_CLOSE, None),
    )
    if require_answer and gap is not None and gap.strip():
        faults[ANSWER_OPEN] = "text_before_answer"
    if require_answer and after is not None and after.strip():
        faults[ANSWER_CLOSE] = "text_after_answer"
    if answer is not None and not shows_answer(answer):
        faults[ANSWER_OPEN] = faults[ANSWER_CLOSE] = "empty_answer"
    return faults


def has_exact_newlines(text: str, *, require_answer: bool) -> bool:
    """Whether a text without faults has its tags on lines of their own, from the first character to the last."""
    block, _, rest = text.partition(THINK_CLOSE)
    block = block.removeprefix(THINK_OPEN)
    # two characters at least: one newline cannot be the first and the last
    if not (text.startswith(THINK_OPEN) and len(block) > 1 and block[0] == block[-1] == "\n"):
        return False
    if not require_answer:
        return rest.startswith("\n")
    return rest.startswith(f"\n{ANSWER_OPEN}\n") and rest.endswith(f"\n{ANSWER_CLOSE}")
