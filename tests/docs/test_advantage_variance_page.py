"""docs/advantage_variance.md: its tables are those of the results, and the results are what theory says."""

import importlib.util
import json
import math
import re
from pathlib import Path

import pytest
import torch

from trl_ext.grpo.presets import PRESETS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "advantage_variance.md").read_text(encoding="utf-8")
RECORD = json.loads((ROOT / "benchmarks" / "results" / "advantage_variance.json").read_text(encoding="utf-8"))
ROWS = {(row["estimator"], row["num_generations"]): row for row in RECORD["figures"]}
SUCCESS_RATES = (0.0333, 0.0899, 0.2060, 0.3914, 0.6164, 0.8067, 0.9198, 0.9711)


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("advantage_variance", ROOT / "examples" / "advantage_variance.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_has_the_tables_of_the_results(example):
    assert example.filled(PAGE, RECORD) == PAGE, "run: python examples/advantage_variance.py --write"


def test_page_has_a_row_for_every_preset_in_every_table(example):
    for name in PRESETS:
        assert len(re.findall(rf"^\| {name} \|", PAGE, flags=re.M)) == len(example.FIGURES)


def test_results_name_command_versions_and_machine():
    assert RECORD["command"].startswith("python examples/advantage_variance.py")
    assert RECORD["machine"]["device"] and RECORD["versions"]["torch"] and RECORD["settings"]["seed"] == 0


def test_docstring_of_the_example_has_the_measured_figures(example):
    rloo, plain = (f"{ROWS[name, 8]['completions']:.0f}" for name in ("rloo", "reinforce, none"))
    trl, maxrl = (f"{ROWS[name, 8]['cosine']:.3f}" for name in ("trl", "maxrl"))
    words = f"noise = signal after {rloo} completions (REINFORCE: {plain}); cosine of `trl` {trl}, `maxrl` {maxrl}"
    assert words in example.__doc__


def test_page_has_the_success_rates_of_the_bandit(example):
    rates = torch.mul(*example.bandit()).sum(1).tolist()
    assert rates == pytest.approx(SUCCESS_RATES, abs=1e-4)
    words = ", ".join(f"{rate:.2f}" for rate in rates[:-1]) + f" and {rates[-1]:.2f}"
    assert words in " ".join(PAGE.split())


@pytest.mark.parametrize("num_generations", [2, 4, 8, 16])
def test_results_equal_the_exact_weights_of_the_prompts(num_generations):
    for name, formula in {
        "rloo": lambda p: 1.0,
        "reinforce, none": lambda p: 1.0,
        "reinforce": lambda p: 1.0,
        "dr_grpo": lambda p: (num_generations - 1) / num_generations,
        "maxrl": lambda p: (1 - (1 - p) ** (num_generations - 1)) / p,
    }.items():
        row = ROWS[name, num_generations]
        for rate, weight, error in zip(SUCCESS_RATES, row["weights"], row["weights_se"], strict=True):
            assert abs(weight - formula(rate) / row["scale"]) < 5 * math.hypot(error, row["scale_se"])


def test_results_bear_out_what_the_page_concludes():
    def figure(key, name, num_generations):
        return ROWS[name, num_generations][key]

    for name in ("rloo", "reinforce", "reinforce, none"):
        for num_generations in (2, 4, 8, 16):
            row = ROWS[name, num_generations]
            assert abs(row["scale"] - 1) < 4 * row["scale_se"] and abs(row["cosine"] - 1) < 4 * row["cosine_se"]
    assert figure("completions", "rloo", 2) > figure("completions", "reinforce", 2)
    for num_generations in (4, 8, 16):
        rloo = figure("completions", "rloo", num_generations)
        assert rloo < figure("completions", "reinforce", num_generations)
        assert rloo < figure("completions", "trl", num_generations)
        assert max(row["completions"] for row in ROWS.values() if row["num_generations"] == num_generations) == figure(
            "completions", "reinforce, none", num_generations
        )
    for name in ("trl", "maxrl"):
        assert figure("cosine", name, 4) > figure("cosine", name, 8) > figure("cosine", name, 16)


def test_a_short_run_agrees_with_the_results(example):
    for row in example.measured(*example.bandit(), 6000, 1):
        stored = ROWS[row["estimator"], row["num_generations"]]
        assert abs(row["scale"] - stored["scale"]) < 5 * math.hypot(row["scale_se"], stored["scale_se"])


def test_plot_writes_a_picture(example, tmp_path):
    example.plot(RECORD, tmp_path / "plot.png")
    for path in (tmp_path / "plot.png", ROOT / "docs" / "advantage_variance.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("order", ["B", "E", "EB", "BBE", "BEE", ""])
def test_filled_without_exactly_one_block_raises(example, order):
    text = "".join({"B": example.BEGIN, "E": example.END}[letter] for letter in order)
    with pytest.raises(ValueError, match="once"):
        example.filled(text, RECORD)


def test_example_has_at_most_150_lines():
    assert len((ROOT / "examples" / "advantage_variance.py").read_text(encoding="utf-8").splitlines()) <= 150
