"""The critic: a scalar head on a trunk, where the trunk is a second LoRA, the policy itself, or a separate model.

How it differs from other systems: the critic's parameters are never part of the policy's state dict, of its DDP
buckets or of its gradient norm. Its gradients come from a backward pass of its own (`adapter`, `model`), so only one
graph is alive at a time and gradient checkpointing recomputes with the adapter that ran forward.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from accelerate.utils import is_peft_model
from peft.tuners.trainable_tokens import TrainableTokensLayer
from torch import nn
from transformers import AutoModelForSequenceClassification

from trl_ext._reference import neutral_config
from trl_ext._trainer import backbone_of, run_backbone
from trl_ext.errors import UserError
from trl_ext.smol import resolve_model

VALUE_ADAPTER = "value"


class ValueHead(nn.Module):
    r"""V(s) = w . rms_norm(h) + b, in float32.

    The hidden state is divided by its root mean square first: its scale differs by orders of magnitude between
    models, and with it the step that one learning rate means. Weights start at zero, so the first advantages are
    Monte Carlo returns and not the noise of a random head.

    Args:
        hidden_size (`int`): Width of the trunk's last hidden state.
        score (`nn.Linear`, *optional*): Head of a reward model (one label) to start from; keeps its own scale.
    """

    def __init__(self, hidden_size: int, score: nn.Linear | None = None) -> None:
        super().__init__()
        self.normalize = score is None
        # without the random numbers of a default initialisation: the rollouts must be those of a run without a critic
        self.linear = nn.utils.skip_init(nn.Linear, hidden_size, 1, dtype=torch.float32)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        if score is not None:
            self.linear.weight.data.copy_(score.weight.data)
            if score.bias is not None:
                self.linear.bias.data.copy_(score.bias.data)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Values (..., ) of hidden states (..., H)."""
        device = self.linear.weight.device
        with torch.autocast(device.type, enabled=False):
            hidden_states = hidden_states.to(device=device, dtype=torch.float32)
            if self.normalize:
                hidden_states = nn.functional.rms_norm(hidden_states, hidden_states.shape[-1:], eps=1e-6)
            return self.linear(hidden_states).squeeze(-1)


def hidden_size_of(model: Any) -> int:
    """Width of the model's last hidden state."""
    return int(model.config.get_text_config().hidden_size)


class Critic(ABC):
    """Common part of the three critics. Values are (B, T+1) float32: V before each token, and after the last."""

    mode: str
    #: a separate critic has its own forward and backward pass; the shared one rides on the policy's
    separate = True

    def __init__(self, head: ValueHead) -> None:
        self.head = head

    @abstractmethod
    def trunk_parameters(self) -> dict[str, nn.Parameter]:
        """Trainable parameters of the critic's own trunk, by name."""

    @abstractmethod
    def forward_trunk(self, inputs: Mapping[str, Any], rows: slice = slice(None)) -> torch.Tensor:
        """Hidden states (B, T+1, H) of the critic's trunk; `active` must hold."""

    def active(self) -> contextlib.AbstractContextManager[None]:
        """Context in which the critic's trunk runs, forward and backward."""
        return contextlib.nullcontext()

    def parameters(self) -> dict[str, nn.Parameter]:
        """Everything the critic owns and trains, by a name that does not change between runs."""
        head = {f"head.{name}": p for name, p in self.head.named_parameters()}
        return {**head, **{f"trunk.{name}": p for name, p in self.trunk_parameters().items()}}

    def enable_gradients(self) -> None:
        """Undo PEFT, which clears `requires_grad` of every adapter but the one it activates."""
        for parameter in self.parameters().values():
            parameter.requires_grad_(True)

    def values(self, inputs: Mapping[str, Any]) -> torch.Tensor:
        """Values (B, T+1) of one micro-batch, with gradients."""
        return self.head(self.forward_trunk(inputs))

    @torch.no_grad()
    def rollout_values(self, inputs: Mapping[str, Any], batch_size: int) -> torch.Tensor:
        """Values (B, T+1) of a whole generation batch, `batch_size` rows at a time, without gradients."""
        num_rows = inputs["completion_ids"].size(0)
        if inputs.get("pixel_values") is not None:
            batch_size = num_rows  # image tensors are not indexed by row
        chunks = []
        with self.active():
            for start in range(0, num_rows, batch_size):
                chunks.append(self.head(self.forward_trunk(inputs, slice(start, start + batch_size))))
        return torch.cat(chunks)

    def train(self, training: bool = True) -> None:
        self.head.train(training)


