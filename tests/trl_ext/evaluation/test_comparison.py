"""Two evaluations compared: figures by hand, what is left out, and folders that cannot be compared."""

import json

import pytest

from trl_ext.errors import UserError
from trl_ext.evaluation.comparison import compare_runs
from trl_ext.evaluation.statistics import mcnemar, paired_bootstrap

FACTS = {
    "generator": {"model": "org/model", "adapter": None},
    "sampling": {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "max_new_tokens": 64, "seed": 0},
    "num_samples": 1,
}


def _row(key, right, judged=1, vote=None, benchmark="maths", **fields):
    row = {"benchmark": benchmark, "key": key, "solution": "4", "prompt": "?", "num_judged": judged}
    return {**row, "num_correct": right, "vote_score": float(right) if vote is None else vote, **fields}


def _run(folder, rows, **facts):
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps({**FACTS, **facts}))
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def runs(tmp_path):
    def make(first, second, **facts):
        return _run(tmp_path / "a", first, **facts), _run(tmp_path / "b", second, **facts)

    return make


def test_greedy_runs_by_hand(runs):
    first, second = [0] * 10 + [1] * 4, [1] * 9 + [0] + [1] * 3 + [0]
    pair = runs([_row(f"p{i}", r) for i, r in enumerate(first)], [_row(f"p{i}", r) for i, r in enumerate(second)])
    comparison = compare_runs(*pair)
    (one,) = comparison.benchmarks
    assert (one.first, one.second, one.num_problems) == (4 / 14, 12 / 14, 14)
    assert one.outcomes == mcnemar(first, second)
    assert (one.outcomes.only_first, one.outcomes.only_second) == (1, 9)
    assert one.mean == paired_bootstrap(first, second)
    text = comparison.text()
    assert "maths, 14 problems: pass@1 28.6 % and 85.7 %, difference +57.1 points" in text
    assert "The second run is significantly better (p < 0.05)." in text
    assert "By the single completion, problems right in the first run alone: 1, in the second alone: 9." in text
    assert json.loads(json.dumps(comparison.to_dict()))["benchmarks"][0]["num_problems"] == 14


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"truncated": "wrong"}, "truncated: grade, and .* with truncated: wrong; run .* the same --truncated"),
        ({"reward": "my_reward"}, "reward: that of each task, and .* with reward: my_reward; .* the same --reward"),
    ],
)
def test_runs_that_were_graded_in_different_ways_are_refused(tmp_path, facts, sentence):
    rows = [_row("p0", 1)]
    pair = _run(tmp_path / "a", rows, truncated="grade"), _run(tmp_path / "b", rows, **{"truncated": "grade", **facts})
    with pytest.raises(UserError, match=sentence):
        compare_runs(*pair)


def test_other_turns_before_the_last_and_other_settings_are_told(tmp_path):
    sampling = {**FACTS["sampling"], "max_new_tokens": 32}
    rows = [[_row(f"p{i}", 1, prompt_hash=f"of p{i}") for i in range(4)] for _ in range(2)]
    for row in rows[1][:3]:
        row["prompt_hash"] = "another"
    generator = {**FACTS["generator"], "chat_template_kwargs": {"enable_thinking": False}}
    pair = (
        _run(tmp_path / "a", rows[0]),
        _run(tmp_path / "b", rows[1], sampling=sampling, generator=generator),
    )
    comparison = compare_runs(*pair)
    assert "Prompts that differ between the runs: 3." in comparison.text()
    assert comparison.notes == [
        "Settings that differ between the runs: max_new_tokens 64 and 32; "
        'chat_template_kwargs null and {"enable_thinking": false}.'
    ]
    assert compare_runs(pair[0], pair[0]).notes == []


def test_order_of_runs_turns_the_sign(runs):
    pair = runs([_row(f"p{i}", 0) for i in range(9)], [_row(f"p{i}", 1) for i in range(9)])
    (one,), (other,) = compare_runs(*pair).benchmarks, compare_runs(*reversed(pair)).benchmarks
    assert one.mean.difference == 1.0 == -other.mean.difference
    assert "The first run is significantly better" in compare_runs(*reversed(pair)).text()


