"""Parquet files read a few rows at a time, on a disk or over the network, whatever the size of their row groups."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

# Rows of a batch, and their bytes, where rows are long: those of code may have megabytes each.
STREAM_BATCH, BATCH_BYTES = 32, 2 << 20
STREAM_BYTES = 1 << 20  # of each column that is read at once
# Of a file on the Hub: columns are read in turns, and a block that holds several of them is fetched once.
BLOCK_BYTES, MAX_BLOCKS = 4 << 20, 4


def parquet_batches(file: str, columns: Sequence[str], row_groups: Sequence[int] | None = None) -> Iterator[Any]:
    """Record batches of a few rows, in the memory of a page of each column.

    Args:
        file (`str`): a path, or a URL that fsspec opens and reads in ranges: `hf://`, `https://`.
        columns (`Sequence[str]`): columns to read; those that the file does not have are left out.
        row_groups (`Sequence[int]`, *optional*): the row groups to read; by default all.

    Returns:
        `Iterator[pyarrow.RecordBatch]`: the rows in their order, `STREAM_BATCH` at once or `BATCH_BYTES` of them; a
        longer row comes alone.

    Source: the scanner of `pyarrow.dataset`, with which `datasets` reads parquet, holds a row group and what is decoded
        of it. The reader of a file holds the pages that it is at; here it decodes one row after another, since no
        figure of a file or row group tells how long its longest rows are.
    """
    with parquet_file(file) as table:
        yield from batches_of(table, [name for name in columns if name in table.schema_arrow.names], row_groups)


def batches_of(table: Any, columns: Sequence[str], row_groups: Sequence[int] | None = None) -> Iterator[Any]:
    """[`parquet_batches`] of a file that is open, which has all `columns`."""
    return _gathered(table.iter_batches(1, row_groups=row_groups, columns=list(columns), use_threads=False))


def _gathered(batches: Iterable[Any]) -> Iterator[Any]:
    """Small record batches put together up to `STREAM_BATCH` of them or `BATCH_BYTES`."""
    import pyarrow as pa

    held: list[Any] = []
    size = 0
    for batch in batches:
        if held and (len(held) == STREAM_BATCH or size + batch.nbytes > BATCH_BYTES):
            full, held, size = held, [], 0
            yield pa.concat_batches(full) if len(full) > 1 else full.pop()
            del full
        held.append(batch)
        size += batch.nbytes
    if held:
        yield pa.concat_batches(held)


@contextmanager
def parquet_file(file: str) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile` that reads nothing ahead, of a path or a URL."""
    import pyarrow.parquet as pq
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    with ExitStack() as stack:
        system, path = url_to_fs(file)
        if not isinstance(system, LocalFileSystem):
            cache = {"cache_type": "blockcache", "cache_options": {"maxblocks": MAX_BLOCKS}}
            path = _Blocks(stack.enter_context(system.open(path, "rb", block_size=BLOCK_BYTES, **cache)))
        yield stack.enter_context(pq.ParquetFile(path, pre_buffer=False, buffer_size=STREAM_BYTES))


class _Blocks(io.RawIOBase):
    """A file of fsspec of which a long part is put together in one buffer.

    The cache of blocks keeps all blocks of a part beside the joined copy of them: three times a page of parquet, with
    the copy that Arrow makes.
    """

    def __init__(self, file: Any) -> None:
        self.file = file

    def read(self, size: int = -1, /) -> Any:
        """So many bytes from here, fewer at the end of the file."""
        left = self.file.size - self.file.tell()
        size = left if size < 0 else min(size, left)
        if size <= BLOCK_BYTES:
            return self.file.read(size)
        found = bytearray(size)
        at = 0
        while at < size:
            part = self.file.read(min(BLOCK_BYTES, size - at))
            if not part:
                raise OSError(f"the file ends {size - at} bytes too early")
            found[at : at + len(part)] = part
            at += len(part)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place."""
        return int(self.file.seek(offset, whence))

    def tell(self) -> int:
        """The place in the file."""
        return int(self.file.tell())

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True


def streams_parquet(builder: Any) -> bool:
    """Whether a builder of `datasets` reads parquet."""
    from datasets.packaged_modules.parquet.parquet import Parquet

    return isinstance(builder, Parquet)
