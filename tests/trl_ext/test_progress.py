"""Rows of figures while a run goes: a table on a terminal, plain lines elsewhere."""

import io
import os
import re
from types import SimpleNamespace

import pytest

from trl_ext import progress
from trl_ext.progress import RichTable

PPO_LOG = {
    "reward": 0.53125,
    "reward_std": 0.4,
    "loss": 0.01,
    "policy/kl_ref_sequence": 5.985,
    "policy/clip_frac_low": 0.01,
    "policy/clip_frac_high": 0.02,
    "value/explained_variance": -0.034,
    "completions/mean_length": 4.25,
    "num_tokens": 1000,
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Seconds that the tests set, and a known memory."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now.seconds)
    monkeypatch.setattr(progress, "_peak_memory", lambda: 1.5 * 2**30)
    # `datasets.map` puts a copy in the place of os.environ, while rich keeps the object that it saw first
    monkeypatch.setattr("rich.console.Console._environ", os.environ)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return now


def _state(step, is_main=True, max_steps=10):
    return SimpleNamespace(global_step=step, is_world_process_zero=is_main, max_steps=max_steps)


def _run(table, clock, logs, first_step=0, seconds=10.0, **state):
    table.on_train_begin(None, _state(first_step, **state), None)
    for step, log in enumerate(logs, start=first_step + 1):
        clock.seconds += seconds
        table.on_step_end(None, _state(step, **state), None)
        table.on_log(None, _state(step, **state), None, logs=log)
    table.on_train_end(None, _state(first_step + len(logs), **state), None)


def _lines(text):
    """What stands on the screen without colours, and without the bar, which is redrawn many times."""
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r", "\n")
    return [line.rstrip() for line in plain.splitlines() if line.strip() and "elapsed" not in line]


def test_a_log_that_goes_to_a_file_is_one_labelled_line(clock):
    file = io.StringIO()
    _run(RichTable("PPO", file), clock, [PPO_LOG, {**PPO_LOG, "num_tokens": 1500}])
    first, second = file.getvalue().splitlines()
    assert first == (
        "PPO step 1/10  reward 0.531 ± 0.40  KL/seq 5.985  clip 0.030  EV -0.034  length 4.2  "
        "tokens/s 100  memory 1.50 GiB  left 01:30"
    )
    assert second.startswith("PPO step 2/10") and "tokens/s 50  " in second and second.endswith("left 01:20")


def test_rows_on_a_terminal_stand_under_their_titles(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    file = Terminal()
    _run(RichTable("PPO", file), clock, [PPO_LOG, {**PPO_LOG, "reward": -1.24e-7, "value/explained_variance": 0.9}])
    header, first, second = _lines(file.getvalue())[:3]
    assert header.split() == "step reward KL/seq clip EV length tokens/s memory left".split()
    assert first.split() == "1/10 0.531 ± 0.40 5.985 0.030 -0.034 4.2 100 1.50 GiB 01:30".split()
    assert second.split()[1:4] == ["-1.2e-07", "±", "0.40"]
    for title in ("KL/seq", "EV", "length", "left"):
        end = header.index(title) + len(title)
        assert first[end - 1] != " " and (len(first) == end or first[end] == " ")


def test_the_titles_come_again_after_many_rows(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    file = Terminal()
    _run(RichTable("PPO", file), clock, [PPO_LOG] * 51, max_steps=60)
    assert sum(line.split()[0] == "step" for line in _lines(file.getvalue())) == 3


def test_a_narrow_terminal_leaves_the_least_telling_columns_out(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    file = Terminal()
    _run(RichTable("PPO", file), clock, [PPO_LOG])
    lines = _lines(file.getvalue())
    assert lines[0].split() == "step reward KL/seq EV length left".split()
    assert all(len(line) <= 60 for line in lines)


def test_the_bar_tells_the_steps_and_the_time_left(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    file = Terminal()
    _run(RichTable("PPO", file), clock, [PPO_LOG] * 4, seconds=1000.0)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    assert "PPO: 4/10" in plain and "1:40:00 left" in plain
    assert file.getvalue().rstrip("\x1b[?25h").endswith("\n")


def test_grpo_shows_its_own_figures(clock):
    file = io.StringIO()
    log = {"reward": 0.25, "reward_std": float("nan"), "kl": 0.5, "frac_reward_zero_std": 0.75}
    _run(RichTable("GRPO", file), clock, [{**log, "clip_ratio/region_mean": 0.125}])
    told = "GRPO step 1/10  reward 0.250  KL/token 0.500  clip 0.125  flat 0.75  memory 1.50 GiB  left 01:30\n"
    assert file.getvalue() == told


def test_a_trainer_without_rewards_shows_its_loss(clock):
    file = io.StringIO()
    _run(RichTable("SFT", file), clock, [{"loss": 2.5, "num_tokens": 10.0}])
    assert file.getvalue() == "SFT step 1/10  loss 2.500  tokens/s 1  memory 1.50 GiB  left 01:30\n"


def test_figures_that_a_log_lacks_are_left_out(clock):
    file = io.StringIO()
    _run(RichTable("PPO", file), clock, [PPO_LOG, {"reward": 1.0, "value/explained_variance": None}])
    assert file.getvalue().splitlines()[1] == "PPO step 2/10  reward 1.000  memory 1.50 GiB  left 01:20"


def test_an_evaluation_stands_in_a_line_of_its_own(clock):
    file = io.StringIO()
    _run(RichTable("PPO", file), clock, [PPO_LOG, {"eval/pass@1": 0.625, "eval_loss": 1.0, "epoch": 0.5}])
    assert file.getvalue().splitlines()[1] == "evaluation at step 2: pass@1 0.625  loss 1.000"


def test_an_evaluation_goes_on_in_the_next_line_of_a_narrow_terminal(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    file = Terminal()
    figures = {
        f"eval/{name}": 0.5 for name in ("pass@1", "pass@8", "cons@8", "response_length", "truncated", "seconds")
    }
    _run(RichTable("PPO", file), clock, [PPO_LOG, figures])
    lines = _lines(file.getvalue())
    shown = " ".join(lines[2:])
    assert all(len(line) <= 60 for line in lines) and "…" not in shown
    assert all(f"{name.removeprefix('eval/')} 0.500" in shown for name in figures)


def test_a_figure_that_is_not_finite_is_shown_and_marked(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    file = Terminal()
    _run(RichTable("PPO", file), clock, [{**PPO_LOG, "reward": float("nan")}])
    assert "\x1b[1;31m" in file.getvalue() and "nan ± 0.40" in file.getvalue()


def test_a_resumed_run_counts_time_and_tokens_from_where_it_goes_on(clock):
    file = io.StringIO()
    _run(RichTable("PPO", file), clock, [PPO_LOG, {**PPO_LOG, "num_tokens": 1100}], first_step=8)
    first, second = file.getvalue().splitlines()
    assert "tokens/s" not in first and first.endswith("left 00:10")
    assert "tokens/s 10" in second and second.endswith("left 00:00")


def test_markup_in_names_is_printed_as_it_is(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    file = Terminal()
    _run(RichTable("PPO", file), clock, [{"eval/[red]x": 1.0}])
    assert "[red]x 1.000" in file.getvalue()


def test_the_summary_at_the_end_and_empty_logs_show_nothing(clock):
    file = io.StringIO()
    _run(RichTable("PPO", file), clock, [{"train_runtime": 3.0, "reward": 1.0}, {}, None])
    assert file.getvalue() == ""


def test_another_process_shows_nothing(clock):
    file = io.StringIO()
    _run(RichTable("PPO", file), clock, [PPO_LOG], is_main=False)
    assert file.getvalue() == ""


def test_closing_twice_or_before_the_start_is_harmless(clock, monkeypatch):
    file = Terminal()
    table = RichTable("PPO", file)
    table.close()
    table.on_train_begin(None, _state(0), None)
    table.close()
    shown = file.getvalue()
    table.close()
    table.on_log(None, _state(1), None, logs=PPO_LOG)
    assert file.getvalue() == shown


def test_a_dumb_terminal_gets_plain_lines(clock, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    file = Terminal()
    _run(RichTable("PPO", file), clock, [PPO_LOG])
    assert file.getvalue().startswith("PPO step 1/10  reward 0.531") and len(file.getvalue().splitlines()) == 1


def test_without_rich_a_terminal_gets_plain_lines(clock, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "rich.console", None)
    file = Terminal()
    _run(RichTable("PPO", file), clock, [PPO_LOG])
    assert file.getvalue().startswith("PPO step 1/10  reward 0.531")


def test_the_titles_stay_right_while_the_steps_get_more_digits(clock, monkeypatch):
    for width in range(50, 125, 3):
        monkeypatch.setenv("COLUMNS", str(width))
        file = Terminal()
        _run(RichTable("PPO", file), clock, [{**PPO_LOG, "kl": 0.5}] * 12, first_step=990, max_steps=1500)
        lines = _lines(file.getvalue())
        assert sum(line.split()[0] == "step" for line in lines) == 1
        titles = lines[0].split()[1:]
        cells = [line.replace(" ± ", "±").replace(" GiB", "").split()[1:] for line in lines[1:]]
        assert all(len(row) == len(titles) for row in cells)
        assert "reward" in titles


def test_columns_that_come_later_get_titles(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    file = Terminal()
    _run(RichTable("GRPO", file), clock, [{"reward": 0.5}, {"reward": 0.5, "kl": 0.25}, {"reward": 0.75}])
    rows = [line.split() for line in _lines(file.getvalue())]
    assert rows[0] == "step reward memory left".split() and rows[2] == "step reward KL/token memory left".split()
    assert rows[3][2] == "0.250" and rows[4][1:3] == ["0.750", "-"]


def test_a_log_without_training_figures_comes_first_and_hides_nothing(clock):
    file = io.StringIO()
    _run(RichTable("PPO", file), clock, [{"val/pass@1": 0.5, "epoch": 1}, PPO_LOG])
    first, second = file.getvalue().splitlines()
    assert first == "step 1: val/pass@1 0.500"
    assert second.startswith("PPO step 2/10  reward 0.531 ± 0.40")


def test_an_integer_that_no_float_holds_does_not_end_the_run(clock):
    file = io.StringIO()
    _run(RichTable("PPO", file), clock, [{"reward": 0.5, "seen": 10**400}, {"reward": -(10**400)}])
    assert [line.split()[4] for line in file.getvalue().splitlines()] == ["0.500", "-inf"]


def test_a_process_that_ends_without_closing_shows_the_cursor_again():
    import subprocess
    import sys

    code = (
        "import io; from types import SimpleNamespace as N; from trl_ext.progress import RichTable\n"
        "class T(io.TextIOWrapper):\n    def isatty(self): return True\n"
        "import sys; table = RichTable('PPO', T(sys.stdout.buffer, write_through=True))\n"
        "table.on_train_begin(None, N(global_step=0, is_world_process_zero=True, max_steps=3), None)\n"
        "raise SystemExit(0)\n"
    )
    environment = {"TERM": "xterm-256color", "PATH": "/usr/bin:/bin"}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, timeout=120).stdout
    assert b"\x1b[?25l" in shown and shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")
