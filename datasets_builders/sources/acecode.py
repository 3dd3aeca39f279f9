"""AceCode-87K: functions to write, each with about 16 assertions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from datasets_builders.schema import Row, json_text, rl_row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._tests import is_python
from datasets_builders.sources._turns import filled


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Every assertion is a test of its own; what is no Python code, or asserts nothing, is left out.

    `difficulty` is the mean `pass_rate` (share of the tests passed) of the answers in `inferences`, 16 each of
    CodeLlama, Mistral v0.3, Llama 3.1 and Qwen2.5-Coder in two sizes; it is missing where that column is not read.
    Dropped: `no_prompt`, `no_tests`.
    """
    tests = [test.strip() for test in row["test_cases"] if test is not None]
    tests = [test for test in tests if "assert" in test and is_python(test)]
    if not tests:
        raise Drop("no_tests")
    return rl_row(
        filled(row["question"], "no_prompt"),
        json_text({"asserts": tests}),
        task="code",
        source="acecode",
        source_id=row["id"],
        difficulty=_pass_rate(row.get("inferences") or ()),
        part=row.get("source"),
    )


def _pass_rate(inferences: Iterable[Mapping[str, Any]]) -> float | None:
    rates = [one.get("pass_rate") for one in inferences]
    known = [float(rate) for rate in rates if rate is not None and 0 <= rate <= 1]
    return round(math.fsum(known) / len(known), 6) if known else None


TRAINING = Source(
    name="acecode",
    convert=convert,
    task="code",
    licence="mit",
    path="TIGER-Lab/AceCode-87K",
    pin_at_first_read=True,
    columns=("id", "question", "test_cases"),
    optional_columns=("source", "inferences"),
    size=87_149,
    note="Tests were written by a model. The column inferences, of which the difficulty comes, is most of the 5.1 GB.",
)
SOURCES = (TRAINING,)
