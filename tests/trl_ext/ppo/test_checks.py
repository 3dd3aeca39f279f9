"""Bad input: one sentence that says what to change, from a real trainer wherever one can be built."""

import math
import types

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import IA3Config, PeftModel, PromptTuningConfig, get_peft_model
from transformers import OPTConfig, OPTForCausalLM
from trl import GRPOConfig

from trl_ext import versions
from trl_ext.errors import UserError
from trl_ext.ppo import PPOTrainer, checks
from trl_ext.testing import tiny_model, tiny_tokenizer

ROWS = {"prompt": ["1+1=", "2+2=", "3+3=", "4+4="], "solution": ["2", "4", "6", "8"]}


def _refused(sentence, function, *args, **kwargs):
    with pytest.raises(UserError, match=sentence) as error:
        function(*args, **kwargs)
    assert "\n" not in str(error.value)


# --- model and adapters -------------------------------------------------------------------------------------------


def test_peft_model_with_nothing_to_train_is_refused(build_trainer, lora, tmp_path):
    get_peft_model(tiny_model(), lora()).save_pretrained(tmp_path / "adapter")
    model = PeftModel.from_pretrained(tiny_model(), tmp_path / "adapter")
    _refused("nothing to train.*is_trainable=True", build_trainer, "adapter", model=model, peft_config=None)
    model = PeftModel.from_pretrained(tiny_model(), tmp_path / "adapter", is_trainable=True)
    build_trainer("adapter", model=model, peft_config=None)


@pytest.mark.parametrize("name", ["ref", "value"])
def test_adapter_with_a_name_that_ppo_uses_is_refused(build_trainer, lora, name):
    model = get_peft_model(tiny_model(), lora(), adapter_name=name)
    _refused(
        f"adapter named '{name}'.*rename it, e.g. .*adapter_name='default'",
        build_trainer,
        "adapter",
        model=model,
        peft_config=None,
    )


def test_adapter_that_is_not_named_default_needs_no_reference(build_trainer, lora):
    model = get_peft_model(tiny_model(), lora(), adapter_name="mine")
    _refused("named 'mine'.*under that name, or set kl_coef=0", build_trainer, "adapter", model=model, peft_config=None)
    model = get_peft_model(tiny_model(), lora(), adapter_name="mine")
    trainer = build_trainer("adapter", model=model, peft_config=None, kl_coef=0.0)
    trainer.train()
    assert trainer.model.active_adapter == "mine"


def test_critic_adapter_without_lora_is_refused(build_trainer):
    settings = {"peft_config": None, "kl_coef": 0.0}
    _refused("pass peft_config=LoraConfig.*critic='shared' or critic='model'", build_trainer, "adapter", **settings)


def test_critic_adapter_beside_another_kind_of_adapter_is_refused(build_trainer):
    config = IA3Config(target_modules=["k_proj"], feedforward_modules=[], task_type="CAUSAL_LM")
    _refused("policy's adapter is a IA3Config; use critic='shared'", build_trainer, "adapter", peft_config=config)


def test_value_model_for_another_critic_is_refused(build_trainer):
    _refused("value_model is used by critic='model' only.*drop one", build_trainer, "shared", value_model=tiny_model())
    _refused("pass value_model=", build_trainer, "model", value_model=None)


@pytest.mark.parametrize("full", [True, False])
def test_value_model_that_is_the_policy_is_refused(build_trainer, lora, full):
    model = tiny_model()
    settings = {"model": model, "value_model": model, "kl_coef": 0.0, "peft_config": None if full else lora()}
    _refused("value_model is the policy itself; pass a second model", build_trainer, "model", **settings)


def test_value_model_that_shares_weights_with_the_policy_is_refused(build_trainer):
    model = tiny_model()
    _refused(
        "value_model shares weights with the policy; pass", build_trainer, "model", model=model, value_model=model.model
    )


def test_value_model_with_too_small_a_vocabulary_is_refused(build_trainer):
    small = tiny_model(vocab_size=50)
    _refused("reads 50 tokens and the policy writes 101.*policy's tokenizer", build_trainer, "model", value_model=small)


def test_dropout_that_stays_on_is_refused(build_trainer, lora):
    _refused(
        r"Dropout is on \(p=0.1 in .*lora_dropout.*set disable_dropout=True or lora_dropout=0.0",
        build_trainer,
        "adapter",
        peft_config=lora(lora_dropout=0.1),
        disable_dropout=False,
    )
    trainer = build_trainer("adapter", peft_config=lora(lora_dropout=0.1))
    active = [m for m in trainer.model.modules() if isinstance(m, torch.nn.Dropout) and m.p > 0]
    assert active == []
    build_trainer("adapter", disable_dropout=False)


