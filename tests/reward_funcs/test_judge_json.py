"""JSON as models write it: what is read, what stays broken, and that hostile text is looked at to its end."""

from __future__ import annotations

from typing import Any

import pytest

from reward_funcs._judge_json import pieces


def values(text: str) -> list[Any]:
    found = pieces(text)
    assert found is not None
    return [piece.value for piece in found if not piece.fault]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1}', [{"a": 1}]),
        ('Reasons { first }.\n```json\n{"a": {"b": 2}}\n```\nDone.', [{"a": {"b": 2}}]),
        ('{"a": 1} and {"a": 2}', [{"a": 1}, {"a": 2}]),
        ('{"a": "}"}', [{"a": "}"}]),
        ('{"a": "one\nline\tmore"}', [{"a": "one\nline\tmore"}]),
        ('{"a": [1, 2,], "b": {"c": 1,},}', [{"a": [1, 2], "b": {"c": 1}}]),
        ('{"a":\u00a01}', [{"a": 1}]),
        ('{"a": 4/5, "b": 2 / 2}', [{"a": "4/5", "b": "2/2"}]),
        ('{"a": "4/5, "}', [{"a": "4/5, "}]),
        ('[{"a": 1}, {"a": 2}]', [[{"a": 1}, {"a": 2}]]),
        ("if (x) { and {'a': 1} then " + '{"b": 2}', [{"b": 2}]),
        ('print(f"{name}") {"b": 2}', [{"b": 2}]),
        ('{"a": 1,,}', []),
        ('{"a": 1', []),
        ('{"a": 1]', []),
        ("{'a': 1}", []),
        ('{"a": 1, "a": 2}', []),
        ('{"a" 1}', []),
        ("[1, 2]", []),
        ("", []),
    ],
)
def test_objects_of_a_text_are_found(text: str, found: list[Any]) -> None:
    assert values(text) == found


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\(x\) and \[y\]", r"\(x\) and \[y\]"),
        (r"\sqrt{2}", r"\sqrt{2}"),
        (r"\frac{1}{2} \boxed{4} \text{a} a \neq b \times \theta \right) \beta", None),
        (r"\\frac{1}{2}", r"\frac{1}{2}"),
        (r"\underline{x} \unit", r"\underline{x} \unit"),
        (r"line\nnew\ttab\rend", "line\nnew\ttab\rend"),
        (r"\nNot \bare", "\nNot \bare"),
        (r"caf\u00e9 \/ \"q\" \\", 'caf\u00e9 / "q" \\'),
    ],
)
def test_backslashes_are_read_as_they_are_meant(written: str, meant: str | None) -> None:
    assert values(f'{{"a": "{written}"}}') == [{"a": written if meant is None else meant}]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": "x', "it does not end"),
        ('{"a": "says "x" here"}', "a quote mark inside of a text has no backslash, at 'x\" here"),
        ("{'a': 1}", "a key does not stand in double quotes"),
        ('{"a": ...}', "a value is missing"),
        ('{"a" 1}', "a colon is missing behind a key"),
        ('{"a": 1, "b": 2, "a": 3}', "must hold each key once, but 'a' stands there twice"),
        ('{"a": ' + "9" * 5000 + "}", "a number in it is too long"),
    ],
)
def test_fault_of_a_broken_object_is_said_in_plain_words(text: str, fault: str) -> None:
    found = pieces(text)
    assert found and fault in found[0].fault


@pytest.mark.parametrize(
    "text", ['{"' * 300_000, '{"a":' * 100_000, "{'" * 300_000, '{"a" ' * 100_000, '{"a" b}' * 100_000]
)
def test_hostile_text_is_given_up(text: str) -> None:
    assert pieces(text) is None


@pytest.mark.parametrize("text", ["{" * 300_000, '"' * 300_000, '{"' + '\\"' * 200_000, '{"a":1}' * 30_000 + "}"])
def test_hostile_text_without_many_broken_objects_is_read_to_its_end(text: str) -> None:
    found = pieces(text + '\n{"b": 2}')
    assert found is not None and (not found or found[-1].value in ({"b": 2}, None))
