"""Answers that are words: exact match and token F1 as SQuAD scores them, for any script."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from typing import Any

from reward_funcs.base import Batch, Grade, Reward, check_flag, check_name, plain
from reward_funcs.extract import after_think, answer_tag, boxed_run, final_answer, several_answer_tags

METRICS = ("exact", "f1")
EXTRACTIONS = ("auto", "last_boxed", "answer_tag", "final_answer", "whole")
ARTICLES = frozenset({"a", "an", "the"})

# Symbols that SQuAD drops with the punctuation. It drops + < = > too, which makes x<5 of x>5: they stay here.
_DROPPED_SYMBOLS = frozenset("$^`|~")
_MARK = re.compile(r"[^\w\s]|_")
_NUMBER = re.compile(r"\$?\.?\d")
# whatever dash is typed for it, and a space after it where nothing stands before that something is subtracted from
_MINUS = re.compile(r"^\s*[-\u2010-\u2015\u2212]\s*(?=\$?\.?\d)|(?<!\w)[-\u2010-\u2015\u2212](?=\$?\.?\d)")
_LATEX_SIGN = re.compile(r"\\(?=[%#])|(?<=\d)\s+(?=\\?%)")
# Scripts written without spaces between words: Thai, Lao, Burmese, Khmer, kana and Han; and Hangul, whose F1 is
# counted by syllable as well (KorQuAD).
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
_COMMAND = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:bf|it|rm|sf|tt)|mbox|boxed|fbox|operatorname|emph)\s*\{")
_WRAPPERS = (
    *(("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("__", "__"), ("*", "*")),
    *(("`", "`"), ('"', '"'), ("“", "”"), ("「", "」")),
)
_MAX_LAYERS = 8
_MAX_MARKS = 30
_MAX_WHOLE = 1e15


def unwrapped(answer: str) -> str:
    r"""An answer without the markup around it: spaces, `$...$`, `\(...\)`, `\text{...}`, emphasis, quotation marks.

    Example:

    ```python
    >>> unwrapped(r"**$\text{Paris}$**")
    'Paris'

    ```
    """
    for _ in range(_MAX_LAYERS):
        answer = answer.strip()
        inner = _inner(answer)
        if inner is None:
            break
        answer = inner
    return answer


def _inner(answer: str) -> str | None:
    for opening, closing in _WRAPPERS:
        if answer.startswith(opening) and answer.endswith(closing) and len(answer) > len(opening) + len(closing):
            inner = answer[len(opening) : -len(closing)]
            if opening not in inner and closing not in inner:
                return inner
    command = _COMMAND.match(answer)
    if command is None or not answer.endswith("}"):
        return None
    depth = 1
    for brace in re.finditer("[{}]", answer[command.end() : -1]):
        depth += 1 if brace.group() == "{" else -1
        if not depth:  # the command's brace closes before the end
            return None
    return answer[command.end() : -1]


def compatible(text: str) -> str:
    """NFKC form of a text, in linear time: of a long run of combining marks only the first are kept.

    Python sorts such a run by insertion, which takes seconds for 100,000 marks; Unicode's stream-safe form allows 30.
    """
    if text.isascii():
        return text
    if len(text) > 1000:
        kept, run = [], 0
        for character in text:
            run = run + 1 if unicodedata.combining(character) else 0
            if run <= _MAX_MARKS:
                kept.append(character)
        text = "".join(kept)
    return unicodedata.normalize("NFKC", text)


def _kept_mark(match: re.Match[str]) -> str:
    mark, (start, end), text = match.group(), match.span(), match.string
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    if mark == "." and after.isdigit() and (before.isdigit() or not before.isalnum()):
        return mark
    if mark == "-" and not before.isalnum() and _NUMBER.match(text, end):
        return mark
    if mark in "#%" and before.isalnum():
        return mark
    return "" if unicodedata.category(mark)[0] == "P" or mark in _DROPPED_SYMBOLS else mark


class ExactMatchReward(Reward):
    """1.0 where the normalised answer is the gold, else 0.0; with `metric="f1"` 2PR/(P + R) over their tokens.

    The answer is what stands after the last `</think>`: in the last closed box, else in the single `<answer>` tag, else
    behind the last "answer is" or "Answer:", else all of it. Boxes joined by "or", "and" or commas that hold different
    things, and two `<answer>` tags, score 0. A gold that is a list counts as its best entry.

    Args:
        solution_column (`str`, *optional*, defaults to `"solution"`): column of the golds: a text, a number, a list of
            these (any of them counts) or SQuAD's `{"text": [...]}`.
        metric (`str`, *optional*, defaults to `"exact"`): `"exact"` or `"f1"`.
        extraction (`str`, *optional*, defaults to `"auto"`): `"auto"` as above, or one of `"last_boxed"`,
            `"answer_tag"`, `"final_answer"` (nothing found scores 0) and `"whole"` (all of the visible text).
        normalize (`bool`, *optional*, defaults to `True`): whether NFKC, white space and the next three settings are
            applied; otherwise texts are compared as they are, without the markup around them.
        ignore_case (`bool`, *optional*, defaults to `True`): whether upper and lower case are the same.
        ignore_punctuation (`bool`, *optional*, defaults to `True`): whether punctuation is dropped. A decimal point
            and a minus sign in front of a number stay, and so do # and % behind a letter or digit: 1.5 is not 15, -5 is
            not 5, 10% is not 10 and C# is not C. Any dash in front of a number is a minus sign.
        ignore_articles (`bool`, *optional*, defaults to `True`): whether a, an and the are dropped before a word.
        name (`str`, *optional*, defaults to `"exact_match_reward"`): name in the logs.

    Raises:
        ValueError: For an unknown `metric` or `extraction`, a column that is no name, or a switch that is no `bool`.

    Source: the evaluation script of SQuAD 1.1 (Rajpurkar et al., 2016). Different here: Unicode punctuation, decimal
        points, minus signs and the symbols # % + < = > (see above), an article at the end of an answer stays (vitamin
        A), and tokens of scripts without spaces are single characters (as MLQA does for Chinese and KorQuAD for
        Korean), in the exact comparison too.

    Example:

    ```python
    >>> exact_match_reward(["The answer is the Eiffel Tower."], solution=["Eiffel tower"])
    [1.0]
    >>> ExactMatchReward(metric="f1")(["<answer>Gustave Eiffel</answer>"], solution=["Eiffel"])
    [0.6666666666666666]

    ```
    """

    default_name = "exact_match_reward"

    def __init__(
        self,
        solution_column: str = "solution",
        *,
        metric: str = "exact",
        extraction: str = "auto",
        normalize: bool = True,
        ignore_case: bool = True,
        ignore_punctuation: bool = True,
        ignore_articles: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        for argument, value, allowed in (("metric", metric, METRICS), ("extraction", extraction, EXTRACTIONS)):
            if value not in allowed:
                raise ValueError(f"{argument}={value!r} is unknown; use one of {', '.join(map(repr, allowed))}")
        self.solution_column = check_name("solution_column", solution_column)
        self.metric = metric
        self.extraction = extraction
        self.normalize = check_flag("normalize", normalize)
        self.ignore_case = check_flag("ignore_case", ignore_case)
        self.ignore_punctuation = check_flag("ignore_punctuation", ignore_punctuation)
        self.ignore_articles = check_flag("ignore_articles", ignore_articles)

    def grade(self, batch: Batch) -> list[Grade]:
        """One grade for each completion; the reason is `correct`, `partial`, `wrong`, `no_answer`, `several_answers` or
        `bad_gold`."""
        golds = batch.column(self.solution_column, needed_by=self.__name__, argument="solution_column")
        return [self._grade(text, gold) for text, gold in zip(batch.texts, golds, strict=True)]

    def _grade(self, text: str, gold: Any) -> Grade:
        references = [tokens for tokens in map(self.tokens, _gold_texts(gold)) if tokens]
        if not references:
            return Grade(None, "bad_gold")
        text = after_think(text)
        if several_answer_tags(text):
            return Grade(0.0, "several_answers")
        answers = self._answers(text)
        tokens = self.tokens(answers[-1]) if answers else []
        if not tokens:
            return Grade(0.0, "no_answer")
        if any(self.tokens(other) != tokens for other in answers[:-1]):
            return Grade(0.0, "several_answers", ", ".join(answers))
        value = max(self._score(tokens, reference) for reference in references)
        reason = "correct" if value == 1.0 else "partial" if value else "wrong"
        return Grade(value, reason, answers[-1])

    def _answers(self, text: str) -> list[str]:
        """The stated answer; several where joined boxes state several."""
        if self.extraction in ("auto", "last_boxed"):
            boxes = boxed_run(text).contents
            if boxes or self.extraction == "last_boxed":
                return boxes
        if self.extraction in ("auto", "answer_tag"):
            tag = answer_tag(text)
            if tag is not None or self.extraction == "answer_tag":
                return [tag or ""]
        if self.extraction in ("auto", "final_answer"):
            stated = final_answer(text)
            if stated is not None or self.extraction == "final_answer":
                return [stated or ""]
        return [text.strip()]

    def tokens(self, text: str) -> list[str]:
        """The words of a text that are compared, normalised as this reward is set."""
        text = unwrapped(text)
        if not self.normalize:
            return [text] if self.metric == "exact" and text else text.split()
        text = _COMMAND.sub("{", _LATEX_SIGN.sub("", _MINUS.sub("-", compatible(text))))
        if self.ignore_case:
            text = compatible(text.casefold())
        bare = _MARK.sub(_kept_mark, text) if self.ignore_punctuation else text
        # an answer of nothing but punctuation is compared as it is
        words = _UNSPACED.sub(r" \g<0> ", bare).split() or text.split()
        if self.ignore_articles:
            words = [word for word in words[:-1] if word.lower() not in ARTICLES] + words[-1:]
        return words

    def _score(self, answer: list[str], reference: list[str]) -> float:
        if self.metric == "exact":
            return float(answer == reference)
        common = (Counter(answer) & Counter(reference)).total()
        return 2 * common / (len(answer) + len(reference))

    def ideal(self, gold: Any) -> str | None:
        """The gold (of several the first) where the reward looks for it."""
        references = _gold_texts(gold)
        if not references:
            return None
        form = {"whole": "{}", "last_boxed": "\\boxed{{{}}}", "final_answer": "Answer: {}"}
        return form.get(self.extraction, "<answer>{}</answer>").format(references[0])


def _gold_texts(gold: Any) -> list[str]:
    """The accepted texts of a gold, none of them empty."""
    gold = plain(gold)
    if isinstance(gold, Mapping):
        gold = gold.get("text")
    texts = []
    for entry in gold if isinstance(gold, list) else [gold]:
        # a table with a gap in its column of whole numbers holds floats
        if isinstance(entry, float) and entry.is_integer() and abs(entry) < _MAX_WHOLE:
            texts.append(str(int(entry)))
        if isinstance(entry, (str, int, float)) and entry == entry:
            texts.append(str(entry))
    return [text for text in texts if text.strip()]


exact_match_reward = ExactMatchReward()
