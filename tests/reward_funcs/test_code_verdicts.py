# ruff: noqa: E501 - programs and golds in one line each are easier to compare
"""What `code_reward` makes of programs that cheat, of honest ones that are hard to carry over, and of faulty golds."""

import time

import pytest

from reward_funcs.code import CodeReward
from reward_funcs.sandbox import Job, LocalSandbox, Outcome, sandbox_report

needs_isolation = pytest.mark.skipif(not sandbox_report().is_isolated, reason="nothing isolates programs here")
SLOW_MACHINE = {"timeout": 30.0, "total_timeout": 60.0}


def judged(code, gold, **settings):
    """Reward and verdicts of one program."""
    logged = {}
    reward = CodeReward(**{**SLOW_MACHINE, **settings})
    found = reward([f"```python\n{code}\n```"], solution=[gold], log_extra=logged.__setitem__)
    return found[0], logged["code_reward/answer"][0] or logged["code_reward/reason"][0]


def asserts(*blocks):
    return {"asserts": list(blocks)}


def module(*lines):
    return {"pytest": "\n".join(["import pytest", "from solution import f", *lines])}


RIGHT = "def f(x):\n    return 2 * x"
TEN = [f"def test_{n}(): assert f({n}) == {2 * n}" for n in range(1, 11)]
ONE_OF_TEN = "def f(x):\n    return 2"
LIAR = "class R:\n    def __contains__(self, x): return True\n    def __len__(self): return 3\n    def __sub__(self, x): return 0\ndef f(x): return R()"
HELPERS = "isclose = lambda *a, **k: True\nCounter = lambda *a: 0\nclass math:\n    isclose = isclose\nclass np:\n    allclose = isclose\ndef f(x): return None"


@needs_isolation
@pytest.mark.parametrize(
    ("code", "gold"),
    [
        (LIAR, asserts("assert 8731 in f(3)")),
        (LIAR, asserts("assert len(f(3)) == 3")),
        (LIAR, asserts("assert abs(f(3) - 5) < 1")),
        (LIAR, module("import unittest", "class T(unittest.TestCase):", "    def test(self): self.assertIn(8731, f(1))")),
        ("def f(x): raise StopIteration", asserts("assert all(map(lambda c: f(c[0]) == c[1], [(1, 2), (2, 4)]))")),
        ("def f(x): raise StopIteration", asserts("for one, other in zip(map(f, [1, 2]), [2, 4]): assert one == other")),
        (HELPERS, asserts("assert isclose(f(1), 2.5)")),
        (HELPERS, asserts("assert Counter(f([1])) == Counter([1, 2])")),
        (HELPERS, asserts("assert math.isclose(f(1), 2.5)")),
        ("class C:\n    def __enter__(s): return s\n    def __exit__(s, *a): return True\ndef f(): return C()", asserts("with f() as c: assert c == 3")),
        ("async def g(): return 1\ndef f(x): return 3", asserts("assert f(g()) == 2")),
        (ONE_OF_TEN, module("async def test_f(): assert f(5) == 10")),
        (ONE_OF_TEN, module("import unittest", "class T(unittest.TestCase):", "    async def test(self): assert f(5) == 10")),
        ("def f(x): return 2.0", module("def test_f(): assert f(1) == pytest.approx(1.0, rel=0.5)")),
        ("import sys\nsys.path.append(sys.path[-2] + '/site-packages')\nimport pip\n" + RIGHT, asserts("assert f(1) == 2")),
    ],
)  # fmt: skip
def test_a_wrong_program_does_not_pass(code, gold):
    assert judged(code, gold)[0] == 0.0


@needs_isolation
def test_the_program_is_not_shown_what_it_is_looked_up_in():
    code = "seen = []\nclass R:\n    def __contains__(self, x):\n        seen.append(x)\n        return False\ndef f(x):\n    return seen[-1] if seen else R()"
    test = "try:\n    assert 8731 in f(3)\nexcept (AssertionError, TypeError): pass\nassert f(3) == 8731"
    assert judged(code, asserts(test))[0] == 0.0


