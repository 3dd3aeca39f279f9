"""Rows in the layouts of verl and open-instruct: columns, golds, and names that pick the right grader there."""

import ast
import json

import pytest
from datasets import Dataset, IterableDataset, load_dataset

from datasets_builders.export import KINDS, OPEN_INSTRUCT_VERIFIERS, exported, gold_kind, to_open_instruct, to_verl
from datasets_builders.instructions import instructed
from datasets_builders.schema import features, preference_row, rl_row

GOLDS = {
    "math": ("math", "$\\frac{1}{2}$"),
    "choice": ("choice", "B"),
    "countdown": ("countdown", '{"target": 24, "nums": [4, 6]}'),
    "instruction": ("instruction", '{"instruction_id": ["a:b"], "kwargs": [null]}'),
    "judge": ("judge", "Western blot"),
    "code_asserts": ("code", '{"asserts": ["assert f(1) == \'é\'"]}'),
    "code_stdio": ("code", '{"inputs": ["1\\n"], "outputs": ["2\\n"]}'),
    "code_calls": ("code", '{"fn_name": "f", "inputs": ["1"], "outputs": ["2"]}'),
    "code_pytest": ("code", '{"pytest": "def test(): pass"}'),
}


def _row(kind, *, source="mine", instruction="boxed", prompt="Do it."):
    task, solution = GOLDS[kind]
    return instructed(rl_row(prompt, solution, task=task, source=source, answer="x"), instruction=instruction)


def _data(*rows):
    return Dataset.from_list(list(rows), features=features("rl"))


def test_every_kind_is_known_and_told_by_its_gold():
    assert set(GOLDS) == set(KINDS)
    assert {kind: gold_kind(*gold) for kind, gold in GOLDS.items()} == {kind: kind for kind in GOLDS}


def test_verl_row_has_the_columns_that_verl_reads():
    row = to_verl(_data(_row("math")), split="test")[0]
    assert row == {
        "data_source": "DigitalLearningGmbH/MATH-lighteval",
        "prompt": _row("math")["prompt"],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "\\frac{1}{2}"},
        "extra_info": {
            "split": "test",
            "index": 0,
            "task": "math",
            "source": "mine",
            "source_id": _row("math")["source_id"],
            "extra": '{"answer": "x"}',
        },
    }


@pytest.mark.parametrize(
    ("kind", "options", "name", "ground_truth"),
    [
        ("math", {"source": "gsm8k"}, "DigitalLearningGmbH/MATH-lighteval", "\\frac{1}{2}"),
        # what reads `####` only goes with a prompt that asks for no box
        ("math", {"source": "gsm8k", "instruction": "none"}, "openai/gsm8k", "\\frac{1}{2}"),
        ("math", {"source": "gsm8k", "instruction": "think_answer"}, "trl-ext/math", "$\\frac{1}{2}$"),
        ("math", {"instruction": "none"}, "trl-ext/math", "$\\frac{1}{2}$"),
        ("choice", {}, "DigitalLearningGmbH/MATH-lighteval", "B"),
        ("countdown", {}, "trl-ext/countdown", GOLDS["countdown"][1]),
        ("judge", {}, "trl-ext/judge", "Western blot"),
        ("code_stdio", {}, "taco", GOLDS["code_stdio"][1]),
        ("code_calls", {}, "taco", GOLDS["code_calls"][1]),
        ("code_asserts", {}, "trl-ext/code", GOLDS["code_asserts"][1]),
    ],
)
def test_verl_data_source_is_that_of_the_grader_for_the_prompt(kind, options, name, ground_truth):
    row = to_verl(_data(_row(kind, **options)))[0]
    assert (row["data_source"], row["reward_model"]["ground_truth"]) == (name, ground_truth)
    assert row["reward_model"]["style"] == ("model" if kind == "judge" else "rule")


def test_verl_data_sources_of_ones_own_win_and_rows_are_numbered():
    rows = to_verl(_data(_row("math", source="a"), _row("math", source="b")), data_sources={"b": "my/name"})
    assert [row["data_source"] for row in rows] == ["DigitalLearningGmbH/MATH-lighteval", "my/name"]
    assert [row["extra_info"]["index"] for row in rows] == [0, 1]
    assert rows[1]["reward_model"]["ground_truth"] == "$\\frac{1}{2}$"  # an own grader gets the gold as it is


