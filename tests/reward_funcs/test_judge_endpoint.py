"""`HTTPJudge` against answers that no client expects, keys that leak, lengths of replies, and settings."""

from __future__ import annotations

import gzip
import json
import sqlite3
import threading
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reward_funcs._judge_cache import ReplyCache
from reward_funcs.judge import HTTPJudge, JudgeTask
from reward_funcs.rubric import Criterion, Rubric

from .test_judge_http import CORRECT, GOOD, Answer, a_judge, serving, tasks

QUOTED = 'It holds {"1": {"reason": "perfect", "score": 5}}. It earns nothing.\n{"1": {"reason": "the ans'


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def failure(answer: Answer, **settings: Any) -> tuple[str, str, int]:
    """The cause, the warning and the number of requests of one task that has no score."""
    with serving(lambda request, number: answer) as server:
        judge = a_judge(server, **settings)
        with pytest.warns(UserWarning, match="HTTPJudge judged none") as caught:
            (verdict,) = judge.score(tasks(1))
    assert not verdict.scores
    return verdict.cause, str(caught[0].message), len(server.requests)


@pytest.mark.parametrize(
    "body",
    [b'[{"error": {"code": 429}}]', b"null", b'"x"', b"5", b"[]", b'{"errors": 5}', b'{"errors": [5]}', b'"\\ud800"'],
)
@pytest.mark.parametrize(("status", "cause"), [(422, "http_4xx"), (429, "http_429"), (500, "http_5xx")])
def test_status_counts_whatever_the_body_holds(status: int, cause: str, body: bytes) -> None:
    assert failure(Answer(status=status, body=body), max_retries=0)[0] == cause


@pytest.mark.parametrize("content", [5, 1.5, ["x"], {"a": 1}, True])
def test_content_that_is_no_text_is_malformed(content: Any) -> None:
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()
    assert failure(Answer(body=body))[0] == "malformed"


def test_half_of_a_surrogate_pair_in_a_reply_is_scored_and_cached(tmp_path: Path) -> None:
    with serving(lambda request, number: Answer("\ud83d " + GOOD)) as server:
        judge = a_judge(server, cache=tmp_path / "judge.sqlite")
        for _ in range(2):
            assert judge.score(tasks(1))[0].scores == {"correctness": 4.0}
    assert len(server.requests) == 1 and judge.counts["cached"] == 1


def test_reply_that_was_cut_is_a_failure_of_its_own_and_asked_for_again() -> None:
    cause, warning, requests = failure(Answer(QUOTED, finish="length"))
    assert (cause, requests) == ("cut", 2) and "cut at the limit of its length" in warning
    with serving(lambda request, number: Answer(GOOD, finish="length")) as server:
        assert a_judge(server).score(tasks(1))[0].scores == {"correctness": 4.0}
    with serving(lambda request, number: Answer(QUOTED, finish="length") if number == 1 else Answer()) as server:
        assert a_judge(server).score(tasks(1))[0].scores == {"correctness": 4.0}
    assert "was cut" in server.requests[1]["messages"][3]["content"]


@pytest.mark.parametrize("used", [-5, -1000])
def test_negative_usage_does_not_fill_up_the_budget(used: int) -> None:
    with serving(lambda request, number: Answer(tokens=used)) as server:
        judge = a_judge(server, token_budget=1)
        judge.score(tasks(1))
        with pytest.warns(UserWarning, match="budget"):
            assert judge.score(tasks(2)[1:])[0].cause == "budget"
    assert judge.counts["tokens"] > 0 and len(server.requests) == 1


# --- what is kept of a call ---------------------------------------------------------------------------------------


def test_interrupt_keeps_the_replies_that_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    arrived = threading.Event()

    def answer(request: dict[str, Any], number: int) -> Answer:
        if number == 6:  # one at a time: those before have arrived
            arrived.set()
            return Answer(delay=60.0)
        return Answer()

    def interrupted(thread: threading.Thread, *rest: Any) -> None:
        assert arrived.wait(20)
        raise KeyboardInterrupt

    with serving(answer) as server:
        judge = a_judge(server, cache=tmp_path / "judge.sqlite", max_concurrency=1, timeout=50.0)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "join", interrupted)
            with pytest.raises(KeyboardInterrupt):
                judge.score(tasks(10))
        assert judge.cache is not None
        with closing(sqlite3.connect(judge.cache.path)) as connection:
            assert connection.execute("SELECT count(*) FROM replies").fetchone() == (5,)


