"""Panels as matplotlib figures: axes, scales, legends and colours."""

from __future__ import annotations

import importlib.util
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from trl_ext.errors import UserError
from trl_ext.evaluation._plot_data import Curve, Line, smoothed, thinned
from trl_ext.evaluation._plot_panels import Cell, scale_of

# Colours that stay apart with any colour vision (Okabe and Ito, jfly.uni-koeln.de/color), without their yellow and
# black: the one cannot be seen on white, the other not on a dark page. Purple and grey stand in for them.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7b52ab", "#6b6b6b")
INK, GRID = "#24292f", "#d0d7de"
MARKERS = "os^DvPX*"
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))  # after as many lines as there are colours
STYLE: Any = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that a picture is the same everywhere
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,  # a run may have a "$" in its name
    "svg.fonttype": "none",
    "svg.hashsalt": "trl-ext",
}
_MARKED_POINTS = 30  # with more points than these, markers are only there to tell curves apart
_STD_BINS = 16
_STEP_BINS = 60
_MOST_TICKS = 13
_SHADES = 32  # with more than 50, matplotlib puts an image into an SVG
_STACK_COLUMNS = 200
_CHARACTERS = 66  # of a legend that fit below one pair of axes
_LABEL_CHARACTERS = 34  # of the name of a run beside its bar
_LABEL_LINES = 14  # that fit beside the bars of one picture


@dataclass(frozen=True)
class Look:
    """What all pictures of a call share.

    Args:
        smooth: steps of the moving mean; 0 for none.
        title: above every picture.
        steps: first and last step of all runs.
        std_top: largest standard deviation of a group's rewards in all runs.
        is_page: the page says titles itself, and puts two axes side by side.
    """

    smooth: int
    title: str | None
    steps: tuple[float, float]
    std_top: float
    is_page: bool = False


