"""The HTML page: nothing from a network, names escaped, figures and settings in tables, drawings that share no id."""

import json
import re
from html.parser import HTMLParser

import pytest

from trl_ext.evaluation._plot_draw import GRID, INK, PALETTE
from trl_ext.evaluation.page import DARK_PALETTE, inline_svg
from trl_ext.evaluation.plots import plot_runs

HOSTILE = '<script>alert("1")</script> & <img src=x onerror=y>'


def written(folder, rows, **settings):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if settings:
        (folder / "config_resolved.yaml").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def rows(scale=1.0):
    return [
        {"step": i, "reward": scale * i / 10, "eval/pass@1": i / 20, "group_std": [0.1, 0.5], "kl": 10.0**-i}
        for i in range(1, 6)
    ]


def page_of(folder, runs, **options):
    (path,) = plot_runs(runs, folder / "out", formats=("html",), **options)
    return path.read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Tags that are opened and closed, ids, attributes, and the cells of tables."""

    VOID = frozenset({"meta", "br", "img", "link"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.attributes, self.table = [], [], [], [], []
        self.texts = {}
        self.feed(text)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        self.ids += [value for name, value in attributes if name == "id"]
        if tag == "tr":
            self.table.append([])
        if tag in ("td", "th"):
            self.table[-1].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)
        if {"td", "th"} & set(self.open):
            self.table[-1][-1] += data


def test_page_fetches_nothing(tmp_path):
    text = page_of(tmp_path, [written(tmp_path / "a", rows()), written(tmp_path / "b", rows(2.0))])
    assert not re.search(r"https?:|\bsrc\s*=|@import|<link|<script|<iframe|<object|<image|file:|data:", text)
    assert re.findall(r"url\((?!#)", text) == []
    assert all(value.startswith("#") for value in re.findall(r'href="([^"]*)"', text))


def test_page_is_well_formed_and_its_ids_differ(tmp_path):
    page = Reader(page_of(tmp_path, [written(tmp_path / "a", rows()), written(tmp_path / "b", rows(2.0))]))
    assert page.open == []
    assert len(page.ids) == len(set(page.ids)) > 10
    assert page.tags.count("svg") == page.tags.count("figure") == 4


def test_page_of_a_hundred_thousand_steps_stays_small(tmp_path):
    run = written(tmp_path / "a", ({"step": i, "reward": i % 7, "group_std": [0.5]} for i in range(100_000)))
    assert len(page_of(tmp_path, [run], panels=["reward", "group_std"])) < 300_000


def test_what_a_drawing_refers_to_is_there(tmp_path):
    text = page_of(tmp_path, [written(tmp_path / "a", rows())])
    wanted = {*re.findall(r'href="#([^"]*)"', text), *re.findall(r"url\(#([^)]*)\)", text)}
    assert wanted and wanted <= set(Reader(text).ids)


def test_names_of_runs_are_escaped_everywhere(tmp_path):
    name = HOSTILE.replace("/", "")
    text = page_of(tmp_path, [written(tmp_path / name, rows(), a=name), written(tmp_path / "b", rows(), a="<b>")])
    page = Reader(text)
    assert "script" not in page.tags and "img" not in page.tags and "b" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.table[1][0].startswith("<script>")


def test_names_of_metrics_are_escaped(tmp_path):
    metric = "<script>x</script>/pass@1"
    run = written(tmp_path / "a", [{"step": 1, metric: 0.5, "reward": 1.0}])
    page = Reader(page_of(tmp_path, [run], panels=["reward", metric]))
    assert "script" not in page.tags
    assert page.table[0] == ["run", "reward", metric]


def test_settings_of_any_type_are_shown(tmp_path):
    for name, text in (("a", "on: 2020-01-01\nk: {1: x, 2020-01-01: y}"), ("b", "on: 1.5\nk: [null]")):
        written(tmp_path / name, rows())
        (tmp_path / name / "config_resolved.yaml").write_text(text, encoding="utf-8")
    page = Reader(page_of(tmp_path, [tmp_path / "a", tmp_path / "b"]))
    assert page.table[-2:] == [["True", '"2020-01-01"', "1.5"], ["k", '{"1": "x"}', "[null]"]]


def test_title_is_escaped(tmp_path):
    page = Reader(page_of(tmp_path, [written(tmp_path / "a", rows())], title=HOSTILE))
    assert page.texts["title"] == [HOSTILE] and page.texts["h1"] == [HOSTILE]
    assert "script" not in page.tags


def test_last_figures_are_those_of_the_last_step_with_one(tmp_path):
    more = [*rows(), {"step": 6, "reward": 0.123456}, {"step": 7, "reward": None, "completions/mean_length": 12.0}]
    page = Reader(page_of(tmp_path, [written(tmp_path / "a", more)]))
    assert page.table[0] == ["run", "reward", "pass@1", "tokens a completion", "KL (nats a token)"]
    assert page.table[1] == ["a", "0.1235 (6)", "0.25 (5)", "12 (7)", "1e-05 (5)"]


def test_last_figures_of_a_group_are_mean_and_deviation(tmp_path):
    runs = [written(tmp_path / str(scale), rows(scale)) for scale in (1.0, 3.0)]
    page = Reader(page_of(tmp_path, [], groups={"g": runs}))
    assert page.table[1][:3] == ["g (mean ± std, n=2)", "1 ± 0.71 (5)", "0.25 ± 0 (5)"]


def test_settings_that_differ_are_shown_and_others_are_not(tmp_path):
    first = written(tmp_path / "a", rows(), beta=0.1, seed=1, output_dir="x", names=["p"])
    second = written(tmp_path / "b", rows(), beta=0.1, seed=2, output_dir="y", names=["q" * 200], only=True)
    page = Reader(page_of(tmp_path, [first, second]))
    start = page.table.index(["setting", "a", "b"])
    assert page.table[start + 1 :] == [
        ["names", '["p"]', '["' + "q" * 77 + "…"],
        ["only", "–", "true"],
        ["seed", "1", "2"],
    ]


def test_many_settings_are_folded_up_and_cut_off(tmp_path):
    def tags(number):
        runs = [tmp_path / f"{number}{name}" for name in "ab"]
        for value, run in enumerate(runs):
            written(run, rows(), **{f"s{i:03}": value for i in range(number)})
        page = Reader(page_of(tmp_path, runs, panels=["reward"]))
        return page.tags.count("details"), sum(row[0].startswith("s0") for row in page.table)

    assert [tags(number) for number in (15, 16, 70)] == [(0, 15), (1, 16), (1, 60)]


def test_equal_settings_are_told_in_one_sentence(tmp_path):
    runs = [written(tmp_path / name, rows(), beta=0.1) for name in "ab"]
    assert "All runs have the same settings." in page_of(tmp_path, runs)


def test_panels_without_data_are_listed(tmp_path):
    page = Reader(page_of(tmp_path, [written(tmp_path / "a", rows())]))
    assert "entropy: logged by every trainer" in page.texts["li"]


def test_colours_are_variables_with_a_value_for_dark_pages(tmp_path):
    text = page_of(tmp_path, [written(tmp_path / str(i), rows(i)) for i in range(1, 9)])
    drawings = text[text.index("<svg") :]
    assert not [colour for colour in (INK, GRID, *PALETTE) if colour in drawings]
    assert all(f"var(--c{i})" in drawings for i in range(8))
    assert "prefers-color-scheme: dark" in text
    assert len(set(DARK_PALETTE)) == len(DARK_PALETTE) == len(PALETTE)


def _contrast(one, other):
    """Ratio of WCAG 2.1, section 1.4.11, which asks 3 of graphics."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("palette", "ground", "least"), [(PALETTE, "#ffffff", 2.2), (DARK_PALETTE, "#14181d", 6.0)])
def test_colours_stand_out_from_their_page(palette, ground, least):
    assert min(_contrast(colour, ground) for colour in palette) > least


def test_inline_svg_leaves_text_of_a_name_alone():
    svg = (
        '<?xml version="1.0"?><!DOCTYPE svg><svg xmlns="http://www.w3.org/2000/svg" width="9pt" viewBox="0 0 9 9">'
        '<metadata>x</metadata><g id="a"><use xlink:href="#a" style="fill: #0072b2; clip-path: url(#a)"/></g></svg>'
    )
    assert inline_svg(svg, "p-", "A & b") == (
        '<svg viewBox="0 0 9 9" role="img" aria-label="A &amp; b">'
        '<g id="p-a"><use href="#p-a" style="fill: var(--c0); clip-path: url(#p-a)"/></g></svg>'
    )
