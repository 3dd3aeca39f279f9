"""The reward for constraints: forms of gold, strict and loose, what cannot be judged, and how TRL calls it."""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from reward_funcs.base import Batch, Grade
from reward_funcs.check import check_golds
from reward_funcs.instructions import CONSTRAINTS, InstructionReward, constraints_of, instruction_reward, kinds
from reward_funcs.instructions.golds import pairs
from reward_funcs.instructions.kinds import KINDS, BadConstraint
from reward_funcs.instructions.response import Response

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
NAMES = ["punctuation:no_comma", "keywords:word_once"]
GOLD = {"instruction_id": NAMES, "kwargs": [None, {"keyword": "tea", "letter": None}]}
UNKNOWN = {"instruction_id": ["words:start_verb", "punctuation:no_comma"], "kwargs": None}
BAD = {"instruction_id": ["keywords:word_once"], "kwargs": [{"keyword": None}]}


def graded(text: Any, gold: Any = GOLD, reward: InstructionReward = instruction_reward, **columns: Any) -> Grade:
    return reward.grade(Batch([text], {"solution": [gold], **columns}))[0]


def one(name: str, **arguments: Any) -> dict[str, Any]:
    return {"instruction_id": [name], "kwargs": [arguments]}


# ---- scores


@pytest.mark.parametrize(
    ("text", "share", "reason", "answer"),
    [
        ("Tea.", 1.0, "followed", "punctuation:no_comma yes, keywords:word_once yes"),
        ("Tea, hot.", 0.5, "partly_followed", "punctuation:no_comma no, keywords:word_once yes"),
        ("Well, no.", 0.0, "not_followed", "punctuation:no_comma no, keywords:word_once no"),
        (" \n", 0.0, "empty", "punctuation:no_comma no, keywords:word_once no"),
        (None, 0.0, "empty", "punctuation:no_comma no, keywords:word_once no"),
    ],
)
def test_reward_is_share_of_constraints_followed(text: Any, share: float, reason: str, answer: str) -> None:
    assert graded(text) == Grade(share, reason, answer)
    assert graded(text, reward=InstructionReward(score="all")) == Grade(float(share == 1), reason, answer)


def test_reward_of_three_constraints_is_a_third_each() -> None:
    gold = {"instruction_id": [*NAMES, "startend:quotation"], "kwargs": [*GOLD["kwargs"], {}]}
    assert [graded(text, gold).reward for text in ('"Tea"', "Tea", "Tea, hot", "Sky, hot")] == [1.0, 2 / 3, 1 / 3, 0.0]


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("Sure, here it is:\nTea.", one("punctuation:no_comma")),
        ("Tea.\nAnything else, friend?", one("punctuation:no_comma")),
        ("Sure, yes:\nTea.\nBye, friend.", one("punctuation:no_comma")),
        ('**"Tea."**', one("startend:quotation")),
        ('Sure:\n*"Tea."*', one("startend:quotation")),
        ('*"Tea."*\nBye', one("startend:quotation")),
        ('Sure:\n*"Tea."*\nBye', one("startend:quotation")),
    ],
)
def test_loose_mode_accepts_each_variant_that_strict_refuses(text: str, gold: Any) -> None:
    assert graded(text, gold).reward == 0.0
    assert graded(text, gold, InstructionReward(mode="loose")).reward == 1.0


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("One,\ntwo,\nthree,\nfour", one("punctuation:no_comma")),
        ("Tea, hot", one("punctuation:no_comma")),  # the variants without a line are empty
        ("*", one("punctuation:punctuation_dot") | {"instruction_id": ["format:thesis"]}),
    ],
)
def test_loose_mode_refuses_what_no_variant_follows(text: str, gold: Any) -> None:
    assert graded(text, gold, InstructionReward(mode="loose")).reward == 0.0


def test_loose_mode_takes_another_variant_for_each_constraint() -> None:
    gold = {"instruction_id": ["punctuation:no_comma", "keywords:existence"], "kwargs": [None, {"keywords": ["sure"]}]}
    assert graded("Sure, here:\nTea.", gold).reward == 0.5
    assert graded("Sure, here:\nTea.", gold, InstructionReward(mode="loose")).reward == 1.0


