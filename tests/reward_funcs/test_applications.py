"""Golds that state a relation of function values: which answers say the same."""

from __future__ import annotations

import pytest

from reward_funcs._applications import applications, with_symbols
from reward_funcs.grading import accuracy_reward
from reward_funcs.pool import close_pools


@pytest.fixture(scope="module", autouse=True)
def _workers_end_with_the_module():
    yield
    close_pools()


def rewards(pairs: list[tuple[str, str]]) -> list[float | None]:
    return accuracy_reward([rf"\boxed{{{answer}}}" for _, answer in pairs], solution=[f"${gold}$" for gold, _ in pairs])


SAME = [
    (r"\gcd(m,n)=1", r"\gcd(m,n)=1"),
    (r"\gcd(m,n)=1", r"1 = \gcd(n, m)"),
    (r"\gcd(m,n)=1", r"\gcd\left(m,n\right)=1"),
    (r"\gcd(m,n)=1", "1"),
    ("f(8) > 2022 f(0)", "f(8) > 2022f(0)"),
    ("f(8) > 2022 f(0)", "2022 f(0) < f(8)"),
    ("f(0) + f(1) = 1", "f(1)+f(0)=1"),
    ("f(8)=5", "5"),
    ("f(0.5)=3", r"f\left(\frac12\right)=3"),
    ("f(x)=x", "x"),
    ("p'(x) = nq(x)", "p'(x) = nq(x)"),
    (r"\det(A) > 0", r"\det(A)>0"),
    ("P(X=2)=0.5", r"P(X=2)=\frac{1}{2}"),
    (r"\tau(8)=2\tau(3)", r"\tau(8)=2\tau(3)"),
    # products
    ("p(p+1)=6", "p^2+p=6"),
    ("x=2(3)", "x=6"),
    (r"A=\frac{1}{2}h(a+b)", r"A=\frac{h a+h b}{2}"),
    ("x=k(2)", "x=2k"),
]
OTHER = [
    (r"\gcd(m,n)=1", r"\gcd(m,n)=7"),
    (r"\gcd(m,n)=1", r"\gcd(m,k)=1"),
    (r"\gcd(m,n)=1", "7"),
    ("f(8) > 2022 f(0)", "f(9) > 2022 f(0)"),
    ("f(8) > 2022 f(0)", "f(8) > 2021 f(0)"),
    ("f(8) > 2022 f(0)", r"f(8) \ge 2022 f(0)"),
    ("f(8) > 2022 f(0)", "2022"),
    ("f(0) + f(1) = 1", "f(0)+f(2)=1"),
    ("f(0) + f(1) = 1", "f(0)+f(1)=2"),
    ("f(x,y)=x-y", "f(y,x)=x-y"),
    ("f(f(8)) > f(0)", "f(f(9)) > f(0)"),
    ("p'(x) = nq(x)", "p'(x) = nq(y)"),
    (r"\det(A) > 0", r"\det(B) > 0"),
    (r"\tau(8) > 2\tau(3)", r"\tau(9) > 2\tau(3)"),
    ("s(8)=3", "s(9)=3"),
    ("P(X=2)=0.5", "P(X=3)=0.5"),
    ("f_1(2)=3", "f_2(2)=3"),
]


@pytest.mark.parametrize(("pairs", "wanted"), [(SAME, 1.0), (OTHER, 0.0)])
def test_relation_of_function_values_matches_as_a_whole(pairs: list[tuple[str, str]], wanted: float) -> None:
    found = dict(zip(pairs, rewards(pairs), strict=True))
    assert {pair: reward for pair, reward in found.items() if reward != wanted} == {}


def test_repeated_solution_counts_once() -> None:
    assert rewards([("-2,-2", "-2"), ("-2", "-2,-2"), ("-2,-2", "2"), ("(-2,-2)", "-2")]) == [1.0, 1.0, 0.0, 0.0]


def test_applications_are_functions_of_something_and_no_products() -> None:
    text = r"f(8) + g'(x+1) = \gcd(m,n) + p(p+1) + 2(3) + \text{of}(3) + \left(x\right)"
    assert [one[:2] for one in applications(text)] == [("f", "8"), ("g'", "x+1"), (r"\gcd", "m,n")]


def test_with_symbols_leaves_golds_without_a_relation_and_long_texts() -> None:
    for pair in (("f(8)", "f(9)"), ("x + 1", "f(x) = x + 1"), ("f(8)=5", "f(9)=" + "1" * 400)):
        assert with_symbols(*pair) == pair


def test_with_symbols_takes_none_that_the_texts_hold() -> None:
    assert with_symbols(r"f(8)=\xi", r"f(8)=\xi") == (r"\eta =\xi", r"\eta =\xi")


def test_with_symbols_leaves_more_applications_than_symbols() -> None:
    gold = "+".join(f"f({number})" for number in range(9)) + "=1"
    assert with_symbols(gold, gold) == (gold, gold)
