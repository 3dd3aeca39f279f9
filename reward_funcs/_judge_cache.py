"""Replies of a judge kept on disk: one SQLite file, which several processes may use at once."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward_funcs._judge_clean import encodable

if TYPE_CHECKING:
    import sqlite3

BUSY_SECONDS = 30.0
_MANY = 500  # below SQLite's limit on the variables of a statement
# Replies are written so many at a time, or after so many seconds.
BATCH, BATCH_SECONDS = 64, 2.0


def request_key(
    address: str, model: str, messages: Sequence[Mapping[str, str]], parameters: Mapping[str, Any], vote: int
) -> str:
    """The sha256 of what a reply depends on: who is asked, what, with which parameters, and which of the votes it is.

    Example:

    ```python
    >>> request_key("", "m", [{"role": "user", "content": "4?"}], {}, 0)[:8]
    'df515770'

    ```
    """
    asked = json.dumps([address, model, list(messages), dict(parameters), vote], sort_keys=True, default=str)
    return hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()


class ReplyCache:
    """Replies by [`request_key`]; a file of their own in SQLite's WAL mode, on a disk of this machine.

    A connection is opened for each use and closed after it, so that the object survives fork and pickle. What cannot
    be read or written, because the disk is full say, is as if it were not there: one warning says so.

    Args:
        path (`str | Path`): the file; it is made, with its folder, when it is first used.

    Raises:
        ValueError: For a path that is a folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().absolute()
        if self.path.is_dir():
            raise ValueError(f"cache={str(path)!r} is a folder; name a file in it, such as judge.sqlite")

    def get(self, keys: Sequence[str]) -> dict[str, str]:
        """The replies that are known of those keys."""
        found: dict[str, str] = {}

        def read(connection: sqlite3.Connection) -> None:
            for start in range(0, len(keys), _MANY):
                part = keys[start : start + _MANY]
                marks = ",".join("?" * len(part))
                rows = connection.execute(f"SELECT key, reply FROM replies WHERE key IN ({marks})", part)
                # whatever else wrote to the file: what is no text is no reply
                found.update((key, reply) for key, reply in rows if isinstance(reply, str))

        if keys and self.path.exists():
            self._use(read)
        return found

    def put(self, replies: Mapping[str, str]) -> None:
        """Keep replies by key, in place of those that are there already."""

        rows = [(key, encodable(reply)) for key, reply in replies.items()]

        def write(connection: sqlite3.Connection) -> None:
            with connection:
                connection.executemany("INSERT OR REPLACE INTO replies VALUES (?, ?)", rows)

        if replies:
            self._use(write)

    def _use(self, action: Callable[[sqlite3.Connection], None]) -> None:
        import sqlite3

        try:
            if not self.path.exists():
                self._make()
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS)
            try:
                connection.execute("PRAGMA synchronous=NORMAL")
                action(connection)
            finally:
                connection.close()
        except (sqlite3.Error, OSError) as error:
            warnings.warn(
                f"the judge's cache {self.path.name} cannot be used ({error}); its replies are asked for again; check "
                "that the file is a cache of this package on a disk with space left",
                stacklevel=2,
            )

    def _make(self) -> None:
        """Make the file beside its place and move it there: no process sees one without its table."""
        import sqlite3

        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        connection = sqlite3.connect(draft)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID")
        connection.commit()
        connection.close()
        try:
            os.link(draft, self.path)  # fails where another process was first
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            if not self.path.exists():
                os.replace(draft, self.path)
        finally:
            draft.unlink(missing_ok=True)


class PendingReplies:
    """Replies on their way to a cache, some at a time, so that an interrupted call loses few of them.

    Args:
        cache (`ReplyCache`): where they go.
    """

    def __init__(self, cache: ReplyCache) -> None:
        self.cache = cache
        self._pending: dict[str, str] = {}
        self._lock = threading.Lock()
        self._written = time.monotonic()

    def add(self, key: str, reply: str) -> bool:
        """Take a reply; whether it is time to write."""
        with self._lock:
            self._pending[key] = reply
            return len(self._pending) >= BATCH or time.monotonic() - self._written >= BATCH_SECONDS

    def write(self) -> None:
        """Write what is not written."""
        with self._lock:
            pending, self._pending = self._pending, {}
            self._written = time.monotonic()
        self.cache.put(pending)
