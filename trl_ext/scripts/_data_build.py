"""`trl-ext data build`, and what `mix` shares with it: check, instruct, draw, write, publish."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from trl_ext._text import did_you_mean
from trl_ext.errors import UsageError, UserError
from trl_ext.scripts._data_arguments import source_options
from trl_ext.scripts._data_check import decontaminated, gold_facts
from trl_ext.scripts._data_text import say, table

DRY_ROWS = 100
# Flags that say where to write and how much to print.
_NOT_SETTINGS = frozenset(
    "output_dir overwrite push_to_hub repo_id public licence allow_unknown_licence dry_run num_proc config "
    "dataset_name allow_noncommercial".split()
)

Check = tuple[str, Callable[[Any], tuple[Any, Mapping[str, Any]]]]


def build(args: Any) -> int:
    """`trl-ext data build`."""
    from datasets_builders.building import build_with_report, source_of

    source = source_of(args.source)
    refuse_early(args, [source])
    settings = settings_of(args)
    revision = _local_revision(source, args)
    if is_there(args, settings, revision or _hub_revision(args, source)):
        return 0
    options = source_options(args)
    if args.dry_run:
        options["streaming"] = True
    if source.generate is not None:
        options["max_samples"] = args.max_samples
    built = build_with_report(source, **options, num_proc=args.num_proc, **row_options(args))
    dataset = _first_rows(built.dataset, args) if args.dry_run else built.dataset
    dataset, checks = checked(dataset, args, source)
    if source.generate is None and args.max_samples is not None and not args.dry_run:
        dataset = _drawn(dataset, args, checks, built.report)
    return finish(dataset, built.report, args, settings, checks, revision)


def row_options(args: Any) -> dict[str, Any]:
    return {
        "instruction": "none",  # put on after the checks, which are about what the source says
        "seed": args.seed,
        "deduplicate": not args.no_dedup,
        "allow_noncommercial": args.allow_noncommercial,
    }


def refuse_early(args: Any, sources: list[Any]) -> None:
    """Refuse what cannot end well before hours are spent on it."""
    from datasets_builders.export import FORMATS
    from datasets_builders.instructions import check_preset

    if not (args.output_dir or args.dry_run):
        raise UsageError("name a folder with --output_dir, or look first with --dry_run")
    if args.export is not None and args.export not in FORMATS:
        raise UsageError(f"--export {args.export} is none of {', '.join(FORMATS)}{did_you_mean(args.export, FORMATS)}")
    check_preset(args.instruction)
    if args.licence is not None and not args.licence.strip():
        raise UsageError("--licence is blank; name a licence such as cc-by-4.0, or leave it out")
    if args.system_prompt is not None and not args.system_prompt.strip():
        raise UsageError("--system_prompt is empty; leave it out for none")
    if args.max_prompt_tokens and not args.tokenizer:
        raise UsageError("--max_prompt_tokens needs the model that counts them: --tokenizer with a Hub id or folder")
    if args.push_to_hub and not args.dry_run:
        if not args.repo_id:
            raise UsageError("--push_to_hub needs --repo_id user/name")
        from datasets_builders.pushing import check_push

        report = {"parts": [{"name": source.name, "licence": source.licence} for source in sources]}
        check_push(args.repo_id, report, licence=args.licence, allow_unknown_licence=args.allow_unknown_licence)


def settings_of(args: Any) -> dict[str, Any]:
    """What decides the rows, with local files by their names alone: their content is told by its hash."""
    settings = {name: value for name, value in vars(args).items() if name not in _NOT_SETTINGS}
    if settings.get("local_path"):
        settings["local_path"] = file_names(settings["local_path"])
    if settings.get("against"):
        settings["against"] = [file_names([word])[0] if "=" in word else word for word in settings["against"]]
        settings["against_files"] = _hash([word.partition("=")[2] for word in args.against if "=" in word])
    if settings.get("local_paths"):
        settings["local_paths"] = file_names(settings["local_paths"])
    return settings


def _hash(paths: list[str]) -> str | None:
    """A hash of files that are there; what is not there is refused where it is read."""
    from datasets_builders.saving import file_hash

    return file_hash([path for path in paths if Path(path).is_file()]) if paths else None


def file_names(paths: list[str]) -> list[str]:
    found = []
    for path in paths:
        name, mark, file = path.rpartition("=")
        found.append(f"{name}{mark}{Path(file).name}")
    return found


def _local_revision(source: Any, args: Any) -> str | None:
    if not args.local_path:
        return None
    from datasets_builders.loading import local_facts
    from datasets_builders.saving import file_hash

    return file_hash([path for path, *_ in local_facts(source, source_options(args))])


def _hub_revision(args: Any, source: Any) -> str | None:
    """The commit that the Hub has now; only asked for where a finished folder is to be compared with it."""
    from datasets_builders.saving import load_report

    if not args.output_dir or args.overwrite or load_report(args.output_dir) is None:
        return None
    return newest_commit(source, args.revision)


def newest_commit(source: Any, revision: str | None = None) -> str | None:
    """The commit that a build would read now; `None` where the Hub cannot tell it."""
    from huggingface_hub import HfApi

    from datasets_builders.first_read import first_commit
    from datasets_builders.pushing import hub_errors

    if source.path is None:
        return None
    revision = revision or source.revision or (first_commit(source.path) if source.pin_at_first_read else None)
    try:
        found = HfApi().dataset_info(source.path, revision=revision).sha
    except hub_errors():
        return None  # offline: what is there is what there is
    return None if found is None else str(found)


def is_there(args: Any, settings: Mapping[str, Any], revision: str | None) -> bool:
    if args.dry_run:
        return False
    from datasets_builders.saving import finished

    done = finished(args.output_dir, settings, revision, overwrite=args.overwrite)
    if done is None:
        return False
    say(f"already built: {args.output_dir} holds {done.num_rows:,} rows of the same settings and source")
    missing = done.report.get("checks", {}).get("decontamination", {}).get("unavailable", {})
    if missing:
        say(f"it was not compared with {', '.join(missing)}; where they can be loaded now, build it with --overwrite")
    if args.push_to_hub:
        _push(args)
    return True


def _first_rows(dataset: Any, args: Any) -> Any:
    """The first rows of a stream as a table."""
    from datasets import Dataset

    number = min(DRY_ROWS, args.max_samples or DRY_ROWS)
    return Dataset.from_list(list(islice(dataset, number)), features=dataset.features)


def checked(dataset: Any, args: Any, source: Any) -> tuple[Any, dict[str, Any]]:
    """The rows that pass the checks which the call asks for, with their instructions, and what each check counted."""
    found: dict[str, Any] = {}
    for name, check in _checks_of_sources(args):
        dataset, found[name] = check(dataset)
    dataset = _instructed(dataset, args, source)
    for name, check in _checks_of_prompts(args):
        dataset, found[name] = check(dataset)
    return dataset, {name: counts for name, counts in found.items() if counts}


def _checks_of_sources(args: Any) -> Iterator[Check]:
    """What looks at the text of the source: an instruction would make prompts more alike, and all of them English."""
    from datasets_builders import checks

    if args.min_difficulty is not None or args.max_difficulty is not None:
        low = 0.0 if args.min_difficulty is None else args.min_difficulty
        high = 1.0 if args.max_difficulty is None else args.max_difficulty
        yield "difficulty", lambda rows: checks.difficulty(rows, low, high)
    if args.language:
        yield "language", lambda rows: checks.filter_language(rows, args.language)
    if args.near_dedup:
        yield "near_duplicates", lambda rows: checks.deduplicate(rows, near=True)
    yield "decontamination", lambda rows: decontaminated(rows, args)


def _checks_of_prompts(args: Any) -> Iterator[Check]:
    """What looks at the rows as they are trained on."""
    from datasets_builders import checks

    if args.max_prompt_tokens is not None:
        yield "length", lambda rows: checks.filter_length(rows, _tokenizer(args.tokenizer), args.max_prompt_tokens)
    if args.check_golds or args.drop_failing:
        yield "golds", lambda rows: _golds(rows, args)


def _instructed(dataset: Any, args: Any, source: Any) -> Any:
    """The rows as `build` gives them with `instruction` and `system_prompt`."""
    from datasets_builders.converting import code_version, instructed_batch

    if args.instruction == "none" and args.system_prompt is None:
        return dataset
    given = {"instruction": args.instruction, "system_prompt": args.system_prompt, "version": code_version(source)}
    options: dict[str, Any] = {"batched": True, "features": dataset.features, "fn_kwargs": given}
    if hasattr(dataset, "select"):
        options["desc"] = "instructions"
        if args.num_proc is not None:
            options["num_proc"] = max(1, min(args.num_proc, len(dataset)))
    return dataset.map(instructed_batch, **options)


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    if name == "smol":
        from trl_ext import smol

        name = str(smol.model_path())
    return AutoTokenizer.from_pretrained(name)


def _golds(rows: Any, args: Any) -> tuple[Any, dict[str, Any]]:
    from datasets_builders.checks import verify_golds

    if not hasattr(rows, "select"):
        raise UserError("--check_golds needs all rows at once; build the stream, then run `trl-ext data check` on it")
    before = len(rows)
    rows, reports = verify_golds(rows, drop_failing=args.drop_failing)
    return rows, gold_facts(reports) | ({"failing_golds": before - len(rows)} if args.drop_failing else {})


def _drawn(dataset: Any, args: Any, checks: dict[str, Any], report: Any) -> Any:
    """`max_samples` of the rows that passed; the same rows as `build` draws where none was dropped."""
    if hasattr(dataset, "select"):
        number = min(args.max_samples, len(dataset))
        if number < args.max_samples:
            say(f"warning: --max_samples {args.max_samples} asks for more rows than are left, {number}", error=True)
        checks["sample"] = {"drawn": number, "not_drawn": len(dataset) - number}
        return dataset.select(random.Random(args.seed).sample(range(len(dataset)), number))
    from datasets import IterableDataset

    report.warn(f"{report.name}: drawn from a stream through a buffer; rows behind the last one read are not counted")
    checks["sample"] = {"drawn": 0, "not_drawn": 0}
    given = {"dataset": dataset, "seed": args.seed, "number": args.max_samples, "counts": checks["sample"]}
    return IterableDataset.from_generator(_drawn_rows, features=dataset.features, gen_kwargs=given)


def _drawn_rows(dataset: Any, seed: int, number: int, counts: dict[str, int]) -> Iterator[Any]:
    from datasets_builders.streaming import shuffled

    counts["drawn"] = 0
    for row in islice(shuffled(iter(dataset), seed), number):
        counts["drawn"] += 1
        yield row


def finish(
    dataset: Any, report: Any, args: Any, settings: Mapping[str, Any], checks: dict[str, Any], revision: str | None
) -> int:
    from datasets_builders.export import exported
    from datasets_builders.saving import save

    told = _Told(report, checks, args)
    if args.dry_run:
        _print_counts(told.to_dict(), len(dataset))
        say(f"dry run: the first {DRY_ROWS} rows at most; nothing was written")
        return 0
    tasks = _tasks(dataset, report)
    split = args.split if getattr(args, "split", None) in ("test", "validation") else "train"
    saved = save(
        exported(dataset, args.export, split=split) if args.export else dataset,
        told,
        args.output_dir,
        split=split,
        settings=settings,
        config=_config(args),
        source_revision=revision,
        licence=args.licence,
        overwrite=args.overwrite,
    )
    _print_counts(saved.report, saved.num_rows)
    if saved.replaced is not None:
        names = ", ".join(saved.kept[:3]) + (f" and {len(saved.kept) - 3} more" if len(saved.kept) > 3 else "")
        say(f"what no build had written in {args.output_dir} is now in {saved.replaced}: {names}")
    _print_next(args, tasks, split)
    if args.push_to_hub:
        _push(args)
    return 0


class _Told:
    """A build's report together with what was done to its rows here; a stream fills it while it is read."""

    def __init__(self, report: Any, checks: Mapping[str, Any], args: Any) -> None:
        self.report = report
        self.checks: Any = checks
        self.prompt = {"instruction": args.instruction, "system_prompt": args.system_prompt}
        self.call = {"command": _command(args), "languages": args.language}

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        facts = self.report.to_dict() | self.prompt
        if getattr(self.report, "streaming", False) and "sample" in self.checks:
            self._count_not_drawn()
        if "parts" in facts:
            facts["parts"] = [part | self.prompt for part in facts["parts"]]
        return facts | self.call | {"checks": {name: dict(found) for name, found in self.checks.items()}}

    def _count_not_drawn(self) -> None:
        """Of a stream, what was read and neither dropped nor drawn, be it still in a batch or in the buffer."""
        from datasets_builders.card import check_steps

        others = {name: found for name, found in self.checks.items() if name != "sample"}
        dropped = sum(count for _, count in check_steps({"checks": others}))
        sample = self.checks["sample"]
        sample["not_drawn"] = max(0, self.report.kept - dropped - sample["drawn"])


