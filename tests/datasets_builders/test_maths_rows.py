"""Rows of problems: the options that a problem lists, and letters as answers."""

from __future__ import annotations

import pytest

from datasets_builders.source import Drop
from datasets_builders.sources._maths import choice_letter, choice_row, labelled_letter, math_row, options

LETTERED = r"How many? $\textbf{(A)}\ 10 \qquad \textbf{(B)}\ 15 \qquad \textbf{(C)}\ 20$"


@pytest.mark.parametrize(
    ("problem", "texts"),
    [
        (LETTERED, ["10", "15", "20"]),
        (r"$\text{(A)} \ \frac12 \qquad \text{(B)} \ 2 \qquad \text{(C)} \ 3$", [r"\frac12", "2", "3"]),
        (r"Q $\text{(A)} \ 1$ $\text{(B)} \ 2$ $\text{(C)}\ 3$", ["1", "2", "3"]),
        (r"$\mathrm{(A)}\ x^{1/6}\qquad\mathrm{(B)}\ x^2\qquad\mathrm{(C)}\ x$", ["x^{1/6}", "x^2", "x"]),
        ("Pick (A) 1 (B) 2 (C) 3", ["1", "2", "3"]),
        ("Q\nA. one\nB. two\nC. three\nD. four", ["one", "two", "three", "four"]),
        ("Q\n\nA: $1$\n\nB: $2$\n\nC: $3$\n\nFrom a test of 2020", ["$1$", "$2$", "$3$"]),
        ("Go from (A) to (B). (A) a (B) b (C) c", ["a", "b", "c"]),
    ],
)
def test_options_are_told_in_the_common_styles(problem: str, texts: list[str]) -> None:
    assert options(problem) == texts


@pytest.mark.parametrize(
    "problem",
    [
        "No options.",
        "Let (A) and (B) be points.",
        "(A) 1 (C) 2 (D) 3",
        "(A) 1 (B) 2 (B) 3",
        "(A) 5 (B) 5 (C) 7",
        "(A) 5 (B) (C) 7",
        "Lines A, B and C meet.",
        "(A) 1 (B) 2 (C) " + "3" * 1000,
    ],
)
def test_options_that_are_not_sure_are_none(problem: str) -> None:
    assert options(problem) is None


@pytest.mark.parametrize(
    ("answer", "alone", "labelled"),
    [
        ("C", "C", "C"),
        ("(C)", "C", "C"),
        (r"$\textbf{(C)}$", "C", "C"),
        (r"\text{C}", "C", "C"),
        (r"\textbf{(C)}\ 5", None, "C"),
        ("C. 5", None, "C"),
        ("(C) 5", None, "C"),
        ("CD", None, None),
        ("C_1", None, None),
        ("c", None, None),
        ("5", None, None),
    ],
)
def test_letter_of_an_answer(answer: str, alone: str | None, labelled: str | None) -> None:
    assert choice_letter(answer) == alone
    assert labelled_letter(answer) == labelled


@pytest.mark.parametrize(
    "problem",
    [
        "Which point is it, $A$ or $B$?",
        "Which of (A) and (B) is it?",
        "Which letter of ABCABC comes tenth?",
        "Choose.\n(a) one\n(b) two",
        "Point A is here. Which point is there?",
        "Choose.\nA. one\nB. two",
    ],
)
def test_a_letter_that_the_problem_names_is_an_answer(problem: str) -> None:
    assert math_row(problem, "A", source="mine")["solution"] == "$A$"


@pytest.mark.parametrize("problem", ["A crate is full. What now?", "What is a crate?", "Is it so? A man asks."])
def test_a_letter_that_the_problem_does_not_name_is_dropped(problem: str) -> None:
    with pytest.raises(Drop, match="no_choices"):
        math_row(problem, "A", source="mine")


@pytest.mark.parametrize(
    "text",
    [
        " " * 100_000 + "A.",
        "(A) " * 20_000,
        "A. x\n" * 20_000,
        "(A) x (B) y (C) " + ", " * 50_000 + "z",
        "![" * 30_000,
        "a" + " " * 100_000 + "b",
        "(" * 50_000 + "A",
    ],
)
def test_hostile_problems_come_to_an_end(text: str) -> None:
    assert options(text) in (None, ["x", "y", "z"])
    try:
        assert math_row(text, "A", source="mine")["solution"] == "$A$"
    except Drop as drop:
        assert drop.reason == "no_choices"


@pytest.mark.parametrize(
    "problem",
    [
        "How big is it? ![](https://example.org/a.png)",
        "![Image](https://example.org/b.jpg)\nHow big is it?",
        "![Image 2](6740) How big is it?",
        "![the square](square.png) How big is it?",
        'See <img src="a.png">.',
        "See <image>.",
        r"\includegraphics{a}",
    ],
)
def test_a_problem_with_a_picture_is_dropped(problem: str) -> None:
    with pytest.raises(Drop, match="figure"):
        math_row(problem, "5", source="mine")
    with pytest.raises(Drop, match="figure"):
        choice_row(f"{problem}\n(A) 1 (B) 2 (C) 3", "B", "B", source="mine")


def test_a_problem_with_drawing_code_or_a_factorial_stays() -> None:
    for problem in ("[asy] draw((0,0)--(1,1)); [/asy] How long is it?", "What is $5![3](4)$?", "Figure it out!"):
        assert math_row(problem, "5", source="mine")["prompt"] == [{"role": "user", "content": problem}]


def test_choice_row_has_the_letter_and_the_options() -> None:
    row = choice_row(LETTERED, r"\textbf{(B)}", "B", source="mine", subject="Algebra")
    assert (row["task"], row["solution"]) == ("choice", "B")
    assert row["extra"] == r'{"answer": "\\textbf{(B)}", "choices": ["10", "15", "20"], "subject": "Algebra"}'
    with pytest.raises(Drop, match="no_choices"):
        choice_row(LETTERED, "D", "D", source="mine")


def test_math_row_without_a_problem_is_dropped() -> None:
    for problem in (None, "", " \n"):
        with pytest.raises(Drop, match="no_prompt"):
            math_row(problem, "5", source="mine")
