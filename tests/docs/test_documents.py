"""README, docs and examples say what is true: tables come from results, links lead somewhere, code runs."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


def test_readme_tables_are_those_of_the_results():
    check = subprocess.run(
        [sys.executable, "benchmarks/make_tables.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert check.returncode == 0, check.stdout + check.stderr


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_result_names_command_and_machine(path):
    report = json.loads(path.read_text(encoding="utf-8"))
    assert report["command"].startswith(("python benchmarks/", "python examples/"))
    assert (ROOT / report["command"].split()[1]).is_file()
    assert report["machine"]["device"]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_relative_links_lead_to_files(page):
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_python_blocks_parse_and_import_what_exists(page):
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S):
        tree = ast.parse(block)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("trl_ext"):
                module = __import__(node.module, fromlist=["*"])
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def test_ppo_page_names_every_new_field_that_exists():
    from dataclasses import fields

    from trl import GRPOConfig

    from trl_ext.ppo import PPOConfig

    own = {f.name for f in fields(PPOConfig)} - {f.name for f in fields(GRPOConfig)}
    documented = set(re.findall(r"^        (\w+) \(`", PPOConfig.__doc__, flags=re.M))
    assert own == documented


@pytest.mark.slow
def test_example_runs_on_a_tiny_model(tmp_path):
    from trl_ext.testing import tiny_model, tiny_tokenizer

    tiny_model().save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    command = [sys.executable, str(ROOT / "examples" / "ppo_addition.py"), "--model", str(tmp_path / "model")]
    command += ["--steps", "1", "--completions", "8", "--output_dir", str(tmp_path / "out")]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    assert (tmp_path / "out" / "adapter_model.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("outcome_weight", ["1.0", "0"])
def test_process_supervision_example_runs_on_the_tiny_model(tmp_path, outcome_weight):
    command = [sys.executable, str(ROOT / "examples" / "process_supervision.py"), "--model", "tiny", "--steps", "2"]
    command += ["--completions", "8", "--outcome_weight", outcome_weight, "--output_dir", "out"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    assert (tmp_path / "out" / "adapter_model.safetensors").is_file()
    printed = run.stdout.splitlines()[-3:]
    assert [line.split(":")[0] for line in printed] == [
        "reward",
        "process/arithmetic_step_reward/mean",
        "process/new_line_steps/mean",
    ]


def test_process_supervision_example_refuses_a_part_of_a_group(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "process_supervision.py"), "--completions", "12"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 2 and "must be a multiple of 8" in run.stderr
