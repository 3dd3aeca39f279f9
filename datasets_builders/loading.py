"""Raw rows of a source, as the Hub or a local copy of its files has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

from datasets_builders._text import first_line, hint
from datasets_builders.connection import Explained, offline_where_unreachable
from datasets_builders.first_read import COMMIT, commits_file, first_commit, keep_commit
from datasets_builders.local_files import (
    JSON_SUFFIXES,
    LoadingError,
    LocalPath,
    data_files,
    file_facts,
    hash_of_facts,
    json_row,
    json_texts,
    listed,
)
from datasets_builders.parquet_stream import batches_of, parquet_file, streams_parquet
from datasets_builders.source import Source

# The one column of rows that are kept as JSON text, and of rows that a procedural source is yet to make.
JSON_COLUMN, INDEX_COLUMN = "__json__", "__index__"
GENERATED_ROWS = 10_000  # of a procedural source, where no number is asked for
MAX_TRIES = 32  # generated rows for each different one that is asked for
# Where the rows of a procedural test split begin: no train split reaches so far.
TEST_START = 10**12
LOOKED_AT = 100  # rows of a JSON file in which a column must show up

RawRow = Mapping[str, Any]


@dataclass(frozen=True)
class RowStream:
    """Rows of a generator, which starts anew each time that they are read.

    Args:
        generator (`Callable`): gives the rows, a mapping each.
        arguments (`Mapping`): its arguments.
    """

    generator: Callable[..., Iterator[RawRow]]
    arguments: Mapping[str, Any]

    def iter(self, batch_size: int) -> Iterator[dict[str, list[Any]]]:
        """Batches of columns, as those of an `IterableDataset`; a row each, whatever `batch_size` says."""
        for row in self.generator(**self.arguments):
            yield {name: [value] for name, value in row.items()}


@dataclass
class RawRows:
    """Raw rows and where they come from.

    Args:
        dataset (`Dataset` or `list`): the columns that the source's conversion reads; one column `JSON_COLUMN` or
            `INDEX_COLUMN` where the rows are still to be read, with [`raw_rows_of`]. Of a stream, its parts in their
            order: `IterableDataset` or [`RowStream`].
        revision (`str`, *optional*): commit of the Hub that the rows are of, where it is known.
        files (`tuple[str, ...]`): names of the local files.
        where (`str`): how a message calls the place that they are read from.
        files_hash (`str`, *optional*): hash of the content of the local files.
    """

    dataset: Any
    revision: str | None = None
    files: tuple[str, ...] = ()
    where: str = ""
    files_hash: str | None = None

    def batches(self) -> Iterator[Mapping[str, list[Any]]]:
        """The rows of a stream, one at a time; errors of the place that they are read from have a remedy."""
        for part in self.dataset:
            # a row may have megabytes, so that no number of them is a small one. `iter(batch_size)` is not split among
            # the workers of a DataLoader, as `__iter__` is: what reads on top of it is one stream, and would lose the
            # rows of the other workers
            batches = part.iter(batch_size=1)
            while True:
                with Explained(self.where):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield batch


@dataclass(frozen=True)
class Wanted:
    """Which rows of a source are asked for; the arguments of `build` of the same names."""

    split: str | None = None
    config: str | None = None
    revision: str | None = None
    local_path: LocalPath | None = None
    streaming: bool = False
    max_samples: int | None = None
    seed: int = 42


def hub_splits(source: Source, split: str | None) -> tuple[str, ...]:
    """The Hub's splits that a split of the source is made of; its default for `None`.

    Raises:
        ValueError: For a split that the source does not have, with what was probably meant.
    """
    if not source.splits:
        return (split or source.split,)
    name = next(iter(source.splits)) if split is None else split
    if name not in source.splits:
        remedy = hint(name, source.splits)
        if (name, source.evaluation) in (("test", False), ("validation", False)):
            remedy += f"; it may be an evaluation set: see build_eval({source.name!r})"
        raise ValueError(f"split={name!r} is no split of {source.name!r}{remedy}")
    return tuple(source.splits[name])


def raw_rows(source: Source, wanted: Wanted) -> RawRows:
    """The raw rows of a source, with the columns that its conversion reads.

    Args:
        source (`Source`): where the rows are, and which columns are needed.
        wanted (`Wanted`): which of them.

    Returns:
        `RawRows`: a `Dataset` on disk, or the parts of a stream for `streaming`.

    Raises:
        LoadingError: When the Hub or the files cannot be read, or lack a column.
        ValueError: For a split or configuration that the source does not have.
    """
    if source.generate is not None:
        return RawRows(_indices(source, wanted))
    if wanted.local_path is not None:
        return _local_rows(source, wanted)
    return _hub_rows(source, wanted)


def raw_rows_of(batch: Mapping[str, Sequence[Any]], source: Source, seed: int = 42) -> list[RawRow]:
    """The raw rows, for the conversion, of a batch of [`RawRows`]."""
    if JSON_COLUMN in batch:
        return [_row_of(text, source) for text in batch[JSON_COLUMN]]
    if INDEX_COLUMN in batch:
        assert source.generate is not None
        return [source.generate(index, seed) for index in batch[INDEX_COLUMN]]
    names = list(batch)
    return [dict(zip(names, values, strict=True)) for values in zip(*batch.values(), strict=True)]


def _row_of(text: str, source: Source) -> RawRow:
    row = json_row(text)
    # as in a table, where a column that a row does not have is null; and the columns that a table would give, no others
    return dict.fromkeys(source.columns) | {name: row[name] for name in wanted_columns(source, row)}


def wanted_columns(source: Source, columns: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Of `columns`, those that the source's conversion reads; `optional_columns` may be patterns as of file names."""
    needed = set(source.columns)
    patterns = [pattern for pattern in source.optional_columns if pattern not in columns]
    exact = needed.union(source.optional_columns)
    return [name for name in columns if name in exact or any(fnmatchcase(name, pattern) for pattern in patterns)]


