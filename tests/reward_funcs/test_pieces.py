"""Unions of intervals and points, compared by what they cover."""

from __future__ import annotations

import pytest

from reward_funcs.latex import plain
from reward_funcs.pieces import same_pieces
from reward_funcs.reader import parse


def covers_the_same(gold: str, answer: str) -> bool | None:
    return same_pieces(parse(plain(gold)), parse(plain(answer)))


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"[0,1]\cup[1,2)", "[0,2)"),
        (r"(0,1)\cup[1,2)", "(0,2)"),
        (r"(0,1)\cup\{1\}\cup(1,2)", "(0,2)"),
        (r"(-\infty,2)\cup(3,\infty)", r"(3,\infty)\cup(-\infty,2)"),
        (r"\mathbb{R}", r"(-\infty,0)\cup[0,\infty)"),
        (r"(0,\sqrt{2})\cup(2,3)", r"(0,\frac{2}{\sqrt{2}})\cup(2,3)"),
        (r"\{1\}\cup\{2\}", r"\{2,1\}"),
        (r"(0,1)\cup(0,1]", "(0,1]"),
        (r"[0,3]\cup(1,2)", "[0,3]"),
    ],
)
def test_pieces_that_cover_the_same_are_the_same(gold, answer):
    assert covers_the_same(gold, answer) is True
    assert covers_the_same(answer, gold) is True


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"(0,1)\cup(1,2)", "(0,2)"),
        (r"[-1,1]\cup\{3\}", "[-1,1]"),
        (r"(-\infty,2)\cup(2,4)", r"(-\infty,2)\cup[2,4)"),
        (r"(0,1)\cup(2,3)", r"(0,1)\cup(2,3]"),
        (r"(0,1)\cup(2,\pi)", r"(0,1)\cup(2,3)"),
        (r"(0,1)\cup(2,\infty)", r"(0,1)\cup(2,10^{400})"),
        (r"\{1\}\cup\{2\}", "[1,2]"),
    ],
)
def test_pieces_that_cover_something_else_are_not(gold, answer):
    assert covers_the_same(gold, answer) is False
    assert covers_the_same(answer, gold) is False


@pytest.mark.parametrize("answer", [r"(0,1)\cup(a,3)", r"(0,1)\cup(3,2)", r"(0,1)\cup(i,2)", r"(0,1)\cup(1,2,3)"])
def test_pieces_without_ends_on_the_line_are_undecided(answer):
    assert covers_the_same(r"(0,1)\cup(2,3)", answer) is None
