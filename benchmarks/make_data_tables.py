"""Write the generated parts of docs/datasets.md; `--check` fails where the page differs.

    python benchmarks/make_data_tables.py [--check]

`sources` and `evaluation` come from the registry of `datasets_builders`, `recipes` from its mixtures. The page marks
where with `<!-- NAME: written by benchmarks/make_data_tables.py -->` and `<!-- end of NAME -->`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from datasets_builders.mixing import RECIPES, recipe
from datasets_builders.registry import BUILDERS, EVALUATION_SETS
from datasets_builders.source import Source

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "datasets.md"


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


SECTIONS = {
    "sources": lambda: sources_table(BUILDERS),
    "evaluation": lambda: sources_table(EVALUATION_SETS),
    "recipes": recipes_table,
}


def marks(name: str) -> tuple[str, str]:
    """What stands before and behind a block of the page."""
    return f"<!-- {name}: written by benchmarks/make_data_tables.py -->", f"<!-- end of {name} -->"


def filled(text: str, names: Iterable[str] = tuple(SECTIONS)) -> str:
    """The page with its generated blocks written anew.

    Raises:
        ValueError: A block is not there exactly once.
    """
    for name in names:
        begin, end = marks(name)
        head, _, rest = text.partition(begin)
        _, ended, tail = rest.partition(end)
        if not ended or text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"{begin} ... {end} must be there once")
        text = f"{head}{begin}\n\n{SECTIONS[name]()}\n\n{end}{tail}"
    return text


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    new = filled(text)
    if new == text:
        return 0
    if "--check" in sys.argv:
        print("docs/datasets.md differs from what it is made of; run: python benchmarks/make_data_tables.py")
        return 1
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
