"""Several sources in one data set, by number of rows or by share, and the mixtures that others have published."""

from __future__ import annotations

import inspect
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from datasets_builders._text import hint
from datasets_builders.building import Built, build_with_report, source_of
from datasets_builders.converting import code_version, source_kind
from datasets_builders.evaluation_rows import evaluation_set_of
from datasets_builders.local_files import LocalPath
from datasets_builders.report import BuildReport, MixReport
from datasets_builders.schema import COLUMNS, Row, features
from datasets_builders.source import Source

if TYPE_CHECKING:
    from datasets import Dataset

# Prompts by source in the reinforcement learning of Olmo 3 7B.
_RECIPES = {
    "olmo3-think": {
        "if_rlvr": 30_186,
        "open_reasoner_zero": 3_000,
        "dapo_math": 2_584,
        "acereason_math": 6_602,
        "klear_math": 3_000,
        "omega": 15_000,
        "acecode": 9_767,
        "klear_code": 8_040,
        "nemotron_code": 2_303,
        "synthetic_2": 3_000,
        "tulu_3": 7_129,
        "wildchat": 7_129,
        "multi_subject": 7_129,
    },
    "olmo3-instruct": {
        "if_rlvr": 38_000,
        "open_reasoner_zero": 14_000,
        "dapo_math": 7_000,
        "polaris": 14_000,
        "klear_math": 9_000,
        "omega": 20_000,
        "acecode": 20_000,
        "tulu_3": 18_955,
        "wildchat": 18_761,
        "multi_subject": 12_234,
    },
}
RECIPES = tuple(_RECIPES)
# Arguments of `build` that a mixture has in another form.
_NOT_OPTIONS = {
    "max_samples": "give the number of rows with the name of the source",
    "local_path": "give the files by name of the source in local_paths=",
    "streaming": "large sources are streamed anyway, and the result is a Dataset",
}

# What a stream that was written to the cache counted, in a file beside its rows, and until then here by source.
_COUNTS_FILE = "counts.json"
_COUNTS = ("loaded", "dropped", "duplicates", "disagreeing", "sampled", "not_sampled", "kept", "complete", "warnings")
_READ: dict[str, BuildReport] = {}

Weight = int | float
Part = Any  # a weight, or a pair of a `Dataset` and a weight


class Mixed(NamedTuple):
    """A mixture and its report."""

    dataset: Any
    report: MixReport


def recipe(name: str, *, kind: str | None = None) -> dict[str, int]:
    """Rows by source of a published mixture, for [`mix`].

    Args:
        name (`str`): `"olmo3-think"` (104,869 rows) or `"olmo3-instruct"` (171,950 rows), the prompts used in the
            reinforcement learning of the Think and the Instruct model of Olmo 3 7B. Both totals are the sums of their
            columns.
        kind (`str`, *optional*): only the sources with rows of this kind. `"rl"` leaves out `nemotron_code`, whose
            public rows have no tests and are for supervised training: 102,566 rows of the Think mixture are left.

    Returns:
        `dict[str, int]`: a new dict.

    Raises:
        ValueError: For an unknown name or kind.

    Source: Olmo 3 (Ai2, 2025), the table of the prompts used in reinforcement learning. Ai2 filtered by pass rate and
        rewrote part of the prompts, for code with new tests; here the rows are drawn from the sources as they are.

    Example:

    ```python
    >>> sum(recipe("olmo3-think").values()), sum(recipe("olmo3-instruct").values())
    (104869, 171950)

    ```
    """
    if name not in _RECIPES:
        raise ValueError(f"recipe {name!r} is unknown{hint(name, _RECIPES)}")
    if kind is not None and kind not in COLUMNS:
        raise ValueError(f"kind={kind!r} is none of {', '.join(COLUMNS)}")
    return {source: count for source, count in _RECIPES[name].items() if kind in (None, source_kind(source_of(source)))}


