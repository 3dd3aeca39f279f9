"""Write the tables of README.md and docs/*.md from benchmarks/results/*.json; `--check` fails where they differ.

    python benchmarks/make_tables.py [--check]

A page marks where with `<!-- NAME: written by benchmarks/make_tables.py -->` and `<!-- end of NAME -->`, NAME being
`results` (the short tables of everything) or `rewards` (all tables of the rewards).
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def load(name: str) -> dict:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def learning_table() -> str:
    report = load("learning.json")
    lines = ["| seed | reward, first step | reward, last 5 of 20 | accuracy before | after |", "|---|---|---|---|---|"]
    for run in report["runs"]:
        cells = [run["first_reward"], run["last_5_reward"], run["accuracy_before"], run["accuracy_after"]]
        lines.append(f"| {run['seed']} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
    means = [run["last_5_reward"] for run in report["runs"]]
    spread = f"{statistics.mean(means):.2f} ± {statistics.pstdev(means):.2f}"
    where = f"`{report['command']}` on {report['machine']['device']}"
    return "\n".join([*lines, "", f"Last five steps: {spread} over the seeds. {where}."])


def cost_table() -> str:
    names = {"adapter": "PPO, adapter critic", "shared": "PPO, shared critic"}
    lines = ["| work | trainer | step time | peak memory |", "|---|---|---|---|"]
    for path in sorted(RESULTS.glob("ppo_vs_grpo_*.json")):
        report = load(path.name)
        work = f"{report['work']}, {report['machine']['device']}"
        for variant, ratios in report["ratios"].items():
            step, memory = ratios["median_step_s"], ratios["peak_gib"]
            lines.append(f"| {work} | {names[variant]} | {step:.2f}x | {memory:.2f}x |")
    return "\n".join(lines)


def gae_table() -> str:
    report = load("gae.json")
    lines = ["| T | `gae` | a loop over T | ratio |", "|---|---|---|---|"]
    for row in report["figures"]:
        cells = f"{row['gae_ms']:.2f} ms | {row['loop_ms']:.0f} ms | {row['speedup']:.0f}x"
        lines.append(f"| {row['length']} | {cells} |")
    return "\n".join(lines)


def long_run_table() -> str:
    """Time of a generation batch early and late in a run."""
    names = {
        "trl_grpo": "TRL's `GRPOTrainer`",
        "grpo": "`GRPOVariantTrainer`",
        "ppo": "`PPOTrainer`, adapter critic",
    }
    lines = ["| trainer | first steps | last steps | ratio | hooks |", "|---|---|---|---|---|"]
    for name, row in load("long_run.json")["figures"].items():
        cells = f"{row['first_ms']:.1f} ms | {row['last_ms']:.1f} ms | {row['ratio']:.2f}x | {row['hooks']:,}"
        lines.append(f"| {names[name]} | {cells} |")
    return "\n".join(lines)


def generation_table() -> str:
    """What an adapter costs a generated token, by the way it is applied."""
    report = load("generation.json")
    names = {"peft": "peft, as TRL runs it", "fused": "fused, as the trainers here run it", "no adapter": "no adapter"}
    lines = ["| LoRA | tokens/s | ratio | kernels a token |", "|---|---|---|---|"]
    for name, words in names.items():
        speed, ratio = report["tokens_per_second"][name], report["ratio_to_peft"][name]
        lines.append(f"| {words} | {speed:.0f} | {ratio:.2f}x | {report['kernels_per_token'][name]:,} |")
    return "\n".join(lines)


def generation_work() -> str:
    """What the generation is measured on."""
    report = load("generation.json")
    settings = report["settings"]
    return f"SmolLM2-135M, {settings['batch']} x {settings['length']} tokens, {report['machine']['device']}"


def rewards_table() -> str:
    """`accuracy_reward` of both libraries on the same completions."""
    figures = load("rewards.json")["figures"]["throughput"]
    trl = figures["trl"]
    lines = ["| `accuracy_reward` | here | TRL | ratio |", "|---|---|---|---|"]
    # of the warm runs the one on the completions that TRL graded too
    speeds = {"warm": figures["warm"]["each"][0], "cold": figures["cold"]["per_s"]}
    for state, words in (("warm", "warm"), ("cold", "fresh process")):
        cells = f"{_rate(speeds[state])} | {_rate(trl[state]['per_s'])} | {_times(figures['times_trl'][state])}"
        lines.append(f"| completions/s, {words} | {cells} |")
    right = 1 - (len(figures["wrong"]) + len(figures["not_judged"])) / figures["graded"]
    lines.append(f"| verdicts as constructed | {_percent(right)} | {_percent(trl['warm']['agreement'])} | |")
    latency = " / ".join(_two_digits(figures["latency"][name]) for name in ("p50_ms", "p99_ms", "max_ms"))
    share = _percent(figures["settled_in_process"])
    text = f"{share} are settled in process. One completion takes {latency} ms (median / 99th percentile / longest)."
    if unjudged := len(figures["not_judged"]):
        text += f" {unjudged} of {figures['graded']:,} were left unjudged (`None`)."
    return "\n".join([*lines, "", text])


def _two_digits(value: float) -> str:
    """No more than two digits that say something, and no exponent."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def _rate(value: float | None) -> str:
    return "-" if value is None else _two_digits(value)


