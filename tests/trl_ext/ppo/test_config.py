"""PPOConfig: aliases, defaults, and one sentence for what cannot be."""

import dataclasses
import logging

import pytest
import torch
from trl import GRPOConfig

from trl_ext.errors import UserError
from trl_ext.ppo import PPOConfig


@pytest.fixture
def make(tmp_path):
    return lambda **settings: PPOConfig(output_dir=str(tmp_path), report_to=[], **settings)


def test_config_defaults_are_those_documented(make):
    config = make()
    assert (config.num_generations, config.learning_rate, config.beta, config.disable_dropout) == (1, 1e-5, 0.05, True)
    assert type(config.num_generations) is int
    assert (config.critic, config.critic_learning_rate, config.gamma, config.lam) == ("adapter", 1e-4, 1.0, 0.95)
    assert config.critic_max_grad_norm == config.max_grad_norm
    assert config.kl_coef == config.beta and config.num_ppo_epochs == config.num_iterations == 1


def test_config_keeps_every_field_of_grpo_config():
    assert {f.name for f in dataclasses.fields(GRPOConfig)} <= {f.name for f in dataclasses.fields(PPOConfig)}


def test_config_documents_and_describes_every_field_of_its_own():
    own = {f.name: f for f in dataclasses.fields(PPOConfig)}
    inherited = {f.name for f in dataclasses.fields(GRPOConfig)}
    for name in own.keys() - inherited:
        assert f"\n        {name} (`" in PPOConfig.__doc__, name
        assert own[name].metadata["help"], name


@pytest.mark.parametrize("critic, rate", [("adapter", 1e-4), ("shared", 1e-4), ("model", 1e-5)])
def test_critic_learning_rate_unset_depends_on_the_critic(make, critic, rate):
    assert make(critic=critic).critic_learning_rate == rate
    assert make(critic=critic, critic_learning_rate=3e-4).critic_learning_rate == 3e-4


@pytest.mark.parametrize(
    "alias, name, value", [("kl_coef", "beta", 0.2), ("kl_coef", "beta", 0.0), ("num_ppo_epochs", "num_iterations", 4)]
)
def test_alias_sets_the_inherited_field_and_the_other_way_round(make, alias, name, value):
    assert getattr(make(**{alias: value}), name) == value
    assert getattr(make(**{name: value}), alias) == value
    both = make(**{alias: value, name: value})
    assert getattr(both, alias) == getattr(both, name) == value


@pytest.mark.parametrize("alias, name", [("kl_coef", "beta"), ("num_ppo_epochs", "num_iterations")])
def test_alias_that_differs_from_the_inherited_field_is_refused(make, alias, name):
    with pytest.raises(UserError, match=f"{alias}=2 and {name}=3 are two names of one setting and differ; give one"):
        make(**{alias: 2, name: 3})


