"""Process supervision: what step rewards may return, and the advantages that come of it."""

import random

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForTokenClassification

from reward_funcs.steps import arithmetic_step_rewards, format_progress_step_rewards
from trl_ext.errors import UserError
from trl_ext.grpo import process
from trl_ext.grpo.presets import PRESETS, resolved_preset
from trl_ext.grpo.step_rewards import TokenClassificationStepReward
from trl_ext.grpo.steps import Steps
from trl_ext.testing import tiny_model, tiny_tokenizer


def _slow_advantages(steps, group, length, *, scale=True, eps=1e-4):
    """Mean and std over all steps of the group, sums over later steps, by loops."""
    result = [[0.0] * length for _ in steps]
    for start in range(0, len(steps), group):
        members = range(start, start + group)
        rewards = [r for b in members for r in steps[b][0] if r is not None]
        mean = sum(rewards) / len(rewards) if rewards else 0.0
        std = (sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1)) ** 0.5 if len(rewards) > 1 else 0.0
        for b in members:
            for t in range(length):
                for reward, end in zip(*steps[b], strict=True):
                    if reward is not None and end >= t and std > 0:
                        result[b][t] += (reward - mean) / (std + eps if scale else 1.0)
    return torch.tensor(result)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["trl", "dr_grpo"])
def test_token_advantages_equal_a_slow_reference_over_ragged_steps(seed, name):
    rng = random.Random(seed)
    steps = []
    for _ in range(6):
        ends = sorted(rng.sample(range(12), rng.randint(0, 5)))
        steps.append(([rng.choice([None, rng.random(), 1.0]) for _ in ends], ends))
    found = process.token_advantages([[row] for row in steps], 3, PRESETS[name])
    expected = _slow_advantages(steps, 3, found.size(1), scale=name == "trl")
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_two_process_rewards_are_normalised_apart_and_summed():
    one, two = ([1.0, 0.0], [0, 2]), ([10.0], [1])
    other, another = ([0.0], [1]), ([30.0], [2])
    both = process.token_advantages([[one, two], [other, another]], 2, PRESETS["trl"])
    apart = [process.token_advantages([[a], [b]], 2, PRESETS["trl"]) for a, b in ((one, other), (two, another))]
    torch.testing.assert_close(both, sum(apart))


def test_training_uses_the_advantages_of_the_slow_reference(run, first_half_steps):
    trainer, recorder = run(process_reward_funcs=first_half_steps, max_steps=1, loss_type="grpo")
    texts, used = [], []
    for batch in recorder.steps[0].micro_batches:
        for ids, mask, advantages in zip(
            batch["completion_ids"], batch["completion_mask"], batch["advantages"], strict=True
        ):
            texts.append(trainer.processing_class.decode(ids[mask.bool()], skip_special_tokens=True))
            used.append(advantages[: int(mask.sum())])
    order = list(trainer._logs["completion"])
    expected = _slow_advantages(first_half_steps(order), 4, 10)
    for text, advantages in zip(texts, used, strict=True):
        torch.testing.assert_close(advantages, expected[order.index(text), : len(advantages)], atol=1e-5, rtol=1e-5)
    means = [float(used[texts.index(text)].mean()) for text in order]
    assert list(trainer._logs["advantages"]) == pytest.approx(means, abs=1e-6)


