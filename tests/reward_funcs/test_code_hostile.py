# ruff: noqa: E501 - programs and golds in one line each are easier to compare
"""Programs that answer for their own process, and golds that cannot be read: a verdict or `None`, and never an error."""

import json
from decimal import Decimal

import pytest

from reward_funcs._code_compare import equals_literal, same_result
from reward_funcs._code_tests import MAX_DEPTH, gold_tests
from reward_funcs._sandbox_wire import WireError, checked, decoded, encoded
from reward_funcs.code import CodeReward
from reward_funcs.sandbox import LocalSandbox, Outcome, _is_message, _Running, sandbox_report

needs_isolation = pytest.mark.skipif(not sandbox_report().is_isolated, reason="nothing isolates programs here")
SERVER = "import gc, sys\nS = sys.modules['reward_funcs._sandbox_answer'].Server\n"
# the program's own reply to the request that loads it
REPLY = (
    SERVER
    + "srv = [one for one in gc.get_objects() if type(one) is S][0]\nw = srv.written\nf = lambda *a, **k: 0\n"
    + "srv.channel.send(['ok', {{'f': w(f), {names}}}, []])\nsrv.serve()"
)
FAKES = ["abs", "len", "set", "sorted", "sum", "list", "isinstance", "all", "range", "zip", "enumerate", "__import__"]
BUILTINS = "'__builtins__': ['d', " + ", ".join(f"[{name!r}, w(lambda *a, **k: [])]" for name in FAKES) + "]"


def rewards(gold, *codes, **settings):
    """Rewards and reasons of programs."""
    logged = {}
    reward = CodeReward(**{"timeout": 30.0, "total_timeout": 60.0, **settings})
    found = reward(
        [f"```python\n{code}\n```" for code in codes], solution=[gold] * len(codes), log_extra=logged.__setitem__
    )
    return found, logged["code_reward/reason"]


def asserts(*blocks):
    return {"asserts": list(blocks)}


@needs_isolation
@pytest.mark.parametrize(
    "gold",
    [
        asserts("assert abs(f(3) - 2.5) < 1e-6"),
        asserts("assert sorted(f([3, 1])) == sorted([1, 3])"),
        asserts("assert set(f(3)) == set((1, 2))"),
        asserts("for i in range(5):\n    assert f(i) == i * i"),
        asserts("for a, b in zip([1, 2], [3, 4]):\n    assert f(a) == b"),
        asserts("import math\nassert math.isclose(f(3), 2.5)"),
        asserts("def check(candidate):\n    assert all(candidate(i) == i + 1 for i in [1, 2])\ncheck(f)"),
        {"pytest": "def test_a():\n    assert abs(f(3) - 2.5) < 1e-6"},
        {"pytest": "from solution import f\ndef test_a():\n    for i in range(3):\n        assert f(i) == i + 1"},
    ],
)
def test_a_reply_that_names_the_builtins_changes_none(gold):
    assert rewards(gold, REPLY.format(names=BUILTINS))[0] == [0.0]
    assert rewards(gold, REPLY.format(names="'a b': 1, 'class': 1, '__name__': 1, '': 1"))[0] == [0.0]


@needs_isolation
@pytest.mark.parametrize(
    ("names", "test"),
    [
        ("'g': ['m', 'random', '_os']", "assert g.getpid() == 1"),
        ("'g': ['m', 'typing', 'sys']", "assert g.version"),
        ("'sys': ['m', 'typing', 'sys']", "assert sys.version and f(1) == 0"),
        ("'eq': ['m', 'operator', 'eq']", "assert eq(f(1), 0)"),
        ("'g': ['m', 'math', 5]", "assert g"),
        ("'g': ['m', 'os', 'getpid']", "assert g() > 0"),
        ("'g': ['h', 0, 'object', [], ['h', 0, 'object', []]]", "assert g == 0"),
        ("'E': ['h', 0, 'exception', 5]", "assert f(1) == 0"),
    ],
)
def test_a_reply_that_names_what_no_program_can_import_is_refused(names, test):
    assert rewards(asserts(test), REPLY.format(names=names)) == ([0.0], ["bad_value"])


@needs_isolation
@pytest.mark.parametrize(
    "value",
    [
        "['d', 5]", "['d', []]", "['d', {'a': 1}]", "['d', 'ab']", "['o', None]", "['d', [['i', 5], 1]]", "{'a': 1}", "['i']",
        "[[1], 2]", "['x']", "['l', ['d']]", "['d', [['l'], 1]]", "['d', [{'a': 1}, 1]]", "['T', 'Decimal', 'x']", "['b', 1]",
    ],
)  # fmt: skip
def test_a_forged_result_is_wrong_and_raises_nothing(value):
    forged = f"{SERVER}S.do_method = lambda self, *a: ['ok', {value}, []]\nS.do_op = S.do_call = S.do_method\ndef f(x): return 0"
    for expected in ({"a": 1}, [1], [{"a": 1}], 5, "x", True):
        assert rewards({"fn_name": "f", "inputs": [[1]], "outputs": [expected]}, forged)[0] == [0.0]
        assert rewards(asserts(f"assert f(1) == {expected!r}"), forged)[0] == [0.0]


