# ruff: noqa: E501 - programs and golds in one line each are easier to compare
"""`code_reward`: golds of each kind, what counts as passed, and the real references of HumanEval and MBPP."""

import json
import pickle
import warnings
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from datasets_builders.sources import humaneval, mbpp
from reward_funcs._code_tests import equals_literal, gold_tests, same_output, same_result
from reward_funcs._sandbox_wire import encoded
from reward_funcs.code import CodeCompilesReward, CodeReward, code_compiles_reward, last_code_block
from reward_funcs.sandbox import LocalSandbox, Outcome, sandbox_report

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_isolation = pytest.mark.skipif(not sandbox_report().is_isolated, reason="nothing isolates programs here")
SLOW_MACHINE = {"timeout": 30.0, "total_timeout": 60.0}


def fenced(code, language="python"):
    return f"```{language}\n{code}\n```"


def judged(code, gold, **settings):
    """Reward and reason of one program."""
    logged = {}
    reward = CodeReward(**{**SLOW_MACHINE, **settings})
    rewards = reward([fenced(code)], solution=[gold], log_extra=lambda name, values: logged.update({name: values}))
    return rewards[0], logged["code_reward/reason"][0], logged["code_reward/answer"][0]


ASSERTS = {"asserts": ["assert f(1) == 2", "assert f(2) == 4", "assert f(3) == 6"]}
STDIO = {"inputs": ["1", "2"], "outputs": ["2", "4"]}
CALLS = {"fn_name": "f", "inputs": [[1], [2]], "outputs": [2, 4]}
PYTEST = {
    "pytest": "from solution import f\n\ndef test_one():\n    assert f(1) == 2\n\ndef test_two():\n    assert f(2) == 4"
}
RIGHT = "def f(x):\n    return 2 * x"
HALF = "def f(x):\n    return 2"
SCRIPT = "print(2 * int(input()))"


@needs_isolation
@pytest.mark.parametrize(
    ("gold", "right", "half"),
    [(STDIO, SCRIPT, "print(2)"), (CALLS, RIGHT, HALF), (PYTEST, RIGHT, HALF)],
    ids=["stdio", "functional", "pytest"],
)
def test_each_kind_right_half_and_empty(gold, right, half):
    for form in (gold, json.dumps(gold)):
        assert judged(right, form) == (1.0, "passed", "passed, passed")
    assert judged(half, gold)[:2] == (0.0, "wrong")
    assert judged(half, gold, partial_credit=True) == (0.5, "partly_passed", "passed, wrong")
    assert judged("pass", gold, partial_credit=True)[0] == 0.0


@needs_isolation
def test_asserts_give_a_verdict_for_each_test():
    assert judged(HALF, ASSERTS, partial_credit=True) == (1 / 3, "partly_passed", "passed, wrong, wrong")
    assert judged(HALF, ASSERTS) == (0.0, "wrong", "passed, wrong, not_run")


@needs_isolation
def test_partial_credit_goes_on_behind_a_test_that_ends_the_program():
    code = "import os\ndef f(x):\n    if x == 2: os._exit(0)\n    return 2 * x"
    assert judged(code, ASSERTS, partial_credit=True) == (2 / 3, "partly_passed", "passed, crash, passed")


@needs_isolation
def test_a_test_that_is_late_does_not_take_the_credit_of_the_others():
    code = "def f(x):\n    while x == 2: pass\n    return 2 * x"
    assert judged(code, ASSERTS, partial_credit=True, timeout=3)[2] == "passed, timeout, passed"


OBJECTS = [
    ("class P:\n    def __init__(self, x): self.x = x\n    def get(self): return self.x", "assert P(3).get() == 3"),
    ("class P:\n    def __init__(self, x): self.x = x", "p = P(3)\np.x = [4]\nassert p.x == [4]"),
    ("class P:\n    def __init__(s, x): s.x = x\n    def __eq__(s, o): return s.x == o.x", "assert P(3) == P(3)"),
    ("class P:\n    pass", "assert isinstance(P(), P) and not isinstance(3, P)"),
    ("def f(a):\n    a.sort()", "a = [3, 1]\nf(a)\nassert a == [1, 3]"),
    ("def f(d):\n    d['k'] = (1, {2})", "d = {}\nf(d)\nassert d == {'k': (1, {2})}"),
    ("def f(g, x):\n    return g(g(x))", "assert f(lambda x: x + 1, 1) == 3"),
    ("def f(n):\n    yield from range(n)", "assert list(f(3)) == [0, 1, 2]"),
    ("def f(x):\n    return lambda y: x + y", "assert f(1)(2) == 3"),
    ("def f(x):\n    raise KeyError(x)", "try:\n    f(1)\nexcept KeyError:\n    pass\nelse:\n    assert False"),
    ("class E(ValueError): pass\ndef f(): raise E('a')", "try:\n    f()\nexcept E:\n    pass\nelse:\n    assert False"),
    ("import math\ndef f(x):\n    return x / 3", "assert math.isclose(f(1), 1 / 3) and abs(f(3) - 1) < 1e-9"),
    ("def f(xs):\n    return sum(xs)", "assert f(x for x in range(4)) == 6"),
    ("def sum(a, b):\n    return a - b", "assert sum(5, 3) == 2"),
    ("from collections import Counter\ndef f(s):\n    return Counter(s)", "assert f('aab') == {'a': 2, 'b': 1}"),
    ("def f(*a, **k):\n    return len(a), k", "assert f(1, 2, key=None) == (2, {'key': None})"),
    ("def f(x):\n    return 2 ** x", "assert f(5000) == 2 ** 5000"),
    ("LIMIT = 3", "assert LIMIT == 3"),
]


