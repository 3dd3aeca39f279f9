"""Checks of what a reward is made with: numbers, switches and names, refused with the way out."""

from __future__ import annotations

import math
from typing import Any


def check_setting(
    name: str,
    value: Any,
    least: float = -math.inf,
    *,
    below: float = math.inf,
    most: float = math.inf,
    whole: bool = False,
) -> Any:
    """The value of a numeric setting, refused where it is not finite, below `least`, above `most` or not `below`.

    Raises:
        ValueError: Naming the argument, its value, what is allowed, and the remedy.

    Example:

    ```python
    >>> check_setting("ngram_size", 3, 1, whole=True)
    3
    >>> check_setting("ngram_size", 0.5, 1, whole=True)
    Traceback (most recent call last):
    ValueError: ngram_size=0.5: it must be a whole number of at least 1; leave it out for the default

    ```
    """
    number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not (number and -math.inf < value < math.inf and least <= value <= most and value < below):
        limits = [f"of at least {least}"] if least != -math.inf else []
        limits += [f"below {below}"] if below != math.inf else []
        limits += [f"of at most {most}"] if most != math.inf else []
        kind = "a whole number" if whole else "a finite number"
        allowed = f"{kind} {' and '.join(limits)}".rstrip()
        raise ValueError(f"{name}={value!r:.80}: it must be {allowed}; leave it out for the default")
    return value


def check_flag(name: str, value: Any) -> bool:
    """The value of a setting that is `True` or `False`; the text "no", which counts as true, is refused.

    Raises:
        ValueError: Naming the argument and its value.

    Example:

    ```python
    >>> check_flag("use_all", "no")
    Traceback (most recent call last):
    ValueError: use_all='no': it must be True or False; leave it out for the default

    ```
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r:.80}: it must be True or False; leave it out for the default")
    return value


def check_name(name: str, value: Any) -> str:
    """The value of a setting that names something, a column or the reward itself.

    Raises:
        ValueError: Naming the argument and its value.

    Example:

    ```python
    >>> check_name("solution_column", "answer")
    'answer'

    ```
    """
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"{name}={value!r:.80}: it must be a name, a text that is not empty; leave it out for the default"
        )
    return value
