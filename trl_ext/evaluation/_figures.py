"""The figures of one evaluation during training, from completions and what they are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trl_ext.evaluation.estimators import mean_at_k, pass_at_k
from trl_ext.evaluation.grading import VOTING_TASKS, Graded, follows_format, task_of
from trl_ext.evaluation.requests import Completion
from trl_ext.evaluation.votes import group_answers, vote_score


def figures(
    rows: Sequence[Mapping[str, Any]],
    rendered: Sequence[str] | None,
    completions: Sequence[Sequence[Completion]],
    graded: Sequence[Sequence[Graded]],
    *,
    k: int,
    seed: int = 0,
    language: str | None = None,
) -> dict[str, float]:
    """Accuracy, length, truncation, format and language of P problems with n samples each.

    A sample without a verdict is left out of accuracies, and a problem with fewer than k samples with one out of those
    at k. A figure of which nothing is left is left out itself.

    Args:
        rows (`Sequence[Mapping]`): P rows.
        rendered (`Sequence[str]`, *optional*): P prompts in the chat template.
        completions (`Sequence[Sequence[Completion]]`): (P, n).
        graded (`Sequence[Sequence[Graded]]`): (P, n).
        k (`int`): of pass@k and cons@k; with 1 there is only pass@1.
        seed (`int`): of the votes of k among more samples.
        language (`str`, *optional*): that of the completions; by default that of the rows.

    Returns:
        `dict[str, float]`: by name, without a prefix.
    """
    judged = [[one for one in row if one.is_correct is not None] for row in graded]
    flat = [one for row in completions for one in row]
    found: dict[str, float | None] = {}
    if any(judged):
        found["pass@1"] = mean_at_k([[float(bool(one.is_correct)) for one in row] for row in judged if row])
    enough = [(row, own) for row, own in zip(rows, judged, strict=True) if len(own) >= k]
    if k > 1:
        found[f"pass@{k}"] = _mean([float(pass_at_k(len(own), _num_correct(own), k)) for _, own in enough])
        found[f"cons@{k}"] = _mean([_vote(own, task_of(row), k, seed) for row, own in enough if _votes(row)])
    found["response_length"] = _mean([one.num_tokens for one in flat])
    found["truncated"] = _mean([one.is_truncated for one in flat])
    found["format_rate"] = _mean(_formats(rows, rendered, completions))
    found["language_consistency"] = _mean(_languages(rows, completions, language))
    found["unjudged"] = float(len(flat) - sum(map(len, judged)))
    return {name: value for name, value in found.items() if value is not None}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _num_correct(own: Sequence[Graded]) -> int:
    return sum(bool(one.is_correct) for one in own)


def _votes(row: Mapping[str, Any]) -> bool:
    return task_of(row) in VOTING_TASKS


def _vote(own: Sequence[Graded], task: str, k: int, seed: int) -> float:
    groups = group_answers([one.answer for one in own], task=task)
    return float(vote_score(groups, [float(bool(one.is_correct)) for one in own], k=k, seed=seed))


def _formats(
    rows: Sequence[Mapping[str, Any]], rendered: Sequence[str] | None, completions: Sequence[Sequence[Completion]]
) -> list[float | None]:
    prompts = [row["prompt"] for row, own in zip(rows, completions, strict=True) for _ in own]
    starts = None if rendered is None else [r for r, own in zip(rendered, completions, strict=True) for _ in own]
    return list(follows_format(prompts, [one.text for row in completions for one in row], rendered=starts))


def _languages(
    rows: Sequence[Mapping[str, Any]], completions: Sequence[Sequence[Completion]], language: str | None
) -> list[float | None]:
    """Share of each completion's words in its language, None for fewer than three words."""
    from reward_funcs import LanguageConsistencyReward

    texts = [one.text for row in completions for one in row]
    named = [row.get("language") for row, own in zip(rows, completions, strict=True) for _ in own]
    columns = {"language": named} if language is None and any(named) else {}
    scores: list[float | None] = LanguageConsistencyReward(language)(texts, **columns)
    return scores
