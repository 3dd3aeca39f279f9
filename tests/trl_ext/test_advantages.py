"""Advantages: hand numbers, limits, a plain loop as reference, gradients, and masks with gaps that hide NaN."""

import itertools
import math
import statistics

import pytest
import torch

from trl_ext.advantages import (
    gae,
    group_advantages,
    length_adaptive_lam,
    n_step_advantages,
    process_advantages,
    rewards_to_go,
    td_errors,
)

DISCOUNTS = (0.0, 0.5, 0.95, 0.999, 1.0)
BASELINES = ("mean", "leave_one_out", "median", "none")
SCALES = ("group", "batch", "none", "leave_one_out", "mad", "mean")


def episodes(seed, batch=4, length=11, density=0.7, dtype=torch.float32):
    """Rewards, values, mask with gaps, bootstrap; NaN and inf wherever the mask is 0."""
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randn(batch, length, generator=generator, dtype=dtype)
    values = torch.randn(batch, length, generator=generator, dtype=dtype)
    mask = (torch.rand(batch, length, generator=generator) < density).long()
    bootstrap = torch.randn(batch, generator=generator, dtype=dtype)
    rewards = torch.where(mask.bool(), rewards, float("nan"))
    return rewards, torch.where(mask.bool(), values, float("inf")), mask, bootstrap


def loop_gae(rewards, values, mask, gamma, lam, bootstrap=None, horizon=None):
    """A_t = sum_{k < horizon} (gamma lam)^k delta_{t+k}, row by row in Python floats."""
    result = torch.zeros(mask.shape, dtype=torch.float64)
    lams = lam.tolist() if isinstance(lam, torch.Tensor) else [lam] * len(mask)
    for row, places in enumerate([row.nonzero().flatten().tolist() for row in mask]):
        r, v = rewards[row, places].tolist(), values[row, places].tolist()
        v.append(0.0 if bootstrap is None else bootstrap[row].item())
        deltas = [r[t] + gamma * v[t + 1] - v[t] for t in range(len(places))]
        decay, running = gamma * lams[row], 0.0
        for t in reversed(range(len(places))):
            running = deltas[t] + decay * running
            if horizon is None:
                result[row, places[t]] = running
            else:
                window = deltas[t : t + horizon]
                result[row, places[t]] = sum(decay**k * delta for k, delta in enumerate(window))
    return result


def loop_n_step(rewards, values, mask, n, gamma, bootstrap):
    result = torch.zeros(mask.shape, dtype=torch.float64)
    for row, places in enumerate([row.nonzero().flatten().tolist() for row in mask]):
        r, v = rewards[row, places].tolist(), [*values[row, places].tolist(), bootstrap[row].item()]
        for t, place in enumerate(places):
            end = min(t + n, len(places))
            total = sum(gamma ** (k - t) * r[k] for k in range(t, end))
            result[row, place] = total + gamma ** (end - t) * v[end] - v[t]
    return result


def assert_near(actual, reference, relative=1e-5):
    assert actual.dtype == torch.float32
    assert (actual - reference).abs().max() <= relative * reference.abs().max().clamp(min=1e-12)


def test_gae_hand_numbers():
    rewards, values = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.5, 0.25, 0.75]])
    advantages, returns = gae(rewards, values, torch.ones(1, 3), gamma=0.5, lam=0.5)
    # deltas: 0.125 - 0.5, 0.375 - 0.25, 1 - 0.75
    expected = [-0.375 + 0.25 * (0.125 + 0.25 * 0.25), 0.125 + 0.25 * 0.25, 0.25]
    assert advantages.tolist() == [expected]
    assert returns.tolist() == [[a + v for a, v in zip(expected, [0.5, 0.25, 0.75], strict=True)]]


def test_gae_bootstrap_hand_numbers():
    advantages, _ = gae(torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([[1, 0]]), bootstrap=torch.tensor([3.0]))
    assert advantages.tolist() == [[3.0, 0.0]]


