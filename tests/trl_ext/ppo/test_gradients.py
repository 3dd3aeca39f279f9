"""Gradients of the trainer's own step against plain autograd, whatever the critic, checkpointing and split."""

import pytest
import torch
from peft import PeftModel, get_peft_model
from trl import GRPOTrainer

from trl_ext.testing import tiny_model

MODES = ("adapter", "shared", "shared_detach", "shared_full", "model")
CHECKPOINTING = {
    "off": {"gradient_checkpointing": False},
    "non_reentrant": {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
    "reentrant": {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
}
LOSS_TYPES = ("grpo", "dapo", "dr_grpo", "sapo", "cispo", "luspo", "vespo")
KL_IN_LOSS = {"kl_coef": 0.3, "kl_placement": "loss", "kl_estimator": "k3"}


def _trainable(step):
    return [name for name, gradient in step.gradients.items() if gradient is not None]


def _assert_gradients_equal(actual, expected, atol=1e-6, rtol=1e-4):
    assert actual.keys() == expected.keys()
    for name in actual:
        torch.testing.assert_close(
            actual[name], expected[name], atol=atol, rtol=rtol, msg=lambda m, n=name: f"{n}: {m}"
        )


def _has_gradient(step, kind):
    return {name for name in _trainable(step) if name.startswith("critic.") == (kind == "critic")}


@pytest.mark.parametrize("checkpointing", CHECKPOINTING)
@pytest.mark.parametrize("mode", MODES)
def test_gradients_equal_those_of_plain_autograd(run, reference, scripted, mode, checkpointing):
    settings = {**CHECKPOINTING[checkpointing], **KL_IN_LOSS, "entropy_coef": 0.05, "num_iterations": 2}
    trainer, recorder = run(
        mode,
        rollout_func=scripted,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        vf_coef=0.7,
        **settings,
    )
    first, second = recorder.steps
    for step in (first, second):  # the second one has ratios other than 1
        plain = reference(trainer, step.weights)
        expected = plain.gradients(step.rollouts, _trainable(step))
        _assert_gradients_equal({name: step.gradients[name] for name in expected}, expected)
        for name in expected:
            assert expected[name].abs().max() > 0, f"no gradient for {name}: nothing was compared"
    expected_terms = {name: term.item() for name, term in plain.terms(second.rollouts).items()}
    logged = trainer.state.log_history[1]
    for name, term in expected_terms.items():
        assert logged[f"objective/{name}"] == pytest.approx(term, rel=1e-4, abs=1e-6), name
    assert logged["policy/ratio_var"] > 0


def _joined(micro_batches):
    """The micro-batches of one optimizer step as one batch."""
    rows = {name for name, tensor in micro_batches[0].items() if tensor.ndim > 0}
    joined = {name: torch.cat([batch[name] for batch in micro_batches]) for name in rows}
    return joined | {name: tensor for name, tensor in micro_batches[0].items() if name not in rows}


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo"])
@pytest.mark.parametrize("mode", ["adapter", "shared"])
def test_gradients_of_minibatches_equal_those_of_plain_autograd(run, reference, scripted, mode, loss_type):
    trainer, recorder = run(
        mode,
        rollout_func=scripted,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_mini_batches=2,
        num_iterations=2,
        max_steps=4,
        loss_type=loss_type,
        entropy_coef=0.05,
        **KL_IN_LOSS,
    )
    for step, row in zip(recorder.steps, trainer.state.log_history, strict=False):
        batch, plain = _joined(step.micro_batches), reference(trainer, step.weights)
        assert len(batch["completion_ids"]) == 4
        expected = plain.gradients(batch, _trainable(step))
        _assert_gradients_equal({name: step.gradients[name] for name in expected}, expected)
        assert row["loss"] == pytest.approx(sum(plain.terms(batch).values()).item(), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("mode", ["adapter", "shared", "shared_full"])
@pytest.mark.parametrize("estimator", ["k1", "k2", "full"])
def test_gradients_with_each_kl_estimator_in_the_loss_equal_those_of_plain_autograd(
    run, reference, scripted, estimator, mode
):
    settings = {"kl_coef": 0.3, "kl_placement": "loss", "kl_estimator": estimator, "num_iterations": 2}
    trainer, recorder = run(mode, rollout_func=scripted, per_device_train_batch_size=8, temperature=0.7, **settings)
    for step, row in zip(recorder.steps, trainer.state.log_history, strict=False):
        plain = reference(trainer, step.weights)
        expected = plain.gradients(step.rollouts, _trainable(step))
        _assert_gradients_equal({name: step.gradients[name] for name in expected}, expected)
        assert row["objective/kl"] == pytest.approx(plain.terms(step.rollouts)["kl"].item(), rel=1e-4, abs=1e-7)
    assert row["objective/kl"] != 0.0


@pytest.mark.parametrize("mode", MODES)
def test_gradients_reach_every_weight_that_should_train_and_no_other(run, weights_of, scripted, mode):
    trainer, recorder = run(mode, rollout_func=scripted, per_device_train_batch_size=8, max_steps=1, kl_coef=0.1)
    step = recorder.steps[0]
    policy, critic = _has_gradient(step, "policy"), _has_gradient(step, "critic")
    names = set(weights_of(trainer))
    lora = {name for name in names if "lora_" in name and not name.startswith("critic.")}
    assert policy == (names - critic if mode == "shared_full" else lora)
    assert critic == {name for name in names if name.startswith("critic.")}
    assert len(critic) == {"adapter": 2 + 8, "model": 2 + 20}.get(mode, 2)


def test_detached_shared_critic_leaves_the_policys_gradient_free_of_the_value_loss(run, scripted):
    settings = {"rollout_func": scripted, "per_device_train_batch_size": 8, "max_steps": 1}
    gradients = {}
    for coef in (0.0, 100.0):
        _, recorder = run("shared_detach", vf_coef=coef, **settings)
        gradients[coef] = recorder.steps[0].gradients
    _, recorder = run("shared", vf_coef=100.0, **settings)
    joint = recorder.steps[0].gradients
    policy = [name for name in joint if "lora_" in name]
    for name in policy:
        assert torch.equal(gradients[0.0][name], gradients[100.0][name])
        assert not torch.allclose(joint[name], gradients[100.0][name], rtol=0.1)


@pytest.mark.parametrize("placement", ["reward", "loss"])
@pytest.mark.parametrize("mode", MODES)
def test_requires_grad_after_generation_and_reference_pass_is_as_before(build_trainer, weights_of, mode, placement):
    trainer = build_trainer(mode, kl_coef=0.1, kl_placement=placement)
    before = {name: parameter.requires_grad for name, parameter in weights_of(trainer).items()}
    trainer.model.train()
    trainer._generate_and_score_completions([{"prompt": "1+1="} for _ in range(4)])
    assert {name: parameter.requires_grad for name, parameter in weights_of(trainer).items()} == before
    assert sum(before.values()) > 2


def _split_run(run, scripted, mode, batch_size, steps, **settings):
    trainer, recorder = run(
        mode,
        rollout_func=scripted,
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=steps,
        **{"num_iterations": 2, "entropy_coef": 0.05, "vf_coef": 0.5, **settings},
    )
    return trainer, recorder.steps


def _assert_same_run(one, other, logs_of):
    for (trainer, steps), (other_trainer, other_steps) in [(one, other)]:
        for step, other_step in zip(steps, other_steps, strict=True):
            names = _trainable(step)
            assert names == _trainable(other_step)
            _assert_gradients_equal(
                {n: other_step.gradients[n] for n in names}, {n: step.gradients[n] for n in names}, atol=3e-6
            )
        prefixes = ("value/", "objective/", "policy/", "loss")
        for row, other_row in zip(logs_of(trainer, *prefixes), logs_of(other_trainer, *prefixes), strict=True):
            assert row.keys() == other_row.keys() and len(row) > 60
            for name in row:
                assert other_row[name] == pytest.approx(row[name], abs=1e-5, rel=1e-4), name


@pytest.mark.parametrize("kl", ["loss", "reward"])
@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_gradients_and_figures_do_not_depend_on_the_split_into_micro_batches(run, scripted, logs_of, loss_type, kl):
    settings = {**KL_IN_LOSS, "kl_placement": kl, "loss_type": loss_type}
    mode = "adapter" if kl == "loss" else "shared"
    whole = _split_run(run, scripted, mode, 8, 1, **settings)
    for batch_size, steps in ((4, 2), (2, 4)):
        _assert_same_run(whole, _split_run(run, scripted, mode, batch_size, steps, **settings), logs_of)


@pytest.mark.parametrize("mode", ["model", "shared_full", "shared_detach"])
def test_gradients_and_figures_of_every_critic_do_not_depend_on_the_split(run, scripted, logs_of, mode):
    settings = {**KL_IN_LOSS, "loss_type": "grpo"}
    whole = _split_run(run, scripted, mode, 8, 1, **settings)
    _assert_same_run(whole, _split_run(run, scripted, mode, 2, 4, **settings), logs_of)


@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_minibatches_do_not_depend_on_the_split_into_micro_batches(run, scripted, logs_of, loss_type):
    settings = {**KL_IN_LOSS, "loss_type": loss_type, "num_mini_batches": 2, "max_steps": 4}
    whole = _split_run(run, scripted, "adapter", 4, 1, **settings)
    _assert_same_run(whole, _split_run(run, scripted, "adapter", 2, 2, **settings), logs_of)


def test_adaptive_entropy_does_not_depend_on_the_split_into_micro_batches(run, scripted, logs_of):
    settings = {
        "use_adaptive_entropy": True,
        "entropy_target": 5.0,
        "entropy_coef_delta": 0.01,
        "num_iterations": 1,
        "max_steps": 3,
    }
    whole = _split_run(run, scripted, "adapter", 8, 1, **settings)
    _assert_same_run(whole, _split_run(run, scripted, "adapter", 2, 4, **settings), logs_of)


# --- parity with TRL ----------------------------------------------------------------------------------------------


def _loss_and_gradients(compute, trainer, batch, weights_of):
    weights = {n: p for n, p in weights_of(trainer).items() if p.requires_grad and not n.startswith("critic.")}
    trainer.model.zero_grad()
    loss = compute(trainer.model, batch)
    loss.backward()
    return loss.item(), {name: p.grad.clone() for name, p in weights.items()}


@pytest.mark.parametrize("mode", ["shared_detach", "adapter"])
@pytest.mark.parametrize("loss_type", [*LOSS_TYPES, "bnpo"])
def test_policy_term_and_kl_equal_trls_own_loss(build_trainer, awaken, weights_of, scripted, loss_type, mode):
    beta = 0.3
    trainer = build_trainer(
        mode,
        rollout_func=scripted,
        per_device_train_batch_size=8,
        num_iterations=2,
        loss_type=loss_type,
        kl_coef=beta,
        kl_placement="loss",
        kl_estimator="k3",
        vf_coef=0.0,
    )
    awaken(trainer)
    trainer.create_optimizer()
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    rows = [trainer.train_dataset[index] for index in range(8)]
    trainer._open_window()
    batch = trainer._generate_and_score_completions(rows)
    noise = torch.randn(batch["old_per_token_logps"].shape, generator=torch.Generator().manual_seed(0))
    batch["old_per_token_logps"] += 0.2 * noise  # ratios other than 1, some of them clipped
    ours, our_gradients = _loss_and_gradients(trainer._compute_loss, trainer, batch, weights_of)
    stock = lambda model, inputs: GRPOTrainer._compute_loss(trainer, model, inputs)  # noqa: E731
    theirs, their_gradients = _loss_and_gradients(stock, trainer, batch, weights_of)
    assert trainer.beta == beta
    assert ours == pytest.approx(theirs, abs=1e-5)
    for name, gradient in their_gradients.items():
        torch.testing.assert_close(our_gradients[name], gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_bias_correction_of_the_kl_has_the_ratio_of_the_level(
    build_trainer, awaken, weights_of, scripted, monkeypatch, estimator
):
    settings = {"kl_coef": 0.3, "kl_placement": "loss", "kl_estimator": estimator, "loss_type": "grpo"}
    settings |= {"importance_sampling_level": "sequence", "use_bias_correction_kl": True, "vf_coef": 0.0}
    trainer = build_trainer("adapter", rollout_func=scripted, per_device_train_batch_size=8, **settings)
    awaken(trainer)
    trainer.create_optimizer()
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    trainer._open_window()
    batch = trainer._generate_and_score_completions([trainer.train_dataset[index] for index in range(8)])
    batch["old_per_token_logps"] = torch.zeros(batch["ref_per_token_logps"].shape) - 4.0
    seen = []
    kl_term = trainer._kl_term
    monkeypatch.setattr(trainer, "_kl_term", lambda *args: seen.append((args[0], kl_term(*args))) or seen[-1][1])
    trainer._compute_loss(trainer.model, batch)
    ((logps, found),) = seen
    mask, difference = batch["completion_mask"], logps - batch["ref_per_token_logps"]
    kl = {"k1": difference, "k3": torch.exp(-difference) - 1 + difference}[estimator]
    means = [((row + 4.0) * kept).sum() / kept.sum() for row, kept in zip(logps, mask, strict=True)]
    ratio = torch.exp(torch.stack(means))[:, None]
    expected = 0.3 * (kl * ratio * mask / mask.sum(-1, keepdim=True) / 8).sum()
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)
    parameters = [p for n, p in weights_of(trainer).items() if p.requires_grad and not n.startswith("critic.")]
    for ours, theirs in zip(
        *(torch.autograd.grad(x, parameters, retain_graph=True) for x in (found, expected)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


# --- other kinds of policies and critics --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["adapter", "shared", "model"])
def test_gradients_with_a_pretrained_adapter_are_free_of_a_kl_of_zero(run, scripted, lora, logs_of, mode):
    # TRL copies a pretrained adapter as the reference "ref": at first the divergence and its gradient are zero
    found = {}
    for coef in (0.0, 0.5):
        torch.manual_seed(3)
        model = get_peft_model(tiny_model(), lora(init_lora_weights=False))
        settings = {"model": model, "peft_config": None, "rollout_func": scripted, "per_device_train_batch_size": 8}
        found[coef] = run(mode, awake=False, **{**KL_IN_LOSS, "kl_coef": coef}, **settings)
    (_, without), (trainer, recorder) = found.values()
    names = _trainable(without.steps[0])
    assert names == _trainable(recorder.steps[0]) and not [n for n in names if ".ref." in n]
    gradients = recorder.steps[0].gradients
    _assert_gradients_equal({n: gradients[n] for n in names}, {n: without.steps[0].gradients[n] for n in names})
    rows = logs_of(trainer)
    assert abs(rows[0]["policy/kl_ref_token"]) < 1e-7 < rows[1]["policy/kl_ref_token"]


@pytest.mark.parametrize("value_lora", [False, True])
def test_gradients_of_a_value_model_do_not_depend_on_checkpointing(run, scripted, lora, value_lora):
    steps = {}
    for name, settings in CHECKPOINTING.items():
        torch.manual_seed(5)
        value_model = tiny_model(seed=7)
        if value_lora:
            value_model = get_peft_model(value_model, lora(init_lora_weights=False))
        _, recorder = run("model", value_model=value_model, rollout_func=scripted, **settings)
        steps[name] = recorder.steps
    for name in ("non_reentrant", "reentrant"):
        for step, plain in zip(steps[name], steps["off"], strict=True):
            names = _trainable(plain)
            assert len(_has_gradient(plain, "critic")) == (2 + 8 if value_lora else 2 + 20)
            _assert_gradients_equal({n: step.gradients[n] for n in names}, {n: plain.gradients[n] for n in names})


@pytest.mark.parametrize("placement", ["loss", "reward"])
@pytest.mark.parametrize("mode", ["adapter", "shared"])
def test_full_kl_of_a_trained_head_has_the_reference_head_of_the_base(build_trainer, lora, scripted, mode, placement):
    config = lora(modules_to_save=["lm_head"])
    settings = {"kl_coef": 0.1, "kl_estimator": "full", "kl_placement": placement, "per_device_train_batch_size": 8}
    model = tiny_model(tie_word_embeddings=False)
    trainer = build_trainer(mode, model=model, peft_config=config, rollout_func=scripted, **settings)
    (head,) = [w for name, w in trainer.model.named_parameters() if "lm_head" in name and w.requires_grad]
    head.data += 0.5 * torch.randn(head.shape, generator=torch.Generator().manual_seed(0))
    trainer.model.train()
    trainer._open_window()
    batch = trainer._generate_and_score_completions([trainer.train_dataset[index] for index in range(8)])
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    length = batch["completion_ids"].size(1)
    with torch.no_grad():
        hidden = trainer.model.get_base_model().model(input_ids=ids, attention_mask=attention).last_hidden_state
        hidden = hidden[:, -length - 1 : -1]
        found = trainer._full_kl(hidden, trainer._reference_hidden(batch))
        wrapper = trainer.model.get_base_model().lm_head
        policy, base = ((hidden @ w.T).log_softmax(-1) for w in (head, wrapper.original_module.weight))
    expected = (policy.exp() * (policy - base)).sum(-1)  # LoRA B is zero: the hidden states are the base's
    mask = batch["completion_mask"].bool()
    assert expected[mask].mean() > 0.1
    torch.testing.assert_close(found[mask], expected[mask], atol=1e-5, rtol=1e-4)
    assert head.requires_grad and not wrapper.original_module.weight.requires_grad


@pytest.mark.parametrize("mode", ["adapter", "shared", "model"])
def test_policy_with_fully_trained_modules_moves_them_and_saves_them(run, weights_of, lora, tmp_path, mode):
    model = tiny_model(tie_word_embeddings=False)
    config = lora(modules_to_save=["embed_tokens"])
    trainer, recorder = run(mode, model=model, peft_config=config, kl_coef=0.1, kl_placement="loss", kl_estimator="k3")
    name = "base_model.model.model.embed_tokens.modules_to_save.default.weight"
    before, after = recorder.steps[0].weights, weights_of(trainer)
    assert not torch.equal(after[name], before[name])
    original = "base_model.model.model.embed_tokens.original_module.weight"
    assert torch.equal(after[original], before[original])
    assert abs(trainer.state.log_history[0]["policy/kl_ref_token"]) < 1.0
    trainer.save_model(str(tmp_path / "saved"))
    loaded = PeftModel.from_pretrained(tiny_model(tie_word_embeddings=False), tmp_path / "saved")
    assert torch.equal(dict(loaded.named_parameters())[name], after[name])
