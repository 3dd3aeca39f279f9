"""Raw rows of JSON files on disk: each row's own JSON text, one at a time, whatever the size of the file."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TextIO, cast

JSON_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
SUFFIXES = (*JSON_SUFFIXES, ".parquet")
CHUNK = 1 << 20  # characters read at a time
MAX_ITEM = 1 << 28  # characters of one row of a list; a longer one is taken for broken JSON
# What lies beside the data in a copy of a repository, or in a folder that `datasets` wrote.
_NO_DATA = frozenset({"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"})
_SPLIT_NAMES = ("train", "test", "validation", "valid", "val", "dev")
# names of splits beside those to train on, and parts of the names of evaluation sets: HumanEval.jsonl
_EVALUATION_NAMES = ("eval", "evaluation")
# the words of a file's name: mathTrain_v2-00000.jsonl is math, Train, v, 2, 00000
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^\W\dA-Za-z_]+")
_SPACE = re.compile(r"[ \t\r\n]*")

LocalPath = str | PathLike[str] | Sequence[str | PathLike[str]]


class LoadingError(ValueError):
    """Raw rows that cannot be read; the message names the remedy."""


def data_files(local_path: LocalPath, splits: Sequence[str] = (), folders: Sequence[str] = ()) -> list[Path]:
    """The data files that `local_path` names: a file itself, a folder's files by name, a list's in its order.

    Args:
        local_path (`str`, `PathLike` or a list of them): files or folders. Of a folder, the files in whose names
            another split is a word (`test-00000.parquet`, `gsm8k_test.jsonl`, `mathTest.json`) are left out.
        splits (`Sequence[str]`): the wanted splits, in the order in which their files come.
        folders (`Sequence[str]`): subfolders to read, where there are such, in the place of the folder's own files.

    Returns:
        `list[Path]`: files of JSON or of parquet, never of both.

    Raises:
        LoadingError: For a path that is not there, a suffix that is not read, a folder without data, and a file in it
            whose name holds the wanted split and another one.
    """
    paths = listed(local_path)
    if not paths:
        raise LoadingError("local_path=[] names no file; give a file, a folder or a list of files")
    files = [file for path in paths for file in _files(Path(fspath(path)).expanduser(), splits, folders)]
    if len({file.suffix.lower() == ".parquet" for file in files}) > 1:
        raise LoadingError(
            f"local_path={_shown(local_path)} holds JSON and parquet files; name the files of one kind in a list"
        )
    return files


def listed(local_path: LocalPath) -> list[str | PathLike[str]]:
    """The paths of `local_path`, one or several.

    Raises:
        LoadingError: For anything else.
    """
    paths = [local_path] if isinstance(local_path, (str, PathLike)) else local_path
    if not isinstance(paths, Sequence) or not all(isinstance(path, (str, PathLike)) for path in paths):
        raise LoadingError(f"local_path={local_path!r} is no path; give a file, a folder or a list of files")
    return list(paths)


def _files(path: Path, splits: Sequence[str], folders: Sequence[str]) -> list[Path]:
    _refuse_link(path)
    if path.is_dir():
        return _folder_files(path, splits, folders)
    if not path.exists():
        raise LoadingError(f"local_path={_shown(path)} does not exist; give a file, a folder or a list of files")
    if not path.name.lower().endswith(SUFFIXES):
        raise LoadingError(f"local_path={_shown(path)} is none of {', '.join(SUFFIXES)}; convert it to one of them")
    return [path]


def _refuse_link(path: Path) -> None:
    """Refuse a link that leads nowhere or to itself, which `exists` takes for a file that is not there."""
    if path.is_symlink():
        try:
            path.resolve(strict=True)
        except (OSError, RuntimeError):  # Python up to 3.12 has the latter for a loop
            raise LoadingError(
                f"local_path: {path.name} is a link that leads nowhere or to itself; remove it, or name the files to "
                "read in a list"
            ) from None


def _folder_files(path: Path, splits: Sequence[str], folders: Sequence[str]) -> list[Path]:
    below = [path / name for name in folders if (path / name).is_dir()]
    if below:
        return [file for folder in below for file in _folder_files(folder, splits, ())]
    files = sorted(
        file
        for file in path.iterdir()
        if file.name.lower().endswith(SUFFIXES) and file.name not in _NO_DATA and not file.name.startswith(".")
    )
    for file in files:
        _refuse_link(file)
        if file.is_dir():
            raise LoadingError(
                f"{file.name} in local_path={_shown(path)} is a folder under the name of a data file; rename it, or "
                "name the files to read in a list"
            )
    if not files and (path / "data").is_dir():
        return _folder_files(path / "data", splits, ())
    if not files:
        raise LoadingError(
            f"local_path={_shown(path)} is a folder without data; it needs files that end in {', '.join(SUFFIXES)}"
        )
    return _of_splits(path, files, splits)


def _of_splits(path: Path, files: list[Path], splits: Sequence[str]) -> list[Path]:
    """The files of the wanted splits, and those that are named after no split."""
    if not splits:
        return files
    training = any("train" in split for split in splits)
    known = {*_SPLIT_NAMES, *splits, *(_EVALUATION_NAMES if training else ())}
    named = {file: _split_of(file, known, splits) for file in files}
    wanted = [file for split in (*splits, None) for file in files if named[file] == split]
    if not wanted:
        there = sorted({str(name) for name in named.values()})
        raise LoadingError(
            f"local_path={_shown(path)} has files of the splits {', '.join(there)}, but none of "
            f"{', '.join(splits)}; choose one with split=, or name the file"
        )
    return wanted


def _split_of(file: Path, known: Iterable[str], wanted: Sequence[str]) -> str | None:
    """The split that a file is named after, `None` for none; the longest name counts, train_prefs before train."""
    words = _name_words(re.split(r"\.(?:json|parquet)", file.name, flags=re.IGNORECASE)[0])
    names = sorted((_name_words(name), name) for name in known)
    found: dict[str, int] = {}
    place = 0
    while place < len(words):
        fits = [(len(parts), name) for parts, name in names if words[place : place + len(parts)] == parts]
        length, name = max(fits, default=(1, None))
        if name is not None:
            found.setdefault(name, place)
        place += length
    if len(found) > 1 and not found.keys().isdisjoint(wanted) and not found.keys() <= {*wanted}:
        raise LoadingError(
            f"{file.name} is named after the splits {' and '.join(found)}; rename it after the one that it holds, or "
            "name the files to read in a list"
        )
    return min(found, key=lambda name: found[name], default=None)


def _name_words(name: str) -> list[str]:
    return [word.lower() for word in _NAME_WORD.findall(name)]


def _shown(path: object) -> str:
    return repr(fspath(path) if isinstance(path, PathLike) else path)


def file_facts(files: Sequence[Path]) -> list[tuple[str, int, int]]:
    """Path, size and time of change of each file: what tells a changed copy from the one that was read before."""
    return [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def file_hash(paths: Iterable[str | PathLike[str]]) -> str:
    """`"sha256:..."` of the content of files, in their order: the revision of local files."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return f"sha256:{digest.hexdigest()[:16]}"


