"""The backends that make completions, by name. Importing this module loads the standard library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trl_ext._text import did_you_mean
from trl_ext.errors import UserError
from trl_ext.evaluation.requests import Generator

if TYPE_CHECKING:
    from trl_ext.evaluation._generate_server import ServerGenerator as ServerGenerator
    from trl_ext.evaluation._generate_transformers import TransformersGenerator as TransformersGenerator
    from trl_ext.evaluation._generate_vllm import VLLMGenerator as VLLMGenerator

BACKENDS = ("auto", "transformers", "vllm", "server")


def open_generator(
    model: str | None,
    *,
    backend: str = "auto",
    adapter: str | None = None,
    revision: str | None = None,
    adapter_revision: str | None = None,
    load_in_4bit: bool = False,
    dtype: str | None = None,
    device: str | None = None,
    server_url: str | None = None,
    **settings: Any,
) -> Generator:
    """The backend that makes completions, with its model loaded.

    Args:
        model (`str`, *optional*): name or folder of a model or of an adapter, `"smol"` for the demo model; on a server
            the name that it serves. None takes the base that the adapter names.
        backend (`str`): `"transformers"`, `"vllm"`, `"server"`, or `"auto"`: the server where `server_url` is given,
            else transformers, which gives the completions that `EvaluationCallback` gives.
        adapter (`str`, *optional*): name or folder of a PEFT adapter.
        revision (`str`, *optional*): branch, tag or commit of the model on the Hub.
        adapter_revision (`str`, *optional*): branch, tag or commit of the adapter on the Hub.
        load_in_4bit (`bool`): quantise the model with bitsandbytes (NF4) while it is loaded.
        dtype (`str`, *optional*): `"float32"`, `"bfloat16"`, `"float16"`; by default that of the checkpoint.
        device (`str`, *optional*): such as `"cuda:0"` or `"cpu"`; by default an accelerator where there is one.
        server_url (`str`, *optional*): address of an OpenAI-compatible endpoint, such as `http://localhost:8000/v1`.
        settings: further arguments of the backend's class, such as `concurrency` of `ServerGenerator`.

    Returns:
        `Generator`: a `TransformersGenerator`, `VLLMGenerator` or `ServerGenerator`.

    Raises:
        UserError: For an unknown backend, arguments that it does not take, or a model that cannot be loaded.
    """
    loading: dict[str, Any] = {"adapter": adapter, "revision": revision, "adapter_revision": adapter_revision}
    loading |= {"load_in_4bit": load_in_4bit, "dtype": dtype}
    if backend not in BACKENDS:
        allowed = ", ".join(map(repr, BACKENDS))
        raise UserError(f"backend={backend!r} is none of {allowed}{did_you_mean(backend, BACKENDS)}.")
    if backend == "auto":
        backend = "server" if server_url else "transformers"
    if backend == "server":
        return _open_server(model, server_url, loading | {"device": device}, settings)
    if server_url:
        raise UserError(f"server_url={server_url!r} is of backend='server', not of {backend!r}; leave one of them out.")
    if backend == "vllm":
        from trl_ext.evaluation._generate_vllm import VLLMGenerator

        if device is not None:
            raise UserError(f"device={device!r} is not taken by vLLM; choose the GPU with CUDA_VISIBLE_DEVICES.")
        return VLLMGenerator(model, **loading, **settings)
    from trl_ext.evaluation._generate_transformers import TransformersGenerator

    return TransformersGenerator.from_pretrained(model, device=device, **loading, **settings)


def _open_server(
    model: str | None, url: str | None, given: Mapping[str, Any], settings: Mapping[str, Any]
) -> Generator:
    from trl_ext.evaluation._generate_server import ServerGenerator

    unused = [name for name, value in given.items() if value]
    if unused:
        raise UserError(f"{unused[0]}={given[unused[0]]!r} is decided by the server; start it with that, or leave it.")
    if not url or not model:
        missing = "server_url" if not url else "model"
        raise UserError(f"backend='server' needs {missing}: the endpoint's address and the name that it serves.")
    return ServerGenerator(url, model, **settings)


_HOMES = {
    "TransformersGenerator": "_generate_transformers",
    "ServerGenerator": "_generate_server",
    "VLLMGenerator": "_generate_vllm",
}


def __getattr__(name: str) -> Any:
    """The backends' classes, each imported when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{did_you_mean(name, _HOMES)}")
    import importlib

    return getattr(importlib.import_module(f"trl_ext.evaluation.{_HOMES[name]}"), name)
