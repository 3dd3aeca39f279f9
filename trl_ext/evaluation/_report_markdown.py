"""`results.md`: tables of figures, a sentence on what each figure is, and the hardest problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trl_ext.evaluation._problem import Problem

MOST_PROBLEMS = 50
_MEANINGS = {
    "pass@1": "the share of a problem's judged samples that is right, averaged over problems (mean@n).",
    "pass": "the chance that at least one of k samples is right: the unbiased 1 - C(n-c, k) / C(n, k), averaged over "
    "problems.",
    "cons": "the chance that the most frequent answer of k samples is right; equal answers count as one, ties are "
    "split, a sample without an answer does not vote.",
    "best_of": "the chance that the sample which the second reward scores highest among k is right; equal scores are "
    "split.",
}


def markdown(results: Mapping[str, Any], problems: Sequence[Problem]) -> str:
    """The text of `results.md`."""
    sections = [
        f"# Evaluation of {subject(results)}",
        settings_sentence(results),
        figures_table(results),
        _meanings(results),
        *_notes(results),
        *(_hardest(name, [p for p in problems if p.benchmark == name]) for name in results["benchmarks"]),
        _run(results),
    ]
    return "\n\n".join(sections) + "\n"


def subject(results: Mapping[str, Any]) -> str:
    """What was evaluated: the model, and the adapter on it."""
    generator = results["generator"]
    model, adapter = generator.get("model") or "a model", generator.get("adapter")
    return f"{model} with the adapter {adapter}" if adapter else str(model)


def settings_sentence(results: Mapping[str, Any]) -> str:
    """How the samples were drawn."""
    sampling = results["sampling"]
    count = results["num_samples"]
    drawn = f"{count} sample{'s' * (count > 1)} a problem"
    if sampling["temperature"] == 0:
        return f"One greedy completion a problem, at most {sampling['max_new_tokens']} tokens."
    limits = [f"top_p {sampling['top_p']:g}"] * (sampling["top_p"] < 1) + [f"top_k {sampling['top_k']}"] * bool(
        sampling["top_k"]
    )
    how = ", ".join([f"temperature {sampling['temperature']:g}", *limits, f"seed {sampling['seed']}"])
    return f"{drawn} at {how}, at most {sampling['max_new_tokens']} tokens."


def metric_names(results: Mapping[str, Any]) -> list[str]:
    """Names of the metrics of all benchmarks, pass@1 first."""
    return list(dict.fromkeys(name for one in results["benchmarks"].values() for name in one["metrics"]))


def figures_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """Head and rows of the table of figures, in percent with intervals."""
    names = metric_names(results)
    rows = [["benchmark", "problems", *names, "tokens (mean)", "tokens (p95)", "truncated"]]
    for benchmark, one in results["benchmarks"].items():
        lengths = one["response_length"]
        cells = [figure_text(one["metrics"].get(name)) for name in names]
        counts = [length_text(lengths["mean"]), str(lengths["p95"]), f"{100 * one['truncated']:.1f} %"]
        rows.append([benchmark, str(one["num_problems"]), *cells, *counts])
    return rows


def long_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """Head and rows of the figures one below the other, for a terminal."""
    rows = [["benchmark", "figure", "value", f"{100 * results['confidence']:g} % interval", "problems"]]
    for benchmark, one in results["benchmarks"].items():
        for name, figure in one["metrics"].items():
            value, _, interval = figure_text(figure).partition(" [")
            rows.append([benchmark, name, value, interval.rstrip("]") or "–", str(figure["num_problems"])])
        lengths, problems = one["response_length"], str(one["num_problems"])
        rows.append([benchmark, "tokens, mean", length_text(lengths["mean"]), "–", problems])
        rows.append([benchmark, "tokens, p95", str(lengths["p95"]), "–", problems])
        rows.append([benchmark, "truncated", f"{100 * one['truncated']:.1f} %", "–", problems])
    return rows


def figure_text(figure: Mapping[str, Any] | None) -> str:
    """A figure in percent with its interval, or a dash.

    Example:

    ```python
    >>> figure_text({"value": 0.4125, "low": 0.37, "high": 0.456})
    '41.2 % [37.0, 45.6]'

    ```
    """
    if figure is None or figure["value"] is None:
        return "–"
    return f"{100 * figure['value']:.1f} % [{100 * figure['low']:.1f}, {100 * figure['high']:.1f}]"


def length_text(tokens: float) -> str:
    """A mean number of tokens, with a decimal below 100.

    Example:

    ```python
    >>> length_text(7.625), length_text(1234.56)
    ('7.6', '1235')

    ```
    """
    return f"{tokens:.1f}" if round(tokens, 1) < 100 else f"{tokens:.0f}"


def figures_table(results: Mapping[str, Any]) -> str:
    """The table of figures as Markdown."""
    head, *rows = figures_rows(results)
    return table(head, rows, numbers=range(1, len(head)))


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = (), length: int = 60) -> str:
    """A Markdown table; `numbers` are the columns aligned to the right, `length` is that of the longest cell."""
    right = set(numbers)
    marks = ["---:" if column in right else "---" for column in range(len(head))]
    lines = [head, marks, *([cell(value, length) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: object, length: int = 60) -> str:
    """Text for a cell: on one line, shortened, with nothing in it that ends the cell or is Markdown or HTML."""
    text = " ".join(str("–" if value is None else value).split())
    text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    text = text if len(text) <= length else f"{text[: length - 1]}…"
    for char in "\\|`*_<>$":
        text = text.replace(char, f"\\{char}")
    return text.replace("](", "]\\(")


def _meanings(results: Mapping[str, Any]) -> str:
    names = metric_names(results)
    kinds = dict.fromkeys(name if name == "pass@1" else name.partition("@")[0] for name in names)
    lines = [f"- {kind if '@' in kind else f'{kind}@k'}: {_MEANINGS[kind]}" for kind in kinds]
    share = f"{100 * results['confidence']:g} %"
    lines.append(f"- [low, high]: {share} interval by the bootstrap over problems; it says how much the choice of")
    lines[-1] += " problems matters, not how much another seed would."
    cut = (
        "counts as wrong and does not vote"
        if results["truncated"] == "wrong"
        else "is graded as it stands: a final answer that is complete counts"
    )
    lines.append(f"- truncated: the share of samples cut at the largest number of tokens. Such a sample {cut}.")
    return "## What the figures are\n\n" + "\n".join(lines)


def _notes(results: Mapping[str, Any]) -> list[str]:
    lines = [f"- {note}" for note in notes(results)]
    return ["## Notes\n\n" + "\n".join(lines)] if lines else []


def notes(results: Mapping[str, Any]) -> list[str]:
    """What is left out of the figures, and what a reader should look into, a sentence each."""
    lines = []
    for benchmark, one in results["benchmarks"].items():
        if one["num_unjudged_samples"]:
            lines.append(
                f"{benchmark}: {one['num_unjudged_samples']} of {one['num_samples']} samples could not be judged and "
                f"are left out; of {one['num_unjudged_problems']} problems, all of them."
            )
        lines += [
            f"{benchmark}: {name} is over {figure['num_problems']} of {one['num_problems']} problems; the others "
            "have too few judged samples."
            for name, figure in one["metrics"].items()
            if figure["num_left_out"]
        ]
        if one["num_without_answer"] > one["num_samples"] / 2:
            what = "have no vote in cons@k" if results.get("reward") else "cannot be right"
            lines.append(
                f"{benchmark}: {one['num_without_answer']} of {one['num_samples']} samples state no final answer "
                f"and so {what}: look at generations.jsonl, at what the prompts ask for, and at how many are truncated."
            )
    return lines


def _hardest(benchmark: str, problems: Sequence[Problem]) -> str:
    ordered = sorted(problems, key=_difficulty)
    title = f"## {benchmark}: problems, the hardest first"
    if len(ordered) > MOST_PROBLEMS:
        title += f" ({MOST_PROBLEMS} of {len(ordered)}; all are in problems.jsonl)"
    rows = [
        (
            problem.key,
            problem.prompt,
            problem.solution,
            f"{problem.num_correct}/{len(problem.judged)}",
            problem.winner,
            length_text(sum(problem.num_tokens) / len(problem.num_tokens)),
            sum(problem.truncated),
        )
        for problem in ordered[:MOST_PROBLEMS]
    ]
    head = ("problem", "prompt", "gold", "right", "vote", "tokens", "truncated")
    return f"{title}\n\n{table(head, rows, numbers=(3, 5, 6))}"


def _difficulty(problem: Problem) -> tuple[float, float, str]:
    """Sorts the hardest first; what could not be judged at all stands last."""
    vote = problem.vote_at()
    return (2.0 if problem.mean is None else problem.mean, 0.0 if vote is None else vote, problem.key)


def _run(results: Mapping[str, Any]) -> str:
    rows: list[tuple[str, object]] = [
        (f"generator: {key}", value)
        for key, value in results["generator"].items()
        if key != "versions" and value is not None
    ]
    rows += [(name, results["sampling"][name]) for name in results["sampling"]]
    rows += [("samples a problem", results["num_samples"]), ("batch size", results["batch_size"])]
    rows += [("reward", results.get("reward") or "that of each task"), ("truncated samples", results["truncated"])]
    rows += [("reward that chooses", results["best_of_reward"])] if results.get("best_of_reward") else []
    rows += [(f"version of {name}", value) for name, value in results["versions"].items()]
    for name, one in results["benchmarks"].items():
        facts = one.get("data") or {}
        said = ", ".join(f"{key} {value}" for key, value in facts.items() if value is not None)
        rows.append((f"rows of {name}", f"{said or 'given by the caller'}, fingerprint {one['fingerprint']}"))
    text = "## How it was measured\n\n" + table(
        ("", ""), [(name, cell_value(value)) for name, value in rows], length=400
    )
    command = results.get("command")
    return f"{text}\n\n```shell\n{command}\n```" if command else text


def cell_value(value: object) -> str:
    """A setting as text."""
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)
