"""Words of a text, and 64-bit hashes of its n-grams by the million."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNITS = ("word", "token")

Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]

# Letters of scripts that are written without spaces: Chinese and Japanese, Thai and Lao, Burmese, Khmer.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U000323af"
)
_WORD = re.compile(f"[{UNSPACED}]|[^\\s{UNSPACED}]+")
_TOKEN = re.compile(f"[{UNSPACED}]|[^\\W{UNSPACED}]+|[^\\w\\s]")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def words(text: str, unit: str = "word") -> list[str]:
    r"""Words of a text in lower case, in NFKC: what duplicates and overlaps are told by.

    A letter of a script that is written without spaces is a word of its own.

    Args:
        text (`str`): the text.
        unit (`str`, defaults to `"word"`): `"word"` for what stands between spaces, with its punctuation; `"token"` for
            runs of letters and digits, and each other character by itself.

    Example:

    ```python
    >>> words("Find  $x^2$, please."), words("求 x 的值")
    (['find', '$x^2$,', 'please.'], ['求', 'x', '的', '值'])
    >>> words("Find $x^2$.", "token")
    ['find', '$', 'x', '^', '2', '$', '.']

    ```
    """
    if text.isascii():
        lower = text.lower()
        return lower.split() if unit == "word" else _TOKEN.findall(lower)
    return (_WORD if unit == "word" else _TOKEN).findall(unicodedata.normalize("NFKC", text).casefold())


class Vocabulary(dict[str, int]):
    """Numbers of words from 1, a new one for each word that is looked up."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self) + 1
        return number

    def numbers(self, texts: Sequence[Sequence[str]]) -> tuple[Hashes, Numbers]:
        """The numbers of all words of the texts one after another, and how many words each text has."""
        return _array(map(self.__getitem__, chain.from_iterable(texts)), texts)

    def known(self, texts: Sequence[Sequence[str]]) -> tuple[Hashes, Numbers]:
        """[`numbers`] with 0 for each word that is new."""
        get = self.get
        return _array((get(word, 0) for word in chain.from_iterable(texts)), texts)


def _array(values: Any, texts: Sequence[Sequence[str]]) -> tuple[Hashes, Numbers]:
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    return np.fromiter(values, dtype=np.uint64, count=int(lengths.sum())), lengths


def ngrams(numbers: Hashes, lengths: Numbers, n: int) -> tuple[Hashes, Numbers, Numbers]:
    """Hashes of the n-grams within each text.

    Args:
        numbers (`(W,) uint64`): words of the texts one after another, by number.
        lengths (`(T,) int64`): words of each text.
        n (`int`): words in an n-gram.

    Returns:
        `tuple`: `(N,)` hashes, `(N,)` the text of each, and `(N,)` the place of its first word in `numbers`. Two
        different n-grams have one hash with a probability of about 5e-20.
    """
    width = max(len(numbers) - n + 1, 0)
    mixed = _mixed(numbers)
    hashes = np.zeros(width, dtype=np.uint64)
    for offset in range(n):
        hashes *= _MULTIPLIER
        hashes += mixed[offset : offset + width]
    texts = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    starts = np.flatnonzero(texts[:width] == texts[n - 1 : n - 1 + width]).astype(np.int64)
    return _mixed(hashes[starts]), texts[starts], starts


def _mixed(values: Hashes) -> Hashes:
    """The finalizer of SplitMix64: numbers that lie side by side get hashes that do not."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
