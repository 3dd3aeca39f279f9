"""Rows of problems with an answer in mathematics, and the options of those that are multiple choice."""

from __future__ import annotations

import re
from typing import Any

from datasets_builders.golds import braced, gold_key, has_open_commas, is_boxed, math_gold, written
from datasets_builders.schema import Row, rl_row
from datasets_builders.source import Drop
from datasets_builders.sources._turns import filled

# A picture that the text cannot show, or a link to one; [asy] code is a figure in words and stays.
_PICTURE = re.compile(
    r"!\[(?:image[^\]\n]{0,200})?\]\(|!\[[^\]\n]{0,200}\]\([^)\s./]{0,200}[./]|<img\b|<image>|\\includegraphics\b|\[img\]"
    r"|\.(?:png|gif|jpe?g|svg|bmp|webp)(?![A-Za-z0-9])",
    re.IGNORECASE,
)
# a problem that wants several values, so that 5,105 as its answer may be two of them
_LISTED = re.compile(r"separated by (?:a )?commas?|comma[- ]separated|\bas a list\b", re.IGNORECASE)
_SEVERAL = re.compile(
    r"\b(?:find|determine|list|give|state|name|enter|write|compute|what are|solve for|for) (?:\w+ )?all\b"
    r"|\ball (?:the |of the )?(?:\w+ ){0,3}(?:values|solutions|numbers|integers|primes|roots|answers|pairs)\b"
    r"|\bwhat are the\b|\brespectively\b|\bordered pairs?\b|\b(?:increasing|decreasing|ascending|descending) order\b",
    re.IGNORECASE,
)
# one that wants a single number, whatever else it speaks of
_SINGLE = re.compile(
    r"\b(?:how many|how much|what is the|(?:find|determine|compute|calculate) the (?:\w+ ){0,3}"
    r"(?:sum|number|product|value|area|volume|total|largest|smallest|greatest|least))\b",
    re.IGNORECASE,
)
_PROOF = re.compile(r"\b(?:show|prove)(?: also)? that\b|\bprove[:,]", re.IGNORECASE)
# what is asked for beside a proof; then the gold answers that. Behind the proof fewer words are enough.
_ASKED = re.compile(
    r"\b(?:find|determine|compute|calculate|evaluate|solve|what (?:is|are|was)|how (?:many|much))\b", re.IGNORECASE
)
_ASKED_BEHIND = re.compile(
    rf"{_ASKED.pattern}|\b(?:express|describe|what|compare)\b|(?<!in )(?<!for )(?<!of )\bwhich\b", re.IGNORECASE
)
_FONT = r"\\(?:text|textbf|mathrm|mathbf|textrm|bf|rm)\s?\{?\s?"
# C, (C), \text{(C)}, and the same in front of the option's text
_LETTER = re.compile(rf"\s*(?:{_FONT})?(?:\(([A-J])\)|([A-J])(?![A-Za-z]))\s?[.:)]?\s?\}}?\s*")
_LABELLED = re.compile(rf"\s*(?:{_FONT})?(?:\(([A-J])\)|([A-J])\s?[.:)])")
_DOLLARS = re.compile(r"(?<!\\)\$")


