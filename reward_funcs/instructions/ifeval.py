r"""The 25 constraints of IFEval.

Source: IFEval (arXiv:2311.07911) and its checkers, google-research `instruction_following_eval`. A verdict differs from
theirs where [`reward_funcs.instructions.response`] finds other sentences or tokens than NLTK, where the language is
found by [`reward_funcs.language`] instead of langdetect, and here: a keyword, a section mark and a postscript mark are
taken literally and are no regular expressions; a text without a word is in no language; an argument that is missing is
no random one, but makes the constraint one that cannot be judged.
"""

from __future__ import annotations

import json
import re

from reward_funcs.instructions.kinds import compares, count, kind, language, letter, place, relation, text, texts
from reward_funcs.instructions.response import Response
from reward_funcs.language import word_count

_FEW_WORDS = 5  # in so few words languages of one script are not told apart
# the languages that IFEval asks for, and those that answers in their scripts are most often in instead
_CANDIDATES = "en de fr es it pt nl pl sv tr vi id fi sw ru uk bg sr ar fa ur hi mr ne".split()
_OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_FENCES = ("```json", "```Json", "```JSON", "```")
_DIVIDER = re.compile(r"\*\*\*")
_HIGHLIGHT = re.compile(r"\*[^\n*]*\*")
_BOLD = re.compile(r"\*\*[^\n*]*\*\*")
_POSTSCRIPTS = {"P.S.": re.compile(r"p\.\s?s\."), "P.P.S": re.compile(r"p\.\s?p\.\s?s")}


def is_in_language(written: str, code: str) -> bool:
    """Whether most words of a text are in the language; a text without words is in none.

    Example:

    ```python
    >>> is_in_language("三个苹果加两个，一共五个。", "zh"), is_in_language("12 + 3", "zh")
    (True, False)

    ```
    """
    found = word_count(written, code, candidates=_CANDIDATES)
    if 0 < found.own + found.foreign < _FEW_WORDS:
        found = word_count(written, code, candidates=())
    return found.own > found.foreign


def occurrences(response: Response, keyword: str) -> int:
    """How often a keyword occurs, inside longer words too, whatever the case."""
    return response.lower.count(keyword.lower())


def has_word(response: Response, word: str) -> bool:
    """Whether a word or phrase occurs that is no part of a longer word, whatever the case."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", response.text, re.IGNORECASE) is not None


def num_parts(parts: list[str]) -> int | None:
    """Number of the parts that are not blank; a blank one inside, not at either end, is a fault: `None`."""
    if any(not part.strip() for part in parts[1:-1]):
        return None
    return sum(bool(part.strip()) for part in parts)


# ---- keywords, letters, language


@kind("keywords:existence", keywords=texts)
def existence(response: Response, keywords: tuple[str, ...]) -> bool:
    """Each keyword occurs, inside a longer word too."""
    return all(occurrences(response, keyword) for keyword in keywords)


@kind("keywords:frequency", keyword=text, frequency=count, relation=relation)
def frequency(response: Response, keyword: str, frequency: int, relation: str) -> bool:
    """The keyword occurs at least, or less than, so many times, inside longer words too."""
    return compares(occurrences(response, keyword), relation, frequency)


@kind("keywords:forbidden_words", forbidden_words=texts)
def no_forbidden_words(response: Response, forbidden_words: tuple[str, ...]) -> bool:
    """None of the words occurs as a whole word."""
    return not any(has_word(response, word) for word in forbidden_words)


@kind(
    "keywords:letter_frequency", "letters:letter_counting2", letter=letter, let_frequency=count, let_relation=relation
)
def letter_frequency(response: Response, letter: str, let_frequency: int, let_relation: str) -> bool:
    """The letter, or another character, occurs at least or less than so many times, whatever the case."""
    return compares(response.lower.count(letter), let_relation, let_frequency)


@kind("language:response_language", language=language)
def response_language(response: Response, language: str) -> bool:
    """Most words are in the language."""
    return is_in_language(response.text, language)


# ---- lengths


@kind("length_constraints:number_sentences", num_sentences=count, relation=relation)
def number_sentences(response: Response, num_sentences: int, relation: str) -> bool:
    """At least, or less than, so many sentences."""
    return compares(len(response.sentences), relation, num_sentences)


@kind("length_constraints:number_words", num_words=count, relation=relation)
def number_words(response: Response, num_words: int, relation: str) -> bool:
    """At least, or less than, so many words; a hyphen separates two."""
    return compares(response.num_words, relation, num_words)


@kind("length_constraints:number_paragraphs", num_paragraphs=count)
def number_paragraphs(response: Response, num_paragraphs: int) -> bool:
    """Exactly so many paragraphs with `***` between them; one at either end is let pass, two in a row are not."""
    return num_parts(_DIVIDER.split(response.text)) == num_paragraphs


@kind(
    "length_constraints:nth_paragraph_first_word",
    num_paragraphs=count,
    nth_paragraph=place,
    first_word=text,
)
def nth_paragraph_first_word(response: Response, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Exactly so many paragraphs with an empty line between them, and the n-th begins with the word."""
    paragraphs = response.text.split("\n\n")
    if sum(bool(paragraph.strip()) for paragraph in paragraphs) != num_paragraphs or nth_paragraph > num_paragraphs:
        return False
    words = paragraphs[nth_paragraph - 1].split(None, 1)
    if not words:
        return False
    word = re.split("[.,?!'\"]", words[0].lstrip("'").lstrip('"'), maxsplit=1)[0]
    return word.lower() == first_word.lower()


