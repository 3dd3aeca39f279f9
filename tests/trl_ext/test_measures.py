"""The clock of a step, and the spread of the rewards of a prompt."""

import math

import pytest
import torch

from trl_ext._measures import PARTS, StepClock, group_stds


class Hands:
    """A clock that the test moves."""

    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time


@pytest.fixture
def clock():
    hands = Hands()
    result = StepClock(hands)
    result.hands = hands
    return result


def pass_time(clock, seconds):
    clock.hands.time += seconds


def test_inner_part_is_not_counted_in_the_outer_one(clock):
    clock.start()
    pass_time(clock, 1)
    with clock.part("update"):
        pass_time(clock, 2)
        with clock.part("prepare"):
            pass_time(clock, 4)
            with clock.part("generate"):
                pass_time(clock, 8)
            with clock.part("score"):
                pass_time(clock, 16)
            pass_time(clock, 32)
        pass_time(clock, 64)
    pass_time(clock, 128)
    clock.stop()
    (step,) = clock.take()
    assert step == {"generate": 8, "score": 16, "prepare": 36, "update": 66, "other": 129, "step": 255}
    assert sum(step[part] for part in PARTS) == step["step"]
    assert clock.take() == []


def test_part_that_raises_ends(clock):
    clock.start()
    with pytest.raises(RuntimeError), clock.part("score"):
        pass_time(clock, 3)
        raise RuntimeError
    pass_time(clock, 5)
    clock.stop()
    assert clock.take()[0]["score"] == 3


def test_nothing_is_counted_outside_of_a_step(clock):
    with clock.part("generate"):
        pass_time(clock, 3)
    clock.stop()
    assert clock.take() == []


def test_what_happens_before_the_work_is_not_counted(clock):
    clock.start()
    pass_time(clock, 100)
    clock.start_work()
    with clock.part("update"):
        pass_time(clock, 1)
    clock.start_work()  # of the next micro-batch
    with clock.part("update"):
        pass_time(clock, 2)
    clock.stop()
    assert [(step["update"], step["step"]) for step in clock.take()] == [(3, 3)]


def test_step_that_was_cut_short_is_forgotten(clock):
    clock.start()
    pass_time(clock, 100)
    clock.start()
    pass_time(clock, 1)
    clock.stop()
    assert [step["step"] for step in clock.take()] == [1]


def test_group_stds_equal_those_of_torch():
    rewards = torch.randn(12, 3)
    weights = torch.tensor([1.0, 0.5, -2.0])
    expected = (rewards * weights).sum(1).view(-1, 4).std(dim=1)
    torch.testing.assert_close(torch.tensor(group_stds(rewards, weights, 4)), expected)


def test_group_stds_leave_out_completions_and_groups_without_score():
    nan = math.nan
    rewards = torch.tensor([[1.0, nan], [nan, nan], [3.0, 0.0], [nan, nan], [1.0, 1.0], [nan, nan]])
    assert group_stds(rewards, torch.ones(2), 3) == [pytest.approx(math.sqrt(2))]


def test_equal_rewards_have_exactly_no_spread():
    assert group_stds(torch.full((6, 1), 0.1), torch.tensor([1 / 3]), 3) == [0.0, 0.0]
