import json
import pickle
import warnings

import pytest
from datasets import Dataset, DatasetDict

from datasets_builders.checks import (
    check_licence,
    deduplicate,
    difficulty,
    filter_language,
    filter_length,
    verify_golds,
)
from datasets_builders.schema import features, preference_row, rl_row
from datasets_builders.source import Source, conversion
from reward_funcs import GoldReport
from trl_ext.testing import tiny_tokenizer


def row(text="Why?", gold="$1$", task="math", **extra):
    return rl_row(text, gold, task=task, source="mine", **extra)


def dataset_of(rows):
    return Dataset.from_list(rows, features=features("rl"))


def places(rows):
    return [int(row["source_id"]) for row in rows]


# --- difficulty


def rated(*rates):
    return [row(source_id=place, difficulty=rate) for place, rate in enumerate(rates)]


def test_difficulty_keeps_pass_rates_within_the_bounds():
    kept, report = difficulty(rated(0.0, 0.1, 0.5, 0.625, 0.63, 1), low=0.1, high=0.625)
    assert places(kept) == [1, 2, 3]
    assert report == {"too_hard": 1, "too_easy": 2, "no_difficulty": 0, "unknown": 0}


def test_difficulty_without_bounds_keeps_everything():
    rows = rated(0.0, 1.0, None)
    assert difficulty(rows) == (rows, {"too_hard": 0, "too_easy": 0, "no_difficulty": 0, "unknown": 1})


@pytest.mark.parametrize(
    ("keep", "expected", "counts"),
    [(True, [0, 2], {"unknown": 2, "no_difficulty": 0}), (False, [], {"unknown": 0, "no_difficulty": 2})],
)
def test_difficulty_keeps_rows_without_one_as_asked(keep, expected, counts):
    kept, report = difficulty(rated(None, 1.0, None), high=0.9, keep_unknown=keep)
    assert places(kept) == expected
    assert report == {"too_hard": 0, "too_easy": 1, **counts}


def test_difficulty_where_no_row_has_one_is_an_error():
    with pytest.raises(ValueError, match=r"no row has a difficulty in its column 'extra'; leave this check out"):
        difficulty(rated(None, None), high=0.5)
    assert difficulty([], high=0.5)[0] == []


@pytest.mark.parametrize("rate", [1.5, -0.1, True, "0.5", float("nan")])
def test_difficulty_that_is_no_share_is_an_error(rate):
    with pytest.raises(ValueError, match=r"difficulty=.* must be a pass rate from 0 to 1"):
        difficulty([{"extra": json.dumps({"difficulty": rate})}])


@pytest.mark.parametrize("extra", ["", "[]", "{", None])
def test_difficulty_of_a_row_without_a_json_object_is_an_error(extra):
    with pytest.raises(ValueError, match=r"extra=.* must be a JSON object; build the row again"):
        difficulty([{"extra": extra}])


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"low": -0.1}, r"low=-0\.1 must be a pass rate from 0 to 1"),
        ({"high": 62.5}, r"high=62\.5 must be a pass rate"),
        ({"high": True}, r"high=True must be"),
        ({"low": 0.9, "high": 0.1}, r"low=0\.9 is above high=0\.1"),
    ],
)
def test_difficulty_with_bad_bounds_is_an_error(bounds, message):
    with pytest.raises(ValueError, match=message):
        difficulty(rated(0.5), **bounds)


# --- length


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


def test_filter_length_counts_tokens_of_the_whole_template(tokenizer):
    rows = [row("a b c d e f g h " * repeats, source_id=repeats) for repeats in (1, 3, 9, 30)]
    turns = [{"role": "system", "content": "Think hard and long. " * 8}, {"role": "user", "content": "a b c"}]
    rows.append(row(turns, source_id=31))
    template = [tokenizer.apply_chat_template(one["prompt"], add_generation_prompt=True)["input_ids"] for one in rows]
    lengths = list(map(len, template))
    assert lengths[0] < lengths[1] < lengths[2] < lengths[3]
    kept, report = filter_length(rows, tokenizer, lengths[1])
    assert places(kept) == [one for one, length in zip((1, 3, 9, 30, 31), lengths, strict=True) if length <= lengths[1]]
    assert report["too_long"] == 5 - len(kept) >= 2
    assert 3 not in places(filter_length(rows, tokenizer, lengths[1] - 1)[0])
    assert filter_length(rows, tokenizer, max(lengths)) == (rows, {"too_long": 0})


