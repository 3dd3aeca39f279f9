"""What is drawn, read back from the axes: values, gaps, means over seeds, scales, panels left out, hostile names."""

import importlib.util
import itertools
import json
import math

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from trl_ext.errors import UserError
from trl_ext.evaluation import _plot_draw
from trl_ext.evaluation._plot_draw import STYLE, drawn
from trl_ext.evaluation._plot_panels import PANELS, Panel, cells_of, chosen_panels, scale_of
from trl_ext.evaluation.plots import draw, lines_of, look_of, notes_of, plot_runs, plot_training, slug

NAN = math.nan
TIMES = {"time/generate": 3.0, "time/score": 1.0, "time/prepare": 0.5, "time/update": 2.0, "time/other": 0.25}


def written(folder, rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def rows_of(metric, values, first=1):
    return [{"step": step, metric: value} for step, value in enumerate(values, first)]


def figure_of(panel, runs=(), groups=None, smooth=0, title=None):
    """The figure of one panel; its axes are `figure.axes`."""
    lines = lines_of(list(runs), groups or {})
    (chosen,) = chosen_panels([panel], lines)
    with matplotlib.rc_context(STYLE):
        figure = drawn(cells_of(chosen, lines), lines, look_of(lines, smooth, title), 2)
        FigureCanvasAgg(figure).draw()  # as when it is saved: this is where scales and layouts fail
    return figure


def curves_of(axis):
    """Label -> values of each line as drawn; helpers' labels begin with "_"."""
    return {line.get_label(): line.get_ydata().tolist() for line in axis.lines}


def texts_of(figure):
    legends = [*figure.legends, *(axis.get_legend() for axis in figure.axes if axis.get_legend())]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


def pathological(folder, name):
    return written(folder / name, rows_of("reward", [0.1, 0.2]))


# --- curves -------------------------------------------------------------------------------------------------------


def test_reward_and_its_parts_share_axes_of_one_run(tmp_path):
    rows = [
        {"step": 5, "reward": 0.5, "rewards/accuracy_reward/mean": 0.25, "rewards/format_reward/mean": 1.0},
        {"step": 6, "reward": 0.75, "rewards/accuracy_reward/mean": 0.5, "rewards/format_reward/mean": 0.5},
    ]
    figure = figure_of("reward", [written(tmp_path / "run", rows)])
    (axis,) = figure.axes
    assert curves_of(axis) == {"total": [0.5, 0.75], "accuracy_reward": [0.25, 0.5], "format_reward": [1.0, 0.5]}
    assert axis.lines[0].get_xdata().tolist() == [5.0, 6.0]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("optimizer step", "reward of a completion (mean)")
    assert texts_of(figure) == ["total", "accuracy_reward", "format_reward"]


def test_part_that_is_the_whole_reward_is_not_drawn_twice(tmp_path):
    rows = [{"step": i, "reward": i / 10, "rewards/only/mean": i / 10} for i in range(3)]
    (axis,) = figure_of("reward", [written(tmp_path / "run", rows)]).axes
    assert list(curves_of(axis)) == ["total"]


def test_accuracy_is_labelled_by_its_metric_and_by_the_evaluation_where_there_are_two(tmp_path):
    one = {"step": 1, "eval/pass@1": 0.25, "eval/cons@16": 0.5}
    (axis,) = figure_of("accuracy", [written(tmp_path / "one", [one])]).axes
    assert curves_of(axis) == {"pass@1": [0.25], "cons@16": [0.5]}
    (axis,) = figure_of("accuracy", [written(tmp_path / "two", [{**one, "eval_aime/pass@1": 0.1}])]).axes
    assert list(curves_of(axis)) == ["eval pass@1", "eval cons@16", "eval_aime pass@1"]


def test_several_runs_get_axes_for_each_curve_and_one_legend(tmp_path):
    runs = [written(tmp_path / name, [{"step": 1, "eval/pass@1": v, "eval/cons@4": 2 * v}]) for name, v in
            (("a", 0.1), ("b", 0.2), ("c", 0.3))]  # fmt: skip
    figure = figure_of("accuracy", runs)
    assert [axis.get_title() for axis in figure.axes] == ["Accuracy: pass@1", "Accuracy: cons@4"]
    assert curves_of(figure.axes[0]) == {"a": [0.1], "b": [0.2], "c": [0.3]}
    assert curves_of(figure.axes[1]) == {"a": [0.2], "b": [0.4], "c": [0.6]}
    assert texts_of(figure) == ["a", "b", "c"]


def test_each_run_is_drawn_by_the_name_under_which_it_logged_the_kl(tmp_path):
    ppo = written(tmp_path / "ppo", [{"step": 1, "kl": 9.0, "policy/kl_ref_token": 0.5}])
    grpo = written(tmp_path / "grpo", [{"step": 1, "kl": 0.25}])
    (axis,) = figure_of("kl", [ppo, grpo]).axes
    assert curves_of(axis) == {"ppo": [0.5], "grpo": [0.25]}


def test_eight_runs_have_colours_and_markers_of_their_own(tmp_path):
    runs = [written(tmp_path / f"run-{i}", rows_of("reward", np.arange(1000.0) + i)) for i in range(8)]
    (axis,) = figure_of("reward", runs).axes
    assert len({line.get_color() for line in axis.lines}) == 8
    assert len({line.get_marker() for line in axis.lines}) == 8
    assert all(len(line.get_xdata()) == 1000 for line in axis.lines)


def test_ninth_run_differs_from_the_first_by_its_dashes(tmp_path):
    runs = [written(tmp_path / f"run-{i}", rows_of("reward", [i])) for i in range(9)]
    (axis,) = figure_of("reward", runs).axes
    assert axis.lines[0].get_color() == axis.lines[8].get_color()
    assert axis.lines[0].get_linestyle() != axis.lines[8].get_linestyle()


def test_gap_stays_a_gap_and_a_point_between_gaps_is_seen(tmp_path):
    values = [1.0] * 20 + [NAN] * 5 + [2.0] + [NAN] * 5 + [3.0] * 20
    (axis,) = figure_of("reward", [written(tmp_path / "run", rows_of("reward", values))]).axes
    line, dots = axis.lines
    np.testing.assert_array_equal(line.get_ydata(), values)
    assert (dots.get_linestyle(), dots.get_marker()) == ("None", ".")
    assert (dots.get_xdata().tolist(), dots.get_ydata().tolist()) == ([26.0], [2.0])


def test_mean_and_standard_deviation_of_seeds(tmp_path):
    runs = [written(tmp_path / f"s{i}", rows_of("reward", values)) for i, values in
            enumerate([[0.0, 1.0, 2.0], [2.0, 3.0, 2.0], [4.0, 5.0, 2.0]])]  # fmt: skip
    figure = figure_of("reward", groups={"ppo": runs})
    (axis,) = figure.axes
    assert curves_of(axis) == {"total": [2.0, 3.0, 2.0]}
    (band,) = axis.collections
    edges = band.get_paths()[0].vertices
    for step, low, high in ((1, 0.0, 4.0), (2, 1.0, 5.0), (3, 2.0, 2.0)):
        at = edges[edges[:, 0] == step][:, 1]
        assert (at.min(), at.max()) == (low, high)
    assert figure.get_suptitle() == "ppo (mean ± std, n=3)"


def test_band_of_shares_stays_within_0_and_1(tmp_path):
    runs = [written(tmp_path / f"s{i}", rows_of("eval/pass@1", [value])) for i, value in enumerate((0.0, 0.9))]
    (axis,) = figure_of("accuracy", groups={"g": runs}).axes
    edges = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert (edges.min(), edges.max()) == (0.0, 1.0)


def test_group_ends_where_its_first_run_ends_and_says_so(tmp_path):
    runs = [written(tmp_path / f"s{n}", rows_of("reward", [1.0] * n)) for n in (3, 5)]
    lines = lines_of([], {"g": runs})
    assert lines[0].curve("reward").steps.tolist() == [1, 2, 3]
    assert notes_of(lines) == ["g: s3 ends at step 3, and so does the mean (others: 5)."]


def test_smoothed_curve_lies_over_the_figures_as_logged(tmp_path):
    (axis,) = figure_of("reward", [written(tmp_path / "run", rows_of("reward", [0.0, 2.0, 4.0]))], smooth=2).axes
    assert curves_of(axis) == {"_raw": [0.0, 2.0, 4.0], "total": [0.0, 1.0, 3.0]}


def test_long_curve_is_drawn_by_its_extremes(tmp_path):
    values = np.sin(np.arange(20_000.0))
    values[7777] = 9.0
    (axis,) = figure_of("reward", [written(tmp_path / "run", rows_of("reward", values))]).axes
    assert len(axis.lines[0].get_xdata()) <= 1002
    assert max(axis.lines[0].get_ydata()) == 9.0


def test_x_axis_is_the_same_for_metrics_logged_now_and_then(tmp_path):
    rows = [*rows_of("reward", [0.1] * 101, first=0), {"step": 50, "eval/pass@1": 0.5}]
    run = written(tmp_path / "run", rows)
    limits = {figure_of(panel, [run]).axes[0].get_xlim() for panel in ("reward", "accuracy")}
    assert limits == {(-2.0, 102.0)}


# --- scales -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("panel", "values", "scale"),
    [
        ("kl", [1e-4, 1e-3, 1e-1], "log"),
        ("kl", [0.01, 0.05], "linear"),
        ("kl", [0.0, 1e-4, 1e-3, 1e-1], "symlog"),
        ("kl", [0.0, 0.0], "linear"),
        ("reward", [0.001, 0.1, 1.0], "linear"),
        ("reward", [0.1, 0.2, 0.3, 1e9], "log"),
        ("reward", [-0.1, 0.2, 0.3, 1e9], "symlog"),
        ("reward", [-1e99, 1e99], "linear"),
        ("reward", [1e99, 1.0, 1e-99], "log"),
        ("explained_variance", [-40.0, 0.5, 0.9], "symlog"),
        ("explained_variance", [-1.0, 0.9], "linear"),
    ],
)
def test_scale_of_the_y_axis(tmp_path, panel, values, scale):
    metric = {"kl": "kl", "reward": "reward", "explained_variance": "value/explained_variance"}[panel]
    (axis,) = figure_of(panel, [written(tmp_path / "run", rows_of(metric, values))]).axes
    assert axis.get_yscale() == scale


