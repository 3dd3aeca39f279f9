"""Sums, gates, products, minima and clipped rewards: their values, what is missing, what is logged and refused."""

import functools
import math
import pickle
import random

import pytest

from reward_funcs import AsyncReward, Clip, Gate, Grade, Min, Product, Reward, Sum

ALL = ("sum", "product", "min", "gate", "clip")


class ListReward(Reward):
    """The rewards of the column `<name>`, with reasons; remembers which texts it was asked about."""

    default_name = "list_reward"

    def __init__(self, *, name=None, ideal=None):
        super().__init__(name=name)
        self.asked, self.own_ideal, self.closed = [], ideal, 0

    def grade(self, batch):
        values = batch.column(self.__name__, needed_by=self.__name__)
        self.asked.append(batch.texts)
        reasons = {None: "down", 0.0: "wrong", 1.0: "right"}
        return [Grade(v, reasons.get(v, "part"), t) for v, t in zip(values, batch.texts, strict=True)]

    def ideal(self, gold):
        return self.own_ideal

    def close(self):
        self.closed += 1


class Lengths(Reward):
    """Whether a text is the shortest of the call."""

    default_name = "lengths"
    group_relative = True

    def grade(self, batch):
        shortest = min(map(len, batch.texts), default=0)
        return [Grade(float(len(text) == shortest)) for text in batch.texts]


class Log:
    """Collects what a reward logs."""

    def __init__(self):
        self.columns, self.metrics = {}, {}

    def extra(self, column, values):
        assert column not in self.columns, f"{column} is logged twice, which breaks TRL's table"
        self.columns[column] = values

    def metric(self, name, value):
        self.metrics.setdefault(name, []).append(value)

    def into(self):
        return {"log_extra": self.extra, "log_metric": self.metric}


def right(completions, solution, **columns):
    return [float(text == gold) for text, gold in zip(completions, solution, strict=True)]


def length(completions, scale=1.0, **columns):
    return [len(text) * scale for text in completions]


def A():
    return ListReward(name="a")


def B():
    return ListReward(name="b")


def _composed(kind, *parts, **settings):
    """One composition of each kind around the given parts."""
    if kind == "gate":
        return Gate(*parts, **settings) if len(parts) == 2 else Gate(length, *parts, threshold=-1, **settings)
    if kind == "clip":
        return Clip(parts[0], -10, 10, **settings)
    return {"sum": Sum, "product": Product, "min": Min}[kind](parts, **settings)


def _rewards(reward, log=None, **columns):
    (n,) = {len(values) for values in columns.values()}
    return reward(completions=[f"t{i}" for i in range(n)], **columns, **(log.into() if log else {}))


# --- values -------------------------------------------------------------------------------------------------------


def test_sum_of_two_by_hand():
    assert _rewards(Sum([A(), B()], weights=[1.0, 0.5]), a=[1.0, 0.0, 0.5], b=[1.0, 1.0, -1.0]) == [1.5, 0.5, 0.0]
    assert _rewards(Sum([A(), B()]), a=[1.0, 0.0], b=[1.0, 1.0]) == [2.0, 1.0]


def test_sum_of_one_with_weight_one_is_that_reward():
    values = [1.0, 0.25, None, -3.0]
    assert _rewards(Sum([A()]), a=values) == values


def test_sum_of_ten_tenths_is_one():
    assert Sum([functools.partial(length, scale=0.1)] * 10)(["x"]) == [1.0]


def test_product_and_min_by_hand():
    columns = {"a": [0.5, 1.0, 2.0, 0.0], "b": [0.5, 0.25, 0.5, 1.0]}
    assert _rewards(Product([A(), B()]), **columns) == [0.25, 0.25, 1.0, 0.0]
    assert _rewards(Min([A(), B()]), **columns) == [0.5, 0.25, 0.5, 0.0]


def test_clip_by_hand_and_one_sided():
    values = [-2.0, 0.0, 0.5, 3.0, None]
    assert _rewards(Clip(A(), 0, 1), a=values) == [0.0, 0.0, 0.5, 1.0, None]
    assert _rewards(Clip(A(), -math.inf, 1), a=values) == [-2.0, 0.0, 0.5, 1.0, None]
    assert _rewards(Clip(A(), -math.inf, math.inf), a=values) == values


