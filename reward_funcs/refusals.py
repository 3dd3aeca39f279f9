r"""Answers that are refused by their form: they leave the work to the grader, or would take it hours."""

from __future__ import annotations

import re
from functools import lru_cache

from reward_funcs.expressions import Node
from reward_funcs.forms import COLLECTIONS, is_name, is_plain_number, is_solved, kinds, upright, variables
from reward_funcs.maths import solves, value_of_chain
from reward_funcs.reader import parse
from reward_funcs.tokens import MAX_DEPTH, Unreadable

_UNEVALUATED = re.compile(
    r"\\(?:sum|prod|coprod|i*int|oint|lim|limsup|liminf|gcd|lcm|max|min|sup|inf|det|bmod|pmod|mod|partial)(?![a-zA-Z])"
    r"|\b(?:gcd|lcm|max|min|sum|prod|lim|det|mod|integral|limit)\b\s*[}({_]"
    r"|[∑∏∫]|\\frac ?\{ ?(?:d|\\mathrm ?\{? ?d) ?\}"
)


# what math-verify reads past: it takes the part in front, or the part behind, for the whole
_PASSED_OVER = re.compile(
    r"\\(?:ldots|cdots|approx|sim|simeq|cong|to|rightarrow|Rightarrow|implies|iff|not|land|wedge|mid|parallel|&)(?![a-zA-Z])"
    r"|\.\.\.|\\sqrt ?[0-9]{2}|[0-9]\s*_|\||\\text|\\mbox|\\mathrm\s*\{[^{}]{2,}"
)


def is_passed_over(gold: str, answer: str) -> bool:
    """Whether the answer has something in it that the workers would overlook and the gold has not."""
    if "\\infty" in answer and "\\infty" not in gold and _RELATION.search(gold):
        return True  # infinity minus infinity solves everything
    return any(found not in gold for found in _PASSED_OVER.findall(_TRAILING_UNIT.sub("", answer)))


_TRAILING_UNIT = re.compile(r"\\text ?\{ ?[a-zA-Z]{1,12} ?\}(?:\^\{?[23]\}?)?$")


def evaluated_part(gold: str, answer: str) -> str:
    """What stands behind the last `=` of a chain that starts with something to compute: 4 of gcd(8, 12) = 4."""
    bare = _SUBSCRIPT.sub(lambda match: "_" * len(match.group()), answer)
    start, equals, last = bare.rpartition("=")
    last = answer[len(answer) - len(last) :].strip()
    return last if equals and last and _UNEVALUATED.search(start) and not _RELATION.search(gold) else answer


def is_unevaluated(gold: str, answer: str) -> bool:
    """Whether the answer is an instruction to compute where the gold is what comes out."""
    return (
        _UNEVALUATED.search(_SUBSCRIPT.sub(" ", answer)) is not None
        and _UNEVALUATED.search(gold) is None
        and _is_number(gold)
    )


@lru_cache(maxsize=4096)
def _is_number(gold: str) -> bool:
    """Whether the gold has no variables: a number, or numbers in a collection."""
    try:
        return not variables(parse(gold))
    except Unreadable:
        return re.search(r"(?<![a-zA-Z\\])[a-zA-Z](?![a-zA-Z])", gold) is None


_RELATION = re.compile(r"=|<|>|\\(?:le|ge|leq|geq|lt|gt|ne|neq|leqslant|geqslant|approx)(?![a-zA-Z])")
_GEOMETRY = re.compile(r"\\(?:parallel|perp|cong|sim|equiv|mid|nmid|subset|subseteq|notin)(?![a-zA-Z])")
_SUBSCRIPT = re.compile(r"_ ?\{[^{}]*\}")  # of a sum, k = 1 is no equation
_OR = re.compile(r"(?<![a-zA-Z])or(?![a-zA-Z])")


def form_problem(gold: Node, answer: Node) -> str:
    """Why a form leaves work to the grader: `unsolved`, `inconsistent`, `several_answers`, or an empty text."""
    several = gold[0] in COLLECTIONS or "pm" in kinds(gold)
    if answer[0] == "list":
        return "" if several or gold[0] == "rel" else "several_answers"
    if answer[0] != "rel":
        return ""
    if gold[0] == "rel":
        solved = len(gold[1]) > 1 or not is_solved(upright(gold))
        return "" if solved or len(answer[1]) > 1 or is_solved(upright(answer)) else "unsolved"
    if set(answer[1]) != {"="}:
        return "" if several or answer[1] == ("in",) else "unsolved"
    if is_name(answer[2][0]) or is_name(answer[2][-1]):
        return "inconsistent" if len(answer[2]) > 2 and value_of_chain(answer[2][-1], answer, 0.0) is False else ""
    return "unsolved" if variables(answer) else "inconsistent"


def form_fault(gold: str, answer: str) -> str:
    """Why the form of the answer alone makes it wrong for this gold, or an empty text."""
    tree, gold_tree = _tree(answer), _tree(gold)
    if tree is not None and gold_tree is not None:
        return form_problem(gold_tree, tree)
    if tree is not None and is_plain_number(tree) and _GEOMETRY.search(gold):
        return "wrong"  # nobody here reads such golds, but a number is none of them
    if (
        tree is None
        and _OR.search(answer)
        and not _OR.search(gold)
        and (gold_tree is None or gold_tree[0] not in _SEVERAL)
    ):
        return "several_answers"
    # an equation that cannot be read is not taken on trust
    stated = _RELATION.search(_SUBSCRIPT.sub("", answer)) and not _RELATION.search(gold)
    return "unsolved" if stated and _is_number(gold) else ""


def is_solved_by(gold: str, answer: str) -> bool:
    """Whether the answer is an equation of which the gold is a solution."""
    tree, gold_tree = _tree(answer), _tree(gold)
    return tree is not None and gold_tree is not None and tree[0] == "rel" and solves(gold_tree, tree)


_SEVERAL = frozenset(("list", "set", "tuple", "union", "matrix"))


def _tree(text: str) -> Node | None:
    try:
        return parse(text)
    except Unreadable:
        return None


_COMPLEX = (
    re.compile(r"\^\s*\{[^{}]{0,40}\^\s*\{[^{}]{0,40}\^|\^\s*\w\s*\^\s*\w\s*\^"),  # towers of exponents
    re.compile(r"\^\s*\{?\s*-?\s*(?:[0-9]{6,}|[0-9]+\s*\^)"),  # huge exponents
    re.compile(r"[0-9]{4,}\s*\}?\)?\s*!|!\s*!\s*!"),  # big and nested factorials
    re.compile(r"\\(?:d|t)?binom\s*\{?\s*[0-9]{5,}|[0-9]{400,}"),
)


def is_too_complex(answer: str) -> bool:
    """What no answer needs and sympy can spend hours on; the workers' deadline is for the rest."""
    return any(pattern.search(answer) for pattern in _COMPLEX) or _depth(answer) > MAX_DEPTH


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        if character in "{([":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "})]":
            depth -= 1
    return deepest
