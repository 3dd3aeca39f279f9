"""The process that runs the tests against the program's process; it holds what the program must not see.

It is the first process of a PID namespace where there is one: when it ends, the kernel ends all others.
"""

from __future__ import annotations

import builtins
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from reward_funcs import _sandbox_layers as layers
from reward_funcs import _sandbox_seccomp as seccomp
from reward_funcs._sandbox_answer import Server, close_all_but, run_script
from reward_funcs._sandbox_names import Uses, parsed, standard_names, uses_of
from reward_funcs._sandbox_pytest import ProgramModule, UnsupportedTest, collected
from reward_funcs._sandbox_remote import AnswerGone, Client, Remote, Unsupported, is_of_program
from reward_funcs._sandbox_wire import ALARM, MAX_JOB, Channel, WireError, encoded, packed

Test = Callable[[], list[Any]]
MAX_PROCESSES = 16  # of one program, threads included


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


def run_job(job: Channel, settings: Settings, alarms: int) -> None:
    """Start the program's process, read the job's data, and send a message for each test as it is done.

    Args:
        job (`Channel`): where the data come from; `["over", reason]` goes there at the end: what ends this process
            earlier cannot be taken for the end of the tests.
        settings (`Settings`): what holds for the job.
        alarms (`int`): descriptor to which the deadline of each test is written, for whoever can end this process.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if settings.scripts:
        _run_scripts(job, settings)
        return
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _be_answer(theirs, settings)
    theirs.close()
    if settings.has_namespaces:
        layers.drop_user(layers.NOBODY)
        layers.die_with_parent()
    # well behind the deadline, whose verdict is the better one
    layers.limit(memory_mb=2048, cpu_seconds=int(settings.total_timeout) + 10, processes=None, file_mb=0)
    layers.hide_memory()
    _run_calls(job, Client(Channel(ours)), settings, alarms)


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
        layers.private_tmp(settings.user if settings.has_root else os.getuid(), 64, settings.readable)
    os.chdir(settings.directory)
    if settings.is_isolated:  # otherwise there is no library to read for another user where it is in this one's home
        layers.drop_user(settings.user)
    layers.die_with_parent()
    if settings.has_landlock:
        layers.restrict_files(settings.readable, [settings.directory, "/dev/null"])
    layers.limit(
        memory_mb=settings.memory_mb,
        cpu_seconds=int(settings.total_timeout) + 1,
        # each program has a user or a user namespace of its own; without them this counts the user's own processes
        processes=MAX_PROCESSES if settings.has_namespaces else None,
        file_mb=32,
    )
    if settings.is_isolated:
        seccomp.refuse_calls()
    os.environ.clear()


def _run_calls(job: Channel, client: Client, settings: Settings, alarms: int) -> None:
    data = job.receive(most=MAX_JOB)
    end = time.monotonic() + settings.total_timeout

    def begin() -> None:
        client.deadline = min(end, time.monotonic() + settings.timeout)
        os.write(alarms, ALARM.pack(client.deadline))

    begin()
    try:
        described = _loaded(data, client)
    except _Failed as failed:
        job.send(["failed", str(failed)])
        return
    except AnswerGone as gone:
        job.send(["failed", gone.reason])
        return
    # the module of tests runs its own statements first, with the time of a test
    tests = _TESTS[data["mode"]](data, client, described)
    job.send(["tests", len(tests)])
    for index, test in enumerate(tests):
        begin()
        message, over = _judged(test)
        job.send([message[0], index, *message[1:]])
        if over or (data.get("stop") and message[0] == "verdict" and message[1] != "passed"):
            break
        if time.monotonic() >= end and index + 1 < len(tests):
            job.send(["over", "timeout"])
            return
    job.send(["over", "done"])


class _Failed(Exception):
    """The program cannot be loaded; the text says why."""


def _loaded(data: dict[str, Any], client: Client) -> dict[str, Any]:
    """Run the program, or compile it; what its process says of its names."""
    if data["mode"] == "compile":
        reply = client.request("compile", data["code"])
    else:
        reply = client.request("load", data["code"], bool(data.get("prelude")))
    if reply[0] == "raise":
        names = reply[1] if len(reply) > 1 and isinstance(reply[1], list) else []
        raise _Failed("syntax_error" if "SyntaxError" in names else "error")
    described = reply[1] if len(reply) > 1 else None
    if described is not None and not isinstance(described, dict):
        raise AnswerGone("bad_value")
    return described or {}


def _judged(test: Test) -> tuple[list[Any], bool]:
    """A test's message, and whether no other test can follow."""
    try:
        return test(), False
    except AnswerGone as gone:
        return ["verdict", gone.reason], True
    except Unsupported:
        return ["verdict", "unsupported_test"], True
    except UnsupportedTest:
        return ["verdict", "unsupported_test"], False
    except (Exception, SystemExit) as error:  # noqa: BLE001 - what the program raised, or what its value made of a test
        if isinstance(error, AssertionError) and not is_of_program(error):
            return ["verdict", "wrong"], False
        return ["verdict", "missing_name" if isinstance(error, NameError) else "error"], False


