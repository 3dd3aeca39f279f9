"""The metrics for `evaluate.load`: from a fresh cache without a network, alone and combined."""

import doctest
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from trl_ext.errors import UserError
from trl_ext.evaluation import module_path, modules, pass_at_k
from trl_ext.evaluation.modules import MODULES, OF_COMPLETIONS, _base
from trl_ext.evaluation.requests import Completion, SamplingParams
from trl_ext.evaluation.runner import evaluate_model

ROOT = Path(__file__).resolve().parents[3]
PREDICTIONS = [
    [r"so \boxed{1/2}", r"\boxed{0.5}", r"\boxed{3}", "I do not know"],
    [r"\boxed{1}", r"\boxed{2}", r"\boxed{1.0}", r"\boxed{4}"],
]
REFERENCES = ["0.5", "2"]
SCORES = [[1.0, 2.0, 3.0, 4.0], [1.0, 9.0, 0.0, 0.0]]
# by hand: cons@2 of the first problem is the mean over its six pairs of 1, .5, 1, .5, 1, 0
EXPECTED = {
    "pass@1": (0.5 + 0.25) / 2,
    "pass@2": (5 / 6 + 0.5) / 2,
    "pass@4": 1.0,
    "mean@4": (0.5 + 0.25) / 2,
    "cons@1": (0.5 + 0.25) / 2,
    "cons@2": (4 / 6 + 1.5 / 6) / 2,
    "cons@4": (1.0 + 0.0) / 2,
    "best_of@1": (0.5 + 0.25) / 2,
    "best_of@2": (1 / 6 + 3 / 6) / 2,
    "best_of@4": (0.0 + 1.0) / 2,
}
SCRIPT = """
import json, sys
import evaluate
from trl_ext.evaluation import module_path
given = json.load(sys.stdin)
metrics = [evaluate.load(module_path(name)) for name in given.pop("names")]
print(json.dumps(evaluate.combine(metrics).compute(**given)))
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """An importable package for the copies that `evaluate` makes of the metrics."""
    folder = tmp_path_factory.mktemp("evaluate")
    package = folder / "copies_of_metrics"
    package.mkdir()
    (package / "__init__.py").touch()
    sys.path.insert(0, str(folder))
    yield package
    sys.path.remove(str(folder))


@pytest.fixture
def load(scripts, tmp_path, monkeypatch):
    """Loads a metric whose files stay in the folders of the test."""
    import evaluate

    monkeypatch.setattr(_base, "_last", {})
    monkeypatch.setattr(evaluate.loading, "init_dynamic_modules", lambda: str(scripts))
    return lambda name, **options: evaluate.load(module_path(name), cache_dir=str(tmp_path), **options)


def test_doctests_pass():
    assert doctest.testmod(modules).failed == 0


def test_metrics_load_and_combine_in_a_fresh_home_without_a_network(tmp_path):
    given = {"names": OF_COMPLETIONS, "predictions": PREDICTIONS, "references": REFERENCES}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps({**given, "k": [1, 2, 4], "scores": SCORES}),
        env={**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == pytest.approx(EXPECTED)


@pytest.mark.parametrize("name", OF_COMPLETIONS)
def test_metric_alone_gives_what_it_gives_combined(load, name):
    options = {"scores": SCORES} if name == "best_of_k" else {}
    found = load(name).compute(predictions=PREDICTIONS, references=REFERENCES, k=[1, 2, 4], **options)
    prefix = "best_of@" if name == "best_of_k" else name.partition("_")[0] + "@"
    assert found == pytest.approx({key: value for key, value in EXPECTED.items() if key.startswith(prefix)})


def test_metric_without_k_looks_at_one_sample_for_pass_and_at_all_for_the_others(load):
    batch = {"predictions": PREDICTIONS, "references": REFERENCES}
    assert load("pass_at_k").compute(**batch) == {"pass@1": 0.375}
    assert load("cons_at_k").compute(**batch) == {"cons@4": 0.5}
    assert load("best_of_k").compute(**batch, scores=SCORES) == {"best_of@4": 0.5}


def test_metric_takes_its_options_from_load_and_those_of_the_call_first(load):
    metric = load("pass_at_k", k=2)
    assert metric.compute(predictions=PREDICTIONS, references=REFERENCES) == pytest.approx({"pass@2": 2 / 3})
    assert metric.compute(predictions=PREDICTIONS, references=REFERENCES, k=4) == {"pass@4": 1.0}


def test_metric_collects_batches(load):
    metric = load("cons_at_k", k=2)
    for predictions, reference in zip(PREDICTIONS, REFERENCES, strict=True):
        metric.add_batch(predictions=[predictions], references=[reference])
    assert metric.compute()["cons@2"] == pytest.approx(EXPECTED["cons@2"])


def test_metric_of_choices_grades_letters(load):
    predictions = [["The answer is (B).", "Answer: B", "Answer: A"]]
    found = load("cons_at_k").compute(predictions=predictions, references=["B"], task="choice")
    assert found == {"cons@3": 1.0}


def test_cons_at_k_of_a_task_without_answers_says_so(load):
    batch = {"predictions": [["24"]], "references": ["24"], "task": "code", "reward": lambda completions, **_: [1.0]}
    with pytest.raises(UserError, match=r"^task='code' has no vote; cons_at_k takes math and choice"):
        load("cons_at_k").compute(**batch)
    assert load("pass_at_k").compute(**batch) == {"pass@1": 1.0}


def test_vote_is_that_of_the_command_where_a_sample_without_a_verdict_is_like_two_classes(load, tmp_path):
    predictions = [[r"\boxed{50}", r"\boxed{0.5}", r"\boxed{50\%}", r"\boxed{7}", r"\boxed{7}"]]

    def only_fifty(completions, **columns):
        texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
        return [None if "%" in text else float(text == r"\boxed{50}") for text in texts]

    class Told:
        def generate(self, requests, params):
            return [Completion(predictions[0][int(one.key.rpartition(":")[2])], 3, False) for one in requests]

        def describe(self):
            return {"backend": "told"}

    found = load("cons_at_k").compute(predictions=predictions, references=["50"], k=[2, 4], reward=only_fifty)
    assert found == {"cons@2": 0.25, "cons@4": 0.0}  # 7 has two of the four votes
    row, params = {"prompt": "x", "solution": "50"}, SamplingParams(temperature=0.5)
    report = evaluate_model(
        Told(), {"a": [row]}, tmp_path / "run", num_samples=5, ks=(2, 4), params=params, reward=only_fifty
    )
    assert {name: report.value("a", name) for name in found} == found


def test_best_of_k_by_a_scorer_chooses_by_its_scores(load):
    metric = load("best_of_k")
    batch = {"predictions": PREDICTIONS, "references": REFERENCES, "k": 2}
    by_verdict = (pass_at_k(4, 2, 2) + pass_at_k(4, 1, 2)) / 2
    assert metric.compute(**batch, scorer="accuracy_reward")["best_of@2"] == pytest.approx(by_verdict)

    def shortness(completions, **columns):
        return [-float(len(_text(completion))) for completion in completions]

    # of six pairs each: the second text wins over the first and the last, and in the other problem 1/2 + 1/2 + 1
    assert metric.compute(**batch, scorer=shortness)["best_of@2"] == pytest.approx((2 / 6 + 2 / 6) / 2)


def _text(completion):
    return completion if isinstance(completion, str) else completion[-1]["content"]


def test_metric_with_a_reward_grades_by_it(load):
    def reward(completions, solution, **columns):
        return [float(gold in _text(text)) for text, gold in zip(completions, solution, strict=True)]

    found = load("mean_at_k").compute(predictions=[["a b", "c"]], references=["a"], reward=reward)
    assert found == {"mean@2": 0.5}


def test_combined_metrics_grade_once(load, monkeypatch):
    calls = []
    grade = _base.grade
    monkeypatch.setattr(_base, "grade", lambda *args, **options: calls.append(len(args[0])) or grade(*args, **options))
    for name in ("pass_at_k", "mean_at_k", "cons_at_k"):
        load(name).compute(predictions=PREDICTIONS, references=REFERENCES)
    assert calls == [2]
    load("pass_at_k").compute(predictions=PREDICTIONS, references=REFERENCES[::-1])
    assert calls == [2, 2]


def test_problem_with_too_few_verdicts_is_left_out_with_a_warning(load):
    predictions = [[*PREDICTIONS[0]], [r"\boxed{2}"]]
    with pytest.warns(UserWarning, match=r"pass@2 leaves out 1 of 2 problems that have fewer than 2 completions"):
        found = load("pass_at_k").compute(predictions=predictions, references=REFERENCES, k=2)
    assert found == {"pass@2": pytest.approx(5 / 6)}


def test_problem_whose_gold_cannot_be_judged_is_left_out(load):
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        found = load("mean_at_k").compute(predictions=[["\\boxed{4}"], ["\\boxed{4}"]], references=["4", ""])
    assert found == {"mean@1": 1.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 5}, "^k=5 but no problem has more than 4 completions; lower k or draw more"),
        ({"k": 0}, "^k=0 must be a whole number of at least 1"),
        ({"k": [1, "2"]}, "^k='2' must be a whole number"),
        ({"k": []}, "^k=\\[\\] asks for no figure; give a whole number"),
        ({"tsak": "math"}, "^tsak= is no option here; did you mean 'task'\\?; options are k, task"),
        ({"task": "maths"}, "^task='maths' has no reward of its own; did you mean 'math'\\?"),
    ],
)
def test_metric_refuses_bad_options(load, options, message):
    with pytest.raises(UserError, match=message):
        load("pass_at_k").compute(predictions=PREDICTIONS, references=REFERENCES, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"^best_of_k needs scores= \(one list of scores a problem\) or scorer="),
        ({"scores": SCORES, "scorer": "accuracy_reward"}, "and not both$"),
        ({"scores": SCORES[:1]}, "^scores= must have the shape of the predictions"),
        ({"scores": [1]}, "^scores= must have the shape of the predictions: one score"),
        ({"scores": 1.0}, "^scores= must have the shape of the predictions"),
        ({"scores": [["a", "b", "c", "d"]] * 2}, "^scores= must have the shape of the predictions"),
        (
            {"scorer": "acuracy_reward"},
            "^scorer='acuracy_reward' is no reward of reward_funcs; did you mean 'accuracy_",
        ),
    ],
)
def test_best_of_k_refuses_bad_scores(load, options, message):
    with pytest.raises(UserError, match=message):
        load("best_of_k").compute(predictions=PREDICTIONS, references=REFERENCES, **options)


def test_load_refuses_unknown_options_and_names(load):
    with pytest.raises(UserError, match=r"^scorrer= is no option here; did you mean 'scorer'"):
        load("best_of_k", scorrer=1)
    with pytest.raises(UserError, match=r"^name='pas_at_k' is no metric; did you mean 'pass_at_k'"):
        module_path("pas_at_k")


def test_metric_of_no_predictions_says_so(load):
    with pytest.raises(UserError, match=r"^predictions must be a list of problems with at least one completion each"):
        load("mean_at_k").compute(predictions=[[]], references=["4"])


def test_every_file_of_the_folder_is_a_metric_that_is_named():
    files = {path.stem for path in Path(modules.__file__).parent.glob("*.py")}
    assert {name for name in files if not name.startswith("_")} == set(MODULES)


def test_confidence_adds_the_interval_of_the_functions(load):
    from trl_ext.evaluation import bootstrap_interval

    predictions = [[r"\boxed{1}"] * right + [r"\boxed{9}"] * (4 - right) for right in (0, 1, 2, 4, 4)]
    batch = {"predictions": predictions, "references": ["1"] * 5}
    for name, figure, values in (
        ("pass_at_k", "pass@2", [pass_at_k(4, right, 2) for right in (0, 1, 2, 4, 4)]),
        ("mean_at_k", "mean@4", [right / 4 for right in (0, 1, 2, 4, 4)]),
    ):
        found = load(name).compute(**batch, k=2, confidence=0.9, seed=3)
        expected = bootstrap_interval(values, confidence=0.9, seed=3)
        assert found == pytest.approx(
            {figure: sum(values) / 5, f"{figure}/low": expected.low, f"{figure}/high": expected.high}
        )
        assert expected.low < sum(values) / 5 < expected.high


def test_calibration_gives_what_the_function_gives(load):
    batch = {"predictions": [0.2, 0.2, 0.8, 0.8], "references": [0.0, 1.0, 1.0, 1.0]}
    found = load("calibration").compute(**batch, num_bins=2)
    # by hand: bins .2 -> .5 and .8 -> 1; squares .04, .64, .04, .04; outcomes rise by .5 over .6
    assert found == pytest.approx(
        {"ece": 0.25, "mse": 0.19, "bias": -0.25, "slope": 0.5 / 0.6, "intercept": 0.5 - 0.2 * 0.5 / 0.6}
    )
    assert load("calibration").compute(**batch, ranges=[0.0, 1.0])["ece"] == pytest.approx(0.25)
