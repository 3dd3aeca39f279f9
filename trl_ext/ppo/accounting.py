"""What one logging window of PPO did: the objective's terms, the critic, the policy, and what the critic cost.

Everything is kept as sufficient statistics on the device, so the figures do not depend on how the rollouts were split
over micro-batches, minibatches, epochs or processes, and nothing waits for the device before a log is written.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from trl_ext.diagnostics import CriticAccounting, ObjectiveLedger
from trl_ext.losses import policy_loss
from trl_ext.masking import masked_moments, merge_moments


def gather_moments(moments: torch.Tensor, accelerator: Any) -> torch.Tensor:
    """Merge a (3,) moment triple over all processes."""
    if accelerator.num_processes == 1:
        return moments
    return merge_moments(*accelerator.gather(moments.unsqueeze(0)))


class TokenStatistics:
    """Mean, variance, minimum and maximum of named quantities, exact over any split.

    `update` takes values and a mask of one shape; `compute` returns `{"name/statistic": value}` for the statistics
    asked for in `update`.
    """

    def __init__(self) -> None:
        self._moments: dict[str, torch.Tensor] = {}
        self._extremes: dict[str, torch.Tensor] = {}
        self._wanted: dict[str, tuple[str, ...]] = {}

    def update(self, name: str, values: torch.Tensor, mask: torch.Tensor, wanted: tuple[str, ...] = ("mean",)) -> None:
        """Add one micro-batch; `wanted` names statistics among mean, var, std, min, max, sum."""
        values, keep = values.detach().float(), mask.bool()
        moments = masked_moments(values, keep)
        known = self._moments.get(name)
        self._moments[name] = moments if known is None else merge_moments(known, moments)
        self._wanted[name] = wanted
        if {"min", "max"} & set(wanted):
            low = values.masked_fill(~keep, float("inf")).min()
            high = values.masked_fill(~keep, float("-inf")).max()
            extremes = torch.stack([-low, high])
            known = self._extremes.get(name)
            self._extremes[name] = extremes if known is None else torch.maximum(known, extremes)

    def compute(self, accelerator: Any) -> dict[str, float]:
        """The statistics over all processes; every process must have updated the same names."""
        result = {}
        for name in sorted(self._moments):
            count, mean, m2 = gather_moments(self._moments[name], accelerator).tolist()
            if count == 0:
                continue
            variance = m2 / count
            figures = {"mean": mean, "var": variance, "std": variance**0.5, "sum": mean * count}
            if name in self._extremes:
                extremes = accelerator.gather(self._extremes[name].unsqueeze(0)).amax(0).tolist()
                figures |= {"min": -extremes[0], "max": extremes[1]}
            for statistic in self._wanted[name]:
                result[name if statistic in ("mean", "sum") else f"{name}_{statistic}"] = figures[statistic]
        return result

    def __bool__(self) -> bool:
        return bool(self._moments)


class CostMeter:
    """Seconds, tokens and bytes of the critic's passes.

    On CUDA the seconds are those of the device, between events, so measuring does not stop the queue.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._cuda = device.type == "cuda"
        self.reset()

    def reset(self) -> None:
        self._seconds = 0.0
        self._events: list[tuple[Any, Any]] = []
        self.num_tokens = 0
        self.peak_bytes = 0
        self._start = time.perf_counter()

    @contextlib.contextmanager
    def section(self, num_tokens: int) -> Iterator[None]:
        """One pass of the critic over `num_tokens` positions."""
        self.num_tokens += num_tokens
        start = time.perf_counter()
        before = self._allocated()
        events = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) if self._cuda else None
        if events:
            events[0].record()
        self._before = before
        yield
        if events:
            events[1].record()
            self._events.append(events)
        else:
            self._seconds += time.perf_counter() - start

    def mark_peak(self) -> None:
        """Note the memory held now, at the end of a forward pass, where the activations are largest."""
        self.peak_bytes = max(self.peak_bytes, self._allocated() - self._before)

    def _allocated(self) -> int:
        return torch.cuda.memory_allocated(self.device) if self._cuda else 0

    def compute(self, accelerator: Any, state_bytes: int) -> dict[str, float]:
        """`critic/seconds`, its share of the wall time since the last reset, and bytes, of this process; tokens of all.

        A collective call.
        """
        if self._events:
            torch.cuda.synchronize(self.device)
            self._seconds += sum(start.elapsed_time(end) for start, end in self._events) / 1e3
        elapsed = max(time.perf_counter() - self._start, 1e-9)
        tokens = torch.tensor(float(self.num_tokens), device=self.device)
        figures = {
            "critic/seconds": self._seconds,
            "critic/seconds_share": self._seconds / elapsed,
            "critic/tokens": float(accelerator.reduce(tokens, reduction="sum")),
            "critic/state_bytes": float(state_bytes),
        }
        if self._cuda:
            peak = state_bytes + self.peak_bytes
            figures["critic/peak_bytes"] = float(peak)
            figures["critic/peak_bytes_share"] = peak / max(torch.cuda.max_memory_allocated(self.device), 1)
        return figures


