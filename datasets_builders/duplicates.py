"""Rows whose prompts are the same, or nearly so: the first stays, those that contradict each other go."""

from __future__ import annotations

import math
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from datasets_builders._rows import BATCH, Columns, batches, check_rows, selected
from datasets_builders.golds import gold_key
from datasets_builders.ngrams import UNSPACED, Hashes, Numbers, Vocabulary, ngrams
from datasets_builders.prompts import user_texts

SHINGLE = 5  # words
LIKENESS = 0.8
_ROUNDING = 1e-9
# Rows that are kept for a shingle, and that a row is compared with: beyond that they are made from one template.
_MOST_CANDIDATES = 20

# Tests and references differ without a contradiction.
_LOOSE_TASKS = ("code", "judge")
_SIDES = ("chosen", "rejected")
_COLUMNS = ("prompt", "completion", "chosen", "rejected", "solution", "task")

_WRITTEN = {ord(char): f"^{digit}" for digit, char in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
_WRITTEN |= dict.fromkeys(map(ord, "‐‑‒–—−"), "-") | dict.fromkeys(map(ord, "‘’"), "'")
_LETTER = r"[^\W\d_]"
_WORD = _LETTER + _LETTER
_PROSE = r"\s$,;:?\"`~\\&_#@…“”«»„。、"
_MATHS = re.compile(r"(?<!\\)\\[\[\]()]")  # what stands around a formula in the place of dollar signs
# Anything between two digits keeps them apart. A full stop may be part of a number. A hyphen joins two words, a minus
# does not; an apostrophe stands within a word, a prime does not; behind a word ! is no factorial.
_BETWEEN_DIGITS = re.compile(rf"(?<=\d)(?:[{_PROSE}]|\.(?!\d))+(?=\.?\d)")
_DROPPED = re.compile(rf"[{_PROSE}]+|\.(?!\d)|(?<={_WORD})(?:-(?={_WORD})|'(?={_LETTER})|!)")
_NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion dozen "
    "half third quarter once twice thrice double triple first second fourth fifth sixth seventh eighth ninth tenth"
)
_FIGURE = re.compile(
    rf"\d*\.\d+|\d+|\b(?:{_NUMBER_WORDS.replace(' ', '|')})s?\b|[〇零一二三四五六七八九十百千万亿两半]"
    rf"|(?<!{_WORD})[-'!]|-(?!{_WORD})|'(?!{_LETTER})|[^\w.'!{_PROSE}-]"
)
_SHINGLE_WORD = re.compile(f"[{UNSPACED}]|[^\\W_{UNSPACED}]+")


def deduplicate(dataset: Any, *, near: bool = False) -> tuple[Any, dict[str, int]]:
    r"""The rows without repeated prompts: of each the first stays, and none where their golds contradict each other.

    Two prompts are the same when what the user says differs in nothing but capitals, spaces, quotes, punctuation
    between words, and the marks around formulas. Signs, brackets and the bounds of numbers count, so that "2 - 3",
    "2 + 3" and "23" are three prompts. Rows with a `completion` are compared with it, preferences with their two
    replies: a pair that stands there both ways round contradicts itself. Golds are compared as texts without dollar
    signs, spaces and fonts, plain numbers and fractions by value, `\dfrac` as `\frac`; those of the tasks `code` and
    `judge`, which are tests and references, contradict nothing.

    With `near=True` a row is dropped, too, when an earlier row that stays has nearly its prompt: the same numbers
    (digits and words such as "three"), signs and brackets in the same order, the same gold (but for `judge`), and a
    Jaccard index of the sets of word 5-grams of at least 0.8. A row like an earlier one with another gold stays and is
    counted as `near_kept`: that is most often another question. Likeness is computed, not estimated; but of prompts
    made from one template each is compared with the 20 that share most of its rarest 5-grams alone, so that a pair may
    be missed there. Prompts of fewer than 5 words are compared as a whole alone.

    Args:
        dataset (`Dataset | list[dict]`): rows with the column `prompt`; `solution` and `task` are read where they are
            there. A stream is refused: this needs all rows. It takes about 150 bytes a row, and for `near` another 40
            a word.
        near (`bool`, defaults to `False`): drop near duplicates as well.

    Returns:
        `tuple`: the rows that stay in their order, and a report: `duplicate` rows dropped because an earlier one stays,
        `disagreeing` rows dropped because the golds of one prompt differ, `near_duplicate` rows dropped, and
        `near_kept` rows that stay although an earlier one with another gold is like them.

    Raises:
        ValueError: For a stream, splits instead of one, rows without `prompt`, and a prompt or reply that is neither a
            text nor turns with texts.

    Source: the prefix filter of Chaudhuri et al. 2006 for exact joins by Jaccard index; that numbers, signs and golds
    must agree is ours.

    Example:

    ```python
    >>> golds = {"What is 2 + 2?": "$4$", "what is $2+2$": "$4.0$", "What is 2 - 2?": "$0$"}
    >>> rows = [{"prompt": [{"role": "user", "content": text}], "solution": gold} for text, gold in golds.items()]
    >>> kept, report = deduplicate(rows)
    >>> [row["prompt"][0]["content"] for row in kept], report["duplicate"]
    (['What is 2 + 2?', 'What is 2 - 2?'], 1)

    ```
    """
    check_rows(dataset, "deduplicate", ["prompt"], stream=False)
    report = {"duplicate": 0, "disagreeing": 0, "near_duplicate": 0, "near_kept": 0}
    rows = _without_exact(dataset, report)
    dataset = selected(dataset, rows)
    if near:
        dataset = selected(dataset, _without_near(dataset, report))
    return dataset, report


