"""`trl-ext data` from the command line: what it prints, writes and returns, and calls that cannot work."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from datasets import Dataset

from datasets_builders.registry import BUILDERS, EVALUATION_SETS
from datasets_builders.saving import load_report, load_saved
from trl_ext.cli import main
from trl_ext.scripts import data
from trl_ext.scripts._data_text import shortened, table

NUM_ROWS = 30
RAW = [
    {"question": f"Tom has {i} apples and buys {i} more. How many?", "answer": f"<<{i}+{i}={2 * i}>>\n#### {2 * i}"}
    for i in range(NUM_ROWS)
]
BROKEN = {"question": "No answer here?", "answer": "none"}
LONG = "A farmer sows seven rows of eleven beans each and then takes out four of them"
TEST = [{"question": f"{LONG}. How many are left?", "answer": "#### 73"}]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder with raw rows of GSM8K in it, offline, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / ".cache")
    _write("train.jsonl", [*RAW, BROKEN, {"question": f"{LONG}. What is left?", "answer": "#### 73"}])
    _write("test.jsonl", TEST)
    return tmp_path


def _write(name, rows):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _data(*argv):
    return main(["data", *argv])


def _build(*argv, source="gsm8k", output="out"):
    return _data("build", source, "--local_path", "train.jsonl", "--output_dir", output, *argv)


def _refused(capsys, sentence, *argv, status=1):
    assert _data(*argv) == status
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if line.startswith("trl-ext: error: ")]
    assert len(lines) == 1 and sentence in lines[0], error
    assert "Traceback" not in error and "TRL_EXT_DEBUG" not in error


# --- the command itself


def test_help_loads_nothing_heavy_and_names_every_command():
    code = (
        "import sys; from trl_ext.cli import main\n"
        "main(['data', '--help'])\n"
        "assert not {'torch', 'trl', 'datasets', 'yaml', 'datasets_builders'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert all(f"\n  {name} " in result.stdout for name in data.COMMANDS)


@pytest.mark.parametrize("command", list(data.COMMANDS))
def test_help_of_a_command_loads_nothing_heavy(command):
    code = (
        "import sys; from trl_ext.cli import main\n"
        f"try: main(['data', {command!r}, '--help'])\n"
        "finally: assert not {'torch', 'trl', 'datasets'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"usage: trl-ext data {command}")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "name a command of `trl-ext data`; the commands are list, build, "),
        (["buld"], "unknown command 'buld'; did you mean 'build'?"),
        (["build"], "name the source; `trl-ext data list` shows them"),
        (["build", "gsm8k", "--dataset_name", "polaris"], "the source is 'gsm8k' and --dataset_name is 'polaris'"),
        (["build", "gsm8k"], "name a folder with --output_dir, or look first with --dry_run"),
        (["build", "gsm8k", "--outputdir", "x"], "unknown argument --outputdir; did you mean '--output_dir'?"),
        (["build", "gsm8k", "--max_samples", "0"], "--max_samples: 0 is no whole number of at least 1"),
        (["build", "gsm8k", "--output_dir", "x", "--export", "verll"], "did you mean 'verl'?"),
        (["build", "gsm8k", "--output_dir", "x", "--max_prompt_tokens", "9"], "needs the model that counts them"),
        (["build", "gsm8k", "--output_dir", "x", "--push_to_hub"], "--push_to_hub needs --repo_id user/name"),
        (["mix"], "name what to mix: NAME=COUNT ..., or --recipe olmo3-think"),
        (["mix", "gsm8k"], "'gsm8k' must be NAME=COUNT, as in gsm8k=1000"),
        (["mix", "gsm8k=many"], "gsm8k=many must be a number of rows, or a share below 1"),
        (["mix", "gsm8k=1", "--recipe", "olmo3-think"], "give --recipe or NAME=COUNT ..., not both"),
        (["inspect", "gsm8k", "-n", "0"], "0 is no whole number of at least 1"),
    ],
)
def test_wrong_call_is_one_line_and_exits_2(here, capsys, argv, sentence):
    _refused(capsys, sentence, *argv, status=2)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["build", "gsm8", "--dry_run"], "unknown source 'gsm8'; did you mean 'gsm8k'?"),
        (["build", "math_500", "--dry_run"], "'math_500' is an evaluation set and never becomes training data"),
        (["build", "gsm8k", "--dry_run"], "cannot be reached on the Hub"),
        (["build", "gsm8k", "--dry_run", "--local_path", "no.jsonl"], "local_path='no.jsonl' does not exist"),
        (
            ["build", "gsm8k", "--dry_run", "--local_path", "train.jsonl", "--instruction", "box"],
            "did you mean 'boxed'?",
        ),
        (["build", "gsm8k", "--dry_run", "--local_path", "train.jsonl", "--split", "tran"], "did you mean 'train'?"),
        (
            ["build", "gsm8k", "--dry_run", "--local_path", "train.jsonl", "--decontaminate", "math500=x.jsonl"],
            "unknown evaluation set 'math500'; did you mean 'math_500'?",
        ),
        (
            ["build", "gsm8k", "--dry_run", "--local_path", "train.jsonl", "--decontaminate", "math_500"],
            "cannot be reached on the Hub",
        ),
        (
            ["build", "countdown_tasks", "--output_dir", "x", "--push_to_hub", "--repo_id", "a/b"],
            "'countdown_tasks' states no licence, so it is not pushed",
        ),
        (["build", "gsm8k", "--output_dir", "x", "--push_to_hub", "--repo_id", "a/b"], "turned off by HF_HUB_OFFLINE"),
        (
            [*"build gsm8k --dry_run --local_path train.jsonl --decontaminate none --language".split(), "xx1"],
            "languages must be an ISO 639-1 code",
        ),
        (["build", "gsm8k", "--config", "no.yaml"], "no configuration file 'no.yaml'"),
        (["mix", "gsm8k=5", "hh_rlhf=5", "--output_dir", "x"], "a mixture holds rows of one kind"),
        (["mix", "--recipe", "olmo3-thinks", "--dry_run"], "did you mean 'olmo3-think'?"),
        (["check", "data/none"], "there is no file or folder data/none"),
        (["inspect", "rows.jsonl"], "there is no file or folder rows.jsonl"),
        (["decontaminate", "no.jsonl"], "there is no file or folder no.jsonl"),
        (["decontaminate", "train.jsonl", "--against", "none"], "--against none compares with nothing"),
        (["list", "--task", "maths"], "--task maths is none of "),
    ],
)
def test_call_that_cannot_work_is_one_line_and_exits_1(here, capsys, argv, sentence):
    _refused(capsys, sentence, *argv)


def test_bug_keeps_its_traceback(here, monkeypatch):
    monkeypatch.setattr("trl_ext.scripts._data_show.list_sources", lambda args: {}["bug"])
    with pytest.raises(KeyError, match="bug"):
        _data("list")


# --- list


def test_list_shows_every_source_and_evaluation_set_within_100_columns(here, capsys):
    assert _data("list") == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) < 100
    sources, sets = shown.split("evaluation sets:")
    for names, part in ((BUILDERS, sources), (EVALUATION_SETS, sets)):
        assert [line.split()[0] for line in part.splitlines()[2:] if line[:1].isalpha()][: len(names)] == list(names)


def test_list_of_a_task_and_as_json(here, capsys):
    assert _data("list", "--task", "code", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {fact["task"] for facts in found.values() for fact in facts} == {"code"}
    assert [fact["name"] for fact in found["evaluation sets"]] == ["humaneval", "mbpp"]
    assert found["sources"][0]["path"] == BUILDERS[found["sources"][0]["name"]].path


# --- build


def test_build_writes_a_folder_prints_counts_and_the_next_commands(here, capsys):
    assert _build("--decontaminate", "gsm8k=test.jsonl", "--check_golds") == 0
    printed = capsys.readouterr()
    rows = [line.split() for line in printed.out.splitlines()]
    for line in (
        ["gsm8k", "loaded", "32"],
        ["gsm8k", "dropped:", "no", "answer", "1"],
        ["gsm8k", "kept", "31"],
        ["dropped:", "in", "an", "evaluation", "set", "1"],
        ["in", "the", "data", "set", "30"],
    ):
        assert line in rows, printed.out
    assert "golds of math: 100.00% score 1.0 (0 of 30 fail)" in printed.out
    assert "  trl-ext data inspect out -n 3\n" in printed.out
    assert "trl-ext grpo --model MODEL --dataset_name out --reward_funcs accuracy_reward" in printed.out
    built = load_saved("out")
    assert built["source"][:] == ["gsm8k"] * NUM_ROWS and built["solution"][:3] == ["$0$", "$2$", "$4$"]
    assert built[0]["prompt"][0]["content"].endswith("\\boxed{}.")
    checks = load_report("out")["checks"]
    assert checks["decontamination"]["by_set"] == {"gsm8k": 1}
    assert checks["golds"]["by_task"]["math"] == {"rate": 1.0, "total": 30, "failed": 0, "unchecked": 0}


def test_build_names_the_evaluation_sets_that_it_could_not_compare_with(here, capsys):
    assert _build() == 0
    error = capsys.readouterr().err
    assert error.count("warning: not compared with math_500, ") == 1
    assert set(load_report("out")["checks"]["decontamination"]["unavailable"]) == set(EVALUATION_SETS)
    assert "**Not compared with** `math_500`" in Path("out/README.md").read_text()
    assert _build() == 0
    assert "it was not compared with math_500, " in capsys.readouterr().out


def test_build_without_decontamination_compares_with_nothing(here, capsys):
    assert _build("--decontaminate", "none") == 0
    assert "warning" not in capsys.readouterr().err
    assert load_report("out")["checks"] == {} and load_report("out")["rows"] == NUM_ROWS + 1


def test_build_draws_after_the_checks_as_many_rows_as_asked_for(here):
    assert _build("--decontaminate", "gsm8k=test.jsonl", "--max_samples", "30") == 0
    assert load_report("out")["rows"] == 30  # of 31, one of which is contaminated


def test_build_draws_the_rows_of_the_library_in_its_order(here):
    from datasets_builders import build

    assert _build("--decontaminate", "none", "--max_samples", "7", "--seed", "5") == 0
    assert load_saved("out").to_list() == build("gsm8k", local_path="train.jsonl", max_samples=7, seed=5).to_list()


def test_build_again_is_there_already_and_another_one_is_refused(here, capsys):
    assert _build("--decontaminate", "none") == 0
    capsys.readouterr()
    assert _build("--decontaminate", "none", "--num_proc", "2") == 0
    assert "already built: out holds 31 rows of the same settings and source" in capsys.readouterr().out
    argv = ["build", "gsm8k", "--local_path", "train.jsonl", "--output_dir", "out", "--decontaminate", "none"]
    _refused(capsys, "other settings (seed: 42 there, 7 now)", *argv, "--seed", "7")
    assert _data(*argv, "--seed", "7", "--overwrite") == 0


@pytest.mark.parametrize(
    ("file", "sentence"), [("train.jsonl", "put the old files back"), ("test.jsonl", "against_files")]
)
def test_build_of_changed_files_is_refused(here, capsys, file, sentence):
    argv = ["--decontaminate", "gsm8k=test.jsonl"]
    assert _build(*argv) == 0
    capsys.readouterr()
    _write(file, RAW[:3])
    _refused(capsys, sentence, "build", "gsm8k", "--local_path", "train.jsonl", "--output_dir", "out", *argv)


def test_build_from_yaml_takes_flags_over_the_file_and_gives_the_same_folder(here, capsys):
    settings = {"dataset_name": "gsm8k", "local_path": "train.jsonl", "decontaminate": ["gsm8k=test.jsonl"]}
    settings |= {"max_samples": 5, "output_dir": "a", "near_dedup": True, "min_difficulty": None}
    Path("build.yaml").write_text(yaml.safe_dump(settings))
    assert _data("build", "--config", "build.yaml", "--max_samples", "6") == 0
    assert load_report("a")["rows"] == 6 and "near_duplicates" in load_report("a")["checks"]
    assert _data("build", "--config", "a/config_resolved.yaml", "--output_dir", "b") == 0
    assert load_saved("b").to_list() == load_saved("a").to_list()
    assert load_report("b")["settings_hash"] == load_report("a")["settings_hash"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("max_sampels: 3", "unknown key 'max_sampels' in build.yaml; did you mean 'max_samples'?"),
        ("max_samples: many", "many is no whole number"),
        ("near_dedup: 3", "near_dedup: 3 in the configuration file must be true or false"),
        ("[", "build.yaml is not valid YAML"),
    ],
)
def test_wrong_yaml_is_one_line(here, capsys, text, sentence):
    Path("build.yaml").write_text(text)
    _refused(capsys, sentence, "build", "gsm8k", "--config", "build.yaml", status=2)


def test_dry_run_writes_nothing(here, capsys):
    assert _build("--dry_run", "--decontaminate", "gsm8k=test.jsonl") == 0
    printed = capsys.readouterr().out
    assert "nothing was written" in printed and "in the data set" in printed
    assert sorted(path.name for path in here.iterdir() if path.name != ".cache") == ["test.jsonl", "train.jsonl"]


def test_stream_is_built_like_a_table(here):
    assert _build("--decontaminate", "gsm8k=test.jsonl", "--streaming", output="stream") == 0
    assert _build("--decontaminate", "gsm8k=test.jsonl", output="table") == 0
    assert load_saved("stream").to_list() == load_saved("table").to_list()
    for name in ("loaded", "kept", "dropped", "checks"):
        assert load_report("stream")[name] == load_report("table")[name], name


def test_drawn_stream_has_as_many_rows_as_asked_for_after_the_checks(here):
    argv = ["--decontaminate", "gsm8k=test.jsonl", "--streaming", "--max_samples", "30"]
    assert _build(*argv, output="a") == 0 and _build(*argv, output="b") == 0
    report = load_report("a")
    assert report["rows"] == 30
    gone = sum(report["dropped"].values()) + report["duplicates"] + report["disagreeing"]
    contaminated, left = (report["checks"][name] for name in ("decontamination", "sample"))
    assert contaminated["contaminated"] == 1
    assert report["loaded"] - gone - 1 - left["not_drawn"] == left["drawn"] == 30
    assert f"not drawn | {left['not_drawn']}" in Path("a/README.md").read_text()
    assert load_saved("a").to_list() == load_saved("b").to_list()


def test_checks_of_a_stream_that_need_all_rows_are_refused_and_leave_nothing(here, capsys):
    argv = ["build", "gsm8k", "--local_path", "train.jsonl", "--output_dir", "out", "--decontaminate", "none"]
    _refused(capsys, "--check_golds needs all rows at once", *argv, "--streaming", "--check_golds")
    _refused(capsys, "needs all rows at once", *argv, "--streaming", "--near_dedup")
    assert not Path("out").exists()


def test_filters_are_those_of_the_flags(here, tiny_model_path):
    rows = [
        {"problem": "Find $x$.", "answer": "1", "difficulty": "0/8"},
        {"problem": "Find the value of $y$ in this sum.", "answer": "2", "difficulty": "4/8"},
        {"problem": "求出这个方程的最大整数解是多少。", "answer": "3", "difficulty": "4/8"},
        {"problem": "Find the value of $z$ in this sum. " + "Think. " * 60, "answer": "4", "difficulty": "5/8"},
    ]
    _write("polaris.jsonl", rows)
    argv = ["build", "polaris", "--local_path", "polaris.jsonl", "--output_dir", "out", "--decontaminate", "none"]
    argv += ["--min_difficulty", "0.1", "--language", "en", "--tokenizer", str(tiny_model_path)]
    assert _data(*argv, "--max_prompt_tokens", "300") == 0
    assert load_saved("out")["solution"][:] == ["$2$"]
    checks = load_report("out")["checks"]
    assert (checks["difficulty"]["too_hard"], checks["language"]["other_language"]) == (1, 1)
    assert checks["length"]["too_long"] == 1


def test_golds_that_fail_are_dropped_when_asked_for(here):
    _write("judge.jsonl", [{"problem": f"Q{i}?", "answer": gold} for i, gold in enumerate(("4", "\\frac{1}{2}"))])
    argv = ["build", "acereason_math", "--local_path", "judge.jsonl", "--decontaminate", "none", "--drop_failing"]
    assert _data(*argv, "--output_dir", "out") == 0
    golds = load_report("out")["checks"]["golds"]
    assert golds["failing_golds"] == 2 - load_report("out")["rows"] == golds["by_task"]["math"]["failed"]


def test_preferences_and_supervised_rows_name_their_trainers(here, capsys):
    _write(
        "hh.jsonl", [{"chosen": "\n\nHuman: Hi.\n\nAssistant: Hello.", "rejected": "\n\nHuman: Hi.\n\nAssistant: No."}]
    )
    argv = ["build", "hh_rlhf", "--local_path", "hh.jsonl", "--decontaminate", "none", "--output_dir", "out"]
    assert _data(*argv) == 0
    assert "trl dpo --model_name_or_path MODEL --dataset_name out" in capsys.readouterr().out


@pytest.mark.parametrize(("layout", "column"), [("verl", "reward_model"), ("open_instruct", "ground_truth")])
def test_export_writes_the_columns_of_the_library(here, capsys, layout, column):
    assert _build("--decontaminate", "none", "--export", layout) == 0
    assert column in load_saved("out").column_names
    assert "trl-ext grpo" not in capsys.readouterr().out


def test_folder_that_is_in_the_way_is_kept(here, capsys):
    Path("out").mkdir()
    Path("out/thesis.tex").write_text("years of work")
    argv = ["build", "gsm8k", "--local_path", "train.jsonl", "--output_dir", "out", "--decontaminate", "none"]
    _refused(capsys, "holds other files (thesis.tex)", *argv)
    assert _data(*argv, "--overwrite") == 0
    said = capsys.readouterr().out
    assert f"what no build had written in out is now in {here / 'out.replaced-1'}: thesis.tex\n" in said
    assert Path("out.replaced-1/thesis.tex").read_text() == "years of work"


def test_files_beside_those_of_a_build_are_kept_and_named(here, capsys):
    argv = ["build", "gsm8k", "--local_path", "train.jsonl", "--output_dir", "out", "--decontaminate", "none"]
    assert _data(*argv) == 0
    for number in range(5):
        Path(f"out/notes-{number}.txt").write_text("mine")
    assert _data(*argv, "--overwrite") == 0
    kept = "notes-0.txt, notes-1.txt, notes-2.txt and 2 more\n"
    assert f"is now in {here / 'out.replaced-1'}: {kept}" in capsys.readouterr().out
    assert sorted(path.name for path in Path("out.replaced-1").iterdir()) == [f"notes-{i}.txt" for i in range(5)]
    assert not list(Path("out").glob("notes*"))


def test_card_names_no_folder_of_this_machine(here):
    argv = ["build", "gsm8k", "--local_path", str(here / "train.jsonl"), "--output_dir", str(here / "out")]
    assert _data(*argv, "--decontaminate", f"gsm8k={here / 'test.jsonl'}") == 0
    for name in ("README.md", "report.json"):
        assert str(here) not in Path("out", name).read_text(), name
    assert "--local_path train.jsonl --decontaminate gsm8k=test.jsonl" in Path("out/README.md").read_text()


# --- inspect


def test_inspect_shows_raw_row_built_row_completion_and_verdict(here, capsys):
    assert _data("inspect", "gsm8k", "--local_path", "train.jsonl", "-n", "2") == 0
    shown = capsys.readouterr().out
    assert shown.count("--- row ") == 2
    first = shown.split("--- row 1 ")[0]
    assert '"#### 0"' not in first and '#### 0"' in first  # raw
    assert "solution: $0$" in first and "\\boxed{0}" in first
    assert "verdict: accuracy_reward = 1 (" in first


def test_inspect_names_the_reason_of_a_dropped_row(here, capsys):
    _write("broken.jsonl", [BROKEN])
    assert _data("inspect", "gsm8k", "--local_path", "broken.jsonl") == 0
    assert "dropped: no_answer" in capsys.readouterr().out


def test_inspect_reads_a_built_folder_an_evaluation_set_and_generated_rows(here, capsys):
    assert _build("--decontaminate", "none") == 0
    capsys.readouterr()
    assert _data("inspect", "out", "-n", "1") == 0
    assert "as the source has it" not in capsys.readouterr().out
    assert _data("inspect", "gsm8k", "--evaluation", "--local_path", "test.jsonl") == 0
    assert "solution: $73$" in capsys.readouterr().out
    assert _data("inspect", "countdown", "-n", "1") == 0
    assert "verdict: countdown_reward = 1 (" in capsys.readouterr().out


def test_inspect_says_what_is_wrong_with_a_gold(here, capsys):
    from trl_ext.scripts._data_show import verdict_of

    row = {"prompt": [], "task": "code", "solution": '{"asserts": []}'}
    assert verdict_of(row) == ("", "code: the form of the gold is wrong (no_tests)")
    assert verdict_of({**row, "task": "math", "solution": "$4$"})[1].startswith("accuracy_reward = 1 (")
    assert verdict_of({**row, "task": "math", "solution": "$$"})[1] != "accuracy_reward = 1 (correct)"


def test_control_characters_of_the_data_do_not_reach_the_terminal(here, capsys):
    _write("bad.jsonl", [{"question": "\x1b[2J\u202eQ?", "answer": "#### 4"}])
    assert _data("inspect", "gsm8k", "--local_path", "bad.jsonl") == 0
    assert not {"\x1b", "\u202e"} & set(capsys.readouterr().out)


# --- check


def test_check_of_a_good_folder_exits_0(here, capsys):
    assert _build("--decontaminate", "gsm8k=test.jsonl") == 0
    capsys.readouterr()
    assert _data("check", "out", "--against", "gsm8k=test.jsonl") == 0
    shown = capsys.readouterr().out
    assert "wrong" not in shown and "100.00% good" in shown


def test_check_finds_shared_prompts(here, capsys):
    assert _build("--decontaminate", "none") == 0
    capsys.readouterr()
    assert _data("check", "out", "--against", "gsm8k=test.jsonl") == 1
    assert ["prompts", "shared", "with", "gsm8k", "1", "wrong"] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]


def test_check_finds_rows_that_break_the_schema_double_ids_and_bad_golds(here, capsys):
    assert _build("--decontaminate", "none") == 0
    rows = load_saved("out").to_list()[:4]
    capsys.readouterr()
    _rows_file("ids.parquet", [*rows, rows[0]])
    assert _data("check", "ids.parquet") == 1
    assert "row 4: gsm8k/" in capsys.readouterr().out
    _rows_file("schema.parquet", [*rows, {**rows[0], "source_id": "x", "extra": "{"}])
    assert _data("check", "schema.parquet") == 1
    assert "row 4: extra is no JSON" in capsys.readouterr().out
    _rows_file("golds.parquet", [*rows, {**rows[0], "source_id": "x", "solution": "$$"}])
    assert _data("check", "golds.parquet") == 1
    assert "below 98.00%" in capsys.readouterr().out
    assert _data("check", "golds.parquet", "--threshold", "0.5") == 0


def _rows_file(name, rows):
    Dataset.from_list(rows).to_parquet(name)


def test_check_of_a_source_builds_it(here, capsys):
    assert _data("check", "gsm8k", "--local_path", "train.jsonl", "--max_rows", "5") == 0
    assert ["rows", "5"] in [line.split() for line in capsys.readouterr().out.splitlines()]


# --- mix


@pytest.mark.parametrize(("name", "sources", "total"), [("olmo3-think", 13, 104_869), ("olmo3-instruct", 10, 171_950)])
def test_plan_of_a_recipe_adds_up_to_the_printed_total(here, capsys, name, sources, total):
    assert _data("mix", "--recipe", name, "--dry_run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < 100
    counts = [int(line.split()[2].replace(",", "")) for line in lines[1 : sources + 1]]
    assert sum(counts) == total and len(lines) == sources + 2
    assert lines[-1].split() == ["total", f"{total:,}", "printed", "total", f"{total:,}"]


def test_mix_builds_as_many_rows_of_each_source(here, capsys):
    argv = ["mix", "gsm8k=6", "countdown=4", "--local_paths", "gsm8k=train.jsonl", "--output_dir", "out"]
    assert _data(*argv, "--decontaminate", "none") == 0
    sources = load_saved("out")["source"][:]
    assert (sources.count("gsm8k"), sources.count("countdown"), len(sources)) == (6, 4, 10)
    assert [part["name"] for part in load_report("out")["parts"]] == ["gsm8k", "countdown"]
    assert "--reward_funcs accuracy_reward countdown_reward" in capsys.readouterr().out.replace(
        "countdown_reward accuracy_reward", "accuracy_reward countdown_reward"
    )
    assert _data(*argv, "--decontaminate", "none") == 0
    assert "already built" in capsys.readouterr().out


def test_mix_of_shares_and_of_a_recipe_file(here, capsys):
    argv = ["--local_paths", "gsm8k=train.jsonl", "--decontaminate", "none"]
    assert _data("mix", "gsm8k=0.5", "countdown=0.5", "--total", "8", "--output_dir", "a", *argv) == 0
    Path("mine.yaml").write_text("gsm8k: 4\ncountdown: 4\n")
    assert _data("mix", "--recipe", "mine.yaml", "--output_dir", "b", *argv) == 0
    assert sorted(load_saved("a")["source"][:]) == sorted(load_saved("b")["source"][:])
    assert load_report("b")["name"] == "mine"


def test_mixture_is_checked_as_a_whole(here):
    argv = ["mix", "gsm8k=31", "countdown=2", "--local_paths", "gsm8k=train.jsonl", "--output_dir", "out"]
    assert _data(*argv, "--decontaminate", "gsm8k=test.jsonl") == 0
    assert load_report("out")["rows"] == 32


# --- decontaminate


@pytest.mark.parametrize("column", ["question", "prompt"])
def test_decontaminate_writes_the_rest_of_a_file(here, capsys, column):
    _write("rows.jsonl", [{column: row["question"], "answer": 1} for row in [*RAW[:4], *TEST]])
    argv = ["decontaminate", "rows.jsonl", "--against", "gsm8k=test.jsonl"]
    assert _data(*argv) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["read", "5"] in rows and ["dropped", "for", "gsm8k", "1"] in rows and ["kept", "4"] in rows
    assert _data(*argv, "--output_dir", "out") == 0
    assert load_saved("out")[column][:] == [row["question"] for row in RAW[:4]]


def test_decontaminate_a_built_folder_keeps_what_its_report_says(here):
    assert _build("--decontaminate", "none") == 0
    assert _data("decontaminate", "out", "--against", "gsm8k=test.jsonl", "--output_dir", "clean") == 0
    report = load_report("clean")
    assert (report["rows"], report["licence"], report["loaded"]) == (NUM_ROWS, "mit", NUM_ROWS + 2)
    assert report["checks"]["decontamination"]["by_set"] == {"gsm8k": 1}
    assert "license: mit" in Path("clean/README.md").read_text()


def test_evaluation_set_of_ones_own_is_a_file_with_prompts(here, capsys):
    _write("own.jsonl", [{"text": TEST[0]["question"]}])
    assert _data("decontaminate", "train.jsonl", "--against", "my_benchmark=own.jsonl") == 0
    assert ["dropped", "for", "my_benchmark", "1"] in [line.split() for line in capsys.readouterr().out.splitlines()]
    _write("own.jsonl", [{"words": "a"}])
    _refused(
        capsys, "own.jsonl has none of the columns prompt", "decontaminate", "train.jsonl", "--against", "x=own.jsonl"
    )


# --- text


def test_table_is_aligned_and_wraps_its_last_column():
    assert table(("a", "b"), [("x", 10), ("yy", 9)], numbers=(1,)) == "a    b\nx   10\nyy   9"
    assert table(("a", "b"), [("x", "one two three four five six")], width=24).splitlines() == [
        "a  b",
        "x  one two three four",
        "   five six",
    ]


def test_shortened_keeps_both_ends():
    assert shortened("a" * 50 + "b" * 50, 20) == "a" * 10 + " [... 80 characters ...] " + "b" * 10


def test_source_that_is_named_twice_is_refused(here, capsys):
    sentence = "'gsm8k' is named more than once; give each source one number"
    _refused(capsys, sentence, "mix", "gsm8k=10", "gsm8k=20", "--dry_run", status=2)
    Path("recipe.yaml").write_text("gsm8k: 10\ncountdown: 5\ngsm8k: 20\n")
    sentence = "recipe.yaml: the key 'gsm8k' stands twice, in line 1 and line 3; keep one"
    _refused(capsys, sentence, "mix", "--recipe", "recipe.yaml", "--dry_run", status=2)


def test_negative_number_of_rows_is_shown_as_written(here, capsys):
    _refused(capsys, "gsm8k: -3 must be a number of rows", "mix", "gsm8k=-3", "--dry_run")


def test_blank_licence_is_refused_before_anything_is_built(here, capsys):
    argv = ["build", "gsm8k", "--local_path", "gone.jsonl", "--output_dir", "out", "--licence", " "]
    _refused(capsys, "--licence is blank; name a licence such as cc-by-4.0", *argv, status=2)


def test_list_says_which_sources_are_pinned(here, capsys, monkeypatch):
    from datasets_builders.sources import arc

    moving = [replace(source, revision=None) for source in arc.SOURCES]
    monkeypatch.setattr("datasets_builders.sources.arc.SOURCES", moving)
    assert _data("list", "--json") == 0
    groups = json.loads(capsys.readouterr().out)
    facts = {fact["name"]: fact["pinned"] for group in groups.values() for fact in group}
    assert (facts["gsm8k"], facts["arc_easy"], facts["arithmetic"]) == (True, False, None)
    assert _data("list", "--task", "choice") == 0
    assert [line.split()[-2:] for line in capsys.readouterr().out.splitlines() if "arc_easy" in line] == [
        ["first", "read"]
    ]


def test_mixture_of_a_changed_file_is_refused(here, capsys):
    argv = ["mix", "gsm8k=5", "countdown=2", "--local_paths", "gsm8k=train.jsonl", "--output_dir", "out"]
    argv += ["--decontaminate", "none"]
    assert _data(*argv) == 0
    _write("train.jsonl", RAW[:9])
    _refused(capsys, "the source gsm8k of output_dir=out has changed: it was built from sha256:", *argv)


def test_comparison_with_nothing_counts_nothing(here, capsys):
    assert _build("--decontaminate") == 0
    assert "in an evaluation set" not in capsys.readouterr().out
