"""Whether two answers say the same: what mathematics says, never what the code returns."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reward_funcs.latex import plain
from reward_funcs.maths import compare, same
from reward_funcs.reader import parse


def listed(table: str) -> list[str]:
    """Entries between `;;`, as many to a line as fit: a table in Python's own form would be a thousand lines."""
    return [entry.strip() for line in table.strip().splitlines() for entry in line.split(" ;; ")]


def pairs(table: str) -> list[tuple[str, str]]:
    """Entries `one ~ other`."""
    return [(one, other) for one, _, other in (entry.partition(" ~ ") for entry in listed(table))]


# one of every kind of node
KINDS = listed(
    r"""
    5 ;; 0.50 ;; x ;; \pi ;; e ;; i ;; \infty ;; x_1 ;; \theta ;; x+y ;; x-y ;; -x ;; 2xy ;; \frac{x}{y} ;; x^2
    \sqrt{2} ;; \sqrt[3]{x} ;; \sin x ;; \sin^2 x ;; \arctan x ;; \log_2 x ;; \log x ;; \ln x ;; |x| ;; 5! ;; n!
    \binom{n}{2} ;; 101_2 ;; 30^\circ ;; 50\% ;; 5\text{ cm} ;; x\text{ apples} ;; (1,2) ;; [1,2) ;; (x,y)
    \{1,2\} ;; \emptyset ;; 1,2 ;; x,y ;; (0,1)\cup(2,3) ;; \begin{pmatrix}1&x\\y&2\end{pmatrix} ;; 1:2 ;; 3:15
    x=5 ;; x^2+y^2=1 ;; y=2x+1 ;; 1<x<2 ;; x\le 3 ;; x\neq 1 ;; x\in[1,2] ;; \text{even} ;; even ;; A ;; (A)
    1\pm\sqrt{2} ;; x=\pm 2 ;; \lfloor x\rfloor ;; \lceil x\rceil ;; \mathbb{R} ;; f(x) ;; f(x)=x^2
    \overline{AB} ;; 1\frac12 ;; 1 1/2 ;; 1.5e3 ;; 1,234 ;; 1.5\times 10^{-3} ;; \$5 ;; 2+3i ;; e^{i\pi/4}
    a_{n+1} ;; x'
    """
)

