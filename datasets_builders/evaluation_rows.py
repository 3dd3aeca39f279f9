"""Rows of evaluation sets, told from rows to train on by what is stored with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datasets_builders.registry import BUILDERS, EVALUATION_SETS

# What `source_id` begins with in rows of an evaluation set that has its name in common with a training source.
EVALUATION_ID = "test-"
# In the `info` of what `build_eval` returns, where it outlives `select`, `map` and `filter` but not a file: it tells
# rows of evaluation sets that are not in the registry.
EVALUATION_MARK = "evaluation set"


def is_evaluation_row(source: object, source_id: object) -> bool:
    """Whether a row is of an evaluation set, by its columns `source` and `source_id`.

    Args:
        source (`str`): name of the builder.
        source_id (`str`): id in the source.

    Example:

    ```python
    >>> is_evaluation_row("math_500", "0"), is_evaluation_row("gsm8k", "0"), is_evaluation_row("gsm8k", "test-0")
    (True, False, True)

    ```
    """
    if source not in EVALUATION_SETS:
        return False
    return source not in BUILDERS or str(source_id).startswith(EVALUATION_ID)


def evaluation_source(batches: Iterable[Any]) -> str | None:
    """The evaluation set that a row is of, `None` where there is no such row.

    Args:
        batches (`Iterable[pyarrow.Table | pyarrow.RecordBatch]`): rows, of which the columns `source` and `source_id`
            are read; rows without them are not told.
    """
    for batch in batches:
        if {"source", "source_id"} <= set(batch.schema.names):
            pairs = zip(batch.column("source").to_pylist(), batch.column("source_id").to_pylist(), strict=True)
            found = next((source for source, source_id in pairs if is_evaluation_row(source, source_id)), None)
            if found is not None:
                return str(found)
    return None


def evaluation_set_of(dataset: Any) -> str | None:
    """What a message calls the evaluation set that rows of a table are of, `None` for rows to train on."""
    columns = [name for name in ("source", "source_id") if name in dataset.column_names]
    name = evaluation_source(dataset.select_columns(columns).with_format("arrow").iter(10_000)) if columns else None
    if name is not None:
        return repr(name)
    return "build_eval" if has_mark(dataset) else None


def has_mark(dataset: Any) -> bool:
    """Whether a data set comes from `build_eval` and was not stored since."""
    return bool(dataset.info.description == EVALUATION_MARK)
