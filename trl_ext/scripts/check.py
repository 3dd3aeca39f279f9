"""`trl-ext check`: which golds of a data set a reward does not accept, before training and without a model."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from trl_ext._text import did_you_mean
from trl_ext.cli import DEBUG_VARIABLE
from trl_ext.errors import UsageError, UserError

_DESCRIPTION = """\
Put every gold of a data set as the completion that answers with it, and grade that: a gold that does not score 1.0
against itself can never be rewarded. Exit status 1 when the rate is below the threshold, 2 after an error.
"""
_EXAMPLE = "example: trl-ext check accuracy_reward --dataset HuggingFaceH4/MATH-500 --split test --column answer"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line instead of the usage and a line."""
        prefix = "unrecognized arguments: "
        if message.startswith(prefix):
            flag = message.removeprefix(prefix).split()[0].split("=")[0]
            options = [option for action in self._actions for option in action.option_strings]
            message = f"unknown argument {flag}{did_you_mean(flag, options)}"
        raise UsageError(message)


def main(argv: list[str]) -> int:
    """Check the golds and print the report.

    Args:
        argv (`list[str]`): arguments after the command name.

    Returns:
        0, or 1 when fewer golds than the threshold score 1.0.

    Raises:
        UsageError: For a wrong call, and for a reward, data or a column that is not there: status 2, so that scripts
            can tell it from golds that fail.
    """
    args = _arguments(argv)
    try:
        return _checked(args)
    except UserError as error:
        raise UsageError(str(error)) from error
    except (ValueError, OSError) as error:
        raise UsageError(f"{error} ({DEBUG_VARIABLE}=1 shows where)") from error


def _checked(args: argparse.Namespace) -> int:
    if not args.dataset.strip():
        raise UserError("--dataset needs a Hub id, a folder, or a .json, .jsonl, .parquet or .csv file")
    _refuse_unwritable(args.json)
    from trl_ext.scripts._training import load_data, load_reward, pick_split

    reward = load_reward(args.reward)
    where = SimpleNamespace(
        dataset_name=args.dataset,
        dataset_config=args.config,
        dataset_train_split=args.split,
        dataset_streaming=args.streaming,
    )
    rows = pick_split(load_data(where), args.split)
    report = _report(rows, reward, args)
    _print(report.text(rows=args.rows))
    if args.json:
        _write(Path(args.json), args, report)
    if report.rate < args.threshold:
        _print(f"below the threshold {args.threshold:g}")
        return 1
    return 0


def _refuse_unwritable(file: str | None) -> None:
    """Refuse a place for the report before any work is done for it."""
    if file is None:
        return
    folder = Path(file).absolute().parent
    if Path(file).is_dir():
        raise UserError(f"--json {file} is a folder; name a file")
    if not folder.is_dir():
        raise UserError(f"--json {file}: there is no folder {folder}")
    if not os.access(Path(file) if Path(file).exists() else folder, os.W_OK):
        raise UserError(f"--json {file} cannot be written")


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="trl-ext check",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "reward", metavar="REWARD", help="a name of reward_funcs or trl.rewards, or any module.function"
    )
    parser.add_argument(
        "--dataset", required=True, metavar="D", help="Hub id, folder, or a .json, .jsonl, .parquet or .csv file"
    )
    parser.add_argument("--split", default="train", help="split of the data (train)")
    parser.add_argument("--config", metavar="NAME", help="configuration of a Hub data set")
    parser.add_argument("--column", metavar="NAME", help="column of the golds (the one that the reward reads)")
    parser.add_argument("--max_rows", type=_number(int, 1), metavar="N", help="look at the first N rows")
    parser.add_argument("--streaming", action="store_true", help="do not download more of a Hub data set than is read")
    parser.add_argument(
        "--threshold", type=_number(float, 0, 1), default=0.99, metavar="X", help="lowest rate that is enough (0.99)"
    )
    parser.add_argument("--rows", type=_number(int, 0), default=10, metavar="N", help="failing rows to print (10)")
    parser.add_argument("--json", metavar="FILE", help="write the whole report to FILE")
    return parser.parse_args(argv)


def _number(kind: type, low: float, high: float = math.inf) -> Callable[[str], float]:
    """What argparse calls to read a number within bounds."""
    bounds = f"of at least {low}" if math.isinf(high) else f"between {low} and {high}"

    def read(text: str) -> float:
        try:
            number: float = kind(text)
        except ValueError:
            number = _whole(text) if kind is int else math.nan
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text} is no {'whole ' * (kind is int)}number {bounds}")
        return number

    return read


def _whole(text: str) -> float:
    """A whole number that is written as 1e3 or 8.0, which YAML files do; NaN for anything else."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return int(number) if number.is_integer() else math.nan


def _report(rows: Any, reward: Any, args: argparse.Namespace) -> Any:
    from reward_funcs.check import NoGolds, check_golds, gold_column, puzzle_columns, shown

    columns = getattr(rows, "column_names", None)  # not known of every streamed data set
    column = args.column or gold_column(reward)
    puzzle = puzzle_columns(reward)
    if columns is not None and column not in columns and not (puzzle and {*puzzle} <= {*columns}):
        known = ", ".join(shown(name) for name in columns)
        raise UserError(f"the data has no column {column!r}; name that of the golds with --column: {known}")
    if hasattr(rows, "__len__") and not len(rows):
        raise UserError(f"{args.dataset} holds no rows in the split {args.split!r}")
    try:
        return check_golds(rows, reward, solution_column=args.column, max_rows=args.max_rows)
    except NoGolds as error:
        raise UserError(str(error)) from error
    finally:
        close = getattr(reward, "close", None)
        if callable(close):
            close()


def _print(text: str) -> None:
    """Print, also where the terminal's encoding lacks a character of the data."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _write(path: Path, args: argparse.Namespace, report: Any) -> None:
    data = {
        "reward": args.reward,
        "dataset": args.dataset,
        "config": args.config,
        "split": args.split,
        "rate": report.rate,
        "total": report.total,
        "unchecked": report.unchecked,
        "causes": dict(report.causes.most_common()),
        "failures": [vars(failure) for failure in report.failures],
    }
    path.write_text(json.dumps(data, indent=2, default=str) + "\n", encoding="utf-8")
