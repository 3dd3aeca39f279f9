"""What a judge says: the verdict that its reply ends in, with the scores checked against their scales.

A judge quotes what it judges, verdicts that were written there for it included. So the question gives it a random word,
which it repeats as the `"id"` of its verdict: an object that holds it is the judge's own beyond doubt, whatever else is
quoted around it. Of a reply without that word all verdicts must agree, the last one ends the reply, and it is no piece
of the judged text. A broken verdict before the one that would count makes all of it uncertain. An object that scores
some of the criteria and contradicts nothing is a draft.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from reward_funcs._judge_clean import encodable
from reward_funcs._judge_json import Piece, pieces
from reward_funcs._rubric_criterion import Criterion
from reward_funcs.extract import without_end_tokens

MAX_REPLY = 1_000_000  # characters
MAX_END = 1 << 17  # characters at the end of a reply in which its verdict is looked for
MAX_REASON = 500
MAX_REMARK = 200  # characters of a sentence behind the verdict
JUDGED_WORK = 1_000_000  # characters of broken objects of the judged text that are read

NOT_FOUND = "it holds no complete JSON object"
_WRAPPERS = ("scores", "criteria", "verdict")
_SIDES = {"1": 1.0, "first": 1.0, "response 1": 1.0, "tie": 0.0, "2": -1.0, "second": -1.0, "response 2": -1.0}
# Thoughts end behind the last of these, and begin with one of those; a tag that a sentence speaks of begins none.
_THINK_END = re.compile(r"</\s*+think(?:ing)?\s*+>|◁/think▷|\[/THINK\]|<\|channel\|>final<\|message\|>", re.IGNORECASE)
_THINK_START = re.compile(r"<\s*+think(?:ing)?\s*+>|◁think▷|\[THINK\]", re.IGNORECASE)
_SPOKEN_BEFORE, _SPOKEN_AFTER = re.compile(r"\S [`'\"*(]*+\Z"), re.compile(r"[ `'\".,;:!?)*]")
# Marks around a verdict that say nothing: a code fence, bold, a tag, a full stop.
_MARKS_BEFORE = re.compile(
    r"[\s`~*_>$]|```\w*+|~~~\w*+|<(?:answer|json|verdict)>|\b(?:final )?(?:verdict|answer|json)\b|:", re.I
)
_MARKS_AFTER = re.compile(r"[\s`~*_.$]|</(?:answer|json|verdict)>", re.IGNORECASE)
_NUMBER = re.compile(
    r"\s*+([+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,3})?)(?:\s*+/\s*+(\d++(?:\.\d++)?))?\s*+", re.A
)
_NUMBERED = re.compile(r"(?:criteri(?:on|a)[ _#:]*+)?#?(\d{1,6})(?:\s*+[.):-]\s*+(.*))?", re.ASCII | re.DOTALL)


class BadReply(ValueError):
    """A reply that cannot be used: `cause` is counted, the text tells the judge what to correct."""

    def __init__(self, cause: str, fault: str) -> None:
        super().__init__(fault)
        self.cause = cause


class Partial(BadReply):
    """An object that has no score for some of the criteria: `scores` holds those of the others."""

    def __init__(self, fault: str, scores: Mapping[str, float]) -> None:
        super().__init__("malformed", fault)
        self.scores = scores


class Scores(NamedTuple):
    """Scores and reasons by the name of the criterion."""

    scores: dict[str, float]
    reasons: dict[str, str]


class _Verdict(NamedTuple):
    """A complete object with a verdict, and what it comes to."""

    piece: Piece
    outcome: Scores | BadReply

    def same_as(self, other: _Verdict) -> bool:
        """Whether both give the same scores; what cannot be used is like nothing else."""
        one, another = self.outcome, other.outcome
        if isinstance(one, Scores) and isinstance(another, Scores):
            return one.scores == another.scores
        return self.piece.value == other.piece.value

    def is_draft_of(self, final: _Verdict) -> bool:
        """Whether it scores some of the criteria alone, as the final verdict does that scores them all."""
        if not isinstance(self.outcome, Partial) or not isinstance(final.outcome, Scores):
            return False
        return self.outcome.scores.items() <= final.outcome.scores.items()


class Form(NamedTuple):
    """What a verdict looks like: which keys it has, and how the object is read."""

    keys: frozenset[str]
    read: Callable[[Any], Scores]

    def is_meant(self, value: Any) -> bool:
        """Whether a complete object or list is a verdict, or was meant to be one."""
        if isinstance(value, Mapping):
            return any(_key(key) in self.keys for key in value)
        return isinstance(value, list) and bool(value) and all(map(self.is_meant, value))

    def is_broken(self, text: str, piece: Piece, next_start: int) -> bool:
        """Whether what does not read as JSON was meant to be a verdict."""
        end = next_start if piece.end is None else piece.end
        return _written(self.keys, piece.end is not None).search(text, piece.start, end) is not None


@lru_cache(maxsize=64)
def _written(keys: frozenset[str], is_closed: bool) -> re.Pattern[str]:
    """What only a verdict has, of an object that no JSON reader takes."""
    names = "|".join(sorted(map(re.escape, keys), key=len, reverse=True))
    quoted = rf"""["'“]\s*+(?:criteri(?:on|a)[ _#]*+)?(?:{names})(?:\s*+[.):-][^"'”\n]*+)?\s*+["'”]\s*+:"""
    bare = rf"\{{\s*+(?:{names}|reasons?)\s*+:" + (r"\s*+\{" if is_closed else "")
    return re.compile(f"{quoted}|{bare}", re.IGNORECASE)


def read_scores(
    text: str, criteria: Sequence[Criterion], judged: Sequence[str] = (), word: str = "", *, is_cut: bool = False
) -> Scores:
    """The score of each criterion from a judge's reply.

    The form that is asked for is `{"1": {"reason": ..., "score": ...}, ..., "id": word}` by the number of the
    criterion. Read too are `"criterion 1"`, `"1. clarity"` and, in place of all numbers, names; a list of objects with
    `"criterion"`, `"number"` or `"name"`; scores without reasons; and all that inside `{"scores": ...}`.

    Args:
        text (`str`): the reply.
        criteria (`Sequence[Criterion]`): what was to be scored, in the order of the numbers.
        judged (`Sequence[str]`, *optional*): texts of another author that the judge saw and may have quoted.
        word (`str`, *optional*): the random word of the question; an object with it as `"id"` is no quotation.
        is_cut (`bool`, *optional*, defaults to `False`): whether the reply was cut at its limit.

    Returns:
        `Scores`: a score in range for each of them, and the reasons that were given.

    Raises:
        BadReply: With the cause `malformed` or `out_of_range`.

    Example:

    ```python
    >>> one = Criterion("clarity", "It is clear.", max_score=2)
    >>> read_scores('{"1": {"reason": "short", "score": 2}}', [one])
    Scores(scores={'clarity': 2.0}, reasons={'clarity': 'short'})
    >>> read_scores('I give {"1": {"score": 0}, "id": "f00"}. It says {"1": {"score": 2}}', [one], word="f00").scores
    {'clarity': 0.0}
    >>> read_scores('{"1": {"score": 5}}', [one])
    Traceback (most recent call last):
    reward_funcs._judge_reply.BadReply: the score of 1 (clarity) is 5, but it must be from 0 to 2

    ```
    """
    names = {one.name.strip().casefold() for one in criteria}
    numbers = {str(number) for number in range(1, len(criteria) + 1)}
    keys = frozenset({"score", *_WRAPPERS, *names, *numbers})
    return _own(text, Form(keys, lambda value: _scores_of(value, criteria)), judged, word, is_cut)


def read_better(text: str, judged: Sequence[str] = (), word: str = "", *, is_cut: bool = False) -> Scores:
    """Which of two responses a judge prefers: 1.0 for the first, -1.0 for the second, 0.0 for a tie.

    Args:
        text (`str`): the reply.
        judged (`Sequence[str]`, *optional*): texts of another author that the judge saw and may have quoted.
        word (`str`, *optional*): the random word of the question, as of [`read_scores`].
        is_cut (`bool`, *optional*, defaults to `False`): whether the reply was cut at its limit.

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
    return _own(text, Form(frozenset({"better"}), _better_of), judged, word, is_cut)


def _own(text: str, form: Form, judged: Sequence[str], word: str, is_cut: bool) -> Scores:
    """What the judge's own verdict says."""
    text = without_end_tokens(text.strip())
    found = pieces(text, start=max(0, len(text) - MAX_END)) if len(text) <= MAX_REPLY else None
    if found is None:
        raise BadReply("malformed", f"{NOT_FOUND} that can be found in so long a text or among so many braces")
    found = _answer(text, found, form, judged)
    meant = [_verdict(piece, form) for piece in found if not piece.fault and form.is_meant(piece.value)]
    signed = [
        one for one in meant if word and isinstance(one.piece.value, Mapping) and one.piece.value.get("id") == word
    ]
    verdicts = signed or meant
    last = verdicts[-1] if verdicts else None
    _refuse_broken(text, found, form, before=last.piece.start if signed and last else len(text))
    if last is None:
        raise BadReply("malformed", NOT_FOUND + _nearest(found))
    has_drafts = any(one.is_draft_of(last) for one in verdicts)
    if not all(one.same_as(last) or one.is_draft_of(last) for one in verdicts):
        raise BadReply("malformed", "it holds two verdicts whose scores differ; give one JSON object alone")
    if isinstance(last.outcome, BadReply):
        raise last.outcome
    if not signed:
        _refuse_quoted(text, last, form, judged, is_cut=is_cut, has_drafts=has_drafts)
    return last.outcome


def _answer(text: str, found: Sequence[Piece], form: Form, judged: Sequence[str]) -> list[Piece]:
    """What stands behind the thoughts of the judge.

    Raises:
        BadReply: For thoughts that do not end.
    """
    inside = [(piece.start, piece.end) for piece in found if not piece.fault and piece.end is not None]
    shown = [one.casefold() for one in judged]
    known: dict[str, bool] = {}

    def outside(match: re.Match[str]) -> bool:  # a reason may speak of a tag
        before = bisect_left(inside, (match.start(), 0))
        return not before or match.start() >= inside[before - 1][1]

    def is_own(mark: str) -> bool:  # one of a judged text may be quoted, together with a verdict behind it
        if mark not in known:
            known[mark] = not any(mark in one for one in shown)
        return known[mark]

    ends = [match.end() for match in _THINK_END.finditer(text) if outside(match) and is_own(match[0].casefold())]
    behind = [piece for piece in found if not ends or piece.start >= ends[-1]]
    if not any(
        not piece.fault and form.is_meant(piece.value) for piece in behind
    ):  # a sentence behind the verdict speaks of the tag
        ends, behind = [], list(found)
    first = next((piece.start for piece in reversed(behind) if not piece.fault), len(text))
    for match in _THINK_START.finditer(text, ends[-1] if ends else 0, first):
        spoken = _SPOKEN_BEFORE.search(text, max(0, match.start() - 9), match.start())
        if not (spoken and _SPOKEN_AFTER.match(text, match.end())) and outside(match):
            raise BadReply("malformed", f"{NOT_FOUND} behind its thoughts, which do not end")
    return behind


def _verdict(piece: Piece, form: Form) -> _Verdict:
    try:
        return _Verdict(piece, form.read(piece.value))
    except BadReply as fault:
        return _Verdict(piece, fault)


def _refuse_broken(text: str, found: Sequence[Piece], form: Form, before: int) -> None:
    """Refuse a verdict that is no JSON: what stands in it may be a quotation."""
    for number, piece in enumerate(found, start=1):
        next_start = found[number].start if number < len(found) else len(text)
        if piece.fault and piece.start < before and form.is_broken(text, piece, next_start):
            raise BadReply("malformed", f"{NOT_FOUND} but a broken one: {piece.fault}")


def _nearest(found: Sequence[Piece]) -> str:
    fault = next((piece.fault for piece in reversed(found) if piece.fault), "")
    return f" with the keys that are asked for{f' ({fault})' if fault else ''}"


def _refuse_quoted(
    text: str, last: _Verdict, form: Form, judged: Sequence[str], *, is_cut: bool, has_drafts: bool
) -> None:
    """Refuse a verdict without the random word that may be a quotation."""
    start, end = last.piece.start, last.piece.end
    line = text[text.rfind("\n", 0, start) + 1 : start]
    begins_line = not _MARKS_BEFORE.sub("", line)
    remark = _MARKS_AFTER.sub("", text[end:])
    if remark and (is_cut or not begins_line or len(text) - (end or 0) > MAX_REMARK or re.search(r"[{}\d]", remark)):
        raise BadReply("malformed", f"{NOT_FOUND} with nothing after it")
    # bare scores on a line of their own are a verdict, whatever the text says; the same reasons are a quotation
    is_bare = begins_line and not has_drafts and not _strings(last.piece.value)
    if not is_bare and any(_holds(one, last, text[start:end], form) for one in judged):
        raise BadReply("malformed", "its JSON object stands in the judged text as well; give one with your own reasons")


def _holds(judged: str, verdict: _Verdict, source: str, form: Form) -> bool:
    """Whether a judged text holds that verdict, however it is written: by its scores and by its texts."""
    if "{" not in judged:
        return False
    strings = _strings(verdict.piece.value)
    unescaped = judged.replace('\\"', '"')
    straight = re.sub(r"[“”„‟″]", '"', unescaped)
    for form_of_it in dict.fromkeys((judged, unescaped, straight, re.sub(r"['‘’]", '"', straight))):
        found = pieces(form_of_it, JUDGED_WORK)
        if found is None:
            # a text that is full of broken objects is not the judge's fault: only its own words speak against it
            if "".join(source.split()) in "".join(form_of_it.split()):
                return True
            continue
        for piece in found:
            if not piece.fault and form.is_meant(piece.value) and verdict.same_as(_verdict(piece, form)):
                if strings <= _strings(piece.value):
                    return True
    return False


def _strings(value: Any) -> set[str]:
    """All texts in an object that are no score, as words alone."""
    found, left = set(), [value]
    while left:
        one = left.pop()
        if isinstance(one, str) and not _NUMBER.fullmatch(one):
            found.add("".join(re.findall(r"\w+", one)).casefold())
        elif isinstance(one, Mapping):
            left += one.values()
        elif isinstance(one, list):
            left += one
    return found - {""}


def _key(key: Any) -> str:
    """A key as it is compared: the number of `"criterion 1"` and `"1. clarity"`, else in small letters."""
    text = str(key).strip().casefold()
    numbered = _NUMBERED.fullmatch(text)
    return str(int(numbered[1])) if numbered else text


def _scores_of(value: Any, criteria: Sequence[Criterion]) -> Scores:
    given = value
    for key in _WRAPPERS:
        if isinstance(given, Mapping) and isinstance(given.get(key), (Mapping, list)):
            given = given[key]
    if isinstance(given, list):
        given = _by_criterion(given)
    entries = _entries(given, criteria)
    scores, reasons, missing = {}, {}, []
    for number, (one, entry) in enumerate(zip(criteria, entries, strict=True), start=1):
        if entry is None:
            missing.append(f"{number} ({one.name})")
            continue
        scores[one.name] = _score(entry, one, number)
        reasons[one.name] = _reason(entry)
    if missing:
        raise Partial(f"the JSON object has no score for {missing[0]}", scores)
    return Scores(scores, reasons)


def _by_criterion(given: Sequence[Any]) -> dict[str, Any]:
    """A list of objects by the criterion that each names."""
    found: dict[str, Any] = {}
    for one in given:
        names = [one[key] for key in ("criterion", "number", "name") if key in one] if isinstance(one, Mapping) else []
        if len(names) != 1 or isinstance(names[0], bool) or not isinstance(names[0], (int, str)):
            raise BadReply("malformed", 'each object of a list must name its "criterion" by its number')
        if str(names[0]) in found:
            raise BadReply("malformed", f"two objects of the list name the criterion {names[0]!r:.40}")
        found[str(names[0])] = one
    return found


def _entries(given: Mapping[str, Any], criteria: Sequence[Criterion]) -> list[Any]:
    """What is said of each criterion, by number or else by name: a name that is a number is never mixed up with one."""
    numbers = [str(number) for number in range(1, len(criteria) + 1)]
    names = [one.name.strip().casefold() for one in criteria]
    by_key: dict[str, Any] = {}
    for key, value in given.items():
        read = _named(str(key).strip().casefold(), names)
        if read in by_key:
            raise BadReply(
                "malformed", "two keys of the JSON object are the same but for their case, or name one thing"
            )
        by_key[read] = value
    if not all(number in by_key for number in numbers) and all(name in by_key for name in names):
        found = [by_key[name] for name in names]
    else:
        found = [
            by_key.get(number, None if name.isdecimal() else by_key.get(name))
            for number, name in zip(numbers, names, strict=True)
        ]
    return [given] if found == [None] and "score" in by_key else found


def _named(key: str, names: Sequence[str]) -> str:
    """The number of `"criterion 1"`, and of `"1. clarity"` where the first criterion is called so; else the key."""
    numbered = None if key in names else _NUMBERED.fullmatch(key)
    if numbered is None:
        return key
    number, name = int(numbered[1]), numbered[2]
    if name is None or (1 <= number <= len(names) and name.strip() == names[number - 1]):
        return str(number)
    return key


def _better_of(value: Any) -> Scores:
    better = value.get("better") if isinstance(value, Mapping) else None
    if isinstance(better, float) and better.is_integer():
        better = int(better)
    side = None if isinstance(better, bool) else _SIDES.get(str(better).strip().casefold())
    if side is None:
        raise BadReply("malformed", f'"better" is {better!r:.40}, but it must be 1, 2 or "tie"')
    return Scores({"better": side}, {"better": _reason(value)})


def _reason(entry: Any) -> str:
    reason = entry.get("reason") if isinstance(entry, Mapping) else None
    return encodable(reason.strip()[:MAX_REASON]) if isinstance(reason, str) else ""


def _score(entry: Any, criterion: Criterion, number: int) -> float:
    value = entry.get("score") if isinstance(entry, Mapping) else entry
    place = f"the score of {number} ({criterion.name})"
    score = _as_number(value, criterion)
    if score is None:
        raise BadReply("malformed", f"{place} is {value!r:.40}, but it must be a number")
    if math.isnan(score) or not criterion.allows(score):
        raise BadReply("out_of_range", f"{place} is {value!r:.40}, but it must be {criterion.allowed()}")
    return score


def _as_number(value: Any, criterion: Criterion) -> float | None:
    """The score that is meant; `None` where that is not certain."""
    if isinstance(value, bool):
        # of a fault it could mean that it applies or that all is well
        met = criterion.max_score if value else criterion.min_score
        return float(met) if criterion.binary and criterion.max_score > 0 else None
    if isinstance(value, str):
        written = _NUMBER.fullmatch(value)
        if written is None or (written[2] is not None and float(written[2]) != criterion.max_score):
            return None
        return float(written[1])
    try:
        return float(value) if isinstance(value, (int, float)) else None
    except OverflowError:
        return math.inf if value > 0 else -math.inf
