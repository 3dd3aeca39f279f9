# ruff: noqa: E501 - programs and golds in one line each are easier to compare
"""What honest programs give and tests use: plain values of subclasses, LeetCode's names, objects and their operators."""

import math

import pytest

from reward_funcs._code_compare import same_result
from reward_funcs._sandbox_prelude import prelude
from reward_funcs._sandbox_wire import encoded
from reward_funcs.code import CodeReward
from reward_funcs.sandbox import sandbox_report

pytestmark = pytest.mark.skipif(not sandbox_report().is_isolated, reason="nothing isolates programs here")


def judged(code, gold):
    """Reward and reason of one program."""
    logged = {}
    reward = CodeReward(timeout=30.0, total_timeout=60.0)
    found = reward([f"```python\n{code}\n```"], solution=[gold], log_extra=logged.__setitem__)
    return found[0], logged["code_reward/reason"][0]


def calls(argument, result):
    return {"fn_name": "f", "inputs": [[argument]], "outputs": [result]}


def asserts(*blocks):
    return {"asserts": list(blocks)}


@pytest.mark.parametrize(
    ("code", "argument", "result", "reward"),
    [
        ("from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(x): return P(x, 2)", 1, [1, 2], 1.0),
        ("from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(x): return [P(x, 2)]", 1, [[1, 3]], 0.0),
        ("import enum\nclass C(enum.IntEnum):\n    A = 5\ndef f(x): return C.A", 1, 5, 1.0),
        ("import enum\nclass C(enum.IntEnum):\n    A = 5\ndef f(x): return C.A", 1, 6, 0.0),
        ("import enum\nclass C(str, enum.Enum):\n    A = 'a'\ndef f(x): return {C.A: [C.A]}", 1, {"a": ["a"]}, 1.0),
        ("class S(str): pass\ndef f(x): return S('a')", 1, "a", 1.0),
        ("class N(int):\n    def __eq__(s, o): return True\n    def __pos__(s): return 5\ndef f(x): return N(4)", 1, 5, 0.0),
        ("class S(str):\n    def __eq__(s, o): return True\n    def __hash__(s): return 1\n    def __str__(s): return 'a'\ndef f(x): return S('b')", 1, "a", 0.0),
        ("class L(list):\n    def __iter__(s): return iter([1])\ndef f(x): return L([2])", 1, [1], 0.0),
        ("class O: pass\ndef f(x): return O()", 1, 5, 0.0),
        ("def f(x): return float('nan')", 1, math.nan, 1.0),
        ("def f(x): return [1.0, float('nan')]", 1, [1.0, math.nan], 1.0),
        ("def f(x): return 1.0", 1, math.nan, 0.0),
        ("def f(x): return float('nan')", 1, 1.0, 0.0),
        ("def f(x): return {1: {2: x}}", 3, {1: {2: 3}}, 1.0),
        ("def f(x): return {1: {2: x}}", 4, {1: {2: 3}}, 0.0),
    ],
)  # fmt: skip
def test_results_are_what_they_hold(code, argument, result, reward):
    assert judged(code, calls(argument, result))[0] == reward


@pytest.mark.parametrize("tolerance", [0.0, 1e-6])
def test_nan_is_nan_alone(tolerance):
    assert same_result(encoded(math.nan), math.nan, tolerance)
    for one, other in ((math.nan, 1), (math.nan, "NaN"), (1.0, math.nan), (math.inf, math.nan), (None, math.nan)):
        assert not same_result(encoded(one), other, tolerance)


LEETCODE = """class Solution:
    def f(self, a: List[int], b: Optional[int] = None) -> int:
        heapq.heapify(a)
        return len(deque(a)) + Counter(a)[1] + (inf > 1) + bisect_left(a, 1) + gcd(4, 2) + math.comb(2, 1)"""


def test_programs_of_functional_golds_find_the_names_of_leetcode():
    assert judged(LEETCODE, calls([2, 1], 8)) == (1.0, "passed")
    assert judged(LEETCODE, calls([2, 1], 7)) == (0.0, "wrong")


