"""What only a GPU shows: bf16, nf4, gradient checkpointing on CUDA. Skipped where there is none."""

import math

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig

from trl_ext.ppo import PPOConfig, PPOTrainer
from trl_ext.testing import tiny_model, tiny_tokenizer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def _reward(completions, **kwargs):
    return [(len(turns[0]["content"]) % 7) / 7 for turns in completions]


def _trainer(tmp_path, model, **settings):
    rows = [{"prompt": [{"role": "user", "content": f"Say {i}"}]} for i in range(32)]
    defaults = {
        "output_dir": str(tmp_path),
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "max_completion_length": 16,
        "max_steps": 3,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "report_to": [],
        "save_strategy": "no",
        "bf16": True,
    }
    return PPOTrainer(
        model=model,
        reward_funcs=_reward,
        args=PPOConfig(**{**defaults, **settings}),
        train_dataset=Dataset.from_list(rows),
        processing_class=tiny_tokenizer(),
        peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    )


def _finite_logs(trainer):
    logs = [row for row in trainer.state.log_history if "loss" in row]
    return len(logs) == 3 and all(math.isfinite(v) for row in logs for v in row.values() if v is not None)


@pytest.mark.parametrize("critic", ["adapter", "shared"])
def test_training_bf16_moves_policy_and_critic_in_float32(tmp_path, critic):
    trainer = _trainer(tmp_path, tiny_model().to("cuda", torch.bfloat16), critic=critic)
    before = {n: p.detach().clone() for n, p in trainer.model.named_parameters() if p.requires_grad}
    trainer.train()
    assert _finite_logs(trainer)
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters() if p.requires_grad)
    moved = {n.split(".")[-2] for n, p in trainer.model.named_parameters() if n in before and (p != before[n]).any()}
    assert moved == ({"default", "value"} if critic == "adapter" else {"default"})
    assert trainer.critic.head.linear.weight.abs().max() > 0
    log = [row for row in trainer.state.log_history if "loss" in row][-1]
    assert log["critic/seconds"] > 0 and log["critic/peak_bytes"] > 0


@pytest.mark.parametrize("critic", ["adapter", "shared"])
def test_training_nf4_keeps_base_and_trains_float32_adapters(tmp_path, critic):
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    folder = tmp_path / "model"
    tiny_model(hidden_size=64, intermediate_size=128).save_pretrained(folder)
    quantization = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    )
    model = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=quantization, dtype=torch.bfloat16, device_map={"": 0}
    )
    trainer = _trainer(tmp_path, model, critic=critic, gradient_checkpointing=True)
    base = {n: p.detach().clone() for n, p in trainer.model.named_parameters() if not p.requires_grad}
    trainer.train()
    assert _finite_logs(trainer)
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters() if p.requires_grad)
    assert all(torch.equal(p, base[n]) for n, p in trainer.model.named_parameters() if n in base)


def test_nf4_float32_compute_dtype_is_refused(tmp_path):
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    folder = tmp_path / "model"
    tiny_model(hidden_size=64, intermediate_size=128).save_pretrained(folder)
    quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32)
    model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=quantization, device_map={"": 0})
    with pytest.raises(ValueError, match=r"bnb_4bit_compute_dtype=torch\.bfloat16"):
        _trainer(tmp_path, model)


@pytest.mark.parametrize("critic", ["adapter", "shared"])
def test_gradient_checkpointing_on_cuda_gives_the_same_run(tmp_path, critic):
    runs = []
    for checkpointing in (False, True):
        trainer = _trainer(
            tmp_path, tiny_model().cuda(), critic=critic, bf16=False, gradient_checkpointing=checkpointing
        )
        trainer.train()
        runs.append([row for row in trainer.state.log_history if "loss" in row])
    for plain, checkpointed in zip(*runs, strict=True):
        for name in ("loss", "grad_norm", "value/grad_norm", "value/loss", "reward"):
            assert checkpointed[name] == pytest.approx(plain[name], rel=1e-3, abs=1e-5), name