def test_shares_are_linear_and_hardly_exceed_their_bounds(tmp_path):
    (axis,) = figure_of("accuracy", [written(tmp_path / "run", rows_of("eval/pass@1", [1e-5, 1.0]))]).axes
    assert axis.get_yscale() == "linear"
    assert axis.get_ylim()[0] >= -0.02 and axis.get_ylim()[1] <= 1.02


def test_scale_of_nothing_but_zeros_is_linear():
    assert scale_of(Panel("kl", "", "", can_be_log=True), np.zeros(3)) == ("linear", 0.0)


# --- spread of groups and time ------------------------------------------------------------------------------------


def test_group_std_histogram_holds_shares_of_each_step(tmp_path):
    rows = [
        {"step": 1, "reward": 0, "group_std": [0.0, 0.0, 0.0, 0.8]},
        {"step": 2, "reward": 0, "group_std": [0.79, 0.8]},
        {"step": 4, "reward": 0, "group_std": [0.41]},
    ]
    figure = figure_of("group_std", [written(tmp_path / "run", rows)])
    axis = figure.axes[0]
    (mesh,) = axis.collections
    shares = mesh.get_array().reshape(16, -1)
    assert shares[0, 0] == 0.75 and shares[15, 0] == 0.25
    assert axis.get_ylim() == (0.0, 0.8)
    assert float(np.ma.filled(shares, 0.0).sum(axis=0).max()) == 1.0


