"""Drawn figures where runs are gappy, steep, or carry names and steps that nobody would choose."""

import doctest
import importlib.util
import math
from pathlib import Path

import pytest

from trl_ext.errors import UserError
from trl_ext.evaluation import _plot_draw
from trl_ext.evaluation._plot_draw import symlog_ticks
from trl_ext.evaluation.plots import draw, slug

_spec = importlib.util.spec_from_file_location("plot_tests", Path(__file__).with_name("test_plots.py"))
plots = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(plots)
figure_of, written = plots.figure_of, plots.written


def test_doctests_pass():
    assert doctest.testmod(_plot_draw).failed == 0


# --- time of a step


def heights(axis):
    return {bars.get_label(): [bar.get_height() for bar in bars] for bars in axis.containers}


def test_gaps_are_left_out_of_the_means_of_stretches(tmp_path):
    rows = [{"step": i, "time/generate": math.nan if i % 3 == 0 else 2.0, "time/update": 1.0} for i in range(1, 1001)]
    (axis,) = figure_of("step_time", [written(tmp_path / "run", rows)]).axes
    assert heights(axis) == {"generating": [2.0] * 200, "updating": [1.0] * 200}


def test_steps_without_any_time_have_no_bar(tmp_path):
    values = [3.0, None, 1.0]
    rows = [{"step": i, "time/generate": v, "time/update": v} for i, v in enumerate(values, 1)]
    (axis,) = figure_of("step_time", [written(tmp_path / "run", rows)]).axes
    assert heights(axis) == {"generating": [3.0, 1.0], "updating": [3.0, 1.0]}


def test_parts_of_different_steps_stand_side_by_side(tmp_path):
    rows = [{"step": 1, "time/generate": 2.0}, {"step": 2, "time/update": 5.0}]
    (axis,) = figure_of("step_time", [written(tmp_path / "run", rows)]).axes
    assert heights(axis) == {"generating": [2.0, 0.0], "updating": [0.0, 5.0]}
    assert [bar.get_center()[0] for bar in axis.containers[0]] == [1.0, 2.0]


# --- scales


def test_explained_variance_far_below_zero_can_be_read_off(tmp_path):
    rows = [{"step": i, "value/explained_variance": v} for i, v in enumerate([-9.0, -6.0, -2.0, 0.3], 1)]
    (axis,) = figure_of("explained_variance", [written(tmp_path / "run", rows)]).axes
    labels = [text.get_text() for text in axis.get_yticklabels() if text.get_text()]
    assert labels[-5:] == ["-5", "-2", "-1", "-0.5", "0"]
    assert axis.get_yscale() == "symlog"


@pytest.mark.parametrize(
    ("low", "high", "linear_below", "ticks"),
    [
        (-40.0, 1.0, 1.0, [-20.0, -10.0, -5.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0]),
        (-0.5, 0.5, 1.0, [-0.5, 0.0, 0.5]),
        (0.0, 0.2, 0.1, [0.0, 0.05, 0.1, 0.2]),
        (-1e6, 1.0, 1.0, [-1e6, -1e5, -1e4, -1e3, -100.0, -10.0, -1.0, 0.0, 1.0]),
    ],
)
def test_ticks_go_by_the_room_on_the_axis(low, high, linear_below, ticks):
    assert symlog_ticks(low, high, linear_below) == pytest.approx(ticks)


@pytest.mark.parametrize("top", [1e20, 1e100])
def test_ticks_of_any_axis_are_few(top):
    assert 3 <= len(symlog_ticks(-top, top, 1.0)) <= 15


# --- steps and names


def test_steps_beyond_any_training_are_skipped_and_counted(tmp_path):
    rows = [{"step": step, "reward": 1.0} for step in (1, 1e308, -1e308)]
    found = draw([written(tmp_path / "run", rows)], tmp_path / "out")
    assert found.notes == ["Skipped in run: 2 lines without a step."]
    with pytest.raises(UserError, match="holds no metrics yet"):
        draw([written(tmp_path / "other", rows[1:])], tmp_path / "out")


def test_metric_with_a_name_too_long_for_a_file_is_drawn(tmp_path):
    metrics = ["m" * 300, "m" * 299]
    run = written(tmp_path / "run", [{"step": 1, **dict.fromkeys(metrics, 1.0)}])
    names = [path.name for path in draw([run], tmp_path / "out", panels=metrics).paths]
    assert names == ["overview.png", f"{'m' * 120}.png", f"{'m' * 120}-2.png"]
    assert slug("a" * 300) == "a" * 120


def test_names_that_look_like_styles_stay_what_they_are(tmp_path):
    names = ["font: 1px", "font-family: x; y", '#0072b2 url(#a id="z']
    metrics = {f"rewards/{name}/mean": float(i) for i, name in enumerate(names)}
    rows = [{"step": i, "reward": 9.0 + i, **{k: v + i for k, v in metrics.items()}} for i in range(3)]
    (path,) = draw([written(tmp_path / "run", rows)], tmp_path / "out", formats=("html",), panels=["reward"]).paths
    text = path.read_text(encoding="utf-8")
    assert text.count("</text>") == text.count("<text ")
    for name in names:
        assert f">{name}</text>" in text
    assert "font: 9.5px" not in text  # while the styles of the drawing are still those of the page
