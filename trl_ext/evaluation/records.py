"""What an evaluation leaves on disk while it runs: its request, and every completion as soon as it is there.

A batch is appended to `generations.jsonl` in one piece and forced to the disk before the next one begins. The process
of rank 1 writes `generations.1.jsonl`, and so on; any number of processes reads the files of any other number. A batch
that is not there whole counts as not generated: its completions depend on each other through padding, by rounding, and
are the same again only when the same batch is computed again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trl_ext.errors import UserError

REQUEST_FILE = "request.json"
RESULTS_FILE = "results.json"
PROBLEMS_FILE = "problems.jsonl"
MARKDOWN_FILE = "results.md"
CARD_FILE = "model-index.yaml"
REPORT_FILES = (RESULTS_FILE, PROBLEMS_FILE, MARKDOWN_FILE, CARD_FILE)
# Exact: a user's own generations_notes.jsonl is none of ours.
_RECORDS_NAME = re.compile(r"generations(\.[1-9]\d*)?\.jsonl")
_LOCK_NAME = re.compile(r"\.generations(\.[1-9]\d*)?\.lock")
_REQUEST_KEYS = {"sampling", "batch_size"}  # what the request of an evaluation has
# Kept in the request, but a change of them is told and not refused: a server may come back on another port.
NOT_PINNED = ("versions", "server_url")

BatchName = tuple[str, int]  # benchmark, number of the batch in its plan
SampleName = tuple[str, str, int]  # benchmark, problem, number of the sample


@dataclass(frozen=True)
class Record:
    """One completion.

    Args:
        benchmark (`str`): name of the set.
        batch (`int`): number of its batch in the plan of the benchmark.
        key (`str`): key of the problem.
        sample (`int`): number of the sample, from 0.
        text (`str`): the completion.
        num_tokens (`int`): its tokens.
        is_truncated (`bool`): whether it was cut at the largest number of tokens.
    """

    benchmark: str
    batch: int
    key: str
    sample: int
    text: str
    num_tokens: int
    is_truncated: bool

    @property
    def name(self) -> SampleName:
        """What tells this sample from all others of the run."""
        return self.benchmark, self.key, self.sample


class FolderLock:
    """Holds an output folder from before anything in it is looked at until the report is written.

    Args:
        folder (`Path`): output folder, which is made where it is not there.

    Raises:
        UserError: When another evaluation runs in the folder, be it one process of it that has outlived the others, or
            the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        from filelock import FileLock

        self._is_new = not folder.exists()
        make_folder(folder)
        self._lock = FileLock(folder / ".evaluation.lock")
        _acquire(self._lock, folder, "another evaluation runs in this folder")
        try:
            for path in _named(folder, _LOCK_NAME):
                lock = FileLock(path)
                _acquire(lock, folder, f"another process still writes {path.stem[1:]}.jsonl")
                lock.release()
        except UserError:
            self._lock.release()
            raise

    def release(self) -> None:
        """Free the folder for other evaluations; one that was made for nothing goes."""
        path = Path(self._lock.lock_file)
        is_empty = self._is_new and [file.name for file in path.parent.iterdir()] == [path.name]
        if is_empty:
            path.unlink()
        self._lock.release()
        if is_empty:
            with suppress(OSError):  # another evaluation has begun in it just now
                path.parent.rmdir()

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def make_folder(folder: Path) -> None:
    """Make the output folder where it is not there.

    Raises:
        UserError: When a file has its name, or it cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"output_dir={str(folder)!r} is a file; name a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(f"output_dir={str(folder)!r} cannot be written ({error.strerror}); give another folder")


def _acquire(lock: Any, folder: Path, reason: str) -> None:
    from filelock import Timeout

    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise UserError(
            f"output_dir={str(folder)!r}: {reason}; wait until it ends, or give another output_dir"
        ) from error
    except OSError as error:
        raise _unwritable(folder, error) from error


def _named(folder: Path, name: re.Pattern[str]) -> list[Path]:
    """Files of the folder with such a name, sorted."""
    return sorted(path for path in folder.iterdir() if name.fullmatch(path.name))


def record_files(folder: Path) -> list[Path]:
    """The files of completions in a folder: `generations.jsonl`, `generations.1.jsonl`, and so on."""
    return _named(folder, _RECORDS_NAME)


class RecordWriter:
    """Appends batches of one process; holds a lock on its file, so that no second run of the same folder does.

    Args:
        folder (`Path`): output folder, which exists.
        rank (`int`): number of the process.

    Raises:
        UserError: When another process writes this file, or the file cannot be written.
    """

    def __init__(self, folder: Path, rank: int = 0) -> None:
        from filelock import FileLock

        self.path = folder / (f"generations.{rank}.jsonl" if rank else "generations.jsonl")
        self._lock = FileLock(folder / f".{self.path.stem}.lock")
        _acquire(self._lock, folder, f"another process writes {self.path.name}")
        cut_torn_line(self.path)
        self._file = self.path.open("ab")

    def append(self, records: Sequence[Record]) -> None:
        """Write the records of one batch; they are on the disk when this returns."""
        # ASCII: any text that a tokenizer makes, half a surrogate pair included, is written and read as it was
        lines = "".join(json.dumps(asdict(record)) + "\n" for record in records)
        self._file.write(lines.encode("ascii"))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file and free it for other processes."""
        self._file.close()
        self._lock.release()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def cut_torn_line(path: Path) -> None:
    """Remove a last line without an end, which a kill left behind: what is appended must not be glued to it."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        kept = end
        while kept:
            start = max(0, kept - (1 << 16))
            file.seek(start)
            found = file.read(kept - start).rfind(b"\n")
            if found >= 0:
                kept = start + found + 1
                break
            kept = start
        if kept != end:
            file.truncate(kept)
            os.fsync(file.fileno())


def read_records(folder: Path, plan: Mapping[BatchName, frozenset[tuple[str, int]]]) -> dict[SampleName, Record]:
    """Records of the batches that are there whole, each batch once.

    Args:
        folder (`Path`): output folder.
        plan (`Mapping`): for each batch the problems and samples in it.

    Returns:
        `dict`: records by benchmark, problem and sample. Of a batch that several processes completed, the first in the
        order of the files counts; of a record that one file holds twice, the last.

    Raises:
        UserError: For a line that is no record, and for one of a batch or sample that the plan does not hold.
    """
    found: dict[SampleName, Record] = {}
    done: set[BatchName] = set()
    for path in record_files(folder):
        batches: dict[BatchName, dict[tuple[str, int], Record]] = {}
        for number, record in _records(path):
            name = (record.benchmark, record.batch)
            if (record.key, record.sample) not in plan.get(name, ()):
                raise UserError(
                    f"line {number} of {path} is of another evaluation (sample {record.sample} of {record.key!r}); "
                    "remove that file, or start anew with overwrite (--overwrite)"
                )
            batches.setdefault(name, {})[record.key, record.sample] = record
        for name, records in batches.items():
            if name not in done and len(records) == len(plan[name]):
                done.add(name)
                found |= {record.name: record for record in records.values()}
    return found


def _records(path: Path) -> Iterator[tuple[int, Record]]:
    """Records of a file with the numbers of their lines; a last line without an end is none yet."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            if line.strip():
                yield number, _record(line, f"line {number} of {path}")


