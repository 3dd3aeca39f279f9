"""Judges: models that score completions by the criteria of a rubric and compare pairs of them.

- [`CallableJudge`]: a function of yours from messages to a text;
- [`LocalJudge`]: a transformers model in this process, the policy without its adapters for instance;
- [`HTTPJudge`]: any OpenAI-compatible endpoint, many requests at once, with a cache on disk.

A judge that fails says so: no score, and a cause that is counted. [`check_judge`] tries one before training.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reward_funcs._judge_base import Comparison as Comparison
from reward_funcs._judge_base import Judge as Judge
from reward_funcs._judge_base import Reply as Reply
from reward_funcs._judge_base import Request as Request
from reward_funcs._judge_base import Verdict as Verdict
from reward_funcs._judge_base import check_votes, kept_text, outcome_of, reply_tokens, without_secrets
from reward_funcs._judge_cache import PendingReplies, ReplyCache, request_key
from reward_funcs._judge_callable import CallableJudge as CallableJudge
from reward_funcs._judge_checks import InjectionReport as InjectionReport
from reward_funcs._judge_checks import JudgeReport as JudgeReport
from reward_funcs._judge_checks import check_injections as check_injections
from reward_funcs._judge_checks import check_judge as check_judge
from reward_funcs._judge_http import Endpoint, ask_all, run_in_thread
from reward_funcs._judge_local import LocalJudge as LocalJudge
from reward_funcs._judge_prompt import JudgeTask as JudgeTask
from reward_funcs._judge_prompt import Pair as Pair
from reward_funcs._judge_reply import Scores
from reward_funcs._settings import check_name, check_setting


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
        max_tokens (`int`, *optional*): length of a reply; by default 1024, and more for more than four criteria
            (512 + 128 for each), unless `parameters` holds `max_completion_tokens`.
        parameters (`Mapping`, *optional*): further parameters of the request, such as `{"top_p": 0.9}`, those that only
            some servers know included. `{"chat_template_kwargs": {"enable_thinking": False}}` turns off the thoughts of
            Qwen3, which leave no room for a verdict.
        max_concurrency (`int`, *optional*, defaults to 64): requests of this judge under way at once, in each process;
            two judges of one endpoint have twice as many.
        timeout (`float`, *optional*, defaults to 60.0): seconds for one request.
        batch_timeout (`float`, *optional*, defaults to 600.0): seconds for one call, tries and waits included; what is
            not judged by then is a `timeout`.
        max_retries (`int`, *optional*, defaults to 4): further tries of a request.
        retry_wait (`float`, *optional*, defaults to 0.5): seconds of the first wait, up to 30 later.
        token_budget (`int`, *optional*): tokens, of prompts and replies, after which nothing more is asked (cause
            `budget`); requests under way are finished, so up to `max_concurrency` answers may come on top. Each
            process counts its own.
        cache (`str | Path`, *optional*): an SQLite file that keeps the replies that could be used, by the sha256 of
            address, model, texts, parameters and vote; several processes of one machine may share it.
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

    cut_hint = (
        "set max_tokens higher, or turn a model's thoughts off: "
        "parameters={'chat_template_kwargs': {'enable_thinking': False}}"
    )

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key_env: str | None = None,
        temperature: float = 0.0,
        max_tokens: int | None = None,
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
                f"base_url={without_secrets(repr(base_url)):.80}: it must begin with http:// or https://; write it as "
                "http://localhost:8000/v1"
            )
        self.base_url = _checked_address(base_url)
        self.model = check_name("model", model)
        self.api_key_env = None if api_key_env is None else check_name("api_key_env", api_key_env)
        own = {} if max_tokens is None else {"max_tokens": check_setting("max_tokens", max_tokens, 1, whole=True)}
        given = _checked_parameters(parameters)
        self.parameters = {"temperature": check_setting("temperature", temperature, 0), **own, **given}
        check_votes(self.votes, self.parameters["temperature"])
        if self.votes > 1 and self.parameters.get("seed") is not None:
            raise ValueError(
                f"parameters holds seed={self.parameters['seed']!r:.40}, with which votes={self.votes} would all be "
                "alike; leave the seed out, or set votes=1"
            )
        self.max_concurrency = check_setting("max_concurrency", max_concurrency, 1, whole=True)
        self.timeout = _seconds("timeout", timeout)
        self.batch_timeout = _seconds("batch_timeout", batch_timeout)
        self.max_retries = check_setting("max_retries", max_retries, 0, whole=True)
        self.retry_wait = check_setting("retry_wait", retry_wait, 0)
        self.token_budget = None if token_budget is None else check_setting("token_budget", token_budget, 0, whole=True)
        self.cache = None if cache is None else ReplyCache(cache)

    def replies(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        """What the endpoint says to each request."""
        endpoint = self._endpoint()
        conversations = [(request.messages, self._length(request)) for request in requests]
        if self.cache is None:
            return run_in_thread(lambda: ask_all(endpoint, conversations, deadline))
        pending = PendingReplies(self.cache)

        def arrived(index: int, reply: Reply) -> bool:
            request = requests[index]
            if not isinstance(outcome_of(request, reply), Scores):
                return False
            return pending.add(self._key(request), kept_text(request, reply.text or ""))

        try:
            return run_in_thread(lambda: ask_all(endpoint, conversations, deadline, arrived, pending.write))
        finally:  # an interrupt as well: what is here was paid for
            pending.write()

    def _endpoint(self) -> Endpoint:
        return Endpoint(
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

    def _length(self, request: Request) -> dict[str, int]:
        """The limit of the reply's length, where none is set."""
        if {"max_tokens", "max_completion_tokens"} & self.parameters.keys():
            return {}
        return {"max_tokens": reply_tokens(1024, request.num_scores)}

    def _deadline(self) -> float:
        return time.monotonic() + self.batch_timeout

    def _recalled(self, requests: Sequence[Request]) -> Mapping[int, str]:
        if self.cache is None:
            return {}
        keys = [self._key(request) for request in requests]
        known = self.cache.get(keys)
        return {index: known[key] for index, key in enumerate(keys) if key in known}

    def _key(self, request: Request) -> str:
        parameters = {**self.parameters, **self._length(request)}
        return request_key(self.base_url.rpartition("@")[2], self.model, request.asked, parameters, request.vote)


