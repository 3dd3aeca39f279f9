from __future__ import annotations

import pickle
from typing import Any

import pytest

from reward_funcs.base import Batch, Grade
from reward_funcs.text import EXTRACTIONS, ExactMatchReward, compatible, exact_match_reward, unwrapped

F1 = ExactMatchReward(metric="f1")


def graded(text: Any, gold: Any = "Paris", reward: ExactMatchReward = exact_match_reward) -> Grade:
    return reward.grade(Batch([text], {"solution": [gold]}))[0]


@pytest.mark.parametrize(
    "text",
    [
        *("Paris", "paris.", " PARIS ", "**Paris**", "the Paris", "$\\text{Paris}$", '"Paris"', "Ｐａｒｉｓ"),
        *(
            r"\boxed{Paris}",
            r"so \boxed{\text{Paris}}.",
            "<answer>Paris</answer>",
            "Answer: Paris",
            "**Answer:** Paris.",
        ),
        *("The answer is Paris.", "<think>Rome</think>Paris", r"\boxed{Rome} no, \boxed{Paris}", "Answer:\nParis"),
        *("<answer>\\boxed{Paris}</answer>", r"\boxed{Paris} and \boxed{paris}"),
    ],
)
def test_exact_match_same_answer_scores_one(text: str) -> None:
    assert graded(text)[:2] == (1.0, "correct")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *(("Rome", "wrong"), ("Paris, France", "wrong"), (r"\boxed{Rome} Paris", "wrong"), ("it is Paris", "wrong")),
        *(("", "no_answer"), (None, "no_answer"), ("<think>Paris</think>", "no_answer"), ("<think>Paris", "no_answer")),
        *((r"\boxed{}", "no_answer"), (r"\boxed{Paris} or \boxed{Rome}", "several_answers")),
        ("<answer>Paris</answer><answer>Paris</answer>", "several_answers"),
        ("<answer><answer>Paris</answer></answer>", "several_answers"),
    ],
)
def test_exact_match_other_answer_scores_zero(text: Any, reason: str) -> None:
    assert graded(text)[:2] == (0.0, reason)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        *(("U.S.A.", "usa", True), ("don't", "dont", True), ("The Who", "who", True), ("a  dog\n", "dog", True)),
        *(("Vitamin A", "vitamin", False), ("group a", "group b", False), ("A", "the A", True), ("the", "the", True)),
        *(("1.5", "15", False), ("-5", "5", False), ("−5", "-5", True), ("$5", "5", True), ("1,000", "1000", True)),
        *(("x<5", "x>5", False), ("C++", "C", False), ("?", "!", False), ("?", "?", True), ("«oui»", "oui", True)),
        *(("Straße", "STRASSE", True), ("é", "e\u0301", True), ("café", "cafe", False), ("ﬁne", "fine", True)),
        *(
            ("北京。", "北京", True),
            ("北 京", "北京", True),
            ("北京", "东京", False),
            ("서울 시", "서울시", True),
            ("กรุงเทพ", "กรุงเทพ", True),
        ),
        *(("हिन्दी", "हिन्दी", True), ("हिन्दी", "हन्दी", False), ("2 apples", "2apples", False)),
    ],
)
def test_exact_match_normalisation_by_hand(one: str, other: str, same: bool) -> None:
    assert graded(f"<answer>{one}</answer>", other).reward == float(same)
    assert graded(other, one).reward == float(same)
    assert graded(one, one).reward == 1.0


@pytest.mark.parametrize(
    ("answer", "gold", "value"),
    [
        ("Gustave Eiffel", "Eiffel", 2 / 3),  # P 1/2, R 1
        ("the cat sat", "a cat sat down", 4 / 5),  # P 2/2, R 2/3
        ("cat cat", "cat", 2 / 3),  # a word counts as often as both have it
        ("我爱北京", "北京", 2 / 3),  # by character: P 2/4, R 1
        ("東京タワー", "東京", 4 / 7),
        ("서울시", "서울", 4 / 5),
        ("dog", "cat", 0.0),
        ("Eiffel, Gustave", "gustave eiffel", 1.0),
    ],
)
def test_f1_by_hand(answer: str, gold: str, value: float) -> None:
    assert graded(answer, gold, F1).reward == pytest.approx(value, abs=1e-15)
    assert graded(gold, answer, F1).reward == pytest.approx(value, abs=1e-15)


def test_f1_of_partly_right_answer_says_partial() -> None:
    assert graded("Gustave Eiffel", "Eiffel", F1).reason == "partial"


