"""The Hub that cannot be reached, or does not have what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from datasets_builders._text import first_line
from datasets_builders.local_files import LoadingError

HUB_SECONDS = 10  # in which the Hub must answer at all


@contextmanager
def offline_where_unreachable() -> Iterator[None]:
    """Within it, a Hub that cannot be reached is not asked: what is in the cache is read, as with HF_HUB_OFFLINE.

    `huggingface_hub` tries each file six times, 23 seconds in all, before it says that there is no connection.
    """
    import datasets
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or _is_reachable(constants.ENDPOINT):
        yield
        return
    before = datasets.config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = False, before


def _is_reachable(address: str) -> bool:
    """Whether any answer comes from the Hub, be it an error, to a question that is asked once."""
    from huggingface_hub import errors, get_session

    try:
        get_session().head(address, timeout=HUB_SECONDS)
    except (OSError, getattr(errors, "HTTPError", OSError)):
        return False
    return True


class Explained:
    """Turns what `datasets` and the Hub raise into one sentence with a remedy."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, LoadingError):
            return
        from datasets.exceptions import DatasetsError
        from huggingface_hub import errors

        # the base class of the HTTP library, which a stream may let through in the middle of a file
        if isinstance(error, (OSError, ValueError, DatasetsError, getattr(errors, "HTTPError", OSError))):
            raise LoadingError(self._sentence(error)) from error

    def _sentence(self, error: BaseException) -> str:
        said = first_line(error)
        if _is_of_revision(error):
            return (
                f'{self.where} cannot be read ({said}); revision="main" (--revision main) reads the newest rows, whose '
                "commit the report names, or give a copy of its files with local_path="
            )
        if "corresponds to no data" in said:
            return f"{self.where} holds no rows; name another split or revision, or files that hold rows"
        if "split" in said.lower() and isinstance(error, ValueError):
            return f"{self.where} has no such split ({said}); name one of its splits with split="
        if "BuilderConfig" in said:
            return f"{self.where} has no such configuration ({said}); name one with config="
        if isinstance(error, ConnectionError):
            return (
                f"{self.where} cannot be reached on the Hub ({said}); check the connection and HF_HUB_OFFLINE, or give "
                "a copy of its files with local_path="
            )
        if error.__cause__ is not None:
            said = f"{said}: {first_line(error.__cause__)}"
        return (
            f"{self.where} cannot be read ({said}); check the name and the revision, or give a copy of its files with "
            "local_path="
        )


def _is_of_revision(error: BaseException) -> bool:
    """Whether the Hub does not have the commit, tag or branch that was asked for."""
    from huggingface_hub.errors import RevisionNotFoundError

    named = isinstance(error, RevisionNotFoundError) or str(error).startswith("Revision ")
    return named or (error.__cause__ is not None and _is_of_revision(error.__cause__))
