"""The repetition penalty: hand numbers, TRL's own as reference, units, long and hostile texts."""

import math
import pickle
import random

import pytest

import reward_funcs
from reward_funcs.repetition import RepetitionPenaltyReward, repetition_penalty_reward, words


def ours(texts=None, completion_ids=None, **options):
    texts = ["x"] * len(completion_ids) if texts is None else texts
    return RepetitionPenaltyReward(**options)(texts, completion_ids=completion_ids)


def test_repetition_penalty_tokens_hand_numbers():
    # trigrams: none, 1 of 4 distinct, 3 of 5 distinct, 2 of 2 distinct
    tokens = [[], [5] * 6, [1, 2, 3, 1, 2, 3, 1], [1, 2, 3, 4]]
    assert ours(completion_ids=tokens) == pytest.approx([0.0, -0.75, -0.4, 0.0])
    assert ours(completion_ids=tokens, max_penalty=-2.0) == pytest.approx([0.0, -1.5, -0.8, 0.0])


def test_repetition_penalty_words_hand_numbers():
    # bigrams of "to be or not to be": 4 of 5 distinct
    assert ours(["to be or not To BE", "a b c", ""], ngram_size=2) == pytest.approx([-0.2, 0.0, 0.0])
    assert ours(["no no no no"], ngram_size=1, max_penalty=-0.5) == pytest.approx([-0.375])


@pytest.mark.parametrize("ngram_size", [1, 2, 3, 7])
def test_repetition_penalty_equals_trl_over_seeds(ngram_size):
    trl_rewards = pytest.importorskip("trl.rewards")
    generator = random.Random(ngram_size)
    tokens = [[generator.randrange(3) for _ in range(generator.randrange(30))] for _ in range(200)]
    theirs = trl_rewards.get_repetition_penalty_reward(ngram_size, -1.5)(completion_ids=tokens)
    assert ours(completion_ids=tokens, ngram_size=ngram_size, max_penalty=-1.5) == theirs


def test_repetition_penalty_equals_a_slow_loop_over_seeds():
    for seed in range(20):
        generator = random.Random(seed)
        tokens = [generator.randrange(4) for _ in range(25)]
        distinct = []
        for start in range(23):
            if tokens[start : start + 3] not in distinct:
                distinct.append(tokens[start : start + 3])
        assert ours(completion_ids=[tokens]) == pytest.approx([-(1 - len(distinct) / 23)])


def test_repetition_penalty_text_shorter_than_an_ngram_is_free():
    assert ours(completion_ids=[[5] * 9, [5] * 10, [5] * 11], ngram_size=10) == [0.0, 0.0, -0.5]
    assert ours(["a a"], ngram_size=10**6) == [0.0]


def test_repetition_penalty_unit_default_takes_tokens_where_there_are_any():
    texts, tokens = ["a a a a"], [[1, 2, 3, 4]]
    assert ours(texts, tokens) == [0.0]
    assert ours(texts, tokens, unit="token") == [0.0]
    assert ours(texts, tokens, unit="word") == [-0.5]
    assert ours(texts) == ours(texts, unit="word") == [-0.5]
    with pytest.raises(ValueError, match=r"repetition_penalty_reward.*completion_ids.*unit='word'"):
        ours(texts, unit="token")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我们 我们", ["我", "们", "我", "们"]),
        ("答案是x=4。", ["答", "案", "是", "x=4。"]),
        ("これはテスト", list("これはテスト")),
        ("𠮷野家", ["𠮷", "野", "家"]),
        ("우리는 세 개", ["우리는", "세", "개"]),
        ("ça\u3000VA\x00?", ["ça", "va\x00?"]),
        (" \n", []),
    ],
)
def test_words_splits_ideographs_by_character(text, expected):
    assert words(text) == expected


