"""Answers that a policy under pressure would try, and right ones in forms that graders miss."""

from __future__ import annotations

import numpy as np
import pytest

from reward_funcs import AccuracyReward, NumericReward, accuracy_reward

WRONG = [
    ("y=2x+3", "x+y=\\infty-\\infty"),
    ("\\sqrt2\\cdot10^{200}\\cdot10^{200}", "\\sqrt3\\cdot10^{200}\\cdot10^{200}"),
    ("\\pi^{500}e^{500}", "\\pi^{500}e^{501}"),
    ("\\infty", "\\pi^{500}e^{500}"),
    ("30^\\circ", "?"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "?"),
    ("|x|+|y|=1", "1=1"),
    ("z^2=-1", "1=1"),
    ("x^2+1=0", "x^2+4=0"),
    ("x^2+x+1=0", "x^2+x+7=0"),
    ("a=b=c", "c=c=c"),
    ("5", "5\\text{ cm} | 6\\text{ cm}"),
    ("5", "5\\text{ apples}\\to 6\\text{ pears}"),
    ("5", "5\\text{ cm}\\&+3\\text{ cm}"),
    ("\\{1,2\\}", "\\{1,2\\}\\text{ maybe }\\{1,3\\}"),
    ("[0,1)", "[0,1)\\text{ (}[0,1]\\text{)}"),
    ("x=5", "x=6 \\lor x=5"),
    ("x=5", "x=6 \\not= x=5"),
    ("x=5", "x=6 \\text{ maybe } x=5"),
    ("103", "1+2+\\ldots+100"),
    ("x^2+1", "x^2+1_{x^2-1}"),
    ("x^2+1", "x^2+1 \\approx x^2-1"),
    ("B", "A \\approx B"),
    ("12:30", "12:30_{1:30}"),
    ("5", "5\\text{ million dollars}"),
    ("5", "5\\text{ halves}"),
    ("5", "5\\text{ factorial}"),
    ("5", "5\\text{ oder sechs}"),
    ("5", "5\\text{ square root}"),
    ("5", "5\\text{ dozen eggs}"),
    ("1234567", "1234568+0.0"),
    ("10000001", "1.0\\times10^7"),
    ("x=2,y=3", "3,2"),
    ("DACB", "ABCD"),
    ("NaCl", "ClNa"),
    ("top", "pot"),
    ("9:24", "\\frac38"),
    ("10:30", "1:3"),
    ("5", "|x|=5"),
    ("5", "x\\cdot2=5"),
    ("xy=1", "1"),
    ("80\\text{ cents}", "80^\\circ"),
    ("\\$50", "50\\%"),
    ("\\frac{\\pi}{4}", "\\frac{\\pi}{4}^\\circ"),
    ("5", "\\frac{\\mathrm d}{\\mathrm dx}5x"),
    ("8\\pi", "8\\pi \\approx 30"),
    ("4", "\\gcd(8,12)=5"),
    ("2", "√12"),
    ("a^2+b^2=c^2", "a^2+b^2=2c^2"),
]
RIGHT = [
    ("5000000", "5\\text{ million dollars}"),
    ("5000000", "\\$5\\text{ million}"),
    ("x=2,y=3", "2,3"),
    ("12:30", "12:30"),
    ("5", "f(3)=5"),
    ("5", "|AB|=5"),
    ("8\\pi", "8\\pi \\approx 25.13"),
    ("25.13", "x\\approx 25.13"),
    ("5", "5 apples"),
    ("5", "\\text{5 ways}"),
    ("5", "\\textbf{(B)}\\ 5"),
    ("4", "\\gcd(8,12)=4"),
    ("2", "\\int_0^2 1\\,dx=2"),
    ("15", "\\sum_{k=1}^5 k=15"),
    ("5", "f_{\\max}=5"),
    ("\\begin{pmatrix}1/5\\\\2/5\\end{pmatrix}", "\\frac15\\begin{pmatrix}1\\\\2\\end{pmatrix}"),
    ("2\\sqrt3", "√12"),
    ("1024", "2¹⁰"),
    ("5", "\\ 5\\ "),
    ("5", "\\boldsymbol{5}"),
    ("5", "\\therefore x=5"),
    ("(-\\infty,1)\\cup(2,\\infty)", "x<1 \\text{ or } x>2"),
    ("2x=3y", "y=\\frac{2}{3}x"),
    ("y=\\frac{2}{x}", "xy=2"),
]


