"""The call that every reward shares, the batch that parts of a composition share, and the names of the package."""

import asyncio
import pickle
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import reward_funcs
from reward_funcs import AsyncReward, Batch, Grade, Reward
from reward_funcs.base import NOT_ASKED, boxed, check_setting, log_grades, plain, plain_value


class EqualReward(Reward):
    """1.0 where the text is the gold, `None` where there is no gold."""

    default_name = "equal_reward"

    def __init__(self, *, solution_column="solution", name=None):
        super().__init__(name=name)
        self.solution_column = solution_column
        self.closed = 0

    def grade(self, batch):
        golds = batch.column(self.solution_column, needed_by=self.__name__, argument="solution_column")
        return [
            Grade(None, "no_gold")
            if gold is None
            else Grade(float(text == gold), "right" if text == gold else "", text)
            for text, gold in zip(batch.texts, golds, strict=True)
        ]

    def close(self):
        self.closed += 1


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


# --- the call -----------------------------------------------------------------------------------------------------


def test_reward_call_in_trls_form_gives_rewards_and_logs():
    log = Log()
    rewards = EqualReward()(
        prompts=["p"] * 3,
        completions=["4", "5", "x"],
        completion_ids=[[1], [2], [3]],
        solution=["4", "4", None],
        trainer_state=object(),
        environments=[None] * 3,
        **log.into(),
    )
    assert rewards == [1.0, 0.0, None]
    assert log.columns == {
        "equal_reward/reason": ["right", "", "no_gold"],
        "equal_reward/answer": ["4", "5", None],
    }
    assert log.metrics == {"equal_reward/none/no_gold": [1.0]}


def test_reward_call_without_loggers_and_with_messages_gives_the_same():
    completions = [[{"role": "assistant", "content": "4"}], [{"role": "assistant", "content": None}]]
    assert EqualReward()(completions, solution=["4", "4"]) == [1.0, 0.0]


def test_reward_call_without_completions_is_empty():
    log = Log()
    assert EqualReward()([], solution=[], **log.into()) == []
    assert log.columns == {"equal_reward/reason": [], "equal_reward/answer": []} and log.metrics == {}


@pytest.mark.parametrize("text", ["", "\x00", "\ud800", "x" * 100_000, "</think>" * 1000])
def test_reward_call_with_hostile_text_judges_it(text):
    assert EqualReward()([text], solution=[text]) == [1.0]


def test_reward_without_its_column_names_those_there_are():
    with pytest.raises(
        ValueError, match=r"equal_reward needs the column 'solution'; the columns here are a, b; name it"
    ):
        EqualReward()(["4"], b=["1"], a=["1"], trainer_state=object(), environments=[None])
    with pytest.raises(ValueError, match=r"needs the column 'solution'; the columns here are none$"):
        EqualReward()(["4"])


def test_reward_of_one_text_instead_of_a_list_is_refused():
    with pytest.raises(TypeError, match="completions must be a list with one entry a completion, not one text: 'four'"):
        EqualReward()("four", solution=["4"])


@pytest.mark.parametrize("values", ["44", ["4"], 4, None])
def test_reward_with_a_column_of_another_length_is_refused(values):
    with pytest.raises(ValueError, match="solution"):
        EqualReward()(["4", "5"], solution=values)


def test_reward_pickled_and_back_keeps_settings_and_name():
    reward = pickle.loads(pickle.dumps(EqualReward(solution_column="answer", name="mine")))
    assert reward.__name__ == "mine" and reward(["4"], answer=["4"]) == [1.0]
    assert repr(reward) == "EqualReward(solution_column='answer', closed=0)"


@pytest.mark.parametrize("gold, expected", [("4", r"\boxed{4}"), (4, r"\boxed{4}"), (0.5, r"\boxed{0.5}")])
def test_ideal_of_text_and_number_is_boxed(gold, expected):
    assert EqualReward().ideal(gold) == boxed(gold) == expected


