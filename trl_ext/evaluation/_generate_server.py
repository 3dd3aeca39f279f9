"""Completions of an OpenAI-compatible endpoint: vLLM, SGLang, TGI, llama.cpp or a provider, many requests at once."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from reward_funcs._judge_http import retry_after, run_in_thread
from reward_funcs.extract import completion_text
from trl_ext.errors import UserError
from trl_ext.evaluation._runner_url import shown_url
from trl_ext.evaluation.requests import Completion, Request, SamplingParams

logger = logging.getLogger(__name__)

API_KEY_VARIABLE = "OPENAI_API_KEY"
RETRIED = (408, 409, 425, 429)  # and every 5xx
CHARACTERS_A_TOKEN = 4  # where the server does not count
MAX_WAIT = 30.0  # seconds between two tries, where the server asks for no longer one
MAX_RETRY_AFTER = 300.0  # seconds that a server may ask for; after these it is tried again, and that is a try
TOLD_WAIT = 10.0  # seconds of a wait that is not kept from the user
REQUESTS_A_CLIENT = 32  # a client looks through all its connections for each request
# In the place of a key: without one the client would send the token of the Hub to a server of somebody else.
NO_KEY = "EMPTY"


class ServerError(UserError, RuntimeError):
    """The endpoint gave no completion for a request, after every try that makes sense."""


class Refused(Exception):
    """An answer whose status is no success, whatever its body holds."""

    def __init__(self, response: Any) -> None:
        super().__init__(f"status {response.status_code}: {response.text}")
        self.status: int = response.status_code
        self.retry_after: str | None = response.headers.get("retry-after")


class ServerGenerator:
    """Completions from an endpoint of the chat completions API. One request that fails in the end fails the batch.

    Every request carries its seed; whether a server heeds it, and gives the same text in another batch, is up to it.
    A prompt that is plain text is sent as one turn of the user, since the API knows conversations alone.

    Args:
        url (`str`): address of the API, such as `http://localhost:8000/v1`.
        model (`str`): name that the server gives the model.
        api_key (`str`, *optional*): by default what the environment variable `OPENAI_API_KEY` holds, if it is set. It
            is in no description, message or record.
        concurrency (`int`): requests under way at once.
        timeout (`float`): seconds for one try.
        max_retries (`int`): further tries after a lost connection, a timeout, or a status of 408, 409, 425, 429 or 5xx.
        retry_wait (`float`): seconds before the first of them; the wait doubles, has jitter, and heeds `Retry-After` up
            to 300 seconds. The first wait of 10 seconds or more that a server asks for is told in the log.
        extra_body (`dict`, *optional*): further fields of every request, such as `{"chat_template_kwargs": {...}}`.

    Raises:
        UserError: For an address without scheme, or a number out of range.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        concurrency: int = 16,
        timeout: float = 600.0,
        max_retries: int = 5,
        retry_wait: float = 1.0,
        extra_body: dict[str, Any] | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise UserError(f"url={url!r} must start with http:// or https://, such as http://localhost:8000/v1.")
        for name, value, least in (("concurrency", concurrency, 1), ("max_retries", max_retries, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UserError(f"{name}={value!r} must be a whole number from {least}.")
        for name, seconds in (("timeout", timeout), ("retry_wait", retry_wait)):
            if not seconds > 0:
                raise UserError(f"{name}={seconds!r} must be a number of seconds above 0.")
        self.url, self.model = url.rstrip("/"), model
        self.concurrency, self.timeout = concurrency, timeout
        self.max_retries, self.retry_wait = max_retries, retry_wait
        self.extra_body = dict(extra_body or {})
        self._api_key = api_key
        self._has_told_wait = False

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """One completion for each request, in order; arguments as of every `Generator`.

        Raises:
            ServerError: If a request has no completion in the end; the others are cancelled.
        """
        return run_in_thread(lambda: self._generate_all(list(requests), params)) if requests else []

    async def _generate_all(self, requests: list[Request], params: SamplingParams) -> list[Completion]:
        import asyncio

        slots = asyncio.Semaphore(self.concurrency)
        async with self._clients() as clients:

            async def one(index: int, request: Request) -> Completion:
                async with slots:
                    return await self._asked(clients[index % len(clients)], request, params)

            tasks = [asyncio.create_task(one(*pair)) for pair in enumerate(requests)]
            try:
                return list(await asyncio.gather(*tasks))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def _clients(self) -> AsyncIterator[list[Any]]:
        """Clients of the running event loop, enough for so many requests at once."""
        from huggingface_hub import AsyncInferenceClient, get_async_session

        async with AsyncExitStack() as stack:
            clients = []
            for _ in range(-(-self.concurrency // REQUESTS_A_CLIENT)):
                client = AsyncInferenceClient(base_url=self.url, api_key=self._key(), timeout=self.timeout)
                session = await stack.enter_async_context(get_async_session())
                # The session's own hooks are for the Hub: one refuses every server while HF_HUB_OFFLINE is set.
                session.event_hooks = {"request": [], "response": [_refuse]}
                client._async_client = session
                clients.append(client)
            yield clients

    def _key(self) -> str:
        # read when it is needed, so that it is in no pickle unless it was given; a file of variables ends in a newline
        key = (self._api_key or os.environ.get(API_KEY_VARIABLE) or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise UserError(f"api_key (or {API_KEY_VARIABLE}) holds characters that no key has; give the key alone.")
        return key or NO_KEY

    def _said(self, text: str) -> str:
        """What went wrong on one line, without the key, which servers like to repeat."""
        key = self._key()
        return " ".join(shown_url(text if key == NO_KEY else text.replace(key, "***")).split())[:300]

    async def _asked(self, client: Any, request: Request, params: SamplingParams) -> Completion:
        """The completion of one request after as many tries as are allowed."""
        import asyncio

        for attempt in range(self.max_retries + 1):
            outcome, after = await self._tried(client, request, params)
            if isinstance(outcome, Completion):
                return outcome
            if after is None or attempt == self.max_retries:
                tries = "one try" if attempt == 0 else f"{attempt + 1} tries"
                raise ServerError(
                    f"request {request.key}: {shown_url(self.url)} gave no completion of the model {self.model!r} "
                    f"after {tries} ({outcome}); see that the server runs and serves that name, then start the same "
                    "command again."
                )
            # jitter: requests that were turned away together do not come back together
            backoff = min(self.retry_wait * 2.0**attempt, MAX_WAIT) * random.Random(time.time_ns()).uniform(0.5, 1.0)
            self._tell_wait(after)
            await asyncio.sleep(max(min(after, MAX_RETRY_AFTER), backoff))
        raise AssertionError("the last attempt returns or raises")

    def _tell_wait(self, seconds: float) -> None:
        """Say once that the server asks for a long wait, which would look like a run that hangs."""
        if seconds >= TOLD_WAIT and not self._has_told_wait:
            self._has_told_wait = True
            logger.warning(
                "%s asks to wait %.0f seconds before the next try (Retry-After); trl-ext waits at most %.0f, %d tries "
                "for each request.",
                shown_url(self.url),
                seconds,
                MAX_RETRY_AFTER,
                self.max_retries + 1,
            )

    async def _tried(
        self, client: Any, request: Request, params: SamplingParams
    ) -> tuple[Completion | str, float | None]:
        """The completion, or what went wrong and after how many seconds another try makes sense; None for never."""
        import asyncio

        from huggingface_hub import errors

        try:
            async with asyncio.timeout(self.timeout):
                output = await client.chat_completion(model=self.model, **self._arguments(request, params))
        except TimeoutError:
            return f"no answer within {self.timeout:g} seconds", 0.0
        except Refused as error:
            is_retried = error.status in RETRIED or error.status >= 500
            return self._said(str(error)), retry_after(error.retry_after) if is_retried else None
        except (getattr(errors, "HTTPError"), ConnectionError) as error:  # noqa: B009 - of httpx or httpx2, by version
            return self._said(f"{type(error).__name__}: {error}"), 0.0
        except (ValueError, RecursionError) as error:
            return self._said(f"its answer cannot be read: {error}"), 0.0
        completion = _completion(output)
        return (completion, None) if completion is not None else ("its answer holds no message", 0.0)

    def _arguments(self, request: Request, params: SamplingParams) -> dict[str, Any]:
        """Arguments of the client for one request."""
        prompt = request.prompt
        extra = {**self.extra_body, **({"top_k": params.top_k} if params.top_k else {})}
        if request.chat_template_kwargs:
            own = {**self.extra_body.get("chat_template_kwargs", {}), **request.chat_template_kwargs}
            extra["chat_template_kwargs"] = own
        return {
            "messages": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt,
            "max_tokens": params.max_new_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            # some servers keep a seed in 32 bits
            "seed": request.seed % 2**31,
            **({"extra_body": extra} if extra else {}),
        }

    def describe(self) -> dict[str, Any]:
        """Address and model, as JSON; not the key."""
        import huggingface_hub

        return {
            "backend": "server",
            "model": self.model,
            "url": shown_url(self.url),
            "extra_body": self.extra_body,
            "versions": {"huggingface_hub": huggingface_hub.__version__},
        }


async def _refuse(response: Any) -> None:
    """Ends a request that was refused before the client looks for a message in a body that may hold anything."""
    if response.status_code >= 300:
        await response.aread()
        raise Refused(response)


def _completion(output: Any) -> Completion | None:
    """What the server wrote; reasoning that it keeps apart is put back in front, in think tags."""
    choices = getattr(output, "choices", None)
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = getattr(choice, "message", None)
    if message is None:
        return None
    reasoning = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    content = getattr(message, "content", None)
    is_truncated = getattr(choice, "finish_reason", None) == "length"
    if is_truncated and reasoning and not content:
        text = f"<think>\n{reasoning}"  # it did not get to the end of its thoughts
    else:
        text = completion_text({"role": "assistant", "content": content, "reasoning_content": reasoning})
    used = getattr(getattr(output, "usage", None), "completion_tokens", None)
    num_tokens = used if isinstance(used, int) else -(-len(text) // CHARACTERS_A_TOKEN)
    return Completion(text, num_tokens, is_truncated)