EQUAL = pairs(
    r"""
    1 1/2 ~ 1.5 ;; 1\frac12 ~ 3/2 ;; -1 1/2 ~ -1.5 ;; -1\frac12 ~ -3/2 ;; 10\,000 ~ 10000 ;; 10 000 ~ 10,000
    10{,}000 ~ 10000 ;; 1.5e3 ~ 1500 ;; 1.5E3 ~ 1500 ;; 1.5\times10^3 ~ 1500 ;; 1.5\cdot 10^{-3} ~ 0.0015
    -5 ~ negative 5 ;; -5 ~ \text{negative }5 ;; 12 ~ １２ ;; 5 ~ five ;; .5 ~ 0.5 ;; 5 ~ 5.0 ;; +5 ~ 5 ;; --5 ~ 5
    -0 ~ 0 ;; 05 ~ 5 ;; 5 ~ 5. ;; 2/4 ~ 1/2 ;; \frac12 ~ \frac{1}{2} ;; \tfrac12 ~ \dfrac{1}{2}
    \frac{-1}{2} ~ -\frac12 ;; 1024 ~ 2^{10} ;; 100! ~ 100\cdot 99! ;; 2^{2023} ~ 2\cdot 2^{2022}
    10^{100} ~ 10^{50}\cdot 10^{50} ;; 5! ~ 120 ;; 1-\frac{1}{2^{2023}} ~ \frac{2^{2023}-1}{2^{2023}}
    \frac{1}{3^{2019}} ~ 3^{-2019} ;; \binom{5}{2} ~ 10 ;; \frac{\sqrt2}{2} ~ \frac{1}{\sqrt2}
    \sqrt{12} ~ 2\sqrt3 ;; \sqrt[3]{16} ~ 2\sqrt[3]{2} ;; 4^{1/3} ~ \sqrt[3]{4} ;; \sqrt{3+2\sqrt2} ~ 1+\sqrt2
    2^{0.5} ~ \sqrt2 ;; |-3| ~ 3 ;; -2^2 ~ -4 ;; \ln 8 ~ 3\ln 2 ;; \log_2 3 ~ \frac{\ln 3}{\ln 2}
    \log_{10} 100 ~ 2 ;; e^{\ln 3} ~ 3 ;; \sin 30^\circ ~ \frac12 ;; \cos\frac{\pi}{3} ~ 1/2
    \tan^{-1} 1 ~ \frac{\pi}{4} ;; \arctan 1 ~ \pi/4 ;; i^2 ~ -1 ;; \sqrt{-4} ~ 2i ;; e^{i\pi} ~ -1
    \frac{1+i}{1-i} ~ i ;; 2+3i ~ 3i+2 ;; 2+3i ~ 2+3I ;; \frac{3\pi}{4} ~ \frac34\pi ;; 3π/4 ~ \frac{3\pi}{4}
    \exp(2) ~ e^2 ;; \lfloor 2.5\rfloor ~ 2 ;; \frac13 ~ 0.333333 ;; \pi ~ 3.1415927 ;; \sqrt2 ~ 1.4142136
    2.23606797749979 ~ 2.236068 ;; 30^\circ ~ 30 ;; 30^\circ ~ \frac{\pi}{6} ;; 30° ~ 30\text{ degrees}
    50\% ~ 0.5 ;; 50\% ~ \frac12 ;; 50\% ~ 50 ;; 50\% ~ 50\text{ percent} ;; \$5 ~ 5 ;; 5 ~ 5\text{ dollars}
    5 ~ 5 cm ;; 5\text{ cm} ~ 5\,\mathrm{cm} ;; 5\text{ cm}^2 ~ 5\text{ cm}^{2} ;; 36 ~ 36\text{ square inches}
    (x+1)^2 ~ x^2+2x+1 ;; \frac{x^2-1}{x-1} ~ x+1 ;; (a-b)(a+b) ~ a^2-b^2 ;; ab ~ ba ;; 2x ~ 2\cdot x
    \frac1x+\frac1y ~ \frac{x+y}{xy} ;; e^{x+y} ~ e^xe^y ;; x^{-1} ~ 1/x ;; \sqrt{x} ~ x^{1/2}
    \sin^2 x+\cos^2 x ~ 1 ;; \sin 2x ~ 2\sin x\cos x ;; \sec x ~ \frac{1}{\cos x}
    \cot x ~ \frac{\cos x}{\sin x} ;; n! ~ n\cdot(n-1)! ;; \binom{n}{2} ~ \frac{n(n-1)}{2} ;; 2^{n+1} ~ 2\cdot 2^n
    θ ~ \theta ;; x² ~ x^2 ;; 1,2 ~ 2,1 ;; \{1,2\} ~ \{2,1\} ;; \{1,2\} ~ 1,2 ;; 1,2 ~ 1 or 2
    1,2 ~ 1\text{ and }2 ;; (1,2) ~ \left(1,2\right) ;; (1,2) ~ \begin{pmatrix}1\\2\end{pmatrix}
    \emptyset ~ \varnothing ;; \{\} ~ \emptyset ;; \pm2 ~ 2,-2 ;; 1\pm\sqrt2 ~ 1+\sqrt2,1-\sqrt2
    (0,1)\cup(2,3) ~ (2,3)\cup(0,1) ;; \begin{bmatrix}1&2\\3&4\end{bmatrix} ~ \begin{pmatrix}1&2\\3&4\end{pmatrix}
    3:1 ~ 3\colon 1 ;; (1,2) ~ (2/2,4/2) ;; 5 ~ x=5 ;; x=5 ~ 5 ;; 5 ~ 5=x ;; x=5 ~ 5=x ;; x<2 ~ 2>x
    x\ge2 ~ [2,\infty) ;; (-\infty,2) ~ x<2 ;; [1,3] ~ 1\le x\le 3 ;; x\in[1,2] ~ [1,2] ;; 1<x<2 ~ 2>x>1
    y=2x+1 ~ y=1+2x ;; y=2x+1 ~ 2x-y+1=0 ;; x+y=1 ~ 2x+2y=2 ;; x^2+y^2=4 ~ y^2+x^2=4 ;; x=1,2 ~ x=1\text{ or }x=2
    x=\pm2 ~ x=2,-2 ;; f(x)=x^2 ~ x^2 ;; \text{Yes} ~ yes ;; \text{no solution} ~ no solution ;; A ~ \text{A}
    A ~ (A) ;; \text{(A)} ~ A ;; B ~ \text{(B) } 5 ;; 101_2 ~ 101_{2} ;; \infty ~ +\infty ;; a_{1} ~ a_1
    """
)

