"""Curves of a run from its metrics file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trl_ext.callbacks import read_metrics

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
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows, output = read_metrics(metrics), Path(output)
    panels = {title: curves for title, curves in (panels or PPO_PANELS).items() if _points(rows, curves[0][1])}
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