def check_columns(source: Source, columns: Sequence[str], where: str) -> None:
    """Refuse rows that lack a column.

    Raises:
        LoadingError: With the columns that are missing, those that are there, and the remedy.
    """
    missing = [name for name in source.columns if name not in columns]
    if missing:
        raise LoadingError(
            f"{where} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)} of {source.name!r}; it has "
            f"{', '.join(sorted(columns)) or 'none'}; if the schema has moved, name an earlier commit with revision= "
            "or give a copy in the documented schema with local_path="
        )


# Procedural sources


def _indices(source: Source, wanted: Wanted) -> Any:
    for argument in ("local_path", "revision"):
        if getattr(wanted, argument) is not None:
            raise ValueError(
                f"{argument}={getattr(wanted, argument)!r} does not go with {source.name!r}, whose rows are generated; "
                "leave it out"
            )
    splits = tuple(source.splits) or ("train", "test")
    split = splits[0] if wanted.split is None else wanted.split
    if split not in splits:
        raise ValueError(f"split={split!r} is no split of {source.name!r}{hint(split, splits)}")
    start = TEST_START if split == "test" else 0
    number = GENERATED_ROWS if wanted.max_samples is None else wanted.max_samples
    return _generated(_index_rows, {"start": start, "stop": start + number}, "int64", INDEX_COLUMN, wanted.streaming)


def most_tries(number: int) -> int:
    """How many rows are generated, at most, for `number` different ones: a level may have fewer than are asked for."""
    return max(GENERATED_ROWS, MAX_TRIES * number)


def _index_rows(start: int, stop: int) -> Iterator[dict[str, int]]:
    for index in range(start, stop):
        yield {INDEX_COLUMN: index}


def _generated(function: Any, arguments: dict[str, Any], dtype: str, column: str, streaming: bool) -> Any:
    """Rows of one column: a `Dataset` in the cache, or the one part of a stream."""
    from datasets import Dataset, Features, Value
    from datasets.exceptions import DatasetGenerationError

    if streaming:
        return [RowStream(function, arguments)]
    try:
        return Dataset.from_generator(function, features=Features({column: Value(dtype)}), gen_kwargs=arguments)
    except DatasetGenerationError as error:
        if isinstance(error.__cause__, LoadingError):
            raise error.__cause__ from None
        raise


# Local files


def _local_rows(source: Source, wanted: Wanted) -> RawRows:
    if wanted.local_path is None:
        raise ValueError("local_path is missing")
    if wanted.revision is not None:
        raise ValueError(f"revision={wanted.revision!r} is of the Hub and does not go with local_path; leave one out")
    _check_local_config(source, wanted.local_path, wanted.config)
    files = _local_files(source, wanted.local_path, wanted.split, wanted.config)
    names = tuple(file.name for file in files)
    where = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    facts = tuple(file_facts(files))
    hashed = content_hash(files)
    if files[0].suffix.lower() == ".parquet":
        rows = _parquet_rows(source, files, wanted.streaming, where, hashed)
    else:
        _check_first(source, _json_rows(facts), where)
        rows = _generated(_json_rows, {"files": facts, "content": hashed}, "string", JSON_COLUMN, wanted.streaming)
    return RawRows(rows, files=names, where=where, files_hash=hashed)


def _check_local_config(source: Source, local_path: LocalPath, config: str | None) -> None:
    """Refuse a configuration that the local files do not have: they would be read as they are, whatever it says."""
    if config is None:
        return
    if not all((Path(path).expanduser() / config).is_dir() for path in listed(local_path)):
        known = [name for name in _configs(source) if name is not None]
        meant = hint(config, known) if config not in known and known else "; leave config out"
        raise LoadingError(
            f"config={config!r} is no folder in local_path, whose files are read as they are whatever their "
            f"configuration{meant}"
        )


