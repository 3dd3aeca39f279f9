"""What trainers built on TRL's GRPO trainer share: arguments and their checks, adapters, hidden states, the log."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from accelerate.utils import is_peft_model
from torch import nn
from transformers import PreTrainedModel

from trl_ext._text import did_you_mean
from trl_ext.errors import UserError
from trl_ext.smol import resolve_model
from trl_ext.versions import require_tested_trl

logger = logging.getLogger(__name__)

KL_ESTIMATORS = ("k1", "k2", "k3", "abs", "full")
KL_DIRECTIONS = ("reverse", "forward")
# What TRL's loss knows; it finds out about anything else once it has generated.
LOSS_TYPES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo")
RATIO_LEVELS = ("token", "sequence")
# Tensors a forward pass of a vision-language backbone needs beside the ids; TRL's own names.
MULTIMODAL_KEYS = (
    "pixel_values",
    "image_grid_thw",
    "pixel_attention_mask",
    "spatial_shapes",
    "image_sizes",
    "token_type_ids",
    "mm_token_type_ids",
    "image_position_ids",
)
_SHARDED = ("FSDP", "DEEPSPEED", "MEGATRON_LM")
# Numbers in a model's configuration that change its logits behind the head.
_LOGIT_SCALING = ("final_logit_softcapping", "logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")

_GRADIENT_HOOK = f"{PreTrainedModel.enable_input_require_grads.__qualname__}.<locals>."

ConfigT = TypeVar("ConfigT")


def check_choices(args: Any, choices: Mapping[str, Sequence[str]]) -> None:
    """Each setting that is named is one of its allowed words.

    Raises:
        UserError: For another value; it names the nearest word.
    """
    for name, allowed in choices.items():
        value = getattr(args, name)
        if value not in allowed:
            hint = did_you_mean(str(value), allowed)
            raise UserError(f"{name}={value!r} is unknown; choose one of {', '.join(allowed)}{hint or '.'}")


def drop_repeated_hooks(model: nn.Module) -> None:
    """Keep the last of the hooks that make the inputs of a checkpointed model require gradients.

    transformers 5 adds one whenever checkpointing is turned on, and takes none away when it is turned off around a
    generation or a reference pass. Each is called for each generated token (benchmarks/bench_long_run.py).
    """
    for module in model.modules():
        hooks = module._forward_hooks
        repeated = [key for key, hook in hooks.items() if getattr(hook, "__qualname__", "").startswith(_GRADIENT_HOOK)]
        for key in repeated[:-1]:
            del hooks[key]


class SingleGeneration(int):
    """1, which is not less than 2: what `GRPOConfig.__post_init__` asks of `num_generations`."""

    def __lt__(self, other: object) -> bool:
        return False if other == 2 else int(self) < other  # type: ignore[operator]


@contextlib.contextmanager
def single_generation_allowed(args: Any) -> Iterator[None]:
    """One generation a prompt is accepted inside the block, which holds `GRPOConfig.__post_init__`.

    Only a baseline of the group needs two; a critic is a baseline of its own, and TRL's trainer runs with one.
    """
    num_generations = args.num_generations
    if num_generations == 1:
        args.num_generations = SingleGeneration(1)
    try:
        yield
    finally:
        args.num_generations = num_generations


def choose_precision(args: Any) -> None:
    """Float32 on the CPU where there is no accelerator; TRL's bf16 default is refused by `TrainingArguments` there."""
    if args.bf16 is None and not args.fp16 and not torch.accelerator.is_available():
        logger.info("No accelerator found: training in float32 on the CPU (bf16=False, use_cpu=True).")
        args.bf16 = False
        args.use_cpu = True


def resolved_arguments(
    model: Any, args: ConfigT | None, config: type[ConfigT], *, trainer: str, suffix: str
) -> tuple[Any, ConfigT]:
    """Model and configuration as a trainer starts with them.

    Args:
        model: Name, folder or module.
        args: Configuration, or None for the defaults in a folder named after the model and `suffix`.
        config: Class that `args` must be of.
        trainer: Name of the trainer's class, for the message.
        suffix: End of the default output folder's name.

    Returns:
        The model, "smol" replaced by its folder, and the configuration.

    Raises:
        UserError: If `args` is another configuration, or the installed TRL is not a tested one.
    """
    require_tested_trl()
    if isinstance(model, str):
        model = resolve_model(model)
    if args is None:
        # imported here: a configuration alone can do without the seconds it takes
        from trl.trainer.utils import get_config_model_id

        name = model if isinstance(model, str) else get_config_model_id(model.config)
        args = config(f"{name.rstrip('/').split('/')[-1]}-{suffix}")  # type: ignore[call-arg]
    if not isinstance(args, config):
        raise UserError(f"args is a {type(args).__name__}; {trainer} takes a {config.__name__} (its fields and more).")
    return model, args