@pytest.mark.parametrize("limit", [0, -3, 2.0, True, None])
def test_filter_length_with_a_bad_limit_is_an_error(limit, tokenizer):
    with pytest.raises(ValueError, match=f"max_prompt_tokens={limit} must be a whole number of at least 1"):
        filter_length([row()], tokenizer, limit)


def test_filter_length_without_a_chat_template_is_an_error():
    class Bare:
        name_or_path = "someone/base"
        chat_template = None

    with pytest.raises(ValueError, match="tokenizer='someone/base' has no chat template; take that of an instruct"):
        filter_length([row()], Bare(), 8)


# --- language

TEXTS = {
    "en": "Find the largest whole number that divides all of these.",
    "zh": "求能整除所有这些数的最大整数，并说明理由。",
    "ru": "Найдите наибольшее целое число, которое делит все эти числа.",
    "formula": r"$x^2 + \sin(x) = 3$",
    "mixed": "求最大整数并说明理由 Find the largest whole number that divides all of these.",
    "empty": "",
}


def in_languages(languages, **settings):
    rows = [row(text, source_id=place) for place, text in enumerate(TEXTS.values())]
    kept, report = filter_language(rows, languages, **settings)
    return [list(TEXTS)[place] for place in places(kept)], report


@pytest.mark.parametrize(
    ("languages", "expected"),
    [
        (["en"], ["en", "formula", "mixed", "empty"]),
        (["zh-CN"], ["zh", "formula", "empty"]),
        ("Russian", ["ru", "formula", "empty"]),
        (["en", "zh"], ["en", "zh", "formula", "mixed", "empty"]),
    ],
)
def test_filter_language_keeps_languages_asked_for_and_what_has_none(languages, expected):
    kept, report = in_languages(languages, candidates=())
    assert kept == expected
    assert report == {"other_language": 6 - len(expected), "unknown": 2}


def test_filter_language_reads_the_share_and_the_number_of_words():
    assert "mixed" not in in_languages(["en"], candidates=(), min_share=0.9)[0]
    kept, report = in_languages(["en"], candidates=(), min_words=50)
    assert (kept, report) == (list(TEXTS), {"other_language": 0, "unknown": 6})


def test_filter_language_tells_languages_of_one_script_apart():
    pytest.importorskip("py3langid")
    german = "Bestimmen Sie die größte ganze Zahl, durch die alle diese Zahlen ohne Rest teilbar sind."
    rows = [row(TEXTS["en"]), row(german)]
    assert filter_language(rows, ["de"]) == (rows[1:], {"other_language": 1, "unknown": 0})
    assert filter_language(rows, ["en"]) == (rows[:1], {"other_language": 1, "unknown": 0})
    assert filter_language(rows, ["en", "de"])[0] == rows


@pytest.mark.parametrize(
    ("languages", "settings", "message"),
    [
        (["Germn"], {}, r"languages must be .* not 'Germn'; did you mean 'german'\?"),
        ([], {}, r"languages names none; give at least one"),
        (["en"], {"min_share": 0}, r"min_share=0 must be a share"),
        (["en"], {"min_share": 2}, r"min_share=2 must be a share"),
        (["en"], {"min_words": 0}, r"min_words=0 must be a whole number"),
        (["en"], {"candidates": "de"}, r"candidates must be a list"),
    ],
)
def test_filter_language_with_bad_settings_is_an_error(languages, settings, message):
    with pytest.raises(ValueError, match=message):
        filter_language([row(TEXTS["en"])], languages, **settings)


# --- rows one by one: streams


@pytest.mark.parametrize(
    "check",
    [
        lambda rows: difficulty(rows, low=0.3),
        lambda rows: filter_length(rows, tiny_tokenizer(), 40),
        lambda rows: filter_language(rows, ["zh"], candidates=()),
    ],
)
def test_filter_of_a_stream_gives_what_it_gives_of_a_dataset(check):
    texts = list(TEXTS.values())
    rows = [row(texts[i % 6] * (i % 7), source_id=i, difficulty=(i % 11) / 10 or None) for i in range(2100)]
    dataset = dataset_of(rows)
    kept, report = check(dataset)
    assert 0 < len(kept) < 2100
    assert kept.features == dataset.features
    stream, stream_report = check(dataset.to_iterable_dataset(num_shards=2))
    assert set(stream_report.values()) == {0}
    assert list(stream) == kept.to_list()
    assert stream_report == report
    assert len(list(pickle.loads(pickle.dumps(stream)))) == len(kept)
    assert stream_report == report  # a copy counts for itself
    assert check(rows) == (kept.to_list(), report)


