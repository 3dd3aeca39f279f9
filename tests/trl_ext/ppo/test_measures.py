"""What a PPO trainer logs of each step: seconds by part, with those of the critic, and the spread of groups."""

import json

import pytest
import torch
from transformers import TrainerCallback

from trl_ext._measures import PARTS
from trl_ext.callbacks import MetricsWriter


@pytest.fixture
def rows_of(build_trainer, tmp_path):
    """Trains and returns the lines of the steps in the metrics file."""

    def run(mode="adapter", **settings):
        build_trainer(mode, callbacks=[MetricsWriter(tmp_path / "out")], **settings).train()
        lines = (tmp_path / "out" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [row for row in map(json.loads, lines) if "loss" in row]

    return run


@pytest.mark.parametrize("mode", ["adapter", "shared", "model"])
def test_parts_add_up_to_the_step_and_hold_the_critics_time(rows_of, mode):
    for row in rows_of(mode, max_steps=2):
        assert sum(row[f"time/{part}"] for part in PARTS) == pytest.approx(row["time/step"])
        assert row["time/generate"] > 0 and row["time/score"] > 0
        assert row["time/prepare"] + row["time/update"] > row["critic/seconds"]


def test_one_completion_a_prompt_has_no_spread(rows_of):
    assert not [row for row in rows_of(max_steps=1, num_generations=1) if "group_std" in row]


def test_two_completions_a_prompt_have_one(rows_of):
    (row,) = rows_of(max_steps=1, num_generations=2)
    assert len(row["group_std"]) == 2


def test_steps_without_update_are_timed_as_well(rows_of):
    rows = rows_of(max_steps=4, num_ppo_epochs=4, target_kl=1e-9, learning_rate=1.0)
    assert [row["policy/updates_stopped"] for row in rows][-1] == 1.0
    for row in rows:
        assert sum(row[f"time/{part}"] for part in PARTS) == pytest.approx(row["time/step"])


class Hooks(TrainerCallback):
    """Forward hooks of the policy's and the separate critic's embeddings after each step."""

    def __init__(self):
        self.numbers = []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        embeddings = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
        self.numbers.append(sum(len(module._forward_hooks) for module in embeddings))


@pytest.mark.parametrize("mode", ["adapter", "shared", "model"])
def test_long_run_does_not_gather_hooks_that_slow_each_token(build_trainer, mode):
    hooks = Hooks()
    trainer = build_trainer(mode, callbacks=[hooks], max_steps=8, gradient_checkpointing=True, beta=0.1)
    critic = trainer.critic.model.modules() if mode == "model" else []
    before = sum(len(m._forward_hooks) for m in critic if isinstance(m, torch.nn.Embedding))
    trainer.train()
    assert len(hooks.numbers) == 8 and len(set(hooks.numbers[2:])) == 1 and 1 <= hooks.numbers[-1] <= 8
    critic = trainer.critic.model.modules() if mode == "model" else []
    assert sum(len(m._forward_hooks) for m in critic if isinstance(m, torch.nn.Embedding)) <= before + 1
