"""`trl-ext plot`: curves of one or several training runs, as pictures and as one page that needs no network."""

from __future__ import annotations

import argparse
from pathlib import Path

from trl_ext.errors import UsageError
from trl_ext.scripts.check import _Parser

_DESCRIPTION = """\
Draw reward and its parts, accuracy, response length, KL, entropy, the critic's loss, explained variance and bias, the
spread of the rewards of a prompt, and the time of a step. Several runs share the axes; --group draws mean and standard
deviation over seeds. Each RUN is the output folder of a training run (of a stock TRL trainer as well) or a
metrics.jsonl.
"""
_EXAMPLES = """\
examples:
  trl-ext plot runs/ppo
  trl-ext plot runs/ppo runs/grpo --smooth 20 --output_dir comparison
  trl-ext plot --group "ppo=runs/ppo-1,runs/ppo-2,runs/ppo-3" --group "grpo=runs/grpo-1,runs/grpo-2,runs/grpo-3"
  trl-ext plot runs/ppo --panels reward,response_length,clip_ratio/region_mean --format svg
"""


def main(argv: list[str]) -> int:
    """Draw the runs.

    Args:
        argv (`list[str]`): Arguments after the command name.

    Returns:
        0.

    Raises:
        UserError: For a run without metrics, an unknown panel or format, and where matplotlib is missing.
    """
    args = _arguments(argv)
    from trl_ext.evaluation.plots import PAGE, draw
    from trl_ext.scripts._training import refuse_file

    folder = Path(args.output_dir or _default_folder(args.runs))
    refuse_file(str(folder))
    plots = draw(
        args.runs,
        folder,
        formats=args.format,
        groups=_groups(args.group),
        panels=args.panels,
        smooth=args.smooth,
        title=args.title,
    )
    for note in plots.notes:
        print(note)
    if plots.left_out:
        left_out = ", ".join(f"{name} ({source})" for name, source in plots.left_out.items())
        print(f"Without data, and who would log it: {left_out}.")
    pictures = [path for path in plots.paths if path.name != PAGE]
    if pictures:
        kinds = "/".join(dict.fromkeys(path.suffix[1:] for path in pictures))
        print(f"{len(pictures)} pictures ({kinds}) in {folder}: {', '.join(dict.fromkeys(p.stem for p in pictures))}")
    if len(pictures) < len(plots.paths):
        print(f"Page: {folder / PAGE}")
    return 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="trl-ext plot",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="output folder of a run, or a metrics file")
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="NAME=RUN,RUN",
        help="draw mean ± std of runs (repeatable)",
    )
    parser.add_argument("--output_dir", metavar="DIR", help="where to (RUN/plots for one run, else plots)")
    parser.add_argument(
        "--format", type=_listed, default=["png", "html"], metavar="F,F", help="of png, svg, html (png,html)"
    )
    parser.add_argument("--smooth", type=_points, default=0, metavar="N", help="moving mean over N steps (off)")
    parser.add_argument("--panels", type=_listed, metavar="P,P", help="panels or any metrics (all panels)")
    parser.add_argument("--title", metavar="TEXT", help="above every picture")
    args = parser.parse_args(argv)
    if not args.runs and not args.group:
        parser.error("name a run: the output folder of a training run, or its metrics.jsonl")
    return args


def _listed(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r} names nothing; separate names with commas")
    return names


def _points(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is no number of steps; 0 turns smoothing off")
    return number


def _groups(texts: list[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for text in texts:
        name, found, runs = text.partition("=")
        members = [run.strip() for run in runs.split(",") if run.strip()]
        if not found or not name.strip() or not members:
            raise UsageError(f"--group {text!r}: write it as name=run1,run2,run3")
        if name.strip() in groups:
            raise UsageError(
                f"--group: two groups have the name {name.strip()!r}; put their runs into one or rename it"
            )
        groups[name.strip()] = members
    return groups


def _default_folder(runs: list[str]) -> Path:
    if len(runs) != 1:
        return Path("plots")
    only = Path(runs[0])
    return (only.parent if only.is_file() else only) / "plots"
