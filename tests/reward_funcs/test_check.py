"""Golds that do not score 1.0 against themselves: found without a model, in every form of a data set."""

import functools
import json

import numpy as np
import pytest
from datasets import Dataset, DatasetDict, IterableDataset

import reward_funcs
from reward_funcs import (
    AsyncReward,
    Batch,
    CosineLengthReward,
    Gate,
    GoldFailure,
    GoldReport,
    Grade,
    LengthPenaltyReward,
    Reward,
    Sum,
    ThinkAnswerFormatReward,
    ThinkFormatReward,
    accuracy_reward,
    answer_tag,
    check_golds,
    countdown_reward,
    exact_match_reward,
    last_boxed,
)
from reward_funcs.check import NoGolds, gold_column, puzzle_columns, shown


class DigitReward(Reward):
    """1.0 where the text is the boxed gold; a gold that is no number cannot be judged. Counts what it graded."""

    default_name = "digit_reward"

    def __init__(self, *, solution_column="solution", name=None):
        super().__init__(name=name)
        self.solution_column = solution_column
        self.graded = []

    def grade(self, batch):
        golds = batch.column(self.solution_column, needed_by=self.__name__)
        self.graded += golds
        return [
            Grade(float(text == rf"\boxed{{{gold.strip()}}}"), "wrong" if gold != gold.strip() else "right")
            if gold.strip().isdigit()
            else Grade(None, "bad_gold")
            for text, gold in zip(batch.texts, golds, strict=True)
        ]


class ChosenReward(DigitReward):
    """1.0 where the gold is one of the choices; looks at that column only where there is a gold."""

    def grade(self, batch):
        golds = batch.column("solution", needed_by=self.__name__)
        choices = batch.column("choices", needed_by=self.__name__)
        self.graded += golds
        return [Grade(float(gold in options), "chosen") for gold, options in zip(golds, choices, strict=True)]


def boxed_exactly(completions, solution, **columns):
    return [float(text == rf"\boxed{{{gold}}}") for text, gold in zip(completions, solution, strict=True)]


GOLDS = ["4", "x", " 5", "4", None, "17"]
ROWS = [{"prompt": f"p{i}", "solution": gold} for i, gold in enumerate(GOLDS)]


def _stream(rows):
    return IterableDataset.from_generator(lambda: iter(rows))


# --- what is found ------------------------------------------------------------------------------------------------


def test_golds_are_counted_by_hand():
    report = check_golds(ROWS, DigitReward())
    assert (report.rate, report.total, report.unchecked) == (0.6, 6, 1)
    assert report.failures == [
        GoldFailure(1, "x", r"\boxed{x}", None, "bad_gold"),
        GoldFailure(2, " 5", r"\boxed{ 5}", 0.0, "wrong"),
    ]
    assert report.causes == {"bad_gold": 1, "wrong": 1}


@pytest.mark.parametrize(
    "form",
    [
        list,
        iter,
        tuple,
        lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
        Dataset.from_list,
        _stream,
        lambda rows: Dataset.from_list(rows).to_iterable_dataset(),
    ],
    ids=["list", "iterator", "tuple", "columns", "Dataset", "generator", "IterableDataset"],
)
def test_every_form_of_the_data_gives_the_same_report(form):
    assert check_golds(form(ROWS), DigitReward()) == check_golds(ROWS, DigitReward())


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5, 100])
def test_report_does_not_depend_on_the_batch_size(batch_size):
    assert check_golds(ROWS * 3, DigitReward(), batch_size=batch_size) == check_golds(ROWS * 3, DigitReward())


def test_max_rows_looks_at_the_first_ones_of_an_endless_stream():
    def endless():
        while True:
            yield from ROWS

    report = check_golds(endless(), DigitReward(), max_rows=10)
    assert report.total == 10 and [failure.row for failure in report.failures] == [1, 2, 7, 8]
    assert check_golds(_stream(ROWS), DigitReward(), max_rows=2).total == 2


def test_plain_function_is_given_the_boxed_gold():
    assert check_golds(ROWS, boxed_exactly).rate == 1.0
    assert check_golds(ROWS, functools.partial(boxed_exactly, more=1)).unchecked == 1
    assert check_golds(ROWS, AsyncReward(boxed_exactly)).rate == 1.0


