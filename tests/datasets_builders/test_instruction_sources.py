from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from datasets_builders.registry import BUILDERS, EVALUATION_SETS
from datasets_builders.schema import features, row_errors
from datasets_builders.source import Source, converted
from datasets_builders.sources import if_rlvr

ROWS = Path(__file__).parent / "rows"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared real data is not here")


def raw_rows(name: str, folder: Path = ROWS) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def outcomes(source: Source, file: str) -> list[str]:
    explained = [source.convert.explained(raw) for raw in raw_rows(file)]
    return [why if row is None else row["source_id"] for row, why in explained]


def gold(source: Source, file: str, place: int) -> Any:
    row = source.convert(raw_rows(file)[place])
    assert row is not None
    return json.loads(row["solution"])


# ---- IFEval and IFBench


@pytest.mark.parametrize("name", ["ifeval", "ifbench"])
def test_ifeval_awkward_rows_have_a_reason_each(name):
    assert outcomes(EVALUATION_SETS[name], "ifeval") == [
        *("1", "2", "3", "4", "5", "bad_constraints", "bad_constraints", "bad_constraints", "bad_constraints"),
        *("bad_constraints", "no_prompt", "no_prompt", "malformed"),
    ]


@pytest.mark.parametrize("name", ["ifeval", "ifbench"])
def test_ifeval_row_has_the_constraints_as_json(name):
    assert EVALUATION_SETS[name].convert(raw_rows("ifeval")[1]) == {
        "prompt": [{"role": "user", "content": "Use the word cloud twice and at least 20 words."}],
        "solution": (
            '{"instruction_id": ["keywords:frequency", "length_constraints:number_words"], "kwargs": '
            '[{"relation": "at least", "keyword": "cloud", "frequency": 2}, {"relation": "at least", "num_words": 20}]}'
        ),
        "task": "instruction",
        "source": name,
        "source_id": "2",
        "extra": "{}",
    }


def test_ifeval_false_arguments_stay_and_null_ones_go():
    assert gold(EVALUATION_SETS["ifeval"], "ifeval", 2)["kwargs"] == [
        {"N": 0, "sep": "", "flag": False, "words": [], "share": 0.5}
    ]
    assert gold(EVALUATION_SETS["ifeval"], "ifeval", 3)["kwargs"] == [{}, {"N": 3}]
    assert gold(EVALUATION_SETS["ifeval"], "ifeval", 4)["kwargs"] == [{}]


@needs_data
@pytest.mark.parametrize(("name", "file", "count"), [("ifeval", "ifeval", 541), ("ifbench", "ifbench_test", 100)])
def test_ifeval_every_real_row_keeps_each_argument(name, file, count):
    raw = raw_rows(file, DATA)
    rows, dropped = converted(EVALUATION_SETS[name], raw)
    assert (len(rows), dropped) == (count, {})
    assert [error for row in rows for error in row_errors(row)] == []
    for one, row in zip(raw, rows, strict=True):
        constraints = json.loads(row["solution"])
        assert constraints["instruction_id"] == one["instruction_id_list"]
        kept = [{key: value for key, value in given.items() if value is not None} for given in one["kwargs"]]
        assert constraints["kwargs"] == kept
        values = [value for given in constraints["kwargs"] for value in given.values()]
        assert not any(isinstance(value, float) and value.is_integer() for value in values)
        assert row["prompt"] == [{"role": "user", "content": one["prompt"]}]


# ---- IF-RLVR


def test_if_rlvr_awkward_rows_have_a_reason_each():
    assert outcomes(BUILDERS["if_rlvr"], "if_rlvr") == [
        *("k1", "k2", "k3"),
        *("bad_constraints",) * 8,
        *("malformed", "no_prompt", "malformed", "no_prompt"),
    ]


def test_if_rlvr_row_with_json_in_a_literal_is_read():
    assert BUILDERS["if_rlvr"].convert(raw_rows("if_rlvr")[0]) == {
        "prompt": [{"role": "user", "content": "Name three trees. Do not use any commas."}],
        "solution": '{"instruction_id": ["punctuation:no_comma"], "kwargs": [{}]}',
        "task": "instruction",
        "source": "if_rlvr",
        "source_id": "k1",
        "extra": '{"constraint_type": "single", "constraint": "Do not use any commas."}',
    }


def test_if_rlvr_row_with_a_plain_literal_is_read():
    assert gold(BUILDERS["if_rlvr"], "if_rlvr", 1) == {
        "instruction_id": ["length_constraints:number_words", "keywords:frequency"],
        "kwargs": [
            {"relation": "at least", "num_words": 20},
            {"relation": "at least", "keyword": "cloud", "frequency": 2},
        ],
    }
    assert gold(BUILDERS["if_rlvr"], "if_rlvr", 2)["kwargs"] == [{"N": 0}]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[", "[" * 50_000, "[" * 90 + "]" * 90, "-" * 90_000 + "1", "1+" * 40_000 + "1", "a" + ".b" * 40_000),
        *(
            "f(" * 40_000,
            "not " * 20_000 + "1",
            "9" * 90_000,
            "{" * 50_000,
            "f'{1}'",
            "[__import__('os')]",
            "\0",
            "\ud800",
        ),
        "['" + "[" * 90_000 + "']",  # deep JSON inside
        "[{'instruction_id': ['a:b'], 'kwargs': [None]}]" + " " * 100_000,  # right, but too long to be one
    ],
)
def test_if_rlvr_hostile_ground_truth_is_a_counted_reason(text):
    raw = {**raw_rows("if_rlvr")[0], "ground_truth": text}
    assert BUILDERS["if_rlvr"].convert.explained(raw) == (None, "bad_constraints")


def test_if_rlvr_limit_of_the_length_is_what_refuses_the_long_one():
    text = "[{'instruction_id': ['a:b'], 'kwargs': [None]}]"
    raw = {**raw_rows("if_rlvr")[0], "ground_truth": text + " " * (if_rlvr.MAX_GROUND_TRUTH - len(text))}
    assert BUILDERS["if_rlvr"].convert(raw) is not None


def test_if_rlvr_long_ground_truth_within_the_limit_is_read():
    words = [f"word{number}" for number in range(5_000)]
    raw = {**raw_rows("if_rlvr")[0], "ground_truth": str([{"instruction_id": ["a:b"], "kwargs": [{"w": words}]}])}
    row = BUILDERS["if_rlvr"].convert(raw)
    assert row is not None
    assert json.loads(row["solution"])["kwargs"] == [{"w": words}]


@pytest.mark.parametrize("name", ["if_rlvr", "ifeval", "ifbench"])
def test_instruction_rows_are_valid_and_fit_the_table(name):
    from datasets import Dataset

    source = BUILDERS[name] if name in BUILDERS else EVALUATION_SETS[name]
    rows, _ = converted(source, raw_rows("if_rlvr" if name == "if_rlvr" else "ifeval"))
    assert [row_errors(row) for row in rows] == [[]] * (3 if name == "if_rlvr" else 5)
    assert Dataset.from_list(rows, features=features("rl")).to_list() == rows
