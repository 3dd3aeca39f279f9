"""Statements about the options of a multiple-choice question: which options a short text names."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MAX_STATEMENT = 400  # characters of a statement that are read


class Options(NamedTuple):
    """The options of one question.

    `labels` maps a label in capitals to its position; `texts` holds the options in comparable form, `""` where a text
    is unknown; `known` says whether the list of options is.
    """

    labels: dict[str, int]
    texts: tuple[str, ...]
    known: bool


class Said(NamedTuple):
    """What a statement says: the positions of the options in it, or why it says none."""

    positions: frozenset[int]
    reason: str = ""


UNKNOWN = Options({letter: position for position, letter in enumerate(LETTERS)}, (), False)

_MARKUP = re.compile(
    r"\\(?:text|math)(?:bf|it|rm|sf|tt)?\s*\{|\\(?:mbox|boxed|fbox|left|right|operatorname)(?![A-Za-z])\s*\{?"
    r"|\\[()\[\],;:! ]|[*`${}]|</?answer>"
)
_LEAD_WORDS = re.compile(
    r"(?:the\s+)?(?:(?:correct|right|final|best)\s+)?"
    r"(?P<noun>options?|choices?|letters?|answers?|numbers?)(?:\s+is\b)?\s*:?(?:\s+|(?=[(\[]))"
    r"|(?:is|either|both|definitely|clearly|most\s+likely|probably|indeed|therefore|with|that"
    r"|to\s+(?:choose|pick|select|go\s+with))\s+"
    # la B, die Antwort B: an article before a letter
    r"|(?:la|el|le|il|die|der|das)\s+(?:(?:opci[oó]n|option|opzione|letra|lettre|lettera|antwort|réponse)\s+)?"
    r"(?=[(\[]?[A-Z][)\]]?[.,;!]*(?:\s|$))",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"(?P<open>[(\[]?)\s*(?P<label>[A-Za-z]{1,16}|[0-9]{1,2})(?![A-Za-z0-9])\s*"
    r"(?P<close>[)\]]|[.:、](?=\s|$|[^\x00-\x7f])|(?<=\s)[-–—](?=\s)|)"
)
# a word, number or formula that only begins like a label: A-level, B's, 2.5, C++, f(x) =
_GLUED = re.compile(r"['’\-][A-Za-z0-9]|[.,][0-9]|\+\+|[#%]|\s?\(\w+\)\s?=")
_CONNECTIVE = re.compile(
    r"\s*(?:$|[,;!?.&/|+]|[-–—]|(?:because|since|as|for|which|due|so|and|or|by|was|is|are|both|with|based|given)(?!\w))"
    r"|\s+(?:或|和|与|及)|[^\x00-\x7f]",
    re.IGNORECASE,
)
# what follows is the reason, another sentence, or said of other options
_STOP = re.compile(
    r"(?<![ (\[]\w)(?<!^\w)[.!?;](?=\s|$)"
    r"|\b(?:because|since|as|which|not|rather|instead|but|so|due|for|while|whereas|unlike|than)\b",
    re.IGNORECASE,
)
_MAYBE = r"maybe|perhaps|possibly|probably|potentially|alternatively|otherwise|unless"
_JOIN = re.compile(
    rf"\s*\(?(?:(?P<word>\b(?:and/or|or|and|oder|und|ou|et|y|{_MAYBE})\b|[/&|+]{{1,2}}|∨|\\\\"
    r"|\\(?:lor|vee)(?![a-z])|或者?|和|与)|[,;、])\s*"
    rf"(?:(?:and|or|also|even|the|option|choice|{_MAYBE})\s+){{0,4}}|[\s,;.]*"
)
# right behind a label only: an option's text may hold a formula
_ARROW = re.compile(
    r"\s*(?:[-=]{1,2}>|[→⇒]|\\(?:to|(?:long)?rightarrow)(?![A-Za-z]))\s*[(\[]?(?P<label>[A-Za-z0-9]{1,2})\b"
)
# what takes back the option it stands behind
_DENIED = re.compile(
    r"[\s*_\"'”’)\].:]*(?:(?:is|was)\s+(?:\w+\s+)?(?:false|wrong|incorrect|untrue|not)\b|(?:isn|wasn)['’]t\b"
    r"|\?+[\s*_]*(?:no|nope|not|wrong|false)\b)",
    re.IGNORECASE,
)
_JOINED_LABEL = re.compile(
    r"(?P<open>[(\[]?)(?P<label>[a-z]{1,16}|[0-9]{1,2})(?![a-z0-9])(?P<close>[)\]]|[.:](?=\s|$)|)"
)
_LABEL_ENDS = re.compile(r"\s*(?:$|[,;!?/&|+.]|(?:or|and|oder|und)\b)")
_LATER_OPTION = re.compile(
    r"(?:\b(?:or|and|oder|und|ou|et|y)\s+(?:option\s+|choice\s+)?|[,;/&|]\s*)"
    r"(?:[(\[](?P<enclosed>[a-z]|[0-9]{1,2})[)\]]|(?P<label>[a-z]|[0-9]{1,2})(?:\)|[.:](?=\s)))"
)
_ORDINALS = {
    **{word: number for number, word in enumerate("first second third fourth fifth sixth seventh eighth".split())},
    **{word: number for number, word in enumerate("1st 2nd 3rd 4th 5th 6th 7th 8th".split())},
    "last": -1,
}
_POSITION = re.compile(
    rf"(?:the\s+)?(?P<ordinal>{'|'.join(_ORDINALS)})(?:\s+(?:option|choice|answer|one|alternative|statement)\b|\s*[.!]?$)",
    re.IGNORECASE,
)


_NUMBER = re.compile(r"[(\[#]{0,2}\s?(?P<number>[0-9]{1,2})\s?[)\]]?[.:;!]{0,3}(?![\w.,]\w)")
_REASON = re.compile(r"\s*$|,?\s+(?:because|since|as|which)\b", re.IGNORECASE)
_TEXT_AND_LABEL = re.compile(
    r"(?P<text>.*\S)\s*[(\[]\s*(?:(?:option|choice)\s+)?(?P<label>\w{1,16})\s*[)\]][.!]?", re.I
)
_CAPITAL = re.compile(r"(?<![\w\\'’\-])(?P<open>[(\[]?)(?P<label>[A-Z])(?![\w'’\-^+#%(]|\s?=)(?P<closed>[)\]]?)")
_ARTICLE = re.compile(r"\s[a-z]")


def comparable(text: str) -> str:
    """An option's text in the form in which it is compared: no markup, case, article, or space and mark at its ends."""
    text = " ".join(unicodedata.normalize("NFKC", _MARKUP.sub(" ", text[:MAX_STATEMENT])).casefold().split())
    return re.sub(r"^(?:the|an?)\s+(?=\S)", "", text.strip(" \"'“”‘’_")).rstrip(" .!;,\"'“”‘’_")


