"""Groups without spread: masked, resampled, replayed; what is logged of it, and that it ends."""

import logging

import pytest
import torch
from datasets import IterableDataset

from trl_ext.errors import UserError
from trl_ext.grpo.groups import Group, PromptQueue, ReplayBuffer, joined_rows, split_rows
from trl_ext.testing import tiny_tokenizer

FLAT = [f"{n}-{n}=" for n in range(1, 5)]  # prompts whose completions all score the same
LIVELY = [f"{n}+{n + 3}=" for n in range(8, 12)]


def lively_reward(prompts, completions, **kwargs):
    """0.5 for every completion of a prompt with a minus; else by its letters."""
    return [
        0.5 if "-" in p else sum(c in "abcd01" for c in text) / 3 for p, text in zip(prompts, completions, strict=True)
    ]


def _prompts(batches):
    tokenizer = tiny_tokenizer()
    rows = [
        ids[mask.bool()]
        for batch in batches
        for ids, mask in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True)
    ]
    return [tokenizer.decode(row) for row in rows]


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo", "luspo"])
def test_masked_group_leaves_our_kl_term_too(run, loss_type):
    common = {"loss_type": loss_type, "beta": 0.3, "kl_estimator": "k2", "reward_funcs": lively_reward, "max_steps": 1}
    common["shuffle_dataset"] = False
    _, masked = run(prompts=[LIVELY[0], FLAT[0]], zero_std="mask", **common)
    _, alone = run(prompts=[LIVELY[0]], gradient_accumulation_steps=1, **common)
    for name, gradient in alone.steps[0].gradients.items():
        torch.testing.assert_close(masked.steps[0].gradients[name], gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"])
def test_masked_group_leaves_loss_and_divisor(run, logs_of, loss_type, beta):
    """One lively and one flat group, masked, train like the lively one alone."""
    common = {"loss_type": loss_type, "beta": beta, "reward_funcs": lively_reward, "max_steps": 1}
    common["shuffle_dataset"] = False
    ours, masked = run(prompts=[LIVELY[0], FLAT[0]], zero_std="mask", **common)
    alone, alone_steps = run(prompts=[LIVELY[0]], stock=True, gradient_accumulation_steps=1, **common)
    for name, gradient in alone_steps.steps[0].gradients.items():
        torch.testing.assert_close(masked.steps[0].gradients[name], gradient, atol=1e-6, rtol=1e-4)
    row, expected = logs_of(ours)[0], logs_of(alone)[0]
    assert row["loss"] == pytest.approx(expected["loss"], abs=1e-5)
    assert row["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-4)
    assert row["zero_std/groups"] == row["zero_std/masked"] == 1.0 and row["frac_reward_zero_std"] == 0.5


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo", "bnpo"])
def test_mask_with_entropy_bonus_scales_the_policy_term_alone(run, logs_of, loss_type):
    common = {"loss_type": loss_type, "reward_funcs": lively_reward, "max_steps": 1, "per_device_train_batch_size": 8}
    common |= {"shuffle_dataset": False, "gradient_accumulation_steps": 1, "entropy_coef": 0.3}
    ours, masked = run(prompts=[LIVELY[0], FLAT[0]], zero_std="mask", **common)
    common["per_device_train_batch_size"] = 4
    stock, alone = run(prompts=[LIVELY[0]], stock=True, **common)
    assert logs_of(ours)[0]["policy_loss"] == pytest.approx(logs_of(stock)[0]["policy_loss"], abs=1e-5)
    for name, gradient in alone.steps[0].gradients.items():
        torch.testing.assert_close(masked.steps[0].gradients[name], gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "bnpo"])
def test_batch_of_identical_groups_masked_moves_nothing(run, logs_of, loss_type):
    trainer, recorder = run(prompts=FLAT, zero_std="mask", reward_funcs=lively_reward, loss_type=loss_type, beta=0.2)
    assert all(not gradient.any() for step in recorder.steps for gradient in step.gradients.values())
    assert logs_of(trainer)[0]["zero_std/masked"] == 2.0 and logs_of(trainer)[0]["loss"] == 0.0


def test_mask_of_lively_groups_changes_nothing(run, logs_of):
    masked, _ = run(prompts=LIVELY, zero_std="mask", reward_funcs=lively_reward, loss_type="grpo")
    kept, _ = run(prompts=LIVELY, stock=True, reward_funcs=lively_reward, loss_type="grpo")
    for row, expected in zip(logs_of(masked), logs_of(kept), strict=True):
        assert row["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-6) and row["zero_std/masked"] == 0.0


def test_resample_fills_the_batch_with_groups_that_differ(run, logs_of):
    trainer, recorder = run(
        prompts=LIVELY + FLAT,
        zero_std="resample",
        reward_funcs=lively_reward,
        max_steps=4,
        max_resample_rounds=20,
        beta=0.1,
    )
    rows = logs_of(trainer)
    assert any(row["zero_std/groups"] > 0 for row in rows)
    for row, step in zip(rows, recorder.steps, strict=True):
        assert row["zero_std/left"] == 0.0 == row["frac_reward_zero_std"]
        assert row["zero_std/replaced"] == row["zero_std/groups"] and row["resample/rounds"] <= 20
        used = _prompts(step.micro_batches)
        assert len(used) == 8 and all("+" in prompt for prompt in used)
        assert sum(float(b["advantages"].abs().sum()) for b in step.micro_batches) > 0
        tokens = sum(int(batch["completion_mask"].sum()) for batch in step.micro_batches)
        for batch in step.micro_batches:
            assert batch["num_items_in_batch"] == tokens
            assert batch["ref_per_token_logps"].shape == batch["completion_ids"].shape
    assert rows[-1]["num_tokens"] == trainer.state.num_input_tokens_seen
    table = trainer._logs
    assert all("+" in prompt for prompt in table["prompt"]) and len(table["prompt"]) == 8
    rewards = lively_reward(list(table["prompt"]), list(table["completion"]))
    assert list(table["rewards"]["lively_reward"]) == pytest.approx(rewards)


def test_resample_of_identical_groups_ends_says_so_once_and_loses_no_prompt(run, logs_of, caplog):
    seen = []

    def reward(prompts, completions, **kwargs):
        seen.extend(prompts)
        return [0.5] * len(prompts)

    with caplog.at_level(logging.WARNING, logger="trl_ext.grpo.replacement"):
        trainer, recorder = run(prompts=FLAT, zero_std="resample", reward_funcs=reward, max_steps=4)
    assert [record.message for record in caplog.records].count(caplog.records[0].message) == 1
    assert "said once" in caplog.records[0].message
    for row in logs_of(trainer):
        assert row["resample/rounds"] == 3.0 and row["resample/groups_sampled"] == 6.0
        assert row["zero_std/left"] == 2.0 and row["zero_std/replaced"] == 0.0
    used = [prompt for step in recorder.steps for prompt in _prompts(step.micro_batches)]
    assert {prompt: used.count(prompt) for prompt in FLAT} == dict.fromkeys(FLAT, 8)  # two epochs, whole


def test_surplus_of_a_round_is_given_back(run, logs_of):
    trainer, _ = run(prompts=LIVELY, zero_std="resample", reward_funcs=lively_reward)
    assert trainer.prompt_queue is None  # nothing was missing, nothing was drawn
    assert logs_of(trainer)[0]["resample/rounds"] == 0.0


def test_replay_puts_earlier_groups_in_the_place_of_flat_ones(run, logs_of):
    order = [LIVELY[0], LIVELY[1], FLAT[0], FLAT[1], FLAT[2], FLAT[3]]
    trainer, recorder = run(
        prompts=order,
        zero_std="replay",
        reward_funcs=lively_reward,
        max_steps=3,
        shuffle_dataset=False,
        learning_rate=0.05,
        beta=0.1,
    )
    first, second, third = logs_of(trainer)
    assert (first["zero_std/groups"], first["zero_std/replaced"]) == (0.0, 0.0)
    assert (second["zero_std/groups"], second["zero_std/replaced"]) == (2.0, 2.0)
    assert second["replay/age_mean"] == second["replay/age_max"] == 1.0
    assert (third["zero_std/replaced"], third["zero_std/left"]) == (0.0, 2.0)  # each is replayed once
    used = _prompts(recorder.steps[1].micro_batches)
    assert sorted(set(used)) == sorted(order[:2]) and len(used) == 8

    def by_completion(step):
        rows = {}
        for batch in step.micro_batches:
            for index, ids in enumerate(batch["completion_ids"]):
                length = int(batch["completion_mask"][index].sum())
                key = (*ids[:length].tolist(), round(float(batch["advantages"][index]), 4))
                rows[key] = batch["old_per_token_logps"][index, :length]
        return rows

    sampled, replayed = by_completion(recorder.steps[0]), by_completion(recorder.steps[1])
    assert sampled.keys() == replayed.keys()
    for key, logps in sampled.items():
        assert torch.equal(replayed[key], logps)  # of the policy that sampled


def test_replay_without_flat_groups_trains_like_the_stock_trainer(run, logs_of):
    ours, _ = run(prompts=LIVELY, zero_std="replay", reward_funcs=lively_reward)
    stock, _ = run(prompts=LIVELY, stock=True, reward_funcs=lively_reward)
    for row, expected in zip(logs_of(ours), logs_of(stock), strict=True):
        assert row["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-4)
        assert row["loss"] == pytest.approx(expected["loss"], abs=1e-5)


def test_replay_buffer_is_bounded_by_its_size(run, logs_of):
    trainer, _ = run(prompts=LIVELY, zero_std="replay", replay_buffer_size=3, reward_funcs=lively_reward, max_steps=3)
    assert len(trainer.replay_buffer) == 3


def test_streamed_data_set_is_refused_for_resampling(build_trainer):
    stream = IterableDataset.from_generator(lambda: iter({"prompt": p} for p in LIVELY))
    with pytest.raises(UserError, match="draws fresh prompts by row"):
        build_trainer(train_dataset=stream, zero_std="resample")


# --- groups that change places --------------------------------------------------------------------------------------


def _output():
    return {
        "prompt_ids": torch.tensor([[0, 7, 8], [5, 6, 7]]),
        "prompt_mask": torch.tensor([[0, 1, 1], [1, 1, 1]]),
        "completion_ids": torch.tensor([[4, 0], [2, 3]]),
        "completion_mask": torch.tensor([[1, 0], [1, 1]]),
        "importance_sampling_ratio": torch.tensor([[0.5], [0.7]]),
        "advantages": torch.tensor([1.0, 2.0]),
        "num_items_in_batch": torch.tensor(3),
    }


def test_rows_are_split_without_padding_and_joined_with_it():
    rows = split_rows(_output(), [0, 1])
    assert rows[0]["prompt_ids"].tolist() == [7, 8] and rows[0]["completion_ids"].tolist() == [4]
    joined = joined_rows([rows[0], rows[1]], 0, torch.device("cpu"))
    for key in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "importance_sampling_ratio"):
        assert torch.equal(joined[key], _output()[key]), key
    assert "advantages" not in joined and "num_items_in_batch" not in joined


def test_joined_rows_round_widths_up_to_a_multiple():
    joined = joined_rows(list(split_rows(_output(), [0, 1]).values()), 9, torch.device("cpu"), multiple=4)
    assert joined["prompt_ids"].tolist() == [[9, 9, 7, 8], [9, 5, 6, 7]]
    assert joined["completion_mask"].shape == (2, 4) and joined["importance_sampling_ratio"].shape == (2, 1)


def test_missing_optional_mask_counts_every_token():
    rows = list(split_rows(_output(), [0, 1]).values())
    rows[1]["tool_mask"] = torch.tensor([1, 0])
    joined = joined_rows(rows, 0, torch.device("cpu"))
    assert joined["tool_mask"].tolist() == [[1, 1], [1, 0]]


def test_row_that_was_masked_whole_keeps_one_token():
    output = {**_output(), "completion_mask": torch.zeros(2, 2, dtype=torch.long)}
    assert [len(row["completion_ids"]) for row in split_rows(output, [0, 1]).values()] == [1, 1]


def test_prompt_queue_gives_every_row_once_an_epoch_and_continues_from_its_state():
    queue = PromptQueue(5, shuffle=True, seed=3)
    assert sorted(queue.take(5)) == [0, 1, 2, 3, 4]
    taken = queue.take(2)
    queue.give_back(taken)
    state = queue.state_dict()
    other = PromptQueue(5, shuffle=True, seed=9)
    other.load_state_dict(state)
    assert queue.take(8) == other.take(8) and taken == state["queue"].tolist()[:2]


def test_replay_buffer_restores_its_groups():
    buffer = ReplayBuffer(3)
    buffer.add(
        [Group([{"a": torch.ones(2)}], torch.ones(1, 1), [[([1.0], [0])]], {"prompt": ["p"]}, n) for n in (1, 2)]
    )
    other = ReplayBuffer(1)
    other.load_state_dict(buffer.state_dict())
    (group,) = other.take(2)
    assert group.step == 2 and group.logs == {"prompt": ["p"]} and torch.equal(group.rows[0]["a"], torch.ones(2))
