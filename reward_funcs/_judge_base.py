"""What all judges share: questions, votes, one more try for a reply that cannot be used, and causes of failure."""

from __future__ import annotations

import json
import os
import re
import statistics
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from reward_funcs._judge_clean import Cleaning, encodable
from reward_funcs._judge_prompt import (
    FIXED_FENCE,
    JudgeTask,
    Message,
    Pair,
    again_messages,
    merged,
    new_fence,
    pair_messages,
    score_messages,
)
from reward_funcs._judge_reply import BadReply, Scores, read_better, read_scores
from reward_funcs._settings import check_flag, check_setting

Side = Literal["first", "second", "tie"]
# What a reply says, from its text, the random word of its question, and whether it was cut.
Reader = Callable[[str, str, bool], Scores]

_SECRET = r"headers|authorization|secret|password|(?:^|[_-])(?:api[_-]?)?key$|(?:^|[_-])token$"

CUT = "the reply was cut at the limit of its length before its JSON object was complete; be brief"


class Verdict(NamedTuple):
    """What a judge makes of one completion: scores and reasons by criterion, or why there are none.

    `cause` is a short fixed code: `timeout`, `http_429`, `http_5xx`, `http_4xx`, `connection`, `malformed`,
    `out_of_range`, `cut`, `refused`, `budget`, `too_long` or `too_large`.
    """

    scores: Mapping[str, float]
    reasons: Mapping[str, str]
    cause: str = ""


class Comparison(NamedTuple):
    """Which of two completions is better: `"first"`, `"second"`, `"tie"`, or `None` and why there is no judgement."""

    winner: Side | None
    cause: str = ""


class Request(NamedTuple):
    """One conversation for a model; `asked` is the same for equal questions, whatever their fence.

    `num_scores` says how many scores the reply has to give, with a reason each; `word` is the random word of the
    fences, which the judge repeats in its verdict, and `read` reads a reply.
    """

    messages: list[Message]
    asked: list[Message]
    vote: int = 0
    again: bool = False
    num_scores: int = 1
    word: str = ""
    read: Reader | None = None


class Reply(NamedTuple):
    """What a model said, or why it said nothing; `detail` is for a warning.

    A text with a cause was not finished (`cut`): it counts where it ends in a complete verdict all the same.
    """

    text: str | None
    cause: str = ""
    detail: str = ""


