"""What trainers measure of a step beside TRL's figures: seconds by part, and the spread of each prompt's rewards."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

from trl_ext._fused_lora import fused_lora
from trl_ext._trainer import drop_repeated_hooks, sharding_of

# Parts of an optimizer step; each is logged as "time/<part>", and their sum as "time/step".
PARTS = ("generate", "score", "prepare", "update", "other")


class StepClock:
    """Seconds of an optimizer step by part; the time of an inner part is not counted in the outer one.

    Args:
        now (callable): Gives the time in seconds.

    Example:
        >>> times = iter([0.0, 1.0, 3.0, 7.0, 8.0, 10.0])
        >>> clock = StepClock(lambda: next(times))
        >>> clock.start()
        >>> with clock.part("prepare"):
        ...     with clock.part("generate"):
        ...         pass
        >>> clock.stop()
        >>> clock.take()
        [{'generate': 4.0, 'score': 0.0, 'prepare': 3.0, 'update': 0.0, 'other': 3.0, 'step': 10.0}]
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._part: str | None = None  # None outside of steps, where nothing is counted
        self._since = 0.0
        self._is_waiting = False
        self._seconds: dict[str, float] = {}
        self._steps: list[dict[str, float]] = []

    def start(self) -> None:
        """A step begins; one that was cut short is forgotten."""
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._part, self._since, self._is_waiting = "other", self._now(), True

    def start_work(self) -> None:
        """The first part of a step begins: what other callbacks did since `start` is not counted."""
        if self._part is not None and self._is_waiting:
            self.start()

    def switch(self, part: str) -> None:
        """What follows is counted in this part."""
        if self._part is not None:
            now = self._now()
            self._seconds[self._part] += now - self._since
            self._part, self._since, self._is_waiting = part, now, False

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """The block is counted in this part, and what follows it in the part from before."""
        before = self._part
        self.switch(name)
        try:
            yield
        finally:
            if before is not None:
                self.switch(before)

    def stop(self) -> None:
        """The step has ended."""
        if self._part is not None:
            self.switch("other")
            self._part = None
            self._steps.append({**self._seconds, "step": sum(self._seconds.values())})

    def take(self) -> list[dict[str, float]]:
        """Seconds of each step that ended since the last call."""
        steps, self._steps = self._steps, []
        return steps


class _StepCallback(TrainerCallback):
    """Tells the clock where a step begins, where its optimizer is done and where it ends."""

    def __init__(self, clock: StepClock) -> None:
        self.clock = clock

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.clock.start()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.clock.switch("other")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.clock.stop()


def group_stds(rewards_per_func: torch.Tensor, weights: torch.Tensor, num_generations: int) -> list[float]:
    """Sample standard deviation of the weighted rewards of each prompt's completions; equal rewards give exactly 0.

    Args:
        rewards_per_func (`torch.Tensor`): (N, F) rewards, NaN for None; a group is `num_generations` rows in a row.
        weights (`torch.Tensor`): (F,) weight of each reward function.
        num_generations (`int`): Completions of a prompt.

    Returns:
        `list[float]`: One figure a group; groups with fewer than two scored completions are left out.

    Example:
        >>> rewards = torch.tensor([[0.0], [1.0], [0.5], [0.5], [1.0], [torch.nan]])
        >>> [round(std, 4) for std in group_stds(rewards, torch.ones(1), 2)]
        [0.7071, 0.0]
    """
    rewards = rewards_per_func.double()
    scored = ~rewards.isnan().all(dim=1)
    totals = (rewards * weights.to(rewards)).nansum(dim=1).where(scored, torch.nan).view(-1, num_generations)
    missing = totals.isnan()
    count = (~missing).sum(dim=1)
    squares = (totals - totals.nanmean(dim=1, keepdim=True)).square().nansum(dim=1)
    flat = totals.masked_fill(missing, -torch.inf).amax(dim=1) <= totals.masked_fill(missing, torch.inf).amin(dim=1)
    stds = (squares / (count - 1)).sqrt().masked_fill(flat, 0.0)
    found: list[float] = stds[count > 1].tolist()
    return found


class MeasuredStage(GRPOTrainer):
    """Logs `time/*` and hands the spread of each group's rewards to [`~trl_ext.callbacks.MetricsWriter`].

    A step lasts from its first micro-batch to `on_step_end`: loading data, logging, saving and evaluating are outside.
    Its parts: "generate" completions; "score" them; "prepare" what else a generation batch needs (log-probabilities,
    values, advantages); "update", forward and backward passes and the optimizer; and "other". Nothing waits for the
    accelerator: work that is still under way when a part ends is counted where the host waits for it.
    """

    _step: Any  # TRL's count of micro-batches, and the batches that it generated
    _buffered_inputs: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._clock = StepClock()
        self._group_stds: list[float] = []  # of the groups sampled since the last log line
        super().__init__(*args, **kwargs)
        # before the callbacks of the user, whose time at the end of a step is not the step's
        self.callback_handler.callbacks.insert(0, _StepCallback(self._clock))

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train; what a call that was interrupted left of its step is forgotten."""
        self._step, self._buffered_inputs = 0, None
        self._metrics["train"].clear()
        self._clock.take()
        self._group_stds = []
        return super().train(*args, **kwargs)

    def _prepare_inputs(self, *args: Any, **kwargs: Any) -> Any:
        with self._clock.part("prepare"):
            return super()._prepare_inputs(*args, **kwargs)

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        drop_repeated_hooks(self.model)
        with self._clock.part("generate"), fused_lora(self.model) if self._fuses_lora else contextlib.nullcontext():
            return super()._generate(*args, **kwargs)

    @property
    def _fuses_lora(self) -> bool:
        """Whether transformers' `generate` runs on whole, uncompiled weights of this process."""
        elsewhere = self.use_vllm or self.use_transformers_continuous_batching
        whole = sharding_of(self.accelerator) is None and not self.args.torch_compile
        return bool(self.args.fused_generation and whole and not elsewhere)

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        with self._clock.part("score"):
            rewards: torch.Tensor = super()._calculate_rewards(*args, **kwargs)
        if self.model.training and self.num_generations > 1:
            self._group_stds += group_stds(rewards, self.reward_weights, self.num_generations)
        return rewards

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        self._clock.start_work()
        with self._clock.part("update"):
            loss: torch.Tensor = super().training_step(*args, **kwargs)
        if self.accelerator.sync_gradients:
            self._clock.switch("update")  # clipping and the optimizer follow
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if not self.model.training:
            super().log(logs, start_time)
            return
        for seconds in self._clock.take():
            for part, value in seconds.items():
                self._metrics["train"][f"time/{part}"].append(value)
        # on the state, and no field of it: loggers get numbers only, and checkpoints do not keep it
        self.state.group_std, self._group_stds = self._group_stds, []
        try:
            super().log(logs, start_time)
        finally:
            self.state.group_std = []
