"""A filter of system calls: what a program never needs, and could use to leave data in the kernel or to reach out.

The kernel's keyrings and System V segments outlive a program, file locks and abstract sockets are seen by others, and
the memory of System V segments and memory files counts for no process.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys
from typing import Any

_PR_GET_SECCOMP, _PR_SET_SECCOMP, _MODE_FILTER = 21, 22, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _HAS_BITS, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NR, _ARCH, _ARGS = 0, 4, 16  # offsets in the kernel's struct seccomp_data
_NEW_NAMESPACES = 0x7E020000  # the CLONE_NEW* flags of clone(2)
_LOCKS = (6, 7, 37, 38, 1024, 1026)  # F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW, F_SETLEASE, F_NOTIFY of fcntl(2)
_X32 = 0x40000000
# the same numbers on every architecture: io_uring_*, the mount calls since Linux 5.2, pidfd_getfd, mount_setattr,
# memfd_secret
_DENIED = (*range(425, 434), 438, 442, 447)
_CLONE3 = 435

# Each machine: its number in the kernel, the calls that are refused, and those whose arguments decide.
_MACHINES: dict[str, tuple[int, dict[str, int], dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {
            "add_key": 248, "request_key": 249, "keyctl": 250, "shmget": 29, "shmat": 30, "shmctl": 31, "shmdt": 67,
            "semget": 64, "semop": 65, "semctl": 66, "semtimedop": 220, "msgget": 68, "msgsnd": 69, "msgrcv": 70,
            "msgctl": 71, "mq_open": 240, "mq_unlink": 241, "ptrace": 101, "unshare": 272, "mount": 165,
            "umount2": 166, "pivot_root": 155, "chroot": 161, "setns": 308, "memfd_create": 319,
            "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "bpf": 321, "perf_event_open": 298,
            "userfaultfd": 323, "name_to_handle_at": 303, "open_by_handle_at": 304, "inotify_init": 253,
            "inotify_init1": 294, "fanotify_init": 300, "init_module": 175, "finit_module": 313,
            "delete_module": 176, "kexec_load": 246, "syslog": 103, "socket": 41,
        },
        {"clone": 56, "fcntl": 72, "flock": 73, "socketpair": 53},
    ),
    "aarch64": (
        0xC00000B7,
        {
            "add_key": 217, "request_key": 218, "keyctl": 219, "shmget": 194, "shmctl": 195, "shmat": 196,
            "shmdt": 197, "semget": 190, "semctl": 191, "semtimedop": 192, "semop": 193, "msgget": 186,
            "msgctl": 187, "msgrcv": 188, "msgsnd": 189, "mq_open": 180, "mq_unlink": 181, "ptrace": 117,
            "unshare": 97, "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "setns": 268,
            "memfd_create": 279, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "bpf": 280,
            "perf_event_open": 241, "userfaultfd": 282, "name_to_handle_at": 264, "open_by_handle_at": 265,
            "inotify_init1": 26, "fanotify_init": 262, "init_module": 105, "finit_module": 273,
            "delete_module": 106, "kexec_load": 104, "syslog": 116, "socket": 198,
        },
        {"clone": 220, "fcntl": 25, "flock": 32, "socketpair": 199},
    ),
}  # fmt: skip


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _refused(number: int) -> bytes:
    return _step(_RETURN, _ERRNO | number)


def _when(call: int, *steps: bytes) -> list[bytes]:
    """Steps for one system call; the last of them returns."""
    return [_step(_EQUAL, call, 0, len(steps)), *steps]


def _program(machine: str) -> bytes:
    """The filter as the kernel reads it."""
    number, denied, partly = _MACHINES[machine]
    allow, no_lock = _step(_RETURN, _ALLOW), _refused(errno.ENOLCK)
    steps = [_step(_LOAD, _ARCH), _step(_EQUAL, number, 1, 0), _refused(errno.EPERM), _step(_LOAD, _NR)]
    steps += [_step(_AT_LEAST, _X32, 0, 1), _refused(errno.EPERM)]
    steps += _when(_CLONE3, _refused(errno.ENOSYS))  # its flags cannot be read here; the C library then uses clone
    steps += _when(
        partly["clone"], _step(_LOAD, _ARGS), _step(_HAS_BITS, _NEW_NAMESPACES, 0, 1), _refused(errno.EPERM), allow
    )
    locks = [step for command in _LOCKS for step in (_step(_EQUAL, command, 0, 1), no_lock)]
    steps += _when(partly["fcntl"], _step(_LOAD, _ARGS + 8), *locks, allow)
    steps += _when(partly["flock"], no_lock)
    # a pair of stream sockets has no name; one of datagrams gets an abstract one that other programs can find
    family = [_step(_LOAD, _ARGS), _step(_EQUAL, 1, 1, 0), _refused(errno.EACCES)]
    kind = [_step(_LOAD, _ARGS + 8), _step(_AND, 15), _step(_EQUAL, 1, 1, 0), _refused(errno.EACCES)]
    steps += _when(partly["socketpair"], *family, *kind, allow)
    for call in (*denied.values(), *_DENIED):
        steps += _when(call, _refused(errno.EPERM))
    return b"".join([*steps, allow])


def is_available() -> bool:
    """Whether the kernel takes filters and this machine's system calls are known here."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES or sys.byteorder != "little":
        return False
    libc: Any = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def refuse_calls() -> None:
    """Refuse those system calls to this process and its children from now on; it must have given up new privileges.

    Raises:
        OSError: Where the kernel does not take the filter.
    """
    code = _program(platform.machine())
    program = _Program(len(code) // 8, code)
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel does not take a filter of system calls")
