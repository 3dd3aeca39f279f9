"""Small pieces of text that several error messages share."""

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Hint to append to the message about an unknown name.

    Args:
        name (`str`): what was asked for.
        known (`Iterable[str]`): what exists.

    Returns:
        `"; did you mean 'x'?"` with the closest known name, or `""` when none is close.

    Example:

    ```python
    >>> did_you_mean("gea", ["gae", "td_errors"])
    "; did you mean 'gae'?"

    ```
    """
    # imported here: only a mistake needs it, and this module is imported with the package
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