DIFFERENT = pairs(
    r"""
    10000000000000000000000001 ~ 10000000000000000000000000 ;; 10^{30}+1 ~ 10^{30} ;; 2^{100} ~ 2^{100}+1
    2^{64} ~ 18446744073709551615 ;; 1.6\times10^{-19} ~ 1.7\times10^{-19} ;; e^{-50} ~ e^{-60} ;; 10^{-20} ~ 0
    e^{-100} ~ 0 ;; 10^{-400} ~ 0 ;; 0 ~ 0.0000001 ;; 0 ~ 1e-9 ;; \pi ~ 3.14 ;; \pi ~ 22/7 ;; 1/3 ~ 0.333
    \sqrt2 ~ 1.414 ;; 2/3 ~ 0.667 ;; 0.33 ~ 1/3 ;; 1000000 ~ 1000000.5 ;; 123456789 ~ 123456788.9 ;; 1 ~ 0.999
    1 ~ 0.999999999 ;; 10 ~ 9.99999 ;; 1 ~ 1.00001 ;; \sqrt{10^{20}+1} ~ 10^{10}+1
    10^{15}+\sqrt2 ~ 10^{15}+\sqrt3 ;; 1+e^{-40} ~ 1 ;; (1+10^{-18})^{10^{18}} ~ 1 ;; 10^{400} ~ \infty
    10^{400} ~ 10^{401} ;; \sqrt{x^2} ~ x ;; |x| ~ x ;; \sqrt{-4} ~ 2 ;; i^2 ~ 1 ;; -2^2 ~ 4 ;; (-2)^2 ~ -4
    -3! ~ (-3)! ;; \sin^2 x ~ \sin(x^2) ;; \sin^{-1}\frac12 ~ \frac{1}{\sin\frac12} ;; \sin x+1 ~ \sin(x+1)
    \log_2 8 ~ \log_8 2 ;; \log_2 x ~ \ln x ;; \sqrt[3]{8} ~ 3\sqrt8 ;; \frac{\sqrt3}{2} ~ \sqrt{\frac32}
    \sin 2x ~ 2\sin x ;; \log(xy) ~ \log x\log y ;; \tan^{-1} x ~ \cot x ;; \log_2 x^2 ~ (\log_2 x)^2
    e^{i\pi} ~ 1 ;; \log 100 ~ \ln 100 ;; \arcsin(\sin x) ~ x ;; \frac{|x|}{x} ~ 1 ;; (2^3)^2 ~ 2^{3^2}
    x^{1000} ~ x^{1001} ;; \sqrt[4]{x^4} ~ x ;; \frac{1}{2x} ~ 1/2x ;; \frac{1}{23} ~ \frac123
    \frac12 3 ~ \frac{1}{23} ;; \sqrt{23} ~ \sqrt23 ;; \frac{11}{2} ~ 1\frac12 ;; 2\frac13 ~ \frac23
    2\frac34 ~ \frac64 ;; 2\cdot\frac34 ~ 2\frac34 ;; 12 ~ 1\cdot 2 ;; 1/3/3 ~ 1 ;; 2-3-4 ~ 2-(3-4)
    a-b-c ~ a-(b-c) ;; a/b/c ~ a/(b/c) ;; \frac{a}{b}c ~ \frac{a}{bc} ;; x2 ~ x^2 ;; x ~ y ;; a ~ A ;; x_1 ~ x_2
    x_{12} ~ x_{1}2 ;; a_{n+1} ~ a_n+1 ;; e ~ E ;; 3e ~ 3 ;; i ~ j ;; x' ~ x ;; 0 ~ O ;; 1 ~ l ;; \theta ~ \alpha
    \mathbb{R} ~ \mathbb{Z} ;; \mathbb{R} ~ R ;; 2+3i ~ 2-3i ;; f(x) ~ x ;; \overline{12} ~ 12
    0.\overline{3} ~ 0.3 ;; 3 ~ 3x ;; 3 ~ 3n ;; 10m ~ 10 ;; 101_2 ~ 101 ;; 101_2 ~ 5 ;; 101_2 ~ 101_3
    (1,2) ~ [1,2] ;; [1,2) ~ (1,2] ;; (1,2) ~ \{1,2\} ;; \{1,2,3\} ~ (1,2,3) ;; (1,2) ~ (2,1) ;; 1,2 ~ (2,1)
    (1,2) ~ 1 ;; \{1,2\} ~ \{1,2,3\} ;; \{1,2,3\} ~ 1,2 ;; 1,2 ~ 1 ;; \emptyset ~ \{0\} ;; \emptyset ~ 0
    (1,2,3) ~ (1,2) ;; (-\infty,2) ~ (-\infty,2] ;; (1,2)\cup(3,4) ~ (1,2) ;; (1,2)\cup(3,4) ~ (1,4) ;; \pm 2 ~ 2
    1\pm\sqrt2 ~ 1+\sqrt2 ;; \begin{pmatrix}1\\2\end{pmatrix} ~ \begin{pmatrix}2\\1\end{pmatrix}
    \begin{pmatrix}1&2\\3&4\end{pmatrix} ~ \begin{pmatrix}1&3\\2&4\end{pmatrix}
    \begin{pmatrix}1&2\\3&4\end{pmatrix} ~ (1,2,3,4) ;; 1:2 ~ 2:1 ;; 1:2 ~ 1:2:3 ;; 3:15 ~ 3:51 ;; 1:2 ~ 12
    1,234 ~ (1,234) ;; 1.234 ~ 1,234 ;; 3,4 ~ 34 ;; (-\infty,0)\cup(0,\infty) ~ \mathbb{R} ;; \{1,2\} ~ \{1,3\}
    (1,2) ~ -(1,2) ;; (2,3) ~ 2(2,3) ;; x=2 ~ x=-2 ;; x=2 ~ y=2 ;; x=2 ~ x<2 ;; x<2 ~ x>2 ;; x<2 ~ x\le2
    x<2 ~ x<3 ;; 1<x<2 ~ 1\le x<2 ;; 1<x<2 ~ 1<x<3 ;; y=2x+1 ~ y=2x-1 ;; x^2+y^2=1 ~ x^2+y^2=2 ;; y=x ~ y=-x
    x^2=4 ~ x=2 ;; 5 ~ x=6 ;; 5 ~ 5=6 ;; 5 ~ x=5=6 ;; 5 ~ x=6=5 ;; 3 ~ x<3 ;; 3 ~ x\ne 3 ;; x>2 ~ y>2
    -x<2 ~ x<-2 ;; x<y ~ y<x ;; 5 ~ x=5,y=6 ;; (5,6) ~ x=6,y=5 ;; y=3x ~ x=3y ;; 5\text{ cm} ~ 5\text{ m}
    5 cm ~ 5 m ;; 5\text{ cm}^2 ~ 5\text{ cm} ;; 3\text{ hours} ~ 3\text{ minutes} ;; 5\text{ m}^2 ~ 5\text{ m}^3
    60\text{ m/s} ~ 60\text{ km/h} ;; 3\text{ p.m.} ~ 3\text{ a.m.} ;; 5% ~ 0.005 ;; 0.05 ~ 5 ;; 50\% ~ 5
    45^\circ ~ \frac{\pi}{3} ;; \frac{\pi}{6} ~ 30 ;; 5\text{ mm} ~ 5\text{ m} ;; 5 kg ~ 5 g ;; 5 ~ 5 or 6
    5 ~ 5,6 ;; 5 ~ 5;6 ;; 5 ~ 5 and 6 ;; 5 ~ 5\pm1 ;; 5 ~ 5\text{ or }6 ;; A ~ B ;; (A) ~ (B) ;; A ~ AB ;; A ~ A,B
    \text{yes} ~ \text{no} ;; yes ~ not yes ;; \text{even} ~ \text{odd} ;; true ~ false
    \text{True} ~ \text{True or False} ;; 5 ~ \text{at most }5 ;; 5 ~ \text{about }5 ;; 5 ~ \text{more than }5
    1 ~ \text{one two} ;; -5 ~ 5 ;; 5 ~ \text{negative }5
    """
)


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_same_equal_answers_are_the_same_both_ways(gold: str, answer: str) -> None:
    assert same(gold, answer) is True
    assert same(answer, gold) in (True, None) or "=" in answer or r"\text{(B)" in answer


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_same_different_answers_are_never_the_same(gold: str, answer: str) -> None:
    assert same(gold, answer) is not True


