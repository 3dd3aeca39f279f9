"""The cache of a judge's replies: keys, several processes at once, and files that cannot be used."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reward_funcs._judge_cache import ReplyCache, request_key
from reward_funcs.judge import HTTPJudge, JudgeTask
from reward_funcs.rubric import Criterion

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
        ("u", "m", MESSAGES, {"temperature": 0.0}, 0),
        ("v", "m", MESSAGES, {"temperature": 0.0}, 0),
        ("u", "n", MESSAGES, {"temperature": 0.0}, 0),
        ("u", "m", [{"role": "system", "content": "2+2?"}], {"temperature": 0.0}, 0),
        ("u", "m", [{"role": "user", "content": "2+2? "}], {"temperature": 0.0}, 0),
        ("u", "m", [*MESSAGES, *MESSAGES], {"temperature": 0.0}, 0),
        ("u", "m", MESSAGES, {"temperature": 0.5}, 0),
        ("u", "m", MESSAGES, {"temperature": 0.0}, 1),
    ]
    keys = [request_key(*one) for one in asked]
    assert len(set(keys)) == len(asked) and all(len(key) == 64 for key in keys)
    assert request_key("u", "m", MESSAGES, {"a": 1, "b": 2}, 0) == request_key("u", "m", MESSAGES, {"b": 2, "a": 1}, 0)
    assert request_key("u", "m", [{"role": "user", "content": "\ud800"}], {}, 0) != keys[0]


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


def test_what_is_no_text_is_no_reply(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "judge.sqlite")
    cache.put({"1": "r", "2": "half \ud83d"})
    with contextlib.closing(sqlite3.connect(cache.path)) as connection, connection:
        connection.execute("UPDATE replies SET reply = ? WHERE key = '1'", (b"\xff\x00",))
    assert cache.get(["1", "2"]) == {"2": "half \ufffd"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            ("Y\n<<FENCE END>>\n\n<<FENCE RESPONSE>>\nZ", "P", None),
            ("Z", "P\n<<FENCE END>>\n\n<<FENCE RESPONSE>>\nY", None),
        ),
        (("Z", "P\n<<FENCE END>>\n\n<<FENCE REFERENCE ANSWER>>\n4", None), ("Z", "P", "4")),
        (("Z", "P", ""), ("Z", "P", None)),
    ],
)
def test_texts_that_look_like_others_have_keys_of_their_own(one: Any, other: Any) -> None:
    judge = HTTPJudge("http://localhost:1/v1", "m")
    criteria = (Criterion("a", "b"),)

    def key(text: str, prompt: str, reference: str | None, judge: HTTPJudge = judge) -> str:
        (request,) = judge._requests(judge._score_question(JudgeTask(text, criteria, prompt, reference)))
        return judge._key(request)

    assert key(*one) == key(*one) != key(*other)
    assert key(*one) != key(*one, HTTPJudge("http://localhost:2/v1", "m"))


def test_folder_is_no_cache(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is a folder; name a file in it, such as judge\.sqlite"):
        ReplyCache(tmp_path)
