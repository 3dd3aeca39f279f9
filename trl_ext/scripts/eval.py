"""`trl-ext eval`: pass@k, cons@k and response length of a model. Also `accelerate launch -m trl_ext.scripts.eval`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from trl_ext.errors import UserError

# Processes wait for the slowest one, and for the first one's grading: a group that gives up would lose both.
_PATIENCE_DAYS = 14


def main(argv: list[str]) -> int:
    """Evaluate a model, or compare two evaluations.

    Args:
        argv (`list[str]`): arguments after the command name.

    Returns:
        0 when the report is written.

    Raises:
        UsageError: For an unknown flag or flags that do not fit together.
        UserError: For what cannot be evaluated, in one sentence.
    """
    from trl_ext.scripts._eval_arguments import arguments

    args = arguments(argv)
    if args.compare:
        return _compare(args)
    from trl_ext.evaluation._runner_world import ElsewhereError
    from trl_ext.scripts.data import _is_told

    try:
        return _evaluate(args, argv)
    except ElsewhereError:
        return 1  # the first process says it
    except UserError:
        raise
    except ValueError as error:
        if type(error).__module__.startswith("datasets_builders") or _is_told(error):
            raise UserError(str(error)) from error
        raise
    except RuntimeError as error:
        if type(error).__name__ == "OutOfMemoryError":
            raise UserError(
                f"the device has no memory left for --batch_size {args.batch_size}; give a smaller one, with "
                "--overwrite or another --output_dir, since the batches decide the rounding and so the completions"
            ) from error
        raise
    finally:
        _leave_group()


def _compare(args: Any) -> int:
    from trl_ext.evaluation.comparison import compare_runs
    from trl_ext.scripts._data_text import say

    say(compare_runs(*args.compare).text())
    return 0


def _evaluate(args: Any, argv: list[str]) -> int:
    from trl_ext.scripts._training import command_line, quiet_libraries

    quiet_libraries()
    world = _join_group()
    error: ValueError | OSError | None = None
    job: dict[str, Any] = {}
    try:
        job = _job(args)
    except (ValueError, OSError) as refused:
        error = refused
    world.agree(error)  # every process finds the same mistake, and one says it
    if error is not None:
        raise error
    if args.dry_run:
        if world.is_first:
            _show_plan(args, job)
        return 0
    from trl_ext.evaluation._runner_url import shown_url
    from trl_ext.evaluation.runner import evaluate_model
    from trl_ext.scripts._eval_model import open_model, pin

    job["weights"] = _shared_weights(args, world)
    pin(args, job["weights"])
    report = evaluate_model(
        lambda: open_model(args),
        job.pop("sets"),
        command=command_line("eval", [shown_url(word) for word in argv]),
        batch_size=args.batch_size,
        overwrite=args.overwrite,
        **job,
    )
    if report is not None:
        _finish(report, args)
    return 0


def _shared_weights(args: Any, world: Any) -> dict[str, str]:
    """What tells the weights from others, as the first process finds it: all processes load the same."""
    from trl_ext.scripts._eval_model import weights

    error: Exception | None = None
    found: dict[str, str] = {}
    if world.is_first:
        try:
            found = weights(args)
        except (ValueError, OSError) as refused:
            error = refused
    world.agree(error)
    shared: dict[str, str] = world.shared(found)
    return shared


def _job(args: Any) -> dict[str, Any]:
    """Arguments of the evaluation, all checked, without the model."""
    from trl_ext.evaluation.requests import SamplingParams
    from trl_ext.evaluation.runner import check_arguments, check_sampling
    from trl_ext.scripts._eval_model import check_model, default_folder
    from trl_ext.scripts._eval_rows import load_rows
    from trl_ext.scripts._training import load_reward

    params = SamplingParams(args.temperature, args.top_p, args.top_k, args.max_new_tokens, args.seed)
    check_sampling(num_samples=args.num_samples, ks=args.k, params=params)
    _refuse_card(args.model_card)
    check_model(args)
    folder = args.output_dir or default_folder(args)
    if Path(folder).exists() and not Path(folder).is_dir():
        raise UserError(f"--output_dir {folder} is a file; name a folder")
    reward = load_reward(args.reward) if args.reward else None
    best_of_reward = load_reward(args.best_of_reward) if args.best_of_reward else None
    sets, data = load_rows(args)
    settings = {"num_samples": args.num_samples, "ks": args.k, "params": params, "truncated": args.truncated}
    check_arguments(sets, **settings, reward=reward)
    more = {"reward": reward, "best_of_reward": best_of_reward, "data": data}
    return {"sets": sets, "output_dir": folder, **settings, **more}


def _refuse_card(card: str | None) -> None:
    """Refuse a place for the figures before hours of work."""
    if card is not None and not Path(card).absolute().parent.is_dir():
        raise UserError(f"--model_card {card}: there is no folder {Path(card).absolute().parent}")
    if card is not None:
        from trl_ext.hub import check_card

        check_card(card)


def _show_plan(args: Any, job: dict[str, Any]) -> None:
    from trl_ext.evaluation.runner import fingerprint, planned
    from trl_ext.scripts._data_text import indented, say, shortened, table

    sets = job["sets"]
    batches = planned(sets, num_samples=args.num_samples, params=job["params"], batch_size=args.batch_size)
    counts = {name: sum(batch.benchmark == name for batch in batches) for name in sets}
    rows = [(name, len(own), len(own) * args.num_samples, counts[name], fingerprint(own)) for name, own in sets.items()]
    say(table(("benchmark", "problems", "completions", "batches", "fingerprint"), rows, numbers=(1, 2, 3)))
    for name, own in sets.items():
        prompt = own[0]["prompt"]
        text = prompt if isinstance(prompt, str) else "\n".join(f"{m['role']}: {m['content']}" for m in prompt)
        say(f"\nfirst prompt of {name} (gold {shortened(str(own[0]['solution']), 80)}):\n{indented(shortened(text))}")
    say(f"\nwould be written to {job['output_dir']}; nothing was loaded or written")


def _finish(report: Any, args: Any) -> None:
    """Print the figures, and put them into the model card that was named."""
    from trl_ext.evaluation._report_markdown import long_rows, notes, settings_sentence, subject
    from trl_ext.scripts._data_text import say, table

    head, *rows = long_rows(report.results)
    say(f"{subject(report.results)}: {settings_sentence(report.results)}\n")
    say(table(head, rows, numbers=range(2, len(head))))
    say("\n".join(["", *notes(report.results)]))
    say(f"Saved: results.json, results.md, problems.jsonl and model-index.yaml in {report.output_dir}")
    if args.model_card:
        from trl_ext.hub import add_eval_results

        say(f"The figures are in {add_eval_results(args.model_card, report.eval_results())}")


def _join_group() -> Any:
    """The processes that a launcher started; gloo, since all they do together is wait."""
    from trl_ext.evaluation._runner_world import current_world

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from datetime import timedelta

        import torch

        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo", timeout=timedelta(days=_PATIENCE_DAYS))
    return current_world()


def _leave_group() -> None:
    from trl_ext.evaluation._runner_world import current_world

    if current_world().size > 1:
        import torch

        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    from trl_ext.cli import main as cli_main

    sys.exit(cli_main(["eval", *sys.argv[1:]]))
