"""The completions that the rewards are measured on are what they claim to be."""

import importlib.util
import json
import random
from fractions import Fraction
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="module")
def workload():
    spec = importlib.util.spec_from_file_location("rewards_workload", ROOT / "benchmarks" / "rewards_workload.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("gold", "way"),
    [
        ("12345", r"12{,}345"),
        ("1,200", "1200.0"),
        ("-5", "x = -5"),
        ("8.75", r"\frac{35}{4}"),
        (r"\frac{3}{4}", "0.75"),
        (r"-\frac{3}{4}", r"-\frac34"),
        (r"3\sqrt{2}", r"\sqrt{18}"),
        (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}"),
        (r"\frac{2\sqrt{35}}{35}", r"\frac{2}{\sqrt{35}}"),
        ("16x^2+4x-5", "-5+4x+16x^2"),
        ("(2x+3)(x-3)", "(x-3)(2x+3)"),
        ("(3, -1)", r"\left( 3, -1 \right)"),
        ("-2, 2", "2, -2"),
        (r"45^\circ", r"45 \text{ degrees}"),
        (r"\text{(C)}", "C"),
    ],
)
def test_right_answers_hold_the_rewriting(workload, gold, way):
    assert way in workload.right_answers(gold, "math")


@pytest.mark.parametrize("gold", ["1/3", r"\frac{1}{3}", r"\frac{22}{7}"])
def test_right_answers_fraction_that_does_not_end_has_no_decimal(workload, gold):
    assert not any("." in way for way in workload.right_answers(gold, "math"))


@pytest.mark.parametrize("gold", ["0", "7", "84", "-1200", "1,200", "33"])
def test_near_misses_of_a_number_are_other_numbers(workload, gold):
    value = Fraction(gold.replace(",", ""))
    misses = workload.near_misses(gold, "84")
    assert len(misses) >= 2
    assert all(Fraction(miss) != value for miss in misses)


@pytest.mark.parametrize(
    ("gold", "misses"),
    [
        (r"\frac{3}{4}", [r"\frac{4}{4}", r"-\frac{3}{4}", r"\frac{4}{3}"]),
        (r"\sqrt{5}", [r"-\sqrt{5}", r"\sqrt{6}", "5"]),
        ("x+2", ["x-2"]),
        ("(2, 5)", ["(3, 5)", "(5, 2)"]),
        ("2, 3", ["2, 4", "2"]),
        (r"(-\infty, 9)", [r"(-\infty, 10)"]),
        (r"\binom{15}{7}", [r"\binom{16}{7}"]),
        (r"\text{odd}", ["84"]),
    ],
)
def test_near_misses_are_those_of_the_form(workload, gold, misses):
    assert workload.near_misses(gold, "84") == misses


def test_reasoning_is_near_the_drawn_length_and_of_the_row(workload):
    row = workload.Row("math", "5", "It starts here. " * 3)
    texts = [workload.reasoning(row, ["A solution. " * 40], random.Random(seed)) for seed in range(400)]
    assert all(text.startswith("It starts here.") for text in texts)
    assert 3300 < sum(map(len, texts)) / len(texts) < 4500


def test_labelled_completions_repeat_with_their_labels(workload, tmp_path):
    rows = [{"gold": "1", "completion": "a", "reward": 1.0}, {"gold": None, "completion": "b", "reward": None}]
    path = tmp_path / "set.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    made = workload.labelled(path, 4, seed=3)
    assert sorted(sample.completion for sample in made) == ["Attempt 3. a"] * 2 + ["Attempt 3. b"] * 2
    assert {sample.completion[-1]: sample.reward for sample in made} == {"a": 1.0, "b": None}


@pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not here")
def test_samples_of_two_seeds_share_golds_and_are_the_same_again(workload):
    one, other = workload.samples(DATA, 100, 1), workload.samples(DATA, 100, 2)
    assert [sample.gold for sample in one] == [sample.gold for sample in other]
    assert one != other and one == workload.samples(DATA, 100, 1)
    assert sum(sample.reward for sample in one) == 60
