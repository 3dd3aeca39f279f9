"""The same rewards in any order and batch, in threads, coroutines and other processes, pickled or not."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import random
import threading
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from reward_funcs.asynchronous import AsyncReward
from reward_funcs.grading import AccuracyReward, NumericReward, Verdict, accuracy_reward, numeric_reward
from reward_funcs.latex import plain
from reward_funcs.pool import close_pools, shared_pool

# a pair that tier 0 leaves to the workers, and one like it that is wrong
SLOW_GOLD, SLOW_RIGHT, SLOW_WRONG = r"\log_2 3", r"\frac{\log 3}{\log 2}", r"\frac{\log 5}{\log 2}"


@pytest.fixture(scope="module", autouse=True)
def _workers_end_with_the_module():
    yield
    close_pools()


MIXED = [
    (r"\boxed{5}", "5"), (r"\boxed{6}", "5"), ("5", "5"), (r"\boxed{\gcd(10,15)}", "5"), (r"\boxed{5}", None),
    (rf"\boxed{{{SLOW_RIGHT}}}", SLOW_GOLD), (rf"\boxed{{{SLOW_WRONG}}}", SLOW_GOLD), ("\0\ud800", "5"),
    (r"\boxed{\frac12}", "0.5"), (r"\boxed{1,2}", ["1", "2"]), ([{"role": "assistant", "content": r"\boxed{5}"}], 5),
    (None, "5"),
]  # fmt: skip
EXPECTED = [1.0, 0.0, 0.0, 0.0, None, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0]
TEXTS, GOLDS = [text for text, _ in MIXED], [gold for _, gold in MIXED]


def test_accuracy_slow_pairs_need_the_workers() -> None:
    for answer in (SLOW_RIGHT, SLOW_WRONG):
        assert accuracy_reward.settle(SLOW_GOLD, plain(answer)) == Verdict(None, "")


def test_accuracy_mixed_batch_has_its_hand_worked_rewards() -> None:
    assert AccuracyReward()(TEXTS, solution=GOLDS) == EXPECTED


@pytest.mark.parametrize("seed", range(3))
def test_accuracy_rewards_do_not_depend_on_order_or_batch(seed: int) -> None:
    order = random.Random(seed).sample(range(len(MIXED)), len(MIXED))
    shuffled = AccuracyReward()([TEXTS[i] for i in order], solution=[GOLDS[i] for i in order])
    assert shuffled == [EXPECTED[i] for i in order]
    single = [AccuracyReward()([TEXTS[i]], solution=[GOLDS[i]])[0] for i in range(len(MIXED))]
    assert single == EXPECTED
    assert AccuracyReward()(TEXTS * 3, solution=GOLDS * 3) == EXPECTED * 3


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_accuracy_pickled_before_and_after_use_gives_the_same(protocol: int) -> None:
    reward = AccuracyReward(rel_tol=1e-5, allow_alternatives=True, num_workers=1, name="maths")
    for _ in range(2):
        copy = pickle.loads(pickle.dumps(reward, protocol))
        assert vars(copy) == vars(reward) and copy.__name__ == "maths"
        assert all(isinstance(value, (str, int, float, bool, type(None))) for value in vars(copy).values())
        assert copy([TEXTS[5], TEXTS[6]], solution=[GOLDS[5], GOLDS[6]]) == [1.0, 0.0]
        reward([TEXTS[5]], solution=[GOLDS[5]])
    numbers = pickle.loads(pickle.dumps(NumericReward(abs_tol=0.5), protocol))
    assert numbers(["5.4"], solution=["5"]) == [1.0]


def test_accuracy_in_threads_gives_the_same() -> None:
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda k=k: found.__setitem__(k, accuracy_reward(TEXTS, solution=GOLDS)))
        for k in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert found == {k: EXPECTED for k in range(6)}


def test_accuracy_in_asyncio_gives_the_same() -> None:
    async def both() -> list[Any]:
        rewards = [AsyncReward(accuracy_reward), AsyncReward(AccuracyReward(name="again"))]
        return await asyncio.gather(*(reward(TEXTS, solution=GOLDS) for reward in rewards))

    assert asyncio.run(both()) == [EXPECTED, EXPECTED]


def test_accuracy_called_on_the_event_loop_gives_the_same() -> None:
    async def direct() -> Any:
        return accuracy_reward(TEXTS, solution=GOLDS)

    assert asyncio.run(direct()) == EXPECTED


def test_accuracy_in_a_spawned_process_gives_the_same() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        answered = executor.submit(AccuracyReward(num_workers=1), TEXTS, solution=GOLDS).result(timeout=120)
    assert answered == EXPECTED


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_accuracy_close_leaves_no_process_and_the_next_call_starts_them_again() -> None:
    reward = AccuracyReward(num_workers=1, timeout=5.0)
    pool = shared_pool(num_workers=1, timeout=5.0)
    for _ in range(2):
        assert reward([TEXTS[5]], solution=[GOLDS[5]]) == [1.0]
        pids = pool.pids
        assert pids
        reward.close()
        assert pool.pids == [] and not any(map(_is_alive, pids))
    reward.close()
    numeric_reward.close()


def test_accuracy_tier_zero_starts_no_process() -> None:
    pool = shared_pool(num_workers=1, timeout=7.0)
    reward = AccuracyReward(num_workers=1, timeout=7.0)
    assert reward([r"\boxed{\frac12}", r"\boxed{6}"], solution=["0.5", "5"]) == [1.0, 0.0]
    assert pool.pids == []
