"""Reward for reasoning in one language: the share of its words that belong to the language asked for.

Words are counted by Unicode script with the standard library. Where several languages share a script, each sentence is
also identified among a few candidates with py3langid, when that is installed.
"""

from __future__ import annotations

import re
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from reward_funcs._prose import INVISIBLE, TAG, Prose, prose_and_hidden, reasoning, split_camel
from reward_funcs._scripts import (
    CHARACTERS_A_WORD,
    LATIN_WORD,
    LONG_WORD,
    SCRIPT_OF,
    WORDS,
    known_language,
    language_code,
    num_script_words,
    num_words,
    scripts_in,
    without_mixed_words,
)
from reward_funcs.base import Batch, Grade, Reward, check_name, check_setting
from reward_funcs.extract import after_think

PARTS = ("reasoning", "answer", "all")

# What a text in a language of the script is most often mixed with; siblings such as Danish and Swedish are left out
# because one short sentence does not tell them apart.
_USUAL = {
    "latin": ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "sv", "tr", "vi", "id"),
    "cyrillic": ("ru", "uk", "bg", "sr"),
    "arabic": ("ar", "fa", "ur"),
    "devanagari": ("hi", "mr"),
}
_SHORT = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log exp lim max min sup inf mod gcd lcm det dim ker "
    "deg arg sgn sqrt cdot times frac pmod kwh mph rpm usd".split()
)
_SENTENCE_END = re.compile("[.!?;:](?=\\s)|[\n。\uff01\uff1f\uff1a\uff1b؟۔।…]+")
_CJK_SENTENCE_END = re.compile("[\n。\uff01\uff1f]+")
_FEWEST, _MOST = 4, 16  # words that are identified together
_WINDOW = 12  # longer sentences are cut into as many parts as have so many words: one language each, it is hoped
# share of the score by which another language must be likelier; among fewer than 8 words, where names weigh more
_DOUBT, _SHORT_DOUBT = 0.05, 0.1
# names, headings in another script, and identifiers in formulas and code, as a share of the words of the language; so
# many identifiers are let pass of a short text, too
_TOLERATED, _FEW_HIDDEN = 0.2, 3
# What a sentence in one language does not hold, and what it hardly does without, by letters and by the words that bind
# sentences: where the likeliest language is another one by a little, these decide.
_AGAINST = {
    "ru": re.compile("[іїєґўј]"),
    "uk": re.compile("[ыэёъўј]"),
    "bg": re.compile("[ыэёіїєґўј]|ь(?!о)"),
    "sr": re.compile("[йщъыьэюяёіїєґў]"),
}
_NEEDED = {
    "uk": re.compile("[іїєґ]"),
    "hi": re.compile(" (?:है|हैं|हूँ|हूं|था|थी|थे|का|की|के|को|में|से|ने|और|नहीं|भी|लिए) "),
}
_PHRASES = re.compile(f"{LATIN_WORD}(?:[ '’-]{LATIN_WORD})*")
_Rank = Callable[[str], list[tuple[str, float]]]


class Count(NamedTuple):
    """Words of a text in a language and in all others, each worth one word of English."""

    own: float
    foreign: float


def _foreign_latin(text: str) -> tuple[float, float]:
    """Latin words in a text of another script: words, and names, which a text may hold some of.

    Variables, points, functions and units (x, AB, sin, cm) count as neither.
    """
    words, names = 0.0, 0
    for phrase in _PHRASES.findall(text):
        parts = split_camel(re.split("[ '’-]", phrase))
        short = 2 if len(parts) < 3 else 1
        rest = [part for part in parts if len(part) > short and part.lower() not in _SHORT]
        if len(rest) > 3 or not all(_is_name(part) for part in rest):
            words += num_words([part for part in parts if len(part) > 1])
        else:
            names += sum(not (part.isupper() and len(part) < 6) for part in rest)
    return words, names


def _is_name(word: str) -> bool:
    return word[0].isupper() and len(word) <= 20 and (word[1:].islower() or len(word) < 6)


