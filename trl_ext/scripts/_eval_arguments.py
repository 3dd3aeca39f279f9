"""The flags of `trl-ext eval`, and YAML files with them."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from trl_ext.errors import UsageError
from trl_ext.scripts._config_file import split_config
from trl_ext.scripts._data_arguments import _defaults
from trl_ext.scripts.check import _number as number
from trl_ext.scripts.check import _Parser

_DESCRIPTION = """\
Measure a model: pass@1 (mean over the samples), pass@k, cons@k (majority vote), response length.

What is killed goes on with the same command, without loss. Under several processes:
accelerate launch --num_processes 2 -m trl_ext.scripts.eval [options].
"""
_EXAMPLES = """\
examples:
  trl-ext eval --model Qwen/Qwen3-0.6B --benchmarks math_500
  trl-ext eval --model Qwen/Qwen3-0.6B --adapter runs/ppo --benchmarks math_500,aime_2024 --num_samples 16 --k 1,8,16 \\
      --temperature 0.6 --top_p 0.95 --max_new_tokens 4096
  trl-ext eval --model smol --dataset problems.jsonl --max_problems 100
  trl-ext eval --compare eval-Qwen3-0.6B eval-Qwen3-0.6B-ppo
"""


def arguments(argv: list[str]) -> argparse.Namespace:
    """The arguments, with the settings of the `--config` file under the flags.

    Raises:
        UsageError: For an unknown flag, key or value, with what was probably meant.
    """
    parser = _Parser(
        prog="trl-ext eval",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_main(parser)
    _add_sampling(parser)
    _add_rows(parser)
    _add_model(parser)
    _add_grading(parser)
    _add_output(parser)
    options = {option for action in parser._actions for option in action.option_strings}
    argv, config, _ = split_config(argv, options - {"--config", "--help", "-h"})
    if isinstance(config.get("k"), list):  # as YAML writes 1,8,16
        config["k"] = ",".join(map(str, config["k"]))
    if isinstance(config.get("chat_template_kwargs"), dict):
        config["chat_template_kwargs"] = json.dumps(config["chat_template_kwargs"])
    parser.set_defaults(**_defaults(parser, config))
    args = parser.parse_args(argv)
    args.benchmarks, args.local_path = _listed(args.benchmarks), _listed(args.local_path)
    args.k = _ks(args.k, args.num_samples)
    args.chat_template_kwargs = _object(args.chat_template_kwargs)
    _refuse_combinations(args)
    return args


def _add_main(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("main options")
    # the second name is TRL's, and the one under which a configuration file has it
    group.add_argument(
        "--model", "--model_name_or_path", metavar="MODEL", help='Hub id or folder; "smol" is SmolLM2-135M-Instruct'
    )
    group.add_argument("--adapter", metavar="DIR", help="Hub id or folder of a LoRA; its base is the default model")
    group.add_argument(
        "--benchmarks",
        nargs="+",
        default=[],
        metavar="NAME",
        help="evaluation sets, with commas or spaces between them; `trl-ext data list` shows them",
    )
    group.add_argument("--dataset", metavar="DATA", help="own rows with the columns prompt and solution")
    group.add_argument(
        "--num_samples", type=number(int, 1), default=1, metavar="N", help="completions of each problem (1)"
    )
    group.add_argument("--k", metavar="K,...", help="values of k for pass@k and cons@k (1 and the number of samples)")
    group.add_argument(
        "--temperature",
        type=number(float, 0),
        default=0.0,
        metavar="T",
        help="0 is greedy (0); several samples need more",
    )
    group.add_argument(
        "--max_new_tokens", type=number(int, 1), default=512, metavar="N", help="longest completion in tokens (512)"
    )
    group.add_argument("--batch_size", type=number(int, 1), default=16, metavar="N", help="completions at a time (16)")
    group.add_argument("--output_dir", metavar="DIR", help="where all goes (eval-<model>-<adapter>)")
    group.add_argument("--compare", nargs=2, metavar="RUN", help="compare the folders of two finished evaluations")


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument("--top_p", type=number(float, 0, 1), default=1.0, metavar="P", help="nucleus (1: off)")
    group.add_argument("--top_k", type=number(int, 0), default=0, metavar="N", help="likeliest tokens (0: all)")
    group.add_argument("--seed", type=number(int, 0), default=0, help="of the samples (0)")


def _add_rows(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("problems")
    group.add_argument("--max_problems", type=number(int, 1), metavar="N", help="the first N problems of each set")
    group.add_argument(
        "--local_path",
        nargs="+",
        default=[],
        metavar="NAME=PATH",
        help="files of an evaluation set, in the place of the Hub",
    )
    group.add_argument("--split", default="train", help="split of --dataset (train)")
    group.add_argument(
        "--instruction", metavar="NAME", help="boxed, think_answer or none (boxed for benchmarks, none for --dataset)"
    )
    group.add_argument("--system_prompt", metavar="TEXT", help="first turn of every prompt")


def _add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--backend", default="auto", help="auto (default), transformers, vllm or server")
    group.add_argument("--server_url", metavar="URL", help="OpenAI-compatible server, such as http://localhost:8000/v1")
    group.add_argument("--concurrency", type=number(int, 1), metavar="N", help="requests to the server at a time")
    group.add_argument("--load_in_4bit", action="store_true", help="NF4 weights (bitsandbytes)")
    group.add_argument("--dtype", metavar="NAME", help="float32, bfloat16 or float16 (that of the checkpoint)")
    group.add_argument("--revision", metavar="COMMIT", help="commit, tag or branch of the model")
    group.add_argument(
        "--chat_template_kwargs",
        metavar="JSON",
        help="arguments of the chat template, such as '{\"enable_thinking\": false}'",
    )


def _add_grading(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("grading")
    group.add_argument("--reward", metavar="NAME", help="grades all rows, in the place of their task's reward")
    group.add_argument("--best_of_reward", metavar="NAME", help="chooses among k samples, for best_of@k")
    group.add_argument(
        "--truncated", default="grade", metavar="RULE", help="grade (default): as it stands; wrong: cut is wrong"
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--overwrite", action="store_true", help="remove an earlier evaluation from the folder")
    group.add_argument("--model_card", metavar="PATH", help="README.md to write the figures into, as model-index")
    group.add_argument("--dry_run", action="store_true", help="show what would be done, and load no model")
    group.add_argument("--config", metavar="FILE", help="YAML with any of the options; flags win")


def _listed(words: list[str]) -> list[str]:
    return [part.strip() for word in words for part in word.split(",") if part.strip()]


def _ks(text: Any, num_samples: int) -> list[int]:
    if text is None:
        return sorted({1, num_samples})
    ks = []
    for part in str(text).split(","):
        if not part.strip().isdecimal() or int(part) < 1:
            raise UsageError(f"--k {text}: {part.strip()!r} is no whole number of at least 1; an example is --k 1,8,16")
        ks.append(int(part))
    return sorted(set(ks))


def _object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError(
            f"--chat_template_kwargs {text} is no JSON object; an example is --chat_template_kwargs "
            "'{\"enable_thinking\": false}'"
        )
    return value


def _refuse_combinations(args: argparse.Namespace) -> None:
    """Refuse flags that leave open what to do."""
    if args.compare:
        if args.model or args.adapter or args.benchmarks or args.dataset:
            raise UsageError("--compare reads two finished evaluations; leave --model, --benchmarks and the like out")
        return
    if not (args.model or args.adapter):
        raise UsageError('name the model: --model with a Hub id or folder, or "smol"; --adapter brings its own base')
    if not (args.benchmarks or args.dataset):
        raise UsageError("name the problems: --benchmarks math_500,aime_2024 or --dataset with a file of rows")
    if args.concurrency is not None and not args.server_url and args.backend != "server":
        raise UsageError(
            "--concurrency is of a server; give --server_url, or leave it out (--batch_size is for models)"
        )
    if args.top_p == 0 or math.isnan(args.top_p):
        raise UsageError("--top_p 0 keeps no token; give a share above 0, or leave it out")
    if args.system_prompt is not None and not args.system_prompt.strip():
        raise UsageError("--system_prompt is empty; leave it out for none")
