"""One HTML page with the pictures of runs, their last figures and the settings in which they differ.

The page holds everything it shows: drawings as inline SVG, colours as style sheet variables for light and dark, and
nothing that would be fetched.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from trl_ext import __version__
from trl_ext.evaluation._plot_data import Curve, Line, read_settings
from trl_ext.evaluation._plot_draw import GRID, INK, PALETTE, STYLE, Look, drawn, save
from trl_ext.evaluation._plot_panels import Cell, Panel

# The palette on a dark page, colour by colour.
DARK_PALETTE = ("#4aa8e0", "#ff8c4a", "#2fc79a", "#e6a3c8", "#93d3f5", "#f5b93a", "#b794f6", "#b0b0b0")
# Figures of the table: heading, and the metrics of which the first that was logged is shown.
FIGURES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("reward", ("reward",)),
    ("tokens a completion", ("completions/mean_length",)),
    ("KL (nats a token)", ("policy/kl_ref_token", "kl")),
    ("entropy (nats a token)", ("policy/entropy", "entropy")),
    ("explained variance", ("value/explained_variance",)),
    ("critic's bias", ("value/bias",)),
    ("seconds a step", ("time/step", "step_time")),
)
# Settings that name places and hardly ever explain a curve.
_PLACES = frozenset({"output_dir", "logging_dir", "run_name", "hub_model_id", "resume_from_checkpoint", "config"})
_FOLDED_SETTINGS, _MOST_SETTINGS = 15, 60  # the table is folded up, and cut off
_LONGEST_VALUE = 80
_FONT = 'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif'
_STYLE_SHEET = """\
body { font-family: FONT; color: var(--ink); background: var(--ground); max-width: 75rem; margin: 2rem auto;
  padding: 0 1rem; line-height: 1.4 }
h1 { font-size: 1.5rem; overflow-wrap: anywhere }
h2 { font-size: 1.1rem; margin-top: 2rem }
.quiet { color: var(--quiet) }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--grid);
  white-space: nowrap }
