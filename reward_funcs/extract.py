"""Where the answer stands: the text of a completion, and the parts of it that state a result.

Every function here is linear in the length of the text and backtracks nowhere, whatever a model writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"


def completion_text(completion: Any) -> str:
    """The text of a completion in any of the shapes that TRL passes.

    A list of messages counts as its last assistant message, so tool calls and tool results before it are not read; a
    list of content blocks as its text blocks. Reasoning that the chat template put in a field of its own
    (`reasoning_content`, `thinking`) is put back in front, in `<think>` tags.

    Args:
        completion (`str | list[dict] | dict | None`): a text, a message, or a list of messages.

    Returns:
        `str`: the text, `""` where there is none.

    Raises:
        TypeError: For any other type.

    Example:

    ```python
    >>> completion_text("4")
    '4'
    >>> completion_text([{"role": "assistant", "content": [{"type": "text", "text": "4"}]}])
    '4'

    ```
    """
    if isinstance(completion, str):
        return completion
    if completion is None:
        return ""
    if isinstance(completion, Mapping):
        return _message_text(completion)
    if isinstance(completion, Sequence) and not isinstance(completion, (bytes, bytearray)):
        # a message without a role is what a bare {"content": ...} of a test or an old script looks like
        for message in reversed(completion):
            if not isinstance(message, Mapping):
                break
            if message.get("role", "assistant") == "assistant":
                return _message_text(message)
        else:
            return ""
    raise TypeError(
        f"a completion must be a text or a list of messages {{'role', 'content'}}, not {type(completion).__name__}: "
        f"{completion!r:.60}"
    )


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if content is None:
        text = ""
    elif isinstance(content, str):
        text = content
    elif isinstance(content, Sequence):
        text = "".join(_block_text(block) for block in content)
    else:
        raise TypeError(f"a message's content must be a text or a list of blocks, not {type(content).__name__}")
    # two names for one thing in the chat templates there are
    reasoning = message.get("reasoning_content") or message.get("thinking")
    if isinstance(reasoning, str) and reasoning and THINK_CLOSE not in text:
        return f"{THINK_OPEN}\n{reasoning}\n{THINK_CLOSE}\n{text}"
    return text


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    text = block.get("text") if isinstance(block, Mapping) else None
    return text if isinstance(text, str) else ""


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
    "<turn|>",
    "<eos>",
    "<pad>",
    "</s>",
    "<｜end▁of▁sentence｜>",
)


def without_end_tokens(text: str) -> str:
    r"""A text without the end-of-turn and padding tokens at its end and the white space around them; else as it is.

    Example:

    ```python
    >>> without_end_tokens("so 4 <|im_end|>\n")
    'so 4'

    ```
    """
    end, found = len(text), False
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        if not text.endswith(END_TOKENS, 0, end):
            return text[:end] if found else text
        end -= next(len(token) for token in END_TOKENS if text.endswith(token, 0, end))
        found = True


def after_think(text: str) -> str:
    """What stands after the last `</think>`, up to a think block that opens there and never closes.

    Args:
        text (`str`): a completion.

    Returns:
        `str`: the visible part; all of a text without think tags, `""` of one whose only block is still open.

    Example:

    ```python
    >>> after_think("<think>4? no</think>5")
    '5'
    >>> after_think("<think>it is 5")
    ''

    ```
    """
    visible = text.rpartition(THINK_CLOSE)[2]
    return visible.partition(THINK_OPEN)[0]


def last_boxed(text: str) -> str | None:
    r"""Content of the last closed `\boxed{...}` (or `\fbox{...}`), `None` where there is none.

    Example:

    ```python
    >>> last_boxed(r"\boxed{4} hmm, actually \boxed{\frac{1}{2}}, or \boxed{3")
    '\\frac{1}{2}'

    ```
    """
    for _, _, content in _boxes_from_the_end(text):
        return content
    return None


class BoxedRun(NamedTuple):
    """The last boxes of a text that are one answer; `joined` where `or`, `and` or a comma stands between them."""

    contents: list[str]
    joined: bool


def boxed_run(text: str) -> BoxedRun:
    r"""The last closed boxes that are joined by nothing but `or`, `and`, commas, spaces and `$`.

    Args:
        text (`str`): a completion.

    Returns:
        `BoxedRun`: contents in the order of the text; one where other words stand before the last box, none without a
        box, and at most `MAX_RUN`.

    Example:

    ```python
    >>> boxed_run(r"not \boxed{3}. So $\boxed{4}$ or $\boxed{5}$")
    BoxedRun(contents=['4', '5'], joined=True)

    ```
    """
    contents: list[str] = []
    joined, later_start = False, -1
    for start, end, content in _boxes_from_the_end(text):
        if not contents and (other := _OR_MORE.match(text, end)) is not None:
            contents.append(other[1])
            joined = True
        elif contents:
            if not _JOIN.fullmatch(text, end, later_start):
                break
            joined |= _JOINT.search(text, end, later_start) is not None
        contents.append(content)
        later_start = start
        # where prose stands before this box, the boxes before it need not be looked for
        if len(contents) == MAX_RUN or not _JOIN.fullmatch(text, text.rfind("}", 0, start) + 1, start):
            break
    return BoxedRun(contents[::-1], joined)


MAX_RUN = 64
# what may stand between boxes that are one answer: a long gap is prose, so the pattern needs no more than this
_JOIN = re.compile(
    r"(?:[\s$,;&~]|\\[,;:!() \[\]\\]|\\q?quad|(?:\\(?:text|mathrm)\{\s*)?(?:\bor\b|\band\b)(?:\s*\})?){0,40}"
)
_OR_MORE = re.compile(r"[\s$)\]\\]{0,8}\bor\b[\s$(\[\\]{0,8}(-?[0-9][0-9./]*)")  # \boxed{5} or 6
_JOINT = re.compile(r"[,;]|\b(?:or|and)\b")
_BOX = re.compile(r"\\f?box(?:ed)?\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def _boxes_from_the_end(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and content of the closed boxes, the last one first; an inner box comes before the one around it."""
    if "\\boxed" not in text and "\\fbox" not in text:
        return
    starts = [match.span() for match in _BOX.finditer(text)]
    if not starts:
        return
    # the usual text ends with one closed box, and nothing before it needs to be looked at
    start, opened = starts[-1]
    end = _closing(text, opened)
    if end is not None:
        yield start, end, text[opened : end - 1].strip()
        starts.pop()
    if starts:
        ends = _closings(text, starts[0][1] - 1)
        for start, opened in reversed(starts):
            end = ends.get(opened - 1)
            if end is not None:
                yield start, end, text[opened : end - 1].strip()


