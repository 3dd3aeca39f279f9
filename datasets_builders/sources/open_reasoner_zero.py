"""Open-Reasoner-Zero: 57k competition problems with short answers, as a list of two-turn dialogues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from datasets_builders.golds import pass_rate
from datasets_builders.schema import Row
from datasets_builders.source import Source, conversion
from datasets_builders.sources._maths import MAX_LETTER, choice_letter, choice_row, math_row, options


@conversion
def convert(row: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Row:
    """The first turn is the problem, `ground_truth.value` of the second the answer.

    An item of the file is a list of two, of which `datasets` makes the columns `"0"` and `"1"`; both forms are read.
    `difficulty` is `pass_at_n`, which most rows of the 57k collection have and none of the 72k: the share of right
    answers of a model that the source does not name.

    A problem that lists its options and has a letter as its answer is a row of task `choice`; where the answer is the
    value of an option, it stays mathematics, and a letter is no right answer to it.
    """
    asked, answered = (row["0"], row["1"]) if isinstance(row, Mapping) else (row[0], row[1])
    truth = answered["ground_truth"]
    problem, answer, rate = asked["value"], truth["value"], pass_rate(truth.get("pass_at_n"))
    letter = choice_letter(answer.strip()) if isinstance(answer, str) and len(answer) < MAX_LETTER else None
    if letter is not None and isinstance(problem, str) and options(problem) is not None:
        return choice_row(problem, answer.strip(), letter, source="open_reasoner_zero", difficulty=rate)
    return math_row(problem, answer, source="open_reasoner_zero", difficulty=rate)


TRAINING = Source(
    name="open_reasoner_zero",
    convert=convert,
    task="mixed",
    licence="mit",
    path="Open-Reasoner-Zero/orz_math_57k_collection",
    pin_at_first_read=True,
    columns=("0", "1"),
    size=57_000,
    note=(
        "Rows are of task math and, where options are listed and the answer is a letter, choice. Proofs are dropped. "
        "The collections of 72k and 13k problems have the same form: read them with local_path."
    ),
)
SOURCES = (TRAINING,)
