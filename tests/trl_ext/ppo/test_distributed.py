"""Two processes under DDP (gloo, CPU) do what one process does with the same completions."""

import json
from pathlib import Path

import pytest
import torch
from datasets import Dataset

from trl_ext.errors import UserError

pytestmark = pytest.mark.slow

MODES = ("adapter", "shared", "shared_full", "model")
SETTINGS = {
    "per_device_eval_batch_size": 4,
    "kl_coef": 0.2,
    "kl_target": 0.1,
    "kl_horizon": 20,
    "entropy_coef": 0.02,
    "target_kl": 10.0,
    "critic_warmup_steps": 1,
    "num_iterations": 2,
    "max_steps": 4,
    "reward_running_scale": True,
    "whiten_rewards": True,
    "save_strategy": "steps",
    "save_steps": 1,
    "eval_strategy": "steps",
    "eval_steps": 4,
}
SCRIPT = """
import importlib.util, json, os, sys
import torch
from datasets import Dataset

torch.set_num_threads(1)
folder, helpers, tiny_path, modes = sys.argv[1:]
spec = importlib.util.spec_from_file_location("helpers", helpers)
helpers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helpers)
settings = json.load(open(f"{folder}/settings.json"))



def build(mode, output_dir):
    return helpers.quick_trainer(
        mode,
        tiny_path,
        output_dir=f"{folder}/{output_dir}",
        rollout_func=helpers.scripted_rollouts,
        eval_dataset=Dataset.from_dict({"prompt": ["5+5=", "6+6=", "7+7=", "8+8="]}),
        max_grad_norm=0.0,
        gradient_checkpointing=mode in ("adapter", "shared_full"),  # the run in one process goes without
        ddp_find_unused_parameters=False if mode in ("adapter", "shared") else None,
        **settings,
    )


for mode in modes.split(","):
    trainer = build(mode, mode)
    helpers.awaken_weights(trainer)
    recorder = helpers.Recorder(trainer)
    trainer.train()
    resumed = build(mode, f"{mode}-resumed")
    resumed.train(resume_from_checkpoint=f"{folder}/{mode}/checkpoint-3")
    result = {
        "gradients": [step.gradients for step in recorder.steps],
        "weights": {name: p.detach().clone() for name, p in helpers.named_weights(trainer).items()},
        "logs": trainer.state.log_history,
        "resumed_logs": resumed.state.log_history,
        "resumed_weights": {name: p.detach().clone() for name, p in helpers.named_weights(resumed).items()},
        "kl_coef": trainer.kl_controller.value,
        "scale": trainer.reward_scale.std,
        "wrapped": type(trainer.model_wrapped).__name__,
        "processes": trainer.accelerator.num_processes,
    }
    torch.save(result, f"{folder}/{mode}-{trainer.accelerator.process_index}.pt")
torch.distributed.barrier()  # both have written
os._exit(0)  # taking gloo's threads down ends in an abort once in a while
"""


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory, run_two_processes, tiny_model_path):
    """Folder with what each of two processes found, for every critic: one launch for all tests."""
    folder = tmp_path_factory.mktemp("ddp")
    (folder / "script.py").write_text(SCRIPT)
    two = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "ddp_backend": "gloo"}
    (folder / "settings.json").write_text(json.dumps({**SETTINGS, **two, "per_device_eval_batch_size": 2}))
    helpers = Path(__file__).with_name("conftest.py")
    run_two_processes(folder / "script.py", folder, helpers, tiny_model_path, ",".join(MODES))
    return folder


def _result(folder, mode, rank):
    return torch.load(folder / f"{mode}-{rank}.pt", weights_only=True)


@pytest.mark.parametrize("mode", MODES)
def test_two_processes_end_with_identical_weights(two_processes, mode):
    first, second = (_result(two_processes, mode, rank) for rank in (0, 1))
    assert first["processes"] == 2 and first["wrapped"] == "DistributedDataParallel"
    for name, weight in first["weights"].items():
        assert torch.equal(weight, second["weights"][name]), name
    assert first["kl_coef"] == second["kl_coef"] and first["scale"] == second["scale"]


