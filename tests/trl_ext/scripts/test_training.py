"""Flags, YAML, rewards and data by name: what is read, what is refused, and what a run leaves behind."""

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from datasets import Dataset, DatasetDict, IterableDataset

import trl_ext
from trl_ext.cli import main
from trl_ext.errors import UserError
from trl_ext.scripts import _training


@dataclass
class Some:
    learning_rate: float = 0.1
    model_name_or_path: str | None = None
    use_peft: bool = False
    targets: list[str] | None = field(default=None)


def _parse(*argv):
    (some,) = _training.parse((Some,), list(argv), prog="trl-ext some")
    return some


def _file(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


# --- flags and YAML -----------------------------------------------------------------------------------------------


def test_parse_takes_flags_and_the_short_name_of_the_model():
    assert _parse("--model", "x", "--learning_rate", "0.5").model_name_or_path == "x"
    assert _parse("--model=y").model_name_or_path == "y"
    assert _parse("--targets", "a", "b").targets == ["a", "b"]
    assert _parse("--use_peft").use_peft is True


@pytest.mark.parametrize("argv", [["--learning_rat", "1"], ["--learningrate=1"], ["--learning-rates", "1"]])
def test_unknown_flag_is_refused_with_the_closest_one(argv):
    with pytest.raises(UserError, match=r"^unknown flag --learning.*; did you mean '--learning[_-]rate'\?$"):
        _parse(*argv)


def test_config_file_sets_what_the_command_line_does_not(tmp_path):
    path = _file(tmp_path / "a.yaml", "learning_rate: 0.7\nmodel_name_or_path: from-file\ntargets: [a, b]\n")
    for argv in (["--config", path], [f"--config={path}"]):
        some = _parse(*argv, "--model", "from-flag")
        assert (some.learning_rate, some.model_name_or_path, some.targets) == (0.7, "from-flag", ["a", "b"])


def test_config_key_with_a_typo_is_refused_with_file_and_closest_key(tmp_path):
    path = _file(tmp_path / "a.yaml", "learning_rat: 0.7\n")
    with pytest.raises(UserError, match=r"unknown key 'learning_rat' in .*a.yaml; did you mean 'learning_rate'\?"):
        _parse("--config", path)


@pytest.mark.parametrize(
    "text, sentence",
    [("a: [1", "a.yaml is not valid YAML"), ("- a\n- b\n", "must hold `name: value` lines"), ("", "must hold")],
)
def test_config_file_that_is_no_table_is_refused(tmp_path, text, sentence):
    with pytest.raises(UserError, match=sentence):
        _parse("--config", _file(tmp_path / "a.yaml", text))


def test_config_that_is_neither_file_nor_recipe_is_refused():
    with pytest.raises(UserError, match="no configuration file 'nothing', and no recipe of that name"):
        _parse("--config", "nothing")
    with pytest.raises(UserError, match="did you mean 'ppo-lora'"):
        _parse("--config", "ppo_lora")
    with pytest.raises(UserError, match="--config needs a YAML file or the name of a recipe"):
        _parse("--config")


@pytest.mark.parametrize("recipe", ["ppo-lora", "ppo-qlora"])
def test_shipped_recipe_is_read_by_the_ppo_command(recipe, tmp_path):
    from trl_ext.scripts import ppo

    _, args, model_args = ppo._parse(["--config", recipe, "--output_dir", str(tmp_path), "--bf16", "False"])
    assert args.critic == "adapter" and args.learning_rate == 1e-4 and model_args.use_peft
    assert model_args.load_in_4bit == (recipe == "ppo-qlora") and model_args.dtype == "bfloat16"


def test_shipped_recipe_is_read_by_the_grpo_command(tmp_path):
    from trl_ext.scripts import grpo

    argv = ["--config", "grpo-lora", "--output_dir", str(tmp_path), "--bf16", "False", "--zero_std", "mask"]
    _, args, model_args = grpo._parse(argv)
    assert args.advantage_estimator == "trl" and args.zero_std == "mask" and args.learning_rate == 1e-4
    assert args.generation_batch_size == 4 * args.num_generations
    assert model_args.use_peft and model_args.dtype == "bfloat16"


@pytest.mark.parametrize("recipe", ["ppo-lora", "ppo-qlora", "grpo-lora"])
def test_every_key_of_a_shipped_recipe_is_a_setting_of_its_command(recipe, tmp_path):
    from trl_ext.scripts import grpo, ppo

    path = Path(_training.__file__).parent.parent / "recipes" / f"{recipe}.yaml"
    given = yaml.safe_load(path.read_text(encoding="utf-8"))
    command = grpo if recipe.startswith("grpo") else ppo
    parsed = command._parse(["--config", recipe, "--output_dir", str(tmp_path), "--bf16", "False"])
    settings = {name: value for one in reversed(parsed) for name, value in vars(one).items()}
    assert {name: settings[{"kl_coef": "beta"}.get(name, name)] for name in given} == given


# --- help ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("ppo", ["--model", "--dataset_name", "--reward_funcs", "--critic", "--config", "--help-all"]),
        (
            "grpo",
            ["--model", "--process_reward_funcs", "--advantage_estimator", "--zero_std", "--config", "--help-all"],
        ),
    ],
)
def test_help_names_the_main_options_without_heavy_imports(command, flags):
    heavy = "{'torch', 'transformers', 'trl'}"
    code = f"import sys; from trl_ext.cli import main; main([{command!r}, '--help']); print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *lines, loaded = done.stdout.splitlines()
    assert loaded == "set()"
    assert [flag for flag in flags if flag not in done.stdout] == []
    assert all(len(line) <= 120 for line in lines)


