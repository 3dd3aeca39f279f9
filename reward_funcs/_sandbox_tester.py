"""The process that runs the tests against the program's process; it holds what the program must not see.

It is the first process of a PID namespace where there is one: when it ends, the kernel ends all others.
"""

from __future__ import annotations

import ast
import builtins
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from reward_funcs import _sandbox_layers as layers
from reward_funcs._sandbox_answer import Server, close_all_but, run_script
from reward_funcs._sandbox_pytest import UnsupportedTest, collected
from reward_funcs._sandbox_remote import AnswerGone, Client
from reward_funcs._sandbox_wire import Channel, WireError

_BUILTINS = frozenset(dir(builtins))


class Settings:
    """What holds for one job; it comes before the job's data, which the program's process must not inherit.

    Args:
        values (`dict[str, Any]`): `timeout` and `total_timeout` in seconds, `memory_mb`, `output_bytes`, `scripts`
            (whether each test runs the program anew), and `is_isolated`, `has_root`, `has_namespaces`,
            `has_landlock`.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.timeout = float(values["timeout"])
        self.total_timeout = float(values["total_timeout"])
        self.memory_mb = int(values["memory_mb"])
        self.output_bytes = int(values["output_bytes"])
        self.scripts = bool(values["scripts"])
        self.has_root = bool(values.get("has_root"))
        self.has_namespaces = bool(values.get("has_namespaces"))
        self.is_isolated = bool(values.get("is_isolated"))
        self.has_landlock = bool(values.get("has_landlock"))
        self.readable: list[str] = list(values.get("readable", ()))
        self.directory = str(values.get("directory", "/tmp"))
        self.user = layers.spare_user(os.getpid())


def run_job(job: Channel, settings: Settings) -> None:
    """Start the program's process, read the job's data, and send a message for each test as it is done."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if settings.scripts:
        data = job.receive()
        for index, text in enumerate(data["inputs"]):
            job.send(["output", index, *_script(data["code"], text, settings, job)])
        return
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _be_answer(theirs, settings)
    theirs.close()
    if settings.has_namespaces:
        layers.drop_user(layers.NOBODY)
        layers.die_with_parent()
    layers.limit(memory_mb=2048, cpu_seconds=int(settings.total_timeout) + 2, processes=None, file_mb=0)
    layers.hide_memory()
    _run_calls(job, Client(Channel(ours)), settings)


def _be_answer(sock: socket.socket, settings: Settings) -> None:
    """Turn this process into that of the program; it does not return."""
    try:
        sock = socket.socket(fileno=os.dup2(sock.fileno(), 3))
        enter_cell(settings, [3])
        Server(Channel(sock)).serve()
    except BaseException:  # noqa: BLE001 - the other side sees that the process is gone
        pass
    finally:
        os._exit(0)


def enter_cell(settings: Settings, kept: list[int]) -> None:
    """Close what was inherited and give up every right that a program does not need."""
    close_all_but(kept)
    os.setsid()
    if settings.has_namespaces:
        layers.private_tmp(settings.user if settings.has_root else layers.NOBODY, 64)
    os.chdir(settings.directory)
    if settings.is_isolated:  # otherwise there is no library to read for another user where it is in this one's home
        layers.drop_user(settings.user)
    layers.die_with_parent()
    if settings.has_landlock:
        layers.restrict_files(settings.readable, [settings.directory])
    layers.limit(
        memory_mb=settings.memory_mb,
        cpu_seconds=int(settings.total_timeout) + 1,
        # one user of its own for each program, or one for all that run at the same time; else it counts the user's own
        processes=(16 if settings.has_root else 64) if settings.has_namespaces else None,
        file_mb=32,
    )
    os.environ.clear()


def _run_calls(job: Channel, client: Client, settings: Settings) -> None:
    data = job.receive()
    end = time.monotonic() + settings.total_timeout
    client.deadline = time.monotonic() + settings.timeout
    mode = data["mode"]
    try:
        loaded = client.request("compile" if mode == "compile" else "load", data["code"])
        if loaded[0] == "raise":
            raise client.exception(loaded)
        described = loaded[1] or {}
        if not isinstance(described, dict):
            raise AnswerGone("bad_value")
    except AnswerGone as gone:
        job.send(["failed", gone.reason])
        return
    except Exception as error:  # noqa: BLE001 - the program's own
        job.send(["failed", "syntax_error" if isinstance(error, SyntaxError) else "error"])
        return
    job.send(["loaded"])
    tests = {"asserts": _blocks, "calls": _method_calls, "pytest": _pytest}.get(mode, lambda *_: [])
    for index, test in enumerate(tests(data, client, described)):
        client.deadline = min(end, time.monotonic() + settings.timeout)
        message, over = _judged(test)
        job.send([message[0], index, *message[1:]])
        if over or (data.get("stop") and message[0] == "verdict" and message[1] != "passed"):
            return


