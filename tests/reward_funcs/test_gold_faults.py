r"""A gold that nobody can read leaves a completion unjudged whatever it says, and costs one question at most."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reward_funcs import _gold_faults, _worker
from reward_funcs.base import Batch, Grade
from reward_funcs.grading import AccuracyReward
from reward_funcs.pool import close_pools

BAD = r"\frac{1}{"
# math-verify reads it, and tier 0 does not
ONLY_IN_WORKERS = r"\int_0^1 x dx"
# the box, an answer in the reasoning, none at all, an empty one, a refused form, one that nobody can read, too long
TEXTS = [
    r"\boxed{7}", r"<think>\boxed{7}</think>", "I do not know", "", r"\boxed{}", r"\boxed{4=5}", r"\boxed{x+1=6}",
    r"\boxed{\gcd(10,15)}", r"\boxed{5} or \boxed{6}", "<answer>4</answer><answer>5</answer>", r"\boxed{9^{9^{9^9}}}",
    r"\boxed{\frac{3}{4}+}", r"\boxed{" + "1+" * 505 + "1}",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _workers_end_with_the_module() -> Any:
    yield
    close_pools()


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gold_faults, "_known", {})
    monkeypatch.setattr(_gold_faults, "_tries", {})


def grades(texts: list[str], gold: Any) -> list[Grade]:
    return AccuracyReward(timeout=30.0).grade(Batch(texts, {"solution": [gold] * len(texts)}))


def test_unreadable_gold_is_unjudged_whatever_the_completion_says() -> None:
    found = grades(TEXTS, BAD)
    assert [one.reward for one in found] == [None] * len(TEXTS)
    assert {one.reason for one in found} == {"unparsed_gold"}
    assert (found[0].answer, found[2].answer) == ("7", None)


def test_each_completion_alone_is_unjudged_too() -> None:
    for text in TEXTS:
        _gold_faults._known.clear()
        assert grades([text], BAD)[0].reward is None, text


@pytest.mark.parametrize("gold", ["5", ONLY_IN_WORKERS, r"\text{no solution}", "(B)"])
def test_completion_without_an_answer_stays_wrong_for_a_gold_that_is_read(gold: str) -> None:
    assert grades(["I do not know", "<think>"], gold) == [Grade(0.0, "no_answer")] * 2


def test_one_unreadable_gold_of_a_list_leaves_the_row_open_for_all_but_the_right_answer() -> None:
    assert [one.reward for one in grades([r"\boxed{4}", r"\boxed{7}", "none"], ["4", BAD])] == [1.0, None, None]


def test_gold_is_asked_about_once_and_only_where_it_is_not_read_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[tuple[str, str]]] = []

    def compared(self: AccuracyReward, pairs: list[tuple[str, str]]) -> list[tuple[bool | None, str]]:
        asked.append(pairs)
        return [(None, "unparsed_gold") if gold == BAD else (False, "unparsed_answer") for gold, _ in pairs]

    monkeypatch.setattr(AccuracyReward, "_compared", compared)
    for _ in range(2):
        rewards = AccuracyReward()(["none"] * 4, solution=["5", BAD, ONLY_IN_WORKERS, BAD])
        assert rewards == [0.0, None, 0.0, None]
    assert asked == [[(BAD, ""), (ONLY_IN_WORKERS, "")]]


def test_gold_that_runs_into_a_limit_twice_is_not_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[tuple[str, str]]] = []

    def compared(self: AccuracyReward, pairs: list[tuple[str, str]]) -> list[tuple[bool | None, str]]:
        asked.append(pairs)
        return [(None, "gold_timeout")] * len(pairs)

    monkeypatch.setattr(AccuracyReward, "_compared", compared)
    for _ in range(4):
        assert AccuracyReward()(["none"] * 2, solution=[ONLY_IN_WORKERS] * 2) == [None, None]
    assert asked == [[(ONLY_IN_WORKERS, "")]] * 2


def test_workers_that_cannot_run_leave_the_verdict_and_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def compared(self: AccuracyReward, pairs: list[tuple[str, str]]) -> list[tuple[bool | None, str]]:
        calls.append(pairs)
        return [(None, reasons[len(calls) - 1]) for _ in pairs]

    reasons = ["no_workers", "gold_timeout", "batch_deadline"]
    monkeypatch.setattr(AccuracyReward, "_compared", compared)
    assert [AccuracyReward()(["none"], solution=[ONLY_IN_WORKERS])[0] for _ in reasons] == [0.0, None, 0.0]


def test_known_golds_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gold_faults, "MAX_KNOWN", 3)
    for number in range(10):
        gold = rf"\frac{{{number}}}{{"
        found = _gold_faults.gold_faults([gold], lambda pairs: [(None, "unparsed_gold") for _ in pairs])
        assert found == {gold: "unparsed_gold"}
        assert 0 < len(_gold_faults._known) <= 3


SCRIPT = """
import json, runpy, sys
worker = runpy.run_path(sys.argv[1])
found, told = [], []
for gold, answer in json.load(sys.stdin):
    task = {"gold": gold, "answer": answer, "rel_tol": 1e-6}
    found.append(worker["judged"](task, lambda gold=gold: told.append(gold)))
print(json.dumps([found, told]))
"""


def test_worker_blames_the_gold_before_the_answer_and_says_only_of_golds_that_are_read_that_they_are() -> None:
    pairs = [(BAD, r"\frac{3}{4}+"), (BAD, "7"), ("7", r"\frac{3}{")]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(Path(_worker.__file__))],
        input=json.dumps(pairs),
        capture_output=True,
        text=True,
        check=True,
    )
    found, told = json.loads(done.stdout.splitlines()[-1])
    assert found == [[None, "unparsed_gold"], [None, "unparsed_gold"], [False, "unparsed_answer"]]
    assert told == ["7"]
