from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from datasets_builders import local_files
from datasets_builders.local_files import LoadingError, data_files, file_facts, json_row, json_texts

ROWS = [{"question": 'a "quoted" [x], {y}', "answer": "1"}, {"question": "ü \u2028 中", "answer": None}]


def written(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(path: Path) -> list[Any]:
    return [json_row(text) for text in json_texts(path)]


# Reading


def test_json_texts_of_every_form_are_the_same_rows(tmp_path):
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
    forms = {
        "a.jsonl": lines,
        "b.json": json.dumps(ROWS),
        "c.json": json.dumps(ROWS, indent=2, ensure_ascii=False),
        "d.json": lines,
        "e.jsonl.gz": gzip.compress(lines.encode()),
        "f.json.gz": gzip.compress(json.dumps(ROWS).encode()),
        "g.jsonl": "\ufeff" + lines.replace("\n", "\r\n\n"),
    }
    for name, text in forms.items():
        assert read(written(tmp_path / name, text)) == ROWS, name


def test_json_texts_of_list_rows_name_items_as_datasets_does(tmp_path):
    path = written(tmp_path / "orz.json", '[\n [{"value": "q"}, {"value": "a"}],\n [{"value": "r"}, {"value": "b"}]\n]')
    assert read(path) == [{"0": {"value": "q"}, "1": {"value": "a"}}, {"0": {"value": "r"}, "1": {"value": "b"}}]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
def test_json_texts_read_in_pieces_are_the_same(tmp_path, monkeypatch, chunk):
    values = [{"n": 12345, "x": -1.5e10}, {"text": '}\\"],[{'}, {"nested": [[1, 2], {"a": None, "b": True}]}, {}]
    monkeypatch.setattr(local_files, "CHUNK", chunk)
    for name, text in (("list.json", json.dumps(values, indent=1)), ("lines.json", "\n".join(map(json.dumps, values)))):
        assert read(written(tmp_path / name, text)) == values


def test_json_texts_of_random_values_equal_json_loads(tmp_path, monkeypatch):
    draw = random.Random(0)
    monkeypatch.setattr(local_files, "CHUNK", 5)

    def value(depth: int) -> Any:
        kind = draw.randrange(6 if depth else 4)
        if kind == 4:
            return [value(depth - 1) for _ in range(draw.randrange(4))]
        if kind == 5:
            return {f"k{i}": value(depth - 1) for i in range(draw.randrange(4))}
        return [draw.randrange(10**9), draw.random(), None, "".join(draw.choices('a"\\}]{[,: ü\n', k=9))][kind]

    for number in range(30):
        rows = [{"row": value(3)} for _ in range(draw.randrange(1, 6))]
        path = written(tmp_path / f"{number}.json", json.dumps(rows, indent=draw.choice((None, 1))))
        assert read(path) == rows


def test_json_texts_hold_one_row_of_a_list_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(local_files, "CHUNK", 100)
    path = written(tmp_path / "long.json", json.dumps([{"text": "x" * 50} for _ in range(1000)]))
    longest = 0
    original = local_files._Window.more

    def more(window: Any) -> bool:
        nonlocal longest
        found = original(window)
        longest = max(longest, len(window.text))
        return found

    monkeypatch.setattr(local_files._Window, "more", more)
    assert len(read(path)) == 1000
    assert longest <= 400


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": ', "line 2 of a.jsonl is no JSON .*cut off"),
        ("a.jsonl", '{"a": 1}\nnonsense\n{"a": 2}\n', "line 2 of a.jsonl is no JSON .*remove it"),
        ("a.jsonl", '[\n{"a": 1}\n]\n', "line 1 .*ends in .json"),
        ("a.jsonl", '{"a": 1}\n5\n', "line 2 of a.jsonl is int 5 and no object"),
        ("a.jsonl", '"text"\n', 'line 1 of a.jsonl is str "text" and no object'),
        ("a.jsonl", "", "a.jsonl is empty"),
        ("a.jsonl", '{"a": ' + "9" * 5000 + "}\n", "line 1 of a.jsonl is no JSON"),
        ("a.jsonl", "[" * 100_000 + "\n", "line 1 of a.jsonl is no JSON .*nested too deeply"),
        ("a.json", " \n", "a.json is empty"),
        ("a.json", '{"rows": [1]}', "a.json is one JSON object and no list of rows"),
        ("a.json", "12", "a.json holds no list of rows, but text that begins with '1'"),
        ("a.json", '[{"a": 1}, {"a": 2', "row 2 of a.json is cut off or no JSON"),
        ("a.json", '[{"a": 1}', "row 2 of a.json is cut off or no JSON"),
        ("a.json", '[{"a": 1} {"a": 2}]', "lacks a comma after row 1"),
        ("a.json", '[{"a": 1}, oops, {"a": 2}, {"a": 3}, {"a": 4}]', "row 2 of a.json is no JSON|row 2 .*cut off"),
        ("a.json", '[{"a": 1}] [2]', "goes on behind the end of its list"),
        ("a.json", '[{"a": 1}, 7]', "row 2 of a.json is int 7 and no object"),
        ("a.json", "[" * 100_000, "row 1 of a.json is no JSON .*nested too deeply"),
        ("a.jsonl", '{"a": "\xfc"}'.encode("latin-1"), "a.jsonl is not UTF-8 text"),
        ("a.json", '[{"a": "\xfc"}]'.encode("utf-16"), "a.json is not UTF-8 text"),
        ("a.jsonl.gz", b"no archive", "a.jsonl.gz is no complete gzip archive"),
        ("a.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 1000)[:-9], "a.jsonl.gz is no complete gzip archive"),
    ],
)
def test_json_texts_broken_file_is_one_sentence(tmp_path, name, text, message):
    with pytest.raises(LoadingError, match=message) as raised:
        read(written(tmp_path / name, text))
    assert "\n" not in str(raised.value)


