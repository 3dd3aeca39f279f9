"""The settings of a configuration file: each read as the type of its field, or refused in one sentence."""

from __future__ import annotations

import argparse
import datetime
import json
import re
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from trl_ext._text import did_you_mean
from trl_ext.errors import UsageError

# What transformers and TRL take besides the types that their fields are annotated with.
_WIDER: dict[str, Any] = {
    "fsdp": bool | str | list[str] | None,
    "resume_from_checkpoint": bool | str | None,
    "scale_rewards": bool | str,
}
_NO = {"report_to": "none"}  # how a field says "no", which YAML reads as False; those with choices have "no" among them
_FILES = ("accelerator_config", "deepspeed", "fsdp_config")  # tables that may be given as the path of a JSON file
_YES_NO = {"yes": True, "true": True, "t": True, "y": True, "1": True}
_YES_NO |= {"no": False, "false": False, "f": False, "n": False, "0": False}
# A number for YAML 1.2 and for everyone who writes it; YAML 1.1, which PyYAML reads, wants 1.0e-6.
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d{1,2}")
_EXAMPLES: dict[Any, str] = {int: "1, 2", float: "1.0, 0.5", str: "a, b"}
_SHOWN = 80  # characters of a wrong value


class _WrongError(ValueError):
    """The value is none of the field's; the message is what it must be."""


def field_types(dataclass_types: Iterable[type]) -> dict[str, Any]:
    """The types of all fields by name, wider where the libraries take more than they say."""
    hints: dict[str, Any] = {}
    for one in dataclass_types:
        hints |= get_type_hints(one)
    return hints | {name: hint for name, hint in _WIDER.items() if name in hints}


def typed_config(
    config: dict[str, Any], parser: argparse.ArgumentParser, types: dict[str, Any], where: str
) -> dict[str, Any]:
    """Settings of a file by the names of their fields, each of its field's type.

    Args:
        config (`dict[str, Any]`): settings by the name of a flag without its dashes.
        parser (`argparse.ArgumentParser`): knows the flags.
        types (`dict[str, Any]`): what `field_types` returns.
        where (`str`): the file, for messages.

    Returns:
        `dict[str, Any]`: values by field.

    Raises:
        UsageError: For a value of another type, and for two names of one field.
    """
    typed: dict[str, Any] = {}
    names: dict[str, str] = {}
    for key, value in config.items():
        action = parser._option_string_actions[f"--{key}"]
        field = action.dest
        if field in typed:
            raise UsageError(f"{where} gives {names[field]!r} and {key!r}, two names of one setting; keep one")
        negated = isinstance(action, argparse._StoreFalseAction)
        try:
            read = _read(value, bool if negated else types[field], field, action.choices)
        except _WrongError as error:
            if value is None:
                raise UsageError(f"{key} in {where} has no value; it must be {error}, or leave the line out") from None
            raise UsageError(f"{key}={_shown(value)} in {where} must be {error}") from None
        typed[field] = not read if negated else read
        names[field] = key
    return typed


def read_flags_alike(parser: argparse.ArgumentParser, types: dict[str, Any]) -> None:
    """Have the parser read a table on the command line as JSON and check it, as `typed_config` does in a file."""
    for action in parser._actions:
        kinds = _kinds(types.get(action.dest, str))
        if any(map(_is_table, kinds)) or {*kinds} == {str, bool}:
            action.type = _flag_reader(action.dest, types[action.dest])


