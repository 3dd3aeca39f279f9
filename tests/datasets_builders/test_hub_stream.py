"""Parquet on a Hub on this machine: read through `hf://`, a few rows at a time, at a commit that is recorded."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

COMMIT, GONE, LATER = "a" * 40, "b" * 40, "c" * 40
READ = """
import json, sys
from dataclasses import replace
from datasets_builders import build_with_report
from datasets_builders.registry import BUILDERS

source = replace(BUILDERS["gsm8k"], path="me/maths", config=None, splits={}, revision=sys.argv[1] or None)
source = replace(source, pin_at_first_read=sys.argv[2] == "pin")
try:
    built = build_with_report(source, streaming=True, instruction="none", revision=sys.argv[3] or None)
    rows = [(row["prompt"][0]["content"], row["solution"]) for row in built.dataset]
    print(json.dumps({"rows": rows, "commit": built.report.revision_resolved}))
except ValueError as error:
    print(json.dumps({"error": str(error)}))
"""


class _Hub(BaseHTTPRequestHandler):
    """As much of the Hub as reading needs; it notes the ranges of files that it is asked for."""

    server: Any

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        commit = self.server.commit if COMMIT not in path else COMMIT
        file = re.fullmatch(r"/datasets/me/maths/resolve/\w+/(.*)", path)
        folder = re.fullmatch(rf"/api/datasets/me/maths/tree/{commit}/?(.*)", path)
        if GONE in path:
            self._json({"error": "Invalid rev id"}, "RevisionNotFound")
        elif file and (self.server.folder / file[1]).is_file():
            self._file((self.server.folder / file[1]).read_bytes())
        elif folder and (self.server.folder / folder[1]).is_dir():
            self._json([self._entry(one) for one in sorted((self.server.folder / folder[1]).iterdir())])
        elif path.startswith("/api/datasets/me/maths") and folder is None:
            self._json({"_id": "1", "id": "me/maths", "sha": commit, "private": False, "tags": [], "siblings": []})
        else:
            self._json({"error": "Entry not found"}, "EntryNotFound")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        body = unquote(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
        files = [one for one in self.server.folder.rglob("*") if one.relative_to(self.server.folder).as_posix() in body]
        self._json([self._entry(one) for one in files])

    def _entry(self, path: Path) -> dict[str, Any]:
        kind = "directory" if path.is_dir() else "file"
        name = path.relative_to(self.server.folder).as_posix()
        return {"type": kind, "path": name, "oid": "0" * 40, "size": path.stat().st_size}

    def _file(self, data: bytes) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted:
            data = data[int(wanted[1]) : int(wanted[2]) + 1]
            self.server.asked.append(len(data))
        self._answer(206 if wanted else 200, data, {"ETag": '"1"', "X-Repo-Commit": COMMIT})

    def _json(self, value: Any, error: str = "") -> None:
        self._answer(404 if error else 200, json.dumps(value).encode(), {"X-Error-Code": error} if error else {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Any]:
    """A Hub with one data set, of the files in its `folder`."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    server.folder, server.asked, server.commit = tmp_path / "repo", [], COMMIT
    (server.folder / "data").mkdir(parents=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def read(hub: Any, home: Path, pinned: str = "", first_read: str = "", revision: str = "") -> dict[str, Any]:
    """What a process of its own, which reads the address of the Hub when it starts, gets of the data set."""
    changed = {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        **dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"), "0"),
        "HF_HOME": str(home),
        "HF_DATASETS_CACHE": str(home / "cache"),
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    result = subprocess.run(
        [sys.executable, "-c", READ, pinned, first_read, revision],
        env={**os.environ, **changed},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return found


def test_stream_of_the_hub_reads_all_shards_in_blocks_and_records_the_commit(hub, tmp_path):
    heavy = "x" * 100_000
    rows = [{"question": f"What is {i} + 1?", "answer": f"#### {i + 1}", "heavy": f"{i}{heavy}"} for i in range(150)]
    for shard in range(2):
        part = pa.Table.from_pylist(rows[75 * shard : 75 * shard + 75])
        name = f"train-{shard:05d}-of-00002.parquet"
        pq.write_table(part, hub.folder / "data" / name, compression="none", use_dictionary=False)
    found = read(hub, tmp_path / "home")
    assert found["rows"] == [[row["question"], f"${i + 1}$"] for i, row in enumerate(rows)]
    assert found["commit"] == COMMIT
    # each shard is larger than a block, and no range is
    assert min(path.stat().st_size for path in (hub.folder / "data").iterdir()) > 7_000_000
    assert max(hub.asked) == 4 << 20


def test_pinned_commit_that_the_hub_does_not_have_is_named_with_the_newest(hub, tmp_path):
    pq.write_table(pa.table({"question": ["q"], "answer": ["#### 1"]}), hub.folder / "data" / "train.parquet")
    error = read(hub, tmp_path / "home", GONE)["error"]
    assert error.startswith(f"me/maths at its pinned revision {GONE} cannot be read (Revision '{GONE}' doesn't exist")
    assert 'revision="main" (--revision main) reads the newest rows' in error
    assert read(hub, tmp_path / "home")["rows"] == [["q", "$1$"]]


def test_source_that_names_no_commit_stays_at_that_of_its_first_read(hub, tmp_path):
    home = tmp_path / "home"
    pq.write_table(pa.table({"question": ["q"], "answer": ["#### 1"]}), hub.folder / "data" / "train.parquet")
    assert read(hub, home, first_read="pin")["commit"] == COMMIT
    hub.commit = LATER
    assert read(hub, home, first_read="pin")["commit"] == COMMIT
    assert read(hub, home, first_read="pin", revision="main")["commit"] == LATER
    assert read(hub, home, first_read="pin")["commit"] == COMMIT  # a revision that is asked for moves nothing
    assert read(hub, home)["commit"] == LATER  # a source of a user's own follows its repository
    assert read(hub, tmp_path / "elsewhere", first_read="pin")["commit"] == LATER
    commits = home / "trl_ext" / "dataset_commits.json"
    assert json.loads(commits.read_text()) == {"me/maths": COMMIT}
    commits.write_text(json.dumps({"me/maths": GONE}))
    error = read(hub, home, first_read="pin")["error"]
    assert error.startswith(
        f"me/maths at the first read here (see {commits}), revision {GONE} cannot be read (Revision"
    )
