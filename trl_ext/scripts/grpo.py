"""`trl-ext grpo`: GRPO and its variants from flags or YAML. Also `accelerate launch -m trl_ext.scripts.grpo`."""

from __future__ import annotations

import sys
from typing import Any

from trl_ext.errors import UserError
from trl_ext.scripts import _training

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
                                 rewards of steps: arithmetic_step_rewards, format_progress_step_rewards, or
                                 module.function
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
    return _training.run_command(argv, _HELP, _parse, train)


def _parse(argv: list[str]) -> tuple[Any, ...]:
    from dataclasses import dataclass, field

    from trl import ModelConfig
    from trl.scripts.grpo import GRPOScriptArguments

    from trl_ext.grpo import GRPOVariantConfig

    @dataclass
    class VariantScriptArguments(GRPOScriptArguments):
        process_reward_funcs: list[str] | None = field(
            default=None, metadata={"help": "Rewards of steps: names of reward_funcs.steps, or module.function."}
        )

    return _training.parse((VariantScriptArguments, GRPOVariantConfig, ModelConfig), argv, prog="trl-ext grpo")


def train(script_args: Any, training_args: Any, model_args: Any, argv: list[str]) -> int:
    """Build the trainer from parsed arguments, train, save."""
    from trl_ext.grpo import GRPOVariantTrainer

    _training.require_model(model_args)
    rewards = _training.load_rewards(script_args)
    names = script_args.process_reward_funcs or []
    process_rewards = [_training.load_step_reward(name) for name in ([names] if isinstance(names, str) else names)]
    if not rewards and not process_rewards:
        raise UserError(
            "name a reward: --reward_funcs module.function, --reward_model_name_or_path, or --process_reward_funcs"
        )
    more = {"reward_funcs": rewards or None, "process_reward_funcs": process_rewards}
    trainer = _training.build_trainer(GRPOVariantTrainer, script_args, training_args, model_args, **more)
    return _training.train_and_save(trainer, script_args, _training.command_line("grpo", argv))


if __name__ == "__main__":
    from trl_ext.cli import main as cli_main

    sys.exit(cli_main(["grpo", *sys.argv[1:]]))