def require_matplotlib() -> None:
    """Raise where matplotlib is not installed.

    Raises:
        UserError: With the command that installs it.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("drawing needs matplotlib; install it with `pip install matplotlib`")


def drawn(cells: Sequence[Cell], lines: Sequence[Line], look: Look, columns: int) -> Any:
    """The figure with these axes, in at most so many columns.

    To be called and saved inside `matplotlib.rc_context(STYLE)`.
    """
    from matplotlib.figure import Figure

    width, height = (5.6, 3.7) if columns == 2 else (5.2, 3.5)
    if len(cells) == 1 and not look.is_page:
        width, height = 7.4, 4.2
    columns = min(columns, len(cells))
    rows = -(-len(cells) // columns)
    if any(cell.kind == "time_bars" for cell in cells):
        height += 0.17 * max(0, sum(len(_bar_label(line)) for line in lines) - _LABEL_LINES)
    figure = Figure(figsize=(width * columns, height * rows + 0.4), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)  # type: ignore[union-attr,call-arg]
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, cell in zip(axes, cells, strict=False):
        _DRAW[cell.kind](axis, cell, lines, look)
        axis.set_title("\n".join(textwrap.wrap(cell.title, 52)))
    for axis in axes[len(cells) :]:
        axis.set_visible(False)
    title = _title(cells, lines, look)
    if title:
        figure.suptitle("\n".join(textwrap.wrap(title, 60 * columns)))
    if len(lines) > 1 and any(cell.kind == "curves" for cell in cells):
        _legend_of_lines(figure, lines, columns, above=rows > 2 and not title and not look.is_page)
    return figure


def _title(cells: Sequence[Cell], lines: Sequence[Line], look: Look) -> str | None:
    if look.is_page:
        return None
    if look.title or len(lines) == 1:
        return look.title or lines[0].label
    panels = {cell.panel.title for cell in cells}
    return panels.pop() if len(panels) == 1 and len(cells) > 1 else None


def save(figure: Any, target: Path | IO[bytes], kind: str, *, transparent: bool = False) -> None:
    """Write the figure as "png" or "svg"; a file is there whole or not at all."""
    metadata = {"Creator": None, "Date": None, "Format": None, "Type": None} if kind == "svg" else {"Software": None}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a name in another script
        if not isinstance(target, Path):
            figure.savefig(target, format=kind, metadata=metadata, transparent=transparent)
            return
        partial = target.with_name(f"{target.name}.partial")
        figure.savefig(partial, format=kind, metadata=metadata, dpi=120)
        partial.replace(target)


# --- curves -------------------------------------------------------------------------------------------------------


def _draw_curves(axis: Any, cell: Cell, lines: Sequence[Line], look: Look) -> None:
    if len(lines) == 1:
        shown = [(i, curve.label, lines[0].curve(*curve.metrics)) for i, curve in enumerate(cell.curves)]
    else:
        shown = [(i, line.label, line.curve(*cell.curves[0].metrics)) for i, line in enumerate(lines)]
    there = [(i, label, curve) for i, label, curve in shown if curve is not None]
    values = np.concatenate([curve.values for _, _, curve in there])
    scale, linear_below = scale_of(cell.panel, values[np.isfinite(values)])
    bounds = cell.panel.bounds or (-np.inf, np.inf)
    if scale == "log":  # a band that reaches 0 would have no lower edge
        bounds = (float(np.nanmin(values)) / 3, np.inf)
    for index, label, curve in there:
        _draw_curve(axis, curve, index, label, look, len(there), bounds)
    _set_scale(axis, scale, linear_below)
    if scale == "linear" and np.nanmax(values) == np.nanmin(values):  # or the axis shows five digits of noise
        level = float(np.nanmax(values))
        low, high = sorted((0.0, 2 * level)) if level else (-1.0, 1.0)
        least, most = cell.panel.bounds or (low, high)
        edge = 0.02 * (most - least)
        axis.set_ylim(max(low, least) - edge, min(high, most) + edge)
    if cell.panel.bounds is not None:
        _keep_within(axis, *cell.panel.bounds)
    axis.set_ylabel(cell.panel.unit)
    _step_axis(axis, look)
    if len(lines) == 1 and len(there) > 1:
        _legend_below(axis, [_handle(i) for i, _, _ in there], [label for _, label, _ in there])


def _draw_curve(
    axis: Any,
    curve: Curve,
    index: int,
    label: str,
    look: Look,
    num_curves: int,
    bounds: tuple[float, float],
) -> None:
    style = _style(index)
    style["markersize"] += 2.5 * (1 - (index + 1) / num_curves)  # of curves that coincide, each is seen
    if look.smooth > 1:
        raw = thinned(curve)
        faint = 0.25 if num_curves < 3 else 0.15
        axis.plot(raw.steps, raw.values, color=style["color"], alpha=faint, linewidth=0.7, label="_raw")
        curve = smoothed(curve, look.smooth)
    curve = thinned(curve)
    num_points = len(curve.steps)
    if num_points > _MARKED_POINTS:
        stride = num_points // 8
        style |= {"markevery": (index * stride // 8, stride), "linewidth": 1.1 if num_points > 200 else 1.5}
        style |= {"linewidth": 0.9, "alpha": 0.75} if num_curves > 2 and num_points > 200 and not look.smooth else {}
        style |= {"marker": None} if num_curves == 1 else {}  # few of many points would look like outliers
    axis.plot(curve.steps, curve.values, label=label, **style)
    # a point between two gaps is no line, and not every point has a marker
    there = np.isfinite(curve.values)
    isolated = there & ~np.append(False, there[:-1]) & ~np.append(there[1:], False)
    if num_points > _MARKED_POINTS and isolated.any():
        dots = {"color": style["color"], "linestyle": "none", "marker": ".", "markersize": 4, "label": "_isolated"}
        axis.plot(curve.steps[isolated], curve.values[isolated], **dots)
    if curve.std is not None:
        low, high = np.clip([curve.values - curve.std, curve.values + curve.std], *bounds)
        axis.fill_between(curve.steps, low, high, color=style["color"], alpha=0.18, linewidth=0)


def _style(index: int) -> dict[str, Any]:
    return {
        "color": PALETTE[index % len(PALETTE)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": DASHES[index // len(PALETTE) % len(DASHES)],
        "markersize": 4.5,
        "linewidth": 1.6,
    }


def _set_scale(axis: Any, scale: str, linear_below: float) -> None:
    if scale == "linear":
        return
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    axis.set_yscale(scale, **({"linthresh": linear_below} if scale == "symlog" else {}))
    if scale == "symlog":  # matplotlib labels powers of ten alone, and between -1 and -10 nothing can be read off
        low, high = axis.get_ylim()
        axis.yaxis.set_major_locator(FixedLocator(symlog_ticks(low, high, linear_below)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def symlog_ticks(low: float, high: float, linear_below: float) -> list[float]:
    """Ticks of an axis that is linear up to a size: in its linear part the halves, beyond it 1, 2 and 5 of each decade.

    Where that is more than a dozen, only powers of ten.

    Example:
        >>> symlog_ticks(-9.0, 1.0, 1.0)
        [-5.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0]
    """
    decades = max(0, int(np.ceil(np.log10(max(abs(low), abs(high), linear_below) / linear_below))))
    fine = [0.5, *(factor * 10.0**decade for decade in range(decades + 1) for factor in (1, 2, 5))]
    coarse = [10.0**decade for decade in range(0, decades + 1, 1 + decades // 7)]
    for sizes in (fine, coarse):
        ticks = sorted(sign * size * linear_below for size in sizes for sign in (-1.0, 1.0))
        ticks = [tick for tick in sorted([*ticks, 0.0]) if low <= tick <= high]
        if len(ticks) <= _MOST_TICKS:
            break
    return ticks


def _keep_within(axis: Any, low: float, high: float) -> None:
    """Less of what cannot be; values that are out of bounds all the same stay to be seen."""
    bottom, top = axis.get_ylim()
    data = axis.dataLim
    if data.ymin >= low and data.ymax <= high:
        edge = 0.02 * (high - low)
        axis.set_ylim(max(bottom, low - edge), min(top, high + edge))


def _step_axis(axis: Any, look: Look) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

    first, last = look.steps
    pad = 0.02 * (last - first) or 0.5
    axis.set_xlim(first - pad, last + pad)
    single = FixedLocator([first]) if first == last else None
    axis.xaxis.set_major_locator(single or MaxNLocator(integer=True, nbins=6, steps=[1, 2, 2.5, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda step, _: _short_step(step)))
    axis.set_xlabel("optimizer step")
    axis.grid(True)
    axis.set_axisbelow(True)


def _short_step(step: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(step) >= 10 * size:
            return f"{step / size:g}{letter}"
    return f"{step:g}"


# --- other kinds --------------------------------------------------------------------------------------------------


def _draw_group_std(axis: Any, cell: Cell, lines: Sequence[Line], look: Look) -> None:
    """Share of the groups of each stretch of steps by the standard deviation of their rewards."""
    from matplotlib import colormaps
    from matplotlib.colors import PowerNorm

    assert cell.line is not None
    points = [point for run in lines[cell.line].runs for point in run.group_std]
    steps = np.array([step for step, stds in points for _ in stds])
    stds = np.array([std for _, stds in points for std in stds])
    logged = np.unique([step for step, _ in points])
    stride = float(np.median(np.diff(logged))) if len(logged) > 1 else 1.0
    num_bins = min(_STEP_BINS, round((logged[-1] - logged[0]) / stride) + 1)
    edges = np.linspace(logged[0] - stride / 2, logged[-1] + stride / 2, num_bins + 1)
    std_edges = np.linspace(0.0, look.std_top or 1.0, _STD_BINS + 1)
    counts, _, _ = np.histogram2d(steps, stds, bins=(edges, std_edges))
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.ma.masked_equal(np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0), 0.0)
    # one scale for all runs, on which small shares can be told apart as well
    scale = {"cmap": colormaps["viridis"].resampled(_SHADES), "norm": PowerNorm(0.5, vmin=0.0, vmax=1.0)}
    mesh = axis.pcolormesh(edges, std_edges, shares.T, edgecolor="face", linewidth=0.2, **scale)
    bar = axis.figure.colorbar(mesh, ax=axis, label="share of the groups", pad=0.02, aspect=25)
    bar.solids.set_edgecolor("face")  # or viewers of an SVG show lines between the shades
    _step_axis(axis, look)
    axis.set_xlim(min(edges[0], look.steps[0]), max(edges[-1], look.steps[1]))
    axis.set_ylim(0.0, std_edges[-1])
    axis.set_ylabel(cell.panel.unit)


def _draw_time_stack(axis: Any, cell: Cell, lines: Sequence[Line], look: Look) -> None:
    """Seconds of a step over the steps, the parts on top of each other; means of stretches where there are many."""
    found = [curve for part in cell.curves if (curve := lines[0].curve(*part.metrics)) is not None]
    steps, widths, values = _stacked(found)
    # bars, not areas: a batch that serves several steps is generated in one of them, and an area would slant
    bottom = np.zeros(len(steps))
    for index, (row, part) in enumerate(zip(values, cell.curves, strict=True)):
        axis.bar(steps, row, widths, bottom=bottom, color=PALETTE[index], label=part.label, linewidth=0)
        bottom = bottom + row
    axis.set_ylabel(cell.panel.unit)
    _step_axis(axis, look)
    first, last = look.steps
    axis.set_xlim(min(first, steps[0] - widths[0]), max(last, steps[-1] + widths[-1]))
    _legend_below(axis, axis.containers, [part.label for part in cell.curves])


def _stacked(curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Middles and widths of bars (n,), and their heights (curves, n) with 0 in the gaps.

    A bar for each step at which any of the curves has a figure. Of many steps, a bar for each stretch of them, as wide
    as it is and as high as its mean: over the steps at which a curve has a figure, as in the bars of several runs.
    """
    steps = np.unique(np.concatenate([curve.steps[np.isfinite(curve.values)] for curve in curves]))
    values = np.full((len(curves), len(steps)), np.nan)
    for row, curve in zip(values, curves, strict=True):
        there = np.isfinite(curve.values)
        row[np.searchsorted(steps, curve.steps[there])] = curve.values[there]
    stride = float(np.median(np.diff(steps))) if len(steps) > 1 else 0.93
    if len(steps) <= _STACK_COLUMNS:
        width = 0.86 * stride if len(steps) <= _MARKED_POINTS else stride
        return steps, np.full(len(steps), width), np.nan_to_num(values)
    bounds = np.linspace(0, len(steps), _STACK_COLUMNS + 1).astype(int)
    counts = np.add.reduceat(np.isfinite(values).astype(int), bounds[:-1], axis=1)
    sums = np.add.reduceat(np.nan_to_num(values), bounds[:-1], axis=1)
    inner = (steps[bounds[1:-1] - 1] + steps[bounds[1:-1]]) / 2
    edges = np.array([steps[0] - stride / 2, *inner, steps[-1] + stride / 2])
    return (edges[:-1] + edges[1:]) / 2, np.diff(edges), sums / np.maximum(counts, 1)


