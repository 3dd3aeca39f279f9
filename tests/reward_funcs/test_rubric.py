"""The arithmetic of rubrics: weights, faults, required and missing criteria, aggregations, and what they report."""

from __future__ import annotations

import asyncio
import functools
import itertools
import pickle
import random
from typing import Any

import pytest

from reward_funcs import AccuracyReward, AsyncReward, Gate, Reward, Sum, accuracy_reward, think_format_reward
from reward_funcs.base import Batch, Grade
from reward_funcs.check import check_golds
from reward_funcs.judge import CallableJudge, Judge, JudgeTask, Verdict
from reward_funcs.rubric import Criterion, Rubric

QUESTION = "If a train travels 120 km in 2 hours, what is its average speed?"
OUTPUT = "The average speed is 60 km/h because speed equals distance divided by time."


class TableJudge(Judge):
    """Gives the scores that a table holds for a text, or fails for its cause; it remembers what it was asked."""

    def __init__(self, table: dict[str, Any]) -> None:
        super().__init__()
        self.table = table
        self.tasks: list[JudgeTask] = []

    def replies(self, requests: Any, deadline: float) -> Any:
        raise NotImplementedError

    def score(self, tasks: Any) -> list[Verdict]:
        self.tasks += tasks
        found = [self.table[task.completion] for task in tasks]
        return [
            Verdict({}, {}, one)
            if isinstance(one, str)
            else Verdict({c.name: float(one[c.name]) for c in task.scored()}, {c.name: "why" for c in task.scored()})
            for task, one in zip(tasks, found, strict=True)
        ]


def fixed(*scores: float | None) -> Any:
    """A scorer that returns these for the first completions, and the last of them for all others."""
    return functools.partial(_fixed, scores)


def _fixed(scores: Any, completions: Any, **columns: Any) -> list[float | None]:
    return [scores[min(index, len(scores) - 1)] for index in range(len(completions))]


def by_length(completions: Any, **columns: Any) -> list[float]:
    return [float(min(len(text), 5)) for text in completions]


def rule(name: str, score: float | None, **settings: Any) -> Criterion:
    return Criterion(name, name, scorer=fixed(score), **settings)


def reward(*criteria: Criterion, **settings: Any) -> float | None:
    return Rubric(criteria, **settings)(["text"])[0]


# --- the worked example ---------------------------------------------------------------------------------------------


def test_worked_example_of_the_source_is_exactly_one() -> None:
    judge = TableJudge({OUTPUT: {"correctness": 5, "reasoning": 3, "clarity": 2}})
    rubric = Rubric.from_preset("correctness_reasoning_clarity", judge=judge)
    assert rubric([OUTPUT], prompts=[QUESTION]) == [1.0]
    assert sum(one.max_score for one in rubric.criteria) == 10
    assert judge.tasks[0].prompt == QUESTION and judge.tasks[0].completion == OUTPUT


@pytest.mark.parametrize(
    ("scores", "expected"), [((5, 3, 2), 1.0), ((0, 3, 2), 0.5), ((5, 0, 0), 0.5), ((2, 1, 1), 0.4), ((0, 0, 0), 0.0)]
)
def test_reward_is_the_share_of_the_points(scores: tuple[int, int, int], expected: float) -> None:
    names = ("correctness", "reasoning", "clarity")
    judge = TableJudge({"x": dict(zip(names, scores, strict=True))})
    assert Rubric.from_preset("correctness_reasoning_clarity", judge=judge)(["x"]) == [expected]


# --- weights, faults, required --------------------------------------------------------------------------------------


def test_weights_multiply_scores_and_maxima() -> None:
    # (2 * 3 + 0.5 * 4) / (2 * 5 + 0.5 * 4) = 8 / 12
    assert reward(rule("a", 3, weight=2.0), rule("b", 4, max_score=4, weight=0.5)) == pytest.approx(8 / 12, abs=1e-15)


@pytest.mark.parametrize("weights", list(itertools.product([0.1, 0.3, 0.7, 0.9], repeat=3)))
def test_full_marks_are_exactly_one_for_any_weights(weights: tuple[float, ...]) -> None:
    assert reward(*(rule(f"c{n}", 5, weight=weight) for n, weight in enumerate(weights))) == 1.0


@pytest.mark.parametrize(("fault", "expected"), [(0, 0.8), (-1, 0.6), (-3, 0.2), (-4, 0.0), (-5, 0.0)])
def test_fault_costs_points_and_is_clipped_at_zero(fault: float, expected: float) -> None:
    # (4 - fault) / 5: what a fault could cost is not in the denominator
    value = reward(rule("a", 4), rule("fault", fault, max_score=0, min_score=-5))
    assert value == pytest.approx(expected, abs=1e-15)


