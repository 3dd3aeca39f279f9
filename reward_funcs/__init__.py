"""Reward functions for TRL: plain callables that a worker process imports in milliseconds.

Importing this package loads the standard library alone; whatever needs torch or math-verify imports it inside the
function that uses it. Each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

# public names by the module that defines them
_EXPORTS = {
    "asynchronous": ("AsyncReward",),
    "base": ("Batch", "Grade", "Reward"),
    "check": ("GoldFailure", "GoldReport", "check_golds"),
    "choice": ("ChoiceReward", "choice_reward"),
    "code": ("CodeCompilesReward", "CodeReward", "code_compiles_reward", "code_reward"),
    "compose": ("Clip", "Gate", "Min", "Product", "Sum"),
    "countdown": ("CountdownReward", "countdown_reward"),
    "extract": ("after_think", "answer_tag", "completion_text", "final_answer", "last_boxed", "last_number"),
    "format": (
        "CodeBlockFormatReward",
        "ReasoningStepsReward",
        "TagCountReward",
        "ThinkAnswerFormatReward",
        "ThinkFormatReward",
        "code_block_format_reward",
        "reasoning_steps_reward",
        "tag_count_reward",
        "think_answer_format_reward",
        "think_format_reward",
    ),
    "grading": ("AccuracyReward", "NumericReward", "accuracy_reward", "numeric_reward"),
    "instructions": ("InstructionReward", "instruction_reward"),
    "judge": (
        "CallableJudge",
        "HTTPJudge",
        "Judge",
        "JudgeTask",
        "LocalJudge",
        "Pair",
        "check_injections",
        "check_judge",
    ),
    "language": ("LanguageConsistencyReward", "language_consistency_reward"),
    "length": (
        "CosineLengthReward",
        "LengthPenaltyReward",
        "SoftOverlongReward",
        "cosine_length_reward",
        "length_penalty_reward",
        "soft_overlong_reward",
    ),
    "repetition": ("RepetitionPenaltyReward", "repetition_penalty_reward"),
    "rubric": ("Criterion", "Rubric", "preset_names"),
    "sandbox": ("HTTPSandbox", "LocalSandbox", "SandboxReport", "sandbox_report"),
    "steps": (
        "ArithmeticStepReward",
        "FormatProgressStepReward",
        "StepReward",
        "Steps",
        "arithmetic_step_rewards",
        "format_progress_step_rewards",
        "split_lines",
        "split_regex",
        "split_sentences",
    ),
    "text": ("ExactMatchReward", "exact_match_reward"),
}
_HOMES = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        import difflib

        close = difflib.get_close_matches(name, _HOMES, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # the next use does not come here again
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
