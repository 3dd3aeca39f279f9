r"""The 29 further constraints of IF-RLVR, the training set of IFBench (`allenai/IF_multi_constraints_upto5`).

Source: IFBench (arXiv:2507.02833) and the checkers that its authors train with, open-instruct's `IFEvalG`. Verdicts are
theirs except where theirs contradict the sentence that the model is given, or pay for what it does not ask:

- `copy:repeat_phrase`: each repetition has one other word inside, where theirs looks at the last alone.
- `count:count_unique`, `count:counting_composition`, `keywords:keyword_specific_position`, `keywords:start_end`: words
  are counted, and punctuation marks are no words; case counts nowhere.
- `count:counting_composition`: the divider is `* * *`, as the sentence says, or `***`, as their checker wants.
- `detectable_format:bigram_wrapping`: a last word without a partner is wrapped by itself.
- `detectable_format:sentence_hyphens`: no further hyphen stands at the end.
- `detectable_format:square_brackets`: there is something in the brackets.
- `first_word:*`: punctuation around the word is let pass, as theirs does for `last_word:*`.
- `keywords:exclude_word_harder`: the word must not occur as a word; theirs misses it next to punctuation.
- `keywords:no_adjacent_consecutive`: punctuation before a word is not its first letter, and only letters are compared.
- `keywords:palindrome`: three letters at least, or every `a` would be one; case and punctuation around it do not count.
- `keywords:word_count_different_numbers`: exactly so often where the gold has no relation.
- `new:copy_span_idx`: the last index may be within the span, as the sentence says, or not, as their checker wants.
"""

from __future__ import annotations

import re
from itertools import pairwise

from reward_funcs.instructions.ifeval import has_word, num_parts, number_paragraphs, occurrences
from reward_funcs.instructions.kinds import compares, count, kind, place, relation, relation_or_equal, text, whole_text
from reward_funcs.instructions.response import Response, bare, sentences, tokens, words_of

_LETTERS = re.compile(r"[a-zA-Z]")
_SMALL_WORD = re.compile(r"\b[a-z]+\b")
_NO_WORD = re.compile(r"[^\w\s]")
_PARAGRAPH_DIVIDER = re.compile(r"\* ?\* ?\*")
_SHORTEST_PALINDROME = 3


# ---- copying


@kind("copy:copy", "copy:copying_simple", prompt_to_repeat=text)
def copy(response: Response, prompt_to_repeat: str) -> bool:
    """The response is the request, whatever the case."""
    return response.stripped.lower() == prompt_to_repeat.lower()


@kind("copy:copying_multiple", prompt_to_repeat=text, N=place)
def copying_multiple(response: Response, prompt_to_repeat: str, N: int) -> bool:
    """The response is the request N times with `******` between, whatever the case."""
    parts = response.lower.split("******")
    return len(parts) == N and all(part.strip() == prompt_to_repeat.lower() for part in parts)


