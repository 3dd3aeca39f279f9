"""From character offsets to tokens: equal to decoding every prefix, for every kind of tokenizer."""

import random

import pytest

import reward_funcs
import reward_funcs.steps
from trl_ext.advantages import process_advantages
from trl_ext.grpo import steps as module
from trl_ext.grpo.steps import Steps, completion_text, steps_in_tokens, token_ends
from trl_ext.testing import tiny_tokenizer

SNIPPETS = ["é", "😀", "a ", "\n", "हिन्दी", " the", "3.14", "中文", "\ufffd", "👩‍👩‍👧", "  ", ".", " .", "n't", "x=2"]
CORPUS = ["We add 3.14 and 2.", "the sum is 5 . It isn't 6 .", "<think> so x=2 </think>\n4"] * 3


def _byte_level():
    """Byte-level BPE as GPT-2 has it: most characters outside ASCII are several tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    return _fast(backend, trainer)


def _metaspace():
    """BPE in SentencePiece's manner: the first word loses its space, unknown characters are bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    backend = Tokenizer(models.BPE(byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=[], show_progress=False)
    backend.train_from_iterator([*CORPUS, *pieces], trainer)
    vocabulary = dict(backend.get_vocab())
    for piece in pieces:
        vocabulary.setdefault(piece, len(vocabulary))
    backend.model = models.BPE(vocabulary, [], byte_fallback=True)
    return _fast(backend, None)


def _word_piece():
    """BERT's: pieces inside a word, spaces made up, and taken away again before punctuation."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(cleanup=True)
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]"], show_progress=False)
    return _fast(backend, trainer)


def _fast(backend, trainer):
    from transformers import PreTrainedTokenizerFast

    if trainer is not None:
        backend.train_from_iterator(CORPUS, trainer)
    backend.add_special_tokens(["<eos>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", clean_up_tokenization_spaces=False)


def _slow():
    """ByT5's: written in Python, every byte a token."""
    from transformers import ByT5Tokenizer

    return ByT5Tokenizer()


TOKENIZERS = {
    "tiny": tiny_tokenizer,
    "byte_level": _byte_level,
    "metaspace": _metaspace,
    "word_piece": _word_piece,
    "slow": _slow,
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


def _reference(text, ends, ids, tokenizer):
    """The definition: decode every prefix until it says the text up to the end."""
    prefixes = [tokenizer.decode(ids[: t + 1], skip_special_tokens=True) for t in range(len(ids))]
    return [next(t for t, prefix in enumerate(prefixes) if prefix[:end] == text[:end]) for end in ends]


def _assert_equals_reference(ids, tokenizer):
    text = tokenizer.decode(ids, skip_special_tokens=True)
    ends = range(1, len(text) + 1)
    assert token_ends(text, [(end - 1, end) for end in ends], ids, tokenizer) == _reference(text, ends, ids, tokenizer)


def test_token_ends_hand_numbers():
    tokenizer = tiny_tokenizer()
    ids = tokenizer("2 + 2\n= 4<|im_end|>").input_ids
    assert token_ends("2 + 2\n= 4", [(0, 5), (6, 9), (8, 9)], ids, tokenizer) == [4, 8, 8]


@pytest.mark.parametrize("text", ["  a b", "\n\n हि", "👩‍👩‍👧👩‍👩‍👧中文 a", "\n" * 40 + "é a", "हिन्दी中文" * 5])
def test_token_ends_of_text_that_opens_without_a_plain_token_equal_reference(tokenizer, text):
    _assert_equals_reference(tokenizer(text, add_special_tokens=False).input_ids, tokenizer)


@pytest.mark.parametrize("seed", range(40))
def test_token_ends_of_text_equal_reference(tokenizer, seed):
    source = random.Random(seed)
    text = "".join(source.choice(SNIPPETS) for _ in range(source.randrange(1, 15)))
    if tokenizer.convert_tokens_to_ids("<0xEF>") is not None:
        text = text.replace("\ufffd", "")  # how this decoder writes half a character too: the reference is of no use
    _assert_equals_reference([*tokenizer(text, add_special_tokens=False).input_ids, tokenizer.eos_token_id], tokenizer)


@pytest.mark.parametrize("seed", range(20))
def test_token_ends_of_random_tokens_equal_reference(tokenizer, seed):
    source = random.Random(seed)
    _assert_equals_reference([source.randrange(len(tokenizer)) for _ in range(source.randrange(1, 40))], tokenizer)


@pytest.mark.model
@pytest.mark.parametrize("seed", range(20))
def test_token_ends_of_the_demo_models_tokenizer_equal_reference(smol_path, seed):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smol_path)
    source = random.Random(seed)
    text = "".join(source.choice(SNIPPETS) for _ in range(source.randrange(1, 15)))
    _assert_equals_reference(tokenizer(text + "<|im_end|>").input_ids, tokenizer)
    _assert_equals_reference([source.randrange(len(tokenizer)) for _ in range(30)], tokenizer)


