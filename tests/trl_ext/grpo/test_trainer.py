"""GRPOVariantTrainer: TRL's own numbers by default, presets, clipping, masks, and what is logged."""

import subprocess
import sys

import pandas as pd
import pytest
import torch
from accelerate.utils import DistributedType
from datasets import Dataset

from trl_ext.errors import UserError
from trl_ext.grpo.presets import PRESETS, estimated_advantages

LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo")
UNTIMED = ("loss", "grad_norm", "reward", "reward_std", "kl", "entropy", "frac_reward_zero_std", "policy_loss")


def _same_runs(first, second, logs_of, names=UNTIMED, tolerance=1e-5):
    (one, recorded), (other, others) = first, second
    for row, expected in zip(logs_of(one), logs_of(other), strict=True):
        for name in names:
            assert (name in row) == (name in expected), name
            if name in row:
                assert row[name] == pytest.approx(expected[name], abs=tolerance, rel=tolerance), name
    for step, expected in zip(recorded.steps, others.steps, strict=True):
        assert step.gradients.keys() == expected.gradients.keys()
        for name, gradient in step.gradients.items():
            torch.testing.assert_close(gradient, expected.gradients[name], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("num_iterations", [1, 2])
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_default_settings_reproduce_the_stock_trainer(run, logs_of, rewards, loss_type, beta, num_iterations):
    settings = {"loss_type": loss_type, "beta": beta, "num_iterations": num_iterations, "max_steps": 2 * num_iterations}
    settings["reward_funcs"] = [rewards.letter, rewards.sparse, rewards.silent]
    settings["reward_weights"] = [1.0, 0.5, 2.0]
    ours, stock = (run(stock=stock, **settings) for stock in (False, True))
    _same_runs(ours, stock, logs_of)
    assert logs_of(ours[0])[0]["grad_norm"] > 0
    assert list(ours[0]._logs["advantages"]) == list(stock[0]._logs["advantages"])


@pytest.mark.parametrize("scale_rewards", ["group", "batch", "none"])
@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
def test_custom_preset_with_trl_constants_reproduces_the_stock_trainer(run, logs_of, rewards, loss_type, scale_rewards):
    settings = {"loss_type": loss_type, "beta": 0.1, "scale_rewards": scale_rewards}
    settings["reward_funcs"] = [rewards.letter, rewards.sparse]
    ours = run(advantage_estimator="custom", **settings)
    _same_runs(ours, run(stock=True, **settings), logs_of)


def test_normalize_then_sum_reproduces_the_stock_trainer(run, logs_of, rewards):
    settings = {"multi_objective_aggregation": "normalize_then_sum", "reward_funcs": [rewards.letter, rewards.silent]}
    stock = run(stock=True, **settings)
    names = ("loss", "grad_norm", "reward", "reward_std")
    _same_runs(run(**settings), stock, logs_of)
    _same_runs(run(advantage_estimator="custom", **settings), stock, logs_of, names=names)
    settings.pop("multi_objective_aggregation")
    _same_runs(run(advantage_estimator="gdpo", **settings), stock, logs_of, names=names)


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_own_k3_term_reproduces_the_stock_one(build_trainer, run, logs_of, loss_type, level, monkeypatch):
    """The path of the other estimators, with TRL's own estimator in it."""
    settings = {"loss_type": loss_type, "beta": 0.3, "num_iterations": 2, "importance_sampling_level": level}
    settings |= {"entropy_coef": 0.05, "max_steps": 4, "steps_per_generation": 4}
    stock = run(stock=True, **settings)
    monkeypatch.setattr("trl_ext.grpo.config.GRPOVariantConfig.has_stock_kl", False)
    names = ("loss", "grad_norm", "reward", "entropy")
    _same_runs(run(**settings), stock, logs_of, names=names)


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "trl"])
def test_preset_gives_the_advantages_of_the_pure_function(build_trainer, logs_of, name):
    trainer = build_trainer(advantage_estimator=name)
    seen = []
    calculate = trainer._calculate_rewards
    trainer._calculate_rewards = lambda *args: seen.append(calculate(*args)) or seen[-1]
    trainer.train()
    first = float(seen[0].double().mean())
    expected = estimated_advantages(seen[1], torch.ones(1), 4, PRESETS[name], running_mean=first)
    used = torch.cat([batch["advantages"] for batch in trainer._buffered_inputs])
    torch.testing.assert_close(used.sort().values, expected.sort().values)
    assert list(trainer._logs["advantages"]) == pytest.approx(expected.tolist())


def test_advantage_clip_bounds_what_is_used_and_logged(run):
    trainer, recorder = run(advantage_clip=0.2)
    used = torch.cat([batch["advantages"] for step in recorder.steps for batch in step.micro_batches])
    assert used.abs().max() == pytest.approx(0.2) and max(map(abs, trainer._logs["advantages"])) == pytest.approx(0.2)


