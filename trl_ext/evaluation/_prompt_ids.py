"""From a prompt to token ids, the same for every backend that has a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from trl_ext.errors import UserError
from trl_ext.evaluation.requests import Prompt, Request


def rendered(
    tokenizer: Any, prompt: Prompt, chat_template_kwargs: Mapping[str, Any], *, name: str | None = None
) -> str:
    """The prompt as text: a conversation in the chat template with the start of the answer, else as it is.

    A conversation that ends with a turn of the assistant is gone on with.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): with the chat template.
        prompt (`str` or `list[dict]`): text or messages.
        chat_template_kwargs (`Mapping`): further arguments of the template.
        name (`str`, *optional*): what messages of errors call the prompt, such as "row 3"; by default how it starts.

    Raises:
        UserError: If a conversation meets a tokenizer without a chat template, has a content that is no text, or is
            refused by the template.
    """
    if isinstance(prompt, str):
        return prompt
    if not tokenizer.chat_template:
        raise UserError(
            "prompt is a conversation and the tokenizer has no chat template; give plain text, or set "
            "tokenizer.chat_template (trl.clone_chat_template copies that of another model)."
        )
    name = name or f"prompt {prompt!s:.60}"
    check_texts(prompt, name)
    is_begun = prompt[-1].get("role") == "assistant"
    try:
        text: str = tokenizer.apply_chat_template(
            prompt,
            tokenize=False,
            add_generation_prompt=not is_begun,
            continue_final_message=is_begun,
            **chat_template_kwargs,
        )
    except (TemplateError, TypeError, ValueError) as error:
        raise UserError(
            f"{name}: the chat template refuses the conversation of {', '.join(str(m.get('role')) for m in prompt)} "
            f"({error}); change its messages, or the tokenizer's chat template."
        ) from error
    return text


def check_texts(prompt: Prompt, name: str) -> None:
    """Refuse what a template for text would print as Python writes it, such as content blocks.

    Raises:
        UserError: For a content that is no text; `name` says of which prompt.
    """
    for place, message in enumerate(() if isinstance(prompt, str) else prompt):
        content = message.get("content")
        if content is not None and not isinstance(content, str):
            raise UserError(
                f"{name}: message {place} has the content {content!r:.60}, which is no text; a model that is loaded "
                "here reads text alone, so put the blocks' text into one."
            )


def prompt_ids(tokenizer: Any, request: Request, chat_template_kwargs: Mapping[str, Any]) -> list[int]:
    """Token ids of a request's prompt; of an empty one the token that texts start or end with.

    Arguments of the chat template that the request brings win over `chat_template_kwargs`.

    Raises:
        UserError: If there is no token to start from.
    """
    arguments = {**chat_template_kwargs, **(request.chat_template_kwargs or {})}
    text = rendered(tokenizer, request.prompt, arguments, name=f"request {request.key}")
    # a chat template writes the special tokens itself
    ids: list[int] = tokenizer(text, add_special_tokens=isinstance(request.prompt, str), verbose=False)["input_ids"]
    if ids:
        return ids
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if token is not None:
            return [token]
    raise UserError(f"request {request.key}: the prompt is empty and the tokenizer has no token to start a text from.")


def check_room(
    requests: Sequence[Request], prompts: Sequence[Sequence[int]], max_new_tokens: int, context: int | None
) -> list[int]:
    """The most tokens that each request may get: `max_new_tokens`, or fewer where the context ends before.

    Args:
        requests (`Sequence[Request]`): B requests, for the message.
        prompts (`Sequence`): their token ids.
        max_new_tokens (`int`): the limit of all.
        context (`int`, *optional*): positions that the model has.

    Raises:
        UserError: If a prompt fills the context.
    """
    if context is None:
        return [max_new_tokens] * len(prompts)
    for request, ids in zip(requests, prompts, strict=True):
        if len(ids) >= context:
            raise UserError(
                f"request {request.key}: the prompt has {len(ids)} tokens and the model's context {context}; drop or "
                "shorten the problem, or take a model with a longer context."
            )
    return [min(max_new_tokens, context - len(ids)) for ids in prompts]


def stop_ids(tokenizer: Any, generation_config: Any = None) -> list[int]:
    """Ids of the tokens that end a completion: the model's, of which chat models have several, and the tokenizer's."""
    own = getattr(generation_config, "eos_token_id", None)
    listed = list(own) if isinstance(own, (list, tuple)) else [own]
    return sorted({token for token in (*listed, tokenizer.eos_token_id) if token is not None})
