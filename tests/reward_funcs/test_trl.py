"""The rewards in stock TRL: in its trainers, as its scripts find them, and as its asynchronous trainer scores."""

import asyncio
import functools
import importlib
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import transformers
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl.rewards import get_repetition_penalty_reward, get_soft_overlong_punishment

import reward_funcs
from reward_funcs import (
    AccuracyReward,
    AsyncReward,
    Gate,
    LengthPenaltyReward,
    SoftOverlongReward,
    Sum,
    accuracy_reward,
    language_consistency_reward,
    length_penalty_reward,
    repetition_penalty_reward,
    sandbox_report,
    soft_overlong_reward,
    think_format_reward,
)
from trl_ext.testing import tiny_model, tiny_tokenizer

NAN = float("nan")
THOUGHT = "<think>\nI add the two numbers.\n</think>\n"

# prompt, what a right completion says, gold, language asked for. The third gold needs the worker processes.
ROWS = [
    ("2+3=", "5", "5", "en"),
    ("6+1=", "7", r"\frac{14}{2}", "zh"),
    ("R-0=", r"(-\infty,0)\cup(0,\infty)", r"\mathbb{R}\setminus\{0\}", "en"),
    ("9+0=", "9", None, "en"),
]
# of each group of four: completion, is it right, has it the format
KINDS = [
    (THOUGHT + r"So it is \boxed{ANSWER}.", 1.0, 1.0),
    (r"So it is \boxed{ANSWER}.", 1.0, 0.0),
    (THOUGHT + r"So it is \boxed{33}.", 0.0, 1.0),
    ("I do not know, I do not know, I do not know.", 0.0, 0.0),
]
ANSWERS = {prompt: answer for prompt, answer, _, _ in ROWS}
TEXTS = [text.replace("ANSWER", answer) for _, answer, _, _ in ROWS for text, _, _ in KINDS]
RIGHT = [NAN if gold is None else right for _, _, gold, _ in ROWS for _, right, _ in KINDS]
FORMAT = [form for _ in ROWS for _, _, form in KINDS]


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    transformers.logging.set_verbosity_error()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func and the asynchronous trainer are experimental
        yield


def user_text(prompt):
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]


def dataset(conversational):
    wrap = (lambda text: [{"role": "user", "content": text}]) if conversational else (lambda text: text)
    return Dataset.from_list(
        [{"prompt": wrap(prompt), "solution": gold, "language": code} for prompt, _, gold, code in ROWS]
    )


def completion_of(text, kind):
    """The completion of that kind for a rendered prompt."""
    answer = next(answer for prompt, answer in ANSWERS.items() if prompt in text)
    return KINDS[kind % len(KINDS)][0].replace("ANSWER", answer)


def scripted_ids(tokenizer, texts):
    """Each group of four prompts gets the four kinds, ended by the stop token."""
    return [[*tokenizer(completion_of(text, i)).input_ids, tokenizer.eos_token_id] for i, text in enumerate(texts)]


def scripted_rollouts(prompts, trainer):
    """A `rollout_func` that knows its completions."""
    tokenizer = trainer.processing_class
    prompt_ids = [
        tokenizer(prompt).input_ids
        if isinstance(prompt, str)
        else tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
        for prompt in prompts
    ]
    return {
        "prompt_ids": prompt_ids,
        "completion_ids": scripted_ids(tokenizer, map(user_text, prompts)),
        "logprobs": None,
    }


def settings(folder, **overrides):
    """Two steps of two prompts in the order of the data, four completions each."""
    return {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 80,
        "max_steps": 2,
        "beta": 0.0,
        "shuffle_dataset": False,
        "log_completions": True,
        "num_completions_to_print": 0,  # printing tables of so many columns takes longer than all the rest
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        **overrides,
    }


class Tables(transformers.TrainerCallback):
    """What each step puts in the table of completions; RLOO shows it and writes it to no file."""

    def __init__(self, trainer):
        self.trainer, self.frames = trainer, []

    def on_log(self, args, state, control, logs, **kwargs):
        if "reward" in logs:
            log = self.trainer._logs
            columns = {**log["rewards"], **log["extra"], "advantage": log["advantages"]}
            self.frames.append(pd.DataFrame({"completion": log["completion"], **columns}))