@pytest.mark.parametrize(("gold", "answer"), [pair for pair in DIFFERENT if "=" not in "".join(pair)])
def test_same_different_answers_are_never_the_same_the_other_way_round(gold: str, answer: str) -> None:
    assert same(answer, gold) is not True


@pytest.mark.parametrize(
    ("gold", "answer"),
    pairs(
        r"""
    1 1/2 ~ 11/2 ;; 2 1/3 ~ 21/3 ;; 1/23 ~ 1/2 3 ;; 34 ~ 3 4 ;; 12 ~ 1\,2 ;; 100 ~ 1 00 ;; 1,234 ~ 1, 234
    3.14 ~ 3. 14
    """
    ),
)
def test_same_a_space_between_digits_parts_them(gold: str, answer: str) -> None:
    assert same(gold, answer) is not True
    assert same(answer, gold) is not True


@pytest.mark.parametrize(
    "answer",
    listed(
        r"""
    (A) or (B) ;; (A) and (B) ;; (A)(B) ;; (A),(B) ;; A. or B. ;; (A)+1 ;; (A)x ;; (A)=(B) ;; (A)^2 ;; A. no, B
    \text{(A) or (B)} ;; A: 5, B: 6 ;; A)(B ;; (A)\text{ or }(B) ;; \textbf{(A)}\ \textbf{(B)} ;; (A), (B), (C)
    """
    ),
)
def test_same_a_letter_with_more_than_its_option_is_not_the_letter(answer: str) -> None:
    assert same("A", answer) is not True
    assert same("(A)", answer) is not True


