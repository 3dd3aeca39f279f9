"""Built data sets on disk: parquet files with a card and a report, all there or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from datasets_builders.card import dataset_card, parts_of
from datasets_builders.folders import (
    CARD,
    CONFIG,
    FORMAT,
    REPORT,
    explained,
    others,
    output_folder,
    partial_folder,
    recover,
    refuse_place,
    swap,
)
from datasets_builders.folders import load_report as load_report
from datasets_builders.local_files import file_hash as file_hash
from datasets_builders.shards import BATCH_ROWS, SHARD_BYTES, Content, write_rows
from datasets_builders.shards import SavingError as SavingError

_SPLIT = re.compile(r"\w+(\.\w+)*")  # as `datasets` reads it in the name of a file
# In the place of a commit: rows that are made, and those of which it is not known.
GENERATED, UNKNOWN = "generated", "?"
# Settings that say where to write and what to print, not which rows to build.
_NOT_CONTENT = ("num_proc", "output_dir", "overwrite", "repo_id", "public", "push_to_hub")


@dataclass(frozen=True)
class Saved:
    """A finished folder.

    Args:
        path (`Path`): the folder.
        report (`dict`): what `report.json` holds.
        is_new (`bool`): `False` for a folder that was there, from the same settings and source.
        replaced (`Path`, *optional*): where the former content went that no build had written.
        kept (`tuple[str, ...]`): names of the files that are there.
    """

    path: Path
    report: dict[str, Any]
    is_new: bool = True
    replaced: Path | None = None
    kept: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        """Rows of the data set."""
        return int(self.report["rows"])


def save(
    dataset: Any,
    report: Any,
    output_dir: str | os.PathLike[str],
    *,
    split: str = "train",
    settings: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    source_revision: str | None = None,
    card: str | None = None,
    licence: str | None = None,
    overwrite: bool = False,
    shard_bytes: int = SHARD_BYTES,
) -> Saved:
    """Write a data set as `data/<split>-*.parquet`, `README.md`, `report.json` and `config_resolved.yaml`.

    All of it is written into a hidden folder beside `output_dir`, which then gets its name in one step: a folder of
    that name is whole, and what an interrupted call leaves is cleared by the next one. `load_dataset(output_dir)` reads
    it, and so do the trainers' `--dataset_name`. The same rows give the same bytes.

    Args:
        dataset (`Dataset | IterableDataset`): rows of a builder. A stream is written batch by batch in bounded memory;
            after an interruption it starts anew. Its `state_dict` would save little: what it restores is a number of
            rows, and to get there the source is read and converted from its beginning all the same.
        report (`BuildReport | Mapping`): what the build counted; read after the last row, when a stream's is complete.
        output_dir (`str` or `PathLike`): the folder.
        split (`str`): name of the split.
        settings (`Mapping`, *optional*): what decides the rows, to tell one build from another; by default the
            settings that the report names.
        config (`Mapping`, *optional*): what `config_resolved.yaml` holds; by default `settings`.
        source_revision (`str`, *optional*): commit of the source, or [`file_hash`] of its local files; by default the
            commits that the report names.
        card (`str`, *optional*): text of `README.md`; by default [`dataset_card`].
        licence (`str`, *optional*): licence of the data set, for the card.
        overwrite (`bool`): replace what is there. What no build has written, be it beside its files, is kept in a
            folder of another name.
        shard_bytes (`int`): size from which another file is begun.

    Returns:
        [`Saved`]: the folder; `is_new=False` when a finished one from the same settings and source is there already.

    Raises:
        SavingError: For a folder with other content, a finished one from other settings or from another commit of the
            source or with other rows, one that another process is writing, a data set without rows, rows of an
            evaluation set in a split to train on, and a licence that is blank. To compare its rows with those of a
            finished folder, a stream is read up to its end or to more rows than are there, a batch at a time.
    """
    _check_arguments(dataset, report, split, licence)
    folder = output_folder(output_dir)
    facts = report_dict(report)
    wanted = content_settings(settings if settings is not None else _settings_of(facts))
    revision = source_revision or revision_of_build(facts)
    done = finished(folder, wanted, revision, overwrite=overwrite)
    if done is not None:
        _refuse_other_rows(dataset, done, output_dir)
        return done
    with explained(output_dir), partial_folder(folder) as partial:
        written = write_rows(dataset, partial, split=split, shard_bytes=shard_bytes)
        facts = report_dict(report) | {"format": FORMAT} | written.facts | {"versions": _versions()}
        facts |= {"settings": wanted, "settings_hash": settings_hash(wanted), "source_revision": revision}
        facts |= {"publish_licence": licence} if licence else {}
        text = card or dataset_card(
            facts, num_rows=written.num_rows, example=written.example, split=split, licence=licence
        )
        (partial / CARD).write_text(text, encoding="utf-8")
        _write_config(partial, config or wanted)
        facts["written"] = {name: file_hash([partial / name]) for name in (CARD, CONFIG)}
        # last: without it a folder counts as unfinished, wherever it was copied
        (partial / REPORT).write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        replaced = swap(partial, folder)
    return Saved(folder, facts, replaced=replaced, kept=tuple(others(replaced) if replaced else ()))


def _check_arguments(dataset: Any, report: Any, split: Any, licence: Any) -> None:
    if not all(hasattr(dataset, name) for name in ("features", "with_format")):
        raise SavingError(
            f"dataset is of type {type(dataset).__name__} and must be a Dataset or IterableDataset; build it with "
            "datasets_builders.build, or make one with Dataset.from_list"
        )
    if not isinstance(report, Mapping) and not hasattr(report, "to_dict"):
        raise SavingError(
            f"report={report!r} must be what build_with_report returns as report, or a dict of its facts; {{}} for none"
        )
    if not isinstance(split, str) or not _SPLIT.fullmatch(split):
        raise SavingError(f"split={split!r} must be a name of letters, digits and points, such as 'train'")
    if licence is not None and not isinstance(licence, str):
        raise SavingError(f"licence={licence!r} must be the name of a licence, such as 'cc-by-4.0'")
    if licence is not None and not licence.strip():
        raise SavingError(f"licence={licence!r} (--licence) is blank; name a licence, or leave it out")


def finished(
    output_dir: str | os.PathLike[str],
    settings: Mapping[str, Any],
    revision: str | None = None,
    *,
    overwrite: bool = False,
) -> Saved | None:
    """The finished folder of the same build; `None` where it is still to be written.

    Args:
        output_dir (`str` or `PathLike`): the folder.
        settings (`Mapping`): what decides the rows.
        revision (`str`, *optional*): commit of the source, or a hash of its local files; `None` where it is not known.
        overwrite (`bool`): whatever is there will be replaced.

    Raises:
        SavingError: As [`save`] does, before any work is done.
    """
    folder = output_folder(output_dir)
    if folder.exists() and not folder.is_dir():
        raise SavingError(f"output_dir={output_dir} is a file; name a folder")
    with explained(output_dir):
        recover(folder)
        is_empty = not folder.exists() or not any(folder.iterdir())
    report = load_report(folder)
    if overwrite or report is None:
        refuse_place(folder, output_dir)
    if overwrite or is_empty:
        return None
    if report is None:
        names = ", ".join(sorted(path.name for path in folder.iterdir())[:3])
        raise SavingError(
            f"output_dir={output_dir} holds other files ({names}); give a new folder, or --overwrite (overwrite=True) "
            "to put the data set in its place"
        )
    _refuse_damaged(folder, report)
    _refuse_other_settings(report, content_settings(settings), revision, output_dir)
    _refuse_moved(report, revision, output_dir)
    return Saved(folder, report, is_new=False)


def _refuse_other_settings(
    report: Mapping[str, Any], wanted: dict[str, Any], revision: str | None, output_dir: str | os.PathLike[str]
) -> None:
    before, there = report.get("source_revision"), dict(report.get("settings", {}))
    if report.get("settings_hash") == settings_hash(wanted):
        return
    if before and (revision or wanted.get("revision") == before):
        # the commits are known, and compared on their own: by what name each was asked for does not matter
        there, wanted = ({k: v for k, v in each.items() if k != "revision"} for each in (there, wanted))
        if there == wanted:
            return
    raise SavingError(
        f"output_dir={output_dir} holds a data set of other settings ({_difference(there, wanted)}); give a new "
        "folder, or --overwrite (overwrite=True) to build it anew"
    )


def _refuse_moved(report: Mapping[str, Any], revision: str | None, output_dir: str | os.PathLike[str]) -> None:
    """Refuse another commit, or other local files, of the source or of one of several."""
    before = str(report.get("source_revision") or "")
    names = [str(part.get("name")) for part in parts_of(report)]
    there, now = before.split("+"), (revision or "").split("+")
    if not before or not revision or before == revision:
        return
    if len(there) == len(now) == len(names) > 1:
        moved = [(name, *both) for name, *both in zip(names, there, now, strict=True) if both[0] != both[1]]
        moved = [each for each in moved if UNKNOWN not in each]
        if not moved:
            return
        name, before, revision = moved[0]
        raise SavingError(
            f"the source {name} of output_dir={output_dir} has changed: it was built from {before} and is now at "
            f"{revision}; give a new folder, or --overwrite (overwrite=True) to build the new ones"
        )
    keep = f"--revision {before} keeps the old rows"
    if revision.startswith("sha256:"):
        keep = "put the old files back"
    elif report.get("parts"):  # a mixture takes no commit
        keep = "give a new folder"
    raise SavingError(
        f"the source of output_dir={output_dir} has changed: it was built from {before} and is now at {revision}; "
        f"{keep}, --overwrite (overwrite=True) builds the new ones"
    )


def load_saved(folder: str | os.PathLike[str]) -> Any:
    """The rows of a built folder as a `Dataset`.

    Raises:
        SavingError: For a folder that no build has finished, or that was changed since.
    """
    from datasets import load_dataset

    recover(output_folder(folder))
    report = load_report(folder)
    if report is None:
        raise SavingError(f"{folder} is no folder that `trl-ext data build` has finished; it lacks a {REPORT} of one")
    _refuse_damaged(Path(folder), report)
    files = [str(Path(folder) / file["path"]) for file in report["files"]]
    return load_dataset("parquet", data_files={"train": files}, split="train")


def report_dict(report: Any) -> dict[str, Any]:
    """A build's report as plain values."""
    return dict(report) if isinstance(report, Mapping) else dict(report.to_dict())