@pytest.mark.parametrize(("command", "config"), [("ppo", "PPOConfig"), ("grpo", "GRPOVariantConfig")])
def test_help_all_lists_every_field(command, config, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help-all"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert [f.name for f in fields(getattr(trl_ext, config)) if f.init and f"--{f.name}" not in text] == []


# --- rewards ------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder with a module `own_rewards` in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    code = "def short_reward(completions, **kwargs):\n    return [1.0 for _ in completions]\n"
    _file(tmp_path / "own_rewards.py", code)
    _file(tmp_path / "broken_rewards.py", "import a_module_that_is_not_there\n")
    _file(tmp_path / "syntax_rewards.py", "x = 1\ndef (:\n")
    yield tmp_path
    for name in ("own_rewards", "broken_rewards"):
        sys.modules.pop(name, None)


def test_reward_is_found_in_the_current_folder_in_reward_funcs_and_in_trl(here):
    import reward_funcs

    assert _training.load_reward("own_rewards.short_reward")(["a"]) == [1.0]
    assert _training.load_reward("think_format_reward") is reward_funcs.think_format_reward
    assert _training.load_reward("reward_funcs.think_format_reward") is reward_funcs.think_format_reward
    assert _training.load_reward("reasoning_accuracy_reward").__module__.startswith("trl.rewards")
    assert _training.load_reward("trl.rewards.think_format_reward").__module__.startswith("trl.rewards")


def test_reward_of_reward_funcs_loads_no_trl(here):
    code = "import sys; from trl_ext.scripts._training import load_reward as load; load('think_format_reward')"
    subprocess.run([sys.executable, "-c", f"{code}; assert not {{'trl', 'torch'}} & set(sys.modules)"], check=True)


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("acuracy_reward", r"unknown reward 'acuracy_reward'; did you mean 'accuracy_reward'\?; or give it as module"),
        ("exact_mach_reward", r"unknown reward 'exact_mach_reward'; did you mean 'exact_match_reward'\?"),
        ("reasoning_acuracy_reward", r"did you mean 'reasoning_accuracy_reward'\?"),
        ("AccuracyReward", r"unknown reward 'AccuracyReward'; did you mean 'accuracy_reward'\?"),
        ("reward_funcs.Sum", "the reward 'reward_funcs.Sum' is a class; give a function, or an object made of it"),
        ("reward_funcs.base", "the reward 'reward_funcs.base' is a module or value"),
        ("nowhere.some_reward", "there is no module 'nowhere' here or installed$"),
        ("own_reward.short_reward", r"no module 'own_reward' here or installed; did you mean 'own_rewards'\?"),
        ("reward_func.accuracy_reward", r"no module 'reward_func' here or installed; did you mean 'reward_funcs'\?"),
        ("own_rewards", "'own_rewards' is a module; name a function in it: own_rewards.some_reward"),
        ("syntax_rewards.some_reward", "syntax_rewards.py, line 2 is no Python: "),
        ("os.path.join", r"os.path.join\(a, p\) is no reward, which is called with completions="),
        ("trl.nowhere.some_reward", "there is no module 'trl.nowhere' here or installed"),
        ("own_rewards.shrt_reward", r"own_rewards has no 'shrt_reward'; did you mean 'short_reward'\?"),
    ],
)
def test_reward_that_is_not_there_is_refused_with_what_is(here, name, sentence):
    with pytest.raises(UserError, match=sentence):
        _training.load_reward(name)


