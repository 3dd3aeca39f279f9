"""Parquet files read a few rows at a time, on a disk or over the network, whatever the size of their row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

# Rows of a stream that are read at once, and their bytes, where rows are long: those of code may have megabytes each.
STREAM_BATCH, BATCH_BYTES = 32, 2 << 20
STREAM_BYTES = 1 << 20  # of each column that is read at once
# Of a file on the Hub: columns are read in turns, and a block that holds several of them is fetched once.
BLOCK_BYTES, MAX_BLOCKS = 4 << 20, 4


def parquet_batches(file: str, columns: Sequence[str], row_groups: Sequence[int] | None = None) -> Iterator[Any]:
    """Record batches of a few rows, in the memory of a few pages of each column.

    Args:
        file (`str`): a path, or a URL that fsspec opens and reads in ranges: `hf://`, `https://`.
        columns (`Sequence[str]`): columns to read; those that the file does not have are left out.
        row_groups (`Sequence[int]`, *optional*): the row groups to read; by default all.

    Returns:
        `Iterator[pyarrow.RecordBatch]`: the rows in their order.

    Source: the scanner of `pyarrow.dataset`, with which `datasets` reads parquet, holds a row group and what is decoded
        of it. The reader of a file holds the pages that it is at.
    """
    with _parquet_file(file) as table:
        wanted = [name for name in columns if name in table.schema_arrow.names]
        number = _rows_at_once(table.metadata, wanted)
        yield from table.iter_batches(number, row_groups=row_groups, columns=wanted, use_threads=False)


def rows_at_once(file: str, columns: Sequence[str]) -> int:
    """How many rows of a file [`parquet_batches`] reads at once: `STREAM_BATCH`, or `BATCH_BYTES` of long ones."""
    with _parquet_file(file) as table:
        return _rows_at_once(table.metadata, columns)


def _rows_at_once(metadata: Any, columns: Sequence[str]) -> int:
    if not metadata.num_rows:
        return STREAM_BATCH
    size = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = (group.column(index) for index in range(group.num_columns))
        size += sum(one.total_uncompressed_size for one in chunks if one.path_in_schema.split(".")[0] in columns)
    return max(1, min(STREAM_BATCH, BATCH_BYTES * metadata.num_rows // max(size, 1)))


def hold_few_rows(builder: Any, features: Any) -> None:
    """Let a builder of `datasets` that streams parquet read with [`parquet_batches`].

    Which files there are, their splits, types and order, and how a stream resumes, stays as `load_dataset` has it.

    Args:
        builder (`DatasetBuilder`): of the format parquet.
        features (`Features`): columns to read, with their types.
    """
    builder.config.columns = list(features)
    # what `datasets` asks a builder of its own to override
    builder._generate_tables = partial(_tables, schema=features.arrow_schema)
    # the end of a stream waits for threads of the scanner; here there are none
    builder.SLEEP_ON_THREADS_SHUTDOWNS = False


def streams_parquet(builder: Any) -> bool:
    """Whether a builder of `datasets` reads parquet."""
    from datasets.packaged_modules.parquet.parquet import Parquet

    return isinstance(builder, Parquet)


def _tables(
    files: Sequence[str], row_groups_list: Sequence[Sequence[int] | None], *, schema: Any
) -> Iterator[tuple[Any, Any]]:
    """Each batch with its key, as `_generate_tables` gives them; a column that a file does not have is null."""
    import pyarrow as pa
    from datasets.builder import Key
    from datasets.table import table_cast

    for number, (file, row_groups) in enumerate(zip(files, row_groups_list, strict=True)):
        for index, batch in enumerate(parquet_batches(file, schema.names, row_groups)):
            yield Key(number, index), table_cast(pa.Table.from_batches([batch]), schema)


@contextmanager
def _parquet_file(file: str) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile` that reads nothing ahead."""
    import pyarrow.parquet as pq
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    with ExitStack() as stack:
        system, path = url_to_fs(file)
        if not isinstance(system, LocalFileSystem):
            cache = {"cache_type": "blockcache", "cache_options": {"maxblocks": MAX_BLOCKS}}
            path = stack.enter_context(system.open(path, "rb", block_size=BLOCK_BYTES, **cache))
        yield stack.enter_context(pq.ParquetFile(path, pre_buffer=False, buffer_size=STREAM_BYTES))
