"""A build that reads its rows one after another and never holds many of them."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any

from datasets_builders.converting import converted_rows, texts
from datasets_builders.duplicates import prompt_key
from datasets_builders.instructions import instructed
from datasets_builders.loading import RawRows
from datasets_builders.report import BuildReport
from datasets_builders.schema import Row, prompt_text
from datasets_builders.source import Source

# A sample is drawn through a buffer of so many rows, or so many characters where rows are long.
BUFFER_ROWS, BUFFER_CHARACTERS = 10_000, 32 << 20
# Different rows whose hashes are kept, 8 bytes each: 64 MiB when full. Later duplicates of them are still found.
MAX_TEXTS = 6_000_000


def compared_text(row: Row) -> str:
    """What `deduplicate` compares: the prompt, with the completion of a supervised row or both replies of a pair."""
    parts = [prompt_text(row)]
    if "chosen" in row:
        parts += sorted((_said(row[side]) for side in ("chosen", "rejected")), key=prompt_key)
    elif "completion" in row:
        parts.append(_said(row["completion"]))
    return prompt_key("\n".join(parts))


def _said(turns: list[dict[str, str]]) -> str:
    return "\n".join(turn["content"] for turn in turns)


class SeenTexts:
    """Which texts have been met: a set of 8-byte hashes in one array, so that millions take tens of MB.

    Two different texts of n fall on one hash with a probability of `n^2 / 2^65`, 1e-6 for six million.

    Args:
        limit (`int`): texts that are remembered; later ones are new each time.

    Example:

    ```python
    >>> seen = SeenTexts(limit=1)
    >>> seen.add("a"), seen.add("a"), seen.add("b"), seen.add("b")
    (True, False, True, True)

    ```
    """

    def __init__(self, limit: int = MAX_TEXTS) -> None:
        self.limit = limit
        self.count = 0
        self._slots = array("Q", bytes(8 << 10))

    def add(self, text: str) -> bool:
        """Whether a text is new."""
        key = int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()) or 1
        slot = self._slot(self._slots, key)
        if self._slots[slot] == key:
            return False
        if self.count < self.limit:
            self._slots[slot] = key
            self.count += 1
            if self.count * 4 > len(self._slots) * 3:
                self._grow()
        return True

    @property
    def is_full(self) -> bool:
        """Whether new texts are no longer remembered."""
        return self.count >= self.limit

    @staticmethod
    def _slot(slots: array[int], key: int) -> int:
        mask = len(slots) - 1
        slot = key & mask
        while slots[slot] not in (0, key):
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        slots = array("Q", bytes(16 * len(self._slots)))
        for key in filter(None, self._slots):
            slots[self._slot(slots, key)] = key
        self._slots = slots


@dataclass
class Stream:
    """A build as a generator of rows; each pass starts anew and gives the same rows in the same order.

    Args:
        source (`Source`): facts and conversion.
        raw (`RawRows`): an `IterableDataset` of raw rows.
        report (`BuildReport`): counts what this process reads.
        deduplicate (`bool`): drop rows whose prompt was met before.
        draw (`bool`): whether `max_samples` rows are drawn, not simply the first ones.
    """

    source: Source
    raw: RawRows
    report: BuildReport
    deduplicate: bool = True
    draw: bool = True

    def rows(self) -> Iterator[Row]:
        """The finished rows.

        Raises:
            ValueError: At the end of a stream that gave no row.
        """
        report = self.report
        report.restart()
        rows = self._new(self._converted()) if self.deduplicate else self._converted()
        if report.max_samples is not None:
            rows = islice(shuffled(rows, report.seed) if self.draw else rows, report.max_samples)
        for row in rows:
            report.kept += 1
            yield instructed(row, instruction=report.instruction, system_prompt=report.system_prompt)
        if report.max_samples is not None:
            report.sampled = report.kept
            if report.kept < report.max_samples:
                report.warn_of_few(report.kept)
        report.not_sampled = (
            report.loaded - sum(report.dropped.values()) - report.duplicates - report.disagreeing - report.kept
        )
        report.complete = True
        report.refuse_empty()

    def _converted(self) -> Iterator[Row]:
        for batch in self.raw.batches():
            for row, reason in converted_rows(batch, self.source, self.report.seed):
                self.report.loaded += 1
                if row is None:
                    self.report.drop(str(reason))
                else:
                    yield row

    def _new(self, rows: Iterable[Row]) -> Iterator[Row]:
        seen = SeenTexts()
        for row in rows:
            if seen.add(compared_text(row)):
                yield row
            else:
                self.report.duplicates += 1
            if seen.is_full:
                self.report.warn(
                    f"{self.report.name}: after {seen.limit} different rows new ones are not remembered, so that their "
                    "duplicates stay"
                )


def stream_rows(stream: Stream) -> Iterator[Row]:
    """What `IterableDataset.from_generator` calls: a function with a name, so that it pickles."""
    return stream.rows()


def shuffled(rows: Iterable[Row], seed: int) -> Iterator[Row]:
    """The rows in an order drawn with `seed`, each at most a buffer's length before its place.

    Args:
        rows (`Iterable[dict]`): rows of the schema.
        seed (`int`): of the draw; the same rows and seed give the same order.
    """
    draw = random.Random(seed)
    buffer: list[tuple[Row, int]] = []
    size = 0
    for row in rows:
        length = sum(map(len, texts(row)))
        buffer.append((row, length))
        size += length
        while len(buffer) > BUFFER_ROWS or (size > BUFFER_CHARACTERS and len(buffer) > 1):
            index = draw.randrange(len(buffer))
            buffer[index], buffer[-1] = buffer[-1], buffer[index]
            chosen, length = buffer.pop()
            size -= length
            yield chosen
    draw.shuffle(buffer)
    for row, _ in buffer:
        yield row


def dataset_of(stream: Stream, features: Any) -> Any:
    """An `IterableDataset` of a stream, with typed columns."""
    from datasets import IterableDataset

    return IterableDataset.from_generator(stream_rows, features=features, gen_kwargs={"stream": stream})
