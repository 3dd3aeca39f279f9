"""Rubrics that come as data: rows of a data set in three forms, files, and the presets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from reward_funcs import accuracy_reward
from reward_funcs._rubric_rows import RAR_WEIGHTS, row_criteria
from reward_funcs.judge import CallableJudge, JudgeTask, Verdict
from reward_funcs.rubric import Criterion, Rubric, preset_names

# what the paper's data looks like: the category stands before the description, a number beside it
RAR = [
    {"title": "Right dose", "description": "Essential Criteria: Names 5 mg.", "weight": 5},
    {"title": "Interval", "description": "Important Criteria: Says once a day.", "weight": 3},
    {"title": "Source", "description": "Optional Criteria: Names a source.", "weight": 1},
    {"title": "Overdose", "description": "Pitfall Criteria: Does not warn of an overdose.", "weight": -1},
]
HEALTH = [
    {"criterion": "Names the dose.", "points": 7, "tags": ["level:example"]},
    {"criterion": "Says when to see a doctor.", "points": 3, "tags": []},
    {"criterion": "Invents a dose.", "points": -4, "tags": []},
]


class MetJudge(CallableJudge):
    """Meets what a completion names, by words of the criteria: 1 for `met`, -1 for a fault."""

    def __init__(self) -> None:
        super().__init__(len)
        self.tasks: list[JudgeTask] = []

    def score(self, tasks: Any) -> list[Verdict]:
        self.tasks += tasks
        return [
            Verdict(
                {
                    one.name: float((one.max_score or one.min_score) * (one.name in task.completion.split(";")))
                    for one in task.scored()
                },
                {},
            )
            for task in tasks
        ]


def names(value: Any, weights: Any = None) -> dict[str, tuple[float, float, float]]:
    return {one.name: (one.weight, one.min_score, one.max_score) for one in row_criteria(value, weights)}


# --- rows in the form of RaR ------------------------------------------------------------------------------------------


def test_rar_rows_have_the_weights_of_their_categories() -> None:
    assert names(RAR) == {
        "Interval": (0.7, 0, 1), "Overdose": (0.9, 0, 1), "Right dose": (1.0, 0, 1), "Source": (0.3, 0, 1),
    }  # fmt: skip
    assert all(one.binary for one in row_criteria(RAR, None))
    assert RAR_WEIGHTS == {"Essential": 1.0, "Important": 0.7, "Optional": 0.3, "Pitfall": 0.9}


def test_rar_pitfall_is_met_where_the_fault_is_avoided() -> None:
    (pitfall,) = (one for one in row_criteria(RAR, None) if one.category == "Pitfall")
    assert pitfall.description.startswith("Pitfall: Does not warn of an overdose. (1 where the response avoids")


def test_rar_reward_is_the_share_of_the_weights() -> None:
    rubric = Rubric.from_preset("rar", judge=MetJudge())
    texts = ["Right dose;Overdose", "Right dose;Interval;Source;Overdose", "none"]
    rewards = rubric(texts, rubric=[RAR, json.dumps(RAR), {"rubric": RAR}])
    assert rewards == [pytest.approx(1.9 / 2.9, abs=1e-15), 1.0, 0.0]


def test_numbers_of_the_rows_count_where_the_weights_of_categories_are_left_out() -> None:
    assert names(RAR, {}) == {
        "Interval": (3.0, 0, 1), "Overdose": (1.0, -1, 0), "Right dose": (5.0, 0, 1), "Source": (1.0, 0, 1),
    }  # fmt: skip
    assert names(RAR, {"Essential": 2.0})["Right dose"] == (2.0, 0, 1)


def test_category_can_stand_in_a_field_of_its_own() -> None:
    assert names([{"title": "a", "description": "b", "category": "important"}]) == {"a": (0.7, 0, 1)}


# --- rows in the form of HealthBench ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("met", "expected"),
    [
        ("Names the dose.", 0.7),
        ("Names the dose.;Says when to see a doctor.", 1.0),
        ("Names the dose.;Invents a dose.", 0.3),
        ("Says when to see a doctor.;Invents a dose.", 0.0),
        ("Invents a dose.", 0.0),
    ],
)
def test_health_reward_is_the_points_met_over_the_positive_points(met: str, expected: float) -> None:
    rubric = Rubric.from_preset("healthbench", judge=MetJudge())
    assert rubric([met], rubrics=[HEALTH]) == [pytest.approx(expected, abs=1e-15)]


def test_long_criterion_is_called_by_its_beginning_and_equal_ones_are_numbered() -> None:
    rows = [{"criterion": "x" * 80, "points": n} for n in (1, 2)]
    first, second = row_criteria(rows, None)
    assert first.name == "x" * 60 + "..." and second.name == first.name + "_2" and second.description == "x" * 80


# --- rows with the fields of a criterion -----------------------------------------------------------------------------


def test_row_may_hold_the_fields_of_a_criterion() -> None:
    row = [{"name": "a", "description": "b", "max_score": 3, "min_score": 0, "weight": 2.0, "category": "Essential"}]
    assert names(row) == {"a": (2.0, 0, 3)} and names(row, {"Essential": 0.5}) == {"a": (1.0, 0, 3)}
    assert names(json.dumps({"criteria": row})) == {"a": (2.0, 0, 3)}


def test_rows_of_the_data_come_on_top_of_the_criteria_of_the_rubric() -> None:
    judge = MetJudge()
    rubric = Rubric([Criterion("Right dose", "shared", max_score=1)], judge=judge, rubric_column="rubric")
    columns: dict[str, list[Any]] = {}
    rewards = rubric(["Right dose", "Right dose_2"], rubric=[RAR, RAR], log_extra=columns.__setitem__)
    assert rewards == [pytest.approx(1 / 3.9), pytest.approx(1 / 3.9)]
    assert columns["rubric_reward/Right dose"] == [1.0, 0.0]
    assert json.loads(columns["rubric_reward/scores"][1])["Right dose_2"] == 1.0
    assert not [name for name in columns if "Interval" in name]  # TRL's table needs the same columns in every step


def test_order_of_the_criteria_of_a_row_changes_nothing() -> None:
    judge = MetJudge()
    rubric = Rubric(judge=judge, rubric_column="rubric")
    double = [*RAR, {**RAR[0], "description": "Essential Criteria: Names mg."}]
    rubric(["x", "x"], rubric=[double, double[::-1]])
    assert judge.tasks[0] == judge.tasks[1]


def test_rows_of_a_data_set_with_nulls_and_arrays_are_read() -> None:
    data = Dataset.from_list([{"rubric": RAR}, {"rubric": [{"title": "a", "description": "b", "weight": 2}]}])
    assert names(data[1]["rubric"]) == {"a": (2.0, 0, 1)}
    assert names(np.array(RAR, dtype=object)) == names(RAR)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "no list of criteria: None"),
        ("{", "the rubric is no JSON"),
        ("", "the rubric is no JSON"),
        ([], "no list of criteria"),
        (5, "no list of criteria: 5"),
        (["a"], "a criterion of a row must be a mapping, not 'a'"),
        ([{"title": "a", "description": "b"}], "neither a known category nor a weight nor points"),
        ([{"title": "a", "weight": 3}], "a criterion of a row has no text"),
        ([{"criterion": "a", "points": "many"}], "points='many' of a criterion must be a finite number"),
        ([{"criterion": "a", "points": float("nan")}], "points=nan of a criterion"),
        ([{"criterion": "a", "points": -3}], "no criterion of the row can earn points"),
        ([{"name": "a", "description": "b", "max_score": 3, "scorer": "os.system"}], "names a scorer"),
        ([{"name": "a", "description": "b", "max_scor": 3, "min_score": 0}], "no field 'max_scor'; did you mean"),
    ],
)
def test_row_that_holds_no_rubric_is_not_judged(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        row_criteria(value, None)
    metrics: dict[str, float] = {}
    rubric = Rubric(judge=MetJudge(), rubric_column="rubric")
    with pytest.warns(UserWarning, match="does not judge rows whose rubric it cannot read, here: "):
        rewards = rubric(["Source", "x"], rubric=[RAR, value], log_metric=metrics.__setitem__)
    assert rewards == [pytest.approx(0.3 / 2.9), None]
    assert metrics["rubric_reward/none/bad_rubric"] == 1.0


def test_missing_column_of_rubrics_is_named() -> None:
    rubric = Rubric(judge=MetJudge(), rubric_column="rubric")
    with pytest.raises(ValueError, match="needs the column 'rubric'; the columns here are rubrics; name it with rubr"):
        rubric(["x"], rubrics=[RAR])


# --- files -----------------------------------------------------------------------------------------------------------

YAML = """
aggregation: weighted_sum
guidance: Be strict.
criteria:
  - {name: right, description: The answer is right., scorer: accuracy_reward, scale: true, weight: 2}
  - {name: clear, description: The answer is clear., max_score: 3}