def _times(value: float | None) -> str:
    return "-" if value is None else f"{_two_digits(value)}x"


def _percent(share: float | None) -> str:
    """With one decimal place, and 100 % only for all of them."""
    if share is None:
        return "-"
    return "100 %" if share == 1 else f"{min(100 * share, 99.9):.1f} %"


def hostile_table() -> str:
    """Answers that hang or crash graders, by settings and thread."""
    figures = load("rewards.json")["figures"]["hostile"]
    names = {"default": "default", "no_refusals": "restatements and equations allowed"}
    lines = ["| settings | thread | one call | slowest alone | settled in time |", "|---|---|---|---|---|"]
    for run in figures["runs"]:
        cells = f"{run['batch_s']:.0f} s | {run['slowest_s']:.1f} s | {run['within_deadline']} of {figures['answers']}"
        lines.append(f"| {names[run['settings']]} | {run['thread']} | {cells} |")
    memory = f"{figures['worker_peak_mb']:.0f} MB"
    text = (
        f"Deadline {figures['timeout_s']:.0f} s; the largest worker took {memory}, {figures['left_after_close']} were"
    )
    return "\n".join([*lines, "", f"{text} left after `close()`."])


def golds_table() -> str:
    """Golds that score 1.0 against themselves, by data set."""
    figures = load("rewards.json")["figures"]["golds"]["self_match"]
    forms = list(next(iter(figures.values()))["forms"])
    lines = [f"| golds | number | {' | '.join(forms)} |", "|---|---|" + "---|" * len(forms)]
    for source, row in sorted(figures.items()):
        cells = " | ".join(_percent(row["forms"][form]["rate"]) for form in forms)
        lines.append(f"| {source} | {row['golds']:,} | {cells} |")
    return "\n".join(lines)


def other_rewards_table() -> str:
    """Completions per second of the other rewards."""
    figures = load("rewards.json")["figures"]["others"]
    lines = ["| reward | completions/s |", "|---|---|"]
    lines += [f"| {name} | {_rate(row['per_s'])} |" for name, row in figures["speed"].items()]
    package, accuracy = (f"{row['ms']:.0f} ms" for row in figures["imports"])
    foreign = sorted({name for row in figures["imports"] for name in row["foreign"]})
    loads = f"the standard library and {', '.join(foreign)}" if foreign else "the standard library alone"
    text = f"`import reward_funcs` takes {package}, with `accuracy_reward` {accuracy}, and loads {loads}."
    return "\n".join([*lines, "", text])


def rewards_work() -> str:
    """What the rewards are measured on."""
    report = load("rewards.json")
    mean = _two_digits(report["figures"]["throughput"]["mean_characters"])
    return f"{report['settings']['count']:,} completions of {mean} characters, {report['machine']['device']}"


def rewards_section() -> str:
    """All tables of the rewards."""
    parts = [
        f"**Speed and verdicts** (`{load('rewards.json')['command']}`, {rewards_work()}):",
        rewards_table(),
        "**Hostile answers.** Power towers, factorials, deep nesting, text that is no maths:",
        hostile_table(),
        "**Golds against themselves.** The gold and the answer are written in two ways each:",
        golds_table(),
        "**The other rewards** on the same completions:",
        other_rewards_table(),
    ]
    return "\n\n".join(parts)


