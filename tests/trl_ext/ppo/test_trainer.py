"""What PPOTrainer does with rollouts, what its updates move, and that its critic learns values known in advance."""

import hashlib
import random

import numpy as np
import pytest
import torch
from datasets import Dataset, IterableDataset
from trl import GRPOConfig, GRPOTrainer

from trl_ext.ppo import PPOTrainer
from trl_ext.testing import tiny_model, tiny_tokenizer

MODES = ("adapter", "shared", "shared_detach", "shared_full", "model")
LORA_MODES = ("adapter", "shared", "shared_detach", "model")


def _copies(weights):
    return {name: weight.detach().clone() for name, weight in weights.items()}


def _moved(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


def _digest(weights):
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(weights[name].detach().numpy().tobytes())
    return digest.hexdigest()


# --- rollouts and scores ------------------------------------------------------------------------------------------


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
        assert "old_per_token_logps" in batch
        kl = batch["old_per_token_logps"] - batch["ref_per_token_logps"]
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


# --- kinds of runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_generations", [1, 2, 4])
def test_num_generations_of_one_or_more_trains(build_trainer, logs_of, num_generations):
    trainer = build_trainer("shared", num_generations=num_generations)
    trainer.train()
    prompts = list(trainer._logs["prompt"])
    assert len(set(prompts)) == 4 // num_generations and len(logs_of(trainer)) == 2


def test_async_and_plain_rewards_together(build_trainer, logs_of):
    async def slow_reward(completions, **kwargs):
        return [1.0] * len(completions)

    def quick_reward(completions, log_metric=None, log_extra=None, **kwargs):
        log_metric("seen", len(completions))
        log_extra("length", [len(text) for text in completions])
        return [2.0] * len(completions)

    trainer = build_trainer("shared", reward_funcs=[slow_reward, quick_reward], reward_weights=[1.0, 0.5])
    trainer.train()
    row = logs_of(trainer)[0]
    assert row["reward"] == 2.0 and row["seen"] == 4.0
    assert row["rewards/slow_reward/mean"] == 1.0 and row["rewards/quick_reward/mean"] == 2.0


@pytest.mark.parametrize("mode", MODES)
def test_evaluation_logs_the_critic_and_moves_nothing(build_trainer, awaken, weights_of, logs_of, mode):
    evaluation = Dataset.from_dict({"prompt": [f"{n}*{n}=" for n in range(8)]})
    settings = {"eval_dataset": evaluation, "kl_coef": 0.1, "entropy_coef": 0.01, "reward_running_scale": True}
    trainer = build_trainer(mode, **settings, kl_placement="loss", kl_estimator="k3")
    awaken(trainer)
    before = _copies(weights_of(trainer))
    gradients = {name: p.requires_grad for name, p in weights_of(trainer).items()}
    metrics = trainer.evaluate()  # also before the first step
    row = trainer.state.log_history[-1]
    assert row["eval_value/num_tokens"] > 8 and "eval_value/explained_variance" in row and "eval_policy/ratio" in row
    terms = [row[f"eval_objective/{name}"] for name in ("policy", "entropy", "kl", "value")]
    assert sum(terms) == pytest.approx(row["eval_objective/total"], abs=1e-6)
    assert metrics["eval_loss"] == pytest.approx(row["eval_objective/total"], abs=1e-5)
    assert _moved(before, weights_of(trainer)) == set()
    assert {name: p.requires_grad for name, p in weights_of(trainer).items()} == gradients
    assert all(p.grad is None for p in weights_of(trainer).values())
    assert trainer.reward_scale.moments[0] == 0  # evaluation leaves the running scale alone
    assert trainer.kl_controller.value == 0.1
    trainer.train()
    assert len(logs_of(trainer)) == 2


def test_evaluation_during_training_does_not_mix_with_it(run, logs_of, scripted):
    evaluation = Dataset.from_dict({"prompt": ["1*1=", "2*2=", "3*3=", "4*4="]})
    settings = {"rollout_func": scripted, "per_device_train_batch_size": 8, "num_iterations": 2}
    alone, _ = run("shared", **settings)
    trainer, _ = run("shared", eval_dataset=evaluation, eval_strategy="steps", eval_steps=1, **settings)
    prefixes = ("value/", "objective/", "policy/", "loss")
    assert logs_of(trainer, *prefixes) == logs_of(alone, *prefixes)
    assert len([row for row in trainer.state.log_history if "eval_value/loss" in row]) == 2


def test_iterable_data_trains(build_trainer, logs_of):
    rows = [{"prompt": f"{n}+1="} for n in range(16)]
    data = IterableDataset.from_generator(lambda: iter(rows))
    trainer = build_trainer("adapter", train_dataset=data, max_steps=3)
    trainer.train()
    assert len(logs_of(trainer)) == 3


def test_conversational_prompts_train(build_trainer, logs_of):
    seen = []

    def turn_reward(completions, prompts, **kwargs):
        seen.extend(prompts)
        return [float(len(turns[0]["content"])) for turns in completions]

    prompts = [[{"role": "user", "content": f"{n}+{n}"}] for n in range(8)]
    trainer = build_trainer("adapter", prompts=prompts, reward_funcs=turn_reward)
    trainer.train()
    assert seen[0][0]["role"] == "user" and len(logs_of(trainer)) == 2


def test_completions_table_holds_the_advantages_used(build_trainer, tmp_path):
    import pandas as pd

    trainer = build_trainer("shared", log_completions=True, num_completions_to_print=0, max_steps=1)
    trainer.train()
    table = pd.read_parquet(next((tmp_path / "out" / "completions").glob("*.parquet")))
    assert len(table) == 4 and list(table["advantage"]) == list(trainer._logs["advantages"])


def test_trainer_without_args_takes_the_name_of_the_model(tiny_model_path, reward, lora, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = Dataset.from_dict({"prompt": ["1+1="] * 8})
    trainer = PPOTrainer(str(tiny_model_path), reward, train_dataset=data, peft_config=lora())
    assert trainer.args.output_dir == "tiny-llama-PPO" and trainer.args.critic == "adapter"


def test_list_of_rewards_of_the_caller_is_left_as_it_was(build_trainer, reward):
    rewards = [reward]
    build_trainer("shared", reward_funcs=rewards)
    assert rewards == [reward]


@pytest.mark.parametrize("mode", ["adapter", "shared", "model"])
def test_bfloat16_autocast_trains_with_float32_values(run, logs_of, mode):
    trainer, recorder = run(mode, bf16=True, use_cpu=True, kl_coef=0.1, gradient_checkpointing=True)
    assert recorder.steps[0].rollouts["old_values"].dtype == torch.float32
    plain, _ = run(mode, kl_coef=0.1)
    for row, other in zip(logs_of(trainer), logs_of(plain), strict=True):
        assert row["loss"] == pytest.approx(other["loss"], rel=0.1)


def test_batch_in_which_every_completion_is_masked_as_cut_moves_nothing(run, weights_of):
    settings = {"mask_truncated_completions": True, "max_completion_length": 2, "kl_coef": 0.1, "max_steps": 1}
    trainer, recorder = run("adapter", eval_strategy="no", **settings)
    step = recorder.steps[0]
    assert step.rollouts["completion_mask"].sum() == 0
    assert all(g is None or (g == 0).all() for g in step.gradients.values())
    assert _moved(step.weights, weights_of(trainer)) == set()


def test_reference_that_follows_the_policy_is_used(run, logs_of):
    settings = {"kl_coef": 0.1, "learning_rate": 0.05, "max_steps": 3}
    still, _ = run("shared_full", **settings)
    synced, _ = run("shared_full", sync_ref_model=True, ref_model_sync_steps=1, ref_model_mixup_alpha=1.0, **settings)
    kl = [[abs(row["policy/kl_ref_token"]) for row in logs_of(trainer)] for trainer in (still, synced)]
    assert kl[0][2] > 1e-3 and kl[1][2] < 1e-6


def test_reward_model_scores_completions(build_trainer, logs_of, tmp_path):
    from transformers import LlamaForSequenceClassification

    config = tiny_model().config
    config.num_labels = 1
    torch.manual_seed(0)
    LlamaForSequenceClassification(config).save_pretrained(tmp_path / "judge")
    tiny_tokenizer().save_pretrained(tmp_path / "judge")
    trainer = build_trainer("shared", reward_funcs=str(tmp_path / "judge"))
    trainer.train()
    assert trainer.reward_func_names == ["judge"]
    assert all(row["rewards/judge/std"] > 0 for row in logs_of(trainer))


def test_model_card_and_tags_are_of_ppo(build_trainer, tmp_path):
    trainer = build_trainer("shared")
    trainer.create_model_card(model_name="tiny")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "PPO" in card and "1707.06347" in card and "trl-ext" in card


# --- what moves ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_training_moves_policy_and_critic_and_leaves_the_base(build_trainer, weights_of, mode, checkpointing):
    trainer = build_trainer(mode, gradient_checkpointing=checkpointing, kl_coef=0.1, max_steps=3)
    before = _copies(weights_of(trainer))
    base = {n: p for n, p in weights_of(trainer).items() if not n.startswith("critic.") and "lora_" not in n}
    digest = _digest(base)
    trainer.train()
    moved = _moved(before, weights_of(trainer))
    if mode == "shared_full":
        assert moved == before.keys()
    else:
        assert _digest(base) == digest
        assert moved == before.keys() - base.keys()


@pytest.mark.parametrize("mode", LORA_MODES)
def test_critic_warmup_moves_the_critic_alone_and_then_both(build_trainer, weights_of, mode):
    import transformers

    after_step = []

    class Watch(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            after_step.append(_copies(weights_of(trainer)))

    trainer = build_trainer(
        mode, critic_warmup_steps=2, max_steps=4, kl_coef=0.1, callbacks=[Watch()], weight_decay=0.1
    )
    before = _copies(weights_of(trainer))
    critic = {name for name in before if name.startswith("critic.")}
    policy = {name for name in before if "lora_" in name and name not in critic}
    trainer.train()
    for weights in after_step[:2]:
        assert _moved(before, weights) <= critic
    assert "critic.head.linear.weight" in _moved(before, after_step[0])
    assert _moved(before, after_step[1]) == critic  # the value adapter follows once the head is not zero
    assert policy & _moved(after_step[1], after_step[2])
    assert policy <= _moved(after_step[1], after_step[3])


@pytest.mark.parametrize("mode", ["adapter", "shared", "model"])
def test_target_kl_drops_the_crossing_step_and_those_after_it_until_new_rollouts(
    build_trainer, weights_of, logs_of, mode
):
    import transformers

    after_step, passes = [], []

    class Watch(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            after_step.append(_copies(weights_of(trainer)))
            passes.append(trainer._step)

    settings = {"target_kl": 1e-7, "num_iterations": 4, "max_steps": 9, "learning_rate": 0.05, "weight_decay": 0.1}
    trainer = build_trainer(mode, callbacks=[Watch()], **settings)
    before = _copies(weights_of(trainer))
    trainer.train()
    policy = {name for name in before if "lora_B" in name and not name.startswith("critic.")}
    moved = [_moved(a, b) for a, b in zip([before, *after_step], after_step, strict=False)]
    assert policy <= moved[0] and policy <= moved[4] and policy <= moved[8]  # the first step on each batch of rollouts
    for step in (1, 2, 3, 5, 6, 7):  # the second one crosses the line; it is not taken, nor are those after it
        assert moved[step] == set(), step
    assert passes == list(range(1, 10))
    rows = logs_of(trainer)
    assert [row["policy/updates_stopped"] for row in rows][2:5] == [1.0, 1.0, 0.0]
    assert rows[1]["policy/approx_kl_k3"] > 1e-7
    generated = [index for index, row in enumerate(rows) if "num_tokens" in row]
    assert generated == [0, 4, 8]


def test_target_kl_that_is_not_reached_changes_nothing(run, logs_of, scripted):
    settings = {"rollout_func": scripted, "num_iterations": 3, "max_steps": 4}
    trainer, _ = run("adapter", **settings)
    bounded, _ = run("adapter", target_kl=1e3, **settings)
    prefixes = ("loss", "value/", "objective/")
    assert logs_of(trainer, *prefixes) == logs_of(bounded, *prefixes)
    assert all(row["policy/updates_stopped"] == 0.0 for row in logs_of(bounded))


@pytest.mark.parametrize("mode", MODES)
def test_critic_learning_rate_is_used_for_the_critic_alone(build_trainer, weights_of, mode):
    trainer = build_trainer(mode, learning_rate=1e-3, critic_learning_rate=1e-2, max_steps=1)
    before = _copies(weights_of(trainer))
    trainer.train()
    groups = trainer.optimizer.param_groups
    assert {id(p) for p in groups[-1]["params"]} == {id(p) for p in trainer.critic.parameters().values()}
    assert [group["lr"] for group in groups] == [1e-3] * (len(groups) - 1) + [1e-2]
    # the first step of Adam is the learning rate, whatever the gradient
    step = {name: (weight - before[name]).abs().max().item() for name, weight in weights_of(trainer).items()}
    assert step["critic.head.linear.weight"] == pytest.approx(1e-2, rel=1e-2)
    policy = [s for name, s in step.items() if not name.startswith("critic.")]
    assert max(policy) == pytest.approx(1e-3, rel=1e-2)


def test_critic_follows_the_learning_rate_schedule(build_trainer):
    trainer = build_trainer("adapter", lr_scheduler_type="linear", max_steps=2, critic_learning_rate=1e-2)
    trainer.train()
    assert trainer.optimizer.param_groups[-1]["initial_lr"] == 1e-2
    assert [group["lr"] for group in trainer.optimizer.param_groups] == [0.0] * len(trainer.optimizer.param_groups)


def test_logged_critic_learning_rate_is_that_of_the_step(build_trainer, logs_of):
    settings = {"lr_scheduler_type": "linear", "max_steps": 4, "learning_rate": 1e-3, "critic_learning_rate": 1e-2}
    trainer = build_trainer("adapter", **settings)
    trainer.train()
    rows = logs_of(trainer)
    assert [row["learning_rate"] for row in rows] == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4])
    assert [row["value/learning_rate"] for row in rows] == pytest.approx([1e-2, 7.5e-3, 5e-3, 2.5e-3])


def test_optimizer_of_the_caller_gets_the_critic_as_a_further_group(build_trainer, weights_of):
    from trl_ext.ppo import critic as critics

    model = tiny_model()
    from peft import LoraConfig, get_peft_model

    policy = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    optimizer = torch.optim.SGD([p for p in policy.parameters() if p.requires_grad], lr=0.5)
    trainer = build_trainer("adapter", model=policy, peft_config=None, optimizers=(optimizer, None), max_steps=1)
    before = _copies(weights_of(trainer))
    trainer.train()
    groups = trainer.optimizer.param_groups
    assert len(groups) == 2 and len(groups[0]["params"]) == 8 and groups[1]["lr"] == 1e-2
    assert "critic.head.linear.weight" in _moved(before, weights_of(trainer))
    assert critics.VALUE_ADAPTER in policy.peft_config


@pytest.mark.parametrize("mode", ["adapter", "model", "shared_detach"])
def test_large_value_loss_does_not_throttle_the_policys_gradient(run, scripted, logs_of, mode):
    settings = {"rollout_func": scripted, "max_grad_norm": 0.05, "critic_max_grad_norm": 0.5, "cliprange_value": None}
    found = {}
    for coef in (0.1, 1e4):
        trainer, recorder = run(mode, vf_coef=coef, per_device_train_batch_size=8, max_steps=1, **settings)
        found[coef] = recorder.steps[0].gradients, logs_of(trainer)[0]
    gradients, row = found[1e4]
    policy = {n: g for n, g in gradients.items() if g is not None and not n.startswith("critic.")}
    critic = {n: g for n, g in gradients.items() if n.startswith("critic.")}
    norm = lambda some: torch.stack([g.norm() for g in some.values()]).norm().item()  # noqa: E731
    assert norm(policy) == pytest.approx(0.05, rel=1e-3) and norm(critic) == pytest.approx(0.5, rel=1e-3)
    for name, gradient in policy.items():
        torch.testing.assert_close(gradient, found[0.1][0][name], atol=1e-7, rtol=1e-5)
    small = found[0.1][1]
    assert row["policy/grad_norm"] == pytest.approx(small["policy/grad_norm"], rel=1e-5)
    assert row["grad_norm"] == pytest.approx(small["grad_norm"], rel=1e-5)
    assert row["value/grad_norm"] == pytest.approx(1e5 * small["value/grad_norm"], rel=1e-3)
    parts = [
        row[f"value/grad_norm_{part}_clipped"]
        for part in ("head", "adapter", "trunk")
        if f"value/grad_norm_{part}" in row
    ]
    assert np.linalg.norm(parts) == pytest.approx(0.5, rel=1e-3)


def test_gradient_norms_without_clipping_are_logged_and_nothing_is_clipped(run, scripted, logs_of):
    trainer, recorder = run("adapter", rollout_func=scripted, vf_coef=100.0, per_device_train_batch_size=8, max_steps=1)
    gradients, row = recorder.steps[0].gradients, logs_of(trainer)[0]
    norms = {kind: [] for kind in ("policy", "critic")}
    for name, gradient in gradients.items():
        if gradient is not None:
            norms["critic" if name.startswith("critic.") else "policy"].append(gradient.norm())
    assert row["policy/grad_norm"] == pytest.approx(torch.stack(norms["policy"]).norm().item(), rel=1e-4)
    assert row["value/grad_norm"] == pytest.approx(torch.stack(norms["critic"]).norm().item(), rel=1e-4)
    assert row["value/grad_norm_head"] == row["value/grad_norm_head_clipped"] > 1.0


@pytest.mark.parametrize("mini_batches, epochs", [(2, 3), (4, 2), (1, 3)])
def test_every_epoch_uses_every_completion_once_in_a_new_order(
    build_trainer, monkeypatch, mini_batches, epochs, scripted
):
    seen = []
    compute = PPOTrainer._compute_loss

    def watch(self, model, inputs):
        seen.append([tuple(ids.tolist()) for ids in inputs["prompt_ids"]])
        return compute(self, model, inputs)

    monkeypatch.setattr(PPOTrainer, "_compute_loss", watch)
    settings = {"num_mini_batches": mini_batches, "num_iterations": epochs, "max_steps": 2 * mini_batches * epochs}
    size = 8 // mini_batches
    trainer = build_trainer("shared", rollout_func=scripted, per_device_train_batch_size=size, **settings)
    trainer.train()
    assert len(seen) == 2 * mini_batches * epochs and all(len(rows) == size for rows in seen)
    starts = range(0, len(seen), mini_batches)
    passes = [[row for rows in seen[i : i + mini_batches] for row in rows] for i in starts]
    assert all(len(set(rows)) == 8 for rows in passes)
    if mini_batches > 1:
        assert len(set(map(tuple, passes))) == 2 * epochs


def test_whitening_is_over_the_generation_batch_and_not_the_minibatch(run, scripted):
    _, recorder = run("adapter", rollout_func=scripted, per_device_train_batch_size=2, num_mini_batches=4)
    batch = recorder.steps[0].rollouts
    assert len(batch["advantages"]) == 8
    kept = batch["advantages"][batch["value_mask"].bool()]
    assert kept.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert kept.std(unbiased=False).item() == pytest.approx(1.0, rel=1e-4)


# --- a critic with a known answer ---------------------------------------------------------------------------------

NUM_STATES = 5  # a walk on 0..6 that ends at both ends, with reward 1 at the right one
STATES = "abcdefg"


def exact_values(gamma):
    """V of the states 1..5 by solving the Bellman equation."""
    transition = np.zeros((NUM_STATES, NUM_STATES))
    reward = np.zeros(NUM_STATES)
    for state in range(NUM_STATES):
        for step in (-1, 1):
            if 0 <= state + step < NUM_STATES:
                transition[state, state + step] = 0.5
            elif state + step == NUM_STATES:
                reward[state] = 0.5
    return np.linalg.solve(np.eye(NUM_STATES) - gamma * transition, reward)


@pytest.fixture
def walk():
    """A rollout function and its reward: the prompt is the start, each token the next position."""
    rng = random.Random(0)
    encode = tiny_tokenizer().convert_tokens_to_ids

    def rollout(prompts, trainer):
        completions = []
        for prompt in prompts:
            position, tokens = STATES.index(prompt), []
            while 0 < position < NUM_STATES + 1:
                position += rng.choice((-1, 1))
                tokens.append(encode(STATES[position]))
            completions.append(tokens[: trainer.max_completion_length])
        prompt_ids = [[encode(prompt)] for prompt in prompts]
        return {"prompt_ids": prompt_ids, "completion_ids": completions, "logprobs": None}

    def right_end_reward(completions, **kwargs):
        return [float(text[-1] == STATES[-1]) for text in completions]

    return rollout, right_end_reward


def _fit(trainer, gamma):
    """Explained variance and bias of the critic's values on the last rollouts, against the exact ones."""
    batch = trainer._rollouts
    with torch.no_grad(), trainer.critic.active():
        values = trainer.critic.values(batch)[:, :-1]
    ids = torch.cat([batch["prompt_ids"][:, -1:], batch["completion_ids"][:, :-1]], 1)
    states = [STATES.index(text) - 1 for text in tiny_tokenizer().convert_ids_to_tokens(ids[batch["value_mask"] == 1])]
    exact = exact_values(gamma)[states]
    learned = values[batch["value_mask"] == 1].numpy()
    return 1 - np.var(exact - learned) / np.var(exact), np.mean(learned - exact)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode, target, lam, gamma",
    [
        ("model", "gae", 0.95, 1.0),
        ("model", "td", 0.95, 0.9),
        ("model", "reward_to_go", 0.95, 0.9),
        ("adapter", "gae", 1.0, 1.0),
        ("shared_full", "gae", 0.95, 0.9),
    ],
)
def test_critic_learns_the_exact_values_of_a_random_walk(build_trainer, walk, mode, target, lam, gamma):
    rollout, reward = walk
    trainer = build_trainer(
        mode,
        rollout_func=rollout,
        reward_funcs=reward,
        prompts=list(STATES[1:-1]) * 16,
        per_device_train_batch_size=40,
        max_completion_length=100,
        num_iterations=2,
        num_mini_batches=2,
        max_steps=80,
        critic_warmup_steps=80,
        critic_target=target,
        lam=lam,
        gamma=gamma,
        critic_learning_rate=1e-2 if mode == "adapter" else 3e-3,
        lr_scheduler_type="linear",
        vf_coef=1.0,
        cliprange_value=None,
        kl_coef=0.0,
        logging_steps=80,
    )
    trainer.train()
    variance, bias = _fit(trainer, gamma)
    assert variance > 0.9 and abs(bias) < 0.1