@pytest.mark.parametrize(
    "answer",
    ["(A)", "A.", "(A) 12", r"\text{(A)}", r"\textbf{(A) } 12", r"\mathrm{A}", "A) the sky", "A: blue", r"\text{A}"],
)
def test_same_a_letter_with_its_option_is_the_letter(answer: str) -> None:
    assert same("A", answer) is True
    assert same("B", answer) is not True


@pytest.mark.parametrize(
    "words_behind",
    listed(
        r"""
    or more ;; or less ;; or fewer ;; at least ;; at most ;; million ;; thousand ;; hundred ;; billion ;; dozen
    , 6 ;; (or 6) ;; , but maybe 6 ;; ? 6 ;; not ;; is wrong ;; plus one ;; squared ;; x ;; / 6
    """
    ),
)
def test_same_words_that_change_a_number_are_no_unit(words_behind: str) -> None:
    assert same("5", rf"5\text{{ {words_behind}}}") is not True


@pytest.mark.parametrize(
    ("one", "other"),
    pairs(
        r"""
    |x+10| ~ x+10 ;; |x-10| ~ 10-x ;; |x-3| ~ 3-x ;; \sqrt{(x+5)^2} ~ x+5 ;; \sqrt{(x-5)^2} ~ 5-x
    |x|+|y| ~ |x+y| ;; \sqrt{a^2b^2} ~ ab ;; \sqrt{x-5} ~ i\sqrt{5-x} ;; \lfloor x\rfloor ~ x
    \lceil x\rceil ~ \lfloor x\rfloor ;; \lfloor 2x\rfloor ~ 2\lfloor x\rfloor ;; \lfloor\frac{x}{20}\rfloor ~ 0
    |x^2-9| ~ 9-x^2 ;; \arctan(\tan\frac{x}{2}) ~ \frac{x}{2}
    """
    ),
)
def test_same_functions_that_agree_on_a_part_of_the_line_are_not_the_same(one: str, other: str) -> None:
    assert same(one, other) is not True
    assert same(other, one) is not True


