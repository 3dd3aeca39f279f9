"""Answers that are refused by their form, found without computing anything."""

from __future__ import annotations

import pytest

from reward_funcs.grading import accuracy_reward
from reward_funcs.latex import plain
from reward_funcs.refusals import form_fault, is_too_complex, is_unevaluated


@pytest.mark.parametrize(
    "answer",
    [
        r"\sum_{k=1}^5 1", r"\prod_{k}k", r"\int_0^1 x", r"\iint", r"\oint x", r"\lim_{x\to 0}x", r"\gcd(4,6)",
        r"\max(1,5)", r"\min\{5,6\}", r"\operatorname{lcm}(1,5)", r"\text{gcd}(5,10)", r"\mathrm{lcm}(5,5)",
        "gcd(5,10)", "∑ 1", "∫ 1", r"17 \bmod 12", r"\det A",
    ],
)  # fmt: skip
def test_unevaluated_instruction_is_no_answer_to_a_number(answer: str) -> None:
    assert is_unevaluated("5", answer)
    assert not is_unevaluated(answer, answer)
    assert accuracy_reward.settle("5", plain(answer)).equal is False


@pytest.mark.parametrize(
    "answer",
    [
        "5", "2+3", "2^3", r"\sqrt{25}", r"\log_2 32", "5!", r"\binom52", r"\sin x", r"\text{maximum}", "minimum 5",
        "x",
    ],
)  # fmt: skip
def test_unevaluated_arithmetic_powers_roots_and_logs_are_answers(answer: str) -> None:
    assert not is_unevaluated("5", answer)


@pytest.mark.parametrize(
    ("gold", "answer", "fault"),
    [
        ("5", "5", ""), ("5", "x=5", ""), ("5", "5=x", ""), ("5", "4=5", "inconsistent"),
        ("5", "x=4=5", "inconsistent"), ("5", "2x=10", "unsolved"), ("5", "x<6", "unsolved"),
        ("5", "x^2=25", "unsolved"), ("5", "5,6", "several_answers"), ("5", "5 or 6", "several_answers"),
        ("1,2", "1 or 2", ""), ("x=5", "2x=10", "unsolved"), ("y=2x", "2x-y=0", ""), (r"\{1,2\}", "1,2", ""),
        ("5", "@=5", "unsolved"), ("5", "@ or 5", "several_answers"),
    ],
)  # fmt: skip
def test_form_fault_names_what_is_left_to_the_grader(gold: str, answer: str, fault: str) -> None:
    assert form_fault(gold, answer) == fault


@pytest.mark.parametrize(
    "answer",
    [
        "9^{9^{9^9}}", "2^{1000000}", "10000000!", "5!!!", r"\binom{100000}{3}", "7" * 400, "(" * 21 + "1" + ")" * 21,
        "10^{-999999}",
    ],
)  # fmt: skip
def test_too_complex_is_found_in_the_text_alone(answer: str) -> None:
    assert is_too_complex(answer)
    assert accuracy_reward.settle("5", plain(answer)).equal is False


@pytest.mark.parametrize(
    "answer",
    [
        "5", "2^{100}", "100!", r"\binom{100}{50}", r"\frac{1}{1+\frac{1}{1+\frac12}}", "2^{2023}", "1" * 100,
    ],
)  # fmt: skip
def test_too_complex_leaves_what_people_write(answer: str) -> None:
    assert not is_too_complex(answer)
