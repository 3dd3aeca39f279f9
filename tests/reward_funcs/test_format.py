"""Format rewards: the holes that must be closed, the modes, prefilled prompts, code blocks, steps, hostile text."""

import itertools
import pickle
import re

import pytest

import reward_funcs
from reward_funcs.format import (
    CodeBlockFormatReward,
    ReasoningStepsReward,
    TagCountReward,
    ThinkAnswerFormatReward,
    ThinkFormatReward,
    code_block_format_reward,
    reasoning_steps_reward,
    tag_count_reward,
    think_answer_format_reward,
    think_format_reward,
)

STRICT = "<think>\n2 + 2\n</think>\n<answer>\n4\n</answer>"
LENIENT_ANSWER = ThinkAnswerFormatReward("lenient")
GRADED_ANSWER = ThinkAnswerFormatReward("graded")
REWARDS = [
    think_format_reward,
    think_answer_format_reward,
    tag_count_reward,
    code_block_format_reward,
    reasoning_steps_reward,
    ThinkFormatReward("strict", allow_empty=True, think_prefilled="auto"),
    GRADED_ANSWER,
    CodeBlockFormatReward(None, exactly_one=False, name="any_code"),
]
HOSTILE = [
    "",
    " \n\t",
    "\x00" * 1000,
    "\ud800<think>\udfff</think>\ud800",
    "<think>" * 20_000,
    "</think>" * 20_000,
    "<think></think><answer></answer>" * 5_000,
    "<" * 100_000,
    "<think>" + " " * 100_000,
    "<think>a</think>" + "\u200b" * 100_000,
    "<think>a</think>b" + "</s>" * 25_000,
    "</s> " * 20_000 + "x",
    "```" * 30_000,
    "```python\n" * 10_000,
    "~" * 100_000,
    "`" * 100_000 + "\n" + "`" * 99_999,
    "Step " * 20_000,
    "Step" + " " * 100_000 + "1",
    "1" * 100_000,
    "* " * 50_000,
    "#>*_ " * 20_000,
    "\n" * 100_000,
    "- \n" * 30_000,
]


def score(reward, text, **columns):
    """The reward of a text, the same as a message and as content blocks."""
    shapes = [
        text,
        [{"role": "assistant", "content": text}],
        [{"role": "assistant", "content": [{"type": "text", "text": text}]}],
        [
            {"role": "assistant", "content": "", "tool_calls": [{}]},
            {"role": "tool", "content": "<think>"},
            {"role": "assistant", "content": text},
        ],
    ]
    rewards = [reward([shape], **columns)[0] for shape in shapes]
    assert len(set(rewards)) == 1, rewards
    return rewards[0]


@pytest.mark.parametrize(
    "text",
    [
        "<think>2 + 2</think>4",
        "<think>\n2 + 2\n</think>\n\n4",
        "\n <think>2 + 2</think> 4",
        "<think>想一想</think>四",
        "<think>2</think><answer>4</answer>",
        "<think>2</think>So it is <answer>4</answer>, as said.",
        "<think>2</think>∅",
        "<think>2</think>+",
        "<think>a < b and b > c</think>yes",
        "<think>2 + 2</think>4<|im_end|>",
        "<think>2 + 2</think>4</s>\n<pad><pad>",
        STRICT,
    ],
)
def test_think_format_well_formed_scores_one(text):
    assert score(think_format_reward, text) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4",
        "<think></think>4",
        "<think> \n\t</think>4",
        "<think>\u200b\u200d\ufeff\u00ad\u3164\u2800</think>4",
        "<think>...</think>4",
        "<think>— … !?</think>4",
        "<think></think>",
        "<think>a</think>",
        "<think>a</think> \n\u200b",
        "<think>a</think>...",
        "<think>a</think><|im_end|>",
        "<think>a</think><answer></answer>",
        "<think>a</think><answer> \u200b</answer>",
        "<think>a</think><answer>...</answer>",
        "<think>a</think>b</think>c",
        "<think>a</think><think>b</think>c",
        "<think><think>a</think></think>b",
        "<think>a<think>b</think>c",
        "<think>a",
        "a</think>b",
        "</think>a<think>b",
        "Sure. <think>a</think>b",
        "<think>a</think><answer>1</answer><answer>2</answer>",
        "<think>a</think><answer>1<answer>2</answer></answer>",
        "<think>a</think><answer>1",
        "<think>a</think>1</answer>",
        "<think>a</think></answer>1<answer>",
        "<think>a <answer>1</answer></think>",
        "<think>a <answer>1</answer></think>1",
        "<answer>1</answer><think>a</think>",
        "<THINK>a</THINK>b",
        "<think >a</think>b",
    ],
)
def test_think_format_hole_scores_zero(text):
    assert score(think_format_reward, text) == 0.0
    assert score(ThinkFormatReward("strict"), text) == 0.0
    assert score(ThinkFormatReward(require_answer=True), text) == 0.0
    assert score(think_answer_format_reward, text) == 0.0
    assert score(GRADED_ANSWER, text) < 1.0
    assert score(ThinkFormatReward("graded"), text) < 1.0


