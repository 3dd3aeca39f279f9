"""The 29 constraints of IF-RLVR beyond IFEval: responses written by hand, with their verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from reward_funcs.instructions import training
from reward_funcs.instructions.kinds import KINDS
from reward_funcs.instructions.response import Response

PHRASE = {"phrase": "Time flies when having fun", "small_n": 2}
ASK = {"prompt_to_repeat": "Name a tree."}
SPAN = {"prompt_to_repeat": "Name a tree.", "n_start": 5, "n_end": 10}
KEYS = {"keyword1": "tea", "keyword2": "sky"}
AT_LEAST_2 = {"keyword": "tea", "frequency": 2, "relation": "at least"}
PLACE = {"keyword": "tea", "n": 2, "m": 3}
COMPOSED = {"n_sent": 2, "n_words": 3}
THREE = "It is hot. I drink tea."

# name, arguments, response, whether it follows
CASES: list[tuple[str, dict[str, Any], str, bool]] = [
    ("copy:copy", ASK, " name a tree.\n", True),
    ("copy:copy", ASK, "Name a tree. Oak.", False),
    ("copy:copying_simple", ASK, "Name a tree.", True),
    ("copy:copying_simple", ASK, "Sure: Name a tree.", False),
    ("copy:copying_multiple", ASK | {"N": 2}, "Name a tree.\n******\nName a tree.", True),
    ("copy:copying_multiple", ASK | {"N": 2}, "Name a tree.", False),
    ("copy:copying_multiple", ASK | {"N": 2}, "Name a tree.******Name a tree.******Name a tree.", False),
    ("copy:copying_multiple", ASK | {"N": 2}, "Name a tree.******Name the tree.", False),
    ("new:copy_span_idx", SPAN, "a tre", True),
    ("new:copy_span_idx", SPAN, "A tree", True),  # the last index included
    ("new:copy_span_idx", SPAN, "a tr", False),
    ("new:copy_span_idx", ASK | {"n_start": 0, "n_end": 4}, "Name", True),
    ("copy:repeat_phrase", PHRASE, "Time crawls when having fun. Time flies when drinking fun.", True),
    ("copy:repeat_phrase", PHRASE, "Time flies when having fun. Time flies when drinking fun.", False),
    ("copy:repeat_phrase", PHRASE, "Time crawls when drinking fun. Time flies when drinking fun.", False),
    ("copy:repeat_phrase", PHRASE, "Time crawls when having fun.", False),
    ("copy:repeat_phrase", PHRASE, "Time crawls when having\nfun. Time flies when drinking fun.", False),
    ("copy:repeat_phrase", PHRASE, "Time crawls when having so much fun. Time flies when drinking fun.", False),
    ("keywords:word_once", {"keyword": "tea"}, "Tea!", True),
    ("keywords:word_once", {"keyword": "tea"}, "Tea for a team.", False),
    ("keywords:word_once", {"keyword": "tea"}, "Coffee.", False),
    ("keywords:word_count_different_numbers", AT_LEAST_2, "tea team tea", True),
    ("keywords:word_count_different_numbers", AT_LEAST_2, "tea", False),
    ("keywords:word_count_different_numbers", {"keyword": "tea", "frequency": 2}, "tea tea", True),
    ("keywords:word_count_different_numbers", {"keyword": "tea", "frequency": 2}, "tea tea tea", False),
    ("keywords:exclude_word_harder", {"keyword": "tea"}, "A team.", True),
    ("keywords:exclude_word_harder", {"keyword": "tea"}, "I like tea.", False),
    ("keywords:exclude_word_harder", {"keyword": "tea"}, "Tea is fine", False),
    ("count:count_increment_word", KEYS, "Tea, sky, sky.", True),
    ("count:count_increment_word", KEYS, "Tea, tea, sky, sky.", False),
    ("count:count_increment_word", KEYS, "Tea, sky.", False),
    ("keywords:keyword_specific_position", PLACE, "One. I drink Tea.", True),
    ("keywords:keyword_specific_position", PLACE, "One. (I, drink) tea.", True),
    ("keywords:keyword_specific_position", PLACE, "I drink tea. One.", False),
    ("keywords:keyword_specific_position", PLACE, "One. I drink green tea.", False),
    ("keywords:keyword_specific_position", PLACE, "One. Two tea.", False),
    ("keywords:keyword_specific_position", PLACE, "I drink tea.", False),
    ("keywords:no_adjacent_consecutive", {}, "Apples cost money. 1 2", True),
    ("keywords:no_adjacent_consecutive", {}, "An 'bad' one", False),
    ("keywords:no_adjacent_consecutive", {}, "Zebras also cook rice", True),
    ("keywords:palindrome", {}, "Take it to the next Level.", True),
    ("keywords:palindrome", {}, "I am a 121 ...", False),
    ("keywords:start_end", {}, "Tea is what I call tea", True),
    ("keywords:start_end", {}, "Tea is what I call tea.", False),
    ("keywords:start_end", {}, "! Tea!", False),
    ("keywords:start_end", {}, "Tea", False),
    ("first_word:first_word_sent", {"first_word": ["Tea"]}, "Tea is hot. 'Tea', he said.", True),
    ("first_word:first_word_sent", {"first_word": "tea"}, "Tea is hot. I like it.", False),
    ("first_word:first_word_answer", {"first_word": "tea"}, "**Tea**: hot. I like it.", True),
    ("first_word:first_word_answer", {"first_word": "tea"}, "Teas are hot.", False),
    ("last_word:last_word_sent", {"last_word": "tea"}, 'I like tea. I say "tea"! And tea', True),
    ("last_word:last_word_sent", {"last_word": "tea"}, "I like tea. I drink it.", False),
    ("last_word:last_word_answer", {"last_word": "tea"}, "Hot it is. I like (tea).\n", True),
    ("last_word:last_word_answer", {"last_word": "tea"}, "I like tea a lot", False),
    ("paragraphs:paragraphs", {}, "One.\n***\nTwo.", True),
    ("paragraphs:paragraphs", {}, "One.\n***\nTwo.\n***\nThree.", False),
    ("paragraphs:paragraphs2", {}, "One.\n\nTwo.\nStill two.", True),
    ("paragraphs:paragraphs2", {}, "One.\nTwo.", False),
    ("paragraphs:paragraphs2", {}, "One.\n\n\n\nTwo.", False),
    ("count:counting_composition", COMPOSED, f"{THREE}\n* * *\n{THREE}\n* * *\n{THREE}", True),
    ("count:counting_composition", COMPOSED, f"{THREE}\n***\n{THREE}\n***\n{THREE}", True),
    ("count:counting_composition", COMPOSED, f"{THREE}\n* * *\n{THREE}", False),
    ("count:counting_composition", COMPOSED, f"{THREE}\n***\n{THREE}\n***\nIt is hot.", False),
    ("count:counting_composition", COMPOSED, f"{THREE}\n***\n{THREE}\n***\nIt is very hot. I drink tea.", False),
    ("count:count_unique", {}, "Cats sleep, dogs run, birds fly.", True),
    ("count:count_unique", {}, "The cats chase the dogs.", False),
    ("count:count_unique", {}, "Tea! tea", False),
    ("count:lowercase_counting", {"N": 2}, "ONE two Three four", True),
    ("count:lowercase_counting", {"N": 2}, "one two three", False),
    ("letters:letter_counting", {"N": 3, "relation": "at least"}, "a b-C", True),
    ("letters:letter_counting", {"N": 3, "relation": "at least"}, "a b 3", False),
    ("letters:letter_counting", {"N": 3, "relation": "less than"}, "ab 12", True),
    ("letters:letter_counting", {"N": 3, "relation": "less than"}, "abc", False),
    ("letters:letter_counting2", {"letter": "b", "let_frequency": 2, "let_relation": "at least"}, "Bob", True),
    ("letters:letter_counting2", {"letter": "b", "let_frequency": 2, "let_relation": "at least"}, "Ben", False),
    ("detectable_format:sentence_hyphens", {}, "Tea is hot.-Cats sleep.-Dogs run.", True),
    ("detectable_format:sentence_hyphens", {}, "Tea is hot. Cats sleep.", False),
    ("detectable_format:sentence_hyphens", {}, "Tea is hot. - Cats sleep.", False),
    ("detectable_format:sentence_hyphens", {}, "Tea is well-known.-Cats sleep.", False),
    ("detectable_format:square_brackets", {}, "[Tea] [is]\n[hot.]", True),
    ("detectable_format:square_brackets", {}, "[Tea is] [hot]", False),
    ("detectable_format:square_brackets", {}, "[]", False),
    ("detectable_format:bigram_wrapping", {}, "<<I am>> <<at home>> <<now>>", True),
    ("detectable_format:bigram_wrapping", {}, "<<I am>> at home", False),
    ("detectable_format:bigram_wrapping", {}, "<<I am>> now", False),
    ("punctuation:punctuation_dot", {}, "Tea, hot!", True),
    ("punctuation:punctuation_dot", {}, "3.5 cups", False),
    ("punctuation:punctuation_exclamation", {}, "Tea. Hot?", True),
    ("punctuation:punctuation_exclamation", {}, "Tea!", False),
    ("keywords:keyword_specific_position", PLACE | {"keyword": "TEA"}, "One. I drink tea.", True),
    ("keywords:no_adjacent_consecutive", {}, "Yes zebras", False),
    ("keywords:palindrome", {}, "An eye", True),
    ("keywords:palindrome", {}, "Plain words here", False),
    ("keywords:start_end", {}, "tea is what I call TEA", True),
    ("first_word:first_word_answer", {"first_word": "Tea"}, "tea is hot", True),
    ("last_word:last_word_answer", {"last_word": "Tea"}, "I like TEA.", True),
    ("last_word:last_word_answer", {"last_word": "tea"}, "I like TEA.", True),
    ("detectable_format:bigram_wrapping", {}, "<<I>>", False),
    ("detectable_format:bigram_wrapping", {}, "<<I am at home>>", False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "text", "verdict"), CASES)
def test_training_constraint_verdict(name: str, arguments: dict[str, Any], text: str, verdict: bool) -> None:
    kind = KINDS[name]
    assert kind.check(Response(text), **kind.arguments(arguments)) is verdict


def test_training_cases_cover_all_constraints_with_both_verdicts() -> None:
    own = {name for name, kind in KINDS.items() if kind.check.__module__ == training.__name__}
    own |= {"letters:letter_counting2"}  # a second name of IFEval's letter_frequency
    own -= {"words:keywords_specific_position"}  # IFBench's name for keyword_specific_position
    assert len(own) == 29
    assert {(name, verdict) for name, _, _, verdict in CASES} == {(name, v) for name in own for v in (True, False)}
