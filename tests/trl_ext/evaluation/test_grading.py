"""Scores and votes of completions, by the rewards of each task."""

import json

import pytest

from reward_funcs import AccuracyReward, ChoiceReward, NumericReward
from trl_ext.errors import UserError
from trl_ext.evaluation.grading import Graded, check_golds, follows_format, grade, reward_for

RIGHT = Graded(1.0, None, True)
WRONG = Graded(0.0, None, False)
UNJUDGED = Graded(None, None, None)


def row(task, solution, **columns):
    return {"prompt": [{"role": "user", "content": "?"}], "solution": solution, "task": task, **columns}


def test_maths_is_graded_and_votes_with_its_final_answer():
    found = grade([row("math", r"\frac{1}{2}")], [[r"\boxed{0.5}", r"so \boxed{3}", "none"]])
    assert found == [[Graded(1.0, "0.5", True), Graded(0.0, "3", False), WRONG]]


def test_plain_rows_are_maths():
    assert grade([{"prompt": "1 + 1", "solution": "2"}], [[r"\boxed{2}"]]) == [[Graded(1.0, "2", True)]]


def test_choice_votes_with_its_letter():
    rows = [row("choice", "B", extra=json.dumps({"choices": ["Paris", "Rome"]}))]
    found = grade(rows, [["The answer is (B).", "The answer is Rome.", "The answer is A.", "hm"]])
    assert found[0] == [Graded(1.0, "B", True), Graded(1.0, "B", True), Graded(0.0, "A", False), WRONG]


def test_countdown_and_instruction_have_no_votes():
    rows = [
        row("countdown", json.dumps({"target": 10, "nums": [4, 6]})),
        row("instruction", json.dumps({"instruction_id": ["change_case:english_lowercase"], "kwargs": [{}]})),
    ]
    found = grade(rows, [["<answer>4 + 6</answer>", "<answer>4 * 6</answer>"], ["all lower", "LOUD"]])
    assert found == [[RIGHT, WRONG], [RIGHT, WRONG]]


def test_code_that_cannot_be_run_is_unjudged(monkeypatch):
    import reward_funcs

    monkeypatch.setattr(reward_funcs, "code_reward", lambda completions, **columns: [None] * len(completions))
    rows = [row("code", json.dumps({"asserts": ["assert f(1) == 2"]}))]
    text = "```python\ndef f(x): return x + 1\n```"
    assert grade(rows, [[text]]) == [[UNJUDGED]]
    # the rule for truncated completions says nothing of a problem that nobody can judge
    assert grade(rows, [[text]], is_truncated=[[True]], truncated="wrong") == [[UNJUDGED]]


def test_row_with_a_gold_that_cannot_be_read_has_no_verdict_even_for_the_same_text():
    texts = [r"<answer>x \mapsto</answer>", r"\boxed{7}", "I do not know"]
    found = grade([row("math", r"x \mapsto"), row("math", "7")], [texts, texts])
    assert [[one.is_correct for one in own] for own in found] == [[None] * 3, [False, True, False]]
    cut = grade([row("math", r"x \mapsto")], [texts], is_truncated=[[True, False, False]], truncated="wrong")
    assert [one.is_correct for one in cut[0]] == [None] * 3


COUNTDOWN = {"target": 10, "nums": [4, 6]}