def test_think_format_strict_wants_newlines_around_the_think_tags():
    strict = ThinkFormatReward("strict")
    texts = ["<think>\na\n</think>\nb", "<think>a\n</think>\nb", "<think>\na</think>\nb", "<think>\na\n</think>b"]
    assert strict(texts) == [1.0, 0.0, 0.0, 0.0]
    assert strict(["\n<think>\na\n</think>\nb", "<think>\na\n</think>\n\nb"]) == [0.0, 1.0]
    assert strict([STRICT]) == [1.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (STRICT, 1.0),
        (STRICT + "<|im_end|>", 1.0),
        ("<think>\n\n2\n\n</think>\n<answer>\n\n4\n\n</answer>", 1.0),
        (" " + STRICT, 0.0),
        (STRICT + "\n", 0.0),
        (STRICT + "\nMore.", 0.0),
        (STRICT.replace("\n<answer>", "\n\n<answer>"), 0.0),
        (STRICT.replace("\n", "\r\n"), 0.0),
        (STRICT.replace("2 + 2", ""), 0.0),
        (STRICT.replace("\n4", ""), 0.0),
        (STRICT + "\n" + STRICT, 0.0),
        ("<think>2</think><answer>4</answer>", 0.0),
    ],
)
def test_think_answer_format_strict_is_exact(text, expected):
    assert score(think_answer_format_reward, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>2</think><answer>4</answer>", 1.0),
        ("\n<think>2</think> \n\n <answer>4</answer>\n", 1.0),
        ("<think>2</think><answer>4</answer>\n</s>", 1.0),
        ("<think>2</think>So <answer>4</answer>", 0.0),
        ("<think>2</think><answer>4</answer>.", 0.0),
        ("<think>2</think>4", 0.0),
        ("<answer>4</answer>", 0.0),
    ],
)
def test_think_answer_format_lenient_frees_whitespace_only(text, expected):
    assert score(LENIENT_ANSWER, text) == expected
    assert score(ThinkFormatReward(require_answer=True), text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0.0),
        ("<think>", 0.25),
        ("<think>a</think>", 0.5),
        ("<think>a</think>b", 0.5),
        ("<answer>4</answer>", 0.5),
        ("<think>a</think><answer>4", 0.75),
        ("<think>a</think><answer>4</answer>", 1.0),
        ("<think>a</think><answer>4</answer>!", 0.75),
        ("<think>a</think>so<answer>4</answer>", 0.75),
        ("So <think>a</think><answer>4</answer>", 0.75),
        ("<think></think><answer>4</answer>", 0.5),
        ("<think>a</think><answer></answer>", 0.5),
        ("<think></think><answer></answer>", 0.0),
        ("<think>a</think>b</think><answer>4</answer>", 0.75),
        ("<think>a</think><answer>4</answer><answer>5</answer>", 0.5),
        ("</think><think>a", 0.0),  # </think> is out of order, and <think> has it before
        ("<think>a</think></answer>4<answer>", 0.5),  # so it is with the answer's tags
    ],
)
def test_think_answer_format_graded_pays_a_quarter_a_tag(text, expected):
    assert score(GRADED_ANSWER, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", 0.0),
        ("<think>a", 0.5),
        ("a</think>b", 0.5),
        ("<think>a</think>", 0.5),
        ("<think>a</think>b", 1.0),
        ("<think></think>b", 0.0),
        ("<think>a</think><answer>1</answer><answer>2</answer>", 0.5),
        ("<think>a</think><answer>1</answer>", 1.0),
    ],
)
def test_think_format_graded_pays_a_half_a_think_tag(text, expected):
    assert score(ThinkFormatReward("graded"), text) == expected


