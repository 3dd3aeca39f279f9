"""Compositions at their limits: neutral parts, values that are no numbers, penalties in products, careless parts."""

import math

import pytest

from reward_funcs import AsyncReward, Clip, ExactMatchReward, Gate, Grade, Min, Product, Reward, Sum, exact_match_reward
from reward_funcs.repetition import repetition_penalty_reward


class Neutral(Reward):
    """1.0 for words; of digits alone it says nothing, and a blank one it cannot judge."""

    default_name = "neutral"
    neutral_reasons = frozenset({"too_few_words"})

    def grade(self, batch):
        return [
            Grade(1.0) if text.isalpha() else Grade(None, "too_few_words" if text.strip() else "bad_text")
            for text in batch.texts
        ]


@pytest.mark.parametrize(
    ("make", "right", "wrong"),
    [
        (lambda: Sum([exact_match_reward, Neutral()]), 1.0, 0.0),
        (lambda: Sum([Neutral(), exact_match_reward], weights=[2, 3]), 3.0, 0.0),
        (lambda: Product([exact_match_reward, Neutral()]), 1.0, 0.0),
        (lambda: Min([Neutral(), exact_match_reward]), 1.0, 0.0),
        (lambda: Sum([exact_match_reward, Clip(Neutral(), 0, 1)]), 1.0, 0.0),
        (lambda: Sum([exact_match_reward, Sum([Neutral(), Neutral()])]), 1.0, 0.0),
        (lambda: Gate(Neutral(), exact_match_reward, threshold=0.8), 1.0, 0.0),
        (lambda: Gate(Product([Neutral()]), exact_match_reward, otherwise=None), 1.0, 0.0),
        (lambda: Sum([exact_match_reward, Gate(exact_match_reward, Neutral(), otherwise=-1.0)]), 1.0, -1.0),
    ],
)
def test_neutral_part_leaves_the_verdict_of_the_others(make, right, wrong):
    assert make()(["4", "5"], solution=["4", "4"]) == [right, wrong]


def test_neutral_part_is_no_excuse_for_another_missing_one():
    logged = {}
    reward = Sum([Neutral(), exact_match_reward])
    assert reward(["4", "5"], solution=[None, "5"], log_extra=logged.__setitem__) == [None, 1.0]
    assert logged["sum_reward/reason"][0] == "bad_gold"
    # its own other reasons are none of the neutral ones
    assert reward([" "], solution=["4"]) == [None]


def test_composition_of_neutral_parts_alone_is_none():
    for reward in (Sum([Neutral()]), Product([Neutral()]), Min([Neutral()], none="skip"), Clip(Neutral(), 0, 1)):
        assert reward(["4", "four"]) == [None, 1.0]


def test_none_of_a_plain_function_is_missing():
    def silent(completions, **columns):
        return [None] * len(completions)

    assert Sum([exact_match_reward, silent])(["5"], solution=["4"]) == [None]


def test_product_negative_part_is_refused_by_name():
    with pytest.raises(ValueError, match=r"product_reward, completion 1: repetition_penalty_reward gave -0\..*Sum"):
        Product([exact_match_reward, repetition_penalty_reward])(["4", "a a a a a"], solution=["4", "4"])


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda f: Product([f(1e200), f(1e200)]), r"product_reward, completion 0.*<lambda>_2 1e\+200"),
        (lambda f: Sum([f(1e308), f(1e308)]), r"sum_reward, completion 0: no finite reward.*1e\+308"),
        (lambda f: Sum([f(1.0)] * 2, weights=[1e308, 1e308]), "sum_reward, completion 0"),
        (lambda f: Sum([f(1e300), f(1e300)], weights=[1e10, -1e10]), "sum_reward, completion 0"),
        (lambda f: Sum([f(10**400)]), r"sum_reward/<lambda> returned 1000"),
        (lambda f: Clip(f(math.inf), 0, 1), r"clip_reward/<lambda> returned inf"),
    ],
)
def test_reward_that_is_no_finite_number_is_refused(make, named):
    def constant(value):
        return lambda completions, **columns: [value for _ in completions]

    with pytest.raises(ValueError, match=named):
        make(constant)(["x"])


def test_reward_object_that_returns_infinity_is_named():
    class Broken(Reward):
        default_name = "broken"

        def grade(self, batch):
            return [Grade(math.inf)]

    with pytest.raises(ValueError, match=r"sum_reward/broken returned inf for completion 0"):
        Sum([Broken()])(["x"])


@pytest.mark.parametrize(
    "bounds",
    [(math.inf, math.inf), (-math.inf, -math.inf), (None, 1), ("0", "1"), (True, 1), (10**400, 10**401), (0, math.nan)],
)
def test_clip_bounds_that_leave_no_number_are_refused(bounds):
    with pytest.raises(ValueError, match=r"low=|high="):
        Clip(exact_match_reward, *bounds)


@pytest.mark.parametrize("parts", [exact_match_reward, None, 5, "exact_match_reward"])
def test_parts_that_are_no_list_are_refused(parts):
    with pytest.raises(ValueError, match=r"Sum got .*Sum\(\[f, g\]\)"):
        Sum(parts)


def test_part_that_changes_its_columns_leaves_those_of_the_others():
    def careless(completions, solution, **columns):
        completions.clear()
        solution[:] = ["x", "x"]
        return [0.0, 0.0]

    golds, completions = ["4", "5"], ["4", "4"]
    assert Sum([careless, exact_match_reward])(completions, solution=golds) == [1.0, 0.0]
    assert (golds, completions) == (["4", "5"], ["4", "4"])


def test_async_reward_of_what_is_no_plain_reward_is_refused():
    async def awaited(completions, **columns):
        return [0.0]

    for given, named in (
        (AsyncReward(exact_match_reward), "exact_match_reward, which is a coroutine"),
        (awaited, "awaited, which is a coroutine"),
        (ExactMatchReward, "the class ExactMatchReward"),
        (AsyncReward, "the class AsyncReward"),
        (5, "5, which is no reward"),
    ):
        with pytest.raises(ValueError, match=f"AsyncReward got {named}"):
            AsyncReward(given)
