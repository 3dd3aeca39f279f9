"""Golds that nothing can be compared with, told apart without an answer: a bad gold is nobody's wrong answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from reward_funcs.maths import is_readable

MAX_KNOWN = 16384
MAX_TRIES = 2  # of a gold that runs into a limit of the workers: each costs their deadline
UNPARSED = "unparsed_gold"
# what only math-verify can tell of a gold stays true for the process: "" for one that it reads
_known: dict[str, str] = {}
_tries: dict[str, int] = {}
readable_here = lru_cache(maxsize=MAX_KNOWN)(is_readable)


def gold_faults(
    golds: Iterable[str], compare: Callable[[list[tuple[str, str]]], Sequence[tuple[bool | None, str]]]
) -> dict[str, str]:
    r"""Why nothing can be compared with a gold, for those of the golds of which that is so.

    Args:
        golds (`Iterable[str]`): golds as [`reward_funcs.gold.gold_texts`] gives them.
        compare (`Callable`): what math-verify says of pairs of a gold and an answer; not asked about golds that are
            read in process, nor twice about one.

    Returns:
        `dict[str, str]`: by gold `"unparsed_gold"`, or the limit that a worker ran into, such as `"gold_timeout"`.

    Example:

    ```python
    >>> gold_faults(["5", r"\frac{1}{"], lambda pairs: [(None, "unparsed_gold") for _ in pairs])
    {'\\frac{1}{': 'unparsed_gold'}

    ```
    """
    unread = [gold for gold in dict.fromkeys(golds) if not readable_here(gold)]
    unknown = [gold for gold in unread if gold not in _known]
    faults = {gold: _known[gold] for gold in unread if gold in _known}
    if unknown:
        # against an answer that cannot be read, so that nothing is computed where the gold can
        for gold, (_, reason) in zip(unknown, compare([(gold, "") for gold in unknown]), strict=True):
            fault = reason if is_fault(reason) else ""
            faults[gold] = fault
            _tries[gold] = _tries.get(gold, 0) + (fault != "")
            if fault == UNPARSED or reason == "unparsed_answer" or _tries[gold] >= MAX_TRIES:
                _remember(gold, fault)
    return {gold: fault for gold, fault in faults.items() if fault}


def is_fault(reason: str) -> bool:
    """Whether the reason of a verdict blames the gold."""
    return reason == UNPARSED or reason.startswith("gold_")


def _remember(gold: str, fault: str) -> None:
    if len(_known) >= MAX_KNOWN:
        _known.clear()
    if len(_tries) >= MAX_KNOWN:
        _tries.clear()
    _known[gold] = fault
