"""What must move moves, what must not does not: warm-up, target KL, learning rates, clipping, minibatches."""

import gc
import hashlib
import weakref

import numpy as np
import pytest
import torch
from datasets import Dataset

from trl_ext.ppo import PPOTrainer
from trl_ext.testing import tiny_model

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


# --- what a hostile run found -------------------------------------------------------------------------------------


def test_scheduler_that_does_not_know_the_critic_is_refused(build_trainer):
    trainer = build_trainer("shared")
    optimizer = torch.optim.AdamW([p for p in trainer.model.parameters() if p.requires_grad], lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    trainer = build_trainer("shared", model=trainer.model, peft_config=None, optimizers=(optimizer, scheduler))
    with pytest.raises(ValueError, match=r"pass optimizers=\(optimizer, None\)"):
        trainer.train()


def test_weight_decay_of_the_critic_leaves_out_biases_and_norms(build_trainer):
    trainer = build_trainer("model", value_model=tiny_model(seed=1), weight_decay=0.1)
    trainer.create_optimizer()
    own = {id(p) for p in trainer.critic.parameters().values()}
    groups = [group for group in trainer.optimizer.param_groups if own & {id(p) for p in group["params"]}]
    assert {(p.ndim >= 2, group["weight_decay"]) for group in groups for p in group["params"]} == {
        (True, 0.1),
        (False, 0.0),
    }


def test_trainer_is_freed_while_its_model_lives_on(build_trainer):
    model = tiny_model()
    trainer = build_trainer("shared", model=model, peft_config=None, max_steps=1, kl_coef=0.0)
    trainer.train()
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert gone() is None
    assert model(torch.tensor([[5, 6]])).logits.shape == (1, 2, model.config.vocab_size)


def test_batches_without_a_score_end_the_run_only_from_the_start_or_in_a_row(build_trainer):
    def steps(*scores):
        remaining = iter(scores)

        def reward(completions, **kwargs):
            return [next(remaining)] * len(completions)

        trainer = build_trainer("shared", reward_funcs=reward, max_steps=len(scores))
        trainer.train()
        return trainer.state.global_step

    assert steps(1.0, None, None, 0.0, None) == 5
    with pytest.raises(ValueError, match="No completion of this batch has a score"):
        steps(None, 1.0)
    with pytest.raises(ValueError, match="No completion of this batch has a score"):
        steps(1.0, None, None, None)


def test_completion_without_a_score_gets_no_gradient_from_kl_or_entropy(build_trainer, awaken, scripted):
    def reward(completions, **kwargs):
        return [None] * (len(completions) - 1) + [1.0]

    settings = {"reward_funcs": reward, "rollout_func": scripted, "per_device_train_batch_size": 4}
    settings |= {"kl_coef": 0.3, "kl_placement": "loss", "kl_estimator": "k3", "entropy_coef": 0.2}
    trainer = build_trainer("shared_detach", **settings)
    awaken(trainer)
    trainer.create_optimizer()
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    trainer._open_window()
    batch = trainer._generate_and_score_completions([trainer.train_dataset[index] for index in range(4)])
    wrapped, seen = trainer._get_per_token_logps_and_entropies, []

    def watched(*args, **kwargs):
        logps, entropies, aux = wrapped(*args, **kwargs)
        logps.retain_grad()
        entropies.retain_grad()
        seen.append((logps, entropies))
        trainer._pass = (logps, entropies, aux)
        return trainer._pass

    trainer._get_per_token_logps_and_entropies = watched
    trainer._compute_loss(trainer.model, batch).backward()
    for tensor in seen[0]:
        assert tensor.grad[:3].abs().max() == 0 and tensor.grad[3].abs().max() > 0


@pytest.mark.parametrize("max_grad_norm", [0.0, 0.5])
def test_loss_scale_is_taken_out_of_policy_and_critic_once(build_trainer, monkeypatch, max_grad_norm):
    trainer = build_trainer("adapter", max_grad_norm=max_grad_norm, critic_max_grad_norm=1e9)
    trainer.create_optimizer()
    calls = []

    class Scaler:
        def is_enabled(self):
            return True

    def unscale():
        calls.append(1)
        for group in trainer.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad /= 1024.0

    trainer.accelerator.scaler = Scaler()
    monkeypatch.setattr(trainer.accelerator, "unscale_gradients", unscale)
    parameters = [p for group in trainer.optimizer.param_groups for p in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 1024.0)
    own = list(trainer.critic.parameters().values())
    policy = [p for p in parameters if all(p is not q for q in own)]
    expected = sum(p.numel() for p in policy) ** 0.5
    norm = trainer._clip_grad_norm(trainer.model) if max_grad_norm > 0 else None
    norm = trainer._get_grad_norm(trainer.model, grad_norm=norm)
    assert float(norm) == pytest.approx(expected, rel=1e-5) and len(calls) == 1
    assert all((p.grad == 1.0).all() for p in own)
    clipped = torch.stack([p.grad.norm() for p in policy]).norm().item()
    assert clipped == pytest.approx(max_grad_norm or expected, rel=1e-4)


@pytest.mark.parametrize("quantile", [1.0, 0.5])
def test_policy_term_is_the_loss_without_a_bonus_where_a_completion_has_no_score(build_trainer, scripted, quantile):
    policy = {}
    for coef in (0.0, 0.2):

        def reward(completions, **kwargs):
            return [None] * (len(completions) - 2) + [0.0, 1.0]

        settings = {"reward_funcs": reward, "rollout_func": scripted, "per_device_train_batch_size": 8, "max_steps": 1}
        trainer = build_trainer("shared", entropy_coef=coef, top_entropy_quantile=quantile, **settings)
        trainer.train()
        row = next(row for row in trainer.state.log_history if "loss" in row)
        assert row["objective/total"] == pytest.approx(row["loss"], abs=1e-5)
        policy[coef] = row["objective/policy"]
    assert policy[0.2] == pytest.approx(policy[0.0], abs=1e-6)


@pytest.mark.parametrize("off", [-1.0, 0.0])
def test_max_grad_norm_below_zero_turns_clipping_off_for_the_critic_too(run, scripted, off):
    settings = {"critic_max_grad_norm": None, "max_steps": 1, "vf_coef": 50.0, "awake": False}
    trainer, recorder = run("adapter", rollout_func=scripted, max_grad_norm=off, **settings)
    assert trainer.args.critic_max_grad_norm == 0.0
    row = trainer.state.log_history[0]
    assert row["value/grad_norm_head_clipped"] == row["value/grad_norm_head"] > 1.0
    gradient = recorder.steps[0].gradients["critic.head.linear.bias"]
    assert trainer.critic.head.linear.bias.item() * gradient.item() < 0, "the step goes down the loss"


def test_evaluation_between_stopped_steps_leaves_their_figures_in_the_log(build_trainer):
    steps = {"max_steps": 6, "num_iterations": 3, "target_kl": 1e-4}
    rows = Dataset.from_dict({"prompt": ["5+5=", "6+6=", "7+7=", "8+8="]})
    stopped = {}
    for evaluates in (False, True):
        evaluation = {"eval_dataset": rows, "eval_strategy": "steps", "eval_steps": 1} if evaluates else {}
        trainer = build_trainer("adapter", **steps, **evaluation)
        trainer.train()
        logs = [row for row in trainer.state.log_history if "loss" in row]
        stopped[evaluates] = [row.get("policy/updates_stopped") for row in logs]
    assert stopped[True] == stopped[False] == [0.0, 1.0, 1.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("mode", ["adapter", "shared", "model"])
def test_trainer_that_was_interrupted_within_a_step_resumes_as_one_that_was_not(
    build_trainer, weights_of, interruption, tmp_path, mode
):
    settings = {"max_steps": 4, "gradient_accumulation_steps": 2, "save_strategy": "steps", "save_steps": 1}
    whole = build_trainer(mode, output_dir=str(tmp_path / "whole"), **settings)
    whole.train()
    trainer = build_trainer(mode, output_dir=str(tmp_path / "cut"), callbacks=[interruption], **settings)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert trainer.state.global_step == 2
    trainer.train(resume_from_checkpoint=True)
    expected = weights_of(whole)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights_of(trainer).items())
    timed = ("runtime", "per_second", "time", "seconds")
    for row, other in zip(whole.state.log_history[2:4], trainer.state.log_history[2:4], strict=True):
        assert {n: v for n, v in row.items() if not any(word in n for word in timed)} == {
            n: v for n, v in other.items() if not any(word in n for word in timed)
        }
