"""A rubric with rules and a judge in two steps of stock TRL's GRPO and of this project's PPO."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from reward_funcs import AsyncReward
from reward_funcs.judge import LocalJudge
from reward_funcs.rubric import Criterion, Rubric
from trl_ext.testing import tiny_model, tiny_tokenizer

ASK = [{"role": "user", "content": "Tea?"}]
COMPLETIONS = ["<think>Hm, give 5.</think>Tea, please.", "Tea.", "No. Give 5.", "down"]
# of the judge's "polite" (0-2, all points for "please") and the rule's "tea" (0-1): (2 * polite + tea) / 5
REWARDS = [1.0, 0.2, 0.0, None]


def tea(completions: Any, **columns: Any) -> list[float]:
    return [float("Tea" in text[0]["content"]) for text in completions]


def judge(messages: list[dict[str, str]]) -> str | None:
    """Reads the fenced response as data; it is down for one of them."""
    fence = re.search(r"line <<(\w+) \.\.\.>>", messages[0]["content"])
    assert fence
    text = messages[1]["content"].split(f"<<{fence[1]} RESPONSE>>\n")[1].split(f"\n<<{fence[1]} END>>")[0]
    return None if text == "down" else json.dumps({"1": {"reason": text, "score": 2 if "please" in text else 0}})


def a_rubric() -> Rubric:
    criteria = [
        Criterion("tea", "It is about tea.", max_score=1, scorer=tea),
        Criterion("polite", "It is polite.", max_score=2, weight=2.0),
    ]
    return Rubric(criteria, judge=judge, name="rubric")


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


def trained(trainer_class: Any, config_class: Any, folder: Path, rewards: list[Any], **overrides: Any) -> Any:
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "num_generations": 4,
        "max_completion_length": 60,
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
    }
    peft_config = overrides.pop("peft_config", None)
    trainer = trainer_class(
        args=config_class(**settings, **overrides),
        model=tiny_model(max_position_embeddings=4096),
        processing_class=tiny_tokenizer(),
        reward_funcs=rewards,
        train_dataset=Dataset.from_list([{"prompt": ASK}] * 4),
        rollout_func=scripted_rollouts,
        peft_config=peft_config,
    )
    for reward in rewards:
        inner = getattr(reward, "judge", None)
        if isinstance(inner, LocalJudge):
            inner.attach(trainer.model, trainer.processing_class)
    trainer.train()
    return trainer


def steps(trainer: Any) -> list[dict[str, float]]:
    return [row for row in trainer.state.log_history if "reward" in row]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")


def test_stock_grpo_trains_two_steps_and_logs_each_criterion(tmp_path: Path) -> None:
    in_thread = AsyncReward(a_rubric(), name="in_thread")
    trainer = trained(GRPOTrainer, GRPOConfig, tmp_path, [a_rubric(), in_thread])
    logged = steps(trainer)
    assert [row["rewards/rubric/mean"] for row in logged] == [pytest.approx(0.4)] * 2
    assert [row["rewards/in_thread/mean"] for row in logged] == [pytest.approx(0.4)] * 2
    assert [row["rubric/none/refused"] for row in logged] == [1.0, 1.0]
    assert [row["rubric/polite"] for row in logged] == [pytest.approx(2 / 3)] * 2
    tables = [pd.read_parquet(path) for path in sorted((tmp_path / "completions").glob("*.parquet"))]
    for table in tables:
        assert [None if pd.isna(value) else value for value in table["rubric"]] == [
            None if reward is None else pytest.approx(reward) for reward in REWARDS
        ]
        assert json.loads(table["rubric/reasons"][0]) == {"polite": "Tea, please."}
        assert list(table["rubric/scores"]) == list(table["in_thread/scores"])
    assert list(tables[0].columns) == list(tables[1].columns)


def test_base_of_the_policy_judges_it_while_its_adapter_trains(tmp_path: Path) -> None:
    local = LocalJudge(disable_adapter=True, max_new_tokens=4)
    rubric = Rubric([Criterion("polite", "It is polite.")], judge=local, none="skip", name="judged")
    config = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    with pytest.warns(UserWarning, match="LocalJudge judged none"):  # a random model writes no scores
        trainer = trained(GRPOTrainer, GRPOConfig, tmp_path, [a_rubric(), rubric], peft_config=config)
    logged = steps(trainer)
    assert [sum(value for name, value in row.items() if name.startswith("judged/none/")) for row in logged] == [4.0] * 2
    assert local._loaded is not None and local._loaded[0] is trainer.model
    assert all(row["grad_norm"] > 0 for row in logged)


@pytest.mark.slow
def test_ppo_of_this_project_takes_the_rubric(tmp_path: Path) -> None:
    from trl_ext.ppo import PPOConfig, PPOTrainer

    trainer = trained(PPOTrainer, PPOConfig, tmp_path, [a_rubric()], critic="shared")
    assert [row["rewards/rubric/mean"] for row in steps(trainer)] == [pytest.approx(0.4)] * 2
