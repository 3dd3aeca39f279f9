"""Commits at which sources that name none were first read on this machine: later builds read the same rows."""

from __future__ import annotations

import json
import os
import re
import warnings
from pathlib import Path

from datasets_builders.local_files import LoadingError

COMMIT = re.compile(r"[0-9a-f]{40}")
LOCK_SECONDS = 10.0


def commits_file() -> Path:
    """`$HF_HOME/trl_ext/dataset_commits.json`: a commit for each repository, in a JSON object."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "trl_ext" / "dataset_commits.json"


def first_commit(path: str | None) -> str | None:
    """The commit at which a repository of the Hub was first read here; `None` for one that was not.

    Args:
        path (`str`, *optional*): repository of a data set on the Hub.

    Raises:
        LoadingError: Where the file of the commits is there and holds something else.
    """
    return None if path is None else _commits().get(path)


def keep_commit(path: str, commit: str) -> None:
    """Note the commit of a repository that was read without one, unless one is noted. Processes wait for each other.

    Where the file cannot be written, a warning says so, and the rows are as good.

    Args:
        path (`str`): repository of a data set on the Hub.
        commit (`str`): its commit, 40 digits.

    Raises:
        LoadingError: Where the file of the commits is there and holds something else.
    """
    from filelock import FileLock, Timeout

    file = commits_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{file}.lock", timeout=LOCK_SECONDS):
            there = _commits()
            if path in there:
                return
            draft = file.with_name(f"{file.name}.{os.getpid()}")
            draft.write_text(json.dumps(there | {path: commit}, indent=2, sort_keys=True) + "\n", encoding="utf-8")
            os.replace(draft, file)
    except (OSError, Timeout) as error:
        warnings.warn(
            f"{file} cannot be written ({error}), so that the next build of {path} may read other rows; "
            f"revision={commit!r} reads these",
            stacklevel=2,
        )


def _commits() -> dict[str, str]:
    file = commits_file()
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise LoadingError(f"{file} cannot be read ({error}); mend or remove it") from error
    if not isinstance(found, dict) or not all(isinstance(one, str) and COMMIT.fullmatch(one) for one in found.values()):
        raise LoadingError(f"{file} must hold a JSON object with a commit of 40 digits for each repository; remove it")
    return found
