"""Requests to an OpenAI-compatible endpoint: many at once, tried again where that helps, within a time and a budget."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from reward_funcs._judge_base import CUT, Reply, without_secrets
from reward_funcs._judge_prompt import Message

if TYPE_CHECKING:
    from huggingface_hub import AsyncInferenceClient

T = TypeVar("T")
# Messages, and parameters of this request alone.
Conversation = tuple[list[Message], dict[str, Any]]

# Requests at once through one client. Its pool looks at all its connections for each request and keeps 20 open.
POOL = 32
MAX_WAIT = 30.0
MAX_DOUBLINGS = 32  # of a wait: beyond it is MAX_WAIT whatever it began with, and later no float
MAX_ANSWER = 8_000_000  # bytes of one answer
SHORTEST_SECRET = 4
# Servers without a key want some text in its place. Without one the client would send the token of the Hub to them.
NO_KEY = "EMPTY"
NO_MESSAGE = Reply(None, "malformed", "the endpoint's answer holds no message")


@dataclass
class Endpoint:
    """Where and how requests are made; the counters grow with them."""

    base_url: str
    model: str
    parameters: Mapping[str, Any]
    api_key_env: str | None
    max_concurrency: int
    timeout: float
    max_retries: int
    retry_wait: float
    token_budget: int | None
    counts: Counter[str] = field(default_factory=Counter)

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The parameters as arguments of the client, those that it does not know as its `extra_body`."""
        import inspect

        from huggingface_hub import AsyncInferenceClient

        known = inspect.signature(AsyncInferenceClient.chat_completion).parameters
        arguments = {name: value for name, value in self.parameters.items() if name in known}
        extra = {name: value for name, value in self.parameters.items() if name not in known}
        return arguments if not extra else {**arguments, "extra_body": {**(arguments.get("extra_body") or {}), **extra}}

    def api_key(self) -> str:
        """The key from the environment, read when it is needed so that it is in no pickle and no log."""
        if self.api_key_env is None:
            return NO_KEY
        # a file of variables easily ends in a line break, which no header may hold
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise ValueError(
                f"api_key_env={self.api_key_env!r}: this environment variable is not set; set it to the endpoint's key"
            )
        if not (key.isascii() and key.isprintable()):
            raise ValueError(
                f"api_key_env={self.api_key_env!r}: the key in this environment variable holds characters that no "
                "header may hold; set it to the endpoint's key alone"
            )
        return key

    def detail(self, text: str) -> str:
        """What goes wrong, on one line and without the key, which endpoints and libraries like to repeat."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, "***")
        return without_secrets(" ".join(text.split()))[:1000]

    def _secrets(self) -> list[str]:
        """What no message may show: the key, a password, values of the address's query and of headers.

        Each as it is and as JSON has it, the password as its header has it too. Short values, such as versions, are
        masked where they stand in an address alone.
        """
        import base64
        import json
        from urllib.parse import parse_qsl, unquote, urlsplit

        parts = urlsplit(self.base_url)
        found = [] if self.api_key_env is None else [self.api_key()]
        if parts.password:
            pair = f"{unquote(parts.username or '')}:{unquote(parts.password)}"
            found += [parts.password, unquote(parts.password), base64.b64encode(pair.encode()).decode()]
        headers = self.parameters.get("extra_headers")
        values = [str(value) for value in headers.values()] if isinstance(headers, Mapping) else []
        values += [value for _, value in parse_qsl(parts.query)]
        found += [value for value in values if len(value) >= SHORTEST_SECRET]
        return [*found, *(json.dumps(one)[1:-1] for one in found)]

    def is_spent(self) -> bool:
        """Whether the tokens that were used have reached the budget."""
        return self.token_budget is not None and self.counts["tokens"] >= self.token_budget


def run_in_thread(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of a coroutine, from code that may itself run under an event loop; an interrupt cancels it.

    The loop is of its own thread: one that ran in this thread would leave it without the loop that it had.
    """
    import asyncio

    outcome: list[T] = []
    errors: list[BaseException] = []
    started: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = []

    async def main() -> T:
        task = asyncio.ensure_future(make())
        started.append((asyncio.get_running_loop(), task))
        return await task

    def work() -> None:
        try:
            outcome.append(asyncio.run(main()))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=work, name="judge", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        if started:
            loop, task = started[0]
            loop.call_soon_threadsafe(task.cancel)
        raise
    if errors:
        raise errors[0]
    return outcome[0]


