"""What the conftest files of the trainers share; a second process that loads one of them by its path finds it, too."""

import random

import torch
from datasets import Dataset
from peft import LoraConfig

from trl_ext.testing import tiny_model, tiny_tokenizer

PROMPTS = [f"{number}+{number + 3}=" for number in range(8, 16)]
LETTERS = "abcdefgh 0123456789"
# A run of a second.
SETTINGS = {
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 4,
    "max_completion_length": 8,
    "max_steps": 2,
    "learning_rate": 1e-2,
    "lr_scheduler_type": "constant",
    "gradient_checkpointing": False,
    "report_to": [],
    "save_strategy": "no",
    "logging_steps": 1,
    "disable_tqdm": True,
}
TRAINER_ARGUMENTS = (
    *("model", "reward_funcs", "train_dataset", "eval_dataset", "rollout_func", "peft_config", "callbacks"),
    *("processing_class", "tools", "optimizers"),
)


def letter_reward(completions, **kwargs):
    """Share of the completion's characters that are early letters; differs between nearly all completions."""
    return [sum(c in "abcdefgh01234" for c in text) / (1 + len(text)) for text in completions]


def lora_config(**overrides):
    return LoraConfig(**{"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **overrides})


def rollouts_from_seeds(prompts, seeds, trainer):
    """A completion from each seed: ragged, some ended and some cut at the length limit."""
    tokenizer = trainer.processing_class
    prompt_ids, completion_ids = [], []
    for prompt, seed in zip(prompts, seeds, strict=True):
        rng = random.Random(seed)
        ends = rng.random() < 0.6
        length = rng.randint(1, trainer.max_completion_length - 1) if ends else trainer.max_completion_length
        ids = tokenizer("".join(rng.choice(LETTERS) for _ in range(length))).input_ids
        completion_ids.append([*ids, tokenizer.eos_token_id] if ends else ids)
        prompt_ids.append(tokenizer(prompt).input_ids)
    return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": None}


def split_arguments(settings, names, prompts):
    """Arguments of a trainer on a tiny model, those in `settings` by `names` among them, and the rest of `settings`."""
    rest = dict(settings)
    given = {name: rest.pop(name) for name in names if name in rest}
    arguments = {
        "model": tiny_model(),
        "processing_class": tiny_tokenizer(),
        "reward_funcs": letter_reward,
        "train_dataset": Dataset.from_dict({"prompt": list(prompts)}),
        "peft_config": lora_config(),
        **given,
    }
    return arguments, rest


def randomise(weights, begins_at_zero, scale):
    """Random values for those of the named `weights` that start at zero: from there, most gradients are zero."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in sorted(weights):
        if begins_at_zero(name):
            parameter.data.normal_(0.0, scale, generator=generator)


def micro_batches_of_step(trainer):
    """The micro-batches of the optimizer step that is about to be taken."""
    args = trainer.args
    position = (trainer._step - 1) % args.steps_per_generation
    first = position - position % args.gradient_accumulation_steps
    return [dict(batch) for batch in (trainer._buffered_inputs or [])[first : position + 1]]
