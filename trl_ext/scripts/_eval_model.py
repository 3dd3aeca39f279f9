"""The model of `trl-ext eval`: what can be said before it is loaded, and what tells its weights from others."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from trl_ext.errors import UserError

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
_BLOCK = 1 << 16
_NUM_BLOCKS = 64


def check_model(args: Any) -> None:
    """Refuse a model or adapter that cannot be loaded, as far as their folders tell; "smol" is fetched.

    Raises:
        UserError: With what is missing and the remedy.
    """
    from trl_ext._text import did_you_mean
    from trl_ext.evaluation.generation import BACKENDS

    if args.backend not in BACKENDS:
        raise UserError(
            f"--backend {args.backend} is none of {', '.join(BACKENDS)}{did_you_mean(args.backend, BACKENDS)}"
        )
    if args.backend == "server" or (args.backend == "auto" and args.server_url):
        return
    from trl_ext.evaluation._load_model import model_and_adapter

    model, adapter = model_and_adapter(args.model, args.adapter)
    if adapter is not None and args.model is not None and args.adapter is not None:
        _refuse_other_base(adapter, args.model, model)


def _refuse_other_base(adapter: str, given: str, model: str) -> None:
    """Refuse the model where the adapter names another one that could be taken."""
    file = Path(adapter) / "adapter_config.json"
    if not file.is_file():
        return
    base = json.loads(file.read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not base or _last(base) == _last(model):
        return  # the same model in another place
    if Path(base).is_absolute() and not Path(base).is_dir():
        return  # it was trained elsewhere: only the user knows what the model is called here
    raise UserError(
        f"--adapter {adapter} was trained on {base}, and --model is {given}; leave --model out, or name that model"
    )


def _last(name: str) -> str:
    return Path(name).name.lower()


def default_folder(args: Any) -> str:
    """`eval-<model>-<adapter>`, of the last parts of their names; a checkpoint brings its run's name."""
    names = [args.model] if args.model else []
    if args.adapter:
        path = Path(args.adapter)
        names.append(f"{path.parent.name}-{path.name}" if path.name.startswith("checkpoint-") else path.name)
    parts = [re.sub(r"[^\w.-]+", "-", Path(name).name or "model").strip("-.") for name in names]
    return "-".join(["eval", *filter(None, parts)])


def weights(args: Any) -> dict[str, str]:
    """What changes when a local model or adapter is trained further: a hash of parts of its weight files.

    Of each file the size and 64 blocks of 64 KiB count, evenly spread with the first and the last among them: a step of
    training changes all of them, and a model of many gigabytes takes a moment.
    """
    from trl_ext.smol import MODEL_ALIAS, resolve_model

    found = {}
    for role, name in (("model", args.model), ("adapter", args.adapter)):
        folder = Path(resolve_model(name) if name == MODEL_ALIAS else name or "")
        files = (
            sorted({file for pattern in _WEIGHTS for file in folder.glob(pattern)}) if name and folder.is_dir() else []
        )
        if files:
            found[role] = _hash(files)
    return found


def _hash(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        last = max(size - _BLOCK, 0)
        with file.open("rb") as stream:
            for start in sorted({last * step // (_NUM_BLOCKS - 1) for step in range(_NUM_BLOCKS)}):
                stream.seek(start)
                digest.update(stream.read(_BLOCK))
    return f"sha256:{digest.hexdigest()[:16]}"


def open_model(args: Any) -> Any:
    """The generator, with its model loaded on this process's device."""
    from trl_ext.evaluation.generation import open_generator

    settings: dict[str, Any] = {}
    if args.server_url:
        settings["server_url"] = args.server_url
    if args.concurrency is not None:
        settings["concurrency"] = args.concurrency
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not args.server_url:
        import torch

        if torch.cuda.is_available():
            settings["device"] = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return open_generator(
        args.model,
        backend=args.backend,
        adapter=args.adapter,
        revision=args.revision,
        load_in_4bit=args.load_in_4bit,
        dtype=args.dtype,
        **settings,
    )
