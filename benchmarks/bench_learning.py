"""GAE-PPO on SmolLM2-135M and two-digit additions: does it learn, on every seed, without NaN?

    python benchmarks/bench_learning.py --output benchmarks/results/learning.json

Reports for each seed the mean reward of the first step and of the last five of 20 steps, and greedy accuracy on 64
held-out problems before and after. Passes when the last five reach 0.45 and twice the first step, on every seed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path

from bench_ppo import machine

from trl_ext.scripts.demo import build_trainer, greedy_accuracy


def run(seed: int, args: argparse.Namespace) -> dict:
    demo = argparse.Namespace(
        model=args.model,
        critic=args.critic,
        steps=args.steps,
        completions=args.completions,
        output_dir=tempfile.mkdtemp(),
        seed=seed,
    )
    trainer, held_out = build_trainer(demo)
    before = greedy_accuracy(trainer.model, trainer.processing_class, held_out)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    rewards = [row["reward"] for row in rows]
    return {
        "seed": seed,
        "rewards": rewards,
        "first_reward": rewards[0],
        "last_5_reward": statistics.mean(rewards[-5:]),
        "explained_variance_last_5": statistics.mean(row["value/explained_variance"] for row in rows[-5:]),
        "finite": all(math.isfinite(v) for row in rows for v in row.values() if v is not None),
        "accuracy_before": before,
        "accuracy_after": greedy_accuracy(trainer.model, trainer.processing_class, held_out),
        "median_step_s": statistics.median(row["step_time"] for row in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smol")
    parser.add_argument("--critic", default="adapter")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--completions", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output")
    args = parser.parse_args()
    runs = []
    for seed in range(args.seeds):
        result = run(seed, args)
        runs.append(result)
        shown = {k: round(v, 3) for k, v in result.items() if isinstance(v, float)}
        print(f"seed {seed}: {shown}", flush=True)
    passed = all(r["finite"] and r["last_5_reward"] >= max(0.45, 2 * r["first_reward"]) for r in runs)
    means = [r["last_5_reward"] for r in runs]
    print(f"last five steps: {statistics.mean(means):.3f} ± {statistics.pstdev(means):.3f} over {args.seeds} seeds")
    if args.output:
        command = "python " + " ".join(sys.argv)
        report = {"command": command, "machine": machine(), "completions": args.completions}
        report |= {"critic": args.critic, "passed": passed, "runs": runs}
        Path(args.output).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
