"""The 25 constraints of IFEval: responses written by hand, with the verdicts of the public definition."""

from __future__ import annotations

from typing import Any

import pytest

from reward_funcs.instructions import ifeval
from reward_funcs.instructions.kinds import KINDS
from reward_funcs.instructions.response import Response

AT_LEAST_2 = {"keyword": "sky", "frequency": 2, "relation": "at least"}
LESS_THAN_2 = AT_LEAST_2 | {"relation": "less than"}
TWO_SECTIONS = {"section_spliter": "SECTION", "num_sections": 2}
TWO_CAPITALS = {"capital_frequency": 2, "capital_relation": "at least"}
NO_CAPITALS = {"capital_frequency": 1, "capital_relation": "less than"}
PLACE = {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Sky"}
GERMAN = "Der Himmel ist heute sehr klar und die Sonne scheint den ganzen Tag auf die Stadt."
ENGLISH = "The sky is very clear today and the sun shines on the town for the whole day."
SWAHILI = "Leo hali ya hewa ni nzuri sana na watu wengi wanatembea mjini kununua chakula na nguo."
DEEP = "[" * 100_000 + "]" * 100_000

# name, arguments, response, whether it follows
CASES: list[tuple[str, dict[str, Any], str, bool]] = [
    ("keywords:existence", {"keywords": ["sky", "sun"]}, "Sunny SKY.", True),
    ("keywords:existence", {"keywords": ["sky", "sun"]}, "A sky.", False),
    ("keywords:existence", {"keywords": ["a.c"]}, "abc", False),  # taken literally
    ("keywords:existence", {"keywords": ["(c"]}, "(C) 2024", True),
    ("keywords:frequency", AT_LEAST_2, "Sky over skylines.", True),
    ("keywords:frequency", AT_LEAST_2, "One sky.", False),
    ("keywords:frequency", LESS_THAN_2, "One sky.", True),
    ("keywords:frequency", LESS_THAN_2, "Sky and sky.", False),
    ("keywords:forbidden_words", {"forbidden_words": ["rock"]}, "Rocky rockets.", True),
    ("keywords:forbidden_words", {"forbidden_words": ["tea", "rock"]}, "A ROCK!", False),
    ("keywords:forbidden_words", {"forbidden_words": ["c++"]}, "I like C++.", False),
    ("keywords:letter_frequency", {"letter": "E", "let_frequency": 3, "let_relation": "at least"}, "Eee", True),
    ("keywords:letter_frequency", {"letter": "e", "let_frequency": 3, "let_relation": "at least"}, "Ee", False),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 1, "let_relation": "less than"}, "C#", False),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 2, "let_relation": "less than"}, "C#", True),
    ("language:response_language", {"language": "de"}, GERMAN, True),
    ("language:response_language", {"language": "de"}, ENGLISH, False),
    ("language:response_language", {"language": "en"}, ENGLISH, True),
    ("language:response_language", {"language": "ru"}, "Сегодня небо очень ясное, и солнце светит весь день.", True),
    ("language:response_language", {"language": "ru"}, ENGLISH, False),
    ("language:response_language", {"language": "hi"}, "आज आसमान बहुत साफ है और सूरज पूरे दिन चमकता है।", True),
    ("language:response_language", {"language": "sw"}, SWAHILI, True),
    ("language:response_language", {"language": "fi"}, SWAHILI, False),
    ("language:response_language", {"language": "kn"}, "ಇಂದು ಆಕಾಶ ತುಂಬಾ ಸ್ವಚ್ಛವಾಗಿದೆ.", True),
    ("language:response_language", {"language": "en"}, "12 + 30 = 42", False),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "at least"}, "One. Two! Three?", True),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "at least"}, "One. Two, three.", False),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "less than"}, "One. Two", True),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "less than"}, "One. Two. Three", False),
    ("length_constraints:number_words", {"num_words": 4, "relation": "at least"}, "A well-known word.", True),
    ("length_constraints:number_words", {"num_words": 4, "relation": "at least"}, "Only three words - ...", False),
    ("length_constraints:number_words", {"num_words": 4, "relation": "less than"}, "Only three words", True),
    ("length_constraints:number_words", {"num_words": 4, "relation": "less than"}, "There are four words", False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "One.\n***\nTwo.", True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***\nOne.\n\n*** Two.\n***\n", True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "One.\n\nTwo.", False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "One.\n***\n***\nTwo.", False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "1\n***\n2\n***\n3", False),
    ("length_constraints:nth_paragraph_first_word", PLACE, "One.\n\n'sky', it said.", True),
    ("length_constraints:nth_paragraph_first_word", PLACE, "One.\n\nSKY!", True),
    ("length_constraints:nth_paragraph_first_word", PLACE, "One.\n\nSkies.", False),
    ("length_constraints:nth_paragraph_first_word", PLACE, "One.\nSky.", False),
    ("length_constraints:nth_paragraph_first_word", PLACE, "One.\n\nSky.\n\nThree.", False),
    ("length_constraints:nth_paragraph_first_word", PLACE, "Sky.\n\nTwo.", False),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "Dear [name] of [], hi", True),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "Dear [name [first]", False),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, "Dear [first\nname]", False),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\np. s. One more", True),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\nPS One more", False),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye. P.P.S. More", True),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye. P.S. More", False),
    ("detectable_content:postscript", {"postscript_marker": "Note:"}, "Bye. note: more", True),
    ("detectable_content:postscript", {"postscript_marker": "N.B."}, "An orb", False),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "List (*):\n  * One\n-Two", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* One\n\n* Two\n* Three", False),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "***\nText\n**Bold**\n* One", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "1. One\n2. Two", False),
    ("detectable_format:constrained_response", {}, "Well. My answer is maybe. Ask again.", True),
    ("detectable_format:constrained_response", {}, "My answer is Yes.", False),
    ("detectable_format:constrained_response", {}, "My answer is no", False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and **two**", True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and two", False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "* * and ****", False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "*one\ntwo*", False),
    ("detectable_format:multiple_sections", TWO_SECTIONS, "SECTION 1\nSECTION2", True),
    ("detectable_format:multiple_sections", TWO_SECTIONS, "SECTION 12", False),
    ("detectable_format:multiple_sections", {"section_spliter": "SECTION", "num_sections": 1}, "Section 1", False),
    ("detectable_format:multiple_sections", {"section_spliter": "Day", "num_sections": 1}, "Day One", False),
    ("detectable_format:json_format", {}, ' {"a": [1, null]} ', True),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', True),
    ("detectable_format:json_format", {}, 'Here: {"a": 1}', False),
    ("detectable_format:json_format", {}, '{"a": 1,}', False),
    ("detectable_format:json_format", {}, DEEP, False),
    ("detectable_format:title", {}, "A <<poem of joy>>", True),
    ("detectable_format:title", {}, "<< >> and <poem>", False),
    ("detectable_format:title", {}, "<<a poem\nof joy>>", False),
    ("detectable_format:title", {}, "<<>>", False),
    ("combination:two_responses", {}, "One.\n******\nTwo.", True),
    ("combination:two_responses", {}, "******One.******Two.******", True),
    ("combination:two_responses", {}, "One.\n******\nOne.", False),
    ("combination:two_responses", {}, "One.\n***\nTwo.", False),
    ("combination:two_responses", {}, "1******2******3", False),
    ("combination:two_responses", {}, "1******\n******2", False),
    ("combination:repeat_prompt", {"prompt_to_repeat": " Why? "}, "\nwhy? Because.", True),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Why?"}, "You ask: Why? Because.", False),
    ("startend:end_checker", {"end_phrase": "Is that all?"}, '"Yes. is that ALL?"\n', True),
    ("startend:end_checker", {"end_phrase": "Is that all?"}, "Is that all? Bye.", False),
    ("startend:quotation", {}, ' "Yes" \n', True),
    ("startend:quotation", {}, '"Yes" he said', False),
    ("startend:quotation", {}, '"', False),
    ("startend:quotation", {}, "“Yes”", False),
    ("change_case:capital_word_frequency", TWO_CAPITALS, "I am OK.", True),
    ("change_case:capital_word_frequency", TWO_CAPITALS, "WELL-KNOWN.", False),
    ("change_case:capital_word_frequency", NO_CAPITALS, "Not Ok. 42", True),
    ("change_case:capital_word_frequency", NO_CAPITALS, "NASA.", False),
    ("change_case:english_capital", {}, ENGLISH.upper(), True),
    ("change_case:english_capital", {}, ENGLISH, False),
    ("change_case:english_capital", {}, GERMAN.upper(), False),
    ("change_case:english_lowercase", {}, ENGLISH.lower(), True),
    ("change_case:english_lowercase", {}, ENGLISH, False),
    ("change_case:english_lowercase", {}, GERMAN.lower(), False),
    ("punctuation:no_comma", {}, "One; two.", True),
    ("punctuation:no_comma", {}, "One, two.", False),
    ("keywords:frequency", AT_LEAST_2 | {"keyword": "Sky"}, "SKY, sky", True),
    ("detectable_format:title", {}, "<<poem of joy>>\nA poem", True),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Why?"}, "WHY? Because.", True),
]  # fmt: skip


