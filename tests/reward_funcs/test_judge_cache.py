"""The cache of a judge's replies: keys, several processes at once, and files that cannot be used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reward_funcs._judge_cache import ReplyCache, request_key

MESSAGES = [{"role": "user", "content": "2+2?"}]
WRITER = """
import sys
from reward_funcs._judge_cache import ReplyCache
cache = ReplyCache(sys.argv[1])
for n in range(60):
    cache.put({f"{sys.argv[2]}-{n}": f"reply {n}", "shared": "the same"})
    assert cache.get([f"{sys.argv[2]}-{n}"]), n
"""


def test_key_tells_apart_all_that_a_reply_depends_on() -> None:
    asked: list[Any] = [
        ("m", MESSAGES, {"temperature": 0.0}, 0),
        ("n", MESSAGES, {"temperature": 0.0}, 0),
        ("m", [{"role": "system", "content": "2+2?"}], {"temperature": 0.0}, 0),
        ("m", [{"role": "user", "content": "2+2? "}], {"temperature": 0.0}, 0),
        ("m", [*MESSAGES, *MESSAGES], {"temperature": 0.0}, 0),
        ("m", MESSAGES, {"temperature": 0.5}, 0),
        ("m", MESSAGES, {"temperature": 0.0}, 1),
    ]
    keys = [request_key(*one) for one in asked]
    assert len(set(keys)) == len(asked) and all(len(key) == 64 for key in keys)
    assert request_key("m", MESSAGES, {"a": 1, "b": 2}, 0) == request_key("m", MESSAGES, {"b": 2, "a": 1}, 0)
    assert request_key("m", [{"role": "user", "content": "\ud800"}], {}, 0) != keys[0]


def test_replies_are_found_again_by_their_keys(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "a" / "b.sqlite")
    assert cache.get(["1"]) == {} and not cache.path.exists()
    cache.put({str(n): f"r{n} \u00e4\n" for n in range(1200)})
    assert ReplyCache(cache.path).get([str(n) for n in range(1100, 1300)]) == {
        str(n): f"r{n} \u00e4\n" for n in range(1100, 1200)
    }
    cache.put({"1": "newer"})
    assert cache.get(["1"]) == {"1": "newer"} and cache.get([]) == {}


def test_several_processes_begin_and_fill_one_cache(tmp_path: Path) -> None:
    path = tmp_path / "judge.sqlite"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(name)], stderr=subprocess.PIPE, text=True)
        for name in range(4)
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0 and not errors, errors
    keys = [f"{name}-{n}" for name in range(4) for n in range(60)]
    assert sorted(ReplyCache(path).get(keys)) == sorted(keys)
    assert ReplyCache(path).get(["shared"]) == {"shared": "the same"}
    assert [file.name for file in tmp_path.iterdir()] == ["judge.sqlite"]


def test_file_that_is_no_cache_is_warned_of_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("something else " * 100)
    cache = ReplyCache(path)
    for action in (lambda: cache.get(["1"]), lambda: cache.put({"1": "r"})):
        with pytest.warns(UserWarning, match=r"the judge's cache notes\.txt cannot be used \(file is not a database\)"):
            action()
    assert path.read_text() == "something else " * 100


def test_folder_is_no_cache(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is a folder; name a file in it, such as judge\.sqlite"):
        ReplyCache(tmp_path)
