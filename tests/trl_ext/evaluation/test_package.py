"""What the package offers, and that importing it loads nothing heavy."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import trl_ext
from trl_ext import evaluation

ROOT = Path(trl_ext.__file__).resolve().parent.parent
HEAVY = {"accelerate", "datasets", "evaluate", "matplotlib", "numpy", "peft", "torch", "transformers", "trl", "vllm"}


def declared():
    """Names that the `TYPE_CHECKING` block of the package imports, with their modules."""
    tree = ast.parse(Path(evaluation.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return [(alias.asname, node.module) for node in block.body for alias in node.names]


def loaded(code):
    """Top-level names of the modules that `code` loads in a fresh process."""
    script = f"import sys, json\n{code}\nprint(json.dumps([*{{name.split('.')[0] for name in sys.modules}}]))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_of_the_package_loads_nothing_heavy():
    assert not loaded("import trl_ext.evaluation; dir(trl_ext.evaluation)") & HEAVY


@pytest.mark.parametrize("module", ["estimators", "votes", "statistics", "calibration"])
def test_metrics_load_numpy_alone(module):
    assert loaded(f"import trl_ext.evaluation.{module}") & HEAVY == {"numpy"}


@pytest.mark.parametrize("module", ["generation", "grading"])
def test_modules_with_the_dataclasses_load_no_torch(module):
    assert not loaded(f"import trl_ext.evaluation.{module}") & {"torch", "transformers", "trl"}


def test_no_module_of_the_package_imports_datasets_builders():
    for path in Path(evaluation.__file__).parent.rglob("*.py"):
        assert "datasets_builders" not in [
            (getattr(node, "module", None) or node.names[0].name).split(".")[0]
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, (ast.Import, ast.ImportFrom))
        ], path


@pytest.mark.parametrize(("name", "module"), declared())
def test_lazy_name_is_the_one_that_the_type_checker_sees(name, module):
    assert getattr(evaluation, name) is getattr(importlib.import_module(module), name)
    assert name in dir(evaluation)


def test_dir_offers_no_name_that_the_type_checker_does_not_see():
    modules = {module.rpartition(".")[2] for _, module in declared()}
    offered = {name for name in evaluation.__dir__() if name[0].isupper() or name.endswith("_at_k")}
    assert offered <= {name for name, _ in declared()} | modules | {"TYPE_CHECKING"}


@pytest.mark.parametrize("name", ["EvaluationCallback", "cons_at_k", "pass_at_k"])
def test_top_level_package_offers_the_evaluation(name):
    assert getattr(trl_ext, name) is getattr(evaluation, name)
    assert name in dir(trl_ext)


def test_calibration_is_the_module_and_holds_the_function():
    assert evaluation.calibration.__name__ == "trl_ext.evaluation.calibration"
    assert callable(evaluation.calibration.calibration)


def test_unknown_name_gets_did_you_mean():
    with pytest.raises(AttributeError, match=r"no attribute 'pass_at'; did you mean 'pass_at_k'"):
        _ = evaluation.pass_at
