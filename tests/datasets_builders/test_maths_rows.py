"""Rows of problems: the options that a problem lists, and letters as answers."""

from __future__ import annotations

import pytest

from datasets_builders.schema import prompt_id, text_hash
from datasets_builders.source import Drop
from datasets_builders.sources import hendrycks_math, omega
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
        "A diagram. [1988 AIME-12.png](https://example.org/wiki/index.php/File:1988_AIME-12.png)",
        "See square.GIF for it.",
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


@pytest.mark.parametrize(
    "problem",
    [
        "Show that $EQ = FR$.",
        "Let $p$ be prime. Prove that $p + 1$ is even, in which $p > 2$.",
        "Prove: every such $n$ is at most 5.",
        "If $m$ is an integer then show that it is a square.",
    ],
)
def test_a_problem_that_asks_for_nothing_but_a_proof_is_dropped(problem: str) -> None:
    with pytest.raises(Drop, match="proof"):
        math_row(problem, "5", source="mine")


@pytest.mark.parametrize(
    "problem",
    [
        "Show that the series converges and find its sum.",
        "(a) Show that $x > 0$. (b) Which $x$ is least?",
        "Find the greatest $n$. Prove that there is no greater one.",
        "Find the least $n$, or prove that there is none.",
        "In what year will the census show that they are fewer? What is it?",
    ],
)
def test_a_problem_that_asks_for_more_than_a_proof_stays(problem: str) -> None:
    assert math_row(problem, "5", source="mine")["solution"] == "$5$"


@pytest.mark.parametrize(
    "problem",
    [
        "Find all such primes. Enter them separated by commas.",
        "What are the values of $x$?",
        "Find all integers $n$ with this property.",
        "How many are red and how many are blue, as a comma-separated pair?",
    ],
)
@pytest.mark.parametrize("answer", ["5,105", "$7,103$", "1,234,567"])
def test_commas_that_may_separate_answers_where_several_are_wanted_are_dropped(problem: str, answer: str) -> None:
    with pytest.raises(Drop, match="ambiguous_commas"):
        math_row(problem, answer, source="mine")


@pytest.mark.parametrize(
    ("problem", "answer", "gold"),
    [
        ("How many 5-digit numbers are there?", "5,105", "$5105$"),
        ("What is the sum of all the values of $x$?", "5,105", "$5105$"),
        ("Find all values, separated by commas.", "5, 105", "$5, 105$"),
        ("Find all values, separated by commas.", r"5,\!105", "$5105$"),
        ("Find all values, separated by commas.", "$5$,$105$", "$5, 105$"),
        ("Find all values, separated by commas.", "5105", "$5105$"),
        ("Find all values, separated by commas.", "0,105", "$0,105$"),
    ],
)
def test_commas_that_are_told_by_the_problem_or_the_answer_stay(problem: str, answer: str, gold: str) -> None:
    assert math_row(problem, answer, source="mine")["solution"] == gold


def test_choice_row_has_the_letter_and_the_options() -> None:
    row = choice_row(LETTERED, r"\textbf{(B)}", "B", source="mine", subject="Algebra")
    assert (row["task"], row["solution"]) == ("choice", "B")
    assert row["extra"] == r'{"answer": "\\textbf{(B)}", "choices": ["10", "15", "20"], "subject": "Algebra"}'
    with pytest.raises(Drop, match="no_choices"):
        choice_row(LETTERED, "D", "D", source="mine")


DETAILS = r"How many? <details>There are $\boxed{%s}$ of them.</details>"


@pytest.mark.parametrize(
    ("content", "answer"),
    [("573", "573"), ("573.0", "573"), (r"\dfrac12", "0.5"), (r"1{,}000", "1,000"), (r"\text{(1,2)}", "(1,2)")],
)
def test_a_problem_with_the_gold_in_a_box_is_dropped(content: str, answer: str) -> None:
    with pytest.raises(Drop, match="gold_in_prompt"):
        math_row(DETAILS % content, answer, source="mine")


