"""The choice of a backend; no model."""

import subprocess
import sys

import pytest

from trl_ext.errors import UserError
from trl_ext.evaluation.generation import open_generator


def test_import_loads_neither_torch_nor_transformers():
    code = "import sys, trl_ext.evaluation.generation; print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": "smol", "backend": "transformer"}, "did you mean 'transformers'"),
        ({"model": "m", "backend": "server"}, "needs server_url"),
        ({"model": None, "server_url": "http://localhost:1/v1"}, "needs model"),
        ({"model": "m", "server_url": "http://localhost:1/v1", "load_in_4bit": True}, "load_in_4bit=True is decided"),
        ({"model": "m", "server_url": "http://localhost:1/v1", "adapter": "a"}, "adapter='a' is decided"),
        ({"model": "m", "server_url": "http://x", "backend": "transformers"}, "is of backend='server'"),
        ({"model": "m", "backend": "vllm", "device": "cpu"}, "CUDA_VISIBLE_DEVICES"),
        ({"model": "m", "dtype": "float23"}, "did you mean 'float32'"),
        ({"model": None}, "model is missing"),
        ({"model": "./nowhere"}, r"model='\./nowhere' is no folder here"),
        ({"model": "m", "adapter": "./nowhere"}, r"adapter='\./nowhere' is no folder here"),
    ],
)
def test_open_generator_says_what_is_wrong(settings, words):
    with pytest.raises(UserError, match=words):
        open_generator(**settings)


def test_open_generator_finds_the_backend(tiny_model_path):
    server = open_generator("m", server_url="http://localhost:1/v1/", concurrency=3)
    assert (server.describe()["backend"], server.url, server.concurrency) == ("server", "http://localhost:1/v1", 3)
    assert open_generator(str(tiny_model_path)).describe()["backend"] == "transformers"


def test_module_offers_the_backends_by_name():
    from trl_ext.evaluation import generation

    assert generation.ServerGenerator.__name__ == "ServerGenerator"
    with pytest.raises(AttributeError, match="did you mean 'ServerGenerator'"):
        generation.ServerGenerater  # noqa: B018
