r"""Time and check the rewards: `AccuracyReward` against TRL's, hostile answers, golds of six data sets, the others.

    python benchmarks/bench_rewards.py --output benchmarks/results/rewards.json

Parts (`--parts throughput hostile golds others`, all by default; about four minutes on two cores):

- throughput: 1,000 completions of mean length 4,000 with known verdicts, see rewards_workload.py. Warm: the workers are
  up, the golds were seen with other completions. Cold: a fresh process, nothing cached, the workers started inside of
  the timed call; two of its completions are such as only the workers can judge. TRL's `accuracy_reward` grades the
  same completions as messages in a process of its own that has imported sympy before the clock starts; it may hang,
  so it has a time limit, and what it did until then counts. Medians over the seeds of the warm runs and over the cold
  processes; 15,000 more completions are checked and not timed. Without the data sets (`--data`) the completions are
  the labelled set of the tests, much shorter and full of odd cases; the record says so.
- hostile: the family of tests/reward_funcs/hostile.py in one call and one by one, from the main thread and from
  another, with the default settings and with restatements and equations allowed (`no_refusals` in the record).
- golds: each gold against itself in three forms, and the verdicts on GSM8K's model solutions.
- others: completions per second of the other rewards on the same completions, and what importing costs.

`--profile` prints the hottest functions of the in-process comparison and measures nothing else.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib.metadata
import json
import os
import platform
import pstats
import re
import resource
import runpy
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import rewards_workload as workload
from rewards_workload import Sample

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "reward_funcs"
COLD_SEED, WARM_SEEDS, LATENCY_SEED, WIDE_SEEDS = 1, (2, 3, 4), 5, (6, 7, 8)
WIDE = 5  # times the completions, to look at more verdicts than are timed
TRL_LIMIT_S, TRL_CHUNK = 60, 25
TIMEOUT_S = 2.0
IMPORTS = 10
FOR_WORKERS = [
    Sample("set", r"\mathbb{R}\setminus\{0\}", r"So it is $\boxed{(-\infty,0)\cup(0,\infty)}$.", 1.0, ""),
    Sample("function", r"\min(BW, 2WR, 3RB)", r"So it is $\boxed{\min(BW, 2WR, 4RB)}$.", 0.0, ""),
]


def completions(args: argparse.Namespace, seed: int, times: int = 1) -> list[Sample]:
    """The completions of a seed, so many times their usual number, of the data sets where they are."""
    if args.data.is_dir():
        return workload.samples(args.data, times * args.count, seed)
    return workload.labelled(TESTS / "labelled_answers.jsonl", times * args.count, seed)


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call, and what it returned."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def rewards_of(reward: Callable[..., Any], samples: Sequence[Sample]) -> tuple[float, list[float | None]]:
    """Seconds of grading completions in one call, and the rewards."""
    texts, golds = [sample.completion for sample in samples], [sample.gold for sample in samples]
    return timed(lambda: reward(texts, solution=golds))


# throughput


def settled_in_process(samples: Sequence[Sample]) -> int:
    """How many completions need no worker process, by the steps of a call without its workers."""
    from reward_funcs import accuracy_reward
    from reward_funcs.gold import gold_texts

    settled = 0
    for sample in samples:
        answer, golds = accuracy_reward.answer(sample.completion), gold_texts(sample.gold)
        pairs = [(gold, ", ".join(answer.texts)) for gold in golds] if answer.texts else []
        settled += all(accuracy_reward.settle(*pair).reason for pair in pairs)
    return settled


def disagreements(samples: Sequence[Sample], rewards: Sequence[float | None]) -> list[dict[str, Any]]:
    """The completions whose reward is not what it was made for; `None` says that the gold cannot be compared."""
    pairs = zip(samples, rewards, strict=True)
    return [
        {
            "gold": sample.gold,
            "answer": sample.answer or sample.completion[-200:],
            "expected": sample.reward,
            "got": got,
        }
        for sample, got in pairs
        if got != sample.reward
    ]


def child(args: argparse.Namespace, work: str, limit: float | None = None) -> list[dict[str, Any]]:
    """What a fresh process of this script prints, a JSON value a line, as far as it came within the limit."""
    command = [sys.executable, __file__, "--child", work, "--data", str(args.data), "--count", str(args.count)]
    with tempfile.TemporaryFile("w+") as output:
        try:
            subprocess.run(command, stdout=output, check=True, timeout=limit)
        except subprocess.TimeoutExpired:
            print(f"  {work}: stopped after {limit:.0f} s")
        output.seek(0)
        return [json.loads(line) for line in output if line.endswith("\n") and line.startswith("{")]


def workers_cpu_s() -> float:
    """Processor seconds of the processes that this one has started and that are gone."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def child_cold(args: argparse.Namespace) -> None:
    """Grade the completions in this fresh process."""
    # these two are for the workers alone, so that starting them is part of what is timed
    samples = [*completions(args, COLD_SEED)[: -len(FOR_WORKERS)], *FOR_WORKERS]
    import_s, reward = timed(lambda: __import__("reward_funcs").accuracy_reward)
    seconds, rewards = rewards_of(reward, samples)
    assert rewards[-len(FOR_WORKERS) :] == [sample.reward for sample in FOR_WORKERS]
    reward.close()
    print(json.dumps({"import_s": import_s, "call_s": seconds, "workers_cpu_s": workers_cpu_s()}))