def test_weight_zero_is_logged_and_does_not_count() -> None:
    metrics: dict[str, float] = {}
    rubric = Rubric([rule("a", 4), rule("b", 1, weight=0.0)])
    assert rubric(["x"], log_metric=metrics.__setitem__) == [0.8]
    assert metrics["rubric_reward/b"] == 1.0
    assert reward(rule("a", 4), rule("b", None, weight=0.0)) == 0.8


def test_lowest_score_above_zero_stays_in_the_share() -> None:
    assert reward(rule("a", 1, min_score=1)) == 0.2


@pytest.mark.parametrize(("score", "expected"), [(0, 0.0), (1, 0.6), (5, 1.0)])
def test_required_criterion_at_its_lowest_makes_the_reward_zero(score: float, expected: float) -> None:
    assert reward(rule("a", score, required=True), rule("b", 5)) == expected


def test_required_fault_at_its_worst_makes_the_reward_zero() -> None:
    fault = {"max_score": 0, "min_score": -1, "required": True}
    assert reward(rule("a", 5), rule("f", -1, **fault)) == 0.0 and reward(rule("a", 5), rule("f", -0.5, **fault)) == 0.9


def test_required_failure_is_known_whatever_else_is_missing() -> None:
    assert reward(rule("a", 0, required=True), rule("b", None)) == 0.0


# --- what cannot be judged ------------------------------------------------------------------------------------------


def test_missing_score_makes_the_reward_none_or_is_left_out_of_both_sums() -> None:
    criteria = [rule("a", 4), rule("b", None, max_score=10)]
    assert reward(*criteria) is None
    assert reward(*criteria, none="skip") == 0.8
    assert reward(rule("a", None), rule("b", None), none="skip") is None


def test_required_criterion_is_never_left_out() -> None:
    assert reward(rule("a", 4), rule("b", None, required=True), none="skip") is None


def test_only_faults_that_are_left_earn_nothing_that_could_be_shared() -> None:
    fault = rule("fault", -1, max_score=0, min_score=-1)
    assert reward(rule("a", None), fault, none="skip") is None


def test_neutral_none_of_a_reward_is_left_out() -> None:
    class Shy(Reward):
        default_name = "shy_reward"
        neutral_reasons = frozenset({"too_few_words"})

        def grade(self, batch: Batch) -> list[Grade]:
            return [Grade(None, "too_few_words" if text == "short" else "broken") for text in batch.texts]

    rubric = Rubric([rule("a", 4), Criterion("b", "b", scorer=Shy()), Criterion("c", "c", scorer=Sum([Shy()]))])
    assert rubric(["short", "long"]) == [0.8, None]
    assert Rubric([Criterion("b", "b", scorer=Shy())])(["short"]) == [None]


@pytest.mark.parametrize("cause", ["timeout", "http_429", "malformed"])
def test_judge_that_fails_gives_none_with_its_cause_and_never_zero(cause: str) -> None:
    metrics: dict[str, float] = {}
    judge = TableJudge({"good": {"a": 5, "b": 5}, "bad": cause})
    rubric = Rubric([Criterion("a", "a"), Criterion("b", "b")], judge=judge)
    assert rubric(["good", "bad", "bad"], log_metric=metrics.__setitem__) == [1.0, None, None]
    assert metrics[f"rubric_reward/none/{cause}"] == metrics[f"rubric_reward/a/none/{cause}"] == 2.0
    assert metrics["rubric_reward/a"] == 5.0


def test_rules_and_judge_mix_and_the_rules_stay_when_the_judge_is_left_out() -> None:
    criteria = [Criterion("right", "right", scorer=accuracy_reward, scale=True), Criterion("clear", "clear")]
    judge = TableJudge({r"\boxed{4}": {"clear": 1}, r"\boxed{5}": {"clear": 5}, r"so \boxed{4}": "timeout"})
    texts = list(judge.table)
    columns = {"solution": ["4"] * 3}
    assert Rubric(criteria, judge=judge)(texts, **columns) == [0.6, 0.5, None]
    assert Rubric(criteria, judge=judge, none="skip")(texts, **columns) == [0.6, 0.5, 1.0]
    assert [task.criteria for task in judge.tasks[:1]] == [(criteria[1],)]


