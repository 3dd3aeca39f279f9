"""What trainers built on TRL's GRPO trainer share: precision, adapters, and hidden states below the head."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from accelerate.utils import is_peft_model
from torch import nn
from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

# What a model takes beside ids and mask.
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


class SingleGeneration(int):
    """One generation a prompt, for the span of `GRPOConfig.__post_init__`, which asks `num_generations < 2`.

    Only a baseline of the group needs two; TRL's trainer runs with one.
    """

    def __lt__(self, other: object) -> bool:
        return False if other == 2 else int(self) < other  # type: ignore[operator]


def choose_precision(args: Any) -> None:
    """Float32 on the CPU where there is no accelerator; TRL's bf16 default is refused by `TrainingArguments` there."""
    if args.bf16 is None and not args.fp16 and not torch.accelerator.is_available():
        logger.info("No accelerator found: training in float32 on the CPU (bf16=False, use_cpu=True).")
        args.bf16 = False
        args.use_cpu = True


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
    """Adapters of a quantised model in float32 again: at small learning rates bfloat16 entries hardly ever move."""
    if not is_peft_model(model):
        return
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype in (torch.bfloat16, torch.float16):
            parameter.data = precise[name].to(parameter.device) if name in precise else parameter.data.float()


def backbone_of(model: Any) -> nn.Module:
    """The module that returns `last_hidden_state`: the causal LM below PEFT, without its LM head."""
    base = model.get_base_model() if is_peft_model(model) else model
    return base.base_model if isinstance(base, PreTrainedModel) else base


def hidden_states(backbone: nn.Module, inputs: Mapping[str, Any], rows: slice = slice(None)) -> torch.Tensor:
    """Hidden states (B, T, H) before each completion token."""
    ids = torch.cat([inputs["prompt_ids"][rows], inputs["completion_ids"][rows]], dim=1)
    mask = torch.cat([inputs["prompt_mask"][rows], inputs["completion_mask"][rows]], dim=1)
    extra = {key: inputs[key] for key in MULTIMODAL_KEYS if inputs.get(key) is not None}
    output = backbone(input_ids=ids, attention_mask=mask, use_cache=False, **extra)
    return output.last_hidden_state[:, -inputs["completion_ids"].size(1) - 1 : -1]
