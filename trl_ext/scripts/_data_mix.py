"""`trl-ext data mix`: several sources in one data set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trl_ext.errors import UsageError, UserError
from trl_ext.scripts._config_file import read_yaml
from trl_ext.scripts._data_build import (
    checked,
    file_names,
    finish,
    is_there,
    newest_commit,
    refuse_early,
    row_options,
    settings_of,
)
from trl_ext.scripts._data_text import say, table

# Totals of the recipes as their source prints them; the plan shows them beside the sum of the rows.
PRINTED_TOTALS = {"olmo3-think": 104_869, "olmo3-instruct": 171_950}


def mix(args: Any) -> int:
    """`trl-ext data mix`."""
    from datasets_builders.mixing import mix_with_report, plan

    sources, printed = _mixture(args)
    rows = plan(sources, total=args.total)
    _print_plan(rows, printed)
    if args.dry_run:
        return 0
    supervised = [row["source"] for row in rows if row["kind"] != "rl"] if args.recipe else []
    if supervised:
        say(f"left out: {', '.join(supervised)}, whose rows are not for reinforcement learning")
        sources = {name: count for name, count in sources.items() if name not in supervised}
    from datasets_builders.building import source_of

    refuse_early(args, [source_of(name) for name in sources])
    paths = _local_paths(args)
    settings = {**settings_of(args), "sources": sources, "local_paths": {n: file_names(p) for n, p in paths.items()}}
    if is_there(args, settings, _mixed_revision(args, sources, paths)):
        return 0
    built = mix_with_report(
        sources,
        seed=args.seed,
        total=args.total,
        local_paths=paths,
        allow_fewer=args.allow_fewer,
        num_proc=args.num_proc,
        **{name: value for name, value in row_options(args).items() if name != "seed"},
    )
    if args.recipe:
        built.report.name = Path(args.recipe).stem
    dataset, checks = checked(built.dataset, args, source_of(next(iter(sources))))
    return finish(dataset, built.report, args, settings, checks, None)  # the report names what each part was read at


def _mixed_revision(args: Any, sources: Mapping[str, Any], paths: Mapping[str, list[str]]) -> str | None:
    """What each source is at now, as the report of a finished folder has it; only asked for where there is one."""
    from datasets_builders.building import source_of
    from datasets_builders.saving import load_report, revision_of_build

    if args.dry_run or args.overwrite or load_report(args.output_dir) is None:
        return None
    return revision_of_build({"parts": [_part_now(source_of(name), paths.get(name)) for name in sources]})


def _part_now(source: Any, paths: list[str] | None) -> dict[str, Any]:
    from datasets_builders.loading import content_hash, local_facts

    if paths is None:
        return {"name": source.name, "revision_resolved": newest_commit(source)}
    files = [Path(path) for path, *_ in local_facts(source, {"local_path": paths})]
    return {"name": source.name, "files_hash": content_hash(files)}


def _mixture(args: Any) -> tuple[dict[str, int | float], int | None]:
    """Rows or shares by source, and the total that the recipe's source prints."""
    from datasets_builders.mixing import RECIPES, recipe

    if args.recipe and args.parts:
        raise UsageError("give --recipe or NAME=COUNT ..., not both")
    if args.recipe in RECIPES:
        return dict(recipe(args.recipe)), PRINTED_TOTALS.get(args.recipe)
    if args.recipe:
        return _recipe_file(args.recipe), None
    if not args.parts:
        raise UsageError("name what to mix: NAME=COUNT ..., or --recipe olmo3-think")
    pairs = [_pair(text) for text in args.parts]
    _refuse_repeated([name for name, _ in pairs])
    return {name: _count(name, text) for name, text in pairs}, None


def _refuse_repeated(names: list[str]) -> None:
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise UsageError(f"{repeated!r} is named more than once; give each source one number")


def _recipe_file(name: str) -> dict[str, int | float]:
    from datasets_builders.mixing import recipe

    if not Path(name).is_file():
        recipe(name)  # says which recipe was probably meant
    found = read_yaml(Path(name))
    if not isinstance(found, dict) or not found:
        raise UserError(f"{name} must hold lines of `source: number of rows`")
    return {str(source): _count(str(source), str(count)) for source, count in found.items()}


def _pair(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not (name and mark and value):
        raise UsageError(f"{text!r} must be NAME=COUNT, as in gsm8k=1000")
    return name, value


def _count(name: str, text: str) -> int | float:
    try:
        return int(text) if re.fullmatch(r"[+-]?\d[\d_]*", text) else float(text)
    except ValueError:
        raise UsageError(f"{name}={text} must be a number of rows, or a share below 1") from None


def _local_paths(args: Any) -> dict[str, list[str]]:
    paths: dict[str, list[str]] = {}
    for name, path in map(_pair, args.local_paths):
        paths.setdefault(name, []).append(path)
    return paths


def _print_plan(rows: list[dict[str, Any]], printed: int | None) -> None:
    lines = [
        (row["source"], row["task"], "-" if row["count"] is None else f"{row['count']:,}", row["licence"], row["path"])
        for row in rows
    ]
    counts = [row["count"] for row in rows if row["count"] is not None]
    if counts:
        lines.append(("total", "", f"{sum(counts):,}", "", "" if printed is None else f"printed total {printed:,}"))
    say(table(("source", "task", "rows", "licence", "Hub id"), lines, numbers=(2,)))
