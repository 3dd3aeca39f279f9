r"""Votes of equivalent answers: groups, ties, `None`, and the expectation over subsets against counting them all."""

import doctest
import itertools
import json
import math
import random
from fractions import Fraction
from pathlib import Path

import pytest

from reward_funcs import accuracy_reward
from reward_funcs.base import Batch, Grade
from reward_funcs.pool import close_pools
from trl_ext.evaluation import votes
from trl_ext.evaluation.votes import cons_at_k, group_answers, vote_score

LABELLED = Path(__file__).parents[2] / "reward_funcs" / "labelled_answers.jsonl"


@pytest.fixture(scope="module", autouse=True)
def _workers_end():
    yield
    close_pools()


@pytest.fixture
def no_workers(monkeypatch):
    """Fails where a comparison leaves the process."""

    def grade(batch):
        raise AssertionError(f"asked the workers about {list(batch.completions)}")

    monkeypatch.setattr(votes._maths, "grade", grade)


def test_doctests_pass():
    assert doctest.testmod(votes).failed == 0


# groups


@pytest.mark.parametrize(
    "same",
    [
        ["1/2", "0.5", r"\frac{1}{2}", r"\dfrac12", "$0.50$", r"\boxed{1/2}", "x = 1/2", "50\\%"],
        ["5", "5 \\text{ cm}", r"5\,\mathrm{cm}", "5.0"],
        ["1234", "1,234", "1234.0", r"1\,234"],
        ["(1,2)", "( 1, 2 )", r"\left(1, 2\right)"],
        [r"2\sqrt{3}", r"\sqrt{12}", r"3^{1/2} \cdot 2"],
        ["x^2+2x+1", "(x+1)^2", "1 + 2x + x^2"],
        [r"\text{Monday}", "Monday"],
    ],
)
def test_group_answers_puts_equivalent_answers_together(same, no_workers):
    assert group_answers(same) == [0] * len(same)
    assert group_answers(["17.25", *same, None]) == [0, *[1] * len(same), None]


@pytest.mark.parametrize(
    "different",
    [
        ["1/2", "1/3", "-1/2", "2", "0.49"],
        ["5 \\text{ cm}", "5 \\text{ kg}"],
        ["(1,2)", "(2,1)", "[1,2]", "1"],
        ["x+1", "x-1", "y+1"],
        ["4", r"\gcd(8, 12)"],  # work that is left to the grader
        ["1", "2", "1 or 2"],
    ],
)
def test_group_answers_keeps_different_answers_apart(different, no_workers):
    assert group_answers(different) == list(range(len(different)))


def test_group_answers_asks_the_workers_for_what_is_left():
    assert group_answers(["e^{1000}+1", "1+e^{1000}", "2+e^{1000}", "300!+1", "1+300!"]) == [0, 0, 1, 2, 2]


def test_group_answers_asks_in_one_batch_of_at_most_500_pairs(monkeypatch):
    batches = []
    grade = votes._maths.grade
    monkeypatch.setattr(votes, "MAX_PAIRS", 4)
    monkeypatch.setattr(votes._maths, "grade", lambda batch: batches.append(len(batch)) or grade(batch))
    group_answers([rf"\frac{{{i}}}{{2" for i in range(6)])
    assert batches == [4]


def test_group_answers_of_plain_numbers_compares_only_those_near_each_other(no_workers, monkeypatch):
    pairs = []
    settle = votes._maths.settle
    monkeypatch.setattr(votes._maths, "settle", lambda *pair: pairs.append(set(pair)) or settle(*pair))
    numbers = [*map(str, range(1000)), "-0", "7.0", r"\frac{14}{2}", "1/3", "0.3333333", "0.3333"]
    groups = group_answers(numbers)
    assert groups[:1000] == list(range(1000))
    assert groups[1000:] == [0, 7, 7, 1000, 1000, 1001]
    assert len(pairs) < 10 and {"1/3", "0.3333333"} in pairs


