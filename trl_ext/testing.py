"""A tokenizer and a model of a few kilobytes, built in memory: no download, the same weights every time.

They serve tests and examples. A trainer that loads a second copy of the model by name (TRL does for the reference
model of a full fine-tune with `beta > 0`) needs a path: save both with `save_pretrained` and pass the folder.
"""

import string
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL_TOKENS = ("<pad>", "<eos>", "<|im_start|>", "<|im_end|>")
CHARACTERS = "\n\t" + "".join(sorted(set(string.printable) - set(string.whitespace) | {" "}))
UNKNOWN_CHARACTER = "?"
MAX_LENGTH = 512
MODEL_NAME = "trl-ext/tiny-llama"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_tokenizer() -> "PreTrainedTokenizerFast":
    r"""Character-level tokenizer over printable ASCII, newline and tab, with a ChatML template.

    One character is one token, so that decoding and encoding again gives the same ids; any other character becomes
    `?`. `eos_token` is `<|im_end|>`, `pad_token` is `<pad>` (id 0), padding is on the left and no token is added
    around a text. `<eos>` is there as a second stop token.

    Returns:
        The tokenizer, 101 tokens.

    Example:

    ```python
    >>> tokenizer = tiny_tokenizer()
    >>> tokenizer.decode(tokenizer("2 + 2 = 4").input_ids)
    '2 + 2 = 4'
    >>> tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True)
    '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n'

    ```
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: index for index, token in enumerate((*SPECIAL_TOKENS, *CHARACTERS))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN_CHARACTER))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<pad>",
        extra_special_tokens=["<eos>", "<|im_start|>"],
        padding_side="left",
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def tiny_model(*, seed: int = 0, **overrides: Any) -> "LlamaForCausalLM":
    """Llama of two layers with random float32 weights that fits `tiny_tokenizer`.

    Hidden size 32, 4 heads, 2 key-value heads, tied embeddings, 512 positions, no dropout. The random state of the
    process is left as it was.

    Args:
        seed (`int`): fixes the weights.
        overrides: fields of `LlamaConfig` to set otherwise, such as `num_hidden_layers=1`.

    Returns:
        The model in eval mode, on the CPU. Its `config._name_or_path` is `"trl-ext/tiny-llama"`, which names no
        repository: save the model and pass the folder where something must load it by name.

    Example:

    ```python
    >>> tiny_model().num_parameters()
    21824

    ```
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = tiny_tokenizer()
    fields = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": MAX_LENGTH,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
        "dtype": "float32",
    }
    config = LlamaConfig(**{**fields, **overrides})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.config._name_or_path = MODEL_NAME
    return model.eval()
