"""Multiple choice: which option a completion states last, by letter, by its text or by its position."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from reward_funcs._options import (
    LETTERS,
    MAX_STATEMENT,
    UNKNOWN,
    Options,
    Said,
    comparable,
    is_bare_option,
    names_others,
    opens_with_option,
    read_statement,
)
from reward_funcs.base import Batch, Grade, Reward, check_name, plain
from reward_funcs.extract import after_think, answer_tag, boxed_run, several_answer_tags
from reward_funcs.text import unwrapped

MAX_CUES = 64  # the last so many places where an answer may be announced are looked at

# with the only letter that becomes two in lower case
_FULLWIDTH = {0xFF01 + offset: 0x21 + offset for offset in range(94)} | {0x3000: 0x20, 0x130: 0x49}
_MIDDLE = r"(?:\s+(?:to|for|of|here|choice|option|letter|in|that)\b(?:\s+[\w'’]+){0,8}?)?"
_ADVERB = r"(?:,?\s{1,3}(?:therefore|thus|then|hence|clearly|indeed|i\s+think|i\s+believe)\b,?){0,2}"
_IS = (
    rf"{_ADVERB}[\s*_]*(?:\b(?:is|(?:would|should|must|will|can\s+only|could\s+only)(?:\s+(?:therefore|thus|then))?\s+be"
    rf"|(?:has|have|seems|appears|ought|needs)\s+to\s+be)\b{_ADVERB}|['’]s\b|[:=→]|\s[-–—](?=\s))"
)
_EASTERN = r"(?:应该)?[是为為选選はが은이]?:?"
_EUROPEAN = r"\b(?:\s+\w+){0,2}?[\s*_]*(?:\b(?:es|est|ist|è|é)\b|[:—–-])"
# Patterns over text in lower case, by the word that each begins with: a search for a plain word is several times
# faster than one for any of these patterns, and most texts hold few of the words.
_CUES = {
    "answer": re.compile(rf"answer(?<!\wanswer)\b{_MIDDLE}{_IS}"),
    "####": re.compile("####"),
    **{
        word: re.compile(rf"{word}(?<!\w{word})\s+(?:option|choice|one|letter|statement|alternative){_IS}")
        for word in ("correct", "right", "best", "final", "my", "appropriate")
    },
    **{word: re.compile(rf"{word}(?<!\w{word})\s*:") for word in ("option", "choice")},
    **{word: re.compile(rf"{word}\b") for word in ("choose", "pick", "select", "go with", "would answer")},
    **{word: re.compile(word + _EASTERN) for word in ("答案", "正解", "答え", "正确选项", "故选", "应选", "정답")},
    **{
        word: re.compile(rf"{word}(?<!\w{word}){_EUROPEAN}")
        for word in ("respuesta", "réponse", "antwort", "risposta", "resposta", "ответ")
    },
}
# Words before a bare capital at the end of a line: too common to announce anything else.
_BRIEFLY = re.compile(
    r"(?:\b(?:it\s+is|it['’]s|hence|thus|therefore|so)|(?<![不别勿若果])选择?)[,:]?\s{0,3}"
    r"(?=[(\[*$]{0,3}(?P<label>[a-hj])[)\]*$]{0,3}(?:\s{0,3}[.!。]\*{0,2})?[ \t]{0,3}(?:$|\n|,?\s(?:because|since)\b))"
)
_CHOOSES = frozenset({"choose", "pick", "select", "go with", "would answer"})
_SPEAKER = re.compile(r"\b(?:i|we)(?:['’](?:ll|d)|\s+will|\s+would|\s+should)?\s+$")
_AFTERWARDS = re.compile(
    r"\s(?:is|would\s+be|must\s+be)\s+(?:(?:clearly|definitely|indeed|therefore|thus)\s+)?"
    r"(?:the\s+(?:most\s+|single\s+|only\s+)?(?:correct|right|best|appropriate|accurate)\s+(?:answer|option|choice|one)\b"
    r"|(?P<plain>(?:correct|right)\b))",
)
_CONDITION = re.compile(r"\b(?:if|whether|suppose|assum\w+|unless|neither|nor)\b")
_NEGATION = re.compile(
    r"\bnot\b|n['’]t\b|\b(?:doubt\w*|den(?:y|ies)|cannot|never|hardly|(?:wrong|false|untrue|incorrect)\s+that)\b"
)
# what takes a statement back behind its end
_TAKEN_BACK = re.compile(
    r"[\s*_\"'”’)]{0,8}(?:\?|(?:is|was)\s+(?:\w+\s+)?(?:false|wrong|incorrect|untrue|not)\b|(?:isn|wasn)['’]t\b)"
)
# an alternative on the next line
_OR_LINE = re.compile(r"(?:\n[ \t]{0,8}){1,3}(?=(?:or|oder|\\lor|\\vee)(?![\w])|\|\||/|\\\\|或)", re.IGNORECASE)
_BOX_START = re.compile(r"\\f?box(?:ed)?\s*\{\s*")

_GOLD_LABEL = re.compile(r"[(\[]?\s*([A-Za-z]{1,16}|[0-9]{1,2})\s*(?:[)\].:、]|\s-\s)\s*(?=\S)")


class ChoiceReward(Reward):
    r"""1.0 where the option that the completion states last is the gold one, else 0.0.

    Read is what stands after the last `</think>`. An answer is stated in a box, in the single `<answer>` tag, behind
    "the answer is", "Answer:", "the correct option is", "I'd go with" (and the like in other languages), before "is the
    correct answer", behind "Hence" or "It is" as a bare capital at the end of a line, or as a first or last line that
    is nothing but the option. It may be the label (`B`, `(B)`, `B.`), the label with the text, and, where the options
    are known, the text alone, the text with the label behind it (`Rome (B)`), "the second option", or, where no
    option's text holds a digit, the number of its place. "I don't think that B is the correct answer", "B is the
    correct answer?" and "the answer is B is false" state nothing.

    Several options in one statement ("A or B", `A/B/C`, "A, unless C", joined boxes) score 0 unless the gold has just
    these, and so does a box or a tag with any other label beside the answer (`B C`, `B -> C`). So does a label with the
    text of another option ("(B) Paris" where Paris is A); a text that is no option's is not held against the label. "A"
    and "I" in front of further words are an article and a pronoun. Two `<answer>` tags score 0.

    Args:
        solution_column (`str`, *optional*, defaults to `"solution"`): column of the golds: a label (`B`, `(B) text`),
            an option's text, or several labels (`B,C`, `BC`, a list), which then are all needed.
        choices_column (`str`, *optional*, defaults to `"choices"`): column of the options: a list of texts, ARC's
            `{"text": [...], "label": [...]}`, or a mapping of labels to texts. It may be missing.
        extra_column (`str`, *optional*, defaults to `"extra"`): column of mappings, or of their JSON texts, whose
            `"choices"` are used where there is no column of options.
        index_base (`int`, *optional*): 0 or 1 where a gold number is the index of an option, counted from there; by
            default a number is a label, or an option's text. A whole number that a table made a float is one.
        name (`str`, *optional*, defaults to `"choice_reward"`): name in the logs.

    Raises:
        ValueError: When `index_base` is neither `None`, 0 nor 1, or a column is no name.

    Example:

    ```python
    >>> choice_reward(["So the answer is (B).", "A dog is an animal."], solution=["B", "A"])
    [1.0, 0.0]
    >>> choice_reward(["The answer is Paris."], solution=["A"], choices=[["Paris", "Rome"]])
    [1.0]

    ```
    """

    default_name = "choice_reward"

    def __init__(
        self,
        solution_column: str = "solution",
        choices_column: str = "choices",
        *,
        extra_column: str = "extra",
        index_base: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if index_base is not None and (isinstance(index_base, (bool, float)) or index_base not in (0, 1)):
            raise ValueError(f"index_base={index_base!r} must be 0 or 1, or None where golds are labels or texts")
        self.solution_column = check_name("solution_column", solution_column)
        self.choices_column = check_name("choices_column", choices_column)
        self.extra_column = check_name("extra_column", extra_column)
        self.index_base = index_base

    def grade(self, batch: Batch) -> list[Grade]:
        """One grade for each completion; the reason is `correct`, `wrong`, `no_answer`, `several_answers`,
        `contradiction`, `bad_gold` or `bad_choices`."""
        golds = batch.column(self.solution_column, needed_by=self.__name__, argument="solution_column")
        choices = batch.optional(self.choices_column) or [None] * len(batch)
        extras = batch.optional(self.extra_column) or [None] * len(batch)
        return [
            self._grade(text, gold, given if given is not None else _choices_in(extra))
            for text, gold, given, extra in zip(batch.texts, golds, choices, extras, strict=True)
        ]

    def _grade(self, text: str, gold: Any, choices: Any) -> Grade:
        options = _options(choices)
        if options is None:
            return Grade(None, "bad_choices")
        read = _gold(gold, options, self.index_base)
        if read is None:
            return Grade(None, "bad_gold")
        wanted, options = read
        text = after_think(text)
        if several_answer_tags(text):
            return Grade(0.0, "several_answers")
        said = _last_said(text if text.isascii() else text.translate(_FULLWIDTH), options)
        if said is None:
            return Grade(0.0, "no_answer")
        answer = ",".join(_name(position, options) for position in sorted(said.positions)) or None
        if said.reason:
            return Grade(0.0, said.reason, answer)
        if said.positions == wanted:
            return Grade(1.0, "correct", answer)
        hedged = len(said.positions) > 1 and len(wanted) == 1
        return Grade(0.0, "several_answers" if hedged else "wrong", answer)

    def ideal(self, gold: Any) -> str | None:
        """The gold's labels in a box; a gold that is an option's text stands there as it is."""
        read = None if self.index_base is not None else _gold(gold, UNKNOWN, None)
        if read is None:
            number = _index(gold, self.index_base)
            return super().ideal(gold if number is None or not 0 <= number < len(LETTERS) else LETTERS[number])
        return f"\\boxed{{{','.join(_name(position, read[1]) for position in sorted(read[0]))}}}"


def _name(position: int, options: Options) -> str:
    return next(label for label, place in options.labels.items() if place == position)


# ---- the question's side


def _choices_in(extra: Any) -> Any:
    """The options in an `extra` value; `None` where it holds none, since most rows of a mixture have other contents."""
    if isinstance(extra, str):
        try:
            extra = json.loads(extra)
        except (ValueError, RecursionError):
            return None
    return extra.get("choices") if isinstance(extra, Mapping) else None


def _options(choices: Any) -> Options | None:
    """The options of a question, `None` where the value is no list of options."""
    if isinstance(choices, str):
        try:
            choices = json.loads(choices)
        except (ValueError, RecursionError):
            return None
    choices = plain(choices)
    labels: Any = None
    texts: Any = choices
    if isinstance(choices, Mapping):
        if "text" in choices:
            labels, texts = choices.get("label"), choices["text"]
        else:
            labels, texts = list(choices), list(choices.values())
    elif isinstance(choices, (list, tuple)) and choices and all(isinstance(one, Mapping) for one in choices):
        labels, texts = [one.get("label") for one in choices], [one.get("text") for one in choices]
    if choices is None or (isinstance(texts, (list, tuple)) and not texts):
        return UNKNOWN  # a mixture fills the column with these where a row has no options
    if not isinstance(texts, (list, tuple)) or not all(isinstance(one, (str, int, float)) for one in texts):
        return None
    return _labelled([str(one) for one in texts], labels)


def _labelled(texts: list[str], labels: Any) -> Options | None:
    if labels is None or (isinstance(labels, (list, tuple)) and not any(labels)):
        if len(texts) > len(LETTERS):
            return None
        names = list(LETTERS[: len(texts)])
        own = [re.match(rf"\s*[(\[]?{name}[)\].:]\s*(?=\S)", text) for name, text in zip(names, texts, strict=True)]
        if all(own):  # the options are written with their letters
            texts = [text[match.end() :] for text, match in zip(texts, own, strict=True) if match]
    elif not isinstance(labels, (list, tuple)) or len(labels) != len(texts):
        return None
    else:
        names = [str(label).strip(" ().:").upper() for label in labels]
    positions = {name: position for position, name in enumerate(names)}
    if len(positions) != len(names) or "" in positions:
        return None
    if all(name.isdigit() for name in names) and len(names) <= len(LETTERS):
        # a prompt may show the options with letters where the data set numbers them
        positions |= dict(zip(LETTERS, range(len(names)), strict=False))
    return Options(positions, tuple(map(comparable, texts)), True)


def _index(gold: Any, base: int | None) -> int | None:
    digits = str(gold).strip()
    return int(digits) - base if base is not None and re.fullmatch("[0-9]{1,2}", digits) else None


def _gold(gold: Any, options: Options, index_base: int | None) -> tuple[frozenset[int], Options] | None:
    """Positions of the gold options, and the options with what the gold tells of them; `None` for a bad gold."""
    gold = plain(gold)
    if isinstance(gold, float) and gold.is_integer():  # a table with a gap in its column of indices holds floats
        gold = int(gold)
    if isinstance(gold, (list, tuple)):
        read = [_gold(one, options, index_base) for one in gold]
        positions = [one[0] for one in read if one is not None]
        if not positions or len(positions) != len(read):
            return None
        return frozenset().union(*positions), options
    if isinstance(gold, bool) or not isinstance(gold, (str, int)):
        return None
    text = unwrapped(str(gold)[: 2 * MAX_STATEMENT].translate(_FULLWIDTH))
    number = _index(text, index_base)
    if number is not None:
        size = len(options.texts) or len(LETTERS)
        return (frozenset({number}), options) if 0 <= number < size else None
    return _gold_text(text, options)


def _gold_text(text: str, options: Options) -> tuple[frozenset[int], Options] | None:
    bare = re.sub(r"[()\[\].:\s{}$*\\]", "", text).upper()
    if not options.known and re.fullmatch("[1-9]|1[0-9]|2[0-6]", bare):
        options = Options({str(place + 1): place for place in range(len(LETTERS))}, (), False)
    if bare in options.labels:
        return frozenset({options.labels[bare]}), options
    by_text = [place for place, one in enumerate(options.texts) if one and one == comparable(text)]
    if by_text:
        return (frozenset(by_text), options) if len(by_text) == 1 else None
    several = [
        part for part in re.split(r"\s*(?:[,;&]|\band\b|\s)\s*", re.sub(r"[()\[\].]", " ", text).strip()) if part
    ]
    compact = len(bare) > 1 and not set(bare) - set(LETTERS) and list(bare) == sorted(set(bare))
    parts = list(bare) if len(several) == 1 and compact and (options.known or bare[-1] <= "J") else several
    if len(parts) > 1 and all(part.upper() in options.labels for part in parts):
        return frozenset(options.labels[part.upper()] for part in parts), options
    labelled = _GOLD_LABEL.match(text)
    if labelled and labelled[1].upper() in options.labels:
        return _gold_with_text(options.labels[labelled[1].upper()], text[labelled.end() :], options)
    if not options.known and re.fullmatch("[A-Z]{2,8}", text):  # a word as label, such as NEI
        return frozenset({len(LETTERS)}), Options({**options.labels, text: len(LETTERS)}, (), False)
    return None


def _gold_with_text(position: int, text: str, options: Options) -> tuple[frozenset[int], Options] | None:
    own = comparable(text)
    if options.known:
        others = (one for place, one in enumerate(options.texts) if place != position)
        return None if own in others and own != options.texts[position] else (frozenset({position}), options)
    texts = tuple(own if place == position else "" for place in range(len(LETTERS)))
    return frozenset({position}), options._replace(texts=texts)


# ---- the completion's side


def _last_said(text: str, options: Options) -> Said | None:
    """What the last statement of an answer says, `None` where nothing is stated."""
    text = _OR_LINE.sub(" ", text)
    found = [*_cued(text, options), *_enclosed(text, options), *_lines(text, options)]
    return max(found, key=lambda place: place[0])[1] if found else None


def _enclosed(text: str, options: Options) -> Iterator[tuple[int, Said]]:
    """The last boxes and the answer tag with their places; whatever they hold, they are statements."""
    tag = answer_tag(text)
    if tag is not None:
        yield text.index("<answer>"), _content(tag, options)
    boxes = boxed_run(text).contents
    if not boxes:
        return
    said = [_content(box, options) for box in boxes]
    failed = [one for one in said if one.reason]
    positions = frozenset().union(*(one.positions for one in said))
    starts = [match for match in _BOX_START.finditer(text) if text.startswith(boxes[-1][:40], match.end())]
    place = starts[-1].start() if starts else text.rfind("\\")
    yield place, Said(positions, failed[0].reason if failed else "")


def _content(text: str, options: Options) -> Said:
    """What a box or an answer tag says: nothing else may stand in it that is an option."""
    said = read_statement(text, options) or Said(frozenset(), "wrong")
    return Said(said.positions, "several_answers") if not said.reason and names_others(text, said, options) else said


def _cued(text: str, options: Options) -> Iterator[tuple[int, Said]]:
    """The last announced answer, and the last "... is the correct answer", with their places."""
    lower = text.lower()
    for place in reversed(_cue_ends(text, lower)[-MAX_CUES:]):
        rest = text[place : place + MAX_STATEMENT].lstrip("*_: \t\r\n>")
        said = read_statement(rest.partition("\n")[0], options)
        if said is not None:
            yield place, said
            break
    for anchor in reversed(list(_AFTERWARDS.finditer(lower))[-MAX_CUES:]):
        start = anchor.start()
        if _TAKEN_BACK.match(lower, anchor.end()):
            continue
        said = _before(text[max(0, start - MAX_STATEMENT) : start], anchor["plain"] is not None, options)
        if said is not None:
            yield start, said
            break


def _cue_ends(text: str, lower: str) -> list[int]:
    """Where the announcements of an answer end in a text, which is given in lower case as well, in order."""
    ends = [
        match.end()
        for word, pattern in _CUES.items()
        if word in lower
        for match in pattern.finditer(lower)
        if word not in _CHOOSES or _SPEAKER.search(lower[max(0, match.start() - 20) : match.start()])
    ]
    brief = [
        match.end()
        for match in _BRIEFLY.finditer(lower)
        if text[match.end("label") - 1].isupper()
        and not _CONDITION.search(re.split(r"[.!?\n]", lower[max(0, match.start() - 60) : match.start()])[-1])
    ]
    return sorted(ends + brief)


def _before(text: str, plain: bool, options: Options) -> Said | None:
    """What the subject of "is the correct answer" names; of a plain "is correct" only a subject that stands alone."""
    subject = re.split(r"[.!?](?=\s)|\n", text)[-1]
    subject = re.sub(r"^.*\b(?:so|thus|hence|therefore|clearly)\b,?\s", "", " " + subject, flags=re.I).strip(" ,")
    if _CONDITION.search(subject.casefold()):
        return None
    denies = _NEGATION.search(subject.casefold()) is not None
    if denies:  # not A, but in another clause than the option
        subject = subject.rpartition(",")[2].strip()
        if _NEGATION.search(subject.casefold()):
            return None
    subject = re.sub(r"^.*\bthat\b,?\s", "", " " + subject, flags=re.I).strip(" ,")
    said = read_statement(subject, options, announced=False)
    if said is not None or denies:
        return said
    tail = re.search(
        r"(?:(?:\b(?:option|choice|answer)\s+|[(\[*]+)[A-Za-z0-9]{1,2}[)\]*]*|[(\[]?\b[A-Z][)\]]?)$", subject
    )
    if plain or tail is None or re.search(r"(?:[/&]|\b(?:or|and))\s*$", subject[: tail.start()]):
        return None
    return read_statement(tail.group(), options, announced=False)


def _lines(text: str, options: Options) -> Iterator[tuple[int, Said]]:
    """The first and the last line where they are nothing but an option."""
    whole = text.strip()
    if "\n" not in whole:
        said = read_statement(whole, options, announced=False) if len(whole) <= MAX_STATEMENT else None
        if said is not None:
            yield 0, said
        return
    first, _, after = whole.partition("\n")
    before, _, last = whole.rpartition("\n")
    neighbour = after.lstrip()[:MAX_STATEMENT].partition("\n")[0]
    for place, line, other in (
        (0, first, neighbour),
        (len(text), last, before.rstrip()[-MAX_STATEMENT:].rpartition("\n")[2]),
    ):
        if len(line) > MAX_STATEMENT or opens_with_option(other, options):  # options that are listed are not chosen
            continue
        said = read_statement(line, options, announced=False)
        if said is not None and (is_bare_option(line, options) or (not place and ")" in line[:4])):
            yield place, said


choice_reward = ChoiceReward()
