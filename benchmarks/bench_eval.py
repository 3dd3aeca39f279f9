r"""Measure evaluation: grading with votes and figures, and generation beside plain `generate` of transformers.

    python benchmarks/bench_eval.py --output benchmarks/results/eval.json

Grading: `--problems` problems (the golds of MATH-500) with `--samples` completions of `--characters` characters each:
three in five are right, in another way of writing than the gold where there is one, a quarter are near misses and the
others state nothing. Measured are the seconds of `grade` (scores and answers), of the votes and of the rest of the
figures, in a process that has nothing in its caches. Every score is compared with what follows from the construction.

Generation: the demo model draws completions of exactly `--tokens` tokens (no token ends one) for a batch of 16 prompts,
by `TransformersGenerator` and by plain `generate`, in turn and in one process; the ratio is of the medians.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import random
import re
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import rewards_workload as workload

ROOT = Path(__file__).resolve().parent.parent
LABELLED = ROOT / "tests" / "reward_funcs" / "labelled_answers.jsonl"
RIGHT, WRONG = 0.6, 0.25
WAYS = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.0},
    "top_p": {"temperature": 0.7, "top_p": 0.95},
    "top_k": {"temperature": 0.7, "top_k": 50},
}


def golds_and_text(data: Path) -> tuple[list[str], str]:
    """Golds, and reasoning to fill completions with."""
    if not data.is_dir():
        rows = [json.loads(line) for line in LABELLED.open(encoding="utf-8")]
        return [str(row["gold"]) for row in rows if row.get("gold")], "so we add the two numbers and compare. " * 500
    lines = [json.loads(line) for line in (data / "math500.jsonl").open(encoding="utf-8")]
    return [line["answer"] for line in lines], "\n".join(line["solution"].replace("boxed", "text") for line in lines)


def problems(args: argparse.Namespace) -> tuple[list[dict[str, str]], list[list[str]], list[list[float]]]:
    """Rows, completions, and the scores that follow from how these were made."""
    generator = random.Random(args.seed)
    golds, text = golds_and_text(args.data)
    rows, completions, scores = [], [], []
    for number in range(args.problems):
        gold = golds[number % len(golds)]
        right = [gold, *workload.right_answers(gold, "math")]
        wrong = workload.near_misses(gold, str(generator.randrange(1000))) or [r"\text{none}"]
        texts, own = [], []
        for _ in range(args.samples):
            draw = generator.random()
            start = generator.randrange(len(text))
            answer = generator.choice(right if draw < RIGHT else wrong)
            ending = f"\nSo the answer is $\\boxed{{{answer}}}$." if draw < RIGHT + WRONG else ""
            texts.append((text + text)[start : start + args.characters - len(ending)] + ending)
            own.append(float(draw < RIGHT))
        rows.append({"prompt": f"Problem {number}: put the answer in \\boxed{{}}.", "solution": gold, "task": "math"})
        completions.append(texts)
        scores.append(own)
    return rows, completions, scores


def graded(args: argparse.Namespace) -> dict[str, float]:
    """Seconds of the parts of one grading, and the share of scores that are as made."""
    from trl_ext.evaluation._figures import figures
    from trl_ext.evaluation.grading import grade
    from trl_ext.evaluation.requests import Completion
    from trl_ext.evaluation.votes import group_answers, vote_score

    rows, completions, expected = problems(args)
    times = [time.perf_counter()]
    found = grade(rows, completions)
    times.append(time.perf_counter())
    votes = [
        vote_score(group_answers([one.answer for one in row]), [one.score for one in row], k=args.samples)
        for row in found
    ]
    times.append(time.perf_counter())
    wrapped = [[Completion(text, len(text) // 4, False) for text in row] for row in completions]
    figures(rows, None, wrapped, found, k=1)
    times.append(time.perf_counter())
    pairs = [
        (one.score, score)
        for row, own in zip(found, expected, strict=True)
        for one, score in zip(row, own, strict=True)
    ]
    return {
        "grade_seconds": round(times[1] - times[0], 2),
        "votes_seconds": round(times[2] - times[1], 2),
        "figures_seconds": round(times[3] - times[2], 2),
        "total_seconds": round(times[3] - times[0], 2),
        "agreement": round(sum(a == b for a, b in pairs) / len(pairs), 4),
        "cons": round(statistics.mean(votes), 4),
    }


def generation(args: argparse.Namespace) -> dict[str, Any]:
    """Tokens a second by both, for each way to draw, with the ratio of ours to plain `generate`."""
    import torch
    from transformers import GenerationConfig

    from trl_ext.evaluation._generate_transformers import TransformersGenerator
    from trl_ext.evaluation._prompt_ids import prompt_ids
    from trl_ext.evaluation.requests import Request, SamplingParams, sample_seed

    ours = TransformersGenerator.from_pretrained("smol", dtype=args.dtype)
    ours.stop_ids = []  # every completion has the same length
    ours.model.generation_config = GenerationConfig(pad_token_id=0)
    turns = [[{"role": "user", "content": f"What is {a} + {3 * a}? Explain every step."}] for a in range(16)]
    requests = [Request(str(i), turn, sample_seed(0, str(i), 0)) for i, turn in enumerate(turns)]
    prompts = [prompt_ids(ours.tokenizer, request, {}) for request in requests]
    length = max(map(len, prompts))
    ids = torch.tensor([[0] * (length - len(one)) + one for one in prompts], device=ours.device)
    mask = torch.tensor([[0] * (length - len(one)) + [1] * len(one) for one in prompts], device=ours.device)

    def plain(way: dict[str, Any]) -> Any:
        drawn = {} if way["temperature"] == 0 else way
        fixed = {"max_new_tokens": args.tokens, "do_sample": bool(drawn), "pad_token_id": 0, "top_k": 0}
        return ours.model.generate(
            input_ids=ids, attention_mask=mask, generation_config=GenerationConfig(**{**fixed, **drawn})
        )

    result = {}
    for name, way in WAYS.items():
        params = SamplingParams(max_new_tokens=args.tokens, **way)
        calls = {"ours": lambda params=params: ours.generate(requests, params), "plain": lambda way=way: plain(way)}
        seconds: dict[str, list[float]] = {"ours": [], "plain": []}
        for run in range(args.runs + 1):
            for who, call in calls.items():
                start = time.perf_counter()
                call()
                if run:  # the first one warms up
                    seconds[who].append(time.perf_counter() - start)
        rate = {who: 16 * args.tokens / statistics.median(values) for who, values in seconds.items()}
        result[name] = {
            "tokens_per_second": round(rate["ours"], 1),
            "plain_tokens_per_second": round(rate["plain"], 1),
            "ratio": round(rate["ours"] / rate["plain"], 3),
        }
    return {"dtype": args.dtype, "device": ours.device.type, "batch": 16, "tokens": args.tokens, **result}


def grading(args: argparse.Namespace) -> dict[str, Any]:
    """Several gradings, each in a fresh process, with their medians."""
    own = ["--problems", args.problems, "--samples", args.samples, "--characters", args.characters]
    runs = []
    for seed in range(args.runs):
        command = [sys.executable, __file__, "--child", "--data", str(args.data), "--seed", str(seed), *map(str, own)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    seconds = [run["total_seconds"] for run in runs]
    return {
        "problems": args.problems,
        "samples": args.samples,
        "characters": args.characters,
        "golds": "MATH-500" if args.data.is_dir() else "the labelled set: the data sets are not here",
        "total_seconds": {"median": statistics.median(seconds), "max": max(seconds)},
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--characters", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seed", type=int, default=0, help="of the completions that are graded")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the data sets")
    parser.add_argument("--only", choices=("grading", "generation"))
    parser.add_argument("--output", type=Path)
    parser.add_argument(
        "--child", action="store_true", help="one grading in this process, as the measurement starts it"
    )
    args = parser.parse_args()
    if args.child:
        print(json.dumps(graded(args)))
        return
    result: dict[str, Any] = {
        "command": re.sub(r" --data(=| )\S+", "", shlex.join(["python", "benchmarks/bench_eval.py", *sys.argv[1:]])),
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("torch", "transformers", "math-verify")},
        },
        "machine": {"device": f"{os.cpu_count()} CPU cores", "architecture": platform.machine()},
    }
    if args.only != "generation":
        result["grading"] = grading(args)
    if args.only != "grading":
        result["generation"] = generation(args)
    print(json.dumps(result, indent=2))
    if args.output:
        args.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
