"""Completions of vLLM in this process, where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trl_ext.errors import UserError
from trl_ext.evaluation._prompt_ids import check_room, prompt_ids, stop_ids
from trl_ext.evaluation.requests import Completion, Request, SamplingParams

INSTALL = 'pip install "trl[vllm]"'


class VLLMGenerator:
    """Completions of a model that vLLM holds. The seeds are the requests'; the kernels of vLLM round otherwise than
    transformers, so the texts are not those of `TransformersGenerator`.

    Args:
        model (`str`, *optional*): name or folder of a model or an adapter, as of `open_generator`.
        adapter (`str`, *optional*): name or folder of a LoRA adapter.
        revision, adapter_revision, load_in_4bit, dtype: as of `open_generator`.
        chat_template_kwargs (`dict`, *optional*): further arguments of the chat template.
        settings: further arguments of `vllm.LLM`, such as `tensor_parallel_size` or `gpu_memory_utilization`.

    Raises:
        UserError: If vLLM is not installed, or the model cannot be found.
    """

    def __init__(
        self,
        model: str | None,
        *,
        adapter: str | None = None,
        revision: str | None = None,
        adapter_revision: str | None = None,
        load_in_4bit: bool = False,
        dtype: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        if importlib.util.find_spec("vllm") is None:
            raise UserError(f"backend='vllm' needs the package vllm; install it with `{INSTALL}`.")
        from trl_ext.evaluation._load_model import model_and_adapter, tokenizer_of

        self.name, self.adapter = model_and_adapter(model, adapter)
        self.revision, self.load_in_4bit, self.dtype = revision, load_in_4bit, dtype or "auto"
        self.chat_template_kwargs = dict(chat_template_kwargs or {})
        self._adapter_folder = None if self.adapter is None else _downloaded(self.adapter, adapter_revision)
        options: dict[str, Any] = {"model": self.name, "revision": revision, "dtype": self.dtype}
        if load_in_4bit:
            options |= {"quantization": "bitsandbytes"}
        if self._adapter_folder is not None:
            options |= {"enable_lora": True, "max_lora_rank": _rank(self._adapter_folder)}
            source = tokenizer_of(self.name, self._adapter_folder)
            options |= {} if source == self.name else {"tokenizer": source}
        options |= settings
        from vllm import LLM

        self.llm = LLM(**options)
        self.tokenizer = self.llm.get_tokenizer()

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """One completion for each request of a batch, in order; arguments as of every `Generator`.

        Raises:
            UserError: If a prompt leaves no room in the model's context.
        """
        if not requests:
            return []
        prompts = [prompt_ids(self.tokenizer, request, self.chat_template_kwargs) for request in requests]
        context = self.llm.llm_engine.model_config.max_model_len
        limits = check_room(requests, prompts, params.max_new_tokens, context)
        outputs = self.llm.generate(
            [{"prompt_token_ids": ids} for ids in prompts],
            [self._settings(request, limit, params) for request, limit in zip(requests, limits, strict=True)],
            lora_request=self._adapter_request(),
            use_tqdm=False,
        )
        return [_completion(output.outputs[0]) for output in outputs]

    def _settings(self, request: Request, limit: int, params: SamplingParams) -> Any:
        from vllm import SamplingParams as VLLMParams

        return VLLMParams(
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k,
            max_tokens=limit,
            seed=None if params.is_greedy else request.seed,
            stop_token_ids=stop_ids(self.tokenizer),
        )

    def _adapter_request(self) -> Any:
        if self._adapter_folder is None:
            return None
        from vllm.lora.request import LoRARequest

        return LoRARequest("adapter", 1, self._adapter_folder)

    def describe(self) -> dict[str, Any]:
        """Model, adapter, dtype and version, as JSON."""
        import vllm

        return {
            "backend": "vllm",
            "model": self.name,
            "revision": self.revision,
            "adapter": self.adapter,
            "dtype": self.dtype,
            "quantization": "bitsandbytes 4-bit" if self.load_in_4bit else None,
            "chat_template_kwargs": self.chat_template_kwargs,
            "versions": {"vllm": vllm.__version__},
        }


def _downloaded(adapter: str, revision: str | None) -> str:
    """The adapter's folder; of a name on the Hub that of the commit, which vLLM cannot be told."""
    if revision is None or Path(adapter).is_dir():
        return adapter
    from huggingface_hub import snapshot_download

    return snapshot_download(adapter, revision=revision)


def _rank(adapter: str) -> int:
    """The adapter's rank, raised to one that vLLM's kernels are made for."""
    from peft import PeftConfig

    rank = int(getattr(PeftConfig.from_pretrained(adapter), "r", 16))
    return next((size for size in (8, 16, 32, 64, 128, 256, 320, 512) if size >= rank), rank)


def _completion(output: Any) -> Completion:
    return Completion(output.text, len(output.token_ids), output.finish_reason == "length")