def test_gate_by_hand():
    columns = {"a": [1.0, 0.0, 0.5, 0.4], "b": [0.7, 0.7, 0.3, 0.3]}
    assert _rewards(Gate(A(), B()), **columns) == [0.7, 0.0, 0.3, 0.0]
    assert _rewards(Gate(A(), B(), threshold=1.0, otherwise=-1.0), **columns) == [0.7, -1.0, -1.0, -1.0]
    assert _rewards(Gate(A(), B(), otherwise=None), **columns) == [0.7, None, 0.3, None]


def test_gate_of_zero_one_rewards_is_their_product():
    columns = {"a": [0.0, 0.0, 1.0, 1.0], "b": [0.0, 1.0, 0.0, 1.0]}
    assert _rewards(Gate(A(), B()), **columns) == _rewards(Product([A(), B()]), **columns) == [0.0, 0.0, 0.0, 1.0]


def test_compositions_nest():
    inner = Sum([A(), Clip(B(), 0, 1)], weights=[1, 2])
    assert _rewards(Min([inner, Gate(A(), B())]), a=[1.0, 0.0], b=[5.0, 5.0]) == [3.0, 0.0]


# --- what is missing ----------------------------------------------------------------------------------------------

MISSING = {"a": [None, None, 0.0, 1.0, None], "b": [1.0, 0.0, None, None, None]}


def test_sum_with_a_missing_part_is_none_or_leaves_it_out():
    assert _rewards(Sum([A(), B()]), **MISSING) == [None] * 5
    assert _rewards(Sum([A(), B()], [2, 3], none="skip"), **MISSING) == [3.0, 0.0, 0.0, 2.0, None]


def test_sum_ignores_what_is_missing_from_a_part_of_weight_zero():
    assert _rewards(Sum([A(), B()], [0, 1]), **MISSING) == [1.0, 0.0, None, None, None]
    assert _rewards(Sum([A(), B()], [0, 0]), **MISSING) == [0.0] * 5


def test_product_is_zero_where_a_part_is_and_none_where_it_is_not_known():
    assert _rewards(Product([A(), B()]), **MISSING) == [None, 0.0, 0.0, None, None]
    assert _rewards(Product([A(), B()], none="skip"), **MISSING) == [1.0, 0.0, 0.0, 1.0, None]


def test_min_with_a_missing_part_is_none_or_leaves_it_out():
    assert _rewards(Min([A(), B()]), **MISSING) == [None] * 5
    assert _rewards(Min([A(), B()], none="skip"), **MISSING) == [1.0, 0.0, 0.0, 1.0, None]


def test_gate_with_a_missing_condition_or_reward_is_none():
    columns = {"a": [None, 1.0, 0.0], "b": [1.0, None, None]}
    assert _rewards(Gate(A(), B()), **columns) == [None, None, 0.0]


def test_missing_reward_keeps_its_reason():
    log = Log()
    _rewards(Sum([A(), B()]), log, **MISSING)
    assert log.columns["sum_reward/reason"] == ["down"] * 5 and log.metrics["sum_reward/none/down"] == [5.0]


# --- gates ask only about what passes -----------------------------------------------------------------------------


def test_gate_asks_the_reward_about_what_passes_with_its_rows_of_every_column():
    seen = []

    def reward(completions, solution, prompts, **columns):
        seen.append((completions, solution, prompts, columns["extra"], columns["trainer_state"]))
        return [float(i) for i in range(1, len(completions) + 1)]

    state, condition = object(), A()
    rewards = Gate(condition, reward)(
        ["x", "y", "z"],
        a=[1.0, 0.0, 1.0],
        solution=[1, 2, 3],
        prompts=list("pqr"),
        extra=list("uvw"),
        trainer_state=state,
    )
    assert rewards == [1.0, 0.0, 2.0]
    assert seen == [(["x", "z"], [1, 3], ["p", "r"], ["u", "w"], state)]
    assert condition.asked == [["x", "y", "z"]]