def test_repetition_penalty_chinese_words_see_repetition():
    assert ours(["我们算一算我们算一算"], unit="word") == pytest.approx([-3 / 8])
    assert ours(["我们有三个苹果和两个梨"], unit="word") == [0.0]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_penalty": 1.0}, r"max_penalty=1\.0: .*finite number of at most 0"),
        ({"max_penalty": math.inf}, r"max_penalty=inf: .*finite"),
        ({"max_penalty": math.nan}, r"max_penalty.*nan"),
        ({"ngram_size": 0}, r"ngram_size=0: .*at least 1"),
        ({"ngram_size": 2.0}, r"ngram_size.*2\.0"),
        ({"unit": "tokens"}, r"'token', 'word' or None.*'tokens'"),
    ],
)
def test_repetition_penalty_bad_setting_raises(options, named):
    with pytest.raises(ValueError, match=named):
        RepetitionPenaltyReward(**options)


def test_repetition_penalty_zero_penalty_is_always_zero():
    assert ours(completion_ids=[[5] * 9], max_penalty=0.0) == [0.0]


def test_repetition_penalty_hundred_thousand_tokens_finishes():
    generator = random.Random(0)
    tokens = [[5] * 100_000, list(range(100_000)), [generator.randrange(1000) for _ in range(100_000)]]
    same, distinct, mixed = ours(completion_ids=tokens)
    assert same == pytest.approx(-(1 - 1 / 99_998))
    assert distinct == 0.0
    assert -0.001 < mixed < 0.0
    assert ours(completion_ids=tokens[:2], ngram_size=40) == pytest.approx([-(1 - 1 / 99_961), 0.0])


@pytest.mark.parametrize(
    "text",
    ["", "\x00" * 100_000, "\ud800 " * 50_000, "我" * 100_000, " " * 100_000, "a" * 100_000, "\u200b \u200b", "İ" * 9],
)
def test_repetition_penalty_hostile_text_stays_in_range(text):
    messages = [[{"role": "assistant", "content": [{"type": "text", "text": text}]}], text]
    first, second = RepetitionPenaltyReward()(messages)
    assert first == second
    assert -1.0 < first <= 0.0
    assert RepetitionPenaltyReward()([None, []]) == [0.0, 0.0]


def test_repetition_penalty_tensor_ids_count_by_value():
    torch = pytest.importorskip("torch")
    assert ours(completion_ids=[torch.tensor([5] * 6)]) == [-0.75]


def test_repetition_penalty_pickled_and_reordered_gives_the_same():
    reward = RepetitionPenaltyReward(2, -3.0, "word", name="stutter")
    texts = ["a b a b", "a b c", "我我我", ""]
    rewards = reward(texts)
    assert pickle.loads(pickle.dumps(reward))(texts) == rewards
    assert reward(texts[::-1]) == rewards[::-1]
    assert reward([]) == []
    assert reward.__name__ == "stutter"


def test_repetition_penalty_logs_a_reason():
    logged = {}
    repetition_penalty_reward(["a a a a", "a b c d", "a"], log_extra=logged.__setitem__)
    assert logged["repetition_penalty_reward/reason"] == ["repetition", "no_repetition", "too_short"]


def test_repetition_penalty_reward_is_public():
    assert reward_funcs.repetition_penalty_reward is repetition_penalty_reward


@pytest.mark.parametrize("size", range(1, 12))
def test_repetition_penalty_equals_the_count_of_tuples(size):
    rng = random.Random(size)
    for length in (0, 1, size - 1, size, size + 1, 40, 200):
        ids = [rng.randrange(3) for _ in range(length)]
        grams = [tuple(ids[i : i + size]) for i in range(length - size + 1)]
        expected = -(1 - len(set(grams)) / len(grams)) if grams else 0.0
        assert ours(completion_ids=[ids], ngram_size=size) == [pytest.approx(expected)]


def test_repetition_penalty_huge_ngrams_are_finished():
    ids = [i % 7 for i in range(100_000)]
    assert ours(completion_ids=[ids], ngram_size=50_000) == [pytest.approx(-(1 - 7 / 50_001))]
    assert ours(completion_ids=[ids], ngram_size=10**30) == [0.0]
