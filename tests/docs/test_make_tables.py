"""What benchmarks/make_tables.py puts between its marks, and that the record of the rewards has what it needs."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- rewards: written by benchmarks/make_tables.py -->", "<!-- end of rewards -->"
RECORD = {
    "command": "python benchmarks/bench_rewards.py",
    "settings": {"count": 1000},
    "machine": {"device": "2 CPU cores"},
    "figures": {
        "throughput": {
            "mean_characters": 3987.4,
            "graded": 4000,
            "warm": {"per_s": 9876.5, "each": [7234.5, 9876.5]},
            "cold": {"per_s": 612.0},
            "trl": {"warm": {"per_s": 301.2, "agreement": 0.975}, "cold": {"per_s": None, "agreement": None}},
            "times_trl": {"warm": 24.02, "cold": None},
            "wrong": [],
            "not_judged": [{}],
            "settled_in_process": 0.9964,
            "latency": {"p50_ms": 0.0604, "p99_ms": 8.29, "max_ms": 113.7},
        },
        "hostile": {
            "answers": 175,
            "timeout_s": 2.0,
            "runs": [
                {"settings": "default", "thread": "main", "batch_s": 6.4, "slowest_s": 1.67, "within_deadline": 174}
            ],
            "worker_peak_mb": 211.4,
            "left_after_close": 0,
        },
        "golds": {
            "self_match": {
                "orz": {"golds": 1785, "forms": {"boxed": {"rate": 1.0}, "tagged": {"rate": 0.99999}}},
                "math": {"golds": 500, "forms": {"boxed": {"rate": 0.994}, "tagged": {"rate": 1.0}}},
            }
        },
        "others": {
            "speed": {"choice_reward": {"per_s": 4160.4}},
            "imports": [{"ms": 23.1, "foreign": []}, {"ms": 36.8, "foreign": []}],
        },
    },
}


@pytest.fixture
def tables(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("make_tables", ROOT / "benchmarks" / "make_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "rewards.json").write_text(json.dumps(RECORD))
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def test_rewards_table_rounds_and_marks_what_was_not_measured(tables):
    lines = tables.rewards_table().splitlines()
    assert lines[2:5] == [
        "| completions/s, warm | 7,200 | 300 | 24x |",
        "| completions/s, fresh process | 610 | - | - |",
        "| verdicts as constructed | 99.9 % | 97.5 % | |",
    ]
    assert lines[-1] == (
        "99.6 % are settled in process. One completion takes 0.06 / 8.3 / 110 ms (median / 99th percentile / longest). "
        "1 of 4,000 were left unjudged (`None`)."
    )


def test_hostile_table_counts_what_was_settled(tables):
    text = tables.hostile_table()
    assert "| default | main | 6 s | 1.7 s | 174 of 175 |" in text
    assert text.endswith("Deadline 2 s; the largest worker took 211 MB, 0 were left after `close()`.")


def test_golds_table_says_100_percent_for_all_of_them_only(tables):
    assert tables.golds_table().splitlines()[2:] == [
        "| math | 500 | 99.4 % | 100 % |",
        "| orz | 1,785 | 100 % | 99.9 % |",
    ]


def test_other_rewards_table_names_what_is_not_standard_library(tables, monkeypatch):
    assert tables.other_rewards_table().endswith(
        "`import reward_funcs` takes 23 ms, with `accuracy_reward` 37 ms, and loads the standard library alone."
    )
    figures = json.loads(json.dumps(RECORD))
    figures["figures"]["others"]["imports"][1]["foreign"] = ["sympy"]
    monkeypatch.setattr(tables, "load", lambda name: figures)
    assert tables.other_rewards_table().endswith("loads the standard library and sympy.")


def test_filled_replaces_marked_blocks_alone_and_is_stable(tables):
    theirs = "<!-- results: written by another script -->\n<!-- end of results -->\n"
    page = tables.filled(f"{theirs}a\n{BEGIN}\nstale\n{END}\nb\n")
    assert page.startswith(f"{theirs}a\n{BEGIN}\n\n**Speed") and page.endswith(f"\n\n{END}\nb\n")
    assert "stale" not in page
    assert tables.filled(page) == page


@pytest.mark.parametrize("text", [BEGIN, f"{END}{BEGIN}", f"{BEGIN}{BEGIN}{END}"])
def test_filled_block_without_an_end_raises(tables, text):
    with pytest.raises(ValueError, match="must be there once"):
        tables.filled(text)


def test_rewards_record_has_all_the_parts():
    report = json.loads((ROOT / "benchmarks" / "results" / "rewards.json").read_text(encoding="utf-8"))
    assert set(report["figures"]) == {"throughput", "hostile", "golds", "others"}
    speed = report["figures"]["throughput"]
    assert speed["completions"] == "of the data sets"
    assert len(speed["wrong"]) <= speed["graded"] // 1000
    assert report["figures"]["hostile"]["right_afterwards"] is True
    assert report["figures"]["hostile"]["left_after_close"] == 0