def _blocks(data: dict[str, Any], client: Client, described: dict[str, Any]) -> list[Test]:
    """Blocks of statements: a text, or statements, an expression and the length of the value that is expected of it."""
    blocks: list[list[Any]] = [[one, "", 0] if isinstance(one, str) else one for one in data["blocks"]]
    texts = [f"{code}\n{value}" for code, value, _ in blocks]
    uses = _uses(data, texts)

    def one(code: str, value: str, most: int, text: str) -> Test:
        def run() -> list[Any]:
            if parsed(text) is None:
                return ["verdict", "bad_test"]
            space = _namespace(client, described, uses)
            exec(compile(code, "<test>", "exec", dont_inherit=True), space)
            if not value:
                return ["verdict", "passed"]
            return _sent(eval(compile(value, "<test>", "eval", dont_inherit=True), space), most)

        return run

    return [one(code, value, most, text) for (code, value, most), text in zip(blocks, texts, strict=True)]


def _sent(value: Any, most: int) -> list[Any]:
    """A value for whoever knows the expected one; what cannot be that one is not sent."""
    try:
        message = ["value", encoded(value, _held)]
        return message if len(packed(message)) <= most else ["verdict", "wrong"]
    except (WireError, ValueError, RecursionError):
        return ["verdict", "wrong"]


def _held(value: Any) -> Any:
    """What an object of the program holds where it is an instance of a subclass of a plain type."""
    if type(value) is Remote and value._plain:
        return encoded(value._plain[0], _held)
    raise WireError("no plain value")


def _uses(data: dict[str, Any], texts: list[str]) -> Uses:
    """What the tests use, as the job says it of all tests of the gold, or else what these say."""
    if "entries" in data:
        return Uses(frozenset(data["entries"]), frozenset(data["classes"]), False)
    return uses_of(tree for tree in map(parsed, texts) if tree is not None)


def _namespace(client: Client, described: dict[str, Any], uses: Uses) -> dict[str, Any]:
    """The names that a test sees: those of the program, and Python's own where a test checks with them.

    Otherwise a program could answer for the functions with which a test checks it.
    """
    names = standard_names(client.names(described, set(uses.classes)), uses)
    ProgramModule.provide(names)

    def type_of(value: Any, *rest: Any) -> Any:
        return client.operate("type", value) if type(value) is Remote else type(value, *rest)

    # the last two whatever the program has said: they are what Python looks up for itself
    return {"type": type_of, **names, "__name__": "tests", "__builtins__": builtins}


def _method_calls(data: dict[str, Any], client: Client, described: dict[str, Any]) -> list[Test]:
    lengths = data.get("lengths") or [1 << 30] * len(data["inputs"])

    def one(arguments: Any, most: int) -> Test:
        def run() -> list[Any]:
            reply = client.request("method", data["entry"], arguments)
            if reply[0] == "raise":
                client.value(reply)
            if len(reply) < 2:
                raise AnswerGone("bad_value")
            # not even read here: whoever knows the expected value compares what was sent
            return ["value", reply[1]] if len(packed(["value", reply[1]])) <= most else ["verdict", "wrong"]

        return run

    return [one(arguments, most) for arguments, most in zip(data["inputs"], lengths, strict=True)]


def _pytest(data: dict[str, Any], client: Client, described: dict[str, Any]) -> list[Test]:
    """The tests of a module that is written for pytest, without pytest."""
    if parsed(data["tests"]) is None:
        return [lambda: ["verdict", "bad_test"]]
    found: list[Callable[[], None]] = []

    def collect() -> list[Any]:
        found.extend(collected(data["tests"], _namespace(client, described, _uses(data, [data["tests"]]))))
        return ["verdict", "" if found else "bad_test"]

    message, _ = _judged(collect)
    if message[1]:
        return [lambda: message]

    def one(test: Callable[[], None]) -> Test:
        def run() -> list[Any]:
            test()
            return ["verdict", "passed"]

        return run

    return [one(test) for test in found]


_TESTS: dict[str, Callable[[dict[str, Any], Client, dict[str, Any]], list[Test]]] = {
    "asserts": _blocks,
    "calls": _method_calls,
    "pytest": _pytest,
    "compile": lambda *_: [],
}


def _run_scripts(job: Channel, settings: Settings) -> None:
    """Run the program anew for each input."""
    data = job.receive(most=MAX_JOB)
    end = time.monotonic() + settings.total_timeout
    for index, text in enumerate(data["inputs"]):
        output, reason = _script(data["code"], text, settings, min(end, time.monotonic() + settings.timeout))
        try:
            job.send(["output", index, output, reason])
        except WireError:  # characters that take several bytes each on the way
            job.send(["output", index, "", "output_limit"])
        if time.monotonic() >= end and index + 1 < len(data["inputs"]):
            job.send(["over", "timeout"])
            return
    job.send(["over", "done"])


def _script(code: str, text: str, settings: Settings, deadline: float) -> tuple[str, str]:
    """What a program prints for an input, and `ok`, `error`, `timeout` or `output_limit`."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_script(code, text, settings, writing)
    os.close(writing)
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