def statement(text: str) -> str:
    """The beginning of a text in one line, without markup, in ordinary letters and without marks at its ends."""
    text = unicodedata.normalize("NFKC", text[:MAX_STATEMENT])
    return " ".join(_MARKUP.sub(" ", text).split()).strip(" =>-–—\"'“”‘’_")


def read_statement(text: str, options: Options, *, announced: bool = True) -> Said | None:
    """What a statement says, `None` where it names no option at its start.

    Args:
        text (`str`): the text from where an answer is expected; the first 400 characters are read.
        options (`Options`): the options.
        announced (`bool`, *optional*, defaults to `True`): whether the text before announces an answer ("the answer
            is"); otherwise the statement must be nothing but an option, or one with brackets or a point behind it.

    Example:

    ```python
    >>> read_statement("**(B)**, because A is wrong", UNKNOWN)
    Said(positions=frozenset({1}), reason='')
    >>> read_statement("A dog", UNKNOWN) is None
    True

    ```
    """
    text = statement(text)
    for _ in range(4):
        said = _whole(text, options)
        if said is not None:
            return said
        lead = _LEAD_WORDS.match(text)
        if lead is None:
            break
        text = text[lead.end() :].strip()
        said = _numbered(text, options) if (lead["noun"] or "").lower().startswith(("option", "choice")) else None
        if said is not None:
            return said
    return _started(text, options, announced)


