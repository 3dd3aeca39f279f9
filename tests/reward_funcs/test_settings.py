"""Settings of every reward: a wrong type or value is refused with a sentence that names the argument."""

import math

import pytest

from reward_funcs import AsyncReward, Gate, Sum
from reward_funcs._settings import check_flag, check_name, check_setting
from reward_funcs.choice import ChoiceReward
from reward_funcs.countdown import CountdownReward
from reward_funcs.format import CodeBlockFormatReward, TagCountReward, ThinkFormatReward
from reward_funcs.length import CosineLengthReward
from reward_funcs.repetition import RepetitionPenaltyReward
from reward_funcs.text import ExactMatchReward, exact_match_reward


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [
        ({"least": 1, "whole": True}, "a whole number of at least 1"),
        ({"least": 0, "below": 1}, "a finite number of at least 0 and below 1"),
        ({"most": 0}, "a finite number of at most 0"),
        ({}, "a finite number"),
    ],
)
@pytest.mark.parametrize("value", ["1", None, True, math.nan, math.inf, -math.inf, [1]])
def test_check_setting_refused_value_names_what_is_allowed(limits, allowed, value):
    with pytest.raises(ValueError, match=rf"size=.*: it must be {allowed}; leave it out for the default"):
        check_setting("size", value, **limits)


def test_check_setting_limits_belong_to_what_is_allowed_but_below():
    assert check_setting("size", 0, 0, most=0) == 0
    assert check_setting("size", -2.5) == -2.5
    assert check_setting("size", 10**400, 1, whole=True) == 10**400
    for value, limits in ((0, {"least": 1}), (1, {"below": 1}), (0.5, {"most": 0}), (2.0, {"whole": True})):
        with pytest.raises(ValueError, match="size="):
            check_setting("size", value, **limits)


@pytest.mark.parametrize("value", ["no", 0, 1, None])
def test_check_flag_refuses_all_but_bools(value):
    assert check_flag("use_all", False) is False
    with pytest.raises(ValueError, match=r"use_all=.*True or False"):
        check_flag("use_all", value)


@pytest.mark.parametrize("value", [None, 5, "", " ", b"x"])
def test_check_name_refuses_all_but_filled_texts(value):
    assert check_name("column", "answer") == "answer"
    with pytest.raises(ValueError, match=r"column=.*a name"):
        check_name("column", value)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *((ExactMatchReward, {"solution_column": value}) for value in (None, 5, "")),
        *((ChoiceReward, {column: ""}) for column in ("solution_column", "choices_column", "extra_column")),
        *((CountdownReward, {column: 5}) for column in ("solution_column", "target_column", "nums_column")),
        *((kind, {"name": value}) for kind in (ExactMatchReward, ThinkFormatReward) for value in (5, "")),
        *((ChoiceReward, {"index_base": value}) for value in (True, 0.0, 2, "0")),
        *((CosineLengthReward, {"min_value_wrong": value}) for value in ("a", None, True)),
        *((RepetitionPenaltyReward, {"max_penalty": value}) for value in ("a", None, 0.5)),
        *((CountdownReward, {"format_score": value}) for value in ("a", None, 1.0)),
        *((CountdownReward, {"use_all": "no"}), (ThinkFormatReward, {"require_answer": "no"})),
        *((ThinkFormatReward, {"allow_empty": 0}), (CodeBlockFormatReward, {"exactly_one": 1})),
        *((CodeBlockFormatReward, {"language_column": ""}), (TagCountReward, {"tags": 5})),
        *((ExactMatchReward, {flag: "no"}) for flag in ("normalize", "ignore_case", "ignore_punctuation")),
    ],
)
def test_reward_wrong_setting_names_the_argument(kind, settings):
    (argument,) = settings
    with pytest.raises(ValueError, match=argument):
        kind(**settings)


def test_composition_wrong_setting_names_the_argument():
    for make, named in (
        (lambda: Gate(exact_match_reward, exact_match_reward, whole_batch="no"), "whole_batch='no'"),
        (lambda: Sum([exact_match_reward], weights=1.0), "weights=1.0"),
        (lambda: Sum([exact_match_reward], name=5), "name=5"),
        (lambda: AsyncReward(exact_match_reward, name=""), "name=''"),
    ):
        with pytest.raises(ValueError, match=named):
            make()
