from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from datasets_builders.registry import BUILDERS, EVALUATION_SETS
from datasets_builders.schema import features, prompt_text, row_errors
from datasets_builders.source import Source, converted
from datasets_builders.sources import _tests, nemotron_code
from datasets_builders.sources.nemotron_code import problems_from, rejoined

ROWS = Path(__file__).parent / "rows"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared real data is not here")


def raw_rows(name: str, folder: Path = ROWS) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def outcomes(source: Source) -> list[str]:
    """What becomes of each raw row: its id, or the reason why it is dropped."""
    explained = [source.convert.explained(raw) for raw in raw_rows(source.name)]
    return [why if row is None else row["source_id"] for row, why in explained]


def row_of(source: Source, place: int) -> dict[str, Any]:
    row = source.convert(raw_rows(source.name)[place])
    assert row is not None
    return row


# Runs programs with the blocks of their golds, in one process, and prints the numbers of those that fail.
RUNNER = """
import json, signal, sys

def stop(*_):
    raise TimeoutError

signal.signal(signal.SIGPROF, stop)  # its own seconds, not those of a busy machine
failed = []
for number, (program, blocks) in enumerate(json.load(sys.stdin)):
    space = {"__name__": "answer"}
    signal.setitimer(signal.ITIMER_PROF, 30)
    try:
        for code in [program, *blocks]:
            exec(code, space)
    except Exception:
        failed.append(number)
    signal.setitimer(signal.ITIMER_PROF, 0)
json.dump(failed, sys.stdout)
"""