def follows(name: str, text: str, arguments: dict[str, Any]) -> bool:
    kind = KINDS[name]
    return kind.check(Response(text), **kind.arguments(arguments))


@pytest.mark.parametrize(("name", "arguments", "text", "verdict"), CASES)
def test_ifeval_constraint_verdict_is_that_of_the_definition(
    name: str, arguments: dict[str, Any], text: str, verdict: bool
) -> None:
    if "language" in name or "english" in name:
        pytest.importorskip("py3langid")  # without it the languages of one script are one
    assert follows(name, text, arguments) is verdict


def test_ifeval_cases_cover_all_constraints_with_both_verdicts() -> None:
    own = {name for name, kind in KINDS.items() if kind.check.__module__ == ifeval.__name__ and "letters:" not in name}
    assert len(own) == 25
    assert {(name, verdict) for name, _, _, verdict in CASES} == {(name, v) for name in own for v in (True, False)}


@pytest.mark.parametrize(
    ("name", "unit", "arguments"),
    [
        ("length_constraints:number_words", "word ", {"num_words": 50, "relation": "at least"}),
        ("length_constraints:number_sentences", "One. ", {"num_sentences": 50, "relation": "at least"}),
        ("keywords:frequency", "tea ", {"keyword": "tea", "frequency": 50, "relation": "at least"}),
        ("keywords:letter_frequency", "q", {"letter": "q", "let_frequency": 50, "let_relation": "at least"}),
        ("detectable_content:number_placeholders", "[a]", {"num_placeholders": 50}),
        ("detectable_format:number_highlighted_sections", "*a* ", {"num_highlights": 50}),
        ("change_case:capital_word_frequency", "OK ", {"capital_frequency": 50, "capital_relation": "at least"}),
    ],
)
def test_ifeval_threshold_is_reached_at_exactly_n(name: str, unit: str, arguments: dict[str, Any]) -> None:
    assert [follows(name, unit * number, arguments) for number in (49, 50, 51)] == [False, True, True]
    less = {key: "less than" if value == "at least" else value for key, value in arguments.items()}
    if less != arguments:
        assert [follows(name, unit * number, less) for number in (49, 50, 51)] == [True, False, False]


