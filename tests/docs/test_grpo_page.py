"""docs/grpo.md: its tables are what the presets compute, and it has a paragraph on each of them."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trl_ext.grpo.presets import PRESETS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "grpo.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("make_grpo_tables", ROOT / "benchmarks" / "make_grpo_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_has_the_tables_of_the_presets():
    command = [sys.executable, "benchmarks/make_grpo_tables.py", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert check.returncode == 0, check.stdout + check.stderr


def test_page_explains_every_preset_once():
    assert re.findall(r"^\*\*`(\w+)`\*\* - ", PAGE, flags=re.M) == list(PRESETS)


def test_page_example_gives_the_numbers_it_says():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    expression = code.strip().splitlines()[-1]
    scope = {}
    exec(code, scope)
    found = eval(expression, scope).tolist()
    assert found == pytest.approx([float(cell) for cell in expression.split("#")[1].split(",")], abs=1e-4)


def test_table_holds_hand_numbers(tables):
    rows = {line.split("|")[1].strip(): line for line in reversed(tables.presets_table().splitlines())}
    assert rows["`dr_grpo`"].endswith("| 0.7500, -0.2500, -0.2500, -0.2500 |")
    assert rows["`rloo`"].endswith("| 1.0000, -0.3333, -0.3333, -0.3333 |")
    assert rows["`open_instruct`"].endswith("| 0 | 1e-8 | dapo | 1.7321, -0.5774, -0.5774, -0.5774 |")


def test_filled_keeps_the_rest_of_the_page_and_is_stable(tables):
    page = tables.filled(f"a\n{tables.BEGIN}\nstale\n{tables.END}\nb\n")
    assert page.startswith(f"a\n{tables.BEGIN}\n\n| ") and page.endswith(f"\n\n{tables.END}\nb\n")
    assert "stale" not in page and tables.filled(page) == page


@pytest.mark.parametrize("order", ["B", "E", "EB", "BBE", "BEE", ""])
def test_filled_without_exactly_one_block_raises(tables, order):
    text = "".join({"B": tables.BEGIN, "E": tables.END}[letter] for letter in order)
    with pytest.raises(ValueError, match="must be there once"):
        tables.filled(text)
