"""The reward for constraints in two steps of stock TRL's GRPO and of this project's PPO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from reward_funcs.instructions import InstructionReward
from trl_ext.testing import tiny_model, tiny_tokenizer

ASK = [{"role": "user", "content": "Tea?"}]
NAMES = ["punctuation:no_comma", "keywords:word_once"]
COMPLETIONS = ["<think>Hm, tea.</think>\nTea.", "Tea, hot.", "Well, no.", "<think>Tea"]
REWARDS = [1.0, 0.5, 0.0, 0.0]
# the forms in which rows hold their constraints, as columns
FORMS: dict[str, dict[str, Any]] = {
    "solution": {"solution": '{"instruction_id": ["punctuation:no_comma", "keywords:word_once"], '
                             '"kwargs": [null, {"keyword": "tea"}]}'},
    "columns": {"instruction_id_list": NAMES, "kwargs": [{"keyword": None}, {"keyword": "tea"}]},
}  # fmt: skip


def scripted_rollouts(prompts: list[Any], trainer: Any) -> dict[str, Any]:
    """A `rollout_func` that writes the four completions for each prompt."""
    tokenizer = trainer.processing_class
    texts = [COMPLETIONS[index % len(COMPLETIONS)] for index in range(len(prompts))]
    return {
        "prompt_ids": [
            tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False) for prompt in prompts
        ],
        "completion_ids": [[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in texts],
        "logprobs": None,
    }


def settings(folder: Path, **overrides: Any) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "num_generations": 4,
        "max_completion_length": 40,
        "max_steps": 2,
        "beta": 0.0,  # a reference model would be loaded by name
        "logging_steps": 1,
        "log_completions": True,
        "num_completions_to_print": 0,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        **overrides,
    }


def trained(trainer_class: Any, config_class: Any, folder: Path, form: str, **overrides: Any) -> Any:
    trainer = trainer_class(
        args=config_class(**settings(folder, **overrides)),
        model=tiny_model(),
        processing_class=tiny_tokenizer(),
        reward_funcs=[InstructionReward(name="follows")],
        train_dataset=Dataset.from_list([{"prompt": ASK, **FORMS[form]}] * 4),
        rollout_func=scripted_rollouts,
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("form", FORMS)
def test_stock_grpo_trains_two_steps_and_logs_each_constraint(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    trainer = trained(GRPOTrainer, GRPOConfig, tmp_path, form)
    logged = [row for row in trainer.state.log_history if "reward" in row]
    assert [row["rewards/follows/mean"] for row in logged] == [0.375, 0.375]
    assert [row["follows/followed/punctuation:no_comma"] for row in logged] == [0.25, 0.25]
    assert [row["follows/followed/keywords:word_once"] for row in logged] == [0.5, 0.5]
    tables = [pd.read_parquet(path) for path in sorted((tmp_path / "completions").glob("*.parquet"))]
    assert [list(table["follows"]) for table in tables] == [REWARDS, REWARDS]
    assert list(tables[0]["follows/reason"]) == ["followed", "partly_followed", "not_followed", "empty"]


def test_ppo_of_this_project_takes_the_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trl_ext.ppo import PPOConfig, PPOTrainer

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    trainer = trained(PPOTrainer, PPOConfig, tmp_path, "columns", critic="shared")
    logged = [row for row in trainer.state.log_history if "reward" in row]
    assert [row["rewards/follows/mean"] for row in logged] == [0.375, 0.375]
