from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from reward_funcs._options import UNKNOWN, comparable, read_statement
from reward_funcs.base import Batch, Grade
from reward_funcs.choice import ChoiceReward, choice_reward

CITIES = ["Paris", "London", "Rome", "Berlin"]
NUMBERED = {"text": ["x ray", "wood", "iron", "tin"], "label": ["1", "2", "3", "4"]}
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def graded(
    text: Any, gold: Any = "B", choices: Any = None, reward: ChoiceReward = choice_reward, **columns: Any
) -> Grade:
    return reward.grade(Batch([text], {"solution": [gold], "choices": [choices], **columns}))[0]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "B",
            "(B)",
            "B.",
            "B)",
            "[B]",
            "b",
            "(b)",
            "`B`",
            '"B"',
            "Ｂ",
            "（Ｂ）",
            "B) Paris",
            "B. Paris",
            "B/B",
            "B or B",
        ),
        *(
            r"\boxed{B}",
            r"\boxed{\text{(B) } 5}",
            r"\boxed{\textbf{(B)}\ 5}",
            r"\boxed{\mathrm{B}}",
            r"\(B\)",
            r"$\text{B}$",
        ),
        *("<answer>B</answer>", r"<answer>\boxed{B}</answer>", "<answer>The answer is B</answer>", "<think>A</think>B"),
        *("Answer: (B)", "**Answer: B**", "**Answer:** B", "**Answer**: B", "Answer:\n\nB", "## Final Answer\n\nB"),
        *("Answer: b", "Answer: B/B", "Answer: B - London", "#### B", "Final answer: $\\boxed{B}$", "Answer: [B]"),
        *(
            "The answer is B.",
            "The answer is B because A is wrong.",
            "The answer is （Ｂ）",
            "The answer is: (B) London",
        ),
        *("The answer is option (B).", "The correct answer is the letter B", "The correct choice would be B."),
        *("The correct answer to the question is B", "The answer is **(B) London**.", "The answer is B, not A or C."),
        *(
            "the correct option is (C), no, the correct option is (B)",
            "So B is the correct answer.",
            "Option B is correct.",
        ),
        *("Therefore, B is correct.", "(B) is the correct answer", "**B** is the correct answer", "I choose B."),
        *("While A is tempting, B is the correct answer.", "I'll go with (B)", "My choice is B", "B because it is so"),
        *(
            "答案是B",
            "答案：B",
            "正确答案为 B。",
            "故选：B",
            "정답: B",
            "答えはBです",
            "Ответ: B",
            "Die Antwort ist B.",
        ),
        *("La respuesta correcta es B.", "B\n\nExplanation: A is wrong because of C.", "A is wrong.\n\n(B)"),
        *("Answer: (B) vitamins A and D", "Answer: B. Vitamins A and D help", "answer: B\n\nI hope it is correct."),
    ],
)
def test_choice_stated_letter_scores_one(text: str) -> None:
    assert graded(text) == Grade(1.0, "correct", "B")


@pytest.mark.parametrize(
    "text",
    [
        *("A or B\n\nActually the answer is B", "The answer is A. Wait, no. The answer is B.", "Answer: A\n\n(B)"),
        *(r"\boxed{A} hmm, actually \boxed{B}", r"\boxed{A}. Wait: the answer is B", r"Answer: A, no: \boxed{B}"),
        *(
            "Answer: A\n<answer>B</answer>",
            "<answer>A</answer> No, the answer is B",
            "The answer is not A. The answer is B.",
        ),
        "A\n\nOn reflection B is the correct answer.",
    ],
)
def test_choice_last_stated_answer_wins(text: str) -> None:
    assert graded(text).reward == 1.0
    assert graded(text, "A")[:2] == (0.0, "wrong")


@pytest.mark.parametrize(
    "text",
    [
        *("A or B", "A/B/C", "B or C", "B and C", "either B or C", "B|C", "Answer: B & C", "Answer: either B or C"),
        *("The answer is A or B", "The answer is B and/or C", "Answer: B and C are both right", "Answer: B, C, D"),
        *(
            r"\boxed{A or B}",
            r"\boxed{A/B}",
            r"\boxed{B, C}",
            r"\boxed{B C}",
            r"\boxed{BC}",
            "Answer: A; B",
            "Answer: (A) (B)",
        ),
        *(r"\boxed{A} or \boxed{B}", r"\boxed{B} and \boxed{C}", r"The answer is $\boxed{A}$, $\boxed{B}$"),
        *("Answer: (A) Paris or (B) London", "Answer: B) London or C) Rome", "Answer: B. London or C. Rome"),
        *("<answer>B</answer><answer>B</answer>", "<answer>A</answer><answer>B</answer>"),
        "<answer><answer>B</answer></answer>",
    ],
)
def test_choice_several_answers_score_zero(text: str) -> None:
    assert graded(text)[:2] == (0.0, "several_answers")


