"""Time `trl_ext.gae` against the plain Python loop over tokens, and compare their results.

    python benchmarks/bench_gae.py --output benchmarks/results/gae.json

Both run on rewards, values and mask of shape (B, T) with ragged rows; a time is the median of the repeats.
"""

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from trl_ext.advantages import gae

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


def loop_gae(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float) -> Tensor:
    """The recursion A_t = delta_t + gamma * lam * A_{t+1}, one token at a time over the whole batch."""
    advantages = torch.zeros_like(rewards)
    running = next_value = torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        running = torch.where(mask[:, t], delta + gamma * lam * running, running)
        next_value = torch.where(mask[:, t], values[:, t], next_value)
        advantages[:, t] = torch.where(mask[:, t], running, 0.0)
    return advantages


def median_seconds(function: Callable[[], object], repeats: int, device: torch.device) -> float:
    """Median wall time of a call, after one to warm up."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def measure(length: int, args: argparse.Namespace) -> dict[str, float]:
    """Times and largest difference at one length."""
    torch.manual_seed(args.seed)
    shape, device = (args.batch, length), torch.device(args.device)
    rewards, values = torch.randn(shape, device=device), torch.randn(shape, device=device)
    mask = torch.rand(shape, device=device) < 0.9
    exact = loop_gae(rewards.double(), values.double(), mask, args.gamma, args.lam)
    advantages, _ = gae(rewards, values, mask, gamma=args.gamma, lam=args.lam)
    loop = median_seconds(lambda: loop_gae(rewards, values, mask, args.gamma, args.lam), args.loop_repeats, device)
    ours = median_seconds(lambda: gae(rewards, values, mask, gamma=args.gamma, lam=args.lam), args.repeats, device)
    error = float((advantages - exact).abs().max() / exact.abs().max())
    return {"length": length, "loop_ms": 1e3 * loop, "gae_ms": 1e3 * ours, "speedup": loop / ours, "max_error": error}


def main() -> None:
    """Print the table, and write it when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--gamma", type=float, default=1.0)
    parser.add_argument("--lam", type=float, default=0.95)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--loop-repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    print(f"{'T':>6} {'loop ms':>10} {'gae ms':>10} {'speed-up':>10} {'max error / max|A|':>20}")
    rows = []
    for length in LENGTHS:
        row = measure(length, args)
        rows.append(row)
        print("{length:6d} {loop_ms:10.2f} {gae_ms:10.3f} {speedup:10.1f} {max_error:20.1e}".format(**row))
    if args.output:
        device = torch.cuda.get_device_name(args.device) if args.device.startswith("cuda") else platform.machine()
        machine = {"device": device, "cpu_count": os.cpu_count(), "torch_threads": torch.get_num_threads()}
        versions = {"python": platform.python_version(), "torch": torch.__version__}
        command = shlex.join(["python", *sys.argv])
        settings = {name: getattr(args, name) for name in ("batch", "gamma", "lam", "seed", "repeats", "loop_repeats")}
        record = {"command": command, "settings": settings, "versions": versions, "machine": machine, "figures": rows}
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