@pytest.mark.parametrize(
    ("name", "unit", "argument"),
    [
        ("detectable_format:number_bullet_lists", "* a\n", "num_bullets"),
        ("length_constraints:number_paragraphs", "a\n***\n", "num_paragraphs"),
    ],
)
def test_ifeval_exact_number_is_neither_less_nor_more(name: str, unit: str, argument: str) -> None:
    assert [follows(name, unit * number, {argument: 20}) for number in (19, 20, 21)] == [False, True, False]


SIBLINGS = {
    "ru": ["Сегодня очень хороший день, и я счастлив.", "Завтра утром мы поедем к бабушке на море."],
    "uk": ["Сьогодні дуже гарний день, і я щасливий.", "Завтра вранці ми поїдемо до бабусі на море."],
    "bg": ["Днес е много хубав ден и аз съм щастлив.", "Утре сутринта ще отидем при баба на морето."],
    "hi": ["यह एक बहुत अच्छा दिन है और मैं खुश हूँ।"],
    "mr": ["हा एक खूप चांगला दिवस आहे आणि मी आनंदी आहे."],
    "ne": [
        "यो एक धेरै राम्रो दिन हो र म खुसी छु।",
        "आजको दिन धेरै राम्रो छ र म खुसी छु। हामी पार्क गयौं जहाँ हामीले हाम्रा पुराना साथीहरूलाई भेट्यौं। त्यसपछि हामीले किताब र "
        "संगीतको बारेमा धेरै बेर कुरा गर्यौं र बेलुका घर फर्कियौं।",
    ],
}


@pytest.mark.parametrize("code", SIBLINGS)
def test_single_sentence_is_in_its_language_and_no_sibling(code: str) -> None:
    group = ("ru", "uk", "bg") if code in ("ru", "uk", "bg") else ("hi", "mr", "ne")
    for text in SIBLINGS[code]:
        assert [other for other in group if ifeval.is_in_language(text, other)] == [code], text