def trained(method, folder, funcs, *, conversational=True, tokenizer=None, **overrides):
    """A trainer of TRL after two scripted steps, and its tables of completions."""
    arguments = {
        "model": tiny_model(),
        "processing_class": tokenizer or tiny_tokenizer(),
        "reward_funcs": funcs,
        "train_dataset": dataset(conversational),
    }
    if method == "grpo":
        config = GRPOConfig(**settings(folder, **overrides))
        trainer = GRPOTrainer(args=config, rollout_func=scripted_rollouts, **arguments)
    else:
        trainer = RLOOTrainer(args=RLOOConfig(**settings(folder, **overrides)), **arguments)
        # RLOO takes no rollout_func: this is where its own generation would return
        trainer._generate_single_turn = lambda prompt_ids, *_: scripted_ids(
            trainer.processing_class, trainer.processing_class.batch_decode(prompt_ids)
        )
    tables = Tables(trainer)
    trainer.add_callback(tables)
    trainer.train()
    assert len(tables.frames) == 2
    return trainer, pd.concat(tables.frames if method == "rloo" else frames_in(folder), ignore_index=True)


def frames_in(folder):
    """The tables that TRL has written, by step."""
    return [pd.read_parquet(path) for path in sorted((Path(folder) / "completions").glob("*.parquet"))]


def steps(trainer):
    return [row for row in trainer.state.log_history if "reward" in row]


def length_places():
    """0.5 for the shortest to -0.5 for the longest of each group of four."""
    places = []
    for start in range(0, len(TEXTS), 4):
        lengths = [len(text) + 1 for text in TEXTS[start : start + 4]]
        places += [0.5 - (length - min(lengths)) / (max(lengths) - min(lengths)) for length in lengths]
    return places


def everything():
    """Rewards of ours by name, with their expected values, and two of TRL's own to compare with."""
    both = Sum([accuracy_reward, think_format_reward], weights=[1.0, 0.5], name="both")
    short = SoftOverlongReward(40, 20, name="short_limit")
    expected = {
        accuracy_reward: RIGHT,
        think_format_reward: FORMAT,
        both: [right + 0.5 * form for right, form in zip(RIGHT, FORMAT, strict=True)],
        Gate(think_format_reward, accuracy_reward, otherwise=-1.0, name="gated"): [
            right if form else -1.0 for right, form in zip(RIGHT, FORMAT, strict=True)
        ],
        soft_overlong_reward: [0.0] * 16,
        short: [max(-1.0, min(0.0, (20 - len(text) - 1) / 20)) for text in TEXTS],
        repetition_penalty_reward: None,
        length_penalty_reward: length_places(),
        language_consistency_reward: [0.0 if code == "zh" else 1.0 for *_, code in ROWS for _ in KINDS],
        AsyncReward(AccuracyReward(name="in_thread")): RIGHT,
    }
    theirs = [get_repetition_penalty_reward(3, -1.0), get_soft_overlong_punishment(40, 20)]
    theirs[0].__name__ += "_of_trl"  # it is called as ours, and columns of one name break TRL's table
    return expected, theirs


# --- TRL's trainers -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("conversational", [True, False], ids=["messages", "texts"])
@pytest.mark.parametrize("method", ["grpo", "rloo"])
def test_rewards_in_a_trainer_of_trl_have_their_values_in_its_table_and_logs(method, conversational, tmp_path):
    expected, theirs = everything()
    funcs = [*expected, *theirs]
    trainer, frame = trained(method, tmp_path, funcs, conversational=conversational)
    names = trainer.reward_func_names
    assert len(frame) == 16 and len(set(names)) == len(funcs)
    said = [text if isinstance(text, str) else text[0]["content"] for text in frame["completion"]]
    assert said == TEXTS
    assert isinstance(trainer._logs["completion"][0], list) is conversational
    for reward, values in expected.items():
        if values is not None:
            np.testing.assert_allclose(frame[reward.__name__], values, atol=1e-6, err_msg=reward.__name__)
    np.testing.assert_allclose(frame["repetition_penalty_reward"], frame[names[-2]], atol=1e-6)
    assert frame["repetition_penalty_reward"].iloc[3] < -0.4
    np.testing.assert_allclose(frame["short_limit"], frame[names[-1]], atol=1e-6)
    for step, rows in zip(steps(trainer), (slice(0, 8), slice(8, 16)), strict=True):
        for name in names:
            assert step[f"rewards/{name}/mean"] == pytest.approx(np.nanmean(frame[name][rows]), abs=1e-6)


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory):
    """A GRPO run whose logs the tests below look at: trainer, table, folder, and step, column, length logged."""
    folder, logged = tmp_path_factory.mktemp("plain"), []
    log_extra = GRPOTrainer._log_completion_extra

    def log(trainer, column, values):
        logged.append((trainer.state.global_step, column, len(values)))
        log_extra(trainer, column, values)

    both = Sum([accuracy_reward, think_format_reward], name="both")
    funcs = [accuracy_reward, AsyncReward(AccuracyReward(name="in_thread")), both]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GRPOTrainer, "_log_completion_extra", log)
        trainer, frame = trained("grpo", folder, funcs, num_completions_to_print=1)
    return trainer, frame, folder, logged


