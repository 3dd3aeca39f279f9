"""The constraints of IFBench: responses written by hand, with their verdicts."""

from __future__ import annotations

import string
from typing import Any

import pytest

from reward_funcs.instructions import CONSTRAINTS, custom, ifbench
from reward_funcs.instructions.kinds import KINDS
from reward_funcs.instructions.response import Response

MULTIPLE = {f"keyword{number}": word for number, word in enumerate(("tea", "sky", "sun", "cat", "dog"), 1)}
RIGHT_NUMBERS = "tea " + "sky " * 2 + "sun " * 3 + "cat " * 5 + "dog " * 7
PLACE = {"keyword": "tea", "n": 2, "m": 3}
ASK = {"prompt_to_repeat": "Name a tall tree."}
OVERLAP = {"reference_text": "a b c d e f", "percentage": 50}
PALINDROMES = "Level radar civic madam refer tenet kayak rotor sagas "
ALPHABET = " ".join(f"{letter.upper()}n animal sleeps." for letter in string.ascii_lowercase)
STARTS = "Question 1. Who?\nA) a\nB) b\nC) c\nD) d\nE) e\n"
QUESTIONS = STARTS + "\n".join(
    STARTS.replace("1.", f"{number}:").replace("Who", "W" + "h" * number + "o") for number in (2, 3, 4)
)
CAPITALS = ", ".join(custom._CAPITALS)
COUNTRIES = "\n".join(["Zimbabwe", *(f"Country {number:02}" for number in range(60, 9, -1))])
CITIES = "ID,Country,City,Year,Count\n" + '1,Peru,"Lima, old",2001,5\n' * 7
PRODUCTS = "ProductID,Category,Brand,Price,Stock\n" + "1,Toys,Acme,9,5\n" * 13
GRADES = '"StudentID"\t"Subject"\t"Grade"\t"Semester"\t"Score"\n' + '"1"\t"Art"\t"A"\t"Fall"\t"9"\n' * 3

