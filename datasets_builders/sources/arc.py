"""ARC: science questions of American schools with three to five options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row, rl_row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._turns import filled

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """Options are lettered by position, whatever their labels are, and listed below the question as `A. text`.

    The gold is the letter of the option that `answerKey` labels; `extra` keeps `choices` and `answer`, the label as
    first written. Dropped: `no_prompt`, `bad_choices` (fewer than two options, labels that are not one for each option
    and different, an empty option, or the right option's text twice), `no_answer` (a key that labels no option).
    """
    return _row(row, "arc_easy")


@conversion
def convert_challenge(row: Mapping[str, Any]) -> Row:
    """As [`convert`], for the questions that simple methods answer wrongly."""
    return _row(row, "arc_challenge")


def _row(row: Mapping[str, Any], name: str) -> Row:
    choices = row["choices"]
    if isinstance(choices, list):  # a copy may hold one record an option
        choices = {column: [one[column] for one in choices] for column in ("label", "text")}
    labels = list(choices["label"])
    options = [" ".join(option.split()) for option in choices["text"]]
    if not 2 <= len(options) <= len(LETTERS) or len(labels) != len(options) or len(set(labels)) != len(labels):
        raise Drop("bad_choices")
    if not all(options):
        raise Drop("bad_choices")
    key = row["answerKey"]
    if key not in labels:
        raise Drop("no_answer")
    place = labels.index(key)
    if options.count(options[place]) > 1:
        raise Drop("bad_choices")
    question = filled(row["question"], "no_prompt")
    listed = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False))
    return rl_row(
        f"{question}\n\n{listed}",
        LETTERS[place],
        task="choice",
        source=name,
        source_id=row["id"],
        answer=key,
        choices=options,
    )


EASY = Source(
    name="arc_easy",
    convert=convert,
    task="choice",
    licence="cc-by-sa-4.0",
    path="allenai/ai2_arc",
    config="ARC-Easy",
    split="test",
    revision="210d026faf9955653af8916fad021475a3f00453",
    columns=("id", "question", "choices", "answerKey"),
    size=2376,
    evaluation=True,
)
CHALLENGE = Source(
    name="arc_challenge",
    convert=convert_challenge,
    task="choice",
    licence="cc-by-sa-4.0",
    path="allenai/ai2_arc",
    config="ARC-Challenge",
    split="test",
    revision="210d026faf9955653af8916fad021475a3f00453",
    columns=("id", "question", "choices", "answerKey"),
    size=1172,
    evaluation=True,
)
SOURCES = (EASY, CHALLENGE)