def test_full_kl_of_a_model_that_scales_its_logits_is_refused(build_trainer):
    model = tiny_model()
    model.config.logit_scale = 0.5
    checks.check_full_kl(model, "k3")
    _refused("caps or scales its logits .logit_scale.; use 'k3'", checks.check_full_kl, model, "full")
    model.config.logit_scale = 1.0
    checks.check_full_kl(model, "full")


def test_args_of_another_trainer_are_refused(tmp_path, reward):
    args = GRPOConfig(output_dir=str(tmp_path), bf16=False, use_cpu=True)
    _refused("args is a GRPOConfig; PPOTrainer takes a PPOConfig", PPOTrainer, tiny_model(), reward, args)


@pytest.mark.parametrize("kind", ["FSDP", "DEEPSPEED", "MEGATRON_LM"])
def test_distribution_other_than_ddp_is_refused(kind):
    accelerator = types.SimpleNamespace(distributed_type=f"DistributedType.{kind}")
    _refused(f"not under {kind}; change the launch config", checks.check_distribution, accelerator)


def test_four_bit_model_that_computes_in_float32_is_refused_on_a_gpu_only():
    def model(**quantization):
        config = types.SimpleNamespace(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32, **quantization)
        return types.SimpleNamespace(config=types.SimpleNamespace(quantization_config=config))

    sentence = "computes in float32 on CUDA.*bnb_4bit_compute_dtype=torch.bfloat16.*--dtype bfloat16"
    _refused(sentence, checks.check_quantization, model(), torch.device("cuda"))
    checks.check_quantization(model(), torch.device("cpu"))
    fast = model()
    fast.config.quantization_config.bnb_4bit_compute_dtype = torch.bfloat16
    checks.check_quantization(fast, torch.device("cuda"))
    checks.check_quantization(tiny_model(), torch.device("cuda"))


def test_untested_trl_is_refused_unless_the_variable_is_set(build_trainer, monkeypatch):
    monkeypatch.setattr(versions, "installed_trl", lambda: "1.99.0")
    monkeypatch.delenv(versions.ALLOW_UNTESTED_VARIABLE, raising=False)
    _refused(r"tested with TRL 1.16.x but 1.99.0 is installed; .*pip install", build_trainer, "shared")
    monkeypatch.setenv(versions.ALLOW_UNTESTED_VARIABLE, "1")
    build_trainer("shared")


# --- data ---------------------------------------------------------------------------------------------------------


def test_data_without_a_prompt_column_is_refused(build_trainer):
    data = Dataset.from_dict({"question": ["1+1="]})
    _refused(r"needs a column 'prompt'; it has \['question'\]", build_trainer, "shared", train_dataset=data)


def test_data_with_fewer_prompts_than_a_generation_batch_is_refused(build_trainer):
    settings = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_mini_batches": 2}
    sentence = "has 8 prompts and one generation batch needs 16; lower per_device_train_batch_size"
    _refused(sentence, build_trainer, "shared", **settings)
    trainer = build_trainer("shared", num_generations=2, max_steps=1, **settings)  # 8 prompts twice
    trainer.train()
    assert trainer.state.global_step == 1


@pytest.mark.parametrize("where", ["train_dataset", "eval_dataset"])
def test_data_without_the_column_of_a_reward_is_refused(build_trainer, where):
    def gold_reward(completions, solution, **kwargs):
        return [0.0] * len(completions)

    whole, lacking = Dataset.from_dict(ROWS), Dataset.from_dict({"prompt": ROWS["prompt"]})
    data = {"train_dataset": whole, "eval_dataset": whole, where: lacking}
    _refused(
        r"'gold_reward' needs a column 'solution'; the data set has \['prompt'\]. Add or rename",
        build_trainer,
        "shared",
        reward_funcs=gold_reward,
        **data,
    )
    build_trainer("shared", reward_funcs=gold_reward, train_dataset=whole, eval_dataset={"a": whole, "b": whole})


def test_reward_arguments_of_trl_and_optional_ones_need_no_column(build_trainer):
    def reward(prompts, completions, completion_ids, trainer_state, log_extra, log_metric, solution=None, **kwargs):
        return [0.0] * len(completions)

    build_trainer("shared", reward_funcs=reward)


def test_prompt_longer_than_the_context_is_refused_with_both_lengths(build_trainer):
    _refused(
        "Row 3 of the data set: A prompt of 506 tokens and max_completion_length=8 exceed .* 512 tokens; drop long",
        build_trainer,
        "shared",
        prompts=["1"] * 3 + ["1" * 506] * 5,
    )
    _refused("Row 1 of the data set: the prompt is empty", build_trainer, "shared", prompts=["1", ""] * 4)
    build_trainer("shared", prompts=["1" * 504] * 8, max_steps=1).train()


