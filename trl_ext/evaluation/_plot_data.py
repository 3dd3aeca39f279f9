"""Runs as they are drawn: their metrics, read once, with gaps kept and what cannot be drawn counted."""

from __future__ import annotations

import itertools
import json
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trl_ext.errors import UserError

METRICS_FILE = "metrics.jsonl"
STATE_FILE = "trainer_state.json"
CONFIG_FILE = "config_resolved.yaml"
GROUP_STD = "group_std"
MOST_POINTS = 1000  # of a curve as drawn, which is as many as a picture has columns of pixels
LARGEST = 1e100  # what is larger cannot be told from infinity in a picture, and breaks its scales
_LONGEST_NAME = 48


@dataclass(frozen=True)
class Curve:
    """One metric over the steps.

    Args:
        steps: (n,) optimizer steps, increasing.
        values: (n,) figures; NaN is a gap.
        std: (n,) standard deviation over the runs of a group; None for a single run.
    """

    steps: np.ndarray
    values: np.ndarray
    std: np.ndarray | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not np.isfinite(self.values).any()


@dataclass
class Run:
    """What was logged in one run.

    Args:
        name: what it is called in legends.
        source: file that the metrics were read from.
        curves: metrics by name.
        group_std: step, and the standard deviations of the rewards of its prompts' completions.
        skipped: how many of what could not be drawn.
    """

    name: str
    source: Path
    curves: dict[str, Curve]
    group_std: list[tuple[float, list[float]]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def folder(self) -> Path:
        """Folder of the run, also where its metrics come from one of its checkpoints."""
        parent = self.source.parent
        return parent.parent if parent.name.startswith("checkpoint-") else parent


@dataclass
class Line:
    """What gets a colour of its own: a run, or several of which mean and spread are drawn.

    Args:
        name: in the legend.
        runs: one, or the seeds of a group.
    """

    name: str
    runs: list[Run]

    @property
    def label(self) -> str:
        """Name, with the number of seeds of a group."""
        return self.name if len(self.runs) == 1 else f"{self.name} (mean ± std, n={len(self.runs)})"

    def curve(self, *metrics: str) -> Curve | None:
        """The first of the metrics that was logged: of the run, or the mean over the runs of the group."""
        for metric in metrics:
            found = [run.curves[metric] for run in self.runs if metric in run.curves]
            curve = mean_curve(found) if len(self.runs) > 1 and found else next(iter(found), None)
            if curve is not None and not curve.is_empty:
                return curve
        return None

    @property
    def metrics(self) -> dict[str, None]:
        """Names of what was logged, in order of first appearance."""
        return dict.fromkeys(metric for run in self.runs for metric in run.curves)


def read_runs(paths: Sequence[str | Path]) -> list[Run]:
    """Runs from folders or metrics files, under names that tell them apart.

    Args:
        paths: output folders of runs, metrics files (JSON lines) or `trainer_state.json` files.

    Raises:
        UserError: For a path that is not there, and for one that holds no figures.
    """
    files = [metrics_file(Path(path)) for path in paths]
    return [read_run(file, name) for file, name in zip(files, run_names(files), strict=True)]


def metrics_file(path: Path) -> Path:
    """The file with the metrics of a run: `metrics.jsonl`, else the last `trainer_state.json` of a stock trainer."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise UserError(f"there is no run {path}; give the output folder of a training run, or its {METRICS_FILE}")
    if (path / METRICS_FILE).is_file():
        return path / METRICS_FILE
    if (state := _newest_state(path)) is not None:
        return state
    raise UserError(
        f"{path} holds neither {METRICS_FILE} nor {STATE_FILE}; give the output folder of a training run "
        "(`trl_ext.callbacks.MetricsWriter` writes the first, every checkpoint holds the second)"
    )


def _rows_of_state(file: Path, skipped: Counter[str]) -> list[Any]:
    """What a trainer logged, as far as its state can be read."""
    try:
        return list(_rows(file))
    except UserError:
        skipped[f"unreadable {STATE_FILE}"] += 1
        return []


def _newest_state(folder: Path) -> Path | None:
    """The `trainer_state.json` of a run: its own, else that of its last checkpoint."""
    checkpoints = [one for one in folder.glob("checkpoint-*") if one.name.removeprefix("checkpoint-").isdecimal()]
    newest = sorted(checkpoints, key=lambda one: -int(one.name.removeprefix("checkpoint-")))
    return next((one / STATE_FILE for one in (folder, *newest) if (one / STATE_FILE).is_file()), None)


def run_names(files: Sequence[Path]) -> list[str]:
    """A name for each metrics file: that of its folder, with as many folders above as tell it from the others."""
    parts = [_name_parts(file.resolve()) for file in files]
    depth = dict.fromkeys(parts, 1)  # the same run given twice stays the same name
    for _ in range(max((len(one) for one in depth), default=0)):
        count = Counter("/".join(one[-d:]) for one, d in depth.items())
        depth = {one: min(d + (count["/".join(one[-d:])] > 1), len(one)) for one, d in depth.items()}
    return unique_names("/".join(one[-depth[one] :]) for one in parts)


def unique_names(names: Iterable[str]) -> list[str]:
    """Names of one line each, short enough for a legend; the second of the same name gets " (2)"."""
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        clean = "".join(c if c.isprintable() else "?" for c in name).strip() or "?"
        if len(clean) > _LONGEST_NAME:
            clean = f"{clean[:14]}…{clean[15 - _LONGEST_NAME :]}"  # names of runs differ at their ends
        seen[clean] += 1
        result.append(clean if seen[clean] == 1 else f"{clean} ({seen[clean]})")
    return result


def _name_parts(file: Path) -> tuple[str, ...]:
    if file.name not in (METRICS_FILE, STATE_FILE):
        return (*file.parent.parts, file.stem)
    folder = file.parent
    return folder.parent.parts if folder.name.startswith("checkpoint-") else folder.parts


def read_run(file: Path, name: str) -> Run:
    """The run whose metrics `file` holds.

    Lines that are no JSON object (the last one of a run that was killed), lines without a step and figures that are
    not finite are left out and counted. Of two lines with the same step the later one counts. A figure that is null or
    not finite is a gap. Where `metrics.jsonl` holds nothing that a trainer logged, the newest `trainer_state.json`
    beside it is read, too.

    Raises:
        UserError: If it holds no figures.
    """
    table, is_of_trainer = _Table(), file.name != METRICS_FILE
    for row in _rows(file):
        table.add(row)
        is_of_trainer = is_of_trainer or (isinstance(row, dict) and "epoch" in row)
    if not is_of_trainer and (state := _newest_state(file.parent)) is not None:
        # An evaluation callback has written the file, beside a trainer whose own figures are in its checkpoints.
        table = _Table()
        for row in itertools.chain(_rows_of_state(state, table.skipped), _rows(file)):
            table.add(row)
    run = Run(name, file, table.curves(), table.group_stds(), +table.skipped)
    if not run.curves:
        raise UserError(f"{file} holds no metrics yet; let the run log at least one step (--logging_steps), then plot")
    return run


def _rows(file: Path) -> Iterator[Any]:
    """Rows of a metrics file or of a trainer's state; None for what is none."""
    if file.suffix == ".json":
        try:
            state = json.loads(file.read_text(encoding="utf-8", errors="replace"))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{file} is no valid JSON ({error}); plot an earlier checkpoint") from error
        rows = state.get("log_history") if isinstance(state, dict) else state
        yield from rows if isinstance(rows, list) else []
        return
    with file.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in lines:
            if line.strip():
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError):
                    yield None


