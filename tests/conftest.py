"""Shared fixtures; sets the process offline before anything imports a hub client."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
# the models are tiny: a second thread would only wait for the first, and on a busy machine for most of the run
os.environ["OMP_NUM_THREADS"] = "1"

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from trl_ext import smol
from trl_ext.testing import tiny_model, tiny_tokenizer

torch.set_num_threads(1)  # in case that torch was imported before this file set the variable


@pytest.fixture(autouse=True)
def _seeded():
    """The same random numbers in every test, whichever ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def smol_path() -> Path:
    """Folder of the demo model; the test is skipped where it is not cached."""
    if not smol.is_cached():
        pytest.skip("the demo model is not cached; run `python -m trl_ext.smol`")
    return smol.model_path(download=False)


@pytest.fixture(scope="session")
def tiny_model_path(tmp_path_factory) -> Path:
    """Folder of a saved tiny model with its tokenizer, for what loads a model by name."""
    folder = tmp_path_factory.mktemp("tiny") / "tiny-llama"
    tiny_model().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
