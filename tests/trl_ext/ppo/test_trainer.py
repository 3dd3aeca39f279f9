"""Kinds of runs that PPOTrainer takes, and that its critic learns values known in advance."""

import random

import numpy as np
import pytest
import torch
from datasets import Dataset, IterableDataset

from trl_ext.ppo import PPOTrainer
from trl_ext.testing import tiny_model, tiny_tokenizer

MODES = ("adapter", "shared", "shared_detach", "shared_full", "model")


def _copies(weights):
    return {name: weight.detach().clone() for name, weight in weights.items()}


def _moved(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


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


def test_trainer_without_args_takes_the_name_of_the_model(reward, lora, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "models" / "tiny-llama"
    tiny_model(max_position_embeddings=1024).save_pretrained(model)  # room for the default max_completion_length
    tiny_tokenizer().save_pretrained(model)
    data = Dataset.from_dict({"prompt": ["1+1="] * 8})
    trainer = PPOTrainer(str(model), reward, train_dataset=data, peft_config=lora())
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