def test_judge_is_not_asked_where_a_rule_has_decided() -> None:
    criteria = [Criterion("right", "r", scorer=accuracy_reward, scale=True, required=True), Criterion("clear", "c")]
    judge = TableJudge({r"\boxed{4}": {"clear": 5}})
    metrics: dict[str, float] = {}
    rubric = Rubric(criteria, judge=judge)
    assert rubric([r"\boxed{5}", r"\boxed{4}"], solution=["4", "4"], log_metric=metrics.__setitem__) == [0.0, 1.0]
    assert [task.completion for task in judge.tasks] == [r"\boxed{4}"]
    assert not [name for name in metrics if "/none/" in name]


# --- scorers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "settings", "score"),
    [
        (0.25, {"max_score": 4}, 1.0),
        (1.0, {"max_score": 4, "min_score": 2}, 4.0),
        (0.0, {"max_score": 4, "min_score": 2}, 2.0),
        (1.0, {"max_score": 0, "min_score": -3}, 0.0),
        (0.0, {"max_score": 0, "min_score": -3}, -3.0),
    ],
)
def test_scaled_reward_covers_the_scale(given: float, settings: dict[str, Any], score: float) -> None:
    assert Criterion("a", "a", scorer=fixed(given), scale=True, **settings).score_of(given) == score