def failing(tasks: list[tuple[str, dict[str, Any]]]) -> list[int]:
    """Numbers of the (program, row) pairs whose program does not pass the row's own blocks."""
    given = json.dumps([(program, json.loads(row["solution"])["asserts"]) for program, row in tasks])
    done = subprocess.run(
        [sys.executable, "-I", "-c", RUNNER], input=given, capture_output=True, text=True, timeout=1800, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


# ---- AceCode


def test_acecode_rows_give_asserts_and_the_mean_pass_rate():
    assert row_of(BUILDERS["acecode"], 0) == {
        "prompt": [{"role": "user", "content": "Write `def inc(x)` that adds one."}],
        "solution": '{"asserts": ["assert inc(0) == 1", "assert inc(-1) == 0"]}',
        "task": "code",
        "source": "acecode",
        "source_id": "oss_0",
        "extra": '{"difficulty": 0.5, "part": "oss"}',
    }


def test_acecode_unusable_tests_and_rates_are_left_out():
    row = row_of(BUILDERS["acecode"], 1)
    assert row["solution"] == '{"asserts": ["assert twice(2) == 4", "assert twice(0) == 0"]}'
    assert json.loads(row["extra"])["difficulty"] == 0.25  # of null, 0.25 and 7
    assert prompt_text(row) == "Write `def twice(x)`."


def test_acecode_awkward_rows_have_a_reason_each():
    assert outcomes(BUILDERS["acecode"]) == [
        *("oss_0", "oss_1", "95659e8c80e510ab", "no_tests", "no_tests", "no_prompt", "no_prompt"),
        *("malformed", "malformed", "malformed", "no_tests"),
    ]


def test_acecode_row_without_inferences_has_no_difficulty():
    assert row_of(BUILDERS["acecode"], 2)["extra"] == "{}"


# ---- Klear


@pytest.mark.parametrize(
    ("place", "gold", "extra"),
    [
        (0, {"inputs": ["1 2\n", "5 -7\n"], "outputs": ["3\n", "-2\n"]}, {}),
        (1, {"asserts": ["assert double(2) == 4", "assert double(-1) == -2"]}, {}),
        (
            2,
            {"asserts": ["import math\nassert area(1) == math.pi", "import math\nassert area(\n    0\n) == 0"]},
            {"timeout": 6, "max_test_cases": 20},
        ),
        (3, {"asserts": ["s = S()\ns.add(1)\nassert s.sum() == 1\nassert s.n == 1"]}, {}),
        (4, {"pytest": "def test_f():\n    assert f(1) == 1\n"}, {}),
        (5, {"inputs": [[1, 2]], "outputs": [3], "fn_name": "add"}, {}),
        (6, {"inputs": ["2\na b"], "outputs": ["a\nb"]}, {}),
        (15, {"inputs": ["\ud800"], "outputs": ["x"]}, {}),
    ],
)
def test_klear_code_each_kind_of_test_becomes_its_gold(place, gold, extra):
    row = row_of(BUILDERS["klear_code"], place)
    assert json.loads(row["solution"]) == gold
    assert json.loads(row["extra"]) == extra
    row["solution"].encode()  # what a table of text can hold


@pytest.mark.parametrize("name", ["klear_code", "synthetic_2"])
@pytest.mark.parametrize(
    ("function", "reason"), [("f", None), ("", None), (None, None), *((bad, "bad_tests") for bad in (5, 0, " ", ["f"]))]
)
def test_function_of_tests_must_be_a_text(name, function, reason):
    tests = json.dumps({"inputs": ["1"], "outputs": ["2"], "fn_name": function})
    info = json.dumps({"test_cases": tests})
    turns = [{"role": "user", "content": "Write it."}]
    raw = {
        "klear_code": {"prompt": turns, "reward_model": {"ground_truth": tests}},
        "synthetic_2": {"problem_id": "prime_rl_code_1", "prompt": "Write it.", "verification_info": info},
    }
    row, why = BUILDERS[name].convert.explained(raw[name])
    assert why == reason
    assert row is None or json.loads(row["solution"]).get("fn_name") == (function or None)


def test_klear_code_awkward_rows_have_a_reason_each():
    assert outcomes(BUILDERS["klear_code"]) == [
        *("h1", "h2", "h3", "h4", "h5", "h6", "h7"),
        *("bad_tests", "no_tests", "no_tests", "bad_tests", "malformed", "bad_tests", "bad_tests", "no_prompt", "h16"),
        *("malformed", "malformed", "bad_tests", "bad_tests"),
    ]


def test_assertions_of_a_long_block_stay_in_one_piece(monkeypatch):
    code = "assert f(1) == 1\nassert f(2) == 2"
    assert len(_tests.assertions(code)) == 2
    monkeypatch.setattr(_tests, "MAX_BLOCK", 20)
    assert _tests.assertions(code) == [code]
    assert _tests.is_python("assert f(") is False
    assert _tests.is_python("assert f(" + 20 * " ") is True  # too long to say


@pytest.mark.parametrize(
    ("code", "blocks"),
    [
        ("assert f(1); assert f(2)", ["assert f(1); assert f(2)"]),
        ("assert f(1)\r\nassert f(2)  # two\r\n", ["assert f(1)", "assert f(2)  # two"]),
        ("assert f('\u2028')\nassert f('\x0c')", ["assert f('\u2028')", "assert f('\x0c')"]),
        ("assert f('é') == 'é', 'ü'\nassert f(1)", ["assert f('é') == 'é', 'ü'", "assert f(1)"]),
        ('assert f("""a\nassert b""")', ['assert f("""a\nassert b""")']),
        ("assert f(1)\nfrom m import g\nassert g(1)", ["from m import g\nassert f(1)", "from m import g\nassert g(1)"]),
        ("import m", ["import m"]),
        ("def check():\n    assert f(1)\ncheck()", ["def check():\n    assert f(1)\ncheck()"]),
        ("assert f(", ["assert f("]),
        ("assert " + "(" * 5000, ["assert " + "(" * 5000]),
        ("assert " + "-" * 50000 + "1", ["assert " + "-" * 50000 + "1"]),
        ("assert f('\0')", ["assert f('\0')"]),
    ],
)
def test_assertions_of_awkward_code(code, blocks):
    assert _tests.assertions(code) == blocks


# ---- Nemotron


def test_nemotron_code_joined_row_asks_the_problem_and_keeps_the_reply():
    row = row_of(BUILDERS["nemotron_code"], 1)
    assert row == {
        "prompt": [{"role": "user", "content": "Print the sum."}],
        "completion": [
            {
                "role": "assistant",
                "content": "<think>\nadd\n</think>\n```python\nprint(sum(map(int,input().split())))\n```",
            }
        ],
        "task": "sft",
        "source": "nemotron_code",
        "source_id": "n2",
        "extra": (
            '{"dataset": "taco", "split": "train", "index": "2", "generator": "DeepSeek-R1-0528", "reasoning": "on", '
            '"licence": "cc-by-4.0"}'
        ),
    }


def test_nemotron_code_awkward_rows_have_a_reason_each():
    assert outcomes(BUILDERS["nemotron_code"]) == [
        *("no_problem", "n2", "n3", "no_reply", "no_reply", "no_prompt", "malformed", "n8", "roles")
    ]


def test_nemotron_code_row_with_a_problem_of_its_own_keeps_it():
    assert row_of(BUILDERS["nemotron_code"], 2)["prompt"] == [
        {"role": "system", "content": "Think."},
        {"role": "user", "content": "Print 1."},
    ]


def test_rejoined_looks_up_what_the_metadata_says():
    raw = [
        {"uuid": "a", "metadata": '{"dataset": "apps", "split": "test", "index": 7}'},
        {"uuid": "b", "metadata": {"dataset": "taco", "split": "train", "index": "8"}},
        {"uuid": "c", "metadata": '{"dataset": "taco", "split": "train"}'},
        {"uuid": "d", "metadata": "[" * 100_000},
        {"uuid": "e", "metadata": "7"},
        {"uuid": "f"},
    ]
    joined = list(rejoined(iter(raw), lambda *origin: "/".join(origin)))
    assert [row["problem"] for row in joined] == ["apps/test/7", "taco/train/8", None, None, None, None]
    assert [row["uuid"] for row in joined] == list("abcdef")
    assert "problem" not in raw[0]


@pytest.fixture
def copies(tmp_path):
    """Local copies of three data sets in the layouts of the Hub."""
    from pyarrow import Table, parquet

    (tmp_path / "taco" / "ALL").mkdir(parents=True)
    for shard, questions in (("train-00000-of-00002", ["t0", "t1"]), ("train-00001-of-00002", ["t2"])):
        table = Table.from_pydict({"question": questions, "solutions": questions})
        parquet.write_table(table, tmp_path / "taco" / "ALL" / f"{shard}.parquet")
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "train.jsonl").write_text('{"id": 0, "question": "a0"}\n\n{"id": 1, "question": ""}\n')
    (tmp_path / "codeforces" / "data").mkdir(parents=True)
    rows = {
        "description": ["Add.", None],
        "input_format": ["Two numbers.", "x"],
        "output_format": [None, "x"],
        "examples": [[{"input": "1 2", "output": "3"}, {"input": "4 5", "output": "9"}], None],
        "note": ["Easy.", ""],
    }
    parquet.write_table(Table.from_pydict(rows), tmp_path / "codeforces" / "data" / "train-00000-of-00001.parquet")
    return tmp_path