def _command(args: Any) -> str:
    """The call again, for the card: without places on this machine."""
    words = ["trl-ext", "data", "mix" if hasattr(args, "recipe") else "build"]
    named = {name: value for name, value in settings_of(args).items() if name != "against_files"}
    for name in ("source", "parts"):
        value = named.pop(name, None)
        words += [] if not value else [value] if isinstance(value, str) else value
    flags = {"against": "decontaminate"}
    defaults = {"instruction": "boxed", "seed": 42, "mode": "coverage", "n": 8, "coverage": 0.5}
    for name, value in named.items():
        if value in (None, False, []) or defaults.get(name) == value:
            continue
        words.append(f"--{flags.get(name, name)}")
        words += [] if value is True else [str(item) for item in (value if isinstance(value, list) else [value])]
    return shlex.join([*words, "--output_dir", "DIR"])


def _config(args: Any) -> dict[str, Any]:
    """Every setting by its flag, as `--config` reads it again."""
    skipped = {"source", "dataset_name", "config", "dry_run", "against", "parts"}
    config = {name: value for name, value in vars(args).items() if name not in skipped and value not in (None, [])}
    if getattr(args, "source", None):
        config["dataset_name"] = args.source
    if getattr(args, "parts", None):
        config["sources"] = args.parts
    if args.against is not None:
        config["decontaminate"] = args.against
    return config


