"""Runs as they are read for drawing: names, gaps, what is skipped, means over seeds, smoothing and thinning."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from trl_ext.errors import UserError
from trl_ext.evaluation._plot_data import (
    MOST_POINTS,
    Curve,
    Line,
    Run,
    mean_curve,
    metrics_file,
    read_run,
    read_runs,
    read_settings,
    run_names,
    smoothed,
    thinned,
    unique_names,
)

NAN = math.nan


def written(folder, lines):
    """A run folder with these lines, dicts or raw text."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "metrics.jsonl").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return folder


def points(curve):
    return list(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))


def curve_of(*values, steps=None):
    return Curve(np.array(steps or range(1, len(values) + 1), dtype=float), np.array(values, dtype=float))


def test_rows_become_curves_sorted_by_step_of_which_the_later_line_counts(tmp_path):
    rows = [{"step": 2, "reward": 5}, {"step": 1, "reward": 0.5, "kl": 0.1}, {"step": 2, "reward": 1.0}]
    (run,) = read_runs([written(tmp_path / "run", rows)])
    assert run.name == "run"
    assert points(run.curves["reward"]) == [(1.0, 0.5), (2.0, 1.0)]
    assert points(run.curves["kl"]) == [(1.0, 0.1)]
    assert not run.skipped


def test_two_rows_of_one_step_are_merged(tmp_path):
    (run,) = read_runs([written(tmp_path / "run", [{"step": 1, "reward": 0.5}, {"step": 1, "eval/pass@1": 0.25}])])
    assert points(run.curves["reward"]) == [(1.0, 0.5)]
    assert points(run.curves["eval/pass@1"]) == [(1.0, 0.25)]


def test_nan_infinity_and_null_are_gaps_and_the_first_two_are_counted(tmp_path):
    rows = [{"step": i, "reward": value} for i, value in enumerate([0.1, NAN, math.inf, None, 0.2])]
    (run,) = read_runs([written(tmp_path / "run", rows)])
    assert np.isnan(run.curves["reward"].values).tolist() == [False, True, True, True, False]
    assert run.skipped == {"figure that is not finite": 2}


def test_values_no_scale_can_hold_are_gaps(tmp_path):
    lines = [{"step": 1, "reward": 1e300}, '{"step": 2, "reward": 1' + "0" * 400 + "}", {"step": 3, "reward": 1e99}]
    (run,) = read_runs([written(tmp_path / "run", lines)])
    assert np.isnan(run.curves["reward"].values).tolist() == [True, True, False]
    assert run.skipped == {"figure that is not finite": 2}


def test_lines_that_cannot_be_read_are_skipped_and_counted(tmp_path):
    lines = [{"step": 1, "reward": 0.5}, "[1, 2]", {"reward": 3}, "[" * 100_000, '{"step": 2, "rewa']
    (run,) = read_runs([written(tmp_path / "run", lines)])
    assert points(run.curves["reward"]) == [(1.0, 0.5)]
    assert run.skipped == {"unreadable line": 3, "line without a step": 1}


def test_what_is_no_number_is_no_curve(tmp_path):
    rows = [{"step": 1, "reward": 0.5, "note": "text", "flag": True, "list": [1], "time": 17.0, "never": None}]
    (run,) = read_runs([written(tmp_path / "run", rows)])
    assert list(run.curves) == ["reward"]


def test_line_separators_inside_a_text_do_not_cut_a_line(tmp_path):
    line = json.dumps({"step": 1, "reward": 0.5, "note": "a\u2028b\x85c"}, ensure_ascii=False)
    (run,) = read_runs([written(tmp_path / "run", [line])])
    assert not run.skipped


def test_group_std_is_kept_as_lists(tmp_path):
    rows = [{"step": 2, "reward": 1, "group_std": [0.5, 0.0]}, {"step": 1, "reward": 1, "group_std": [0.1, NAN, "x"]}]
    (run,) = read_runs([written(tmp_path / "run", rows)])
    assert run.group_std == [(1.0, [0.1]), (2.0, [0.5, 0.0])]
    assert "group_std" not in run.curves


