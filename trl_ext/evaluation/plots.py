"""Curves of runs from their metrics files: pictures, and one page that needs no network."""

from __future__ import annotations

import itertools
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trl_ext._text import did_you_mean
from trl_ext.errors import UserError
from trl_ext.evaluation._plot_data import Line, Run, metrics_file, read_runs, unique_names
from trl_ext.evaluation._plot_draw import STYLE, Look, drawn, require_matplotlib, save
from trl_ext.evaluation._plot_panels import Cell, Panel, cells_of, chosen_panels

logger = logging.getLogger(__name__)

FORMATS = ("png", "svg", "html")
OVERVIEW = "overview"
PAGE = "plots.html"
_OVERVIEW_COLUMNS = 3
_LONGEST_FILE_NAME = 120  # file systems take 255 bytes, of which a suffix and a number need some

_PLURALS = {
    "figure that is not finite": "figures that are not finite",
    "line without a step": "lines without a step",
    "unreadable line": "unreadable lines",
}

# title of a panel -> (label, metric)
PPO_PANELS: dict[str, tuple[tuple[str, str], ...]] = {
    "Reward": (("mean reward of a completion", "reward"),),
    "Critic: explained variance": (
        ("before the update", "value/explained_variance"),
        ("after the update", "value/explained_variance_after"),
    ),
    "Critic: value loss": (("as trained", "value/loss"), ("unclipped", "value/loss_unclipped")),
    "KL to the reference (nats a completion)": (("KL", "policy/kl_ref_sequence"),),
}


@dataclass
class Plots:
    """What `draw` did.

    Args:
        paths: files written.
        left_out: panels without data, and who logs what they show.
        notes: what was skipped or cut off, a sentence each.
    """

    paths: list[Path] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def plot_runs(
    runs: Sequence[str | Path],
    output_dir: str | Path,
    *,
    formats: Sequence[str] = ("png",),
    groups: Mapping[str, Sequence[str | Path]] | None = None,
    panels: Sequence[str] | None = None,
    smooth: int = 0,
    title: str | None = None,
) -> list[Path]:
    """Draw a picture a panel and one overview of all, or one page; several runs share the axes.

    Args:
        runs (list of `str` or `Path`): Output folders of runs with a `metrics.jsonl`, or with the `trainer_state.json`
            of a stock trainer, or such files.
        output_dir (`str` or `Path`): Where `<panel>.png`, `overview.png` and `plots.html` go.
        formats (list of `str`): "png", "svg" and "html".
        groups (`dict`, *optional*): Name -> runs with different seeds, of which the mean is drawn and, as a band, the
            sample standard deviation: at the steps that all of them logged.
        panels (list of `str`, *optional*): Names of panels, or of any metrics; all panels by default.
        smooth (`int`): Steps of a moving mean, behind which the figures as logged stay to be seen; 0 for none.
        title (`str`, *optional*): Above every picture; the name of the run by default, if it is one.

    Returns:
        `list[Path]`: The files, the overview or the page first.

    Raises:
        UserError: For a run without metrics, an unknown format or panel, and where nothing could be drawn.

    A curve of more than 1,000 points is drawn by the smallest and the largest of each of 500 stretches.
    """
    plots = draw(runs, output_dir, formats=formats, groups=groups, panels=panels, smooth=smooth, title=title)
    for note in plots.notes:
        logger.warning(note)
    return plots.paths


def draw(
    runs: Sequence[str | Path],
    output_dir: str | Path,
    *,
    formats: Sequence[str] = ("png",),
    groups: Mapping[str, Sequence[str | Path]] | None = None,
    panels: Sequence[str] | None = None,
    smooth: int = 0,
    title: str | None = None,
) -> Plots:
    """`plot_runs`, with what was left out and skipped."""
    _check_formats(formats)
    if smooth < 0:
        raise UserError(
            f"smooth={smooth}: a moving mean takes 2 steps or more; 0 draws the figures as they were logged"
        )
    require_matplotlib()
    lines = lines_of(runs, groups or {})
    chosen = chosen_panels(panels, lines)
    cells = {panel: cells_of(panel, lines) for panel in chosen}
    shown = {panel: axes for panel, axes in cells.items() if axes}
    plots = Plots(left_out={panel.name: panel.source for panel, axes in cells.items() if not axes})
    if not shown:
        raise UserError(
            f"the runs hold metrics for none of the panels {', '.join(panel.name for panel in chosen)}; name metrics "
            f"of theirs as panels, such as {', '.join(list(lines[0].metrics)[:3])}"
        )
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    look = look_of(lines, smooth, title)
    for kind in formats:
        if kind == "html":
            plots.paths.append(_write_page(shown, lines, look, plots, folder))
        else:
            plots.paths += _write_pictures(shown, lines, look, folder, kind)
    plots.notes = notes_of(lines)
    return plots


def lines_of(runs: Sequence[str | Path], groups: Mapping[str, Sequence[str | Path]]) -> list[Line]:
    """What gets a colour: each of the runs, then each group.

    Raises:
        UserError: Without any run, for a group without one, and for a run that holds no metrics.
    """
    if not runs and not groups:
        raise UserError("name a run: the output folder of a training run, or its metrics.jsonl")
    for name, members in groups.items():
        if not members:
            raise UserError(f"group {name!r} has no runs; give them as name=run1,run2,run3")
        files = [metrics_file(Path(member)).resolve() for member in members]
        if len(set(files)) < len(files):
            raise UserError(f"group {name!r} has the same run twice; its spread would be too small")
    everything = read_runs([*runs, *(member for members in groups.values() for member in members)])
    singles, rest = everything[: len(runs)], everything[len(runs) :]
    found: list[tuple[str, list[Run]]] = [(run.name, [run]) for run in singles]
    for name, members in groups.items():
        found.append((name, rest[: len(members)]))
        rest = rest[len(members) :]
    return [Line(name, own) for name, (_, own) in zip(unique_names(n for n, _ in found), found, strict=True)]


