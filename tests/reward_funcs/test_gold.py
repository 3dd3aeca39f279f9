"""Golds as data sets write them."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from reward_funcs.gold import gold_texts


@pytest.mark.parametrize(
    "gold",
    [
        "42", " 42 ", "$42$", "$$42$$", r"\(42\)", r"\[42\]", r"\boxed{42}", r"$\boxed{42}$", "42.", "#### 42",
        "42\n", "6*7=42\n#### 42", r"First \boxed{41}, then so it is $\boxed{42}$.", "<<6*7=42>>42 eggs\n#### 42",
        "####42", 42, 42.0, Decimal(42), Decimal("42.0"), Fraction(42), np.int64(42), np.float64(42), np.array(42),
        torch.tensor(42), ["42"], ("42",), [42], [r"\boxed{42}"], [None, "42"], ["", "42", float("nan")],
        np.array([42]),
    ],
    ids=repr,
)  # fmt: skip
def test_gold_texts_every_form_of_42_is_42(gold: Any) -> None:
    assert gold_texts(gold) == ("42",)


@pytest.mark.parametrize(
    ("gold", "texts"),
    [
        (r"\frac{1}{2}", (r"\frac{1}{2}",)), (0.5, ("0.5",)), (-3, ("-3",)), (Fraction(1, 2), ("1/2",)),
        (1e-7, ("1e-07",)), (["1", "2"], ("1", "2")), ((1, 2.5), ("1", "2.5")),
        (r"\boxed{1} or \boxed{2}", ("1, 2",)), ("1,234", ("1,234",)), (10**30, (str(10**30),)),
        ("#### 1,234", ("1,234",)), (np.array([1.5, 2.0]), ("1.5", "2")), (0, ("0",)), ("(A) 5", ("(A) 5",)),
        ("x = 5", ("x = 5",)), ("-0", ("-0",)),
    ],
    ids=repr,
)  # fmt: skip
def test_gold_texts_keeps_one_text_an_entry(gold: Any, texts: tuple[str, ...]) -> None:
    assert gold_texts(gold) == texts


@pytest.mark.parametrize(
    "gold",
    [
        None, "", "  ", "\n", "$$", r"\boxed{}", "####", "$ $", float("nan"), float("inf"), -float("inf"),
        Decimal("NaN"), True, False, b"42", {}, {"a": 1}, object(), 1j, [], (), [None], ["", None], [[]], set(),
    ],
    ids=lambda gold: type(gold).__name__ + repr(gold)[:12],
)  # fmt: skip
def test_gold_texts_nothing_to_compare_with_is_empty(gold: Any) -> None:
    assert gold_texts(gold) == ()


def test_gold_texts_solution_in_prose_is_its_stated_answer() -> None:
    prose = "We add the numbers one by one. " * 20
    assert gold_texts(prose + "The final answer is $42$.") == ("42",)


def test_gold_texts_hostile_text_is_finished() -> None:
    for gold in (
        "#" * 100_000,
        "####" * 20_000 + "5",
        r"\boxed{" * 20_000,
        "\0",
        "\ud800",
        "$" * 100_001,
        "x" * 100_000,
    ):
        assert isinstance(gold_texts(gold), tuple)


def test_gold_texts_of_its_own_text_is_itself() -> None:
    for gold in ("42", r"\frac{1}{2}", "(1,2)", r"\text{yes}", "x=5", r"30^\circ", r"50\%", r"\{1,2\}"):
        (text,) = gold_texts(gold)
        assert gold_texts(text) == (text,)
        assert gold_texts(f"${text}$") == gold_texts(rf"\boxed{{{text}}}") == (text,)
