"""PPOConfig: TRL's GRPOConfig plus what a critic needs."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from trl import GRPOConfig

from trl_ext._trainer import (
    KL_DIRECTIONS,
    KL_ESTIMATORS,
    LOSS_TYPES,
    RATIO_LEVELS,
    check_choices,
    choose_precision,
    single_generation_allowed,
)
from trl_ext.errors import UserError

CRITICS = ("adapter", "shared", "model")
CRITIC_TARGETS = ("gae", "reward_to_go", "terminal", "td")
KL_PLACEMENTS = ("reward", "loss")
VALUE_LOSSES = ("mse", "huber")

_FRACTIONS = ("gamma", "lam", "lam_policy", "lam_value")
_NOT_NEGATIVE = ("beta", "vf_coef", "critic_warmup_steps", "critic_max_grad_norm")
_POSITIVE = (
    "cliprange_value",
    "reward_clip",
    "kl_target",
    "target_kl",
    "length_adaptive_lam",
    "critic_learning_rate",
    "kl_horizon",
)
_COUNTS = ("num_generations", "num_iterations", "num_ppo_epochs", "num_mini_batches")


def _field(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass
class PPOConfig(GRPOConfig):
    r"""
    Configuration of [`PPOTrainer`]: every field of [`~trl.GRPOConfig`], and the ones below.

    PPO names of TRL <= 1.12 are aliases: `kl_coef` is `beta`, `num_ppo_epochs` is `num_iterations`, and
    `num_mini_batches` sets `steps_per_generation` to `num_mini_batches * gradient_accumulation_steps`. Giving both
    names with different values is an error. `scale_rewards` and `multi_objective_aggregation` shape GRPO's group
    advantages and have no effect here: the critic is the baseline.

    Args:
        critic (`str`, defaults to `"adapter"`):
            Where the value function lives. `"adapter"`: a second LoRA and a scalar head on the policy's own frozen
            base (needs a LoRA policy). `"shared"`: a scalar head on the policy's trunk; cheapest. `"model"`: a
            separate model, passed to the trainer as `value_model=`.
        critic_learning_rate (`float`, *optional*):
            Learning rate of the critic's own parameters. Default: 1e-4 for `"adapter"` and `"shared"` (a head and
            low-rank matrices), 1e-5 for `"model"`. A critic at the policy's LoRA rate of 5e-4 has been seen to go to
            NaN.
        critic_warmup_steps (`int`, defaults to `0`):
            Optimizer steps in which only the critic learns and the policy keeps its weights.
        critic_detach (`bool`, defaults to `False`):
            With `critic="shared"`: stop the value gradient at the head, so that it never moves the policy's trunk.
        critic_target (`str`, defaults to `"gae"`):
            What the critic regresses on: `"gae"` returns (A + V), `"reward_to_go"` discounted Monte Carlo returns,
            `"terminal"` the completion's score at every token, `"td"` r + gamma V(s').
        critic_loss (`str`, defaults to `"mse"`): `"mse"` (one half of the square) or `"huber"`.
        critic_max_grad_norm (`float`, *optional*):
            The critic's gradients are clipped on their own, to this norm. Default: `max_grad_norm`.
        vf_coef (`float`, defaults to `0.1`): Weight of the value loss.
        cliprange_value (`float`, *optional*, defaults to `0.2`):
            Values may move this far from the rollout's values before the loss clips. `None` or 0 turns it off.
        gamma (`float`, defaults to `1.0`): Discount factor, a token.
        lam (`float`, defaults to `0.95`): GAE lambda, for the policy and the critic.
        lam_policy (`float`, *optional*): Lambda of the policy's advantages alone (VC-PPO, arXiv 2503.01491).
        lam_value (`float`, *optional*): Lambda of the critic's returns alone; VC-PPO uses 1.0.
        length_adaptive_lam (`float`, *optional*):
            alpha of VAPO's lambda_policy = 1 - 1 / (alpha * length) (arXiv 2504.05118; it uses 0.05).
        kl_coef (`float`, *optional*): Alias of `beta` (default here 0.05).
        kl_estimator (`str`, defaults to `"k1"`):
            `"k1"`, `"k2"`, `"k3"`, `"abs"` of the sampled tokens, or `"full"`: the divergence over the vocabulary.
        kl_direction (`str`, defaults to `"reverse"`): For `"full"`: `"reverse"` KL(policy || reference) or `"forward"`.
        kl_placement (`str`, defaults to `"reward"`):
            `"reward"`: subtracted from each token's reward, so that the critic sees it. `"loss"`: added to the loss.
            The gradient of k1 in the loss has mean zero; use k2, k3 or full there.
        kl_target (`float`, *optional*):
            Adapt the coefficient so that the KL of a completion (nats, summed over its tokens) nears this target.
        kl_horizon (`int`, defaults to `10000`): Horizon of the adaptive controller, in completions.
        target_kl (`float`, *optional*):
            Stop updating on a batch of rollouts, until the next one, once the mean k3 between the policy that sampled
            and the policy now is above this. The step that crosses the line is not taken.
        whiten_advantages (`bool`, defaults to `True`):
            Mean 0 and variance 1 over all trainable tokens of the generation batch, of all processes.
        whiten_rewards (`bool`, defaults to `False`):
            Whiten token rewards (score and KL) over the generation batch and add their mean again, as TRL <= 1.12 did.
        reward_clip (`float`, *optional*): Clip a completion's score to [-reward_clip, reward_clip].
        reward_running_scale (`bool`, defaults to `False`):
            Divide scores by their running standard deviation (saved and resumed with the run).
        missing_eos_penalty (`float`, *optional*): Subtracted from the score of a completion cut at the length limit.
        bootstrap_truncated (`bool`, defaults to `False`):
            Use the critic's value after the last token of a truncated completion as if the episode went on.
        num_ppo_epochs (`int`, *optional*): Alias of `num_iterations`.
        num_mini_batches (`int`, *optional*): Optimizer steps in one pass over the rollouts, reshuffled each pass.
        value_after_update (`bool`, defaults to `True`):
            At each logged step, evaluate the critic once more on the last rollouts, for
            `value/explained_variance_after`. One forward pass of the critic without gradients.
        fused_generation (`bool`, defaults to `True`):
            While completions are generated, LoRA layers apply their adapter in the base's precision and in fewer
            kernels (3 for each layer in place of 7 or 8). Without effect under vLLM, FSDP and DeepSpeed.
        save_critic (`bool`, defaults to `False`):
            Also write the critic beside the final model, and so to the Hub. Checkpoints always hold it.

    > [!NOTE]
    > Defaults that differ from `GRPOConfig`: `learning_rate` 1e-5, `num_generations` 1, `beta` 0.05,
    > `disable_dropout` True; `bf16` is off, with one log line, where there is no accelerator.
    """

    learning_rate: float = _field(1e-5, "Initial learning rate of the policy.")
    num_generations: int | None = _field(1, "Completions a prompt; a critic needs no group, so 1 is enough.")
    beta: float = _field(0.05, "KL coefficient. 0.0 loads no reference model.")
    disable_dropout: bool = _field(True, "Turn dropout off: with it the first PPO ratio is not 1.")

    critic: str = _field("adapter", "Where the value function lives: 'adapter', 'shared' or 'model'.")
    critic_learning_rate: float | None = _field(None, "Learning rate of the critic's own parameters.")
    critic_warmup_steps: int = _field(0, "Optimizer steps in which only the critic learns.")
    critic_detach: bool = _field(False, "critic='shared': stop the value gradient at the head.")
    critic_target: str = _field("gae", "Regression target: 'gae', 'reward_to_go', 'terminal' or 'td'.")
    critic_loss: str = _field("mse", "Value loss: 'mse' or 'huber'.")
    critic_max_grad_norm: float | None = _field(None, "Gradient norm the critic is clipped to; max_grad_norm if unset.")
    vf_coef: float = _field(0.1, "Weight of the value loss.")
    cliprange_value: float | None = _field(0.2, "Clip range of the value loss; 0 turns it off.")
    gamma: float = _field(1.0, "Discount factor.")
    lam: float = _field(0.95, "GAE lambda.")
    lam_policy: float | None = _field(None, "GAE lambda of the policy's advantages, where it differs from lam.")
    lam_value: float | None = _field(None, "GAE lambda of the critic's returns, where it differs from lam.")
    length_adaptive_lam: float | None = _field(None, "alpha of lambda_policy = 1 - 1 / (alpha * length).")
    kl_coef: float | None = _field(None, "Alias of beta.")
    kl_estimator: str = _field("k1", "KL estimator: 'k1', 'k2', 'k3', 'abs' or 'full'.")
    kl_direction: str = _field("reverse", "For kl_estimator='full': 'reverse' or 'forward'.")
    kl_placement: str = _field("reward", "Where the KL penalty goes: 'reward' or 'loss'.")
    kl_target: float | None = _field(None, "Target KL of a completion in nats; adapts the coefficient.")
    kl_horizon: int = _field(10000, "Horizon of the adaptive KL controller, in completions.")
    target_kl: float | None = _field(None, "Stop the updates on a batch of rollouts above this mean k3.")
    whiten_advantages: bool = _field(True, "Whiten advantages over the generation batch.")
    whiten_rewards: bool = _field(False, "Whiten token rewards, keeping their mean.")
    reward_clip: float | None = _field(None, "Clip scores to [-reward_clip, reward_clip].")
    reward_running_scale: bool = _field(False, "Divide scores by their running standard deviation.")
    missing_eos_penalty: float | None = _field(None, "Subtracted from the score of a truncated completion.")
    bootstrap_truncated: bool = _field(False, "Bootstrap truncated completions from the critic.")
    num_ppo_epochs: int | None = _field(None, "Alias of num_iterations.")
    num_mini_batches: int | None = _field(None, "Optimizer steps in one pass over the rollouts.")
    value_after_update: bool = _field(True, "Log explained variance after the update, too.")
    fused_generation: bool = _field(True, "Apply LoRA in fewer kernels while completions are generated.")
    save_critic: bool = _field(False, "Write the critic beside the final model.")

    if TYPE_CHECKING:  # TRL's fields, whose types do not reach the checker
        steps_per_generation: int | None = None
        bf16: bool | None = None

    def __post_init__(self) -> None:
        self._check_counts()
        self._resolve_aliases()
        self._check_choices()
        self.cliprange_value = self.cliprange_value or None  # the command line cannot say None
        self._check_ranges()
        choose_precision(self)
        with single_generation_allowed(self):
            super().__post_init__()
        if self.critic_learning_rate is None:
            self.critic_learning_rate = 1e-5 if self.critic == "model" else 1e-4
        if self.critic_max_grad_norm is None:
            self.critic_max_grad_norm = max(self.max_grad_norm or 0.0, 0.0)  # transformers clips above 0 alone
        if self.target_kl is not None and self.fp16:
            raise UserError("target_kl does not run with fp16=True (its loss scaler needs every step); use bf16=True.")

    def _default(self, name: str) -> Any:
        return next(f.default for f in fields(self) if f.name == name)

    def _resolve_aliases(self) -> None:
        for alias, name in (("kl_coef", "beta"), ("num_ppo_epochs", "num_iterations")):
            given, inherited = getattr(self, alias), getattr(self, name)
            if given is not None and inherited not in (given, self._default(name)):
                raise UserError(
                    f"{alias}={given} and {name}={inherited} are two names of one setting and differ; give one of them."
                )
            setattr(self, name, inherited if given is None else given)
            setattr(self, alias, getattr(self, name))
        if self.num_mini_batches is not None:
            self._set_mini_batches(self.num_mini_batches)

    def _set_mini_batches(self, num_mini_batches: int) -> None:
        if self.generation_batch_size is not None:
            raise UserError(
                "num_mini_batches and generation_batch_size both set the size of the generation batch; give one of "
                "them."
            )
        steps = num_mini_batches * self.gradient_accumulation_steps
        if self.steps_per_generation not in (None, steps):
            raise UserError(
                f"num_mini_batches={num_mini_batches} means steps_per_generation={steps} "
                f"(num_mini_batches * gradient_accumulation_steps), but steps_per_generation="
                f"{self.steps_per_generation} was given; give one of them."
            )
        self.steps_per_generation = steps

    def _check_choices(self) -> None:
        choices = {
            "critic": CRITICS,
            "critic_target": CRITIC_TARGETS,
            "critic_loss": VALUE_LOSSES,
            "kl_estimator": KL_ESTIMATORS,
            "kl_placement": KL_PLACEMENTS,
            "kl_direction": KL_DIRECTIONS,
            "loss_type": LOSS_TYPES,
            "importance_sampling_level": RATIO_LEVELS,
        }
        check_choices(self, choices)

    def _check_counts(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            optional = name in ("num_ppo_epochs", "num_mini_batches")
            if value is None and optional:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(f"{name}={value!r} must be a whole number of at least 1.")

    def _check_numbers(self) -> None:
        for name in (*_FRACTIONS, *_NOT_NEGATIVE, *_POSITIVE, "missing_eos_penalty"):
            value = getattr(self, name)
            required = self._default(name) is not None and name != "cliprange_value"
            if value is None and not required:
                continue
            if not isinstance(value, numbers.Real) or not math.isfinite(value):
                raise UserError(f"{name}={value!r} must be a finite number.")
        weights = self.reward_weights if self.reward_weights is not None else []
        if not isinstance(weights, list | tuple):
            raise UserError(f"reward_weights={weights!r} must be a list with one number for each reward.")
        for weight in weights:
            if not isinstance(weight, numbers.Real) or not math.isfinite(weight):
                raise UserError(f"reward_weights={self.reward_weights} must be finite numbers.")

    def _check_ranges(self) -> None:
        self._check_numbers()
        for name in _FRACTIONS:
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise UserError(f"{name}={value} must lie in [0, 1].")
        for name in _NOT_NEGATIVE:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UserError(f"{name}={value} must not be negative.")
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UserError(f"{name}={value} must be above 0 (leave it unset to turn it off).")
        if self.length_adaptive_lam is not None and self.lam_policy is not None:
            raise UserError("length_adaptive_lam and lam_policy both set the policy's lambda; give one of them.")
        if self.kl_target is not None and self.beta == 0.0:
            raise UserError("kl_target adapts the KL coefficient and needs a start above 0; set kl_coef, e.g. 0.05.")
