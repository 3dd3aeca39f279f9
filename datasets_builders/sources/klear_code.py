"""KlearReasoner-CodeSub-15K: programming tasks with tests by standard input, assertions or pytest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row, json_text, rl_row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._tests import assertions, is_python
from datasets_builders.sources._turns import asked_and_replied


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The tests in `reward_model.ground_truth`, a JSON text, become the gold of a code task.

    A block of assertions is cut into single ones where it is nothing else. `extra` keeps `timeout` and
    `max_test_cases`, where a row has them. Dropped: `no_prompt`, `no_tests`, `bad_tests` (code that is not Python,
    another number of inputs than of outputs, or one that is no text though no function is called).
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
    inputs, outputs, function = truth.get("inputs"), truth.get("outputs"), truth.get("fn_name")
    if not inputs and not outputs:
        raise Drop("no_tests")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        raise Drop("bad_tests")
    if function:
        if not isinstance(function, str):
            raise Drop("bad_tests")
        return {"inputs": inputs, "outputs": outputs, "fn_name": function}
    return {"inputs": [_text(one) for one in inputs], "outputs": [_text(one) for one in outputs]}


def _text(value: Any) -> str:
    """What a program reads or prints; a list holds its lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise Drop("bad_tests")
    return value


TRAINING = Source(
    name="klear_code",
    convert=convert,
    task="code",
    licence="apache-2.0",
    path="Kwai-Klear/KlearReasoner-CodeSub-15K",
    data_files="train_code_rllm_clean.json",
    columns=("prompt", "reward_model"),
    optional_columns=("hash",),
    size=15_001,
    streaming=True,
    note="One JSON file of 4.2 GB; a row's tests may have megabytes.",
)
SOURCES = (TRAINING,)