def test_asserts_that_call_a_solution_find_them_too_and_others_do_not():
    assert judged(LEETCODE, asserts("assert Solution().f([2, 1]) == 8"))[0] == 1.0
    assert judged(LEETCODE, asserts("s = Solution()\nassert s.f([2, 1]) == 8"))[0] == 1.0
    assert judged("def f(a: List[int]): return 1", asserts("assert f([1]) == 1")) == (0.0, "error")
    assert judged("print(List)", {"inputs": ["1"], "outputs": ["typing.List"]})[0] == 0.0


def test_the_names_of_leetcode_hide_nothing_of_the_program_or_of_python():
    code = "deque = list\ndef gcd(*a): return 7\nclass Solution:\n    def f(self, a): return [gcd(1, 2), type(deque(a)).__name__, pow(2, 3), __name__, line()]\nimport sys\ndef line(): return sys._getframe(1).f_lineno"
    assert judged(code, calls([1], [7, "list", 8, "solution", 4]))[0] == 1.0
    assert judged("def f(x): return [n for n in globals() if not n.startswith('__')]", calls(1, ["f"]))[0] == 1.0
    assert not {"pow", "abs", "len", "open", "sum", "filter"} & prelude().keys()
    assert {"List", "Optional", "deque", "inf", "heappush", "lru_cache", "accumulate", "re", "sys"} <= prelude().keys()
    assert all(not name.startswith("_") for name in prelude())


R = "class R:\n    def __init__(s, n): s.n = n\n    def __iter__(s): return iter(range(s.n))"
S = "class S:\n    def __init__(s, n): s.n = n\n    def __len__(s): return s.n\n    def __float__(s): return s.n / 2"
V = (
    "class V:\n    def __init__(s, n): s.n = n\n    def __mul__(s, k): return V(s.n * k)\n    __rmul__ = __mul__\n"
    "    def __add__(s, o): return V(s.n + o.n)\n    def __neg__(s): return V(-s.n)\n"
    "    def __eq__(s, o): return isinstance(o, V) and s.n == o.n\n    def __lt__(s, o): return s.n < o.n"
)
ITERATOR = "class It:\n    def __init__(s, n): s.n = n\n    def __iter__(s): return s\n    def __next__(s):\n        if s.n == 0: raise StopIteration\n        s.n -= 1\n        return s.n"


@pytest.mark.parametrize(
    ("code", "right", "wrong"),
    [
        (R, "assert list(R(3)) == [0, 1, 2]", "assert list(R(3)) == [0, 1]"),
        (R, "assert sorted(R(3)) == [0, 1, 2]", "assert sorted(R(3)) == [1]"),
        (R, "assert sum(R(3)) == 3", "assert sum(R(3)) == 4"),
        (R, "assert tuple(R(2)) == (0, 1) and set(R(2)) == {0, 1}", "assert set(R(2)) == {1}"),
        (ITERATOR, "assert list(It(3)) == [2, 1, 0]", "assert list(It(3)) == []"),
        (ITERATOR, "assert next(It(3)) == 2 and max(It(3)) == 2", "assert next(It(3)) == 3"),
        (S, "assert len(S(3)) == 3", "assert len(S(3)) == 4"),
        (S, "import math\nassert math.isclose(S(3), 1.5)", "import math\nassert math.isclose(S(3), 2.5)"),
        (V, "assert V(3) * 2 == V(6)", "assert V(3) * 2 == V(7)"),
        (V, "assert 2 * V(3) == V(6)", "assert 2 * V(3) == V(5)"),
        (V, "assert -(V(3) * 2) == V(-6)", "assert -(V(3) * 2) == V(6)"),
        (V, "assert V(3) + V(4) == V(7)", "assert V(3) + V(4) == V(8)"),
        (V, "assert V(3) < V(4)", "assert V(4) < V(3)"),
        (V, "assert V(3) != 3", "assert V(3) == 3"),
    ],
)
def test_objects_of_a_class_answer_for_what_shows_them_no_value(code, right, wrong):
    assert judged(code, asserts(right)) == (1.0, "passed")
    assert judged(code, asserts(wrong))[0] == 0.0


