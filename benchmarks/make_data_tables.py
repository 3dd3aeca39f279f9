"""Write the generated parts of docs/datasets.md; `--check` fails where the page differs.

    python benchmarks/make_data_tables.py [--check]

`sources` and `evaluation` come from the registry of `datasets_builders`, `recipes` from its mixtures, `memory` from
benchmarks/results/data.json. The page marks
where with `<!-- NAME: written by benchmarks/make_data_tables.py -->` and `<!-- end of NAME -->`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping

from pages import ROOT, Page

from datasets_builders.mixing import RECIPES, recipe
from datasets_builders.registry import BUILDERS, EVALUATION_SETS
from datasets_builders.source import Source


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def rows_of(source: Source) -> str:
    return "as many as asked for" if source.generate else "" if source.size is None else f"{source.size:,}"


def sources_table(sources: Mapping[str, Source]) -> str:
    rows = []
    for name, source in sources.items():
        where = (
            "generated" if source.path is None else f"[{source.path}](https://huggingface.co/datasets/{source.path})"
        )
        stream = "stream" if source.streaming else ""
        rows.append([f"`{name}`", source.task, where, rows_of(source), source.licence, stream, source.note])
    return table(["name", "task", "from", "rows", "licence", "read as", "note"], rows)


def recipes_table() -> str:
    found = {name: recipe(name) for name in RECIPES}
    names = list(dict.fromkeys(source for counts in found.values() for source in counts))
    rows = [[f"`{name}`", *(f"{c[name]:,}" if name in c else "" for c in found.values())] for name in names]
    rows.append(["total", *(f"{sum(counts.values()):,}" for counts in found.values())])
    return table(["source", *(f"`{name}`" for name in found)], rows)


def memory_table() -> str:
    """What `bench_data.py` measured of streams whose files have large pieces, and of usual ones."""
    record = json.loads((ROOT / "benchmarks" / "results" / "data.json").read_text(encoding="utf-8"))
    found = record["figures"]["hub_streams"]
    rows = [
        [name if "JSON" in name else f"parquet, {name}", f"{of['file_mib']:,}", f"{of['rows']:,}"]
        + [f"{of[key]:,}" for key in ("resident_mib", "local_resident_mib")]
        for name, of in found.items()
    ]
    return table(["file", "size", "rows", "network", "disk"], rows)


SECTIONS = {
    "memory": memory_table,
    "sources": lambda: sources_table(BUILDERS),
    "evaluation": lambda: sources_table(EVALUATION_SETS),
    "recipes": recipes_table,
}

PAGE = Page("docs/datasets.md", "make_data_tables.py", SECTIONS)

if __name__ == "__main__":
    sys.exit(PAGE.main(sys.argv))
