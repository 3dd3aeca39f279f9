"""The model of `trl-ext eval`: what can be said before it is loaded, and what tells its weights from others."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from trl_ext.errors import UserError
from trl_ext.evaluation._runner_url import shown_url
from trl_ext.evaluation.records import read_json
from trl_ext.scripts._data_text import say

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
_SETTINGS = (
    "config.json",
    "adapter_config.json",
    "*.index.json",
    "tokenizer*",
    "vocab.*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
)
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_CACHED = re.compile(r"/models--([^/]+)/snapshots/[^/]+/?$")
# what a trainer leaves beside the weights and no evaluation reads
_OF_TRAINING = ("training_args", "optimizer", "scheduler", "rng_state")


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
    if _is_server(args):
        _check_server(args)
        return
    from trl_ext.evaluation._load_model import DTYPES, model_and_adapter

    if args.server_url:
        raise UserError(f"--server_url is of --backend server, not of {args.backend}; leave one of them out")
    if args.backend == "vllm" and importlib.util.find_spec("vllm") is None:
        raise UserError('--backend vllm needs the package vllm; install it with `pip install "trl[vllm]"`')
    if args.dtype is not None and args.dtype not in DTYPES:
        raise UserError(f"--dtype {args.dtype} is none of {', '.join(DTYPES)}{did_you_mean(args.dtype, DTYPES)}")
    model, adapter = model_and_adapter(args.model, args.adapter)
    for name in (model, adapter):
        if name is not None and _is_folder(name):
            _refuse_torn_weights(Path(name).expanduser())
    if adapter is not None:
        _adapter_config(adapter)
    if adapter is not None and args.model is not None and args.adapter is not None:
        _check_base(adapter, args.model, model)


def _check_server(args: Any) -> None:
    """Refuse an address that is none, before anything is loaded."""
    if not args.server_url:
        raise UserError(
            "--backend server needs --server_url, the address of the server, such as http://localhost:8000/v1"
        )
    if not args.server_url.startswith(("http://", "https://")):
        raise UserError(
            f"--server_url {shown_url(args.server_url)} must start with http:// or https://, such as "
            "http://localhost:8000/v1"
        )


def _check_base(adapter: str, given: str, model: str) -> None:
    """Refuse a model that is not the adapter's base for certain, and warn where nothing here tells."""
    from trl_ext.evaluation._load_model import base_of

    base = base_of(adapter)
    same = _is_same(base, model) if base else True
    if same is False:
        raise UserError(
            f"--adapter {adapter} was trained on {base}, and --model is {given}; leave --model out, or name that model"
        )
    if same is None and os.environ.get("RANK", "0") == "0":
        say(
            f"warning: --adapter {adapter} was trained on {base}, and whether --model {given} is that model cannot be "
            "told here; see that it is",
            error=True,
        )


def _adapter_config(adapter: str) -> dict[str, Any]:
    """What the adapter's folder says of it, nothing for one on the Hub."""
    file = Path(adapter).expanduser() / "adapter_config.json"
    return read_json(file, "save the adapter again") if file.is_file() else {}


def _is_same(base: str, model: str) -> bool | None:
    """Whether these are one model, which may lie in two places; `None` where nothing here tells."""
    if _is_folder(base) and _is_folder(model):
        folders = [Path(name).expanduser().resolve() for name in (base, model)]
        # names of folders say little: every run may call its last one "final"
        hashes = [_weights_hash(folder) for folder in folders]
        return folders[0] == folders[1] or hashes[0] == hashes[1]
    names = [_hub_id(name) or Path(name).name.lower() for name in (base, model)]
    if len({name.rpartition("/")[2] for name in names}) == 1:  # of the same name, be it another owner's copy
        return True
    return False if all("/" in name for name in names) else None


def _hub_id(name: str) -> str | None:
    """The name on the Hub in small letters, also of a folder of its cache; `None` for any other path."""
    if _is_folder(name):
        found = _CACHED.search(Path(name).expanduser().absolute().as_posix())
        return "/".join(found[1].split("--")).lower() if found else None
    return name.lower() if _HUB_ID.fullmatch(name) else None


def _weights_hash(folder: Path) -> str | None:
    """A hash of the files of weights alone: a tokenizer that is saved again is no other model."""
    files = _files(folder, _WEIGHTS)
    states = [(file, file.stat()) for file in files]
    hashes = [f"{file.name} {_file_hash(file, state.st_size, state.st_mtime_ns)}" for file, state in states]
    return "\n".join(hashes) or None