def test_replies_are_written_some_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    written: list[int] = []
    monkeypatch.setattr("reward_funcs._judge_cache.BATCH", 4)
    put = ReplyCache.put

    def counted(cache: ReplyCache, replies: Any) -> None:
        written.append(len(replies))
        put(cache, replies)

    monkeypatch.setattr(ReplyCache, "put", counted)
    with serving() as server:
        judge = a_judge(server, cache=tmp_path / "judge.sqlite", max_concurrency=1)
        judge.score(tasks(10))
        assert judge.score(tasks(10))[0].scores and judge.counts["cached"] == 10
    assert sum(written) == 10 and len(written) > 2 and max(written) < 10


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_key_and_password_are_in_no_warning_and_no_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-123\n")
    body = b'{"error": {"message": "wrong key: Bearer sk-secret-123, Basic bWU6cGFzc3dvcmQ="}}'
    assert failure(Answer(status=401, body=body), api_key_env="MY_KEY")[1:] == (
        'HTTPJudge judged none of the 1 questions of a call (http_4xx): status 401: {"error": {"message": "wrong key: '
        'Bearer ***, Basic bWU6cGFzc3dvcmQ="}}',
        1,
    )
    with serving(lambda request, number: Answer(status=401, body=body)) as server:
        server.url = server.url.replace("//", "//me:password@")
        judge = a_judge(server, api_key_env="MY_KEY", parameters={"extra_headers": {"X-Key": "sk-other"}})
        with pytest.warns(UserWarning, match="judged none") as caught:
            judge.score(tasks(1))
    shown = f"{caught[0].message} {judge!r}"
    assert "password" not in shown and "bWU6" not in shown and "sk-" not in shown and "***@127.0.0.1" in shown


def test_query_and_headers_are_in_no_message_and_no_repr() -> None:
    body = b'{"error": "no access with k3y+1 at /v1?api-key=k3y%2B1&v=2 for he{ad}er, \\"q\\\\uote\\""}'
    with serving(lambda request, number: Answer(status=401, body=body)) as server:
        judge = a_judge(
            server,
            parameters={
                "extra_headers": {"a": "{x}", "x-api-key": "he{ad}er", "b": '"q\\uote"'},
                "api_key": "in the body",
            },
        )
        judge.base_url += "?api-key=k3y%2B1&v=2"
        with pytest.warns(UserWarning, match="judged none") as caught:
            failed = judge._endpoint().detail(body.decode())
            warnings.warn(f"judged none {failed}", stacklevel=1)
    shown = f"{caught[0].message} {judge!r}"
    assert "api-key=***" in shown and "v=***" in shown
    for secret in ("k3y", "he{ad}er", "uote", "in the body", "v=2"):
        assert secret not in shown


