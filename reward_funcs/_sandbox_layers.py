"""What the kernel offers to keep a program apart: namespaces, Landlock, resource limits, another user.

Everything goes through ctypes: the standard library of Python 3.11 has none of these calls.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
from typing import Any

resource: Any
try:
    import resource
except ImportError:  # Windows
    resource = None

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446  # the same on every architecture
# the rights of the file system that each version of Landlock knows, and those that only read
_LANDLOCK_FS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_READ_RIGHTS = (1 << 0) | (1 << 2) | (1 << 3)  # execute, read a file, list a directory
_FILE_RIGHTS = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 14) | (1 << 15)
_AUX_USERS = 61184, 65519  # the range that systemd keeps for users made on the spot: no file belongs to them
NOBODY = 65534

_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _call(name: str, *args: Any) -> int:
    """A function of the C library; -1 becomes an `OSError`."""
    if _libc is None:
        raise OSError(f"{sys.platform} has no {name}")
    result: int = getattr(_libc, name)(*args)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Leave the namespaces that the flags name; `OSError` where that is not allowed."""
    _call("unshare", flags)


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """`mount(2)`; `OSError` where that is not allowed."""
    texts = [None if one is None else one.encode() for one in (source, target, kind)]
    _call("mount", *texts, ctypes.c_ulong(flags), None if data is None else data.encode())


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; to be said again after a change of user."""
    if _libc is not None:
        _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that none is lost."""
    if _libc is not None:
        _call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def hide_memory() -> None:
    """Keep other processes of the same user from reading the memory of this one."""
    if _libc is not None:
        _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def become_alone() -> list[str]:
    """Enter namespaces of one's own for network, IPC, host name and mounts, as root or through a user namespace.

    Returns:
        `list[str]`: names of the layers; empty where the kernel allows none of this.
    """
    flags = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    try:
        unshare(flags)
    except OSError:
        try:
            processes = os.open("/proc", os.O_PATH)
            try:
                become_user_alone(flags, processes)
            finally:
                os.close(processes)
        except OSError:
            return []
        return ["user", "network", "ipc", "mount"]
    return ["network", "ipc", "mount"]


def become_user_alone(flags: int, processes: int) -> None:
    """Enter a user namespace that knows this user alone, as `NOBODY`, and other namespaces with it.

    Args:
        flags (`int`): the other namespaces.
        processes (`int`): a descriptor of /proc, which may not be shown any more.

    Raises:
        OSError: Where the kernel does not allow it.
    """
    uid, gid = os.getuid(), os.getgid()
    unshare(flags | CLONE_NEWUSER)
    for path, text in (("setgroups", "deny"), ("uid_map", f"{NOBODY} {uid} 1"), ("gid_map", f"{NOBODY} {gid} 1")):
        descriptor = os.open(f"self/{path}", os.O_WRONLY, dir_fd=processes)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def knows_spare_users() -> bool:
    """Whether this process is root where the users of `spare_user` exist, so that it can become each of them."""
    if os.geteuid() != 0:
        return False
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            ranges = [tuple(map(int, line.split())) for line in file]
    except OSError:
        return False
    return any(first <= _AUX_USERS[0] and first + count > _AUX_USERS[1] for first, _, count in ranges)


def enter_small_root(readable: list[str], hidden: list[str]) -> None:
    """Make a file system of a few read-only directories the root of this process and its children.

    Args:
        readable (`list[str]`): directories and device files, shown under their own names. What is missing is left out.
        hidden (`list[str]`): directories within them that are shown empty.

    Raises:
        OSError: Where mounts are not allowed.
    """
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    # held open: the new root is put over a directory that may contain them
    held = {path: os.open(path, os.O_PATH) for path in readable if os.path.exists(path)}
    links = {path: f"/proc/self/fd/{number}" for path, number in held.items()}
    staging = next(path for path in ("/tmp", "/var", "/") if os.path.isdir(path))
    mount("tmpfs", staging, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=755")
    for path, link in links.items():
        _show(link, staging + path)
    for path in hidden:
        if os.path.isdir(staging + path):
            mount("none", staging + path, "tmpfs", _MS_RDONLY | _MS_NOSUID | _MS_NODEV, "size=4k,mode=755")
    os.makedirs(f"{staging}/tmp", exist_ok=True)
    os.makedirs(f"{staging}/dev/shm", exist_ok=True)
    for number in held.values():
        os.close(number)
    mount(staging, staging, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    os.chdir(staging)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _MNT_DETACH)
    os.chdir("/")


def _show(link: str, target: str) -> None:
    """Bind what a link of /proc names to a path of the new root, read-only."""
    if os.path.isdir(link):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o644))  # `open` looks up a codec, which may be covered
    mount(link, target, None, _MS_BIND)
    device = not os.path.isdir(link) and not os.path.isfile(link)
    locked = os.statvfs(target).f_flag & (_MS_NODEV | _MS_NOSUID | _MS_NOEXEC)
    flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | (locked & ~_MS_NODEV if device else _MS_NODEV | locked)
    mount("none", target, None, flags)


