"""Raw rows with fields of two hundred thousand characters of one kind: each conversion comes to its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from datasets_builders.registry import BUILDERS, EVALUATION_SETS
from datasets_builders.schema import row_errors
from datasets_builders.source import Source

ROWS = Path(__file__).parent / "rows"
LENGTH = 200_000
FILLERS = (" ", "\n", "\\quad ", "; ", "$", "{", "\\\\", "7", ",", "(A)", r"\boxed{")
SOURCES: dict[str, Source] = {**BUILDERS, **EVALUATION_SETS}
# Sources that read the rows of another one's file.
FILES = {
    "omega_compositional": "omega",
    "omega_transformative": "omega",
    "openr1_math_sft": "openr1_math",
    "tulu_3_sft": "tulu_3",
    "arc_easy": "arc",
    "arc_challenge": "arc",
}
WITHOUT_TEXT = ("countdown", "countdown_tasks", "arithmetic")
GSM8K = [{"question": "How many jars are in 3 crates of 42?", "answer": "It is 3*42=<<3*42=126>>126.\n#### 126"}]
IFBENCH = [{"key": "1", "prompt": "Write.", "instruction_id_list": ["count:word_count_range"], "kwargs": [{"N": 2.0}]}]
OWN_ROWS = {"gsm8k": GSM8K, "ifbench": IFBENCH}


def first_rows(name: str) -> list[Any]:
    """Of each task, the first raw row of a source that its conversion keeps."""
    if name in OWN_ROWS:
        rows: list[Any] = OWN_ROWS[name]
    else:
        lines = (ROWS / f"{FILES.get(name, name)}.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
    kept = [(built["task"], row) for row in rows if (built := SOURCES[name].convert(row)) is not None]
    return list({task: row for task, row in reversed(kept)}.values())


def texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Every text in a raw row, and the way to it."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts(inner, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], text: str) -> Any:
    if not path:
        return text
    copy = value.copy()
    copy[path[0]] = replaced(copy[path[0]], path[1:], text)
    return copy


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in WITHOUT_TEXT])
def test_long_fields_of_one_character_come_to_an_end(name: str) -> None:
    convert = SOURCES[name].convert
    fields = [(raw, path, text) for raw in first_rows(name) for path, text in list(texts(raw))[:10]]
    assert fields
    for raw, path, text in fields:
        for filler in FILLERS:
            long = filler * (LENGTH // len(filler))
            for field in (long, text + long + text, text + long):
                row, reason = convert.explained(replaced(raw, path, field))
                assert (row is None) != (reason is None)
                assert row is None or row_errors(row) == []


# Here a column of that name is no prompt: the problem that was joined, and a copy of the first turn.
ASKED_ELSEWHERE = ("nemotron_code", "ultrafeedback_binarized")


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in WITHOUT_TEXT])
@pytest.mark.parametrize("blank", ["", " \n\t "])
def test_blank_fields_give_a_row_that_holds_or_a_reason_of_the_source(name: str, blank: str) -> None:
    for raw in first_rows(name):
        for path, _ in texts(raw):
            row, reason = SOURCES[name].convert.explained(replaced(raw, path, blank))
            assert row is None or row_errors(row) == []
            if path in (("question",), ("problem",), ("prompt",)) and name not in ASKED_ELSEWHERE:
                assert reason == "no_prompt"


@pytest.mark.parametrize("problem", ["", " \n", None])
def test_blank_problem_of_gsm8k_and_of_math_is_no_prompt(problem: str | None) -> None:
    assert SOURCES["gsm8k"].convert.explained({"question": problem, "answer": "#### 1"}) == (None, "no_prompt")
    row = {"problem": problem, "solution": r"\boxed{1}", "level": "Level 1", "type": "Algebra"}
    assert SOURCES["hendrycks_math"].convert.explained(row) == (None, "no_prompt")


def test_omega_long_gap_before_the_sentence_is_taken_off_with_it() -> None:
    (raw,) = first_rows("omega")
    sentence = r"Present the answer in LaTeX format: \boxed{Your answer}"
    for gap in (" ", "\n", " \n"):
        content = f"Add 1 and 2.{gap * LENGTH}{sentence}. \n"
        row = SOURCES["omega"].convert({**raw, "messages": [{"role": "user", "content": content}]})
        assert row is not None
        assert row["prompt"][0]["content"] == "Add 1 and 2."


def test_humaneval_many_helpers_and_a_long_test_come_to_an_end() -> None:
    helpers = "".join(f"def h{number}(): pass\n" for number in range(20_000))
    raw = {
        "task_id": "Own/1",
        "prompt": f"{helpers}def f():\n    pass\n",
        "test": "def check(f):\n    pass\n" + "# word\n" * (LENGTH // 7),
        "entry_point": "f",
        "canonical_solution": "",
    }
    row = SOURCES["humaneval"].convert(raw)
    assert row is not None
    assert json.loads(row["solution"])["asserts"] == [raw["test"] + "\ncheck(f)\n"]
    row = SOURCES["humaneval"].convert({**raw, "test": raw["test"] + "h7()"})
    assert row is not None
    assert json.loads(row["solution"])["asserts"][0].startswith(helpers)


def test_dapo_long_gaps_around_the_wording_are_taken_off_with_it() -> None:
    wording = 'Remember to put your answer on its own line after "Answer:".'
    for gap, kept in (("\n" * LENGTH, ""), (" \n" * 3, ""), ("  ", f"  {wording}")):
        row = SOURCES["dapo_math"].convert({"prompt": f"Add 1 and 2.{gap}{wording} \n", "solution": "3"})
        assert row is not None
        assert row["prompt"][0]["content"] == f"Add 1 and 2.{kept}"