def test_plain_function_that_says_nothing_gets_a_reason():
    def odd(completions, solution, **columns):
        return [{"4": 1.0, "x": None}.get(gold, 0.5) for gold in solution]

    assert check_golds(ROWS, odd).causes == {"no_reward": 1, "below_one": 2}


def test_plain_function_is_given_messages_where_the_prompt_is_one():
    seen = []

    def keeping(completions, solution, **columns):
        seen.extend(zip(completions, columns.get("prompts", [None]), strict=True))
        return [1.0] * len(completions)

    message = [{"role": "user", "content": "2+2?"}]
    check_golds([{"prompt": message, "solution": "4"}], keeping)
    check_golds([{"prompt": "2+2=", "solution": "4"}], keeping)
    check_golds([{"solution": "4"}], keeping)
    assert seen == [
        ([{"role": "assistant", "content": r"\boxed{4}"}], message),
        (r"\boxed{4}", "2+2="),
        (r"\boxed{4}", None),
    ]


def test_trl_reward_is_given_messages_and_its_refused_golds_are_found():
    from trl.rewards import accuracy_reward

    report = check_golds([{"solution": "$4$"}, {"solution": r"\frac{1}{"}, {"solution": "5"}], accuracy_reward)
    assert [(failure.row, failure.reason) for failure in report.failures] == [(1, "no_reward")]


def test_reward_just_below_one_in_float32_is_one():
    assert (
        check_golds([{"solution": "4"}], lambda completions, **columns: [np.float32(1) - np.float32(6e-8)]).rate == 1.0
    )
    assert check_golds([{"solution": "4"}], lambda completions, **columns: [0.999]).rate == 0.0
    assert check_golds([{"solution": "4"}], lambda completions, **columns: [1.5]).rate == 1.0


def test_ideal_completion_is_that_of_the_reward():
    class Tagged(DigitReward):
        def ideal(self, gold):
            return None if gold == "x" else f"<answer>{gold}</answer>"

        def grade(self, batch):
            return [Grade(float(text == "<answer>4</answer>")) for text in batch.texts]

    report = check_golds(ROWS, Tagged())
    assert report.unchecked == 1 and report.failures[0].completion == "<answer> 5</answer>"


def test_other_columns_reach_the_reward_and_the_prompt_as_trl_names_it():
    calls = []

    def keeping(**call):
        calls.append(call)
        return [1.0] * len(call["completions"])

    rows = [{"prompt": "p", "completion": "c", "solution": "4", "level": 3, "tags": ["a"]}]
    check_golds(rows, keeping)
    (call,) = calls
    assert call.pop("completion_ids") == [[0]]
    assert call == {"completions": [r"\boxed{4}"], "prompts": ["p"], "solution": ["4"], "level": [3], "tags": [["a"]]}


def test_composition_is_checked_with_the_reason_of_its_parts():
    def nonempty(completions, **columns):
        return [float(bool(text)) for text in completions]

    for reward in (Gate(nonempty, DigitReward()), Sum([DigitReward(), nonempty], [1.0, 0.1])):
        assert check_golds(ROWS, reward).causes == {"bad_gold": 1, "wrong": 1}


@pytest.mark.parametrize(
    "condition",
    [
        ThinkFormatReward(),
        ThinkFormatReward("strict"),
        ThinkFormatReward(require_answer=True),
        ThinkFormatReward(think_prefilled=True),
        ThinkAnswerFormatReward(),
        ThinkAnswerFormatReward(think_prefilled=True),
    ],
    ids=lambda condition: repr(condition)[5:40],
)
@pytest.mark.parametrize("extraction", ["answer_tag", "last_boxed"])
def test_gold_behind_a_format_gate_is_put_in_that_format(condition, extraction):
    class Extracted(DigitReward):
        def ideal(self, gold):
            return f"<answer>{gold}</answer>" if gold and extraction == "answer_tag" else super().ideal(gold)

        def grade(self, batch):
            read = {"answer_tag": answer_tag, "last_boxed": last_boxed}[extraction]
            batch = Batch([rf"\boxed{{{read(text)}}}" for text in batch.texts], batch.columns)
            return super().grade(batch)

    rows = [row for row in ROWS if row["solution"] != " 5"]
    for reward in (Gate(condition, Extracted()), Sum([Extracted(), condition], [0.8, 0.2])):
        assert check_golds(rows, reward).causes == {"bad_gold": 1}