@lru_cache(maxsize=256)
def hash_of_facts(facts: tuple[tuple[str, int, int], ...]) -> str:
    """[`file_hash`] of the files of [`file_facts`], read once as long as their sizes and times stay."""
    try:
        return file_hash(path for path, *_ in facts)
    except PermissionError as error:
        name = Path(str(error.filename)).name
        raise LoadingError(f"{name} may not be read; change its permissions or give another copy") from None


def json_texts(file: str | Path) -> Iterator[str]:
    """The JSON text of each row of a file: a line of JSON Lines, or an item of one list.

    Args:
        file (`str` or `Path`): a path, or a URL that fsspec opens, that ends in one of `JSON_SUFFIXES`.

    Yields:
        `str`: an object, or a list for sources that write rows so.

    Raises:
        LoadingError: For text that is no JSON (with the number of the row), JSON that is no list of rows, an encoding
            that is not UTF-8, a broken archive, and a file without text.

    Source: `datasets` reads a list into memory whole and takes the types of all rows from the first ones. Here a file
        of any size takes the memory of one row, and a row of another type is a matter of its conversion.
    """
    name = str(file).rpartition("/")[2]
    try:
        with _opened(file) as stream:
            if name.lower().removesuffix(".gz").endswith(".jsonl"):
                yield from _lines(stream, name)
            else:
                yield from _items(_Window(stream), name)
    except UnicodeDecodeError as error:
        raise LoadingError(f"{name} is not UTF-8 text ({error.reason}); convert it to UTF-8") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise LoadingError(f"{name} is no complete gzip archive ({error}); get it again") from None
    except PermissionError:
        raise LoadingError(f"{name} may not be read; change its permissions or give another copy") from None


