"""Code part of the Nemotron post-training set v1: solutions whose problems must be joined back from their origins.

The published user turn is `-`. `metadata` names where the problem stands: data set, split and row. [`problems_from`]
looks it up in local copies, [`rejoined`] adds it to rows, and the conversion takes it from there. There are no tests:
the rows are for supervised training.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets_builders.schema import Row, sft_row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._turns import asked_and_replied, reply

HIDDEN = "-"  # what stands in the place of the problem
# (data set, split, index) of a row's metadata -> its problem, or None
Problems = Callable[[str, str, str], str | None]

# Data sets by their folder below the one that users name, and the columns that make their problems.
_ORIGINS: dict[str, tuple[str, tuple[str, ...]]] = {
    "taco": ("taco", ("question",)),
    "apps": ("apps", ("question",)),
    "code_contests": ("code_contests", ("description",)),
    "open-r1/codeforces": (
        "codeforces",
        ("description", "input_format", "output_format", "examples", "note"),
    ),
}


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The problem of the column `problem` in the place of `-`; the completion is the assistant's turn as it is.

    `extra` keeps where the problem comes from (`dataset`, `split`, `index`), `generator`, `reasoning` and the row's
    `licence`. Dropped: `no_problem` (a row that was not joined), `no_prompt`, `no_reply`, `roles`.
    """
    prompt, replies = asked_and_replied(row["messages"])
    if prompt[-1]["content"].strip() == HIDDEN:
        problem = row.get("problem")
        if problem is None or not problem.strip():
            raise Drop("no_problem")
        prompt = [*prompt[:-1], {"role": "user", "content": problem.strip()}]
    reply(replies)
    return sft_row(
        prompt,
        replies,
        source="nemotron_code",
        source_id=row["uuid"],
        **dict(zip(("dataset", "split", "index"), _origin(row) or (None, None, None), strict=True)),
        generator=row.get("generator"),
        reasoning=row.get("reasoning"),
        licence=row.get("license"),
    )


def rejoined(rows: Iterable[Mapping[str, Any]], problems: Problems) -> Iterator[dict[str, Any]]:
    """Raw rows with the column `problem`, `None` where it is not found, one after another.

    Args:
        rows (`Iterable[Mapping]`): raw rows of the split `code`, a stream as well.
        problems (`Callable`): the problem of (data set, split, index), or `None`; [`problems_from`] makes one.

    Returns:
        `Iterator[dict]`: the same rows in the same order. Written to a JSONL file they are read by
        `build("nemotron_code", local_path=...)`.

    Source: the rule of NVIDIA's cards for joining, by the row's `metadata`.

    Example:

    ```python
    >>> raw = {"uuid": "n1", "metadata": '{"dataset": "taco", "split": "train", "index": "12"}'}
    >>> next(rejoined([raw], lambda dataset, split, index: f"Problem {index} of {dataset}."))["problem"]
    'Problem 12 of taco.'

    ```
    """
    for row in rows:
        origin = _origin(row)
        yield {**row, "problem": problems(*origin) if origin else None}


