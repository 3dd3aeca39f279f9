from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from datasets_builders.registry import BUILDERS
from datasets_builders.schema import features, row_errors
from datasets_builders.source import converted

ROWS = Path(__file__).parent / "rows"


def raw_rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROWS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def outcomes(name: str, file: str) -> list[str]:
    explained = [BUILDERS[name].convert.explained(raw) for raw in raw_rows(file)]
    return [why if row is None else row["source_id"] for row, why in explained]


TULU = [
    *("t1", "t2", "noncommercial", "no_reply", "no_reply", "no_prompt", "no_prompt", "roles"),
    *("malformed", "malformed", "malformed"),
]


@pytest.mark.parametrize("name", ["tulu_3", "tulu_3_sft"])
def test_tulu_awkward_rows_have_a_reason_each(name):
    assert outcomes(name, "tulu_3") == TULU


def test_tulu_judge_row_ends_with_the_last_user_turn():
    assert BUILDERS["tulu_3"].convert(raw_rows("tulu_3")[1]) == {
        "prompt": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Sum 2 and 3."},
            {"role": "assistant", "content": "5"},
            {"role": "user", "content": "And 4?"},
        ],
        "solution": "9",
        "task": "judge",
        "source": "tulu_3",
        "source_id": "t2",
        "extra": '{"part": "src/b"}',
    }


def test_tulu_sft_row_completes_the_same_prompt():
    judged, supervised = (BUILDERS[name].convert(raw_rows("tulu_3")[1]) for name in ("tulu_3", "tulu_3_sft"))
    assert judged is not None and supervised is not None
    assert supervised["prompt"] == judged["prompt"]
    assert supervised["completion"] == [{"role": "assistant", "content": "9"}]
    assert (supervised["task"], supervised["source"]) == ("sft", "tulu_3_sft")


def test_wildchat_awkward_rows_have_a_reason_each():
    assert outcomes("wildchat", "wildchat") == [
        *("c1", "language", "toxic", "c4", "language", "toxic", "redacted", "redacted", "no_reply", "no_reply"),
        *("no_prompt", "no_prompt", "no_reply", "malformed", "malformed"),
    ]


def test_wildchat_row_is_the_first_exchange_alone():
    assert BUILDERS["wildchat"].convert(raw_rows("wildchat")[3]) == {
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a tree."}],
        "solution": "Oak.",
        "task": "judge",
        "source": "wildchat",
        "source_id": "c4",
        "extra": "{}",
    }


def test_wildchat_row_keeps_who_replied():
    row = BUILDERS["wildchat"].convert(raw_rows("wildchat")[0])
    assert row is not None
    assert (row["solution"], row["extra"]) == ("Bring bread.", '{"model": "gpt-4o"}')


@pytest.mark.parametrize(
    ("name", "kind", "count"), [("tulu_3", "rl", 2), ("tulu_3_sft", "sft", 2), ("wildchat", "rl", 2)]
)
def test_chat_rows_are_valid_and_fit_the_table(name, kind, count):
    from datasets import Dataset

    rows, _ = converted(BUILDERS[name], raw_rows(name.removesuffix("_sft")))
    assert len(rows) == count
    assert [row_errors(row) for row in rows] == [[]] * count
    assert Dataset.from_list(rows, features=features(kind)).to_list() == rows
