"""Unicode scripts of the world's languages: which language is written in which, and the words of each in a text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

# Letters and the marks that combine with them, as first and last code points; digits and punctuation are left out.
RANGES = {
    "latin": "41-5a 61-7a c0-d6 d8-f6 f8-2af 1e00-1eff 24b6-24e9 2c60-2c7f a720-a7ff fb00-fb06 ff21-ff3a "
    "ff41-ff5a 1d400-1d7cb",
    "greek": "370-373 376-377 37b-37d 37f-386 388-3ff 1f00-1fff",
    "cyrillic": "400-481 483-52f 1c80-1c8f 2de0-2dff a640-a69f",
    "armenian": "531-556 560-588",
    "hebrew": "591-5bd 5bf 5c1-5c2 5c4-5c5 5c7 5d0-5f2 fb1d-fb4f",
    "arabic": "610-61a 620-65f 66e-6d3 6d5-6dc 6df-6e8 6ea-6ef 6fa-6ff 750-77f 870-8ff fb50-fdff fe70-fefc",
    "devanagari": "900-963 971-97f a8e0-a8ff",
    "bengali": "980-9e5 9f0-9ff",
    "gurmukhi": "a01-a65 a70-a7f",
    "gujarati": "a81-ae5 af0-aff",
    "odia": "b01-b65 b70-b7f",
    "tamil": "b80-be5 bf0-bff",
    "telugu": "c00-c65 c70-c7f",
    "kannada": "c80-ce5 cf0-cff",
    "malayalam": "d00-d65 d70-d7f",
    "sinhala": "d80-de5 df2-df3",
    "thai": "e01-e3a e40-e4e",
    "lao": "e81-ecf edc-edf",
    "tibetan": "f40-fbc",
    "myanmar": "1000-103f 1050-109f a9e0-a9ef aa60-aa7f",
    "georgian": "10a0-10ff 1c90-1cbf 2d00-2d2f",
    "hangul": "1100-115e 1161-11ff 3131-318e a960-a97f ac00-d7ff ffa1-ffdc",
    "ethiopic": "1200-135f 1380-139f 2d80-2ddf",
    "khmer": "1780-17b3 17b6-17d3",
    "kana": "3041-309f 30a1-30fa 30fc-30ff 31f0-31ff ff66-ff9f 1b000-1b16f",
    "han": "3005-3007 3400-4dbf 4e00-9fff f900-faff 20000-323af",
}
# ISO 639-1 code and English name of the languages written in each script
LANGUAGES = {
    "latin": "en English de German fr French es Spanish it Italian pt Portuguese nl Dutch pl Polish sv Swedish "
    "tr Turkish vi Vietnamese id Indonesian af Afrikaans az Azerbaijani bs Bosnian ca Catalan cs Czech cy Welsh "
    "da Danish eo Esperanto et Estonian eu Basque fi Finnish ga Irish gl Galician ha Hausa hr Croatian hu Hungarian "
    "is Icelandic la Latin lt Lithuanian lv Latvian ms Malay mt Maltese no Norwegian ro Romanian sk Slovak "
    "sl Slovenian so Somali sq Albanian sw Swahili tl Tagalog uz Uzbek xh Xhosa yo Yoruba zu Zulu",
    "cyrillic": "ru Russian uk Ukrainian bg Bulgarian sr Serbian be Belarusian kk Kazakh ky Kyrgyz mk Macedonian "
    "mn Mongolian tg Tajik",
    "arabic": "ar Arabic fa Persian ur Urdu ps Pashto ug Uyghur",
    "devanagari": "hi Hindi mr Marathi ne Nepali",
    "bengali": "bn Bengali as Assamese",
    "han": "zh Chinese",
    "kana": "ja Japanese",
    "hangul": "ko Korean",
    "greek": "el Greek",
    "armenian": "hy Armenian",
    "hebrew": "he Hebrew",
    "gurmukhi": "pa Punjabi",
    "gujarati": "gu Gujarati",
    "odia": "or Odia",
    "tamil": "ta Tamil",
    "telugu": "te Telugu",
    "kannada": "kn Kannada",
    "malayalam": "ml Malayalam",
    "sinhala": "si Sinhala",
    "thai": "th Thai",
    "lao": "lo Lao",
    "tibetan": "bo Tibetan",
    "myanmar": "my Burmese",
    "georgian": "ka Georgian",
    "ethiopic": "am Amharic",
    "khmer": "km Khmer",
}
SCRIPT_OF = {code: script for script, names in LANGUAGES.items() for code in names.split()[::2]}
_CODE_OF = {
    name.lower(): code
    for names in LANGUAGES.values()
    for code, name in zip(names.split()[::2], names.split()[1::2], strict=True)
}
_CODE_OF |= {code: code for code in SCRIPT_OF}
_CODE_OF |= {"mandarin": "zh", "cmn": "zh", "nb": "no", "nn": "no", "iw": "he", "in": "id", "farsi": "fa", "fil": "tl"}
# Scripts without spaces: characters that say as much as one word of English. Han, kana and Thai are counted on the
# parallel sentences of benchmarks/bench_language.py; the others are set from their likeness to Thai.
CHARACTERS_A_WORD = {"han": 1.5, "kana": 2.6, "thai": 4.2, "lao": 4.2, "khmer": 5.0, "myanmar": 5.0}

_ACCENTS = "\u0300-\u036f"  # as characters of their own
LONG_WORD, _MEAN_WORD = 32, 6  # letters


def _class(*names: str) -> str:
    spans = [span.split("-") for script in names for span in RANGES[script].split()]
    return "".join("-".join(rf"\U{int(end, 16):08x}" for end in span) for span in spans)


LATIN, GREEK, CYRILLIC = (_class(script) for script in ("latin", "greek", "cyrillic"))
LATIN_WORD = f"[{LATIN}][{LATIN}{_ACCENTS}]*"
WORDS = {script: re.compile(f"[{_class(script)}]+") for script in RANGES}
WORDS["cyrillic"] = re.compile(f"[{CYRILLIC}][{CYRILLIC}{_ACCENTS}]*")
# one letter of Latin or Greek is a variable, unless it is é or à
WORDS["latin"] = re.compile(f"[{LATIN}][{LATIN}{_ACCENTS}]+|[\u00df-\u00ff]")
WORDS["greek"] = re.compile(f"[{GREEK}][{GREEK}{_ACCENTS}]+")
_OTHER_WORDS = re.compile(r"[^\W\d_]+")
_MIXED = re.compile(f"[{LATIN}][{_ACCENTS}]*[{CYRILLIC}]|[{CYRILLIC}][{_ACCENTS}]*[{LATIN}]")
_MIXABLE_WORDS = re.compile(f"[{LATIN}{CYRILLIC}{_ACCENTS}]+")
_STARTS, _ENDS, _NAMES = zip(
    *sorted(
        (int(span.split("-")[0], 16), int(span.split("-")[-1], 16), script)
        for script, spans in RANGES.items()
        for span in spans.split()
    ),
    strict=True,
)
# letters in use as symbols: ª µ º, modifiers, superscripts, Letterlike Symbols
_SYMBOLS = re.compile("[\u00aa\u00b5\u00ba\u02b0-\u02ff\u1d00-\u1dbf\u2070-\u209f\u2100-\u214f]")


@lru_cache(maxsize=65536)
def script_of(char: str) -> str | None:
    """Script of a letter, `"other"` for a letter of a script without a language here, `None` for no letter."""
    index = bisect_right(_STARTS, ord(char)) - 1
    if index >= 0 and ord(char) <= _ENDS[index]:
        return str(_NAMES[index])
    return "other" if char.isalpha() and not _SYMBOLS.match(char) else None


def scripts_in(text: str) -> set[str]:
    """Scripts of the letters of a text; an ASCII text is taken for Latin."""
    if text.isascii():
        return {"latin"}
    return {script for script in set(map(script_of, set(text))) if script is not None}


def known_language(language: object) -> str | None:
    """ISO 639-1 code of a language given as a code, with or without a region, or by its English name, if known.

    Example:

    ```python
    >>> known_language("zh-CN"), known_language("German"), known_language("Klingon")
    ('zh', 'de', None)

    ```
    """
    return _CODE_OF.get(_key(language))


def _key(language: object) -> str:
    return re.split("[-_]", language.strip().lower(), maxsplit=1)[0] if isinstance(language, str) else ""


def language_code(language: object, argument: str = "language") -> str:
    """[`known_language`] of an argument.

    Raises:
        ValueError: Where it is not known, with the closest that is.
    """
    code = known_language(language)
    if code is not None:
        return code
    import difflib

    close = difflib.get_close_matches(_key(language)[:40], _CODE_OF, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"the codes are {', '.join(sorted(SCRIPT_OF))}"
    raise ValueError(
        f"{argument} must be an ISO 639-1 code such as 'en' or 'zh-CN', or an English name such as 'German', "
        f"not {language!r:.60}; {hint}"
    )


def num_words(words: Sequence[str]) -> float:
    """Number of words; one longer than 32 letters counts as one for every 6, or spaces could be left out for a gain."""
    if max(map(len, words), default=0) <= LONG_WORD:
        return len(words)
    return sum(len(word) / _MEAN_WORD if len(word) > LONG_WORD else 1 for word in words)


def num_script_words(text: str, script: str) -> float:
    """Words of a text in a script, by its spaces or, where it has none, by its characters."""
    if script == "other":
        return num_words([word for word in _OTHER_WORDS.findall(text) if script_of(word[0]) == "other"])
    words = WORDS[script].findall(text)
    if script in CHARACTERS_A_WORD:
        return len("".join(words)) / CHARACTERS_A_WORD[script]
    return num_words(words)


def without_mixed_words(text: str) -> tuple[str, float]:
    """The text without words of both Latin and Cyrillic letters, many of which look alike, and how many those were."""
    if not _MIXED.search(text):
        return text, 0.0
    mixed = {word for word in _MIXABLE_WORDS.findall(text) if _MIXED.search(word)}
    count = num_words([word for word in _MIXABLE_WORDS.findall(text) if word in mixed])
    return _MIXABLE_WORDS.sub(lambda match: " " if match[0] in mixed else match[0], text), count