def _checked_address(base_url: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(base_url)
        is_whole = bool(parts.hostname) and (parts.port is None or parts.port > 0) and base_url.isprintable()
    except ValueError:  # brackets that do not close, a port that is no number
        is_whole = False
    if not is_whole or " " in base_url:
        raise ValueError(
            f"base_url={without_secrets(repr(base_url)):.80}: it must hold a host and perhaps a port; write it as "
            "http://localhost:8000/v1"
        )
    return base_url.rstrip("/")


def _checked_parameters(parameters: Any) -> dict[str, Any]:
    given = {} if parameters is None else parameters
    if not isinstance(given, Mapping):
        raise ValueError(
            f"parameters={given!r:.60}: it must be a mapping such as {{'top_p': 0.9}}; leave it out for none"
        )
    extra = given.get("extra_body") or {}
    if not isinstance(extra, Mapping):
        raise ValueError(f"parameters holds extra_body={extra!r:.60}, which must be a mapping; leave it out for none")
    taken = sorted({"messages", "model", "n", "stream"} & {*given, *extra})
    if taken:
        raise ValueError(f"parameters names {', '.join(taken)}, which the judge sets itself; leave that out")
    return dict(given)


def _seconds(name: str, value: Any) -> float:
    seconds: float = check_setting(name, value, 0)
    if not seconds:
        raise ValueError(f"{name}={value!r}: it must be above 0 seconds; leave it out for the default")
    return seconds