def test_table_says_what_was_read_and_why(plain_run):
    _, frame, _, _ = plain_run
    assert list(frame["accuracy_reward/reason"][:4]) == ["correct", "correct", "wrong", "no_answer"]
    assert list(frame["accuracy_reward/reason"][12:]) == ["bad_gold"] * 4
    answers = frame["accuracy_reward/answer"]
    assert list(answers[:3]) == ["5", "5", "33"] and answers.isna()[[3, 7, 11, 15]].all()
    for name in ("in_thread", "both/accuracy_reward"):
        for column in ("reason", "answer"):
            pd.testing.assert_series_equal(
                frame[f"{name}/{column}"], frame[f"accuracy_reward/{column}"], check_names=False
            )
    np.testing.assert_array_equal(frame["both/think_format_reward"], FORMAT)


def test_extra_columns_are_logged_once_a_step_each_with_all_rows(plain_run):
    trainer, _, folder, logged = plain_run
    # not from the trainer's own log, which drops what is too much
    columns = list(trainer._logs["extra"])
    assert sorted(logged) == sorted((step, column, 8) for step in (0, 1) for column in columns)
    first, second = frames_in(folder)
    assert list(first.columns) == list(second.columns) and set(columns) < set(first.columns)


def test_bad_golds_are_counted_in_the_step_that_has_them(plain_run):
    first, second = steps(plain_run[0])
    assert not [name for name in first if "/none/" in name]
    assert {name: value for name, value in second.items() if "/none/" in name} == {
        "accuracy_reward/none/bad_gold": 4.0,
        "in_thread/none/bad_gold": 4.0,
        "both/none/bad_gold": 4.0,
        "both/accuracy_reward/none/bad_gold": 4.0,
    }
    assert first["both/accuracy_reward"] == second["both/accuracy_reward"] == 0.5


def test_advantages_follow_the_rewards_and_unjudged_groups_have_none(plain_run):
    advantage = plain_run[1]["advantage"]
    assert (advantage[[0, 4, 8]] > 0).all() and (advantage[[3, 7, 11]] < 0).all()
    assert list(advantage[12:]) == [0.0] * 4


def test_asynchronous_form_of_a_reward_beside_the_reward_has_columns_of_its_own(tmp_path):
    _, frame = trained("grpo", tmp_path, [accuracy_reward, AsyncReward(accuracy_reward, name="in_thread")])
    np.testing.assert_array_equal(frame["accuracy_reward"], frame["in_thread"])
    assert list(frame["in_thread/reason"]) == list(frame["accuracy_reward/reason"])


def test_rewards_of_one_class_with_different_names_are_kept_apart(tmp_path):
    funcs = [
        AccuracyReward(name="boxed", extraction="last_boxed"),
        AccuracyReward(name="number", extraction="last_number"),
        SoftOverlongReward(60, 10, name="loose"),
        SoftOverlongReward(30, 10, name="tight"),
        LengthPenaltyReward(name="short"),
        LengthPenaltyReward(accuracy=accuracy_reward, name="short_and_right"),
    ]
    trainer, frame = trained("grpo", tmp_path, funcs, reward_weights=[1.0, 0.0, 0.0, 0.1, 0.0, 0.0])
    assert trainer.reward_func_names == ["boxed", "number", "loose", "tight", "short", "short_and_right"]
    assert list(frame["boxed"][:4]) == [1.0, 1.0, 0.0, 0.0] and frame["boxed/reason"][3] == "no_answer"
    assert frame["number/answer"][2] == "33"
    assert [len(text) + 1 for text in TEXTS[:4]] == [60, 20, 61, 45]
    np.testing.assert_allclose(frame["loose"][:4], [-1.0, 0.0, -1.0, 0.0])
    np.testing.assert_allclose(frame["tight"][:4], [-1.0, 0.0, -1.0, -1.0])
    # 0.5 - (length - 20) / 41, and for a wrong answer at most 0
    np.testing.assert_allclose(frame["short"][:4], [0.5 - 40 / 41, 0.5, -0.5, 0.5 - 25 / 41], atol=1e-6)
    np.testing.assert_allclose(frame["short_and_right"][:4], frame["short"][:4].clip(upper=[1, 1, 0, 0]), atol=1e-6)
    mean = (RIGHT[0] + RIGHT[1]) / 4
    assert steps(trainer)[0]["reward"] == pytest.approx(mean + 0.1 * frame["tight"][:8].mean(), abs=1e-6)