@pytest.mark.parametrize(
    ("given", "scale", "message"),
    [
        (6, False, r"criterion 'a': its scorer returned 6.0, outside \[0, 5\]; set min_score and max_score"),
        (-1, False, r"returned -1.0, outside \[0, 5\]"),
        (1.5, True, r"returned 1.5, outside \[0, 1\]"),
    ],
)
def test_score_of_a_rule_outside_its_scale_is_an_error(given: float, scale: bool, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reward(rule("a", given, scale=scale))


def test_wrong_number_of_scores_is_an_error() -> None:
    with pytest.raises(ValueError, match="rubric_reward/a returned 2 rewards for 1 completions"):
        Rubric([Criterion("a", "a", scorer=lambda completions, **columns: [1.0, 2.0])])(["x"])


def test_missing_column_of_a_scorer_is_named() -> None:
    with pytest.raises(ValueError, match="needs the column 'solution'"):
        Rubric([Criterion("a", "a", scorer=accuracy_reward, scale=True)])(["x"])


# --- aggregations -----------------------------------------------------------------------------------------------------


def test_product_multiplies_the_shares_of_the_scales() -> None:
    # (4/5) * ((3 - 1) / (5 - 1))^2 * (1 + -1/4)
    criteria = [
        rule("a", 4),
        rule("b", 3, min_score=1, weight=2.0),
        rule("f", -1, max_score=0, min_score=-4),
        rule("logged", 0, weight=0.0),
    ]
    assert reward(*criteria, aggregation="product") == pytest.approx(0.8 * 0.25 * 0.75, abs=1e-15)
    assert reward(rule("a", 0), rule("b", 5), aggregation="product") == 0.0
    assert reward(rule("a", 5), rule("b", None), aggregation="product") is None
    assert reward(rule("a", 4), rule("b", None), aggregation="product", none="skip") == 0.8


def test_holistic_is_one_score_out_of_ten() -> None:
    judge = TableJudge({"x": {"overall": 7}, "y": "timeout"})
    rubric = Rubric([Criterion("a", "a"), Criterion("b", "b")], judge=judge, aggregation="holistic")
    columns: dict[str, list[Any]] = {}
    assert rubric(["x", "y"], log_extra=columns.__setitem__) == [0.7, None]
    assert columns["rubric_reward/overall"] == [7.0, None]
    assert columns["rubric_reward/scores"] == ['{"overall": 7.0}', '{"overall": null}']


def test_holistic_asks_a_judge_for_one_number() -> None:
    rubric = Rubric([Criterion("a", "a")], judge=lambda messages: '{"1": {"score": 10}}', aggregation="holistic")
    assert rubric(["x"]) == [1.0]


# --- order, pickling, asynchronous form -------------------------------------------------------------------------------


def a_mixed_rubric(order: list[int] | None = None) -> tuple[Rubric, list[str], TableJudge]:
    draw = random.Random(4)
    texts = ["x" * n + "." * (n % 3) for n in range(1, 30)]
    scores = {
        text: draw.choice(["timeout", {"clear": draw.uniform(0, 3), "rude": -draw.uniform(0, 2), "must": n % 4}])
        for n, text in enumerate(texts)
    }
    criteria = [
        Criterion("length", "length", scorer=by_length, weight=0.3),
        Criterion("clear", "clear", max_score=3, weight=0.7),
        Criterion("rude", "rude", max_score=0, min_score=-2, weight=0.1),
        Criterion("must", "must", max_score=3, required=True, weight=0.9),
    ]
    judge = TableJudge(scores)
    return Rubric([criteria[i] for i in order or range(4)], judge=judge), texts, judge


def test_order_of_the_criteria_changes_nothing() -> None:
    rubric, texts, judge = a_mixed_rubric()
    expected = rubric(texts)
    assert None in expected and 0.0 in expected and len(set(expected)) > 10
    for order in itertools.permutations(range(4)):
        other, _, other_judge = a_mixed_rubric(list(order))
        assert other(texts) == expected
        assert other_judge.tasks == judge.tasks


def test_order_and_size_of_the_batch_change_nothing() -> None:
    rubric, texts, _ = a_mixed_rubric()
    expected = dict(zip(texts, rubric(texts), strict=True))
    shuffled = random.Random(1).sample(texts, len(texts))
    assert rubric(shuffled) == [expected[text] for text in shuffled]
    assert [rubric([text])[0] for text in texts] == list(expected.values())
    assert rubric([]) == []


def test_rubric_can_be_pickled_and_awaited() -> None:
    rubric, texts, _ = a_mixed_rubric()
    expected = rubric(texts)
    copy = pickle.loads(pickle.dumps(rubric))
    assert copy(texts) == expected and copy.__name__ == "rubric_reward"
    assert asyncio.run(AsyncReward(rubric, name="other")(texts)) == expected
    assert AsyncReward(rubric).__name__ == "rubric_reward"


def test_messages_and_texts_get_the_same_rewards() -> None:
    rubric, texts, _ = a_mixed_rubric()
    messages = [[{"role": "assistant", "content": text}] for text in texts]
    criteria = [one for one in rubric.criteria if one.scorer is None]
    judged = Rubric(criteria, judge=rubric.judge)
    assert judged(messages) == judged(texts)


# --- what is reported -------------------------------------------------------------------------------------------------


def test_scores_and_reasons_of_each_criterion_are_logged() -> None:
    columns: dict[str, list[Any]] = {}
    metrics: dict[str, float] = {}
    judge = TableJudge({r"\boxed{4}": {"clear": 3}, r"\boxed{5}": "http_5xx"})
    rubric = Rubric(
        [Criterion("right", "right", scorer=accuracy_reward, scale=True), Criterion("clear", "clear")],
        judge=judge,
        name="mine",
    )
    rewards = rubric(
        list(judge.table), solution=["4", "4"], log_extra=columns.__setitem__, log_metric=metrics.__setitem__
    )
    assert rewards == [0.8, None]
    assert columns == {
        "mine/right": [5.0, 0.0],
        "mine/right/reason": ["correct", "wrong"],
        "mine/right/answer": ["4", "5"],
        "mine/clear": [3.0, None],
        "mine/clear/reason": ["scored", "http_5xx"],
        "mine/clear/answer": [None, None],
        "mine/scores": ['{"clear": 3.0, "right": 5.0}', '{"clear": null, "right": 0.0}'],
        "mine/reasons": ['{"clear": "why"}', "{}"],
        "mine/reason": ["scored", "http_5xx"],
        "mine/answer": ["4", "5"],
    }
    assert metrics == {
        "mine/right": 2.5, "mine/clear": 3.0, "mine/clear/none/http_5xx": 1.0, "mine/none/http_5xx": 1.0,
    }  # fmt: skip


def test_criteria_are_logged_inside_a_composition_too() -> None:
    columns: dict[str, list[Any]] = {}
    judge = TableJudge({"x": {"clear": 3}})
    both = Sum([Rubric([Criterion("clear", "clear")], judge=judge), think_format_reward], name="both")
    assert both(["x"], log_extra=columns.__setitem__) == [0.6]
    assert columns["both/rubric_reward/clear"] == [3.0]


def test_rubric_behind_a_gate_is_asked_about_what_passes() -> None:
    judge = TableJudge({"<think>\nHm.\n</think>\nx": {"clear": 5}})
    gated = Gate(think_format_reward, Rubric([Criterion("clear", "clear")], judge=judge))
    assert gated(["x", "<think>\nHm.\n</think>\nx"]) == [0.0, 1.0]
    assert len(judge.tasks) == 1


def test_judge_sees_prompt_reference_and_guidance() -> None:
    judge = TableJudge({"x": {"clear": 5}})
    rubric = Rubric([Criterion("clear", "clear")], judge=judge, reference_column="answer", guidance="Be strict.")
    rubric(["x"], prompts=[[{"role": "user", "content": "2+2?"}]], answer=["4"])
    rubric(["x"], answer=[{"steps": [1, 2]}])
    first, second = judge.tasks
    assert (first.prompt, first.reference, first.guidance) == ("2+2?", "4", "Be strict.")
    assert (second.prompt, second.reference) == ("", '{"steps": [1, 2]}')
    with pytest.raises(ValueError, match="rubric_reward needs the column 'answer'"):
        rubric(["x"], solution=["4"])


def test_golds_can_be_checked_through_a_rule_of_the_rubric() -> None:
    rubric = Rubric([Criterion("right", "right", scorer=AccuracyReward(), scale=True)])
    report = check_golds([{"solution": "4"}, {"solution": ""}], rubric)
    assert report.rate == 0.5 and report.failures[0].row == 1


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "name='': it must be a name"),
        ({"description": 5}, "criterion 'a': description=5: it must be a text"),
        ({"max_score": -1}, "max_score=-1: it must be a finite number of at least 0"),
        ({"max_score": float("nan")}, "max_score=nan: it must be a finite number"),
        ({"max_score": 0}, "min_score=0 must be below max_score=0; for a fault"),
        ({"min_score": 5}, "min_score=5 must be below max_score=5"),
        ({"weight": -1}, "weight=-1: it must be a finite number of at least 0"),
        ({"required": "yes"}, "required='yes': it must be True or False"),
        ({"category": 3}, "category=3: it must be a name"),
        ({"scale": True}, "scale=True is for the rewards of a scorer"),
        ({"scorer": AccuracyReward}, "criterion 'a' got the class AccuracyReward"),
        ({"scorer": 5}, "criterion 'a' got 5, which is no reward"),
        ({"scorer": AsyncReward(by_length)}, "criterion 'a' got the coroutine by_length"),
    ],
)
def test_criterion_that_makes_no_sense_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Criterion(**{"name": "a", "description": "a", **arguments})