def test_reward_module_that_lacks_a_module_itself_shows_its_own_traceback(here):
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        _training.load_reward("broken_rewards.some_reward")


@pytest.mark.parametrize("name", ["arithmetic_step_rewards", "format_progress_step_rewards"])
def test_step_reward_is_found_by_its_bare_name_and_by_its_module(here, name):
    from reward_funcs import steps

    assert _training.load_step_reward(name) is getattr(steps, name)
    assert _training.load_step_reward(f"reward_funcs.steps.{name}") is getattr(steps, name)
    assert _training.load_step_reward("own_rewards.short_reward")(["a"]) == [1.0]


@pytest.mark.parametrize("name", ["arithmetic_step_reward", "split_lines", "ArithmeticStepReward", "accuracy_reward"])
def test_step_reward_that_is_not_there_is_refused_with_what_is(here, name):
    with pytest.raises(
        UserError, match=f"unknown process reward '{name}'.*format_progress_step_rewards, or give it as"
    ):
        _training.load_step_reward(name)


# --- data ---------------------------------------------------------------------------------------------------------

ROWS = [{"prompt": "1+1=", "solution": "2"}, {"prompt": "2+2=", "solution": "4"}]


def _load(name, **settings):
    defaults = {"dataset_config": None, "dataset_train_split": "train", "dataset_streaming": False}
    return _training.load_data(SimpleNamespace(dataset_name=name and str(name), **{**defaults, **settings}))


@pytest.mark.parametrize("kind", ["json", "jsonl", "csv", "parquet", "folder", "splits"])
def test_data_is_read_from_a_file_or_a_saved_folder(tmp_path, kind):
    data, path = Dataset.from_list(ROWS), tmp_path / f"rows.{kind}"
    if kind == "jsonl":
        _file(path, "".join(json.dumps(row) + "\n" for row in ROWS))
    elif kind == "json":
        _file(path, json.dumps(ROWS))
    elif kind == "csv":
        data.to_csv(path, index=False)
    elif kind == "parquet":
        data.to_parquet(path)
    else:
        (data if kind == "folder" else DatasetDict(train=data, test=data)).save_to_disk(path)
    loaded = _load(path)
    assert [str(row["solution"]) for row in _training.pick_split(loaded, "train")] == ["2", "4"]
    if kind == "splits":
        assert len(_training.pick_split(loaded, "test")) == 2


@pytest.mark.parametrize("kind", ["jsonl", "csv", "folder", "splits"])
def test_local_data_is_streamed_where_that_is_asked_for(tmp_path, kind):
    data, path = Dataset.from_list(ROWS), tmp_path / f"rows.{kind}"
    if kind == "jsonl":
        _file(path, "".join(json.dumps(row) + "\n" for row in ROWS))
    elif kind == "csv":
        data.to_csv(path, index=False)
    else:
        (data if kind == "folder" else DatasetDict(train=data, test=data)).save_to_disk(path)
    split = _training.pick_split(_load(path, dataset_streaming=True), "train")
    assert isinstance(split, IterableDataset) and [str(row["solution"]) for row in split] == ["2", "4"]


@pytest.mark.parametrize("streaming", [False, True])
def test_local_file_that_is_broken_or_without_rows_is_refused(tmp_path, streaming):
    broken = _file(tmp_path / "broken.jsonl", '{"prompt": \n')
    with pytest.raises(UserError, match=r"broken.jsonl cannot be read as json"):
        _load(broken, dataset_streaming=streaming)
    with pytest.raises(UserError, match="holds no rows"):
        _load(_file(tmp_path / "empty.csv", "prompt,solution\n"), dataset_streaming=streaming)