def child_parts(args: argparse.Namespace) -> None:
    """The two things that a cold call consists of, apart: comparing in process, and starting a worker."""
    samples = completions(args, COLD_SEED)
    from reward_funcs import accuracy_reward  # noqa: F401 - importing is not what is timed

    in_process_s, settled = timed(lambda: settled_in_process(samples))
    print(json.dumps({"in_process_s": in_process_s, "left_to_workers": len(samples) - settled}))
    from reward_funcs.pool import Task, WorkerPool

    for processes in (1, 3):
        before = workers_cpu_s()
        with WorkerPool(num_workers=1, spare=processes - 1) as pool:
            start_s, _ = timed(lambda: pool.compare([Task("x+1", "1+x")]))
        cpu_s = workers_cpu_s() - before
        print(json.dumps({"processes_started": processes, "first_verdict_s": start_s, "workers_cpu_s": cpu_s}))


def child_trl(args: argparse.Namespace) -> None:
    """TRL's reward on the completions of the cold seed and of the first warm one, in chunks."""
    from trl.rewards import accuracy_reward

    for state, seed in (("cold", COLD_SEED), ("warm", WARM_SEEDS[0])):
        samples = completions(args, seed)
        for start in range(0, len(samples), TRL_CHUNK):
            chunk = samples[start : start + TRL_CHUNK]
            messages = [[{"role": "assistant", "content": sample.completion}] for sample in chunk]
            golds = [gold if "$" in gold else f"${gold}$" for gold in (str(sample.gold) for sample in chunk)]
            seconds, rewards = timed(lambda m=messages, g=golds: accuracy_reward(m, g))
            agree = sum(got == sample.reward for got, sample in zip(rewards, chunk, strict=True))
            print(json.dumps({"state": state, "count": len(chunk), "seconds": seconds, "agree": agree}), flush=True)


def trl_figures(args: argparse.Namespace) -> dict[str, Any]:
    """Completions per second of TRL's reward."""
    chunks, figures = child(args, "trl", TRL_LIMIT_S), {}
    for state in ("cold", "warm"):
        done = [chunk for chunk in chunks if chunk["state"] == state]
        count, seconds = sum(chunk["count"] for chunk in done), sum(chunk["seconds"] for chunk in done)
        agree = sum(chunk["agree"] for chunk in done)
        rate = {"per_s": count / seconds, "agreement": agree / count} if count else {"per_s": None, "agreement": None}
        figures[state] = {"graded": count, **rate}
    return figures


def latencies(reward: Callable[..., Any], samples: Sequence[Sample]) -> dict[str, float]:
    """Milliseconds of calls with one completion each."""
    seconds = sorted(rewards_of(reward, [sample])[0] for sample in samples)
    at = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
    return {name: 1e3 * seconds[round(share * (len(seconds) - 1))] for name, share in at.items()}


