"""Graders of mathematics as functions of one kind, and the process that runs one of them for bench_graders.py.

python benchmarks/graders.py NAME [FOLDER ...]    # more folders to import from; reads pairs as JSON lines
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEMORY_LIMIT = 6 << 30
FILE_LIMIT = 1 << 20
ANTLR = "antlr_4_11"  # folder of antlr4-python3-runtime 4.11 in the folder of further packages
# imports, and starts processes where there are some: the second is not decided without them
WARM_UP = (("1", r"\boxed{1}"), (r"\int_0^x t\,dt", r"\boxed{\frac{x^2}{2}}"))
Judge = Callable[[Any, str], float | bool | None]


@dataclass(frozen=True)
class Grader:
    """A grader, where it comes from, and how it was asked."""

    title: str
    short: str
    package: str
    licence: str
    note: str
    load: Callable[[], Judge]
    slow: bool = False  # whether the slow texts are timed


def texts(gold: Any) -> list[Any]:
    """The golds of a row as texts, as they stand; `None` stays what it is."""
    return [None if item is None else str(item) for item in (gold if isinstance(gold, list) else [gold])]


def wrapped(gold: Any) -> Any:
    """A bare LaTeX gold between dollars, which math-verify needs."""
    if gold is None or not gold.strip():
        return gold
    return gold if re.search(r"(?<!\\)\$|\\\(|\\\[|\\boxed", gold) else f"${gold.strip()}$"


def stripped(gold: Any) -> list[str]:
    """The golds of a row as bare LaTeX, as [`reward_funcs.gold`] reads them."""
    from reward_funcs.gold import gold_texts

    return list(gold_texts(gold)) or [""]


def any_of(rewards: list[float | bool | None]) -> float | None:
    """The best of the verdicts on several golds."""
    known = [float(reward) for reward in rewards if reward is not None]
    return max(known) if known else None


def ours() -> Judge:
    from reward_funcs import accuracy_reward

    return lambda gold, text: accuracy_reward([text], solution=[gold])[0]


def _trl(reward: Callable[..., list[float | None]], prepare: Callable[[Any], Any], before: str = "") -> Judge:
    def judge(gold: Any, text: str) -> float | None:
        content = text if "</think>" in text else before + text
        messages = [{"role": "assistant", "content": content}]
        return any_of([reward([messages], [prepare(one)])[0] for one in texts(gold)])

    return judge


def trl() -> Judge:
    from trl.rewards import accuracy_reward

    return _trl(accuracy_reward, wrapped)


def trl_bare() -> Judge:
    from trl.rewards import accuracy_reward

    return _trl(accuracy_reward, lambda gold: gold)


def trl_reasoning() -> Judge:
    from trl.rewards import reasoning_accuracy_reward

    return _trl(reasoning_accuracy_reward, wrapped, before="<think>\nLet me see.\n</think>\n")


def trl_thread() -> Judge:
    judge = trl()

    def in_thread(gold: Any, text: str) -> float | None:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(judge(gold, text)))
        thread.start()
        thread.join()
        return found[0] if found else float("nan")

    return in_thread


def math_verify() -> Judge:
    from math_verify import parse, verify

    def judge(gold: Any, text: str) -> float | None:
        golds = [parsed for one in texts(gold) if (parsed := parse(wrapped(one)))]
        answer = parse(text)
        return any_of([verify(one, answer) for one in golds])

    return judge


def verifiers() -> Judge:
    from verifiers.v1.utils.score import verify_boxed_math_answer

    return lambda gold, text: any_of([verify_boxed_math_answer(text, one) for one in stripped(gold)])


def verl_math_reward() -> Judge:
    from verl.utils.reward_score import math_reward

    return lambda gold, text: any_of([math_reward.compute_score(text, one) for one in stripped(gold)])


def verl_math_dapo() -> Judge:
    from verl.utils.reward_score import math_dapo

    return lambda gold, text: any_of([math_dapo.compute_score(text, one)["acc"] for one in stripped(gold)])


def verl_gsm8k() -> Judge:
    from verl.utils.reward_score import gsm8k

    return lambda gold, text: any_of([gsm8k.compute_score(text, one, method="flexible") for one in stripped(gold)])


def verl_prime_math() -> Judge:
    for folder in sys.path[::-1]:
        if Path(folder, ANTLR).is_dir():
            sys.path.insert(0, str(Path(folder, ANTLR)))  # the one version that sympy's LaTeX parser takes
    from verl.utils.reward_score import prime_math

    return lambda gold, text: any_of([prime_math.compute_score(text, one)[0] for one in stripped(gold)])


def verl_math_verify() -> Judge:
    from verl.utils.reward_score import math_verify

    return lambda gold, text: any_of([math_verify.compute_score(text, one) for one in stripped(gold)])


_BOXED = "Golds were given as bare LaTeX, without `$`, box or `####`."
GRADERS = {
    "ours": Grader(
        "`reward_funcs.accuracy_reward`",
        "ours",
        "trl-ext",
        "Apache-2.0",
        "Default settings, golds as they stand in the data. The labels follow its documented behaviour, so this row "
        "says that the code does what [rewards.md](rewards.md) says, not that it has no errors elsewhere.",
        ours,
        slow=True,
    ),
    "trl": Grader(
        "TRL `accuracy_reward`",
        "TRL",
        "trl",
        "Apache-2.0",
        "math-verify with LaTeX extraction only, boxes first. Bare golds were put between `$`.",
        trl,
        slow=True,
    ),
    "trl_bare": Grader(
        "TRL `accuracy_reward`, golds as written",
        "TRL, gold as written",
        "trl",
        "Apache-2.0",
        "The same with the golds as they stand in the data: a bare LaTeX gold is partly or not read.",
        trl_bare,
    ),
    "trl_reasoning": Grader(
        "TRL `reasoning_accuracy_reward`",
        "TRL reasoning",
        "trl",
        "Apache-2.0",
        "Reads what follows `</think>` and gives 0 where there is none; here a think block was put before completions "
        "without one. Bare golds were put between `$`.",
        trl_reasoning,
    ),
    "trl_thread": Grader(
        "TRL `accuracy_reward`, in a thread",
        "TRL, thread",
        "trl",
        "Apache-2.0",
        "The first one called from another thread than the main one, as TRL's asynchronous trainer does: its time "
        "limits are off there.",
        trl_thread,
        slow=True,
    ),
    "math_verify": Grader(
        "math-verify `verify(parse(gold), parse(text))`",
        "math-verify",
        "math-verify",
        "Apache-2.0",
        "Default settings, bare golds between `$`. It also takes numbers outside boxes.",
        math_verify,
        slow=True,
    ),
    "verifiers": Grader(
        "verifiers `verify_boxed_math_answer`",
        "verifiers",
        "verifiers",
        "MIT",
        f"The last box after the last `</think>`, compared by math-verify. {_BOXED}",
        verifiers,
        slow=True,
    ),
    "verl_math_verify": Grader(
        "verl `math_verify`",
        "verl math_verify",
        "verl",
        "Apache-2.0",
        f"math-verify in a pool of processes; every expression that is found in the text may be the answer. {_BOXED}",
        verl_math_verify,
        slow=True,
    ),
    "verl_math_reward": Grader(
        "verl `math_reward`",
        "verl math_reward",
        "verl",
        "Apache-2.0",
        f"The last box as a string, after the normalisation of the MATH data set's authors. {_BOXED}",
        verl_math_reward,
    ),
    "verl_math_dapo": Grader(
        "verl `math_dapo`",
        "verl math_dapo",
        "verl",
        "Apache-2.0",
        f"Strings after Minerva's normalisation, of the last 300 characters. {_BOXED}",
        verl_math_dapo,
    ),
    "verl_prime_math": Grader(
        "verl `prime_math`",
        "verl prime_math",
        "verl",
        "Apache-2.0",
        f"Strings, numbers, then sympy's `parse_expr`, which evaluates the model's text as Python: it is not for text "
        f"that you do not trust. {_BOXED}",
        verl_prime_math,
    ),
    "verl_gsm8k": Grader(
        "verl `gsm8k`",
        "verl gsm8k",
        "verl",
        "Apache-2.0",
        'The last number of the last 300 characters, as a string (`method="flexible"`). Made for plain numbers as '
        f"golds; it is here for those categories. {_BOXED}",
        verl_gsm8k,
    ),
}
# the package's own modules import whole frameworks that the graders do not need
_PARENTS = ("verl", "verl.utils", "verl.utils.reward_score", "verifiers", "verifiers.v1", "verifiers.v1.utils")


def make_importable(site: Path, folder: Path) -> None:
    """Write packages into a folder by which the graders' modules are imported without their own `__init__`."""
    for name in _PARENTS:
        home = folder / name.replace(".", "/")
        home.mkdir(parents=True)
        real = site / name.replace(".", "/")
        (home / "__init__.py").write_text(f"__path__ = [{str(home)!r}, {str(real)!r}]\n", encoding="utf-8")
    folder.chmod(0o755)


