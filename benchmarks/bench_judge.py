"""Measure `HTTPJudge`: a thousand items from an endpoint that takes 100 ms for each, and the same from the cache.

    python benchmarks/bench_judge.py --output benchmarks/results/judge.json

The endpoint is a process of its own on loopback that answers every request after `--latency` seconds. The lower bound
is `items / concurrency * latency`: 1.6 s for the defaults.
"""

import argparse
import asyncio
import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import huggingface_hub  # noqa: F401 - a trainer has it loaded when the first reward is asked for

from reward_funcs.judge import HTTPJudge, JudgeTask
from reward_funcs.rubric import Criterion

REPLY = '{"1": {"reason": "stated and right", "score": 4}}'
BODY = json.dumps(
    {
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": REPLY}}],
        "usage": {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100},
    }
).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


async def serve(latency: float) -> None:
    """Answer every request the same after `latency` seconds; print the port."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.split(b":")[1]))
                await asyncio.sleep(latency)
                writer.write(ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def tasks(items: int) -> list[JudgeTask]:
    """Different completions of a hundred words each."""
    criterion = Criterion("correctness", "The final answer is correct.")
    words = "so the train travels sixty kilometres in each of the hours that it is under way " * 6
    return [JudgeTask(f"{words}and the answer is {n}.", (criterion,), prompt="How fast is it?") for n in range(items)]


def measured(port: int, items: int, concurrency: int, folder: Path) -> dict[str, float]:
    """Seconds of one pass over the endpoint, one over the cache, and milliseconds of a call with one cached item."""
    judge = HTTPJudge(
        f"http://127.0.0.1:{port}/v1", "stub", max_concurrency=concurrency, cache=folder / "judge.sqlite", max_retries=0
    )
    asked = tasks(items)
    times = []
    for _ in range(2):
        start = time.perf_counter()
        verdicts = judge.score(asked)
        times.append(time.perf_counter() - start)
        assert [verdict.scores for verdict in verdicts] == [{"correctness": 4.0}] * items
    assert judge.counts["requests"] == items and judge.counts["cached"] == items, judge.counts
    singles = []
    for task in asked[:100]:
        start = time.perf_counter()
        judge.score([task])
        singles.append(time.perf_counter() - start)
    return {
        "endpoint_seconds": round(times[0], 3),
        "cached_ms_per_item": round(1000 * times[1] / items, 4),
        "cached_ms_single": round(1000 * statistics.median(singles), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.1)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--serve", action="store_true", help="only answer requests, which the measurement starts")
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve(args.latency))
        return
    command = [sys.executable, __file__, "--serve", "--latency", str(args.latency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            runs = []
            for _ in range(args.runs):
                with tempfile.TemporaryDirectory() as folder:
                    runs.append(measured(port, args.items, args.concurrency, Path(folder)))
        finally:
            server.terminate()
    result = {
        "command": shlex.join(["python", "benchmarks/bench_judge.py", *sys.argv[1:]]),
        "settings": {"items": args.items, "concurrency": args.concurrency, "latency": args.latency},
        "versions": {
            "python": platform.python_version(),
            "huggingface_hub": importlib.metadata.version("huggingface_hub"),
        },
        "machine": {"device": f"{os.cpu_count()} CPU cores", "architecture": platform.machine()},
        "runs": runs,
    }
    print(json.dumps(result, indent=2))
    if args.output:
        args.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