class _Table:
    """Columns of numbers that grow a row at a time; 8 bytes a figure, so that a long run fits."""

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        self._columns: dict[str, tuple[array[float], array[float]]] = {}
        self._group_std: dict[float, list[float]] = {}

    def add(self, row: Any) -> None:
        if not isinstance(row, dict):
            self.skipped["unreadable line"] += 1
            return
        step = _number(row.get("step"))
        if step is None or not abs(step) <= LARGEST:
            self.skipped["line without a step"] += 1
            return
        for key, value in row.items():
            if key == GROUP_STD and isinstance(value, list):
                numbers = [number for number in map(_number, value) if number is not None]
                self._group_std[step] = [number for number in numbers if 0 <= number <= LARGEST]
                self.skipped["figure that is not finite"] += len(numbers) - len(self._group_std[step])
            elif key not in ("step", "time") and (number := _number(value)) is not None:
                self._put(key, step, number, given=value is not None)

    def _put(self, key: str, step: float, value: float, given: bool) -> None:
        if not abs(value) <= LARGEST:
            self.skipped["figure that is not finite"] += given
            value = math.nan
        steps, values = self._columns.setdefault(key, (array("d"), array("d")))
        steps.append(step)
        values.append(value)

    def curves(self) -> dict[str, Curve]:
        found = {}
        for key, (all_steps, all_values) in self._columns.items():
            steps, values = np.array(all_steps), np.array(all_values)
            order = np.argsort(steps, kind="stable")
            steps, values = steps[order], values[order]
            is_last = np.append(steps[1:] != steps[:-1], True)
            curve = Curve(steps[is_last], values[is_last])
            if not curve.is_empty:
                found[key] = curve
        return found

    def group_stds(self) -> list[tuple[float, list[float]]]:
        return sorted((step, values) for step, values in self._group_std.items() if values)


