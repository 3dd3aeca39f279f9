"""docs/grpo.md: its tables are what the presets compute, and what it says of fields, figures and code holds."""

import ast
import contextlib
import dataclasses
import importlib.util
import inspect
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from trl import GRPOConfig

import reward_funcs.steps
from trl_ext.grpo import GRPOVariantConfig
from trl_ext.grpo.presets import PRESETS
from trl_ext.grpo.step_rewards import TokenClassificationStepReward
from trl_ext.grpo.steps import Steps
from trl_ext.kl import kl_estimate

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "grpo.md").read_text(encoding="utf-8")
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
COMMANDS = re.findall(r"^trl-ext grpo (--config.*)$", PAGE.replace("\\\n", " "), flags=re.M)


def _table(header):
    """Rows of the table that starts with the header, as lists of cells."""
    rows = PAGE[PAGE.index(header) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("make_grpo_tables", ROOT / "benchmarks" / "make_grpo_tables.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")  # as when it runs as a script
        spec.loader.exec_module(module)
    return module


def test_page_has_the_tables_of_the_presets():
    command = [sys.executable, "benchmarks/make_grpo_tables.py", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert check.returncode == 0, check.stdout + check.stderr


def test_page_explains_every_preset_once():
    assert re.findall(r"^\*\*`(\w+)`\*\* - ", PAGE, flags=re.M) == list(PRESETS)


def test_page_example_gives_the_numbers_it_says():
    code = PYTHON_BLOCKS[0]
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
    begin, end = tables.PAGE.marks("presets")
    page = tables.PAGE.filled(f"a\n{begin}\nstale\n{end}\nb\n", ["presets"])
    assert page.startswith(f"a\n{begin}\n\n| ") and page.endswith(f"\n\n{end}\nb\n")
    assert "stale" not in page and tables.PAGE.filled(page, ["presets"]) == page


@pytest.mark.parametrize("order", ["B", "E", "EB", "BBE", "BEE", ""])
def test_filled_without_exactly_one_block_raises(tables, order):
    begin, end = tables.PAGE.marks("presets")
    text = "".join({"B": begin, "E": end}[letter] for letter in order)
    with pytest.raises(ValueError, match="must be there once"):
        tables.PAGE.filled(text, ["presets"])


# --- the trainer --------------------------------------------------------------------------------------------------


def test_table_of_fields_has_every_own_field_with_its_default():
    inherited = {field.name for field in dataclasses.fields(GRPOConfig)}
    own = [(field.name, field.default) for field in dataclasses.fields(GRPOVariantConfig)]
    rows = _table("| field | default |")
    assert [(row[0].strip("`"), ast.literal_eval(row[1].strip("`"))) for row in rows] == [
        (name, default) for name, default in own if name not in inherited
    ]
    assert all(len(row) == 4 and row[2] and row[3] for row in rows)


def test_words_in_the_text_that_are_set_to_something_are_settings():
    known = {field.name for field in dataclasses.fields(GRPOVariantConfig)}
    for function in (reward_funcs.steps.ArithmeticStepReward, reward_funcs.steps.FormatProgressStepReward):
        known |= set(inspect.signature(function).parameters)
    known |= set(inspect.signature(TokenClassificationStepReward).parameters) | set(Steps._fields)
    known |= {"adv_estimator", "advantage_normalization_type", "lam"}  # of other libraries, and of PPO
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.S)
    named = {word for code in re.findall(r"`([^`\n]+)`", prose) for word in re.findall(r"(?<![\w-])(\w+)=", code)}
    assert named - known == set()


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.S))
def test_yaml_of_the_page_is_accepted(block, tmp_path):
    config = GRPOVariantConfig(str(tmp_path), bf16=False, **yaml.safe_load(block))
    assert config.loss_type == config.preset.loss_type


