"""Real trainers on a model of a few kilobytes, scripted rollouts, and plain reference computations to compare with."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
import transformers
from peft import get_peft_model

from trl_ext.ppo import PPOConfig, PPOTrainer
from trl_ext.testing import tiny_model

_spec = importlib.util.spec_from_file_location("trainer_helpers", Path(__file__).parents[1] / "trainer_helpers.py")
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)

# name -> critic, full weights instead of LoRA, further settings
MODES = {
    "adapter": ("adapter", False, {}),
    "shared": ("shared", False, {}),
    "shared_detach": ("shared", False, {"critic_detach": True}),
    "shared_full": ("shared", True, {}),
    "model": ("model", False, {}),
}


@pytest.fixture(autouse=True)
def _surroundings(frozen_garbage, one_thread, quiet):
    """The same in every test of a trainer."""


def scripted_rollouts(prompts, trainer, env_mask=None):
    """Completions that depend on the prompt alone: ragged, some ended and some cut at the length limit."""
    return shared.rollouts_from_seeds(prompts, prompts, trainer)


@pytest.fixture
def reward():
    return shared.letter_reward


@pytest.fixture
def scripted():
    return scripted_rollouts


def quick_config(**overrides):
    """A PPOConfig for a run of a second."""
    return PPOConfig(**{**shared.SETTINGS, "critic_learning_rate": 1e-2, **overrides})


def quick_trainer(mode, tiny_path, *, full=None, prompts=shared.PROMPTS, **settings):
    """A PPOTrainer: `mode` is a key of MODES, arguments of the trainer go by name, the rest goes to PPOConfig.

    `full=True` (or the mode "shared_full") trains full weights of a saved model, which TRL can load as the reference.
    """
    critic, mode_is_full, extra = MODES[mode]
    full = mode_is_full if full is None else full
    names = (*shared.TRAINER_ARGUMENTS, "value_model", "quantization_config")
    given = {"value_model": tiny_model(seed=7) if critic == "model" else None, **extra, **settings}
    if full:
        given = {"model": str(tiny_path), "peft_config": None, **given}
    arguments, rest = shared.split_arguments(given, names, prompts)
    trainer = PPOTrainer(args=quick_config(critic=critic, **rest), **arguments)
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


@pytest.fixture
def lora():
    return shared.lora_config


@pytest.fixture
def config(tmp_path):
    return lambda **overrides: quick_config(**{"output_dir": str(tmp_path / "out"), **overrides})


@pytest.fixture
def build_trainer(tmp_path, tiny_model_path):
    """`quick_trainer` with a folder of this test."""

    def build(mode="adapter", **settings):
        return quick_trainer(mode, tiny_model_path, **{"output_dir": str(tmp_path / "out"), **settings})

    return build


def named_weights(trainer):
    """Every weight of policy and critic by name; the critic's under "critic."."""
    own = {id(p) for p in trainer.critic.parameters().values()}
    weights = {n: p for n, p in trainer.accelerator.unwrap_model(trainer.model).named_parameters() if id(p) not in own}
    return weights | {f"critic.{name}": p for name, p in trainer.critic.parameters().items()}


def awaken_weights(trainer, scale=0.3):
    """Random values for what starts at zero (value head, LoRA B): from zero, most gradients are zero."""

    def begins_at_zero(name):
        return "lora_B" in name or name.startswith("critic.head.")

    shared.randomise(named_weights(trainer).items(), begins_at_zero, scale)


class Recorder(transformers.TrainerCallback):
    """Weights, gradients and micro-batches of every optimizer step, before it is taken.

    Clipping is not in the gradients as long as `max_grad_norm=0`.
    """

    def __init__(self, trainer):
        self.trainer = trainer
        self.steps = []
        trainer.add_callback(self)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        trainer, weights = self.trainer, named_weights(self.trainer)
        step = SimpleNamespace(
            weights={n: p.detach().clone() for n, p in weights.items()},
            gradients={n: None if p.grad is None else p.grad.detach().clone() for n, p in weights.items()},
            micro_batches=shared.micro_batches_of_step(trainer),
            rollouts=trainer._rollouts,
        )
        self.steps.append(step)


@pytest.fixture
def weights_of():
    return named_weights


@pytest.fixture
def awaken():
    return awaken_weights


@pytest.fixture
def record():
    return Recorder


@pytest.fixture
def run(build_trainer):
    """Builds, awakens, records and trains: `(trainer, recorder)`."""

    def train(mode="adapter", *, awake=True, **settings):
        trainer = build_trainer(mode, **{"max_grad_norm": 0.0, **settings})
        if awake:
            awaken_weights(trainer)
        recorder = Recorder(trainer)
        trainer.train()
        return trainer, recorder

    return train


@pytest.fixture
def logs_of():
    """The log lines of a trainer, without the summary at the end."""

    def logs(trainer, *prefixes):
        rows = [row for row in trainer.state.log_history if "loss" in row]
        keep = prefixes or ("",)
        return [{k: v for k, v in row.items() if k.startswith(keep)} for row in rows]

    return logs


# --- plain reference computations ---------------------------------------------------------------------------------