def notes_of(lines: Sequence[Line]) -> list[str]:
    """What of these runs could not be drawn, a sentence each."""
    notes = []
    skipped = {run.name: +run.skipped for line in lines for run in line.runs if +run.skipped}
    if skipped:
        notes.append(f"Skipped in {'; '.join(f'{name}: {_counts(counts)}' for name, counts in skipped.items())}.")
    for line in lines:
        ends = {run.name: max(curve.steps[-1] for curve in run.curves.values()) for run in line.runs}
        first, last = min(ends, key=lambda name: ends[name]), max(ends.values())
        if ends[first] < last:
            notes.append(f"{line.name}: {first} ends at step {ends[first]:g}, and so does the mean (others: {last:g}).")
    return notes


def _counts(skipped: Counter[str]) -> str:
    return ", ".join(
        f"{count} {what if count == 1 else _PLURALS.get(what, what)}" for what, count in sorted(skipped.items())
    )


def _check_formats(formats: Sequence[str]) -> None:
    for kind in formats:
        if kind not in FORMATS:
            raise UserError(f"format {kind!r}: the formats are {', '.join(FORMATS)}{did_you_mean(kind, FORMATS)}")
    if not formats:
        raise UserError(f"name a format: {', '.join(FORMATS)}")


def look_of(lines: Sequence[Line], smooth: int, title: str | None) -> Look:
    """What all pictures of these lines share."""
    runs = [run for line in lines for run in line.runs]
    steps = [float(curve.steps[place]) for run in runs for curve in run.curves.values() for place in (0, -1)]
    stds = [std for run in runs for _, values in run.group_std for std in values]
    return Look(smooth, title, (min(steps), max(steps)), max(stds, default=0.0))


def _write_pictures(
    shown: Mapping[Panel, list[Cell]], lines: Sequence[Line], look: Look, folder: Path, kind: str
) -> list[Path]:
    import matplotlib

    pictures = {OVERVIEW: [cell for cells in shown.values() for cell in cells]}
    for panel, cells in shown.items():
        name = next(name for name in _names(slug(panel.name)) if name not in pictures)
        pictures[name] = cells
    paths = []
    with matplotlib.rc_context(STYLE):
        for name, cells in pictures.items():
            paths.append(folder / f"{name}.{kind}")
            columns = _OVERVIEW_COLUMNS if name == OVERVIEW else 2
            save(drawn(cells, lines, look, columns), paths[-1], kind)
    return paths


def _write_page(
    shown: Mapping[Panel, list[Cell]], lines: Sequence[Line], look: Look, plots: Plots, folder: Path
) -> Path:
    from trl_ext.evaluation.page import page

    text = page(shown, lines, look, plots.left_out)
    partial, path = folder / f"{PAGE}.partial", folder / PAGE
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
    return path


def _names(name: str) -> Iterator[str]:
    """The name, and further ones for metrics whose file names would be the same."""
    yield name
    yield from (f"{name}-{number}" for number in itertools.count(2))


def slug(name: str) -> str:
    """A file name without anything that a path or a shell would read otherwise, and not longer than one may be."""
    return re.sub(r"[^A-Za-z0-9_.@-]+", "-", name).strip(".-")[:_LONGEST_FILE_NAME] or "panel"


def plot_training(
    metrics: str | Path, output: str | Path, panels: dict[str, tuple[tuple[str, str], ...]] | None = None
) -> Path:
    """Draw the curves of a `metrics.jsonl` as a PNG.

    Args:
        metrics (`str` or `Path`): The metrics file.
        output (`str` or `Path`): The picture; written beside and renamed.
        panels (`dict`, *optional*): Title -> ((label, metric), ...); reward, critic and KL by default.

    Returns:
        `Path`: The picture.

    Raises:
        UserError: If there is nothing to draw.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from trl_ext.callbacks import read_metrics  # transformers comes with it

    rows, output = read_metrics(metrics), Path(output)
    panels = {title: curves for title, curves in (panels or PPO_PANELS).items() if _points(rows, curves[0][1])}
    if not panels:
        raise UserError(f"{metrics} holds no figures for these panels; `trl-ext plot` draws what there is")
    figure, axes = plt.subplots((len(panels) + 1) // 2, 2, figsize=(11, 3.6 * ((len(panels) + 1) // 2)), squeeze=False)
    for axis, (title, curves) in zip(axes.flat, panels.items(), strict=False):
        for label, metric in curves:
            points = _points(rows, metric)
            axis.plot([step for step, _ in points], [value for _, value in points], marker=".", label=label)
        axis.set(title=title, xlabel="step")
        axis.grid(alpha=0.3)
        if len(curves) > 1:
            axis.legend()
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    figure.tight_layout()
    partial = output.with_suffix(".partial.png")
    figure.savefig(partial, dpi=120)
    plt.close(figure)
    partial.replace(output)
    return output


def _points(rows: Sequence[dict[str, Any]], metric: str) -> list[tuple[int, float]]:
    return [(row["step"], row[metric]) for row in rows if row.get(metric) is not None]
