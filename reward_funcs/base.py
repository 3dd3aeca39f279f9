"""What every reward shares: the call that TRL makes, the columns it needs, and what it reports."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

from reward_funcs._settings import check_flag as check_flag
from reward_funcs._settings import check_name as check_name
from reward_funcs._settings import check_setting as check_setting
from reward_funcs.extract import completion_text, without_end_tokens

LogExtra = Callable[[str, list[Any]], None]
LogMetric = Callable[[str, float], None]
T = TypeVar("T")

# Arguments of TRL's call that are no column of the data set.
NOT_COLUMNS = frozenset({"prompts", "completion_ids", "trainer_state", "environments"})


class Grade(NamedTuple):
    """One completion's reward, why it got it, and the answer that was read out of it.

    `reward` is `None` where the completion cannot be judged; `reason` is a short fixed code such as `"wrong"` or
    `"no_answer"`, never model text.
    """

    reward: float | None
    reason: str = ""
    answer: str | None = None


# The grade of a completion that a reward was not asked about; it is no missing reward and counts as none.
NOT_ASKED = Grade(None, "not_asked")

# How the reasons begin that blame a value of the data set.
BAD_DATA = ("bad_", "no_language", "unknown_language", "unknown_constraint")


def plain_value(value: Any) -> Any:
    """Python's lists and numbers for an array or tensor; 0.1 in single precision is 0.1; else the value as it is."""
    if not hasattr(value, "tolist"):
        return value
    listed = value.tolist()
    return _short(listed) if getattr(getattr(value, "dtype", None), "itemsize", 8) < 8 else listed


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(item) for item in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def plain(value: Any) -> Any:
    """A column's value without arrays and tensors, those inside lists and mappings too, see [`plain_value`].

    Example:

    ```python
    >>> import array
    >>> plain({"text": array.array("i", [4, 5])})
    {'text': [4, 5]}

    ```
    """
    if value is None or isinstance(value, str):
        return value
    value = plain_value(value)
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


