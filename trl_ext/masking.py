"""Statistics over the trainable tokens of a batch.

A mask is 1 (or True) on trainable tokens. What stands at mask 0 (padding, tool and environment tokens) is dropped with
`torch.where` before any arithmetic, so NaN and inf there reach neither a result nor a gradient. Sums are taken in
float64 (float32 on Apple's mps, which has no float64); results are float32.

Moments travel between processes as the triple (count, mean, M2), where M2 is the sum of squared distances to the mean.
Unlike (count, sum, sum of squares) it keeps its digits when the mean is large and the variance small, also after
`merge_moments`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Dim = int | tuple[int, ...] | None


def check_same_shape(**tensors: Tensor | None) -> None:
    """Raise unless every named tensor has the shape of the first one; None is skipped.

    Args:
        **tensors: the tensors by argument name, the reference first.

    Raises:
        ValueError: a shape differs.

    Example:
        >>> check_same_shape(values=torch.zeros(2, 3), mask=torch.ones(2, 3), old_values=None)
    """
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    (reference_name, reference), *others = given.items()
    for name, tensor in others:
        if tensor.shape != reference.shape:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}, but {reference_name} has shape {tuple(reference.shape)}; "
                f"both must be equal: cut or pad {name} to the positions of {reference_name}."
            )


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise unless `value` is one of `choices`, with the nearest spelling as a hint.

    Args:
        name: the argument's name.
        value: what was passed.
        choices: what is allowed.

    Raises:
        ValueError: `value` is not allowed.

    Example:
        >>> check_choice("scale", "group", ("group", "batch", "none"))
    """
    if value not in choices:
        close = difflib.get_close_matches(str(value), choices, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{name} is {value!r}, but must be one of {', '.join(map(repr, choices))}.{hint}")


def check_fraction(name: str, value: float) -> None:
    """Raise unless 0 <= value <= 1.

    Args:
        name: the argument's name.
        value: what was passed.

    Raises:
        ValueError: `value` is outside [0, 1] or NaN.

    Example:
        >>> check_fraction("gamma", 0.99)
    """
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} is {value}, but must lie in [0, 1]: pass a fraction, such as 0.95.")


def check_count(name: str, value: int | None) -> None:
    """Raise unless `value` is None or a whole number of 1 or more.

    Args:
        name: the argument's name.
        value: what was passed.

    Raises:
        ValueError: `value` is not a whole number, or less than 1.

    Example:
        >>> check_count("horizon", 16)
    """
    if value is not None and (not isinstance(value, int) or value < 1):
        raise ValueError(f"{name} is {value!r}, but must be a whole number of 1 or more: pass 1 for the least.")


def as_bool_mask(mask: Tensor) -> Tensor:
    """Return the mask as booleans: True wherever it is not 0.

    Args:
        mask: bool, integer or float tensor of any shape.

    Returns:
        Bool tensor of the same shape.

    Example:
        >>> as_bool_mask(torch.tensor([1, 0, 1]))
        tensor([ True, False,  True])
    """
    return mask if mask.dtype == torch.bool else mask != 0


def to_accumulator(x: Tensor) -> Tensor:
    """Return `x` in the dtype sums are taken in: float64, or float32 on mps.

    float64 is also out of reach of autocast and of TF32 matrix products.

    Args:
        x: tensor of any shape and dtype.

    Returns:
        The same tensor in the wide dtype.

    Example:
        >>> to_accumulator(torch.ones(2, dtype=torch.bfloat16)).dtype
        torch.float64
    """
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64)


def at_least_float32(x: Tensor) -> Tensor:
    """Return `x` as float32, or unchanged when it is float64 already.

    Args:
        x: tensor of any shape and dtype.

    Returns:
        The same tensor as float32 or float64.

    Example:
        >>> at_least_float32(torch.ones(2, dtype=torch.bfloat16)).dtype
        torch.float32
    """
    return x if x.dtype == torch.float64 else x.float()


def keep_trainable(x: Tensor, keep: Tensor) -> Tensor:
    """Return `x` where `keep` is True and exactly 0, with gradient exactly 0, elsewhere.

    Args:
        x: tensor of any shape.
        keep: bool tensor which broadcasts to `x`.

    Returns:
        Tensor of the shape and dtype of `x`.

    Example:
        >>> keep_trainable(torch.tensor([1.0, float("nan")]), torch.tensor([True, False]))
        tensor([1., 0.])
    """
    return torch.where(keep, x, torch.zeros((), dtype=x.dtype, device=x.device))


