"""`trl-ext grpo` from the command line: whole runs on a tiny model, and calls that cannot work."""

import dataclasses
import json
import sys

import pytest
import torch
import yaml
from peft import PeftModel

from trl_ext.callbacks import METRICS_FILE, read_metrics
from trl_ext.cli import main
from trl_ext.scripts._training import RESOLVED_CONFIG
from trl_ext.testing import tiny_model


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder with rewards and data in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "cli_grpo_rewards.py").write_text(
        "def letter_reward(completions, solution, **kwargs):\n"
        "    return [float(gold in text) + len(set(text)) / 10 for text, gold in zip(completions, solution)]\n\n\n"
        "def ids_steps(completions, completion_ids, **kwargs):\n"
        "    return [([len(set(ids)) / 10], [len(ids) - 1]) for ids in completion_ids]\n"
    )
    rows = [{"prompt": f"{n}+{n}=", "solution": str(2 * n)} for n in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield tmp_path
    sys.modules.pop("cli_grpo_rewards", None)


@pytest.fixture
def argv(here, tiny_model_path):
    def build(*more, rewards=("--reward_funcs", "cli_grpo_rewards.letter_reward")):
        flags = ["--model", str(tiny_model_path), "--dataset_name", "rows.jsonl", "--output_dir", "out", *rewards]
        flags += ["--per_device_train_batch_size", "4", "--num_generations", "4", "--max_completion_length", "6"]
        flags += [
            "--max_steps",
            "2",
            "--logging_steps",
            "1",
            "--report_to",
            "none",
            "--gradient_accumulation_steps",
            "1",
        ]
        flags += ["--use_peft", "--lora_r", "4", "--lora_target_modules", "q_proj", "v_proj", "--dtype", "float32"]
        return ["grpo", *flags, *more]

    return build


def _refused(capsys, argv, sentence, status=1):
    assert main(argv) == status
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("trl-ext: error: ") and sentence in error, error


def test_help_names_the_main_options_without_heavy_imports(capsys):
    assert main(["grpo", "--help"]) == 0
    text = capsys.readouterr().out
    for flag in ("--model", "--process_reward_funcs", "--advantage_estimator", "--zero_std", "--config", "--help-all"):
        assert flag in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_help_all_lists_every_field(capsys):
    from trl_ext.grpo import GRPOVariantConfig

    with pytest.raises(SystemExit) as stop:
        main(["grpo", "--help-all"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert [f.name for f in dataclasses.fields(GRPOVariantConfig) if f.init and f"--{f.name}" not in text] == []


@pytest.mark.slow
def test_run_leaves_adapter_card_metrics_and_configuration_that_runs_again(argv, here):
    more = ["--advantage_estimator", "rloo", "--zero_std", "mask", "--beta", "0.1", "--kl_estimator", "k2"]
    assert main(argv(*more)) == 0
    out = here / "out"
    rows = [row for row in read_metrics(out / METRICS_FILE) if "loss" in row]
    assert [row["step"] for row in rows] == [1, 2] and "zero_std/masked" in rows[0]
    PeftModel.from_pretrained(tiny_model(), out)
    card = (out / "README.md").read_text()
    assert "letter_reward" in card and "trl-ext grpo --model" in card
    settings = yaml.safe_load((out / RESOLVED_CONFIG).read_text())
    assert settings["advantage_estimator"] == "rloo" and settings["zero_std"] == "mask" and settings["beta"] == 0.1
    assert main(["grpo", "--config", str(out / RESOLVED_CONFIG), "--output_dir", "again"]) == 0
    again = [row for row in read_metrics(here / "again" / METRICS_FILE) if "loss" in row]
    assert [row["loss"] for row in again] == [row["loss"] for row in rows]


@pytest.mark.slow
def test_run_with_process_rewards_alone_and_a_resume(argv, here):
    rewards = ("--process_reward_funcs", "cli_grpo_rewards.ids_steps")
    assert main(argv("--save_steps", "1", rewards=rewards)) == 0
    call = argv("--save_steps", "1", "--max_steps", "3", "--resume_from_checkpoint", "true", rewards=rewards)
    assert main(call) == 0
    rows = [row for row in read_metrics(here / "out" / METRICS_FILE) if "loss" in row]
    assert [row["step"] for row in rows] == [1, 2, 3] and "process/ids_steps/mean" in rows[0]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--advantage_estimatr", "rloo"], "unknown flag --advantage_estimatr; did you mean '--advantage_estimator'?"),
        (["--advantage_estimator", "dr_gpo"], "did you mean 'dr_grpo'?"),
        (["--kl_placement", "reward"], "has no effect with beta=0.0"),
        (["--num_generations", "1"], "needs num_generations of 2 or more"),
        (["--process_reward_funcs", "cli_grpo_rewards.id_steps"], "did you mean 'ids_steps'?"),
        (["--resume_from_checkpoint", "nowhere"], "there is no checkpoint folder nowhere"),
    ],
)
def test_call_that_cannot_work_ends_in_one_line(argv, capsys, more, sentence):
    _refused(capsys, argv(*more), sentence, status=2 if "flag" in sentence else 1)


def test_call_without_model_or_reward_says_which_is_missing(here, capsys):
    _refused(capsys, ["grpo"], "name the model: --model")
    _refused(capsys, ["grpo", "--model", "x"], "name a reward: --reward_funcs")
