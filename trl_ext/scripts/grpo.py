"""`trl-ext grpo`: GRPO and its variants from flags or YAML. Also `accelerate launch -m trl_ext.scripts.grpo`."""

from __future__ import annotations

import sys
from typing import Any

from trl_ext.errors import UserError

_HELP = """\
usage: trl-ext grpo --model MODEL --dataset_name DATA --reward_funcs module.function [options]

Train with GRPO or a variant of it: the flags and YAML files of TRL's `trl grpo`, and the ones below.
Under several processes: accelerate launch -m trl_ext.scripts.grpo [options].

main options:
  --model MODEL                  Hub id or folder; "smol" is SmolLM2-135M-Instruct
  --dataset_name DATA            Hub id, folder, or a .json, .jsonl, .parquet or .csv file with a column "prompt"
                                 (messages, or plain text)
  --reward_funcs NAME [NAME ...] reward functions as module.function, or a name of reward_funcs or trl.rewards
  --process_reward_funcs NAME [NAME ...]
                                 rewards of steps, e.g. reward_funcs.steps.arithmetic_step_rewards
  --output_dir DIR               where model or adapter, card, metrics.jsonl and checkpoints go
  --use_peft                     train a LoRA (--lora_r, --lora_alpha, --lora_target_modules)
  --advantage_estimator NAME     trl (default), verl, open_instruct, rloo, dr_grpo, reinforce_pp, maxrl, gdpo,
                                 pass_at_k, reinforce or custom; --advantage_baseline and others change a part of it
  --zero_std WHAT                groups of equal rewards: keep (default), mask, resample or replay
  --beta BETA                    KL penalty (0); --kl_estimator k1, k2, k3, abs or full, --kl_placement loss or reward
  --num_generations N            completions a prompt (8)
  --config FILE                  YAML with any of the options, or the name of a recipe

--help-all lists every option.
"""


def main(argv: list[str]) -> int:
    """Train.

    Args:
        argv (`list[str]`): Arguments after the command name.

    Returns:
        0 when the run has ended.
    """
    if "--help" in argv or "-h" in argv:
        print(_HELP, end="")
        return 0
    from trl_ext.scripts._training import quiet_libraries

    quiet_libraries()
    script_args, training_args, model_args = _parse(argv)
    return train(script_args, training_args, model_args, argv)


def _parse(argv: list[str]) -> tuple[Any, ...]:
    from dataclasses import dataclass, field

    from trl import ModelConfig
    from trl.scripts.grpo import GRPOScriptArguments

    from trl_ext.grpo import GRPOVariantConfig
    from trl_ext.scripts._training import parse

    @dataclass
    class VariantScriptArguments(GRPOScriptArguments):
        process_reward_funcs: list[str] | None = field(
            default=None, metadata={"help": "Rewards of steps, as module.function."}
        )

    argv = ["--help" if word == "--help-all" else word for word in argv]
    return parse((VariantScriptArguments, GRPOVariantConfig, ModelConfig), argv, prog="trl-ext grpo")


def train(script_args: Any, training_args: Any, model_args: Any, argv: list[str]) -> int:
    """Build the trainer from parsed arguments, train, save."""
    from transformers import PrinterCallback, TrainerCallback
    from trl import get_peft_config, get_quantization_config

    from trl_ext.callbacks import MetricsWriter, ProgressBar
    from trl_ext.grpo import GRPOVariantTrainer
    from trl_ext.scripts._training import (
        command_line,
        finish,
        load_data,
        load_reward,
        pick_split,
        resume_from,
        write_resolved_config,
    )

    if model_args.model_name_or_path is None:
        raise UserError('name the model: --model with a Hub id or folder, or "smol"')
    rewards = [load_reward(name) for name in script_args.reward_funcs or []]
    if script_args.reward_model_name_or_path:
        rewards.append(script_args.reward_model_name_or_path)
    names = script_args.process_reward_funcs or []
    process_rewards = [load_reward(name) for name in ([names] if isinstance(names, str) else names)]
    if not rewards and not process_rewards:
        raise UserError(
            "name a reward: --reward_funcs module.function, --reward_model_name_or_path, or --process_reward_funcs"
        )
    data = load_data(script_args)
    init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
    }
    training_args.model_init_kwargs = {**init_kwargs, **(training_args.model_init_kwargs or {})}
    training_args.disable_tqdm = True
    evaluate = training_args.eval_strategy != "no"
    trainer = GRPOVariantTrainer(
        model=model_args.model_name_or_path,
        reward_funcs=rewards or None,
        args=training_args,
        train_dataset=pick_split(data, script_args.dataset_train_split),
        eval_dataset=pick_split(data, script_args.dataset_test_split) if evaluate else None,
        quantization_config=get_quantization_config(model_args),
        peft_config=get_peft_config(model_args),
        callbacks=[MetricsWriter(training_args.output_dir), ProgressBar()],
        process_reward_funcs=process_rewards,
    )
    trainer.remove_callback(PrinterCallback)  # metrics.jsonl holds what it prints over the progress bar

    class WriteConfig(TrainerCallback):
        """When training begins: a resume that is refused leaves the file as it was."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.is_world_process_zero:
                write_resolved_config(training_args.output_dir, script_args, training_args, model_args)

    trainer.add_callback(WriteConfig())
    trainer.train(resume_from_checkpoint=resume_from(training_args))
    finish(trainer, script_args, command_line("grpo", argv))
    return 0


if __name__ == "__main__":
    from trl_ext.cli import main as cli_main

    sys.exit(cli_main(["grpo", *sys.argv[1:]]))