def test_group_answers_ends_in_time_and_keeps_the_rest_apart(monkeypatch, no_workers):
    answers = ["x+1", "1+x", "x+2", "2+x"]
    assert group_answers(answers) == [0, 0, 1, 1]
    clock = itertools.count(0.0, 2.5)
    monkeypatch.setattr(votes, "monotonic", lambda: next(clock))
    assert len(set(group_answers(answers))) > 2  # two comparisons are not enough
    monkeypatch.setattr(votes, "monotonic", itertools.count(0.0, 6.0).__next__)
    assert group_answers([*answers, "x+1"]) == [0, 1, 2, 3, 0]  # equal texts need none


def test_group_answers_asks_the_workers_until_the_time_is_over(monkeypatch):
    now, asked = [0.0], []

    def grade(batch):
        asked.append(len(batch))
        now[0] += 3.0
        return [Grade(1.0 if len(asked) == 1 else 0.0)] * len(batch)

    monkeypatch.setattr(votes, "monotonic", lambda: now[0])
    monkeypatch.setattr(votes._maths, "grade", grade)
    groups = group_answers([rf"\frac{{{i}}}{{2" for i in range(8)])  # 28 pairs, of which the first four are equal
    assert asked == [4, 4, 4]
    assert len(set(groups)) == 4


def test_group_answers_of_different_words_asks_nobody(no_workers):
    answers = ["cost 36", "get of 27 36 7", "so the total", "each we", r"\text{apples} 3", r"\text{people} 4"]
    assert group_answers(answers) == [0, 1, 2, 3, 4, 5]


def test_group_answers_of_long_answers_compares_their_text(no_workers):
    long = "1+" * 600 + "1"
    assert group_answers([long, "601", long]) == [0, 1, 0]


@pytest.mark.parametrize("task", ["math", "choice", "code"])
def test_group_answers_without_an_answer_is_none(task):
    assert group_answers([None, "", "  \n", None], task=task) == [None] * 4
    assert group_answers([], task=task) == []


def test_group_answers_of_an_empty_box_is_none():
    assert group_answers(["$$", r"\boxed{}", "7"]) == [None, None, 0]


def test_group_answers_of_a_choice_goes_by_the_letters():
    answers = ["B", "(B)", "b", "B.", r"\text{B}", "C", "B, C", "C,B", "Paris", "Paris "]
    assert group_answers(answers, task="choice") == [0, 0, 0, 0, 0, 1, 2, 2, 3, 3]


def test_group_answers_of_another_task_goes_by_the_text():
    assert group_answers(["1/2", "0.5", " 1/2\n"], task="code") == [0, 1, 0]


def test_group_answers_chain_does_not_depend_on_the_order():
    # 50 % is 50 and is 0.5, so that with it all three are one class
    for order in itertools.permutations(["50", r"50\%", "0.5"]):
        assert group_answers(order) == [0, 0, 0]
    assert group_answers(["50", "0.5"]) == [0, 1]


def test_group_answers_partition_is_the_same_for_every_order():
    answers = ["1/2", "0.5", "2", "2.0", r"\sqrt{4}", "x+1", "1+x", "(1,2)", None, "e^{1000}+1", "1+e^{1000}"]
    expected = {frozenset({0, 1}), frozenset({2, 3, 4}), frozenset({5, 6}), frozenset({7}), frozenset({9, 10})}
    shuffled = list(range(len(answers)))
    for seed in range(10):
        random.Random(seed).shuffle(shuffled)
        groups = group_answers([answers[i] for i in shuffled])
        assert list(dict.fromkeys(g for g in groups if g is not None)) == list(range(5))
        found = {frozenset(i for i, g in zip(shuffled, groups, strict=True) if g == group) for group in range(5)}
        assert found == expected


def test_group_answers_agrees_with_the_grader_on_the_labelled_answers():
    rows = [json.loads(line) for line in LABELLED.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if isinstance(row["gold"], str) and "####" not in row["gold"]]
    grades = accuracy_reward.grade(Batch([r["completion"] for r in rows], {"solution": [r["gold"] for r in rows]}))
    judged = [(row["gold"], g) for row, g in zip(rows, grades, strict=True) if g.answer and g.reward is not None]
    judged = [(gold, grade) for gold, grade in judged if "boxed" not in gold and len(grade.answer) < 200]
    assert len(judged) > 500
    differing = [
        (gold, grade)
        for gold, grade in judged
        if (group_answers([gold, grade.answer]) == [0, 0]) != (grade.reward == 1.0)
    ]
    assert differing == []


