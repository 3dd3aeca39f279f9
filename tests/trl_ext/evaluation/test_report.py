"""Figures of problems worked out by hand, and the files they are written to."""

import json

import pytest
import yaml

from trl_ext.evaluation._report_markdown import MOST_PROBLEMS, cell, figures_rows, long_rows, notes, table
from trl_ext.evaluation.report import Problem, Report, figures, results_of


def _problem(key, correct, answers=None, **fields):
    answers = answers if answers is not None else ["4" if right else None for right in correct]
    count = len(correct)
    values = {
        "benchmark": "maths",
        "key": key,
        "task": "math",
        "prompt": "2 + 2?",
        "solution": "4",
        "answers": answers,
        "scores": [None if right is None else float(right) for right in correct],
        "correct": correct,
        "num_tokens": list(range(1, count + 1)),
        "truncated": [False] * count,
        "groups": [None if answer is None else sorted({*answers} - {None}).index(answer) for answer in answers],
    }
    return Problem(**{**values, **fields})


FACTS = {
    "generator": {"backend": "fake", "model": "org/model", "adapter": "runs/ppo"},
    "versions": {"torch": "2"},
    "sampling": {"temperature": 0.6, "top_p": 0.95, "top_k": 0, "max_new_tokens": 64, "seed": 0},
    "num_samples": 4,
    "batch_size": 2,
    "ks": [1, 2],
    "truncated": "grade",
    "command": "trl-ext eval --model org/model",
    "benchmarks": {"maths": {"num_problems": 2, "fingerprint": "sha256:1"}},
}
DATA = {"maths": {"path": "org/maths", "split": "test", "revision": "abc", "config": None}}
PAIR = [_problem("a", [True, False, False, True]), _problem("b", [True] * 4)]


def _report(folder, problems, **facts):
    return Report(folder, results_of(problems, (1, 2), {**FACTS, **facts}, DATA), problems)


def test_figures_by_hand():
    problems = [
        _problem("a", [True, True, False, False], ["4", "4", "5", None]),
        _problem("b", [False, False, False, True], ["5", "5", "6", "4"], num_tokens=[10, 20, 30, 40]),
    ]
    found = figures(problems, (2, 4))
    values = {name: figure["value"] for name, figure in found["metrics"].items()}
    # pairs of a: both right 1, one right 4 (two of them a tie, two with a silent one), none 1
    assert values == {
        "pass@1": pytest.approx((0.5 + 0.25) / 2),
        "pass@2": pytest.approx((5 / 6 + 3 / 6) / 2),
        "cons@2": pytest.approx(((1 + 2 * 0.5 + 2 * 1) / 6 + (3 * 0.5) / 6) / 2),
        "pass@4": 1.0,
        "cons@4": 0.5,
    }
    assert found["response_length"] == {"mean": 110 / 8, "p95": 40, "max": 40}
    assert found["num_without_answer"] == 1 and found["num_unjudged_samples"] == 0


def test_problem_with_too_few_judged_samples_is_left_out_at_k_only():
    problems = [_problem("a", [True, None, None]), _problem("b", [False, True, False]), _problem("c", [None] * 3)]
    found = figures(problems, (2, 3))
    assert found["metrics"]["pass@1"]["value"] == pytest.approx((1 + 1 / 3) / 2)
    assert found["metrics"]["pass@1"]["num_left_out"] == 1
    assert found["metrics"]["pass@2"]["value"] == pytest.approx(2 / 3)
    assert found["metrics"]["pass@2"]["num_left_out"] == 2
    assert (found["num_unjudged_samples"], found["num_unjudged_problems"]) == (5, 1)


def test_task_without_answers_has_no_vote():
    assert set(figures([_problem("a", [True, False], task="code")], (2,))["metrics"]) == {"pass@1", "pass@2"}


@pytest.mark.parametrize(("count", "p95"), [(1, 1), (19, 19), (20, 19), (100, 95)])
def test_p95_is_the_length_that_at_least_95_percent_do_not_exceed(count, p95):
    assert figures([_problem("a", [True] * count)], (1,))["response_length"]["p95"] == p95


