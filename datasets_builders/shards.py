"""Rows written as parquet files, with a hash of what they hold."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets_builders.evaluation_rows import evaluation_source, has_mark, is_evaluation_split

BATCH_ROWS = 1000
# A file of the data set is closed when it holds so many bytes; the size that `datasets` uses.
SHARD_BYTES = 500 << 20


class SavingError(ValueError):
    """A data set that is not written or pushed; the message names the remedy."""


class Content:
    """A hash of columns and rows, which come in batches of `BATCH_ROWS`."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, rows: Any) -> None:
        """Add a table."""
        import pyarrow as pa

        # a copy: of a slice the file format writes neighbouring bytes, too. So equal rows make equal bytes
        plain = rows.replace_schema_metadata(None).take(pa.array(range(rows.num_rows))).combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, plain.schema) as writer:
            writer.write_table(plain)
        self._digest.update(sink.getvalue())

    @property
    def hash(self) -> str:
        """Of what was added so far."""
        return f"sha256:{self._digest.hexdigest()[:16]}"


@dataclass
class Written:
    """The rows that were written: their number, the first one, and what the report says of the files."""

    num_rows: int
    example: dict[str, Any]
    facts: dict[str, Any]


def write_rows(dataset: Any, folder: Path, *, split: str = "train", shard_bytes: int = SHARD_BYTES) -> Written:
    """Write rows as parquet files of about `shard_bytes` under `folder/data`, with a batch of them in memory at a time.

    Raises:
        SavingError: For a data set without rows, or without typed columns, and for rows of an evaluation set in a split
            to train on.
    """
    from datasets.utils import tqdm

    if dataset.features is None:
        raise SavingError("the data set has no typed columns; build it with datasets_builders.build")
    shards = _Shards(folder / "data", dataset.features.arrow_schema, shard_bytes)
    num_rows, example, content = 0, None, Content()
    total = len(dataset) if hasattr(dataset, "__len__") else None
    with tqdm(desc="Writing", unit=" rows", total=total) as bar, shards:
        for rows in dataset.with_format("arrow").iter(batch_size=BATCH_ROWS):
            if is_for_training(split):
                _refuse_evaluation_rows(rows, has_mark(dataset))
            example = rows.slice(0, 1).to_pylist()[0] if example is None else example
            rows = rows.cast(shards.schema)
            shards.write(rows)
            content.add(rows)
            num_rows += rows.num_rows
            bar.update(rows.num_rows)
    if example is None:
        raise SavingError("the data set holds no rows, so nothing was written; look at the counts of its report")
    facts = {"rows": num_rows, "data_split": split, "columns": list(dataset.features)}
    facts["content"] = content.hash
    return Written(num_rows, example, facts | {"files": shards.named(split)})


def is_for_training(split: str) -> bool:
    """Whether rows of a split are trained on, by its name."""
    return not is_evaluation_split(split)


def _refuse_evaluation_rows(rows: Any, is_marked: bool) -> None:
    name = evaluation_source([rows])
    if name is not None or is_marked:
        raise evaluation_error("build_eval" if name is None else repr(name))


def evaluation_error(whose: str) -> SavingError:
    """What is said of rows of an evaluation set in a split to train on."""
    return SavingError(
        f"the data set holds rows of {whose}, an evaluation set, which never becomes training data; leave them out, or "
        "give split='test' to store them as what they are"
    )


class _Shards:
    """Parquet files, each closed when it has got enough bytes."""

    def __init__(self, folder: Path, schema: Any, limit: int) -> None:
        self.folder = folder
        self.schema = schema
        self.limit = limit
        self.paths: list[Path] = []
        self._writer: Any = None
        self._size = 0
        folder.mkdir()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, rows: Any) -> None:
        """Add a table to the file that is open, or to the next one where that is full."""
        import pyarrow.parquet as pq

        if self._writer is None or self._size >= self.limit:
            self.__exit__()
            self.paths.append(self.folder / f"{len(self.paths):05d}.parquet")
            self._writer, self._size = pq.ParquetWriter(self.paths[-1], self.schema), 0
        self._writer.write_table(rows)
        self._size += rows.nbytes

    def named(self, split: str) -> list[dict[str, Any]]:
        """Path, size and hash of each file, under the name that the Hub gives such files."""
        names = [f"{split}-{index:05d}-of-{len(self.paths):05d}.parquet" for index in range(len(self.paths))]
        return [_named(path, name) for path, name in zip(self.paths, names, strict=True)]


def _named(path: Path, name: str) -> dict[str, Any]:
    target = path.with_name(name)
    path.rename(target)
    with target.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"path": f"data/{name}", "bytes": target.stat().st_size, "sha256": digest}
