"""`trl-ext check` from the command line: what it prints, writes and returns, and calls that cannot work."""

import json
import subprocess
import sys

import pytest
from datasets import Dataset, DatasetDict

from trl_ext.cli import main

REWARDS = r'''
import reward_funcs


class Digits(reward_funcs.Reward):
    """1.0 where the text is the boxed gold; a gold that is no number cannot be judged."""

    default_name = "digits"

    def __init__(self, solution_column="solution"):
        super().__init__()
        self.solution_column = solution_column
        self.closed = 0

    def grade(self, batch):
        golds = [str(gold) for gold in batch.column(self.solution_column, needed_by="digits")]
        return [
            reward_funcs.Grade(float(text == "\\boxed{%s}" % gold), "right")
            if gold.isdigit()
            else reward_funcs.Grade(None, "bad_gold")
            for text, gold in zip(batch.texts, golds)
        ]

    def close(self):
        self.closed += 1


digits_reward = Digits()
answer_reward = Digits(solution_column="answer")


def broken_reward(completions, **columns):
    raise KeyError("bug")


def choosy_reward(completions, **columns):
    raise ValueError("a value that I do not like")


def make_reward(weight):
    return digits_reward
'''
GOLDS = ["4", "5", "x\x1b[2J", None, "4"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder with rewards and data in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "check_rewards.py").write_text(REWARDS, encoding="utf-8")
    rows = [{"prompt": f"p{i}", "solution": gold, "answer": str(i)} for i, gold in enumerate(GOLDS)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    yield tmp_path
    sys.modules.pop("check_rewards", None)


def _check(*argv, reward="check_rewards.digits_reward", dataset="rows.jsonl"):
    return main(["check", reward, "--dataset", dataset, *argv])


def _refused(capsys, status, sentence, *argv, **names):
    assert _check(*argv, **names) == status
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("trl-ext: error: ") and sentence in error, error
    assert "TRL_EXT_DEBUG" not in error


def test_report_below_the_threshold_is_printed_and_exits_1(here, capsys):
    assert _check() == 1
    assert capsys.readouterr().out.splitlines() == [
        "75.00 % of the golds score 1.0 against themselves: 3 of 4, and 1 row without a gold to check",
        "causes:",
        "  1  bad_gold",
        "rows:",
        r"  row 2: None (bad_gold), gold x\x1b[2J, completion \boxed{x\x1b[2J}",
        "below the threshold 0.99",
    ]
    assert sys.modules["check_rewards"].digits_reward.closed == 1


def test_rate_at_the_threshold_exits_0(here, capsys):
    assert _check("--threshold", "0.75") == 0
    assert "below" not in capsys.readouterr().out
    assert _check("--max_rows", "2") == 0
    assert capsys.readouterr().out == "100.00 % of the golds score 1.0 against themselves: 2 of 2\n"


def test_rows_limits_what_is_printed(here, capsys):
    assert _check("--rows", "0") == 1
    assert "rows:" not in capsys.readouterr().out


def test_column_is_that_of_the_flag_or_of_the_reward(here, capsys):
    assert _check("--column", "answer") == 0
    assert _check(reward="check_rewards.answer_reward") == 0
    assert capsys.readouterr().out.count("5 of 5") == 2


def test_json_holds_the_whole_report(here):
    assert _check("--json", "report.json", "--rows", "0") == 1
    report = json.loads((here / "report.json").read_text())
    completion = "\\boxed{x\x1b[2J}"
    assert report == {
        "reward": "check_rewards.digits_reward",
        "dataset": "rows.jsonl",
        "config": None,
        "split": "train",
        "rate": 0.75,
        "total": 5,
        "unchecked": 1,
        "causes": {"bad_gold": 1},
        "failures": [{"row": 2, "gold": "x\x1b[2J", "completion": completion, "reward": None, "reason": "bad_gold"}],
    }


@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "folder"])
def test_every_kind_of_data_is_read(here, kind):
    data = Dataset.from_dict({"solution": ["4", "5"]})
    if kind == "json":
        (here / "d.json").write_text('[{"solution": "4"}, {"solution": "5"}]')
    elif kind == "folder":
        DatasetDict(train=data, test=Dataset.from_dict({"solution": ["x"]})).save_to_disk("d.folder")
        assert _check("--split", "test", dataset="d.folder") == 1
    else:
        getattr(data, f"to_{kind}")(f"d.{kind}")
    assert _check(dataset=f"d.{kind}") == 0


def test_puzzles_need_no_column_of_golds(here, capsys):
    (here / "puzzles.jsonl").write_text('{"target": 24, "nums": [4, 6]}\n')
    assert _check(reward="countdown_reward", dataset="puzzles.jsonl") == 0
    assert "1 of 1" in capsys.readouterr().out


def test_function_of_trl_is_checked_on_prompts_that_are_texts(here):
    (here / "four.jsonl").write_text('{"prompt": "p", "solution": "$4$"}\n')
    assert _check(reward="trl.rewards.accuracy_reward", dataset="four.jsonl") == 0


def test_report_that_cannot_be_written_is_refused_before_the_work(here, capsys):
    for file, sentence in (("no/report.json", "there is no folder"), (".", "--json . is a folder; name a file")):
        _refused(capsys, 2, sentence, "--json", file, reward="check_rewards.broken_reward")


