"""The arguments of `trl-ext data`: flags, their names in TRL, and YAML files with them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from trl_ext.errors import UsageError
from trl_ext.scripts._config_file import split_config
from trl_ext.scripts.check import _number as number
from trl_ext.scripts.check import _Parser

_SOURCE_HELP = "name of a source, see `trl-ext data list`"
_FOLDER_HELP = "name of a source, or a folder that `trl-ext data build` wrote"


def arguments(command: str, argv: list[str]) -> argparse.Namespace:
    """The arguments of a command, with the settings of its `--config` file under the flags.

    Raises:
        UsageError: For an unknown flag, key or value, with what was probably meant.
    """
    parser = _Parser(
        prog=f"trl-ext data {command}",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_DESCRIPTIONS[command],
    )
    _OPTIONS[command](parser)
    options = {option for action in parser._actions for option in action.option_strings}
    if "--config" in options:
        # TRL's flag is --dataset_config for the configuration on the Hub; --config is a file for every command
        argv, config, _ = split_config(argv, options - {"--config", "--help", "-h"})
        parser.set_defaults(**_defaults(parser, config))
    args = parser.parse_args(argv)
    _join_names(args)
    return args


def source_options(args: Any) -> dict[str, Any]:
    """Arguments of `build` that say which rows of a source are read."""
    streaming = getattr(args, "streaming", None)
    return {
        "split": args.split,
        "config": args.dataset_config,
        "revision": args.revision,
        "local_path": args.local_path,
        "streaming": streaming,
    }


def _defaults(parser: argparse.ArgumentParser, config: dict[str, Any]) -> dict[str, Any]:
    """Settings of a file by the names that the parser gives them, checked as flags are."""
    defaults: dict[str, Any] = {}
    for key, value in config.items():
        action = parser._option_string_actions.get(f"--{key}")
        if action is None:
            raise UsageError(f"the key {key!r} is no setting of `{parser.prog}`")
        if action.dest in defaults:
            raise UsageError(f"{key} in the configuration file is another name of a setting that stands there, too")
        defaults[action.dest] = _default(key, value, action)
    return defaults


def _default(key: str, value: Any, action: argparse.Action) -> Any:
    """One setting of a file as text, so that the parser reads and checks it as it does a flag."""
    wrong = f"{key}: {value!r} in the configuration file must be"
    if value is None:
        if action.default is not None:
            raise UsageError(f"{key} in the configuration file has no value; give one, or leave the line out")
        return None
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise UsageError(f"{wrong} true or false")
        return value
    several = action.nargs is not None
    items = value if several and isinstance(value, list) else [value]
    if any(item is None or isinstance(item, (list, dict)) for item in items):
        raise UsageError(f"{wrong} {'a list of texts' if several else 'one value'}")
    if action.type is None and any(isinstance(item, bool) for item in items):
        raise UsageError(f"{wrong} text; write yes, no, on and off in quotes")
    if isinstance(action.nargs, int) and len(items) != action.nargs:
        raise UsageError(f"{wrong} a list of {action.nargs}")
    texts = [str(item) for item in items]
    unknown = next((text for text in texts if action.choices and text not in action.choices), None)
    if unknown is not None:
        raise UsageError(
            f"{key}: {unknown!r} in the configuration file is none of {', '.join(map(str, action.choices or ()))}"
        )
    return texts if several else texts[0]


def _join_names(args: argparse.Namespace) -> None:
    """One name of the source, or the parts of a mixture, from their place or from their flag."""
    if hasattr(args, "parts"):
        args.parts = args.parts or args.sources or []
        del args.sources  # so that the settings are the same ones, wherever they come from
    if not hasattr(args, "dataset_name"):
        return
    given, flag = args.source, args.dataset_name
    if given and flag and given != flag:
        raise UsageError(f"the source is {given!r} and --dataset_name is {flag!r}; give one of them")
    args.source = given or flag
    if not args.source:
        raise UsageError("name the source; `trl-ext data list` shows them")


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", help="only sources of this task: math, code, choice, ...")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_source(parser: argparse.ArgumentParser, text: str = _SOURCE_HELP) -> None:
    parser.add_argument("source", nargs="?", metavar="SOURCE", help=text)
    parser.add_argument("--dataset_name", metavar="SOURCE", help="the same, under TRL's name")
    parser.add_argument("--local_path", nargs="+", metavar="PATH", help="files or folders in the place of the Hub")
    parser.add_argument("--dataset_config", metavar="NAME", help="configuration on the Hub")
    parser.add_argument("--split", "--dataset_train_split", help="split (the training split)")
    parser.add_argument("--revision", metavar="COMMIT", help="commit, tag or branch on the Hub")


def _add_rows(parser: argparse.ArgumentParser) -> None:
    """Flags that say what a row looks like, for sources and mixtures alike."""
    parser.add_argument("--config", metavar="FILE", help="YAML with any of the options; flags win")
    group = parser.add_argument_group("rows")
    group.add_argument("--instruction", default="boxed", help="boxed (default), think_answer or none")
    group.add_argument("--system_prompt", metavar="TEXT", help="first turn of every prompt")
    group.add_argument("--seed", type=int, default=42, help="of the draw and of generated rows (42)")
    group.add_argument("--allow_noncommercial", action="store_true", help="allow licences that forbid commercial use")
    group.add_argument("--no_dedup", action="store_true", help="keep repeated prompts")
    group.add_argument(
        "--num_proc", "--dataset_num_proc", type=number(int, 1), metavar="N", help="processes that convert"
    )


def _add_filters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("checks")
    group.add_argument("--near_dedup", action="store_true", help="remove nearly equal prompts, too")
    group.add_argument("--min_difficulty", type=number(float, 0, 1), metavar="RATE", help="lowest pass rate to keep")
    group.add_argument("--max_difficulty", type=number(float, 0, 1), metavar="RATE", help="highest pass rate to keep")
    group.add_argument(
        "--max_prompt_tokens", type=number(int, 1), metavar="N", help="longest prompt; needs --tokenizer"
    )
    group.add_argument("--tokenizer", metavar="MODEL", help="Hub id or folder, or 'smol'")
    group.add_argument("--language", nargs="+", metavar="CODE", help="keep prompts in these languages: en zh ...")
    _add_contamination(group, "--decontaminate", "all that can be loaded; 'none' turns it off")
    group.add_argument("--check_golds", action="store_true", help="grade every gold with the reward of its task")
    group.add_argument("--drop_failing", action="store_true", help="drop the golds that fail (implies --check_golds)")


def _add_contamination(group: Any, flag: str, default: str) -> None:
    group.add_argument(
        flag,
        dest="against",
        nargs="*",
        metavar="NAME[=PATH]",
        help=f"evaluation sets to compare with, each from the Hub or from a file ({default})",
    )
    group.add_argument("--mode", default="coverage", help="what counts as contained: coverage (default), any or exact")
    group.add_argument("--n", type=number(int, 1), default=8, metavar="N", help="words of an n-gram (8)")
    group.add_argument(
        "--coverage", type=number(float, 0, 1), default=0.5, metavar="X", help="share of an evaluation prompt (0.5)"
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--output_dir", metavar="DIR", help="where the data set goes; what is there is not replaced")
    group.add_argument("--overwrite", action="store_true", help="replace it")
    group.add_argument("--export", metavar="LAYOUT", help="columns of another library: verl or open_instruct")
    group.add_argument("--push_to_hub", action="store_true", help="publish it, as a private repository")
    group.add_argument("--repo_id", "--hub_model_id", metavar="USER/NAME", help="where on the Hub")
    group.add_argument("--public", action="store_true", help="let everyone see it")
    group.add_argument("--licence", "--license", metavar="ID", help="licence to publish under, such as cc-by-4.0")
    group.add_argument("--allow_unknown_licence", action="store_true", help="publish although a source states none")
    group.add_argument("--dry_run", action="store_true", help="look at the first rows and write nothing")


def _add_build(parser: argparse.ArgumentParser) -> None:
    _add_source(parser)
    parser.add_argument("--max_samples", type=number(int, 1), metavar="N", help="draw so many rows after the checks")
    parser.add_argument(
        "--streaming", "--dataset_streaming", action="store_true", default=None, help="hold few rows at a time"
    )
    _add_rows(parser)
    _add_filters(parser)
    _add_output(parser)


def _add_mix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("parts", nargs="*", metavar="NAME=COUNT", help="rows, or a share below 1, of each source")
    parser.add_argument(
        "--sources", nargs="+", metavar="NAME=COUNT", help="the same as a flag, and in a YAML file; the former win"
    )
    parser.add_argument("--recipe", metavar="NAME", help="olmo3-think, olmo3-instruct, or a YAML file of NAME: COUNT")
    parser.add_argument("--total", type=number(int, 1), metavar="N", help="rows in all, for shares")
    parser.add_argument(
        "--local_paths", nargs="+", default=[], metavar="NAME=PATH", help="files in the place of the Hub"
    )
    parser.add_argument("--allow_fewer", action="store_true", help="take what there is of a source with fewer rows")
    _add_rows(parser)
    _add_filters(parser)
    _add_output(parser)


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    _add_source(parser, _FOLDER_HELP)
    parser.add_argument("-n", dest="rows", type=number(int, 1), default=3, metavar="N", help="rows to show (3)")
    parser.add_argument("--instruction", default="boxed", help="boxed (default), think_answer or none")
    parser.add_argument("--system_prompt", metavar="TEXT", help="first turn of every prompt")
    parser.add_argument("--evaluation", action="store_true", help="the evaluation set of that name")


def _add_check(parser: argparse.ArgumentParser) -> None:
    _add_source(parser, _FOLDER_HELP)
    parser.add_argument("--evaluation", action="store_true", help="the evaluation set of that name")
    parser.add_argument("--max_rows", type=number(int, 1), metavar="N", help="look at the first N rows")
    parser.add_argument(
        "--threshold", type=number(float, 0, 1), default=0.98, metavar="X", help="lowest rate of good golds (0.98)"
    )
    parser.add_argument("--rows", type=number(int, 0), default=5, metavar="N", help="failing rows to print (5)")
    _add_contamination(parser, "--against", "none")


def _add_decontaminate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="DATA", help="a built folder, or a .json, .jsonl, .parquet or .csv file")
    _add_contamination(parser, "--against", "all that can be loaded")
    parser.add_argument("--output_dir", metavar="DIR", help="where the rest goes; without it the counts are printed")
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")


_OPTIONS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "list": _add_list,
    "build": _add_build,
    "inspect": _add_inspect,
    "check": _add_check,
    "mix": _add_mix,
    "decontaminate": _add_decontaminate,
}
_DESCRIPTIONS = {
    "list": "The sources and evaluation sets, with their task, size, licence and place on the Hub.",
    "build": "Build a source into a folder that every trainer reads with --dataset_name.\n\n"
    "example: trl-ext data build gsm8k --max_samples 1000 --output_dir data/gsm8k",
    "inspect": "Show rows as the source has them, as they are built, and what their reward says to the ideal\n"
    "completion.\n\nexample: trl-ext data inspect gsm8k -n 3",
    "check": "Check the form of every row, its gold, double ids and, with --against, shared prompts.\n"
    "Exit status 1 when something is wrong.\n\n"
    "example: trl-ext data check data/gsm8k --against math_500=math500.jsonl",
    "mix": "Build a mixture. The checks run on the mixture, and what they drop is not replaced.\n\n"
    "example: trl-ext data mix gsm8k=2000 hendrycks_math=3000 --output_dir data/maths",
    "decontaminate": "Remove rows whose prompt holds a prompt of an evaluation set, or much of it.\n\n"
    "example: trl-ext data decontaminate rows.jsonl --against math_500=math500.jsonl --output_dir clean",
}
