"""`build`: a source's rows in the one schema, ready for a trainer, and the report of how they came about."""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from datasets_builders.converting import REASON, code_version, converted_batch, instructed_batch, source_kind
from datasets_builders.evaluation_rows import EVALUATION_MARK
from datasets_builders.instructions import check_preset
from datasets_builders.loading import GENERATED_ROWS, RawRows, Wanted, most_tries, raw_rows
from datasets_builders.local_files import LocalPath
from datasets_builders.registry import evaluation_source, training_source
from datasets_builders.report import BuildReport
from datasets_builders.schema import features
from datasets_builders.source import Source

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

BATCH = 1000
LARGE_ROWS_BATCH = 50  # of sources that are streamed by default: their rows may be as large as a megabyte


@dataclass(frozen=True)
class Built:
    """A data set and the report of its build.

    Args:
        dataset (`Dataset` or `IterableDataset`): the rows.
        report (`BuildReport`): counts and facts; those of a stream grow while it is read.
    """

    dataset: Any
    report: BuildReport


def build(
    name: str | Source,
    *,
    split: str | None = None,
    max_samples: int | None = None,
    streaming: bool | None = None,
    instruction: str | None = "boxed",
    system_prompt: str | None = None,
    revision: str | None = None,
    local_path: LocalPath | None = None,
    seed: int = 42,
    config: str | None = None,
    num_proc: int | None = None,
    deduplicate: bool = True,
    allow_noncommercial: bool = False,
) -> Dataset | IterableDataset:
    r"""Training rows of a source: `prompt`, `solution`, `task`, `source`, `source_id`, `extra`.

    The raw rows are read, converted, checked against the schema, freed of duplicate prompts, drawn from and given
    their instruction. Rows that cannot be converted are dropped and counted; [`build_with_report`] returns the counts.
    The same arguments give the same rows in the same order, on any number of processes. What was computed once is
    taken from the cache of `datasets` the next time; a build that was killed leaves nothing there that looks whole.

    Args:
        name (`str` or `Source`): a name in `BUILDERS`, or a source of your own.
        split (`str`, *optional*): a split of the source; by default its training split.
        max_samples (`int`, *optional*): draw so many rows with `seed`, in drawn order; `None` takes all in their order.
            A source with fewer gives what it has, and the report a warning. Generated rows are taken from the first
            until there are so many different ones; `None` takes the different ones among the first 10,000.
        streaming (`bool`, *optional*): return an `IterableDataset` that holds few rows at a time; by default for
            sources of tens of GB. Of duplicates the first stays, as the rows to come are not known, and a sample is
            drawn through a buffer of 10,000 rows.
        instruction (`str`, *optional*): `"boxed"`, `"think_answer"` or `"none"`: what the prompt asks the answer to
            look like, by task; see [`instruction_text`].
        system_prompt (`str`, *optional*): first turn of every prompt, in front of a system turn that the source has.
        revision (`str`, *optional*): commit, tag or branch of the Hub; by default the source's own. The report names
            the commit that was read.
        local_path (`str`, `PathLike` or a list, *optional*): JSON, JSON Lines (also gzipped) or parquet files, or
            folders of them, in the Hub's schema, in the place of the Hub.
        seed (`int`): of the draw, and of generated rows.
        config (`str`, *optional*): configuration of the Hub; by default the source's own, which may be several. With
            `local_path` a folder in it.
        num_proc (`int`, *optional*): processes that convert; a stream has one.
        deduplicate (`bool`): remove duplicate prompts, and all rows of a prompt whose solutions differ.
        allow_noncommercial (`bool`): build sources whose licence forbids commercial use.

    Returns:
        `Dataset` or `IterableDataset`: rows with the columns of `COLUMNS`: of reinforcement learning, of supervised
        rows or of preferences, by source.

    Raises:
        ValueError: For an evaluation set, an unknown name, split or preset, a licence that was not allowed, rows that
            cannot be read or lack a column, and a result without rows, each with its remedy.

    Example:

    ```python
    from datasets_builders import build

    dataset = build("gsm8k", max_samples=1000)
    trainer = GRPOTrainer(model, reward_funcs=accuracy_reward, train_dataset=dataset)
    ```
    """
    options = {key: value for key, value in locals().items() if key != "name"}
    return build_with_report(name, **options).dataset


