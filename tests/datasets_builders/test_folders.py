"""Where a data set may be written, links to it, interrupted replacements, and what the system refuses."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from datasets_builders import folders
from datasets_builders.folders import MAX_NAME, load_report, output_folder
from datasets_builders.saving import SavingError, finished, load_saved, save
from datasets_builders.schema import features, rl_row

REPORT = {"name": "mine"}
OLD, NEW = "a" * 40, "b" * 40


def _data(number):
    rows = [rl_row(f"{i} + 1?", f"${i + 1}$", task="math", source="mine") for i in range(number)]
    return Dataset.from_list(rows, features=features("rl"))


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


# --- links


@pytest.mark.parametrize("note", [False, True])
def test_overwrite_through_a_link_replaces_the_folder_behind_it(tmp_path, note):
    save(_data(3), REPORT, tmp_path / "v1")
    if note:
        (tmp_path / "v1" / "note.txt").write_text("mine")
    (tmp_path / "latest").symlink_to("v1")
    for number in (4, 5):
        saved = save(_data(number), REPORT, tmp_path / "latest", overwrite=True)
        assert (tmp_path / "latest").is_symlink() and saved.path == tmp_path / "v1"
        assert load_saved(tmp_path / "v1").num_rows == load_saved(tmp_path / "latest").num_rows == number
    assert _names(tmp_path) == (["latest", "v1", "v1.replaced-1"] if note else ["latest", "v1"])
    if note:
        assert (tmp_path / "v1.replaced-1" / "note.txt").read_text() == "mine"


def test_link_to_an_empty_folder_or_to_none_stays_a_link(tmp_path):
    (tmp_path / "empty").mkdir()
    for target in ("empty", "later"):
        (tmp_path / "link").symlink_to(target)
        save(_data(3), REPORT, tmp_path / "link")
        assert (tmp_path / "link").is_symlink() and load_saved(tmp_path / target).num_rows == 3
        (tmp_path / "link").unlink()


def test_link_to_itself_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SavingError, match=r"loop cannot be .*; name another"):
        save(_data(3), REPORT, tmp_path / "loop")


def test_files_behind_a_link_in_the_folder_are_never_deleted(tmp_path):
    save(_data(3), REPORT, tmp_path / "out")
    (tmp_path / "out" / "data").rename(tmp_path / "elsewhere")
    (tmp_path / "out" / "data").symlink_to(tmp_path / "elsewhere")
    saved = save(_data(4), REPORT, tmp_path / "out", overwrite=True)
    assert saved.kept == ("data",) and len(_names(tmp_path / "elsewhere")) == 1
    assert load_saved(tmp_path / "out").num_rows == 4


# --- places


@pytest.mark.parametrize("place", [".", "..", "~", "repository"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_folder_that_holds_more_than_a_data_set_is_not_replaced(tmp_path, monkeypatch, place, overwrite):
    (tmp_path / "above" / "here").mkdir(parents=True)
    (tmp_path / "above" / "here" / "thesis.tex").write_text("years of work")
    (tmp_path / "home").mkdir()
    (tmp_path / "above" / "here" / "repository" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "above" / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(SavingError, match=r"which is not replaced; name a new folder, such as one in it"):
        save(_data(3), REPORT, place, overwrite=overwrite)
    assert (tmp_path / "above" / "here" / "thesis.tex").exists() and _names(tmp_path) == ["above", "home"]
    assert save(_data(3), REPORT, "new").is_new


def test_finished_folder_is_told_from_inside_of_it(tmp_path, monkeypatch):
    save(_data(3), REPORT, tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    assert not save(_data(3), REPORT, ".").is_new


def test_place_where_a_file_system_is_mounted_is_refused(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path / "out")
    with pytest.raises(SavingError, match=r"out is where a file system is mounted, which is not replaced"):
        finished(tmp_path / "out", {})


def test_name_that_leaves_no_room_for_those_beside_it_is_refused(tmp_path):
    assert save(_data(3), REPORT, tmp_path / ("x" * MAX_NAME)).is_new
    saved = save(_data(4), REPORT, tmp_path / ("x" * MAX_NAME), overwrite=True)
    assert saved.num_rows == 4
    for name in ("x" * (MAX_NAME + 1), "é" * 121):
        with pytest.raises(SavingError, match=rf"the name {name[:20]}\.\.\. has 24\d bytes; {MAX_NAME} at most"):
            finished(tmp_path / name, {})


def test_folder_below_a_file_is_refused_before_anything_is_built(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SavingError, match=r"file is a file; name a folder that is in none"):
        finished(tmp_path / "file" / "sub" / "out", {})


@pytest.mark.parametrize("output_dir", ["", None, 5, "a\0b"])
def test_what_is_no_path_is_refused(output_dir):
    with pytest.raises(SavingError, match="output_dir="):
        output_folder(output_dir)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "make room or name another"), (errno.EACCES, "name another folder")],
)
def test_what_the_system_refuses_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch, number, remedy):
    def refused(*args, **options):
        raise OSError(number, "what pyarrow says")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", refused)
    with pytest.raises(SavingError) as raised:
        save(_data(3), REPORT, tmp_path / "out")
    assert str(raised.value) == f"output_dir={tmp_path / 'out'} cannot be written ({os.strerror(number)}); {remedy}"
    assert _names(tmp_path) == []


def test_error_of_the_source_is_not_taken_for_one_of_the_place(tmp_path, monkeypatch):
    def refused(*args, **options):
        raise ConnectionResetError(errno.ECONNRESET, "the source broke off")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", refused)
    with pytest.raises(ConnectionResetError, match="broke off"):
        save(_data(3), REPORT, tmp_path / "out")


# --- interruptions

KILLED = """
import os, signal, sys
from datasets import Dataset
from datasets_builders.saving import save
from datasets_builders.schema import features, rl_row

