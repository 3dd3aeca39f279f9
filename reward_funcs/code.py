"""Rewards for programs: whether they pass their tests, and whether they compile."""

from __future__ import annotations

import difflib
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from reward_funcs._code_blocks import last_code_block as last_code_block
from reward_funcs._code_tests import BAD_VERDICTS, KINDS, GoldTests, gold_tests
from reward_funcs.base import Batch, Grade, Reward, check_flag, check_name, check_setting
from reward_funcs.sandbox import Job, LocalSandbox, Outcome, Sandbox, shared_sandbox

LANGUAGES = ("python",)
MIN_SECONDS = 0.05  # of what is left for a program, below which it is not started anew
_NOT_JUDGED = ("no_sandbox", "bad_reply", "too_large", *BAD_VERDICTS)


class CodeReward(Reward):
    r"""Whether the program in the last fenced block passes its tests: 1.0 or 0.0, or `passed / tests`.

    Programs run in a sandbox, see [`reward_funcs.sandbox.LocalSandbox`]: without network, files or rights, in a
    process that never holds a test's expected value. A program that is late, crashes, exits or floods the output has
    failed the test. Where the machine offers no isolation the rewards are `None`, with one warning.

    The column `<name>/answer` of TRL's table holds the verdict of each test: `passed`, `wrong`, `error`, `timeout`,
    `crash`, `bad_value`, `output_limit`, `missing_name`, `not_run`, `bad_test` or `unsupported_test`.

    Args:
        kind (`str`, *optional*): `"asserts"`, `"stdio"`, `"functional"` or `"pytest"`, where golds must be of one kind;
            by default each gold's keys say it.
        language (`str`, *optional*, defaults to `"python"`): language of the programs; there is one so far.
        partial_credit (`bool`, *optional*, defaults to `False`): whether the reward is the share of tests passed;
            otherwise a program is stopped at the first test that it fails.
        timeout (`float`, *optional*, defaults to 5.0): seconds for one test.
        total_timeout (`float`, *optional*, defaults to 30.0): seconds for one program with all its tests.
        memory (`int`, *optional*, defaults to 1024): address space of each process of a program in MiB.
        tolerance (`float`, *optional*, defaults to 0.0): relative and absolute difference up to which numbers are the
            same in outputs (`stdio`) and floating-point results (`functional`); the other kinds compare as written.
        allow_unsafe (`bool`, *optional*, defaults to `False`): whether to run programs where nothing isolates them.
        num_workers (`int`, *optional*): programs at the same time, by default the number of processors, 8 at most.
        solution_column (`str`, *optional*, defaults to `"solution"`): column of the golds, `{"asserts": [...]}`,
            `{"inputs": [...], "outputs": [...]}`, the same with `"fn_name"`, or `{"pytest": "..."}`, as a mapping or
            JSON text.
        sandbox (`Sandbox`, *optional*): what runs the programs instead of this machine; its own limits hold then.
        name (`str`, *optional*, defaults to `"code_reward"`): name in the logs.

    Raises:
        ValueError: For an unknown kind or language, and for a setting out of its range.

    Source: HumanEval (arXiv:2107.03374) and MBPP (arXiv:2108.07732) define the tests in assertions, APPS
    (arXiv:2105.09938) those with inputs and outputs. Their programs run in the process that holds the tests; ours do
    not. Outputs are compared word by word over their whole length.

    Example:

    ```python
    >>> gold = {"asserts": ["assert double(2) == 4", "assert double(0) == 0"]}
    >>> right, wrong = ("```python\ndef double(x):\n    return {}\n```".format(body) for body in ("2 * x", "x * x + x"))
    >>> reward = CodeReward(partial_credit=True, allow_unsafe=True)
    >>> reward([right, wrong], solution=[gold, gold])
    [1.0, 0.5]

    ```
    """

    default_name = "code_reward"

    def __init__(
        self,
        kind: Literal["functional", "stdio", "asserts", "pytest"] | None = None,
        *,
        language: str = "python",
        partial_credit: bool = False,
        timeout: float = 5.0,
        total_timeout: float = 30.0,
        memory: int = 1024,
        tolerance: float = 0.0,
        allow_unsafe: bool = False,
        num_workers: int | None = None,
        solution_column: str = "solution",
        sandbox: Sandbox | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.kind = None if kind is None else _checked("kind", kind, KINDS)
        self.language = _checked("language", language, LANGUAGES)
        self.partial_credit = check_flag("partial_credit", partial_credit)
        self.timeout = check_setting("timeout", timeout, 0.05)
        self.total_timeout = check_setting("total_timeout", total_timeout, 0.05)
        self.memory = check_setting("memory", memory, 128, whole=True)
        self.tolerance = check_setting("tolerance", tolerance, 0.0, below=1.0)
        self.allow_unsafe = check_flag("allow_unsafe", allow_unsafe)
        self.num_workers = None if num_workers is None else check_setting("num_workers", num_workers, 1, whole=True)
        self.solution_column = check_name("solution_column", solution_column)
        if self.timeout > self.total_timeout:
            raise ValueError(
                f"timeout={timeout!r}: it must be at most total_timeout={total_timeout!r}, which holds for all tests "
                "of a program; raise total_timeout"
            )
        if sandbox is not None and not (hasattr(sandbox, "run") and hasattr(sandbox, "close")):
            raise ValueError(
                f"sandbox={sandbox!r:.80}: it must have the methods run(jobs) and close(); pass a LocalSandbox or an "
                "HTTPSandbox, or leave it out"
            )
        self.sandbox = sandbox

    def grade(self, batch: Batch) -> list[Grade]:
        """One grade for each completion; the reason is `passed`, `partly_passed`, the first verdict that is not
        `passed`, `no_code`, `syntax_error`, `bad_gold`, `bad_test`, `unsupported_test`, `too_large`, `bad_reply` or
        `no_sandbox`."""
        golds = batch.column(self.solution_column, needed_by=self.__name__, argument="solution_column")
        codes = batch.each_text(("code/last_block", self.language), lambda text: last_code_block(text, self.language))
        tests = [self._tests(gold) for gold in golds]
        # many completions of a prompt are the same program
        work = {(code, one): None for code, one in _runnable(codes, tests)}
        keys = list(work)
        grades = dict(zip(keys, self._graded(keys), strict=True))
        found = []
        for code, one in zip(codes, tests, strict=True):
            if one is None:
                found.append(Grade(None, "bad_gold"))
            elif code is None or not code.strip():
                found.append(Grade(0.0, "no_code"))
            else:
                found.append(grades[code, _Key(one)])
        return found

    def _tests(self, gold: Any) -> GoldTests | None:
        found = gold_tests(gold)
        return found if found is None or self.kind in (None, found.kind) else None

    def _graded(self, keys: Sequence[tuple[str, _Key]]) -> list[Grade]:
        works = [_Work(code, key.tests, self.total_timeout) for code, key in keys]
        while True:
            left = [work for work in works if not work.end]
            if not left:
                return [self._grade(work) for work in works]
            jobs = [work.job(stop=not self.partial_credit, tolerance=self.tolerance) for work in left]
            for work, outcome in zip(left, self._run(jobs), strict=True):
                work.add(outcome, goes_on=self.partial_credit, tolerance=self.tolerance)

    def _grade(self, work: _Work) -> Grade:
        verdicts, end, tests = work.verdicts, work.end, work.tests
        if end == "no_sandbox":
            self._warn()
        if end in _NOT_JUDGED:
            return Grade(None, end)
        bad = next((verdict for verdict in verdicts if verdict in BAD_VERDICTS), None)
        if bad is not None:
            return Grade(None, bad, ", ".join(verdicts))
        # how many tests a module for pytest has is only known once it has been run
        total = max(work.num_tests, 1) if tests.kind == "pytest" else len(tests.items)
        rest = end if end != "done" else "not_run"
        listed = [*verdicts, *[rest] * (total - len(verdicts))]
        share = listed.count("passed") / len(listed)
        if share == 1 and end == "done":
            return Grade(1.0, "passed", ", ".join(listed))
        first = next((verdict for verdict in listed if verdict != "passed"), rest)
        if self.partial_credit and 0 < share < 1:
            return Grade(share, "partly_passed", ", ".join(listed))
        return Grade(0.0, first, ", ".join(listed))

    def _run(self, jobs: Sequence[Job]) -> list[Outcome | None]:
        return self._used().run(jobs)

    def _used(self) -> Sandbox:
        return self.sandbox or shared_sandbox(
            timeout=self.timeout,
            total_timeout=self.total_timeout,
            memory=self.memory,
            num_workers=self.num_workers,
            allow_unsafe=self.allow_unsafe,
        )

    def _warn(self) -> None:
        if getattr(self, "_has_warned_of_sandbox", False):
            return
        self._has_warned_of_sandbox = True
        used = self._used()
        report = used.report() if isinstance(used, LocalSandbox) else None
        if report is None or report.is_isolated or not report.problem:
            text = "got no outcome from its sandbox for some programs, so their rewards are None; see whether it runs"
        else:
            text = (
                f"cannot isolate programs on this machine ({report.problem}), so its rewards are None; install "
                "bubblewrap, run as root, allow user namespaces, or pass allow_unsafe=True where nothing can be lost"
            )
        warnings.warn(f"{self.__name__} {text}", RuntimeWarning, stacklevel=2)

    def ideal(self, gold: Any) -> str | None:
        """`None`: tests say what a program must do, and not what it is."""
        return None


class _Work:
    """One program with its tests, of which some have been run."""

    def __init__(self, code: str, tests: GoldTests, seconds: float) -> None:
        self.code, self.tests, self.seconds = code, tests, seconds
        self.verdicts: list[str] = []
        self.num_tests = -1
        self.end = tests.problem  # why no further test is run; empty where some are

    def job(self, *, stop: bool, tolerance: float) -> Job:
        """The job for the tests that are left, in the time that is left."""
        start = len(self.verdicts)
        return self.tests.job(self.code, start, stop=stop, tolerance=tolerance, seconds=self.seconds)

    def add(self, outcome: Outcome | None, *, goes_on: bool, tolerance: float) -> None:
        """Add what came out; with `goes_on` the program is started anew behind a test that has ended it."""
        start = len(self.verdicts)
        if outcome is None:
            self.end = "no_sandbox"
        elif outcome.failed:
            self.end = outcome.failed
        elif self.tests.kind == "pytest" and outcome.end == "done" and outcome.num_tests < len(outcome.messages):
            self.end = "bad_reply"
        elif not all(self._is_message(one, index) for index, one in enumerate(outcome.messages)):
            self.end = "bad_reply"
        else:
            self.verdicts += [self.tests.verdict(message, start, tolerance) for message in outcome.messages]
            self.num_tests = outcome.num_tests
            self.seconds -= outcome.seconds
            self.end = self._ended(outcome, start, goes_on=goes_on)

    def _is_message(self, message: Any, index: int) -> bool:
        start = len(self.verdicts)
        if not isinstance(message, list) or len(message) < 2 or message[1] != index:
            return False
        if self.tests.kind != "pytest" and start + index >= len(self.tests.items):
            return False
        return self.tests.is_message([message[0], start + index, *message[2:]], start + index)

    def _ended(self, outcome: Outcome, start: int, *, goes_on: bool) -> str:
        end, left = outcome.end, len(self.tests.items) - len(self.verdicts)
        if self.tests.kind == "pytest":  # the module is run once
            is_whole = end == "done" and len(self.verdicts) == self.num_tests
            return "done" if is_whole else end if end != "done" else "not_run"
        if not goes_on:
            return "done" if end in ("done", "stopped") else end
        if end in ("timeout", "crash") and left:
            self.verdicts.append(end)  # of the test that was being run
            left -= 1
        if not left or self.seconds < MIN_SECONDS:
            return "done" if not left else "timeout"
        return "" if len(self.verdicts) > start else "done"


class _Key:
    """The tests of a gold as a key: one object of the cache is one key, without a hash of megabytes of inputs."""

    def __init__(self, tests: GoldTests) -> None:
        self.tests = tests

    def __hash__(self) -> int:
        return hash((self.tests.kind, len(self.tests.items)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and (self.tests is other.tests or self.tests.text() == other.tests.text())


def _runnable(codes: Sequence[str | None], tests: Sequence[GoldTests | None]) -> list[tuple[str, _Key]]:
    pairs = zip(codes, tests, strict=True)
    return [(code, _Key(one)) for code, one in pairs if code is not None and code.strip() and one is not None]


class CodeCompilesReward(Reward):
    r"""Whether the program in the last fenced block compiles: 1.0 or 0.0; it is not run, and no gold is needed.

    Args:
        language (`str`, *optional*, defaults to `"python"`): language of the programs; there is one so far.
        name (`str`, *optional*, defaults to `"code_compiles_reward"`): name in the logs.

    Raises:
        ValueError: For an unknown language.

    Source: a helper for the first steps of training. A model can write `pass`: give it a small weight.

    Example:

    ```python
    >>> code_compiles_reward(["```python\nx = 1\n```", "```python\nx =\n```", "x = 1"])
    [1.0, 0.0, 0.0]

    ```
    """

    default_name = "code_compiles_reward"

    def __init__(self, *, language: str = "python", name: str | None = None) -> None:
        super().__init__(name=name)
        self.language = _checked("language", language, LANGUAGES)

    def grade(self, batch: Batch) -> list[Grade]:
        """One grade for each completion; the reason is `compiles`, `no_code`, `no_sandbox` or why it does not."""
        codes = batch.each_text(("code/last_block", self.language), lambda text: last_code_block(text, self.language))
        wanted = list(Counter(code for code in codes if code is not None and code.strip()))
        # nothing of the program runs, so nothing needs to be kept from it; a compiler that takes all memory does
        sandbox = shared_sandbox(timeout=5.0, total_timeout=5.0, memory=1024, num_workers=None, allow_unsafe=True)
        grades = {code: _compiled(one) for code, one in zip(wanted, self._outcomes(sandbox, wanted), strict=True)}
        return [grades.get(code or "", Grade(0.0, "no_code")) for code in codes]

    def _outcomes(self, sandbox: Sandbox, codes: Sequence[str]) -> list[Outcome | None]:
        return sandbox.run([Job("compile", code) for code in codes])

    def ideal(self, gold: Any) -> str | None:
        """`None`: any program will do."""
        return None


def _compiled(outcome: Outcome | None) -> Grade:
    if outcome is None:
        return Grade(None, "no_sandbox")
    reason = outcome.failed or ("timeout" if outcome.end == "timeout" else "")
    return Grade(0.0, reason) if reason else Grade(1.0, "compiles")


def _checked(setting: str, value: Any, allowed: tuple[str, ...]) -> str:
    if isinstance(value, str) and value in allowed:
        return value
    close = difflib.get_close_matches(value, allowed, n=1) if isinstance(value, str) else []
    remedy = f"did you mean {close[0]!r}?" if close else "leave it out for the default"
    raise ValueError(f"{setting}={value!r:.80}: it must be one of {', '.join(map(repr, allowed))}; {remedy}")


code_reward = CodeReward()
code_compiles_reward = CodeCompilesReward()