def test_td_errors_hand_numbers_skip_the_gap():
    rewards, values = torch.tensor([[1.0, math.nan, 2.0]]), torch.tensor([[0.5, math.inf, 4.0]])
    assert td_errors(rewards, values, torch.tensor([[1, 0, 1]]), gamma=0.5).tolist() == [[2.5, 0.0, -2.0]]


def test_n_step_advantages_hand_numbers_use_bootstrap_once():
    rewards, values = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[10.0, 20.0, 30.0]])
    result = n_step_advantages(rewards, values, torch.ones(1, 3), n=2, gamma=0.5, bootstrap=torch.tensor([40.0]))
    assert result.tolist() == [[1 + 1 + 7.5 - 10, 2 + 1.5 + 10 - 20, 3 + 20 - 30]]


def test_rewards_to_go_hand_numbers():
    rewards, mask = torch.tensor([[1.0, 2.0, 4.0]]), torch.ones(1, 3)
    assert rewards_to_go(rewards, mask).tolist() == [[7.0, 6.0, 4.0]]
    result = rewards_to_go(rewards, mask, gamma=0.5, bootstrap=torch.tensor([8.0]))
    assert result.tolist() == [[1 + 1 + 1 + 1, 2 + 2 + 2, 4 + 4]]


@pytest.mark.parametrize("gamma", DISCOUNTS)
def test_gae_limits_are_td_error_and_monte_carlo(gamma):
    rewards, values, mask, bootstrap = episodes(0)
    options = {"gamma": gamma, "bootstrap": bootstrap}
    deltas = td_errors(rewards, values, mask, **options)
    baseline = torch.where(mask.bool(), values, 0.0)
    monte_carlo = rewards_to_go(rewards, mask, **options) - baseline
    length = mask.shape[1]
    for td in (gae(rewards, values, mask, lam=0.0, **options)[0], gae(rewards, values, mask, horizon=1, **options)[0]):
        assert torch.equal(td, deltas)
    torch.testing.assert_close(gae(rewards, values, mask, lam=1.0, **options)[0], monte_carlo)
    assert torch.equal(n_step_advantages(rewards, values, mask, n=1, **options), deltas)
    for n in (length, 10 * length):
        torch.testing.assert_close(n_step_advantages(rewards, values, mask, n=n, **options), monte_carlo)


def test_gae_value_of_the_true_return_has_no_advantage():
    rewards, _, mask, bootstrap = episodes(2)
    values = rewards_to_go(rewards, mask, gamma=0.9, bootstrap=bootstrap)
    advantages, returns = gae(rewards, values, mask, gamma=0.9, bootstrap=bootstrap)
    assert advantages.abs().max() < 1e-6
    torch.testing.assert_close(returns, values)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("gamma", "lam"), list(itertools.product(DISCOUNTS, DISCOUNTS)))
def test_gae_ragged_mask_equals_the_loop(gamma, lam, seed):
    rewards, values, mask, bootstrap = episodes(seed, length=1 + 9 * seed)
    advantages, returns = gae(rewards, values, mask, gamma=gamma, lam=lam, bootstrap=bootstrap)
    reference = loop_gae(rewards, values, mask, gamma, lam, bootstrap)
    assert_near(advantages, reference)
    assert_near(returns, torch.where(mask.bool(), reference + values, 0.0))


@pytest.mark.parametrize(("gamma", "lam"), list(itertools.product((0.0, 0.9, 0.9999, 1.0), (0.0, 0.5, 0.999, 1.0))))
def test_gae_16384_tokens_equals_the_loop(gamma, lam):
    rewards, values, mask, bootstrap = episodes(7, batch=2, length=16384, density=0.95)
    advantages, _ = gae(rewards, values, mask, gamma=gamma, lam=lam, bootstrap=bootstrap)
    assert_near(advantages, loop_gae(rewards, values, mask, gamma, lam, bootstrap))


