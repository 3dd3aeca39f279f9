r"""What is appended to a prompt so that the model answers where the reward of the row's task looks.

With a gold of `$18$`, "The answer is 18." and "#### 18" score 0 and `\boxed{18}` scores 1: the wording of a source has
to give way to the one that the reward reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from datasets_builders._text import hint
from datasets_builders.schema import Message, Row

# "boxed" is what `accuracy_reward` here and in TRL reads; "think_answer" follows the template of DeepSeek-R1.
PRESETS = ("boxed", "think_answer", "none")

_BOXED = {
    "math": r"Reason step by step and write your final answer inside \boxed{}.",
    "choice": r"Reason step by step and write only the letter of the option you choose inside \boxed{}.",
    "countdown": r"Reason step by step and write only your expression inside \boxed{}.",
}
_TAGGED = {
    "math": "only the final answer",
    "choice": "only the letter of the option you choose",
    "countdown": "only your expression",
    "code": "only the code block",
}
_TAGS = (
    "Put your reasoning between <think> and </think>, and after it {what} between <answer> and </answer>. Each of the "
    "four tags stands on a line of its own, and nothing stands outside the two blocks."
)
_BLOCK = "Write the solution in Python, in one code block that opens with ```python and closes with ```."
_FUNCTION = "Define what the task asks for under the name it gives, with no tests and no output of your own."
_NAMED = "Define the function `{name}`, with no tests and no output of your own."
_PROGRAM = "Write a complete program that reads its input from standard input and prints its output to standard output."


def check_preset(instruction: str | None) -> str:
    """The preset's name; `None` is `"none"`.

    Raises:
        ValueError: For a name that is none of [`PRESETS`], with what was probably meant.
    """
    if instruction is None:
        return "none"
    if instruction not in PRESETS:
        raise ValueError(f"instruction={instruction!r} is no preset{hint(instruction, PRESETS)}")
    return instruction


def instruction_text(task: str, solution: str = "", instruction: str | None = "boxed") -> str:
    r"""The instruction that a preset appends to a prompt, `""` for none.

    Args:
        task (`str`): task of the row. Maths, choice, countdown and code have an instruction. The others have none:
            a constraint of an instruction row holds for the whole reply, tags included.
        solution (`str`): the row's solution. For code it decides between a function and a program that reads standard
            input: `{"inputs", "outputs"}` without `"fn_name"` is a program.
        instruction (`str`, *optional*): a preset. `"boxed"` asks for `\boxed{}`, and of code for one Python block;
            `"think_answer"` for `<think>` and `<answer>` blocks in the exact form of `think_answer_format_reward`;
            `"none"`, or `None`, for nothing.

    Returns:
        `str`: one or more sentences.

    Raises:
        ValueError: For an unknown preset.

    Source: the two-block form is the template of DeepSeek-R1 (arXiv 2501.12948), which puts it in front of the
        question and in words that are not used here. TRL's own `accuracy_reward` reads boxes and no `<answer>` tag:
        with it, use `"boxed"`.

    Example:

    ```python
    >>> instruction_text("math")
    'Reason step by step and write your final answer inside \\boxed{}.'
    >>> instruction_text("judge")
    ''

    ```
    """
    preset = check_preset(instruction)
    if preset == "none" or task not in _TAGGED:
        return ""
    code = f"{_BLOCK} {_form(solution)}" if task == "code" else ""
    if preset == "boxed":
        return code or _BOXED[task]
    tags = _TAGS.format(what=_TAGGED[task])
    return f"{code} {tags}" if code else tags


def instruction_texts() -> list[str]:
    """Every instruction that a preset may append, code with a named function left out; to ignore in comparisons."""
    golds = ("", '{"inputs": []}')
    texts = [
        instruction_text(task, gold, preset)
        for preset in PRESETS
        for task in _TAGGED
        for gold in (golds if task == "code" else golds[:1])
    ]
    return list(dict.fromkeys(text for text in texts if text))


def _form(solution: str) -> str:
    try:
        gold = json.loads(solution)
    except (ValueError, RecursionError):
        return _FUNCTION
    if not isinstance(gold, Mapping) or "inputs" not in gold:
        return _FUNCTION
    name = gold.get("fn_name")
    return _NAMED.format(name=name) if isinstance(name, str) and name else _PROGRAM


def instructed_prompt(
    prompt: Sequence[Mapping[str, str]],
    task: str,
    solution: str = "",
    *,
    instruction: str | None = "boxed",
    system_prompt: str | None = None,
) -> list[Message]:
    """A prompt with a preset's instruction at the end of its last user turn and a system turn in front.

    Args:
        prompt (`list[dict]`): messages, as in a row.
        task (`str`): task of the row.
        solution (`str`): solution of the row; see [`instruction_text`].
        instruction (`str`, *optional*): a preset; the instruction follows the text after an empty line.
        system_prompt (`str`, *optional*): becomes the first turn. A system turn that the source has stays, after ours
            and an empty line, in the one turn that chat templates accept.

    Returns:
        `list[dict]`: new messages; `prompt` stays as it is.

    Example:

    ```python
    >>> turns = instructed_prompt([{"role": "user", "content": "6 * 7?"}], "judge", system_prompt="Be brief.")
    >>> [(turn["role"], turn["content"]) for turn in turns]
    [('system', 'Be brief.'), ('user', '6 * 7?')]

    ```
    """
    turns = [{"role": turn["role"], "content": turn["content"]} for turn in prompt]
    text = instruction_text(task, solution, instruction)
    last = max((index for index, turn in enumerate(turns) if turn["role"] == "user"), default=None)
    if text and last is not None:
        turns[last]["content"] += f"\n\n{text}"
    if not system_prompt:
        return turns
    if turns and turns[0]["role"] == "system":
        own = turns.pop(0)["content"]
        system_prompt = f"{system_prompt}\n\n{own}" if own.strip() else system_prompt
    return [{"role": "system", "content": system_prompt}, *turns]


def instructed(row: Mapping[str, Any], *, instruction: str | None = "boxed", system_prompt: str | None = None) -> Row:
    """A row with [`instructed_prompt`] in the place of its prompt."""
    prompt = instructed_prompt(
        row["prompt"], row["task"], row.get("solution") or "", instruction=instruction, system_prompt=system_prompt
    )
    return {**row, "prompt": prompt}