@pytest.mark.parametrize("gold", [None, ["4"], {"a": 1}, b"4"])
def test_ideal_of_anything_else_is_none(gold):
    assert EqualReward().ideal(gold) is None


def test_log_grades_counts_unjudged_by_reason_and_leaves_out_what_was_not_asked():
    log = Log()
    grades = [Grade(None, "down"), Grade(None), NOT_ASKED, Grade(None, "down"), Grade(0.0, "wrong", "5")]
    log_grades(Batch([""] * 5, {}, **{"log_extra": log.extra, "log_metric": log.metric}), "r", grades)
    assert log.metrics == {"r/none/down": [2.0], "r/none/unknown": [1.0]}
    assert log.columns["r/reason"] == ["down", "", "not_asked", "down", "wrong"]
    assert log.columns["r/answer"] == [None] * 4 + ["5"]


# --- the batch ----------------------------------------------------------------------------------------------------


def test_memo_computes_a_key_once():
    batch, calls = Batch(["a"], {}), []
    assert [batch.memo("k", lambda: calls.append(1) or 7) for _ in range(3)] == [7, 7, 7]
    assert len(calls) == 1


def test_each_text_computes_each_text_once_also_in_subsets():
    seen = []
    batch = Batch(["a", "b", "a"], {})
    first = batch.subset([2, 1])
    assert first.each_text("upper", lambda text: seen.append(text) or text.upper()) == ["A", "B"]
    assert batch.each_text("upper", lambda text: seen.append(text) or text.upper()) == ["A", "B", "A"]
    assert seen == ["a", "b"]
    assert batch.each_text("length", len) == [1, 1, 1]


def test_subset_takes_rows_of_every_column_and_leaves_other_arguments():
    state = object()
    columns = {"solution": ["1", "2", "3"], "score": np.array([0.1, 0.2, 0.3]), "trainer_state": state, "prompts": None}
    part = Batch(["a", "b", "c"], columns).subset([2, 0])
    assert part.texts == ["c", "a"] and len(part) == 2
    assert part.column("solution", needed_by="r") == ["3", "1"]
    assert part.column("score", needed_by="r") == [0.3, 0.1]
    assert part.columns["trainer_state"] is state and part.optional("prompts") is None


def test_subset_of_a_subset_is_the_subset_of_the_positions():
    batch = Batch(list("abcd"), {"n": [0, 1, 2, 3]})
    assert batch.subset([3, 1, 0]).subset([2, 0]).column("n", needed_by="r") == [0, 3]
    assert len(batch.subset([])) == 0 and batch.subset([]).column("n", needed_by="r") == []


def test_subset_with_a_column_of_another_length_is_refused_even_where_it_would_fit():
    with pytest.raises(ValueError, match=r"the column 'n' must be .* each of the 3 completions; it has 2 values"):
        Batch(["a", "b", "c"], {"n": [1, 2]}).subset([0, 1])


def test_subset_shares_the_memo_only_when_it_is_everything():
    batch = Batch(["a", "b"], {})
    batch.memo("k", lambda: 1)
    assert batch.subset([0, 1]).memo("k", lambda: 2) == 1
    assert batch.subset([0]).memo("k", lambda: 2) == 2
    assert batch.subset([1, 0]).memo("k", lambda: 3) == 3


def test_subset_passes_metrics_on_and_drops_columns():
    log = Log()
    part = Batch(["a", "b"], {}, log.extra, log.metric).subset([0])
    part.log_extra("c", [1])
    part.log_metric("m", 2.0)
    assert log.columns == {} and log.metrics == {"m": [2.0]}


def test_logged_column_of_another_length_is_refused():
    with pytest.raises(ValueError, match="the column 'c' must be a list with one value for each of the 2 completions"):
        Batch(["a", "b"], {}).log_extra("c", [1])


