"""Texts that hold another one whole."""

from __future__ import annotations

import pickle

import pytest

from datasets_builders.containment import Contained, mark, plain_maths, spaced_maths

PROBLEM = r"Find the sum $\frac{1}{2} + \left(x \le 3\right)$, please."


def holds(text: str, problem: str = PROBLEM) -> bool:
    return bool(Contained(filter(None, [mark(problem)])).found(text))


@pytest.mark.parametrize(
    "text",
    [
        r"find the sum \(\dfrac{1}{2}+(x \leq 3)\), please",
        r"Find the sum \[ \tfrac{1}{2} \, + \big( x\le3 \big) \], please!",
        "Find\u200b the\u00a0sum $\\frac{1}{2} + (x \\le 3)$, please.",
        "Ｆｉｎｄ the sum $\\displaystyle\\frac{1}{2} + (x~\\le 3)$, please.",
        f"A remark: {PROBLEM} Another remark.",
    ],
)
def test_text_in_another_setting_is_found(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        r"Find the sum $\frac{1}{3} + (x \le 3)$, please.",
        r"Find the sum $\frac{1}{2} + (x \ge 3)$, please.",
        r"Refind the sum $\frac{1}{2} + (x \le 3)$, please.",
        r"Find the sum $\frac{1}{2} + (x \le 3)$, pleased.",
        r"Find the sum $\frac{1}{2} + (x \le 3)$,",
    ],
)
def test_other_text_is_not_found(text: str) -> None:
    assert not holds(text)


def test_commands_that_begin_alike_stay() -> None:
    kept = r"\leftarrow \rightarrow \leqslant \bigcup \qquads \\[2pt] \fracture"
    assert plain_maths(kept) == kept
    assert plain_maths(r"32,\!000 \$5 a\quad b\,c") == "32,000 5 a  b c"


def test_spaces_around_operators_and_in_brackets_go() -> None:
    assert spaced_maths("f( x ) = 2 * x , ( a,b ) is well - known .") == "f(x)=2*x, (a, b) is well-known."


def test_texts_of_other_scripts_are_found_between_marks() -> None:
    problem = "求最大的整数使得不等式成立"
    assert holds(f"请回答。{problem}。谢谢", problem)
    assert holds(f"{problem}", problem)
    assert not holds(f"{problem[:-1]}", problem)
    assert not holds(f"已知{problem}", problem)


def test_short_text_and_half_a_surrogate_pair_come_to_an_end() -> None:
    assert mark("1 + 1 = ?") is None and mark("") is None
    assert holds("a \ud800 b. " + PROBLEM) and not holds("\ud800" * 1000)
    assert mark("\ud800 find the least number") is not None


def test_two_texts_of_one_beginning_are_told_apart_and_pickle() -> None:
    texts = ["Find the sum of all the numbers.", "Find the sum of all the numbers that are odd."]
    marks = [one for one in map(mark, texts) if one is not None]
    known = pickle.loads(pickle.dumps(Contained([*marks, *marks])))
    assert known.found(texts[0]) == {marks[0].digest}
    assert known.found(texts[1]) == {one.digest for one in marks}
    assert Contained([]).found(texts[0]) == set()


def test_very_long_texts_come_to_an_end() -> None:
    assert not holds("Find the sum " * 50_000)
    assert not holds("\\left(" * 100_000 + "$" * 100_000 + "x" * 100_000)
    assert holds("1 " * 100_000 + PROBLEM)
    assert not holds("Evaluate it all " * 30_000, "Evaluate it all")