@pytest.mark.parametrize(
    ("check", "column"),
    [
        (difficulty, "extra"),
        (lambda rows: filter_length(rows, tiny_tokenizer(), 8), "prompt"),
        (lambda rows: filter_language(rows, ["en"]), "prompt"),
        (verify_golds, "solution"),
    ],
)
def test_check_of_data_without_its_column_is_an_error(check, column):
    data = Dataset.from_list([{"question": "Why?"}])
    with pytest.raises(ValueError, match=f"needs the column '{column}', and the data has question; build it"):
        check(data)
    with pytest.raises(ValueError, match="the data is a dict of train; give one split"):
        check(DatasetDict({"train": data}))


@pytest.mark.parametrize(
    "bad", [None, 5, [None], [{"role": "user"}], [{"role": "user", "content": None}], [{"role": "user", "content": 5}]]
)
@pytest.mark.parametrize("check", [deduplicate, lambda rows: filter_language(rows, ["en"])])
def test_prompt_without_text_is_named(check, bad):
    with pytest.raises(ValueError, match=r"prompt.* must be a (text|turn)"):
        check([{"prompt": bad}])


@pytest.mark.parametrize("columns", [{"completion": None}, {"chosen": None, "rejected": "b"}])
def test_reply_without_text_is_named(columns):
    with pytest.raises(ValueError, match="the reply None of a row must be a text or a list of turns"):
        deduplicate([{"prompt": "a", **columns}])


# --- licences


@conversion
def convert(raw):
    """Never called."""


