"""Parquet files as streams: the rows that `datasets` gives, in the memory of a few pages, from a disk or a server."""

from __future__ import annotations

import pickle
import random
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datasets_builders import parquet_stream
from datasets_builders.loading import Wanted, raw_rows, raw_rows_of
from datasets_builders.parquet_stream import hold_few_rows, parquet_batches, rows_at_once, streams_parquet
from datasets_builders.registry import BUILDERS
from datasets_builders.source import Source

SCHEMA = pa.schema({"question": pa.string(), "answer": pa.string(), "heavy": pa.string()})
PAGE = {"data_page_size": 1 << 14, "write_batch_size": 16, "use_dictionary": False, "compression": "none"}


def table(number: int, length: int = 5) -> pa.Table:
    draw = random.Random(0)
    texts = [draw.randbytes(length // 2 + 1).hex()[:length] for _ in range(number)]
    rows = [{"question": f"{i} {text}", "answer": f"#### {i}", "heavy": text} for i, text in enumerate(texts)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def plain(rows: pa.Table) -> list[dict[str, Any]]:
    return rows.select(["question", "answer"]).to_pylist()


def of_files(files: Any) -> Source:
    """GSM8K as `datasets` finds it at the address of a file."""
    return replace(BUILDERS["gsm8k"], path="parquet", data_files=files, config=None, splits={}, revision=None)


def rows_of(source: Source) -> list[Any]:
    raw = raw_rows(source, Wanted(streaming=True))
    return [row for batch in raw.batches() for row in raw_rows_of(batch, source)]


class _Ranges(BaseHTTPRequestHandler):
    """Serves the files of a folder, in ranges, and notes the size of each that is asked for."""

    def __init__(self, *args: Any, folder: Path, asked: list[int]) -> None:
        self.folder = folder
        self.asked = asked
        super().__init__(*args)

    def do_GET(self) -> None:
        data = (self.folder / self.path.strip("/")).read_bytes()
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        self.send_response(206 if match else 200)
        if match:
            self.send_header("Content-Range", f"bytes {match[1]}-{match[2]}/{len(data)}")
            data = data[int(match[1]) : int(match[2]) + 1]
            self.asked.append(len(data))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Callable[[str], str], list[int]]]:
    """The address of a file of `tmp_path`, and the sizes of the ranges that were asked for."""
    asked: list[int] = []
    handler = partial(_Ranges, folder=tmp_path, asked=asked)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield (lambda name: f"http://127.0.0.1:{running.server_port}/{name}"), asked
        running.shutdown()
        thread.join()


def test_stream_of_a_served_file_equals_its_rows_and_fetches_no_part_twice(tmp_path, server, monkeypatch):
    rows = table(3000, 500)
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=1000, **PAGE)
    size = (tmp_path / "a.parquet").stat().st_size
    monkeypatch.setattr(parquet_stream, "BLOCK_BYTES", 1 << 16)
    address, asked = server
    found = [
        row for batch in parquet_batches(address("a.parquet"), ["question", "answer"]) for row in batch.to_pylist()
    ]
    assert found == plain(rows)
    # in whole blocks, of the columns that are read: half of the file
    assert max(asked) == 1 << 16 and 0.4 * size < sum(asked) < 0.6 * size


def test_stream_of_a_served_source_equals_its_rows(tmp_path, server):
    rows = table(100)
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=30)
    assert rows_of(of_files(server[0]("a.parquet"))) == plain(rows)


def test_stream_holds_few_pages_of_a_large_row_group(tmp_path):
    rows = table(2000, 10_000)
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=2000, **PAGE)
    assert pq.read_metadata(tmp_path / "a.parquet").num_row_groups == 1
    expected = rows.column("question").to_pylist()
    del rows
    raw = raw_rows(of_files(str(tmp_path / "a.parquet")), Wanted(streaming=True))
    before, held, found = pa.total_allocated_bytes(), [], []
    for batch in raw.batches():
        held.append(pa.total_allocated_bytes() - before)
        found += batch["question"]
    assert found == expected  # 20 MB
    assert max(held) < 6 << 20


def test_stream_reads_long_rows_in_smaller_batches(tmp_path):
    pq.write_table(table(50, 100), tmp_path / "short.parquet")
    pq.write_table(table(6, 1 << 19), tmp_path / "long.parquet", **PAGE)
    pq.write_table(table(0), tmp_path / "empty.parquet")
    names = ["question", "answer"]
    assert rows_at_once(str(tmp_path / "short.parquet"), names) == 32
    assert rows_at_once(str(tmp_path / "empty.parquet"), names) == 32
    # 2 MiB a batch, of rows of half a MiB; with the column beside it they have twice that
    assert rows_at_once(str(tmp_path / "long.parquet"), names) == 3
    assert rows_at_once(str(tmp_path / "long.parquet"), [*names, "heavy"]) == 1
    sizes = [batch.num_rows for batch in parquet_batches(str(tmp_path / "long.parquet"), names)]
    assert sizes == [3, 3]
    raw = raw_rows(of_files(str(tmp_path / "long.parquet")), Wanted(streaming=True))
    assert [len(batch["question"]) for batch in raw.batches()] == [3, 3]
    local = raw_rows(BUILDERS["gsm8k"], Wanted(streaming=True, local_path=tmp_path / "long.parquet"))
    assert [len(batch["question"]) for batch in local.batches()] == [3, 3]


@pytest.fixture
def streamed(tmp_path: Path) -> Callable[..., Any]:
    """The stream of `datasets` over two files, the second without `answer`, read by `hold_few_rows` or not."""
    pq.write_table(table(50), tmp_path / "a.parquet", row_group_size=20)
    pq.write_table(table(70).drop_columns(["answer"]), tmp_path / "b.parquet", row_group_size=40)
    files = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]

    def read(*, few: bool) -> Any:
        types = datasets.Features({name: datasets.Value("large_string") for name in SCHEMA.names})
        builder = datasets.load_dataset_builder("parquet", data_files=files, features=types)
        if few:
            assert streams_parquet(builder)
            hold_few_rows(builder, types)
        return builder.as_streaming_dataset(split="train")

    return read


def test_stream_has_the_rows_types_and_shards_of_datasets(streamed):
    plain_stream, stream = streamed(few=False), streamed(few=True)
    rows = list(stream)
    assert rows == list(plain_stream) and len(rows) == 120 and rows[-1]["answer"] is None
    assert stream.features == plain_stream.features and stream.num_shards == plain_stream.num_shards == 2
    assert next(iter(stream.with_format("arrow").iter(batch_size=7))).schema.field("answer").type == pa.large_string()
    # by row groups, as `reshard` divides it
    assert stream.reshard().num_shards == 5 and list(stream.reshard()) == rows


def test_stream_resumes_shuffles_and_pickles_as_that_of_datasets(streamed):
    plain_stream, stream = streamed(few=False), streamed(few=True)
    assert list(pickle.loads(pickle.dumps(stream))) == list(plain_stream)
    rows = iter(stream)
    first = [next(rows) for _ in range(63)]
    again = streamed(few=True)
    again.load_state_dict(stream.state_dict())
    assert first + list(again) == list(plain_stream)
    drawn = list(stream.shuffle(seed=3, buffer_size=1))
    assert drawn == list(plain_stream.shuffle(seed=3, buffer_size=1)) != list(plain_stream)


def test_other_formats_are_read_as_datasets_reads_them(hub):
    path = hub({"main": {"train": [{"question": "q", "answer": "#### 1"}]}})
    assert not streams_parquet(datasets.load_dataset_builder(path, "main"))
