"""The `trl-ext` command: parses the command name first and imports nothing heavy before that."""

import argparse
import importlib
import os
import sys

from trl_ext import __version__
from trl_ext._text import did_you_mean
from trl_ext.errors import UsageError, UserError

# Each command is the module trl_ext.scripts.<name> with `main(argv: list[str]) -> int`.
COMMANDS = {
    "ppo": "Train with GAE-PPO (LoRA, QLoRA or full weights)",
    "grpo": "Train with GRPO or a variant of it (TRL's flags and ours)",
    "demo": "Train SmolLM2 on two-digit addition in a few minutes and show that it learned",
    "data": "List, build, look at, check and mix data sets for training",
    "check": "Show which golds of a data set a reward cannot reward, before training",
    "eval": "Measure pass@k, cons@k and response length of a model, and compare runs",
    "plot": "Draw the curves of one or several training runs, as pictures and as an HTML page",
    "doctor": "Show versions, device and what works here",
}
DEBUG_VARIABLE = "TRL_EXT_DEBUG"

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="trl-ext",
        usage="trl-ext [--help] [--version] COMMAND ...",
        description="Reinforcement learning of language models on top of TRL.",
        epilog=f"commands:\n{commands}\n\n`trl-ext COMMAND --help` shows the options of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trl-ext {__version__}")
    return parser


def _report(text: str) -> None:
    sys.stdout.flush()
    # on a line of its own, even where a progress bar stands
    print(f"\ntrl-ext: error: {text}" if sys.stderr.isatty() else f"trl-ext: error: {text}", file=sys.stderr)


def _run(command: str, argv: list[str]) -> int:
    module = importlib.import_module(f"trl_ext.scripts.{command}")
    status: int = module.main(argv)
    return status


def main(argv: list[str] | None = None) -> int:
    """Run the command that `argv` names; everything after its name is passed to it as it is.

    A `ValueError` or `OSError` of the command is printed as one line; `TRL_EXT_DEBUG=1` shows its traceback instead.

    Args:
        argv (`list[str]`, *optional*): arguments, `sys.argv[1:]` by default.

    Returns:
        Exit status: that of the command, 1 after an error, 2 for a wrong call, 130 when interrupted.
    """
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0].startswith("-"):
        parser = _parser()
        parser.parse_args(argv)  # --help, --version and unknown options leave here
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    command, *rest = argv
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS) or f"; the commands are {', '.join(COMMANDS)}"
        _report(f"unknown command {command!r}{hint}")
        return EXIT_USAGE
    try:
        return _run(command, rest)
    except (ValueError, OSError) as error:  # OSError: files, folders, and hubs that cannot be reached
        if os.environ.get(DEBUG_VARIABLE) == "1":
            raise
        # anything but a UserError may be a bug, so the way to its traceback is named
        _report(str(error) if isinstance(error, UserError) else f"{error} ({DEBUG_VARIABLE}=1 shows where)")
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_ERROR
    except KeyboardInterrupt:
        _report("interrupted")
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
