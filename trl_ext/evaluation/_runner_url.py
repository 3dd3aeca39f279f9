"""Addresses as they may be written down: without the name, password and query that a user gave."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


def shown_url(text: str) -> str:
    """The text with its addresses stripped of what may be a secret: user, password, query and fragment.

    Args:
        text (`str`): an address, or a word of a command line with one in it.

    Returns:
        `str`: the text, as it was where it holds no address.

    Example:

    ```python
    >>> shown_url("--server_url=https://me:secret@host:8000/v1?token=abc")
    '--server_url=https://host:8000/v1'

    ```
    """
    return _ADDRESS.sub(lambda match: _stripped(match[0]), text)


def _stripped(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:  # no host can be read from it, and so nothing can be told apart
        return url.split("://", 1)[0] + "://..."
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
