"""What a run shows and keeps while it goes: a progress bar, and every log line as JSON."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

METRICS_FILE = "metrics.jsonl"


class MetricsWriter(TrainerCallback):
    """Append every log to `<output_dir>/metrics.jsonl`, one JSON object a line, flushed at once.

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
        kept = [row for row in rows if row.get("step", 0) <= state.global_step]
        partial = self.path.with_suffix(".jsonl.partial")
        partial.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        os.replace(partial, self.path)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero or not logs:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        row = {"step": state.global_step, "time": round(time.time(), 3), **logs}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, default=float) + "\n")


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


# What is shown of the log, by the trainer's name: label and key.
_SHOWN = {
    "PPO": (("reward", "reward"), ("KL", "policy/kl_ref_sequence"), ("EV", "value/explained_variance")),
    "GRPO": (("reward", "reward"), ("KL", "kl"), ("flat groups", "frac_reward_zero_std")),
}


class ProgressBar(TrainerCallback):
    """One line: step, seconds left, and the figures by which one sees how the run goes.

    Those are the reward and the KL to the reference; of PPO the explained variance of the critic, and of GRPO the share
    of groups without anything to learn from.

    Args:
        name (`str`): Name of the trainer, which stands at the start of the line: "PPO" or "GRPO".
    """

    def __init__(self, name: str = "PPO") -> None:
        self.name = name
        self.shown = _SHOWN.get(name, (("reward", "reward"),))
        self._bar: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            from tqdm import tqdm

            layout = "{desc}: {n_fmt}/{total_fmt} |{bar:20}| {elapsed}, {remaining} left{postfix}"
            self._bar = tqdm(total=state.max_steps, initial=state.global_step, desc=self.name, bar_format=layout)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._bar is not None:
            self._bar.update(state.global_step - self._bar.n)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if self._bar is not None and logs:
            shown = {label: f"{logs[key]:.3f}" for label, key in self.shown if logs.get(key) is not None}
            if shown:
                self._bar.set_postfix(shown)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.close()

    def close(self) -> None:
        """End the line, so that what is printed next has its own; also where an error ends the run."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
