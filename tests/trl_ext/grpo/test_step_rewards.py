"""The token-classification reward model: one score a step, equal to reading it by hand, whatever the batch."""

import math
import re

import pytest
import torch
from transformers import LlamaForTokenClassification

from trl_ext.grpo.step_rewards import TokenClassificationStepReward
from trl_ext.testing import tiny_model, tiny_tokenizer

COMPLETIONS = ["2 + 2 = 4\nso 4", "no\n\n\n  it is 5  \nand more\n", "x", ""]
PROMPTS = ["2 + 2?", "What is 2 + 3?", "", "y"]


def _model(num_labels=2, **overrides):
    torch.manual_seed(0)
    config = tiny_model(**overrides).config
    config.num_labels = num_labels
    return LlamaForTokenClassification(config)


@pytest.fixture(scope="module")
def model():
    return _model()


def _by_hand(model, head, steps, separator="\n", label=1):
    """One forward a completion, unpadded, as the model was trained."""
    tokenizer = tiny_tokenizer()
    ids, positions = tokenizer(head).input_ids, []
    for step in steps:
        ids = ids + tokenizer(step + separator).input_ids
        positions.append(len(ids) - 1)
    with torch.no_grad():
        probabilities = model(input_ids=torch.tensor([ids])).logits[0].softmax(-1)
    return [probabilities[position, label].item() for position in positions]


def test_scores_equal_one_forward_by_hand(model):
    rows = TokenClassificationStepReward(model, tiny_tokenizer(), batch_size=2)(COMPLETIONS, prompts=PROMPTS)
    assert [row.ends for row in rows] == [[9, 14], [2, 14, 25], [1], []]
    assert {row.unit for row in rows} == {"char"}
    steps = [["2 + 2 = 4", "so 4"], ["no", "it is 5", "and more"], ["x"]]
    for row, prompt, texts in zip(rows, PROMPTS, steps, strict=False):
        assert row.rewards == pytest.approx(_by_hand(model, prompt, texts), abs=1e-6)
    assert rows[3] == ([], [], "char")


def test_literal_scores_of_a_model_with_known_logits():
    model = _model()
    with torch.no_grad():
        model.score.weight.zero_()
        model.score.bias.copy_(torch.tensor([0.0, math.log(3.0)]))
    rows = TokenClassificationStepReward(model, tiny_tokenizer())(["a\nb"])
    assert rows[0].rewards == pytest.approx([0.75, 0.75])
    rows = TokenClassificationStepReward(model, tiny_tokenizer(), score="logit", positive_label=0)(["a"])
    assert rows[0].rewards == pytest.approx([-math.log(3.0)])


@pytest.mark.parametrize("batch_size", [1, 2, 3, 8])
def test_batch_size_and_order_change_no_score(model, batch_size):
    reference = TokenClassificationStepReward(model, tiny_tokenizer(), batch_size=4)(COMPLETIONS, prompts=PROMPTS)
    step_reward = TokenClassificationStepReward(model, tiny_tokenizer(), batch_size=batch_size)
    backwards = step_reward(COMPLETIONS[::-1], prompts=PROMPTS[::-1])[::-1]
    for row, expected in zip(backwards, reference, strict=True):
        assert row.rewards == pytest.approx(expected.rewards, abs=1e-6)
        assert row.ends == expected.ends


def test_score_of_a_step_depends_on_the_steps_before_only(model):
    step_reward = TokenClassificationStepReward(model, tiny_tokenizer())
    one, two = step_reward(["a\nb\nc", "a\nb\nd"])
    assert one.rewards[:2] == pytest.approx(two.rewards[:2], abs=1e-6)
    assert one.rewards[2] != pytest.approx(two.rewards[2], abs=1e-6)


def test_three_classes_and_label_by_name():
    model = _model(num_labels=3)
    model.config.id2label = {0: "bad", 1: "neutral", 2: "good"}
    rows = TokenClassificationStepReward(model, tiny_tokenizer(), positive_label="good")(["a\nb"])
    assert rows[0].rewards == pytest.approx(_by_hand(model, "", ["a", "b"], label=2), abs=1e-6)


def test_one_class_scores_by_its_sigmoid():
    model = _model(num_labels=1)
    tokenizer = tiny_tokenizer()
    logit = TokenClassificationStepReward(model, tokenizer, score="logit")(["a"])[0].rewards[0]
    probability = TokenClassificationStepReward(model, tokenizer)(["a"])[0].rewards[0]
    assert probability == pytest.approx(1 / (1 + math.exp(-logit)))


def test_splitter_separator_and_bos_are_used():
    model, tokenizer = _model(), tiny_tokenizer()
    tokenizer.bos_token = "<eos>"

    def halves(text):
        return [(0, 2), (2, len(text))]

    step_reward = TokenClassificationStepReward(model, tokenizer, splitter=halves, step_separator=" ki")
    (row,) = step_reward(["abcd"], prompts=["p"])
    assert row.ends == [2, 4]
    assert row.rewards == pytest.approx(_by_hand(model, "<eos>p", ["ab", "cd"], " ki"), abs=1e-6)


