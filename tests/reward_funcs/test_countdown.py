from __future__ import annotations

import itertools
import json
import pickle
import random
from fractions import Fraction
from typing import Any

import pytest

from reward_funcs.base import Batch, Grade
from reward_funcs.countdown import (
    CountdownReward,
    NotAnExpression,
    Puzzle,
    countdown_reward,
    parsed_expression,
    solution_of,
)

GOLD = {"target": 24, "nums": [3, 8]}
EIGHTS = {"target": 24, "nums": [3, 3, 8, 8]}


def graded(text: Any, gold: Any = GOLD, reward: CountdownReward = countdown_reward) -> Grade:
    return reward.grade(Batch([text], {"solution": [gold]}))[0]


def tagged(expression: str) -> str:
    return f"<answer>{expression}</answer>"


@pytest.mark.parametrize(
    "expression",
    [
        *("3*8", "8 * 3", "3×8", "3 x 8", "(3)*(8)", "3*8 = 24", "3*8=24.", "3*8 = 48/2", "3 * 8 = 24.0", "-3 * -8"),
        *(r"$3 \times 8$", r"\(3 \cdot 8\)", r"3 \times 8 = 24", r"\left(3\right) \times 8", "$3*8$ = $24$"),
        *("**3*8**", "`3 * 8`", r"\boxed{3*8}", "３＊８", "[3]*{8}", " 3\n*\n8 "),
    ],
)
def test_countdown_right_expression_scores_one(expression: str) -> None:
    assert graded(tagged(expression)) == Grade(1.0, "correct", graded(tagged(expression)).answer)


@pytest.mark.parametrize("expression", ["8/(3-8/3)", "8 ÷ (3 - 8 ÷ 3)", r"\frac{8}{3-\dfrac{8}{3}}", r"8 \div (3-8/3)"])
def test_countdown_fractions_are_exact(expression: str) -> None:
    assert graded(tagged(expression), EIGHTS).reward == 1.0


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "3**8",
            "3^8",
            "3 8",
            "3*8 apples",
            "__import__('os')",
            "3*8;",
            "(3*8",
            "3*8)",
            "3(8)",
            "+3*8",
            "03*8",
            "3*8!",
        ),
        *("3//8", "3³", "½", r"\frac38", "3,8", "\x00", "\ud800", "sum(3,8)", "1e1", "3*.8", "()", "3*", r"\sqrt{3}*8"),
    ],
)
def test_countdown_other_notation_is_no_expression(expression: str) -> None:
    assert graded(tagged(expression))[:2] == (0.0, "not_an_expression")


@pytest.mark.parametrize("expression", ["38", "24", "3*8*1", "3*8+3-3", "3.0*8", "3"])
def test_countdown_other_numbers_score_zero(expression: str) -> None:
    assert graded(tagged(expression))[:2] == (0.0, "wrong_numbers")


def test_countdown_digits_beside_each_other_make_no_number() -> None:
    assert graded(tagged(r"3\,8"), {"target": 38, "nums": [38]}).reason == "not_an_expression"
    assert graded(tagged("3 8"), {"target": 38, "nums": [38]}).reason == "not_an_expression"


@pytest.mark.parametrize("expression", ["3+8=24", "3*8=25", "3*8=24=24", "3*8=", "3*8=a", "3*8=1/0", "25=3*8"])
def test_countdown_false_or_unclear_equation_scores_zero(expression: str) -> None:
    assert graded(tagged(expression))[:2] == (0.0, "false_equation")


@pytest.mark.parametrize("expression", ["8/(3-3)", r"\frac{8}{3-3}", "8/(3-3)=24"])
def test_countdown_division_by_zero_scores_zero(expression: str) -> None:
    reward = CountdownReward(format_score=0.1)
    assert graded(tagged(expression), {"target": 24, "nums": [8, 3, 3]}, reward)[:2] == (0.0, "division_by_zero")


def test_countdown_format_score_is_for_right_numbers_only() -> None:
    reward = CountdownReward(format_score=0.1)
    assert graded(tagged("3+8"), reward=reward)[:2] == (0.1, "wrong")
    assert graded(tagged("3"), reward=reward)[:2] == (0.0, "wrong_numbers")
    assert graded(tagged("three"), reward=reward)[:2] == (0.0, "not_an_expression")


