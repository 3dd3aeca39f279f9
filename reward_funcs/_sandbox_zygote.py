"""The process from which those of the programs are forked: started once, with what programs import loaded already.

It takes jobs from a socket. Each gets a supervisor, which enters a PID namespace, starts the process of the tests, and
ends everything at the deadline. No process of a program inherits the data of a job: they come through a socket of the
job's own, which is read after the fork.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import sysconfig
import tempfile
import time
import types

_GRACE = 2.0  # seconds that the process of the tests has beyond the deadline it keeps itself
_PRELOADED = (
    "math cmath re json random string bisect heapq itertools functools collections operator copy typing datetime "
    "decimal fractions statistics hashlib dataclasses enum abc contextlib array calendar textwrap numbers io queue"
)
_DEVICES = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"]
MAX_HEADER = 4096


def _readable() -> list[str]:
    """Directories that a program must see: Python's library and the system's shared ones."""
    library = sysconfig.get_paths()["stdlib"]
    own = os.path.dirname(library)
    return list(dict.fromkeys([own, "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", *_DEVICES]))


def _isolated(outer: str) -> dict[str, object]:
    """Enter what the kernel allows; the settings say what was possible."""
    from reward_funcs import _sandbox_layers as layers

    found: dict[str, object] = {"layers": [], "has_namespaces": False, "has_root": False, "readable": _readable()}
    names: list[str] = []
    if outer == "embedded":
        names = layers.become_alone()
        if names:
            layers.enter_small_root(_readable())
            found["has_namespaces"] = True
            found["has_root"] = os.getuid() == 0 and "user" not in names
            names += ["pid", "root", *(["uid"] if found["has_root"] else [])]
    elif outer == "bubblewrap":
        names = ["bubblewrap", "network", "pid", "mount"]
    found["is_isolated"] = outer != "none"
    found["has_landlock"] = outer != "none" and layers.landlock_version() > 0
    found["layers"] = [*names, *(["landlock"] if found["has_landlock"] else []), "rlimits"]
    return found


def main() -> None:
    """Serve jobs until the other side of the socket is gone."""
    package = types.ModuleType("reward_funcs")
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]  # its modules without its __init__
    sys.modules["reward_funcs"] = package
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in _PRELOADED.split():
        importlib.import_module(name)
    from reward_funcs import _sandbox_tester  # noqa: F401 - loaded before the forks

    try:
        settings = _isolated(sys.argv[2])
    except OSError as error:
        control.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
        return
    gc.collect()
    gc.freeze()
    control.sendall(json.dumps(settings).encode() + b"\n")
    _serve(control, settings)


def _serve(control: socket.socket, settings: dict[str, object]) -> None:
    children: set[int] = set()
    control.settimeout(0.2)
    while True:
        for pid in list(children):
            if os.waitpid(pid, os.WNOHANG)[0]:
                children.discard(pid)
        try:
            header, descriptors, _, _ = socket.recv_fds(control, MAX_HEADER, 1)
        except TimeoutError:
            continue
        if not header:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            return
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                control.close()
                _supervise(socket.socket(fileno=descriptors[0]), {**settings, **json.loads(header)})
                status = 0
            finally:
                os._exit(status)
        children.add(pid)
        for number in descriptors:
            os.close(number)


def _supervise(sock: socket.socket, values: dict[str, object]) -> None:
    """Run one job in a process of its own and end whatever it has started."""
    from reward_funcs import _sandbox_layers as layers
    from reward_funcs._sandbox_tester import Settings, run_job
    from reward_funcs._sandbox_wire import Channel

    layers.die_with_parent()
    layers.adopt_orphans()
    directory = None
    if not values["has_namespaces"]:
        directory = tempfile.mkdtemp(prefix="answer-")
        values["directory"] = directory
    else:
        layers.unshare(layers.CLONE_NEWPID)
    settings = Settings(values)
    if directory is not None and os.geteuid() == 0 and settings.is_isolated:
        os.chown(directory, settings.user, settings.user)
    pid = os.fork()
    if pid == 0:
        try:
            layers.die_with_parent()
            run_job(Channel(sock), settings)
        finally:
            os._exit(0)
    reason = "timeout" if _is_late(pid, sock, settings.total_timeout + _GRACE) else "done"
    _kill(pid)
    _sweep()
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
    try:
        Channel(sock).send(["end", reason])
    except OSError:  # the caller does not want it any more
        pass


def _is_late(pid: int, sock: socket.socket, seconds: float) -> bool:
    """Wait for a process, the deadline, or the caller to close its end; True for the deadline."""
    deadline = time.monotonic() + seconds
    poll = select.poll()
    if not hasattr(os, "pidfd_open"):
        while time.monotonic() < deadline:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return False
            time.sleep(0.005)
        return True
    descriptor = os.pidfd_open(pid)
    poll.register(descriptor, select.POLLIN)
    poll.register(sock, select.POLLHUP)
    ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
    os.close(descriptor)
    return not ready


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _sweep() -> None:
    """Kill and reap every descendant: orphans come to this process, which has declared itself their parent."""
    own = f"/proc/self/task/{os.getpid()}/children"
    deadline = time.monotonic() + _GRACE  # without a PID namespace and /proc some cannot be found
    while time.monotonic() < deadline:
        try:
            found = os.waitpid(-1, os.WNOHANG)[0]
        except ChildProcessError:
            return
        if found:
            continue
        try:
            with open(own, encoding="ascii") as file:
                children = [int(word) for word in file.read().split()]
        except OSError:
            children = []  # in a PID namespace all end with its first process, and /proc is not shown
        for child in children:
            _kill(child)
        time.sleep(0.001)


if __name__ == "__main__":
    main()
