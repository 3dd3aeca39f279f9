from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datasets_builders import loading
from datasets_builders.building import build_with_report
from datasets_builders.loading import (
    TEST_START,
    Wanted,
    check_columns,
    hub_splits,
    raw_rows,
    raw_rows_of,
    wanted_columns,
)
from datasets_builders.local_files import LoadingError, json_texts
from datasets_builders.registry import BUILDERS, EVALUATION_SETS
from datasets_builders.source import Source

ROWS = Path(__file__).parent / "rows"
GSM8K = replace(BUILDERS["gsm8k"], revision=None)
RAW = [{"question": f"What is {i} + 1?", "answer": f"#### {i + 1}", "heavy": "x" * i} for i in range(7)]
PLAIN = [{"question": row["question"], "answer": row["answer"]} for row in RAW]


def of_hub(path: str, source: Source = GSM8K, **facts: Any) -> Source:
    """A source whose repository is a folder."""
    return replace(source, path=path, revision=None, **{"config": None, "splits": {}, **facts})


def rows_of(source: Source, **wanted: Any) -> list[Any]:
    """All raw rows, as the conversion gets them."""
    raw = raw_rows(source, Wanted(**wanted))
    batches = raw.batches() if wanted.get("streaming") else [raw.dataset[:]]
    return [row for batch in batches for row in raw_rows_of(batch, source, wanted.get("seed", 42))]


# The Hub


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
def test_raw_rows_of_a_hub_folder_have_the_columns_that_are_read(hub, suffix, streaming):
    source = of_hub(hub({"main": {"train": RAW, "test": RAW[:2]}}, suffix=suffix), config="main")
    assert rows_of(source, streaming=streaming) == PLAIN
    assert rows_of(source, streaming=streaming, split="test") == PLAIN[:2]


@pytest.mark.parametrize("streaming", [False, True])
def test_raw_rows_of_several_configurations_and_splits_are_in_order(hub, streaming):
    path = hub({"b": {"train": RAW[:1], "test": RAW[1:2]}, "a": {"train": RAW[2:3], "test": RAW[3:4]}})
    source = of_hub(path, configs=("b", "a"), splits={"both": ("test", "train")})
    assert rows_of(source, streaming=streaming) == [PLAIN[1], PLAIN[0], PLAIN[3], PLAIN[2]]
    assert rows_of(source, streaming=streaming, config="a") == [PLAIN[3], PLAIN[2]]