@pytest.mark.parametrize(
    ("one", "other"),
    pairs(
        r"""
    e^{-1000} ~ 0 ;; e^{-1000} ~ e^{-1001} ;; 10^{-400}\pi ~ 0 ;; \pi^{-700} ~ 0 ;; \sqrt{10^{16}+1}-10^8 ~ 0
    e^{\pi\sqrt{163}} ~ 262537412640768744 ;; e^{-800}\cdot e^{-1} ~ e^{-802} ;; \ln(1+10^{-17}) ~ 0
    10^{20}+\pi ~ 10^{20}+e
    """
    ),
)
def test_same_what_floats_cannot_tell_apart_is_not_called_the_same(one: str, other: str) -> None:
    assert same(one, other) is not True
    assert same(other, one) is not True


@pytest.mark.parametrize(
    ("one", "other"),
    pairs(
        r"""
    \text{+} ~ \text{-} ;; \text{>} ~ \text{<} ;; \text{x<5} ~ \text{x>5} ;; \text{C++} ~ \text{C}
    \text{?} ~ \text{!} ;; \text{cat} ~ act ;; 10^\circ ~ 10\% ;; \$5 ~ 5\text{ cents}
    0.5 ~ \displaystyle.5\cdot 10 ;; 5 ~ \displaystyle.5
    """
    ),
)
def test_same_signs_and_units_are_not_dropped(one: str, other: str) -> None:
    assert same(one, other) is not True
    assert same(other, one) is not True


@pytest.mark.parametrize(
    ("gold", "answer"),
    pairs(
        r"""
    101_2 ~ (101)_2 ;; 101_2 ~ 101_{\text{two}} ;; 1/3 ~ 0.333333 ;; 0.333333 ~ 1/3 ;; 5=x ~ 5
    \langle1,2\rangle ~ (1,2) ;; (1,2) ~ \langle 1,2\rangle ;; 6:30 am ~ 6:30\text{ AM} ;; 2e-1 ~ 2e - 1
    3 ~ **3** ;; (2,\infty) ~ \{x\mid x>2\} ;; 6:30 ~ 6{:}30 ;; .5 ~ \displaystyle.5
    """
    ),
)
def test_same_other_ways_to_write_an_answer_are_not_different(gold: str, answer: str) -> None:
    assert same(gold, answer) is not False


# identities


@pytest.mark.parametrize("text", KINDS)
def test_same_every_kind_of_answer_is_itself_in_any_layout(text: str) -> None:
    forms = [
        "{}",
        " {} ",
        "${}$",
        r"\boxed{{{}}}",
        "{}.",
        r"\({}\)",
        r"\left. {}\right.",
        r"\displaystyle {}",
        r"\,{}\,",
        "$$\n{}\n$$",
    ]
    for form in forms:
        assert same(text, form.format(text)) is True, form
        assert same(form.format(text), text) is True, form
    respaced = text.replace("+", " + ").replace("=", " = ").replace("(", r"\left(").replace(")", r"\right)")
    assert same(text, respaced.replace(r"\frac", r"\dfrac")) is True
    assert compare(parse(plain(text)), parse(plain(text))) is True


@pytest.mark.parametrize("text", KINDS)
def test_same_no_kind_of_answer_is_another_one(text: str) -> None:
    for other in ("987", "q^7", r"\text{strange}", "(9,8,7)", "q=987"):
        assert same(text, other) is not True
        assert same(other, text) is not True


