"""Texts that hold another text whole, whatever stands in front of it and behind it, and however it is set."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from hashlib import sha1
from itertools import accumulate
from typing import NamedTuple
from zlib import crc32

HEAD = 12  # bytes of letters and digits by which a place is found; a text of fewer is compared as a whole alone
# A text of fewer must stand there as a sentence of its own: "Compute sin 60" is the beginning of many problems.
ALONE = 20

_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_COMMANDS = re.compile(
    r"\\(?:left|right|bigg?[lrm]?|displaystyle|textstyle|limits)(?![a-z])\s*|\\[!$]|(?<!\\)\\[()\[\]]|\\d?t?c?(frac|binom)"
    r"|(\\[lgn]e)q(?![a-z])"
)
_SPACES = re.compile(r"\\(?:[,;: ]|q?quad(?![a-z])|\s)|~")
_RUN = re.compile(r"[^\W_]+")
_BEFORE = re.compile(r"[.?!:;。？！：]\W*\s|[。？！：]|\n")
_BEHIND = re.compile(r"[.?](?!\S*\w)|[。？！]|\n")


def plain_maths(text: str) -> str:
    r"""A text in lower case (NFKC) without what formulas differ in that are the same to a reader.

    `$`, `\(` and `\[`, `\left` and `\right`, commands for spaces and sizes go; `\dfrac` is `\frac`, `\leq` is `\le`.

    Args:
        text (`str`): the text.

    Example:

    ```python
    >>> plain_maths(r"Find \( \dfrac{1}{2}\left(x\right) \)."), plain_maths(r"Find $\frac{1}{2}(x)$.")
    ('find  \\frac{1}{2}(x) .', 'find \\frac{1}{2}(x).')

    ```
    """
    if text.isascii():
        text = text.lower()
    else:
        text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text).casefold())
    if "\\" in text or "~" in text:
        text = _SPACES.sub(" ", _COMMANDS.sub(_command, text))
    return text.replace("$", "")


def _command(match: re.Match[str]) -> str:
    return f"\\{match[1]}" if match[1] else match[2] or ""


_TIGHT = re.compile(r" ?([=+\-<>*/^_&|]) ?|([(\[{]) | ([)\]},.;:?!])")


def spaced_maths(plain: str) -> str:
    r"""What [`plain_maths`] gives with one way to set spaces: none around operators and within brackets, one at commas.

    Args:
        plain (`str`): as [`plain_maths`] gives it.

    Example:

    ```python
    >>> spaced_maths("find x + 1 = ( 2,3 ) ."), spaced_maths("find x+1=(2, 3).")
    ('find x+1=(2, 3).', 'find x+1=(2, 3).')

    ```
    """
    return _TIGHT.sub(r"\1\2\3", " ".join(plain.replace(",", ", ").split()))


class Mark(NamedTuple):
    """What a text is found by: the hash of its letters and digits, their number in bytes, and a hash of the first."""

    digest: str
    length: int
    head: int


def mark(text: str) -> Mark | None:
    r"""The mark of a text, `None` for one of fewer than `HEAD` bytes of letters and digits.

    Args:
        text (`str`): the text.

    Example:

    ```python
    >>> mark(r"Compute $\dfrac{1}{2}$.") == mark(r"compute \frac12"), mark("1 + 1")
    (True, None)

    ```
    """
    letters = "".join(_RUN.findall(plain_maths(text))).encode("utf-8", "surrogatepass")
    if len(letters) < HEAD:
        return None
    return Mark(_digest(letters), len(letters), crc32(letters[:HEAD]))


def _digest(letters: bytes) -> str:
    return sha1(letters).hexdigest()[:16]


class Contained:
    """Finds the texts of some marks in other texts.

    Args:
        marks (`Iterable[Mark]`): as [`mark`] gives them.

    Example:

    ```python
    >>> known = Contained([mark(r"Find the least common multiple of $9$ and $12$.")])
    >>> len(known.found(r"Solve this. Find the least common multiple of \\(9\\) and \\(12\\). Think first."))
    1

    ```
    """

    def __init__(self, marks: Iterable[Mark]) -> None:
        self.marks: dict[int, dict[int, set[str]]] = {}  # digests by head and length: many texts may begin alike
        for one in marks:
            self.marks.setdefault(one.head, {}).setdefault(one.length, set()).add(one.digest)

    def found(self, text: str) -> set[str]:
        """Digests of the marks whose texts stand in `text`, from the beginning of a word to the end of one.

        Args:
            text (`str`): a prompt.
        """
        plain = plain_maths(text)
        runs = _RUN.findall(plain)
        letters = "".join(runs).encode("utf-8", "surrogatepass")
        if len(letters) == sum(map(len, runs)):
            ends = list(accumulate(map(len, runs)))
        else:
            ends = list(accumulate(len(run.encode("utf-8", "surrogatepass")) for run in runs))
        get = self.marks.get
        found: set[str] = set()
        known: dict[int, int] | None = None
        places: list[tuple[int, int]] | None = None
        for first, start in enumerate([0, *ends[:-1]] if ends else ()):
            lengths = get(crc32(letters[start : start + HEAD]))
            if lengths is None:
                continue
            known = known or {end: word for word, end in enumerate(ends)}
            for length, digests in lengths.items():
                last = known.get(start + length)
                if last is None or (digest := _digest(letters[start : start + length])) not in digests:
                    continue
                if length < ALONE:
                    places = places or [run.span() for run in _RUN.finditer(plain)]
                    if not _is_sentence(plain, places, first, last):
                        continue
                found.add(digest)
        return found


def _is_sentence(plain: str, places: list[tuple[int, int]], first: int, last: int) -> bool:
    """Whether the words from `first` to `last` of a text stand there as a sentence, or as several."""
    begins = first == 0 or _BEFORE.search(plain[places[first - 1][1] : places[first][0]]) is not None
    ends = last + 1 == len(places) or _BEHIND.search(plain[places[last][1] : places[last + 1][0]]) is not None
    return begins and ends
