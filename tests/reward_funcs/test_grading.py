"""Rewards for correct answers: what is read, what is refused, what each setting does, and where it may be called."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_funcs.base import Batch, Grade
from reward_funcs.gold import gold_texts
from reward_funcs.grading import AccuracyReward, NumericReward, accuracy_reward, numeric_reward
from reward_funcs.latex import plain
from reward_funcs.pool import close_pools

CALLS = [
    {"role": "assistant", "content": r"\boxed{0}", "tool_calls": [{"function": {"name": "f"}}]},
    {"role": "tool", "name": "f", "content": r"\boxed{1}"},
]


@pytest.fixture(scope="module", autouse=True)
def _workers_end_with_the_module():
    yield
    close_pools()


def graded(text: Any, gold: Any = "5", **settings: Any) -> Grade:
    return AccuracyReward(**settings).grade(Batch([text], {"solution": [gold]}))[0]


def numeric(text: Any, gold: Any = "5", **settings: Any) -> Grade:
    return NumericReward(**settings).grade(Batch([text], {"solution": [gold]}))[0]


# --- the call -----------------------------------------------------------------------------------------------------


def test_accuracy_call_in_trls_form_gives_rewards_and_logs_columns_of_the_batch() -> None:
    columns: dict[str, list[Any]] = {}
    metrics: dict[str, float] = {}
    completions = [r"\boxed{5}", "it is 5", r"\boxed{6}", r"\boxed{5}", "x" * 500]
    rewards = accuracy_reward(
        completions,
        solution=["5", "5", "5", None, ""],
        prompts=["?"] * 5,
        completion_ids=[[1]] * 5,
        trainer_state=object(),
        log_extra=columns.__setitem__,
        log_metric=metrics.__setitem__,
    )
    assert rewards == [1.0, 0.0, 0.0, None, None]
    assert columns["accuracy_reward/reason"] == ["correct", "no_answer", "wrong", "bad_gold", "bad_gold"]
    assert columns["accuracy_reward/answer"] == ["5", None, "6", "5", None]
    assert metrics == {"accuracy_reward/none/bad_gold": 2.0}


@pytest.mark.parametrize(
    "form",
    [
        lambda text: text, lambda text: [{"role": "assistant", "content": text}],
        lambda text: [{"role": "assistant", "content": [{"type": "text", "text": text}]}],
        lambda text: [*CALLS, {"role": "assistant", "content": text}],
        lambda text: [{"role": "assistant", "content": text, "reasoning_content": r"\boxed{0}"}],
        lambda text: {"role": "assistant", "content": text},
    ],
    ids=["text", "messages", "blocks", "tools", "reasoning", "message"],
)  # fmt: skip
def test_accuracy_every_shape_of_a_completion_gives_the_same(form: Any) -> None:
    texts = [r"\boxed{5}", r"\boxed{6}", "", r"\boxed{5} or \boxed{6}", "<answer>5</answer>"]
    for reward, expected in ((accuracy_reward, [1.0, 0.0, 0.0, 0.0, 1.0]), (numeric_reward, [1.0, 0.0, 0.0, 0.0, 1.0])):
        assert reward([form(text) for text in texts], solution=["5"] * 5) == expected


@pytest.mark.parametrize("reward", [accuracy_reward, numeric_reward])
def test_reward_without_completions_is_empty_and_none_content_is_wrong(reward: Any) -> None:
    assert reward([], solution=[]) == []
    assert reward([None, [], [{"role": "assistant", "content": None}]], solution=["5"] * 3) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", [AccuracyReward, NumericReward])
def test_missing_gold_column_names_the_columns_there_are(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"needs the column 'solution'.*answer, level.*solution_column="):
        kind()(["5"], answer=["5"], level=[1])
    with pytest.raises(ValueError, match=r"needs the column 'gold'.*answer"):
        kind(solution_column="gold")(["5"], answer=["5"])
    with pytest.raises(ValueError, match=r"one value for each of the 2"):
        kind()(["5", "5"], solution=["5"])
    assert kind(solution_column="answer")([r"\boxed{5}"], answer=["5"]) == [1.0]


# --- where the answer stands ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{5}", r"so $\boxed{5}$.", r"\boxed{4} hmm, actually \boxed{5}", r"\boxed{5} or \boxed{7", r"\fbox{5}",
        r"<think>\boxed{4}</think>\boxed{5}", r"4</think>\boxed{5}", "<answer>5</answer>", "<answer>$5$</answer>",
        r"<answer>\boxed{5}</answer>", r"<answer>4</answer> \boxed{5}", "Answer: $5$", "The final answer is $5$.",
        r"**Answer:** $5$", r"Final Answer: The final answer is $5$. I hope it is correct.", r"\boxed{x=5}",
        r"\boxed{5.}", r"\boxed{5} and \boxed{5}", r"\boxed{\boxed{5}}", r"\boxed{5 \text{ cm}}",
        "<answer>\n5\n</answer>",
    ],
)  # fmt: skip
def test_accuracy_auto_reads_the_answer(text: str) -> None:
    assert graded(text)[:2] == (1.0, "correct")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_answer"), ("5", "no_answer"), ("the answer is 5", "no_answer"), ("Answer: 5", "no_answer"),
        ("= 5", "no_answer"), (r"\boxed{5", "no_answer"), (r"\boxed 5", "no_answer"), ("<answer>5", "no_answer"),
        (r"\boxed{}", "empty_answer"), (r"\boxed{5} hmm, \boxed{4}", "wrong"),
        (r"\boxed{4} <answer>5</answer>", "wrong"), ("<answer>so 5</answer>", "wrong"),
        (r"<think>\boxed{5}</think>", "answer_in_think"), (r"<think>\boxed{5}", "answer_in_think"),
        (r"<think>\boxed{5}</think> done", "answer_in_think"), ("<think>5</think>", "no_answer"),
        (r"\boxed{5} or \boxed{6}", "several_answers"), (r"\boxed{5}, \boxed{6}", "several_answers"),
        (r"\boxed{5 \text{ or } 6}", "several_answers"), (r"\boxed{5,6}", "several_answers"),
        (r"\boxed{5\text{ or }6}", "several_answers"),
        ("<answer>5</answer><answer>5</answer>", "several_answer_tags"),
        ("<answer><answer>5</answer></answer>", "several_answer_tags"),
        (r"<answer>4</answer><answer>5</answer>\boxed{5}", "several_answer_tags"), (r"\boxed{4=5}", "inconsistent"),
        (r"\boxed{2+2=5}", "inconsistent"), (r"\boxed{x=4=5}", "inconsistent"), (r"\boxed{x+1=6}", "unsolved"),
        (r"\boxed{x<5}", "unsolved"), (r"\boxed{\gcd(10,15)}", "unevaluated"),
        (r"\boxed{\sum_{k=1}^{5}1}", "unevaluated"), (r"\boxed{\int_0^5 1 dx}", "unevaluated"),
        (r"\boxed{\lim_{x\to5}x}", "unevaluated"), (r"\boxed{\prod_{k=5}^{5}k}", "unevaluated"),
        (r"\boxed{\operatorname{lcm}(1,5)}", "unevaluated"), (r"\boxed{" + "1+" * 600 + "5}", "too_long"),
        (r"\boxed{9^{9^{9^9}}}", "too_complex"), (r"\boxed{" + "-" * 990 + "5}", "recursion"),
    ],
)  # fmt: skip
def test_accuracy_refusal_scores_zero_with_its_reason(text: str, reason: str) -> None:
    grade = graded(text, timeout=30.0)  # a busy machine must not turn a reason into "timeout"
    assert grade.reward == 0.0
    assert grade.reason == reason


@pytest.mark.parametrize(
    ("text", "accepting"),
    [
        (r"\boxed{\gcd(10,15)}", {"allow_unevaluated": True}),
        (r"\boxed{\sum_{k=1}^{5}1}", {"allow_unevaluated": True}), (r"\boxed{4=5}", {"allow_unsolved": True}),
        (r"\boxed{x+1=6}", {"allow_unsolved": True}), (r"\boxed{5} or \boxed{6}", {"allow_alternatives": True}),
        (r"\boxed{5 \text{ or } 6}", {"allow_alternatives": True}),
        ("<answer>4</answer><answer>5</answer>", {"allow_alternatives": True}),
        (r"<think>\boxed{5}</think>", {"read_think": True}), (r"<think>\boxed{5}", {"read_think": True}),
        (r"\boxed{" + "1+" * 505 + "0-500}", {"max_answer_length": 2000}),
        ("Answer: 5", {"extraction": "final_answer"}), ("it is 5", {"extraction": "last_number"}),
        ("A: 5", {"extraction": "regex", "pattern": r"A: (.*)"}),
        ("<answer>5</answer>", {"extraction": "answer_tag"}),
        (r"\boxed{5.2}", {"rel_tol": 0.1, "extraction": "last_boxed"}),
        (r"\boxed{3}", {"extraction": "last_boxed", "rel_tol": 0.0}),
    ],
)  # fmt: skip
def test_accuracy_what_is_refused_is_accepted_with_its_setting(text: str, accepting: dict[str, Any]) -> None:
    gold = {r"\boxed{5.2}": "5.0", r"\boxed{3}": r"\frac{6}{2}"}.get(text, "5")
    if text not in (r"\boxed{3}", "<answer>5</answer>"):
        assert graded(text, gold).reward == 0.0
    if text != r"\boxed{5.2}":  # two literals: the digits that are given count too
        # a busy machine must not turn what the workers are asked into "timeout"
        assert graded(text, gold, timeout=30.0, **accepting).reward == 1.0


@pytest.mark.parametrize(
    ("extraction", "right", "wrong"),
    [
        *(("last_boxed", r"\boxed{5}", "<answer>5</answer>"), ("last_boxed", r"\boxed{4}. \boxed{5}", "Answer: $5$")),
        *(("answer_tag", "<answer>5</answer>", r"\boxed{5}"), ("answer_tag", "4 <answer>5</answer> 6", "5")),
        *(("final_answer", "Answer: 5", r"\boxed{5}"), ("final_answer", "The answer is $5$.", "it is 5")),
        *(("last_number", "a 4, b 5.", "5 then 4"), ("last_number", "x = 5", "five")),
    ],
)
def test_accuracy_extraction_reads_there_and_nowhere_else(extraction: str, right: str, wrong: str) -> None:
    assert graded(right, extraction=extraction)[:2] == (1.0, "correct")
    assert graded(wrong, extraction=extraction).reward == 0.0
    assert graded("<think>" + right + "</think>", extraction=extraction)[:2] == (0.0, "answer_in_think")


def test_accuracy_regex_takes_the_last_match_and_its_first_group() -> None:
    reward = AccuracyReward(extraction="regex", pattern=r"R=(\d+)|S=(\d+)")
    assert reward(["R=4 R=5", "S=5", "R=5 S=4", "T=5"], solution=["5"] * 4) == [1.0, 1.0, 0.0, 0.0]
    assert AccuracyReward(extraction="regex", pattern=r"\d+")(["1 5"], solution=["5"]) == [1.0]


def test_accuracy_alternatives_need_one_that_is_right() -> None:
    reward = AccuracyReward(allow_alternatives=True)
    texts = [r"\boxed{4} or \boxed{6}", r"\boxed{4,6}", r"\boxed{4 \text{ or } 5}", r"\boxed{5, 6}", r"\boxed{1,234}"]
    assert reward(texts, solution=["5", "5", "5", "5", "234"]) == [0.0, 0.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        (r"x=1,x=2", r"\boxed{1}, \boxed{2}"), ("1,2", r"\boxed{2} and \boxed{1}"), (r"\{1,2\}", r"\boxed{1,2}"),
        (r"\pm2", r"\boxed{2} or \boxed{-2}"), (r"\sum_{k=1}^n k", r"\boxed{\sum_{k=1}^{n} k}"),
        ("x^2+y^2=1", r"\boxed{x^2+y^2-1=0}"), ("y=2x+1", r"\boxed{y=2x+1}"), (r"\gcd(a,b)", r"\boxed{\gcd(a,b)}"),
        ("x<5", r"\boxed{x<5}"), ("(1,2)", r"\boxed{x=1, y=2}"), ("120", r"\boxed{5!}"), ("8", r"\boxed{2^3}"),
    ],
)  # fmt: skip
def test_accuracy_form_of_the_gold_is_no_hack(gold: str, text: str) -> None:
    assert graded(text, gold)[:2] == (1.0, "correct")


def test_accuracy_words_and_options_of_a_letter_are_no_way_around_several_answers() -> None:
    for text in (r"\boxed{(A) or (B)}", r"\boxed{(A),(B)}", r"\boxed{A. or B.}", r"\boxed{(A)}, \boxed{(B)}"):
        assert graded(text, "A").reward == 0.0, text
    for text in (
        r"\boxed{5\text{, 6}}",
        r"\boxed{5\text{ (or 6)}}",
        r"\boxed{5\text{ but maybe } 6}",
        r"\boxed{5\text{ or more}}",
    ):
        assert graded(text).reward == 0.0, text


def test_accuracy_second_value_behind_a_unit_is_a_hedge() -> None:
    for text in (r"\boxed{5\text{ apples and }6\text{ oranges}}", r"\boxed{5\text{ cm or }6\text{ cm}}"):
        assert graded(text).reward == 0.0, text


def test_accuracy_markdown_around_a_tagged_answer_is_layout() -> None:
    assert graded("<answer>**5**</answer>").reward == 1.0
    assert graded("The answer is **5**.", extraction="final_answer").reward == 1.0


def test_accuracy_stated_answer_survives_later_words_about_it() -> None:
    assert graded("The final answer is $5$. I hope this answer is right.").reward == 1.0


# --- golds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "gold",
    [
        "5", "$5$", r"\boxed{5}", r"\(5\)", "5.", "5.0", 5, 5.0, "#### 5", "2+3=5\n#### 5", r"So it is \boxed{5}.",
        "10/2", r"\frac{10}{2}", "x=5", r"\text{five}", ["5"], ["4", "5"], [4, 5.0], (None, "5"), r"5\text{ cm}", "５",
        "0x + 5",
    ],
    ids=repr,
)  # fmt: skip
def test_accuracy_every_form_of_a_gold_accepts_its_value(gold: Any) -> None:
    assert graded(r"\boxed{5}", gold).reward == 1.0
    assert graded(r"\boxed{6}", gold).reward == 0.0


@pytest.mark.parametrize(
    "gold",
    [
        None, "", " ", "$$", r"\boxed{}", float("nan"), [], [None], {}, True, b"5", object(),
    ],
    ids=repr,
)  # fmt: skip
def test_accuracy_bad_gold_cannot_be_judged(gold: Any) -> None:
    for text in (r"\boxed{5}", "", r"\boxed{}", r"\boxed{4=5}", "<think>"):
        assert graded(text, gold)[:2] == (None, "bad_gold")
    assert numeric("5", gold)[:2] == (None, "bad_gold")


def test_accuracy_list_of_golds_wants_any_or_all() -> None:
    texts = [
        r"\boxed{1}",
        r"\boxed{2}",
        r"\boxed{1,2}",
        r"\boxed{1} and \boxed{2}",
        r"\boxed{2,1}",
        r"\boxed{3}",
        r"\boxed{1,2,3}",
    ]
    golds = [["1", "2"]] * len(texts)
    assert AccuracyReward()(texts, solution=golds)[:2] == [1.0, 1.0]
    assert AccuracyReward()(texts, solution=golds)[5:] == [0.0, 0.0]
    assert AccuracyReward(multiple_answers="all")(texts, solution=golds) == [0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    assert AccuracyReward(multiple_answers="all")([r"\boxed{1}"], solution=[["1"]]) == [1.0]


@pytest.mark.parametrize(
    "gold",
    [
        "5", r"\frac{1}{2}", "(1,2)", r"\{1,2\}", r"\text{yes}", "x=5", r"[0,1)", r"30^\circ", "1,2", "B", 0.5,
        ["5", "6"],
    ],
)  # fmt: skip
def test_accuracy_ideal_of_a_gold_scores_one(gold: Any) -> None:
    for extraction in ("auto", "last_boxed", "answer_tag", "final_answer"):
        reward = AccuracyReward(extraction=extraction)
        assert reward([reward.ideal(gold)], solution=[gold]) == [1.0]
    both = AccuracyReward(multiple_answers="all")
    assert both([both.ideal(gold)], solution=[gold]) == [1.0]
    assert AccuracyReward().ideal(None) is None
    assert AccuracyReward(extraction="regex", pattern="x").ideal(gold) is None


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"extraction": "box"}, r"extraction='box'.*auto.*last_boxed.*regex"),
        ({"pattern": "x"}, r'pattern=.*extraction="regex"'),
        ({"extraction": "regex"}, r'pattern=.*extraction="regex".*for instance'),
        ({"extraction": "regex", "pattern": "("}, r"pattern='\('.*regular"),
        ({"rel_tol": -0.1}, r"rel_tol=-0.1.*at least 0.*default"), ({"rel_tol": 1.0}, r"rel_tol=1.0.*below 1"),
        ({"rel_tol": float("nan")}, "rel_tol=nan"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [AccuracyReward, NumericReward])
def test_bad_setting_says_argument_value_and_remedy(kind: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"multiple_answers": "some"}, r"multiple_answers='some'.*any.*all"),
        ({"timeout": 0}, r"timeout=0.*at least 0.01"), ({"timeout": -1.0}, r"timeout=-1.0"),
        ({"num_workers": 0}, r"num_workers=0.*at least 1"), ({"num_workers": 1.5}, r"num_workers=1.5.*whole"),
        ({"max_answer_length": 0}, "max_answer_length=0.*at least 1"), ({"timeout": float("nan")}, "timeout=nan"),
        ({"timeout": float("inf")}, "timeout=inf"),
    ],
)  # fmt: skip
def test_accuracy_bad_setting_says_argument_value_and_remedy(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AccuracyReward(**settings)


@pytest.mark.parametrize("value", [-1, -1e-9, float("nan")])
def test_numeric_negative_tolerance_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=f"abs_tol={value!r}"):
        NumericReward(abs_tol=value)


def test_name_is_what_the_logs_show() -> None:
    columns: dict[str, list[Any]] = {}
    reward = AccuracyReward(name="maths")
    reward(["5"], solution=["5"], log_extra=columns.__setitem__)
    assert reward.__name__ == "maths" and sorted(columns) == ["maths/answer", "maths/reason"]
    assert (accuracy_reward.__name__, numeric_reward.__name__) == ("accuracy_reward", "numeric_reward")


@pytest.mark.parametrize(
    ("rel_tol", "rewards"),
    [
        (1e-6, [1.0, 0.0, 0.0]), (1e-2, [1.0, 1.0, 0.0]), (0.0, [0.0, 0.0, 0.0]),
    ],
)  # fmt: skip
def test_accuracy_relative_tolerance_bounds_rounded_decimals(rel_tol: float, rewards: list[float]) -> None:
    texts = [r"\boxed{0.33333333}", r"\boxed{0.333}", r"\boxed{0.4}"]
    assert AccuracyReward(rel_tol=rel_tol)(texts, solution=["1/3"] * 3) == rewards


# --- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("He pays $1,234.50.", "1234.5"), ("5/8 of it", 0.625), ("so 5", 5), ("3 then 5.", "5"), (r"\boxed{5}", "5"),
        ("x = 5", "#### 5"), ("<answer>5</answer>", "5"), ("The answer is 5.", "5"), ("the total is -5", "-5"),
        ("1.5e3", 1500), (r"\frac{1}{2}", "0.5"), ("50%", "50"), ("<think>4</think> 5", "5"), ("5 apples", "5"),
        ("5", ["4", "5"]), ("5", r"5\text{ cm}"), ("\u22125", "-5"),
    ],
)  # fmt: skip
def test_numeric_reads_the_number_that_ends_the_text(text: str, gold: Any) -> None:
    assert numeric(text, gold)[:2] == (1.0, "correct")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_answer"), ("none", "no_answer"), ("6", "wrong"), ("5 then 6", "wrong"), ("-5", "wrong"),
        ("\u22125", "wrong"), ("<think>5</think>", "answer_in_think"), (r"\boxed{5} or \boxed{6}", "several_answers"),
        (r"\boxed{x}", "no_number"), ("<answer>5</answer><answer>5</answer>", "several_answer_tags"),
        (r"\boxed{" + "-" * 990 + "5}", "no_number"), ("5e400", "wrong"),
    ],
)  # fmt: skip
def test_numeric_other_text_scores_zero_with_its_reason(text: str, reason: str) -> None:
    grade = numeric(text)
    assert grade.reward == 0.0
    assert grade.reason == reason or (reason == "no_number" and grade.reason in ("wrong", "no_number"))


@pytest.mark.parametrize("gold", ["x", "(1,2)", r"\text{even}", r"\infty", "i", "1,2", "x+1"])
def test_numeric_gold_that_is_no_number_cannot_be_judged(gold: str) -> None:
    assert numeric("5", gold)[:2] == (None, "bad_gold")


def test_numeric_absolute_tolerance_is_for_any_two_numbers() -> None:
    reward = NumericReward(abs_tol=0.5)
    assert reward(["4.6", "5.5", "5.6", "9/2", "x"], solution=["5"] * 5) == [1.0, 1.0, 0.0, 1.0, 0.0]
    assert NumericReward()(["5.0000001"], solution=["5"]) == [0.0]


def test_numeric_absolute_tolerance_of_numbers_beyond_floats_is_no_error() -> None:
    reward = NumericReward(abs_tol=0.5)
    assert reward(["5e400", "5", "5e400", "-5e400"], solution=["5", "5e400", "5e400", "5e400"]) == [0.0, 0.0, 1.0, 0.0]


# --- any text -------------------------------------------------------------------------------------------------------

PIECES = [
    r"\boxed{", "}", "{", "(", ")", "$", "<think>", "</think>", "<answer>", "</answer>", "Answer: ", "answer is ",
    r"\frac", r"\sqrt", "^", "5", "12", ".", ",", "x", "=", "<", "+", "-", "/", " or ", r"\text{", r"\sum", r"\pm",
    "%", "!", "\0", "\ud800", "\n", r"\\", "A", "|",
]  # fmt: skip
SOUP = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


@given(SOUP, SOUP)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_settle_of_any_text_is_a_verdict(gold: str, answer: str) -> None:
    for text in gold_texts(gold):
        verdict = accuracy_reward.settle(text, plain(answer))
        assert verdict.equal in (True, False, None) and verdict.reason.isidentifier() == bool(verdict.reason)
        assert accuracy_reward.settle(text, text).equal is True
    assert accuracy_reward.answer(answer).reason in ("", "no_answer", "answer_in_think", "several_answer_tags")
    numeric_reward([answer], solution=[gold])


@pytest.mark.parametrize(
    "piece",
    [
        "-", "+", "(", "{", "!", "^", "x^", "x^-", "2/-", r"\frac", r"\sqrt{", "1+", r"\pm", "|", "5,", "=", "x=",
        r"\text{", "5 or ",
    ],
)  # fmt: skip
@pytest.mark.parametrize("count", [30, 300, 495, 990, 50_000])
def test_settle_of_long_repetition_is_a_verdict(piece: str, count: int) -> None:
    for text in (piece * count + "5", "5" + piece * count, piece * count):
        for gold in ("5", "x", "(1,2)", r"\text{even}"):
            verdict = accuracy_reward.settle(gold, plain(text))
            assert verdict.equal is not True or set(plain(text)) <= set("5 ,or+-=()")
        numeric_reward([text, rf"\boxed{{{text}}}"], solution=["5", "5"])


def test_reward_hostile_completions_are_finished() -> None:
    texts = [
        *(
            "",
            "\0",
            "\ud800",
            "\0" * 100_000,
            "a" * 100_000,
            "9" * 100_000,
            "{" * 100_000,
            "$" * 100_001,
            "<think>" * 20_000,
        ),
        *(
            r"\boxed{" * 20_000,
            r"\boxed{5}" * 20_000,
            "<answer>" * 20_000,
            "answer is " * 20_000,
            r"\boxed{" + "x" * 100_000 + "}",
        ),
        *(
            r"\boxed{" + "9" * 100_000 + "}",
            r"\boxed{" + "-" * 100_000 + "5}",
            r"\boxed{" + "\ud800" * 100 + "}",
            "5" + " " * 100_000,
        ),
    ]
    for extraction in ("auto", "last_boxed", "answer_tag", "final_answer", "last_number"):
        rewards = AccuracyReward(extraction=extraction)(texts, solution=["7"] * len(texts))
        assert rewards == [0.0] * len(texts)
    assert NumericReward()(texts, solution=["7"] * len(texts)) == [0.0] * len(texts)


def test_reward_hostile_golds_never_raise() -> None:
    golds = [
        "\0",
        "\ud800",
        "x" * 100_000,
        "9" * 100_000,
        "-" * 990 + "5",
        "(" * 500,
        r"\boxed{" * 5000,
        "####" * 9000,
        "5" + "!" * 900,
    ]
    rewards = AccuracyReward()([r"\boxed{7}"] * len(golds), solution=golds)
    assert not any(reward == 1.0 for reward in rewards)
    assert not any(reward == 1.0 for reward in NumericReward()([r"\boxed{7}"] * len(golds), solution=golds))