def test_bare_name_is_looked_up_in_reward_funcs(here, capsys):
    assert _check("--column", "answer", reward="exact_match_reward") == 0
    assert capsys.readouterr().out.startswith("100.00 %")


def test_character_that_the_terminal_lacks_is_escaped(here, monkeypatch):
    (here / "cn.jsonl").write_text('{"solution": "\\u4e2d"}\n')
    argv = ["check", "check_rewards.digits_reward", "--dataset", "cn.jsonl"]
    code = f"import sys; from trl_ext.cli import main; sys.exit(main({argv!r}))"
    monkeypatch.setenv("PYTHONIOENCODING", "ascii:strict")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert result.returncode == 1 and rb"gold \u4e2d" in result.stdout, result.stderr.decode()


def test_help_loads_nothing_heavy_and_exits_0():
    code = (
        "import sys; from trl_ext.cli import main\n"
        "try: main(['check', '--help'])\n"
        "finally: assert not {'torch', 'trl', 'datasets', 'reward_funcs'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    for flag in ("--dataset", "--split", "--config", "--column", "--max_rows", "--threshold", "--rows", "--json"):
        assert flag in result.stdout


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (["--thresold", "0.5"], "unknown argument --thresold; did you mean '--threshold'?"),
        (["--colum=answer"], "unknown argument --colum; did you mean '--column'?"),
        (["--threshold", "2"], "argument --threshold: 2 is no number between 0 and 1"),
        (["--threshold", "nan"], "argument --threshold: nan is no number between 0 and 1"),
        (["--threshold", "high"], "argument --threshold: high is no number between 0 and 1"),
        (["--max_rows", "0"], "argument --max_rows: 0 is no whole number of at least 1"),
        (["--rows", "-1"], "argument --rows: -1 is no whole number of at least 0"),
    ],
)
def test_wrong_call_is_one_line_and_exits_2(here, capsys, argv, sentence):
    _refused(capsys, 2, sentence, *argv)


@pytest.mark.parametrize("argv", [[], ["check_rewards.digits_reward"], ["--dataset", "rows.jsonl"]])
def test_call_without_reward_or_data_exits_2(here, capsys, argv):
    assert main(["check", *argv]) == 2
    assert "the following arguments are required" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv, names, sentence",
    [
        (["--column", "gold"], {}, "no column 'gold'; name that of the golds with --column: prompt, solution, answer"),
        (["--split", "test"], {"dataset": "rows"}, "the data has no split 'test'; it has ['train']"),
        ([], {"dataset": "nowhere.jsonl"}, "there is no file nowhere.jsonl"),
        ([], {"dataset": "empty.jsonl"}, "empty.jsonl"),
        ([], {"dataset": "none"}, "none holds no rows"),
        ([], {"reward": "acuracy_reward"}, "unknown reward 'acuracy_reward'; did you mean 'accuracy_reward'?"),
        ([], {"reward": "check_rewards.digit_reward"}, "has no 'digit_reward'; did you mean 'digits_reward'?"),
        ([], {"reward": "check_rewards.Digits"}, "is a class; give a function, or an object made of it"),
        ([], {"reward": "check_rewards.make_reward"}, "check_rewards.make_reward(weight) is no reward, which"),
        ([], {"reward": "os.path.join"}, "os.path.join(a, p) is no reward"),
        ([], {"reward": "trl.rewards.get_soft_overlong_punishment"}, "if it makes one, call it in a module of yours"),
        ([], {"reward": "check_rewards"}, "is a module; name a function in it: check_rewards.some_reward"),
        ([], {"reward": "check_reward.digits_reward"}, "there is no module 'check_reward' here or installed; did you"),
        ([], {"reward": "unfinished.some_reward"}, "unfinished.py, line 1 is no Python: "),
        ([], {"reward": "cosine_length_reward"}, "check its accuracy part: accuracy_reward"),
        ([], {"reward": "language_consistency_reward"}, "language_consistency_reward reads no golds; check the reward"),
        ([], {"dataset": ""}, "--dataset needs a Hub id, a folder"),
        ([], {"dataset": "blank.jsonl"}, "blank.jsonl holds no rows"),
        ([], {"dataset": "list.json"}, "list.json holds no rows"),
    ],
)
def test_call_that_cannot_work_is_one_line_and_exits_2(here, capsys, argv, names, sentence):
    DatasetDict(train=Dataset.from_dict({"solution": ["4"]})).save_to_disk("rows")
    Dataset.from_dict({"solution": ["4"]}).select([]).save_to_disk("none")
    for name, text in (
        ("empty.jsonl", ""),
        ("blank.jsonl", "\n \n"),
        ("list.json", " [ ]\n"),
        ("unfinished.py", "def ("),
    ):
        (here / name).write_text(text)
    _refused(capsys, 2, sentence, *argv, **names)


def test_error_of_the_reward_exits_2_and_says_how_to_see_where(here, capsys, monkeypatch):
    assert _check(reward="check_rewards.choosy_reward") == 2
    assert "a value that I do not like (TRL_EXT_DEBUG=1 shows where)" in capsys.readouterr().err
    monkeypatch.setenv("TRL_EXT_DEBUG", "1")
    with pytest.raises(ValueError, match="a value that I do not like"):
        _check(reward="check_rewards.choosy_reward")


def test_bug_in_the_reward_raises(here):
    with pytest.raises(KeyError, match="bug"):
        _check(reward="check_rewards.broken_reward")
