"""`HTTPJudge` against a real server on loopback: what goes wrong there, how many requests at once, cache and budget."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from reward_funcs import AsyncReward
from reward_funcs._judge_http import retry_after, run_in_thread
from reward_funcs.judge import HTTPJudge, JudgeTask, Pair
from reward_funcs.rubric import Criterion, Rubric

SLEEP = asyncio.sleep
CORRECT = Criterion("correctness", "The final answer is correct.")
GOOD = '{"1": {"reason": "stated", "score": 4}}'


class Answer(NamedTuple):
    """How the server answers one request."""

    content: Any = GOOD
    status: int = 200
    headers: dict[str, str] = {}
    body: bytes | None = None
    delay: float = 0.0
    cut: bool = False
    drip: bool = False
    tokens: int = 100
    finish: str = "stop"
    refusal: str | None = None

    def data(self) -> bytes:
        if self.body is not None:
            return self.body
        message = {"role": "assistant", "content": self.content, "refusal": self.refusal}
        choices = [{"index": 0, "finish_reason": self.finish, "message": message}]
        return json.dumps({"choices": choices, "usage": {"total_tokens": self.tokens}}).encode()


class Server:
    """An endpoint that answers by `answer(request, number)`, keeps what it was asked and counts what is under way."""

    def __init__(self, answer: Callable[[dict[str, Any], int], Answer], hold: int = 0) -> None:
        self.answer = answer
        self.hold = hold  # nothing is answered before so many requests were under way at once
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.active = self.most = 0
        self.url = ""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                assert lines[0] == "POST /v1/chat/completions HTTP/1.1"
                headers = {line.split(":")[0].lower(): line.split(":", 1)[1].strip() for line in lines[1:] if line}
                request = json.loads(await reader.readexactly(int(headers["content-length"])))
                self.requests.append(request)
                self.headers.append(headers)
                self.active += 1
                self.most = max(self.most, self.active)
                try:
                    if not await self.send(self.answer(request, len(self.requests)), writer):
                        return
                finally:
                    self.active -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def send(self, answer: Answer, writer: asyncio.StreamWriter) -> bool:
        while self.most < self.hold:
            await SLEEP(0.005)
        await SLEEP(answer.delay)
        data = answer.data()
        if answer.cut:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
            await writer.drain()
            return False
        head = {"Content-Length": str(len(data)), "Content-Type": "application/json", **answer.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        writer.write(f"HTTP/1.1 {answer.status} Status\r\n{lines}\r\n".encode())
        for start in range(0, len(data), 1 if answer.drip else len(data)):
            writer.write(data[start : start + (1 if answer.drip else len(data))])
            await writer.drain()
            await SLEEP(0.02 if answer.drip else 0)
        return True


@contextmanager
def serving(answer: Callable[[dict[str, Any], int], Answer] | None = None, hold: int = 0) -> Iterator[Server]:
    """The server in a thread of its own."""
    server = Server(answer or (lambda request, number: Answer()), hold)
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    async def main() -> None:
        listening = await asyncio.start_server(server.talk, "127.0.0.1", 0, backlog=512)
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
        ready.set()
        await listening.serve_forever()

    def work() -> None:
        asyncio.set_event_loop(loop)
        task = loop.create_task(main())
        loop.run_forever()
        for one in asyncio.all_tasks(loop):
            one.cancel()
        loop.run_until_complete(asyncio.gather(task, *asyncio.all_tasks(loop), return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def a_judge(server: Server, **settings: Any) -> HTTPJudge:
    return HTTPJudge(server.url, "stub", **{"max_retries": 2, "retry_wait": 0.001, "timeout": 5.0, **settings})


def tasks(number: int) -> list[JudgeTask]:
    return [JudgeTask(f"The answer is {n}.", (CORRECT,), prompt="How many?") for n in range(number)]


def cause(server: Server, **settings: Any) -> str:
    """The cause for which one task has no score."""
    with pytest.warns(UserWarning, match="HTTPJudge judged none of the 1 questions"):
        (verdict,) = a_judge(server, **settings).score(tasks(1))
    assert not verdict.scores
    return verdict.cause


# --- what goes wrong ----------------------------------------------------------------------------------------------


def test_request_holds_model_messages_and_parameters() -> None:
    with serving() as server:
        judge = a_judge(server, temperature=0.5, max_tokens=77, parameters={"top_p": 0.9, "chat_template_kwargs": {}})
        assert judge.score(tasks(1))[0].scores == {"correctness": 4.0}
    (request,) = server.requests
    assert {key: value for key, value in request.items() if key not in ("messages", "stream")} == {
        "model": "stub", "temperature": 0.5, "max_tokens": 77, "top_p": 0.9, "chat_template_kwargs": {},
    }  # fmt: skip
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert "The answer is 0." in request["messages"][1]["content"]


@pytest.mark.parametrize(
    ("answer", "expected", "requests"),
    [
        (Answer(status=429), "http_429", 3),
        (Answer(status=500), "http_5xx", 3),
        (Answer(status=503, body=b""), "http_5xx", 3),
        (Answer(status=408), "timeout", 3),
        (Answer(status=401), "http_4xx", 1),
        (Answer(status=400, body=b"<html>"), "http_4xx", 1),
        (Answer(cut=True), "connection", 3),
        (Answer(delay=30.0), "timeout", 3),
        (Answer(drip=True), "timeout", 3),
        (Answer(body=b"<html>busy</html>"), "malformed", 3),
        (Answer(body=b"[1, 2]"), "malformed", 3),
        (Answer(body=b"\xff\xfe"), "malformed", 3),
        (Answer(body=b'{"choices": []}'), "malformed", 3),
        (Answer(body=b'{"choices": null}'), "malformed", 3),
        (Answer(body=b'{"error": "overloaded"}'), "malformed", 3),
        (Answer("I like it."), "malformed", 2),
        (Answer('{"1": {"score": "good"}}'), "malformed", 2),
        (Answer('{"1": {"score": 9}}'), "out_of_range", 2),
        (Answer('{"1": {"score": -1}}'), "out_of_range", 2),
        (Answer('{"1": {"score": NaN}}'), "out_of_range", 2),
        (Answer(""), "refused", 1),
        (Answer(None), "refused", 1),
        (Answer(GOOD, finish="content_filter"), "refused", 1),
        (Answer(GOOD, refusal="I cannot help with that."), "refused", 1),
    ],
)
def test_failure_has_its_cause_after_the_tries_that_make_sense(answer: Answer, expected: str, requests: int) -> None:
    with serving(lambda request, number: answer) as server:
        slow = answer.delay or answer.drip
        assert cause(server, timeout=0.3 if slow else 5.0) == expected
    assert len(server.requests) == requests


@pytest.mark.parametrize(
    "fault",
    [
        Answer(status=429),
        Answer(status=502),
        Answer(cut=True),
        Answer(delay=30.0),
        Answer(body=b"{"),
        Answer(body=b'{"error": {"message": "overloaded", "code": 503}}'),
        Answer(body=b'{"choices": []}'),
        Answer("no object"),
        Answer('{"1": {"score": 6}}'),
    ],
)
def test_right_answer_after_a_fault_is_the_score(fault: Answer) -> None:
    with serving(lambda request, number: fault if number == 1 else Answer()) as server:
        judge = a_judge(server, timeout=0.5)
        assert judge.score(tasks(1))[0].scores == {"correctness": 4.0}
    assert len(server.requests) == 2
    assert judge.counts["retries"] + judge.counts["again"] == 1


def test_refused_connection_is_a_connection_failure() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = Server(lambda request, number: Answer())
        server.url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        assert cause(server) == "connection"


def test_fault_is_named_when_the_judge_is_asked_again() -> None:
    with serving(lambda request, number: Answer('So: {"1": {"score": 7}}') if number == 1 else Answer()) as server:
        a_judge(server).score(tasks(1))
    first, second = (request["messages"] for request in server.requests)
    assert second[:2] == first
    assert second[2] == {"role": "assistant", "content": 'So: {"1": {"score": 7}}'}
    assert "the score of 1 (correctness) is 7, but it must be from 0 to 5" in second[3]["content"]


def test_waits_double_have_jitter_and_heed_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float, *rest: Any) -> None:
        waits.append(seconds)
        await SLEEP(0)

    def answer(request: dict[str, Any], number: int) -> Answer:
        return Answer(status=429, headers={"Retry-After": "7"} if number == 3 else {})

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with serving(answer) as server:
        assert cause(server, max_retries=4, retry_wait=1.0) == "http_429"
    first, second, third, fourth = (wait for wait in waits if wait)
    assert 0.5 <= first <= 1.0 and 1.0 <= second <= 2.0 and third == 7.0 and 4.0 <= fourth <= 8.0
    assert (first, second) != (1.0, 2.0)


def test_retry_after_beyond_the_time_of_the_batch_is_not_waited_for() -> None:
    with serving(lambda request, number: Answer(status=429, headers={"Retry-After": "3600"})) as server:
        assert cause(server) == "http_429"
    assert len(server.requests) == 1


def test_retry_after_reads_seconds_and_dates() -> None:
    assert retry_after("1.5") == 1.5 and retry_after(None) == retry_after("-3") == retry_after("x") == 0.0
    assert retry_after("Fri, 31 Dec 2999 23:59:59 GMT") > 1e9


def test_batch_timeout_ends_what_is_under_way_and_keeps_what_is_done() -> None:
    def answer(request: dict[str, Any], number: int) -> Answer:
        return Answer(delay=0.0 if "answer is 0." in request["messages"][1]["content"] else 60.0)

    with serving(answer) as server:
        verdicts = a_judge(server, batch_timeout=1.0, timeout=50.0).score(tasks(3))
    assert [verdict.cause for verdict in verdicts] == ["", "timeout", "timeout"]


def test_failures_become_missing_rewards_with_counted_causes() -> None:
    metrics: dict[str, float] = {}
    by_number = {0: Answer(), 1: Answer(status=500), 2: Answer("no"), 3: Answer('{"1": {"score": 50}}')}

    def answer(request: dict[str, Any], number: int) -> Answer:
        return next(one for n, one in by_number.items() if f"answer is {n}." in request["messages"][1]["content"])

    with serving(answer) as server:
        rubric = Rubric([CORRECT], judge=a_judge(server), name="rubric")
        texts = [task.completion for task in tasks(4)]
        assert rubric(texts, log_metric=metrics.__setitem__) == [0.8, None, None, None]
    assert {name: value for name, value in metrics.items() if name.startswith("rubric/none/")} == {
        "rubric/none/http_5xx": 1.0, "rubric/none/malformed": 1.0, "rubric/none/out_of_range": 1.0,
    }  # fmt: skip
    assert metrics["rubric/correctness"] == 4.0
    assert metrics["rubric/judge/requests"] == 6.0 and metrics["rubric/judge/again"] == 2.0
    assert metrics["rubric/judge/retries"] == 2.0 and metrics["rubric/judge/tokens"] == 500.0


# --- how many at once, and from where -------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 7, 64])
def test_no_more_requests_than_allowed_are_under_way(limit: int) -> None:
    with serving(lambda request, number: Answer(delay=0.05), hold=limit) as server:
        verdicts = a_judge(server, max_concurrency=limit).score(tasks(3 * limit))
    assert all(verdict.scores == {"correctness": 4.0} for verdict in verdicts)
    assert len(server.requests) == len(verdicts)
    assert server.most == limit


def test_thousand_items_are_asked_once_each_sixty_four_at_a_time() -> None:
    with serving(lambda request, number: Answer(delay=0.1), hold=64) as server:
        verdicts = a_judge(server, timeout=60.0).score(tasks(1000))
    assert {verdict.scores["correctness"] for verdict in verdicts} == {4.0}
    assert len(server.requests) == 1000 and server.most == 64


def test_calls_from_several_threads_share_the_limit() -> None:
    with serving(lambda request, number: Answer(delay=0.05), hold=4) as server:
        judge = a_judge(server, max_concurrency=4)
        with ThreadPoolExecutor(3) as pool:
            batches = list(pool.map(judge.score, [tasks(8), tasks(8), tasks(8)]))
    assert len(server.requests) == 24 and server.most == 4
    assert all(verdict.scores for batch in batches for verdict in batch)


def test_equal_tasks_of_a_call_are_asked_once() -> None:
    with serving() as server:
        assert len(a_judge(server).score(tasks(2) * 5)) == 10
    assert len(server.requests) == 2


def test_judge_works_under_a_running_event_loop_and_leaves_it_alone() -> None:
    async def under_a_loop(judge: HTTPJudge) -> list[Any]:
        before = asyncio.get_running_loop()
        verdicts = judge.score(tasks(2))
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is before
        return verdicts

    with serving() as server:
        judge = a_judge(server)
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            assert judge.score(tasks(2)) == loop.run_until_complete(under_a_loop(judge))
            assert asyncio.get_event_loop() is loop
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def test_asynchronous_form_gives_the_same_rewards() -> None:
    def answer(request: dict[str, Any], number: int) -> Answer:
        score = int(request["messages"][1]["content"].split("answer is ")[1][0]) % 6
        return Answer(json.dumps({"1": {"score": score}}))

    with serving(answer) as server:
        rubric = Rubric([CORRECT], judge=a_judge(server))
        texts = [task.completion for task in tasks(6)]
        rewards = rubric(texts)
        assert rewards == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        assert asyncio.run(AsyncReward(rubric)(texts)) == rewards
        assert rubric(texts[::-1]) == rewards[::-1]


def test_judge_can_be_pickled_after_use() -> None:
    with serving() as server:
        judge = a_judge(server)
        first = judge.score(tasks(2))
        copy = pickle.loads(pickle.dumps(Rubric([CORRECT], judge=judge))).judge
        assert copy.score(tasks(2)) == first
        assert copy.counts["requests"] == 4 and judge.counts["requests"] == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_judge_works_in_a_forked_process_whose_parent_holds_its_lock() -> None:
    with serving() as server:
        judge = a_judge(server)
        judge.score(tasks(1))
        reading, writing = os.pipe()
        with judge._turn():
            child = os.fork()
            if not child:
                signal.alarm(60)  # a child that waits for ever would hold up all tests
                os.write(writing, str(judge.score(tasks(1))[0].scores["correctness"]).encode())
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            assert pipe.read() == "4.0"
        assert os.waitpid(child, 0)[1] == 0
    assert len(server.requests) == 2


def test_interrupt_cancels_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    began, ended = threading.Event(), threading.Event()

    async def endless() -> None:
        began.set()
        try:
            await SLEEP(3600)
        finally:
            ended.set()

    def interrupted(thread: threading.Thread) -> None:
        assert began.wait(10)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_in_thread(endless)
    assert ended.wait(10)


def test_bug_under_way_is_raised_in_the_thread_that_waits() -> None:
    async def bug() -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError, match="bug"):
        run_in_thread(bug)


# --- keys, budget, cache --------------------------------------------------------------------------------------------


def test_no_token_of_the_hub_reaches_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_user")
    with serving() as server:
        a_judge(server).score(tasks(1))
    assert server.headers[0]["authorization"] == "Bearer EMPTY"
    assert "hf_of_the_user" not in str(server.headers)


def test_key_comes_from_the_environment_and_stands_in_no_repr_and_no_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret")
    with serving() as server:
        judge = a_judge(server, api_key_env="MY_KEY")
        judge.score(tasks(1))
        assert server.headers[0]["authorization"] == "Bearer sk-secret"
        assert "secret" not in repr(judge) and b"secret" not in pickle.dumps(judge)
        monkeypatch.delenv("MY_KEY")
        with pytest.raises(ValueError, match="api_key_env='MY_KEY': this environment variable is not set"):
            judge.score(tasks(1))


def test_budget_of_tokens_ends_the_questions() -> None:
    with serving(lambda request, number: Answer(tokens=100)) as server:
        judge = a_judge(server, token_budget=250, max_concurrency=1)
        verdicts = judge.score(tasks(5))
        assert [verdict.cause for verdict in verdicts] == ["", "", "", "budget", "budget"]
        with pytest.warns(UserWarning, match="budget of 250 tokens is spent"):
            assert judge.score(tasks(6)[5:])[0].cause == "budget"
    assert len(server.requests) == 3 and judge.counts["tokens"] == 300


def test_second_pass_over_a_cache_makes_no_request(tmp_path: Any) -> None:
    with serving() as server:
        judge = a_judge(server, cache=tmp_path / "new" / "judge.sqlite")
        first = judge.score(tasks(20))
        assert judge.score(tasks(20)) == first
        again = a_judge(server, cache=tmp_path / "new" / "judge.sqlite")
        assert again.score(tasks(21))[:20] == first
        assert (judge.counts["cached"], again.counts["cached"]) == (20, 20)
    assert len(server.requests) == 21
    fences = {request["messages"][0]["content"].split("<<")[1][:16] for request in server.requests}
    assert len(fences) == 21


@pytest.mark.parametrize(
    "change", [{"temperature": 0.5}, {"max_tokens": 9}, {"parameters": {"top_p": 0.5}}, {"strip_think": False}]
)
def test_cache_tells_apart_what_can_change_the_reply(change: dict[str, Any], tmp_path: Any) -> None:
    asked = [JudgeTask("<think>Hm.</think>It is 4.", (CORRECT,))]
    with serving() as server:
        a_judge(server, cache=tmp_path / "judge.sqlite").score(asked)
        a_judge(server, cache=tmp_path / "judge.sqlite", **change).score(asked)
        assert len(server.requests) == 2
        other = HTTPJudge(server.url, "other", cache=tmp_path / "judge.sqlite")
        assert other.score(asked)[0].scores and len(server.requests) == 3


def test_cache_keeps_what_was_said_when_asked_again_and_no_failure(tmp_path: Any) -> None:
    answers = [Answer("no"), Answer("no"), Answer("no"), Answer()]
    with serving(lambda request, number: answers[number - 1]) as server:
        judge = a_judge(server, cache=tmp_path / "judge.sqlite")
        with pytest.warns(UserWarning, match="malformed"):
            assert judge.score(tasks(1))[0].cause == "malformed"
        for _ in range(2):
            assert judge.score(tasks(1))[0].scores == {"correctness": 4.0}
    assert len(server.requests) == 4


def test_cache_is_shared_by_threads_that_begin_it_together(tmp_path: Any) -> None:
    with serving() as server:
        judges = [a_judge(server, cache=tmp_path / "judge.sqlite") for _ in range(6)]
        with ThreadPoolExecutor(6) as pool:
            batches = list(pool.map(lambda judge: judge.score(tasks(30)), judges))
        assert all(batch == batches[0] for batch in batches)
        before = len(server.requests)
        a_judge(server, cache=tmp_path / "judge.sqlite").score(tasks(30))
        assert len(server.requests) == before
    assert [path.name for path in tmp_path.iterdir()] == ["judge.sqlite"]


def test_broken_cache_is_said_and_done_without(tmp_path: Any) -> None:
    (tmp_path / "judge.sqlite").write_bytes(b"no data base at all" * 100)
    with serving() as server, pytest.warns(UserWarning, match=r"cache judge.sqlite cannot be used .*asked for again"):
        assert a_judge(server, cache=tmp_path / "judge.sqlite").score(tasks(1))[0].scores == {"correctness": 4.0}


# --- votes and pairs --------------------------------------------------------------------------------------------------


def test_median_of_the_votes_is_the_score_and_each_vote_is_cached(tmp_path: Any) -> None:
    scores = [5, 1, 2]
    with serving(lambda request, number: Answer(json.dumps({"1": {"score": scores[number - 1]}}))) as server:
        judge = a_judge(server, votes=3, temperature=0.7, max_concurrency=1, cache=tmp_path / "judge.sqlite")
        assert judge.score(tasks(1))[0].scores == {"correctness": 2.0}
        assert judge.score(tasks(1))[0].scores == {"correctness": 2.0}
    assert len(server.requests) == 3


def test_pair_is_asked_in_both_orders() -> None:
    def answer(request: dict[str, Any], number: int) -> Answer:
        text = request["messages"][1]["content"]  # its random fences are hexadecimal: neither word can stand in one
        return Answer(json.dumps({"better": 1 if text.index("good") < text.index("poor") else 2}))

    with serving(answer) as server:
        compared = a_judge(server).compare([Pair("good", "poor"), Pair("poor", "good")])
    assert [one.winner for one in compared] == ["first", "second"]
    assert len(server.requests) == 4


def test_pair_with_a_failed_order_has_no_winner() -> None:
    with serving(lambda request, number: Answer('{"better": 1}') if number == 1 else Answer(status=500)) as server:
        assert a_judge(server, max_concurrency=1).compare([Pair("a", "b")])[0] == (None, "http_5xx")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_concurrency": 0}, "max_concurrency=0: it must be a whole number of at least 1"),
        ({"timeout": 0}, "timeout=0: it must be above 0 seconds"),
        ({"votes": 3}, "votes=3 at temperature=0 would all be alike"),
        ({"parameters": {"stream": True}}, "parameters names stream, which the judge sets itself"),
        ({"cache": "/"}, "cache='/' is a folder"),
    ],
)
def test_setting_that_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HTTPJudge("http://localhost:8000/v1", "stub", **settings)