def test_exact_match_best_of_several_golds_counts() -> None:
    assert graded("USA", ["United States", "USA"]).reward == 1.0
    assert graded("USA", {"text": ["United States", "USA"], "answer_start": [0, 9]}).reward == 1.0
    assert graded("United", ["States", "United States", None], F1).reward == pytest.approx(2 / 3)
    assert graded("42", 42).reward == 1.0
    assert graded("true", True).reward == 1.0


@pytest.mark.parametrize("gold", [None, "", "  ", [], [None, ""], {}, {"text": []}, float("nan"), object(), "$ $"])
def test_exact_match_broken_gold_cannot_be_judged(gold: Any) -> None:
    assert graded("Paris", gold) == Grade(None, "bad_gold")


@pytest.mark.parametrize(
    ("extraction", "text", "reward"),
    [
        *(("last_boxed", r"\boxed{Paris}", 1.0), ("last_boxed", "Paris", 0.0), ("last_boxed", "Answer: Paris", 0.0)),
        *(("answer_tag", "<answer>Paris</answer>", 1.0), ("answer_tag", r"\boxed{Paris}", 0.0)),
        *(("answer_tag", r"\boxed{Rome}<answer>Paris</answer>", 1.0), ("final_answer", "Answer: Paris", 1.0)),
        *(("final_answer", "Paris", 0.0), ("whole", "Paris", 1.0), ("whole", "Answer: Paris", 0.0)),
    ],
)
def test_exact_match_extraction_is_the_one_asked_for(extraction: str, text: str, reward: float) -> None:
    assert graded(text, reward=ExactMatchReward(extraction=extraction)).reward == reward


@pytest.mark.parametrize("extraction", EXTRACTIONS)
def test_exact_match_ideal_scores_one(extraction: str) -> None:
    reward = ExactMatchReward(extraction=extraction)
    for gold in ("Paris", ["Paris", "Lutetia"], 42):
        assert graded(reward.ideal(gold), gold, reward).reward == 1.0
    assert reward.ideal(None) is None


def test_exact_match_settings_switch_each_normalisation_off() -> None:
    assert graded("paris", reward=ExactMatchReward(ignore_case=False)).reward == 0.0
    assert graded("Paris!", reward=ExactMatchReward(ignore_punctuation=False)).reward == 0.0
    assert graded("the Paris", reward=ExactMatchReward(ignore_articles=False)).reward == 0.0
    assert graded("paris", reward=ExactMatchReward(normalize=False)).reward == 0.0
    assert graded("**Paris**", reward=ExactMatchReward(normalize=False)).reward == 1.0
    assert graded("Gustave Eiffel", "Eiffel", ExactMatchReward(normalize=False, metric="f1")).reward == 2 / 3


@pytest.mark.parametrize("setting", [{"metric": "bleu"}, {"extraction": "boxed"}])
def test_exact_match_unknown_setting_raises(setting: dict[str, str]) -> None:
    [(argument, value)] = setting.items()
    with pytest.raises(ValueError, match=f"{argument}='{value}' is unknown; use one of '"):
        ExactMatchReward(**setting)  # type: ignore[arg-type]


def test_exact_match_missing_column_names_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'solution'; the columns here are answer; name it with solution_column="):
        exact_match_reward(["Paris"], answer=["Paris"])
    assert ExactMatchReward(solution_column="answer")(["Paris"], answer=["Paris"]) == [1.0]


