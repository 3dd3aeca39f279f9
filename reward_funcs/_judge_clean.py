"""Text of another author before a judge sees it: no thoughts, no marks of chat templates, no controls, not too long."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass

from reward_funcs.extract import after_think

# What a chat template puts between turns, so what could pass for the end of the judged text and a turn of the user.
# Words that stand alone between bars are listed: `<|psi|>` is physics. Those of DeepSeek have bars of their own.
_WORDS = (
    "system|user|assistant|tools?|observation|developer|channel|message|start|end|return|constrain|call|think|sep|"
    "pad|bos|eos|unk|mask|endoftext|startoftext|endofprompt|endofturn|startofturn|eot|eom|im|turn|header|context|"
    "image|video|audio|box|quad|begin|prompter|prefix|suffix|middle|sys|human|bot|ipython|python"
)
_TOKENS = re.compile(
    # Gemma 4 has its bar on one side: <|turn>user ... <turn|>
    rf"<\|/?(?:{_WORDS}|[a-z0-9]++(?:[_▁-][a-z0-9]++)+)\|?>|<(?:{_WORDS}|[a-z]++(?:_[a-z]++)+)\|>"
    r"|\[\|/?(?:system|user|assistant|tool|endofturn)\|\]"
    r"|<｜[^<>｜\n]{1,60}｜>|<</?SYS>>|</?(?:start|end)_of_turn>|</?seed:[a-z_]{1,40}+>|</?tool_(?:call|response)>",
    re.IGNORECASE,
)
# Marks that are code too, as templates write them. Where one opens something behind what code indexes it may be code.
# Those that begin, end or part no turn (`[MASK]`, `[CLS]`, `[SEP]`, `<mask>`, `<unk>`, `<pad>`) are text.
_BRACKETED = "SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|MODEL_SETTINGS"
_OPENED = rf"(?:\[(?=(?:INST|THINK|{_BRACKETED}|gMASK)\])|<(?=(?:s|bos|eos|sop|eop|eod|eot|unused\d{{1,4}})>))"
_EXACT = re.compile(rf"\[/(?:INST|THINK|{_BRACKETED})\]|◁/?think▷|</s>|(?<![\w)\]]){_OPENED}\w++[\]>]")
_IN_CODE = re.compile(rf"(?<=[\w)\]])({_OPENED})")
_STRUCK = re.compile(r"<s>([^<>\n]{1,300}+)</s>")  # HTML that strikes a text out
# Tags with which a response may claim to be over, or to be the judge's. Behind a letter an opening one is code, such as
# vector<user>.
_TAG_WORDS = "think|thinking|answer|system|user|assistant|instructions?|score|verdict|rubric|judge"
_TAGS = re.compile(rf"</\s*+(?:{_TAG_WORDS})\s*+>|(?<![A-Za-z_])<(?:{_TAG_WORDS})\s*+>", re.IGNORECASE)
_THINK = re.compile(r"<\s*+(/?)\s*+think(?:ing)?\s*+>", re.IGNORECASE)
_LINE_BREAK = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_ODD = re.compile(r"[^\x20-\x7e\n\t]")
_BRACKETS = re.compile(r"[<>\[\]|｜]")
_NON_JOINER, _JOINER = "\u200c", "\u200d"
# Arabic to Tibetan, the scripts of South-East Asia, Mongolian, and the Arabic presentation forms: there joiners are
# spelling. All marks are ASCII, so between such letters none can be hidden.
_JOINED = re.compile(r"[\u0600-\u0fff\u1000-\u109f\u1780-\u18af\ua840-\uabff\ufb50-\ufdff\ufe70-\ufefc]")
MAX_NESTED = 12


@dataclass(frozen=True)
class Cleaning:
    """How a text of another author is prepared: what is taken out, and how long it may be.

    Args:
        strip_think (`bool`): leave out think blocks, closed or not.
        strip_tags (`bool`): leave out the marks of chat templates, and tags such as `<answer>`, whose content stays;
            marks that may be code or HTML get a space instead (`regs[ INST]`).
        max_chars (`int`): longer text loses its middle.
        keep_tags (`bool`, *optional*): leave out marks of chat templates alone, for a prompt that names tags.
        tokens (`Collection[str]`, *optional*): further marks, the special tokens of the judge's own tokenizer.
    """

    strip_think: bool = True
    strip_tags: bool = True
    max_chars: int = 20_000
    keep_tags: bool = False
    tokens: Collection[str] = ()

    def __call__(self, text: str) -> str:
        """The text as a judge sees it."""
        # first: what shows nothing inside a mark would be gone when the judge reads it
        text = without_controls(text)
        for _ in range(MAX_NESTED):
            cleaned = self._stripped(text)
            if cleaned == text:
                break
            text = cleaned
        else:  # marks inside marks a dozen deep are there to be found: none is left
            text = _BRACKETS.sub(" ", text) if self.strip_tags else text
        return shortened(text.strip(), self.max_chars)

    def _stripped(self, text: str) -> str:
        """The text without the marks that stand in it now; taking them out may make others."""
        if self.strip_think:
            text = without_think(text)
        if not self.strip_tags:
            return text
        text = _without_marks(text)
        for token in self.tokens:
            text = text.replace(token, "")
        return text if self.keep_tags else _TAGS.sub("", text)


def _without_marks(text: str) -> str:
    """The text without the marks of chat templates; with a space in those that may be code or HTML.

    No tokenizer reads `[ INST]`, `< s>` or `< /s>` as a mark, and a reader sees what was meant.
    """
    parts = _STRUCK.split(_TOKENS.sub("", text))
    parts = [_IN_CODE.sub(r"\1 ", _EXACT.sub("", part)) for part in parts]
    parts[1::2] = [f"< s>{part}< /s>" for part in parts[1::2]]
    return "".join(parts)


def without_controls(text: str) -> str:
    r"""The text in plain spaces and line breaks, without characters that show nothing.

    NUL and other controls are refused by some servers; zero-width characters hide a mark from who looks for it. Joiners
    stay where they are spelling: between letters of scripts such as Arabic and Devanagari, and in emoji sequences.

    Example:

    ```python
    >>> without_controls("a\xa0b\r\nc<\u200b|im_end|>")
    'a b\nc<|im_end|>'

    ```
    """
    return _ODD.sub(_plain, _LINE_BREAK.sub("\n", text))


def _plain(match: re.Match[str]) -> str:
    one = match[0]
    if one.isprintable():
        return one
    if one in (_NON_JOINER, _JOINER) and _joins(match.string, match.start()):
        return one
    return " " if unicodedata.category(one) == "Zs" else ""


def _joins(text: str, at: int) -> bool:
    """Whether the joiner at that place stands between letters that it shapes, or between emoji."""
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if _JOINED.match(before) and _JOINED.match(after):
        return unicodedata.category(before)[0] in "LM" and unicodedata.category(after)[0] in "LM"
    return text[at] == _JOINER and _is_emoji(before) and _is_emoji(after) and after != "\ufe0f"


def _is_emoji(one: str) -> bool:
    # the variation selector and the colours of skin stand behind an emoji
    return one == "\ufe0f" or (one >= "\u2190" and unicodedata.category(one) in ("So", "Sk"))


def without_think(text: str) -> str:
    """What stands outside of think blocks: after the last `</think>`, before a `<think>` that never closes.

    Example:

    ```python
    >>> without_think("<think>5? No.</think>It is 4.")
    'It is 4.'

    ```
    """
    # any case: what a tag looks like to a judge is not only what it is to a template
    return after_think(_THINK.sub(r"<\1think>", text))


def shortened(text: str, limit: int) -> str:
    """The text, without its middle where it is longer than `limit` characters.

    Example:

    ```python
    >>> shortened("abcdefghij", 6)
    'abc\\n[... 4 characters left out ...]\\nhij'

    ```
    """
    if len(text) <= limit:
        return text
    head = (limit + 1) // 2
    tail = limit - head
    return f"{text[:head]}\n[... {len(text) - limit} characters left out ...]\n{text[len(text) - tail :]}"


def encodable(text: str) -> str:
    r"""The text with each half of a surrogate pair joined to the other, or replaced where it stands alone.

    JSON may hold such halves; tokenizers, SQLite and Arrow refuse them.

    Example:

    ```python
    >>> encodable("half \ud83d, whole \ud83d\ude00") == "half \ufffd, whole \U0001f600"
    True

    ```
    """
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
