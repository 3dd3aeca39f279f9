"""What k samples a problem would score, estimated without bias from the n samples that were drawn.

A sample without a verdict (`None` or NaN: the gold cannot be judged, there was no sandbox) is left out, here and
everywhere in this package: it counts neither as right nor as wrong, and n is the number of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Verdict = float | None


def pass_at_k(num_samples: ArrayLike, num_correct: ArrayLike, k: ArrayLike) -> float | NDArray[np.float64]:
    """Probability that at least one of k of the n samples is correct: 1 - C(n - c, k) / C(n, k).

    The mean over problems is the pass@k of a benchmark. With n = k it is 1 where anything is correct; that is why n is
    taken larger than k where it can be.

    Args:
        num_samples: n, samples drawn for a problem; a whole number, or an array of them, one a problem.
        num_correct: c, how many of them are correct; of a shape that broadcasts with the others.
        k: samples that a user would look at, from 1 to n.

    Returns:
        A float, or a float64 array of the common shape.

    Raises:
        ValueError: an argument is no whole number, or out of range: k > n, c > n, k < 1, c < 0.

    Source:
        Chen et al. 2021, "Evaluating Large Language Models Trained on Code", equation 1 (arXiv 2107.03374). Differs:
        the quotient of the binomials is a product of min(c, k) factors, all problems at once, and k > n is an error.

    Example:
        >>> pass_at_k(2, 1, 1), pass_at_k(4, 2, 2)
        (0.5, 0.8333333333333334)
        >>> pass_at_k(16, [0, 1, 16], 8)
        array([0. , 0.5, 1. ])
    """
    n = _whole("num_samples", num_samples)
    c = _whole("num_correct", num_correct)
    wanted = _whole("k", k)
    n, c, wanted = np.broadcast_arrays(n, c, wanted)
    _check_counts(n, c, wanted)
    # C(n - c, k) / C(n, k) = C(n - k, c) / C(n, c): the smaller of the two has the fewer factors
    factors, others = np.minimum(c, wanted), np.maximum(c, wanted)
    miss = np.ones(n.shape)
    for i in range(int(factors.max(initial=0))):
        factor = np.maximum(n - others - i, 0) / np.maximum(n - i, 1)
        miss *= np.where(i < factors, factor, 1.0)
    result: NDArray[np.float64] = 1.0 - miss
    return result if result.ndim else float(result)


def _whole(name: str, value: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(value)
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.floor(array)).all():
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu" and array.size:
        raise ValueError(f"{name} is {value!r:.100}; it must be a whole number or an array of whole numbers")
    return array.astype(np.int64)


def _check_counts(n: NDArray[np.int64], c: NDArray[np.int64], k: NDArray[np.int64]) -> None:
    if (k < 1).any():
        raise ValueError(f"k is {k[k < 1][0]}; it must be at least 1")
    if (k > n).any():
        where = k > n
        raise too_few(int(k[where][0]), int(n[where][0]))
    wrong = (c < 0) | (c > n)
    if wrong.any():
        raise ValueError(f"num_correct is {c[wrong][0]}; it must be from 0 to num_samples, which is {n[wrong][0]}")


def too_few(k: int, num_samples: int) -> ValueError:
    """The error about k > n, the same wherever k samples are wanted of n."""
    return ValueError(
        f"k is {k} but num_samples is {num_samples}: no {k} samples can be drawn from {num_samples}; lower k, draw "
        "more samples, or leave out the problems that have fewer samples with a verdict"
    )


def check_k(k: Any, num_samples: int) -> int:
    """k as an `int` from 1 to `num_samples`, or a `ValueError` that says what is wrong with it."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ValueError(f"k is {k!r}; it must be a whole number of at least 1")
    if k > num_samples:
        raise too_few(int(k), num_samples)
    return int(k)


def judged(verdicts: Sequence[Verdict]) -> list[float]:
    """The verdicts that are one: neither `None` nor NaN."""
    return [float(verdict) for verdict in verdicts if verdict is not None and not math.isnan(verdict)]


def mean_at_k(correct: Sequence[Sequence[Verdict]] | NDArray[Any]) -> float:
    """Mean over problems of the mean over their samples: pass@1, with the noise of one sample averaged out.

    Args:
        correct: (P, n) or P lists of any lengths: how correct each sample is, 1 and 0 or shares in between. `None` and
            NaN are left out, and so is a problem that has nothing else.

    Returns:
        A float; NaN where no sample has a verdict.

    Raises:
        ValueError: there is no problem, or `correct` is no list of lists.

    Source:
        DeepSeek-AI 2025, "DeepSeek-R1" (arXiv 2501.12948), section 3: pass@1 = mean of p_i over k samples.

    Example:
        >>> mean_at_k([[1, 0], [1, 1]]), mean_at_k([[1.0, 0.0, 0.0, None], [None]])
        (0.75, 0.3333333333333333)
    """
    if len(correct) == 0:
        raise ValueError("correct is empty; pass one list of verdicts for each problem")
    if not all(hasattr(row, "__len__") for row in correct):
        raise ValueError(f"correct is {correct!r:.100}; it must be a list of lists, one list of verdicts a problem")
    problems = [kept for row in correct if (kept := judged(row))]
    if not problems:
        return math.nan
    return math.fsum(math.fsum(row) / len(row) for row in problems) / len(problems)


def best_of_k(scores: Sequence[Verdict], correct: Sequence[Verdict], k: int) -> float:
    """Expected correctness of the best-scored of k samples drawn from the n of one problem, exactly.

    Equal scores share the choice. A score of `None` or NaN is never chosen: where all k samples lack a score nothing is
    chosen, which counts 0. A sample without a verdict is left out before anything is drawn.

    Args:
        scores: (n) score of each sample, for instance a reward or a judge's; larger is better.
        correct: (n) how correct each sample is.
        k: samples that are drawn, from 1 to the number of samples with a verdict.

    Returns:
        A float: the sum over the scores s of P(s is the best of k) times the mean correctness of the samples that
        score s.

    Raises:
        ValueError: the lengths differ, or k is out of range.

    Source:
        Order statistics of draws without replacement: P(best <= s) = C(#scores <= s, k) / C(n, k).

    Example:
        >>> best_of_k([0.9, 0.1], [1.0, 0.0], 1), best_of_k([0.9, 0.1], [1.0, 0.0], 2)
        (0.5, 1.0)
        >>> best_of_k([0.9, 0.9, None], [1.0, 0.0, 1.0], 3)
        0.5
    """
    if len(scores) != len(correct):
        raise ValueError(f"scores has {len(scores)} entries and correct has {len(correct)}; each sample needs both")
    kept = [(s, float(c)) for s, c in zip(scores, correct, strict=True) if c is not None and not math.isnan(c)]
    k = check_k(k, len(kept))
    classes: dict[float, list[float]] = {}
    for score, verdict in kept:
        if score is not None and not math.isnan(score):
            classes.setdefault(float(score), []).append(verdict)
    below = len(kept) - sum(map(len, classes.values()))  # what has no score is worse than anything that has one
    all_subsets, terms = math.comb(len(kept), k), []
    for score in sorted(classes):
        members = classes[score]
        ways = math.comb(below + len(members), k) - math.comb(below, k)
        terms.append(ways / all_subsets * (math.fsum(members) / len(members)))
        below += len(members)
    return math.fsum(terms)