def test_default_splitter_cuts_at_the_separator(model):
    step_reward = TokenClassificationStepReward(model, tiny_tokenizer(), step_separator="##")
    assert step_reward(["a\nb## c ####d"])[0].ends == [3, 7, 13]


def test_steps_beyond_max_length_get_none(model):
    step_reward = TokenClassificationStepReward(model, tiny_tokenizer(), max_length=6)
    full = TokenClassificationStepReward(model, tiny_tokenizer())(["a\nb\nc\nd", "e" * 9], prompts=["p", "p"])
    rows = step_reward(["a\nb\nc\nd", "e" * 9], prompts=["p", "p"])  # p a \n b \n c | \n d \n
    assert rows[0].rewards[:2] == pytest.approx(full[0].rewards[:2], abs=1e-6)
    assert rows[0].rewards[2:] == [None, None]
    assert rows[1] == ([None], [9], "char")


def test_max_length_is_by_default_what_the_model_reads():
    assert TokenClassificationStepReward(_model(), tiny_tokenizer()).max_length == 512


@pytest.mark.parametrize("completion", [None, [], [{"role": "assistant", "content": None}], " \n "])
def test_completion_without_text_has_no_steps(model, completion):
    assert TokenClassificationStepReward(model, tiny_tokenizer())([completion]) == [([], [], "char")]


def test_empty_call_is_empty(model):
    assert TokenClassificationStepReward(model, tiny_tokenizer())([], prompts=[]) == []


def test_messages_are_read_as_their_texts(model):
    step_reward = TokenClassificationStepReward(model, tiny_tokenizer())
    prompt = [{"role": "system", "content": "Sum."}, {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}]
    messages = step_reward([[{"role": "assistant", "content": "4\nok"}]], prompts=[prompt], completion_ids=[[1]])
    assert messages == step_reward(["4\nok"], prompts=["Sum.\n2 + 2?"])
    with_text = TokenClassificationStepReward(model, tiny_tokenizer(), prompt_text=lambda prompt: prompt[1]["role"])
    assert with_text(["4"], prompts=[prompt]) == step_reward(["4"], prompts=["user"])


def test_no_gradient_no_dropout_and_random_state_stays():
    model = _model(attention_dropout=0.5).train()
    step_reward = TokenClassificationStepReward(model, tiny_tokenizer())
    state = torch.random.get_rng_state()
    assert step_reward(["a\nb"]) == step_reward(["a\nb"])
    assert torch.equal(state, torch.random.get_rng_state())
    assert not model.training and all(parameter.grad is None for parameter in model.parameters())


def test_device_moves_the_model_and_name_is_kept():
    step_reward = TokenClassificationStepReward(_model(), tiny_tokenizer(), device="cpu", name="prm")
    assert next(step_reward.model.parameters()).device.type == "cpu"
    assert step_reward.__name__ == "prm"


def test_model_by_its_folder_scores_the_same(model, tmp_path):
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    loaded = TokenClassificationStepReward(str(tmp_path))(COMPLETIONS, prompts=PROMPTS)
    expected = TokenClassificationStepReward(model, tiny_tokenizer())(COMPLETIONS, prompts=PROMPTS)
    assert [row.ends for row in loaded] == [row.ends for row in expected]
    assert loaded[0].rewards == pytest.approx(expected[0].rewards, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "probabilty"}, "score is 'probabilty', but must be 'probability' or 'logit'; did you mean"),
        ({"batch_size": 0}, "batch_size is 0, but must be 1 or more"),
        ({"max_length": 0}, "max_length is 0, but must be 1 or more"),
        ({"step_separator": ""}, "step_separator is '', which has no tokens"),
        ({"step_separator": None}, "step_separator is None, but must be a text"),
        ({"splitter": 3}, "splitter is 3, but must be a function from a text to spans"),
        ({"batch_size": 2.5}, "batch_size is 2.5, but must be 1 or more, a whole number"),
        ({"batch_size": None}, "batch_size is None, but must be 1 or more"),
        ({"batch_size": True}, "batch_size is True, but must be 1 or more"),
        ({"max_length": 8.0}, "max_length is 8.0, but must be 1 or more"),
        (
            {"positive_label": 2},
            "positive_label is 2, but must be one of the model's classes: 0 (LABEL_0), 1 (LABEL_1)",
        ),
    ],
)
def test_bad_settings_raise_one_clear_sentence(model, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        TokenClassificationStepReward(model, tiny_tokenizer(), **options)


def test_missing_tokenizer_and_prompts_raise(model):
    with pytest.raises(ValueError, match="tokenizer is None"):
        TokenClassificationStepReward(model)
    with pytest.raises(ValueError, match="prompts has 1 entries, but must have one for each of the 2"):
        TokenClassificationStepReward(model, tiny_tokenizer())(["a", "b"], prompts=["p"])