@needs_isolation
@pytest.mark.parametrize(("code", "test"), OBJECTS)
def test_tests_use_objects_of_the_program(code, test):
    assert judged(code, {"asserts": [test]})[:2] == (1.0, "passed")


@needs_isolation
@pytest.mark.parametrize(
    ("code", "test"),
    [
        ("import math\nmath.isclose = lambda *a: True\ndef f(): return 0", "assert math.isclose(f(), 3)"),
        ("class math:\n    isclose = lambda *a: True\ndef f(): return 0", "assert math.isclose(f(), 3)"),
        ("def abs(x): return 0\ndef f(): return 9", "assert abs(f() - 3) < 1"),
        ("class L(list):\n    __eq__ = lambda s, o: True\ndef f(): return [L()]", "assert f() == [[1]]"),
    ],
)
def test_a_program_does_not_answer_for_the_functions_that_check_it(code, test):
    assert judged(code, {"asserts": [test]})[0] == 0.0


@needs_isolation
@pytest.mark.parametrize(
    ("module", "reward", "reason"),
    [
        (
            "import pytest\n@pytest.mark.parametrize('x, y', [(1, 2), (2, 4)])\ndef test_f(x, y): assert f(x) == y",
            1,
            "passed",
        ),
        ("import pytest\ndef test_f():\n    with pytest.raises(TypeError): f(None)", 1, "passed"),
        ("import pytest\ndef test_f(): assert f(0.1) == pytest.approx(0.2)", 1, "passed"),
        ("import pytest\ndef test_f(): assert f(0.1) == pytest.approx(0.3)", 0, "wrong"),
        (
            "class TestF:\n    def setup_method(self): self.x = 2\n    def test_f(self): assert f(self.x) == 4",
            1,
            "passed",
        ),
        ("import unittest\nclass T(unittest.TestCase):\n    def test_f(self): self.assertEqual(f(1), 3)", 0, "wrong"),
        ("import unittest\nclass T(unittest.TestCase):\n    def test_f(self): self.assertEqual(f(1), 2)", 1, "passed"),
        ("def test_f(tmp_path): assert f(1) == 2", None, "unsupported_test"),
        ("def helper(): pass", None, "bad_test"),
        ("def test_f(:", None, "bad_test"),
    ],
)
def test_the_part_of_pytest_that_is_here(module, reward, reason):
    assert judged(RIGHT, {"pytest": module})[:2] == (reward, reason)


@needs_isolation
def test_the_method_of_a_solution_class_is_found():
    assert judged("class Solution:\n    def f(self, x):\n        return 2 * x", CALLS)[0] == 1.0


BAD_GOLDS = [
    None, "", "no JSON", 5, "{}", {"asserts": []}, {"asserts": [""]}, {"asserts": "assert f(1)"}, {"pytest": ""},
    {"inputs": ["1"], "outputs": []}, {"inputs": [], "outputs": []}, {"inputs": [1], "outputs": ["1"]},
    {"inputs": ["1"], "outputs": [" "]}, {"inputs": ["not JSON"], "outputs": ["1"], "fn_name": "f"},
    {"inputs": [[1]], "outputs": [1], "fn_name": "import os"}, {"asserts": ["assert f(1)"], "pytest": "def test(): pass"},
]  # fmt: skip


@pytest.mark.parametrize("gold", BAD_GOLDS, ids=repr)
def test_a_bad_gold_is_none_and_counted(gold):
    counted = {}
    reward = CodeReward()
    found = reward([fenced(RIGHT)], solution=[gold], log_metric=lambda name, value: counted.update({name: value}))
    assert (found, counted) == ([None], {"code_reward/none/bad_gold": 1.0})


