"""GSM8K: grade-school word problems whose worked answer ends in `#### 42`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from datasets_builders.evaluation_rows import EVALUATION_ID
from datasets_builders.golds import math_gold
from datasets_builders.schema import Row, rl_row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._turns import filled

_CALCULATOR = re.compile(r"<<[^<>]*>>")


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The number after `####` is the gold; the worked answer stays in `extra` without its calculator marks.

    Dropped: `no_prompt`, `no_answer`.
    """
    return _row(row)


@conversion
def convert_test(row: Mapping[str, Any]) -> Row:
    """A row of the test split, whose `source_id` says so: nothing else tells it from one for training."""
    built = _row(row)
    return built | {"source_id": EVALUATION_ID + built["source_id"]}


def _row(row: Mapping[str, Any]) -> Row:
    question = filled(row["question"], "no_prompt")
    worked, mark, answer = row["answer"].rpartition("####")
    if not mark:
        raise Drop("no_answer")
    number = answer.strip().replace(",", "")
    return rl_row(
        question,
        math_gold(number),
        task="math",
        source="gsm8k",
        answer=answer.strip(),
        worked=_CALCULATOR.sub("", worked).strip(),
    )


TRAINING = Source(
    name="gsm8k",
    convert=convert,
    task="math",
    licence="mit",
    path="openai/gsm8k",
    config="main",
    revision="740312add88f781978c0658806c59bc2815b9866",
    splits={"train": ("train",)},
    columns=("question", "answer"),
    size=7473,
    note="The test split is the evaluation set of the same name: build_eval('gsm8k').",
)
EVALUATION = Source(
    name="gsm8k",
    convert=convert_test,
    task="math",
    licence="mit",
    path="openai/gsm8k",
    config="main",
    revision="740312add88f781978c0658806c59bc2815b9866",
    split="test",
    splits={"test": ("test",)},
    columns=("question", "answer"),
    size=1319,
    evaluation=True,
)
SOURCES = (TRAINING, EVALUATION)