def test_winner_is_the_first_answer_of_the_largest_class():
    assert _problem("a", [False, True, True], ["5", "4", "4"]).winner == "4"
    assert _problem("a", [False, True], ["5", "4"]).winner == "5"
    assert _problem("a", [False, None, None], ["5", "4", "4"]).winner == "5"  # what is not judged does not vote
    assert _problem("a", [False], [None]).winner is None


def test_files_are_written_and_say_the_same(tmp_path):
    problems = [_problem("a", [True, False, False, None]), _problem("b", [False] * 4, ["5", "5", "6", None])]
    report = _report(tmp_path, problems)
    report.write()
    assert {path.name for path in tmp_path.iterdir()} == {
        "results.json",
        "results.md",
        "problems.jsonl",
        "model-index.yaml",
    }
    results = json.loads((tmp_path / "results.json").read_text())
    assert results == json.loads(json.dumps(report.results))
    assert results["benchmarks"]["maths"]["data"] == DATA["maths"]
    rows = [json.loads(line) for line in (tmp_path / "problems.jsonl").read_text().splitlines()]
    assert [(row["key"], row["num_correct"], row["num_judged"], row["vote"]) for row in rows] == [
        ("a", 1, 3, "4"),
        ("b", 0, 4, "5"),
    ]


def test_markdown_holds_table_meanings_hardest_first_and_command(tmp_path):
    text = _report(tmp_path, [_problem("easy", [True] * 4), _problem("hard", [False] * 4)]).markdown()
    assert "# Evaluation of org/model with the adapter runs/ppo" in text
    assert "4 samples a problem at temperature 0.6, top_p 0.95, seed 0, at most 64 tokens." in text
    assert "| maths | 2 | 50.0 % [0.0, 100.0] | 50.0 % [0.0, 100.0] | 50.0 % [0.0, 100.0] |" in text
    assert "- pass@1: the share" in text and "- pass@k: the chance" in text and "- cons@k: the chance" in text
    assert text.index("| hard |") < text.index("| easy |")
    assert "trl-ext eval --model org/model" in text and "fingerprint sha256:1" in text


def test_markdown_cuts_a_long_table_of_problems(tmp_path):
    problems = [_problem(f"p{n}", [True] * 4) for n in range(MOST_PROBLEMS + 5)]
    text = _report(tmp_path, problems).markdown()
    assert f"({MOST_PROBLEMS} of {MOST_PROBLEMS + 5}; all are in problems.jsonl)" in text
    assert text.count("| 4/4 |") == MOST_PROBLEMS


def test_greedy_run_says_so(tmp_path):
    sampling = {**FACTS["sampling"], "temperature": 0.0}
    text = _report(tmp_path, [_problem("a", [True])], sampling=sampling, num_samples=1).markdown()
    assert "One greedy completion a problem" in text


def test_note_where_most_samples_state_no_answer(tmp_path):
    text = _report(tmp_path, [_problem("a", [False, False, True, False])]).markdown()
    assert "maths: 3 of 4 samples state no final answer" in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a|b\n c", "a\\|b c"),
        ("<b>*x*", "\\<b\\>\\*x\\*"),
        ("[a](http://x)", "[a]\\(http://x)"),
        ("\x1b[2J", "\\\\x1b[2J"),
        (None, "–"),
        ("x" * 100, "x" * 59 + "…"),
    ],
)
def test_cell_cannot_leave_its_table(value, shown):
    assert cell(value) == shown


def test_table_aligns_numbers():
    assert table(("a", "b"), [(1, 2)], numbers=(1,)) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"


def test_long_rows_have_one_figure_each(tmp_path):
    rows = long_rows(_report(tmp_path, [_problem("a", [True] * 4), _problem("b", [False] * 4)]).results)
    assert rows[0] == ["benchmark", "figure", "value", "95 % interval", "problems"]
    assert rows[1] == ["maths", "pass@1", "50.0 %", "0.0, 100.0", "2"]
    assert [row[1] for row in rows[2:]] == ["pass@2", "cons@2", "tokens, mean", "tokens, p95", "truncated"]


