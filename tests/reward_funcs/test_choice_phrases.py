"""Choice reward: hedges, statements taken back, and the many ways to announce an answer."""

import array

import pytest

from reward_funcs._options import UNKNOWN, Options, names_others, read_statement
from reward_funcs.base import Batch
from reward_funcs.choice import ChoiceReward, choice_reward

CITIES = ["Paris", "Rome", "Berlin", "Madrid"]


def graded(text, gold="B", choices=None, reward=choice_reward):
    return reward.grade(Batch([text], {"solution": [gold], "choices": [choices]}))[0]


@pytest.mark.parametrize(
    "text",
    [
        *("<answer>B C D</answer>", "<answer>B A C</answer>", "<answer>B, unless C</answer>", r"\boxed{B A C D}"),
        *(
            r"\boxed{B||C}",
            r"\boxed{B\\C}",
            r"\boxed{B\lor C}",
            r"\boxed{B \vee C}",
            r"\boxed{B -> C}",
            r"\boxed{B \to C}",
        ),
        *(
            r"\boxed{B \cup C}",
            r"\boxed{B, unless C}",
            r"\boxed{B or maybe C}",
            r"\boxed{(B) (C)}",
            r"\boxed{(B) unless (C)}",
        ),
        *(
            "The answer is B and maybe C",
            "The answer is B, or perhaps C.",
            "The answer is B\nor C",
            "The answer is B\n\nor C.",
        ),
        *("The answer is B (or C)", "Answer: B -> C", "Answer: B || C", "B\nor C"),
    ],
)
def test_choice_hedge_by_juxtaposition_scores_zero(text):
    assert graded(text).reward == 0.0


@pytest.mark.parametrize(
    "text",
    [
        *(
            "Rome (or Paris)",
            "The answer is Rome (or Paris)",
            "The answer is Rome or maybe Paris",
            r"\boxed{Rome Paris}",
        ),
        *("the second option and the third option", "The answer is the second option or the third option"),
        *(r"\boxed{Rome, unless Paris}", "option 2 or option 3", "The answer is 2, 3", r"\boxed{2 3}"),
    ],
)
def test_choice_hedge_between_known_options_scores_zero(text):
    assert graded(text, "B", CITIES).reward == 0.0


@pytest.mark.parametrize(
    "text",
    [
        *(
            "<answer>B. Vitamin A deficiency</answer>",
            "<answer>B) Type A and type C</answer>",
            r"\boxed{B) C is a constant}",
        ),
        *(
            "<answer>B because A and C are wrong</answer>",
            r"\boxed{\textbf{(B) } A \cup C}",
            "<answer>B, not C</answer>",
        ),
        *(r"\boxed{\text{B. The set A is finite}}", "<answer>B: I think A fits less</answer>", "Answer: (B) A -> C"),
        *("The answer is B.\nAnd C is wrong", "The answer is B\nor so I think", "<answer>B - a set A</answer>"),
    ],
)
def test_choice_letters_in_the_text_of_the_option_are_no_hedge(text):
    assert graded(text).reward == 1.0


@pytest.mark.parametrize(
    "text",
    [
        *(
            "I don't think B is the correct answer",
            "I doubt that B is the correct answer.",
            "I never said B is the correct answer",
        ),
        *(
            "It is wrong that B is the correct answer",
            "B is the correct answer? No.",
            "B is the correct answer is false",
        ),
        *(
            "The answer is B is false",
            "The answer is B? No.",
            "The answer is (B) is not right",
            "Is B the correct answer?",
        ),
        *("I wouldn't say that B is the correct answer", "It cannot be said that B is the correct answer"),
    ],
)
def test_choice_statement_taken_back_scores_zero(text):
    assert graded(text).reward == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "A is not right, so B is the correct answer",
        "Since A doesn't hold, B is the correct answer.",
        "A? No, B is the correct answer",
    ],
)
def test_choice_negation_of_another_option_does_not_matter(text):
    assert graded(text).reward == 1.0