@pytest.mark.parametrize("gold", ["", " ", "$$", r"\boxed{}"])
def test_same_empty_gold_is_undecided_and_empty_answer_is_wrong(gold: str) -> None:
    assert same(gold, "5") is None
    assert same(gold, "") is None
    assert same("5", gold) is False


@pytest.mark.parametrize(
    ("gold", "answer", "rel_tol", "equal"),
    [
        ("3.0", "3.1", 0.01, False), ("1/3", "0.333", 1e-3, True), ("1/3", "0.333", 1e-4, False),
        (r"\pi", "3.14", 1e-3, True), ("100", "101", 0.05, False), (r"\frac{1}{3}", r"\frac{1}{4}", 0.5, False),
        ("1/3", "0.3333333333", 0.0, False), ("0.5", "1/2", 0.0, True), ("-3.0", "3.0", 0.9, False),
        ("0.0", "0.001", 0.9, False), (r"\sqrt2", r"\sqrt3", 0.9, False),
    ],
)  # fmt: skip
def test_same_tolerance_is_relative_and_for_decimals_alone(gold: str, answer: str, rel_tol: float, equal: bool) -> None:
    assert same(gold, answer, rel_tol=rel_tol) is equal


# any expression

NUMBERS = st.integers(0, 30).map(lambda n: (Fraction(n), str(n), f"{{{n}}}"))
DECIMALS = st.integers(1, 99).map(lambda n: (Fraction(n, 4), str(n / 4), rf"\frac{{{n}}}{{4}}"))


def _joined(parts: tuple[Any, Any, str]) -> tuple[Fraction, str, str]:
    (a, one_a, other_a), (b, one_b, other_b), operator = parts
    if operator == "+":
        return a + b, f"({one_a}+{one_b})", rf"\left( {other_b} + {other_a} \right)"
    if operator == "-":
        return a - b, f"({one_a}-{one_b})", rf"(-{{({other_b})}}+({other_a}))"
    if operator == "*":
        return a * b, f"({one_a})({one_b})", rf"({other_b}) \cdot ({other_a})"
    if not b:
        return a, one_a, other_a
    return a / b, rf"\frac{{{one_a}}}{{{one_b}}}", f"(({other_a})/({other_b}))"


RATIONAL = st.recursive(
    st.one_of(NUMBERS, DECIMALS),
    lambda inner: st.tuples(inner, inner, st.sampled_from("+-*/")).map(_joined),
    max_leaves=8,
)


@given(RATIONAL)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_same_rational_expression_in_two_ways_is_its_value_and_not_one_more(
    expression: tuple[Fraction, str, str],
) -> None:
    value, one, other = expression
    exact = f"{value.numerator}/{value.denominator}"
    assert same(one, other) is True
    assert same(other, one) is True
    assert same(exact, other, rel_tol=0.0) is True
    assert same(one, other + "+1") is not True
    assert same(one, f"({value.numerator}+1)/{value.denominator}", rel_tol=0.0) is False


POLYNOMIAL = st.recursive(
    st.one_of(NUMBERS, st.sampled_from([(Fraction(0), name, f"{{{name}}}") for name in ("x", "y", r"\alpha", "x_1")])),
    lambda inner: st.tuples(inner, inner, st.sampled_from("+-*")).map(_joined),
    max_leaves=7,
)


@given(POLYNOMIAL)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_same_polynomial_in_two_ways_is_itself_and_not_one_more(expression: tuple[Fraction, str, str]) -> None:
    _, one, other = expression
    assert same(one, other) is not False
    assert same(one, other + "+1") is not True
    assert same(one, f"2({other})+1") is not True or same(one, "-1") is True


ATOMS = st.sampled_from(
    [
        *(
            (r"\pi", mpmath.pi),
            ("e", mpmath.e),
            ("2", mpmath.mpf(2)),
            ("3", mpmath.mpf(3)),
            (r"\frac{1}{7}", mpmath.mpf(1) / 7),
        ),
        *(("10^{9}", mpmath.mpf(10) ** 9), ("10^{-9}", mpmath.mpf(10) ** -9), ("12", mpmath.mpf(12))),
    ]
)


