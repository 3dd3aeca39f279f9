"""What a judge says: the last JSON object of its reply, with the scores checked against their scales."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reward_funcs._rubric_criterion import Criterion
from reward_funcs.extract import after_think

MAX_REPLY = 20_000  # characters at the end of a reply that are read
MAX_BRACES = 512
MAX_REASON = 500

_DECODER = json.JSONDecoder()
_SIDES = {"1": 1.0, "first": 1.0, "response 1": 1.0, "tie": 0.0, "2": -1.0, "second": -1.0, "response 2": -1.0}


class BadReply(ValueError):
    """A reply that cannot be used: `cause` is counted, the text tells the judge what to correct."""

    def __init__(self, cause: str, fault: str) -> None:
        super().__init__(fault)
        self.cause = cause


class Scores(NamedTuple):
    """Scores and reasons by the name of the criterion."""

    scores: dict[str, float]
    reasons: dict[str, str]


def last_object(text: str) -> dict[str, Any] | None:
    """The last complete JSON object of a text that stands in no other, `None` where there is none.

    Args:
        text (`str`): a reply, with whatever stands around the object: reasons, a code fence, a think block.

    Returns:
        `dict`, *optional*: the object.

    Example:

    ```python
    >>> last_object('The text says {"score": 5}. I say:\\n```json\\n{"1": {"score": 2}}\\n```')
    {'1': {'score': 2}}

    ```
    """
    text = after_think(text)[-MAX_REPLY:]
    found, after = None, 0
    for start in _last_braces(text):
        if start >= after:
            try:
                found, after = _DECODER.raw_decode(text, start)
            except (ValueError, RecursionError):  # no JSON, or brackets a thousand deep
                continue
    return found


def _last_braces(text: str) -> Sequence[int]:
    """Where the last braces open, in order; a number of them that bounds the time for a text of braces alone."""
    starts: list[int] = []
    end = len(text)
    while len(starts) < MAX_BRACES and (end := text.rfind("{", 0, end)) != -1:
        starts.append(end)
    return starts[::-1]


def read_scores(text: str, criteria: Sequence[Criterion]) -> Scores:
    """The score of each criterion from a judge's reply.

    The form that is asked for is `{"1": {"reason": ..., "score": ...}, ...}` by the number of the criterion; names in
    place of numbers, scores without reasons, and all that inside `{"scores": ...}` are read too.

    Args:
        text (`str`): the reply.
        criteria (`Sequence[Criterion]`): what was to be scored, in the order of the numbers.

    Returns:
        `Scores`: a score in range for each of them, and the reasons that were given.

    Raises:
        BadReply: With the cause `malformed` or `out_of_range`.

    Example:

    ```python
    >>> one = Criterion("clarity", "It is clear.", max_score=2)
    >>> read_scores('{"1": {"reason": "short", "score": 2}}', [one])
    Scores(scores={'clarity': 2.0}, reasons={'clarity': 'short'})
    >>> read_scores('{"1": {"score": 5}}', [one])
    Traceback (most recent call last):
    reward_funcs._judge_reply.BadReply: the score of 1 (clarity) is 5, but it must be from 0 to 2

    ```
    """
    given = _object(text)
    for key in ("scores", "criteria"):
        if isinstance(given.get(key), Mapping):
            given = given[key]
    by_name = {str(key).strip().casefold(): value for key, value in given.items()}
    scores, reasons = {}, {}
    for number, one in enumerate(criteria, start=1):
        entry = by_name.get(str(number), by_name.get(one.name.strip().casefold()))
        if entry is None and len(criteria) == 1:
            entry = given if "score" in by_name else None
        if entry is None:
            raise BadReply("malformed", f"the JSON object has no score for {number} ({one.name})")
        scores[one.name] = _score(entry, one, number)
        reason = entry.get("reason") if isinstance(entry, Mapping) else None
        reasons[one.name] = reason.strip()[:MAX_REASON] if isinstance(reason, str) else ""
    return Scores(scores, reasons)


def read_better(text: str) -> Scores:
    """Which of two responses a judge prefers: 1.0 for the first, -1.0 for the second, 0.0 for a tie.

    Raises:
        BadReply: With the cause `malformed`.

    Example:

    ```python
    >>> read_better('The second one is wrong. {"reason": "wrong sum", "better": 1}')
    Scores(scores={'better': 1.0}, reasons={'better': 'wrong sum'})

    ```
    """
    given = _object(text)
    side = _SIDES.get(str(given.get("better")).strip().casefold())
    if side is None:
        raise BadReply("malformed", f'"better" is {given.get("better")!r:.40}, but it must be 1, 2 or "tie"')
    reason = given.get("reason")
    return Scores({"better": side}, {"better": reason.strip()[:MAX_REASON] if isinstance(reason, str) else ""})


def _object(text: str) -> Mapping[str, Any]:
    given = last_object(text)
    if given is None:
        raise BadReply("malformed", "it holds no complete JSON object")
    return given


def _score(entry: Any, criterion: Criterion, number: int) -> float:
    value = entry.get("score") if isinstance(entry, Mapping) else entry
    place = f"the score of {number} ({criterion.name})"
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        score = float(value)
    except (ValueError, OverflowError):
        raise BadReply("malformed", f"{place} is {value!r:.40}, but it must be a number") from None
    if math.isnan(score) or not criterion.allows(score):
        raise BadReply("out_of_range", f"{place} is {value!r:.40}, but it must be {criterion.allowed()}")
    return score
