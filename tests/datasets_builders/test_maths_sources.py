"""Sources and evaluation sets of mathematics: what becomes of each row in `rows/`, and of the real rows at hand."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from datasets_builders.containment import Contained, mark
from datasets_builders.registry import BUILDERS, EVALUATION_SETS
from datasets_builders.schema import features, prompt_id, prompt_text, row_errors, text_hash
from datasets_builders.source import Source, converted
from datasets_builders.sources import hendrycks_math

ROWS = Path(__file__).parent / "rows"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared real data is not here")

CRATE = "A crate holds 6 rows of 7 jars. How many jars are in 3 crates?"
PART = r"What is $\frac{3}{4}$ of $\frac{2}{9}$?"
ROOT = "Solve $x^2=45$ for the positive root."
POLAR = r"Write the point $(0,2)$ in polar form with $0\le\theta<2\pi$."
RANGE = r"For which $x$ is $|x-1|\le 4$?"
NAME = "Which name comes first in the alphabet, Ada or Bea?"
TIMES = "How much is 3 times 5?"
LETTERED = rf"{TIMES} $\textbf{{(A)}}\ 10 \qquad \textbf{{(B)}}\ 15 \qquad \textbf{{(C)}}\ 20$"
GCD = "What is the greatest common divisor of {} and {}?"
# The six problems that most of the files begin with: text, answer, gold.
SIX = [
    (CRATE, "126", "$126$"),
    (PART, r"\frac{1}{6}", r"$\frac{1}{6}$"),
    (ROOT, r"3\sqrt{5}", r"$3\sqrt{5}$"),
    (POLAR, r"\left( 2, \frac{\pi}{2} \right)", r"$\left( 2, \frac{\pi}{2} \right)$"),
    (RANGE, "[-3,5]", "$[-3,5]$"),
    (NAME, r"\text{Ada}", r"$\text{Ada}$"),
]


def six(*extras: dict[str, Any]) -> list[Any]:
    """Those problems as rows, each with what else `extra` holds."""
    return [(text, gold, {"answer": answer, **more}) for (text, answer, gold), more in zip(SIX, extras, strict=True)]


def solved(answer: str, lead: str) -> str:
    return f"{lead} $\\boxed{{{answer}}}$."


REWARDS = {"Qwen/Qwen3-32B": 0.5, "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B": 0.75}
RATED = {"difficulty": 0.625, "rewards": REWARDS}
COUNTED = {"subject": "Algebra", "multiple": True, "answer_type": "Numerical"}
OLYMPIAD = {"subject": "Algebra", "part": "olympiads"}
DAPO = {"part": "math_dapo"}
GIVEN = {"subject": "arithmetic_x"}

# Of each raw row in its file: prompt, solution and extra, or the reason why it is dropped.
EXPECTED: dict[str, list[Any]] = {
    "hendrycks_math": [
        *six(
            *(
                {"subject": "Algebra", "level": 2, "worked": solved(answer, "We work it out. The answer is")}
                for _, answer, _ in SIX
            )
        ),
        (
            "Nested box?",
            r"$\frac{1}{\sqrt{2}}$",
            {
                "answer": r"\frac{1}{\sqrt{2}}",
                "subject": "Algebra",
                "worked": r"First $\boxed{1}$, finally $\boxed{\frac{1}{\sqrt{2}}}$.",
            },
        ),
        "no_answer",
        (
            "Which numbers have the square 4?",
            "$2, -2$",
            {"answer": "2, -2", "subject": "Algebra", "worked": r"They are $\boxed{2}$ and $\boxed{-2}$."},
        ),
        "malformed",
        "no_prompt",
        "malformed",
    ],
    "acereason_math": [
        *six(*[{}] * 6),
        ("Find the mean of 2 and 5.", "$3.5$", {"answer": "3.5"}),
        ("Write 4/3 in LaTeX's shorthand.", r"$\frac{4}{3}$", {"answer": r"$\frac43$"}),
        ("How many grains?", "$1234567$", {"answer": "1,234,567"}),
        ("Give the pair.", "$(1,234)$", {"answer": "(1,234)"}),
        "proof",
        "no_answer",
        "no_answer",
        "no_choices",
        "figure",
        "malformed",
    ],
    "polaris": [
        *six(*({"difficulty": eighths / 8} for eighths in range(6))),
        ("Find $2^3$.", "$8$", {"answer": "8", "difficulty": 1.0}),
        ("What is the angle in degrees?", r"$336^\circ$", {"answer": r"336^\circ"}),
        ("What is $1-1$?", "$0$", {"answer": "0"}),
        ("What is $1-1$?", "$0$", {"answer": "0"}),
        "no_answer",
    ],
    "klear_math": [
        *six(*[{}] * 6),
        ("What is the last digit of $7^2$?\n(a) 7\n(b) 9", "$9$", {"answer": "9"}),
        "no_prompt",
        "malformed",
    ],
    "dapo_math": [
        ("Find $5^3$.", "$125$", {"answer": "125", **DAPO}),
        (r"求 $1+2+\dots+10$ 的值。", "$55$", {"answer": "55", **DAPO}),
        "no_prompt",
    ],
    "dapo_math_raw": [
        (CRATE, "$126$", {"answer": "126", **DAPO}),
        (CRATE, "$126$", {"answer": "126", **DAPO}),
        (r"求 $1+2+\dots+10$ 的值。", "$55$", {"answer": "55", **DAPO}),
        ("Find $5^3$.", "$125$", {"answer": "125", **DAPO}),
        ("No wording around it. Answer: $Answer is text here.", "$34$", {"answer": "34", **DAPO}),
        "no_answer",
    ],
    "open_reasoner_zero": [
        *six(*[{}, {"difficulty": 0.625}] * 3),
        ("How old is he?", "$n = 4$", {"answer": "n = 4"}),
        ("Which?", r"$\text{blue}$", {"answer": "blue", "difficulty": 0.125}),
        "no_answer",
        "malformed",
    ],
    "omega": [
        *(
            (GCD.format(a, b), f"${gcd}$", {"answer": str(gcd), "subject": "arithmetic_gcd"})
            for a, b, gcd in ((582, 312, 6), (324, 522, 18), (156, 324, 12), (294, 498, 6))
        ),
        (
            "Multiply the matrices.",
            r"$\begin{pmatrix} 1 & -2 \\ 0.5 & 4 \end{pmatrix}$",
            {"answer": "[[1, -2], [0.5, 4]]", **GIVEN},
        ),
        ("List the prime factors.", "$[2, 3, 7]$", {"answer": "[2, 3, 7]", **GIVEN}),
        ("What is the area?", "$13.6$", {"answer": "13.6", **GIVEN}),
        ("Invert.", "$[[1/2, 0], [0, 1]]$", {"answer": "[[1/2, 0], [0, 1]]", **GIVEN}),
        ("Ragged.", "$[[1, 2], [3]]$", {"answer": "[[1, 2], [3]]", **GIVEN}),
        (
            r"Present the answer in LaTeX format: \boxed{Your answer} is what the text says here.",
            "$7$",
            {"answer": "7", **GIVEN},
        ),
        "no_answer",
    ],
    "deepscaler": [
        ("How many sides has a square?", "$4$", {"answer": "4", "worked": r"Count them: $\boxed{4}$."}),
        ("How much is it?", "$32348$", {"answer": r"\$32,\!348"}),
        "no_answer",
        "no_answer",
    ],
    "numina": [
        (PART, r"$\frac{1}{6}$", {"answer": r"\frac{1}{6}", "subject": "Algebra", "part": "cn_k12"}),
        "proof",
        "invalid",
        (LETTERED, "B", {"answer": "B", "choices": ["10", "15", "20"], **OLYMPIAD}),
        (
            f"{TIMES}\nA. 10\nB. 15\nC. 20",
            "B",
            {"answer": r"\textbf{(B)}\ 15", "choices": ["10", "15", "20"], **OLYMPIAD},
        ),
        "no_choices",
        (f"{TIMES} (A) 10 (B) 15 (C) 20", "$15$", {"answer": "15", **OLYMPIAD}),
        "no_choices",
        "proof",
        "proof",
        "no_answer",
        "invalid",
        ("Who wins, player A or player B?", "$A$", {"answer": "A", **OLYMPIAD}),
        "no_choices",
    ],
    "openr1_math": [
        (CRATE, "$126$", {"answer": "126", **OLYMPIAD, "difficulty": 0.5}),
        (ROOT, r"$3\sqrt{5}$", {"answer": r"3\sqrt{5}", "subject": "Algebra", "part": "aops_forum", "difficulty": 0.0}),
        (
            "Read only by a model.",
            r"$12 \text{ m}$",
            {"answer": r"12 \text{ m}", "subject": "Geometry", "part": "olympiads"},
        ),
        ("Cut off, then right.", "$3$", {"answer": "3", **OLYMPIAD, "difficulty": 1.0}),
        ("Nulls.", "$3$", {"answer": "3"}),
    ],
    "synthetic_2": [
        (
            "Print n doubled.\n\nWrite Python code to solve the problem.",
            r'{"inputs": ["2\n"], "outputs": ["4\n"]}',
            {
                "difficulty": 0.375,
                "rewards": {"Qwen/Qwen3-32B": 0.5, "Qwen/Qwen3-4B": 0.25},
                "part": "prime_rl_code",
            },
        ),
        (
            "What is 4+5?",
            "$9$",
            {
                "answer": "9",
                "difficulty": 1.0,
                "rewards": {
                    "Qwen/Qwen3-32B": 1.0,
                    "Qwen/Qwen3-4B": 1.0,
                    "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B": 1.0,
                },
                "part": "prime_rl_math",
            },
        ),
        (
            "Write f.",
            '{"inputs": [[1, 2]], "outputs": [3], "fn_name": "f"}',
            {**RATED, "part": "prime_rl_code"},
        ),
        ("Lines.", r'{"inputs": ["1\n2"], "outputs": ["3"]}', {**RATED, "part": "prime_rl_code"}),
        "bad_tests",
        "no_tests",
        ("Half?", r"$\frac{1}{2}$", {"answer": r"\frac12", **RATED, "part": "sky_work_math"}),
        "several_golds",
        "unsupported_task",
        "unsupported_task",
        "malformed",
    ],
    "multi_subject": [
        ("Which gas do plants take in?", "Carbon dioxide", {"answer": "Carbon dioxide", "subject": "Biology"}),
        ("2+2=?", "4", {"answer": "4", "subject": "Mathematics"}),
        ("Which test confirms it?", "Western blot", {"answer": "Western blot"}),
        "no_answer",
        "no_prompt",
    ],
    "math_500": [
        *six(*({"subject": "Algebra", "level": 2, "worked": solved(answer, "So")} for _, answer, _ in SIX)),
        (
            "Which one? (A) 1 (B) 2",
            r"$\text{(B)}$",
            {"answer": r"\text{(B)}", "subject": "Algebra", "level": 1, "worked": "x"},
        ),
        "no_answer",
    ],
    "aime_2024": [
        ("Find the remainder of $7^{10}$ mod $1000$.", "$249$", {"answer": "249", "url": "https://example.org/1"}),
        ("How many divisors has 64?", "$7$", {"answer": "007", "url": "https://example.org/2"}),
        ("Find the remainder of $7^{10}$ mod $1000$.", "$249$", {"answer": "249", "url": "https://example.org/1"}),
        "not_an_integer",
        "no_answer",
    ],
    "aime_2025": [
        ("Find $2^{5}+1$.", "$33$", {"answer": "33"}),
        ("Which angle?", "$336$", {"answer": r"336^\circ"}),
        ("Which?", "$25$", {"answer": "25"}),
    ],
    "amc_2023": [
        ("What is 9 times 3?", "$27$", {"answer": "27", "url": "https://example.org/3"}),
        ("The other copy's column.", "$3$", {"answer": "3"}),
        ("A half?", "$0.5$", {"answer": "0.5"}),
        "no_answer",
        "no_answer",
    ],
    "minerva": [
        ("A lens has focal length 20 cm. What is its power in dioptres?", "$5$", {"answer": "5"}),
        ("Give Planck's constant in J s to two figures.", r"$6.6 \times 10^{-34}$", {"answer": "6.6e-34"}),
        ("As a list in JSON.", "$9.6$", {"answer": "9.6"}),
        ("As a list.", "$9.6$", {"answer": "9.6"}),
        ("As an interval.", "$[1,2]$", {"answer": "[1,2]"}),
        ("Symbols.", r"$\arcsin{1.3}$", {"answer": r"\arcsin{1.3}"}),
        "no_answer",
    ],
    "olympiadbench": [
        ("Find all integers $n$ with $n^2=9$.", "$3, -3$", {"answer": "3, -3", **COUNTED}),
        (
            "Use the circle.\n\nFind $\\pi$ to 1e-2.",
            "$3.14$",
            {"answer": "3.14", "error": "1e-2", "answer_type": "Numerical", "subject": "Geometry"},
        ),
        ("Which two?", "$69, 84$", {"answer": "$69$,$84$", "unit": "minutes", **COUNTED}),
        ("Which two numbers?", "$100, 200$", {"answer": "100,200", **COUNTED}),
        "no_answer",
    ],
}
TASKS = {"multi_subject": "judge"}


def source_of(name: str) -> Source:
    return BUILDERS[name] if name in BUILDERS else EVALUATION_SETS[name]


def raw_rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROWS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", EXPECTED)
def test_each_raw_row_gives_its_row_or_a_named_reason(name: str) -> None:
    source = source_of(name)
    found = []
    for raw in raw_rows(name):
        row, reason = source.convert.explained(raw)
        found.append(reason if row is None else (prompt_text(row), row["solution"], json.loads(row["extra"])))
    assert found == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_rows_follow_the_schema_and_name_their_source(name: str) -> None:
    source = source_of(name)
    rows, _ = converted(source, raw_rows(name))
    assert [error for row in rows for error in row_errors(row)] == []
    assert {row["source"] for row in rows} == {name}
    assert all(len(row["prompt"]) == 1 for row in rows)
    assert source.task in ("mixed", TASKS.get(name, "math"))
    kinds = {"B": "choice", "{": "code"}
    for row in rows:
        assert row["task"] == kinds.get(row["solution"][0], TASKS.get(name, "math"))


@pytest.mark.parametrize("name", EXPECTED)
def test_rows_are_the_same_after_arrow(name: str) -> None:
    from datasets import Dataset

    rows, _ = converted(source_of(name), raw_rows(name))
    assert Dataset.from_list(rows, features=features("rl")).to_list() == rows


@pytest.mark.parametrize("name", EXPECTED)
def test_a_row_with_the_columns_that_are_needed_alone_converts(name: str) -> None:
    source = source_of(name)
    raw = raw_rows(name)[0]
    bare = {column: raw[column] for column in source.columns}
    if name in ("amc_2023", "minerva"):
        bare["question"] = raw["question"]  # one of two names of the problem's column
    if name.startswith("aime"):
        bare["answer"] = raw["answer"]  # or a box in the solution
    row, reason = source.convert.explained(bare)
    assert reason is None
    full = source.convert(raw)
    assert row is not None
    assert full is not None
    assert (row["prompt"], row["solution"]) == (full["prompt"], full["solution"])


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("value", [None, 3, [], {}, "", [None], "\ud800", "x" * 100_000])
def test_a_field_of_the_wrong_kind_never_crashes(name: str, value: Any) -> None:
    source = source_of(name)
    raw = raw_rows(name)[0]
    for column in raw:
        row, reason = source.convert.explained({**raw, column: value})
        assert (row is None) != (reason is None)
        assert row is None or row_errors(row) == []


@pytest.mark.parametrize("name", [*EXPECTED, "openr1_math_sft", "omega_compositional", "omega_transformative"])
def test_a_conversion_pickles_by_name(name: str) -> None:
    convert = source_of(name).convert
    assert pickle.loads(pickle.dumps(convert)) is convert


@pytest.mark.parametrize(
    "name", ["math_500", "aime_2024", "aime_2025", "amc_2023", "minerva", "olympiadbench", "gsm8k"]
)
def test_evaluation_sets_are_marked_as_such(name: str) -> None:
    assert EVALUATION_SETS[name].evaluation
    assert name == "gsm8k" or name not in BUILDERS


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("klear_math", ["0", "1", "2", "3", "4", "5", "6"]),
        ("dapo_math", ["u3", "u2"]),
        ("dapo_math_raw", ["u1", "u1", "u2", "u3", prompt_id("No wording around it. Answer: $Answer is text here.")]),
        ("openr1_math", ["o1", "o2", "o3", "o4", prompt_id("Nulls.")]),
        ("minerva", [prompt_id(text) for text, *_ in EXPECTED["minerva"][:-1]]),
        ("math_500", [f"test/algebra/{number}.json" for number in range(7)]),
        ("aime_2024", ["1", "2", "1"]),
    ],
)
def test_source_id_is_that_of_the_source_or_a_hash_of_the_prompt(name: str, ids: list[str]) -> None:
    assert [row["source_id"] for row in converted(source_of(name), raw_rows(name))[0]] == ids


def test_gold_of_each_maths_row_is_right_in_a_box() -> None:
    from reward_funcs import accuracy_reward, choice_reward

    for name in EXPECTED:
        rows, _ = converted(source_of(name), raw_rows(name))
        maths = [row["solution"] for row in rows if row["task"] == "math"]
        assert accuracy_reward([rf"\boxed{{{gold[1:-1]}}}" for gold in maths], solution=maths) == [1.0] * len(maths)
        choices = [row for row in rows if row["task"] == "choice"]
        assert choice_reward(
            [rf"\boxed{{{row['solution']}}}" for row in choices],
            solution=[row["solution"] for row in choices],
            choices=[json.loads(row["extra"])["choices"] for row in choices],
        ) == [1.0] * len(choices)


# single sources


def test_open_reasoner_zero_item_as_a_list_is_the_row_of_its_columns() -> None:
    convert = BUILDERS["open_reasoner_zero"].convert
    for raw in raw_rows("open_reasoner_zero"):
        assert convert.explained([raw["0"], raw["1"]]) == convert.explained(raw)  # type: ignore[arg-type]


def test_open_reasoner_zero_letter_of_a_listed_option_is_a_choice() -> None:
    convert = BUILDERS["open_reasoner_zero"].convert
    problem = "Which is it? (A) 10 (B) 15 (C) 20"
    found = [convert([{"value": problem}, {"ground_truth": {"value": answer}}]) for answer in ("(B)", "$C$", "15")]
    rows = [row for row in found if row is not None]
    assert [(row["task"], row["solution"]) for row in rows] == [("choice", "B"), ("choice", "C"), ("math", "$15$")]
    assert json.loads(rows[0]["extra"])["choices"] == ["10", "15", "20"]


def test_dapo_wording_is_taken_off_at_the_ends_alone() -> None:
    convert = BUILDERS["dapo_math_raw"].convert
    raw = raw_rows("dapo_math_raw")[0]
    text = raw["prompt"][0]["content"]
    twice = {**raw, "prompt": [{"role": "user", "content": f"Quote: {text} End."}]}
    row = convert(twice)
    assert row is not None
    assert row["prompt"] == twice["prompt"]


def test_openr1_sft_takes_the_first_whole_and_right_solution() -> None:
    source = BUILDERS["openr1_math_sft"]
    rows, dropped = converted(source, raw_rows("openr1_math"))
    assert [row["completion"][0]["content"] for row in rows] == [
        "<think>\n6*7=42, 42*3=126\n</think>\nThe answer is \\boxed{126}.",
        "<think>z</think>\\boxed{3}",
    ]
    assert [row["source_id"] for row in rows] == ["o1", "o4"]
    assert [error for row in rows for error in row_errors(row)] == []
    assert dropped == {"no_verified_solution": 3}


def test_omega_has_the_kinds_of_its_three_parts_and_reads_their_train_splits_alone() -> None:
    parts = [BUILDERS[name] for name in ("omega", "omega_compositional", "omega_transformative")]
    assert [len(part.configs) for part in parts] == [41, 7, 7]
    for part in parts:
        assert len(set(part.configs)) == len(part.configs)
        assert dict(part.splits) == {"train": ("train",)}
        row = part.convert(raw_rows("omega")[0])
        assert row is not None
        assert row["source"] == part.name


# MATH less MATH-500


def test_hendrycks_math_drops_the_problems_of_the_evaluation_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hendrycks_math, "math_500_hashes", lambda: frozenset([text_hash(CRATE)]))
    monkeypatch.setattr(hendrycks_math, "math_500_marks", lambda: Contained(filter(None, [mark(CRATE)])))
    other_spacing = {**raw_rows("hendrycks_math")[0], "problem": CRATE.replace(" ", "  ").replace("?", " ?")}
    longer = {**raw_rows("hendrycks_math")[0], "problem": f"Problem 12. {CRATE} Explain each step."}
    for raw in (raw_rows("hendrycks_math")[0], other_spacing, longer):
        assert hendrycks_math.convert.explained(raw) == (None, "evaluation_set")
    assert hendrycks_math.convert(raw_rows("hendrycks_math")[1]) is not None


def test_math_500_hashes_are_five_hundred_in_order() -> None:
    lines = (Path(hendrycks_math.__file__).parent / hendrycks_math.HASHES).read_text(encoding="ascii").split()
    assert len(lines) == len(set(lines)) == 500
    assert lines == sorted(lines)
    assert all(len(line) == 16 and int(line, 16) >= 0 for line in lines)
    assert hendrycks_math.math_500_hashes() == frozenset(lines)


def test_math_500_marks_are_five_hundred_in_order() -> None:
    lines = (Path(hendrycks_math.__file__).parent / hendrycks_math.MARKS).read_text(encoding="ascii").splitlines()
    assert len(lines) == len(set(lines)) == 500
    assert lines == sorted(lines)
    marks = hendrycks_math.math_500_marks().marks.values()
    assert sum(len(digests) for lengths in marks for digests in lengths.values()) == 500


def real_rows(name: str) -> list[Any]:
    # a text may hold line separators that are no new row
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").split("\n") if line]


@needs_data
def test_math_500_hashes_are_those_of_its_problems() -> None:
    problems = [row["problem"] for row in real_rows("math500.jsonl")]
    assert {text_hash(problem) for problem in problems} == hendrycks_math.math_500_hashes()
    lines = (Path(hendrycks_math.__file__).parent / hendrycks_math.MARKS).read_text(encoding="ascii").splitlines()
    assert lines == sorted("{} {} {:08x}".format(*one) for one in map(mark, problems) if one is not None)
    for text in ("{}", "Solve this problem step by step.\n{}", "{}\nPut the answer in LaTeX.", "Problem 12. {}"):
        raw = [{"problem": text.format(problem), "solution": r"\boxed{1}"} for problem in problems]
        assert converted(BUILDERS["hendrycks_math"], raw) == ([], {"evaluation_set": 500})


@needs_data
def test_real_problems_of_the_training_set_hold_none_of_math_500() -> None:
    problems = [row["problem"] for row in real_rows("math_train.jsonl")]
    assert [problem for problem in problems if hendrycks_math.holds_math_500(problem)] == []


@needs_data
@pytest.mark.parametrize("change", [(r"\frac", r"\dfrac"), ("(", r"\left("), ("$x$", r"\( x \)"), ("=", " = ")])
def test_math_500_is_found_in_another_setting(change: tuple[str, str]) -> None:
    problems = [row["problem"].replace(*change) for row in real_rows("math500.jsonl")]
    assert [problem for problem in problems if not hendrycks_math.holds_math_500(problem)] == []


@needs_data
@pytest.mark.parametrize(
    ("name", "file", "dropped"),
    [
        ("math_500", "math500.jsonl", {}),
        ("olympiadbench", "olympiadbench.jsonl", {}),
        ("deepscaler", "math_train.jsonl", {"no_answer": 4}),
        ("open_reasoner_zero", "orz_57k_items.jsonl", {"figure": 28, "proof": 34, "gold_in_prompt": 3}),
        ("multi_subject", "multi_subject_rlvr.jsonl", {}),
        ("klear_math", "klear_mathsub.jsonl", {}),
    ],
)
def test_real_rows_convert(name: str, file: str, dropped: dict[str, int]) -> None:
    raw = real_rows(file)
    rows, found = converted(source_of(name), raw)
    assert found == dropped
    assert len(rows) == len(raw) - sum(dropped.values())
    assert [error for row in rows for error in row_errors(row)] == []


@needs_data
def test_real_problems_lose_nothing_but_the_wording_of_the_source() -> None:
    rows, _ = converted(BUILDERS["open_reasoner_zero"], real_rows("orz_57k_items.jsonl"))
    texts = {item[0]["value"].strip() for item in real_rows("orz_57k_items.jsonl")}
    assert {prompt_text(row) for row in rows} <= texts
    levels = Counter(json.loads(row["extra"]).get("difficulty") for row in rows)
    assert set(levels) == {None, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875}