def names_others(text: str, said: Said, options: Options) -> bool:
    r"""Whether the content of a box or of an answer tag names options besides the one that it says.

    Of a label in brackets or before a colon, point or dash, the text follows, which may hold any letter: others count
    in brackets then. Otherwise every capital that is a label counts, and with the options known every text of one.

    Args:
        text (`str`): the content.
        said (`Said`): what [`read_statement`] reads in it.
        options (`Options`): the options.

    Example:

    ```python
    >>> content = r"B\\lor C"
    >>> names_others(content, read_statement(content, UNKNOWN), UNKNOWN)
    True

    ```
    """
    if len(said.positions) != 1:
        return False
    (position,) = said.positions
    text = statement(text.replace("\\\\", " "))
    stop = _STOP.search(text)
    text = text[: stop.start()] if stop else text
    own = next((one for one in _CAPITAL.finditer(text) if options.labels.get(one["label"]) == position), None)
    rest = text[own.end() :] if own else ""
    only_closed = own is None or bool(own["closed"]) or re.match(r"[.:]\s|\s[-–—]\s", rest) is not None
    words = comparable(rest if own else text)
    known = options.texts[position] if options.texts else ""
    if known and _starts_with(words, known):
        words, rest = words[len(known) :], ""
    for other in _CAPITAL.finditer(rest):
        name = other["label"]
        place = options.labels.get(name) if options.known or name <= "J" else None
        article = name in "AI" and not other["closed"] and _ARTICLE.match(rest, other.end())
        if place not in (None, position) and not article and not (only_closed and not other["closed"]):
            return True
    return any(
        place != position and len(one) > 2 and one.isalpha() and one not in known and re.search(rf"\b{one}\b", words)
        for place, one in enumerate(options.texts)
    )


def opens_with_option(line: str, options: Options) -> bool:
    """Whether a line is an item of a list of options."""
    text = statement(line)
    label = _LABEL.match(text)
    return bool(label and label["label"].upper() in options.labels and (label["close"] or label.end() == len(text)))


def is_bare_option(line: str, options: Options) -> bool:
    """Whether a line holds a label, an option's text, or both, and no other word."""
    text = statement(line)
    if _labelled_behind(text, options) is not None:
        return True
    label = _LABEL.match(text)
    return comparable(text) in options.texts or (
        label is not None and comparable(text[label.end() :]) in ("", *options.texts)
    )


def _at(position: int, options: Options) -> Said:
    return Said(frozenset({position})) if 0 <= position < len(options.texts) else Said(frozenset(), "wrong")


def _numbered(text: str, options: Options) -> Said | None:
    """The option at the place that a number says, where numbers are no labels."""
    number = _NUMBER.match(text)
    if not options.known or number is None or number["number"] in options.labels:
        return None
    position, rest = int(number["number"]) - 1, text[number.end() :]
    if 0 <= position < len(options.texts) and _starts_with(_tail(rest), options.texts[position]):
        return _with_rest(rest, position, options)
    return _at(position, options) if _REASON.match(rest) else None


def _labelled_behind(text: str, options: Options) -> Said | None:
    """An option's text with a label in brackets behind it."""
    both = _TEXT_AND_LABEL.fullmatch(text) if text.endswith((")", "]", ").", "].")) else None
    position = options.labels.get(both["label"].upper()) if both else None
    words = comparable(both["text"]) if both else ""
    if position is None or not words or words not in options.texts:
        return None
    return Said(frozenset({position})) if words == options.texts[position] else Said(frozenset(), "contradiction")


def _whole(text: str, options: Options) -> Said | None:
    """A statement that is nothing but a label, several labels without a space, an option's text, or a position."""
    bare = re.fullmatch(r"[(\[]?\s*([A-Za-z0-9]{1,26})\s*[)\]]?\s*[.,:;!)]*", text)
    name = bare[1].upper() if bare else ""
    if name in options.labels:
        return Said(frozenset({options.labels[name]}))
    words = comparable(text)
    matches = frozenset(place for place, one in enumerate(options.texts) if one and one == words)
    if matches:
        return Said(matches)
    behind = _labelled_behind(text, options)
    if behind is not None:
        return behind
    # a number is a place where it can be no value
    number = None if any(char.isdigit() for one in options.texts for char in one) else _numbered(text, options)
    if number is not None:
        return number
    if bare and bare[1].isupper() and list(name) == sorted(set(name)) and set(name) <= set(options.labels):
        return Said(frozenset(options.labels[letter] for letter in name))
    return _by_place(text, options) if options.known else None


def _by_place(text: str, options: Options) -> Said | None:
    """The second option, and the third one where it is named as well."""
    place = _POSITION.match(text)
    if place is None:
        return None
    stop = _STOP.search(text)
    end = stop.start() if stop and stop.start() > place.end() else len(text)
    places = [_ORDINALS[one["ordinal"].casefold()] for one in _POSITION.finditer(text, 0, end)]
    positions = {one % len(options.texts) if one < 0 else one for one in places}
    if len(positions) == 1:
        return _at(positions.pop(), options) if not _DENIED.match(text, place.end()) else Said(frozenset(), "wrong")
    return Said(frozenset(position for position in positions if position < len(options.texts)), "several_answers")


