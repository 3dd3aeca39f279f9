"""`trl-ext demo`: its problems and reward, and the whole command on a tiny model."""

import re

import pytest
import torch

from trl_ext.callbacks import METRICS_FILE, read_metrics
from trl_ext.cli import main
from trl_ext.scripts import demo
from trl_ext.testing import tiny_model, tiny_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")


def test_reward_is_one_where_the_last_number_is_the_sum():
    texts = ["The sum is 42.", "42 or 43", "43, no: 42", "forty-two", "", "4 2", "042", "-42"]
    found = demo.addition_reward(texts, ["42"] * len(texts))
    assert found == [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]


def test_reward_reads_the_last_turn_of_a_conversation():
    turns = [[{"role": "assistant", "content": "It is 7"}], [{"role": "assistant", "content": "It is 8"}]]
    assert demo.addition_reward(turns, ["7", "7"], extra=1) == [1.0, 0.0]


def test_held_out_pairs_do_not_occur_in_training_in_either_order():
    training, held_out = demo.addition_problems(seed=1)

    def pair(row):
        return tuple(map(int, re.findall(r"\d+", row["prompt"][0]["content"])))

    seen = {pair(row) for row in training}
    assert len(held_out) == 64 and len(seen) > 1400
    for row in held_out:
        assert pair(row) not in seen and pair(row)[::-1] not in seen
    assert all(sum(pair(row)) == int(row["solution"]) for row in training + held_out)
    assert demo.addition_problems(seed=1) == (training, held_out) != demo.addition_problems(seed=2)


def test_greedy_accuracy_is_the_share_of_right_completions_and_keeps_the_mode(monkeypatch):
    model, tokenizer = tiny_model().train(), tiny_tokenizer()
    rows = demo.addition_problems()[1][:4]
    answers = [rows[0]["solution"], "0", rows[2]["solution"], ""]

    def generate(input_ids, **kwargs):
        assert not kwargs["do_sample"] and not model.training
        tails = [tokenizer(text.ljust(4)).input_ids for text in answers]
        return torch.cat([input_ids, torch.tensor(tails)], 1)

    monkeypatch.setattr(model, "generate", generate)
    assert demo.greedy_accuracy(model, tokenizer, rows) == 0.5
    assert model.training


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--steps", "0"], "argument --steps: 0 is no whole number of at least 1"),
        (["--steps", "1.5"], "argument --steps: 1.5 is no whole number of at least 1"),
        (["--completions", "4"], "argument --completions: 4 is no whole number of at least 8"),
        (
            ["--completions", "12"],
            "--completions 12 must be a multiple of 8 between 8 and 1472: a step takes each of the",
        ),
        (["--completions", "99992"], "--completions 99992 must be a multiple of 8 between 8 and 1472"),
        (["--completions", "1480"], "--completions 1480 must be a multiple of 8 between 8 and 1472"),
        (["--seed", "-1"], "argument --seed: -1 is no whole number between 0 and 4294967295"),
        (["--nothing"], "unknown argument --nothing"),
    ],
)
def test_demo_with_sizes_that_do_not_fit_is_refused(argv, sentence, refused, tiny_model_path):
    refused(["demo", "--model", str(tiny_model_path), *argv], sentence, status=2)


def test_demo_into_a_file_or_with_a_model_that_is_nowhere_is_refused(refused, tmp_path):
    (tmp_path / "taken").write_text("")
    refused(["demo", "--output_dir", str(tmp_path / "taken")], "taken' is a file; name a folder")
    argv = ["demo", "--model", "nobody/nothing", "--output_dir", str(tmp_path / "out")]
    refused(argv, "the model 'nobody/nothing' cannot be loaded: We couldn't connect")


@pytest.mark.slow
@pytest.mark.parametrize("critic", ["shared", "adapter"])
def test_demo_on_a_model_that_cannot_learn_exits_1_and_leaves_its_files(tiny_model_path, tmp_path, capsys, critic):
    pytest.importorskip("matplotlib")
    argv = ["--steps", "2", "--completions", "8", "--critic", critic, "--output_dir", str(tmp_path / "out")]
    assert main(["demo", "--model", str(tiny_model_path), *argv]) == 1
    text = capsys.readouterr().out
    assert "Accuracy before: 0.0% of 64 held-out problems" in text and "did not rise; try more --steps" in text
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"adapter_model.safetensors", "README.md", METRICS_FILE, "curves.png"} <= names
    assert [row["step"] for row in read_metrics(tmp_path / "out" / METRICS_FILE) if "loss" in row] == [1, 2]
    card = (tmp_path / "out" / "README.md").read_text()
    assert "greedy accuracy after" in card and "addition_reward" in card and "trl-ext demo --model" in card


@pytest.mark.slow
def test_demo_in_which_the_accuracy_rises_exits_0(tiny_model_path, tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    accuracies = iter([0.25, 0.5])
    monkeypatch.setattr(demo, "greedy_accuracy", lambda *args: next(accuracies))
    argv = [
        "--model",
        str(tiny_model_path),
        "--steps",
        "1",
        "--completions",
        "8",
        "--output_dir",
        str(tmp_path / "out"),
    ]
    assert main(["demo", *argv]) == 0
    text = capsys.readouterr().out
    assert "Accuracy before: 25.0%" in text and "Accuracy after:  50.0%" in text and "did not rise" not in text