def content_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide which rows a build gives, without those that are not set."""
    kept = {name: value for name, value in settings.items() if name not in _NOT_CONTENT and value is not None}
    kept = {name: value for name, value in kept.items() if value is not False}  # `in (None, False)` would take 0 for it
    plain: dict[str, Any] = json.loads(json.dumps(kept, default=str, sort_keys=True))
    return plain


def settings_hash(settings: Mapping[str, Any]) -> str:
    """SHA-256 of settings, whatever their order."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


def revision_of_build(report: Mapping[str, Any]) -> str | None:
    """The commits that a build, or each part of a mix, was read at, in one text; `None` where none is known.

    Of several parts, those that are not read from anywhere are `"generated"`, and those that are not known `"?"`.
    """
    names = ("source_revision", "revision_resolved", "files_hash")
    parts = parts_of(report)
    found = [next(filter(None, map(part.get, names)), None) for part in parts]
    if not any(found):
        return None
    return "+".join(str(one or _unread(part)) for one, part in zip(found, parts, strict=True))


def _unread(part: Mapping[str, Any]) -> str:
    from datasets_builders.registry import BUILDERS

    source = BUILDERS.get(str(part.get("name")))
    return GENERATED if source is not None and source.generate is not None else UNKNOWN


def _settings_of(report: Mapping[str, Any]) -> dict[str, Any]:
    names = ("name", "config", "split", "revision", "instruction", "system_prompt", "seed", "max_samples", "streaming")
    if report.get("parts"):
        mixture = {"seed": report.get("seed"), "weights": report.get("weights")}
        return mixture | {"parts": [_settings_of(part) for part in parts_of(report)]}
    # told only where duplicates stay: `content_settings` leaves out what is off
    more = {"local_files": report.get("local_files"), "keep_duplicates": report.get("deduplicate") is False}
    return {name: report.get(name) for name in names} | more