def test_one_step_at_the_end_equals_outcome_supervision(run, logs_of, rewards):
    def last_step(completions, completion_ids, **kwargs):
        return [([r], [len(ids) - 1]) for r, ids in zip(rewards.letter(completions), completion_ids, strict=True)]

    ours, recorded = run(process_reward_funcs=last_step)
    stock, expected = run(stock=True)
    for row, other in zip(logs_of(ours), logs_of(stock), strict=True):
        assert row["loss"] == pytest.approx(other["loss"], abs=1e-5)
        assert row["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-5)
    for step, other in zip(recorded.steps, expected.steps, strict=True):
        for name, gradient in step.gradients.items():
            torch.testing.assert_close(gradient, other.gradients[name], atol=1e-5, rtol=1e-5)


def test_outcome_weight_adds_the_outcome_advantage_to_every_token(run, first_half_steps):
    settings = {"process_reward_funcs": first_half_steps, "max_steps": 1, "advantage_estimator": "dr_grpo"}
    _, alone = run(**settings)
    _, both = run(process_outcome_weight=0.5, **settings)
    _, outcome = run(advantage_estimator="dr_grpo", max_steps=1)
    steps = (alone.steps[0], both.steps[0], outcome.steps[0])
    for one, two, three in zip(*(step.micro_batches for step in steps), strict=True):
        expected = (one["advantages"] + 0.5 * three["advantages"].unsqueeze(1)) * one["completion_mask"]
        torch.testing.assert_close(two["advantages"], expected)


def test_outcome_weight_reaches_the_tokens_behind_the_last_step_of_the_batch(run):
    def first_token(completions, **kwargs):
        return [([float(i % 2)], [0]) for i, _ in enumerate(completions)]

    settings = {"process_reward_funcs": first_token, "max_steps": 1, "advantage_estimator": "dr_grpo"}
    _, both = run(process_outcome_weight=1.0, **settings)
    _, outcome = run(advantage_estimator="dr_grpo", max_steps=1)
    for two, three in zip(both.steps[0].micro_batches, outcome.steps[0].micro_batches, strict=True):
        mask = two["completion_mask"][:, 1:]
        assert mask.sum() > 0
        expected = three["advantages"].unsqueeze(1) * mask
        torch.testing.assert_close(two["advantages"][:, 1:] * mask, expected)


def test_character_ends_are_mapped_through_the_tokenizer(run, first_half_steps):
    def by_character(completions, **kwargs):
        return [Steps(r, [end + 1 for end in ends], "char") for r, ends in first_half_steps(completions)]

    _, tokens = run(process_reward_funcs=first_half_steps)
    _, characters = run(process_reward_funcs=by_character)
    for one, two in zip(tokens.steps[0].micro_batches, characters.steps[0].micro_batches, strict=True):
        assert torch.equal(one["advantages"], two["advantages"])


def test_process_rewards_alone_train_and_log_their_mean(run, logs_of, first_half_steps):
    trainer, _ = run(reward_funcs=None, process_reward_funcs=[first_half_steps])
    row = logs_of(trainer)[0]
    assert "rewards/step_mean/mean" in row and row["grad_norm"] > 0
    assert row["process/first_letter_steps/num_steps"] > 0 and "process/first_letter_steps/mean" in row


def test_evaluation_takes_process_rewards_too(build_trainer, first_half_steps):
    from datasets import Dataset

    data = Dataset.from_dict({"prompt": ["5+5=", "6+6="]})
    figures = build_trainer(process_reward_funcs=first_half_steps, eval_dataset=data).evaluate()
    assert "eval_process/first_letter_steps/mean" in figures


def test_columns_reach_the_process_reward(run):
    from datasets import Dataset

    def f(completions, *, prompts, completion_ids, solution, **columns):
        assert solution == [prompt[:-1] for prompt in prompts] and "trainer_state" in columns
        return [([float(i)], [len(ids) - 1]) for i, ids in enumerate(completion_ids)]

    data = Dataset.from_dict({"prompt": ["1+1=", "2+2="], "solution": ["1+1", "2+2"]})
    run(process_reward_funcs=f, train_dataset=data, max_steps=1)


def test_identical_steps_of_a_group_are_a_group_without_spread(run, logs_of):
    def constant(completions, **kwargs):
        return [([0.3], [0]) for _ in completions]

    trainer, _ = run(process_reward_funcs=constant, zero_std="mask", max_steps=1)
    assert logs_of(trainer)[0]["zero_std/masked"] == 2.0 and set(trainer._logs["advantages"]) == {0.0}


@pytest.mark.parametrize("zero_std", ["resample", "replay"])
def test_process_rewards_survive_a_change_of_groups(run, logs_of, zero_std):
    def steps(completions, prompts, **kwargs):
        return [
            ([0.5 if "8" in p or "9" in p else len(t) / 4.0], [0]) for p, t in zip(prompts, completions, strict=True)
        ]

    rounds = {"max_resample_rounds": 20} if zero_std == "resample" else {}
    trainer, _ = run(process_reward_funcs=steps, zero_std=zero_std, max_steps=4, **rounds)
    rows = logs_of(trainer)
    assert sum(row["zero_std/replaced"] for row in rows) > 0
    assert all(row["frac_reward_zero_std"] == row["zero_std/left"] / 2 for row in rows)


# --- refusals ---------------------------------------------------------------------------------------------------------


def _steps_of(result, ids=(4, 5, 6)):
    def f(completions, **kwargs):
        return result

    arguments = {"completions": ["abc"], "completion_ids": [list(ids)]}
    return process.steps_of([f], ["f"], arguments, tiny_tokenizer())


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ([([1.0, 2.0], [0])], "'f': completion 0 has 2 step rewards, but 1 ends"),
        ([([1.0], [3])], r"'f': the ends of completion 0 are \[3\]"),
        ([([1.0, 1.0], [2, 1])], r"returned ends \[2, 1\] for completion 0, which do not increase"),
        ([([1.0, 1.0], [1, 1])], "which do not increase"),
        ([([float("inf")], [1])], "returned inf for a step of completion 0"),
        ([(["good"], [1])], "returned 'good' for a step of completion 0"),
        ([], "results has 0 entries"),
        (None, "returned NoneType; return a list"),
        ([0.5], "the steps of completion 0 are 0.5"),
        ([([1.0], [1], "word")], "the unit of completion 0 is 'word'"),
        ([([1.0], None)], "'f': the ends of completion 0 are None, but must be a list"),
        ([(1.0, 0)], r"'f': the rewards of completion 0 are 1\.0, but must be a list"),
        ([([1.0], [None])], "'f': the end None of completion 0 is no whole number"),
        ([([1.0], [0.7])], r"'f': the end 0\.7 of completion 0 is no whole number"),
        ([([1.0], ["0"])], "'f': the end '0' of completion 0 is no whole number"),
        ([([1.0], [0.7], "char")], r"'f': the end 0\.7 of completion 0 is no whole number"),
        ([([torch.ones(2)], [1])], r"returned tensor\(\[1\., 1\.\]\) for a step of completion 0"),
        ([([10**400], [1])], "returned a number beyond every float for a step"),
        ([([10**5000], [1])], "returned a number beyond every float for a step"),
        ([([1e300], [1])], r"returned 1e\+300 for a step of completion 0"),
        ([([-1e39], [1])], r"returned -1e\+39 for a step of completion 0"),
    ],
)
def test_bad_steps_are_refused_with_the_name_of_the_reward(result, sentence):
    with pytest.raises(UserError, match=f"The process reward {'.*' if sentence[0] == chr(39) else ''}.*{sentence}"):
        _steps_of(result)


