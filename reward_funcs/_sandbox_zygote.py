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
    "decimal fractions statistics hashlib dataclasses enum abc contextlib array calendar textwrap numbers io queue "
    # before a directory that may hold them is covered
    "encodings.ascii encodings.utf_8 encodings.latin_1"
)
_DEVICES = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"]
MAX_HEADER = 4096


def _readable() -> list[str]:
    """Directories that a program must see: Python's library and the system's shared ones."""
    library = sysconfig.get_paths()["stdlib"]
    own = os.path.dirname(library)
    return list(dict.fromkeys([own, "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", *_DEVICES]))


def _hidden() -> list[str]:
    """Directories of installed packages within those that a program sees."""
    library = sysconfig.get_paths()["stdlib"]
    paths = [f"{library}/site-packages", f"{library}/dist-packages"]
    return [*paths, "/usr/lib/python3/dist-packages"]


def _isolated(outer: str) -> dict[str, object]:
    """Enter what the kernel allows; the settings say what was possible."""
    from reward_funcs import _sandbox_layers as layers
    from reward_funcs import _sandbox_seccomp as seccomp

    found: dict[str, object] = {"layers": ["rlimits"], "has_namespaces": False, "readable": _readable()}
    if outer == "none":
        return found
    if outer == "bubblewrap" and (os.getppid() != 1 or os.getpid() > 9):
        raise OSError("bwrap gave no PID namespace of its own")
    if not seccomp.is_available():
        raise OSError("no filter of system calls (seccomp) here: programs could leave data for each other")
    names = layers.become_alone()
    if not names:
        raise OSError("the kernel gives this user no namespaces of its own")
    has_users = "user" not in names and layers.knows_spare_users()
    found["processes"] = os.open("/proc", os.O_PATH)
    layers.enter_small_root(_readable(), _hidden())
    found["has_namespaces"] = found["is_isolated"] = True
    found["has_root"] = has_users
    found["has_landlock"] = layers.landlock_version() > 0
    names += ["pid", "root", *(["uid"] if has_users else []), *(["landlock"] if found["has_landlock"] else [])]
    found["layers"] = [*(["bubblewrap"] if outer == "bubblewrap" else []), *names, "seccomp", "rlimits"]
    return found


def _forget_the_caller() -> None:
    """Put back what a process inherits beside its files: the mask of new files, and what becomes of signals."""
    os.umask(0o022)  # under a stricter one programs of another user could not enter the directories made here
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python itself ignores these two
        if signal.getsignal(number) == signal.SIG_IGN:  # such as SIGCHLD, without which no child could be waited for
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def main() -> None:
    """Serve jobs until the other side of the socket is gone."""
    _forget_the_caller()
    package = types.ModuleType("reward_funcs")
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]  # its modules without its __init__
    sys.modules["reward_funcs"] = package
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in _PRELOADED.split():
        importlib.import_module(name)
    from reward_funcs import _sandbox_tester  # noqa: F401 - loaded before the forks
    from reward_funcs._sandbox_prelude import prelude

    prelude()

    try:
        settings = _isolated(sys.argv[2])
    except (OSError, LookupError) as error:
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
            _wait_for(children)
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


def _wait_for(children: set[int]) -> None:
    """Let supervisors end their programs and remove what these have left, now that nobody waits for them."""
    deadline = time.monotonic() + 2 * _GRACE
    while children and time.monotonic() < deadline:
        for pid in list(children):
            if os.waitpid(pid, os.WNOHANG)[0]:
                children.discard(pid)
        time.sleep(0.005)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _supervise(sock: socket.socket, values: dict[str, object]) -> None:
    """Run one job in a process of its own and end whatever it has started."""
    from reward_funcs import _sandbox_layers as layers
    from reward_funcs._sandbox_tester import Settings, run_job
    from reward_funcs._sandbox_wire import Channel

    layers.die_with_parent()
    layers.adopt_orphans()
    directory = None
    if not values["has_namespaces"]:
        directory = tempfile.mkdtemp(prefix=f"answer-{os.getppid()}-")
        values["directory"] = directory
    elif values.get("has_root"):
        layers.unshare(layers.CLONE_NEWPID)
    else:
        # a user namespace for each program: the kernel counts its processes apart from those of the others
        layers.become_user_alone(layers.CLONE_NEWPID, int(str(values["processes"])))
        layers.die_with_parent()
    settings = Settings(values)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            layers.die_with_parent()
            run_job(Channel(sock), settings, writing)
        finally:
            os._exit(0)
    os.close(writing)
    reason = "timeout" if _is_late(pid, sock, settings.total_timeout + _GRACE, reading) else "done"
    _kill(pid)
    _sweep()
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
    try:
        Channel(sock).send(["end", reason])
    except OSError:  # the caller does not want it any more
        pass


def _is_late(pid: int, sock: socket.socket, seconds: float, alarms: int) -> bool:
    """Wait for a process, a deadline, or the caller to close its end; True for a deadline.

    The process of the tests sends the deadline of each test, since it may be stuck in one call of the C library.
    """
    from reward_funcs._sandbox_wire import ALARM

    end = deadline = time.monotonic() + seconds
    descriptor = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1
    poll = select.poll()
    poll.register(sock, select.POLLHUP)
    poll.register(alarms, select.POLLIN)
    if descriptor >= 0:
        poll.register(descriptor, select.POLLIN)
    try:
        while True:
            left = max(0.0, deadline - time.monotonic())
            ready = dict(poll.poll((left if descriptor >= 0 else min(left, 0.005)) * 1000))
            if descriptor in ready or sock.fileno() in ready:
                return False
            if descriptor < 0 and os.waitpid(pid, os.WNOHANG)[0]:
                return False
            if alarms in ready:
                data = os.read(alarms, 4096)
                if not data:
                    poll.unregister(alarms)  # the process is about to end
                else:
                    deadline = min(end, ALARM.unpack(data[-ALARM.size :])[0] + _GRACE / 4)
            elif time.monotonic() >= deadline:
                return True
    finally:
        if descriptor >= 0:
            os.close(descriptor)


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