@pytest.mark.parametrize("length", [1, 2, 127, 128, 129, 1000, 4097])
def test_gae_every_length_equals_the_loop(length):
    rewards, values, mask, _ = episodes(length, batch=2, length=length, density=1.0)
    assert_near(gae(rewards, values, mask)[0], loop_gae(rewards, values, mask, 1.0, 0.95))


def test_gae_large_values_do_not_cancel():
    rewards, values, mask, _ = episodes(5, batch=2, length=4096, dtype=torch.float64)
    values = 1e4 + 1e-2 * values
    advantages, _ = gae(rewards, values, mask, lam=0.95, bootstrap=torch.full((2,), 1e4))
    assert_near(advantages, loop_gae(rewards, values, mask, 1.0, 0.95, torch.full((2,), 1e4)))


@pytest.mark.parametrize("horizon", [1, 2, 3, 5, 8, 13, 100])
def test_gae_horizon_equals_the_loop(horizon):
    rewards, values, mask, bootstrap = episodes(horizon, length=40)
    advantages, _ = gae(rewards, values, mask, gamma=0.99, lam=0.9, bootstrap=bootstrap, horizon=horizon)
    assert_near(advantages, loop_gae(rewards, values, mask, 0.99, 0.9, bootstrap, horizon))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 41])
@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_n_step_advantages_equal_the_loop(n, gamma):
    rewards, values, mask, bootstrap = episodes(n, length=40)
    result = n_step_advantages(rewards, values, mask, n=n, gamma=gamma, bootstrap=bootstrap)
    assert_near(result, loop_n_step(rewards, values, mask, n, gamma, bootstrap))


def test_gae_lam_of_each_row_equals_rows_apart():
    rewards, values, mask, bootstrap = episodes(3)
    lam = torch.tensor([0.0, 0.3, 0.95, 1.0])
    together, _ = gae(rewards, values, mask, gamma=0.99, lam=lam, bootstrap=bootstrap)
    assert_near(together, loop_gae(rewards, values, mask, 0.99, lam, bootstrap))
    for row in range(4):
        one = slice(row, row + 1)
        apart, _ = gae(rewards[one], values[one], mask[one], gamma=0.99, lam=lam[row], bootstrap=bootstrap[one])
        torch.testing.assert_close(together[one], apart)


def test_gae_gap_counts_as_zero_steps():
    rewards, values, mask, bootstrap = episodes(4, batch=1, length=30)
    chosen = mask[0].bool()
    dense = torch.ones(1, int(chosen.sum()))
    options = {"gamma": 0.9, "lam": 0.8, "bootstrap": bootstrap}
    with_gaps = gae(rewards, values, mask, **options)[0]
    without = gae(rewards[:, chosen], values[:, chosen], dense, **options)[0]
    assert torch.equal(with_gaps[:, chosen], without)
    assert with_gaps[:, ~chosen].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_gae_any_dtype_gives_float32_of_the_same_numbers(dtype):
    rewards, values, mask, _ = (x.to(dtype) if x.is_floating_point() else x for x in episodes(6))
    advantages, returns = gae(rewards, values, mask.bool())
    assert returns.dtype == torch.float32
    assert_near(advantages, loop_gae(rewards.double(), values.double(), mask, 1.0, 0.95))


