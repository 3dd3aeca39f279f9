"""examples/advantage_variance.py: its bandit by hand and by enumeration, and that it measures what is true."""

import importlib.util
import itertools
import math
from pathlib import Path

import pytest
import torch

from trl_ext.grpo.presets import estimated_advantages, resolved_preset

ROOT = Path(__file__).resolve().parents[3]
# One prompt, two arms: p = 0.25 * 0.8 + 0.75 * 0.4 = 0.5, gradient (0.25 * (0.8 - 0.5), 0.75 * (0.4 - 0.5))
POLICY = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
CHANCES = torch.tensor([[0.8, 0.4]], dtype=torch.float64)
GRADIENT = torch.tensor([[0.075, -0.075]], dtype=torch.float64)
# Scale of the mean estimate with groups of 2 and 3. One success in two: std 1/sqrt(2) (ddof 1) or 1/2 (ddof 0); one in
# three: 1/sqrt(3) or sqrt(2)/3. The batch is the one group here.
SCALES = {
    "trl": (0.5 / (0.5**0.5 + 1e-4), 2 / 3 / (3**-0.5 + 1e-4)),
    "verl": (0.5**0.5, 2 / 3**0.5),
    "open_instruct": (1.0, 2**0.5),
    "rloo": (1.0, 1.0),
    "dr_grpo": (1 / 2, 2 / 3),
    "reinforce_pp": (1.0, 2**0.5),
    "reinforce_pp, mean": (1.0, 2**0.5),
    "maxrl": (1.0, 1.5),
    "gdpo": (0.5**0.5, 2 / 3**0.5),
    "pass_at_k": (None, 8**-0.5),
    "reinforce": (1.0, 1.0),
    "reinforce, none": (1.0, 1.0),
    "custom": (0.5 / (0.5**0.5 + 1e-4), 2 / 3 / (3**-0.5 + 1e-4)),
}
UNBIASED = ("rloo", "reinforce", "reinforce, none")


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("advantage_variance", ROOT / "examples" / "advantage_variance.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def two_arm_rows(example):
    """Measured figures of the two-arm bandit by estimator and number of generations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example, "GENERATIONS", (2, 3))
        rows = example.measured(POLICY, CHANCES, 4000, 0)
    return {(row["estimator"], row["num_generations"]): row for row in rows}


def expected_estimate(preset, num_generations, running_mean=0.3):
    """(K,) exact mean of the estimate on the two-arm bandit: a plain sum over every group that can happen."""
    policy, total = POLICY[0].tolist(), torch.zeros(2, dtype=torch.float64)
    for group in itertools.product(itertools.product((0, 1), (0.0, 1.0)), repeat=num_generations):
        chance = 1.0
        for arm, reward in group:
            win = CHANCES[0, arm].item()
            chance *= policy[arm] * (win if reward else 1 - win)
        rewards = torch.tensor([[reward] for _, reward in group])
        found = estimated_advantages(rewards, torch.ones(1), num_generations, preset, running_mean=running_mean)
        for (arm, _), advantage in zip(group, found.tolist(), strict=True):
            for k in (0, 1):
                total[k] += chance * advantage * ((arm == k) - policy[k]) / num_generations
    return total


def prompt_weight(preset, success, num_generations):
    """Exact w(p) = E[A given r = 1] - E[A given r = 0], the others' successes being binomial."""
    groups = [[1.0] * wins + [0.0] * (num_generations - wins) for wins in range(num_generations + 1)]
    flat = torch.tensor(groups).reshape(-1, 1)
    found = estimated_advantages(flat, torch.ones(1), num_generations, preset).reshape(-1, num_generations).tolist()
    others = num_generations - 1
    return sum(
        math.comb(others, j) * success**j * (1 - success) ** (others - j) * (found[j + 1][0] - found[j][-1])
        for j in range(num_generations)
    )


def test_hand_numbers_cover_every_estimator(example):
    assert set(SCALES) == set(example.ESTIMATORS)


def test_exact_gradient_hand_numbers(example):
    torch.testing.assert_close(example.exact_gradient(POLICY, CHANCES), GRADIENT)


def test_exact_gradient_equals_autograd(example):
    policy, chances = example.bandit()
    logits = policy.log().requires_grad_()
    (logits.softmax(1) * chances).sum(1).mean().backward()
    torch.testing.assert_close(example.exact_gradient(policy, chances), logits.grad)


def test_gradients_hand_numbers(example):
    # (1 * (1 - 0.25, -0.75) - 1 * (-0.25, 1 - 0.75)) / 2
    found = example.gradients(POLICY, torch.tensor([[[0, 1]]]), torch.tensor([[[1.0, -1.0]]]))
    torch.testing.assert_close(found, torch.tensor([[[0.5, -0.5]]], dtype=torch.float64))


@pytest.mark.parametrize("num_generations", [2, 3])
@pytest.mark.parametrize("name", SCALES)
def test_enumerated_mean_is_the_hand_scale_times_the_gradient(example, name, num_generations):
    scale = SCALES[name][num_generations - 2]
    if scale is None:
        pytest.skip("pass@2 needs three generations")
    found = expected_estimate(example.ESTIMATORS[name], num_generations)
    torch.testing.assert_close(found, scale * GRADIENT[0], atol=2e-5, rtol=0)


@pytest.mark.parametrize("num_generations", [2, 3])
@pytest.mark.parametrize("name", SCALES)
def test_measured_mean_equals_the_enumerated_one_within_sampling_error(example, two_arm_rows, name, num_generations):
    if SCALES[name][num_generations - 2] is None:
        assert (name, num_generations) not in two_arm_rows
        return
    exact = expected_estimate(example.ESTIMATORS[name], num_generations)
    row = two_arm_rows[name, num_generations]
    assert abs(row["scale"] - float(exact[0] / GRADIENT[0, 0])) < 4 * row["scale_se"]
    assert row["weights"] == [pytest.approx(1.0)]


@pytest.mark.parametrize("name", UNBIASED)
def test_reinforce_and_rloo_are_unbiased_on_every_component(example, name):
    policy, chances = example.bandit()
    torch.manual_seed(0)
    arms = policy.multinomial(4 * 1500, replacement=True)
    rewards = torch.bernoulli(chances.gather(1, arms))
    arms, rewards = (drawn.unflatten(1, (-1, 4)).transpose(0, 1) for drawn in (arms, rewards))
    estimates = example.gradients(policy, arms, example.advantages(rewards, example.ESTIMATORS[name]))
    error = estimates.std(0) / len(estimates) ** 0.5
    z = (estimates.mean(0) - example.exact_gradient(policy, chances)) / error
    assert z.abs().max() < 4.5  # 32 components


@pytest.mark.parametrize("name", ["reinforce_pp", "reinforce_pp, mean", "gdpo", "reinforce", "trl", "rloo"])
def test_advantages_of_many_batches_equal_those_of_each(example, name):
    rewards = torch.bernoulli(torch.full((5, 3, 4), 0.4))
    preset, past, weight = example.ESTIMATORS[name], example.RunningMean(), torch.ones(1)
    for batch, found in zip(rewards, example.advantages(rewards, preset), strict=True):
        alone = estimated_advantages(batch.reshape(-1, 1), weight, 4, preset, running_mean=past.value)
        torch.testing.assert_close(found.reshape(-1), alone)
        past.update(batch)


@pytest.mark.parametrize("success", [0.03, 0.3, 0.97])
@pytest.mark.parametrize("num_generations", [2, 3, 8, 16])
def test_prompt_weight_equals_the_formulas_of_the_page(success, num_generations):
    fail = 1 - success
    assert prompt_weight(resolved_preset("rloo"), success, num_generations) == pytest.approx(1.0, abs=1e-5)
    shrunk = (num_generations - 1) / num_generations
    assert prompt_weight(resolved_preset("dr_grpo"), success, num_generations) == pytest.approx(shrunk, abs=1e-5)
    series = sum(fail**k for k in range(num_generations - 1))
    assert (1 - fail ** (num_generations - 1)) / success == pytest.approx(series)
    assert prompt_weight(resolved_preset("maxrl"), success, num_generations) == pytest.approx(series, rel=1e-4)


@pytest.mark.parametrize("name", ["trl", "verl", "open_instruct"])
def test_std_with_two_or_three_generations_weights_all_prompts_alike(name):
    preset = resolved_preset(name)
    for num_generations in (2, 3):
        weights = [prompt_weight(preset, success, num_generations) for success in (0.02, 0.4, 0.9)]
        assert weights == pytest.approx([weights[0]] * 3, rel=1e-5)
    assert prompt_weight(preset, 0.02, 8) > 1.3 * prompt_weight(preset, 0.4, 8)


def test_prompt_weight_of_many_generations_nears_the_limits():
    for success in (0.3, 0.6):
        std = 1 / math.sqrt(success * (1 - success))
        assert prompt_weight(resolved_preset("trl"), success, 400) == pytest.approx(std, rel=0.01)
        pass_at_two = 1 / math.sqrt(1 - (1 - success) ** 2)
        assert prompt_weight(resolved_preset("pass_at_k"), success, 400) == pytest.approx(pass_at_two, rel=0.02)
    assert prompt_weight(resolved_preset("pass_at_k"), 0.999, 8) < 0.01


def test_figures_hand_numbers(example):
    estimates = torch.tensor([[[0.0, 3.0]], [[2.0, 3.0]]], dtype=torch.float64)
    found = example.figures(estimates, torch.tensor([[2.0, 0.0]], dtype=torch.float64), 6)
    # mean (1, 3), variance 2: signal 1 + 9 - 2 / 2 = 9
    assert found["scale"] == pytest.approx(0.5)
    assert found["cosine"] == pytest.approx(1 / 3)
    assert found["completions"] == pytest.approx(6 * 2 / 9)
    assert found["weights"] == pytest.approx([1.0])


def test_figures_of_the_gradient_itself_are_unbiased_and_without_noise(example):
    gradient = example.exact_gradient(*example.bandit())
    found = example.figures(gradient.expand(4, 8, 4), gradient, 32)
    assert found["scale"] == pytest.approx(1.0) and found["cosine"] == pytest.approx(1.0)
    assert found["completions"] == pytest.approx(0.0, abs=1e-9)
    assert found["weights"] == pytest.approx([1.0] * 8)


def test_measured_repeats_with_the_seed(example):
    first, again, other = (example.measured(POLICY, CHANCES, 320, seed) for seed in (3, 3, 4))
    assert first == again and first != other
