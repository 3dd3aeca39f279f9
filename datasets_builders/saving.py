"""Built data sets on disk: parquet files with a card and a report, all there or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from datasets_builders.card import dataset_card, parts_of
from datasets_builders.local_files import file_hash as file_hash
from datasets_builders.shards import BATCH_ROWS, SHARD_BYTES, Content, write_rows
from datasets_builders.shards import SavingError as SavingError

REPORT = "report.json"
CONFIG = "config_resolved.yaml"
CARD = "README.md"
FORMAT = 1
_DATA_FILE = re.compile(r"data/[^/\\]+\.parquet")
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
    if licence is not None and not licence.strip():
        raise SavingError(f"licence={licence!r} (--licence) is blank; name a licence, or leave it out")
    folder = Path(output_dir).expanduser().absolute()
    facts = report_dict(report)
    wanted = content_settings(settings if settings is not None else _settings_of(facts))
    revision = source_revision or revision_of_build(facts)
    done = finished(folder, wanted, revision, overwrite=overwrite)
    if done is not None:
        _refuse_other_rows(dataset, done, output_dir)
        return done
    with _partial(folder) as partial:
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
        replaced = _swap(partial, folder)
    return Saved(folder, facts, replaced=replaced, kept=tuple(_others(replaced) if replaced else ()))


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
    folder = Path(output_dir).expanduser().absolute()
    _recover(folder)
    if folder.exists() and not folder.is_dir():
        raise SavingError(f"output_dir={output_dir} is a file; name a folder")
    if overwrite or not folder.exists() or not any(folder.iterdir()):
        return None
    report = load_report(folder)
    if report is None:
        names = ", ".join(sorted(path.name for path in folder.iterdir())[:3])
        raise SavingError(
            f"output_dir={output_dir} holds other files ({names}); give a new folder, or --overwrite (overwrite=True) "
            "to put the data set in its place"
        )
    _refuse_damaged(folder, report)
    wanted = content_settings(settings)
    if report.get("settings_hash") != settings_hash(wanted):
        raise SavingError(
            f"output_dir={output_dir} holds a data set of other settings ({_difference(report['settings'], wanted)}); "
            "give a new folder, or --overwrite (overwrite=True) to build it anew"
        )
    before = report.get("source_revision")
    if revision and before and revision != before:
        keep = "put the old files back" if revision.startswith("sha256:") else f"--revision {before} keeps the old rows"
        raise SavingError(
            f"the source of output_dir={output_dir} has changed: it was built from {before} and is now at {revision}; "
            f"{keep}, --overwrite (overwrite=True) builds the new ones"
        )
    return Saved(folder, report, is_new=False)


def load_report(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What `report.json` of a built folder holds; `None` for a folder that no build has finished."""
    try:
        report = json.loads((Path(folder) / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    known = isinstance(report, dict) and report.get("format") == FORMAT and isinstance(report.get("files"), list)
    return report if known else None


def load_saved(folder: str | os.PathLike[str]) -> Any:
    """The rows of a built folder as a `Dataset`.

    Raises:
        SavingError: For a folder that no build has finished, or that was changed since.
    """
    from datasets import load_dataset

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
    """The commits that a build, or each part of a mix, was read at, in one text; `None` where one is not known."""
    names = ("source_revision", "revision_resolved", "files_hash")
    found = [next(filter(None, map(part.get, names)), None) for part in parts_of(report)]
    return "+".join(map(str, found)) if all(found) else None


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


def _recover(folder: Path) -> None:
    """Undo a replacement that was interrupted between its two renames."""
    old = _sibling(folder, "old")
    if old.exists() and not folder.exists():
        with _lock(folder):
            if old.exists() and not folder.exists():
                os.replace(old, folder)


def _sibling(folder: Path, kind: str) -> Path:
    return folder.parent / f".{folder.name}.{kind}"


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keeps other processes from writing the same folder."""
    from filelock import FileLock, Timeout

    path = _sibling(folder, "lock")
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise SavingError(f"another process is writing output_dir={folder}; wait for it, or name another") from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no file that is open
            path.unlink(missing_ok=True)
        lock.release()


@contextmanager
def _partial(folder: Path) -> Iterator[Path]:
    """A hidden empty folder to write to, which is gone afterwards unless it was given another name."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        path = _sibling(folder, "partial")
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _swap(partial: Path, folder: Path) -> Path | None:
    """Give the written folder its name; of what stood there goes what a build had written, and nothing else."""
    if not folder.exists():
        os.replace(partial, folder)
        return None
    old = _sibling(folder, "old")
    if old.exists() and _others(old):
        os.replace(old, kept := _free_name(folder))
        _remove_built(kept)
    shutil.rmtree(old, ignore_errors=True)
    # straight to its last name: whatever ends this process, nothing of others ever has the name that is deleted
    replaced = _free_name(folder) if _others(folder) else None
    os.replace(folder, replaced or old)
    os.replace(partial, folder)
    if replaced is None:
        shutil.rmtree(old, ignore_errors=True)
    else:
        _remove_built(replaced)
    return replaced


def _built_files(folder: Path) -> list[str]:
    """The files of a folder that a build wrote; not a card or a configuration that was changed since."""
    report = load_report(folder)
    if report is None:
        return []
    hashes = report.get("written", {})
    files = [name for name in (CARD, CONFIG) if (folder / name).is_file()]
    same = [name for name in files if name not in hashes or hashes[name] == file_hash([folder / name])]
    # a report that someone has edited may name anything
    data = [file["path"] for file in report["files"] if _DATA_FILE.fullmatch(str(file["path"]))]
    return [REPORT, *same, *data]


def _others(folder: Path) -> list[str]:
    """The files, links and empty folders in a folder that no build wrote."""
    built = {folder / name for name in _built_files(folder)}
    found = [path for path in sorted(folder.rglob("*")) if path not in built]
    found = [path for path in found if path.is_symlink() or not path.is_dir() or not any(path.iterdir())]
    return [path.relative_to(folder).as_posix() for path in found]


def _remove_built(folder: Path) -> None:
    for name in _built_files(folder):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # it holds files of others
        (folder / "data").rmdir()


def _free_name(folder: Path) -> Path:
    number = 1
    while (kept := folder.with_name(f"{folder.name}.replaced-{number}")).exists():
        number += 1
    return kept


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
