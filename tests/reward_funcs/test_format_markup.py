"""Format rewards: markup that shows nothing, tags written otherwise, fences in lists, and prompts that are none."""

import pytest

from reward_funcs._tags import says_something
from reward_funcs.format import (
    CodeBlockFormatReward,
    ThinkFormatReward,
    code_block_format_reward,
    think_answer_format_reward,
    think_format_reward,
)

STRICT = "<think>\n2 + 2\n</think>\n<answer>\n4\n</answer>"
EMPTY = (
    *(
        "-",
        "—",
        "$$",
        "$ $",
        "**",
        "****",
        "```",
        "```\n```",
        "~~",
        "|",
        "⋯",
        "…",
        "#",
        "\\",
        "\\\\",
        "$\\quad$",
        "()",
        "!?",
    ),
    *(
        r"\boxed{}",
        r"\boxed{\text{ }}",
        r"\(\)",
        r"\ldots",
        r"\begin{align}\end{align}",
        r"\hspace{2cm}",
        r"\phantom{42}",
    ),
    *("<br>", "<br/>", "<p></p>", "<!-- 4 -->", '<span class="answer"></span>', "&nbsp;", "&#8203;", "\u3164"),
)
SHOWN = (
    "4",
    "x",
    "+",
    "<",
    "=",
    "∅",
    "∞",
    r"\infty",
    r"$\emptyset$",
    "**4**",
    "<b>4</b>",
    "四",
    "a < b",
    r"\boxed{+}",
    "&lt;",
)


@pytest.mark.parametrize("text", EMPTY)
def test_think_format_answer_of_markup_alone_scores_zero(text):
    texts = [f"<think>1</think>{text}", f"<think>1</think><answer>{text}</answer>", f"<think>{text}</think>4"]
    assert think_format_reward(texts) == [0.0, 0.0, 0.0]
    assert ThinkFormatReward(allow_empty=True)(texts[2:]) == [1.0]


@pytest.mark.parametrize("text", SHOWN)
def test_think_format_answer_that_shows_scores_one(text):
    assert think_format_reward([f"<think>1</think>{text}", f"<think>1</think><answer>{text}</answer>"]) == [1.0, 1.0]


def test_says_something_hostile_markup_is_nothing():
    for unit in ("<a", "<a ", "&#1", "\\text{", "\\begin{a", "\\", "-", "$", "<br>", "\\phantom{" + "a" * 300 + "}"):
        text = unit * (100_000 // len(unit))
        assert says_something(text + " 4", signs=True)
    assert not says_something("-" * 100_000 + "<br>" * 25_000, signs=True)


@pytest.mark.parametrize("tag", ["THINK", "Think", "thinking", "Thinking", " think", "think "])
def test_think_format_tag_written_otherwise_is_one_too_many(tag):
    for text in (f"<{tag}>a</{tag}>4", f"</{tag}>4", f"＜{tag}＞4"):
        assert think_format_reward([f"<think>1</think>{text}"]) == [0.0], text
    assert think_format_reward([f"<{tag}>1</{tag}>4"]) == [0.0]


def test_think_format_answer_tag_written_otherwise_is_no_answer_tag():
    texts = ["<think>1</think><Answer>4</Answer>", "<think>1</think><ANSWER></ANSWER>4", "<think>1</think>＜answer＞4"]
    assert think_format_reward(texts) == [0.0, 0.0, 0.0]
    assert ThinkFormatReward("graded", require_answer=True)([texts[0]]) == [0.5]
    # words that begin like the tags are none of them
    assert think_format_reward(["<think>1</think><thinker>4</thinker>", "<think>1</think><answers>4"]) == [1.0, 1.0]


@pytest.mark.parametrize("end", ["", "<|im_end|>", "<|im_end|>\n", "\n<|im_end|>", "\n</s> <pad>\n"])
def test_think_answer_format_end_tokens_do_not_matter(end):
    assert think_answer_format_reward([STRICT + end]) == [1.0]


@pytest.mark.parametrize("prompt", [5, ["x<think>"], {"role": "user"}, [5]])
def test_think_prefilled_auto_prompt_that_is_none_raises(prompt):
    with pytest.raises(ValueError, match="prompts must hold texts or lists of messages"):
        ThinkFormatReward(think_prefilled="auto")(["a</think>b"], prompts=[prompt])


def test_think_prefilled_auto_empty_prompt_opens_nothing():
    reward = ThinkFormatReward(think_prefilled="auto")
    assert reward(["<think>a</think>b"] * 3, prompts=[None, "", []]) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- ```python\n  print(1)\n  ```", 1.0),
        ("1. Run\n2. ```python\n   print(1)\n   ```", 1.0),
        ("> ```python\n> print(1)\n> ```", 1.0),
        ("> - ```python\n> print(1)\n> ```", 1.0),
        ("> ```python\n>\n> ```", 0.0),
        ("```python\ntext = '''\n> ```\n- ```\n'''\n```", 1.0),
        ("```python\n# to do\n```", 0.0),
        ("```python\n# to do\n\n   # later\n```", 0.0),
        ("```python\n# print it\nprint(1)\n```", 1.0),
        ("```python3.11\nprint(1)\n```", 1.0),
        ("```python3\nprint(1)\n```", 1.0),
        ("```pycon\n>>> print(1)\n```", 0.0),
        ("```python\nprint(1)\n```<|im_end|>", 1.0),
    ],
)
def test_code_block_fences_and_comments(text, expected):
    assert code_block_format_reward([text]) == [expected]


@pytest.mark.parametrize(
    ("language", "code", "expected"),
    [
        ("c", "#include <stdio.h>", 1.0),
        ("cpp", "// to do", 0.0),
        ("sql", "-- to do", 0.0),
        ("sql", "-- all\nselect 1", 1.0),
        ("bash", "# to do", 0.0),
        ("latex", "% to do", 0.0),
        ("haskell", "main = print 1", 1.0),
    ],
)
def test_code_block_comments_by_language(language, code, expected):
    assert CodeBlockFormatReward(language)([f"```{language}\n{code}\n```"]) == [expected]


@pytest.mark.parametrize("unit", ["> ", "- ", "1. ", ">", "- > ", " " * 50 + "-"])
def test_code_block_hostile_prefixes_score_zero(unit):
    text = unit * (100_000 // len(unit))
    assert code_block_format_reward([text, f"{text}```python\n{text}", f"```python\nx\n{text}```"]) == [0.0, 0.0, 0.0]