class Batch:
    """The completions of one call with their columns, and what several rewards compute from them kept once.

    Args:
        completions (`Sequence[Any]`): N completions: texts, or lists of messages.
        columns (`dict[str, Any]`): the other keyword arguments of the call, columns of N values among them.
        log_extra (`Callable`, *optional*): TRL's `log_extra(column, values)`.
        log_metric (`Callable`, *optional*): TRL's `log_metric(name, value)`.

    Example:

    ```python
    >>> batch = Batch(["a", "bb", "a"], {"solution": ["x", "y", "z"]})
    >>> batch.each_text("length", len)
    [1, 2, 1]
    >>> batch.subset([0, 2]).column("solution", needed_by="some_reward")
    ['x', 'z']

    ```
    """

    def __init__(
        self,
        completions: Sequence[Any],
        columns: dict[str, Any],
        log_extra: LogExtra | None = None,
        log_metric: LogMetric | None = None,
    ) -> None:
        if isinstance(completions, str):
            raise TypeError(
                f"completions must be a list with one entry a completion, not one text: {completions!r:.60}"
            )
        self.completions = completions
        self._columns = columns
        self._log_extra = log_extra
        self._log_metric = log_metric
        self.read: set[str] = set()  # names of the columns that were looked at
        self._memo: dict[Hashable, Any] = {}
        self._by_text: dict[Hashable, dict[str, Any]] = {}

    def __len__(self) -> int:
        return len(self.completions)

    @property
    def columns(self) -> dict[str, Any]:
        """The other keyword arguments of the call; prefer [`~Batch.column`], which checks and says what it read."""
        self.read.update(self._columns)
        return self._columns

    @cached_property
    def texts(self) -> list[str]:
        """The text of each completion without end-of-turn tokens, see `completion_text` and `without_end_tokens`."""
        return [without_end_tokens(completion_text(completion)) for completion in self.completions]

    def optional(self, name: str) -> list[Any] | None:
        """The N values of a column, or `None` where there is no such column; arrays and tensors as lists and numbers.

        Raises:
            ValueError: When the column does not hold one value a completion.
        """
        self.read.add(name)
        values = self._columns.get(name)
        if values is None:
            return None
        listed = plain_value(values)
        if isinstance(listed, (str, bytes)) or not hasattr(listed, "__len__") or len(listed) != len(self):
            raise ValueError(self._not_one_each(name, listed))
        return [plain_value(value) for value in listed]

    def _not_one_each(self, name: str, values: Any) -> str:
        counted = hasattr(values, "__len__") and not isinstance(values, (str, bytes))
        found = f"has {len(values)} values" if counted else f"is {values!r:.80}"
        return f"the column {name!r} must be a list with one value for each of the {len(self)} completions; it {found}"

    def token_ids(self) -> list[Sequence[int]] | None:
        """The ids of each completion's tokens, `None` where the call has no column `completion_ids`.

        Raises:
            ValueError: When an entry of the column is no list of ids.
        """
        ids = self.optional("completion_ids")
        for index, tokens in enumerate(ids or ()):
            if isinstance(tokens, (str, bytes, Mapping)) or not isinstance(tokens, Sequence):
                raise ValueError(
                    f"completion_ids must hold a list of token ids for each completion; it is {tokens!r:.60} for "
                    f"completion {index}"
                )
        return ids

    def column(self, name: str, *, needed_by: str, argument: str | None = None) -> list[Any]:
        """The N values of a column that must be there.

        Args:
            name (`str`): name of the column.
            needed_by (`str`): name of the reward, for the message.
            argument (`str`, *optional*): the reward's argument that names another column, for the message.

        Raises:
            ValueError: When there is no such column; the message names those there are.
        """
        values = self.optional(name)
        if values is None:
            seen = sorted(key for key, value in self._columns.items() if value is not None and key not in NOT_COLUMNS)
            remedy = f"; name it with {argument}=..." if argument and seen else ""
            raise ValueError(
                f"{needed_by} needs the column {name!r}; the columns here are {', '.join(seen) or 'none'}{remedy}"
            )
        return values

    def memo(self, key: Hashable, compute: Callable[[], T]) -> T:
        """`compute()`, or what it returned when the same key was asked for before in this call."""
        if key not in self._memo:
            self._memo[key] = compute()
        value: T = self._memo[key]
        return value

    def each_text(self, key: Hashable, compute: Callable[[str], T]) -> list[T]:
        """`compute(text)` of each completion's text, once for each different text of the call.

        Unlike [`~Batch.memo`] it is shared with the subsets of the batch, so `compute` must depend on the text alone.
        """
        known = self._by_text.setdefault(key, {})
        for text in self.texts:
            if text not in known:
                known[text] = compute(text)
        return [known[text] for text in self.texts]

    def subset(self, indices: Sequence[int]) -> Batch:
        """The batch of some of the completions, with their values of every column.

        It shares what was computed by text. TRL's table has one value for each completion of the whole call, so what
        is logged to it from here is dropped; metrics are passed on.

        Args:
            indices (`Sequence[int]`): positions of the completions, in the order wanted.

        Raises:
            ValueError: When a column does not hold one value a completion.
        """
        columns = {name: self._picked(name, values, indices) for name, values in self._columns.items()}
        log_extra = None if self._log_extra is None else _dropped
        part = Batch([self.completions[i] for i in indices], columns, log_extra, self._log_metric)
        part.read, part._by_text = self.read, self._by_text
        if "texts" in self.__dict__:
            part.texts = [self.texts[i] for i in indices]
        if list(indices) == list(range(len(self))):
            part._memo = self._memo
        return part

    def _picked(self, name: str, values: Any, indices: Sequence[int]) -> Any:
        if isinstance(values, (str, bytes, Mapping)) or not (
            hasattr(values, "__getitem__") and hasattr(values, "__len__")
        ):
            return values  # no column: trainer_state and what else a trainer passes
        if len(values) != len(self):
            # left as it is, it could fit the subset by chance and give completions the values of others
            raise ValueError(self._not_one_each(name, values))
        listed = list(values)  # a pandas Series is indexed by its own labels
        return [listed[i] for i in indices]

    def arguments(self, prefix: str = "") -> dict[str, Any]:
        """The keyword arguments of TRL's call again, for a reward that is a plain function.

        Lists are copies, so that a function that changes its own leaves those of the others alone. Every column counts
        as read then but the prompts, which each function is given and few look at.

        Args:
            prefix (`str`, *optional*): put before the names of what the function logs.
        """
        given = {"completions": self.completions, **self._columns}
        columns = {name: _own(values) for name, values in given.items() if values is not None}
        self.read.update(columns.keys() - {"prompts", "completions"})
        if self._log_extra is not None:
            columns["log_extra"] = lambda column, values: self.log_extra(prefix + column, values)
        if self._log_metric is not None:
            columns["log_metric"] = lambda name, value: self.log_metric(prefix + name, value)
        return columns

    def log_extra(self, column: str, values: list[Any]) -> None:
        """Pass a column of N values on to TRL's table of completions, where there is one.

        Raises:
            ValueError: For another number of values, which would shift every later row of the table.
        """
        if len(values) != len(self):
            raise ValueError(self._not_one_each(column, values))
        if self._log_extra is not None:
            self._log_extra(column, values)

    def log_metric(self, name: str, value: float) -> None:
        """Pass a figure on to TRL's metrics, where they are kept."""
        if self._log_metric is not None:
            self._log_metric(name, value)


def _own(values: Any) -> Any:
    return values.copy() if isinstance(values, (list, dict)) else values


def _dropped(column: str, values: list[Any]) -> None:
    """Where the columns of a subset go."""


def log_grades(batch: Batch, name: str, grades: Sequence[Grade]) -> None:
    """Report grades: the columns `<name>/reason` and `<name>/answer`, and the metrics `<name>/none/<reason>`.

    Example:

    ```python
    >>> log_grades(Batch(["4"], {}, log_metric=print), "some_reward", [Grade(None, "bad_gold")])
    some_reward/none/bad_gold 1.0

    ```
    """
    # always the same columns: TRL's table needs each of them in every step
    batch.log_extra(f"{name}/reason", [grade.reason for grade in grades])
    batch.log_extra(f"{name}/answer", [grade.answer for grade in grades])
    log_unjudged(batch, name, grades)