def check_trainable(model: Any) -> None:
    """A PeftModel has something to train."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(
            "The PeftModel has nothing to train: it was loaded for inference; load it with "
            "PeftModel.from_pretrained(base, path, is_trainable=True)."
        )


def check_plain_logits(model: Any) -> None:
    """The full divergence is computed from hidden states and head, and needs the logits to be their product."""
    config = model.config.get_text_config()
    used = [name for name in _LOGIT_SCALING if getattr(config, name, None) not in (None, 1.0)]
    if used:
        raise UserError(
            f"kl_estimator='full' does not support a model that caps or scales its logits ({used[0]}); use 'k3'."
        )


def check_num_prompts(dataset: Any, args: Any, remedy: str) -> None:
    """There are enough prompts for one generation batch; with fewer, TRL's sampler gives none and nothing trains."""
    needed = args.generation_batch_size // args.num_generations
    if hasattr(dataset, "__len__") and len(dataset) < needed:
        raise UserError(f"The data set has {len(dataset)} prompts and one generation batch needs {needed}; {remedy}")


def sharding_of(accelerator: Any) -> str | None:
    """Name of the distribution under which no process holds whole weights; None for one process or DDP."""
    kind = str(accelerator.distributed_type).rpartition(".")[2]
    return kind if kind in _SHARDED else None


def loss_mask(inputs: Mapping[str, Any]) -> torch.Tensor:
    """(B, T): 1 on the tokens the policy wrote, 0 on padding and on what tools wrote."""
    mask: torch.Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if inputs.get("tool_mask") is not None else mask


def float32_adapter(model: Any) -> dict[str, torch.Tensor]:
    """Float32 copies of the trainable weights of a quantised PeftModel: TRL rounds them to bfloat16."""
    if (
        isinstance(model, str)
        or not is_peft_model(model)
        or not getattr(model, "is_quantized", getattr(model, "is_loaded_in_4bit", False))
    ):
        return {}
    return {n: p.detach().float().clone() for n, p in model.named_parameters() if p.requires_grad}


def restore_float32(model: Any, precise: Mapping[str, torch.Tensor]) -> None:
    """Trainable adapters in float32 again: at small learning rates bfloat16 entries hardly ever move."""
    if not is_peft_model(model):
        return
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype in (torch.bfloat16, torch.float16):
            parameter.data = precise[name].to(parameter.device) if name in precise else parameter.data.float()


def backbone_of(model: Any) -> nn.Module:
    """The module that returns `last_hidden_state`: the causal LM below PEFT, without its LM head."""
    base = model.get_base_model() if is_peft_model(model) else model
    return base.base_model if isinstance(base, PreTrainedModel) else base


def run_backbone(backbone: nn.Module, inputs: Mapping[str, Any], rows: slice = slice(None)) -> torch.Tensor:
    """Hidden states (B, T+1, H): before each completion token, and after the last one."""
    ids = torch.cat([inputs["prompt_ids"][rows], inputs["completion_ids"][rows]], dim=1)
    mask = torch.cat([inputs["prompt_mask"][rows], inputs["completion_mask"][rows]], dim=1)
    extra = {key: inputs[key] for key in MULTIMODAL_KEYS if inputs.get(key) is not None}
    output = backbone(input_ids=ids, attention_mask=mask, use_cache=False, **extra)
    return output.last_hidden_state[:, -inputs["completion_ids"].size(1) - 1 :]


def hidden_states(backbone: nn.Module, inputs: Mapping[str, Any], rows: slice = slice(None)) -> torch.Tensor:
    """Hidden states (B, T, H) before each completion token."""
    return run_backbone(backbone, inputs, rows)[:, :-1]


def watch_hidden_states(trainer: Any) -> None:
    """Hand the output of every pass of the policy's backbone to `trainer._record_hidden`."""
    this = weakref.ref(trainer)  # the model outlives the trainer, and must not keep it
    backbone_of(trainer.model).register_forward_hook(
        lambda module, args, output: owner._record_hidden(output) if (owner := this()) is not None else None
    )


def replace_logged_advantages(trainer: Any, advantages: Sequence[float]) -> None:
    """Put these in the place of the advantages that TRL logged for the last completions in the table."""
    logged = trainer._logs["advantages"]
    for _ in range(min(len(advantages), len(logged))):
        logged.pop()
    logged.extend(advantages)


def log_mean_advantages(trainer: Any, advantages: torch.Tensor, mask: torch.Tensor) -> None:
    """Log each completion's mean advantage over the tokens of `mask`, both (B, T), of all processes."""
    means = (advantages * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    replace_logged_advantages(trainer, trainer.accelerator.gather(means).tolist())
