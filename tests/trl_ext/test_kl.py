"""KL estimators, the full-distribution KL with its bounded memory, and the coefficient controllers."""

import math

import pytest
import torch

from trl_ext.kl import AdaptiveKL, FixedKL, full_kl, kl_estimate, map_token_chunks

ESTIMATORS = ("k1", "k2", "k3", "abs")


def logits_pair(seed=0, shape=(2, 3, 7), dtype=torch.float64, requires_grad=False):
    generator = torch.Generator().manual_seed(seed)
    pair = [torch.randn(shape, generator=generator, dtype=dtype) * 2 for _ in range(2)]
    return [x.requires_grad_(requires_grad) for x in pair]


def loop_kl(logits, ref_logits, direction):
    result = []
    for row, ref_row in zip(logits.flatten(0, -2).double(), ref_logits.flatten(0, -2).double(), strict=True):
        p, q = row.softmax(0), ref_row.softmax(0)
        first, second = (p, q) if direction == "reverse" else (q, p)
        result.append(sum(a * (a.log() - b.log()) for a, b in zip(first, second, strict=True) if a > 0))
    return torch.stack(result).view(logits.shape[:-1])


@pytest.mark.parametrize(
    ("estimator", "expected"), [("k1", 0.5), ("k2", 0.125), ("k3", math.exp(-0.5) - 0.5), ("abs", 0.5)]
)
def test_kl_estimate_hand_numbers(estimator, expected):
    logps, ref_logps = torch.tensor([[-1.0]]), torch.tensor([[-1.5]])
    assert kl_estimate(logps, ref_logps, estimator).item() == pytest.approx(expected, rel=1e-6)


def test_kl_estimate_default_is_k1_and_signed():
    assert kl_estimate(torch.tensor([-2.0]), torch.tensor([-1.0])).item() == -1.0


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_kl_estimate_equal_policies_give_zero(estimator):
    logps = torch.randn(2, 5)
    assert kl_estimate(logps, logps, estimator).eq(0).all()


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_kl_estimate_expectation_under_pi_is_the_full_kl(estimator):
    logits, ref_logits = logits_pair(1)
    logps, ref_logps = logits.log_softmax(-1), ref_logits.log_softmax(-1)
    expectation = (logps.exp() * kl_estimate(logps, ref_logps, estimator)).sum(-1)
    torch.testing.assert_close(expectation.float(), full_kl(logits, ref_logits), rtol=1e-5, atol=1e-6)


def test_kl_estimate_k3_small_differences_keep_their_digits():
    x = torch.logspace(-6, 0, 50)
    k3 = kl_estimate(x, torch.zeros_like(x), "k3").double()
    exact = torch.expm1(-x.double()) + x.double()
    assert (k3 >= 0).all()
    torch.testing.assert_close(k3[x > 1e-3], exact[x > 1e-3], rtol=1e-3, atol=0)


def test_kl_estimate_half_precision_is_subtracted_in_float32():
    logps = torch.tensor([-1.0, -2.0], dtype=torch.bfloat16)
    result = kl_estimate(logps, torch.tensor([-1.001, -2.001]), "k1")
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, torch.full((2,), 0.001), rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("estimator", "derivative"), [("k1", 1.0), ("k2", 0.5), ("k3", 1 - math.exp(-0.5)), ("abs", 1.0)]
)
def test_kl_estimate_gradient_hand_numbers(estimator, derivative):
    logps = torch.tensor([-1.0], requires_grad=True)
    kl_estimate(logps, torch.tensor([-1.5]), estimator).sum().backward()
    assert logps.grad.item() == pytest.approx(derivative, rel=1e-6)


def test_full_kl_hand_numbers_tell_the_directions_apart():
    p, q = torch.tensor([[[0.5, 0.5]]]).log(), torch.tensor([[[0.25, 0.75]]]).log()
    reverse = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    forward = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert full_kl(p, q).item() == pytest.approx(reverse, rel=1e-5)
    assert full_kl(p, q, direction="forward").item() == pytest.approx(forward, rel=1e-5)


