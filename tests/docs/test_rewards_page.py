"""docs/rewards.md and the README's part on rewards say what the code does."""

import ast
import contextlib
import inspect
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import reward_funcs
from reward_funcs import AccuracyReward, Batch

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "rewards.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
SOURCE = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "reward_funcs").rglob("*.py")))
REWARDS = [name for name in reward_funcs.__all__ if name.endswith("_reward")]
CLASSES = [
    name
    for name in reward_funcs.__all__
    if inspect.isclass(value := getattr(reward_funcs, name))
    and issubclass(value, reward_funcs.Reward)
    and value is not reward_funcs.Reward
]


def _table(header):
    """Rows of the table that starts with the header, as lists of cells."""
    lines = PAGE[PAGE.index(header) :].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


REWARD_ROWS = _table("| reward | class |")
COMPOSITION_ROWS = _table("| class | value |")
REASON_ROWS = _table("| reason | reward |")


def _names(cell):
    return re.findall(r"`(\w+)`", cell)


def _defaults(name):
    parameters = inspect.signature(getattr(reward_funcs, name)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty and p.name != "name"}


def test_table_has_every_public_reward_once():
    assert sorted(_names(row[0])[0] for row in REWARD_ROWS) == sorted(REWARDS)


def test_tables_have_every_public_class_once():
    assert sorted(_names(row[1])[0] for row in REWARD_ROWS) + sorted(_names(row[0])[0] for row in COMPOSITION_ROWS) == [
        *sorted(name for name in CLASSES if name.endswith("Reward")),
        *sorted(name for name in CLASSES if not name.endswith("Reward")),
    ]


@pytest.mark.parametrize("row", REWARD_ROWS, ids=lambda row: row[0].strip("`"))
def test_reward_in_the_table_is_of_the_class_beside_it(row):
    assert type(getattr(reward_funcs, _names(row[0])[0])).__name__ == _names(row[1])[0]


@pytest.mark.parametrize(
    ("name", "cell"),
    [(_names(row[1])[0], row[6]) for row in REWARD_ROWS] + [(_names(row[0])[0], row[2]) for row in COMPOSITION_ROWS],
)
def test_settings_in_the_tables_are_those_of_the_signature(name, cell):
    settings = dict(setting.split("=", 1) for setting in re.findall(r"`([^`]+)`", cell))
    assert {key: ast.literal_eval(value) for key, value in settings.items()} == _defaults(name)


def test_settings_in_the_text_exist():
    known = {"log_completions"}.union(*(inspect.signature(getattr(reward_funcs, name)).parameters for name in CLASSES))
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.S)
    named = {word for code in re.findall(r"`([^`\n]+)`", prose) for word in re.findall(r"(?<![\w-])(\w+)=", code)}
    assert named - known == set()


def test_columns_in_the_table_are_read_by_the_code():
    named = {name for row in REWARD_ROWS for name in _names(row[5])} - {"accuracy", "language_column"}
    assert [name for name in named if f'"{name}"' not in SOURCE and f"{name}:" not in SOURCE] == []


def _documented_reasons():
    return {name for row in REASON_ROWS for name in _names(row[0])} | {"no_number"}


def test_reasons_in_the_page_exist_in_the_code():
    words = set(re.findall(r"""["']([a-z_]+)["']""", SOURCE))
    assert 'f"gold_{reason}"' in SOURCE
    assert {name for name in _documented_reasons() if name.removeprefix("gold_") not in words} == set()


def test_every_reason_of_the_labelled_answers_is_in_the_page():
    lines = (ROOT / "tests" / "reward_funcs" / "labelled_answers.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    reward = AccuracyReward()
    grades = reward.grade(Batch([row["completion"] for row in rows], {"solution": [row["gold"] for row in rows]}))
    assert {grade.reason for grade in grades} - _documented_reasons() == set()


def test_settings_that_allow_a_refused_answer_allow_it():
    cases = {
        "allow_unevaluated": (r"\boxed{\gcd(10, 15)}", "5", "unevaluated"),
        "allow_alternatives": (r"\boxed{4} or \boxed{5}", "5", "several_answers"),
        "read_think": (r"<think>\boxed{5}</think>", "5", "answer_in_think"),
        "allow_unsolved": (r"\boxed{x + 1 = 6}", "x=5", "unsolved"),
    }
    for setting, (completion, gold, reason) in cases.items():
        batch = Batch([completion], {"solution": [gold]})
        assert AccuracyReward().grade(batch)[0][:2] == (0.0, reason)
        assert AccuracyReward(**{setting: True}).grade(batch)[0].reward == 1.0


def test_code_of_the_page_prints_what_its_comments_say():
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.S):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, "docs/rewards.md", "exec"), namespace)
        assert printed.getvalue().splitlines() == re.findall(r"^print\(.*\)  # (.*)$", block, flags=re.M)


@pytest.mark.parametrize("text", [PAGE, README], ids=["rewards.md", "README.md"])
def test_rewards_named_on_command_lines_exist(text):
    commands = " ".join(re.findall(r"```shell\n(.*?)```", text, flags=re.S)).replace("\\\n", " ")
    commands += " ".join(re.findall(r"`(trl[^`]*)`", text))
    named = set(re.findall(r"\b(?:reward_funcs\.)?([a-z_]+_reward)\b", commands)) - {"brevity_reward"}
    assert named and named <= set(REWARDS)


def test_check_command_of_the_page_is_understood():
    from trl_ext.scripts.check import _arguments

    for line in re.findall(r"^trl-ext check (.*)$", PAGE, flags=re.M):
        assert _arguments(shlex.split(line)).reward in REWARDS


def test_readme_has_every_reward():
    table = README[README.index("## Rewards") : README.index("## What is in it")]
    assert re.findall(r"^\| `(\w+_reward)` \|", table, flags=re.M) == [_names(row[0])[0] for row in REWARD_ROWS]


@pytest.mark.slow
def test_readme_example_runs_on_a_tiny_model(tmp_path):
    from trl_ext.testing import tiny_model, tiny_tokenizer

    tiny_model().save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    section = README[README.index("## Rewards") :]
    script = re.search(r"```python\n(.*?)```", section, flags=re.S)[1]
    for old, new in (
        ("Qwen/Qwen3-0.6B", str(tmp_path / "model")),
        ("GRPOConfig(", "GRPOConfig(max_steps=1, max_completion_length=8, report_to='none', bf16=False, "),
    ):
        assert script.count(old) == 1
        script = script.replace(old, new)
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "accuracy_reward" in run.stdout