FAKE = (
    "class V:\n    def __init__(s, n): pass\n    def __sub__(s, o): return {}\n    def __abs__(s): return 0\n"
    "    def __eq__(s, o): return True\n    def __lt__(s, o): return True\n    def __contains__(s, o): return True\n"
    "    def __bool__(s): return False\n    def __iter__(s): return iter(())\n    def __len__(s): return 0\n"
    "    def __str__(s): return '2.5'\n    n = 0\n    def __getitem__(s, i): return 0\n    __rsub__ = __sub__"
)


@pytest.mark.parametrize("given", ["0", "s", "True", "type('N', (int,), {})(0)"])
@pytest.mark.parametrize(
    "test",
    [
        "assert abs(V(3) - 2.5) < 1e-6",
        "assert not V(3) - 2.5",
        "assert V(3) < 2.5",
        "assert 2.5 > V(3)",
        "assert 2.5 in V(3)",
        "assert list(V(3) - [1, 2]) == []",
        "assert len(V(3) - [1, 2]) == 0",
        "assert str(V(3) - 2.5) == '2.5'",
        "assert (V(3) - 2.5)[0] == 0",
        "assert V(3) - 2.5 < V(1)",
        "assert not (V(3) - 2.5) - V(1)",
        "assert V(1) - (V(3) - 2.5) < 1",
        "assert V(3) == 2.5",
        "assert 2.5 - V(3) == 2.5",
    ],
)
def test_objects_of_a_class_do_not_answer_where_they_see_a_value(given, test):
    assert judged(FAKE.format(given), asserts(test))[0] in (None, 0.0)


CONTEXT = "class T:\n    v = 1\n    def __enter__(s): return s\n    def __exit__(s, *a): return True"


def test_a_context_that_ends_every_exception_hides_no_failed_test():
    assert judged(CONTEXT, asserts("with T() as t:\n    assert t.v == 5")) == (0.0, "wrong")
    assert judged(CONTEXT, asserts("with T() as t:\n    assert t.v == 1")) == (1.0, "passed")
    assert judged(CONTEXT, asserts("t = T()\nassert t.v == 1\nwith T() as t:\n    raise ValueError"))[0] is None


F = "def f(x):\n    'Twice.'\n    return 2 * x"


@pytest.mark.parametrize(
    ("code", "test", "reward"),
    [
        (F, "assert f.__doc__ == 'Twice.'", 1.0),
        (F.replace("    'Twice.'\n", ""), "assert f.__doc__", 0.0),
        (F, "assert f.__module__ == 'solution' and f.__name__ == 'f'", 1.0),
        ("class C:\n    'Twice.'\n    def m(self): return 1", "assert C.__doc__ == 'Twice.' and C().m() == 1", 1.0),
        (F, "import functools\n@functools.wraps(f)\ndef g(x): return f(x)\nassert g(2) == 4 and g.__doc__ == 'Twice.' and g.__name__ == 'f'", 1.0),
        ("import functools\ndef d(fn):\n    @functools.wraps(fn)\n    def w(*a): return fn(*a) + 1\n    return w", "@d\ndef g(x):\n    'G.'\n    return x\nassert g(1) == 2 and g.__name__ == 'g' and g.__doc__ == 'G.'", 1.0),
    ],
)  # fmt: skip
def test_names_and_documentation_are_those_of_the_program(code, test, reward):
    assert judged(code, asserts(test))[0] == reward


@pytest.mark.parametrize(("last", "reward"), [(4, 1.0), (5, 0.0)])
def test_parameters_of_a_class_are_those_of_its_methods(last, reward):
    module = (
        "import pytest\nfrom solution import f\n"
        f"@pytest.mark.parametrize(('a', 'b'), [(1, 2), (2, {last})])\nclass TestF:\n"
        "    def test_a(self, a, b):\n        assert f(a) == b\n"
        "    @pytest.mark.parametrize('c', [0, 1])\n    def test_b(self, c, a, b):\n        assert f(a + c) == b + 2 * c"
    )
    assert judged(F, {"pytest": module})[0] == reward
