"""Values of trees, and what kind of thing a tree is."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from reward_funcs.evaluate import Rounding, Undecided, evaluate, points
from reward_funcs.forms import is_name, is_plain_number, kinds, known_unit, number, number_tree, variables, words
from reward_funcs.latex import plain
from reward_funcs.reader import parse

# values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5), ("-5", -5), ("1/3", Fraction(1, 3)), ("2^{100}", 2**100), ("2^{-3}", Fraction(1, 8)),
        ("0.1+0.2", Fraction(3, 10)), (r"\sqrt{\frac49}", Fraction(2, 3)), ("4^{3/2}", 8), (r"\sqrt[3]{-27}", -3),
        ("10!", 3628800), (r"\binom{10}{3}", 120), (r"\log_2 1024", 10), (r"\log_{10}\frac{1}{100}", -2),
        (r"\lfloor -2.5\rfloor", -3), (r"\lceil -2.5\rceil", -2), (r"50\%", Fraction(1, 2)),
    ],
)  # fmt: skip
def test_evaluate_rational_expression_is_exact(text: str, value: Any) -> None:
    result = evaluate(parse(plain(text)), {}, Rounding())
    assert isinstance(result, Fraction) and result == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"\pi", math.pi), ("e^2", math.e**2), (r"\sqrt2", 2**0.5), (r"\sin 1", math.sin(1)),
        (r"\arctan 2", math.atan(2)), (r"\ln 3", math.log(3)), (r"\sin 90^\circ", 1.0), (r"\sinh 1", math.sinh(1)),
        (r"\sec 1", 1 / math.cos(1)), (r"\sqrt[3]{2}", 2 ** (1 / 3)), ("(1+i)^2", 2j), ("|3+4i|", 5.0),
    ],
)  # fmt: skip
def test_evaluate_closed_form_is_its_float(text: str, value: complex) -> None:
    assert complex(evaluate(parse(plain(text)), {}, Rounding())) == pytest.approx(value, rel=1e-14)


@pytest.mark.parametrize(
    "text",
    [
        "x", "9^{9^9}", "10000!", r"\binom{10^9}{5}", r"\ln 0", r"\arcsin 2", "(1,2)", "0^{-1}", r"\tan 90^\circ",
        "(1/2)!",
    ],
)  # fmt: skip
def test_evaluate_what_cannot_be_computed_safely_is_undecided(text: str) -> None:
    with pytest.raises((Undecided, ArithmeticError)):
        evaluate(parse(plain(text)), {}, Rounding())


def test_points_are_the_same_in_every_call_and_for_every_set_of_names() -> None:
    alone, together = points(frozenset("x")), points(frozenset("xyz"))
    assert [point["x"] for point in alone] == [point["x"] for point in together]
    assert len({point["x"] for point in alone}) == len(alone) >= 4
    assert all(isinstance(value, Fraction) for point in points(frozenset("nk"), "whole") for value in point.values())


# forms


def test_kinds_and_variables_name_what_is_in_a_tree() -> None:
    tree = parse(plain(r"\frac{x_1+0.5}{\pi} \sin y"))
    assert variables(tree) == {"x_1", "y"}
    assert {"div", "decimal", "fn:sin", "sym:pi"} <= kinds(tree)
    assert variables(parse("e+i")) == frozenset()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("x", True), ("AB", True), ("f(x)", True), ("|AB|", True), (r"\pi", False), ("e", False), ("5", False),
        ("2x", False), ("x+1", False),
    ],
)  # fmt: skip
def test_is_name_tells_symbols_from_values(text: str, named: bool) -> None:
    assert is_name(parse(text)) is named


@pytest.mark.parametrize(
    ("text", "is_number"),
    [
        ("5", True), ("1/2", True), (r"\sqrt2", True), ("x", False), ("5 cm", False), ("(1,2)", False),
        ("x=5", False), ("even", False),
    ],
)  # fmt: skip
def test_is_plain_number_has_no_unit_and_no_variable(text: str, is_number: bool) -> None:
    assert is_plain_number(parse(plain(text))) is is_number


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("cm", "cm^1"), ("centimeters", "cm^1"), ("cm^2", "cm^2"), ("square centimeters", "cm^2"), ("sq cm", "cm^2"),
        ("cubic feet", "ft^3"), ("inches", "in^1"), ("feet", "ft^1"), ("hours", "h^1"), ("miles per hour", "mph^1"),
        ("km/h", "km/h^1"), ("meters per second", "m/s^1"), ("apples", None), ("", None),
    ],
)  # fmt: skip
def test_known_unit_has_one_name(name: str, unit: str | None) -> None:
    assert known_unit(name) == unit


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5), ("$5$", 5), ("x = 5", 5), (r"5\text{ cm}", 5), (r"\$1,234.50", Fraction(2469, 2)),
        ("3/4", Fraction(3, 4)), (r"50\%", 50), ("x", None), ("(1,2)", None), ("1,2", None), ("even", None),
        ("", None), ("@", None), (r"\infty", None), ("i", None), (r"\frac10", None),
    ],
)  # fmt: skip
def test_number_tree_is_that_of_a_number_or_none(text: str, value: Fraction | None) -> None:
    tree = number_tree(text)
    assert (None if tree is None else number(tree)) == value


def test_number_tree_hostile_nesting_is_none_or_a_tree() -> None:
    for text in (
        "-" * 990 + "1",
        "+" * 990 + "1",
        "5" + "!" * 900,
        "x^" + "-" * 950 + "1",
        "2/" + "-" * 900 + "1",
        "1" + "+1" * 490,
        "(" * 450 + "1" + ")" * 450,
    ):
        number_tree(text)


def test_words_of_products_are_their_letters() -> None:
    assert words(parse(r"\text{Red Blue}")) == words(("text", "redblue")) == "redblue"
    assert words(("mul", ("sym", "a"), ("sym", "B"))) == "ab"
    assert words(parse("5")) is None
