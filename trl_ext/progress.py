"""What a run shows while it goes: one row of figures a log, and a bar with the time left."""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TextIO

from transformers import TrainerCallback

HEADER_EVERY = 25
NOT_KNOWN = "-"
EVALUATION = "eval"
_SEPARATOR = "  "
_GIBIBYTE = 2**30


class _Column(NamedTuple):
    title: str
    width: int
    read: Callable[[Mapping[str, float]], str | None]
    """Figures of a log -> text, None where they do not hold it."""
    keep: int
    """Columns of the lowest `keep` leave first where the terminal is narrow."""


def _number(*keys: str, digits: int = 3) -> Callable[[Mapping[str, float]], str | None]:
    """The first of `keys` that the figures hold, with so many significant decimals."""

    def read(figures: Mapping[str, float]) -> str | None:
        value = next((figures[key] for key in keys if figures.get(key) is not None), None)
        return None if value is None else _short(value, digits)

    return read


def _short(value: float, digits: int) -> str:
    if not math.isfinite(value):
        return str(float(value))
    if value != 0 and not 10**-digits <= abs(value) < 10**5:
        return f"{value:.1e}"
    return f"{value:.{digits}f}" if abs(value) < 100 else f"{value:.1f}"


def _reward(figures: Mapping[str, float]) -> str | None:
    if figures.get("reward") is None:
        return None
    spread = figures.get("reward_std")
    spread_text = "" if spread is None or math.isnan(spread) else f" ± {_short(spread, 2)}"
    return _short(figures["reward"], 3) + spread_text


def _clipped(figures: Mapping[str, float]) -> str | None:
    low, high = figures.get("policy/clip_frac_low"), figures.get("policy/clip_frac_high")
    if low is None or high is None:
        return _number("clip_ratio/region_mean", "clip_ratio")(figures)
    return _short(low + high, 3)