def test_exact_match_conversational_forms_score_as_text() -> None:
    message = {"role": "assistant", "content": "Answer: Paris"}
    blocks = {"role": "assistant", "content": [{"type": "text", "text": "Answer: Paris"}]}
    turns = [{"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "content": "Rome"}, message]
    empty = [{"role": "assistant", "content": None}]
    rewards = exact_match_reward(["Paris", [message], [blocks], turns, empty], solution=["Paris"] * 5)
    assert rewards == [1.0, 1.0, 1.0, 1.0, 0.0]


def test_exact_match_order_of_the_batch_does_not_matter() -> None:
    texts, golds = ["Paris", "Rome", "", "Bern"], ["Paris", "Paris", "Paris", None]
    assert exact_match_reward(texts, solution=golds) == [1.0, 0.0, 0.0, None]
    assert exact_match_reward(texts[::-1], solution=golds[::-1]) == [None, 0.0, 0.0, 1.0]


def test_exact_match_survives_pickling() -> None:
    reward = pickle.loads(pickle.dumps(ExactMatchReward(metric="f1", name="f1")))
    assert reward.__name__ == "f1"
    assert reward(["Gustave Eiffel"], solution=["Eiffel"]) == [2 / 3]


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "\\boxed{",
            "<answer",
            "Answer: ",
            "$",
            "**",
            "\x00",
            "\ud800",
            " ",
            "\n",
            "中",
            "\u0315\u0300",
            "½",
            "-",
            "_",
        ),
        *("the ", "\\text{", "}", "'", "a\u0301"),
    ],
)
@pytest.mark.parametrize("reward", [exact_match_reward, ExactMatchReward(metric="f1", extraction="whole")])
def test_exact_match_hostile_text_scores_zero(unit: str, reward: ExactMatchReward) -> None:
    assert graded(unit * (100_000 // len(unit)), reward=reward).reward == 0.0
    assert graded("<answer>" + unit * (99_000 // len(unit)) + "</answer>", reward=reward).reward == 0.0


def test_compatible_long_run_of_marks_is_cut() -> None:
    assert compatible("a\u0315\u0300" + "b" * 2000) == "\u00e0\u0315" + "b" * 2000
    assert len(compatible("x" + "\u0315" * 5000)) == 31
    assert compatible("Ⅷ ２") == "VIII 2"


@pytest.mark.parametrize(
    ("wrapped", "inner"),
    [
        *(
            ("$5$ or $6$", "$5$ or $6$"),
            (r"\text{a} b \text{c}", r"\text{a} b \text{c}"),
            (r"\(x\)", "x"),
            ("$$", "$$"),
        ),
        *((r"\text{a{b}c}", "a{b}c"), ("“x”", "x"), ("*", "*"), ("", ""), (r"\mathrm{\textbf{x}}", "x")),
    ],
)
def test_unwrapped_takes_only_what_is_around_all_of_it(wrapped: str, inner: str) -> None:
    assert unwrapped(wrapped) == inner


@pytest.mark.parametrize("minus", ["-", "–", "—", "−", "‒", "－"])
@pytest.mark.parametrize("form", ["{}1.5", "{} 1.5", "${}1.5$", "The answer is {}1.5.", r"\boxed{{{}1.5}}"])
def test_exact_match_any_dash_before_a_number_is_its_sign(minus: str, form: str) -> None:
    text = form.format(minus)
    assert graded(text, "1.5").reward == 0.0
    assert graded(text, "-1.5").reward == graded(text, "−1.5").reward == graded(text, -1.5).reward == 1.0


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        *(("C#", "C", 0.0), ("C", "C#", 0.0), ("c#", "C#", 1.0), ("C++", "C", 0.0), ("#5", "5", 1.0)),
        *(
            ("10%", "10", 0.0),
            ("10", "10%", 0.0),
            ("10 %", "10%", 1.0),
            (r"\boxed{10\%}", "10%", 1.0),
            ("10%.", "10%", 1.0),
        ),
        *((".5", "5", 0.0), (".5", ".5", 1.0), ("well-known", "wellknown", 1.0), ("1990–1995", "1990-1995", 1.0)),
        *(("The answer is John F. Kennedy.", "John F. Kennedy", 1.0), ("The answer is U.S. Steel.", "US Steel", 1.0)),
    ],
)
def test_exact_match_signs_that_belong_to_a_word(text: str, gold: str, expected: float) -> None:
    assert graded(text, gold).reward == expected


def test_exact_match_arrays_and_floats_of_a_table_are_golds() -> None:
    np = pytest.importorskip("numpy")
    assert exact_match_reward(["5", "6"], solution=np.array([5, 5])) == [1.0, 0.0]
    assert exact_match_reward(["5", "5.0", "5.5"], solution=[5.0, 5.0, 5.0]) == [1.0, 1.0, 0.0]
    assert exact_match_reward(["6", "x"], solution=[np.array(["5", "6"]), {"text": np.array(["x"])}]) == [1.0, 1.0]
    assert exact_match_reward(["5", "x"], solution=np.array([5.0, np.nan])) == [1.0, None]
    assert exact_match_reward.ideal(5.0) == "<answer>5</answer>"


@pytest.mark.parametrize("unit", ["- ", "–", "\\%", " %", "1 ", "$", "."])
def test_exact_match_hostile_signs_are_finished(unit: str) -> None:
    assert graded(unit * (100_000 // len(unit)), "Paris").reward == 0.0