# ---- the think block


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<think>Well, tea, tea.</think>\n\nTea.", 1.0),
        ("<think>Tea</think>\n\n", 0.0),
        ("<think>Tea", 0.0),
        ("Well, tea</think>Tea", 1.0),
        ("Tea<|im_end|>", 1.0),
    ],
)
def test_what_stands_after_the_think_block_is_judged(text: str, reward: float) -> None:
    assert graded(text).reward == reward


def test_line_breaks_behind_the_think_block_are_no_part_of_the_response() -> None:
    text = "<think>x</think>\n\n  One.\n\nTwo."
    assert graded(text, one("paragraphs:paragraphs2")).reward == 1.0
    assert graded(text, one("format:line_indent")).reward == 0.0
    assert graded("<think>x</think>\n\n  a\n   b", one("format:line_indent")).reward == 1.0


def test_think_prefilled_counts_an_unclosed_completion_as_reasoning() -> None:
    prefilled = InstructionReward(think_prefilled=True)
    assert graded("Tea.", reward=prefilled) == Grade(0.0, "empty", "punctuation:no_comma no, keywords:word_once no")
    assert graded("Hm, tea</think>Tea.", reward=prefilled).reward == 1.0


# ---- forms of gold


@pytest.mark.parametrize(
    "gold",
    [
        GOLD,
        json.dumps(GOLD),
        [GOLD],
        [json.dumps(GOLD)],
        json.dumps([GOLD]),
        json.dumps([json.dumps(GOLD)]),
        str([GOLD]),  # as on the Hub, None and single quotes
        str([json.dumps(GOLD)]),  # the Hub's doubly encoded rows
        f"  {[GOLD]}\n",
        {"instruction_id_list": NAMES, "kwargs": GOLD["kwargs"]},
        GOLD | {"kwargs": [{}, {"keyword": "tea", "N": 5}]},
    ],
)
def test_gold_forms_say_the_same(gold: Any) -> None:
    assert [graded(text, gold).reward for text in ("Tea.", "Tea, hot.", "Well, no.")] == [1.0, 0.5, 0.0]


@pytest.mark.parametrize("kwargs", [None, [None], [{}], [{"letter": None}]])
def test_gold_without_arguments_is_read(kwargs: Any) -> None:
    assert graded("Tea", {"instruction_id": ["punctuation:no_comma"], "kwargs": kwargs}).reward == 1.0


def test_ifeval_rows_are_read_from_two_columns() -> None:
    rewards = instruction_reward(["Tea.", "Tea, hot."], instruction_id_list=[NAMES] * 2, kwargs=[GOLD["kwargs"]] * 2)
    assert rewards == [1.0, 0.5]
    renamed = InstructionReward(ids_column="names", kwargs_column="arguments")
    assert renamed(["Tea."], names=[NAMES], arguments=[GOLD["kwargs"]]) == [1.0]
    assert instruction_reward(["Tea."], instruction_id_list=[["punctuation:no_comma"]]) == [1.0]


def test_rows_of_a_mixture_may_have_either_form() -> None:
    rewards = instruction_reward(
        ["Tea.", "Well, no.", "Tea."],
        solution=[json.dumps(GOLD), None, None],
        instruction_id_list=[None, NAMES, None],
        kwargs=[None, GOLD["kwargs"], None],
    )
    assert rewards == [1.0, 0.0, None]


def test_gold_column_can_be_named_and_a_missing_one_is_an_error() -> None:
    assert InstructionReward("ground_truth")(["Tea."], ground_truth=[str([GOLD])]) == [1.0]
    with pytest.raises(ValueError, match=r"needs the column 'solution'; the columns here are ground_truth; name it"):
        instruction_reward(["Tea."], ground_truth=[str([GOLD])])


@pytest.mark.parametrize("arguments", [{"N": 2.0}, {"N": 2}, {"N": 2, "letter": None, "frequency": 9}])
def test_numbers_that_a_table_made_floats_are_whole(arguments: dict[str, Any]) -> None:
    assert graded("1 and 2", one("count:numbers", **arguments)).reward == 1.0


