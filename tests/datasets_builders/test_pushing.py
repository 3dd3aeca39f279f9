"""Publishing: what is refused before the Hub is asked, and what a Hub on this machine is asked."""

import base64
import io
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from datasets_builders.pushing import check_push, push_folder, push_to_hub
from datasets_builders.saving import SavingError
from datasets_builders.schema import features, rl_row

PUSH = """
import sys
from datasets import Dataset
from datasets_builders.pushing import push_to_hub
from datasets_builders.saving import SavingError
from datasets_builders.schema import features, rl_row

rows = Dataset.from_list([rl_row("6 * 7?", "$42$", task="math", source="gsm8k")], features=features("rl"))
try:
    print(push_to_hub(rows, "me/maths", {"name": "gsm8k", "licence": "mit"}, token="hf_x", **eval(sys.argv[1])))
except SavingError as error:
    print(f"refused: {error}")
"""


class _Hub(BaseHTTPRequestHandler):
    """As much of the Hub as a push needs; it records what it is asked."""

    def do_GET(self):
        if "/tree/" in self.path:
            old = ("data/train-00000-of-00009.parquet", "data/test-00000-of-00001.parquet", "notes.txt")
            self._answer([{"type": "file", "path": path, "size": 1, "oid": "0" * 40} for path in old])
        else:
            self._answer({"id": "me/maths", "private": self.server.is_private, "siblings": [], "sha": "0" * 40})

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else self._chunks()
        self.server.asked.append((self.path, body))
        if self.path == self.server.refused:
            self._answer({"error": "Invalid username or password."}, status=401)
        elif self.path.endswith("/preupload/main"):
            paths = [file["path"] for file in json.loads(body)["files"]]
            self._answer({"files": [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in paths]})
        elif "/commit/" in self.path:
            url = "http://127.0.0.1/datasets/me/maths/commit/1"
            self._answer({"success": True, "commitUrl": url, "commitOid": "1" * 40, "hookOutput": ""})
        else:
            url = f"http://127.0.0.1:{self.server.server_port}/datasets/me/maths"
            self._answer({"url": url, "name": "me/maths", "id": "1"})

    def _chunks(self):
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        return body

    def _answer(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    server.asked, server.is_private, server.refused = [], True, None
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def _push(hub, tmp_path, **options):
    """Push in a process of its own, which reads the address of the Hub when it starts; what it printed."""
    changed = {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HUB_OFFLINE": "0",
        "HF_HOME": str(tmp_path),
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    result = subprocess.run(
        [sys.executable, "-c", PUSH, repr(options)],
        env={**os.environ, **changed},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip().splitlines()[-1]


def _commit(hub):
    (body,) = (body for path, body in hub.asked if "/commit/" in path)
    return [json.loads(line) for line in body.splitlines()]


def test_push_creates_a_private_repository_and_sends_all_in_one_commit(hub, tmp_path):
    assert _push(hub, tmp_path).endswith("/datasets/me/maths")
    path, body = hub.asked[0]
    assert path == "/api/repos/create"
    asked = json.loads(body)
    assert asked.get("private") is True or asked.get("visibility") == "private"
    assert (asked["type"], asked["name"]) == ("dataset", "maths")
    lines = _commit(hub)
    files = {
        line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines if line["key"] == "file"
    }
    assert set(files) == {"README.md", "report.json", "data/train-00000-of-00001.parquet"}
    assert b"license: mit" in files["README.md"]
    rows = pq.read_table(io.BytesIO(files["data/train-00000-of-00001.parquet"])).to_pylist()
    assert [row["solution"] for row in rows] == ["$42$"]
    gone = [line["value"]["path"] for line in lines if line["key"] == "deletedFile"]
    assert gone == ["data/train-00000-of-00009.parquet"]  # of the same split; the rest stays


def test_push_is_public_only_when_asked_for(hub, tmp_path):
    hub.is_private = False
    _push(hub, tmp_path, private=False)
    asked = json.loads(hub.asked[0][1])
    assert asked.get("private") is False or asked.get("visibility") == "public"
    assert _commit(hub)


def test_push_into_a_public_repository_is_refused_before_any_row_is_sent(hub, tmp_path):
    hub.is_private = False
    assert "me/maths is a public repository; give another name" in _push(hub, tmp_path)
    assert not [path for path, _ in hub.asked if "/commit/" in path or "/preupload/" in path]


def test_push_that_the_hub_refuses_is_one_sentence_with_the_remedy(hub, tmp_path):
    hub.refused = "/api/datasets/me/maths/commit/main"
    said = _push(hub, tmp_path)
    assert said.startswith("refused: repo_id=me/maths: the Hub did not take the data set (")
    assert said.endswith("log in with `hf auth login`, or give a token that may write")


def test_push_where_no_hub_answers_is_one_sentence(hub, tmp_path):
    hub.server_port = 9  # nothing listens there
    assert _push(hub, tmp_path).endswith("; check the connection")


def _rows():
    return Dataset.from_list([rl_row("6 * 7?", "$42$", task="math", source="mine")], features=features("rl"))


def test_push_without_a_licence_is_refused_and_names_the_source():
    parts = [{"name": "known", "licence": "mit"}, {"name": "bare", "licence": "unknown"}]
    for report in ({"name": "bare"}, {"name": "bare", "licence": "unknown"}, {"parts": parts}):
        with pytest.raises(SavingError, match=r"^'bare' states no licence, so it is not pushed.*--licence"):
            push_to_hub(_rows(), "me/maths", report)


@pytest.mark.parametrize("options", [{"licence": "mit"}, {"allow_unknown_licence": True}])
def test_licence_of_ones_own_or_consent_gets_past_the_licence(options):
    with pytest.raises(SavingError, match="turned off by HF_HUB_OFFLINE"):  # the next thing that is looked at
        check_push("me/maths", {"name": "bare"}, **options)


def test_offline_push_is_one_sentence():
    with pytest.raises(SavingError, match="repo_id=me/maths: the Hub is turned off by HF_HUB_OFFLINE; unset it"):
        push_to_hub(_rows(), "me/maths", {"name": "mine", "licence": "mit"})


def test_push_without_a_name_and_of_another_folder_is_refused(tmp_path):
    with pytest.raises(SavingError, match="repo_id=' ' names no repository"):
        check_push(" ", {"licence": "mit"})
    with pytest.raises(SavingError, match="is no folder that"):
        push_folder(tmp_path, "me/maths")


@pytest.mark.parametrize("licence", [" ", "Not stated", "unknown", ""])
def test_text_that_names_no_licence_is_none(licence, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: False)
    with pytest.raises(SavingError, match=r"names no licence; give one, such as cc-by-4.0"):
        check_push("me/maths", {"name": "mine", "licence": "mit"}, licence=licence)
    with pytest.raises(SavingError, match="names no licence"):
        check_push("me/maths", {"name": "mine", "licence": "mit", "publish_licence": licence})
    with pytest.raises(SavingError, match="'mine' states no licence, so it is not pushed"):
        check_push("me/maths", {"name": "mine", "licence": licence})
    check_push("me/maths", {"name": "mine", "licence": licence}, licence="mit")
    check_push("me/maths", {"name": "mine", "licence": licence}, allow_unknown_licence=True)
