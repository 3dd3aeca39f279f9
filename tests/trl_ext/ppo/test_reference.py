"""The reference is the policy as it was before the first update, however its adapter began."""

import copy
import importlib.util
from pathlib import Path

import peft
import pytest
import torch
import transformers
from peft import get_peft_model

from trl_ext import _reference
from trl_ext.errors import UserError
from trl_ext.grpo import GRPOVariantConfig, GRPOVariantTrainer
from trl_ext.testing import tiny_model

_spec = importlib.util.spec_from_file_location("trainer_helpers", Path(__file__).parents[1] / "trainer_helpers.py")
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)

ALTERING = ("pissa", "pissa_niter_4", "olora", "orthogonal", False)  # what has no identity on the unmodified base
STARTS = {
    **{str(start): {"init_lora_weights": start} for start in (*ALTERING, True, "gaussian")},
    "dora": {"use_dora": True, "init_lora_weights": False},
    "embeddings": {"target_modules": ["embed_tokens", "q_proj"], "init_lora_weights": False},
    "modules": {"modules_to_save": ["norm"], "init_lora_weights": "pissa"},
    "replicated": {"layer_replication": [(0, 2), (0, 2)], "init_lora_weights": False},
}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12]])


@pytest.fixture
def build(build_trainer, tmp_path):
    """A trainer of either kind, whose KL is measured for its whole first generation batch."""

    def build_grpo(**settings):
        given = {"num_generations": 4, "bf16": False, "use_cpu": True, "output_dir": str(tmp_path / "out"), **settings}
        arguments, rest = shared.split_arguments(given, shared.TRAINER_ARGUMENTS, shared.PROMPTS)
        trainer = GRPOVariantTrainer(args=GRPOVariantConfig(**{**shared.SETTINGS, **rest}), **arguments)
        trainer.remove_callback(transformers.PrinterCallback)
        return trainer

    def build_either(kind, **settings):
        settings = {"max_steps": 1, "beta": 0.1, **settings}
        return build_grpo(**settings) if kind == "grpo" else build_trainer(kind, **settings)

    return build_either


def _first_kl(trainer):
    row = next(row for row in trainer.state.log_history if "loss" in row)
    return row["kl"] if "kl" in row else row["policy/kl_ref_token"]


def _logits(model):
    was_training, result = model.training, model.eval()(input_ids=IDS).logits.detach().clone()
    model.train(was_training)
    return result


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("kind", ["adapter", "grpo"])
def test_divergence_before_the_first_update_is_zero(build, lora, kind, start):
    trainer = build(kind, peft_config=lora(**STARTS[start]))
    before = _logits(trainer.model)
    trainer.train()
    assert _first_kl(trainer) == 0.0
    assert not torch.equal(_logits(trainer.model), before)
    assert ("ref" in trainer.model.peft_config) == (start not in ("True", "gaussian"))


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("kind", ["adapter", "grpo"])
def test_given_peft_model_keeps_its_logits_and_begins_without_divergence(build, lora, kind, start):
    torch.manual_seed(3)
    model = get_peft_model(tiny_model(), lora(**STARTS[start]))
    before, config = _logits(model), model.peft_config["default"]
    told = copy.deepcopy(config)
    trainer = build(kind, model=model, peft_config=None)
    assert torch.equal(_logits(trainer.model), before)
    trainer.train()
    assert _first_kl(trainer) == 0.0
    assert trainer.model.peft_config["default"] is config and config == told


@pytest.mark.parametrize("kind", ["adapter", "grpo"])
def test_reference_is_the_start_after_updates_and_is_not_trained(build, lora, kind):
    trainer = build(kind, peft_config=lora(init_lora_weights="pissa"), max_steps=3)
    start = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters() if ".default." in name}
    before = _logits(trainer.model)
    assert len(start) == 8 and all(
        weight.requires_grad for name, weight in trainer.model.named_parameters() if name in start
    )
    trainer.train()
    weights = dict(trainer.model.named_parameters())
    for name, weight in start.items():
        assert torch.equal(weights[name.replace(".default.", ".ref.")], weight)
        assert not torch.equal(weights[name], weight) and weights[name].requires_grad
        assert not weights[name.replace(".default.", ".ref.")].requires_grad
    trainer.model.set_adapter("ref")
    assert torch.equal(_logits(trainer.model), before)


