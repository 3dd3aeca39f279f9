"""What a run keeps while it goes: every log line as JSON."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

METRICS_FILE = "metrics.jsonl"


class MetricsWriter(TrainerCallback):
    """Append every log to `<output_dir>/metrics.jsonl`, one JSON object a line, flushed at once.

    Our trainers add "group_std": the standard deviation of the rewards of each prompt's completions, a list. A figure
    that is not finite is null.

    A resumed run drops the lines beyond the step it resumes from, so that no step is there twice. A new run in the
    same folder starts the file again and keeps the old one as `metrics.jsonl.old`.

    Args:
        output_dir (`str` or `Path`): Folder of the run.
    """

    def __init__(self, output_dir: str | Path) -> None:
        self.path = Path(output_dir) / METRICS_FILE

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero or not self.path.exists():
            return
        if state.global_step == 0:
            os.replace(self.path, self.path.with_suffix(".jsonl.old"))
            return
        rows = [row for row in read_metrics(self.path) if "train_runtime" not in row]  # an earlier end was not the end
        kept = [row for row in rows if _is_up_to(row.get("step", 0), state.global_step)]
        partial = self.path.with_suffix(".jsonl.partial")
        partial.write_text("".join(map(json_line, kept)), encoding="utf-8")
        os.replace(partial, self.path)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero or not logs:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        row = {"step": state.global_step, "time": round(time.time(), 3), **logs}
        if group_std := getattr(state, "group_std", None):  # a list, which loggers of numbers must not see
            row["group_std"] = [float(f"{value:.4g}") for value in group_std]
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json_line(row))


def json_line(row: Mapping[str, Any]) -> str:
    """A line of a metrics file. What is not finite becomes null, as JSON has no NaN.

    Example:

    ```python
    >>> json_line({"step": 1, "loss": float("nan")})
    '{"step": 1, "loss": null}\\n'

    ```
    """
    return json.dumps({name: _jsonable(value) for name, value in row.items()}, allow_nan=False) + "\n"


def _jsonable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_jsonable(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): _jsonable(one) for name, one in value.items()}
    if isinstance(value, (str, int, type(None))):
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def _is_up_to(step: Any, last: int) -> bool:
    """Lines of others, whose step is no number, are kept."""
    return not isinstance(step, (int, float)) or step <= last


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Rows of a metrics file; a last line cut short by a kill is left out."""
    rows = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows
