"""Folders of built data sets: whole or not there, the same bytes again, and refusals that say what to do."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

import pytest
import yaml
from datasets import Dataset, IterableDataset, concatenate_datasets, load_dataset
from filelock import FileLock

from datasets_builders.building import build_with_report
from datasets_builders.report import BuildReport, MixReport
from datasets_builders.saving import (
    SavingError,
    content_settings,
    file_hash,
    finished,
    load_report,
    load_saved,
    revision_of_build,
    save,
    settings_hash,
)
from datasets_builders.schema import features, rl_row

NUM_ROWS = 2500


def _rows(number=NUM_ROWS):
    return [rl_row(f"{i} + 1?", f"${i + 1}$", task="math", source="mine", answer="é\n") for i in range(number)]


def _data(number=NUM_ROWS):
    return Dataset.from_list(_rows(number), features=features("rl"))


def _report(**changes):
    facts = {"name": "mine", "task": "math", "licence": "mit", "instruction": "boxed", "revision_resolved": "a" * 40}
    return BuildReport(**{**facts, "loaded": NUM_ROWS, "kept": NUM_ROWS, **changes})


def _files(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_folder_reloads_with_the_same_rows_and_types(tmp_path):
    saved = save(_data(), _report(), tmp_path / "out")
    assert saved.is_new and saved.num_rows == NUM_ROWS
    again = load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert list(again) == ["train"]
    assert again["train"].features == features("rl") and again["train"].to_list() == _rows()
    assert load_saved(tmp_path / "out").to_list() == _rows()


def test_folder_is_what_the_trainers_load(tmp_path):
    from trl_ext.scripts._training import load_data, pick_split

    save(_data(3), _report(), tmp_path / "out", split="test")
    names = {"dataset_name": str(tmp_path / "out"), "dataset_config": None, "dataset_streaming": False}
    data = load_data(SimpleNamespace(**names, dataset_train_split="test"))
    assert pick_split(data, "test").to_list() == _rows(3)


def test_report_holds_counts_settings_and_hashes_of_the_files(tmp_path):
    save(
        _data(),
        _report(dropped={"no_answer": 2}),
        tmp_path / "out",
        settings={"name": "mine", "seed": 3, "split": None},
    )
    report = load_report(tmp_path / "out")
    assert report["dropped"] == {"no_answer": 2} and report["rows"] == NUM_ROWS
    assert report["settings"] == {"name": "mine", "seed": 3}
    assert report["source_revision"] == "a" * 40
    hashes = _files(tmp_path / "out")
    assert {file["path"]: file["sha256"] for file in report["files"]} == {
        name: digest for name, digest in hashes.items() if name.startswith("data/")
    }
    assert yaml.safe_load((tmp_path / "out" / "config_resolved.yaml").read_text()) == {"name": "mine", "seed": 3}


def test_same_rows_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        save(_data(), _report(), tmp_path / name, settings={"seed": 1})
    assert _files(tmp_path / "a") == _files(tmp_path / "b")


def test_nothing_else_is_left_beside_the_folder(tmp_path):
    save(_data(3), _report(), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_files_are_cut_at_their_size_and_hold_all_rows_in_order(tmp_path):
    size = _data().with_format("arrow")[:1000].nbytes
    saved = save(_data(), _report(), tmp_path / "out", shard_bytes=size)
    names = [file["path"] for file in saved.report["files"]]
    assert names == [f"data/train-0000{i}-of-00003.parquet" for i in range(3)]
    assert load_saved(tmp_path / "out")["prompt"][:] == [row["prompt"] for row in _rows()]


def test_stream_is_written_like_the_table_and_its_report_is_read_at_the_end(tmp_path):
    report = _report(loaded=0, kept=0, streaming=True)

    def rows():
        for row in _rows():
            report.kept += 1
            yield row

    stream = IterableDataset.from_generator(rows, features=features("rl"))
    saved = save(stream, report, tmp_path / "stream")
    save(_data(), _report(), tmp_path / "table")
    assert saved.report["kept"] == NUM_ROWS
    data = "data/train-00000-of-00001.parquet"
    assert _files(tmp_path / "stream")[data] == _files(tmp_path / "table")[data]


def test_selected_and_formatted_rows_are_those_that_are_written(tmp_path):
    save(_data().select([5, 3]).with_format("numpy"), _report(), tmp_path / "out")
    assert load_saved(tmp_path / "out").to_list() == [_rows()[5], _rows()[3]]


# --- what is there already


def test_same_build_again_says_that_it_is_there(tmp_path):
    save(_data(), _report(), tmp_path / "out")
    before = _files(tmp_path / "out")
    saved = save(_data(), _report(), tmp_path / "out")
    assert not saved.is_new and saved.num_rows == NUM_ROWS and _files(tmp_path / "out") == before


def test_places_and_processes_are_no_other_settings(tmp_path):
    save(_data(), _report(), tmp_path / "out", settings={"seed": 1, "num_proc": 2, "output_dir": "a"})
    assert not save(_data(), _report(), tmp_path / "out", settings={"num_proc": None, "seed": 1}).is_new
    assert settings_hash({"a": 1, "b": 2}) == settings_hash({"b": 2, "a": 1})
    assert content_settings({"a": None, "b": False, "c": 0}) == {"c": 0}


def test_other_settings_are_refused_with_the_difference(tmp_path):
    save(_data(), _report(), tmp_path / "out", settings={"seed": 1, "name": "mine"})
    with pytest.raises(SavingError, match=r"other settings \(seed: 1 there, 2 now\).*--overwrite"):
        save(_data(), _report(), tmp_path / "out", settings={"seed": 2, "name": "mine"})
    assert save(_data(3), _report(), tmp_path / "out", settings={"seed": 2}, overwrite=True).num_rows == 3
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_source_that_has_moved_is_refused_with_both_commits_and_the_way_back(tmp_path):
    save(_data(), _report(), tmp_path / "out")
    moved = _report(revision_resolved="b" * 40)
    with pytest.raises(SavingError) as error:
        save(_data(), moved, tmp_path / "out")
    for part in ("a" * 40, "b" * 40, f"--revision {'a' * 40}", "--overwrite"):
        assert part in str(error.value)
    assert save(_data(3), moved, tmp_path / "out", overwrite=True).report["source_revision"] == "b" * 40


def test_local_files_that_have_changed_are_refused(tmp_path):
    (tmp_path / "rows.jsonl").write_text("1")
    first = file_hash([tmp_path / "rows.jsonl"])
    save(_data(), _report(revision_resolved=None), tmp_path / "out", source_revision=first)
    (tmp_path / "rows.jsonl").write_text("2")
    second = file_hash([tmp_path / "rows.jsonl"])
    with pytest.raises(SavingError, match="put the old files back"):
        finished(tmp_path / "out", load_report(tmp_path / "out")["settings"], second)
    assert finished(tmp_path / "out", load_report(tmp_path / "out")["settings"], first) is not None


def test_revision_that_is_not_known_now_is_no_change(tmp_path):
    save(_data(), _report(), tmp_path / "out")
    assert not save(_data(), _report(revision_resolved=None), tmp_path / "out").is_new


def test_revision_of_a_mixture_is_that_of_each_part():
    parts = [{"revision_resolved": "a"}, {"revision_resolved": "b"}]
    assert revision_of_build({"parts": parts}) == "a+b"
    assert revision_of_build({"parts": [*parts, {"revision_resolved": None}]}) == "a+b+?"
    assert revision_of_build({"parts": [{"name": "countdown"}, *parts]}) == "generated+a+b"
    assert revision_of_build({"parts": [{"name": "countdown"}, {"name": "mine"}]}) is None


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda rows: rows.select(range(3)), "2,500 there, 3 now"),
        (lambda rows: rows.select([1, 0, *range(2, NUM_ROWS)]), "as many, 2,500, but not the same ones"),
        (lambda rows: rows.map(lambda row: {"solution": row["solution"] + " "}), "not the same ones"),
    ],
)
def test_other_rows_under_the_same_report_are_refused(tmp_path, change, difference):
    save(_data(), _report(), tmp_path / "out")
    with pytest.raises(SavingError, match=rf"holds other rows .*{difference}.*; give a new folder, or --overwrite"):
        save(change(_data()), _report(), tmp_path / "out")
    saved = save(change(_data()), _report(), tmp_path / "out", overwrite=True)
    assert saved.is_new and not save(change(_data()), _report(), tmp_path / "out").is_new


def _stream(rows, read=None):
    """A stream of rows; the number of each that is read goes into `read`."""

    def numbered():
        for number, row in enumerate(rows):
            if read is not None:
                read.append(number)
            yield row

    return IterableDataset.from_generator(numbered, features=features("rl"))


@pytest.mark.parametrize(
    ("rows", "difference"),
    [
        (_rows(3), "2,500 there, 3 now"),
        (_rows(NUM_ROWS + 1), "2,500 there, more now"),
        ([*_rows()[1::-1], *_rows()[2:]], "as many, 2,500, but not the same ones"),
        ([*_rows()[:-1], _rows()[0]], "as many, 2,500, but not the same ones"),
    ],
)
@pytest.mark.parametrize("first", [_data, lambda: _stream(_rows())])
def test_stream_of_other_rows_under_the_same_report_is_refused(tmp_path, rows, difference, first):
    save(first(), _report(), tmp_path / "out")
    before = _files(tmp_path / "out")
    assert not save(_stream(_rows()), _report(), tmp_path / "out").is_new
    with pytest.raises(SavingError, match=rf"holds other rows .*{difference}.*; give a new folder, or --overwrite"):
        save(_stream(rows), _report(), tmp_path / "out")
    assert _files(tmp_path / "out") == before


def test_stream_of_more_rows_is_read_no_further_than_it_needs(tmp_path):
    save(_data(10), _report(), tmp_path / "out")
    read = []
    with pytest.raises(SavingError, match="10 there, more now"):
        save(_stream(_rows() * 4, read), _report(), tmp_path / "out")
    assert max(read) < 1500  # of 10,000: one batch, and what is read behind it


def test_rows_that_are_stored_in_other_pieces_are_the_same(tmp_path):
    save(_data(), _report(), tmp_path / "out")
    pieces = concatenate_datasets([_data().select(range(700)), _data().select(range(700, NUM_ROWS))])
    assert not save(pieces, _report(), tmp_path / "out").is_new
    assert not save(load_saved(tmp_path / "out"), _report(), tmp_path / "out").is_new


def test_changed_local_file_of_the_same_name_is_refused(tmp_path):
    def built(number):
        rows = [{"question": f"What is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(number)]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return build_with_report("gsm8k", local_path=tmp_path / "rows.jsonl", streaming=True)

    first = built(5)
    save(first.dataset, first.report, tmp_path / "out")
    other = built(6)
    with pytest.raises(SavingError, match=r"has changed: it was built from sha256:.*put the old files back"):
        save(other.dataset, other.report, tmp_path / "out")


def test_duplicates_and_shares_are_settings(tmp_path):
    save(_data(), _report(), tmp_path / "out")
    with pytest.raises(SavingError, match="keep_duplicates: not set there, True now"):
        save(_data(), _report(deduplicate=False), tmp_path / "out")
    save(_data(), MixReport(weights={"a": 0.25, "b": 0.75}, parts=[_report(), _report()]), tmp_path / "mix")
    with pytest.raises(SavingError, match=r"weights: \{'a': 0.25, 'b': 0.75\} there"):
        save(_data(), MixReport(weights={"a": 0.5, "b": 0.5}, parts=[_report(), _report()]), tmp_path / "mix")


def test_blank_licence_is_refused(tmp_path):
    with pytest.raises(SavingError, match=r"licence=' ' \(--licence\) is blank"):
        save(_data(3), _report(), tmp_path / "out", licence=" ")


def test_folder_with_other_files_is_refused_and_kept_when_replaced(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(SavingError, match=r"holds other files \(thesis.tex\); give a new folder"):
        save(_data(), _report(), tmp_path / "out")
    saved = save(_data(), _report(), tmp_path / "out", overwrite=True)
    assert (saved.replaced / "thesis.tex").read_text() == "years of work"
    assert load_report(tmp_path / "out") is not None


def test_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(SavingError, match="is a file; name a folder"):
        save(_data(), _report(), tmp_path / "out")


def test_empty_folder_is_taken(tmp_path):
    (tmp_path / "out").mkdir()
    assert save(_data(3), _report(), tmp_path / "out").is_new


@pytest.mark.parametrize("damage", ["missing", "shorter"])
def test_damaged_folder_does_not_pass_for_a_whole_one(tmp_path, damage):
    saved = save(_data(), _report(), tmp_path / "out")
    path = tmp_path / "out" / saved.report["files"][0]["path"]
    path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes()[:-1])
    for call in (lambda: save(_data(), _report(), tmp_path / "out"), lambda: load_saved(tmp_path / "out")):
        with pytest.raises(SavingError, match="build it anew with --overwrite"):
            call()


@pytest.mark.parametrize("text", [None, "{", "[]", '{"format": 99, "files": []}', '{"format": 1}'])
def test_folder_without_a_report_is_no_built_folder(tmp_path, text):
    if text is not None:
        (tmp_path / "report.json").write_text(text)
    assert load_report(tmp_path) is None
    with pytest.raises(SavingError, match="is no folder that"):
        load_saved(tmp_path)


# --- interruptions

KILLED = """
import os, signal, sys
from datasets import IterableDataset
from datasets_builders.saving import save
from datasets_builders.schema import features, rl_row

