"""Rewards for the form of a completion: think and answer tags, code blocks, visible steps.

A completion earns nothing for the form of an empty thing: tags count when they stand once, in order, around something.
Everything is found in one pass over the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Literal

from reward_funcs._tags import (
    TAG,
    TAGS,
    has_exact_newlines,
    has_reasoning_field,
    has_words,
    open_block,
    tag_faults,
)
from reward_funcs.base import Batch, Grade, Reward, check_flag, check_name, check_setting
from reward_funcs.extract import THINK_OPEN, after_think

MODES = ("strict", "lenient", "graded")
# in front of a fence may stand marks of quotations and, where it opens, of list items
_FENCE = re.compile(r"((?:[ \t]*(?:>|(?:[-*+]|[0-9]{1,9}[.)])[ \t])){0,8})[ \t]*(`{3,}|~{3,})([^\r\n]*)")
_LANGUAGES = {
    "py": "python",
    "py3": "python",
    "python3": "python",
    "js": "javascript",
    "ts": "typescript",
    "c++": "cpp",
    "cc": "cpp",
    "cs": "csharp",
    "c#": "csharp",
    "sh": "bash",
    "shell": "bash",
    "rs": "rust",
    "golang": "go",
}
_HASH = ("python", "ruby", "perl", "r", "bash", "zsh", "fish", "powershell", "julia", "elixir", "nim", "yaml", "toml")
# How lines of comment begin; "//" in all languages but these.
_COMMENTS = {
    **dict.fromkeys(_HASH, ("#",)),
    **dict.fromkeys(("sql", "lua", "haskell", "ada", "elm", "vhdl"), ("--",)),
    **dict.fromkeys(("lisp", "scheme", "clojure", "racket"), (";",)),
    **dict.fromkeys(("matlab", "latex", "tex", "erlang", "prolog"), ("%",)),
    "php": ("#", "//"),
}

# "Step 2:", "2.", "2)", a bullet, or "First," at the start of a line, in a heading or bold print too. The repetitions
# are bounded: no line is slow, whatever it holds.
_STEP = re.compile(
    r"[#>*_ \t]{0,8}"
    r"(?:step[ \t]{1,4}\d{1,3}\b|\(?\d{1,3}[.)](?!\d)|[-*+•](?=[ \t])"
    r"|(?:first|second|third|fourth|fifth|next|then|finally|last)(?:ly)?(?=[ \t]{0,4}[,:]))",
    re.IGNORECASE,
)


class ThinkFormatReward(Reward):
    r"""1.0 for one think block at the start with an answer after it, else 0.0.

    Every mode wants `<think>` and `</think>` once each, in order; nothing before; at least one letter or digit between;
    an answer after it, which is at least one letter, digit or mathematical sign. Markup is none of these (`**`, `<br>`,
    `\boxed{}`). `<answer>` tags may be used, once, after the block and not empty. Tags are right in lower case alone,
    and count wherever they stand, one that is quoted too; `<THINK>`, `<thinking>` and `＜think＞` are one tag too many.

    Args:
        mode (`str`):
            - `"lenient"`: whitespace around the tags is free.
            - `"strict"`: as lenient, with no whitespace before `<think>` and a newline after it, one on either side of
              `</think>` and, with `require_answer`, exactly
              `<think>\n...\n</think>\n<answer>\n...\n</answer>`, nothing after it.
            - `"graded"`: the share of the tags that stand once, in order and in their place: halves for the two think
              tags, quarters with `require_answer`. An empty block costs both its tags, text before `<think>` that tag,
              text after `</answer>` that one; no answer costs `</think>`. 1.0 is given where lenient gives it.
        think_prefilled (`bool | str`): `True` where the chat template has already opened the block, so that the
            completion starts inside it; a completion that opens it again is refused. `"auto"` takes it from each
            prompt that ends in `<think>`, a text or an assistant's message: in conversational data the prompt does not
            show what the template adds, so say `True` there. Reasoning that arrives in the message's field
            `reasoning_content` counts as a block in either case.
        require_answer (`bool`): the answer must stand in `<answer>` tags, with nothing but whitespace outside the tags.
        allow_empty (`bool`): accept a block without a thought in it, as some models write when told not to think.
        name (`str`, *optional*): name in TRL's logs.

    End-of-turn tokens such as `<|im_end|>` or `</s>` at the end of a completion are ignored in every mode.

    Raises:
        ValueError: For an unknown mode or `think_prefilled`, or a switch that is no `bool`; when called with `"auto"`,
            for prompts that are neither texts nor messages.

    Source:
        The formats of DeepSeek-R1, arXiv 2501.12948, and in strict mode open-r1's `format_reward`. TRL's
        `think_format_reward` accepts empty blocks, text after a second `</think>` and several answers, and refuses a
        leading newline; open-r1's pattern accepts repeated tags and lines after `</answer>`.

    Example:

    ```python
    >>> think_format = ThinkFormatReward()
    >>> think_format(["<think>2 + 2</think>4", "\n<think>2 + 2</think>\n4", "<think></think>4", "4"])
    [1.0, 1.0, 0.0, 0.0]
    >>> ThinkFormatReward(think_prefilled=True)(["2 + 2</think>4"])
    [1.0]

    ```
    """

    default_name: ClassVar[str] = "think_format_reward"

    def __init__(
        self,
        mode: Literal["strict", "lenient", "graded"] = "lenient",
        *,
        think_prefilled: bool | Literal["auto"] = False,
        require_answer: bool = False,
        allow_empty: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(map(repr, MODES))}; it is {mode!r}")
        if not isinstance(think_prefilled, bool) and think_prefilled != "auto":
            raise ValueError(f"think_prefilled must be True, False or 'auto'; it is {think_prefilled!r}")
        self.mode = mode
        self.think_prefilled = think_prefilled
        self.require_answer = check_flag("require_answer", require_answer)
        self.allow_empty = check_flag("allow_empty", allow_empty)

    def grade(self, batch: Batch) -> list[Grade]:
        """Each completion's format."""
        texts = batch.texts  # first, as it refuses what is no completion
        return [self._grade(start + text) for start, text in zip(self._starts(batch), texts, strict=True)]

    def _starts(self, batch: Batch) -> list[str]:
        """What the template wrote before each completion."""
        prompts = batch.optional("prompts") if self.think_prefilled == "auto" else None
        if prompts is not None:
            starts = [open_block(prompt) for prompt in prompts]
        else:
            starts = [f"{THINK_OPEN}\n" if self.think_prefilled is True else ""] * len(batch)
        return [
            "" if start and has_reasoning_field(completion) else start
            for start, completion in zip(starts, batch.completions, strict=True)
        ]

    def _grade(self, text: str) -> Grade:
        faults = tag_faults(text, require_answer=self.require_answer, allow_empty=self.allow_empty)
        if not faults and self.mode == "strict" and not has_exact_newlines(text, require_answer=self.require_answer):
            faults = {THINK_OPEN: "wrong_newlines"}
        reason = next((faults[tag] for tag in TAGS if tag in faults), "well_formed")
        if self.mode == "graded":
            num_tags = 4 if self.require_answer else 2
            return Grade((num_tags - len(faults)) / num_tags, reason)
        return Grade(0.0 if faults else 1.0, reason)


