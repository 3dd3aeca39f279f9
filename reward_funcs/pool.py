"""Worker processes that compare mathematical answers with math-verify and can be killed while they do.

Some answers keep sympy busy for ever or take all memory, and nothing but the end of its process stops it: a thread
cannot be killed, and a signal handler waits for the C call in progress. So each comparison runs in a process of its
own kind, [`reward_funcs._worker`], with a deadline, a memory limit, and a started spare to take its place.

The workers are plain subprocesses: `fork` would copy threads and CUDA, and `multiprocessing` would run the training
script's `__main__` again. There is no parent-death signal, since the kernel ties it to the thread that started the
worker; a worker sees its input end instead, and has a watchdog for the computation that keeps it from looking.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import select
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, NoReturn

from reward_funcs._process import Process, Task, Verdict

__all__ = ["Task", "Verdict", "WorkerPool", "close_pools", "shared_pool"]

START_SECONDS = 120.0  # the first import of sympy from a cold network disk
START_ATTEMPTS = 3
MIN_MEMORY_MB = 256


class _Call:
    """One call of [`WorkerPool.compare`]: the tasks that are left, and the workers it holds."""

    def __init__(self, pool: WorkerPool, tasks: list[Task]) -> None:
        self.pool, self.generation = pool, pool.generation
        self.pending = deque(tasks)
        self.deaths: set[Task] = set()
        self.verdicts: dict[Task, Verdict] = {}
        share = pool.timeout * len(tasks) / pool.num_workers
        self.budget = max(30.0, 2 * pool.timeout) + share if pool.batch_timeout is None else pool.batch_timeout
        # the clock of a first call starts with the first worker: a slow disk is nobody's fault
        self.awaits_start = not pool.has_started
        self.deadline = time.monotonic() + (START_ATTEMPTS * START_SECONDS if self.awaits_start else self.budget)

    @property
    def workers(self) -> list[Process]:
        """The workers it holds."""
        return [worker for worker in self.pool.workers if worker.owner is self]

    @property
    def is_closed(self) -> bool:
        """Whether the pool was closed after the call began."""
        return self.generation != self.pool.generation or _closing.is_set()

    def run(self) -> dict[Task, Verdict]:
        """The verdict on each task."""
        while self.pending or any(worker.task for worker in self.workers):
            if self.is_closed or time.monotonic() >= self.deadline:
                rest = [*self.pending, *(worker.task for worker in self.workers if worker.task)]
                verdict = Verdict(None, "closed" if self.is_closed else "batch_deadline")
                return self.verdicts | dict.fromkeys(rest, verdict)
            self.pool.hire(self)
            if self.awaits_start and self.pool.has_started:
                self.awaits_start, self.deadline = False, time.monotonic() + self.budget
            for worker in self.workers:
                if worker.ready and worker.task is None and self.pending:
                    worker.assign(self.pending.popleft())
            self._wait()
            self._enforce()
        return self.verdicts

    def _wait(self) -> None:
        """Until a worker says something, or a deadline."""
        workers = self.workers
        ends = [self.deadline, *(worker.sent + self.pool.timeout for worker in workers if worker.task)]
        if len(self.pending) > sum(worker.task is None for worker in workers):
            ends.append(time.monotonic() + 0.05)  # another call may give back a worker
        poll = select.poll()
        for worker in workers:
            poll.register(worker.output, select.POLLIN)
            if worker.outbox:
                poll.register(worker.input, select.POLLOUT)
        seconds = max(0.0, min(1.0, min(ends) - time.monotonic()))
        happened = {descriptor for descriptor, _ in poll.poll(math.ceil(1000 * seconds))}
        for worker in workers:
            if worker.input in happened:
                worker.flush()
            if worker.output in happened:
                self._read(worker)

    def _read(self, worker: Process) -> None:
        try:
            for message in worker.messages():
                self._heed(worker, message)
        except (EOFError, ValueError):
            if self.is_closed:
                return
            if not worker.ready:
                self.pool.note_failure(worker.complaint())
            self._lost(worker)
            self.pool.replace(worker)

    def _heed(self, worker: Process, message: dict[str, Any]) -> None:
        if not worker.ready:
            self.pool.greet(worker, message)
        elif worker.task is None:
            raise ValueError("a worker answered what it was not asked")
        elif "gold" in message:
            worker.gold_is_read = True
        else:
            self.verdicts[worker.task] = Verdict(message["equal"], message["reason"])
            worker.task = None
            self.pool.give_back(worker, retire=message["retire"])

    def _judge(self, worker: Process, reason: str) -> None:
        assert worker.task is not None
        answer_is_to_blame = worker.gold_is_read
        self.verdicts[worker.task] = Verdict(False, reason) if answer_is_to_blame else Verdict(None, f"gold_{reason}")
        worker.task = None

    def _lost(self, worker: Process) -> None:
        """A worker has died: by its own watchdog, by its task, or killed by somebody."""
        if worker.task is None:
            return
        if time.monotonic() - worker.sent >= self.pool.timeout:
            self._judge(worker, "timeout")
        elif worker.task in self.deaths:
            self._judge(worker, "crash")
        else:
            self.deaths.add(worker.task)
            self.pending.appendleft(worker.task)
            worker.task = None

    def _enforce(self) -> None:
        now = time.monotonic()
        for worker in self.workers:
            if worker.task and now - worker.sent >= self.pool.timeout:
                self._judge(worker, "timeout")
                self.pool.replace(worker)
            elif not worker.ready and now - worker.started >= START_SECONDS:
                self.pool.note_failure("it was not ready in time")
                self.pool.replace(worker)


class WorkerPool:
    r"""Processes that compare answers with golds, each comparison within a deadline and a memory limit.

    The processes start with the first call and stay until [`~WorkerPool.close`], the end of the interpreter or its
    violent end. Calls may come from any thread, several at once; a forked process gets workers of its own.

    Args:
        num_workers (`int`, *optional*, defaults to 2): comparisons at the same time.
        timeout (`float`, *optional*, defaults to 2.0): seconds for one comparison; the worker gives up at four fifths
            of them, and is killed at the end.
        memory_limit_mb (`int`, *optional*, defaults to 1024): address space of one worker, in MiB.
        batch_timeout (`float`, *optional*): seconds for one call; by default 30 (or two timeouts, if longer) plus what
            all tasks together take when each uses its whole timeout.
        spare (`int`, *optional*, defaults to 1): started workers that wait to take the place of a killed one.

    Raises:
        ValueError: For a setting out of range.

    Example:

    ```python
    >>> with WorkerPool(num_workers=1) as pool:
    ...     pool.compare([Task(r"\frac{1}{2}", "0.5"), Task("x+1", "1-x")])
    [Verdict(equal=True, reason='equal'), Verdict(equal=False, reason='different')]

    ```
    """

    def __init__(
        self,
        *,
        num_workers: int = 2,
        timeout: float = 2.0,
        memory_limit_mb: int = 1024,
        batch_timeout: float | None = None,
        spare: int = 1,
    ) -> None:
        _check("num_workers", num_workers, 1, whole=True)
        _check("timeout", timeout, 0.01)
        _check("memory_limit_mb", memory_limit_mb, MIN_MEMORY_MB, whole=True)
        _check("spare", spare, 0, whole=True)
        if batch_timeout is not None:
            _check("batch_timeout", batch_timeout, 0.01)
        self.num_workers, self.timeout, self.memory_limit_mb = num_workers, timeout, memory_limit_mb
        self.batch_timeout, self.spare = batch_timeout, spare
        self.generation = 0
        self.reset()
        _pools.add(self)

    def reset(self) -> None:
        """Be a pool without workers, whoever else has some."""
        self.workers: list[Process] = []
        self.has_started = False
        self._condition = threading.Condition()
        self._calls: list[_Call] = []
        self._queue: deque[_Call] = deque()  # calls without any worker, longest waiting first
        self._failures = 0

    @property
    def pids(self) -> list[int]:
        """Process ids of the live workers."""
        return [worker.process.pid for worker in list(self.workers) if worker.process.poll() is None]

    def compare(self, tasks: Sequence[Task]) -> list[Verdict]:
        """The verdict on each task, in order; tasks that occur twice are compared once.

        Args:
            tasks (`Sequence[Task]`): N comparisons.

        Returns:
            `list[Verdict]`: N verdicts.

        Raises:
            RuntimeError: When no worker can be started.
        """
        for task in tasks:
            if not isinstance(task.gold, str) or not isinstance(task.answer, str):
                raise TypeError(f"gold and answer of a task must be texts, not {task!r:.100}")
        if not hasattr(select, "poll"):
            warnings.warn(
                f"{sys.platform} cannot wait for several processes the way the workers need it: what the fast path "
                "leaves undecided gets no reward; Linux, macOS and WSL can",
                RuntimeWarning,
                stacklevel=2,
            )
            return [Verdict(None, "no_workers") for _ in tasks]
        call = _Call(self, list(dict.fromkeys(tasks)))
        try:
            with self._condition:
                self._calls.append(call)
            verdicts = call.run()
        finally:
            self._dismiss(call)
        return [verdicts[task] for task in tasks]

    def hire(self, call: _Call) -> None:
        """Give a call the workers it has work for; wait where it has none and others have them all."""
        with self._condition:
            while not call.is_closed:
                self._top_up()
                if not self._queue or self._queue[0] is call:
                    self._take(call)
                if call.workers or not call.pending or time.monotonic() >= call.deadline:
                    break
                if call not in self._queue:
                    self._queue.append(call)
                self._condition.wait(min(1.0, max(0.0, call.deadline - time.monotonic())))
            if call in self._queue:
                self._queue.remove(call)
                self._condition.notify_all()

    def _take(self, call: _Call) -> None:
        """Mark free workers as the call's, started ones first; as many as there may be and as it has tasks for."""
        for worker in self.workers:
            if worker.owner is None and not worker.ready:
                with contextlib.suppress(EOFError, ValueError):  # which the next look at the dead sees
                    for message in worker.messages():
                        self.greet(worker, message)
        free = sorted((w for w in self.workers if w.owner is None), key=lambda w: (not w.ready, w.started))
        allowed = self.num_workers - (len(self.workers) - len(free))
        needed = len(call.pending) - sum(worker.task is None for worker in call.workers)
        for worker in free[: max(0, min(allowed, needed))]:
            worker.owner = call
        slow = [worker for worker in call.workers if not worker.ready]
        quick = [worker for worker in self.workers if worker.ready and worker.owner is None]
        for one, other in zip(slow, quick, strict=False):
            one.owner, other.owner = None, call

    def give_back(self, worker: Process, retire: bool) -> None:
        """Let go of a worker that has done its task, if it is to be replaced or another call has none."""
        if retire:
            self.replace(worker)
            return
        with self._condition:
            if self._queue:
                worker.owner = None
                self._condition.notify_all()

    def replace(self, worker: Process) -> None:
        """Kill a worker of a call and start the next spare."""
        with self._condition:
            is_closed = worker.owner is not None and worker.owner.is_closed
            self._discard(worker)
            if not is_closed:
                self._top_up()
            self._condition.notify_all()

    def _discard(self, worker: Process) -> None:
        worker.owner = None
        if worker in self.workers:
            self.workers.remove(worker)
        worker.close()

    def _top_up(self) -> None:
        """Discard what has died or what an interrupted call left behind, and start what is missing; with the lock."""
        for worker in list(self.workers):
            if worker.owner is not None and worker.owner in self._calls:
                continue
            is_late = not worker.ready and time.monotonic() - worker.started >= START_SECONDS
            is_dead = worker.process.poll() is not None
            if is_late or (is_dead and not worker.ready):
                self.note_failure("it was not ready in time" if is_late else worker.complaint())
            if is_late or is_dead or worker.task is not None:
                self._discard(worker)
            worker.owner = None
        # the spare would slow down the start of those that are waited for
        while len(self.workers) < self.num_workers + (self.spare if self.has_started else 0):
            if not sys.executable:
                self.note_failure("sys.executable is empty, so that no interpreter is known", final=True)
            try:
                self.workers.append(Process(self.timeout, self.memory_limit_mb))
            except OSError as error:
                self.note_failure(f"{type(error).__name__}: {error}")
                return

    def greet(self, worker: Process, message: dict[str, Any]) -> None:
        """Take note of a worker's first message: it is ready, or says why not."""
        if "error" in message:
            self.note_failure(message["error"], final=True)
        worker.ready, self.has_started, self._failures = True, True, 0
        if not message["limited"] and not _warned.is_set():
            _warned.set()
            warnings.warn(
                f"{sys.platform} does not limit the memory of a process: an answer that makes math-verify take all "
                "memory is stopped by its deadline alone",
                RuntimeWarning,
                stacklevel=2,
            )

    def note_failure(self, cause: str, final: bool = False) -> None:
        """A worker could not start; raises when there is no hope that one will."""
        with self._condition:
            self._failures += 1
            if not final and self._failures < START_ATTEMPTS:
                return
            self._failures = 0
            for worker in list(self.workers):
                if not worker.ready and worker.owner is None:
                    self._discard(worker)  # it would only say the same
        raise RuntimeError(
            f"the processes that compare answers cannot start: {cause}\nTo put it right, see whether memory, processes "
            "or open files are short here; where a module is missing, install math-verify for this interpreter: "
            f'"{sys.executable or "python"}" -m pip install "math-verify>=0.9"'
        )

    def _dismiss(self, call: _Call) -> None:
        """Take back what a call holds; what is busy, because the call was cut short, is killed."""
        with self._condition:
            if call in self._calls:
                self._calls.remove(call)
            if call in self._queue:
                self._queue.remove(call)
            for worker in call.workers:
                if worker.task is not None or call.is_closed or worker.process.poll() is not None:
                    self._discard(worker)
                worker.owner = None
            self._condition.notify_all()

    def close(self) -> None:
        """Stop every process. Calls that are running get `None` for what is left; a later one starts them again."""
        with self._condition:
            self.generation += 1
            self.has_started = False
            for worker in list(self.workers):
                if worker.owner is not None and worker.owner in self._calls:
                    worker.kill()  # the call in another thread, which waits on the pipes, is about to see it
                else:
                    self._discard(worker)
            self._condition.notify_all()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_condition"):
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a WorkerPool belongs to its process and is not pickled; call shared_pool in the other one")


