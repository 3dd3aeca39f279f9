"""Step time and peak memory of PPO against TRL's GRPOTrainer on the same work, as ratios of one run.

    python benchmarks/bench_ppo.py --model smol                                  # two CPU cores
    python benchmarks/bench_ppo.py --model 1.7b --batch 32 --micro 8 --length 192     # one GPU
    python benchmarks/bench_ppo.py --model 8b --four_bit --batch 16 --micro 4 --length 64

Each variant runs in a process of its own: GRPO, PPO with the adapter critic, PPO with the shared critic. All have the
same seed, prompts, LoRA, KL coefficient 0 and a fixed completion length (no end-of-sequence token for the random
models). Every step is logged, so the critic's evaluation after the update is in PPO's time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
VARIANTS = ("grpo", "adapter", "shared")
SHAPES = {
    "1.7b": dict(hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16),
    "8b": dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smol", help="smol, 1.7b or 8b (random weights in Qwen3's shapes)")
    parser.add_argument("--four_bit", action="store_true")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--micro", type=int, default=8)
    parser.add_argument("--length", type=int, default=12)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--beta", type=float, default=0.0)
    parser.add_argument("--checkpointing", action="store_true", help="always on for 1.7b and 8b")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each variant, taken in turn")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS))
    parser.add_argument("--output", help="JSON file")
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


def tokenizer():
    from transformers import AutoTokenizer

    from trl_ext.smol import is_cached, resolve_model
    from trl_ext.testing import tiny_tokenizer

    return AutoTokenizer.from_pretrained(resolve_model("smol")) if is_cached() else tiny_tokenizer()


def build_random_model(args: argparse.Namespace, folder: Path) -> None:
    """Write the random model, quantised when asked, once for all variants."""
    import torch
    from transformers import BitsAndBytesConfig, Qwen3Config, Qwen3ForCausalLM

    fields = dict(num_key_value_heads=8, head_dim=128, vocab_size=151936, max_position_embeddings=8192)
    fields |= dict(tie_word_embeddings=args.model != "8b", eos_token_id=None, bos_token_id=None)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = Qwen3ForCausalLM(Qwen3Config(**SHAPES[args.model], **fields))
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)
    del model
    if args.four_bit:
        config = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=torch.bfloat16,
            bnb_4bit_use_double_quant=True,
        )
        model = Qwen3ForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16, quantization_config=config, device_map={"": 0}
        )
        model.save_pretrained(folder / "nf4")


def prompts(count: int) -> list[dict]:
    draw = random.Random(0)
    pairs = [(draw.randint(10, 49), draw.randint(10, 49)) for _ in range(count)]
    text = "What is {} + {}? Give just the number."
    return [{"prompt": [{"role": "user", "content": text.format(a, b)}], "solution": str(a + b)} for a, b in pairs]


def run_variant(args: argparse.Namespace) -> None:
    import torch
    import transformers
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from trl_ext.ppo import PPOConfig, PPOTrainer
    from trl_ext.scripts.demo import addition_reward
    from trl_ext.smol import resolve_model

    transformers.logging.set_verbosity_error()
    cuda = torch.cuda.is_available()
    dtype = torch.bfloat16 if cuda else torch.float32
    path = resolve_model("smol") if args.model == "smol" else str(Path(args.folder) / ("nf4" if args.four_bit else ""))
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, device_map={"": 0} if cuda else None)
    seconds: list[float] = []
    generation: list[float] = []

    class Clock(TrainerCallback):
        start = 0.0

        def on_step_begin(self, *positional, **keywords):
            if cuda and not seconds:
                gc.collect()
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            self.start = time.perf_counter()

        def on_log(self, *positional, **keywords):  # after the step and what it logs
            if cuda:
                torch.cuda.synchronize()
            if self.start:
                seconds.append(time.perf_counter() - self.start)
                self.start = 0.0

    common = dict(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=args.micro,
        gradient_accumulation_steps=args.batch // args.micro,
        num_generations=8,
        max_completion_length=args.length,
        generation_kwargs={"min_new_tokens": args.length},
        beta=args.beta,
        learning_rate=1e-5,
        max_steps=args.steps,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        bf16=cuda,
        use_cpu=not cuda,
        gradient_checkpointing=args.checkpointing or args.model != "smol",
        disable_tqdm=True,
        disable_dropout=True,
    )
    keywords = dict(
        model=model,
        reward_funcs=addition_reward,
        train_dataset=Dataset.from_list(prompts(512)),
        processing_class=tokenizer(),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules=LORA_TARGETS, task_type="CAUSAL_LM"),
        callbacks=[Clock()],
    )
    if args.variant == "grpo":
        trainer = GRPOTrainer(args=GRPOConfig(**common), **keywords)
    else:
        trainer = PPOTrainer(args=PPOConfig(critic=args.variant, **common), **keywords)
    trainer.remove_callback(transformers.PrinterCallback)
    generate = trainer._generate_single_turn

    def timed_generate(*positional, **named):
        start = time.perf_counter()
        result = generate(*positional, **named)  # returns lists, so the device is done
        generation.append(time.perf_counter() - start)
        return result

    trainer._generate_single_turn = timed_generate
    trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    peak = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    critic = statistics.median(row.get("critic/seconds", 0.0) for row in rows)
    figures = {"seconds": seconds, "generation": generation, "critic_seconds": critic, "peak_gib": peak / 2**30}
    print("RESULT " + json.dumps(figures), flush=True)


def machine() -> dict:
    import torch

    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else f"{os.cpu_count()} CPU cores"
    names = ("torch", "transformers", "trl", "peft", "bitsandbytes")
    return {"device": device, "python": platform.python_version(), **{name: version(name) for name in names}}


def run_in_process(variant: str, folder: str) -> dict:
    command = [sys.executable, __file__, *sys.argv[1:], "--variant", variant, "--folder", folder]
    run = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in run.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        print(run.stdout[-3000:], run.stderr[-3000:])
        sys.exit(f"{variant} failed")
    return json.loads(lines[-1].removeprefix("RESULT "))


def combine(variant: str, runs: list[dict]) -> dict:
    """One variant over its runs; the first step of each warms up and does not count."""
    seconds = [s for run in runs for s in run["seconds"][1:]]
    generation = [s for run in runs for s in run["generation"][1:]]
    result = {
        "median_step_s": statistics.median(seconds),
        "median_generation_s": statistics.median(generation),
        "median_rest_s": statistics.median(a - b for a, b in zip(seconds, generation, strict=True)),
        "critic_s": statistics.median(run["critic_seconds"] for run in runs),
        "peak_gib": max(run["peak_gib"] for run in runs),
        "step_s": seconds,
    }
    parts = f"generation {result['median_generation_s']:.2f}, rest {result['median_rest_s']:.2f}"
    print(
        f"{variant:8} {result['median_step_s']:7.2f} s a step ({parts}, critic's passes {result['critic_s']:.2f}), "
        f"{result['peak_gib']:.2f} GiB peak",
        flush=True,
    )
    return result


def main() -> None:
    args = arguments()
    if args.variant:
        run_variant(args)
        return
    with tempfile.TemporaryDirectory() as folder:
        if args.model != "smol":
            build_random_model(args, Path(folder))
        runs: dict[str, list[dict]] = {variant: [] for variant in args.variants}
        for variant in args.variants * args.repeats:
            runs[variant].append(run_in_process(variant, folder))
    results = {variant: combine(variant, measured) for variant, measured in runs.items()}
    base = results.get("grpo")
    random_model = f"{args.model.upper()} {'nf4' if args.four_bit else 'bf16'}"
    model = "SmolLM2-135M float32" if args.model == "smol" else random_model
    report = {
        "command": "python " + " ".join(sys.argv),
        "work": f"{model}, {args.batch} x {args.length} tokens",
        "machine": machine(),
        "results": results,
        "ratios": {},
    }
    for variant in [v for v in results if base and v != "grpo"]:
        keys = ("median_step_s", "median_rest_s", "peak_gib")
        ratios = {key: results[variant][key] / base[key] for key in keys}
        report["ratios"][variant] = ratios
        print(f"{variant} / grpo: step time {ratios['median_step_s']:.2f}, peak memory {ratios['peak_gib']:.3f}")
    if args.output:
        Path(args.output).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
