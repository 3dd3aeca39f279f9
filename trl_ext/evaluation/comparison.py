"""Two evaluations of the same problems: whether one is better, and how sure that is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trl_ext.errors import UserError
from trl_ext.evaluation._report_markdown import settings_sentence, subject
from trl_ext.evaluation.records import PROBLEMS_FILE, RESULTS_FILE, read_json, read_json_lines
from trl_ext.evaluation.statistics import McNemar, Paired, mcnemar, paired_bootstrap

SHOWN_KEYS = 5


@dataclass(frozen=True)
class BenchmarkComparison:
    """Two runs on the problems of one benchmark that both have.

    Args:
        benchmark (`str`): name of the set.
        num_problems (`int`): problems that both runs judged.
        first, second (`float`): pass@1 of each run on them.
        mean (`Paired`): second minus first, by the share of samples that is right.
        outcomes (`McNemar`): right or wrong, of the greedy completion or of the majority vote.
        outcome (`str`): which of the two: `"single completion"` or `"majority vote"`.
        num_ties (`int`): problems without an outcome in one of the runs: a vote that is tied between right and wrong.
        notes (`list[str]`): what the runs do not share, a sentence each.
    """

    benchmark: str
    num_problems: int
    first: float
    second: float
    mean: Paired
    outcomes: McNemar | None
    outcome: str
    num_ties: int
    notes: list[str]

    def sentences(self, level: float) -> list[str]:
        """What the figures say, at a level of significance such as 0.05."""
        better = "second" if self.mean.difference > 0 else "first"
        interval = self.mean.interval
        span = f"{100 * interval.confidence:g} % interval {100 * interval.low:+.1f} to {100 * interval.high:+.1f}"
        head = (
            f"{self.benchmark}, {self.num_problems} problems: pass@1 {100 * self.first:.1f} % and "
            f"{100 * self.second:.1f} %, difference {100 * self.mean.difference:+.1f} points ({span}, "
            f"{_p(self.mean.p_value)}, paired)."
        )
        if self.mean.p_value < level:
            verdict = f"The {better} run is significantly better (p < {level:g})."
        else:
            verdict = f"No significant difference (p >= {level:g}): the runs may be equally good."
        return [head, verdict, *self._outcome_sentences(level), *self.notes]

    def _outcome_sentences(self, level: float) -> list[str]:
        if self.outcomes is None:
            return []
        test = self.outcomes
        word = "significant" if test.p_value < level else "not significant"
        ties = f", without an outcome for a tied vote: {self.num_ties}" if self.num_ties else ""
        return [
            f"By the {self.outcome}, problems right in the first run alone: {test.only_first}, in the second alone: "
            f"{test.only_second}{ties}. That is {word} ({_p(test.p_value)}, McNemar's exact test)."
        ]


@dataclass(frozen=True)
class Comparison:
    """Two evaluations, benchmark by benchmark.

    Args:
        runs (`list[str]`): what each run is: its folder, model and settings.
        benchmarks (`list[BenchmarkComparison]`): the sets that both have.
        notes (`list[str]`): sets that only one has, and settings that differ.
        level (`float`): of significance.
    """

    runs: list[str]
    benchmarks: list[BenchmarkComparison]
    notes: list[str]
    level: float = 0.05

    def text(self) -> str:
        """The comparison in sentences."""
        lines = [f"first run:  {self.runs[0]}", f"second run: {self.runs[1]}"]
        for one in self.benchmarks:
            lines += ["", *one.sentences(self.level)]
        if len(self.benchmarks) > 1:
            lines += [
                "",
                f"Of {len(self.benchmarks)} comparisons, each has its own chance of {self.level:g} to be wrong.",
            ]
        return "\n".join([*lines, *self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def compare_runs(
    first: str | Path,
    second: str | Path,
    *,
    confidence: float = 0.95,
    num_resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Whether two evaluations differ: problems are matched by their keys, so that the choice of problems cancels.

    Two tests for each benchmark. On the share of samples that is right: a paired bootstrap interval over problems with
    a p value from swapping the runs. On right or wrong: McNemar's exact test, of the greedy completion or the single
    sample, else of the majority vote, which is right where more than half of it goes to right answers; a problem in
    which it is exactly half is left out.

    Args:
        first, second (`str` or `Path`): folders of finished evaluations.
        confidence (`float`): of the interval; the level of significance is one minus it.
        num_resamples (`int`): resampled sets of problems, and swaps.
        seed (`int`): of these.

    Returns:
        `Comparison`: positive differences mean that the second is better.

    Raises:
        UserError: For a folder without a finished evaluation, files that cannot be read, runs that were graded in
            different ways, and runs that share no problem.
    """
    runs = [_read(Path(first)), _read(Path(second))]
    _refuse_other_grading(runs[0][0], runs[1][0], [str(first), str(second)])
    shared = [name for name in runs[0][1] if name in runs[1][1]]
    if not shared:
        names = [", ".join(problems) for _, problems in runs]
        raise UserError(
            f"{first} has the benchmarks {names[0]} and {second} has {names[1]}; they share none to compare"
        )
    options = {"confidence": confidence, "num_resamples": num_resamples, "seed": seed}
    benchmarks = [
        _compared(name, runs[0][1][name], runs[1][1][name], options, [str(first), str(second)]) for name in shared
    ]
    notes = [
        f"Only the {word} run has {', '.join(alone)}."
        for word, (_, own), (_, others) in (("first", *runs), ("second", *reversed(runs)))
        if (alone := [name for name in own if name not in others])
    ]
    notes += _other_settings(runs[0][0], runs[1][0])
    told = [
        f"{path}: {subject(results)}. {settings_sentence(results)}"
        for path, (results, _) in zip((first, second), runs, strict=True)
    ]
    return Comparison(told, benchmarks, notes, round(1 - confidence, 10))


