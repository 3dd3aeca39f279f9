"""Precise instruction following: constraints that a program can check, and the reward for following them.

`ifeval`, `training`, `ifbench` and `custom` hold the checkers, `response` the sentences and words that they look at,
`golds` the forms of the data, `kinds` the registry, `reward` the reward.
"""

from __future__ import annotations

# the modules enter their checkers in the registry
from reward_funcs.instructions import custom, ifbench, ifeval, training
from reward_funcs.instructions.golds import constraints_of
from reward_funcs.instructions.kinds import KINDS
from reward_funcs.instructions.reward import InstructionReward, instruction_reward

# the names of all constraints that are checked here
CONSTRAINTS = tuple(sorted(KINDS))

__all__ = [
    "CONSTRAINTS",
    "InstructionReward",
    "constraints_of",
    "custom",
    "ifbench",
    "ifeval",
    "instruction_reward",
    "training",
]
