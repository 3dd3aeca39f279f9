"""From batches of raw rows to rows of the schema, in functions that a worker process can import."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from inspect import getsourcefile
from pathlib import Path
from typing import Any

from datasets_builders.instructions import instructed_prompt
from datasets_builders.loading import raw_rows_of
from datasets_builders.schema import COLUMNS, Row, kind_of, prompt_text, row_errors
from datasets_builders.source import Source

REASON = "reason"  # column of why there is no row, between conversion and selection


def source_kind(source: Source) -> str:
    """Kind of the rows of a source; a source of several tasks has rows for reinforcement learning."""
    return "rl" if source.task == "mixed" else kind_of(source.task)


def converted_rows(
    batch: Mapping[str, Sequence[Any]], source: Source, seed: int = 42
) -> Iterator[tuple[Row | None, str | None]]:
    """For each raw row of a batch its row and `None`, or `None` and the reason why there is none.

    Besides the reasons of the conversion there are `not_unicode`, a row with half a surrogate pair, which no file of
    text can hold, `invalid_row`, one that breaks the schema, with its first error behind a colon, and
    `evaluation_set`, a problem of MATH-500 in a training source.
    """
    for raw in raw_rows_of(batch, source, seed):
        row, reason = source.convert.explained(raw)
        if row is not None:
            reason = row_fault(row, source_kind(source))
            if reason is None and not source.evaluation and is_of_math_500(row):
                reason = "evaluation_set"
        yield (row, None) if reason is None else (None, reason)


def row_fault(row: Row, kind: str) -> str | None:
    """Why a converted row cannot be kept, `None` where it can."""
    errors = row_errors(row)
    if errors:
        return f"invalid_row: {errors[0]}"
    if kind_of(row["task"]) != kind:
        return f"invalid_row: it is of task {row['task']!r} in a source of {kind} rows"
    try:
        "".join(texts(row)).encode()
    except UnicodeEncodeError:
        return "not_unicode"
    return None


def is_of_math_500(row: Row) -> bool:
    """Whether a turn of the system or the user holds a problem of MATH-500 whole; many sources hold some."""
    from datasets_builders.sources.hendrycks_math import holds_math_500

    asked = [turn["content"] for turn in row["prompt"] if turn["role"] in ("system", "user")]
    return any(map(holds_math_500, dict.fromkeys([*asked, prompt_text(row)])))


def texts(row: Mapping[str, Any]) -> Iterator[str]:
    """All texts of a row."""
    for value in row.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            for turn in value:
                yield turn["content"]


def converted_batch(
    batch: Mapping[str, Sequence[Any]], *, source: Source, seed: int, version: str
) -> dict[str, list[Any]]:
    """What `Dataset.map` calls: the columns of the rows, nulls for dropped ones, and the reasons.

    `version` is not read: it makes the cache of `datasets` another one for another version of the code.
    """
    columns = COLUMNS[source_kind(source)]
    found: dict[str, list[Any]] = {name: [] for name in (*columns, REASON)}
    for row, reason in converted_rows(batch, source, seed):
        for name in columns:
            found[name].append(None if row is None else row[name])
        found[REASON].append(reason)
    return found


def instructed_batch(
    batch: Mapping[str, Sequence[Any]], *, instruction: str, system_prompt: str | None, version: str
) -> dict[str, list[Any]]:
    """What `Dataset.map` calls: the prompts with their instructions."""
    solutions = batch.get("solution", [""] * len(batch["prompt"]))
    return {
        "prompt": [
            instructed_prompt(prompt, task, solution, instruction=instruction, system_prompt=system_prompt)
            for prompt, task, solution in zip(batch["prompt"], batch["task"], solutions, strict=True)
        ]
    }


def code_version(source: Source) -> str:
    """A hash of the code that makes rows of a source: this package, `reward_funcs`, and the conversion's own file."""
    file = getsourcefile(source.convert.function)
    own = "" if file is None else sha256(Path(file).read_bytes()).hexdigest()
    return sha256(f"{_package_version()}{own}".encode()).hexdigest()[:16]


@cache
def _package_version() -> str:
    import reward_funcs

    digest = sha256()
    for folder in (Path(__file__).parent, Path(reward_funcs.__file__).parent):
        for file in sorted(folder.rglob("*")):
            if file.suffix in (".py", ".txt", ".json"):
                digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return digest.hexdigest()