def test_gate_calls_no_function_where_nothing_passes():
    def first(completions, **columns):
        return [completions[0], 1 / 0]

    log = Log()
    assert _rewards(Gate(A(), first), log, a=[0.0, 0.0]) == [0.0, 0.0]
    assert log.columns["gate_reward/first"] == [None, None] and "gate_reward/first" not in log.metrics


def test_gate_where_nothing_passes_still_says_that_a_column_is_missing():
    with pytest.raises(ValueError, match="b needs the column 'b'"):
        _rewards(Gate(A(), B()), a=[0.0])


def test_gate_asks_a_reward_that_compares_completions_about_all_of_them():
    call = {"completions": ["x", "yy", "zzz"], "a": [0.0, 1.0, 1.0]}
    assert Gate(A(), Lengths())(**call) == [0.0, 0.0, 0.0]
    assert Gate(A(), Sum([Lengths()]))(**call) == [0.0, 0.0, 0.0]

    def shortest(completions, **columns):
        return [float(len(text) == min(map(len, completions))) for text in completions]

    assert Gate(A(), shortest)(**call) == [0.0, 1.0, 0.0]
    assert Gate(A(), shortest, whole_batch=True)(**call) == [0.0, 0.0, 0.0]


def test_gate_shares_what_is_computed_from_a_text():
    computed = []

    class Parsing(ListReward):
        def grade(self, batch):
            batch.each_text("parse", lambda text: computed.append(text))
            return super().grade(batch)

    _rewards(Gate(Parsing(name="a"), Parsing(name="b")), a=[1.0, 0.0], b=[1.0, 1.0])
    assert computed == ["t0", "t1"]


def test_parts_are_given_one_batch():
    batches = []

    class Keeping(ListReward):
        def grade(self, batch):
            batches.append(batch)
            return super().grade(batch)

    _rewards(Sum([Keeping(name="a"), Min([Keeping(name="b")])]), a=[1.0], b=[1.0])
    assert batches[0] is batches[1]


# --- what is logged -----------------------------------------------------------------------------------------------


def test_parts_are_logged_as_rewards_of_weight_zero():
    log = Log()
    _rewards(Sum([A(), length], [1, 0.5], name="all"), log, a=[1.0, 0.0, None])
    assert log.metrics == {
        "all/a": [0.5],
        "all/a/none/down": [1.0],
        "all/length": [2.0],
        "all/none/down": [1.0],
    }
    assert log.columns == {
        "all/a": [1.0, 0.0, None],
        "all/a/reason": ["right", "wrong", "down"],
        "all/a/answer": ["t0", "t1", "t2"],
        "all/length": [2.0, 2.0, 2.0],
        "all/reason": ["right", "wrong", "down"],
        "all/answer": ["t0", "t1", "t2"],
    }


def test_parts_of_parts_are_logged_under_their_path():
    log = Log()
    _rewards(Gate(A(), Clip(B(), 0, 1)), log, a=[1.0, 0.0], b=[7.0, 7.0])
    assert log.metrics == {
        "gate_reward/a": [0.5],
        "gate_reward/clip_reward": [1.0],
        "gate_reward/clip_reward/b": [7.0],
    }
    assert log.columns["gate_reward/reason"] == ["part", "gate_closed"]
    assert log.columns["gate_reward/clip_reward/reason"] == ["part", "not_asked"]
    assert log.columns["gate_reward/clip_reward/b"] == [7.0, None]


@pytest.mark.parametrize("kind", ALL)
def test_columns_are_the_same_in_every_call(kind):
    sets = []
    for a, b in [([1.0, 0.0], [1.0, 1.0]), ([0.0, 0.0], [0.0, 0.0]), ([None, None], [None, None]), ([], [])]:
        log = Log()
        _rewards(_composed(kind, A(), B(), name="c"), log, a=a, b=b)
        assert {len(values) for values in log.columns.values()} == {len(a)}
        sets.append(set(log.columns))
    assert sets[0] == sets[1] == sets[2] == sets[3] and {"c/reason", "c/answer", "c/a/reason"} <= sets[0]


