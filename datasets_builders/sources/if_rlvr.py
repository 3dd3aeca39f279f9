"""IF-RLVR: requests with one to five constraints that a program can check."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row, rl_row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._constraints import constraints
from datasets_builders.sources._turns import asked_and_replied

MAX_GROUND_TRUTH = 100_000  # characters of the Python literal that is read; real ones have a few hundred


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The gold is read from `ground_truth`, a Python literal in a string, by `ast.literal_eval` and nothing else.

    `extra` keeps `constraint_type` and the wording of the constraints. Dropped: `bad_constraints` (a gold that is no
    such literal, or holds another number of arguments than of names), `no_prompt`.
    """
    prompt, _ = asked_and_replied(row["messages"])
    gold = _ground_truth(row["ground_truth"])
    return rl_row(
        prompt,
        constraints(gold["instruction_id"], gold["kwargs"]),
        task="instruction",
        source="if_rlvr",
        source_id=row.get("key"),
        constraint_type=row.get("constraint_type"),
        constraint=row.get("constraint"),
    )


def _ground_truth(text: str) -> Mapping[str, Any]:
    """The mapping in a literal such as `[{...}]` or `['{...}']`; the inner text of the second form is JSON."""
    if len(text) > MAX_GROUND_TRUTH:
        raise Drop("bad_constraints")
    try:
        gold = ast.literal_eval(text)[0]
        gold = json.loads(gold) if isinstance(gold, str) else gold
    except (SyntaxError, ValueError, TypeError, LookupError, MemoryError, RecursionError):
        gold = None
    if not isinstance(gold, Mapping) or not {"instruction_id", "kwargs"} <= set(gold):
        raise Drop("bad_constraints")
    return gold


TRAINING = Source(
    name="if_rlvr",
    convert=convert,
    task="instruction",
    licence="odc-by",
    path="allenai/IF_multi_constraints_upto5",
    revision="2e3a77407b7fce69f95b248d64a884e3ae1c2423",
    columns=("messages", "ground_truth"),
    optional_columns=("key", "constraint_type", "constraint"),
    size=95_373,
    note="Constraints of 25 IFEval and 29 IFBench-train kinds; IFEval itself is then no test of unseen constraints.",
)
SOURCES = (TRAINING,)
