"""Training prompts that hold an evaluation prompt, or much of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets_builders._rows import Columns, Verdict, batches, check_rows, filtered
from datasets_builders._text import hint
from datasets_builders.containment import Contained, mark, plain_maths, spaced_maths
from datasets_builders.instructions import instruction_texts
from datasets_builders.ngrams import UNITS, Numbers, Vocabulary, ngrams, words
from datasets_builders.prompts import asked_texts, user_texts
from datasets_builders.schema import alnum

MODES = ("coverage", "any", "exact")
# Places in evaluation prompts that are looked at together: 8 bytes each, in a few arrays.
_MOST_PLACES = 1_000_000

Flags = NDArray[np.bool_]


def decontaminate(
    dataset: Any,
    evaluations: Mapping[str, Any],
    *,
    mode: str = "coverage",
    n: int = 8,
    coverage: float = 0.5,
    unit: str = "word",
    ignore: Iterable[str] | None = None,
    ignore_short_tokens: bool = False,
) -> tuple[Any, dict[str, Any]]:
    r"""The rows whose prompt holds no evaluation prompt, nor `coverage` of one.

    A prompt that equals an evaluation prompt in its letters and digits (NFKC, lower case), or holds it whole, is always
    dropped; one of fewer than 20 letters and digits must stand there as a sentence, and of fewer than 12 alone. Beyond
    that, `mode` says which prompts are:

    - `"coverage"`: those that cover an evaluation prompt: `#{its words in an n-gram that the two share} / #{its words}
      >= coverage`, by the evaluation prompt that is covered most.
    - `"any"`: those that share a single n-gram with an evaluation prompt. Much of what this drops is boilerplate
      ("where $m$ and $n$ are relatively prime positive").
    - `"exact"`: no others.

    A prompt of fewer than `n` words is compared as a whole alone. Words are those of
    [`~datasets_builders.ngrams.words`]: NFKC, lower case, split at spaces, in scripts without spaces each letter by
    itself. How a formula is set is no matter: its dollars, `\left`, `\dfrac` for `\frac` and the spaces around its
    operators. Compared are the system's and the user's turns of a row with the user's turns of an evaluation prompt.
    An instruction that stands in many prompts would count as shared, so the ones that `build` adds are taken out first
    (one that names a function cannot be); name others in `ignore`, or run this on rows built with `instruction="none"`.

    Args:
        dataset (`Dataset | IterableDataset | list[dict]`): training rows with the column `prompt`. A stream is
            filtered as it is read; its report counts what has been read so far in this process.
        evaluations (`Mapping[str, Dataset | Sequence[str]]`): evaluation sets by name: rows with the column `prompt`,
            or texts.
        mode (`str`, defaults to `"coverage"`): `"coverage"`, `"any"` or `"exact"`.
        n (`int`, defaults to 8): words in an n-gram.
        coverage (`float`, defaults to 0.5): share in (0, 1] of an evaluation prompt from which it counts as covered.
        unit (`str`, defaults to `"word"`): `"token"` splits punctuation and symbols from the words and from each other,
            so that an n-gram says less: of MATH's training set it drops three times as many, most for templates like
            "Express your answer as a common fraction."
        ignore (`Iterable[str]`, *optional*): texts that are taken out of all prompts before they are compared, whatever
            their spaces and capitals; by default the instructions of `build`.
        ignore_short_tokens (`bool`, defaults to `False`): leave out n-grams more than half of whose words are one
            character long, such as those of formulas.

    Returns:
        `tuple`: the rows that are kept in their order, and a report: `contaminated` rows dropped, `exact` of them equal
        to an evaluation prompt or with one in them whole, and `by_set` the rows dropped for each evaluation set (one
        row may count for several).

    Raises:
        ValueError: For a setting out of range, no evaluation set, one without prompts, rows without `prompt`, and a
            prompt that is neither a text nor turns with texts.

    Source: Lambert et al. 2024, Tulu 3 (arXiv:2411.15124), 8-grams of tokens and half of the evaluation prompt's
    tokens; ours are words by default. `"any"` is the rule of s1 (arXiv:2501.19393) and open-r1.
    `ignore_short_tokens` is the rule for mathematics of Olmo 3's report.

    Example:

    ```python
    >>> rows = [{"prompt": [{"role": "user", "content": text}]} for text in ("What is 2 + 2?", "What is 2 + 3?")]
    >>> kept, report = decontaminate(rows, {"mine": ["what is $2+2$"]})
    >>> [row["prompt"][0]["content"] for row in kept], report
    (['What is 2 + 3?'], {'contaminated': 1, 'exact': 1, 'by_set': {'mine': 1}})

    ```
    """
    check_rows(dataset, "decontaminate", ["prompt"])
    _check_settings(mode, n, coverage, unit)
    strip = _Strip(ignore)
    prompts = {str(name): _prompts(str(name), texts, strip) for name, texts in _mapping(evaluations).items()}
    overlap = None if mode == "exact" else _Overlap(prompts, n, unit, ignore_short_tokens)
    judge = _Contamination(prompts, strip, overlap, coverage if mode == "coverage" else None)
    report: dict[str, Any] = {"contaminated": 0, "exact": 0, "by_set": dict.fromkeys(prompts, 0)}
    return filtered(dataset, ["prompt"], judge, report), report


def _check_settings(mode: str, n: int, coverage: float, unit: str) -> None:
    for name, value, allowed in (("mode", mode, MODES), ("unit", unit, UNITS)):
        if value not in allowed:
            raise ValueError(f"{name}={value!r} is unknown{hint(value, allowed)}")
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"n={n!r}: the words in an n-gram must be a whole number of at least 1; leave it out for 8")
    if isinstance(coverage, bool) or not isinstance(coverage, (int, float)) or not 0 < coverage <= 1:
        raise ValueError(
            f"coverage={coverage!r}: it must be a share above 0 and of at most 1; leave it out for 0.5, "
            "or pass mode='any' to drop every prompt that shares an n-gram"
        )


def _mapping(evaluations: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(evaluations, Mapping) or not evaluations:
        raise ValueError(
            "evaluations must name at least one evaluation set, as in "
            f"{{'math_500': build_eval('math_500', instruction='none')}}, not {type(evaluations).__name__}"
            + " without any"
            * isinstance(evaluations, Mapping)
        )
    return evaluations


def _prompts(name: str, evaluation: Any, strip: _Strip) -> list[str]:
    """The prompts of an evaluation set, of which one at least must hold something."""
    where = f"evaluations[{name!r}]"
    texts: list[str]
    if isinstance(evaluation, (list, tuple)) and all(isinstance(text, str) for text in evaluation):
        texts = list(evaluation)
    else:
        check_rows(evaluation, where, ["prompt"])
        columns = batches(evaluation, ["prompt"])
        texts = [text for batch in columns for text in user_texts(batch["prompt"], where)]
    if not any(text.strip() for text in texts):
        raise ValueError(f"{where} holds no prompts; give its rows or their texts, or leave it out")
    return [strip(text) for text in texts]


class _Strip:
    """Takes texts out of a text, whatever their spaces and capitals."""

    def __init__(self, ignore: Iterable[str] | None) -> None:
        if isinstance(ignore, str):
            raise ValueError(f"ignore={ignore!r:.60} must be a list of texts; write [...] around it")
        parts = [text.lower().split() for text in (instruction_texts() if ignore is None else ignore) if text.strip()]
        parts.sort(key=lambda words: -sum(map(len, words)))  # a text may begin with another one
        self.longest_words = {max(words, key=len) for words in parts}
        self.pattern = re.compile("|".join(r"\s+".join(map(re.escape, words)) for words in parts), re.IGNORECASE)

    def __call__(self, text: str) -> str:
        lower = text.lower()
        # the pattern is slow, and few texts hold the longest word of one that is looked for
        return self.pattern.sub(" ", text) if any(word in lower for word in self.longest_words) else text


def _whole(text: str) -> str:
    """What equal prompts have in common: letters and digits, or all but the spaces where there are none."""
    return alnum(text) or "".join(text.split())


class _Contamination:
    """Judges batches of prompts by what evaluation prompts they hold."""

    def __init__(
        self, prompts: Mapping[str, list[str]], strip: _Strip, overlap: _Overlap | None, coverage: float | None
    ) -> None:
        self.names = list(prompts)
        self.strip = strip
        self.overlap = overlap
        self.coverage = coverage
        self.sets_of: dict[str, set[int]] = {}  # by what a prompt is equal by, and by the digest of what it may hold
        marks = []
        for number, texts in enumerate(prompts.values()):
            for text in texts:
                if (whole := _whole(text)) and (one := mark(text)) is not None:
                    marks.append(one)
                    self.sets_of.setdefault(one.digest, set()).add(number)
                if whole:
                    self.sets_of.setdefault(whole, set()).add(number)
        self.contained = Contained(marks)

    def __call__(self, batch: Columns) -> Verdict:
        asked = asked_texts(batch["prompt"], "decontaminate")
        texts = [self.strip(text) for text in asked]
        found = np.zeros((len(texts), len(self.names)), dtype=np.bool_)
        for row, text in enumerate(texts):
            for key in (_whole(text), *self.contained.found(text)):
                found[row, list(self.sets_of.get(key, ()))] = True
        exact = int(found.any(axis=1).sum())
        if self.overlap is not None:
            self.overlap.mark(texts, found, self.coverage)
        contaminated = list(map(any, found.tolist()))
        by_set = dict(zip(self.names, found.sum(axis=0).tolist(), strict=True))
        counts = {"contaminated": sum(contaminated), "exact": exact, "by_set": by_set}
        return [not dropped for dropped in contaminated], counts


def _words(text: str, unit: str) -> list[str]:
    return words(spaced_maths(plain_maths(text)), unit)


class _Overlap:
    """The n-grams of all evaluation prompts, by hash, with the places where each of them stands.

    A place is a word's number among the words of all evaluation prompts, one prompt after another.
    """

    def __init__(self, prompts: Mapping[str, list[str]], n: int, unit: str, ignore_short_tokens: bool) -> None:
        self.n = n
        self.unit = unit
        self.vocabulary = Vocabulary()
        texts = [_words(text, unit) for texts in prompts.values() for text in texts]
        numbers, self.lengths = self.vocabulary.numbers(texts)
        self.prompt_of = np.repeat(np.arange(len(texts), dtype=np.int64), self.lengths)
        self.set_of = np.repeat(np.arange(len(prompts), dtype=np.int64), [len(texts) for texts in prompts.values()])
        hashes, _, places = ngrams(numbers, self.lengths, n)
        if ignore_short_tokens:
            short = np.array([len(word) == 1 for text in texts for word in text], dtype=np.int64)
            mostly_short = _window_sums(short, places, n) * 2 > n
            hashes, places = hashes[~mostly_short], places[~mostly_short]
        order = np.argsort(hashes, kind="stable")
        self.places = places[order]
        self.hashes, firsts = np.unique(hashes[order], return_index=True)
        self.bounds = np.append(firsts, len(hashes)).astype(np.int64)

    def mark(self, texts: Sequence[str], found: Flags, coverage: float | None) -> None:
        """Set `found[text, set]` for every text that shares an n-gram with a prompt of the set, or covers one."""
        if not len(self.hashes):
            return
        numbers, lengths = self.vocabulary.known([_words(text, self.unit) for text in texts])
        hashes, rows, starts = ngrams(numbers, lengths, self.n)
        known = _window_sums((numbers == 0).astype(np.int64), starts, self.n) == 0
        hashes, rows = hashes[known], rows[known]
        entries = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        shared = self.hashes[entries] == hashes
        # an n-gram that a text holds twice is looked at once
        codes = np.unique(rows[shared] * len(self.hashes) + entries[shared])
        rows, entries = np.divmod(codes, len(self.hashes))
        for part in _parts(rows, self.bounds[entries + 1] - self.bounds[entries]):
            self._mark_part(rows[part], entries[part], found, coverage)

    def _mark_part(self, rows: Numbers, entries: Numbers, found: Flags, coverage: float | None) -> None:
        counts = self.bounds[entries + 1] - self.bounds[entries]
        # every place of every entry: bounds[e], bounds[e] + 1, ... one entry after another
        offsets = np.arange(counts.sum(), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        places = self.places[np.repeat(self.bounds[entries], counts) + offsets]
        codes = np.sort(np.repeat(rows, counts) * len(self.prompt_of) + places)
        rows, places = np.divmod(codes, len(self.prompt_of))
        prompts = self.prompt_of[places]
        same = (rows[1:] == rows[:-1]) & (prompts[1:] == prompts[:-1])
        # an n-gram covers n words, less those that the next one covers too
        covered = np.full(len(places), self.n, dtype=np.int64)
        covered[:-1][same] = np.minimum(np.diff(places)[same], self.n)
        firsts = np.flatnonzero(np.append(True, ~same))
        rows, prompts, sums = rows[firsts], prompts[firsts], np.add.reduceat(covered, firsts)
        enough = sums > 0 if coverage is None else sums >= coverage * self.lengths[prompts] - 1e-9
        found[rows[enough], self.set_of[prompts[enough]]] = True


def _window_sums(values: Numbers, starts: Numbers, n: int) -> Numbers:
    """Sum of the n values from each start."""
    sums = np.append(0, np.cumsum(values))
    result: Numbers = sums[starts + n] - sums[starts]
    return result


def _parts(rows: Numbers, counts: Numbers) -> Iterator[slice]:
    """Slices that hold all entries of their rows, and few enough places to be looked at together."""
    if not len(rows):
        return
    row_starts = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
    before = (np.cumsum(counts) - counts)[row_starts]
    new = np.flatnonzero(np.append(True, np.diff(before // _MOST_PLACES) > 0))
    bounds = [*row_starts[new].tolist(), len(rows)]
    for start, end in pairwise(bounds):
        yield slice(start, end)