@pytest.mark.parametrize(
    "taken",
    [
        row("math", "4"), row("math", ""), row("math", 4), row("math", 0.5), row("math", ["4", "5"]), row("math", [4]),
        row("choice", "B"), row("choice", ["B"]), row("countdown", COUNTDOWN),
        row("code", {"asserts": ["assert f(1) == 2"]}),
    ],
    ids=repr,
)  # fmt: skip
def test_gold_that_the_reward_takes_is_taken(taken):
    check_golds([taken], str)


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (row("math", None), "^row 1 has no gold in the column 'solution'; its columns are prompt, solution, task"),
        ({"prompt": "a"}, "^row 1 has no gold .*; its columns are prompt. Give one, or grade the rows with reward="),
        (row("math", True), "^row 1 has the solution True, with which accuracy_reward can compare nothing"),
        (row("math", float("inf")), "the solution inf, with which accuracy_reward"),
        (row("math", []), r"the solution \[\], with which accuracy_reward"),
        (row("math", {"a": 1}), "the solution .*with which accuracy_reward"),
        (row("choice", None), "has no gold"),
        (row("choice", 1, choices=["a", "b"]), "the solution 1, with which choice_reward"),  # from 0 or from 1?
        (row("choice", False), "the solution False, with which choice_reward"),
        (row("countdown", 3), "the solution 3, with which countdown_reward"),
        (row("countdown", None), "has no gold"),
        (row("mathz", "4"), "did you mean 'math'"),
    ],
)
def test_gold_that_the_reward_does_not_take_is_refused_by_row(refused, words):
    with pytest.raises(UserError, match=words):
        check_golds([row("math", "4"), refused], "row {}".format)


def test_bad_gold_is_unjudged_and_keeps_its_answer():
    assert grade([row("math", "")], [[r"\boxed{2}"]]) == [[Graded(None, "2", None)]]


def test_truncated_completion_is_graded_as_it_stands_by_default():
    rows, texts, cuts = [row("math", "4")], [[r"\boxed{4} and then", r"so \boxed{4"]], [[True, True]]
    assert grade(rows, texts, is_truncated=cuts) == [[Graded(1.0, "4", True), WRONG]]
    assert grade(rows, texts, is_truncated=cuts, truncated="wrong") == [[WRONG, WRONG]]
    kept = grade(rows, texts, is_truncated=[[False, True]], truncated="wrong")
    assert kept == [[Graded(1.0, "4", True), WRONG]]


def test_each_task_is_one_call_and_rows_keep_their_order():
    rows = [row("math", "1"), row("choice", "A"), row("math", "2"), row("choice", "B")]
    completions = [
        [r"\boxed{1}", r"\boxed{2}"],
        ["Answer: B"],
        [r"\boxed{2}"],
        [],
    ]
    found = grade(rows, completions)
    assert [[one.is_correct for one in own] for own in found] == [[True, False], [False], [True], []]


def test_reward_gets_every_column_once_for_all_rows_of_a_task():
    calls = []

    def spy(completions, prompts, **columns):
        calls.append((completions, prompts, columns))
        return [0.25] * len(completions)

    rows = [{"prompt": "a", "solution": "1", "level": 3}, row("math", "2")]
    found = grade(rows, [["x", "y"], ["z"]], reward=spy)
    (completions, prompts, columns) = calls[0]
    assert len(calls) == 1
    assert completions == ["x", "y", [{"role": "assistant", "content": "z"}]]
    assert prompts == ["a", "a", rows[1]["prompt"]]
    assert columns == {"solution": ["1", "1", "2"], "level": [3, 3, None], "task": [None, None, "math"]}
    assert found[1] == [Graded(0.25, None, False)]


@pytest.mark.parametrize(("score", "is_correct"), [(1.0, True), (1 - 1e-7, True), (0.999, False), (2.0, True)])
def test_correct_is_a_score_of_one_up_to_rounding(score, is_correct):
    found = grade([row("other", "")], [["x"]], reward=lambda completions, **columns: [score])
    assert found[0][0].is_correct is is_correct


def test_rewards_may_be_asynchronous_and_return_nan_for_none():
    async def slow(completions, **columns):
        return [1.0, float("nan")]

    assert grade([row("other", "")], [["x", "y"]], reward=slow) == [[RIGHT, UNJUDGED]]


def test_votes_are_read_as_the_given_reward_reads_them():
    text = "It is 7"
    assert grade([row("math", "7")], [[text]], reward=NumericReward())[0][0] == Graded(1.0, "7", True)
    own = AccuracyReward(extraction="last_number")
    assert grade([row("math", "7")], [[text]], reward=own)[0][0] == Graded(1.0, "7", True)
    named = ChoiceReward(solution_column="gold")
    found = grade([row("choice", "x", gold="C")], [["The answer is C."]], reward=named)
    assert found[0][0] == Graded(1.0, "C", True)


