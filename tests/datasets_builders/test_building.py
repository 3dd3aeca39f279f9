from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pytest

from datasets_builders import converting
from datasets_builders.building import build, build_eval, build_with_report
from datasets_builders.instructions import instruction_text
from datasets_builders.local_files import file_hash
from datasets_builders.registry import BUILDERS, EVALUATION_SETS
from datasets_builders.schema import features, row_errors, user
from datasets_builders.source import Source, conversion

ROOT = Path(__file__).resolve().parents[2]
BOXED = "\n\n" + instruction_text("math")


def raw(number: int, *, first: int = 0) -> list[dict[str, Any]]:
    """Raw rows of GSM8K that are all different."""
    return [{"question": f"What is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(first, first + number)]


def questions(dataset: Any) -> list[str]:
    return [row["prompt"][-1]["content"].removesuffix(BOXED) for row in dataset]


@conversion
def convert(row: Any) -> Any:
    """Rows of any kind: the raw row is what comes out."""
    return row["row"]


OWN = Source("own", convert, "math", "mit", columns=("row",))


def own_row(**changed: Any) -> dict[str, Any]:
    row = {"prompt": user("Q"), "solution": "1", "task": "math", "source": "own", "source_id": "1", "extra": "{}"}
    return {"row": {**row, **changed}}


# Rows and counts


def test_build_rows_are_literal(jsonl):
    rows = [
        {"question": "A farm sells 1200 eggs.\n", "answer": "1200/4 = <<1200/4=300>>300\n#### 300"},
        {"question": "No mark", "answer": "no mark"},
        {"question": "a farm sells 1200 eggs", "answer": "#### 300"},
        {"question": "Two answers", "answer": "#### 1"},
        {"question": "Two  answers!", "answer": "#### 2"},
        {"question": 5, "answer": "#### 2"},
        {"question": "half \ud800", "answer": "#### 2"},
        {"question": " ", "answer": "#### 2"},
        {"question": "How much?", "answer": "#### 2,500"},
    ]
    path = jsonl([])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    built = build_with_report("gsm8k", local_path=path)
    assert list(built.dataset) == [
        {
            "prompt": user("A farm sells 1200 eggs." + BOXED),
            "solution": "$300$",
            "task": "math",
            "source": "gsm8k",
            "source_id": built.dataset[0]["source_id"],
            "extra": '{"answer": "300", "worked": "1200/4 = 300"}',
        },
        {
            "prompt": user("How much?" + BOXED),
            "solution": "$2500$",
            "task": "math",
            "source": "gsm8k",
            "source_id": built.dataset[1]["source_id"],
            "extra": '{"answer": "2,500", "worked": ""}',
        },
    ]
    report = built.report.to_dict()
    assert report == {
        "name": "gsm8k",
        "task": "math",
        "path": "openai/gsm8k",
        "config": None,
        "split": "train",
        "revision": None,
        "revision_resolved": None,
        "licence": "mit",
        "local_files": ["rows.jsonl"],
        "files_hash": file_hash([path]),
        "deduplicate": True,
        "instruction": "boxed",
        "system_prompt": None,
        "seed": 42,
        "max_samples": None,
        "streaming": False,
        "loaded": 9,
        "dropped": {"no_answer": 1, "malformed": 1, "not_unicode": 1, "no_prompt": 1},
        "duplicates": 1,
        "disagreeing": 2,
        "sampled": None,
        "not_sampled": 0,
        "kept": 2,
        "complete": True,
        "warnings": [],
    }
    assert json.loads(json.dumps(report)) == report


def test_build_features_are_those_of_the_kind(jsonl):
    for streaming in (False, True):
        dataset = build("gsm8k", local_path=jsonl(raw(3)), streaming=streaming)
        assert dataset.features == features("rl")
        assert [row_errors(row) for row in dataset] == [[], [], []]


def test_build_is_stable_over_parquet_and_disk(jsonl, tmp_path):
    dataset = build("gsm8k", local_path=jsonl(raw(20)), max_samples=7)
    dataset.to_parquet(str(tmp_path / "a.parquet"))
    again = datasets.load_dataset("parquet", data_files=str(tmp_path / "a.parquet"), split="train")
    assert (again.features, list(again)) == (dataset.features, list(dataset))
    dataset.save_to_disk(str(tmp_path / "disk"))
    assert list(datasets.load_from_disk(str(tmp_path / "disk"))) == list(dataset)


def test_build_rows_of_different_sources_concatenate(jsonl):
    one, two = build("gsm8k", local_path=jsonl(raw(2))), build("countdown", max_samples=2)
    assert datasets.concatenate_datasets([one, two])["task"][:] == ["math", "math", "countdown", "countdown"]


def test_build_without_duplicates_removed_keeps_all(jsonl):
    path = jsonl([*raw(2), *raw(2)])
    assert len(build("gsm8k", local_path=path)) == 2
    assert len(build("gsm8k", local_path=path, deduplicate=False)) == 4


def test_build_instruction_and_system_prompt(jsonl):
    path = jsonl(raw(1))
    for streaming in (False, True):
        row = next(iter(build("gsm8k", local_path=path, instruction=None, streaming=streaming)))
        assert row["prompt"] == user("What is 0 + 1?")
        options = {"instruction": "think_answer", "system_prompt": "Be kind.", "streaming": streaming}
        row = next(iter(build("gsm8k", local_path=path, **options)))
        tags = instruction_text("math", "", "think_answer")
        assert row["prompt"] == [{"role": "system", "content": "Be kind."}, *user(f"What is 0 + 1?\n\n{tags}")]
    assert build("gsm8k", local_path=path, instruction="none", system_prompt="S")[0]["prompt"][0]["content"] == "S"


def test_build_max_samples_draws_in_drawn_order(jsonl):
    path = jsonl(raw(50))
    every = questions(build("gsm8k", local_path=path))
    assert every == [row["question"] for row in raw(50)]
    built = build_with_report("gsm8k", local_path=path, max_samples=10, seed=1)
    drawn = questions(built.dataset)
    assert len(set(drawn)) == 10 and set(drawn) <= set(every)
    assert drawn != sorted(drawn, key=every.index)
    assert drawn == questions(build("gsm8k", local_path=path, max_samples=10, seed=1))
    assert drawn != questions(build("gsm8k", local_path=path, max_samples=10, seed=2))
    assert (built.report.sampled, built.report.not_sampled, built.report.kept) == (10, 40, 10)


def test_build_max_samples_above_the_rows_gives_all_and_a_warning(jsonl):
    built = build_with_report("gsm8k", local_path=jsonl(raw(3)), max_samples=5)
    assert sorted(questions(built.dataset)) == [row["question"] for row in raw(3)]
    assert built.report.warnings == ["gsm8k: max_samples=5 asks for more rows than there are, 3"]


def test_build_of_a_hub_folder_equals_the_local_copy(hub, jsonl):
    rows = raw(30)
    source = replace(
        BUILDERS["gsm8k"], revision=None, path=hub({"main": {"train": rows, "test": raw(2)}}, suffix="parquet")
    )
    expected = list(build("gsm8k", local_path=jsonl(rows), max_samples=9))
    assert list(build(source, max_samples=9)) == expected
    assert list(build("gsm8k", local_path=source.path, max_samples=9)) == expected


def test_build_on_two_processes_is_the_same(jsonl):
    bad = [{"question": "bad", "answer": "x"}]
    path = jsonl([*raw(700), *bad, *raw(400, first=700), *raw(300), *bad])
    one = build_with_report("gsm8k", local_path=path, max_samples=500, system_prompt="S")
    datasets.disable_caching()
    try:
        two = build_with_report("gsm8k", local_path=path, max_samples=500, system_prompt="S", num_proc=2)
    finally:
        datasets.enable_caching()
    assert list(one.dataset) == list(two.dataset)
    assert one.report == two.report
    assert one.report.dropped == {"no_answer": 2}
    assert one.dataset._fingerprint == two.dataset._fingerprint


def test_build_of_one_row_on_more_processes_than_rows(jsonl):
    assert len(build("gsm8k", local_path=jsonl(raw(1)), num_proc=4)) == 1


# Procedural sources


def test_build_of_a_procedural_source_takes_the_first_rows():
    few, more = build("countdown", max_samples=5), build("countdown", max_samples=9)
    assert list(few) == list(more)[:5]
    assert list(few) != list(build("countdown", max_samples=5, seed=1))
    assert not {row["solution"] for row in few} & {
        row["solution"] for row in build("countdown", split="test", max_samples=5)
    }
    assert list(build("countdown", max_samples=5, streaming=True)) == list(few)


def test_build_of_a_procedural_source_takes_a_configuration():
    rows = build("arithmetic", config="add_1", max_samples=20, deduplicate=False)
    assert len(rows) == 20
    assert {json.loads(row["extra"])["level"] for row in rows} == {"add_1"}
    with pytest.raises(ValueError, match=r"config='ad_1'"):
        build("arithmetic", config="ad_1")


# The cache


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that were converted, one after another."""
    sizes: list[int] = []
    original = converting.converted_rows

    def counted(batch: Any, source: Source, seed: int = 42) -> Any:
        sizes.append(len(next(iter(batch.values()))))
        return original(batch, source, seed)

    monkeypatch.setattr(converting, "converted_rows", counted)
    return sizes


def test_build_again_takes_the_conversion_from_the_cache(jsonl, conversions, monkeypatch):
    path = jsonl(raw(30))
    first = build("gsm8k", local_path=path)
    assert conversions == [30]
    again = build("gsm8k", local_path=path)
    assert conversions == [30]
    assert first._fingerprint == again._fingerprint
    # another sample, preset or seed is made from the same conversion
    build("gsm8k", local_path=path, max_samples=3, instruction="think_answer", seed=5)
    assert conversions == [30]
    monkeypatch.setattr(converting, "_package_version", lambda: "another version of the code")
    assert list(build("gsm8k", local_path=path)) == list(first)
    assert conversions == [30, 30]
    jsonl(raw(31))
    assert len(build("gsm8k", local_path=path)) == 31
    assert conversions == [30, 30, 31]


def test_build_again_without_caching_is_the_same(jsonl, conversions):
    path = jsonl(raw(30))
    first = build("gsm8k", local_path=path)
    datasets.disable_caching()
    try:
        again = build("gsm8k", local_path=path)
        assert conversions == [30, 30]
        assert list(again) == list(first)
    finally:
        datasets.enable_caching()


def test_code_version_changes_with_the_file_of_the_conversion(tmp_path, monkeypatch):
    versions = []
    for text in ("A = 1", "A = 2"):
        (tmp_path / "my_source.py").write_text(
            f"{text}\nfrom datasets_builders.source import conversion\n\nconvert = conversion(lambda row: row)\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "my_source", raising=False)
        import my_source

        versions.append(converting.code_version(replace(OWN, convert=my_source.convert)))
    assert versions[0] != versions[1]
    assert converting.code_version(OWN) not in versions


# A build in a process of its own: `die` kills it with SIGKILL at the n-th call of a function.
SCRIPT = """
import os, signal, sys
import datasets
from datasets_builders import converting, local_files
from datasets_builders.building import build_with_report

datasets.disable_progress_bars()
path, where, after = sys.argv[1:]
calls = 0

def watched(module, name):
    original = getattr(module, name)
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls > int(after):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    setattr(module, name, call)

if where != "nowhere":
    watched(*{"row_fault": (converting, "row_fault"), "instructed_prompt": (converting, "instructed_prompt"),
              "_row_text": (local_files, "_row_text")}[where])
converted = 0
original = converting.converted_rows
def counted(batch, source, seed=42):
    global converted
    for outcome in original(batch, source, seed):
        converted += 1
        yield outcome
converting.converted_rows = counted
built = build_with_report("gsm8k", local_path=path, max_samples=2000)
print(converted, built.report.kept, built.dataset._fingerprint)
"""


def run_build(
    cache: Path, path: Path, where: str = "nowhere", after: int = 0, seed: str = "0"
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HF_DATASETS_CACHE": str(cache), "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, str(path), where, str(after)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def test_build_in_another_process_takes_all_from_the_cache(jsonl, cache):
    path = jsonl(raw(3000))
    first = run_build(cache, path, seed="1")
    assert first.stdout.split()[:2] == ["3000", "2000"], first.stderr
    again = run_build(cache, path, seed="2")
    assert again.stdout.split() == ["0", *first.stdout.split()[1:]]


@pytest.mark.parametrize(("where", "after"), [("_row_text", 1500), ("row_fault", 2500), ("instructed_prompt", 1500)])
def test_build_that_was_killed_is_whole_when_it_is_run_again(jsonl, cache, where, after):
    path = jsonl(raw(3000))
    killed = run_build(cache, path, where, after)
    assert killed.returncode == -9, killed.stderr
    assert killed.stdout == ""
    again = run_build(cache, path)
    assert again.returncode == 0, again.stderr
    built = build_with_report("gsm8k", local_path=path, max_samples=2000)
    assert built.report.loaded == 3000
    assert len(set(questions(built.dataset))) == 2000
    for file in cache.rglob("*"):
        if file.is_file():
            file.unlink()
    assert list(build("gsm8k", local_path=path, max_samples=2000)) == list(built.dataset)


# Sources of one's own, and what is refused


def test_build_of_an_own_source(jsonl):
    dataset = build(OWN, local_path=jsonl([own_row(solution="$7$")]), instruction=None)
    assert dataset[0] == own_row(solution="$7$")["row"]


def test_build_drops_rows_that_break_the_schema(jsonl):
    rows = [
        own_row(),
        own_row(solution=""),
        own_row(task="poem"),
        own_row(extra="no JSON"),
        {"row": {"prompt": user("Q")}},
        own_row(prompt=[]),
    ]
    built = build_with_report(OWN, local_path=jsonl(rows))
    assert built.report.dropped == {"invalid_row": 5}
    assert built.report.warnings == ["own: a row was dropped as invalid_row, for instance because solution is empty"]


def test_build_drops_rows_of_another_kind(jsonl):
    row = {**own_row()["row"], "task": "sft", "completion": [{"role": "assistant", "content": "A"}]}
    del row["solution"]
    built = build_with_report(OWN, local_path=jsonl([own_row(), {"row": row}]))
    assert built.report.warnings == [
        "own: a row was dropped as invalid_row, for instance because it is of task 'sft' in a source of rl rows"
    ]


@pytest.mark.parametrize("streaming", [False, True])
def test_build_without_a_row_left_names_the_reasons(jsonl, streaming):
    rows = [{"question": "a", "answer": "none"}] * 3 + [{"question": 1, "answer": "#### 2"}]
    with pytest.raises(ValueError) as raised:
        list(build("gsm8k", local_path=jsonl(rows), streaming=streaming))
    assert str(raised.value) == (
        "no row of 'gsm8k' is left of 4 read (no_answer 3, malformed 1); look at its raw rows: are they in the schema "
        "of the source?"
    )


def test_build_without_a_row_left_by_disagreement_says_so(jsonl):
    rows = [{"question": "a b c", "answer": f"#### {i}"} for i in range(2)]
    with pytest.raises(ValueError, match=r"no row of 'gsm8k' is left of 2 read \(disagreeing 2\)"):
        build("gsm8k", local_path=jsonl(rows))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_samples": 0}, "max_samples=0 must be a whole number of at least 1"),
        ({"max_samples": 2.5}, "max_samples=2.5 must be a whole number"),
        ({"max_samples": True}, "max_samples=True must be a whole number"),
        ({"num_proc": -1}, "num_proc=-1 must be a whole number of at least 1"),
        ({"seed": "x"}, "seed='x' must be a whole number"),
        ({"system_prompt": " "}, "system_prompt=' ' must be a text; leave it out for none"),
        ({"instruction": "box"}, "instruction='box' is no preset; did you mean 'boxed'"),
        ({"split": "trian"}, "split='trian' is no split of 'gsm8k'; did you mean 'train'"),
        ({"local_path": "missing.jsonl"}, "local_path='missing.jsonl' does not exist"),
    ],
)
def test_build_wrong_argument_is_one_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        build("gsm8k", **options)


def test_build_refuses_an_unknown_name_with_a_hint():
    with pytest.raises(ValueError, match=r"unknown source 'gms8k'; did you mean 'gsm8k'"):
        build("gms8k")
    with pytest.raises(ValueError, match=r"unknown evaluation set 'math-50'; did you mean 'math_500'"):
        build_eval("math-50")


def test_build_refuses_evaluation_sets_and_the_reverse():
    with pytest.raises(ValueError, match=r"'math_500' is an evaluation set"):
        build("math_500")
    with pytest.raises(ValueError, match=r"'math_500' is an evaluation set"):
        build(EVALUATION_SETS["math_500"])
    with pytest.raises(ValueError, match=r"'polaris' is a training source, not an evaluation set; use build"):
        build_eval("polaris")
    with pytest.raises(ValueError, match=r"'polaris' is a training source, not an evaluation set; use build"):
        build_eval(BUILDERS["polaris"])


def test_build_refuses_a_noncommercial_licence_unless_allowed(jsonl):
    source = replace(OWN, licence="cc-by-nc-4.0")
    path = jsonl([own_row()])
    with pytest.raises(ValueError, match=r"own: the licence 'cc-by-nc-4.0' forbids .* pass allow_noncommercial=True"):
        build(source, local_path=path)
    built = build_with_report(source, local_path=path, allow_noncommercial=True)
    assert built.report.warnings == ["own: the licence cc-by-nc-4.0 forbids commercial use"]


def test_build_of_an_unknown_licence_warns(jsonl):
    built = build_with_report(replace(OWN, licence="unknown"), local_path=jsonl([own_row()]))
    assert built.report.warnings == ["own: no licence is stated; find out whether you may use and publish the rows"]


# Evaluation sets


@pytest.mark.parametrize("streaming", [False, True])
def test_build_eval_keeps_order_and_duplicates(jsonl, streaming):
    rows = [*raw(3, first=5), *raw(2), *raw(3, first=5)]
    path = jsonl(rows)
    expected = [row["question"] for row in rows]
    assert questions(build_eval("gsm8k", local_path=path, streaming=streaming)) == expected
    assert questions(build_eval("gsm8k", local_path=path, max_samples=4, seed=3, streaming=streaming)) == expected[:4]


def test_build_eval_reads_the_test_split(hub):
    source = replace(
        EVALUATION_SETS["gsm8k"], revision=None, path=hub({"main": {"train": raw(2), "test": raw(3, first=10)}})
    )
    assert questions(build_eval(source)) == [row["question"] for row in raw(3, first=10)]
    assert build_with_report(source, evaluation=True).report.split == "test"