_KINDS = {
    "benchmark": str,
    "batch": int,
    "key": str,
    "sample": int,
    "text": str,
    "num_tokens": int,
    "is_truncated": bool,
}


def _record(line: bytes, where: str) -> Record:
    remedy = "remove that line, or start anew with overwrite (--overwrite)"
    try:
        values = json.loads(line)
        record = Record(**values)
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{where} is no record of an evaluation; {remedy}") from error
    # the exact type: True is an int for isinstance
    wrong = [name for name, kind in _KINDS.items() if type(values[name]) is not kind]
    wrong += [name for name in ("batch", "sample", "num_tokens") if not wrong and values[name] < 0]
    if wrong:
        raise UserError(f"{where} holds {wrong[0]}={values[wrong[0]]!r}, which no record can; {remedy}")
    return record


def prepare_folder(folder: Path, request: Mapping[str, Any], *, overwrite: bool = False) -> list[str]:
    """Make the output folder ready: new, or with the completions of an earlier run of the same request.

    Args:
        folder (`Path`): output folder.
        request (`Mapping`): what decides the completions, as JSON; what `NOT_PINNED` names may change.
        overwrite (`bool`): remove what an earlier evaluation left there, and nothing else; the caller holds the
            folder's `FolderLock`.

    Returns:
        `list[str]`: what of that differs from the earlier run, such as versions of libraries.

    Raises:
        UserError: When the folder belongs to another request, with the first field that differs, or holds files with
            the names of an evaluation's but no request of one, or cannot be written.
    """
    wanted = json.loads(json.dumps(request, sort_keys=True))
    make_folder(folder)
    path = folder / REQUEST_FILE
    remedy = "give another output_dir (--output_dir), or overwrite (--overwrite) to start anew"
    refuse_foreign(folder)
    try:
        if overwrite:
            _remove_earlier(folder)
        if not path.exists():
            write_atomically(path, json.dumps(wanted, indent=2, sort_keys=True) + "\n")
            return []
    except OSError as error:
        raise _unwritable(folder, error) from error
    earlier = read_json(path, remedy)
    changes = list(differences(_pinned(earlier), _pinned(wanted)))
    if changes:
        raise UserError(f"{folder} holds an evaluation whose {changes[0]}; {remedy}")
    return [change for name in NOT_PINNED for change in differences(earlier.get(name), wanted.get(name), name)]


