"""The grader against labelled pairs, and against the golds of real data sets where those are at hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reward_funcs.gold import gold_texts
from reward_funcs.grading import AccuracyReward
from reward_funcs.maths import same
from reward_funcs.pool import close_pools

LABELLED = Path(__file__).with_name("labelled_answers.jsonl")
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared real data is not here")


def rows(path: Path) -> Iterator[dict[str, Any]]:
    # a text may hold line separators that are no new row
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line:
            yield json.loads(line)


@pytest.fixture(scope="module")
def judged() -> Iterator[list[tuple[dict[str, Any], float | None]]]:
    """Every labelled pair with the reward that it gets."""
    pairs = list(rows(LABELLED))
    reward = AccuracyReward()
    rewards = reward([pair["completion"] for pair in pairs], solution=[pair["gold"] for pair in pairs])
    yield list(zip(pairs, rewards, strict=True))
    close_pools()


def test_labelled_pairs_are_all_there(judged: list[tuple[dict[str, Any], float | None]]) -> None:
    assert len(judged) == 730
    assert {pair["reward"] for pair, _ in judged} == {1.0, 0.0, None}
    assert len({pair["id"] for pair, _ in judged}) == 730


def test_accuracy_labelled_wrong_is_never_right(judged: list[tuple[dict[str, Any], float | None]]) -> None:
    assert [pair for pair, reward in judged if pair["reward"] != 1.0 and reward == 1.0] == []


def test_accuracy_labelled_right_is_wrong_in_at_most_two_per_cent(
    judged: list[tuple[dict[str, Any], float | None]],
) -> None:
    right = [(pair, reward) for pair, reward in judged if pair["reward"] == 1.0]
    missed = [pair for pair, reward in right if reward != 1.0]
    assert len(missed) <= 0.02 * len(right), missed


def test_accuracy_is_right_wherever_math_verify_is(judged: list[tuple[dict[str, Any], float | None]]) -> None:
    worse = [
        pair
        for pair, reward in judged
        if pair["math_verify"] is not None and float(pair["math_verify"]) == pair["reward"] and reward != pair["reward"]
    ]
    assert worse == []


def test_accuracy_is_none_exactly_where_it_is_labelled_so(judged: list[tuple[dict[str, Any], float | None]]) -> None:
    unjudged = {pair["id"] for pair, reward in judged if reward is None}
    assert unjudged == {pair["id"] for pair, _ in judged if pair["reward"] is None}


@pytest.mark.parametrize("shape", ["messages", "reversed", "one by one"])
def test_accuracy_labelled_rewards_depend_on_no_shape_or_order(
    judged: list[tuple[dict[str, Any], float | None]], shape: str
) -> None:
    sample = judged[::9]
    completions = [pair["completion"] for pair, _ in sample]
    golds, expected = [pair["gold"] for pair, _ in sample], [reward for _, reward in sample]
    reward = AccuracyReward()
    if shape == "messages":
        assert reward([[{"role": "assistant", "content": text}] for text in completions], solution=golds) == expected
    elif shape == "reversed":
        assert reward(completions[::-1], solution=golds[::-1]) == expected[::-1]
    else:
        single = [reward([text], solution=[gold])[0] for text, gold in zip(completions, golds, strict=True)]
        assert single == expected


# real data


def _golds(name: str) -> list[Any]:
    if name == "gsm8k":
        return [row["answer"] for split in ("train", "test") for row in rows(DATA / f"gsm8k_{split}.jsonl")]
    if name == "orz":
        items = [*rows(DATA / "orz_57k_items.jsonl"), *json.loads((DATA / "orz_72k.json").read_text(encoding="utf-8"))]
        return [answer["ground_truth"]["value"] for _, answer in items]
    column = "final_answer" if name == "olympiadbench" else "answer"
    # four of the answers of MATH are null or empty
    return [row[column] for row in rows(DATA / f"{name}.jsonl") if row[column]]


REAL = ["gsm8k", "math500", "math_train", "olympiadbench", "orz"]


@needs_data
@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("form", ["{}", "${}$", r"\boxed{{{}}}"], ids=["bare", "dollars", "box"])
def test_accuracy_real_golds_accept_themselves(name: str, form: str) -> None:
    golds = _golds(name)
    texts = [gold_texts(gold) for gold in golds]
    assert all(texts)
    written = [
        gold if form == "{}" else [form.format(text) for text in each] for gold, each in zip(golds, texts, strict=True)
    ]
    rewards = AccuracyReward()([rf"so it is $\boxed{{{each[0]}}}$." for each in texts], solution=written)
    assert rewards.count(1.0) >= 0.998 * len(golds)


@needs_data
@pytest.mark.parametrize("name", REAL)
def test_accuracy_real_golds_accept_themselves_in_another_layout(name: str) -> None:
    texts = [each[0] for each in map(gold_texts, _golds(name))]
    respaced = [
        text.replace(r"\frac", r"\dfrac").replace("=", " = ").replace(r"\pi", r"{\pi}").replace(",", ", ")
        if r"\text" not in text and not text.replace(",", "").isdigit()
        else rf"\displaystyle {text}."
        for text in texts
    ]
    rewards = AccuracyReward()([rf"\boxed{{{text}}}" for text in respaced], solution=texts)
    assert rewards.count(1.0) >= 0.998 * len(texts)


@needs_data
@pytest.mark.parametrize("name", REAL)
def test_same_real_golds_are_not_their_neighbours_or_one_more(name: str) -> None:
    texts = [each[0] for each in map(gold_texts, _golds(name))]
    for text in texts:
        assert (
            same(text, f"{text}+1") is not True or "," in text or r"\text" in text or "=" in text or r"\infty" in text
        ), text
    numbers = [text for text in texts if text.lstrip("-").isdigit()]
    for one, other in itertools.pairwise(numbers):
        assert same(one, other) is (int(one) == int(other))


@needs_data
def test_accuracy_last_number_agrees_with_the_verdicts_on_model_solutions() -> None:
    texts, golds, verdicts = [], [], []
    for row in rows(DATA / "gsm8k_model_solutions.jsonl"):
        for solution in row.values():
            if isinstance(solution, dict):
                texts.append(solution["solution"])
                golds.append(row["ground_truth"].rpartition("A:")[2])
                verdicts.append(float(solution["is_correct"]))
    rewards = AccuracyReward(extraction="last_number")(texts, solution=golds)
    agreed = sum(reward == verdict for reward, verdict in zip(rewards, verdicts, strict=True))
    assert agreed >= 0.999 * len(verdicts) > 5000