def _local_files(source: Source, local_path: LocalPath, split: str | None, config: str | None) -> list[Path]:
    folders = _configs(source) if config is None else (config,)
    return data_files(local_path, hub_splits(source, split), [name for name in folders if name is not None])


def local_facts(source: Source, options: Mapping[str, Any]) -> tuple[tuple[str, int, int], ...]:
    """[`file_facts`] of the local files that options of `build` name; none where they name none."""
    if options.get("local_path") is None:
        return ()
    files = _local_files(source, options["local_path"], options.get("split"), options.get("config"))
    return tuple(file_facts(files))


def content_hash(files: Sequence[Path]) -> str:
    """A hash of the content of local files, read once as long as they are as they were.

    The time of change of a file can be set, so that another content may have the same one; that of its entry cannot.
    """
    facts = zip(file_facts(files), files, strict=True)
    return hash_of_facts(tuple((path, size, max(time, file.stat().st_ctime_ns)) for (path, size, time), file in facts))


def _json_rows(files: Sequence[tuple[str, int, int]], content: str | None = None) -> Iterator[dict[str, str]]:
    """Rows of files; their sizes, times and content are here so that a changed file is another one for the cache."""
    for path, *_ in files:
        for text in json_texts(path):
            yield {JSON_COLUMN: text}


def _check_first(source: Source, rows: Iterator[dict[str, str]], where: str) -> None:
    """Refuse files that are empty, or in whose first rows a column does not show up."""
    names: dict[str, None] = {}
    looked_at = 0
    for row in islice(rows, LOOKED_AT):
        names |= dict.fromkeys(json_row(row[JSON_COLUMN]))
        looked_at += 1
        if names.keys() >= {*source.columns}:  # rows may have megabytes: no more of them than it takes
            return
    if not looked_at:
        raise LoadingError(f"{where} holds no rows; give a file with rows of {source.name!r}")
    check_columns(source, list(names), where)


def _parquet_rows(source: Source, files: Sequence[Path], streaming: bool, where: str, content: str) -> Any:
    columns: dict[str, None] = {}
    num_rows = 0
    for file in files:
        names, number = _parquet_facts(file)
        check_columns(source, names, file.name)
        columns |= dict.fromkeys(names)
        num_rows += number
    if not num_rows:
        raise LoadingError(f"{where} holds no rows; give a file with rows of {source.name!r}")
    if streaming:
        return [_parquet_stream(source, [str(file) for file in files], where)]
    options = {"columns": wanted_columns(source, columns), "data_files": [str(file) for file in files]}
    # `datasets` tells files by their times; the name is a part of the place in its cache
    return _read(_builder("parquet", where, name=content.replace(":", "-"), **options), "train", streaming, where)


def _parquet_facts(file: Path) -> tuple[list[str], int]:
    """Names of the columns, and number of rows."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowInvalid

    try:
        facts = pq.read_metadata(file)
    except (ArrowInvalid, OSError) as error:
        raise LoadingError(
            f"{file.name} is no parquet file or not a whole one ({first_line(error)}); get the file again"
        ) from None
    return facts.schema.to_arrow_schema().names, facts.num_rows


def _parquet_stream(source: Source, files: Sequence[str], where: str) -> RowStream:
    """Rows of parquet, on a disk or on the Hub, of which the files may have different columns and types."""
    return RowStream(_parquet_examples, {"source": source, "files": tuple(files), "where": where})


def _parquet_examples(source: Source, files: Sequence[str], where: str) -> Iterator[RawRow]:
    needed = dict.fromkeys(source.columns)
    for number, file in enumerate(files):
        with parquet_file(file) as table:
            name = file.rpartition("/")[2]
            check_columns(source, table.schema_arrow.names, f"{name} of {where}" if number else where)
            columns = wanted_columns(source, table.schema_arrow.names)
            decoded = _decoding(table.schema_arrow, columns)
            for batch in batches_of(table, columns):
                for row in batch.to_pylist():
                    yield needed | decoded(row)


def _decoding(schema: Any, columns: Sequence[str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What `datasets` does to a row whose columns hold more than their Arrow types say, such as JSON."""
    import pyarrow as pa
    from datasets import Features
    from datasets.features.features import require_decoding

    fields = pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)
    features = Features.from_arrow_schema(fields)
    if any(map(require_decoding, features.values())):
        return features.decode_example
    return lambda row: row


# The Hub


def _configs(source: Source) -> Sequence[str | None]:
    """What is read one after another where no configuration is named."""
    return source.folders or source.configs or (source.config,)