def _refuse_other_rows(dataset: Any, there: Saved, output_dir: str | os.PathLike[str]) -> None:
    """Refuse rows that are not those of the folder, though all that the report names agrees."""
    before = there.report.get("content")
    number, content = len(dataset) if hasattr(dataset, "__len__") else None, None
    if number is None or (number == there.num_rows and before is not None):
        number, content = _content_of(dataset, there.num_rows)
    if number != there.num_rows:
        more = "more" if number > there.num_rows and not hasattr(dataset, "__len__") else f"{number:,}"
        difference = f"{there.num_rows:,} there, {more} now"
    elif before is not None and before != content:
        difference = f"as many, {there.num_rows:,}, but not the same ones or in another order"
    else:
        return
    raise SavingError(
        f"output_dir={output_dir} holds other rows than this data set ({difference}), from the same settings and "
        "source; give a new folder, or --overwrite (overwrite=True) to put these in their place"
    )


def _content_of(dataset: Any, most: int) -> tuple[int, str]:
    """Number of rows and hash of a data set, which is read no further than to the first batch behind `most` rows."""
    number, content = 0, Content()
    for rows in dataset.with_format("arrow").iter(batch_size=BATCH_ROWS):
        number += rows.num_rows
        if number > most:
            break
        content.add(rows if dataset.features is None else rows.cast(dataset.features.arrow_schema))
    return number, content.hash


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    told = [f"{name}: {_brief(before.get(name))} there, {_brief(now.get(name))} now" for name in names[:3]]
    return ", ".join(told) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _brief(value: Any) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _refuse_damaged(folder: Path, report: Mapping[str, Any]) -> None:
    for file in report["files"]:
        path = folder / file["path"]
        size = path.stat().st_size if path.is_file() else None
        if size != file["bytes"]:
            found = "is missing" if size is None else f"has {size} bytes in the place of {file['bytes']}"
            raise SavingError(f"{folder}: {file['path']} {found}; build it anew with --overwrite (overwrite=True)")


def _write_config(folder: Path, settings: Mapping[str, Any]) -> None:
    import yaml

    plain = json.loads(json.dumps({k: v for k, v in settings.items() if v is not None}, default=str))
    (folder / CONFIG).write_text(yaml.safe_dump(plain, sort_keys=True, allow_unicode=True), encoding="utf-8")


def _versions() -> dict[str, str]:
    found = {}
    for name in ("trl-ext", "datasets"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a checkout that is not installed
            continue
    return found