def test_raw_rows_of_folders_are_read_through_data_dir(hub, tmp_path):
    for name, rows in (("helpful", RAW[:2]), ("harmless", RAW[2:3])):
        file = tmp_path / "repo" / name / "train.jsonl"
        file.parent.mkdir(parents=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = of_hub(str(tmp_path / "repo"), folders=("harmless", "helpful"))
    assert rows_of(source) == [PLAIN[2], *PLAIN[:2]]
    assert rows_of(source, config="helpful") == PLAIN[:2]
    with pytest.raises(ValueError, match=r"config='helpfull' is no folder of 'gsm8k'; did you mean 'helpful'"):
        rows_of(source, config="helpfull")


def test_raw_rows_of_a_parquet_stream_decode_no_other_column(hub):
    source = of_hub(hub({"main": {"train": RAW}}, suffix="parquet"))
    raw = raw_rows(source, Wanted(streaming=True))
    assert [list(batch) for batch in raw.batches()] == [["question", "answer"]] * 7


def test_raw_rows_of_a_stream_come_one_at_a_time(hub, jsonl):
    for suffix in ("jsonl", "json", "parquet"):
        raw = raw_rows(of_hub(hub({"main": {"train": RAW}}, name=suffix, suffix=suffix)), Wanted(streaming=True))
        assert [len(next(iter(batch.values()))) for batch in raw.batches()] == [1] * 7
    local = raw_rows(GSM8K, Wanted(streaming=True, local_path=jsonl(RAW)))
    assert [len(next(iter(batch.values()))) for batch in local.batches()] == [1] * 7


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_raw_rows_of_json_on_the_hub_are_read_no_further_than_to_the_columns(hub, suffix, monkeypatch):
    source = of_hub(hub({"main": {"train": RAW}}, suffix=suffix))
    read: list[str] = []

    def watched(path: Any) -> Any:
        for text in json_texts(path):
            read.append(text)
            yield text

    monkeypatch.setattr(loading, "json_texts", watched)
    raw_rows(source, Wanted(streaming=True))
    assert len(read) == 1


# Parquet on the Hub of which the files differ


def _differing(folder: Path, *tables: Any) -> Source:
    folder.mkdir(parents=True)
    for number, rows in enumerate(tables):
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{number}.parquet")
    return of_hub(str(folder), optional_columns=("level",))


def test_stream_of_the_hub_whose_first_answers_are_null_has_the_later_ones(tmp_path):
    source = _differing(tmp_path / "repo", [{"question": "p", "answer": None}], PLAIN)
    assert rows_of(source, streaming=True) == [{"question": "p", "answer": None}, *PLAIN]


def test_stream_of_the_hub_refuses_a_later_file_without_a_column(tmp_path):
    source = _differing(tmp_path / "repo", PLAIN, [{"question": "p"}])
    with pytest.raises(LoadingError, match=r"1\.parquet of .*repo lacks the column answer of 'gsm8k'; it has"):
        rows_of(source, streaming=True)


def test_stream_of_the_hub_keeps_an_optional_column_that_the_first_file_lacks(tmp_path):
    levels = [{**row, "level": number} for number, row in enumerate(PLAIN)]
    source = _differing(tmp_path / "repo", PLAIN[:1], levels)
    assert rows_of(source, streaming=True) == [PLAIN[0], *levels]


def test_stream_of_the_hub_decodes_what_datasets_stores_as_json(tmp_path):
    rows = [{"question": "q", "answer": {"a": 1, "b": [None]}}, {"question": "q", "answer": {"c": "x"}}]
    types = datasets.Features({"question": datasets.Value("string"), "answer": datasets.Json()})
    (tmp_path / "repo").mkdir()
    datasets.Dataset.from_list(rows, features=types).to_parquet(str(tmp_path / "repo" / "a.parquet"))
    assert rows_of(of_hub(str(tmp_path / "repo")), streaming=True) == rows


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
def test_raw_rows_without_a_column_name_it_and_the_others(hub, suffix, streaming):
    moved = [{"problem": "p", "answer": "a"}]
    source = of_hub(hub({"main": {"train": moved}}, suffix=suffix))
    with pytest.raises(LoadingError) as raised:
        rows_of(source, streaming=streaming)
    assert str(raised.value) == (
        f"{source.path} lacks the column question of 'gsm8k'; it has answer, problem; if the schema has moved, name an "
        "earlier commit with revision= or give a copy in the documented schema with local_path="
    )


def test_check_columns_names_all_that_are_missing():
    with pytest.raises(LoadingError, match=r"lacks the columns question, answer of 'gsm8k'; it has none;"):
        check_columns(GSM8K, [], "x")


def test_raw_rows_of_an_unknown_split_or_configuration_name_those_that_exist(hub):
    source = of_hub(hub({"main": {"train": RAW}}))
    for streaming in (False, True):
        with pytest.raises(LoadingError, match=r"has no such split \(.*train.*\); name one of its splits with split="):
            rows_of(source, split="tset", streaming=streaming)
        with pytest.raises(
            LoadingError, match=r"\(nope\) has no such configuration \(.*main.*\); name one with config="
        ):
            rows_of(source, config="nope", streaming=streaming)


@pytest.mark.parametrize("streaming", [False, True])
def test_raw_rows_without_the_hub_name_local_path(streaming):
    with pytest.raises(LoadingError) as raised:
        raw_rows(GSM8K, Wanted(streaming=streaming))
    message = str(raised.value)
    assert message.startswith("openai/gsm8k (main) cannot be reached on the Hub (")
    assert message.endswith("check the connection and HF_HUB_OFFLINE, or give a copy of its files with local_path=")
    assert "\n" not in message


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def prepared(hub, cache) -> None:
    """GSM8K as `datasets` keeps it after a download, at one commit."""
    builder = datasets.load_dataset_builder(hub({"main": {"train": RAW}}), "main")
    builder.download_and_prepare()
    target = cache / "openai___gsm8k" / "main" / "0.0.0" / COMMIT
    target.parent.mkdir(parents=True)
    shutil.move(builder.cache_dir, target)
    for file in target.iterdir():
        file.rename(target / file.name.replace("hub-", "gsm8k-"))
    info = target / "dataset_info.json"
    info.write_text(info.read_text().replace('"dataset_name": "hub"', '"dataset_name": "gsm8k"'))


def test_raw_rows_of_a_prepared_copy_offline_know_their_commit(prepared):
    for revision in (None, COMMIT, "main"):
        built = build_with_report(GSM8K, revision=revision)
        assert len(built.dataset) == 7
        assert (built.report.revision, built.report.revision_resolved) == (revision, COMMIT)


def test_raw_rows_of_a_prepared_copy_of_another_commit_are_refused(prepared):
    other = COMMIT[::-1]
    with pytest.raises(LoadingError, match=rf"at revision {other} is not in the cache, which has commit {COMMIT}; go"):
        build_with_report(GSM8K, revision=other)


def test_raw_rows_of_a_damaged_file_are_one_sentence(tmp_path):
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "train.parquet").write_bytes(b"PAR1 nothing")
    for streaming in (False, True):
        with pytest.raises(LoadingError, match=r"cannot be read .*local_path=") as raised:
            rows_of(of_hub(str(tmp_path / "repo")), streaming=streaming)
        assert "\n" not in str(raised.value)