def math_row(
    problem: Any,
    answer: Any,
    *,
    source: str,
    source_id: object = None,
    gold: str | None = None,
    **extra: Any,
) -> Row:
    r"""The row of a problem and its answer.

    Args:
        problem (`str`): the problem, without an instruction.
        answer (`str`, number or `list`): the answer as the source writes it, kept in `extra`.
        source (`str`): name of the builder.
        source_id (`object`, *optional*): id in the source.
        gold (`str`, *optional*): the gold, where it is not [`math_gold`] of the answer.
        extra (`Any`): as in [`rl_row`].

    Raises:
        Drop: `no_prompt` for an empty problem, `figure` for one with a picture or the link to one, `proof` for one that
            asks for nothing but a proof, `ambiguous_commas` where the gold joins the digits of an answer such as
            `5,105` and the problem asks for several, `no_choices` for the letter of an option where the problem names
            no such thing, `gold_in_prompt` where a `\boxed{}` in the problem, such as that of a solution behind it,
            holds the gold, and the reasons of [`math_gold`].
    """
    text = filled(problem, "no_prompt")
    if _PICTURE.search(text):
        raise Drop("figure")
    if _wants_proof(text):
        raise Drop("proof")
    gold = math_gold(answer) if gold is None else gold
    if has_open_commas(answer) and "," not in gold and _wants_several(text):
        raise Drop("ambiguous_commas")
    if len(gold) < MAX_LETTER and (letter := choice_letter(gold)) is not None and not _is_named(letter, text):
        raise Drop("no_choices")
    if is_boxed(gold, text):
        raise Drop("gold_in_prompt")
    return rl_row(text, gold, task="math", source=source, source_id=source_id, answer=written(answer), **extra)


def _wants_proof(text: str) -> bool:
    """Whether a problem asks for a proof and for nothing else: the gold of one is a part of what is to be proved."""
    proofs = list(_PROOF.finditer(text))
    return bool(proofs) and not _ASKED.search(text) and not _ASKED_BEHIND.search(text, proofs[-1].end())


def _wants_several(text: str) -> bool:
    return bool(_LISTED.search(text) or (_SEVERAL.search(text) and not _SINGLE.search(text)))


MAX_LETTER = 20  # characters of `$\textbf{(C)}$` and the like


def choice_row(problem: Any, answer: str, letter: str, *, source: str, source_id: object = None, **extra: Any) -> Row:
    """The row of a multiple-choice problem whose options stand in its text; arguments as in [`math_row`].

    Raises:
        Drop: `no_prompt` and `figure` as in [`math_row`], `no_choices` where no options can be told in the text or
            none of them has the letter, `disagreeing_choice` where the answer goes on with another text than that of
            its option: `D. 3` where D reads 4, `gold_in_prompt` where the problem holds the letter in a box.
    """
    text = filled(problem, "no_prompt")
    if _PICTURE.search(text):
        raise Drop("figure")
    choices = options(text)
    if choices is None or ord(letter) - ord("A") >= len(choices):
        raise Drop("no_choices")
    stated = _stated_option(answer)
    if stated and _comparable(stated) != _comparable(choices[ord(letter) - ord("A")]):
        raise Drop("disagreeing_choice")
    if is_boxed(letter, text) or is_boxed(f"({letter})", text):
        raise Drop("gold_in_prompt")
    return rl_row(
        text, letter, task="choice", source=source, source_id=source_id, answer=answer, choices=choices, **extra
    )


def choice_letter(answer: str) -> str | None:
    r"""The letter of an answer that is nothing but the letter of an option.

    Example:

    ```python
    >>> choice_letter("(C)"), choice_letter(r"$\textbf{(C)}$"), choice_letter("CD"), choice_letter("C. 5")
    ('C', 'C', None, None)

    ```
    """
    match = _LETTER.fullmatch(_DOLLARS.sub("", answer))
    return (match[1] or match[2]) if match else None


def labelled_letter(answer: str) -> str | None:
    r"""The letter of an answer that is an option's letter, with or without its text.

    Example:

    ```python
    >>> labelled_letter(r"\textbf{(C)}\ 5"), labelled_letter("C. 5"), labelled_letter("B"), labelled_letter("C_1")
    ('C', 'C', 'B', None)

    ```
    """
    plain = _DOLLARS.sub("", answer)
    match = _LABELLED.match(plain)
    return (match[1] or match[2]) if match else choice_letter(plain)


def _stated_option(answer: str) -> str:
    """What stands behind the label in an answer, `""` for a letter alone."""
    plain = _DOLLARS.sub("", answer)
    match = _LABELLED.match(plain)
    if match is None or choice_letter(plain) is not None:
        return ""
    text = plain[match.end() :].strip(" .:)")
    if text.startswith("}"):  # the end of the label's font
        return text[1:].strip()
    return text.removesuffix("}") if text.count("}") > text.count("{") else text