def _started(text: str, options: Options, announced: bool) -> Said | None:
    """A statement that goes on after the option."""
    label = _LABEL.match(text)
    position = options.labels.get(label["label"].upper()) if label else None
    if label is None or position is None or _GLUED.match(text, label.end("label")):
        return _started_by_text(text, options) if announced else None
    rest = text[label.end() :]
    if _is_label(label, rest, position, options, announced):
        return _with_rest(rest, position, options)
    said = _started_by_text(text, options) if announced else None
    capital = label["label"].isupper() and label["label"] not in "AI"
    return _with_rest(rest, position, options) if said is None and announced and capital else said


def _is_label(label: re.Match[str], rest: str, position: int, options: Options, announced: bool) -> bool:
    """Whether a label at the start of a longer statement is one and no article, number or initial."""
    name, closed = label["label"], label["close"]
    if options.texts and _starts_with(_tail(rest), options.texts[position]):
        return True
    if closed in (")", "]") or (closed and closed in ".、" and not name.isdigit()):
        return True
    if announced:
        return (bool(closed) and not name.islower()) or _CONNECTIVE.match(rest) is not None
    if not name.isupper() and not name.isdigit():
        return False
    # "A or B", "A/B/C": nothing but options; or an option and its reason
    joined, end = _joined(_tail(rest), options)
    return bool(joined and end == len(_tail(rest))) or re.match(r",?\s*(?:because|since)\b", rest) is not None


def _started_by_text(text: str, options: Options) -> Said | None:
    words = comparable(text)
    position = _longest_start(words, options)
    return None if position is None else _with_rest(words, position, options)


def _with_rest(rest: str, position: int, options: Options) -> Said:
    """An option and what is said after it: its text, that of another one, or further options."""
    words = _tail(rest)
    if options.texts and _starts_with(words, options.texts[position]):
        rest = words[len(options.texts[position]) :]
    if _DENIED.match(rest):
        return Said(frozenset(), "wrong")
    other = _longest_start(words, options)
    if other is not None:
        after = words[len(options.texts[other]) :]
        if options.texts[other] == options.texts[position]:
            words = after
        elif _LABEL_ENDS.match(after) or _STOP.match(after.lstrip()):
            return Said(frozenset(), "contradiction")
    joined, _ = _joined(words, options)
    stop = _STOP.search(words)
    for later in _LATER_OPTION.finditer(words, 0, stop.start() if stop else len(words)):
        place = options.labels.get((later["enclosed"] or later["label"]).upper())
        if place is not None:
            joined.add(place)
    arrow = _ARROW.match(rest)
    if arrow and arrow["label"].upper() in options.labels:
        joined.add(options.labels[arrow["label"].upper()])
    return Said(frozenset({position, *joined}))


def _joined(words: str, options: Options) -> tuple[set[int], int]:
    """The options that follow one another from the start of the words, and where they end."""
    found: set[int] = set()
    end = 0
    while end < len(words):
        join = _JOIN.match(words, end)
        start = join.end() if join else end
        label = _JOINED_LABEL.match(words, start)
        place = options.labels.get(label["label"].upper()) if label else None
        if label and place is not None and _stands_alone(words, label, bool(join and join["word"])):
            end = label.end()
        else:
            place = _longest_start(words[start:], options) if join and join.group().strip() else None
            if place is None:
                break
            end = start
        found.add(place)
        own = len(words) - len(words[end:].lstrip(" :-–—"))
        if options.texts and _starts_with(words[own:], options.texts[place]):
            end = own + len(options.texts[place])
        elif end == start:
            break
    return found, end


def _stands_alone(words: str, label: re.Match[str], after_word: bool) -> bool:
    if label["close"] or _LABEL_ENDS.match(words, label.end()):
        return True
    if _GLUED.match(words, label.end("label")):
        return False
    return after_word and (
        label["label"] not in "ai" or re.match(r"\s+(?:are|is|both)\b", words[label.end() :]) is not None
    )


def _tail(rest: str) -> str:
    return comparable(rest.lstrip(" :.-–—)"))


def _starts_with(words: str, text: str) -> bool:
    return bool(text) and words.startswith(text) and re.match(r"\w|[.,]\d", words[len(text) :]) is None


def _longest_start(words: str, options: Options) -> int | None:
    """Position of the longest option with which the words start."""
    starts = [(len(one), -place) for place, one in enumerate(options.texts) if _starts_with(words, one)]
    return -max(starts)[1] if starts else None