def _check(name: str, value: Any, least: float, whole: bool = False) -> None:
    number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not number or not least <= value < math.inf:
        kind = "a whole number" if whole else "a finite number"
        raise ValueError(f"{name} is {value!r}; it must be {kind} of at least {least}; leave it out for the default")


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
_shared: dict[tuple[int, float, int], WorkerPool] = {}
_lock = threading.Lock()
_closing = threading.Event()
_warned = threading.Event()


def shared_pool(*, num_workers: int, timeout: float, memory_limit_mb: int = 1024) -> WorkerPool:
    """The one pool of this process with these settings, however many rewards ask for it.

    Args:
        num_workers (`int`): comparisons at the same time.
        timeout (`float`): seconds for one comparison.
        memory_limit_mb (`int`, *optional*, defaults to 1024): address space of one worker, in MiB.

    Example:

    ```python
    >>> shared_pool(num_workers=1, timeout=2.0) is shared_pool(num_workers=1, timeout=2.0)
    True

    ```
    """
    key = (num_workers, float(timeout), memory_limit_mb)
    with _lock:
        if key not in _shared:
            _shared[key] = WorkerPool(num_workers=num_workers, timeout=timeout, memory_limit_mb=memory_limit_mb)
        return _shared[key]


def close_pools() -> None:
    """Stop the processes of every pool; a later comparison starts them again.

    Example:

    ```python
    >>> close_pools()

    ```
    """
    for pool in list(_pools):
        pool.close()


def _close_for_good() -> None:
    _closing.set()
    close_pools()


def _forget_parents_workers() -> None:
    """After a fork the workers are the parent's, and locks may be held by threads that are not here."""
    global _lock
    _lock = threading.Lock()
    for pool in list(_pools):
        for worker in pool.workers:
            worker.forget()
        pool.reset()


atexit.register(_close_for_good)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents_workers)
