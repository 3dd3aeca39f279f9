"""`HTTPSandbox` against a server on loopback."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from reward_funcs.code import CodeReward
from reward_funcs.sandbox import HTTPSandbox, Job

GOLD = {"inputs": ["1"], "outputs": ["8731"]}
RIGHT = {"messages": [["output", 0, "8731\n", "ok"]], "failed": "", "end": "done"}


@pytest.fixture
def server():
    """A server that gives the replies of a list, one after the other, and keeps what it was sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            served.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            status, body = served.replies.pop(0)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.replies, served.bodies = [], []
    served.url = f"http://127.0.0.1:{served.server_port}/run"
    thread = threading.Thread(target=served.serve_forever, args=(0.01,))
    thread.start()
    yield served
    served.shutdown()
    thread.join()
    served.server_close()


def reward_of(server, *replies):
    server.replies[:] = [
        (status, body if isinstance(body, bytes) else json.dumps(body).encode()) for status, body in replies
    ]
    return CodeReward(sandbox=HTTPSandbox(server.url))(["```\nprint(8731)\n```"], solution=[GOLD])[0]


def test_the_reply_is_judged_here_and_the_expected_output_stays_here(server):
    assert reward_of(server, (200, RIGHT)) == 1.0
    sent = json.loads(server.bodies[0])
    assert (sent["mode"], sent["code"], sent["inputs"], "outputs" in sent) == ("stdio", "print(8731)", ["1"], False)
    assert reward_of(server, (200, {**RIGHT, "messages": [["output", 0, "7", "ok"]]})) == 0.0


def test_a_failure_that_passes_is_tried_again(server):
    assert reward_of(server, (503, b""), (429, b""), (200, RIGHT)) == 1.0


def test_a_module_for_pytest_has_passed_when_the_service_says_how_many_tests_there_were(server):
    gold = {"pytest": "def test_one(): assert f() == 1\n\ndef test_two(): assert f() == 1"}
    reward = CodeReward(sandbox=HTTPSandbox(server.url), partial_credit=True)
    passed = [["verdict", 0, "passed"], ["verdict", 1, "passed"]]
    replies = [(passed, "done", 2), (passed[:1], "crash", 2), (passed[:1], "done", 2), (passed, "done", -1)]
    server.replies[:] = [
        (200, json.dumps({"messages": messages, "failed": "", "end": end, "num_tests": number}).encode())
        for messages, end, number in replies
    ]
    assert [reward(["```\nx = 1\n```"], solution=[gold])[0] for _ in replies] == [1.0, 0.5, 0.5, None]


@pytest.mark.filterwarnings("ignore:.*got no outcome:RuntimeWarning")
@pytest.mark.parametrize(
    "reply",
    [
        (400, b""),
        (200, b"no JSON"),
        (200, []),
        (200, {"end": "done"}),
        (200, {**RIGHT, "messages": [["output", 5, "", "ok"]]}),
        (200, {**RIGHT, "messages": [["output", 0, "1", "ok"], ["output", 1, "1", "ok"]]}),
        (200, {**RIGHT, "messages": [["value", 0, 8731]]}),
        (200, {**RIGHT, "messages": [[["output"], 0, "", "ok"]]}),
        (200, {**RIGHT, "num_tests": "1"}),
        (200, {**RIGHT, "seconds": -1}),
    ],
    ids=repr,
)
def test_a_bad_reply_is_none(server, reply):
    assert reward_of(server, reply) is None


@pytest.mark.parametrize("value", [["d", 5], ["d", []], ["d", [["l"], 1]], ["o", None], {"a": 1}, [], ["i"], 8732])
@pytest.mark.parametrize("expected", [{"a": 1}, [1], 8731])
def test_a_forged_value_is_wrong_and_raises_nothing(server, value, expected):
    reply = json.dumps({"messages": [["value", 0, value]], "failed": "", "end": "done"}).encode()
    server.replies[:] = [(200, reply), (200, reply)]
    reward = CodeReward(sandbox=HTTPSandbox(server.url))
    golds = [{"fn_name": "f", "inputs": [[1]], "outputs": [expected]}, {"asserts": [f"assert f(1) == {expected!r}"]}]
    assert [reward(["```\nx = 1\n```"], solution=[gold])[0] for gold in golds] == [0.0, 0.0]


def test_nobody_there_is_none():
    assert HTTPSandbox("http://127.0.0.1:9/", max_retries=0).run([Job("stdio", "", {"inputs": [""]})]) == [None]
