"""Sources whose rows are generated, and countdown tasks of the Hub."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from random import Random

import pytest

from datasets_builders.registry import BUILDERS
from datasets_builders.schema import prompt_id, prompt_text, row_errors, text_hash
from datasets_builders.source import converted
from datasets_builders.sources.arithmetic import exercise
from datasets_builders.sources.countdown import is_solvable, puzzle
from reward_funcs import accuracy_reward, countdown_reward
from reward_funcs.countdown import parsed_expression

ROWS = Path(__file__).parent / "rows"


# countdown


def test_puzzle_is_reached_by_its_expression_with_all_its_numbers() -> None:
    counts = set()
    for index in range(500):
        row = puzzle(index, seed=7)
        value, used = parsed_expression(row["expression"])
        assert value == row["target"]
        assert sorted(map(int, used)) == sorted(row["nums"])
        assert 1 <= row["target"] <= 100
        assert all(1 <= num <= 99 for num in row["nums"])
        counts.add(len(row["nums"]))
    assert counts == {3, 4}


def test_puzzle_depends_on_index_and_seed_alone() -> None:
    first = [puzzle(index, seed=1) for index in range(50)]
    assert [puzzle(index, seed=1) for index in reversed(range(50))] == first[::-1]
    assert [puzzle(index, seed=2) for index in range(50)] != first
    assert len({json.dumps(row) for row in first}) == 50
    assert puzzle(0, 42) == {"target": 37, "nums": [92, 24, 32, 47], "expression": "24 + (92 - (47 + 32))"}


def test_countdown_row_is_a_prompt_and_a_gold_that_the_reward_takes() -> None:
    source = BUILDERS["countdown"]
    assert source.generate is not None
    row = source.convert(source.generate(0, 42))
    assert row == {
        "prompt": [
            {
                "role": "user",
                "content": "Reach 37 with the numbers 92, 24, 32, 47. Write one expression that uses each of them "
                "exactly once, with +, -, *, / and brackets.",
            }
        ],
        "solution": '{"target": 37, "nums": [92, 24, 32, 47]}',
        "task": "countdown",
        "source": "countdown",
        "source_id": prompt_id(row["prompt"][0]["content"]) if row else "",
        "extra": '{"answer": "24 + (92 - (47 + 32))"}',
    }


def test_countdown_rows_are_solved_by_their_answer_and_by_the_reward_itself() -> None:
    source = BUILDERS["countdown"]
    assert source.generate is not None
    rows, dropped = converted(source, (source.generate(index, 3) for index in range(60)))
    assert dropped == {}
    assert [error for row in rows for error in row_errors(row)] == []
    golds = [row["solution"] for row in rows]
    answers = [rf"\boxed{{{json.loads(row['extra'])['answer']}}}" for row in rows]
    assert countdown_reward(answers, solution=golds) == [1.0] * 60
    assert countdown_reward([countdown_reward.ideal(gold) for gold in golds], solution=golds) == [1.0] * 60
    assert countdown_reward(answers[1:] + answers[:1], solution=golds).count(1.0) == 0


def test_countdown_tasks_rows_convert_or_say_why() -> None:
    source = BUILDERS["countdown_tasks"]
    lines = (ROWS / "countdown_tasks.jsonl").read_text(encoding="utf-8").splitlines()
    explained = [source.convert.explained(json.loads(line)) for line in lines]
    assert [reason for _, reason in explained] == [
        *[None] * 6,
        "unsolvable",
        "malformed",
        "malformed",
        "malformed",
        "malformed",
    ]
    rows = [row for row, _ in explained if row is not None]
    assert [row["solution"] for row in rows] == [
        '{"target": 38, "nums": [67, 8, 34, 71]}',
        '{"target": 45, "nums": [91, 94, 42]}',
        '{"target": 39, "nums": [25, 24, 38]}',
        '{"target": 34, "nums": [55, 13, 8]}',
        '{"target": 29, "nums": [82, 25, 78]}',
        '{"target": 24, "nums": [3, 3, 8, 8]}',
    ]
    assert {row["extra"] for row in rows} == {"{}"}
    assert {row["source"] for row in rows} == {"countdown_tasks"}
    assert [error for row in rows for error in row_errors(row)] == []


def test_is_solvable_agrees_with_the_search_of_the_reward() -> None:
    random, found = Random(5), []
    for count in (1, 2, 3, 3, 3, 4, 4):
        for _ in range(30):
            nums = [random.choice((0, 1, 2, 3, 5, 7, 8, 12)) for _ in range(count)]
            target = random.randint(0, 30)
            exact = countdown_reward.ideal({"target": target, "nums": nums}) is not None
            assert is_solvable(target, nums) == exact, (target, nums)
            found.append(exact)
    assert 20 < sum(found) < 190  # both verdicts were put to the test


def test_is_solvable_of_five_numbers_asks_the_reward() -> None:
    assert is_solvable(15, [1, 2, 3, 4, 5])
    assert not is_solvable(1_000_003, [1, 1, 1, 1, 1])


# arithmetic


@pytest.mark.parametrize(
    ("config", "pattern"),
    [
        ("add_2", r"[1-9]\d plus [1-9]\d"),
        ("sub_3", r"[1-9]\d\d minus [1-9]\d\d"),
        ("mul_1", r"\d times \d"),
        ("mixed_2", r"[1-9]\d (plus|minus|times) [1-9]\d"),
        (None, r"[1-9]\d (plus|minus|times) [1-9]\d"),
    ],
)
def test_exercise_has_the_operation_and_digits_of_its_level(config: str | None, pattern: str) -> None:
    operations = {"plus": int.__add__, "minus": int.__sub__, "times": int.__mul__}
    for index in range(200):
        row = exercise(index, 0, config)
        assert re.fullmatch(pattern, row["expression"])
        a, operation, b = row["expression"].split()
        assert row["result"] == operations[operation](int(a), int(b))


def test_exercise_mixed_has_all_three_operations() -> None:
    assert {exercise(index, 0)["level"] for index in range(50)} == {"add_2", "sub_2", "mul_2"}


def test_exercise_depends_on_index_seed_and_level_alone() -> None:
    first = [exercise(index, 0, "add_3") for index in range(50)]
    assert [exercise(index, 0, "add_3") for index in range(50)] == first
    assert [exercise(index, 1, "add_3") for index in range(50)] != first
    assert exercise(0, 42, "mul_2") == {"expression": "10 times 19", "result": 190, "level": "mul_2"}


@pytest.mark.parametrize("config", ["add", "add_0", "add_10", "div_2", "Add_2", "add_2 "])
def test_exercise_of_an_unknown_level_says_what_there_is(config: str) -> None:
    with pytest.raises(ValueError, match=f"config={config!r} is no level.*add, sub, mul or mixed.*1 to 9"):
        exercise(0, 0, config)


def test_arithmetic_rows_are_questions_whose_golds_the_reward_takes() -> None:
    source = BUILDERS["arithmetic"]
    raw = [exercise(index, 0, "sub_2") for index in range(100)]
    rows, dropped = converted(source, raw)
    assert dropped == {}
    assert [error for row in rows for error in row_errors(row)] == []
    assert prompt_text(rows[0]) == f"What is {raw[0]['expression']}?"
    assert json.loads(rows[0]["extra"]) == {"answer": str(raw[0]["result"]), "level": "sub_2"}
    assert any(row["solution"].startswith("$-") for row in rows)
    golds = [row["solution"] for row in rows]
    assert accuracy_reward([rf"\boxed{{{one['result']}}}" for one in raw], solution=golds) == [1.0] * 100
    assert accuracy_reward([rf"\boxed{{{one['result'] + 1}}}" for one in raw], solution=golds) == [0.0] * 100


def test_arithmetic_prompts_with_other_answers_are_no_duplicates() -> None:
    source = BUILDERS["arithmetic"]
    rows, _ = converted(source, (exercise(index, 0, "mixed_1") for index in range(4000)))
    golds: dict[str, set[str]] = {}
    for row in rows:
        golds.setdefault(text_hash(prompt_text(row)), set()).add(row["solution"])
    assert max(map(len, golds.values())) == 1
    assert len(golds) == 300  # all exercises of one digit


# configurations of generated sources


def test_configured_source_generates_its_level() -> None:
    source = BUILDERS["arithmetic"].configured("mul_3")
    assert source.generate is not None
    assert source.config == "mul_3"
    assert source.generate(5, 0) == exercise(5, 0, "mul_3")
    assert pickle.loads(pickle.dumps(source)).generate(5, 0) == exercise(5, 0, "mul_3")


def test_configured_source_of_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="config='div_2' is no level"):
        BUILDERS["arithmetic"].configured("div_2")
    with pytest.raises(ValueError, match="config='x' does not go with 'countdown'"):
        BUILDERS["countdown"].configured("x")


def test_configured_of_no_configuration_or_a_source_of_the_hub_changes_nothing() -> None:
    for name, config in (("arithmetic", None), ("countdown", None), ("omega", "arithmetic_gcd")):
        assert BUILDERS[name].configured(config) is BUILDERS[name]
