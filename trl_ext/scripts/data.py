"""`trl-ext data`: build, look at, check and mix data sets for training."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from trl_ext._text import did_you_mean
from trl_ext.errors import UsageError, UserError

COMMANDS = {
    "list": "Show the sources and evaluation sets there are",
    "build": "Build a source: convert, remove duplicates, decontaminate, check, write, publish",
    "inspect": "Show rows as the source has them, as they are built, and what their reward says",
    "check": "Check a built folder or a source; exit status 1 when something is wrong",
    "mix": "Build a mixture of sources, by number of rows, share or recipe",
    "decontaminate": "Remove from a data set what stands in evaluation sets",
}
_EXAMPLES = """\
examples:
  trl-ext data build gsm8k --output_dir data/gsm8k
  trl-ext data inspect data/gsm8k -n 3
  trl-ext data mix gsm8k=2000 hendrycks_math=3000 --output_dir data/maths
  trl-ext data mix --recipe olmo3-think --dry_run
"""


def main(argv: list[str]) -> int:
    """Run one of the commands.

    Args:
        argv (`list[str]`): arguments after `data`.

    Returns:
        Exit status: 1 when a check fails.

    Raises:
        UsageError: For a call without a command, or with an unknown one or an unknown flag.
        UserError: For what the command cannot do, in one sentence.
    """
    if argv and argv[0] in ("--help", "-h"):
        print(_usage(), end="")
        return 0
    if not argv or argv[0] not in COMMANDS:
        known = f"the commands are {', '.join(COMMANDS)}"
        if not argv:
            raise UsageError(f"name a command of `trl-ext data`; {known}")
        raise UsageError(f"unknown command {argv[0]!r}{did_you_mean(argv[0], COMMANDS) or f'; {known}'}")
    from trl_ext.scripts._data_arguments import arguments

    args = arguments(argv[0], argv[1:])
    try:
        return _command(argv[0])(args)
    except UserError:
        raise
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ValueError as error:
        if type(error).__module__.startswith("datasets_builders") or _is_told(error):
            raise UserError(str(error)) from error
        raise


def _is_told(error: ValueError) -> bool:
    """Whether the builders raised it themselves, with a sentence that needs no traceback."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return type(error) is ValueError and module.split(".")[0] in ("datasets_builders", "reward_funcs")


def _usage() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    return (
        "usage: trl-ext data COMMAND ...\n\nData sets for training: from their source on the Hub or from local files "
        "to rows of one schema.\n\n"
        f"commands:\n{commands}\n\n{_EXAMPLES}\n`trl-ext data COMMAND --help` shows the options of a command.\n"
    )


def _command(name: str) -> Callable[..., int]:
    from trl_ext.scripts import _data_build, _data_check, _data_mix, _data_show

    found: dict[str, Callable[..., int]] = {
        "list": _data_show.list_sources,
        "inspect": _data_show.inspect,
        "build": _data_build.build,
        "mix": _data_mix.mix,
        "check": _data_check.check,
        "decontaminate": _data_check.decontaminate,
    }
    return found[name]


if __name__ == "__main__":
    from trl_ext.cli import main as cli_main

    sys.exit(cli_main(["data", *sys.argv[1:]]))
