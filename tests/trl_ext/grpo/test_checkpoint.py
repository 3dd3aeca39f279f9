"""A resumed run equals the one that was not interrupted; a killed one leaves whole checkpoints and no others."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch

from trl_ext import _checkpoint
from trl_ext.errors import UserError
from trl_ext.grpo.checkpoint import STATE_FOLDER


def lively_reward(prompts, completions, **kwargs):
    """0.5 for every completion of half of the prompts; else by its letters."""
    return [
        0.5 if "8" in p or "9" in p else sum(c in "abcd01" for c in t) / 3
        for p, t in zip(prompts, completions, strict=True)
    ]


CASES = {
    "stock_inside_a_batch": {"num_iterations": 2, "steps_per_generation": 4, "gradient_accumulation_steps": 2},
    "running_mean": {"advantage_estimator": "reinforce"},
    "resample": {"zero_std": "resample", "max_resample_rounds": 5},
    "replay": {"zero_std": "replay", "beta": 0.1},
    "mask_inside_a_batch": {"zero_std": "mask", "num_iterations": 3, "loss_type": "grpo"},
    "kl_in_reward": {"beta": 0.1, "kl_placement": "reward", "kl_estimator": "k1", "num_iterations": 3},
}


def _weights(trainer):
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


@pytest.mark.parametrize("case", CASES)
def test_resumed_run_equals_the_uninterrupted_one(build_trainer, logs_of, tmp_path, case):
    settings = {"max_steps": 6, "save_strategy": "steps", "save_steps": 1, "reward_funcs": lively_reward, **CASES[case]}
    whole = build_trainer(output_dir=str(tmp_path / "whole"), **settings)
    whole.train()
    if case == "resample":
        assert whole.prompt_queue is not None
    for step in (3, 4):
        resumed = build_trainer(output_dir=str(tmp_path / f"resumed{step}"), **settings)
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{step}"))
        for name, weight in _weights(whole).items():
            torch.testing.assert_close(_weights(resumed)[name], weight, atol=1e-7, rtol=1e-5, msg=name)
        theirs, ours = logs_of(whole)[step:], logs_of(resumed)[step:]
        for expected, row in zip(theirs, ours, strict=True):
            for name in expected:
                if not name.startswith(("step_time", "time/", "epoch")) and isinstance(expected[name], float):
                    assert row[name] == pytest.approx(expected[name], abs=1e-6, rel=1e-5), name
        assert resumed.running_mean.state_dict() == pytest.approx(whole.running_mean.state_dict())
        assert len(resumed.replay_buffer) == len(whole.replay_buffer)


def test_checkpoint_holds_the_state_and_no_partial_file(build_trainer, tmp_path):
    trainer = build_trainer(max_steps=1, save_strategy="steps", save_steps=1)
    trainer.train()
    folder = tmp_path / "out" / "checkpoint-1" / STATE_FOLDER
    assert [path.name for path in folder.iterdir()] == ["state_0.pt"]


def test_checkpoint_of_the_stock_trainer_starts_buffers_anew(build_trainer, tmp_path, caplog):
    stock = build_trainer(stock=True, max_steps=1, save_strategy="steps", save_steps=1)
    stock.train()
    trainer = build_trainer(max_steps=2, advantage_estimator="reinforce")
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-1"))
    assert "holds no state of GRPOVariantTrainer" in caplog.text and trainer.state.global_step == 2


# --- killed, and cut off ----------------------------------------------------------------------------------------------

KILLED = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1, "save_total_limit": 1, "num_iterations": 2}
# A process of its own for each place, all forked from one that has imported everything.
SCRIPT = """
import importlib.util, os, shutil, signal, sys
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import torch

torch.set_num_threads(1)
folder, helpers, *places = sys.argv[1:]
spec = importlib.util.spec_from_file_location("helpers", helpers)
helpers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helpers)
from trl_ext import _checkpoint


