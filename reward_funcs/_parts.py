"""Any reward as a part of another: plain functions called and checked, names, and what is refused."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from reward_funcs.base import Batch, Grade, Reward

Part = Callable[..., Any]


def function_rewards(function: Part, batch: Batch, path: str) -> list[float | None]:
    """Rewards of a plain function with TRL's signature, as plain numbers; NaN, as in TRL, is `None`.

    Args:
        function (`Callable`): the function; it is called with what the batch holds, and not at all where that is empty.
        batch (`Batch`): N completions with their columns.
        path (`str`): name in messages, and put before the names of what the function logs.

    Returns:
        `list[float | None]`: N rewards.

    Raises:
        ValueError: When it does not return one finite number or `None` for each completion.

    Example:

    ```python
    >>> function_rewards(lambda completions: [len(text) for text in completions], Batch(["abc"], {}), "length")
    [3.0]

    ```
    """
    if not len(batch):  # functions may look at the first completion
        return []
    values = function(**batch.arguments(prefix=f"{path}/"))
    if hasattr(values, "tolist"):  # arrays and tensors
        values = values.tolist()
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise ValueError(
            f"the reward {path} returned {type(values).__name__}; it must return a list of numbers or None"
        )
    rewards = [_reward(value, path, index) for index, value in enumerate(values)]
    check_number(rewards, batch, path)
    return rewards


def _reward(value: Any, path: str, index: int) -> float | None:
    if value is None:
        return None
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if math.isinf(number):
        raise ValueError(
            f"the reward {path} returned {value!r:.60} for completion {index}; it must return a finite number or None"
        )
    return None if math.isnan(number) else number


def check_number(found: Sequence[Any], batch: Batch, path: str) -> None:
    """Refuse another number of rewards than of completions."""
    if len(found) != len(batch):
        raise ValueError(
            f"the reward {path} returned {len(found)} rewards for {len(batch)} completions; it must return one for each"
        )


def checked_grades(part: Reward, batch: Batch, path: str) -> list[Grade]:
    """Grades of a [`Reward`], which come with a finite reward or `None` for each completion.

    Raises:
        ValueError: When they do not; the message names the part by its path.
    """
    grades = part.grade(batch)
    check_number(grades, batch, path)
    return [
        grade if grade.reward is None else grade._replace(reward=_reward(grade.reward, path, index))
        for index, grade in enumerate(grades)
    ]


def listed_parts(parts: Any, owner: str) -> tuple[Part, ...]:
    """The parts of a composition from the list of them.

    Raises:
        ValueError: When it is one reward, or no list at all.
    """
    if isinstance(parts, (str, bytes)) or not isinstance(parts, Iterable):
        raise ValueError(f"{owner} got {parts!r:.60} as parts; give it a list of rewards: {owner}([f, g])")
    return tuple(parts)


def unwrapped(part: Any) -> Any:
    """The function inside partials of it."""
    from functools import partial

    while isinstance(part, partial):
        part = part.func
    return part


def part_name(part: Any) -> str:
    """Name of a reward, the one that TRL gives it.

    Example:

    ```python
    >>> import functools
    >>> part_name(functools.partial(len))
    'len'

    ```
    """
    part = unwrapped(part)
    return str(getattr(part, "__name__", type(part).__name__))


def is_coroutine(part: Any) -> bool:
    """Whether calling it gives a coroutine: a function, a partial of one, or an object with such a `__call__`.

    Example:

    ```python
    >>> is_coroutine(len)
    False

    ```
    """
    import inspect  # slow to import, and only used where a composition is made

    part = unwrapped(part)
    return inspect.iscoroutinefunction(part) or inspect.iscoroutinefunction(getattr(part, "__call__", None))  # noqa: B004


def part_names(parts: Sequence[Part]) -> tuple[str, ...]:
    """A different name for each part, and none that is taken by a column of the composition itself."""
    taken = {"reason", "answer", "none"}
    names = []
    for part in parts:
        name, number = part_name(part), 2
        while name in taken:
            name, number = f"{part_name(part)}_{number}", number + 1
        taken.add(name)
        names.append(name)
    return tuple(names)


def check_part(part: Any, owner: str) -> None:
    """Refuse what can be no part of a composition, with the way out.

    Raises:
        ValueError: For a class, a reward model, a coroutine, and what is not callable.
    """
    if isinstance(part, type):
        raise ValueError(f"{owner} got the class {part.__name__}; give it an object: {part.__name__}(...)")
    if not callable(part):
        raise ValueError(f"{owner} got {part!r:.60}, which is no reward; give it reward objects or functions")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(part, torch.nn.Module):
        raise ValueError(
            f"{owner} got the model {type(part).__name__}; give reward models to the trainer itself, in reward_funcs"
        )
    if is_coroutine(part):
        raise ValueError(
            f"{owner} got the coroutine {part_name(part)} and calls its rewards without awaiting them; give it a plain "
            "function (AsyncReward around a whole composition makes TRL await that)"
        )
