"""Length rewards: hand numbers, TRL's own as reference, verdicts from any accuracy reward, groups by prompt."""

import math
import pickle
import random

import pytest

import reward_funcs
from reward_funcs.asynchronous import AsyncReward
from reward_funcs.base import Batch, Grade, Reward
from reward_funcs.length import (
    CosineLengthReward,
    LengthPenaltyReward,
    SoftOverlongReward,
    length_penalty_reward,
    soft_overlong_reward,
)


class Marked(Reward):
    """Right where the text says so, unjudged where it says nothing."""

    default_name = "marked"

    def __init__(self):
        super().__init__()
        self.batches = []
        self.closed = False

    def grade(self, batch):
        self.batches.append(batch)
        known = {"right": Grade(1.0, "equal", "4"), "wrong": Grade(0.0, "unequal", "5"), "half": Grade(0.5)}
        return [known.get(text, Grade(None, "bad_gold")) for text in batch.texts]

    def close(self):
        self.closed = True


def marked_function(completions, solution, **columns):
    return [
        1.0 if text == gold else math.nan if text == "" else -1.0
        for text, gold in zip(completions, solution, strict=True)
    ]


def ids(*lengths):
    return [[7] * length for length in lengths]


def test_soft_overlong_hand_numbers():
    reward = SoftOverlongReward(max_completion_len=100, soft_punish_cache=20)
    lengths = ids(0, 79, 80, 81, 85, 90, 99, 100, 101, 1000)
    expected = [0.0, 0.0, 0.0, -0.05, -0.25, -0.5, -0.95, -1.0, -1.0, -1.0]
    assert reward(["x"] * 10, completion_ids=lengths) == expected
    assert soft_overlong_reward(["x"] * 3, completion_ids=ids(1024, 1152, 1281)) == [0.0, -0.5, -1.0]


@pytest.mark.parametrize(("limit", "cache"), [(1, 0), (1, 1), (20, 0), (20, 7), (20, 20), (64, 16)])
def test_soft_overlong_equals_trl_at_every_length(limit, cache):
    trl_rewards = pytest.importorskip("trl.rewards")
    lengths = ids(*range(2 * limit + 2))
    ours = SoftOverlongReward(limit, cache)(["x"] * len(lengths), completion_ids=lengths)
    assert ours == trl_rewards.get_soft_overlong_punishment(limit, cache)(completion_ids=lengths)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_completion_len": 0}, r"max_completion_len=0: .*at least 1"),
        ({"max_completion_len": 12.5}, r"max_completion_len.*12\.5"),
        ({"soft_punish_cache": -1}, r"soft_punish_cache=-1: .*at least 0"),
        ({"soft_punish_cache": True}, r"soft_punish_cache.*True"),
        ({"max_completion_len": 100}, r"soft_punish_cache.*at most.*100.*256"),
    ],
)
def test_soft_overlong_bad_setting_raises(options, named):
    with pytest.raises(ValueError, match=named):
        SoftOverlongReward(**options)


@pytest.mark.parametrize("reward", [soft_overlong_reward, length_penalty_reward, CosineLengthReward(accuracy=Marked())])
def test_length_rewards_without_token_ids_raise(reward):
    with pytest.raises(ValueError, match=rf"{reward.__name__}.*completion_ids.*tokenizer"):
        reward(["right"], solution=["4"])
    with pytest.raises(ValueError, match=r"completion_ids.*1 completions.*2 values"):
        reward(["right"], completion_ids=ids(1, 2))


def test_cosine_length_hand_numbers():
    reward = CosineLengthReward(max_len=90, accuracy=Marked())
    texts = ["right"] * 5 + ["wrong"] * 5 + ["?"]
    rewards = reward(texts, completion_ids=ids(*[0, 30, 45, 90, 500] * 2, 10))
    # cos(pi / 3) = 1/2: three quarters of the way are left
    assert rewards[:10] == pytest.approx([1.0, 0.875, 0.75, 0.5, 0.5, -1.0, -0.875, -0.75, -0.5, -0.5])
    assert rewards[10] is None


def test_cosine_length_equals_trl_for_the_same_verdicts(monkeypatch):
    accuracy_rewards = pytest.importorskip("trl.rewards.accuracy_rewards")
    generator = random.Random(0)
    texts = [generator.choice(["right", "wrong", "?"]) for _ in range(300)]
    lengths = ids(*(generator.randrange(160) for _ in texts))
    verdict = {"right": 1.0, "wrong": 0.0, "?": None}
    monkeypatch.setattr(accuracy_rewards, "accuracy_reward", lambda *_: [verdict[text] for text in texts])
    values = (100, -2.0, -0.25, 0.1, 3.0)
    theirs = accuracy_rewards.get_cosine_scaled_reward(*values)(texts, ["4"] * 300, lengths)
    ours = CosineLengthReward(*values, accuracy=Marked())(texts, solution=["4"] * 300, completion_ids=lengths)
    assert [value is None for value in ours] == [value is None for value in theirs]
    assert [x for x in ours if x is not None] == pytest.approx([x for x in theirs if x is not None], rel=1e-12)