def kill(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def later(function, instead, when):
    return lambda *args, **kwargs: (instead if when(*args) else function)(*args, **kwargs)


def half_written(state, partial_folder, rank):
    partial_folder.mkdir(parents=True)
    (partial_folder / f".state_{rank}.partial").write_bytes(b"half")
    kill()


def half_deleted(path, **kwargs):
    os.remove(Path(path) / "trainer_state.json")
    kill()


def in_second(*args):
    return any("checkpoint-2" in str(argument) for argument in args)


def is_superseded(path):
    return "checkpoint-1" in str(path) and (Path(path) / "trainer_state.json").is_file()


def train(place):
    trainer = helpers.quick_trainer(output_dir=f"{folder}/{place}", **SETTINGS)
    if place == "weights":
        trainer._save_rng_state = later(trainer._save_rng_state, kill, in_second)
    elif place == "state":
        _checkpoint.save_state = later(_checkpoint.save_state, half_written, in_second)
    elif place == "rename":
        _checkpoint.replace_folder = later(_checkpoint.replace_folder, kill, in_second)
    elif place == "delete":
        shutil.rmtree = later(shutil.rmtree, half_deleted, is_superseded)
    trainer.train()


for place in places:
    child = os.fork()
    if child == 0:
        try:
            train(place)
        finally:
            os._exit(1)  # an end that was no kill
    _, status = os.waitpid(child, 0)
    print(place, os.WIFSIGNALED(status) and os.WTERMSIG(status))
"""
PLACES = ("weights", "state", "rename", "delete")


@pytest.fixture(scope="module")
def killed_runs(tmp_path_factory):
    """Folder with a run for each place, killed while it saved its second checkpoint."""
    folder = tmp_path_factory.mktemp("killed")
    script = folder / "script.py"
    script.write_text(SCRIPT.replace("**SETTINGS", f"**{KILLED!r}"))
    helpers = os.path.join(os.path.dirname(__file__), "conftest.py")
    environment = {**os.environ, "TRL_EXPERIMENTAL_SILENCE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(folder), helpers, *PLACES],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    ends = [line.split() for line in done.stdout.splitlines() if line.startswith(PLACES)]
    assert ends == [[place, str(int(signal.SIGKILL))] for place in PLACES], done.stdout + done.stderr[-2000:]
    return folder


@pytest.fixture
def uninterrupted(build_trainer, tmp_path):
    """Weights of the run that nobody killed."""
    trainer = build_trainer(output_dir=str(tmp_path / "whole"), **KILLED)
    trainer.train()
    return _weights(trainer)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_run_killed_while_saving_resumes_from_a_whole_checkpoint(killed_runs, uninterrupted, build_trainer, place):
    folder = killed_runs / place
    named = sorted(path for path in folder.iterdir() if path.name.startswith("checkpoint-"))
    others = [path.name for path in folder.iterdir() if path not in named]  # a push takes those without an underscore
    assert others and all(name.startswith("_") or name == "README.md" for name in others)
    assert [path.name for path in named] == ["checkpoint-2" if place == "delete" else "checkpoint-1"]
    assert _checkpoint.fault_of(named[0]) is None and (named[0] / STATE_FOLDER / "state_0.pt").is_file()
    resumed = build_trainer(output_dir=str(folder), **KILLED)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 3
    for name, weight in _weights(resumed).items():
        torch.testing.assert_close(weight, uninterrupted[name], atol=1e-7, rtol=1e-5, msg=name)
    assert [path.name for path in folder.iterdir() if "checkpoint" in path.name] == ["checkpoint-3"]


SAVED = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}


@pytest.mark.parametrize(
    ("name", "is_gone"),
    [
        ("trainer_state.json", True),
        ("trainer_state.json", False),
        (f"{STATE_FOLDER}/state_0.pt", False),
        ("optimizer.pt", False),
        ("adapter_model.safetensors", False),
    ],
)
def test_checkpoint_that_is_not_whole_is_passed_over_and_refused_by_name(
    build_trainer, tmp_path, caplog, name, is_gone
):
    build_trainer(**SAVED).train()
    path = tmp_path / "out" / "checkpoint-2" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    if is_gone:
        path.unlink()
    with pytest.raises(UserError, match=r"checkpoint-2 is not whole \(.*\); resume from an earlier one") as caught:
        build_trainer(**SAVED).train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    assert "\n" not in str(caught.value)
    resumed = build_trainer(**{**SAVED, "max_steps": 3})
    resumed.train(resume_from_checkpoint=True)
    assert caplog.text.count("checkpoint-2 is not whole") == 1
    assert resumed.state.global_step == 3 and {row["step"] for row in resumed.state.log_history} == {1, 2, 3}
    assert _checkpoint.fault_of(tmp_path / "out" / "checkpoint-2") is None  # written again


def test_state_that_cannot_be_read_is_one_sentence(tmp_path):
    _checkpoint.save_state({"step": torch.ones(1000)}, tmp_path, 0)
    path = tmp_path / "state_0.pt"
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(
        UserError, match=r"state_0.pt cannot be read \(.*\); resume from an earlier checkpoint"
    ) as caught:
        _checkpoint.load_state(tmp_path, 0, torch.device("cpu"))
    assert "\n" not in str(caught.value)


def test_folder_without_a_whole_checkpoint_is_refused(build_trainer, tmp_path):
    (tmp_path / "out" / "checkpoint-1").mkdir(parents=True)
    with pytest.raises(UserError, match="holds no whole checkpoint to resume from; train without"):
        build_trainer().train(resume_from_checkpoint=True)
    with pytest.raises(UserError, match=r"There is no checkpoint .*checkpoint-7"):
        build_trainer().train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-7"))


def test_checkpoint_set_aside_by_a_killed_replacement_comes_back(build_trainer, tmp_path):
    build_trainer(**SAVED).train()
    out = tmp_path / "out"
    shutil.rmtree(out / "checkpoint-1")
    (out / "checkpoint-2").rename(out / "_old-checkpoint-2")
    resumed = build_trainer(**{**SAVED, "max_steps": 3})
    resumed.train(resume_from_checkpoint=True)
    assert sorted(path.name for path in out.iterdir() if "checkpoint" in path.name) == ["checkpoint-2", "checkpoint-3"]


def test_limit_keeps_the_newest_although_a_later_step_is_older(build_trainer, tmp_path):
    build_trainer(**{**SAVED, "max_steps": 3}).train()
    out = tmp_path / "out"
    for age, step in ((300, 3), (200, 2), (100, 1)):  # a run that resumed at step 1 leaves this order
        moment = os.stat(out).st_mtime - age
        os.utime(out / f"checkpoint-{step}", (moment, moment))
    trainer = build_trainer(**{**SAVED, "save_total_limit": 1})
    trainer.train(resume_from_checkpoint=str(out / "checkpoint-1"))
    assert [path.name for path in out.iterdir() if "checkpoint" in path.name] == ["checkpoint-2"]


def test_other_batch_shape_inside_a_generation_batch_is_refused(build_trainer, tmp_path):
    build_trainer(max_steps=1, save_strategy="steps", save_steps=1, num_iterations=2).train()
    trainer = build_trainer(max_steps=2, num_iterations=4)
    with pytest.raises(UserError, match="lies inside a generation batch made with num_iterations=2; resume with that"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-1"))


@pytest.mark.parametrize(("beta", "said"), [(0.0, "beta=0"), (0.2, "beta above 0")])
def test_other_beta_inside_a_generation_batch_is_refused_in_plain_words(build_trainer, tmp_path, beta, said):
    build_trainer(max_steps=1, save_strategy="steps", save_steps=1, num_iterations=2, beta=beta).train()
    trainer = build_trainer(max_steps=2, num_iterations=2, beta=0.1 if beta == 0 else 0.0)
    with pytest.raises(UserError, match=f"lies inside a generation batch made with {said}; resume with that"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-1"))


def test_other_number_of_processes_is_refused(build_trainer, tmp_path):
    build_trainer(max_steps=1, save_strategy="steps", save_steps=1).train()
    path = tmp_path / "out" / "checkpoint-1" / STATE_FOLDER / "state_0.pt"
    torch.save({**torch.load(path, weights_only=True), "num_processes": 2}, path)
    with pytest.raises(UserError, match="written by 2 processes and this run has 1; resume with the same number"):
        build_trainer(max_steps=2).train(resume_from_checkpoint=str(path.parent.parent))


@pytest.mark.parametrize(
    ("target_modules", "said"),
    [
        (["q_proj", "k_proj"], r"has no '.*k_proj.*' and has '.*v_proj.*which this run lacks"),
        (["q_proj"], r"has '.*v_proj.*which this run lacks"),
        (["q_proj", "v_proj", "o_proj"], r"has no '.*o_proj"),
    ],
)
def test_other_target_modules_are_refused_before_anything_is_loaded(
    build_trainer, helpers, tmp_path, target_modules, said
):
    build_trainer(max_steps=1, save_strategy="steps", save_steps=1).train()
    trainer = build_trainer(max_steps=2, peft_config=helpers.shared.lora_config(target_modules=target_modules))
    before = _weights(trainer)
    with pytest.raises(UserError, match=said + ".*; resume with the same model and peft_config, or start afresh"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-1"))
    assert all(torch.equal(weight, before[name]) for name, weight in _weights(trainer).items())


def test_checkpoint_that_fails_leaves_nothing_behind(build_trainer, tmp_path, monkeypatch):
    trainer = build_trainer(**SAVED)
    real = _checkpoint.save_state

    def full_disk(state, folder, rank):
        if "checkpoint-2" in str(folder):
            raise OSError(28, "No space left on device")
        real(state, folder, rank)

    monkeypatch.setattr(_checkpoint, "save_state", full_disk)
    with pytest.raises(OSError, match="No space left"):
        trainer.train()
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name != "README.md"] == ["checkpoint-1"]
