"""Plain functions as parts of other rewards: what they return, what they are called, what is refused."""

import functools
import math

import numpy as np
import pytest
import torch

from reward_funcs import AsyncReward, Clip, Gate, Grade, Min, Product, Reward, Sum
from reward_funcs._parts import function_rewards, is_coroutine, part_name
from reward_funcs.base import Batch


class NamedReward(Reward):
    default_name = "named_reward"

    def grade(self, batch):
        return [Grade(1.0) for _ in batch.texts]


def right(completions, solution, **columns):
    return [float(text == gold) for text, gold in zip(completions, solution, strict=True)]


def length(completions, **columns):
    return [float(len(text)) for text in completions]


async def waiting(completions, **columns):
    return [1.0 for _ in completions]


@pytest.mark.parametrize(
    "returned",
    [
        [1, 0.5, None],
        (1.0, 0.5, math.nan),
        np.array([1.0, 0.5, math.nan], dtype=np.float32),
        torch.tensor([1.0, 0.5, math.nan]),
        [np.float32(1.0), torch.tensor(0.5), None],
        [True, np.float64(0.5), np.nan],
        iter([1, 0.5, None]),
    ],
)
def test_whatever_numbers_a_function_returns_become_floats(returned):
    rewards = Clip(lambda completions: returned, -10, 10)(["a", "b", "c"])
    assert rewards == [1.0, 0.5, None] and {type(reward) for reward in rewards} == {float, type(None)}


@pytest.mark.parametrize("number", [2, 4, 0])
def test_wrong_number_of_rewards_is_refused_with_the_name_of_the_part(number):
    def miscounting(completions):
        return [1.0] * number

    message = rf"the reward sum_reward/miscounting returned {number} rewards for 3 completions"
    with pytest.raises(ValueError, match=message):
        Sum([miscounting])(["a", "b", "c"])


@pytest.mark.parametrize("value", ["1.0", b"1", math.inf, -math.inf, [1.0], {}, "x" * 10_000])
def test_value_that_is_no_finite_number_is_refused(value):
    with pytest.raises(
        ValueError, match=r"the reward f returned .{1,60} for completion 1; it must return a finite number"
    ):
        function_rewards(lambda completions: [1.0, value], Batch(["a", "b"], {}), "f")


@pytest.mark.parametrize("value", ["12", None, {"a": 1, "b": 2}, 1.0])
def test_result_that_is_no_list_is_refused(value):
    with pytest.raises(ValueError, match=r"the reward f returned \w+; it must return a list of numbers or None"):
        function_rewards(lambda completions: value, Batch(["a", "b"], {}), "f")


@pytest.mark.parametrize(
    "compose",
    [
        lambda part: Sum([length, part]),
        lambda part: Product([part]),
        lambda part: Min([part, length]),
        lambda part: Gate(part, length),
        lambda part: Gate(length, part),
        lambda part: Clip(part, 0, 1),
    ],
)
@pytest.mark.parametrize(
    "part, sentence",
    [
        ("accuracy_reward", "got 'accuracy_reward', which is no reward; give it reward objects or functions"),
        (None, "got None, which is no reward"),
        (NamedReward, r"got the class NamedReward; give it an object: NamedReward\(\.\.\.\)"),
        (torch.nn.Linear(1, 1), "got the model Linear; give reward models to the trainer itself"),
        (waiting, "got the coroutine waiting and calls its rewards without awaiting them"),
        (functools.partial(waiting, x=1), "got the coroutine waiting"),
        (AsyncReward(right), r"got the coroutine right .*\(AsyncReward around a whole composition"),
    ],
)
def test_part_that_is_no_reward_is_refused(compose, part, sentence):
    with pytest.raises(ValueError, match=sentence):
        compose(part)


def test_names_and_coroutines_are_seen_through_partials_and_objects():
    assert part_name(functools.partial(functools.partial(right))) == "right"
    assert part_name(NamedReward(name="a")) == "a" and part_name(object()) == "object"
    assert is_coroutine(waiting) and is_coroutine(functools.partial(waiting)) and is_coroutine(AsyncReward(right))
    assert not is_coroutine(right) and not is_coroutine(NamedReward(name="a"))


def test_wrong_number_of_grades_is_refused_with_the_name_of_the_part():
    class Short(NamedReward):
        def grade(self, batch):
            return super().grade(batch)[1:]

    with pytest.raises(ValueError, match="the reward min_reward/a returned 1 rewards for 2 completions"):
        Min([Short(name="a")])(["x", "y"])


def test_bug_in_a_part_raises():
    def broken(completions, **columns):
        raise KeyError("bug")

    with pytest.raises(KeyError, match="bug"):
        Sum([broken, length])(["x"])
