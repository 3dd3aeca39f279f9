"""The card of a data set: its metadata, its tables, and text in it that would like to be markup."""

import re

import pytest
import yaml

from datasets_builders.card import dataset_card, fenced, licence_metadata, steps, table
from datasets_builders.instructions import instruction_text
from datasets_builders.schema import preference_row, rl_row, sft_row

REPORT = {
    "name": "gsm8k",
    "task": "math",
    "path": "openai/gsm8k",
    "config": "main",
    "split": "train",
    "revision_resolved": "0" * 40,
    "licence": "mit",
    "instruction": "boxed",
    "system_prompt": None,
    "seed": 42,
    "loaded": 10,
    "dropped": {"no_answer": 2},
    "duplicates": 1,
    "disagreeing": 0,
    "kept": 7,
    "warnings": [],
}


def _parts(card):
    """Metadata and sections by heading."""
    _, head, body = card.split("---\n", 2)
    found = re.split(r"^## (.*)$", body, flags=re.M)
    return yaml.safe_load(head), dict(zip(["", *found[1::2]], found[::2], strict=True))


def test_metadata_is_what_the_hub_reads():
    data, _ = _parts(dataset_card(REPORT, num_rows=7, split="test"))
    assert data == {
        "license": "mit",
        "language": ["en"],
        "pretty_name": "gsm8k",
        "task_categories": ["text-generation", "reinforcement-learning"],
        "size_categories": "n<1K",
        "source_datasets": ["openai/gsm8k"],
        "tags": ["trl", "trl-ext", "math"],
        "configs": [{"config_name": "default", "data_files": [{"split": "test", "path": "data/test-*"}]}],
    }


@pytest.mark.parametrize(
    ("rows", "size"),
    [(999, "n<1K"), (1000, "1K<n<10K"), (99_999, "10K<n<100K"), (10**6, "1M<n<10M"), (10**7, "n>10M")],
)
def test_size_category_is_that_of_the_rows(rows, size):
    assert _parts(dataset_card(REPORT, num_rows=rows))[0]["size_categories"] == size


@pytest.mark.parametrize(
    ("names", "metadata"),
    [
        (["mit", "MIT"], {"license": "mit"}),
        (["unknown"], {"license": "unknown"}),
        (["mit", "odc-by"], {"license": "other", "license_name": "mit-and-odc-by"}),
        (["Some Terms v2"], {"license": "other", "license_name": "some-terms-v2"}),
    ],
)
def test_licence_metadata_names_what_the_hub_has_no_name_of(names, metadata):
    assert licence_metadata(names) == metadata


def test_sections_name_source_revision_licence_counts_template_seed_and_command():
    row = rl_row("How many?", "$4$", task="math", source="gsm8k")
    card = dataset_card({**REPORT, "command": "trl-ext data build gsm8k"}, num_rows=7, example=row)
    sections = _parts(card)[1]
    assert list(sections)[1:] == [
        "Columns",
        "Sources and licences",
        "Rows at each step",
        "Decontamination",
        "Prompt",
        "Example",
        "Build it again",
        "Limits",
    ]
    assert "https://huggingface.co/datasets/openai/gsm8k" in sections["Sources and licences"]
    assert f"| {'0' * 40} | mit | 7 |" in sections["Sources and licences"]
    for line in ("loaded | 10", "dropped: no answer | 2", "dropped: duplicate | 1", "kept | 7"):
        assert f"| gsm8k | {line} |" in sections["Rows at each step"]
    assert instruction_text("math") in sections["Prompt"]
    assert '"solution": "$4$"' in sections["Example"]
    assert "Seed 42." in sections["Build it again"] and "trl-ext data build gsm8k" in sections["Build it again"]
    assert "build\\_eval('gsm8k')" in sections["Limits"]  # the note of the source


def test_counts_of_a_card_add_up():
    counts = dict(steps(REPORT))
    assert counts["loaded"] == sum(n for words, n in counts.items() if words.startswith("dropped")) + counts["kept"]


def test_checks_have_their_tables():
    checks = {
        "decontamination": {
            "contaminated": 3,
            "by_set": {"math_500": 2, "aime_2024": 1},
            "mode": "coverage",
            "n": 8,
            "coverage": 0.5,
            "unavailable": {"minerva": "offline"},
        },
        "golds": {"by_task": {"math": {"rate": 0.75, "total": 4, "failed": 1, "unchecked": 0}}},
    }
    sections = _parts(dataset_card({**REPORT, "checks": checks}, num_rows=4))[1]
    assert "| math_500 | 2 |" in sections["Decontamination"] and "| aime_2024 | 1 |" in sections["Decontamination"]
    assert "**Not compared with** `minerva`" in sections["Decontamination"]
    assert "| math | 75.00% | 4 | 1 | 0 |" in sections["Self-check of the golds"]
    assert "| all | dropped: in an evaluation set | 3 |" in sections["Rows at each step"]


def test_data_that_was_not_decontaminated_says_so():
    assert "was not compared with evaluation sets" in dataset_card(REPORT, num_rows=7)


def test_mixture_lists_its_sources_and_names_the_noncommercial_part():
    other = {**REPORT, "name": "closed", "licence": "cc-by-nc-4.0", "path": "a/b"}
    data, sections = _parts(dataset_card({"name": "mixture", "seed": 1, "parts": [REPORT, other]}, num_rows=14))
    assert data["license"] == "other" and data["license_name"] == "mit-and-cc-by-nc-4.0"
    assert data["source_datasets"] == ["openai/gsm8k", "a/b"]
    assert "**Not for commercial use:** `closed`." in sections["Sources and licences"]
    assert "Each row stays under the licence of its source" in sections["Sources and licences"]