def packed_index(mask: Tensor) -> Tensor:
    """Where `pack` puts each token: the trainable ones are numbered along the row, all others get T.

    Args:
        mask: (B, T), 1 on trainable tokens.

    Returns:
        (B, T) int64.

    Example:
        >>> packed_index(torch.tensor([[1, 0, 1]]))
        tensor([[0, 3, 1]])
    """
    keep = as_bool_mask(mask)
    return torch.where(keep, keep.cumsum(dim=1) - 1, mask.shape[1])


def pack(x: Tensor, mask: Tensor, index: Tensor) -> Tensor:
    """Trainable tokens moved to the left of each row, zeros behind them, in the dtype of `to_accumulator`.

    Args:
        x: (B, T) tensor.
        mask: (B, T), 1 on trainable tokens.
        index: (B, T) result of `packed_index(mask)`.

    Returns:
        (B, T) tensor without gaps.

    Example:
        >>> mask = torch.tensor([[1, 0, 1]])
        >>> pack(torch.tensor([[5.0, 6.0, 7.0]]), mask, packed_index(mask))
        tensor([[5., 7., 0.]], dtype=torch.float64)
    """
    wide = keep_trainable(to_accumulator(x), as_bool_mask(mask))
    return F.pad(torch.zeros_like(wide), (0, 1)).scatter(1, index, wide)[:, :-1]


def unpack(packed: Tensor, index: Tensor) -> Tensor:
    """Undo `pack`: packed tokens back in their places, exact zeros at mask 0.

    Args:
        packed: (B, T) tensor without gaps.
        index: (B, T) result of `packed_index(mask)`.

    Returns:
        (B, T) tensor.

    Example:
        >>> unpack(torch.tensor([[5.0, 7.0, 0.0]]), packed_index(torch.tensor([[1, 0, 1]])))
        tensor([[5., 0., 7.]])
    """
    return F.pad(packed, (0, 1)).gather(1, index)


def masked_mean(x: Tensor, mask: Tensor, dim: Dim = None) -> Tensor:
    """Mean of the trainable entries: sum(x * mask) / sum(mask), 0 where there are none.

    Args:
        x: tensor of any shape, usually (B, T).
        mask: tensor of the same shape, 1 on trainable entries.
        dim: dimension or dimensions to reduce; all of them by default.

    Returns:
        float32 tensor without the reduced dimensions.

    Raises:
        ValueError: the shapes differ.

    Example:
        >>> masked_mean(torch.tensor([1.0, 3.0, float("nan")]), torch.tensor([1, 1, 0]))
        tensor(2.)
    """
    wide, keep, dims = _prepare(x, mask, dim)
    return _mean(wide, keep, dims, keepdim=False).float()


def masked_var(x: Tensor, mask: Tensor, dim: Dim = None, *, unbiased: bool = False) -> Tensor:
    """Variance of the trainable entries: sum((x - mean)^2 * mask) / (sum(mask) - unbiased), 0 where that divisor is 0.

    Args:
        x: tensor of any shape, usually (B, T).
        mask: tensor of the same shape, 1 on trainable entries.
        dim: dimension or dimensions to reduce; all of them by default.
        unbiased: divide by the count minus one (Bessel's correction).

    Returns:
        float32 tensor without the reduced dimensions.

    Raises:
        ValueError: the shapes differ.

    Example:
        >>> masked_var(torch.tensor([1.0, 3.0, float("nan")]), torch.tensor([1, 1, 0]))
        tensor(1.)
    """
    wide, keep, dims = _prepare(x, mask, dim)
    centred = keep_trainable(wide - _mean(wide, keep, dims, keepdim=True), keep)
    divisor = keep.sum(dim=dims) - int(unbiased)
    return (centred.square().sum(dim=dims) / divisor.clamp(min=1)).float()


def masked_moments(x: Tensor, mask: Tensor) -> Tensor:
    """Mergeable moments of the trainable entries: (count, mean, M2), with M2 = sum((x - mean)^2).

    Args:
        x: tensor of any shape.
        mask: tensor of the same shape, 1 on trainable entries.

    Returns:
        float64 tensor of shape (3,); zeros when nothing is trainable.

    Raises:
        ValueError: the shapes differ.

    Source:
        Chan, Golub, LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances".

    Example:
        >>> masked_moments(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([1, 1, 0]))
        tensor([2., 2., 2.], dtype=torch.float64)
    """
    wide, keep, dims = _prepare(x, mask, None)
    mean = _mean(wide, keep, dims, keepdim=False)
    m2 = keep_trainable(wide - mean, keep).square().sum()
    return torch.stack([keep.sum().to(wide.dtype), mean, m2])