def test_reasoning_that_the_template_moves_to_a_field_is_judged(tmp_path):
    tokenizer = tiny_tokenizer()
    # as TRL sets it for Qwen3: the message has `reasoning_content`, and its content starts after the block
    tokenizer.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "reasoning_content": {"open": "<think>", "close_pattern": r"</think>\s*", "content": "text"},
            "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
        },
    }
    funcs = [think_format_reward, accuracy_reward]
    trainer, frame = trained("grpo", tmp_path, funcs, tokenizer=tokenizer)
    assert "<think>" not in trainer._logs["completion"][0][0]["content"]
    assert "add the two" in trainer._logs["completion"][0][0]["reasoning_content"]
    np.testing.assert_array_equal(frame["think_format_reward"], FORMAT)
    np.testing.assert_array_equal(frame["accuracy_reward"], RIGHT)


def test_ppo_trainer_of_this_project_takes_the_same_rewards(tmp_path):
    from trl_ext.ppo import PPOConfig, PPOTrainer

    trainer = PPOTrainer(
        model=tiny_model(),
        processing_class=tiny_tokenizer(),
        reward_funcs=[accuracy_reward],
        args=PPOConfig(critic="shared", **settings(tmp_path)),
        train_dataset=dataset(True),
        rollout_func=scripted_rollouts,
    )
    trainer.train()
    np.testing.assert_array_equal(pd.concat(frames_in(tmp_path))["accuracy_reward"], RIGHT)
    first, second = steps(trainer)
    assert first["rewards/accuracy_reward/mean"] == second["rewards/accuracy_reward/mean"] == 0.5
    assert second["accuracy_reward/none/bad_gold"] == 4.0


# --- what TRL's scripts and workers ask of a reward -------------------------------------------------------------------

CODE = "```python\nprint(4)\n```"
TAGGED = "<think>\nIt is 4.\n</think>\n<answer>\n4\n</answer>"
# completion, columns, reward
PROGRAM = "```python\ndef double(x):\n    return 2 * x\n```"
ISOLATED = sandbox_report().is_isolated
CASES = {
    "accuracy_reward": (r"\boxed{4}", {"solution": "4"}, 1.0),
    "choice_reward": (r"\boxed{B}", {"solution": "B", "choices": ["four", "five"]}, 1.0),
    "code_block_format_reward": (CODE, {}, 1.0),
    "code_compiles_reward": (PROGRAM, {}, 1.0),
    "code_reward": (PROGRAM, {"solution": '{"asserts": ["assert double(2) == 4"]}'}, 1.0 if ISOLATED else None),
    "cosine_length_reward": (r"\boxed{4}", {"solution": "4"}, 1.0),
    "countdown_reward": ("<answer>3 * 8</answer>", {"solution": '{"target": 24, "nums": [3, 8]}'}, 1.0),
    "exact_match_reward": ("<answer>Paris</answer>", {"solution": "paris"}, 1.0),
    "instruction_reward": ("Tea.", {"solution": '{"instruction_id": ["punctuation:no_comma"], "kwargs": [null]}'}, 1.0),
    "language_consistency_reward": ("Она складывает два числа.", {"language": "ru"}, 1.0),
    "length_penalty_reward": ("4", {}, 0.0),
    "numeric_reward": ("It is 4.", {"solution": "4"}, 1.0),
    "reasoning_steps_reward": ("1. Add.\n2. Take the sum.\n3. Say it.", {}, 1.0),
    "repetition_penalty_reward": ("4", {}, 0.0),
    "soft_overlong_reward": ("4", {}, 0.0),
    "tag_count_reward": (TAGGED, {}, 1.0),
    "think_answer_format_reward": (TAGGED, {}, 1.0),
    "think_format_reward": (TAGGED, {}, 1.0),
}


def test_every_public_reward_has_a_case():
    assert sorted(CASES) == [name for name in reward_funcs.__all__ if name.endswith("_reward")]