def test_group_std_of_steps_that_logged_none_is_empty(tmp_path):
    rows = [{"step": i, "reward": 0, **({} if 3 <= i <= 6 else {"group_std": [0.5]})} for i in range(1, 11)]
    axis = figure_of("group_std", [written(tmp_path / "run", rows)]).axes[0]
    shares = np.ma.filled(axis.collections[0].get_array(), 0.0).reshape(16, 10)
    assert shares.sum(axis=0).tolist() == [1, 1, 0, 0, 0, 0, 1, 1, 1, 1]


def test_group_std_has_axes_for_each_run_that_has_it(tmp_path):
    with_it = written(tmp_path / "a", [{"step": 1, "reward": 0, "group_std": [0.5]}])
    without = written(tmp_path / "b", [{"step": 1, "reward": 0}])
    figure = figure_of("group_std", [without, with_it])
    assert [axis.get_title() for axis in figure.axes if axis.get_title()] == ["Spread of the rewards: a"]


def test_time_of_a_step_is_stacked_by_part(tmp_path):
    rows = [{"step": i, **TIMES, "step_time": 6.0} for i in (1, 2)]
    figure = figure_of("step_time", [written(tmp_path / "run", rows)])
    (axis,) = figure.axes
    bars = {c.get_label(): (c[0].get_y(), c[0].get_height()) for c in axis.containers}
    assert bars == {
        "generating": (0.0, 3.0),
        "scoring": (3.0, 1.0),
        "log-probabilities, values": (4.0, 0.5),
        "updating": (4.5, 2.0),
        "other": (6.5, 0.25),
    }
    assert texts_of(figure) == list(bars)
    assert axis.get_ylabel() == "seconds a step"


