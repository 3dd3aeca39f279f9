from __future__ import annotations

import json
import pickle
from array import array
from dataclasses import replace
from typing import Any

import datasets
import pytest

from datasets_builders import streaming
from datasets_builders.building import build, build_with_report
from datasets_builders.duplicates import deduplicate
from datasets_builders.registry import BUILDERS
from datasets_builders.schema import preference_row, rl_row, sft_row
from datasets_builders.streaming import SeenTexts, compared_text, shuffled


def raw(number: int, *, first: int = 0) -> list[dict[str, Any]]:
    return [{"question": f"What is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(first, first + number)]


def numbers(rows: Any) -> list[int]:
    return [int(row["solution"].strip("$")) - 1 for row in rows]


def test_stream_equals_the_table(jsonl):
    path = jsonl([*raw(150), {"question": "x", "answer": "none"}, *raw(20), *raw(3, first=200)])
    table, stream = (build_with_report("gsm8k", local_path=path, streaming=way) for way in (False, True))
    assert isinstance(stream.dataset, datasets.IterableDataset)
    assert list(stream.dataset) == list(table.dataset)
    assert replace(stream.report, streaming=False) == table.report


def test_stream_counts_grow_while_it_is_read(jsonl):
    built = build_with_report("gsm8k", local_path=jsonl([*raw(100), *raw(100)]), streaming=True)
    assert (built.report.loaded, built.report.kept, built.report.complete) == (0, 0, False)
    rows = iter(built.dataset)
    for _ in range(10):
        next(rows)
    assert (built.report.kept, built.report.complete) == (10, False)
    assert len(list(rows)) == 90
    assert (built.report.loaded, built.report.duplicates, built.report.kept) == (200, 100, 100)
    assert built.report.complete


def test_stream_starts_anew_each_time(jsonl):
    built = build_with_report("gsm8k", local_path=jsonl([*raw(20), *raw(5)]), streaming=True, max_samples=15)
    first = list(built.dataset)
    counts = built.report.to_dict()
    assert list(built.dataset) == first
    assert built.report.to_dict() == counts
    assert (counts["loaded"], counts["duplicates"], counts["kept"], counts["not_sampled"]) == (25, 5, 15, 5)


def test_stream_sample_is_drawn_with_the_seed(jsonl):
    path = jsonl(raw(200))
    options = {"local_path": path, "streaming": True, "max_samples": 20}
    drawn = numbers(build("gsm8k", seed=1, **options))
    assert len(set(drawn)) == 20
    assert drawn == numbers(build("gsm8k", seed=1, **options))
    assert drawn != numbers(build("gsm8k", seed=2, **options))
    assert max(drawn) > 100  # not only the first rows
    assert numbers(build("gsm8k", local_path=path, streaming=True)) == list(range(200))


def test_stream_resumes_where_it_was(jsonl):
    dataset = build("gsm8k", local_path=jsonl(raw(50)), streaming=True, max_samples=30)
    every = numbers(dataset)
    rows = iter(dataset)
    start = numbers(next(rows) for _ in range(11))
    state = dataset.state_dict()
    again = build("gsm8k", local_path=jsonl(raw(50)), streaming=True, max_samples=30)
    again.load_state_dict(state)
    assert start + numbers(again) == every


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_stream_gives_each_row_once_to_workers(hub, form):
    torch_data = pytest.importorskip("torch.utils.data")
    configs = {f"part{i}": {"train": raw(10, first=10 * i)} for i in range(4)}
    source = replace(
        BUILDERS["gsm8k"], revision=None, path=hub(configs, suffix=form), config=None, configs=tuple(configs)
    )
    loader = torch_data.DataLoader(build(source, streaming=True), num_workers=2, batch_size=None)
    assert numbers(loader) == list(range(40))


def test_stream_pickles(jsonl):
    dataset = build("gsm8k", local_path=jsonl(raw(5)), streaming=True)
    assert list(pickle.loads(pickle.dumps(dataset))) == list(dataset)


def test_stream_by_default_where_the_source_says_so(jsonl):
    source = replace(BUILDERS["gsm8k"], streaming=True)
    path = jsonl(raw(3))
    assert isinstance(build(source, local_path=path), datasets.IterableDataset)
    assert isinstance(build(source, local_path=path, streaming=False), datasets.Dataset)


def test_stream_without_duplicates_removed_keeps_all(jsonl):
    path = jsonl([*raw(4), *raw(4)])
    assert numbers(build("gsm8k", local_path=path, streaming=True, deduplicate=False)) == [0, 1, 2, 3] * 2


def test_stream_of_more_rows_than_are_remembered_warns(jsonl, monkeypatch):
    monkeypatch.setattr(SeenTexts.__init__, "__defaults__", (3,))
    built = build_with_report("gsm8k", local_path=jsonl([*raw(5), *raw(5)]), streaming=True)
    assert numbers(built.dataset) == [0, 1, 2, 3, 4, 3, 4]
    assert built.report.warnings == [
        "gsm8k: after 3 different rows new ones are not remembered, so that their duplicates stay"
    ]


# What is remembered


def test_seen_texts_equal_a_set():
    seen, known = SeenTexts(), set()
    for number in range(30_000):
        text = str(number * number % 7919)
        assert seen.add(text) == (text not in known)
        known.add(text)
    assert seen.count == len(known)


def test_seen_texts_take_eight_bytes_each_at_a_load_of_three_quarters():
    seen = SeenTexts()
    for number in range(10_000):
        seen.add(str(number))
    assert isinstance(seen._slots, array)
    assert len(seen._slots) == 16_384


def test_seen_texts_take_half_a_surrogate_pair():
    seen = SeenTexts()
    assert [seen.add("\ud800"), seen.add("\ud800"), seen.add("\ud801")] == [True, False, True]


ROWS = [
    rl_row("What is 2 + 2?", "1", task="math", source="s"),
    rl_row("what is $2+2$", "1", task="math", source="s"),
    rl_row("What is 2 - 2?", "1", task="math", source="s"),
    rl_row("What is 2, 2?", "1", task="math", source="s"),
]
SFT = [sft_row("Q", "A", source="s"), sft_row("q", "a", source="s"), sft_row("Q", "B", source="s")]
PAIRS = [
    preference_row("Q", "A", "B", source="s"),
    preference_row("Q", "A", "B.", source="s"),
    preference_row("Q", "A", "C", source="s"),
]


@pytest.mark.parametrize("rows", [ROWS, SFT, PAIRS])
def test_compared_text_tells_duplicates_as_deduplicate_does(rows):
    first = {compared_text(row): index for index, row in reversed(list(enumerate(rows)))}
    kept, _ = deduplicate(rows)
    assert [rows[index] for index in sorted(first.values())] == kept
    assert 1 < len(kept) < len(rows)


# The draw


def drawn(number: int, seed: int = 0, length: int = 1) -> list[int]:
    rows = [rl_row("x" * length, str(i), task="math", source="s", source_id=i) for i in range(number)]
    return [int(row["source_id"]) for row in shuffled(rows, seed)]


def test_shuffled_rows_are_the_same_rows_in_another_order(monkeypatch):
    monkeypatch.setattr(streaming, "BUFFER_ROWS", 10)
    order = drawn(200)
    assert sorted(order) == list(range(200))
    assert order != list(range(200))
    assert order == drawn(200)
    assert order != drawn(200, seed=1)
    # a row comes at most a buffer's length early
    assert all(row <= place + 10 for place, row in enumerate(order))


def test_shuffled_rows_hold_no_more_characters_than_the_buffer_may(monkeypatch):
    monkeypatch.setattr(streaming, "BUFFER_CHARACTERS", 5_000)
    order = drawn(50, length=1_000)
    assert sorted(order) == list(range(50))
    assert all(row <= place + 5 for place, row in enumerate(order))


def test_shuffled_row_longer_than_the_buffer_passes(monkeypatch):
    monkeypatch.setattr(streaming, "BUFFER_CHARACTERS", 10)
    assert sorted(drawn(4, length=1_000)) == [0, 1, 2, 3]


def test_stream_of_one_json_list_reads_no_more_than_it_needs(tmp_path, monkeypatch):
    from datasets_builders import local_files

    monkeypatch.setattr(local_files, "CHUNK", 1000)
    path = tmp_path / "list.json"
    path.write_text(json.dumps(raw(10_000)) + "broken")
    rows = iter(build("gsm8k", local_path=path, streaming=True))
    assert numbers(next(rows) for _ in range(300)) == list(range(300))
    with pytest.raises(ValueError, match=r"list.json goes on behind the end of its list"):
        list(rows)


def test_stream_of_a_json_list_on_the_hub_reads_no_more_than_it_needs(hub, monkeypatch):
    from datasets_builders import local_files

    monkeypatch.setattr(local_files, "CHUNK", 1000)
    path = hub({"main": {"train": raw(10_000)}}, suffix="json")
    with open(f"{path}/main/train.json", "a") as file:
        file.write("broken")
    rows = iter(build(replace(BUILDERS["gsm8k"], revision=None, path=path), streaming=True))
    assert numbers(next(rows) for _ in range(300)) == list(range(300))