def test_batch_knows_which_columns_were_read():
    columns = {"solution": ["4"], "choices": [None], "prompts": ["p"]}
    batch = Batch(["a"], columns)
    batch.optional("solution")
    batch.subset([0]).optional("absent")
    assert batch.read == {"solution", "absent"}
    batch.arguments()
    assert batch.read == {"solution", "absent", "choices"}
    assert batch.columns is columns and "prompts" in batch.read


def test_arguments_are_the_call_again_with_prefixed_names():
    log = Log()
    batch = Batch(["a"], {"solution": ["4"], "prompts": None}, log.extra, log.metric)
    arguments = batch.arguments("f/")
    arguments.pop("log_extra")("c", [1])
    arguments.pop("log_metric")("m", 2.0)
    assert arguments == {"completions": ["a"], "solution": ["4"]}
    assert log.columns == {"f/c": [1]} and log.metrics == {"f/m": [2.0]}
    assert Batch(["a"], {}).arguments() == {"completions": ["a"]}


# --- as a coroutine -----------------------------------------------------------------------------------------------


def test_async_reward_gives_the_rewards_of_the_wrapped_one_from_a_thread():
    threads = []

    def where(completions, **columns):
        threads.append(threading.current_thread())
        return [1.0, None]

    reward = AsyncReward(where)
    assert reward.__name__ == "where" and AsyncReward(where, name="other").__name__ == "other"
    assert asyncio.run(reward(completions=["a", "b"], solution=["1", "2"])) == [1.0, None]
    assert threads != [threading.main_thread()]


def test_async_reward_is_what_trl_awaits_and_survives_pickling():
    from trl.trainer.utils import get_callable_name, is_async_callable

    reward = pickle.loads(pickle.dumps(AsyncReward(EqualReward())))
    assert is_async_callable(reward) and get_callable_name(reward) == "equal_reward"
    assert asyncio.run(reward(["4"], solution=["4"])) == [1.0]


def test_async_reward_closes_what_it_wraps():
    inner = EqualReward()
    AsyncReward(inner).close()
    AsyncReward(lambda completions, **columns: []).close()
    assert inner.closed == 1


# --- names of the package -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Sum", "Reward", "check_golds", "completion_text"])
def test_lazy_name_is_that_of_its_module(name):
    value = getattr(reward_funcs, name)
    assert value is getattr(sys.modules[value.__module__], name)
    assert name in dir(reward_funcs) and name in reward_funcs.__all__


def test_every_public_name_is_there():
    missing = [name for name in reward_funcs.__all__ if not hasattr(reward_funcs, name)]
    assert missing == []


def test_every_reward_instance_bears_its_own_name():
    instances = [name for name in reward_funcs.__all__ if name.endswith("_reward")]
    assert {name: getattr(reward_funcs, name).__name__ for name in instances} == {name: name for name in instances}


def test_every_reward_instance_survives_pickling():
    for name in reward_funcs.__all__:
        if name.endswith("_reward"):
            assert pickle.loads(pickle.dumps(getattr(reward_funcs, name))).__name__ == name


def test_unknown_name_gets_did_you_mean():
    with pytest.raises(AttributeError, match=r"has no attribute 'acuracy_reward'; did you mean 'accuracy_reward'\?"):
        _ = reward_funcs.acuracy_reward
    with pytest.raises(AttributeError, match=r"has no attribute 'zzz'$"):
        _ = reward_funcs.zzz


def test_import_of_the_package_loads_none_of_its_modules():
    code = "import sys, reward_funcs; print([n for n in sys.modules if n.startswith('reward_funcs.')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_check_setting_accepts_the_least_and_says_what_is_allowed():
    assert check_setting("n", 0, 0, whole=True) == 0
    assert check_setting("rate", 0.5, 0, below=1) == 0.5
    for value in ("3", True, 1.5, 0, None):
        with pytest.raises(ValueError, match=rf"n={value!r}: it must be a whole number of at least 1; leave it out"):
            check_setting("n", value, 1, whole=True)
    for value in (1, -0.1, float("nan"), "0.5"):
        with pytest.raises(ValueError, match=r"rate=.*: it must be a finite number of at least 0 and below 1"):
            check_setting("rate", value, 0, below=1)
    with pytest.raises(ValueError, match="seconds=inf: it must be a finite number"):
        check_setting("seconds", float("inf"), 0.01)