def _chinese_and_japanese(text: str) -> tuple[float, float, float]:
    """Words of Chinese, of Japanese, and of fragments of Chinese characters too short to say whose they are."""
    chinese = japanese = either = 0.0
    find_han, find_kana = WORDS["han"].findall, WORDS["kana"].findall
    for sentence in _CJK_SENTENCE_END.split(text):
        han, kana = len("".join(find_han(sentence))), len("".join(find_kana(sentence)))
        words = han / CHARACTERS_A_WORD["han"], kana / CHARACTERS_A_WORD["kana"]
        # a third to two thirds of Japanese is kana, less in a heading; a few の do not make Chinese Japanese
        if kana * 5 >= han + kana or (kana and han < 9):
            japanese += sum(words)
        elif kana or han > 6:
            chinese, japanese = chinese + words[0], japanese + words[1]
        else:
            either += words[0]
    return chinese, japanese, either


def _cjk(text: str, scripts: set[str], language: str) -> Count:
    if language == "zh" and "kana" not in scripts:
        return Count(num_script_words(text, "han"), 0.0)
    chinese, japanese, either = _chinese_and_japanese(text)
    if language == "zh":
        return Count(chinese + either, japanese)
    return Count(japanese, chinese + max(0.0, either - _TOLERATED * japanese))


# --- languages of one script


@cache
def _identifier(languages: tuple[str, ...]) -> _Rank | None:
    """A function that ranks the languages for a sentence; `None` where there is nothing to do it with."""
    model = _model()
    if model is None:
        return None
    import copy

    restricted = copy.copy(model)
    restricted.set_languages(languages)
    rank: _Rank = restricted.rank
    return rank


@cache
def _model() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        warnings.warn(
            "py3langid is not installed: languages that share a script, such as English and German, are not told "
            'apart; install it with: pip install "trl-ext[lang]", or pass candidates=() to count scripts alone',
            stacklevel=_callers_level(),
        )
        return None
    return LanguageIdentifier.from_model_file(MODEL_FILE)


