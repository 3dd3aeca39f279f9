"""What of a completion is prose: the text without formulas, code, links, tags and invisible characters.

Nothing that a model can hide words in is dropped unread, and every pattern is linear in the length of the text.
"""

from __future__ import annotations

import re

from reward_funcs.extract import THINK_CLOSE, THINK_OPEN

INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff]"
)
_FENCE = re.compile(r"```+|\[/?asy\]")
_INLINE_CODE = re.compile(r"`([^`\n]{1,1000})`")
_CODE_MARK = re.compile(r"[(){}\[\]=;_<>#*+/\\|&^%$@\"]")
_URL = re.compile(r"(?:https?://|www\.)[!-~]+")
TAG = re.compile(r"<[/!]?[A-Za-z][!-;=?-~ ]{0,80}>|<<[-+*/=().,%$0-9 ]{1,80}>>")
_ESCAPED = re.compile(r"\\[$%&#_{}]")
_DELIMITER = r"(?:\$|\\[()\[\]]|\\(?:begin|end)\{[^{}\n]{0,40}\})"
_FORMULA = re.compile(rf"({_DELIMITER}(?:\s*{_DELIMITER})*)")
_SIDE, _OPENING = re.compile(r"\\(?:[()\[\]]|begin|end)"), (r"\(", r"\[", r"\begin")
_TEXT_COMMAND = re.compile(r"\\(?:text[a-z]*|mbox|operatorname|mathrm)\s*\{([^{}]*)\}")
_COMMAND = re.compile(r"\\[A-Za-z]++\*?|\\.")
_PROSE = re.compile(r"(?<![^\W\d_])(?:[^\W\d_]{3,}+[\s,]++[^\W\d_]{2,}|[^\W\d_]{2}[\s,]++[^\W\d_]{3,})")
_ASCII = re.compile(r"[\x00-\x7f]+")


def _remains(hidden: str) -> str:
    """What counts of a formula or a piece of code: all of it when it reads as prose, else its non-ASCII letters."""
    if hidden.isascii():
        return ""
    return _ASCII.sub(lambda match: "\n" if "\n" in match[0] else " ", hidden)


def _without_code(text: str) -> str:
    parts = _FENCE.split(text)
    closed = len(parts) - 1 if len(parts) % 2 == 0 else len(parts)  # an odd fence hides nothing
    kept = [_code_remains(part) if i % 2 and i < closed else part for i, part in enumerate(parts)]
    return _INLINE_CODE.sub(lambda match: _code_remains(match[1]), "\n".join(kept))


def _code_remains(code: str) -> str:
    # prose has about one such character in a hundred, a program one in five
    if _PROSE.search(code) and len(_CODE_MARK.findall(code)) * 20 < len(code):
        return code
    return f" {_remains(code)} "


def _without_formulas(text: str) -> str:
    """The text without what stands between two delimiters of formulas, unless that reads as prose."""
    parts = _FORMULA.split(_ESCAPED.sub(" ", text))  # prose, delimiters, part, delimiters, part, ...
    kept, in_formula = [_without_commands(parts[0])], False
    for i in range(1, len(parts), 2):
        delimiters, part, end = parts[i], parts[i + 1], parts[i + 2] if i + 2 < len(parts) else ""
        side = _SIDE.findall(delimiters)
        opens, needed = (side[-1] in _OPENING, "") if side else (not in_formula, "$")
        # a dollar without a partner, as in "$5 and then $6", must not turn the rest inside out
        in_formula = opens and end != "" and needed in end and not _PROSE.search(_bare(part))
        kept += [*_TEXT_COMMAND.findall(part), _remains(_bare(part))] if in_formula else [_without_commands(part)]
    return " ".join(kept)


def _bare(formula: str) -> str:
    return _COMMAND.sub(" ", _TEXT_COMMAND.sub(" ", formula))


def _without_commands(text: str) -> str:
    return _COMMAND.sub(" ", _TEXT_COMMAND.sub(r" \1 ", text)) if "\\" in text else text


def prose(text: str) -> str:
    """The text without formulas, code, links, tags, LaTeX commands and invisible characters.

    What a formula or a piece of code says in words stays: the contents of `\\text{}`, letters outside ASCII, and the
    whole of it when words follow each other as in a sentence (in code, with fewer than one sign of code in twenty
    characters). A `$` or a fence without a partner hides nothing.

    Args:
        text (`str`): any text.

    Returns:
        `str`: what is left, with other spacing.

    Example:

    ```python
    >>> prose(r"So $x = \\frac{1}{2}$ and `y += 1`").split()
    ['So', 'and']

    ```
    """
    if not text.isascii():
        text = INVISIBLE.sub("", text)
    if "`" in text or "[asy]" in text:
        text = _without_code(text)
    if "://" in text or "www." in text:
        text = _URL.sub(" ", text)
    if "<" in text:
        text = TAG.sub(lambda match: match[0] if _PROSE.search(match[0]) else " ", text)
    if "$" in text or "\\" in text:
        text = _without_formulas(text)
    return text


def reasoning(text: str) -> str:
    """Everything before the last `</think>`, after an unclosed `<think>`, or all of a text without these tags.

    Example:

    ```python
    >>> reasoning("<think>two and two</think>4")
    'two and two'

    ```
    """
    before, closed, _ = text.rpartition(THINK_CLOSE)
    # what stands before the opening tag is reasoning too: it would be a place to hide otherwise
    return (before if closed else text).replace(THINK_OPEN, "")