@pytest.mark.parametrize("text", ["", "\n \n", "[]", " [\n]\n"])
def test_json_without_rows_is_refused(tmp_path, text):
    with pytest.raises(UserError, match="holds no rows"):
        _load(_file(tmp_path / "rows.json", text))


def test_folder_of_files_is_read_and_one_of_several_kinds_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _file(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS))
    for name in (".", tmp_path):
        assert _load(name)["train"]["solution"] == ["2", "4"]
    _file(tmp_path / "rows.csv", "a,b\n1,2\n1,2,3\n")
    (tmp_path / "rows.jsonl").unlink()
    _file(tmp_path / "model.bin", "x")
    with pytest.raises(UserError, match=r"the folder \. cannot be read as a data set; name one file of it"):
        _load(".")


def test_data_without_a_name_or_in_an_unknown_format_is_refused(tmp_path):
    for name in (None, "", " "):
        with pytest.raises(UserError, match="name the data: --dataset_name"):
            _load(name)
    with pytest.raises(UserError, match=r"is a .txt file; give one of .json, .jsonl, .parquet, .csv"):
        _load(_file(tmp_path / "rows.txt", "x"))


def test_split_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(UserError, match=r"the data has no split 'test'; it has \['eval', 'train'\]"):
        _training.pick_split({"train": 1, "eval": 2}, "test")


# --- what is left behind ------------------------------------------------------------------------------------------


def test_resolved_config_holds_every_setting_and_replaces_the_old_one(tmp_path):
    _training.write_resolved_config(
        str(tmp_path / "out"), Some(), SimpleNamespace(_hidden=1, other=None, more={"a": 1})
    )
    path = tmp_path / "out" / _training.RESOLVED_CONFIG
    assert yaml.safe_load(path.read_text()) == {"learning_rate": 0.1, "use_peft": False, "more": {"a": 1}}
    _training.write_resolved_config(str(tmp_path / "out"), Some(learning_rate=0.3))
    assert yaml.safe_load(path.read_text())["learning_rate"] == 0.3
    assert [p.name for p in path.parent.iterdir()] == [_training.RESOLVED_CONFIG]


def test_command_line_can_be_typed_again():
    argv = ["--model", "a folder/x", "--reward_funcs", "it's.one"]
    assert shlex.split(_training.command_line("ppo", argv)) == ["trl-ext", "ppo", *argv]


# --- resuming -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", True), ("True", True), ("last", True), ("out/checkpoint-2", "out/checkpoint-2"), (None, None)],
)
def test_resume_flag_is_a_folder_or_the_last_checkpoint(here, value, expected):
    (here / "out" / "checkpoint-2").mkdir(parents=True)
    assert _training.resume_from(SimpleNamespace(resume_from_checkpoint=value)) == expected


def test_resume_from_a_folder_that_is_not_there_is_refused(here):
    with pytest.raises(UserError, match="there is no checkpoint folder nowhere; --resume_from_checkpoint true takes"):
        _training.resume_from(SimpleNamespace(resume_from_checkpoint="nowhere"))


@pytest.mark.parametrize("push", [False, True])
def test_finish_saves_model_and_card_and_pushes_where_asked(tmp_path, monkeypatch, push):
    done = []
    trainer = SimpleNamespace(
        args=SimpleNamespace(output_dir=str(tmp_path), push_to_hub=push),
        accelerator=SimpleNamespace(print=done.append),
        save_model=lambda folder: done.append(("saved", folder)),
        push_to_hub=lambda **settings: done.append(("pushed", settings)),
    )
    card = lambda trainer, **settings: done.append(("card", settings)) or tmp_path / "README.md"  # noqa: E731
    monkeypatch.setattr("trl_ext.hub.write_model_card", card)
    _training.finish(trainer, SimpleNamespace(dataset_name="rows.jsonl"), "trl-ext grpo --model x")
    assert done[:2] == [
        ("saved", str(tmp_path)),
        ("card", {"dataset_name": "rows.jsonl", "command": "trl-ext grpo --model x"}),
    ]
    assert "README.md" in done[2]
    assert done[3:] == ([("pushed", {"dataset_name": "rows.jsonl"})] if push else [])