def plan(sources: Mapping[str, Any], *, total: int | None = None) -> list[dict[str, Any]]:
    """What [`mix`] would read, without reading it: one dict a source, for a table.

    Args:
        sources (`Mapping[str, int | float | tuple]`): as for [`mix`].
        total (`int`, *optional*): as for [`mix`].

    Returns:
        `list[dict]`: `source`, `path` (Hub id), `count` (`None` for a share without `total`), `share`, `licence`,
        `task`, `kind`, `size` (rows as published), `streaming`, `note`; facts are `None` for a data set of your own.

    Raises:
        ValueError: As [`mix`] does for names and numbers.
    """
    weights = {name: _weight(name, part) for name, part in sources.items()}
    counts = _counts(weights, total)
    every = sum(weights.values())
    rows = []
    for name, part in sources.items():
        row: dict[str, Any] = {
            "source": name,
            "count": counts[name] if counts else None,
            "share": weights[name] / every,
        }
        source = None if _dataset(part) is not None else source_of(name)
        facts = ("path", "licence", "task", "size", "streaming", "note")
        rows.append(
            row
            | {fact: getattr(source, fact, None) for fact in facts}
            | {"kind": _kind_of_columns(name, _dataset(part)) if source is None else source_kind(source)}
        )
    return rows


def mix(
    sources: Mapping[str, Any],
    *,
    seed: int = 42,
    total: int | None = None,
    local_paths: Mapping[str, LocalPath] | None = None,
    allow_fewer: bool = False,
    repeat: bool = False,
    **options: Any,
) -> Dataset:
    """Rows of several sources, shuffled: `n_i` rows of source i, or `share_i * total`.

    Each source is built, drawn from with `seed`, and the rows of all are shuffled with `seed`; a source's rows do not
    depend on the other sources. Problems that two sources share stay twice: see `deduplicate`.

    Args:
        sources (`Mapping[str, int | float | tuple]`): by the name of the source either numbers of rows, or shares in
            (0, 1] that sum to 1. A pair `(dataset, number or share)` takes rows of a data set that is built already,
            under a name of your choice.
        seed (`int`): of the draw from each source and of the shuffle.
        total (`int`, *optional*): rows of the mixture, for shares; by default the most that all sources can serve.
            Remainders of the division go to the largest fractions.
        local_paths (`Mapping[str, str]`, *optional*): `local_path` of `build` by name.
        allow_fewer (`bool`): take what there is of a source that has fewer rows than asked for.
        repeat (`bool`): repeat the rows of such a source instead.
        options (`Any`): further arguments of `build`, the same for all sources: `instruction`, `num_proc`, ...

    Returns:
        `Dataset`: rows of one kind, with the columns of `COLUMNS`.

    Raises:
        ValueError: For unknown names, numbers and shares together, shares that do not sum to 1, sources of different
            kinds of rows, data sets with other columns, and a source with fewer rows than asked for.

    Example:

    ```python
    from datasets_builders import mix

    dataset = mix({"gsm8k": 2000, "hendrycks_math": 3000, "countdown": 1000}, seed=0)
    ```
    """
    options |= {"seed": seed, "total": total, "local_paths": local_paths, "allow_fewer": allow_fewer, "repeat": repeat}
    return mix_with_report(sources, **options).dataset


def mix_with_report(
    sources: Mapping[str, Any],
    *,
    seed: int = 42,
    total: int | None = None,
    local_paths: Mapping[str, LocalPath] | None = None,
    allow_fewer: bool = False,
    repeat: bool = False,
    **options: Any,
) -> Mixed:
    """What [`mix`] returns, and a [`MixReport`] with the report of each source.

    Returns:
        `Mixed`: `dataset` and `report`.
    """
    paths = dict(local_paths or {})
    _check(sources, paths, options, allow_fewer=allow_fewer, repeat=repeat)
    weights = {name: _weight(name, part) for name, part in sources.items()}
    counts = _counts(weights, total)
    _check_kinds(sources)
    options = {"seed": seed, **options}
    parts = {name: _part(name, part, counts, paths, options) for name, part in sources.items()}
    if counts is None:
        most = min(math.floor(len(part.dataset) / weights[name] + 1e-9) for name, part in parts.items())
        counts = _counts(weights, most) or {}
        # not all rows were needed: draw now as `build` draws where it knows the number
        parts = {name: _drawn(part, counts[name], seed) for name, part in parts.items()}
    exact = {name: _exactly(name, part.dataset, counts[name], allow_fewer, repeat) for name, part in parts.items()}
    dataset = _joined(exact, seed)
    report = MixReport(seed=seed, kept=len(dataset), weights=weights, parts=[part.report for part in parts.values()])
    for name, part in parts.items():
        if len(exact[name]) > len(part.dataset):
            report.warnings.append(f"{name}: {len(part.dataset)} rows were repeated to {len(exact[name])}")
        report.warnings += part.report.warnings
    return Mixed(dataset, report)


