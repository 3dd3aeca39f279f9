"""The countdown game: reach a target with given numbers; generated here, or the tasks of TinyZero."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any

from datasets_builders.schema import Row, json_text, rl_row
from datasets_builders.source import Drop, Source, conversion
from reward_funcs.countdown import CountdownReward

MAX_NUMBER, MAX_TARGET, MAX_TRIES = 99, 100, 1000


def puzzle(index: int, seed: int) -> dict[str, Any]:
    """A puzzle that has a solution: three or four numbers of 1 to 99 and a target of 1 to 100.

    Args:
        index (`int`): number of the row; the puzzle depends on it and on `seed` alone.
        seed (`int`): seed of the data set.

    Returns:
        `dict`: `target`, `nums`, and an `expression` of all the numbers that has the target's value.

    Source: as in reasoning-gym the target is made of an expression; its puzzles have four to six numbers and targets
        of 100 to 999. TinyZero's own generator draws targets of which many cannot be reached.

    Example:

    ```python
    >>> puzzle(0, 42)
    {'target': 37, 'nums': [92, 24, 32, 47], 'expression': '24 + (92 - (47 + 32))'}

    ```
    """
    random = Random(f"{seed}-{index}")
    count = random.choice((3, 4))
    for _ in range(MAX_TRIES):
        nums = [random.randint(1, MAX_NUMBER) for _ in range(count)]
        target, expression = _combined(nums, random)
        if 1 <= target <= MAX_TARGET:
            return {"target": target, "nums": nums, "expression": expression}
    raise AssertionError(f"no puzzle of {count} numbers in {MAX_TRIES} tries")  # each succeeds about one time in five


def _combined(nums: Sequence[int], random: Random) -> tuple[int, str]:
    """Value and text of an expression of all the numbers, each step of which has a whole and positive result."""
    parts = [(num, str(num)) for num in nums]
    while len(parts) > 1:
        random.shuffle(parts)
        (a, x), (b, y) = sorted((parts.pop(), parts.pop()), reverse=True)
        results = [(a + b, f"({x} + {y})"), (a * b, f"({x} * {y})")]
        if a > b:
            results.append((a - b, f"({x} - {y})"))
        if b > 1 and a % b == 0:
            results.append((a // b, f"({x} / {y})"))
        parts.append(random.choice(results))
    value, text = parts[0]
    return value, text[1:-1]


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The puzzle as a sentence, and as the gold that `countdown_reward` reads; `answer` is one solution."""
    return _row(row, "countdown", row["expression"])


@conversion
def convert_tasks(row: Mapping[str, Any]) -> Row:
    """As [`convert`], for puzzles without a solution at hand.

    Dropped: `unsolvable` where the numbers, each used once, cannot reach the target.
    """
    built = _row(row, "countdown_tasks", None)
    if not is_solvable(row["target"], row["nums"]):
        raise Drop("unsolvable")
    return built


def _row(row: Mapping[str, Any], name: str, answer: str | None) -> Row:
    target, nums = row["target"], list(row["nums"])
    if not nums or any(type(num) is not int for num in (target, *nums)):
        raise Drop("malformed")
    listed = ", ".join(map(str, nums))
    prompt = (
        f"Reach {target} with the numbers {listed}. Write one expression that uses each of them exactly once, with +, "
        "-, *, / and brackets."
    )
    return rl_row(prompt, json_text({"target": target, "nums": nums}), task="countdown", source=name, answer=answer)


# Solvability, in about 20 microseconds: a search with exact fractions takes two hundred times as long.

CLOSE = 1e-7  # how far apart floats of the same value may be; at worst a puzzle that has no solution stays


def is_solvable(target: int, nums: Sequence[int]) -> bool:
    """Whether an expression of all the numbers, each used once, has the target's value.

    Args:
        target (`int`): the value to reach.
        nums (`list[int]`): the numbers; more than four are searched by `CountdownReward.ideal`.

    Example:

    ```python
    >>> is_solvable(24, [3, 3, 8, 8]), is_solvable(99, [1, 1, 2])
    (True, False)

    ```
    """
    if len(nums) > 4:
        return CountdownReward().ideal({"target": target, "nums": list(nums)}) is not None
    return _reaches(tuple(nums), target)


def _reaches(nums: tuple[float, ...], target: float) -> bool:
    if len(nums) < 3:
        values = _pair_values(*nums) if len(nums) == 2 else nums
        return any(abs(value - target) < CLOSE for value in values)
    if len(nums) == 4:
        a, b, c, d = nums
        for left, right in (((a, b), (c, d)), ((a, c), (b, d)), ((a, d), (b, c))):
            if any(_makes(x, y, target) for x in _pair_values(*left) for y in _pair_values(*right)):
                return True
        return any(_reaches(rest, value) for one, rest in _one_out(nums) for value in _missing(one, target))
    return any(_makes(one, value, target) for one, rest in _one_out(nums) for value in _pair_values(*rest))


def _one_out(nums: tuple[float, ...]) -> Iterator[tuple[float, tuple[float, ...]]]:
    for place, num in enumerate(nums):
        yield num, nums[:place] + nums[place + 1 :]


@lru_cache(maxsize=16384)
def _pair_values(a: float, b: float) -> tuple[float, ...]:
    values = [a + b, a - b, b - a, a * b]
    values += [a / b] if b else []
    values += [b / a] if a else []
    return tuple(values)


def _makes(a: float, b: float, target: float) -> bool:
    return (
        abs(a + b - target) < CLOSE
        or abs(a - b - target) < CLOSE
        or abs(b - a - target) < CLOSE
        or abs(a * b - target) < CLOSE
        or (b != 0 and abs(a / b - target) < CLOSE)
        or (a != 0 and abs(b / a - target) < CLOSE)
    )


def _missing(a: float, target: float) -> list[float]:
    """The values that make the target with `a`; 0 times anything is left to the splits in two pairs."""
    values = [target - a, target + a, a - target]
    values += [target * a, target / a] if a else []
    values += [a / target] if a and target else []
    return values


GENERATED = Source(
    name="countdown",
    convert=convert,
    task="countdown",
    licence="apache-2.0",
    splits={"train": (), "test": ()},
    generate=puzzle,
    note="Rows are generated, as many as are asked for; those of train and test differ.",
)
TASKS = Source(
    name="countdown_tasks",
    convert=convert_tasks,
    task="countdown",
    licence="unknown",
    path="Jiayi-Pan/Countdown-Tasks-3to4",
    revision="408f70d177020686d34a56bba5952feb45aaaee4",
    columns=("target", "nums"),
    size=490_364,
    note="TinyZero trains on its first 327,680 rows and tests on the next 1,024.",
)
SOURCES = (GENERATED, TASKS)
