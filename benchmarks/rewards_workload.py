r"""Completions with a known verdict for bench_rewards.py, built from the data sets' own solutions.

A completion is made in three steps, each drawn from `random.Random(seed)`.

1. Rows: 40 % GSM8K (train), 40 % MATH (MATH-500 and train), 10 % OlympiadBench, 10 % Open-Reasoner-Zero, none twice;
   they depend on the number of completions alone, so that two seeds share their golds.
2. Reasoning: the row's solution and then others of the same data set, joined by sentences such as "Let me check that",
   up to a length drawn from a log-normal distribution (mean 4,000 characters) and cut at the end of a sentence. Every
   third stands in `<think>` tags.
3. Answer: right for 60 % of the completions. A right one is the gold as it is written (one in three) or the same in
   other typography (`\dfrac`, `\left(`, spaces, `x =`, units, thousands separators, a decimal for a fraction) or form
   (`\frac{1}{\sqrt{2}}` for `\frac{\sqrt{2}}{2}`, terms, factors and lists in another order). A wrong one is a near
   miss: off by one, sign, digits, entries or fraction swapped, a dropped root, another row's answer. One wrong answer
   in sixteen is never given: the text ends in the middle of `<think>`. The last sentence has it in a box, or one time
   in ten in `<answer>` tags and nowhere else.

What is right or wrong follows from the construction; no grader has a part in it.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

RIGHT = 0.6
MEAN_CHARACTERS, SPREAD = 4000, 0.6
SHARES = {"gsm8k": 0.4, "math": 0.4, "olympiadbench": 0.1, "orz": 0.1}
JOINTS = ("Wait, let me check that again.", "Let me do the same in another way.", "Compare this with a case I know.")
CLOSINGS = (
    "Therefore, the answer is $\\boxed{%s}$.",
    "So the final result is:\n\n$$\\boxed{%s}$$",
    "Hence\n\\[\n\\boxed{%s}\n\\]",
    "**Final Answer**\n\n\\boxed{%s}",
    "Thus we get \\( \\boxed{%s} \\).",
)
TAGS = ("<answer>%s</answer>", "<answer>\n$%s$\n</answer>", "<answer> \\(%s\\) </answer>")


class Row(NamedTuple):
    """A question's gold, and the solution that came with it."""

    source: str
    gold: str
    solution: str


class Sample(NamedTuple):
    """A completion, its gold, and the reward that follows from how it was made."""

    source: str
    gold: Any
    completion: str
    reward: float | None
    answer: str


# rows


