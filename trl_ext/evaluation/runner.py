"""An evaluation that can be killed at any moment: generate batch by batch, grade, and write the report."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trl_ext import __version__
from trl_ext._text import did_you_mean
from trl_ext.errors import UserError
from trl_ext.evaluation._runner_progress import Progress
from trl_ext.evaluation._runner_url import shown_url
from trl_ext.evaluation._runner_world import World, current_world
from trl_ext.evaluation.grading import (
    TRUNCATED_RULES,
    Graded,
    check_golds,
    grade,
    judged_groups,
    task_of,
    without_bad_golds,
)
from trl_ext.evaluation.records import (
    FolderLock,
    Record,
    RecordWriter,
    SampleName,
    prepare_folder,
    read_records,
    refuse_foreign,
)
from trl_ext.evaluation.report import Problem, Report, results_of
from trl_ext.evaluation.requests import (
    DEFAULT_BATCH_SIZE,
    Completion,
    Generator,
    Request,
    SamplingParams,
    build_requests,
    plan_batches,
    problem_keys,
    template_arguments,
)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """Requests that are generated together.

    Args:
        benchmark (`str`): name of the set.
        number (`int`): place in the plan of the benchmark.
        requests (`list[Request]`): what is asked.
        samples (`list[tuple[str, int]]`): key of the problem and number of the sample of each request.
    """

    benchmark: str
    number: int
    requests: list[Request]
    samples: list[tuple[str, int]]


@dataclass(frozen=True)
class _Grading:
    """How completions become verdicts."""

    reward: Callable[..., Any] | None
    best_of_reward: Callable[..., Any] | None
    truncated: str


def evaluate_model(
    generator: Generator | Callable[[], Generator],
    benchmarks: Mapping[str, Sequence[Row]],
    output_dir: str | Path,
    *,
    num_samples: int = 1,
    ks: Sequence[int] = (1,),
    params: SamplingParams | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
    reward: Callable[..., Any] | None = None,
    best_of_reward: Callable[..., Any] | None = None,
    truncated: str = "grade",
    data: Mapping[str, Mapping[str, Any]] | None = None,
    weights: Mapping[str, Any] | None = None,
    command: str | None = None,
    overwrite: bool = False,
    show_progress: bool = True,
) -> Report | None:
    """Generate, grade and report; what an earlier call of the same request has generated is taken as it is.

    Every batch is on the disk before the next begins, so that a kill at any moment costs the batch in flight alone. The
    completions, and with them all figures, are the same as those of an uninterrupted run, and the same for any number
    of processes, as far as the generator gives equal completions for equal batches. Where a process group of torch is
    there, the batches are divided over its processes; all of them call this function.

    Args:
        generator (`Generator`): what makes completions, or a function without arguments that makes it; the arguments
            are checked before that is called.
        benchmarks (`Mapping[str, Sequence[Mapping]]`): rows of each set by its name, with `prompt`, `solution` and,
            unless it is maths, `task`.
        output_dir (`str` or `Path`): folder of completions and report; one request has one folder.
        num_samples (`int`): completions of each problem.
        ks (`Sequence[int]`): values of k of pass@k and cons@k, none above `num_samples`; pass@1 is always there.
        params (`SamplingParams`, *optional*): temperature and the like, with the seed; greedy by default.
        batch_size (`int`): completions made together. It belongs to the request: padding changes rounding.
        reward (`Callable`, *optional*): grades all rows in the place of their task's reward.
        best_of_reward (`Callable`, *optional*): chooses the sample of best_of@k.
        truncated (`str`): `"grade"` grades completions that were cut as they stand, `"wrong"` counts them as wrong.
        data (`Mapping`, *optional*): what is known of each set's origin, for the report: `path`, `split`, `revision`.
        weights (`Mapping`, *optional*): JSON that changes with the weights, so that those of a later checkpoint in the
            same place are not taken for the earlier ones.
        command (`str`, *optional*): the command line, for the report.
        overwrite (`bool`): remove an earlier evaluation from the folder first.
        show_progress (`bool`): print how far it is to standard error.

    Returns:
        `Report`: figures and problems, which are written to `output_dir` as well; `None` in all processes but the
        first.

    Raises:
        UserError: For arguments that do not fit together, rows that cannot be graded, a folder of another request, and
            records that cannot be read.
    """
    params = params or SamplingParams()
    sets = {name: list(rows) for name, rows in benchmarks.items()}
    grading = _Grading(reward, best_of_reward, truncated)
    check_arguments(sets, num_samples=num_samples, ks=ks, params=params, truncated=truncated, reward=reward)
    batches = planned(sets, num_samples=num_samples, params=params, batch_size=batch_size)
    folder, world = Path(output_dir), current_world()
    with _locked(folder, world):
        made = _made(generator)
        request = {
            **_described(made),
            "weights": dict(weights) if weights else None,
            "sampling": asdict(params),
            "num_samples": num_samples,
            "batch_size": batch_size,
            "benchmarks": {
                n: {"num_problems": len(rows), "fingerprint": fingerprint(rows)} for n, rows in sets.items()
            },
        }
        there = _prepare(folder, request, batches, overwrite, world)
        graded = _generate(made, batches, sets, there, folder, params, grading, world, show_progress)
        if not world.is_first:
            return None
        problems = _problems(sets, _all_records(folder, batches), graded, grading, num_samples)
        names = {"reward": _name(reward), "best_of_reward": _name(best_of_reward)}
        facts = {**request, "ks": sorted(set(ks)), "truncated": truncated, **names, "command": command}
        report = Report(folder, results_of(problems, ks, facts, data or {}), problems)
        report.write()
        return report


@contextmanager
def _locked(folder: Path, world: World) -> Iterator[None]:
    """The folder held by the first process, from before a model is loaded for it until the report is written."""
    lock: FolderLock | None = None
    error: UserError | None = None
    if world.is_first:
        try:
            lock = _lock(folder)
        except UserError as refused:
            error = refused
    world.agree(error)
    with lock or nullcontext():
        yield


def _lock(folder: Path) -> FolderLock:
    lock = FolderLock(folder)
    try:
        refuse_foreign(folder)
    except UserError:
        lock.release()
        raise
    return lock


def _made(generator: Generator | Callable[[], Generator]) -> Generator:
    made: Any = generator
    found: Generator = made if hasattr(made, "generate") else made()
    return found


def check_arguments(
    benchmarks: Mapping[str, Sequence[Row]],
    *,
    num_samples: int,
    ks: Sequence[int],
    params: SamplingParams,
    truncated: str = "grade",
    reward: Callable[..., Any] | None = None,
) -> None:
    """Refuse what cannot be evaluated, before a model is loaded for it.

    Raises:
        UserError: With the argument, its value and the remedy.
    """
    check_sampling(num_samples=num_samples, ks=ks, params=params)
    if truncated not in TRUNCATED_RULES:
        hint = did_you_mean(truncated, TRUNCATED_RULES)
        raise UserError(f"truncated={truncated!r} is none of {', '.join(TRUNCATED_RULES)}{hint}")
    if not benchmarks:
        raise UserError("benchmarks is empty; name at least one set of rows")
    for name, rows in benchmarks.items():
        if not rows:
            raise UserError(f"benchmarks: {name!r} holds no rows; give at least one problem")
        for index, row in enumerate(rows):
            _check_row(row, f"benchmarks: row {index} of {name!r}")
        if reward is None:
            check_golds(rows, lambda index, name=name: f"benchmarks: row {index} of {name!r}")  # type: ignore[misc]


def _check_row(row: Row, where: str) -> None:
    """Refuse a task that is no name, and turns that no chat template of text can show."""
    if not isinstance(row.get("task"), str | None):
        raise UserError(
            f"{where} has the task {row['task']!r:.60}, which is no text; give the name of a task in the column "
            "'task', such as math"
        )
    prompt = row.get("prompt")
    for number, turn in enumerate(prompt if isinstance(prompt, (list, tuple)) else []):
        if isinstance(turn, Mapping) and not isinstance(turn.get("content"), str) and not turn.get("tool_calls"):
            raise UserError(
                f"{where}: turn {number} of its prompt has the content {turn.get('content')!r:.60}, which is no text; "
                "give every turn a text as 'content'"
            )


def check_sampling(*, num_samples: int, ks: Sequence[int], params: SamplingParams) -> None:
    """Refuse numbers of samples that do not fit together.

    Raises:
        UserError: With the argument, its value and the remedy.
    """
    if isinstance(num_samples, bool) or not isinstance(num_samples, int) or num_samples < 1:
        raise UserError(f"num_samples={num_samples!r} must be a whole number of at least 1")
    if num_samples > 1 and params.is_greedy:
        raise UserError(
            f"num_samples={num_samples} with temperature=0 gives {num_samples} times the same completion; give a "
            "temperature above 0 (0.6 is usual), or num_samples=1"
        )
    for k in ks:
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise UserError(f"k={k!r} must be a whole number of at least 1")
        if k > num_samples:
            raise UserError(
                f"k={k} needs at least {k} samples a problem, and num_samples is {num_samples}; raise num_samples or "
                "leave that k out"
            )


def planned(
    benchmarks: Mapping[str, Sequence[Row]], *, num_samples: int, params: SamplingParams, batch_size: int
) -> list[Batch]:
    """All batches, benchmark by benchmark; the plan depends on the rows and these settings alone."""
    batches = []
    for name, rows in benchmarks.items():
        requests = build_requests(rows, num_samples=num_samples, seed=params.seed)
        for number, batch in enumerate(plan_batches(requests, batch_size)):
            parts = [request.key.rpartition(":") for request in batch]
            batches.append(Batch(name, number, batch, [(key, int(sample)) for key, _, sample in parts]))
    return batches


def fingerprint(rows: Sequence[Row]) -> str:
    """A hash of prompts, golds and tasks: two sets with the same one are the same problems in the same order."""
    return _hash(_identity(row) for row in rows)


def _identity(row: Row) -> list[Any]:
    template = template_arguments(row)
    own = [row.get("prompt"), row.get("solution"), task_of(row), row.get("extra")]
    return own if template is None else [*own, template]


def _hash(values: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for value in values:
        digest.update(json.dumps(value, sort_keys=True, default=str).encode("ascii"))
        digest.update(b"\n")
    return f"sha256:{digest.hexdigest()[:16]}"


def _described(generator: Generator) -> dict[str, Any]:
    """What made the completions, where, and with which versions."""
    described = dict(generator.describe())
    versions = dict(described.pop("versions", None) or {})
    url = described.pop("url", None)
    return {
        "server_url": None if url is None else shown_url(str(url)),
        "generator": described,
        "versions": {**versions, "trl-ext": __version__, "python": platform.python_version()},
    }


def _name(reward: Callable[..., Any] | None) -> str | None:
    return None if reward is None else str(getattr(reward, "__name__", type(reward).__name__))


def _prepare(
    folder: Path, request: dict[str, Any], batches: Sequence[Batch], overwrite: bool, world: World
) -> dict[SampleName, Record]:
    """The folder made ready by the first process, and the records that are in it."""
    error: UserError | None = None
    if world.is_first:
        try:
            for change in prepare_folder(folder, request, overwrite=overwrite):
                print(f"The completions that are there were made otherwise: {change}.", flush=True)
            _read(folder, batches)
        except UserError as refused:
            error = refused
    world.agree(error)
    there = _read(folder, batches)
    world.barrier()  # what all have read is the same only while none has written yet
    return there


def _read(folder: Path, batches: Sequence[Batch]) -> dict[SampleName, Record]:
    return read_records(folder, {(b.benchmark, b.number): frozenset(b.samples) for b in batches})


def _all_records(folder: Path, batches: Sequence[Batch]) -> dict[SampleName, Record]:
    """The records of every batch, none of which may be missing now."""
    records = _read(folder, batches)
    lost = sum((batch.benchmark, *sample) not in records for batch in batches for sample in batch.samples)
    if lost:
        raise UserError(
            f"{lost} completions that were written are no longer in {folder}: something else has changed its files; "
            "run the evaluation again, which makes them anew"
        )
    return records


def _generate(
    generator: Generator,
    batches: Sequence[Batch],
    sets: Mapping[str, Sequence[Row]],
    there: Mapping[SampleName, Record],
    folder: Path,
    params: SamplingParams,
    grading: _Grading,
    world: World,
    show_progress: bool,
) -> dict[SampleName, Graded]:
    """Make the batches that are not there, those of this process; verdicts as far as the progress needed them."""
    open_batches = [b for b in batches if (b.benchmark, *b.samples[0]) not in there][world.rank :: world.size]
    graded: dict[SampleName, Graded] = {}
    if not open_batches:
        world.barrier()
        return graded
    mine = sum(len(batch.requests) for batch in open_batches)
    done = len(there) if world.is_first else 0
    label = f"eval (process 1 of {world.size})" if world.size > 1 else "eval"
    progress = Progress(mine + done, done, is_shown=show_progress and world.is_first, name=label)
    rows = _rows_by_key(sets)
    # the others leave grading to the first; another reward may compare all samples of a problem
    is_graded = world.is_first and grading.reward is None
    try:
        with RecordWriter(folder, world.rank) as writer:
            if is_graded:
                _grade_into(graded, list(there.values()), rows, grading, progress)
            for batch in open_batches:
                records = _completed(batch, _completions(generator, batch, params, sets))
                writer.append(records)
                if is_graded:
                    _grade_into(graded, records, rows, grading, progress)
                progress.advance(len(records), sum(record.num_tokens for record in records))
    finally:
        progress.close()
    world.barrier()
    return graded


def _completions(
    generator: Generator, batch: Batch, params: SamplingParams, sets: Mapping[str, Sequence[Row]]
) -> list[Completion]:
    """What the generator makes; its complaint about a request says which row that is, since a key may be a hash."""
    try:
        return generator.generate(batch.requests, params)
    except UserError as error:
        text, keys = str(error), problem_keys(sets[batch.benchmark])
        for request, (key, _) in zip(batch.requests, batch.samples, strict=True):
            name = f"request {request.key}"
            if re.search(rf"{re.escape(name)}(?!\d)", text):
                where = f"row {keys.index(key)} of {batch.benchmark} ({name})"
                raise type(error)(text.replace(name, where)) from error
        raise


def _completed(batch: Batch, completions: Sequence[Completion]) -> list[Record]:
    return [
        Record(batch.benchmark, batch.number, *sample, made.text, made.num_tokens, made.is_truncated)
        for sample, made in zip(batch.samples, completions, strict=True)
    ]


def _rows_by_key(sets: Mapping[str, Sequence[Row]]) -> dict[tuple[str, str], Row]:
    return {(name, key): row for name, rows in sets.items() for key, row in zip(problem_keys(rows), rows, strict=True)}


def _grade_into(
    graded: dict[SampleName, Graded],
    records: Sequence[Record],
    rows: Mapping[tuple[str, str], Row],
    grading: _Grading,
    progress: Progress | None = None,
) -> None:
    """Grade records in one call, and keep each verdict under the name of its sample."""
    verdicts = grade(
        [rows[record.benchmark, record.key] for record in records],
        [[record.text] for record in records],
        is_truncated=[[record.is_truncated] for record in records],
        truncated=grading.truncated,
    )
    for record, (verdict,) in zip(records, verdicts, strict=True):
        graded[record.name] = verdict
    if progress is not None:
        progress.judge(verdict.is_correct for (verdict,) in verdicts)


def _problems(
    sets: Mapping[str, Sequence[Row]],
    records: Mapping[SampleName, Record],
    graded: dict[SampleName, Graded],
    grading: _Grading,
    num_samples: int,
) -> list[Problem]:
    """Every problem with its verdicts; of the graded ones, those that were graded before are not graded again."""
    by_key = _rows_by_key(sets)
    if grading.reward is None:
        _grade_into(graded, [record for name, record in records.items() if name not in graded], by_key, grading)
    problems = []
    for benchmark, rows in sets.items():
        keys = problem_keys(rows)
        samples = [[records[benchmark, key, number] for number in range(num_samples)] for key in keys]
        texts = [[record.text for record in own] for own in samples]
        cuts = [[record.is_truncated for record in own] for own in samples]
        if grading.reward is None:
            # graded as they were made, some of a problem in another call
            verdicts = [without_bad_golds([graded[record.name] for record in own]) for own in samples]
        else:
            verdicts = grade(rows, texts, reward=grading.reward, is_truncated=cuts, truncated=grading.truncated)
        chosen: list[Any] = [None] * len(rows)
        if grading.best_of_reward is not None:
            chosen = grade(rows, texts, reward=grading.best_of_reward)
        for key, row, own, its, best in zip(keys, rows, samples, verdicts, chosen, strict=True):
            problems.append(_problem(benchmark, key, row, own, its, best))
    return problems


def _problem(
    benchmark: str,
    key: str,
    row: Row,
    records: Sequence[Record],
    verdicts: Sequence[Graded],
    chosen: Sequence[Graded] | None,
) -> Problem:
    task, answers = task_of(row), [verdict.answer for verdict in verdicts]
    prompt, correct = row["prompt"], [verdict.is_correct for verdict in verdicts]
    return Problem(
        benchmark=benchmark,
        key=key,
        task=task,
        prompt=prompt if isinstance(prompt, str) else str(prompt[-1].get("content")),
        solution=str(row.get("solution", "")),
        answers=answers,
        scores=[verdict.score for verdict in verdicts],
        correct=correct,
        num_tokens=[record.num_tokens for record in records],
        truncated=[record.is_truncated for record in records],
        groups=judged_groups(answers, correct, task),
        best_of_scores=None if chosen is None else [verdict.score for verdict in chosen],
        prompt_hash=_hash([prompt]),
    )