def _tasks(dataset: Any, report: Any) -> list[str]:
    """The tasks of the rows as far as they are known without reading a stream."""
    if hasattr(dataset, "unique") and "task" in (dataset.column_names or []):
        return list(dataset.unique("task"))
    return [part.task for part in getattr(report, "parts", [report])]


def _print_counts(report: Mapping[str, Any], num_rows: int) -> None:
    from datasets_builders.card import check_steps, parts_of, steps

    lines: list[tuple[object, ...]] = []
    for part in parts_of(report):
        lines += [(part.get("name"), words, f"{count:,}") for words, count in steps(part)]
    lines += [("", words, f"{count:,}") for words, count in check_steps(report)]
    say(table(("source", "step", "rows"), [*lines, ("", "in the data set", f"{num_rows:,}")], numbers=(2,)))
    golds = dict(report.get("checks") or {}).get("golds", {})
    for task, found in golds.get("by_task", {}).items():
        say(f"golds of {task}: {found['rate']:.2%} score 1.0 ({_gold_words(found)})")
    for warning in report.get("warnings") or []:
        say(f"warning: {warning}", error=True)


def _gold_words(found: Mapping[str, Any]) -> str:
    words = f"{found['failed']} of {found['total']} fail"
    return words + (f", {found['unchecked']} cannot be put as an answer" if found["unchecked"] else "")