def throughput(args: argparse.Namespace) -> dict[str, Any]:
    """Speed, latency and correctness of `AccuracyReward`, and TRL's on the same completions."""
    from reward_funcs import accuracy_reward

    cold = [child(args, "cold")[0] for _ in range(args.repeats)]
    parts = child(args, "parts")
    trl = trl_figures(args)
    rewards_of(accuracy_reward, completions(args, COLD_SEED))
    rates, wrong, settled, lengths = [], [], 0, []
    for seed in (*WARM_SEEDS, *WIDE_SEEDS):
        samples = completions(args, seed, WIDE if seed in WIDE_SEEDS else 1)
        seconds, rewards = rewards_of(accuracy_reward, samples)
        wrong += disagreements(samples, rewards)
        lengths += [len(sample.completion) for sample in samples]
        if seed in WARM_SEEDS:
            rates.append(len(samples) / seconds)
            settled += settled_in_process(samples)
    latency = latencies(accuracy_reward, completions(args, LATENCY_SEED))
    accuracy_reward.close()
    cold_rate = args.count / statistics.median(run["call_s"] for run in cold)
    return {
        "completions": "of the data sets" if args.data.is_dir() else "of the labelled set: the data sets are not here",
        "mean_characters": statistics.mean(lengths),
        "warm": {"per_s": statistics.median(rates), "each": rates},
        "cold": {"per_s": cold_rate, "each": cold},
        "cold_parts": parts,
        "trl": trl,
        "times_trl": {
            "warm": rates[0] / trl["warm"]["per_s"] if trl["warm"]["per_s"] else None,
            "cold": cold_rate / trl["cold"]["per_s"] if trl["cold"]["per_s"] else None,
        },
        "settled_in_process": settled / (args.count * len(WARM_SEEDS)),
        "latency": latency,
        "graded": len(lengths),
        "wrong": [entry for entry in wrong if entry["got"] is not None],
        "not_judged": [entry for entry in wrong if entry["got"] is None],
    }


# hostile answers


def hostile_completions() -> list[str]:
    """The tests' hostile answers in a box, or in `<answer>` tags where their braces would close it."""
    answers = [answer for _, answer in runpy.run_path(str(TESTS / "hostile.py"))["hostile_answers"]()]
    return [rf"\boxed{{{a}}}" if a.count("{") == a.count("}") else f"<answer>{a}</answer>" for a in answers]


class PeakMemory:
    """Watches the worker processes: `megabytes` is the largest resident set of any, `pids` are all there were."""

    def __init__(self, pids: Callable[[], list[int]]) -> None:
        self.megabytes, self.pids = 0.0, set()
        self._pids, self._stop = pids, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            for pid in self._pids():
                self.pids.add(pid)
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                if match := re.search(r"VmHWM:\s+(\d+) kB", status):
                    self.megabytes = max(self.megabytes, int(match[1]) / 1024)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def in_thread(function: Callable[[], Any]) -> Any:
    """The result of a call in another thread."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(function).result()


def hostile_run(reward: Callable[..., Any], gold: str, texts: list[str], run: Callable[..., Any]) -> dict[str, Any]:
    """Grade hostile answers in one call, and each in a call of its own."""
    batch_s, rewards = run(lambda: timed(lambda: reward(texts, solution=[gold] * len(texts))))
    singles = run(lambda: [timed(lambda t=text: reward([t], solution=[gold]))[0] for text in texts])
    return {
        "batch_s": batch_s,
        "one_by_one_s": sum(singles),
        "slowest_s": max(singles),
        "within_deadline": sum(seconds <= TIMEOUT_S for seconds in singles),
        "rewards": dict(sorted(Counter(map(str, rewards)).items())),
    }


def hostile(args: argparse.Namespace) -> dict[str, Any]:
    """Hostile answers: time, memory, verdicts, and what is left of the workers."""
    from reward_funcs import AccuracyReward
    from reward_funcs.pool import Task, Verdict, shared_pool

    texts = hostile_completions()
    settings = {
        "default": ("7", AccuracyReward(timeout=TIMEOUT_S)),
        "no_refusals": ("x^2+1", AccuracyReward(timeout=TIMEOUT_S, allow_unevaluated=True, allow_unsolved=True)),
    }
    pool, runs = shared_pool(num_workers=2, timeout=TIMEOUT_S), []
    with PeakMemory(lambda: pool.pids) as memory:
        pool.compare([Task("x+1", "1+x")])  # starting is no part of what is timed
        for name, (gold, reward) in settings.items():
            for thread, run in (("main", lambda function: function()), ("other", in_thread)):
                runs.append({"settings": name, "thread": thread, **hostile_run(reward, gold, texts, run)})
        verdicts = pool.compare([Task(r"\frac{1}{2}", "0.5"), Task("x+1", "1-x")])
    pool.close()
    time.sleep(0.5)
    return {
        "answers": len(texts),
        "timeout_s": TIMEOUT_S,
        "runs": runs,
        "worker_peak_mb": memory.megabytes,
        "workers_used": len(memory.pids),
        "right_afterwards": verdicts == [Verdict(True, "equal"), Verdict(False, "different")],
        "left_after_close": sum(Path(f"/proc/{pid}").exists() for pid in memory.pids),
    }


# golds

GOLD_FORMS = {
    "bare, boxed": ("%s", r"So it is $\boxed{%s}$."),
    "in dollars, tagged": ("$%s$", "<answer>%s</answer>"),
    "boxed, stated": (r"\boxed{%s}", "The final answer is $%s$."),
}


def model_solutions(data: Path) -> dict[str, Any]:
    """Share of GSM8K's model solutions whose verdict is the published one, by two rewards."""
    from reward_funcs import AccuracyReward, numeric_reward

    texts, golds, labels = workload.model_solutions(data)
    figures: dict[str, Any] = {"solutions": len(texts)}
    rewards = {"numeric": numeric_reward, "accuracy": AccuracyReward(extraction="regex", pattern="A: (.*)")}
    for name, reward in rewards.items():
        pairs = list(zip(reward(texts, solution=golds), labels, golds, texts, strict=True))
        differ = [
            {"gold": g, "end": t[-60:], "published": want, "got": got} for got, want, g, t in pairs if got != want
        ]
        figures[name] = {"agreement": 1 - len(differ) / len(texts), "differ": len(differ), "examples": differ[:10]}
    return figures