class _Compared(NamedTuple):
    """What of a row is compared: one text, and what must be the same in rows of the same text."""

    text: str
    gold: str
    task: str | None


def _compared(dataset: Any) -> Iterator[_Compared]:
    for batch in batches(dataset, _COLUMNS):
        tasks = batch.get("task", [None] * len(batch["prompt"]))
        yield from map(_Compared, *_texts_and_golds(batch), tasks)


def _texts_and_golds(batch: Columns) -> tuple[list[str], Sequence[str]]:
    prompts = user_texts(batch["prompt"], "deduplicate")
    if "chosen" in batch and "rejected" in batch:
        chosen, rejected = (["\n".join(map(_content, _turns(reply))) for reply in batch[side]] for side in _SIDES)
        pairs = zip(prompts, chosen, rejected, strict=True)
        texts = ["\n".join((prompt, *sorted(replies, key=prompt_key))) for prompt, *replies in pairs]
        return texts, list(map(prompt_key, chosen))
    if "completion" in batch:
        completions = ("\n".join(map(_content, _turns(reply))) for reply in batch["completion"])
        return ["\n".join(both) for both in zip(prompts, completions, strict=True)], [""] * len(prompts)
    return prompts, [gold or "" for gold in batch.get("solution", [""] * len(prompts))]


def _turns(reply: Any) -> Sequence[Any]:
    if isinstance(reply, str):
        return [reply]
    if not isinstance(reply, Sequence):
        raise ValueError(
            f"deduplicate: the reply {reply!r:.60} of a row must be a text or a list of turns; leave it out"
        )
    return reply


def _content(turn: Any) -> str:
    return turn if isinstance(turn, str) else turn["content"] or ""


def prompt_key(text: str) -> str:
    """A text without what no two different prompts differ in: capitals, spaces, quotes, punctuation between words.

    Example:

    ```python
    >>> prompt_key("Well-known:  what is $3 - 2.5$?"), prompt_key("Choose from 1, 23.")
    ('wellknownwhatis3-2.5', 'choosefrom1|23')

    ```
    """
    plain = _plain(text)
    return _DROPPED.sub("", _BETWEEN_DIGITS.sub("|", plain)) or plain.strip()


def _plain(text: str) -> str:
    """The text in lower case with one way to write dashes, quotes, exponents and the bounds of a formula."""
    plain = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text.translate(_WRITTEN)).casefold()
    return _MATHS.sub("$", plain)


def _digest(*texts: str) -> bytes:
    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _without_exact(dataset: Any, report: dict[str, int]) -> list[int]:
    """Numbers of the rows that stay; each prompt is a group, in the order of the first rows."""
    group_of_key: dict[bytes, int] = {}
    golds: list[bytes] = []
    groups, firsts, disagreeing = array("q"), array("q"), set()
    for row, (text, gold, task) in enumerate(_compared(dataset)):
        group = group_of_key.setdefault(_digest(prompt_key(text)), len(golds))
        digest = b"" if task in _LOOSE_TASKS else _digest(gold_key(gold))
        if group == len(golds):
            golds.append(digest)
            firsts.append(row)
        elif golds[group] != digest:
            disagreeing.add(group)
        groups.append(group)
    dropped = sum(1 for group in groups if group in disagreeing)
    report["disagreeing"] = dropped
    report["duplicate"] = len(groups) - dropped - (len(firsts) - len(disagreeing))
    return [row for group, row in enumerate(firsts) if group not in disagreeing]


class _Shingles(NamedTuple):
    """The set of word n-grams of each row, by number, the rarest first, and what must be the same in near duplicates.

    Args:
        numbers (`(N,) int64`): the sets one row after another, each in increasing order.
        bounds (`(R + 1,) int64`): where the set of each row begins.
        frequency (`(S,) int64`): rows that hold each n-gram.
        figures (`list[int]`): of each row, a number for its numbers, signs and brackets.
        golds (`list[int]`): of each row, a number for these and its gold.
    """

    numbers: Numbers
    bounds: Numbers
    frequency: Numbers
    figures: list[int]
    golds: list[int]


