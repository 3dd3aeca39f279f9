"""Whether a step takes longer the longer a run is: TRL's GRPOTrainer and the trainers here, on the tiny model.

    python benchmarks/bench_long_run.py --output benchmarks/results/long_run.json

Each trainer runs in a process of its own, with gradient checkpointing and LoRA as by default. Reported: the median
seconds of generating a batch in the first and in the last steps, the forward hooks on the embeddings, each of which is
called for each generated token, and the memory of the process. The tiny model's own time a token is small, so that
what a trainer adds to it shows; of a large model the same milliseconds are a smaller share.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version

TRAINERS = ("trl_grpo", "grpo", "ppo")
WARM_UP, SPAN = 5, 50  # steps


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--trainers", nargs="+", default=list(TRAINERS))
    parser.add_argument("--output", help="JSON file")
    parser.add_argument("--trainer", help=argparse.SUPPRESS)
    return parser.parse_args()


def reward(completions, **columns) -> list[float]:
    return [float(len(turns[-1]["content"]) % 3) for turns in completions]


def run(name: str, steps: int) -> None:
    import transformers
    from datasets import Dataset
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    from trl_ext import GRPOVariantConfig, GRPOVariantTrainer, PPOConfig, PPOTrainer
    from trl_ext.testing import tiny_model, tiny_tokenizer

    kinds = {
        "trl_grpo": (GRPOTrainer, GRPOConfig),
        "grpo": (GRPOVariantTrainer, GRPOVariantConfig),
        "ppo": (PPOTrainer, PPOConfig),
    }
    trainer_class, config_class = kinds[name]
    transformers.logging.set_verbosity_error()
    rows = [{"prompt": [{"role": "user", "content": f"{a}+{b}"}]} for a in range(8) for b in range(8)]
    trainer = trainer_class(
        model=tiny_model(),
        processing_class=tiny_tokenizer(),
        reward_funcs=reward,
        train_dataset=Dataset.from_list(rows),
        peft_config=LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"),
        args=config_class(
            output_dir=tempfile.mkdtemp(),
            max_steps=steps,
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=8,
            generation_kwargs={"min_new_tokens": 8},
            logging_steps=10,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
        ),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    generate, seconds = trainer._generate_single_turn, []

    def timed(*positional, **named):
        start = time.perf_counter()
        result = generate(*positional, **named)
        seconds.append(time.perf_counter() - start)
        return result

    trainer._generate_single_turn = timed
    trainer.train()
    with open("/proc/self/statm") as file:
        memory = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    figures = {
        "first_ms": 1e3 * statistics.median(seconds[WARM_UP : WARM_UP + SPAN]),
        "last_ms": 1e3 * statistics.median(seconds[-SPAN:]),
        "hooks": len(trainer.model.get_input_embeddings()._forward_hooks),
        "memory_mib": memory / 2**20,
    }
    print("RESULT " + json.dumps(figures), flush=True)


def run_in_process(name: str, steps: int) -> dict:
    command = [sys.executable, __file__, "--steps", str(steps), "--trainer", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
    return json.loads(lines[-1].removeprefix("RESULT "))


def main() -> None:
    args = arguments()
    if args.trainer:
        run(args.trainer, args.steps)
        return
    figures = {}
    for name in args.trainers:
        found = run_in_process(name, args.steps)
        found["ratio"] = found["last_ms"] / found["first_ms"]
        figures[name] = {key: round(value, 3) for key, value in found.items()}
        print(name, figures[name], flush=True)
    names = ("torch", "transformers", "trl", "peft")
    report = {
        "command": f"python benchmarks/bench_long_run.py --output {args.output or 'FILE'}",
        "versions": {"python": platform.python_version(), **{one: version(one) for one in names}},
        "machine": {"device": f"{os.cpu_count()} CPU cores"},
        "steps": args.steps,
        "figures": figures,
    }
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            file.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