def test_many_steps_are_stacked_as_means_of_stretches(tmp_path):
    rows = [{"step": i, **TIMES, "time/generate": float(i % 2)} for i in range(4000)]
    (axis,) = figure_of("step_time", [written(tmp_path / "run", rows)]).axes
    assert [bar.get_height() for bar in axis.containers[0]] == [0.5] * 200


def test_time_of_several_runs_is_a_bar_each(tmp_path):
    runs = [
        written(tmp_path / n, [{"step": 1, **{k: f * v for k, v in TIMES.items()}}]) for n, f in (("a", 1), ("b", 2))
    ]
    (axis,) = figure_of("step_time", runs).axes
    assert [[bar.get_width() for bar in bars] for bars in axis.containers] == [[v, 2 * v] for v in TIMES.values()]
    assert [text.get_text().strip() for text in axis.texts] == ["6.75 s", "13.5 s"]


def test_bars_of_stretches_of_unequal_lengths_touch_each_other(tmp_path):
    rows = [{"step": i, **TIMES} for i in range(1, 701)]  # 200 stretches of 3 or 4 steps
    (axis,) = figure_of("step_time", [written(tmp_path / "run", rows)]).axes
    bars = axis.containers[0]
    edges = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]
    assert len(edges) == 200 and (edges[0][0], edges[-1][1]) == pytest.approx((0.5, 700.5))
    assert [end for _, end in edges[:-1]] == pytest.approx([start for start, _ in edges[1:]])
    assert {round(end - start) for start, end in edges} == {3, 4}


@pytest.mark.parametrize("num_runs", [2, 8, 20])
def test_long_names_beside_bars_do_not_overlap(tmp_path, num_runs):
    names = [f"qwen3-0.6b-lora-r64-{'a-long-run' * 5}-seed{i}" for i in range(num_runs)]
    runs = [written(tmp_path / name, [{"step": 1, **TIMES}]) for name in names]
    figure = figure_of("step_time", runs)
    (axis,) = figure.axes
    boxes = [label.get_window_extent() for label in axis.get_yticklabels()]
    assert len(boxes) == num_runs
    boxes.sort(key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 for below, above in itertools.pairwise(boxes))


def test_stock_trainers_step_time_is_a_curve(tmp_path):
    (axis,) = figure_of("step_time", [written(tmp_path / "run", rows_of("step_time", [1.5, 2.5]))]).axes
    assert curves_of(axis) == {"step": [1.5, 2.5]}


@pytest.mark.parametrize(
    ("panel", "metric", "value", "limits"),
    [
        ("accuracy", "eval/pass@1", 0.05, (-0.02, 0.12)),
        ("accuracy", "eval/pass@1", 1.0, (-0.02, 1.02)),
        ("accuracy", "eval/pass@1", 0.0, (-0.02, 1.02)),
        ("reward", "reward", -3.0, (-6.12, 0.12)),
        ("reward", "reward", 0.0, (-1.04, 1.04)),
    ],
)
def test_constant_curve_stands_in_its_scale_and_not_in_noise(tmp_path, panel, metric, value, limits):
    (axis,) = figure_of(panel, [written(tmp_path / "run", rows_of(metric, [value] * 3))]).axes
    assert axis.get_ylim() == pytest.approx(limits)


def test_single_step_has_one_tick(tmp_path):
    (axis,) = figure_of("reward", [written(tmp_path / "run", [{"step": 7, "reward": 0.5}])]).axes
    assert axis.get_xticks().tolist() == [7]