class PPOAccounting:
    """Everything one logging window adds up, for training or for evaluation."""

    def __init__(self, device: torch.device) -> None:
        self.cost = CostMeter(device)
        self.reset()

    def reset(self) -> None:
        self.critic = CriticAccounting()
        self.statistics = TokenStatistics()
        self.objective = ObjectiveLedger()
        self.num_windows = 0
        self.cost.reset()

    def add_policy(
        self,
        per_token_logps: torch.Tensor,
        old_per_token_logps: torch.Tensor,
        entropies: torch.Tensor | None,
        inputs: Mapping[str, Any],
        mask: torch.Tensor,
        clipping: Mapping[str, Any],
    ) -> None:
        """Ratios, clip fractions, KL to the sampling policy and to the reference, entropy, advantages."""
        logps = per_token_logps.detach()
        _, stats = policy_loss(logps, old_per_token_logps, inputs["advantages"], mask, **clipping)
        add = self.statistics.update
        add("policy/ratio", stats["ratio"], mask, ("mean", "min", "max", "var"))
        add("policy/clip_frac_low", stats["clipped_low"], mask)
        add("policy/clip_frac_high", stats["clipped_high"], mask)
        log_ratio = torch.where(mask.bool(), logps - old_per_token_logps, 0.0).float()
        # KL(old || new) over samples of the old policy: the mirror image of kl_estimate's argument order
        add("policy/approx_kl_k1", -log_ratio, mask)
        add("policy/approx_kl_k2", 0.5 * log_ratio.square(), mask)
        add("policy/approx_kl_k3", torch.expm1(log_ratio) - log_ratio, mask)
        if entropies is not None:
            add("policy/entropy", entropies, mask)
        add("policy/advantages", inputs["advantages"], mask, ("mean", "std", "min", "max"))
        if "raw_advantages" in inputs:
            add("policy/advantages_raw", inputs["raw_advantages"], mask, ("mean", "std", "min", "max"))

    def add_reference_kl(self, kl: torch.Tensor, mask: torch.Tensor) -> None:
        """KL to the reference, (B, T), a token and a sequence."""
        kl = torch.where(mask.bool(), kl.detach().float(), 0.0)
        self.statistics.update("policy/kl_ref_token", kl, mask)
        self.statistics.update("policy/kl_ref_sequence", kl.sum(-1), mask.sum(-1) > 0)

    def compute(self, accelerator: Any, state_bytes: int) -> dict[str, float]:
        """All figures over all processes, ready to log. A collective call."""
        figures = self.statistics.compute(accelerator)
        critic = self.critic.reduce(accelerator).compute()
        figures |= {f"value/{name}": value for name, value in critic.items()}
        windows = max(self.num_windows, 1)
        objective = self.objective.reduce(accelerator).compute()
        figures |= {f"objective/{name}": value / windows for name, value in objective.items()}
        if "policy" in objective:
            figures["policy/loss"] = objective["policy"] / windows
        figures |= self.cost.compute(accelerator, state_bytes)
        return figures

    def __bool__(self) -> bool:
        return bool(self.statistics)