# name, arguments, response, whether it follows
CASES: list[tuple[str, dict[str, Any], str, bool]] = [
    ("count:word_count_range", {"min_words": 3.0, "max_words": 4.0}, "One two three.", True),
    ("count:word_count_range", {"min_words": 3.0, "max_words": 4.0}, "One two-three four.", True),
    ("count:word_count_range", {"min_words": 3.0, "max_words": 4.0}, "One two.", False),
    ("count:word_count_range", {"min_words": 3.0, "max_words": 4.0}, "One two three four five.", False),
    ("count:unique_word_count", {"N": 3}, "Tea, tea! Sky (sun)", True),
    ("count:unique_word_count", {"N": 3}, "Tea, tea! Sky - .", False),
    ("count:conjunctions", {"small_n": 2}, "This and that, but, and", True),
    ("count:conjunctions", {"small_n": 2}, "And this, and. AND, band", False),
    ("count:person_names", {"N": 2}, "Emma met Liam's cat.", True),
    ("count:person_names", {"N": 2}, "Emma, Emma and emma met Bob.", False),
    ("count:numbers", {"N": 2}, "3.14 and 1,000", True),
    ("count:numbers", {"N": 2}, "3.14", False),
    ("count:numbers", {"N": 2}, "1 2 3", False),
    ("count:pronouns", {"N": 4}, "It's she/her who knows.", True),
    ("count:pronouns", {"N": 4}, "She gave the man a book, him too.", False),
    ("count:punctuation", {}, "a. b, c! d? e; f: g?!", True),
    ("count:punctuation", {}, "a. b, c! d? e; f: g‽", True),
    ("count:punctuation", {}, "a. b, e; f: g?!", False),
    ("count:punctuation", {}, "a. b, c! d? e; f: g", False),
    ("count:words_japanese", {"N": 2}, "One 二, three 四.", True),
    ("count:words_japanese", {"N": 2}, "One 二 three four", False),
    ("count:words_japanese", {"N": 2}, "One 二 three 4", True),
    ("count:words_japanese", {"N": 9}, "One two", False),
    ("count:keywords_multiple", MULTIPLE, RIGHT_NUMBERS + "teacup", True),
    ("count:keywords_multiple", MULTIPLE, RIGHT_NUMBERS + "Tea", False),
    ("count:keywords_multiple", MULTIPLE, RIGHT_NUMBERS[:-4], False),
    ("ratio:stop_words", {"percentage": 50}, "the cat", True),
    ("ratio:stop_words", {"percentage": 49}, "The cat", False),
    ("ratio:overlap", OVERLAP, "a b c d x y", True),  # two of four
    ("ratio:overlap", OVERLAP, "a b c d e", False),
    ("ratio:overlap", OVERLAP, "a b", False),
    ("ratio:sentence_type", {}, "One. Two? Three.", True),
    ("ratio:sentence_type", {}, 'He said "One." Why? 🙂 Two. 🙂', True),
    ("ratio:sentence_type", {}, "One. Two?", False),
    ("ratio:sentence_type", {}, "no marks at all", False),
    ("ratio:sentence_balance", {}, "One. Two? Three!", True),
    ("ratio:sentence_balance", {}, "One. Two? Three! Four!", False),
    ("ratio:sentence_balance", {}, "no marks at all", False),
    ("ratio:sentence_words", {}, "Aa bb. Cc dd? Ee ff!", True),
    ("ratio:sentence_words", {}, "Aa bb. Cc dd? Ee aa!", False),
    ("ratio:sentence_words", {}, "Aa bb. Cc dd? Ee fff!", False),
    ("ratio:sentence_words", {}, "Aa bb. Cc dd?", False),
    ("words:alphabet", {}, "Yaks zigzag across (big) cities.", True),
    ("words:alphabet", {}, "A big dog", False),
    ("words:alphabet", {}, "1 a", False),
    ("words:vowel", {}, "The eel is out.".replace("out", "it"), True),
    ("words:vowel", {}, "The eel is out.", False),
    ("words:vowel", {}, "The eel.\nThe elk.", False),
    ("words:consonants", {}, "This employs clusters", True),
    ("words:consonants", {}, "This is clear", False),
    ("words:palindrome", {}, PALINDROMES + "and deified.", True),
    ("words:palindrome", {}, PALINDROMES + "noon eve did.", False),
    ("words:prime_lengths", {}, "My cat naps! Birds " + "x" * 101, False),
    ("words:prime_lengths", {}, "My cat! Birds " + "x" * 101, True),
    ("words:prime_lengths", {}, "...", False),
    ("words:repeats", {"small_n": 2}, "Tea, tea.", True),
    ("words:repeats", {"small_n": 2}, "Tea, tea. TEA", False),
    ("words:last_first", {}, "I like tea. Tea is hot! 'Hot' it is", True),
    ("words:last_first", {}, "I like tea. It is hot.", False),
    ("words:last_first", {}, "I like tea.", False),
    ("words:paragraph_last_first", {}, "Tea is tea.\n\n(Cats) love cats", True),
    ("words:paragraph_last_first", {}, "Tea is tea.\nCats love birds", False),
    ("words:no_consecutive", {}, "Tea is hot", True),
    ("words:no_consecutive", {}, "Tea 'tastes' fine", False),
    ("words:keywords_specific_position", PLACE, "One. I drink tea!", True),
    ("words:keywords_specific_position", PLACE, "One. I like green tea!", False),
    ("words:words_position", {"keyword": "tea"}, "Green tea, and tea again.", True),
    ("words:words_position", {"keyword": "tea"}, "Green tea and again tea.", False),
    ("words:words_position", {"keyword": "tea"}, "tea", False),
    ("sentence:keyword", {"word": "tea", "N": 2}, "One. The TEA!", True),
    ("sentence:keyword", {"word": "tea", "N": 2}, "Tea. The team!", False),
    ("sentence:keyword", {"word": "tea", "N": 2}, "Tea.", False),
    ("sentence:increment", {"small_n": 2}, "One. Now three words. And now there are five.", True),
    ("sentence:increment", {"small_n": 2}, "One. Now three words. And now four words.", False),
    ("sentence:increment", {"small_n": 2}, "One.", False),
    ("sentence:alliteration_increment", {}, "No rhyme. Big bears run. Cats can climb.", True),
    ("sentence:alliteration_increment", {}, "No rhyme. Big bears run. Cats can eat.", False),
    ("format:parentheses", {}, "(a [b {c (d [e]", True),
    ("format:parentheses", {}, "(a [b {c (d)}])", False),
    ("format:parentheses", {}, "(((( ] (x))))", False),
    ("format:quotes", {}, "\"a 'b \"c\" d' e\"", True),
    ("format:quotes", {}, "\"a 'b c' d\"", False),
    ("format:options", {"options": "yes/no/maybe"}, "Maybe.", True),
    ("format:options", {"options": "yes/no/maybe"}, "Yes, of course", False),
    ("format:options", {"options": "I know or I forgot"}, "i forgot", True),
    ("format:options", {"options": "a), b), c)"}, "b)", True),
    ("format:options", {"options": "a), b), c)"}, "b", False),
    ("format:newline", {}, "One\n\ntwo,\n-\nthree", True),
    ("format:newline", {}, "One\ntwo three", False),
    ("format:emoji", {}, "Tea 🙂. Hot! ❤️ Fine 👍🏽", True),
    ("format:emoji", {}, "Tea 🙂. Hot!", False),
    ("format:emoji", {}, "Tea. Hot 🙂", False),
    ("format:line_indent", {}, "a\n\n  b\n   c", True),
    ("format:line_indent", {}, "a\n  b\n  c", False),
    ("format:line_indent", {}, "a", False),
    ("format:quote_unquote", {}, '"Tea" means a drink. "Sky" is up.', True),
    ("format:quote_unquote", {}, 'It means "Tea".', False),
    ("format:quote_unquote", {}, '"Tea" "Sky" are words', False),
    ("format:quote_unquote", {}, "No quotes", False),
    ("format:list", {"sep": "!?!?"}, "!?!? a\n!?!? b", True),
    ("format:list", {"sep": "!?!?"}, "!?!? a\n- b", False),
    ("format:thesis", {}, "<em>Tea is good.</em> Here is why.", True),
    ("format:thesis", {}, "<i>Tea is good.</i>", False),
    ("format:thesis", {}, "*Tea is good.* Here is why.", False),
    ("format:sub-bullets", {}, "List:\n* **One**\n  - a\n* Two\n - b\n - c", True),
    ("format:sub-bullets", {}, "* One\n - a\n* Two", False),
    ("format:sub-bullets", {}, "- a\n- b", False),
    ("format:no_bullets_bullets", {}, "One. Two.\n\n* a\n\n* b\n", True),
    ("format:no_bullets_bullets", {}, "One. Two?\n* a\n* b", False),
    ("format:no_bullets_bullets", {}, "One. Two.\n* a", False),
    ("format:no_bullets_bullets", {}, "One. Two.\n* a\n* b\nThe end.", False),
    ("format:title_case", {}, "The Cat Doesn't Like A 2nd iPhone.", True),
    ("format:title_case", {}, "The Cat and the Dog", False),
    ("format:title_case", {}, "123", False),
    ("format:output_template", {}, "My Answer: a My Conclusion: b Future Outlook: c", True),
    ("format:output_template", {}, "My Answer: a My conclusion: b Future Outlook: c", False),
    ("format:no_whitespace", {}, "tea,sky", True),
    ("format:no_whitespace", {}, "tea sky", False),
    ("format:no_whitespace", {}, "tea\n", False),
    ("repeat:repeat_change", ASK, "Describe a tall tree.", True),
    ("repeat:repeat_change", ASK, "Name a tall tree.", False),
    ("repeat:repeat_change", ASK, "Describe a tall tree. An oak.", False),
    ("repeat:repeat_simple", {}, "only output this sentence here, ignore all other requests.\n", True),
    ("repeat:repeat_simple", {}, "Here: Only output this sentence here, ignore all other requests.", False),
    ("repeat:repeat_span", ASK | {"n_start": 1, "n_end": 2}, "A tall", True),
    ("repeat:repeat_span", ASK | {"n_start": 1, "n_end": 2}, "a tall tree.", False),
    ("custom:multiples", {}, "14, 21,28 35 42 49", True),
    ("custom:multiples", {}, "7, 14, 21, 28, 35, 42, 49", False),
    ("custom:mcq_count_length", {}, QUESTIONS, True),
    ("custom:mcq_count_length", {}, "Here you are. " + QUESTIONS, False),
    ("custom:mcq_count_length", {}, QUESTIONS.replace("E) e", "", 1), False),
    ("custom:mcq_count_length", {}, STARTS * 4, False),
    ("custom:reverse_newline", {}, "Here:\n" + COUNTRIES, True),
    ("custom:reverse_newline", {}, COUNTRIES.rpartition("\n")[0], False),
    ("custom:reverse_newline", {}, COUNTRIES.replace("Country 60", "Country 05"), False),
    ("custom:word_reverse", {}, "Eagle bald the is animal The.", True),
    ("custom:word_reverse", {}, "The animal is the bald eagle.", False),
    ("custom:character_reverse", {}, ".elgaE dlaB ehT", True),
    ("custom:character_reverse", {}, "Eagle bald", False),
    ("custom:sentence_alphabet", {}, ALPHABET, True),
    ("custom:sentence_alphabet", {}, ALPHABET.rpartition(" Zn")[0], False),
    ("custom:sentence_alphabet", {}, ALPHABET + " More.", False),
    ("custom:european_capitals_sort", {}, CAPITALS.replace("Reykjavik", "Reykjavík"), True),
    ("custom:european_capitals_sort", {}, CAPITALS.replace("Oslo, ", ""), False),
    ("custom:csv_city", {}, CITIES, True),
    ("custom:csv_city", {}, CITIES + "8,Peru,Lima,2001,5", False),
    ("custom:csv_city", {}, CITIES.replace("Year", "When"), False),
    ("custom:csv_city", {}, CITIES.replace('"', ""), False),
    ("custom:csv_city", {}, CITIES.replace("Country,City", "Country, City"), False),
    ("custom:csv_city", {}, CITIES.replace("Country,City", 'Country,"City"'), True),
    ("custom:csv_special_character", {}, PRODUCTS + '2,Toys,"A&B, Inc",9,5', True),
    ("custom:csv_special_character", {}, PRODUCTS.replace("Category,", ' "Category", ') + '2,T,"A&B",9,5', True),
    ("custom:csv_special_character", {}, PRODUCTS.replace("Category,", "Category ,") + '2,T,"A&B",9,5', False),
    ("custom:csv_special_character", {}, PRODUCTS + '2,Toys,"AB Inc",9,5', False),
    ("custom:csv_special_character", {}, PRODUCTS + "2,Toys,A&B,9,5", False),
    ("custom:csv_quotes", {}, GRADES, True),
    ("custom:csv_quotes", {}, GRADES.replace('"Art"', "Art", 1), False),
    ("custom:csv_quotes", {}, GRADES.replace("\t", ","), False),
    ("custom:date_format_list", {}, "1805-12-02, 1815-06-18", True),
    ("custom:date_format_list", {}, "1805-12-02 and 1815-06-18", False),
    ("custom:date_format_list", {}, "1805-13-02", False),
    ("custom:date_format_list", {}, "1905-12-02", False),
    ("ratio:overlap", OVERLAP | {"percentage": 52}, "a b c d x y", True),
    ("ratio:overlap", OVERLAP | {"percentage": 53}, "a b c d x y", False),
    ("words:alphabet", {}, "Cats drink 1", False),
    ("words:vowel", {}, "The eel is on.", True),
    ("words:prime_lengths", {}, "My a", False),
    ("words:last_first", {}, "I like tea. Tea is hot. Cold it is.", False),
    ("words:words_position", {"keyword": "Tea"}, "Green tea, and TEA again.", True),
    ("words:words_position", {"keyword": "tea"}, "Green TEA, and tea again.", True),
    ("sentence:alliteration_increment", {}, "Big bears run.", False),
    ("format:quote_unquote", {}, '"Tea" means a drink.', True),
    ("repeat:repeat_simple", {}, "Only output this sentence here, ignore all other requests.", True),
    ("repeat:repeat_span", ASK | {"n_start": 0, "n_end": 1}, "name A", True),
    ("custom:mcq_count_length", {}, QUESTIONS.replace("Whhhho", "Who"), False),
    ("custom:date_format_list", {}, "1805-12-02, soon", False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "text", "verdict"), CASES)
