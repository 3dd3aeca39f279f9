"""The sandbox: what it lets through, and that nothing outlives a program."""

import os
import pickle
import socket
import tempfile
import threading
import time
from pathlib import Path

import pytest

from reward_funcs import _sandbox_wire as wire
from reward_funcs.code import CodeReward
from reward_funcs.sandbox import Job, LocalSandbox, SandboxReport, sandbox_report

from . import hostile_programs as hostile

needs_isolation = pytest.mark.skipif(
    not sandbox_report().is_isolated, reason="the kernel gives this user no namespaces, and there is no bubblewrap"
)
DOUBLE = "def double(x):\n    return 2 * x"


@pytest.fixture(scope="module")
def sandbox():
    # long enough for a machine that is busy, short enough for the programs that never end
    made = LocalSandbox(timeout=6, total_timeout=8, memory=512, num_workers=4)
    yield made
    made.close()


def descendants(pid):
    """Every process below one, by /proc."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
    found, last = {pid}, set()
    while found != last:
        last = set(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found - {pid}


def nothing_runs(sandbox):
    """Whether all processes below the sandbox's own end, sooner or later."""
    deadline = time.monotonic() + 60
    own = 2 if sandbox.report().isolation == "bubblewrap" else 0  # its first process, and the one that is forked from
    while time.monotonic() < deadline:
        if len(descendants(sandbox._zygote.pid)) <= own:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def verdicts(sandbox, tmp_path_factory):
    """Every program's rewards from one call, with a server that each could reach without isolation."""
    marker = tmp_path_factory.mktemp("outside") / "marker"
    server, abstract = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    abstract.bind("\0trl-ext-sandbox-test")
    abstract.listen()
    values = {"{port}": str(server.getsockname()[1]), "{marker}": str(marker), "{abstract}": "trl-ext-sandbox-test"}
    programs = {**hostile.HOSTILE, **hostile.LEAVES}
    texts = []
    for code in programs.values():
        for name, value in values.items():
            code = code.replace(name, value)
        texts.append(f"```python\n{code}\n```")
    before = set(os.listdir("/proc/self/fd"))
    reward = CodeReward(sandbox=sandbox)
    rewards = dict(zip(programs, reward(texts, solution=[hostile.GOLD] * len(texts)), strict=True))
    after = set(os.listdir("/proc/self/fd"))
    server.setblocking(False)
    with pytest.raises(BlockingIOError):
        server.accept()  # nobody has come
    server.close()
    abstract.close()
    return rewards, marker, len(after) - len(before)


@needs_isolation
@pytest.mark.parametrize("name", hostile.HOSTILE)
def test_hostile_program_fails(verdicts, name):
    assert verdicts[0][name] == 0.0


@needs_isolation
@pytest.mark.parametrize("name", hostile.LEAVES)
def test_right_program_that_leaves_something_passes(verdicts, name):
    assert verdicts[0][name] == 1.0


@needs_isolation
def test_hostile_programs_are_at_least_sixty():
    assert len(hostile.HOSTILE) >= 60


@needs_isolation
def test_hostile_programs_leave_no_process(sandbox, verdicts):
    assert nothing_runs(sandbox)


@needs_isolation
def test_hostile_programs_leave_no_file(verdicts):
    _, marker, _ = verdicts
    assert not marker.exists()
    assert not [name for name in os.listdir("/tmp") if "8731" in name]
    assert not os.path.exists(os.__file__ + ".new")


@needs_isolation
def test_hostile_programs_leave_no_socket(verdicts):
    assert verdicts[2] <= 1  # the connection to the process that programs are forked from
    assert "left-8731" not in Path("/proc/net/unix").read_text()


@needs_isolation
def test_the_probes_work_where_nothing_isolates(tmp_path):
    """The programs that reach out do so where they can, or their failures above would show nothing."""
    server = socket.create_server(("127.0.0.1", 0))
    loose = LocalSandbox(isolation="none", allow_unsafe=True, num_workers=1, memory=512)
    try:
        code = hostile.REACHES["tcp"].replace("{port}", str(server.getsockname()[1]))
        found = CodeReward(sandbox=loose)([f"```\n{code}\n```"], solution=[hostile.GOLD])
    finally:
        loose.close()
        server.close()
    assert found == [1.0]


@pytest.fixture(scope="module")
def late(sandbox):
    """What two programs that never end come to, run at the same time, and whether anything of them goes on."""
    sleeping = "import os, time\nfor _ in range(3): os.fork()\nprint('started', flush=True)\ntime.sleep(600)"
    silent = "import os\nprint(42, flush=True)\nos.close(1)\nwhile True: pass"
    outcomes = sandbox.run([Job("stdio", code, {"inputs": [""]}) for code in (sleeping, silent)])
    return {"sleeping": outcomes[0], "silent": outcomes[1], "nothing_runs": nothing_runs(sandbox)}


@needs_isolation
def test_a_late_program_is_killed_with_its_children(late):
    assert late["sleeping"].messages[0][3] == "timeout"
    assert late["nothing_runs"]


