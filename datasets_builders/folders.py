"""Folders of built data sets: where they may be, and how one takes the place of another with nothing of others lost."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from datasets_builders.local_files import file_hash
from datasets_builders.shards import SavingError

REPORT = "report.json"
CONFIG = "config_resolved.yaml"
CARD = "README.md"
FORMAT = 1
_DATA_FILE = re.compile(r"data/[^/\\]+\.parquet")
# Bytes of a name that most file systems take, without those of the names of the hidden folders beside it.
MAX_NAME = 255 - len(b"..replaced-9999")
# What the system says of a place, and not of the rows that are written there.
_OF_PLACE = {
    getattr(errno, name)
    for name in "EACCES EBUSY EDQUOT EFBIG EIO EISDIR ELOOP ENAMETOOLONG ENOSPC ENOTDIR ENOTEMPTY EPERM EROFS".split()
    if hasattr(errno, name)
}


def load_report(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What `report.json` of a built folder holds; `None` for a folder that no build has finished.

    A report that was changed so that it no longer says which files there are, or of which settings, is none.
    """
    try:
        report = json.loads((Path(folder) / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) and report.get("format") == FORMAT and _is_whole(report) else None


def _is_whole(report: Mapping[str, Any]) -> bool:
    files, parts = report.get("files"), report.get("parts", [])
    return (
        isinstance(files, list)
        and all(isinstance(file, dict) and isinstance(file.get("path"), str) for file in files)
        and isinstance(parts, list)
        and all(isinstance(part, dict) for part in parts)
        and all(isinstance(report.get(name, {}), dict) for name in ("settings", "checks", "written"))
    )


def output_folder(output_dir: str | os.PathLike[str]) -> Path:
    """The folder that is meant, behind all links: a link is neither replaced nor are files deleted through it.

    Raises:
        SavingError: For a path that cannot be a folder.
    """
    if not isinstance(output_dir, (str, os.PathLike)) or not str(output_dir):
        raise SavingError(f"output_dir={output_dir!r} must be the path of a folder")
    try:
        folder = Path(output_dir).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a home that is not known, a null byte
        raise SavingError(f"output_dir={output_dir} cannot be a folder ({error}); name another") from None
    if len(os.fsencode(folder.name)) > MAX_NAME:
        raise SavingError(
            f"output_dir: the name {folder.name[:20]}... has {len(os.fsencode(folder.name))} bytes; {MAX_NAME} at "
            "most, as folders beside it have its name and more"
        )
    above = next((path for path in folder.parents if path.exists()), folder)
    if not above.is_dir():
        raise SavingError(f"output_dir={output_dir}: {above.name} is a file; name a folder that is in none")
    return folder


def refuse_place(folder: Path, output_dir: str | os.PathLike[str]) -> None:
    """Refuse to replace a folder that holds more than a data set.

    Raises:
        SavingError: For the current folder and those above it, the home of the user, a repository of git, and a place
            where a file system is mounted.
    """
    here = Path.cwd().resolve()
    home = Path.home().resolve()
    what = None
    if folder == here or folder in here.parents:
        what = "the folder of this process, or above it"
    elif folder == home or folder in home.parents:
        what = "your home, or above it"
    elif (folder / ".git").exists():
        what = "a repository of git"
    elif folder.is_dir() and os.path.ismount(folder):
        what = "where a file system is mounted"
    if what is not None:
        raise SavingError(
            f"output_dir={output_dir} is {what}, which is not replaced; name a new folder, such as one in it"
        )


@contextmanager
def explained(output_dir: str | os.PathLike[str]) -> Iterator[None]:
    """Turns what the system says of a place into one sentence with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_PLACE:
            raise
        remedy = "make room or name another" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "name another folder"
        raise SavingError(
            f"output_dir={output_dir} cannot be written ({os.strerror(error.errno or 0)}); {remedy}"
        ) from error


def recover(folder: Path) -> None:
    """Undo a replacement that was interrupted between its two renames, and end one that was interrupted after them."""
    if not (sibling(folder, "old").exists() and not folder.exists()) and not sibling(folder, "swap").exists():
        return
    with lock(folder):
        _recover_locked(folder)


def _recover_locked(folder: Path) -> None:
    note, old = sibling(folder, "swap"), sibling(folder, "old")
    if note.is_file():
        replaced = folder.with_name(Path(note.read_text(encoding="utf-8").strip()).name)
        if replaced.name != folder.name and replaced.is_dir():
            if folder.exists():
                _remove_built(replaced)
            else:
                os.replace(replaced, folder)
        note.unlink(missing_ok=True)
    if old.exists() and not folder.exists():
        os.replace(old, folder)


def sibling(folder: Path, kind: str) -> Path:
    """A hidden path beside a folder."""
    return folder.parent / f".{folder.name}.{kind}"


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keeps other processes from writing the same folder."""
    from filelock import FileLock, Timeout

    path = sibling(folder, "lock")
    held = FileLock(path, timeout=0)
    try:
        held.acquire()
    except Timeout:
        raise SavingError(f"another process is writing output_dir={folder}; wait for it, or name another") from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no file that is open
            path.unlink(missing_ok=True)
        held.release()


@contextmanager
def partial_folder(folder: Path) -> Iterator[Path]:
    """A hidden empty folder to write to, which is gone afterwards unless it was given another name."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with lock(folder):
        path = sibling(folder, "partial")
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def swap(partial: Path, folder: Path) -> Path | None:
    """Give the written folder its name; of what stood there goes what a build had written, and nothing else.

    Returns:
        `Path`: where the rest is, `None` where nothing is left.
    """
    if not folder.exists():
        os.replace(partial, folder)
        return None
    old = sibling(folder, "old")
    if old.exists() and others(old):
        os.replace(old, kept := _free_name(folder))
        _remove_built(kept)
    shutil.rmtree(old, ignore_errors=True)
    if not others(folder):
        os.replace(folder, old)
        os.replace(partial, folder)
        shutil.rmtree(old, ignore_errors=True)
        return None
    # straight to its last name: whatever ends this process, nothing of others ever has the name that is deleted. The
    # note says to the next call where it was between the two renames
    replaced, note = _free_name(folder), sibling(folder, "swap")
    note.write_text(replaced.name, encoding="utf-8")
    os.replace(folder, replaced)
    os.replace(partial, folder)
    _remove_built(replaced)
    note.unlink()
    return replaced


def _built_files(folder: Path) -> list[str]:
    """The files of a folder that a build wrote; no links, and no card or configuration that was changed since."""
    report = load_report(folder)
    if report is None:
        return []
    hashes = report.get("written", {})
    files = [name for name in (CARD, CONFIG) if (folder / name).is_file()]
    same = [name for name in files if name not in hashes or hashes[name] == file_hash([folder / name])]
    # a report that someone has edited may name anything
    data = [file["path"] for file in report["files"] if _DATA_FILE.fullmatch(file["path"])]
    data = [] if (folder / "data").is_symlink() else data
    # the report last: without it nothing says what else a build wrote
    return [name for name in (*same, *data, REPORT) if not (folder / name).is_symlink()]


def others(folder: Path) -> list[str]:
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