def data_table() -> str:
    """Building and checking maths rows, and memory of streams."""
    record = load("data.json")
    settings, figures = record["settings"], record["figures"]
    first, second = (run["seconds"]["total"] for run in figures["speed"])
    memory = max(run["peak_memory_mib"] for run in figures["speed"])
    lines = ["| work | time | peak memory |", "|---|---|---|"]
    rows = f"{settings['rows']:,} maths rows: converted, deduplicated, decontaminated"
    lines.append(f"| {rows} | {first:.0f} s; {second:.0f} s from the cache | {memory} MiB |")
    for kind, name in (("jsonl", "JSON Lines"), ("parquet", "parquet")):
        run = figures["streams"][kind]
        size = f"{run['file_mib']:,} MiB of {name}, {run['rows']:,} conversations, streamed to the end"
        lines.append(f"| {size} | {run['seconds']:.0f} s | {run['peak_memory_mib']} MiB |")
    return "\n".join(lines)


def outside_table() -> str:
    """Programs a second in the sandbox, and items a second of an endpoint that takes a tenth of a second."""
    code, judge = load("code.json"), load("judge.json")
    lines = ["| work | rate |", "|---|---|"]
    for kind, rate in code["programs_per_second"].items():
        lines.append(f"| `code_reward`, {kind}, one trivial test a program | {rate['mean']:.0f} programs/s |")
    settings = judge["settings"]
    slowest = max(run["endpoint_seconds"] for run in judge["runs"])
    cached = max(run["cached_ms_single"] for run in judge["runs"])
    work = f"{settings['items']:,} items, {settings['concurrency']} at a time, {settings['latency']} s each"
    lines.append(f"| `HTTPJudge`, {work} | {slowest:.1f} s in all; an item from the cache {cached:.2f} ms |")
    return "\n".join(lines)


def section() -> str:
    parts = [
        "**It learns.** SmolLM2-135M, LoRA, two-digit additions:",
        learning_table(),
        "**What the critic costs.** The same work as TRL's `GRPOTrainer`, in ratios (`benchmarks/bench_ppo.py`):",
        cost_table(),
        "**GAE without a loop over tokens** (`benchmarks/bench_gae.py`, 8 sequences):",
        gae_table(),
        "**Generating takes as long at the end of a run as at its start** (`benchmarks/bench_long_run.py`, the tiny "
        f"model, {load('long_run.json')['steps']:,} steps, batches of 8 x 8 tokens; with gradient checkpointing, "
        "transformers 5 adds hooks all the time, which each token calls; the trainers here drop them):",
        long_run_table(),
        f"**Generating with an adapter** (`benchmarks/bench_generation.py`, {generation_work()}; kernels counted on a "
        "model as deep as Qwen3-1.7B, and on a GPU a token takes about as long as they take to launch):",
        generation_table(),
        f"**Rewards that do not hold up a step** (`benchmarks/bench_rewards.py`, {rewards_work()}):",
        rewards_table(),
        "Answers that hang other graders (power towers, factorials, deep nesting):",
        hostile_table(),
        "**Programs and judges** (`benchmarks/bench_code.py`, `bench_judge.py`, "
        f"{load('code.json')['machine']['device']}):",
        outside_table(),
        f"**Data sets** (`benchmarks/bench_data.py`, {load('data.json')['machine']['device']}):",
        data_table(),
    ]
    return "\n\n".join(parts)


BLOCKS = {"results": section, "rewards": rewards_section}


def filled(text: str) -> str:
    """A page with the blocks that it marks written anew; what other scripts write is left alone.

    Raises:
        ValueError: For a block that does not end, or begins twice.
    """
    for name, written in BLOCKS.items():
        begin, end = f"<!-- {name}: written by benchmarks/make_tables.py -->", f"<!-- end of {name} -->"
        head, found, rest = text.partition(begin)
        if not found:
            continue
        _, closed, tail = rest.partition(end)
        if not closed or begin in rest:
            raise ValueError(f"{begin} must be there once, with {end} after it")
        text = f"{head}{begin}\n\n{written()}\n\n{end}{tail}"
    return text


def main() -> int:
    stale = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        new = filled(text)
        if new != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(new, encoding="utf-8")
    if "--check" in sys.argv and stale:
        print(f"{', '.join(stale)} differ from benchmarks/results; run: python benchmarks/make_tables.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