.swatch { display: inline-block; width: .7rem; height: .7rem; border-radius: 2px; margin-right: .4rem }
figure { margin: 0 }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 32rem), 1fr)); gap: 0 2rem }
.two { grid-column: 1 / -1 }
svg { width: 100%; height: auto; font-family: FONT }""".replace("FONT", _FONT)


def page(
    shown: Mapping[Panel, list[Cell]], lines: Sequence[Line], look: Look, left_out: Mapping[str, str] | None = None
) -> str:
    """The page as text.

    Args:
        shown: panels, with the axes of each.
        lines: runs and groups.
        look: what all pictures share.
        left_out: panels without data, and who logs what they show.
    """
    title = look.title or (", ".join(line.name for line in lines) if len(lines) < 4 else f"{len(lines)} runs")
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p class='quiet'>{escape(_said_of_runs(lines, look))}</p>",
        "<h2>Last figures</h2>",
        "<p class='quiet'>In brackets, the step of each.</p>",
        _figures_table(lines, look),
        _settings_section(lines),
        *_drawings(shown, lines, look),
        _left_out_section(left_out or {}),
        f"<p class='quiet'>trl-ext {escape(__version__)}</p>",
    ]
    return _frame(title, "\n".join(part for part in body if part))


def _said_of_runs(lines: Sequence[Line], look: Look) -> str:
    runs = sum(len(line.runs) for line in lines)
    said = [f"{runs} run{'s' * (runs > 1)}, steps {look.steps[0]:g} to {look.steps[1]:g}."]
    if any(len(line.runs) > 1 for line in lines):
        said.append("Bands are one sample standard deviation over the runs of a group, at the steps they all logged.")
    if look.smooth > 1:
        said.append(f"Curves are means over the last {look.smooth} steps; pale behind them, the figures as logged.")
    return " ".join(said)


# --- tables -------------------------------------------------------------------------------------------------------


def _figures_table(lines: Sequence[Line], look: Look) -> str:
    logged = dict.fromkeys(metric for line in lines for metric in line.metrics)
    accuracy = [(metric.removeprefix("eval/"), (metric,)) for metric in logged if re.fullmatch(r".+/\w+@\d+", metric)]
    rows = []
    columns = [FIGURES[0], *accuracy, *FIGURES[1:]]
    columns = [(heading, metrics) for heading, metrics in columns if any(metric in logged for metric in metrics)]
    for line in lines:
        cells = [_last_figure(line, metrics) for _, metrics in columns]
        rows.append([_run_cell(line, lines), *cells])
    return _table(["run", *(escape(heading) for heading, _ in columns)], rows)


def _run_cell(line: Line, lines: Sequence[Line]) -> str:
    number = list(lines).index(line)
    swatch = f"<span class='swatch' style='background: var(--c{number % len(PALETTE)})'></span>"
    return (swatch if len(lines) > 1 else "") + escape(line.label)


def _last_figure(line: Line, metrics: Sequence[str]) -> str:
    curve = line.curve(*metrics)
    return "–" if curve is None else _last(curve)


def _last(curve: Curve) -> str:
    place = int(np.flatnonzero(np.isfinite(curve.values))[-1])
    spread = f" ± {curve.std[place]:.2g}" if curve.std is not None else ""
    return f"{curve.values[place]:.4g}{spread} <span class='quiet'>({curve.steps[place]:g})</span>"


def _settings_section(lines: Sequence[Line]) -> str:
    runs = [run for line in lines for run in line.runs]
    settings = {run.name: read_settings(run) for run in runs}
    known = {name: values for name, values in settings.items() if values}
    if len(known) < 2:
        return ""
    keys = sorted({str(key) for values in known.values() for key in values} - _PLACES)
    texts = {key: [_setting(values.get(key, "–")) for values in known.values()] for key in keys}
    differing = {key: row for key, row in texts.items() if len(set(row)) > 1}
    if not differing:
        return "<h2>Settings</h2><p>All runs have the same settings.</p>"
    rows = [[escape(key), *(escape(_short(text)) for text in row)] for key, row in differing.items()]
    more = "" if len(rows) <= _MOST_SETTINGS else f"<p>And {len(rows) - _MOST_SETTINGS} more.</p>"
    heading = ["setting", *(escape(name) for name in known)]
    table = f"{_table(heading, rows[:_MOST_SETTINGS])}{more}"
    if len(rows) > _FOLDED_SETTINGS:
        table = f"<details><summary>{len(rows)} settings</summary>{table}</details>"
    return f"<h2>Settings that differ</h2>{table}"


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False, skipkeys=True)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f"<th>{cell}</th>" for cell in heading)
    body = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"


def _left_out_section(left_out: Mapping[str, str]) -> str:
    if not left_out:
        return ""
    items = "".join(f"<li>{escape(name)}: logged by {escape(source)}</li>" for name, source in left_out.items())
    return f"<h2>Panels without data</h2><ul>{items}</ul>"


# --- drawings -----------------------------------------------------------------------------------------------------


def _drawings(shown: Mapping[Panel, list[Cell]], lines: Sequence[Line], look: Look) -> list[str]:
    import matplotlib

    look = replace(look, is_page=True)
    parts = []
    with matplotlib.rc_context(STYLE):
        for number, (panel, cells) in enumerate(shown.items()):
            buffer = io.BytesIO()
            own = [replace(cells[0], title="")] if len(cells) == 1 else cells
            save(drawn(own, lines, look, 2), buffer, "svg", transparent=True)
            drawing = inline_svg(buffer.getvalue().decode("utf-8"), f"p{number}-", panel.title)
            wide = " class='two'" if len(cells) > 1 else ""
            parts.append(f"<section{wide}><h2>{escape(panel.title)}</h2>\n<figure>{drawing}</figure></section>")
    return ["<div class='panels'>", *parts, "</div>"]


def inline_svg(text: str, prefix: str, label: str) -> str:
    """A drawing of matplotlib's as part of a page: without namespaces, with colours of the page and ids of its own.

    Args:
        text: the SVG file.
        prefix: put before every id, as ids of a page must differ.
        label: read out in the place of the drawing.
    """
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    opening, _, rest = text.partition(">")
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None, "matplotlib writes a viewBox"
    # tags alone: what stands between them are names, in which "<" and ">" are escaped and all else may be
    inside = re.sub(r"<[^<>]*>", lambda tag: _page_tag(tag[0], prefix), rest)
    return f'<svg {box[0]} role="img" aria-label="{escape(label)}">{inside}'


def _page_tag(tag: str, prefix: str) -> str:
    """One tag of a drawing, with the page's ids, fonts and colours."""
    tag = tag.replace("xlink:href=", "href=")
    tag = re.sub(r'(?<=\sid=")', prefix, tag)
    tag = re.sub(r'(?<=\shref="#)', prefix, tag)
    tag = re.sub(r"(?<=url\(#)", prefix, tag)
    tag = re.sub(r"font: [^;\"]*?([\d.]+px)[^;\"]*", r"font-size: \1", tag)
    tag = re.sub(r"; font-family: [^;\"]*|font-family: [^;\"]*;? ?", "", tag)
    colours = {INK: "--ink", GRID: "--grid"} | {colour: f"--c{i}" for i, colour in enumerate(PALETTE)}
    return re.sub(r"#[0-9a-f]{6}\b", lambda m: f"var({colours[m[0]]})" if m[0] in colours else m[0], tag)


def _frame(title: str, body: str) -> str:
    light = _variables(INK, "#57606a", GRID, "#ffffff", PALETTE)
    dark = _variables("#e6edf3", "#9aa4af", "#3a424c", "#14181d", DARK_PALETTE)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
:root {{ color-scheme: light dark; {light} }}
@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}
{_STYLE_SHEET}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def _variables(ink: str, quiet: str, grid: str, ground: str, palette: Sequence[str]) -> str:
    colours = "; ".join(f"--c{i}: {colour}" for i, colour in enumerate(palette))
    return f"--ink: {ink}; --quiet: {quiet}; --grid: {grid}; --ground: {ground}; {colours}"
