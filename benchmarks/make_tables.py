"""Write the tables of README.md from benchmarks/results/*.json; `--check` fails where they differ.

python benchmarks/make_tables.py [--check]
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- results: written by benchmarks/make_tables.py -->", "<!-- end of results -->"


def load(name: str) -> dict:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def learning_table() -> str:
    report = load("learning.json")
    lines = ["| seed | reward, first step | reward, last 5 of 20 | accuracy before | after |", "|---|---|---|---|---|"]
    for run in report["runs"]:
        cells = [run["first_reward"], run["last_5_reward"], run["accuracy_before"], run["accuracy_after"]]
        lines.append(f"| {run['seed']} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
    means = [run["last_5_reward"] for run in report["runs"]]
    spread = f"{statistics.mean(means):.2f} ± {statistics.pstdev(means):.2f}"
    where = f"`{report['command']}` on {report['machine']['device']}"
    return "\n".join([*lines, "", f"Last five steps: {spread} over the seeds. {where}."])


def cost_table() -> str:
    names = {"adapter": "PPO, adapter critic", "shared": "PPO, shared critic"}
    lines = ["| work | trainer | step time | peak memory |", "|---|---|---|---|"]
    for path in sorted(RESULTS.glob("ppo_vs_grpo_*.json")):
        report = load(path.name)
        work = f"{report['work']}, {report['machine']['device']}"
        for variant, ratios in report["ratios"].items():
            step, memory = ratios["median_step_s"], ratios["peak_gib"]
            lines.append(f"| {work} | {names[variant]} | {step:.2f}x | {memory:.2f}x |")
    return "\n".join(lines)


def gae_table() -> str:
    report = load("gae.json")
    lines = ["| T | `gae` | a loop over T | ratio |", "|---|---|---|---|"]
    for row in report["figures"]:
        cells = f"{row['gae_ms']:.2f} ms | {row['loop_ms']:.0f} ms | {row['speedup']:.0f}x"
        lines.append(f"| {row['length']} | {cells} |")
    return "\n".join(lines)


def section() -> str:
    parts = [
        "**It learns.** SmolLM2-135M, LoRA, two-digit additions:",
        learning_table(),
        "**What the critic costs.** The same work as TRL's `GRPOTrainer`, in ratios (`benchmarks/bench_ppo.py`):",
        cost_table(),
        "**GAE without a loop over tokens** (`benchmarks/bench_gae.py`, 8 sequences):",
        gae_table(),
    ]
    return "\n\n".join(parts)


def main() -> int:
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    new = f"{head}{BEGIN}\n\n{section()}\n\n{END}{rest.split(END)[1]}"
    if "--check" in sys.argv:
        if new != text:
            print("README.md differs from benchmarks/results; run: python benchmarks/make_tables.py")
        return int(new != text)
    path.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
