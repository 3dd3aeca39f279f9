"""Real trainers on a model of a few kilobytes, scripted rollouts, and the stock trainer to compare with."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
import transformers
from trl import GRPOConfig, GRPOTrainer

from trl_ext.grpo import GRPOVariantConfig, GRPOVariantTrainer

_spec = importlib.util.spec_from_file_location("trainer_helpers", Path(__file__).parents[1] / "trainer_helpers.py")
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)

letter_reward = shared.letter_reward


@pytest.fixture(autouse=True)
def _surroundings(frozen_garbage, one_thread, quiet):
    """The same in every test of a trainer."""


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
    rank, size = trainer.accelerator.process_index, len(prompts)
    group = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
    seeds = [f"{prompt} {(rank * size + place) % group}" for place, prompt in enumerate(prompts)]
    return shared.rollouts_from_seeds(prompts, seeds, trainer)


SETTINGS = {
    **shared.SETTINGS,
    "gradient_accumulation_steps": 2,
    "num_generations": 4,
    "disable_dropout": True,
    "bf16": False,
    "use_cpu": True,
}


def awaken_weights(trainer, scale=0.3):
    """Random values for LoRA B, which starts at zero."""
    weights = trainer.accelerator.unwrap_model(trainer.model).named_parameters()
    shared.randomise(weights, lambda name: "lora_B" in name, scale)


def quick_trainer(*, stock=False, prompts=shared.PROMPTS, awake=True, **settings):
    """A GRPOVariantTrainer (or TRL's own): arguments of the trainer go by name, the rest to its configuration."""
    names = (*shared.TRAINER_ARGUMENTS, "process_reward_funcs")
    arguments, rest = shared.split_arguments({"rollout_func": scripted_rollouts, **settings}, names, prompts)
    kind, config = (GRPOTrainer, GRPOConfig) if stock else (GRPOVariantTrainer, GRPOVariantConfig)
    trainer = kind(args=config(**{**SETTINGS, **rest}), **arguments)
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
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        gradients = {n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None}
        self.steps.append(
            SimpleNamespace(gradients=gradients, micro_batches=shared.micro_batches_of_step(self.trainer))
        )


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