def test_problems_from_reads_parquet_shards_and_jsonl_by_row(copies):
    problems = problems_from(copies)
    assert [problems("taco", "train", str(index)) for index in range(4)] == ["t0", "t1", "t2", None]
    assert [problems("apps", "train", str(index)) for index in range(3)] == ["a0", None, None]
    assert problems("open-r1/codeforces", "train", "0") == (
        "Add.\n\nInput\n\nTwo numbers.\n\nExample 1\n\nInput:\n1 2\n\nOutput:\n3\n\nExample 2\n\nInput:\n4 5\n\n"
        "Output:\n9\n\nNote\n\nEasy."
    )
    assert problems("open-r1/codeforces", "train", "1") is None


@pytest.mark.parametrize(
    "origin",
    [
        *(("taco", "test", "0"), ("code_contests", "train", "0"), ("leetcode", "train", "0"), ("taco", "train", "-1")),
        *(
            ("taco", "../train", "0"),
            ("taco", "train", "1.0"),
            ("taco", "train", "9" * 5000),
            ("../taco", "train", "0"),
        ),
    ],
)
def test_problems_from_gives_none_for_what_is_not_there(copies, origin):
    assert problems_from(copies)(*origin) is None


def test_problems_from_joined_row_is_converted(copies):
    raw = raw_rows("nemotron_code")[:1]
    rows, dropped = converted(BUILDERS["nemotron_code"], rejoined(raw, problems_from(copies)))
    assert [prompt_text(row) for row in rows] == ["t2"]
    assert dropped == {}


def test_problems_from_folder_without_copies_says_what_belongs_there(tmp_path):
    with pytest.raises(
        ValueError, match="holds none of the folders taco, apps, code_contests, codeforces; put the Hub"
    ):
        problems_from(tmp_path)


def test_problems_from_two_copies_of_a_split_is_an_error(copies):
    (copies / "taco" / "train.jsonl").write_text('{"question": "other"}\n')
    with pytest.raises(ValueError, match=r"split 'train' of taco has several copies \(.*train.jsonl.*\); keep one"):
        problems_from(copies)("taco", "train", "0")


# ---- HumanEval and MBPP


