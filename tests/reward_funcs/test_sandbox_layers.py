"""What keeps programs apart: each layer alone, bubblewrap, and that a layer is reported only where it holds."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from reward_funcs import _sandbox_start, _sandbox_zygote, sandbox
from reward_funcs import _sandbox_wire as wire
from reward_funcs.code import CodeReward
from reward_funcs.sandbox import Job, LocalSandbox, sandbox_report

ISOLATIONS = ["embedded", "bubblewrap"]
CALLS = {"asserts": ["assert f(4365) + 1 == 8731", "assert f(21) == 42"]}


@pytest.fixture(scope="module")
def started():
    """A sandbox of each kind that works here."""
    made = {}
    yield made
    for one in made.values():
        one.close()


@pytest.fixture(params=ISOLATIONS)
def isolated(request, started):
    if request.param not in started:
        started[request.param] = LocalSandbox(
            isolation=request.param, timeout=30, total_timeout=60, memory=512, num_workers=2
        )
    report = started[request.param].report()
    if not report.is_isolated:
        pytest.skip(report.problem)
    return started[request.param]


def printed(used, code):
    """What a program prints, and how it ends."""
    (outcome,) = used.run([Job("stdio", code, {"inputs": [""]})])
    return outcome.messages[0][2:]


def rewards(used, *programs):
    texts = [f"```python\n{code}\n```" for code in programs]
    return CodeReward(sandbox=used)(texts, solution=[CALLS] * len(texts))


def test_programs_run_and_are_judged(isolated):
    assert rewards(isolated, "def f(x): return 2 * x", "def f(x): return 3 * x") == [1.0, 0.0]
    assert isolated.report().isolation == isolated.isolation
    assert {"network", "pid", "mount", "root", "seccomp", "rlimits"} <= set(isolated.report().layers)


def test_the_package_may_lie_under_tmp(isolated, tmp_path, monkeypatch):
    source = Path(_sandbox_zygote.__file__).parent
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        for path in source.glob("_sandbox_*.py"):
            shutil.copy(path, folder)
        monkeypatch.setattr(_sandbox_zygote, "__file__", str(folder / "_sandbox_zygote.py"))
        other = LocalSandbox(isolation=isolated.isolation, timeout=30, total_timeout=60, num_workers=1)
        assert printed(other, "print(6 * 7)") == ["42\n", "ok"]
        other.close()
    finally:
        shutil.rmtree(folder)


CALL = """
import ctypes, errno
L = ctypes.CDLL(None, use_errno=True)
def failed(*call):
    return errno.errorcode.get(ctypes.get_errno()) if L.syscall(*call) == -1 else 'done'
