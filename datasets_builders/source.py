"""What a builder knows of its source, and how one raw row becomes a row of the schema or a counted reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from datasets_builders.schema import Row

# Licences that forbid commercial use; such rows are refused unless asked for.
NONCOMMERCIAL = ("-nc", "noncommercial", "non-commercial")


class Drop(Exception):
    """A raw row that cannot become a row of the schema; `reason` is a short code that the report counts.

    Raised inside a conversion, and nowhere else.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Conversion:
    """`convert(row) -> row | None`: a pure function from a raw row to a row of the schema.

    Args:
        function (`Callable`): what a source's file decorates. It raises [`Drop`] for a row that is of no use. A field
            that is missing or of another type than documented counts as the reason `malformed`.
    """

    def __init__(self, function: Callable[[Mapping[str, Any]], Row]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __reduce__(self) -> tuple[Any, ...]:
        """By name: a worker process finds the conversion where its file defines it."""
        return _found, (self.__module__, self.__name__)

    def __call__(self, row: Mapping[str, Any]) -> Row | None:
        """The row of the schema, or `None` for a raw row that is of no use."""
        return self.explained(row)[0]

    def explained(self, row: Mapping[str, Any]) -> tuple[Row | None, str | None]:
        """The row and `None`, or `None` and the reason why there is no row."""
        try:
            return self.function(row), None
        except Drop as drop:
            return None, drop.reason
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError, OverflowError):
            # a raw row may hold anything: what its conversion cannot read is one more counted reason
            return None, "malformed"


def _found(module: str, name: str) -> Any:
    import importlib

    return getattr(importlib.import_module(module), name)


def conversion(function: Callable[[Mapping[str, Any]], Row]) -> Conversion:
    """Decorator of a source's `convert`; see [`Conversion`]."""
    return Conversion(function)


@dataclass(frozen=True)
class Source:
    """Facts of one source and its conversion.

    Args:
        name (`str`): key in `BUILDERS` or `EVALUATION_SETS`.
        convert (`Conversion`): from a raw row to a row of the schema.
        task (`str`): task of its rows; `"mixed"` where they differ.
        licence (`str`): licence of the data as its card states it (SPDX id in lower case), `"unknown"` for none.
        path (`str`, *optional*): Hub id; `None` for a procedural source.
        config (`str`, *optional*): configuration read by default.
        configs (`tuple[str, ...]`): configurations that are read one after another, where one is not enough.
        split (`str`): split of the Hub that is read by default.
        splits (`Mapping[str, tuple[str, ...]]`): splits that users may name, by the Hub splits that each is made of;
            empty for the Hub's own names. The first is the default where it is given.
        data_dir (`str`, *optional*): folder of the repository to read.
        folders (`tuple[str, ...]`): folders of the repository that users may name as `config`, each read through
            `data_dir`; all of them without a `config`.
        data_files (`str`, *optional*): file of the repository to read.
        revision (`str`, *optional*): commit, tag or branch that is read unless another is asked for.
        pin_at_first_read (`bool`): without a `revision`, the newest commit of the first build on a machine is that of
            the later ones, too (see `datasets_builders.first_read`); else each build reads the newest.
        columns (`tuple[str, ...]`): columns that the conversion needs, each checked before the first row is converted.
        optional_columns (`tuple[str, ...]`): columns that it reads where they are there.
        size (`int`, *optional*): rows of the default split as published.
        streaming (`bool`): read as a stream by default, because a download would be tens of GB.
        evaluation (`bool`): an evaluation set, refused by `build`.
        generate (`Callable`, *optional*): of a procedural source, the raw row of (index, seed), and of a `config` where
            the source has one.
        note (`str`): what a user should know before training on it, in a sentence.
        homepage (`str`): where its facts come from, if not the card.
    """

    name: str
    convert: Conversion
    task: str
    licence: str
    path: str | None = None
    config: str | None = None
    configs: tuple[str, ...] = ()
    split: str = "train"
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    data_dir: str | None = None
    folders: tuple[str, ...] = ()
    data_files: str | None = None
    revision: str | None = None
    pin_at_first_read: bool = False
    columns: tuple[str, ...] = ()
    optional_columns: tuple[str, ...] = ()
    size: int | None = None
    streaming: bool = False
    evaluation: bool = False
    generate: Callable[..., dict[str, Any]] | None = None
    note: str = ""
    homepage: str = ""

    def configured(self, config: str | None) -> Source:
        """A procedural source whose `generate` makes the rows of a configuration; any other source as it is.

        Raises:
            ValueError: For a configuration that a procedural source does not have.
        """
        if self.generate is None or config is None:
            return self
        if self.config is None:
            raise ValueError(f"config={config!r} does not go with {self.name!r}, which has none; leave it out")
        generate = partial(self.generate, config=config)
        generate(0, 0)  # refuses a name that is none, before any row is made
        return replace(self, generate=generate, config=config)

    @property
    def is_noncommercial(self) -> bool:
        """Whether the licence forbids commercial use."""
        return any(mark in self.licence.lower() for mark in NONCOMMERCIAL)


def converted(source: Source, rows: Iterable[Mapping[str, Any]]) -> tuple[list[Row], dict[str, int]]:
    """Rows of the schema of raw rows, and how many were dropped for each reason; for tests and small data."""
    kept: list[Row] = []
    dropped: dict[str, int] = {}
    for raw in rows:
        row, reason = source.convert.explained(raw)
        if row is not None:
            kept.append(row)
        else:
            dropped[str(reason)] = dropped.get(str(reason), 0) + 1
    return kept, dropped
