# /// script
# dependencies = ["trl-ext[demo]"]
# ///
"""GAE-PPO with a LoRA policy and an adapter critic, from a plain reward function.

    python examples/ppo_addition.py --model smol                       # SmolLM2-135M-Instruct, CPU or GPU
    python examples/ppo_addition.py --model Qwen/Qwen3-0.6B --steps 100    # any Hub id or folder

How it differs from the paper: tokens are actions, the score sits on the last token, and the KL to the reference is
part of the reward. `trl-ext demo` is the same task with before-and-after accuracy, and README shows its output.
"""

import argparse
import random
import re

from datasets import Dataset
from peft import LoraConfig

from trl_ext import PPOConfig, PPOTrainer


def last_number_reward(completions, solution, **kwargs):
    """1.0 where the last number of the completion is the solution."""
    numbers = [re.findall(r"\d+", turns[-1]["content"]) for turns in completions]
    return [float(bool(found) and found[-1] == gold) for found, gold in zip(numbers, solution, strict=True)]


def problems(count, seed=0):
    """Two-digit additions as conversational prompts with a column `solution`."""
    draw = random.Random(seed)
    pairs = [(draw.randint(10, 49), draw.randint(10, 49)) for _ in range(count)]
    text = "What is {} + {}? Give just the number."
    return Dataset.from_list(
        [{"prompt": [{"role": "user", "content": text.format(a, b)}], "solution": str(a + b)} for a, b in pairs]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smol")
    parser.add_argument("--critic", default="adapter", choices=["adapter", "shared"])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--completions", type=int, default=32, help="completions a step")
    parser.add_argument("--output_dir", default="ppo-addition")
    args = parser.parse_args()

    trainer = PPOTrainer(
        model=args.model,
        reward_funcs=last_number_reward,
        args=PPOConfig(
            output_dir=args.output_dir,
            critic=args.critic,
            learning_rate=1e-3,
            critic_learning_rate=1e-3,
            kl_coef=0.01,
            lr_scheduler_type="constant_with_warmup",
            warmup_steps=2,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=args.completions // 8,
            max_completion_length=12,
            max_steps=args.steps,
            logging_steps=1,
            report_to=[],
        ),
        train_dataset=problems(2000),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