def test_cosine_length_accuracy_reward_grades_the_same_batch():
    accuracy = Marked()
    batch = Batch(["right", "wrong", "?"], {"completion_ids": ids(0, 0, 0)})
    grades = CosineLengthReward(accuracy=accuracy).grade(batch)
    assert accuracy.batches == [batch]
    assert grades == [Grade(1.0, "right", "4"), Grade(-1.0, "wrong", "5"), Grade(None, "bad_gold", None)]


def test_cosine_length_accuracy_function_gets_the_columns():
    reward = CosineLengthReward(accuracy=marked_function)
    rewards = reward(["4", "5", ""], solution=["4", "4", "4"], completion_ids=ids(0, 0, 0), level=[1, 2, 3])
    assert rewards == [1.0, -1.0, None]


def test_cosine_length_half_right_is_wrong():
    assert CosineLengthReward(accuracy=Marked())(["half"], completion_ids=ids(0)) == [-1.0]


def test_cosine_length_accuracy_of_another_length_raises():
    reward = CosineLengthReward(accuracy=lambda completions, **columns: [1.0])
    with pytest.raises(ValueError, match="1 rewards for 2 completions"):
        reward(["a", "b"], completion_ids=ids(1, 2))


def test_cosine_length_default_judges_by_accuracy_reward():
    pytest.importorskip("reward_funcs.grading")
    texts = [r"\boxed{4}", r"\boxed{5}"]
    reward = reward_funcs.cosine_length_reward
    assert reward(texts, solution=["4", "4"], completion_ids=ids(512, 512)) == pytest.approx([0.75, -0.75])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_len": 0}, r"max_len=0: .*at least 1"),
        ({"min_value_wrong": 0.0}, r"min_value_wrong=0\.0 .*max_value_wrong=-0\.5"),
        ({"max_value_correct": 0.0}, r"min_value_correct=0\.5 .*max_value_correct=0\.0"),
        ({"max_value_correct": math.inf}, r"max_value_correct.*finite"),
        ({"min_value_wrong": math.nan}, r"min_value_wrong.*finite"),
        ({"accuracy": "accuracy_reward"}, r"CosineLengthReward.*accuracy_reward"),
        ({"accuracy": Marked}, r"CosineLengthReward.*Marked"),
        ({"accuracy": AsyncReward(Marked())}, r"CosineLengthReward.*coroutine"),
    ],
)
def test_cosine_length_bad_setting_raises(options, named):
    with pytest.raises(ValueError, match=named):
        CosineLengthReward(**options)


@pytest.mark.parametrize("kind", [CosineLengthReward, LengthPenaltyReward])
def test_close_closes_the_accuracy_reward(kind):
    accuracy = Marked()
    kind(accuracy=accuracy).close()
    kind(accuracy=marked_function).close()
    kind().close()
    assert accuracy.closed


def test_length_penalty_hand_numbers():
    texts, prompts = ["x"] * 6, ["p", "p", "p", "q", "q", "r"]
    rewards = length_penalty_reward(texts, prompts=prompts, completion_ids=ids(10, 20, 50, 8, 4, 9))
    assert rewards == [0.5, 0.25, -0.5, -0.5, 0.5, 0.0]


def test_length_penalty_wrong_completions_get_no_bonus():
    reward = LengthPenaltyReward(accuracy=Marked())
    texts = ["right", "wrong", "?", "wrong", "right"]
    rewards = reward(texts, prompts=["p"] * 5, completion_ids=ids(20, 10, 50, 40, 30))
    # the unjudged one is the longest all the same
    assert rewards == [0.25, 0.0, None, -0.25, 0.0]


def test_length_penalty_equals_the_papers_case_distinction_over_seeds():
    for seed in range(20):
        generator = random.Random(seed)
        lengths = [generator.randrange(1, 40) for _ in range(8)]
        right = [generator.random() < 0.5 for _ in range(8)]
        texts = ["right" if flag else "wrong" for flag in right]
        expected = []
        for length, flag in zip(lengths, right, strict=True):
            lam = 0.5 - (length - min(lengths)) / (max(lengths) - min(lengths))
            expected.append(lam if flag else min(0, lam))
        assert LengthPenaltyReward(accuracy=Marked())(texts, completion_ids=ids(*lengths)) == expected


def test_length_penalty_equal_lengths_are_neutral():
    assert length_penalty_reward(["x"] * 3, prompts=["p"] * 3, completion_ids=ids(5, 5, 5)) == [0.0, 0.0, 0.0]
    assert length_penalty_reward(["x"], prompts=["p"], completion_ids=ids(5)) == [0.0]
    assert length_penalty_reward([], prompts=[], completion_ids=[]) == []