def test_num_mini_batches_sets_the_steps_of_a_generation(make):
    config = make(num_mini_batches=3, gradient_accumulation_steps=4, per_device_train_batch_size=2)
    assert config.steps_per_generation == 12 and config.generation_batch_size == 24
    assert make(num_mini_batches=2, steps_per_generation=2).steps_per_generation == 2


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"num_iterations": 0}, "num_iterations=0 must be a whole number of at least 1"),
        ({"vf_coef": float("nan")}, "vf_coef=nan must be a finite number"),
        ({"gamma": "high"}, "gamma='high' must be a finite number"),
        ({"reward_weights": [1.0, float("nan")]}, "must be finite numbers"),
        ({"num_mini_batches": 0}, "num_mini_batches=0 must be a whole number of at least 1"),
        (
            {"num_mini_batches": 2, "generation_batch_size": 16},
            "num_mini_batches and generation_batch_size both set .* give one",
        ),
        (
            {"num_mini_batches": 2, "steps_per_generation": 3},
            r"means steps_per_generation=2 .*but steps_per_generation=3 was given; give one",
        ),
        ({"num_generations": 0}, "num_generations=0 must be a whole number of at least 1"),
        ({"num_generations": -2}, "num_generations=-2 must be a whole number of at least 1"),
        ({"num_generations": 1.5}, "num_generations=1.5 must be a whole number"),
        ({"critic": "adaptor"}, "critic='adaptor' is unknown; choose one of adapter, shared, model.*mean 'adapter'"),
        ({"critic": "x"}, "critic='x' is unknown; choose one of adapter, shared, model.$"),
        (
            {"critic_target": "lambda"},
            "critic_target='lambda' is unknown; choose one of gae, reward_to_go, terminal, td",
        ),
        ({"critic_loss": "mae"}, "critic_loss='mae' is unknown"),
        ({"kl_estimator": "k4"}, "kl_estimator='k4' is unknown; choose one of k1, k2, k3, abs, full"),
        ({"kl_placement": "rewards"}, "kl_placement='rewards' is unknown.*did you mean 'reward'"),
        ({"loss_type": "dapu"}, "loss_type='dapu' is unknown; choose one of grpo, dr_grpo, dapo.*mean 'dapo'"),
        (
            {"importance_sampling_level": "word"},
            "importance_sampling_level='word' is unknown; choose one of token, seq",
        ),
        ({"kl_direction": "backward"}, "kl_direction='backward' is unknown"),
        ({"gamma": 1.01}, r"gamma=1.01 must lie in \[0, 1\]"),
        ({"lam": -0.1}, r"lam=-0.1 must lie in \[0, 1\]"),
        ({"lam_policy": 2.0}, "lam_policy=2.0 must lie"),
        ({"lam_value": 2.0}, "lam_value=2.0 must lie"),
        ({"kl_coef": -0.1}, "beta=-0.1 must not be negative"),
        ({"vf_coef": -1.0}, "vf_coef=-1.0 must not be negative"),
        ({"critic_max_grad_norm": -1.0}, "critic_max_grad_norm=-1.0 must not be negative"),
        ({"reward_weights": 1.0}, "reward_weights=1.0 must be a list with one number for each reward"),
        ({"critic_warmup_steps": -1}, "critic_warmup_steps=-1 must not be negative"),
        ({"cliprange_value": -0.1}, r"cliprange_value=-0.1 must be above 0"),
        ({"reward_clip": -1.0}, r"reward_clip=-1.0 must be above 0 \(leave it unset to turn it off\)"),
        ({"target_kl": 0.0}, "target_kl=0.0 must be above 0"),
        ({"kl_target": 0.0}, "kl_target=0.0 must be above 0"),
        ({"critic_learning_rate": 0.0}, "critic_learning_rate=0.0 must be above 0"),
        ({"length_adaptive_lam": 0.05, "lam_policy": 0.9}, "both set the policy's lambda; give one"),
        ({"kl_target": 1.0, "kl_coef": 0.0}, "kl_target adapts .* set kl_coef, e.g. 0.05"),
        ({"target_kl": 0.1, "fp16": True}, "target_kl does not run with fp16=True .*use bf16=True"),
    ],
)
def test_config_that_cannot_work_is_refused_in_one_sentence(make, settings, sentence):
    with pytest.raises(UserError, match=sentence) as error:
        make(**settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("off", [0, 0.0, None])
def test_cliprange_value_of_zero_or_none_turns_clipping_off(make, off):
    assert make(cliprange_value=off).cliprange_value is None


def test_batch_that_groups_do_not_divide_is_refused(make):
    with pytest.raises(ValueError, match=r"divisible.*num_generations|num_generations.*divisible"):
        make(num_generations=3, per_device_train_batch_size=4, gradient_accumulation_steps=1)


@pytest.mark.parametrize("num_generations", [1, 2, 4])
def test_num_generations_may_be_one_or_more(make, num_generations):
    config = make(num_generations=num_generations, per_device_train_batch_size=4)
    assert config.num_generations == num_generations


def test_precision_without_an_accelerator_is_float32_with_one_log_line(make, caplog, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with caplog.at_level(logging.INFO, logger="trl_ext._trainer"):
        config = make()
    assert config.bf16 is False and config.use_cpu
    assert [record.message for record in caplog.records if "float32 on the CPU" in record.message]
    assert len(caplog.records) == 1


def test_config_to_dict_and_back_is_the_same(make):
    config = make(kl_coef=0.2, num_ppo_epochs=2, num_mini_batches=2, critic="shared", num_generations=2)
    names = {f.name for f in dataclasses.fields(PPOConfig) if f.init}
    settings = {name: getattr(config, name) for name in names}
    # TRL takes one of these two; both are set after the first time
    again = PPOConfig(**{**settings, "generation_batch_size": None})
    assert {name: getattr(again, name) for name in names} == settings
