from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from datasets_builders.registry import BUILDERS
from datasets_builders.schema import features, prompt_text, row_errors
from datasets_builders.source import converted

ROWS = Path(__file__).parent / "rows"


def raw_rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROWS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def outcomes(name: str) -> list[str]:
    """The prompt of each raw row that is kept, the reason for each that is not."""
    explained = [BUILDERS[name].convert.explained(raw) for raw in raw_rows(name)]
    return [why if row is None else row["prompt"][-1]["content"] for row, why in explained]


def row_of(name: str, place: int) -> dict[str, Any]:
    row = BUILDERS[name].convert(raw_rows(name)[place])
    assert row is not None
    return row


def test_hh_awkward_rows_have_a_reason_each():
    assert outcomes("hh_rlhf") == [
        *("Can you name a fruit?", "empty_reply", "same_reply", "Name a fruit", "different_prompts", "List two."),
        *("roles", "roles", "roles", "roles", "malformed", "no_prompt", "different_prompts", "roles"),
    ]


def test_hh_row_of_several_turns_shares_all_but_the_last():
    row = row_of("hh_rlhf", 3)
    assert row["prompt"] == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Name a fruit"},
    ]
    assert row["chosen"] == [{"role": "assistant", "content": "Fig"}]
    assert row["rejected"] == [{"role": "assistant", "content": "I will not."}]
    assert row["margin"] == 0.0


def test_hh_replies_with_a_common_beginning_are_kept_whole():
    row = row_of("hh_rlhf", 5)
    assert row["chosen"][0]["content"] == "Here:\n\nNote: two.\n\nApple\n\nPear"
    assert row["rejected"][0]["content"] == "Here:\n\nNote: one."


def test_hh_long_dialogue_is_read_in_one_pass():
    turns = "\n\nHuman: a\n\nAssistant: b" * 20_000
    row = BUILDERS["hh_rlhf"].convert({"chosen": turns + "c", "rejected": turns})
    assert row is not None
    assert len(row["prompt"]) == 39_999


def test_ultrafeedback_awkward_rows_have_a_reason_each():
    assert outcomes("ultrafeedback") == [
        *("Name a fruit.", "Name a bird.", "evaluation_set", "no_margin", "no_margin", "no_margin", "no_margin"),
        *("no_prompt", "malformed", "no_margin", "malformed"),
    ]


def test_ultrafeedback_margin_is_the_difference_of_mean_ratings():
    assert row_of("ultrafeedback", 0) == {
        "prompt": [{"role": "user", "content": "Name a fruit."}],
        "chosen": [{"role": "assistant", "content": "Apple."}],
        "rejected": [{"role": "assistant", "content": "Chair."}],
        "margin": 4.0,  # mean of 5, 5, 5, 5 less mean of 1, 1, 1
        "task": "preference",
        "source": "ultrafeedback",
        "source_id": "ba629253522c98a7",
        "extra": '{"rating": "a_better", "ratings": [5.0, 1.0], "models": ["m1", "m2"], "part": "evol_instruct"}',
    }


def test_ultrafeedback_rejected_is_drawn_from_all_that_are_rated_lower():
    raw = raw_rows("ultrafeedback")[1]
    drawn = {}
    for number in range(60):
        row = BUILDERS["ultrafeedback"].convert({**raw, "instruction": f"Name bird {number}."})
        assert row is not None
        assert row["chosen"][0]["content"] == "Owl."
        drawn[row["rejected"][0]["content"]] = (row["margin"], json.loads(row["extra"])["rating"])
    assert drawn == {"Hen.": (2.0, "a_better"), "Emu.": (0.25, "a_slightly_better"), "Cup.": (3.0, "a_better")}


def test_ultrafeedback_same_row_gives_the_same_pair():
    raw = raw_rows("ultrafeedback")[1]
    first = BUILDERS["ultrafeedback"].convert(raw)
    assert [BUILDERS["ultrafeedback"].convert(dict(raw)) for _ in range(3)] == [first] * 3


def test_ultrafeedback_binarized_awkward_rows_have_a_reason_each():
    assert outcomes("ultrafeedback_binarized") == [
        *("Name a fruit.", "same_reply", "no_margin", "inverted", "Name a day.", "no_margin", "no_reply"),
        *("different_prompts", "no_prompt", "malformed"),
    ]


def test_ultrafeedback_binarized_margin_is_the_difference_of_scores():
    row = row_of("ultrafeedback_binarized", 4)
    assert (row["margin"], row["source_id"], row["extra"]) == (2.25, "p5", '{"ratings": [8.5, 6.25]}')
    assert (prompt_text(row), row["chosen"][0]["content"], row["rejected"][0]["content"]) == (
        *("Name a day.", "Monday.", "March."),
    )


@pytest.mark.parametrize(("name", "count"), [("hh_rlhf", 3), ("ultrafeedback", 2), ("ultrafeedback_binarized", 2)])
def test_preference_rows_are_valid_and_fit_the_table(name, count):
    from datasets import Dataset

    rows, _ = converted(BUILDERS[name], raw_rows(name))
    assert len(rows) == count
    assert [row_errors(row) for row in rows] == [[]] * count
    assert Dataset.from_list(rows, features=features("preference")).to_list() == rows
    assert all((row["margin"] > 0) == (name != "hh_rlhf") for row in rows)


def test_hh_two_pairs_of_one_prompt_have_two_ids():
    prompt = "\n\nHuman: Name a fruit.\n\nAssistant:"
    pairs = [("Fig.", "No."), ("Fig.", "Chair."), ("Pear.", "No.")]
    rows = [BUILDERS["hh_rlhf"].convert({"chosen": f"{prompt} {a}", "rejected": f"{prompt} {b}"}) for a, b in pairs]
    assert len({row["source_id"] for row in rows if row}) == 3
