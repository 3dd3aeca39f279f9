"""Time a build of 100,000 maths rows with its checks, and count what the checks find in real training sets.

    python benchmarks/bench_data.py --data DIR --output benchmarks/results/data.json
    python benchmarks/bench_data.py hub

DIR holds JSON Lines in the schema of the Hub: gsm8k_train.jsonl, gsm8k_test.jsonl, math_train.jsonl (problem, answer),
orz_57k_items.jsonl, math500.jsonl, olympiadbench.jsonl. A file that is not there is left out.

The rows that are timed are the training problems with other numbers and some other words, 2 % of them written twice
with other spaces and 1 % with one other word. Each of the two runs is a process of its own, of which the second finds
what the first has cached; memory is the highest sum over the process and its workers (proportional set size, in which
pages that processes share count once). Streams are read to their end, from files of conversations of about 10 kB.

`hub` alone reads parquet and JSON as from the Hub, through a server on this machine that answers requests for ranges of
a file, and from the disk: usual files, and the worst ones, of which a page, a dictionary, a footer or a row is large.
Each is read by a process of its own, whose highest resident memory the kernel tells (VmHWM), with that of the process
before the first row, most of it imports.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from datasets_builders import build_eval, build_with_report, decontaminate, deduplicate
from datasets_builders.registry import BUILDERS
from datasets_builders.schema import alnum

TRAINING = {
    "gsm8k train": ("gsm8k_train.jsonl", lambda row: (row["question"], row["answer"].rpartition("####")[2])),
    "MATH train": ("math_train.jsonl", lambda row: (row["problem"], row["answer"])),
    "ORZ 57k": ("orz_57k_items.jsonl", lambda row: (row[0]["value"], row[1]["ground_truth"]["value"])),
}
EVALUATION = {"gsm8k": "gsm8k_test.jsonl", "math_500": "math500.jsonl", "olympiadbench": "olympiadbench.jsonl"}
RULES: dict[str, dict[str, Any]] = {
    "exact": {"mode": "exact"},
    "any 8-gram": {"mode": "any"},
    "any 13-gram": {"mode": "any", "n": 13},
    "half of an evaluation prompt": {},
    "half, without short words": {"ignore_short_tokens": True},
    "half, by token": {"unit": "token"},
    "half, by token, without short tokens": {"unit": "token", "ignore_short_tokens": True},
}


def training_rows(data: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Name and rows of each training set that is there: prompt, solution and task."""
    for name, (file, read) in TRAINING.items():
        if (data / file).exists():
            lines = (data / file).read_text(encoding="utf-8").splitlines()
            pairs = [read(json.loads(line)) for line in lines]
            yield name, [{"prompt": text, "solution": gold or "", "task": "math"} for text, gold in pairs]


def evaluation_sets(data: Path) -> dict[str, Any]:
    """The evaluation sets that are there, as rows."""
    present = {name: data / file for name, file in EVALUATION.items() if (data / file).exists()}
    return {name: build_eval(name, local_path=str(path), instruction="none") for name, path in present.items()}


def found_in(name: str, rows: list[dict[str, Any]], evaluations: dict[str, Any]) -> dict[str, Any]:
    """What deduplication and each rule of decontamination find in a training set."""
    _, duplicates = deduplicate(rows, near=True)
    by_letters = len(rows) - len({alnum(row["prompt"]) for row in rows})
    found = {rule: decontaminate(rows, evaluations, **settings)[1] for rule, settings in RULES.items()}
    figures = {"set": name, "rows": len(rows), **duplicates, "duplicate_by_letters_and_digits": by_letters}
    return figures | {"contaminated": {rule: report["contaminated"] for rule, report in found.items()}}


