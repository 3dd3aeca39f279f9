"""`trl-ext ppo`: GAE-PPO from flags or YAML. Also `accelerate launch -m trl_ext.scripts.ppo`."""

from __future__ import annotations

import sys
from typing import Any

from trl_ext.errors import UserError

_HELP = """\
usage: trl-ext ppo --model MODEL --dataset_name DATA --reward_funcs module.function [options]

Train with GAE-PPO: LoRA (--use_peft), QLoRA (--use_peft --load_in_4bit --dtype bfloat16) or full weights
(--critic shared). Under several processes: accelerate launch -m trl_ext.scripts.ppo [options].

main options:
  --model MODEL                  Hub id or folder; "smol" is SmolLM2-135M-Instruct
  --dataset_name DATA            Hub id, folder, or a .json, .jsonl, .parquet or .csv file with a column "prompt"
                                 (messages, or plain text)
  --reward_funcs NAME [NAME ...] reward functions as module.function, or a name of reward_funcs or trl.rewards
  --output_dir DIR               where adapter, card, metrics.jsonl and checkpoints go
  --use_peft                     train a LoRA (--lora_r, --lora_alpha, --lora_target_modules)
  --critic MODE                  adapter (second LoRA, default), shared (head on the policy) or model
  --learning_rate LR             of the policy (1e-5); --critic_learning_rate of the critic (1e-4)
  --kl_coef BETA                 KL penalty (0.05); 0 needs no reference
  --max_completion_length N      tokens a completion may have (512)
  --max_steps N                  optimizer steps
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

    from trl_ext.ppo import PPOConfig
    from trl_ext.scripts._training import parse

    @dataclass
    class PPOScriptArguments(GRPOScriptArguments):
        value_model_name_or_path: str | None = field(
            default=None, metadata={"help": "The critic of --critic model: a Hub id or folder."}
        )

    argv = ["--help" if word == "--help-all" else word for word in argv]
    return parse((PPOScriptArguments, PPOConfig, ModelConfig), argv, prog="trl-ext ppo")


def train(script_args: Any, training_args: Any, model_args: Any, argv: list[str]) -> int:
    """Build the trainer from parsed arguments, train, save."""
    from transformers import PrinterCallback, TrainerCallback
    from trl import get_peft_config, get_quantization_config

    from trl_ext.callbacks import MetricsWriter, ProgressBar
    from trl_ext.ppo import PPOTrainer
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
    if not rewards:
        raise UserError("name a reward: --reward_funcs module.function, or --reward_model_name_or_path")
    data = load_data(script_args)
    init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
    }
    training_args.model_init_kwargs = {**init_kwargs, **(training_args.model_init_kwargs or {})}
    training_args.disable_tqdm = True
    evaluate = training_args.eval_strategy != "no"
    trainer = PPOTrainer(
        model=model_args.model_name_or_path,
        reward_funcs=rewards,
        args=training_args,
        train_dataset=pick_split(data, script_args.dataset_train_split),
        eval_dataset=pick_split(data, script_args.dataset_test_split) if evaluate else None,
        quantization_config=get_quantization_config(model_args),
        peft_config=get_peft_config(model_args),
        callbacks=[MetricsWriter(training_args.output_dir), ProgressBar()],
        value_model=script_args.value_model_name_or_path,
    )
    trainer.remove_callback(PrinterCallback)  # metrics.jsonl holds what it prints over the progress bar

    class WriteConfig(TrainerCallback):
        """When training begins: a resume that is refused leaves the file as it was."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.is_world_process_zero:
                write_resolved_config(training_args.output_dir, script_args, training_args, model_args)

    trainer.add_callback(WriteConfig())
    trainer.train(resume_from_checkpoint=resume_from(training_args))
    finish(trainer, script_args, command_line("ppo", argv))
    return 0


if __name__ == "__main__":
    from trl_ext.cli import main as cli_main

    sys.exit(cli_main(["ppo", *sys.argv[1:]]))