def merge_moments(*moments: Tensor) -> Tensor:
    """Moments of the union: count = sum n_i, mean = sum n_i m_i / count, M2 = sum M2_i + n_i (m_i - mean)^2.

    Over processes: `merge_moments(*accelerator.gather(masked_moments(x, mask).unsqueeze(0)))`.

    Args:
        *moments: (..., 3) triples of `masked_moments`, one or more, of one shape.

    Returns:
        Tensor of shape (..., 3).

    Raises:
        ValueError: nothing to merge, shapes differ, or the last dimension is not 3.

    Source:
        Chan, Golub, LeVeque 1979. Differs: all parts at once rather than pair by pair.

    Example:
        >>> a, b = torch.tensor([1.0, 2.0]), torch.tensor([6.0])
        >>> merge_moments(masked_moments(a, torch.ones(2)), masked_moments(b, torch.ones(1)))
        tensor([ 3.,  3., 14.], dtype=torch.float64)
    """
    shapes = sorted({tuple(part.shape) for part in moments})
    if len(shapes) != 1 or shapes[0][-1:] != (3,):
        raise ValueError(
            f"moments have the shapes {shapes}, expected one or more of one shape (..., 3): pass the triples of "
            "masked_moments, and unpack a gathered (N, 3) tensor with a star."
        )
    counts, means, m2 = torch.stack(moments).unbind(-1)
    total = counts.sum(0)
    # Means are summed as distances to the largest part's mean: equal means then merge exactly, whatever their size.
    reference = means.gather(0, counts.argmax(0, keepdim=True))
    mean = reference[0] + (counts * (means - reference)).sum(0) / total.clamp(min=1)
    spread = (counts * (means - mean).square()).sum(0)
    return torch.stack([total, mean, m2.sum(0) + spread], dim=-1)


def masked_whiten(
    x: Tensor, mask: Tensor, *, shift_mean: bool = True, eps: float = 1e-8, stats: Tensor | None = None
) -> Tensor:
    """Whitened trainable entries: (x - mean) / sqrt(var + eps), plus the mean again unless `shift_mean`.

    Args:
        x: tensor of any shape, usually (B, T).
        mask: tensor of the same shape, 1 on trainable entries.
        shift_mean: also remove the mean (rewards are usually whitened without it).
        eps: added to the variance; with 0 a constant input still gives 0 rather than NaN.
        stats: moments (count, mean, M2) to use instead of those of `x`, as `merge_moments` returns them; with the
            moments of all processes the whitening is global.

    Returns:
        float32 tensor of the shape of `x`, 0 where the mask is 0.

    Raises:
        ValueError: the shapes differ, `eps` is negative, or `stats` is not a triple.

    Source:
        `masked_whiten` of TRL's PPO. Differs: population variance (TRL applies Bessel's correction), so that the
        result's `masked_var` is 1; an empty mask gives zeros instead of an error; statistics may be global.

    Example:
        >>> masked_whiten(torch.tensor([1.0, 3.0, 100.0]), torch.tensor([1, 1, 0]))
        tensor([-1.,  1.,  0.])
    """
    if eps < 0:
        raise ValueError(f"eps is {eps}, but must be 0 or more: it is added to a variance.")
    wide, keep, _ = _prepare(x, mask, None)
    _, mean, variance = _count_mean_variance(masked_moments(x, mask) if stats is None else stats.to(wide))
    squared = variance + eps
    # The inner where keeps the gradient of rsqrt finite when the variance and eps are both 0.
    inverse = torch.where(squared > 0, torch.where(squared > 0, squared, 1.0).rsqrt(), 0.0)
    whitened = (wide - mean) * inverse
    return keep_trainable(whitened if shift_mean else whitened + mean, keep).float()


def _prepare(x: Tensor, mask: Tensor, dim: Dim) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Return `x` wide and zeroed at mask 0, the bool mask, and the dimensions as a tuple."""
    check_same_shape(x=x, mask=mask)
    keep = as_bool_mask(mask)
    dims = tuple(range(x.ndim)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    return keep_trainable(to_accumulator(x), keep), keep, dims


def _mean(wide: Tensor, keep: Tensor, dims: tuple[int, ...], *, keepdim: bool) -> Tensor:
    count = keep.sum(dim=dims, keepdim=keepdim).clamp(min=1)
    return wide.sum(dim=dims, keepdim=keepdim) / count


def _count_mean_variance(stats: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if stats.shape != (3,):
        raise ValueError(
            f"stats has shape {tuple(stats.shape)}, expected (3,): pass the (count, mean, M2) of masked_moments, "
            "merged over processes with merge_moments."
        )
    count, mean, m2 = stats.unbind()
    return count, mean, m2 / count.clamp(min=1)