def test_stock_trainer_is_read_from_its_last_checkpoint(tmp_path):
    for step in (9, 10):
        folder = tmp_path / "run" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        state = {"log_history": [{"step": step, "reward": step / 10}]}
        (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    (run,) = read_runs([tmp_path / "run"])
    assert (run.name, run.folder) == ("run", tmp_path / "run")
    assert points(run.curves["reward"]) == [(10.0, 1.0)]


def test_metrics_file_comes_before_a_trainers_state(tmp_path):
    folder = written(tmp_path / "run", [{"step": 1, "reward": 1}])
    (folder / "trainer_state.json").write_text("{}", encoding="utf-8")
    assert metrics_file(folder) == folder / "metrics.jsonl"


def test_folder_without_metrics_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"holds neither metrics.jsonl nor trainer_state.json; give the output folder"):
        read_runs([tmp_path])


def test_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"there is no run .*nothing; give the output folder"):
        read_runs([tmp_path / "nothing"])


@pytest.mark.parametrize("lines", [[], ["{"], [{"step": 1}], [{"step": 1, "reward": NAN}]])
def test_file_without_figures_is_refused(tmp_path, lines):
    with pytest.raises(UserError, match="holds no metrics yet; let the run log at least one step"):
        read_runs([written(tmp_path / "run", lines)])


def test_state_cut_short_is_refused(tmp_path):
    (tmp_path / "trainer_state.json").write_text('{"log_history": [', encoding="utf-8")
    with pytest.raises(UserError, match="is no valid JSON"):
        read_runs([tmp_path])


def test_runs_of_the_same_name_are_told_apart_by_the_folders_above():
    files = [Path("/x/a/out/metrics.jsonl"), Path("/x/b/out/metrics.jsonl"), Path("/x/c/metrics.jsonl")]
    assert run_names(files) == ["a/out", "b/out", "c"]


def test_the_same_run_twice_gets_numbers():
    assert run_names([Path("/x/run/metrics.jsonl")] * 2) == ["run", "run (2)"]


def test_names_are_one_short_line():
    names = unique_names(["a\nb\x00", "x" * 100, "", "a?b?"])
    assert names[0] == "a?b?"
    assert len(names[1]) == 48
    assert names[2] == "?"
    assert names[3] == "a?b? (2)"


def test_mean_over_seeds_is_at_common_steps_and_keeps_gaps():
    first = curve_of(1.0, 2.0, NAN, 4.0, steps=[1, 2, 3, 4])
    second = curve_of(3.0, 5.0, 7.0, steps=[1, 3, 4])
    mean = mean_curve([first, second])
    assert mean.steps.tolist() == [1, 3, 4]
    np.testing.assert_allclose(mean.values, [2.0, NAN, 5.5])
    np.testing.assert_allclose(mean.std, [math.sqrt(2), NAN, math.sqrt(4.5)])


def test_line_takes_the_first_metric_that_was_logged():
    line = Line("a", [Run("a", Path("a"), {"kl": curve_of(1.0)})])
    assert line.curve("policy/kl", "kl").values.tolist() == [1.0]
    assert line.curve("policy/kl") is None


def test_smoothing_is_a_mean_over_the_last_steps():
    rng = np.random.default_rng(0)
    steps = np.cumsum(rng.integers(1, 5, 60)).astype(float)
    values = np.where(rng.random(60) < 0.2, NAN, rng.normal(size=60))
    result = smoothed(Curve(steps, values), 7)
    for place, step in enumerate(steps):
        window = values[(steps > step - 7) & (steps <= step)]
        expected = NAN if math.isnan(values[place]) else np.nanmean(window)
        np.testing.assert_allclose(result.values[place], expected)


def test_smoothing_leaves_points_further_apart_as_they_are():
    curve = curve_of(1.0, 9.0, 3.0, steps=[100, 200, 300])
    assert smoothed(curve, 50).values.tolist() == [1.0, 9.0, 3.0]


def test_smoothing_loses_nothing_behind_a_huge_value():
    assert smoothed(curve_of(1e90, 1.0, 3.0), 2).values.tolist()[2] == 2.0