def rows():
    for i in range(100_000):
        if i == 5000:
            os.kill(os.getpid(), signal.SIGKILL)
        yield rl_row(f"{i}?", "$1$", task="math", source="mine")

save(IterableDataset.from_generator(rows, features=features("rl")), {"name": "mine"}, sys.argv[1], shard_bytes=100_000)
"""


def test_killed_save_leaves_no_folder_and_the_next_one_starts_clean(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "out")], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    left = list((tmp_path / ".out.partial" / "data").iterdir())
    assert len(left) > 1  # it was in the middle of writing
    assert not (tmp_path / "out").exists()
    save(_data(3), _report(), tmp_path / "out")
    assert load_saved(tmp_path / "out").to_list() == _rows(3)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_kill_between_the_two_renames_of_a_replacement_brings_the_old_folder_back(tmp_path):
    save(_data(), _report(), tmp_path / "out")
    os.replace(tmp_path / "out", tmp_path / ".out.old")
    assert not save(_data(), _report(), tmp_path / "out").is_new
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_error_while_rows_are_read_leaves_nothing(tmp_path):
    def rows():
        yield from _rows(1500)
        raise RuntimeError("the source broke off")

    stream = IterableDataset.from_generator(rows, features=features("rl"))
    with pytest.raises(RuntimeError, match="broke off"):
        save(stream, _report(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_data_without_rows_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(SavingError, match="holds no rows, so nothing was written"):
        save(_data().select([]), _report(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_second_writer_is_refused_while_the_first_writes(tmp_path):
    with (
        FileLock(tmp_path / ".out.lock"),
        pytest.raises(SavingError, match="another process is writing output_dir="),
    ):
        save(_data(3), _report(), tmp_path / "out")
    assert save(_data(3), _report(), tmp_path / "out").is_new


def test_card_of_the_folder_is_that_of_the_rows(tmp_path):
    save(_data(), _report(), tmp_path / "out", licence="cc-by-4.0")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "license: cc-by-4.0" in text and "2,500 prompts" in text and "0 + 1?" in text
    save(_data(), _report(), tmp_path / "own", card="my card")
    assert (tmp_path / "own" / "README.md").read_text() == "my card"


def test_report_is_valid_json_of_plain_values(tmp_path):
    save(_data(3), _report(warnings=["é"]), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["warnings"] == ["é"]


def test_folder_that_is_being_replaced_is_not_brought_back_under_the_writer(tmp_path):
    save(_data(3), _report(), tmp_path / "out")
    os.replace(tmp_path / "out", tmp_path / ".out.old")
    with FileLock(tmp_path / ".out.lock"), pytest.raises(SavingError, match="another process is writing"):
        finished(tmp_path / "out", {})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("most", [0, 1, 2])
def test_kill_while_files_of_others_are_replaced_never_loses_them(tmp_path, monkeypatch, most):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    calls = []

    def killed(source, target, *, rename=os.rename):
        if len(calls) == most:
            raise KeyboardInterrupt
        calls.append(target)
        rename(source, target)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(os, "replace", killed)
        save(_data(3), _report(), tmp_path / "out", overwrite=True)
    save(_data(3), _report(), tmp_path / "out", overwrite=True)
    assert [path.read_text() for path in tmp_path.rglob("thesis.tex")] == ["years of work"]


def test_files_of_others_left_by_an_earlier_kill_are_put_aside(tmp_path):
    save(_data(3), _report(), tmp_path / "out")
    (tmp_path / ".out.old").mkdir()
    (tmp_path / ".out.old" / "thesis.tex").write_text("years of work")
    save(_data(4), _report(), tmp_path / "out", overwrite=True)
    assert (tmp_path / "out.replaced-1" / "thesis.tex").read_text() == "years of work"
    assert load_saved(tmp_path / "out").num_rows == 4


# --- files of others in a folder that a build wrote


def _own_files(folder):
    (folder / "notes.txt").write_text("mine")
    (folder / "data" / "extra.parquet").write_bytes(b"mine")
    (folder / "plots").mkdir()
    (folder / "plots" / "a.png").write_bytes(b"mine")
    (folder / "empty").mkdir()
    (folder / "link").symlink_to(folder / "notes.txt")
    (folder / "README.md").write_text("a card of my own")
    return {"README.md", "data/extra.parquet", "empty", "link", "notes.txt", "plots/a.png"}


def test_overwrite_keeps_what_the_build_did_not_write_and_names_it(tmp_path):
    save(_data(3), _report(), tmp_path / "out")
    own = _own_files(tmp_path / "out")
    saved = save(_data(4), _report(), tmp_path / "out", overwrite=True)
    assert saved.replaced == tmp_path / "out.replaced-1" and set(saved.kept) == own
    left = [path for path in saved.replaced.rglob("*") if path.is_symlink() or path.is_file()]
    assert {path.relative_to(saved.replaced).as_posix() for path in left} == own - {"empty"}
    assert (saved.replaced / "empty").is_dir() and (saved.replaced / "README.md").read_text() == "a card of my own"
    assert load_saved(tmp_path / "out").num_rows == 4
    assert {path.name for path in tmp_path.iterdir()} == {"out", "out.replaced-1"}


def test_overwrite_of_a_folder_as_it_was_written_leaves_nothing(tmp_path):
    save(_data(3), _report(), tmp_path / "out")
    saved = save(_data(4), _report(), tmp_path / "out", overwrite=True)
    assert saved.replaced is None and saved.kept == ()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_overwrite_deletes_nothing_outside_of_the_folder(tmp_path):
    save(_data(3), _report(), tmp_path / "out")
    (tmp_path / "thesis.parquet").write_text("years of work")
    report = load_report(tmp_path / "out")
    report["files"].append({"path": "data/../../thesis.parquet", "bytes": 13, "sha256": ""})
    report["files"].append({"path": str(tmp_path / "thesis.parquet"), "bytes": 13, "sha256": ""})
    (tmp_path / "out" / "report.json").write_text(json.dumps(report))
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert save(_data(4), _report(), tmp_path / "out", overwrite=True).kept == ("notes.txt",)
    assert (tmp_path / "thesis.parquet").read_text() == "years of work"


@pytest.mark.parametrize("most", range(5))
def test_kill_while_a_built_folder_with_files_of_others_is_replaced_never_loses_them(tmp_path, monkeypatch, most):
    save(_data(3), _report(), tmp_path / "out")
    own = _own_files(tmp_path / "out") - {"empty", "link"}
    calls = []

    def killed(real):
        def call(*args, **options):
            if len(calls) == most:
                raise KeyboardInterrupt
            calls.append(args)
            return real(*args, **options)

        return call

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(os, "replace", killed(os.replace))
        patch.setattr(os, "unlink", killed(os.unlink))
        save(_data(4), _report(), tmp_path / "out", overwrite=True)
    save(_data(4), _report(), tmp_path / "out", overwrite=True)
    there = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert all(any(name.endswith(f"/{mine}") and "replaced" in name for name in there) for mine in own)
    assert load_saved(tmp_path / "out").num_rows == 4