def golds(args: argparse.Namespace) -> dict[str, Any]:
    """Golds against themselves, and published verdicts."""
    from reward_funcs import accuracy_reward

    if not args.data.is_dir():
        return {"left_out": "the data sets are not here"}
    figures = {}
    for source, texts in workload.golds(args.data).items():
        forms = {}
        for form, (gold, completion) in GOLD_FORMS.items():
            rewards = accuracy_reward([completion % text for text in texts], solution=[gold % text for text in texts])
            failed = [text for text, reward in zip(texts, rewards, strict=True) if reward != 1.0]
            forms[form] = {"rate": 1 - len(failed) / len(texts), "failed": len(failed), "examples": failed[:5]}
        figures[source] = {"golds": len(texts), "forms": forms}
    accuracy_reward.close()
    return {"self_match": figures, "gsm8k_model_solutions": model_solutions(args.data)}


# the other rewards


def other_calls(samples: Sequence[Sample]) -> dict[str, Callable[[], Any]]:
    """A call on all completions for each reward, with the ends that it reads."""
    import reward_funcs as rf

    texts = [sample.completion for sample in samples]
    ids = [[zlib.crc32(token.encode()) for token in re.findall(r"\w+|[^\w\s]", text)] for text in texts]
    reasons = [re.sub(r"\\boxed|</?(?:think|answer)>", "", text) for text in texts]
    choices, chosen = [text + "\n\nThe answer is (B)." for text in reasons], ["B"] * len(texts)
    countdown = [text + "\n\n<answer>(25 - 1) * 4 + 3</answer>" for text in reasons]
    targets = [{"target": 99, "nums": [1, 3, 4, 25]}] * len(texts)
    scripts = rf.LanguageConsistencyReward("en", candidates=())
    return {
        "think_format_reward": lambda: rf.think_format_reward(texts),
        "think_answer_format_reward": lambda: rf.think_answer_format_reward(texts),
        "LanguageConsistencyReward, scripts alone": lambda: scripts(texts),
        "soft_overlong_reward": lambda: rf.soft_overlong_reward(texts, completion_ids=ids),
        "length_penalty_reward": lambda: rf.length_penalty_reward(texts, completion_ids=ids),
        "repetition_penalty_reward, tokens": lambda: rf.repetition_penalty_reward(texts, completion_ids=ids),
        "repetition_penalty_reward, words": lambda: rf.repetition_penalty_reward(texts),
        "choice_reward": lambda: rf.choice_reward(choices, solution=chosen),
        "countdown_reward": lambda: rf.countdown_reward(countdown, solution=targets),
    }