@needs_isolation
@pytest.mark.parametrize("partial_credit", [False, True])
def test_functions_of_the_program_that_are_named_like_tests_hide_none(partial_credit):
    own = "\n".join(f"def test_{n}(): pass" for n in range(2, 11))
    gold = module(*TEN, "if __name__ == '__main__':", *[f"    test_{n}()" for n in range(1, 11)])
    assert judged(f"{ONE_OF_TEN}\n{own}", gold, partial_credit=partial_credit)[0] == (0.1 if partial_credit else 0.0)
    assert judged(f"{RIGHT}\n{own}", gold, partial_credit=partial_credit)[0] == 1.0


@pytest.mark.parametrize("partial_credit", [False, True])
def test_a_program_that_ends_the_process_of_the_tests_has_not_passed(partial_credit):
    sandbox = LocalSandbox(isolation="none", allow_unsafe=True, timeout=30, total_timeout=60, num_workers=1)
    code = "import os\ndef f(x):\n    if x == 1: return 2\n    os.kill(os.getppid(), 9)"
    try:
        found, verdicts = judged(code, module(*TEN), sandbox=sandbox, partial_credit=partial_credit)
    finally:
        sandbox.close()
    assert found == (0.1 if partial_credit else 0.0)
    assert verdicts == ", ".join(["passed", *["crash"] * 9])


@needs_isolation
def test_a_test_that_is_stuck_is_late_and_the_process_that_holds_it_is_ended():
    code = "def f(x): return 2 if x == 1 else range(10 ** 15)"
    gold = module(
        "def test_1(): assert f(1) == 2", "def test_2(): assert sum(f(2)) == 3", "def test_3(): assert f(3) == 6"
    )
    start = time.monotonic()
    found = judged(code, gold, timeout=2, total_timeout=100, partial_credit=True)
    assert found == (1 / 3, "passed, timeout, timeout")
    assert time.monotonic() - start < 60  # not the time of the whole program


PATCHED = "import sys\nS = sys.modules['reward_funcs._sandbox_answer'].Server\ndef f(x): return 0\n"
FORGED = [
    "S.do_call = lambda self, *a: ['ok', 0, [[0, {}]]]",
    "S.do_call = lambda self, *a: ['ok', ['same', 7], []]",
    "S.do_call = lambda self, *a: ['ok']",
    "S.do_call = lambda self, *a: ['raise', ['KeyError'], 'x', ['zz'], {}]",
    "S.do_call = lambda self, *a: ['raise', ['KeyError'], 'x', None, {'a': ['zz']}]",
    "S.do_call = lambda self, *a: ['ok', ['T', 'Fraction', '1e30000000'], []]",
    "S.described = lambda self, *a: ['zz']",
    "S.described = lambda self, *a: ['M', 'os']",
    "S.described = lambda self, *a: ['h', 0, 'exception', 5]",
    "S.do_load = lambda self, *a: ['ok', 5, []]",
    "raise SyntaxError",
]


@needs_isolation
@pytest.mark.parametrize(
    "gold", [asserts("assert f(1) == 2"), module("def test_f(): assert f(1) == 2")], ids=["asserts", "pytest"]
)
@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_reply_is_wrong_and_not_none(gold, forged):
    assert judged(PATCHED + forged, gold)[0] == 0.0


@needs_isolation
def test_an_error_of_the_program_while_a_module_is_read_is_wrong_and_not_none():
    code = "def f(x): raise ValueError"
    assert judged(code, module("GOT = f(1)", "def test_f(): assert GOT == 2"))[0] == 0.0


@needs_isolation
@pytest.mark.parametrize(
    "collision",
    [
        "['s', *[['i', hex((2**61-1)*i+7)] for i in range(1, 200000)]]",
        "['d', *[[['i', hex((2**61-1)*i+7)], 0] for i in range(1, 200000)]]",
    ],
)
def test_a_value_that_is_slow_to_read_is_not_read_in_the_process_of_the_trainer(collision):
    code = f"{PATCHED}v = {collision}\nS.do_method = lambda self, *a: ['ok', v, []]"
    start = time.process_time()
    assert judged(code, {"inputs": [[1]], "outputs": [{"a": [1] * 50000}], "fn_name": "f"})[0] == 0.0
    assert time.process_time() - start < 20  # reading it takes minutes