class Refused(Exception):
    """An answer whose status is no success; its body is a text, whatever it holds."""

    def __init__(self, response: Any) -> None:
        super().__init__(f"status {response.status_code}: {response.text}")
        self.status: int = response.status_code
        self.retry_after: str | None = response.headers.get("retry-after")


class TooLarge(Exception):
    """An answer of more than `MAX_ANSWER` bytes."""


async def _checked(response: Any) -> None:
    """A hook of the session, before the body is read: the client would read a body of any length.

    It would also look for a message in the body of a refusal first, and fail where that is odd.
    """
    if response.has_redirect_location:
        return
    chunks, size = [], 0
    async for chunk in response.aiter_bytes():
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_ANSWER:
            raise TooLarge(f"the endpoint's answer is longer than {MAX_ANSWER} bytes")
    response._content = b"".join(chunks)  # where aread, which has no limit, would put it
    if response.status_code >= 300:
        raise Refused(response)


async def ask_all(
    endpoint: Endpoint,
    conversations: Sequence[Conversation],
    deadline: float,
    arrived: Callable[[int, Reply], bool] | None = None,
    write: Callable[[], None] | None = None,
) -> list[Reply]:
    """One reply for each conversation, in order; what is not there by the deadline is a `timeout`.

    Args:
        endpoint (`Endpoint`): where to ask.
        conversations (`Sequence[tuple[list[dict], dict]]`): N lists of messages, each with parameters of its own.
        deadline (`float`): a time of `time.monotonic`.
        arrived (`Callable`, *optional*): called with the position of each reply and the reply, when it is there; says
            whether it is time to write.
        write (`Callable`, *optional*): writes what arrived, in a thread of its own.

    Returns:
        `list[Reply]`: N replies.
    """
    import asyncio

    if not conversations:
        return []
    async with _clients(endpoint) as clients:
        slots = asyncio.Semaphore(endpoint.max_concurrency)

        async def one(index: int, conversation: Conversation) -> Reply:
            async with slots:
                reply = await _asked(endpoint, clients[index % len(clients)], conversation, deadline)
            if arrived is not None and arrived(index, reply) and write is not None:
                # a disk that is slow must not hold up the requests that are under way
                writes.append(asyncio.create_task(asyncio.to_thread(write)))
            return reply

        writes: list[asyncio.Task[None]] = []
        tasks = [asyncio.create_task(one(*pair)) for pair in enumerate(conversations)]
        try:
            await asyncio.wait(tasks, timeout=max(0.0, deadline - time.monotonic()), return_when="FIRST_EXCEPTION")
            # a task that raised has a bug to tell of, before what it left undone
            bugs = [task for task in tasks if task.done() and not task.cancelled() and task.exception() is not None]
            if bugs:
                bugs[0].result()
        finally:
            late = [task for task in tasks if task.cancel()]
            await asyncio.gather(*late, return_exceptions=True)
            await asyncio.gather(*writes)
    return [
        Reply(None, "timeout", "the time for the batch is over") if task.cancelled() else task.result()
        for task in tasks
    ]


