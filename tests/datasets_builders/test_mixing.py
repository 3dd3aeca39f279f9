from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import datasets
import pytest

from datasets_builders import mixing, registry
from datasets_builders.building import build, build_eval
from datasets_builders.mixing import mix, mix_with_report, plan, recipe
from datasets_builders.registry import BUILDERS, EVALUATION_SETS
from datasets_builders.schema import features, preference_row, row_errors


def raw(number: int, *, first: int = 0) -> list[dict[str, Any]]:
    return [{"question": f"What is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(first, first + number)]


@pytest.fixture
def gsm8k(jsonl: Any) -> dict[str, Any]:
    """`local_paths` of 30 rows of GSM8K."""
    return {"gsm8k": jsonl(raw(30), "gsm8k.jsonl")}


def sources(dataset: Any) -> dict[str, int]:
    return dict(Counter(dataset["source"][:]))


# Numbers and shares


def test_mix_takes_the_numbers_of_rows(gsm8k):
    dataset = mix({"gsm8k": 10, "countdown": 4, "arithmetic": 6}, seed=0, local_paths=gsm8k)
    assert sources(dataset) == {"gsm8k": 10, "countdown": 4, "arithmetic": 6}
    assert dataset.features == features("rl")
    assert not any(row_errors(row) for row in dataset)


def test_mix_is_shuffled_with_the_seed(gsm8k):
    weights = {"gsm8k": 10, "countdown": 10}
    one, same, other = (list(mix(weights, seed=seed, local_paths=gsm8k)) for seed in (0, 0, 1))
    assert one == same
    assert one != other
    assert [row["source"] for row in one] != ["gsm8k"] * 10 + ["countdown"] * 10


def test_mix_rows_of_a_source_do_not_depend_on_the_others(gsm8k):
    alone = {row["source_id"] for row in mix({"gsm8k": 10}, local_paths=gsm8k)}
    mixed = mix({"countdown": 3, "gsm8k": 10}, local_paths=gsm8k)
    assert {row["source_id"] for row in mixed if row["source"] == "gsm8k"} == alone
    assert alone == {row["source_id"] for row in build("gsm8k", local_path=gsm8k["gsm8k"], max_samples=10)}


def test_mix_shares_of_a_total_sum_to_it(gsm8k):
    weights = {"gsm8k": 1 / 3, "countdown": 1 / 3, "arithmetic": 1 / 3}
    counts = sources(mix(weights, total=20, local_paths=gsm8k))
    assert sum(counts.values()) == 20
    assert sorted(counts.values()) == [6, 7, 7]
    assert sources(mix({"gsm8k": 0.1, "countdown": 0.9}, total=10, local_paths=gsm8k)) == {"gsm8k": 1, "countdown": 9}


def test_mix_shares_without_a_total_take_the_most_that_all_can_serve(gsm8k):
    own = build("countdown", max_samples=12)
    dataset = mix({"gsm8k": 0.75, "mine": (own, 0.25)}, local_paths=gsm8k)
    assert sources(dataset) == {"gsm8k": 30, "countdown": 10}
    few = mix({"gsm8k": 0.25, "mine": (own, 0.75)}, local_paths=gsm8k)
    assert sources(few) == {"gsm8k": 4, "countdown": 12}
    # the rows are drawn, as they are where the total is known
    total = mix({"gsm8k": 0.25, "mine": (own, 0.75)}, total=16, local_paths=gsm8k)
    assert list(few) == list(total)


@pytest.mark.parametrize(
    ("weights", "total", "counts"),
    [
        ({"a": 0.5, "b": 0.5}, 3, {"a": 2, "b": 1}),
        ({"a": 0.29, "b": 0.71}, 100, {"a": 29, "b": 71}),
        ({"a": 0.7, "b": 0.2, "c": 0.1}, 10, {"a": 7, "b": 2, "c": 1}),
        ({"a": 1.0}, 7, {"a": 7}),
        ({"a": 3, "b": 4}, None, {"a": 3, "b": 4}),
        ({"a": 0.5, "b": 0.5}, None, None),
    ],
)
def test_counts_are_literal(weights, total, counts):
    assert mixing._counts(weights, total) == counts


@pytest.mark.parametrize(
    ("weights", "options", "message"),
    [
        ({"gsm8k": 5, "countdown": 0.5}, {}, "'gsm8k' has a number of rows and 'countdown' a share"),
        ({"gsm8k": 1, "countdown": 1.0}, {}, "'gsm8k' has a number of rows and 'countdown' a share"),
        ({"gsm8k": 0.5, "countdown": 0.4}, {"total": 9}, "the shares sum to 0.9 and must sum to 1"),
        ({"gsm8k": 0}, {}, "gsm8k: 0 must be a number of rows of at least 1, or a share in"),
        ({"gsm8k": -0.5}, {}, "gsm8k: -0.5 must be a number of rows"),
        ({"gsm8k": 1.5}, {}, "gsm8k: 1.5 must be a number of rows"),
        ({"gsm8k": True}, {}, "gsm8k: True must be a number of rows"),
        ({"gsm8k": float("nan")}, {}, "gsm8k: nan must be a number of rows"),
        ({"gsm8k": "many"}, {}, "gsm8k: 'many' must be a number of rows"),
        ({"gsm8k": 5}, {"total": 5}, "total=5 goes with shares"),
        ({"gsm8k": 1.0}, {"total": 0}, "total=0 must be a whole number of at least 1"),
        (
            {"gsm8k": 0.999, "countdown": 0.001},
            {"total": 10},
            "total=10 leaves no row for 'countdown' with a share of 0.001",
        ),
        ({}, {}, "must map names of sources to numbers"),
        (["gsm8k"], {}, "must map names of sources to numbers"),
        ({"gms8k": 5}, {}, "unknown source 'gms8k'; did you mean 'gsm8k'"),
        ({"math_500": 5}, {}, "'math_500' is an evaluation set"),
        (
            {"gsm8k": 5},
            {"local_paths": {"gms8k": "x"}},
            "local_paths names 'gms8k', which is not in the mixture; did you mean",
        ),
        ({"gsm8k": 5}, {"max_samples": 3}, "max_samples= is no argument of mix; give the number of rows"),
        ({"gsm8k": 5}, {"instrction": "none"}, "instrction= is no argument of mix; did you mean 'instruction'"),
        ({"gsm8k": 5}, {"streaming": True}, "streaming= is no argument of mix"),
        ({"gsm8k": 5}, {"repeat": True, "allow_fewer": True}, "exclude each other"),
        ({"gsm8k": 5, "hh_rlhf": 5}, {}, "several: rl: gsm8k; preference: hh_rlhf; make a mixture of each"),
        ({"gsm8k": 5, "mine": ([1], 5)}, {}, "mine: a pair needs a Dataset, not list"),
        ({"gsm8k": (None, 5)}, {}, "a pair needs a Dataset"),
    ],
)
def test_mix_wrong_argument_is_one_sentence(weights, options, message):
    with pytest.raises(ValueError, match=message):
        mix(weights, **options)


# Data sets of one's own, and too few rows


def test_mix_refuses_a_data_set_of_other_columns_or_types():
    other = datasets.Dataset.from_list([{"question": "q", "answer": "a"}])
    with pytest.raises(
        ValueError, match=r"mine: its columns are question, answer, and a mixture needs those of a builder"
    ):
        mix({"countdown": 1, "mine": (other, 1)})
    row = {**build("countdown", max_samples=1)[0], "prompt": "text"}
    with pytest.raises(ValueError, match=r"mine: its columns have other types"):
        mix({"countdown": 1, "mine": (datasets.Dataset.from_list([row]), 1)})
    pair = datasets.Dataset.from_list([preference_row("Q", "A", "B", source="s")])
    with pytest.raises(ValueError, match=r"rl: countdown; preference: mine"):
        mix({"countdown": 1, "mine": (pair, 1)})


def test_mix_takes_a_data_set_in_another_order_of_columns():
    row = build("countdown", max_samples=1)[0]
    own = datasets.Dataset.from_list([{name: row[name] for name in reversed(row)}])
    assert len(mix({"arithmetic": 1, "mine": (own, 1)})) == 2


def test_mix_of_too_few_rows_names_the_source_and_the_remedies(gsm8k):
    with pytest.raises(
        ValueError, match=r"'gsm8k' has 30 rows and 31 were asked for; .*allow_fewer=True .*repeat=True"
    ):
        mix({"gsm8k": 31, "countdown": 1}, local_paths=gsm8k)
    fewer = mix_with_report({"gsm8k": 31, "countdown": 1}, local_paths=gsm8k, allow_fewer=True)
    assert sources(fewer.dataset) == {"gsm8k": 30, "countdown": 1}
    assert fewer.report.warnings == ["gsm8k: max_samples=31 asks for more rows than there are, 30"]
    repeated = mix_with_report({"gsm8k": 61, "countdown": 1}, local_paths=gsm8k, repeat=True)
    times = Counter(row["source_id"] for row in repeated.dataset if row["source"] == "gsm8k")
    assert sorted(Counter(times.values()).items()) == [(2, 29), (3, 1)]
    assert "gsm8k: 30 rows were repeated to 61" in repeated.report.warnings


def test_mix_report_has_one_part_a_source(gsm8k):
    own = build("arithmetic", max_samples=5)
    mixed = mix_with_report(
        {"gsm8k": 10, "countdown": 4, "mine": (own, 2)}, seed=3, local_paths=gsm8k, instruction="none"
    )
    report = mixed.report.to_dict()
    assert (report["kept"], report["seed"], report["instruction"]) == (16, 3, "none")
    assert [(part["name"], part["loaded"], part["kept"]) for part in report["parts"]] == [
        ("gsm8k", 30, 10),
        ("countdown", 4, 4),
        ("mine", 5, 2),
    ]


# Sources that are streamed


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """GSM8K as if it were read as a stream by default."""
    source = replace(BUILDERS["gsm8k"], streaming=True)
    monkeypatch.setattr(
        "datasets_builders.mixing.source_of", lambda name: source if name == "gsm8k" else registry.BUILDERS[name]
    )


def test_mix_of_a_streamed_source_is_a_table(gsm8k, large, jsonl):
    weights = {"gsm8k": 10, "countdown": 5}
    dataset = mix(weights, local_paths=gsm8k)
    assert isinstance(dataset, datasets.Dataset)
    assert sources(dataset) == weights
    assert list(dataset) == list(mix(weights, local_paths=gsm8k))
    before = {row["source_id"] for row in dataset}
    jsonl(raw(30, first=100), "gsm8k.jsonl")
    assert before & {row["source_id"] for row in mix(weights, local_paths=gsm8k) if row["source"] == "gsm8k"} == set()
    with pytest.raises(ValueError, match=r"'gsm8k' has 30 rows and 31 were asked for"):
        mix({"gsm8k": 31}, local_paths=gsm8k)


def test_mix_of_a_streamed_source_needs_a_total_for_shares(gsm8k, large):
    with pytest.raises(ValueError, match=r"'gsm8k' is read as a stream, .*; give total= with the shares"):
        mix({"gsm8k": 0.5, "countdown": 0.5}, local_paths=gsm8k)
    assert len(mix({"gsm8k": 0.5, "countdown": 0.5}, total=8, local_paths=gsm8k)) == 8


def test_mix_of_a_streamed_source_without_rows_is_one_sentence(jsonl, large):
    path = jsonl([{"question": "q", "answer": "no mark"}])
    with pytest.raises(ValueError, match=r"no row of 'gsm8k' is left of 1 read \(no_answer 1\)"):
        mix({"gsm8k": 1}, local_paths={"gsm8k": path})


def test_mix_of_a_streamed_source_counts_what_it_read_from_the_cache_too(large, jsonl):
    paths = {"gsm8k": jsonl([*raw(30), {"question": "q", "answer": "no mark"}, *raw(1)])}
    for _ in range(2):  # the second time the rows are in the cache
        part = mix_with_report({"gsm8k": 10}, local_paths=paths).report.parts[0]
        assert (part.loaded, part.dropped, part.duplicates) == (32, {"no_answer": 1}, 1)
        assert (part.not_sampled, part.sampled, part.kept) == (20, 10, 10)


# Rows of evaluation sets


def test_mix_refuses_rows_of_an_evaluation_set(jsonl):
    problems = jsonl([{"problem": "What is 1 + 2?", "answer": "3"}], "eval.jsonl")
    held_out = build_eval("math_500", local_path=problems)
    with pytest.raises(ValueError, match=r"x: its rows are of 'math_500', an evaluation set, which never becomes"):
        mix({"x": (held_out, 1)})
    # without the mark, the column `source` tells
    with pytest.raises(ValueError, match=r"x: its rows are of 'math_500'"):
        mix({"x": (datasets.Dataset.from_list(held_out.to_list()), 1)})


def test_mix_tells_the_test_rows_of_gsm8k_from_those_for_training(gsm8k):
    held_out = build_eval("gsm8k", local_path=gsm8k["gsm8k"]).shuffle(seed=0).select(range(5))
    with pytest.raises(ValueError, match=r"x: its rows are of 'gsm8k', an evaluation set"):
        mix({"x": (held_out, 1)})
    assert len(mix({"x": (build("gsm8k", local_path=gsm8k["gsm8k"]), 1)})) == 1


def test_mix_of_generated_rows_has_as_many_as_asked_for():
    assert len(mix({"arithmetic": 80}, config="add_1")) == 80


# Recipes


def test_recipes_are_the_published_numbers():
    think, instruct = recipe("olmo3-think"), recipe("olmo3-instruct")
    assert sum(think.values()) == 104_869
    assert sum(instruct.values()) == 171_950
    assert think["if_rlvr"] == 30_186 and instruct["if_rlvr"] == 38_000
    assert set(think) - set(instruct) == {"acereason_math", "klear_code", "nemotron_code", "synthetic_2"}
    assert set(instruct) - set(think) == {"polaris"}
    maths = ("open_reasoner_zero", "dapo_math", "acereason_math", "polaris", "klear_math", "omega")
    assert [sum(mixture.get(name, 0) for name in maths) for mixture in (think, instruct)] == [30_186, 64_000]


def test_recipe_of_one_kind_leaves_out_the_others():
    assert set(recipe("olmo3-think")) - set(recipe("olmo3-think", kind="rl")) == {"nemotron_code"}
    assert sum(recipe("olmo3-think", kind="rl").values()) == 102_566
    assert recipe("olmo3-instruct", kind="rl") == recipe("olmo3-instruct")
    assert recipe("olmo3-think", kind="sft") == {"nemotron_code": 2_303}


def test_recipe_is_a_new_dict():
    recipe("olmo3-think").clear()
    assert len(recipe("olmo3-think")) == 13


def test_recipe_unknown_name_has_a_hint():
    with pytest.raises(ValueError, match=r"recipe 'olmo3_think' is unknown; did you mean 'olmo3-think'"):
        recipe("olmo3_think")
    with pytest.raises(ValueError, match=r"kind='math' is none of rl, sft, preference"):
        recipe("olmo3-think", kind="math")


def test_recipe_of_two_kinds_is_refused_by_mix():
    with pytest.raises(ValueError, match=r"sft: nemotron_code; make a mixture of each"):
        mix(recipe("olmo3-think"))


def test_plan_reads_nothing_and_names_the_facts():
    rows = plan(recipe("olmo3-instruct"))
    assert [row["source"] for row in rows] == list(recipe("olmo3-instruct"))
    assert sum(row["count"] for row in rows) == 171_950
    by_name = {row["source"]: row for row in rows}
    assert by_name["polaris"] == {
        "source": "polaris",
        "count": 14_000,
        "share": 14_000 / 171_950,
        "path": BUILDERS["polaris"].path,
        "licence": "apache-2.0",
        "task": "math",
        "kind": "rl",
        "size": BUILDERS["polaris"].size,
        "streaming": False,
        "note": BUILDERS["polaris"].note,
    }
    assert by_name["wildchat"]["streaming"] is True


def test_plan_of_shares_has_numbers_with_a_total_alone():
    weights = {"gsm8k": 0.25, "countdown": 0.75}
    assert [row["count"] for row in plan(weights)] == [None, None]
    assert [row["count"] for row in plan(weights, total=8)] == [2, 6]
    own = build("countdown", max_samples=2)
    assert plan({"mine": (own, 2)})[0] == {
        **{"source": "mine", "count": 2, "share": 1.0, "path": None, "licence": None, "task": None, "kind": "rl"},
        **{"size": None, "streaming": None, "note": None},
    }


def test_every_source_of_a_recipe_is_for_training():
    for name in mixing.RECIPES:
        assert set(recipe(name)) <= set(BUILDERS)
        assert not set(recipe(name)) & set(EVALUATION_SETS) - {"gsm8k"}