def test_token_ends_split_character_ends_at_its_last_byte():
    tokenizer = _slow()
    ids = tokenizer("é!", add_special_tokens=False).input_ids  # two bytes and one
    assert token_ends("é!", [(0, 1), (1, 2)], ids, tokenizer) == [1, 2]


def test_token_ends_decode_each_token_once(monkeypatch):
    tokenizer = tiny_tokenizer()
    decode, calls = tokenizer.decode, []
    monkeypatch.setattr(tokenizer, "decode", lambda ids, **options: calls.append(len(ids)) or decode(ids, **options))
    text = "So 3.14 + 2 = 5.14\n" * 200
    ids = tokenizer(text).input_ids
    steps_in_tokens([Steps([1.0], [len(text)], "char")] * 64, [text] * 64, [ids] * 64, tokenizer)
    assert sum(calls) <= 64 * len(ids) + 100  # the completions themselves, and each different token


def test_token_ends_decoder_that_joins_neighbours_gives_the_character_to_the_last():
    class Joining:
        """Writes `ab` as `x`."""

        def decode(self, ids, skip_special_tokens):
            return "".join("abc"[token] for token in ids).replace("ab", "x")

    assert token_ends("cxca", [(0, 1), (1, 2), (2, 3), (3, 4)], [2, 0, 1, 2, 0], Joining()) == [0, 2, 3, 4]


def test_token_ends_decoder_that_looks_back_is_followed_prefix_by_prefix():
    class Shifting:
        """Writes capitals behind a 0, however far back it stands."""

        def decode(self, ids, skip_special_tokens):
            start = ids.index(0) if 0 in ids else len(ids)
            return "".join(" abc"[token] for token in ids[:start]) + "".join(" ABC"[token] for token in ids[start:])

    ids = [1, 0, *[1, 2, 3] * 20]
    text = "a " + "ABC" * 20
    assert token_ends(text, [(0, end) for end in (1, 3, 40, 62)], ids, Shifting()) == [0, 2, 39, 61]


def test_token_ends_processor_uses_its_tokenizer():
    class Processor:
        tokenizer = tiny_tokenizer()

    assert token_ends("ab", [(0, 2)], Processor.tokenizer("ab").input_ids, Processor()) == [1]


# texts that are not quite what the tokens say


def _ids(text):
    return tiny_tokenizer()(text).input_ids


@pytest.mark.parametrize(
    ("text", "end", "ids_of", "token"),
    [
        ("a b", 3, "  a b\n", 4),  # stripped
        ("<think>\na\n</think>\nb c", 9, "<think>a</think>  b c", 7),  # reasoning in a field of its own
        ("<think>\na\n</think>\nb c", 22, "<think>a</think>  b c", 20),
        ("ok 4", 4, "tool ok 4<|im_end|>\n4 ok 4<|im_end|>", 16),  # the last turn
        ("Sure: a b", 9, "a b", 2),  # prefilled
        ("Sure: a b", 7, "a b", 0),
        ("Sure: a b", 5, "a b", -1),
        ("Sure:", 5, "", -1),
        ("<|im_end|>a", 11, "<|im_end|>a", 1),  # special tokens kept
    ],
)
def test_token_ends_find_a_text_that_was_changed_around_it(text, end, ids_of, token):
    assert token_ends(text, [(0, end)], _ids(ids_of), tiny_tokenizer()) == [token]


def test_token_ends_of_another_text_raise():
    with pytest.raises(ValueError, match=r"text is 'abc'\.\.\., but completion_ids decode to 'xyz'\.\.\."):
        token_ends("abc", [(0, 2)], _ids("xyz"), tiny_tokenizer())


