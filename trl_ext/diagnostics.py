"""Figures about critic and objective which do not depend on how a batch was split.

Both classes collect sufficient statistics (counts, means, centred second moments, extremes, sums), never means of
means: any split into micro-batches, and any number of processes, gives the same figures. Adding to them never waits for
the device; only `compute`, `total` and printing do.

Zero-variance rule: when all returns are equal there is nothing to explain, and `explained_variance`,
`explained_variance_old`, `r2` and `corr` are 0.0, the figure of a critic that knows nothing, and not NaN or a
flattering 1. `zero_variance` tells the two apart. Equality of the extremes decides, not a small variance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from .masking import (
    as_bool_mask,
    check_count,
    check_same_shape,
    keep_trainable,
    masked_moments,
    merge_moments,
    to_accumulator,
)

LOSS_STATS = ("loss_unclipped", "loss_clipped", "clipped", "clipped_region")
# old_returns are the returns of those tokens which came with old values.
SERIES = ("values", "returns", "error", "old_error", "old_returns", "td_error", "td_error_abs", "loss", *LOSS_STATS)
EXTREMES = ("values", "returns", "td_error")


class Accelerator(Protocol):
    """What `reduce` needs of `accelerate.Accelerator`."""

    @property
    def num_processes(self) -> int:
        """Number of processes."""

    @property
    def device(self) -> torch.device:
        """Device of this process."""

    def gather(self, tensor: Any) -> Any:
        """Return the tensors of all processes, joined along the first dimension."""

    def reduce(self, tensor: Any, reduction: str = ...) -> Any:
        """Return the sum or mean over all processes."""


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> float:
    """Share of the returns' variance which the values explain: 1 - Var(R - V) / Var(R) over the mask.

    A constant bias of the values does not show in it: look at the bias and R^2 of `CriticAccounting` too.

    Args:
        values: (B, T) values of the critic.
        returns: (B, T) targets.
        mask: (B, T), 1 on trainable tokens.

    Returns:
        A float of at most 1; 0.0 if all returns are equal, or there are none.

    Raises:
        ValueError: shapes differ.

    Source:
        As in OpenAI baselines. Differs: masked, float64, and 0.0 instead of NaN for equal returns.

    Example:
        >>> explained_variance(torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 4.0]]), torch.ones(1, 2))
        0.75
    """
    accounting = CriticAccounting(num_buckets=1)
    accounting.update(values, returns, mask)
    return accounting.compute().get("explained_variance", 0.0)


class _State(NamedTuple):
    """Sufficient statistics; every field merges without losing digits.

    origins: (S,) a number near the mean of each series, then of the error in each bucket. Kept apart, as a mean of
        1e6 in one float64 leaves too few digits for what small noise adds to it.
    moments: (S, 3) count, mean and M2 of each, as distances to its origin.
    comoment: () sum of (V - mean V) (R - mean R).
    extremes: (E, 2) minus the minimum, and the maximum, of each series in EXTREMES.
    """

    origins: Tensor
    moments: Tensor
    comoment: Tensor
    extremes: Tensor


class CriticAccounting:
    """How well a critic predicts, from sufficient statistics of all trainable tokens seen.

    `compute` returns, where there is data for it: `loss`, `loss_unclipped`, `loss_clipped`, `clip_frac` (the clipped
    loss binds), `clip_frac_region` (V outside the clip range); `explained_variance`, `explained_variance_old` (of the
    values at sampling time), `r2` = 1 - SSE / SST, `bias` = mean of V - R, `rmse`, `corr`; `td_error_mean`,
    `td_error_abs`, `td_error_std`, `td_error_max` (largest absolute one); `values_*` and `returns_*` with mean, std
    (population), min, max; `rmse_bucket_i` and `bias_bucket_i`, the error by relative position in the completion, where
    bucket = floor(num_buckets * number of the trainable token / trainable tokens of the row); `zero_variance` (1.0 if
    all returns are equal, see the module), `num_tokens`.

    Args:
        num_buckets: number of equal parts a completion is cut into.

    Raises:
        ValueError: `num_buckets` is less than 1.

    Source:
        Merging: Chan, Golub, LeVeque 1979.

    Example:
        >>> accounting = CriticAccounting()
        >>> returns = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
        >>> accounting.update(returns + 2.0, returns, torch.ones(1, 4))
        >>> figures = accounting.compute()
        >>> figures["explained_variance"], figures["bias"], round(figures["r2"], 6)
        (1.0, 2.0, -2.2)
    """

    def __init__(self, num_buckets: int = 4) -> None:
        check_count("num_buckets", num_buckets)
        self.num_buckets = num_buckets
        self._state: _State | None = None

    @torch.no_grad()
    def update(
        self,
        values: Tensor,
        returns: Tensor,
        mask: Tensor,
        *,
        old_values: Tensor | None = None,
        td_errors: Tensor | None = None,
        loss: Tensor | None = None,
        stats: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Add one micro-batch, without waiting for the device.

        Args:
            values: (B, T) values of the current critic.
            returns: (B, T) its targets.
            mask: (B, T), 1 on trainable tokens.
            old_values: (B, T) values at sampling time.
            td_errors: (B, T) one-step TD errors.
            loss: (B, T) per-token loss, as `value_loss` returns it.
            stats: its statistics, as `value_loss` returns them.

        Raises:
            ValueError: shapes differ, or `stats` lacks an entry.
        """
        losses = self._loss_series(loss, stats)
        check_same_shape(
            values=values, returns=returns, mask=mask, old_values=old_values, td_errors=td_errors, **losses
        )
        if values.ndim != 2:
            raise ValueError(f"values has shape {tuple(values.shape)}, expected (B, T): add the missing dimension.")
        keep = as_bool_mask(mask)
        series = {name: keep_trainable(to_accumulator(tensor), keep) for name, tensor in losses.items()}
        series["values"], series["returns"] = (keep_trainable(to_accumulator(x), keep) for x in (values, returns))
        series["error"] = series["values"] - series["returns"]
        if old_values is not None:
            series["old_error"] = keep_trainable(to_accumulator(old_values), keep) - series["returns"]
            series["old_returns"] = series["returns"]
        if td_errors is not None:
            series["td_error"] = keep_trainable(to_accumulator(td_errors), keep)
            series["td_error_abs"] = series["td_error"].abs()
        self._add(_batch_state(series, keep, self.num_buckets))

    def merge(self, other: CriticAccounting) -> None:
        """Add everything `other` has seen.

        Args:
            other: an accounting with as many buckets.

        Raises:
            ValueError: the numbers of buckets differ.
        """
        self._check_buckets(other.num_buckets)
        if other._state is not None:
            self._add(other._state)

    def reduce(self, accelerator: Accelerator) -> CriticAccounting:
        """Return the accounting of all processes together. With several processes all of them must call it.

        Args:
            accelerator: an `accelerate.Accelerator`; its `gather` is used, unless there is one process only.

        Returns:
            A new accounting, the same on every process; this one is unchanged.
        """
        merged = CriticAccounting(self.num_buckets)
        merged._state = self._state
        if accelerator.num_processes > 1:
            own = _empty_state(self.num_buckets, accelerator.device) if self._state is None else self._state
            gathered = [accelerator.gather(field.to(accelerator.device)[None].contiguous()) for field in own]
            merged._state = _merged([_State(*fields) for fields in zip(*gathered, strict=True)])
        return merged

    def compute(self) -> dict[str, float]:
        """Return the figures listed at the class; those without data are left out."""
        if self._state is None:
            return {"num_tokens": 0.0}
        names = [*SERIES, *(f"bucket_{bucket}" for bucket in range(self.num_buckets))]
        table = torch.cat([self._state.origins[:, None], self._state.moments], dim=1).tolist()
        moments = {
            name: _Moments(num, origin + mean, m2) for name, (origin, num, mean, m2) in zip(names, table, strict=True)
        }
        moments = {name: row for name, row in moments.items() if row.num > 0}
        figures = {"num_tokens": 0.0}
        if "values" in moments:
            extremes = dict(zip(EXTREMES, self._state.extremes.tolist(), strict=True))
            figures["num_tokens"] = moments["values"].num
            figures |= _loss_figures(moments)
            figures |= _fit_figures(moments, extremes, self._state.comoment.item())
            figures |= _td_figures(moments, extremes)
            figures |= _range_figures(moments, extremes)
            figures |= _bucket_figures(moments, self.num_buckets)
        return figures

    def reset(self) -> None:
        """Forget everything seen."""
        self._state = None

    def state_dict(self) -> dict[str, Any]:
        """Return what has been seen, as numbers and tensors."""
        state = None if self._state is None else {name: x.clone() for name, x in self._state._asdict().items()}
        return {"num_buckets": self.num_buckets, "state": state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace what has been seen.

        Args:
            state: result of `state_dict`.

        Raises:
            ValueError: it comes from an accounting with another number of buckets.
        """
        self._check_buckets(state["num_buckets"])
        fields = state["state"]
        self._state = None if fields is None else _State(**{name: x.clone() for name, x in fields.items()})

    def _add(self, batch: _State) -> None:
        if self._state is None:
            self._state = batch
        else:
            own = _State(*(field.to(batch.moments.device) for field in self._state))
            self._state = _merged([own, batch])

    def _check_buckets(self, num_buckets: int) -> None:
        if num_buckets != self.num_buckets:
            raise ValueError(
                f"num_buckets is {num_buckets} on one side and {self.num_buckets} on the other: create both with the "
                "same number."
            )

    @staticmethod
    def _loss_series(loss: Tensor | None, stats: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        if stats is not None and (missing := [name for name in LOSS_STATS if name not in stats]):
            raise ValueError(f"stats lacks {missing}, but needs {list(LOSS_STATS)}: pass what value_loss returns.")
        series = {} if stats is None else {name: stats[name].detach() for name in LOSS_STATS}
        return series if loss is None else {"loss": loss.detach(), **series}


class ObjectiveLedger:
    """The terms of an objective, each weight * value, and a total which is exactly their sum.

    Example:
        >>> ledger = ObjectiveLedger()
        >>> ledger.add("policy", torch.tensor(0.5))
        >>> ledger.add("entropy", 2.0, weight=-0.25)
        >>> ledger.compute()
        {'policy': 0.5, 'entropy': -0.5, 'total': 0.0}
    """

    def __init__(self) -> None:
        self._terms: dict[str, float | Tensor] = {}

    def add(self, name: str, value: float | Tensor, weight: float = 1.0) -> None:
        """Add weight * value to a term, without waiting for the device.

        Args:
            name: the term.
            value: number or tensor of one element; detached.
            weight: its factor in the objective, with its sign.

        Raises:
            ValueError: the name is "total", or the value is not one number.
        """
        if name == "total":
            raise ValueError("name is 'total', but that is the key of the sum: choose another name.")
        if isinstance(value, Tensor):
            if value.numel() != 1:
                raise ValueError(
                    f"value of {name!r} has shape {tuple(value.shape)}, but must be one number: use aggregate_loss."
                )
            value = to_accumulator(value.detach()).reshape(())
        self._terms[name] = self._terms.get(name, 0.0) + weight * value

    @property
    def total(self) -> float:
        """The sum over all terms of weight * value."""
        return self.compute()["total"]

    def compute(self) -> dict[str, float]:
        """Return {name: sum of weight * value, ..., "total": sum over the names, in this order}."""
        terms = {name: float(value) for name, value in self._terms.items()}
        return {**terms, "total": float(sum(terms.values()))}

    def merge(self, other: ObjectiveLedger) -> None:
        """Add all terms of `other`.

        Args:
            other: another ledger; its terms need not be the same.
        """
        for name, value in other._terms.items():
            self.add(name, value)

    def reduce(self, accelerator: Accelerator) -> ObjectiveLedger:
        """Return the mean over processes. With several processes all of them must call it, with the same terms.

        Args:
            accelerator: an `accelerate.Accelerator`; its `reduce` is used, unless there is one process only.

        Returns:
            A new ledger, the same on every process; this one is unchanged.
        """
        reduced = ObjectiveLedger()
        reduced._terms = dict(self._terms)
        if accelerator.num_processes > 1 and self._terms:
            # Sorted: the processes may have added their terms in different orders.
            names = sorted(self._terms)
            terms = [to_accumulator(torch.as_tensor(self._terms[name], device=accelerator.device)) for name in names]
            means = accelerator.reduce(torch.stack(terms), reduction="mean")
            reduced._terms = dict(zip(names, means.unbind(), strict=True))
        return reduced

    def reset(self) -> None:
        """Forget all terms."""
        self._terms = {}


class _Moments(NamedTuple):
    num: float
    mean: float
    m2: float

    @property
    def std(self) -> float:
        return float((self.m2 / self.num) ** 0.5)

    @property
    def squares(self) -> float:
        """Sum of squares about 0."""
        return self.m2 + self.num * self.mean**2


def _batch_state(series: Mapping[str, Tensor], keep: Tensor, num_buckets: int) -> _State:
    """Statistics of one micro-batch; a series that is not given counts nothing."""
    bucket = _bucket_index(keep, num_buckets)
    rows = [(series[name], keep) if name in series else (series["error"], keep & False) for name in SERIES]
    rows += [(series["error"], keep & (bucket == number)) for number in range(num_buckets)]
    origins = [keep_trainable(x, chosen).sum() / chosen.sum().clamp(min=1) for x, chosen in rows]
    moments = [masked_moments(x - origin, chosen) for (x, chosen), origin in zip(rows, origins, strict=True)]
    values, returns = (series[name] - origins[SERIES.index(name)] for name in ("values", "returns"))
    none = torch.full((2,), -torch.inf, dtype=values.dtype, device=keep.device)
    extremes = [_extremes(series[name], keep) if name in series else none for name in EXTREMES]
    # What the rounding of the origins adds to this sum is of second order.
    comoment = keep_trainable(values * returns, keep).sum()
    return _State(torch.stack(origins), torch.stack(moments), comoment, torch.stack(extremes))


def _empty_state(num_buckets: int, device: torch.device) -> _State:
    zero = torch.zeros((1, 1), device=device)
    return _batch_state({name: to_accumulator(zero) for name in ("values", "returns", "error")}, zero > 0, num_buckets)


def _bucket_index(keep: Tensor, num_buckets: int) -> Tensor:
    """(B, T): floor(num_buckets * number of the trainable token / trainable tokens of the row)."""
    number = keep.cumsum(dim=1) - 1
    return num_buckets * number // keep.sum(dim=1, keepdim=True).clamp(min=1)


def _extremes(x: Tensor, keep: Tensor) -> Tensor:
    """(2,): minus the minimum and the maximum, so that both merge by maximum; -inf for an empty mask."""
    sides = torch.stack([-x, x]).masked_fill(~keep, -torch.inf).reshape(2, -1)
    return torch.cat([sides, sides.new_full((2, 1), -torch.inf)], dim=1).amax(dim=1)


def _merged(states: list[_State]) -> _State:
    parts = torch.stack([state.moments for state in states])
    origins = torch.stack([state.origins for state in states])
    # The largest part's origin: an empty part's is 0 and may lie far from the data.
    origin = origins.gather(0, parts[:, :, 0].argmax(0, keepdim=True))
    means = parts[:, :, 1] + (origins - origin)
    parts = torch.stack([parts[:, :, 0], means, parts[:, :, 2]], dim=-1)
    moments = merge_moments(*parts)
    distance = means - moments[:, 1]
    values, returns = SERIES.index("values"), SERIES.index("returns")
    between = (parts[:, values, 0] * distance[:, values] * distance[:, returns]).sum()
    comoment = torch.stack([state.comoment for state in states]).sum() + between
    return _State(origin[0], moments, comoment, torch.stack([state.extremes for state in states]).amax(dim=0))


def _loss_figures(moments: Mapping[str, _Moments]) -> dict[str, float]:
    keys = {"clipped": "clip_frac", "clipped_region": "clip_frac_region"}
    return {keys.get(name, name): moments[name].mean for name in ("loss", *LOSS_STATS) if name in moments}


def _fit_figures(
    moments: Mapping[str, _Moments], extremes: Mapping[str, list[float]], comoment: float
) -> dict[str, float]:
    values, returns, error = moments["values"], moments["returns"], moments["error"]
    flat_values, flat_returns = (-extremes[name][0] == extremes[name][1] for name in ("values", "returns"))

    def share(unexplained: float, total: _Moments) -> float:
        return 0.0 if flat_returns or total.m2 == 0 else 1.0 - unexplained / total.m2

    scale = values.m2**0.5 * returns.m2**0.5
    figures = {
        "explained_variance": share(error.m2, returns),
        "r2": share(error.squares, returns),
        "bias": error.mean,
        "rmse": float((error.squares / error.num) ** 0.5),
        "corr": 0.0 if flat_values or flat_returns or scale == 0 else comoment / scale,
        "zero_variance": float(flat_returns),
    }
    if "old_error" in moments:
        figures["explained_variance_old"] = share(moments["old_error"].m2, moments["old_returns"])
    return figures


def _td_figures(moments: Mapping[str, _Moments], extremes: Mapping[str, list[float]]) -> dict[str, float]:
    if "td_error" not in moments:
        return {}
    return {
        "td_error_mean": moments["td_error"].mean,
        "td_error_abs": moments["td_error_abs"].mean,
        "td_error_std": moments["td_error"].std,
        "td_error_max": max(extremes["td_error"]),
    }


def _range_figures(moments: Mapping[str, _Moments], extremes: Mapping[str, list[float]]) -> dict[str, float]:
    figures = {}
    for name in ("values", "returns"):
        minus_low, high = extremes[name]
        figures[f"{name}_mean"], figures[f"{name}_std"] = moments[name].mean, moments[name].std
        figures[f"{name}_min"], figures[f"{name}_max"] = -minus_low, high
    return figures


def _bucket_figures(moments: Mapping[str, _Moments], num_buckets: int) -> dict[str, float]:
    figures = {}
    for bucket in range(num_buckets):
        if row := moments.get(f"bucket_{bucket}"):
            figures[f"rmse_bucket_{bucket}"] = float((row.squares / row.num) ** 0.5)
            figures[f"bias_bucket_{bucket}"] = row.mean
    return figures
