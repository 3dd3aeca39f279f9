r"""Steps of a completion and rule-based rewards for each of them, for process supervision.

A step reward is called as TRL calls its rewards and returns [`Steps`] for each completion: the reward of every step
and where it ends. A splitter maps a text to the spans `(start, end)` of its steps, in characters. All of it is linear
in the length of the text, whatever a model writes.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, ClassVar, Literal, NamedTuple

from reward_funcs._equations import equations
from reward_funcs._sentences import sentence_ends
from reward_funcs._tags import TAGS, has_words
from reward_funcs.base import check_setting
from reward_funcs.extract import THINK_CLOSE, THINK_OPEN, completion_text

Span = tuple[int, int]
Splitter = Callable[[str], list[Span]]


class Steps(NamedTuple):
    """The steps of one completion: their rewards and where they end.

    Args:
        rewards (`list[float | None]`): reward of each step; `None` leaves the step out.
        ends (`list[int]`): with `unit="token"` the index of each step's last token, with `unit="char"` the offset just
            behind its last character, so that `text[:end]` ends with the step. The text is that of
            [`completion_text`].
        unit (`str`): `"token"` or `"char"`. A plain pair `(rewards, ends)` means tokens.

    Example:

    ```python
    >>> Steps([1.0, 0.0], [12, 30], unit="char")
    Steps(rewards=[1.0, 0.0], ends=[12, 30], unit='char')

    ```
    """

    rewards: list[float | None]
    ends: list[int]
    unit: Literal["token", "char"] = "token"


def think_span(text: str) -> Span:
    """Where the thinking stands: between `<think>` and the last `</think>`, else the whole text.

    A block that is never closed goes on to the end of the text, and one without an opening tag (the chat template
    wrote it) starts with the text.

    Example:

    ```python
    >>> think_span("<think>2 + 2</think>4"), think_span("2 + 2</think>4"), think_span("2 + 2 = 4")
    ((7, 12), (0, 5), (0, 9))

    ```
    """
    close = text.rfind(THINK_CLOSE)
    end = len(text) if close < 0 else close
    opening = text.find(THINK_OPEN, 0, end)
    return (0 if opening < 0 else opening + len(THINK_OPEN), end)


def split_lines(text: str) -> list[Span]:
    r"""Each line of the thinking is a step; lines without a letter or digit are none.

    Args:
        text (`str`): a completion.

    Returns:
        `list[tuple[int, int]]`: start and end of each step, without the white space around it.

    Example:

    ```python
    >>> text = "<think>2 + 2 = 4\n\nso 4</think>4"
    >>> [text[start:end] for start, end in split_lines(text)]
    ['2 + 2 = 4', 'so 4']

    ```
    """
    start, end = think_span(text)
    return _filled(text, (match.span() for match in _LINE.finditer(text, start, end)))


_LINE = re.compile(r"[^\r\n]+")


def split_sentences(text: str) -> list[Span]:
    r"""Each sentence of the thinking is a step, and a line break ends one too.

    There is no cut within a formula (`$...$`, `$$...$$`, `\(...\)`, `\[...\]`, an environment), a decimal, behind an
    abbreviation or a factorial, or behind the number of a list item.

    Args:
        text (`str`): a completion.

    Returns:
        `list[tuple[int, int]]`: start and end of each step, without the white space around it.

    Example:

    ```python
    >>> text = "1. Take pi, i.e. 3.14. Then $r = 2. x$. Done!"
    >>> [text[start:end] for start, end in split_sentences(text)]
    ['1. Take pi, i.e. 3.14.', 'Then $r = 2. x$.', 'Done!']

    ```
    """
    start, end = think_span(text)
    cuts = [start, *(start + cut for cut in sentence_ends(text[start:end])), end]
    return _filled(text, pairwise(cuts))


def split_regex(pattern: str | re.Pattern[str]) -> Splitter:
    r"""A splitter whose steps of the thinking are what stands between the matches of a pattern.

    Args:
        pattern (`str | re.Pattern`): what separates steps. Patterns with nested repetitions may need more than linear
            time; that is yours to avoid.

    Returns:
        `Callable`: the splitter; it pickles.

    Raises:
        ValueError: When the pattern is no regular expression.

    Example:

    ```python
    >>> text = "Step 1: add Step 2: halve"
    >>> [text[start:end] for start, end in split_regex(r"(?=Step \d)")(text)]
    ['Step 1: add', 'Step 2: halve']

    ```
    """
    try:
        return _RegexSplitter(re.compile(pattern))
    except (re.error, TypeError) as error:
        raise ValueError(
            f"pattern={pattern!r:.80} must be a regular expression ({error}); escape its signs with re.escape"
        ) from error


@dataclass(frozen=True)
class _RegexSplitter:
    pattern: re.Pattern[str]

    def __call__(self, text: str) -> list[Span]:
        start, end = think_span(text)
        # the pattern is looked for in the thinking alone: ^, $ and lookarounds see nothing of the tags
        matches = [match.span() for match in self.pattern.finditer(text[start:end])]
        cuts = [start, *(start + offset for offset in chain.from_iterable(matches)), end]
        return _filled(text, zip(cuts[::2], cuts[1::2], strict=True))


def _filled(text: str, spans: Any) -> list[Span]:
    """The spans that say something, without the white space around them."""
    found = []
    for start, end in spans:
        step = text[start:end]
        if has_words(step):
            start += len(step) - len(step.lstrip())
            found.append((start, start + len(step.strip())))
    return found


class StepReward(ABC):
    """A process reward as a picklable object: [`Steps`] for each completion.

    A subclass implements [`~StepReward.steps`].

    Args:
        splitter (`Callable[[str], list[tuple[int, int]]]`): spans of the steps of a text.
        name (`str`, *optional*): name in the logs.

    Raises:
        ValueError: When the splitter cannot be called.

    Example:

    ```python
    >>> class ShortStepReward(StepReward):
    ...     default_name = "short_step_reward"
    ...
    ...     def steps(self, text):
    ...         spans = self.splitter(text)
    ...         return Steps([float(end - start < 9) for start, end in spans], [end for _, end in spans], "char")
    >>> ShortStepReward()(["one\\na long line", None])
    [Steps(rewards=[1.0, 0.0], ends=[3, 15], unit='char'), Steps(rewards=[], ends=[], unit='char')]

    ```
    """

    default_name: ClassVar[str]

    def __init__(self, splitter: Splitter = split_lines, *, name: str | None = None) -> None:
        if not callable(splitter):
            raise ValueError(
                f"splitter={splitter!r:.80} must be a function from a text to spans; take split_lines, "
                "split_sentences or split_regex(pattern)"
            )
        self.splitter = splitter
        self.__name__ = name or self.default_name

    @abstractmethod
    def steps(self, text: str) -> Steps:
        """The steps of one completion's text."""

    def __call__(
        self,
        completions: Sequence[Any],
        *,
        prompts: Sequence[Any] | None = None,
        completion_ids: Sequence[Sequence[int]] | None = None,
        **columns: Any,
    ) -> list[Steps]:
        """Steps of each completion.

        Args:
            completions (`Sequence`): N completions: texts, or lists of messages.
            prompts (`Sequence`, *optional*): not looked at.
            completion_ids (`Sequence[Sequence[int]]`, *optional*): not looked at.
            **columns: not looked at.

        Returns:
            `list[Steps]`: N of them, with character offsets.

        Raises:
            TypeError: For one text in the place of a list of completions.
        """
        if isinstance(completions, str):
            raise TypeError(
                f"completions must be a list with one entry a completion, not one text: {completions!r:.60}"
            )
        return [self.steps(completion_text(completion)) for completion in completions]

    def __repr__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({settings})"


