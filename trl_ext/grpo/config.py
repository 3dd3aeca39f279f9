"""GRPOVariantConfig: TRL's GRPOConfig plus how advantages, KL and groups without spread are treated."""

from __future__ import annotations

import logging
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
from trl_ext.grpo.presets import PRESETS, Preset, check_batch, check_preset, resolved_preset

logger = logging.getLogger(__name__)

KL_PLACEMENTS = ("loss", "reward")
ZERO_STD = ("keep", "mask", "resample", "replay")
# Settings that one way to treat groups without spread reads, and no other.
_OF_ZERO_STD = {"max_resample_rounds": "resample", "replay_buffer_size": "replay"}

# Fields of ours that stand in for a setting of the preset.
_OF_PRESET = {
    "advantage_baseline": "baseline",
    "advantage_scale": "scale",
    "advantage_ddof": "ddof",
    "advantage_eps": "eps",
    "advantage_std_floor": "std_floor",
    "pass_k": "pass_k",
}


def _field(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass
class GRPOVariantConfig(GRPOConfig):
    r"""
    Configuration of [`GRPOVariantTrainer`]: every field of [`~trl.GRPOConfig`], and the ones below.

    Left at their defaults the fields below change nothing: the trainer is TRL's. Length normalisation is TRL's own
    `loss_type`, sequence-level ratios its `importance_sampling_level`.

    Args:
        advantage_estimator (`str`, defaults to `"trl"`):
            Preset of the group advantages: `"trl"`, `"verl"`, `"open_instruct"`, `"rloo"`, `"dr_grpo"`,
            `"reinforce_pp"`, `"maxrl"`, `"gdpo"`, `"pass_at_k"`, `"reinforce"` or `"custom"`; see
            `trl_ext.grpo.presets`. `"trl"` without any of the fields below uses TRL's own numbers.
        advantage_baseline (`str`, *optional*):
            `"mean"`, `"leave_one_out"`, `"median"`, `"none"`, `"batch"` or `"running_mean"`. Default: the preset's.
        advantage_scale (`str`, *optional*):
            `"group"`, `"batch"`, `"none"`, `"leave_one_out"`, `"mad"`, `"mean"` or `"batch_advantages"`. Default: the
            preset's. `scale_rewards` is TRL's name of the same setting; give one of them.
        advantage_ddof (`int`, *optional*): 1 divides the squares by the count minus one, 0 by the count.
        advantage_eps (`float`, *optional*): Added to the spread.
        advantage_std_floor (`float`, *optional*): Least spread.
        advantage_clip (`float`, *optional*):
            Advantages are cut at -advantage_clip and advantage_clip. A KL penalty in the reward comes after it.
        pass_k (`int`, *optional*): k of `advantage_estimator="pass_at_k"` (2).
        process_outcome_weight (`float`, defaults to `0.0`):
            With `process_reward_funcs`: weight of the outcome advantage, which is added to every token's process
            advantage. 0 uses the process advantages alone, as DeepSeekMath does.
        kl_estimator (`str`, defaults to `"k3"`):
            `"k1"`, `"k2"`, `"k3"`, `"abs"` of the sampled tokens, or `"full"`: the divergence over the vocabulary.
        kl_direction (`str`, defaults to `"reverse"`): For `"full"`: `"reverse"` KL(policy || reference) or `"forward"`.
        kl_placement (`str`, defaults to `"loss"`):
            `"loss"`: a term of the loss. `"reward"`: a penalty of each token's reward; beta times the KL of a token
            and of all later ones is subtracted from its advantage. Without `use_bias_correction_kl` the gradient of k1
            in the loss has mean zero; in the reward k1 is the unbiased one.
        zero_std (`str`, defaults to `"keep"`):
            What becomes of groups whose rewards are all the same. `"keep"`: they stay, with advantage 0 under a
            baseline of the group. `"mask"`: they leave the loss and its normaliser. `"resample"`: fresh prompts take
            their place (DAPO's dynamic sampling), sampled in up to `max_resample_rounds` rounds. `"replay"`: groups
            of earlier batches take their place, each once, the newest first.
        max_resample_rounds (`int`, defaults to `3`): Bound on the extra rounds of `zero_std="resample"` in a batch.
        replay_buffer_size (`int`, defaults to `64`): Groups that `zero_std="replay"` keeps, of all processes together.
        fused_generation (`bool`, defaults to `True`):
            While completions are generated, LoRA layers apply their adapter in the base's precision and in fewer
            kernels (3 for each layer in place of 7 or 8). Without effect under vLLM, FSDP and DeepSpeed.

    > [!NOTE]
    > Differs from `GRPOConfig`: `num_generations=1` is accepted where the advantage needs no group; `bf16` is off,
    > with one log line, where there is no accelerator.
    """

    advantage_estimator: str = _field("trl", f"Preset of the group advantages: {', '.join(PRESETS)}.")
    advantage_baseline: str | None = _field(None, "Baseline, where it differs from the preset's.")
    advantage_scale: str | None = _field(None, "What advantages are divided by, where it differs from the preset's.")
    advantage_ddof: int | None = _field(None, "0 or 1: degrees of freedom of the spread.")
    advantage_eps: float | None = _field(None, "Added to the spread.")
    advantage_std_floor: float | None = _field(None, "Least spread.")
    advantage_clip: float | None = _field(None, "Cut advantages at this size.")
    pass_k: int | None = _field(None, "k of advantage_estimator='pass_at_k'.")
    process_outcome_weight: float = _field(0.0, "With process rewards: weight of the outcome advantage beside them.")
    kl_estimator: str = _field("k3", "KL estimator: 'k1', 'k2', 'k3', 'abs' or 'full'.")
    kl_direction: str = _field("reverse", "For kl_estimator='full': 'reverse' or 'forward'.")
    kl_placement: str = _field("loss", "Where the KL penalty goes: 'loss' or 'reward'.")
    zero_std: str = _field("keep", "Groups of equal rewards: 'keep', 'mask', 'resample' or 'replay'.")
    max_resample_rounds: int = _field(3, "Bound on the extra rounds of zero_std='resample'.")
    replay_buffer_size: int = _field(64, "Groups that zero_std='replay' keeps.")
    fused_generation: bool = _field(True, "Apply LoRA in fewer kernels while completions are generated.")

    if TYPE_CHECKING:  # TRL's fields, whose types do not reach the checker
        num_generations: int | None = None
        generation_batch_size: int | None = None

    def __post_init__(self) -> None:
        self._check_numbers()
        preset = self.preset
        self._check_choices()
        self._check_kl()
        choose_precision(self)
        if self.num_generations is not None:
            check_preset(preset, self.num_generations)
        with single_generation_allowed(self):
            super().__post_init__()
        assert self.generation_batch_size is not None, "TRL sets it"
        check_batch(preset, self.generation_batch_size)
        self._check_zero_std()
        self._tell(preset)
        self._warn_of_evaluation(preset)

    @property
    def preset(self) -> Preset:
        """The advantage estimator: the named preset with the fields that are set in its settings' place."""
        given: dict[str, Any] = {setting: getattr(self, name) for name, setting in _OF_PRESET.items()}
        return resolved_preset(
            self.advantage_estimator,
            scale_rewards=self.scale_rewards,
            multi_objective_aggregation=self.multi_objective_aggregation,
            **given,
        )

    @property
    def has_stock_advantages(self) -> bool:
        """Whether advantages are TRL's own: the preset "trl" without a field that changes it."""
        given = [getattr(self, name) for name in (*_OF_PRESET, "advantage_clip")]
        return self.advantage_estimator == "trl" and all(value is None for value in given)

    @property
    def has_stock_kl(self) -> bool:
        """Whether the KL term is TRL's own: k3 in the loss, or none."""
        return self.beta == 0.0 or (self.kl_estimator == "k3" and self.kl_placement == "loss")

    def _check_numbers(self) -> None:
        clip, weight = self.advantage_clip, self.process_outcome_weight
        if clip is not None and not (_is_finite(clip) and clip > 0):
            raise UserError(f"advantage_clip={clip!r} must be a finite number above 0 (leave it unset to turn it off).")
        if not (_is_finite(weight) and weight >= 0):
            raise UserError(f"process_outcome_weight={weight!r} must be a finite number of 0 or more.")
        if not (_is_finite(self.beta) and self.beta >= 0):
            raise UserError(f"beta={self.beta!r} must be a finite number of 0 or more.")
        if self.reward_weights is not None and not all(map(_is_finite, self.reward_weights)):
            raise UserError(
                f"reward_weights={self.reward_weights!r} must hold a finite number for each reward function."
            )
        for name in ("max_resample_rounds", "replay_buffer_size", "num_generations"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"{name}={value!r} must be a whole number of at least 1.")

    def _check_choices(self) -> None:
        choices = {
            "kl_estimator": KL_ESTIMATORS,
            "kl_placement": KL_PLACEMENTS,
            "kl_direction": KL_DIRECTIONS,
            "zero_std": ZERO_STD,
            "loss_type": LOSS_TYPES,
            "importance_sampling_level": RATIO_LEVELS,
        }
        check_choices(self, choices)

    def _check_kl(self) -> None:
        if self.beta == 0.0:
            for name, default in (("kl_placement", "loss"), ("kl_estimator", "k3")):
                if getattr(self, name) != default:
                    raise UserError(
                        f"{name}={getattr(self, name)!r} has no effect with beta=0.0, which turns the KL penalty off; "
                        f"set beta, e.g. 0.05, or leave {name} unset."
                    )
        if self.kl_direction != "reverse" and self.kl_estimator != "full":
            raise UserError(
                f"kl_direction={self.kl_direction!r} has no effect with kl_estimator={self.kl_estimator!r}, which sees "
                "the sampled tokens alone; use kl_estimator='full'."
            )

    def _check_zero_std(self) -> None:
        if self.zero_std != "keep" and self.num_generations == 1:
            raise UserError(
                f"zero_std={self.zero_std!r} with num_generations=1 finds no spread in any group; use zero_std='keep', "
                "or num_generations of 2 or more."
            )
        defaults = {one.name: one.default for one in fields(self)}
        for name, reader in _OF_ZERO_STD.items():
            if self.zero_std != reader and getattr(self, name) != defaults[name]:
                raise UserError(
                    f"{name}={getattr(self, name)} has no effect with zero_std={self.zero_std!r}; use zero_std="
                    f"{reader!r}, or leave {name} unset."
                )
        if self.zero_std == "replay" and self.sync_ref_model:
            raise UserError(
                "zero_std='replay' keeps the log-probabilities of a reference that sync_ref_model=True moves on; use "
                "zero_std='resample' or 'mask', or sync_ref_model=False."
            )

    def _tell(self, preset: Preset) -> None:
        """One line for each field that replaces a setting of its preset, and for a loss the preset does not go with."""
        named = PRESETS[preset.name]
        for name, setting in _OF_PRESET.items():
            value = getattr(self, name)
            if value is not None and value != getattr(named, setting) and preset.name != "custom":
                logger.info(
                    f"{name}={value!r} replaces {getattr(named, setting)!r} of advantage_estimator={preset.name!r}."
                )
        if preset.loss_type not in (None, self.loss_type):
            logger.info(
                f"advantage_estimator={preset.name!r} comes from a source with loss_type={preset.loss_type!r}; this "
                f"run has {self.loss_type!r}."
            )

    def _warn_of_evaluation(self, preset: Preset) -> None:
        """An evaluation may have fewer generations than the preset needs: its rewards are what counts then."""
        if not self.num_generations_eval or self.has_stock_advantages:
            return
        try:
            check_preset(preset, self.num_generations_eval)
        except UserError as error:
            logger.warning(
                f"num_generations_eval={self.num_generations_eval} is too few for the advantages of an evaluation: "
                f"they are 0, and its loss with them; its rewards are as they are. ({error})"
            )


def _is_finite(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value)
