"""Two processes under DDP (gloo, CPU) do what one process does with the same completions, groups spanning them."""

import json
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow

# Six rows of groups of two: the second group lies on both processes.
COMMON = {
    "num_generations": 2,
    "gradient_accumulation_steps": 1,
    "num_iterations": 2,
    "max_steps": 8,
    "max_grad_norm": 0.0,
    "learning_rate": 1e-3,
    "save_strategy": "steps",
    "save_steps": 1,
}
CASES = {
    "stock": {"beta": 0.1},
    "batch": {"advantage_estimator": "reinforce_pp", "advantage_clip": 1.0, "loss_type": "grpo"},
    "running_mean": {"advantage_estimator": "reinforce"},
    "process": {"process_outcome_weight": 0.5, "beta": 0.1, "kl_estimator": "k2"},
    "mask": {"zero_std": "mask", "loss_type": "grpo", "entropy_coef": 0.0},
    "mask_tokens": {"zero_std": "mask", "beta": 0.1, "kl_estimator": "full"},
    "resample": {"zero_std": "resample", "max_resample_rounds": 4, "beta": 0.1},
    "replay": {"zero_std": "replay", "beta": 0.1, "kl_placement": "reward", "kl_estimator": "k1"},
}
# Groups of three on two processes are drawn in pairs, of which one may be too many.
SURPLUS = {"zero_std": "resample", "max_resample_rounds": 6, "num_generations": 3, "max_steps": 6}
FLAT = ("surplus", "mask", "mask_tokens", "resample", "replay")
SCRIPT = """
import importlib.util, json, os, sys
import torch

torch.set_num_threads(1)
folder, helpers = sys.argv[1:]
spec = importlib.util.spec_from_file_location("helpers", helpers)
helpers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helpers)
cases = json.load(open(f"{folder}/cases.json"))


def build(name, output_dir, settings):
    flat, process = settings.pop("flat"), settings.pop("process")
    return helpers.quick_trainer(
        output_dir=f"{folder}/{output_dir}",
        reward_funcs=helpers.half_flat_reward if flat else helpers.letter_reward,
        process_reward_funcs=helpers.first_letter_steps if process else None,
        **settings,
    )


def weights_of(trainer):
    model = trainer.accelerator.unwrap_model(trainer.model)
    return {name: p.detach().clone() for name, p in model.named_parameters()}


for name, settings in cases.items():
    trainer = build(name, name, dict(settings))
    recorder = helpers.Recorder(trainer)
    trainer.train()
    resumed = build(name, f"{name}-resumed", dict(settings))
    resumed.train(resume_from_checkpoint=f"{folder}/{name}/checkpoint-3")
    result = {
        "gradients": [step.gradients for step in recorder.steps],
        "weights": weights_of(trainer),
        "resumed": weights_of(resumed),
        "logs": trainer.state.log_history,
        "advantages": list(trainer._logs["advantages"]),
        "prompts": list(trainer._logs["prompt"]),
        "processes": trainer.accelerator.num_processes,
    }
    torch.save(result, f"{folder}/{name}-{trainer.accelerator.process_index}.pt")
torch.distributed.barrier()  # both have written
os._exit(0)  # taking gloo's threads down ends in an abort once in a while
"""


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory, run_two_processes):
    """Folder with what each of two processes found: one launch for all tests."""
    folder = tmp_path_factory.mktemp("ddp")
    (folder / "script.py").write_text(SCRIPT)
    two = {"per_device_train_batch_size": 3, "ddp_backend": "gloo"}
    cases = {
        n: {**COMMON, **two, **s, "flat": n in FLAT, "process": n == "process"}
        for n, s in {**CASES, "surplus": SURPLUS}.items()
    }
    (folder / "cases.json").write_text(json.dumps(cases))
    run_two_processes(folder / "script.py", folder, Path(__file__).with_name("conftest.py"))
    return folder


def _result(folder, name, rank):
    return torch.load(folder / f"{name}-{rank}.pt", weights_only=True)


@pytest.mark.parametrize("name", CASES)
def test_two_processes_have_the_gradients_and_figures_of_one(two_processes, run, logs_of, helpers, name):
    settings = {**COMMON, **CASES[name], "per_device_train_batch_size": 6, "save_strategy": "no"}
    if name == "process":
        settings["process_reward_funcs"] = helpers.first_letter_steps
    trainer, recorder = run(
        reward_funcs=helpers.half_flat_reward if name in FLAT else helpers.letter_reward, **settings
    )
    result = _result(two_processes, name, 0)
    assert result["processes"] == 2
    for step, gradients in zip(recorder.steps, result["gradients"], strict=True):
        assert step.gradients.keys() == gradients.keys()
        for weight, gradient in gradients.items():
            torch.testing.assert_close(gradient, step.gradients[weight], atol=2e-6, rtol=1e-3, msg=f"{weight}")
    assert result["prompts"] == list(trainer._logs["prompt"])
    assert result["advantages"] == pytest.approx(list(trainer._logs["advantages"]), abs=2e-4)
    theirs = [row for row in result["logs"] if "loss" in row]
    for row, other in zip(logs_of(trainer), theirs, strict=True):
        for key in row:
            if key.startswith(
                ("loss", "grad_norm", "reward", "frac_", "zero_std/", "resample/", "replay/", "kl", "process/")
            ):
                assert other[key] == pytest.approx(row[key], abs=2e-5, rel=1e-3), f"{key} of step {row['step']}"
    if name in FLAT:
        assert sum(row["zero_std/groups"] for row in theirs if "zero_std/groups" in row) > 0


@pytest.mark.parametrize("name", CASES)
def test_two_processes_agree_and_resume_as_they_were(two_processes, name):
    first, second = (_result(two_processes, name, rank) for rank in (0, 1))
    for weight, value in first["weights"].items():
        assert torch.equal(value, second["weights"][weight]), weight
        torch.testing.assert_close(first["resumed"][weight], value, atol=1e-7, rtol=1e-5)


def test_prompt_drawn_for_another_process_is_given_back(two_processes):
    rows = [row for row in _result(two_processes, "surplus", 0)["logs"] if "resample/rounds" in row]
    assert sum(row["resample/groups_given_back"] for row in rows) > 0
    for row in rows:
        assert row["zero_std/replaced"] + row["zero_std/left"] == row["zero_std/groups"]
        assert row["resample/groups_sampled"] <= 2 * row["resample/rounds"]