def _number(value: Any) -> float | None:
    """A figure as a float, NaN for null; None for what is no figure."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def read_settings(run: Run) -> dict[str, Any]:
    """Settings of the run from its `config_resolved.yaml`; empty where it has none that can be read."""
    file = run.folder / CONFIG_FILE
    if not file.is_file():
        return {}
    import yaml

    try:
        settings = yaml.safe_load(file.read_text(encoding="utf-8", errors="replace"))
    except (yaml.YAMLError, RecursionError):
        run.skipped[f"unreadable {CONFIG_FILE}"] += 1
        return {}
    return {str(key): value for key, value in settings.items()} if isinstance(settings, dict) else {}


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """Mean and sample standard deviation at the steps that all curves have; a gap in one is a gap in the mean.

    Example:
        >>> steps = np.array([1.0, 2.0])
        >>> mean = mean_curve([Curve(steps, np.array([0.0, 1.0])), Curve(steps, np.array([2.0, 1.0]))])
        >>> mean.values.tolist(), mean.std.round(3).tolist()
        ([1.0, 1.0], [1.414, 0.0])
    """
    steps = curves[0].steps
    for curve in curves[1:]:
        steps = np.intersect1d(steps, curve.steps, assume_unique=True)
    values = np.stack([curve.values[np.searchsorted(curve.steps, steps)] for curve in curves])
    std = values.std(axis=0, ddof=1) if len(curves) > 1 else None
    return Curve(steps, values.mean(axis=0), std)


def smoothed(curve: Curve, num_steps: int) -> Curve:
    """Mean of each point and those before it in the last `num_steps` steps; gaps are left out of it and stay gaps.

    Steps and not points are counted, so that a curve with a point every 100 steps stays as it is.

    Example:
        >>> smoothed(Curve(np.arange(4.0), np.array([1.0, 3.0, np.nan, 5.0])), 2).values.tolist()
        [1.0, 2.0, nan, 5.0]
    """
    is_there = np.isfinite(curve.values)
    count = _window_sums(is_there.astype(float), curve.steps, num_steps)

    def mean(values: np.ndarray) -> np.ndarray:
        sums = _window_sums(np.where(is_there, values, 0.0), curve.steps, num_steps)
        return np.where(is_there, sums / np.maximum(count, 1), np.nan)

    return Curve(curve.steps, mean(curve.values), None if curve.std is None else mean(curve.std))


def _window_sums(values: np.ndarray, steps: np.ndarray, num_steps: int) -> np.ndarray:
    """Sums over the last steps, each added up on its own: in a running total, one huge value would swallow others."""
    stops = np.arange(1, len(values) + 1)
    starts = np.searchsorted(steps, steps - num_steps, side="right")
    bounds = np.stack([starts, stops], axis=1).ravel()
    sums: np.ndarray = np.add.reduceat(np.append(values, 0.0), bounds)[::2]
    return sums


def thinned(curve: Curve, most: int = MOST_POINTS) -> Curve:
    """The curve with at most about `most` points: the smallest and the largest of each of `most / 2` stretches.

    Peaks stay as high as they are; a gap shorter than a stretch closes.
    """
    if len(curve.steps) <= most:
        return curve
    kept = {0, len(curve.steps) - 1}
    bounds = np.linspace(0, len(curve.steps), most // 2 + 1).astype(int)
    for start, stop in itertools.pairwise(bounds.tolist()):
        stretch = curve.values[start:stop]
        if np.isfinite(stretch).any():
            kept |= {start + int(np.nanargmin(stretch)), start + int(np.nanargmax(stretch))}
        else:
            kept.add(start)
    index = np.array(sorted(kept))
    return Curve(curve.steps[index], curve.values[index], None if curve.std is None else curve.std[index])
