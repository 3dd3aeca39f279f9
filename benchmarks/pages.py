"""A page of docs/ whose marked blocks are written by a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Page:
    """A page and what its blocks are made of.

    Args:
        path (`str`): the page, from the root of the repository.
        script (`str`): the script under benchmarks/ that writes it.
        sections (`Mapping`): text of each block by its name. The page marks where with
            `<!-- NAME: written by benchmarks/SCRIPT -->` and `<!-- end of NAME -->`.
    """

    def __init__(self, path: str, script: str, sections: Mapping[str, Callable[[], str]]) -> None:
        self.path, self.script, self.sections = path, script, sections

    def marks(self, name: str) -> tuple[str, str]:
        """What stands before and behind a block."""
        return f"<!-- {name}: written by benchmarks/{self.script} -->", f"<!-- end of {name} -->"

    def filled(self, text: str, names: Iterable[str] | None = None) -> str:
        """The text with its generated blocks written anew.

        Raises:
            ValueError: A block is not there exactly once.
        """
        for name in self.sections if names is None else names:
            begin, end = self.marks(name)
            head, _, rest = text.partition(begin)
            _, ended, tail = rest.partition(end)
            if not ended or text.count(begin) != 1 or text.count(end) != 1:
                raise ValueError(f"{begin} ... {end} must be there once")
            text = f"{head}{begin}\n\n{self.sections[name]()}\n\n{end}{tail}"
        return text

    def main(self, argv: Iterable[str]) -> int:
        """Write the page; with `--check` say whether it differs, and write nothing. Returns the exit status."""
        file = ROOT / self.path
        text = file.read_text(encoding="utf-8")
        new = self.filled(text)
        if new == text:
            return 0
        if "--check" in argv:
            print(f"{self.path} differs from what it is made of; run: python benchmarks/{self.script}")
            return 1
        file.write_text(new, encoding="utf-8")
        return 0