@pytest.mark.parametrize("require_answer", [False, True])
@pytest.mark.parametrize("allow_empty", [False, True])
def test_modes_agree_on_every_short_sequence(require_answer, allow_empty):
    options = {"require_answer": require_answer, "allow_empty": allow_empty}
    pieces = ["<think>", "</think>", "<answer>", "</answer>", "\nx\n"]
    texts = ["".join(text) for n in range(7) for text in itertools.product(pieces, repeat=n)]
    graded, lenient, strict = (ThinkFormatReward(mode, **options)(texts) for mode in ("graded", "lenient", "strict"))
    num_tags = 4 if require_answer else 2
    assert set(graded) <= {i / num_tags for i in range(num_tags + 1)}
    assert [reward == 1.0 for reward in graded] == [reward == 1.0 for reward in lenient]
    assert all(loose >= exact for loose, exact in zip(lenient, strict, strict=True))
    assert 0 < sum(lenient) < len(texts)


def test_lenient_agrees_with_a_reference_pattern_on_every_short_sequence():
    pieces = ["<think>", "</think>", "<answer>", "</answer>", "x", " "]
    texts = ["".join(text) for n in range(7) for text in itertools.product(pieces, repeat=n)]
    inner = r"[^<]*x[^<]*"
    pattern = re.compile(rf"\s*<think>{inner}</think>\s*<answer>{inner}</answer>\s*")
    assert LENIENT_ANSWER(texts) == [float(bool(pattern.fullmatch(text))) for text in texts]


def test_allow_empty_accepts_the_empty_block_but_no_empty_answer():
    lenient = ThinkFormatReward(allow_empty=True)
    assert lenient(["<think></think>4", "<think>\n\n</think>\n\n4", "<think></think>", "4"]) == [1.0, 1.0, 0.0, 0.0]
    strict = ThinkAnswerFormatReward(allow_empty=True)
    assert strict([STRICT.replace("2 + 2", ""), STRICT.replace("4", "")]) == [1.0, 0.0]
    # one newline is not two
    assert strict(["<think>\n</think>\n<answer>\n4\n</answer>"]) == [0.0]


def test_think_prefilled_completion_starts_inside_the_block():
    lenient, strict = ThinkFormatReward(think_prefilled=True), ThinkAnswerFormatReward(think_prefilled=True)
    assert score(lenient, "2 + 2</think>4") == 1.0
    assert score(lenient, "\n2 + 2\n</think>\n4") == 1.0
    assert score(lenient, "<think>2 + 2</think>4") == 0.0
    assert score(lenient, "</think>4") == 0.0
    assert score(lenient, "4") == 0.0
    assert score(strict, STRICT.removeprefix("<think>\n")) == 1.0
    assert score(strict, STRICT) == 0.0
    assert score(ThinkAnswerFormatReward("graded", think_prefilled=True), "2") == 0.25


def test_think_prefilled_auto_reads_each_prompt():
    lenient = ThinkFormatReward(think_prefilled="auto")
    prompts = ["Q<think>\n", "Q<think>", "Q", "<think> Q"]
    assert lenient(["a</think>b"] * 4, prompts=prompts) == [1.0, 1.0, 0.0, 0.0]
    assert lenient(["<think>a</think>b"] * 4, prompts=prompts) == [0.0, 0.0, 1.0, 1.0]
    assert lenient(["<think>a</think>b", "a</think>b"]) == [1.0, 0.0]
    messages = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "<think>\n"}]
    assert lenient(["a</think>b"] * 2, prompts=[messages, messages[:1]]) == [1.0, 0.0]
    # the newline must come from the prompt or from the completion
    strict = ThinkFormatReward("strict", think_prefilled="auto")
    assert strict(["a\n</think>\nb"] * 2, prompts=prompts[:2]) == [1.0, 0.0]


