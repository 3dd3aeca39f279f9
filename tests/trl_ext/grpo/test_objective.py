"""KL terms against plain models and autograd, in the loss and in the reward."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from trl_ext.errors import UserError
from trl_ext.testing import tiny_model

BETA = 0.7


def _plain(trainer, **lora):
    """A model of the same weights without TRL's and accelerate's changes to its forward."""
    settings = {"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **lora}
    model = get_peft_model(tiny_model(), LoraConfig(**settings))
    model.load_state_dict(trainer.model.state_dict())
    return model.eval()


def _log_probs(model, batch, temperature=1.0):
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    length = batch["completion_ids"].size(1)
    return (model(input_ids=ids, attention_mask=mask).logits[:, -length - 1 : -1] / temperature).log_softmax(-1)


def _chosen(log_probs, batch):
    return log_probs.gather(2, batch["completion_ids"].unsqueeze(-1)).squeeze(-1)


def _kl(model, batch, estimator, direction="reverse", temperature=1.0):
    """(B, T), by the definitions."""
    log_probs = _log_probs(model, batch, temperature)
    with torch.no_grad(), model.disable_adapter():
        reference = _log_probs(model, batch, temperature)
    if estimator == "full":
        first, second = (log_probs, reference) if direction == "reverse" else (reference, log_probs)
        return (first.exp() * (first - second)).sum(-1)
    logps = _chosen(log_probs, batch)
    x = logps - _chosen(reference, batch)
    kl = {"k1": x, "k2": x**2 / 2, "k3": torch.exp(-x) - 1 + x, "abs": x.abs()}[estimator]
    return kl * torch.exp(logps - logps.detach())


def _weights(mask, loss_type, size):
    if loss_type == "grpo":
        return mask / mask.sum(-1, keepdim=True) / size
    return mask / size / 8 if loss_type == "dr_grpo" else mask


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo"])
@pytest.mark.parametrize(
    ("estimator", "direction"),
    [("k1", "reverse"), ("k2", "reverse"), ("abs", "reverse"), ("full", "reverse"), ("full", "forward")],
)
def test_gradient_of_the_kl_term_is_that_of_plain_models(build_trainer, record, estimator, direction, loss_type):
    found = {}
    settings = {"loss_type": loss_type, "max_grad_norm": 0.0, "max_steps": 1, "temperature": 0.8}
    for beta in (0.0, BETA):
        own = {"kl_estimator": estimator, "kl_direction": direction} if beta else {}
        trainer = build_trainer(beta=beta, **settings, **own)
        plain = _plain(trainer)
        recorder = record(trainer)
        trainer.train()
        found[beta] = recorder.steps[0]
    loss = torch.zeros(())
    for batch in found[BETA].micro_batches:
        kl = _kl(plain, batch, estimator, direction, temperature=0.8)
        loss = loss + BETA * (kl * _weights(batch["completion_mask"].float(), loss_type, 8)).sum()
    names = list(found[BETA].gradients)
    parameters = dict(plain.named_parameters())
    expected = torch.autograd.grad(loss, [parameters[name] for name in names])
    for name, gradient in zip(names, expected, strict=True):
        difference = found[BETA].gradients[name] - found[0.0].gradients[name]
        torch.testing.assert_close(difference, gradient, atol=2e-6, rtol=1e-3)


TRAINED_HEAD = {"modules_to_save": ["lm_head"]}


@pytest.mark.parametrize("placement", ["loss", "reward"])
def test_full_kl_of_a_trained_head_has_the_reference_head_of_the_base(
    build_trainer, helpers, record, logs_of, placement
):
    settings = {"max_steps": 1, "gradient_accumulation_steps": 1, "beta": BETA, "kl_estimator": "full"}
    config = helpers.shared.lora_config(**TRAINED_HEAD)
    trainer = build_trainer(peft_config=config, awake=False, kl_placement=placement, **settings)
    generator = torch.Generator().manual_seed(0)
    (head,) = [w for name, w in trainer.model.named_parameters() if "lm_head" in name and w.requires_grad]
    head.data += 0.5 * torch.randn(head.shape, generator=generator)
    plain, recorder = _plain(trainer, **TRAINED_HEAD), record(trainer)
    trainer.train()
    (batch,) = recorder.steps[0].micro_batches
    mask = batch["completion_mask"]
    with torch.no_grad():
        mean = float((_kl(plain, batch, "full") * mask).sum() / mask.sum())
    assert mean > 0.1 and logs_of(trainer)[0]["kl"] == pytest.approx(mean, rel=1e-4)


def test_gradient_of_the_full_kl_reaches_a_trained_head(build_trainer, helpers, record):
    settings = {"loss_type": "grpo", "max_grad_norm": 0.0, "max_steps": 1, "beta": BETA, "kl_estimator": "full"}
    config = helpers.shared.lora_config(**TRAINED_HEAD)
    trainer = build_trainer(peft_config=config, reward_funcs=helpers.equal_reward, **settings)
    plain, recorder = _plain(trainer, **TRAINED_HEAD), record(trainer)
    trainer.train()
    (step,) = recorder.steps
    kls = [_kl(plain, b, "full") * _weights(b["completion_mask"].float(), "grpo", 8) for b in step.micro_batches]
    names, parameters = list(step.gradients), dict(plain.named_parameters())
    assert any("lm_head" in name for name in names)
    expected = torch.autograd.grad(BETA * sum(kl.sum() for kl in kls), [parameters[name] for name in names])
    for name, gradient in zip(names, expected, strict=True):
        torch.testing.assert_close(step.gradients[name], gradient, atol=2e-6, rtol=1e-3)


@pytest.mark.parametrize("estimator", ["k1", "k3", "full"])
def test_kl_in_the_reward_is_subtracted_from_this_and_earlier_tokens(build_trainer, record, logs_of, estimator):
    settings = {"loss_type": "grpo", "max_steps": 1, "beta": BETA, "shuffle_dataset": False}
    trainer = build_trainer(kl_estimator=estimator, kl_placement="reward", advantage_estimator="rloo", **settings)
    plain = _plain(trainer)
    recorder = record(trainer)
    calculate, seen = trainer._calculate_rewards, []
    trainer._calculate_rewards = lambda *args: seen.append(calculate(*args)) or seen[-1]
    trainer.train()
    outcome = seen[0].view(-1, 4)
    outcome = (outcome - outcome.mean(1, keepdim=True)).mul(4 / 3).flatten()
    (step,) = recorder.steps
    total = tokens = 0.0
    left = outcome.tolist()
    for batch in step.micro_batches:
        with torch.no_grad():
            kl = _kl(plain, batch, estimator)
        for row, mask in enumerate(batch["completion_mask"].bool()):
            length = int(mask.sum())
            to_go = torch.stack([kl[row, t:length].sum() for t in range(length)])
            expected = batch["advantages"][row, :length] + BETA * to_go
            assert expected.std() < 1e-5 if length > 1 else True
            nearest = min(left, key=lambda a, e=expected: abs(a - float(e[0])))
            assert float(expected[0]) == pytest.approx(nearest, abs=1e-5)
            left.remove(nearest)
            assert not batch["advantages"][row, length:].any()
            total, tokens = total + float(kl[row, :length].sum()), tokens + length
    assert logs_of(trainer)[0]["kl"] == pytest.approx(total / tokens, rel=1e-4)


def test_kl_of_full_weights_uses_the_reference_model(build_trainer, tiny_model_path, logs_of):
    trainer = build_trainer(model=str(tiny_model_path), peft_config=None, beta=0.5, kl_estimator="full", max_steps=3)
    trainer.train()
    kls = [row["kl"] for row in logs_of(trainer)]
    assert kls[0] == pytest.approx(0.0, abs=1e-6) and kls[-1] > 1e-6


def test_full_kl_with_gradient_checkpointing_gives_the_same_gradients(run):
    _, plain = run(beta=BETA, kl_estimator="full", max_steps=1)
    _, checkpointed = run(beta=BETA, kl_estimator="full", max_steps=1, gradient_checkpointing=True)
    for name, gradient in plain.steps[0].gradients.items():
        torch.testing.assert_close(checkpointed.steps[0].gradients[name], gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    "settings", [{"beta": 0.3, "kl_estimator": "k2"}, {"beta": 0.3, "kl_estimator": "k1", "kl_placement": "reward"}]
)
def test_evaluation_runs_with_own_kl(build_trainer, settings):
    from datasets import Dataset

    trainer = build_trainer(eval_dataset=Dataset.from_dict({"prompt": ["5+5=", "6+6="]}), **settings)
    assert "eval_kl" in trainer.evaluate()


def test_full_kl_with_scaled_logits_is_refused(build_trainer):
    model = tiny_model()
    model.config.logit_scale = 0.5
    with pytest.raises(UserError, match="caps or scales its logits \\(logit_scale\\); use 'k3'"):
        build_trainer(model=model, beta=0.1, kl_estimator="full")
