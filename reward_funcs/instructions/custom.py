"""The constraints of IFBench's family custom: each belongs to one prompt of the benchmark.

Source: IFBench (arXiv:2507.02833) and its checkers, `allenai/IFBench`. Verdicts are theirs, except that white space
around the response is let pass, dates are those of a calendar, and each row of the table with a special character has
its five fields.
"""

from __future__ import annotations

import csv
import re
import string
import unicodedata
from datetime import date
from itertools import pairwise

from reward_funcs.instructions.kinds import kind
from reward_funcs.instructions.response import PUNCTUATION, Response

_NUMBER = re.compile(r"[0-9]+")
_QUESTION = re.compile(r"Question [0-9]+[.|):;]?")
_OPTION = re.compile(r"[A-Ea-e][.|)]\s*\w")
_QUESTIONS, _QUESTION_OPTIONS = 4, 5
_COUNTRIES = 52
_CAPITALS = (
    "Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam Warsaw "
    "London Brussels Prague Luxembourg Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana Zagreb".split()
)
_NAPOLEON = range(1769, 1822)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SPECIAL = re.compile(r"[^\w\s]")


@kind("custom:multiples")
def multiples(response: Response) -> bool:
    """The numbers are the multiples of 7 from 14 to 49, in order."""
    return _NUMBER.findall(response.text) == ["14", "21", "28", "35", "42", "49"]


@kind("custom:mcq_count_length")
def multiple_choice_questions(response: Response) -> bool:
    """Four questions, each with its label and five options, each longer than the one before, and nothing in front."""
    if not response.stripped.startswith("Question"):
        return False
    parts = [part.strip() for part in _QUESTION.split(response.stripped) if part.strip()]
    lengths = [length for part in parts if (length := _question_length(part)) is not None]
    return len(parts) == len(lengths) == _QUESTIONS and all(one < other for one, other in pairwise(lengths))


def _question_length(part: str) -> int | None:
    """Number of characters before the options; `None` where these are not five."""
    lines = [line.strip() for line in part.split("\n")]
    is_option = [_OPTION.match(line) is not None for line in lines]
    if sum(is_option) != _QUESTION_OPTIONS:
        return None
    return len(" ".join(lines[: is_option.index(True)]).strip())


@kind("custom:reverse_newline")
def reverse_countries(response: Response) -> bool:
    """From the line with Zimbabwe on, at least 52 lines in reverse alphabetical order, accents aside."""
    lines = [bare for line in response.lines if (bare := line.strip(PUNCTUATION + " \r"))]
    start = next((index for index, line in enumerate(lines) if "Zimbabwe" in line), len(lines))
    countries = [_ascii(line) for line in lines[start:]]
    return len(countries) >= _COUNTRIES and countries == sorted(countries, reverse=True)


def _ascii(written: str) -> str:
    return unicodedata.normalize("NFKD", written).encode("ascii", "ignore").decode("ascii")


@kind("custom:word_reverse")
def word_reverse(response: Response) -> bool:
    """Read backwards word by word, the response names the bald eagle."""
    return "bald eagle" in " ".join(reversed(response.plain_words))


@kind("custom:character_reverse")
def character_reverse(response: Response) -> bool:
    """The bald eagle occurs, spelt backwards."""
    return "elgae dlab" in response.lower


@kind("custom:sentence_alphabet")
def sentence_alphabet(response: Response) -> bool:
    """26 sentences begin with the letters of the alphabet in order."""
    firsts = [sentence.lstrip(PUNCTUATION + string.whitespace)[:1].lower() for sentence in response.sentences]
    return firsts == list(string.ascii_lowercase)


@kind("custom:european_capitals_sort")
def european_capitals(response: Response) -> bool:
    """The 27 capitals north of 45 degrees from north to south, between commas, accents aside."""
    return [name.strip() for name in _ascii(response.text).split(",") if name.strip()] == _CAPITALS


def _table(written: str, delimiter: str) -> list[list[str]]:
    """The rows of a table whose fields keep their quotes; none where it is no table."""
    try:
        return list(csv.reader(written.replace('"', '"""').splitlines(), delimiter=delimiter))
    except csv.Error:  # a field of more than 131,072 characters
        return []


def _is_table(rows: list[list[str]], names: list[str], header: str, num_rows: int) -> bool:
    names = [name.strip('"') for name in names]
    return names == header.split() and len(rows) == num_rows + 1 and all(len(row) == len(names) for row in rows)


def _spaced(rows: list[list[str]]) -> list[str]:
    """The names of the columns where white space may stand in front of each."""
    names = [name.lstrip(" \t") for name in rows[0]] if rows else []
    return [*names[:-1], *(name.rstrip() for name in names[-1:])]


@kind("custom:csv_city")
def csv_city(response: Response) -> bool:
    """A header without spaces and seven rows of five fields between commas."""
    rows = _table(response.stripped, ",")
    return _is_table(rows, rows[0] if rows else [], "ID Country City Year Count", 7)


@kind("custom:csv_special_character")
def csv_special_character(response: Response) -> bool:
    """A header and fourteen rows of five fields between commas; a field in double quotes holds a special character."""
    rows = _table(response.stripped, ",")
    return _is_table(rows, _spaced(rows), "ProductID Category Brand Price Stock", 14) and any(
        _is_quoted(field) and _SPECIAL.search(field.strip()[1:-1]) for row in rows[1:] for field in row
    )


@kind("custom:csv_quotes")
def csv_quotes(response: Response) -> bool:
    """A header and three rows of five fields between tabs, each field in double quotes."""
    rows = _table(response.stripped, "\t")
    return _is_table(rows, _spaced(rows), "StudentID Subject Grade Semester Score", 3) and all(
        _is_quoted(field) for row in rows for field in row
    )


def _is_quoted(field: str) -> bool:
    field = field.strip()
    return len(field) > 1 and field[0] == '"' == field[-1]


@kind("custom:date_format_list")
def date_list(response: Response) -> bool:
    """Dates of Napoleon's years as YYYY-MM-DD between commas, and nothing else."""
    return all(_is_date(part.strip()) for part in response.text.split(","))


def _is_date(written: str) -> bool:
    if not _DATE.fullmatch(written):
        return False
    try:
        return date.fromisoformat(written).year in _NAPOLEON
    except ValueError:
        return False