def test_json_texts_yield_rows_before_a_broken_one(tmp_path):
    texts = json_texts(written(tmp_path / "a.jsonl", '{"a": 1}\n{"a": 2}\n{'))
    assert [next(texts), next(texts)] == ['{"a": 1}', '{"a": 2}']
    with pytest.raises(LoadingError, match=r"line 3"):
        next(texts)


# Finding


def names(files: list[Path]) -> list[str]:
    return [file.name for file in files]


def test_data_files_of_a_folder_are_sorted_and_leave_out_what_is_no_data(tmp_path):
    for name in ("b.jsonl", "a.json", "c.jsonl.gz", "README.md", ".hidden.json", "dataset_infos.json", "notes.txt"):
        written(tmp_path / name, "{}")
    assert names(data_files(tmp_path)) == ["a.json", "b.jsonl", "c.jsonl.gz"]


def test_data_files_of_a_list_stay_in_its_order(tmp_path):
    paths = [written(tmp_path / name, "{}") for name in ("b.jsonl", "a.jsonl")]
    assert data_files(paths) == paths
    assert data_files([str(paths[1]), paths[0]]) == paths[::-1]


def test_data_files_leave_out_other_splits(tmp_path):
    for name in ("train-00001-of-00002.parquet", "train-00000-of-00002.parquet", "test.parquet", "training.parquet"):
        written(tmp_path / "main" / name, "")
    train = ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet", "training.parquet"]
    assert names(data_files(tmp_path / "main", ["train"])) == train
    assert names(data_files(tmp_path / "main", ["test"])) == ["test.parquet", "training.parquet"]
    assert names(data_files(tmp_path, ["test", "train"], ["other", "main"])) == ["test.parquet", *train]


def test_data_files_tell_longer_names_of_splits_apart(tmp_path):
    for name in ("train_prefs-0.parquet", "train_sft-0.parquet"):
        written(tmp_path / "data" / name, "")
    assert names(data_files(tmp_path, ["train_prefs"])) == ["train_prefs-0.parquet"]


