"""What a judge says: the JSON object that its reply ends in, with the scores checked against their scales.

A judge quotes what it judges, verdicts that were written there for it included. So an object counts only where it is
the judge's own for certain: nothing but a closing code fence follows it, no brace of a broken object stands before it,
and it is no piece of the judged text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reward_funcs._judge_clean import encodable
from reward_funcs._rubric_criterion import Criterion
from reward_funcs.extract import THINK_CLOSE, THINK_OPEN, without_end_tokens

MAX_REPLY = 1_000_000  # characters
MAX_REASON = 500
MAX_TAILS = 4  # ends of think blocks behind which an object is looked for

_SIDES = {"1": 1.0, "first": 1.0, "response 1": 1.0, "tie": 0.0, "2": -1.0, "second": -1.0, "response 2": -1.0}
_BRACE = re.compile(r"[{}]")
# A brace that opens a verdict, of JSON or of what was meant to be it; braces of formulas and of prose do not.
_MAPPING = re.compile(r"""\{\s*+(?:["']|(?:\d++|reasons?|scores?|better|criteria)\s*+:)""")


class BadReply(ValueError):
    """A reply that cannot be used: `cause` is counted, the text tells the judge what to correct."""

    def __init__(self, cause: str, fault: str) -> None:
        super().__init__(fault)
        self.cause = cause


class Scores(NamedTuple):
    """Scores and reasons by the name of the criterion."""

    scores: dict[str, float]
    reasons: dict[str, str]


class Found(NamedTuple):
    """The object that a reply ends in, as it is written there, and whether a line begins with it."""

    value: dict[str, Any]
    source: str
    begins_line: bool


def last_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text ends in, `None` where it does not end in one.

    Args:
        text (`str`): a reply, with whatever stands before the object (reasons, a think block, other complete objects)
            and a code fence around it. A brace before it that opens an object and is no part of a complete one makes
            all of it uncertain: the last object may be a quotation inside a broken one.

    Returns:
        `dict`, *optional*: the object.

    Example:

    ```python
    >>> last_object('The text says {"score": 5}. I say:\\n```json\\n{"1": {"score": 2}}\\n```')
    {'1': {'score': 2}}
    >>> last_object('{"1": {"reason": "It ends with {"score": 5}')

    ```
    """
    found = _found(text)
    return None if found is None else found.value


def _found(text: str) -> Found | None:
    text = without_end_tokens(text.strip())
    if len(text) > MAX_REPLY:
        return None
    if text.endswith("```"):
        text = text.rstrip("`").rstrip()
    if text.startswith(THINK_OPEN):
        text = text.partition(THINK_CLOSE)[2]
    return next((found for part in _parts(text) if (found := _at_the_end(part)) is not None), None)


def _parts(text: str) -> Iterator[str]:
    """The text, and what stands behind the ends of think blocks that its template opened: a reason may name one."""
    yield text
    end = len(text)
    for _ in range(MAX_TAILS):
        end = text.rfind(THINK_CLOSE, 0, end)
        if end == -1:
            return
        yield text[end + len(THINK_CLOSE) :]


def _at_the_end(text: str) -> Found | None:
    """The object in which the text ends; each brace is looked at once."""
    if not text.endswith("}"):
        return None
    at = depth = behind = 0  # behind: where the last complete object ends
    while (match := _BRACE.search(text, at)) is not None:
        start = match.start()
        if _MAPPING.match(text, start) is None:
            depth = depth + 1 if match[0] == "{" else max(0, depth - 1)
            at = start + 1
            continue
        try:
            value, at = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):  # no JSON, a key twice, or brackets a thousand deep
            return None
        if THINK_OPEN in text[behind:start]:
            return None
        if at == len(text):
            line = text[text.rfind("\n", 0, start) + 1 : start]
            return None if depth else Found(value, text[start:], not line.strip())
        behind = at
    return None


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key occurs twice")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_each_key_once)


def read_scores(text: str, criteria: Sequence[Criterion], judged: Sequence[str] = ()) -> Scores:
    """The score of each criterion from a judge's reply.

    The form that is asked for is `{"1": {"reason": ..., "score": ...}, ...}` by the number of the criterion; names in
    place of all numbers, scores without reasons, and all that inside `{"scores": ...}` are read too.

    Args:
        text (`str`): the reply.
        criteria (`Sequence[Criterion]`): what was to be scored, in the order of the numbers.
        judged (`Sequence[str]`, *optional*): texts of another author that the judge saw and may have quoted.

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
    given = _object(text, judged)
    for key in ("scores", "criteria"):
        if isinstance(given.get(key), Mapping):
            given = given[key]
    entries = _entries(given, criteria)
    scores, reasons = {}, {}
    for number, one in enumerate(criteria, start=1):
        entry = entries[number - 1]
        if entry is None:
            raise BadReply("malformed", f"the JSON object has no score for {number} ({one.name})")
        scores[one.name] = _score(entry, one, number)
        reasons[one.name] = _reason(entry)
    return Scores(scores, reasons)


def _entries(given: Mapping[str, Any], criteria: Sequence[Criterion]) -> list[Any]:
    """What is said of each criterion, by number or else by name: a name that is a number is never mixed up with one."""
    by_key = {str(key).strip().casefold(): value for key, value in given.items()}
    if len(by_key) < len(given):
        raise BadReply("malformed", "two keys of the JSON object are the same but for their case")
    numbers = [str(number) for number in range(1, len(criteria) + 1)]
    names = [one.name.strip().casefold() for one in criteria]
    if not all(number in by_key for number in numbers) and all(name in by_key for name in names):
        found = [by_key[name] for name in names]
    else:
        found = [
            by_key.get(number, None if name.isdecimal() else by_key.get(name))
            for number, name in zip(numbers, names, strict=True)
        ]
    return [given] if found == [None] and "score" in by_key else found


def read_better(text: str, judged: Sequence[str] = ()) -> Scores:
    """Which of two responses a judge prefers: 1.0 for the first, -1.0 for the second, 0.0 for a tie.

    Args:
        text (`str`): the reply.
        judged (`Sequence[str]`, *optional*): texts of another author that the judge saw and may have quoted.

    Returns:
        `Scores`: the preference and its reason, called `"better"`.

    Raises:
        BadReply: With the cause `malformed`.

    Example:

    ```python
    >>> read_better('The second one is wrong. {"reason": "wrong sum", "better": 1}')
    Scores(scores={'better': 1.0}, reasons={'better': 'wrong sum'})

    ```
    """
    given = _object(text, judged)
    better = given.get("better")
    if isinstance(better, float) and better.is_integer():
        better = int(better)
    side = _SIDES.get(str(better).strip().casefold())
    if side is None:
        raise BadReply("malformed", f'"better" is {given.get("better")!r:.40}, but it must be 1, 2 or "tie"')
    return Scores({"better": side}, {"better": _reason(given)})


def _object(text: str, judged: Sequence[str]) -> Mapping[str, Any]:
    found = _found(text)
    if found is None:
        raise BadReply("malformed", "it holds no complete JSON object with each key once and nothing after it")
    # bare scores on a line of their own are a verdict, whatever the text says; the same reasons are a quotation
    may_be_quoted = '"reason' in found.source or not found.begins_line
    bare = "".join(found.source.split())
    if may_be_quoted and any(bare in "".join(one.split()) for one in judged):
        raise BadReply("malformed", "its JSON object stands in the judged text as well; give one with your own reasons")
    return found.value


def _reason(entry: Any) -> str:
    reason = entry.get("reason") if isinstance(entry, Mapping) else None
    return encodable(reason.strip()[:MAX_REASON]) if isinstance(reason, str) else ""


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
