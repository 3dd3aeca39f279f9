"""What a sandbox is given and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass
class Job:
    """One program with its tests.

    Args:
        mode (`str`): `"asserts"`, `"calls"`, `"pytest"`, `"stdio"` or `"compile"`.
        code (`str`): the program.
        data (`dict[str, Any]`): what the mode needs: `blocks`, `entry` and `inputs`, `tests`, or `inputs`. `seconds`
            shortens the time of the whole program; `prelude` gives it the names of LeetCode.
        goes_on (`Callable`, *optional*): called with each test's message; False ends the job.
        judged (`Callable`, *optional*): turns each test's message into the one that is kept, as soon as it is here.
    """

    mode: str
    code: str
    data: dict[str, Any] = field(default_factory=dict)
    goes_on: Callable[[list[Any]], bool] | None = None
    judged: Callable[[list[Any]], list[Any]] | None = None


@dataclass
class Outcome:
    """What became of a job.

    Args:
        messages (`list[list[Any]]`): one for each test that was run, in order: `["verdict", index, reason]`,
            `["value", index, value]` or `["output", index, text, reason]`.
        failed (`str`): why the program could not be loaded: `syntax_error`, `error`, `timeout`, `crash`, `bad_value`,
            `too_large`; empty where it was.
        end (`str`): `done` where every test had its turn, `timeout`, `crash` where the process of the tests has ended
            before, or `stopped` where `goes_on` ended it.
        num_tests (`int`): how many tests there are, -1 where that is not known.
        seconds (`float`): how long the program ran with its tests.
    """

    messages: list[list[Any]] = field(default_factory=list)
    failed: str = ""
    end: str = ""
    num_tests: int = -1
    seconds: float = 0.0


class Sandbox(Protocol):
    """What runs programs: this machine's [`LocalSandbox`], or a service."""

    def run(self, jobs: Sequence[Job]) -> list[Outcome | None]:
        """One outcome for each job, `None` for what could not be run through no fault of the program."""

    def close(self) -> None:
        """Give back what it holds."""
