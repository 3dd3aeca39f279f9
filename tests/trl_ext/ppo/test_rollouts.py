"""From completions to advantages inside a trainer: the same rollouts as TRL, scores, masks, KL in the reward."""

import hashlib

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft.tuners.lora import LoraLayer
from trl import GRPOConfig, GRPOTrainer

from trl_ext.testing import tiny_model, tiny_tokenizer

LORA_MODES = ("adapter", "shared", "shared_detach", "model")


def _digest(weights):
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(weights[name].detach().numpy().tobytes())
    return digest.hexdigest()


def test_rollouts_are_those_of_grpo_whatever_the_critic(build_trainer, tmp_path, reward, lora):
    settings = {"num_generations": 2, "per_device_train_batch_size": 8, "max_completion_length": 8, "max_steps": 1}
    settings |= {"report_to": [], "use_cpu": True, "bf16": False, "disable_tqdm": True, "output_dir": str(tmp_path)}
    rows = Dataset.from_dict({"prompt": [f"{n}+{n}=" for n in range(8)]})
    stock = GRPOTrainer(
        tiny_model(), reward, GRPOConfig(**settings), rows, processing_class=tiny_tokenizer(), peft_config=lora()
    )
    stock.train()
    expected = list(stock._logs["completion"])
    assert len(set(expected)) > 4
    for mode in LORA_MODES:
        trainer = build_trainer(mode, train_dataset=rows, **settings)
        trainer.train()
        assert list(trainer._logs["completion"]) == expected, mode


class FusedLayers:
    """How many LoRA layers are fused in the forward passes of the policy, with and without gradients."""

    def __init__(self, trainer):
        self.with_gradients, self.without = set(), set()
        layers = [module for module in trainer.model.modules() if isinstance(module, LoraLayer)]

        def count(module, inputs):
            seen = self.with_gradients if torch.is_grad_enabled() else self.without
            seen.add(sum("forward" in vars(layer) for layer in layers))

        trainer.model.get_base_model().register_forward_pre_hook(count)


@pytest.mark.parametrize("mode", ["adapter", "shared"])
def test_generation_alone_is_fused_and_gives_the_same_completions(build_trainer, awaken, mode):
    completions, losses = [], []
    for fused, without_gradients in ((True, {0, 4}), (False, {0})):
        trainer = build_trainer(mode, max_steps=1, beta=0.1, fused_generation=fused)
        awaken(trainer)
        layers = FusedLayers(trainer)
        trainer.train()
        assert (layers.without, layers.with_gradients) == (without_gradients, {0})
        completions.append(list(trainer._logs["completion"]))
        losses.append(trainer.state.log_history[0]["loss"])
    assert completions[0] == completions[1]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


@pytest.mark.parametrize("mode", ["adapter", "shared_full"])
def test_training_with_the_same_seed_is_the_same_run(build_trainer, weights_of, logs_of, mode):
    runs = []
    for seed in (3, 3, 4):
        trainer = build_trainer(mode, seed=seed, kl_coef=0.1)
        trainer.train()
        runs.append((_digest(weights_of(trainer)), [row["loss"] for row in logs_of(trainer)]))
    assert runs[0] == runs[1] != runs[2]


def _fixed(rollouts):
    """A rollout function that gives each prompt the completion listed for it."""

    def rollout(prompts, trainer):
        encode = lambda text: tiny_tokenizer()(text).input_ids  # noqa: E731
        rows = [rollouts[prompt] for prompt in prompts]
        result = {"prompt_ids": [encode(p) for p in prompts], "logprobs": None}
        result["completion_ids"] = [encode(row["text"]) + [tiny_tokenizer().eos_token_id] * row["ends"] for row in rows]
        if "env_mask" in rows[0]:
            result["env_mask"] = [row["env_mask"] for row in rows]
        return result

    return rollout


def _rows(recorder, trainer, step=0):
    """Prompt -> row of the rollouts of a step."""
    batch = recorder.steps[step].rollouts
    texts = [trainer.processing_class.decode(ids[ids != 0]) for ids in batch["prompt_ids"]]
    tensors = {name: t for name, t in batch.items() if isinstance(t, torch.Tensor) and t.ndim == 2}
    return {text: {name: tensor[row] for name, tensor in tensors.items()} for row, text in enumerate(texts)}


TWO = {"a": {"text": "xyz", "ends": True}, "b": {"text": "xyzuvwst", "ends": False}}
PLAIN = {"gamma": 0.0, "lam": 0.0, "whiten_advantages": False, "kl_coef": 0.0, "max_steps": 1}


