"""`trl-ext ppo`: GAE-PPO from flags or YAML. Also `accelerate launch -m trl_ext.scripts.ppo`."""

from __future__ import annotations

import sys
from typing import Any

from trl_ext.errors import UserError
from trl_ext.scripts import _training

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
    return _training.run_command(argv, _HELP, _parse, train)


def _parse(argv: list[str]) -> tuple[Any, ...]:
    from dataclasses import dataclass, field

    from trl import ModelConfig
    from trl.scripts.grpo import GRPOScriptArguments

    from trl_ext.ppo import PPOConfig

    @dataclass
    class PPOScriptArguments(GRPOScriptArguments):
        value_model_name_or_path: str | None = field(
            default=None, metadata={"help": "The critic of --critic model: a Hub id or folder."}
        )

    return _training.parse((PPOScriptArguments, PPOConfig, ModelConfig), argv, prog="trl-ext ppo")


def train(script_args: Any, training_args: Any, model_args: Any, argv: list[str]) -> int:
    """Build the trainer from parsed arguments, train, save."""
    from trl_ext.ppo import PPOTrainer

    _training.require_model(model_args)
    rewards = _training.load_rewards(script_args)
    if not rewards:
        raise UserError("name a reward: --reward_funcs module.function, or --reward_model_name_or_path")
    more = {"reward_funcs": rewards, "value_model": script_args.value_model_name_or_path}
    trainer = _training.build_trainer(PPOTrainer, script_args, training_args, model_args, **more)
    return _training.train_and_save(trainer, script_args, _training.command_line("ppo", argv))


if __name__ == "__main__":
    from trl_ext.cli import main as cli_main

    sys.exit(cli_main(["ppo", *sys.argv[1:]]))
