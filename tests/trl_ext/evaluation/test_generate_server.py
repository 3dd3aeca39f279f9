"""ServerGenerator against a real server on loopback: what it asks, what it makes of the answers, when it asks again."""

import asyncio
import json
import pickle
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trl_ext.errors import UserError
from trl_ext.evaluation._generate_server import ServerError, ServerGenerator
from trl_ext.evaluation.requests import Request, SamplingParams

PARAMS = SamplingParams(temperature=0.6, top_p=0.95, max_new_tokens=32)
KEY = "secret-key-17"


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def reply(content="4", *, finish="stop", tokens=3, **message):
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
    usage = {} if tokens is None else {"usage": {"completion_tokens": tokens, "prompt_tokens": 5, "total_tokens": 8}}
    return 200, {"choices": [choice], **usage}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        server = self.server
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.requests.append(request)
            server.authorizations.append(self.headers.get("Authorization"))
            number = len(server.requests)
            server.active += 1
            server.most = max(server.most, server.active)
        status, body, *headers = server.answer(request, number)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        with server.lock:
            server.active -= 1
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    """Keeps what it was asked, with which key, and how much was under way at once."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.lock = threading.Lock()
        self.requests, self.authorizations, self.active, self.most = [], [], 0, 0
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request, client_address):
        """A client that hung up is what some tests are about."""


@contextmanager
def serving(answer=None):
    server = Server(answer or (lambda request, number: reply()))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def a_generator(server, **settings):
    return ServerGenerator(server.url, "served", **{"retry_wait": 0.01, "timeout": 10.0, **settings})


def a_request(prompt="2+2=", seed=5, key="s/1:0"):
    return Request(key, prompt, seed)


def test_request_holds_prompt_and_sampling_and_seed():
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    with serving() as server:
        found = a_generator(server).generate([a_request(turns, seed=2**40 + 7)], PARAMS)
    expected = {"model": "served", "messages": turns, "max_tokens": 32, "temperature": 0.6, "top_p": 0.95, "seed": 7}
    assert expected.items() <= server.requests[0].items()
    assert "top_k" not in server.requests[0]
    assert [(one.text, one.num_tokens, one.is_truncated) for one in found] == [("4", 3, False)]


def test_text_is_one_turn_and_further_fields_are_sent():
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    params = SamplingParams(temperature=0.6, top_k=20)
    with serving() as server:
        a_generator(server, extra_body=extra).generate([a_request("2+2=")], params)
    assert server.requests[0]["messages"] == [{"role": "user", "content": "2+2="}]
    assert server.requests[0]["chat_template_kwargs"] == {"enable_thinking": False}
    assert server.requests[0]["top_k"] == 20


def test_completions_come_in_the_order_of_the_requests():
    def answer(request, number):
        asked = int(request["messages"][0]["content"])
        time.sleep(0.03 * (asked % 3 == 0))
        return reply(str(asked * asked))

    with serving(answer) as server:
        found = a_generator(server).generate([a_request(str(i), i, f"k{i}") for i in range(20)], PARAMS)
    assert [one.text for one in found] == [str(i * i) for i in range(20)]
    assert a_generator(server).generate([], PARAMS) == []


def test_no_more_requests_than_allowed_are_under_way():
    def answer(request, number):
        time.sleep(0.03)
        return reply()

    with serving(answer) as server:
        a_generator(server, concurrency=3).generate([a_request(key=str(i)) for i in range(12)], PARAMS)
    assert server.most == 3


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply("so", finish="length", tokens=32), ("so", 32, True)),
        (reply("12345678", tokens=None), ("12345678", 2, False)),
        (reply("4", reasoning_content="two and two"), ("<think>\ntwo and two\n</think>\n4", 3, False)),
        (reply(None, reasoning_content="two and", finish="length"), ("<think>\ntwo and", 3, True)),
        (reply(None), ("", 3, False)),
    ],
)
def test_answer_of_the_server_becomes_a_completion(answer, expected):
    with serving(lambda request, number: answer) as server:
        [found] = a_generator(server).generate([a_request()], PARAMS)
    assert (found.text, found.num_tokens, found.is_truncated) == expected


@pytest.mark.parametrize(
    "fault",
    [
        (500, {"error": "overloaded"}),
        (503, {"error": "starting"}),
        (429, {"error": "slow down"}, ("Retry-After", "0")),
        (408, {}),
        (502, b"<html>Bad Gateway</html>"),
        (500, {"error": ["a list"]}),
        (200, b"no JSON"),
        (200, {"choices": []}),
    ],
)
def test_passing_fault_is_tried_again(fault):
    with serving(lambda request, number: fault if number < 3 else reply("right")) as server:
        [found] = a_generator(server).generate([a_request()], PARAMS)
    assert found.text == "right"
    assert len(server.requests) == 3


def test_long_wait_that_the_server_asks_for_is_told_once_and_cut_short(monkeypatch, caplog):
    waits = []

    async def no_sleep(seconds, plain=asyncio.sleep):
        waits.append(seconds)
        await plain(0)

    def busy(request, number):
        return 429, {"error": "slow down"}, ("Retry-After", "3600")

    monkeypatch.setattr(asyncio, "sleep", no_sleep)
    with serving(busy) as server, caplog.at_level("WARNING", "trl_ext.evaluation"):
        with pytest.raises(ServerError, match=r"after 3 tries .*slow down"):
            a_generator(server, max_retries=2).generate([a_request()], PARAMS)
    assert [wait for wait in waits if wait >= 1] == [300.0, 300.0] and len(server.requests) == 3
    [told] = [record.getMessage() for record in caplog.records]
    assert f"{server.url} asks to wait 3600 seconds" in told and "at most 300, 3 tries" in told


def test_short_wait_that_the_server_asks_for_is_not_told(caplog):
    fault = 429, {"error": "slow down"}, ("Retry-After", "0.01")
    with serving(lambda request, number: fault if number == 1 else reply()) as server:
        assert a_generator(server).generate([a_request()], PARAMS)[0].text == "4"
    assert not caplog.records


def test_arguments_of_the_chat_template_of_a_request_are_sent_with_it():
    extra = {"chat_template_kwargs": {"thinking": True, "a": 1}}
    requests = [Request("s/1:0", "2+2=", 5, {"thinking": False}), a_request()]
    with serving() as server:
        a_generator(server, extra_body=extra, concurrency=1).generate(requests, PARAMS)
    assert server.requests[0]["chat_template_kwargs"] == {"thinking": False, "a": 1}
    assert server.requests[1]["chat_template_kwargs"] == {"thinking": True, "a": 1}


def test_slow_answer_is_tried_again():
    def answer(request, number):
        time.sleep(0.6 if number == 1 else 0)
        return reply("in time")

    with serving(answer) as server:
        assert a_generator(server, timeout=0.3).generate([a_request()], PARAMS)[0].text == "in time"


def test_lasting_fault_names_the_request_and_what_the_server_said():
    with serving(lambda request, number: (503, {"error": "no GPU"})) as server, pytest.raises(ServerError) as caught:
        a_generator(server, max_retries=2).generate([a_request(key="aime/3:1")], PARAMS)
    assert len(server.requests) == 3
    message = str(caught.value)
    assert "request aime/3:1" in message and "after 3 tries" in message and "no GPU" in message
    assert isinstance(caught.value, UserError)


@pytest.mark.parametrize("status", [302, 400, 401, 404])
def test_refused_request_is_not_tried_again(status):
    with serving(lambda request, number: (status, {"error": "no such model"})) as server:
        with pytest.raises(ServerError, match=r"after one try .*no such model"):
            a_generator(server).generate([a_request()], PARAMS)
    assert len(server.requests) == 1


def test_one_failure_ends_the_batch_at_once():
    def answer(request, number):
        if request["messages"][0]["content"] == "bad":
            return 400, {"error": "too long"}
        time.sleep(0.2)
        return reply()

    requests = [a_request("bad", key="bad"), *(a_request(str(i), key=str(i)) for i in range(30))]
    with serving(answer) as server, pytest.raises(ServerError, match="request bad"):
        a_generator(server, concurrency=2).generate(requests, PARAMS)
    assert len(server.requests) < 10


def test_server_that_is_not_there_is_named():
    with serving() as server:
        pass
    with pytest.raises(ServerError, match=rf"{server.url} gave no completion.*see that the server runs"):
        a_generator(server, max_retries=1).generate([a_request()], PARAMS)


def test_key_is_sent_and_is_in_no_message_and_no_description():
    def answer(request, number):
        return 401, {"error": f"Incorrect API key {KEY}"}

    with serving(answer) as server:
        generator = a_generator(server, api_key=KEY)
        with pytest.raises(ServerError) as caught:
            generator.generate([a_request()], PARAMS)
    assert server.authorizations == [f"Bearer {KEY}"]
    assert KEY not in str(caught.value) + json.dumps(generator.describe()) + repr(generator)


def test_key_comes_from_the_environment_and_not_from_the_hub(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_never")
    with serving() as server:
        a_generator(server).generate([a_request()], PARAMS)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        generator = a_generator(server)
        generator.generate([a_request()], PARAMS)
    assert server.authorizations == ["Bearer EMPTY", f"Bearer {KEY}"]
    assert KEY.encode() not in pickle.dumps(generator)


def test_newline_behind_the_key_is_dropped_and_other_text_refused(monkeypatch):
    with serving() as server:
        a_generator(server, api_key=f"{KEY}\n").generate([a_request()], PARAMS)
        with pytest.raises(UserError, match="holds characters that no key has"):
            a_generator(server, api_key="café").generate([a_request()], PARAMS)
    assert server.authorizations == [f"Bearer {KEY}"]


def test_password_and_query_in_the_address_are_not_shown():
    generator = ServerGenerator("http://me:hidden@127.0.0.1:9/v1?token=hidden", "m", max_retries=0)
    with pytest.raises(ServerError) as caught:
        generator.generate([a_request()], PARAMS)
    assert "hidden" not in str(caught.value) + json.dumps(generator.describe())
    assert generator.describe()["url"] == "http://127.0.0.1:9/v1"


def test_generator_works_under_a_running_event_loop():
    async def under_a_loop():
        return a_generator(server).generate([a_request()], PARAMS)

    with serving() as server:
        assert asyncio.run(under_a_loop())[0].text == "4"


def test_description_names_address_and_model():
    described = ServerGenerator("http://host:8000/v1/", "m", extra_body={"min_p": 0.1}).describe()
    assert described["url"] == "http://host:8000/v1"
    assert (described["backend"], described["model"], described["extra_body"]) == ("server", "m", {"min_p": 0.1})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"url": "localhost:8000"}, "url='localhost:8000' must start with http"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"max_retries": -1}, "max_retries=-1"),
        ({"timeout": 0}, "timeout=0"),
        ({"retry_wait": -1.0}, "retry_wait=-1.0"),
    ],
)
def test_wrong_settings_are_refused(settings, words):
    with pytest.raises(UserError, match=words):
        ServerGenerator(**{"url": "http://host/v1", "model": "m", **settings})