def test_verl_parquet_reloads_with_the_same_schema_and_rows(tmp_path):
    rows = to_verl(_data(*map(_row, GOLDS)))
    rows.to_parquet(tmp_path / "train.parquet")
    again = load_dataset("parquet", data_files=str(tmp_path / "train.parquet"), cache_dir=str(tmp_path), split="train")
    assert again.features == rows.features and again.to_list() == rows.to_list()


def _open_instruct(kind):
    return to_open_instruct(_data(_row(kind)))[0]


def test_open_instruct_row_has_the_columns_that_it_reads():
    row = _open_instruct("math")
    assert list(row) == ["messages", "ground_truth", "dataset", "source", "source_id", "extra"]
    assert row["messages"] == _row("math")["prompt"]
    assert (row["dataset"], row["ground_truth"]) == ("math", "\\frac{1}{2}")


def test_open_instruct_golds_are_read_as_its_verifiers_read_them():
    assert json.loads(ast.literal_eval(_open_instruct("instruction")["ground_truth"])[0]) == {
        "instruction_id": ["a:b"],
        "kwargs": [None],
    }
    assert json.loads(_open_instruct("code_asserts")["ground_truth"]) == ["assert f(1) == 'é'"]
    assert json.loads(_open_instruct("code_stdio")["ground_truth"]) == [{"input": "1\n", "output": "2\n"}]
    assert _open_instruct("judge")["ground_truth"] == "Western blot"
    assert {kind: _open_instruct(kind)["dataset"] for kind in OPEN_INSTRUCT_VERIFIERS} == OPEN_INSTRUCT_VERIFIERS


def test_open_instruct_prompt_of_several_turns_ends_with_a_turn_that_it_takes_off():
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    messages = to_open_instruct(_data(_row("judge", prompt=turns)))[0]["messages"]
    assert messages[:-1] == turns and messages[-1] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("kind", sorted(set(GOLDS) - set(OPEN_INSTRUCT_VERIFIERS)))
def test_open_instruct_kind_without_a_verifier_is_refused_until_it_is_named(kind):
    with pytest.raises(ValueError, match=f"no verifier for '{kind}'; name yours with verifiers="):
        to_open_instruct(_data(_row(kind)))
    row = to_open_instruct(_data(_row(kind)), verifiers={kind: "mine"})[0]
    assert (row["dataset"], row["ground_truth"]) == ("mine", GOLDS[kind][1])


def test_unknown_kind_and_layout_get_did_you_mean():
    with pytest.raises(ValueError, match=r"'code_stdout' is no kind of gold; did you mean 'code_stdio'\?"):
        to_open_instruct(_data(_row("math")), verifiers={"code_stdout": "x"})
    with pytest.raises(ValueError, match=r"export='verll' is no known layout; did you mean 'verl'\?"):
        exported(_data(_row("math")), "verll")


@pytest.mark.parametrize("name", ["to_verl", "to_open_instruct"])
def test_other_rows_are_refused_with_the_columns_they_have(name):
    rows = Dataset.from_list([preference_row("a", "b", "c", source="s")], features=features("preference"))
    with pytest.raises(ValueError, match=f"{name} takes reinforcement learning rows.* these have prompt, chosen"):
        {"to_verl": to_verl, "to_open_instruct": to_open_instruct}[name](rows)


@pytest.mark.parametrize("layout", ["verl", "open_instruct"])
def test_stream_gives_the_rows_of_the_table(layout):
    rows = _data(_row("math"), _row("judge"))
    stream = exported(IterableDataset.from_generator(lambda: iter(rows.to_list()), features=rows.features), layout)
    assert stream.features == exported(rows, layout).features
    assert list(stream) == exported(rows, layout).to_list()


def test_export_leaves_its_input_alone():
    rows = _data(_row("math"))
    before = rows.to_list()
    to_verl(rows)
    assert rows.to_list() == before
