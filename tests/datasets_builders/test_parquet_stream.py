"""Parquet files as streams: the rows that `datasets` gives, in the memory of a few pages, from a disk or a server."""

from __future__ import annotations

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
from datasets_builders.parquet_stream import parquet_batches, streams_parquet
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
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
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


def test_batches_hold_few_rows_of_any_length(tmp_path):
    """Long rows among short ones of one row group, of which the mean tells nothing."""
    short, long = table(400, 100), table(6, 1 << 20)
    pq.write_table(pa.concat_tables([short, long, short, long.slice(1, 1)]), tmp_path / "a.parquet", **PAGE)
    facts = pq.read_metadata(tmp_path / "a.parquet")
    assert facts.num_row_groups == 1 and facts.row_group(0).total_byte_size // facts.num_rows < (2 << 20) // 32
    batches = list(parquet_batches(str(tmp_path / "a.parquet"), ["question", "answer"]))
    assert [row for batch in batches for row in batch.to_pylist()] == plain(
        pa.concat_tables([short, long, short, long.slice(1, 1)])
    )
    assert max(batch.num_rows for batch in batches) == 32
    # 2 MiB hold one text of 1 MiB and more, and not two
    assert max(batch.nbytes for batch in batches) < 2 << 20
    assert [batch.num_rows for batch in batches if batch.nbytes > 1 << 20] == [17, *[1] * 4, 32, 18]


def test_batches_of_an_empty_file_are_none(tmp_path):
    pq.write_table(table(0), tmp_path / "a.parquet")
    assert list(parquet_batches(str(tmp_path / "a.parquet"), ["question"])) == []


def test_batches_of_some_row_groups(tmp_path):
    pq.write_table(table(50), tmp_path / "a.parquet", row_group_size=20)
    found = [batch.num_rows for batch in parquet_batches(str(tmp_path / "a.parquet"), ["question"], [2, 0])]
    assert found == [30]


def test_page_larger_than_a_block_is_read_in_blocks_into_one_buffer(tmp_path, server, monkeypatch):
    rows = table(40, 10_000)
    pq.write_table(rows, tmp_path / "a.parquet", use_dictionary=False, compression="none")
    monkeypatch.setattr(parquet_stream, "BLOCK_BYTES", 1 << 16)
    read: list[Any] = []
    real = parquet_stream._Blocks.read

    def watched(self: Any, size: int = -1) -> Any:
        read.append(real(self, size))
        return read[-1]

    monkeypatch.setattr(parquet_stream._Blocks, "read", watched)
    address, asked = server
    batches = parquet_batches(address("a.parquet"), ["question"])
    assert [row for batch in batches for row in batch.to_pylist()] == rows.select(["question"]).to_pylist()
    assert max(map(len, read)) > 400_000 and max(asked) == 1 << 16
    assert {type(part) for part in read if len(part) > 1 << 16} == {bytearray}


def test_other_formats_are_read_as_datasets_reads_them(hub):
    path = hub({"main": {"train": [{"question": "q", "answer": "#### 1"}]}})
    assert not streams_parquet(datasets.load_dataset_builder(path, "main"))
