"""From graded completions to the figures of an evaluation: `results.json`, `results.md`, `problems.jsonl`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trl_ext.evaluation._problem import Problem as Problem
from trl_ext.evaluation.grading import VOTING_TASKS
from trl_ext.evaluation.records import (
    CARD_FILE,
    MARKDOWN_FILE,
    PROBLEMS_FILE,
    RESULTS_FILE,
    write_atomically,
    write_json_lines,
)

CONFIDENCE = 0.95


def figures(
    problems: Sequence[Problem], ks: Sequence[int], seed: int = 0, *, is_cut_wrong: bool = False
) -> dict[str, Any]:
    """What an evaluation says of one benchmark.

    pass@1 is the mean over problems of the share of judged samples that is right (mean@n); the others are means over
    the problems with at least k judged samples. Each has a percentile bootstrap interval over its problems.

    Args:
        problems (`Sequence[Problem]`): problems of the benchmark, at least one.
        ks (`Sequence[int]`): values of k.
        seed (`int`): of the votes of k among many more samples.
        is_cut_wrong (`bool`): whether truncated samples were denied their answer, so that they say nothing about how
            many state none.

    Returns:
        `dict`: counts, `"metrics"` by name (`pass@1`, `pass@k`, `cons@k`, `best_of@k`) and `"response_length"`.
    """
    measures: dict[str, Callable[[Problem], float | None]] = {"pass@1": lambda problem: problem.mean}
    for k in (k for k in sorted(set(ks)) if k > 1):
        measures[f"pass@{k}"] = lambda problem, k=k: problem.pass_at(k)  # type: ignore[misc]
        if any(problem.task in VOTING_TASKS for problem in problems):
            measures[f"cons@{k}"] = lambda problem, k=k: problem.vote_at(k, seed)  # type: ignore[misc]
        if any(problem.best_of_scores is not None for problem in problems):
            measures[f"best_of@{k}"] = lambda problem, k=k: problem.best_of(k)  # type: ignore[misc]
    lengths = sorted(length for problem in problems for length in problem.num_tokens)
    samples = sum(len(problem.correct) for problem in problems)
    judged = sum(len(problem.judged) for problem in problems)
    return {
        "num_problems": len(problems),
        "num_samples": samples,
        "num_unjudged_samples": samples - judged,
        "num_unjudged_problems": sum(not problem.judged for problem in problems),
        "num_without_answer": sum(
            answer is None and not (is_cut_wrong and is_cut)
            for problem in problems
            if problem.task in VOTING_TASKS
            for answer, is_cut in zip(problem.answers, problem.truncated, strict=True)
        ),
        "metrics": {name: _figure([measure(problem) for problem in problems]) for name, measure in measures.items()},
        "response_length": {
            "mean": sum(lengths) / samples,
            "p95": lengths[math.ceil(0.95 * samples) - 1],
            "max": lengths[-1],
        },
        "truncated": sum(cut for problem in problems for cut in problem.truncated) / samples,
    }


def _figure(values: Sequence[float | None]) -> dict[str, Any]:
    """Mean of the values that are there, its interval, and how many there are."""
    from trl_ext.evaluation.statistics import bootstrap_interval

    known = [value for value in values if value is not None]
    result: dict[str, Any] = {"value": None, "low": None, "high": None}
    if known:
        interval = bootstrap_interval(known, confidence=CONFIDENCE)
        result = {"value": math.fsum(known) / len(known), "low": interval.low, "high": interval.high}
    return {**result, "num_problems": len(known), "num_left_out": len(values) - len(known)}


@dataclass(frozen=True)
class Report:
    """Figures of an evaluation and its problems.

    Args:
        output_dir (`Path`): folder with `results.json`, `results.md`, `problems.jsonl` and `model-index.yaml`.
        results (`dict`): what `results.json` holds.
        problems (`list[Problem]`): all problems, benchmark by benchmark.
    """

    output_dir: Path
    results: dict[str, Any]
    problems: list[Problem]

    def value(self, benchmark: str, metric: str = "pass@1") -> float | None:
        """One figure, `None` where it could not be measured.

        Args:
            benchmark (`str`): name of the set.
            metric (`str`): `"pass@1"`, `"pass@8"`, `"cons@8"`, ...
        """
        found: float | None = self.results["benchmarks"][benchmark]["metrics"][metric]["value"]
        return found

    def markdown(self) -> str:
        """The text of `results.md`."""
        from trl_ext.evaluation._report_markdown import markdown

        return markdown(self.results, self.problems)

    def eval_results(self) -> list[Any]:
        """The figures as `huggingface_hub.EvalResult`s, for `trl_ext.hub.add_eval_results`."""
        from trl_ext.evaluation._report_card import eval_results

        return eval_results(self.results)

    def write(self) -> None:
        """Write the four files, `results.json` last: where it is, the others are."""
        from trl_ext.evaluation._report_card import model_index_yaml

        write_json_lines(self.output_dir / PROBLEMS_FILE, (problem.row() for problem in self.problems))
        write_atomically(self.output_dir / MARKDOWN_FILE, self.markdown())
        write_atomically(self.output_dir / CARD_FILE, model_index_yaml(self.results))
        text = json.dumps(self.results, indent=2, allow_nan=False)
        write_atomically(self.output_dir / RESULTS_FILE, text + "\n")


def results_of(
    problems: Sequence[Problem],
    ks: Sequence[int],
    facts: Mapping[str, Any],
    data: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """What `results.json` holds: the figures of each benchmark with its facts, and the facts of the run.

    Args:
        problems (`Sequence[Problem]`): problems of all benchmarks.
        ks (`Sequence[int]`): values of k.
        facts (`Mapping`): of the run: generator, sampling, versions, command, and of each benchmark its fingerprint.
        data (`Mapping`): where the rows of a benchmark came from, as far as it is known.
    """
    found = {}
    for name, its_facts in facts["benchmarks"].items():
        own = [problem for problem in problems if problem.benchmark == name]
        origin = {**data[name]} if name in data else None
        measured = figures(own, ks, facts["sampling"]["seed"], is_cut_wrong=facts.get("truncated") == "wrong")
        found[name] = {**measured, **its_facts, "data": origin}
    return {**facts, "confidence": CONFIDENCE, "benchmarks": found}