def build_eval(
    name: str | Source,
    *,
    split: str | None = None,
    max_samples: int | None = None,
    streaming: bool | None = None,
    instruction: str | None = "boxed",
    system_prompt: str | None = None,
    revision: str | None = None,
    local_path: LocalPath | None = None,
    seed: int = 42,
    config: str | None = None,
    num_proc: int | None = None,
    allow_noncommercial: bool = False,
) -> Dataset | IterableDataset:
    """Rows of an evaluation set, in the order of the set and with its duplicates; `max_samples` takes the first rows.

    The arguments, and what is raised, are those of [`build`].

    Args:
        name (`str` or `Source`): a name in `EVALUATION_SETS`.

    Returns:
        `Dataset` or `IterableDataset`: rows as of [`build`].
    """
    options = {key: value for key, value in locals().items() if key != "name"}
    return build_with_report(name, evaluation=True, **options).dataset


def build_with_report(
    name: str | Source,
    *,
    evaluation: bool = False,
    split: str | None = None,
    max_samples: int | None = None,
    streaming: bool | None = None,
    instruction: str | None = "boxed",
    system_prompt: str | None = None,
    revision: str | None = None,
    local_path: LocalPath | None = None,
    seed: int = 42,
    config: str | None = None,
    num_proc: int | None = None,
    deduplicate: bool = True,
    allow_noncommercial: bool = False,
) -> Built:
    """What [`build`] returns, or [`build_eval`] with `evaluation=True`, together with its report.

    Returns:
        `Built`: `dataset` and `report`.
    """
    source = source_of(name, evaluation=evaluation)
    for argument, value in (("max_samples", max_samples), ("num_proc", num_proc)):
        _check_count(argument, value)
    if streaming not in (None, True, False):
        raise ValueError(f"streaming={streaming!r} must be True or False; leave it out for the source's own way")
    for argument, text in (("split", split), ("config", config), ("revision", revision)):
        if text is not None and not isinstance(text, str):
            raise ValueError(f"{argument}={text!r} must be a text; leave it out for that of the source")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ValueError(f"seed={seed!r} must be a whole number")
    if system_prompt is not None and (not isinstance(system_prompt, str) or not system_prompt.strip()):
        raise ValueError(f"system_prompt={system_prompt!r} must be a text; leave it out for none")
    source = source.configured(config)
    report = _report(source, split, config, revision or source.revision, max_samples, seed)
    report.instruction, report.system_prompt = check_preset(instruction), system_prompt
    _check_licence(source, report, allow_noncommercial)
    report.streaming = source.streaming if streaming is None else streaming
    wanted = Wanted(split, config, revision, local_path, report.streaming, max_samples, seed)
    is_read_on = source.generate is not None and report.streaming and max_samples is not None
    raw = raw_rows(source, replace(wanted, max_samples=most_tries(max_samples or 0)) if is_read_on else wanted)
    report.local_files, report.revision_resolved = raw.files, raw.revision
    report.files_hash = raw.files_hash
    if local_path is not None:
        report.revision, report.config = None, config
    draw = not evaluation and source.generate is None
    deduplicate = report.deduplicate = deduplicate and not evaluation
    if report.streaming:
        dataset = _streamed(source, raw, report, deduplicate, draw)
    else:
        dataset = _table(source, raw, report, deduplicate, draw, num_proc, wanted)
    if evaluation:
        dataset.info.description = EVALUATION_MARK
    return Built(dataset, report)


def source_of(name: str | Source, *, evaluation: bool = False) -> Source:
    """The source of a name, or the one given, if it is for training or for evaluation as asked.

    Raises:
        ValueError: For an unknown name, and for an evaluation set where a training source is needed or the reverse.
    """
    if not isinstance(name, Source):
        if not isinstance(name, str):
            raise ValueError(f"name={name!r} must be the name of a source, or a Source; `trl-ext data list` shows them")
        return evaluation_source(name) if evaluation else training_source(name)
    if name.evaluation and not evaluation:
        raise ValueError(f"{name.name!r} is an evaluation set and never becomes training data; use build_eval")
    if evaluation and not name.evaluation:
        raise ValueError(f"{name.name!r} is a training source, not an evaluation set; use build")
    return name


def _check_count(argument: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"{argument}={value!r} must be a whole number of at least 1; leave it out for the default")


def _report(
    source: Source, split: str | None, config: str | None, revision: str | None, max_samples: int | None, seed: int
) -> BuildReport:
    return BuildReport(
        name=source.name,
        task=source.task,
        path=source.path,
        config=config or source.config,
        split=split or next(iter(source.splits), source.split),
        revision=revision,
        licence=source.licence,
        max_samples=max_samples,
        seed=seed,
    )


def _check_licence(source: Source, report: BuildReport, allow_noncommercial: bool) -> None:
    from datasets_builders.checks import check_licence

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an unknown licence, which the report tells
        check_licence(source, allow_noncommercial)
        if allow_noncommercial:
            try:
                check_licence(source)
            except ValueError:
                report.warn(f"{source.name}: the licence {source.licence} forbids commercial use")
    if source.licence == "unknown":
        report.warn(f"{source.name}: no licence is stated; find out whether you may use and publish the rows")