# --- rewards ------------------------------------------------------------------------------------------------------


def _returning(result):
    def some_reward(completions, **kwargs):
        return result(completions) if callable(result) else result

    return some_reward


def _async_returning(result):
    async def some_reward(completions, **kwargs):
        return result(completions) if callable(result) else result

    return some_reward


BAD_REWARDS = {
    "too_few": (lambda c: [0.0] * (len(c) - 1), "returned 3 rewards for 4 completions; return exactly one for each"),
    "too_many": (lambda c: [0.0] * 5, "returned 5 rewards for 4 completions"),
    "nan": (lambda c: [0.0, math.nan, 0.0, 0.0], "returned nan for completion 1; return a finite number, or None"),
    "infinite": (lambda c: [0.0, 0.0, 0.0, -math.inf], "returned -inf for completion 3"),
    "text": (lambda c: ["good"] * 4, "returned 'good' for completion 0"),
    "nested": (lambda c: [[1.0]] * 4, r"returned \[1.0\] for completion 0"),
    "number": (0.5, "returned float; return a list with one number or None"),
    "none": (None, "returned NoneType; return a list"),
    "dict": (lambda c: dict.fromkeys(range(4), 1.0), "returned dict; return a list"),
    "generator": (lambda c: (1.0 for _ in c), "returned generator; return a list"),
}


@pytest.mark.parametrize("build", [_returning, _async_returning])
@pytest.mark.parametrize("case", BAD_REWARDS)
def test_reward_that_returns_nonsense_is_refused_with_its_name(build_trainer, case, build):
    result, sentence = BAD_REWARDS[case]
    trainer = build_trainer("shared", reward_funcs=build(result))
    _refused(f"'some_reward' {sentence}", trainer.train)


@pytest.mark.parametrize(
    "result",
    [
        lambda c: tuple([1.0] * len(c)),
        lambda c: torch.ones(len(c)),
        lambda c: [True] * len(c),
        lambda c: [1] * len(c),
        lambda c: torch.ones(len(c)).numpy(),
    ],
)
def test_reward_as_a_tuple_array_or_of_whole_numbers_is_accepted(build_trainer, logs_of, result):
    trainer = build_trainer("shared", reward_funcs=_returning(result), max_steps=1)
    trainer.train()
    assert logs_of(trainer)[0]["reward"] == 1.0


def test_reward_of_none_for_every_completion_is_refused(build_trainer):
    functions = [_returning(lambda c: [None] * len(c)), _returning(lambda c: [None] * len(c))]
    functions[1].__name__ = "other_reward"
    trainer = build_trainer("shared", reward_funcs=functions)
    _refused(
        r"every reward \(some_reward, other_reward\) returned None.*all 4 completions; check the gold", trainer.train
    )


def test_reward_model_that_gives_infinity_is_refused():
    scores = torch.tensor([[1.0, 0.0], [math.inf, 0.0]])
    _refused("'big' is infinite", checks.check_scores, scores, ["big", "small"])


def test_values_that_are_not_finite_are_refused(build_trainer):
    trainer = build_trainer("shared")
    trainer.critic.head.linear.weight.data[0, 0] = torch.nan
    _refused(
        r"values are not finite.*Lower critic_learning_rate \(now 0.01\) or vf_coef.*last checkpoint", trainer.train
    )


def test_checked_reward_keeps_name_and_arguments(build_trainer):
    seen = {}

    def my_reward(completions, solution, prompts, completion_ids, trainer_state, **kwargs):
        seen.update(solution=solution, prompts=prompts, ids=completion_ids, step=trainer_state.global_step)
        return [0.0] * len(completions)

    trainer = build_trainer("shared", reward_funcs=[my_reward], train_dataset=Dataset.from_dict(ROWS), max_steps=1)
    assert trainer.reward_func_names == ["my_reward"] and trainer.reward_funcs[0].__name__ == "my_reward"
    trainer.train()
    golds = dict(zip(*ROWS.values(), strict=True))
    assert seen["solution"] == [golds[prompt] for prompt in seen["prompts"]]
    assert len(seen["ids"]) == 4 and seen["step"] == 0


