"""TRL's default GRPO against variants of this package on SmolLM2-135M and two-digit additions, with one budget.

    python benchmarks/bench_variants.py --output benchmarks/results/variants.json

    python benchmarks/bench_variants.py --output benchmarks/results/variants.json --plot docs/grpo_variants.png

The second form draws what the file holds, and trains only what is missing in it. Every run has the same prompts, seed,
LoRA, learning rate and number of completions; only the trainer and the fields of `VARIANTS` differ. Reports the reward
of each step and the greedy accuracy on 64 held-out problems before and after. Runs of an earlier call with the same
settings in `--output` are kept; the rest is added to them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# Threads that wait by spinning slow a step several times on a busy machine; read when torch starts.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from bench_ppo import LORA_TARGETS, machine

# None is TRL's own trainer. The losses are those that the sources of the presets go with.
VARIANTS: dict[str, dict[str, Any] | None] = {
    "GRPOTrainer (TRL)": None,
    "dr_grpo": {"advantage_estimator": "dr_grpo", "loss_type": "dr_grpo"},
    "reinforce": {"advantage_estimator": "reinforce", "loss_type": "dr_grpo"},
    "reinforce_pp": {"advantage_estimator": "reinforce_pp"},
    "maxrl": {"advantage_estimator": "maxrl"},
}
SETTINGS = ("model", "steps", "completions", "num_generations", "learning_rate")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smol")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--completions", type=int, default=32)
    parser.add_argument("--num_generations", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=3e-4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--output", help="JSON file")
    parser.add_argument("--plot", help="PNG: reward of each step, mean and standard deviation over the seeds")
    parser.add_argument("--run", nargs=2, metavar=("VARIANT", "SEED"), help=argparse.SUPPRESS)
    return parser.parse_args()


def run(variant: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    import torch
    import transformers
    from datasets import Dataset
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    from trl_ext.grpo import GRPOVariantConfig, GRPOVariantTrainer
    from trl_ext.scripts.demo import MAX_COMPLETION_LENGTH, addition_problems, addition_reward, greedy_accuracy
    from trl_ext.smol import resolve_model

    transformers.logging.set_verbosity_error()
    cuda = torch.cuda.is_available()
    training, held_out = addition_problems(seed)
    settings: dict[str, Any] = {
        "output_dir": tempfile.mkdtemp(),
        "learning_rate": args.learning_rate,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": 2,
        "per_device_train_batch_size": min(args.completions, 16),
        "gradient_accumulation_steps": max(args.completions // 16, 1),
        "num_generations": args.num_generations,
        "max_completion_length": MAX_COMPLETION_LENGTH,
        "max_steps": args.steps,
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "seed": seed,
        "disable_tqdm": True,
        "bf16": cuda,
        "use_cpu": not cuda,
        "model_init_kwargs": {"dtype": "bfloat16" if cuda else "float32"},
    }
    fields = VARIANTS[variant]
    trainer_class, config_class = (
        (GRPOTrainer, GRPOConfig) if fields is None else (GRPOVariantTrainer, GRPOVariantConfig)
    )
    trainer = trainer_class(
        model=resolve_model(args.model),
        reward_funcs=addition_reward,
        args=config_class(**settings, **(fields or {})),
        train_dataset=Dataset.from_list(training),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules=LORA_TARGETS, task_type="CAUSAL_LM"),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    before = greedy_accuracy(trainer.model, trainer.processing_class, held_out)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    rewards = [row["reward"] for row in rows]
    return {
        "variant": variant,
        "seed": seed,
        "rewards": rewards,
        "grad_norms": [row["grad_norm"] for row in rows],
        "zero_std": [row["frac_reward_zero_std"] for row in rows],
        "accuracy_before": before,
        "accuracy_after": greedy_accuracy(trainer.model, trainer.processing_class, held_out),
        "finite": all(math.isfinite(v) for row in rows for v in row.values() if v is not None),
        "median_step_s": statistics.median(row["step_time"] for row in rows),
    }


def earlier_runs(args: argparse.Namespace, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs already in `--output`; none where they had other settings."""
    path = Path(args.output) if args.output else None
    if path is None or not path.is_file():
        return []
    report = json.loads(path.read_text(encoding="utf-8"))
    return report["runs"] if report["settings"] == settings else []


def plot(runs: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [name for name in VARIANTS if any(run["variant"] == name for run in runs)]
    figure, axes = plt.subplots(1, len(names), figsize=(2.6 * len(names), 3.2), sharey=True, layout="constrained")
    for axis, name in zip(axes, names, strict=True):
        rewards = [run["rewards"] for run in runs if run["variant"] == name]
        steps = range(1, len(rewards[0]) + 1)
        means = [statistics.mean(column) for column in zip(*rewards, strict=True)]
        spreads = [statistics.pstdev(column) for column in zip(*rewards, strict=True)]
        for single in rewards:
            axis.plot(steps, single, color="0.75", linewidth=0.8)
        low = [m - s for m, s in zip(means, spreads, strict=True)]
        high = [m + s for m, s in zip(means, spreads, strict=True)]
        axis.fill_between(steps, low, high, alpha=0.2)
        axis.plot(steps, means, marker=".")
        axis.set(title=name, xlabel="step", ylim=(0, 1))
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("mean reward of a step")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    args = arguments()
    if args.run:
        print("RESULT " + json.dumps(run(args.run[0], int(args.run[1]), args)), flush=True)
        return
    settings = {name: getattr(args, name) for name in SETTINGS}
    runs = earlier_runs(args, settings)
    done = {(r["variant"], r["seed"]) for r in runs}
    for seed in range(args.seeds):
        for variant in [v for v in args.variants if (v, seed) not in done]:
            command = [sys.executable, __file__, *sys.argv[1:], "--run", variant, str(seed)]
            process = subprocess.run(command, capture_output=True, text=True)
            lines = [line for line in process.stdout.splitlines() if line.startswith("RESULT ")]
            if not lines:
                sys.exit(f"{variant}, seed {seed} failed:\n{process.stdout[-2000:]}{process.stderr[-3000:]}")
            result = json.loads(lines[-1].removeprefix("RESULT "))
            runs.append(result)
            last = statistics.mean(result["rewards"][-5:])
            accuracy = f"{result['accuracy_before']:.3f} -> {result['accuracy_after']:.3f}"
            print(
                f"{variant:18} seed {seed}: reward {result['rewards'][0]:.3f} -> {last:.3f} (last 5), "
                f"accuracy {accuracy}, {result['median_step_s']:.1f} s a step",
                flush=True,
            )
            if args.output:
                order = {name: i for i, name in enumerate(VARIANTS)}
                runs.sort(key=lambda r: (order[r["variant"]], r["seed"]))
                report = {"command": "python " + " ".join(sys.argv), "machine": machine(), "settings": settings}
                Path(args.output).write_text(json.dumps(report | {"runs": runs}, indent=1) + "\n", encoding="utf-8")
    if args.plot:
        plot(runs, Path(args.plot))


if __name__ == "__main__":
    main()
