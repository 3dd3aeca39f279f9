"""Masked statistics: hand numbers, limits, float64 references, gradients, and masks that are empty or hide NaN."""

import math

import pytest
import torch

from trl_ext.masking import (
    check_choice,
    check_count,
    check_fraction,
    check_same_shape,
    masked_mean,
    masked_moments,
    masked_var,
    masked_whiten,
    merge_moments,
    pack,
    packed_index,
    unpack,
)

BAD = (float("nan"), float("inf"), float("-inf"))


def ragged(seed: int, shape: tuple[int, ...] = (4, 9)) -> tuple[torch.Tensor, torch.Tensor]:
    """Random numbers with NaN and inf wherever the mask is 0."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator)
    mask = (torch.rand(shape, generator=generator) < 0.6).long()
    bad = torch.tensor(BAD)[torch.randint(3, shape, generator=generator)]
    return torch.where(mask.bool(), x, bad), mask


def kept(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x[mask.bool()].double()


def test_masked_mean_hand_numbers_ignore_the_masked_entry():
    x = torch.tensor([[1.0, 2.0, 100.0], [6.0, 50.0, 60.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert masked_mean(x, mask) == 3.0
    assert masked_mean(x, mask, dim=1).tolist() == [1.5, 6.0]
    assert masked_mean(x, mask, dim=0).tolist() == [3.5, 2.0, 0.0]
    assert masked_mean(x, mask, dim=(0, 1)) == 3.0


def test_masked_var_hand_numbers_match_both_divisors():
    x, mask = torch.tensor([1.0, 3.0, 5.0, 77.0]), torch.tensor([True, True, True, False])
    assert masked_var(x, mask).item() == pytest.approx(8 / 3)
    assert masked_var(x, mask, unbiased=True) == 4.0


def test_masked_whiten_hand_numbers():
    x, mask = torch.tensor([[2.0, 4.0, 9.0]]), torch.tensor([[1, 1, 0]])
    assert masked_whiten(x, mask, eps=0.0).tolist() == [[-1.0, 1.0, 0.0]]
    assert masked_whiten(x, mask, eps=0.0, shift_mean=False).tolist() == [[2.0, 4.0, 0.0]]
    assert masked_whiten(x, mask, eps=3.0).tolist() == [[-0.5, 0.5, 0.0]]


def test_masked_statistics_full_mask_equal_torch():
    x = torch.randn(5, 7)
    ones = torch.ones_like(x)
    torch.testing.assert_close(masked_mean(x, ones, dim=1), x.mean(1))
    torch.testing.assert_close(masked_var(x, ones, dim=0, unbiased=True), x.var(0))


@pytest.mark.parametrize("seed", range(5))
def test_masked_statistics_ragged_mask_equal_selection(seed):
    x, mask = ragged(seed)
    selected = kept(x, mask)
    assert masked_mean(x, mask).item() == pytest.approx(selected.mean().item(), rel=1e-6, abs=1e-7)
    assert masked_var(x, mask).item() == pytest.approx(selected.var(correction=0).item(), rel=1e-6)
    whitened = masked_whiten(x, mask, eps=0.0)
    assert masked_mean(whitened, mask).item() == pytest.approx(0.0, abs=1e-6)
    assert masked_var(whitened, mask).item() == pytest.approx(1.0, rel=1e-5)
    assert whitened[mask == 0].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_masked_functions_any_dtype_give_float32(dtype):
    x, mask = torch.tensor([1, 2, 3]).to(dtype), torch.ones(3)
    for result in (masked_mean(x, mask), masked_var(x, mask), masked_whiten(x, mask)):
        assert result.dtype == torch.float32
    assert masked_mean(x, mask) == 2.0


def test_masked_functions_empty_mask_give_zero():
    x, mask = torch.full((2, 3), float("nan")), torch.zeros(2, 3)
    assert masked_mean(x, mask) == 0
    assert masked_var(x, mask, unbiased=True) == 0
    assert masked_mean(x, mask, dim=1).tolist() == [0.0, 0.0]
    assert masked_whiten(x, mask).eq(0).all()
    assert masked_moments(x, mask).tolist() == [0.0, 0.0, 0.0]
    assert masked_mean(torch.zeros(2, 0), torch.zeros(2, 0)) == 0


@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_masked_whiten_constant_input_gives_zero_and_finite_gradient(eps):
    x = torch.full((1, 4), 0.1, requires_grad=True)
    whitened = masked_whiten(x, torch.tensor([[1, 1, 1, 0]]), eps=eps)
    assert whitened.eq(0).all()
    whitened.sum().backward()
    assert x.grad.isfinite().all()


def test_masked_whiten_one_element_gives_zero():
    assert masked_whiten(torch.tensor([5.0]), torch.ones(1)).item() == 0.0


def test_masked_statistics_gradient_is_zero_at_masked_nan():
    x, mask = ragged(0)
    x.requires_grad_()
    (masked_mean(x, mask) + masked_var(x, mask) + masked_whiten(x, mask).pow(3).sum()).backward()
    assert x.grad[mask == 0].eq(0).all()
    assert x.grad.isfinite().all()


def test_masked_whiten_gradient_equals_autograd_of_the_selection():
    x, mask = ragged(1)
    ours, reference = x.double().requires_grad_(), x.double().requires_grad_()
    masked_whiten(ours, mask, eps=1e-3).pow(3).sum().backward()
    selected = reference[mask.bool()]
    ((selected - selected.mean()) / (selected.var(correction=0) + 1e-3).sqrt()).pow(3).sum().backward()
    torch.testing.assert_close(ours.grad[mask.bool()], reference.grad[mask.bool()], rtol=1e-5, atol=1e-7)


def test_masked_moments_large_mean_small_variance_keep_their_digits():
    noise = torch.randn(1000, dtype=torch.float64)
    count, mean, m2 = masked_moments(1e6 + 1e-3 * noise, torch.ones(1000)).tolist()
    assert (count, mean) == (1000, pytest.approx(1e6))
    assert m2 == pytest.approx(1e-6 * (noise - noise.mean()).square().sum().item(), rel=1e-6)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("cuts", [[12], [0, 12], [1, 4, 0, 7], [1] * 12])
def test_merge_moments_any_split_equals_the_whole(offset, cuts):
    x = offset + torch.randn(12, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    ones = torch.ones_like(x)
    parts = [masked_moments(part, torch.ones_like(part)) for part in x.split(cuts)]
    torch.testing.assert_close(merge_moments(*parts), masked_moments(x, ones), rtol=1e-9, atol=0)
    pairwise = parts[0]
    for part in parts[1:]:
        pairwise = merge_moments(pairwise, part)
    torch.testing.assert_close(pairwise, masked_moments(x, ones), rtol=1e-9, atol=0)


def test_merge_moments_equal_constants_give_exactly_no_variance():
    parts = [masked_moments(torch.full((n,), 0.3), torch.ones(n)) for n in (3, 5, 11)]
    assert merge_moments(*parts)[2] == 0


def test_merge_moments_gathered_tensor_unpacks():
    gathered = torch.stack([masked_moments(torch.tensor([1.0, 2.0]), torch.ones(2))] * 3)
    assert merge_moments(*gathered).tolist() == [6.0, 1.5, 1.5]


def test_masked_whiten_stats_of_both_processes_equal_whitening_together():
    x, mask = ragged(2, (6, 5))
    whole = masked_whiten(x, mask)
    stats = merge_moments(masked_moments(x[:2], mask[:2]), masked_moments(x[2:], mask[2:]))
    halves = [masked_whiten(x[rows], mask[rows], stats=stats) for rows in (slice(0, 2), slice(2, 6))]
    torch.testing.assert_close(torch.cat(halves), whole, rtol=1e-6, atol=1e-6)


def test_pack_and_unpack_round_trip_keeps_trainable_tokens():
    x, mask = ragged(4)
    index = packed_index(mask)
    packed = pack(x, mask, index)
    for row in range(len(x)):
        chosen = kept(x[row], mask[row])
        assert packed[row].tolist() == chosen.tolist() + [0.0] * (x.shape[1] - len(chosen))
    torch.testing.assert_close(unpack(packed, index), torch.where(mask.bool(), x, 0.0).double())


@pytest.mark.parametrize("function", [masked_mean, masked_var, masked_whiten, masked_moments])
def test_masked_functions_shape_mismatch_raises(function):
    with pytest.raises(ValueError, match=r"mask has shape \(2, 3\).*x has shape \(2, 4\)"):
        function(torch.zeros(2, 4), torch.ones(2, 3))


def test_masked_whiten_bad_arguments_raise():
    x = torch.zeros(2)
    with pytest.raises(ValueError, match="eps is -1"):
        masked_whiten(x, x, eps=-1)
    with pytest.raises(ValueError, match="stats has shape"):
        masked_whiten(x, x, stats=torch.zeros(2))


def test_merge_moments_bad_arguments_raise():
    with pytest.raises(ValueError, match="one or more"):
        merge_moments()
    with pytest.raises(ValueError, match="one or more"):
        merge_moments(torch.zeros(2))
    with pytest.raises(ValueError, match="one or more"):
        merge_moments(torch.zeros(3), torch.zeros(2, 3))


def test_checks_bad_values_raise_with_the_remedy():
    with pytest.raises(ValueError, match="Did you mean 'group'"):
        check_choice("scale", "grup", ("group", "batch"))
    with pytest.raises(ValueError, match="horizon is 0"):
        check_count("horizon", 0)
    with pytest.raises(ValueError, match="gamma is nan"):
        check_fraction("gamma", math.nan)
    with pytest.raises(ValueError, match="b has shape"):
        check_same_shape(a=torch.zeros(1), b=torch.zeros(2))
