"""Batched generation with transformers, in which each request draws from its own random numbers.

A row of the batch adds Gumbel noise of its own generator to its logits and takes the largest, which is a sample from
their softmax (Gumbel 1954; Maddison et al. 2014, arXiv 1411.0030). The global random state is neither read nor moved.
Equal batches give equal completions to the last bit on one machine. In another batch the padding differs, so that
logits differ by rounding: in float32 the text is almost always the same, in bfloat16 often not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from trl_ext._fused_lora import fused_lora
from trl_ext.errors import UserError
from trl_ext.evaluation._prompt_ids import check_room, prompt_ids, stop_ids
from trl_ext.evaluation.requests import Completion, Request, SamplingParams


class SeededSampling(LogitsProcessor):
    """Temperature, top-k and top-p, and then noise that makes the largest score a sample.

    Args:
        seeds (`Sequence[int]`): one for each row of the batch.
        params (`SamplingParams`): with a temperature above 0.
        device (`torch.device`): of the logits. CPU and GPU draw different numbers from one seed.
    """

    def __init__(self, seeds: Sequence[int], params: SamplingParams, device: torch.device) -> None:
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self.temperature = params.temperature
        self.warpers: list[Any] = [TopKLogitsWarper(params.top_k)] if params.top_k else []
        self.warpers += [TopPLogitsWarper(params.top_p)] if params.top_p < 1 else []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Scores (B, V) in float32 whose largest of each row is the sample."""
        scores = scores.float() / self.temperature
        for warper in self.warpers:
            scores = warper(input_ids, scores)
        noise = torch.empty_like(scores)
        for row, generator in zip(noise, self.generators, strict=True):
            row.uniform_(generator=generator)
        # -log(-log(u)); u = 0 gives -inf, a token that is not taken, where an exponential of 0 would give +inf
        return scores.sub_(noise.log_().neg_().log_())


class RowLimits(StoppingCriteria):
    """Ends each row at its own number of tokens: a prompt near the end of the context has room for fewer."""

    def __init__(self, prompt_length: int, limits: Sequence[int], device: torch.device) -> None:
        self.prompt_length = prompt_length
        self.limits = torch.tensor(limits, device=device)

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        """(B,): whether the row is done."""
        return self.limits <= input_ids.shape[1] - self.prompt_length