def _bar_label(line: Line) -> list[str]:
    return textwrap.wrap(line.name, _LABEL_CHARACTERS) or [line.name]


def _draw_time_bars(axis: Any, cell: Cell, lines: Sequence[Line], look: Look) -> None:
    """Mean seconds of a step, a bar for each line."""
    curves = [[line.curve(*part.metrics) for part in cell.curves] for line in lines]
    means = np.array([[float(np.nanmean(c.values)) if c is not None else 0.0 for c in row] for row in curves])
    left = np.zeros(len(lines))
    for index, part in enumerate(cell.curves):
        axis.barh(range(len(lines)), means[:, index], left=left, color=PALETTE[index], label=part.label, height=0.7)
        left = left + means[:, index]
    for place, total in enumerate(left):
        axis.text(total, place, f" {total:.3g} s" if total else " not logged", va="center")
    axis.set_yticks(range(len(lines)), ["\n".join(_bar_label(line)) for line in lines], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel(cell.panel.unit)
    axis.set_xlim(0, 1.18 * (left.max() or 1.0))
    axis.grid(True, axis="x")
    axis.set_axisbelow(True)
    _legend_below(axis, axis.containers, [part.label for part in cell.curves])


_DRAW = {
    "curves": _draw_curves,
    "group_std": _draw_group_std,
    "time_stack": _draw_time_stack,
    "time_bars": _draw_time_bars,
}


# --- legends ------------------------------------------------------------------------------------------------------


def _handle(index: int) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], **_style(index))


def _columns_of(labels: Sequence[str], room: int) -> int:
    """Columns of a legend, by its longest label."""
    return max(1, min(4, len(labels), room // (max(map(len, labels)) + 7)))


def _legend_below(axis: Any, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Between the label of the x axis and the next picture, where no data is."""
    columns = _columns_of(labels, _CHARACTERS)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": columns}
    _spell(axis.legend(list(handles), [f"{i}" for i in range(len(labels))], frameon=False, **below), labels)


def _legend_of_lines(figure: Any, lines: Sequence[Line], columns: int, *, above: bool) -> None:
    labels = [line.label for line in lines]
    placed = {
        "loc": f"outside {'upper' if above else 'lower'} center",
        "ncols": _columns_of(labels, _CHARACTERS * columns),
    }
    handles = [_handle(index) for index in range(len(lines))]
    _spell(figure.legend(handles, [f"{i}" for i in range(len(labels))], frameon=False, **placed), labels)


def _spell(legend: Any, labels: Sequence[str]) -> None:
    """Give a legend its labels: matplotlib keeps those out that begin with "_"."""
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)