@pytest.mark.parametrize(
    "licence",
    [
        "cc-by-nc-4.0",
        "CC BY-NC-SA 4.0",
        "CC BY NC",
        "CC-BY-NC4.0",
        "cc_by_nc_4.0",
        "non-commercial use",
        "NonCommercial",
        "non_commercial",
        "Non – Commercial use",
        "NON\u00a0COMMERCIAL",
        "research-only",
        "Academic research only",
        "for research purposes only",
        "not for commercial use",
    ],
)
def test_noncommercial_licence_is_refused_unless_allowed(licence):
    with pytest.raises(ValueError, match=r"^the licence .* forbids commercial use; pass allow_noncommercial=True"):
        check_licence(licence)
    source = Source("mine", convert, task="math", licence=licence)
    with pytest.raises(ValueError, match=r"^mine: the licence "):
        check_licence(source, allow_noncommercial=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_licence(source, allow_noncommercial=True)


@pytest.mark.parametrize(
    "licence", ["mit", "apache-2.0", "odc-by", "CC-BY-SA-4.0", "ncsa", "Once free", "Commercial use allowed"]
)
def test_other_licence_passes_in_silence(licence):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_licence(licence)


@pytest.mark.parametrize("licence", ["unknown", "", " Other "])
def test_unknown_licence_is_a_warning(licence):
    with pytest.warns(UserWarning, match="no licence is stated"):
        check_licence(licence)
    with pytest.warns(UserWarning, match=r"^mine: no licence is stated"):
        check_licence(Source("mine", convert, task="math", licence=licence))


def test_licence_that_is_no_text_is_an_error():
    with pytest.raises(ValueError, match="source=None must be a Source or the text of a licence"):
        check_licence(None)


# --- golds

GOLDS = [
    row("1", "$4$"),
    row("2", r"$\frac{1}{2}$"),
    row("3", r"$\frac{1}{$"),
    row("4", "B", task="choice", choices=["one", "two", "three"]),
    row("5", "Z", task="choice", choices=["one", "two", "three"]),
    row("6", '{"target": 24, "nums": [4, 6]}', task="countdown"),
    row("7", '{"target": 24, "nums": [1, 1]}', task="countdown"),
    row("8", '{"asserts": ["assert f(1) == 2"]}', task="code"),
    row("9", "assert f(1) == 2", task="code"),
    row("10", '{"instruction_id": ["punctuation:no_comma"], "kwargs": [{}]}', task="instruction"),
    row("11", "Muscles", task="judge"),
]


@pytest.mark.parametrize("data", [GOLDS, dataset_of(GOLDS)], ids=["list", "dataset"])
def test_verify_golds_grades_each_task_with_its_reward(data):
    same, reports = verify_golds(data)
    assert same is data
    found = {task: (report.total, [failure.row for failure in report.failures]) for task, report in reports.items()}
    assert found == {
        "math": (3, [2]),
        "choice": (2, [4]),
        "countdown": (2, [6]),
        "code": (2, [8]),
        "instruction": (1, []),
        "judge": (1, []),
    }
    assert isinstance(reports["math"], GoldReport)
    assert reports["math"].rate == pytest.approx(2 / 3)
    (failure,) = reports["code"].failures
    assert failure.name == f"mine/{GOLDS[8]['source_id']}"
    assert (failure.gold, failure.reason) == ("assert f(1) == 2", "no_json")
    assert str(failure).startswith("row 8: None (no_json)")
    assert failure.name in str(reports["code"])


def test_verify_golds_drops_failing_rows_on_request():
    data = dataset_of(GOLDS)
    kept, reports = verify_golds(data, drop_failing=True)
    assert [one["prompt"][0]["content"] for one in kept] == ["1", "2", "4", "6", "8", "10", "11"]
    assert sum(len(report.failures) for report in reports.values()) == 4
    again, reports = verify_golds(kept)
    assert again is kept
    assert {report.rate for report in reports.values()} == {1.0}


def test_verify_golds_numbers_rows_over_several_batches():
    rows = [
        row(str(i), "B" if i % 2 else "$4$", task="choice" if i % 2 else "math", choices=["x", "y"])
        for i in range(2500)
    ]
    rows[2301] = row("2301", "C", task="choice", choices=["x", "y"])
    _, reports = verify_golds(dataset_of(rows))
    assert [(task, report.total) for task, report in reports.items()] == [("math", 1250), ("choice", 1250)]
    assert [failure.row for failure in reports["choice"].failures] == [2301]
    assert reports["math"].failures == []


def test_verify_golds_fails_golds_that_nothing_can_answer():
    golds = {"math": ["$$", "$4$"], "countdown": ['{"target": 5, "nums": [2, 2]}', '{"nums": [2]}', "{", "", "5"]}
    seven = json.dumps({"target": 7, "nums": [1] * 7})
    rows = [{"solution": gold, "task": task} for task in golds for gold in golds[task]]
    kept, reports = verify_golds([*rows, {"solution": seven, "task": "countdown"}], drop_failing=True)
    assert [one["solution"] for one in kept] == ["$4$", seven]
    assert [(failure.row, failure.reason) for failure in reports["math"].failures] == [(0, "no_answer_exists")]
    assert [failure.row for failure in reports["countdown"].failures] == [2, 3, 4, 5, 6]
    assert [(report.rate, report.unchecked) for report in reports.values()] == [(0.5, 0), (0.0, 1)]


@pytest.mark.parametrize(
    ("task", "gold", "fault"),
    [
        ("code", '{"asserts": ["assert f(1) == 2"]}', None),
        ("code", '{"inputs": ["1"], "outputs": ["2"], "timeout": 3}', None),
        ("code", '{"inputs": [[1]], "outputs": [2], "fn_name": "f"}', None),
        ("code", '{"pytest": "def test_f(): assert f(1) == 2"}', None),
        ("code", "{}", "no_tests"),
        ("code", '{"asserts": []}', "no_tests"),
        ("code", '{"asserts": "assert f(1) == 2"}', "no_tests"),
        ("code", '{"asserts": ["assert f(1) == 2", " "]}', "no_tests"),
        ("code", '{"pytest": ""}', "no_tests"),
        ("code", '{"inputs": [], "outputs": []}', "no_tests"),
        ("code", '{"inputs": ["1", "2"], "outputs": ["2"]}', "no_tests"),
        ("code", '{"inputs": ["1"], "outputs": ["2"], "fn_name": ""}', None),
        ("code", '{"inputs": ["1"], "outputs": ["2"], "fn_name": null}', None),
        ("code", '{"inputs": ["1"], "outputs": ["2"], "asserts": null, "pytest": null}', None),
        ("code", '{"inputs": ["1"], "outputs": ["2"], "asserts": ["assert f(1) == 2"]}', "no_tests"),
        ("code", '{"inputs": [1], "outputs": ["2"]}', "no_tests"),
        ("code", '{"inputs": ["1"], "outputs": [""]}', "no_tests"),
        ("code", '{"inputs": [[1]], "outputs": [2], "fn_name": "f g"}', "no_tests"),
        ("code", '{"inputs": [[1]], "outputs": [2], "fn_name": "class"}', "no_tests"),
        ("code", '{"inputs": [[1]], "outputs": [' + "[" * 900 + "]" * 900 + '], "fn_name": "f"}', "no_tests"),
        ("code", '{"asserts": ["x ="]}', "bad_test"),
        ("code", '{"asserts": ["assert True"]}', "bad_test"),
        ("code", '{"asserts": ["import numpy\\nassert f(1) == 2"]}', "unsupported_test"),
        ("code", '{"pytest": "x ="}', "bad_test"),
        ("code", '["assert f(1) == 2"]', "no_object"),
        ("code", "[" * 100_000, "no_json"),
        (
            "instruction",
            '{"instruction_id": ["punctuation:no_comma", "keywords:word_once"], "kwargs": [null, {"keyword": "tea"}]}',
            None,
        ),
        ("instruction", '{"instruction_id": ["a", "b"], "kwargs": [null, {"n": 1}]}', "unknown_constraint"),
        ("instruction", '{"instruction_id": ["keywords:word_once"], "kwargs": [null]}', "bad_constraint"),
        ("instruction", json.dumps({"instruction_id": ["x" * 200_000], "kwargs": [{}]}), "bad_gold"),
        ("instruction", '{"instruction_id": [], "kwargs": []}', "no_instructions"),
        ("instruction", '{"instruction_id": ["a"]}', "no_instructions"),
        ("instruction", '{"instruction_id": ["a"], "kwargs": []}', "unequal_lengths"),
        ("instruction", '{"instruction_id": [1], "kwargs": [{}]}', "malformed"),
        ("instruction", '{"instruction_id": ["a"], "kwargs": ["n=1"]}', "malformed"),
        ("judge", "Western blot", None),
        ("judge", " \n", "empty"),
        ("code", "", "empty"),
        ("instruction", None, "empty"),
    ],
)
def test_verify_golds_checks_the_form_of_tests_and_constraints(task, gold, fault):
    _, reports = verify_golds([{"solution": gold, "task": task}])
    assert [failure.reason for failure in reports[task].failures] == ([fault] if fault else [])


@pytest.mark.parametrize(
    "gold",
    [
        {"asserts": ["assert f(1) == 2"]},
        {"asserts": ["assert f(1) == 2"], "inputs": None},
        {"asserts": ["x ="]},
        {"asserts": ["assert np.ones(1) == f(1)"]},
        {"asserts": [5]},
        {"inputs": ["1"], "outputs": ["2"], "fn_name": None},
        {"inputs": ["a"], "outputs": ["2"], "fn_name": "f"},
        {"inputs": [[1]], "outputs": [float("nan")], "fn_name": "f"},
        {"pytest": ["def test_f(): pass"]},
    ],
)
def test_verify_golds_says_of_tests_what_the_reward_says(gold):
    from reward_funcs.code import CodeReward

    text = json.dumps(gold)
    _, reports = verify_golds([{"solution": text, "task": "code"}])
    # without a program nothing is run, and a gold that judges gives 0
    (grade,) = CodeReward(timeout=30.0)(["```python\nx = 1\n```"], solution=[text])
    assert (grade is None) == bool(reports["code"].failures)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "verify_golds: the data set holds no rows"),
        (dataset_of(GOLDS).select([]), "verify_golds: the data set holds no rows"),
        (dataset_of(GOLDS).to_iterable_dataset(), "verify_golds needs all rows at once and cannot read a stream"),
        ([preference_row("a", "b", "c", source="mine")], "verify_golds needs the column 'solution'"),
        ([row(task="sft")], r"row 0 has the task 'sft', which has no golds; the tasks that have some are math, choice"),
    ],
)
def test_verify_golds_of_data_without_golds_is_an_error(data, message):
    with pytest.raises(ValueError, match=message):
        verify_golds(data)