def test_raw_rows_without_rows_are_refused(hub, jsonl, tmp_path):
    empty = datasets.Dataset.from_dict({"question": [], "answer": []}).cast(
        datasets.Features({name: datasets.Value("string") for name in ("question", "answer")})
    )
    (tmp_path / "repo").mkdir()
    empty.to_parquet(str(tmp_path / "repo" / "train.parquet"))
    with pytest.raises(LoadingError, match=r"repo holds no rows; name another split or revision"):
        rows_of(of_hub(str(tmp_path / "repo")))
    with pytest.raises(LoadingError, match=r"train.parquet holds no rows"):
        rows_of(GSM8K, local_path=tmp_path / "repo")
    (tmp_path / "empty.json").write_text("[]")
    with pytest.raises(LoadingError, match=r"empty.json holds no rows; give a file with rows of 'gsm8k'"):
        rows_of(GSM8K, local_path=tmp_path / "empty.json")


# Local files


@pytest.mark.parametrize("streaming", [False, True])
def test_raw_rows_of_local_files_have_the_columns_that_are_read(jsonl, tmp_path, streaming):
    first = jsonl(RAW[:3], "one.jsonl")
    second = tmp_path / "two.json"
    second.write_text(json.dumps(RAW[3:]))
    assert rows_of(GSM8K, local_path=[first, second], streaming=streaming) == PLAIN
    datasets.Dataset.from_list(RAW).to_parquet(str(tmp_path / "all.parquet"))
    assert rows_of(GSM8K, local_path=str(tmp_path / "all.parquet"), streaming=streaming) == PLAIN


def test_raw_rows_of_local_files_take_the_split_of_a_copied_repository(hub):
    path = hub({"main": {"train": RAW[:2], "test": RAW[2:]}, "socratic": {"train": RAW}}, suffix="parquet")
    assert rows_of(GSM8K, local_path=path) == PLAIN[:2]
    assert rows_of(EVALUATION_SETS["gsm8k"], local_path=path) == PLAIN[2:]


def test_raw_rows_of_json_keep_rows_of_different_types_apart(jsonl):
    mixed = [{"question": 5, "answer": ["a"]}, {"question": {"deep": None}, "answer": 1.5}, {"answer": "x"}]
    assert rows_of(GSM8K, local_path=jsonl(mixed)) == [*mixed[:2], {"question": None, "answer": "x"}]


def test_raw_rows_of_json_take_a_column_that_shows_up_later(jsonl):
    rows = [{"question": "q"}, {"question": "q", "answer": "a"}]
    assert rows_of(GSM8K, local_path=jsonl(rows)) == [{"question": "q", "answer": None}, rows[1]]


def test_raw_rows_of_json_without_a_column_name_it(jsonl):
    for streaming in (False, True):
        with pytest.raises(LoadingError, match=r"rows.jsonl lacks the column answer of .*; it has question, text;"):
            rows_of(GSM8K, local_path=jsonl([{"question": "q", "text": "a"}]), streaming=streaming)


def test_raw_rows_of_a_broken_line_deep_in_the_file_are_one_sentence(tmp_path):
    path = tmp_path / "cut.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in RAW * 50) + '{"question": "cut')
    with pytest.raises(LoadingError, match=r"line 351 of cut.jsonl is no JSON .*cut off"):
        rows_of(GSM8K, local_path=path)
    with pytest.raises(LoadingError, match=r"line 351 of cut.jsonl is no JSON .*cut off"):
        rows_of(GSM8K, local_path=path, streaming=True)


