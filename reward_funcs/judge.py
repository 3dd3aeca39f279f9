"""Judges: models that score completions by the criteria of a rubric and compare pairs of them.

- [`CallableJudge`]: a function of yours from messages to a text;
- [`LocalJudge`]: a transformers model in this process, the policy without its adapters for instance;
- [`HTTPJudge`]: any OpenAI-compatible endpoint, many requests at once, with a cache on disk.

A judge that fails says so: no score, and a cause that is counted. [`check_judge`] tries one before training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reward_funcs._judge_base import Comparison as Comparison
from reward_funcs._judge_base import Judge as Judge
from reward_funcs._judge_base import Reply as Reply
from reward_funcs._judge_base import Request as Request
from reward_funcs._judge_base import Verdict as Verdict
from reward_funcs._judge_base import check_votes
from reward_funcs._judge_cache import ReplyCache, request_key
from reward_funcs._judge_checks import InjectionReport as InjectionReport
from reward_funcs._judge_checks import JudgeReport as JudgeReport
from reward_funcs._judge_checks import check_injections as check_injections
from reward_funcs._judge_checks import check_judge as check_judge
from reward_funcs._judge_http import Endpoint, ask_all, run_in_thread
from reward_funcs._judge_local import LocalJudge as LocalJudge
from reward_funcs._judge_prompt import JudgeTask as JudgeTask
from reward_funcs._judge_prompt import Message
from reward_funcs._judge_prompt import Pair as Pair
from reward_funcs._parts import check_part, part_name
from reward_funcs._settings import check_flag, check_name, check_setting


class CallableJudge(Judge):
    """A judge around a function that answers a conversation.

    The function may raise `TimeoutError` or `ConnectionError` and return `None`: no score then, with the cause
    `timeout`, `connection` or `refused`. Whatever else it raises is a bug and stops the training.

    Args:
        function (`Callable`): from a list of messages `{"role", "content"}` to a text; with `batched`, from a list of
            such lists to a list of texts. A module-level function, so that the judge can be pickled.
        batched (`bool`, *optional*, defaults to `False`): whether the function takes all conversations at once.
        **settings: those of [`Judge`].

    Raises:
        ValueError: For a class, a coroutine, or what cannot be called.

    Example:

    ```python
    >>> from reward_funcs.rubric import Criterion
    >>> def lenient(messages):
    ...     return '{"1": {"reason": "why not", "score": 5}}'
    >>> task = JudgeTask("It is 4.", (Criterion("correctness", "The answer is correct."),), prompt="2 + 2?")
    >>> CallableJudge(lenient).score([task])
    [Verdict(scores={'correctness': 5.0}, reasons={'correctness': 'why not'}, cause='')]

    ```
    """

    def __init__(self, function: Callable[..., Any], *, batched: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        check_part(function, type(self).__name__)
        self.function = function
        self.batched = check_flag("batched", batched)

    def replies(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        """What the function says to each request."""
        conversations = [request.messages for request in requests]
        if not self.batched:
            return [self._replies_to([messages], self._each)[0] for messages in conversations]
        return self._replies_to(conversations, self.function)

    def _each(self, conversations: Sequence[list[Message]]) -> list[Any]:
        return [self.function(messages) for messages in conversations]

    def _replies_to(self, conversations: list[list[Message]], function: Callable[..., Any]) -> list[Reply]:
        try:
            texts = function(conversations)
        except TimeoutError as error:
            return [Reply(None, "timeout", str(error))] * len(conversations)
        except ConnectionError as error:
            return [Reply(None, "connection", str(error))] * len(conversations)
        name = part_name(self.function)
        if isinstance(texts, (str, Mapping)) or not isinstance(texts, Iterable):
            raise ValueError(f"the judge's function {name} returned {texts!r:.60}; with batched=True it must be a list")
        texts = list(texts)
        if len(texts) != len(conversations):
            raise ValueError(
                f"the judge's function {name} returned {len(texts)} texts for {len(conversations)} conversations; it "
                "must return one for each"
            )
        wrong = next((text for text in texts if text is not None and not isinstance(text, str)), None)
        if wrong is not None:
            raise ValueError(f"the judge's function {name} returned {wrong!r:.60}; it must return a text or None")
        return [Reply(None, "refused", "the function returned None") if text is None else Reply(text) for text in texts]


class HTTPJudge(Judge):
    """A judge behind an OpenAI-compatible endpoint: vLLM, TGI, llama.cpp, or a provider.

    Requests go through `huggingface_hub.AsyncInferenceClient`, at most `max_concurrency` at once, from synchronous
    code in or outside of a running event loop. Answers 408, 429 and 5xx, broken connections, unreadable answers and
    timeouts are tried again, with waits that double, have jitter and are not shorter than `Retry-After`. Clients live
    as long as one call, so that the judge can be pickled and used after a fork.

    Args:
        base_url (`str`): such as `"http://localhost:8000/v1"`.
        model (`str`): name of the model in the requests.
        api_key_env (`str`, *optional*): environment variable that holds the key; it is read when requests are made.
        temperature (`float`, *optional*, defaults to 0.0): above 0 for several votes.
        max_tokens (`int`, *optional*, defaults to 1024): length of a reply.
        parameters (`Mapping`, *optional*): further parameters of the request, such as `{"top_p": 0.9}`, those that only
            some servers know included.
        max_concurrency (`int`, *optional*, defaults to 64): requests under way at once, in each process.
        timeout (`float`, *optional*, defaults to 60.0): seconds for one request.
        batch_timeout (`float`, *optional*, defaults to 600.0): seconds for one call, tries and waits included; what is
            not judged by then is a `timeout`.
        max_retries (`int`, *optional*, defaults to 4): further tries of a request.
        retry_wait (`float`, *optional*, defaults to 0.5): seconds of the first wait, up to 30 later.
        token_budget (`int`, *optional*): tokens, of prompts and replies, after which nothing more is asked (cause
            `budget`); requests under way are finished, so up to `max_concurrency` answers may come on top. Each
            process counts its own.
        cache (`str | Path`, *optional*): an SQLite file that keeps the replies that could be used, by the sha256 of
            model, messages, parameters and vote; several processes of one machine may share it.
        **settings: those of [`Judge`].

    Raises:
        ValueError: For settings that make no sense.

    Source: the request is OpenAI's chat completion. Unlike the clients of most graders, a request that fails for good
    is no score and never a score of 0.

    Example:

    ```python
    >>> judge = HTTPJudge("http://localhost:8000/v1", "Qwen/Qwen3-8B", max_concurrency=32)
    >>> HTTPJudge("localhost:8000", "Qwen/Qwen3-8B")
    Traceback (most recent call last):
    ValueError: base_url='localhost:8000': it must begin with http:// or https://; ...

    ```
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key_env: str | None = None,
        temperature: float = 0.0,
        max_tokens: int = 1024,
        parameters: Mapping[str, Any] | None = None,
        max_concurrency: int = 64,
        timeout: float = 60.0,
        batch_timeout: float = 600.0,
        max_retries: int = 4,
        retry_wait: float = 0.5,
        token_budget: int | None = None,
        cache: str | Path | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
            raise ValueError(
                f"base_url={base_url!r:.80}: it must begin with http:// or https://; write it as "
                "http://localhost:8000/v1"
            )
        self.base_url = base_url.rstrip("/")
        self.model = check_name("model", model)
        self.api_key_env = None if api_key_env is None else check_name("api_key_env", api_key_env)
        self.parameters = {
            "temperature": check_setting("temperature", temperature, 0),
            "max_tokens": check_setting("max_tokens", max_tokens, 1, whole=True),
            **(parameters or {}),
        }
        taken = sorted({"messages", "model", "n", "stream"} & self.parameters.keys())
        if taken:
            raise ValueError(f"parameters names {', '.join(taken)}, which the judge sets itself; leave that out")
        check_votes(self.votes, self.parameters["temperature"])
        self.max_concurrency = check_setting("max_concurrency", max_concurrency, 1, whole=True)
        self.timeout = _seconds("timeout", timeout)
        self.batch_timeout = _seconds("batch_timeout", batch_timeout)
        self.max_retries = check_setting("max_retries", max_retries, 0, whole=True)
        self.retry_wait = check_setting("retry_wait", retry_wait, 0)
        self.token_budget = None if token_budget is None else check_setting("token_budget", token_budget, 0, whole=True)
        self.cache = None if cache is None else ReplyCache(cache)

    def replies(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        """What the endpoint says to each request."""
        endpoint = Endpoint(
            base_url=self.base_url,
            model=self.model,
            parameters=self.parameters,
            api_key_env=self.api_key_env,
            max_concurrency=self.max_concurrency,
            timeout=self.timeout,
            max_retries=self.max_retries,
            retry_wait=self.retry_wait,
            token_budget=self.token_budget,
            counts=self.counts,
        )
        conversations = [request.messages for request in requests]
        return run_in_thread(lambda: ask_all(endpoint, conversations, deadline))

    def _deadline(self) -> float:
        return time.monotonic() + self.batch_timeout

    def _recalled(self, requests: Sequence[Request]) -> Mapping[int, str]:
        if self.cache is None:
            return {}
        keys = [self._key(request) for request in requests]
        known = self.cache.get(keys)
        return {index: known[key] for index, key in enumerate(keys) if key in known}

    def _keep(self, replies: Mapping[int, tuple[Request, str]]) -> None:
        if self.cache is not None:
            self.cache.put({self._key(request): text for request, text in replies.values()})

    def _key(self, request: Request) -> str:
        return request_key(self.model, request.asked, self.parameters, request.vote)


def _seconds(name: str, value: Any) -> float:
    seconds: float = check_setting(name, value, 0)
    if not seconds:
        raise ValueError(f"{name}={value!r}: it must be above 0 seconds; leave it out for the default")
    return seconds
