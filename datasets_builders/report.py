"""What a build read, dropped and kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class BuildReport:
    """Counts and facts of one build; `loaded` is the sum of what was dropped, removed, not drawn and kept.

    Args:
        name (`str`): name of the source.
        task (`str`): task of its rows, `"mixed"` where they differ.
        path (`str`, *optional*): Hub id of the source, also where local files were read in its place.
        config (`str`, *optional*): configuration that was read; `None` where there is but one, or all of several.
        split (`str`): split that was built.
        revision (`str`, *optional*): revision that was asked for, by the caller or by the source.
        revision_resolved (`str`, *optional*): commit that was read, where it is known.
        licence (`str`): licence of the data.
        local_files (`tuple[str, ...]`): names of the local files that were read in the place of the Hub.
        files_hash (`str`, *optional*): hash of their content.
        deduplicate (`bool`): whether duplicate prompts were removed.
        instruction (`str`): preset appended to the prompts.
        system_prompt (`str`, *optional*): first turn of the prompts.
        seed (`int`): seed of the sample, and of the rows of a procedural source.
        max_samples (`int`, *optional*): rows that were asked for.
        streaming (`bool`): whether the rows are a stream, whose counts grow while it is read.
        loaded (`int`): raw rows read.
        dropped (`dict[str, int]`): rows that could not be converted, by reason.
        duplicates (`int`): rows whose prompt an earlier row has.
        disagreeing (`int`): rows removed because rows of one prompt have different solutions.
        sampled (`int`, *optional*): rows drawn for `max_samples`; `None` where all were taken.
        not_sampled (`int`): rows that were left out by it.
        kept (`int`): rows of the result.
        complete (`bool`): whether all rows have been seen: for a stream, whether it was read to its end.
        warnings (`list[str]`): what the user should know, a sentence each.
    """

    name: str
    task: str
    path: str | None = None
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    revision_resolved: str | None = None
    licence: str = "unknown"
    local_files: tuple[str, ...] = ()
    files_hash: str | None = None
    deduplicate: bool = True
    instruction: str = "none"
    system_prompt: str | None = None
    seed: int = 42
    max_samples: int | None = None
    streaming: bool = False
    loaded: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    disagreeing: int = 0
    sampled: int | None = None
    not_sampled: int = 0
    kept: int = 0
    complete: bool = False
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self) | {"local_files": list(self.local_files)}

    def restart(self) -> None:
        """Set the counts to zero: a stream is read from its beginning."""
        self.loaded = self.duplicates = self.disagreeing = self.not_sampled = self.kept = 0
        self.sampled, self.complete = None, False
        self.dropped.clear()

    def drop(self, reason: str, count: int = 1) -> None:
        """Count dropped rows; a reason `"code: sentence"` counts as its code, its first sentence becomes a warning."""
        code, _, sentence = reason.partition(": ")
        if sentence and code not in self.dropped:
            self.warn(f"{self.name}: a row was dropped as {code}, for instance because {sentence}")
        self.dropped[code] = self.dropped.get(code, 0) + count

    def warn(self, sentence: str) -> None:
        """Add a warning, once."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def warn_of_few(self, number: int) -> None:
        """Warn that there are fewer rows than `max_samples` asks for."""
        there = f"max_samples={self.max_samples} asks for more rows than there are, {number}"
        if self.path is None and not self.local_files:
            level = f" of level {self.config!r}" if self.config else ""
            there = (
                f"max_samples={self.max_samples} asks for more different rows{level} than are found, {number} among "
                f"{self.loaded} generated ones; ask for fewer or for a higher level"
            )
        self.warn(f"{self.name}: {there}")

    def refuse_empty(self) -> None:
        """Refuse a result without rows.

        Raises:
            ValueError: With the counts by reason.
        """
        if self.kept:
            return
        counts = {
            **self.dropped,
            "duplicates": self.duplicates,
            "disagreeing": self.disagreeing,
        }
        reasons = ", ".join(f"{reason} {count}" for reason, count in counts.items() if count)
        raise ValueError(
            f"no row of {self.name!r} is left of {self.loaded} read ({reasons or 'the source is empty'}); look at its "
            "raw rows: are they in the schema of the source?"
        )


@dataclass
class MixReport:
    """What a mixture was made of.

    Args:
        name (`str`): name of the mixture.
        seed (`int`): seed of the draws and of the shuffle.
        kept (`int`): rows of the result.
        weights (`dict[str, int | float]`): rows or share of each source, as asked for.
        parts (`list[BuildReport]`): the report of each source, in their order.
        warnings (`list[str]`): those of the sources, and of rows that were repeated.
    """

    name: str = "mixture"
    seed: int = 42
    kept: int = 0
    weights: dict[str, int | float] = field(default_factory=dict)
    parts: list[BuildReport] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; `instruction` and `system_prompt` are those of the first source."""
        first = {name: getattr(part, name) for part in self.parts[:1] for name in ("instruction", "system_prompt")}
        own: dict[str, Any] = {"name": self.name, "seed": self.seed, "kept": self.kept, "weights": dict(self.weights)}
        own["warnings"] = list(self.warnings)
        return own | first | {"parts": [part.to_dict() for part in self.parts]}