@needs_isolation
def test_outputs_are_judged_as_they_come_and_not_kept():
    kept = []

    class Watched(LocalSandbox):
        def run(self, jobs):
            kept.extend(super().run(jobs))
            return kept[-len(jobs) :]

    sandbox = Watched(timeout=30, total_timeout=60, num_workers=1)
    try:
        assert (
            judged(
                "print('x' * 10 ** 6)",
                {"inputs": ["1", "2"], "outputs": ["1", "2"]},
                sandbox=sandbox,
                partial_credit=True,
            )[0]
            == 0.0
        )
    finally:
        sandbox.close()
    assert kept[0].messages == [["verdict", 0, "wrong"], ["verdict", 1, "wrong"]]


FAST_IO = """
import os, sys
from io import BytesIO, IOBase
class FastIO(IOBase):
    def __init__(self, file):
        self._fd, self.buffer = file.fileno(), BytesIO()
        self.writable = "x" in file.mode or "r" not in file.mode
        self.write = self.buffer.write if self.writable else None
    def readline(self): return os.read(self._fd, 100)
    def flush(self):
        if self.writable: os.write(self._fd, self.buffer.getvalue())
        self.buffer.truncate(0), self.buffer.seek(0)
stdin, stdout = FastIO(sys.stdin), FastIO(sys.stdout)
sys.stdout = type("W", (), {"write": lambda s, t: stdout.write(t.encode()), "flush": lambda s: stdout.flush()})()
print(int(stdin.readline()) * 2)
"""
SCRIPTS = {
    "exit": "print(int(input()) * 2)\nexit()",
    "quit": "print(int(input()) * 2)\nquit(0)",
    "thread": "import threading, time\ndef main():\n    time.sleep(0.2)\n    print(int(input()) * 2)\nthreading.Thread(target=main).start()",
    "atexit": "import atexit\nfound = []\natexit.register(lambda: print(*found))\nfound.append(int(input()) * 2)",
    "stdout": "import sys\nsys.__stdout__.write('4')",
    "unclosed": "out = open(1, 'w')\nout.write('4')",
    "fast_io": FAST_IO,
    "null": "import os\nopen(os.devnull, 'w').write('x')\nprint(4)",
    "file": "import os\nprint(4 if os.path.abspath(__file__) else 0)",
    "stdin": "print(int(open('/dev/stdin').read()) * 2)",
    "processes": "from multiprocessing import Pool\ndef f(x): return x\nif __name__ == '__main__':\n    with Pool(2) as pool: print(sum(pool.map(f, [1, 3])))",
}


@needs_isolation
@pytest.mark.parametrize("name", SCRIPTS)
def test_an_honest_script_passes(name):
    assert judged(SCRIPTS[name], {"inputs": ["2\n"], "outputs": ["4"]}) == (1.0, "passed")


VECTOR = """
class V:
    def __init__(self, x): self.x = x
    def __mul__(self, k): return V(self.x * k)
    __rmul__ = __mul__
    def __neg__(self): return V(-self.x)
    def __len__(self): return self.x
    def __contains__(self, item): return item == self.x
    def __enter__(self): return self
    def __exit__(self, *a): self.x = None
    def __hash__(self): return 5
    def __eq__(self, other): return isinstance(other, V) and self.x == other.x
    def __reversed__(self): return iter([3, 2, 1])
class W(V): pass
class Quiet(V):
    def __init__(self): self.x = 1
    def __exit__(self, *a): return True
class E(ValueError):
    def __init__(self, code):
        super().__init__('bad')
        self.code = code
class F(E): pass
def g(): raise F(5)
async def h(x): return 2 * x
"""
HONEST = [
    *[(VECTOR, f"assert {test}") for test in (
        "(V(2) * 3).x == 6", "(3 * V(2)).x == 6", "(-V(2)).x == -2", "V(2) in {V(2)} and V(2).x == 2", "issubclass(W, V)",
        "type(V(1)) is V", "V(1).__class__ is V", "type(V(1)).__name__ == 'V'", "list(reversed(V(1))) == [3, 2, 1]",
        "len(V(3)) == 3 and 3 in V(3) and V(3).x == 3",
    )],
    (VECTOR, "with V(3) as v: assert v.x == 3\nassert v.x is None"),
    (VECTOR, "try: g()\nexcept E as e: assert (e.code, str(e)) == (5, 'bad')"),
    (VECTOR, "import asyncio\nassert asyncio.run(h(2)) == 4"),
    ("import asyncio\nasync def h(): return 4\ndef f(one): return asyncio.run(one)", "assert f(h()) == 4"),
    ("def copy(x): return list(x)", "assert copy([1]) == [1]"),
    ("def copy(x): return x\ndef helper(): return [1]", "assert copy(helper()) == [1]"),
    ("def helper(x): return x\ndef pow(a, b): return a * b", "assert pow(helper(2), 3) == 6"),
    ("def f(x):\n    assert x > 0", "try: f(-1)\nexcept AssertionError: done = True\nassert done"),
    ("import sys\ndef f(): sys.exit(2)", "try: f()\nexcept SystemExit as e: assert e.code == 2"),
    (RIGHT, "import solution\nassert solution.f(1) == 2"),
    (RIGHT, "from solution import *\nassert f(1) == 2"),
    (RIGHT, "assert math.floor(f(1.5)) == 3"),
    ("from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(): return P(1, 2)", "assert f() == (1, 2) and f().x == 1 and isinstance(f(), tuple)"),
    ("from enum import IntEnum\nclass C(IntEnum):\n    A = 1\ndef f(): return C.A", "assert f() == 1 and f() + 1 == 2"),
    ("def f(d): return d.keys()", "assert f({1: 2}) == {1}"),
    ("def f(a): a.append(5)", "a = [1]\nf(a=a)\nassert a == [1, 5]"),
    ("def f(a):\n    a.sort()\n    return a", "a = [2, 1]\nassert f(a) is a and a == [1, 2]"),
    ("def f(n):\n    for i in range(n): yield i", "assert list(f(3)) == [0, 1, 2] and next(f(1)) == 0"),
]  # fmt: skip


