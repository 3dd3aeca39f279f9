"""How far an evaluation is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any

LINE_SECONDS = 30.0


class Progress:
    """Completions of this process, the share that is right so far, and tokens a second.

    Args:
        total (`int`): completions that this process has to make, those that are there included.
        done (`int`): how many of them are there.
        is_shown (`bool`): whether to print at all.
        name (`str`): stands at the start of the line.
    """

    def __init__(self, total: int, done: int, *, is_shown: bool = True, name: str = "eval") -> None:
        self.total, self.done, self.name = total, done, name
        self._tokens = self._right = self._judged = 0
        self._start = self._told = time.perf_counter()
        self._first = done
        self._is_shown = is_shown
        self._bar: Any = None
        if is_shown and sys.stderr.isatty():
            from tqdm import tqdm

            layout = "{desc}: {n_fmt}/{total_fmt} |{bar:20}| {elapsed}, {remaining} left{postfix}"
            self._bar = tqdm(total=total, initial=done, desc=name, bar_format=layout)

    def judge(self, correct: Iterable[bool | None]) -> None:
        """Count verdicts."""
        for right in correct:
            self._judged += right is not None
            self._right += right is True

    def advance(self, count: int, tokens: int) -> None:
        """Count a batch and show where things stand."""
        self.done += count
        self._tokens += tokens
        if self._bar is not None:
            self._bar.update(count)
            self._bar.set_postfix_str(self._figures())
        elif self._is_shown and (time.perf_counter() - self._told >= LINE_SECONDS or self.done == self.total):
            self._told = time.perf_counter()
            print(f"{self.name}: {self.done}/{self.total}, {self._figures()}", file=sys.stderr, flush=True)

    def _figures(self) -> str:
        seconds = max(time.perf_counter() - self._start, 1e-9)
        right = f"{self._right / self._judged:.1%} right so far, " if self._judged else ""
        left = ""
        if self._bar is None and self._first < self.done < self.total:
            left = f", {(self.total - self.done) * seconds / (self.done - self._first):.0f} s left"
        return f"{right}{self._tokens / seconds:.0f} tokens/s{left}"

    def close(self) -> None:
        """End the line of the bar, so that what is printed next has its own."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