def _closing(text: str, opened: int) -> int | None:
    """Where the brace that was opened just before `opened` has closed."""
    depth = 1
    for match in _BRACE.finditer(text, opened):
        token = match.group()
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            if not depth:
                return match.end()
    return None


def _closings(text: str, start: int) -> dict[int, int]:
    """Where each brace from `start` on closes, in one pass: unclosed boxes must not each cost the rest of the text."""
    stack: list[int] = []
    closings: dict[int, int] = {}
    for match in _BRACE.finditer(text, start):
        token = match.group()
        if token == "{":
            stack.append(match.start())
        elif token == "}" and stack:
            closings[stack.pop()] = match.end()
    return closings


def answer_tag(text: str) -> str | None:
    """Content of the single `<answer>...</answer>`; `None` without one, with several, or with one inside another.

    Example:

    ```python
    >>> answer_tag("<answer> 5 </answer>")
    '5'
    >>> answer_tag("<answer>4</answer><answer>5</answer>") is None
    True

    ```
    """
    if text.count(ANSWER_OPEN) != 1 or text.count(ANSWER_CLOSE) != 1:
        return None
    start = text.index(ANSWER_OPEN) + len(ANSWER_OPEN)
    end = text.index(ANSWER_CLOSE)
    return text[start:end].strip() if start <= end else None


def several_answer_tags(text: str) -> bool:
    """Whether more than one answer tag is closed, or one opens inside another."""
    if text.count(ANSWER_CLOSE) > 1:
        return True
    return text.count(ANSWER_OPEN) > 1 and text.count(ANSWER_CLOSE) == 1


def final_answer(text: str, *, delimited: bool = False) -> str | None:
    r"""What follows the last "answer is" or "answer:": the maths between its delimiters, else the rest of the line.

    Args:
        text (`str`): a completion.
        delimited (`bool`, *optional*, defaults to `False`): whether only maths between delimiters (`$...$`, `$$...$$`,
            `\(...\)`, `\[...\]`) counts.

    Returns:
        `str | None`: the answer, `None` where none is stated.

    Example:

    ```python
    >>> final_answer("Final Answer: The final answer is $\\frac12$. I hope it is correct.")
    '\\frac12'
    >>> final_answer("**Answer:** 42 apples.")
    '42 apples'

    ```
    """
    for match in reversed([*_STATES_ANSWER.finditer(text)][-MAX_STATEMENTS:]):
        stated = _stated(text, match.end(), delimited)
        if stated is not None:
            return stated
    return None