def test_raw_rows_of_a_parquet_file_without_a_column_name_it(tmp_path):
    datasets.Dataset.from_list([{"problem": "p"}]).to_parquet(str(tmp_path / "a.parquet"))
    with pytest.raises(LoadingError, match=r"a.parquet lacks the columns question, answer of 'gsm8k'; it has problem;"):
        rows_of(GSM8K, local_path=tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_text("text")
    with pytest.raises(LoadingError, match=r"b.parquet is no parquet file or not a whole one"):
        rows_of(GSM8K, local_path=tmp_path / "b.parquet")


def test_raw_rows_revision_does_not_go_with_local_path(jsonl):
    with pytest.raises(ValueError, match=r"revision='v1' is of the Hub and does not go with local_path"):
        rows_of(GSM8K, local_path=jsonl(RAW), revision="v1")


def test_raw_rows_of_a_changed_file_are_read_again(jsonl):
    path = jsonl(RAW[:2])
    assert len(rows_of(GSM8K, local_path=path)) == 2
    assert len(rows_of(GSM8K, local_path=jsonl(RAW[:5]))) == 5
    assert jsonl(RAW[:5]) == path


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_raw_rows_of_another_file_of_the_same_size_and_time_are_read_again(tmp_path, form):
    """Also where a process has read and hashed the former one."""
    path = tmp_path / f"rows.{form}"
    built = []
    for number in (3, 4):
        rows = [{"question": f"What is {i} + {number}?", "answer": f"#### {i + number}"} for i in range(10, 20)]
        if form == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            pq.write_table(pa.Table.from_pylist(rows), path, compression="none", use_dictionary=False)
        os.utime(path, ns=(10**18, 10**18))
        built.append((path.stat().st_size, build_with_report("gsm8k", local_path=path)))
    assert built[0][0] == built[1][0]
    assert [one.dataset[0]["solution"] for _, one in built] == ["$13$", "$14$"]
    assert built[0][1].report.files_hash != built[1][1].report.files_hash


@pytest.mark.parametrize("argument", ["config", "split", "revision"])
def test_raw_rows_of_a_name_that_is_no_text_are_refused(jsonl, argument):
    with pytest.raises(ValueError, match=rf"^{argument}=5 must be a text; leave it out"):
        build_with_report("gsm8k", local_path=jsonl(RAW), **{argument: 5})


MOCKS = {path.stem: path for path in ROWS.glob("*.jsonl")}


@pytest.mark.parametrize("name", sorted(set(MOCKS) & set(BUILDERS)))
def test_rows_of_a_local_file_equal_those_of_the_hub(hub, jsonl, name):
    source = BUILDERS[name]
    # a table has one type a column: rows of other types can only be in files of JSON
    rows = [
        row for line in MOCKS[name].read_text(encoding="utf-8").splitlines() if source.convert(row := json.loads(line))
    ]
    there = of_hub(hub({"default": {"train": rows}}), source, configs=(), folders=(), data_files=None, split="train")
    expected = build_with_report(source, local_path=jsonl(rows), streaming=False)
    assert expected.report.loaded == len(rows) > 0
    for streaming in (False, True):
        built = build_with_report(there, streaming=streaming)
        assert list(built.dataset) == list(expected.dataset)
        assert (built.report.loaded, built.report.dropped) == (expected.report.loaded, expected.report.dropped)


# Columns, splits, procedural sources


def test_wanted_columns_may_be_patterns():
    source = replace(GSM8K, columns=("b", "a"), optional_columns=("*_avg_reward", "c", "x[1]"))
    columns = ["a", "Qwen/Q_avg_reward", "b", "avg", "d", "x[1]", "x1"]
    assert wanted_columns(source, columns) == ["a", "Qwen/Q_avg_reward", "b", "x[1]"]


def test_hub_splits_unknown_name_has_a_hint():
    assert hub_splits(GSM8K, None) == ("train",)
    with pytest.raises(ValueError, match=r"split='trian' is no split of 'gsm8k'; did you mean 'train'"):
        hub_splits(GSM8K, "trian")
    with pytest.raises(ValueError, match=r"split='test' is no split .*evaluation set: see build_eval\('gsm8k'\)"):
        hub_splits(GSM8K, "test")


@pytest.mark.parametrize("streaming", [False, True])
def test_procedural_rows_depend_on_index_and_seed_alone(streaming):
    source = BUILDERS["countdown"]
    assert source.generate is not None
    rows = rows_of(source, max_samples=5, seed=7, streaming=streaming)
    assert rows == [source.generate(index, 7) for index in range(5)]
    test = rows_of(source, max_samples=2, seed=7, split="test", streaming=streaming)
    assert test == [source.generate(TEST_START, 7), source.generate(TEST_START + 1, 7)]


def test_procedural_rows_are_ten_thousand_by_default():
    assert raw_rows(BUILDERS["countdown"], Wanted()).dataset.num_rows == 10_000


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"local_path": "a.jsonl"}, "local_path='a.jsonl' does not go with 'countdown', whose rows are generated"),
        ({"revision": "v1"}, "revision='v1' does not go with 'countdown'"),
        ({"split": "tests"}, "split='tests' is no split of 'countdown'; did you mean 'test'"),
    ],
)
def test_procedural_rows_refuse_what_has_no_meaning(wanted, message):
    with pytest.raises(ValueError, match=message):
        raw_rows(BUILDERS["countdown"], Wanted(**wanted))


