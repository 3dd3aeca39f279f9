"""`trl-ext doctor`: versions, device and what works here."""

import argparse
import math
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

from trl_ext import __version__, smol, versions

if TYPE_CHECKING:
    import torch

PACKAGES = ("torch", "trl", "transformers", "peft", "bitsandbytes", "accelerate", "datasets")
OPTIONAL_PACKAGES = ("gguf", "math-verify", "vllm")

# NF4 loses about 10 % here, bfloat16 0.3 %; a broken kernel is off by far more
TRIAL_TOLERANCE = 0.25

Status = Literal["ok", "warn", "FAIL"]


@dataclass(frozen=True)
class Check:
    """One line of the report; only a `FAIL` makes the exit status 1."""

    name: str
    status: Status
    detail: str

    def __str__(self) -> str:
        return f"{self.status:>4}  {self.name:<14} {self.detail}"


def main(argv: list[str]) -> int:
    """Print the report.

    Args:
        argv (`list[str]`): arguments after the command name.

    Returns:
        0, or 1 when something is missing without which no trainer runs.
    """
    parser = argparse.ArgumentParser(prog="trl-ext doctor", description="Show versions, device and what works here.")
    parser.parse_args(argv)
    print(f"trl-ext {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    checks = []
    for group in (_package_checks, _device_checks, _storage_checks):
        for check in group():
            print(check, flush=True)
            checks.append(check)
    failed = [check.name for check in checks if check.status == "FAIL"]
    print(f"not ready: see {', '.join(failed)} above" if failed else "ready")
    return 1 if failed else 0


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _package_checks() -> list[Check]:
    checks = []
    for package in PACKAGES:
        found = _installed(package)
        detail = found or f"not installed; run `pip install {package}`"
        checks.append(Check(package, "ok" if found else "FAIL", detail))
    for package in OPTIONAL_PACKAGES:
        checks.append(Check(package, "ok", _installed(package) or "not installed (optional)"))
    try:
        versions.require_tested_trl()
        found = versions.installed_trl()
        tested = found is not None and versions.is_tested_trl(found)
        detail = "tested" if tested else f"untested, allowed by {versions.ALLOW_UNTESTED_VARIABLE}=1"
        checks.append(Check("TRL version", "ok" if tested else "warn", detail))
    except versions.UntestedTRLError as error:
        checks.append(Check("TRL version", "FAIL", str(error)))
    return checks


def _device_checks() -> list[Check]:
    try:
        import torch
    except ImportError as error:
        return [Check("device", "FAIL", f"torch cannot be imported: {error}")]
    if torch.cuda.is_available():
        name, memory = torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).total_memory
        device, detail = torch.device("cuda"), f"{torch.cuda.device_count()} x {name}, {memory / 2**30:.0f} GiB"
    elif torch.backends.mps.is_available():
        device, detail = torch.device("mps"), "Apple GPU"
    else:
        device, detail = torch.device("cpu"), f"CPU, {torch.get_num_threads()} threads"
    return [
        Check("device", "ok", detail),
        _trial("bf16", device, _bf16_error),
        _trial("4-bit", device, _four_bit_error),
    ]


def _trial(name: str, device: "torch.device", relative_error: Callable[["torch.device"], float]) -> Check:
    """Run a tiny computation: whether it works here is known only once it ran."""
    try:
        error = relative_error(device)
    except (ImportError, RuntimeError, OSError, AttributeError) as failure:
        reason = (str(failure).strip() or type(failure).__name__).splitlines()[0]
        return Check(name, "warn", f"does not work on {device.type}: {reason}")
    right = math.isfinite(error) and error < TRIAL_TOLERANCE
    return Check(name, "ok" if right else "warn", f"forward on {device.type}, relative error {error:.1%}")


def _bf16_error(device: "torch.device") -> float:
    import torch

    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).to(device)
    low = (x.bfloat16() @ x.bfloat16()).float()
    return float((low - x @ x).norm() / (x @ x).norm())


def _four_bit_error(device: "torch.device") -> float:
    import torch
    from bitsandbytes.nn import Linear4bit

    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(64, 64, generator=generator), torch.randn(8, 64, generator=generator)
    layer = Linear4bit(64, 64, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4")
    layer.load_state_dict({"weight": weight})
    low = layer.to(device)(x.to(device, torch.bfloat16)).float().cpu()
    return float((low - x @ weight.T).norm() / (x @ weight.T).norm())


def _storage_checks() -> list[Check]:
    root = smol.cache_root()
    cached = smol.is_cached()
    detail = str(smol.model_path(download=False)) if cached else "not cached; run `python -m trl_ext.smol`"
    existing = next(folder for folder in (root, *root.absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    enough = cached or free >= smol.REQUIRED_FREE_BYTES
    return [
        Check("demo model", "ok" if cached else "warn", detail),
        Check("free disk", "ok" if enough else "warn", f"{free / 1e9:.1f} GB at {existing}"),
    ]