def test_long_answers_vote_in_full():
    answers = ["1, " * 100 + "2", "1, " * 100 + "3"]  # alike in the first 200 characters, which tables show
    found = grade([row("math", "5")], [[rf"\boxed{{{answer}}}" for answer in answers]])[0]
    assert found[0].answer != found[1].answer


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([row("maths", "1")], [["x"]]), "did you mean 'math'"),
        (([row("judge", "1")], [["x"]]), "pass reward="),
        (([row("math", "1")], []), "0 lists for 1 rows"),
        (([row("math", "1")], ["text"]), "must be a list of texts"),
    ],
)
def test_what_cannot_be_graded_is_refused(arguments, words):
    with pytest.raises(UserError, match=words):
        grade(*arguments)


@pytest.mark.parametrize(
    ("result", "words"),
    [([1.0], "returned 1 values for 2"), (None, "returned None for 2"), ([1.0, "good"], "returned 'good'")],
)
def test_reward_that_returns_something_else_is_named(result, words):
    def bad_reward(completions, **columns):
        return result

    with pytest.raises(UserError, match=f"reward=bad_reward {words}"):
        grade([row("math", "1")], [["x", "y"]], reward=bad_reward)


def test_unknown_rule_and_ragged_flags_are_refused():
    with pytest.raises(UserError, match=r"truncated='wrogn'.*did you mean 'wrong'"):
        grade([], [], truncated="wrogn")
    with pytest.raises(UserError, match="row 0 has 1"):
        grade([row("math", "1")], [["x"]], is_truncated=[[True, False]])


def test_missing_solution_names_the_columns():
    with pytest.raises(ValueError, match="needs the column 'solution'"):
        grade([{"prompt": "a"}], [["x"]])


def test_each_task_has_its_reward():
    names = {task: reward_for(task).__name__ for task in ("math", "choice", "code", "instruction", "countdown")}
    assert set(names.values()) == {
        f"{word}_reward" for word in ("accuracy", "choice", "code", "instruction", "countdown")
    }


BOX = "Put it inside \\boxed{}."
TAGS = "Put your reasoning between <think> and </think>, and the answer between <answer> and </answer>."


@pytest.mark.parametrize(
    ("prompt", "text", "expected"),
    [
        (BOX, r"\boxed{4}", True),
        (BOX, r"\boxed{4", False),
        (BOX, r"<think>\boxed{4}</think> so it is four", False),
        (TAGS, "<think>two</think><answer>4</answer>", True),
        (TAGS, "<think>two</think>4", False),
        ("Use <think> tags.", "<think>two</think>4", True),
        ("Use <think> tags.", "4", False),
        ("Write it as <answer>4</answer>.", "<answer>5</answer>", True),
        ("Write it as <answer>4</answer>.", "5", False),
        ("Opens with ```python", "```python\nprint(1)\n```", True),
        ("Opens with ```python", "print(1)", False),
        ("What is 2 + 2?", "4", None),
        ("2 + 2 = ?<think>\n", "two</think>4", True),
        ("2 + 2 = ?<think>\n", "two", False),
    ],
)
def test_format_is_what_the_prompt_asks_for(prompt, text, expected):
    assert follows_format([prompt], [text]) == [expected]


def test_format_of_a_conversation_is_asked_by_system_and_user_and_not_by_an_example():
    asked = [{"role": "system", "content": BOX}, {"role": "user", "content": "2 + 2"}]
    shown = [*asked[1:], {"role": "assistant", "content": r"\boxed{4}"}, {"role": "user", "content": "3 + 3"}]
    assert follows_format([asked, shown], ["6", "6"]) == [False, None]


def test_format_knows_a_think_block_that_the_template_opened_or_closed():
    prompt = [{"role": "user", "content": "2 + 2"}]
    found = follows_format([prompt] * 2, ["two</think>4", "4"], rendered=["2 + 2<think>", "2 + 2<think>\n\n</think>\n"])
    assert found == [True, None]