@needs_isolation
def test_a_test_that_is_no_python_is_none():
    assert judged(RIGHT, {"asserts": ["assert f(1 =="]})[:2] == (None, "bad_test")


def test_a_gold_of_another_kind_is_none():
    assert CodeReward("stdio")([fenced(RIGHT)], solution=[ASSERTS]) == [None]


def test_a_program_of_null_columns_counts_by_the_key_that_has_a_value():
    assert gold_tests({"asserts": ["assert f(1)"], "inputs": None, "outputs": None, "pytest": None}).kind == "asserts"


@pytest.mark.parametrize(
    "text", ["", "def f(x): return 2 * x", "```bash\nls\n```", "<think>\n" + fenced(RIGHT), fenced("")]
)
def test_a_completion_without_a_program_is_wrong(text):
    assert CodeReward()([text], solution=[ASSERTS]) == [0.0]


def test_the_last_block_behind_the_think_block_counts():
    text = (
        f"<think>{fenced('a = 1')}</think>{chr(10)}{fenced('b = 1')}\n{fenced('c = 1', 'py')}\n{fenced('ls', 'bash')}"
    )
    assert last_code_block(text) == "c = 1"


@pytest.mark.parametrize(
    "text",
    [
        fenced("x = 1") + "\nIt prints:\n```\n4\n```",
        "1. Do:\n\n    ```python\n    x = 1\n    ```",
        "> ```python\n> x = 1\n> ```",
        fenced("\ufeffx = 1"),
        "```python\nx = 1",
        "```python\nx = 1```",
        "```python\u200b\nx = 1\n```",
    ],
    ids=["output_behind", "in_a_list", "quoted", "byte_order_mark", "never_closed", "closed_in_the_line", "zero_width"],
)
def test_a_program_is_found_in_its_fence(text):
    assert last_code_block(text) == "x = 1"


@pytest.mark.parametrize("tag", ["<think>", "</think>"])
def test_a_tag_in_a_text_of_the_program_ends_no_thought(tag):
    assert last_code_block(fenced(f"s = '{tag}'")) == f"s = '{tag}'"


def test_a_fence_in_a_docstring_closes_no_block():
    code = 'def f():\n    """\n    ```\n    f()\n    ```\n    """\n    return 1'
    assert last_code_block(fenced(code)) == code