def import_figures(statement: str) -> dict[str, Any]:
    """Milliseconds that a statement adds to a bare interpreter, and what it loads beside the standard library."""
    seconds: dict[str, list[float]] = {"pass": [], statement: []}
    for _ in range(IMPORTS):
        for code, measured in seconds.items():
            measured.append(timed(lambda c=code: subprocess.run([sys.executable, "-c", c], cwd=ROOT, check=True))[0])
    code = f"import sys; old = set(sys.modules); {statement}; print(*(set(sys.modules) - old))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    tops = {name.partition(".")[0] for name in loaded.stdout.split()}
    extra = statistics.median(seconds[statement]) - statistics.median(seconds["pass"])
    foreign = sorted(tops - sys.stdlib_module_names - {"reward_funcs"})
    return {"statement": statement, "ms": 1e3 * extra, "modules": len(loaded.stdout.split()), "foreign": foreign}


def others(args: argparse.Namespace) -> dict[str, Any]:
    """Speed of the other rewards, and of importing."""
    samples, speeds = completions(args, COLD_SEED), {}
    for name, call in other_calls(samples).items():
        call()
        seconds, rewards = zip(*(timed(call) for _ in range(args.repeats)), strict=True)
        speeds[name] = {"per_s": len(samples) / statistics.median(seconds), "mean": statistics.mean(rewards[0])}
    statements = ("import reward_funcs", "from reward_funcs import accuracy_reward")
    return {"speed": speeds, "imports": [import_figures(statement) for statement in statements]}


# all


def profile(args: argparse.Namespace) -> None:
    """Print the hottest functions of comparing in process."""
    samples = [sample for seed in WARM_SEEDS for sample in completions(args, seed)]
    settled_in_process(completions(args, COLD_SEED))
    profiler = cProfile.Profile()
    profiler.runcall(settled_in_process, samples)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(20)


def marks(figures: dict[str, Any]) -> dict[str, Any]:
    """What was asked for, what was measured, and whether that is enough."""
    found: dict[str, tuple[Any, str, Any]] = {}
    if speed := figures.get("throughput"):
        found["warm, completions/s"] = (speed["warm"]["per_s"], ">=", 2000)
        found["cold, completions/s"] = (speed["cold"]["per_s"], ">=", 600)
        found["times TRL, warm"] = (speed["times_trl"]["warm"], ">=", 5)
        found["times TRL, cold"] = (speed["times_trl"]["cold"], ">=", 5)
        found["settled in process"] = (speed["settled_in_process"], ">=", 0.97)
        found["wrong verdicts"] = (len(speed["wrong"]), "<=", 0)
    if hard := figures.get("hostile"):
        settled = min(run["within_deadline"] for run in hard["runs"])
        found["hostile answers settled within the deadline"] = (settled, ">=", hard["answers"])
        found["workers left after close"] = (hard["left_after_close"], "<=", 0)
    if rest := figures.get("others"):
        found["import reward_funcs, ms"] = (rest["imports"][0]["ms"], "<=", 60)
    return {
        name: {"value": value, "mark": f"{sign} {mark}", "met": _met(value, sign, mark)}
        for name, (value, sign, mark) in found.items()
    }


def _met(value: float | None, sign: str, mark: float) -> bool:
    return value is not None and (value >= mark if sign == ">=" else value <= mark)


PARTS = {"throughput": throughput, "hostile": hostile, "golds": golds, "others": others}
CHILDREN = {"cold": child_cold, "parts": child_parts, "trl": child_trl}


def write(args: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Write the record."""
    names = ("trl", "math-verify", "sympy")
    versions = {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}
    record = {
        # where the data sets lie says nothing about the figures
        "command": re.sub(r" --data(=| )\S+", "", shlex.join(["python", *sys.argv])),
        "settings": {
            "count": args.count,
            "repeats": args.repeats,
            "seeds": [COLD_SEED, *WARM_SEEDS, LATENCY_SEED, *WIDE_SEEDS],
        },
        "versions": versions,
        "machine": {"device": f"{os.cpu_count()} CPU cores", "cpu": platform.machine(), "load": os.getloadavg()[0]},
        "marks": marks(figures),
        "figures": figures,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--count", type=int, default=1000, help="completions a seed")
    parser.add_argument("--repeats", type=int, default=3, help="cold processes, and calls of the other rewards")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the data sets")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--child", choices=list(CHILDREN), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return CHILDREN[args.child](args)
    if args.profile:
        return profile(args)
    figures = {}
    for part in args.parts:
        seconds, figures[part] = timed(lambda p=part: PARTS[p](args))
        print(f"{part}: {seconds:.0f} s\n{json.dumps(figures[part], indent=1)}", flush=True)
    print(json.dumps(marks(figures), indent=1))
    if args.output:
        write(args, figures)


if __name__ == "__main__":
    main()
