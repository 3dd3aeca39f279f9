"""Build the wheel, install it alone into an empty environment and see that it stands without torch.

Run as `python .ci/wheel_check.py` with the package `build` installed; prints the best time of `trl-ext --help`.
"""

import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("trl_ext", "reward_funcs", "datasets_builders")
NOT_SHIPPED = {"ruff.toml"}
HELP_RUNS = 7
HELP_LIMIT_MS = 300
IMPORTS = f"""
import sys, {", ".join(PACKAGES)}
assert not {{"torch", "trl", "transformers"}} & set(sys.modules)
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Standard output of a command; its whole output and exit when it fails."""
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        sys.exit(f"wheel-check: failed: {' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def source_files() -> set[str]:
    """Paths that the wheel must hold."""
    return {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.name not in NOT_SHIPPED
        if not any(part == "__pycache__" or part.startswith(".") for part in path.relative_to(ROOT).parts)
    }


def check_contents(wheel: Path) -> None:
    """Exit when a source file, a recipe or a py.typed is missing, or when something else slipped in."""
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = source_files() | {f"{package}/py.typed" for package in PACKAGES}
    if shipped != expected:
        sys.exit(
            f"wheel-check: missing {sorted(expected - shipped)}, not expected {sorted(shipped - expected)} in the wheel"
        )
    recipes = sum(name.endswith((".yaml", ".yml")) for name in shipped)
    print(f"wheel-check: {wheel.name} holds {len(shipped)} files, {len(PACKAGES)} py.typed, {recipes} recipes")


def help_milliseconds(command: Path, cwd: Path) -> float:
    """Best wall time of `trl-ext --help`."""
    times = []
    for _ in range(HELP_RUNS):
        started = time.perf_counter()
        run(command, "--help", cwd=cwd)
        times.append(time.perf_counter() - started)
    return 1000 * min(times)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT)
        (wheel,) = folder.glob("*.whl")
        check_contents(wheel)
        run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
        scripts = folder / "venv" / "bin"
        run(sys.executable, "-m", "pip", "--python", scripts / "python", "install", "--quiet", "--no-deps", wheel)
        # from another folder, so that the checkout cannot be imported by accident
        run(scripts / "python", "-c", IMPORTS, cwd=folder)
        milliseconds = help_milliseconds(scripts / "trl-ext", folder)
    print(f"wheel-check: imports work without torch; trl-ext --help takes {milliseconds:.0f} ms (best of {HELP_RUNS})")
    if milliseconds > HELP_LIMIT_MS:
        sys.exit(f"wheel-check: trl-ext --help must take less than {HELP_LIMIT_MS} ms")


if __name__ == "__main__":
    main()
