"""A model with its adapter and tokenizer by name, and what to do where one of them is not there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from trl_ext._text import did_you_mean
from trl_ext.errors import UserError
from trl_ext.smol import MODEL_ALIAS, resolve_model

DTYPES = ("auto", "float32", "bfloat16", "float16")
ADAPTER_CONFIG = "adapter_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
_SHOWN = 3  # names of weights in a message


class Loaded(NamedTuple):
    """A model in memory and the names it was loaded by."""

    model: Any
    tokenizer: Any
    name: str
    adapter: str | None


def model_and_adapter(model: str | None, adapter: str | None) -> tuple[str, str | None]:
    """Names of the base model and of the adapter, from what the user gave.

    Args:
        model (`str`, *optional*): a model, a folder that holds only an adapter, or None for the adapter's base.
        adapter (`str`, *optional*): name or folder of an adapter.

    Returns:
        `tuple`: name or folder of the base, `"smol"` replaced, and of the adapter or None.

    Raises:
        UserError: If there is neither, a folder is missing or holds no adapter, or the base is not known.
    """
    if adapter is None and model is not None and _is_adapter_folder(model):
        model, adapter = None, model
    if adapter is None:
        if model is None:
            raise UserError("model is missing; name a model, or an adapter whose base is to be taken.")
        return _existing(model, "model"), None
    base = base_of(adapter)
    if model is None and not base:
        raise UserError(f"adapter={adapter!r} does not say which model it belongs to; name it with model.")
    if model is None:
        _check_base(adapter, str(base))
    return _existing(str(model or base), "model"), adapter


def _is_adapter_folder(name: str) -> bool:
    folder = Path(name)
    return (folder / ADAPTER_CONFIG).is_file() and not (folder / "config.json").is_file()


def _looks_like_folder(name: str) -> bool:
    """Whether the name can be nothing but a path: names on the Hub have one slash at most, and none at the start."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name


def _existing(name: str, argument: str) -> str:
    name = resolve_model(name)
    if _looks_like_folder(name) and not Path(name).expanduser().is_dir():
        raise UserError(f"{argument}={name!r} is no folder here; give an existing folder or a name on the Hub.")
    return name


def base_of(adapter: str) -> str | None:
    folder = Path(adapter)
    if not folder.is_dir():
        _existing(adapter, "adapter")
        return _base_on_hub(adapter)
    try:
        settings = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        inside = sorted(path.parent.name for path in folder.glob(f"*/{ADAPTER_CONFIG}"))
        hint = f"; there is one in its folder {inside[-1]!r}" if inside else ""
        raise UserError(
            f"adapter={adapter!r} holds no {ADAPTER_CONFIG}, so no adapter was saved there{hint}."
        ) from None
    except json.JSONDecodeError as error:
        raise UserError(f"adapter={adapter!r}: {ADAPTER_CONFIG} is not valid JSON ({error}); save it again.") from error
    base = settings.get("base_model_name_or_path") if isinstance(settings, dict) else None
    return base if isinstance(base, str) else None


def _base_on_hub(adapter: str) -> str | None:
    from peft import PeftConfig

    try:
        base = PeftConfig.from_pretrained(adapter).base_model_name_or_path
    except (OSError, ValueError) as error:
        raise UserError(f"adapter={adapter!r} cannot be loaded ({_first_line(error)}); check the name.") from error
    return base if isinstance(base, str) else None


def _check_base(adapter: str, base: str) -> None:
    if _looks_like_folder(base) and not Path(base).expanduser().is_dir():
        raise UserError(
            f"adapter={adapter!r} was trained on the model {base!r}, which is no folder here; name where it is with "
            "model."
        )