class Replies:
    """A sandbox that gives what it was given."""

    def __init__(self, *messages):
        self.messages = list(messages)

    def run(self, jobs):
        return [Outcome(self.messages, end="done", num_tests=len(self.messages)) for _ in jobs]

    def close(self):
        pass


@pytest.mark.parametrize(
    "value", [["d", 5], ["d", []], ["d", ["i", 5, 1]], ["o", None], {"a": 1}, [], [5], ["q", [[]]]]
)
@pytest.mark.parametrize("expected", [{"a": 1}, [1], 5, "x", True, None])
def test_a_forged_result_of_another_sandbox_is_wrong_and_raises_nothing(value, expected):
    sandbox = Replies(["value", 0, value])
    gold = {"fn_name": "f", "inputs": [[1]], "outputs": [expected]}
    assert rewards(gold, "def f(x): return 1", sandbox=sandbox)[0] == [0.0]
    assert rewards(asserts(f"assert f(1) == {expected!r}"), "def f(x): return 1", sandbox=sandbox)[0] == [0.0]


@pytest.mark.parametrize(
    "value", [["l", 1], ["d", ["a", ["t", 1]]], ["r", 1, ["i", "0x5"], 1], ["x", 1.0, 2.0], None, "a"]
)
def test_checked_gives_an_encoding_as_it_is(value):
    assert checked(value) == value
    decoded(value)


@pytest.mark.parametrize(
    "bad",
    [
        {}, [], [1], ["?"], ["d", 5], ["d", [1]], ["d", [1, 2, 3]], ["d", [["l"], 1]], ["s", ["l"]], ["s", ["t", ["d"]]], ["r", 1, 2],
        ["r", 1, 2, "i"], ["r", 1, 2, None], ["x", 1, 2], ["T", "Decimal"], ["i", 5], ["D", 1.0, 2, 3], ["l", {}], ["h", 1, "object", []],
    ],
)  # fmt: skip
def test_checked_refuses_what_nobody_has_encoded(bad):
    with pytest.raises(WireError):
        checked(bad)


@pytest.mark.parametrize(
    "bad", [["d", [1, 2, 3]], ["i", "zz"], ["T", "Fraction", "1/0"], ["I", "date", "x"], ["D", 1 << 70, 0, 0]]
)
def test_decoded_raises_its_own_error_alone(bad):
    with pytest.raises(WireError):
        decoded(bad)


@pytest.mark.parametrize("value", [Decimal("sNaN"), [Decimal("sNaN")], {1: Decimal("sNaN")}, (Decimal("-sNaN5"), 1)])
@pytest.mark.parametrize("literal", [5, [5], {1: 5}, (5, 1), {5}, None, "sNaN", 1j])
def test_a_signalling_nan_equals_nothing(value, literal):
    assert equals_literal(encoded(value), literal) is False
    assert same_result(encoded(value), 5) is False


@pytest.mark.parametrize("literal", [{1: 5}, {5}])
def test_a_key_that_is_a_signalling_nan_equals_nothing(literal):
    pairs = ["d", [["T", "Decimal", "sNaN"], 5]] if isinstance(literal, dict) else ["s", ["T", "Decimal", "sNaN"]]
    try:
        assert equals_literal(pairs, literal) is False
    except WireError:
        assert isinstance(literal, set)


@needs_isolation
def test_a_result_that_is_a_signalling_nan_is_wrong():
    code = "from decimal import Decimal\ndef f(x): return Decimal('sNaN')"
    assert rewards(asserts("assert f(3) == 5"), code) == ([0.0], ["wrong"])
    assert rewards(asserts("x = f(3)\nassert x == 5 and x == 5"), code)[0] == [0.0]


@needs_isolation
@pytest.mark.parametrize("kind", ["StopIteration", "StopAsyncIteration"])
@pytest.mark.parametrize(
    "test",
    [
        "assert all(map(lambda c: f(c[0]) == c[1], [(1, 2), (2, 4)]))",
        "for one, other in zip(map(f, [1, 2]), [2, 4]):\n    assert one == other",
    ],
)
def test_an_exception_that_derives_from_the_end_of_a_loop_ends_none(kind, test):
    assert rewards(asserts(test), f"class E({kind}): pass\ndef f(x): raise E")[0] == [0.0]


