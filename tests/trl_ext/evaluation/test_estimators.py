"""pass@k, mean@k and best-of-k against counting all subsets, exact fractions and published formulas."""

import doctest
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from trl_ext.evaluation import estimators
from trl_ext.evaluation.estimators import best_of_k, mean_at_k, pass_at_k


def exact_pass_at_k(n, c, k):
    return 1 - Fraction(math.comb(n - c, k), math.comb(n, k))


def test_doctests_pass():
    assert doctest.testmod(estimators).failed == 0


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_equals_the_share_of_subsets_with_a_correct_sample(n):
    for c in range(n + 1):
        verdicts = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            subsets = list(itertools.combinations(verdicts, k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15)


# HumanEval's setting: n = 200 samples, k = 1, 10, 100
@pytest.mark.parametrize("k", [1, 10, 100])
def test_pass_at_k_of_200_samples_equals_exact_fractions(k):
    counts = np.arange(201)
    expected = [float(exact_pass_at_k(200, int(c), k)) for c in counts]
    np.testing.assert_allclose(pass_at_k(200, counts, k), expected, rtol=1e-12, atol=1e-15)


def test_pass_at_k_equals_the_product_that_the_humaneval_paper_prints():
    for n, c, k in [(200, 3, 10), (200, 150, 100), (20, 7, 14), (16, 9, 8)]:
        printed = 1.0 if n - c < k else 1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1))
        assert pass_at_k(n, c, k) == pytest.approx(printed, rel=1e-12)


def test_pass_at_k_of_many_samples_neither_overflows_nor_loses_digits():
    assert pass_at_k(100_000, 3, 50_000) == pytest.approx(float(exact_pass_at_k(100_000, 3, 50_000)), rel=1e-12)
    assert pass_at_k(10**9, 1, 1) == pytest.approx(1e-9, rel=1e-6)


def test_pass_at_1_is_the_share_of_correct_samples():
    assert [pass_at_k(16, c, 1) for c in range(17)] == pytest.approx([c / 16 for c in range(17)], abs=1e-15)


def test_pass_at_n_is_whether_anything_is_correct():
    assert pass_at_k(16, np.arange(17), 16).tolist() == [0.0] + [1.0] * 16


def test_pass_at_k_broadcasts_samples_and_ks():
    result = pass_at_k(np.array([[4], [8]]), 2, np.array([1, 2, 4]))
    expected = [[float(exact_pass_at_k(n, 2, k)) for k in (1, 2, 4)] for n in (4, 8)]
    assert result.shape == (2, 3)
    np.testing.assert_allclose(result, expected, rtol=1e-14)


def test_pass_at_k_of_scalars_is_a_float_and_of_no_problem_an_empty_array():
    assert type(pass_at_k(np.int64(4), np.float64(2), 2)) is float
    assert pass_at_k([], [], 1).shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 2, 5), "k is 5 but num_samples is 4: no 5 samples can be drawn from 4; lower k, draw more samples"),
        (([16, 4], 2, 8), "k is 8 but num_samples is 4"),
        ((4, 2, 0), "k is 0; it must be at least 1"),
        ((4, 5, 1), "num_correct is 5; it must be from 0 to num_samples, which is 4"),
        ((4, -1, 1), "num_correct is -1"),
        ((4, 1.5, 1), "num_correct is 1.5; it must be a whole number"),
        ((4, math.nan, 1), "num_correct is nan"),
        (("4", 1, 1), "num_samples is '4'; it must be a whole number"),
    ],
)
def test_pass_at_k_of_bad_numbers_says_which_and_what_to_do(arguments, message):
    with pytest.raises(ValueError, match=r"^" + message.replace("(", r"\(")):
        pass_at_k(*arguments)


def test_mean_at_k_weighs_problems_and_not_samples():
    assert mean_at_k([[1, 1, 1, 1], [0]]) == 0.5
    assert mean_at_k(np.array([[1.0, 0.0], [0.5, 0.5]])) == 0.5


def test_mean_at_k_leaves_out_what_has_no_verdict():
    assert mean_at_k([[1.0, None], [None, None], [0.0, 1.0, math.nan]]) == 0.75


def test_mean_at_k_equals_the_mean_of_pass_at_1():
    rows = np.random.default_rng(0).integers(0, 2, (50, 16))
    assert mean_at_k(rows) == pytest.approx(pass_at_k(16, rows.sum(axis=1), 1).mean(), rel=1e-12)


def test_mean_at_k_without_a_verdict_is_nan_and_without_a_problem_an_error():
    assert math.isnan(mean_at_k([[None], []]))
    with pytest.raises(ValueError, match=r"^correct is empty; pass one list"):
        mean_at_k([])
    with pytest.raises(ValueError, match=r"^correct is \[1, 0\]; it must be a list of lists"):
        mean_at_k([1, 0])


def counted_best_of_k(scores, correct, k):
    """The same by going through all subsets; None scores below all others."""
    total, subsets = Fraction(0), list(itertools.combinations(range(len(scores)), k))
    for subset in subsets:
        scored = [scores[i] for i in subset if scores[i] is not None]
        best = [correct[i] for i in subset if scored and scores[i] == max(scored)]
        total += Fraction(sum(best), len(best)) if best else 0
    return total / len(subsets)


@pytest.mark.parametrize("n", range(1, 8))
def test_best_of_k_equals_the_mean_over_all_subsets(n):
    random = np.random.default_rng(n)
    for _ in range(20):
        scores = [None if s == 0 else int(s) for s in random.integers(0, 4, n)]  # ties are common
        correct = [int(c) for c in random.integers(0, 2, n)]
        for k in range(1, n + 1):
            expected = float(counted_best_of_k(scores, correct, k))
            assert best_of_k(scores, correct, k) == pytest.approx(expected, abs=1e-14)


def test_best_of_1_is_the_mean_of_what_has_a_score():
    assert best_of_k([3.0, 1.0, 2.0], [1.0, 0.0, 0.0], 1) == pytest.approx(1 / 3)


def test_best_of_k_by_the_verdict_itself_is_pass_at_k():
    correct = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    for k in range(1, 8):
        assert best_of_k(correct, correct, k) == pytest.approx(pass_at_k(7, 2, k), rel=1e-14)


def test_best_of_k_with_equal_scores_splits_the_choice():
    assert best_of_k([1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0], 4) == 0.25


def test_best_of_k_without_scores_chooses_nothing():
    assert best_of_k([None, math.nan], [1.0, 1.0], 2) == 0.0
    assert best_of_k([None, 0.5], [1.0, 1.0], 1) == 0.5


def test_best_of_k_does_not_draw_what_has_no_verdict():
    assert best_of_k([9.0, 1.0, 2.0], [None, 0.0, 1.0], 2) == 1.0
    with pytest.raises(ValueError, match=r"^k is 3 but num_samples is 2"):
        best_of_k([9.0, 1.0, 2.0], [None, 0.0, 1.0], 3)


def test_best_of_k_refuses_what_is_no_k_or_of_another_length():
    with pytest.raises(ValueError, match=r"^k is 1\.5; it must be a whole number of at least 1"):
        best_of_k([1.0], [1.0], 1.5)
    with pytest.raises(ValueError, match=r"^scores has 1 entries and correct has 2; each sample needs both"):
        best_of_k([1.0], [1.0, 0.0], 1)
