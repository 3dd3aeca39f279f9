"""IFEval and IFBench: instructions whose constraints a program can check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row, rl_row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._constraints import constraints


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The prompt as it is, and its constraints; arguments that are null are dropped, other false ones stay."""
    return _row(row, "ifeval")


@conversion
def convert_ifbench(row: Mapping[str, Any]) -> Row:
    """As [`convert`]: IFBench has the columns of IFEval and other constraints."""
    return _row(row, "ifbench")


def _row(row: Mapping[str, Any], name: str) -> Row:
    prompt = row["prompt"]
    if prompt is None or not prompt.strip():
        raise Drop("no_prompt")
    gold = constraints(row["instruction_id_list"], row["kwargs"])
    return rl_row(prompt, gold, task="instruction", source=name, source_id=row["key"])


IFEVAL = Source(
    name="ifeval",
    convert=convert,
    task="instruction",
    licence="apache-2.0",
    path="google/IFEval",
    revision="966cd89545d6b6acfd7638bc708b98261ca58e84",
    columns=("key", "prompt", "instruction_id_list", "kwargs"),
    size=541,
    evaluation=True,
    note="The only split is called train and is the benchmark.",
)
IFBENCH = Source(
    name="ifbench",
    convert=convert_ifbench,
    task="instruction",
    licence="odc-by",
    path="allenai/IFBench_test",
    revision="2e8a48de45ff3bf41242f927254ca81b59ca3ae2",
    columns=("key", "prompt", "instruction_id_list", "kwargs"),
    size=300,
    evaluation=True,
    note="The only split is called train and is the benchmark.",
)
SOURCES = (IFEVAL, IFBENCH)