def load_model(
    model: str | None,
    *,
    adapter: str | None = None,
    revision: str | None = None,
    adapter_revision: str | None = None,
    load_in_4bit: bool = False,
    dtype: str | None = None,
    device: str | None = None,
) -> Loaded:
    """Model, adapter and tokenizer in memory; the arguments are those of `open_generator`.

    Raises:
        UserError: If something cannot be found or loaded, a checkpoint lacks weights of the model, or an adapter does
            not fit it.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if dtype is not None and dtype not in DTYPES:
        raise UserError(f"dtype={dtype!r} is none of {', '.join(DTYPES)}{did_you_mean(dtype, DTYPES)}.")
    name, adapter = model_and_adapter(model, adapter)
    place = torch.device(device) if device else _best_device()
    settings: dict[str, Any] = {"dtype": dtype or "auto", "revision": revision or "main"}
    if load_in_4bit:
        settings |= {"quantization_config": _four_bits(dtype, place), "device_map": {"": place}}
    try:
        loaded, found = AutoModelForCausalLM.from_pretrained(name, output_loading_info=True, **settings)
        source = tokenizer_of(name, adapter, adapter_revision)
        # an adapter has no configuration of a model, which names the class of the tokenizer
        of_adapter = {"config": loaded.config, "revision": adapter_revision or "main"}
        own = {"revision": settings["revision"]} if source == name else of_adapter
        tokenizer = AutoTokenizer.from_pretrained(source, **own)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise UserError(f"model={name!r} cannot be loaded ({_first_line(error)}); check name and revision.") from error
    _check_complete(name, found["missing_keys"])
    if not load_in_4bit:
        loaded = loaded.to(place)
    if adapter is not None:
        loaded = _with_adapter(loaded, adapter, name, adapter_revision)
    # a name that says the same on every machine
    return Loaded(loaded.eval(), tokenizer, MODEL_ALIAS if model == MODEL_ALIAS else name, adapter)


def _check_complete(name: str, missing: Iterable[str]) -> None:
    """transformers draws weights that a checkpoint lacks at random, and says so in a log alone."""
    absent = sorted(missing)
    if absent:
        raise UserError(
            f"model={name!r}: the checkpoint lacks {len(absent)} weights of the model ({_some(absent)}), which would "
            "be random numbers; save or download it again."
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _best_device() -> Any:
    import torch

    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is None:
        return torch.device("cpu")
    return torch.device(found.type, torch.accelerator.current_device_index())


def _four_bits(dtype: str | None, place: Any) -> Any:
    """NF4, as QLoRA trains; products in `dtype`, by default float32 on the CPU and bfloat16 elsewhere."""
    import torch
    from transformers import BitsAndBytesConfig

    chosen = dtype if dtype not in (None, "auto") else "float32" if place.type == "cpu" else "bfloat16"
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=getattr(torch, str(chosen))
    )


def tokenizer_of(name: str, adapter: str | None, revision: str | None = None) -> str:
    """The adapter, where training saved a tokenizer beside it: its chat template is the one trained with."""
    if adapter is None:
        return name
    if Path(adapter).is_dir():
        return adapter if (Path(adapter) / TOKENIZER_CONFIG).is_file() else name
    return adapter if _is_on_hub(adapter, TOKENIZER_CONFIG, revision) else name


def _is_on_hub(repository: str, file: str, revision: str | None) -> bool:
    """Whether the repository has the file; without a network, whether it was downloaded before."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        hf_hub_download(repository, file, revision=revision)
    except EntryNotFoundError:  # that it is not in the cache, too
        return False
    return True


def _with_adapter(model: Any, adapter: str, name: str, revision: str | None) -> Any:
    from peft import PeftModel
    from peft.utils import load_peft_weights, set_peft_model_state_dict
    from safetensors import SafetensorError

    try:
        loaded = PeftModel.from_pretrained(model, adapter, revision=revision)
        if loaded.active_peft_config.is_prompt_learning:  # no weights of layers
            return loaded
        # once more, since peft keeps to itself which weights it had no place for
        result = set_peft_model_state_dict(loaded, load_peft_weights(adapter, device="cpu", revision=revision))
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"adapter={adapter!r} does not fit the model {name!r} ({_first_line(error)}); name the model that it was "
            "trained on."
        ) from error
    lacking = sorted(key for key in result.missing_keys if ".lora_" in key)
    for keys, what in ((sorted(result.unexpected_keys), "the model has no place for"), (lacking, "the adapter lacks")):
        if keys:
            raise UserError(
                f"adapter={adapter!r} does not fit the model {name!r}: {what} {len(keys)} of its weights "
                f"({_some(keys)}); name the model that it was trained on."
            )
    return loaded


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(" .:") if lines else type(error).__name__
