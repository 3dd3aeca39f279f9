"""Kullback-Leibler divergences to a reference policy, and controllers for their coefficient.

Sampled estimators see the log-probability of the sampled token only; `full_kl` sums over the whole vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .masking import at_least_float32, check_choice, check_count, check_same_shape

ESTIMATORS = ("k1", "k2", "k3", "abs")
DIRECTIONS = ("reverse", "forward")
# Entries of a chunk when no chunk size is given: 64 MiB for each float32 temporary.
CHUNK_ENTRIES = 2**24


def kl_estimate(logps: Tensor, ref_logps: Tensor, estimator: str = "k1") -> Tensor:
    """Estimate of KL(pi || ref) from tokens sampled from pi: with x = log pi - log ref, k1 = x, k2 = x^2 / 2, ...

    k3 = exp(-x) + x - 1 and abs = |x|. k1 and k3 are unbiased; k2, k3 and abs are never negative.

    Args:
        logps: (B, T) log-probabilities of the sampled tokens under the policy.
        ref_logps: (B, T) the same under the reference.
        estimator: "k1", "k2", "k3" or "abs".

    Returns:
        (B, T) float32, differentiable in both.

    Raises:
        ValueError: shapes differ, or the estimator is unknown.

    Source:
        Schulman 2020, "Approximating KL Divergence", joschu.net/blog/kl-approx.html. k3 is computed with expm1, which
        keeps its digits near x = 0.

    Example:
        >>> kl_estimate(torch.tensor([[-1.0]]), torch.tensor([[-1.5]]), "k2")
        tensor([[0.1250]])
    """
    check_same_shape(logps=logps, ref_logps=ref_logps)
    check_choice("estimator", estimator, ESTIMATORS)
    x = at_least_float32(logps) - at_least_float32(ref_logps)
    if estimator == "k2":
        x = x.square() / 2
    elif estimator == "k3":
        x = torch.expm1(-x) + x
    elif estimator == "abs":
        x = x.abs()
    return x.float()


def full_kl(logits: Tensor, ref_logits: Tensor, *, direction: str = "reverse", chunk_size: int | None = None) -> Tensor:
    """KL divergence over the vocabulary: reverse = KL(pi || ref) = sum_v p (log p - log q); forward = KL(ref || pi).

    Tokens are taken in chunks, whose float32 temporaries are computed again in the backward pass instead of kept.
    Entries of -inf (tokens that cannot be sampled) count as probability 0.

    Args:
        logits: (B, T, V) logits of the policy.
        ref_logits: (B, T, V) logits of the reference.
        direction: "reverse" or "forward".
        chunk_size: tokens a chunk; by default as many as keep a temporary at 64 MiB.

    Returns:
        (B, T) float32 in nats, differentiable in both.

    Raises:
        ValueError: shapes differ, the direction is unknown, or the chunk size is less than 1.

    Source:
        Kullback, Leibler 1951. reverse is what the estimators of `kl_estimate` estimate; forward puts the reference
        first, as some write the penalty.

    Example:
        >>> p, q = torch.tensor([[[0.5, 0.5]]]), torch.tensor([[[0.25, 0.75]]])
        >>> full_kl(p.log(), q.log())
        tensor([[0.1438]])
    """
    check_same_shape(logits=logits, ref_logits=ref_logits)
    check_choice("direction", direction, DIRECTIONS)
    first, second = (logits, ref_logits) if direction == "reverse" else (ref_logits, logits)
    return map_token_chunks(_kl_rows, first, second, chunk_size=chunk_size)


def map_token_chunks(rows_to_scalars: Callable[..., Tensor], *tensors: Tensor, chunk_size: int | None = None) -> Tensor:
    """Apply a function of (N, V) rows to (..., V) tensors, a chunk of rows at a time, and join its (N,) results.

    Where a gradient is needed each chunk is a checkpoint: only the inputs are kept for the backward pass.

    Args:
        rows_to_scalars: function of as many (n, V) tensors as are passed, which returns (n,).
        *tensors: (..., V) tensors of one shape.
        chunk_size: rows a chunk; by default as many as keep a float32 temporary at 64 MiB.

    Returns:
        float32 tensor of the leading shape.

    Raises:
        ValueError: the tensors have no vocabulary dimension, or the chunk size is less than 1.

    Example:
        >>> map_token_chunks(lambda rows: rows.sum(-1), torch.ones(2, 3, 5), chunk_size=4)
        tensor([[5., 5., 5.],
                [5., 5., 5.]])
    """
    leading, vocabulary = tensors[0].shape[:-1], tensors[0].shape[-1] if tensors[0].ndim else 0
    if vocabulary == 0:
        raise ValueError(f"logits have shape {tuple(tensors[0].shape)}, expected (B, T, V) with V of 1 or more.")
    check_count("chunk_size", chunk_size)
    size = chunk_size or max(1, CHUNK_ENTRIES // vocabulary)
    # split rather than slices: its backward joins the chunks' gradients once, a slice's fills a full tensor each time.
    parts = zip(*(torch.split(tensor.reshape(-1, vocabulary), size) for tensor in tensors), strict=True)
    recompute = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    results = [
        checkpoint(rows_to_scalars, *part, use_reentrant=False, preserve_rng_state=False)
        if recompute
        else rows_to_scalars(*part)
        for part in parts
    ]
    return torch.cat(results).reshape(leading).float()


def expected_under(log_probs: Tensor, x: Tensor) -> Tensor:
    """Expectation sum_v p_v x_v over the last dimension; entries of probability 0 add 0 even where x is infinite.

    Args:
        log_probs: (..., V) log-probabilities.
        x: (..., V) values.

    Returns:
        (...) tensor.

    Example:
        >>> expected_under(torch.tensor([0.0, -torch.inf]), torch.tensor([2.0, torch.inf]))
        tensor(2.)
    """
    probs = log_probs.exp()
    return (probs * x.masked_fill(probs == 0, 0.0)).sum(-1)


class FixedKL:
    """A KL coefficient that stays what it is.

    Args:
        coef: the coefficient, 0 or more.

    Raises:
        ValueError: `coef` is negative or not finite.

    Example:
        >>> controller = FixedKL(0.05)
        >>> controller.update(observed_kl=3.0, num_samples=64)
        >>> controller.value
        0.05
    """

    def __init__(self, coef: float) -> None:
        self.value = _non_negative("coef", coef)

    def update(self, observed_kl: float | Tensor, num_samples: int) -> None:
        """Do nothing: the coefficient is fixed.

        Args:
            observed_kl: ignored.
            num_samples: ignored.
        """

    def state_dict(self) -> dict[str, float]:
        """Return the coefficient, for a checkpoint."""
        return {"value": self.value}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore the coefficient.

        Args:
            state: result of `state_dict`.

        Raises:
            ValueError: there is no "value", or it is negative or not finite.
        """
        if "value" not in state:
            raise ValueError(f"state has the keys {sorted(state)}, but needs 'value': pass a result of state_dict.")
        self.value = _non_negative("value", state["value"])