@pytest.mark.parametrize("name", [None, *PRESETS])
def test_presets_that_steps_can_have_are_those_of_the_page(name):
    from trl_ext.errors import UserError
    from trl_ext.grpo.process import check_process_preset

    (named,) = re.findall(r"`group`, `batch` or `none`, so (.*?) as they are", PAGE.replace("\n", " "))
    if name is None:
        assert set(re.findall(r"`(\w+)`", named)) < set(PRESETS)
    elif f"`{name}`" in named:
        check_process_preset(PRESETS[name], 0.0)
    else:
        with pytest.raises(UserError):
            check_process_preset(PRESETS[name], 0.0)
        if name in ("rloo", "reinforce"):
            check_process_preset(PRESETS[name], 1.0)


@pytest.mark.parametrize("block", [block for block in PYTHON_BLOCKS if "print(" in block])
def test_code_of_the_page_prints_what_its_comments_say(block):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "docs/grpo.md", "exec"), {})
    assert printed.getvalue().splitlines() == re.findall(r"^print\(.*\)  # (.*)$", block, flags=re.M)


@pytest.mark.parametrize("name", ["ArithmeticStepReward", "FormatProgressStepReward"])
def test_signatures_of_step_rewards_are_those_of_the_code(name):
    (given,) = re.findall(rf"^- `{name}\((.*?)\)`", PAGE, flags=re.M)
    parameters = inspect.signature(getattr(reward_funcs.steps, name)).parameters.values()
    told = dict(setting.split("=") for setting in given.split(", "))
    assert list(told) == [p.name for p in parameters if p.name != "name"]
    defaults = {p.name: getattr(p.default, "__name__", repr(p.default)) for p in parameters}
    assert {name: value for name, value in told.items() if value != "..."} == {
        name: defaults[name] for name, value in told.items() if value != "..."
    }


def _own_figures():
    """Names of the figures that the code writes."""
    folder = ROOT / "trl_ext" / "grpo"
    source = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    names = re.findall(r'(?:metrics(?:\["train"\]|\[mode\])?)\[f?"([^"]+)"\]\.append', source)
    (figures,) = re.findall(r"figures = \{(.*?)\}", source, flags=re.S)
    names += re.findall(r'^ +"(\w+)":', figures, flags=re.M)
    return {re.sub(r"\{\w+\}", "<name>", name) for name in names}


def test_table_of_figures_has_every_figure_that_is_written():
    told = [name for row in _table("| figure | what it is |") for name in re.findall(r"`([^`]+)`", row[0])]
    assert len(told) == len(set(told)) and set(told) == _own_figures()


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "abs"])
def test_gradients_of_kl_estimators_are_those_of_the_table(estimator, corrected):
    row = next(row for row in _table("| `kl_estimator` | formula |") if row[0] == f"`{estimator}`")
    told = row[2 if corrected else 3]
    logits, reference = torch.randn(6, requires_grad=True), torch.randn(6).log_softmax(0)
    logps = logits.log_softmax(0)
    estimates = kl_estimate(logps[None], reference[None], estimator)[0]
    if corrected:
        estimates = estimates * (logps - logps.detach()).exp()
    mean = (logps.detach().exp() * estimates).sum()
    of = {
        "KL(pi, ref)": (logps.exp() * (logps - reference)).sum(),
        "KL(ref, pi)": (reference.exp() * (reference - logps)).sum(),
        "has mean zero: no penalty at all": 0.0 * logps.sum(),
    }
    gradient, *others = (torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (mean, *of.values()))
    equal = [name for name, other in zip(of, others, strict=True) if torch.allclose(gradient, other, atol=1e-5)]
    assert equal == ([] if told == "of neither" else [told])


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_page_are_understood(command, tmp_path):
    from trl_ext.scripts import grpo
    from trl_ext.scripts._training import load_reward

    argv = [*shlex.split(command), "--output_dir", str(tmp_path), "--bf16", "False"]
    script_args, training_args, model_args = grpo._parse(argv)
    for name in [*script_args.reward_funcs, *(script_args.process_reward_funcs or [])]:
        assert callable(load_reward(name))
    assert training_args.max_steps == 200 and model_args.use_peft


def test_page_has_both_commands():
    assert len(COMMANDS) == 2 and "--process_reward_funcs" in COMMANDS[1]
