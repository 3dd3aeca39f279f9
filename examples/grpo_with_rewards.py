# /// script
# dependencies = ["trl-ext"]
# ///
"""TRL's own GRPOTrainer with the rewards of `reward_funcs`; nothing else of this project is needed.

    python examples/grpo_with_rewards.py --model tiny --steps 2           # a few kilobytes, random weights: a dry run
    python examples/grpo_with_rewards.py --model Qwen/Qwen3-0.6B          # any Hub id or folder

Being right pays only behind a think block (`Gate`), the block alone pays a little, and being short is worth something
among the right answers of a prompt. `completions/completions_00001.parquet` in the output folder, one file a step, has
every completion with its rewards, why it got them and what was read out of it: some 20 columns, too many to print.
How it differs from DeepSeek-R1: a gate where the paper adds accuracy and format, and a reward for length.
"""

import argparse
import random

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from reward_funcs import (
    Gate,
    LengthPenaltyReward,
    accuracy_reward,
    check_golds,
    repetition_penalty_reward,
    think_format_reward,
)

INSTRUCTION = "Think between <think> and </think>, then give the result in \\boxed{}."


def problems(count, seed=0):
    """Two-digit additions as conversational prompts with a column `solution`."""
    draw = random.Random(seed)
    pairs = [(draw.randint(10, 49), draw.randint(10, 49)) for _ in range(count)]
    return Dataset.from_list(
        [
            {"prompt": [{"role": "user", "content": f"What is {a} + {b}? {INSTRUCTION}"}], "solution": str(a + b)}
            for a, b in pairs
        ]
    )


def rewards():
    """Reward functions with their weights."""
    return {
        Gate(think_format_reward, accuracy_reward, name="gated_accuracy_reward"): 1.0,
        think_format_reward: 0.2,
        LengthPenaltyReward(accuracy=accuracy_reward): 0.1,
        repetition_penalty_reward: 0.1,
    }


def model_arguments(name):
    """What the trainer needs to know of the model: a name, or a tiny model built in memory with its tokenizer."""
    if name != "tiny":
        return {"model": name}
    from trl_ext.testing import tiny_model, tiny_tokenizer

    return {"model": tiny_model(), "processing_class": tiny_tokenizer()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen3-0.6B")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--completions", type=int, default=32, help="completions a step")
    parser.add_argument("--num_generations", type=int, default=8, help="completions a prompt")
    parser.add_argument("--max_completion_length", type=int, default=256)
    parser.add_argument("--output_dir", default="grpo-with-rewards")
    args = parser.parse_args()
    if args.num_generations < 2 or args.completions < 1 or args.completions % args.num_generations:
        parser.error(
            f"--completions {args.completions} must be a multiple of --num_generations {args.num_generations}, and "
            "that at least 2: each prompt gets so many completions, which are compared with each other"
        )

    dataset = problems(2000)
    # before any model is loaded: a gold that scores less than 1.0 against itself would be noise in the training
    report = check_golds(dataset, accuracy_reward)
    print(f"{report.rate:.1%} of the golds score 1.0 against themselves")

    funcs = rewards()
    trainer = GRPOTrainer(
        **model_arguments(args.model),
        reward_funcs=list(funcs),
        args=GRPOConfig(
            output_dir=args.output_dir,
            reward_weights=list(funcs.values()),
            learning_rate=1e-6,
            per_device_train_batch_size=args.num_generations,
            gradient_accumulation_steps=args.completions // args.num_generations,
            num_generations=args.num_generations,
            max_completion_length=args.max_completion_length,
            max_steps=args.steps,
            bf16=torch.cuda.is_available(),
            logging_steps=1,
            log_completions=True,
            num_completions_to_print=0,
            report_to=[],
        ),
        train_dataset=dataset,
    )
    trainer.train()
    trainer.save_model()
    print(f"Every completion with its rewards and reasons: {args.output_dir}/completions/*.parquet")


if __name__ == "__main__":
    main()