@needs_isolation
def test_endless_output_is_cut(sandbox):
    (outcome,) = sandbox.run([Job("stdio", "while True: print('x' * 1000)", {"inputs": [""]})])
    _, _, text, reason = outcome.messages[0]
    assert (len(text), reason) == (sandbox.output_limit, "output_limit")


@needs_isolation
def test_closing_output_and_going_on_is_a_timeout(late):
    assert late["silent"].messages[0][3] == "timeout"


@needs_isolation
def test_files_of_one_test_are_not_seen_by_the_next(sandbox):
    code = "import os\nprint(os.listdir('.'))\nopen('a', 'w').close()"
    (outcome,) = sandbox.run([Job("stdio", code, {"inputs": ["", ""]})])
    assert [message[2] for message in outcome.messages] == ["[]\n", "[]\n"]


@needs_isolation
def test_a_killed_sandbox_is_started_again(sandbox):
    sandbox.report()
    sandbox._zygote.kill()
    sandbox._zygote.wait()
    (outcome,) = sandbox.run([Job("asserts", DOUBLE, {"blocks": ["assert double(2) == 4"]})])
    assert outcome.messages == [["verdict", 0, "passed"]]


@needs_isolation
def test_close_ends_the_processes():
    made = LocalSandbox(num_workers=1)
    made.report()
    pid = made._zygote.pid
    made.close()
    assert not Path(f"/proc/{pid}").exists()


@needs_isolation
def test_close_does_not_wait_for_a_fork_that_holds_the_socket():
    made = LocalSandbox(num_workers=1)
    made.report()
    copy = os.dup(made._control.fileno())
    zygote = made._zygote
    try:
        made.close()
        assert zygote.returncode == 0  # ended by itself, and not by a signal
    finally:
        os.close(copy)


@needs_isolation
def test_calls_from_threads_give_their_own_results(sandbox):
    found = {}

    def work(number):
        job = Job("stdio", f"print({number})", {"inputs": [""]})
        found[number] = [outcome.messages[0][2] for outcome in sandbox.run([job] * 3)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [f"{number}\n"] * 3 for number in range(4)}


@needs_isolation
def test_a_job_stops_where_the_caller_says_so(sandbox):
    job = Job("stdio", "print(input())", {"inputs": ["a", "b", "c"]}, goes_on=lambda message: message[2] != "b\n")
    (outcome,) = sandbox.run([job])
    assert (len(outcome.messages), outcome.end) == (2, "stopped")


def test_without_isolation_nothing_runs():
    refused = LocalSandbox(isolation="none")
    assert refused.run([Job("stdio", "print(1)", {"inputs": [""]})]) == [None]
    assert not refused.report().is_isolated


def test_a_missing_bubblewrap_is_reported(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "bwrap is not installed" in LocalSandbox(isolation="bubblewrap").report().problem


def test_a_report_says_what_is_in_force():
    assert SandboxReport("none", ()).is_isolated is False
    report = sandbox_report()
    assert report.is_isolated is (report.isolation != "none")
    if report.isolation == "embedded":
        assert {"network", "pid", "mount", "rlimits"} <= set(report.layers)


def test_allow_unsafe_leaves_no_process_and_no_directory():
    loose = LocalSandbox(isolation="none", allow_unsafe=True, timeout=6, num_workers=1, memory=512)
    try:
        code = "import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(600)\nprint(1)"
        (outcome,) = loose.run([Job("stdio", code, {"inputs": [""]})])
        assert outcome.messages[0][1] == 0
        assert nothing_runs(loose)
        prefix = f"answer-{loose._zygote.pid}-"
    finally:
        loose.close()
    assert not [name for name in os.listdir(tempfile.gettempdir()) if name.startswith(prefix)]


@pytest.mark.parametrize(
    ("setting", "value"),
    [("isolation", "embeded"), ("timeout", 0), ("memory", 1), ("num_workers", 0), ("allow_unsafe", "no")],
)
def test_a_bad_setting_is_refused_by_name(setting, value):
    with pytest.raises(ValueError, match=rf"^{setting}={value!r}: it must be"):
        LocalSandbox(**{setting: value})


def test_a_sandbox_is_not_pickled():
    with pytest.raises(TypeError, match="belongs to its process"):
        pickle.dumps(LocalSandbox())


VALUES = [None, True, -5, 2**80, 1.5, "a", b"b", [1, (2,)], {1: {2}}, frozenset({3}), 1j, range(1, 9, 2), {"a": [None]}]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_was(value):
    back = wire.decoded(wire.loaded(wire.packed(wire.encoded(value))[4:]))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "bad",
    [{}, {"a": 1}, [], [1], ["h", 0], ["zz"], ["d", [1]], ["s", ["l"]], ["i"], ["T", "os"], ["x", "a", "b"]],
    ids=repr,
)
def test_a_value_that_nobody_wrote_is_refused(bad):
    with pytest.raises(ValueError):
        wire.decoded(bad)


def test_an_instance_of_a_subclass_is_no_plain_value():
    with pytest.raises(wire.WireError):
        wire.encoded(type("Liar", (int,), {"__eq__": lambda a, b: True})(3))