@pytest.mark.parametrize("end", [-1, 0, 4])
def test_token_ends_outside_the_text_raise(end):
    with pytest.raises(ValueError, match=r"must end in \(0, 3\]"):
        token_ends("abc", [(0, end)], _ids("abc"), tiny_tokenizer())


def test_token_ends_without_spans_look_at_nothing():
    assert token_ends("abc", [], [], None) == []


# what a process reward returned


def test_steps_in_tokens_takes_pairs_units_and_either_steps_class():
    results = [([1, None], [0, 2]), Steps([0.5], [1]), reward_funcs.steps.Steps([0.25], [2], "char"), ([], [])]
    rewards, ends = steps_in_tokens(results, ["abc", "abc", "abc", None], [_ids("abc")] * 3 + [[]], tiny_tokenizer())
    assert rewards == [[1, None], [0.5], [0.25], []]
    assert ends == [[0, 2], [1], [1], []]


def test_steps_in_tokens_drops_steps_of_the_prefilled_start():
    results = [Steps([1.0, 0.5], [3, 5], "char")]
    assert steps_in_tokens(results, ["So:\nb"], [_ids("\nb")], tiny_tokenizer()) == ([[0.5]], [[1]])


def test_steps_in_tokens_feeds_process_advantages():
    texts = ["1+1=2\n2+2=5", "1+1=3"]
    results = reward_funcs.steps.arithmetic_step_rewards(texts)
    rewards, ends = steps_in_tokens(results, texts, [_ids(text) for text in texts], tiny_tokenizer())
    advantages = process_advantages(rewards, ends, length=11, num_generations=2, scale="none")
    third = pytest.approx(1 / 3)
    assert advantages[0].tolist() == [third] * 5 + [pytest.approx(-1 / 3)] * 6
    assert advantages[1].tolist() == [pytest.approx(-1 / 3)] * 5 + [0.0] * 6


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (([1.0], [0, 1]), "1 step rewards, but 2 ends"),
        (([1.0], [3]), r"the ends of completion 0 are \[3\], but must be token indices in \[0, 3\)"),
        (([1.0], [-1]), r"token indices in \[0, 3\)"),
        (([1.0], [4], "char"), r"must end in \(0, 3\]"),
        (([1.0], [1], "word"), "unit of completion 0 is 'word'"),
        (1.0, r"steps of completion 0 are 1\.0"),
        ("ab", "steps of completion 0 are 'ab'"),
    ],
)
def test_steps_in_tokens_refuses_what_is_no_steps(result, message):
    with pytest.raises(ValueError, match=message):
        steps_in_tokens([result], ["abc"], [_ids("abc")], tiny_tokenizer())


def test_steps_in_tokens_wants_one_result_for_each_completion():
    with pytest.raises(ValueError, match="results has 1 entries, but must have one for each of the 2"):
        steps_in_tokens([([], [])], ["a", "b"], [[1], [2]], tiny_tokenizer())


def test_steps_are_the_same_tuple_on_both_sides():
    assert Steps._fields == reward_funcs.steps.Steps._fields
    assert Steps._field_defaults == reward_funcs.steps.Steps._field_defaults


@pytest.mark.parametrize(
    "completion",
    [
        None,
        "a",
        [],
        {"content": "a"},
        [{"role": "assistant", "content": None}],
        [{"role": "assistant", "content": "a"}, {"role": "tool", "content": "b"}],
        [{"role": "assistant", "content": [{"type": "text", "text": "a"}, "b", {"type": "image"}]}],
        [{"role": "assistant", "content": "a", "reasoning_content": "b"}],
        [{"role": "assistant", "content": "<think>x</think>a", "thinking": "b"}],
        [{"role": "user", "content": "a"}],
    ],
)
def test_completion_text_equals_that_of_the_rewards(completion):
    assert completion_text(completion) == reward_funcs.completion_text(completion)


@pytest.mark.parametrize("completion", [1, ["a"], b"a"])
def test_completion_text_refuses_other_types(completion):
    with pytest.raises(ValueError, match="must be a text or a list of messages"):
        completion_text(completion)


def test_module_knows_no_rewards():
    assert "reward_funcs" not in vars(module)
