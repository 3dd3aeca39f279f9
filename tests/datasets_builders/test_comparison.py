from __future__ import annotations

import itertools
import math

import pytest

from datasets_builders.comparison import MARGINS, RATINGS, comparison_record, priority_rating, rating_of_difference
from datasets_builders.schema import row_errors

PAIR = ("Name a fruit.", "Apple.", "Chair.")


@pytest.mark.parametrize(
    ("rating", "chosen", "margin"),
    [
        ("a_better", "Apple.", 2 / 3),
        ("a_slightly_better", "Apple.", 1 / 3),
        ("b_slightly_better", "Chair.", 1 / 3),
        ("b_better", "Chair.", 2 / 3),
        ("Response 1 is better.", "Apple.", 2 / 3),
        ("Response 1 is only slightly better. (only pick this if it's truly close)", "Apple.", 1 / 3),
        (" response 2 is only  slightly better", "Chair.", 1 / 3),
        ("Response 2 is better.", "Chair.", 2 / 3),
    ],
)
def test_comparison_record_each_rating_names_the_better_reply_and_the_margin(rating, chosen, margin):
    row = comparison_record(*PAIR, rating)
    assert row is not None
    assert row["chosen"] == [{"role": "assistant", "content": chosen}]
    assert {row["chosen"][0]["content"], row["rejected"][0]["content"]} == {"Apple.", "Chair."}
    assert row["margin"] == pytest.approx(margin)
    assert row_errors(row) == []


def test_comparison_record_swapped_replies_with_swapped_rating_are_the_same():
    one = comparison_record("Q", "x", "y", "a_slightly_better")
    other = comparison_record("Q", "y", "x", "b_slightly_better")
    assert one is not None and other is not None
    assert {**one, "extra": ""} == {**other, "extra": ""}


def test_comparison_record_tie_is_no_row():
    assert comparison_record(*PAIR, "tied") is None


def test_comparison_record_keeps_conversation_margins_and_extra():
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "?"},
    ]
    margins = {"better": 3, "slightly_better": 1}
    row = comparison_record(turns, "x", "y", "b_better", margins=margins, source="mine", source_id=7, labeller="L1")
    assert row == {
        "prompt": turns,
        "chosen": [{"role": "assistant", "content": "y"}],
        "rejected": [{"role": "assistant", "content": "x"}],
        "margin": 3.0,
        "task": "preference",
        "source": "mine",
        "source_id": "7",
        "extra": '{"rating": "b_better", "labeller": "L1"}',
    }


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rating": "a_beter"}, "rating='a_beter' is no rating of the guide; did you mean 'a_better'?"),
        ({"rating": "7"}, "rating='7' is no rating of the guide; choose one of a_better, a_slightly_better"),
        ({"rating": None}, "rating=None is no rating of the guide"),
        ({"reply_b": "Apple."}, "reply_a and reply_b are the same"),
        ({"prompt": " "}, "prompt=' ' is empty"),
        ({"reply_a": ""}, "reply_a='' is empty"),
        ({"reply_b": []}, r"reply_b=\[\] is empty"),
        ({"margins": {"better": 0}}, r"margins\['better'\]=0 must be a number above 0, such as 0.667"),
        ({"margins": {}}, r"margins\['better'\]=None must be a number above 0"),
        ({"margins": {"better": math.inf}}, r"margins\['better'\]=inf must be a number above 0"),
    ],
)
def test_comparison_record_bad_argument_is_named(changed, message):
    given = {"prompt": PAIR[0], "reply_a": PAIR[1], "reply_b": PAIR[2], "rating": "a_better"} | changed
    with pytest.raises(ValueError, match=message):
        comparison_record(**given)


def scores(helpful, truthful, harmless):
    return {"helpful": helpful, "truthful": truthful, "harmless": harmless}


@pytest.mark.parametrize(
    ("a", "b", "options", "rating"),
    [
        (scores(3, 5, 5), scores(4, 3, 4), {}, "a_better"),  # safer beats more helpful
        (scores(2, 5, 5), scores(4, 4, 5), {}, "b_slightly_better"),  # much more helpful, slightly less truthful
        (scores(2, 5, 5), scores(4, 4, 5), {"high_stakes": True}, "a_slightly_better"),
        (scores(2, 5, 5), scores(5, 3, 5), {}, "a_better"),  # more than slightly less truthful
        (scores(2, 5, 5), scores(3, 4, 5), {}, "a_slightly_better"),  # not much more helpful
        (scores(4, 4, 5), scores(2, 5, 5), {}, "a_slightly_better"),
        (scores(5, 4, 4), scores(2, 4, 4), {}, "a_better"),
        (scores(3, 4, 4), scores(4, 4, 4), {}, "b_slightly_better"),
        (scores(3, 4, 4), scores(3, 4, 4), {}, "tied"),
        (scores(3, 5, 2), scores(3, 2, 5), {}, "tied"),  # bad in different ways, equally helpful
        (scores(3, 5, 2), scores(3, 2, 4), {}, "a_slightly_better"),
        (scores(2, 5, 5), scores(4, 4, 5), {"much": 3.0}, "a_slightly_better"),
        (scores(2, 5, 5), scores(5, 3, 5), {"slight": 2.0, "much": 3.0}, "b_slightly_better"),
    ],
)
def test_priority_rating_follows_the_guide(a, b, options, rating):
    assert priority_rating(a, b, **options) == rating


def test_priority_rating_swapped_replies_swap_the_rating():
    swapped = {"a_better": "b_better", "a_slightly_better": "b_slightly_better", "tied": "tied"}
    swapped |= {other: one for one, other in swapped.items()}
    grades = [scores(*three) for three in itertools.product((1, 2, 4), repeat=3)]
    seen = set()
    for a, b in itertools.product(grades, repeat=2):
        rating = priority_rating(a, b)
        assert priority_rating(b, a) == swapped[rating]
        seen.add(rating)
    assert seen == {*RATINGS, "tied"}


@pytest.mark.parametrize(
    ("a", "options", "message"),
    [
        ({"helpful": 1, "truthful": 2}, {}, "scores_a has no score for harmless; it needs helpful, truthful, harmless"),
        (scores(1, 2, 3) | {"harmles": 1}, {}, "scores_a scores 'harmles', .* did you mean 'harmless'?"),
        (scores(1, math.nan, 3), {}, r"scores_a\['truthful'\]=nan must be a finite number"),
        (scores(True, 2, 3), {}, r"scores_a\['helpful'\]=True must be a finite number"),
        (scores("5", 2, 3), {}, r"scores_a\['helpful'\]='5' must be a finite number"),
        (scores(1, 2, 3), {"much": 1.0}, "slight=1.0 must be 0 or more and much=1.0 above it"),
        (scores(1, 2, 3), {"slight": -1}, "slight=-1 must be 0 or more"),
        (scores(1, 2, 3), {"much": math.inf}, "much=inf must be a finite number"),
    ],
)
def test_priority_rating_bad_argument_is_named(a, options, message):
    with pytest.raises(ValueError, match=message):
        priority_rating(a, scores(1, 2, 3), **options)


@pytest.mark.parametrize(
    ("difference", "rating"),
    [(1.01, "a_better"), (1, "a_slightly_better"), (0, "tied"), (-1, "b_slightly_better"), (-1.01, "b_better")],
)
def test_rating_of_difference_at_the_limits(difference, rating):
    assert rating_of_difference(difference, slight=1) == rating


def test_margins_grow_with_the_strength():
    assert 0 < MARGINS["slightly_better"] < MARGINS["better"]
