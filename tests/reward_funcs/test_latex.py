"""Layout, tokens and trees of answers: what typesetting does not change, and what TeX's own rules make of digits."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_funcs.expressions import Node
from reward_funcs.forms import number
from reward_funcs.latex import plain, prepared, unwrapped
from reward_funcs.reader import MAX_LENGTH, parse
from reward_funcs.tokens import Unreadable, tokens

LONG = 100_000


def num(value: int | str, digits: int = 0) -> Node:
    return ("num", Fraction(value), digits)


def sym(name: str) -> Node:
    return ("sym", name)


X, Y = sym("x"), sym("y")

HOSTILE = [
    *("\0", "\ud800", "\udfff5", "\0" * LONG, " " * LONG, "\n" * LONG, "\\" * LONG, "a" * LONG, "9" * LONG, "." * LONG),
    *("{" * LONG, "}" * LONG, "(" * LONG, "$" * (LONG + 1), r"\(" * 50_000, r"\boxed{" * 20_000, r"\frac" * 20_000),
    *("1," * 50_000, "1,000" * 20_000, "1 000" * 20_000, "1 1/" * 25_000, "9" * 50_000 + "/" + "9" * 50_000),
    *("1e" * 50_000, r"\text{" * 10_000, r"\text{a}" * 10_000, r"\left" * 20_000, "\\," * 50_000, "\\ " * 50_000),
    *("^" * LONG, "_" * LONG, "-" * LONG, "!" * LONG, "|" * LONG, "x^" * 50_000, "½" * LONG, "\U0001f600" * 50_000),
    *("\\hspace{" * 10_000, "\\phantom{" * 10_000, "\\\\[" * 30_000, "5" + "," * LONG, "5" + " ." * 50_000),
    *(r"\begin{pmatrix}" * 5000, r"\text {" + "x" * LONG, "negative " * 10_000, "5" + "'" * LONG, "\u200b" * LONG),
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_plain_and_parse_hostile_text_is_finished(text: str) -> None:
    shown = plain(text)
    try:
        assert parse(shown) == ("num", Fraction(5), 0)  # of a 5 behind which commas or full stops were taken off
    except Unreadable:
        assert shown != "5"


ALPHABET = [
    r"\frac", r"\sqrt", r"\text{", r"\left", r"\right", r"\begin{pmatrix}", r"\end{pmatrix}", r"\\", r"\,", r"\!",
    "{", "}", "(", ")", "[", "]", r"\{", r"\}", "|", "&", "^", "_", "!", "'", "%", r"\%", r"\$", "$", "=", "<",
    r"\le", r"\pm", r"\cup", r"\deg", r"^\circ", r"\sin", r"\log", r"\ln", r"\pi", r"\theta", r"\infty", r"\binom",
    "0", "1", "12", ",000", ".5", "e3", "x", "y", "e", "i", "or", " and ", ",", ";", ":", "+", "-", "*", "/", " ",
    "cm", "negative ", "½", "²", "\u2212", "\0", "\ud800", "\u202e", r"\boxed{", r"\lfloor", r"\rfloor",
    r"\mathbb{R}",
]  # fmt: skip
SOUP = st.lists(st.sampled_from(ALPHABET), max_size=30).map("".join)


@given(st.one_of(SOUP, st.text(max_size=40)))
@settings(max_examples=400, deadline=None, derandomize=True)
def test_parse_any_text_gives_a_tree_or_is_unreadable(text: str) -> None:
    try:
        tree = parse(plain(text))
    except Unreadable:
        return
    assert isinstance(tree, tuple) and isinstance(tree[0], str)
    assert hash(tree) == hash(parse(plain(text)))


@given(st.one_of(SOUP, st.text(max_size=40)))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_plain_of_any_text_has_no_layout_at_its_ends(text: str) -> None:
    shown = plain(text)
    assert shown == shown.strip()
    assert "\\left(" not in shown and "\t" not in shown and "\0" not in shown


# layout

TYPESET = [
    "{}", " {} ", "${}$", "$${}$$", r"\({}\)", r"\[{}\]", r"\boxed{{{}}}", r"$\boxed{{{}}}$", r"\boxed{{${}$}}",
    "{}.", r"\displaystyle {}", r"\,{}\,", r"~{}~", r"\quad {}", r"{}\;", "\n{}\n", r"\!{}", "${}$.", r"\fbox{{{}}}",
    "{},", "\u200b{}", "\ufeff{}", r"\boxed{{\boxed{{{}}}}}", r"\ {}", r"{}\ ", "{}~", "{}\\quad",
]  # fmt: skip


@pytest.mark.parametrize("form", TYPESET)
@pytest.mark.parametrize(
    "answer", ["5", "-5", r"\frac{1}{2}", "(1,2)", r"\{1,2\}", "x^2+1", r"\text{yes}", "x=5", "[1,2)"]
)
def test_plain_does_not_see_what_is_around_an_answer(form: str, answer: str) -> None:
    assert plain(form.format(answer)) == answer


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\left(1,2\right)", "(1,2)"), (r"\dfrac{1}{2}", r"\frac{1}{2}"), (r"\tfrac12", r"\frac12"),
        ("x ^ 2", "x^2"), (r"\bigl[1,2\bigr)", "[1,2)"), (r"\lbrace 1\rbrace", r"\{1\}"), (r"\lvert x\rvert", "|x|"),
        (r"\varnothing", r"\emptyset"), ("x²", "x^2"), ("√2", r"\sqrt 2"), ("3×4", r"3\times 4"), ("x≤2", r"x\le 2"),
        ("∞", r"\infty"), ("30°", r"30^{\circ}"), ("\u22125", "-5"), ("π", r"\pi"), ("½", "1/2"), ("１２", "12"),
        (r"10\,000", "10000"), ("10{,}000", "10000"), (r"\left.5\right.", "5"), (r"\$5", "$5"), ("-$5", r"-\$5"),
        (r"\displaystyle .5", ".5"), (r"50{\%}", r"50\%"),
    ],
)  # fmt: skip
def test_parse_typesetting_does_not_change_the_tree(one: str, other: str) -> None:
    assert parse(plain(one)) == parse(plain(other))


def test_plain_layout_command_does_not_swallow_a_decimal_point() -> None:
    assert parse(plain(r"\displaystyle.5")) == num("1/2", 1)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("$5$", "5"), ("$5", "$5"), ("$1$ and $2$", "$1$ and $2$"),
        (r"\boxed{1} or \boxed{2}", r"\boxed{1} or \boxed{2}"), (r"\boxed{5", r"\boxed{5"), ("", ""), ("$", "$"),
        ("$$", ""), (r"\boxed{}", ""), (r"\boxed{a\}}", r"a\}"),
    ],
)  # fmt: skip
def test_unwrapped_takes_off_only_what_is_around_all_of_it(text: str, inside: str) -> None:
    assert unwrapped(text) == inside


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234", 1234), ("12,345,678", 12345678), ("1 234 567", 1234567), ("1,234.5", "1234.5"), ("1.5e3", 1500),
        ("1 1/2", "3/2"), (r"1\frac12", "3/2"), (r"2 \frac{3}{4}", "11/4"), ("1½", "3/2"), ("negative 5", -5),
        (r"1.5\times 10^{3}", 1500), ("3/4", "3/4"), ("five", 5), (r"\text{five}", 5), ("5.", 5), (".5", "1/2"),
        ("05", 5), (r"\text{negative }5", -5), ("--5", 5), ("+5", 5), ("2^10", 1024), (r"\frac12", "1/2"),
        (r"\frac{1}2", "1/2"), ("-2^2", -4), ("(-2)^2", 4), ("2^-1", "1/2"), ("1/2/3", "1/6"), ("2-3-4", -5),
        ("6/2(3)", 9), ("2^{3^2}", 512), ("5!", 120), ("-3!", -6), ("2!^3", 8), ("|-3|", 3), (r"\binom{5}{2}", 10),
        (r"\binom52", 10), (r"\sqrt{16}", 4), (r"\sqrt[3]{-8}", -2), (r"\sqrt 9", 3), (r"\lfloor 2.5\rfloor", 2),
        (r"\lceil 2.5\rceil", 3), (r"\log_2 8", 3), (r"\log_{2}8", 3), ("1,234,56", None), ("1,23", None),
        ("(1,234)", None), ("1, 234", None),
    ],
)  # fmt: skip
def test_parse_number_has_the_value_that_tex_shows(text: str, value: Any) -> None:
    assert number(parse(plain(text))) == (None if value is None else Fraction(value))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("5", num(5)), ("0.50", num("1/2", 2)), ("12.0", num(12, 3)), ("x", X), ("x_1", sym("x_1")),
        ("x_{12}", sym("x_12")), (r"\pi", sym("pi")), ("I", sym("i")), (r"\infty", sym("oo")),
        (r"\theta", sym(r"\theta")), ("x'", sym("x'")), ("x+y", ("add", X, Y)), ("xy", ("mul", X, Y)),
        ("x/y", ("div", X, Y)), ("x^y", ("pow", X, Y)), ("-x", ("neg", X)), (r"\frac xy", ("div", X, Y)),
        (r"\sqrt{x}", ("root", num(2), X)), (r"\sqrt[3]{x}", ("root", num(3), X)), (r"\sin x", ("fn", "sin", X)),
        (r"\sin^2 x", ("pow", ("fn", "sin", X), num(2))), (r"\sin^{-1} x", ("fn", "arcsin", X)),
        (r"\log_2 x", ("log", num(2), X)), ("x!", ("fact", X)), (r"\sin x+y", ("add", ("fn", "sin", X), Y)),
        (r"\sin xy", ("fn", "sin", ("mul", X, Y))), ("(x,y)", ("tuple", "()", (X, Y))),
        ("[x,y)", ("tuple", "[)", (X, Y))), (r"\{x,y\}", ("set", (X, Y))), ("x,y", ("list", (X, Y))),
        ("x or y", ("list", (X, Y))), (r"x\text{ and }y", ("list", (X, Y))), ("x=y", ("rel", ("=",), (X, Y))),
        (r"x<y\le 5", ("rel", ("<", "<="), (X, Y, num(5)))), (r"\emptyset", ("set", ())), ("x:y", ("ratio", (X, Y))),
        ("(x)", X), (r"x\pm y", ("pm", X, Y)), (r"30^\circ", ("deg", num(30))), (r"50\%", ("pct", num(50))),
        (r"5\text{ cm}", ("unit", num(5), "cm")), ("5 cm", ("unit", num(5), "cm")), ("101_2", ("based", "101", "2")),
        (r"101_{2}", ("based", "101", "2")), (r"\text{even}", ("text", "even")),
        (r"\begin{pmatrix}x\\y\end{pmatrix}", ("matrix", ((X,), (Y,)))),
        (r"\begin{bmatrix}x&y\end{bmatrix}", ("matrix", ((X, Y),))),
        (r"(x,y)\cup\{x\}", ("union", (("tuple", "()", (X, Y)), ("set", (X,))))), ("even", ("text", "even")),
    ],
)  # fmt: skip
def test_parse_gives_the_tree_of_the_table(text: str, tree: Node) -> None:
    assert parse(plain(text)) == tree


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "(", ")", "(1", "1)", "{", r"\frac", r"\frac{1}", r"\sqrt", "^", "x^", "_", "1+", "*2", "/", "1 2",
        "==", "(1,2))", r"\begin{pmatrix}1", r"\int x", r"\sum_k k", r"\gcd(1,2)", r"\foo", "@", "x ? y", "\0", "٥",
        "1..2", r"\{1,2", "|x", "||x||", r"\left", "&", "1" + "+1" * MAX_LENGTH, "(" * 200 + "1" + ")" * 200,
        "9" * 3000,
    ],
)  # fmt: skip
def test_parse_what_is_not_understood_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        parse(plain(text))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (r"\frac123", ("3/2",)), (r"\frac{1}23", ("3/2",)), (r"\sqrt 16", (6,)), (r"\log_28", (3,)), (r"\sqrt23", ()),
        ("2^34", (32, 2**34)), ("1/2x", ()), ("3:15", ()),
    ],
)  # fmt: skip
def test_parse_several_digits_without_braces_are_tex_or_unreadable(text: str, values: tuple[Any, ...]) -> None:
    # a group without braces is one digit for TeX: either that is read, or nothing
    try:
        value = number(parse(plain(text)))
    except Unreadable:
        return
    assert value in (None, *map(Fraction, values)) or (text == r"\sqrt23" and value == pytest.approx(3 * 2**0.5))


@pytest.mark.parametrize("pair", ["()", "{}", "[]"])
@pytest.mark.parametrize("depth", [1, 5, 1000, 20_000])
def test_parse_any_depth_is_a_tree_or_unreadable_and_no_recursion_error(pair: str, depth: int) -> None:
    for inner in ("1", r"\sqrt{2}", "|x|"):
        try:
            parse(plain(pair[0] * depth + inner + pair[1] * depth))
        except Unreadable:
            assert depth > 1


@pytest.mark.parametrize(
    "opening", ["x^{", r"\sqrt{", r"\frac{1}{", r"\sin(", "-(", r"\lfloor ", "x_{", "|", r"\{", r"\sqrt[", "-", "x^-"]
)
def test_parse_deep_nesting_of_any_kind_raises_nothing_but_unreadable(opening: str) -> None:
    for depth in (10, 60, 100, 240, 400, 800, 990):
        text = opening * depth + "1" + "".join({"{": "}", "(": ")", "|": "|"}.get(c, "") for c in opening[-1]) * depth
        try:
            parse(plain(text))
        except Unreadable:
            pass


@pytest.mark.parametrize("text", ["5", "-5", "x^2", r"\frac{1}{2}", "(1,2)", r"\text{a b}"])
def test_prepared_text_without_numbers_to_join_is_left_alone(text: str) -> None:
    assert prepared(text) == text


def test_tokens_are_pairs_of_kind_and_value() -> None:
    assert tokens(r"\frac{1}2x\text{ cm }\{") == [
        *(("cmd", "frac"), ("op", "{"), ("num", "1"), ("op", "}"), ("num", "2"), ("let", "x"), ("text", "cm")),
        ("op", "\\{"),
    ]
    assert tokens(r"\mathrm{e}\text{i}") == [("let", "e"), ("let", "i")]
    with pytest.raises(Unreadable, match="character"):
        tokens("5 @")
