"""`trl-ext ppo` from the command line: a whole run on a tiny model, its resumption, and calls that cannot work."""

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
    return partial(call, "ppo")


@pytest.mark.slow
@pytest.mark.parametrize("critic", ["adapter", "shared"])
def test_run_leaves_adapter_card_metrics_and_configuration(argv, here, critic, capsys):
    assert main(argv("--critic", critic, "--kl_coef", "0.02")) == 0
    out = here / "out"
    rows = [row for row in read_metrics(out / METRICS_FILE) if "loss" in row]
    assert [row["step"] for row in rows] == [1, 2] and "value/explained_variance" in rows[0]
    model = PeftModel.from_pretrained(tiny_model(), out)
    assert [n for n, p in model.named_parameters() if "lora_B" in n and p.abs().max() > 0]
    card = (out / "README.md").read_text()
    assert "letter_reward" in card and "trl-ext ppo --model" in card and "## Settings" in card
    settings = yaml.safe_load((out / RESOLVED_CONFIG).read_text())
    assert (
        settings["critic"] == critic
        and settings["beta"] == 0.02
        and settings["lora_target_modules"] == ["q_proj", "v_proj"]
    )
    assert settings["reward_funcs"] == ["cli_rewards.letter_reward"] and settings["dataset_name"] == "rows.jsonl"


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        ["--num_mini_batches", "2", "--num_ppo_epochs", "2", "--num_generations", "2"],
        ["--cliprange_value", "0", "--gradient_checkpointing_kwargs", '{"use_reentrant": false}'],
    ],
)
def test_resolved_configuration_is_read_again_and_gives_the_same_run(argv, here, more):
    assert main(argv("--critic", "shared", *more)) == 0
    resolved = here / "out" / RESOLVED_CONFIG
    first = [row for row in read_metrics(here / "out" / METRICS_FILE) if "loss" in row]
    assert main(["ppo", "--config", str(resolved), "--output_dir", "again"]) == 0
    second = [row for row in read_metrics(here / "again" / METRICS_FILE) if "loss" in row]
    assert len(first) == len(second) == 2
    for row, other in zip(first, second, strict=True):
        assert row["loss"] == other["loss"] and row["value/rmse"] == other["value/rmse"]
    before, after = (yaml.safe_load((here / name / RESOLVED_CONFIG).read_text()) for name in ("out", "again"))
    different = {k for k in before | after if before.get(k) != after.get(k)} - {"output_dir", "logging_dir", "run_name"}
    assert different == set()


@pytest.mark.slow
def test_resumed_run_keeps_each_step_once(argv, here):
    assert main(argv("--critic", "shared", "--save_steps", "1", "--max_steps", "3")) == 0
    whole = [row for row in read_metrics(here / "out" / METRICS_FILE) if "loss" in row]
    command = argv("--critic", "shared", "--save_steps", "1", "--max_steps", "3")
    assert main([*command, "--resume_from_checkpoint", str(here / "out" / "checkpoint-2")]) == 0
    resumed = [row for row in read_metrics(here / "out" / METRICS_FILE) if "loss" in row]
    assert [row["step"] for row in resumed] == [1, 2, 3]
    assert resumed[2]["loss"] == pytest.approx(whole[2]["loss"], rel=1e-5)
    assert (
        main([*argv("--critic", "shared", "--save_steps", "1", "--max_steps", "5"), "--resume_from_checkpoint", "true"])
        == 0
    )
    longer = [row["step"] for row in read_metrics(here / "out" / METRICS_FILE) if "loss" in row]
    assert longer == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_run_with_a_separate_value_model_and_evaluation(argv, here, tiny_model_path):
    from datasets import Dataset, DatasetDict, load_dataset

    rows = load_dataset("json", data_files="rows.jsonl", split="train")
    DatasetDict(train=rows, test=Dataset.from_dict(rows[:4])).save_to_disk("rows")
    more = ["--dataset_name", "rows", "--critic", "model", "--value_model_name_or_path", str(tiny_model_path)]
    more += ["--eval_strategy", "steps", "--eval_steps", "2", "--per_device_eval_batch_size", "4"]
    assert main(argv(*more)) == 0
    rows = read_metrics(here / "out" / METRICS_FILE)
    assert [row["step"] for row in rows if "eval_value/rmse" in row] == [2]


