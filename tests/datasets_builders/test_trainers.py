"""TRL's trainers take built data sets as they are: two steps each, with the tiny model."""

import json
import math

import pytest

from datasets_builders import build
from reward_funcs import accuracy_reward
from trl_ext.testing import tiny_model, tiny_tokenizer

pytestmark = pytest.mark.slow

SETTINGS = {
    "max_steps": 2,
    "per_device_train_batch_size": 2,
    "report_to": [],
    "save_strategy": "no",
    "logging_steps": 1,
    "bf16": False,
    "use_cpu": True,
    "disable_tqdm": True,
    "gradient_checkpointing": False,
}
GSM8K = [{"question": f"What is {i} + 1?", "answer": f"{i} + 1 = {i + 1}\n#### {i + 1}"} for i in range(8)]
CHATS = [
    {
        "id": str(i),
        "messages": [{"role": "user", "content": f"Say {i}."}, {"role": "assistant", "content": f"{i}."}],
        "source": "ai2-adapt-dev/oasst1_converted",
    }
    for i in range(8)
]
PAIRS = [
    {
        "chosen": f"\n\nHuman: Say {i}.\n\nAssistant: {i}, with pleasure.",
        "rejected": f"\n\nHuman: Say {i}.\n\nAssistant: No.",
    }
    for i in range(8)
]

RATED = [
    {
        "prompt": f"Say {i}.",
        "prompt_id": str(i),
        "chosen": [{"role": "user", "content": f"Say {i}."}, {"role": "assistant", "content": f"{i}."}],
        "rejected": [{"role": "user", "content": f"Say {i}."}, {"role": "assistant", "content": "No."}],
        "score_chosen": 8.0,
        "score_rejected": 6.0,
    }
    for i in range(8)
]


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A function that builds a source from raw rows written here."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")

    def data(name, rows):
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        dataset = build(name, local_path=tmp_path / "rows.jsonl", streaming=False)
        assert len(dataset) == len(rows)
        return dataset

    return data


def _trained(trainer):
    """Train, and give the losses; what is trained has moved."""
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    assert trainer.state.global_step == 2
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 2 and all(map(math.isfinite, losses))
    return any((value != before[name]).any() for name, value in trainer.model.named_parameters() if name in before)


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_online_trainer_takes_rows_and_its_reward_takes_their_golds(built, tmp_path, kind):
    import trl

    seen = []

    def reward(completions, solution, **columns):
        seen.extend(zip(columns["task"], columns["source"], solution, strict=True))
        assert accuracy_reward([f"\\boxed{{{gold.strip('$')}}}" for gold in solution], solution=solution) == [
            1.0
        ] * len(solution)
        return [float(len(set(turns[-1]["content"]))) for turns in completions]

    config = getattr(trl, f"{kind}Config")(
        str(tmp_path / "out"), num_generations=2, max_completion_length=4, beta=0.0, **SETTINGS
    )
    trainer = getattr(trl, f"{kind}Trainer")(
        model=tiny_model(),
        reward_funcs=reward,
        args=config,
        train_dataset=built("gsm8k", GSM8K),
        processing_class=tiny_tokenizer(),
    )
    _trained(trainer)
    assert {(task, source) for task, source, _ in seen} == {("math", "gsm8k")}
    assert {gold for *_, gold in seen} <= {f"${i + 1}$" for i in range(8)}


def test_sft_trainer_learns_the_completions(built, tmp_path):
    from trl import SFTConfig, SFTTrainer

    trainer = SFTTrainer(
        model=tiny_model(),
        args=SFTConfig(str(tmp_path / "out"), max_length=128, **SETTINGS),
        train_dataset=built("tulu_3_sft", CHATS),
        processing_class=tiny_tokenizer(),
    )
    assert _trained(trainer)


def test_dpo_trainer_takes_preferences(built, tmp_path):
    from trl import DPOConfig, DPOTrainer

    trainer = DPOTrainer(
        model=tiny_model(),
        ref_model=tiny_model(),
        args=DPOConfig(str(tmp_path / "out"), max_length=128, **SETTINGS),
        train_dataset=built("hh_rlhf", PAIRS),
        processing_class=tiny_tokenizer(),
    )
    assert _trained(trainer)


def _reward_trainer(dataset, tmp_path):
    from transformers import LlamaForSequenceClassification
    from trl import RewardConfig, RewardTrainer

    config = tiny_model().config
    config.num_labels = 1
    return RewardTrainer(
        model=LlamaForSequenceClassification(config),
        args=RewardConfig(str(tmp_path / "out"), max_length=128, **SETTINGS),
        train_dataset=dataset,
        processing_class=tiny_tokenizer(),
    )


def test_reward_trainer_takes_preferences_with_their_margins(built, tmp_path):
    dataset = built("ultrafeedback_binarized", RATED)
    assert dataset["margin"][:] == [2.0] * 8
    assert _trained(_reward_trainer(dataset, tmp_path))


def test_reward_trainer_takes_preferences_of_unknown_margin(built, tmp_path):
    dataset = built("hh_rlhf", PAIRS)
    assert set(dataset["margin"]) == {0.0}
    assert _trained(_reward_trainer(dataset, tmp_path))
