"""Golds of precise instruction following: which constraints a reply must keep, with their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import json_text
from datasets_builders.source import Drop


def constraints(instruction_ids: Any, kwargs: Any) -> str:
    """The gold of a row of task `instruction`: JSON with `instruction_id` and `kwargs`, one entry a constraint.

    Tables fill the arguments of all constraints with nulls, which are dropped, and turn whole numbers into floats
    (IFBench: `N=5.0`), which are whole again. Values that are merely false, such as 0 or an empty text, stay.

    Args:
        instruction_ids (`list[str]`): names such as `"punctuation:no_comma"`.
        kwargs (`list[dict]`): arguments of each; `None` in the place of a dict, or of the list, for none.

    Raises:
        Drop: `bad_constraints` where there is no name, or another number of arguments than of names.

    Example:

    ```python
    >>> constraints(["keywords:frequency"], [{"keyword": "sky", "frequency": 2.0, "letter": None}])
    '{"instruction_id": ["keywords:frequency"], "kwargs": [{"keyword": "sky", "frequency": 2}]}'

    ```
    """
    names = _listed(instruction_ids)
    given = [None] * len(names) if kwargs is None else _listed(kwargs)
    if not names or len(given) != len(names):
        raise Drop("bad_constraints")
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise Drop("bad_constraints")
    if not all(one is None or isinstance(one, Mapping) for one in given):
        raise Drop("bad_constraints")
    filled = [{name: _whole(value) for name, value in (one or {}).items() if value is not None} for one in given]
    return json_text({"instruction_id": names, "kwargs": filled})


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise Drop("bad_constraints")
    return list(value)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