@pytest.mark.parametrize("chunk_size", [None, 1, 4, 6, 100])
@pytest.mark.parametrize("direction", ["reverse", "forward"])
def test_full_kl_any_chunk_equals_the_loop_and_is_not_negative(direction, chunk_size):
    for seed in range(3):
        logits, ref_logits = logits_pair(seed)
        result = full_kl(logits, ref_logits, direction=direction, chunk_size=chunk_size)
        assert result.dtype == torch.float32
        assert (result >= 0).all()
        torch.testing.assert_close(result, loop_kl(logits, ref_logits, direction).float())


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("direction", ["reverse", "forward"])
def test_full_kl_gradient_equals_autograd_of_the_loop(direction, chunk_size):
    weights = torch.randn(2, 3, dtype=torch.float64)
    pair = logits_pair(2, requires_grad=True)
    result = full_kl(*pair, direction=direction, chunk_size=chunk_size)
    ours = torch.autograd.grad((weights * result).sum(), pair)
    reference = torch.autograd.grad((weights * loop_kl(*pair, direction)).sum(), pair)
    for mine, theirs in zip(ours, reference, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_full_kl_second_derivative_at_equal_policies_is_the_fisher_matrix():
    logits = torch.randn(1, 1, 4, dtype=torch.float64, requires_grad=True)
    kl = full_kl(logits, logits.detach(), chunk_size=1).sum()
    (gradient,) = torch.autograd.grad(kl, logits, create_graph=True)
    fisher = torch.stack([torch.autograd.grad(g, logits, retain_graph=True)[0].flatten() for g in gradient.flatten()])
    p = logits.detach().flatten().softmax(0)
    torch.testing.assert_close(fisher, p.diag() - p.outer(p), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("direction", ["reverse", "forward"])
def test_full_kl_impossible_tokens_add_nothing_and_leave_finite_gradients(direction):
    logits, ref_logits = logits_pair(3)
    allowed = [x[..., :5] for x in (logits, ref_logits)]
    for x in (logits, ref_logits):
        x[..., 5:] = -math.inf
        x.requires_grad_()
    result = full_kl(logits, ref_logits, direction=direction, chunk_size=4)
    torch.testing.assert_close(result, full_kl(*allowed, direction=direction))
    result.sum().backward()
    assert logits.grad.isfinite().all()
    assert ref_logits.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_full_kl_half_precision_logits_are_summed_in_float32(dtype):
    logits, ref_logits = logits_pair(4, (1, 2, 1000), dtype)
    torch.testing.assert_close(full_kl(logits, ref_logits), loop_kl(logits, ref_logits, "reverse").float())


def test_full_kl_keeps_only_its_inputs_for_the_backward_pass():
    logits, ref_logits = logits_pair(5, (4, 8, 50), torch.float32, requires_grad=True)
    inputs = {x.untyped_storage().data_ptr() for x in (logits, ref_logits)}
    extra = []

    def pack(x):
        if x.untyped_storage().data_ptr() not in inputs:
            extra.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        full_kl(logits, ref_logits, chunk_size=4)
    assert sum(extra) < logits.numel() / 4


def test_full_kl_empty_batch_gives_empty_and_one_token_a_number():
    assert full_kl(torch.zeros(0, 3, 5), torch.zeros(0, 3, 5)).shape == (0, 3)
    assert full_kl(torch.zeros(1, 1, 1), torch.ones(1, 1, 1)).tolist() == [[0.0]]


def test_kl_functions_bad_arguments_raise():
    logits = torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match="ref_logps has shape"):
        kl_estimate(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="estimator is 'k4'"):
        kl_estimate(torch.zeros(2), torch.zeros(2), "k4")
    with pytest.raises(ValueError, match="Did you mean 'reverse'"):
        full_kl(logits, logits, direction="revers")
    with pytest.raises(ValueError, match="ref_logits has shape"):
        full_kl(logits, logits[:, :1])
    with pytest.raises(ValueError, match="chunk_size is 0"):
        full_kl(logits, logits, chunk_size=0)
    with pytest.raises(ValueError, match="logits have shape"):
        map_token_chunks(lambda rows: rows.sum(-1), torch.zeros(2, 0))


def test_fixed_kl_never_moves():
    controller = FixedKL(0.1)
    controller.update(100.0, 10)
    assert controller.value == 0.1


@pytest.mark.parametrize(
    ("observed", "factor"), [(6.0, 1.0), (6.6, 1.01), (12.0, 1.02), (math.inf, 1.02), (5.4, 0.99), (0.0, 0.98)]
)
def test_adaptive_kl_hand_numbers(observed, factor):
    controller = AdaptiveKL(0.2, target=6.0, horizon=1000)
    controller.update(torch.tensor(observed), 100)
    assert controller.value == pytest.approx(0.2 * factor, rel=1e-6)


def test_adaptive_kl_holds_a_target_it_can_reach():
    controller = AdaptiveKL(1.0, target=2.0, horizon=100)
    for _ in range(500):
        controller.update(1.0 / controller.value, 50)  # a stronger penalty means a smaller KL
    assert 1.0 / controller.value == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize("make", [lambda: FixedKL(0.3), lambda: AdaptiveKL(0.3, 1.0, 100)])
def test_kl_controller_state_round_trip_restores_the_value(make):
    saved, loaded = make(), make()
    saved.update(5.0, 10)
    loaded.update(0.0, 10)
    loaded.load_state_dict(saved.state_dict())
    assert loaded.value == saved.value


def test_kl_controllers_bad_arguments_raise():
    for coef in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="coef is"):
            FixedKL(coef)
    for name, arguments in {"coef": (0.0, 1.0, 1.0), "target": (1.0, 0.0, 1.0), "horizon": (1.0, 1.0, -1.0)}.items():
        with pytest.raises(ValueError, match=f"{name} is"):
            AdaptiveKL(*arguments)
    controller = AdaptiveKL(0.1, 1.0, 10)
    with pytest.raises(ValueError, match="observed_kl is NaN"):
        controller.update(math.nan, 1)
    with pytest.raises(ValueError, match="raise the horizon"):
        controller.update(0.0, 50)
    with pytest.raises(ValueError, match="num_samples is -1"):
        controller.update(0.0, -1)
    with pytest.raises(ValueError, match="needs 'value'"):
        controller.load_state_dict({})