@pytest.mark.parametrize(
    ("mean", "shown"), [(7.625, "7.6"), (8, "8.0"), (99.94, "99.9"), (99.96, "100"), (100.4, "100"), (1234.56, "1235")]
)
def test_short_lengths_have_a_decimal(tmp_path, mean, shown):
    results = _report(tmp_path, [_problem("a", [True] * 4)]).results
    results["benchmarks"]["maths"]["response_length"]["mean"] = mean
    assert [row[2] for row in long_rows(results) if row[1] == "tokens, mean"] == [shown]
    assert figures_rows(results)[1][-3] == shown


def test_model_index_is_what_the_hub_reads(tmp_path):
    from huggingface_hub.repocard_data import model_index_to_eval_results

    report = _report(tmp_path, [_problem("a", [True, False, False, False])])
    report.write()
    index = yaml.safe_load((tmp_path / "model-index.yaml").read_text())["model-index"]
    name, results = model_index_to_eval_results(index)
    assert name == "ppo" and results == report.eval_results()
    first = results[0]
    assert (first.metric_type, first.metric_value, first.dataset_type) == ("pass@1", 0.25, "org/maths")
    assert (first.dataset_revision, first.dataset_split) == ("abc", "test")
    assert first.metric_name == (
        "pass@1 (2 problems, 4 samples, temperature 0.6, top_p 0.95, seed 0, at most 64 tokens)"
    )


def test_figure_that_could_not_be_measured_is_null_and_in_no_card(tmp_path):
    report = _report(tmp_path, [_problem("a", [None] * 4)])
    report.write()
    assert (
        json.loads((tmp_path / "results.json").read_text())["benchmarks"]["maths"]["metrics"]["pass@1"]["value"] is None
    )
    assert report.eval_results() == [] and report.value("maths") is None
    assert "| – | – | – |" in report.markdown()


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"truncated": "wrong"}, "truncated is wrong"),
        ({"sampling": {**FACTS["sampling"], "max_new_tokens": 9}}, "at most 9 tokens"),
        ({"sampling": {**FACTS["sampling"], "seed": 5}}, "seed 5"),
        ({"sampling": {**FACTS["sampling"], "top_k": 20}}, "top_k 20"),
        ({"best_of_reward": "chooser"}, "best_of_reward chooser"),
    ],
)
def test_every_setting_that_changes_a_figure_is_in_its_name(tmp_path, change, part):
    usual, changed = (_report(tmp_path, PAIR, **facts).eval_results()[0].metric_name for facts in ({}, change))
    assert part not in usual and part in changed


def test_card_of_a_part_of_a_set_or_of_another_reward_is_not_that_of_the_set(tmp_path):
    data = {"maths": {**DATA["maths"], "max_problems": 2}}
    report = Report(tmp_path, results_of(PAIR, (1, 2), {**FACTS, "reward": "my_reward"}, data), PAIR)
    first = report.eval_results()[0]
    assert (first.dataset_name, first.metric_type) == ("maths (first 2 problems)", "my_reward/pass@1")
    assert first.metric_name.startswith("pass@1 (first 2 problems, ") and "reward my_reward" in first.metric_name


def test_markdown_names_the_reward_and_the_rule_for_truncated_samples(tmp_path):
    assert "| reward | that of each task |" in _report(tmp_path, PAIR).markdown()
    text = _report(tmp_path, PAIR, reward="my", best_of_reward="other", truncated="wrong").markdown()
    assert "| reward | my |" in text and "| reward that chooses | other |" in text
    assert "| truncated samples | wrong |" in text


@pytest.mark.parametrize(("rule", "count"), [("grade", 3), ("wrong", 1)])
def test_samples_that_were_denied_their_answer_are_not_said_to_state_none(tmp_path, rule, count):
    problem = _problem("p", [False] * 3 + [True], truncated=[True, True, False, False])
    report = _report(tmp_path, [problem], truncated=rule)
    assert report.results["benchmarks"]["maths"]["num_without_answer"] == count
    assert any("state no final answer" in note for note in notes(report.results)) == (rule == "grade")
