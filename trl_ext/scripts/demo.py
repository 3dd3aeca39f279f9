"""`trl-ext demo`: GAE-PPO teaches SmolLM2-135M two-digit addition, from a plain reward function, in minutes.

Shows before and after on held-out problems, and leaves an adapter, a model card, metrics and a picture behind.
Exit status 1 if the accuracy did not rise.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import random
import re
import time
from pathlib import Path
from typing import Any

from trl_ext.errors import UsageError, UserError
from trl_ext.scripts.check import _number as number
from trl_ext.scripts.check import _Parser

LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
QUESTION = "What is {} + {}? Give just the number."
LARGEST = 49
NUM_HELD_OUT = 64
MAX_COMPLETION_LENGTH = 12


def addition_reward(completions: list[Any], solution: list[str], **kwargs: Any) -> list[float]:
    """1.0 where the last number of the completion is the sum, else 0.0."""
    texts = [turns[-1]["content"] if isinstance(turns, list) else turns for turns in completions]
    numbers = [re.findall(r"\d+", text) for text in texts]
    return [float(bool(found) and found[-1] == gold) for found, gold in zip(numbers, solution, strict=True)]


def addition_problems(seed: int = 0) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Training and held-out rows; no held-out pair of numbers occurs in training, in either order."""
    pairs = [(a, b) for a in range(10, LARGEST + 1) for b in range(a, LARGEST + 1)]
    random.Random(seed).shuffle(pairs)
    held_out, training = pairs[:NUM_HELD_OUT], pairs[NUM_HELD_OUT:]
    return [_row(a, b) for pair in training for a, b in sorted({pair, pair[::-1]})], [_row(a, b) for a, b in held_out]


def _row(a: int, b: int) -> dict[str, Any]:
    return {"prompt": [{"role": "user", "content": QUESTION.format(a, b)}], "solution": str(a + b)}


def greedy_accuracy(model: Any, tokenizer: Any, rows: list[dict[str, Any]]) -> float:
    """Share of rows whose greedy completion is right."""
    import torch

    chat = [row["prompt"] for row in rows]
    batch = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, padding=True, padding_side="left", return_tensors="pt", return_dict=True
    ).to(model.device)
    training = model.training
    model.eval()
    with torch.no_grad():
        output = model.generate(
            **batch, do_sample=False, max_new_tokens=MAX_COMPLETION_LENGTH, pad_token_id=tokenizer.pad_token_id
        )
    model.train(training)
    texts = tokenizer.batch_decode(output[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return sum(addition_reward(texts, [row["solution"] for row in rows])) / len(rows)


def main(argv: list[str]) -> int:
    """Run the demo.

    Args:
        argv (`list[str]`): Arguments after the command name.

    Returns:
        0 when the accuracy rose, else 1.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    start = time.perf_counter()
    trainer, held_out = build_trainer(args)
    tokenizer = trainer.processing_class
    print(f"Model {args.model}, critic {args.critic}, {args.completions} completions a step, {args.steps} steps.")
    before = greedy_accuracy(trainer.model, tokenizer, held_out)
    print(f"Accuracy before: {before:.1%} of {len(held_out)} held-out problems (greedy)", flush=True)
    trainer.train()
    after = greedy_accuracy(trainer.model, tokenizer, held_out)
    print(f"Accuracy after:  {after:.1%}")
    _save(trainer, before, after, argv, args.output_dir)
    print(f"Done in {time.perf_counter() - start:.0f} s.")
    if after <= before:
        print("The accuracy did not rise; try more --steps or another --seed.")
    return 0 if after > before else 1


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="trl-ext demo", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="smol", help="Hub id or folder (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--critic", default="shared", choices=["adapter", "shared"], help="default: shared")
    parser.add_argument("--steps", type=number(int, 1), default=15, help="optimizer steps (default: 15)")
    parser.add_argument(
        "--completions",
        type=number(int, 8),
        default=32,
        help="completions a step, a multiple of 8 (default: 32)",
    )
    parser.add_argument("--output_dir", default="trl-ext-demo", help="default: trl-ext-demo")
    parser.add_argument(
        "--seed", type=number(int, 0, 2**32 - 1), default=0, help="of the problems and of the training (0)"
    )
    return parser


def build_trainer(args: Any, **overrides: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The demo's trainer and its held-out rows; `overrides` are fields of PPOConfig."""
    from trl_ext.scripts._libraries import named_model
    from trl_ext.scripts._training import quiet_libraries, refuse_file

    training, held_out = addition_problems(args.seed)
    _refuse_sizes(args, len(training))
    refuse_file(args.output_dir)
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("the demo draws its curves with matplotlib; install it with `pip install matplotlib`")
    quiet_libraries()
    # On a busy machine the threads' default spin-waiting makes a step several times slower; read when torch starts.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch
    import transformers
    from datasets import Dataset
    from peft import LoraConfig

    from trl_ext.callbacks import MetricsWriter
    from trl_ext.ppo import PPOConfig, PPOTrainer
    from trl_ext.progress import RichTable

    transformers.logging.set_verbosity_error()
    on_gpu = torch.cuda.is_available()
    settings: dict[str, Any] = {
        "output_dir": args.output_dir,
        "critic": args.critic,
        "learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
        "kl_coef": 0.01,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": 2,
        "per_device_train_batch_size": 8 if not on_gpu else math.gcd(args.completions, 64),
        "max_completion_length": MAX_COMPLETION_LENGTH,
        "max_steps": args.steps,
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "seed": args.seed,
        "disable_tqdm": True,
        "model_init_kwargs": {"dtype": "bfloat16" if on_gpu else "float32"},
    }
    batch_size = settings["per_device_train_batch_size"]
    settings["gradient_accumulation_steps"] = args.completions // batch_size
    with named_model(args.model):
        trainer = PPOTrainer(
            model=args.model,
            reward_funcs=addition_reward,
            args=PPOConfig(**{**settings, **overrides}),
            train_dataset=Dataset.from_list(training),
            peft_config=LoraConfig(r=16, lora_alpha=32, target_modules=LORA_TARGETS, task_type="CAUSAL_LM"),
            callbacks=[MetricsWriter(args.output_dir), RichTable()],
        )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer, held_out


def _refuse_sizes(args: Any, num_problems: int) -> None:
    """Refuse a step that does not divide into batches of 8 or takes more problems than there are."""
    largest = num_problems // 8 * 8
    if args.steps < 1:
        raise UsageError(f"--steps {args.steps} must be at least 1")
    if args.completions % 8 or not 8 <= args.completions <= largest:
        raise UsageError(
            f"--completions {args.completions} must be a multiple of 8 between 8 and {largest}: a step takes each of "
            f"the {num_problems:,} problems once at most"
        )


def _save(trainer: Any, before: float, after: float, argv: list[str], output_dir: str) -> None:
    from trl_ext.callbacks import METRICS_FILE
    from trl_ext.evaluation.plots import plot_training
    from trl_ext.hub import write_model_card
    from trl_ext.scripts._training import command_line

    trainer.save_model(output_dir)
    results = {
        "greedy accuracy before": f"{before:.1%}",
        "greedy accuracy after": f"{after:.1%}",
        "held-out problems": NUM_HELD_OUT,
    }
    write_model_card(trainer, results=results, command=command_line("demo", argv))
    folder = Path(output_dir)
    picture = plot_training(folder / METRICS_FILE, folder / "curves.png")
    print(f"Saved: adapter and README.md in {folder}, curves in {picture}, every step in {folder / METRICS_FILE}")