def test_length_penalty_without_prompts_takes_the_call_as_one_group():
    assert length_penalty_reward(["x"] * 3, completion_ids=ids(1, 2, 3)) == [0.5, 0.0, -0.5]
    assert length_penalty_reward([], completion_ids=[]) == []


def test_length_penalty_num_generations_cuts_the_call():
    reward = LengthPenaltyReward(num_generations=2)
    prompts = ["p"] * 4
    assert reward(["x"] * 4, prompts=prompts, completion_ids=ids(1, 3, 10, 9)) == [0.5, -0.5, -0.5, 0.5]
    with pytest.raises(ValueError, match=r"num_generations = 2.*3"):
        reward(["x"] * 3, completion_ids=ids(1, 2, 3))
    with pytest.raises(ValueError, match=r"num_generations=1: .*at least 2"):
        LengthPenaltyReward(1)


def test_length_penalty_groups_do_not_depend_on_their_order():
    prompts = ["p", "q", "p", "q", "p"]
    lengths = ids(1, 30, 2, 10, 3)
    rewards = length_penalty_reward(["x"] * 5, prompts=prompts, completion_ids=lengths)
    assert rewards == [0.5, -0.5, 0.0, 0.5, -0.5]
    assert length_penalty_reward(["x"] * 5, prompts=prompts[::-1], completion_ids=lengths[::-1]) == rewards[::-1]


def test_length_penalty_groups_messages_and_images_by_equality():
    class Image:
        def __init__(self, pixel):
            self.pixel = pixel

        def __eq__(self, other):
            return self.pixel == other.pixel

        __hash__ = None

    def prompt(pixel):
        content = [{"type": "image", "image": Image(pixel)}, {"type": "text", "text": "What is it?"}]
        return [{"role": "user", "content": content}]

    prompts = [prompt(1), prompt(1), prompt(2), prompt(2)]
    assert length_penalty_reward(["x"] * 4, prompts=prompts, completion_ids=ids(1, 2, 5, 4)) == [0.5, -0.5, -0.5, 0.5]


def test_length_penalty_says_that_it_compares_completions():
    assert LengthPenaltyReward.group_relative
    assert not SoftOverlongReward.group_relative


@pytest.mark.parametrize(
    "reward", [soft_overlong_reward, length_penalty_reward, CosineLengthReward(accuracy=marked_function)]
)
def test_length_rewards_pickled_reordered_and_conversational_give_the_same(reward):
    texts, golds = ["4", "5", "\x00\ud800", ""], ["4"] * 4
    columns = {"solution": golds, "prompts": ["p"] * 4}
    lengths = ids(1200, 3, 900, 1500)
    rewards = reward(texts, completion_ids=lengths, **columns)
    assert pickle.loads(pickle.dumps(reward))(texts, completion_ids=lengths, **columns) == rewards
    assert reward(texts[::-1], completion_ids=lengths[::-1], **columns) == rewards[::-1]


def test_length_rewards_read_messages_as_texts():
    messages = [[{"role": "assistant", "content": text}] for text in ("right", "wrong")]
    for reward in (CosineLengthReward(accuracy=Marked()), LengthPenaltyReward(accuracy=Marked())):
        lengths = ids(10, 20)
        assert reward(messages, completion_ids=lengths) == reward(["right", "wrong"], completion_ids=lengths)


def test_length_rewards_names_are_public():
    for name in ("soft_overlong_reward", "cosine_length_reward", "length_penalty_reward"):
        assert getattr(reward_funcs, name).__name__ == name


def test_length_penalty_prompts_that_hold_arrays_are_compared_by_content():
    np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")

    def prompt(image):
        return [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "How many?"}]}]

    images = [np.zeros((2, 2)), np.ones((2, 2)), np.zeros((2, 2)), torch.zeros(2, 2), torch.zeros(2, 2), "zeros"]
    ids = [[0] * n for n in (1, 1, 2, 1, 2, 7)]
    assert length_penalty_reward(["x"] * 6, prompts=[prompt(image) for image in images], completion_ids=ids) == [
        *(0.5, 0.0, -0.5, 0.5, -0.5, 0.0)
    ]


def test_length_penalty_prompts_with_keys_of_several_types_are_grouped():
    prompts = [{"a": 1, 2: "b"}, {2: "b", "a": 1}, {"a": 1, 2: "c"}, {"a": 1, "2": "b"}]
    ids = [[0] * n for n in (1, 2, 5, 5)]
    assert length_penalty_reward(["x"] * 4, prompts=prompts, completion_ids=ids) == [0.5, -0.5, 0.0, 0.0]


def test_length_penalty_prompts_as_tensor_rows_are_grouped():
    torch = pytest.importorskip("torch")
    prompts, ids = torch.tensor([[1, 2], [1, 2], [1, 3]]), [[0], [0, 0], [0]]
    assert length_penalty_reward(["x"] * 3, prompts=prompts, completion_ids=ids) == [0.5, -0.5, 0.0]
