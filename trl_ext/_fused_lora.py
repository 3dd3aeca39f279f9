"""LoRA layers that take fewer kernels a call, for passes without gradients: generation is bound by their number."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import torch
from peft.tuners.lora.layer import Linear as LoraLinear
from torch import nn
from torch.nn import functional


def _quantized_kinds() -> tuple[tuple[type, ...], tuple[type, ...]]:
    """Layers of bitsandbytes: peft's around them, and the layers themselves."""
    if importlib.util.find_spec("bitsandbytes") is None:
        return (), ()
    import bitsandbytes
    from peft.tuners.lora import bnb

    lora = tuple(getattr(bnb, name) for name in ("Linear4bit", "Linear8bitLt") if hasattr(bnb, name))
    return lora, (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)


class _FusedForward:
    """The `forward` of one LoRA layer: the base layer, then its adapter as one product and one addition of another.

    peft casts the input to the adapter's float32, multiplies twice, scales, adds and casts back: six kernels where the
    base is in bfloat16. Here the matrices are cast once, to the type of the base layer's output, which is what autocast
    makes of them in training.
    """

    def __init__(self, layer: Any, adapter: str) -> None:
        self._layer = layer
        self._plain: Callable[..., torch.Tensor] = layer.forward
        self._base = layer.base_layer
        self._active = layer.active_adapter
        self._scaling = float(layer.scaling[adapter])
        self._weights = layer.lora_A[adapter].weight.detach(), layer.lora_B[adapter].weight.detach()
        self._down, self._up = self._cast(self._weights[0].dtype)

    def _cast(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        down, up = self._weights
        return down.to(dtype), up.to(dtype).t()

    def _is_plain_call(self) -> bool:
        layer = self._layer
        return not (
            torch.is_grad_enabled()
            or layer.disable_adapters
            or layer.merged_adapters
            or layer.active_adapter != self._active
        )

    def __call__(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if args or kwargs or not self._is_plain_call():
            return self._plain(x, *args, **kwargs)
        result: torch.Tensor = self._base(x)
        if result.dtype != self._down.dtype:
            self._down, self._up = self._cast(result.dtype)
        low = functional.linear(x.to(result.dtype), self._down)
        # in place: nobody else holds what the base layer just returned
        rows = result.reshape(-1, result.shape[-1])
        rows.addmm_(low.reshape(-1, low.shape[-1]), self._up, alpha=self._scaling)
        return rows.view(result.shape)


def _adapter_to_fuse(layer: Any, kinds: tuple[type, ...], bases: tuple[type, ...]) -> str | None:
    """The one adapter of a layer whose application can be fused, or None."""
    if type(layer) not in kinds or type(layer.base_layer) not in bases or "forward" in vars(layer):
        return None
    if layer.disable_adapters or layer.merged or len(layer.active_adapters) != 1:
        return None
    adapter: str = layer.active_adapters[0]
    if adapter not in layer.lora_A or adapter in layer.lora_variant:
        return None  # nothing to apply, or a variant such as DoRA, which has a formula of its own
    down, up, dropout = layer.lora_A[adapter], layer.lora_B[adapter], layer.lora_dropout[adapter]
    if any(type(part) is not nn.Linear or part.bias is not None for part in (down, up)):
        return None
    if dropout.training and getattr(dropout, "p", 0.0) > 0:
        return None
    parts = (down, up, dropout, layer.base_layer)
    is_hooked = any(part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part) for part in parts)
    return None if is_hooked else adapter


@contextlib.contextmanager
def fused_lora(model: nn.Module) -> Iterator[int]:
    """Within the block, passes without gradients take fewer kernels in each LoRA layer; all others stay as they are.

    Fused are layers of [`~peft.LoraConfig`] on `nn.Linear` and on 4-bit and 8-bit layers with one active adapter and
    no dropout, variant (DoRA, ...), bias or hook. A call with gradients, with adapters off or with another adapter
    than the one that was active at the start takes peft's own way.

    Args:
        model (`nn.Module`): A model with LoRA layers, or without any. Its weights must not change within the block.

    Yields:
        `int`: The number of layers that are fused.

    Example:
        >>> from peft import LoraConfig, get_peft_model
        >>> from trl_ext.testing import tiny_model
        >>> model = get_peft_model(tiny_model(), LoraConfig(target_modules="all-linear"))
        >>> with torch.no_grad(), fused_lora(model) as count:
        ...     logits = model(input_ids=torch.tensor([[1, 2, 3]])).logits
        >>> count, tuple(logits.shape[:2])
        (14, (1, 3))
    """
    lora, quantized = _quantized_kinds()
    fused = []
    try:
        for layer in model.modules():
            adapter = _adapter_to_fuse(layer, (LoraLinear, *lora), (nn.Linear, *quantized))
            if adapter is not None:
                layer.forward = _FusedForward(layer, adapter)
                fused.append(layer)
        yield len(fused)
    finally:
        for layer in fused:
            del layer.forward
