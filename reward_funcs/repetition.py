"""A penalty for saying the same again: the share of n-grams of a completion that are repetitions."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from itertools import islice
from typing import ClassVar, Literal

from reward_funcs.base import Batch, Grade, Reward, check_setting

UNITS = ("token", "word")
# Han ideographs and the two kana syllabaries, written without spaces between words. Korean has spaces; a Thai sentence
# stays one word, because letters, unlike ideographs, repeat in any text.
_IDEOGRAPHS = "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
_SHORT = 8  # up to here the n-grams themselves are compared, which is faster
_WORD = re.compile(f"[{_IDEOGRAPHS}]|[^\\s{_IDEOGRAPHS}]+")


def words(text: str) -> list[str]:
    """The words of a text without regard to case: what stands between spaces, and each ideograph or kana by itself.

    Example:

    ```python
    >>> words("So x = 4, 所以 x")
    ['so', 'x', '=', '4,', '所', '以', 'x']

    ```
    """
    return _WORD.findall(text.casefold())


class RepetitionPenaltyReward(Reward):
    r"""Share of repeated n-grams times the penalty: `reward = (1 - distinct n-grams / all n-grams) * max_penalty`.

    0 where nothing repeats, and for texts shorter than `ngram_size`; close to `max_penalty` for one token repeated.

    Args:
        ngram_size (`int`): tokens or words an n-gram; the paper uses 40, which leaves turns of phrase alone.
        max_penalty (`float`): reward of a text that only repeats itself, at most 0.
        unit (`str`, *optional*): `"token"`, `"word"`, or by default `None`: tokens whenever the call has
            `completion_ids`, as under TRL, and words otherwise. Words are split at spaces, Chinese and Japanese text
            at every character, and upper and lower case are one.
        name (`str`, *optional*): name in TRL's logs.

    Raises:
        ValueError: For `ngram_size` below 1, a positive or infinite `max_penalty`, or an unknown unit; when called,
            for `unit="token"` without `completion_ids`.

    Source:
        Appendix C.2 of Yeo et al. 2025, "Demystifying Long Chain-of-Thought Reasoning", arXiv 2502.03373, which
        penalises each repeated token; this is its one number a completion. With tokens the values are those of
        TRL's `get_repetition_penalty_reward`, with words those of open-r1's, except for Chinese and Japanese.

    Example:

    ```python
    >>> repetition_penalty = RepetitionPenaltyReward(ngram_size=2)
    >>> repetition_penalty(["to be or not to be", "short"])
    [-0.19999999999999996, 0.0]
    >>> repetition_penalty(["...", "..."], completion_ids=[[1, 2, 3, 4], [5, 5, 5, 5, 5]])
    [0.0, -0.75]

    ```
    """

    default_name: ClassVar[str] = "repetition_penalty_reward"

    def __init__(
        self,
        ngram_size: int = 3,
        max_penalty: float = -1.0,
        unit: Literal["token", "word"] | None = None,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.ngram_size = check_setting("ngram_size", ngram_size, 1, whole=True)
        if unit not in (None, *UNITS):
            raise ValueError(f"unit must be 'token', 'word' or None (tokens where there are any); it is {unit!r}")
        self.max_penalty = check_setting("max_penalty", max_penalty, most=0)
        self.unit = unit

    def grade(self, batch: Batch) -> list[Grade]:
        """Each completion's penalty."""
        ids = batch.token_ids()
        if self.unit == "token" and ids is None:
            raise ValueError(
                f"{self.__name__} with unit='token' needs completion_ids, one list of token ids for each completion; "
                "pass them, or take unit='word'"
            )
        if self.unit == "word" or ids is None:
            return [self._penalty(words(text)) for text in batch.texts]
        # int() because the elements of a list of tensors are no equal keys
        return [self._penalty([int(token) for token in tokens]) for tokens in ids]

    def _penalty(self, units: Sequence[Hashable]) -> Grade:
        total = len(units) - self.ngram_size + 1
        if total < 1:
            return Grade(0.0, "too_short")
        distinct = _num_distinct(units, self.ngram_size)
        if distinct == total:
            return Grade(0.0, "no_repetition")
        return Grade((1 - distinct / total) * self.max_penalty, "repetition")


def _num_distinct(units: Sequence[Hashable], size: int) -> int:
    """Number of different n-grams of the size, in time that hardly depends on it."""
    if size <= _SHORT:
        return len(set(zip(*(islice(units, start, None) for start in range(size)), strict=False)))
    # long ones are told apart by the numbers of the two shorter ones that they consist of, which may overlap
    grams, length = units, 1
    while length < size:
        step = min(length, size - length)
        numbers: dict[Hashable, int] = {}
        grams = [numbers.setdefault(pair, len(numbers)) for pair in zip(grams, islice(grams, step, None), strict=False)]
        length += step
    return len(set(grams))


repetition_penalty_reward = RepetitionPenaltyReward()
