"""Reading and choosing rows of a data set, a stream or a list alike, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

BATCH = 1000

Columns = dict[str, list[Any]]
# whether each row of a batch stays, and what to count of the batch
Verdict = tuple[Sequence[bool], Mapping[str, Any]]
Judge = Callable[[Columns], Verdict]


def is_stream(dataset: Any) -> bool:
    """Whether the rows can only be read one after another: an `IterableDataset`."""
    return hasattr(dataset, "select_columns") and not hasattr(dataset, "select")


def check_rows(dataset: Any, check: str, columns: Sequence[str] = (), *, stream: bool = True) -> None:
    """Refuse what a check cannot read.

    Args:
        dataset (`Dataset | IterableDataset | list[dict]`): the rows.
        check (`str`): name of the check.
        columns (`Sequence[str]`): columns that it needs.
        stream (`bool`): whether it can read a stream.

    Raises:
        ValueError: For splits instead of one, anything else that holds no rows, a stream where all rows are needed at
            once, and a column that is not there.
    """
    if isinstance(dataset, Mapping):
        raise ValueError(f"{check}: the data is a dict of {', '.join(map(str, dataset)) or 'nothing'}; give one split")
    if is_stream(dataset):
        if not stream:
            raise ValueError(
                f"{check} needs all rows at once and cannot read a stream; take rows first: "
                "Dataset.from_list(list(dataset.take(1000)))"
            )
    elif not (hasattr(dataset, "select") or _is_list_of_rows(dataset)):
        raise ValueError(f"{check}: the data must be a Dataset or a list of rows, not {type(dataset).__name__}")
    known = column_names(dataset)
    missing = [name for name in columns if known is not None and name not in known]
    if missing:
        raise ValueError(
            f"{check} needs the column {missing[0]!r}, and the data has {', '.join(map(str, known or []))}; "
            "build it with datasets_builders.build"
        )


def _is_list_of_rows(data: Any) -> bool:
    listed = isinstance(data, Sequence) and not isinstance(data, (str, bytes))
    return listed and all(isinstance(row, Mapping) for row in data)


def column_names(dataset: Any) -> list[str] | None:
    """Columns of the rows; `None` where they are not known: in some streams, and in an empty list."""
    if hasattr(dataset, "column_names"):
        names: list[str] | None = dataset.column_names
        return names
    return list(dataset[0]) if len(dataset) else None


def batches(dataset: Any, columns: Sequence[str]) -> Iterator[Columns]:
    """The columns of the rows in their order, `BATCH` rows at a time; a column that is not there is left out."""
    known = column_names(dataset)
    names = [name for name in columns if known is None or name in known]
    if hasattr(dataset, "select_columns"):
        # a set format (torch, arrow) would change the types
        plain = dataset.select_columns(names).with_format(None)
        yield from plain.iter(batch_size=BATCH)
        return
    for start in range(0, len(dataset), BATCH):
        rows = dataset[start : start + BATCH]
        yield {name: [row[name] for row in rows] for name in names}


def selected(dataset: Any, rows: Sequence[int]) -> Any:
    """The rows of these numbers, which increase; the data set itself where these are all."""
    if len(rows) == len(dataset):
        return dataset
    return dataset.select(rows) if hasattr(dataset, "select") else [dataset[row] for row in rows]


def filtered(dataset: Any, columns: Sequence[str], judge: Judge, report: dict[str, Any]) -> Any:
    """The rows that `judge` keeps, in their order; `report`, which holds zeros, gets the sums of what it counts.

    A stream is filtered as it is read, and the report counts what has been read in this process; reading from the
    start again counts anew.
    """
    if is_stream(dataset):
        read = _StreamFilter(judge, report, columns)
        return dataset.filter(read, with_indices=True, input_columns=list(columns), batched=True, batch_size=BATCH)
    kept: list[int] = []
    start = 0
    for batch in batches(dataset, columns):
        keep, counts = judge(batch)
        add(report, counts)
        kept += [start + i for i, stays in enumerate(keep) if stays]
        start += len(keep)
    return selected(dataset, kept)


class _StreamFilter:
    """What `IterableDataset.filter` calls: an object with a name, so that it pickles."""

    def __init__(self, judge: Judge, report: dict[str, Any], columns: Sequence[str]) -> None:
        self.judge = judge
        self.report = report
        self.columns = columns

    def __call__(self, *values: list[Any]) -> list[bool]:
        *columns, indices = values
        if indices and indices[0] == 0:
            _clear(self.report)
        keep, counts = self.judge(dict(zip(self.columns, columns, strict=True)))
        add(self.report, counts)
        return list(map(bool, keep))


def add(report: dict[str, Any], counts: Mapping[str, Any]) -> None:
    """Add counts to those of a report, entry by entry."""
    for name, count in counts.items():
        if isinstance(count, Mapping):
            add(report[name], count)
        else:
            report[name] += int(count)


def _clear(report: dict[str, Any]) -> None:
    for name, count in report.items():
        if isinstance(count, dict):
            _clear(count)
        else:
            report[name] = 0