def _seconds(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def _memory(figures: Mapping[str, float]) -> str | None:
    used = figures.get("memory")
    return None if used is None else f"{used / _GIBIBYTE:.2f} GiB"


def _rate(figures: Mapping[str, float]) -> str | None:
    rate = figures.get("rate")
    return None if rate is None else f"{rate:,.0f}"


def _left(figures: Mapping[str, float]) -> str | None:
    left = figures.get("left")
    return None if left is None else _seconds(left)


COLUMNS = (
    _Column("reward", 15, _reward, 10),
    _Column("loss", 8, _number("loss"), 1),
    _Column("KL/seq", 7, _number("policy/kl_ref_sequence"), 8),
    _Column("KL/token", 8, _number("kl"), 8),
    _Column("clip", 6, _clipped, 4),
    _Column("EV", 7, _number("value/explained_variance"), 7),
    _Column("flat", 5, _number("frac_reward_zero_std", digits=2), 3),
    _Column("length", 7, _number("completions/mean_length", digits=1), 6),
    _Column("tokens/s", 8, _rate, 5),
    _Column("memory", 10, _memory, 2),
    _Column("left", 8, _left, 9),
)


class RichTable(TrainerCallback):
    """A row of figures for every log of a run, and below them a bar with the step and the time left.

    Shown is what the trainer logs of: reward ± standard deviation; KL to the reference, in nats, of a completion
    (`KL/seq`, PPO) or of a token (`KL/token`, GRPO); the clipped share of the tokens; the critic's explained variance
    (`EV`); the share of groups with equal rewards (`flat`); the mean length of completions in tokens; tokens a second,
    prompts included; the peak of the memory (of the GPU where there is one, else of the process); the time left, by
    the mean step since the start. A trainer without rewards shows its loss. Where the terminal is narrow, the least
    telling columns are left out. Figures of an evaluation stand in a line of their own.

    Where the output is no terminal, or a dumb one, each log is one plain line
    `PPO step 5/15  reward 0.531 ± 0.40  ...`. The rows stay in the terminal's history. Only the first process shows
    anything.

    Args:
        name (`str`): Name of the trainer, as it stands before the step.
        file (text file, *optional*): Where to write; `sys.stderr` by default.

    Example:

    ```python
    trainer = GRPOTrainer(..., callbacks=[RichTable("GRPO")])  # with disable_tqdm=True in its configuration
    trainer.remove_callback(PrinterCallback)
    ```
    """

    def __init__(self, name: str = "PPO", file: TextIO | None = None) -> None:
        self.name = name
        self.file = file
        self._columns: tuple[_Column, ...] = ()  # of all logs so far
        self._shown: tuple[_Column, ...] = ()  # those that fitted the terminal, under the last titles
        self._num_rows = 0
        self._screen: _Screen | None = None
        self._clock = _Clock()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.close()
        self._columns, self._shown, self._num_rows = (), (), 0
        if state.is_world_process_zero:
            self._clock.start(state.global_step)
            self._screen = _open_screen(self.file or sys.stderr, self.name, state.global_step, state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._screen is not None:
            self._screen.advance(state.global_step, self._clock.left(state.global_step, state.max_steps))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if self._screen is None or not logs or "train_runtime" in logs:
            return
        figures = {key: _as_float(value) for key, value in logs.items() if isinstance(value, (int, float))}
        if not _is_training(figures):
            self._screen.write(_in_words(state.global_step, figures), wrap=True)
            return
        figures |= self._clock.figures(state.global_step, state.max_steps, figures.get("num_tokens"))
        columns = _columns_of(figures, self._columns)
        cells = {column.title: column.read(figures) or NOT_KNOWN for column in columns}
        if self._screen.is_terminal:
            alarm = any(not math.isfinite(figures.get(key, 0.0)) for key in ("loss", "reward"))
            self._write_row(state, columns, cells, "bold red" if alarm else "")
        else:
            told = _SEPARATOR.join(f"{title} {text}" for title, text in cells.items() if text != NOT_KNOWN)
            self._screen.write(f"{self.name} step {state.global_step}/{state.max_steps}{_SEPARATOR}{told}")
        self._columns = columns

    def _write_row(self, state: Any, columns: tuple[_Column, ...], cells: Mapping[str, str], style: str) -> None:
        """The row under its titles, which come again after many rows and where the columns are others."""
        assert self._screen is not None
        width = 2 * len(str(state.max_steps)) + 1
        shown = _that_fit(columns, self._screen.width - width)
        if shown != self._shown or self._num_rows % HEADER_EVERY == 0:
            self._screen.write(_row("step", width, shown, {c.title: c.title for c in shown}), "bold")
            self._num_rows = 0
        self._shown = shown
        self._num_rows += 1
        self._screen.write(_row(f"{state.global_step}/{state.max_steps}", width, shown, cells), style)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.close()

    def close(self) -> None:
        """End the bar, so that what is printed next has a line of its own; also where an error ends the run."""
        if self._screen is not None:
            self._screen.close()
            self._screen = None


# of an evaluation's log: what the next row shows anyhow, or nobody reads in a line
_NOT_SHOWN = ("epoch", "step", "runtime", "samples_per_second", "steps_per_second", "num_tokens", "step_time")


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits
        return math.inf if value > 0 else -math.inf


def _is_training(figures: Mapping[str, float]) -> bool:
    """Whether a log is one of training: others, an evaluation's say, hold nothing that has a column."""
    return any(column.read(figures) is not None for column in COLUMNS)


def _in_words(step: int, figures: Mapping[str, float]) -> str:
    shown = {key.removeprefix(f"{EVALUATION}/").removeprefix(f"{EVALUATION}_"): v for key, v in figures.items()}
    told = _SEPARATOR.join(f"{key} {_short(value, 3)}" for key, value in shown.items() if key not in _NOT_SHOWN)
    return f"{'evaluation at ' if any(key.startswith(EVALUATION) for key in figures) else ''}step {step}: {told}"


def _columns_of(figures: Mapping[str, float], before: tuple[_Column, ...]) -> tuple[_Column, ...]:
    """The columns that this log or an earlier one has figures for; the loss only where there is no reward."""
    always = ("left", "tokens/s") if "num_tokens" in figures else ("left",)
    found = [c for c in COLUMNS if c in before or c.title in always or c.read(figures) is not None]
    has_reward = any(column.title == "reward" for column in found)
    return tuple(column for column in found if not (has_reward and column.title == "loss"))


def _that_fit(columns: tuple[_Column, ...], width: int) -> tuple[_Column, ...]:
    kept = list(columns)
    while len(kept) > 1 and sum(column.width + len(_SEPARATOR) for column in kept) > width:
        kept.remove(min(kept, key=lambda column: column.keep))
    return tuple(kept)


def _row(step: str, width: int, columns: tuple[_Column, ...], cells: Mapping[str, str]) -> str:
    parts = [step.rjust(width)]
    return _SEPARATOR.join([*parts, *(cells[column.title].rjust(column.width) for column in columns)])


class _Clock:
    """Time and tokens since the last log, and the time left by the mean step since the start."""

    def start(self, step: int) -> None:
        self.first_step = step
        self.began = self.last_time = time.monotonic()
        self.last_tokens: float | None = None

    def left(self, step: int, max_steps: int) -> float | None:
        done = step - self.first_step
        return (time.monotonic() - self.began) / done * (max_steps - step) if done > 0 else None

    def figures(self, step: int, max_steps: int, num_tokens: float | None) -> dict[str, float]:
        """`left`, `rate` and `memory`; a resumed run counts its tokens on, so the first log has no rate."""
        now = time.monotonic()
        known = {"memory": _peak_memory(), "left": self.left(step, max_steps)}
        figures = {name: value for name, value in known.items() if value is not None}
        if num_tokens is not None:
            counted = self.last_tokens if self.last_tokens is not None else (0.0 if self.first_step == 0 else None)
            if counted is not None and now > self.last_time:
                figures["rate"] = (num_tokens - counted) / (now - self.last_time)
            self.last_tokens = num_tokens
        self.last_time = now
        return figures


def _peak_memory() -> float | None:
    """Bytes: what torch has taken on the GPU at most, else the peak of the process."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return float(torch.cuda.max_memory_allocated())
    try:
        import resource
    except ImportError:  # Windows has no such module
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)


class _Screen:
    """Plain lines, flushed one by one."""

    is_terminal = False

    def __init__(self, file: TextIO) -> None:
        self.file = file

    @property
    def width(self) -> int:
        """Characters of a line, as the window is now."""
        return 0

    def write(self, text: str, style: str = "", *, wrap: bool = False) -> None:
        """A row, of which a terminal cuts what is beyond its width, or with `wrap` a text that goes on below."""
        print(text, file=self.file, flush=True)

    def advance(self, step: int, left: float | None) -> None:
        pass

    def close(self) -> None:
        pass


class _Terminal(_Screen):
    """Rows above a bar that `rich` keeps at the bottom; what others print meanwhile goes above it, too."""

    is_terminal = True

    def __init__(self, file: TextIO, name: str, step: int, max_steps: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.console = Console(file=file)
        texts = (TextColumn("{task.description}: {task.completed:.0f}/{task.total:.0f}"), BarColumn(bar_width=20))
        left = TextColumn("{task.fields[left]} left")
        self.progress = Progress(*texts, TimeElapsedColumn(), TextColumn("elapsed,"), left, console=self.console)
        self.task = self.progress.add_task(name, total=max_steps, completed=step, left="?")
        self.progress.start()
        atexit.register(self.close)  # an error of a trainer that does not close it must not leave the cursor hidden

    @property
    def width(self) -> int:
        return self.console.width

    def write(self, text: str, style: str = "", *, wrap: bool = False) -> None:
        fit: dict[str, Any] = {} if wrap else {"no_wrap": True, "overflow": "ellipsis"}
        self.console.print(text, style=style or None, markup=False, highlight=False, **fit)

    def advance(self, step: int, left: float | None) -> None:
        self.progress.update(self.task, completed=step, left="?" if left is None else _seconds(left))

    def close(self) -> None:
        atexit.unregister(self.close)
        self.progress.stop()


def _open_screen(file: TextIO, name: str, step: int, max_steps: int) -> _Screen:
    if not file.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):  # which cannot redraw a line
        return _Screen(file)
    try:
        return _Terminal(file, name, step, max_steps)
    except ImportError:  # without rich: the lines of a pipe
        return _Screen(file)