@pytest.mark.parametrize(
    "text",
    [
        *("", "   ", None, "A dog barked", "B is a letter that I like", "all of them", "The answer is not B"),
        *(
            "neither A nor B",
            "A\nB\nC\nD",
            "A) Paris\nB) London",
            "<think>The answer is B</think>",
            r"<think>\boxed{B}",
        ),
        *("<think>B</think>I do not know", "If B is the correct answer, then", "Statement B is correct, but"),
        *("B is not the correct answer", "B-cells are white", "The answer is B-cells", "Is it B? Who knows"),
    ],
)
def test_choice_without_statement_scores_zero(text: Any) -> None:
    assert graded(text) == Grade(0.0, "no_answer")


@pytest.mark.parametrize("text", [r"\boxed{}", r"\boxed{42}", "<answer>dog</answer>", r"Answer: B, so \boxed{5}"])
def test_choice_box_or_tag_that_holds_no_option_is_wrong(text: str) -> None:
    assert graded(text) == Grade(0.0, "wrong")


@pytest.mark.parametrize("gold", ["A", "I"])
def test_choice_article_and_pronoun_are_no_answers(gold: str) -> None:
    for text in ("A dog", "The answer is A dog", "I think so", "The answer is I think so", "I am", "a", "An"):
        assert graded(text, gold).reward == float(text == "a" and gold == "A")


@pytest.mark.parametrize(
    "text", ["A", "(A)", "A.", "Answer: A", "The answer is A because", "A is correct", "Answer: a"]
)
def test_choice_letter_a_that_is_stated_counts(text: str) -> None:
    assert graded(text, "A").reward == 1.0


@pytest.mark.parametrize(
    "text",
    [
        *("Paris", "Paris.", "**Paris**", "The answer is Paris", "The answer is Paris, since", "The answer is paris"),
        *(
            "(A) Paris",
            "A) Paris",
            "A. Paris",
            "A: Paris",
            "A Paris",
            "The answer is A Paris",
            "<answer>A. Paris</answer>",
        ),
        *(
            r"\boxed{Paris}",
            r"\boxed{\text{Paris}}",
            "<answer>Paris</answer>",
            "Paris is the correct answer",
            "I choose Paris",
        ),
        *("the first option", "The answer is the first option", "The first option is correct", "option 1"),
        *("The answer is option 1", "Answer: (A) Paris, not London", "The answer is A. London is not in France."),
    ],
)
def test_choice_text_or_position_of_known_option_scores_one(text: str) -> None:
    assert graded(text, "A", CITIES) == Grade(1.0, "correct", "A")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *(("(B) Paris", "contradiction"), ("(A) London", "contradiction"), (r"\boxed{(A) London}", "contradiction")),
        *(("Answer: A, London", "several_answers"), ("A. London", "contradiction"), ("The answer is Rome", "wrong")),
        *(("The answer is Paris or London", "several_answers"), ("Answer: Paris, London", "several_answers")),
        *(("The answer is Paris or B", "several_answers"), ("The answer is A or London", "several_answers")),
        *(
            ("the second option", "wrong"),
            ("the fifth option", "wrong"),
            ("option 7", "wrong"),
            ("Answer: E", "no_answer"),
        ),
        *(("Paris is not the correct answer", "no_answer"), ("Answer: (A) Paris and (B) London", "several_answers")),
        ("(A) Rome or (A) Paris", "contradiction"),
    ],
)
def test_choice_text_of_another_option_scores_zero(text: str, reason: str) -> None:
    assert graded(text, "A", CITIES)[:2] == (0.0, reason)


def test_choice_text_of_no_option_is_not_held_against_the_letter() -> None:
    assert graded("(A) Lyon", "A", CITIES).reward == 1.0


@pytest.mark.parametrize(
    ("text", "gold", "choices"),
    [
        *(
            ("The answer is 2", "B", ["1", "2", "3", "4"]),
            ("The answer is 2", "A", ["2", "4"]),
            (r"\boxed{5}", "A", ["5", "6"]),
        ),
        *(("The answer is True", "A", ["True", "False"]), ("Answer: the last option", "D", CITIES)),
        *(("The answer is Dr. Who", "B", ["Mr. X", "Dr. Who"]), ("The answer is A cat", "B", ["A dog", "A cat"])),
        *(
            ("The answer is Paris and London", "B", ["Paris", "Paris and London"]),
            ("The answer is $5$", "A", ["$5$", "$6$"]),
        ),
        *(
            ("The answer is both A and B", "C", ["Paris", "Rome", "both A and B"]),
            ("London", "B", ["A) Paris", "B) London"]),
        ),
        *(("Z", "Z", [f"option {n}" for n in range(26)]), ("B", "B", []), ("B", "B", {"text": [], "label": []})),
        *(
            ("London", "B", {"A": "Paris", "B": "London"}),
            ("Answer: G", "G", {"text": ["x", "y"], "label": ["F", "G"]}),
        ),
        ("London", "B", [{"label": "A", "text": "Paris"}, {"label": "B", "text": "London"}]),
        ("London", "B", json.dumps(CITIES)),
    ],
)
def test_choice_forms_of_the_options(text: str, gold: str, choices: Any) -> None:
    assert graded(text, gold, choices).reward == 1.0


