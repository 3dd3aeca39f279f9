"""The commits at which sources were first read."""

from __future__ import annotations

import json
import multiprocessing
import os

import pytest

from datasets_builders.first_read import commits_file, first_commit, keep_commit
from datasets_builders.local_files import LoadingError
from datasets_builders.registry import BUILDERS, EVALUATION_SETS

ONE, OTHER = "1" * 40, "2" * 40


def test_first_commit_is_kept_and_another_one_is_not():
    assert first_commit("me/a") is None and first_commit(None) is None
    keep_commit("me/a", ONE)
    keep_commit("me/b", OTHER)
    keep_commit("me/a", OTHER)
    assert (first_commit("me/a"), first_commit("me/b")) == (ONE, OTHER)
    assert sorted(path.name for path in commits_file().parent.iterdir() if path.suffix != ".lock") == [
        "dataset_commits.json"
    ]


def test_every_source_of_the_hub_is_pinned_by_the_package_or_at_its_first_read():
    sources = [*BUILDERS.values(), *EVALUATION_SETS.values()]
    for source in sources:
        assert source.pin_at_first_read is (source.path is not None and source.revision is None), source.name


def _keep(number: int) -> None:
    keep_commit(f"me/{number}", f"{number:040x}")


def test_commits_of_several_processes_are_all_kept():
    fork = multiprocessing.get_context("fork")  # which takes over the folder of this test
    processes = [fork.Process(target=_keep, args=(number,)) for number in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert json.loads(commits_file().read_text()) == {f"me/{number}": f"{number:040x}" for number in range(8)}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"me/a": 3}', '{"me/a": "main"}', "\udcff"])
def test_file_that_holds_something_else_is_named_and_left(text):
    commits_file().parent.mkdir(parents=True)
    commits_file().write_bytes(text.encode(errors="surrogateescape"))
    for call in (lambda: first_commit("me/a"), lambda: keep_commit("me/a", ONE)):
        with pytest.raises(LoadingError, match=r"dataset_commits\.json .*remove it"):
            call()
    assert commits_file().read_bytes() == text.encode(errors="surrogateescape")


@pytest.mark.skipif(os.name != "posix", reason="a file in the place of a folder")
def test_folder_that_cannot_be_written_gives_a_warning_with_the_commit():
    commits_file().parent.write_text("a file")
    with pytest.warns(UserWarning, match=rf"cannot be written .*next build of me/a may read other.*revision='{ONE}'"):
        keep_commit("me/a", ONE)
