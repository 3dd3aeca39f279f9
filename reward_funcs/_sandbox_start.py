"""How the process that programs are forked from is started, and what a first program tries in it."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from typing import Any

from reward_funcs import _sandbox_wire as wire
from reward_funcs import _sandbox_zygote

START_SECONDS = 60.0  # for an interpreter to start on a machine that is busy
# Tries each layer; a layer that is not named here comes with one that is, by the same call of the kernel.
PROBE = """
import json, os, resource, socket
port, marker, user, memory = json.loads(input())
def fails(action):
    try: action()
    except OSError: return True
    return False
print(json.dumps({
    "network": port == 0 or fails(lambda: socket.create_connection(("127.0.0.1", port), 5)),
    "mount": not os.path.exists(marker),
    "pid": os.getppid() == 1,
    "root": not os.path.exists(marker),
    "uid": os.getuid() != user,
    "landlock": fails(lambda: os.listdir("/")),
    "seccomp": hasattr(os, "memfd_create") and fails(lambda: os.memfd_create("probe")),
    "rlimits": resource.getrlimit(resource.RLIMIT_AS)[1] in range(memory + 1),
}))
"""
NEEDED = frozenset({"network", "mount", "pid", "root", "seccomp", "rlimits"})


class SandboxError(RuntimeError):
    """The sandbox cannot start, or has died."""


def command(isolation: str, descriptor: int) -> list[str]:
    """The command that starts the process from which programs are forked.

    Args:
        isolation (`str`): `"bubblewrap"`, `"embedded"` or `"none"`.
        descriptor (`int`): of the socket through which it takes jobs.

    Raises:
        SandboxError: Where bubblewrap is asked for and not installed.
    """
    program = os.path.abspath(_sandbox_zygote.__file__)
    # the interpreter itself and not that of a virtual environment, whose packages are no business of a program
    python = os.path.realpath(sys.executable)
    words = [python, "-P", "-S", "-s", program, str(descriptor), isolation]
    if isolation != "bubblewrap":
        return words
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxError("bwrap is not installed")
    shown = [os.path.dirname(os.path.dirname(python)), os.path.dirname(program)]
    shown += ["/usr", "/lib", "/lib64", "/bin"]
    binds = [word for path in dict.fromkeys(shown) if os.path.exists(path) for word in ("--ro-bind", path, path)]
    apart = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    # root needs no user namespace, in which it could not become the users of its programs
    apart += [] if os.geteuid() == 0 else ["--unshare-user"]
    # the rights to set up namespaces for each program; they hold within bubblewrap's own
    apart += ["--cap-add", "ALL", "--die-with-parent", "--new-session", "--dev", "/dev", "--proc", "/proc"]
    # what is shown may lie under /tmp
    return [found, *apart, "--tmpfs", "/tmp", *binds, "--chdir", "/", "--", *words]


def connected() -> tuple[socket.socket, socket.socket]:
    """Two sockets above the standard streams, which a new process gets new, also where this one has closed its own."""
    pairs = [socket.socketpair()]
    while min(one.fileno() for one in pairs[-1]) < 3:
        pairs.append(socket.socketpair())
    for one in itertools.chain.from_iterable(pairs[:-1]):
        one.close()
    return pairs[-1]


@contextlib.contextmanager
def listening() -> Iterator[int]:
    """A port of this machine that a program without isolation can connect to, 0 where there is none."""
    try:
        server = socket.create_server(("127.0.0.1", 0))
    except OSError:
        yield 0
        return
    with server:
        yield server.getsockname()[1]


def first_message(sock: socket.socket) -> dict[str, Any]:
    """The first message of the process that programs are forked from."""
    sock.settimeout(START_SECONDS)
    data = b""
    try:
        while not data.endswith(b"\n"):
            part = sock.recv(4096)
            if not part:
                return {"error": "the process that starts programs ended at once"}
            data += part
    except OSError as error:
        return {"error": f"the process that starts programs does not answer ({type(error).__name__})"}
    finally:
        sock.settimeout(None)
    hello: dict[str, Any] = wire.loaded(data)
    return hello