"""
REFUSED = {
    "add_key": "failed(248, b'user', b'a', b'b', 1, -4)",
    "keyctl": "failed(250, 0, -4, 1)",
    "shmget": "failed(29, 0, 4096, 0o1600)",
    "semget": "failed(64, 0, 1, 0o1600)",
    "msgget": "failed(68, 0, 0o1600)",
    "ptrace": "failed(101, 16, 1, 0, 0)",
    "unshare": "failed(272, 0x10000000)",
    "mount": "failed(165, b'x', b'/tmp', b'tmpfs', 0, None)",
    "setns": "failed(308, 0, 0)",
    "memfd_create": "failed(319, b'x', 0)",
    "clone": "failed(56, 0x10000011, 0, 0, 0, 0)",
    "io_uring_setup": "failed(425, 8, ctypes.create_string_buffer(120))",
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of the calls are those of x86_64")
@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_could_leave_something_behind_is_refused(isolated, name):
    assert printed(isolated, f"{CALL}print({REFUSED[name]})") == ["EPERM\n", "ok"]


@pytest.mark.parametrize(
    "made",
    [
        "socket.socket(40, socket.SOCK_STREAM)",  # AF_VSOCK, which no network namespace holds
        "socket.socket(socket.AF_UNIX)",
        "socket.socket(socket.AF_INET)",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    ],
)
def test_no_socket_that_reaches_others_is_made(isolated, made):
    code = f"import socket\ntry: {made}\nexcept PermissionError: print('refused')\nelse: print('made')"
    assert printed(isolated, code) == ["refused\n", "ok"]


def test_what_programs_need_is_allowed(isolated):
    code = (
        "import socket, threading, os, fcntl\na, b = socket.socketpair()\na.send(b'x')\n"
        "found = []\nt = threading.Thread(target=found.append, args=(1,))\nt.start()\nt.join()\n"
        "fcntl.fcntl(0, fcntl.F_GETFD)\npid = os.fork()\nif not pid: os._exit(3)\n"
        "print(b.recv(1), found, os.waitpid(pid, 0)[1] >> 8)"
    )
    assert printed(isolated, code) == ["b'x' [1] 3\n", "ok"]


def test_a_lock_on_a_file_of_the_library_is_refused(isolated):
    code = (
        "import fcntl, os\nfile = open(os.__file__)\nfor lock in (fcntl.flock, fcntl.lockf):\n"
        "    try: lock(file, fcntl.LOCK_SH)\n    except OSError as error: print(error.errno)"
    )
    assert printed(isolated, code) == ["37\n37\n", "ok"]


def test_limits_hold_for_each_program(isolated):
    code = (
        "import os, resource\nprint(resource.getrlimit(resource.RLIMIT_NPROC)[1], os.statvfs('.').f_blocks * "
        "os.statvfs('.').f_frsize >> 20, os.statvfs('.').f_files, os.statvfs('/dev/shm').f_files)"
    )
    assert printed(isolated, code) == ["16 64 4096 4096\n", "ok"]


def test_tmp_is_written_and_empty_for_the_next(isolated):
    code = "import os\nprint(os.listdir('/tmp'))\nopen('/tmp/x', 'w').write('x')"
    assert [printed(isolated, code) for _ in range(2)] == [["[]\n", "ok"]] * 2


def test_a_program_that_starts_all_the_processes_it_can_leaves_the_others_theirs(isolated):
    hog = (
        "import os, time\ndef f(x):\n    while True:\n        try:\n            if not os.fork(): time.sleep(100)\n"
        "        except OSError: time.sleep(0.01)"
    )
    threads = (
        "import threading, time\ndef f(x):\n    time.sleep(1)\n    t = threading.Thread(target=int)\n    t.start()\n"
        "    t.join()\n    return 2 * x"
    )
    short = LocalSandbox(isolation=isolated.isolation, timeout=8, total_timeout=8, num_workers=3)
    try:
        assert rewards(short, hog, threads, threads + " + 0") == [0.0, 1.0, 1.0]
    finally:
        short.close()


def test_installed_packages_are_not_seen(isolated):
    code = "import os\nprint([os.listdir(f'{os.path.dirname(os.__file__)}/site-packages')])"
    assert printed(isolated, code)[0] in ("[[]]\n", "")


def test_a_layer_that_a_probe_does_not_meet_is_not_reported(monkeypatch):
    if not sandbox_report().is_isolated:
        pytest.skip("nothing isolates programs here")
    monkeypatch.setattr(
        _sandbox_start, "PROBE", _sandbox_start.PROBE.replace('"landlock": fails', '"landlock": not fails')
    )
    made = LocalSandbox(num_workers=1)
    try:
        assert made.report().is_isolated
        assert "landlock" not in made.report().layers
    finally:
        made.close()


@pytest.mark.parametrize("layer", ["network", "mount", "pid", "seccomp"])
def test_without_a_layer_that_is_needed_there_is_no_isolation(monkeypatch, layer):
    if not sandbox_report().is_isolated:
        pytest.skip("nothing isolates programs here")
    monkeypatch.setattr(_sandbox_start, "PROBE", _sandbox_start.PROBE.replace(f'"{layer}": ', f'"no_{layer}": '))
    made = LocalSandbox(isolation="embedded", num_workers=1)
    assert made.report().is_isolated is False
    assert f"was not kept apart: {layer}" in made.report().problem
    assert made.run([Job("stdio", "print(1)", {"inputs": [""]})]) == [None]


def test_a_bwrap_that_isolates_nothing_is_not_taken_for_one(tmp_path, monkeypatch):
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    report = LocalSandbox(isolation="bubblewrap").report()
    assert (report.is_isolated, report.problem) == (False, "bubblewrap: bwrap gave no PID namespace of its own")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed")
def test_another_user_has_the_same_limits(tmp_path):
    code = (
        "import sys\nsys.path.insert(0, sys.argv[1])\nfrom reward_funcs.sandbox import Job, LocalSandbox\n"
        "made = LocalSandbox(isolation='embedded', timeout=30, total_timeout=60, num_workers=1)\n"
        "print(made.report().is_isolated)\n"
        "text = 'import resource\\nprint(resource.getrlimit(resource.RLIMIT_NPROC))'\n"
        "print(*(one and one.messages[0][2] for one in made.run([Job('stdio', text, {'inputs': ['']})])))\nmade.close()"
    )
    python = next((path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if os.path.exists(path)), None)
    version = python and subprocess.run([python, "-V"], capture_output=True, text=True).stdout
    if python is None or not version.startswith("Python 3.1") or version.startswith("Python 3.10"):
        pytest.skip("no interpreter that another user can run")
    package = Path(sandbox.__file__).parent.parent
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python, "-B", "-c", code, str(package)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd="/")
    if "ModuleNotFoundError" in done.stderr or "PermissionError" in done.stderr or done.stdout.startswith("False"):
        pytest.skip("that user cannot run the package or has no namespaces")
    assert done.stdout.split("\n")[:2] == ["True", "(16, 16)"]


def test_a_killed_trainer_leaves_nothing_where_nothing_isolates():
    code = (
        "from reward_funcs.sandbox import Job, LocalSandbox\n"
        "made = LocalSandbox(isolation='none', allow_unsafe=True, timeout=60, total_timeout=60, num_workers=2)\n"
        "made.report()\nprint(made._zygote.pid, flush=True)\n"
        "loop = 'import os, time\\nif not os.fork():\\n    os.setsid()\\n    if os.fork(): os._exit(0)\\n"
        '    print(os.getpid(), flush=True)\\n    time.sleep(600)\\nopen("started", "w").close()\\ntime.sleep(600)\'\n'
        "made.run([Job('stdio', loop, {'inputs': ['']})] * 2)"
    )
    trainer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=os.getcwd())
    prefix = f"answer-{trainer.stdout.readline().strip()}-"

    def folders():
        return [path for path in Path(tempfile.gettempdir()).iterdir() if path.name.startswith(prefix)]

    def running():
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    found += [entry.name] if Path(os.readlink(entry / "cwd")).name.startswith(prefix) else []
                except OSError:
                    continue
        return found

    try:
        assert awaited(lambda: sum((folder / "started").exists() for folder in folders()) == 2)
        assert len(running()) >= 4
    finally:
        os.kill(trainer.pid, signal.SIGKILL)
        trainer.wait()
        trainer.stdout.close()
    assert awaited(lambda: not running() and not folders())


def awaited(condition):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_a_text_above_the_length_of_a_frame_is_refused_and_characters_are_not_escaped():
    text = "\ufffd" * (5 << 20)
    assert wire.loaded(wire.packed(text)[4:]) == text
    with pytest.raises(wire.WireError, match="too long"):
        wire.packed("x" * wire.MAX_FRAME)


def test_a_lone_surrogate_comes_back():
    assert wire.loaded(wire.packed(["\ud800"])[4:]) == ["\ud800"]


def test_a_fraction_is_read_from_whole_numbers_alone():
    with pytest.raises(ValueError):
        wire.decoded(["T", "Fraction", "1e30000000"])