class _Once:
    """A reader that reads the same reply once: it is asked when a reply comes in, and again when all are there."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._last: tuple[tuple[str, str, bool], Scores | BadReply] | None = None

    def __call__(self, text: str, word: str, is_cut: bool) -> Scores:
        asked = (text, word, is_cut)
        if self._last is None or self._last[0] != asked:
            self._last = asked, self._outcome(*asked)
        outcome = self._last[1]
        if isinstance(outcome, BadReply):
            raise outcome
        return outcome

    def _outcome(self, text: str, word: str, is_cut: bool) -> Scores | BadReply:
        try:
            return self._read(text, word, is_cut)
        except BadReply as fault:
            return fault


@dataclass(frozen=True)
class Question:
    """A conversation in both forms, how its reply is read, and which of its scores have nothing between two values."""

    messages: Callable[[str], list[Message]]
    texts: tuple[str, ...]
    read: Reader
    num_scores: int = 1
    binary: frozenset[str] = frozenset()


class Judge(ABC):
    """A model that scores completions by criteria and compares pairs of them.

    A subclass implements [`~Judge.replies`]. Everything else is here: the judged text is cleaned and put between lines
    with a random word that occurs in none of the texts; the reply gives reasons first and ends in a JSON object, whose
    scores are checked against the criteria; a reply that cannot be used is asked for once more, with its fault named;
    of several votes the median counts, if more than half of them can be used; on a criterion that is met or not an even
    split counts as the lower score. A failure is no score: it has a cause.

    Equal tasks of a call are asked once. A judge handles one call at a time: a second one, from another thread, waits.

    Args:
        votes (`int`, *optional*, defaults to 1): replies to each question; the median of their scores counts.
        strip_think (`bool`, *optional*, defaults to `True`): leave think blocks out of the judged text.
        strip_tags (`bool`, *optional*, defaults to `True`): leave out marks of chat templates, wherever they stand, and
            of the judged text tags like `<answer>`.
        max_chars (`int`, *optional*, defaults to 20000): longer judged text loses its middle; so do prompts.
        system_role (`bool`, *optional*, defaults to `True`): whether the model knows a system message.
        fence_seed (`int`, *optional*): makes the random words functions of this number and of the texts, for runs that
            repeat exactly; keep it out of what is published.
    """

    # What makes room for a verdict where replies are cut, as a warning says it.
    cut_hint = ""

    def __init__(
        self,
        *,
        votes: int = 1,
        strip_think: bool = True,
        strip_tags: bool = True,
        max_chars: int = 20_000,
        system_role: bool = True,
        fence_seed: int | None = None,
    ) -> None:
        self.votes = check_setting("votes", votes, 1, whole=True)
        self.strip_think = check_flag("strip_think", strip_think)
        self.strip_tags = check_flag("strip_tags", strip_tags)
        self.max_chars = check_setting("max_chars", max_chars, 1, whole=True)
        self.system_role = check_flag("system_role", system_role)
        self.fence_seed = None if fence_seed is None else check_setting("fence_seed", fence_seed, whole=True)
        # requests, cached, again and what a subclass counts, since the judge was made
        self.counts: Counter[str] = Counter()
        self._has_warned = False

    @abstractmethod
    def replies(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        """One [`Reply`] for each request, in order; `deadline` is a time of `time.monotonic`."""

    def score(self, tasks: Sequence[JudgeTask]) -> list[Verdict]:
        """Scores of completions by their criteria.

        Args:
            tasks (`Sequence[JudgeTask]`): N completions with their criteria.

        Returns:
            `list[Verdict]`: N verdicts, in order.
        """
        unique = list(dict.fromkeys(tasks))
        found = dict(zip(unique, self._settled([self._score_question(task) for task in unique]), strict=True))
        return [found[task] for task in tasks]

    def compare(self, pairs: Sequence[Pair]) -> list[Comparison]:
        """Which completion of each pair is better; asked in both orders, and a tie where the two replies disagree.

        Args:
            pairs (`Sequence[Pair]`): N pairs.

        Returns:
            `list[Comparison]`: N comparisons, in order; without a winner where one of the orders failed.
        """
        questions = []
        for pair in pairs:
            swapped = replace(pair, first=pair.second, second=pair.first)
            questions += [self._pair_question(pair), self._pair_question(swapped)]
        verdicts = self._settled(questions)
        return [_compared(one, other) for one, other in zip(verdicts[::2], verdicts[1::2], strict=True)]

    def _score_question(self, task: JudgeTask) -> Question:
        clean, context = self._cleanings()
        scored = task.scored()
        shown = replace(
            task,
            completion=clean(task.completion),
            prompt=context(task.prompt),
            reference=None if task.reference is None else context(task.reference),
            guidance=context(task.guidance),
        )
        texts = (shown.completion, shown.prompt, shown.reference or "", shown.guidance)
        binary = frozenset(one.name for one in scored if one.binary)
        return Question(
            lambda fence: score_messages(shown, fence, context),
            texts,
            lambda text, word, is_cut: read_scores(text, scored, texts[:2], word, is_cut=is_cut),
            len(scored),
            binary,
        )

    def _pair_question(self, pair: Pair) -> Question:
        clean, context = self._cleanings()
        shown = replace(
            pair,
            first=clean(pair.first),
            second=clean(pair.second),
            prompt=context(pair.prompt),
            reference=None if pair.reference is None else context(pair.reference),
            guidance=context(pair.guidance),
        )
        texts = (shown.first, shown.second, shown.prompt, shown.reference or "", shown.guidance)
        return Question(
            lambda fence: pair_messages(shown, fence, context),
            texts,
            lambda text, word, is_cut: read_better(text, texts[:3], word, is_cut=is_cut),
        )

    def _cleanings(self) -> tuple[Cleaning, Cleaning]:
        """What judged text goes through, and what all else does, of which all but marks of chat templates stays."""
        tokens = self._special_tokens() if self.strip_tags else ()
        clean = Cleaning(self.strip_think, self.strip_tags, self.max_chars, tokens=tokens)
        return clean, replace(clean, strip_think=False, keep_tags=True)

    def _special_tokens(self) -> Collection[str]:
        """Texts that the judge's tokenizer reads as more than text, where it is known."""
        return ()

    def _settled(self, questions: Sequence[Question]) -> list[Verdict]:
        """The verdict on each question, from all its votes."""
        if not questions:
            return []
        requests = [request for question in questions for request in self._requests(question)]
        with self._turn():
            before = self.counts.copy()
            outcomes = self._outcomes(requests)
            spent = {name: value - before[name] for name, value in self.counts.items()}
        for tally in self._tallies().get(threading.get_ident(), ()):
            tally.update(spent)
        self._warn(outcomes)
        groups = (outcomes[start : start + self.votes] for start in range(0, len(outcomes), self.votes))
        return [_agreed(group, question.binary) for group, question in zip(groups, questions, strict=True)]

    def _requests(self, question: Question) -> list[Request]:
        fence = new_fence(question.texts, self.fence_seed)
        messages, asked = question.messages(fence), question.messages(FIXED_FENCE)
        if not self.system_role:
            messages, asked = merged(messages), merged(asked)
        messages = [{key: encodable(value) for key, value in one.items()} for one in messages]
        # one text after another could be one text that holds their marks: as a list they cannot
        asked = [*asked, {"role": "texts", "content": json.dumps(question.texts)}]
        return [
            Request(messages, asked, vote, num_scores=question.num_scores, word=fence, read=_Once(question.read))
            for vote in range(self.votes)
        ]

    def _outcomes(self, requests: Sequence[Request]) -> list[Scores | BadReply]:
        """What each request comes to: known before, or asked, and asked once more where the reply has a fault."""
        outcomes: dict[int, Scores | BadReply] = {}
        for index, text in self._recalled(requests).items():
            outcome = outcome_of(requests[index]._replace(word=FIXED_FENCE), Reply(text))
            if isinstance(outcome, Scores):  # else an older version of this package wrote it: ask
                outcomes[index] = outcome
        self.counts["cached"] += len(outcomes)
        open_ones = [index for index in range(len(requests)) if index not in outcomes]
        deadline = self._deadline()
        asked = [requests[index] for index in open_ones]
        for _ in range(2):
            replies = self.replies(asked, deadline) if asked else []
            self.counts["requests"] += len(asked)
            faulty: dict[int, Request] = {}
            for index, reply, request in zip(open_ones, replies, asked, strict=True):
                outcome = outcomes[index] = outcome_of(request, reply)
                if isinstance(outcome, BadReply) and reply.text is not None and not request.again:
                    faulty[index] = _again(request, reply.text, str(outcome))
            self.counts["again"] += len(faulty)
            open_ones, asked = list(faulty), list(faulty.values())
        return [outcomes[index] for index in range(len(requests))]

    def _recalled(self, requests: Sequence[Request]) -> Mapping[int, str]:
        """Replies that are known already, by the position of their request, as of [`kept_text`]."""
        return {}

    def _deadline(self) -> float:
        return time.monotonic() + 365 * 86400.0

    def _warn(self, outcomes: Sequence[Scores | BadReply]) -> None:
        """Say once that a judge answers nothing at all, which a metric alone would hide."""
        faults = [one for one in outcomes if isinstance(one, BadReply)]
        if len(faults) == len(outcomes) and not self._has_warned:
            self._has_warned = True
            causes = ", ".join(sorted({fault.cause for fault in faults}))
            warnings.warn(
                f"{type(self).__name__} judged none of the {len(outcomes)} questions of a call ({causes}): "
                f"{without_secrets(str(faults[0]))[:300]}{self._hint(faults)}",
                stacklevel=2,
            )

    def _hint(self, faults: Sequence[BadReply]) -> str:
        """What helps against replies that were cut."""
        is_cut = any(fault.cause == "cut" for fault in faults)
        return f"; {self.cut_hint}" if is_cut and self.cut_hint else ""

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """What the calls of this thread count inside the `with`; `judge.counts` holds that of all threads."""
        tally: Counter[str] = Counter()
        tallies = self._tallies().setdefault(threading.get_ident(), [])
        tallies.append(tally)
        try:
            yield tally
        finally:
            del tallies[[one is tally for one in tallies].index(True)]

    def _tallies(self) -> dict[int, list[Counter[str]]]:
        found: dict[int, list[Counter[str]]] = self.__dict__.setdefault("_open_tallies", {})
        return found

    def _turn(self) -> threading.Lock:
        """The lock of this process: one of before a fork may be held by a thread that is not there."""
        locks: dict[int, threading.Lock] = self.__dict__.setdefault("_locks", {})
        return locks.setdefault(os.getpid(), threading.Lock())

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_locks", "_open_tallies")}

    def close(self) -> None:  # noqa: B027 - most judges hold nothing
        """Give back what the judge holds; the next call takes it again."""

    def __repr__(self) -> str:
        settings = ", ".join(
            f"{key}={without_secrets(repr(_masked(value))):.80}"
            for key, value in vars(self).items()
            if not key.startswith("_")
        )
        return f"{type(self).__name__}({settings})"