@pytest.mark.parametrize(("gold", "answer"), WRONG)
def test_accuracy_wrong_answer_in_a_misleading_form_scores_zero(gold, answer):
    assert accuracy_reward([rf"\boxed{{{answer}}}"], solution=[gold]) == [0.0]


@pytest.mark.parametrize(("gold", "answer"), RIGHT)
def test_accuracy_right_answer_in_an_unusual_form_scores_one(gold, answer):
    assert accuracy_reward([rf"\boxed{{{answer}}}"], solution=[gold]) == [1.0]


@pytest.mark.parametrize(
    "text",
    [
        "Answer: $5$ or $6$",
        "Answer: $5$, $6$",
        "the answer is $x=5$ or $x=6$",
        r"\boxed{5} or 6",
        r"$\boxed{5}$ or $6$",
    ],
)
def test_accuracy_stated_alternatives_are_a_hedge(text):
    assert accuracy_reward([text], solution=["5"]) == [0.0]


@pytest.mark.parametrize(
    "text", ["The answer is $5$. Or so.", r"\boxed{5} or so", "The final answer is $5$, as shown."]
)
def test_accuracy_words_after_the_answer_are_no_hedge(text):
    assert accuracy_reward([text], solution=["5"]) == [1.0]


def test_accuracy_garbage_is_wrong_whatever_the_gold():
    golds = [
        r"30^\circ",
        r"\begin{pmatrix}1\\2\end{pmatrix}",
        "5",
        "x+1",
        "(1,2)",
        r"\text{Sunday}",
        "y=2x+3",
        r"[0,\infty)",
    ]
    for answer in ("?", r"\heartsuit", "", "}{", r"\begin{pmatrix}"):
        assert accuracy_reward([rf"\boxed{{{answer}}}"] * len(golds), solution=golds) == [0.0] * len(golds)


def test_accuracy_golds_of_odd_types_are_read_or_bad():
    golds = [np.float32(0.1), np.int64(5), 10**5000, np.array([5]), float("nan")]
    answers = ["0.1", "5", "5", "5", "5"]
    rewards = accuracy_reward([rf"\boxed{{{answer}}}" for answer in answers], solution=golds)
    assert rewards == [1.0, 1.0, None, 1.0, None]


def test_numeric_absolute_tolerance_survives_what_is_no_number():
    assert NumericReward(abs_tol=0.1)([r"\boxed{\infty-\infty}", r"\boxed{\infty}"], solution=["5", "5"]) == [0.0, 0.0]


def test_accuracy_unsolved_equations_are_taken_with_their_setting():
    reward = AccuracyReward(allow_unsolved=True, name="generous")
    texts = [r"\boxed{x+1=6}", r"\boxed{4=5}", r"\boxed{x+1=7}", r"\boxed{5=4}"]
    assert reward(texts, solution=["5"] * 4) == [1.0, 1.0, 0.0, 0.0]


def test_accuracy_prefilters_are_skipped_with_their_setting():
    reward = AccuracyReward(skip_prefilters=True, name="unfiltered", timeout=1.0)
    answers = [r"x^{2^{3^{4^{5}}}}", r"x^2+1 \mid y", r"\frac{x}{\aleph + \ldots}"]
    texts, golds = [rf"\boxed{{{answer}}}" for answer in answers], ["x+1"] * 3
    seen: dict[str, list[str]] = {}
    assert reward(texts, solution=golds, log_extra=seen.__setitem__) == [0.0] * 3
    assert "too_complex" not in seen["unfiltered/reason"]
    accuracy_reward(texts, solution=golds, log_extra=seen.__setitem__)
    assert seen["accuracy_reward/reason"][0] == "too_complex"
