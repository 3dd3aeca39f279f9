"""One problem of an evaluation with its graded samples, and its own figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trl_ext.evaluation.grading import VOTING_TASKS


@dataclass(frozen=True)
class Problem:
    """One problem and its graded samples; every list has one entry a sample.

    Args:
        benchmark (`str`): name of the set.
        key (`str`): key of the problem in it.
        task (`str`): task of the row.
        prompt (`str`): text of the last turn of the prompt.
        solution (`str`): the gold.
        answers (`list[str | None]`): the answer that votes, `None` where none was stated.
        scores (`list[float | None]`): the reward, `None` where the sample could not be judged.
        correct (`list[bool | None]`): whether it is right, `None` where it could not be judged.
        num_tokens (`list[int]`): length of the completion.
        truncated (`list[bool]`): whether it was cut at the largest number of tokens.
        groups (`list[int | None]`): class of equal answers, from `group_answers`.
        best_of_scores (`list[float | None]`, *optional*): score of the reward that chooses for best_of_k.
        prompt_hash (`str`, *optional*): of the whole prompt, the turns before the last among it.
    """

    benchmark: str
    key: str
    task: str
    prompt: str
    solution: str
    answers: list[str | None]
    scores: list[float | None]
    correct: list[bool | None]
    num_tokens: list[int]
    truncated: list[bool]
    groups: list[int | None]
    best_of_scores: list[float | None] | None = None
    prompt_hash: str | None = None

    @property
    def judged(self) -> list[int]:
        """Numbers of the samples that could be judged."""
        return [index for index, right in enumerate(self.correct) if right is not None]

    @property
    def num_correct(self) -> int:
        """Samples that are right."""
        return sum(right is True for right in self.correct)

    @property
    def mean(self) -> float | None:
        """Share of the judged samples that is right, `None` where none was judged."""
        return self.num_correct / len(self.judged) if self.judged else None

    def pass_at(self, k: int) -> float | None:
        """pass@k of this problem, `None` with fewer than k judged samples."""
        from trl_ext.evaluation.estimators import pass_at_k

        judged = len(self.judged)
        return float(pass_at_k(judged, self.num_correct, k)) if judged >= k else None

    def vote_at(self, k: int | None = None, seed: int = 0) -> float | None:
        """cons@k of this problem (all judged samples without `k`), `None` where too few were judged or none can vote.

        Args:
            k (`int`, *optional*): samples that vote.
            seed (`int`): of the k samples, where they are too many to go through them all.
        """
        from trl_ext.evaluation.votes import vote_score

        judged = self.judged
        if self.task not in VOTING_TASKS or not judged or len(judged) < (k or 1):
            return None
        groups, correct = [self.groups[i] for i in judged], [_number(self.correct[i]) for i in judged]
        return float(vote_score(groups, correct, k=k, seed=seed))

    def best_of(self, k: int) -> float | None:
        """Best-of-k of this problem, `None` with fewer than k judged samples or without a reward that chooses."""
        from trl_ext.evaluation.estimators import best_of_k

        judged = self.judged
        if self.best_of_scores is None or len(judged) < k:
            return None
        scores, correct = [self.best_of_scores[i] for i in judged], [float(self.correct[i] or 0) for i in judged]
        return float(best_of_k(scores, correct, k))

    @property
    def winner(self) -> str | None:
        """An answer of the largest class, the one stated first where several are as large."""
        counts: dict[int, int] = {}
        for index in self.judged:
            group = self.groups[index]
            if group is not None:
                counts[group] = counts.get(group, 0) + 1
        if not counts:
            return None
        return self.answers[self.groups.index(max(counts, key=lambda group: counts[group]))]

    def row(self) -> dict[str, Any]:
        """The line of `problems.jsonl`."""
        row = {
            "benchmark": self.benchmark,
            "key": self.key,
            "task": self.task,
            "prompt": self.prompt,
            "prompt_hash": self.prompt_hash,
            "solution": self.solution,
            "num_samples": len(self.correct),
            "num_judged": len(self.judged),
            "num_correct": self.num_correct,
            "pass@1": self.mean,
            "vote": self.winner,
            "vote_score": self.vote_at(),
            "answers": self.answers,
            "scores": self.scores,
            "num_tokens": self.num_tokens,
            "truncated": self.truncated,
        }
        if self.best_of_scores is not None:
            row["best_of_scores"] = self.best_of_scores
        return row


def _number(value: bool | None) -> float | None:
    return None if value is None else float(value)