"""


def test_yaml_and_json_files_give_the_same_rubric(tmp_path: Path) -> None:
    import yaml

    (tmp_path / "mine.yaml").write_text(YAML)
    (tmp_path / "mine.json").write_text(json.dumps(yaml.safe_load(YAML)))
    for file in ("mine.yaml", "mine.json"):
        rubric = Rubric.from_file(tmp_path / file, judge=MetJudge(), name="mine")
        assert rubric.criteria == (
            Criterion("right", "The answer is right.", scorer=accuracy_reward, scale=True, weight=2),
            Criterion("clear", "The answer is clear.", max_score=3),
        )
        assert (rubric.guidance, rubric.__name__) == ("Be strict.", "mine")
        # (2 * 5 + 0) / (2 * 5 + 3)
        assert rubric([r"\boxed{4}"], solution=["4"]) == [pytest.approx(10 / 13)]


def test_file_may_be_a_list_and_settings_of_the_call_come_first(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"name": "a", "description": "b", "scorer": "reward_funcs.accuracy_reward"}]')
    assert Rubric.from_file(tmp_path / "a.json", aggregation="product").aggregation == "product"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("a.yaml", "a: [", "a.yaml is no YAML"),
        ("a.json", "{", "a.json is no JSON"),
        ("a.txt", "[]", "a.txt: a rubric file must be .json, .yaml or .yml"),
        ("a.json", '{"criteria": {"name": "a"}}', "a.json: criteria must be a list of criteria"),
        ("a.json", '{"agregation": "product"}', "a.json: a rubric has no setting 'agregation'; did you mean 'aggre"),
        ("a.json", '[{"name": "a"}]', "a.json: the criterion .* has no description"),
        ("a.json", '[{"nam": "a"}]', "a.json: a criterion has no field 'nam'; did you mean 'name'"),
        ("a.json", '["a"]', "a.json: a criterion must be a mapping of its fields, not 'a'"),
        ("a.json", '[{"name": "a", "description": "b", "scorer": "acuracy_reward"}]', "did you mean 'accuracy_reward'"),
        ("a.json", '[{"name": "a", "description": "b", "scorer": "no.such"}]', "scorer='no.such' cannot be found"),
        ("a.json", '[{"name": "a", "description": "b", "weight": "2"}]', "weight='2': it must be a finite number"),
    ],
)
def test_file_that_holds_no_rubric_says_why(file: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=message):
        Rubric.from_file(tmp_path / file, judge=MetJudge())


def test_missing_file_is_named() -> None:
    with pytest.raises(ValueError, match=r"the rubric file 'none\.yaml' cannot be read"):
        Rubric.from_file("none.yaml")


# --- presets ---------------------------------------------------------------------------------------------------------


def test_presets_can_all_be_made() -> None:
    assert preset_names() == [
        "correctness_reasoning_clarity",
        "healthbench",
        "helpful_truthful_harmless",
        "helpful_truthful_harmless_high_stakes",
        "maths_solution",
        "rar",
    ]
    for name in preset_names():
        rubric = Rubric.from_preset(name, judge=MetJudge())
        assert rubric.criteria or rubric.rubric_column


def labelled(helpful: float, truthful: float, harmless: float, preset: str = "helpful_truthful_harmless") -> float:
    class Labels(MetJudge):
        def score(self, tasks: Any) -> list[Verdict]:
            return [Verdict({"helpful": helpful, "truthful": truthful, "harmless": harmless}, {})]

    (reward,) = Rubric.from_preset(preset, judge=Labels())(["x"])
    assert reward is not None
    return reward


def test_truth_and_harmlessness_come_before_help() -> None:
    assert labelled(5, 5, 5) == 1.0
    assert labelled(3, 5, 5) > labelled(4, 4, 5) and labelled(3, 5, 5) > labelled(4, 5, 4)
    assert labelled(4, 5, 5) == pytest.approx(24 / 25) and labelled(5, 4, 5) == pytest.approx(23 / 25)


def test_much_more_help_outweighs_a_slight_loss_of_truth_unless_the_stakes_are_high() -> None:
    assert labelled(5, 4, 5) > labelled(2, 5, 5)
    high = "helpful_truthful_harmless_high_stakes"
    for helpful in range(1, 6):
        assert labelled(helpful, 4, 5, high) < labelled(1, 5, 5, high)
        assert labelled(helpful, 5, 4, high) < labelled(1, 5, 5, high)


@pytest.mark.parametrize("scores", [(0, 5, 5), (5, 0, 5), (5, 5, 0)])
def test_useless_false_and_harmful_answers_are_worth_nothing(scores: tuple[int, int, int]) -> None:
    assert labelled(*scores) == 0.0


def test_maths_preset_shows_the_judge_the_solution() -> None:
    judge = MetJudge()
    Rubric.from_preset("maths_solution", judge=judge)(["x"], solution=["42"])
    assert judge.tasks[0].reference == "42" and judge.tasks[0].guidance


# --- rows with a twist ------------------------------------------------------------------------------------------------


def test_equal_criteria_with_other_points_keep_their_points_in_any_order() -> None:
    row = [{"criterion": "A", "points": 5}, {"criterion": "A", "points": 1}]
    assert names(row) == names(row[::-1]) == {"A": (1.0, 0, 1), "A_2": (5.0, 0, 1)}


def test_text_that_looks_like_the_row_of_another_is_read_as_text() -> None:
    rubric = Rubric(judge=MetJudge(), rubric_column="rubrics")
    for rows in ([HEALTH, str(HEALTH)], [str(HEALTH), HEALTH]):
        with pytest.warns(UserWarning, match="the rubric is no JSON"):
            rewards = Rubric(judge=MetJudge(), rubric_column="rubrics")(["Names the dose."] * 2, rubrics=rows)
        assert [reward is None for reward in rewards] == [isinstance(row, str) for row in rows]
    assert rubric(["Names the dose."], rubrics=[HEALTH]) == [0.7]


@pytest.mark.parametrize(
    ("row", "text", "reward"),
    [
        (None, "shared", 1.0),
        ([], "shared", 1.0),
        ("", "shared", 1.0),
        ("[]", "other", 0.0),
        ([{"criterion": "Bad", "points": -3}], "shared", 1.0),
        ([{"criterion": "Bad", "points": -3}], "shared;Bad", 0.0),
        ("{", "shared", None),
    ],
)
@pytest.mark.filterwarnings("ignore:rubric_reward does not judge rows")
def test_row_without_points_is_judged_by_the_criteria_of_the_rubric(row: Any, text: str, reward: Any) -> None:
    rubric = Rubric([Criterion("shared", "x", max_score=1)], judge=MetJudge(), rubric_column="rubric")
    assert rubric([text], rubric=[row]) == [reward]


def test_lists_by_field_are_criteria_too() -> None:
    assert names({"criterion": ["A", "B"], "points": [5, -3]}) == {"A": (5.0, 0, 1), "B": (3.0, -1, 0)}
    assert names({"rubric": {"criterion": ["A"], "points": [5]}} | {"criterion": "B", "points": 1}) == {
        "B": (1.0, 0, 1)
    }


@pytest.mark.parametrize("points", [10**400, -(10**400), 10**4000, 1e308])
@pytest.mark.filterwarnings("ignore:rubric_reward does not judge rows")
def test_huge_points_make_a_row_that_is_not_judged(points: float) -> None:
    row = [{"criterion": "A", "points": points}, {"criterion": "B", "points": 1}]
    with pytest.raises(ValueError, match=r"must be a finite number of at most 1e\+100"):
        row_criteria(row, None)
    assert Rubric(judge=MetJudge(), rubric_column="rubric")(["A"], rubric=[row]) == [None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"name": "a", "description": "b", "scorer": ".foo.bar"}]', "scorer='.foo.bar' cannot be found"),
        ('[{"name": "a", "description": "b", "scorer": ""}]', "scorer='' cannot be found"),
        ("[" * 100_000, "a.json is no JSON"),
    ],
)
def test_file_with_a_twist_says_why(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        Rubric.from_file(tmp_path / "a.json", judge=MetJudge())


def test_weight_for_a_category_that_is_not_there_is_refused() -> None:
    criterion = Criterion("a", "b", category="Style")
    with pytest.raises(
        ValueError, match="category_weights names 'Stile', which no criterion has; did you mean 'Style'"
    ):
        Rubric([criterion], judge=MetJudge(), category_weights={"Stile": 2.0})
    with pytest.raises(ValueError, match="names 'Essential', which no criterion has; the categories are Style"):
        Rubric([criterion], judge=MetJudge(), category_weights={"Essential": 2.0})
    with pytest.raises(ValueError, match="names 'Esential', which no criterion has; did you mean 'Essential'"):
        Rubric(judge=MetJudge(), rubric_column="rubric", category_weights={"Esential": 2.0})
    assert Rubric(judge=MetJudge(), rubric_column="rubric", category_weights={"Tone": 2.0}).category_weights
