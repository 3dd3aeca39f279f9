"""A resumed run equals the one that was not interrupted."""

import pytest
import torch

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
                if not name.startswith(("step_time", "epoch")) and isinstance(expected[name], float):
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


def test_other_batch_shape_inside_a_generation_batch_is_refused(build_trainer, tmp_path):
    build_trainer(max_steps=1, save_strategy="steps", save_steps=1, num_iterations=2).train()
    trainer = build_trainer(max_steps=2, num_iterations=4)
    with pytest.raises(UserError, match="lies inside a generation batch made with num_iterations=2; resume with that"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-1"))


def test_other_number_of_processes_is_refused(build_trainer, tmp_path):
    build_trainer(max_steps=1, save_strategy="steps", save_steps=1).train()
    path = tmp_path / "out" / "checkpoint-1" / STATE_FOLDER / "state_0.pt"
    torch.save({**torch.load(path, weights_only=True), "num_processes": 2}, path)
    with pytest.raises(UserError, match="written by 2 processes and this run has 1; resume with the same number"):
        build_trainer(max_steps=2).train(resume_from_checkpoint=str(path.parent.parent))
