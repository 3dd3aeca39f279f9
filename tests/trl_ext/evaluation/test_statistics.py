"""Intervals and tests against exact sums, closed forms and their coverage on known distributions."""

import doctest
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from trl_ext.evaluation import statistics
from trl_ext.evaluation.statistics import bootstrap_interval, mcnemar, paired_bootstrap


def test_doctests_pass():
    assert doctest.testmod(statistics).failed == 0


# bootstrap


def test_bootstrap_interval_is_the_same_for_the_same_seed_only():
    values = np.random.default_rng(0).random(200)
    one = bootstrap_interval(values, seed=3)
    assert bootstrap_interval(list(values), seed=3) == one
    assert bootstrap_interval(values, seed=4) != one


def test_bootstrap_interval_of_many_values_is_that_of_the_normal_distribution():
    values = np.random.default_rng(0).normal(2.0, 3.0, 2000)
    interval = bootstrap_interval(values)
    half = 1.959964 * values.std() / math.sqrt(2000)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.05 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.05 * half)


def test_bootstrap_interval_equals_the_quantiles_of_the_binomial_distribution():
    # the mean of a resample of 0/1 values is Binomial(100, 0.3) / 100: 2.5% below 0.21, 97.5% up to 0.39
    interval = bootstrap_interval([1.0] * 30 + [0.0] * 70)
    assert (interval.low, interval.high) == (pytest.approx(0.21), pytest.approx(0.39))


def test_bootstrap_interval_holds_the_truth_as_often_as_it_says():
    random, hits = np.random.default_rng(0), 0
    for seed in range(400):
        interval = bootstrap_interval(random.random(100) < 0.4, confidence=0.9, num_resamples=500, seed=seed)
        hits += interval.low <= 0.4 <= interval.high
    assert 0.86 <= hits / 400 <= 0.94  # 2.7 standard errors about 0.9


def test_bootstrap_interval_grows_with_the_confidence():
    values = np.random.default_rng(0).random(50)
    widths = [(i := bootstrap_interval(values, confidence=c)).high - i.low for c in (0.5, 0.9, 0.99)]
    assert widths == sorted(widths)
    assert widths[0] < widths[2]


def test_bootstrap_interval_draws_in_bounded_blocks(monkeypatch):
    values = np.random.default_rng(0).random(64)
    shapes = []
    real = np.random.default_rng

    class Random:
        def __init__(self, seed):
            self.random = real(seed)

        def integers(self, low, high, shape):
            shapes.append(shape)
            return self.random.integers(low, high, shape)

    monkeypatch.setattr(statistics, "BLOCK", 64 * 100)
    monkeypatch.setattr(statistics.np.random, "default_rng", Random)
    bootstrap_interval(values, num_resamples=250)
    assert shapes == [(100, 64), (100, 64), (50, 64)]


def test_bootstrap_interval_of_one_or_of_equal_values_is_a_point():
    for values in ([0.25], [0.25] * 9):
        interval = bootstrap_interval(values)
        assert (interval.low, interval.high) == (0.25, 0.25)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([], {}, r"^values has shape \(0,\); it must be a list of figures"),
        ([[1.0]], {}, r"^values has shape \(1, 1\)"),
        ([1.0, None, None], {}, r"^values\[1\] is None; leave out the 2 problems without a figure"),
        ([1.0], {"confidence": 95}, "^confidence is 95; it must be between 0 and 1"),
        ([1.0], {"num_resamples": 0}, "^num_resamples is 0; it must be a whole number of at least 1"),
    ],
)
def test_bootstrap_interval_refuses_bad_arguments(values, options, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_interval(values, **options)


# McNemar


def outcomes(only_first, only_second, both=3, neither=2):
    first = [1] * only_first + [0] * only_second + [1] * both + [0] * neither
    return first, [0] * only_first + [1] * only_second + [1] * both + [0] * neither


@pytest.mark.parametrize(("b", "c"), [(0, 0), (0, 1), (1, 9), (5, 5), (4, 6), (12, 30), (700, 800)])
def test_mcnemar_equals_the_exact_binomial_sum(b, c):
    tail = sum(Fraction(math.comb(b + c, i), 2 ** (b + c)) for i in range(min(b, c) + 1))
    found = mcnemar(*outcomes(b, c))
    assert (found.only_first, found.only_second) == (b, c)
    assert found.p_value == pytest.approx(float(min(Fraction(1), 2 * tail)), rel=1e-12)


def test_mcnemar_of_hand_numbers():
    # 2 (1 + 10) / 2^10
    assert mcnemar(*outcomes(1, 9)).p_value == 22 / 1024
    assert mcnemar(*outcomes(9, 1)).p_value == 22 / 1024


def test_mcnemar_of_runs_that_agree_is_one():
    assert mcnemar([1, 0, 1], [True, False, True]) == statistics.McNemar(0, 0, 1.0)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([1, 0], [1], "^first has 2 figures and second has 1; both need one for each of the same problems"),
        ([1, 0.5], [1, 0], r"^first holds 0\.5; outcomes are 0 or 1, and paired_bootstrap takes other figures"),
        ([1, 0], [1, None], r"^second\[1\] is None; leave out the 1 problems"),
        ([], [], r"^first has shape \(0,\)"),
    ],
)
def test_mcnemar_refuses_what_are_no_outcomes(first, second, message):
    with pytest.raises(ValueError, match=message):
        mcnemar(first, second)


