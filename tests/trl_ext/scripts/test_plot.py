"""`trl-ext plot` as it is typed."""

import json
import math

import pytest

from trl_ext import cli
from trl_ext.evaluation import plots


@pytest.fixture
def run(tmp_path):
    """Makes a run folder of this test with three steps."""

    def make(name, rewards=(0.1, 0.2, 0.3)):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        lines = [json.dumps({"step": step, "reward": reward}) for step, reward in enumerate(rewards, 1)]
        (folder / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
        return str(folder)

    return make


@pytest.fixture
def calls(monkeypatch):
    """Replaces `draw` and returns the list of what it was called with."""
    made = []

    def draw(runs, folder, **options):
        made.append((runs, str(folder), options))
        return plots.Plots()

    monkeypatch.setattr(plots, "draw", draw)
    return made


def test_one_run_gets_pictures_and_a_page_in_its_folder(run, tmp_path, capsys):
    assert cli.main(["plot", run("ppo"), "--panels", "reward"]) == 0
    assert {path.name for path in (tmp_path / "ppo" / "plots").iterdir()} == {
        "overview.png",
        "reward.png",
        "plots.html",
    }
    said = capsys.readouterr().out
    assert "2 pictures (png)" in said and "overview, reward" in said and "plots.html" in said


def test_notes_and_panels_without_data_are_told(run, tmp_path, capsys):
    arguments = ["--format", "svg", "--output_dir", str(tmp_path / "out"), "--panels", "reward,accuracy"]
    assert cli.main(["plot", run("a", (0.1, math.inf)), *arguments]) == 0
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first == "Skipped in a: 1 figure that is not finite."
    assert second == "Without data, and who would log it: accuracy (EvaluationCallback)."


def test_options_reach_the_drawing(run, calls):
    words = (
        "--group g=x,y --group h=z --format svg,png --smooth 5 --panels kl,reward --title T --output_dir out".split()
    )
    assert cli.main(["plot", "a", "b", *words]) == 0
    options = {"formats": ["svg", "png"], "groups": {"g": ["x", "y"], "h": ["z"]}, "panels": ["kl", "reward"]}
    assert calls == [(["a", "b"], "out", {**options, "smooth": 5, "title": "T"})]


@pytest.mark.parametrize(
    ("runs", "folder"), [(["runs/a"], "runs/a/plots"), (["a", "b"], "plots"), (["--group", "g=a,b"], "plots")]
)
def test_default_folder(calls, runs, folder):
    assert cli.main(["plot", *runs]) == 0
    assert calls[0][1] == folder


def test_default_folder_of_a_file_is_beside_it(run, calls, tmp_path):
    assert cli.main(["plot", f"{run('a')}/metrics.jsonl"]) == 0
    assert calls[0][1] == str(tmp_path / "a" / "plots")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([], 2, "name a run: the output folder of a training run, or its metrics.jsonl"),
        (["a", "--pannels", "kl"], 2, "unknown argument --pannels; did you mean '--panels'?"),
        (["a", "--smooth", "x"], 2, "argument --smooth: x is no number of steps; 0 turns smoothing off"),
        (["a", "--smooth", "-1"], 2, "argument --smooth: -1 is no number of steps; 0 turns smoothing off"),
        (["a", "--panels", ","], 2, "argument --panels: ',' names nothing; separate names with commas"),
        (["--group", "x"], 2, "--group 'x': write it as name=run1,run2,run3"),
        (["--group", "=a"], 2, "--group '=a': write it as name=run1,run2,run3"),
        (["--group", "g=a", "--group", "g=b"], 2, "--group: two groups have the name 'g'; put their runs into one"),
        (["nothing-here"], 1, "there is no run nothing-here; give the output folder of a training run"),
        (["nothing-here", "--format", "pdf"], 1, "format 'pdf': the formats are png, svg, html"),
    ],
)
def test_mistakes_are_one_line(words, status, message, capsys):
    assert cli.main(["plot", *words]) == status
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1


def test_empty_folder_is_told(tmp_path, capsys):
    assert cli.main(["plot", str(tmp_path)]) == 1
    assert "holds neither metrics.jsonl nor trainer_state.json" in capsys.readouterr().err


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["plot", "--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert all(option in said for option in ("--group", "--output_dir", "--format", "--smooth", "--panels", "--title"))