def test_reason_of_product_and_min_is_that_of_the_lowest_part():
    columns = {"a": [1.0, 0.5, 0.0], "b": [0.5, 1.0, None]}
    for reward, last in ((Product([A(), B()], name="r"), "wrong"), (Min([A(), B()], name="r"), "down")):
        log = Log()
        _rewards(reward, log, **columns)
        assert log.columns["r/reason"] == ["part", "part", last]


def test_part_that_is_a_function_logs_under_its_path():
    def logging(completions, log_extra, log_metric, **columns):
        log_extra("seen", list(completions))
        log_metric("count", float(len(completions)))
        return [1.0 for _ in completions]

    log = Log()
    _rewards(Sum([logging, A()]), log, a=[1.0, 0.0])
    assert log.columns["sum_reward/logging/seen"] == ["t0", "t1"]
    assert log.metrics["sum_reward/logging/count"] == [2.0]
    for values in ([1.0, 0.0], [1.0, 1.0]):  # behind a gate its columns could not be in every call, so they never are
        log = Log()
        _rewards(Gate(A(), logging), log, a=values)
        assert "gate_reward/logging/seen" not in log.columns
        assert log.metrics["gate_reward/logging/count"] == [sum(values)]


def test_function_is_called_as_trl_calls_it_and_without_what_is_not_there():
    calls = []

    def keeping(**call):
        calls.append(call)
        return [1.0]

    Sum([keeping])(["x"])
    Sum([keeping])(completions=["x"], prompts=["p"], completion_ids=[[1]], solution=["4"], trainer_state=7)
    assert calls[0] == {"completions": ["x"]}
    assert calls[1] == {
        "completions": ["x"], "prompts": ["p"], "completion_ids": [[1]], "solution": ["4"], "trainer_state": 7
    }  # fmt: skip


def test_parts_of_one_name_are_told_apart():
    log = Log()
    twice = Sum([functools.partial(length, scale=1.0), functools.partial(length, scale=2.0), length])
    assert twice(["xx"], **log.into()) == [8.0]
    assert log.metrics == {"sum_reward/length": [2.0], "sum_reward/length_2": [4.0], "sum_reward/length_3": [2.0]}


def test_part_named_like_a_column_of_the_composition_is_renamed():
    log = Log()
    _rewards(Sum([ListReward(name="answer")]), log, answer=[1.0])
    assert log.columns["sum_reward/answer"] == ["t0"] and log.columns["sum_reward/answer_2"] == [1.0]


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weights, sentence",
    [
        ([1.0], "weights has 1 values for 2 parts; give one for each part"),
        ([1.0, 1.0, 1.0], "weights has 3 values for 2 parts"),
        ([1.0, math.nan], "weights=nan must be a finite number"),
        ([1.0, math.inf], "weights=inf must be a finite number"),
        ([1.0, "1"], "weights='1' must be a finite number"),
        ([1.0, None], "weights=None must be a finite number"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, sentence):
    with pytest.raises(ValueError, match=sentence):
        Sum([A(), B()], weights=weights)


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match="none='drop' is unknown; choose 'propagate'"):
        Sum([A()], none="drop")
    for kind in (Sum, Product, Min):
        with pytest.raises(ValueError, match=f"{kind.__name__} has no parts"):
            kind([])
    with pytest.raises(ValueError, match="threshold=nan must be a finite number"):
        Gate(A(), B(), threshold=math.nan)
    with pytest.raises(ValueError, match="otherwise=inf must be a finite number"):
        Gate(A(), B(), otherwise=math.inf)
    for low, high in [(1, 0), (math.nan, 1), (0, math.nan)]:
        with pytest.raises(ValueError, match=r"must be (a number|numbers with low <= high)"):
            Clip(A(), low, high)


# --- as one reward ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ALL)
def test_composition_pickled_and_back_gives_the_same(kind):
    reward = _composed(kind, functools.partial(length, scale=0.25), right, name="mine")
    copy = pickle.loads(pickle.dumps(reward))
    call = {"completions": ["a", "bbbb", "cc"], "solution": ["a", "x", "cc"]}
    assert copy(**call) == reward(**call) and copy.__name__ == "mine"