def _origin(row: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """(data set, split, index) of a row; `None` where its metadata does not say."""
    metadata = row.get("metadata")
    try:
        metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    except (ValueError, RecursionError):
        return None
    if not isinstance(metadata, Mapping) or any(metadata.get(name) is None for name in ("dataset", "split", "index")):
        return None
    return str(metadata["dataset"]), str(metadata["split"]), str(metadata["index"])


class LocalProblems:
    """Problems in local copies of TACO, APPS, CodeContests and open-r1/codeforces; see [`problems_from`].

    A split is read when it is first asked for, and then kept: texts alone, some 50 MB for all of TACO.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        names = [place for place, _ in _ORIGINS.values()]
        if not any((self.folder / name).is_dir() for name in names):
            raise ValueError(
                f"folder={str(folder)!r} holds none of the folders {', '.join(names)}; put the Hub files of each data "
                "set (JSONL or parquet) into one of that name"
            )
        self._texts: dict[tuple[str, str], list[str | None]] = {}

    def __call__(self, dataset: str, split: str, index: str) -> str | None:
        """The problem in a row of a split; `None` where there is no copy, no such row, or no text in it."""
        if dataset not in _ORIGINS or not re.fullmatch(r"\w+", split) or not re.fullmatch("[0-9]{1,9}", index):
            return None
        if (dataset, split) not in self._texts:
            self._texts[dataset, split] = self._read(dataset, split)
        texts = self._texts[dataset, split]
        return texts[int(index)] if int(index) < len(texts) else None

    def _read(self, dataset: str, split: str) -> list[str | None]:
        name, columns = _ORIGINS[dataset]
        files = sorted(
            path
            for path in (self.folder / name).rglob("*")
            if path.suffix in (".jsonl", ".parquet") and re.fullmatch(rf"{split}(-.*)?", path.stem)
        )
        if len({(path.parent, path.suffix) for path in files}) > 1:
            listed = ", ".join(str(path.relative_to(self.folder)) for path in files)
            raise ValueError(
                f"split {split!r} of {dataset} has several copies ({listed}); keep one of them, since rows are counted"
            )
        return [_problem(row) for path in files for row in _file_rows(path, columns)]


def problems_from(folder: str | Path) -> LocalProblems:
    """A lookup of problems in local copies of the data sets that the rows come from, for [`rejoined`].

    Args:
        folder (`str` or `Path`): holds one or more of the folders `taco` (BAAI/TACO), `apps` (codeparrot/apps),
            `code_contests` (deepmind/code_contests) and `codeforces` (open-r1/codeforces, its default configuration),
            each with files named by split as on the Hub: `train.jsonl`, `train-00000-of-00009.parquet`, in
            subfolders as well.

    Returns:
        `LocalProblems`: called with data set, split and index (a row number), it gives the problem or `None`.

    Raises:
        ValueError: When the folder holds none of these, and later when a split is there twice.

    Source: columns as in the snippet on the cards of NVIDIA's OpenCodeReasoning sets: `question` of TACO and APPS,
    `description` of CodeContests, and of codeforces also the formats of input and output, the examples and the note.
    """
    return LocalProblems(folder)


def _file_rows(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    if path.suffix == ".jsonl":
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                if line.strip():
                    yield json.loads(line)
        return
    from pyarrow import parquet

    for batch in parquet.ParquetFile(path).iter_batches(batch_size=1024, columns=list(columns)):
        yield from batch.to_pylist()


def _problem(row: Mapping[str, Any]) -> str | None:
    """The problem of a row of any of the data sets, its parts below headings."""
    if row.get("question"):
        return str(row["question"])
    if not row.get("description"):
        return None
    parts = [str(row["description"])]
    parts += [f"{title}\n\n{row[name]}" for title, name in _FORMATS if row.get(name)]
    for number, example in enumerate(row.get("examples") or (), start=1):
        shown = [f"{name.capitalize()}:\n{example[name]}" for name in ("input", "output") if example.get(name)]
        parts.append("\n\n".join([f"Example {number}", *shown]))
    if row.get("note"):
        parts.append(f"Note\n\n{row['note']}")
    return "\n\n".join(parts)


_FORMATS = (("Input", "input_format"), ("Output", "output_format"))

TRAINING = Source(
    name="nemotron_code",
    convert=convert,
    task="sft",
    licence="cc-by-4.0",
    path="nvidia/Nemotron-Post-Training-Dataset-v1",
    revision="74e23eb6f830fef4a9e96a92f6f6262214cbb9a8",
    split="code",
    columns=("uuid", "messages", "metadata"),
    optional_columns=("problem", "generator", "reasoning", "license"),
    size=1_896_395,
    streaming=True,
    note=(
        "For supervised training only: there are no tests. Problems are not in the set; rows that were not joined with "
        "them by nemotron_code.rejoined are dropped as no_problem."
    ),
)
SOURCES = (TRAINING,)