def test_ends_and_rewards_of_numpy_and_torch_are_taken():
    for rewards, ends in (
        (np.array([0.5, 1.0]), np.array([0, 2])),
        (torch.tensor([0.5, 1.0]), torch.tensor([0, 2])),
        ([np.float32(0.5), 1], [np.int64(0), torch.tensor(2)]),
        ([torch.tensor([0.5]), 3e38], [0, 2]),
    ):
        ((row,),) = _steps_of([(rewards, ends)])
        assert row[0][0] == 0.5 and row[1] == [0, 2] and all(type(end) is int for end in row[1])


def test_nan_and_tensors_are_taken_as_numbers():
    ((row,),) = _steps_of([([torch.tensor(0.5), float("nan"), None], [0, 1, 2])])
    assert row == ([0.5, None, None], [0, 1, 2])


def test_no_step_in_the_first_batch_is_refused(run):
    with pytest.raises(UserError, match="'empty' found no step in the 8 completions of the first batch"):

        def empty(completions, **kwargs):
            return [([], []) for _ in completions]

        run(process_reward_funcs=empty)


def test_steps_without_a_reward_in_the_first_batch_are_told_and_trained_on(run, caplog):
    def unscored(completions, **kwargs):
        return [([None], [0]) for _ in completions]

    trainer, _ = run(process_reward_funcs=unscored, process_outcome_weight=1.0, advantage_estimator="rloo")
    assert "'unscored' gave none of the 8 steps of the first batch a reward" in caplog.text
    assert any(row["grad_norm"] > 0 for row in trainer.state.log_history if "grad_norm" in row)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"advantage_estimator": "maxrl"}, "advantage_scale='mean'"),
        ({"advantage_estimator": "pass_at_k"}, "is not defined for the steps"),
        ({"advantage_estimator": "gdpo"}, "is not defined for the steps"),
        ({"advantage_estimator": "rloo"}, "advantage_baseline='leave_one_out' has no effect"),
        ({"advantage_estimator": "gdpo"}, "advantage_estimator='gdpo' is not defined for the steps"),
        (
            {"multi_objective_aggregation": "normalize_then_sum"},
            "^multi_objective_aggregation='normalize_then_sum' is not defined for the steps",
        ),
        ({"advantage_std_floor": 0.1}, "^advantage_std_floor=0.1 is not defined for the steps"),
        (
            {"advantage_estimator": "reinforce_pp", "advantage_scale": "group"},
            r"^advantage_estimator='reinforce_pp' \(advantage_std_floor=0.0001\) is not defined for the steps",
        ),
    ],
)
def test_preset_without_a_meaning_for_steps_is_refused(build_trainer, first_half_steps, settings, sentence):
    with pytest.raises(UserError, match=sentence):
        build_trainer(process_reward_funcs=first_half_steps, **settings)


