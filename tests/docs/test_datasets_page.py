"""docs/datasets.md: its tables are those of the registry, and what it says of commands, flags, rows and code holds."""

import contextlib
import importlib.util
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from datasets import Dataset

from datasets_builders.export import OPEN_INSTRUCT_VERIFIERS, to_verl
from datasets_builders.gold_checks import form_fault
from datasets_builders.instructions import PRESETS, instructed
from datasets_builders.registry import BUILDERS, EVALUATION_SETS
from datasets_builders.schema import COLUMNS, TASKS, features, rl_row
from trl_ext.scripts import data
from trl_ext.scripts._data_arguments import arguments

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^trl-ext data (.*)$", PAGE, flags=re.M)


def _table(header):
    """Rows of the table that starts with the header, as lists of cells."""
    rows = PAGE[PAGE.index(header) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("make_data_tables", ROOT / "benchmarks" / "make_data_tables.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")  # as when it runs as a script
        spec.loader.exec_module(module)
    return module


def test_page_has_the_tables_of_the_registry():
    command = [sys.executable, "benchmarks/make_data_tables.py", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert check.returncode == 0, check.stdout + check.stderr


def test_tables_have_every_source_once(tables):
    for sources in (BUILDERS, EVALUATION_SETS):
        assert re.findall(r"^\| `(\w+)` \|", tables.sources_table(sources), flags=re.M) == list(sources)


def test_filled_keeps_the_rest_of_the_page_and_is_stable(tables):
    begin, end = tables.PAGE.marks("recipes")
    page = tables.PAGE.filled(f"a\n{begin}\nstale\n{end}\nb\n", ["recipes"])
    assert page.startswith(f"a\n{begin}\n\n| ") and page.endswith(f"\n\n{end}\nb\n")
    assert "stale" not in page and tables.PAGE.filled(page, ["recipes"]) == page
    assert "| total | 104,869 | 171,950 |" in page


@pytest.mark.parametrize("order", ["B", "E", "BBE", "BEE", ""])
def test_filled_without_exactly_one_block_raises(tables, order):
    begin, end = tables.PAGE.marks("recipes")
    text = "".join({"B": begin, "E": end}[letter] for letter in order)
    with pytest.raises(ValueError, match="must be there once"):
        tables.PAGE.filled(text, ["recipes"])


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_page_are_understood(command):
    name, *argv = shlex.split(command)
    assert name in data.COMMANDS
    arguments(name, argv)


def test_flags_of_the_page_are_there():
    import argparse

    from trl_ext.scripts._data_arguments import _OPTIONS

    known = {"--config", "--help"}
    for add in _OPTIONS.values():
        parser = argparse.ArgumentParser()
        add(parser)
        known |= {option for action in parser._actions for option in action.option_strings}
    prose = re.sub(r"^trl-ext grpo .*$", "", PAGE, flags=re.M)
    assert set(re.findall(r"(?<![\w-])--[a-z_]+", prose)) - known == set()


def test_columns_and_tasks_of_the_page_are_those_of_the_schema():
    rows = _table("| column | rows |")
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row[0])} == {
        name for names in COLUMNS.values() for name in names
    }
    (tasks,) = (row[2] for row in rows if row[0] == "`task`")
    assert set(re.findall(r"`(\w+)`", tasks)) == set(TASKS)
    assert all(f'"{preset}"' in PAGE for preset in PRESETS)


def test_forms_of_golds_are_valid():
    rows = {row[0].strip("`"): row[1] for row in _table("| task | `solution` |")}
    for task in ("code", "instruction"):
        for text in re.findall(r"`(\{.*?\})`", rows[task]):
            assert form_fault(task, text.replace("[...]", '["x"]').replace('"kwargs": ["x"]', '"kwargs": [null]')) == ""
    assert json.loads(rows["countdown"].strip("`")) == {"target": 24, "nums": [4, 6]}


@pytest.mark.parametrize("block", [b for b in re.findall(r"```python\n(.*?)```", PAGE, flags=re.S) if "print(" in b])
def test_code_of_the_page_prints_what_its_comments_say(block, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "docs/datasets.md", "exec"), {})
    assert printed.getvalue().splitlines() == re.findall(r"^print\(.*\)  # (.*)$", block, flags=re.M)


def test_names_for_other_libraries_are_those_of_the_export():
    rows = {row[0]: row[1].split("`")[1] for row in _table("| rows | `data_source` |")}

    def name(task, solution, source="mine", instruction="boxed"):
        row = instructed(rl_row("Q?", solution, task=task, source=source), instruction=instruction)
        return to_verl(Dataset.from_list([row], features=features("rl")))[0]["data_source"]

    assert rows["`math` and `choice` with a box"] == name("math", "$4$") == name("choice", "B")
    assert rows["`gsm8k` without an instruction"] == name("math", "$4$", "gsm8k", "none")
    assert rows["`code` with inputs and outputs"] == name("code", '{"inputs": ["1"], "outputs": ["1"]}')
    assert rows["all others"].replace("<task>", "judge") == name("judge", "text")
    (said,) = re.findall(r"open-instruct gets the name of its verifier(.*?)It has none for", PAGE, flags=re.S)
    assert set(re.findall(r"`([\w-]+)`", said)) - {"dataset"} == set(OPEN_INSTRUCT_VERIFIERS.values())