def _hub_rows(source: Source, wanted: Wanted) -> RawRows:
    splits = hub_splits(source, wanted.split)
    configs = _configs(source) if wanted.config is None else (wanted.config,)
    if wanted.config is not None and source.folders and wanted.config not in source.folders:
        raise ValueError(
            f"config={wanted.config!r} is no folder of {source.name!r}{hint(wanted.config, source.folders)}"
        )
    revision, whose = _revision(source, wanted)
    parts: list[Any] = []
    commit = None
    for config in configs:
        # all configurations at one commit, should the repository move meanwhile
        builder, where = _hub_builder(source, config, revision or commit, whose)
        commit = commit or _commit(builder.hash, revision, where)
        for split in splits:
            if wanted.streaming:
                parts.append(_hub_stream(source, builder, split, where))
            else:
                parts.append(_hub_table(source, builder, split, where))
    where = source.path or ""
    if source.pin_at_first_read and revision is None and commit:
        keep_commit(where, commit)
    if wanted.streaming or len(parts) == 1:
        return RawRows(parts if wanted.streaming else parts[0], commit, where=where)
    from datasets import concatenate_datasets

    return RawRows(concatenate_datasets(parts), commit, where=where)


def _revision(source: Source, wanted: Wanted) -> tuple[str | None, str]:
    """What is asked of the Hub, and the words for it in an error."""
    if wanted.revision or source.revision:
        return wanted.revision or source.revision, "" if wanted.revision else "its pinned "
    commit = first_commit(source.path) if source.pin_at_first_read else None
    return commit, f"the first read here (see {commits_file()}), " if commit else ""


def _commit(prepared: Any, revision: str | None, where: str) -> str | None:
    """The commit that is read, `None` where it is not known.

    Raises:
        LoadingError: For another commit than the one that is asked for: offline, `datasets` takes the one that it has.
    """
    found, asked = (name if name and COMMIT.fullmatch(str(name)) else None for name in (prepared, revision))
    if found and asked and found != asked:
        raise LoadingError(
            f"{where} is not in the cache, which has commit {found}; go online, or name that one with revision="
        )
    return found or asked


def _hub_builder(
    source: Source, config: str | None, revision: str | None, whose: str, **options: Any
) -> tuple[Any, str]:
    if source.path is None:
        raise LoadingError(f"{source.name!r} has no path on the Hub; give its files with local_path=")
    where = source.path + (f" ({config})" if config else "")
    if revision:
        where += f" at {whose}revision {revision}"
    if source.folders:
        options |= {"data_dir": config}
    else:
        options |= {"name": config, "data_dir": source.data_dir}
    return _builder(source.path, where, data_files=source.data_files, revision=revision, **options), where


def _builder(path: str, where: str, **options: Any) -> Any:
    from datasets import load_dataset_builder

    given = {name: value for name, value in options.items() if value is not None}
    is_on_hub = "/" in path and not Path(path).exists()
    with Explained(where), offline_where_unreachable() if is_on_hub else nullcontext():
        return load_dataset_builder(path, **given)


def _hub_table(source: Source, builder: Any, split: str, where: str) -> Any:
    """One split of one configuration, with the columns that are read."""
    rows = _read(builder, split, False, where)
    check_columns(source, rows.column_names, where)
    return rows.select_columns(wanted_columns(source, rows.column_names))


def _hub_stream(source: Source, builder: Any, split: str, where: str) -> Any:
    """The same as a stream, which for JSON and parquet is read here, a row at a time.

    `datasets` takes columns and types from the first rows, and holds batches of a fixed number of rows, or all of a
    list of JSON.
    """
    urls = _urls(builder, split)
    if urls and streams_parquet(builder):
        with Explained(where):
            with parquet_file(urls[0]) as table:
                check_columns(source, table.schema_arrow.names, where)
        return _parquet_stream(source, urls, where)
    if urls and all(url.lower().endswith(JSON_SUFFIXES) for url in urls):
        facts = tuple((url, 0, 0) for url in urls)
        with Explained(where):
            _check_first(source, _json_rows(facts), where)
        return RowStream(_json_rows, {"files": facts})
    rows = _read(builder, split, True, where)
    names = list(rows.column_names or ())
    if not names:
        with Explained(where):
            names = list(dict.fromkeys(name for row in rows.take(LOOKED_AT) for name in row))
    check_columns(source, names, where)
    return rows.select_columns(wanted_columns(source, names))


def _urls(builder: Any, split: str) -> list[str]:
    return [str(url) for url in (builder.config.data_files or {}).get(split, ())]


def _read(builder: Any, split: str, streaming: bool, where: str) -> Any:
    with Explained(where):
        if streaming:
            return builder.as_streaming_dataset(split=split)
        builder.download_and_prepare()
        return builder.as_dataset(split=split)
