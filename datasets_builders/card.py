"""The card of a built data set: what is in it, where it comes from, what was dropped, and how to build it again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from datasets_builders.instructions import instruction_text
from datasets_builders.registry import BUILDERS, EVALUATION_SETS
from datasets_builders.schema import COLUMNS, kind_of

# Licence names that the Hub knows; another one is "other" with a name of its own.
HUB_LICENCES = frozenset(
    """
    afl-3.0 agpl-3.0 apache-2.0 artistic-2.0 bsd bsd-2-clause bsd-3-clause bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0
    cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 cdla-sharing-1.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 mit mpl-2.0 odbl odc-by
    openrail pddl unknown unlicense wtfpl
    """.split()
)
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))
# Languages of the prompts where they are not English alone.
_LANGUAGES = {"dapo_math": ("en", "zh"), "dapo_math_raw": ("en", "zh")}
_COLUMN_TEXTS = {
    "prompt": "messages (`role`, `content`), the last one of the user",
    "solution": "the gold, in the form that the reward of the row's task compares with",
    "completion": "messages to learn, after the prompt",
    "chosen": "the better reply, as messages",
    "rejected": "the worse reply, as messages",
    "margin": "by how much it is better, where the source says so",
    "task": "what is asked for, and so which reward grades it",
    "source": "the builder",
    "source_id": "the source's own id, or a hash of the prompt",
    "extra": "JSON: the answer as first written, difficulty, choices and more, where the source has them",
}
_TASK_NOTES = {
    "code": "Grading code rows runs code that a model wrote: do that in a sandbox.",
    "judge": "Judged rows have a reference text and no checkable gold: they need a judge or a similarity.",
    "preference": "Preferences are those of the source's annotators, people or models.",
    "sft": "Supervised rows were not checked for correctness.",
}
_STEPS = {"duplicates": "dropped: duplicate", "disagreeing": "dropped: disagreeing", "not_sampled": "not drawn"}
# Entries of the checks' reports that count rows which are gone.
_DROPPED = {
    "too_hard": "dropped: too hard",
    "too_easy": "dropped: too easy",
    "no_difficulty": "dropped: no difficulty",
    "other_language": "dropped: other language",
    "duplicate": "dropped: duplicate",
    "disagreeing": "dropped: disagreeing",
    "near_duplicate": "dropped: near duplicate",
    "contaminated": "dropped: in an evaluation set",
    "too_long": "dropped: prompt too long",
    "failing_golds": "dropped: gold fails",
    "not_drawn": "not drawn",
}
_LONGEST = 600  # characters of a text that the example row shows
_PLACEHOLDER = "{prompt of the source}"

Report = Mapping[str, Any]


def dataset_card(
    report: Report,
    *,
    num_rows: int,
    example: Mapping[str, Any] | None = None,
    split: str = "train",
    licence: str | None = None,
    language: str | Sequence[str] | None = None,
) -> str:
    """The text of `README.md` for a built data set: metadata of the Hub, then what a reader has to know.

    Args:
        report (`Mapping`): a build's report as a dict; a mix has those of its sources under `"parts"`.
        num_rows (`int`): rows of the data set.
        example (`Mapping`, *optional*): a row to show. Long texts are cut, and nothing in it can end the block.
        split (`str`): the split that the files under `data/` are.
        licence (`str`, *optional*): licence of the data set, in the place of those that the report names.
        language (`str` or `list[str]`, *optional*): languages of the prompts, as ISO 639-1 codes.

    Returns:
        `str`: Markdown with a YAML head.

    Example:

    ```python
    >>> card = dataset_card({"name": "gsm8k", "licence": "mit", "task": "math"}, num_rows=7473)
    >>> card.splitlines()[1:4]
    ['language:', '- en', 'license: mit']

    ```
    """
    from huggingface_hub import DatasetCardData

    parts = parts_of(report)
    data = DatasetCardData(
        **licence_metadata([licence] if licence else licences(report)),
        language=_languages(parts, language or report.get("languages")),
        pretty_name=str(report.get("name", "data set")),
        task_categories=_categories(tasks_of(report, example)),
        size_categories=next((name for bound, name in _SIZES if num_rows < bound), "n>10M"),
        source_datasets=list(dict.fromkeys(str(part["path"]) for part in parts if part.get("path"))) or None,
        tags=["trl", "trl-ext", *sorted(tasks_of(report, example))],
        configs=[{"config_name": "default", "data_files": [{"split": split, "path": f"data/{split}-*"}]}],
    )
    sections = [
        f"# {_plain(report.get('name', 'data set'))}",
        _summary(report, num_rows, example),
        _columns(example),
        _sources(parts, licence),
        _counts(report, num_rows),
        _golds(report),
        _decontamination(report),
        _template(report, example),
        _example(example),
        _rebuild(report),
        _limits(report, parts, example),
    ]
    return f"---\n{data.to_yaml().strip()}\n---\n\n" + "\n\n".join(filter(None, sections)) + "\n"


def parts_of(report: Report) -> list[Report]:
    """The reports of a mix's sources, or the report itself in a list."""
    return list(report.get("parts") or [report])