def test_one_generation_trains_with_a_baseline_outside_the_group(run):
    trainer, recorder = run(num_generations=1, advantage_estimator="reinforce_pp")
    used = torch.cat([batch["advantages"] for batch in recorder.steps[0].micro_batches])
    assert used.std(correction=0) == pytest.approx(1.0, rel=1e-4) and trainer.num_generations == 1


def test_running_mean_is_read_before_it_is_updated(run):
    trainer, recorder = run(advantage_estimator="reinforce", num_generations=2)
    first = torch.cat([batch["advantages"] for batch in recorder.steps[0].micro_batches])
    assert first.min() >= 0  # the baseline is 0 at first, and the rewards are not negative
    assert trainer.running_mean.value > 0


def test_unscored_completions_move_nothing(run, rewards):
    trainer, _ = run(reward_funcs=[rewards.sparse], advantage_estimator="custom")
    table = zip(trainer._logs["rewards"]["sparse_reward"], trainer._logs["advantages"], strict=True)
    unscored = [advantage for reward, advantage in table if reward != reward]
    assert unscored and set(unscored) == {0.0}


def test_identical_rewards_give_exact_zeros_and_are_counted(run, logs_of):
    def reward(completions, **kwargs):
        return [0.1] * len(completions)

    trainer, _ = run(
        reward_funcs=reward, advantage_estimator="open_instruct", num_generations=3, per_device_train_batch_size=3
    )
    assert set(trainer._logs["advantages"]) == {0.0}
    assert logs_of(trainer)[0]["frac_reward_zero_std"] == 1.0 and logs_of(trainer)[0]["reward_std"] == 0.0


def test_infinite_reward_is_refused_with_its_name(run):
    def endless_reward(completions, **kwargs):
        return [float("inf")] * len(completions)

    with pytest.raises(UserError, match="The reward 'endless_reward' is infinite for a completion"):
        run(reward_funcs=endless_reward)


@pytest.mark.parametrize(
    "settings", [{"advantage_estimator": "custom"}, {"zero_std": "mask"}, {"zero_std": "resample"}]
)
def test_batch_without_any_score_moves_nothing(run, logs_of, settings):
    def no_reward(completions, **kwargs):
        return [None] * len(completions)

    trainer, recorder = run(reward_funcs=no_reward, max_steps=1, **settings)
    assert all(not gradient.any() for gradient in recorder.steps[0].gradients.values())
    assert logs_of(trainer)[0]["frac_reward_zero_std"] == 1.0


def test_package_imports_nothing_of_ppo():
    code = "import sys, trl_ext.grpo.trainer; print([name for name in sys.modules if name.startswith('trl_ext.ppo')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"advantage_estimator": "rloo", "beta": 0.1, "kl_estimator": "full"},
        {"zero_std": "resample"},
        {"zero_std": "replay", "beta": 0.1, "kl_placement": "reward", "kl_estimator": "k1"},
        {"zero_std": "mask", "mask_truncated_completions": True},
    ],
)
def test_model_samples_its_own_completions(run, logs_of, tmp_path, settings):
    def reward(completions, prompts, **kwargs):
        return [0.0 if "8" in p else float("a" in t) for p, t in zip(prompts, completions, strict=True)]

    more = {"rollout_func": None, "reward_funcs": reward, "max_steps": 3, "log_completions": True, "awake": False}
    trainer, _ = run(**more, **settings)
    assert len(logs_of(trainer)) == 3
    tables = sorted((tmp_path / "out" / "completions").iterdir())
    assert len(tables) == 3 and len(pd.read_parquet(tables[-1])) == 8