def test_gate_that_no_form_opens_is_the_cause():
    def never(completions, **columns):
        return [0.0 for _ in completions]

    report = check_golds(ROWS, Gate(never, DigitReward()))
    assert report.rate == 0.0 and report.causes == {"gate_closed": 5}
    assert report.failures[0].completion == r"\boxed{4}"


# --- duplicates ---------------------------------------------------------------------------------------------------


def test_duplicate_golds_are_graded_once():
    reward = DigitReward()
    rows = [{"prompt": f"p{i}", "id": i, "solution": str(i % 3)} for i in range(30)]
    assert check_golds(rows, reward, batch_size=7).total == 30
    assert sorted(reward.graded) == ["0", "1", "2"]


def test_duplicate_golds_of_a_function_are_graded_once_whatever_the_prompt():
    graded = []

    def counting(completions, solution, **columns):
        graded.extend(solution)
        return [1.0] * len(completions)

    check_golds([{"prompt": f"p{i}", "solution": str(i % 3)} for i in range(30)], counting)
    assert sorted(graded) == ["0", "1", "2"]


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_same_gold_with_another_value_of_a_column_that_is_read_is_graded_by_itself(batch_size):
    choices = [["a", "b"], ["b", "c"], ["a", "b"], ["a"]]
    rows = [{"solution": "a", "choices": options, "id": i} for i, options in enumerate(choices)]
    reward = ChosenReward()
    report = check_golds([{"solution": None, "choices": [], "id": -1}, *rows], reward, batch_size=batch_size)
    assert [failure.row for failure in report.failures] == [2] and report.unchecked == 1


def test_golds_of_another_type_are_not_the_same():
    def is_text(completions, solution, **columns):
        return [float(isinstance(gold, str)) for gold in solution]

    assert [f.gold for f in check_golds([{"solution": "4"}, {"solution": 4}], is_text).failures] == [4]


# --- the column ---------------------------------------------------------------------------------------------------


def test_column_of_the_golds_is_passed_under_the_name_that_the_reward_reads():
    rows = [{"answer": "4", "solution": "so it is four"}]
    assert check_golds(rows, DigitReward(), solution_column="answer").rate == 1.0
    assert check_golds(rows, boxed_exactly, solution_column="answer").rate == 1.0
    assert check_golds(rows, DigitReward(solution_column="answer")).rate == 1.0
    assert check_golds(rows, DigitReward()).causes == {"bad_gold": 1}


def test_gold_column_is_the_setting_of_the_reward_or_of_its_parts():
    reward = DigitReward(solution_column="answer")
    assert gold_column(boxed_exactly) == gold_column(DigitReward()) == "solution"
    assert (
        gold_column(reward) == gold_column(AsyncReward(reward)) == gold_column(Sum([boxed_exactly, reward])) == "answer"
    )


def test_missing_column_is_refused_with_those_there_are():
    with pytest.raises(
        ValueError, match=r"the data has no column 'solution'; its columns are a, b; name that of the golds"
    ):
        check_golds([{"a": 1, "b": 2}], DigitReward())


def test_tokens_are_made_up_for_rewards_that_count_them():
    class Counting(DigitReward):
        def grade(self, batch):
            ids = batch.column("completion_ids", needed_by="counting")
            return [Grade(float(len(i) == len(t.split()))) for i, t in zip(ids, batch.texts, strict=True)]

    assert check_golds([{"solution": "a b c"}, {"solution": "a"}], Counting()).rate == 1.0


def test_trl_function_gets_messages_whatever_the_prompt():
    def texts(completions, **columns):
        return [float(isinstance(completion, list)) for completion in completions]

    texts.__module__ = "trl.rewards.some_rewards"
    assert check_golds([{"prompt": "p", "solution": "4"}], texts).rate == 1.0