def log_unjudged(batch: Batch, name: str, grades: Sequence[Grade]) -> None:
    """Report how many completions got `None` for which reason, as `<name>/none/<reason>`."""
    unjudged = Counter(g.reason or "unknown" for g in grades if g.reward is None and g is not NOT_ASKED)
    for reason, count in sorted(unjudged.items()):
        batch.log_metric(f"{name}/none/{reason}", float(count))


def boxed(gold: Any) -> str | None:
    """`\\boxed{gold}`, or `None` where the gold is no text or number.

    Example:

    ```python
    >>> print(boxed("1/2"), boxed(None))
    \\boxed{1/2} None

    ```
    """
    return f"\\boxed{{{gold}}}" if isinstance(gold, (str, int, float)) else None


class Reward(ABC):
    """A reward function as a picklable object, called as TRL calls its `reward_funcs`.

    A subclass implements [`~Reward.grade`]. Calling the object grades the completions and reports through
    `log_extra` the columns `<name>/reason` and `<name>/answer`, and through `log_metric` how many completions of the
    call got `None` for which reason, as `<name>/none/<reason>`.

    Args:
        name (`str`, *optional*): name in TRL's logs and tables; two rewards of one run need different ones.

    Example:

    ```python
    >>> class ShortReward(Reward):
    ...     default_name = "short_reward"
    ...
    ...     def grade(self, batch):
    ...         return [Grade(1.0, "short") if len(text) < 9 else Grade(0.0, "long") for text in batch.texts]
    >>> ShortReward()(["It is 4.", [{"role": "assistant", "content": "It is certainly 4."}]])
    [1.0, 0.0]

    ```
    """

    default_name: ClassVar[str]
    # Reasons of a `None` that says nothing against the completion, nor that data is missing: compositions leave such a
    # part out, since otherwise a completion could take back the verdict of the other parts by earning one.
    neutral_reasons: ClassVar[frozenset[str]] = frozenset()
    # True where a completion's reward depends on the others of the call: those must not be left out then
    group_relative: bool = False

    def __init__(self, *, name: str | None = None) -> None:
        self.__name__ = self.default_name if name is None else check_name("name", name)

    @abstractmethod
    def grade(self, batch: Batch) -> list[Grade]:
        """One [`Grade`] for each completion of the batch, in order. It logs nothing itself."""

    def __call__(
        self,
        completions: Sequence[Any],
        *,
        solution: Sequence[Any] | None = None,
        prompts: Sequence[Any] | None = None,
        completion_ids: Sequence[Sequence[int]] | None = None,
        log_extra: LogExtra | None = None,
        log_metric: LogMetric | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Reward of each completion.

        Args:
            completions (`Sequence`): N completions: texts, or lists of messages.
            solution (`Sequence`, *optional*): N golds, for the rewards that need them.
            prompts (`Sequence`, *optional*): N prompts.
            completion_ids (`Sequence[Sequence[int]]`, *optional*): token ids of each completion.
            log_extra (`Callable`, *optional*): TRL's `log_extra`.
            log_metric (`Callable`, *optional*): TRL's `log_metric`.
            **columns: further columns of the data set, N values each; whatever else the trainer passes is ignored.

        Returns:
            `list[float | None]`: N rewards, `None` for what cannot be judged.
        """
        columns |= {"solution": solution, "prompts": prompts, "completion_ids": completion_ids}
        return self.rewards(Batch(completions, columns, log_extra, log_metric))

    def rewards(self, batch: Batch) -> list[float | None]:
        """Grade a batch, report, and return the rewards."""
        grades = self.grade(batch)
        assert len(grades) == len(batch), (self.__name__, len(grades), len(batch))
        return self._reported(batch, grades)

    def _reported(self, batch: Batch, grades: Sequence[Grade]) -> list[float | None]:
        """The rewards of the grades, which are logged; a call without one usable row is warned of, once."""
        log_grades(batch, self.__name__, grades)
        reasons = sorted({grade.reason for grade in grades if grade.reward is None})
        unusable = len(grades) > 1 and all(g.reward is None and g.reason.startswith(BAD_DATA) for g in grades)
        if unusable and not getattr(self, "_has_warned", False):
            self._has_warned = True
            warnings.warn(
                f"{self.__name__} could judge none of the {len(grades)} completions of a call ({', '.join(reasons)}): "
                "its columns do not hold what it reads, so nothing is learned from it; check_golds shows the rows",
                stacklevel=4,  # the caller of the reward
            )
        return [grade.reward for grade in grades]

    def ideal(self, gold: Any) -> str | None:
        """A completion that answers with the gold itself, for [`check_golds`]; `None` where none can be made of it."""
        return boxed(gold)

    def close(self) -> None:  # noqa: B027 - most rewards hold nothing
        """Give back what the reward holds (worker processes); the next call takes it again."""

    def __repr__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in vars(self).items() if not key.startswith("_"))
        return f"{type(self).__name__}({settings})"