def _check(
    sources: Mapping[str, Any], paths: Mapping[str, Any], options: Mapping[str, Any], *, allow_fewer: bool, repeat: bool
) -> None:
    if not isinstance(sources, Mapping) or not sources:
        raise ValueError(f"sources={sources!r} must map names of sources to numbers of rows or to shares")
    for name in paths:
        if name not in sources:
            raise ValueError(f"local_paths names {name!r}, which is not in the mixture{hint(name, sources)}")
    if allow_fewer and repeat:
        raise ValueError("allow_fewer=True and repeat=True exclude each other; choose one")
    for name, remedy in _NOT_OPTIONS.items():
        if name in options:
            raise ValueError(f"{name}= is no argument of mix; {remedy}")
    known = [name for name in inspect.signature(build_with_report).parameters if name not in ("name", "evaluation")]
    for name in options:
        if name not in known:
            raise ValueError(f"{name}= is no argument of mix{hint(name, known)}")


def _dataset(part: Part) -> Any:
    return part[0] if isinstance(part, tuple) and len(part) == 2 else None


def _weight(name: str, part: Part) -> Weight:
    value = part[1] if isinstance(part, tuple) and len(part) == 2 else part
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or (isinstance(value, int) and value < 1) or (isinstance(value, float) and not 0 < value <= 1):
        raise ValueError(f"{name}: {value!r} must be a number of rows of at least 1, or a share in (0, 1]")
    if isinstance(part, tuple):
        _kind_of_columns(name, part[0])
        _refuse_evaluation(name, part[0])
    weight: Weight = value
    return weight


def _refuse_evaluation(name: str, dataset: Any) -> None:
    """Refuse rows of an evaluation set: by their columns, and by the mark of a table of `build_eval`."""
    whose = evaluation_set_of(dataset)
    if whose is not None:
        raise ValueError(
            f"{name}: its rows are of {whose}, an evaluation set, which never becomes training data; leave them out"
        )


def _counts(weights: Mapping[str, Weight], total: int | None) -> dict[str, int] | None:
    """Rows by name; `None` for shares of a total that is still to be found."""
    numbers = {name for name, weight in weights.items() if isinstance(weight, int)}
    if numbers and len(numbers) < len(weights):
        share = next(name for name in weights if name not in numbers)
        raise ValueError(
            f"{min(numbers)!r} has a number of rows and {share!r} a share; give numbers or shares, where 1.0 is a share"
        )
    if numbers:
        if total is not None:
            raise ValueError(f"total={total!r} goes with shares; numbers of rows make their own total")
        return {name: int(weight) for name, weight in weights.items()}
    every = math.fsum(weights.values())
    if abs(every - 1) > 1e-6:
        raise ValueError(f"the shares sum to {every:.6g} and must sum to 1")
    if total is None:
        return None
    if isinstance(total, bool) or not isinstance(total, int) or total < 1:
        raise ValueError(f"total={total!r} must be a whole number of at least 1")
    exact = {name: weight / every * total for name, weight in weights.items()}
    counts = {name: math.floor(rows + 1e-9) for name, rows in exact.items()}
    left = sorted(counts, key=lambda name: counts[name] - exact[name])[: total - sum(counts.values())]
    counts = {name: count + (name in left) for name, count in counts.items()}
    none = next((name for name, count in counts.items() if not count), None)
    if none is not None:
        raise ValueError(f"total={total} leaves no row for {none!r} with a share of {weights[none]}; raise either")
    return counts


def _check_kinds(sources: Mapping[str, Any]) -> None:
    kinds: dict[str, list[str]] = {}
    for name, part in sources.items():
        dataset = _dataset(part)
        kind = source_kind(source_of(name)) if dataset is None else _kind_of_columns(name, dataset)
        kinds.setdefault(kind, []).append(name)
    if len(kinds) > 1:
        shown = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())
        raise ValueError(f"a mixture holds rows of one kind, and these have several: {shown}; make a mixture of each")


