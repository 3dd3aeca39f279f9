"""A folder with rewards and data, and whole calls of a training command on a tiny model."""

import json
import sys

import pytest

from trl_ext.cli import main

REWARDS = """\
def letter_reward(completions, solution, **kwargs):
    return [float(gold in text) + len(set(text)) / 10 for text, gold in zip(completions, solution)]


def ids_steps(completions, completion_ids, **kwargs):
    return [([len(set(ids)) / 10], [len(ids) - 1]) for ids in completion_ids]
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder with rewards and data in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "cli_rewards.py").write_text(REWARDS)
    rows = [{"prompt": f"{n}+{n}=", "solution": str(2 * n)} for n in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield tmp_path
    sys.modules.pop("cli_rewards", None)


@pytest.fixture
def call(here, tiny_model_path):
    """Arguments of a command that trains for two steps; `more` comes last, and so wins."""

    def build(command, *more, rewards=("--reward_funcs", "cli_rewards.letter_reward")):
        flags = ["--model", str(tiny_model_path), "--dataset_name", "rows.jsonl", "--output_dir", "out", *rewards]
        flags += ["--per_device_train_batch_size", "4", "--max_completion_length", "6"]
        flags += ["--max_steps", "2", "--logging_steps", "1", "--report_to", "none"]
        flags += ["--use_peft", "--lora_r", "4", "--lora_target_modules", "q_proj", "v_proj", "--dtype", "float32"]
        return [command, *flags, *more]

    return build


@pytest.fixture
def refused(capsys):
    """Sees that a call ends in one line on standard error that holds `sentence`."""

    def check(argv, sentence, status=1):
        assert main(argv) == status
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("trl-ext: error: ") and sentence in error, error

    return check
