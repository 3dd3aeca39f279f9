r"""Grade the labelled answers with public graders of mathematics, and write docs/graders.md from what they say.

    python benchmarks/bench_graders.py --site DIR --output benchmarks/results/graders.json
    python benchmarks/bench_graders.py --page [--check]     # the page from the results; --check fails where they differ

DIR is a folder with the packages that are not installed here; a grader whose package is missing is left out:

    pip install --no-deps --target DIR verl verifiers pylatexenc tensordict
    pip install --no-deps --target DIR/antlr_4_11 antlr4-python3-runtime==4.11.1    # for verl's prime_math

Every grader runs in a process of its own with limits on memory and files, one pair after the other; the process is
killed when a pair takes longer than the limit, and a new one goes on with the next pair.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks")]

from graders import GRADERS, Grader, make_importable  # noqa: E402 - the module next to this file

LABELLED = ROOT / "tests" / "reward_funcs" / "labelled_answers.jsonl"
PAGE = ROOT / "docs" / "graders.md"
BEGIN, END = "<!-- graders: written by benchmarks/bench_graders.py -->", "<!-- end of graders -->"
LIMIT = 40.0  # seconds a labelled pair: longer than any grader's own deadlines
SLOW_LIMIT, FRACTION_LIMIT = 20.0, 60.0
START_LIMIT = 180.0
KINDS = ("right", "false_positives", "false_negatives", "not_judged", "bad_gold_judged", "hangs")
MEANINGS = {"1": "1", "0": "0", "n": "None", "r": "raised", "h": "hung"}
NUM_EXAMPLES = 7
# where the label follows from what a grader takes for an answer or a gold, and not from mathematics
CONVENTIONS = frozenset(
    "think answer_tag final_phrase last_box hedge restatement chain unsolved no_answer bad_gold gold_form "
    "gold_list".split()
)
EXAMPLES = f"""\
Of each grader's wrong verdicts at most {NUM_EXAMPLES} are shown. They are chosen for variety, the kinds in turn and
one of a category, those first that no other grader has shown: they say what occurs, not how often."""
MAX_SHOWN = 110
TIME = """\
Seconds until a verdict on texts that are short and hard; the gold is 5, and the process was killed at the limit.
math-verify's own limits, 5 s a step, are signals, which work on the main thread alone: TRL switches them off elsewhere.
TRL also turns the parsed answer into text for its logs, after those limits; there the continued fraction stays, and
each further level about doubles its time. `accuracy_reward` refuses these texts by their form or decides them in
process. What does reach its workers is stopped after `timeout`, 2 s by default, on any thread."""


def fraction(depth: int) -> str:
    """A continued fraction."""
    return r"1+\frac{1}{" * depth + "2" + "}" * depth


FRACTION = "continued fraction, 21 deep"
# texts that are short and keep a computer busy; the gold of all is 5
SLOW = {
    FRACTION: rf"\boxed{{{fraction(21)}}}",
    "`9^{9^{9}}`": r"\boxed{9^{9^{9}}}",
    "`10000000!`": r"\boxed{10000000!}",
    "`5!!!!!!`": r"\boxed{5!!!!!!}",
    "`\\binom{10^9}{10^8}`": r"\boxed{\binom{1000000000}{100000000}}",
    "sum of a million terms": r"\boxed{\sum_{k=1}^{1000000}\frac{1}{k^2+k+1}}",
    "50,000 times `\\(`": r"\(" * 50_000,
}


def labelled() -> list[dict[str, Any]]:
    """The labelled pairs."""
    return [json.loads(line) for line in LABELLED.read_text(encoding="utf-8").splitlines()]


# running


class Child:
    """A process that grades with one grader."""

    def __init__(self, name: str, folders: Sequence[str]) -> None:
        command = [sys.executable, str(ROOT / "benchmarks" / "graders.py"), name, *folders]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self.reader = ThreadPoolExecutor(1)

    def answer(self, limit: float) -> dict[str, Any] | None:
        """Its next line, `None` after the limit.

        Raises:
            EOFError: When the process is gone.
        """
        assert self.process.stdout
        line = self.reader.submit(self.process.stdout.readline)
        try:
            text = line.result(timeout=limit)
        except TimeoutError:
            return None
        if not text:
            raise EOFError
        answer: dict[str, Any] = json.loads(text)
        return answer

    def ask(self, pair: dict[str, Any], limit: float) -> dict[str, Any] | None:
        """What it says of a pair."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(pair).encode() + b"\n")
        self.process.stdin.flush()
        return self.answer(limit)

    def close(self, seconds: float = 10.0) -> None:
        """Let it end; kill it and what it started, which is in its process group, where it does not."""
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.reader.shutdown()


