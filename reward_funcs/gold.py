r"""Golds as data sets write them: bare LaTeX, `$...$`, `\boxed{...}`, `#### 42`, numbers, lists of any of these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from reward_funcs.base import plain_value
from reward_funcs.extract import boxed_run, final_answer
from reward_funcs.latex import plain

GSM8K_MARK = "####"


def gold_texts(gold: Any) -> tuple[str, ...]:
    r"""The answers that a gold holds, as LaTeX without delimiters.

    Args:
        gold (`Any`): a text, a number, or a list of them. A full solution counts as its last `\boxed{}`, or as what
            follows `####`.

    Returns:
        `tuple[str, ...]`: one text of a single gold, one for each entry of a list; empty where nothing can be compared
        with it (`None`, an empty text, `nan`, another type).

    Example:

    ```python
    >>> gold_texts("so 6 * 7 = 42\n#### 42"), gold_texts([r"$\frac{1}{2}$", 0.5]), gold_texts(None)
    (('42',), ('\\frac{1}{2}', '0.5'), ())

    ```
    """
    if isinstance(gold, str):
        text = _text_gold(gold)
        return (text,) if text else ()
    gold = plain_value(gold)
    if isinstance(gold, Sequence) and not isinstance(gold, (bytes, bytearray)):
        parts = [gold_texts(item) for item in gold if not isinstance(item, (list, tuple))]
        # one bad entry does not spoil the others
        return tuple(part[0] for part in parts if part)
    text = _number_gold(gold)
    return (text,) if text else ()


@lru_cache(maxsize=16384)
def _text_gold(gold: str) -> str:
    if GSM8K_MARK in gold:
        gold = gold.rpartition(GSM8K_MARK)[2]
    boxes = boxed_run(gold).contents
    if boxes:
        gold = ", ".join(dict.fromkeys(boxes))
    elif len(gold) > 200 and (stated := final_answer(gold, delimited=True)) is not None:
        gold = stated  # a solution in prose
    return plain(gold)


def _number_gold(gold: Any) -> str:
    try:
        return _written(gold)
    except (ValueError, OverflowError):  # more digits than Python writes, a signalling NaN
        return ""


def _written(gold: Any) -> str:
    if isinstance(gold, bool):
        return ""
    if isinstance(gold, (float, Decimal)):
        if not math.isfinite(gold):
            return ""
        return str(int(gold)) if gold == int(gold) and -(10**16) < gold < 10**16 else str(gold)
    if isinstance(gold, Fraction):
        return f"{gold.numerator}/{gold.denominator}" if gold.denominator != 1 else str(gold.numerator)
    return str(gold) if isinstance(gold, int) else ""