def _pinned(request: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in request.items() if name not in NOT_PINNED}


def refuse_foreign(folder: Path) -> None:
    """Refuse files with our names where no evaluation has made them, `overwrite` or not: they may be the user's.

    Raises:
        UserError: With the first of them and the remedy.
    """
    path = folder / REQUEST_FILE
    remedy = "move it away, or give another output_dir (--output_dir)"
    if path.exists():
        if not _REQUEST_KEYS <= read_json(path, remedy).keys():
            raise UserError(f"{path} is not the request of an evaluation; {remedy}")
        return
    names = [*(file.name for file in record_files(folder)), *(n for n in REPORT_FILES if (folder / n).exists())]
    if names:
        raise UserError(f"{folder} holds {names[0]}, but no {REQUEST_FILE} of an evaluation that wrote it; {remedy}")


def _remove_earlier(folder: Path) -> None:
    """The request goes last: what a killed removal leaves is a part of that evaluation, and still known as one."""
    reports = (folder / name for name in REPORT_FILES)
    for path in (*reports, *record_files(folder), folder / REQUEST_FILE):
        path.unlink(missing_ok=True)


def differences(first: Any, second: Any, name: str = "") -> Iterator[str]:
    """Where two JSON values differ, as "name is A there and B here".

    Example:

    ```python
    >>> list(differences({"params": {"seed": 0, "top_p": 1.0}}, {"params": {"seed": 1, "top_p": 1.0}}))
    ['params.seed is 0 there and 1 here']

    ```
    """
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in dict.fromkeys([*first, *second]):
            yield from differences(first.get(key), second.get(key), f"{name}.{key}" if name else str(key))
    elif first != second:
        yield f"{name} is {_shown(first)} there and {_shown(second)} here"


def _shown(value: Any) -> str:
    text = "not given" if value is None else json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        UserError: When there is none, with the remedy.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no valid JSON ({error}); {remedy}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} holds no JSON object; {remedy}")
    return value


def read_json_lines(path: Path, remedy: str) -> list[dict[str, Any]]:
    """The JSON objects of a file, one a line.

    Raises:
        UserError: For a line that is none, with its number and the remedy.
    """
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"line {number} of {path} is no valid JSON; {remedy}") from error
        if not isinstance(row, dict):
            raise UserError(f"line {number} of {path} holds no JSON object; {remedy}")
        rows.append(row)
    return rows


def write_atomically(path: Path, text: str) -> None:
    """Write a file beside its place and rename it: nobody sees half of it."""
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as JSON, one a line, beside their place and rename the file."""
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows))
