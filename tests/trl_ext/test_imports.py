"""Which module may load which: the contract on `sys.modules`, each time in a fresh process."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import trl_ext
import trl_ext.grpo
import trl_ext.ppo

ROOT = Path(trl_ext.__file__).resolve().parent.parent
HEAVY = {"accelerate", "bitsandbytes", "datasets", "numpy", "peft", "torch", "transformers", "trl"}

IMPORT_ALL = """
import importlib, pkgutil
package = importlib.import_module({package!r})
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
"""


PURE = ("masking", "advantages", "kl", "losses", "diagnostics")
LIGHT = (
    *("trl_ext", "trl_ext.cli", "trl_ext.errors", "trl_ext.grpo", "trl_ext.ppo"),
    *("trl_ext.smol", "trl_ext.testing", "trl_ext.versions"),
)
# What follows in one process sees what came before it: names that are loaded only add up, so that each line holds at
# least what its code alone would load.
SEVERAL = """
import sys, json
before = set(sys.modules)
for code in json.loads(sys.argv[1]):
    exec(code)
    print(json.dumps([*(set(sys.modules) - before)]))
"""


def _loaded_one_by_one(*codes: str) -> list[set[str]]:
    """Names of the modules that are loaded on top of a bare interpreter after each of the `codes`, in one process."""
    result = subprocess.run(
        [sys.executable, "-c", SEVERAL, json.dumps(codes)],
        **{"cwd": ROOT, "capture_output": True, "text": True, "check": False, "stdin": subprocess.DEVNULL},
    )
    assert result.returncode == 0, result.stderr
    return [set(json.loads(line)) for line in result.stdout.splitlines()[-len(codes) :]]


def _top_level(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def _loaded(code: str) -> set[str]:
    """Top-level names of the modules that `code` loads in a process of its own."""
    return _top_level(_loaded_one_by_one(code)[0])


@pytest.fixture(scope="module")
def pure():
    """Top-level names after the import of each of the pure modules."""
    return dict(zip(PURE, map(_top_level, _loaded_one_by_one(*(f"import trl_ext.{n}" for n in PURE))), strict=True))


@pytest.fixture(scope="module")
def configs():
    """Modules after the import of each of the configurations."""
    names = ("PPOConfig", "GRPOVariantConfig")
    found = _loaded_one_by_one(*(f"from trl_ext import {name}" for name in names))
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("module", LIGHT)
def test_import_of_light_module_loads_nothing_heavy(module):
    assert not _loaded(f"import {module}") & HEAVY


def test_dir_and_unknown_name_load_nothing_heavy():
    assert not _loaded("import trl_ext; dir(trl_ext); hasattr(trl_ext, 'nothing')") & HEAVY


@pytest.mark.parametrize("name", PURE)
def test_pure_module_loads_torch_and_no_library_on_top_of_it(pure, name):
    assert not pure[name] & (HEAVY - {"torch", "numpy"})


def test_reward_funcs_modules_load_only_the_standard_library():
    loaded = _loaded(IMPORT_ALL.format(package="reward_funcs"))
    assert loaded - set(sys.stdlib_module_names) == {"reward_funcs"}


def test_datasets_builders_modules_never_load_trl_ext():
    assert "trl_ext" not in _loaded(IMPORT_ALL.format(package="datasets_builders"))


def test_ppo_config_alone_loads_no_trainer_of_ours(configs):
    assert "trl_ext.ppo.trainer" not in configs["PPOConfig"]


def test_grpo_config_alone_loads_no_trainer_of_ours(configs):
    assert "trl_ext.grpo.trainer" not in configs["GRPOVariantConfig"]


def _imported(path) -> set[str]:
    """Modules that a file names in an import, wherever in it that stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize(
    ("files", "others"),
    [
        ("trl_ext/ppo/*.py", ("trl_ext.grpo", "trl_ext.scripts")),
        ("trl_ext/grpo/*.py", ("trl_ext.ppo", "trl_ext.scripts")),
        ("trl_ext/_*.py", ("trl_ext.grpo", "trl_ext.ppo", "trl_ext.scripts")),
    ],
)
def test_trainers_and_what_they_share_never_import_one_another(files, others):
    paths = [path for path in ROOT.glob(files) if path.name != "__init__.py"]
    assert len(paths) > 4
    for path in paths:
        assert [name for name in _imported(path) if f"{name}.".startswith(tuple(f"{o}." for o in others))] == [], path


def _declared(package) -> dict[str, str]:
    """Names that the `TYPE_CHECKING` block of a package imports, with their modules."""
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {alias.asname: f"{node.module}" for node in block.body for alias in node.names}


@pytest.mark.parametrize("package", [trl_ext, trl_ext.grpo, trl_ext.ppo], ids=lambda package: package.__name__)
def test_lazy_names_are_those_that_the_type_checker_sees(package):
    declared = _declared(package)
    for name, module in declared.items():
        value = getattr(package, name)
        assert value is getattr(sys.modules[module], name)
    submodules = {module.rpartition(".")[2] for module in declared.values()}
    offered = {name for name in package.__dir__() if not name.startswith("_")}
    assert set(declared) <= offered
    assert submodules <= offered


def test_submodule_named_like_a_concept_stays_a_submodule():
    assert trl_ext.kl.__name__ == "trl_ext.kl"
    assert trl_ext.kl.kl_estimate is trl_ext.kl_estimate


def test_unknown_name_gets_did_you_mean():
    with pytest.raises(AttributeError, match=r"module 'trl_ext' has no attribute 'gea'; did you mean 'gae'\?"):
        _ = trl_ext.gea
    with pytest.raises(ImportError):
        from trl_ext import nothing  # noqa: F401