@pytest.mark.parametrize("end", ["<|im_end|>", "</s>\n", " <|eot_id|><|end_of_text|>", "\n<end_of_turn>\n<pad><pad>"])
def test_batch_texts_are_without_end_tokens(end):
    completions = ["four" + end, [{"role": "assistant", "content": "four" + end}]]
    assert Batch(completions, {}).texts == ["four", "four"]
    assert reward_funcs.exact_match_reward(completions, solution=["four", "four"]) == [1.0, 1.0]


def test_batch_columns_of_arrays_are_lists_of_plain_values():
    torch, pandas = pytest.importorskip("torch"), pytest.importorskip("pandas")
    numbers = [np.array([4, 5]), torch.tensor([4, 5]), pandas.Series([4, 5], index=[7, 9]), (4, 5), [np.int64(4), 5]]
    for column in numbers:
        found = Batch(["a", "b"], {"n": column}).optional("n")
        assert found == [4, 5]
        assert [type(value) for value in found] == [int, int]
        assert Batch(["a", "b"], {"n": column}).subset([1]).optional("n") == [5]
    nested = Batch(["a"], {"n": [{"text": np.array(["x"]), "of": [np.float64(0.5)]}]}).optional("n")
    assert plain(nested) == [{"text": ["x"], "of": [0.5]}]
    assert plain_value(np.float32(0.1)) == plain_value(np.array([0.1], dtype=np.float32))[0] == 0.1


@pytest.mark.parametrize("values", [np.array(5), np.array([1, 2, 3]), "ab", 5])
def test_batch_column_of_another_length_raises(values):
    with pytest.raises(ValueError, match="one value for each of the 2 completions"):
        Batch(["a", "b"], {"n": values}).optional("n")


def test_gate_with_a_series_gives_each_completion_its_own_gold():
    pandas = pytest.importorskip("pandas")
    reward = reward_funcs.Gate(lambda completions, **columns: [0.0, 1.0, 1.0], reward_funcs.exact_match_reward)
    assert reward(["4", "5", "6"], solution=pandas.Series(["4", "5", "5"], index=[7, 8, 9])) == [0.0, 1.0, 0.0]


class BadGolds(Reward):
    """Grades whose reasons are the texts."""

    default_name = "bad_golds"

    def grade(self, batch):
        return [Grade(None if text != "right" else 1.0, text) for text in batch.texts]


@pytest.mark.parametrize("texts", [["bad_gold"] * 2, ["bad_gold", "bad_choices"], ["unknown_language"] * 3])
def test_reward_call_without_a_usable_row_warns_once(texts):
    for reward in (BadGolds(), reward_funcs.Sum([BadGolds()])):
        with pytest.warns(
            UserWarning, match=rf"{reward.__name__} could judge none of the {len(texts)}.*{texts[-1]}"
        ) as seen:
            assert reward(texts) == [None] * len(texts)
            reward(texts)
        assert len(seen) == 1
        assert seen[0].filename == __file__


@pytest.mark.parametrize("texts", [[], ["bad_gold"], ["bad_gold", "right"], ["too_few_words"] * 2, ["judge_down"] * 2])
def test_reward_other_calls_do_not_warn(texts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BadGolds()(texts)


@pytest.mark.parametrize("ids", [[None, [1]], ["ab", [1]], [5, [1]]])
def test_token_ids_that_are_no_lists_raise(ids):
    with pytest.raises(ValueError, match=r"completion_ids must hold a list of token ids.*for completion 0"):
        reward_funcs.soft_overlong_reward(["a", "b"], completion_ids=ids)
    with pytest.raises(ValueError, match="completion_ids must hold"):
        reward_funcs.repetition_penalty_reward(["a", "b"], completion_ids=ids)