@pytest.mark.parametrize("horizon", [None, 3])
def test_gae_gradient_is_the_adjoint_of_the_loop(horizon):
    # GAE is linear in rewards, values and bootstrap, so <gradient, d> = <weights, loop(d)> for every direction d.
    *inputs, mask, bootstrap = episodes(8, dtype=torch.float64)
    inputs = [x.requires_grad_() for x in (*inputs, bootstrap)]
    weights = torch.randn(2, *mask.shape, dtype=torch.float64)
    advantages, returns = gae(*inputs[:2], mask, gamma=0.9, lam=0.8, bootstrap=inputs[2], horizon=horizon)
    gradients = torch.autograd.grad((weights[0] * advantages + weights[1] * returns).sum(), inputs)
    assert all(gradient[mask == 0].eq(0).all() for gradient in gradients[:2])
    for _ in range(30):
        rewards, values, last = directions = [torch.randn_like(x) for x in inputs]
        reference = loop_gae(rewards, values, mask, 0.9, 0.8, last, horizon)
        expected = weights[0] * reference + weights[1] * torch.where(mask.bool(), reference + values, 0.0)
        actual = sum((gradient * d).sum() for gradient, d in zip(gradients, directions, strict=True))
        assert actual.item() == pytest.approx(expected.sum().item(), rel=1e-5, abs=1e-5)


def test_n_step_and_reward_to_go_gradients_by_hand():
    rewards, values = torch.zeros(1, 3, requires_grad=True), torch.zeros(1, 3, requires_grad=True)
    n_step_advantages(rewards, values, torch.ones(1, 3), n=2, gamma=0.5)[0, 0].backward()
    assert (rewards.grad.tolist(), values.grad.tolist()) == ([[1.0, 0.5, 0.0]], [[-1.0, 0.0, 0.25]])
    (gradient,) = torch.autograd.grad(rewards_to_go(rewards, torch.tensor([[1, 0, 1]]), gamma=0.5)[0, 0], rewards)
    assert gradient.tolist() == [[1.0, 0.0, 0.5]]


@pytest.mark.parametrize("length", [0, 1, 5])
def test_token_advantages_empty_mask_give_zeros(length):
    bad, mask = torch.full((2, length), math.nan), torch.zeros(2, length)
    bootstrap = torch.full((2,), math.nan)
    results = [
        *gae(bad, bad, mask, bootstrap=bootstrap),
        *gae(bad, bad, mask, horizon=2),
        td_errors(bad, bad, mask),
        n_step_advantages(bad, bad, mask, n=2, bootstrap=bootstrap),
        rewards_to_go(bad, mask, bootstrap=bootstrap),
    ]
    for result in results:
        assert result.shape == (2, length)
        assert result.eq(0).all()


def test_length_adaptive_lam_hand_numbers_and_clamp():
    mask = torch.zeros(4, 400)
    for row, length in enumerate((400, 40, 10, 0)):
        mask[row, :length] = 1
    torch.testing.assert_close(length_adaptive_lam(mask), torch.tensor([0.95, 0.5, 0.0, 0.0]))
    rewards = torch.randn(4, 400)
    torch.testing.assert_close(
        gae(rewards, rewards, mask, lam=length_adaptive_lam(mask))[0][1:2],
        gae(rewards[1:2], rewards[1:2], mask[1:2], lam=0.5)[0],
    )