def _shingles(dataset: Any) -> _Shingles:
    vocabulary = Vocabulary()
    hashes, sizes = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.int64)]
    blocks: dict[bytes, int] = {}
    figures: list[int] = []
    golds: list[int] = []
    for batch in _batched(_compared(dataset)):
        texts = [_plain(row.text) for row in batch]
        found, rows, _ = ngrams(*vocabulary.numbers(list(map(_SHINGLE_WORD.findall, texts))), SHINGLE)
        order = np.lexsort((found, rows))
        found, rows = found[order], rows[order]
        new = np.append(True, (found[1:] != found[:-1]) | (rows[1:] != rows[:-1]))[: len(found)]
        hashes.append(found[new])
        sizes.append(np.bincount(rows[new], minlength=len(batch)))
        for text, row in zip(texts, batch, strict=True):
            figure = " ".join(_FIGURE.findall(text))
            gold = "" if row.task == "judge" else gold_key(row.gold)
            figures.append(blocks.setdefault(_digest(figure), len(blocks)))
            golds.append(blocks.setdefault(_digest(figure, gold), len(blocks)))
    return _Shingles(*_sets(np.concatenate(hashes), np.concatenate(sizes)), figures, golds)


def _batched(rows: Iterator[_Compared]) -> Iterator[list[_Compared]]:
    while batch := list(islice(rows, BATCH)):
        yield batch


def _sets(hashes: Hashes, sizes: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Numbers, bounds and frequency as in [`_Shingles`] of the sets of hashes, one after another."""
    unique, numbers, frequency = np.unique(hashes, return_inverse=True, return_counts=True)
    rarest_first = np.argsort(frequency, kind="stable")
    rank = np.empty(len(unique), dtype=np.int64)
    rank[rarest_first] = np.arange(len(unique))
    codes = np.repeat(np.arange(len(sizes)) * len(unique), sizes) + rank[numbers]
    codes.sort()
    bounds = np.append(0, np.cumsum(sizes))
    return codes % max(len(unique), 1), bounds, frequency[rarest_first]


def _without_near(dataset: Any, report: dict[str, int]) -> list[int]:
    """Numbers of the rows that are like no earlier one that stays."""
    shingles = _shingles(dataset)
    index = _NearIndex(shingles)
    kept = []
    for row, (figures, gold) in enumerate(zip(shingles.figures, shingles.golds, strict=True)):
        own, rare = index.shingles_of(row)
        if index.holds_like(own, rare, gold):
            report["near_duplicate"] += 1
            continue
        report["near_kept"] += index.holds_like(own, rare, figures)
        index.add(row, rare, gold)
        index.add(row, rare, figures)
        kept.append(row)
    return kept


class _NearIndex:
    """The rows that stay, by block and by each of their rarest shingles.

    Two sets of a Jaccard index of at least t share at least t of the larger one; so the first `m - ceil(t * m) + 1` of
    a set's m elements, in an order that all sets have in common, hold one of the other's first.
    """

    def __init__(self, shingles: _Shingles) -> None:
        self.shingles = shingles
        self.rows: dict[tuple[int, int], list[int]] = {}

    def shingles_of(self, row: int) -> tuple[set[int], list[int]]:
        """The shingles of a row, and the rarest of them that other rows have, too."""
        start, end = self.shingles.bounds[row : row + 2]
        own = self.shingles.numbers[start:end]
        rare = own[: len(own) - math.ceil(LIKENESS * len(own) - _ROUNDING) + 1]
        return set(own.tolist()), rare[self.shingles.frequency[rare] > 1].tolist()

    def holds_like(self, own: set[int], rare: list[int], block: int) -> bool:
        """Whether a row of the block is like the one of these shingles."""
        shared = Counter(chain.from_iterable(self.rows.get((block, shingle), ()) for shingle in rare))
        candidates = [row for row, _ in shared.most_common(_MOST_CANDIDATES)]
        return any(self._is_like(own, row) for row in candidates)

    def _is_like(self, own: set[int], row: int) -> bool:
        start, end = self.shingles.bounds[row : row + 2]
        fewer, more = sorted((len(own), int(end - start)))
        if fewer < LIKENESS * more - _ROUNDING:
            return False
        shared = len(own.intersection(self.shingles.numbers[start:end].tolist()))
        return shared >= LIKENESS * (fewer + more - shared) - _ROUNDING

    def add(self, row: int, rare: list[int], block: int) -> None:
        """Add a row that stays."""
        for shingle in rare:
            rows = self.rows.setdefault((block, shingle), [])
            if len(rows) < _MOST_CANDIDATES:
                rows.append(row)
