"""A judge in this process: a transformers model, perhaps the policy itself without its adapters."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from reward_funcs._judge_base import CUT, Judge, Reply, Request, check_votes, reply_tokens
from reward_funcs._judge_prompt import Message
from reward_funcs._settings import check_flag, check_setting

LEAST = 512  # tokens that there must be room for, where no length of a reply is set


class LocalJudge(Judge):
    """A judge that is a transformers model, which answers several questions at once.

    With `disable_adapter=True` and the trainer's own PEFT model the base model judges what its adapter wrote: no second
    model is in memory. Training sees nothing of it: modes, gradients, random numbers and which weights are trained are
    as before.

    Args:
        model (`str | Path | tuple`, *optional*): a path or name on the Hub; or a model with its tokenizer, as
            `(model, tokenizer)`. Without it [`~LocalJudge.attach`] gives the judge its model, before the first call.
        disable_adapter (`bool`, *optional*, defaults to `False`): judge with the adapters of a PEFT model off.
        batch_size (`int`, *optional*, defaults to 8): questions that are answered at once.
        max_new_tokens (`int`, *optional*): length of a reply; by default 640, and 128 more for each criterion beyond
            the first.
        chat_template_kwargs (`Mapping`, *optional*): further arguments of the chat template, such as
            `{"enable_thinking": False}`, without which the thoughts of Qwen3 leave no room for a verdict.
        temperature (`float`, *optional*, defaults to 0.0): above 0 for several votes.
        seed (`int`, *optional*, defaults to 0): of the sampling, with a temperature.
        device (`str`, *optional*): where a model that is loaded by name goes; by default a GPU, if there is one.
        dtype (`str`, *optional*, defaults to `"auto"`): number format of a model that is loaded by name.
        batch_timeout (`float`, *optional*): seconds for one call; what is not begun by then is a `timeout`.
        **settings: those of [`Judge`].

    Raises:
        ValueError: For settings that make no sense.

    A question that does not fit into the model's context with its reply is not judged (`too_long`). A batch is padded,
    which moves logits by rounding: with `batch_size=1` a reply cannot depend on the other questions.

    Example:

    ```python
    >>> LocalJudge().replies([], 0.0)
    []
    >>> LocalJudge(votes=3)
    Traceback (most recent call last):
    ValueError: votes=3 at temperature=0 would all be alike; set temperature above 0, or votes=1

    ```
    """

    cut_hint = (
        "set max_new_tokens higher, or turn a model's thoughts off: chat_template_kwargs={'enable_thinking': False}"
    )

    def __init__(
        self,
        model: str | Path | tuple[Any, Any] | None = None,
        *,
        disable_adapter: bool = False,
        batch_size: int = 8,
        max_new_tokens: int | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        temperature: float = 0.0,
        seed: int = 0,
        device: str | None = None,
        dtype: str = "auto",
        batch_timeout: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.path: str | None = None
        self._loaded: tuple[Any, Any] | None = None
        self._marks: list[str] = []  # the special tokens of the tokenizer
        if isinstance(model, tuple) and len(model) == 2:
            self.attach(*model)
        elif isinstance(model, (str, Path)):
            self.path = str(model)
        elif model is not None:
            raise ValueError(
                f"model={type(model).__name__}: it must be a path or a name on the Hub; give a loaded model as "
                "(model, tokenizer)"
            )
        self.disable_adapter = check_flag("disable_adapter", disable_adapter)
        self.batch_size = check_setting("batch_size", batch_size, 1, whole=True)
        self.max_new_tokens = (
            None if max_new_tokens is None else check_setting("max_new_tokens", max_new_tokens, 1, whole=True)
        )
        if not isinstance(chat_template_kwargs, (Mapping, type(None))):
            raise ValueError(
                f"chat_template_kwargs={chat_template_kwargs!r:.60}: it must be a mapping such as "
                "{'enable_thinking': False}; leave it out for none"
            )
        self.chat_template_kwargs = dict(chat_template_kwargs or {})
        self.temperature = check_setting("temperature", temperature, 0)
        check_votes(self.votes, self.temperature)
        self.seed = check_setting("seed", seed, 0, whole=True)
        self.device = device
        self.dtype = dtype
        self.batch_timeout = None if batch_timeout is None else check_setting("batch_timeout", batch_timeout, 0)

    def attach(self, model: Any, tokenizer: Any) -> None:
        """Judge with this model from now on: `judge.attach(trainer.model, trainer.processing_class)`.

        Args:
            model (`PreTrainedModel | PeftModel`): the model; it stays where it is.
            tokenizer (`PreTrainedTokenizerBase`): its tokenizer, with a chat template.

        Raises:
            ValueError: For a tokenizer without a chat template.
        """
        if getattr(tokenizer, "chat_template", None) is None:
            raise ValueError(
                f"the tokenizer {type(tokenizer).__name__} has no chat template, in which a judge is asked; set "
                "tokenizer.chat_template, or take an instruct model"
            )
        self._loaded = (model, tokenizer)
        added = getattr(tokenizer, "added_tokens_decoder", {}).values()
        found = {*getattr(tokenizer, "all_special_tokens", ()), *(str(one) for one in added if one.special)}
        self._marks = sorted(one for one in found if one.strip())

    def replies(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        """What the model says to each request."""
        if not requests:
            return []
        model, tokenizer = self._model()
        prompts = [_token_ids(tokenizer, request.messages, self.chat_template_kwargs) for request in requests]
        lengths = [self.max_new_tokens or reply_tokens(0, request.num_scores) for request in requests]
        room = getattr(model.config, "max_position_embeddings", None)
        needed = self.max_new_tokens or LEAST  # the length that is usual gives way to a small context
        replies: dict[int, Reply] = {}
        # questions of similar length together: less padding
        order = sorted(range(len(prompts)), key=lambda index: (len(prompts[index]), prompts[index]))
        fitting = [index for index in order if room is None or len(prompts[index]) + needed <= room]
        could_fit = set(fitting)
        with quiet_model(model, without_adapters=self.disable_adapter):
            for start in range(0, len(fitting), self.batch_size):
                if time.monotonic() >= deadline:
                    break
                part = fitting[start : start + self.batch_size]
                length = max(lengths[index] for index in part)
                # what is asked together is of similar length, and cut where one of it would leave the context
                length = length if room is None else min(length, room - max(len(prompts[index]) for index in part))
                found = self._generated(model, tokenizer, [prompts[index] for index in part], length, start)
                replies.update(zip(part, found, strict=True))
        for index in range(len(prompts)):
            if index not in replies:
                late = Reply(None, "timeout", "the time for the batch is over")
                long = Reply(None, "too_long", f"{len(prompts[index])} tokens do not fit the context of {room} tokens")
                replies[index] = late if index in could_fit else long
        return [replies[index] for index in range(len(prompts))]

    def _model(self) -> tuple[Any, Any]:
        if self._loaded is None:
            if self.path is None:
                raise ValueError(
                    "LocalJudge has no model; give it a path or (model, tokenizer), or call attach(model, tokenizer) "
                    "before the training begins"
                )
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer

            device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
            model = AutoModelForCausalLM.from_pretrained(self.path, dtype=self.dtype).to(device)
            self.attach(model.eval(), AutoTokenizer.from_pretrained(self.path))
            assert self._loaded is not None
        model, tokenizer = self._loaded
        return getattr(model, "module", model), tokenizer  # out of what distributed training wraps around it

    def _special_tokens(self) -> Collection[str]:
        self._model()
        return self._marks

    def _generated(
        self, model: Any, tokenizer: Any, prompts: Sequence[list[int]], length: int, number: int
    ) -> list[Reply]:
        """The replies to one batch of prompts."""
        import torch
        from transformers import GenerationConfig

        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        width = max(map(len, prompts))
        ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts], device=model.device)
        mask = torch.tensor(
            [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=model.device
        )
        own = getattr(model, "generation_config", None)
        config = GenerationConfig(
            max_new_tokens=length,
            do_sample=self.temperature > 0,
            temperature=self.temperature or None,
            pad_token_id=pad,
            eos_token_id=getattr(own, "eos_token_id", None) or tokenizer.eos_token_id,
            use_cache=True,
        )
        if self.temperature > 0:
            _seed(model, self.seed + number)
        output = model.generate(input_ids=ids, attention_mask=mask, generation_config=config)[:, width:]
        ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
        texts = tokenizer.batch_decode(output, skip_special_tokens=True)
        return [
            _reply(text, len(row) >= length and not set(ends) & set(row))
            for text, row in zip(texts, output.tolist(), strict=True)
        ]

    def _deadline(self) -> float:
        return super()._deadline() if self.batch_timeout is None else time.monotonic() + self.batch_timeout

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        # a model that was loaded by name is loaded again
        return state if self.path is None else {**state, "_loaded": None}

    def close(self) -> None:
        """Let go of a model that was loaded by name."""
        if self.path is not None:
            self._loaded = None


@contextmanager
def quiet_model(model: Any, *, without_adapters: bool) -> Iterator[None]:
    """The model for inference, and all as it was afterwards.

    Args:
        model (`PreTrainedModel | PeftModel`): the model.
        without_adapters (`bool`): turn its adapters off.

    Raises:
        ValueError: When it has no adapters to turn off.
    """
    import torch

    adapters_off = getattr(model, "disable_adapter", None)
    if without_adapters and adapters_off is None:
        raise ValueError(
            f"disable_adapter=True needs a PEFT model, not {type(model).__name__}; wrap the policy with "
            "get_peft_model, or leave disable_adapter out"
        )
    modes = [(module, module.training) for module in model.modules()]
    # turning adapters on again makes those weights trainable that are active, and only those
    trained = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(torch.random.fork_rng(devices=_gpus(model)))
            if without_adapters and adapters_off is not None:
                stack.enter_context(adapters_off())
            model.eval()
            yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter, requires_grad in trained:
            parameter.requires_grad_(requires_grad)


def _gpus(model: Any) -> list[int]:
    """The GPUs that the model is on, whose random numbers its sampling draws."""
    return sorted({one.device.index for one in model.parameters() if one.device.type == "cuda"})


def _seed(model: Any, seed: int) -> None:
    """Seed what the model samples with, and no other GPU: `torch.manual_seed` would seed those of the policy too."""
    import torch

    torch.default_generator.manual_seed(seed)
    for index in _gpus(model):
        torch.cuda.default_generators[index].manual_seed(seed)


def _token_ids(tokenizer: Any, messages: Sequence[Message], arguments: Mapping[str, Any]) -> list[int]:
    ids: list[int] = tokenizer.apply_chat_template(
        [*messages], **{"add_generation_prompt": True, **arguments, "return_dict": False}
    )
    return list(ids)


def _reply(text: str, is_cut: bool) -> Reply:
    if is_cut:
        return Reply(text, "cut", CUT)
    return Reply(text) if text.strip() else Reply(None, "refused", "the model gave an empty answer")