@pytest.mark.parametrize(
    ("train", "other"),
    [
        ("gsm8k_train.jsonl", "gsm8k_test.jsonl"),
        ("math-train-v2.json", "math-validation-v2.json"),
        ("Train.jsonl", "Test.jsonl"),
        ("gsm8kTrain.jsonl.gz", "gsm8kEval.jsonl.gz"),
        ("gsm8k.train.0.jsonl", "gsm8k.dev.0.jsonl"),
        ("train1.jsonl", "TEST1.jsonl"),
        ("attestation.jsonl", "rows_val.jsonl"),
    ],
)
def test_data_files_tell_splits_by_any_word_of_the_name(tmp_path, train, other):
    for name in (train, other):
        written(tmp_path / name, "{}")
    assert names(data_files(tmp_path, ["train"])) == [train]


@pytest.mark.parametrize("name", ["HumanEval.jsonl", "IFEval_input_data.jsonl", "human-eval.jsonl"])
def test_data_files_of_a_test_split_may_be_named_after_an_evaluation_set(tmp_path, name):
    written(tmp_path / name, "{}")
    assert names(data_files(tmp_path, ["test"])) == [name]
    with pytest.raises(LoadingError, match=r"files of the splits eval, but none of train"):
        data_files(tmp_path, ["train"])


def test_data_files_named_after_two_splits_are_refused(tmp_path):
    written(tmp_path / "train_test.jsonl", "{}")
    with pytest.raises(LoadingError, match=r"train_test.jsonl is named after the splits train and test; rename it"):
        data_files(tmp_path, ["train"])
    assert names(data_files(tmp_path, ["test", "train"])) == ["train_test.jsonl"]


def test_data_files_without_the_split_name_those_that_are_there(tmp_path):
    written(tmp_path / "test.jsonl", "{}")
    with pytest.raises(LoadingError, match=r"files of the splits test, but none of train; choose one with split="):
        data_files(tmp_path, ["train"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path / "missing.jsonl", "missing.jsonl' does not exist"),
        (lambda path: written(path / "rows.csv", "a,b"), "rows.csv' is none of .json, .jsonl"),
        (lambda path: path, "is a folder without data; it needs files that end in .json"),
        (lambda path: [], "names no file"),
        (
            lambda path: [written(path / "a.jsonl", ""), written(path / "b.parquet", "")],
            "holds JSON and parquet files; name the files of one kind",
        ),
    ],
)
def test_data_files_wrong_path_is_one_sentence(tmp_path, make, message):
    with pytest.raises(LoadingError, match=message):
        data_files(make(tmp_path))


def test_file_facts_change_with_the_file(tmp_path):
    path = written(tmp_path / "a.jsonl", "{}")
    before = file_facts([path])
    assert before == file_facts([path])
    written(path, "{} ")
    assert before != file_facts([path])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda link: link.symlink_to(link), "b.jsonl is a link that leads nowhere or to itself; remove it"),
        (lambda link: link.symlink_to("gone"), "b.jsonl is a link that leads nowhere or to itself; remove it"),
        (lambda link: link.mkdir(), "b.jsonl in local_path=.* is a folder under the name of a data file; rename it"),
    ],
)
def test_data_files_beside_what_is_no_file_is_one_sentence(tmp_path, make, message):
    written(tmp_path / "a.jsonl", "{}\n")
    make(tmp_path / "b.jsonl")
    with pytest.raises(LoadingError, match=message):
        data_files(tmp_path)


def test_data_files_take_links_to_files_and_suffixes_in_any_case(tmp_path):
    file = written(tmp_path / "data" / "a.JSONL", json.dumps(ROWS[0]) + "\n")
    (tmp_path / "data" / "b.jsonl").symlink_to(file)
    assert [path.name for path in data_files(tmp_path / "data")] == ["a.JSONL", "b.jsonl"]
    assert read(file) == [ROWS[0]]
    assert data_files(file) == [file]