def test_lora_is_fused_only_where_transformers_generates_on_whole_weights(build_trainer, monkeypatch):
    trainer = build_trainer(rollout_func=None)
    assert trainer._fuses_lora
    for owner, name, value in (
        (trainer.args, "fused_generation", False),
        (trainer.args, "torch_compile", True),
        (trainer, "use_vllm", True),
        (trainer, "use_transformers_continuous_batching", True),
        (trainer.accelerator.state, "distributed_type", DistributedType.FSDP),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            assert not trainer._fuses_lora, name


def test_evaluation_uses_its_own_number_of_generations(build_trainer):
    data = Dataset.from_dict({"prompt": ["5+5=", "6+6=", "7+7=", "8+8="]})
    trainer = build_trainer(advantage_estimator="rloo", eval_dataset=data, num_generations_eval=2)
    figures = trainer.evaluate()
    assert figures["eval_frac_reward_zero_std"] == 0.0 and "eval_reward_std" in figures


def test_wrong_configuration_class_is_refused(build_trainer, tmp_path):
    from trl import GRPOConfig

    from trl_ext.grpo import GRPOVariantTrainer
    from trl_ext.testing import tiny_model

    args = GRPOConfig(output_dir=str(tmp_path), bf16=False, use_cpu=True)
    with pytest.raises(UserError, match="args is a GRPOConfig; GRPOVariantTrainer takes a GRPOVariantConfig"):
        GRPOVariantTrainer(tiny_model(), args=args)


def test_adapter_for_inference_is_refused(build_trainer):
    from peft import LoraConfig, get_peft_model

    from trl_ext.testing import tiny_model

    model = get_peft_model(tiny_model(), LoraConfig(r=2, target_modules=["q_proj"]))
    model.requires_grad_(False)
    with pytest.raises(UserError, match="nothing to train"):
        build_trainer(model=model, peft_config=None)


@pytest.mark.parametrize(
    ("settings", "reward", "sentence"),
    [
        ({"advantage_estimator": "dr_grpo", "reward_weights": [10.0]}, 3e38, "the advantages that come of them"),
        ({"advantage_estimator": "reinforce", "reward_weights": [10.0]}, 3e38, "the advantages that come of them"),
        ({"scale_rewards": "none"}, 3e38, "the squares of the weighted rewards"),
        ({"reward_weights": [1e20]}, 1.0, "the squares of the weighted rewards"),
    ],
)
def test_rewards_beyond_float32_stop_the_run_before_the_weights_are_nan(build_trainer, settings, reward, sentence):
    def huge_reward(completions, **kwargs):
        return [reward * (index % 3 - 1) for index, _ in enumerate(completions)]

    trainer = build_trainer(reward_funcs=huge_reward, **settings)
    with pytest.raises(UserError, match=rf"^Rewards of up to .*: {sentence}.* beyond float32; scale") as caught:
        trainer.train()
    assert "\n" not in str(caught.value) and trainer.state.global_step == 0


def test_wrong_number_of_reward_weights_is_refused(build_trainer, helpers):
    with pytest.raises(UserError, match=r"reward_weights=\[1.0, 2.0\] has 2 entries for 1 reward functions"):
        build_trainer(reward_weights=[1.0, 2.0])
    with pytest.raises(UserError, match=r"reward_weights=\[1.0, 2.0\] has 2 entries for 1 reward functions"):
        build_trainer(reward_weights=[1.0, 2.0], reward_funcs=None, process_reward_funcs=helpers.first_letter_steps)


def _gold_reward(completions, solution, **kwargs):
    return [0.0] * len(completions)


def _gold_steps(completions, *, solution, **kwargs):
    return [([], []) for _ in completions]


def _strict_reward(completions):
    return [0.0] * len(completions)


class _GoldReward:
    __name__ = "gold_object"

    def __call__(self, completions, solution, weight=1.0, **kwargs):
        return [0.0] * len(completions)


@pytest.mark.parametrize(
    ("functions", "sentence"),
    [
        (
            {"reward_funcs": _gold_reward},
            r"The reward function '_gold_reward' needs a column 'solution'; the data set has \['prompt'\]. Add or",
        ),
        ({"reward_funcs": _GoldReward()}, "The reward function 'gold_object' needs a column 'solution'"),
        ({"process_reward_funcs": _gold_steps}, "The process reward '_gold_steps' needs a column 'solution'"),
        ({"reward_funcs": _strict_reward}, r"'_strict_reward' does not accept 'completion_ids'; give it \*\*kwargs"),
        (
            {"reward_funcs": lambda prompt, **kwargs: [0.0]},
            "takes 'prompt', which it is given as 'prompts'; rename it",
        ),
    ],
)
def test_column_that_a_reward_needs_and_the_data_lack_is_refused_before_training(build_trainer, functions, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        build_trainer(rollout_func=None, **functions)
    assert "\n" not in str(caught.value)


def test_evaluation_data_have_the_columns_of_the_rewards_too(build_trainer):
    with_column = Dataset.from_dict({"prompt": ["1+1="] * 2, "solution": ["2"] * 2})
    settings = {"rollout_func": None, "reward_funcs": _gold_reward, "train_dataset": with_column}
    build_trainer(**settings, eval_dataset=with_column)
    with pytest.raises(UserError, match="'_gold_reward' needs a column 'solution'"):
        build_trainer(**settings, eval_dataset={"other": Dataset.from_dict({"prompt": ["1+1="] * 2})})


def test_columns_that_a_rollout_function_may_add_are_not_asked_for(build_trainer):
    build_trainer(reward_funcs=_gold_reward)


def test_too_few_prompts_are_refused(build_trainer):
    with pytest.raises(UserError, match="has 1 prompts and one generation batch needs 2"):
        build_trainer(prompts=["1+1="])


def test_trainer_that_was_interrupted_within_a_step_logs_what_one_that_was_not_does(
    build_trainer, logs_of, interruption, tmp_path
):
    settings = {"max_steps": 4, "gradient_accumulation_steps": 2, "save_strategy": "steps", "save_steps": 1}
    whole = build_trainer(output_dir=str(tmp_path / "whole"), **settings)
    whole.train()
    trainer = build_trainer(output_dir=str(tmp_path / "cut"), callbacks=[interruption], **settings)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.train(resume_from_checkpoint=True)
    assert len(logs_of(trainer)) == 4
    for row, other in zip(logs_of(whole), logs_of(trainer), strict=True):
        assert {n: v for n, v in row.items() if "time" not in n} == {n: v for n, v in other.items() if "time" not in n}