@pytest.mark.parametrize("conversational", [True, False], ids=["messages", "texts"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_reward_found_by_its_path_takes_what_trl_passes(name, conversational):
    """`module.attribute`, as the script of `trl grpo` finds it, called with the keywords of `_calculate_rewards`."""
    module, _, attribute = f"reward_funcs.{name}".rpartition(".")
    reward = getattr(importlib.import_module(module), attribute)
    text, columns, expected = CASES[name]
    extra, metrics = {}, {}
    rewards = reward(
        prompts=[[{"role": "user", "content": "?"}] if conversational else "?"] * 2,
        completions=[[{"role": "assistant", "content": text}] if conversational else text] * 2,
        completion_ids=[[5, 6, 7]] * 2,
        **{column: [value] * 2 for column, value in columns.items()},
        trainer_state=transformers.TrainerState(),
        log_extra=extra.__setitem__,
        log_metric=metrics.__setitem__,
    )
    assert rewards == ([None] * 2 if expected is None else pytest.approx([expected] * 2, abs=1e-4))
    assert reward.__name__ == name
    followed = {"instruction_reward/followed/punctuation:no_comma": 1.0}
    assert metrics == (followed if name == "instruction_reward" else {})
    assert {column: len(values) for column, values in extra.items()} == {f"{name}/reason": 2, f"{name}/answer": 2}


@pytest.mark.parametrize("name", [name for name in reward_funcs.__all__ if name.endswith("_reward")])
def test_public_reward_passes_the_check_of_the_asynchronous_trainer(name):
    """It pickles what it forwards to its child, and finds names and coroutines through `functools.partial`."""
    from trl.trainer.utils import get_callable_name, is_async_callable

    reward = pickle.loads(pickle.dumps(getattr(reward_funcs, name)))
    assert get_callable_name(reward) == get_callable_name(functools.partial(reward, unit="token")) == name
    assert not is_async_callable(reward)
    assert is_async_callable(AsyncReward(reward)) and get_callable_name(AsyncReward(reward)) == name


def asynchronous_rewards():
    return [
        accuracy_reward,
        Sum([accuracy_reward, think_format_reward], weights=[1.0, 0.5], name="both"),
        AsyncReward(AccuracyReward(name="in_thread")),
        repetition_penalty_reward,
        length_penalty_reward,
    ]


def in_this_process(funcs, prompts, completions, completion_ids, **columns):
    """Rewards of one group by name, NaN for `None`."""
    found = {}
    for func in funcs:
        rewards = func(completions=completions, prompts=prompts, completion_ids=completion_ids, **columns)
        rewards = asyncio.run(rewards) if asyncio.iscoroutine(rewards) else rewards
        found[func.__name__] = [NAN if reward is None else reward for reward in rewards]
    return found


@pytest.fixture
def rollout_worker():
    return pytest.importorskip("trl.experimental.async_grpo.async_rollout_worker")


def test_scoring_of_the_asynchronous_trainer_gives_the_same_rewards(rollout_worker):
    loop = object.__new__(rollout_worker._AsyncRolloutLoop)
    loop.reward_funcs = pickle.loads(pickle.dumps(asynchronous_rewards()))
    loop.reward_func_names = [func.__name__ for func in loop.reward_funcs]
    loop._env_reward_types = []
    tokenizer = tiny_tokenizer()
    for row, (prompt, _, gold, _) in enumerate(ROWS):
        texts = TEXTS[4 * row : 4 * row + 4]
        group = SimpleNamespace(
            prompts=[[{"role": "user", "content": prompt}]] * 4,
            completions=[[{"role": "assistant", "content": text}] for text in texts],
            completions_ids=tokenizer(texts).input_ids,
            reward_kwargs={"solution": [gold] * 4},
            completions_sequences=[
                [rollout_worker.TrainingSequence([1], [1], [0.0], rollout_id)] for rollout_id in "abcd"
            ],
            **{"tool_call_counts": [0] * 4, "tool_failure_counts": [0] * 4, "env_rewards": [None] * 4},
            **{"rollout_rewards": [None] * 4, "model_version": 0, "group_id": row},
        )
        samples = asyncio.run(loop._score_group(group))
        arguments = (group.prompts, group.completions, group.completions_ids)
        expected = in_this_process(asynchronous_rewards(), *arguments, solution=[gold] * 4)
        np.testing.assert_array_equal(expected["accuracy_reward"], RIGHT[4 * row : 4 * row + 4])
        for name, rewards in expected.items():
            np.testing.assert_array_equal([sample.metrics[f"rewards/{name}"] for sample in samples], rewards)
