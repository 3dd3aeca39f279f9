"""Which groups have a signal, and what the estimator makes of scores."""

import math

import pytest
import torch

from trl_ext.grpo.groups import Group
from trl_ext.grpo.presets import PRESETS, resolved_preset
from trl_ext.grpo.scoring import Estimator, Scores, own_columns, reward_std

NAN = float("nan")


def _signals(name, rewards, group=2, **settings):
    rewards = torch.tensor(rewards)
    rewards = rewards.unsqueeze(1) if rewards.ndim == 1 else rewards
    estimator = Estimator(resolved_preset(name, **settings), torch.ones(rewards.size(1)), running_mean=0.2)
    return estimator.signals(Scores(rewards, []), group).tolist()


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "pass_at_k"])
def test_group_of_equal_rewards_has_no_signal_whatever_its_advantage(name):
    assert _signals(name, [0.7, 0.7, 1.0, 0.0]) == [False, True]


def test_group_of_successes_of_other_size_has_no_signal_for_pass_at_k():
    assert _signals("pass_at_k", [0.6, 0.9, 1.0, 1.0, 0.0, 0.0], group=3) == [False, True]


def test_rewards_of_equal_sum_have_a_signal_where_each_is_normalised_apart():
    scores = Scores(torch.tensor([[0.5, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]]), [])
    weights = torch.tensor([2.0, 1.0])  # 2 * 0.5 = 1 * 1
    assert Estimator(PRESETS["trl"], weights).signals(scores, 2).tolist() == [False, False]
    assert Estimator(PRESETS["gdpo"], weights).signals(scores, 2).tolist() == [True, False]


def test_unscored_completions_are_no_spread():
    assert _signals("trl", [NAN, 1.0, NAN, NAN, 0.0, 1.0]) == [False, False, True]


def test_steps_alone_decide_without_an_outcome_weight():
    steps = [[([0.1], [0])], [([0.1, 0.1], [0, 1])], [([0.1], [0])], [([0.4], [0])]]
    scores = Scores(torch.tensor([[0.0], [1.0], [0.0], [0.0]]), steps)
    estimator = Estimator(PRESETS["trl"], torch.ones(1))
    assert estimator.signals(scores, 2).tolist() == [False, True]
    weighted = Estimator(PRESETS["trl"], torch.ones(1), outcome_weight=1.0)
    assert weighted.signals(scores, 2).tolist() == [True, True]


def test_clip_bounds_token_advantages():
    steps = [[([1.0, 1.0, 1.0], [0, 1, 2])], [([0.0], [1])]]
    scores = Scores(torch.zeros(2, 1), steps)
    free = Estimator(PRESETS["dr_grpo"], torch.ones(1)).advantages(scores, 2)
    torch.testing.assert_close(free, torch.tensor([[0.75, 0.5, 0.25, 0.0], [-0.75, -0.75, 0.0, 0.0]]))
    clipped = Estimator(PRESETS["dr_grpo"], torch.ones(1), clip=0.6).advantages(scores, 2)
    torch.testing.assert_close(clipped, torch.tensor([[0.6, 0.5, 0.25, 0.0], [-0.6, -0.6, 0.0, 0.0]]))


def test_scores_take_groups_in_and_leave_the_old_ones_as_they_were():
    scores = Scores(torch.zeros(4, 1), [])
    group = Group([], torch.tensor([[1.0], [2.0]]), [], {}, 0)
    assert scores.with_groups({1: group}, 2).rewards.flatten().tolist() == [0.0, 0.0, 1.0, 2.0]
    assert not scores.rewards.any()


def test_reward_std_is_that_of_the_scored_rows():
    scores = Scores(torch.tensor([[1.0], [0.0], [NAN], [0.0]]), [])
    assert reward_std(scores, torch.ones(1), 1) == pytest.approx(math.sqrt(1 / 3))
    assert reward_std(scores, torch.ones(1), 0) == pytest.approx(math.sqrt(2 / 9))
    assert math.isnan(reward_std(Scores(torch.ones(1, 1), []), torch.ones(1), 1))


def test_own_columns_are_cut_or_filled_to_the_width_of_the_batch():
    advantages = torch.arange(6.0).view(2, 3)
    assert own_columns(2, advantages, slice(1, 2)).tolist() == [[3.0, 4.0]]
    assert own_columns(4, advantages, slice(0, 1)).tolist() == [[0.0, 1.0, 2.0, 2.0]]
    assert own_columns(4, advantages[:, 0], slice(1, 2)).tolist() == [3.0]