def _comparable(option: str) -> str:
    """An option in a form that is equal for texts that differ in spaces, fonts, capitals or the way of a number."""
    text = _unpadded(option).rstrip(" .")
    if len(text) > MAX_OPTION:
        return text
    return gold_key(braced(text.replace("{,}", ",").replace(r"\%", "%"))).casefold()


def _is_named(letter: str, text: str) -> bool:
    """Whether a text speaks of a letter, alone, among other capitals or as the label of an option.

    An article is no name, nor is the first word of a sentence.
    """
    alone = rf"(?<![A-Za-z\\]){letter}(?![A-Za-z])"
    others = rf"[A-Z]{letter}(?![a-z])|(?<![a-z\\]){letter}[A-Z]|\({letter.lower()}\)"
    if letter != "A":
        return re.search(rf"{alone}|{others}", text) is not None
    return re.search(rf"[(${{,\[\"]\s?{alone}|[a-z,]\s+{alone}|(?<!\S){alone}[.):]|{others}", text) is not None


# options

_STYLES = (
    re.compile(rf"(?:{_FONT})?\(([A-J])\)\s?[.:]?\s?\}}?"),
    re.compile(rf"{_FONT}([A-J])\s?[.:)]?\s?\}}"),
    re.compile(r"(?:^|(?<=\n)|(?<=\s\s)|(?<=\t))[ \t]{0,8}([A-J])\s?[.:)](?=\s|\\|\$)"),
)
_GAP = r"\\[ ,;:!]|\\q?quad(?![a-zA-Z])|\\hfill|~|\\\\"
_LEADING = re.compile(rf"(?:{_GAP}|[\s.,:;])+")
_TRAILING = re.compile(rf"(?:{_GAP}|[\s,;]|\\$)+$")  # of the last "\ " nothing but the backslash may be left
_NEXT = re.compile(r"(?:^|\s)\$$")  # what opens the maths of the next label
MIN_OPTIONS, MAX_OPTION = 3, 400
MAX_PADDED = 2 * MAX_OPTION  # with the gaps around it: to find those takes the square of the length


def options(problem: str) -> list[str] | None:
    r"""Texts of the options A, B, C, ... that a problem ends with, `None` where they cannot be told for sure.

    There must be at least three, lettered in order, each once, none empty and no two alike.

    Example:

    ```python
    >>> options(r"How many? $\textbf{(A)}\ 15 \qquad \textbf{(B)}\ 20 \qquad \textbf{(C)}\ 25$")
    ['15', '20', '25']
    >>> options("Let (A) and (B) be points.") is None
    True

    ```
    """
    for style in _STYLES:
        labels = list(style.finditer(problem))
        first = next((place for place in range(len(labels) - 1, -1, -1) if labels[place][1] == "A"), None)
        if first is None:
            continue
        labels = labels[first:]
        if len(labels) < MIN_OPTIONS or [label[1] for label in labels] != list("ABCDEFGHIJ"[: len(labels)]):
            continue
        ends = [label.start() for label in labels[1:]] + [len(problem)]
        texts = [_option(problem[label.end() : end]) for label, end in zip(labels, ends, strict=True)]
        if all(texts) and len(set(texts)) == len(texts) and max(map(len, texts)) <= MAX_OPTION:
            return texts
    return None


def _option(text: str) -> str:
    text = _unpadded(" ".join(text.strip().partition("\n")[0].split()))
    text = _NEXT.sub("", text)
    if len(_DOLLARS.findall(text)) % 2:
        # all options stand in one pair of dollars, or each in its own with its label
        text = text.removeprefix("$") if text.startswith("$") else text.removesuffix("$")
    return _unpadded(text)


def _unpadded(text: str) -> str:
    """The text without the gaps around it; a text that is too long for an option stays."""
    if len(text) > MAX_PADDED:
        return text
    leading = _LEADING.match(text)
    return _TRAILING.sub("", text[leading.end() :] if leading else text)
