"""Losses: hand numbers, limits, loops as reference, gradients, and what stands at mask 0."""

import math

import pytest
import torch

from trl_ext.losses import aggregate_loss, bradley_terry_loss, entropy, policy_loss, value_loss

NAN, INF = math.nan, math.inf


def tokens(seed, count, shape=(4, 6), dtype=torch.float32, bad=NAN):
    """A mask with gaps and `count` tensors which hold `bad` wherever it is 0."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.rand(shape, generator=generator) < 0.7).long()
    drawn = [torch.randn(shape, generator=generator, dtype=dtype) for _ in range(count)]
    return mask, [torch.where(mask.bool(), x, bad) for x in drawn]


def loop_policy(ratio, advantage, low, high, dual):
    clipped = min(max(ratio, 1 - low), 1 + high)
    loss = max(-ratio * advantage, -clipped * advantage)
    return min(loss, -dual * advantage) if dual and advantage < 0 else loss


def one_token(ratio, advantage, **options):
    logps = torch.tensor([[math.log(ratio)]])
    loss, stats = policy_loss(logps, torch.zeros(1, 1), torch.tensor([advantage]), torch.ones(1, 1), **options)
    return loss.item(), {name: value.item() for name, value in stats.items()}


# --- policy


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "flags"),
    [
        (3.0, 2.0, -2.4, "clipped_high"),
        (0.5, -2.0, 1.6, "clipped_low"),
        (0.5, 2.0, -1.0, None),
        (3.0, -2.0, 6.0, None),
        (1.1, 2.0, -2.2, None),
        (3.0, 0.0, 0.0, None),
    ],
)
def test_policy_loss_hand_numbers(ratio, advantage, loss, flags):
    actual, stats = one_token(ratio, advantage)
    assert actual == pytest.approx(loss, rel=1e-6)
    assert stats["ratio"] == pytest.approx(ratio, rel=1e-6)
    assert stats["log_ratio"] == pytest.approx(math.log(ratio), rel=1e-6)
    for name in ("clipped_low", "clipped_high", "dual_clipped"):
        assert stats[name] == float(name == flags)


def test_policy_loss_dual_clip_bounds_the_loss_of_negative_advantages():
    assert one_token(5.0, -2.0, dual_clip=3.0)[0] == pytest.approx(6.0)
    assert one_token(5.0, -2.0, dual_clip=3.0)[1]["dual_clipped"] == 1.0
    assert one_token(2.0, -2.0, dual_clip=3.0)[0] == pytest.approx(4.0)
    assert one_token(2.0, -2.0, dual_clip=3.0)[1]["dual_clipped"] == 0.0
    assert one_token(5.0, 2.0, dual_clip=3.0)[0] == pytest.approx(-2.4)


def test_policy_loss_epsilon_high_moves_the_upper_bound_only():
    assert one_token(3.0, 1.0, epsilon_high=0.28)[0] == pytest.approx(-1.28)
    assert one_token(3.0, 1.0, epsilon_high=INF)[0] == pytest.approx(-3.0)
    assert one_token(0.5, -1.0, epsilon_high=0.28)[0] == pytest.approx(0.8)
    assert one_token(1.25, 1.0, epsilon_high=0.28)[1]["clipped_high"] == 0.0
    assert one_token(1.25, 1.0)[1]["clipped_high"] == 1.0


def test_policy_loss_on_policy_is_the_policy_gradient():
    mask, (logps, advantages) = tokens(0, 2)
    logps.requires_grad_()
    loss, stats = policy_loss(logps, logps, advantages, mask)
    assert stats["ratio"].tolist() == mask.float().tolist()
    torch.testing.assert_close(loss, torch.where(mask.bool(), -advantages, 0.0))
    loss.sum().backward()
    torch.testing.assert_close(logps.grad, torch.where(mask.bool(), -advantages, 0.0))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dual", [None, 1.5])
def test_policy_loss_ragged_mask_equals_the_loop(seed, dual):
    mask, (logps, old, advantages) = tokens(seed, 3)
    loss, stats = policy_loss(logps, old, advantages, mask, epsilon=0.1, epsilon_high=0.3, dual_clip=dual)
    for b, t in mask.nonzero().tolist():
        ratio = math.exp(logps[b, t] - old[b, t])
        assert loss[b, t].item() == pytest.approx(loop_policy(ratio, advantages[b, t].item(), 0.1, 0.3, dual), rel=1e-5)
    assert all(x[mask == 0].eq(0).all() for x in (loss, *stats.values()))
    assert not any(x.requires_grad for x in stats.values())


@pytest.mark.parametrize("ratio_level", ["token", "sequence"])
def test_policy_loss_equals_trl_formula_in_value_and_gradient(ratio_level):
    mask, (logps, old) = tokens(4, 2, bad=0.0)
    advantages = torch.randn(4)
    ours, reference = logps.clone().requires_grad_(), logps.clone().requires_grad_()
    loss, _ = policy_loss(ours, old, advantages, mask, ratio_level=ratio_level)
    log_ratio = reference - old
    if ratio_level == "sequence":
        log_ratio = ((log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)
    coef = log_ratio.exp()
    surrogate = torch.min(coef * advantages[:, None], coef.clamp(0.8, 1.2) * advantages[:, None])
    expected = -surrogate * mask
    torch.testing.assert_close(loss, expected)
    loss.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(ours.grad, reference.grad)


def test_policy_loss_sequence_level_has_one_ratio_a_completion():
    logps, mask = torch.tensor([[0.1, 0.3, NAN]]), torch.tensor([[1, 1, 0]])
    loss, stats = policy_loss(logps, torch.zeros(1, 3), torch.ones(1), mask, ratio_level="sequence", epsilon=0.5)
    assert stats["ratio"][0].tolist() == pytest.approx([math.exp(0.2)] * 2 + [0.0])
    assert loss[0].tolist() == pytest.approx([-math.exp(0.2)] * 2 + [0.0])


@pytest.mark.parametrize("ratio_level", ["token", "sequence"])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_policy_loss_gradient_is_exactly_zero_at_mask_zero(ratio_level, bad):
    mask, (logps, old, advantages) = tokens(5, 3, bad=bad)
    logps.requires_grad_()
    loss, _ = policy_loss(logps, old, advantages, mask, ratio_level=ratio_level, dual_clip=3.0)
    loss.sum().backward()
    assert logps.grad[mask == 0].eq(0).all()
    assert logps.grad.isfinite().all()


def test_policy_loss_gradient_stops_where_clipping_binds():
    logps = torch.tensor([[0.5, 0.5, -0.5, -0.5]], requires_grad=True)
    advantages = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    loss, stats = policy_loss(logps, torch.zeros(1, 4), advantages, torch.ones(1, 4))
    loss.sum().backward()
    free = torch.tensor([[0.0, 1.0, 1.0, 0.0]])
    torch.testing.assert_close(logps.grad, -free * advantages * logps.detach().exp())
    assert (stats["clipped_low"] + stats["clipped_high"]).tolist() == (1 - free).tolist()


def test_policy_loss_extreme_ratio_stays_finite():
    logps = torch.tensor([[500.0, -500.0, 500.0]], requires_grad=True)
    loss, _ = policy_loss(logps, torch.zeros(1, 3), torch.tensor([[0.0, 1.0, -1.0]]), torch.ones(1, 3))
    loss.sum().backward()
    assert loss.isfinite().all()
    assert logps.grad.isfinite().all()


def test_policy_loss_empty_mask_and_one_element():
    loss, stats = policy_loss(*[torch.full((2, 3), NAN)] * 3, torch.zeros(2, 3), ratio_level="sequence")
    assert all(x.eq(0).all() for x in (loss, *stats.values()))
    assert one_token(1.0, 1.0)[0] == -1.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_policy_loss_any_dtype_gives_float32(dtype):
    x = torch.zeros(1, 2, dtype=dtype)
    loss, stats = policy_loss(x, x, x, torch.ones(1, 2, dtype=torch.bool))
    assert {y.dtype for y in (loss, *stats.values())} == {torch.float32}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": -0.1}, "epsilon is -0.1"),
        ({"epsilon_high": NAN}, "epsilon_high is nan"),
        ({"dual_clip": 1.0}, "dual_clip is 1.0"),
        ({"ratio_level": "sequences"}, "Did you mean 'sequence'"),
    ],
)
def test_policy_loss_bad_option_raises(options, message):
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=message):
        policy_loss(x, x, x, x, **options)


def test_policy_loss_bad_shape_raises():
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="old_logps has shape"):
        policy_loss(x, x[:1], x, x)
    with pytest.raises(ValueError, match=r"advantages has shape \(3,\).*one a completion"):
        policy_loss(x, x, torch.zeros(3), x)


# --- critic


def test_value_loss_hand_numbers_clipping_takes_the_larger_loss():
    values, old = torch.tensor([[1.0, 1.0, 0.1]]), torch.tensor([[0.0, 0.0, 0.0]])
    returns = torch.tensor([[2.0, 0.0, 1.0]])
    loss, stats = value_loss(values, old, returns, torch.ones(1, 3), cliprange=0.2)
    assert stats["loss_unclipped"][0].tolist() == pytest.approx([0.5, 0.5, 0.405])
    assert stats["loss_clipped"][0].tolist() == pytest.approx([0.5 * 1.8**2, 0.5 * 0.2**2, 0.405])
    assert loss[0].tolist() == pytest.approx([1.62, 0.5, 0.405])
    assert stats["clipped_region"].tolist() == [[1.0, 1.0, 0.0]]
    assert stats["clipped"].tolist() == [[1.0, 0.0, 0.0]]


def test_value_loss_huber_hand_numbers():
    values, returns = torch.tensor([[0.5, 3.0]]), torch.zeros(1, 2)
    loss, _ = value_loss(values, None, returns, torch.ones(1, 2), kind="huber")
    assert loss.tolist() == [[0.125, 2.5]]


def test_value_loss_without_cliprange_is_the_plain_loss():
    mask, (values, old, returns) = tokens(6, 3)
    loss, stats = value_loss(values, old, returns, mask)
    torch.testing.assert_close(loss, torch.where(mask.bool(), 0.5 * (values - returns) ** 2, 0.0))
    assert torch.equal(stats["loss_clipped"], stats["loss_unclipped"])
    assert stats["clipped"].eq(0).all()
    wide, _ = value_loss(values, old, returns, mask, cliprange=1e6)
    assert torch.equal(wide, loss)


@pytest.mark.parametrize("kind", ["mse", "huber"])
def test_value_loss_ragged_mask_equals_the_loop(kind):
    def distance(x):
        return 0.5 * x * x if kind == "mse" or abs(x) < 1 else abs(x) - 0.5

    mask, (values, old, returns) = tokens(7, 3, bad=INF)
    loss, stats = value_loss(values, old, returns, mask, cliprange=0.3, kind=kind)
    for b, t in mask.nonzero().tolist():
        v, o, r = (x[b, t].item() for x in (values, old, returns))
        plain, clipped = distance(v - r), distance(min(max(v, o - 0.3), o + 0.3) - r)
        assert loss[b, t].item() == pytest.approx(max(plain, clipped), rel=1e-5, abs=1e-7)
        assert stats["clipped_region"][b, t] == float(abs(v - o) > 0.3)
    assert all(x[mask == 0].eq(0).all() for x in (loss, *stats.values()))
    assert not any(x.requires_grad for x in stats.values())


def test_value_loss_small_move_is_not_counted_as_clipped():
    old = torch.randn(1, 1000) * 1e3
    values = old + 0.01 * torch.randn(1, 1000)
    _, stats = value_loss(values, old, torch.randn(1, 1000), torch.ones(1, 1000), cliprange=0.2)
    assert stats["clipped"].sum() == 0
    assert stats["clipped_region"].sum() == 0


def test_value_loss_gradient_stops_where_the_clipped_loss_binds():
    values = torch.tensor([[1.0, 1.0, 0.1, NAN]], requires_grad=True)
    returns, mask = torch.tensor([[2.0, 0.0, 1.0, NAN]], requires_grad=True), torch.tensor([[1, 1, 1, 0]])
    old = torch.zeros(1, 4, requires_grad=True)
    value_loss(values, old, returns, mask, cliprange=0.2)[0].sum().backward()
    assert values.grad[0].tolist() == pytest.approx([0.0, 1.0, -0.9, 0.0])
    assert returns.grad is None
    assert old.grad is None


@pytest.mark.parametrize("kind", ["mse", "huber"])
def test_value_loss_gradient_equals_finite_differences(kind):
    mask, (values, old, returns) = tokens(8, 3, dtype=torch.float64, bad=NAN)
    values.requires_grad_()
    value_loss(values, old, returns, mask, cliprange=0.3, kind=kind)[0].double().sum().backward()
    step = 1e-3
    up, down = (value_loss(values + d, old, returns, mask, cliprange=0.3, kind=kind)[0] for d in (step, -step))
    numeric = (up - down) / (2 * step)
    assert ((values.grad - numeric).abs() < 2e-3).all()


def test_value_loss_empty_mask_gives_zeros():
    bad = torch.full((1, 2), NAN)
    loss, stats = value_loss(bad, bad, bad, torch.zeros(1, 2), cliprange=0.2)
    assert all(x.eq(0).all() for x in (loss, *stats.values()))


def test_value_loss_bad_arguments_raise():
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="old_values is None"):
        value_loss(x, None, x, x, cliprange=0.2)
    with pytest.raises(ValueError, match="cliprange is 0"):
        value_loss(x, x, x, x, cliprange=0)
    with pytest.raises(ValueError, match="kind is 'l2'"):
        value_loss(x, x, x, x, kind="l2")
    with pytest.raises(ValueError, match="returns has shape"):
        value_loss(x, x, x[:, :2], x)


# --- entropy, preferences


def test_entropy_hand_numbers():
    logits = torch.tensor([[[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]]).log()
    assert entropy(logits)[0].tolist() == pytest.approx([1.5 * math.log(2), 0.0])
    assert entropy(torch.full((1, 1, 1000), 7.0)).item() == pytest.approx(math.log(1000), rel=1e-5)


@pytest.mark.parametrize("chunk_size", [None, 1, 5])
def test_entropy_any_chunk_equals_torch_distributions_in_value_and_gradient(chunk_size):
    logits = torch.randn(2, 4, 9, dtype=torch.float64, requires_grad=True)
    ours = entropy(logits, chunk_size=chunk_size)
    reference = torch.distributions.Categorical(logits=logits).entropy()
    torch.testing.assert_close(ours, reference.float())
    weights = torch.randn(2, 4)
    gradients = [torch.autograd.grad((weights * x).sum(), logits)[0] for x in (ours, reference)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-7)


def test_entropy_impossible_tokens_leave_finite_gradients():
    logits = torch.tensor([[[0.0, 0.0, -INF]]], requires_grad=True)
    result = entropy(logits)
    result.sum().backward()
    assert result.item() == pytest.approx(math.log(2))
    assert logits.grad.isfinite().all()


def test_bradley_terry_loss_hand_numbers():
    chosen, rejected = torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0])
    expected = [math.log(1 + math.exp(-1)), math.log(2)]
    assert bradley_terry_loss(chosen, rejected, reduction="none").tolist() == pytest.approx(expected)
    assert bradley_terry_loss(chosen, rejected).item() == pytest.approx(sum(expected) / 2)
    with_margin = bradley_terry_loss(chosen, rejected, torch.tensor([1.0, 0.0]))
    assert with_margin.item() == pytest.approx(math.log(2))


def test_bradley_terry_loss_gradient_is_the_probability_of_the_wrong_order():
    chosen = torch.tensor([1.0, -300.0], requires_grad=True)
    bradley_terry_loss(chosen, torch.zeros(2), reduction="none").sum().backward()
    assert chosen.grad.tolist() == pytest.approx([-1 / (1 + math.e), -1.0])


def test_bradley_terry_loss_bad_arguments_raise():
    with pytest.raises(ValueError, match="rejected has shape"):
        bradley_terry_loss(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="margin has shape"):
        bradley_terry_loss(torch.zeros(2), torch.zeros(2), torch.zeros(1))
    with pytest.raises(ValueError, match="chosen is empty"):
        bradley_terry_loss(torch.zeros(0), torch.zeros(0))
    with pytest.raises(ValueError, match="reduction is 'sum'"):
        bradley_terry_loss(torch.zeros(2), torch.zeros(2), reduction="sum")


# --- aggregation

LOSSES = torch.tensor([[1.0, 3.0, NAN], [5.0, INF, NAN], [NAN, NAN, NAN]])
MASK = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    ("mode", "denominator", "expected"),
    [
        ("token", None, 3.0),
        ("token", 18, 0.5),
        ("token", torch.tensor(18), 0.5),
        ("sequence", None, (2 + 5 + 0) / 3),
        ("sequence", 2, 3.5),
        ("constant", 36.0, 0.25),
        ("sum", None, 9.0),
    ],
)
def test_aggregate_loss_hand_numbers(mode, denominator, expected):
    result = aggregate_loss(LOSSES, MASK, mode, denominator=denominator)
    assert result.dtype == torch.float32
    assert result.item() == pytest.approx(expected)


@pytest.mark.parametrize("mode", ["token", "sequence"])
def test_aggregate_loss_shared_denominator_makes_micro_batches_add_up(mode):
    mask, (losses,) = tokens(9, 1, (6, 5))
    denominator = mask.sum() if mode == "token" else len(mask)
    whole = aggregate_loss(losses, mask, mode)
    parts = [aggregate_loss(losses[i : i + 2], mask[i : i + 2], mode, denominator=denominator) for i in (0, 2, 4)]
    torch.testing.assert_close(sum(parts), whole)


def test_aggregate_loss_equals_trl_formulas():
    mask, (losses,) = tokens(10, 1, bad=0.0)
    grpo = ((losses * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
    torch.testing.assert_close(aggregate_loss(losses, mask, "sequence"), grpo)
    bnpo = (losses * mask).sum() / mask.sum().clamp(min=1.0)
    torch.testing.assert_close(aggregate_loss(losses, mask), bnpo)
    dr_grpo = (losses * mask).sum() / (4 * 256)
    torch.testing.assert_close(aggregate_loss(losses, mask, "constant", denominator=4 * 256), dr_grpo)


@pytest.mark.parametrize("mode", ["token", "sequence", "sum"])
def test_aggregate_loss_gradient_is_zero_at_mask_zero(mode):
    losses = LOSSES.clone().requires_grad_()
    aggregate_loss(losses, MASK, mode).backward()
    assert losses.grad[MASK == 0].eq(0).all()
    weights = {"token": [1 / 3] * 3, "sequence": [1 / 6, 1 / 6, 1 / 3], "sum": [1.0] * 3}[mode]
    assert losses.grad[MASK == 1].tolist() == pytest.approx(weights)


@pytest.mark.parametrize("mode", ["token", "sequence", "sum"])
def test_aggregate_loss_empty_mask_gives_zero(mode):
    assert aggregate_loss(torch.full((2, 2), NAN), torch.zeros(2, 2), mode) == 0
    assert aggregate_loss(torch.zeros(0, 2), torch.zeros(0, 2), mode) == 0


@pytest.mark.parametrize(
    ("mode", "denominator", "message"),
    [
        ("constant", None, "denominator is None"),
        ("sum", 3, "mode 'sum' does not divide"),
        ("token", 0, "denominator is 0"),
        ("tokens", None, "Did you mean 'token'"),
    ],
)
def test_aggregate_loss_bad_arguments_raise(mode, denominator, message):
    with pytest.raises(ValueError, match=message):
        aggregate_loss(torch.zeros(2, 2), torch.ones(2, 2), mode, denominator=denominator)


def test_losses_never_read_a_value_on_the_device():
    # meta tensors hold no numbers: whatever would wait for a device raises here
    x, mask = torch.zeros(2, 3, device="meta"), torch.ones(2, 3, device="meta")
    for loss in (policy_loss(x, x, x[:, 0], mask, dual_clip=3.0)[0], value_loss(x, x, x, mask, cliprange=0.2)[0]):
        for mode in ("token", "sequence"):
            assert aggregate_loss(loss, mask, mode, denominator=mask.sum()).shape == ()
