"""UltraFeedback: four replies to each instruction, rated by GPT-4 in four aspects."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

from datasets_builders.comparison import rating_of_difference
from datasets_builders.schema import Row, preference_row, text_hash
from datasets_builders.source import Drop, Source, conversion
from datasets_builders.sources._turns import filled

ASPECTS = ("helpfulness", "honesty", "instruction_following", "truthfulness")
# The part made of TruthfulQA, an evaluation set.
CONTAMINATED_PART = "truthful_qa"
SLIGHT = 0.5  # up to this difference of mean ratings a reply is only slightly better


@conversion
def convert(row: Mapping[str, Any]) -> Row:
    """The reply with the best mean rating, against one drawn from those rated lower; `margin` is the difference.

    The draw is seeded by the instruction, so a row gives the same pair wherever it stands. A rating is the mean of the
    four aspects (1 to 5, `N/A` left out) and not `overall_score`, which holds 10 for some replies whose critique says
    1. `extra` keeps `rating` in the words of [`comparison_record`], the ratings and models of both replies and the
    `part`. Dropped: `evaluation_set` (the part truthful_qa), `no_prompt`, `no_margin` (no two replies with different
    ratings).
    """
    if row["source"] == CONTAMINATED_PART:
        raise Drop("evaluation_set")
    prompt = filled(row["instruction"], "no_prompt")
    rated = [(score, one) for one in row["completions"] if (score := _mean_rating(one)) is not None]
    top = max((score for score, _ in rated), default=0.0)
    draw = random.Random(text_hash(prompt))
    best = draw.choice([one for score, one in rated if score == top]) if rated else {}
    lower = [(score, one) for score, one in rated if score < top and one["response"] != best["response"]]
    if not lower:
        raise Drop("no_margin")
    score, worse = draw.choice(lower)
    return preference_row(
        prompt,
        best["response"],
        worse["response"],
        source="ultrafeedback",
        margin=round(top - score, 6),
        rating=rating_of_difference(top - score, slight=SLIGHT),
        ratings=[round(top, 6), round(score, 6)],
        models=[best.get("model"), worse.get("model")],
        part=row["source"],
    )


def _mean_rating(completion: Mapping[str, Any]) -> float | None:
    """Mean of a reply's ratings; `None` where it has none, or says nothing."""
    if not (completion["response"] or "").strip():
        return None
    annotations = completion["annotations"] or {}
    texts = [str((annotations.get(aspect) or {}).get("Rating")).strip() for aspect in ASPECTS]
    ratings = [int(text) for text in texts if text in {"1", "2", "3", "4", "5"}]
    return math.fsum(ratings) / len(ratings) if ratings else None


TRAINING = Source(
    name="ultrafeedback",
    convert=convert,
    task="preference",
    licence="mit",
    path="openbmb/UltraFeedback",
    revision="40b436560ca83a8dba36114c22ab3c66e43f6d5e",
    columns=("source", "instruction", "completions"),
    size=63_967,
    note="Ratings are GPT-4's; the part made of TruthfulQA is dropped.",
)
SOURCES = (TRAINING,)
