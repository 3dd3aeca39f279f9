r"""A response as the checkers of constraints see it: its words, tokens and sentences.

Everything is found in a few passes over the text with the standard library; what stands around a full stop is looked at
over a bounded length, so that time grows with the length of the text and with nothing else.

Source: the public checkers use NLTK: its Punkt model for sentences, its Treebank rules for tokens, and runs of `\w` for
numbers of words. The last are the same here; [`sentences`] and [`tokens`] say where they differ.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from functools import cached_property

from reward_funcs._prose import INVISIBLE

_BLANK = "\u2800"  # the pattern of Braille without a dot
PUNCTUATION = string.punctuation  # that of ASCII, as everywhere in the public checkers
_WITHOUT_PUNCTUATION = str.maketrans("", "", PUNCTUATION)
_WORD = re.compile(r"\w+")
_WRITTEN = re.compile(r"[^\W_]")

# ---- sentences

# One run of marks with the quotes, brackets and Markdown that close behind it. Marks of scripts without spaces, and the
# danda, need no space behind them. The run begins where it begins and gives nothing back: no text makes it slow.
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’»)\]}*_]*+(?=\s|$)|[。！？।॥۔؟]++[」』”’）\"'*_]*+")
_NEXT = re.compile(r"\s*+[\"'“‘«(\[{*_]*+(\w{0,16})")
_ITEM = re.compile(r"[ \t]*[*_>#(-]{0,4}[ \t]?[0-9]{1,3}")  # what opens a line before the full stop of a list item
_LOOK_BACK = 24  # characters before a full stop
_LAST_WORD = re.compile(r"[^\W\d_][^\W\d_.]*(?:\.[^\W\d_]+)*$")
_ABBREVIATIONS = frozenset(
    "mr mrs ms mx dr prof sr jr st mt vs cf approx dept est inc ltd corp gen col sgt capt lt gov rep rev hon esq al "
    "jan feb aug sept oct nov dec blvd ave e.g i.e ph.d a.k.a".split()
)
# behind these a full stop ends no sentence where a number follows: "fig. 3", but "in a sec. Then"
_BEFORE_NUMBER = frozenset("no nos fig figs eq eqs ch pp p vol sec art ed eds min max mar apr jun jul sep".split())
# words that open a sentence even behind an initial or an abbreviation with full stops inside: "in the U.S. The"
_OPENERS = frozenset(
    "a an and as at but by for from he her here his however if in it its my no on our she so that the their then there "
    "these they this those we what when where which who why with yet you your".split()
)


def sentences(text: str) -> list[str]:
    r"""The sentences of a text, without the white space around them.

    A sentence ends behind a full stop, question mark, exclamation mark or ellipsis that white space follows, closing
    quotes and brackets included. As in Punkt a line break ends none, and what follows may begin with a small letter.
    No sentence ends behind an abbreviation, behind an initial or `U.S.` unless a usual first word follows, and behind
    an ellipsis that goes on in small letters.

    Differs from Punkt: the abbreviations are a list and not learnt; the number of a list item (`1.`) and a piece
    without letters and digits (an emoji) are no sentences of their own; `。` and the marks of other scripts end one.

    Args:
        text (`str`): a response.

    Returns:
        `list[str]`: the sentences; what stands behind the last mark is one, too.

    Example:

    ```python
    >>> sentences("Dr. Li has 2.5 cats!\n1. One is old... and grey. Is it")
    ['Dr. Li has 2.5 cats!', '1. One is old... and grey.', 'Is it']

    ```
    """
    spans: list[list[int]] = []
    for start, end in _pieces(text):
        # what holds no word belongs to the sentence before it
        if spans and _WRITTEN.search(text, start, end) is None:
            spans[-1][1] = end
        else:
            spans.append([start, end])
    if len(spans) > 1 and _WRITTEN.search(text, *spans[0]) is None:
        opening = spans.pop(0)
        spans[0][0] = opening[0]
    return [text[start:end].strip() for start, end in spans]


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    last = 0
    for match in _END.finditer(text):
        if _is_end(text, match):
            yield last, match.end()
            last = match.end()
    if text[last:].strip():
        yield last, len(text)


def _is_end(text: str, match: re.Match[str]) -> bool:
    following = _NEXT.match(text, match.end())
    behind = following[1] if following else ""
    mark = match.group().rstrip("\"'”’»)]}*_")
    if not behind or mark[0] in "。！？।॥۔؟" or "!" in mark or "?" in mark:
        return True
    if mark != ".":
        return not behind[0].islower()
    start = max(0, match.start() - _LOOK_BACK)
    before = text[start : match.start()]
    line = before.rpartition("\n")
    if (line[1] or not start) and _ITEM.fullmatch(line[2]):
        return False
    word = _LAST_WORD.search(before)
    return word is None or not _is_abbreviation(word.group(), behind)


def _is_abbreviation(word: str, behind: str) -> bool:
    small = word.lower()
    if small in _BEFORE_NUMBER:
        return behind[0].isdigit()
    if small == "etc":
        return not behind[0].isupper()
    if small in _ABBREVIATIONS:
        return True
    initial = len(word) == 1 and word.isupper()
    # letters with full stops between them: U.S., a.m.
    if initial or (len(word) > 2 and all(len(part) == 1 for part in word.split("."))):
        return not (behind[0].isupper() and behind.lower() in _OPENERS)
    return False


def end_mark(sentence: str) -> str:
    """The mark that ends a sentence, `"."`, `"?"`, `"!"`, or `""` for none; what stands behind it may be an emoji.

    Example:

    ```python
    >>> end_mark('He said "Why?" 🙂'), end_mark("no end")
    ('?', '')

    ```
    """
    for character in reversed(sentence):
        if character.isalnum():
            break
        if character in ".?!。？！":
            return {"。": ".", "？": "?", "！": "!"}.get(character, character)
    return ""


# ---- tokens

_APART = ';@#$%&?!*()\\[\\]{}<>"“”„«»‘`…—'  # each is a token of its own
_TOKEN = re.compile(rf"\.{{2,}}+|--|[{_APART}]|[,:](?![0-9])|(?:[^\s{_APART},:.-]|[,:](?=[0-9])|\.(?!\.)|-(?!-))++|\S")
_CONTRACTION = re.compile(r"(?:n['’]t|['’](?:s|m|d|ll|re|ve))$", re.IGNORECASE)
_LONGEST_CONTRACTION = 3
_WRITTEN_TOGETHER = {"cannot": 3, "gimme": 3, "gonna": 3, "gotta": 3, "lemme": 3, "wanna": 3}
_CLOSERS = frozenset("])}>\"'»”’")


def tokens(text: str) -> list[str]:
    """The tokens of a text: words with their hyphens, contractions in two, punctuation marks each for itself.

    Full stops inside a sentence stay with their word (`U.S.`, `3.14`), the one at its end is a token; so are commas and
    colons unless a digit follows. `it's`, `don't` and `cannot` are two tokens.

    Differs from NLTK: a quote mark is its own token and stays as it is, at the start of a word too; a curly apostrophe
    counts as a straight one; the long dash and the ellipsis stand apart.

    Args:
        text (`str`): a response.

    Returns:
        `list[str]`: the tokens in order.

    Example:

    ```python
    >>> tokens("Don't pay $3.50, Dr. Who: it's well-known.")
    ['Do', "n't", 'pay', '$', '3.50', ',', 'Dr.', 'Who', ':', 'it', "'s", 'well-known', '.']

    ```
    """
    found: list[str] = []
    for sentence in sentences(text):
        found += _tokens_of(sentence)
    return found


def _tokens_of(sentence: str) -> Iterator[str]:
    raw = _TOKEN.findall(sentence)
    place = len(raw) - 1
    while place > 0 and raw[place] in _CLOSERS:
        place -= 1
    for index, token in enumerate(raw):
        if index == place and len(token) > 1 and token[-1] == "." and token[-2] != ".":
            yield from _parts(token[:-1])
            yield "."
        else:
            yield from _parts(token)


def _parts(token: str) -> Iterator[str]:
    """A token without the quote marks around it, in two where it is a contraction."""
    if token.lower() in _WRITTEN_TOGETHER:
        cut = _WRITTEN_TOGETHER[token.lower()]
        yield from (token[:cut], token[cut:])
        return
    if "'" not in token and "’" not in token:
        yield token
        return
    if len(token) > 1 and token[0] in "'’":
        yield token[0]
        token = token[1:]
    quoted = len(token) > 1 and token[-1] in "'’"
    word = token[:-1] if quoted else token
    cut = max(0, len(word) - _LONGEST_CONTRACTION)
    match = _CONTRACTION.search(word, cut)
    if match is not None and match.start() > 0:
        yield from (word[: match.start()], word[match.start() :])
    else:
        yield word
    if quoted:
        yield token[-1]


# ---- emoji

# The standard library does not know which characters are emoji; these blocks hold them all, and few others.
_EMOJI = re.compile(
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u23cf\u23e9-\u23fa\u24c2"
    "\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d"
    "\u3297\u3299\U0001f000-\U0001f2ff\U0001f300-\U0001faff]"
)
# what follows an emoji as a part of it: joiners, selectors of its form, tags of flags
_EMOJI_PARTS = "\u200d\ufe0e\ufe0f\u20e3" + "".join(map(chr, range(0xE0020, 0xE0080)))


def ends_with_emoji(text: str) -> bool:
    """Whether the last character is an emoji, punctuation and white space behind it aside.

    Example:

    ```python
    >>> ends_with_emoji("Hello 🙂!"), ends_with_emoji("Hello")
    (True, False)

    ```
    """
    bare = text.rstrip(PUNCTUATION + string.whitespace + _EMOJI_PARTS)
    return bool(bare) and _EMOJI.match(bare[-1]) is not None


def begins_with_emoji(text: str) -> bool:
    """Whether the first character is an emoji, punctuation and white space before it aside.

    Example:

    ```python
    >>> begins_with_emoji("🙂 Hello")
    True

    ```
    """
    bare = text.lstrip(PUNCTUATION + string.whitespace)
    return _EMOJI.match(bare) is not None


# ---- the response


class Response:
    """A text that is checked against several constraints; what they look at is found once.

    Args:
        text (`str`): the response.

    Example:

    ```python
    >>> response = Response("Two cats. They sleep!")
    >>> response.num_words, response.sentences, response.words
    (4, ['Two cats.', 'They sleep!'], ['Two', 'cats', 'They', 'sleep'])

    ```
    """

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def stripped(self) -> str:
        """The text without white space at its ends."""
        return self.text.strip()

    @cached_property
    def is_visible(self) -> bool:
        """Whether a character of it shows something: spaces, controls and zero-width characters do not."""
        return any(one.isprintable() and not one.isspace() and one != _BLANK for one in INVISIBLE.sub("", self.text))

    @cached_property
    def lower(self) -> str:
        """The text in small letters."""
        return self.text.lower()

    @cached_property
    def lines(self) -> list[str]:
        """The lines that hold more than white space, with their indentation."""
        return [line for line in self.text.split("\n") if line.strip()]

    @cached_property
    def num_words(self) -> int:
        r"""Number of runs of letters, digits and underscores: `well-known` is two."""
        return sum(1 for _ in _WORD.finditer(self.text))

    @cached_property
    def sentences(self) -> list[str]:
        """The sentences, see [`sentences`]."""
        return sentences(self.text)

    @cached_property
    def tokens(self) -> list[str]:
        """The tokens, see [`tokens`]."""
        return tokens(self.text)

    @cached_property
    def words(self) -> list[str]:
        """The tokens that hold a letter or a digit."""
        return words_of(self.tokens)

    @cached_property
    def chunks(self) -> list[str]:
        """What white space separates, punctuation included."""
        return self.text.split()

    @cached_property
    def plain_words(self) -> list[str]:
        """What white space separates in small letters, after all ASCII punctuation is gone: `well-known` is one."""
        return plain_words(self.text)


def words_of(found: list[str]) -> list[str]:
    """The tokens that hold a letter or a digit."""
    return [token for token in found if _WRITTEN.search(token)]


def plain_words(text: str) -> list[str]:
    """The words of a text in small letters without ASCII punctuation, as white space separates them.

    Example:

    ```python
    >>> plain_words("Well-known, isn't it?")
    ['wellknown', 'isnt', 'it']

    ```
    """
    return without_punctuation(text).lower().split()


def without_punctuation(text: str) -> str:
    """The text without ASCII punctuation."""
    return text.translate(_WITHOUT_PUNCTUATION)


def bare(word: str) -> str:
    """A word in small letters without the punctuation around it."""
    return word.strip(PUNCTUATION + "“”‘’«»…—–").lower()
