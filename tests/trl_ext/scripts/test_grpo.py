"""`trl-ext grpo` from the command line: whole runs on a tiny model, and calls that cannot work."""

from functools import partial

import pytest
import yaml
from peft import PeftModel

from trl_ext.callbacks import METRICS_FILE, read_metrics
from trl_ext.cli import main
from trl_ext.scripts._training import RESOLVED_CONFIG
from trl_ext.testing import tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def argv(call):
    """A call of this command that runs."""
    return partial(call, "grpo", "--num_generations", "4", "--gradient_accumulation_steps", "1")


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
    rewards = ("--process_reward_funcs", "cli_rewards.ids_steps")
    assert main(argv("--save_steps", "1", rewards=rewards)) == 0
    call = argv("--save_steps", "1", "--max_steps", "3", "--resume_from_checkpoint", "true", rewards=rewards)
    assert main(call) == 0
    rows = [row for row in read_metrics(here / "out" / METRICS_FILE) if "loss" in row]
    assert [row["step"] for row in rows] == [1, 2, 3] and "process/ids_steps/mean" in rows[0]


@pytest.mark.slow
def test_error_in_the_middle_of_a_run_has_a_line_of_its_own(argv, here, capsys):
    (here / "bad_rewards.py").write_text(
        "calls = []\n\n\ndef late_reward(completions, **kwargs):\n    calls.append(1)\n"
        "    if len(calls) > 1:\n        raise ValueError('the judge is gone')\n"
        "    return [float(index) for index, _ in enumerate(completions)]\n"
    )
    assert main(argv(rewards=("--reward_funcs", "bad_rewards.late_reward"))) == 1
    lines = capsys.readouterr().err.replace("\r", "\n").splitlines()
    rows = [line for line in lines if "GRPO step" in line]
    assert [row.split("  ")[0] for row in rows] == ["GRPO step 1/2"]
    assert [line for line in lines if "the judge is gone" in line] == [lines[-1]]
    assert lines[-1].startswith("trl-ext: error: the judge is gone")


@pytest.mark.slow
def test_process_reward_by_its_bare_name_trains_on_a_streamed_file(argv, here):
    assert (
        main(argv("--dataset_streaming", "true", rewards=("--process_reward_funcs", "format_progress_step_rewards")))
        == 0
    )
    rows = [row for row in read_metrics(here / "out" / METRICS_FILE) if "loss" in row]
    assert [row["step"] for row in rows] == [1, 2] and "process/format_progress_step_reward/mean" in rows[0]


def test_streamed_file_is_refused_for_resampling(argv, refused):
    refused(argv("--dataset_streaming", "true", "--zero_std", "resample"), "a streamed data set does not allow")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--process_reward_funcs", "arithmetic_step_reward"], "did you mean 'arithmetic_step_rewards'?"),
        (["--advantage_estimatr", "rloo"], "unknown flag --advantage_estimatr; did you mean '--advantage_estimator'?"),
        (["--advantage_estimator", "dr_gpo"], "did you mean 'dr_grpo'?"),
        (["--kl_placement", "reward"], "has no effect with beta=0.0"),
        (["--num_generations", "1"], "needs num_generations of 2 or more"),
        (["--process_reward_funcs", "cli_rewards.id_steps"], "did you mean 'ids_steps'?"),
        (["--resume_from_checkpoint", "nowhere"], "there is no checkpoint folder nowhere"),
    ],
)
def test_call_that_cannot_work_ends_in_one_line(argv, refused, more, sentence):
    refused(argv(*more), sentence, status=2 if "flag" in sentence else 1)


def test_call_without_model_or_reward_says_which_is_missing(here, refused):
    refused(["grpo"], "name the model: --model")
    refused(["grpo", "--model", "x"], "name a reward: --reward_funcs")
