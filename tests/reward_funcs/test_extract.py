"""Where the answer stands: shapes of completions, reasoning, boxes, tags, stated answers, numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_funcs.extract import (
    MAX_RUN,
    after_think,
    answer_tag,
    boxed_run,
    completion_text,
    final_answer,
    last_boxed,
    last_number,
    several_answer_tags,
    without_end_tokens,
)

LONG = 100_000
READERS = (after_think, last_boxed, boxed_run, answer_tag, several_answer_tags, final_answer, last_number)

HOSTILE = [
    "", "\0", "\ud800", "\udfff5", "\0" * LONG, " " * LONG, "\n" * LONG, "\\" * LONG, "a" * LONG, "9" * LONG,
    "{" * LONG, "}" * LONG, "$" * (LONG + 1), r"\(" * (LONG // 2), r"\[" * (LONG // 2), "-" * LONG, "1," * LONG,
    r"\boxed{" * 20_000, r"\boxed{5}" * 20_000, r"\boxed{5" * 20_000, r"\boxed" * 20_000, r"\boxed {" * 20_000,
    "<think>" * 20_000, "</think>" * 20_000, "<think></think>" * 10_000, "<answer>" * 20_000, "</answer>" * 20_000,
    "answer is " * 20_000, "answer" + " " * LONG, "answer:" * 20_000, "answer is $" * 10_000, "answer" + "*" * LONG,
    "1/" * LONG, "1.1." * 25_000, "\\frac{1}{" * 20_000, "1,000" * 20_000, "1e" * 50_000, "%" * LONG,
    "5" + "%" * LONG, r"\boxed{5}" + " or " * 25_000 + r"\boxed{6}", r"\boxed{1}" + "\\quad" * 20_000 + r"\boxed{2}",
    "{\\" * 50_000, "<answer>" + "x" * LONG + "</answer>", r"\boxed{" + "{}" * 50_000 + "}", "5" + " " * LONG,
    "٥" * LONG,
]  # fmt: skip


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_reader_hostile_text_is_finished(reader: Any) -> None:
    for text in HOSTILE:
        reader(text)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@given(
    st.lists(
        st.sampled_from(
            [
                *("<think>", "</think>", "<answer>", "</answer>", "answer is ", "Answer: ", r"\boxed{", "{", "}", "\\"),
                *(
                    "$",
                    "$$",
                    r"\(",
                    r"\)",
                    "5",
                    "-",
                    ",",
                    ".",
                    "/",
                    "%",
                    " ",
                    "\n",
                    "or",
                    r"\frac",
                    "x",
                    "\0",
                    "\ud800",
                ),
            ]
        ),
        max_size=40,
    ).map("".join)
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_reader_any_text_raises_nothing(reader: Any, text: str) -> None:
    reader(text)


# completions

CALL = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("5", "5"), ("", ""), (None, ""), ([], ""), ({"content": "5"}, "5"), ({"content": None}, ""),
        ([{"role": "assistant", "content": "5"}], "5"), ([{"content": "5"}], "5"),
        (({"role": "assistant", "content": "5"},), "5"), ([{"role": "assistant", "content": None}], ""),
        ([{"role": "assistant"}], ""), ([{"role": "user", "content": "5"}], ""),
        ([{"role": "assistant", "content": "4"}, {"role": "assistant", "content": "5"}], "5"),
        ([{"role": "assistant", "content": "5"}, {"role": "user", "content": "thanks"}], "5"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]}], "42"),
        ([{"role": "assistant", "content": [{"type": "image"}, {"type": "text", "text": "5"}, "!"]}], "5!"),
        ([{"role": "assistant", "content": []}], ""),
        ([CALL, {"role": "tool", "name": "f", "content": "7"}, {"role": "assistant", "content": "5"}], "5"),
        ([{**CALL, "content": None}, {"role": "tool", "content": "7"}], ""),
        ([{"role": "assistant", "content": "5", "reasoning_content": "4?"}], "<think>\n4?\n</think>\n5"),
        ([{"role": "assistant", "content": "5", "thinking": "4?"}], "<think>\n4?\n</think>\n5"),
        ([{"role": "assistant", "content": "<think>a</think>5", "thinking": "a"}], "<think>a</think>5"),
    ],
)  # fmt: skip
def test_completion_text_every_shape_gives_the_last_assistant_text(completion: Any, text: str) -> None:
    assert completion_text(completion) == text


@pytest.mark.parametrize("completion", [5, 5.0, b"5", ["5"], [None], [{"role": "assistant", "content": 5}]])
def test_completion_text_other_type_is_refused(completion: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a text or a list"):
        completion_text(completion)


# reasoning


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("5", "5"), ("", ""), ("<think>4</think>5", "5"), ("4</think>5", "5"), ("<think>5", ""),
        ("<think></think>", ""), ("<think>a</think>b<think>c</think>5", "5"), ("<think>a</think>5<think>c", "5"),
        ("a<think>b", "a"), ("<think>a<think>b</think>c</think>5", "5"), ("</think></think>5", "5"),
        ("<Think>4</Think>", "<Think>4</Think>"), ("<think >4</think >5", "<think >4</think >5"), ("</think>", ""),
        ("a</think>\n\n5", "\n\n5"),
    ],
)  # fmt: skip
def test_after_think_is_what_stands_behind_the_last_block(text: str, visible: str) -> None:
    assert after_think(text) == visible


@given(st.text(alphabet="ab<>/", max_size=30))
@settings(deadline=None, derandomize=True)
def test_after_think_of_its_own_result_is_itself(text: str) -> None:
    assert after_think(after_think("<think>" + text + "</think>x" + text)) == "x" + text
    assert after_think("<think>" + text) == after_think("")


# boxes


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{5}", "5"), (r"\boxed{4} hmm, actually \boxed{5}", "5"), (r"\boxed{5} or \boxed{6", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"), (r"\boxed{\{1,2\}}", r"\{1,2\}"), (r"\boxed{a\}b}", r"a\}b"),
        (r"\fbox{5}", "5"), (r"\boxed {5}", "5"), ("\\boxed\n{5}", "5"), (r"\boxed{ 5 }", "5"), (r"\boxed{}", ""),
        (r"\boxed{\text{a {b} c}}", r"\text{a {b} c}"), ("\\boxed{5\\\\}", "5\\\\"), ("\\boxed{1\n2}", "1\n2"),
        (r"\boxed{5}}", "5"), (r"{\boxed{5}", "5"), (r"}}}\boxed{5}{{{", "5"), (r"$$\boxed{5}.$$", "5"),
        (r"\boxed{\boxed{5}}", "5"), (r"\boxed{x=\boxed{5}}", "5"),
    ],
)  # fmt: skip
def test_last_boxed_is_the_content_of_the_last_closed_box(text: str, content: str) -> None:
    # of nested boxes the inner one is what the writer boxed last
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    "text", ["", "5", r"\boxed", r"\boxed{", r"\boxed{5", r"\boxed 5", "boxed{5}", r"\boxed{5\}", r"\boxes{5}"]
)
def test_last_boxed_without_a_closed_box_is_none(text: str) -> None:
    assert last_boxed(text) is None
    assert boxed_run(text).contents == []


@pytest.mark.parametrize(
    "joint",
    [
        *("", " ", "\n\n", ",", ", ", " or ", " and ", ", or ", ", and ", "$ or $", "$, $", r"\quad", r"\text{ or }"),
        *(r" \text{and} ", r"\) and \(", ";", r",\ "),
    ],
)
def test_boxed_run_boxes_joined_by_or_and_commas_are_one_answer(joint: str) -> None:
    assert boxed_run(rf"first \boxed{{3}}: then \boxed{{4}}{joint}\boxed{{5}} done").contents == ["4", "5"]


@pytest.mark.parametrize("joint", [". ", " hmm, actually ", " so ", "=", "/", " or maybe ", "+", "nor", " xor ", " = "])
def test_boxed_run_other_words_between_leave_the_last_box(joint: str) -> None:
    assert boxed_run(rf"\boxed{{4}}{joint}\boxed{{5}}").contents == ["5"]


def test_boxed_run_ends_with_last_boxed_and_keeps_the_order() -> None:
    text = ", ".join(rf"\boxed{{{k}}}" for k in range(200))
    assert boxed_run(text).contents == [str(k) for k in range(200 - MAX_RUN, 200)]
    assert last_boxed(text) == "199"


# tags


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("<answer>5</answer>", "5"), ("a <answer>\n5\n</answer> b", "5"), ("<answer></answer>", ""),
        ("<answer>5", None), ("5</answer>", None), ("</answer>5<answer>", None), ("5", None),
        ("<ANSWER>5</ANSWER>", None), ("<answer>4</answer><answer>5</answer>", None),
        ("<answer><answer>5</answer></answer>", None), ("<answer>4<answer>5</answer>", None),
        ("<answer>5</answer></answer>", None),
    ],
)  # fmt: skip
def test_answer_tag_is_the_content_of_the_single_tag(text: str, content: str | None) -> None:
    assert answer_tag(text) == content


@pytest.mark.parametrize(
    ("text", "several"),
    [
        *(("", False), ("<answer>5</answer>", False), ("<answer>5", False), ("5</answer>", False)),
        *(("<answer>4</answer><answer>5</answer>", True), ("<answer><answer>5</answer></answer>", True)),
        *(("<answer>4<answer>5</answer>", True), ("<answer>4</answer>5</answer>", True)),
    ],
)
def test_several_answer_tags_counts_closed_and_nested_ones(text: str, several: bool) -> None:
    assert several_answer_tags(text) is several


# stated answers


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        *(("The final answer is $5$.", "5"), ("The final answer is $\\frac12$. I hope it is correct.", r"\frac12")),
        *(("Answer: $5$", "5"), ("**Answer:** $5$", "5"), ("**Answer**: $5$", "5"), ("ANSWER: $5$", "5")),
        *((r"Final answer: \(5\)", "5"), (r"Answer: \[5\]", "5"), ("Answer: $$5$$", "5"), ("answer is\n$$5$$", "5")),
        *(("Answer: $4$\nAnswer: $5$", "5"), ("the answer is: $5$ and $6$", "5 and 6")),
    ],
)
def test_final_answer_maths_between_delimiters_is_read_in_both_modes(text: str, stated: str) -> None:
    assert final_answer(text) == stated
    assert final_answer(text, delimited=True) == stated


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("Answer: 5", "5"), ("The answer is 5.", "5"), ("**Answer:** 42 apples.", "42 apples"),
        ("Answer: **5**", "5"), ("The answer is 3.5. So there.", "3.5"),
        ("Answer: a = 5, b = 6.\nmore", "a = 5, b = 6"),
    ],
)  # fmt: skip
def test_final_answer_rest_of_the_line_only_without_delimited(text: str, stated: str) -> None:
    assert final_answer(text) == stated
    assert final_answer(text, delimited=True) is None


@pytest.mark.parametrize("text", ["", "5", "answers: 5", "an answer", "Answer:", "Answer:   ", "the answer"])
def test_final_answer_without_a_statement_is_none(text: str) -> None:
    assert final_answer(text) is None
    assert final_answer(text, delimited=True) is None


def test_final_answer_later_words_about_the_answer_do_not_hide_it() -> None:
    assert final_answer("The final answer is $5$. I hope this answer is right.", delimited=True) == "5"


# numbers


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", "5"), ("a 5 b", "5"), ("3 then 5", "5"), ("x=-3", "-3"), ("(-3)", "-3"), ("-3", "-3"),
        ("it is 5.", "5"), ("5-3", "3"), ("5 - 3", "3"), ("$1,234.50.", "1,234.50"), ("12,345,678", "12,345,678"),
        ("1,23", "23"), ("1.5e-3", "1.5e-3"), ("3/4", "3/4"), ("3 / 4 of it", "3 / 4"), ("50%", "50%"),
        (r"50\%", r"50\%"), (".5", ".5"), (r"\frac{1}{2}", r"\frac{1}{2}"), (r"-\frac{1}{2}", r"-\frac{1}{2}"),
        (r"10\,000", r"10\,000"), ("5th", "5"), (r"1{,}234", r"1{,}234"), ("5\0", "5"), ("5" + " " * 20_000, "5"),
        ("x" * 20_000 + "5", "5"), ("1. 2.", "2"),
    ],
)  # fmt: skip
def test_last_number_is_the_last_one_as_written(text: str, number: str) -> None:
    assert last_number(text) == number


@pytest.mark.parametrize("text", ["", "no number", "٥", "½", "\0", "-", ".", "x" * 20_000])
def test_last_number_without_digits_is_none(text: str) -> None:
    assert last_number(text) is None


def test_last_number_typographic_minus_belongs_to_the_number() -> None:
    assert last_number("so the change is \u22127 degrees") in ("\u22127", "-7")


@given(st.integers(-(10**12), 10**12), st.text(alphabet="ab \n,;:()", max_size=20))
@settings(deadline=None, derandomize=True)
def test_last_number_finds_any_integer_behind_any_words(number: int, words: str) -> None:
    assert last_number(f"1 {words} {number} {words}") == str(number)


@pytest.mark.parametrize(
    ("line", "stated"),
    [
        ("The answer is John F. Kennedy.", "John F. Kennedy"),
        ("The answer is George W. Bush. He was born in 1946.", "George W. Bush"),
        ("The answer is J. K. Rowling.", "J. K. Rowling"),
        ("The answer is U.S. Steel.", "U.S. Steel"),
        ("The answer is Prof. Smith.", "Prof. Smith"),
        ("The answer is Marbury vs. Madison.", "Marbury vs. Madison"),
        ("The answer is approx. 5 m. Then we stop.", "approx. 5 m"),
        ("The answer is Martin Luther King Jr. He spoke in 1963.", "Martin Luther King Jr"),
        ("The answer is E. coli. Bacteria are small.", "E. coli"),
        ("The answer is vitamin C. It helps.", "vitamin C"),
        ("The answer is B. Because A is wrong.", "B"),
        ("The answer is B. A is wrong.", "B"),
        ("The answer is No. 5", "No. 5"),
        ("The answer is No. Because of that.", "No"),
        ("The answer is 3.5. So it is.", "3.5"),
    ],
)
def test_final_answer_ends_with_the_sentence_and_not_at_an_initial(line: str, stated: str) -> None:
    assert final_answer(line) == stated


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("so 4 \n", "so 4 \n"),
        ("so 4<|im_end|>", "so 4"),
        ("so 4 <|im_end|>\n</s> ", "so 4"),
        ("</s>", ""),
        ("<|im_end|> 4", "<|im_end|> 4"),
        ("so 4<|im_end", "so 4<|im_end"),
    ],
)
def test_without_end_tokens_leaves_the_text_before_them(text: str, expected: str) -> None:
    assert without_end_tokens(text) == expected


def test_without_end_tokens_hostile_text_is_finished() -> None:
    assert without_end_tokens("</s> " * 200_000) == ""
    assert without_end_tokens("</s> " * 200_000 + "x").endswith("x")