# --- files --------------------------------------------------------------------------------------------------------


def test_pictures_are_written_and_panels_without_data_are_named(tmp_path):
    run = written(tmp_path / "run", [{"step": 1, "reward": 0.5, "kl": 0.1}])
    plots = draw([run], tmp_path / "out", formats=("png", "svg"))
    names = {"overview", "reward", "kl"}
    assert {path.name for path in plots.paths} == {f"{n}.{kind}" for n in names for kind in ("png", "svg")}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in plots.paths}
    assert plots.paths[0].read_bytes().startswith(b"\x89PNG")
    assert set(plots.left_out) == {panel.name for panel in PANELS} - {"reward", "kl"}
    assert plots.left_out["accuracy"] == "EvaluationCallback"


def test_same_runs_give_the_same_bytes(tmp_path):
    run = written(tmp_path / "run", rows_of("reward", [0.1, 0.3, 0.2]))
    for name in ("one", "two"):
        plot_runs([run], tmp_path / name, formats=("png", "svg", "html"), panels=["reward"])
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_any_metric_can_be_a_panel_and_gets_a_harmless_file_name(tmp_path):
    run = written(tmp_path / "run", [{"step": 1, "../../up": 1.0, "clip/region": 2.0, "clip region": 3.0}])
    paths = plot_runs([run], tmp_path / "out", panels=["../../up", "clip/region", "clip region"])
    assert [path.name for path in paths] == ["overview.png", "up.png", "clip-region.png", "clip-region-2.png"]
    assert {path.parent for path in paths} == {tmp_path / "out"}


@pytest.mark.parametrize(("name", "file"), [("a/b c", "a-b-c"), ("..", "panel"), ("pass@1", "pass@1"), (".x", "x")])
def test_slug(name, file):
    assert slug(name) == file


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "$\\frac{1}{$", "_hidden", "a b", "%s{0}", "日本", "&amp;"]
)
def test_hostile_names_are_drawn_as_they_are(tmp_path, name):
    runs = [pathological(tmp_path, "plain"), pathological(tmp_path, name.replace("/", "∕"))]
    figure = figure_of("reward", runs)
    assert texts_of(figure) == ["plain", name.replace("/", "∕")]
    plot_runs(runs, tmp_path / "out", formats=("png", "svg"), panels=["reward"])
    assert "<script>" not in (tmp_path / "out" / "reward.svg").read_text(encoding="utf-8")


def test_group_named_like_a_run_gets_a_number(tmp_path):
    run = pathological(tmp_path, "a")
    lines = lines_of([run], {"a": [pathological(tmp_path, "b")]})
    assert [line.name for line in lines] == ["a", "a (2)"]


def test_unknown_panel_gets_did_you_mean(tmp_path):
    with pytest.raises(UserError, match=r"'rewrad' is neither a panel .* nor a metric of these runs; did you mean"):
        plot_runs([pathological(tmp_path, "a")], tmp_path / "out", panels=["rewrad"])


def test_unknown_format_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(UserError, match="format 'pgn': the formats are png, svg, html; did you mean 'png'"):
        plot_runs([tmp_path / "nothing"], tmp_path / "out", formats=("pgn",))


def test_no_data_for_any_panel_is_refused(tmp_path):
    with pytest.raises(UserError, match="hold metrics for none of the panels accuracy; name metrics of theirs"):
        plot_runs([pathological(tmp_path, "a")], tmp_path / "out", panels=["accuracy"])
    assert not (tmp_path / "out").exists()


def test_no_runs_are_refused(tmp_path):
    with pytest.raises(UserError, match="name a run"):
        plot_runs([], tmp_path)


def test_group_with_one_run_twice_is_refused(tmp_path):
    run = pathological(tmp_path, "a")
    with pytest.raises(UserError, match="group 'g' has the same run twice"):
        plot_runs([], tmp_path / "out", groups={"g": [run, run / "metrics.jsonl"]})


def test_negative_smoothing_is_refused(tmp_path):
    with pytest.raises(UserError, match="smooth=-1"):
        plot_runs([pathological(tmp_path, "a")], tmp_path / "out", smooth=-1)


