"""What a sandbox takes over from the process that starts it: nothing that its programs would notice."""

import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from reward_funcs.sandbox import sandbox_report

pytestmark = pytest.mark.skipif(not sandbox_report().is_isolated, reason="nothing isolates programs here")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__import__("reward_funcs").__file__)))
RUN = """
import os, sys
from reward_funcs.sandbox import Job, LocalSandbox
made = LocalSandbox(isolation="embedded", timeout=30, total_timeout=60, num_workers=1)
text = '''import os, signal
open("file", "w").close()
print(oct(os.stat("file").st_mode & 0o777), oct(os.umask(0)))
print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
print(*(int(signal.getsignal(one) == signal.SIG_IGN) for one in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1)))
pid = os.fork()
if not pid: os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
import colorsys
'''
found = made.report().is_isolated, *made.run([Job("stdio", text, {"inputs": [""]})])
os.write(2, repr((found[0], found[1] and found[1].messages[0][2:])).encode())
made.close()
"""
EXPECTED = repr((True, ["0o644 0o22\n[]\n0 0 0\n3\n", "ok"]))


def said(before, *command):
    """What a caller that first runs `before` finds."""
    code = f"import os, signal, sys\n{before}\n{RUN}"
    words = [*command, sys.executable] if not command else list(command)
    done = subprocess.run([*words, "-c", code], stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=200, check=False)
    return done.stderr


@pytest.mark.parametrize(
    "before",
    [
        "pass",
        "os.umask(0o077)",
        "os.umask(0o027)",
        "os.umask(0o007)",
        "os.umask(0o777)",
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
        "os.close(0)\nos.close(1)",
        "os.close(0)",
    ],
)
def test_what_the_caller_has_set_does_not_reach_the_programs(before):
    assert said(before) == EXPECTED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.skipif(not shutil.which("unshare"), reason="unshare is not installed")
def test_the_interpreter_may_lie_under_tmp():
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))
    folder = tempfile.mkdtemp(dir="/tmp")
    python = f"{folder}/bin/{os.path.basename(os.path.realpath(sys.executable))}"
    mounted = ["unshare", "-m", "--propagation", "private", "sh", "-c"]
    tried = [*mounted, f"mount --bind {prefix} {folder} && {python} -c 'import sys'"]
    try:
        if subprocess.run(tried, capture_output=True, check=False, cwd="/").returncode != 0:
            pytest.skip("no mounts here")
        script = f'mount --bind {prefix} {folder} && exec {python} "$@"'
        assert said("pass", *mounted, script, "sh") == EXPECTED
    finally:
        os.rmdir(folder)