class ThinkAnswerFormatReward(ThinkFormatReward):
    r"""1.0 for a think block and an answer block with nothing outside them, else 0.0; newlines exact by default.

    [`ThinkFormatReward`] with `mode="strict"` and `require_answer=True`: exactly
    `<think>\n...\n</think>\n<answer>\n...\n</answer>`.

    Args:
        mode (`str`): `"strict"`, `"lenient"`, or `"graded"`: a quarter for each tag, see [`ThinkFormatReward`].
        think_prefilled (`bool | str`): as in [`ThinkFormatReward`].
        require_answer (`bool`): as in [`ThinkFormatReward`].
        allow_empty (`bool`): as in [`ThinkFormatReward`].
        name (`str`, *optional*): name in TRL's logs.

    Raises:
        ValueError: For an unknown mode or `think_prefilled`.

    Source:
        open-r1's `format_reward`, which also accepts empty blocks, repeated tags and further lines at the end.

    Example:

    ```python
    >>> think_answer_format = ThinkAnswerFormatReward()
    >>> think_answer_format(["<think>\n2 + 2\n</think>\n<answer>\n4\n</answer>", "<think>2</think><answer>4</answer>"])
    [1.0, 0.0]
    >>> ThinkAnswerFormatReward(mode="graded")(["<think>2 + 2</think> is 4", "<think>2</think><answer>4</answer>!"])
    [0.5, 0.75]

    ```
    """

    default_name: ClassVar[str] = "think_answer_format_reward"

    def __init__(
        self,
        mode: Literal["strict", "lenient", "graded"] = "strict",
        *,
        think_prefilled: bool | Literal["auto"] = False,
        require_answer: bool = True,
        allow_empty: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            mode,
            think_prefilled=think_prefilled,
            require_answer=require_answer,
            allow_empty=allow_empty,
            name=name,
        )