def run(
    name: str, folders: Sequence[str], pairs: Sequence[dict[str, Any]], limits: Sequence[float]
) -> Iterator[tuple[str, float]]:
    """Verdict and seconds of each pair.

    Raises:
        RuntimeError: When the grader does not start.
    """
    child: Child | None = None
    for pair, limit in zip(pairs, limits, strict=True):
        if child is None:
            child = started(name, folders)
        try:
            answer = child.ask({"gold": pair["gold"], "completion": pair["completion"]}, limit)
        except (EOFError, BrokenPipeError):  # out of memory, or a crash
            yield "r", 0.0
        else:
            yield (answer["verdict"], answer["seconds"]) if answer else ("h", limit)
            if answer is not None:
                continue
        child.close(0.0)
        child = None
    if child is not None:
        child.close()


def started(name: str, folders: Sequence[str]) -> Child:
    """A process that is ready.

    Raises:
        RuntimeError: When it does not start.
    """
    child = Child(name, folders)
    try:
        if child.answer(START_LIMIT) is not None:
            return child
    except EOFError:
        pass
    child.close(0.0)
    raise RuntimeError(f"{name} does not start: try python benchmarks/graders.py {name} {' '.join(folders)}")


def slow_limit(label: str) -> float:
    """Seconds that one of the slow texts gets."""
    return FRACTION_LIMIT if label == FRACTION else SLOW_LIMIT


def slow_seconds(name: str, folders: Sequence[str]) -> dict[str, float | None]:
    """Seconds for each slow text, `None` beyond the limit."""
    pairs = [{"gold": "5", "completion": text} for text in SLOW.values()]
    verdicts = run(name, folders, pairs, [slow_limit(label) for label in SLOW])
    return {
        label: None if verdict == "h" else round(seconds, 2)
        for label, (verdict, seconds) in zip(SLOW, verdicts, strict=True)
    }


# counting


def kind(verdict: str, reward: float | None) -> str:
    """What a verdict is, for the right reward of the pair: one of `KINDS`."""
    if verdict == "h":
        return "hangs"
    if reward is None:
        return {"n": "right", "r": "not_judged"}.get(verdict, "bad_gold_judged")
    if verdict in "nr":
        return "not_judged"
    if float(verdict) == reward:
        return "right"
    return "false_positives" if verdict == "1" else "false_negatives"


def counts(verdicts: str, rows: Sequence[dict[str, Any]], category: str | None = None) -> dict[str, int]:
    """How many verdicts are of which kind, in one category or in all."""
    found = dict.fromkeys(KINDS, 0)
    for verdict, row in zip(verdicts, rows, strict=True):
        if category in (None, row["category"]):
            found[kind(verdict, row["reward"])] += 1
    return found


def categories(rows: Sequence[dict[str, Any]]) -> list[str]:
    """In the order of the file."""
    return list(dict.fromkeys(row["category"] for row in rows))


def version(package: str, site: Path | None) -> str | None:
    """Installed version of a package, here or in the folder."""
    paths = [*sys.path, *([str(site)] if site else [])]
    for distribution in importlib.metadata.distributions(name=package, path=paths):
        return distribution.version
    return None


