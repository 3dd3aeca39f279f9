"""Write the tables of presets in docs/grpo.md from `trl_ext.grpo.presets`; `--check` fails where they differ.

    python benchmarks/make_grpo_tables.py [--check]

The page marks where with `<!-- presets: written by benchmarks/make_grpo_tables.py -->` and `<!-- end of presets -->`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import torch

from trl_ext.grpo.presets import PRESETS, Preset, estimated_advantages, resolved_preset

PAGE = Path(__file__).resolve().parent.parent / "docs" / "grpo.md"
BEGIN, END = "<!-- presets: written by benchmarks/make_grpo_tables.py -->", "<!-- end of presets -->"
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


def section() -> str:
    text = (
        f"One group is the whole batch here, and the running mean stands at {RUNNING_MEAN:g}. `loss_type` is what the\n"
        "source goes with; it stays yours to set."
    )
    return "\n\n".join([presets_table(), text, "Two rewards of weight 1:", two_rewards_table()])


def filled(text: str) -> str:
    """The page with the block written anew.

    Raises:
        ValueError: The block is not there exactly once.
    """
    head, _, rest = text.partition(BEGIN)
    _, ended, tail = rest.partition(END)
    if not ended or text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{BEGIN} ... {END} must be there once")
    return f"{head}{BEGIN}\n\n{section()}\n\n{END}{tail}"


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    new = filled(text)
    if new == text:
        return 0
    if "--check" in sys.argv:
        print("docs/grpo.md differs from the presets; run: python benchmarks/make_grpo_tables.py")
        return 1
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