def test_think_prefilled_false_ignores_the_prompt():
    assert think_format_reward(["a</think>b"], prompts=["Q<think>\n"]) == [0.0]


@pytest.mark.parametrize("prefilled", [False, True, "auto"])
def test_reasoning_field_counts_as_a_block_however_it_was_opened(prefilled):
    reward = ThinkFormatReward(think_prefilled=prefilled)
    message = {"role": "assistant", "reasoning_content": "2 + 2", "content": "4"}
    assert reward([[message]], prompts=["Q<think>\n"]) == [1.0]
    assert reward([[message | {"content": ""}]], prompts=["Q<think>\n"]) == [0.0]


def test_think_format_none_content_scores_zero():
    assert think_format_reward([None, [], [{"role": "assistant", "content": None}]]) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("text", "reason"), [("4", "missing_think_open"), ("<think></think>4", "empty_think")])
def test_think_format_reason_is_logged(text, reason):
    logged = {}
    think_format_reward([text], log_extra=logged.__setitem__)
    assert logged == {"think_format_reward/reason": [reason], "think_format_reward/answer": [None]}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"mode": "loose"}, "'strict', 'lenient', 'graded'.*'loose'"),
        ({"think_prefilled": "yes"}, "think_prefilled.*'auto'.*'yes'"),
        ({"think_prefilled": 1}, "think_prefilled"),
    ],
)
def test_think_format_bad_setting_raises(options, named):
    with pytest.raises(ValueError, match=named):
        ThinkFormatReward(**options)
    with pytest.raises(ValueError, match=named):
        ThinkAnswerFormatReward(**options)


def test_think_format_no_completion_raises():
    with pytest.raises(TypeError, match="completion"):
        ThinkFormatReward(think_prefilled=True)([4])


def test_tag_count_pays_for_each_tag_that_occurs_once():
    tags = ["<think>\na\n</think>\nb", "<think>a</think>", STRICT, STRICT + STRICT, "<think>\n" + STRICT]
    assert tag_count_reward(tags) == [0.5, 0.0, 1.0, 0.0, 0.75]
    assert score(TagCountReward(("[A]",)), "x[A]y") == 1.0


@pytest.mark.parametrize("tags", ["<think>", (), ("<think>", ""), (1,)])
def test_tag_count_bad_tags_raise(tags):
    with pytest.raises(ValueError, match="tags must be"):
        TagCountReward(tags)


BLOCK = "```python\nprint(4)\n```"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BLOCK, 1.0),
        (f"So:\n\n{BLOCK}\nDone.", 1.0),
        ("```Py\nprint(4)\n```", 1.0),
        ("```python3 title=a.py\nprint(4)\n```", 1.0),
        ("~~~python\nprint(4)\n~~~", 1.0),
        ("````python\nx = '''\n```\n'''\n````", 1.0),
        ("1. So:\n    ```python\n    print(4)\n    ```", 1.0),
        ("```python\r\nprint(4)\r\n```\r\n", 1.0),
        (f"<think>a</think><answer>{BLOCK}</answer><|im_end|>", 1.0),
        (f"<think>{BLOCK}</think>{BLOCK}", 1.0),
        (f"{BLOCK}\n```text\n4\n```", 1.0),
        (f"{BLOCK}\n{BLOCK}", 0.0),
        (f"<think>{BLOCK}</think>4", 0.0),
        ("```python\nprint(4)", 0.0),
        (f"{BLOCK}\n```python\nprint(4)", 0.0),
        ("```python\nprint(4)\n~~~", 0.0),
        ("```python\n \n```", 0.0),
        ("```python```", 0.0),
        ("```python print(4)```", 0.0),
        ("```\nprint(4)\n```", 0.0),
        ("```javascript\nprint(4)\n```", 0.0),
        ("print(4)", 0.0),
        ("", 0.0),
    ],
)
def test_code_block_format_python(text, expected):
    assert score(code_block_format_reward, text) == expected