@asynccontextmanager
async def _clients(endpoint: Endpoint) -> AsyncIterator[list[AsyncInferenceClient]]:
    """Clients of the running loop, as many as their pools need for so many requests at once."""
    from urllib.parse import urlsplit

    from huggingface_hub import AsyncInferenceClient, get_async_session

    host = urlsplit(endpoint.base_url).hostname or ""
    clients = []
    async with AsyncExitStack() as stack:
        for _ in range(-(-endpoint.max_concurrency // POOL)):
            client = AsyncInferenceClient(
                base_url=endpoint.base_url, api_key=endpoint.api_key(), timeout=endpoint.timeout
            )
            session = await stack.enter_async_context(get_async_session())
            session.event_hooks = {**session.event_hooks, "response": [_checked]}
            if not f".{host}".endswith((".huggingface.co", ".hf.co")):
                # HF_HUB_OFFLINE is about the Hub; the client's hook refuses every other server with it
                hooks = session.event_hooks
                hooks["request"] = [
                    hook for hook in hooks["request"] if hook.__module__ != get_async_session.__module__
                ]
                session.event_hooks = hooks
            client._async_client = session
            clients.append(client)
        yield clients


async def _asked(
    endpoint: Endpoint, client: AsyncInferenceClient, conversation: Conversation, deadline: float
) -> Reply:
    """The reply to one conversation, after as many tries as are allowed and as the time leaves."""
    import asyncio

    for attempt in range(endpoint.max_retries + 1):
        if endpoint.is_spent():
            return Reply(None, "budget", f"the budget of {endpoint.token_budget} tokens is spent")
        reply, after = await _tried(endpoint, client, conversation)
        if after is None or attempt == endpoint.max_retries:
            return reply
        # jitter: requests that were turned away together do not come back together
        backoff = min(endpoint.retry_wait * 2.0 ** min(attempt, MAX_DOUBLINGS), MAX_WAIT) * random.uniform(0.5, 1.0)
        wait = max(after, backoff)
        if time.monotonic() + wait >= deadline:
            return reply
        endpoint.counts["retries"] += 1
        await asyncio.sleep(wait)
    raise AssertionError("the last attempt returns")


async def _tried(
    endpoint: Endpoint, client: AsyncInferenceClient, conversation: Conversation
) -> tuple[Reply, float | None]:
    """One try: the reply, and after how many seconds another one makes sense; `None` for never."""
    import asyncio

    from huggingface_hub import errors

    messages, own = conversation
    try:
        async with asyncio.timeout(endpoint.timeout):  # the client's own limit is for each read: drops would outlast it
            output = await client.chat_completion([*messages], model=endpoint.model, **endpoint.arguments, **own)
    except TimeoutError:  # InferenceTimeoutError is one
        return Reply(None, "timeout", f"no answer within {endpoint.timeout:g} seconds"), 0.0
    except Refused as error:
        return _of_status(endpoint, error)
    except TooLarge as error:
        return Reply(None, "too_large", str(error)), None
    except (getattr(errors, "HTTPError"), ConnectionError) as error:  # noqa: B009 - of httpx or httpx2, by its version
        return Reply(None, "connection", endpoint.detail(f"{type(error).__name__}: {error}")), 0.0
    except (ValueError, RecursionError) as error:  # a body that is no answer, or no JSON
        return Reply(None, "malformed", endpoint.detail(f"the endpoint's answer cannot be read: {error}")), 0.0
    reply = _of_output(endpoint, output, messages)
    # an answer without a message is a failure of the server, whatever its status says
    return (NO_MESSAGE, 0.0) if reply is None else (reply, None)


def _of_status(endpoint: Endpoint, error: Refused) -> tuple[Reply, float | None]:
    """The cause that a refusing status has, and when to come back."""
    known = {408: "timeout", 429: "http_429"}
    cause = known.get(error.status, "http_5xx" if error.status >= 500 else "http_4xx")
    reply = Reply(None, cause, endpoint.detail(str(error)))
    return reply, (None if cause == "http_4xx" else retry_after(error.retry_after))


def retry_after(value: str | None) -> float:
    """Seconds that a header `Retry-After` asks to wait: a number, or a date; 0 where it says nothing.

    Example:

    ```python
    >>> retry_after("2"), retry_after("soon"), retry_after("Wed, 21 Oct 2015 07:28:00 GMT")
    (2.0, 0.0, 0.0)

    ```
    """
    from email.utils import parsedate_to_datetime

    if value is None:
        return 0.0
    try:
        if value.strip().replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _of_output(endpoint: Endpoint, output: Any, messages: Sequence[Message]) -> Reply | None:
    """What a completion says, `None` where it holds no message; its tokens are counted."""
    choices = getattr(output, "choices", None)
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = getattr(choice, "message", None)
    content = getattr(message, "content", None)
    text = content if isinstance(content, str) else ""
    used = getattr(getattr(output, "usage", None), "total_tokens", None)
    if message is None:
        endpoint.counts["tokens"] += used if isinstance(used, int) and used > 0 else 0
        return None
    if not isinstance(used, int) or used < 0:  # four characters to a token, where the server does not say
        used = (sum(len(one["content"]) for one in messages) + len(text)) // 4
    endpoint.counts["tokens"] += used
    if getattr(choice, "finish_reason", None) == "content_filter" or getattr(message, "refusal", None):
        return Reply(None, "refused", "the model refused to answer")
    if content is not None and not isinstance(content, str):
        return Reply(None, "malformed", f"the endpoint's answer holds no text but {type(content).__name__}")
    if getattr(choice, "finish_reason", None) == "length":
        return Reply(text, "cut", CUT)
    return Reply(text) if text.strip() else Reply(None, "refused", "the model gave an empty answer")
