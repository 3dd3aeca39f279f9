"""Rows of evaluation sets: refused as training data wherever they come from, and taken as what they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pytest

from datasets_builders.building import build, build_eval, build_with_report
from datasets_builders.evaluation_rows import EVALUATION_ID, evaluation_set_of, is_evaluation_row, is_evaluation_split
from datasets_builders.export import to_verl
from datasets_builders.mixing import mix
from datasets_builders.pushing import push_folder, push_to_hub
from datasets_builders.registry import EVALUATION_SETS
from datasets_builders.saving import SavingError, load_report, load_saved, save

WRITTEN = {"name": "mine", "licence": "mit"}


def by_disk(rows: Any, folder: Path) -> Any:
    rows.save_to_disk(str(folder / "disk"))
    return datasets.load_from_disk(str(folder / "disk"))


def by_parquet(rows: Any, folder: Path) -> Any:
    rows.to_parquet(str(folder / "rows.parquet"))
    return datasets.load_dataset("parquet", data_files=str(folder / "rows.parquet"), split="train")


def by_json(rows: Any, folder: Path) -> Any:
    rows.to_json(str(folder / "rows.json"))
    return datasets.load_dataset("json", data_files=str(folder / "rows.json"), split="train")


def by_list(rows: Any, folder: Path) -> Any:
    return datasets.Dataset.from_list(rows.to_list())


@pytest.fixture
def gsm8k(jsonl: Callable[..., Path]) -> Path:
    return jsonl([{"question": f"What is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(6)])


def test_test_rows_of_gsm8k_say_so_in_their_id(gsm8k):
    train, test = build("gsm8k", local_path=gsm8k), build_eval("gsm8k", local_path=gsm8k)
    assert [EVALUATION_ID + row["source_id"] for row in train] == test["source_id"][:]
    assert [is_evaluation_row(row["source"], row["source_id"]) for row in (train[0], test[0])] == [False, True]
    streamed = build_eval("gsm8k", local_path=gsm8k, streaming=True)
    assert list(streamed) == list(test)


@pytest.mark.parametrize("stored", [by_disk, by_parquet, by_json, by_list])
def test_stored_test_rows_of_gsm8k_are_no_training_data(gsm8k, stored, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    test = stored(build_eval("gsm8k", local_path=gsm8k), tmp_path)
    with pytest.raises(
        ValueError, match=r"x: its rows are of 'gsm8k', an evaluation set, which never becomes training"
    ):
        mix({"x": (test, 2)})
    for call in (lambda: save(test, WRITTEN, tmp_path / "out"), lambda: push_to_hub(test, "me/x", WRITTEN)):
        with pytest.raises(SavingError, match=r"rows of 'gsm8k', an evaluation set, .* or give split='test'"):
            call()
    assert not (tmp_path / "out").exists()
    # one of many is enough
    both = datasets.concatenate_datasets([stored(build("gsm8k", local_path=gsm8k), tmp_path / "t"), test.select([3])])
    with pytest.raises(ValueError, match=r"x: its rows are of 'gsm8k'"):
        mix({"x": (both, 2)})
    with pytest.raises(SavingError, match=r"rows of 'gsm8k', an evaluation set"):
        save(both, WRITTEN, tmp_path / "out")


@pytest.mark.parametrize("stored", [by_disk, by_parquet, by_json, by_list])
def test_stored_training_rows_of_gsm8k_stay_training_data(gsm8k, stored, tmp_path):
    train = stored(build("gsm8k", local_path=gsm8k), tmp_path)
    assert evaluation_set_of(train) is None
    assert len(mix({"x": (train, 4)})) == 4
    assert save(train, WRITTEN, tmp_path / "out").num_rows == 6


@pytest.mark.parametrize("stored", [by_disk, by_parquet, by_json, by_list])
def test_stored_test_rows_in_the_columns_of_verl_are_no_training_data(gsm8k, stored, tmp_path):
    test, train = build_eval("gsm8k", local_path=gsm8k), build("gsm8k", local_path=gsm8k)
    rows = stored(to_verl(test), tmp_path)
    assert evaluation_set_of(rows) == "'gsm8k'"
    with pytest.raises(SavingError, match=r"rows of 'gsm8k', an evaluation set"):
        save(rows, WRITTEN, tmp_path / "out")
    assert evaluation_set_of(stored(to_verl(train), tmp_path / "t")) is None
    other = datasets.Dataset.from_list([{"extra_info": "gsm8k"}, {"extra_info": None}])
    assert evaluation_set_of(other) is None


@pytest.mark.parametrize(
    ("split", "expected"),
    [("test", True), ("test_prefs", True), ("Validation", True), ("evalSet", True), ("dev", True)]
    + [(name, False) for name in ("train", "Train", "default", "sft", "train_test", "latest", "")],
)
def test_evaluation_split_is_told_by_its_words(split, expected):
    assert is_evaluation_split(split) is expected


def test_evaluation_rows_are_saved_as_a_test_split(gsm8k, tmp_path):
    built = build_with_report("gsm8k", evaluation=True, local_path=gsm8k)
    saved = save(built.dataset, built.report, tmp_path / "out", split="test")
    assert saved.report["data_split"] == "test" and load_saved(tmp_path / "out").to_list() == list(built.dataset)


def test_stream_of_evaluation_rows_is_no_training_data(gsm8k, tmp_path):
    built = build_with_report("gsm8k", evaluation=True, local_path=gsm8k, streaming=True)
    with pytest.raises(SavingError, match=r"rows of .*an evaluation set"):
        save(built.dataset, built.report, tmp_path / "out")
    plain = datasets.IterableDataset.from_generator(lambda: iter(built.dataset), features=built.dataset.features)
    with pytest.raises(SavingError, match=r"rows of 'gsm8k', an evaluation set"):
        save(plain, WRITTEN, tmp_path / "out")
    assert list(tmp_path.glob("*out*")) == []


@pytest.mark.parametrize("streaming", [False, True])
def test_rows_of_an_evaluation_set_of_your_own_are_told_until_they_are_stored(gsm8k, tmp_path, streaming):
    own = replace(EVALUATION_SETS["gsm8k"], name="own")
    held_out = build_eval(own, local_path=gsm8k, streaming=streaming)
    with pytest.raises(SavingError, match=r"rows of build_eval, an evaluation set"):
        save(held_out.remove_columns(["source"]), WRITTEN, tmp_path / "out")


def test_folder_with_evaluation_rows_is_not_pushed(gsm8k, tmp_path, monkeypatch):
    built = build_with_report("gsm8k", evaluation=True, local_path=gsm8k)
    save(built.dataset, built.report, tmp_path / "out", split="test")
    report = load_report(tmp_path / "out")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    (tmp_path / "out" / "report.json").write_text(json.dumps(report | {"data_split": "train"}))
    with pytest.raises(SavingError, match=r"rows of 'gsm8k', an evaluation set"):
        push_folder(tmp_path / "out", "me/x")
