"""The optimizer step: gradients reduced, clipped apart, dropped where nothing may move; and what is logged of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from trl_ext.ppo.accounting import PPOAccounting
from trl_ext.ppo.objective import ObjectiveStage


class UpdateStage(ObjectiveStage):
    """From gradients to a step, and from a step to the log."""

    _updates_stopped: bool  # until the next rollouts, by target_kl
    _window_open: bool
    _window: torch.Tensor | None  # sums of one optimizer step, see `_add_to_window`

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train; what a call that was interrupted left of its step is forgotten."""
        self._forget_step()
        return super().train(*args, **kwargs)

    def _forget_step(self) -> None:
        self._updates_stopped, self._window_open, self._window = False, False, None
        self._rollouts, self._pass, self._hidden = None, None, []
        self._accounting["train"].reset()

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        if self._step % (self.args.steps_per_generation * self.num_iterations) == 0:
            self._updates_stopped = False
        if self._step == 0 and not self._accounting["train"]:
            self._accounting["train"].cost.reset()  # the clock starts with the training, not with the trainer
        if not self._window_open:
            self._open_window()
        if self._updates_stopped:
            model.train()  # as in a step that is taken: an evaluation leaves the model in eval mode
            self._step += 1
            loss = torch.zeros((), device=self.accelerator.device)
        else:
            loss = super().training_step(model, inputs, num_items_in_batch)
        if self.accelerator.sync_gradients:
            self._close_window()
        return loss

    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        if not self._accounting["eval"]:
            self._accounting["eval"].cost.reset()
        return super().prediction_step(*args, **kwargs)

    _WINDOW_SUMS = ("kl_sum", "num_rows", "k3_sum", "num_tokens")

    def _open_window(self) -> None:
        self._window_open = True
        self._window = torch.zeros(len(self._WINDOW_SUMS), device=self.accelerator.device, dtype=torch.float32)
        self.critic.train(True)
        for parameter in self.critic.parameters().values():
            parameter.grad = None  # the head and a separate model are not part of what Trainer zeroes

    def _add_to_window(self, **sums: torch.Tensor) -> None:
        assert self._window is not None
        for name, value in sums.items():
            self._window[self._WINDOW_SUMS.index(name)] += value.detach()

    def _close_window(self) -> None:
        """After the last micro-batch of an optimizer step."""
        self._window_open = False
        metrics = self._metrics["train"]
        metrics["value/learning_rate"].append(self.optimizer.param_groups[-1]["lr"])
        if not self._updates_stopped:
            self._finish_gradients()
        if self.args.target_kl is not None:
            metrics["policy/updates_stopped"].append(float(self._updates_stopped))

    def _finish_gradients(self) -> None:
        """Reduce, adapt, and drop what must not move."""
        self._accounting["train"].num_windows += 1
        self._reduce_critic_gradients()
        if self.args.target_kl is not None or self.args.kl_target is not None:
            assert self._window is not None
            sums = self.accelerator.reduce(self._window, reduction="sum").tolist()
            kl_sum, num_rows, k3_sum, num_tokens = sums
            if self.args.kl_target is not None and num_rows:
                # each completion passes once an epoch, and counts once
                self.kl_controller.update(kl_sum / num_rows, max(1, round(num_rows / self.num_iterations)))
            if self.args.target_kl is not None and num_tokens and k3_sum / num_tokens > self.args.target_kl:
                self._updates_stopped = True
                self._drop_gradients(keep_critic=False)
        if self.state.global_step < self.args.critic_warmup_steps:
            self._drop_gradients(keep_critic=True)

    def _drop_gradients(self, keep_critic: bool) -> None:
        own = {id(p) for p in self.critic.parameters().values()}
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if not (keep_critic and id(parameter) in own):
                    parameter.grad = None

    def _reduce_critic_gradients(self) -> None:
        parameters = list(self.critic.parameters().values())
        if self.accelerator.num_processes == 1:
            return
        # every process must bring the same tensors, with or without a gradient
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = self.accelerator.reduce(torch.cat([g.flatten().float() for g in gradients]), reduction="mean")
        for parameter, gradient in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = gradient.view_as(parameter).to(parameter.dtype)

    def _clip_grad_norm(self, model: Any) -> Any:
        if self._unscale_gradients():
            norm = nn.utils.clip_grad_norm_(self._policy_parameters(model), self.args.max_grad_norm)
        else:
            with self._critic_gradients_aside():
                norm = super()._clip_grad_norm(model)
        self._clip_critic()
        return norm

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        if grad_norm is None:  # max_grad_norm=0: nothing was clipped
            if self._unscale_gradients():
                grad_norm = _grad_norm(self._policy_parameters(model))
            self._clip_critic()
        with self._critic_gradients_aside():
            norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self._metrics["train"]["policy/grad_norm"].append(float(norm))
        return norm

    def _unscale_gradients(self) -> bool:
        """Under fp16, divide by the loss scale: once, and the critic's gradients with the policy's."""
        scaler = getattr(self.accelerator, "scaler", None)
        if scaler is None or not scaler.is_enabled():
            return False
        self.accelerator.unscale_gradients()
        return True

    def _policy_parameters(self, model: Any) -> list[nn.Parameter]:
        own = {id(p) for p in self.critic.parameters().values()}
        return [p for p in model.parameters() if id(p) not in own]

    @contextlib.contextmanager
    def _critic_gradients_aside(self) -> Iterator[None]:
        parameters = list(self.critic.parameters().values())
        gradients = [p.grad for p in parameters]
        for parameter in parameters:
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient

    def _clip_critic(self) -> None:
        """Clip the critic's gradients on their own, and log norms before and after."""
        parts = {"head": list(self.critic.head.parameters()), "trunk": list(self.critic.trunk_parameters().values())}
        limit = self.args.critic_max_grad_norm or float("inf")  # never negative, see PPOConfig
        norms = {name: _grad_norm(parameters) for name, parameters in parts.items() if parameters}
        total = torch.stack(list(norms.values())).norm().item()
        scale = min(1.0, limit / (total + 1e-6))
        if scale < 1.0:
            gradients = [p.grad for p in self.critic.parameters().values() if p.grad is not None]
            torch._foreach_mul_(gradients, scale)
        metrics = self._metrics["train"]
        for name, norm in norms.items():
            name = "adapter" if name == "trunk" and self.critic.mode == "adapter" else name
            metrics[f"value/grad_norm_{name}"].append(norm.item())
            metrics[f"value/grad_norm_{name}_clipped"].append(norm.item() * scale)
        metrics["value/grad_norm"].append(total)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        mode = "train" if self.model.training else "eval"
        accounting = self._accounting[mode]
        if accounting:
            figures = accounting.compute(self.accelerator, self._critic_bytes())
            if mode == "train":
                figures |= self._after_update()
            for name, value in sorted(figures.items()):
                self._metrics[mode][name].append(value)
            if "policy/kl_ref_token" in figures:
                self._metrics[mode]["kl"].append(figures["policy/kl_ref_token"])
            accounting.reset()
        super().log(logs, start_time)

    def _critic_bytes(self) -> int:
        """Weights, gradients and optimizer state of the critic."""
        total = 0
        for parameter in self.critic.parameters().values():
            state = self.optimizer.state.get(parameter, {}) if self.optimizer is not None else {}
            tensors = [parameter, parameter, *(t for t in state.values() if isinstance(t, torch.Tensor))]
            total += sum(t.numel() * t.element_size() for t in tensors)
        return total

    @torch.no_grad()
    def _after_update(self) -> dict[str, float]:
        """Explained variance of the critic as it is now, on the last rollouts."""
        if not self.args.value_after_update or self._rollouts is None:
            return {}
        rollouts, accounting = self._rollouts, PPOAccounting(self.accelerator.device)
        with self._no_grad_checkpointing(), self.accelerator.autocast():
            values = self.critic.rollout_values(rollouts, self._critic_batch_size(rollouts))[:, :-1]
        accounting.critic.update(values, rollouts["returns"], rollouts["value_mask"])
        figures = accounting.critic.reduce(self.accelerator).compute()
        return {f"value/{name}_after": figures[name] for name in ("explained_variance", "rmse") if name in figures}


def _grad_norm(parameters: list[nn.Parameter]) -> torch.Tensor:
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.zeros((), device=parameters[0].device)
    return nn.utils.get_total_norm(gradients).float().to(parameters[0].device)