def _lines(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _gsm8k(data: Path) -> Iterator[Row]:
    for row in _lines(data / "gsm8k_train.jsonl"):
        solution, _, gold = row["answer"].rpartition("####")
        yield Row("gsm8k", gold.strip(), re.sub("<<.*?>>", "", solution).strip())


def _math(data: Path) -> Iterator[Row]:
    for row in _lines(data / "math500.jsonl"):
        yield Row("math", row["answer"], re.sub(r"\[asy\].*?\[/asy\]", "", row["solution"], flags=re.DOTALL))
    for row in _lines(data / "math_train.jsonl"):
        yield Row("math", row["answer"] or "", "")


def _olympiadbench(data: Path) -> Iterator[Row]:
    for row in _lines(data / "olympiadbench.jsonl"):
        if row["error"] is None:  # the others are right within a tolerance of their own
            yield Row("olympiadbench", row["final_answer"][0], row["solution"][0])


def _orz(data: Path) -> Iterator[Row]:
    for _, reply in _lines(data / "orz_57k_items.jsonl"):
        yield Row("orz", reply["ground_truth"]["value"], "")


READERS = {"gsm8k": _gsm8k, "math": _math, "olympiadbench": _olympiadbench, "orz": _orz}


def rows(data: Path, count: int) -> tuple[list[Row], dict[str, list[str]]]:
    """So many rows in mixed order, and the solutions of each source (those of OlympiadBench for ORZ)."""
    generator = random.Random(0)
    chosen, solutions = [], {}
    for source, share in SHARES.items():
        known = [row for row in READERS[source](data) if row.gold.strip()]
        chosen += generator.sample(known, round(count * share))
        solutions[source] = [row.solution for row in known if row.solution] or solutions["olympiadbench"]
    generator.shuffle(chosen)
    return chosen, solutions


def golds(data: Path) -> dict[str, list[str]]:
    """The golds that are not empty, without dollars, of each data set."""
    found: dict[str, list[str]] = {}
    for source, reader in READERS.items():
        found[source] = [re.sub(r"(?<!\\)\$", "", row.gold).strip() for row in reader(data)]
    for name in ("gsm8k_test", "math500"):
        lines = [json.loads(line)["answer"] for line in (data / f"{name}.jsonl").open(encoding="utf-8")]
        found[name] = [line.rpartition("####")[2].strip() for line in lines]
    return {source: [gold for gold in golds if gold] for source, golds in found.items()}


def model_solutions(data: Path) -> tuple[list[str], list[str], list[float]]:
    """GSM8K's model solutions, their golds, and whether they were published as right."""
    texts, golds, labels = [], [], []
    for row in _lines(data / "gsm8k_model_solutions.jsonl"):
        for entry in row.values():
            if isinstance(entry, dict):
                texts.append(entry["solution"])
                golds.append(row["ground_truth"].rpartition("A: ")[2])
                labels.append(float(entry["is_correct"]))
    return texts, golds, labels


# answers

_INTEGER = re.compile(r"-?\d+")
_DECIMAL = re.compile(r"-?\d+\.\d+")
_FRACTION = re.compile(r"(-?)\\[dt]?frac\{(\d+)\}\{(\d+)\}")
_ROOT = re.compile(r"(-?)(\d*)\\sqrt\{(\d+)\}")
_ROOT_FRACTION = re.compile(r"(-?)\\frac\{(\d*)\\sqrt\{(\d+)\}\}\{(\d+)\}")
_TERM = r"\d*[a-z]?(?:\^(?:\d|\{\d+\}))?"
_POLYNOMIAL = re.compile(rf"-?{_TERM}(?:[+-]{_TERM})+")
_FACTORS = re.compile(r"(\([^()]+\))(\([^()]+\))")
_PAIR = re.compile(r"\( ?(-?\d+), ?(-?\d+) ?\)")
_NUMBERS = re.compile(r"-?\d+(?:, ?-?\d+)+")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+")
_DEGREES = re.compile(r"(\d+) ?\^ ?\{?\\circ\}?")
_LETTER = re.compile(r"(?:\\text\{)?\(([A-E])\)\}?")
_WORD = re.compile(r"\\text\{([A-Za-z ]+)\}")
_LITERAL = re.compile(r"(?<![_\d])(?<!_\{)\d+(?!\d)")


def _separated(number: str) -> Iterator[str]:
    """A number with the separators for thousands that models write."""
    sign, digits = ("-", number[1:]) if number.startswith("-") else ("", number)
    whole, dot, rest = digits.partition(".")
    if len(whole) > 3 and not whole.startswith("0"):
        for separator in (",", "{,}", r"\,", r",\!"):
            yield sign + f"{int(whole):,}".replace(",", separator) + dot + rest


def _terminating(value: Fraction) -> str | None:
    """A fraction as a decimal, where six places are enough for all of it."""
    scaled = value * 10**6
    return f"{float(value):.6f}".rstrip("0").rstrip(".") if scaled.denominator == 1 else None


def _numbers_rewritten(gold: str, source: str) -> Iterator[str]:
    if _INTEGER.fullmatch(gold):
        yield from _separated(gold)
        yield from (f"x = {gold}", f"n={gold}", rf"{gold}\text{{ units}}", gold + ".0", rf"\text{{{gold}}}")
        if source == "gsm8k":
            yield from (
                rf"\${gold}",
                rf"{gold}\text{{ dollars}}",
                rf"{gold} \text{{ apples}}",
                rf"\${gold}.00",
                f"${gold}",
            )
    elif _DECIMAL.fullmatch(gold):
        value = Fraction(gold)
        yield from _separated(gold)
        yield from (gold + "0", rf"\frac{{{value.numerator}}}{{{value.denominator}}}", f"x = {gold}")
    elif match := _FRACTION.fullmatch(gold):
        sign, top, bottom = match.groups()
        value = Fraction(int(top), int(bottom))
        decimal = _terminating(value)
        yield from (f"{sign}{top}/{bottom}", rf"\frac{{{sign}{top}}}{{{bottom}}}", f"x = {gold}")
        yield rf"{sign}\frac{{{3 * value.numerator}}}{{{3 * value.denominator}}}"
        if decimal:
            yield sign + decimal
        if len(top) == len(bottom) == 1:
            yield rf"{sign}\frac{top}{bottom}"


def _roots_rewritten(gold: str) -> Iterator[str]:
    if match := _ROOT.fullmatch(gold):
        sign, factor, radicand = match.groups()
        yield rf"{sign}\sqrt{{{int(factor or 1) ** 2 * int(radicand)}}}"
        yield rf"{sign}{factor or 1} \cdot \sqrt{{{radicand}}}"
        yield rf"{sign}{factor or 1} * {radicand}^{{1/2}}"
    elif match := _ROOT_FRACTION.fullmatch(gold):
        sign, factor, radicand, bottom = match.groups()
        ratio = Fraction(int(factor or 1) * int(radicand), int(bottom))
        below = ratio.denominator if ratio.denominator > 1 else ""
        yield rf"{sign}\frac{{{ratio.numerator}}}{{{below}\sqrt{{{radicand}}}}}"
        yield rf"{sign}\frac{{{factor or 1}}}{{{bottom}}}\sqrt{{{radicand}}}"
        yield rf"{sign}{factor}\sqrt{{{radicand}}}/{bottom}"


def _terms(polynomial: str) -> list[str]:
    """`-x+2` as `["-x", "+2"]`."""
    signed = polynomial if polynomial.startswith("-") else "+" + polynomial
    return re.findall(r"[+-][^+-]+", signed)


def _reordered(gold: str) -> Iterator[str]:
    compact = gold.replace(" ", "")
    if _POLYNOMIAL.fullmatch(compact):
        terms = _terms(compact)
        yield "".join(reversed(terms)).removeprefix("+")
        yield " ".join(terms[1:] + terms[:1]).removeprefix("+")
    elif match := _FACTORS.fullmatch(compact):
        yield match[2] + match[1]
        yield rf"{match[2]} \cdot {match[1]}"
    elif match := _PAIR.fullmatch(gold):
        yield rf"\left( {match[1]}, {match[2]} \right)"
        yield f"(x, y) = ({match[1]},{match[2]})"
    elif _NUMBERS.fullmatch(gold):
        parts = re.split(", ?", gold)
        yield from (
            ", ".join(reversed(parts)),
            ",".join(parts),
            r" \text{ and } ".join(parts),
            f"x = {', '.join(parts)}",
        )


def _retyped(gold: str) -> Iterator[str]:
    """The same signs in other typography."""
    if r"\frac" in gold:
        yield from (gold.replace(r"\frac", r"\dfrac"), gold.replace(r"\frac", r"\tfrac"))
    if "(" in gold and r"\left" not in gold and "text" not in gold:
        yield re.sub(r"\(|\)", lambda bracket: r"\left( " if bracket[0] == "(" else r" \right)", gold)
    if not re.search(r"\d,\d{3}|text|\\[,; !]|\{,\}", gold):
        yield re.sub(r" *([,+=]) *", r" \1 ", gold)
        yield re.sub(r" *([,+=]) *", r"\1", gold)
        yield rf"\displaystyle {gold}"
    if match := _DEGREES.fullmatch(gold):
        yield from (rf"{match[1]}^{{\circ}}", rf"{match[1]} \text{{ degrees}}", match[1], f"{match[1]}°")
    if match := _LETTER.fullmatch(gold):
        yield from (match[1], rf"\text{{{match[1]}}}", rf"\textbf{{({match[1]})}}")
    if match := _WORD.fullmatch(gold):
        yield from (match[1], rf"\mathrm{{{match[1]}}}", rf"\text{{{match[1].capitalize()}}}")


def _bare(gold: str) -> str:
    """A gold without the dollars around it, and a whole number without separators for thousands."""
    bare = gold.strip().removeprefix("$").removesuffix("$").strip() if gold.count("$") == 2 else gold.strip()
    return bare.replace(",", "") if _THOUSANDS.fullmatch(bare) else bare


def right_answers(gold: str, source: str) -> list[str]:
    """Other ways to write a gold."""
    bare = _bare(gold)
    ways = [*_numbers_rewritten(bare, source), *_roots_rewritten(bare), *_reordered(bare), *_retyped(bare)]
    return [way for way in dict.fromkeys(ways) if way != bare]


def _wrong_numbers(gold: str) -> Iterator[str]:
    if _INTEGER.fullmatch(gold):
        value = int(gold)
        yield from (str(value + 1), str(value - 1))
        digits = str(abs(value))
        if value:
            yield from (str(-value), str(10 * value))
        if len(digits) > 1 and digits[-1] != digits[-2]:
            yield ("-" if value < 0 else "") + digits[:-2] + digits[-1] + digits[-2]
    elif _DECIMAL.fullmatch(gold) and Fraction(gold):
        yield from (str(-float(gold)), str(Fraction(gold).numerator), f"{float(gold) + 1}")
    elif match := _FRACTION.fullmatch(gold):
        sign, top, bottom = match[1], int(match[2]), int(match[3])
        yield rf"{sign}\frac{{{top + 1}}}{{{bottom}}}"
        if top:
            yield rf"{'' if sign else '-'}\frac{{{top}}}{{{bottom}}}"
        if top and top != bottom:
            yield rf"{sign}\frac{{{bottom}}}{{{top}}}"


def _wrong_roots(gold: str) -> Iterator[str]:
    for pattern in (_ROOT, _ROOT_FRACTION):
        match = pattern.fullmatch(gold)
        if match and int(match[3]) > 1:
            yield gold[1:] if gold.startswith("-") else "-" + gold
            yield gold.replace(rf"\sqrt{{{match[3]}}}", rf"\sqrt{{{int(match[3]) + 1}}}")
            if not match[2]:
                yield gold.replace(rf"\sqrt{{{match[3]}}}", match[3])  # the root is dropped


def _wrong_orders(gold: str) -> Iterator[str]:
    compact = gold.replace(" ", "")
    if _POLYNOMIAL.fullmatch(compact):
        *terms, last = _terms(compact)
        yield "".join([*terms, ("-" if last[0] == "+" else "+") + last[1:]]).removeprefix("+")
    elif match := _PAIR.fullmatch(gold):
        one, other = int(match[1]), int(match[2])
        yield f"({one + 1}, {other})"
        if one != other:
            yield f"({other}, {one})"
    elif _NUMBERS.fullmatch(gold):
        parts = [int(part) for part in gold.split(",")]
        yield ", ".join(map(str, [*parts[:-1], max(parts) + 1]))
        if parts[-1] not in parts[:-1]:
            yield ", ".join(map(str, parts[:-1]))


def near_misses(gold: str, other: str) -> list[str]:
    """Wrong answers that look like the gold.

    Args:
        gold (`str`): the gold.
        other (`str`): a whole number, the answer of another row.
    """
    bare = _bare(gold)
    ways = [*_wrong_numbers(bare), *_wrong_roots(bare), *_wrong_orders(bare)]
    if _INTEGER.fullmatch(bare) and int(other) != int(bare):
        ways.append(other)
    if match := _LETTER.fullmatch(bare):
        ways.append(rf"\text{{({'B' if match[1] == 'A' else 'A'})}}")
    literals = list(_LITERAL.finditer(bare))
    if not ways and literals:
        changed = literals[0 if "binom" in bare else -1]  # 15 over 7 is 15 over 8
        more = str(int(changed[0]) + 1).zfill(len(changed[0]))
        ways.append(bare[: changed.start()] + more + bare[changed.end() :])
    return ways or [other]


# completions


def _without_boxes(text: str) -> str:
    return text.replace(r"\boxed", "").replace(r"\fbox", "")


def reasoning(row: Row, solutions: list[str], generator: random.Random) -> str:
    """The row's solution and others, up to a length drawn at random."""
    length = generator.lognormvariate(math.log(MEAN_CHARACTERS) - SPREAD**2 / 2, SPREAD)
    parts = [row.solution or generator.choice(solutions)]
    while sum(map(len, parts)) < length:
        parts += [generator.choice(JOINTS), generator.choice(solutions)]
    text = "\n\n".join(parts)[: max(200, int(length))]
    end = max(text.rfind(". "), text.rfind("\n"), text.rfind("$ "))
    return text[: end + 1] if end > 0 else text


def _completion(row: Row, answer: str | None, solutions: list[str], generator: random.Random) -> str:
    text = reasoning(row, solutions, generator)
    tagged = generator.random() < 0.1
    if tagged or answer is None:
        text = _without_boxes(text)
    if answer is None:
        return f"<think>\n{text}"  # which hides what the reasoning says about the answer
    if generator.random() < 1 / 3:
        text = f"<think>\n{text}\n</think>\n"
    closing = generator.choice(TAGS if tagged else CLOSINGS)
    if "$" in answer.replace(r"\$", ""):
        closing = TAGS[0] if tagged else CLOSINGS[3]  # no dollar inside of dollars
    return f"{text}\n\n{closing % answer}"


def _answer(row: Row, right: bool, other: str, generator: random.Random) -> str | None:
    if right:
        ways = right_answers(row.gold, row.source)
        return generator.choice(ways) if ways and generator.random() < 2 / 3 else row.gold.strip()
    return None if generator.random() < 1 / 16 else generator.choice(near_misses(row.gold, other))


def samples(data: Path, count: int, seed: int) -> list[Sample]:
    """So many completions; those of two seeds have the same golds and other texts and answers."""
    chosen, solutions = rows(data, count)
    generator = random.Random(seed)
    is_right = [i < round(RIGHT * count) for i in range(count)]
    generator.shuffle(is_right)
    integers = [row.gold for row in chosen if _INTEGER.fullmatch(row.gold)]
    made = []
    for row, right in zip(chosen, is_right, strict=True):
        answer = _answer(row, right, generator.choice(integers), generator)
        completion = _completion(row, answer, solutions[row.source], generator)
        made.append(Sample(row.source, row.gold, completion, float(right), answer or ""))
    return made


def labelled(path: Path, count: int, seed: int) -> list[Sample]:
    """So many completions of a labelled set in random order, its rows more than once where it has fewer."""
    known = [Sample("labelled", row["gold"], row["completion"], row["reward"], "") for row in _lines(path)]
    generator = random.Random(seed)
    repeated = [known[i % len(known)] for i in range(count)]
    generator.shuffle(repeated)
    return [row._replace(completion=f"Attempt {seed}. {row.completion}") for row in repeated]
