"""The logged terms add up to the loss that was differentiated, and statistics are exact over any split."""

import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM

from trl_ext.ppo.accounting import CostMeter, PPOAccounting, TokenStatistics
from trl_ext.testing import tiny_tokenizer

MODES = ("adapter", "shared", "shared_detach", "shared_full", "model")
ENTROPY = {
    "none": {},
    "static": {"entropy_coef": 0.1},
    "adaptive": {"use_adaptive_entropy": True, "entropy_target": 5.0, "entropy_coef_delta": 0.05, "entropy_coef": 0.1},
}
KL = {
    "none": {"kl_coef": 0.0},
    "reward": {"kl_coef": 0.1},
    **{
        name: {"kl_coef": 0.1, "kl_placement": "loss", "kl_estimator": name}
        for name in ("k1", "k2", "k3", "abs", "full")
    },
}


class OneProcess:
    num_processes = 1
    device = torch.device("cpu")

    @staticmethod
    def gather(tensor):
        return tensor

    @staticmethod
    def reduce(tensor, reduction):
        return tensor


def _assert_terms_add_up(trainer, logs_of, terms):
    rows = logs_of(trainer)
    assert len(rows) == trainer.args.max_steps
    for row in rows:
        logged = {name.removeprefix("objective/"): row[name] for name in row if name.startswith("objective/")}
        total = logged.pop("total")
        assert set(logged) == terms
        assert sum(logged.values()) == pytest.approx(total, abs=1e-5)
        assert row["loss"] == pytest.approx(total, abs=1e-5)
    return rows


@pytest.mark.parametrize("kl", KL)
@pytest.mark.parametrize("mode", MODES)
def test_objective_terms_add_up_to_the_logged_loss_with_every_critic_and_kl(run, logs_of, mode, kl):
    trainer, _ = run(
        mode,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_iterations=2,
        num_mini_batches=2,
        max_steps=4,
        entropy_coef=0.05,
        **KL[kl],
    )
    terms = {"policy", "entropy", "value"} | ({"kl"} if kl not in ("none", "reward") else set())
    rows = _assert_terms_add_up(trainer, logs_of, terms)
    assert any(abs(row["objective/policy"]) > 1e-4 for row in rows)
    assert all(row["objective/value"] > 0 for row in rows)
    assert ("policy/kl_ref_token" in rows[0]) == (kl != "none")


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "sapo", "cispo", "luspo", "vespo"])
@pytest.mark.parametrize("entropy", ENTROPY)
def test_objective_terms_add_up_with_every_loss_type_and_entropy_bonus(run, logs_of, entropy, loss_type):
    trainer, _ = run(
        "adapter",
        loss_type=loss_type,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_iterations=2,
        max_steps=3,
        **KL["k3"],
        **ENTROPY[entropy],
    )
    rows = _assert_terms_add_up(trainer, logs_of, {"policy", "entropy", "value", "kl"})
    assert any(row["objective/entropy"] < 0 for row in rows) == (entropy != "none")
    # the policy term is the loss of TRL without its bonus, which TRL logs beside a bonus
    if entropy == "static" and loss_type not in ("cispo", "vespo"):
        assert [row["policy_loss"] for row in rows] == pytest.approx(
            [row["objective/policy"] for row in rows], abs=1e-5
        )


def test_objective_entropy_with_adaptive_control_follows_the_gate(run, logs_of):
    # the entropy of the random model is about 4.6: above the target of the first run, below that of the second
    settings = {"use_adaptive_entropy": True, "entropy_coef": 0.1, "entropy_coef_delta": 0.01, "max_steps": 3}
    above, _ = run("adapter", entropy_target=1.0, **settings)
    below, _ = run("adapter", entropy_target=6.0, **settings)
    coefficients = [row["entropy_coef"] for row in logs_of(below)]
    applied = [-row["objective/entropy"] / row["policy/entropy"] for row in logs_of(below)]
    # nothing is known of the entropy at the first step; each later one uses what the one before it has set
    assert applied == pytest.approx([0.0, *coefficients[:-1]], rel=1e-4)
    assert coefficients == pytest.approx([0.11, 0.12, 0.13])
    assert [row["objective/entropy"] for row in logs_of(above)] == [0.0, 0.0, 0.0]


def _four_letters(prompts, trainer):
    ids = [tiny_tokenizer()(prompt).input_ids for prompt in prompts]
    completions = [tiny_tokenizer()(f"{prompt}abcd"[-4:]).input_ids for prompt in prompts]
    return {"prompt_ids": ids, "completion_ids": completions, "logprobs": None}