def _applied(parts: tuple[str, Any]) -> tuple[str, Any]:
    name, (text, value) = parts
    if name in ("sqrt", "ln"):
        value = abs(value) + 1
        inside = rf"(|{text}|+1)"
        return (rf"\sqrt{{{inside}}}", mpmath.sqrt(value)) if name == "sqrt" else (rf"\ln {inside}", mpmath.log(value))
    if abs(value) > 50:
        return text, value
    return rf"\{name}({text})", getattr(mpmath, name)(value)


def _combined(parts: tuple[Any, Any, str]) -> tuple[str, Any]:
    (one, a), (other, b), operator = parts
    value = {"+": a + b, "-": a - b, r"\cdot ": a * b}[operator]
    return f"({one}){operator}({other})", value


CLOSED_FORMS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["sqrt", "ln", "sin", "cos", "exp"]), inner).map(_applied),
        st.tuples(inner, inner, st.sampled_from(["+", "-", r"\cdot "])).map(_combined),
    ),
    max_leaves=5,
)


@given(CLOSED_FORMS, CLOSED_FORMS)
@settings(max_examples=400, deadline=None, derandomize=True)
def test_same_closed_forms_agree_with_fifty_digits(one: tuple[str, Any], other: tuple[str, Any]) -> None:
    with mpmath.workdps(50):
        (text, value), (other_text, other_value) = one, other
        value, other_value = +value, +other_value
        distance, size = abs(value - other_value), max(abs(value), abs(other_value))
        verdict = same(text, other_text)
        assert verdict is not True or distance <= mpmath.mpf(10) ** -11 * size
        assert verdict is not False or distance > mpmath.mpf(10) ** -40 * size


@given(CLOSED_FORMS)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_same_closed_form_is_not_itself_times_one_and_a_millionth(form: tuple[str, Any]) -> None:
    text, value = form
    assume(abs(value) > 1e-6)
    assert same(text, rf"({text})\cdot \frac{{1000001}}{{1000000}}") is not True
    assert same(text, rf"1\cdot ({text})") is not False


PIECES = [
    r"\frac", r"\sqrt", r"\text{", r"\left(", r"\begin{pmatrix}", r"\end{pmatrix}", r"\\", r"\,", "{", "}", "(", ")",
    "[", "]", r"\{", r"\}", "|", "&", "^", "_", "!", "'", "%", "$", "=", "<", r"\le", r"\pm", r"\cup", r"^\circ",
    r"\sin", r"\log", r"\pi", r"\infty", r"\binom", "0", "1", "12", ",000", ".5", "e3", "9^9", "x", "y", "e", "i",
    " or ", ",", ":", "+", "-", "/", " ", "cm", "\ud800", "\0",
]  # fmt: skip
SOUP = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


@given(SOUP, SOUP)
@settings(max_examples=400, deadline=None, derandomize=True)
def test_same_any_text_raises_nothing_and_is_itself(gold: str, answer: str) -> None:
    assert same(gold, answer) in (True, False, None)
    assert same(gold, gold) is not False


@pytest.mark.parametrize(
    "piece",
    [
        "(", "-", "x^", "x^{", r"\sqrt{", "1+", r"\frac{1}{", "|", "!", "x,", "((x),", r"\sin ", "2^", r"x\pm ",
        "(1,2)\\cup", "x=", "9^{9", "\\{", "'",
    ],
)  # fmt: skip
def test_same_long_repetition_is_finished(piece: str) -> None:
    for count in (20, 150, 330, 900, 20_000):
        for text in (
            piece * count,
            piece * count + "1",
            "5" + piece * count,
            piece * count + "1" + "}" * count,
            piece * count + "1" + ")" * count,
        ):
            assert same("5", text) is not True or text.strip("+(-|){}") in ("5", "")
            same(text, "5")
            same(text, text + " 1")
