"""Write the table of docs/evaluation.md from benchmarks/results/eval.json; `--check` fails where the page differs.

python benchmarks/make_eval_tables.py [--check]
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

from pages import ROOT, Page


def speed_table() -> str:
    """What `bench_eval.py` measured, a row a part."""
    results = json.loads((ROOT / "benchmarks" / "results" / "eval.json").read_text(encoding="utf-8"))
    grading, generation = results["grading"], results["generation"]
    what = f"{grading['problems']} problems x {grading['samples']} samples x {grading['characters']:,} characters"

    def median(part: str) -> str:
        return f"{statistics.median(run[part] for run in grading['runs']):.1f} s"

    total = grading["total_seconds"]
    agreement = min(run["agreement"] for run in grading["runs"])
    rows = [
        (f"{what}: scores and answers", median("grade_seconds")),
        ("their votes", median("votes_seconds")),
        ("the other figures, nearly all of it the language of the texts", median("figures_seconds")),
        ("in all: median (longest) of the runs", f"{total['median']:.1f} s ({total['max']:.1f} s)"),
        ("verdicts as the completions were made, in the worst run", f"{agreement:.2%}"),
        *generation_rates(generation),
    ]
    lines = ["| what | figure |", "|---|---|", *(f"| {label} | {figure} |" for label, figure in rows)]
    return f"{machine(results)}\n\n" + "\n".join(lines)


def machine(results: dict[str, Any]) -> str:
    """Where it was measured."""
    return f"Measured on {results['machine']['device']}, torch {results['versions']['torch']}."


def generation_rates(generation: dict[str, Any]) -> list[tuple[str, str]]:
    """Tokens a second of ours against plain `generate`, by the way of choosing tokens."""
    shape = f"SmolLM2, {generation['batch']} x {generation['tokens']} tokens"
    ways = [(name, way) for name, way in generation.items() if isinstance(way, dict)]
    return [(f"rate of ours over that of plain `generate`, {shape}: {n}", f"{way['ratio']:.2f}") for n, way in ways]


PAGE = Page("docs/evaluation.md", "make_eval_tables.py", {"speed": speed_table})

if __name__ == "__main__":
    sys.exit(PAGE.main(sys.argv))