def _holds_span(prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """Whether there is something between the indices, the last one included."""
    return bool(prompt_to_repeat[n_start : n_end + 1].strip())


@kind("new:copy_span_idx", fit=_holds_span, prompt_to_repeat=whole_text, n_start=count, n_end=count)
def copy_span(response: Response, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The response is the request's characters from one index to the other, whatever the case."""
    spans = (prompt_to_repeat[n_start:end].strip().lower() for end in (n_end, n_end + 1))
    return response.stripped.lower() in spans


@kind("copy:repeat_phrase", phrase=text, small_n=count)
def repeat_phrase(response: Response, phrase: str, small_n: int) -> bool:
    """The phrase occurs exactly so many times, each time with one other word inside."""
    wanted = phrase.split()
    found = _framed(response.text, f"{wanted[0]} ", f" {wanted[-1]}")
    return len(found) == small_n and all(_num_differences(one.split(), wanted) == 1 for one in found)


def _framed(written: str, first: str, last: str) -> list[str]:
    """What begins with one text and ends with the next occurrence of the other on the same line."""
    found = []
    for line in written.split("\n"):
        at = line.find(first)
        while at >= 0:
            end = line.find(last, at + len(first))
            if end < 0:
                break
            found.append(line[at : end + len(last)])
            at = line.find(first, end + len(last))
    return found


def _num_differences(words: list[str], wanted: list[str]) -> int | None:
    """How many words differ; `None` where there are more or fewer of them."""
    if len(words) != len(wanted):
        return None
    return sum(one != other for one, other in zip(words, wanted, strict=True))


# ---- keywords


@kind("keywords:word_once", keyword=text)
def word_once(response: Response, keyword: str) -> bool:
    """The keyword occurs exactly once, inside longer words too."""
    return occurrences(response, keyword) == 1


@kind("keywords:word_count_different_numbers", keyword=text, frequency=count, relation=relation_or_equal)
def word_count_different_numbers(response: Response, keyword: str, frequency: int, relation: str) -> bool:
    """The keyword occurs at least, less than, or exactly so many times, inside longer words too."""
    return compares(occurrences(response, keyword), relation, frequency)


@kind("keywords:exclude_word_harder", keyword=text)
def exclude_word(response: Response, keyword: str) -> bool:
    """The word does not occur as a whole word."""
    return not has_word(response, keyword)


@kind("count:count_increment_word", keyword1=text, keyword2=text)
def count_increment_word(response: Response, keyword1: str, keyword2: str) -> bool:
    """The first keyword occurs exactly once and the second exactly twice, inside longer words too."""
    return occurrences(response, keyword1) == 1 and occurrences(response, keyword2) == 2


@kind("keywords:keyword_specific_position", "words:keywords_specific_position", keyword=text, n=place, m=place)
def keyword_position(response: Response, keyword: str, n: int, m: int) -> bool:
    """The keyword is the m-th word of the n-th sentence."""
    if len(response.sentences) < n:
        return False
    words = words_of(tokens(response.sentences[n - 1]))
    return len(words) >= m and words[m - 1].lower() == keyword.lower()


@kind("keywords:no_adjacent_consecutive")
def no_adjacent_consecutive(response: Response) -> bool:
    """No word begins with the letter that follows the first letter of the word before it in the alphabet."""
    firsts = [word[:1] for word in map(bare, response.chunks) if word]
    return not any(
        "a" <= one <= "z" and "a" <= other <= "z" and ord(other) - ord(one) == 1 for one, other in pairwise(firsts)
    )


@kind("keywords:palindrome")
def palindrome(response: Response) -> bool:
    """A word of at least three letters reads the same backwards."""
    words = (bare(chunk) for chunk in response.chunks)
    return any(len(word) >= _SHORTEST_PALINDROME and word.isalpha() and word == word[::-1] for word in words)


@kind("keywords:start_end")
def start_end(response: Response) -> bool:
    """The first and the last token are the same word, so that nothing stands behind it."""
    found = response.tokens
    return len(found) > 1 and found[0].lower() == found[-1].lower() and words_of(found[:1]) == found[:1]


# ---- first and last words


@kind("first_word:first_word_sent", first_word=text)
def first_word_of_sentences(response: Response, first_word: str) -> bool:
    """Each sentence begins with the word."""
    return all(bare(sentence.split(None, 1)[0]) == first_word.lower() for sentence in response.sentences)


@kind("first_word:first_word_answer", first_word=text)
def first_word_of_answer(response: Response, first_word: str) -> bool:
    """The response begins with the word."""
    return bare(response.text.split(None, 1)[0]) == first_word.lower()


@kind("last_word:last_word_sent", last_word=text)
def last_word_of_sentences(response: Response, last_word: str) -> bool:
    """Each sentence ends with the word, punctuation aside."""
    return all(_ends_with(sentence, last_word) for sentence in response.sentences)


@kind("last_word:last_word_answer", last_word=text)
def last_word_of_answer(response: Response, last_word: str) -> bool:
    """The response ends with the word, punctuation aside."""
    return _ends_with(response.text, last_word)


def _ends_with(written: str, last_word: str) -> bool:
    return _NO_WORD.sub("", written.split()[-1]).lower() == _NO_WORD.sub("", last_word).lower()


# ---- paragraphs, sentences, words


@kind("paragraphs:paragraphs")
def two_divided_paragraphs(response: Response) -> bool:
    """Two paragraphs with `***` between them."""
    return number_paragraphs(response, 2)


@kind("paragraphs:paragraphs2")
def two_paragraphs(response: Response) -> bool:
    """Two paragraphs with an empty line between them."""
    return num_parts(response.text.split("\n\n")) == 2


@kind("count:counting_composition", n_sent=count, n_words=count)
def counting_composition(response: Response, n_sent: int, n_words: int) -> bool:
    """Three paragraphs with `* * *` between them, each of so many sentences, each of so many words."""
    parts = _PARAGRAPH_DIVIDER.split(response.text)
    if num_parts(parts) != 3:
        return False
    found = [sentences(part) for part in parts if part.strip()]
    return all(
        len(paragraph) == n_sent and all(len(words_of(tokens(sentence))) == n_words for sentence in paragraph)
        for paragraph in found
    )


@kind("count:count_unique")
def count_unique(response: Response) -> bool:
    """No word occurs twice."""
    words = [word.lower() for word in response.words]
    return bool(words) and len(words) == len(set(words))


@kind("count:lowercase_counting", N=count)
def lowercase_counting(response: Response, N: int) -> bool:
    """At most N words in the small letters a to z."""
    return sum(1 for _ in _SMALL_WORD.finditer(response.text)) <= N


@kind("letters:letter_counting", N=count, relation=relation)
def letter_counting(response: Response, N: int, relation: str) -> bool:
    """At least, or less than, N letters a to z."""
    return compares(sum(1 for _ in _LETTERS.finditer(response.text)), relation, N)


# ---- format and punctuation


@kind("detectable_format:sentence_hyphens")
def sentence_hyphens(response: Response) -> bool:
    """Hyphens without spaces connect the sentences."""
    return response.stripped.split("-") == sentences(response.stripped.replace("-", " "))


@kind("detectable_format:square_brackets")
def square_brackets(response: Response) -> bool:
    """Each word stands in square brackets."""
    return all(chunk[0] == "[" and chunk[-1] == "]" and len(chunk) > 2 for chunk in response.chunks)


@kind("detectable_format:bigram_wrapping")
def bigram_wrapping(response: Response) -> bool:
    """Each two words stand in double angular brackets: `<<I am>> <<at home>>`."""
    chunks = response.chunks
    pairs = zip(chunks[::2], [*chunks[1::2], chunks[-1]], strict=False)
    return len(chunks) > 1 and all(one.startswith("<<") and other.endswith(">>") for one, other in pairs)


@kind("punctuation:punctuation_dot")
def no_dot(response: Response) -> bool:
    """No full stop."""
    return "." not in response.text


@kind("punctuation:punctuation_exclamation")
def no_exclamation_mark(response: Response) -> bool:
    """No exclamation mark."""
    return "!" not in response.text