class Reference:
    """The objective by hand: plain models with one adapter at most, one forward each, autograd over the whole batch."""

    def __init__(self, trainer, weights, lora_config):
        self.args, self.critic = trainer.args, trainer.critic
        self.weights = {n: w.clone().requires_grad_(w.is_floating_point()) for n, w in weights.items()}
        self.lora_config = lora_config
        self.is_lora = any("lora_" in name for name in weights)
        self.temperature = trainer.temperature

    def _plain(self, rename):
        model = tiny_model()
        if self.is_lora:
            model = get_peft_model(model, self.lora_config)
        names = {name: rename(name) for name, _ in model.named_parameters()}
        return model, {name: self.weights[other] for name, other in names.items()}

    def _hidden(self, model, weights, batch):
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        kwargs = {"input_ids": ids, "attention_mask": mask, "output_hidden_states": True}
        return torch.func.functional_call(model, weights, kwargs=kwargs)

    def logps(self, batch, adapters=True):
        model, weights = self._plain(lambda name: name)
        if not adapters:  # the reference: the base, or the weights the run began with
            initial = dict(model.named_parameters())
            weights = {n: w * 0 if "lora_B" in n else w if self.is_lora else initial[n] for n, w in weights.items()}
        output = self._hidden(model, weights, batch)
        length = batch["completion_ids"].size(1)
        log_probs = (output.logits[:, -length - 1 : -1] / self.temperature).log_softmax(-1)
        chosen = log_probs.gather(2, batch["completion_ids"].unsqueeze(-1)).squeeze(-1)
        return chosen, -(log_probs.exp() * log_probs).sum(-1), log_probs

    def values(self, batch):
        if self.critic.mode == "adapter":
            model, weights = self._plain(
                lambda n: f"critic.trunk.{n.replace('.default.', '.value.')}" if ".default." in n else n
            )
        elif self.critic.mode == "shared":
            model, weights = self._plain(lambda name: name)
            weights = {n: w.detach() if self.args.critic_detach else w for n, w in weights.items()}
        else:
            model = tiny_model(seed=7)
            trunk = {f"model.{n.removeprefix('critic.trunk.')}": w for n, w in self.weights.items() if "trunk." in n}
            weights = {name: trunk[name] for name, _ in model.named_parameters()}
        hidden = self._hidden(model, weights, batch).hidden_states[-1][:, -batch["completion_ids"].size(1) - 1 : -1]
        hidden = F.rms_norm(hidden, hidden.shape[-1:], eps=1e-6)
        return hidden @ self.weights["critic.head.linear.weight"][0] + self.weights["critic.head.linear.bias"]

    def token_weights(self, mask, batch):
        """Weight of each token's term for the loss type, over the whole optimizer step.

        TRL's token losses divide by the step's share of the tokens of the generation batch.
        """
        mask, kind = mask.float(), self.args.loss_type
        if kind in ("dapo", "cispo", "vespo"):
            args = self.args
            return mask * args.steps_per_generation / args.gradient_accumulation_steps / batch["num_items_in_batch"]
        if kind in ("grpo", "sapo"):
            return mask / mask.sum(-1, keepdim=True) / len(mask)
        return mask / (len(mask) * self.args.max_completion_length)

    def terms(self, batch):
        """policy, kl and value term, each with its weight, of one optimizer step on `batch`."""
        args, mask = self.args, batch["completion_mask"]
        if "tool_mask" in batch:
            mask = mask * batch["tool_mask"]
        weights = self.token_weights(mask, batch)
        logps, entropies, log_probs = self.logps(batch)
        old = batch.get("old_per_token_logps", logps.detach())
        ratio, advantages = (logps - old).exp(), batch["advantages"]
        clipped = ratio.clamp(1 - args.epsilon, 1 + args.epsilon)
        terms = {"policy": (-torch.minimum(ratio * advantages, clipped * advantages) * weights).sum()}
        terms["entropy"] = -args.entropy_coef * (entropies * mask).sum() / mask.sum()
        if args.kl_placement == "loss" and args.beta:
            with torch.no_grad():
                ref, _, ref_log_probs = self.logps(batch, adapters=False)
            difference = logps - ref
            kl = {
                "k1": difference,
                "k2": difference**2 / 2,
                "k3": torch.exp(-difference) - 1 + difference,
                "full": (log_probs.exp() * (log_probs - ref_log_probs)).sum(-1),
            }[args.kl_estimator]
            if args.use_bias_correction_kl and args.kl_estimator != "full":
                kl = kl * ratio
            terms["kl"] = args.beta * (kl * weights).sum()
        values, target, old_values = self.values(batch), batch["returns"], batch["old_values"]
        loss = 0.5 * (values - target) ** 2
        if args.cliprange_value is not None:
            near = torch.max(torch.min(values, old_values + args.cliprange_value), old_values - args.cliprange_value)
            loss = torch.maximum(loss, 0.5 * (near - target) ** 2)
        terms["value"] = args.vf_coef * (loss * weights * batch["value_mask"]).sum()
        return terms

    def gradients(self, batch, names):
        wanted = {name: self.weights[name] for name in names}
        total = sum(self.terms(batch).values())
        found = torch.autograd.grad(total, list(wanted.values()), allow_unused=True)
        return dict(zip(wanted, found, strict=True))


@pytest.fixture
def reference(lora):
    return lambda trainer, weights: Reference(trainer, weights, lora())