def confine() -> None:
    """Limits on memory and files."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT, FILE_LIMIT))
    os.chdir("/")


def verdict(judge: Judge, gold: Any, text: str) -> str:
    """One letter: 1, 0, n for None, r for raised."""
    try:
        reward = judge(gold, text)
    except Exception:  # noqa: BLE001 - whatever a grader raises is its verdict
        return "r"
    if reward is None:
        return "n"
    return "r" if reward != reward else str(int(reward > 0.5))  # NaN: raised in a thread


def main() -> None:
    """Answer each line with a line."""
    sys.dont_write_bytecode = True
    grader = GRADERS[sys.argv[1]]
    lines, answers = sys.stdin, os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)  # some print
    shims, others = sys.argv[2:3], sys.argv[3:]
    sys.path[:] = [*shims, *sys.path, *others]  # processes that a grader spawns get the same path
    judge = grader.load()
    for gold, answer in WARM_UP:
        verdict(judge, gold, answer)
    confine()
    print("{}", file=answers, flush=True)
    for line in lines:
        pair = json.loads(line)
        start = time.perf_counter()
        found = verdict(judge, pair["gold"], pair["completion"])
        print(json.dumps({"verdict": found, "seconds": time.perf_counter() - start}), file=answers, flush=True)


if __name__ == "__main__":
    main()
