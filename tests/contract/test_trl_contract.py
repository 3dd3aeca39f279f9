"""What the trainers wrap in TRL, transformers, PEFT and torch is still there, with the parameters relied on.

A failure here says which name moved, before a training run does something else in silence.
"""

import inspect

import pytest
import torch
from accelerate.utils import is_peft_model
from peft import LoraConfig, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch.nn.parallel import DistributedDataParallel
from transformers import Trainer, trainer_utils
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import utils

from trl_ext.testing import tiny_model
from trl_ext.versions import TESTED_TRL_MINORS, installed_trl

# Method -> the first parameters after self, by name and order.
METHODS = {
    "_generate_and_score_completions": ["inputs"],
    "_compute_loss": ["model", "inputs"],
    "_prepare_inputs": ["generation_batch"],
    "_calculate_rewards": ["inputs", "prompts", "completions", "completion_ids_list"],
    "_tokenize_prompts": ["prompts"],
    "_get_per_token_logps_and_entropies": ["model", "input_ids", "attention_mask", "logits_to_keep"],
    "_save_checkpoint": ["model", "trial"],
    "_save": ["output_dir", "state_dict"],
    "_get_output_dir": ["trial"],
    "_load_from_checkpoint": ["resume_from_checkpoint", "model"],
    "_load_best_model": [],
    "_log_completion_extra": ["column", "values"],
    "_log_metric": ["name", "value"],
    "_load_optimizer_and_scheduler": ["checkpoint"],
    "_push_from_checkpoint": ["checkpoint_folder"],
    "_get_train_sampler": ["dataset"],
    "_clip_grad_norm": ["model"],
    "_get_grad_norm": ["model", "grad_norm"],
    "create_optimizer": ["model"],
    "training_step": ["model", "inputs", "num_items_in_batch"],
    "log": ["logs", "start_time"],
    "get_high_entropy_mask": ["entropies", "mask", "threshold"],
    "create_model_card": ["model_name", "dataset_name"],
}
ARGUMENTS = {
    *("model", "reward_funcs", "args", "train_dataset", "eval_dataset", "processing_class"),
    *("reward_processing_classes", "callbacks", "optimizers", "quantization_config", "peft_config", "tools"),
    *("rollout_func", "environment_factory"),
}
# Attributes of a trainer that are read or set.
ATTRIBUTES = {
    *("beta", "loss_type", "entropy_coef", "use_adaptive_entropy", "_entropy_bonus_enabled", "_last_world_entropy"),
    *(
        "top_entropy_quantile",
        "epsilon_low",
        "epsilon_high",
        "importance_sampling_level",
        "num_iterations",
        "temperature",
    ),
    *("max_completion_length", "reward_weights", "reward_func_names", "reward_funcs", "eos_token_ids", "_tokenizer"),
    *("ref_model", "_step", "_buffered_inputs", "_metrics", "_logs", "router_aux_loss_coef", "num_generations"),
    *("loss_is_scaled_for_ga", "aux_loss_enabled", "accelerator", "state", "optimizer", "model_wrapped"),
    *("num_generations_eval", "environments", "pad_to_multiple_of", "shuffle_dataset", "_is_vlm", "train_dataset"),
}
HELPERS = {
    "shuffle_sequence_dict": ["seq_dict"],
    "split_tensor_dict": ["tensor_dict", "num_chunks"],
    "use_adapter": ["model", "adapter_name"],
    "disable_dropout_in_model": ["model"],
    "get_config_model_id": ["config"],
    "is_async_callable": ["func"],
}


def _first_parameters(function, number):
    return [name for name in inspect.signature(function).parameters if name != "self"][:number]


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    from datasets import Dataset

    from trl_ext.testing import tiny_tokenizer

    args = GRPOConfig(
        output_dir=str(tmp_path_factory.mktemp("contract")),
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=4,
        num_iterations=2,
        max_steps=1,
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        tiny_model(),
        lambda completions, **kwargs: [float(len(text)) for text in completions],
        args,
        Dataset.from_dict({"prompt": ["1+1=", "2+2="] * 2}),
        processing_class=tiny_tokenizer(),
        peft_config=LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"),
    )
    trainer.seen = []
    compute = trainer._compute_loss
    trainer._compute_loss = lambda model, inputs: trainer.seen.append(inputs) or compute(model, inputs)
    trainer.train()
    return trainer