def _refuse_torn_weights(folder: Path) -> None:
    """Refuse files of weights that are not there whole, such as after a download or a save that was broken off."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise UserError(f"{file} is no whole file of weights ({error}); save or download it again") from error


def default_folder(args: Any) -> str:
    """`eval-<model>-<adapter>`, of the last parts of their names; a checkpoint brings its run's name."""
    names = [args.model] if args.model else []
    if args.adapter:
        path = Path(args.adapter)
        names.append(f"{path.parent.name}-{path.name}" if path.name.startswith("checkpoint-") else path.name)
    parts = [re.sub(r"[^\w.-]+", "-", Path(name).name or "model").strip("-.") for name in names]
    return "-".join(["eval", *filter(None, parts)])


def weights(args: Any) -> dict[str, str]:
    """What changes when the model or adapter is trained further: a hash of a folder's files, a commit on the Hub.

    Whole files count, of weights, configuration and tokenizer, those of the base that an adapter names among them. A
    server says nothing about its weights.
    """
    if _is_server(args):
        return {}
    from trl_ext.evaluation._load_model import ADAPTER_CONFIG, model_and_adapter

    model, adapter = model_and_adapter(args.model, args.adapter)
    found: dict[str, str] = {}
    for role, name, revision, config in (
        ("model", model, args.revision, "config.json"),
        ("adapter", adapter, None, ADAPTER_CONFIG),
    ):
        if name is not None:
            state = _folder_hash(Path(name).expanduser()) if _is_folder(name) else _commit(name, config, revision)
            found |= {role: state} if state else {}
    return found


def _is_server(args: Any) -> bool:
    return args.backend == "server" or (args.backend == "auto" and bool(args.server_url))


def _is_folder(name: str) -> bool:
    return Path(name).expanduser().is_dir()


def _folder_hash(folder: Path) -> str | None:
    """A hash of the files that decide what a model says, `None` for a folder without weights."""
    if not _files(folder, _WEIGHTS):
        return None
    digest = hashlib.sha256()
    for file in _files(folder, (*_WEIGHTS, *_SETTINGS)):
        state = file.stat()
        digest.update(f"{file.name} {_file_hash(file, state.st_size, state.st_mtime_ns)}\n".encode())
    return f"sha256:{digest.hexdigest()[:16]}"


def _files(folder: Path, patterns: Iterable[str]) -> list[Path]:
    found = {file for pattern in patterns for file in folder.glob(pattern) if file.is_file()}
    return sorted(file for file in found if not file.name.startswith(_OF_TRAINING))


@cache
def _file_hash(file: Path, size: int, time: int) -> str:
    """Hash of a whole file; size and time of the last change are what it is kept under for this process."""
    if file.name == "adapter_config.json":
        with suppress(ValueError, AttributeError):
            settings = json.loads(file.read_bytes())
            settings.pop("base_model_name_or_path", None)  # where the base lies; what it is has a hash of its own
            return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _commit(name: str, config: str, revision: str | None) -> str | None:
    """The commit that a name on the Hub stands for now, `None` where it cannot be told."""
    from transformers.utils.hub import cached_file, extract_commit_hash

    try:
        file = cached_file(name, config, revision=revision or "main")
    except (OSError, ValueError):  # loading the model says what is wrong with it
        return None
    commit = extract_commit_hash(file, None)
    return f"commit:{commit}" if commit else None


def pin(args: Any, found: Mapping[str, str]) -> None:
    """Have `open_model` load the commits that the request names: a branch may move between the two.

    Args:
        args (`Namespace`): the arguments, which are changed.
        found (`Mapping`): what `weights` of the first process returns.
    """
    commits = {role: state.removeprefix("commit:") for role, state in found.items() if state.startswith("commit:")}
    args.asked_revision = args.revision
    args.revision = commits.get("model", args.revision)
    args.adapter_revision = commits.get("adapter")


def open_model(args: Any) -> Any:
    """The generator, with its model loaded on this process's device."""
    from trl_ext.evaluation.generation import open_generator

    settings: dict[str, Any] = {}
    if getattr(args, "adapter_revision", None):
        settings["adapter_revision"] = args.adapter_revision
    if args.server_url:
        settings["server_url"] = args.server_url
    if args.concurrency is not None:
        settings["concurrency"] = args.concurrency
    if args.chat_template_kwargs:
        given = {"chat_template_kwargs": args.chat_template_kwargs}
        settings |= {"extra_body": given} if _is_server(args) else given
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not args.server_url:
        import torch

        if torch.cuda.is_available():
            settings["device"] = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    generator = open_generator(
        args.model,
        backend=args.backend,
        adapter=args.adapter,
        revision=args.revision,
        load_in_4bit=args.load_in_4bit,
        dtype=args.dtype,
        **settings,
    )
    if hasattr(args, "asked_revision") and hasattr(generator, "revision"):
        generator.revision = args.asked_revision  # what was asked for; the commits stand under "weights"
    return generator