TOKENS = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((torch.zeros(3), torch.zeros(3), torch.zeros(3)), {}, r"rewards has shape \(3,\)"),
        ((TOKENS, torch.zeros(2, 4), TOKENS), {}, r"values has shape \(2, 4\)"),
        ((TOKENS, TOKENS, torch.zeros(1, 3)), {}, r"mask has shape \(1, 3\)"),
        ((TOKENS, TOKENS, TOKENS), {"gamma": 1.1}, "gamma is 1.1"),
        ((TOKENS, TOKENS, TOKENS), {"lam": -0.1}, "lam is -0.1"),
        ((TOKENS, TOKENS, TOKENS), {"lam": torch.tensor([0.5, 1.5])}, r"lam has values in \[0.5, 1.5\]"),
        ((TOKENS, TOKENS, TOKENS), {"lam": torch.zeros(3)}, r"lam has shape \(3,\)"),
        ((TOKENS, TOKENS, TOKENS), {"bootstrap": torch.zeros(3)}, r"bootstrap has shape \(3,\)"),
        ((TOKENS, TOKENS, TOKENS), {"horizon": 0}, "horizon is 0"),
    ],
)
def test_gae_bad_argument_raises_its_name_and_value(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        gae(*arguments, **options)


def test_other_token_functions_bad_arguments_raise():
    with pytest.raises(ValueError, match="n is 0"):
        n_step_advantages(TOKENS, TOKENS, TOKENS, n=0)
    with pytest.raises(ValueError, match="gamma is 2"):
        td_errors(TOKENS, TOKENS, TOKENS, gamma=2)
    with pytest.raises(ValueError, match="mask has shape"):
        rewards_to_go(TOKENS, torch.zeros(3, 2))
    with pytest.raises(ValueError, match="alpha is 0"):
        length_adaptive_lam(TOKENS, alpha=0)
    with pytest.raises(ValueError, match="mask has shape"):
        length_adaptive_lam(torch.zeros(3))


def loop_group(rewards, size, baseline, scale, ddof, eps, floor):
    """The definition, one member at a time."""
    every = [r for r in rewards if not math.isnan(r)]
    result = []
    for start in range(0, len(rewards), size):
        group = rewards[start : start + size]
        for member, reward in enumerate(group):
            peers = [r for other, r in enumerate(group) if other != member and not math.isnan(r)]
            valid = [*peers, reward]
            centred = reward - centre(baseline, reward, peers, valid)
            result.append(
                0.0 if math.isnan(reward) else centred / divisor(scale, every, peers, valid, ddof, eps, floor)
            )
    return torch.tensor(result)


def centre(baseline, reward, peers, valid):
    if baseline == "leave_one_out":
        return statistics.fmean(peers) if peers else reward
    return {"mean": statistics.fmean, "median": statistics.median, "none": lambda _: 0.0}[baseline](valid)


def divisor(scale, every, peers, valid, ddof, eps, floor):
    if scale == "none":
        return 1.0
    if scale == "mean":
        mean = statistics.fmean(valid)
        return mean + eps if mean > 0 else math.inf
    if scale == "mad":
        middle = statistics.median(valid)
        spread = 1.4826 * statistics.median(abs(r - middle) for r in valid)
    else:
        spread = std({"group": valid, "batch": every, "leave_one_out": peers}[scale], ddof)
    spread = max(spread, floor)
    return spread + eps if spread > 0 else 1.0


def std(numbers, ddof):
    if len(numbers) <= ddof or max(numbers) == min(numbers):
        return 0.0
    mean = statistics.fmean(numbers)
    return math.sqrt(sum((x - mean) ** 2 for x in numbers) / (len(numbers) - ddof))


def test_group_advantages_hand_numbers():
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
    mean = group_advantages(rewards, 4, eps=0.0)
    assert mean.tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5])
    loo = group_advantages(rewards, 4, baseline="leave_one_out", scale="none")
    assert loo.tolist() == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3])
    max_rl = group_advantages(rewards, 4, scale="mean", eps=0.0)
    assert max_rl.tolist() == pytest.approx([3.0, -1.0, -1.0, -1.0])
    assert group_advantages(rewards, 4, ddof=0, eps=0.0)[0].item() == pytest.approx(0.75 / math.sqrt(3 / 16))


def test_group_advantages_defaults_equal_trl():
    rewards = torch.rand(24)
    grouped = rewards.view(-1, 8)
    trl = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)
    torch.testing.assert_close(group_advantages(rewards, 8), trl.flatten())
    trl = (grouped - grouped.mean(1, keepdim=True)) / (rewards.std() + 1e-4)
    torch.testing.assert_close(group_advantages(rewards, 8, scale="batch"), trl.flatten())


