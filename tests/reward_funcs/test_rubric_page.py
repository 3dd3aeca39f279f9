"""docs/rubrics.md: its code runs and prints what it says, and its tables name what there is."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from pathlib import Path

import pytest

from reward_funcs._judge_injections import INJECTIONS
from reward_funcs.rubric import Criterion, Rubric, preset_names

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "rubrics.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def settings(owner: object) -> list[str]:
    return [
        name if one.default is inspect.Parameter.empty else f"{name}={one.default!r}".replace("'", '"')
        for name, one in inspect.signature(owner).parameters.items()  # type: ignore[arg-type]
    ]


def test_code_prints_what_the_comments_say() -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.S))
    expected = re.findall(r"^ *print\(.*\)  # (.*)$", code, flags=re.M)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "rubrics.md", "exec"), {})
    lines = printed.getvalue().splitlines()
    assert len(lines) == len(expected) == 3
    for line, said in zip(lines, expected, strict=True):
        assert line.startswith(said.removesuffix("...").strip())


@pytest.mark.parametrize(("title", "owner"), [("Criteria", Criterion), ("Settings", Rubric)])
def test_tables_hold_all_settings_with_their_defaults(title: str, owner: type) -> None:
    cells = [line.split(" | ")[0] for line in section(title).splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`([^`]+)`", " ".join(cells))) == sorted(settings(owner))


def test_presets_are_those_there_are() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", section("Presets, files and rows"), flags=re.M)
    assert sorted(listed) == preset_names()


def test_number_of_attempts_is_right() -> None:
    assert f"with {len(INJECTIONS)} attempts" in PAGE.replace("\n", " ")
