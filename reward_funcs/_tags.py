"""Think and answer tags: where they stand in a completion, and what is wrong with them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from reward_funcs.extract import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN, completion_text

TAGS = (THINK_OPEN, THINK_CLOSE, ANSWER_OPEN, ANSWER_CLOSE)
LABELS = dict(zip(TAGS, ("think_open", "think_close", "answer_open", "answer_close"), strict=True))
TAG = re.compile(r"</?(?:think|answer)>")

# The same tags as a model also writes them: in capitals, with spaces, in fullwidth brackets, and <thinking>.
_LIKE_TAG = re.compile(
    r"[<\uff1c]\s{0,3}(?P<close>/?)\s{0,3}(?P<name>think|answer)(?:(?<=think)ing)?\s{0,3}[>\uff1e]", re.IGNORECASE
)

# Letters and symbols by their Unicode category that show nothing: Hangul fillers and the empty Braille pattern.
_INVISIBLE = frozenset("\u115f\u1160\u3164\uffa0\u2800")
# An answer may be a mathematical sign (+, ∅); these are what a template writes in the place of one.
_PLACEHOLDERS = frozenset("|~·⋅∙⋮⋯⋰⋱")
# What shows nothing by itself: tags, entities of spaces and dots, commands of LaTeX for form, space and dots.
_MARKUP = (
    r"</?[A-Za-z!][^<>]{0,300}>|&(?:nbsp|ensp|emsp|thinsp|zwnj|zwj|shy|hellip|mdash|ndash|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});"
    r"|\\(?:f?box(?:ed)?|m?box|text[a-z]{0,8}|math(?:bf|it|rm|sf|tt|bb|cal|frak|scr|ord)?|operatorname|emph|left|right|q?quad"
    r"|[lcdv]?dots[a-z]?|displaystyle|(?:begin|end)\s{0,3}\{[^{}]{0,40}\}|[hv]space\*?\s{0,3}\{[^{}]{0,40}\}"
    r"|[hv]?phantom\s{0,3}\{[^{}]{0,400}\}|par|newline|noindent|item|hline|null|strut)(?![A-Za-z])"
)
_SHOWN = re.compile(rf"{_MARKUP}|(?P<word>[^\W_])|(?P<sign>[^\w\s])")


def has_words(text: str) -> bool:
    """Whether there is a letter or digit: dots, spaces and zero-width characters are no thought."""
    return any(char.isalnum() and char not in _INVISIBLE for char in text)


def says_something(text: str, *, signs: bool) -> bool:
    r"""Whether there is a letter or digit outside the markup, or, with `signs`, a mathematical sign.

    Example:

    ```python
    >>> [says_something(text, signs=True) for text in ("4", "+", r"\boxed{}", "<br>", "**", "...")]
    [True, True, False, False, False, False]

    ```
    """
    for match in _SHOWN.finditer(text):
        char = match["word"] or match["sign"]
        if char is None or char in _INVISIBLE:
            continue
        if match["word"] or (signs and unicodedata.category(char) == "Sm" and char not in _PLACEHOLDERS):
            return True
    return False


def open_block(prompt: Any) -> str:
    """The `<think>` at the end of a prompt with the whitespace after it, `""` where there is none.

    Raises:
        ValueError: For a prompt that is neither a text nor a list of messages.
    """
    if prompt is None:
        return ""
    if not isinstance(prompt, str):
        if not isinstance(prompt, (list, tuple)) or not all(isinstance(message, Mapping) for message in prompt):
            raise ValueError(f"prompts must hold texts or lists of messages; one is {prompt!r:.60}")
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
    like = Counter(f"<{match['close']}{match['name'].lower()}>" for match in _LIKE_TAG.finditer(text))
    # like[tag] counts the tag itself as well: one that is written differently elsewhere does not stand once
    spans = {match.group(): match.span() for match in matches if like[match.group()] == 1}
    with_answer = require_answer or bool(like[ANSWER_OPEN] or like[ANSWER_CLOSE])
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
    if thought is not None and not allow_empty and not says_something(thought, signs=False):
        faults[THINK_OPEN] = faults[THINK_CLOSE] = "empty_think"
    if not with_answer:
        rest = between(THINK_CLOSE, None)
        if rest is not None and not says_something(rest, signs=True):
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
    if answer is not None and not says_something(answer, signs=True):
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