def test_objective_of_entropy_is_the_mean_in_a_step_of_fewer_micro_batches(run, logs_of):
    # six prompts are three micro-batches an epoch: a step of two, and a last one of one
    settings = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "steps_per_generation": 3}
    settings |= {"rollout_func": _four_letters, "entropy_coef": 0.1, "max_steps": 4}
    trainer, _ = run("adapter", prompts=["1+1=", "2+2=", "3+3="] * 2, **settings)
    for row in _assert_terms_add_up(trainer, logs_of, {"policy", "entropy", "value"}):
        assert row["objective/entropy"] == pytest.approx(-0.1 * row["policy/entropy"], rel=1e-4)


def test_objective_of_a_step_over_several_generation_batches_adds_up(run, logs_of):
    settings = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "steps_per_generation": 1}
    trainer, _ = run("shared", entropy_coef=0.1, **settings)
    for row in _assert_terms_add_up(trainer, logs_of, {"policy", "entropy", "value"}):
        assert row["objective/entropy"] == pytest.approx(-0.1 * row["policy/entropy"], rel=1e-2)


def test_objective_of_entropy_with_top_quantile_is_trls(run, logs_of):
    trainer, _ = run("adapter", top_entropy_quantile=0.5, entropy_coef=0.1, per_device_train_batch_size=8)
    rows = _assert_terms_add_up(trainer, logs_of, {"policy", "entropy", "value"})
    assert all(-row["objective/entropy"] > 0.1 * row["policy/entropy"] for row in rows)  # of the higher half alone


