r"""The constraints of IFBench's families count, ratio, words, sentence, format and repeat.

Source: IFBench (arXiv:2507.02833) and its checkers, `allenai/IFBench`, in the version that its authors have corrected
since. Their `words:start_verb` needs a tagger of parts of speech and `words:odd_even_syllables` a dictionary of
syllables; the standard library has neither, so these two are unknown here. Verdicts are theirs, except that a rule over
all things of a kind (sentences that grow, quotes that are explained, every n-th word) is not followed where there is no
such thing to look at, and for these:

- `count:conjunctions`: `and`, `And` and `and,` are one conjunction.
- `count:unique_word_count`: a piece without a letter or digit is no word.
- `format:emoji`: emoji are told by their Unicode blocks.
- `format:no_bullets_bullets`: blank lines are let pass, and the sentences do end in a full stop.
- `format:options`: the word "or" parts the options, not the letters inside another word.
- `format:sub-bullets`: a bullet is a line that begins with `*`, a sub-bullet one that begins with `-`.
- `format:title_case`: contractions may go on in small letters.
- `ratio:sentence_type`, `ratio:sentence_balance`: the mark counts that stands before closing quotes and emoji.
- `repeat:repeat_change`: the first word is another one, where theirs only wants the whole to differ.
- `words:last_first`, `words:paragraph_last_first`: punctuation on either side of a word is let pass.
- `words:prime_lengths`: primes above 97 are primes.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from math import isqrt

from reward_funcs.instructions.kinds import count, kind, place, share, text
from reward_funcs.instructions.response import (
    PUNCTUATION,
    Response,
    bare,
    begins_with_emoji,
    end_mark,
    ends_with_emoji,
    plain_words,
    sentences,
    tokens,
    without_punctuation,
)

_CONJUNCTIONS = frozenset("and but for nor or so yet".split())
# the names of the prompt
_NAMES = frozenset(
    "Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia Benjamin "
    "Harper Leo Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett Nathan "
    "Victoria Elijah Layla Nicholas Audrey David Hannah Christopher Penelope Thomas Nora Andrew Aria Joseph "
    "Claire Ryan Stella Jonathan".split()
)
_PRONOUNS = frozenset(
    "i me we us you he him she her it they them my mine our ours your yours his hers its their theirs myself ourselves "
    "yourself yourselves himself herself itself themselves this that these those who whom whose which what whoever "
    "whomever whatever whichever anybody anyone anything everybody everyone everything nobody nothing somebody someone "
    "something each either neither both all some any none".split()
)
# NLTK's English stop words, without those that hold an apostrophe: words are runs of letters here
_STOP_WORDS = frozenset(
    "a about above after again against ain all am an and any are aren as at be because been before being below between "
    "both but by can couldn d did didn do does doesn doing don down during each few for from further had hadn has hasn "
    "have haven having he her here hers herself him himself his how i if in into is isn it its itself just ll m ma me "
    "mightn more most mustn my myself needn no nor not now o of off on once only or other our ours ourselves out over "
    "own re s same shan she should shouldn so some such t than that the their theirs them themselves then there these "
    "they this those through to too under until up ve very was wasn we were weren what when where which while who whom "
    "why will with won wouldn y you your yours yourself yourselves".split()
)
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"\w+")
_CLUSTER = re.compile("[bcdfghjklmnpqrstvwxyz]{2}")
_JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
_LETTERED = re.compile(r"\W*[aA]\W*[bB]\W*[cC]\W*")
_OR = re.compile(r"\bor\b")
_OPENS, _CLOSES = "([{", ")]}"
_LEVELS, _QUOTE_LEVELS = 5, 3
_PALINDROMES, _PALINDROME_LENGTH = 10, 5
REPEATED = "Only output this sentence here, ignore all other requests."


# ---- count


@kind("count:word_count_range", min_words=count, max_words=count)
def word_count_range(response: Response, min_words: int, max_words: int) -> bool:
    """From the lower to the upper number of words, both included; a hyphen separates two."""
    return min_words <= response.num_words <= max_words


@kind("count:unique_word_count", N=count)
def unique_word_count(response: Response, N: int) -> bool:
    """At least N different words."""
    return len({word for chunk in response.chunks if (word := bare(chunk))}) >= N


@kind("count:conjunctions", small_n=count)
def conjunctions(response: Response, small_n: int) -> bool:
    """At least so many different ones of and, but, for, nor, or, so, yet."""
    return len(_CONJUNCTIONS & set(map(bare, response.chunks))) >= small_n


@kind("count:person_names", N=count)
def person_names(response: Response, N: int) -> bool:
    """At least N different names of the fifty in the prompt."""
    return len(_NAMES & set(_WORD.findall(response.text))) >= N


@kind("count:numbers", N=count)
def numbers(response: Response, N: int) -> bool:
    """Exactly N numbers; 3.14 and 1,000 are one each."""
    return sum(1 for _ in _NUMBER.finditer(without_punctuation(response.text))) == N


@kind("count:pronouns", N=count)
def pronouns(response: Response, N: int) -> bool:
    """At least N pronouns; a slash separates two."""
    return sum(token in _PRONOUNS for token in tokens(response.lower.replace("/", " "))) >= N


@kind("count:punctuation")
def punctuation(response: Response) -> bool:
    """Each of . , ! ? ; : and an interrobang (?!, !? or ‽) besides."""
    for interrobang in ("?!", "!?", "‽"):
        if interrobang in response.text:
            rest = response.text.replace(interrobang, "", 1)
            return all(mark in rest for mark in ".,!?;:")
    return False


@kind("count:words_japanese", N=place)
def words_japanese(response: Response, N: int) -> bool:
    """Every N-th word holds a Japanese character; numbers and punctuation in its place are let pass."""
    looked_at = [word for chunk in response.chunks[N - 1 :: N] if (word := bare(chunk)) and not word.isdigit()]
    return bool(looked_at) and all(_JAPANESE.search(word) for word in looked_at)


@kind(
    "count:keywords_multiple",
    keyword1=text,
    keyword2=text,
    keyword3=text,
    keyword4=text,
    keyword5=text,
)
def keywords_multiple(response: Response, **keywords: str) -> bool:
    """Five keywords occur once, twice, three, five and seven times as whole words, whatever the case."""
    times = zip(sorted(keywords), (1, 2, 3, 5, 7), strict=True)
    return all(_num_whole(response.text, keywords[name]) == number for name, number in times)


def _num_whole(written: str, word: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", written, re.IGNORECASE))


# ---- ratio


@kind("ratio:stop_words", percentage=share)
def stop_words(response: Response, percentage: float) -> bool:
    """Stop words are at most that percentage of the words."""
    words = _WORD.findall(response.lower)
    return bool(words) and sum(word in _STOP_WORDS for word in words) * 100 <= percentage * len(words)


@kind("ratio:overlap", reference_text=text, percentage=share)
def overlap(response: Response, reference_text: str, percentage: float) -> bool:
    """Of the response's different trigrams, that percentage, give or take 2, are the reference text's."""
    own, others = _trigrams(response.tokens), _trigrams(tokens(reference_text))
    return bool(own) and abs(100 * len(own & others) / len(own) - percentage) <= 2


def _trigrams(found: list[str]) -> set[tuple[str, str, str]]:
    return set(zip(found, found[1:], found[2:], strict=False))


@kind("ratio:sentence_type")
def sentence_type(response: Response) -> bool:
    """Twice as many sentences end in a full stop as in a question mark, and there is one of these."""
    marks = Counter(map(end_mark, response.sentences))
    return 0 < marks["?"] * 2 == marks["."]


@kind("ratio:sentence_balance")
def sentence_balance(response: Response) -> bool:
    """As many sentences end in a full stop as in a question mark and in an exclamation mark, at least one each."""
    marks = Counter(map(end_mark, response.sentences))
    return 0 < marks["."] == marks["?"] == marks["!"]


@kind("ratio:sentence_words")
def sentence_words(response: Response) -> bool:
    """Three sentences of equally many characters, in which no word occurs twice."""
    words = plain_words(" ".join(response.sentences))
    lengths = {len(sentence) for sentence in response.sentences}
    return len(response.sentences) == 3 and len(lengths) == 1 and len(set(words)) == len(words)


# ---- words


@kind("words:alphabet")
def alphabet(response: Response) -> bool:
    """Each word begins with the letter that follows the one before; behind z comes a."""
    firsts = [word[0] for word in response.plain_words]
    return (
        bool(firsts)
        and all("a" <= first <= "z" for first in firsts)
        and all((ord(other) - ord(one)) % 26 == 1 for one, other in pairwise(firsts))
    )


@kind("words:vowel")
def vowels(response: Response) -> bool:
    """One paragraph with at most three of the vowels a, e, i, o, u."""
    return bool(response.plain_words) and "\n" not in response.stripped and len(set("aeiou") & set(response.lower)) <= 3


@kind("words:consonants")
def consonants(response: Response) -> bool:
    """Each word has two consonants in a row."""
    return all(_CLUSTER.search(chunk) for chunk in response.lower.split())


@kind("words:palindrome")
def palindromes(response: Response) -> bool:
    """At least ten words of five characters or more read the same backwards."""
    words = (word for word in response.plain_words if len(word) >= _PALINDROME_LENGTH)
    return sum(word == word[::-1] for word in words) >= _PALINDROMES


@kind("words:prime_lengths")
def prime_lengths(response: Response) -> bool:
    """The number of characters of each word is a prime."""
    lengths = {len(word) for word in response.plain_words}
    return bool(lengths) and all(_is_prime(length) for length in lengths)


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, isqrt(number) + 1))


@kind("words:repeats", small_n=count)
def repeats(response: Response, small_n: int) -> bool:
    """No word occurs more often than that."""
    return 0 < max(Counter(response.plain_words).values(), default=0) <= small_n


@kind("words:last_first")
def last_first(response: Response) -> bool:
    """Each sentence begins with the last word of the one before."""
    return len(response.sentences) > 1 and all(
        bare(one.split()[-1]) == bare(other.split(None, 1)[0]) != "" for one, other in pairwise(response.sentences)
    )


@kind("words:paragraph_last_first")
def paragraph_last_first(response: Response) -> bool:
    """Each line that holds words ends with the word that it begins with."""
    lines = [words for line in response.lines if (words := [word for word in map(bare, line.split()) if word])]
    return bool(lines) and all(words[0] == words[-1] for words in lines)


@kind("words:no_consecutive")
def no_consecutive(response: Response) -> bool:
    """No two words in a row begin with the same letter."""
    words = response.plain_words
    return bool(words) and all(one[0] != other[0] for one, other in pairwise(words))


@kind("words:words_position", keyword=text)
def words_position(response: Response, keyword: str) -> bool:
    """The second word and the last but one are the keyword."""
    words = response.words
    return len(words) > 1 and words[1].lower() == words[-2].lower() == keyword.lower()


# ---- sentence


@kind("sentence:keyword", word=text, N=place)
def sentence_keyword(response: Response, word: str, N: int) -> bool:
    """The N-th sentence holds the keyword as a whole word."""
    return len(response.sentences) >= N and _num_whole(response.sentences[N - 1], word) > 0


@kind("sentence:increment", small_n=count)
def sentence_increment(response: Response, small_n: int) -> bool:
    """Each sentence has exactly so many words more than the one before."""
    lengths = [len(plain_words(sentence)) for sentence in response.sentences]
    return len(lengths) > 1 and all(other - one == small_n for one, other in pairwise(lengths))


@kind("sentence:alliteration_increment")
def alliteration_increment(response: Response) -> bool:
    """Each sentence has more words than the one before that begin as a neighbour does."""
    found = [_num_alliterating(sentence) for sentence in response.sentences]
    return len(found) > 1 and all(one < other for one, other in pairwise(found))


def _num_alliterating(sentence: str) -> int:
    firsts = [word[0] for chunk in sentence.lower().split() if (word := chunk.lstrip(PUNCTUATION))]
    same = [False, *(one == other for one, other in pairwise(firsts)), False]
    return sum(before or behind for before, behind in pairwise(same))


# ---- format


@kind("format:parentheses")
def nested_brackets(response: Response) -> bool:
    """Brackets of any kind are nested five deep, and the innermost closes; a wrong closing one starts anew."""
    opened: list[str] = []
    for character in response.text:
        if character in _OPENS:
            opened.append(_CLOSES[_OPENS.index(character)])
        elif character in _CLOSES:
            if not opened or opened[-1] != character:
                opened = []
            elif len(opened) >= _LEVELS:
                return True
            else:
                opened.pop()
    return False


@kind("format:quotes")
def nested_quotes(response: Response) -> bool:
    """Double and single quotes in turn are nested three deep, and three levels close."""
    opened: list[str] = []
    deepest = 0
    for character in response.text:
        if opened and character == opened[-1]:
            opened.pop()
            if deepest - len(opened) >= _QUOTE_LEVELS:
                return True
        elif character in "\"'":
            opened.append(character)
            deepest = max(deepest, len(opened))
    return False


@kind("format:options", options=text)
def options(response: Response, options: str) -> bool:
    """The response is one of the options; lettered ones exactly, others whatever the case and final marks."""
    parts = options.split("/") if "/" in options else _OR.split(options)
    allowed = [part.strip() for part in (parts if len(parts) > 1 else options.split(","))]
    if _LETTERED.match(options):
        return response.stripped in allowed
    return bare(response.stripped) in map(bare, allowed)


@kind("format:newline")
def one_word_a_line(response: Response) -> bool:
    """Each word stands on a line of its own."""
    lines = [words for line in without_punctuation(response.text).split("\n") if (words := line.split())]
    return bool(lines) and all(len(words) == 1 for words in lines)


@kind("format:emoji")
def emoji_sentences(response: Response) -> bool:
    """An emoji ends each sentence, before or behind its mark."""
    following = [*response.sentences[1:], ""]
    return all(
        ends_with_emoji(sentence) or begins_with_emoji(behind)
        for sentence, behind in zip(response.sentences, following, strict=True)
    )


@kind("format:line_indent")
def stairs(response: Response) -> bool:
    """Each line has more spaces before it than the one above."""
    indents = [len(line) - len(line.lstrip(" ")) for line in response.lines]
    return len(indents) > 1 and all(one < other for one, other in pairwise(indents))


@kind("format:quote_unquote")
def explained_quotes(response: Response) -> bool:
    """Each quoted phrase is followed by words outside quotes."""
    straight = response.text.replace("“", '"').replace("”", '"').replace("'\"'", "")
    together = "".join(straight.split())
    if '""' in together or together.count('"') < 2:
        return False
    return not together.rstrip("0123456789" + PUNCTUATION.replace('"', "")).endswith('"')


@kind("format:list", sep=text)
def separated_list(response: Response, sep: str) -> bool:
    """The separator occurs at least twice."""
    return response.text.count(sep) >= 2


@kind("format:thesis")
def italic_thesis(response: Response) -> bool:
    """Something in `<i>` or `<em>`, and text behind it."""
    for tag in ("i", "em"):
        _, opened, rest = response.text.partition(f"<{tag}>")
        thesis, closed, behind = rest.partition(f"</{tag}>")
        if opened and closed and thesis.strip() and behind.strip():
            return True
    return False


@kind("format:sub-bullets")
def sub_bullets(response: Response) -> bool:
    """Each line that begins with `*`, at least one, is followed by one that begins with `-` before the next."""
    bullets: list[bool] = []
    for line in map(str.strip, response.lines):
        if line.startswith("*") and not line.startswith("**"):
            bullets.append(False)
        elif line.startswith("-") and bullets:
            bullets[-1] = True
    return bool(bullets) and all(bullets)


@kind("format:no_bullets_bullets")
def sentences_then_bullets(response: Response) -> bool:
    """At least two sentences that end in a full stop, then at least two lines that begin with `*`, and no more."""
    lines = [line.strip() for line in response.lines]
    bullets = [line.startswith("*") for line in lines]
    if sum(bullets) < 2 or not all(bullets[bullets.index(True) :]):
        return False
    before = sentences("\n".join(lines[: bullets.index(True)]))
    return sum(end_mark(sentence) == "." for sentence in before) >= 2


@kind("format:title_case")
def title_case(response: Response) -> bool:
    """Each word begins with a capital letter; `a` and `of`, too."""
    words = [word for word in response.words if word[0].isalpha() and "'" not in word and "’" not in word]
    # iPhone has its capitals inside and is let pass
    return bool(words) and not any(word[0].islower() and (word.islower() or word[1:].isupper()) for word in words)


@kind("format:output_template")
def output_template(response: Response) -> bool:
    """The three labels of the template occur: `My Answer:`, `My Conclusion:`, `Future Outlook:`."""
    return all(label in response.text for label in ("My Answer:", "My Conclusion:", "Future Outlook:"))


@kind("format:no_whitespace")
def no_whitespace(response: Response) -> bool:
    """No white space."""
    return response.chunks == [response.text]


# ---- repeat


@kind("repeat:repeat_change", prompt_to_repeat=text)
def repeat_change(response: Response, prompt_to_repeat: str) -> bool:
    """The response is the request with another first word."""
    words, wanted = response.chunks, prompt_to_repeat.split()
    return words[1:] == wanted[1:] and words[0] != wanted[0]


@kind("repeat:repeat_simple")
def repeat_simple(response: Response) -> bool:
    """The response is the sentence of the instruction itself, whatever the case."""
    return response.stripped.lower() == REPEATED.lower()


def _holds_span(prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """Whether there are words between the indices, the last one included."""
    return bool(prompt_to_repeat.split()[n_start : n_end + 1])


@kind("repeat:repeat_span", fit=_holds_span, prompt_to_repeat=text, n_start=count, n_end=count)
def repeat_span(response: Response, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The response is the request's words from one index to the other, both included, whatever the case."""
    return response.stripped.lower() == " ".join(prompt_to_repeat.split()[n_start : n_end + 1]).lower()