def _callers_level() -> int:
    """The `stacklevel` at which a warning shows the line that called this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("reward_funcs."):
        level, frame = level + 1, frame.f_back
    return level


def _units(text: str, words: re.Pattern[str]) -> Iterator[list[str]]:
    """The words of each sentence; short sentences are joined, long ones cut, so that each unit can be identified.

    A word that is too long for one is a unit by itself: spaces left out must not make it part of another sentence.
    """
    unit: list[str] = []
    for sentence in _SENTENCE_END.split(text):
        found = words.findall(sentence)
        if max(map(len, found), default=0) > _WINDOW:
            found = split_camel(found)
            yield from ([word] for word in found if len(word) > LONG_WORD)
            found = [word for word in found if len(word) <= LONG_WORD]
        if unit and (min(len(unit), len(found)) >= _FEWEST or len(unit) + len(found) > _MOST):
            yield from _windows(unit)
            unit = []
        unit += found
    yield from _windows(unit)


def _windows(unit: list[str]) -> Iterator[list[str]]:
    """The words in parts of about equal length, none too long to be in one language."""
    count = 1 if len(unit) <= _MOST else -(-len(unit) // _WINDOW)
    bounds = [len(unit) * i // count for i in range(count + 1)]
    return (unit[start:end] for start, end in pairwise(bounds) if end > start)


def _num_identified(units: Iterable[list[str]], language: str, rank: _Rank) -> Count:
    own = foreign = 0.0
    for unit in units:
        # full-width and mathematical letters are read as what they look like
        sentence = unicodedata.normalize("NFKC", " ".join(unit))
        ranking = rank(sentence)
        best = ranking[0][1]
        doubt = _DOUBT if len(unit) >= 8 else _SHORT_DOUBT
        near = dict(ranking)[language] >= best - doubt * abs(best)
        if ranking[0][0] == language or (near and _can_be(sentence.lower(), language)):
            own += num_words(unit)
        else:
            foreign += num_words(unit)
    return Count(own, foreign)


def _can_be(sentence: str, language: str) -> bool:
    """Whether nothing in the sentence speaks against a language that is not the likeliest one."""
    against, needed = _AGAINST.get(language), _NEEDED.get(language)
    if against is not None and against.search(sentence) is not None:
        return False
    return needed is None or needed.search(f" {sentence} ") is not None


def word_count(text: str, language: str = "en", *, candidates: Sequence[str] | None = None) -> Count:
    """Words of the text in the language and in all others.

    The prose of the text (see [`prose`]) is counted by script: Han 1.5, kana 2.6, Thai and Lao 4.2, Khmer and Burmese 5
    characters a word, which is what they need for one word of English; everything else by its spaces, a word longer
    than 32 letters as one for every 6. Digits, punctuation, single Latin and short Greek letters, and in other scripts
    also AB, sin or cm count as nothing. Personal names in Latin letters and short fragments of Han in Japanese are let
    pass up to a fifth of the words of the language. So are words in formulas, inline code, links, tags and unknown
    commands that belong to no markup, each counted once: beyond a fifth, or three if that is more, those in another
    script or language are foreign.

    Args:
        text (`str`): the text.
        language (`str`, defaults to `"en"`): ISO 639-1 code, with or without a region, or English name.
        candidates (`Sequence[str]`, *optional*): languages that sentences are identified among, by default the usual
            ones of the script; an empty list counts scripts alone.

    Returns:
        [`Count`]: words of the language and words of others.

    Raises:
        ValueError: For an unknown language.

    Example:

    ```python
    >>> word_count("Значит, x равен четырём. Hence x equals four.", "ru", candidates=())
    Count(own=3, foreign=3.0)

    ```
    """
    return _count(prose_and_hidden(text), language_code(language), _candidates(candidates))


def _candidates(candidates: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(candidates, str) or not (candidates is None or isinstance(candidates, Iterable)):
        raise ValueError(
            f"candidates must be a list of languages, not {candidates!r:.60}; write [...], or leave it out"
        )
    return None if candidates is None else tuple(language_code(language, "candidates") for language in candidates)


def _count(found: Prose, language: str, candidates: tuple[str, ...] | None) -> Count:
    text, hidden = found
    scripts = scripts_in(text)
    own_script = SCRIPT_OF[language]
    foreign = 0.0
    if {"latin", "cyrillic"} <= scripts:
        text, foreign = without_mixed_words(text)
    if own_script in ("han", "kana"):
        own, japanese_or_chinese = _cjk(text, scripts, language)
        foreign += japanese_or_chinese
        scripts -= {"han", "kana"}
    else:
        own, other_language = _own_words(text, language, candidates)
        foreign += other_language
    if own_script != "latin" and "latin" in scripts:
        words, names = _foreign_latin(text)
        foreign += words + max(0.0, names - _TOLERATED * own)
    for script in scripts - {own_script, "latin", "greek"}:
        foreign += num_script_words(text, script)
    if "greek" in scripts and own_script != "greek":
        foreign += num_words([word for word in WORDS["greek"].findall(text) if len(word) > 2])
    if num_words(hidden) > _FEW_HIDDEN:
        foreign += max(0.0, _foreign_hidden(hidden, language, candidates) - max(_FEW_HIDDEN, _TOLERATED * own))
    return Count(own, foreign)


def _rank_of(language: str, candidates: tuple[str, ...] | None) -> _Rank | None:
    """What tells the language from those of its script, where there are any and it can be done."""
    script = SCRIPT_OF[language]
    among = {language, *(_USUAL.get(script, ()) if candidates is None else candidates)}
    same_script = tuple(sorted(code for code in among if SCRIPT_OF[code] == script))
    return _identifier(same_script) if len(same_script) > 1 else None


def _own_words(text: str, language: str, candidates: tuple[str, ...] | None) -> Count:
    script, rank = SCRIPT_OF[language], _rank_of(language, candidates)
    if rank is None:
        return Count(num_script_words(text, script), 0.0)
    return _num_identified(_units(text, WORDS[script]), language, rank)


def _foreign_hidden(hidden: list[str], language: str, candidates: tuple[str, ...] | None) -> float:
    """Hidden words, which are in ASCII letters, that are not in the language."""
    if SCRIPT_OF[language] != "latin":
        return num_words(hidden)
    rank = _rank_of(language, candidates)
    return 0.0 if rank is None else _num_identified(_windows(hidden), language, rank).foreign


class LanguageConsistencyReward(Reward):
    """Share of the words that are in the language asked for: `own / (own + foreign)`.

    Words are counted as in [`word_count`]. Languages of one script, such as English and German, are told apart a
    sentence at a time with py3langid (`pip install "trl-ext[lang]"`); without it a warning is given once and they count
    as the same. Chinese, Japanese, Korean, Thai and the other languages with a script to themselves need nothing.

    - A completion without a single visible character gets 0.0: writing nothing is not consistent.
    - One with fewer than `min_words` words, such as mere formulas or code, is neutral: it gets `None`, which TRL adds
      up as nothing, so there is no reward in avoiding words. In a composition it has no influence: sums, products and
      minima leave it out, a gate lets it pass. An empty think block is no way out: where the part to judge holds too
      few words, the whole text is judged.
    - Formulas, code, links and tags are left out, but words that are hidden in them count, see [`word_count`].
    - Serbian is expected in Cyrillic.

    Args:
        language (`str`, *optional*): language of all completions: ISO 639-1 code (`"zh"`, `"pt-BR"`) or English name.
            Without it each row names its own in `column`; where there is no such column it is English.
        column (`str`, defaults to `"language"`): column with the language of each row. A row with `None` or an unknown
            language gets `None`. Any other column than `"language"` must be there.
        part (`str`, defaults to `"reasoning"`): what is judged: `"reasoning"`, all before the last `</think>` or, in a
            text without it, everything; `"answer"`, what follows it; or `"all"`.
        threshold (`float`, *optional*): share in (0, 1] from which the reward is 1.0, below it 0.0, instead of the
            share itself.
        min_words (`int`, defaults to 3): fewest words that are judged.
        candidates (`Sequence[str]`, *optional*): languages that sentences are identified among, by default the usual
            ones of the script; `()` counts scripts alone.
        name (`str`, *optional*): name in TRL's logs.

    Raises:
        ValueError: For an unknown language, part or column, or a number out of range.

    Source: DeepSeek-R1 (arXiv:2501.12948, section 2.3.2), the proportion of target language words in the chain of
    thought. It does not say how words are counted; we leave formulas, code and names out.

    Example:

    ```python
    >>> LanguageConsistencyReward("zh")(["<think>三个苹果加两个，一共五个。</think>5", "It is five, they say."])
    [1.0, 0.0]

    ```
    """

    default_name = "language_consistency_reward"
    # a text without words says nothing of its language, so it must not undo what other rewards say of it
    neutral_reasons: ClassVar[frozenset[str]] = frozenset({"too_few_words"})

    def __init__(
        self,
        language: str | None = None,
        *,
        column: str = "language",
        part: str = "reasoning",
        threshold: float | None = None,
        min_words: int = 3,
        candidates: Sequence[str] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if part not in PARTS:
            raise ValueError(f"part must be one of {', '.join(map(repr, PARTS))}, not {part!r}")
        number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
        if threshold is not None and not (number and 0 < threshold <= 1):
            raise ValueError(f"threshold must be a share in (0, 1], not {threshold!r}; None gives the share itself")
        self.language = None if language is None else language_code(language)
        self.column = check_name("column", column)
        self.part = part
        self.threshold = threshold
        self.min_words = check_setting("min_words", min_words, 1, whole=True)
        self.candidates = _candidates(candidates)

    def grade(self, batch: Batch) -> list[Grade]:
        """The share of each completion; `None` for too few words and for rows without a known language."""
        return [self._grade(text, language) for text, language in zip(batch.texts, self._languages(batch), strict=True)]

    def _languages(self, batch: Batch) -> list[Any]:
        if self.language is not None:
            return [self.language] * len(batch)
        if self.column != "language":
            return batch.column(self.column, needed_by=self.__name__, argument="column")
        found = batch.optional(self.column)
        return ["en"] * len(batch) if found is None else found

    def _grade(self, text: str, language: Any) -> Grade:
        if language is None or (isinstance(language, str) and not language.strip()):
            return Grade(None, "no_language")
        code = known_language(language)
        if code is None:
            return Grade(None, "unknown_language")
        count = self._words(text, code)
        total = count.own + count.foreign
        if total < self.min_words:
            return Grade(None, "too_few_words") if _is_written(text) else Grade(0.0, "empty")
        share = count.own / total
        if self.threshold is not None:
            return Grade(1.0) if share >= self.threshold else Grade(0.0, "below_threshold")
        return Grade(share, "" if share == 1 else "mixed" if share > 0 else "wrong_language")

    def _words(self, text: str, code: str) -> Count:
        if self.part != "all":
            judged = reasoning(text) if self.part == "reasoning" else after_think(text)
            count = _count(prose_and_hidden(judged), code, self.candidates)
            if count.own + count.foreign >= self.min_words:
                return count
        return _count(prose_and_hidden(text), code, self.candidates)

    def ideal(self, gold: Any) -> str | None:
        """`None`: a gold has no language."""
        return None


def _is_written(text: str) -> bool:
    return bool(INVISIBLE.sub("", TAG.sub("", text)).strip("\x00 \t\r\n"))


language_consistency_reward = LanguageConsistencyReward()
