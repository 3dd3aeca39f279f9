from __future__ import annotations

import json
import math

import datasets
import pytest

from datasets_builders.schema import (
    COLUMNS,
    RL_TASKS,
    TASKS,
    alnum,
    features,
    json_text,
    kind_of,
    messages,
    preference_row,
    prompt_id,
    prompt_text,
    rl_row,
    row_errors,
    sft_row,
    text_hash,
    user,
)

RL = rl_row("Q", "$1$", task="math", source="s", answer="1")
SFT = sft_row("Q", "A", source="s")
PAIR = preference_row("Q", "A", "B", source="s", margin=2)
TURNS = [{"role": "system", "content": "S"}, *user("1"), {"role": "assistant", "content": "2"}, *user("3")]


def test_rows_are_literal():
    assert RL == {
        "prompt": [{"role": "user", "content": "Q"}],
        "solution": "$1$",
        "task": "math",
        "source": "s",
        "source_id": "c3156e00d3c2588c",
        "extra": '{"answer": "1"}',
    }
    assert {name: SFT[name] for name in ("completion", "task", "extra")} == {
        "completion": [{"role": "assistant", "content": "A"}],
        "task": "sft",
        "extra": "{}",
    }
    assert {name: PAIR[name] for name in ("chosen", "rejected", "margin", "task")} == {
        "chosen": [{"role": "assistant", "content": "A"}],
        "rejected": [{"role": "assistant", "content": "B"}],
        "margin": 2.0,
        "task": "preference",
    }


@pytest.mark.parametrize("row", [RL, SFT, PAIR], ids=["rl", "sft", "preference"])
def test_rows_have_the_columns_and_types_of_their_kind(row):
    kind = kind_of(row["task"])
    assert tuple(row) == COLUMNS[kind] == tuple(features(kind))
    assert row_errors(row) == []
    dataset = datasets.Dataset.from_list([row], features=features(kind))
    assert dataset[0] == row


def test_kind_of_every_task():
    assert {task: kind_of(task) for task in TASKS if task not in RL_TASKS} == {"sft": "sft", "preference": "preference"}
    assert {kind_of(task) for task in RL_TASKS} == {"rl"}


def test_rl_row_takes_a_conversation_and_keeps_two_keys_of_a_turn():
    row = rl_row([{**turn, "name": "x"} for turn in TURNS], "1", task="judge", source="s")
    assert row["prompt"] == TURNS
    assert prompt_text(row) == "1\n3"
    assert messages("A", "assistant") == [{"role": "assistant", "content": "A"}]


def test_rl_row_source_id_is_the_given_one_or_a_hash():
    assert rl_row("Q", "1", task="math", source="s", source_id=7)["source_id"] == "7"
    assert rl_row("Q", "1", task="math", source="s")["source_id"] == prompt_id("Q")
    one, two = (rl_row(text, "1", task="math", source="s")["source_id"] for text in ("Q 1", "Q 2"))
    assert one != two


def test_default_source_id_of_a_row_with_replies_minds_them():
    pairs = [("A", "B"), ("A", "C"), ("B", "A"), ("A B", "C"), ("A", "B C")]
    ids = [preference_row("Q", *replies, source="s")["source_id"] for replies in pairs]
    ids += [sft_row("Q", reply, source="s")["source_id"] for reply in ("A", "B", "A B")]
    assert len(set(ids)) == 8
    assert preference_row("Q", " A", "B", source="s")["source_id"] == ids[0]
    assert preference_row("Q", "A", "B", source="s", source_id="7")["source_id"] == "7"
    assert sft_row("Q", "A", source="s", source_id="7")["source_id"] == "7"


def test_rl_row_extra_leaves_out_null_and_keeps_false():
    row = rl_row("Q", "1", task="math", source="s", a=None, b=0, c="ü", d=[1.5], e=False)
    assert json.loads(row["extra"]) == {"b": 0, "c": "ü", "d": [1.5], "e": False}
    assert "ü" in row["extra"]


def test_json_text_refuses_what_is_no_json():
    assert json_text({"a": "中\n"}) == '{"a": "中\\n"}'
    with pytest.raises(ValueError, match=r"JSON|nan|range"):
        json_text({"a": math.nan})


@pytest.mark.parametrize(
    ("one", "other"), [("What is 2+2?", "what  IS 2 + 2"), ("ﬁve", "five"), ("Ａ", "a"), ("STRASSE", "straße")]
)
def test_alnum_is_equal_for_what_reads_the_same(one, other):
    assert alnum(one) == alnum(other) != ""
    assert text_hash(one) == text_hash(other)


def test_prompt_id_minds_signs_and_not_spaces():
    assert prompt_id("3 + 4") != prompt_id("3 - 4")
    assert prompt_id(" 3  +\n4 ") == prompt_id("3 + 4")


def test_text_hash_of_signs_alone_tells_them_apart():
    assert alnum("?!") == ""
    assert len({text_hash("?!"), text_hash("!?"), text_hash(""), text_hash("\ud800")}) == 4


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"prompt": []}, "prompt is empty"),
        ({"prompt": "Q"}, "prompt is str, not a list"),
        ({"prompt": [{"role": "user"}]}, "prompt holds a turn that is no dict of a role"),
        ({"prompt": [{"role": "human", "content": "Q"}]}, "prompt holds a turn that is no dict of a role"),
        ({"prompt": [{"role": "user", "content": None}]}, "content is NoneType, not text"),
        ({"prompt": [*user("Q"), {"role": "assistant", "content": "A"}]}, "ends with a turn of 'assistant'"),
        ({"prompt": user(" \n")}, "prompt ends with an empty turn"),
        ({"solution": " "}, "solution is empty"),
        ({"solution": 1}, "solution is int, not text"),
        ({"source": ""}, "source is empty"),
        ({"source_id": None}, "source_id is NoneType, not text"),
        ({"extra": "{"}, "extra is no JSON"),
        ({"extra": "[]"}, "extra is JSON, but no object"),
        ({"extra": None}, "extra is NoneType, not text"),
        ({"task": "poem"}, "task='poem' is none of math, choice"),
        ({"task": "sft"}, "column 'completion' is missing"),
        ({"difficulty": 0.5}, "column 'difficulty' does not belong to a row of task 'math'"),
    ],
)
def test_row_errors_name_what_is_wrong(changed, error):
    errors = row_errors({**RL, **changed})
    assert any(error in found for found in errors), errors


@pytest.mark.parametrize("name", COLUMNS["rl"])
def test_row_errors_name_a_missing_column(name):
    row = {column: value for column, value in RL.items() if column != name}
    assert row_errors(row) == [
        "task=None is none of " + ", ".join(TASKS) if name == "task" else f"column {name!r} is missing"
    ]


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"rejected": PAIR["chosen"]}, "chosen and rejected are the same"),
        ({"margin": math.nan}, "margin=nan is no finite number of 0 or more"),
        ({"margin": "2"}, "margin='2' is no finite number of 0 or more"),
        ({"margin": None}, "margin=None is no finite number of 0 or more"),
        ({"margin": -1.0}, "margin=-1.0 is no finite number of 0 or more"),
        ({"chosen": []}, "chosen is empty"),
        ({"chosen": user("A")}, "chosen ends with a turn of 'user', not of 'assistant'"),
    ],
)
def test_row_errors_of_a_pair(changed, error):
    assert row_errors({**PAIR, **changed}) == [error]


def test_row_errors_of_a_pair_without_margin_are_none():
    assert row_errors(preference_row("Q", "A", "B", source="s")) == []
