from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from datasets_builders.registry import EVALUATION_SETS
from datasets_builders.schema import features, prompt_text, row_errors
from datasets_builders.source import converted
from reward_funcs.choice import choice_reward

ROWS = Path(__file__).parent / "rows"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared real data is not here")


def raw_rows(name: str, folder: Path = ROWS) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def rewards(rows: list[dict[str, Any]], answers: list[str]) -> list[float | None]:
    return choice_reward(answers, solution=[row["solution"] for row in rows], extra=[row["extra"] for row in rows])


@pytest.mark.parametrize("name", ["arc_easy", "arc_challenge"])
def test_arc_awkward_rows_have_a_reason_each(name):
    explained = [EVALUATION_SETS[name].convert.explained(raw) for raw in raw_rows("arc")]
    assert [why if row is None else row["source_id"] for row, why in explained] == [
        *("a1", "a2", "a3", "a4", "bad_choices", "no_answer", "bad_choices", "bad_choices", "bad_choices"),
        *("bad_choices", "no_prompt", "no_answer", "malformed", "malformed", "malformed", "a16"),
    ]


def test_arc_numbered_labels_become_letters_by_position():
    assert EVALUATION_SETS["arc_easy"].convert(raw_rows("arc")[1]) == {
        "prompt": [{"role": "user", "content": "Which is a plant?\n\nA. cat\nB. fern\nC. rock"}],
        "solution": "B",
        "task": "choice",
        "source": "arc_easy",
        "source_id": "a2",
        "extra": '{"answer": "2", "choices": ["cat", "fern", "rock"]}',
    }


def test_arc_letters_in_another_order_become_letters_by_position():
    row = EVALUATION_SETS["arc_challenge"].convert(raw_rows("arc")[3])
    assert row is not None
    assert prompt_text(row) == "Which comes\nfirst?\n\nA. two lines\nB. C"
    assert (row["solution"], json.loads(row["extra"])["answer"], row["source"]) == ("B", "A", "arc_challenge")


def test_arc_options_as_records_are_read():
    row = EVALUATION_SETS["arc_easy"].convert(raw_rows("arc")[-1])
    assert row is not None
    assert (row["solution"], json.loads(row["extra"])["choices"]) == ("B", ["fire", "ice"])


def test_arc_rows_are_valid_and_their_golds_are_right():
    from datasets import Dataset

    rows, _ = converted(EVALUATION_SETS["arc_easy"], raw_rows("arc"))
    assert [row_errors(row) for row in rows] == [[]] * 5
    assert Dataset.from_list(rows, features=features("rl")).to_list() == rows
    assert rewards(rows, [f"\\boxed{{{row['solution']}}}" for row in rows]) == [1.0] * 5


@needs_data
@pytest.mark.parametrize(
    ("name", "file", "numbered"), [("arc_easy", "arc_easy_train", 6), ("arc_challenge", "arc_challenge_test", 1)]
)
def test_arc_every_real_gold_is_accepted_and_every_other_letter_refused(name, file, numbered):
    raw = raw_rows(file, DATA)
    rows, dropped = converted(EVALUATION_SETS[name], raw)
    assert (len(rows), dropped) == (100, {})
    assert sum(json.loads(row["extra"])["answer"].isdigit() for row in rows) == numbered
    assert rewards(rows, [f"\\boxed{{{row['solution']}}}" for row in rows]) == [1.0] * 100
    others = ["B" if row["solution"] == "A" else "A" for row in rows]
    assert rewards(rows, [f"\\boxed{{{letter}}}" for letter in others]) == [0.0] * 100
    for one, row in zip(raw, rows, strict=True):
        place = one["choices"]["label"].index(one["answerKey"])
        assert f"\n{row['solution']}. {' '.join(one['choices']['text'][place].split())}" in prompt_text(row)
