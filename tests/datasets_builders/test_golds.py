"""Golds: hand-made answers, and the answers of real data sets where those are at hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from datasets_builders.golds import boxed_gold, braced, integer_gold, math_gold, pass_rate, written
from datasets_builders.source import Drop
from reward_funcs.grading import AccuracyReward
from reward_funcs.maths import same
from reward_funcs.pool import close_pools

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared real data is not here")


@pytest.fixture(scope="module")
def accuracy() -> Iterator[AccuracyReward]:
    yield AccuracyReward()
    close_pools()


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("72", "$72$"),
        (" -7 ", "$-7$"),
        (27.0, "$27$"),
        (2.5, "$2.5$"),
        (Decimal("4.0"), "$4$"),
        (Fraction(3, 4), "$3/4$"),
        (10**30, f"${10**30}$"),
        # dollars, delimiters, boxes
        ("$69$,$84$", "$69, 84$"),
        ("$1$,$200$", "$1, 200$"),
        (r"\(3\),\(150\)", "$3, 150$"),
        (r"\[3\] , \[150\]", "$3, 150$"),
        ("$1,234$,$5,678$", "$1234, 5678$"),
        ("1$,$200", "$1200$"),
        (r"$\$1,000$", "$1000$"),
        ("$(1$,$200)$", "$(1, 200)$"),
        (r"\$32,\!348", "$32348$"),
        (r"$\$18.90$", "$18.90$"),
        (r"\(5\)", "$5$"),
        (r"\boxed{\frac{1}{\sqrt2}}", r"$\frac{1}{\sqrt{2}}$"),
        (r"\boxed{3} or \boxed{5}", "$3, 5$"),
        (r"\begin{pmatrix} 1 \\[2pt] 2 \end{pmatrix}", r"$\begin{pmatrix} 1 \\[2pt] 2 \end{pmatrix}$"),
        # shorthand
        (r"\frac43", r"$\frac{4}{3}$"),
        (r"-\frac 59", r"$-\frac{5}{9}$"),
        (r"\frac9{19}", r"$\frac{9}{19}$"),
        (r"\frac{270}7\text{ degrees}", r"$\frac{270}{7}\text{ degrees}$"),
        (r"\dfrac{\sqrt6}2+\tfrac12", r"$\frac{\sqrt{6}}{2}+\frac{1}{2}$"),
        (r"\frac\pi4", r"$\frac{\pi}{4}$"),
        (r"11\sqrt2", r"$11\sqrt{2}$"),
        (r"\sqrt[3]2", r"$\sqrt[3]{2}$"),
        # thousands
        ("1,080", "$1080$"),
        ("-1,234.5", "$-1234.5$"),
        (r"11,\! 111,\! 111,\! 100", "$11111111100$"),
        ("1{,}000", "$1000$"),
        ("1 000 000", "$1000000$"),
        (r"1,000 \text{ dollars}", r"$1000 \text{ dollars}$"),
        # punctuation, signs, powers of ten
        ("5.", "$5$"),
        ("5\\,", "$5$"),
        ("\u22125", "$-5$"),
        ("90\u00b0", r"$90^{\circ}$"),
        ("62.5%", r"$62.5\%$"),
        (r"17\%", r"$17\%$"),
        ("6.6e-34", r"$6.6 \times 10^{-34}$"),
        ("1.5E+3 J", r"$1.5 \times 10^{3} J$"),
        (1e22, r"$1 \times 10^{22}$"),
        # words
        ("blue", r"$\text{blue}$"),
        ("Western blot", r"$\text{Western blot}$"),
        ("No", r"$\text{No}$"),
        ("True", r"$\text{True}$"),
        (r"\text{Ada}", r"$\text{Ada}$"),
        # options
        (r"\textbf{(C)}\ 5", "$5$"),
        (r"\textbf{(C)}", r"$\textbf{(C)}$"),
        # lists
        (["1", "200"], "$1, 200$"),
        (["$3$", -3], "$3, -3$"),
        (("5",), "$5$"),
    ],
)
def test_math_gold_of_an_answer_is_its_normal_form(answer: Any, gold: str) -> None:
    assert math_gold(answer) == gold


def test_answers_in_formulas_of_their_own_are_several_to_the_reward(accuracy: AccuracyReward) -> None:
    golds = [math_gold(answer) for answer in ("$1$,$200$", r"\(3\),\(150\)")]
    right, wrong = [r"\boxed{1, 200}", r"\boxed{150, 3}"], [r"\boxed{1200}", r"\boxed{3150}"]
    assert accuracy(right, solution=golds) == [1.0, 1.0]
    assert accuracy(wrong, solution=golds) == [0.0, 0.0]


def test_many_formulas_that_never_end_come_to_an_end() -> None:
    assert math_gold(r"\(1," * 20_000).startswith("$1,1,")


@pytest.mark.parametrize(
    "answer",
    [
        "(1,080, 5)",
        "(2014, 2014, 2014)",
        "[1,234]",
        "1,080, 2,000",
        "3, 125",
        "1,2",
        "0,125",
        "1,000,00",
        "x^{10,000}",
        "1, 2, 3, ...",
        r"\left\{ x \right.",
        r"\sqrt13",
        r"\frac 123",
        r"\frac{1}23",
        r"\frac{a}",
        r"\sqrt",
        "abc",
        "xyz",
        "LQSX",
        "sin x",
        "pi",
        "Infinity",
        "all real numbers",
        "2e",
        r"\left( 3, \frac{\pi}{2} \right)",
        "x \\in [1,2]",
        "336^\\circ",
        "红色",
    ],
)
def test_math_gold_of_what_is_no_shorthand_stays_as_it_is(answer: str) -> None:
    assert math_gold(answer) == f"${answer}$"


def test_math_gold_of_several_answers_joins_no_thousands() -> None:
    assert math_gold("100,200") == "$100200$"
    assert math_gold("100,200", several=True) == "$100, 200$"
    assert math_gold("(1,200),(3,4)", several=True) == "$(1, 200),(3,4)$"


@pytest.mark.parametrize("answer", [None, "", "  ", "nan", "None", "N/A", "notfound", "$$", r"\boxed{}", [], [None]])
def test_math_gold_of_nothing_is_dropped(answer: Any) -> None:
    with pytest.raises(Drop, match="no_answer"):
        math_gold(answer)


@pytest.mark.parametrize("answer", [float("nan"), float("inf"), Decimal("NaN")])
def test_math_gold_of_a_number_that_is_not_finite_is_dropped(answer: Any) -> None:
    with pytest.raises(Drop, match="no_answer"):
        math_gold(answer)


def test_math_gold_of_a_proof_is_dropped_as_one() -> None:
    with pytest.raises(Drop, match="proof"):
        math_gold("Proof")


@pytest.mark.parametrize("answer", [True, {"a": 1}, b"5"])
def test_math_gold_of_another_type_says_so(answer: Any) -> None:
    with pytest.raises(TypeError, match=f"not {type(answer).__name__}"):
        math_gold(answer)


def test_math_gold_of_a_gold_is_the_gold() -> None:
    for answer in (r"\frac43", "1,080", "blue", r"\$5", "6.6e-34", "62.5%", "$3$, $4$", r"\textbf{(C)}\ 5"):
        assert math_gold(math_gold(answer)) == math_gold(answer)


@pytest.mark.parametrize(
    "text",
    [
        r"\frac{" * 140 + "x" + "}" * 140,
        r"\sqrt{" * 160,
        r"\frac" * 190,
        "$" * 100_000,
        r"\!" * 100_000,
        "1," * 50_000,
        ",;" * 50_000 + "x",
        "1 " * 100_000,
        r"\boxed{" * 20_000,
        r"\text{(A)}" + "\\ " * 50_000 + "x",
        "a " * 50_000,
    ],
)
def test_math_gold_of_hostile_text_comes_to_an_end(text: str) -> None:
    try:
        assert math_gold(text).startswith("$")
    except Drop as drop:
        assert drop.reason == "no_answer"


def test_braced_nested_fractions_are_all_expanded() -> None:
    assert braced(r"\frac{\frac12}{\sqrt{\dfrac34}}") == r"\frac{\frac{1}{2}}{\sqrt{\frac{3}{4}}}"
    assert braced(r"\fraction12 \sqrtx") == r"\fraction12 \sqrtx"


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("025", "$25$"),
        ("000", "$0$"),
        (27.0, "$27$"),
        ("27.0", "$27$"),
        ("1,025", "$1025$"),
        ("336^\\circ", "$336$"),
        ("$336^{\\circ}$", "$336$"),
        (-3, "$-3$"),
    ],
)
def test_integer_gold_is_the_number_alone(answer: Any, gold: str) -> None:
    assert integer_gold(answer) == gold


@pytest.mark.parametrize("answer", ["3.5", "abc", r"\frac12", "1, 2", "\u0663"])
def test_integer_gold_of_no_integer_is_dropped(answer: str) -> None:
    with pytest.raises(Drop, match="not_an_integer"):
        integer_gold(answer)


def test_boxed_gold_is_of_the_last_box() -> None:
    assert boxed_gold(r"First \boxed{1}. Then $x=\boxed{\frac{1}{\sqrt2}}$.") == (
        r"\frac{1}{\sqrt2}",
        r"$\frac{1}{\sqrt{2}}$",
    )
    assert boxed_gold(r"\boxed{2} and \boxed{-2}") == ("2, -2", "$2, -2$")
    with pytest.raises(Drop, match="no_answer"):
        boxed_gold("It is 7.")


def test_written_keeps_the_answer_as_it_stands() -> None:
    assert written(" $\\frac43$ ") == r"$\frac43$"
    assert written(27.0) == "27"
    assert written([1, "b"]) == "1, b"


@pytest.mark.parametrize(
    ("value", "rate"),
    [("3/8", 0.375), ("0.5", 0.5), (1, 1.0), (0.0, 0.0), ("9/8", None), ("x", None), ("1/0", None), (None, None)],
)
def test_pass_rate_is_a_share_or_none(value: Any, rate: float | None) -> None:
    assert pass_rate(value) == rate


def test_pass_rate_of_nan_or_a_flag_is_none() -> None:
    assert pass_rate(float("nan")) is None
    assert pass_rate(True) is None


# Every answer above all with both rewards: ours and TRL's


ANSWERS = [r"\frac43", "$69$,$84$", "1,080", r"\$18.90", "blue", "No", "True", "False", "Yes", "[-2,7]", r"\sqrt{51}"]
ANSWERS += ["6.6e-34", "62.5%", "90\u00b0", r"\left( 3, \frac{\pi}{2} \right)", r"\text{(C)}", "n = 4", "Western blot"]
ANSWERS += [r"2 \text{ or } -2", r"864 \mbox{ inches}^2", "x \\in [1,2]", "all real numbers", "3:4", "no solution"]


@pytest.mark.parametrize("answer", ANSWERS)
def test_math_gold_in_a_box_is_right_for_both_rewards(answer: str, accuracy: AccuracyReward) -> None:
    from trl.rewards import accuracy_reward

    gold = math_gold(answer)
    completion = rf"\boxed{{{gold[1:-1]}}}"
    assert accuracy([completion], solution=[gold]) == [1.0]
    assert accuracy_reward([[{"role": "assistant", "content": completion}]], [gold]) == [1.0]


def test_math_gold_of_a_word_is_not_its_letters(accuracy: AccuracyReward) -> None:
    from trl.rewards import accuracy_reward

    gold, anagram = math_gold("blue"), [[{"role": "assistant", "content": r"\boxed{lueb}"}]]
    assert accuracy_reward(anagram, [gold]) == [0.0]
    assert accuracy_reward(anagram, ["$blue$"]) == [1.0]  # why words go in \text


def rows(name: str) -> list[Any]:
    # a text may hold line separators that are no new row
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").split("\n") if line]


def real_answers(name: str) -> list[Any]:
    if name == "orz_72k.json":
        return [item[1]["ground_truth"]["value"] for item in json.loads((DATA / name).read_text(encoding="utf-8"))]
    read = {
        "orz_57k_items.jsonl": lambda row: row[1]["ground_truth"]["value"],
        "olympiadbench.jsonl": lambda row: row["final_answer"],
        "gsm8k_train.jsonl": lambda row: row["answer"].rpartition("####")[2],
        "gsm8k_test.jsonl": lambda row: row["answer"].rpartition("####")[2],
    }.get(name, lambda row: row["answer"])
    return [answer for row in rows(name) if (answer := read(row))]


@needs_data
@pytest.mark.parametrize(
    ("name", "number", "exact"),
    [
        ("math500.jsonl", 500, 499),
        ("gsm8k_train.jsonl", 7473, 7473),
        ("gsm8k_test.jsonl", 1319, 1319),
        ("math_train.jsonl", 7470, 7470),
        ("olympiadbench.jsonl", 675, 675),
        ("orz_57k_items.jsonl", 1785, 1785),
        ("orz_72k.json", 100, 100),
    ],
)
def test_math_gold_of_real_answers_is_right(name: str, number: int, exact: int, accuracy: AccuracyReward) -> None:
    answers = real_answers(name)
    golds = [math_gold(answer) for answer in answers]
    assert len(golds) == number
    boxed = accuracy([rf"\boxed{{{gold[1:-1]}}}" for gold in golds], solution=golds)
    assert boxed.count(1.0) == number
    plain = [written(answer) for answer in answers]
    # a dollar in a box is money where it is escaped, and nothing elsewhere
    plain = [text if r"\$" in text else text.replace("$", "") for text in plain]
    first = accuracy([rf"\boxed{{{text}}}" for text in plain], solution=golds)
    assert first.count(1.0) >= exact


@needs_data
def test_math_gold_of_real_answers_says_what_they_say() -> None:
    changed = [
        (answer, math_gold(answer)) for name in ("math500.jsonl", "math_train.jsonl") for answer in real_answers(name)
    ]
    different = [(answer, gold) for answer, gold in changed if same(gold, answer) is False]
    # the one that our reader takes for a list of four
    assert [answer for answer, _ in different] == [r"11,\! 111,\! 111,\! 100"]


@needs_data
@pytest.mark.slow
def test_math_gold_of_math_500_is_right_for_the_reward_of_trl() -> None:
    from trl.rewards import accuracy_reward

    golds = [math_gold(answer) for answer in real_answers("math500.jsonl")]
    completions = [[{"role": "assistant", "content": rf"\boxed{{{gold[1:-1]}}}"}] for gold in golds]
    assert accuracy_reward(completions, golds).count(1.0) == 500