def test_thinned_curve_keeps_ends_peaks_and_wide_gaps():
    values = np.sin(np.arange(100_000) / 500)
    values[12_345], values[54_321] = 50.0, -50.0
    values[70_000:80_000] = NAN
    curve = Curve(np.arange(100_000.0), values)
    thin = thinned(curve)
    assert len(thin.steps) <= MOST_POINTS + 2
    assert (thin.steps[0], thin.steps[-1]) == (0.0, 99_999.0)
    assert np.nanmax(thin.values) == 50.0 and np.nanmin(thin.values) == -50.0
    gap = thin.values[(thin.steps >= 70_200) & (thin.steps < 79_800)]
    assert len(gap) > 0 and np.isnan(gap).all()
    np.testing.assert_array_equal(thin.values, values[thin.steps.astype(int)])


def test_short_curve_is_not_thinned():
    curve = curve_of(*range(MOST_POINTS))
    assert thinned(curve) is curve


def test_settings_come_from_the_folder_of_the_run(tmp_path):
    folder = written(tmp_path / "run", [{"step": 1, "reward": 1}])
    (folder / "config_resolved.yaml").write_text("beta: 0.1\n", encoding="utf-8")
    assert read_settings(read_runs([folder])[0]) == {"beta": 0.1}


@pytest.mark.parametrize("text", ["a: [", "- 1", "!!python/object/apply:os.system ['true']"])
def test_settings_that_cannot_be_read_are_none(tmp_path, text):
    folder = written(tmp_path / "run", [{"step": 1, "reward": 1}])
    (folder / "config_resolved.yaml").write_text(text, encoding="utf-8")
    assert read_settings(read_run(folder / "metrics.jsonl", "run")) == {}


def test_hundred_thousand_lines_are_read_whole(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    keys = [f"rewards/part_{i}/mean" for i in range(8)]
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for step in range(100_000):
            file.write(json.dumps({"step": step, **dict.fromkeys(keys, step / 7)}) + "\n")
    (run,) = read_runs([folder])
    assert all(len(run.curves[key].steps) == 100_000 for key in keys)
    assert run.curves[keys[3]].values[70_000] == 10_000.0


def test_figures_of_a_stock_trainer_join_those_that_a_callback_wrote(tmp_path):
    folder = written(tmp_path / "run", [{"step": 0, "eval/pass@1": 0.25}, {"step": 2, "eval/pass@1": 0.5}])
    for step in (2, 10):
        history = [{"step": i, "epoch": 0.1 * i, "reward": float(step)} for i in range(1, step + 1)]
        (folder / f"checkpoint-{step}").mkdir()
        (folder / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    (run,) = read_runs([folder])
    assert points(run.curves["eval/pass@1"]) == [(0.0, 0.25), (2.0, 0.5)]
    assert points(run.curves["reward"]) == [(float(i), 10.0) for i in range(1, 11)]  # of the last checkpoint


def test_figures_of_a_checkpoint_do_not_join_those_that_the_trainer_wrote(tmp_path):
    folder = written(tmp_path / "run", [{"step": 1, "epoch": 0.1, "reward": 0.5}])
    (folder / "checkpoint-9").mkdir()  # of an earlier run in the same folder
    rows = {"log_history": [{"step": 9, "epoch": 0.9, "reward": 9.0, "kl": 1.0}]}
    (folder / "checkpoint-9" / "trainer_state.json").write_text(json.dumps(rows))
    (run,) = read_runs([folder])
    assert points(run.curves["reward"]) == [(1.0, 0.5)] and "kl" not in run.curves


def test_torn_state_of_a_checkpoint_leaves_the_figures_of_a_callback(tmp_path):
    folder = written(tmp_path / "run", [{"step": 0, "eval/pass@1": 0.25}])
    (folder / "checkpoint-9").mkdir()
    (folder / "checkpoint-9" / "trainer_state.json").write_text('{"log_history": [{"st')
    (run,) = read_runs([folder])
    assert points(run.curves["eval/pass@1"]) == [(0.0, 0.25)]
    assert dict(run.skipped) == {"unreadable trainer_state.json": 1}