def licences(report: Report) -> list[str]:
    """The licences of all parts of a data set, each once, `"unknown"` where none is stated."""
    from datasets_builders.checks import is_unknown_licence

    found = (part.get("licence") for part in parts_of(report))
    return list(dict.fromkeys("unknown" if is_unknown_licence(name) else str(name) for name in found))


def licence_metadata(names: Iterable[str]) -> dict[str, Any]:
    """`license` and `license_name` of the Hub's metadata: `other` for several, and for one that it has no name of.

    Example:

    ```python
    >>> licence_metadata(["mit"]), licence_metadata(["mit", "odc-by"])
    ({'license': 'mit'}, {'license': 'other', 'license_name': 'mit-and-odc-by'})

    ```
    """
    different = list(dict.fromkeys(name.strip().lower() for name in names))
    if len(different) == 1 and different[0] in HUB_LICENCES:
        return {"license": different[0]}
    return {"license": "other", "license_name": re.sub(r"[^a-z0-9.]+", "-", "-and-".join(different)).strip("-")}


def tasks_of(report: Report, example: Mapping[str, Any] | None = None) -> list[str]:
    """The tasks of the rows, each once, as far as the report and the example say."""
    tasks = [part.get("task") for part in parts_of(report)] + [(example or {}).get("task")]
    return list(dict.fromkeys(str(task) for task in tasks if task and task != "mixed"))


def steps(report: Report) -> list[tuple[str, int]]:
    """What a build counted, step by step, as (words, number of rows); reasons of dropped rows are steps of their own.

    Example:

    ```python
    >>> steps({"loaded": 9, "dropped": {"no_answer": 2}, "duplicates": 0, "kept": 7})
    [('loaded', 9), ('dropped: no answer', 2), ('kept', 7)]

    ```
    """
    if "loaded" not in report:
        return []
    found = [("loaded", int(report["loaded"]))]
    found += [(f"dropped: {reason}".replace("_", " "), int(n)) for reason, n in dict(report["dropped"]).items()]
    others = [(words, int(report.get(name) or 0)) for name, words in _STEPS.items()]
    return [*found, *((words, n) for words, n in others if n), ("kept", int(report["kept"]))]


def _languages(parts: Sequence[Report], language: str | Sequence[str] | None) -> list[str]:
    if language is not None:
        return [language] if isinstance(language, str) else list(language)
    return list(dict.fromkeys(code for part in parts for code in _LANGUAGES.get(str(part.get("name")), ("en",))))


def _categories(tasks: Sequence[str]) -> list[str]:
    categories = ["text-generation"]
    if "choice" in tasks:
        categories.append("multiple-choice")
    if set(tasks) != {"sft"}:
        categories.append("reinforcement-learning")
    return categories