Problems = dict[str, dict[str, dict[str, Any]]]


def _read(folder: Path) -> tuple[dict[str, Any], Problems]:
    """What `results.json` holds, and the problems by benchmark and key."""
    remedy = "run `trl-ext eval` for that folder again, which writes its reports anew"
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; name the output folder of a finished evaluation")
    for name in (RESULTS_FILE, PROBLEMS_FILE):
        if not (folder / name).is_file():
            raise UserError(f"{folder} has no {name}, so no evaluation has ended there; {remedy}")
    results = read_json(folder / RESULTS_FILE, remedy)
    problems: Problems = {}
    for row in read_json_lines(folder / PROBLEMS_FILE, remedy):
        if not {"benchmark", "key", "solution", "num_judged", "num_correct"} <= row.keys():
            raise UserError(f"{folder / PROBLEMS_FILE} holds a line that is no problem of an evaluation; {remedy}")
        problems.setdefault(row["benchmark"], {})[row["key"]] = row
    if not {"sampling", "generator", "num_samples"} <= results.keys() or not problems:
        raise UserError(f"{folder / RESULTS_FILE} is not of a finished evaluation; {remedy}")
    return results, problems


def _refuse_other_grading(first: Mapping[str, Any], second: Mapping[str, Any], folders: Sequence[str]) -> None:
    """Refuse runs whose completions were not held against the same rule: the difference would be the rule's."""
    for name, usual in (("truncated", "grade"), ("reward", None)):
        rules = [results.get(name) or usual for results in (first, second)]
        if rules[0] != rules[1]:
            shown = [rule or "that of each task" for rule in rules]
            raise UserError(
                f"{folders[0]} was graded with {name}: {shown[0]}, and {folders[1]} with {name}: {shown[1]}; run "
                f"`trl-ext eval` again for one of them with the same --{name}, which grades its completions anew"
            )


def _other_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """What differs in how the two were asked, a sentence for all of it."""
    asked: list[dict[str, Any]] = [
        {
            **results["sampling"],
            "num_samples": results["num_samples"],
            "chat_template_kwargs": results["generator"].get("chat_template_kwargs") or None,
        }
        for results in (first, second)
    ]
    changes = [
        f"{name} {json.dumps(asked[0].get(name))} and {json.dumps(asked[1].get(name))}"
        for name in dict.fromkeys([*asked[0], *asked[1]])
        if asked[0].get(name) != asked[1].get(name)
    ]
    return [f"Settings that differ between the runs: {'; '.join(changes)}."] if changes else []


def _compared(
    name: str,
    first: Mapping[str, dict[str, Any]],
    second: Mapping[str, dict[str, Any]],
    options: Mapping[str, Any],
    folders: Sequence[str],
) -> BenchmarkComparison:
    shared = [key for key in first if key in second]
    same = [key for key in shared if first[key]["solution"] == second[key]["solution"]]
    keys = [key for key in same if first[key]["num_judged"] and second[key]["num_judged"]]
    if not keys:
        raise UserError(f"{folders[0]} and {folders[1]} share no judged problem of {name}; there is nothing to compare")
    shares = [[one[key]["num_correct"] / one[key]["num_judged"] for key in keys] for one in (first, second)]
    outcomes, kind, ties = _outcomes([first[key] for key in keys], [second[key] for key in keys])
    return BenchmarkComparison(
        benchmark=name,
        num_problems=len(keys),
        first=sum(shares[0]) / len(keys),
        second=sum(shares[1]) / len(keys),
        mean=paired_bootstrap(*shares, **options),
        outcomes=outcomes,
        outcome=kind,
        num_ties=ties,
        notes=_notes(first, second, shared, same, keys),
    )


def _outcomes(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]
) -> tuple[McNemar | None, str, int]:
    """McNemar's test of the problems that have an outcome in both runs, what the outcome is, and how many have none."""
    is_single = all(row["num_judged"] == 1 for row in (*first, *second))
    if not is_single and any(row.get("vote_score") is None for row in (*first, *second)):
        return None, "", 0  # several programs, or replies to an instruction, have no majority
    name = "num_correct" if is_single else "vote_score"
    pairs = [(one[name], other[name]) for one, other in zip(first, second, strict=True)]
    clear = [(float(one > 0.5), float(other > 0.5)) for one, other in pairs if one != 0.5 and other != 0.5]
    if not clear:
        return None, "", len(pairs)
    test = mcnemar([one for one, _ in clear], [other for _, other in clear])
    return test, "single completion" if is_single else "majority vote", len(pairs) - len(clear)


def _notes(
    first: Mapping[str, Any], second: Mapping[str, Any], shared: list[str], same: list[str], keys: list[str]
) -> list[str]:
    reasons = {
        "only in the first run": [key for key in first if key not in second],
        "only in the second run": [key for key in second if key not in first],
        "with another gold in each run": sorted({*shared} - {*same}),
        "not judged in one of the runs": sorted({*same} - {*keys}),
    }
    notes = [f"Left out, {why}: {len(names)} ({_some(names)})." for why, names in reasons.items() if names]
    other_prompts = sum(_prompt(first[key]) != _prompt(second[key]) for key in keys)
    if other_prompts:
        notes.append(f"Prompts that differ between the runs: {other_prompts}.")
    return notes


def _prompt(row: Mapping[str, Any]) -> Any:
    """The whole prompt where the row tells it; `prompt` itself is the last turn."""
    return row.get("prompt_hash") or row.get("prompt")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN_KEYS]) + ", ..." * (len(names) > SHOWN_KEYS)


def _p(value: float) -> str:
    return f"p = {value:.2g}" if value >= 1e-4 else "p < 0.0001"
