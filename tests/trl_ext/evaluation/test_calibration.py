"""Calibration of a critic: numbers by hand, a perfect critic, masks and shapes."""

import doctest
import json
import math
from dataclasses import asdict

import numpy as np
import pytest
import torch

import trl_ext.evaluation.calibration as module
from trl_ext.evaluation.calibration import Bin, calibration


def test_doctests_pass():
    assert doctest.testmod(module).failed == 0


def test_calibration_of_hand_numbers():
    found = calibration([0.0, 0.25, 0.5, 1.0], [0.0, 1.0, 0.0, 1.0], ranges=[0.0, 0.5, 1.0])
    assert found.bins == [Bin(0.0, 0.5, 2, 0.125, 0.5), Bin(0.5, 1.0, 2, 0.75, 0.5)]
    assert found.ece == (2 * 0.375 + 2 * 0.25) / 4
    assert found.brier_or_mse == (0.0 + 0.5625 + 0.25 + 0.0) / 4
    assert found.bias == 1.75 / 4 - 0.5
    # sum of products about the means 0.4375 and 0.5, and sum of squares
    assert found.slope == pytest.approx(0.375 / 0.546875)
    assert found.intercept == pytest.approx(0.5 - found.slope * 0.4375)


def test_calibration_of_a_perfect_critic_is_the_diagonal():
    rewards = np.random.default_rng(0).random((8, 5))
    found = calibration(rewards, rewards)
    assert (found.ece, found.brier_or_mse, found.bias) == (0.0, 0.0, 0.0)
    assert found.slope == pytest.approx(1.0)
    assert found.intercept == pytest.approx(0.0, abs=1e-12)
    assert sum(one.count for one in found.bins) == 40


def test_calibration_of_probabilities_that_are_true_has_a_small_error():
    random = np.random.default_rng(0)
    probabilities = random.random(20_000)
    outcomes = (random.random(20_000) < probabilities).astype(float)
    found = calibration(probabilities, outcomes)
    assert found.ece < 0.02
    assert found.slope == pytest.approx(1.0, abs=0.05)
    assert found.brier_or_mse == pytest.approx(1 / 6, abs=0.01)  # E p (1 - p) of a uniform p


def test_calibration_of_a_shifted_and_stretched_critic_shows_in_bias_and_slope():
    rewards = np.linspace(0.0, 1.0, 11)
    found = calibration(2 * rewards + 0.5, rewards)
    assert found.slope == pytest.approx(0.5)
    assert found.intercept == pytest.approx(-0.25)
    assert found.bias == pytest.approx(1.0)
    assert found.ece == pytest.approx(1.0)  # all errors have one sign


def test_calibration_holds_one_outcome_against_all_values_of_its_row():
    values, rewards = [[0.0, 0.5], [0.5, 1.0]], [0.0, 1.0]
    assert calibration(values, rewards) == calibration(values, [[0.0, 0.0], [1.0, 1.0]])
    assert calibration(values, rewards).brier_or_mse == 0.125


def test_calibration_ignores_whatever_stands_outside_of_the_mask():
    masked = calibration([[0.2, math.nan], [0.8, 1e9]], [0.0, 1.0], mask=[[1, 0], [1, 0]])
    assert masked == calibration([0.2, 0.8], [0.0, 1.0])


def test_calibration_takes_tensors_of_any_kind():
    values = torch.tensor([[0.25, 0.75]], dtype=torch.bfloat16, requires_grad=True)
    found = calibration(values, torch.tensor([1.0]), mask=torch.ones(1, 2, dtype=torch.bool))
    assert found == calibration([[0.25, 0.75]], [1.0])


def test_calibration_of_equal_predictions_has_one_bin_and_no_line():
    found = calibration([0.5, 0.5], [0.0, 0.5])
    assert found.bins == [Bin(0.5, 0.5, 2, 0.5, 0.25)]
    assert (found.slope, found.intercept, found.ece) == (None, None, 0.25)


def test_calibration_bins_take_each_prediction_once():
    values = np.linspace(-3.0, 5.0, 1001)
    found = calibration(values, np.zeros(1001), num_bins=8)
    assert [(one.low, one.high) for one in found.bins] == [(i, i + 1) for i in range(-3, 5)]
    assert [one.count for one in found.bins] == [125] * 7 + [126]  # the last one has its upper end too


def test_calibration_ends_of_ranges_take_what_lies_beyond():
    found = calibration([-9.0, 0.1, 0.9, 9.0], [0.0, 0.0, 1.0, 1.0], ranges=[0.0, 0.5, 1.0])
    assert [one.count for one in found.bins] == [2, 2]


def test_calibration_leaves_out_empty_bins_and_goes_into_json():
    found = calibration([0.0, 1.0], [0.0, 1.0], num_bins=10)
    assert [one.count for one in found.bins] == [1, 1]
    assert json.loads(json.dumps(asdict(found)))["bins"][1]["outcome"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([0.1, 0.2], [1.0]), {}, r"^predictions have shape \(2,\), outcomes \(1,\) and mask \(2,\); outcomes are one"),
        (([[0.1]], [1.0]), {"mask": [1]}, r"^predictions have shape \(1, 1\), outcomes \(1, 1\) and mask \(1,\)"),
        (([0.1], [1.0]), {"mask": [0]}, "^no prediction is under the mask"),
        (([math.nan], [1.0]), {}, "^predictions hold nan; mask what has no finite value"),
        (([0.1], [math.inf]), {}, "^outcomes hold inf"),
        (([0.1], [1.0]), {"num_bins": 0}, "^num_bins is 0; it must be a whole number"),
        (([0.1], [1.0]), {"ranges": [1, 0]}, r"^ranges is \[1, 0\]; it must hold two or more increasing edges"),
    ],
)
def test_calibration_refuses_bad_arguments(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        calibration(*arguments, **options)
