"""Real trainers on a model of a few kilobytes, scripted rollouts, and the stock trainer to compare with."""

import gc
import random
from types import SimpleNamespace

import pytest
import torch
import transformers
from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from trl_ext.grpo import GRPOVariantConfig, GRPOVariantTrainer
from trl_ext.testing import tiny_model, tiny_tokenizer

PROMPTS = [f"{number}+{number + 3}=" for number in range(8, 16)]
LETTERS = "abcdefgh 0123456789"


@pytest.fixture(autouse=True, scope="session")
def _frozen_garbage():
    """`Trainer.train` collects garbage once; what is imported by now need not be walked each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _one_thread():
    """One thread: the same sums in the same order, and no waiting for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is experimental
    transformers.logging.set_verbosity_error()


def letter_reward(completions, **kwargs):
    """Share of the completion's characters that are early letters; differs between nearly all completions."""
    return [sum(c in "abcdefgh01234" for c in text) / (1 + len(text)) for text in completions]


def sparse_reward(completions, **kwargs):
    """Length, and None for completions that begin with a digit."""
    return [None if text[:1].isdigit() else len(text) / 5 for text in completions]


def silent_reward(completions, **kwargs):
    """Another function that has nothing to say of some completions."""
    return [None if len(text) % 2 else float("a" in text) for text in completions]


def equal_reward(completions, **kwargs):
    """The same for all."""
    return [0.5] * len(completions)


def half_flat_reward(prompts, completions, **kwargs):
    """0.5 for every completion of a prompt with an 8 or a 9; else by its letters."""
    pairs = zip(prompts, completions, strict=True)
    return [0.5 if "8" in p or "9" in p else sum(c in "abcd01" for c in t) / (1 + len(t)) for p, t in pairs]


def first_letter_steps(completions, **kwargs):
    """Two steps: the first half of the characters, and all of them."""
    result = []
    for text in completions:
        ends = sorted({max(len(text) // 2 - 1, 0), len(text) - 1}) if text else []
        result.append(([sum(c in "abcdefgh" for c in text[: end + 1]) / 3 for end in ends], ends))
    return result


def scripted_rollouts(prompts, trainer):
    """Completions that depend on the prompt and on how often it was seen: ragged, some cut at the length limit."""
    tokenizer = trainer.processing_class
    rank, size = trainer.accelerator.process_index, len(prompts)
    group = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
    prompt_ids, completion_ids = [], []
    for place, prompt in enumerate(prompts):
        rng = random.Random(f"{prompt} {(rank * size + place) % group}")
        ends = rng.random() < 0.6
        length = rng.randint(1, trainer.max_completion_length - 1) if ends else trainer.max_completion_length
        ids = tokenizer("".join(rng.choice(LETTERS) for _ in range(length))).input_ids
        completion_ids.append([*ids, tokenizer.eos_token_id] if ends else ids)
        prompt_ids.append(tokenizer(prompt).input_ids)
    return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": None}


def lora_config(**overrides):
    return LoraConfig(**{"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **overrides})


SETTINGS = {
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "num_generations": 4,
    "max_completion_length": 8,
    "max_steps": 2,
    "learning_rate": 1e-2,
    "lr_scheduler_type": "constant",
    "gradient_checkpointing": False,
    "disable_dropout": True,
    "report_to": [],
    "save_strategy": "no",
    "logging_steps": 1,
    "disable_tqdm": True,
    "bf16": False,
    "use_cpu": True,
}
TRAINER_ARGUMENTS = ("model", "reward_funcs", "train_dataset", "eval_dataset", "rollout_func", "peft_config")
TRAINER_ARGUMENTS += ("callbacks", "processing_class", "process_reward_funcs", "tools", "optimizers")


def awaken_weights(trainer, scale=0.3):
    """Random values for LoRA B, which starts at zero."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in sorted(trainer.accelerator.unwrap_model(trainer.model).named_parameters()):
        if "lora_B" in name:
            parameter.data.normal_(0.0, scale, generator=generator)


def quick_trainer(*, stock=False, prompts=PROMPTS, awake=True, **settings):
    """A GRPOVariantTrainer (or TRL's own): arguments of the trainer go by name, the rest to its configuration."""
    given = {name: settings.pop(name) for name in TRAINER_ARGUMENTS if name in settings}
    arguments = {
        "model": tiny_model(),
        "processing_class": tiny_tokenizer(),
        "reward_funcs": letter_reward,
        "train_dataset": Dataset.from_dict({"prompt": list(prompts)}),
        "peft_config": lora_config(),
        "rollout_func": scripted_rollouts,
        **given,
    }
    kind, config = (GRPOTrainer, GRPOConfig) if stock else (GRPOVariantTrainer, GRPOVariantConfig)
    trainer = kind(args=config(**{**SETTINGS, **settings}), **arguments)
    trainer.remove_callback(transformers.PrinterCallback)
    if awake:
        awaken_weights(trainer)
    return trainer


class Recorder(transformers.TrainerCallback):
    """Gradients and micro-batches of every optimizer step, before it is taken."""

    def __init__(self, trainer):
        self.trainer, self.steps = trainer, []
        trainer.add_callback(self)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        trainer = self.trainer
        position = (trainer._step - 1) % args.steps_per_generation
        window = args.gradient_accumulation_steps
        batches = trainer._buffered_inputs[position - position % window : position + 1]
        model = trainer.accelerator.unwrap_model(trainer.model)
        gradients = {n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None}
        self.steps.append(SimpleNamespace(gradients=gradients, micro_batches=[dict(batch) for batch in batches]))


@pytest.fixture
def build_trainer(tmp_path):
    """`quick_trainer` with a folder of this test."""
    return lambda **settings: quick_trainer(**{"output_dir": str(tmp_path / "out"), **settings})


@pytest.fixture
def config(tmp_path):
    return lambda **settings: GRPOVariantConfig(**{**SETTINGS, "output_dir": str(tmp_path / "out"), **settings})


@pytest.fixture
def run(build_trainer):
    """Builds, records and trains: `(trainer, recorder)`."""

    def train(**settings):
        trainer = build_trainer(**{"max_grad_norm": 0.0, **settings})
        recorder = Recorder(trainer)
        trainer.train()
        return trainer, recorder

    return train


@pytest.fixture
def logs_of():
    """The log lines of a trainer, without the summary at the end."""
    return lambda trainer: [row for row in trainer.state.log_history if "loss" in row]


@pytest.fixture
def rewards():
    return SimpleNamespace(letter=letter_reward, sparse=sparse_reward, silent=silent_reward, equal=equal_reward)


@pytest.fixture
def helpers():
    """This file, whose functions a second process imports as well."""
    return SimpleNamespace(file=__file__, **{name: value for name, value in globals().items() if name[0] != "_"})


@pytest.fixture
def first_half_steps():
    return first_letter_steps


@pytest.fixture
def record():
    return Recorder
