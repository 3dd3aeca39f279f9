"""docs/evaluation.md: its figures are those of the record, and its commands and examples hold."""

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from trl_ext.evaluation._plot_panels import PANELS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")


def test_the_figures_are_those_of_the_record():
    command = [sys.executable, str(ROOT / "benchmarks" / "make_eval_tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_examples_give_what_is_printed():
    examples = doctest.DocTestParser().get_doctest(
        "\n".join(re.findall(r"```pycon\n(>>> .*?)```", PAGE, flags=re.S)), {}, "evaluation.md", None, None
    )
    assert len(examples.examples) >= 7
    assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(examples).failed == 0


@pytest.mark.parametrize("command", ["eval", "plot"])
def test_the_flags_on_the_page_are_flags_of_the_command(command):
    lines = re.findall(rf"^trl-ext {command} (.*?)(?:\s+#.*)?$", PAGE.replace("\\\n", " "), flags=re.M)
    assert lines
    done = subprocess.run([sys.executable, "-m", "trl_ext.cli", command, "--help"], capture_output=True, text=True)
    known = set(re.findall(r"--[a-z_]+", done.stdout))
    used = {word for line in lines for word in shlex.split(line) if word.startswith("--")}
    assert used <= known, used - known


def test_every_panel_of_the_plots_is_on_the_page():
    names = {panel.name for panel in PANELS}
    assert names and all(f"`{name}`" in PAGE for name in names)