class AdapterCritic(Critic):
    """A second LoRA named "value" on the policy's frozen base, and a head.

    Args:
        model (`PeftModel`): The policy; its active adapter must be a LoRA.
        seed (`int`): Seed of the adapter's initial weights.
    """

    mode = "adapter"

    def __init__(self, model: Any, seed: int) -> None:
        super().__init__(ValueHead(hidden_size_of(model)))
        self.model = model
        self._parameters = self._add_adapter(seed)
        self.backbone = backbone_of(model)
        # modules that switch adapters, and which of them the critic activates
        self._switches: list[tuple[Any, list[str]]] = [
            (module, [] if isinstance(module, TrainableTokensLayer) else [VALUE_ADAPTER])
            for module in model.modules()
            if hasattr(module, "_active_adapter")
        ]

    def _add_adapter(self, seed: int) -> dict[str, nn.Parameter]:
        """The adapter's parameters by name. Not found by their names: a base may have modules called "value"."""
        there = dict(self.model.named_parameters())
        trainable = {name for name, parameter in there.items() if parameter.requires_grad}
        devices = [p.device for p in self.model.parameters() if p.device.type == "cuda"][:1]
        with torch.random.fork_rng(devices=devices):  # the rollouts must be those of a run without a critic
            torch.manual_seed(seed)
            self.model.add_adapter(VALUE_ADAPTER, _value_lora_config(self.model))
        own = {name: p for name, p in self.model.named_parameters() if name not in there}
        for parameter in own.values():
            parameter.data = parameter.data.float()
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in own or name in trainable)
        return own

    def trunk_parameters(self) -> dict[str, nn.Parameter]:
        return self._parameters

    def forward_trunk(self, inputs: Mapping[str, Any], rows: slice = slice(None)) -> torch.Tensor:
        return run_backbone(self.backbone, inputs, rows)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        # Not `set_adapter`: it walks every module and clears `requires_grad` of the policy, whose gradient is then
        # dropped without an error.
        before = [module._active_adapter for module, _ in self._switches]
        for module, adapters in self._switches:
            module._active_adapter = adapters
        try:
            yield
        finally:
            for (module, _), adapter in zip(self._switches, before, strict=True):
                module._active_adapter = adapter


def _value_lora_config(model: Any) -> Any:
    from peft import LoraConfig

    policy = model.peft_config[model.active_adapter]
    if type(policy) is not LoraConfig:  # a subclass such as AdaLoRA keeps state of its own
        raise UserError(
            f"critic='adapter' copies a LoRA policy, but the policy's adapter is a {type(policy).__name__}; use "
            "critic='shared' or critic='model'."
        )
    config = neutral_config(policy)
    changes = {"lora_dropout": 0.0, "modules_to_save": None, "bias": "none"}
    changes |= {"inference_mode": False, "use_dora": False, "trainable_token_indices": None}
    for name, value in changes.items():
        if hasattr(config, name):
            setattr(config, name, value)
    return config


class SharedCritic(Critic):
    """A head on the policy's own trunk. In training it reads the hidden states of the policy's forward pass.

    Args:
        model: The policy.
        detach (`bool`): Stop the value gradient at the head.
    """

    mode = "shared"
    separate = False

    def __init__(self, model: Any, detach: bool) -> None:
        super().__init__(ValueHead(hidden_size_of(model)))
        self.backbone = backbone_of(model)
        self.detach = detach

    def trunk_parameters(self) -> dict[str, nn.Parameter]:
        return {}

    def forward_trunk(self, inputs: Mapping[str, Any], rows: slice = slice(None)) -> torch.Tensor:
        return run_backbone(self.backbone, inputs, rows)

    def values_from_hidden(self, hidden_states: torch.Tensor, completion_length: int) -> torch.Tensor:
        """Values (B, T+1) from the trunk's hidden states (B, P+T, H) of the policy's forward pass."""
        hidden_states = hidden_states[:, -completion_length - 1 :]
        return self.head(hidden_states.detach() if self.detach else hidden_states)


