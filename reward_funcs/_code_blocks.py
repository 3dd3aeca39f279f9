"""The program in a completion: what stands behind the thoughts, the fences in it, and what they hold."""

from __future__ import annotations

import re
import textwrap
from typing import NamedTuple

from reward_funcs.extract import THINK_CLOSE, THINK_OPEN
from reward_funcs.format import _LANGUAGES, _language

# Nothing in it is tried in a second way, so that no line takes long: a completion may hold any.
_FENCE = re.compile(
    r"(?P<before>[ \t]*+(?:(?:>|(?:[-*+]|[0-9]{1,9}[.)])[ \t])[ \t]*+)*+)(?P<marks>`{3,}+|~{3,}+)(?P<info>.*)"
)
_QUOTE, _INDENT = re.compile(r"[ \t]*>[ \t]?"), re.compile(r"^[ \t\u00a0]+", re.MULTILINE)
_QUOTED_TAG = re.compile(r"""(["'])[^"'\n<]*+(?:<(?!/?think>)[^"'\n<]*+)*+</?think>[^"'\n]*+\1""")
_MASK = "\ue000"
_INVISIBLE = dict.fromkeys(map(ord, "\ufeff\u200b"))
_TAGS = re.compile(r"(?:[ \t]*</?[^<>\n]{1,40}>)+[ \t\r]*")  # </answer>, <|im_end|>
_LABEL = re.compile(r"[A-Za-z][\w+#.-]{0,20}(?::\S*)?")
_LABELS = frozenset({"python", *_LANGUAGES.values()})
# Times that a text may be read again, and lines in all, to see what a line means by what follows.
MAX_LOOKS, MAX_LINES = 20, 100_000


def last_code_block(text: str, language: str = "python") -> str | None:
    r"""The last fenced block behind the think block that names the language, or else the last that names none.

    A fence within a list or a quotation counts, and so does a last one that is never closed: a program that was cut
    off fails its tests, and one that is whole has only lost its fence.

    Args:
        text (`str`): a completion.
        language (`str`, *optional*, defaults to `"python"`): the language; `py` and `python3` are Python too.

    Returns:
        `str | None`: the program, without the indentation of its fence; `None` without a block.

    Source: fences as in CommonMark 0.31, section 4.5, and three forms that models write and CommonMark reads
    otherwise: tags right in front of a fence that opens or behind one that closes; a fence that opens behind other
    text and names a language; one that closes with other text behind it. The last two count where only then every
    fence up to the next that names a language has its partner.

    Example:

    ```python
    >>> last_code_block("It is:\n```python\nx = 1\n```\nIt prints:\n```\n1\n```\nRun it:\n```bash\npython x.py\n```")
    'x = 1'
    >>> last_code_block("<answer>```python\nx = 1\n```</answer>"), last_code_block("Code: ```py\nx = 1\n``` It works.")
    ('x = 1', 'x = 1')

    ```
    """
    # a tag in quotation marks is a text of the program, and ends no thought
    masked = _QUOTED_TAG.sub(lambda match: match.group().replace("<", _MASK), text)
    blocks = [(label, code.replace(_MASK, "<")) for label, code in _Reader(masked).blocks()]
    named = [code for label, code in blocks if label == language] or [code for label, code in blocks if not label]
    return named[-1] if named else None


class _Fence(NamedTuple):
    """A fence that is open: what stands in front of it, its marks, its language, and whether text stands there."""

    before: str
    marks: str
    label: str
    is_inline: bool = False

    def inner(self, line: str) -> str:
        """A line without what stands in front of its fence: the marks of a quotation, the indentation of a list."""
        for _ in range(self.before.count(">")):
            line = _QUOTE.sub("", line, count=1)
        before = self.before
        width = len(before.rpartition(">")[2].removeprefix(" ")) if ">" in before else len(before)
        return line[min(width, _indent(line)) :]

    def behind(self, line: str) -> str | None:
        """What stands in a line behind marks that could close this fence, `None` where there are none."""
        if self.marks not in line:
            return None
        inner = self.inner(line)
        stripped = inner.strip()
        if not stripped.startswith(self.marks) or _indent(inner) >= 4:
            return None
        return stripped.lstrip(self.marks[0])

    def program(self, lines: list[str]) -> str:
        """The program in the block."""
        code = "\n".join(lines).lstrip("\ufeff\u200b")
        code = _INDENT.sub(lambda match: match.group().replace("\u00a0", " "), code)
        return textwrap.dedent(code) if self.is_inline else code


