"""What a PPO trainer logs of each step: seconds by part, with those of the critic, and the spread of groups."""

import json

import pytest

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