@pytest.mark.parametrize(("baseline", "scale"), list(itertools.product(BASELINES, SCALES)))
@pytest.mark.parametrize(("size", "ddof", "eps", "floor"), [(4, 1, 1e-4, 0.0), (5, 0, 0.0, 0.0), (2, 1, 0.0, 0.4)])
def test_group_advantages_every_option_equals_the_loop(baseline, scale, size, ddof, eps, floor):
    generator = torch.Generator().manual_seed(size)
    rewards = torch.rand(6 * size, generator=generator)
    rewards[::7] = math.nan
    rewards[:size] = 0.3
    rewards[size : 2 * size - 1] = 1.0
    options = {"baseline": baseline, "scale": scale, "ddof": ddof, "eps": eps, "std_floor": floor}
    result = group_advantages(rewards, size, **options)
    reference = loop_group(rewards.double().tolist(), size, baseline, scale, ddof, eps, floor)
    torch.testing.assert_close(result, reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("baseline", BASELINES[:3])
@pytest.mark.parametrize("eps", [0.0, 1e-4])
def test_group_advantages_identical_rewards_give_exact_zeros(baseline, scale, eps):
    for reward in (0.1, 1 / 3, -7.3e5, 0.0):
        rewards = torch.tensor([reward] * 7 + [1.0, 0.0] * 3 + [0.5])
        result = group_advantages(rewards, 7, baseline=baseline, scale=scale, eps=eps)
        assert result[:7].eq(0).all()
        assert result.isfinite().all()


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("baseline", BASELINES)
def test_group_advantages_nan_is_excluded_and_gets_zero(baseline, scale):
    with_nan = group_advantages(torch.tensor([1.0, 0.2, math.nan, 0.6]), 4, baseline=baseline, scale=scale)
    without = group_advantages(torch.tensor([1.0, 0.2, 0.6]), 3, baseline=baseline, scale=scale)
    assert with_nan[2] == 0
    torch.testing.assert_close(with_nan[[0, 1, 3]], without)
    assert group_advantages(torch.full((4,), math.nan), 4, baseline=baseline, scale=scale).eq(0).all()


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("baseline", BASELINES[:3])
def test_group_advantages_singletons_give_zero(baseline, scale):
    assert group_advantages(torch.tensor([3.0, -1.0]), 1, baseline=baseline, scale=scale)[1] == 0
    assert group_advantages(torch.tensor([0.1]), 1, baseline=baseline, scale=scale, eps=0.0).item() == 0


def test_group_advantages_no_baseline_no_scale_are_the_rewards():
    rewards = torch.tensor([3.0, -1.0, math.nan])
    assert group_advantages(rewards, 1, baseline="none", scale="none").tolist() == [3.0, -1.0, 0.0]


def test_group_advantages_identical_peers_stay_unscaled():
    result = group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), 4, scale="leave_one_out", eps=0.0)
    peers = math.sqrt(1 / 3)  # std of 1, 0, 0
    assert result.tolist() == pytest.approx([0.75, *[-0.25 / peers] * 3])
    # The mean of six times 0.1 is not 0.1 in float64: equality has to be looked for, not a spread of 0.
    rewards = torch.tensor([1.0, *[0.1] * 6], dtype=torch.float64)
    assert group_advantages(rewards, 7, scale="leave_one_out", eps=0.0)[0].item() == pytest.approx(0.9 * 6 / 7)


def test_group_advantages_mean_scale_without_success_gives_zero():
    rewards = torch.tensor([0.0, 0.0, -1.0, 0.5])
    assert group_advantages(rewards, 2, scale="mean", eps=0.0).eq(0).all()


def test_group_advantages_empty_batch_gives_empty():
    for scale in SCALES:
        assert group_advantages(torch.zeros(0), 4, scale=scale).shape == (0,)


@pytest.mark.parametrize(
    ("rewards", "size", "options", "message"),
    [
        (torch.zeros(2, 2), 2, {}, r"rewards has shape \(2, 2\)"),
        (torch.zeros(5), 2, {}, "num_generations is 2"),
        (torch.zeros(4), 0, {}, "num_generations is 0"),
        (torch.zeros(4), 2, {"baseline": "loo"}, "baseline is 'loo'"),
        (torch.zeros(4), 2, {"scale": "bach"}, "Did you mean 'batch'"),
        (torch.zeros(4), 2, {"ddof": 2}, "ddof is 2"),
        (torch.zeros(4), 2, {"eps": -1.0}, "eps is -1"),
        (torch.zeros(4), 2, {"std_floor": math.nan}, "std_floor is nan"),
        (torch.tensor([1.0, math.inf]), 2, {}, "rewards holds inf"),
    ],
)
def test_group_advantages_bad_argument_raises(rewards, size, options, message):
    with pytest.raises(ValueError, match=message):
        group_advantages(rewards, size, **options)