def test_installed_trl_is_a_tested_minor_version():
    assert ".".join(installed_trl().split(".")[:2]) in TESTED_TRL_MINORS, (
        f"TRL {installed_trl()} is installed; run the trainer tests with it, then add it to TESTED_TRL_MINORS."
    )


@pytest.mark.parametrize("method", METHODS)
def test_wrapped_method_has_the_parameters_relied_on(method):
    assert hasattr(GRPOTrainer, method), f"GRPOTrainer.{method} is gone, and the trainers wrap it."
    expected = METHODS[method]
    found = _first_parameters(getattr(GRPOTrainer, method), len(expected))
    assert found == expected, f"GRPOTrainer.{method} takes {found} first and the trainers pass {expected}."


def test_logps_method_takes_logits_to_keep_as_its_fourth_argument():
    parameters = list(inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)
    found = parameters.index("logits_to_keep")
    assert found == 4, f"logits_to_keep is argument {found} of _get_per_token_logps_and_entropies, not 4 after self."


def test_trainer_takes_the_arguments_that_are_passed_on():
    missing = ARGUMENTS - set(inspect.signature(GRPOTrainer.__init__).parameters)
    assert not missing, f"GRPOTrainer no longer takes {sorted(missing)}."


def test_trainer_has_the_attributes_relied_on(trainer):
    missing = {name for name in ATTRIBUTES if not hasattr(trainer, name)}
    assert not missing, f"A GRPOTrainer no longer has {sorted(missing)}."


def test_loss_is_divided_for_accumulation_by_the_trainer():
    assert GRPOTrainer.loss_is_scaled_for_ga is True, "transformers would divide the loss for accumulation once more."


def test_current_accumulation_steps_are_set_while_training(trainer):
    assert trainer.current_gradient_accumulation_steps == 1, "current_gradient_accumulation_steps is no longer set."


def test_compute_loss_gets_a_generation_batch_with_the_keys_relied_on(trainer):
    expected = {"prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages", "num_items_in_batch"}
    missing = expected | {"old_per_token_logps"}
    missing -= set(trainer.seen[0])
    assert not missing, f"A generation batch no longer has {sorted(missing)}."


def test_logps_method_returns_logps_entropies_and_auxiliary_loss(trainer):
    batch = trainer.seen[0]
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    result = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, torch.ones_like(ids), batch["completion_ids"].size(1), compute_entropy=True
    )
    assert (
        len(result) == 3 and result[0].shape == result[1].shape == batch["completion_ids"].shape and result[2] is None
    ), "_get_per_token_logps_and_entropies no longer returns (logps, entropies, auxiliary loss)."


def test_compute_loss_accepts_advantages_of_every_token(trainer):
    batch = dict(trainer.seen[0])
    batch["advantages"] = torch.ones_like(batch["completion_ids"], dtype=torch.float32)
    loss = GRPOTrainer._compute_loss(trainer, trainer.model, batch)
    batch["advantages"] = torch.ones(len(batch["completion_ids"]))
    same = GRPOTrainer._compute_loss(trainer, trainer.model, batch)
    assert torch.equal(loss, same), "_compute_loss no longer takes advantages of shape (B, T)."


def test_steps_count_the_training_steps(trainer):
    assert trainer._step == trainer.state.global_step == 1, "GRPOTrainer._step no longer counts training steps."


def test_tables_of_completions_hold_one_generation_batch(trainer):
    expected = {"images", "prompt", "completion", "rewards", "advantages", "extra"}
    assert set(trainer._logs) == expected, f"GRPOTrainer._logs holds {sorted(trainer._logs)}, not {sorted(expected)}."
    columns = [trainer._logs[name] for name in ("prompt", "completion", "advantages")]
    columns += list(trainer._logs["rewards"].values())
    found = {(column.maxlen, len(column)) for column in columns}
    assert found == {(4, 4)}, f"GRPOTrainer._logs keeps {found} entries (bound, length) of a batch of 4."