def private_tmp(uid: int, size_mb: int, readable: list[str]) -> None:
    """Mount an empty /tmp that nobody else sees and that goes with the last process that uses it.

    Args:
        uid (`int`): the user that it belongs to.
        size_mb (`int`): its size in MiB.
        readable (`list[str]`): what programs must see; a directory of these that lies in /tmp is shown there again.
    """
    unshare(CLONE_NEWNS | CLONE_NEWIPC)
    library = next((path for path in readable if path.startswith("/tmp/")), None)
    if library is not None:  # kept at a place that is there, while /tmp is covered
        mount(library, "/dev/shm", None, _MS_BIND | _MS_REC)
    mount("tmpfs", "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={size_mb}m,nr_inodes=4096,mode=700,uid={uid}")
    if library is not None:
        os.makedirs(library)
        mount("/dev/shm", library, None, _MS_BIND | _MS_REC)
        _call("umount2", b"/dev/shm", _MNT_DETACH)
    # the semaphores of multiprocessing lie there; in the same file system, so that one limit holds for both
    mount("/tmp", "/dev/shm", None, _MS_BIND)


def landlock_version() -> int:
    """The version of Landlock that the kernel has, 0 for none."""
    if _libc is None:
        return 0
    try:
        return _call("syscall", ctypes.c_long(_LANDLOCK_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint(1))
    except OSError:
        return 0


def restrict_files(readable: list[str], writable: list[str]) -> None:
    """Let this process and its children read some directories, change others, and reach no other file or TCP port.

    Args:
        readable (`list[str]`): paths to read; what is missing is left out.
        writable (`list[str]`): paths to read and to change.

    Raises:
        OSError: Where the kernel has no Landlock.
    """
    version = landlock_version()
    rights = (1 << _LANDLOCK_FS[min(max(version, 1), 5)]) - 1
    network = 3 if version >= 4 else 0
    scoped = 3 if version >= 6 else 0  # abstract sockets and signals
    size = 8 if version < 4 else 16 if version < 6 else 24
    attributes = struct.pack("=QQQ", rights, network, scoped)[:size]
    ruleset = _call("syscall", ctypes.c_long(_LANDLOCK_CREATE), attributes, ctypes.c_size_t(size), ctypes.c_uint(0))
    try:
        for paths, allowed in ((readable, _READ_RIGHTS), (writable, rights)):
            for path in paths:
                if os.path.exists(path):
                    _allow(ruleset, path, allowed & rights)
        _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _call("syscall", ctypes.c_long(_LANDLOCK_RESTRICT), ctypes.c_int(ruleset), ctypes.c_uint(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, descriptor)
        _call(
            "syscall",
            ctypes.c_long(_LANDLOCK_ADD),
            ctypes.c_int(ruleset),
            ctypes.c_int(1),
            rule,
            ctypes.c_uint(0),
        )
    finally:
        os.close(descriptor)


def spare_user(number: int) -> int:
    """A user id that owns no file, a different one for programs that run at the same time."""
    first, last = _AUX_USERS
    return first + number % (last - first + 1)


def drop_user(uid: int) -> None:
    """Become a user without rights: another id where that is possible, and no capabilities in any case.

    Raises:
        OSError: Where neither is possible.
    """
    if os.geteuid() == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except OSError:
            pass  # a user namespace that knows one id
    if _libc is not None:
        _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        header, empty = struct.pack("=Ii", 0x20080522, 0), bytes(24)
        _call("capset", header, empty)


def limit(*, memory_mb: int, cpu_seconds: int, processes: int | None, file_mb: int, files: int = 64) -> None:
    """Set the limits of resources, none above the one there is.

    Args:
        memory_mb (`int`): address space of each process in MiB.
        cpu_seconds (`int`): processor time of each process.
        processes (`int`, *optional*): processes and threads of the user; `None` leaves the limit as it is.
        file_mb (`int`): size of a file in MiB.
        files (`int`, *optional*, defaults to 64): open files.
    """
    if resource is None:
        return
    wanted = {
        "RLIMIT_AS": memory_mb << 20,
        "RLIMIT_CPU": cpu_seconds,
        "RLIMIT_NPROC": processes,
        "RLIMIT_FSIZE": file_mb << 20,
        "RLIMIT_NOFILE": files,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_STACK": min(256, memory_mb // 2) << 20,
    }
    for name, value in wanted.items():
        kind = getattr(resource, name, None)
        if kind is None or value is None:
            continue
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(kind, (value, value))
        except (OSError, ValueError):  # macOS refuses some
            continue
