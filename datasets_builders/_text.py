"""Parts of error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def hint(name: object, names: Iterable[str]) -> str:
    """`"; did you mean 'a'?"` for a name close to one of `names`, else `"; choose one of a, b"`.

    Example:

    ```python
    >>> hint("boxd", ["boxed", "none"]), hint("x", ["boxed", "none"])
    ("; did you mean 'boxed'?", '; choose one of boxed, none')

    ```
    """
    known = list(names)
    close = difflib.get_close_matches(str(name).lower().replace("-", "_"), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; choose one of {', '.join(known)}"


def first_line(error: BaseException, limit: int = 200) -> str:
    """What an error of a library says, in one short line; its type where it says nothing."""
    lines = str(error).strip().splitlines()
    text = lines[0].strip().rstrip(".") if lines else ""
    return (text[:limit] + "..." if len(text) > limit else text) or type(error).__name__
