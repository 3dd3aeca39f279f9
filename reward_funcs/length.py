"""Rewards for the length of a completion in tokens: a soft limit, a cosine schedule, and a ranking within the group.

The length is the number of ids in the column `completion_ids`, which TRL always passes; with tools it includes the
tokens of the tool results; ids that are padded to one length count with their padding. None of them falls back on
characters: a limit of 1,280 means something else there.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from reward_funcs._parts import Part, check_part, function_rewards
from reward_funcs.base import Batch, Grade, Reward, check_setting


def completion_lengths(batch: Batch, *, needed_by: str) -> list[int]:
    """Number of tokens of each completion of the batch.

    Raises:
        ValueError: When there is no column `completion_ids`, or an entry of it is no list of ids.
    """
    ids = batch.token_ids()
    if ids is None:
        raise ValueError(
            f"{needed_by} counts tokens and needs completion_ids, one list of token ids for each completion; TRL "
            "passes them, a call of your own adds completion_ids=[tokenizer(text).input_ids for text in completions]"
        )
    return [len(tokens) for tokens in ids]


def _judge(accuracy: Part, batch: Batch, *, needed_by: str) -> list[Grade]:
    """What `accuracy` says of each completion: 1.0 right, 0.0 wrong, `None` unjudged."""
    if isinstance(accuracy, Reward):
        return [_verdict(grade) for grade in accuracy.grade(batch)]
    return [_verdict(Grade(reward)) for reward in function_rewards(accuracy, batch, f"{needed_by}/accuracy")]


def _verdict(grade: Grade) -> Grade:
    if grade.reward is None:
        return Grade(None, grade.reason or "not_judged", grade.answer)
    right = grade.reward > 0.5
    return Grade(float(right), "right" if right else "wrong", grade.answer)


def _checked(accuracy: Part | None, owner: str) -> Part | None:
    if accuracy is not None:
        check_part(accuracy, owner)
    return accuracy


def _close(accuracy: Part | None) -> None:
    close = getattr(accuracy, "close", None)
    if close is not None:
        close()


class SoftOverlongReward(Reward):
    r"""0 up to a soft limit, falling in a straight line to -1 at the hard one, and -1 beyond it.

    With L the length, `M = max_completion_len` and `C = soft_punish_cache`:
    `reward = 0 if L <= M - C else max(-1, (M - C - L) / C)`.

    Args:
        max_completion_len (`int`): tokens from which the reward is -1.
        soft_punish_cache (`int`): number of tokens before that over which the reward falls; 0 is a hard limit.
        name (`str`, *optional*): name in TRL's logs.

    Raises:
        ValueError: For a limit below 1 or a cache outside 0 to `max_completion_len`; when called, without
            `completion_ids`.

    Source:
        Eq. 13 of DAPO, arXiv 2503.14476, section 3.4, which uses 16384 + 4096 tokens of which the last 4096 are the
        cache. The values are those of TRL's `get_soft_overlong_punishment`; a cache above the limit, which punishes
        the empty completion, is refused here.

    Example:

    ```python
    >>> soft_overlong = SoftOverlongReward(max_completion_len=100, soft_punish_cache=20)
    >>> soft_overlong(["..."] * 4, completion_ids=[[0] * length for length in (80, 90, 100, 101)])
    [0.0, -0.5, -1.0, -1.0]

    ```
    """

    default_name: ClassVar[str] = "soft_overlong_reward"

    def __init__(
        self, max_completion_len: int = 1280, soft_punish_cache: int = 256, *, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self.max_completion_len = check_setting("max_completion_len", max_completion_len, 1, whole=True)
        self.soft_punish_cache = check_setting("soft_punish_cache", soft_punish_cache, 0, whole=True)
        if soft_punish_cache > max_completion_len:
            raise ValueError(
                f"soft_punish_cache must be at most max_completion_len = {max_completion_len}, as it is a part of it; "
                f"it is {soft_punish_cache}"
            )

    def grade(self, batch: Batch) -> list[Grade]:
        """Each completion's penalty."""
        return [self._penalty(length) for length in completion_lengths(batch, needed_by=self.__name__)]

    def _penalty(self, length: int) -> Grade:
        soft_limit = self.max_completion_len - self.soft_punish_cache
        if length <= soft_limit:
            return Grade(0.0, "in_limit")
        if length <= self.max_completion_len:
            return Grade((soft_limit - length) / self.soft_punish_cache, "in_cache")
        return Grade(-1.0, "over_limit")