def test_500_problems_of_16_answers_are_grouped_in_process(no_workers):
    numbers = random.Random(0)
    for _ in range(500):
        p, q = numbers.randint(1, 99), numbers.choice([2, 4, 5, 8])
        same = [f"{p}/{q}", rf"\frac{{{p}}}{{{q}}}", str(p / q), f"x = {p}/{q}"]
        other = [str(100 * p), rf"{p}\sqrt{{{q + 1}}}", f"({p}, {q})", None]
        groups = group_answers([*same, *other] * 2)
        assert groups == [0, 0, 0, 0, 1, 2, 3, None] * 2


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ("1/2", "^answers is the text '1/2'; it must be a list"),
        ([0.5], r"^an answer is 0\.5 of type float; it must be"),
    ],
)
def test_group_answers_refuses_what_are_no_answers(answers, message):
    with pytest.raises(ValueError, match=message):
        group_answers(answers)


# cons@k


def test_cons_at_k_counts_spellings_of_one_answer_as_one():
    assert cons_at_k(["1/2", "0.5", r"\frac{1}{2}", "2", "2"], "0.5") == 1.0
    assert cons_at_k(["1/2", "0.5", "2", "2", "2"], r"\frac{1}{2}") == 0.0


def test_cons_at_k_splits_ties():
    assert cons_at_k(["3", "4"], "3") == 0.5
    assert cons_at_k(["3", "4", "5"], "3") == pytest.approx(1 / 3)
    assert cons_at_k(["3", "3.0", "4", "4.0", "5"], "3") == 0.5


def test_cons_at_k_none_never_wins():
    assert cons_at_k([None, None, None, "3"], "3") == 1.0
    assert cons_at_k([None, " ", None], "3") == 0.0


def test_cons_at_k_is_a_share_from_any_order():
    answers = ["1/2", None, "0.5", "2", "2.0", "7"]
    assert {cons_at_k(order, "0.5") for order in itertools.permutations(answers)} == {0.5}


def test_cons_at_k_takes_several_golds_and_units():
    assert cons_at_k([r"5\text{ cm}", "5", "6"], ["6", "5 cm"]) == 1.0


def test_cons_at_k_of_choices_and_of_texts():
    assert cons_at_k(["(B)", "B.", "A"], "B", task="choice") == 1.0
    assert cons_at_k(["A", "B"], "B", task="choice") == 0.5
    assert cons_at_k(["yes ", "no", "yes"], "yes", task="other") == 1.0


def test_cons_at_k_of_a_chain_is_the_mean_over_its_samples():
    # the gold 0.5 takes 0.5 and 50 %, and not 50
    assert cons_at_k(["50", r"50\%", "0.5"], "0.5") == pytest.approx(2 / 3)


def test_cons_at_k_without_answers_or_gold_says_so():
    with pytest.raises(ValueError, match=r"^answers is empty; pass the final answer of each sample"):
        cons_at_k([], "3")
    with pytest.raises(ValueError, match=r'^gold is None, with which no answer of task="math" can be compared'):
        cons_at_k(["3"], None)


# votes over subsets


def counted_vote(groups, correct, k):
    """The same by going through all subsets, in fractions."""
    n, total = len(groups), Fraction(0)
    subsets = list(itertools.combinations(range(n), k))
    means = {}
    for group in set(groups) - {None}:
        members = [Fraction(correct[i]) for i in range(n) if groups[i] == group]
        means[group] = sum(members) / len(members)
    for subset in subsets:
        sizes = {g: sum(groups[i] == g for i in subset) for g in {groups[i] for i in subset} - {None}}
        winners = [means[g] for g, size in sizes.items() if size == max(sizes.values())]
        total += sum(winners) / len(winners) if winners else 0
    return float(total / len(subsets))


@pytest.mark.parametrize("n", range(1, 8))
def test_vote_score_equals_the_mean_over_all_subsets(n):
    numbers = random.Random(n)
    for _ in range(30):
        groups = [numbers.choice([None, 0, 1, 2, 3]) for _ in range(n)]
        correct = [numbers.choice([0, 1]) for _ in range(n)]
        for k in range(1, n + 1):
            assert vote_score(groups, correct, k=k) == pytest.approx(counted_vote(groups, correct, k), abs=1e-13)


