"""What EvaluationCallback refuses before any training, and how it reads lines that it has not written."""

import json

import pytest
from datasets import Dataset

from trl_ext.callbacks import read_metrics
from trl_ext.errors import UserError
from trl_ext.evaluation import EvaluationCallback
from trl_ext.evaluation.callback import tidy

ROW = {"prompt": "2+2=", "solution": "4"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"language": "klingon"}, "language must be an ISO 639-1 code .* not 'klingon'"),
        (
            {"eval_dataset": [ROW, {"prompt": "a"}]},
            "row 1 has no gold in the column 'solution'; its columns are prompt",
        ),
        ({"eval_dataset": [{"prompt": "a", "solution": None}]}, "row 0 has no gold"),
        ({"eval_dataset": [{"prompt": "a", "answer": "4", "task": "choice"}]}, "its columns are prompt, answer, task"),
        (
            {"eval_dataset": [ROW, {**ROW, "prompt": [{"role": "user", "content": None}]}]},
            "^row 1: message 0 .*no content",
        ),
        (
            {"eval_dataset": [ROW, {**ROW, "prompt": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}]},
            "^row 1: message 0 has the content",
        ),
        ({"metric_prefix": ""}, "metric_prefix='' must be a name"),
        ({"metric_prefix": "/"}, "metric_prefix='/' must be a name"),
        ({"metric_prefix": None}, "metric_prefix=None must be a name"),
        ({"temperature": 1e-30}, "temperature=1e-30 is too small"),
    ],
)
def test_what_would_end_the_training_is_refused_before_it(settings, words):
    with pytest.raises(UserError, match=words):
        EvaluationCallback(**{"eval_dataset": [ROW], **settings})


def test_golds_may_be_numbers_and_languages_names():
    rows = Dataset.from_list([{"prompt": "2+2=", "solution": 4}])
    assert EvaluationCallback(rows, language="German").rows == [{"prompt": "2+2=", "solution": 4}]


def test_rows_without_solution_are_taken_with_a_reward():
    assert EvaluationCallback([{"prompt": "a"}], reward=len).reward is len


def a_file(folder, *rows):
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    "row", [{"step": 1, "time": "2024-01-01"}, {"step": None, "loss": 1}, {"step": "1", "time": None}]
)
def test_lines_of_something_else_are_put_aside(tmp_path, row):
    path = a_file(tmp_path, row)
    tidy(path, 0, 8.0)
    assert not path.exists()
    assert read_metrics(tmp_path / "metrics.jsonl.old") == [row]


def test_lines_without_a_time_are_kept_up_to_the_step_that_a_run_goes_on_from(tmp_path):
    rows = [{"step": 1, "time": "text"}, {"step": 3, "time": "text"}, {"step": 4, "time": 9.0}]
    path = a_file(tmp_path, *rows)
    tidy(path, 2, 8.0)
    assert read_metrics(path) == [rows[0], rows[2]]