def test_shuffling_and_splitting_leave_scalars_of_a_batch_alone():
    batch = {"prompt_ids": torch.arange(4).view(4, 1), "kept_share": torch.tensor(0.5)}
    parts = utils.split_tensor_dict(utils.shuffle_sequence_dict(batch), 2)
    assert all(part["kept_share"] == 0.5 and len(part["prompt_ids"]) == 2 for part in parts), (
        "TRL no longer carries scalars of a generation batch into its micro-batches."
    )


@pytest.mark.parametrize("helper", HELPERS)
def test_helper_of_trl_has_the_parameters_relied_on(helper):
    assert hasattr(utils, helper), f"trl.trainer.utils.{helper} is gone."
    expected = HELPERS[helper]
    found = _first_parameters(getattr(utils, helper), len(expected))
    assert found == expected, f"trl.trainer.utils.{helper} takes {found} first, not {expected}."


def test_disabling_gradient_checkpointing_is_a_context_with_the_arguments_relied_on():
    from trl.models.utils import disable_gradient_checkpointing

    found = _first_parameters(disable_gradient_checkpointing, 2)
    assert found == ["model", "gradient_checkpointing_kwargs"], f"disable_gradient_checkpointing takes {found}."


def test_repeat_sampler_keeps_the_generator_that_a_resumed_run_moves_on():
    sampler = utils.RepeatSampler([0] * 5, mini_repeat_count=1, seed=0)
    expected = torch.Generator().manual_seed(0)
    first, second = (torch.randperm(5, generator=expected).tolist() for _ in range(2))
    found = [list(sampler), list(sampler)]
    assert found == [first, second] and sampler.shuffle and sampler.num_samples == 5, (
        "RepeatSampler no longer draws one torch.randperm an epoch from its generator, which resuming relies on."
    )


def test_prompt_entry_of_config_refuses_fewer_than_two_generations(tmp_path):
    with pytest.raises(ValueError, match="generations"):
        GRPOConfig(output_dir=str(tmp_path), num_generations=1, per_device_train_batch_size=2, bf16=False, use_cpu=True)


def test_tuner_layers_choose_their_adapter_by_active_adapter_alone():
    model = get_peft_model(tiny_model(), LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    model.add_adapter("other", LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    assert all(hasattr(layer, "_active_adapter") for layer in layers), "PEFT's layers have no _active_adapter."
    ids = torch.arange(4, 12)[None]
    before = model(input_ids=ids).logits
    for module in model.modules():
        if hasattr(module, "_active_adapter"):
            module._active_adapter = ["other"]
    assert not torch.equal(model(input_ids=ids).logits, before), "PEFT's layers no longer read _active_adapter."


def test_peft_model_tells_when_its_adapters_are_off():
    model = get_peft_model(tiny_model(), LoraConfig(r=2, target_modules=["q_proj"]))
    assert model._adapters_disabled is False and is_peft_model(model), "PeftModel._adapters_disabled is gone."
    with model.disable_adapter():
        assert model._adapters_disabled is True, "PeftModel._adapters_disabled does not follow disable_adapter()."


def test_save_pretrained_of_peft_saves_selected_adapters():
    from peft import PeftModel

    found = inspect.signature(PeftModel.save_pretrained).parameters
    assert "selected_adapters" in found, "PeftModel.save_pretrained no longer takes selected_adapters."


def test_ddp_can_leave_parameters_out():
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["a.weight"])
    found = model._ddp_params_and_buffers_to_ignore
    assert list(found) == ["a.weight"], "DistributedDataParallel no longer leaves named parameters out."


def test_transformers_rotates_checkpoints_with_the_arguments_relied_on():
    expected = {"output_dir", "save_total_limit", "best_model_checkpoint", "use_mtime"}
    missing = expected - set(inspect.signature(trainer_utils.rotate_checkpoints).parameters)
    assert not missing, f"transformers' rotate_checkpoints no longer takes {sorted(missing)}."


def test_trainer_clips_then_asks_for_the_norm_then_steps():
    source = inspect.getsource(Trainer._run_epoch)
    order = [source.index(name) for name in ("_clip_grad_norm(", "_get_grad_norm(", "self.optimizer.step()")]
    assert order == sorted(order), "transformers no longer clips, asks for the norm and steps in this order."