def measured(
    name: str, grader: Grader, site: Path | None, folders: Sequence[str], rows: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Everything about one grader."""
    results = list(run(name, folders, rows, [LIMIT] * len(rows)))
    verdicts = "".join(verdict for verdict, _ in results)
    seconds = sorted(time for _, time in results)
    per_category = {
        category: " ".join(str(count) for count in counts(verdicts, rows, category).values())
        for category in categories(rows)
    }
    return {
        "package": grader.package,
        "version": version(grader.package, site),
        "licence": grader.licence,
        **counts(verdicts, rows),
        "median_ms": round(1e3 * seconds[len(seconds) // 2], 3),
        "max_s": round(seconds[-1], 2),
        "slow_s": slow_seconds(name, folders) if grader.slow else None,
        "categories": per_category,
        "verdicts": verdicts,
    }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The record of all graders."""
    rows = labelled()
    wanted = {name: one for name, one in GRADERS.items() if not args.only or name in args.only}
    present = {name: one for name, one in wanted.items() if version(one.package, args.site) is not None}
    print("not there:", ", ".join(wanted.keys() - present.keys()) or "none", flush=True)
    with tempfile.TemporaryDirectory() as shims, ThreadPoolExecutor(args.jobs) as pool:
        folders = []
        if args.site:
            make_importable(args.site.resolve(), Path(shims))
            folders = [shims, str(args.site.resolve())]
        found = {name: pool.submit(measured, name, one, args.site, folders, rows) for name, one in present.items()}
        for name, one in found.items():
            print(name, {key: one.result()[key] for key in (*KINDS, "median_ms", "max_s", "slow_s")}, flush=True)
    packages = ("math-verify", "sympy", "latex2sympy2-extended", "trl")
    return {
        "command": shlex.join(["python", *("DIR" if word == str(args.site) else word for word in sys.argv)]),
        "settings": {
            "limit_s": LIMIT,
            "slow_limits_s": {label: slow_limit(label) for label in SLOW},
            "pairs": len(rows),
        },
        "versions": {"python": platform.python_version()} | {name: version(name, args.site) for name in packages},
        "machine": {"device": platform.machine(), "cpu_count": os.cpu_count()},
        "category_fields": " ".join(KINDS),
        "verdict_codes": MEANINGS,
        "graders": {name: one.result() for name, one in found.items()},
    }


# the page


def code(text: Any) -> str:
    """A text as it stands, in a cell of a table."""
    shown = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    if len(shown) > MAX_SHOWN:
        shown = shown[: MAX_SHOWN // 2] + " … " + shown[-MAX_SHOWN // 2 :]
    shown = "".join(c if c.isprintable() else {"\n": "⏎"}.get(c, "�") for c in shown).replace("|", "\\|")
    fence = "``" if "`" in shown else "`"
    pad = " " if shown.strip() != shown or "`" in shown or not shown else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def share_right(found: dict[str, Any], rows: Sequence[dict[str, Any]], conventions: bool) -> float:
    """Percent of right verdicts in the categories of conventions, or in those of mathematics."""
    verdicts = [
        kind(verdict, row["reward"]) == "right"
        for verdict, row in zip(found["verdicts"], rows, strict=True)
        if (row["category"] in CONVENTIONS) == conventions
    ]
    return 100 * sum(verdicts) / len(verdicts)


def summary_table(report: dict[str, Any], pairs: Sequence[dict[str, Any]]) -> str:
    """One row a grader."""
    rows = []
    for name, found in report["graders"].items():
        shares = [100 * found["right"] / report["settings"]["pairs"]]
        shares += [share_right(found, pairs, conventions) for conventions in (False, True)]
        cells = [*(f"{share:.1f} %" for share in shares), *(found[key] for key in KINDS[1:])]
        rows.append([GRADERS[name].title, *cells, f"{found['median_ms']:.2f} ms"])
    header = ["grader", "right", "mathematics", "conventions", "false positives", "false negatives", "not judged"]
    return table([*header, "bad gold judged", "hangs", "median time"], rows)


def caveat(pairs: Sequence[dict[str, Any]]) -> str:
    """What the shares do not say."""
    names = ", ".join(f"`{name}`" for name in categories(pairs) if name in CONVENTIONS)
    number = sum(pair["category"] in CONVENTIONS for pair in pairs)
    text = (
        f"The {len(pairs)} pairs were written beside this repository's own grader and labelled by its documented "
        "conventions, and what it got wrong was mended: its row says that it passes a test made for it, not how it "
        f'does on the pairs of others. "Conventions" are the {number} pairs of {names}, where graders differ by what '
        f'they were made for; "mathematics" are the other {len(pairs) - number}. The row of TRL in a thread differs '
        "from the one on the main thread by its hangs alone."
    )
    return textwrap.fill(text, 120, break_on_hyphens=False)


def category_table(report: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """Right verdicts by category."""
    found = report["graders"]
    header = ["category", "pairs", *(GRADERS[name].short for name in found)]
    body = []
    for category in categories(rows):
        right = [one["categories"][category].split()[0] for one in found.values()]
        body.append([category, sum(row["category"] == category for row in rows), *right])
    return table(header, body)


def examples(
    verdicts: str, rows: Sequence[dict[str, Any]], shown: Collection[int] = ()
) -> list[tuple[dict[str, Any], str]]:
    """Wrong verdicts that tell most: of each kind in turn, one of a category that is not yet there.

    Those that no other grader has shown come first, then the shorter ones.
    """
    wrong: dict[str, list[tuple[dict[str, Any], str]]] = {name: [] for name in KINDS[1:]}
    for row, verdict in zip(rows, verdicts, strict=True):
        if (name := kind(verdict, row["reward"])) != "right":
            wrong[name].append((row, verdict))
    for pairs in wrong.values():
        pairs.sort(key=lambda pair: (pair[0]["id"] in shown, len(pair[0]["completion"]), pair[0]["id"]))
    chosen: list[tuple[dict[str, Any], str]] = []
    while len(chosen) < NUM_EXAMPLES and any(wrong.values()):
        for name, pairs in wrong.items():
            seen = {row["category"] for row, _ in chosen}
            wrong[name] = pairs = [pair for pair in pairs if pair[0]["category"] not in seen]
            if pairs and len(chosen) < NUM_EXAMPLES:
                chosen.append(pairs.pop(0))
    return chosen


def grader_sections(report: dict[str, Any], rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What each grader is, and where it differs."""
    shown: set[int] = set()
    for name, found in report["graders"].items():
        chosen = examples(found["verdicts"], rows, shown)
        shown.update(row["id"] for row, _ in chosen)
        yield grader_section(name, found, chosen)


def grader_section(name: str, found: dict[str, Any], shown: Sequence[tuple[dict[str, Any], str]]) -> str:
    """What a grader is, and some of its wrong verdicts."""
    grader = GRADERS[name]
    lines = [f"### {grader.title}", "", f"{found['package']} {found['version']}, {found['licence']}. {grader.note}"]
    if not shown:
        return "\n".join([*lines, "", "No verdict differs from the labels."])
    should = {1.0: "1", 0.0: "0", None: "None"}
    body = [
        [code(row["gold"]), code(row["completion"]), MEANINGS[verdict], should[row["reward"]], row.get("why", "")]
        for row, verdict in sorted(shown, key=lambda pair: int(pair[0]["id"]))
    ]
    return "\n".join([*lines, "", table(["gold", "completion", "verdict", "should be", "because"], body)])


def slow_table(report: dict[str, Any]) -> str:
    """Seconds for the slow texts."""
    found = {name: one["slow_s"] for name, one in report["graders"].items() if one["slow_s"]}
    body = []
    for label, seconds in report["settings"]["slow_limits_s"].items():
        limit = f"> {seconds:.0f} s"
        times = [one[label] for one in found.values()]
        body.append([label, *(limit if time is None else f"{time:.2f} s" for time in times)])
    return table(["completion", *(GRADERS[name].title for name in found)], body)


def section(report: dict[str, Any]) -> str:
    """What stands between the markers of the page."""
    rows = labelled()
    versions = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    machine = f"{report['machine']['cpu_count']} CPU cores ({report['machine']['device']})"
    parts = [
        "## Summary",
        summary_table(report, rows),
        caveat(rows),
        f"`{report['command']}`; {versions}; {machine}.",
        "## By category",
        "Right verdicts.",
        category_table(report, rows),
        "## Time",
        TIME,
        slow_table(report),
        "## Each grader",
        EXAMPLES,
        *grader_sections(report, rows),
    ]
    return "\n\n".join(parts)


def page(report: dict[str, Any], text: str) -> str:
    """The page with its generated part made anew."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n\n{section(report)}\n\n{END}{rest.split(END)[1]}"


def main() -> int:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=Path, metavar="DIR", help="folder with further packages")
    parser.add_argument("--jobs", type=int, default=1, help="graders at the same time")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "graders.json")
    parser.add_argument("--only", nargs="+", choices=GRADERS, metavar="NAME", help="measure these, keep the others")
    parser.add_argument("--page", action="store_true", help="write docs/graders.md from the results")
    parser.add_argument("--check", action="store_true", help="with --page: only say whether they agree")
    args = parser.parse_args()
    if args.page:
        text = PAGE.read_text(encoding="utf-8")
        new = page(json.loads(args.output.read_text(encoding="utf-8")), text)
        if args.check:
            if new != text:
                print("docs/graders.md differs from the results; run: python benchmarks/bench_graders.py --page")
            return int(new != text)
        PAGE.write_text(new, encoding="utf-8")
        return 0
    report = measure(args)
    if args.only and args.output.is_file():
        before = json.loads(args.output.read_text(encoding="utf-8"))
        before["graders"] |= report["graders"]
        report = before
    args.output.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