# ---- content and format that can be detected


def num_bracketed(written: str) -> int:
    """Number of `[...]` on one line each; what never closes is none."""
    found = 0
    for line in written.split("\n"):
        at = line.find("[")
        while at >= 0:
            close = line.find("]", at)
            if close < 0:
                break
            found, at = found + 1, line.find("[", close)
    return found


@kind("detectable_content:number_placeholders", num_placeholders=count)
def number_placeholders(response: Response, num_placeholders: int) -> bool:
    """At least so many placeholders such as `[address]`."""
    return num_bracketed(response.text) >= num_placeholders


@kind("detectable_content:postscript", postscript_marker=text)
def postscript(response: Response, postscript_marker: str) -> bool:
    """The mark of a postscript occurs, whatever the case; for `P.S.` and `P.P.S` with spaces inside, too."""
    pattern = _POSTSCRIPTS.get(postscript_marker)
    if pattern is None:
        return postscript_marker.lower() in response.lower
    return pattern.search(response.lower) is not None


@kind("detectable_format:number_bullet_lists", num_bullets=count)
def number_bullet_lists(response: Response, num_bullets: int) -> bool:
    """Exactly so many lines that begin with `-`, or with one `*` and something else behind it."""
    lines = [line.lstrip() for line in response.lines]
    return sum(line[0] == "-" or (line[0] == "*" and line[1:2] not in ("", "*")) for line in lines) == num_bullets


@kind("detectable_format:constrained_response")
def constrained_response(response: Response) -> bool:
    """One of the three fixed answers occurs: `My answer is yes.`, `... no.`, `... maybe.`"""
    return any(option in response.text for option in _OPTIONS)


@kind("detectable_format:number_highlighted_sections", num_highlights=count)
def number_highlighted_sections(response: Response, num_highlights: int) -> bool:
    """At least so many pieces within a line in `*...*` or `**...**` that hold more than white space."""
    found = [*_HIGHLIGHT.findall(response.text), *_BOLD.findall(response.text)]
    return sum(bool(piece.strip("*").strip()) for piece in found) >= num_highlights


@kind("detectable_format:multiple_sections", section_spliter=text, num_sections=count)
def multiple_sections(response: Response, section_spliter: str, num_sections: int) -> bool:
    """At least so many section marks, each with a number behind it: `Section 1`."""
    return len(re.findall(rf"{re.escape(section_spliter)}\s?\d", response.text)) >= num_sections


@kind("detectable_format:json_format")
def json_format(response: Response) -> bool:
    """The whole response is JSON, in a code block or bare; what is nested too deep to be read is none."""
    content = response.stripped
    for fence in _FENCES:
        content = content.removeprefix(fence)
    try:
        json.loads(content.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


@kind("detectable_format:title")
def title(response: Response) -> bool:
    """A title in double angular brackets stands on one line: `<<poem of joy>>`."""
    for line in response.lines:
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start < end - 2 and line[start : end + 2].lstrip("<").rstrip(">").strip():
            return True
    return False


# ---- combinations, start and end


@kind("combination:two_responses")
def two_responses(response: Response) -> bool:
    """Two different responses with `******` between them; one at either end is let pass."""
    parts = response.text.split("******")
    written = [part.strip() for part in parts if part.strip()]
    return num_parts(parts) == 2 and written[0] != written[1]


@kind("combination:repeat_prompt", prompt_to_repeat=text)
def repeat_prompt(response: Response, prompt_to_repeat: str) -> bool:
    """The response begins with the request, whatever the case."""
    return response.stripped.lower().startswith(prompt_to_repeat.lower())


@kind("startend:end_checker", end_phrase=text)
def end_phrase(response: Response, end_phrase: str) -> bool:
    """The response ends with the phrase, whatever the case; double quotes around the whole are let pass."""
    return response.stripped.strip('"').lower().endswith(end_phrase.lower())


@kind("startend:quotation")
def quotation(response: Response) -> bool:
    """Straight double quotes stand around the whole response."""
    return len(response.stripped) > 1 and response.stripped[0] == '"' == response.stripped[-1]


# ---- case and punctuation


@kind("change_case:capital_word_frequency", capital_frequency=count, capital_relation=relation)
def capital_word_frequency(response: Response, capital_frequency: int, capital_relation: str) -> bool:
    """At least, or less than, so many words in capitals alone; a word with hyphens is one, and so is `I`."""
    return compares(sum(token.isupper() for token in response.tokens), capital_relation, capital_frequency)


@kind("change_case:english_capital")
def english_capital(response: Response) -> bool:
    """In English, without a small letter."""
    # the model that tells languages apart was trained on small letters
    return response.text.isupper() and is_in_language(response.lower, "en")


@kind("change_case:english_lowercase")
def english_lowercase(response: Response) -> bool:
    """In English, without a capital letter."""
    return response.text.islower() and is_in_language(response.text, "en")


@kind("punctuation:no_comma")
def no_comma(response: Response) -> bool:
    """No comma."""
    return "," not in response.text
