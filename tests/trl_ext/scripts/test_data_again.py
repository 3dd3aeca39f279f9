"""`trl-ext data` called again: a source that has moved, a configuration that it wrote, a Hub that is not there."""

import json
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import yaml
from huggingface_hub import constants

from datasets_builders import connection
from datasets_builders.connection import offline_where_unreachable
from datasets_builders.saving import load_report
from trl_ext.cli import main
from trl_ext.scripts import _data_check

RAW = [{"question": f"What is {i} + {i}?", "answer": f"#### {2 * i}"} for i in range(10)]
NONE = ["--decontaminate", "none"]
MIX = ["mix", "gsm8k=4", "countdown=3", "--local_paths", "gsm8k=train.jsonl", "--output_dir", "out"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder with raw rows of GSM8K in it, offline, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / ".cache")
    _write("train.jsonl", RAW)
    return tmp_path


def _write(name, rows):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _data(*argv):
    return main(["data", *argv])


def _refused(capsys, sentence, *argv, status=1):
    capsys.readouterr()
    assert _data(*argv) == status
    error = capsys.readouterr().err
    assert f"trl-ext: error: {sentence}" in error and "Traceback" not in error, error


# --- mixtures


def test_mixture_is_read_again_from_the_configuration_that_it_wrote(here, capsys):
    assert _data(*MIX, *NONE) == 0
    assert yaml.safe_load(Path("out/config_resolved.yaml").read_text())["sources"] == ["gsm8k=4", "countdown=3"]
    before = load_report("out")
    assert _data("mix", "--config", "out/config_resolved.yaml") == 0
    assert "already built: out holds 7 rows" in capsys.readouterr().out
    assert _data("mix", "--config", "out/config_resolved.yaml", "--output_dir", "again") == 0
    again = load_report("again")
    assert [again[name] for name in ("content", "settings_hash")] == [before[n] for n in ("content", "settings_hash")]


def test_parts_in_their_place_win_over_those_of_a_configuration(here):
    Path("mine.yaml").write_text("sources: [countdown=3]\n")
    assert _data("mix", "--config", "mine.yaml", "--output_dir", "a", *NONE) == 0
    assert _data("mix", "countdown=2", "--config", "mine.yaml", "--output_dir", "b", *NONE) == 0
    assert _data("mix", "--sources", "countdown=2", "--output_dir", "b", *NONE) == 0
    assert [load_report(name)["rows"] for name in "ab"] == [3, 2]


def test_mixture_whose_source_has_moved_is_refused(here, capsys, monkeypatch):
    assert _data(*MIX, *NONE) == 0
    report = load_report("out")
    report["parts"][0] |= {"files_hash": None, "revision_resolved": "a" * 40}
    report["source_revision"] = "a" * 40 + "+generated"
    report["settings"].pop("local_paths")
    report["settings_hash"] = ""
    Path("out/report.json").write_text(json.dumps(report))
    asked = []

    class Hub:
        def dataset_info(self, path, revision):
            asked.append((path, revision))
            return SimpleNamespace(sha="b" * 40)

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    monkeypatch.setattr("datasets_builders.saving.settings_hash", lambda settings: "")
    argv = ["mix", "gsm8k=4", "countdown=3", "--output_dir", "out", *NONE]
    moved = f"the source gsm8k of output_dir=out has changed: it was built from {'a' * 40} and is now at {'b' * 40}; "
    _refused(capsys, moved + "give a new folder, or --overwrite", *argv)
    assert [path for path, _ in asked] == ["openai/gsm8k"]


def test_recipe_that_is_not_utf8_is_one_sentence(here, capsys):
    Path("mine.yaml").write_bytes("gsm8k: 5".encode("utf-16"))
    _refused(capsys, "mine.yaml is not UTF-8 text (", "mix", "--recipe", "mine.yaml", "--dry_run", status=2)


def test_recipe_may_begin_with_a_byte_order_mark(here, capsys):
    Path("mine.yaml").write_bytes("gsm8k: 5".encode("utf-8-sig"))
    assert _data("mix", "--recipe", "mine.yaml", "--dry_run") == 0
    assert "gsm8k" in capsys.readouterr().out


# --- places


def test_current_folder_is_not_replaced(here, capsys):
    argv = ["build", "gsm8k", "--local_path", "train.jsonl", "--output_dir", ".", *NONE]
    _refused(capsys, "output_dir=. is the folder of this process, or above it, which is not replaced", *argv)
    _refused(capsys, "output_dir=. is the folder of this process, or above it", *argv, "--overwrite")
    assert Path("train.jsonl").exists() and here.exists()


# --- prompts that are none


@pytest.mark.parametrize("prompt", [None, [{"role": "user", "content": None}], []])
def test_decontaminate_names_the_row_that_has_no_text(here, capsys, prompt):
    good = [{"role": "user", "content": "x"}] if isinstance(prompt, list) else "x"
    _write("rows.jsonl", [{"prompt": good}, {"prompt": prompt}])
    argv = ["decontaminate", "rows.jsonl", "--against", "gsm8k=train.jsonl"]
    _refused(capsys, f"row 1 of rows.jsonl has no text in its column prompt ({prompt!r}); correct", *argv)


def test_evaluation_rows_of_ones_own_without_text_are_named(here, capsys):
    _write("rows.jsonl", [{"prompt": "x"}])
    _write("mine.jsonl", [{"question": "y"}, {"question": None}])
    argv = ["decontaminate", "rows.jsonl", "--against", "mine=mine.jsonl"]
    _refused(capsys, "row 1 of mine.jsonl has no text in its column question (None)", *argv)


# --- no connection


@pytest.fixture
def unreachable(monkeypatch):
    """The Hub at an address where nothing listens, though nothing says that it is turned off; the questions to it."""
    asked = []
    real = connection._is_reachable

    def watched(address):
        asked.append(address)
        return real(address)

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(connection, "_is_reachable", watched)
    return asked


def test_hub_that_cannot_be_reached_is_asked_once(here, unreachable):
    found, missing = _data_check.evaluation_sets(None)
    assert found == {} and len(missing) == 13
    assert all("cannot be reached on the Hub" in reason for reason in missing.values())
    assert unreachable == ["http://127.0.0.1:9"] and not constants.HF_HUB_OFFLINE


def test_hub_that_answers_is_read(unreachable, monkeypatch):
    monkeypatch.setattr(connection, "_is_reachable", lambda address: True)
    with offline_where_unreachable():
        assert not constants.HF_HUB_OFFLINE
    monkeypatch.setattr(connection, "_is_reachable", lambda address: False)
    with pytest.raises(KeyError), offline_where_unreachable():
        assert constants.HF_HUB_OFFLINE
        raise KeyError
    assert not constants.HF_HUB_OFFLINE
