"""docs/graders.md says what benchmarks/results/graders.json says, and that says what our grader does today."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from reward_funcs import accuracy_reward

ROOT = Path(__file__).resolve().parents[2]
REPORT = json.loads((ROOT / "benchmarks" / "results" / "graders.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_graders", ROOT / "benchmarks" / "bench_graders.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_made_of_the_results():
    command = [sys.executable, "benchmarks/bench_graders.py", "--page", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert check.returncode == 0, check.stdout + check.stderr


def test_results_of_our_grader_are_those_of_today(bench):
    rows = bench.labelled()
    rewards = accuracy_reward([row["completion"] for row in rows], solution=[row["gold"] for row in rows])
    codes = {None: "n", 0.0: "0", 1.0: "1"}
    assert "".join(codes[reward] for reward in rewards) == REPORT["graders"]["ours"]["verdicts"]


@pytest.mark.parametrize("name", REPORT["graders"])
def test_counts_are_those_of_the_verdicts(bench, name):
    rows, found = bench.labelled(), REPORT["graders"][name]
    assert len(found["verdicts"]) == len(rows) == REPORT["settings"]["pairs"]
    counts = bench.counts(found["verdicts"], rows)
    assert {kind: found[kind] for kind in bench.KINDS} == counts
    assert sum(counts.values()) == len(rows)
    for category, text in found["categories"].items():
        assert [int(count) for count in text.split()] == list(bench.counts(found["verdicts"], rows, category).values())


def test_shares_of_mathematics_and_conventions_make_up_the_whole(bench):
    rows = bench.labelled()
    assert {row["category"] for row in rows} > bench.CONVENTIONS
    number = sum(row["category"] in bench.CONVENTIONS for row in rows)
    for found in REPORT["graders"].values():
        mathematics, conventions = (bench.share_right(found, rows, which) for which in (False, True))
        right = mathematics * (len(rows) - number) + conventions * number
        assert right / 100 == pytest.approx(found["right"])


def test_row_in_a_thread_differs_by_hangs_alone():
    # the page says so
    verdicts = [REPORT["graders"][name]["verdicts"] for name in ("trl", "trl_thread")]
    assert {thread for main, thread in zip(*verdicts, strict=True) if main != thread} == {"h"}


def test_kind_of_verdict_follows_the_label(bench):
    kinds = {verdict: [bench.kind(verdict, label) for label in (1.0, 0.0, None)] for verdict in "10nrh"}
    assert kinds == {
        "1": ["right", "false_positives", "bad_gold_judged"],
        "0": ["false_negatives", "right", "bad_gold_judged"],
        "n": ["not_judged", "not_judged", "right"],
        "r": ["not_judged", "not_judged", "not_judged"],
        "h": ["hangs", "hangs", "hangs"],
    }


def test_examples_are_wrong_verdicts_of_different_categories(bench):
    rows = bench.labelled()
    for found in REPORT["graders"].values():
        shown = bench.examples(found["verdicts"], rows)
        assert all(bench.kind(verdict, row["reward"]) != "right" for row, verdict in shown)
        categories = [row["category"] for row, _ in shown]
        assert len(categories) == len(set(categories)) <= bench.NUM_EXAMPLES


def test_run_counts_a_hang_and_goes_on(bench, tmp_path):
    (tmp_path / "math_verify.py").write_text(
        "import time\n"
        "def parse(text):\n    return [text]\n"
        "def verify(gold, answer):\n    time.sleep(60 if answer == ['slow'] else 0)\n    return gold == answer\n",
        encoding="utf-8",
    )
    pairs = [{"gold": "$1$", "completion": text} for text in ("$1$", "slow", "$2$")]
    verdicts = [verdict for verdict, _ in bench.run("math_verify", [str(tmp_path)], pairs, [30.0, 1.0, 30.0])]
    assert verdicts == ["1", "h", "0"]