@pytest.mark.parametrize(
    "problem",
    [
        DETAILS % "572",
        DETAILS % "",
        DETAILS % "?",
        DETAILS % r"\$",
        "Is it 573, or $573$? Put the 573 in a box: $\\boxed{}$.",
        r"How many? $\boxed{573",
        r"Fill in $573 = \boxed{\phantom{573}} + 1$.",
    ],
)
def test_a_problem_that_names_the_gold_out_of_a_box_stays(problem: str) -> None:
    assert math_row(problem, "573", source="mine")["prompt"] == [{"role": "user", "content": problem}]


def test_a_choice_whose_problem_holds_the_letter_in_a_box_is_dropped() -> None:
    for content in ("B", "(B)", r"\textbf{(B)}"):
        with pytest.raises(Drop, match="gold_in_prompt"):
            choice_row(f"It is $\\boxed{{{content}}}$. {LETTERED}", "B", "B", source="mine")


@pytest.mark.parametrize(
    "answer", ["B. 20", r"\textbf{(B)}\ 20", "(B) 10", "B: 15, C: 20", r"\text{(B) 1.5}", "B. 150"]
)
def test_a_choice_whose_answer_states_another_option_is_dropped(answer: str) -> None:
    with pytest.raises(Drop, match="disagreeing_choice"):
        choice_row(LETTERED, answer, "B", source="mine")


@pytest.mark.parametrize(
    "answer",
    ["B", "(B)", "B.", "B. 15", r"\textbf{(B)}\ 15", r"\text{(B) 15}", r"$\textbf{(B) } 15$", "(B) $15.0$."],
)
def test_a_choice_whose_answer_states_its_option_is_kept(answer: str) -> None:
    assert choice_row(LETTERED, answer, "B", source="mine")["solution"] == "B"


def test_a_choice_whose_answer_states_its_option_in_other_latex_is_kept() -> None:
    problem = r"Q? (A) $\frac{1}{2}$ (B) $1{,}000\%$ (C) None of these"
    for answer in (r"A. $\frac12$", r"A. \dfrac{1}{2}", "B. 1,000%", "C. none of these"):
        assert choice_row(problem, answer, answer[0], source="mine")["solution"] == answer[0]


@pytest.mark.parametrize("gap", [r"\quad ", "; ", r"\ ", "~", "\t"])
@pytest.mark.parametrize("times", [3, 100_000])
def test_gaps_around_options_are_taken_off_and_long_ones_come_to_an_end(gap: str, times: int) -> None:
    around = gap * times
    found = options(f"Q? (A){around}1{around}(B){around}2{around}(C){around}3{around}")
    assert found == (["1", "2", "3"] if times == 3 or gap == "\t" else None)


def test_math_row_without_a_problem_is_dropped() -> None:
    for problem in (None, "", " \n"):
        with pytest.raises(Drop, match="no_prompt"):
            math_row(problem, "5", source="mine")


def test_omega_comma_separates_answers_and_no_thousands() -> None:
    for answer, gold in (("100,200", "$100, 200$"), ("(1,234)", "$(1, 234)$"), ("1234", "$1234$")):
        row = omega.convert({"messages": [{"role": "user", "content": "Which?"}], "ground_truth": answer})
        assert row is not None
        assert row["solution"] == gold


def test_hendrycks_math_problems_that_differ_in_a_sign_have_two_ids() -> None:
    problems = (r"Compute $\sin 60^\circ$.", r"Compute $\sin (-60^\circ)$.")
    rows = [hendrycks_math.convert({"problem": problem, "solution": r"\boxed{1}"}) for problem in problems]
    assert [row["source_id"] for row in rows if row] == [prompt_id(problem) for problem in problems]
    assert text_hash(problems[0]) == text_hash(problems[1])