def _flag_reader(field: str, hint: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return _read(text, hint, field, None)
        except _WrongError as error:
            raise argparse.ArgumentTypeError(f"{_shown(text)} must be {error}") from None

    return read


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The types of a union, texts and then lists last: what reads as one of the others is not meant as text."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if any(_is_enum(kind) or (_is_list(kind) and _is_enum(get_args(kind)[0])) for kind in kinds):
        kinds = tuple(kind for kind in kinds if kind is not str)  # `SomeEnum | str` is a name of the enum
    return tuple(sorted(kinds, key=lambda kind: (kind is str) + 2 * _is_list(kind)))


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _is_list(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is list


def _is_table(kind: Any) -> bool:
    return kind is dict or get_origin(kind) is dict


def _read(value: Any, hint: Any, field: str, choices: Iterable[Any] | None) -> Any:
    """The value as one of the field's types."""
    kinds = _kinds(hint)
    if value is False and field in _NO:
        return _NO[field]
    if value is None and NoneType in kinds:
        return None
    expected = []
    for kind in kinds:
        # the text of a table is its JSON, which is read as one
        if kind is not NoneType and not (kind is str and any(map(_is_table, kinds)) and field not in _FILES):
            try:
                return _read_as(kind, value, field, choices, with_text=str in kinds)
            except _WrongError as error:
                expected.append(str(error))
    raise _WrongError(" or ".join(expected))


def _read_as(kind: Any, value: Any, field: str, choices: Iterable[Any] | None, *, with_text: bool) -> Any:
    """The value as one type; `with_text` where the field takes text as well."""
    allowed = _choices(kind, choices)
    if allowed:
        return _choice(value, allowed)
    if kind is bool:
        return _boolean(value, words=field not in _WIDER)
    if kind in (int, float):
        return _number(value, kind)
    if _is_list(kind):
        return _list(value, get_args(kind)[0], field)
    if _is_table(kind):
        return _table(value, kind, field, with_text=with_text)
    if kind is str:
        return _text(value, field)
    raise _WrongError("left out here and set in Python")


def _choices(kind: Any, choices: Iterable[Any] | None) -> list[Any]:
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if _is_enum(kind):
        return [member.value for member in kind]
    return list(choices or ())


def _choice(value: Any, allowed: list[Any]) -> Any:
    if value is False and "no" in allowed and False not in allowed:
        return "no"
    # 0 equals False, which is another setting
    if any(value == one and type(value) is type(one) for one in allowed):
        return value
    hint = did_you_mean(value, map(str, allowed)) if isinstance(value, str) else ""
    raise _WrongError(f"{'one of ' * (len(allowed) > 1)}{', '.join(map(str, allowed))}{hint}")


def _boolean(value: Any, *, words: bool) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, (str, int)) and words and str(value).lower() in _YES_NO:
        return _YES_NO[str(value).lower()]
    raise _WrongError("true or false")


def _text(value: Any, field: str) -> str:
    if field in _FILES:
        # deepspeed takes texts of other kinds as well, and says itself what is wrong with one
        is_path = isinstance(value, str) and not value.strip().startswith("{")
        if is_path and (field == "deepspeed" or Path(value).is_file()):
            return str(value)
        raise _WrongError("the path of a JSON file")
    if isinstance(value, (str, int, float, datetime.date)) and not isinstance(value, bool):
        return str(value)
    quotes = "; YAML reads yes, no, on and off as true and false, so write them in quotes"
    raise _WrongError(f"text{quotes if isinstance(value, bool) else ''}")


def _number(value: Any, kind: type) -> int | float:
    number: int | float | None = value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if isinstance(value, str):
        for parse in (int, float):
            try:
                number = parse(value)
                break
            except ValueError:
                continue
    if kind is int and isinstance(number, float):
        number = int(number) if number.is_integer() else None
    if number is None:
        raise _WrongError("a whole number" if kind is int else "a number")
    return number


def _list(value: Any, kind: Any, field: str) -> list[Any]:
    if isinstance(value, str) and _choices(kind, None):
        value = value.split()
    if isinstance(value, dict) or value is None:
        raise _WrongError(f"a list, such as [{_EXAMPLES.get(kind, 'a, b')}]")
    items = value if isinstance(value, list) else [value]
    try:
        return [_read(item, kind, field, None) for item in items]
    except _WrongError as error:
        if kind not in _EXAMPLES:
            raise _WrongError(f"a list of {error}") from None
        what = "texts" if kind is str else "numbers"
        raise _WrongError(f"a list of {what}, such as [{_EXAMPLES[kind]}]") from None


def _table(value: Any, kind: Any, field: str, *, with_text: bool) -> Any:
    """A table, or its JSON, which stays text where the library reads that itself."""
    found = value
    if isinstance(value, str) and value.strip().startswith("{"):
        try:
            found = json.loads(value)
        except ValueError as error:
            raise _WrongError(f"JSON such as '{{\"name\": 1}}' ({error})") from None
    if not isinstance(found, dict):
        raise _WrongError('a table of names and values, such as {"name": 1}')
    inner = get_args(kind)[1] if get_args(kind) else Any
    for name, one in found.items():
        if not isinstance(name, str):
            raise _WrongError(f"a table whose names are texts, and {name!r} is none")
        if inner is not Any:
            try:
                found[name] = _read(one, inner, field, None)
            except _WrongError as error:
                raise _WrongError(f"a table in which each value is {error}") from None
    return value.strip() if isinstance(value, str) and with_text else _with_numbers(found)


def _with_numbers(value: Any, name: str = "") -> Any:
    """The value with numbers such as 1e-6 in the place of the texts that YAML 1.1 reads; a commit stays a text."""
    if isinstance(value, dict):
        return {key: _with_numbers(one, str(key)) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_numbers(one, name) for one in value]
    if isinstance(value, str) and _EXPONENT.fullmatch(value) and not name.endswith("revision"):
        return float(value)
    return value