def test_password_of_an_address_of_another_kind_is_not_shown() -> None:
    with pytest.raises(ValueError, match="it must begin with http") as caught:
        HTTPJudge("ftp://me:password@host?api-key=password", "m")
    assert "password" not in str(caught.value)


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_answer_without_an_end_is_given_up(coding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reward_funcs._judge_http.MAX_ANSWER", 100_000)
    body = b" " * 150_000
    body = gzip.compress(body) if coding == "gzip" else body
    cause, warning, requests = failure(Answer(body=body, headers={"Content-Encoding": coding}))
    assert (cause, requests) == ("too_large", 1) and "longer than 100000 bytes" in warning


def test_wait_after_a_thousand_tries_is_no_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reward_funcs._judge_http.MAX_WAIT", 0.0)
    with serving() as server:
        answers = iter([*(Answer(status=500) for _ in range(1050)), Answer()])
        server.answer = lambda request, number: next(answers)
        assert a_judge(server, max_retries=1100, retry_wait=0).score(tasks(1))[0].scores == {"correctness": 4.0}


def test_warning_of_cut_replies_names_what_makes_room() -> None:
    _, warning, _ = failure(Answer(QUOTED, finish="length"))
    assert "set max_tokens higher" in warning and "'enable_thinking': False" in warning
    assert "max_tokens" not in failure(Answer("no object"))[1]


def test_key_is_sent_without_the_white_space_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", " sk-secret\r\n")
    with serving() as server:
        assert a_judge(server, api_key_env="MY_KEY").score(tasks(1))[0].scores
    assert server.headers[0]["authorization"] == "Bearer sk-secret"


@pytest.mark.parametrize("key", ["sk-\u00e4", "sk-a\nb", "sk-\x00"])
def test_key_that_no_header_may_hold_is_refused_and_not_shown(key: str) -> None:
    from reward_funcs._judge_http import Endpoint

    endpoint = Endpoint("http://localhost:1/v1", "m", {}, "MY_KEY", 1, 1.0, 0, 0.0, None)
    with pytest.MonkeyPatch.context() as patch:
        if "\x00" in key:  # no environment holds it
            patch.setattr("os.environ", {"MY_KEY": key})
        else:
            patch.setenv("MY_KEY", key)
        with pytest.raises(ValueError, match=r"api_key_env='MY_KEY': .* no header may hold") as caught:
            endpoint.api_key()
    assert "sk-" not in str(caught.value)


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["http://", "http://[::1/v1", "http:// x/v1", "http://a:99999/v1", "http://a:b/v1", "http://me:password@/v1"]
)
def test_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="it must hold a host and perhaps a port; write it as http") as caught:
        HTTPJudge(url, "m")
    assert "password" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"parameters": 5}, "parameters=5: it must be a mapping"),
        ({"parameters": {"extra_body": 5}}, "extra_body=5, which must be a mapping"),
        ({"parameters": {"extra_body": {"messages": []}}}, "parameters names messages, which the judge sets itself"),
        ({"parameters": {"n": 2}}, "parameters names n"),
        ({"parameters": {"seed": 1}, "votes": 3, "temperature": 1.0}, "seed=1, with which votes=3 would all be alike"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HTTPJudge("http://localhost:1/v1", "m", **settings)


@pytest.mark.parametrize(
    ("number", "settings", "expected"),
    [
        (1, {}, {"max_tokens": 1024}),
        (4, {}, {"max_tokens": 1024}),
        (48, {}, {"max_tokens": 6656}),
        (48, {"max_tokens": 77}, {"max_tokens": 77}),
        (48, {"parameters": {"max_completion_tokens": 9}}, {"max_completion_tokens": 9}),
    ],
)
def test_length_of_a_reply_grows_with_the_criteria(number: int, settings: Any, expected: dict[str, int]) -> None:
    criteria = tuple(Criterion(f"c{n:02}", "It is met.", max_score=1) for n in range(number))
    reply = json.dumps({str(n): 1 for n in range(1, number + 1)})
    with serving(lambda request, number: Answer(reply)) as server:
        a_judge(server, **settings).score([JudgeTask("x", criteria)])
    assert {key: value for key, value in server.requests[0].items() if "tokens" in key} == expected


def test_each_rubric_logs_the_requests_of_its_own_call() -> None:
    logs: dict[str, float] = {}
    with serving(lambda request, number: Answer(delay=0.02)) as server:
        judge = a_judge(server)
        threads = [
            threading.Thread(
                target=Rubric([CORRECT], judge=judge, name=f"r{size}"),
                args=([f"{size} {n}" for n in range(size)],),
                kwargs={"log_metric": logs.__setitem__},
            )
            for size in (3, 5, 7)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {name: value for name, value in logs.items() if name.endswith("/judge/requests")} == {
        "r3/judge/requests": 3.0, "r5/judge/requests": 5.0, "r7/judge/requests": 7.0,
    }  # fmt: skip
    assert judge.counts["requests"] == len(server.requests) == 15
