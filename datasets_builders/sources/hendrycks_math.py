"""MATH (Hendrycks et al., 2021): competition problems of seven subjects with worked solutions, less MATH-500."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from datasets_builders.containment import Contained, Mark
from datasets_builders.golds import boxed_gold
from datasets_builders.schema import Row, text_hash
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._maths import math_row
from datasets_builders.sources._turns import filled

HASHES = "math_500_hashes.txt"
MARKS = "math_500_marks.txt"


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The last box of the solution is the answer; subject, level (1 to 5) and the solution stay in `extra`.

    Dropped: `evaluation_set` for the problems of MATH-500, `no_prompt`, `no_answer` without a box.
    """
    problem = filled(row["problem"], "no_prompt")
    if holds_math_500(problem):
        raise Drop("evaluation_set")
    answer, gold = boxed_gold(row["solution"])
    return math_row(
        problem,
        answer,
        gold=gold,
        source="hendrycks_math",
        subject=row.get("type"),
        level=_level(row.get("level")),
        worked=row["solution"].strip(),
    )


@cache
def math_500_hashes() -> frozenset[str]:
    """[`text_hash`] of each problem of MATH-500."""
    return frozenset(files(__package__).joinpath(HASHES).read_text(encoding="ascii").split())


@cache
def math_500_marks() -> Contained:
    """Finds the problems of MATH-500 in other texts, by [`datasets_builders.containment.mark`] of each problem.

    The file holds the three parts of one mark a line, in order, the last in hexadecimal digits.
    """
    lines = files(__package__).joinpath(MARKS).read_text(encoding="ascii").splitlines()
    return Contained(Mark(digest, int(length), int(head, 16)) for digest, length, head in map(str.split, lines))


def holds_math_500(text: str) -> bool:
    """Whether a text is a problem of MATH-500 or holds one whole, in whatever setting of its formulas.

    Args:
        text (`str`): a prompt.
    """
    return text_hash(text) in math_500_hashes() or bool(math_500_marks().found(text))


def _level(text: Any) -> int | None:
    """5 of "Level 5"; a few rows say "Level ?"."""
    digits = str(text).removeprefix("Level ").strip()
    return int(digits) if digits.isascii() and digits.isdecimal() else None


TRAINING = Source(
    name="hendrycks_math",
    convert=convert,
    task="math",
    licence="mit",
    path="EleutherAI/hendrycks_math",
    configs=(
        "algebra",
        "counting_and_probability",
        "geometry",
        "intermediate_algebra",
        "number_theory",
        "prealgebra",
        "precalculus",
    ),
    splits={"train": ("train",), "test": ("test",), "math_500_safe": ("train", "test")},
    revision="21a5633873b6a120296cce3e2df9d5550074f4a3",
    columns=("problem", "solution"),
    optional_columns=("level", "type"),
    size=7500,
    note=(
        "MATH-500 is dropped from every split: train has 7,500 rows, test 4,500 of 5,000, and math_500_safe, all that "
        "is not in MATH-500, 12,000. Other sources hold problems of MATH too: decontaminate them."
    ),
)
SOURCES = (TRAINING,)