def test_baseline_counts_once_the_outcome_has_a_weight():
    process.check_process_preset(resolved_preset("rloo"), 0.5)


def test_process_reward_that_is_no_function_is_refused(build_trainer):
    with pytest.raises(UserError, match="process_reward_funcs holds 3"):
        build_trainer(process_reward_funcs=3)


def test_process_reward_whose_call_is_a_coroutine_is_refused(build_trainer):
    class Judge:
        __name__ = "judge"

        async def __call__(self, completions, **kwargs):
            return [([], []) for _ in completions]

    with pytest.raises(UserError, match=r"process_reward_funcs holds .*no coroutines"):
        build_trainer(process_reward_funcs=Judge())


@pytest.mark.parametrize("nothing", [[], ()])
def test_empty_list_of_reward_functions_is_none_at_all(run, logs_of, first_half_steps, nothing):
    trainer, _ = run(reward_funcs=nothing, process_reward_funcs=first_half_steps, max_steps=1)
    assert "rewards/step_mean/mean" in logs_of(trainer)[0]


@pytest.mark.parametrize(
    "value",
    [3e38, 1e300],
)
def test_step_rewards_beyond_float32_stop_the_run_before_the_weights_are_nan(build_trainer, value):
    def steps(completions, **kwargs):
        return [([value if index % 2 else -value] * 2, [0, 1]) for index, _ in enumerate(completions)]

    trainer = build_trainer(process_reward_funcs=steps, advantage_scale="none", rollout_func=_thinking)
    with pytest.raises(UserError, match=r"(returned -1e\+300 for a step|the advantages that come of them)") as caught:
        trainer.train()
    assert "\n" not in str(caught.value)
    assert all(torch.isfinite(weight).all() for weight in trainer.model.parameters())


def test_outcome_weight_without_process_rewards_is_refused(build_trainer):
    with pytest.raises(UserError, match="has no effect without process_reward_funcs"):
        build_trainer(process_outcome_weight=0.5)


def test_two_process_rewards_of_one_name_are_refused(build_trainer, first_half_steps):
    with pytest.raises(UserError, match="give each its own __name__"):
        build_trainer(process_reward_funcs=[first_half_steps, first_half_steps])


# --- the step rewards of this project ---------------------------------------------------------------------------------


def _thinking(prompts, trainer):
    """Think blocks of two lines, right or wrong by turns."""
    tokenizer = trainer.processing_class
    texts = [f"<think>\n1 + 1 = {2 + i % 2}\n2 + {i} = {2 + i}\n</think>\nso {i}" for i in range(len(prompts))]
    return {
        "prompt_ids": [tokenizer(prompt).input_ids for prompt in prompts],
        "completion_ids": [[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in texts],
        "logprobs": None,
    }


def test_rule_based_step_rewards_train_without_a_reward_model(run, logs_of):
    functions = [arithmetic_step_rewards, format_progress_step_rewards]
    trainer, recorder = run(
        reward_funcs=None, process_reward_funcs=functions, rollout_func=_thinking, max_completion_length=64, max_steps=1
    )
    (first, *_), table = recorder.steps[0].micro_batches, list(trainer._logs["completion"])
    assert logs_of(trainer)[0]["grad_norm"] > 0 and len(table) == 8
    right = table.index("<think>\n1 + 1 = 2\n2 + 0 = 2\n</think>\nso 0")
    wrong = table.index("<think>\n1 + 1 = 3\n2 + 1 = 3\n</think>\nso 1")
    advantages = list(trainer._logs["advantages"])
    assert advantages[right] > 0 > advantages[wrong] and first["advantages"].ndim == 2


def test_token_classification_reward_model_trains(run, logs_of):
    config = LlamaConfig(**{**tiny_model().config.to_dict(), "num_labels": 2})
    reward = TokenClassificationStepReward(LlamaForTokenClassification(config), tiny_tokenizer())
    trainer, _ = run(process_reward_funcs=reward, rollout_func=_thinking, max_completion_length=64, max_steps=1)
    row = logs_of(trainer)[0]
    assert row["grad_norm"] > 0 and row["process/token_classification_step_reward/num_steps"] >= 3