class _Reader:
    """Reads a completion line by line.

    Args:
        text (`str`): the completion, tags in quotation marks masked.
    """

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.left = min(MAX_LOOKS * len(self.lines), MAX_LINES)

    def blocks(self) -> list[tuple[str, str]]:
        """Language and content of each block behind the thoughts, of an open one at the end too."""
        blocks: list[tuple[str, str]] = []
        fence: _Fence | None = None
        content, first, is_hidden = [""], 0, False
        for index, line in enumerate(self.lines):
            if (THINK_CLOSE in line or THINK_OPEN in line) and not (fence and self._is_of_program(fence, first, index)):
                before, closed, line = line.rpartition(THINK_CLOSE)
                if closed:
                    blocks, fence, is_hidden = [], None, False
                before, opened, _ = line.partition(THINK_OPEN)
                if opened and not is_hidden:
                    blocks += self._left(fence, content, before)
                    is_hidden, fence = True, None
                if opened:
                    continue
            if fence is None:
                fence, content, first = self._opened(line, index), [], index + 1
            elif self._is_closed(fence, line, index):
                blocks += [] if is_hidden else [(fence.label, fence.program(content))]
                fence = None
            else:
                content.append(fence.inner(line))
        return blocks if is_hidden else [*blocks, *self._left(fence, content)]

    @staticmethod
    def _left(fence: _Fence | None, content: list[str], more: str = "") -> list[tuple[str, str]]:
        """The block that is still open, without the marks, or some of them, at the end of its last line."""
        if fence is None:
            return []
        content = [*content, more] if more else content
        last = content[-1].rstrip() if content else ""
        last = last.removesuffix(fence.marks) if last.strip(fence.marks[0] + " \t") else ""
        return [(fence.label, fence.program([*content[:-1], last]))]

    def _opened(self, line: str, index: int) -> _Fence | None:
        match = _FENCE.match(line)
        # backticks further on are code within the line
        if match and not (match["marks"][0] == "`" and "`" in match["info"]):
            return _Fence(match["before"], match["marks"], _language(match["info"].translate(_INVISIBLE)))
        head, marks, label = line.rstrip().rpartition("```")
        if match or not marks or not _LABEL.fullmatch(label.strip()):
            return None
        marks += "`" * (len(head) - len(head.rstrip("`")))
        head = head.rstrip("`")
        fence = _Fence("", marks, _language(label), is_inline=True)
        if "`" in head:
            return None
        return fence if _TAGS.fullmatch(head) or _is_odd(self._num_closings(fence, index)) else None

    def _is_closed(self, fence: _Fence, line: str, index: int) -> bool:
        behind = fence.behind(line)
        if behind is None:
            return False
        if not behind.strip() or _TAGS.fullmatch(behind):
            return True
        return _is_remark(behind) and _is_odd(self._num_closings(fence, index) + 1)

    def _num_closings(self, fence: _Fence, index: int) -> int:
        """How many lines behind this one look like the end of a block, up to one that names a language.

        -1 where that is not known: then nothing counts that CommonMark does not know.
        """
        number = 0
        for place in range(index + 1, len(self.lines)):
            self.left -= 1
            if self.left < 0:
                return -1
            behind = fence.behind(self.lines[place])
            if behind is None:
                continue
            if behind.strip() and not _TAGS.fullmatch(behind) and not _is_remark(behind):
                break
            number += 1
        return number

    def _is_of_program(self, fence: _Fence, first: int, index: int) -> bool:
        """Whether a tag stands in a comment or a text of several lines, in a block that is closed behind it."""
        if self.left < 0:
            return False
        line = self.lines[index]
        place = min(place for place in (line.find(THINK_CLOSE), line.find(THINK_OPEN)) if place >= 0)
        self.left -= index - first
        before, behind = "\n".join([*self.lines[first:index], line[:place]]), [line[place:]]
        for below in range(index + 1, len(self.lines)):
            self.left -= 1
            if self.left < 0:
                return False
            other = self.lines[below]
            found = fence.behind(other)
            if found is not None:
                is_end = not found.strip() or bool(_TAGS.fullmatch(found))
                text = "\n".join(behind)
                return is_end and ("#" in line[:place] or any(_is_open(q, before, text) for q in ("'''", '"""')))
            behind.append(other)
        return False


def _is_odd(number: int) -> bool:
    return number > 0 and number % 2 == 1


def _is_open(quotes: str, before: str, behind: str) -> bool:
    """Whether a text in these quotation marks is open, and ends."""
    return before.count(quotes) % 2 == 1 and quotes in behind


def _is_remark(text: str) -> bool:
    """Whether what stands behind marks is a remark, and names no language."""
    if "`" in text or text[0].isalnum() or text.lstrip()[0] in "{.":
        return False
    return _language(text) not in _LABELS and not text.strip().isalnum()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