def test_objective_has_a_router_term_for_a_mixture_of_experts(run, logs_of, lora):
    tokenizer = tiny_tokenizer()
    settings = {"vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    settings |= {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 2, "pad_token_id": 0}
    model = MixtralForCausalLM(MixtralConfig(**settings, router_aux_loss_coef=0.01))
    trainer, _ = run("shared", model=model, per_device_train_batch_size=2, gradient_accumulation_steps=2)
    rows = _assert_terms_add_up(trainer, logs_of, {"policy", "entropy", "value", "router"})
    assert all(row["objective/router"] == pytest.approx(0.01 * row["aux_loss"], rel=1e-4) for row in rows)


def test_objective_of_several_steps_is_their_mean(run, logs_of, scripted):
    each, _ = run("adapter", rollout_func=scripted, max_steps=4, logging_steps=1)
    together, _ = run("adapter", rollout_func=scripted, max_steps=4, logging_steps=2)
    rows = [row["objective/total"] for row in logs_of(each)]
    pairs = [sum(rows[:2]) / 2, sum(rows[2:]) / 2]
    assert [row["objective/total"] for row in logs_of(together)] == pytest.approx(pairs, abs=1e-5)
    assert [row["loss"] for row in logs_of(together)] == pytest.approx(pairs, abs=1e-5)


def test_value_figures_of_an_update_agree_with_the_rollouts(run, logs_of, scripted):
    trainer, recorder = run("shared", rollout_func=scripted, per_device_train_batch_size=8, max_steps=1)
    row, batch = logs_of(trainer)[0], recorder.steps[0].rollouts
    keep = batch["value_mask"].bool()
    values, returns = batch["old_values"][keep], batch["returns"][keep]
    assert row["value/num_tokens"] == keep.sum()
    assert row["value/bias"] == pytest.approx((values - returns).mean().item(), rel=1e-4)
    expected = 1 - (returns - values).var() / returns.var()
    assert row["value/explained_variance_old"] == pytest.approx(expected.item(), rel=1e-4)
    assert row["value/loss"] == pytest.approx(0.5 * (values - returns).square().mean().item(), rel=1e-4)
    assert row["objective/value"] == pytest.approx(trainer.args.vf_coef * row["value/loss"], rel=1e-4)
    assert row["value/td_error_mean"] == pytest.approx(batch["td_errors"][keep].mean().item(), rel=1e-4)


def test_value_after_update_is_of_the_new_critic(run, logs_of, scripted):
    settings = {
        "rollout_func": scripted,
        "per_device_train_batch_size": 8,
        "num_iterations": 2,
        "cliprange_value": None,
    }
    trainer, _ = run("adapter", **settings)
    first, second = logs_of(trainer)
    assert first["value/explained_variance_after"] == pytest.approx(second["value/explained_variance"], abs=1e-5)
    assert first["value/explained_variance_after"] != first["value/explained_variance"]
    without, _ = run("adapter", value_after_update=False, **settings)
    assert "value/explained_variance_after" not in logs_of(without)[0]


def test_logged_advantages_are_the_ones_used(run, scripted):
    trainer, recorder = run("adapter", rollout_func=scripted, per_device_train_batch_size=8, whiten_advantages=False)
    batch = recorder.steps[-1].rollouts
    mask = batch["completion_mask"]
    means = (batch["advantages"] * mask).sum(-1) / mask.sum(-1)
    assert list(trainer._logs["advantages"])[-8:] == pytest.approx(means.tolist(), abs=1e-6)


def test_token_statistics_are_exact_over_any_split():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(6, 5, generator=generator) * 3 + 100
    mask = torch.rand(6, 5, generator=generator) > 0.4
    wanted = ("mean", "var", "std", "min", "max")
    for sizes in ([6], [1, 5], [2, 2, 2], [1] * 6):
        statistics = TokenStatistics()
        for part, keep in zip(values.split(sizes), mask.split(sizes), strict=True):
            statistics.update("x", part, keep, wanted)
        figures = statistics.compute(OneProcess)
        kept = values[mask].double()
        assert figures["x"] == pytest.approx(kept.mean().item(), rel=1e-6)
        assert figures["x_var"] == pytest.approx(kept.var(unbiased=False).item(), rel=1e-4)
        assert figures["x_std"] == pytest.approx(kept.std(unbiased=False).item(), rel=1e-4)
        assert (figures["x_min"], figures["x_max"]) == (kept.min().item(), kept.max().item())


def test_token_statistics_ignore_what_the_mask_hides_and_leave_out_what_has_no_tokens():
    statistics = TokenStatistics()
    values = torch.tensor([[1.0, float("nan")], [float("inf"), 3.0]])
    statistics.update("x", values, torch.tensor([[1, 0], [0, 1]]), ("mean", "max"))
    statistics.update("empty", values, torch.zeros(2, 2))
    assert statistics.compute(OneProcess) == {"x": 2.0, "x_max": 3.0}
    assert bool(statistics) and not bool(TokenStatistics())


def test_accounting_after_reset_is_empty():
    accounting = PPOAccounting(torch.device("cpu"))
    logps, mask = torch.zeros(1, 2), torch.ones(1, 2)
    clipping = {"epsilon": 0.2, "epsilon_high": 0.2, "ratio_level": "token"}
    accounting.add_policy(logps, logps, None, {"advantages": mask}, mask, clipping)
    accounting.objective.add("policy", 1.0)
    assert accounting.compute(OneProcess, 8)["policy/ratio"] == 1.0
    accounting.reset()
    figures = accounting.compute(OneProcess, 8)
    assert not accounting
    assert not [name for name in figures if name.startswith("policy/")]
    assert figures["objective/total"] == 0.0


def test_approx_kl_is_of_the_sampling_policy_relative_to_the_new_one():
    # old policy (.5, .5), new one (.8, .2): sampled from the old, mean of log old - log new is KL(old || new)
    old, new = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.8, 0.2]]).log()
    accounting, mask = PPOAccounting(torch.device("cpu")), torch.ones(1, 2)
    clipping = {"epsilon": 0.2, "epsilon_high": 0.2, "ratio_level": "token"}
    accounting.add_policy(new, old, None, {"advantages": mask}, mask, clipping)
    figures = accounting.compute(OneProcess, 8)
    exact = (0.5 * (old - new)).sum().item()
    assert figures["policy/approx_kl_k1"] == pytest.approx(exact, rel=1e-5)
    assert figures["policy/approx_kl_k3"] == pytest.approx(exact, rel=1e-5)  # the ratios' mean is 1 here
    assert figures["policy/ratio_max"] == pytest.approx(1.6) and figures["policy/ratio_min"] == pytest.approx(0.4)
    assert figures["policy/clip_frac_high"] == 0.5 and figures["policy/clip_frac_low"] == 0.0


def test_cost_meter_counts_the_tokens_of_every_section():
    meter = CostMeter(torch.device("cpu"))
    for tokens in (3, 4):
        with meter.section(tokens):
            meter.mark_peak()
    figures = meter.compute(OneProcess, state_bytes=16)
    assert figures["critic/tokens"] == 7.0 and figures["critic/state_bytes"] == 16.0
    assert 0.0 <= figures["critic/seconds_share"] <= 1.0
    meter.reset()
    assert meter.compute(OneProcess, 0)["critic/tokens"] == 0.0