@pytest.mark.parametrize(
    ("criteria", "settings", "message"),
    [
        ([], {}, "the rubric has no criteria"),
        ("a", {}, "criteria='a': it must be a list of Criterion"),
        (["a"], {}, "criteria holds 'a', which is no Criterion"),
        ([Criterion("a", "a")], {}, "criterion 'a' has no scorer and the rubric has no judge"),
        ([], {"rubric_column": "rubric"}, "the criteria of the rows have no scorer and the rubric has no judge"),
        ([rule("a", 1), rule("a", 2)], {}, "two criteria are called 'a'"),
        ([rule("reason", 1)], {}, "a criterion cannot be called 'reason', which the logs use"),
        ([rule("a", 1, weight=0.0)], {}, "no criterion of the rubric can earn points"),
        ([rule("a", 0, max_score=0, min_score=-1)], {}, "no criterion of the rubric can earn points"),
        ([rule("a", 1)], {"aggregation": "sum"}, "aggregation='sum' is unknown; choose 'weighted_sum', 'product'"),
        ([rule("a", 1)], {"none": "zero"}, "none='zero' is unknown; choose 'propagate', 'skip'"),
        ([rule("a", 1)], {"aggregation": "holistic"}, "criterion 'a' has a scorer; leave the scorer out"),
        ([rule("a", 1)], {"judge": 5}, "judge=5: it must be a judge such as HTTPJudge"),
        ([rule("a", 1)], {"category_weights": [1]}, "category_weights=.1.: it must be a mapping"),
        ([rule("a", 1)], {"category_weights": {"A": -1}}, "category_weights.'A'.=-1: it must be a finite number"),
        ([rule("a", 1)], {"name": ""}, "name='': it must be a name"),
        ([rule("a", 1)], {"guidance": 3}, "guidance=3: it must be a text"),
    ],
)
def test_rubric_that_makes_no_sense_is_refused(criteria: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rubric(criteria, **settings)


def test_function_as_judge_is_wrapped() -> None:
    rubric = Rubric([Criterion("a", "a")], judge=lambda messages: '{"1": 5}')
    assert isinstance(rubric.judge, CallableJudge) and rubric(["x"]) == [1.0]


@pytest.mark.parametrize("name", ["a/reason", "a/answer", "a/none/timeout"])
def test_criterion_with_the_name_of_a_column_of_another_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"a criterion cannot be called {name!r}, which the logs use"):
        Rubric([rule("a", 1), rule(name, 1)])
    assert reward(rule("a", 5), rule("a/reasons", 5)) == 1.0


def test_weights_that_overflow_are_refused() -> None:
    for settings in ({"weight": 1e308}, {"max_score": 10**400}, {"min_score": -1e200}):
        with pytest.raises(ValueError, match=f"criterion 'a': {next(iter(settings))}=.* of at most 1e"):
            rule("a", 1, **settings)
    assert reward(rule("a", 1e100, weight=1e100, max_score=1e100), rule("b", 0, weight=1e100, max_score=1e100)) == 0.5