# ---- what cannot be judged


@pytest.mark.parametrize(
    "gold",
    [
        *(None, "", "tea", "[", "[]", "{}", "null", "[1]", 5, [], {}, "['tea']", "__import__('os')", "(" * 5000),
        *('{"instruction_id": []}', {"instruction_id": ["punctuation:no_comma"], "kwargs": []}),
        {"instruction_id": ["punctuation:no_comma"], "kwargs": [5]},
        {"instruction_id": [5], "kwargs": [None]},
        {"instruction_id": [" "], "kwargs": [None]},
        {"instruction_id": 5},
        "[" * 50_000,
        "-" * 50_000 + "1",
        " " * 100_001,
    ],
)
@pytest.mark.parametrize("text", ["Tea.", ""])
def test_gold_that_states_no_constraints_gives_none(gold: Any, text: str) -> None:
    assert graded(text, gold) == Grade(None, "bad_gold")


@pytest.mark.parametrize("text", ["Tea.", ""])
def test_unknown_constraint_gives_none_and_its_name(text: str) -> None:
    assert graded(text, UNKNOWN) == Grade(None, "unknown_constraint", "words:start_verb")


def test_unknown_constraint_can_be_ignored_where_another_is_known() -> None:
    ignoring = InstructionReward(unknown="ignore")
    answer = "words:start_verb unknown, punctuation:no_comma "
    assert graded("Tea.", UNKNOWN, ignoring) == Grade(1.0, "followed", answer + "yes")
    assert graded("Tea, hot.", UNKNOWN, ignoring) == Grade(0.0, "not_followed", answer + "no")
    assert graded("Tea.", one("words:start_verb"), ignoring) == Grade(None, "unknown_constraint", "words:start_verb")