def test_process_advantages_hand_numbers():
    result = process_advantages([[1.0, 0.0], [0.0, 1.0]], [[1, 2], [0, 3]], 5, 2, ddof=0, eps=0.0)
    assert result.tolist() == [[0.0, 0.0, -1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0, 0.0]]


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("seed", range(3))
def test_process_advantages_ragged_steps_equal_the_loop(scale, seed):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 5, (6,), generator=generator).tolist()
    rewards = [torch.rand(count, generator=generator).double().tolist() for count in counts]
    ends = [torch.randperm(12, generator=generator)[:count].tolist() for count in counts]
    result = process_advantages(rewards, ends, 12, 3, scale=scale)
    every = [r for row in rewards for r in row]
    for row in range(6):
        group = [r for other in rewards[row - row % 3 : row - row % 3 + 3] for r in other]
        spread = {"group": std(group, 1), "batch": std(every, 1), "none": 0.0}[scale]
        divisor = spread + 1e-4 if spread > 0 else 1.0
        for t in range(12):
            later = [r for r, end in zip(rewards[row], ends[row], strict=True) if end >= t]
            expected = sum((r - statistics.fmean(group)) / divisor for r in later)
            assert result[row, t].item() == pytest.approx(expected, abs=1e-5)


def test_process_advantages_one_step_each_equals_outcome_supervision():
    rewards = [0.1, 0.7, 0.4]
    result = process_advantages([[r] for r in rewards], [[3]] * 3, 4, 3)
    expected = group_advantages(torch.tensor(rewards, dtype=torch.float64), 3)
    torch.testing.assert_close(result, expected[:, None].expand(3, 4))


def test_process_advantages_identical_and_missing_rewards_give_exact_zeros():
    assert process_advantages([[0.1, 0.1], [0.1]], [[0, 1], [2]], 3, 2, eps=0.0).eq(0).all()
    assert process_advantages([[], []], [[], []], 3, 2).eq(0).all()
    assert process_advantages([], [], 3, 2).shape == (0, 3)
    with_none = process_advantages([[1.0, None], [math.nan, 0.0]], [[0, 2], [1, 2]], 3, 2, scale="none")
    assert with_none.tolist() == [[0.5, 0.0, 0.0], [-0.5, -0.5, -0.5]]


@pytest.mark.parametrize(
    ("rewards", "ends", "size", "message"),
    [
        ([[1.0]], [[0], [1]], 1, "step_ends has 2 rows"),
        ([[1.0, 2.0]], [[0]], 1, r"step_ends\[0\] is \[0\]"),
        ([[1.0]], [[0.7]], 1, r"step_ends\[0\] is \[0\.7\], but must hold one index in \[0, "),
        ([[1.0]], [["0"]], 1, r"step_ends\[0\] is \['0'\]"),
        ([[1.0]], [[None]], 1, r"step_ends\[0\] is \[None\]"),
        ([[1.0]], [[4]], 1, r"one index in \[0, 4\)"),
        ([[1.0]], [[-1]], 1, r"one index in \[0, 4\)"),
        ([[1.0]], [[0]], 2, "num_generations is 2"),
        ([[math.inf]], [[0]], 1, "step_rewards holds inf"),
    ],
)
def test_process_advantages_bad_argument_raises(rewards, ends, size, message):
    with pytest.raises(ValueError, match=message):
        process_advantages(rewards, ends, 4, size)