def test_countdown_subset_counts_only_where_allowed() -> None:
    gold, some = {"target": 24, "nums": [3, 8, 7]}, CountdownReward(use_all=False)
    assert graded(tagged("3*8"), gold, some).reward == 1.0
    assert graded(tagged("3*8"), gold).reason == "wrong_numbers"
    assert graded(tagged("3*8+3-3"), gold, some).reason == "wrong_numbers"


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (r"\boxed{3*8}", 1.0),
        ("Answer: 3*8", 1.0),
        ("The answer is $3*8$.", 1.0),
        ("<think>9</think>Answer: 3 * 8 = 24", 1.0),
        (r"it is \boxed{24}, so <answer>3*8</answer>", 1.0),
        (r"\boxed{3+8} no: \boxed{3*8}", 1.0),
        ("3*8", 0.0),
        ("<think><answer>3*8</answer></think>", 0.0),
        ("<think><answer>3*8</answer>", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_countdown_answer_is_read_where_it_is_stated(text: Any, reward: float) -> None:
    assert graded(text).reward == reward


@pytest.mark.parametrize(
    "text",
    [tagged("3*8") * 2, tagged(tagged("3*8")), tagged("3+8") + tagged("3*8"), r"\boxed{3*8} or \boxed{8+3}"],
)
def test_countdown_several_answers_score_zero(text: str) -> None:
    assert graded(text)[:2] == (0.0, "several_answers")


@pytest.mark.parametrize(
    "gold",
    [
        *(None, "", "x", "[]", "{}", 5, [1], {"target": 24}, {"target": 24, "nums": []}, {"target": "a", "nums": [1]}),
        *({"target": True, "nums": [1]}, {"target": float("nan"), "nums": [1]}, '{"target": 1e999, "nums": [1]}'),
        *('{"target": 24, "nums": [1, null]}', "[" * 100_000, '{"target": ' + "9" * 5000 + ', "nums": [1]}'),
    ],
)
def test_countdown_broken_gold_cannot_be_judged(gold: Any) -> None:
    assert graded(tagged("3*8"), gold) == Grade(None, "bad_gold")
    assert countdown_reward.ideal(gold) is None


def test_countdown_decimals_and_signs_are_those_of_the_gold() -> None:
    assert graded(tagged("0.1+0.2"), {"target": 0.3, "nums": [0.1, 0.2]}).reward == 1.0
    assert graded(tagged("-3+8"), {"target": 5, "nums": [-3, 8]}).reward == 1.0
    assert graded(tagged("8 - 3"), {"target": 5, "nums": [-3, 8]}).reward == 1.0


def test_countdown_columns_target_and_nums_are_a_gold() -> None:
    assert countdown_reward([tagged("3*8")], target=[24], nums=[[3, 8]]) == [1.0]
    mixed = countdown_reward(
        [tagged("3*8")] * 2, solution=[None, json.dumps(GOLD)], target=[24, None], nums=[[3, 8], None]
    )
    assert mixed == [1.0, 1.0]


def test_countdown_missing_column_names_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"needs the column 'solution'; the columns here are puzzle"):
        countdown_reward(["3*8"], puzzle=[GOLD])


@pytest.mark.parametrize("score", [-0.1, 1.0, float("nan")])
def test_countdown_format_score_out_of_range_raises(score: float) -> None:
    with pytest.raises(ValueError, match=r"format_score=.*at least 0 and below 1"):
        CountdownReward(format_score=score)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 100_000,
        "-" * 100_000 + "3",
        "9" * 100_000,
        "1+" * 50_000,
        "\\frac{" * 20_000,
        "\x00" * 100_000,
        "9*" * 499,
    ],
)
def test_countdown_hostile_text_is_no_expression(expression: str) -> None:
    assert graded(tagged(expression))[:2] == (0.0, "not_an_expression")


def test_countdown_nesting_is_bounded() -> None:
    assert graded(tagged("(" * 40 + "3" + ")" * 40 + "*8")).reward == 1.0
    assert graded(tagged("(" * 41 + "3" + ")" * 41 + "*8")).reason == "not_an_expression"