def test_vote_score_of_one_sample_is_the_mean_of_those_with_an_answer():
    assert vote_score([0, 0, 1, None], [1.0, 1.0, 0.0, 0.0], k=1) == pytest.approx(0.5)


def test_vote_score_of_all_samples_is_one_vote():
    groups, correct = [0, 1, 1, 2, None], [1.0, 0.0, 1.0, 1.0, 0.0]
    assert vote_score(groups, correct) == vote_score(groups, correct, k=5) == 0.5


def test_vote_score_leaves_out_what_has_no_verdict():
    assert vote_score([0, 1, 1], [1.0, None, None]) == 1.0
    assert math.isnan(vote_score([0, None], [None, math.nan]))
    with pytest.raises(ValueError, match=r"^k is 2 but num_samples is 1"):
        vote_score([0, 1, 1], [1.0, None, None], k=2)


def test_vote_score_of_drawn_subsets_is_near_the_exact_one(monkeypatch):
    groups = [0] * 20 + [1] * 17 + [2] * 8 + [None] * 19
    correct = [1.0] * 20 + [0.0] * 44
    exact = vote_score(groups, correct, k=16)
    monkeypatch.setattr(votes, "EXACT_LIMIT", 0)
    drawn = vote_score(groups, correct, k=16, num_subsets=20_000)
    assert 0.5 < exact < 0.9
    assert drawn != exact
    assert drawn == pytest.approx(exact, abs=0.015)  # 4 standard errors of 20,000 draws


def test_vote_score_of_drawn_subsets_without_an_answer_is_zero(monkeypatch):
    monkeypatch.setattr(votes, "EXACT_LIMIT", 0)
    drawn = vote_score([0, *[None] * 9], [1.0, *[0.0] * 9], k=1, num_subsets=10_000)
    assert drawn == pytest.approx(0.1, abs=0.012)  # 4 standard errors


def test_vote_score_draws_by_its_seed_and_not_by_the_order():
    samples = [(0, 1.0)] * 300 + [(1, 0.0)] * 290 + [(2, 1.0)] * 100 + [(None, 0.0)] * 110
    groups, correct = zip(*samples, strict=True)
    score = vote_score(groups, correct, k=64, num_subsets=200)
    random.Random(0).shuffle(samples)
    groups, correct = zip(*samples, strict=True)
    assert vote_score(groups, correct, k=64, num_subsets=200) == score
    assert vote_score(groups, correct, k=64, num_subsets=200, seed=1) != score


def test_vote_score_does_not_depend_on_the_order_to_the_last_bit():
    samples = [(0, 0.1), (0, 0.7), (1, 0.3), (1, 0.2), (2, 0.6), (None, 0.0), (0, 0.3)]
    found = set()
    for order in itertools.islice(itertools.permutations(samples), 0, 5040, 37):
        groups, correct = zip(*order, strict=True)
        found |= {(k, vote_score(groups, correct, k=k)) for k in (2, 3, 7)}
    assert len(found) == 3


def test_vote_score_of_everything_correct_is_exactly_one():
    for n, k in [(16, 8), (64, 32), (100, 40)]:
        assert vote_score(list(range(n)), [1.0] * n, k=k) == pytest.approx(1.0, abs=1e-12)
        assert vote_score(list(range(n)), [1.0] * n, k=k) <= 1.0


@pytest.mark.parametrize(
    ("groups", "correct", "options", "message"),
    [
        ([0], [1.0, 0.0], {}, "^groups has 1 entries and correct has 2; each sample needs both"),
        ([0, 1], [1.0, 0.0], {"k": 3}, "^k is 3 but num_samples is 2"),
        ([0, 1], [1.0, 0.0], {"k": 0}, "^k is 0; it must be a whole number of at least 1"),
        ([0, 1], [1.0, 0.0], {"num_subsets": 0}, "^num_subsets is 0; it must be at least 1"),
    ],
)
def test_vote_score_refuses_bad_arguments(groups, correct, options, message):
    with pytest.raises(ValueError, match=message):
        vote_score(groups, correct, **options)