@needs_isolation
def test_functions_of_the_program_that_are_named_like_set_up_are_not_run():
    code = "ran = []\ndef setup_module(): ran.append(1)\ndef setup_function(): ran.append(1)\ndef f(x): return len(ran)"
    assert rewards({"pytest": "def test_f():\n    assert f(1) == 0"}, code)[0] == [1.0]


DEEP = cursor = []
for _ in range(3000):
    cursor.append([])
    cursor = cursor[0]
GOLDS = {
    "long result": {"fn_name": "f", "inputs": [[1]], "outputs": [10**5000]},
    "long result in json": json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": [7]}).replace("7", "7" * 5000),
    "object as argument": {"fn_name": "f", "inputs": [[object()]], "outputs": [1]},
    "object as result": {"fn_name": "f", "inputs": [[1]], "outputs": [object()]},
    "decimal as result": {"fn_name": "f", "inputs": [[1]], "outputs": [Decimal(1)]},
    "deep argument": {"fn_name": "f", "inputs": [[DEEP]], "outputs": [1]},
    "deep result": {"fn_name": "f", "inputs": [[1]], "outputs": [DEEP]},
    **{
        f"{place} {depth} deep in json": '{"fn_name": "f", '
        + ('"inputs": [[1]], "outputs": [' if place == "result" else '"outputs": [1], "inputs": [')
        + "[" * depth
        + "]" * depth
        + "]}"
        for depth in (900, 3000)
        for place in ("result", "argument")
    },
    "deep line": {"fn_name": "f", "inputs": ["[" * 900 + "]" * 900], "outputs": [1]},
    "keyword": {"fn_name": "class", "inputs": [[1]], "outputs": [1]},
}


@pytest.mark.parametrize("name", GOLDS)
def test_a_gold_that_cannot_be_read_is_none(name):
    assert rewards(GOLDS[name], "def f(x): return 1") == ([None], ["bad_gold"])


@needs_isolation
def test_a_gold_of_long_numbers_or_many_levels_that_can_be_read_is_judged():
    number = hex(10**5000)
    code = f"def f(x): return {number} if x == 1 else x"
    assert rewards(asserts(f"assert f(1) == {number}", f"assert f({number}) == {number}"), code)[0] == [1.0]
    assert rewards(asserts(f"assert f(2) == {number}"), code)[0] == [0.0]
    assert rewards({"fn_name": "f", "inputs": [[10**5000]], "outputs": [1]}, "def f(x): return x % 3")[0] == [1.0]
    depth = MAX_DEPTH - 10
    deep = json.loads("[" * depth + "]" * depth)
    gold = {"fn_name": "f", "inputs": [[deep]], "outputs": [deep]}
    assert rewards(json.dumps(gold), "def f(x): return x", "def f(x): return [x]")[0] == [1.0, 0.0]
    added = " + ".join(["1"] * 900)
    assert rewards(asserts(f"assert f({added}) == {added}"), "def f(x): return x", "def f(x): return 1")[0] == [
        1.0,
        0.0,
    ]


def test_golds_that_differ_in_a_type_alone_are_different():
    golds = [
        {"fn_name": "f", "inputs": [[1]], "outputs": [one]}
        for one in (1, True, 1.0, "1", [1], ["1", 1], None, {"1": 1}, {"1": True})
    ]
    golds += [asserts("assert f(1) == 1"), asserts("assert f(1) == True"), asserts("assert f(1) == 1.0")]
    assert len({gold_tests(gold).text() for gold in golds}) == len(golds)
    assert gold_tests(golds[0]).text() == gold_tests(json.dumps(golds[0])).text()


@pytest.mark.parametrize(
    "message", [5, [], ["end"], [5, 5], [["end"], "done"], ["tests", -1], ["tests", "1"], ["end", 5], ["over", None]]
)
def test_a_message_of_another_form_is_the_end_of_the_job(message):
    assert not _is_message(message)
    one = _Running(0, None, None, b"", 1.0)
    assert one._take(json.dumps(message).encode()) is False
    assert one.outcome.end == "crash"


@needs_isolation
@pytest.mark.parametrize(
    "messages", [[["value", 5, 1]], [["value", -1, 1]], [["value", True, 1]], [["value", 0]], [["output", 0, 5, "ok"]]]
)
def test_a_message_that_fits_no_test_is_none(messages, monkeypatch):
    def run(self, jobs):
        return [Outcome([job.judged(one) for one in messages], end="done") for job in jobs]

    monkeypatch.setattr(LocalSandbox, "run", run)
    assert rewards({"fn_name": "f", "inputs": [[1]], "outputs": [1]}, "def f(x): return 1") == ([None], ["bad_reply"])
