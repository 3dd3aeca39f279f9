"""Worker pool of the answer grader: verdicts, deadlines, deaths, callers of every kind, and what is left behind."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from reward_funcs import _process, _worker, pool
from reward_funcs.pool import Task, Verdict, WorkerPool, close_pools, shared_pool

ROOT = Path(__file__).parents[2]
SLOW = r"\sum_{k=1}^{1000000} \sin(k)"
EQUAL, DIFFERENT = Verdict(True, "equal"), Verdict(False, "different")


def _load(name: str):
    # by path: with --import-mode=importlib the folder of a test is on no path
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOSTILE = _load("hostile").hostile_answers()


@pytest.fixture(scope="module")
def patient():
    """A pool whose deadline ordinary answers do not meet, however busy the machine."""
    with WorkerPool(timeout=20.0) as workers:
        yield workers


@pytest.fixture(scope="module")
def hasty():
    with WorkerPool(timeout=0.5) as workers:
        yield workers


def _is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"  # an orphan whose new parent does not reap is nothing of ours


def _gone_soon(pids: list[int]) -> bool:
    for _ in range(200):
        if all(map(_is_gone, pids)):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\frac{1}{3}", "0.333333"),
        ("1.6e-19", r"1.6\times 10^{-19}"),
        (r"\pi", "3.14159265"),
        (r"2^{100}", "1267650600228229401496703205376"),
        (r"\sqrt2+\sqrt3", r"\sqrt{5+2\sqrt6}"),
        ("0", r"\sqrt{2}\sqrt{3}-\sqrt{6}"),
        ("x^2-1", "(x-1)(x+1)"),
        (r"\frac{x}{2}", "0.5x"),
        ("1+2i", "2i+1"),
        ("1,2,3", "3,2,1"),
        ("(1,2,3)", "1,2,3"),
        ("(1,2)", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"\{-1,1\}", r"\pm 1"),
        (r"3 \pm \sqrt2", r"3-\sqrt2, 3+\sqrt2"),
        (r"(-\infty,3]\cup[5,7)", r"[5,7)\cup(-\infty,3]"),
        ("1 < x < 2", "(1,2)"),
        ("x>3", "3<x"),
        ("x=5", "5"),
        ("5", "x=5"),
        ("5", "x=y=5"),
        (r"50\%", "0.5"),
        (r"50\%", "50"),
        ("101_2", "101"),
        (r"5\text{ cm}", r"5 \text{ centimetres}"),
        (r"15\mbox{ cm}^2", r" 15\mbox{ cm}^2 "),
        (r"10\,000", "10000"),
        (r"\emptyset", r"\varnothing"),
        (r"\infty", r"\infty"),
        (r"\text{east}", "east"),
        ("2e-3", "2e - 3"),
        (r"\frac{", r"\frac{"),
    ],
)
def test_compare_same_value_is_equal(patient, gold, answer):
    assert patient.compare([Task(gold, answer)]) == [EQUAL]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1.6e-19", "1.7e-19"),
        ("e^{-50}", "e^{-60}"),
        ("0", "e^{-50}"),
        (r"\pi", r"\frac{355}{113}"),
        ("262537412640768744", r"e^{\pi\sqrt{163}}"),
        ("2^{100}", "2^{100}+1"),
        ("100000000000000000000", "100000000000000000001"),
        (r"\frac{1}{3}", "0.33"),
        (r"\{1,2,3\}", "(1,2,3)"),
        ("(1,2,3)", r"\{1,2,3\}"),
        (r"\{1,2\}", "(1,2)"),
        ("(1,2,3)", "(3,2,1)"),
        ("[1,2)", "[1,2]"),
        ("(1.6e-19,1)", "(1.7e-19,1)"),
        ("x=1.6e-19", "x=1.7e-19"),
        (r"1.6\times10^{-19}x", r"1.7\times10^{-19}x"),
        ("x^2-1", "(x-1)(x+2)"),
        ("1+2i", "1-2i"),
        ("x=5", "y=5"),
        ("5", "4=5"),
        ("101_2", "101_3"),
        (r"5\text{ cm}", r"5\text{ m}"),
        (r"50\%", "0.4"),
        (r"\infty", r"-\infty"),
    ],
)
def test_compare_other_value_is_different(patient, gold, answer):
    assert patient.compare([Task(gold, answer)]) == [DIFFERENT]


def test_compare_rel_tol_decides_decimals_and_nothing_else(patient):
    tasks = [Task("3.0", "3.1", 0.1), Task("3.0", "3.1", 0.01), Task("30", "31", 0.1)]
    assert patient.compare(tasks) == [EQUAL, DIFFERENT, DIFFERENT]


def test_compare_unreadable_texts_are_told_apart(patient):
    tasks = [Task(r"\frac{", "5"), Task("5", r"\frac{"), Task("", "5"), Task("5", ""), Task("5", "\ud800\0")]
    assert [tuple(verdict) for verdict in patient.compare(tasks)] == [
        (None, "unparsed_gold"),
        (False, "unparsed_answer"),
        (None, "unparsed_gold"),
        (False, "unparsed_answer"),
        (False, "unparsed_answer"),
    ]


def test_compare_verdicts_do_not_depend_on_the_order(patient):
    tasks = [Task(str(k), str(k - k % 2)) for k in range(40)]
    assert [verdict.equal for verdict in patient.compare(tasks)] == [k % 2 == 0 for k in range(40)]
    assert patient.compare(tasks[::-1]) == patient.compare(tasks)[::-1]
    assert patient.compare([]) == []


def test_compare_duplicates_are_compared_once(patient, monkeypatch):
    assigned = []
    assign = _process.Process.assign
    monkeypatch.setattr(_process.Process, "assign", lambda self, task: (assigned.append(task), assign(self, task)))
    one, two = Task("1", "1"), Task("1", "2")
    assert patient.compare([one, two, one, two, one]) == [EQUAL, DIFFERENT, EQUAL, DIFFERENT, EQUAL]
    assert sorted(assigned) == [one, two]


def test_compare_text_that_is_no_text_raises(patient):
    with pytest.raises(TypeError, match="must be texts"):
        patient.compare([Task("5", 5)])


def test_compare_slow_answer_times_out_and_the_worker_lives(hasty):
    hasty.compare([Task("1", "1")])
    before = set(hasty.pids)
    assert hasty.compare([Task("5", SLOW), Task("2", "2")]) == [Verdict(False, "timeout"), EQUAL]
    assert set(hasty.pids) == before


def test_compare_slow_gold_is_not_the_answers_fault(hasty):
    assert hasty.compare([Task(r"\binom{100000000}{50000000}", "5")]) == [Verdict(None, "gold_timeout")]


def test_compare_stopped_workers_are_killed_and_replaced():
    with WorkerPool(num_workers=1, timeout=1.0) as workers:
        while not (workers.workers and all(worker.ready for worker in workers.workers)):
            workers.compare([Task("1", "1")])
        stopped = workers.pids
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        verdicts = workers.compare([Task(str(k), str(k)) for k in range(3)])
        assert verdicts == [Verdict(None, "gold_timeout")] * 2 + [EQUAL]
        assert not set(stopped) & set(workers.pids)
        assert all(map(_is_gone, stopped))


def test_compare_hostile_family_is_wrong_and_the_pool_survives(hasty):
    sample = list(dict(HOSTILE).items())
    verdicts = hasty.compare([Task("12345", answer) for _, answer in sample])
    assert [(family, v) for (family, _), v in zip(sample, verdicts, strict=True) if v.equal is not False] == []
    assert hasty.compare([Task("1", "1"), Task("1", "2")]) == [EQUAL, DIFFERENT]


@pytest.mark.parametrize("answer", [r"\operatorname{zeros}(30000,30000)", r"\operatorname{eye}(100000)"])
def test_compare_answer_that_takes_all_memory_is_wrong(answer):
    with WorkerPool(num_workers=1, timeout=5.0, memory_limit_mb=256) as workers:
        assert workers.compare([Task("5", answer), Task("5", "5")]) == [Verdict(False, "memory"), EQUAL]


def test_compare_large_text_passes_the_pipes(patient):
    text = r"\text{" + "é\ud800\0" * 100_000 + "}"
    assert patient.compare([Task("5", text)])[0].equal is False
    assert patient.compare([Task("5", "5")]) == [EQUAL]


def test_worker_killed_once_is_replaced_and_the_task_repeated(patient, monkeypatch):
    assign, killed = _process.Process.assign, []

    def assign_and_kill(self, task):
        assign(self, task)
        if not killed:
            killed.append(self.process.pid)
            self.process.kill()

    monkeypatch.setattr(_process.Process, "assign", assign_and_kill)
    assert patient.compare([Task("7", "7"), Task("7", "8")]) == [EQUAL, DIFFERENT]
    assert killed[0] not in patient.pids
    assert _is_gone(killed[0])


@pytest.mark.parametrize(
    ("moment", "verdict"), [("gold", Verdict(False, "crash")), (None, Verdict(None, "gold_crash"))]
)
def test_worker_killed_twice_is_put_down_to_what_it_read(patient, monkeypatch, moment, verdict):
    assign, heed = _process.Process.assign, pool._Call._heed
    bad = Task("7", SLOW)

    def kill_and_assign(self, task):
        if task == bad and moment is None:
            self.process.kill()
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)  # dead for sure before it could read
        assign(self, task)

    def heed_and_kill(self, worker, message):
        heed(self, worker, message)
        if "gold" in message and worker.task == bad:
            worker.process.kill()

    monkeypatch.setattr(_process.Process, "assign", kill_and_assign)
    monkeypatch.setattr(pool._Call, "_heed", heed_and_kill)
    assert patient.compare([bad, Task("7", "7")]) == [verdict, EQUAL]


def test_idle_worker_killed_is_not_missed(patient):
    patient.compare([Task("1", "1")])
    dead = patient.pids
    for pid in dead:
        os.kill(pid, signal.SIGKILL)
    assert patient.compare([Task("6", "6"), Task("6", "7")]) == [EQUAL, DIFFERENT]
    assert not set(dead) & set(patient.pids)


def test_batch_deadline_leaves_the_rest_unjudged():
    with WorkerPool(num_workers=1, timeout=10.0, batch_timeout=0.5) as workers:
        assert workers.compare([Task("1", "1")]) == [EQUAL]
        verdicts = workers.compare([Task("1", "1"), Task("5", SLOW), Task("2", "2")])
        assert verdicts == [EQUAL, Verdict(None, "batch_deadline"), Verdict(None, "batch_deadline")]
        workers.batch_timeout = None
        assert workers.compare([Task("3", "3")]) == [EQUAL]


def test_keyboard_interrupt_leaves_a_pool_that_works(patient, monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pool._Call, "_enforce", interrupt)
        with pytest.raises(KeyboardInterrupt):
            patient.compare([Task("5", SLOW), Task("6", SLOW)])
    assert patient.compare([Task(str(k), "1") for k in range(4)]) == [DIFFERENT, EQUAL, DIFFERENT, DIFFERENT]
    assert len(patient.pids) == 3


def test_threads_at_once_get_their_own_verdicts(patient):
    found = {}

    def ask(number):
        found[number] = patient.compare([Task(f"{number}+x", f"x+{k}") for k in range(8)])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [EQUAL if k == n else DIFFERENT for k in range(8)] for n in range(8)}
    assert len(patient.pids) == 3


def test_asyncio_calls_in_and_beside_the_loop_work(patient):
    async def ask():
        beside = asyncio.to_thread(patient.compare, [Task("1", "1")])
        return patient.compare([Task("1", "2")]), await beside

    assert asyncio.run(ask()) == ([DIFFERENT], [EQUAL])


def test_close_stops_every_process_and_the_next_call_starts_them():
    workers = WorkerPool(num_workers=1)
    assert workers.pids == []
    workers.compare([Task("1", "1")])
    first = workers.pids
    assert len(first) == 2
    workers.close()
    assert workers.pids == []
    assert all(not Path(f"/proc/{pid}").exists() for pid in first)
    assert workers.compare([Task("1", "1")]) == [EQUAL]
    workers.close()


def test_close_during_a_call_ends_it_unjudged():
    workers = WorkerPool(num_workers=1, timeout=60.0)
    workers.compare([Task("1", "1")])
    found = []
    thread = threading.Thread(target=lambda: found.extend(workers.compare([Task("5", SLOW), Task("6", SLOW)])))
    thread.start()
    while not any(worker.task for worker in workers.workers):
        time.sleep(0.01)
    workers.close()
    thread.join()
    assert found == [Verdict(None, "closed")] * 2
    assert workers.pids == []


def test_shared_pool_is_one_for_the_same_settings():
    one = shared_pool(num_workers=1, timeout=2)
    assert shared_pool(num_workers=1, timeout=2.0) is one
    assert shared_pool(num_workers=1, timeout=3.0) is not one
    assert one.compare([Task("1", "1")]) == [EQUAL]
    close_pools()
    assert one.pids == []


def test_pool_pickling_is_refused_with_the_remedy(patient):
    with pytest.raises(TypeError, match="shared_pool"):
        pickle.dumps(patient)
    assert pickle.loads(pickle.dumps(Task("1", "2"))) == Task("1", "2")


@pytest.mark.parametrize(
    "settings",
    [
        {"num_workers": 0},
        {"num_workers": 1.5},
        {"num_workers": True},
        {"timeout": 0},
        {"timeout": float("inf")},
        {"timeout": "2"},
        {"memory_limit_mb": 100},
        {"spare": -1},
        {"batch_timeout": -1.0},
    ],
)
def test_pool_bad_setting_raises_with_name_and_value(settings):
    ((name, value),) = settings.items()
    with pytest.raises(ValueError, match=f"{name} is {value!r}; it must be"):
        WorkerPool(**settings)


def test_start_without_math_verify_raises_with_the_command(monkeypatch):
    library = [path for path in sys.path if "site-packages" not in path]
    monkeypatch.setattr(_process, "search_path", lambda: library)
    workers = WorkerPool(num_workers=1)
    for _ in range(2):  # it says so each time
        with pytest.raises(RuntimeError, match=r"(?s)No module named .*-m pip install \"math-verify") as raised:
            workers.compare([Task("1", "1")])
        assert sys.executable in str(raised.value)
    workers.close()
    assert workers.pids == []


@pytest.mark.parametrize(
    ("executable", "cause"), [("", "is empty"), ("/nowhere/python", "FileNotFound"), ("/bin/false", "")]
)
def test_start_without_an_interpreter_raises(monkeypatch, executable, cause):
    monkeypatch.setattr(sys, "executable", executable)
    with WorkerPool(num_workers=1) as workers, pytest.raises(RuntimeError, match=f"cannot start: .*{cause}"):
        workers.compare([Task("1", "1")])


def test_start_without_a_memory_limit_warns_once(monkeypatch):
    monkeypatch.setattr(pool, "_warned", threading.Event())
    with WorkerPool(num_workers=1) as workers, pytest.warns(RuntimeWarning, match="not limit the memory") as found:
        workers.compare([Task("1", "1")])
        for worker in workers.workers:
            workers.greet(worker, {"ready": True, "limited": False})
    assert len(found) == 1


def test_search_path_users_directories_come_last(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "/a b/lib", 3])
    assert _process.search_path() == ["/a b/lib", str(tmp_path), str(tmp_path)]


def test_environment_is_the_same_everywhere(monkeypatch):
    for name in ("PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONPATH", "PYTHONHASHSEED"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    found = _process.environment()
    assert found["OMP_NUM_THREADS"] == "1"
    assert found["PYTHONHASHSEED"] == "0"
    assert found["CUDA_VISIBLE_DEVICES"] == ""
    assert not {"PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONPATH"} & set(found)


def test_frames_keep_every_character_and_wait_for_the_rest():
    message = {"text": "\0\ud800é\n" * 1000}
    data = _worker.packed(message)
    buffer = bytearray(data[:-1])
    assert _worker.unpacked(buffer) is None
    buffer += data[-1:] + data[:3]
    assert _worker.unpacked(buffer) == message
    assert buffer == data[:3]
    with pytest.raises(ValueError, match="at most"):
        _worker.unpacked(bytearray(b"\xff\xff\xff\xff"))


def test_literal_takes_numbers_and_refuses_code():
    assert _worker._literal("Integer (5 )", {}, {}) == 5
    assert str(_worker._literal("Symbol ('x' )")) == "x"
    for code in ("__import__ ('os' )", "Integer (5 )+1", "Symbol ('x' ).name", "Function ('f' )(1)", "E "):
        with pytest.raises(ValueError, match="never evaluated"):
            _worker._literal(code)


def _run(script: str, folder: Path, how: str) -> subprocess.CompletedProcess[str]:
    """Run a script that is not guarded by `if __name__`, next to files that are called like modules."""
    for name in ("sympy", "code", "math_verify", "json"):
        (folder / f"{name}.py").write_text("raise SystemExit('a file of the user was imported')\n")
    text = f"import sys; sys.path.append({str(ROOT)!r})\n" + textwrap.dedent(script)
    (folder / "train.py").write_text(text)
    command = {"file": ["-P", "train.py"], "stdin": ["-P", "-"], "text": ["-P", "-c", text]}[how]
    return subprocess.run(
        [sys.executable, *command],
        input=text if how == "stdin" else None,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


ASK = """
from reward_funcs.pool import Task, WorkerPool, shared_pool
workers = shared_pool(num_workers=1, timeout=20.0)
print(workers.compare([Task(r"\\frac12", "0.5")])[0].reason, *workers.pids)
"""


@pytest.mark.parametrize("how", ["file", "stdin", "text"])
def test_unguarded_script_runs_once_and_leaves_no_process(tmp_path, how):
    sys_path = "sys.path.append('')\n"  # as in a notebook
    done = _run(sys_path + ASK, tmp_path, how)
    assert done.stderr == ""
    reason, *pids = done.stdout.split()
    assert reason == "equal"
    assert len(pids) == 2
    assert _gone_soon([int(pid) for pid in pids])


def test_spawned_and_forked_processes_have_workers_of_their_own(tmp_path):
    script = """
    import multiprocessing, os
    from reward_funcs.pool import Task, shared_pool

    def ask(queue):
        workers = shared_pool(num_workers=1, timeout=20.0)
        queue.put((workers.compare([Task("2", "2")])[0].reason, workers.pids))

    if __name__ == "__main__":
        workers = shared_pool(num_workers=1, timeout=20.0)
        workers.compare([Task("1", "1")])
        before = workers.pids
        for method in ("spawn", "fork"):
            context = multiprocessing.get_context(method)
            queue = context.Queue()
            child = context.Process(target=ask, args=(queue,))
            child.start()
            reason, pids = queue.get(timeout=60)
            child.join(60)
            print(method, reason, not set(pids) & set(before), child.exitcode)
        if os.fork() == 0:
            workers.close()
            raise SystemExit(0)
        os.wait()
        print(workers.pids == before, workers.compare([Task("1", "2")])[0].reason)
    """
    done = _run(script, tmp_path, "file")
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["spawn equal True 0", "fork equal True 0", "True different"]


def test_killed_parent_leaves_no_process_even_a_busy_one(tmp_path):
    script = """
    import os, signal, threading
    from reward_funcs.pool import Task, WorkerPool
    workers = WorkerPool(num_workers=1, timeout=1.0)
    workers.compare([Task("1", "1")])
    threading.Thread(target=workers.compare, args=([Task("5", %r)],), daemon=True).start()
    while not any(worker.task for worker in workers.workers):
        pass
    print(*workers.pids, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    done = _run(script % SLOW, tmp_path, "file")
    pids = [int(pid) for pid in done.stdout.split()]
    assert done.returncode == -signal.SIGKILL
    assert len(pids) == 2
    assert _gone_soon(pids)


def test_daemon_thread_at_shutdown_ends_quietly(tmp_path):
    script = """
    import threading, time
    from reward_funcs.pool import Task, WorkerPool
    workers = WorkerPool(num_workers=1, timeout=60.0)
    workers.compare([Task("1", "1")])
    threading.Thread(target=workers.compare, args=([Task("5", %r)] * 3,), daemon=True).start()
    while not any(worker.task for worker in workers.workers):
        time.sleep(0.01)
    print(*workers.pids)
    """
    done = _run(script % SLOW, tmp_path, "file")
    assert (done.returncode, done.stderr) == (0, "")
    assert _gone_soon([int(pid) for pid in done.stdout.split()])
