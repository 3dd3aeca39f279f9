"""Requests, seeds and batches; no model."""

import pytest

from trl_ext.errors import UserError
from trl_ext.evaluation.requests import (
    Request,
    SamplingParams,
    build_requests,
    plan_batches,
    problem_key,
    problem_keys,
    sample_seed,
)


def requests(*lengths):
    return [Request(str(index), "x" * length, index) for index, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": -0.1}, "temperature=-0.1"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"temperature": "hot"}, "temperature='hot'"),
        ({"temperature": 1e-40}, "temperature=1e-40 is too small to draw with; set 0"),
        ({"temperature": 9e-7}, "temperature=9e-07"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"top_k": -1}, "top_k=-1"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"max_new_tokens": 1.5}, "max_new_tokens=1.5"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_sampling_params_out_of_range_are_refused(settings, words):
    with pytest.raises(UserError, match=words):
        SamplingParams(**settings)


def test_sampling_params_by_default_are_greedy():
    assert SamplingParams().is_greedy
    assert not SamplingParams(temperature=0.01).is_greedy
    assert not SamplingParams(temperature=1e-6).is_greedy


def test_sample_seed_is_pinned_and_differs_by_each_part():
    # recorded runs are resumed by these numbers: they must never change
    assert sample_seed(0, "aime/1", 0) == 8927800065531840891
    seeds = {sample_seed(s, key, i) for s in range(5) for key in ("a", "b", "a:1", "a, 1") for i in range(50)}
    assert len(seeds) == 5 * 4 * 50
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert sample_seed(1, "1", 1) != sample_seed(11, "", 1)


def test_sample_seed_takes_half_of_a_surrogate_pair():
    assert sample_seed(0, "\ud800", 0) >= 0


def test_problem_key_is_source_and_id_or_a_hash_of_the_prompt():
    assert problem_key({"prompt": "a", "source": "gsm8k", "source_id": "3"}) == "gsm8k/3"
    turns = [{"role": "user", "content": "a"}]
    assert problem_key({"prompt": "a"}) != problem_key({"prompt": "b"})
    assert problem_key({"prompt": turns}) == problem_key({"prompt": turns, "solution": "other"})
    assert problem_key({"prompt": turns}) != problem_key({"prompt": [{"role": "system", "content": "a"}]})
    # an empty field that a table adds changes nothing
    assert problem_key({"prompt": [{**turns[0], "name": None}]}) == problem_key({"prompt": turns})


def test_problem_keys_differ_where_rows_share_an_id():
    rows = [{"prompt": "a", "source": "s", "source_id": i} for i in ("1", "1#2", "1", "1", "2")]
    keys = problem_keys(rows)
    assert len(set(keys)) == 5
    assert keys[:2] == ["s/1", "s/1#2"]
    assert keys[4] == "s/2"


@pytest.mark.parametrize("prompt", [None, 3, [], ["a"], [{"content": "no role"}]])
def test_row_without_prompt_is_named(prompt):
    with pytest.raises(UserError, match=r"row 1: prompt=.*columns prompt, solution"):
        build_requests([{"prompt": "good"}, {"prompt": prompt, "solution": "4"}])


@pytest.mark.parametrize("message", [{"role": "user"}, {"role": "user", "content": None}])
def test_message_without_content_is_named(message):
    rows = [{"prompt": "a"}, {"prompt": [{"role": "system", "content": "b"}, message]}]
    with pytest.raises(UserError, match=r"^row 1: message 1 of the prompt has no content; give it a text"):
        build_requests(rows)


def test_message_with_a_tool_call_needs_no_content():
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}], "content": None}
    [request] = build_requests([{"prompt": [{"role": "user", "content": "b"}, call]}])
    assert request.prompt[1] == {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}


def test_build_requests_keeps_the_samples_of_a_row_together():
    rows = [{"prompt": "a", "source": "s", "source_id": "1"}, {"prompt": "b", "source": "s", "source_id": "2"}]
    found = build_requests(rows, num_samples=2, seed=7)
    assert [(r.key, r.prompt) for r in found] == [("s/1:0", "a"), ("s/1:1", "a"), ("s/2:0", "b"), ("s/2:1", "b")]
    assert found[3].seed == sample_seed(7, "s/2", 1)
    # another row in front changes the seeds of none
    again = build_requests([{"prompt": "new"}, *rows], num_samples=2, seed=7)
    assert again[2:] == found


def test_plan_batches_has_every_request_once_longest_first():
    planned = plan_batches(requests(3, 9, 1, 9, 4), 2)
    assert [[request.key for request in batch] for batch in planned] == [["1", "3"], ["4", "0"], ["2"]]
    assert plan_batches([], 4) == []


def test_plan_batches_measures_conversations_by_their_content():
    talk = Request("talk", [{"role": "system", "content": "xx"}, {"role": "user", "content": "xxx"}], 0)
    assert [r.key for r in plan_batches([*requests(4), talk, *requests(6)], 3)[0]] == ["0", "talk", "0"]


@pytest.mark.parametrize("size", [0, -1, 1.5, True, None])
def test_plan_batches_refuses_a_size_below_one(size):
    with pytest.raises(UserError, match="batch_size="):
        plan_batches(requests(1), size)