def without_secrets(text: str) -> str:
    """The text with names and passwords in its addresses masked, and with the values of their queries.

    Example:

    ```python
    >>> without_secrets("http://me:secret@localhost:8000/v1?api-key=secret&version=2")
    'http://***@localhost:8000/v1?api-key=***&version=***'

    ```
    """
    text = re.sub(r"(?<=://)[^/@\s'\"]++@", "***@", text)
    return re.sub(r"(?<=[?&])([^\s?&='\"]++=)[^\s&'\"]++", r"\1***", text)


def _masked(value: Any, *, is_secret: bool = False) -> Any:
    """A setting as it may be shown: without the values of headers, nor texts whose name says that they are keys."""
    if isinstance(value, Mapping):
        return {
            key: _masked(one, is_secret=is_secret or re.search(_SECRET, str(key), re.IGNORECASE) is not None)
            for key, one in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_masked(one, is_secret=is_secret) for one in value]
    return "***" if is_secret else value


def outcome_of(request: Request, reply: Reply) -> Scores | BadReply:
    """What a reply to a request comes to: scores, or why there are none."""
    if reply.text is None or request.read is None:
        return BadReply(reply.cause, reply.detail or reply.cause)
    try:
        return request.read(encodable(reply.text), request.word, bool(reply.cause))
    except BadReply as fault:
        return BadReply(reply.cause, reply.detail) if reply.cause else fault
    except RecursionError:  # called deep in the stack already: a text of a model may not end the training
        return BadReply("malformed", "its JSON object is nested too deep to be read")