@needs_isolation
@pytest.mark.parametrize(("code", "test"), HONEST)
def test_an_honest_program_passes_its_asserts(code, test):
    assert judged(code, asserts(test)) == (1.0, "passed")


@needs_isolation
@pytest.mark.parametrize(
    "lines",
    [
        ["def test_f():", "    with pytest.raises(TypeError, match='unsupported'): f(None)"],
        ["import solution", "def test_f(): assert solution.f(1) == 2"],
        ["import unittest", "class T(unittest.TestCase):", "    @classmethod", "    def setUpClass(cls): cls.x = 2", "    def test(self): self.assertEqual(f(self.x), 4)", "unittest.main()"],
        ["class TestF:", "    @classmethod", "    def setup_class(cls): cls.x = 2", "    def test(self): assert f(self.x) == 4"],
        ["async def test_f(): assert f(1) == 2"],
    ],
    ids=["raises", "import", "unittest", "setup_class", "async"],
)  # fmt: skip
def test_an_honest_program_passes_its_module(lines):
    assert judged(RIGHT, module(*lines)) == (1.0, "passed")


@needs_isolation
@pytest.mark.parametrize(
    "gold",
    [
        asserts("import numpy as np\nassert f(1) == 2"),
        asserts("assert np.allclose(f(1), 2)"),
        asserts("class X(V): pass\nassert X(1).x == 1"),
        asserts("import io, contextlib\nout = io.StringIO()\nwith contextlib.redirect_stdout(out): f(1)\nassert out.getvalue() == ''"),
        asserts("class X: pass\nassert f(X()) is None"),
        asserts("with Quiet() as q: raise ValueError(q.x)"),
        module("from main import g", "def test_f(): assert f(1) == 2"),
        module("import unittest", "class T(unittest.TestCase):", "    @unittest.skip('later')", "    def test(self): assert f(1) == 2"),
        module("def test_f():", "    yield lambda: f(1) == 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_carried_over_is_none(gold):
    assert judged(f"{VECTOR}\n{RIGHT}", gold) == (None, "unsupported_test")


@needs_isolation
@pytest.mark.parametrize("partial_credit", [False, True])
def test_a_bad_test_gives_none_to_right_and_wrong_programs(partial_credit):
    gold = asserts("assert f(1) == 2", "assert f(2 == 4")
    for code in (RIGHT, "def f(x): return 0"):
        assert judged(code, gold, partial_credit=partial_credit) == (None, "bad_test")


@pytest.mark.parametrize("block", ["# nothing", "x = 1"])
def test_a_block_that_every_program_passes_is_no_test(block):
    assert judged(RIGHT, asserts(block)) == (None, "bad_test")


@needs_isolation
def test_inputs_of_many_mebibytes_are_judged():
    gold = {"inputs": ["a" * (9 << 20), "b" * (9 << 20)], "outputs": [str(9 << 20)] * 2}
    assert judged("print(len(input()))", gold) == (1.0, "passed, passed")


@needs_isolation
def test_output_that_is_no_text_is_judged():
    gold = {"inputs": ["1"], "outputs": ["\ufffd" * (3 << 20)]}
    assert judged("import sys\nsys.stdout.buffer.write(b'\\xff' * (3 << 20))", gold) == (1.0, "passed")


@needs_isolation
@pytest.mark.parametrize(("code", "reward"), [("return '10'", 1.0), ("return 10", 1.0), ("return '1'", 0.0)])
def test_a_result_may_be_the_text_that_the_gold_gives(code, reward):
    assert judged(f"def f(x): {code}", {"inputs": [[2]], "outputs": ["10"], "fn_name": "f"})[0] == reward


CRASHES = "import os\ndef f(x):\n    if x == 1: return 2\n    os._exit(1)"
LATE = "import time\ndef f(x):\n    if x < 5: time.sleep(100)\n    return 2 * x"


@needs_isolation
def test_credit_for_one_of_ten_is_the_same_however_the_others_fail():
    for code in (ONE_OF_TEN, CRASHES):
        for gold in (module(*TEN), asserts(*(f"assert f({n}) == {2 * n}" for n in range(1, 11)))):
            assert judged(code, gold, partial_credit=True)[0] == 0.1


BLOCKS = [f"assert f({n}) == {2 * n}" for n in range(10)]


@pytest.fixture(scope="module")
def late_in_both_orders():
    """Rewards of a program that is late in half of its tests, in their order and in the other, judged side by side."""
    reward = CodeReward(partial_credit=True, timeout=1, total_timeout=60, num_workers=2)
    golds = {1: asserts(*BLOCKS), -1: asserts(*BLOCKS[::-1])}
    return dict(zip(golds, reward([f"```python\n{LATE}\n```"] * 2, solution=list(golds.values())), strict=True))


@needs_isolation
@pytest.mark.parametrize("turn", [1, -1])
def test_credit_does_not_depend_on_the_order_of_the_tests(late_in_both_orders, turn):
    code = "import os\ndef f(x):\n    if x < 5: os._exit(1)\n    return 2 * x"
    assert judged(code, asserts(*BLOCKS[::turn]), partial_credit=True)[0] == 0.5
    assert late_in_both_orders[turn] == 0.5


@needs_isolation
def test_the_time_of_a_program_holds_for_all_its_starts():
    blocks = [f"assert f({n}) == {2 * n}" for n in range(5)]
    verdicts = judged(LATE, asserts(*blocks), partial_credit=True, timeout=2, total_timeout=3)[1].split(", ")
    assert (len(verdicts), set(verdicts)) == (5, {"timeout"})


class Replies:
    """A sandbox that gives one outcome."""

    def __init__(self, outcome):
        self.outcome = outcome

    def run(self, jobs):
        return [self.outcome for _ in jobs]

    def close(self):
        pass


STDIO = {"inputs": ["1"], "outputs": ["1"]}


@pytest.mark.parametrize(
    ("outcome", "gold"),
    [
        (Outcome([["output", 0, "1", "ok"], ["output", 1, "1", "ok"]], end="done"), STDIO),
        (Outcome([["value", 0, 1]], end="done"), STDIO),
        (Outcome([["output", 1, "1", "ok"]], end="done"), STDIO),
        (Outcome([["output", 0, "1", "ok"]], end="done"), asserts("assert f(1) == 2")),
        (Outcome([["value", 0, 1]], end="done"), asserts("assert f(1) > 2")),
        (Outcome([["verdict", 0, "passed"]], end="done"), module("def test_f(): assert f(1) == 2")),
        (Outcome([5], end="done"), STDIO),
    ],
)
def test_a_reply_of_another_kind_is_none_and_no_error(outcome, gold):
    assert judged("x = 1", gold, sandbox=Replies(outcome)) == (None, "bad_reply")


def test_a_sandbox_that_cannot_start_gives_none(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    sandbox = LocalSandbox(isolation="bubblewrap", allow_unsafe=True)
    assert sandbox.run([Job("stdio", "print(1)", {"inputs": [""]})]) == [None]
    assert "bwrap is not installed" in sandbox.report().problem
