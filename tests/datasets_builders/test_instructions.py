from __future__ import annotations

import json
from typing import Any

import pytest

from datasets_builders.instructions import (
    PRESETS,
    check_preset,
    instructed,
    instructed_prompt,
    instruction_text,
    instruction_texts,
)
from datasets_builders.schema import RL_TASKS, TASKS, preference_row, rl_row, row_errors, sft_row, user
from reward_funcs import (
    CodeBlockFormatReward,
    accuracy_reward,
    choice_reward,
    countdown_reward,
    think_answer_format_reward,
)

PUZZLE = '{"target": 24, "nums": [1, 5, 6]}'
ASSERTS = '{"asserts": ["assert f(1) == 2"]}'
PROGRAM = '{"inputs": ["1"], "outputs": ["2"]}'
CALLS = '{"inputs": ["1"], "outputs": ["2"], "fn_name": "add_one"}'
CODE = "```python\ndef f(x):\n    return x + 1\n```"
code_reward = CodeBlockFormatReward()  # the form that a reward of code reads

# task -> gold, an answer in the words of the instruction, and the reward of the task
IDEALS: dict[str, tuple[str, str, Any]] = {
    "math": ("$18$", "18", accuracy_reward),
    "choice": ("B", "B", choice_reward),
    "countdown": (PUZZLE, "(5 - 1) * 6", countdown_reward),
    "code": (ASSERTS, CODE, code_reward),
}


def score(reward: Any, completion: str, solution: str) -> float:
    scores = reward([[{"role": "assistant", "content": completion}]], solution=[solution], language=["python"])
    return float(scores[0])


@pytest.mark.parametrize("task", IDEALS)
def test_boxed_answer_as_asked_for_scores_one(task):
    solution, answer, reward = IDEALS[task]
    asked = instruction_text(task, solution, "boxed")
    assert (r"\boxed{}" in asked) == (task != "code")
    completion = f"We think.\n\n{answer}" if task == "code" else rf"We think. So it is \boxed{{{answer}}}."
    assert score(reward, completion, solution) == 1.0
    assert score(reward, "We think, and say no more.", solution) == 0.0


@pytest.mark.parametrize("task", IDEALS)
def test_think_answer_as_asked_for_scores_one_with_both_rewards(task):
    solution, answer, reward = IDEALS[task]
    asked = instruction_text(task, solution, "think_answer")
    assert all(asked.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    completion = f"<think>\nWe think.\n</think>\n<answer>\n{answer}\n</answer>"
    assert score(think_answer_format_reward, completion, solution) == 1.0
    assert score(reward, completion, solution) == 1.0


def test_boxed_maths_answer_scores_one_with_trl():
    rewards = pytest.importorskip("trl.rewards")
    completion = [[{"role": "assistant", "content": r"So it is \boxed{18}."}]]
    assert rewards.accuracy_reward(completion, solution=["$18$"]) == [1.0]


@pytest.mark.parametrize("task", [task for task in TASKS if task not in IDEALS])
@pytest.mark.parametrize("preset", PRESETS)
def test_other_tasks_have_no_instruction(task, preset):
    assert instruction_text(task, "", preset) == ""


@pytest.mark.parametrize("task", RL_TASKS)
@pytest.mark.parametrize("preset", ["none", None])
def test_preset_none_has_no_instruction(task, preset):
    assert instruction_text(task, ASSERTS, preset) == ""


@pytest.mark.parametrize("preset", ["boxed", "think_answer"])
def test_code_instruction_follows_the_tests(preset):
    texts = {
        name: instruction_text("code", gold, preset)
        for name, gold in (
            ("asserts", ASSERTS),
            ("pytest", '{"pytest": "def test_f(): pass"}'),
            ("program", PROGRAM),
            ("calls", CALLS),
        )
    }
    assert texts["asserts"] == texts["pytest"]
    assert "standard input" in texts["program"]
    assert "standard input" not in texts["asserts"] + texts["calls"]
    assert "`add_one`" in texts["calls"]
    assert all("```python" in text for text in texts.values())


@pytest.mark.parametrize(
    "solution", ["", "no JSON", "[1]", "null", "[" * 100_000, '{"fn_name": "f"}', '{"inputs": [], "fn_name": 3}']
)
def test_code_instruction_of_any_text_is_a_sentence(solution):
    assert instruction_text("code", solution).startswith("Write the solution in Python")


def test_unknown_preset_has_a_hint():
    with pytest.raises(ValueError, match=r"instruction='boxd' is no preset; did you mean 'boxed'"):
        check_preset("boxd")
    with pytest.raises(ValueError, match=r"instruction='' is no preset; choose one of boxed, think_answer, none"):
        instruction_text("judge", "", "")


def test_instruction_texts_are_all_that_presets_append():
    texts = instruction_texts()
    golds = ("", ASSERTS, PROGRAM, '{"pytest": ""}')
    assert {instruction_text(task, gold, preset) for task in TASKS for gold in golds for preset in PRESETS} == {
        "",
        *texts,
    }
    assert len(texts) == len(set(texts)) == 10


def test_instructed_prompt_appends_to_the_last_user_turn():
    prompt = [*user("First?"), {"role": "assistant", "content": "One."}, *user("Second?")]
    asked = instructed_prompt(prompt, "math")
    assert asked[:2] == prompt[:2]
    assert asked[2]["content"] == "Second?\n\n" + instruction_text("math")
    assert prompt[2] == {"role": "user", "content": "Second?"}


@pytest.mark.parametrize(
    ("prompt", "system"),
    [
        (user("Hi."), "Ours."),
        ([{"role": "system", "content": "Theirs."}, *user("Hi.")], "Ours.\n\nTheirs."),
        ([{"role": "system", "content": " "}, *user("Hi.")], "Ours."),
    ],
)
def test_instructed_prompt_system_prompt_is_one_first_turn(prompt, system):
    asked = instructed_prompt(prompt, "judge", system_prompt="Ours.")
    assert asked == [{"role": "system", "content": system}, {"role": "user", "content": "Hi."}]
    assert instructed_prompt(prompt, "judge") == prompt


@pytest.mark.parametrize("preset", PRESETS)
def test_instructed_rows_keep_the_schema(preset):
    rows = [rl_row("Q", gold, task=task, source="s") for task, (gold, _, _) in IDEALS.items()]
    rows += [sft_row("Q", "A", source="s"), preference_row("Q", "A", "B", source="s")]
    for row in rows:
        before = json.dumps(row)
        built = instructed(row, instruction=preset, system_prompt="Be brief.")
        assert row_errors(built) == []
        assert {**built, "prompt": None} == {**row, "prompt": None}
        assert json.dumps(row) == before
