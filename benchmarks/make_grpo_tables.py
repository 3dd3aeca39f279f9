"""Write the generated parts of docs/grpo.md; `--check` fails where the page differs.

    python benchmarks/make_grpo_tables.py [--check]

`presets` comes from `trl_ext.grpo.presets`, `variants` from benchmarks/results/variants.json. The page marks where with
`<!-- NAME: written by benchmarks/make_grpo_tables.py -->` and `<!-- end of NAME -->`.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from pages import ROOT, Page

from trl_ext.grpo.presets import PRESETS, Preset, estimated_advantages, resolved_preset

RESULTS = ROOT / "benchmarks" / "results" / "variants.json"
LAST = 5  # steps at the end of a run that its result is the mean of
ONE_SUCCESS = [[1.0], [0.0], [0.0], [0.0]]
RUNNING_MEAN = 0.5
# accuracy and format: the first answer is right without the format, the second the other way round
TWO_REWARDS = [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0]]
# baselines that a preset is documented with, besides its own
OTHER_BASELINES = {"reinforce_pp": ("mean",), "reinforce": ("none", "mean", "leave_one_out")}


def presets() -> Iterable[Preset]:
    """Every preset, each followed by its documented variants."""
    for name, preset in PRESETS.items():
        yield preset
        for baseline in OTHER_BASELINES.get(name, ()):
            yield resolved_preset(name, baseline=baseline)


def number(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-") if 0 < value < 1e-3 else f"{value:g}"


def advantages(rewards: list[list[float]], preset: Preset) -> str:
    table = torch.tensor(rewards)
    found = estimated_advantages(table, torch.ones(table.shape[1]), len(table), preset, running_mean=RUNNING_MEAN)
    return ", ".join(f"{value:.4f}" for value in found.tolist())


def constants(preset: Preset) -> list[str]:
    """Baseline, scale, ddof and eps, as far as the preset reads them."""
    if preset.kind == "pass_at_k":
        return [f"k = {preset.pass_k}", "std of pass@k", "0", number(preset.eps)]
    scale = f"{preset.scale}, then batch_advantages" if preset.per_reward else preset.scale
    reads_std = preset.scale not in ("none", "mean", "mad")
    eps = number(preset.eps) + (f", floor {number(preset.std_floor)}" if preset.std_floor else "")
    return [preset.baseline, scale, str(preset.ddof) if reads_std else "-", "-" if preset.scale == "none" else eps]


def presets_table() -> str:
    head = ["`advantage_estimator`", "`advantage_baseline`", "`advantage_scale`", "ddof", "eps", "`loss_type`"]
    lines = [f"| {' | '.join(head)} | advantages of [1, 0, 0, 0] |", "|---" * (len(head) + 1) + "|"]
    for preset in presets():
        cells = [f"`{preset.name}`", *constants(preset), preset.loss_type or "-", advantages(ONE_SUCCESS, preset)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def two_rewards_table() -> str:
    rows = ", ".join(f"({first:g}, {second:g})" for first, second in TWO_REWARDS)
    lines = [f"| `advantage_estimator` | advantages of {rows} |", "|---|---|"]
    lines += [f"| `{name}` | {advantages(TWO_REWARDS, PRESETS[name])} |" for name in ("trl", "gdpo")]
    return "\n".join(lines)


def presets_section() -> str:
    text = (
        f"One group is the whole batch here, and the running mean stands at {RUNNING_MEAN:g}. `loss_type` is what the\n"
        "source goes with; it stays yours to set."
    )
    return "\n\n".join([presets_table(), text, "Two rewards of weight 1:", two_rewards_table()])


def spread(values: Iterable[float]) -> str:
    found = list(values)
    return f"{statistics.mean(found):.2f} ± {statistics.pstdev(found):.2f}"


def by_variant(runs: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Runs of each variant, in the order of the file."""
    for name in dict.fromkeys(run["variant"] for run in runs):
        yield name, [run for run in runs if run["variant"] == name]


def variants_section() -> str:
    report = json.loads(RESULTS.read_text(encoding="utf-8"))
    settings, runs = report["settings"], report["runs"]
    head = ["", "reward, first step", f"reward, last {LAST} of {settings['steps']}", "groups without spread"]
    head += ["greedy accuracy before", "after"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, found in by_variant(runs):
        cells = [
            spread(run["rewards"][0] for run in found),
            spread(statistics.mean(run["rewards"][-LAST:]) for run in found),
            spread(statistics.mean(run["zero_std"]) for run in found),
            spread(run["accuracy_before"] for run in found),
            spread(run["accuracy_after"] for run in found),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    seeds = len({run["seed"] for run in runs})
    text = (
        f"Mean ± standard deviation over {seeds} seeds, {settings['steps']} steps of {settings['completions']} "
        f"completions ({settings['num_generations']} a prompt), learning rate {settings['learning_rate']:g}.\n"
        f"`{report['command']}` on {report['machine']['device']}."
    )
    return "\n".join(lines) + f"\n\n{text}"


SECTIONS = {"presets": presets_section, "variants": variants_section}

PAGE = Page("docs/grpo.md", "make_grpo_tables.py", SECTIONS)

if __name__ == "__main__":
    sys.exit(PAGE.main(sys.argv))