def _judged(test: Callable[[], list[Any]]) -> tuple[list[Any], bool]:
    """A test's message, and whether the program's process is gone."""
    try:
        return test(), False
    except AnswerGone as gone:
        return ["verdict", gone.reason], True
    except AssertionError:
        return ["verdict", "wrong"], False
    except (UnsupportedTest, WireError):
        return ["verdict", "unsupported_test"], False
    except (Exception, SystemExit) as error:  # noqa: BLE001 - what the program raised, or what its value made of a test
        return ["verdict", "missing_name" if isinstance(error, NameError) else "error"], False


def _blocks(data: dict[str, Any], client: Client, described: dict[str, Any]) -> list[Callable[[], list[Any]]]:
    def one(code: str) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            try:
                compiled, used = compile(code, "<test>", "exec", dont_inherit=True), _names(code)
            except (SyntaxError, ValueError, MemoryError, RecursionError):
                return ["verdict", "bad_test"]
            exec(compiled, namespace(client, described, used))
            return ["verdict", "passed"]

        return run

    return [one(code) for code in data["blocks"]]


def namespace(client: Client, described: dict[str, Any], used: set[str]) -> dict[str, Any]:
    """The names of the program that a test uses.

    A name of Python's own, such as `abs`, counts as the program's only where the test uses nothing else of it:
    otherwise a program could answer for the functions with which a test checks it.
    """
    wanted = {name: value for name, value in described.items() if name in used}
    own = {name: value for name, value in wanted.items() if name not in _BUILTINS}
    return {"__name__": "tests", **client.names(own or wanted)}


def _names(code: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}


def _method_calls(data: dict[str, Any], client: Client, described: dict[str, Any]) -> list[Callable[[], list[Any]]]:
    def one(arguments: Any) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            reply = client.request("method", data["entry"], arguments)
            if reply[0] == "raise":
                raise client.exception(reply)
            client.value(reply)  # what cannot be read is not passed on
            return ["value", reply[1]]

        return run

    return [one(arguments) for arguments in data["inputs"]]


def _pytest(data: dict[str, Any], client: Client, described: dict[str, Any]) -> list[Callable[[], list[Any]]]:
    """The tests of a module that is written for pytest, without pytest."""
    try:
        space = namespace(client, described, _names(data["tests"]) | _imported(data["tests"]))
        found = collected(data["tests"], space)
    except (SyntaxError, ValueError):
        return [lambda: ["verdict", "bad_test"]]
    except AnswerGone as gone:
        reason = gone.reason
        return [lambda: ["verdict", reason]]
    except (UnsupportedTest, WireError):
        return [lambda: ["verdict", "unsupported_test"]]
    except Exception as error:  # noqa: BLE001 - a name that the program lacks, or what it raised
        verdict = "missing_name" if isinstance(error, (NameError, ImportError)) else "error"
        return [lambda: ["verdict", verdict]]
    if not found:
        return [lambda: ["verdict", "bad_test"]]

    def one(test: Callable[[], None]) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            test()
            return ["verdict", "passed"]

        return run

    return [one(test) for test in found]


def _imported(code: str) -> set[str]:
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in nodes for alias in node.names}


def _script(code: str, text: str, settings: Settings, job: Channel) -> tuple[str, str]:
    """What a program prints for an input, and `ok`, `error`, `timeout` or `output_limit`."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_script(code, text, settings, writing)
    os.close(writing)
    deadline = time.monotonic() + settings.timeout
    output, reason = _drained(reading, deadline, settings.output_bytes)
    if not reason:
        reason = _status(pid, deadline)
    _end(pid, settings.has_namespaces)
    os.close(reading)
    return output.decode("utf-8", "replace"), reason


def _be_script(code: str, text: str, settings: Settings, writing: int) -> None:
    status = 1
    try:
        with _input(text) as source:
            os.dup2(source.fileno(), 0)
        os.dup2(writing, 1)
        enter_cell(settings, [])
        status = run_script(code)
    finally:
        os._exit(status)


def _input(text: str) -> Any:
    if hasattr(os, "memfd_create"):
        file = os.fdopen(os.memfd_create("stdin"), "w+b")
    else:
        import tempfile

        file = tempfile.TemporaryFile()
    file.write(text.encode("utf-8", "replace"))
    file.flush()
    file.seek(0)
    return file


def _drained(reading: int, deadline: float, most: int) -> tuple[bytes, str]:
    """What comes out of a pipe until its end, the deadline, or `most` bytes."""
    output = bytearray()
    poll = select.poll()
    poll.register(reading, select.POLLIN | select.POLLHUP)
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return bytes(output), "timeout"
        part = os.read(reading, 1 << 16)
        if not part:
            return bytes(output), ""
        output += part
        if len(output) > most:
            return bytes(output[:most]), "output_limit"


def _status(pid: int, deadline: float) -> str:
    """How a process ended, which may have closed its output long before."""
    pause = 0.0005
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return "ok" if status == 0 else "error"
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
    return "timeout"


def _end(pid: int, has_namespaces: bool) -> None:
    """Kill what a program has left: everything in the namespace, or else its process group."""
    try:
        if has_namespaces:
            os.kill(-1, signal.SIGKILL)
        else:
            os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass
