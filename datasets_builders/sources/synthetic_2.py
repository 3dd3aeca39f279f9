"""SYNTHETIC-2-RL: tasks of many families, of which mathematics and code are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from datasets_builders.golds import pass_rate
from datasets_builders.schema import Row, json_text, rl_row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._maths import math_row
from datasets_builders.sources._tests import io_tests
from datasets_builders.sources._turns import filled

_REWARD = "_avg_reward"


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The answer or the tests in `verification_info`, a JSON text, by the family that `problem_id` begins with.

    `difficulty` is the mean of the columns `<model>_avg_reward` that are not null; `extra` keeps each under `rewards`.
    Dropped: `unsupported_task` for the other families (constraints, puzzles, output formats), `several_golds` where
    the answer is a list of different ones, `no_tests`, `bad_tests`, and the reasons of mathematics.
    """
    family = str(row["problem_id"] or "").rpartition("_")[0]
    info = json.loads(row["verification_info"])
    rewards = {
        name.removesuffix(_REWARD): rate
        for name, value in row.items()
        if name.endswith(_REWARD) and (rate := pass_rate(value)) is not None
    }
    facts: dict[str, Any] = {
        "source": "synthetic_2",
        "source_id": row["problem_id"],
        "difficulty": round(sum(rewards.values()) / len(rewards), 6) if rewards else None,
        "rewards": rewards or None,
        "part": family or None,
    }
    if "code" in family and "test_cases" in info:
        prompt = filled(row["prompt"], "no_prompt")
        return rl_row(prompt, json_text(_tests(info["test_cases"])), task="code", **facts)
    if "math" in family and "ground_truth" in info:
        return math_row(row["prompt"], _answer(info["ground_truth"]), **facts)
    raise Drop("unsupported_task")


def _answer(truth: Any) -> Any:
    """The answer, which some rows hold in a JSON list of one."""
    if isinstance(truth, str) and truth.startswith('["'):
        try:
            truth = json.loads(truth)
        except ValueError:
            return truth
    if not isinstance(truth, list):
        return truth
    if len(set(map(str, truth))) > 1:
        raise Drop("several_golds")  # which of them is right nobody says
    return truth[0] if truth else None


def _tests(tests: Any) -> dict[str, Any]:
    tests = json.loads(tests) if isinstance(tests, str) else tests
    if not isinstance(tests, Mapping):
        raise Drop("bad_tests")
    return io_tests(tests)


TRAINING = Source(
    name="synthetic_2",
    convert=convert,
    task="mixed",
    licence="apache-2.0",
    path="PrimeIntellect/SYNTHETIC-2-RL",
    pin_at_first_read=True,
    columns=("problem_id", "prompt", "verification_info"),
    optional_columns=("*_avg_reward",),
    size=155_638,
    note="Rows are of task math and code; the other families are dropped.",
)
SOURCES = (TRAINING,)
