"""README, docs and examples say what is true: tables come from results, links lead somewhere, code runs."""

import ast
import json
import re
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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


@pytest.fixture(scope="module")
def examples_run(tmp_path_factory, tiny_model_path):
    """Name of a run of an example: its folder and what it came to; two at a time, as much of the time is imports."""
    process = ["process_supervision.py", "--model", "tiny", "--steps", "2", "--completions", "8"]
    arguments = {
        "ppo": ["ppo_addition.py", "--model", str(tiny_model_path), "--steps", "1", "--completions", "8"],
        "1.0": [*process, "--outcome_weight", "1.0"],
        "0": [*process, "--outcome_weight", "0"],
    }
    folders = {name: tmp_path_factory.mktemp("example") for name in arguments}

    def run(name):
        script, *rest = arguments[name]
        command = [sys.executable, str(ROOT / "examples" / script), *rest, "--output_dir", "out"]
        return subprocess.run(command, cwd=folders[name], capture_output=True, text=True, timeout=300)

    with ThreadPoolExecutor(2) as pool:
        return {name: (folders[name], done) for name, done in zip(arguments, pool.map(run, arguments), strict=True)}


@pytest.mark.slow
def test_example_runs_on_a_tiny_model(examples_run):
    folder, run = examples_run["ppo"]
    assert run.returncode == 0, run.stderr[-2000:]
    assert (folder / "out" / "adapter_model.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("outcome_weight", ["1.0", "0"])
def test_process_supervision_example_runs_on_the_tiny_model(examples_run, outcome_weight):
    folder, run = examples_run[outcome_weight]
    assert run.returncode == 0, run.stderr[-2000:]
    assert (folder / "out" / "adapter_model.safetensors").is_file()
    printed = run.stdout.splitlines()[-3:]
    assert [line.split(":")[0] for line in printed] == [
        "reward",
        "process/arithmetic_step_reward/mean",
        "process/new_line_steps/mean",
    ]


def test_process_supervision_example_refuses_a_part_of_a_group(tmp_path, monkeypatch, capsys):
    script = str(ROOT / "examples" / "process_supervision.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, "--completions", "12"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(script, run_name="__main__")
    assert ended.value.code == 2 and "must be a multiple of 8" in capsys.readouterr().err