class ModelCritic(Critic):
    """A separate model of the same tokenizer: a path, a causal LM, a bare trunk, or a reward model with its head.

    Args:
        value_model (`str` or `nn.Module`): The model; a path is loaded in float32 as a one-label classifier.
        vocab_size (`int`): The policy's vocabulary, which the critic must be able to read.
    """

    mode = "model"

    def __init__(self, value_model: Any, vocab_size: int, init_kwargs: dict[str, Any]) -> None:
        if isinstance(value_model, str):
            value_model = _load_value_model(value_model, init_kwargs)
        if not hasattr(value_model, "get_input_embeddings"):
            raise UserError(f"value_model is a {type(value_model).__name__}; pass a transformers model or a PeftModel.")
        rows = value_model.get_input_embeddings().weight.shape[0]
        if rows < vocab_size:
            raise UserError(
                f"value_model reads {rows} tokens and the policy writes {vocab_size}; use a critic with the policy's "
                "tokenizer."
            )
        super().__init__(ValueHead(hidden_size_of(value_model), _score_head(value_model)))
        self.model = value_model
        self.backbone = backbone_of(value_model)
        for name, parameter in value_model.named_parameters():
            if {"score", "lm_head"} & set(name.split(".")):
                parameter.requires_grad_(False)  # our head stands in for it; it would never see a gradient
        self._trainable = {n: p for n, p in self.backbone.named_parameters() if p.requires_grad}

    def trunk_parameters(self) -> dict[str, nn.Parameter]:
        return self._trainable

    def forward_trunk(self, inputs: Mapping[str, Any], rows: slice = slice(None)) -> torch.Tensor:
        return run_backbone(self.backbone, inputs, rows)

    def train(self, training: bool = True) -> None:
        super().train(training)
        self.model.train(training)


def _load_value_model(path: str, init_kwargs: dict[str, Any]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):  # a missing head is drawn at random
        model, info = AutoModelForSequenceClassification.from_pretrained(
            path, num_labels=1, output_loading_info=True, **{"dtype": torch.float32, **init_kwargs}
        )
    if any("score" in key for key in info["missing_keys"]):
        model.score = None  # not a reward model: its head is fresh random weights, and ours starts at zero
    return model


def _score_head(model: Any) -> nn.Linear | None:
    base = model.get_base_model() if is_peft_model(model) else model
    score = getattr(base, "score", None)
    score = getattr(score, "original_module", score)
    return score if isinstance(score, nn.Linear) and score.out_features == 1 else None


def build_critic(model: Any, args: Any, value_model: str | nn.Module | None) -> Critic:
    """The critic that `args.critic` asks for, on the policy's device.

    Raises:
        ValueError: If the policy and the critic do not fit; the sentence says what to change.
    """
    if args.critic != "model" and value_model is not None:
        raise UserError(f"value_model is used by critic='model' only, but critic={args.critic!r}; drop one of them.")
    if isinstance(value_model, nn.Module):
        own = {id(parameter) for parameter in model.parameters()}
        if any(id(parameter) in own for parameter in value_model.parameters()):
            is_policy = value_model in (model, model.get_base_model() if is_peft_model(model) else None)
            fault = "is the policy itself" if is_policy else "shares weights with the policy"
            raise UserError(f"value_model {fault}; pass a second model, or use critic='shared'.")
    if args.critic == "adapter":
        return AdapterCritic(model, args.seed)
    if args.critic == "shared":
        return SharedCritic(model, args.critic_detach)
    assert value_model is not None, "see checks.check_critic_choice"
    if isinstance(value_model, str):
        value_model = resolve_model(value_model)
    init_kwargs = {k: v for k, v in (args.model_init_kwargs or {}).items() if k in ("attn_implementation",)}
    return ModelCritic(value_model, model.config.get_text_config().vocab_size, init_kwargs)
