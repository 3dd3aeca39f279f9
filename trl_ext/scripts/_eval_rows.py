"""The problems of `trl-ext eval`: evaluation sets of the builders, and rows of the user's own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trl_ext._text import did_you_mean
from trl_ext.errors import UsageError, UserError
from trl_ext.evaluation._runner_url import shown_url

Sets = dict[str, list[dict[str, Any]]]
Facts = dict[str, dict[str, Any]]


def load_rows(args: Any) -> tuple[Sets, Facts]:
    """Rows of every set by name, and what is known of their origin.

    Raises:
        UserError: For an unknown set, a file that is not there, and rows that cannot be used.
    """
    import datasets

    from datasets_builders.instructions import check_preset
    from datasets_builders.registry import evaluation_source

    datasets.disable_progress_bars()  # the sets are small, and the bars of their conversion hide what matters
    for name in args.benchmarks:
        evaluation_source(name)
    check_preset(args.instruction)
    paths = _local_paths(args)
    sets: Sets = {}
    facts: Facts = {}
    for name in dict.fromkeys(args.benchmarks):
        sets[name], facts[name] = _benchmark(name, paths.get(name), args)
    if args.dataset:
        name = Path(args.dataset).stem or "dataset"
        if name in sets:
            raise UserError(f"--dataset {args.dataset} has the name of the benchmark {name}; rename the file")
        sets[name], is_part = _own_rows(args)
        path = None if Path(args.dataset).exists() else shown_url(args.dataset)
        facts[name] = {"path": path, "split": args.split, "max_problems": args.max_problems if is_part else None}
    return sets, facts


def _local_paths(args: Any) -> dict[str, list[str]]:
    paths: dict[str, list[str]] = {}
    for word in args.local_path:
        name, mark, path = word.partition("=")
        if not mark or not path:
            raise UsageError(f"--local_path {word}: give NAME=PATH, such as math_500=math500.jsonl")
        if name not in args.benchmarks:
            raise UsageError(
                f"--local_path {word}: {name!r} is none of the --benchmarks{did_you_mean(name, args.benchmarks)}"
            )
        paths.setdefault(name, []).append(path)
    return paths


def _benchmark(name: str, paths: list[str] | None, args: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    from datasets_builders import build_with_report
    from datasets_builders.registry import evaluation_source

    built = build_with_report(
        name,
        evaluation=True,
        streaming=False,
        max_samples=args.max_problems,
        instruction="boxed" if args.instruction is None else args.instruction,
        system_prompt=args.system_prompt,
        local_path=paths,
    )
    report = built.report.to_dict()
    facts = {key: report[key] for key in ("path", "config", "split", "instruction", "files_hash")}
    facts["revision"] = report["revision_resolved"] or report["revision"]
    facts["dropped"] = sum(report["dropped"].values()) or None
    # of the whole set nothing is left out; a set that is generated has no end
    is_part = report["not_sampled"] or evaluation_source(name).generate is not None
    facts["max_problems"] = args.max_problems if is_part else None
    return [dict(row) for row in built.dataset], facts


def _own_rows(args: Any) -> tuple[list[dict[str, Any]], bool]:
    """The rows that are asked for, and whether there are more of them."""
    from trl_ext.scripts._training import load_data, pick_split

    where = SimpleNamespace(
        dataset_name=args.dataset, dataset_config=None, dataset_train_split=args.split, dataset_streaming=False
    )
    data: Iterator[Mapping[str, Any]] = iter(pick_split(load_data(where), args.split))
    rows = [_own_row(dict(row), index, args) for index, row in enumerate(islice(data, args.max_problems))]
    if not rows:
        raise UserError(f"--dataset {args.dataset} holds no rows in the split {args.split!r}")
    return rows, next(data, None) is not None


def _number_text(value: int | float, where: str) -> str:
    """A number as it is written in a text: 1e22 with its zeros."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        raise UserError(
            f"{where} has the solution {value}, which is no answer; give a number or a text, or drop the row"
        )
    return format(Decimal(repr(value)), "f")


def _own_row(row: dict[str, Any], index: int, args: Any) -> dict[str, Any]:
    """A row as the builders make them, as far as it has what they have."""
    lacking = [name for name in ("prompt", "solution") if row.get(name) is None]
    if lacking:
        raise UserError(
            f"--dataset {args.dataset}: row {index} has no {lacking[0]!r}; rows need the columns prompt and solution, "
            f"and this one has {', '.join(map(str, row))}"
        )
    # a table reads the gold 4 as a number; check_golds refuses what is no gold
    if isinstance(row["solution"], (int, float)) and not isinstance(row["solution"], bool):
        row["solution"] = _number_text(row["solution"], f"--dataset {args.dataset}: row {index}")
    if not args.system_prompt and args.instruction in (None, "none"):
        return row
    if isinstance(row["prompt"], str):
        raise UserError(
            f"--dataset {args.dataset}: the prompt of row {index} is plain text, which has no place for "
            "--system_prompt or --instruction; make it a list of messages, or put them into the text"
        )
    from datasets_builders.instructions import instructed

    with_task = {**row, "task": row.get("task") or "math"}
    return instructed(with_task, instruction=args.instruction or "none", system_prompt=args.system_prompt)
