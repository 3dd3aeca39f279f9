"""UltraFeedback as pairs, made by the H4 team: the best reply against a random other one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from datasets_builders.schema import Row, preference_row
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._turns import asked_and_replied, reply


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The pair with `margin`, the score of the chosen reply minus that of the rejected one (1 to 10 each).

    Dropped: `no_margin` (equal scores, or one that is missing), `inverted` (the rejected reply has the better score),
    `same_reply`, `different_prompts`, `no_prompt`, `no_reply`.
    """
    prompt, chosen = asked_and_replied(row["chosen"])
    other, rejected = asked_and_replied(row["rejected"])
    if prompt != other:
        raise Drop("different_prompts")
    if reply(chosen).strip() == reply(rejected).strip():
        raise Drop("same_reply")
    scores = row["score_chosen"], row["score_rejected"]
    if any(score is None or not math.isfinite(score) for score in scores) or scores[0] == scores[1]:
        raise Drop("no_margin")
    if scores[0] < scores[1]:
        raise Drop("inverted")
    return preference_row(
        prompt,
        chosen,
        rejected,
        source="ultrafeedback_binarized",
        source_id=row["prompt_id"],
        margin=round(scores[0] - scores[1], 6),
        ratings=list(scores),
    )


TRAINING = Source(
    name="ultrafeedback_binarized",
    convert=convert,
    task="preference",
    licence="mit",
    path="HuggingFaceH4/ultrafeedback_binarized",
    split="train_prefs",
    splits={"train": ("train_prefs",), "test": ("test_prefs",)},
    revision="3949bf5f8c17c394422ccfab0c31ea9c20bdeb85",
    columns=("prompt_id", "chosen", "rejected", "score_chosen", "score_rejected"),
    size=61_135,
    note="The part made of TruthfulQA was left out by its makers.",
)
SOURCES = (TRAINING,)
