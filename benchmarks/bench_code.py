"""Measure `CodeReward`: programs per second with trivial tests, for each kind, with the isolation of this machine.

python benchmarks/bench_code.py --output benchmarks/results/code.json
"""

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import time
from pathlib import Path

from reward_funcs.code import CodeReward
from reward_funcs.sandbox import sandbox_report

KINDS = {
    "asserts": ("def f(x):\n    return {n} * 0 + 2 * x", {"asserts": ["assert f(2) == 4", "assert f(3) == 6"]}),
    "functional": ("def f(x):\n    return {n} * 0 + 2 * x", {"fn_name": "f", "inputs": [[2], [3]], "outputs": [4, 6]}),
    "stdio": ("print({n} * 0 + 2 * int(input()))", {"inputs": ["2"], "outputs": ["4"]}),
    "pytest": ("def f(x):\n    return {n} * 0 + 2 * x", {"pytest": "def test_f():\n    assert f(2) == 4"}),
}


def measured(kind: str, programs: int, repeats: int, workers: int) -> dict[str, float]:
    """Mean and standard deviation of programs per second; every program is different, so that each one runs."""
    code, gold = KINDS[kind]
    texts = [f"```python\n{code.format(n=n)}\n```" for n in range(programs)]
    reward = CodeReward(kind, num_workers=workers, timeout=30, total_timeout=60)
    reward(texts[:2], solution=[gold] * 2)
    rates = []
    for _ in range(repeats):
        start = time.perf_counter()
        rewards = reward(texts, solution=[gold] * programs)
        rates.append(programs / (time.perf_counter() - start))
        assert rewards == [1.0] * programs
    return {"mean": round(statistics.mean(rates), 1), "std": round(statistics.stdev(rates), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    report = sandbox_report()
    result = {
        "command": shlex.join(["python", "benchmarks/bench_code.py", *sys.argv[1:]]),
        "python": platform.python_version(),
        "machine": {"device": f"{os.cpu_count()} CPU cores"},
        "isolation": report.isolation,
        "layers": list(report.layers),
        "programs": options.programs,
        "repeats": options.repeats,
        "workers": options.workers,
        "programs_per_second": {
            kind: measured(kind, options.programs, options.repeats, options.workers) for kind in KINDS
        },
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