class CosineLengthReward(Reward):
    r"""Reward for being right that falls with the length, and penalty for being wrong that falls with it as well.

    With L the length and `c = cos(pi * min(L / max_len, 1))`, which goes from 1 to -1:
    `reward = end + (start - end) * (1 + c) / 2`, where a right completion goes from `start = max_value_correct` to
    `end = min_value_correct` and a wrong one from `start = min_value_wrong` to `end = max_value_wrong`.

    So the shortest right answer is worth most, and a wrong one costs less the longer it tried.

    Args:
        max_len (`int`): tokens at which the schedule ends; longer completions get its end.
        min_value_wrong (`float`): reward of a wrong completion of length 0.
        max_value_wrong (`float`): reward of a wrong completion of `max_len` tokens and more.
        min_value_correct (`float`): reward of a right completion of `max_len` tokens and more.
        max_value_correct (`float`): reward of a right completion of length 0.
        accuracy (`Reward | Callable`, *optional*): says what is right, by a reward above 0.5; `AccuracyReward()` by
            default. A `Reward` grades the same batch, so that a composition parses once; any other function is called
            with `completions` and the columns. Where it says `None`, so does this reward.
        name (`str`, *optional*): name in TRL's logs.

    Raises:
        ValueError: For `max_len` below 1, a value that is no finite number, or a minimum above its maximum; when
            called, without `completion_ids`, and whatever `accuracy` raises.

    Source:
        Appendix C.1 of Yeo et al. 2025, "Demystifying Long Chain-of-Thought Reasoning", arXiv 2502.03373. As in TRL's
        `get_cosine_scaled_reward`, a completion longer than `max_len` keeps the end of the schedule, where the paper
        has a separate penalty: add [`SoftOverlongReward`] for it.

    Example:

    ```python
    >>> cosine = CosineLengthReward(max_len=100, accuracy=lambda completions, **columns: [1.0, 0.0, None])
    >>> cosine(["right", "wrong", "unjudged"], completion_ids=[[0] * 50] * 3)
    [0.75, -0.75, None]

    ```
    """

    default_name: ClassVar[str] = "cosine_length_reward"

    def __init__(
        self,
        max_len: int = 1024,
        min_value_wrong: float = -1.0,
        max_value_wrong: float = -0.5,
        min_value_correct: float = 0.5,
        max_value_correct: float = 1.0,
        *,
        accuracy: Part | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.max_len = check_setting("max_len", max_len, 1, whole=True)
        self.min_value_wrong = check_setting("min_value_wrong", min_value_wrong)
        self.max_value_wrong = check_setting("max_value_wrong", max_value_wrong)
        self.min_value_correct = check_setting("min_value_correct", min_value_correct)
        self.max_value_correct = check_setting("max_value_correct", max_value_correct)
        self.accuracy = _checked(accuracy, type(self).__name__)
        for kind in ("wrong", "correct"):
            low, high = getattr(self, f"min_value_{kind}"), getattr(self, f"max_value_{kind}")
            if low > high:
                raise ValueError(f"min_value_{kind}={low!r} must not be above max_value_{kind}={high!r}; swap them")

    def grade(self, batch: Batch) -> list[Grade]:
        """Each completion's value on the schedule of its verdict."""
        lengths = completion_lengths(batch, needed_by=self.__name__)
        verdicts = _judge(self._accuracy(), batch, needed_by=self.__name__)
        return [self._scaled(verdict, length) for verdict, length in zip(verdicts, lengths, strict=True)]

    def close(self) -> None:
        """Close the accuracy reward that was given."""
        _close(self.accuracy)

    def _accuracy(self) -> Part:
        if self.accuracy is None:
            # the one that accuracy_reward uses, with its workers
            from reward_funcs.grading import accuracy_reward

            return accuracy_reward
        return self.accuracy

    def _scaled(self, verdict: Grade, length: int) -> Grade:
        if verdict.reward is None:
            return verdict
        if verdict.reward:
            start, end = self.max_value_correct, self.min_value_correct
        else:
            start, end = self.min_value_wrong, self.max_value_wrong
        # the cosine is periodic: unclamped, a completion of twice max_len would count as an empty one
        cosine = math.cos(math.pi * min(length / self.max_len, 1.0))
        return verdict._replace(reward=float(end + 0.5 * (start - end) * (1.0 + cosine)))


class LengthPenaltyReward(Reward):
    r"""Bonus for the shorter and penalty for the longer completions of one prompt, between 0.5 and -0.5.

    `lambda = 0.5 - (L - min) / (max - min)`, with L the length and min and max over the completions of the prompt;
    `reward = lambda` for a right completion and `min(0, lambda)` for a wrong one; 0 where all are of one length.

    Without `accuracy` every completion gets `lambda`, right or wrong, and no gold is needed. That pays for being short
    alone: combine it with a reward for being right, or give `accuracy=AccuracyReward()`.

    Args:
        num_generations (`int`, *optional*): completions a prompt, that many in a row. By default the completions of
            one call with equal values in the column `prompts` (arrays in them by content) are a group, wherever they
            stand in it; without that column the whole call is one.
        accuracy (`Reward | Callable`, *optional*): says what is right, by a reward above 0.5, as in
            [`CosineLengthReward`]. What it cannot judge gets `None`, and its length still counts for the group.
        name (`str`, *optional*): name in TRL's logs.

    Raises:
        ValueError: For `num_generations` below 2, or when a call's completions cannot be divided by it; when called,
            without `completion_ids`.

    Source:
        Kimi k1.5, arXiv 2501.12599, section 2.3.3. The paper adds it with a weight, and only after a first phase
        without it. open-r1's `len_reward` takes min and max over the whole batch, in characters; here it is over
        the group and in tokens, as in the paper.

    A group must be in one call. TRL scores what one process has generated, so with several processes and
    `per_device_train_batch_size * steps_per_generation` no multiple of `num_generations`, a group is split, and each
    part is ranked by itself. Two rows of a data set with the same prompt are one group when they meet in one call.

    Example:

    ```python
    >>> penalty = LengthPenaltyReward()
    >>> penalty(["..."] * 5, prompts=["p", "p", "p", "q", "q"], completion_ids=[[0] * n for n in (10, 15, 20, 7, 7)])
    [0.5, 0.0, -0.5, 0.0, 0.0]

    ```
    """

    default_name: ClassVar[str] = "length_penalty_reward"
    group_relative = True

    def __init__(
        self, num_generations: int | None = None, *, accuracy: Part | None = None, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self.num_generations = (
            None if num_generations is None else check_setting("num_generations", num_generations, 2, whole=True)
        )
        self.accuracy = _checked(accuracy, type(self).__name__)

    def grade(self, batch: Batch) -> list[Grade]:
        """Each completion's place between the shortest and the longest of its prompt."""
        lengths = completion_lengths(batch, needed_by=self.__name__)
        verdicts = (
            [Grade(1.0)] * len(batch)
            if self.accuracy is None
            else _judge(self.accuracy, batch, needed_by=self.__name__)
        )
        grades = list(verdicts)
        for members in self._groups(batch):
            shortest = min(lengths[i] for i in members)
            spread = max(lengths[i] for i in members) - shortest
            for i in members:
                place = 0.5 - (lengths[i] - shortest) / spread if spread else 0.0
                grades[i] = _placed(verdicts[i], place)
        return grades

    def close(self) -> None:
        """Close the accuracy reward that was given."""
        _close(self.accuracy)

    def _groups(self, batch: Batch) -> list[list[int]]:
        """Positions of the completions of each prompt."""
        prompts, size = batch.optional("prompts"), self.num_generations
        if size is not None:
            if len(batch) % size:
                raise ValueError(
                    f"num_generations = {size} must divide the number of completions of a call, which is {len(batch)}; "
                    "leave it out to group by prompt"
                )
            return [list(range(start, start + size)) for start in range(0, len(batch), size)]
        if prompts is None:
            return [list(range(len(batch)))] if len(batch) else []
        return _equal_prompts(prompts)


def _placed(verdict: Grade, place: float) -> Grade:
    if verdict.reward is None:
        return verdict
    reward = place if verdict.reward else min(0.0, place)
    return Grade(reward, "shorter" if reward > 0 else "longer" if reward < 0 else "neutral", verdict.answer)


def _equal_prompts(prompts: Sequence[Any]) -> list[list[int]]:
    """Positions of equal prompts, in order of first appearance.

    Messages cannot be hashed and may hold images or arrays, so their text only finds the candidates.
    """
    found: dict[Hashable, list[tuple[Any, list[int]]]] = {}
    for i, prompt in enumerate(prompts):
        candidates = found.setdefault(_text_key(prompt), [])
        members = next((members for other, members in candidates if _same(other, prompt)), None)
        if members is None:
            candidates.append((prompt, [i]))
        else:
            members.append(i)
    return [members for candidates in found.values() for _, members in candidates]


def _text_key(prompt: Any) -> Hashable:
    """One value for prompts that may be equal: their texts and numbers, in the order of lists and of no mapping."""
    if prompt is None or isinstance(prompt, (str, int, float)):
        return prompt
    if isinstance(prompt, Mapping):
        return frozenset((str(key), _text_key(value)) for key, value in prompt.items())
    return tuple(map(_text_key, prompt)) if isinstance(prompt, (list, tuple)) else ""


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if hasattr(one, "tolist") and hasattr(other, "tolist"):  # the == of arrays is one for each of their elements
        return type(one) is type(other) and bool(one.tolist() == other.tolist())
    return not (hasattr(one, "tolist") or hasattr(other, "tolist")) and bool(one == other)


soft_overlong_reward = SoftOverlongReward()
cosine_length_reward = CosineLengthReward()
length_penalty_reward = LengthPenaltyReward()