class ArithmeticStepReward(StepReward):
    r"""Share of a step's equations that hold: `right / all`, in exact arithmetic.

    An equation has numbers on both sides of `=` and arithmetic on one of them: `+ - * /`, brackets, powers, `×`,
    `\times`, `\cdot`, `\div`, `\frac`, `\sqrt`, `20%`, `1,234`; GSM8K's `<<16-3-4=9>>` counts too. `a = b = c` is two
    equations. Each counts where it first stands: one that an earlier step has said earns nothing again, and `7 = 7`
    is none. What has a variable, unit or word between its numbers is left alone, neither right nor wrong, and so is
    what a word beside it calculates with: half of 10 = 5 * 1, 3 plus 4 * 2 = 11, 7 / 2 = 3 remainder 1.

    Args:
        splitter (`Callable[[str], list[tuple[int, int]]]`): spans of the steps of a text.
        no_equation (`float`, *optional*): reward of a step without a new equation. `None` leaves it out: it adds no
            advantage and does not move the mean of its group; 0.0 makes it as bad as a wrong one.
        rounding (`bool`): accept a decimal to which the left side rounds, 10 / 3 = 3.33. `≈` always does.
        name (`str`, *optional*): name in the logs.

    Raises:
        ValueError: For a `no_equation` that is no finite number, or a `rounding` that is neither true nor false.

    Source:
        Ours; it stands in for the reward model of process supervision, DeepSeekMath, arXiv 2402.03300, section 4.1.3.
        It sees wrong arithmetic, not wrong reasoning: add it to a reward of the answer.

    Example:

    ```python
    >>> ArithmeticStepReward()(["3 + 4 = 7\nThen 7 * 2 = 15\nSo 15."])
    [Steps(rewards=[1.0, 0.0, None], ends=[9, 25, 32], unit='char')]

    ```
    """

    default_name: ClassVar[str] = "arithmetic_step_reward"

    def __init__(
        self,
        splitter: Splitter = split_lines,
        *,
        no_equation: float | None = None,
        rounding: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(splitter, name=name)
        self.no_equation = None if no_equation is None else check_setting("no_equation", no_equation, -math.inf)
        self.rounding = _flag("rounding", rounding)

    def steps(self, text: str) -> Steps:
        """Share of right equations of each step."""
        spans = self.splitter(text)
        seen: set[str] = set()
        rewards: list[float | None] = []
        for start, end in spans:
            verdicts = []
            for equation in equations(text[start:end], rounding=self.rounding):
                if equation.written not in seen:
                    seen.add(equation.written)
                    verdicts.append(equation.is_right)
            rewards.append(sum(verdicts) / len(verdicts) if verdicts else self.no_equation)
        return Steps(rewards, [end for _, end in spans], "char")


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r:.80} must be True or False")
    return value