def _kind_of_columns(name: str, dataset: Any) -> str:
    columns = getattr(dataset, "column_names", None)
    if not isinstance(columns, Sequence) or not hasattr(dataset, "select"):
        raise ValueError(f"{name}: a pair needs a Dataset, not {type(dataset).__name__}; build it without streaming")
    for kind, names in COLUMNS.items():
        if set(names) == set(columns):
            return kind
    raise ValueError(
        f"{name}: its columns are {', '.join(columns)}, and a mixture needs those of a builder: "
        f"{', '.join(COLUMNS['rl'])}"
    )


def _part(
    name: str, part: Part, counts: Mapping[str, int] | None, paths: Mapping[str, Any], options: Mapping[str, Any]
) -> Built:
    """The rows of one source, as many as are asked for, or all where that is not known yet."""
    count = None if counts is None else counts[name]
    dataset = _dataset(part)
    if dataset is not None:
        report = BuildReport(name, "mixed", split="all", loaded=len(dataset), kept=len(dataset), complete=True)
        built = Built(dataset, report)
        return built if count is None else _drawn(built, count, int(options["seed"]))
    source = source_of(name)
    options = {**options, "local_path": paths.get(name)}
    if not source.streaming:
        return build_with_report(source, max_samples=count, **options)
    if count is None:
        raise ValueError(
            f"{name!r} is read as a stream, so that it is not known how many rows it has; give total= with the shares"
        )
    return _written(source, {**options, "max_samples": count, "streaming": True})


def _drawn(part: Built, count: int, seed: int) -> Built:
    number = min(count, len(part.dataset))
    report = part.report
    report.sampled, report.not_sampled, report.kept = number, report.kept - number, number
    return Built(part.dataset.select(random.Random(seed).sample(range(len(part.dataset)), number)), report)


def _written(source: Source, options: dict[str, Any]) -> Built:
    """The rows of a stream in the cache on disk: a source of code may have gigabytes of tests."""
    from datasets import Dataset
    from datasets.exceptions import DatasetGenerationError

    built = build_with_report(source, **options)
    # what a changed copy, another commit or another version of the code has different
    stamp = (built.report.files_hash, built.report.revision_resolved, code_version(source))
    try:
        dataset = Dataset.from_generator(
            _stream_rows,
            features=features(source_kind(source)),
            gen_kwargs={"source": source, "options": options, "stamp": stamp},
        )
    except DatasetGenerationError as error:
        if isinstance(error.__cause__, ValueError):
            raise error.__cause__ from None
        raise
    _take_counts(built.report, Path(dataset.cache_files[0]["filename"]).with_name(_COUNTS_FILE))
    built.report.warn(f"{source.name}: read as a stream until there were rows enough; later rows are not counted")
    return Built(dataset, built.report)


def _stream_rows(source: Source, options: dict[str, Any], stamp: Any) -> Iterator[Row]:
    """`stamp` is not read: with another one the cache has another entry."""
    built = build_with_report(source, **options)
    yield from built.dataset
    _READ[source.name] = built.report


def _take_counts(report: BuildReport, file: Path) -> None:
    """Counts of the pass that wrote the rows: of this process, or of the one that left them beside the rows."""
    read = _READ.pop(report.name, None)
    if read is not None:
        file.write_text(json.dumps({name: getattr(read, name) for name in _COUNTS}), encoding="utf-8")
    for name, value in json.loads(file.read_text(encoding="utf-8")).items():
        setattr(report, name, value)


def _exactly(name: str, dataset: Any, count: int, allow_fewer: bool, repeat: bool) -> Any:
    if len(dataset) >= count or allow_fewer:
        return dataset.select(range(min(count, len(dataset))))
    if not repeat:
        raise ValueError(
            f"{name!r} has {len(dataset)} rows and {count} were asked for; ask for fewer, or pass allow_fewer=True to "
            "take those or repeat=True to use rows more than once"
        )
    return dataset.select([index % len(dataset) for index in range(count)])


def _joined(parts: Mapping[str, Any], seed: int) -> Any:
    from datasets import concatenate_datasets

    kind = _kind_of_columns(*next(iter(parts.items())))
    types = features(kind)
    aligned = []
    for name, part in parts.items():
        part = part.select_columns(list(types))
        try:
            aligned.append(part if part.features == types else part.cast(types))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name}: its columns have other types than those of a builder ({str(error).splitlines()[0]})"
            ) from None
    return concatenate_datasets(aligned).shuffle(seed=seed)
