"""The reference of a policy with an adapter is the policy as it was before the first update, whatever its start.

TRL's reference is the base with the adapter off; for a given PeftModel it is a second adapter "ref", made from the same
configuration and filled with the first one's weights. The first is another model where a fresh adapter is not the
identity on an unmodified base: PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA move a part of the base's weights into the
adapter, and `init_lora_weights=False` draws all of it at random. The second initialises "ref" as the configuration
says, and so takes another part out of the base that the policy stands on, or replicates its layers once more.

Here such a policy has a "ref" adapter in both cases, a copy that leaves the base alone.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
from accelerate.utils import is_peft_model
from peft import LoraConfig

from trl_ext.errors import UserError

REFERENCE = "ref"  # TRL's name

# Adapters that begin with random weights whatever `init_weights` says.
_NEVER_NEUTRAL = ("UNILORA",)
_REMEDY = "use a LoRA, or kl_coef=0 (beta=0)."


def neutral_config(config: Any) -> Any:
    """A copy of a LoRA's configuration from which one more adapter is made without a change to the base."""
    config = copy.deepcopy(config)
    changes: dict[str, Any] = {
        "init_lora_weights": True,
        "eva_config": None,
        "corda_config": None,
        "lora_ga_config": None,
    }
    changes |= {"loftq_config": {}, "layer_replication": None}
    for name, value in changes.items():
        if hasattr(config, name):
            setattr(config, name, value)
    return config


def check_reference(args: Any, peft_config: Any) -> None:
    """A new adapter that is no LoRA begins as the identity, where there is a reference to compare it with.

    Args:
        args: Configuration of the trainer.
        peft_config: What the trainer makes an adapter from, or None.

    Raises:
        UserError: If it does not, so that the KL divergence is not zero before the first update.
    """
    if peft_config is None or args.beta == 0.0 or _is_lora(peft_config):
        return
    kind = type(peft_config).__name__
    if getattr(peft_config, "is_prompt_learning", False) or peft_config.peft_type in _NEVER_NEUTRAL:
        raise UserError(f"A fresh adapter of {kind} changes the model, and TRL's reference lacks it; {_REMEDY}")
    for name in ("init_weights", "init_lora_weights"):
        if getattr(peft_config, name, True) is False:
            raise UserError(
                f"{kind} with {name}=False begins at random, and TRL's reference lacks that start; set {name}=True, or "
                "kl_coef=0 (beta=0)."
            )


def _is_lora(config: Any) -> bool:
    return type(config) is LoraConfig  # a subclass such as AdaLoRA keeps state of its own


@contextlib.contextmanager
def neutral_reference(model: Any) -> Iterator[None]:
    """Inside the block, which holds TRL's constructor, "ref" is made of a given PeftModel without touching its base."""
    configs = {} if isinstance(model, str) or not is_peft_model(model) else model.peft_config
    given = configs.get("default")
    if given is None or not _is_lora(given):
        yield
        return
    configs["default"] = neutral_config(given)
    try:
        yield
    finally:
        configs["default"] = given


def keep_start(model: Any, beta: float) -> None:
    """Add the reference of a policy whose LoRA is not the identity: a frozen copy of it, as TRL's is to be.

    TRL copies what has ".default." inside its name, and so leaves out adapters on embeddings, the rows of trained
    tokens, and most of what is no LoRA.

    Args:
        model: The policy.
        beta: Coefficient of the KL term; without one there is no reference.

    Raises:
        UserError: If the LoRA trains biases, of which PEFT keeps one set.
    """
    if beta == 0.0 or not is_peft_model(model):
        return
    if REFERENCE in model.peft_config:
        _fill(model, "default")
        return
    active = model.active_adapters[0]
    config = model.peft_config[active]
    if not _is_lora(config) or _is_identity(model, active):
        return
    if config.bias != "none":
        raise UserError(
            f"bias={config.bias!r} with init_lora_weights={config.init_lora_weights!r} has no reference, as "
            "that would be a second adapter; set bias='none', init_lora_weights=True, or kl_coef=0 (beta=0)."
        )
    _add_copy(model, active, config)


def _is_identity(model: Any, adapter: str) -> bool:
    """Whether the factor that begins at zero is zero in every layer: no start that alters the base leaves it so."""
    return not any(
        weight.count_nonzero()
        for name, weight in model.named_parameters()
        if f"lora_B.{adapter}" in name or f"lora_embedding_A.{adapter}" in name
    )


def _add_copy(model: Any, adapter: str, config: Any) -> None:
    there = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    devices = [p.device for p in model.parameters() if p.device.type == "cuda"][:1]
    with torch.random.fork_rng(devices=devices):  # the rollouts must be those of a run without a reference
        model.add_adapter(REFERENCE, neutral_config(config))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(there.get(name, False))
    _fill(model, adapter)


def _fill(model: Any, adapter: str) -> None:
    """Give the reference the weights of this adapter."""
    weights = dict(model.named_parameters())
    for name, parameter in weights.items():
        before, found, after = f"{name}.".rpartition(f".{REFERENCE}.")
        source = weights.get(f"{before}.{adapter}.{after}".removesuffix(".")) if found else None
        if source is not None:
            parameter.data = source.detach().clone()