def test_equal_runs_have_no_significant_difference(runs):
    rows = [_row(f"p{i}", i % 2) for i in range(20)]
    text = compare_runs(*runs(rows, rows)).text()
    assert "difference +0.0 points" in text and "No significant difference (p >= 0.05)" in text
    assert "significantly" not in text


def test_problems_are_matched_by_key_and_the_others_are_named(runs):
    first = [_row("x", 1), _row("a", 1), _row("b", 0), _row("c", 1, judged=0), _row("d", 1, solution="5")]
    second = [_row("b", 1), _row("a", 1, prompt="other"), _row("c", 1), _row("d", 1), _row("y", 0)]
    (one,) = compare_runs(*runs(first, second)).benchmarks
    assert (one.first, one.second, one.num_problems) == (0.5, 1.0, 2)
    assert one.notes == [
        "Left out, only in the first run: 1 (x).",
        "Left out, only in the second run: 1 (y).",
        "Left out, with another gold in each run: 1 (d).",
        "Left out, not judged in one of the runs: 1 (c).",
        "Prompts that differ between the runs: 1.",
    ]


def test_sampled_runs_are_compared_by_majority_and_ties_are_left_out(runs):
    first = [
        _row("a", 1, 4, vote=0.0),
        _row("b", 2, 4, vote=0.5),
        _row("c", 3, 4, vote=1.0),
        _row("d", 1, 4, vote=1 / 3),
    ]
    second = [
        _row("a", 3, 4, vote=1.0),
        _row("b", 4, 4, vote=1.0),
        _row("c", 4, 4, vote=1.0),
        _row("d", 3, 4, vote=1.0),
    ]
    (one,) = compare_runs(*runs(first, second, num_samples=4)).benchmarks
    assert (one.outcome, one.num_ties) == ("majority vote", 1)
    assert (one.outcomes.only_first, one.outcomes.only_second) == (0, 2)
    assert one.mean.difference == pytest.approx((2 + 2 + 1 + 2) / 16)
    assert "in the second alone: 2, without an outcome for a tied vote: 1." in " ".join(one.sentences(0.05))


def test_samples_without_votes_are_compared_by_their_means_alone(runs):
    rows = [{**_row("a", 1, 4), "vote_score": None}, {**_row("b", 1, 4), "vote_score": None}]
    comparison = compare_runs(*runs(rows, rows))
    assert comparison.benchmarks[0].outcomes is None
    assert "McNemar" not in comparison.text()


def test_benchmarks_of_one_run_alone_are_named(runs):
    rows = [_row("a", 1), _row("b", 0)]
    both = [*rows, *(dict(row, benchmark="aime") for row in rows)]
    comparison = compare_runs(*runs(both, [*both, _row("z", 1, benchmark="amc")]))
    assert [one.benchmark for one in comparison.benchmarks] == ["maths", "aime"]
    assert comparison.notes == ["Only the second run has amc."]
    assert "Of 2 comparisons, each has its own chance of 0.05 to be wrong." in comparison.text()


def test_runs_that_share_nothing_are_refused(runs, tmp_path):
    first, second = runs([_row("a", 1)], [_row("b", 1)])
    with pytest.raises(UserError, match="share no judged problem of maths"):
        compare_runs(first, second)
    third = _run(tmp_path / "c", [_row("a", 1, benchmark="aime")])
    with pytest.raises(UserError, match=r"has the benchmarks maths and .* has aime; they share none"):
        compare_runs(first, third)


def test_folders_without_a_finished_evaluation_are_refused(runs, tmp_path):
    first, second = runs([_row("a", 1)], [_row("a", 1)])
    with pytest.raises(UserError, match=r"there is no folder .*nowhere"):
        compare_runs(first, tmp_path / "nowhere")
    (second / "problems.jsonl").write_text('{"key": 1}\n')
    with pytest.raises(UserError, match="holds a line that is no problem"):
        compare_runs(first, second)
    (second / "problems.jsonl").write_text('{"key": 1')
    with pytest.raises(
        UserError, match=r"line 1 of .*problems.jsonl is no valid JSON; run `trl-ext eval` for that folder"
    ):
        compare_runs(first, second)
    (second / "results.json").unlink()
    with pytest.raises(UserError, match=r"has no results.json, so no evaluation has ended there"):
        compare_runs(first, second)