# Parquet


def _parquet(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(dict.fromkeys(RAW[0], pa.string()))), path, **options)
    return path


@pytest.mark.parametrize("streaming", [False, True])
def test_raw_rows_of_parquet_without_rows_say_so(tmp_path, streaming):
    path = _parquet(tmp_path / "empty.parquet", [])
    with pytest.raises(LoadingError, match=r"empty\.parquet holds no rows; give a file with rows of 'gsm8k'"):
        raw_rows(GSM8K, Wanted(local_path=path, streaming=streaming))


def test_raw_rows_of_a_local_parquet_stream_are_read_in_small_batches_from_a_window(tmp_path, monkeypatch):
    text = "x" * 1000
    rows = [{"question": f"{i} {text}", "answer": f"#### {i}", "heavy": text} for i in range(100)]
    files = [_parquet(tmp_path / name, rows[at : at + 50]) for at, name in ((0, "a.parquet"), (50, "b.parquet"))]
    opened: list[dict[str, Any]] = []
    sizes: list[int] = []
    real = pq.ParquetFile

    class Watched(real):
        def __init__(self, *args: Any, **options: Any) -> None:
            opened.append(options)
            super().__init__(*args, **options)

        def iter_batches(self, *args: Any, **options: Any) -> Any:
            for batch in super().iter_batches(*args, **options):
                assert batch.schema.names == ["question", "answer"]
                sizes.append(batch.num_rows)
                yield batch

    monkeypatch.setattr(pq, "ParquetFile", Watched)
    assert rows_of(GSM8K, local_path=files, streaming=True) == [
        {name: row[name] for name in ("question", "answer")} for row in rows
    ]
    assert sizes == [1] * 100
    assert all(options == {"pre_buffer": False, "buffer_size": 1 << 20} for options in opened)


def test_raw_rows_of_a_hub_parquet_stream_are_read_as_those_of_a_local_file(hub, monkeypatch):
    opened: list[dict[str, Any]] = []
    real = pq.ParquetFile

    def watched(*args: Any, **options: Any) -> Any:
        opened.append(options)
        return real(*args, **options)

    source = of_hub(hub({"default": {"train": RAW}}, suffix="parquet"))
    monkeypatch.setattr(pq, "ParquetFile", watched)
    assert rows_of(source, streaming=True) == PLAIN
    # by `datasets`, which looks at the types, for the columns, and for the rows
    assert opened[-2:] == [{"pre_buffer": False, "buffer_size": 1 << 20}] * 2


# A revision that the Hub does not have


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("revision", [None, "v9"])
def test_raw_rows_of_a_revision_that_is_not_there_name_it_and_the_newest(monkeypatch, revision, streaming):
    pin = BUILDERS["gsm8k"].revision

    def refused(path: str, **options: Any) -> Any:
        asked = f"Revision '{options['revision']}' doesn't exist for dataset '{path}' on the Hub."
        raise datasets.exceptions.DatasetNotFoundError(asked) from KeyError()

    monkeypatch.setattr(datasets, "load_dataset_builder", refused)
    with pytest.raises(LoadingError) as raised:
        raw_rows(BUILDERS["gsm8k"], Wanted(revision=revision, streaming=streaming))
    where = (
        f"openai/gsm8k (main) at revision {revision}"
        if revision
        else f"openai/gsm8k (main) at its pinned revision {pin}"
    )
    assert str(raised.value) == (
        f"{where} cannot be read (Revision '{revision or pin}' doesn't exist for dataset 'openai/gsm8k' on the Hub); "
        'revision="main" (--revision main) reads the newest rows, whose commit the report names, or give a copy of its '
        "files with local_path="
    )
