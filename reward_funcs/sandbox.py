"""Run programs that nobody has read: what isolates them on this machine, and a pool that runs them side by side."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from reward_funcs import _sandbox_start as starting
from reward_funcs import _sandbox_wire as wire
from reward_funcs._sandbox_jobs import Job as Job
from reward_funcs._sandbox_jobs import Outcome as Outcome
from reward_funcs._sandbox_jobs import Sandbox as Sandbox
from reward_funcs._sandbox_start import START_SECONDS, SandboxError
from reward_funcs._settings import check_flag, check_setting

ISOLATIONS = ("bubblewrap", "embedded", "none")
_LATE = 15.0  # beyond the deadlines that the sandbox keeps itself


class SandboxReport(NamedTuple):
    """What keeps programs apart on this machine.

    Args:
        isolation (`str`): `"bubblewrap"`, `"embedded"` or `"none"`.
        layers (`tuple[str, ...]`): what is in force, such as `"network"`, `"pid"`, `"mount"`, `"uid"`, `"landlock"`.
        problem (`str`): why there is no isolation; empty where there is.

    Each layer is one that a program run as a probe has met, or that the same call of the kernel has set up.
    """

    isolation: str
    layers: tuple[str, ...]
    problem: str = ""

    @property
    def is_isolated(self) -> bool:
        """Whether programs reach neither the network nor the user's files."""
        return self.isolation != "none"


