r"""OMEGA: generated problems of 55 kinds that ask for exploration, composition or a change of method."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from datasets_builders.golds import math_gold, written
from datasets_builders.schema import Row
from datasets_builders.source import Source, conversion
from datasets_builders.sources._maths import math_row
from datasets_builders.sources._turns import asked_and_replied

_INSTRUCTION = re.compile(r"Present the answer in LaTeX format: ?\\boxed\{Your answer\}\.?\Z")


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Problem and answer; the kind of problem (`setting_key`) stays in `extra` as `subject`.

    The sentence that asks for a box is taken off the problem. A matrix as a list of rows becomes LaTeX. A comma always
    separates answers, so that `100,200` is two: the programs that made the problems write no thousands separators.
    """
    return _row(row, "omega")


@conversion
def convert_compositional(row: Mapping[str, Any]) -> Row:
    """As [`convert`], for problems that put two skills together."""
    return _row(row, "omega_compositional")


@conversion
def convert_transformative(row: Mapping[str, Any]) -> Row:
    """As [`convert`], for problems that the usual method does not solve."""
    return _row(row, "omega_transformative")


def _row(row: Mapping[str, Any], name: str) -> Row:
    prompt, _ = asked_and_replied(row["messages"])
    answer = row["ground_truth"]
    return math_row(
        _INSTRUCTION.sub("", prompt[-1]["content"].strip()),
        answer,
        gold=_matrix(answer) or math_gold(answer, several=True),
        source=name,
        source_id=row.get("id"),
        subject=row.get("setting_key") or row.get("setting_name"),
    )


def _matrix(answer: Any) -> str | None:
    """The gold of a matrix that is written as `[[1, 2], [3, 4]]`; `None` for any other answer."""
    if not isinstance(answer, str) or not answer.strip().startswith("[["):
        return None
    try:
        rows = json.loads(answer)
    except ValueError:
        return None  # fractions, for instance: the rewards read such a list as it is
    if not all(isinstance(row, list) and row and len(row) == len(rows[0]) for row in rows):
        return None
    body = r" \\ ".join(" & ".join(written(value) for value in row) for row in rows)
    return math_gold(rf"\begin{{pmatrix}} {body} \end{{pmatrix}}")


EXPLORATIVE_KINDS = (
    "algebra_func_area",
    "algebra_func_derivative_sign",
    "algebra_func_extrema",
    "algebra_func_extrema_coords",
    "algebra_func_intersection",
    "algebra_func_intersection_coords",
    "algebra_func_zeros",
    "algebra_linear_equation",
    "algebra_polynomial_roots",
    "arithmetic_gcd",
    "arithmetic_list_prime_factors",
    "arithmetic_matrix_determinant",
    "arithmetic_matrix_eigenvalues",
    "arithmetic_matrix_inverse",
    "arithmetic_matrix_multiplication",
    "arithmetic_matrix_power",
    "arithmetic_matrix_rank",
    "arithmetic_matrix_svd",
    "arithmetic_mixed",
    "combinatory_distribution",
    "combinatory_pattern_matching",
    "combinatory_probability_at_least_n_specific_fixed",
    "combinatory_probability_exactly_n_specific_fixed",
    "combinatory_probability_no_fixed_points",
    "combinatory_probability_no_specific_letter_fixed",
    "geometry_basic",
    "geometry_circle",
    "geometry_perpendicular_intersection",
    "geometry_polygon",
    "geometry_polygon_chords",
    "geometry_polygon_color",
    "geometry_polygon_rotation",
    "geometry_triangle",
    "logic_gridworld_blocked",
    "logic_gridworld_knight_move",
    "logic_gridworld_rookmove",
    "logic_puzzles_grid_chip",
    "logic_zebralogic",
    "numbertheory_lte_qr",
    "numbertheory_ordered_lte",
    "numbertheory_qr_sum",
)
COMPOSITIONAL_KINDS = (
    "comp_circles_algebra",
    "comp_grid_chips",
    "comp_matrix_rank",
    "comp_n_gon",
    "comp_parametric_intersection",
    "comp_polynomial_gcd",
    "comp_vertex_color",
)
TRANSFORMATIVE_KINDS = (
    "trans_circles",
    "trans_de_moivre",
    "trans_func_intersection",
    "trans_gridworld",
    "trans_integrations",
    "trans_matrix_rank",
    "trans_prob_letter",
)
_NOTE = "The test splits are the OMEGA benchmark, an evaluation set, and are not read."
EXPLORATIVE = Source(
    name="omega",
    convert=convert,
    task="math",
    licence="mit",
    path="allenai/omega-explorative",
    revision="b04ae8d4757a2229e8ed65ac6a923e502d0bbb95",
    configs=EXPLORATIVE_KINDS,
    splits={"train": ("train",)},
    columns=("messages", "ground_truth"),
    optional_columns=("id", "setting_key", "setting_name"),
    note=_NOTE,
)
COMPOSITIONAL = Source(
    name="omega_compositional",
    convert=convert_compositional,
    task="math",
    licence="mit",
    path="allenai/omega-compositional",
    pin_at_first_read=True,
    configs=COMPOSITIONAL_KINDS,
    splits={"train": ("train",)},
    columns=("messages", "ground_truth"),
    optional_columns=("id", "setting_key", "setting_name"),
    note=_NOTE,
)
TRANSFORMATIVE = Source(
    name="omega_transformative",
    convert=convert_transformative,
    task="math",
    licence="mit",
    path="allenai/omega-transformative",
    pin_at_first_read=True,
    configs=TRANSFORMATIVE_KINDS,
    splits={"train": ("train",)},
    columns=("messages", "ground_truth"),
    optional_columns=("id", "setting_key", "setting_name"),
    note=_NOTE,
)
SOURCES = (EXPLORATIVE, COMPOSITIONAL, TRANSFORMATIVE)