# --- quantised models ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["adapter", "shared"])
def test_four_bit_model_trains_with_float32_adapters(build_trainer, weights_of, lora, tmp_path, mode):
    pytest.importorskip("bitsandbytes")
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    tiny_model(hidden_size=64, intermediate_size=128).save_pretrained(tmp_path / "model")
    quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", quantization_config=quantization)
    trainer = build_trainer(
        mode,
        model=model,
        peft_config=lora(),
        processing_class=tiny_tokenizer(),
        gradient_checkpointing=True,
        learning_rate=1e-4,
        kl_coef=0.05,
    )
    adapters = {n: p for n, p in weights_of(trainer).items() if p.requires_grad}
    assert {p.dtype for p in adapters.values()} == {torch.float32}
    before = {n: p.detach().clone() for n, p in weights_of(trainer).items()}
    trainer.train()
    after = weights_of(trainer)
    moved = {n for n in after if before[n].dtype.is_floating_point and not torch.equal(after[n], before[n])}
    assert {n for n in adapters if "lora_B" in n or "head" in n} <= moved <= adapters.keys()
    assert {p.dtype for n, p in after.items() if n in adapters} == {torch.float32}
    assert all(math.isfinite(row["loss"]) for row in trainer.state.log_history if "loss" in row)


def test_noise_on_the_embeddings_is_refused(build_trainer):
    _refused("neftune_noise_alpha=5.* leave it unset", build_trainer, neftune_noise_alpha=5)


def test_completions_without_a_limit_train(build_trainer, logs_of, scripted):
    def rollout(prompts, trainer):
        limit, trainer.max_completion_length = trainer.max_completion_length, 8  # for the script, not for the trainer
        try:
            return scripted(prompts, trainer)
        finally:
            trainer.max_completion_length = limit

    trainer = build_trainer(max_completion_length=None, rollout_func=rollout, max_steps=1)
    trainer.train()
    assert trainer.max_completion_length is None and len(logs_of(trainer)) == 1
    sampled = build_trainer(max_completion_length=None, max_steps=1)
    checks.check_prompt_lengths([[1] * 9], None, sampled.model)
    context = sampled.model.config.max_position_embeddings
    _refused(f"A prompt of {context} tokens", checks.check_prompt_lengths, [[1] * context], None, sampled.model)


def test_rollout_longer_than_the_context_is_refused_with_its_length(build_trainer):
    model = build_trainer().model
    context = model.config.max_position_embeddings
    checks.check_rollout_lengths([[1] * 4], [[1] * (context - 4)], model)
    sentence = f"A prompt of 4 tokens and a completion of {context} tokens exceed .* rollout function"
    _refused(sentence, checks.check_rollout_lengths, [[1] * 4], [[1] * context], model)


@pytest.mark.parametrize("prompt", [["a"], [["a"]], 3])
def test_prompt_that_is_no_text_and_no_messages_is_refused_with_its_row(build_trainer, prompt):
    with pytest.raises(UserError, match="a prompt is text or a list of messages, not"):
        checks.num_bytes(prompt)


def test_attention_dropout_is_turned_off_with_disable_dropout_and_refused_without():
    model = tiny_model(attention_dropout=0.25)
    with pytest.raises(ValueError, match=r"p=0\.25"):
        checks.check_dropout(model, disable_dropout=False)
    checks.check_dropout(model, disable_dropout=True)
    assert {layer.self_attn.attention_dropout for layer in model.model.layers} == {0.0}


def test_functional_dropout_of_other_architectures_is_turned_off(build_trainer):
    config = OPTConfig(vocab_size=101, hidden_size=32, ffn_dim=64, num_hidden_layers=1, num_attention_heads=2)
    config.word_embed_proj_dim, config.dropout = 32, 0.2
    model = OPTForCausalLM(config)
    checks.check_dropout(model, disable_dropout=True)
    assert {getattr(module, "dropout", 0.0) for module in model.modules()} == {0.0}


def test_reward_that_takes_no_keywords_is_refused_before_training(build_trainer):
    _refused(r"does not accept '\w+'; give it \*\*kwargs", build_trainer, "shared", reward_funcs=lambda completions: [])


def test_rewards_of_numpy_and_torch_scalars_are_numbers():
    rewards = checks._checked([np.float32(0.5), np.bool_(True), torch.tensor(0.25), None], "some_reward", 4)
    assert rewards == [0.5, True, 0.25, None]


def test_prompt_learning_is_refused(build_trainer):
    peft_config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    model = get_peft_model(tiny_model(), peft_config)
    _refused("Prompt learning", build_trainer, "shared", model=model, peft_config=None)


def test_lora_with_trained_biases_gets_a_critic_without(build_trainer, lora):
    trainer = build_trainer("adapter", peft_config=lora(bias="lora_only"))
    assert trainer.model.peft_config["value"].bias == "none"
    trainer.train()