def _summary(report: Report, num_rows: int, example: Mapping[str, Any] | None) -> str:
    if example is not None and not {"prompt", "task", "source"} <= {*example}:
        return f"{num_rows:,} rows of {_code(report.get('name'))}."
    tasks = ", ".join(tasks_of(report, example)) or "mixed"
    kind = {"sft": "supervised rows", "preference": "comparisons of two replies"}.get(
        kind_of(str((example or {}).get("task", ""))), "prompts with golds for reinforcement learning"
    )
    names = ", ".join(_code(part.get("name")) for part in parts_of(report))
    return (
        f"{num_rows:,} {kind} (task: {tasks}) from {names}, in the columns that the trainers of TRL read.\n"
        "Built with `datasets_builders` of trl-ext."
    )


def _columns(example: Mapping[str, Any] | None) -> str:
    if example is None:
        return ""
    names = [name for name in COLUMNS[kind_of(str(example.get("task")))] if name in example]
    names += [name for name in example if name not in names]
    rows = [(f"`{name}`", _COLUMN_TEXTS.get(name, "")) for name in names]
    return "## Columns\n\n" + table(("column", "what it holds"), rows)


def _sources(parts: Sequence[Report], licence: str | None) -> str:
    head = ("source", "Hub id", "configuration", "split", "revision", "licence", "rows")
    rows = []
    for part in parts:
        path = part.get("path")
        link = f"[{path}](https://huggingface.co/datasets/{path})" if path else "made by the builder"
        kept = part.get("kept")
        cells = (part.get("name"), link, part.get("config"), part.get("split"), revision_of(part), part.get("licence"))
        rows.append((*cells, "" if kept is None else f"{kept:,}"))
    text = "## Sources and licences\n\n" + table(head, rows)
    if licence:
        text += f"\n\nThis data set is published under {_code(licence)}."
    elif len(parts) > 1:
        text += "\n\nEach row stays under the licence of its source (column `source`)."
    moving = [str(part.get("name")) for part in parts if _is_moving(part)]
    if moving:
        text += (
            f"\n\nNot pinned by the package: {', '.join(map(_code, moving))}. The table and `report.json` name the "
            "commit that was read, the newest of its day; `revision=` reads it again."
        )
    closed = [str(part.get("name")) for part in parts if _is_noncommercial(part)]
    if closed:
        text += f"\n\n**Not for commercial use:** {', '.join(map(_code, closed))}."
    return text


def _is_moving(part: Report) -> bool:
    """Whether a part was read from the Hub at whatever commit was the newest."""
    return bool(part.get("path")) and not (part.get("local_files") or part.get("revision"))


def revision_of(part: Report) -> str:
    """The commit that a part was read at, or the names of its local files; `""` where neither is known."""
    files = list(part.get("local_files") or ())
    if files:
        return "local files: " + ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    return str(part.get("revision_resolved") or part.get("revision") or "")


def _is_noncommercial(part: Report) -> bool:
    from datasets_builders.checks import forbids_commercial_use

    return forbids_commercial_use(part.get("licence"))


def _counts(report: Report, num_rows: int) -> str:
    rows: list[tuple[object, ...]] = [
        (part.get("name"), words, f"{n:,}") for part in parts_of(report) for words, n in steps(part)
    ]
    rows += [("all", words, f"{n:,}") for words, n in check_steps(report)]
    rows.append(("all", "in this data set", f"{num_rows:,}"))
    return "## Rows at each step\n\n" + table(("source", "step", "rows"), rows)


def check_steps(report: Report) -> list[tuple[str, int]]:
    """Rows that the checks dropped, in the order in which they ran, as (words, number of rows)."""
    found = []
    for result in dict(report.get("checks") or {}).values():
        found += [(words, int(result[name])) for name, words in _DROPPED.items() if name in result]
    return found


def _golds(report: Report) -> str:
    golds = dict(report.get("checks") or {}).get("golds")
    if not golds:
        return ""
    lines = [
        (task, f"{found['rate']:.2%}", f"{found['total']:,}", f"{found['failed']:,}", f"{found['unchecked']:,}")
        for task, found in dict(golds.get("by_task") or {}).items()
    ]
    text = (
        "## Self-check of the golds\n\nEach gold was put as the completion that answers with it and graded by the "
        "reward of its task; for code and instructions the form alone was checked."
    )
    return f"{text}\n\n" + table(
        ("task", "golds that score 1.0", "rows", "failed", "no completion can hold them"), lines
    )


