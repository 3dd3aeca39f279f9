"""Comparisons of two replies by the rating of a labelling guide, and the guide's rule for competing criteria.

The guide asks which of two replies is more helpful (does what the user meant), truthful (accurate and not misleading)
and harmless (causes no physical, psychological or social harm), and has four grades: a reply is better, or only
slightly better where it is truly close.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from datasets_builders.schema import Row, messages, preference_row

# Grades by the sentence of the rating form; reply a is its Response 1.
RATINGS = {
    "a_better": "Response 1 is better",
    "a_slightly_better": "Response 1 is only slightly better",
    "b_slightly_better": "Response 2 is only slightly better",
    "b_better": "Response 2 is better",
}
# What the rule says of two replies that it cannot tell apart; the rating form has no such grade.
TIED = "tied"
# Margins of the preference loss by strength of the grade: of Llama 2's small scale (1, 2/3, 1/3, 0) the two in between.
MARGINS = {"better": 2 / 3, "slightly_better": 1 / 3}
CRITERIA = ("helpful", "truthful", "harmless")

_NAMES = {" ".join(sentence.lower().split()): name for name, sentence in RATINGS.items()}


def comparison_record(
    prompt: str | Sequence[Mapping[str, Any]],
    reply_a: str | Sequence[Mapping[str, Any]],
    reply_b: str | Sequence[Mapping[str, Any]],
    rating: str,
    *,
    margins: Mapping[str, float] = MARGINS,
    source: str = "comparison",
    source_id: object = None,
    **extra: Any,
) -> Row | None:
    """The preference row of a rated pair: the better reply is `chosen`, and `margin` tells a clear from a close call.

    Args:
        prompt (`str` or `list[dict]`): what both replies answer.
        reply_a (`str` or `list[dict]`): the guide's Response 1.
        reply_b (`str` or `list[dict]`): the guide's Response 2.
        rating (`str`): a key of `RATINGS`, or its sentence with or without the full stop and a remark in brackets;
            `"tied"` where neither is better.
        margins (`Mapping[str, float]`, *optional*): margin of `"better"` and of `"slightly_better"`.
        source (`str`, *optional*, defaults to `"comparison"`): name of the source.
        source_id (`object`, *optional*): the source's own id; by default a hash of the prompt.
        extra (`Any`): whatever else is worth keeping, as JSON values; the rating is kept anyway.

    Returns:
        `dict` or `None`: the columns of `COLUMNS["preference"]`; `None` for a tie, from which nothing is to be learnt.

    Raises:
        ValueError: For a rating that is none of these, a margin that is not above 0, an empty prompt or reply, and
            replies that are the same.

    Source: the comparison form and the labelling guide of Ouyang et al. 2022 (InstructGPT); margins of Touvron et al.
    2023 (Llama 2), whose four grades of strength are two here.

    Example:

    ```python
    >>> row = comparison_record("Name a fruit.", "A chair.", "An apple.", "Response 2 is only slightly better.")
    >>> row["chosen"][0]["content"], round(row["margin"], 3), row["extra"]
    ('An apple.', 0.333, '{"rating": "b_slightly_better"}')

    ```
    """
    name = _rating_name(rating)
    replies = {"a": messages(reply_a, "assistant"), "b": messages(reply_b, "assistant")}
    _check_texts({"prompt": messages(prompt), "reply_a": replies["a"], "reply_b": replies["b"]})
    if replies["a"] == replies["b"]:
        raise ValueError(f"reply_a and reply_b are the same ({_short(replies['a'])}); a comparison needs two replies")
    if name == TIED:
        return None
    winner, strength = name.split("_", 1)
    return preference_row(
        prompt,
        replies[winner],
        replies["b" if winner == "a" else "a"],
        source=source,
        source_id=source_id,
        margin=_margin(margins, strength),
        rating=name,
        **extra,
    )


def priority_rating(
    scores_a: Mapping[str, float],
    scores_b: Mapping[str, float],
    *,
    high_stakes: bool = False,
    slight: float = 1.0,
    much: float = 2.0,
) -> str:
    """The guide's rating of two replies that are scored by criterion, higher is better.

    Being truthful and harmless comes before being helpful: the reply with the higher sum of both is better. The more
    helpful reply is preferred all the same, and then only slightly, if it is (a) at least `much` more helpful, (b) at
    most `slight` behind in that sum, and (c) nothing high stakes is at issue (loans, therapy, medical or legal advice).
    Where the sums are equal the more helpful reply is better; equally helpful ones are tied, whatever their faults. A
    reply that leads by no more than `slight` in what decides is only slightly better.

    Args:
        scores_a (`Mapping[str, float]`): scores of the first reply for `helpful`, `truthful` and `harmless`.
        scores_b (`Mapping[str, float]`): scores of the second reply on the same scale.
        high_stakes (`bool`, *optional*, defaults to `False`): whether the task is in a high stakes domain.
        slight (`float`, *optional*, defaults to 1.0): what still is a slight difference; 1 of the scale 1 to 5.
        much (`float`, *optional*, defaults to 2.0): from where on a reply is much more helpful; above `slight`.

    Returns:
        `str`: a key of `RATINGS`, or `"tied"`.

    Raises:
        ValueError: For a criterion that is missing, unknown or no finite number, and for `much` not above `slight`.

    Source: the trade-offs of the labelling guide of Ouyang et al. 2022. The guide leaves "slightly" and "much" to the
    reader, and asks of replies that are untruthful or harmful in different ways which one does more harm; ours are
    numbers, and the higher sum.

    Example:

    ```python
    >>> careful = {"helpful": 2, "truthful": 5, "harmless": 5}
    >>> rich = {"helpful": 5, "truthful": 4, "harmless": 5}
    >>> priority_rating(careful, rich), priority_rating(careful, rich, high_stakes=True)
    ('b_slightly_better', 'a_slightly_better')

    ```
    """
    _check_number("slight", slight)
    _check_number("much", much)
    if slight < 0 or much <= slight:
        raise ValueError(f"slight={slight!r} must be 0 or more and much={much!r} above it")
    _check_scores("scores_a", scores_a)
    _check_scores("scores_b", scores_b)
    safe = scores_a["truthful"] + scores_a["harmless"] - scores_b["truthful"] - scores_b["harmless"]
    helpful = scores_a["helpful"] - scores_b["helpful"]
    if safe * helpful < 0 and abs(helpful) >= much and abs(safe) <= slight and not high_stakes:
        return "a_slightly_better" if helpful > 0 else "b_slightly_better"
    return rating_of_difference(safe or helpful, slight=slight)


def rating_of_difference(difference: float, *, slight: float) -> str:
    """The rating of two replies by the score of the first minus that of the second.

    Args:
        difference (`float`): above 0 where the first reply is better.
        slight (`float`): up to this size of the difference a reply is only slightly better.

    Returns:
        `str`: a key of `RATINGS`, or `"tied"` at 0.

    Example:

    ```python
    >>> [rating_of_difference(one, slight=1) for one in (3, 1, 0, -2)]
    ['a_better', 'a_slightly_better', 'tied', 'b_better']

    ```
    """
    if difference == 0:
        return TIED
    return f"{'a' if difference > 0 else 'b'}_{'slightly_' if abs(difference) <= slight else ''}better"


def _rating_name(rating: str) -> str:
    text = rating.partition("(")[0].strip().rstrip(".").lower() if isinstance(rating, str) else ""
    name = _NAMES.get(" ".join(text.split()), text)
    if name in RATINGS or name == TIED:
        return name
    names = [*RATINGS, TIED]
    close = difflib.get_close_matches(text, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(names)}"
    raise ValueError(f"rating={rating!r} is no rating of the guide; {hint}")


def _margin(margins: Mapping[str, float], strength: str) -> float:
    margin = margins.get(strength)
    if isinstance(margin, bool) or not isinstance(margin, (int, float)) or not 0 < margin < math.inf:
        raise ValueError(f"margins[{strength!r}]={margin!r} must be a number above 0, such as {MARGINS[strength]:.3f}")
    return float(margin)


def _check_texts(texts: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
    for name, turns in texts.items():
        if not turns or not turns[-1]["content"].strip():
            raise ValueError(f"{name}={_short(turns)} is empty; a comparison needs a prompt and two replies")


def _short(turns: Sequence[Mapping[str, str]]) -> str:
    return repr(turns[-1]["content"][:60] if turns else [])


def _check_scores(name: str, scores: Mapping[str, float]) -> None:
    missing = [criterion for criterion in CRITERIA if criterion not in scores]
    if missing:
        raise ValueError(f"{name} has no score for {', '.join(missing)}; it needs {', '.join(CRITERIA)}")
    for criterion, score in scores.items():
        if criterion not in CRITERIA:
            close = difflib.get_close_matches(str(criterion), CRITERIA, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the guide has {', '.join(CRITERIA)}"
            raise ValueError(f"{name} scores {criterion!r}, which is no criterion of the guide; {hint}")
        _check_number(f"{name}[{criterion!r}]", score)


def _check_number(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{name}={value!r} must be a finite number")
