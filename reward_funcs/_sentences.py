r"""Where sentences end in reasoning: not within formulas, decimals, abbreviations, or behind a list item's number.

Everything is found in a few passes over the text; what stands before a full stop is looked at over a bounded length.
"""

from __future__ import annotations

import re
from bisect import bisect_right

# behind these a full stop ends no sentence
_ABBREVIATIONS = frozenset(
    "dr mr mrs ms prof vs cf approx resp viz ca fig figs eq eqs eqn eqns al mt jr sr dept thm e.g i.e a.k.a".split()
)
# nor behind these where a number follows: "sec. 3", but "in a sec. Then"
_BEFORE_NUMBER = frozenset("no nos sec ch p pp ex art min max prop def cor lem vol ref refs st ca".split())
# begins where a run of marks begins and gives nothing back: a text of full stops stays linear
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]}*_»]*+(?=\s|$)|[。！？]+[」』”’）]*|[\r\n]+")
_WORD_BEFORE = re.compile(r"[A-Za-z][A-Za-z.]*$")
# what a list item starts with: it is no sentence by itself
_ITEM = re.compile(r"[\s#>*_(-]*(?:(?:step|case|part)[ \t]+)?(?:[0-9]{1,3}|[A-Za-z]|[ivxIVX]{1,5})[.)]+[*_)]*", re.I)
_OPERATORS = frozenset("=+/<>×·÷^≤≥≠≈")


def sentence_ends(text: str) -> list[int]:
    r"""Offsets behind the last character of each sentence of a text, and at each line break outside formulas.

    Example:

    ```python
    >>> sentence_ends("Take pi, approx. 3.14. Then 5! = 120. Done")
    [22, 37]

    ```
    """
    formulas = maths_spans(text)
    starts = [start for start, _ in formulas]
    ends: list[int] = []
    last = 0
    for match in _END.finditer(text):
        at = bisect_right(starts, match.start()) - 1
        if at >= 0 and match.start() < formulas[at][1]:
            continue
        if match.group()[0] in "\r\n" or _is_end(text, last, match):
            ends.append(match.end())
            last = match.end()
    return ends


def _is_end(text: str, last: int, match: re.Match[str]) -> bool:
    mark, behind = match.group(), text[match.end() : match.end() + 16].lstrip(" \t")
    following = behind[:1]
    if following in _OPERATORS:
        return False
    if match.end() - last < 40 and _ITEM.fullmatch(text, last, match.end()):
        return False
    before = text[max(last, match.start() - 16) : match.start()]
    if mark[0] == "!" and (before[-1:].isdigit() or before[-1:] == ")" or before[-2:-1] in (" ", "")):
        return not following or following.isupper() or following in "\r\n"  # a factorial otherwise
    if mark.startswith(("...", "…")):
        return not following.islower()
    if mark[0] != ".":
        return True
    word = _WORD_BEFORE.search(before)
    return word is None or not _is_abbreviation(word.group().lower(), following)


def _is_abbreviation(word: str, following: str) -> bool:
    if not following or following in "\r\n":
        return False
    if word == "etc":
        return not following.isupper()
    if word in _BEFORE_NUMBER:
        return following.isdigit() or following == "("
    # letters with full stops between them: e.g., U.S., a.m.
    return word in _ABBREVIATIONS or (len(word) > 2 and all(len(part) == 1 for part in word.split(".")))


_DELIMITER = re.compile(r"\\(?:begin|end)(?=\{)|\\.|\$\$|\$|\n", re.DOTALL)
_CLOSED_BY = {r"\(": r"\)", r"\[": r"\]", r"\begin": r"\end", "$$": "$$", "$": "$"}
_CLOSES = frozenset(_CLOSED_BY.values()) - {"$"}


def maths_spans(text: str) -> list[tuple[int, int]]:
    r"""Start and end of each formula: `$...$`, `$$...$$`, `\(...\)`, `\[...\]`, `\begin{...}...\end{...}`.

    A single dollar opens one where no space follows it; the next dollar of the line closes it where no space stands
    before and no digit behind, so that "$5 and $6" is money. What never closes is no formula.

    Example:

    ```python
    >>> maths_spans(r"$5 and $6, but $x$ and \(y\)")
    [(15, 18), (23, 28)]

    ```
    """
    tokens = list(_DELIMITER.finditer(text))
    closing: list[int] = [-1] * len(tokens)
    nearest: dict[str, int] = {}
    # from the end, so that each opening finds its closing without a search: text of a thousand openings stays linear
    for index in range(len(tokens) - 1, -1, -1):
        token = tokens[index].group()
        start, end = tokens[index].span()
        if token == "\n":
            nearest.pop("$", None)
        elif token in _CLOSED_BY and not (token == "$" and text[end : end + 1].isspace()):
            closing[index] = nearest.get(_CLOSED_BY[token], -1)
        if token in _CLOSES:
            nearest[token] = index
        elif token == "$":
            closes = not text[max(0, start - 1) : start].isspace() and not text[end : end + 1].isdigit()
            nearest["$"] = index if closes else -1
    spans = []
    index = 0
    while index < len(tokens):
        if closing[index] > index:
            spans.append((tokens[index].start(), tokens[closing[index]].end()))
            index = closing[index]
        index += 1
    return spans
