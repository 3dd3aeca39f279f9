"""Builds that drop rows of evaluation sets or generate further ones, and arguments that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from datasets_builders.building import build, build_eval, build_with_report
from datasets_builders.instructions import instruction_text
from datasets_builders.schema import text_hash

ROWS = Path(__file__).parent / "rows"
BOXED = "\n\n" + instruction_text("math")

SPEAKERS = {"user": "Human", "assistant": "Assistant"}
SIDES = (("chosen", ""), ("rejected", "2"))


def raw(number: int) -> list[dict[str, Any]]:
    """Raw rows of GSM8K that are all different."""
    return [{"question": f"What is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(number)]


def questions(dataset: Any) -> list[str]:
    return [row["prompt"][-1]["content"].removesuffix(BOXED) for row in dataset]


@pytest.mark.parametrize("streaming", [False, True])
def test_build_of_maths_drops_problems_of_math_500_whatever_file_holds_them(jsonl, streaming, monkeypatch):
    known = json.loads((ROWS / "math_500.jsonl").read_text().splitlines()[0])
    hashes = frozenset([text_hash(known["problem"])])  # the rows of the tests are made up
    monkeypatch.setattr("datasets_builders.sources.hendrycks_math.math_500_hashes", lambda: hashes)
    # in other spacing and with other marks it is the same problem
    copies = [known["problem"], "  " + known["problem"].replace(" ", "  ") + " !"]
    path = jsonl([{"problem": text, "answer": "3"} for text in [*copies, "What is 1 + 2?"]])
    built = build_with_report("deepscaler", local_path=path, streaming=streaming)
    assert questions(built.dataset) == ["What is 1 + 2?"]
    assert built.report.dropped == {"evaluation_set": 2} and built.report.loaded == 3
    assert len(build_eval("math_500", local_path=jsonl([known], "eval.jsonl"), streaming=False)) == 1


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("name", ["tulu_3", "tulu_3_sft", "openr1_math_sft", "ultrafeedback_binarized", "hh_rlhf"])
def test_build_of_any_kind_of_rows_drops_problems_of_math_500(jsonl, streaming, name, monkeypatch):
    known, other = "What is the greatest common factor of $1$ and $2$?", "Name a fruit."
    monkeypatch.setattr(
        "datasets_builders.sources.hendrycks_math.math_500_hashes", lambda: frozenset([text_hash(known)])
    )
    turns = [[{"role": "user", "content": asked}, {"role": "assistant", "content": "1"}] for asked in (known, other)]
    # in a conversation that goes on, too
    turns.append([{"role": "user", "content": f" {known} "}, {"role": "assistant", "content": "Well."}, *turns[1]])
    rows = {
        "tulu": [{"id": str(i), "messages": each, "source": "part"} for i, each in enumerate(turns)],
        "openr1": [
            {
                "problem": each[-2]["content"] if i < 2 else known.upper(),
                "answer": "1",
                "generations": ["<think>\n</think>1"],
            }
            | {"correctness_math_verify": [True], "is_reasoning_complete": [True], "uuid": str(i)}
            for i, each in enumerate(turns)
        ],
        "ultrafeedback": [
            {"prompt_id": str(i), "chosen": each, "rejected": [*each[:-1], {"role": "assistant", "content": "2"}]}
            | {"prompt": each[0]["content"], "score_chosen": 2.0, "score_rejected": 1.0}
            for i, each in enumerate(turns)
        ],
        "hh": [
            {
                side: "".join(f"\n\n{SPEAKERS[t['role']]}: {t['content'].strip()}" for t in each) + end
                for side, end in SIDES
            }
            for each in turns
        ],
    }[name.split("_")[0]]
    built = build_with_report(name, local_path=jsonl(rows), streaming=streaming)
    assert len(list(built.dataset)) == 1
    assert built.report.dropped == {"evaluation_set": 2}


@pytest.mark.parametrize("streaming", [False, True])
def test_build_of_generated_rows_goes_on_until_there_are_enough(streaming):
    options = {"config": "add_1", "instruction": "none"}
    built = build_with_report("arithmetic", max_samples=60, streaming=streaming, **options)
    found = questions(built.dataset)
    assert len(found) == len(set(found)) == 60 and built.report.warnings == []
    report = built.report
    assert report.loaded - report.duplicates - report.not_sampled == report.kept == 60
    # the first rows are those of a smaller build, in their order
    assert questions(build("arithmetic", max_samples=20, **options)) == found[:20]


@pytest.mark.parametrize("streaming", [False, True])
def test_build_of_an_exhausted_level_says_so_in_one_sentence(streaming):
    built = build_with_report("arithmetic", config="add_1", max_samples=150, streaming=streaming)
    assert len(list(built.dataset)) == 100  # of two numbers of one digit
    (warning,) = built.report.warnings
    assert "max_samples=150 asks for more different rows of level 'add_1' than are found, 100 among" in warning


def test_build_of_generated_rows_with_duplicates_takes_as_many_indices():
    built = build_with_report("arithmetic", config="add_1", max_samples=60, deduplicate=False)
    assert (built.report.loaded, built.report.kept) == (60, 60)


def test_build_configuration_of_local_files_is_a_folder_or_refused(jsonl, tmp_path):
    path = jsonl(raw(2))
    with pytest.raises(ValueError, match=r"config='mian' is no folder in local_path, .*; did you mean 'main'"):
        build("gsm8k", local_path=path, config="mian")
    with pytest.raises(ValueError, match=r"config='main' is no folder in local_path, .*leave config out"):
        build("gsm8k", local_path=path, config="main")
    jsonl(raw(3), "copy/socratic/train.jsonl")
    built = build_with_report("gsm8k", local_path=tmp_path / "copy", config="socratic")
    assert (built.report.config, built.report.kept) == ("socratic", 3)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gsm8k", {"streaming": "no"}, "streaming='no' must be True or False"),
        ("gsm8k", {"local_path": 5}, "local_path=5 is no path; give a file, a folder or a list of files"),
        ("gsm8k", {"local_path": [5]}, "local_path=.5. is no path"),
        (["gsm8k"], {}, r"name=\['gsm8k'\] must be the name of a source"),
        ("MATH-500", {}, "did you mean the evaluation set 'math_500'"),
        ("aime24", {}, "did you mean the evaluation set 'aime_2024'"),
    ],
)
def test_build_argument_of_a_wrong_kind_is_one_sentence(name, options, message):
    with pytest.raises(ValueError, match=message):
        build(name, **options)
