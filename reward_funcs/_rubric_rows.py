"""Rubrics that come as data: a column of a data set, a YAML or JSON file, and the presets of this package."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reward_funcs._parts import Part
from reward_funcs._rubric_criterion import LARGEST, Criterion, criterion_from, order_of
from reward_funcs.base import plain

PRESETS = Path(__file__).parent / "rubrics"
# Source: "Rubrics as Rewards" (arXiv 2507.17746), RaR-Explicit: these in place of the numbers that the rows hold.
RAR_WEIGHTS = {"Essential": 1.0, "Important": 0.7, "Optional": 0.3, "Pitfall": 0.9}
_CATEGORY = re.compile(r"\s*(essential|important|optional|pitfall)\s+criteri(?:a|on)\s*:\s*", re.IGNORECASE)
_LISTS = ("rubric", "rubrics", "criteria", "items")
MAX_NAME = 60


def row_criteria(
    value: Any, category_weights: Mapping[str, float] | None, taken: Collection[str] = (), *, alone: bool = True
) -> tuple[Criterion, ...]:
    """The criteria that a row of a data set holds.

    Args:
        value (`list[dict] | dict | str`): the criteria, or a mapping that holds them under `rubric`, `rubrics`,
            `criteria` or `items`, or a mapping of equally long lists by field, or any of these as JSON. A criterion is
            a mapping of the fields of [`Criterion`] (a scorer is not read from data), of RaR (`title`, `description`,
            `weight`, `category`) or of HealthBench (`criterion`, `points`).
        category_weights (`Mapping[str, float]`, *optional*): weights by category, which a criterion in the form of RaR
            gets in place of its own number, by default those of the paper, and which multiply that of another one.
        taken (`Collection[str]`, *optional*): names that other criteria have.
        alone (`bool`, *optional*, defaults to `True`): whether no other criteria can earn points, so that those of the
            row have to; else the row may hold none, or faults alone.

    Returns:
        `tuple[Criterion, ...]`: sorted, with different names; if `alone`, one of them with `max_score > 0`.

    Raises:
        ValueError: When the value holds no criteria; the message says what is wrong with it.

    Example:

    ```python
    >>> rows = [{"criterion": "Names the dose.", "points": 7}, {"criterion": "Invents a dose.", "points": -4}]
    >>> [(one.weight, one.min_score, one.max_score) for one in row_criteria(rows, None)]
    [(4.0, -1, 0), (7.0, 0, 1)]

    ```
    """
    value = plain(value)
    if not alone and (value is None or value in ("", "null", "[]", [], {})):
        return ()
    listed = _listed(value)
    criteria = [_criterion(one, category_weights) for one in listed]
    named: dict[str, Criterion] = {}
    for one in sorted(criteria, key=order_of):  # names do not depend on the order
        name, number = one.name, 2
        while name in named or name in taken:
            name, number = f"{one.name}_{number}", number + 1
        named[name] = replace(one, name=name)
    if alone and not any(one.max_score > 0 and one.weight > 0 for one in criteria):
        raise ValueError("no criterion of the row can earn points")
    return tuple(named.values())


def _listed(value: Any) -> Sequence[Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the rubric is no JSON: {value!r:.60}") from error
    value = plain(value)
    if isinstance(value, Mapping):
        value = next((value[key] for key in _LISTS if isinstance(value.get(key), (list, tuple))), _rows_of(value))
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(f"the rubric is no list of criteria: {value!r:.60}")
    return value


def _rows_of(value: Mapping[Any, Any]) -> list[Any]:
    """The mapping as the only criterion, or the criteria of lists by field, as some data sets store them."""
    columns = list(value.values())
    if not columns or not all(isinstance(one, list) and len(one) == len(columns[0]) for one in columns):
        return [value]
    return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]


def _criterion(values: Any, category_weights: Mapping[str, float] | None) -> Criterion:
    if not isinstance(values, Mapping):
        raise ValueError(f"a criterion of a row must be a mapping, not {values!r:.60}")
    # a data set fills up the fields that only other rows have with nulls
    given = {key: one for key, one in values.items() if one is not None}
    if "points" in given:
        text = given.get("criterion", given.get("description"))
        return _binary(text, given.get("title", given.get("name")), _number(given["points"], "points"), None)
    if "title" in given or not {"name", "max_score", "min_score"} & given.keys():
        return _rar(given, RAR_WEIGHTS if category_weights is None else category_weights)
    if "scorer" in given:
        raise ValueError(f"the criterion {given.get('name')!r:.60} of a row names a scorer; give scorers in the code")
    return by_category(criterion_from(given), category_weights)


def by_category(criterion: Criterion, category_weights: Mapping[str, float] | None) -> Criterion:
    """The criterion with its weight multiplied by that of its category, where that has one."""
    factor = (category_weights or {}).get(criterion.category or "")
    return criterion if factor is None else replace(criterion, weight=criterion.weight * factor)


def _rar(given: Mapping[str, Any], category_weights: Mapping[str, float]) -> Criterion:
    text = given.get("description", given.get("criterion"))
    match = _CATEGORY.match(text) if isinstance(text, str) else None
    category = given.get("category") or (match and match[1])
    category = category.strip().capitalize() if isinstance(category, str) else None
    if match and isinstance(text, str):
        text = text[match.end() :]
    if category is None or category not in category_weights:
        if "weight" not in given:
            raise ValueError(f"the criterion {text!r:.60} has neither a known category nor a weight nor points")
        return _binary(text, given.get("title"), _number(given["weight"], "weight"), category)
    if category == "Pitfall":
        # rows word it as the fault or as its absence; what is met is the absence, as in the paper
        text = f"Pitfall: {text} (1 where the response avoids this fault, 0 where it has it)" if text else text
    return _binary(text, given.get("title"), category_weights[category], category)


def _binary(text: Any, title: Any, points: float, category: str | None) -> Criterion:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"a criterion of a row has no text: {text!r:.60}")
    shown = title if isinstance(title, str) and title.strip() else text
    name = " ".join(shown.split())
    name = name if len(name) <= MAX_NAME else name[:MAX_NAME].rstrip() + "..."
    low, high = (0, 1) if points >= 0 else (-1, 0)
    return Criterion(
        name, text.strip(), max_score=high, min_score=low, weight=abs(points), category=category, binary=True
    )


def _number(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LARGEST:
        raise ValueError(f"{field}={_short(value)} of a criterion must be a finite number of at most {LARGEST:g}")
    return float(value)


def _short(value: Any) -> str:
    """The value for a message; a whole number of thousands of digits cannot be written."""
    return "a huge number" if isinstance(value, int) and abs(value) > LARGEST else f"{value!r:.60}"


def preset_names() -> list[str]:
    """Names of the rubrics that come with this package.

    Example:

    ```python
    >>> "correctness_reasoning_clarity" in preset_names()
    True

    ```
    """
    return sorted(path.stem for path in PRESETS.glob("*.json"))


def preset_path(name: str) -> Path:
    """File of a preset.

    Raises:
        ValueError: For an unknown name; the message names the one that was meant, or all.
    """
    names = preset_names()
    if name not in names:
        close = difflib.get_close_matches(str(name), names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"the presets are {', '.join(names)}"
        raise ValueError(f"there is no rubric preset {name!r:.80}; {hint}")
    return PRESETS / f"{name}.json"


def settings_from(path: str | Path) -> dict[str, Any]:
    """Arguments of a rubric from a file: a list of criteria, or a mapping with `criteria` and other settings.

    A `scorer` is the name of a reward of this package, or `module.name` of one of yours.

    Args:
        path (`str | Path`): a `.json`, `.yaml` or `.yml` file.

    Raises:
        ValueError: When there is no such file, or it holds no rubric.
    """
    path = Path(path)
    data = _parsed(path)
    settings = dict(data) if isinstance(data, Mapping) else {"criteria": data}
    settings.pop("about", None)
    criteria = settings.get("criteria", [])
    if not isinstance(criteria, list):
        raise ValueError(f"{path.name}: criteria must be a list of criteria, not {criteria!r:.60}")
    try:
        settings["criteria"] = [criterion_from(one, scorer=_scorer(one)) for one in criteria]
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    return settings


def _parsed(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the rubric file {str(path)!r} cannot be read: {error}") from error
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path.name} is no JSON: {error}") from error
    if path.suffix not in (".yaml", ".yml"):
        raise ValueError(f"{path.name}: a rubric file must be .json, .yaml or .yml; rename it")
    try:
        import yaml
    except ImportError as error:
        raise ImportError("a YAML rubric needs PyYAML: pip install pyyaml; or write it as JSON") from error
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{path.name} is no YAML: {' '.join(str(error).split())}") from error


def _scorer(values: Any) -> Part | None:
    name = values.get("scorer") if isinstance(values, Mapping) else None
    if name is None:
        return None
    import importlib

    module, _, attribute = str(name).rpartition(".")
    try:
        found = getattr(importlib.import_module(module or "reward_funcs"), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # the last two for ".a" and for ""
        raise ValueError(f"scorer={name!r:.80} cannot be found: {error}; name a reward, or module.reward") from error
    scorer: Part = found
    return scorer
