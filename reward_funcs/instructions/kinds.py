"""The registry of constraints: which name is checked by which function, with which arguments.

A checker is a function of a [`Response`] and of arguments that were read from the gold before any response was seen, so
that a gold which makes no sense is found out even where the completion is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from reward_funcs._scripts import known_language

Reader = Callable[[Any], Any]


class BadConstraint(ValueError):
    """An argument of a constraint that is missing, or is not what the constraint needs."""


class Kind(NamedTuple):
    """A constraint that can be checked.

    Args:
        check (`Callable`): whether a response follows it: `check(response, **arguments)`.
        readers (`Mapping[str, Callable]`): the arguments by name, each with what reads its value from the gold.
        fit (`Callable`, *optional*): whether the arguments make sense together: `fit(**arguments)`.
    """

    check: Callable[..., bool]
    readers: Mapping[str, Reader]
    fit: Callable[..., bool] | None = None

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the check; what a gold holds beyond them is left alone.

        Raises:
            BadConstraint: For an argument that is missing or wrong, and for arguments that no response can follow.
        """
        found = {name: reader(given.get(name)) for name, reader in self.readers.items()}
        if self.fit is not None and not self.fit(**found):
            raise BadConstraint(f"no response can follow {found!r:.120}")
        return found


KINDS: dict[str, Kind] = {}


def kind(
    *names: str, fit: Callable[..., bool] | None = None, **readers: Reader
) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    """A decorator that enters a checker under the names of a constraint."""

    def enter(check: Callable[..., bool]) -> Callable[..., bool]:
        for name in names:
            assert name not in KINDS, name
            KINDS[name] = Kind(check, readers, fit)
        return check

    return enter


# ---- what reads an argument


def count(value: Any) -> int:
    """A whole number of at least 0; a table may have made it a float.

    Raises:
        BadConstraint: For anything else.

    Example:

    ```python
    >>> count(5.0)
    5

    ```
    """
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if not whole or isinstance(value, bool) or value < 0:
        raise BadConstraint(f"{value!r:.80} is no whole number of at least 0")
    return int(value)


def place(value: Any) -> int:
    """A position that is counted from 1."""
    number = count(value)
    if not number:
        raise BadConstraint("0 is no position: they are counted from 1")
    return number


def share(value: Any) -> float:
    """A percentage from 0 to 100."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= 100:
        raise BadConstraint(f"{value!r:.80} is no percentage")
    return float(value)


def text(value: Any) -> str:
    """A text that is not blank, without the white space around it; the first of a list of them."""
    if isinstance(value, (list, tuple)) and value:
        value = value[0]
    if not isinstance(value, str) or not value.strip():
        raise BadConstraint(f"{value!r:.80} is no text")
    return value.strip()


def whole_text(value: Any) -> str:
    """A text that is not blank, as it is."""
    if not isinstance(value, str):
        raise BadConstraint(f"{value!r:.80} is no text")
    return value if text(value) else ""


def texts(value: Any) -> tuple[str, ...]:
    """At least one text; none is blank."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, (list, tuple)) or not listed:
        raise BadConstraint(f"{value!r:.80} is no list of texts")
    return tuple(whole_text(one) for one in listed)


def letter(value: Any) -> str:
    """A single character that is no white space, in lower case."""
    character = text(value).lower()
    if len(character) != 1:
        raise BadConstraint(f"{value!r:.80} is no single letter")
    return character


def relation(value: Any) -> str:
    """`"at least"` or `"less than"`."""
    if value not in ("at least", "less than"):
        raise BadConstraint(f"{value!r:.80} is neither 'at least' nor 'less than'")
    return str(value)


def relation_or_equal(value: Any) -> str:
    """`"at least"`, `"less than"`, or `"equal"` where nothing is given."""
    return "equal" if value is None else relation(value)


def language(value: Any) -> str:
    """The code of a language that the project knows."""
    code = known_language(value) if isinstance(value, str) else None
    if code is None:
        raise BadConstraint(f"{value!r:.80} is no language that is known here")
    return code


def compares(number: int, related: str, threshold: int) -> bool:
    """Whether a number is at least, less than, or equal to a threshold.

    Example:

    ```python
    >>> compares(3, "at least", 3), compares(3, "less than", 3)
    (True, False)

    ```
    """
    if related == "equal":
        return number == threshold
    return number >= threshold if related == "at least" else number < threshold
