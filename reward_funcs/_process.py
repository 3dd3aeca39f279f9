"""The parent's end of one worker process, see [`reward_funcs.pool`]."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from reward_funcs import _worker

_PROGRAM = os.path.abspath(_worker.__file__)
_THREADS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")
# of Python's own variables only those that say where it is and what it may write
_PYTHON_KEPT = {f"PYTHON{name}" for name in ("HOME", "PLATLIBDIR", "NOUSERSITE", "USERBASE", "DONTWRITEBYTECODE")}


class Task(NamedTuple):
    r"""One comparison.

    Args:
        gold (`str`): the right answer, LaTeX without dollars.
        answer (`str`): the answer to judge, LaTeX without dollars.
        rel_tol (`float`, *optional*, defaults to 1e-6): relative difference up to which numbers are equal where the
            gold or the answer has a decimal point; without one, all digits count.

    Example:

    ```python
    >>> Task(r"\frac{1}{3}", "0.333333")
    Task(gold='\\frac{1}{3}', answer='0.333333', rel_tol=1e-06)

    ```
    """

    gold: str
    answer: str
    rel_tol: float = 1e-6


class Verdict(NamedTuple):
    """Whether an answer equals its gold.

    `equal` is `None` where that could not be judged through no fault of the answer: `unparsed_gold`, `gold_timeout`,
    `gold_crash`, `gold_memory`, `gold_recursion`, `batch_deadline`, `closed`. The other reasons are `equal`,
    `different`, `unparsed_answer`, `timeout`, `crash`, `memory`, `recursion` and `error` (math-verify's).

    Example:

    ```python
    >>> Verdict(False, "timeout").equal
    False

    ```
    """

    equal: bool | None
    reason: str


class Process:
    """The parent's end of one worker."""

    def __init__(self, timeout: float, memory_limit_mb: int) -> None:
        self.owner: Any = None  # the call that holds it
        self.task: Task | None = None
        self.sent, self.gold_is_read, self.ready = 0.0, False, False
        self.started = time.monotonic()
        self.inbox, self.outbox = bytearray(), bytearray()
        self.process = subprocess.Popen(
            [sys.executable, "-P", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # read only when it does not start
            bufsize=0,
            cwd=os.path.abspath(os.sep),  # to keep no directory of the user's in use
            env=environment(),
            start_new_session=True,  # Ctrl-C in the terminal is for the parent
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.input, self.output, self.errors = (
            stream.fileno() for stream in (self.process.stdin, self.process.stdout, self.process.stderr)
        )
        for descriptor in (self.input, self.output, self.errors):
            os.set_blocking(descriptor, False)
        self._send({"path": search_path(), "timeout": timeout, "memory_limit_mb": memory_limit_mb})

    def _send(self, message: dict[str, Any]) -> None:
        self.outbox += _worker.packed(message)
        self.flush()

    def assign(self, task: Task) -> None:
        """Send a task and start its clock."""
        self.task, self.sent, self.gold_is_read = task, time.monotonic(), False
        self._send(task._asdict())

    def flush(self) -> None:
        """Write what the pipe takes. That the worker is gone is seen by who reads from it."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            while self.outbox:
                del self.outbox[: os.write(self.input, self.outbox)]

    def messages(self) -> Iterator[dict[str, Any]]:
        """What has arrived.

        Raises:
            EOFError: After the last message of a worker that is gone.
        """
        over = False
        try:
            while data := os.read(self.output, 1 << 16):
                self.inbox += data
            over = True
        except BlockingIOError:
            pass
        while (message := _worker.unpacked(self.inbox)) is not None:
            yield message
        if over:
            raise EOFError

    def complaint(self) -> str:
        """Why it did not start, as far as it said so."""
        with contextlib.suppress(EOFError, ValueError):
            for message in self.messages():
                if "error" in message:
                    return str(message["error"])
        with contextlib.suppress(OSError):
            said = os.read(self.errors, 1 << 16).decode("utf-8", "replace").strip()[-500:]
            if said:
                return said
        status = self.process.poll()
        return "it gave no reason" if status is None else f"it ended with status {status} and gave no reason"

    def kill(self) -> None:
        """End the process and reap it. The pipes stay open: its owner may be waiting on them."""
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)

    def close(self) -> None:
        """Kill it and close the pipes."""
        self.kill()
        self.forget()

    def forget(self) -> None:
        """Close the pipes and do nothing to the process, which after a fork is the parent's."""
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if self.process.returncode is None:
            self.process.returncode = 0  # or Popen warns that it is still running


def environment() -> dict[str, str]:
    """The variables of a worker: one thread, no GPU, and of Python's own only those that say where it is."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON") or key in _PYTHON_KEPT}
    threads = {f"{name}_NUM_THREADS": "1" for name in _THREADS}
    # Python's own integers: gmpy2 aborts the process when memory runs out, and versions differ between machines
    numbers = {"SYMPY_GROUND_TYPES": "python", "MPMATH_NOGMPY": "1", "SYMPY_DEBUG": "False", "SYMPY_USE_CACHE": "yes"}
    return kept | threads | numbers | {"PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": ""}


def search_path() -> list[str]:
    """The parent's `sys.path`, with the user's own directories last.

    A `code.py` or `sympy.py` next to a training script is not what sympy or we mean by these names; still, math-verify
    may be found there and nowhere else.
    """
    entries = [entry for entry in sys.path if isinstance(entry, str)]
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        own = {os.getcwd(), *([os.path.dirname(os.path.abspath(script))] if script else [])}
        path = [os.path.abspath(entry) for entry in entries]
    except OSError:  # the working directory has been removed
        own, path = set(), [entry for entry in entries if os.path.isabs(entry)]
    return [entry for entry in path if entry not in own] + [entry for entry in path if entry in own]