def _opened(file: str | Path) -> TextIO:
    path = str(file)
    if "://" in path:
        import fsspec

        return cast(TextIO, fsspec.open(path, "rt", encoding="utf-8-sig", compression="infer").open())
    if path.lower().endswith(".gz"):
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8-sig"))
    return open(path, encoding="utf-8-sig")


def _lines(stream: TextIO, name: str) -> Iterator[str]:
    number = 0
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            remedy = "remove it" if line.endswith("\n") else "it seems to be cut off: get the file again or remove it"
            if line.strip() in ("[", "{"):
                remedy = "a list of rows belongs in a file that ends in .json"
            raise LoadingError(f"line {number} of {name} is no JSON ({_said(error)}); {remedy}") from None
        yield _row_text(value, line.strip(), f"line {number} of {name}")
    if not number:
        raise LoadingError(f"{name} is empty; it needs one JSON object a line")


def _items(window: _Window, name: str) -> Iterator[str]:
    first = window.peek()
    if not first:
        raise LoadingError(f"{name} is empty; it needs a list of JSON objects")
    if first == "[":
        yield from _list_items(window, name)
        return
    if first == "{":
        yield from _objects(window, name)
        return
    raise LoadingError(f"{name} holds no list of rows, but text that begins with {first!r}; make it a list of objects")


def _list_items(window: _Window, name: str) -> Iterator[str]:
    window.at += 1
    number = 0
    while (sign := window.peek()) != "]":
        if number and sign == ",":
            window.at += 1
        elif number and sign:
            raise LoadingError(f"{name} lacks a comma after row {number} of its list; correct the file")
        where = f"row {number + 1} of {name}"
        yield _row_text(*window.item(where), where)
        number += 1
    window.at += 1
    if window.peek():
        raise LoadingError(f"{name} goes on behind the end of its list; make it one list of rows")


def _objects(window: _Window, name: str) -> Iterator[str]:
    """JSON Lines under the name of JSON, as many data sets have it; a single object is no list of rows."""
    where = f"row 1 of {name}"
    first = _row_text(*window.item(where), where)
    if not window.peek():
        raise LoadingError(f"{name} is one JSON object and no list of rows; make it a list, or end its name in .jsonl")
    yield first
    number = 1
    while window.peek():
        number += 1
        where = f"row {number} of {name}"
        yield _row_text(*window.item(where), where)


def _row_text(value: Any, text: str, where: str) -> str:
    if not isinstance(value, (dict, list)):
        raise LoadingError(f"{where} is {type(value).__name__} {text[:40]} and no object; correct or remove it")
    return text


class _Window:
    """The part of a text that is being read."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.text = ""
        self.at = 0
        self._decoder = json.JSONDecoder()

    def more(self) -> bool:
        """Read on, twice as far while one item does not end; `False` at the end of the file."""
        left = self.text[self.at :]
        read = self.stream.read(max(CHUNK, len(left)))
        self.text, self.at = left + read, 0
        return bool(read)

    def peek(self) -> str:
        """The next sign that is no space, `""` at the end."""
        while True:
            space = _SPACE.match(self.text, self.at)
            self.at = space.end() if space else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def item(self, where: str) -> tuple[Any, str]:
        """The value that begins here and its text."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                # an item that the window cuts off fails at the window's end, or where a string begins
                cut = error.pos > len(self.text) - 16 or error.msg.startswith("Unterminated")
                if not cut or len(self.text) - self.at > MAX_ITEM or not self.more():
                    raise LoadingError(self._broken(where, error)) from None
                continue
            except (ValueError, RecursionError) as error:
                raise LoadingError(f"{where} is no JSON ({_said(error)}); correct or remove it") from None
            text = self.text[self.at : end]
            self.at = end
            return value, text

    def _broken(self, where: str, error: json.JSONDecodeError) -> str:
        if self.stream.read(1):
            return f"{where} is no JSON ({_said(error)}); correct or remove it"
        return f"{where} is cut off or no JSON ({_said(error)}); get the file again or correct it"


def _said(error: BaseException) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]


def json_row(text: str) -> Any:
    """A row from its JSON text; the items of a list get the names `"0"`, `"1"`, ... that `datasets` gives them."""
    value = json.loads(text)
    return {str(index): item for index, item in enumerate(value)} if isinstance(value, list) else value