def test_without_isolation_there_is_one_warning_and_none():
    class Nothing:
        def run(self, jobs):
            return [None] * len(jobs)

        def close(self):
            pass

    reward, counted = CodeReward(sandbox=Nothing()), {}
    with pytest.warns(RuntimeWarning, match="got no outcome from its sandbox"):
        assert reward([fenced(RIGHT)] * 2, solution=[ASSERTS] * 2, log_metric=counted.__setitem__) == [None, None]
    assert counted == {"code_reward/none/no_sandbox": 2.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reward([fenced(RIGHT)], solution=[ASSERTS]) == [None]


def test_a_machine_that_isolates_nothing_is_named_with_what_is_missing():
    reward = CodeReward(sandbox=LocalSandbox(isolation="none"))
    with pytest.warns(RuntimeWarning, match=r"cannot isolate programs on this machine \(isolation='none' needs"):
        assert reward([fenced(RIGHT)], solution=[ASSERTS]) == [None]


def test_expected_outputs_do_not_leave_the_process():
    jobs = []

    class Keeps:
        def run(self, given):
            jobs.extend(given)
            return [Outcome(end="done") for _ in given]

        def close(self):
            pass

    golds = [
        {"inputs": ["1"], "outputs": ["8731"]},
        {"fn_name": "f", "inputs": [[1]], "outputs": [8731]},
        {"asserts": ["assert f(1) == 8731", "x = 3\nassert {'a': (8731,)} == f(x)"]},
    ]
    assert CodeReward(sandbox=Keeps())([fenced("a")] * 3, solution=golds) == [0.0, 0.0, 0.0]
    assert len(jobs) == 3
    assert all("8731" not in json.dumps([job.code, job.data]) for job in jobs)


@needs_isolation
def test_equal_programs_of_different_golds_are_judged_by_their_own():
    texts = [fenced(RIGHT), fenced(HALF), fenced(RIGHT), fenced(RIGHT)]
    other = {"asserts": ["assert f(1) == 3"]}
    assert CodeReward(**SLOW_MACHINE)(texts, solution=[ASSERTS, ASSERTS, other, ASSERTS]) == [1.0, 0.0, 0.0, 1.0]


@needs_isolation
def test_a_pickled_reward_gives_the_same():
    reward = pickle.loads(pickle.dumps(CodeReward(partial_credit=True, name="tests", **SLOW_MACHINE)))
    assert (reward.__name__, reward([fenced(HALF)], solution=[ASSERTS])) == ("tests", [1 / 3])


@pytest.mark.parametrize(
    ("output", "expected", "tolerance", "same"),
    [
        ("1 2\r\n", "1\n2", 0, True), ("12", "1", 0, False), ("1", "1 2", 0, False), ("", "1", 0, False),
        ("1.0", "1", 0, False), ("1.0", "1", 1e-6, True), ("1.1", "1", 1e-6, False), ("nan", "nan", 0, True),
        ("inf", "1", 1e-6, False), ("yes", "Yes", 1e-6, False), ("9" * 500, "9" * 499, 1e-6, False),
    ],
)  # fmt: skip
def test_outputs_are_compared_word_by_word(output, expected, tolerance, same):
    assert same_output(output, expected, tolerance) is same


@pytest.mark.parametrize(
    ("value", "expected", "tolerance", "same"),
    [
        ((1, [2]), [1, [2]], 0, True), (1, True, 0, False), (1.0, 1, 0, True), ("1", 1, 0, False), ({1: "a"}, {"1": "a"}, 0, True),
        ({1}, [1], 0, False), (None, None, 0, True), (None, False, 0, False), (5, [5], 0, True), ([5], 5, 0, False),
        (0.1 + 0.2, 0.3, 0, False), (0.1 + 0.2, 0.3, 1e-9, True), (10**400, 0.5, 1e-9, False), (10**20 + 1, 10**20, 1e-6, False),
    ],
)  # fmt: skip
def test_results_are_compared_as_json(value, expected, tolerance, same):
    assert same_result(encoded(value), expected, tolerance) is same


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (1, True), (1.0, 1), ((1, [2]), (1, [2])), ([1], (1,)), ({1, 2}, {2, 1}), (frozenset({1}), {1}), ({1}, [1]),
        ({"a": [1]}, {"a": [1]}), (Counter("aab"), {"a": 2, "b": 1}), ({"a": 1, "b": 2}, {"a": 1}), (None, False),
        (b"a", b"a"), (Decimal("1.0"), 1), (Fraction(1, 2), 0.5), (2**80, 2**80), (range(2), [0, 1]), ([1, 2], [1]),
    ],
)  # fmt: skip
def test_a_value_equals_a_literal_where_python_says_so(value, literal):
    assert equals_literal(encoded(value), literal) is (value == literal)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"kind": "assert"},
            "kind='assert': it must be one of 'functional', 'stdio', 'asserts', 'pytest'; did you",
        ),
        ({"language": "rust"}, "language='rust': it must be one of 'python'"),
        ({"timeout": 0}, "timeout=0: it must be"),
        ({"memory": 1.5}, "memory=1.5: it must be a whole number"),
        ({"tolerance": 1}, "tolerance=1: it must be"),
        ({"partial_credit": 1}, "partial_credit=1: it must be True or False"),
        ({"timeout": 10, "total_timeout": 1}, "timeout=10: it must be at most total_timeout=1"),
        ({"sandbox": 5}, "sandbox=5: it must have the methods run"),
    ],
)
def test_a_bad_setting_is_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        CodeReward(**settings)


def test_compiling_needs_no_gold_and_runs_nothing(tmp_path):
    marker = tmp_path / "ran"
    texts = [fenced(f"open({str(marker)!r}, 'w')"), fenced("x ="), "no program", fenced("return 1"), fenced("")]
    assert code_compiles_reward(texts) == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert not marker.exists()
    with pytest.raises(ValueError, match=r"^language='pyton': .*did you mean 'python'"):
        CodeCompilesReward(language="pyton")


def references(name, source):
    path = DATA / f"{name}.jsonl"
    if not path.exists():
        pytest.skip("the shared real data is not here")
    with path.open(encoding="utf-8") as file:
        rows = [row for row in (source.convert(json.loads(line)) for line in file) if row is not None]
    return [row["solution"] for row in rows], [json.loads(row["extra"])["reference"] for row in rows]


@needs_isolation
@pytest.mark.parametrize(("name", "source", "size"), [("humaneval", humaneval, 164), ("mbpp", mbpp, 500)])
def test_every_reference_passes_and_an_empty_or_wrong_program_fails(name, source, size):
    golds, programs = references(name, source)
    assert len(golds) == size
    reward = CodeReward(**SLOW_MACHINE)
    assert [i for i, one in enumerate(reward(list(map(fenced, programs)), solution=golds)) if one != 1.0] == []
    assert set(reward([fenced("pass")] * size, solution=golds)) == {0.0}
    # the program of the next task defines another function
    moved = [fenced(code) for code in [*programs[1:], programs[0]]]
    assert sum(one == 1.0 for one in reward(moved, solution=golds)) == 0