def test_code_block_format_any_language_and_at_least_one():
    texts = ["```\nx\n```", "```rust\nx\n```", f"{BLOCK}\n{BLOCK}", "x"]
    assert CodeBlockFormatReward(None)(texts) == [1.0, 1.0, 0.0, 0.0]
    assert CodeBlockFormatReward(None, exactly_one=False)(texts) == [1.0, 1.0, 1.0, 0.0]
    assert CodeBlockFormatReward("C++")(["```cpp\nx\n```", "```c\nx\n```"]) == [1.0, 0.0]


def test_code_block_format_language_column_is_read_by_row():
    reward = CodeBlockFormatReward(language_column="lang")
    texts = [BLOCK, BLOCK, BLOCK, "```rs\nx\n```"]
    assert reward(texts, lang=["py", "rust", None, "rust"]) == [1.0, 0.0, None, 1.0]
    with pytest.raises(ValueError, match=r"'lang'.*solution"):
        reward(texts, solution=["4"] * 4)
    with pytest.raises(ValueError, match="language must be"):
        CodeBlockFormatReward("")


@pytest.mark.parametrize(
    ("text", "num_steps"),
    [
        ("Step 1: Add.\nStep 2: Halve.\nStep 3: Square.", 3),
        ("1. Add.\n2) Halve.\n(3) Square.", 3),
        ("- Add.\n* Halve.\n• Square.", 3),
        ("First, add.\nThen, halve.\nFinally: square.", 3),
        ("<think>Step 1: Add.\nStep 2: Halve.</think><answer>4</answer>", 2),
        ("### Step 1: Add\n**Step 2:** Halve\n> 3. Square", 3),
        ("**Step 1:**\n\nAdd.\n\n**Step 2:**\n\nHalve.", 2),
        ("1. Add.\n2. Add.\n3. add!", 1),
        ("1.\n2.\n3.", 0),
        ("- ...\n- ...\n- !", 0),
        ("Step 1: Step 2: Step 3:", 1),
        ("So first, add, then 2. halve - and square", 0),
        ("3.14 is pi\n2024. A year\n---\n**bold**", 0),
        ("Firstly speaking\nThen we halve", 0),
        ("", 0),
    ],
)
def test_reasoning_steps_counts_distinct_marked_lines(text, num_steps):
    assert score(ReasoningStepsReward(num_steps=4), text) == num_steps / 4


def test_reasoning_steps_is_capped_at_one():
    assert reasoning_steps_reward(["\n".join(f"{i}. Do {i}." for i in range(9))]) == [1.0]
    with pytest.raises(ValueError, match=r"num_steps=0: .*at least 1"):
        ReasoningStepsReward(0)


@pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: f"{reward.__name__}-{type(reward).__name__}")
def test_format_rewards_hostile_text_finishes_in_range(reward):
    rewards = reward(HOSTILE, prompts=["<think>"] * len(HOSTILE))
    assert len(rewards) == len(HOSTILE)
    assert all(isinstance(value, float) and 0.0 <= value <= 1.0 for value in rewards)


@pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: f"{reward.__name__}-{type(reward).__name__}")
def test_format_rewards_pickled_and_reordered_give_the_same(reward):
    texts = [STRICT, "<think>a</think>b", BLOCK, "1. Add.\n2. Halve.", "", "<think>a</think><answer>4</answer>"]
    rewards = reward(texts)
    assert pickle.loads(pickle.dumps(reward))(texts) == rewards
    assert reward(texts[::-1]) == rewards[::-1]
    assert [reward([text])[0] for text in texts] == rewards
    assert reward([]) == []


def test_format_rewards_names_are_public_and_settable():
    for reward in REWARDS[:5]:
        assert getattr(reward_funcs, reward.__name__) is reward
    assert ThinkFormatReward(name="shape").__name__ == "shape"
    assert ThinkAnswerFormatReward(name="shape").__name__ == "shape"
