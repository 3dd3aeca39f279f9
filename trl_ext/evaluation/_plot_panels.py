"""What is drawn: panels, the metrics that belong into each, and the axes that they take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trl_ext._text import did_you_mean
from trl_ext.errors import UserError
from trl_ext.evaluation._plot_data import Curve, Line

MOST_CURVES = 16  # of one panel; a metric beyond them can be named as a panel of its own
CURVES_AN_AXES = 8  # as many as the palette has colours
TIME_PARTS = {
    "time/generate": "generating",
    "time/score": "scoring",
    "time/prepare": "log-probabilities, values",
    "time/update": "updating",
    "time/other": "other",
}


@dataclass(frozen=True)
class Panel:
    """One picture.

    Args:
        name: of `--panels` and of the file.
        title: above the axes.
        unit: label of the y axis.
        metrics: (pattern of a metric's whole name, label of its curve; `{1}` is the first group of the pattern).
        source: who logs them, for the message about a panel without data.
        first_only: patterns are alternatives, of which the first that was logged is drawn.
        can_be_log: the y axis is logarithmic where values span two decades and none is negative.
        bounds: values lie between these, and the y axis does not reach far beyond.
        linear_below: beyond five times this size the y axis is linear up to it, and logarithmic further on.
        kind: "curves", "group_std" or "step_time".
    """

    name: str
    title: str
    unit: str
    metrics: tuple[tuple[str, str], ...] = ()
    source: str = "every trainer"
    first_only: bool = False
    can_be_log: bool = False
    bounds: tuple[float, float] | None = None
    linear_below: float | None = None
    kind: str = "curves"


_CALLBACK = "EvaluationCallback"
_PPO = "PPOTrainer"
_SHARE = (0.0, 1.0)
PANELS: tuple[Panel, ...] = (
    Panel(
        "reward",
        "Reward",
        "reward of a completion (mean)",
        ((r"reward", "total"), (r"rewards/(.+)/mean", "{1}"), (r"eval_reward", "evaluation set")),
        "every trainer with reward functions",
    ),
    Panel(
        "accuracy",
        "Accuracy",
        "share of problems",
        ((r"(.+)/((?:pass|cons|mean|best)@\d+)", "{1} {2}"),),
        _CALLBACK,
        bounds=_SHARE,
    ),
    Panel(
        "response_length",
        "Response length",
        "tokens a completion (mean)",
        (
            (r"completions/mean_length", "training"),
            (r"(.+)/response_length", "{1}"),
            (r"eval_completions/mean_length", "evaluation set"),
        ),
    ),
    Panel(
        "truncated",
        "Cut at the length limit",
        "share of completions",
        ((r"completions/clipped_ratio", "training"), (r"(.+)/truncated", "{1}")),
        bounds=_SHARE,
    ),
    Panel(
        "format",
        "Format and language",
        "share of completions",
        ((r"(.+)/format_rate", "{1}, format as asked"), (r"(.+)/language_consistency", "{1}, language as asked")),
        _CALLBACK,
        bounds=_SHARE,
    ),
    Panel(
        "kl",
        "KL to the reference, a token",
        "nats a token",
        ((r"policy/kl_ref_token", "KL"), (r"kl", "KL")),
        "trainers with beta > 0",
        first_only=True,
        can_be_log=True,
    ),
    Panel(
        "kl_sequence",
        "KL to the reference, a completion",
        "nats a completion",
        ((r"policy/kl_ref_sequence", "KL"),),
        f"{_PPO} with beta > 0",
        can_be_log=True,
    ),
    Panel(
        "entropy",
        "Entropy of the policy",
        "nats a token",
        ((r"policy/entropy", "entropy"), (r"entropy", "entropy")),
        first_only=True,
    ),
    Panel(
        "critic_loss",
        "Critic: loss",
        "squared reward",
        ((r"value/loss", "as trained"), (r"value/loss_unclipped", "without clipping")),
        _PPO,
        can_be_log=True,
    ),
    Panel(
        "explained_variance",
        "Critic: explained variance",
        "share of the returns' variance",
        (
            (r"value/explained_variance", "before the update"),
            (r"value/explained_variance_after", "after the update"),
        ),
        _PPO,
        linear_below=1.0,
    ),
    Panel("bias", "Critic: bias", "value minus return (mean)", ((r"value/bias", "bias"),), _PPO),
    Panel(
        "group_std",
        "Spread of the rewards of a prompt",
        "standard deviation of a group",
        source="trl-ext's trainers with num_generations > 1 and MetricsWriter",
        kind="group_std",
    ),
    Panel(
        "flat_groups",
        "Prompts whose completions all got the same reward",
        "share of prompts",
        ((r"frac_reward_zero_std", "equal rewards"),),
        "GRPO trainers",
        bounds=_SHARE,
    ),
    Panel(
        "step_time",
        "Time of a step",
        "seconds a step",
        ((r"time/step", "step"), (r"step_time", "step")),
        "GRPO trainers",
        first_only=True,
        kind="step_time",
    ),
    Panel("loss", "Loss", "loss as logged", ((r"loss", "training"), (r"eval_loss", "evaluation set")), can_be_log=True),
)


@dataclass(frozen=True)
class Shown:
    """One curve of a panel.

    Args:
        metrics: of which the first that a run logged is drawn.
        label: in the legend.
    """

    metrics: tuple[str, ...]
    label: str


@dataclass(frozen=True)
class Cell:
    """One pair of axes of a panel.

    Args:
        panel: that it belongs to.
        title: above it.
        curves: what it shows.
        line: index of the line that it shows alone; None where it shows all of them.
        kind: "curves", "group_std", "time_stack" (one line over the steps) or "time_bars" (means of several).
    """

    panel: Panel
    title: str
    curves: tuple[Shown, ...] = ()
    line: int | None = None
    kind: str = "curves"


def chosen_panels(names: Sequence[str] | None, lines: Sequence[Line]) -> list[Panel]:
    """All panels, or those named; a name that is no panel's may be a metric's, which gets a panel of its own.

    Raises:
        UserError: For a name that is neither.
    """
    if names is None:
        return list(PANELS)
    known = {panel.name: panel for panel in PANELS}
    logged = {metric for line in lines for metric in line.metrics}
    found = {}
    for name in names:
        if name not in known and name not in logged:
            hint = did_you_mean(name, [*known, *sorted(logged)])
            raise UserError(
                f"panels: {name!r} is neither a panel ({', '.join(known)}) nor a metric of these runs"
                f"{hint or '; the names are those of metrics.jsonl'}"
            )
        own = Panel(name, name, "value as logged", ((re.escape(name), name),), can_be_log=True)
        found[name] = known.get(name, own)
    return list(found.values())


def cells_of(panel: Panel, lines: Sequence[Line]) -> list[Cell]:
    """The axes of a panel, none where nothing was logged for it.

    One line: its curves share axes. Several: each curve has axes of its own, on which colours tell the lines apart.
    """
    if panel.kind == "group_std":
        return _spread_cells(panel, lines)
    if panel.kind == "step_time" and any(line.curve("time/generate") for line in lines):
        parts = tuple(Shown((m,), label) for m, label in TIME_PARTS.items() if any(line.curve(m) for line in lines))
        kind, title = ("time_stack", panel.title) if len(lines) == 1 else ("time_bars", f"{panel.title} by part (mean)")
        return [Cell(panel, title, parts, kind=kind)]
    curves = curves_of(panel, lines)
    if len(lines) > 1:
        titles = [panel.title if len(curves) == 1 else f"{panel.title}: {curve.label}" for curve in curves]
        return [Cell(panel, title, (curve,)) for title, curve in zip(titles, curves, strict=True)]
    parts_of = [tuple(curves[i : i + CURVES_AN_AXES]) for i in range(0, len(curves), CURVES_AN_AXES)]
    titles = [panel.title if not i else f"{panel.title} ({i + 1})" for i in range(len(parts_of))]
    return [Cell(panel, title, part) for title, part in zip(titles, parts_of, strict=True)]


def _spread_cells(panel: Panel, lines: Sequence[Line]) -> list[Cell]:
    there = [index for index, line in enumerate(lines) if any(run.group_std for run in line.runs)]
    titles = [panel.title if len(lines) == 1 else f"Spread of the rewards: {lines[index].name}" for index in there]
    return [Cell(panel, title, line=index, kind="group_std") for title, index in zip(titles, there, strict=True)]


def curves_of(panel: Panel, lines: Sequence[Line]) -> list[Shown]:
    """Everything logged for the panel; a curve that repeats an earlier one is left out."""
    logged = dict.fromkeys(metric for line in lines for metric in line.metrics)
    found: dict[str, str] = {}
    for pattern, label in panel.metrics:
        for metric in logged:
            match = re.fullmatch(pattern, metric)
            if match and metric not in found and any(line.curve(metric) for line in lines):
                found[metric] = label.replace("{1}", match[1] if match.re.groups else "")
                found[metric] = found[metric].replace("{2}", match[2] if match.re.groups > 1 else "")
    if panel.first_only and found:
        return [Shown(tuple(found), next(iter(found.values())))]
    kept: list[Shown] = []
    for metric, label in found.items():
        if not any(_same(metric, other.metrics[0], lines) for other in kept):
            kept.append(Shown((metric,), label))
    return _without_common_name(panel, kept)[:MOST_CURVES]


def _without_common_name(panel: Panel, curves: list[Shown]) -> list[Shown]:
    """ "eval pass@1" is "pass@1" where all evaluations have the same name."""
    starts = {curve.metrics[0].rpartition("/")[0] for curve in curves}
    if panel.source != _CALLBACK or len(starts) > 1:
        return curves
    (start,) = starts or {""}
    return [replace(curve, label=curve.label.removeprefix(start).lstrip(", ")) for curve in curves]


def _same(first: str, second: str, lines: Sequence[Line]) -> bool:
    pairs = [(line.curve(first), line.curve(second)) for line in lines]
    return all(_equal(one, other) for one, other in pairs)


def _equal(one: Curve | None, other: Curve | None) -> bool:
    """Whether two curves could not be told apart."""
    if one is None or other is None:
        return one is other
    same_steps = np.array_equal(one.steps, other.steps)
    return same_steps and np.allclose(one.values, other.values, rtol=1e-5, atol=0.0, equal_nan=True)


def scale_of(panel: Panel, values: np.ndarray) -> tuple[str, float]:
    """Scale of the y axis for these finite values, and up to which size a "symlog" one is linear.

    Example:
        >>> scale_of(Panel("kl", "", "", can_be_log=True), np.array([1e-4, 1e-2]))
        ('log', 0.0)
        >>> scale_of(Panel("reward", "", ""), np.array([0.01, 1.0]))
        ('linear', 0.0)
    """
    sizes = np.abs(values[values != 0])
    if not len(sizes) or panel.bounds is not None:
        return "linear", 0.0
    if panel.linear_below is not None:
        return ("symlog", panel.linear_below) if sizes.max() > 5 * panel.linear_below else ("linear", 0.0)
    # what cannot be logarithmic by nature is so only where one scale would flatten nearly everything
    may = panel.can_be_log and values.min() >= 0
    typical, span = (np.percentile(sizes, 5, method="lower"), 100) if may else (np.median(sizes), 10_000)
    if sizes.max() < span * typical:
        return "linear", 0.0
    if values.min() > 0:
        return "log", 0.0
    return "symlog", float(10 ** np.floor(np.log10(max(typical, sizes.max() / 1e8))))