def test_countdown_conversational_forms_score_as_text() -> None:
    message = {"role": "assistant", "content": tagged("3*8")}
    blocks = {"role": "assistant", "content": [{"type": "text", "text": tagged("3*8")}]}
    turns = [{"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "content": "24"}, message]
    assert countdown_reward([tagged("3*8"), [message], [blocks], turns], solution=[GOLD] * 4) == [1.0] * 4


def test_countdown_order_of_the_batch_does_not_matter() -> None:
    texts, golds = [tagged("3*8"), tagged("3+8"), tagged("8/(3-8/3)")], [GOLD, GOLD, EIGHTS]
    forwards = countdown_reward(texts, solution=golds)
    assert forwards == [1.0, 0.0, 1.0]
    assert countdown_reward(texts[::-1], solution=golds[::-1]) == forwards[::-1]


def test_countdown_survives_pickling() -> None:
    reward = pickle.loads(pickle.dumps(CountdownReward(use_all=False, format_score=0.1, name="numbers")))
    assert reward.__name__ == "numbers"
    assert reward([tagged("3"), tagged("8")], solution=[GOLD, {"target": 8, "nums": [8, 1]}]) == [0.1, 1.0]


@pytest.mark.parametrize("seed", range(8))
def test_parsed_expression_agrees_with_python(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        text, value = _random_expression(rng, 5)
        assert parsed_expression(text)[0] == value


def _random_expression(rng: random.Random, size: int) -> tuple[str, Fraction]:
    if size == 1:
        number = rng.randint(1, 99)
        return str(number), Fraction(number)
    cut = rng.randint(1, size - 1)
    (left, a), (right, b) = _random_expression(rng, cut), _random_expression(rng, size - cut)
    results = {"+": a + b, "-": a - b, "*": a * b}
    if b:
        results["/"] = a / b
    sign = rng.choice(sorted(results))
    return f"({left} {sign} {right})", results[sign]


def test_parsed_expression_precedence_and_association() -> None:
    assert parsed_expression("2+3*4")[0] == 14
    assert parsed_expression("10-4-3")[0] == 3
    assert parsed_expression("24/4/3")[0] == 2
    assert parsed_expression("-2*3+10")[0] == 4
    with pytest.raises(NotAnExpression):
        parsed_expression("")


def _reachable(nums: list[Fraction], target: Fraction) -> bool:
    if len(nums) == 1:
        return nums[0] == target
    for i, j in itertools.permutations(range(len(nums)), 2):
        rest = [num for k, num in enumerate(nums) if k not in (i, j)]
        a, b = nums[i], nums[j]
        values = [a + b, a - b, a * b, *([a / b] if b else [])]
        if any(_reachable([*rest, value], target) for value in values):
            return True
    return False


@pytest.mark.parametrize("seed", range(30))
def test_solution_agrees_with_exhaustive_search(seed: int) -> None:
    rng = random.Random(seed)
    nums = tuple(Fraction(rng.randint(0, 12)) for _ in range(rng.choice([1, 2, 3, 4])))
    target = Fraction(rng.randint(0, 60))
    found = solution_of(Puzzle(target, nums))
    assert (found is not None) == _reachable(list(nums), target)
    if found is not None:
        assert parsed_expression(found)[0] == target


@pytest.mark.parametrize(
    "gold",
    [
        EIGHTS,
        {"target": 952, "nums": [3, 6, 25, 50, 75, 100]},
        {"target": 0, "nums": [0, 1, 2, 3, 4]},
        {"target": -7, "nums": [-7]},
        {"target": -0.5, "nums": [-2, 0.25]},
        json.dumps({"target": 98, "nums": [44, 19, 35]}),
    ],
)
def test_countdown_ideal_scores_one(gold: Any) -> None:
    assert countdown_reward([countdown_reward.ideal(gold)], solution=[gold]) == [1.0]


def test_countdown_ideal_without_solution_is_none() -> None:
    assert countdown_reward.ideal({"target": 1000, "nums": [1, 2]}) is None
    assert CountdownReward(use_all=False).ideal({"target": 7, "nums": [1, 2, 7]}) == "<answer>7</answer>"
    assert countdown_reward.ideal({"target": 7, "nums": [1] * 7}) is None  # more numbers than it searches


@pytest.mark.parametrize("expression", ["24=3*8", "24 = 3 * 8", "$24 = 3 \\times 8$", "24.0=8*3"])
def test_countdown_value_may_stand_first(expression: str) -> None:
    assert graded(tagged(expression)).reward == 1.0


@pytest.mark.parametrize("expression", ["(3]*8", "[3)*8", "{3)*8", "(3*[8)]", r"\frac{24)(1}", "3*8)", "(3*8"])
def test_countdown_brackets_that_do_not_match_are_no_expression(expression: str) -> None:
    assert graded(tagged(expression))[:2] == (0.0, "not_an_expression")


@pytest.mark.parametrize("nums", ["[3, 8]", "3, 8", "3 8", "[3 8]", ["3", "8"], ("3", 8.0), '["3", "8"]'])
@pytest.mark.parametrize("target", [24, "24", " 24 ", 24.0])
def test_countdown_numbers_of_a_csv_file_are_read(nums: Any, target: Any) -> None:
    assert countdown_reward([tagged("3*8")], target=[target], nums=[nums]) == [1.0]
    assert graded(tagged("3*8"), {"target": target, "nums": nums}).reward == 1.0


@pytest.mark.parametrize("nums", ["", "[]", "three, 8", "3/4 8", "1e3 8", ["3", ""], [["3"], "8"], ","])
def test_countdown_texts_that_are_no_numbers_cannot_be_judged(nums: Any) -> None:
    assert graded(tagged("3*8"), {"target": 24, "nums": nums}) == Grade(None, "bad_gold")


def test_countdown_arrays_are_numbers() -> None:
    np = pytest.importorskip("numpy")
    assert countdown_reward([tagged("3*8")] * 2, target=np.array([24, 24]), nums=np.array([[3, 8], [3, 9]])) == [
        1.0,
        0.0,
    ]