def test_blank_gold_is_judged_and_a_null_is_not():
    report = check_golds([{"solution": gold} for gold in ("4", "", "   ", "\n", None)], accuracy_reward)
    assert (report.unchecked, report.causes) == (1, {"bad_gold": 3})
    assert check_golds([{"solution": "  "}], exact_match_reward).causes == {"bad_gold": 1}


@pytest.mark.parametrize(
    "wrap", [lambda reward: reward, AsyncReward, lambda reward: Sum([reward])], ids=["alone", "async", "sum"]
)
def test_puzzle_in_two_columns_is_a_gold(wrap):
    rows = [{"target": 24, "nums": [4, 6]}, {"target": 5, "nums": [2, 2]}, {"target": 6, "nums": [1, 5]}]
    report = check_golds(rows, wrap(countdown_reward))
    assert (report.rate, report.total, report.unchecked) == (1.0, 3, 1)  # no way to make 5 of 2 and 2
    mixture = [{"solution": {"target": 24, "nums": [4, 6]}}, {"solution": None, "target": 6, "nums": [1, 5]}]
    assert check_golds(mixture, wrap(countdown_reward)) == GoldReport(1.0, [], 2, 0)
    assert puzzle_columns(wrap(countdown_reward)) == ("target", "nums") and puzzle_columns(DigitReward()) == ()
    with pytest.raises(ValueError, match="the data has no column 'solution'"):
        check_golds([{"target": 24}], wrap(countdown_reward))


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data, sentence",
    [
        ([], "the data set holds no rows"),
        ({}, "the data set holds no rows"),
        ({"solution": []}, "the data set holds no rows"),
        ("rows.jsonl", "dataset must be a data set, a list of rows or a dict of columns, not rows.jsonl"),
        (None, "dataset must be a data set"),
        (["4"], "a row must be a dict of its columns, not 4"),
        ({"solution": ["4"], "level": [1, 2]}, r"the columns have different numbers of values: \[1, 2\]"),
        (DatasetDict(train=Dataset.from_list(ROWS)), "these are splits; give one of them: train"),
    ],
)
def test_data_that_is_no_data_set_is_refused(data, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_golds(data, DigitReward())


def test_settings_and_rewards_that_cannot_work_are_refused():
    async def waiting(completions, **columns):
        return [1.0]

    with pytest.raises(ValueError, match="max_rows=0 must be at least 1"):
        check_golds(ROWS, DigitReward(), max_rows=0)
    with pytest.raises(ValueError, match="batch_size=0 must be at least 1"):
        check_golds(ROWS, DigitReward(), batch_size=0)
    with pytest.raises(ValueError, match="check_golds got the coroutine waiting"):
        check_golds(ROWS, waiting)
    with pytest.raises(ValueError, match="check_golds got the class DigitReward"):
        check_golds(ROWS, DigitReward)
    with pytest.raises(ValueError, match="the reward f returned 1 rewards for 2 completions"):
        check_golds([ROWS[0], ROWS[1], ROWS[2]], _one)


def _one(completions, **columns):
    return [1.0]


_one.__name__ = "f"


@pytest.mark.parametrize(
    "name",
    "think_format_reward think_answer_format_reward tag_count_reward code_block_format_reward reasoning_steps_reward "
    "language_consistency_reward soft_overlong_reward repetition_penalty_reward".split(),
)
def test_reward_that_reads_no_golds_is_refused(name):
    for rows in ([{"solution": "4"}], [{"solution": None}, {"solution": "4"}]):
        with pytest.raises(NoGolds, match=f"^{name} reads no golds; check the reward for the answers"):
            check_golds(rows, getattr(reward_funcs, name))


@pytest.mark.parametrize(
    ("reward", "part"),
    [
        (CosineLengthReward(), "accuracy_reward"),
        (LengthPenaltyReward(), "accuracy_reward"),
        (CosineLengthReward(accuracy=exact_match_reward), "exact_match_reward"),
    ],
    ids=["cosine", "penalty", "cosine of a match"],
)
def test_reward_of_the_length_is_refused_with_its_part(reward, part):
    with pytest.raises(NoGolds, match=f"reads no golds of its own; check its accuracy part: {part}$"):
        check_golds(ROWS, reward)


def test_reward_with_a_column_of_golds_that_never_gets_one_is_no_mistake():
    assert check_golds([{"solution": None}], DigitReward()).unchecked == 1
    assert check_golds([{"target": 5, "nums": [2, 2]}], countdown_reward).unchecked == 1


def test_bug_in_the_reward_raises():
    with pytest.raises(ZeroDivisionError):
        check_golds(ROWS, lambda completions, **columns: [1 / 0])


# --- the report ---------------------------------------------------------------------------------------------------


def test_report_of_two_fields_can_be_made_by_hand():
    report = GoldReport(1.0, [])
    assert (report.rate, report.failures, report.causes) == (1.0, [], {})
    assert "of the golds score 1.0" in str(report)


def test_report_prints_rate_causes_and_the_first_rows():
    failures = [GoldFailure(i, f"g{i}", f"c{i}", 0.0, "wrong") for i in range(7)]
    failures.append(GoldFailure(9, "x", "c", None, "bad_gold"))
    lines = str(GoldReport(992 / 1000, failures, 1002, 2)).splitlines()
    assert lines == [
        "99.20 % of the golds score 1.0 against themselves: 992 of 1000, and 2 rows without a gold to check",
        "causes:",
        "  7  wrong",
        "  1  bad_gold",
        "rows:",
        *(f"  row {i}: 0 (wrong), gold g{i}, completion c{i}" for i in range(5)),
        "  and 3 more",
    ]
    assert GoldReport(0.0, failures, 8).text(rows=0).splitlines()[-1] == "  1  bad_gold"


def test_report_rounds_down_and_says_when_nothing_could_be_checked():
    assert str(GoldReport(99_999 / 100_000, [], 100_000)).startswith("100.00 %")
    failure = GoldFailure(1, "x", "c", 0.0, "wrong")
    assert str(GoldReport(99_999 / 100_000, [failure], 100_000)).startswith("99.99 %")
    report = check_golds([{"solution": None}], DigitReward())
    assert report.rate == 0.0
    assert str(report) == "0.00 % of the golds score 1.0 against themselves: 0 of 0, and 1 row without a gold to check"


def test_data_in_the_report_is_escaped_and_short():
    gold = "\x1b[31m\r\n\u202e\ud800\x00" + "9" * 1000
    (line,) = str(GoldFailure(0, gold, "\\boxed{中}", 0.0, "wrong")).splitlines()
    assert line.isprintable() and len(line) < 200
    assert r"gold \x1b[31m\r\n\u202e\ud800\x009" in line and r"completion \boxed{中}" in line
    assert shown({"a": None}) == "{'a': None}" and shown("x" * 61) == "x" * 60 + "..."


@pytest.mark.parametrize("gold", ["", "\x00", "\ud800", "x" * 100_000, "\\" * 1000, "{" * 1000])
def test_hostile_gold_is_judged_and_printed(gold):
    report = check_golds([{"solution": gold}], boxed_exactly)
    assert report.rate == 1.0 and str(report).isprintable()


def test_failures_are_plain_data():
    report = check_golds(ROWS, DigitReward())
    assert json.loads(json.dumps([vars(failure) for failure in report.failures]))[0]["gold"] == "x"


# --- with the rewards of the package ------------------------------------------------------------------------------

MATHS = [
    {"solution": "4", "source": "integers"},
    {"solution": r"\frac{1}{6}", "source": "bare LaTeX"},
    {"solution": r"$3\sqrt{5}$", "source": "dollars"},
    {"solution": "10,000", "source": "thousands"},
    {"solution": r"(1, \infty)", "source": "interval"},
    {"solution": "126", "source": "integers"},
    {"solution": None, "source": "null"},
]


@pytest.mark.parametrize("wrap", [lambda reward: reward, lambda reward: Sum([reward])], ids=["alone", "sum"])
def test_accuracy_reward_accepts_the_golds_of_maths(wrap):
    from reward_funcs import accuracy_reward

    try:
        report = check_golds(MATHS, wrap(accuracy_reward))
    finally:
        accuracy_reward.close()
    assert report.rate == 1.0 and report.unchecked == 1, str(report)


def test_batch_is_what_a_reward_grades():
    assert DigitReward().grade(Batch([r"\boxed{4}"], {"solution": ["4"]})) == [Grade(1.0, "right")]
