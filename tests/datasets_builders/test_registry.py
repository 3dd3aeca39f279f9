from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import datasets_builders
from datasets_builders.converting import source_kind
from datasets_builders.loading import hub_splits
from datasets_builders.registry import BUILDERS, EVALUATION_SETS, evaluation_source, training_source
from datasets_builders.schema import COLUMNS, TASKS
from datasets_builders.source import Conversion

EVERY = [("train", name) for name in BUILDERS] + [("test", name) for name in EVALUATION_SETS]
# What the package promises to have: names of data sets that users already write in their scripts.
PROMISED = set(
    "gsm8k hendrycks_math if_rlvr open_reasoner_zero dapo_math acereason_math polaris klear_math klear_code omega "
    "acecode nemotron_code synthetic_2 tulu_3 wildchat multi_subject deepscaler numina openr1_math countdown "
    "arithmetic hh_rlhf ultrafeedback".split()
)
PROMISED_EVALUATION = set(
    "math_500 aime_2024 aime_2025 amc_2023 minerva olympiadbench arc_easy arc_challenge gsm8k ifeval ifbench humaneval "
    "mbpp".split()
)


def test_registry_has_what_is_promised():
    assert set(BUILDERS) >= PROMISED
    assert set(EVALUATION_SETS) >= PROMISED_EVALUATION
    assert set(BUILDERS) & set(EVALUATION_SETS) == {"gsm8k"}


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_name_is_a_source_with_its_facts(kind, name):
    source = (BUILDERS if kind == "train" else EVALUATION_SETS)[name]
    assert source.name == name
    assert source.evaluation == (kind == "test")
    assert isinstance(source.convert, Conversion)
    assert source.task in (*TASKS, "mixed")
    assert source_kind(source) in COLUMNS
    assert source.licence == source.licence.lower() != ""
    assert (source.path is None) == (source.generate is not None)
    assert source.columns or source.generate
    assert hub_splits(source, None) or source.generate
    assert "\n" not in source.note


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_evaluation_set_refuses_to_be_built(kind, name):
    if kind == "train":
        assert training_source(name) is BUILDERS[name]
    elif name not in BUILDERS:
        with pytest.raises(ValueError, match=rf"'{name}' is an evaluation set .* use build_eval\('{name}'\)"):
            training_source(name)
    if kind == "test":
        assert evaluation_source(name) is EVALUATION_SETS[name]


def test_no_training_source_reads_a_split_of_an_evaluation_set():
    read = {(source.path, source.config, split) for source in BUILDERS.values() for split in hub_splits(source, None)}
    held = {
        (source.path, source.config, split) for source in EVALUATION_SETS.values() for split in hub_splits(source, None)
    }
    assert ("openai/gsm8k", "main", "train") in read
    assert not read & held


def test_unknown_names_have_a_hint():
    with pytest.raises(ValueError, match=r"unknown source 'GSM-8K'; did you mean 'gsm8k'"):
        training_source("GSM-8K")
    with pytest.raises(ValueError, match=r"unknown source 'qqq'; choose one of gsm8k, hendrycks_math"):
        training_source("qqq")
    with pytest.raises(ValueError, match=r"unknown evaluation set 'aime2024'; did you mean 'aime_2024'"):
        evaluation_source("aime2024")
    with pytest.raises(ValueError, match=r"unknown source 5"):
        training_source(5)


def test_registry_is_a_mapping():
    assert "gsm8k" in BUILDERS and "math_500" not in BUILDERS and 5 not in BUILDERS
    assert len(BUILDERS) == len(list(BUILDERS))
    assert BUILDERS.get("nothing") is None
    with pytest.raises(KeyError, match=r"unknown name 'gsm8'; did you mean 'gsm8k'"):
        BUILDERS["gsm8"]
    assert repr(EVALUATION_SETS).startswith("Registry(math_500, ")


# The package


def loaded_modules(code: str) -> set[str]:
    script = f"import sys; before = set(sys.modules)\n{code}\nprint(*(set(sys.modules) - before))"
    root = Path(datasets_builders.__file__).resolve().parents[1]
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    return {name.split(".")[0] for name in result.stdout.split()}


HEAVY = {"datasets", "huggingface_hub", "math_verify", "numpy", "pandas", "pyarrow", "torch", "transformers", "trl"}


@pytest.mark.parametrize(
    "code",
    [
        "import datasets_builders; dir(datasets_builders); hasattr(datasets_builders, 'nothing')",
        "from datasets_builders import BUILDERS, EVALUATION_SETS; [*BUILDERS.values(), *EVALUATION_SETS.values()]",
        "from datasets_builders import build, build_eval, mix, recipe; recipe('olmo3-think')",
        "from datasets_builders import plan, recipe; plan(recipe('olmo3-instruct'))",
        "from datasets_builders import build\ntry: build('gms8k')\nexcept ValueError: pass",
    ],
)
def test_package_loads_no_library_before_it_reads_rows(code):
    loaded = loaded_modules(code)
    assert "datasets_builders" in loaded
    assert loaded & HEAVY == set()


def test_every_exported_name_is_there():
    for name in datasets_builders.__all__:
        assert getattr(datasets_builders, name) is not None
        assert name in dir(datasets_builders)
    assert {"build", "build_eval", "build_with_report", "BUILDERS", "EVALUATION_SETS", "mix"} <= set(
        datasets_builders.__all__
    )


def test_unknown_exported_name_has_a_hint():
    with pytest.raises(AttributeError, match=r"no attribute 'biuld'; did you mean 'build'"):
        getattr(datasets_builders, "biuld")  # noqa: B009 - the name as a user mistypes it


def test_pinned_revisions_are_commits_and_the_others_are_known():
    sources = [*BUILDERS.values(), *EVALUATION_SETS.values()]
    hub = {f"{source.path}": source.revision for source in sources if source.path is not None}
    assert all(re.fullmatch(r"[0-9a-f]{40}", revision) for revision in hub.values() if revision is not None)
    # one commit a repository, and no commit of two of them
    pins = {(source.path, source.revision) for source in sources if source.revision is not None}
    assert len(pins) == len({path for path, _ in pins}) == len({revision for _, revision in pins})
    assert {path for path, revision in hub.items() if revision is None} == {
        "Kwai-Klear/KlearReasoner-CodeSub-15K",
        "Kwai-Klear/KlearReasoner-MathSub-30K",
        "Open-Reasoner-Zero/orz_math_57k_collection",
        "PrimeIntellect/SYNTHETIC-2-RL",
        "TIGER-Lab/AceCode-87K",
        "allenai/omega-compositional",
        "allenai/omega-transformative",
        "virtuoussy/Multi-subject-RLVR",
    }