@pytest.mark.parametrize("unknown", ["none", "ignore"])
def test_bad_arguments_give_none_and_the_constraint(unknown: Any) -> None:
    reward = InstructionReward(unknown=unknown)
    assert graded("Tea.", BAD, reward) == Grade(None, "bad_constraint", "keywords:word_once")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("count:numbers", {"N": -1}),
        ("count:numbers", {"N": 1.5}),
        ("count:numbers", {"N": True}),
        ("count:numbers", {"N": "2"}),
        ("count:numbers", {"N": float("nan")}),
        ("count:numbers", {"N": float("inf")}),
        ("count:words_japanese", {"N": 0}),
        ("keywords:frequency", {"keyword": "a", "frequency": 1, "relation": "more than"}),
        ("keywords:frequency", {"keyword": "a", "frequency": 1}),
        ("keywords:frequency", {"keyword": "a", "frequency": 1, "relation": ["at least"]}),
        ("keywords:existence", {"keywords": []}),
        ("keywords:existence", {"keywords": ["a", " "]}),
        ("keywords:existence", {"keywords": {"a": 1}}),
        ("keywords:letter_frequency", {"letter": "ab", "let_frequency": 1, "let_relation": "at least"}),
        ("language:response_language", {"language": "xx"}),
        ("language:response_language", {"language": 5}),
        ("ratio:stop_words", {"percentage": 101}),
        ("combination:repeat_prompt", {}),
        ("new:copy_span_idx", {"prompt_to_repeat": 5, "n_start": 0, "n_end": 1}),
    ],
)
def test_arguments_that_make_no_sense_are_bad(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(BadConstraint):
        KINDS[name].arguments(arguments)
    assert graded("Tea.", one(name, **arguments)).reason == "bad_constraint"


def test_check_golds_has_nothing_to_check_but_unreadable_golds() -> None:
    report = check_golds([{"solution": json.dumps(GOLD)}, {"solution": json.dumps(UNKNOWN)}], instruction_reward)
    assert (report.total, report.unchecked, report.failures) == (2, 2, [])
    assert instruction_reward.ideal(GOLD) is None


# ---- settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "strikt"}, r"mode='strikt': it must be one of 'strict', 'loose'; did you mean 'strict'\?"),
        ({"score": "share"}, r"score='share': it must be one of 'fraction', 'all'; leave it out"),
        ({"unknown": None}, r"unknown=None: it must be one of 'none', 'ignore'; leave it out"),
        ({"think_prefilled": "no"}, r"think_prefilled='no': it must be True or False"),
        ({"ids_column": ""}, r"ids_column='': it must be a name"),
        ({"kwargs_column": 5}, r"kwargs_column=5: it must be a name"),
        ({"solution_column": None}, r"solution_column=None: it must be a name"),
        ({"name": " "}, r"name=' ': it must be a name"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InstructionReward(**settings)


# ---- as TRL calls it


def test_reward_takes_texts_and_messages() -> None:
    blocks = [{"role": "assistant", "content": [{"type": "text", "text": "Tea."}]}]
    tools = [{"role": "assistant", "content": "Well, tea, tea"}, {"role": "tool", "content": "1"}, *blocks]
    completions = ["Tea.", [{"role": "assistant", "content": "Tea, hot."}], blocks, tools]
    assert instruction_reward(completions, solution=[GOLD] * 4) == [1.0, 0.5, 1.0, 1.0]


def test_reward_reports_each_constraint_and_each_none() -> None:
    extra: dict[str, list[Any]] = {}
    metrics: dict[str, float] = {}
    rewards = instruction_reward(
        completions=["Tea.", "Tea, hot.", "x", "x", "x"],
        prompts=["?"] * 5,
        completion_ids=[[1]] * 5,
        solution=[GOLD, GOLD, UNKNOWN, BAD, "?"],
        trainer_state=None,
        log_extra=extra.__setitem__,
        log_metric=metrics.__setitem__,
        source=["a"] * 5,
    )
    assert rewards == [1.0, 0.5, None, None, None]
    assert extra == {
        "instruction_reward/reason": [
            "followed", "partly_followed", "unknown_constraint", "bad_constraint", "bad_gold",
        ],
        "instruction_reward/answer": [
            "punctuation:no_comma yes, keywords:word_once yes",
            "punctuation:no_comma no, keywords:word_once yes",
            "words:start_verb",
            "keywords:word_once",
            None,
        ],
    }  # fmt: skip
    assert metrics == {
        "instruction_reward/followed/keywords:word_once": 1.0,
        "instruction_reward/followed/punctuation:no_comma": 0.5,
        "instruction_reward/none/bad_constraint": 1.0,
        "instruction_reward/none/bad_gold": 1.0,
        "instruction_reward/none/unknown_constraint": 1.0,
    }


def test_reward_of_an_empty_call_is_empty() -> None:
    assert instruction_reward([], solution=[]) == []


def test_order_of_the_batch_changes_nothing() -> None:
    texts = ["Tea.", "Tea, hot.", "Well, no.", "Tea.", ""]
    golds = [GOLD, json.dumps(GOLD), str([GOLD]), UNKNOWN, GOLD]
    alone = [instruction_reward([text], solution=[gold])[0] for text, gold in zip(texts, golds, strict=True)]
    assert alone == [1.0, 0.5, 0.0, None, 0.0]
    for order in itertools.permutations(range(5)):
        rewards = instruction_reward([texts[i] for i in order], solution=[golds[i] for i in order])
        assert rewards == [alone[i] for i in order]


def test_reward_pickles_with_its_settings() -> None:
    reward = InstructionReward("gold", mode="loose", score="all", unknown="ignore", name="mine")
    copy = pickle.loads(pickle.dumps(reward))
    assert repr(copy) == repr(reward)
    assert copy.__name__ == "mine"
    assert copy(["Sure, here:\nTea.", "Tea, hot"], gold=[GOLD, GOLD]) == [1.0, 0.0]


# ---- texts that are meant to be slow

ARGUMENTS = {
    kinds.count: 3,
    kinds.place: 2,
    kinds.share: 50.0,
    kinds.text: "word",
    kinds.whole_text: "a long request",
    kinds.texts: ("word", "tea"),
    kinds.letter: "e",
    kinds.relation: "at least",
    kinds.relation_or_equal: "equal",
    kinds.language: "en",
}
LENGTHS = [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)]
UNITS = (
    "[",
    "<",
    "*",
    "* ",
    "\n",
    " ",
    ". ",
    "a. ",
    "1.\n",
    "(",
    '"',
    "'",
    "P. ",
    "word x ",
    "Question 1.",
    "🙂",
    '"a,',
)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("unit", UNITS)
def test_long_text_is_checked_against_every_constraint(unit: str, length: int) -> None:
    response = Response(unit * (length // len(unit)) + "x")
    verdicts = {
        name: kind.check(response, **{key: ARGUMENTS[reader] for key, reader in kind.readers.items()})
        for name, kind in KINDS.items()
    }
    assert set(verdicts) == set(CONSTRAINTS)
    assert all(isinstance(verdict, bool) for verdict in verdicts.values())


@pytest.mark.parametrize("number", [10**30, 1e300])
def test_huge_numbers_are_compared_and_never_counted_out(number: float) -> None:
    gold = {
        "instruction_id": ["count:numbers", "count:words_japanese", "sentence:keyword", "new:copy_span_idx"],
        "kwargs": [
            {"N": number},
            {"N": number},
            {"N": number, "word": "tea"},
            {"prompt_to_repeat": "tea", "n_start": 0, "n_end": number},
        ],
    }
    assert graded("tea", gold).reward == 0.25


# ---- real data


def rows(name: str) -> list[dict[str, Any]]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("name", "num_rows", "num_names"), [("ifeval.jsonl", 541, 25), ("ifbench_test.jsonl", 100, 21)]
)
def test_every_constraint_of_the_real_prompts_can_be_checked(name: str, num_rows: int, num_names: int) -> None:
    found = [pairs(row["instruction_id_list"], row["kwargs"]) for row in rows(name)]
    assert len(found) == num_rows
    constraints = [constraint for one in found for constraint in one or ()]
    assert all(one is not None for one in found)
    assert all(constraint.kind is not None and constraint.arguments is not None for constraint in constraints)
    assert len({constraint.name for constraint in constraints}) == num_names


@pytest.mark.parametrize("name", ["ifeval.jsonl", "ifbench_test.jsonl"])
def test_real_rows_give_equal_rewards_in_every_form(name: str) -> None:
    data = rows(name)
    texts = [row["prompt"] for row in data]  # any text will do, and this one is as varied as the rows
    names, kwargs = [row["instruction_id_list"] for row in data], [row["kwargs"] for row in data]
    by_column = instruction_reward(texts, instruction_id_list=names, kwargs=kwargs)
    golds = [{"instruction_id": one, "kwargs": given} for one, given in zip(names, kwargs, strict=True)]
    assert None not in by_column
    assert 0 < sum(reward or 0 for reward in by_column) < len(data)
    for form in (golds, [json.dumps(gold) for gold in golds], [str([json.dumps(gold)]) for gold in golds]):
        assert instruction_reward(texts, solution=form) == by_column


def test_mocks_of_the_hub_are_read() -> None:
    data = rows("hub_schema_mocks/if_rlvr.jsonl")
    assert all(constraints_of(row["ground_truth"]) for row in data)


# ---- the page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "instructions.md"


def test_page_says_of_each_constraint_what_its_checker_says() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if re.match(r"\| `[\w-]+:[\w-]+` \|", line)]
    rows = []
    for name, kind in KINDS.items():
        arguments = ", ".join(f"`{argument}`" for argument in kind.readers) or "none"
        rows.append(f"| `{name}` | {arguments} | {' '.join((kind.check.__doc__ or '').split())} |")
    assert sorted(found) == sorted(rows)


def test_page_names_every_setting_with_its_default() -> None:
    page = PAGE.read_text(encoding="utf-8")
    parameters = inspect.signature(InstructionReward).parameters.values()
    defaults = {parameter.name: parameter.default for parameter in parameters if parameter.name != "name"}
    written = [
        f'`{name}="{value}"`' if isinstance(value, str) else f"`{name}={value}`" for name, value in defaults.items()
    ]
    assert len(written) == 7
    assert [text for text in written if text not in page] == []


def test_page_examples_print_what_the_comments_say() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)
    code = "\n".join(blocks)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(PAGE), "exec"), {})
    assert printed.getvalue().splitlines() == re.findall(r"  # (.+)", code)