class _Running:
    """A job that has been handed over."""

    def __init__(self, index: int, job: Job, sock: socket.socket, payload: bytes, seconds: float) -> None:
        self.index, self.job, self.sock = index, job, sock
        self.outbox, self.inbox = memoryview(payload), bytearray()
        self.start = time.monotonic()
        self.deadline = self.start + seconds
        self.outcome, self.over = Outcome(), ""

    def write(self) -> bool:
        """Send what the socket takes; False when nothing is left, or nobody reads."""
        try:
            self.outbox = self.outbox[self.sock.send(self.outbox) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return bool(self.outbox)

    def read(self) -> bool:
        """Take what has come; False when the job is over."""
        try:
            data = self.sock.recv(1 << 18)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        self.inbox += data
        while len(self.inbox) >= 4:
            length = int.from_bytes(self.inbox[:4], "big")
            if length > wire.MAX_FRAME:
                self.outcome.end = "crash"
                return False
            if len(self.inbox) < 4 + length:
                break
            frame = bytes(self.inbox[4 : 4 + length])
            del self.inbox[: 4 + length]
            if not self._take(frame):
                return False
        return bool(data)

    def _take(self, frame: bytes) -> bool:
        try:
            message = wire.loaded(frame)
        except wire.WireError:  # the tests' process was killed while it wrote
            self.outcome.end = "timeout"
            return False
        outcome = self.outcome
        if not _is_message(message):
            outcome.end = "crash"
            return False
        kind = message[0]
        if kind == "end":
            # the supervisor only knows that the process of the tests has ended, and not whether it was done
            ended = self.over or ("done" if outcome.failed else "crash")
            outcome.end = ended if message[1] == "done" else message[1]
            outcome.seconds = time.monotonic() - self.start
            return False
        if kind == "over":
            self.over = message[1]
        elif kind == "tests":
            outcome.num_tests = message[1]
        elif kind == "failed":
            outcome.failed = message[1]
        else:
            kept = message if self.job.judged is None else self.job.judged(message)
            outcome.messages.append(kept)
            if self.job.goes_on is not None and not self.job.goes_on(kept):
                outcome.end = "stopped"
                return False
        return True


def _is_message(message: Any) -> bool:
    """Whether a message has a form that the processes of a job send; what the reward makes of a test's, it sees."""
    if not isinstance(message, list) or len(message) < 2 or not isinstance(message[0], str):
        return False
    if message[0] == "tests":
        return type(message[1]) is int and message[1] >= 0
    return message[0] not in ("end", "over", "failed") or isinstance(message[1], str)


class LocalSandbox:
    """Runs programs on this machine, each in a process that reaches no network, no file and no other process.

    One process with Python's usual modules loaded is started once; each program runs in a fork of it. The tests run in
    another process than the program and call it from there, so that the program never holds an expected value.

    Args:
        isolation (`str`, *optional*, defaults to `"auto"`): `"bubblewrap"`, `"embedded"` (namespaces, another user,
            Landlock and limits of resources, without any program to install), `"none"`, or `"auto"` for the first of
            these that works, `"none"` only with `allow_unsafe`.
        timeout (`float`, *optional*, defaults to 5.0): seconds for one test.
        total_timeout (`float`, *optional*, defaults to 30.0): seconds for a program with all its tests.
        memory (`int`, *optional*, defaults to 1024): address space of each process of a program in MiB.
        output_limit (`int`, *optional*, defaults to 4194304): bytes of output of one test.
        num_workers (`int`, *optional*): programs at the same time, by default the number of processors, 8 at most.
        allow_unsafe (`bool`, *optional*, defaults to `False`): whether to run programs without isolation where the
            machine offers none: with this user's rights, files and network.

    Raises:
        ValueError: For a setting out of its range.

    Source: the layers are those of bubblewrap and of the kernel's documentation of namespaces and Landlock; the
    process from which others are forked is that of Python's `forkserver`. The data of a job never pass through it.

    Example:

    ```python
    >>> sandbox = LocalSandbox(allow_unsafe=True)
    >>> outcome = sandbox.run([Job("stdio", "print(int(input()) * 2)", {"inputs": ["21"]})])[0]
    >>> outcome.messages
    [['output', 0, '42\\n', 'ok']]
    >>> sandbox.close()

    ```
    """

    def __init__(
        self,
        *,
        isolation: str = "auto",
        timeout: float = 5.0,
        total_timeout: float = 30.0,
        memory: int = 1024,
        output_limit: int = 4 << 20,
        num_workers: int | None = None,
        allow_unsafe: bool = False,
    ) -> None:
        if isolation not in ("auto", *ISOLATIONS):
            raise ValueError(
                f"isolation={isolation!r:.80}: it must be one of 'auto', {', '.join(map(repr, ISOLATIONS))}; "
                "leave it out for the default"
            )
        self.isolation = isolation
        self.timeout = check_setting("timeout", timeout, 0.05)
        self.total_timeout = check_setting("total_timeout", total_timeout, 0.05)
        self.memory = check_setting("memory", memory, 128, whole=True)
        self.output_limit = check_setting("output_limit", output_limit, 1, most=8 << 20, whole=True)
        workers = min(8, os.cpu_count() or 1) if num_workers is None else num_workers
        self.num_workers = check_setting("num_workers", workers, 1, whole=True)
        self.allow_unsafe = check_flag("allow_unsafe", allow_unsafe)
        self._lock = threading.Lock()
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._report: SandboxReport | None = None

    def report(self) -> SandboxReport:
        """What isolates the programs of this sandbox; it starts it."""
        with self._lock:
            return self._started()

    def run(self, jobs: Sequence[Job]) -> list[Outcome | None]:
        """Run jobs side by side.

        Args:
            jobs (`Sequence[Job]`): N programs with their tests.

        Returns:
            `list[Outcome | None]`: N outcomes, in order; `None` where there is no isolation, or the sandbox died twice.
        """
        outcomes: list[Outcome | None] = [None] * len(jobs)
        with self._lock:
            left = list(range(len(jobs)))
            for _ in range(2):  # once more for what was running when the sandbox died
                if not left or not (self._started().is_isolated or (self.allow_unsafe and self._control)):
                    break
                try:
                    self._run(jobs, left, outcomes, (self.timeout, self.total_timeout))
                except (SandboxError, OSError):
                    self._stop()
                left = [index for index in left if outcomes[index] is None]
        return outcomes

    def _run(
        self,
        jobs: Sequence[Job],
        wanted: Sequence[int],
        outcomes: list[Outcome | None],
        seconds: tuple[float, float],
    ) -> None:
        waiting, running = deque(wanted), 0
        with selectors.DefaultSelector() as selector:
            try:
                while waiting or running:
                    while waiting and running < self.num_workers:
                        index = waiting.popleft()
                        one = self._hand_over(index, jobs[index], outcomes, seconds)
                        if one is not None:
                            selector.register(one.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, one)
                            running += 1
                    running -= self._turn(selector, outcomes)
            finally:
                for key in list(selector.get_map().values()):
                    key.data.sock.close()

    def _turn(self, selector: selectors.BaseSelector, outcomes: list[Outcome | None]) -> int:
        """Wait for something to happen; how many jobs are over."""
        ended = 0
        for key, events in selector.select(1.0):
            one: _Running = key.data
            if events & selectors.EVENT_WRITE and not one.write():
                selector.modify(one.sock, selectors.EVENT_READ, one)
            if events & selectors.EVENT_READ and not one.read():
                if not one.outcome.end:
                    raise SandboxError("a supervisor has died")
                outcomes[one.index] = one.outcome
                selector.unregister(one.sock)
                one.sock.close()
                ended += 1
        now = time.monotonic()
        if any(key.data.deadline < now for key in selector.get_map().values()):
            raise SandboxError("a supervisor does not answer")
        return ended

    def _hand_over(
        self, index: int, job: Job, outcomes: list[Outcome | None], seconds: tuple[float, float]
    ) -> _Running | None:
        assert self._control is not None
        try:
            payload = wire.packed({"mode": job.mode, "code": _clean(job.code), **job.data}, wire.MAX_JOB)
        except wire.WireError:
            outcomes[index] = Outcome(failed="too_large", end="done")
            return None
        total = min(seconds[1], float(job.data.get("seconds", seconds[1])))
        header = {
            "timeout": seconds[0],
            "total_timeout": total,
            "memory_mb": self.memory,
            "output_bytes": self.output_limit,
            "scripts": job.mode == "stdio",
        }
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._control, [json.dumps(header).encode()], [theirs.fileno()])
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        return _Running(index, job, ours, payload, total + _LATE)

    def _started(self) -> SandboxReport:
        """Start the process that programs are forked from, unless it runs."""
        if self._zygote is not None and self._zygote.poll() is None and self._report is not None:
            return self._report
        self._stop()
        wanted = ISOLATIONS if self.isolation == "auto" else (self.isolation,)
        problems = []
        for isolation in wanted:
            if isolation == "none" and not self.allow_unsafe:
                break
            try:
                layers = self._start(isolation)
            except SandboxError as error:
                problems.append(f"{isolation}: {error}")
                continue
            self._report = SandboxReport(isolation, layers, "; ".join(problems) if isolation == "none" else "")
            return self._report
        return SandboxReport("none", (), "; ".join(problems) or "isolation='none' needs allow_unsafe=True")

    def _start(self, isolation: str) -> tuple[str, ...]:
        ours, theirs = starting.connected()
        try:
            self._zygote = subprocess.Popen(
                starting.command(isolation, theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd=os.sep,
                umask=0o022,
                env={"PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise SandboxError(f"{type(error).__name__}: {error}") from None
        finally:
            theirs.close()
        self._control = ours
        hello = starting.first_message(ours)
        if "error" in hello:
            self._stop()
            raise SandboxError(hello["error"])
        try:
            return self._probed(isolation, hello["layers"])
        except (SandboxError, OSError) as error:
            self._stop()
            raise SandboxError(str(error)) from None

    def _probed(self, isolation: str, layers: list[str]) -> tuple[str, ...]:
        """Run programs that try every layer; those of the layers that hold."""
        marker = os.path.abspath(__file__)
        found: list[Outcome | None] = [None, None]
        with starting.listening() as port:
            asked = json.dumps([port, marker, os.getuid(), self.memory << 20])
            jobs = [
                Job("stdio", starting.PROBE, {"inputs": [asked]}),
                Job("asserts", "def f(): return 1", {"blocks": ["assert f() == 1"]}),
            ]
            self._run(jobs, [0, 1], found, (START_SECONDS, START_SECONDS))
        script, calls = found
        if script is None or calls is None or calls.messages != [["verdict", 0, "passed"]] or not script.messages:
            raise SandboxError("a program that was run as a probe did not end well")
        _, _, text, reason = script.messages[0]
        held = json.loads(text) if reason == "ok" else {}
        lost = sorted(starting.NEEDED - {name for name in held if held[name]}) if isolation != "none" else []
        if lost:
            raise SandboxError(f"a program that was run as a probe was not kept apart: {', '.join(lost)}")
        return tuple(name for name in layers if held.get(name, True))

    def _stop(self) -> None:
        if self._control is not None:
            with contextlib.suppress(OSError):  # a fork of this process may hold the socket too
                self._control.shutdown(socket.SHUT_RDWR)
            self._control.close()
            self._control = None
        if self._zygote is not None:
            # it ends its programs when the socket is closed; they end with it if it does not
            try:
                self._zygote.wait(timeout=6)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._zygote.pid, signal.SIGKILL)
                self._zygote.wait()
            self._zygote = None
        self._report = None

    def close(self) -> None:
        """End every process; the next call starts them again."""
        with self._lock:
            self._stop()

    def forget(self) -> None:
        """After a fork: the processes are the parent's."""
        self._lock = threading.Lock()
        if self._control is not None:
            self._control.close()
        if self._zygote is not None:
            self._zygote.returncode = 0  # or Popen warns that it is still running
        self._zygote = self._control = self._report = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a LocalSandbox belongs to its process and is not pickled; make one in the other process")


def _clean(code: str) -> str:
    return code.encode("utf-8", "replace").decode("utf-8")  # lone surrogates


_shared: dict[tuple[Any, ...], LocalSandbox] = {}
_shared_lock = threading.Lock()


def shared_sandbox(**settings: Any) -> LocalSandbox:
    """The one sandbox of this process with these settings, however many rewards ask for it.

    Args:
        **settings: as of [`LocalSandbox`].
    """
    key = tuple(sorted(settings.items()))
    with _shared_lock:
        if key not in _shared:
            _shared[key] = LocalSandbox(**settings)
        return _shared[key]


@lru_cache(maxsize=1)
def sandbox_report() -> SandboxReport:
    """What isolates programs on this machine; found once by starting a sandbox and ending it.

    Example:

    ```python
    >>> sandbox_report().isolation in ("bubblewrap", "embedded", "none")
    True

    ```
    """
    sandbox = LocalSandbox()
    try:
        return sandbox.report()
    finally:
        sandbox.close()


def close_sandboxes() -> None:
    """End the processes of every shared sandbox; the next use starts them again."""
    for sandbox in list(_shared.values()):
        sandbox.close()


def _forget() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()
    for sandbox in _shared.values():
        sandbox.forget()


def __getattr__(name: str) -> Any:
    """`HTTPSandbox`, whose module builds on this one and loads Python's HTTP client."""
    if name != "HTTPSandbox":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from reward_funcs._sandbox_http import HTTPSandbox

    return HTTPSandbox


atexit.register(close_sandboxes)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