def _decontamination(report: Report) -> str:
    found = dict(report.get("checks") or {}).get("decontamination")
    if not found:
        return "## Decontamination\n\nThis data set was not compared with evaluation sets."
    missing = dict(found.get("unavailable") or {})
    note = f"**Not compared with** {', '.join(map(_code, missing))}: not available." if missing else ""
    if not found.get("by_set"):
        return f"## Decontamination\n\nNo evaluation set could be compared with.\n\n{note}".rstrip()
    rule = f"mode `{found.get('mode')}`, n = {found.get('n')}, coverage {found.get('coverage')}"
    rows = [(name, f"{count:,}") for name, count in dict(found.get("by_set") or {}).items()]
    text = f"## Decontamination\n\nRows dropped for each evaluation set ({rule}; a row may count for several):"
    text += "\n\n" + table(("evaluation set", "rows dropped"), rows)
    return f"{text}\n\n{note}".rstrip()


def _template(report: Report, example: Mapping[str, Any] | None) -> str:
    preset = report.get("instruction")
    tasks = [task for task in tasks_of(report, example) if kind_of(task) == "rl"] or ["math"]
    blocks = []
    for task in tasks:
        text = instruction_text(task, "", preset if isinstance(preset, str) else None)
        turns = [f"[user]\n{_PLACEHOLDER}" + (f"\n\n{text}" if text else "")]
        if report.get("system_prompt"):
            turns.insert(0, f"[system]\n{report['system_prompt']}")
        blocks.append(f"Task `{task}`:\n\n" + fenced("\n\n".join(turns), "text"))
    return f"## Prompt\n\nInstruction {_code(preset or 'none')}.\n\n" + "\n\n".join(blocks)


def _example(example: Mapping[str, Any] | None) -> str:
    if example is None:
        return ""
    text = json.dumps(_shortened(example), indent=2, ensure_ascii=False, default=str)
    return "## Example\n\n" + fenced(text, "json")


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        shown = "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in value)
        return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}... ({len(shown):,} characters)"
    if isinstance(value, Mapping):
        return {str(name): _shortened(item) for name, item in value.items()}
    return [_shortened(item) for item in value] if isinstance(value, (list, tuple)) else value


def _rebuild(report: Report) -> str:
    text = f"## Build it again\n\nSeed {report.get('seed')}."
    if report.get("command"):
        text += "\n\n" + fenced(str(report["command"]), "shell")
    return text + "\n\n`report.json` holds all settings, counts and the hashes of the files."


def _limits(report: Report, parts: Sequence[Report], example: Mapping[str, Any] | None) -> str:
    notes = [f"{_code(part.get('name'))}: {_plain(note)}" for part in parts if (note := _note(part))]
    notes += [_TASK_NOTES[task] for task in tasks_of(report, example) if task in _TASK_NOTES]
    notes += [_plain(warning) for warning in report.get("warnings") or []]
    notes.append("Golds are those of the sources: some are wrong, and the self-check cannot see that.")
    return "## Limits\n\n" + "\n".join(f"- {note}" for note in dict.fromkeys(notes))


def _note(part: Report) -> str:
    name = str(part.get("name"))
    sources = [registry[name] for registry in (BUILDERS, EVALUATION_SETS) if name in registry]
    return sources[0].note if sources else ""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; what stands in a cell cannot end it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(value: object) -> str:
    return "" if value is None else " ".join(str(value).replace("|", "\\|").split())


def _plain(value: object) -> str:
    """Text on one line that Markdown and HTML leave as it is."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(str(value).split()))


def _code(value: object) -> str:
    """Text on one line as code."""
    text = " ".join(str(value).replace("`", "'").split())
    return f"`{text}`"


def fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any run of backticks in the text.

    Example:

    ```python
    >>> print(fenced("a"), fenced("````").splitlines()[0])
    ```
    a
    ``` `````

    ```
    """
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