@pytest.mark.parametrize(
    "more, sentence",
    [
        (["--critc", "shared"], "unknown flag --critc; did you mean '--critic'?"),
        (
            ["--critic", "adaptor"],
            "critic='adaptor' is unknown; choose one of adapter, shared, model; did you mean 'adapter'?",
        ),
        (
            ["--reward_funcs", "cli_rewards.leter_reward"],
            "cli_rewards has no 'leter_reward'; did you mean 'letter_reward'?",
        ),
        (["--gradient_accumulation_steps", "4"], "has 8 prompts and one generation batch needs 16"),
        (["--eval_strategy", "epoch"], "the data has no split 'test'; it has ['train']"),
        (["--kl_coef", "0.1", "--beta", "0.2"], "two names of one setting and differ"),
        (["--value_model_name_or_path", "x"], "value_model is used by critic='model' only"),
        (["--num_generations", "0"], "num_generations=0 must be a whole number of at least 1"),
    ],
)
def test_call_that_cannot_work_ends_in_one_line(argv, refused, more, sentence):
    refused(argv(*more), sentence, status=2 if "flag" in sentence else 1)


def test_call_without_model_data_or_reward_says_which_is_missing(here, refused):
    refused(["ppo"], "name the model: --model")
    refused(["ppo", "--model", "x"], "name a reward: --reward_funcs")
    refused(["ppo", "--model", "x", "--reward_funcs", "cli_rewards.letter_reward"], "name the data: --dataset_name")


def test_config_file_with_a_typo_ends_in_one_line(here, refused):
    (here / "run.yaml").write_text("critic_learning_rat: 0.1\n")
    refused(
        ["ppo", "--config", "run.yaml"],
        "unknown key 'critic_learning_rat' in run.yaml; did you mean 'critic_learning_rate'?",
        status=2,
    )


def test_value_of_the_wrong_kind_ends_in_one_line_without_the_usage(here, argv, refused):
    refused(argv("--learning_rate", "fast"), "invalid float value: 'fast'", status=2)
    (here / "run.yaml").write_text("gamma: [1, 2]\n")
    refused(argv("--config", "run.yaml"), "gamma=[1, 2] in run.yaml must be a number", status=2)


def test_data_that_cannot_be_read_ends_in_one_line(here, refused):
    call = ["ppo", "--model", "x", "--reward_funcs", "cli_rewards.letter_reward", "--dataset_name"]
    refused([*call, "nowhere.jsonl"], "there is no file nowhere.jsonl")
    (here / "empty.jsonl").write_text("")
    refused([*call, "empty.jsonl"], "empty.jsonl")
    (here / "broken.jsonl").write_text('{"prompt": \n')
    refused([*call, "broken.jsonl"], "broken.jsonl cannot be read as json")


@pytest.mark.slow
def test_resolved_configuration_runs_again_with_one_setting_changed(argv, here):
    import yaml

    assert main(argv("--kl_coef", "0.02", "--gradient_accumulation_steps", "2")) == 0
    settings = yaml.safe_load((here / "out" / RESOLVED_CONFIG).read_text())
    settings["model"] = settings.pop("model_name_or_path")  # both names, and a reward as plain text, are read
    settings["reward_funcs"] = settings["reward_funcs"][0]
    (here / "again.yaml").write_text(yaml.safe_dump(settings))
    for change, expected in (
        (["--kl_coef", "0.1"], {"beta": 0.1, "steps_per_generation": None}),
        (["--beta", "0.2"], {"beta": 0.2}),
        (["--num_iterations", "2"], {"num_iterations": 2}),
        (["--gradient_accumulation_steps", "1"], {"gradient_accumulation_steps": 1, "steps_per_generation": None}),
        (
            ["--num_mini_batches", "2", "--gradient_accumulation_steps", "1"],
            {"num_mini_batches": 2, "steps_per_generation": None},
        ),
    ):
        assert main(["ppo", "--config", "again.yaml", "--output_dir", "out2", "--max_steps", "1", *change]) == 0
        written = yaml.safe_load((here / "out2" / RESOLVED_CONFIG).read_text())
        assert {name: written.get(name) for name in expected} == expected