# paired


def test_paired_bootstrap_difference_is_positive_where_the_second_run_is_better():
    found = paired_bootstrap([0.0, 0.25, 1.0, 0.5], [0.5, 0.25, 1.0, 0.75])
    assert found.difference == pytest.approx(0.1875)
    assert found.interval == bootstrap_interval([0.5, 0.0, 0.0, 0.25])


@pytest.mark.parametrize(("b", "c"), [(0, 3), (1, 9), (6, 6), (3, 8)])
def test_paired_bootstrap_of_outcomes_is_the_exact_mcnemar_test(b, c):
    pair = outcomes(b, c)
    assert paired_bootstrap(*pair, num_resamples=10).p_value == pytest.approx(mcnemar(*pair).p_value, rel=1e-12)


def test_paired_bootstrap_p_value_equals_going_through_all_swaps():
    first, second = [0.1, 0.5, 0.3, 0.9, 0.2, 0.25], [0.4, 0.4, 0.8, 1.0, 0.2, 0.5]
    differences = [b - a for a, b in zip(first, second, strict=True)]
    observed = abs(sum(differences))
    swapped = [abs(sum(s * d for s, d in zip(signs, differences, strict=True))) for signs in SIGNS]
    expected = sum(value >= observed - 1e-9 for value in swapped) / len(swapped)
    assert paired_bootstrap(first, second).p_value == pytest.approx(expected, rel=1e-12)


SIGNS = list(itertools.product([-1, 1], repeat=6))


def test_paired_bootstrap_of_many_problems_draws_the_swaps():
    pair = outcomes(12, 30, both=50, neither=8)
    found = paired_bootstrap(*pair, num_resamples=20_000)
    assert found.p_value == pytest.approx(mcnemar(*pair).p_value, abs=0.003)
    assert paired_bootstrap(*pair, num_resamples=20_000) == found
    assert paired_bootstrap(*pair, num_resamples=20_000, seed=1) != found


def test_paired_bootstrap_of_runs_swapped_mirrors_the_difference():
    first, second = np.random.default_rng(0).random((2, 40))
    one, other = paired_bootstrap(first, second), paired_bootstrap(second, first)
    assert one.difference == -other.difference
    assert one.interval.low == pytest.approx(-other.interval.high, abs=1e-12)
    assert one.p_value == other.p_value


def test_paired_bootstrap_of_equal_runs_is_no_difference():
    found = paired_bootstrap([0.5, 1.0, 0.0], [0.5, 1.0, 0.0])
    assert (found.difference, found.interval.low, found.interval.high, found.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_paired_bootstrap_rejects_true_nulls_as_often_as_it_says():
    random, rejections = np.random.default_rng(0), 0
    for seed in range(300):
        first, second = random.random((2, 30))
        rejections += paired_bootstrap(first, second, num_resamples=300, seed=seed).p_value <= 0.1
    assert 0.05 <= rejections / 300 <= 0.15  # 2.9 standard errors about 0.1
