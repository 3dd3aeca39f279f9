"""Tool calls through TRL's own loop: a real chat template, a real call, and no gradient on what the tool wrote."""

from importlib import resources

import pytest
import torch

from trl_ext.testing import tiny_model, tiny_tokenizer

CALL = '<tool_call>\n{"name": "multiply", "arguments": {"a": 4, "b": 3}}\n</tool_call>'


def multiply(a: int, b: int) -> int:
    """
    Multiply two numbers.

    Args:
        a: First number.
        b: Second number.

    Returns:
        The product.
    """
    return a * b


def used_tool_reward(completions, **kwargs):
    """1.0 where a tool answered "12"."""
    return [
        float(any(turn["role"] == "tool" and turn["content"] == "12" for turn in completion))
        for completion in completions
    ]


@pytest.fixture
def tool_trainer(build_trainer):
    """A trainer whose tokenizer speaks Qwen3's format, and whose first turns call the tool in every second row."""

    def build(critic):
        tokenizer, model = tiny_tokenizer(), tiny_model(max_position_embeddings=4096)
        folder = resources.files("trl").joinpath("chat_templates")
        tokenizer.chat_template = folder.joinpath("qwen3.jinja").read_text(encoding="utf-8")
        tokenizer.add_special_tokens({"additional_special_tokens": ["<tool_call>", "</tool_call>"]})
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        trainer = build_trainer(
            critic,
            model=model,
            processing_class=tokenizer,
            prompts=[[{"role": "user", "content": f"{number} times 3?"}] for number in range(8)],
            reward_funcs=used_tool_reward,
            tools=[multiply],
            max_tool_calling_iterations=1,
            max_completion_length=256,
            max_steps=1,
        )
        generate, turns = trainer._generate_single_turn, []

        def scripted(prompt_ids, *args, **kwargs):
            completion_ids, logprobs = generate(prompt_ids, *args, **kwargs)
            turns.append(len(prompt_ids))
            if len(turns) == 1:
                call = [*tokenizer(CALL).input_ids, tokenizer.eos_token_id]
                completion_ids = [call if row % 2 == 0 else ids for row, ids in enumerate(completion_ids)]
            return completion_ids, logprobs

        trainer._generate_single_turn = scripted
        return trainer

    return build


@pytest.mark.parametrize("critic", ["adapter", "shared"])
def test_training_with_tools_masks_what_the_tool_wrote(tool_trainer, logs_of, critic):
    trainer = tool_trainer(critic)
    trainer.train()
    [row] = logs_of(trainer)
    batch = trainer._rollouts
    wrote = batch["completion_mask"] * batch["tool_mask"]
    assert row["tools/call_frequency"] == 0.5 and row["reward"] == 0.5
    assert 0 < (batch["completion_mask"].bool() & ~batch["tool_mask"].bool()).sum()
    for name in ("advantages", "returns", "old_values", "td_errors"):
        assert (batch[name][wrote == 0] == 0).all()
    assert row["value/num_tokens"] == wrote.sum() == torch.count_nonzero(batch["value_mask"])
    assert row["objective/total"] == pytest.approx(row["loss"], abs=1e-5)
