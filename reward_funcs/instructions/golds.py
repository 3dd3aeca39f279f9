"""The constraints that a gold states, in the forms in which data sets write them."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from reward_funcs.base import plain
from reward_funcs.instructions.kinds import KINDS, BadConstraint, Kind

MAX_GOLD = 100_000  # characters; real ones have a few hundred


class Constraint(NamedTuple):
    """One constraint of a gold.

    Args:
        name (`str`): its name in the data, such as `"punctuation:no_comma"`.
        kind (`Kind`, *optional*): what checks it, `None` where the name is unknown.
        arguments (`dict[str, Any]`, *optional*): the arguments of the check, `None` where one is missing or wrong.
    """

    name: str
    kind: Kind | None
    arguments: dict[str, Any] | None


def constraints_of(gold: Any) -> tuple[Constraint, ...] | None:
    """The constraints of a gold, `None` where it states none.

    Args:
        gold (`Mapping | str | list`): `{"instruction_id": [...], "kwargs": [...]}`, as a mapping or its JSON text; or a
            list whose first item is one of these, as a Python literal in a text: the `ground_truth` of
            `allenai/IF_multi_constraints_upto5`. The columns' names of IFEval, `instruction_id_list`, will do as well.
            `kwargs` may be null, or hold a null for a constraint without arguments; arguments that are null are absent.

    Returns:
        `tuple[Constraint, ...] | None`: at least one constraint, in order.

    Example:

    ```python
    >>> gold = "[{'instruction_id': ['punctuation:no_comma'], 'kwargs': [None]}]"
    >>> [constraint.name for constraint in constraints_of(gold)]
    ['punctuation:no_comma']

    ```
    """
    return _of_text(gold) if isinstance(gold, str) else _of_value(plain(gold))


@lru_cache(maxsize=4096)  # each gold is asked for once a completion of its prompt
def _of_text(gold: str) -> tuple[Constraint, ...] | None:
    return _of_value(_decoded(gold))


def _decoded(written: str) -> Any:
    """What a text stands for as JSON, else as a Python literal; `None` for neither."""
    if len(written) > MAX_GOLD:
        return None
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(written.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _of_value(gold: Any) -> tuple[Constraint, ...] | None:
    # two rounds are what the data needs: a list in a text, and a text in the list
    for _ in range(2):
        if isinstance(gold, (list, tuple)) and gold:
            gold = gold[0]
        if isinstance(gold, str):
            gold = _decoded(gold)
    if not isinstance(gold, Mapping):
        return None
    return pairs(gold.get("instruction_id", gold.get("instruction_id_list")), gold.get("kwargs"))


def pairs(names: Any, kwargs: Any) -> tuple[Constraint, ...] | None:
    """The constraints of a list of names and a list of their arguments, `None` where these do not fit together.

    Args:
        names (`list[str]`): names of constraints.
        kwargs (`list[Mapping | None]`, *optional*): arguments of each.

    Returns:
        `tuple[Constraint, ...] | None`: at least one constraint, in order.

    Example:

    ```python
    >>> pairs(["keywords:word_once"], [{"keyword": "sky", "letter": None}])[0].arguments
    {'keyword': 'sky'}

    ```
    """
    names, kwargs = plain(names), plain(kwargs)
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, (list, tuple)) or not names:
        return None
    given = [None] * len(names) if kwargs is None else kwargs
    if not isinstance(given, (list, tuple)) or len(given) != len(names):
        return None
    if not all(isinstance(name, str) and name.strip() for name in names):
        return None
    if not all(one is None or isinstance(one, Mapping) for one in given):
        return None
    return tuple(_constraint(name.strip(), one or {}) for name, one in zip(names, given, strict=True))


def _constraint(name: str, given: Mapping[str, Any]) -> Constraint:
    found = KINDS.get(name)
    if found is None:
        return Constraint(name, None, None)
    try:
        return Constraint(name, found, found.arguments(given))
    except BadConstraint:
        return Constraint(name, found, None)