class FormatProgressStepReward(StepReward):
    r"""What a step adds to a well-formed completion: `1/2` for all tags together, `1/2` for the first new steps.

    Each expected tag is a step of its own, or one with the step that it ends. It earns its share of one half where it
    is the next in order, `<think>` with nothing before it and a closing tag with a letter or digit since the tag before
    it; any other tag earns 0. Each of the first `num_steps` steps of the splitter that has `min_words` words or numbers
    and does not repeat an earlier one earns its share of the other half. A repeated or shorter step earns 0, and a
    further new one `None`: it is left out.

    No reward is negative and their sum is at most 1, so progress never costs, and no number of tiny, repeated or
    further steps earns more than `num_steps` plain ones.

    Args:
        splitter (`Callable[[str], list[tuple[int, int]]]`): spans of the steps of a text.
        tags (`Sequence[str]`): the expected tags in order; without answer tags `("<think>", "</think>")`.
        num_steps (`int`): steps that earn.
        min_words (`int`): words or numbers of a step that earns.
        think_prefilled (`bool`): the chat template has written the first tag, so the completion starts behind it.
        name (`str`, *optional*): name in the logs.

    Raises:
        ValueError: For no tags, an empty or a repeated one, or a count below 1.

    Source:
        Ours; the tags are those of DeepSeek-R1, arXiv 2501.12948.

    Example:

    ```python
    >>> steps = FormatProgressStepReward(num_steps=2)(["<think>Add 2 and 2.\nok</think><answer>4</answer>"])
    >>> steps[0].rewards
    [0.125, 0.25, 0.0, 0.125, 0.125, 0.125]

    ```
    """

    default_name: ClassVar[str] = "format_progress_step_reward"

    def __init__(
        self,
        splitter: Splitter = split_lines,
        *,
        tags: Sequence[str] = TAGS,
        num_steps: int = 4,
        min_words: int = 3,
        think_prefilled: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(splitter, name=name)
        think_prefilled = _flag("think_prefilled", think_prefilled)
        texts = isinstance(tags, list | tuple) and all(isinstance(tag, str) and tag.strip() for tag in tags)
        if not texts or len(tags) <= think_prefilled or len(set(tags)) < len(tags):
            raise ValueError(
                f"tags={tags!r:.80} must be a list of different texts, one of them left to write; leave it out for "
                "think and answer tags"
            )
        self.tags = tuple(tags)
        self.num_steps = check_setting("num_steps", num_steps, 1, whole=True)
        self.min_words = check_setting("min_words", min_words, 1, whole=True)
        self.think_prefilled = think_prefilled

    def steps(self, text: str) -> Steps:
        """Progress of each tag and step, in the order of their ends."""
        scored: dict[int, float | None] = {}
        for end, reward in sorted([*self._tags(text), *self._content(text)], key=lambda step: step[0]):
            earlier = scored.get(end)  # a tag that ends a step of the splitter is one step with it
            scored[end] = reward if earlier is None else earlier + (reward or 0.0)
        return Steps(list(scored.values()), list(scored), "char")

    def _tags(self, text: str) -> list[tuple[int, float | None]]:
        """End and reward of each tag."""
        expected = self.tags[self.think_prefilled :]
        share, position, before = 0.5 / len(expected), 0, 0
        found: list[tuple[int, float | None]] = []
        for match in re.finditer("|".join(map(re.escape, sorted(self.tags, key=len, reverse=True))), text):
            tag, between = match.group(), text[before : match.start()]
            is_next = position < len(expected) and tag == expected[position]
            earns = is_next and self._is_placed(tag, between)
            position += is_next
            before = match.end()
            found.append((match.end(), share if earns else 0.0))
        return found

    def _is_placed(self, tag: str, between: str) -> bool:
        if tag == THINK_OPEN:
            return not between.strip()
        return not tag.startswith("</") or has_words(between)

    def _content(self, text: str) -> list[tuple[int, float | None]]:
        """End and reward of each step of the splitter."""
        tags = re.compile("|".join(map(re.escape, self.tags)))
        share = 0.5 / self.num_steps
        seen: set[str] = set()
        found: list[tuple[int, float | None]] = []
        for start, end in self.splitter(text):
            said = _WORD.findall(tags.sub(" ", text[start:end]).casefold())
            key = " ".join(said)
            if not said:
                continue  # nothing but a tag, which is a step already
            if len(said) < self.min_words or key in seen:
                found.append((end, 0.0))
            else:
                found.append((end, share if len(seen) < self.num_steps else None))
                seen.add(key)
        return found


_WORD = re.compile(r"[^\W_]+")

arithmetic_step_rewards = ArithmeticStepReward()
format_progress_step_rewards = FormatProgressStepReward()