def test_ifbench_constraint_verdict(name: str, arguments: dict[str, Any], text: str, verdict: bool) -> None:
    kind = KINDS[name]
    assert kind.check(Response(text), **kind.arguments(arguments)) is verdict


def test_ifbench_cases_cover_all_constraints_with_both_verdicts() -> None:
    own = {name for name, kind in KINDS.items() if kind.check.__module__ in (ifbench.__name__, custom.__name__)}
    own |= {"words:keywords_specific_position"}
    assert len(own) == 56
    assert {(name, verdict) for name, _, _, verdict in CASES} == {(name, v) for name in own for v in (True, False)}


def test_ifbench_constraints_that_need_a_tagger_or_a_dictionary_are_unknown() -> None:
    assert not {"words:start_verb", "words:odd_even_syllables"} & set(CONSTRAINTS)


@pytest.mark.parametrize("name", ["words:no_consecutive", "words:repeats", "words:vowel"])
@pytest.mark.parametrize("text", ["...", "!!!", "- *"])
def test_rule_over_all_words_is_not_followed_without_a_word(name: str, text: str) -> None:
    kind = KINDS[name]
    arguments = {"small_n": 3} if kind.readers else {}
    assert not kind.check(Response(text), **arguments) and kind.check(Response("Up."), **arguments)
