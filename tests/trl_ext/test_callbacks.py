"""Every log line as JSON, each step once."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from trl_ext.callbacks import METRICS_FILE, MetricsWriter, read_metrics


def _state(step, is_main=True, max_steps=10):
    return SimpleNamespace(global_step=step, is_world_process_zero=is_main, max_steps=max_steps)


def _log(writer, step, **logs):
    writer.on_log(None, _state(step), None, logs=logs)


def _steps(path):
    return [row["step"] for row in read_metrics(path)]


def test_metrics_are_written_one_line_a_log_and_at_once(tmp_path):
    writer = MetricsWriter(tmp_path / "run")
    writer.on_train_begin(None, _state(0), None)
    for step in (1, 2):
        _log(writer, step, loss=0.5 * step, **{"value/bias": None})
        rows = [json.loads(line) for line in (tmp_path / "run" / METRICS_FILE).read_text().splitlines()]
        assert [row["step"] for row in rows] == list(range(1, step + 1))
    assert rows[1]["loss"] == 1.0 and rows[1]["value/bias"] is None and rows[1]["time"] > 0


def test_metrics_of_a_resumed_run_hold_each_step_once(tmp_path):
    writer = MetricsWriter(tmp_path)
    for step in (1, 2, 3, 4):
        _log(writer, step, loss=step)
    resumed = MetricsWriter(tmp_path)
    resumed.on_train_begin(None, _state(2), None)
    assert _steps(tmp_path / METRICS_FILE) == [1, 2]
    for step in (3, 4, 5):
        _log(resumed, step, loss=10 * step)
    rows = read_metrics(tmp_path / METRICS_FILE)
    assert [(row["step"], row["loss"]) for row in rows] == [(1, 1), (2, 2), (3, 30), (4, 40), (5, 50)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [METRICS_FILE]


def test_metrics_of_a_new_run_in_the_same_folder_keep_the_old_file_aside(tmp_path):
    writer = MetricsWriter(tmp_path)
    _log(writer, 1, loss=1)
    writer.on_train_begin(None, _state(0), None)
    _log(writer, 1, loss=2)
    assert [row["loss"] for row in read_metrics(tmp_path / METRICS_FILE)] == [2]
    assert [row["loss"] for row in read_metrics(tmp_path / f"{METRICS_FILE}.old")] == [1]


def test_metrics_whose_last_line_was_cut_by_a_kill_are_read_and_resumed(tmp_path):
    writer = MetricsWriter(tmp_path)
    _log(writer, 1, loss=1)
    path = tmp_path / METRICS_FILE
    path.write_text(path.read_text() + '{"step": 2, "lo')
    assert _steps(path) == [1]
    writer.on_train_begin(None, _state(1), None)
    _log(writer, 2, loss=2)
    assert _steps(path) == [1, 2]


def test_metrics_are_written_by_the_first_process_alone(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.on_train_begin(None, _state(0, is_main=False), None)
    writer.on_log(None, _state(1, is_main=False), None, logs={"loss": 1.0})
    writer.on_log(None, _state(1), None, logs={})
    writer.on_log(None, _state(1), None, logs=None)
    assert list(tmp_path.iterdir()) == []


def test_metrics_take_numbers_of_numpy_and_torch(tmp_path):
    np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    _log(MetricsWriter(tmp_path), 1, a=np.float32(0.5), b=torch.tensor(2.0))
    row = read_metrics(tmp_path / METRICS_FILE)[0]
    assert (row["a"], row["b"]) == (0.5, 2.0)


def test_lines_of_others_outlive_a_resume(tmp_path):
    path = tmp_path / METRICS_FILE
    path.write_text('{"step": null, "note": 1}\n{"step": "two"}\n{"step": 3}\n{"step": 2}\n')
    MetricsWriter(tmp_path).on_train_begin(None, _state(2), None)
    assert _steps(path) == [None, "two", 2]


def test_figures_that_are_not_finite_are_null_as_json_has_none(tmp_path):
    writer = MetricsWriter(tmp_path)
    _log(writer, 1, loss=float("nan"), kl=torch.tensor(float("inf")), parts=[1.5, float("-inf")], count=np.int64(3))
    (line,) = (tmp_path / METRICS_FILE).read_text().splitlines()
    row = json.loads(line, parse_constant=pytest.fail)
    assert [row[name] for name in ("loss", "kl", "parts", "count")] == [None, None, [1.5, None], 3.0]
    writer.on_train_begin(None, _state(1), None)
    assert (tmp_path / METRICS_FILE).read_text().splitlines() == [line]