@pytest.mark.parametrize("kind", ALL)
def test_rewards_do_not_depend_on_the_order_of_the_batch(kind):
    reward = _composed(kind, A(), B())
    rng = random.Random(0)
    rows = [(rng.choice([None, 0.0, 0.5, 1.0]), rng.choice([None, 0.0, 0.5, 1.0])) for _ in range(40)]
    order = rng.sample(range(40), 40)
    plain = _rewards(reward, a=[a for a, _ in rows], b=[b for _, b in rows])
    mixed = _rewards(reward, a=[rows[i][0] for i in order], b=[rows[i][1] for i in order])
    assert mixed == [plain[i] for i in order]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "text", ["", "\x00", "\ud800", "x" * 100_000, None, [], [{"role": "assistant", "content": None}]]
)
def test_hostile_completion_gets_the_reward_of_the_parts(kind, text):
    assert _composed(kind, A(), B())([text], a=[1.0], b=[1.0]) == [2.0 if kind == "sum" else 1.0]


@pytest.mark.parametrize("kind", ALL)
def test_empty_call_is_empty(kind):
    assert _composed(kind, right, length)([], solution=[]) == []


@pytest.mark.parametrize("kind", ALL)
def test_close_closes_the_parts(kind):
    a, b = A(), B()
    reward = _composed(kind, Sum([a, right]), b)
    reward.close()
    assert (a.closed, b.closed) == ((1, 0) if kind == "clip" else (1, 1))


@pytest.mark.parametrize("kind", ALL)
def test_ideal_is_that_of_the_first_reward_that_has_one(kind):
    first, second = ListReward(name="a", ideal="one"), ListReward(name="b", ideal="two")
    assert _composed(kind, first, second).ideal("4") == "one"
    if kind != "clip":
        assert _composed(kind, ListReward(name="a"), second).ideal("4") == "two"
        assert _composed(kind, length, second).ideal("4") == "two"
    assert _composed(kind, length, right).ideal("4") == r"\boxed{4}"
    assert _composed(kind, ListReward(), ListReward()).ideal("4") is None


def test_solution_column_is_that_of_the_first_part_with_one():
    a = A()
    assert Sum([length, a]).solution_column is None
    a.solution_column = "answer"
    assert Gate(length, Sum([length, a])).solution_column == "answer"


def test_composition_is_one_reward_of_trl():
    from trl.trainer.utils import get_callable_name, is_async_callable

    reward = Sum([right, length])
    assert get_callable_name(reward) == "sum_reward" and not is_async_callable(reward)
    assert is_async_callable(AsyncReward(reward))


def test_composition_trains_under_trl_and_fills_its_table(tmp_path):
    import pandas
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from trl_ext.testing import tiny_model, tiny_tokenizer

    def even(completion_ids, **columns):
        return [float(len(ids) % 2 == 0 or ids[0] % 2 == 0) for ids in completion_ids]

    def logging(completions, log_extra, log_metric, **columns):
        log_extra("seen", list(completions))
        return [None if "a" in text else 1.0 for text in completions]

    trainer = GRPOTrainer(
        model=tiny_model(),
        processing_class=tiny_tokenizer(),
        reward_funcs=[Gate(even, Sum([right, length], none="skip")), Sum([logging, length], [1, -0.1])],
        train_dataset=Dataset.from_dict({"prompt": ["1+1=", "2+2="], "solution": ["2", "4"]}),
        args=GRPOConfig(
            output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=4, num_generations=2, logging_steps=1,
            max_completion_length=3, log_completions=True, report_to="none", use_cpu=True, bf16=False,
        ),
    )  # fmt: skip
    trainer.train()
    (log, *_) = trainer.state.log_history
    assert {"gate_reward/even", "sum_reward/length", "rewards/gate_reward/mean"} <= set(log)
    for path in sorted((tmp_path / "completions").glob("*.parquet")):
        table = pandas.read_parquet(path)
        assert len(table) == 4
        assert {"gate_reward/sum_reward/length", "sum_reward/logging/seen", "gate_reward/reason"} <= set(table)
        asked = table["gate_reward/reason"] != "gate_closed"
        assert (table["gate_reward/even"] == asked).all()
        assert table.loc[asked, "gate_reward/sum_reward"].equals(table.loc[asked, "gate_reward"])
        assert table["sum_reward/logging/seen"].equals(table["completion"])