def test_humaneval_row_asks_for_the_whole_function_and_checks_it():
    row = row_of(EVALUATION_SETS["humaneval"], 0)
    assert prompt_text(row) == (
        "Complete this Python function. Give the whole function, with the imports and helper functions it needs.\n\n"
        '```python\ndef triple(x: int) -> int:\n    """ Three times x. """\n```'
    )
    test = raw_rows("humaneval")[0]["test"]
    assert json.loads(row["solution"]) == {"asserts": [f"{test}\ncheck(triple)\n"]}
    assert row["source_id"] == "Own/0"


def test_humaneval_test_that_calls_a_helper_of_the_prompt_brings_it_along():
    row = row_of(EVALUATION_SETS["humaneval"], 1)
    alone = "def root(x):\n    return x ** 0.5\n"
    assert failing([(alone, row), ("def root(x):\n    return x\n", row)]) == [1]


def test_humaneval_and_mbpp_awkward_rows_have_a_reason_each():
    assert outcomes(EVALUATION_SETS["humaneval"]) == [
        *("Own/0", "Own/1", "Own/2", "no_tests", "no_prompt", "no_prompt", "malformed")
    ]
    assert outcomes(EVALUATION_SETS["mbpp"]) == [
        *("11", "510", "other_split", "other_split", "no_tests", "no_prompt", "malformed", "malformed")
    ]


def test_mbpp_row_shows_the_first_assertion_and_keeps_all():
    assert row_of(EVALUATION_SETS["mbpp"], 0) == {
        "prompt": [
            {
                "role": "user",
                "content": (
                    "Write a function to add one.\n\nThe code must pass this test:\n\n"
                    "```python\nassert inc(1) == 2\n```"
                ),
            }
        ],
        "solution": '{"asserts": ["assert inc(1) == 2", "assert inc(0) == 1"]}',
        "task": "code",
        "source": "mbpp",
        "source_id": "11",
        "extra": '{"reference": "def inc(x):\\n\\treturn x + 1"}',
    }


def test_mbpp_shared_code_of_the_tests_stands_before_each():
    row = row_of(EVALUATION_SETS["mbpp"], 1)
    assert json.loads(row["solution"]) == {"asserts": ["root = Node(1)\nroot.left = Node(2)\nassert height(root) == 2"]}


@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_reference_of_own_rows_passes_its_gold_and_a_wrong_one_fails(name):
    rows, _ = converted(EVALUATION_SETS[name], raw_rows(name))
    references = [(json.loads(row["extra"])["reference"], row) for row in rows]
    assert failing(references) == []
    wrong = [(program.replace("return", "return 7, "), row) for program, row in references]
    assert failing(wrong) == list(range(len(rows)))


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("humaneval", 164), ("mbpp", 500)])
def test_reference_of_every_real_row_passes_its_gold(name, count):
    rows, dropped = converted(EVALUATION_SETS[name], raw_rows(name, DATA))
    assert len(rows) == count
    assert dropped == ({} if name == "humaneval" else {"other_split": 474})
    references = [(json.loads(row["extra"])["reference"], row) for row in rows]
    assert failing(references) == []
    assert failing([("", row) for row in rows]) == list(range(count))  # the tests do test


@needs_data
def test_acecode_real_row_has_19_tests_and_the_mean_of_80_answers():
    (raw,) = raw_rows("acecode", DATA)
    row = BUILDERS["acecode"].convert(raw)
    assert row is not None
    assert json.loads(row["solution"]) == {"asserts": raw["test_cases"]}
    assert len(raw["test_cases"]) == 19
    mean = sum(one["pass_rate"] for one in raw["inferences"]) / 80
    assert json.loads(row["extra"])["difficulty"] == pytest.approx(mean, abs=1e-6)


# ---- all of them


@pytest.mark.parametrize("name", ["acecode", "klear_code", "nemotron_code", "humaneval", "mbpp"])
def test_code_rows_are_valid_and_fit_the_table(name):
    from datasets import Dataset

    source = BUILDERS[name] if name in BUILDERS else EVALUATION_SETS[name]
    rows, _ = converted(source, raw_rows(name))
    assert [row_errors(row) for row in rows] == [[]] * len(rows)
    kind = "sft" if name == "nemotron_code" else "rl"
    assert Dataset.from_list(rows, features=features(kind)).to_list() == rows
    assert {row["source"] for row in rows} == {name}


def test_nemotron_code_is_for_supervised_training_only():
    assert (nemotron_code.TRAINING.task, nemotron_code.TRAINING.streaming) == ("sft", True)
    assert "no tests" in nemotron_code.TRAINING.note
