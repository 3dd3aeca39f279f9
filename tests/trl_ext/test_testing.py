import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from trl_ext.testing import CHARACTERS, tiny_model, tiny_tokenizer

CHAT = [{"role": "user", "content": "2+2?"}]


def test_tokenizer_decode_then_encode_is_the_identity():
    tokenizer = tiny_tokenizer()
    ids = list(range(len(tokenizer)))
    assert tokenizer(tokenizer.decode(ids)).input_ids == ids


def test_tokenizer_text_round_trips_with_one_token_a_character():
    tokenizer = tiny_tokenizer()
    ids = tokenizer(CHARACTERS).input_ids
    assert len(ids) == len(CHARACTERS) == 97
    assert tokenizer.decode(ids) == CHARACTERS


def test_tokenizer_other_characters_become_question_marks():
    tokenizer = tiny_tokenizer()
    assert tokenizer.decode(tokenizer("é=ω").input_ids) == "?=?"


def test_tokenizer_skip_special_tokens_drops_all_four():
    tokenizer = tiny_tokenizer()
    ids = tokenizer("a<pad>b<eos>c<|im_start|>d<|im_end|>").input_ids
    assert len(ids) == 8
    assert tokenizer.decode(ids, skip_special_tokens=True) == "abcd"


def test_tokenizer_pads_on_the_left():
    batch = tiny_tokenizer()(["a", "abc"], padding=True)
    assert batch["input_ids"][0][:2] == [0, 0]
    assert batch["attention_mask"] == [[0, 0, 1], [1, 1, 1]]


def test_chat_template_turns_extend_the_prompt():
    tokenizer = tiny_tokenizer()
    prompt = tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template([*CHAT, {"role": "assistant", "content": "4"}], tokenize=False)
    assert prompt == "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    assert whole == prompt + "4<|im_end|>\n"


def test_model_same_seed_gives_same_weights_and_leaves_the_random_state():
    torch.manual_seed(5)
    first = tiny_model(seed=1)
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(1))
    second, third = tiny_model(seed=1), tiny_model(seed=2)
    weight = "model.layers.0.self_attn.q_proj.weight"
    assert torch.equal(first.state_dict()[weight], second.state_dict()[weight])
    assert not torch.equal(first.state_dict()[weight], third.state_dict()[weight])


def test_model_overrides_reach_the_config():
    model = tiny_model(num_hidden_layers=1, tie_word_embeddings=False, attention_dropout=0.1)
    assert len(model.model.layers) == 1
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    assert model.config.attention_dropout == 0.1


def test_model_fits_the_tokenizer():
    tokenizer, model = tiny_tokenizer(), tiny_model()
    assert model.config.vocab_size == len(tokenizer)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_saved_pair_reloads_to_the_same_logits_and_template(tiny_model_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_path)
    model = AutoModelForCausalLM.from_pretrained(tiny_model_path)
    batch = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    expected = tiny_tokenizer().apply_chat_template(CHAT, add_generation_prompt=True, return_dict=True)
    assert batch["input_ids"][0].tolist() == expected["input_ids"]
    assert (tokenizer.pad_token, tokenizer.eos_token, tokenizer.padding_side) == ("<pad>", "<|im_end|>", "left")
    with torch.no_grad():
        assert torch.equal(model(**batch).logits, tiny_model()(**batch).logits)


@pytest.mark.parametrize("do_sample", [False, True])
def test_model_generates_from_a_padded_batch(do_sample):
    tokenizer, model = tiny_tokenizer(), tiny_model()
    chats = [CHAT, [{"role": "user", "content": "A longer question, please?"}]]
    batch = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**batch, max_new_tokens=5, min_new_tokens=5, do_sample=do_sample)
    assert output.shape == (2, batch["input_ids"].shape[1] + 5)