@pytest.mark.parametrize(
    "text",
    [
        *(
            "The answer has to be B",
            "The answer, therefore, is B.",
            "The answer seems to be B",
            "The answer must thus be B",
        ),
        *("Answer – B", "Answer - B", "So the answer's B", "The answer is thus B", "The answer is, I think, B"),
        *(
            "I'd go with B",
            "It is B.",
            "So it's B",
            "It's (B)!",
            "Hence, B.",
            "Hence B",
            "Therefore, **B**.",
            "So it is B because of A",
        ),
        *(
            "La respuesta correcta es la B",
            "La respuesta es la opción B",
            "La réponse est la B",
            "Die Antwort ist die B",
        ),
        *("选B", "我选择 B。", "选项A是错误的,选B", "The correct statement is B", "The correct alternative is B"),
        *("B<|im_end|>", "The answer is B.</s>\n", r"\boxed{B}<|eot_id|>"),
    ],
)
def test_choice_announcement_scores_one(text):
    assert graded(text).reward == 1.0
    assert graded(f"First we look at it.\n{text}").reward == 1.0
    assert graded(text, "C").reward == 0.0


@pytest.mark.parametrize(
    "text", ["It is B vitamins", "Hence, B vitamins help", "Suppose it is B.", "it is b", "不选B", "如果选B"]
)
def test_choice_brief_words_announce_nothing_else(text):
    assert graded(text).reward == 0.0
    assert graded(f"Answer: C\n{text}", "C").reward == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "2",
        "So the answer is 2.",
        "the answer is 2",
        r"\boxed{2}",
        "<answer>2</answer>",
        "Answer: 2",
        "option 2",
        "option 2: Rome",
    ],
)
def test_choice_number_is_a_place_where_it_can_be_no_value(text):
    assert graded(text, "B", CITIES).reward == 1.0
    assert graded(text, "C", CITIES).reward == 0.0
    if "option" not in text:
        # 2 m is the third, and nothing else is meant by 2
        assert graded(text, "B", ["3 m", "5 m", "2 m"]).reward == 0.0
        assert graded(text, "C", ["3", "5", "2"]).reward == 1.0


def test_choice_text_with_its_label_behind_is_that_option():
    for text in ("Rome (B)", "Rome (option B).", "It lies in Italy.\nRome (B)", r"\boxed{\text{Rome (B)}}"):
        assert graded(text, "B", CITIES).reward == 1.0
    assert graded("Rome (A)", "B", CITIES)[:2] == (0.0, "contradiction")


def test_choice_arrays_and_floats_of_a_table_are_golds():
    from_zero = ChoiceReward(index_base=0)
    assert from_zero(["B", "C"], solution=array.array("i", [1, 1])) == [1.0, 0.0]
    assert from_zero(["B"], solution=[1.0]) == [1.0]
    assert choice_reward(["Rome"], solution=["B"], choices=[{"text": tuple(CITIES), "label": tuple("ABCD")}]) == [1.0]


def test_choice_numpy_values_are_golds():
    np = pytest.importorskip("numpy")
    options = {"text": np.array(CITIES), "label": np.array(list("ABCD"))}
    assert choice_reward(["Rome", "Rome"], solution=np.array(["B", "A"]), choices=[options] * 2) == [1.0, 0.0]
    assert ChoiceReward(index_base=0)(["B"], solution=[np.int64(1)]) == [1.0]


def test_names_others_articles_and_variables_are_none():
    for text in ("B, a dog", "B, A dog", "B, X = 5", "B", "B, vitamin X"):
        assert not names_others(text, read_statement(text, UNKNOWN), UNKNOWN), text
    known = Options({"A": 0, "B": 1}, ("north", "northern lights"), True)
    assert not names_others("northern lights", read_statement("northern lights", known), known)


@pytest.mark.parametrize(
    "unit", ["it is ", "so ", "选", "hence B ", "\nor ", "B is the correct answer? ", "B (or ", "-> "]
)
def test_choice_hostile_phrases_score_zero(unit):
    text = unit * (100_000 // len(unit))
    assert graded(text, "C", CITIES).reward == graded(text, "C").reward == 0.0