@pytest.mark.parametrize("gold", ["2", "B", 2, "(2)", "wood", "(2) wood"])
def test_choice_numbered_options_are_answered_by_number_letter_or_text(gold: Any) -> None:
    for text in ("2", "(2)", "Answer: 2", "B", "wood", "The answer is 2.", r"\boxed{2}", "Answer: (2) wood", "2. wood"):
        assert graded(text, gold, NUMBERED).reward == 1.0
    for text in ("3", "C", "1. First we look\n2. Then", "The answer is 2 or 3", "The answer is 2.5", "2 apples"):
        assert graded(text, gold, NUMBERED).reward == 0.0


def test_choice_word_labels_are_labels() -> None:
    verdicts = {"text": ["supported", "refuted", "unknown"], "label": ["A", "B", "NEI"]}
    for text in ("NEI", "Answer: NEI", "<answer>NEI</answer>"):
        assert graded(text, "NEI").reward == graded(text, "NEI", verdicts).reward == 1.0
    assert graded("Answer: unknown", "NEI", verdicts).reward == 1.0
    assert graded("Answer: A", "NEI").reward == 0.0


@pytest.mark.parametrize(
    "gold", ["B", "b", "B.", "B)", "(B)", "(B) London", "B. London", r"\text{(B)}", "London", "$B$", "Ｂ"]
)
def test_choice_forms_of_the_gold(gold: str) -> None:
    assert graded("Answer: B", gold, CITIES).reward == graded("The answer is London", gold, CITIES).reward == 1.0
    assert graded("Answer: C", gold, CITIES).reward == graded("The answer is Rome", gold, CITIES).reward == 0.0


@pytest.mark.parametrize("gold", ["(B) London", "B: London", "B) London"])
def test_choice_gold_with_its_text_needs_no_options(gold: str) -> None:
    assert graded("The answer is London", gold).reward == graded(r"\boxed{B}", gold).reward == 1.0
    assert graded("The answer is Rome", gold).reward == 0.0


@pytest.mark.parametrize("choices", [None, CITIES])
@pytest.mark.parametrize("gold", ["B,C", "B, C", "B and C", "BC", ["B", "C"], "(B),(C)"])
def test_choice_several_golds_are_all_needed(gold: Any, choices: Any) -> None:
    for text in (
        "B,C",
        "Answer: B and C",
        r"\boxed{B, C}",
        r"\boxed{BC}",
        r"\boxed{B} and \boxed{C}",
        "The answer is BC.",
    ):
        assert graded(text, gold, choices).reward == 1.0
    for text in ("<answer>C,B</answer>", "Answer: (B) London and (C) Rome", "both B and C"):
        assert graded(text, gold, choices).reward == 1.0
    for text in ("B", "Answer: C", "A,B,C", "Answer: ABC", "B or D"):
        assert graded(text, gold, choices)[:2] == (0.0, "wrong")


@pytest.mark.parametrize("gold", ["E", "(B) Paris", None, "", "Madrid", {}, True, 2, "2", ["B", "Z"], [], 7.5])
def test_choice_broken_gold_cannot_be_judged(gold: Any) -> None:
    assert graded("Answer: B", gold, CITIES) == Grade(None, "bad_gold")


@pytest.mark.parametrize("choices", [5, ["x"] * 27, [None], {"text": ["x"], "label": ["A", "B"]}, "no json", [["x"]]])
def test_choice_broken_options_cannot_be_judged(choices: Any) -> None:
    assert graded("Answer: B", "B", choices) == Grade(None, "bad_choices")


def test_choice_options_in_extra_are_used() -> None:
    arc = {"text": CITIES, "label": ["A", "B", "C", "D"]}
    for extra in ({"choices": CITIES}, json.dumps({"choices": CITIES}), json.dumps({"choices": arc})):
        assert graded("The answer is London", extra=[extra]).reward == 1.0
    for extra in (None, "no json", "{}", "[" * 100_000):
        assert graded("The answer is London", extra=[extra]).reward == 0.0
        assert graded("The answer is B", extra=[extra]).reward == 1.0


