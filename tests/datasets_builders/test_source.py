from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from datasets_builders.registry import BUILDERS
from datasets_builders.schema import rl_row
from datasets_builders.source import Conversion, Drop, Source, conversion, converted


@conversion
def convert(row: Any) -> Any:
    """A row of whatever `make` returns."""
    return row["make"]()


SOURCE = Source("own", convert, "math", "mit", columns=("make",))


def raising(error: Exception) -> Any:
    def make() -> Any:
        raise error

    return {"make": make}


def test_conversion_gives_the_row_and_no_reason():
    row = rl_row("Q", "1", task="math", source="own")
    assert convert({"make": lambda: row}) == row
    assert convert.explained({"make": lambda: row}) == (row, None)


def test_conversion_gives_the_reason_of_a_drop():
    assert convert(raising(Drop("no_answer"))) is None
    assert convert.explained(raising(Drop("no_answer"))) == (None, "no_answer")


@pytest.mark.parametrize(
    "raw", [{}, None, [], 5, {"make": None}, {"make": lambda: {}["x"]}, {"make": lambda: int("x")}]
)
def test_conversion_of_what_it_cannot_read_is_malformed(raw):
    assert convert.explained(raw) == (None, "malformed")


@pytest.mark.parametrize(
    "error", [RecursionError(), OverflowError(), IndexError(), UnicodeEncodeError("u", "", 0, 1, "")]
)
def test_conversion_that_fails_by_its_data_is_malformed(error):
    assert convert.explained(raising(error)) == (None, "malformed")


@pytest.mark.parametrize("error", [MemoryError(), AssertionError(), ZeroDivisionError(), OSError()])
def test_conversion_with_a_bug_raises(error):
    with pytest.raises(type(error)):
        convert(raising(error))


def test_conversion_pickles_by_name():
    assert pickle.loads(pickle.dumps(convert)) is convert
    assert isinstance(pickle.loads(pickle.dumps(BUILDERS["gsm8k"])).convert, Conversion)
    assert len(pickle.dumps(convert)) < 300


def test_conversion_keeps_name_and_text_of_its_function():
    assert (convert.__name__, convert.__doc__) == ("convert", "A row of whatever `make` returns.")


def test_converted_counts_the_reasons():
    row = rl_row("Q", "1", task="math", source="own")
    raws = [{"make": lambda: row}, raising(Drop("a")), raising(Drop("b")), raising(Drop("a")), {}]
    assert converted(SOURCE, raws) == ([row], {"a": 2, "b": 1, "malformed": 1})


@pytest.mark.parametrize(
    ("licence", "forbids"),
    [
        ("mit", False),
        ("cc-by-4.0", False),
        ("unknown", False),
        ("odc-by", False),
        ("cc-by-nc-4.0", True),
        ("CC-BY-NC-SA-4.0", True),
        ("noncommercial research", True),
    ],
)
def test_is_noncommercial_reads_the_licence(licence, forbids):
    assert replace(SOURCE, licence=licence).is_noncommercial is forbids


def test_configured_is_for_procedural_sources_with_configurations():
    assert SOURCE.configured("x") is SOURCE
    assert BUILDERS["arithmetic"].configured(None) is BUILDERS["arithmetic"]
    configured = BUILDERS["arithmetic"].configured("mul_1")
    assert configured.generate is not None
    assert configured.generate(3, 0)["level"] == "mul_1"
    assert pickle.loads(pickle.dumps(configured)).generate(3, 0) == configured.generate(3, 0)
    with pytest.raises(ValueError, match=r"config='x' does not go with 'countdown', which has none"):
        BUILDERS["countdown"].configured("x")
