"""KlearReasoner-CodeSub-15K: programming tasks with tests by standard input, assertions or pytest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row, json_text, rl_row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._tests import assertions, io_tests, is_python
from datasets_builders.sources._turns import asked_and_replied


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The tests in `reward_model.ground_truth`, a JSON text, become the gold of a code task.

    A block of assertions is cut into single ones where it is nothing else. `extra` keeps `timeout` and
    `max_test_cases`, where a row has them. Dropped: `no_prompt`, `no_tests`, `bad_tests` (code that is not Python,
    or what [`io_tests`] refuses).
    """
    prompt, _ = asked_and_replied(row["prompt"])
    truth = row["reward_model"]["ground_truth"]
    truth = json.loads(truth) if isinstance(truth, str) else truth
    if not isinstance(truth, Mapping):
        raise Drop("bad_tests")
    return rl_row(
        prompt,
        json_text(_tests(truth)),
        task="code",
        source="klear_code",
        source_id=row.get("hash"),
        timeout=truth.get("timeout"),
        max_test_cases=truth.get("max_test_cases"),
    )


def _tests(truth: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("functional", "pytest"):
        code = truth.get(name)
        if code is not None:
            if not code.strip():
                raise Drop("no_tests")
            if not is_python(code):
                raise Drop("bad_tests")
            return {"asserts": assertions(code)} if name == "functional" else {"pytest": code}
    return io_tests(truth)


TRAINING = Source(
    name="klear_code",
    convert=convert,
    task="code",
    licence="apache-2.0",
    path="Kwai-Klear/KlearReasoner-CodeSub-15K",
    pin_at_first_read=True,
    data_files="train_code_rllm_clean.json",
    columns=("prompt", "reward_model"),
    optional_columns=("hash",),
    size=15_001,
    streaming=True,
    note="One JSON file of 4.2 GB; a row's tests may have megabytes.",
)
SOURCES = (TRAINING,)