def test_choice_index_counts_from_the_base() -> None:
    from_zero, from_one = ChoiceReward(index_base=0), ChoiceReward(index_base=1)
    for gold in (1, "1", "B", "London"):
        assert graded("B", gold, CITIES, from_zero).reward == 1.0
    assert graded("B", 1, None, from_zero).reward == graded("B", 2, CITIES, from_one).reward == 1.0
    assert graded("B", 4, CITIES, from_zero) == graded("B", 0, CITIES, from_one) == Grade(None, "bad_gold")
    with pytest.raises(ValueError, match="index_base=2 must be 0 or 1"):
        ChoiceReward(index_base=2)


@pytest.mark.parametrize("gold", ["B", "(B) London", "B,C", "2", "NEI", ["B", "C"]])
def test_choice_ideal_scores_one(gold: Any) -> None:
    assert graded(choice_reward.ideal(gold), gold).reward == 1.0


def test_choice_ideal_of_texts_and_indices_scores_one() -> None:
    assert graded(choice_reward.ideal("London"), "London", CITIES).reward == 1.0
    reward = ChoiceReward(index_base=0)
    assert graded(reward.ideal(1), 1, CITIES, reward).reward == 1.0
    assert choice_reward.ideal(None) is None


def test_choice_missing_column_names_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'solution'; the columns here are answer; name it with solution_column="):
        choice_reward(["B"], answer=["B"])
    assert ChoiceReward("answer", "options")(["Paris"], answer=["A"], options=[CITIES]) == [1.0]


def test_choice_conversational_forms_score_as_text() -> None:
    message = {"role": "assistant", "content": "Answer: B"}
    blocks = {"role": "assistant", "content": [{"type": "text", "text": "Answer: B"}]}
    turns = [{"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "content": "A"}, message]
    empty = [{"role": "assistant", "content": None}]
    assert choice_reward(["B", [message], [blocks], turns, empty], solution=["B"] * 5) == [1.0, 1.0, 1.0, 1.0, 0.0]


def test_choice_order_of_the_batch_does_not_matter() -> None:
    texts, golds, choices = ["B", "A", "Paris", "B"], ["B", "B", "A", None], [None, CITIES, CITIES, None]
    assert choice_reward(texts, solution=golds, choices=choices) == [1.0, 0.0, 1.0, None]
    assert choice_reward(texts[::-1], solution=golds[::-1], choices=choices[::-1]) == [None, 1.0, 0.0, 1.0]


def test_choice_survives_pickling() -> None:
    reward = pickle.loads(pickle.dumps(ChoiceReward("answer", index_base=0, name="letters")))
    assert reward.__name__ == "letters"
    assert reward(["B", "A"], answer=[1, 1]) == [1.0, 0.0]


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "(",
            "\\boxed{",
            "{",
            "<answer>",
            "Answer: ",
            "answer to w ",
            "answer ",
            "answer is A ",
            "is the correct answer ",
        ),
        *(
            "$",
            "**",
            "\x00",
            "\ud800",
            " ",
            "\n",
            "A/",
            "A or ",
            "would ",
            "\u0315\u0300",
            "中",
            "答案",
            "\\text{",
            "so ",
        ),
        *("(A) ", "####", "I choose ", "first ", "A\n", "ﷺ"),
    ],
)
@pytest.mark.parametrize("choices", [None, CITIES])
def test_choice_hostile_text_scores_zero(unit: str, choices: Any) -> None:
    assert graded(unit * (100_000 // len(unit)), choices=choices).reward == 0.0
    assert graded(unit * (99_000 // len(unit)) + "\n\\boxed{B}", choices=choices).reward == 1.0


def test_choice_answer_after_long_text_is_found() -> None:
    for filler in ("It is A. ", "word ", "x\n", "The answer is A. "):
        assert graded(filler * 10_000 + "\n\nThe answer is (B).").reward == 1.0


def test_read_statement_stops_at_the_reason() -> None:
    assert read_statement("B because it is larger than A or C", UNKNOWN) == read_statement("B", UNKNOWN)
    assert read_statement("B rather than C", UNKNOWN) == read_statement("B", UNKNOWN)


def test_comparable_leaves_what_tells_options_apart() -> None:
    assert comparable(" The **Days** will\nbecome $x$. ") == "days will become x"
    assert comparable("1.5") != comparable("15")
    assert comparable("-5") != comparable("5")


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared real data is not here")
@pytest.mark.parametrize("file", ["arc_challenge_test.jsonl", "arc_easy_train.jsonl"])
def test_choice_real_arc_rows_score_their_own_answers(file: str) -> None:
    for line in (DATA / file).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        labels, texts, gold = row["choices"]["label"], row["choices"]["text"], row["answerKey"]
        for label, text in zip(labels, texts, strict=True):
            for form in (
                "{0}",
                "({0}) {1}",
                "{0}. {1}",
                "The answer is {1}",
                "{1}",
                r"\boxed{{{0}}}",
                "Answer: {0}) {1}",
            ):
                assert graded(form.format(label, text), gold, row["choices"]).reward == float(label == gold)