@pytest.fixture
def advantages_of(build_trainer, record):
    """Trains one step on the prompts of `rollouts`; prompt -> advantages of a critic that says 0."""

    def go(rollouts, reward, **settings):
        prompts = [prompt for prompt in rollouts for _ in range(4 // len(rollouts))]
        settings = {"reward_funcs": reward, "rollout_func": _fixed(rollouts), "prompts": prompts, **PLAIN, **settings}
        trainer = build_trainer("adapter", **settings)
        recorder = record(trainer)
        trainer.train()
        return {prompt: row["advantages"].tolist() for prompt, row in _rows(recorder, trainer).items()}

    return go


def _by_prompt(table):
    def table_reward(prompts, **kwargs):
        return [table[prompt] for prompt in prompts]

    return table_reward


def test_score_stands_on_the_last_token_of_each_completion(advantages_of):
    advantages = advantages_of(TWO, _by_prompt({"a": 2.0, "b": -3.0}))
    assert advantages == {"a": [0, 0, 0, 2, 0, 0, 0, 0], "b": [0, 0, 0, 0, 0, 0, 0, -3]}


def test_score_of_a_completion_that_ends_in_tool_tokens_stands_before_them(advantages_of):
    masked = {
        "a": {"text": "xyz", "ends": True, "env_mask": [1, 1, 0, 0]},
        "b": {"text": "xyzuvwst", "ends": False, "env_mask": [0, 1, 1, 0, 1, 1, 0, 0]},
    }
    advantages = advantages_of(masked, _by_prompt({"a": 2.0, "b": -3.0}))
    assert advantages == {"a": [0, 2, 0, 0, 0, 0, 0, 0], "b": [0, 0, 0, 0, 0, -3, 0, 0]}


def test_missing_eos_penalty_is_for_cut_completions_alone(advantages_of):
    advantages = advantages_of(TWO, _by_prompt({"a": 2.0, "b": 2.0}), missing_eos_penalty=1.5)
    assert (sum(advantages["a"]), sum(advantages["b"])) == (2.0, 0.5)


def test_reward_clip_bounds_the_score(advantages_of):
    advantages = advantages_of(TWO, _by_prompt({"a": 7.0, "b": -7.0}), reward_clip=1.0)
    assert (sum(advantages["a"]), sum(advantages["b"])) == (1.0, -1.0)


def test_running_scale_divides_scores_by_their_standard_deviation(advantages_of):
    advantages = advantages_of(TWO, _by_prompt({"a": 4.0, "b": 0.0}), reward_running_scale=True)
    std = np.std([4.0, 4.0, 0.0, 0.0], ddof=1)
    assert (sum(advantages["a"]), sum(advantages["b"])) == pytest.approx((4.0 / std, 0.0))


def test_several_rewards_are_weighted_and_none_adds_nothing(advantages_of):
    functions = [
        _by_prompt({"a": 1.0, "b": None}),
        _by_prompt({"a": 10.0, "b": 10.0}),
        _by_prompt({"a": None, "b": 3.0}),
    ]
    for index, function in enumerate(functions):
        function.__name__ = f"reward_{index}"
    advantages = advantages_of(TWO, functions, reward_weights=[1.0, 0.5, 0.0])
    assert (sum(advantages["a"]), sum(advantages["b"])) == (6.0, 5.0)


def test_completion_without_a_score_has_no_advantage_and_no_value_loss(build_trainer, record, logs_of):
    settings = {"rollout_func": _fixed(TWO), "prompts": ["a", "b"] * 2, **PLAIN, "whiten_advantages": True, "lam": 1.0}
    trainer = build_trainer("adapter", reward_funcs=_by_prompt({"a": 2.0, "b": None}), **settings)
    recorder = record(trainer)
    trainer.train()
    rows, row = _rows(recorder, trainer), logs_of(trainer)[0]
    assert rows["b"]["advantages"].tolist() == [0.0] * 8 and rows["b"]["value_mask"].sum() == 0
    assert rows["a"]["value_mask"].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert row["value/num_tokens"] == 2 * 4  # of the rows with a score
    assert row["reward"] == 2.0 and row["value/returns_mean"] == pytest.approx(0.5)  # gamma 0: the last token of four
    assert row["policy/ratio"] == pytest.approx(1.0)


@pytest.mark.parametrize("bootstrap", [False, True])
def test_bootstrap_uses_the_value_after_a_cut_completion_only(build_trainer, record, bootstrap):
    settings = {**PLAIN, "gamma": 1.0, "lam": 1.0, "bootstrap_truncated": bootstrap}
    trainer = build_trainer(
        "shared",
        reward_funcs=_by_prompt({"a": 2.0, "b": 2.0}),
        rollout_func=_fixed(TWO),
        prompts=["a", "b"] * 2,
        **settings,
    )
    trainer.critic.head.linear.bias.data.fill_(0.25)  # the value of every state
    recorder = record(trainer)
    trainer.train()
    rows = _rows(recorder, trainer)
    assert rows["a"]["returns"][:4].tolist() == pytest.approx([2.0] * 4)
    assert rows["b"]["returns"].tolist() == pytest.approx([2.25 if bootstrap else 2.0] * 8)


@pytest.mark.parametrize("mode", ["adapter", "shared"])
def test_tool_tokens_at_the_end_change_nothing_whatever_they_are(run, logs_of, mode):
    runs = []
    for tool in ("999", "abc"):
        rollouts = {
            prompt: {"text": text + tool, "ends": False, "env_mask": [1] * len(text) + [0] * 3}
            for prompt, text in (("a", "xyz"), ("b", "uvwst"))
        }
        rollouts["b"]["env_mask"][1] = 0  # a gap, too
        trainer, recorder = run(
            mode,
            rollout_func=_fixed(rollouts),
            reward_funcs=_by_prompt({"a": 1.0, "b": 0.0}),
            prompts=["a", "b"] * 2,
            kl_coef=0.1,
            entropy_coef=0.01,
            whiten_rewards=True,
            num_iterations=2,
        )
        runs.append((recorder.steps, logs_of(trainer, "value/", "policy/", "objective/", "loss")))
    for step, other in zip(runs[0][0], runs[1][0], strict=True):
        for name, gradient in step.gradients.items():
            if gradient is not None:
                torch.testing.assert_close(gradient, other.gradients[name], atol=1e-7, rtol=1e-5)
        assert (step.rollouts["advantages"][step.rollouts["tool_mask"] == 0] == 0).all()
    for row, other in zip(runs[0][1], runs[1][1], strict=True):
        assert row == pytest.approx(other, abs=1e-6)
    assert runs[0][1][0]["value/num_tokens"] == 2 * (3 + 4)


def test_kl_in_the_reward_is_subtracted_at_every_token(run, scripted):
    settings = {"rollout_func": scripted, **PLAIN, "per_device_train_batch_size": 8}
    for mode in ("adapter", "shared_full"):
        _, recorder = run(mode, **{**settings, "kl_coef": 0.0})
        without = recorder.steps[0].rollouts["advantages"]
        _, recorder = run(mode, **{**settings, "kl_coef": 0.3})
        batch = recorder.steps[0].rollouts
        assert "old_per_token_logps" not in batch  # the first ratio stays exactly 1
        kl = batch["rollout_per_token_logps"] - batch["ref_per_token_logps"]
        expected = without - torch.where(batch["completion_mask"].bool(), 0.3 * kl, 0.0)
        torch.testing.assert_close(batch["advantages"], expected, atol=1e-5, rtol=1e-5)
        assert (kl.abs().max() > 1e-3) == (mode != "shared_full")  # full weights start as their reference


@pytest.mark.parametrize("mode", ["adapter", "shared"])
def test_full_kl_in_the_reward_equals_the_sum_over_the_vocabulary(run, reference, scripted, mode):
    settings = {"rollout_func": scripted, **PLAIN, "per_device_train_batch_size": 8, "kl_estimator": "full"}
    _, recorder = run(mode, **settings)
    without = recorder.steps[0].rollouts["advantages"]
    trainer, recorder = run(mode, **{**settings, "kl_coef": 0.3})
    batch = recorder.steps[0].rollouts
    plain = reference(trainer, recorder.steps[0].weights)
    log_probs, ref = plain.logps(batch)[2], plain.logps(batch, adapters=False)[2]
    kl = (log_probs.exp() * (log_probs - ref)).sum(-1)
    expected = without - torch.where(batch["completion_mask"].bool(), 0.3 * kl, 0.0)
    torch.testing.assert_close(batch["advantages"], expected.detach(), atol=1e-5, rtol=1e-4)
    assert kl.max() > 1e-3


@pytest.mark.parametrize("target, up", [(1e-6, True), (1e6, False)])
@pytest.mark.parametrize("placement", ["reward", "loss"])
def test_adaptive_kl_coefficient_moves_towards_its_target(run, logs_of, placement, target, up):
    settings = {"kl_coef": 0.2, "kl_target": target, "kl_horizon": 40, "kl_placement": placement, "kl_estimator": "k3"}
    trainer, _ = run("adapter", max_steps=3, **settings)
    coefficients = [row["kl_coef"] for row in logs_of(trainer)]
    factor = 1 + (0.2 if up else -0.2) * 4 / 40  # the error is clipped at 0.2; four completions a step
    assert coefficients == pytest.approx([0.2, 0.2 * factor, 0.2 * factor**2])
    assert trainer.args.beta == 0.2