def write_rows(data: Path, file: Path, count: int, seed: int) -> None:
    """Write rows with the columns `problem` and `answer`."""
    draw = random.Random(seed)
    pairs = [(row["prompt"], row["solution"]) for _, rows in training_rows(data) for row in rows]
    pairs = [(text, gold) for text, gold in pairs if gold.strip()]
    vocabulary = sorted({word for text, _ in pairs for word in text.split() if word.isalpha() and len(word) > 3})
    recent: list[tuple[str, str]] = []
    with file.open("w", encoding="utf-8") as out:
        for _ in range(count):
            kind = draw.random() if recent else 1.0
            text, gold = draw.choice(recent if kind < 0.03 else pairs)
            if kind < 0.02:
                text = text.replace(" ", "  ")
            elif kind < 0.03:
                text = f"{draw.choice(vocabulary)} {text.partition(' ')[2]}"
            else:
                words = re.sub(r"\d+", lambda _: str(draw.randint(1, 999)), text).split(" ")
                for place in draw.sample(range(len(words)), len(words) // 8):
                    words[place] = draw.choice(vocabulary)
                text = " ".join(words)
                recent = [*recent[-999:], (text, gold)]
            out.write(json.dumps({"problem": text, "answer": gold}) + "\n")


def timed(seconds: dict[str, float], step: str, function: Callable[[], Any]) -> Any:
    """What a function returns; its wall time goes into `seconds`."""
    start = time.perf_counter()
    result = function()
    seconds[step] = time.perf_counter() - start
    return result


def child(data: Path, file: Path, num_proc: int) -> None:
    """Build and check the rows, and print times and counts."""
    seconds: dict[str, float] = {}
    options = {"local_path": str(file), "instruction": "none", "num_proc": num_proc}
    built = timed(
        seconds, "convert and deduplicate", lambda: build_with_report("acereason_math", deduplicate=True, **options)
    )
    evaluations = timed(seconds, "read evaluation sets", lambda: evaluation_sets(data))
    kept, contamination = timed(seconds, "decontaminate", lambda: decontaminate(built.dataset, evaluations))
    total = sum(seconds.values())
    near, report = timed(seconds, "near duplicates (not in the total)", lambda: deduplicate(kept, near=True))
    counts = {"loaded": built.report.loaded, "dropped": built.report.dropped, "duplicate": built.report.duplicates}
    counts |= {"disagreeing": built.report.disagreeing, "contaminated": contamination["contaminated"]}
    counts |= {"kept": len(kept), "near_duplicate": report["near_duplicate"], "kept_of_near_duplicates": len(near)}
    print(json.dumps({"seconds": seconds | {"total": total}, "counts": counts}))


def write_conversations(folder: Path, seed: int, size: int) -> list[Path]:
    """The same rows in the columns of Tulu 3 as JSON Lines (`size` bytes) and as parquet in groups of 1,000 rows."""
    import pyarrow
    import pyarrow.parquet

    draw = random.Random(seed)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(20_000)]
    lines, table = folder / "conversations.jsonl", folder / "conversations.parquet"
    writer, rows, count = None, [], 0
    with lines.open("w", encoding="utf-8") as out:
        while out.tell() < size:
            turns = [(role, " ".join(draw.choices(words, k=n))) for role, n in (("user", 100), ("assistant", 1500))]
            messages = [{"role": role, "content": text} for role, text in turns]
            rows.append({"id": f"r{count}", "messages": messages, "source": "s"})
            out.write(json.dumps(rows[-1]) + "\n")
            count += 1
            if len(rows) == 1000:
                batch = pyarrow.Table.from_pylist(rows)
                writer = writer or pyarrow.parquet.ParquetWriter(table, batch.schema)
                writer.write_table(batch)
                rows = []
    if writer is not None:
        writer.close()
    return [lines, table]


# Of the files that are read as from the Hub: share of `--hub-mib`, bytes of a row, and how they are written. The last
# ones are as bad as they come: pages, dictionaries, footers and rows that any reader must hold whole.
HUB_FILES = {
    "groups of 1,000 rows": ("groups.parquet", 1.0, 10_000),
    "one row group": ("group.parquet", 0.35, 10_000),
    "rows of 1 MB, nine to a page": ("nine.parquet", 0.5, 1_000_000),
    "rows of 5 MB among 500 short ones": ("mixed.parquet", 0.2, 5_000_000),
    "JSON Lines, rows of 2 MB": ("rows.jsonl", 0.3, 2_000_000),
    "JSON list, rows of 8 MB": ("list.json", 0.45, 8_000_000),
    "rows of 100 kB, 1,024 to a page": ("page.parquet", 0.5, 100_000),
    "rows of 1 MB, all in one page": ("page.parquet", 0.5, 1_000_000),
    "one dictionary of 20,000 texts": ("dictionary.parquet", 1.0, 10_000),
    "1,000 columns beside it, 200 groups": ("columns.parquet", 0.06, 3_000),
    "JSON list, rows of 50 MB": ("list.json", 0.3, 50_000_000),
}