def _streamed(source: Source, raw: RawRows, report: BuildReport, deduplicate: bool, draw: bool) -> Any:
    from datasets_builders.streaming import Stream, dataset_of

    stream = Stream(source, raw, report, deduplicate=deduplicate, draw=draw)
    return dataset_of(stream, features(source_kind(source)))


def _table(
    source: Source,
    raw: RawRows,
    report: BuildReport,
    deduplicate: bool,
    draw: bool,
    num_proc: int | None,
    wanted: Wanted,
) -> Any:
    dataset = _distinct(source, raw, report, deduplicate, num_proc)
    if source.generate is not None and report.max_samples is not None:
        dataset = _enough(dataset, source, report, deduplicate, num_proc, wanted)
    report.kept = len(dataset)
    report.refuse_empty()
    if report.max_samples is not None:
        dataset = _sampled(dataset, report, draw)
    report.kept, report.complete = len(dataset), True
    if report.instruction != "none" or report.system_prompt is not None:
        dataset = dataset.map(
            instructed_batch,
            batched=True,
            batch_size=_batch_size(source),
            features=features(source_kind(source)),
            num_proc=_processes(num_proc, dataset),
            fn_kwargs={
                "instruction": report.instruction,
                "system_prompt": report.system_prompt,
                "version": code_version(source),
            },
            desc=f"{source.name}: instructions",
        )
    return dataset


def _distinct(source: Source, raw: RawRows, report: BuildReport, deduplicate: bool, num_proc: int | None) -> Any:
    """The converted rows, without duplicates where that is asked for."""
    from datasets_builders.duplicates import deduplicate as without_duplicates

    dataset = _converted(source, raw, report, num_proc)
    if deduplicate and len(dataset):
        dataset, counts = without_duplicates(dataset)
        report.duplicates, report.disagreeing = counts["duplicate"], counts["disagreeing"]
    return dataset


def _enough(
    dataset: Any, source: Source, report: BuildReport, deduplicate: bool, num_proc: int | None, wanted: Wanted
) -> Any:
    """Generated rows of further indices, twice as many each time, until `max_samples` different ones are there.

    The first rows stay the same ones. A level that gives no new row among 10,000 and as many as before is exhausted.
    """
    asked = report.max_samples or 0
    number = asked
    while len(dataset) < asked and number < most_tries(asked):
        number, before = 2 * number, len(dataset)
        report.restart()
        raw = raw_rows(source, replace(wanted, max_samples=number))
        dataset = _distinct(source, raw, report, deduplicate, num_proc)
        if len(dataset) == before and number >= GENERATED_ROWS:
            break
    return dataset


def _converted(source: Source, raw: RawRows, report: BuildReport, num_proc: int | None) -> Any:
    """The converted rows, with those counted that were dropped."""
    from datasets import Features, Value

    types = Features({**features(source_kind(source)), REASON: Value("string")})
    dataset = raw.dataset.map(
        converted_batch,
        batched=True,
        batch_size=_batch_size(source),
        remove_columns=raw.dataset.column_names,
        features=types,
        num_proc=_processes(num_proc, raw.dataset),
        # only generated rows depend on the seed: for the others it would make the cache miss
        fn_kwargs={"source": source, "seed": report.seed if source.generate else 0, "version": code_version(source)},
        desc=f"{source.name}: conversion",
    )
    report.loaded = len(dataset)
    reasons = dataset.data.column(REASON)
    for count in reasons.value_counts().to_pylist():
        if count["values"] is not None:
            report.drop(count["values"], count["counts"])
    if reasons.null_count < len(dataset):
        dataset = dataset.select(_null_rows(reasons))
    return dataset.remove_columns(REASON)


def _null_rows(column: Any) -> Any:
    import numpy as np

    return np.flatnonzero(column.is_null().to_numpy())


def _batch_size(source: Source) -> int:
    return LARGE_ROWS_BATCH if source.streaming else BATCH


def _processes(num_proc: int | None, dataset: Any) -> int | None:
    """No more processes than rows, about which `datasets` warns."""
    return None if num_proc is None else min(num_proc, max(len(dataset), 1))


def _sampled(dataset: Any, report: BuildReport, draw: bool) -> Any:
    """The rows of `max_samples`: drawn ones in drawn order, or the first ones."""
    number = min(report.max_samples or 0, len(dataset))
    if number < (report.max_samples or 0):
        report.warn_of_few(number)
    report.sampled, report.not_sampled = number, len(dataset) - number
    chosen = random.Random(report.seed).sample(range(len(dataset)), number) if draw else range(number)
    return dataset.select(chosen)