def _print_next(args: Any, tasks: list[str], split: str) -> None:
    folder = shlex.quote(str(args.output_dir))
    if args.export:
        say(f"\nwritten to {args.output_dir} in the columns of {args.export}")
        return
    say(f"\nwritten to {args.output_dir}; next:\n  trl-ext data inspect {folder} -n 3")
    say(f"  {_training_line(folder, tasks, split)}")


def _training_line(folder: str, tasks: list[str], split: str) -> str:
    data = f"--dataset_name {folder}" + ("" if split == "train" else f" --dataset_train_split {split}")
    if "preference" in tasks:
        return f"trl dpo --model_name_or_path MODEL {data} --output_dir OUT"
    if "sft" in tasks:
        return f"trl sft --model_name_or_path MODEL {data} --output_dir OUT"
    rewards = " ".join(map(_reward_of, tasks))
    return f"trl-ext grpo --model MODEL {data} --reward_funcs {rewards} --output_dir OUT"


def _reward_of(task: str) -> str:
    """The reward that grades a task, a word in its place where there is none."""
    import reward_funcs

    name = {"math": "accuracy_reward"}.get(task, f"{task}_reward")
    return name if name in reward_funcs.__all__ else "YOUR_REWARD"


def _push(args: Any) -> None:
    from datasets_builders.pushing import push_folder

    address = push_folder(
        args.output_dir,
        args.repo_id,
        private=not args.public,
        allow_unknown_licence=args.allow_unknown_licence,
    )
    say(f"published: {address} ({'public' if args.public else 'private'})")