class TransformersGenerator:
    """Completions of a model that is held in memory. The model is left as it was found, also after an error.

    Forward passes run in eval mode, without gradients and outside of autocast, in the model's own dtype: a trainer
    that trains under autocast (`bf16=True` with float32 weights) evaluates in float32, as the command does with
    `--dtype float32`. Nothing of the model's generation settings is used but the tokens that end a completion.

    Args:
        model (`PreTrainedModel` or `PeftModel`): a decoder.
        tokenizer (`PreTrainedTokenizerBase`): its tokenizer, or a processor that holds one. Conversations need its
            chat template; plain text is tokenised as it is.
        chat_template_kwargs (`dict`, *optional*): further arguments of the chat template, such as
            `{"enable_thinking": False}`.
        name, adapter, revision (`str`, *optional*): what the model is called in `describe`.

    Example:

    ```python
    >>> from trl_ext.evaluation.requests import Request, SamplingParams
    >>> from trl_ext.testing import tiny_model, tiny_tokenizer
    >>> generator = TransformersGenerator(tiny_model(), tiny_tokenizer())
    >>> [completion] = generator.generate([Request("a", "2+2=", seed=1)], SamplingParams(max_new_tokens=4))
    >>> completion.num_tokens, completion.is_truncated
    (4, True)

    ```
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        adapter: str | None = None,
        revision: str | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        self.chat_template_kwargs = dict(chat_template_kwargs or {})
        self.name = name or getattr(model.config, "_name_or_path", "") or type(model).__name__
        self.adapter = adapter
        self.revision = revision
        if getattr(model.config, "is_encoder_decoder", False):
            raise UserError(f"{self.name} is an encoder-decoder model; evaluation needs a decoder (a causal LM).")
        self.stop_ids = stop_ids(self.tokenizer, getattr(model, "generation_config", None))

    @classmethod
    def from_pretrained(
        cls,
        model: str | None,
        *,
        adapter: str | None = None,
        revision: str | None = None,
        adapter_revision: str | None = None,
        load_in_4bit: bool = False,
        dtype: str | None = None,
        device: str | None = None,
        **settings: Any,
    ) -> TransformersGenerator:
        """Load a model, and an adapter on top of it that is not merged, as in training.

        Args:
            model, adapter, revision, adapter_revision, load_in_4bit, dtype, device: as of `open_generator`.
            settings: further arguments of the class.

        Raises:
            UserError: If something cannot be found or loaded; the message says what and what to do.
        """
        from trl_ext.evaluation._load_model import load_model

        loaded = load_model(
            model,
            adapter=adapter,
            revision=revision,
            adapter_revision=adapter_revision,
            load_in_4bit=load_in_4bit,
            dtype=dtype,
            device=device,
        )
        names = {"name": loaded.name, "adapter": loaded.adapter, "revision": revision}
        return cls(loaded.model, loaded.tokenizer, **{**names, **settings})

    @property
    def device(self) -> torch.device:
        """Where the model's inputs go."""
        return self.model.get_input_embeddings().weight.device

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """One completion for each request of a batch, in order.

        Args:
            requests (`Sequence[Request]`): B requests; `plan_batches` makes batches of them.
            params (`SamplingParams`): how to draw; its `seed` is not used, each request has its own.

        Returns:
            `list[Completion]`: B completions.

        Raises:
            UserError: If a prompt leaves no room in the model's context, or has no tokens where the tokenizer has no
                token to start from.
        """
        if not requests:
            return []
        prompts = [prompt_ids(self.tokenizer, request, self.chat_template_kwargs) for request in requests]
        context = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        limits = check_room(requests, prompts, params.max_new_tokens, context)
        with evaluating(self.model), fused_lora(self.model):
            generated = self._generate(prompts, limits, [request.seed for request in requests], params)
        return [self._completion(ids, limit) for ids, limit in zip(generated, limits, strict=True)]

    def _generate(
        self, prompts: Sequence[list[int]], limits: Sequence[int], seeds: Sequence[int], params: SamplingParams
    ) -> list[list[int]]:
        """Token ids behind each prompt, with what follows the end of a row still there."""
        device, length = self.device, max(map(len, prompts))
        # padding by hand: the tokenizer's own side and token stay as they are
        padded = [[self._pad_id] * (length - len(ids)) + ids for ids in prompts]
        mask = [[0] * (length - len(ids)) + [1] * len(ids) for ids in prompts]
        processors = [] if params.is_greedy else [SeededSampling(seeds, params, device)]
        output = self.model.generate(
            input_ids=torch.tensor(padded, device=device),
            attention_mask=torch.tensor(mask, device=device),
            generation_config=self._settings(max(limits)),
            logits_processor=LogitsProcessorList(processors),
            stopping_criteria=StoppingCriteriaList([RowLimits(length, limits, device)]),
        )
        rows: list[list[int]] = output[:, length:].tolist()
        return rows

    @property
    def _pad_id(self) -> int:
        known = [self.tokenizer.pad_token_id, *self.stop_ids]
        return next((token for token in known if token is not None), 0)

    def _settings(self, max_new_tokens: int) -> GenerationConfig:
        return GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=False,  # the largest score is the sample already
            num_beams=1,
            use_cache=True,
            pad_token_id=self._pad_id,
            eos_token_id=self.stop_ids or None,
        )

    def _completion(self, ids: list[int], limit: int) -> Completion:
        ids = ids[:limit]
        end = next((place for place, token in enumerate(ids) if token in self.stop_ids), None)
        text = self.tokenizer.decode(ids[:end], skip_special_tokens=True)
        return Completion(text, len(ids) if end is None else end + 1, end is None)

    def describe(self) -> dict[str, Any]:
        """Model, adapter, dtype, quantization and versions, as JSON."""
        import peft
        import transformers

        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        versions |= {"peft": peft.__version__} if hasattr(self.model, "peft_config") else {}
        template = self.tokenizer.chat_template
        return {
            "backend": "transformers",
            "model": self.name,
            "revision": self.revision,
            "adapter": self.adapter,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "quantization": _quantization(self.model),
            "device": self.device.type,
            "stop_token_ids": self.stop_ids,
            "chat_template": None if template is None else hashlib.sha256(str(template).encode()).hexdigest()[:16],
            "chat_template_kwargs": self.chat_template_kwargs,
            "versions": versions,
        }


def _quantization(model: nn.Module) -> str | None:
    settings = getattr(getattr(model, "config", None), "quantization_config", None)
    if settings is None:
        return None
    method = getattr(settings, "quant_method", None) or "quantized"
    kind = getattr(settings, "bnb_4bit_quant_type", None) if getattr(settings, "load_in_4bit", False) else None
    return " ".join(str(getattr(part, "value", part)) for part in (method, "4-bit" if kind else None, kind) if part)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """The model in eval mode, without gradients and autocast, with generation settings of its own; restored behind.

    Gradient checkpointing needs no change, since its layers look at the training mode. A module that a trainer keeps
    in eval mode on purpose stays there.
    """
    in_training = [module for module in model.modules() if module.training]
    owners = [model, model.get_base_model()] if hasattr(model, "get_base_model") else [model]
    configs = [(owner, owner.generation_config) for owner in owners if "generation_config" in vars(owner)]
    # accelerate puts autocast around the forward method itself, and keeps the plain one here
    plain, wrapped = vars(model).get("_original_forward"), vars(model).get("forward")
    device = model.get_input_embeddings().weight.device.type
    try:
        model.eval()
        for module in model.modules():
            # Seen in eval mode, bitsandbytes repacks a layer on some CPUs for good, its scales rounded to bfloat16: the
            # training would go on with other weights. Nothing else in such a layer looks at the mode.
            if type(module).__module__.startswith("bitsandbytes."):
                module.training = True
        for owner, _ in configs:
            owner.generation_config = GenerationConfig()
        if plain is not None and wrapped is not None:
            model.forward = plain
        with torch.no_grad(), torch.autocast(device, enabled=False):
            yield
    finally:
        if plain is not None and wrapped is not None:
            model.forward = wrapped
        for owner, config in configs:
            owner.generation_config = config
        model.eval()
        for module in in_training:
            module.training = True