def kept_text(request: Request, text: str) -> str:
    """A reply as a cache keeps it: with the word that stands for the random one, which is another in the next call."""
    return text.replace(request.word, FIXED_FENCE) if request.word else text


def _again(request: Request, reply: str, fault: str) -> Request:
    return request._replace(
        messages=again_messages(request.messages, encodable(reply), fault),
        again=True,
    )


def _agreed(votes: Sequence[Scores | BadReply], binary: Collection[str]) -> Verdict:
    """The median of the votes, with the reasons of the vote nearest to it; a failure where half of them failed."""
    good = [vote for vote in votes if isinstance(vote, Scores)]
    if 2 * len(good) <= len(votes):
        causes = Counter(vote.cause for vote in votes if isinstance(vote, BadReply))
        cause = min(causes, key=lambda one: (-causes[one], one))
        return Verdict({}, {}, cause)
    scores = {
        # of an even split on what is met or not, the lower: nothing lies between
        name: (statistics.median_low if name in binary else statistics.median)([vote.scores[name] for vote in good])
        for name in good[0].scores
    }
    reasons = {
        name: min(good, key=lambda vote: abs(vote.scores[name] - score)).reasons.get(name, "")
        for name, score in scores.items()
    }
    return Verdict(scores, reasons)


def _compared(one: Verdict, swapped: Verdict) -> Comparison:
    for verdict in (one, swapped):
        if verdict.cause:
            return Comparison(None, verdict.cause)
    first, second = one.scores["better"], -swapped.scores["better"]
    if first > 0 and second > 0:
        return Comparison("first")
    return Comparison("second" if first < 0 and second < 0 else "tie")


def check_votes(votes: int, temperature: float) -> None:
    """Refuse several votes of a model that gives the same reply each time.

    Raises:
        ValueError: For more than one vote at temperature 0.
    """
    if votes > 1 and temperature == 0:
        raise ValueError(f"votes={votes} at temperature=0 would all be alike; set temperature above 0, or votes=1")


def reply_tokens(least: int, num_scores: int) -> int:
    """Tokens that a reply with so many scores and reasons may need, reasons before the JSON object and inside it.

    A score takes about 30 tokens of JSON in English and up to 100 in other scripts, as much again as text before it.

    Example:

    ```python
    >>> reply_tokens(1024, 3), reply_tokens(1024, 48)
    (1024, 6656)

    ```
    """
    return max(least, 512 + 128 * num_scores)