def test_local_files_stand_in_the_place_of_the_revision_without_their_folders():
    card = dataset_card({**REPORT, "local_files": ["rows.jsonl"]}, num_rows=7)
    assert "| local files: rows.jsonl | mit |" in card


def test_system_prompt_is_shown_in_front():
    section = _parts(dataset_card({**REPORT, "system_prompt": "Be brief."}, num_rows=7))[1]["Prompt"]
    assert section.index("[system]\nBe brief.") < section.index("[user]\n")


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        (rl_row("a", "b", task="judge", source="s"), ["prompt", "solution"]),
        (sft_row("a", "b", source="s"), ["prompt", "completion"]),
        (preference_row("a", "b", "c", source="s", margin=1), ["prompt", "chosen", "rejected", "margin"]),
    ],
)
def test_columns_are_those_of_the_kind_of_row(row, columns):
    section = _parts(dataset_card({}, num_rows=1, example=row))[1]["Columns"]
    named = re.findall(r"^\| `(\w+)` \| (.+) \|$", section, flags=re.M)
    assert [name for name, text in named if text] == [*columns, "task", "source", "source_id", "extra"]


HOSTILE = [
    "```\n# not a heading\n---\nlicense: stolen",
    "`````",
    "</details><script>alert(1)</script> | a | b |\n\n## Limits",
    "\x1b[2J\u202e\u2066gnp.exe",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_example_cannot_end_its_block_or_change_the_card(text):
    row = rl_row(text, text, task="math", source="gsm8k", answer=text)
    card = dataset_card(REPORT, num_rows=7, example=row)
    plain = dataset_card(REPORT, num_rows=7, example=rl_row("a", "b", task="math", source="gsm8k"))
    start = card.index("## Example")
    fence = re.search(r"^`{3,}", card[start:], flags=re.M).group()
    block = card[start:].split(fence + "json\n", 1)[1].split(f"\n{fence}\n", 1)[0]
    assert fence not in block
    outside = card.replace(block, "").replace(fence, "```")
    block = plain[plain.index("## Example") :].split("```json\n", 1)[1].split("\n```\n", 1)[0]
    assert outside == plain.replace(block, "")
    assert not {"\x1b", "\u202e", "\u2066"} & set(card)


def test_text_of_a_report_stays_text():
    report = {**REPORT, "name": "a|b\n# c", "warnings": ["<b>x</b>\n## y"], "config": "x | y"}
    card = dataset_card(report, num_rows=7)
    assert "# a\\|b \\# c" in card and "\n## y" not in card and "<b>" not in card
    assert "| x \\| y |" in card


def test_long_text_is_cut_and_says_how_long_it_was():
    card = dataset_card(REPORT, num_rows=7, example=rl_row("x" * 5000, "$4$", task="math", source="gsm8k"))
    assert "... (5,000 characters)" in card and "x" * 601 not in card


def test_table_and_fence():
    assert table(("a", "b"), [("x|y", None)]) == "| a | b |\n| --- | --- |\n| x\\|y |  |"
    assert fenced("```\n````") == "`````\n```\n````\n`````"


def test_card_of_other_columns_claims_nothing_about_them():
    card = dataset_card({"name": "mine"}, num_rows=2, example={"question": "a"})
    assert "2 rows of `mine`." in card and "`question`" in card
    assert _parts(card)[0]["license"] == "unknown"


def test_languages_are_those_of_the_source_or_as_given():
    assert _parts(dataset_card({**REPORT, "name": "dapo_math"}, num_rows=1))[0]["language"] == ["en", "zh"]
    assert _parts(dataset_card({**REPORT, "languages": ["fr"]}, num_rows=1))[0]["language"] == ["fr"]
    assert _parts(dataset_card(REPORT, num_rows=1, language="de"))[0]["language"] == ["de"]


def test_note_of_noncommercial_parts_follows_the_rule_of_the_check():
    for licence, closed in (("CC BY NC 4.0", True), ("cc-by-4.0", False), ("Non Commercial", True)):
        card = dataset_card({"name": "mine", "licence": licence, "task": "math"}, num_rows=1)
        assert ("**Not for commercial use:** `mine`" in card) is closed, licence


def test_source_that_is_not_pinned_is_named():
    facts = {"name": "mine", "task": "math", "path": "me/mine", "licence": "mit", "revision_resolved": "a" * 40}
    note = "Not pinned by the package: `mine`. The table and `report.json` name the commit"
    assert note in dataset_card(facts, num_rows=1)
    assert note not in dataset_card(facts | {"revision": "main"}, num_rows=1)
    assert note not in dataset_card(facts | {"local_files": ["a.jsonl"]}, num_rows=1)
    assert note not in dataset_card(facts | {"path": None}, num_rows=1)


def test_comparison_with_nothing_is_a_sentence_and_no_empty_table():
    checks = {
        "decontamination": {"mode": "any", "n": 8, "coverage": 0.5, "by_set": {}, "unavailable": {"aime_2024": ""}}
    }
    card = dataset_card({"name": "mine", "task": "math", "checks": checks}, num_rows=1)
    assert "No evaluation set could be compared with.\n\n**Not compared with** `aime_2024`" in card
    assert "rows dropped" not in card
