"""A cache of `datasets` for each test alone, and files of raw rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder: no test finds what another one computed."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(folder))  # the commits of first reads are kept there
    return folder


@pytest.fixture
def jsonl(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows to a file of JSON Lines and returns its path."""

    def write(rows: list[Any], name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture
def hub(tmp_path: Path) -> Callable[..., str]:
    """Writes splits in the layout of a repository of the Hub, `{config: {split: rows}}`, and returns its path."""

    def write(configs: dict[str, dict[str, list[Any]]], name: str = "hub", suffix: str = "jsonl") -> str:
        folder = tmp_path / name
        card = ["---", "configs:"]
        for config, splits in configs.items():
            card += [f"- config_name: {config}", "  data_files:"]
            for split, rows in splits.items():
                file = folder / config / f"{split}.{suffix}"
                file.parent.mkdir(parents=True, exist_ok=True)
                if suffix == "parquet":
                    datasets.Dataset.from_list(rows).to_parquet(str(file))
                elif suffix == "json":
                    file.write_text(json.dumps(rows), encoding="utf-8")
                else:
                    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
                card += [f"  - split: {split}", f"    path: {config}/{split}.{suffix}"]
        (folder / "README.md").write_text("\n".join([*card, "---", ""]), encoding="utf-8")
        return str(folder)

    return write