MAX_STATEMENTS = 32


def _stated(text: str, start: int, delimited: bool) -> str | None:
    """What a statement of the answer says that ends at `start`."""
    rest = text[start : start + MAX_STATED]
    rest = rest.lstrip("*_: \t\n\r")
    for opening, closing in _DELIMITERS:
        if rest.startswith(opening):
            # a dollar that is escaped is money, and so is one that never closes
            found = re.compile(r"(?<!\\)" + re.escape(closing)).search(rest, len(opening))
            if found is not None:
                content, tail = rest[len(opening) : found.start()].strip(), rest[found.end() :]
                # "$5$ or $6$" states both
                more = tail.partition("\n")[0].replace("$", " ") if _MORE.match(tail) else ""
                return " ".join((content + more).split()) if more else content or None
            break
    if delimited:
        return None
    line = rest.partition("\n")[0].strip().strip("*_").strip()
    sentence = _END_OF_SENTENCE.split(line, maxsplit=1)[0].strip()
    return sentence.strip("*_ ") or None


MAX_STATED = 2000
_STATES_ANSWER = re.compile(r"\banswer(?:\s+is|\**\s*:)", re.IGNORECASE)
# No sentence ends at the point of a title, an abbreviation or an initial, unless a word follows that opens one, nor at
# "No." before a number. A letter that is all there is so far is an answer (B. Because ...), not the first initial.
_OPENS_SENTENCE = (
    r"(?:A|An|And|As|Because|But|For|Hence|Here|However|I|If|In|It|Its|Note|Since|So|That|The|There|Therefore|These"
    r"|They|This|Those|Thus|To|We|When|Which|You|He|His|She|Her)\b(?!\.)"
)
_MORE = re.compile(r"\s*(?:[,;]|(?:or|and)\b)\s*(?:\$|\\\(|[-0-9])")
_END_OF_SENTENCE = re.compile(
    rf"\.(?=$|\s+{_OPENS_SENTENCE})|(?<=^[A-Z])\.(?=\s+(?![A-Z]\.|[a-z]))|(?<=\bNo)\.(?=\s+[^\s\d])"
    r"|(?<!\bDr)(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bSt)(?<!\bNo)(?<!\bProf)(?<!\bvs)(?<!\bapprox)(?<!\bJr)(?<!\bSr)"
    r"(?<!\bInc)(?<!\b[A-Z])\.(?=\s)"
)
_DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))


def last_number(text: str) -> str | None:
    r"""The last number of a text as it is written, with its sign, its thousands separators and its percent sign.

    Example:

    ```python
    >>> last_number("so he pays $1,234.50 in all.")
    '1,234.50'
    >>> last_number(r"that is \frac{3}{4} of it")
    '\\frac{3}{4}'

    ```
    """
    end = len(text)
    last_digit = _LAST_DIGIT.search(text[::-1][:MAX_TAIL] if end > MAX_TAIL else text[::-1])
    if last_digit is None and end > MAX_TAIL:
        last_digit = _LAST_DIGIT.search(text[::-1])
    if last_digit is None:
        return None
    stop = end - last_digit.start()
    start = max(0, stop - MAX_STATED)
    match = _last_match(_NUMBER, text, start, min(end, stop + 16))
    return match.group() if match else None


def _last_match(pattern: re.Pattern[str], text: str, start: int, end: int) -> re.Match[str] | None:
    last = None
    for match in pattern.finditer(text, start, end):
        last = match
    return last


MAX_TAIL = 4096
_LAST_DIGIT = re.compile(r"[0-9]")
_NUMBER = re.compile(
    r"[-\u2212]?\\[dt]?frac\{-?[0-9]+\}\{[0-9]+\}"
    # a minus sign belongs to the number unless something is subtracted
    r"|(?:(?<![\w)}\]])[-\u2212])?(?:[0-9]{1,3}(?:(?:,|\{,\}|\\,)[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
    r"(?:[eE][-+]?[0-9]{1,4}(?![\w]))?(?:\s?/\s?[0-9]+(?![\w./]))?(?:\\?%)?"
    r"|(?:(?<![\w)}\]])[-\u2212])?\.[0-9]+(?:\\?%)?"
)