def test_missing_matplotlib_is_told_with_the_command(tmp_path, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(_plot_draw.importlib.util, "find_spec", lambda n: None if n == "matplotlib" else find_spec(n))
    with pytest.raises(UserError, match="install it with `pip install matplotlib`"):
        plot_runs([pathological(tmp_path, "a")], tmp_path / "out")


def test_skipped_figures_are_one_line_a_run(tmp_path, caplog):
    run = written(tmp_path / "run", [{"step": 1, "reward": 0.5}, {"step": 2, "reward": NAN}])
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 3, "rew')
    plot_runs([run], tmp_path / "out", panels=["reward"])
    assert caplog.messages == ["Skipped in run: 1 figure that is not finite, 1 unreadable line."]


# --- legends do not cover data, labels do not overlap -------------------------------------------------------------


def _boxes(figure):
    """What each text that is seen says, and its box; labels of ticks beyond the limits are not drawn."""
    renderer = figure.canvas.get_renderer()
    unseen = set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        unseen |= {tick.label1 for tick in ticks if not low <= tick.get_loc() <= high}
    texts = [text for text in figure.findobj(matplotlib.text.Text) if text.get_visible() and text not in unseen]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_text().strip()]


def _overlap(one, other):
    """Pixels that two boxes share in the direction in which they share fewer."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    return min(width, min(one.y1, other.y1) - max(one.y0, other.y0))


@pytest.mark.parametrize("num_points", [1, 3, 1000])
@pytest.mark.parametrize("num_runs", [1, 8])
@pytest.mark.parametrize("panel", ["reward", "kl", "group_std", "step_time"])
def test_no_text_overlaps_another_or_leaves_the_picture(tmp_path, num_points, num_runs, panel):
    def row(step, seed):
        kl = 1e-4 * 10 ** (4 * step / num_points)
        parts = {f"rewards/a_long_name_of_a_reward_{i}/mean": step + i for i in range(3)}
        return {"step": step, "reward": step * seed, **parts, "kl": kl, "group_std": [0.1, 0.5], **TIMES}

    runs = [
        written(tmp_path / f"quite-a-long-name-of-a-run-{seed}", [row(i, seed) for i in range(1, num_points + 1)])
        for seed in range(1, num_runs + 1)
    ]
    figure = figure_of(panel, runs, title="A title")
    boxes = _boxes(figure)
    assert len(boxes) > 4
    frame = figure.bbox
    for index, (text, box) in enumerate(boxes):
        assert min(box.x0, box.y0) >= -1 and box.x1 <= frame.x1 + 1 and box.y1 <= frame.y1 + 1, text
        for other, other_box in boxes[index + 1 :]:
            assert _overlap(box, other_box) < 1, (text, other)


def test_legend_lies_outside_of_the_data(tmp_path):
    figure = figure_of("reward", [written(tmp_path / f"r{i}", rows_of("reward", [1.0, 2.0])) for i in range(8)])
    (legend,) = figure.legends
    box = legend.get_window_extent(figure.canvas.get_renderer())
    assert not any(box.overlaps(axis.get_window_extent()) for axis in figure.axes)


@pytest.mark.parametrize("panel", ["reward", "step_time"])
def test_legend_of_one_pair_of_axes_lies_below_their_label(tmp_path, panel):
    rows = [{"step": i, "reward": i, "rewards/a/mean": 2 * i, "rewards/b/mean": -i, **TIMES} for i in range(5)]
    figure = figure_of(panel, [written(tmp_path / "run", rows)])
    (axis,) = figure.axes
    renderer = figure.canvas.get_renderer()
    highest = max(text.get_window_extent(renderer).y1 for text in axis.get_legend().get_texts())
    assert highest <= axis.xaxis.label.get_window_extent(renderer).y0


# --- the demo's picture -------------------------------------------------------------------------------------------


def test_plot_training_draws_one_picture(tmp_path):
    run = written(tmp_path / "run", rows_of("reward", [0.1, 0.2]))
    picture = plot_training(run / "metrics.jsonl", tmp_path / "curves.png")
    assert picture == tmp_path / "curves.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_plot_training_without_figures_is_refused(tmp_path):
    run = written(tmp_path / "run", rows_of("other", [0.1]))
    with pytest.raises(UserError, match="holds no figures for these panels"):
        plot_training(run / "metrics.jsonl", tmp_path / "curves.png")
