"""`trl-ext data check` and `decontaminate`, and what `build` shares with them: evaluation sets and checks of golds."""

from __future__ import annotations

import difflib
from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trl_ext.errors import UserError
from trl_ext.scripts._data_arguments import source_options
from trl_ext.scripts._data_text import say, table
from trl_ext.scripts._training import load_data, pick_split

PROMPT_COLUMNS = ("prompt", "problem", "question", "text")
_ROW = "row"


def evaluation_sets(names: Sequence[str] | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Evaluation sets to compare with, and why others are missing.

    Args:
        names (`Sequence[str]`, *optional*): `NAME` or `NAME=PATH`; `None` is every set that can be loaded.

    Returns:
        `tuple`: rows or texts by name, and for `None` the sets that could not be loaded, by name with the reason.

    Raises:
        UserError: For a set that was named and cannot be loaded.
    """
    from datasets_builders.registry import EVALUATION_SETS

    found: dict[str, Any] = {}
    missing: dict[str, str] = {}
    if names is not None:
        for word in names:
            name, _, path = word.partition("=")
            found[name] = _evaluation_set(name, path or None)
        return found, missing
    from datasets_builders.connection import offline_where_unreachable

    with offline_where_unreachable():
        for name in EVALUATION_SETS:
            try:
                found[name] = _evaluation_set(name, None)
            except ValueError as error:
                missing[name] = str(error)
    return found, missing


def _evaluation_set(name: str, path: str | None) -> Any:
    from datasets_builders.building import build_eval
    from datasets_builders.registry import EVALUATION_SETS

    if name in EVALUATION_SETS:
        return build_eval(name, local_path=path, instruction="none")
    close = difflib.get_close_matches(name.lower().replace("-", "_"), EVALUATION_SETS, n=1, cutoff=0.8)
    if close:
        raise UserError(f"unknown evaluation set {name!r}; did you mean {close[0]!r}?")
    if path is None:
        raise UserError(f"unknown evaluation set {name!r}; the known ones are {', '.join(EVALUATION_SETS)}")
    return _own_prompts(path)


def _own_prompts(path: str) -> Any:
    """Prompts of a file of one's own, from the first column that may hold them."""
    rows = table_of(path)
    column = _prompt_column(rows, path)
    _refuse_unreadable(rows, column, path)
    return rows if column == "prompt" else [str(text) for text in rows[column]]


def _prompt_column(rows: Any, path: str) -> str:
    """The column of the prompts, under one of its usual names."""
    for name in PROMPT_COLUMNS:
        if name in rows.column_names:
            return name
    raise UserError(
        f"{path} has none of the columns {', '.join(PROMPT_COLUMNS)}, but {', '.join(rows.column_names)}; rename that "
        "of the prompts"
    )


def _refuse_unreadable(rows: Any, name: str, path: str) -> None:
    """Refuse rows without a prompt, which can be compared with nothing."""
    for number, prompt in enumerate(_column(rows, name)):
        turns = prompt if isinstance(prompt, list) else [{"content": prompt}]
        if not turns or not all(isinstance(turn, Mapping) and isinstance(turn.get("content"), str) for turn in turns):
            raise UserError(
                f"row {number} of {path} has no text in its column {name} ({_brief(prompt)}); correct or remove it"
            )


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def table_of(path: str) -> Any:
    """The rows of a built folder, or of a file or folder that `datasets` reads.

    Raises:
        UserError: For one that is not there or cannot be read.
    """
    from datasets_builders.saving import load_report, load_saved

    if Path(path).is_dir() and load_report(path) is not None:
        return load_saved(path)
    where = SimpleNamespace(
        dataset_name=path, dataset_config=None, dataset_train_split="train", dataset_streaming=False
    )
    if not Path(path).exists():
        raise UserError(f"there is no file or folder {path}")
    return pick_split(load_data(where), "train")


def decontaminated(dataset: Any, args: Any, *, default_all: bool = True) -> tuple[Any, MutableMapping[str, Any]]:
    """The rows that hold no evaluation prompt, and the facts for the report; `{}` where nothing is compared."""
    from datasets_builders.contamination import decontaminate as without_contaminated

    names = args.against
    if names is not None and [name.lower() for name in names] == ["none"]:
        return dataset, {}
    if names is None and not default_all:
        return dataset, {}
    sets, missing = evaluation_sets(names or None)
    settings = {"mode": args.mode, "n": args.n, "coverage": args.coverage}
    if missing:
        say(
            f"warning: not compared with {', '.join(missing)}, which cannot be loaded here; give files with "
            "--decontaminate NAME=PATH ..., or turn it off with --decontaminate none",
            error=True,
        )
    if not sets:
        return dataset, {**settings, "by_set": {}, "unavailable": missing}
    dataset, counts = without_contaminated(dataset, sets, **settings)
    # the counts of a stream are filled while it is read, and set to zero when it is read again
    return dataset, ChainMap(counts, {**settings, "unavailable": missing})


def gold_facts(reports: Mapping[str, Any]) -> dict[str, Any]:
    """What the report and the card keep of a self-check; a gold that no completion can hold counts as a bad one."""
    by_task = {}
    for task, report in reports.items():
        failed = len(report.failures)
        rate = (report.total - failed - report.unchecked) / report.total
        by_task[task] = {"rate": rate, "total": report.total, "failed": failed, "unchecked": report.unchecked}
    return {"by_task": by_task}


def check(args: Any) -> int:
    """`trl-ext data check`: the form of all rows, double ids, golds, and prompts that evaluation sets share.

    Returns:
        0, or 1 when something is wrong.
    """
    from datasets_builders.schema import COLUMNS

    refuse_missing(args.source)
    dataset = _rows_to_check(args)
    problems = _row_problems(dataset, args.rows)
    lines = [("rows", f"{len(dataset):,}", "")]
    lines += [(words, f"{count:,}", "wrong" if count else "ok") for words, count in problems.items()]
    wrong = any(problems.values())
    if {*COLUMNS["rl"]} <= {*dataset.column_names} and not problems["rows that break the schema"]:
        golds, failed = _gold_lines(dataset, args)
        lines += golds
        wrong |= failed
    if args.against is not None:
        _, counts = decontaminated(dataset, args, default_all=False)
        for name, count in counts.get("by_set", {}).items():
            lines.append((f"prompts shared with {name}", f"{count:,}", "wrong" if count else "ok"))
            wrong |= count > 0
    else:
        lines.append(("prompts shared with evaluation sets", "-", "not compared; name some with --against"))
    say(table(("check", "count", ""), lines, numbers=(1,)))
    return int(wrong)


def _rows_to_check(args: Any) -> Any:
    if Path(args.source).exists():
        dataset = table_of(args.source)
    else:
        from datasets_builders.building import build_with_report

        options = source_options(args) | {"streaming": False, "allow_noncommercial": True}
        dataset = build_with_report(args.source, evaluation=is_evaluation(args), **options).dataset
    return dataset if args.max_rows is None else dataset.select(range(min(args.max_rows, len(dataset))))


def refuse_missing(name: str) -> None:
    """Refuse what looks like a file or folder and is not there."""
    if ("/" in name or Path(name).suffix) and not Path(name).exists():
        raise UserError(f"there is no file or folder {name}")


def is_evaluation(args: Any) -> bool:
    """Whether the name means an evaluation set: only there, or asked for."""
    from datasets_builders.registry import BUILDERS, EVALUATION_SETS

    return args.evaluation or (args.source not in BUILDERS and args.source in EVALUATION_SETS)


def _row_problems(dataset: Any, shown: int) -> dict[str, int]:
    """Rows that break the schema, and ids that are there twice; the first ones are printed."""
    from datasets_builders.schema import row_errors

    counts = {"rows that break the schema": 0, "ids that are there twice": 0}
    seen: set[tuple[Any, Any]] = set()
    for index, row in enumerate(dataset):
        errors = row_errors(row)
        if errors:
            counts["rows that break the schema"] += 1
            if counts["rows that break the schema"] <= shown:
                say(f"row {index}: {'; '.join(errors)}")
        name = (row.get("source"), row.get("source_id"))
        if name in seen and None not in name:
            counts["ids that are there twice"] += 1
            if counts["ids that are there twice"] <= shown:
                say(f"row {index}: {name[0]}/{name[1]} is there twice")
        seen.add(name)
    return counts


def _gold_lines(dataset: Any, args: Any) -> tuple[list[tuple[str, str, str]], bool]:
    from datasets_builders.gold_checks import verify_golds

    _, reports = verify_golds(dataset)
    lines, wrong = [], False
    for task, found in gold_facts(reports)["by_task"].items():
        for failure in reports[task].failures[: args.rows]:
            say(str(failure))
        is_low = found["rate"] < args.threshold
        wrong |= is_low
        verdict = f"{found['rate']:.2%} good, " + (f"below {args.threshold:.2%}" if is_low else "ok")
        lines.append((f"bad golds of {task}", f"{found['failed'] + found['unchecked']:,}", verdict))
    return lines, wrong


def decontaminate(args: Any) -> int:
    """`trl-ext data decontaminate`: write the rows of a data set that hold no evaluation prompt."""
    from datasets_builders.saving import load_report, save

    rows = table_of(args.source)
    column = _prompt_column(rows, args.source)
    _refuse_unreadable(rows, column, args.source)
    prompts = rows.select_columns([column])
    prompts = prompts.rename_columns(dict(zip(prompts.column_names, ["prompt"], strict=True)))
    left, counts = decontaminated(prompts.add_column(_ROW, range(len(rows))), args)
    if not counts:
        raise UserError("--against none compares with nothing; name evaluation sets, or leave the flag out")
    kept = rows.select(left[_ROW])
    lines = [("read", f"{len(rows):,}"), *((f"dropped for {n}", f"{c:,}") for n, c in counts["by_set"].items())]
    say(table(("step", "rows"), [*lines, ("kept", f"{len(kept):,}")], numbers=(1,)))
    if not args.output_dir:
        return 0
    before = load_report(args.source) or {"name": Path(args.source).stem, "licence": None}
    for name in ("format", "rows", "data_split", "columns", "files", "versions", "settings", "settings_hash"):
        before.pop(name, None)
    checks = {**before.get("checks", {}), "decontamination": dict(counts)}
    settings = {"source": str(args.source), "against": args.against, "mode": args.mode, "n": args.n}
    settings |= {"coverage": args.coverage, "rows": len(rows), "content": content_hash(prompts)}
    saved = save(kept, {**before, "checks": checks}, args.output_dir, settings=settings, overwrite=args.overwrite)
    say(f"{'written to' if saved.is_new else 'already there, unchanged:'} {args.output_dir}")
    return 0


def content_hash(rows: Any) -> str:
    """A hash of all prompts of a data set."""
    import hashlib

    digest = hashlib.sha256()
    for prompt in _column(rows, "prompt"):
        digest.update(repr(prompt).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _column(rows: Any, name: str) -> Iterator[Any]:
    for batch in rows.select_columns([name]).iter(batch_size=1000):
        yield from batch[name]