@pytest.mark.parametrize("mode", MODES)
def test_two_processes_have_the_gradients_and_figures_of_one(two_processes, run, scripted, logs_of, mode):
    trainer, recorder = run(
        mode,
        rollout_func=scripted,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        eval_dataset=Dataset.from_dict({"prompt": ["5+5=", "6+6=", "7+7=", "8+8="]}),
        **SETTINGS,
    )
    result = _result(two_processes, mode, 0)
    for step, gradients in zip(recorder.steps, result["gradients"], strict=True):
        assert [n for n in gradients if gradients[n] is None] == [n for n in gradients if step.gradients[n] is None]
        for name in (n for n in gradients if gradients[n] is not None):
            torch.testing.assert_close(gradients[name], step.gradients[name], atol=2e-6, rtol=1e-3, msg=f"{name}")
    for name, weight in result["weights"].items():
        ours = dict(recorder.trainer.model.named_parameters()).get(name)
        if ours is not None:
            torch.testing.assert_close(weight, ours, atol=1e-4, rtol=1e-3)
    assert trainer.kl_controller.value == pytest.approx(result["kl_coef"], rel=1e-5)
    assert trainer.reward_scale.std == pytest.approx(result["scale"], rel=1e-6)
    theirs = [row for row in result["logs"] if "loss" in row or "eval_loss" in row]
    ours = [row for row in trainer.state.log_history if "loss" in row or "eval_loss" in row]
    assert len(ours) == len(theirs) == 5
    prefixes = (
        "value/",
        "objective/",
        "policy/",
        "loss",
        "reward",
        "kl",
        "critic/tokens",
        "eval_value/",
        "eval_objective/",
        "eval_policy/",
    )
    for row, other in zip(ours, theirs, strict=True):
        assert row.keys() == other.keys()
        for name in (n for n in row if n.startswith(prefixes)):
            assert other[name] == pytest.approx(row[name], abs=1e-5, rel=1e-4), f"{name} of step {row['step']}"


@pytest.mark.parametrize("mode", MODES)
def test_two_processes_resumed_inside_a_generation_batch_continue_the_run(two_processes, mode):
    for rank in (0, 1):
        result = _result(two_processes, mode, rank)
        for name, weight in result["weights"].items():
            torch.testing.assert_close(result["resumed_weights"][name], weight, atol=1e-7, rtol=1e-5, msg=f"{name}")
        whole, resumed = (
            next(r for r in result[k] if r["step"] == 4 and "loss" in r) for k in ("logs", "resumed_logs")
        )
        for name in whole:
            if name.startswith(("value/", "objective/", "policy/", "loss", "kl")):
                assert resumed[name] == pytest.approx(whole[name], abs=1e-6, rel=1e-5), name


def test_checkpoint_of_two_processes_is_refused_by_one(two_processes, build_trainer, tmp_path):
    checkpoint = two_processes / "adapter" / "checkpoint-2"
    assert sorted(p.name for p in (checkpoint / "critic").glob("state_*")) == ["state_0.pt", "state_1.pt"]
    trainer = build_trainer("adapter", kl_coef=0.2)
    with pytest.raises(UserError, match="written by 2 processes and this run has 1; resume with the same number"):
        trainer.train(resume_from_checkpoint=str(checkpoint))


def test_checkpoints_of_two_processes_leave_no_staging_folder(two_processes):
    for mode in MODES:
        names = sorted(path.name for path in (two_processes / mode).iterdir())
        assert [n for n in names if n.startswith("checkpoint")] == [f"checkpoint-{step}" for step in (1, 2, 3, 4)]
        assert not [n for n in names if n.startswith(".")]