calls, real = [], os.replace

def killed(source, target):
    if len(calls) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    calls.append(target)
    real(source, target)

os.replace = killed
rows = Dataset.from_list([rl_row("1 + 1?", "$2$", task="math", source="mine")], features=features("rl"))
save(rows, {"name": "mine"}, sys.argv[1], overwrite=True)
"""


@pytest.mark.parametrize("most", [0, 1])
def test_killed_replacement_of_a_folder_with_files_of_others_is_undone(tmp_path, most):
    save(_data(3), REPORT, tmp_path / "out")
    (tmp_path / "out" / "note.txt").write_text("mine")
    call = [sys.executable, "-c", KILLED, str(tmp_path / "out"), str(most)]
    killed = subprocess.run(call, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert (tmp_path / "out").exists() == (most == 0)  # the second time between the two renames
    assert load_saved(tmp_path / "out").num_rows == 3
    assert (tmp_path / "out" / "note.txt").read_text() == "mine"
    assert not save(_data(3), REPORT, tmp_path / "out").is_new
    assert not (tmp_path / ".out.swap").exists() and not (tmp_path / "out.replaced-1").exists()


def test_replacement_that_ended_after_both_renames_is_finished(tmp_path, monkeypatch):
    save(_data(3), REPORT, tmp_path / "out")
    (tmp_path / "out" / "note.txt").write_text("mine")

    def killed(folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(folders, "_remove_built", killed)
        save(_data(4), REPORT, tmp_path / "out", overwrite=True)
    assert not save(_data(4), REPORT, tmp_path / "out").is_new
    assert _names(tmp_path) == ["out", "out.replaced-1"] and _names(tmp_path / "out.replaced-1") == ["note.txt"]


# --- reports that were edited, and arguments


@pytest.mark.parametrize(
    "change",
    [
        {"files": [{"path": 5, "bytes": 1}]},
        {"files": [{}]},
        {"files": ["a"]},
        {"settings": None},
        {"parts": "x"},
        {"parts": [5]},
        {"checks": []},
        {"written": []},
    ],
)
def test_report_that_was_changed_into_none_counts_as_none(tmp_path, change):
    save(_data(3), REPORT, tmp_path / "out")
    file = tmp_path / "out" / "report.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert load_report(tmp_path / "out") is None
    with pytest.raises(SavingError, match="holds other files"):
        save(_data(3), REPORT, tmp_path / "out")
    with pytest.raises(SavingError, match="is no folder that"):
        load_saved(tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"dataset": [1]}, "dataset is of type list and must be a Dataset or IterableDataset"),
        ({"report": None}, "report=None must be what build_with_report returns"),
        ({"split": 5}, "split=5 must be a name of letters"),
        ({"split": "../x"}, "split='../x' must be a name of letters"),
        ({"licence": 5}, "licence=5 must be the name of a licence"),
    ],
)
def test_argument_of_another_type_is_refused(tmp_path, arguments, sentence):
    with pytest.raises(SavingError) as raised:
        save(**{"dataset": _data(3), "report": REPORT, "output_dir": tmp_path / "out", **arguments})
    assert str(raised.value).startswith(sentence)
    assert _names(tmp_path) == []


# --- moved sources


def _at(commit, revision=None):
    return {"name": "mine", "revision": revision, "revision_resolved": commit}


def test_commit_that_a_refusal_names_keeps_the_rows(tmp_path):
    save(_data(3), _at(OLD), tmp_path / "out")
    with pytest.raises(SavingError, match=rf"--revision {OLD} keeps the old rows"):
        save(_data(3), _at(NEW), tmp_path / "out")
    assert not save(_data(3), _at(OLD, revision=OLD), tmp_path / "out").is_new
    assert not save(_data(3), _at(OLD, revision="main"), tmp_path / "out").is_new
    # offline the commit that is asked for is the only one that is known
    assert not save(_data(3), _at(None, revision=OLD), tmp_path / "out").is_new
    with pytest.raises(SavingError, match=rf"other settings \(revision: not set there, {NEW} now\)"):
        save(_data(3), _at(None, revision=NEW), tmp_path / "out")


def _mixture(commit):
    made = {"name": "countdown"}
    return {"name": "mixture", "weights": {"countdown": 1, "mine": 2}, "parts": [made, _at(commit)]}


def test_moved_source_of_a_mixture_with_generated_rows_is_named(tmp_path):
    saved = save(_data(3), _mixture(OLD), tmp_path / "out")
    assert saved.report["source_revision"] == f"generated+{OLD}"
    assert not save(_data(3), _mixture(OLD), tmp_path / "out").is_new
    assert not save(_data(3), _mixture(None), tmp_path / "out").is_new  # offline
    with pytest.raises(SavingError) as raised:
        save(_data(3), _mixture(NEW), tmp_path / "out")
    assert str(raised.value) == (
        f"the source mine of output_dir={tmp_path / 'out'} has changed: it was built from {OLD} and is now at {NEW}; "
        "give a new folder, or --overwrite (overwrite=True) to build the new ones"
    )