@pytest.mark.parametrize("estimator", ["k3", "full"])
def test_divergence_in_the_loss_is_zero_before_the_first_update(build, lora, estimator):
    trainer = build("adapter", peft_config=lora(init_lora_weights="pissa"), kl_placement="loss", kl_estimator=estimator)
    trainer.train()
    row = next(row for row in trainer.state.log_history if "loss" in row)
    assert row["objective/kl"] == 0.0


@pytest.mark.parametrize("kind", ["adapter", "grpo"])
@pytest.mark.parametrize(
    "config",
    [
        peft.LoHaConfig(r=4, target_modules=["q_proj"], init_weights=False),
        peft.VeraConfig(target_modules=["q_proj"], init_weights=False),
        peft.LoraConfig(r=4, target_modules=["embed_tokens"], init_lora_weights=False),
    ],
    ids=lambda config: type(config).__name__,
)
def test_reference_of_a_given_adapter_has_all_of_its_weights(build, kind, config):
    # the names of these weights end in "default", which TRL's copy passes over
    torch.manual_seed(3)
    model = get_peft_model(tiny_model(), copy.deepcopy(config))
    trainer = build("shared" if kind == "adapter" else kind, model=model, peft_config=None)
    trainer.train()
    assert _first_kl(trainer) == 0.0


def test_no_reference_is_kept_without_a_divergence(build, lora):
    trainer = build("adapter", peft_config=lora(init_lora_weights=False), beta=0.0)
    assert sorted(trainer.model.peft_config) == ["default", "value"]


def test_reference_takes_no_random_numbers_of_the_run(lora):
    states = []
    for beta in (0.0, 0.1):
        torch.manual_seed(5)
        model = get_peft_model(tiny_model(), lora(init_lora_weights=False))
        _reference.keep_start(model, beta)
        states.append(torch.get_rng_state())
    assert torch.equal(*states) and "ref" in model.peft_config


@pytest.mark.parametrize("kind", ["adapter", "grpo"])
def test_resumed_run_compares_with_the_start_of_the_first_one(build, lora, tmp_path, kind):
    def settings():
        torch.manual_seed(0)
        saved = {"save_strategy": "steps", "save_steps": 1, "max_steps": 4, "max_grad_norm": 1.0}
        return {**saved, "peft_config": lora(init_lora_weights="pissa")}

    whole = build(kind, **settings(), output_dir=str(tmp_path / "whole"))
    whole.train()
    resumed = build(kind, **settings(), output_dir=str(tmp_path / "resumed"))
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert resumed.state.global_step == 4
    theirs = dict(whole.model.named_parameters())
    for name, weight in resumed.model.named_parameters():
        torch.testing.assert_close(weight, theirs[name], atol=1e-7, rtol=1e-5, msg=name)


# --- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["shared", "grpo"])
@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            peft.LoHaConfig(r=4, target_modules=["q_proj"], init_weights=False),
            "LoHaConfig with init_weights=False begins",
        ),
        (
            peft.AdaLoraConfig(target_modules=["q_proj"], total_step=9, init_lora_weights=False),
            "AdaLoraConfig with init_lora_weights=False begins at random",
        ),
        (peft.PromptTuningConfig(num_virtual_tokens=4), "A fresh adapter of PromptTuningConfig changes the model"),
        (
            peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights="pissa", bias="all"),
            "bias='all' with init_lora_weights='pissa' has no reference",
        ),
    ],
)
def test_start_that_has_no_reference_is_refused_with_the_remedy(build, kind, config, said):
    config.task_type = "CAUSAL_LM"
    with pytest.raises(UserError, match=said + r".*kl_coef=0 \(beta=0\)\.") as refusal:
        build(kind, peft_config=copy.deepcopy(config))
    assert "\n" not in str(refusal.value)


def test_other_adapters_that_begin_as_the_identity_are_accepted(build):
    trainer = build("shared", peft_config=peft.LoHaConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    trainer.train()
    assert _first_kl(trainer) == 0.0 and "ref" not in trainer.model.peft_config
