"""A sandbox that is a service: each program and its tests go there as JSON, what came out comes back."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from reward_funcs._sandbox_jobs import Job, Outcome
from reward_funcs._settings import check_setting

MAX_REPLY = 64 << 20  # bytes
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})


class HTTPSandbox:
    """Runs programs on another machine: one POST for each, with the fields of [`reward_funcs.sandbox.Job`].

    The request is `{"mode", "code", ...}` as in `Job.data`, the reply has the fields of
    [`reward_funcs.sandbox.Outcome`]; `docs/code.md` has a server of twenty lines. Expected outputs of the kinds `stdio`
    and `functional` and literals of `asserts` stay here. What cannot be run, after the retries, is `None`: no fault of
    the program.

    Args:
        url (`str`): where to post.
        timeout (`float`, *optional*, defaults to 60.0): seconds for one request.
        max_retries (`int`, *optional*, defaults to 2): further tries after a failure that may pass.
        max_concurrency (`int`, *optional*, defaults to 16): requests at the same time.

    Raises:
        ValueError: For a URL that is not HTTP, and for a number out of its range.

    Example:

    ```python
    >>> HTTPSandbox("localhost:8000")
    Traceback (most recent call last):
    ValueError: url='localhost:8000': it must begin with http:// or https://; write the whole address

    ```
    """

    def __init__(self, url: str, *, timeout: float = 60.0, max_retries: int = 2, max_concurrency: int = 16) -> None:
        if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"url={url!r:.80}: it must begin with http:// or https://; write the whole address")
        self.url = url
        self.timeout = check_setting("timeout", timeout, 0.05)
        self.max_retries = check_setting("max_retries", max_retries, 0, whole=True)
        self.max_concurrency = check_setting("max_concurrency", max_concurrency, 1, whole=True)

    def run(self, jobs: Sequence[Job]) -> list[Outcome | None]:
        """One outcome for each job, in order; `None` for what the service did not answer."""
        with ThreadPoolExecutor(self.max_concurrency) as threads:
            return list(threads.map(self._one, jobs))

    def _one(self, job: Job) -> Outcome | None:
        body = json.dumps({"mode": job.mode, "code": job.code, **job.data}).encode()
        for attempt in range(self.max_retries + 1):
            start = time.monotonic()
            request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as reply:
                    return _outcome(json.loads(reply.read(MAX_REPLY)), time.monotonic() - start)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code not in _TRANSIENT:
                    return None
            except (OSError, HTTPException):
                pass
            except (ValueError, RecursionError):
                return None
            time.sleep(min(5.0, 0.1 * 2**attempt))
        return None

    def close(self) -> None:
        """Nothing is held."""


def _outcome(reply: Any, elapsed: float) -> Outcome | None:
    """The outcome that a reply states, `None` for a reply of another form; without its time, that of the request."""
    if not isinstance(reply, dict) or reply.get("end") not in ("done", "timeout", "crash"):
        return None
    messages, failed = reply.get("messages"), reply.get("failed", "")
    number, seconds = reply.get("num_tests", -1), reply.get("seconds", elapsed)
    if not isinstance(messages, list) or not isinstance(failed, str) or type(number) is not int:
        return None
    if type(seconds) not in (int, float) or not 0 <= seconds < 1e9:
        return None
    lengths = {"verdict": 3, "value": 3, "output": 4}
    for index, one in enumerate(messages):
        is_whole = isinstance(one, list) and one and isinstance(one[0], str) and len(one) == lengths.get(one[0])
        if not is_whole or one[1] != index or (one[0] == "output" and not isinstance(one[2], str)):
            return None
    return Outcome(messages, failed, reply["end"], number, float(seconds))
