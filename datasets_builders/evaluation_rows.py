"""Rows of evaluation sets, told from rows to train on by what is stored with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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


_SPLIT_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_EVALUATION_SPLITS = frozenset(("test", "validation", "valid", "val", "dev", "eval", "evaluation"))


def is_evaluation_split(split: str) -> bool:
    """Whether the name of a split says that nothing is trained on it: rows of any other one may be trained on.

    Example:

    ```python
    >>> [is_evaluation_split(name) for name in ("test", "validation_2", "train", "Train", "default", "train_test")]
    [True, True, False, False, False, False]

    ```
    """
    words = {word.lower() for word in _SPLIT_WORD.findall(split)}
    return bool(words & _EVALUATION_SPLITS) and "train" not in words


def evaluation_source(batches: Iterable[Any]) -> str | None:
    """The evaluation set that a row is of, `None` where there is no such row.

    Args:
        batches (`Iterable[pyarrow.Table | pyarrow.RecordBatch]`): rows, of which the columns `source` and `source_id`
            are read, and those in `extra_info`, where `to_verl` has them; rows without them are not told.
    """
    for batch in batches:
        found = next((source for source, source_id in _origins(batch) if is_evaluation_row(source, source_id)), None)
        if found is not None:
            return str(found)
    return None


_ORIGIN = ("source", "source_id")
_NESTED = "extra_info"


def _origins(batch: Any) -> Iterator[tuple[object, object]]:
    """Source and id of each row, as far as it states both."""
    import pyarrow as pa

    names = batch.schema.names
    if {*_ORIGIN} <= {*names}:
        yield from zip(*(batch.column(name).to_pylist() for name in _ORIGIN), strict=True)
    if _NESTED in names:
        kind = batch.schema.field(_NESTED).type
        if pa.types.is_struct(kind) and all(kind.get_field_index(name) >= 0 for name in _ORIGIN):
            import pyarrow.compute as pc

            column = batch.column(_NESTED)
            yield from zip(*(pc.struct_field(column, name).to_pylist() for name in _ORIGIN), strict=True)


def evaluation_set_of(dataset: Any) -> str | None:
    """What a message calls the evaluation set that rows of a table are of, `None` for rows to train on."""
    columns = [name for name in (*_ORIGIN, _NESTED) if name in dataset.column_names]
    name = evaluation_source(dataset.select_columns(columns).with_format("arrow").iter(10_000)) if columns else None
    if name is not None:
        return repr(name)
    return "build_eval" if has_mark(dataset) else None


def has_mark(dataset: Any) -> bool:
    """Whether a data set comes from `build_eval` and was not stored since."""
    return bool(dataset.info.description == EVALUATION_MARK)
