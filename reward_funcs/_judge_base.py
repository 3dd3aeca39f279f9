"""What all judges share: questions, votes, one more try for a reply that cannot be used, and causes of failure."""

from __future__ import annotations

import os
import statistics
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from reward_funcs._judge_prompt import (
    FIXED_FENCE,
    Cleaning,
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


class Verdict(NamedTuple):
    """What a judge makes of one completion: scores and reasons by criterion, or why there are none.

    `cause` is a short fixed code: `timeout`, `http_429`, `http_5xx`, `http_4xx`, `connection`, `malformed`,
    `out_of_range`, `refused`, `budget` or `too_long`.
    """

    scores: Mapping[str, float]
    reasons: Mapping[str, str]
    cause: str = ""


class Comparison(NamedTuple):
    """Which of two completions is better: `"first"`, `"second"`, `"tie"`, or `None` and why there is no judgement."""

    winner: Side | None
    cause: str = ""


class Request(NamedTuple):
    """One conversation for a model; `asked` is the same for equal questions, whatever their fence."""

    messages: list[Message]
    asked: list[Message]
    vote: int = 0
    again: bool = False


class Reply(NamedTuple):
    """What a model said, or why it said nothing; `detail` is for a warning."""

    text: str | None
    cause: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Question:
    """A conversation in both forms, and how its reply is read."""

    messages: Callable[[str], list[Message]]
    texts: tuple[str, ...]
    read: Callable[[str], Scores]


class Judge(ABC):
    """A model that scores completions by criteria and compares pairs of them.

    A subclass implements [`~Judge.replies`]. Everything else is here: the judged text is cleaned and put between lines
    with a random word that occurs in none of the texts; the reply gives reasons first and ends in a JSON object, whose
    scores are checked against the criteria; a reply that cannot be used is asked for once more, with its fault named;
    of several votes the median counts, if more than half of them can be used. A failure is no score: it has a cause.

    Equal tasks of a call are asked once. A judge handles one call at a time: a second one, from another thread, waits.

    Args:
        votes (`int`, *optional*, defaults to 1): replies to each question; the median of their scores counts.
        strip_think (`bool`, *optional*, defaults to `True`): leave think blocks out of the judged text.
        strip_tags (`bool`, *optional*, defaults to `True`): leave out marks of chat templates and tags like `<answer>`.
        max_chars (`int`, *optional*, defaults to 20000): longer judged text loses its middle; so do prompts.
        system_role (`bool`, *optional*, defaults to `True`): whether the model knows a system message.
        fence_seed (`int`, *optional*): makes the random words functions of this number and of the texts, for runs that
            repeat exactly; keep it out of what is published.
    """

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
        clean = Cleaning(self.strip_think, self.strip_tags, self.max_chars)
        task = replace(
            task,
            completion=clean(task.completion),
            prompt=self._context(task.prompt) or "",
            reference=self._context(task.reference),
        )
        texts = (task.completion, task.prompt, task.reference or "", task.guidance)
        scored = task.scored()
        return Question(lambda fence: score_messages(task, fence), texts, lambda text: read_scores(text, scored))

    def _pair_question(self, pair: Pair) -> Question:
        clean = Cleaning(self.strip_think, self.strip_tags, self.max_chars)
        pair = replace(
            pair,
            first=clean(pair.first),
            second=clean(pair.second),
            prompt=self._context(pair.prompt) or "",
            reference=self._context(pair.reference),
        )
        texts = (pair.first, pair.second, pair.prompt, pair.reference or "", pair.guidance)
        return Question(lambda fence: pair_messages(pair, fence), texts, read_better)

    def _context(self, text: str | None) -> str | None:
        """A prompt or reference as the judge sees it: what it says stays whole."""
        return None if text is None else Cleaning(False, False, self.max_chars)(text)

    def _settled(self, questions: Sequence[Question]) -> list[Verdict]:
        """The verdict on each question, from all its votes."""
        if not questions:
            return []
        requests = [request for question in questions for request in self._requests(question)]
        readers = [question.read for question in questions for _ in range(self.votes)]
        with self._turn():
            outcomes = self._outcomes(requests, readers)
        self._warn(outcomes)
        groups = (outcomes[start : start + self.votes] for start in range(0, len(outcomes), self.votes))
        return [_agreed(group) for group in groups]

    def _requests(self, question: Question) -> list[Request]:
        fence = new_fence(question.texts, self.fence_seed)
        messages, asked = question.messages(fence), question.messages(FIXED_FENCE)
        if not self.system_role:
            messages, asked = merged(messages), merged(asked)
        return [Request(messages, asked, vote) for vote in range(self.votes)]

    def _outcomes(
        self, requests: Sequence[Request], readers: Sequence[Callable[[str], Scores]]
    ) -> list[Scores | BadReply]:
        """What each request comes to: known before, or asked, and asked once more where the reply has a fault."""
        outcomes: dict[int, Scores | BadReply] = {}
        for index, text in self._recalled(requests).items():
            outcome = _read(Reply(text), readers[index])
            if isinstance(outcome, Scores):  # else an older version of this package wrote it: ask
                outcomes[index] = outcome
        self.counts["cached"] += len(outcomes)
        open_ones = [index for index in range(len(requests)) if index not in outcomes]
        deadline = self._deadline()
        good: dict[int, str] = {}
        asked = [requests[index] for index in open_ones]
        for _ in range(2):
            replies = self.replies(asked, deadline) if asked else []
            self.counts["requests"] += len(asked)
            faulty: dict[int, Request] = {}
            for index, reply, request in zip(open_ones, replies, asked, strict=True):
                outcome = outcomes[index] = _read(reply, readers[index])
                if isinstance(outcome, Scores):
                    good[index] = reply.text or ""
                elif reply.text is not None and not request.again:
                    faulty[index] = _again(request, reply.text, str(outcome))
            self.counts["again"] += len(faulty)
            open_ones, asked = list(faulty), list(faulty.values())
        self._keep({index: (requests[index], text) for index, text in good.items()})
        return [outcomes[index] for index in range(len(requests))]

    def _recalled(self, requests: Sequence[Request]) -> Mapping[int, str]:
        """Replies that are known already, by the position of their request."""
        return {}

    def _keep(self, replies: Mapping[int, tuple[Request, str]]) -> None:  # noqa: B027 - most judges keep nothing
        """Called with the requests and their replies that could be used."""

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
                f"{str(faults[0])[:300]}",
                stacklevel=2,
            )

    def _turn(self) -> threading.Lock:
        """The lock of this process: one of before a fork may be held by a thread that is not there."""
        locks: dict[int, threading.Lock] = self.__dict__.setdefault("_locks", {})
        return locks.setdefault(os.getpid(), threading.Lock())

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_locks"}

    def close(self) -> None:  # noqa: B027 - most judges hold nothing
        """Give back what the judge holds; the next call takes it again."""

    def __repr__(self) -> str:
        settings = ", ".join(f"{key}={value!r:.80}" for key, value in vars(self).items() if not key.startswith("_"))
        return f"{type(self).__name__}({settings})"


def _read(reply: Reply, read: Callable[[str], Scores]) -> Scores | BadReply:
    if reply.text is None:
        return BadReply(reply.cause, reply.detail or reply.cause)
    try:
        return read(reply.text)
    except BadReply as fault:
        return fault


def _again(request: Request, reply: str, fault: str) -> Request:
    return Request(
        again_messages(request.messages, reply, fault), again_messages(request.asked, reply, fault), request.vote, True
    )


def _agreed(votes: Sequence[Scores | BadReply]) -> Verdict:
    """The median of the votes, with the reasons of the vote nearest to it; a failure where half of them failed."""
    good = [vote for vote in votes if isinstance(vote, Scores)]
    if 2 * len(good) <= len(votes):
        causes = Counter(vote.cause for vote in votes if isinstance(vote, BadReply))
        cause = min(causes, key=lambda one: (-causes[one], one))
        return Verdict({}, {}, cause)
    scores = {name: statistics.median(vote.scores[name] for vote in good) for name in good[0].scores}
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