class Texts:
    """Text of random words, as fast as it is needed: parts of one text of some MB."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        known = [
            "".join(self.draw.choices("abcdefghijklmnopqrstuvwxyz", k=self.draw.randint(2, 9))) for _ in range(20_000)
        ]
        self.text = " ".join(self.draw.choices(known, k=1_000_000))

    def __call__(self, length: int) -> str:
        parts = []
        while length > 0:
            start = self.draw.randrange(len(self.text) // 2)
            parts.append(self.text[start : start + min(length, len(self.text) // 2)])
            length -= len(parts[-1])
        return "".join(parts)


def conversations(texts: Texts, lengths: list[int]) -> Any:
    """A table in the columns of Tulu 3 of one chunk a column, with replies of these lengths."""
    import pyarrow

    turns = [[("user", f"{texts.draw.random()} {texts(200)}"), ("assistant", texts(length))] for length in lengths]
    messages = [[{"role": role, "content": text} for role, text in row] for row in turns]
    rows = [{"id": f"r{index}", "messages": row, "source": "s"} for index, row in enumerate(messages)]
    return pyarrow.Table.from_pylist(rows).combine_chunks()


def write_hub_file(file: Path, seed: int, size: int, length: int) -> dict[str, int]:
    """Write rows of `length` bytes, `size` in all, as the name of the file says; facts of the file."""
    import pyarrow.parquet

    texts, count = Texts(seed), max(2, size // length)
    if file.suffix != ".parquet":
        write_code(file, texts, count, length)
        return {"file_mib": file.stat().st_size >> 20}
    options: dict[str, Any] = {"row_group_size": 10**9}
    if file.stem in ("groups", "group", "nine"):
        each = 9 if file.stem == "nine" else 1000
        table = pyarrow.concat_tables(conversations(texts, [length] * each) for _ in range(-(-count // each)))
        options = {"row_group_size": 1000} if file.stem == "groups" else options
    elif file.stem == "mixed":
        parts = [part for _ in range(count) for part in ([100] * 500, [length])]
        table = pyarrow.concat_tables(conversations(texts, part) for part in parts)
    elif file.stem == "dictionary":
        few = conversations(texts, [length] * 20_000)
        table = few.take([texts.draw.randrange(20_000) for _ in range(count)]).combine_chunks()
        options["dictionary_pagesize_limit"] = 1 << 30
    else:
        table = conversations(texts, [length] * count)
    if file.stem == "columns":
        for index in range(1000):
            table = table.append_column(f"c{index}", pyarrow.array(range(count)))
        options = {"row_group_size": -(-count // 200)}
    pyarrow.parquet.write_table(table, file, **options)
    facts = pyarrow.parquet.read_metadata(file)
    groups = [facts.row_group(index).total_byte_size for index in range(facts.num_row_groups)]
    return {"file_mib": file.stat().st_size >> 20, "row_groups": len(groups), "largest_group_mib": max(groups) >> 20}


def write_code(file: Path, texts: Texts, count: int, length: int) -> None:
    """Write rows in the columns of Klear's code, with tests of `length` bytes, as JSON Lines or as one list."""
    is_list = file.suffix == ".json"
    with file.open("w", encoding="utf-8") as out:
        for index in range(count):
            tests = json.dumps({"inputs": [texts(length // 2)], "outputs": [texts(length // 2)]})
            row = {"hash": str(index), "ability": "code", "data_source": "coder1_longcot"}
            row |= {"prompt": [{"role": "user", "content": f"Problem {index}?"}]}
            row |= {"reward_model": {"ground_truth": tests, "style": "rule"}}
            out.write(("[" if not index else ",") * is_list + json.dumps(row) + "\n")
        out.write("]" * is_list)


class Ranges(BaseHTTPRequestHandler):
    """Serves one folder in ranges, as the Hub does."""

    def __init__(self, *args: Any, folder: Path) -> None:
        self.folder = folder
        super().__init__(*args)

    def do_GET(self) -> None:
        file = self.folder / Path(self.path).name
        size = file.stat().st_size
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(match[1]), min(int(match[2]), size - 1)) if match else (0, size - 1)
        self.send_response(206 if match else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        # a question for the size alone closes the connection in the middle of an answer
        if self.command == "GET" and match:
            with file.open("rb") as stream:
                stream.seek(first)
                self.wfile.write(stream.read(last - first + 1))

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address under which the files of a folder are served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Ranges, folder=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def hub_streams(args: argparse.Namespace) -> dict[str, Any]:
    """Figures of each file of `HUB_FILES`, read as from the Hub, and the memory of the same file on the disk."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as address:
        for name, (file_name, _, length) in HUB_FILES.items():
            file, cache = Path(folder) / file_name, Path(folder) / "cache"
            command = [sys.executable, __file__, "--seed", str(args.seed), "--hub-mib", str(args.hub_mib)]
            # in a process of its own: what it takes to write a file is not there when it is read
            written = subprocess.run(
                [*command, "--hub-file", name, str(file)], check=True, capture_output=True, text=True
            )
            facts = json.loads(written.stdout) | run_child(args, f"{address}/{file.name}", cache, "--hub-child")
            local = run_child(args, file, cache, "--hub-child")
            found[name] = facts | {"bytes_of_a_row": length, "local_resident_mib": local["resident_mib"]}
            print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
            file.unlink()
            shutil.rmtree(cache, ignore_errors=True)
    return found


def resident_mib() -> int:
    """Highest resident memory of this process so far, as Linux tells it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) >> 10


def hub_child(place: str) -> None:
    """Read a stream to its end by the way of the Hub, or from a file, and print how much memory that took."""
    name, builder = ("tulu_3", "parquet") if place.endswith(".parquet") else ("klear_code", "json")
    if "://" in place:
        source = replace(BUILDERS[name], path=builder, data_files=place, revision=None)
        dataset = build_with_report(source, streaming=True).dataset
    else:
        dataset = build_with_report(name, local_path=place, streaming=True).dataset
    before, start = resident_mib(), time.perf_counter()
    count = sum(1 for _ in dataset)
    seconds = time.perf_counter() - start
    print(json.dumps({"rows": count, "seconds": seconds, "before_mib": before, "resident_mib": resident_mib()}))


def stream_child(file: Path) -> None:
    """Read a stream to its end and print how many rows it had."""
    start = time.perf_counter()
    count = sum(1 for _ in build_with_report("tulu_3", local_path=str(file), streaming=True).dataset)
    print(json.dumps({"rows": count, "seconds": time.perf_counter() - start, "file_mib": file.stat().st_size >> 20}))


def peak_memory(process: subprocess.Popen[str], peak: list[int]) -> None:
    """Keep the highest memory of a process and all below it, in bytes, in `peak[0]` until it ends."""
    import psutil

    while process.poll() is None:
        total = 0
        try:
            root = psutil.Process(process.pid)
            for one in (root, *root.children(recursive=True)):
                total += one.memory_full_info().pss if platform.system() == "Linux" else one.memory_info().rss
        except psutil.Error:
            continue  # one of them has just ended
        peak[0] = max(peak[0], total)
        time.sleep(0.05)


def run_child(args: argparse.Namespace, file: Path | str, cache: Path, kind: str = "--child") -> dict[str, Any]:
    """Figures of one run, with its highest memory."""
    command = [sys.executable, __file__, "--num-proc", str(args.num_proc)]
    command += ["--data", str(args.data)] if args.data else []
    environment = os.environ | {"HF_DATASETS_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        [*command, kind, str(file)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    peak = [0]
    watcher = threading.Thread(target=peak_memory, args=(process, peak))
    watcher.start()
    output, errors = process.communicate()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"the timed run failed:\n{errors[-2000:]}")
    figures: dict[str, Any] = json.loads(output.splitlines()[-1])
    return figures | {"peak_memory_mib": round(peak[0] / 2**20)}


def main() -> None:
    """Print the figures, and write them when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "part", nargs="?", choices=("all", "hub"), default="all", help="all, or the reading as from the Hub"
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--stream-mib", type=int, default=1024, help="size of the streamed JSON Lines")
    parser.add_argument(
        "--hub-mib", type=int, default=1024, help="size of the largest file that is read as from the Hub"
    )
    parser.add_argument("--hub-child", help=argparse.SUPPRESS)
    parser.add_argument("--hub-file", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--stream-child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.data, args.child, args.num_proc)
        return
    if args.stream_child:
        stream_child(args.stream_child)
        return
    if args.hub_file:
        name, place = args.hub_file
        _, share, length = HUB_FILES[name]
        print(json.dumps(write_hub_file(Path(place), args.seed, int(share * args.hub_mib * 2**20), length)))
        return
    if args.hub_child:
        hub_child(args.hub_child)
        return
    if args.part == "all" and args.data is None:
        parser.error("give --data, or only the part `hub`")
    figures = {"hub_streams": hub_streams(args)} if args.part == "hub" else all_figures(args)
    print(json.dumps(figures, indent=2))
    if args.output:
        write_record(args, figures)


def all_figures(args: argparse.Namespace) -> dict[str, Any]:
    """Every figure."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        write_rows(args.data, rows, args.rows, args.seed)
        speed = [{"run": run, **run_child(args, rows, Path(folder) / "cache")} for run in ("first", "second")]
        files = write_conversations(Path(folder), args.seed, args.stream_mib * 2**20)
        streams = {f.suffix[1:]: run_child(args, f, Path(folder) / "cache", "--stream-child") for f in files}
    evaluations = evaluation_sets(args.data)
    sizes = {name: len(dataset) for name, dataset in evaluations.items()}
    found = [found_in(name, rows, evaluations) for name, rows in training_rows(args.data)]
    figures = {"speed": speed, "streams": streams, "hub_streams": hub_streams(args)}
    return figures | {"evaluation_sets": sizes, "found": found}


def write_record(args: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Write the figures with what they were measured with."""
    # where the data lie says nothing about the figures
    command = shlex.join(["python", *("DIR" if word == str(args.data) else word for word in sys.argv)])
    versions = {name: importlib.metadata.version(name) for name in ("datasets", "numpy", "pyarrow")}
    record = {
        "command": command,
        "settings": {name: getattr(args, name) for name in ("rows", "num_proc", "seed", "stream_mib", "hub_mib")},
        "versions": {"python": platform.python_version(), **versions},
        "machine": {"device": f"{os.cpu_count()} CPU cores"},
        "figures": figures,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