class AdaptiveKL(FixedKL):
    """A KL coefficient that follows a target: value *= 1 + clip(kl / target - 1, -0.2, 0.2) * num_samples / horizon.

    Args:
        coef: the first coefficient, above 0 (0 would stay 0).
        target: the KL to hold, in nats a sequence or a token, whichever `update` is given.
        horizon: number of samples over which an error of 0.2 changes the coefficient by 20 %.

    Raises:
        ValueError: an argument is not above 0, or not finite.

    Source:
        Ziegler et al. 2019, arXiv:1909.08593, section 2.2.

    Example:
        >>> controller = AdaptiveKL(0.1, target=6.0, horizon=1000)
        >>> controller.update(observed_kl=12.0, num_samples=100)
        >>> round(controller.value, 6)
        0.102
    """

    MAX_ERROR = 0.2

    def __init__(self, coef: float, target: float, horizon: float) -> None:
        super().__init__(coef)
        for name, number in (("coef", coef), ("target", target), ("horizon", horizon)):
            if not 0 < number < math.inf:
                raise ValueError(f"{name} is {number}, but must be finite and above 0; for no control use FixedKL.")
        self.target = float(target)
        self.horizon = float(horizon)

    def update(self, observed_kl: float | Tensor, num_samples: int) -> None:
        """Move the coefficient towards the target.

        Args:
            observed_kl: the KL just measured, in the unit of `target`.
            num_samples: number of samples it was measured on; all processes' together.

        Raises:
            ValueError: `observed_kl` is NaN, `num_samples` is negative, or so large that the coefficient would not
                stay above 0.
        """
        kl = float(observed_kl)
        if math.isnan(kl):
            raise ValueError("observed_kl is NaN, but must be a number: look for NaN in the log-probabilities.")
        _non_negative("num_samples", num_samples)
        error = min(max(kl / self.target - 1.0, -self.MAX_ERROR), self.MAX_ERROR)
        factor = 1.0 + error * num_samples / self.horizon
        if factor <= 0:
            raise ValueError(
                f"num_samples is {num_samples} for a horizon of {self.horizon:g}, which would turn the coefficient "
                "negative: raise the horizon to several times the samples of an update."
            )
        self.value *= factor


def _kl_rows(logits: Tensor, other_logits: Tensor) -> Tensor:
    log_p = at_least_float32(logits).log_softmax(-1)
    log_q = at_least_float32(other_logits).log_softmax(-1)
    return expected_under(log_p, log_p - log_q)


def _non_negative(name: str, value: float) -> float:
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} is {value}, but must be finite and 0 or more.")
    return float(value)