class TagCountReward(Reward):
    r"""Share of the given tags that occur exactly once, in any order.

    It leads towards a format that a model does not know yet; [`ThinkAnswerFormatReward`] with `mode="graded"` also
    looks at the order and at what stands between.

    Args:
        tags (`Sequence[str]`): texts to look for, newlines included.
        name (`str`, *optional*): name in TRL's logs.

    Raises:
        ValueError: For no tags, an empty one, or one text in the place of a list of them.

    Source:
        open-r1's `tag_count_reward`.

    Example:

    ```python
    >>> TagCountReward()(["<think>\n2 + 2\n</think>\n4", "<think>\n<think>\n"])
    [0.5, 0.0]

    ```
    """

    default_name: ClassVar[str] = "tag_count_reward"

    def __init__(
        self,
        tags: Sequence[str] = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>"),
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if (
            isinstance(tags, str)
            or not isinstance(tags, Sequence)
            or not tags
            or not all(isinstance(tag, str) and tag for tag in tags)
        ):
            raise ValueError(f"tags must be a list of one or more texts, none of them empty; it is {tags!r:.80}")
        self.tags = tuple(tags)

    def grade(self, batch: Batch) -> list[Grade]:
        """Each completion's share of tags."""
        return [self._share(text) for text in batch.texts]

    def _share(self, text: str) -> Grade:
        found = sum(text.count(tag) == 1 for tag in self.tags)
        return Grade(found / len(self.tags), "all_tags" if found == len(self.tags) else "missing_tags")


class CodeBlockFormatReward(Reward):
    r"""1.0 for one closed, filled block of code in the language after the think block, else 0.0.

    A block opens with a line of three or more backticks or tildes and the language, and closes with a line of as many.
    Blocks in other languages and code within a line do not count; a block that is never closed scores 0, and so does
    one of nothing but comments. The block may stand in an item of a list or in a quotation.

    Args:
        language (`str`, *optional*): language of the block; common abbreviations are the same (`py`, `c++`, `sh`), and
            so are versions (`python3.11`). `pycon`, a session with prompts and results, is another. `None` takes any
            language, named or not.
        language_column (`str`, *optional*): column with the language of each row, in the place of `language`.
        exactly_one (`bool`): several blocks in the language score 0, since a grader would have to choose; `False`
            takes one or more.
        name (`str`, *optional*): name in TRL's logs.

    Returns:
        `list[float | None]`: `None` for a row whose `language_column` holds no text.

    Raises:
        ValueError: For an empty language, a column that is no name, or a switch that is no `bool`; when called, for a
            missing `language_column`.

    Source:
        open-r1's `get_code_format_reward`, without its think and answer tags: combine it with
        [`ThinkAnswerFormatReward`] for them. Fences as in CommonMark 0.31, section 4.5, at any indentation.

    Example:

    ```python
    >>> code_block_format = CodeBlockFormatReward()
    >>> code_block_format(["So:\n```python\nprint(4)\n```", "```python\nprint(4)", "print(4)"])
    [1.0, 0.0, 0.0]

    ```
    """

    default_name: ClassVar[str] = "code_block_format_reward"

    def __init__(
        self,
        language: str | None = "python",
        *,
        language_column: str | None = None,
        exactly_one: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if language is not None and not (isinstance(language, str) and language.strip()):
            raise ValueError(f"language must be a name such as 'python', or None for any; it is {language!r}")
        self.language = language
        self.language_column = None if language_column is None else check_name("language_column", language_column)
        self.exactly_one = check_flag("exactly_one", exactly_one)

    def grade(self, batch: Batch) -> list[Grade]:
        """Each completion's code block."""
        if self.language_column is None:
            return [self._grade(text, self.language) for text in batch.texts]
        column = batch.column(self.language_column, needed_by=self.__name__, argument="language_column")
        return [
            self._grade(text, language)
            if isinstance(language, str) and language.strip()
            else Grade(None, "bad_language")
            for text, language in zip(batch.texts, column, strict=True)
        ]

    def _grade(self, text: str, language: str | None) -> Grade:
        blocks, closed = _code_blocks(TAG.sub("\n", after_think(text)))
        wanted = None if language is None else _language(language)
        codes = [block for block in blocks if wanted is None or block[0] == wanted]
        if not closed:
            reason = "open_block"
        elif not codes:
            reason = "wrong_language" if blocks else "no_block"
        elif self.exactly_one and len(codes) > 1:
            reason = "several_blocks"
        else:
            reason = "well_formed" if all(_is_filled(name, code) for name, code in codes) else "empty_block"
        return Grade(float(reason == "well_formed"), reason)


def _language(info: str) -> str:
    """The language that the line of a fence names, `""` where it names none."""
    # behind the language may stand a file or lines: python:main.py, python,linenos, python{1,3}
    name = re.split(r"[\s:,;{}()\[\]]", info.lstrip(" \t{([.,:"), maxsplit=1)[0].strip("}.").lower()
    name = re.sub(r"^(python|ruby|lua|perl|php)[0-9][0-9.]*$", r"\1", name)
    return _LANGUAGES.get(name, name)


def _is_filled(language: str, code: str) -> bool:
    """Whether there is a word that is not in a line of comment."""
    marks = _COMMENTS.get(language, ("//",) if language else ("//", "#"))
    return any(has_words(line) for line in code.split("\n") if not line.lstrip(" \t>").startswith(marks))


def _code_blocks(text: str) -> tuple[list[tuple[str, str]], bool]:
    """Language and content of each closed block, and whether the last one was closed too."""
    blocks: list[tuple[str, str]] = []
    fence, language, content, is_quoted = "", "", [""], False
    for line in text.split("\n"):
        match = _FENCE.match(line)
        before, marks, info = match.groups() if match else ("", "", "")
        if not fence:
            # backticks further on are code within the line
            if marks and not (marks[0] == "`" and "`" in info):
                fence, language, content, is_quoted = marks, _language(info), [], ">" in before
        elif marks.startswith(fence) and not info.strip() and not before.strip(" \t>" if is_quoted else " \t"):
            blocks.append((language, "\n".join(content)))
            fence = ""
        else:
            content.append(line)
    return blocks, not fence


class ReasoningStepsReward(Reward):
    r"""Share of the wanted number of visible steps: `min(1, distinct steps / num_steps)`.

    A step is a line that starts with "Step 2:", "2.", "2)", a bullet, or one of First, Second, Third, Next, Then,
    Finally and the like before a comma or colon, and that says something: on the same line, or, after a heading, on
    the next. Steps of the same words, numbers of the steps aside, count once.

    Args:
        num_steps (`int`): steps from which the reward is 1.
        name (`str`, *optional*): name in TRL's logs.

    Raises:
        ValueError: For `num_steps` below 1.

    Source:
        open-r1's `reasoning_steps_reward`, which also counts markers within a line, and repeated and empty ones.
        English words only. A model can still write three lines of nothing: give it a small weight, and drop it once
        the model writes steps.

    Example:

    ```python
    >>> reasoning_steps = ReasoningStepsReward(num_steps=2)
    >>> reasoning_steps(["1. Add 2 and 2.\n2. The sum is 4.", "1. Add.\n2. Add.", "It is 4."])
    [1.0, 0.5, 0.0]

    ```
    """

    default_name: ClassVar[str] = "reasoning_steps_reward"

    def __init__(self, num_steps: int = 3, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.num_steps = check_setting("num_steps", num_steps, 1, whole=True)

    def grade(self, batch: Batch) -> list[Grade]:
        """Each completion's share of steps."""
        counts = [len(_steps(text)) for text in batch.texts]
        return [
            Grade(min(1.0, count / self.num_steps), "enough_steps" if count >= self.num_steps else "few_steps")
            for count in counts
        ]


def _steps(text: str) -> set[str]:
    """What the steps of a text say, without their markers."""
    steps = set()
    is_open = False
    for line in TAG.sub("\n", text).splitlines():
        match = _STEP.match(line.lstrip())
        said = line.lstrip()[match.end() :] if match else line
        if (match or is_open) and has_words(said):
            steps.add(" ".join(re.findall(r"\w+", said.casefold())))
            is_open = False
        elif match:
            is_open = True
    return steps


think_format_reward = ThinkFormatReward()
think_answer_format_reward = ThinkAnswerFormatReward()
tag_count_reward = TagCountReward()
code_block_format_reward = CodeBlockFormatReward()
reasoning_steps_reward = ReasoningStepsReward()
